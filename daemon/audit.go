package daemon

import (
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"

	"knoot.dev/knoot/gitlog"
)

// record adds what happened in a worktree to its clone's audit log, and the session's start before it if that is not there
// yet. An error says that nothing was added. The clone's settling is held.
func (d *daemon) record(ctx context.Context, wt *worktree, key sessionKey, happened []happening) error {
	oc := wt.clone
	var events []*gitlog.Entry
	announced := d.state.isAnnounced(key, oc.common)
	if !announced {
		events = append(events, d.event(ctx, wt, key, happening{At: happened[0].At, Kind: gitlog.SessionStarted}))
	}
	for _, h := range happened {
		switch h.Kind {
		case gitlog.SessionStarted: // said above, once
		case gitlog.FileWritten:
			events = append(events, d.written(ctx, wt, key, h)...)
		default:
			events = append(events, d.event(ctx, wt, key, h))
		}
	}
	if err := ctx.Err(); err != nil {
		return err // what git was asked for may be missing
	}
	if err := oc.record(events...); err != nil {
		return err
	}
	r := &stateRecord{At: happened[0].At, Session: key, Aside: true}
	if !announced {
		r.Announced = oc.common
	}
	for _, h := range happened {
		r.Settled = append(r.Settled, h.ID)
	}
	d.state.mu.Lock()
	defer d.state.mu.Unlock()
	d.state.commit(r)
	return nil
}

// event is a new event of a session in a worktree.
func (d *daemon) event(ctx context.Context, wt *worktree, key sessionKey, h happening) *gitlog.Entry {
	e := wt.clone.clone.NewEntry(h.Kind)
	e.Time = h.At
	id := sha256.Sum256([]byte(wt.repo.GitDir))
	branch, _, _ := wt.tree.Head(ctx) // "" where it cannot be told
	e.Event = &gitlog.Event{Agent: key.Agent, Session: key.ID, Subagent: h.Subagent, Branch: branch, Worktree: id[:16], Text: h.Text}
	return e
}

// written are the events of the files that a call wrote: FileWritten with what they hold now, PathRemoved for those that
// are gone.
func (d *daemon) written(ctx context.Context, wt *worktree, key sessionKey, h happening) []*gitlog.Entry {
	var there, gone []gitlog.EventPath
	// A file that git cannot read was written all the same, whatever it holds.
	blobs, _ := wt.tree.Blobs(ctx, h.Written)
	for _, path := range h.Written {
		if _, err := os.Lstat(filepath.Join(wt.root, filepath.FromSlash(path))); errors.Is(err, os.ErrNotExist) {
			gone = append(gone, gitlog.EventPath{Path: path})
			continue
		}
		there = append(there, gitlog.EventPath{Path: path, Blob: blobs[path]})
	}
	var out []*gitlog.Entry
	for _, each := range []struct {
		kind  gitlog.EntryKind
		paths []gitlog.EventPath
	}{{gitlog.FileWritten, there}, {gitlog.PathRemoved, gone}} {
		if len(each.paths) > 0 {
			h.Kind = each.kind
			e := d.event(ctx, wt, key, h)
			e.Event.Paths = each.paths
			out = append(out, e)
		}
	}
	return out
}

// settle adds what is owed of a worktree to its clone's log.
func (d *daemon) settle(ctx context.Context, wt *worktree) {
	wt.clone.settling.Lock()
	defer wt.clone.settling.Unlock()
	for key, owed := range d.state.owedIn(wt.root) {
		if err := d.record(ctx, wt, key, owed); err != nil {
			return
		}
	}
}

// forgive drops what is owed of a directory in which there is no knoot.
func (d *daemon) forgive(root string) {
	for key, owed := range d.state.owedIn(root) {
		d.state.forgive(key, owed)
	}
}

// reopen opens the worktrees that sessions were just at work in, so that after a restart or a takeover their next hook
// waits for nothing, and those of which an earlier daemon still owed something, which settles it.
func (d *daemon) reopen() {
	roots := map[string]bool{}
	now := d.now()
	d.state.mu.Lock()
	for _, s := range d.state.sessions {
		if s.home != "" && s.live(now) && now-min(s.seen, now) < gitlog.Millis(workedIn.Milliseconds()) {
			roots[s.home] = true
		}
		for _, h := range s.owed {
			roots[h.Root] = true
		}
	}
	d.state.mu.Unlock()
	for root := range roots {
		_, _ = d.clones.find(d.work, root)
	}
}
