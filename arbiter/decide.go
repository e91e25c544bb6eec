package arbiter

import (
	"slices"

	"knoot.dev/knoot/gitlog"
)

// Decide answers a request by the rules of claims: the events to sequence, in their order, with Time now (never before
// the View's) and no Order; none where nothing is to be said or the request is malformed. It changes nothing, so the
// caller may drop them and ask again. What was due ([View.Due]) must have been applied.
func (v *View) Decide(r Request, now gitlog.Millis) []Event {
	d := decision{v: v, now: max(now, v.time)}
	switch r := r.(type) {
	case Claim:
		d.claim(r)
	case Renew:
		d.renew(r)
	case Write:
		d.write(r)
	case Release:
		d.release(r)
	case Stop:
		d.stop(r)
	case Idle:
		d.idle(r.Who)
	case Leave:
		for _, w := range r.Wants {
			d.say(Event{Who: r.Who, Late: r.Late, Kind: gitlog.ClaimLeft, Paths: []Path{w.Path}, Claim: w.ID, Detail: w.Detail})
		}
	case Clean:
		for _, id := range r.Claims {
			if x := v.leftBy[id]; x != nil && x.Session == r.Session {
				d.say(Event{Who: x.Who, Kind: gitlog.ClaimReleased, Claim: id, Paths: []Path{x.Path}, Reason: Released})
			}
		}
	case End:
		d.end(r)
	case Move:
		d.move(r.Who)
	case Take:
		d.take(r)
	case Declare:
		switch r.Kind {
		case gitlog.SessionStarted, gitlog.IntentDeclared, gitlog.PlanDeclared, gitlog.StaleRead, gitlog.CreateCollision,
			gitlog.DuplicateIntent, gitlog.Message, gitlog.MemoryPublished, gitlog.MemoryRefused:
			d.say(r.Event)
		}
	case Roster:
		for _, device := range r.Removed {
			d.say(Event{Who: Who{Device: device}, Kind: gitlog.RosterChanged})
		}
		if len(r.Removed) == 0 {
			d.say(Event{Kind: gitlog.RosterChanged})
		}
	}
	return d.events
}

// decision collects the events that answer one request.
type decision struct {
	v      *View
	now    gitlog.Millis
	events []Event
}

func (d *decision) say(e Event) {
	e.Time, e.Order = d.now, Order{}
	d.events = append(d.events, e)
}

// wanted returns the wants of a request without those that name a path again; false where one is malformed or an id
// is another claim's.
func (d *decision) wanted(who *Who, wants []Want) ([]Want, bool) {
	var kept []Want
	for _, w := range wants {
		if who.Session == (Token{}) || w.Path.Own == (Token{}) {
			return nil, false
		}
		if !slices.ContainsFunc(kept, func(k Want) bool { return k.Path.Own == w.Path.Own && (k.Class == Tree) == (w.Class == Tree) }) {
			kept = append(kept, w)
		}
	}
	return kept, true
}

// fresh says whether the want's id can become a claim beside those of the batch.
func (d *decision) fresh(w *Want) bool {
	return w.ID != ClaimID{} && d.v.claims[w.ID] == nil &&
		!slices.ContainsFunc(d.events, func(e Event) bool { return e.Kind == gitlog.ClaimAcquired && e.Claim == w.ID })
}

// claim grants all or nothing.
func (d *decision) claim(r Claim) {
	wants, ok := d.wanted(&r.Who, r.Wants)
	if !ok {
		return
	}
	for i := range wants {
		d.deny(&r, &wants[i])
	}
	if len(d.events) > 0 {
		if r.Note {
			d.events = nil
		}
		return
	}
	for i := range wants {
		w := &wants[i]
		if c := d.v.holding(&r.Who, &w.Path, w.Class == Tree, d.now); c != nil {
			d.reclaim(&r.Who, c, &w.Path)
		} else if d.fresh(w) {
			d.grant(&r.Who, w, r.Late)
		} else {
			d.events = nil
			return
		}
	}
}

