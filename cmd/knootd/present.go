package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/peterbourgon/ff/v3/ffcli"

	"knoot.dev/knoot/daemon"
	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/gitlog"
)

func (c *console) presentCommand() *ffcli.Command {
	flags := newFlags("present")
	doing := flags.String("doing", "", "what you are doing, in a `TEXT` of 160 characters at most, for others to read")
	return command(manual{
		name: "present", usage: "[--doing TEXT]",
		short: "Let agents know which files you work on yourself",
		long: `It watches this worktree until Ctrl-C. What you change from then on is yours for 10
minutes after each save: other people's agents are refused it, yours are told. A file
that an agent holds stays the agent's, and it is told that you changed it. At the end
all of it is free.

What a session's hook reports, what a checkout or pull brings, what git ignores, and
more than 20 files within a second (a tool) are not taken for yours.`,
		example: `knoot present --doing "rounding, by hand"`,
	}, flags, func(ctx context.Context, args []string) error {
		if err := noArguments("present", args); err != nil {
			return err
		}
		if c.idle() {
			return nil
		}
		if err := c.needPerson(); err != nil {
			return err
		}
		repo, err := c.repository(ctx)
		if err != nil {
			return err
		}
		if repo.Root == "" {
			return errors.New("this repository is bare, so there are no files to work on: go to a worktree")
		}
		// It says what stands in the way before anything is watched.
		if _, err := c.touched(ctx, nil); errors.Is(err, socket.ErrAbsent) {
			return errNobodyHere
		} else if err != nil {
			return err
		}
		watch, err := openTreeWatch(ctx, repo)
		if err != nil {
			return err
		}
		defer watch.close()
		return c.bePresent(ctx, watch, daemon.PresentRequest{Doing: *doing})
	})
}

// bePresent tells the daemon what changes until ctx ends, which is no error.
func (c *console) bePresent(ctx context.Context, watch *treeWatch, r daemon.PresentRequest) error {
	ctx, cancel := context.WithCancel(ctx)
	changes, problems := make(chan save), make(chan error)
	news, refused := make(chan string), make(chan error)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	all.Go(func() {
		watch.run(ctx, func(path string, at time.Time) { give(ctx, changes, save{path, at}) },
			func(err error) { give(ctx, problems, err) })
	})
	all.Go(func() {
		if err := c.stayPresent(ctx, r, func(line string) { give(ctx, news, line) }); err != nil {
			give(ctx, refused, err)
		}
	})
	fmt.Fprintf(c.stdout, "You are present in %s. What you change from now on is yours, and agents know. Ctrl-C ends it.\n", plain(watch.root))

	var waiting saves
	var said string // the last trouble, which is said once
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case change := <-changes:
			if waiting.add(change.path, change.at) {
				fmt.Fprintf(c.stdout, "More than %d files changed within a second: a tool's work, and not taken for yours.\n", savesAtOnce)
			}
		case <-timer.C:
			due := waiting.due(time.Now())
			if len(due) == 0 {
				break
			}
			answer, err := c.touched(ctx, due)
			switch {
			case err == nil:
				said = ""
				c.printTouched(answer)
			case errors.Is(err, socket.ErrAbsent), errors.Is(err, socket.ErrGone), ctx.Err() != nil:
				// stayPresent says it.
			case err.Error() != said:
				said = err.Error()
				fmt.Fprintln(c.stderr, "knoot: "+plain(oneLine(said)))
			}
		case line := <-news:
			fmt.Fprintln(c.stdout, line)
		case err := <-problems:
			fmt.Fprintln(c.stderr, "knoot: "+plain(oneLine(err.Error())))
		case err := <-refused:
			return err
		case <-ctx.Done():
			fmt.Fprintln(c.stdout, "You are no longer present, and what you held is free.")
			return nil
		}
		if at, waits := waiting.dueAt(); waits {
			timer.Reset(max(time.Until(at), 0))
		}
	}
}

// give sends to a channel unless ctx ends first.
func give[T any](ctx context.Context, to chan<- T, what T) {
	select {
	case to <- what:
	case <-ctx.Done():
	}
}

// daemonAwait is how often it is tried whether a daemon runs again.
const daemonAwait = time.Second

// stayPresent has the daemon know the person until ctx ends, and the next daemon where one goes; say is told of it. An error is
// that of a daemon that refuses.
func (c *console) stayPresent(ctx context.Context, r daemon.PresentRequest, say func(line string)) error {
	away := false
	for ctx.Err() == nil {
		_, err := c.touched(ctx, nil)
		switch {
		case err == nil && away:
			away = false
			say("A daemon runs again, and knows that you are present.")
		case errors.Is(err, socket.ErrAbsent), errors.Is(err, socket.ErrGone):
			if !away {
				away = true
				say("The daemon has ended, so nobody is told what you change until one runs again.")
			}
			select {
			case <-time.After(daemonAwait):
			case <-ctx.Done():
			}
			continue
		case err != nil && ctx.Err() == nil:
			return err
		}
		var answer daemon.PresentAnswer
		if err := c.ask(ctx, "present", r, &answer, 0); err != nil && ctx.Err() == nil && !errors.Is(err, socket.ErrGone) && !errors.Is(err, socket.ErrAbsent) {
			return err
		}
	}
	return nil
}

// touched tells the daemon of files that changed.
func (c *console) touched(ctx context.Context, files []save) (*daemon.TouchedAnswer, error) {
	var r daemon.TouchedRequest
	for _, f := range files {
		r.Files = append(r.Files, daemon.TouchedFile{Path: f.path, At: gitlog.MillisOf(f.at)})
	}
	var answer daemon.TouchedAnswer
	return &answer, c.ask(ctx, "touched", r, &answer, askTime)
}

func (c *console) printTouched(answer *daemon.TouchedAnswer) {
	for _, f := range answer.Yours {
		if f.New {
			fmt.Fprintf(c.stdout, "%s is yours until %s; each save renews that.\n", plain(f.Path), f.Until.Time().In(c.now().Location()).Format(time.TimeOnly))
		}
	}
	for _, f := range answer.Held {
		fmt.Fprintf(c.stdout, "%s is held by %s, who is told that you changed it.\n", plain(f.Path), plain(f.By))
	}
}
