package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/peterbourgon/ff/v3/ffcli"

	"knoot.dev/knoot/daemon"
)

func (c *console) trustCommand() *ffcli.Command {
	flags := newFlags("trust")
	head := flags.String("roster", "", "follow the roster that the host shows, though it does not go on from the one seen before: it has the entry with this `HASH`")
	return command(manual{
		name: "trust", usage: "[--roster HASH]", short: "Accept that this clone's team, remote or relay is another now",
		long: `knoot remembers on this machine what a clone belonged to when it was first seen, and
stops syncing when a commit changes that. This shows old and new, and goes on with
the new.

It also remembers how far the team's roster had come, and refuses one that does not go
on from there: the host may have lost entries, or somebody shows another team. --roster
follows it all the same; ask a colleague first which hash "knoot status" shows there.

Needs a person: an agent is told to ask its user.`,
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
		if *head != "" {
			if len(*head) != 64 || strings.Trim(strings.ToLower(*head), "0123456789abcdef") != "" {
				return misusef("--roster takes the 64 hex digits of an entry's hash, as `knoot status` shows them")
			}
			if answer, err := c.changeTeam(ctx, daemon.TeamRequest{Do: "trust", Head: strings.ToLower(*head)}); err != nil || answer == nil {
				return err
			}
			fmt.Fprintln(c.stdout, "The roster that the host shows is followed from now on.")
			return nil
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