// deny says who has what is wanted, if somebody has.
func (d *decision) deny(r *Claim, w *Want) {
	tree := w.Class == Tree
	if d.v.holding(&r.Who, &w.Path, tree, d.now) != nil {
		return
	}
	h, denied := d.v.Blocks(r.Who, *w, d.now)
	if !denied {
		return
	}
	if r.Late {
		d.say(Event{Who: r.Who, Late: true, Kind: gitlog.ClaimReleased, Claim: w.ID, Paths: []Path{w.Path}, Reason: RelaysOrder, Other: h.Session})
		return
	}
	class := File
	switch {
	case tree:
		class = Tree
	case h.Class == Hub && h.Claim != (ClaimID{}) || d.v.hub(&r.Who, w, d.now, false):
		class = Hub
	}
	d.say(Event{Who: r.Who, Kind: gitlog.ClaimDenied, Claim: w.ID, Paths: []Path{w.Path}, Class: class, Other: h.Session, Until: h.Until, Detail: w.Detail})
}

func (d *decision) grant(who *Who, w *Want, late bool) {
	class, until := d.v.class(who, w, d.now, false)
	d.say(Event{Who: *who, Late: late, Kind: gitlog.ClaimAcquired, Claim: w.ID, Paths: []Path{w.Path}, Class: class, Until: until, Detail: w.Detail})
	for _, c := range d.v.elsewhere(who, &w.Path, w.Class == Tree, d.now) {
		d.say(Event{Who: *who, Kind: gitlog.CrossBranchOverlap, Paths: []Path{w.Path}, Claim: c.Claim, Other: c.Session})
	}
}

// prolong renews a claim as any hook does: hubs only by writing.
func (d *decision) prolong(who *Who, c *claim) {
	if c.Class != Hub {
		d.say(Event{Who: *who, Kind: gitlog.ClaimRenewed, Claim: c.Claim, Until: after(d.now, Lease)})
	}
}

// reclaim renews a claim that is asked for again, and puts it under the tokens of now.
func (d *decision) reclaim(who *Who, c *claim, p *Path) {
	if c.Path.Own == p.Own && c.Branch == who.Branch && c.Worktree == who.Worktree {
		d.prolong(who, c)
		return
	}
	d.say(Event{Who: *who, Kind: gitlog.ClaimRenewed, Claim: c.Claim, Paths: []Path{*p}, Until: after(d.now, Lease)})
}

func (d *decision) renew(r Renew) {
	for _, id := range r.Claims {
		if c := d.own(&r.Who, id); c != nil {
			d.prolong(&r.Who, c)
		}
	}
	if s := d.v.sessions[r.Session]; len(r.Claims) == 0 && s != nil &&
		slices.ContainsFunc(s.claims, func(c *claim) bool { return c.Class != Hub && c.Until > d.now }) {
		d.say(Event{Who: r.Who, Kind: gitlog.ClaimRenewed, Until: after(d.now, Lease)})
	}
}

// own returns a live claim of the session, nil where it is none.
func (d *decision) own(who *Who, id ClaimID) *claim {
	if c := d.v.claims[id]; c != nil && c.Session == who.Session && c.Until > d.now {
		return c
	}
	return nil
}

func (d *decision) write(r Write) {
	wants, ok := d.wanted(&r.Who, r.Wants)
	if !ok {
		return
	}
	for i := range wants {
		w := &wants[i]
		e := Event{Who: r.Who, Late: r.Late, Kind: gitlog.FileWritten, Paths: []Path{w.Path}, Detail: w.Detail}
		if w.Removed {
			e.Kind = gitlog.PathRemoved
		}
		if r.Late {
			if r.Crosses != (Token{}) {
				e.Kind, e.Other = gitlog.UngatedWrite, r.Crosses
			}
		} else if c := d.v.covering(&r.Who, &w.Path, d.now); c != nil {
			e.Claim = c.Claim
			if e.Class, e.Until = Tree, after(d.now, Lease); c.Class != Tree {
				e.Class, e.Until = d.v.class(&r.Who, &Want{Path: w.Path, Hub: w.Hub}, d.now, true)
			}
		} else if c := d.v.blocker(&r.Who, &w.Path, w.Class == Tree, d.now); c != nil {
			e.Kind, e.Claim, e.Other = gitlog.UngatedWrite, c.Claim, c.Session
		} else if r.Person && d.fresh(w) {
			d.grant(&r.Who, w, false)
			e.Claim = w.ID
			e.Class, e.Until = d.v.class(&r.Who, w, d.now, true)
		}
		d.say(e)
	}
}

