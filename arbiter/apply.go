package arbiter

import (
	"slices"

	"knoot.dev/knoot/gitlog"
)

// Apply takes the next event. An event at or before the View's position is ignored, and so is whatever an event says
// that is not possible in this state. Nothing makes it panic. A time before the View's counts as the View's.
func (v *View) Apply(e Event) {
	if e.Order.Compare(v.order) <= 0 {
		return
	}
	v.order, v.time = e.Order, max(v.time, e.Time)
	v.forget()
	switch e.Kind {
	case gitlog.ClaimAcquired:
		if len(e.Paths) > 0 {
			v.acquire(&e)
		}
	case gitlog.ClaimRenewed:
		v.renew(&e)
	case gitlog.ClaimDenied:
		if v.touch(&e); len(e.Paths) > 0 && !e.Late {
			v.await(&wait{Wait: Wait{Who: e.Who, Path: e.Paths[0], Class: e.Class, Since: v.time}, order: e.Order})
			v.judgeFree()
		}
	case gitlog.ClaimReleased:
		if c := v.claims[e.Claim]; c != nil && c.Session == e.Session && !e.Late {
			v.end(c)
		}
		if x := v.leftBy[e.Claim]; x != nil && x.Session == e.Session {
			v.forgetLeft(x)
		}
	case gitlog.ClaimLeft:
		if c := v.claims[e.Claim]; c != nil && c.Session == e.Session && !e.Late {
			v.end(c)
		}
		if len(e.Paths) > 0 {
			v.abandon(Left{Who: e.Who, Path: e.Paths[0], Claim: e.Claim, Time: v.time, Order: e.Order, Detail: e.Detail})
		}
	case gitlog.BranchMoved:
		if s := v.touch(&e); s != nil && !e.Late {
			v.move(s, &e.Who)
		}
	case gitlog.HubTurn:
		if q := v.turn(&e); q != nil && q.until != 0 && q.waits[0].Session == e.Other {
			v.pass(q, e.Until)
		}
	case gitlog.PathFreed:
		v.freed(&e)
	case gitlog.FileWritten, gitlog.PathRemoved:
		if v.touch(&e); len(e.Paths) > 0 {
			v.written(&e)
		}
	case gitlog.UngatedWrite:
		if v.touch(&e); len(e.Paths) > 0 {
			v.record(Written{Who: e.Who, Path: e.Paths[0], Order: e.Order, Time: v.time, Detail: e.Detail}, 0)
			v.tookUp(&e.Who, &e.Paths[0])
		}
	case gitlog.RosterChanged:
		v.remove(e.Device)
	case gitlog.SessionEnded:
		if s := v.sessions[e.Session]; s != nil {
			v.leave(s, e.Late)
		}
	case gitlog.SessionStarted:
		if s := v.touch(&e); s != nil {
			place := s.Who
			s.Who, s.Detail = e.Who, e.Detail
			if e.Late {
				s.Branch, s.Worktree, s.WasBranch, s.WasWorktree = place.Branch, place.Worktree, place.WasBranch, place.WasWorktree
			}
		}
	case gitlog.IntentDeclared:
		if s := v.touch(&e); s != nil {
			s.Intent, s.Intended = e.Detail, v.time
		}
	case gitlog.PlanDeclared:
		if s := v.touch(&e); s != nil {
			s.Plan, s.Planned = e.Detail, v.time
		}
	case gitlog.CrossBranchOverlap, gitlog.StaleRead, gitlog.CreateCollision, gitlog.DuplicateIntent, gitlog.Message,
		gitlog.MemoryPublished, gitlog.MemoryRefused:
		v.touch(&e)
	}
}

// forget drops what time has ended. The state stays a function of the log: it happens with each event and never
// between them.
func (v *View) forget() {
	for len(v.ending) > 0 && v.ending[0].Until <= v.time {
		v.end(v.ending[0])
	}
	for e := v.waits.Front(); e != nil && !e.Value.(*wait).lives(v.time); e = v.waits.Front() {
		v.dismiss(e.Value.(*wait))
	}
	for e := v.writes.Front(); e != nil && after(e.Value.(*write).Time, WriteWindow) <= v.time; e = v.writes.Front() {
		v.forgetWrite(e.Value.(*write))
	}
	for e := v.left.Front(); e != nil && after(e.Value.(*left).Time, StaleAfter) <= v.time; e = v.left.Front() {
		v.forgetLeft(e.Value.(*left))
	}
	for e := v.seen.Front(); e != nil && after(e.Value.(*session).Seen, StaleAfter) <= v.time; e = v.seen.Front() {
		v.leave(e.Value.(*session), false)
	}
}

