package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"knoot.dev/knoot/daemon"
	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/gitlog"
)

// askTime bounds what the daemon may take for a command; syncTime where that waits for the network; acceptTime where the command
// can do without.
const (
	askTime    = 15 * time.Second
	syncTime   = 5 * time.Minute
	acceptTime = 2 * time.Second
)

// perform has an operation done: by the daemon where one answers, else in this process, which holds the clone's lock for
// as long. The answer's JSON is read into answer unless that is nil.
func (c *console) perform(ctx context.Context, op string, body, answer any) error {
	wait := askTime
	if op == "sync" || op == "team" {
		wait = syncTime
	}
	err := c.ask(ctx, op, body, answer, wait)
	if errors.Is(err, socket.ErrShut) {
		return c.spool(ctx, op, body, err)
	}
	if !errors.Is(err, socket.ErrAbsent) {
		return err
	}
	text, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	text, err = c.performHere(ctx, op, text, c.caller())
	if (isShut(err) || errors.Is(err, gitlog.ErrNoDevice)) && c.sandboxed() {
		return c.spool(ctx, op, body, err)
	}
	if err != nil || answer == nil {
		return err
	}
	return json.Unmarshal(text, answer)
}

// ask has an operation done by the daemon; socket.ErrAbsent where none answers. The answer's JSON is read into answer unless
// that is nil. wait is how long the daemon may take; 0: as long as it takes.
func (c *console) ask(ctx context.Context, op string, body, answer any, wait time.Duration) error {
	location, err := socket.Locate(c.getenv)
	if err != nil {
		return err
	}
	if c.dir == "" {
		return errNoDir
	}
	text, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	if wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
	}
	response, err := location.Ask(ctx, &socket.Request{Op: op, Dir: c.dir, Caller: c.caller(), Body: text})
	switch {
	case err != nil:
		return err
	case response.Code == "misuse":
		return misuse{response.Error}
	case response.Error != "":
		return errors.New(response.Error)
	case answer == nil:
		return nil
	}
	if err := json.Unmarshal(response.Body, answer); err != nil {
		return fmt.Errorf("the daemon's answer does not parse (%w): `knoot daemon --stop` ends one of another version", err)
	}
	return nil
}

// errNobodyHere ends what makes no sense without a daemon, which a session's first hook starts.
var errNobodyHere = errors.New("no daemon runs, so no session is here; `knoot daemon` starts one")

// performHere does what the daemon would do.
func (c *console) performHere(ctx context.Context, op string, body []byte, caller *socket.Caller) (answer []byte, err error) {
	if err := c.notPaused(ctx); err != nil {
		return nil, err
	}
	w, err := c.workplace(ctx)
	if err != nil {
		return nil, err
	}
	defer w.Tree.Close()
	defer func() {
		if cerr := w.Clone.Close(); err == nil {
			err = cerr
		}
	}()
	if err := lock(ctx, w.Clone); err != nil {
		return nil, err
	}
	w.Host = gitlog.SyncOptions{Ask: true, Progress: func(line string) { fmt.Fprintln(c.stderr, line) }}
	var done any
	if op == "sync" {
		var r daemon.SyncRequest
		if err := json.Unmarshal(body, &r); err != nil {
			return nil, fmt.Errorf("sync: %w", err)
		}
		// A device that is not in the team yet cannot make a segment; what is fetched may say that it is.
		unwritten := w.Clone.Flush(ctx)
		if unwritten != nil || r.FetchOnly {
			if done, err = w.Clone.Sync(ctx, gitlog.SyncOptions{Fetch: true, Audit: true, Progress: w.Host.Progress}); err != nil {
				return nil, err
			}
			if r.FetchOnly {
				return json.Marshal(done)
			}
			if unwritten = w.Clone.Flush(ctx); unwritten != nil {
				return nil, unwritten
			}
		}
		done, err = w.Clone.Sync(ctx, gitlog.SyncOptions{Fetch: true, Push: true, Audit: true, Progress: w.Host.Progress})
	} else {
		var live []daemon.LiveSession
		if live, err = daemon.LiveSessions(w.Home, gitlog.MillisOf(c.now())); err == nil {
			done, err = daemon.Perform(ctx, w, op, body, daemon.AuthorOf(caller, live))
		}
	}
	var m *daemon.MisuseError
	switch {
	case errors.As(err, &m):
		return nil, misuse{m.Sentence}
	case err != nil:
		return nil, err
	}
	return json.Marshal(done)
}

// lockPatience is how long a command waits for another one that works in the same clone.
const lockPatience = 3 * time.Second

func lock(ctx context.Context, clone *gitlog.Clone) error {
	patience, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	for {
		err := clone.Lock(ctx)
		if !errors.Is(err, gitlog.ErrLocked) {
			return err
		}
		select {
		case <-patience.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// workplace opens this clone to work in it without a daemon. Its lock is not taken yet.
func (c *console) workplace(ctx context.Context) (w daemon.Workplace, err error) {
	if w.Home, err = gitlog.OpenHome(c.getenv); err != nil {
		return w, err
	}
	if w.Config, err = daemon.LoadConfig(w.Home.Dir); err != nil {
		return w, err
	}
	repo, err := c.repository(ctx)
	if err != nil {
		return w, err
	}
	if w.Clone, err = gitlog.OpenClone(ctx, repo, w.Home); err != nil {
		return w, err
	}
	w.Tree = gitlog.OpenTree(repo)
	return w, nil
}

// keeps refuses to write where nothing is kept. idle: nothing is to be done at all, which was said.
func (c *console) keeps() (idle bool, err error) {
	if c.idle() {
		return true, nil
	}
	if c.ephemeral() {
		return false, errors.New("this clone is thrown away soon (KNOOT_EPHEMERAL, or CI), so knoot keeps nothing in it: say it in a clone that lasts")
	}
	return false, nil
}
