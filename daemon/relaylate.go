package daemon

import (
	"context"
	"maps"
	"slices"
	"time"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/arbiter/wire"
	"knoot.dev/knoot/gitlog"
)

const (
	// maxMissed bounds what is kept for a relay that cannot be told; the oldest goes first.
	maxMissed = 5_000
	// maxCrossed bounds the overlaps that are remembered; with more all are forgotten, and may be told once more.
	maxCrossed = 1_000
	// catchUpTime bounds how long the mirror may take to show what the relay has answered.
	catchUpTime = 10 * time.Second
)

// crossing is a file at which two sessions were while the relay could not be reached.
type crossing struct{ own, other, path arbiter.Token }

// miss keeps what happened here while the relay could not be told, as far as that is told late. mu is held.
func (r *relayRepository) miss(happened ...occurrence) {
	late := toldLate(happened)
	r.missed = append(r.missed, late...)
	r.kept.append(missedRecords(late)...)
	r.trimMissed()
}

// toldLate are those of what happened that are told late.
func toldLate(happened []occurrence) (late []occurrence) {
	for _, o := range happened {
		switch o.Kind {
		case gitlog.SessionStarted, gitlog.IntentDeclared, gitlog.PlanDeclared, gitlog.FileWritten, gitlog.PathRemoved, gitlog.UngatedWrite,
			gitlog.ClaimLeft, gitlog.SessionEnded:
			late = append(late, o)
		}
	}
	return late
}

// missUntold has what the relay was not told count as missed, in the place of what was owed when it was opened. mu is held.
func (r *relayRepository) missUntold() {
	var untold []occurrence
	for _, each := range r.outbox {
		if each.happened != nil && r.problem.code != wire.Malformed {
			untold = append(untold, *each.happened)
		}
	}
	untold = toldLate(untold)
	records := missedRecords(untold)
	if len(r.owed) > 0 { // in one write: what is owed is never in neither
		records = append([]*relayRecord{{Told: true}}, records...)
	}
	r.missed, r.owed = append(r.missed, untold...), nil
	r.kept.append(records...)
	r.trimMissed()
}

// trimMissed drops the oldest of too much. mu is held.
func (r *relayRepository) trimMissed() {
	if len(r.missed) > maxMissed*5/4 { // not at each event
		r.missed = slices.Clone(r.missed[len(r.missed)-maxMissed:])
	}
}

// late makes of what an event is told as what it is told as late: it is recorded and changes no claim. nil: it is not told. Claims,
// and sessions that are still there, are told of as they are now (assert).
func (r *relayRepository) late(o *occurrence, requests []arbiter.Request) (out []arbiter.Request) {
	there := r.a.knows(o.Key)
	for _, request := range requests {
		switch q := request.(type) {
		case arbiter.Write:
			q.Late = true
			out = append(out, q)
		case arbiter.Leave:
			q.Late = true
			out = append(out, q)
		case arbiter.Declare:
			if q.Late = true; !there {
				out = append(out, q)
			}
		case arbiter.End:
			if q.Late = true; !there {
				out = append(out, q)
			}
		}
	}
	return out
}

// tellMissed tells the relay what it could not be told before, and both sides of overlaps that this brings up.
func (r *relayRepository) tellMissed(missed []occurrence, lost []occurrence) {
	told := make([]relayTold, len(missed))
	for i := range missed {
		told[i] = relayTold{happened: &missed[i], late: true}
	}
	r.mu.Lock()
	if len(missed) > 0 {
		r.missed, r.owed = nil, missed
	}
	r.outbox = append(told, r.outbox...)
	if len(r.outbox) > 0 {
		r.tellMore()
	}
	r.mu.Unlock()
	for _, o := range missed {
		if o.Kind != gitlog.ClaimLeft && len(o.Paths) > 0 {
			lost = append(lost, o)
		}
	}
	if len(lost) > 0 {
		r.link.work(func() { r.findOverlaps(lost) })
	}
}

// findOverlaps looks for files that were written here while the relay could not be reached, have uncommitted changes still, and
// that a session of another machine writes or wrote, and has it told.
func (r *relayRepository) findOverlaps(written []occurrence) {
	ctx, cancel := context.WithTimeout(r.ctx, catchUpTime)
	defer cancel()
	r.flushed(ctx)
	r.catchUp(ctx)
	roots := map[string]map[string][]occurrence{}
	for _, o := range written {
		if roots[o.Root] == nil {
			roots[o.Root] = map[string][]occurrence{}
		}
		roots[o.Root][o.Path] = append(roots[o.Root][o.Path], o)
	}
	r.locate(r.ctx, slices.Collect(maps.Keys(roots))...)
	for root, files := range roots {
		paths := make([]string, 0, len(files))
		for path := range files {
			paths = append(paths, path)
		}
		for _, path := range r.uncommitted(root, paths) {
			for i := range files[path] {
				r.cross(&files[path][i])
			}
		}
	}
}

