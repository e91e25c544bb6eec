package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/peterbourgon/ff/v3/ffcli"

	"knoot.dev/knoot/gitlog"
)

func (c *console) offCommand() *ffcli.Command {
	flags := newFlags("off")
	span := flags.String("for", "", "pause for a `TIME` such as 30m, 2h or 1d; without it until `knoot on`")
	all := flags.Bool("all", false, "pause in every repository of this machine")
	return command(manual{
		name: "off", usage: "[--for TIME] [--all]", short: "Pause knoot here: hooks stay silent, nothing is recorded or synced",
		long:    "Needs a person: an agent is told to ask its user.",
		example: "knoot off --for 2h\nknoot on",
	}, flags, func(ctx context.Context, args []string) error {
		if err := noArguments("off", args); err != nil {
			return err
		}
		var until time.Time
		if *span != "" {
			d, err := parseAge(*span)
			if err != nil {
				return misuse{err.Error()}
			}
			if d == 0 {
				return misusef("--for 0 pauses nothing: write a time such as 2h, or leave it out")
			}
			until = c.now().Add(d)
		}
		if err := c.needPerson(); err != nil {
			return err
		}
		path, where, err := c.pausePlace(ctx, *all)
		if err != nil {
			return err
		}
		if err := writePause(path, until); err != nil {
			return fmt.Errorf("cannot pause: %w", err)
		}
		back := "`knoot on`"
		if *all {
			back = "`knoot on --all`"
		}
		if until.IsZero() {
			fmt.Fprintf(c.stdout, "knoot is paused in %s until %s.\n", where, back)
		} else {
			fmt.Fprintf(c.stdout, "knoot is paused in %s until %s; %s ends it sooner.\n", where, clock(until, c.now()), back)
		}
		return nil
	})
}

func (c *console) onCommand() *ffcli.Command {
	flags := newFlags("on")
	all := flags.Bool("all", false, "end also the pause of all repositories of this machine")
	return command(manual{
		name: "on", usage: "[--all]", short: "End the pause that `knoot off` began",
		example: "knoot on",
	}, flags, func(ctx context.Context, args []string) error {
		if err := noArguments("on", args); err != nil {
			return err
		}
		machine, everywhere, err := c.pausePlace(ctx, true)
		if err != nil {
			return err
		}
		if *all {
			if err := endPause(machine); err != nil {
				return err
			}
		}
		path, where, err := c.pausePlace(ctx, false)
		switch {
		case errors.Is(err, gitlog.ErrNoRepository) && *all:
			fmt.Fprintf(c.stdout, "knoot is not paused in %s any more.\n", everywhere)
			return nil
		case err != nil:
			return err
		}
		if err := endPause(path); err != nil {
			return err
		}
		if paused, until := readPause(machine, c.now()); paused {
			for_ := ""
			if !until.IsZero() {
				for_ = " until " + clock(until, c.now())
			}
			return fmt.Errorf("%s is not paused any more, but %s still is%s: `knoot on --all` ends that too", where, everywhere, for_)
		}
		fmt.Fprintf(c.stdout, "knoot is on in %s.\n", where)
		return nil
	})
}

// pausePlace returns the file whose presence pauses knoot, and its reach in words.
func (c *console) pausePlace(ctx context.Context, all bool) (path, where string, err error) {
	if all {
		home, err := gitlog.OpenHome(c.getenv)
		if err != nil {
			return "", "", err
		}
		return filepath.Join(home.Dir, "off"), "every repository of this machine", nil
	}
	repo, err := c.repository(ctx)
	if err != nil {
		return "", "", err
	}
	where = repo.Root
	if where == "" {
		where = repo.CommonDir
	}
	return filepath.Join(repo.CommonDir, "knoot", "off"), where, nil
}

// writePause pauses until a time, the zero time for as long as nobody ends it. The file holds the time in
// milliseconds, or nothing.
func writePause(path string, until time.Time) error {
	text := ""
	if !until.IsZero() {
		text = strconv.FormatInt(until.UnixMilli(), 10)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return gitlog.ReplaceFile(path, []byte(text), 0o644)
}

func endPause(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot end the pause: %w", err)
	}
	return nil
}

// readPause reports whether a file pauses knoot now; until is zero for a pause without an end. A file that holds
// anything but a time pauses, since somebody made it to.
func readPause(path string, now time.Time) (paused bool, until time.Time) {
	text, err := os.ReadFile(path)
	if err != nil {
		return false, time.Time{}
	}
	ms, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return true, time.Time{}
	}
	until = time.UnixMilli(ms)
	return now.Before(until), until
}

// notPaused is nil unless knoot is paused here.
func (c *console) notPaused(ctx context.Context) error {
	for _, all := range []bool{false, true} {
		path, where, err := c.pausePlace(ctx, all)
		if err != nil {
			return err
		}
		if paused, _ := readPause(path, c.now()); paused {
			end := "`knoot on`"
			if all {
				end = "`knoot on --all`"
			}
			return fmt.Errorf("knoot is paused in %s: %s ends that", where, end)
		}
	}
	return nil
}

// clock writes a moment for somebody who lives now: the hour, with the date unless it is today's.
func clock(t, now time.Time) string {
	t = t.In(now.Location())
	if t.YearDay() == now.YearDay() && t.Year() == now.Year() {
		return t.Format("15:04")
	}
	return t.Format("2006-01-02 15:04")
}
