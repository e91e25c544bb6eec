package main

import (
	"context"
	"fmt"

	"github.com/peterbourgon/ff/v3/ffcli"

	"knoot.dev/knoot/gitlog"
)

func (c *console) forgetCommand() *ffcli.Command {
	flags := newFlags("forget")
	var r gitlog.ForgetRequest
	flags.BoolVar(&r.Last, "last", false, "take back what was remembered last from here")
	flags.StringVar(&r.Room, "room", "", "the fact's `ROOM`, where the name is found in two")
	return command(manual{
		name: "forget", usage: "NAME|--last", short: "End a fact or a cached answer: nobody is told it any more",
		long: `Forgotten is not erased: its sealed bytes stay in the history of clones and of the
git host.`,
		example: "knoot forget money\nknoot forget --last",
	}, flags, func(ctx context.Context, args []string) error {
		switch {
		case r.Last && len(args) > 0:
			return misusef("--last takes no name")
		case !r.Last && len(args) != 1:
			return misusef("name the one fact to forget, or write --last; `knoot recall` lists them")
		case !r.Last:
			r.Name = args[0]
		}
		if idle, err := c.keeps(); idle || err != nil {
			return err
		}
		if err := c.perform(ctx, "forget", r, nil); err != nil {
			return err
		}
		if r.Last {
			fmt.Fprintln(c.stdout, "Forgot what was remembered last.")
		} else {
			fmt.Fprintf(c.stdout, "Forgot %s.\n", r.Name)
		}
		return nil
	})
}
