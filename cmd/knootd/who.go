package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/peterbourgon/ff/v3/ffcli"

	"knoot.dev/knoot/daemon"
	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/gitlog"
)

func (c *console) whoCommand() *ffcli.Command {
	flags := newFlags("who")
	at := flags.String("at", "", "who was here at this `TIME`: 2026-03-31T14:00:00Z, 14:00, or an age such as 2h")
	asJSON := jsonFlag(flags)
	return command(manual{
		name: "who", usage: "[--at TIME] [--json]",
		short: "Say who is at work in this repository, and who holds what",
		long: `Sessions of agents and people, in all clones and worktrees on this machine. With
--at it says what the audit log has of a time that has passed, of the whole team;
that needs no daemon and no network.

--json prints {sessions: [{session, agent, member, person, branch, worktree,
intent, plan, decided, claims: [{path, until, hub}], waiting: [path]}]}.`,
		example: "knoot who\nknoot who --at 2h",
	}, flags, func(ctx context.Context, args []string) error {
		if err := noArguments("who", args); err != nil {
			return err
		}
		if *at != "" {
			return c.whoWas(ctx, *at, *asJSON)
		}
		standing := &daemon.Standing{}
		err := c.ask(ctx, "who", nil, standing, askTime)
		absent := errors.Is(err, socket.ErrAbsent)
		switch {
		case err != nil && !absent:
			return err
		case *asJSON:
			return c.printJSON(standing.Answer())
		case absent:
			fmt.Fprintln(c.stdout, "Nobody is here: no daemon runs on this machine. A session's first hook starts it.")
			return nil
		}
		c.printStanding(standing, c.now())
		return nil
	})
}

// whoWas says who was here at a time, from the audit log.
func (c *console) whoWas(ctx context.Context, text string, asJSON bool) error {
	at, err := parseWhen(text, c.now())
	if err != nil {
		return misuse{err.Error()}
	}
	if at.After(c.now()) {
		return misusef("%s is still to come: --at takes a time that has passed", text)
	}
	clone, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer clone.Close()
	places := map[[16]byte]string{}
	for gitDir, root := range clone.Repo.Worktrees() {
		sum := sha256.Sum256([]byte(gitDir))
		places[[16]byte(sum[:16])] = root
	}
	member := func(id gitlog.DeviceID) string {
		if roster := clone.Roster(); roster != nil {
			if m := roster.MemberOf(id); m != nil {
				return m.Address
			}
		}
		return ""
	}
	standing := daemon.StandingAt(clone.Events(), gitlog.MillisOf(at), member,
		func(id gitlog.DeviceID, worktree []byte) string {
			if id != clone.Device().ID || len(worktree) != 16 {
				return ""
			}
			return places[[16]byte(worktree)]
		})
	standing.You = member(clone.Device().ID)
	if asJSON {
		return c.printJSON(standing.Answer())
	}
	fmt.Fprintf(c.stdout, "At %s, as far as the audit log of this clone goes.\n\n", at.In(c.now().Location()).Format("2006-01-02 15:04:05"))
	c.printStanding(standing, at)
	return nil
}

func (c *console) printStanding(s *daemon.Standing, now time.Time) {
	if len(s.Sessions) == 0 {
		fmt.Fprintln(c.stdout, "Nobody is here.")
		return
	}
	for i := range s.Sessions {
		each := &s.Sessions[i]
		if i > 0 {
			fmt.Fprintln(c.stdout)
		}
		fmt.Fprintln(c.stdout, c.bold(plain(s.Label(each)))+"  "+c.dim(whereabouts(s, each)))
		for _, line := range c.factsOf(s, each, now) {
			for n, text := range wrap(line.text, helpWidth-2-whoColumn) {
				name := line.name
				if n > 0 {
					name = ""
				}
				fmt.Fprintf(c.stdout, "  %s%s\n", c.dim(fmt.Sprintf("%-*s", whoColumn, name)), text)
			}
		}
	}
}

// whoColumn is the width of the column that says what the lines below a session are about.
const whoColumn = 10

// whereabouts says whose session it is, and on which branch.
func whereabouts(s *daemon.Standing, each *daemon.StandingSession) string {
	var parts []string
	switch {
	case each.Person:
		parts = append(parts, "a person")
	case each.Member != "" && !strings.EqualFold(each.Member, s.You):
		parts = append(parts, plain(each.Member))
	}
	if each.Branch == "" {
		parts = append(parts, "no branch")
	} else {
		parts = append(parts, "on "+plain(shortBranch(each.Branch)))
	}
	return strings.Join(parts, ", ")
}

// homely writes a path below the person's home as they would.
func (c *console) homely(path string) string {
	home := c.getenv("HOME")
	if rel, err := filepath.Rel(home, path); home != "" && err == nil && filepath.IsLocal(rel) {
		return filepath.Join("~", rel)
	}
	return path
}

func shortBranch(ref string) string { return strings.TrimPrefix(ref, "refs/heads/") }

// whoLine is a line about a session.
type whoLine struct{ name, text string }

// inTheWayOf reports whether a claim of one session is what another waits for: on the same branch or in the same worktree.
func inTheWayOf(waiting, holder *daemon.StandingSession, k daemon.StandingClaim) bool {
	return waiting != holder && slices.Contains(waiting.Waiting, k.Path) &&
		(waiting.Worktree == holder.Worktree || waiting.Branch != "" && waiting.Branch == k.Branch)
}

// holderOf says who holds a path that a session waits for; "" where it is free, or reserved for another.
func holderOf(s *daemon.Standing, waiting *daemon.StandingSession, path string) string {
	for i := range s.Sessions {
		for _, k := range s.Sessions[i].Claims {
			if k.Path == path && inTheWayOf(waiting, &s.Sessions[i], k) {
				return s.Label(&s.Sessions[i])
			}
		}
	}
	return ""
}

// factsOf is what there is to say about a session, in lines.
func (c *console) factsOf(s *daemon.Standing, each *daemon.StandingSession, now time.Time) (lines []whoLine) {
	if each.Worktree != "" {
		lines = append(lines, whoLine{"in", plain(c.homely(each.Worktree))})
	}
	if each.Intent != "" {
		lines = append(lines, whoLine{"doing", plain(oneLine(each.Intent))})
	}
	if each.Plan != "" {
		lines = append(lines, whoLine{"plans", plain(oneLine(each.Plan))})
	}
	for _, d := range each.Decided {
		lines = append(lines, whoLine{"decided", plain(oneLine(d))})
	}
	var held []string
	for _, k := range each.Claims {
		lease := lease(k.Until, now) + " left"
		if k.Hub {
			lease = "hub, " + lease
		}
		held = append(held, plain(k.Path)+" ("+lease+")")
	}
	if len(held) > 0 {
		lines = append(lines, whoLine{"holds", strings.Join(held, ", ")})
	}
	var waits []string
	for _, path := range each.Waiting {
		text := plain(path)
		if by := holderOf(s, each, path); by != "" {
			text += " (held by " + plain(by) + ")"
		}
		waits = append(waits, text)
	}
	if len(waits) > 0 {
		lines = append(lines, whoLine{"waits for", strings.Join(waits, ", ")})
	}
	return lines
}

// lease says how long a lease has.
func lease(until gitlog.Millis, now time.Time) string {
	d := max(until.Time().Sub(now), 0)
	if d < time.Minute {
		return fmt.Sprintf("%d s", int(d/time.Second))
	}
	return fmt.Sprintf("%d min", int((d+30*time.Second)/time.Minute))
}
