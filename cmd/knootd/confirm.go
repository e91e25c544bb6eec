package main

import (
	"context"
	"fmt"

	"github.com/peterbourgon/ff/v3/ffcli"

	"knoot.dev/knoot/gitlog"
)

func (c *console) confirmCommand() *ffcli.Command {
	flags := newFlags("confirm")
	var r gitlog.ConfirmRequest
	flags.StringVar(&r.Room, "room", "", "the fact's `ROOM`, where the name is found in two")
	return command(manual{
		name: "confirm", usage: "NAME", short: "Say that a fact still holds, after a look at its files",
		long:    "The fact is fresh again, and lives for another 90 days.",
		example: "knoot confirm money",
	}, flags, func(ctx context.Context, args []string) error {
		if len(args) != 1 {
			return misusef("name the one fact that holds: `knoot confirm NAME`; `knoot recall` lists them")
		}
		r.Name = args[0]
		if idle, err := c.keeps(); idle || err != nil {
			return err
		}
		if err := c.perform(ctx, "confirm", r, nil); err != nil {
			return err
		}
		fmt.Fprintf(c.stdout, "Confirmed %s.\n", r.Name)
		return nil
	})
}
