package main

import (
	"context"

	"github.com/peterbourgon/ff/v3/ffcli"

	"knoot.dev/knoot/daemon"
	"knoot.dev/knoot/gitlog"
)

func (c *console) shownCommand() *ffcli.Command {
	flags := newFlags("shown")
	asJSON := jsonFlag(flags)
	return command(manual{
		name: "shown", usage: "[SESSION] [--json]",
		short: "Print what agents on this machine were told, word for word",
		long: `With time, size and cause. SESSION is a session's id, or its first characters. What
was told is kept for 7 days, on this machine alone.`,
		example: "knoot shown",
	}, flags, func(_ context.Context, args []string) error {
		session := ""
		switch len(args) {
		case 0:
		case 1:
			session = args[0]
		default:
			return misusef("name one session, or none for all: `knoot shown [SESSION]`")
		}
		home, err := gitlog.OpenHome(c.getenv)
		if err != nil {
			return err
		}
		history, err := daemon.ReadHistory(home, c.now())
		if err != nil {
			return err
		}
		records, err := daemon.ShownOf(history.Shown, session)
		if err != nil {
			return err
		}
		if *asJSON {
			return daemon.PrintShownJSON(c.stdout, records)
		}
		return daemon.PrintShown(c.stdout, records, c.now())
	})
}
