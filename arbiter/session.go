package arbiter

import (
	"bytes"
	"cmp"
	"container/list"
	"slices"

	"knoot.dev/knoot/gitlog"
)

// Session is a session or a person's presence.
type Session struct {
	Who                             // as last seen
	Started, Seen     gitlog.Millis // first and last sign of life
	Detail            []byte        // of SessionStarted, nil before one
	Intent, Plan      []byte        // Detail of IntentDeclared and PlanDeclared, nil: none
	Intended, Planned gitlog.Millis // when; zero: never
}

// session is a Session with what hangs on it.
type session struct {
	Session
	ended  bool // while what it held lives on
	claims []*claim
	waits  []*wait
	place  *list.Element // in View.seen
}

// touch is a sign of life of a session, which need not have been seen before: a client may join in the middle.
func (v *View) touch(e *Event) *session {
	if e.Session == (Token{}) {
		return nil
	}
	s := v.sessions[e.Session]
	if s == nil {
		s = &session{Session: Session{Who: e.Who, Started: v.time}}
		s.place = v.seen.PushBack(s)
		v.sessions[e.Session] = s
	} else {
		v.seen.MoveToBack(s.place)
	}
	s.Seen, s.ended = v.time, false
	if !e.Late && e.Worktree != (Token{}) {
		s.Branch, s.Worktree, s.WasBranch, s.WasWorktree = e.Branch, e.Worktree, e.WasBranch, e.WasWorktree
	}
	return s
}

// leave ends a session with all it waits for and, unless claims are kept to their leases, all that it holds.
func (v *View) leave(s *session, keep bool) {
	s.ended = true
	for len(s.waits) > 0 {
		v.dismiss(s.waits[0])
	}
	for !keep && len(s.claims) > 0 {
		v.end(s.claims[0])
	}
	v.forgetEnded(s)
}

// forgetEnded drops a session that ended once it holds nothing.
func (v *View) forgetEnded(s *session) {
	if s.ended && len(s.claims) == 0 && s.place != nil {
		v.seen.Remove(s.place)
		s.place = nil
		delete(v.sessions, s.Session.Session)
	}
}

func (s *session) lives(now gitlog.Millis) bool { return !s.ended && after(s.Seen, StaleAfter) > now }

// Sessions returns all sessions that live, by start.
func (v *View) Sessions(now gitlog.Millis) []Session {
	var found []Session
	for _, s := range v.sessions {
		if s.lives(max(now, v.time)) {
			found = append(found, s.Session)
		}
	}
	slices.SortFunc(found, func(a, b Session) int {
		return cmp.Or(cmp.Compare(a.Started, b.Started), bytes.Compare(a.Who.Session[:], b.Who.Session[:]))
	})
	return found
}

// Session returns a session that lives.
func (v *View) Session(session Token, now gitlog.Millis) (Session, bool) {
	if s := v.sessions[session]; s != nil && s.lives(max(now, v.time)) {
		return s.Session, true
	}
	return Session{}, false
}
