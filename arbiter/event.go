package arbiter

import (
	"cmp"

	"knoot.dev/knoot/gitlog"
)

// Token stands for a path, a branch, a worktree or a session (formats.md, Keys and tokens). Equal tokens mean equal
// things and nothing else can be read from them; zero means absent. With one machine and no relay any injective 16
// bytes will do.
type Token [16]byte

// ClaimID is drawn at random by whoever asks for the claim. Asking twice with one id grants once.
type ClaimID [16]byte

// Order is a place in one sequencer's order. The zero Order is before every event.
type Order struct {
	Term, Seq uint64
}

// Compare orders by term, then seq: -1, 0 or 1.
func (o Order) Compare(p Order) int {
	return cmp.Or(cmp.Compare(o.Term, p.Term), cmp.Compare(o.Seq, p.Seq))
}

// Class is what a claim covers, and how long it lasts (formats.md, Event, key 12).
type Class uint64

const (
	File Class = 1 // one file, for Lease
	Tree Class = 2 // a directory and everything below it, until its call ends
	Hub  Class = 3 // one file that many write, for HubLease; only writing renews it
)

// Reason says why a claim ended (formats.md, Event, key 13).
type Reason uint64

const (
	Expired     Reason = 1  // its lease ran out
	Failed      Reason = 2  // the write that took it failed or was denied
	Stopped     Reason = 3  // the session's turn ended
	EndOfLife   Reason = 4  // the session ended
	Taken       Reason = 5  // a person took the file
	Moved       Reason = 6  // HEAD moved to a branch where another session holds the path
	Released    Reason = 7  // the session let go of it, or what it left is clean again
	RelaysOrder Reason = 8  // the relay granted it to another
	ProcessGone Reason = 9  // the agent's process is gone
	CallEnded   Reason = 10 // the call that took it ended, and nothing confirmed it
)

// Path is a path as its tokens: the path's own and those of every directory above it, the root's included. A claim on
// a tree covers whatever lists the tree's own token.
type Path struct {
	Own       Token
	Ancestors []Token
	// Was holds the tokens of the same path under the keys before, for one Lease after a new epoch or a change of
	// areas. Claims conflict on either. In that time every claim that lives on must be asked for again with both, or
	// nobody will find it by the new one. Was.Was is not looked at.
	Was *Path
}

// Who is the session that acts and where it stands. Every event and every request names one.
type Who struct {
	Session  Token
	Subagent string          // opaque, "" for the session itself: told apart in the log, never in a decision
	Device   gitlog.DeviceID // the machine; when it is removed from the team its claims end
	Owner    gitlog.MemberID // the member whose session it is; zero: nobody's, the same as no other
	Person   bool            // the presence of a person, not an agent
	Branch   Token           // of HEAD; when detached, the worktree's token of a branch
	Worktree Token
	// The tokens of the same branch and worktree under the keys before, as in Path.Was; else zero. A session keeps the
	// token that it started with.
	WasBranch, WasWorktree Token
}

// Event is one sequenced event. Which fields count depends on Kind; the comment says which kinds carry a field.
// Slices are kept, not copied: whoever made the event must not change them afterwards.
//
//	SessionStarted      Who, Detail
//	IntentDeclared      Who, Detail
//	PlanDeclared        Who, Detail (none: the plan is withdrawn)
//	ClaimAcquired       Who, Paths[0], Class, Claim, Until, Detail; Late: asked for again after a gap
//	ClaimRenewed        Who, Claim (zero: every claim of the session but hubs), Until, Paths[0] where its tokens changed
//	ClaimDenied         Who, Paths[0], Class of the wait (File, Tree, or Hub: it queues), Claim that was asked for, Other (holder), Until (the holder's)
//	ClaimReleased       Who, Claim, Paths[0], Reason, Other (Taken: the person; Moved, RelaysOrder: the holder)
//	ClaimLeft           Who, Paths[0], Claim (which it was), Detail
//	BranchMoved         Who (Branch is the new one), OldBranch
//	HubTurn             Who.Session (whose turn it is; zero: nobody's, the queue is empty), Who.Branch, Other (who let it pass), Paths[0], Until
//	PathFreed           Who (who waited and hears of it), Paths[0], Class (Hub: their turn, Until when)
//	FileWritten         Who, Paths[0], Claim and Until (when a claim covers the write: it is confirmed and renewed), Class, Detail
//	PathRemoved         as FileWritten
//	UngatedWrite        Who (who wrote), Paths[0], Claim and Other (what was held, by whom), Detail
//	CrossBranchOverlap  Who (who was granted), Paths[0], Other (who holds it on another branch), Claim (theirs)
//	RosterChanged       Who.Device when that device was removed
//	SessionEnded        Who, Reason
//	all others          Who, Detail: the session was seen, nothing else changes
type Event struct {
	Who
	Order     Order
	Time      gitlog.Millis // of the sequencer; never before the last event's
	Late      bool          // happened while the sequencer could not be reached; changes claims only as ClaimAcquired
	Kind      gitlog.EntryKind
	OldBranch Token
	Paths     []Path
	Class     Class
	Claim     ClaimID
	Until     gitlog.Millis
	Reason    Reason
	Other     Token
	Detail    []byte // the embedder's: names, texts, blob ids; sealed where a relay passes it on. Never read here
}
