package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/peterbourgon/ff/v3/ffcli"

	"knoot.dev/knoot/daemon"
	"knoot.dev/knoot/daemon/socket"
)

func (c *console) releaseCommand() *ffcli.Command {
	flags := newFlags("release")
	return command(manual{
		name: "release", usage: "PATH",
		short: "Let go of a file before its lease ends",
		long: `An agent ends its own session's claim, a person that of whoever holds the file on
this branch. Whoever was refused the file hears that it is free.`,
		example: "knoot release src/billing.js",
	}, flags, func(ctx context.Context, args []string) error {
		if len(args) != 1 {
			return misusef("name one file: `knoot release PATH`")
		}
		r, err := c.pathRequest(ctx, args[0])
		if err != nil {
			return err
		}
		var answer daemon.ReleaseAnswer
		err = c.ask(ctx, "release", r, &answer, askTime)
		if errors.Is(err, socket.ErrAbsent) {
			return errNobodyHere
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(c.stdout, "%s is free; it was held by %s.\n", plain(args[0]), plain(strings.Join(answer.Released, ", ")))
		return nil
	})
}
