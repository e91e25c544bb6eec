package arbiter

import "knoot.dev/knoot/gitlog"

// Request is what a session asks of the sequencer: Claim, Renew, Write, Release, Stop, Idle, Leave, Clean, End, Move,
// Take, Declare or Roster. Decide answers it with events.
type Request interface{ request() }

// Want is one path of a request.
type Want struct {
	ID      ClaimID // for the claim if one is granted; drawn by whoever asks
	Path    Path
	Class   Class // Tree, else a file
	Hub     bool  // the path is listed under hubs
	Removed bool  // of a Write: the path is gone
	Detail  []byte
}

// Claim asks for the paths of one write before it happens. All are granted or none.
//
// Granted: a ClaimAcquired a path, or nothing for one that the session holds already (its lease is renewed as any
// hook renews it: ClaimRenewed), and a CrossBranchOverlap for each session that holds it on another branch.
// Denied: a ClaimDenied for each path that something blocks, and nothing else.
type Claim struct {
	Who
	Wants []Want
	Note  bool // the person's mode is note: a refusal is no denial, so nobody waits and Decide answers with nothing
	Late  bool // asked for again after a gap: a refusal is a ClaimReleased (RelaysOrder), and nobody waits
}

// Renew is any hook of a session: it renews its files and trees, not its hubs. Claims narrows it to some (an open
// call); empty means all.
type Renew struct {
	Who
	Claims []ClaimID
}

// Write says that files were written (Removed: deleted). Where the session holds the path this confirms and renews the
// claim; where another holds it it is an UngatedWrite; else it is recorded. A person's presence claims what nobody
// holds. Late: it was before the sequencer could be told of it, so it is recorded and changes no claim.
type Write struct {
	Who
	Wants []Want
	Late  bool
	// Crosses is the session whose own uncommitted changes to the paths these are beside, found late: then it is an UngatedWrite of
	// which that session hears. Zero: none.
	Crosses Token
}

// Release ends claims of the session itself. With Failed and CallEnded only what no write has confirmed ends, and
// trees; with every other reason all that are named.
type Release struct {
	Who
	Claims []ClaimID
	Reason Reason
}

// Stop is the end of a session's turn: its claims end, but those in Keep (held by background tasks of type subagent
// that still run). Turns that it has are passed on, as by Idle.
type Stop struct {
	Who
	Keep []ClaimID
}

// Idle says that a session to which a hub was offered sits after its Stop with no open call: the next one's turn.
type Idle struct{ Who }

// Leave says that files were found with uncommitted changes after Stop: ClaimLeft for each path. Want.ID is the claim
// that it was, and names it in Clean. Late: it was before the sequencer could be told of it.
type Leave struct {
	Who
	Wants []Want
	Late  bool
}

// Clean says that what was left is clean again: ClaimReleased with the id it was left by.
type Clean struct {
	Who
	Claims []ClaimID
}

// End is the end of a session: EndOfLife, or ProcessGone. Late: it was before the sequencer could be told of it; what the session
// still holds by then lives to its lease.
type End struct {
	Who
	Reason Reason
	Late   bool
}

// Move says that HEAD of Worktree moved to Who.Branch: the session's claims there go along, but those that another
// session holds on the new branch end (ClaimReleased, Moved, Other the holder).
type Move struct{ Who }

// Take gives files to a person's presence for one lease, whoever holds them.
type Take struct {
	Who
	Wants []Want
}

// Declare is an event that needs no decision, with the fields that its kind carries: SessionStarted, IntentDeclared,
// PlanDeclared, StaleRead, CreateCollision, DuplicateIntent, Message, MemoryPublished, MemoryRefused. Other kinds are
// refused: Decide answers with nothing.
type Declare struct{ Event }

// Roster says that the team changed. The claims of removed devices end.
type Roster struct {
	Who
	Removed []gitlog.DeviceID
}

func (Claim) request()   {}
func (Renew) request()   {}
func (Write) request()   {}
func (Release) request() {}
func (Stop) request()    {}
func (Idle) request()    {}
func (Leave) request()   {}
func (Clean) request()   {}
func (End) request()     {}
func (Move) request()    {}
func (Take) request()    {}
func (Declare) request() {}
func (Roster) request()  {}
