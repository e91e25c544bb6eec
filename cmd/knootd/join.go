package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/peterbourgon/ff/v3/ffcli"

	"knoot.dev/knoot/daemon"
	"knoot.dev/knoot/gitlog"
)

// How often whoever waits to be let in looks at the host: soon at first, since the admin may sit beside them.
const (
	lookFirst = time.Second
	lookMost  = 15 * time.Second
)

func (c *console) joinCommand() *ffcli.Command {
	flags := newFlags("join")
	off, unsaid := false, ""
	f := initFlags{
		user:    flags.Bool("user", false, "put the hooks into your own settings (such as ~/.claude), for all your repositories"),
		private: flags.Bool("private", false, "leave the work tree untouched: nothing to commit, nobody else is concerned"),
		allow:   flags.Bool("allow", false, "let Claude Code run knoot's own commands (remember, recall, ...) without asking"),
		local:   &off, uninstall: &off, remote: &off, noRecovery: &off, agent: &unsaid,
	}
	noWait := flags.Bool("no-wait", false, "ask, and do not wait for the answer")
	return command(manual{
		name: "join", usage: "[--no-wait] [--user|--private] [--allow] | KEY|-",
		short: "Let this device into the team of this repository",
		long: `Without a key it asks: an admin of the team sees the request in "knoot status" and
answers it with "knoot member add EMAIL --request ID". Read the four words to each other
before: they tell your request from one that somebody else put in its place. It waits
until the answer is there; Ctrl-C ends the waiting, not the request, which holds for
7 days.

With an invitation or recovery key (or "-", which reads one from standard input) you are
in at once. KNOOT_JOIN in the environment is taken where no key is said: a devcontainer
whose KNOOT_HOME is on a volume joins once, and the second time nothing is to do.

All that the team has written can be read afterwards, and it can read what you write.`,
		example: "knoot join",
	}, flags, func(ctx context.Context, args []string) error {
		if len(args) > 1 {
			return misusef("`knoot join` takes one key, without spaces, or none")
		}
		key, err := c.text(args)
		if err != nil {
			return err
		}
		if key == "" {
			key = c.getenv("KNOOT_JOIN")
		}
		if c.idle() {
			return nil
		}
		if c.ephemeral() {
			return errors.New("this clone is thrown away soon (KNOOT_EPHEMERAL, or CI), and no device is let in for it: run `knoot join` in a clone that lasts")
		}
		if err := c.checkGit(ctx); err != nil {
			return err
		}
		return c.join(ctx, key, f, *noWait)
	})
}

func (c *console) join(ctx context.Context, key string, f initFlags, noWait bool) error {
	repo, err := c.repository(ctx)
	if err != nil {
		return err
	}
	home, err := gitlog.OpenHome(c.getenv)
	if err != nil {
		return err
	}
	who, err := c.whoAmI(ctx, repo)
	if err != nil {
		return err
	}
	options := gitlog.JoinOptions{
		Key: key, Name: who.name, Address: who.address, Label: who.label, Private: *f.private,
		Progress: func(line string) { fmt.Fprintln(c.stderr, line) },
	}
	report, err := gitlog.Join(ctx, repo, home, options)
	if errors.Is(err, gitlog.ErrLocked) {
		// This person's daemon may have the clone open, for reading: it opens it again as a member's.
		if err := c.freeClone(ctx, repo); err != nil {
			return err
		}
		report, err = gitlog.Join(ctx, repo, home, options)
	}
	if err != nil {
		return err
	}
	agents := c.chosen(*f.agent, repo)
	wrote, herr := c.addHooks(ctx, repo, f, agents, report.Wrote)
	if report.Waiting {
		fmt.Fprintf(c.stdout, "%s\n  device  %s\n  words   %s\n\n", c.bold("You ask to be let into the team."), report.Device, c.bold(report.Fingerprint))
		fmt.Fprintf(c.stdout, "An admin answers, once you have read the words to each other, with\n  knoot member add %s --request %.8s\n", orWord(who.address, "EMAIL"), report.Device)
		section(c, "Wrote", wrote, "nothing: all was there")
		c.toMend(report.Warnings)
		if herr != nil {
			return herr
		}
		if noWait {
			fmt.Fprintf(c.stdout, "\nThe request holds until %s. `knoot join` waits for the answer.\n", day(gitlog.MillisOf(report.Expires)))
			return nil
		}
		if report.Member, err = c.awaitAnswer(ctx, report); err != nil {
			return err
		}
		wrote = nil
	}
	// What the team wrote is fetched now, so that the first session finds it.
	if err := c.quietly().perform(ctx, "sync", daemon.SyncRequest{}, nil); err != nil {
		fmt.Fprintf(c.stderr, "knoot: the team's memory is not here yet: %s\n", oneLine(err.Error()))
	}
	fmt.Fprintf(c.stdout, "%s\n", c.bold(fmt.Sprintf("This device is in the team, as one of %s's.", plain(report.Member))))
	if len(wrote) > 0 {
		section(c, "Wrote", wrote, "")
	}
	c.toMend(report.Warnings)
	c.next(append(toStart(repo, agents), "`knoot recall` shows what the team knows"))
	return herr
}

func orWord(word, otherwise string) string {
	if word == "" {
		return otherwise
	}
	return word
}

// quietly is a console that says nothing of what it does on the way.
func (c *console) quietly() *console {
	quiet := *c
	quiet.stderr = io.Discard
	return &quiet
}

// awaitAnswer looks at the host until an admin has let this device in, and returns the member's name.
func (c *console) awaitAnswer(ctx context.Context, report *gitlog.JoinReport) (string, error) {
	fmt.Fprintf(c.stdout, "\nWaiting for the answer. Ctrl-C ends the waiting, not the request, which holds until %s.\n", day(gitlog.MillisOf(report.Expires)))
	said := ""
	for pause := lookFirst; ; pause = min(pause*3/2, lookMost) {
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			fmt.Fprintln(c.stderr, "knoot: the request stays; `knoot join` goes on waiting for its answer")
			return "", errSaid
		case <-timer.C:
		}
		if !c.now().Before(report.Expires) {
			return "", errors.New("nobody answered the request in time, and it has ended: tell an admin of the team, and run `knoot join` again")
		}
		state := ""
		if err := c.quietly().perform(ctx, "sync", daemon.SyncRequest{FetchOnly: true}, nil); err != nil {
			state = oneLine(err.Error())
		} else if name, err := c.memberHere(ctx); ctx.Err() == nil && (err != nil || name != "") {
			return name, err // else it was interrupted in the middle, which the select above says
		}
		if state != said && ctx.Err() == nil {
			if said = state; state != "" {
				fmt.Fprintf(c.stderr, "knoot: still waiting, though the host was not reached: %s\n", state)
			} else {
				fmt.Fprintln(c.stderr, "knoot: the host is reached again; still waiting")
			}
		}
	}
}

// memberHere returns the name of the member whose device this is, "" while it is nobody's.
func (c *console) memberHere(ctx context.Context) (string, error) {
	clone, err := c.open(ctx)
	if err != nil {
		return "", err
	}
	defer clone.Close()
	roster := clone.Roster()
	if roster == nil || roster.Devices[clone.Device().ID] == nil {
		return "", nil
	}
	return strings.TrimSpace(clone.Member()), nil
}
