// Command knoot is what people and agents type. It answers hooks itself; for all else it becomes knootd, which is installed
// beside it. A hook runs on every tool call of an agent, and what a program links is initialised at each start, so nothing
// heavy is linked here: see deps_test.go.
package main

import (
	"fmt"
	"os"
	"syscall"

	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/hook"
)

func main() {
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	if len(args) > 0 && args[0] == "hook" {
		return hook.Run(args[1:])
	}
	if len(args) == 1 && (args[0] == "version" || args[0] == "--version") {
		if _, err := fmt.Println("knoot", socket.Version); err != nil {
			return 1
		}
		return 0
	}
	knootd, err := hook.Knootd(os.Executable, os.Getenv)
	if err == nil {
		err = syscall.Exec(knootd, append([]string{"knootd"}, args...), os.Environ())
		err = fmt.Errorf("%s cannot be run: %w; install it again", knootd, err)
	}
	fmt.Fprintf(os.Stderr, "knoot: %v\n", err)
	return 1
}
