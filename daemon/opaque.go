package daemon

import (
	"bytes"
	"context"
	"slices"
	"time"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/gitlog"
)

const (
	// maxLookedAt bounds the files that are looked at after one command line.
	maxLookedAt = 5000
	// cheapStatus is what git may take to look at the whole worktree, for that to be asked of it after each line.
	cheapStatus = 50 * time.Millisecond
	// statusAgain is when it is asked of git once more, though it took longer: the machine may have been busy.
	statusAgain = gitlog.Millis(10 * 60 * 1000)
	// clockGrain is how much the clock of a file system may be behind.
	clockGrain = 10 * time.Millisecond
)

// opaqueCall is a command line that has run and could change files that it did not name.
type opaqueCall struct {
	tree     *worktree
	by       party
	from     gitlog.Millis // when it was asked about
	until    gitlog.Millis // when it was heard of that it had ended
	head     string        // the commit that was checked out at first
	reported []string      // paths of which its hook told
}

// lookAfter finds out which files changed while a line ran, and has them sequenced as written. It asks git and reads files: it
// is not for a hook's time.
func (d *daemon) lookAfter(ctx context.Context, o opaqueCall) {
	paths := d.lookedAt(ctx, &o)
	from, until := o.from.Time().Add(-clockGrain), o.until.Time().Add(clockGrain)
	changed, gone := o.tree.tree.ChangedSince(paths, from, until)
	others := d.writtenByOthers(&o)
	leave := func(path string) bool { return others[path] || slices.Contains(o.reported, path) }
	changed, gone = slices.DeleteFunc(changed, leave), slices.DeleteFunc(gone, leave)
	all := slices.Concat(changed, gone)
	if len(all) == 0 {
		return
	}
	written, removed, err := d.differing(ctx, &o, changed, gone)
	if err != nil {
		d.log.Warn("it is not known what a command line changed", "worktree", o.tree.root, "error", err)
		return
	}
	kept := slices.Concat(written, removed)
	kinds := o.tree.rules.KindsUntil(ctx, kept, o.tree.clone.claims().Note)
	ignored := func(path string) bool {
		i := slices.Index(kept, path)
		return i >= 0 && kinds[i] != gitlog.FileOrdinary && kinds[i] != gitlog.FileNoted
	}
	written, removed = slices.DeleteFunc(written, ignored), slices.DeleteFunc(removed, ignored)
	if len(written)+len(removed) > 0 {
		unsure := d.othersIn(&o)
		if !unsure {
			d.wroteWhile(&o, slices.Concat(written, removed))
		}
		o.tree.clone.arbiter.changedWhile(o.by, written, removed, unsure)
		d.settle(ctx, o.tree)
	}
}

// wroteWhile keeps that the session wrote files: nobody else was there to do it.
func (d *daemon) wroteWhile(o *opaqueCall, paths []string) {
	d.state.mu.Lock()
	defer d.state.mu.Unlock()
	s := d.state.sessions[o.by.Key]
	if s == nil {
		return
	}
	r := &stateRecord{At: o.until, Session: o.by.Key, Subagent: o.by.Subagent, Aside: true}
	for _, path := range paths {
		r.Touched = append(r.Touched, &touch{Root: o.tree.root, Path: path, Wrote: s.context(o.by.Subagent).turn, At: o.until, Stamp: stampOf(o.tree.root, path)})
	}
	d.state.commit(r)
}

// lookedAt are the files that may have changed: those that are claimed here, those that facts are about, those that the session
// touched, and, where that takes git no time, all that are not as HEAD has them.
func (d *daemon) lookedAt(ctx context.Context, o *opaqueCall) []string {
	seen := map[string]bool{}
	var paths []string
	add := func(path string) {
		if !seen[path] && len(paths) < maxLookedAt {
			seen[path] = true
			paths = append(paths, path)
		}
	}
	for _, s := range o.tree.clone.arbiter.standing().Sessions {
		for _, c := range s.Claims {
			if s.Worktree == o.tree.root {
				add(c.Path)
			}
		}
	}
	for _, f := range o.tree.facts.all(d.now()) {
		for _, path := range f.Paths {
			add(path)
		}
	}
	d.state.mu.Lock()
	if s := d.state.sessions[o.by.Key]; s != nil {
		for _, c := range s.contexts {
			for path := range c.touched[o.tree.root] {
				add(path)
			}
		}
	}
	d.state.mu.Unlock()
	cheap, now := d.options.cheapStatus, d.now()
	if time.Duration(o.tree.statusTook.Load()) < cheap || now-gitlog.Millis(o.tree.statusAt.Load()) >= statusAgain {
		began := time.Now()
		status, cancel := context.WithTimeout(ctx, 20*cheap) // of a large worktree nobody knows yet how long that takes
		dirty, err := o.tree.tree.Dirty(status)
		cancel()
		o.tree.statusTook.Store(int64(time.Since(began)))
		o.tree.statusAt.Store(int64(now))
		if err == nil {
			for _, path := range dirty {
				add(path)
			}
		}
	}
	return paths
}