func (v *View) acquire(e *Event) {
	if v.touch(e) == nil {
		return
	}
	lease := Lease
	if e.Class == Hub {
		lease = HubLease
	}
	h := Hold{Who: e.Who, Claim: e.Claim, Path: e.Paths[0], Class: e.Class, Since: v.time, Until: min(e.Until, after(v.time, lease)),
		Order: e.Order, Detail: e.Detail}
	tree := e.Class == Tree
	if v.holding(&h.Who, &h.Path, tree, v.time) != nil || v.blocker(&h.Who, &h.Path, tree, v.time) != nil || !v.add(h) {
		return
	}
	if w := v.waiting(&e.Who, &e.Paths[0], tree); w != nil {
		v.dismiss(w)
	}
	v.judgeFree()
}

func (v *View) renew(e *Event) {
	s := v.sessions[e.Session]
	if s == nil || e.Late {
		return
	}
	until := min(e.Until, after(v.time, Lease))
	if c := v.claims[e.Claim]; c != nil && len(e.Paths) > 0 && c.holder == s {
		v.rekey(c, &e.Who, e.Paths[0])
	}
	for _, c := range s.claims {
		if c.Class != Hub && (e.Claim == ClaimID{} || e.Claim == c.Claim) && until > c.Until {
			v.extend(c, until)
		}
	}
	v.touch(e)
}

// written records a write and, where a claim covers it, confirms and renews that.
func (v *View) written(e *Event) {
	x := Written{Who: e.Who, Path: e.Paths[0], Order: e.Order, Time: v.time, Removed: e.Kind == gitlog.PathRemoved, Detail: e.Detail}
	var gated gitlog.Millis
	if c := v.claims[e.Claim]; c != nil && !e.Late && c.stands(&e.Who) && c.covers(&x.Path) {
		x.Gated, gated, c.Written = true, v.time, v.time
		if c.Class != Tree && (e.Class == File || e.Class == Hub) {
			c.Class = e.Class
		}
		until := min(e.Until, after(v.time, Lease))
		if c.Class == Hub {
			until = min(until, after(v.time, HubLease)) // shorter than before where the file has just become one
		} else {
			until = max(until, c.Until)
		}
		if until > v.time {
			v.extend(c, until)
		}
	}
	v.record(x, gated)
	v.tookUp(&e.Who, &x.Path)
}

// covers says whether a write to p is made under the claim.
func (c *claim) covers(p *Path) bool {
	return c.same(p) || c.Class == Tree && slices.ContainsFunc(c.Path.own(), func(t Token) bool { return slices.Contains(p.ancestors(), t) })
}

// move takes a session's claims and waits in a worktree along to another branch. A claim whose path another session holds
// there ends. Whoever queued is out of line: the queue is the other branch's.
func (v *View) move(s *session, to *Who) {
	for _, c := range v.inWorktree(s, to) {
		if v.blocker(to, &c.Path, c.Class == Tree, v.time) != nil {
			v.end(c)
			continue
		}
		c.Branch, c.WasBranch = to.Branch, to.WasBranch
		waits := c.waits
		c.waits = nil
		for _, w := range waits {
			w.blocked = nil
			v.judge(w)
		}
	}
	for _, w := range slices.Clone(s.waits) {
		if !equal(w.Worktree, w.WasWorktree, to.Worktree, to.WasWorktree) || w.Branch == to.Branch {
			continue
		}
		w.Branch, w.WasBranch = to.Branch, to.WasBranch
		if w.Class == Hub {
			w.Class = File
			v.unqueue(w)
		}
		v.judge(w)
	}
	v.judgeFree()
}

// inWorktree returns the session's claims in a worktree that are on another branch, oldest first.
func (v *View) inWorktree(s *session, to *Who) []*claim {
	return slices.DeleteFunc(v.live(s.claims, v.time), func(c *claim) bool {
		return !equal(c.Worktree, c.WasWorktree, to.Worktree, to.WasWorktree) || equal(c.Branch, c.WasBranch, to.Branch, to.WasBranch)
	})
}

// turn returns the queue that an event is about.
func (v *View) turn(e *Event) *queue {
	if len(e.Paths) == 0 {
		return nil
	}
	return v.line(&e.Who, &e.Paths[0])
}

// freed tells whoever waited: their wait is over, or their turn has come.
func (v *View) freed(e *Event) {
	if len(e.Paths) == 0 {
		return
	}
	w := v.waiting(&e.Who, &e.Paths[0], e.Class == Tree)
	if w == nil {
		return
	}
	if _, free := v.free[w]; !free {
		return
	}
	if w.queue != nil {
		v.offer(w.queue, e.Until)
	} else {
		v.dismiss(w)
	}
}

// remove ends the sessions of a device that is no longer in the team, and their claims.
func (v *View) remove(device gitlog.DeviceID) {
	if device == (gitlog.DeviceID{}) {
		return
	}
	for e := v.seen.Front(); e != nil; {
		s := e.Value.(*session)
		e = e.Next()
		if s.Device == device {
			v.leave(s, false)
		}
	}
}
