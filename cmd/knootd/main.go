// Knootd is every command of knoot, and its daemon. People type knoot, which becomes knootd for all but hooks.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] != "daemon" {
		collectLate()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := os.Getwd()
	if err != nil {
		dir = "" // the folder is gone; commands that need one say so
	}
	c := &console{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		getenv: os.Getenv, dir: dir, now: time.Now,
	}
	code := c.run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// collectLate keeps garbage until there are 64 MB: most commands are over before, and collecting is a tenth of what they would
// take. From the first collection on it goes as usual.
func collectLate() {
	const usual, late = 100, 1600 // percent; a collection comes at 4 MB times that, at first
	debug.SetGCPercent(late)
	type sentinel struct{ _ *byte } // with a pointer, so that it shares its memory with nothing that stays
	runtime.AddCleanup(new(sentinel), func(percent int) { debug.SetGCPercent(percent) }, usual)
}
