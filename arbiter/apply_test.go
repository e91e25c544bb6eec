package arbiter

import (
	"reflect"
	"testing"

	"knoot.dev/knoot/gitlog"
)

var (
	sam = Who{Session: tok("sam"), Branch: tok("main"), Worktree: tok("w1"), Device: gitlog.DeviceID{1}}
	ash = Who{Session: tok("ash"), Branch: tok("main"), Worktree: tok("w2"), Device: gitlog.DeviceID{2}}
)

func want(path string, id byte) Want { return Want{ID: ClaimID{id}, Path: pathOf(path)} }

// samHolds is a sequencer where sam holds a (claim 1), and b as a hub (claim 2), since noon.
func samHolds(t *testing.T) *Sequencer {
	s := &Sequencer{View: New(), Term: 1}
	hub := want("b", 2)
	hub.Hub = true
	if events, _, _ := s.Do(Claim{Who: sam, Wants: []Want{want("a", 1), hub}}, noon); len(events) != 2 {
		t.Fatalf("%+v", events)
	}
	return s
}

// next applies an event as the next one.
func next(s *Sequencer, e Event) {
	e.Order, e.Time = Order{1, s.Position().Seq + 1}, max(e.Time, s.Time())
	s.Apply(e)
}

// Late events are recorded and change no claim; so do events about somebody else's claim, and renewals of hubs.
func TestWhatChangesNoClaim(t *testing.T) {
	t.Parallel()
	a, b := []Path{pathOf("a")}, []Path{pathOf("b")}
	moved := sam
	moved.Branch = tok("dev")
	for name, e := range map[string]Event{
		"a late release":           {Who: sam, Late: true, Kind: gitlog.ClaimReleased, Claim: ClaimID{1}},
		"a late renewal":           {Who: sam, Late: true, Kind: gitlog.ClaimRenewed, Until: noon + 12*minute, Time: noon + minute},
		"a late write":             {Who: sam, Late: true, Kind: gitlog.FileWritten, Claim: ClaimID{1}, Paths: a, Class: File, Until: noon + 11*minute, Time: noon + minute},
		"a late end":               {Who: sam, Late: true, Kind: gitlog.SessionEnded},
		"a late move":              {Who: moved, Late: true, Kind: gitlog.BranchMoved},
		"a late denial":            {Who: ash, Late: true, Kind: gitlog.ClaimDenied, Paths: a, Class: File},
		"a late left file":         {Who: sam, Late: true, Kind: gitlog.ClaimLeft, Claim: ClaimID{1}, Paths: a},
		"another's release":        {Who: ash, Kind: gitlog.ClaimReleased, Claim: ClaimID{1}},
		"another's renewal":        {Who: ash, Kind: gitlog.ClaimRenewed, Claim: ClaimID{1}, Until: noon + 9*minute},
		"another's write":          {Who: ash, Kind: gitlog.FileWritten, Claim: ClaimID{1}, Paths: a, Class: Hub, Until: noon + minute},
		"a write elsewhere":        {Who: sam, Kind: gitlog.FileWritten, Claim: ClaimID{1}, Paths: b, Class: Hub, Until: noon + minute},
		"a grant of what is held":  {Who: ash, Kind: gitlog.ClaimAcquired, Claim: ClaimID{3}, Paths: a, Class: File, Until: noon + 9*minute},
		"a grant with a used id":   {Who: ash, Kind: gitlog.ClaimAcquired, Claim: ClaimID{1}, Paths: []Path{pathOf("c")}, Class: File, Until: noon + 9*minute},
		"a grant of nothing":       {Who: ash, Kind: gitlog.ClaimAcquired, Claim: ClaimID{3}, Class: File, Until: noon + 9*minute},
		"a grant that is over":     {Who: ash, Kind: gitlog.ClaimAcquired, Claim: ClaimID{3}, Paths: []Path{pathOf("c")}, Class: File, Until: noon},
		"a hook's renewal of hubs": {Who: sam, Kind: gitlog.ClaimRenewed, Claim: ClaimID{2}, Until: noon + 9*minute},
	} {
		s := samHolds(t)
		before := s.Claims(Token{}, noon)
		next(s, e)
		after := s.Claims(Token{}, noon)
		same := len(before) == len(after)
		for i := range before {
			same = same && before[i].Claim == after[i].Claim && before[i].Until == after[i].Until && before[i].Branch == after[i].Branch &&
				before[i].Class == after[i].Class && before[i].Written == after[i].Written
		}
		if !same {
			t.Errorf("%s:\n%+v\n%+v", name, before, after)
		}
		if waits := s.Waiting(a[0], noon); len(waits) > 0 {
			t.Errorf("%s: %+v", name, waits)
		}
	}
}

