package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/peterbourgon/ff/v3/ffcli"

	"knoot.dev/knoot/daemon"
	"knoot.dev/knoot/gitlog"
)

func (c *console) statsCommand() *ffcli.Command {
	flags := newFlags("stats")
	since := flags.String("since", "7d", "count from this `TIME` on: a date, an hour, or an age such as 7d, which is the default")
	asJSON := jsonFlag(flags)
	return command(manual{
		name: "stats", usage: "[--since TIME] [--json]",
		short:   "Say what knoot was worth: briefs, facts delivered, hooks that failed",
		long:    "Counted on this machine, for its eyes only: knoot reports to nobody.",
		example: "knoot stats --since 1d",
	}, flags, func(_ context.Context, args []string) error {
		if err := noArguments("stats", args); err != nil {
			return err
		}
		from, err := parseWhen(*since, c.now())
		if err != nil {
			return misuse{err.Error()}
		}
		home, err := gitlog.OpenHome(c.getenv)
		if err != nil {
			return err
		}
		history, err := daemon.ReadHistory(home, c.now())
		if err != nil {
			return err
		}
		failures, err := readFailures(home)
		if err != nil {
			return err
		}
		stats := daemon.ComputeStats(history.Shown, failures, from)
		if *asJSON {
			return c.printJSON(stats)
		}
		return stats.Print(c.stdout, c.now())
	})
}

// readFailures reads which hooks failed open.
func readFailures(home *gitlog.Home) ([]daemon.Failure, error) {
	text, err := os.ReadFile(filepath.Join(home.Dir, "failures"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot read which hooks failed: %w", err)
	}
	return daemon.ParseFailures(text), nil
}
