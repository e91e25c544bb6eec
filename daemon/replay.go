package daemon

import (
	"bytes"
	"cmp"
	"slices"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/gitlog"
)

// StandingAt says who was at work and held what at a time, from audit logs alone. member returns the address of a device's
// member, worktree the path of a worktree by the device and the id that events have; both "" where that is not known.
//
// The logs do not say when a lease was renewed. So a claim counts as held until its end is in a log or, where that is in none,
// until the lease that is said last; and its Until, where hooks had renewed it since, is when it ended.
func StandingAt(events []*gitlog.Stored, at gitlog.Millis, member func(gitlog.DeviceID) string, worktree func(gitlog.DeviceID, []byte) string) *Standing {
	r := replay{at: at, sessions: map[pastKey]*pastSession{}, claims: map[string]*pastClaim{}}
	for _, e := range eventsInOrder(events) {
		if e.Time > at {
			r.after(e)
		} else {
			r.apply(e)
		}
	}
	out := &Standing{Sessions: []StandingSession{}}
	for _, s := range r.order {
		if r.sessions[s.key] != s || s.Seen+arbiter.StaleAfter < at {
			continue
		}
		each := s.StandingSession
		each.Member = member(s.key.device)
		each.Worktree = worktree(s.key.device, s.worktree)
		each.Decided, each.Claims, each.Waiting = []string{}, []StandingClaim{}, append([]string{}, s.Waiting...)
		for _, c := range s.claims {
			if c.Until > at {
				each.Claims = append(each.Claims, c.StandingClaim)
			}
		}
		out.Sessions = append(out.Sessions, each)
	}
	return out
}

// eventsInOrder returns events once each, in the order in which they happened. One whose paths lie in several rooms was written
// into each. Within a sequencer's order times never go back, so time and then that order is the order of all.
func eventsInOrder(events []*gitlog.Stored) []*gitlog.Stored {
	type eventKey struct {
		author gitlog.DeviceID
		kind   gitlog.EntryKind
		at     gitlog.Millis
		nonce  [8]byte
	}
	byKey := map[eventKey]*gitlog.Stored{}
	var out []*gitlog.Stored
	for _, e := range events {
		if e.Event == nil {
			continue
		}
		key := eventKey{e.Author, e.Kind, e.Time, e.Nonce}
		if had := byKey[key]; had != nil {
			whole, entry, event := *had, *had.Entry, *had.Event
			event.Paths = append(slices.Clone(event.Paths), e.Event.Paths...)
			entry.Event, whole.Entry = &event, &entry
			*had = whole
			continue
		}
		copied := *e
		byKey[key] = &copied
		out = append(out, &copied)
	}
	slices.SortStableFunc(out, func(a, b *gitlog.Stored) int {
		if c := cmp.Compare(a.Time, b.Time); c != 0 {
			return c
		}
		x, y := a.Event.Order, b.Event.Order
		if x == nil || y == nil {
			return 0
		}
		return cmp.Or(bytes.Compare(x.Sequencer[:], y.Sequencer[:]), cmp.Compare(x.Term, y.Term), cmp.Compare(x.Seq, y.Seq))
	})
	return out
}

// replay is what events up to a time add up to.
type replay struct {
	at       gitlog.Millis
	sessions map[pastKey]*pastSession // those that had not ended
	order    []*pastSession           // by start
	claims   map[string]*pastClaim    // by id
}

type pastKey struct {
	device  gitlog.DeviceID
	session sessionKey
}

type pastSession struct {
	StandingSession
	key      pastKey
	worktree []byte
	claims   []*pastClaim
}

type pastClaim struct {
	StandingClaim
	ended bool
}

// apply makes the change of an event at or before the time.
func (r *replay) apply(e *gitlog.Stored) {
	key := pastKey{e.Author, sessionKey{Agent: e.Event.Agent, ID: e.Event.Session}}
	s := r.sessions[key]
	if e.Event.Session == "" {
		return // nobody's, such as the end of a queue
	}
	if e.Kind == gitlog.SessionEnded {
		delete(r.sessions, key)
		return
	}
	if s == nil {
		s = &pastSession{key: key, StandingSession: StandingSession{Session: e.Event.Session, Agent: e.Event.Agent, Began: e.Time}}
		r.sessions[key], r.order = s, append(r.order, s)
	}
	s.Seen, s.Person = e.Time, e.Event.Person
	s.Branch, s.worktree = e.Event.Branch, e.Event.Worktree
	switch e.Kind {
	case gitlog.IntentDeclared:
		s.Intent = e.Event.Text
	case gitlog.PlanDeclared:
		s.Plan = e.Event.Text
	case gitlog.BranchMoved:
		for _, c := range s.claims {
			if c.Branch == e.Event.OldBranch {
				c.Branch = e.Event.Branch
			}
		}
	case gitlog.ClaimAcquired:
		for _, p := range e.Event.Paths {
			c := &pastClaim{StandingClaim: StandingClaim{Path: p.Path, Until: e.Event.Until, Hub: e.Event.Class == uint64(arbiter.Hub),
				Branch: e.Event.Branch, Since: e.Time}}
			s.claims = append(s.claims, c)
			r.claims[string(e.Event.Claim)] = c
			s.Waiting = slices.DeleteFunc(s.Waiting, func(w string) bool { return w == p.Path })
		}
	case gitlog.ClaimReleased:
		if c := r.claims[string(e.Event.Claim)]; c != nil {
			c.Until, c.ended = 0, true
		}
	case gitlog.FileWritten, gitlog.PathRemoved:
		if c := r.claims[string(e.Event.Claim)]; c != nil && !c.ended {
			c.Written, c.Until = e.Time, max(c.Until, e.Event.Until)
		}
	case gitlog.ClaimDenied:
		for _, p := range e.Event.Paths {
			if !slices.Contains(s.Waiting, p.Path) {
				s.Waiting = append(s.Waiting, p.Path)
			}
		}
	case gitlog.PathFreed:
		// Who has the turn at a hub goes on waiting until it takes it.
		if e.Event.Class != uint64(arbiter.Hub) {
			s.Waiting = slices.DeleteFunc(s.Waiting, func(w string) bool {
				return slices.ContainsFunc(e.Event.Paths, func(p gitlog.EventPath) bool { return p.Path == w })
			})
		}
	}
}

// after learns from an event after the time what had happened until then and was not in a log: that a lease was renewed.
func (r *replay) after(e *gitlog.Stored) {
	c := r.claims[string(e.Event.Claim)]
	if c == nil || c.ended || c.Until > r.at {
		return // it had ended, or the lease is known
	}
	switch e.Kind {
	case gitlog.FileWritten, gitlog.PathRemoved, gitlog.ClaimReleased:
		c.Until = e.Time
	}
}
