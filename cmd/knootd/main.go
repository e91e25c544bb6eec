// Knootd is every command of knoot, and its daemon. People type knoot, which becomes knootd for all but hooks.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
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