// A late end takes the session out at once, and what it held at the end of its lease.
func TestLateEndOfASession(t *testing.T) {
	t.Parallel()
	s := samHolds(t)
	next(s, Event{Who: sam, Late: true, Kind: gitlog.SessionEnded})
	if _, there := s.Session(sam.Session, noon); there || len(s.Sessions(noon)) > 0 {
		t.Error("the session is there")
	}
	if again := Restore(s.Snapshot()); !again.Equal(s.View) {
		t.Error("a snapshot forgets that it ended")
	}
	s.Tick(noon + Lease)
	if len(s.sessions) > 0 {
		t.Error("the session is remembered after its claims")
	}
}

func TestNobodyDecidesForAnother(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]Request{
		"release": Release{ash, []ClaimID{{1}}, Released},
		"renew":   Renew{Who: ash, Claims: []ClaimID{{1}}},
		"clean":   Clean{ash, []ClaimID{{9}}},
		"declare": Declare{Event{Who: ash, Kind: gitlog.ClaimAcquired, Claim: ClaimID{7}, Paths: []Path{pathOf("c")}, Class: File, Until: noon + Lease}},
		"claim":   Claim{Who: ash, Wants: []Want{want("c", 1)}},
		"nobody":  Claim{Wants: []Want{want("c", 7)}},
	} {
		s := samHolds(t)
		s.Do(Leave{Who: sam, Wants: []Want{want("c", 9)}}, noon)
		if events, _, _ := s.Do(r, noon); len(events) > 0 {
			t.Errorf("%s: %+v", name, events)
		}
	}
	s := samHolds(t)
	s.Do(Leave{Who: sam, Wants: []Want{want("c", 9)}}, noon)
	s.Do(Leave{Who: ash, Wants: []Want{want("d", 9)}}, noon)
	if left := s.Lefts(ash, pathOf("c"), noon); len(left) != 1 {
		t.Errorf("another took the place of what sam left: %+v", left)
	}
}

