package daemon

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/gitlog"
)

// record adds what happened in a worktree to its clone's journal, and the session's start before it if that is not there yet,
// and returns what settles it once the journal is synced. An error says that nothing was added. The clone's settling is held.
func (d *daemon) record(ctx context.Context, wt *worktree, key sessionKey, happened []happening) (*stateRecord, error) {
	oc := wt.clone
	var events []*gitlog.Entry
	announced := d.state.isAnnounced(key, oc.common)
	if !announced {
		events = append(events, d.event(ctx, wt, key, happening{ID: happened[0].ID, At: happened[0].At, Kind: gitlog.SessionStarted}))
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
		return nil, err // what git was asked for may be missing
	}
	if err := oc.record(events...); err != nil {
		return nil, err
	}
	r := &stateRecord{At: happened[0].At, Session: key, Aside: true}
	if !announced {
		r.Announced = oc.common
	}
	for _, h := range happened {
		r.Settled = append(r.Settled, h.ID)
	}
	return r, nil
}

// event is an event of a session in a worktree: the same one, to its journal, however often that has to be tried.
func (d *daemon) event(ctx context.Context, wt *worktree, key sessionKey, h happening) *gitlog.Entry {
	e := wt.clone.clone.NewEntry(h.Kind)
	e.Time = h.At
	binary.BigEndian.PutUint64(e.Nonce[:], h.ID)
	branch, _, _ := wt.tree.Head(ctx) // "" where it cannot be told
	e.Event = &gitlog.Event{Agent: key.Agent, Session: key.ID, Subagent: h.Subagent, Branch: branch, Worktree: wt.id(), Text: h.Text}
	return e
}

// id is the worktree in events.
func (wt *worktree) id() []byte {
	id := sha256.Sum256([]byte(wt.repo.GitDir))
	return id[:16]
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

// settle adds what is owed of a worktree to its clone's journal. It is owed until the journal is synced, all at once: what
// comes while the disk is waited for is the next one's. No hook waits for it.
func (d *daemon) settle(ctx context.Context, wt *worktree) {
	oc := wt.clone
	oc.settling.Lock()
	defer oc.settling.Unlock()
	var settled []*stateRecord
	for key, owed := range d.state.owedIn(wt.root) {
		r, err := d.record(ctx, wt, key, owed)
		if err != nil {
			break
		}
		settled = append(settled, r)
	}
	sequenced, announced, err := d.recordSequenced(ctx, wt)
	if err == nil {
		settled = append(settled, announced...)
	}
	if len(settled)+len(sequenced) == 0 {
		return
	}
	if err := d.options.syncJournal(oc.clone); err != nil {
		d.log.Warn("what happened is not on the disk yet", "repository", oc.common, "error", err)
		return
	}
	oc.arbiter.settled(sequenced)
	d.state.mu.Lock()
	defer d.state.mu.Unlock()
	d.state.commit(settled...)
}

// recordSequenced adds the arbiter's events of a worktree's sessions to its clone's journal, and returns their places in the
// order and what settles them beside that.
func (d *daemon) recordSequenced(ctx context.Context, wt *worktree) ([]arbiter.Order, []*stateRecord, error) {
	oc := wt.clone
	happened, origin := oc.arbiter.owedIn(wt.root)
	if len(happened) == 0 {
		return nil, nil, nil
	}
	var written []string
	for _, o := range happened {
		if o.Kind == gitlog.FileWritten && o.Root == wt.root {
			written = append(written, o.Path)
		}
	}
	var blobs map[string][]byte
	if len(written) > 0 {
		// A file that git cannot read was written all the same, whatever it holds.
		blobs, _ = wt.tree.Blobs(ctx, written)
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	var events []*gitlog.Entry
	var settled []*stateRecord
	var orders []arbiter.Order
	met := map[sessionKey]bool{}
	for _, o := range happened {
		worktree := wt.id()
		if o.Root != wt.root {
			worktree = nil // it is gone, and its id with it
		}
		if key := o.Key; key != (sessionKey{}) && !o.Person && !met[key] {
			met[key] = true
			if !d.state.isAnnounced(key, oc.common) {
				settled = append(settled, &stateRecord{At: o.Time, Session: key, Aside: true, Announced: oc.common})
				if o.Kind != gitlog.SessionStarted {
					start := oc.clone.NewEntry(gitlog.SessionStarted)
					start.Time, start.Nonce = o.Time, nonceOf(origin, o.Order, "start")
					start.Event = &gitlog.Event{Agent: key.Agent, Session: key.ID, Branch: o.OnBranch, Worktree: worktree}
					events = append(events, start)
				}
			}
		}
		e := oc.clone.NewEntry(o.Kind)
		e.Time, e.Nonce = o.Time, nonceOf(origin, o.Order, "")
		e.Event = &gitlog.Event{Order: &gitlog.Order{Sequencer: origin, Term: o.Order.Term, Seq: o.Order.Seq}, Late: o.Late, Agent: o.Key.Agent,
			Session: o.Key.ID, Subagent: o.Subagent, Person: o.Person, Branch: o.OnBranch, Worktree: worktree, Until: o.Until,
			Class: uint64(o.Class), Reason: uint64(o.Reason), Text: o.Text, OldBranch: o.WasBranch}
		if o.Person {
			e.Event.Agent = ""
		}
		if o.Claim != (arbiter.ClaimID{}) {
			e.Event.Claim = o.Claim[:]
		}
		if o.Path != "" {
			e.Event.Paths = []gitlog.EventPath{{Path: o.Path}}
			if o.Kind == gitlog.FileWritten && o.Root == wt.root {
				e.Event.Paths[0].Blob = blobs[o.Path]
			}
		}
		if o.OtherKey != (sessionKey{}) {
			if token, ok := oc.clone.SessionToken(o.OtherKey.Agent, o.OtherKey.ID); ok {
				e.Event.Other = token[:]
			}
		}
		events = append(events, e)
		orders = append(orders, o.Order)
	}
	if err := oc.record(events...); err != nil {
		return nil, nil, err
	}
	return orders, settled, nil
}

// nonceOf makes an event the same one, to its journal, however often that has to be tried.
func nonceOf(origin [16]byte, order arbiter.Order, what string) (nonce [8]byte) {
	buf := binary.BigEndian.AppendUint64(origin[:], order.Term)
	sum := sha256.Sum256(append(binary.BigEndian.AppendUint64(buf, order.Seq), what...))
	copy(nonce[:], sum[:])
	return nonce
}

// forgive drops what is owed of a directory in which there is no knoot.
func (d *daemon) forgive(root string) {
	for key, owed := range d.state.owedIn(root) {
		d.state.forgive(key, owed)
	}
	for _, a := range d.arbitrations.all() {
		a.forgive(root)
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
