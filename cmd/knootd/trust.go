package main

import (
	"context"
	"fmt"

	"github.com/peterbourgon/ff/v3/ffcli"
)

func (c *console) trustCommand() *ffcli.Command {
	flags := newFlags("trust")
	return command(manual{
		name: "trust", short: "Accept that this clone's team, remote or relay is another now",
		long: `knoot remembers on this machine what a clone belonged to when it was first seen, and
stops syncing when a commit changes that. This shows old and new, and goes on with
the new. Needs a person: an agent is told to ask its user.`,
		example: "knoot trust",
	}, flags, func(ctx context.Context, args []string) error {
		if err := noArguments("trust", args); err != nil {
			return err
		}
		if c.idle() {
			return nil
		}
		if err := c.needPerson(); err != nil {
			return err
		}
		clone, err := c.open(ctx)
		if err != nil {
			return err
		}
		defer clone.Close()
		changes, err := clone.Trust(ctx)
		if err != nil {
			return err
		}
		if len(changes) == 0 {
			fmt.Fprintln(c.stdout, "Nothing has changed: all is as it was first seen here.")
			return nil
		}
		for _, change := range changes {
			fmt.Fprintf(c.stdout, "%s\n  was  %s\n  now  %s\n", change.Setting, orNone(change.Old), orNone(change.New))
		}
		fmt.Fprintln(c.stdout, "Trusted. `knoot sync` goes on with it.")
		return nil
	})
}

func orNone(value string) string {
	if value == "" {
		return "none"
	}
	return plain(value)
}
