package relay

import (
	"time"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/arbiter/wire"
	"knoot.dev/knoot/gitlog"
)

// weight is how much there is of a repository's state, in bytes of its snapshot: what was weighed, and the events since.
type weight struct {
	state int64
	since int64
	at    time.Duration // when it was weighed, by the monotonic clock
}

// A repository is weighed so often at most, and only where it may have come near its limit.
const weighEvery = 5 * time.Second

// full refuses what would make the state larger than the relay keeps. mu is held.
func (r *repository) full() *wire.Fault {
	if r.weight.state+r.weight.since <= r.core.limits.StateBytes {
		return nil
	}
	return &wire.Fault{Code: wire.TooLarge, Text: "in the repository goes on as much as the relay keeps"}
}

// grows says whether an act may make the state larger. The others end what is in it, or keep it.
func grows(act arbiter.Request) bool {
	switch act.(type) {
	case arbiter.Write, arbiter.Leave, arbiter.Take, arbiter.Declare:
		return true
	}
	return false
}

// weigh measures the state, where that is due, without what is over: the View forgets it with the next event only, and a
// full repository may have none.
func (r *repository) weigh(now gitlog.Millis) bool {
	r.core.world.RLock()
	r.mu.Lock()
	mono, since := r.core.mono(), r.weight.since
	due := r.weight.state+since > r.core.limits.StateBytes/2 && mono-r.weight.at >= weighEvery
	var s arbiter.Snapshot
	if due {
		s = r.seq.Snapshot()
	}
	r.mu.Unlock()
	r.core.world.RUnlock()
	if !due {
		return false
	}
	view := arbiter.Restore(s)
	view.Apply(arbiter.Event{Order: arbiter.Order{Term: s.Order.Term, Seq: s.Order.Seq + 1}, Time: now, Kind: gitlog.RosterChanged})
	s = view.Snapshot()
	state := int64(len(wire.EncodeSnapshot(&s)))
	r.mu.Lock()
	r.weight = weight{state, r.weight.since - since, mono}
	r.mu.Unlock()
	return true
}
