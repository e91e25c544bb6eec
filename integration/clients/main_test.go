// Package clients tries MCP clients that other people wrote against the real executable: a daemon of a person with a throw-away
// home and a repository of their own. fetch.sh fetches them; those that are not here are skipped, and the table says why.
package clients

import (
	"os"
	"testing"

	"knoot.dev/knoot/integration/stage"
)

// notIsolated says why programs of others cannot be run here; they are never run with a network.
var notIsolated error

func TestMain(m *testing.M) {
	notIsolated = stage.Isolated(func() int { return run(m) })
	os.Exit(run(m))
}

func run(m *testing.M) int {
	code := stage.Run(m)
	results.print(os.Stdout)
	return code
}