func TestWritesSinceAPosition(t *testing.T) {
	t.Parallel()
	s := samHolds(t)
	s.Do(Write{Who: sam, Wants: []Want{want("a", 4)}}, noon+1)
	position := s.Position()
	s.Do(Write{Who: sam, Wants: []Want{want("b", 5)}}, noon+2)
	for name, got := range map[string][]Written{
		"all":         s.Writes(ash.Session, position, noon),
		"named":       s.Writes(ash.Session, position, noon, pathOf("a"), pathOf("b"), pathOf("b")),
		"in a replay": Restore(s.Snapshot()).Writes(ash.Session, position, noon),
	} {
		if len(got) != 1 || got[0].Path.Own != pathOf("b").Own || !got[0].Gated {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := s.Writes(sam.Session, Order{}, noon); len(got) > 0 {
		t.Errorf("its own: %+v", got)
	}
}

// The last intent counts; a withdrawn plan is none; a session shows where it stands now.
func TestSessions(t *testing.T) {
	t.Parallel()
	s := &Sequencer{View: New(), Term: 1}
	for _, e := range []Event{
		{Who: sam, Kind: gitlog.SessionStarted, Detail: []byte("who")}, {Who: sam, Kind: gitlog.IntentDeclared, Detail: []byte("one")},
		{Who: sam, Kind: gitlog.IntentDeclared, Detail: []byte("two")}, {Who: sam, Kind: gitlog.PlanDeclared, Detail: []byte("plan")},
	} {
		s.Do(Declare{e}, noon)
	}
	x, there := s.Session(sam.Session, noon+StaleAfter-1)
	if !there || string(x.Detail) != "who" || string(x.Intent) != "two" || x.Intended != noon || string(x.Plan) != "plan" || x.Started != noon {
		t.Errorf("%+v", x)
	}
	if _, there = s.Session(sam.Session, noon+StaleAfter); there {
		t.Error("it lives for 12 hours")
	}
	moved := sam
	moved.Branch = tok("dev")
	s.Do(Declare{Event{Who: sam, Kind: gitlog.PlanDeclared}}, noon+1)
	s.Do(Move{moved}, noon+2)
	next(s, Event{Who: sam, Late: true, Kind: gitlog.SessionStarted})
	if x, _ = s.Session(sam.Session, noon+2); x.Plan != nil || x.Branch != moved.Branch || x.Seen != noon+2 || x.Started != noon {
		t.Errorf("%+v", x)
	}
}

// What a session did while the sequencer could not be told is recorded when it is told, and changes no claim.
func TestWhatIsToldLate(t *testing.T) {
	t.Parallel()
	crossing := Write{Who: ash, Wants: []Want{want("a", 8)}, Late: true, Crosses: sam.Session}
	for name, c := range map[string]struct {
		request Request
		kind    gitlog.EntryKind
		other   Token
	}{
		"the holder's write":     {Write{Who: sam, Wants: []Want{want("a", 1)}, Late: true}, gitlog.FileWritten, Token{}},
		"another's write":        {Write{Who: ash, Wants: []Want{want("a", 8)}, Late: true}, gitlog.FileWritten, Token{}},
		"one that crosses":       {crossing, gitlog.UngatedWrite, sam.Session},
		"a person's write":       {Write{Who: Who{Session: ash.Session, Person: true, Branch: ash.Branch, Worktree: ash.Worktree}, Wants: []Want{want("f", 8)}, Late: true}, gitlog.FileWritten, Token{}},
		"a file that it left":    {Leave{Who: sam, Wants: []Want{want("a", 1)}, Late: true}, gitlog.ClaimLeft, Token{}},
		"the end of the session": {End{Who: sam, Reason: EndOfLife, Late: true}, gitlog.SessionEnded, Token{}},
		"the start of a session": {Declare{Event{Who: ash, Kind: gitlog.SessionStarted, Late: true}}, gitlog.SessionStarted, Token{}},
	} {
		s := samHolds(t)
		before := s.Claims(Token{}, noon)
		events, _, _ := s.Do(c.request, noon+minute)
		if len(events) != 1 || !events[0].Late || events[0].Kind != c.kind || events[0].Other != c.other || events[0].Claim != (ClaimID{}) && c.kind != gitlog.ClaimLeft {
			t.Errorf("%s: %+v", name, events)
		}
		if after := s.Claims(Token{}, noon+minute); !reflect.DeepEqual(before, after) {
			t.Errorf("%s: claims were %+v, and are %+v", name, before, after)
		}
	}
	s := samHolds(t)
	s.Do(crossing, noon)
	if w := s.Writes(sam.Session, Order{}, noon, pathOf("a")); len(w) != 1 || w[0].Session != ash.Session || w[0].Gated {
		t.Errorf("the late write is recorded as %+v", w)
	}
}

func TestALateGrantSaysSo(t *testing.T) {
	t.Parallel()
	s := &Sequencer{View: New(), Term: 1}
	if events, _, _ := s.Do(Claim{Who: sam, Wants: []Want{want("a", 1)}, Late: true}, noon); len(events) != 1 || !events[0].Late {
		t.Errorf("%+v", events)
	}
}

func TestOrderOfTerms(t *testing.T) {
	t.Parallel()
	s := samHolds(t)
	s.Term = 9
	s.Do(Stop{Who: sam}, noon)
	if p := s.Position(); p != (Order{9, 2}) {
		t.Errorf("%+v", p)
	}
	s.Term = 4
	s.Do(Declare{Event{Who: sam, Kind: gitlog.Message}}, noon)
	if p := s.Position(); p != (Order{9, 3}) {
		t.Errorf("a lower term: %+v", p)
	}
}
