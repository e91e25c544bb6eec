package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/peterbourgon/ff/v3/ffcli"

	"knoot.dev/knoot/daemon"
	"knoot.dev/knoot/gitlog"
)

func (c *console) syncCommand() *ffcli.Command {
	flags := newFlags("sync")
	asJSON := jsonFlag(flags)
	return command(manual{
		name: "sync", usage: "[--json]", short: "Fetch and push the team's memory now, not in a while",
		long:    "The daemon does this by itself. Only what the host confirmed counts as synced.",
		example: "knoot sync",
	}, flags, func(ctx context.Context, args []string) error {
		if err := noArguments("sync", args); err != nil {
			return err
		}
		if idle, err := c.keeps(); idle || err != nil {
			return err
		}
		var report gitlog.SyncReport
		if err := c.perform(ctx, "sync", daemon.SyncRequest{}, &report); err != nil {
			return err
		}
		if *asJSON {
			return c.printJSON(report)
		}
		fmt.Fprintf(c.stdout, "Synced with %s: %s in, %s out.\n", report.Remote,
			plural(report.FetchedSegments, "segment"), plural(report.PushedSegments, "segment"))
		for _, p := range report.Problems {
			fmt.Fprintf(c.stderr, "knoot: %s is not taken over: %s\n", plain(p.Ref), plain(p.What))
		}
		return nil
	})
}

// printJSON writes one value, indented, since people read it too.
func (c *console) printJSON(value any) error {
	e := json.NewEncoder(c.stdout)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(value)
}