// catchUp waits until the mirror has what the relay has answered so far.
func (r *relayRepository) catchUp(ctx context.Context) {
	for {
		r.mu.Lock()
		there := r.view.Position().Compare(r.reached) >= 0
		changed := r.changed
		r.mu.Unlock()
		if there {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// uncommitted are those of a worktree's paths that have uncommitted changes. It asks git.
func (r *relayRepository) uncommitted(root string, paths []string) []string {
	wt := r.d.clones.opened(root)
	if wt == nil {
		return nil
	}
	changed, err := wt.tree.Uncommitted(r.ctx, paths)
	if err != nil {
		r.d.log.Debug("git does not say what is uncommitted", "error", err)
		return nil
	}
	return changed
}

// cross has the other machines told that a session here wrote what a session of theirs writes or wrote. Theirs is told if it has
// uncommitted changes there, and that comes back to ours; so both hear of it, or neither. The worktree has been looked for (locate).
func (r *relayRepository) cross(o *occurrence) {
	r.mu.Lock()
	defer r.mu.Unlock()
	dir := r.dirs[o.Root]
	path, ok := r.names.path(o.Path)
	if r.conn == nil || dir == "" || !ok {
		return
	}
	who := r.names.who(party{Key: o.Key, Subagent: o.Subagent, Person: o.Person, Root: o.Root, Branch: o.OnBranch}, dir)
	for _, other := range r.atFile(who, path) {
		c := crossing{who.Session, other, path.Own}
		if r.crossed[c] {
			continue
		}
		if len(r.crossed) >= maxCrossed {
			clear(r.crossed)
		}
		r.crossed[c] = true
		want := arbiter.Want{Path: path, Class: arbiter.File}
		want.Detail = r.names.seal(gitlog.FileWritten, who.Session, r.clock.now(), relayDetail{Path: []byte(o.Path), Branch: o.OnBranch})
		r.outbox = append(r.outbox, relayTold{request: arbiter.Write{Who: who, Wants: []arbiter.Want{want}, Late: true, Crosses: other}})
	}
	if len(r.outbox) > 0 {
		r.tellMore()
	}
}

// atFile are the sessions of other machines that hold a file, or wrote it lately, where it is the same file for who. mu is held.
func (r *relayRepository) atFile(who arbiter.Who, path arbiter.Path) (sessions []arbiter.Token) {
	now := r.clock.now()
	add := func(other arbiter.Who) {
		if other.Device != r.names.device && other.Meets(who) && !slices.Contains(sessions, other.Session) {
			sessions = append(sessions, other.Session)
		}
	}
	if h, blocked := r.view.Blocks(who, arbiter.Want{Path: path, Class: arbiter.File}, now); blocked && h.Claim != (arbiter.ClaimID{}) {
		add(h.Who)
	}
	for _, w := range r.view.Writes(who.Session, arbiter.Order{}, now, path) {
		add(w.Who)
	}
	return sessions
}

// overlap tells a session here of another machine's that wrote the same file while the relay could not be reached, if it has
// uncommitted changes there, and has the other one told.
func (r *relayRepository) overlap(o occurrence, by Peer) {
	r.a.mu.Lock()
	session, known := r.a.sequencer.Session(r.a.sessionToken(o.OtherKey), r.a.now())
	root, branch := r.a.names.name(worktreeType, session.Worktree), r.a.branchOf(session.Branch)
	r.a.mu.Unlock()
	if !known || o.Path == "" || !r.d.state.wrote(o.OtherKey, root, o.Path) || len(r.uncommitted(root, []string{o.Path})) == 0 {
		return
	}
	news := awayNews(NewsUngated, &o, by)
	news.Place = OtherMachine
	r.tellSession(o.OtherKey, "", news)
	r.locate(r.ctx, root)
	r.cross(&occurrence{Event: arbiter.Event{Who: arbiter.Who{Person: session.Person}}, Key: o.OtherKey, Root: root, OnBranch: branch, Path: o.Path})
}
