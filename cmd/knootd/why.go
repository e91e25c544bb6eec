package main

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/peterbourgon/ff/v3/ffcli"

	"knoot.dev/knoot/gitlog"
)

func (c *console) whyCommand() *ffcli.Command {
	flags := newFlags("why")
	asJSON := jsonFlag(flags)
	return command(manual{
		name: "why", usage: "PATH [--json]",
		short: "Tell a file's story: facts, what sessions did, and git's commits",
		long: `In order of time, renames followed. It needs no daemon and no network.

--json prints {path, facts, events: [{at, kind, session, agent, member, branch,
text}], commits: [{id, author, at, subject}]}.`,
		example: "knoot why src/billing.js",
	}, flags, func(ctx context.Context, args []string) error {
		if len(args) != 1 {
			return misusef("name one file: `knoot why PATH`")
		}
		clone, err := c.open(ctx)
		if err != nil {
			return err
		}
		defer clone.Close()
		path, err := c.inTree(clone.Repo, args[0])
		if err != nil {
			return err
		}
		tree := gitlog.OpenTree(clone.Repo)
		defer tree.Close()
		story, err := clone.Why(ctx, tree, path, gitlog.MillisOf(c.now()))
		if err != nil {
			return err
		}
		if *asJSON {
			return c.printJSON(story)
		}
		c.printStory(story)
		return nil
	})
}

// moment is a line of a story.
type moment struct {
	at        time.Time
	who, what string
	more      []string
}

const momentLayout = "2006-01-02 15:04"

func (c *console) printStory(s *gitlog.Story) {
	var moments []moment
	add := func(at time.Time, who, what string, more ...string) {
		moments = append(moments, moment{at, who, what, more})
	}
	parsed := func(at string) time.Time {
		t, _ := time.Parse(time.RFC3339, at) // ours, so it parses
		return t
	}
	for _, f := range s.Facts {
		more := notes(f)
		if k := f.Confirmed; k != nil {
			more = append(more, "confirmed by "+author(k.By, k.Agent, k.Former)+", "+k.At.Time().In(c.now().Location()).Format(momentLayout))
		}
		add(f.Said.Time(), by(f), "says: "+plain(oneLine(f.Text))+" ("+plain(f.Name)+")", more...)
	}
	for _, e := range s.Events {
		who := plain(e.Member)
		if e.Agent != "" {
			who = strings.TrimSpace(possessive(who) + " " + plain(e.Agent))
		}
		if e.Former {
			who += " (former member)"
		}
		what := spokenEvent(e.Kind)
		if e.Branch != "" {
			what += " on " + plain(strings.TrimPrefix(e.Branch, "refs/heads/"))
		}
		if e.Text != "" {
			what += fmt.Sprintf(": %q", plain(oneLine(e.Text)))
		}
		add(parsed(e.At), who, what)
	}
	for _, k := range s.Commits {
		add(parsed(k.At), plain(k.Author), "committed "+k.ID[:min(len(k.ID), 9)]+": "+plain(k.Subject))
	}
	fmt.Fprintln(c.stdout, c.bold(plain(s.Path)))
	if len(moments) == 0 {
		fmt.Fprintln(c.stdout, "  Nothing is known about it.")
		return
	}
	sort.SliceStable(moments, func(i, j int) bool { return moments[i].at.Before(moments[j].at) })
	for _, m := range moments {
		at := m.at.In(c.now().Location()).Format(momentLayout)
		for i, line := range wrap(m.who+" "+m.what, helpWidth-len(at)-4) {
			if i > 0 {
				at = strings.Repeat(" ", len(at))
			}
			fmt.Fprintf(c.stdout, "  %s  %s\n", c.dim(at), line)
		}
		for _, note := range m.more {
			for _, line := range wrap(note, helpWidth-len(at)-6) {
				fmt.Fprintf(c.stdout, "  %s    %s\n", strings.Repeat(" ", len(at)), line)
			}
		}
	}
}

func possessive(name string) string {
	if name == "" {
		return ""
	}
	return name + "'s"
}

// spokenEvent says in words what an event is.
func spokenEvent(kind string) string {
	if words, ok := map[string]string{
		"FileWritten":        "wrote it",
		"PathRemoved":        "removed it",
		"UngatedWrite":       "wrote it while somebody else held it",
		"ClaimAcquired":      "claimed it",
		"ClaimRenewed":       "went on with it",
		"ClaimDenied":        "was refused it",
		"ClaimReleased":      "released it",
		"ClaimLeft":          "left it unfinished",
		"CrossBranchOverlap": "works on it on another branch too",
		"StaleRead":          "had read an older state",
		"CreateCollision":    "made the same new file",
		"PathFreed":          "was told that it is free",
		"MemoryPublished":    "left a fact",
		"IntentDeclared":     "set out",
		"PlanDeclared":       "planned",
	}[kind]; ok {
		return words
	}
	return plain(kind)
}