// writtenByOthers are files that another session, another context of this one, or a person reported while the line ran, or is about to:
// a call of theirs that names it has not ended.
func (d *daemon) writtenByOthers(o *opaqueCall) map[string]bool {
	written := map[string]bool{}
	d.state.mu.Lock()
	for key, s := range d.state.sessions {
		if s.seen < o.from {
			continue
		}
		for name, c := range s.contexts {
			if key == o.by.Key && name == o.by.Subagent {
				continue
			}
			for path, t := range c.touched[o.tree.root] {
				if t.Wrote != 0 && t.At >= o.from {
					written[path] = true
				}
			}
		}
	}
	d.state.mu.Unlock()
	a := o.tree.clone.arbiter
	a.look(func(v *arbiter.View, now gitlog.Millis) {
		who := a.who(o.by)
		for _, w := range v.Writes(who.Session, arbiter.Order{}, now) {
			if w.Worktree == who.Worktree && w.Time >= o.from {
				written[a.pathOf(w.Path)] = true
			}
		}
		for key, l := range a.lodgers {
			for k, call := range l.calls {
				if k.Root != o.tree.root || key == o.by.Key && k.Subagent == o.by.Subagent || call.refused || call.began+openCallKept < now {
					continue
				}
				for path := range call.stamps {
					written[path] = true
				}
			}
		}
	})
	return written
}

// othersIn says whether somebody else is at work in the worktree, who may have made the change.
func (d *daemon) othersIn(o *opaqueCall) bool {
	return slices.ContainsFunc(o.tree.clone.arbiter.standing().Sessions, func(s StandingSession) bool {
		return s.Worktree == o.tree.root && (s.Person || sessionKey{s.Agent, s.Session} != o.by.Key) && (len(s.Claims) > 0 || s.Seen >= o.from)
	})
}

// differing are those of the files that are not what was last recorded of them: by a session here, else in the index. What a
// move of HEAD brought is left out.
func (d *daemon) differing(ctx context.Context, o *opaqueCall, changed, gone []string) (written, removed []string, err error) {
	latest := map[string]*touch{}
	all := slices.Concat(changed, gone)
	d.state.mu.Lock()
	for _, s := range d.state.sessions {
		for _, c := range s.contexts {
			touched := c.touched[o.tree.root]
			if len(touched) == 0 {
				continue
			}
			for _, path := range all {
				t := touched[path]
				// What the line itself read was looked at after it.
				if t != nil && t.Read+t.Wrote != 0 && t.At < o.until && (latest[path] == nil || t.At >= latest[path].At) {
					latest[path] = t
				}
			}
		}
	}
	d.state.mu.Unlock()
	asItWas := func(path string) bool { return latest[path] != nil && latest[path].Stamp == stampOf(o.tree.root, path) }
	changed, gone = slices.DeleteFunc(changed, asItWas), slices.DeleteFunc(gone, asItWas)
	recorded, err := o.tree.tree.Staged(ctx, slices.Concat(changed, gone))
	if err != nil {
		return nil, nil, err
	}
	for path, t := range latest {
		switch {
		case t.Blob != nil:
			recorded[path] = t.Blob
		case t.Wrote != 0 && t.Stamp == (stamp{}):
			delete(recorded, path) // a session removed it
		}
	}
	var brought map[string][]byte
	_, head, err := o.tree.tree.Head(ctx)
	moved := err == nil && head != o.head
	if moved {
		if brought, err = o.tree.tree.Committed(ctx, slices.Concat(changed, gone)); err != nil {
			return nil, nil, err
		}
	}
	for _, path := range gone {
		if recorded[path] != nil && (!moved || brought[path] != nil) {
			removed = append(removed, path)
		}
	}
	blobs, err := o.tree.tree.Blobs(ctx, changed)
	if len(blobs) == 0 && err != nil {
		return nil, nil, err
	}
	for _, path := range changed {
		if blob := blobs[path]; blob != nil && !bytes.Equal(blob, recorded[path]) && !(moved && bytes.Equal(blob, brought[path])) {
			written = append(written, path)
		}
	}
	return written, removed, nil
}

// changedWhile has files sequenced as written that changed while a line of a session ran. unsure says that it may have been
// somebody else.
func (a *arbitration) changedWhile(by party, written, removed []string, unsure bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unsure = unsure
	defer func() { a.unsure = false }()
	a.do(a.writing(by, written, removed))
}
