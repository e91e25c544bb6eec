package main

import (
	"context"
	"fmt"
	"time"

	"github.com/peterbourgon/ff/v3/ffcli"

	"knoot.dev/knoot/gitlog"
)

// problemsShown bounds what is printed for people; --json has all.
const problemsShown = 50

func (c *console) verifyCommand() *ffcli.Command {
	flags := newFlags("verify")
	asJSON := jsonFlag(flags)
	return command(manual{
		name: "verify", usage: "[--json]",
		short: "Check every log and the roster, without any key",
		long: `Signatures, chains, who was allowed what at the time, what others saw of each log,
and what this clone has kept and remembers. It needs no key, no daemon and no
network, and works in a bare repository such as the host's. It exits 1 if anything is
wrong.

--json prints {writers, segments, entries, problems: [{ref, seq, problem}]}.`,
		example: "knoot verify",
	}, flags, func(ctx context.Context, args []string) error {
		if err := noArguments("verify", args); err != nil {
			return err
		}
		repo, err := c.repository(ctx)
		if err != nil {
			return err
		}
		var o gitlog.VerifyOptions
		if o.Home, err = gitlog.OpenHome(c.getenv); err != nil {
			o.Home = nil // nobody's machine: there is nothing that it remembers
		}
		clear := func() {}
		if onTerminal(c.stderr) {
			o.Progress, clear = c.progress("Checking logs")
		}
		report, err := gitlog.Verify(ctx, repo, o)
		clear()
		if err != nil {
			return err
		}
		if *asJSON {
			err = c.printJSON(report)
		} else {
			c.printVerified(report)
		}
		if err == nil && len(report.Problems) > 0 {
			err = errSaid
		}
		return err
	})
}

func (c *console) printVerified(r *gitlog.VerifyReport) {
	what := fmt.Sprintf("%s, %s, %d entries", plural(r.Writers, "writer"), plural(r.Segments, "segment"), r.Entries)
	if len(r.Problems) == 0 {
		fmt.Fprintf(c.stdout, "Nothing is wrong: %s.\n", what)
		return
	}
	fmt.Fprintf(c.stdout, "%s in %s.\n", plural(len(r.Problems), "problem"), what)
	for i, p := range r.Problems {
		if i == problemsShown {
			fmt.Fprintf(c.stdout, "  and %d more: `knoot verify --json` lists them\n", len(r.Problems)-i)
			break
		}
		place := plain(p.Ref)
		if p.Seq > 0 {
			place += fmt.Sprintf(", %d", p.Seq)
		}
		fmt.Fprintf(c.stdout, "  %s: %s\n", place, plain(p.What))
	}
}

// progressEvery keeps a progress line from being the work.
const progressEvery = 100 * time.Millisecond

// progress returns what draws a progress line on the terminal, and what takes it away.
func (c *console) progress(what string) (step func(done, total int), clear func()) {
	var last time.Time
	step = func(done, total int) {
		if now := time.Now(); now.Sub(last) >= progressEvery {
			last = now
			fmt.Fprintf(c.stderr, "\r%s: %d of %d", what, done, total)
		}
	}
	return step, func() {
		if !last.IsZero() {
			fmt.Fprint(c.stderr, "\r\x1b[K")
		}
	}
}
