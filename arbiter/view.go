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

import "knoot.dev/knoot/gitlog"

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
type View struct{}

// New returns the View before any event.
func New() *View { return &View{} }

// Apply takes the next event. An event at or before the View's position is ignored, and so is whatever an event says
// that is not possible in this state. Nothing makes it panic. A time before the View's counts as the View's.
func (v *View) Apply(e Event) {}

// Position is the order of the last event applied.
func (v *View) Position() Order { return Order{} }

// Time is the latest time of any event applied. Questions about an earlier time are answered for this one.
func (v *View) Time() gitlog.Millis { return 0 }

// Hold is a live claim, or the turn of a queue's head (then Claim is zero).
type Hold struct {
	Who             // the holder; Subagent is the one that took it
	Claim   ClaimID // zero: nobody holds it, it is reserved for the head of its queue
	Path    Path
	Class   Class
	Since   gitlog.Millis // when it was taken
	Until   gitlog.Millis // when it ends unless it is renewed; zero for a turn that PathFreed has not opened yet
	Written gitlog.Millis // the holder's last write, zero: none yet
	Order   Order         // of the ClaimAcquired
	Detail  []byte        // of the ClaimAcquired
}

// Session is a session or a person's presence.
type Session struct {
	Who                  // as last seen
	Started, Seen        gitlog.Millis
	Detail, Intent, Plan []byte        // of SessionStarted, IntentDeclared and PlanDeclared
	Intended, Planned    gitlog.Millis // when; zero: never
}

// Wait is a session's wait for a path that it was denied.
type Wait struct {
	Who
	Path  Path
	Class Class         // Hub: in the queue, else told once the path is free
	Since gitlog.Millis // of its first denial
	Place int           // in the queue, from 1; 0 for other waits
}

// Written is the last write of one session to one path.
type Written struct {
	Who
	Path    Path
	Order   Order
	Time    gitlog.Millis
	Gated   bool // under a claim
	Removed bool // the path was deleted
	Detail  []byte
}

// Left is a file that a session left with uncommitted changes.
type Left struct {
	Who
	Path   Path
	Claim  ClaimID
	Time   gitlog.Millis
	Detail []byte
}

// Queue is what is to know about a path on a branch.
type Queue struct {
	Hub   bool
	Lease gitlog.Millis // of a claim taken now: Lease or HubLease
	Waits []Wait        // in line, the head first
	Turn  Token         // whose turn it is: the head's session where nobody holds the path, else zero
	Until gitlog.Millis // when that turn ends; zero: not opened yet by PathFreed
}

// Blocks returns what denies the path to this session: the oldest claim of another session that conflicts (a person's
// presence never blocks that person's own sessions), else the turn of another at the head of the hub's queue.
func (v *View) Blocks(who Who, w Want, now gitlog.Millis) (Hold, bool) { return Hold{}, false }

// Presence returns the claim of the session's own person on this path: worth a note, no denial.
func (v *View) Presence(who Who, w Want, now gitlog.Millis) (Hold, bool) { return Hold{}, false }

// Elsewhere returns who holds the path on another branch in another worktree, oldest first.
func (v *View) Elsewhere(who Who, w Want, now gitlog.Millis) []Hold { return nil }

// Holding returns the session's own claim on exactly this path in this place.
func (v *View) Holding(who Who, w Want, now gitlog.Millis) (Hold, bool) { return Hold{}, false }

// Queue says whether the path is a hub on who's branch, how long a lease is there, who waits in line, and whose turn it is.
func (v *View) Queue(who Who, w Want, now gitlog.Millis) Queue { return Queue{} }

// Waiting returns who waits for the path, in line or not, first come first.
func (v *View) Waiting(p Path, now gitlog.Millis) []Wait { return nil }

// Waits returns what a session waits for, first come first.
func (v *View) Waits(session Token, now gitlog.Millis) []Wait { return nil }

// Writes returns what other sessions wrote after since, each session's last write to a path, oldest first; of the
// paths given, or of all when none is. Only the last WriteWindow is known.
func (v *View) Writes(session Token, since Order, now gitlog.Millis, paths ...Path) []Written {
	return nil
}

// Lefts returns what other sessions left uncommitted at this path on who's branch or in its worktree, oldest first.
func (v *View) Lefts(who Who, p Path, now gitlog.Millis) []Left { return nil }

// Claim returns a live claim.
func (v *View) Claim(id ClaimID, now gitlog.Millis) (Hold, bool) { return Hold{}, false }

// Claims returns the live claims of a session, or of all sessions for the zero token, oldest first.
func (v *View) Claims(session Token, now gitlog.Millis) []Hold { return nil }

// Sessions returns all sessions that live, by start.
func (v *View) Sessions(now gitlog.Millis) []Session { return nil }

// Session returns a session that lives.
func (v *View) Session(session Token, now gitlog.Millis) (Session, bool) { return Session{}, false }

// Decide answers a request by the rules of relay.md (Claims): the events to sequence, in their order, with Time now
// (never before the View's) and no Order; none where nothing is to be said. It changes nothing, so the caller may drop
// them and ask again. All that was due (Due) must have been applied.
func (v *View) Decide(r Request, now gitlog.Millis) []Event { return nil }

// Due returns the events that time alone brings at now, as Decide does: leases that ran out, PathFreed for whoever waits,
// turns in queues. Apply them and ask again until there are none.
func (v *View) Due(now gitlog.Millis) []Event { return nil }

// DueAt returns when Due has something to say next if nothing else happens; a time that has passed means now. False:
// never.
func (v *View) DueAt() (gitlog.Millis, bool) { return 0, false }

// Sequencer is a View with the right to order events. It has no clock: the caller gives the time, which is the larger
// of its wall clock and the last event's time plus the monotonic time since.
type Sequencer struct {
	*View
	Term uint64 // higher than any term the View has seen
}

// Do does what is due, decides and applies, and what is due then. It returns all events with their order and the index
// of the request's own first one and of the one after its last.
func (s *Sequencer) Do(r Request, now gitlog.Millis) (events []Event, from, to int) { return nil, 0, 0 }

// Tick does what is due, and returns it with its order.
func (s *Sequencer) Tick(now gitlog.Millis) []Event { return nil }

// Snapshot is a View as data, equal for equal Views: every list is sorted.
type Snapshot struct{}

// Snapshot returns the View's state, sharing nothing that changes.
func (v *View) Snapshot() Snapshot { return Snapshot{} }

// Restore returns the View that a snapshot was taken of. What is not possible in one is dropped.
func Restore(s Snapshot) *View { return New() }

// Equal says whether both Views are in the same state, and so answer everything alike.
func (v *View) Equal(w *View) bool { return true }
