// Package arbiter says who may write which file now.
//
// A [View] is what the events of one sequencer add up to: who is here, which session holds which path until when,
// which files are hubs, who waits for them, what was written. It changes by [View.Apply] and by nothing else. It has no
// clock, no goroutine, no I/O and no randomness, so the sequencer's view, everybody's mirror of it and a replay a year
// later are equal. Questions about now take a time.
//
// The rules are here once: [View.Decide] turns what a session asks for into events, [View.Due] says what time alone
// brings. Both change nothing. Whoever sequences (the daemon for one machine, a relay for a team) gives the events their
// order, stores them, and applies them: [Sequencer] does so in memory.
//
// A View is not safe for concurrent use.
package arbiter

import (
	"container/list"

	"knoot.dev/knoot/gitlog"
)

const (
	minute gitlog.Millis = 60 * 1000
	hour                 = 60 * minute

	Lease       = 10 * minute // how long a claim lasts after the session's last hook
	HubLease    = 2 * minute  // how long a hub's claim lasts after its last write
	HubWindow   = 30 * minute // within this, HubSessions sessions that wrote a file on one branch make it a hub
	HubSessions = 3
	WriteWindow = 30 * minute // how long writes are remembered
	TurnTime    = 2 * minute  // how long a free hub is reserved for the head of its queue
	StaleAfter  = 12 * hour   // how long a session, a wait and what was left are remembered without a sign of life

	IntentLength = 160 // characters of an intent that are kept
)

// View is the state that a sequencer's events add up to. The zero View is not usable: use [New] or [Restore].
type View struct {
	order Order
	time  gitlog.Millis

	nodes    map[Token]*node
	claims   map[ClaimID]*claim
	ending   endings // the claims, by their end
	trees    int     // how many of them are on trees
	sessions map[Token]*session
	seen     *list.List // the sessions, by their last sign of life
	writes   *list.List // by order
	left     *list.List // by order
	leftBy   map[ClaimID]*left
	waits    *list.List // by their beginning
	queues   map[queueKey]*queue
	free     map[*wait]struct{}  // whom nothing denies: PathFreed is due
	open     map[*queue]struct{} // whose head has its turn
}

// New returns the View before any event.
func New() *View {
	return &View{
		nodes:    map[Token]*node{},
		claims:   map[ClaimID]*claim{},
		sessions: map[Token]*session{},
		seen:     list.New(),
		writes:   list.New(),
		left:     list.New(),
		leftBy:   map[ClaimID]*left{},
		waits:    list.New(),
		queues:   map[queueKey]*queue{},
		free:     map[*wait]struct{}{},
		open:     map[*queue]struct{}{},
	}
}

// Position is the order of the last event applied.
func (v *View) Position() Order { return v.order }

// Time is the latest time of any event applied. Questions about an earlier time are answered for this one.
func (v *View) Time() gitlog.Millis { return v.time }

// after adds without running over: times come from outside.
func after(t, d gitlog.Millis) gitlog.Millis {
	if t+d < t {
		return ^gitlog.Millis(0)
	}
	return t + d
}
