package arbiter

import (
	"slices"

	"knoot.dev/knoot/gitlog"
)

// Due returns the events that time alone brings at now, as Decide does: leases that ran out; then PathFreed for whoever
// waited, and turns in queues that nobody took. Apply them and ask again until there are none.
func (v *View) Due(now gitlog.Millis) []Event {
	d := decision{v: v, now: max(now, v.time)}
	for _, c := range v.ending.by(d.now) {
		d.let(c, Expired, Token{})
	}
	if len(d.events) > 0 {
		return d.events
	}
	var free []*wait
	for w := range v.free {
		free = append(free, w)
	}
	slices.SortFunc(free, func(a, b *wait) int { return a.order.Compare(b.order) })
	for _, w := range free {
		e := Event{Who: w.Who, Kind: gitlog.PathFreed, Paths: []Path{w.Path}, Class: w.Class}
		if w.queue != nil {
			e.Until = after(d.now, TurnTime)
		}
		d.say(e)
	}
	var over []*queue
	for q := range v.open {
		if q.until <= d.now {
			over = append(over, q)
		}
	}
	slices.SortFunc(over, func(a, b *queue) int { return a.waits[0].order.Compare(b.waits[0].order) })
	for _, q := range over {
		d.turn(q)
	}
	return d.events
}

// DueAt returns when Due has something to say next if nothing else happens; a time that has passed means now. False:
// never.
func (v *View) DueAt() (gitlog.Millis, bool) {
	at, due := gitlog.Millis(0), false
	sooner := func(t gitlog.Millis) {
		if !due || t < at {
			at, due = t, true
		}
	}
	if len(v.free) > 0 {
		sooner(v.time)
	}
	if len(v.ending) > 0 {
		sooner(v.ending[0].Until)
	}
	for q := range v.open {
		sooner(q.until)
	}
	return at, due
}
