package arbiter

import "knoot.dev/knoot/gitlog"

// Sequencer is a View with the right to order events. It has no clock: the caller gives the time, which is the larger
// of its wall clock and the last event's time plus the monotonic time since. Whoever must store events before anyone
// hears of them does so with what Do and Tick return, before it answers.
type Sequencer struct {
	*View
	Term uint64 // of this run: higher than any before
}

// Do does what is due, decides and applies, and does what is due then. It returns all events, in order; those of the
// request itself are events[from:to].
func (s *Sequencer) Do(r Request, now gitlog.Millis) (events []Event, from, to int) {
	events = s.Tick(now)
	from = len(events)
	events = append(events, s.apply(s.Decide(r, now))...)
	to = len(events)
	return append(events, s.Tick(now)...), from, to
}

// Tick does what is due, and returns it, in order.
func (s *Sequencer) Tick(now gitlog.Millis) []Event {
	var events []Event
	for {
		due := s.Due(now)
		if len(due) == 0 {
			return events
		}
		events = append(events, s.apply(due)...)
	}
}

// apply gives events the next places in the order.
func (s *Sequencer) apply(events []Event) []Event {
	for i := range events {
		next := Order{s.Term, 1}
		if last := s.Position(); last.Term >= s.Term {
			next = Order{last.Term, last.Seq + 1}
		}
		events[i].Order = next
		s.Apply(events[i])
	}
	return events
}
