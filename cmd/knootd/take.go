package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/peterbourgon/ff/v3/ffcli"

	"knoot.dev/knoot/daemon"
	"knoot.dev/knoot/daemon/socket"
)

func (c *console) takeCommand() *ffcli.Command {
	flags := newFlags("take")
	return command(manual{
		name: "take", usage: "PATH",
		short: "Take a file from whichever session holds it",
		long: `It is yours for 10 minutes; others are refused it, your own sessions are told. Its
holder hears of it at its next tool call. Needs a person.`,
		example: "knoot take src/billing.js",
	}, flags, func(ctx context.Context, args []string) error {
		if len(args) != 1 {
			return misusef("name one file: `knoot take PATH`")
		}
		if c.idle() {
			return nil
		}
		if err := c.needPerson(); err != nil {
			return err
		}
		r, err := c.pathRequest(ctx, args[0])
		if err != nil {
			return err
		}
		var answer daemon.TakeAnswer
		err = c.ask(ctx, "take", r, &answer, askTime)
		if errors.Is(err, socket.ErrAbsent) {
			return errNobodyHere
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(c.stdout, "%s is yours until %s.\n", plain(args[0]), answer.Until.Time().In(c.now().Location()).Format(time.TimeOnly))
		if len(answer.From) > 0 {
			fmt.Fprintf(c.stdout, "%s held it and hears of it at the next tool call.\n", plain(strings.Join(answer.From, ", ")))
		}
		return nil
	})
}
