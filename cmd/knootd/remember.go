package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/peterbourgon/ff/v3/ffcli"

	"knoot.dev/knoot/gitlog"
)

func (c *console) rememberCommand() *ffcli.Command {
	flags := newFlags("remember")
	var r gitlog.RememberRequest
	flags.StringVar(&r.Name, "name", "", "the fact's `NAME`; the same name later supersedes it")
	paths := pathFlag(flags)
	flags.StringVar(&r.Room, "room", "", "the `ROOM` that may read it; needed only where paths lie in several")
	flags.BoolVar(&r.Pinned, "pin", false, "tell it first at the start of every session")
	flags.BoolVar(&r.Yes, "yes", false, "even if it is nearly what another fact says, or the session's 21st")
	return command(manual{
		name: "remember", usage: "--name NAME [--path PATH[:A-B]]... TEXT|-",
		short: "Leave a fact for whoever works on these files next",
		long: `An agent that opens one of the paths is told the fact, on this machine or in any
clone of the team. When a file changes, it is told that the fact may be stale,
and who changed it. PATH:20-40 ties the fact to those lines alone. Without a path
the fact is told at the start of sessions. "-" reads the text from standard input.`,
		example: `knoot remember --name money --path src/billing.js "all money is integer cents"`,
	}, flags, func(ctx context.Context, args []string) error {
		r.Kind = gitlog.KindFact
		return c.publish(ctx, "remember", r, *paths, args)
	})
}

// publish has a fact or a cached answer stored.
func (c *console) publish(ctx context.Context, op string, r gitlog.RememberRequest, paths, args []string) error {
	text, err := c.text(args)
	if err != nil {
		return err
	}
	r.Text = text
	switch {
	case r.Name == "":
		return misusef("it needs a name, by which it is found and superseded: --name NAME")
	case strings.TrimSpace(r.Text) == "":
		return misusef("there is no text: `knoot %s -h` shows how it is typed", op)
	}
	if idle, err := c.keeps(); idle || err != nil {
		return err
	}
	if r.Paths, err = c.absolute(paths); err != nil {
		return err
	}
	// A daemon.Written, or a daemon.Drafted.
	var done struct {
		Draft bool     `json:"draft"`
		Paths []string `json:"paths"`
	}
	if err := c.perform(ctx, op, r, &done); errors.Is(err, errSpooled) {
		c.saySpooled()
		return nil
	} else if err != nil {
		return err
	}
	if done.Draft {
		fmt.Fprintf(c.stdout, "%s waits for a person to confirm it: `knoot confirm %s`.\n", r.Name, r.Name)
		return nil
	}
	if len(done.Paths) == 0 {
		fmt.Fprintf(c.stdout, "Remembered %s. Agents hear of it when a session starts.\n", r.Name)
	} else {
		fmt.Fprintf(c.stdout, "Remembered %s. The next agent that opens %s hears of it.\n", r.Name, orList(done.Paths))
	}
	return nil
}

// absolute makes paths that were typed absolute: whoever performs the operation knows the worktree's root.
func (c *console) absolute(paths []string) ([]string, error) {
	if c.dir == "" {
		return nil, errNoDir
	}
	out := make([]string, len(paths))
	for i, path := range paths {
		if !filepath.IsAbs(path) {
			path = filepath.Join(c.dir, path)
		}
		out[i] = resolve(path)
	}
	return out, nil
}

// orList joins words: a, b or c.
func orList(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}
