package arbiter

import (
	"bytes"
	"cmp"
	"reflect"
	"slices"

	"knoot.dev/knoot/gitlog"
)

// Snapshot is a View as data, equal for equal Views: every list has one order.
type Snapshot struct {
	Order    Order
	Time     gitlog.Millis
	Sessions []SessionState // by last sign of life, then token
	Claims   []Hold         // oldest first
	Writes   []WriteState   // oldest first
	Left     []Left         // oldest first
	Waits    []WaitState    // not in line, oldest first
	Queues   []QueueState   // by path and branch
}

// SessionState is a Session as a View keeps it.
type SessionState struct {
	Session
	Ended bool // said late: it is gone, and what it held lives to its lease
}

// WriteState is a Written as a View keeps it.
type WriteState struct {
	Written
	LastGated gitlog.Millis // the session's last write to it under a claim, zero: none
}

// WaitState is a Wait as a View keeps it.
type WaitState struct {
	Wait
	Order  Order // of the denial
	Passed bool  // it let a turn pass
}

// QueueState is a hub's queue on one branch.
type QueueState struct {
	Path, Branch Token
	Until        gitlog.Millis // of the head's turn; zero: none is open
	Waits        []WaitState   // the head first
}

// Snapshot returns the View's state. It shares only what never changes.
func (v *View) Snapshot() Snapshot {
	s := Snapshot{Order: v.order, Time: v.time}
	for _, x := range v.sessions {
		s.Sessions = append(s.Sessions, SessionState{x.Session, x.ended})
	}
	slices.SortFunc(s.Sessions, func(a, b SessionState) int {
		return cmp.Or(cmp.Compare(a.Seen, b.Seen), bytes.Compare(a.Who.Session[:], b.Who.Session[:]))
	})
	s.Claims = holds(v.live(v.ending, v.time))
	for e := v.writes.Front(); e != nil; e = e.Next() {
		w := e.Value.(*write)
		s.Writes = append(s.Writes, WriteState{w.Written, w.gated})
	}
	for e := v.left.Front(); e != nil; e = e.Next() {
		s.Left = append(s.Left, e.Value.(*left).Left)
	}
	for e := v.waits.Front(); e != nil; e = e.Next() {
		if w := e.Value.(*wait); w.queue == nil {
			s.Waits = append(s.Waits, w.state())
		}
	}
	slices.SortFunc(s.Waits, func(a, b WaitState) int { return a.Order.Compare(b.Order) })
	for _, q := range v.queues {
		state := QueueState{Path: q.key.path, Branch: q.key.branch, Until: q.until}
		for _, w := range q.waits {
			state.Waits = append(state.Waits, w.state())
		}
		s.Queues = append(s.Queues, state)
	}
	slices.SortFunc(s.Queues, func(a, b QueueState) int {
		return cmp.Or(bytes.Compare(a.Path[:], b.Path[:]), bytes.Compare(a.Branch[:], b.Branch[:]))
	})
	return s
}

func (w *wait) state() WaitState { return WaitState{w.Wait, w.order, w.passed} }

// Restore returns the View that a snapshot was taken of. Nothing in a snapshot makes it panic; what is not possible in
// one is dropped.
func Restore(s Snapshot) *View {
	v := New()
	v.order, v.time = s.Order, s.Time
	for _, x := range s.Sessions {
		if x.Who.Session != (Token{}) && v.sessions[x.Who.Session] == nil {
			session := &session{Session: x.Session, ended: x.Ended}
			session.place = v.seen.PushBack(session)
			v.sessions[x.Who.Session] = session
		}
	}
	for _, h := range s.Claims {
		v.add(h)
	}
	for _, x := range s.Writes {
		v.record(x.Written, x.LastGated)
	}
	for _, x := range s.Left {
		v.abandon(x)
	}
	for _, x := range v.sessions {
		v.forgetEnded(x)
	}
	var waits []*wait
	for _, x := range s.Waits {
		waits = append(waits, &wait{Wait: x.Wait, order: x.Order, passed: x.Passed})
	}
	lines := make([][]*wait, len(s.Queues))
	for i, q := range s.Queues {
		for _, x := range q.Waits {
			w := &wait{Wait: x.Wait, order: x.Order, passed: x.Passed}
			waits, lines[i] = append(waits, w), append(lines[i], w)
		}
	}
	slices.SortStableFunc(waits, func(a, b *wait) int { return a.order.Compare(b.order) })
	for _, w := range waits {
		v.admit(w)
	}
	for i, state := range s.Queues {
		q := v.queues[queueKey{state.Path, state.Branch}]
		if q == nil {
			q = &queue{key: queueKey{state.Path, state.Branch}}
		}
		for _, w := range lines[i] {
			if w.place != nil { // admitted
				v.enter(q, w)
			}
		}
		if q.until = state.Until; q.until != 0 && len(q.waits) > 0 {
			v.open[q] = struct{}{}
		}
	}
	for e := v.waits.Front(); e != nil; e = e.Next() {
		v.judge(e.Value.(*wait))
	}
	return v
}

// Equal says whether both Views are in the same state, and so answer everything alike.
func (v *View) Equal(w *View) bool { return reflect.DeepEqual(v.Snapshot(), w.Snapshot()) }