func (d *decision) let(c *claim, reason Reason, other Token) {
	d.say(Event{Who: c.Who, Kind: gitlog.ClaimReleased, Claim: c.Claim, Paths: []Path{c.Path}, Class: c.Class, Reason: reason, Other: other})
}

func (d *decision) release(r Release) {
	unconfirmed := r.Reason == Failed || r.Reason == CallEnded
	for _, id := range r.Claims {
		c := d.own(&r.Who, id)
		if c == nil || unconfirmed && c.Written != 0 && c.Class != Tree ||
			slices.ContainsFunc(d.events, func(e Event) bool { return e.Claim == id }) {
			continue
		}
		d.let(c, r.Reason, Token{})
	}
}

func (d *decision) stop(r Stop) {
	if s := d.v.sessions[r.Session]; s != nil {
		for _, c := range d.v.live(s.claims, d.now) {
			if !slices.Contains(r.Keep, c.Claim) {
				d.let(c, Stopped, Token{})
			}
		}
	}
	d.idle(r.Who)
}

// idle passes on the turns that a session has.
func (d *decision) idle(who Who) {
	s := d.v.sessions[who.Session]
	if s == nil {
		return
	}
	for _, w := range s.waits {
		if w.queue != nil && w.queue.waits[0] == w && w.queue.until != 0 {
			d.turn(w.queue)
		}
	}
}

// turn offers a free hub to the next one.
func (d *decision) turn(q *queue) {
	head := q.waits[0]
	e := Event{Kind: gitlog.HubTurn, Who: Who{Session: q.next(), Branch: q.key.branch}, Paths: []Path{{Own: q.key.path}}, Class: Hub, Other: head.Session}
	if e.Session != (Token{}) {
		e.Until = after(d.now, TurnTime)
	}
	d.say(e)
}

func (d *decision) end(r End) {
	s := d.v.sessions[r.Session]
	if s == nil {
		return
	}
	if !r.Late {
		for _, c := range d.v.live(s.claims, d.now) {
			d.let(c, r.Reason, Token{})
		}
	}
	d.say(Event{Who: r.Who, Late: r.Late, Kind: gitlog.SessionEnded, Reason: r.Reason})
}

func (d *decision) move(to Who) {
	s := d.v.sessions[to.Session]
	if s == nil || to.Branch == (Token{}) || to.Worktree == (Token{}) {
		return
	}
	var from Token
	moving := d.v.inWorktree(s, &to)
	for _, c := range moving {
		from = c.Branch
		if b := d.v.blocker(&to, &c.Path, c.Class == Tree, d.now); b != nil {
			d.let(c, Moved, b.Session)
		}
	}
	stood := s.Worktree == to.Worktree && !equal(s.Branch, s.WasBranch, to.Branch, to.WasBranch)
	if stood {
		from = s.Branch
	}
	waits := slices.ContainsFunc(s.waits, func(w *wait) bool { return w.Worktree == to.Worktree && w.Branch != to.Branch })
	if stood || waits || len(moving) > 0 {
		d.say(Event{Who: to, Kind: gitlog.BranchMoved, OldBranch: from})
	}
}

// take ends whatever denies a person the path, and gives it to them.
func (d *decision) take(r Take) {
	wants, ok := d.wanted(&r.Who, r.Wants)
	if !ok || !r.Person {
		return
	}
	for i := range wants {
		w := &wants[i]
		for _, c := range d.v.choose(&w.Path, w.Class == Tree, d.now, func(c *claim) bool { return c.blocks(&r.Who) }) {
			if !slices.ContainsFunc(d.events, func(e Event) bool { return e.Claim == c.Claim }) {
				d.let(c, Taken, r.Session)
			}
		}
		if c := d.v.holding(&r.Who, &w.Path, w.Class == Tree, d.now); c != nil {
			d.reclaim(&r.Who, c, &w.Path)
		} else if d.fresh(w) {
			d.grant(&r.Who, w, false)
		}
	}
}
