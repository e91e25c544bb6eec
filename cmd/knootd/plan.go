package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/peterbourgon/ff/v3/ffcli"

	"knoot.dev/knoot/gitlog"
)

func (c *console) planCommand() *ffcli.Command {
	flags := newFlags("plan")
	var r gitlog.PlanRequest
	paths := pathFlag(flags)
	var decided list
	flags.Var(&decided, "decided", "something `DECIDED` that others should know; may be given several times")
	flags.BoolVar(&r.Clear, "clear", false, "the plan is done, or off")
	return command(manual{
		name: "plan", usage: "[--path PATH]... [--decided DECIDED]... [--clear] [TEXT|-]",
		short: "Say what this session means to do and what it decided",
		long: `Other sessions on this machine hear of it with their next prompt. The plan lives
as long as the session. A new one replaces it.`,
		example: `knoot plan --path src/billing.js --decided "round half-even" "rewriting the rounding"
knoot plan --clear`,
	}, flags, func(ctx context.Context, args []string) error {
		text, err := c.text(args)
		if err != nil {
			return err
		}
		r.Text, r.Decided = text, decided
		said := strings.TrimSpace(r.Text) != "" || len(r.Decided) > 0 || len(*paths) > 0
		switch {
		case r.Clear && said:
			return misusef("--clear takes no plan: run it alone, or leave it out to replace the plan")
		case !r.Clear && !said:
			return misusef("there is no plan: write one, or end yours with --clear")
		}
		if idle, err := c.keeps(); idle || err != nil {
			return err
		}
		if !r.Clear && c.getenv("KNOOT_PRIVATE") == "1" {
			return errors.New("this session is private (KNOOT_PRIVATE=1), so its plan is shared with nobody")
		}
		if r.Paths, err = c.absolute(*paths); err != nil {
			return err
		}
		if err := c.perform(ctx, "plan", r, nil); errors.Is(err, errSpooled) {
			c.saySpooled()
			return nil
		} else if err != nil {
			return err
		}
		if r.Clear {
			fmt.Fprintln(c.stdout, "The plan is cleared.")
		} else {
			fmt.Fprintln(c.stdout, "The plan is noted.")
		}
		return nil
	})
}
