package main

import (
	"context"
	"flag"
	"fmt"
	"strings"

	"github.com/peterbourgon/ff/v3/ffcli"

	"knoot.dev/knoot/daemon"
	"knoot.dev/knoot/gitlog"
)

func jsonFlag(flags *flag.FlagSet) *bool {
	return flags.Bool("json", false, "print JSON for programs")
}

func (c *console) recallCommand() *ffcli.Command {
	flags := newFlags("recall")
	var q gitlog.RecallQuery
	path := flags.String("path", "", "only what is about this `PATH`, what is in it or what holds it")
	flags.BoolVar(&q.All, "all", false, "superseded, expired and forgotten ones too")
	asJSON := jsonFlag(flags)
	return command(manual{
		name: "recall", usage: "[WORDS|NAME] [--path PATH] [--all] [--json]",
		short: "List facts, cached answers and plans, whole",
		long: `Without words it lists all that counts now. It needs no daemon and no network.

--json prints an array of {id, name, kind, text, paths, author, at, stale,
stale_reason, superseded_by}.`,
		example: "knoot recall rounding\nknoot recall --path src/billing.js",
	}, flags, func(ctx context.Context, args []string) error {
		clone, err := c.open(ctx)
		if err != nil {
			return err
		}
		defer clone.Close()
		for _, arg := range args {
			q.Words = append(q.Words, strings.Fields(arg)...)
		}
		if *path != "" {
			if q.Path, err = c.inTree(clone.Repo, *path); err != nil {
				return err
			}
		}
		tree := gitlog.OpenTree(clone.Repo)
		defer tree.Close()
		found, err := clone.Recall(ctx, tree, q, gitlog.MillisOf(c.now()))
		if err != nil {
			return err
		}
		if *asJSON {
			if found == nil {
				found = []gitlog.Recalled{}
			}
			return c.printJSON(found)
		}
		drafts, err := c.drafts(clone)
		if err != nil {
			return err
		}
		if len(found) == 0 && len(drafts) == 0 {
			fmt.Fprintln(c.stdout, "Nothing found.")
		}
		for i, r := range found {
			if i > 0 {
				fmt.Fprintln(c.stdout)
			}
			c.printRecalled(r)
		}
		for _, d := range drafts {
			fmt.Fprintf(c.stdout, "\n%s\n", c.bold(plain(d.Request.Name)+" (waits for you)"))
			for _, line := range wrap(plain(oneLine(d.Request.Text)), helpWidth-2) {
				fmt.Fprintln(c.stdout, "  "+line)
			}
			fmt.Fprintf(c.stdout, "  `knoot confirm %s` shares it, `knoot forget %s` drops it\n", plain(d.Request.Name), plain(d.Request.Name))
		}
		return nil
	})
}

// drafts are the facts of agents that stay on this machine until its person has looked at them.
func (c *console) drafts(clone *gitlog.Clone) ([]daemon.Draft, error) {
	home, err := gitlog.OpenHome(c.getenv)
	if err != nil {
		return nil, err
	}
	return daemon.Workplace{Home: home, Clone: clone}.Drafts()
}

func (c *console) printRecalled(r gitlog.Recalled) {
	title := plain(r.Name)
	switch {
	case title == "":
		title = spokenKind(r.Kind)
	case r.Kind != "fact":
		title += " (" + spokenKind(r.Kind) + ")"
	}
	about := []string{by(r), c.ago(r.Said.Time())}
	if k := r.Confirmed; k != nil {
		about = append(about, "confirmed by "+author(k.By, k.Agent, k.Former)+" "+c.ago(k.At.Time()))
	}
	if len(r.Paths) > 0 {
		paths := make([]string, len(r.Paths))
		for i, p := range r.Paths {
			paths[i] = plain(p)
		}
		about = append(paths, about...)
	}
	fmt.Fprintln(c.stdout, c.bold(title))
	for _, line := range wrap(strings.Join(about, ", "), helpWidth-2) {
		fmt.Fprintln(c.stdout, "  "+c.dim(line))
	}
	for _, paragraph := range strings.Split(r.Text, "\n") {
		for _, line := range wrap(plain(paragraph), helpWidth-2) {
			fmt.Fprintln(c.stdout, "  "+line)
		}
	}
	for _, note := range notes(r) {
		for _, line := range wrap(note, helpWidth-2) {
			fmt.Fprintln(c.stdout, "  "+line)
		}
	}
}

// notes are the lines below a fact: that it may be stale, is not current, or is disputed.
func notes(r gitlog.Recalled) []string {
	var lines []string
	if r.Item != nil {
		switch {
		case r.Item.Forgotten:
			return []string{"forgotten"}
		case r.SupersededBy != nil:
			return []string{"superseded by a later one of this name"}
		case r.Item.Expired:
			return []string{"expired: nobody has confirmed it in time"}
		}
		for _, other := range r.Item.Disagrees {
			if other.Fact != nil {
				lines = append(lines, fmt.Sprintf("disagrees with another current one of this name: %q", plain(oneLine(other.Fact.Text))))
			}
		}
	}
	switch {
	case r.Stale:
		lines = append(lines, "⚠ possibly stale: "+plain(r.StaleReason))
	case r.StaleReason != "":
		lines = append(lines, plain(r.StaleReason))
	}
	return lines
}

func spokenKind(kind string) string {
	if kind == "cache" {
		return "cached answer"
	}
	return kind
}

// by names the author, and says where an agent wrote it.
func by(r gitlog.Recalled) string {
	said := r.Item.Origin // whoever confirmed it did not write it
	return author(r.Author, said.Fact != nil && said.Fact.By != gitlog.ByPerson || said.Plan != nil && said.Plan.Session != "", r.Former)
}

// author is how a member, or a member's agent, is named.
func author(name string, agent, former bool) string {
	if name = plain(name); name == "" {
		name = "somebody"
	}
	if agent {
		name += "'s agent"
	}
	if former {
		name += " (former member)"
	}
	return name
}
