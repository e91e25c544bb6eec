package main

import (
	"context"
	"flag"

	"github.com/peterbourgon/ff/v3/ffcli"

	"knoot.dev/knoot/gitlog"
)

func (c *console) cacheCommand() *ffcli.Command {
	flags := newFlags("cache")
	var r gitlog.RememberRequest
	flags.StringVar(&r.Name, "name", "", "the answer's `NAME`; the same name later supersedes it")
	paths := pathFlag(flags)
	flags.StringVar(&r.Room, "room", "", "the `ROOM` that may read it; needed only where paths lie in several")
	flags.BoolVar(&r.Yes, "yes", false, "even if it is nearly what another one says, or the session's 21st")
	return command(manual{
		name: "cache", usage: "--name NAME --path PATH... TEXT|-",
		short: "Keep an answer that took work to find, until its files change",
		long: `A cached answer is told like a fact, for 14 days at most. When one of its paths
changes it is gone, since it may be wrong then. It needs at least one path.`,
		example: `knoot cache --name callers-of-charge --path src/billing.js "charge() is called by cart.js and renew.js"`,
	}, flags, func(ctx context.Context, args []string) error {
		if len(*paths) == 0 {
			return misusef("a cached answer is true of some files: name at least one with --path PATH")
		}
		r.Kind = gitlog.KindCache
		return c.publish(ctx, "cache", r, *paths, args)
	})
}

func pathFlag(flags *flag.FlagSet) *list {
	var paths list
	flags.Var(&paths, "path", "a file, folder or glob that it is about, as `PATH`; may be given several times")
	return &paths
}
