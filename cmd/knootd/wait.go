package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/peterbourgon/ff/v3/ffcli"

	"knoot.dev/knoot/daemon"
	"knoot.dev/knoot/daemon/socket"
)

func (c *console) waitCommand() *ffcli.Command {
	flags := newFlags("wait")
	patience := flags.String("for", "100s", "how long at most: a `LENGTH` such as 100s or 15m")
	return command(manual{
		name: "wait", usage: "PATH [--for LENGTH]",
		short: "Wait until a file is free to write",
		long: `It exits 0 once nobody else holds the file, at once where nobody does or no daemon
runs, and 1 if it is still held in the end. It claims nothing: whoever writes first
has it.`,
		example: "knoot wait src/billing.js --for 10s",
	}, flags, func(ctx context.Context, args []string) error {
		if len(args) != 1 {
			return misusef("name one file: `knoot wait PATH`")
		}
		limit, err := parseAge(*patience)
		if err != nil {
			return misuse{err.Error()}
		}
		r, err := c.pathRequest(ctx, args[0])
		if err != nil {
			return err
		}
		end := time.Now().Add(limit)
		for {
			r.For = max(time.Until(end).Milliseconds(), 0)
			var answer daemon.WaitAnswer
			err := c.ask(ctx, "wait", r, &answer, time.Until(end)+askTime)
			switch {
			case ctx.Err() != nil:
				return errSaid // whoever interrupted it knows
			case errors.Is(err, socket.ErrAbsent), err == nil && answer.Free:
				fmt.Fprintf(c.stdout, "%s is free.\n", plain(args[0]))
				return nil
			case errors.Is(err, socket.ErrGone), err == nil && answer.Again:
				if time.Now().After(end) {
					return fmt.Errorf("%s: the daemon ended while it was waited for; try again", args[0])
				}
			case err != nil:
				return err
			default:
				return fmt.Errorf("%s is still held by %s, for %s more if they do not go on", args[0], answer.By, lease(answer.Until, c.now()))
			}
		}
	})
}

// pathRequest is the request about one file that was typed.
func (c *console) pathRequest(ctx context.Context, path string) (r daemon.PathRequest, err error) {
	repo, err := c.repository(ctx)
	if err != nil {
		return r, err
	}
	r.Path, err = c.inTree(repo, path)
	return r, err
}
