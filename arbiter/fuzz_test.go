package arbiter

import (
	"slices"
	"testing"

	"knoot.dev/knoot/gitlog"
	"pgregory.net/rapid"
)

// bytesOf reads events and requests from any bytes: few different tokens, so that they meet, and any numbers.
type bytesOf struct{ rest []byte }

func (b *bytesOf) next() (x byte) {
	if len(b.rest) > 0 {
		x, b.rest = b.rest[0], b.rest[1:]
	}
	return x
}

func (b *bytesOf) token(n byte) (t Token) {
	t[0] = b.next() % n // 0: absent
	return t
}

func (b *bytesOf) time() gitlog.Millis {
	x := b.next()
	if x == 255 {
		return ^gitlog.Millis(b.next())
	}
	return gitlog.Millis(x) * gitlog.Millis(x) * 1500 // up to 27 hours, dense at the start
}

func (b *bytesOf) who() Who {
	return Who{Session: b.token(5), Device: gitlog.DeviceID(b.token(3)), Owner: gitlog.MemberID(b.token(3)), Person: b.next()%4 == 0,
		Branch: b.token(4), Worktree: b.token(4), WasBranch: b.token(4), WasWorktree: b.token(4)}
}

func (b *bytesOf) path() Path {
	p := Path{Own: b.token(6)}
	for range b.next() % 4 {
		p.Ancestors = append(p.Ancestors, b.token(6))
	}
	if b.next()%4 == 0 {
		p.Was = &Path{Own: b.token(6), Ancestors: []Token{b.token(6)}}
	}
	return p
}

func (b *bytesOf) claim() (id ClaimID) {
	id[0] = b.next() % 16
	return id
}

func (b *bytesOf) event() Event {
	e := Event{Who: b.who(), Order: Order{uint64(b.next() % 3), uint64(b.next())}, Time: b.time(), Late: b.next()%8 == 0,
		Kind: gitlog.SessionStarted + gitlog.EntryKind(b.next()%25), OldBranch: b.token(4), Class: Class(b.next() % 5), Claim: b.claim(),
		Until: b.time(), Reason: Reason(b.next()), Other: b.token(5)}
	for range b.next() % 3 {
		e.Paths = append(e.Paths, b.path())
	}
	return e
}

func (b *bytesOf) request() Request {
	who := b.who()
	var wants []Want
	var ids []ClaimID
	for range b.next() % 4 {
		wants = append(wants, Want{ID: b.claim(), Path: b.path(), Class: Class(b.next() % 5), Hub: b.next()%3 == 0, Removed: b.next()%2 == 0})
		ids = append(ids, b.claim())
	}
	return []Request{Claim{Who: who, Wants: wants, Note: b.next()%4 == 0, Late: b.next()%4 == 0}, Renew{who, ids},
		Write{Who: who, Wants: wants, Late: b.next()%4 == 0, Crosses: b.token(5)},
		Release{who, ids, Reason(b.next() % 12)}, Stop{who, ids}, Idle{who}, Leave{Who: who, Wants: wants, Late: b.next()%4 == 0}, Clean{who, ids},
		End{Who: who, Reason: EndOfLife, Late: b.next()%4 == 0}, Move{who},
		Take{who, wants}, Declare{b.event()}, Roster{Who: who, Removed: []gitlog.DeviceID{who.Device}}, nil}[b.next()%14]
}

// conflict says what two claims of different sessions must never be, by the definition alone.
func conflict(a, b Hold) bool {
	meet := func(x, wasX, y, wasY Token) bool {
		for _, s := range []Token{x, wasX} {
			for _, t := range []Token{y, wasY} {
				if s == t && s != (Token{}) {
					return true
				}
			}
		}
		return false
	}
	tokens := func(p Path) (own, all []Token) {
		own, all = []Token{p.Own}, append([]Token{p.Own}, p.Ancestors...)
		if p.Was != nil && p.Was.Own != (Token{}) && p.Was.Own != p.Own {
			own, all = append(own, p.Was.Own), append(append(all, p.Was.Own), p.Was.Ancestors...)
		}
		return
	}
	ownPerson := a.Owner == b.Owner && a.Owner != (gitlog.MemberID{}) && (a.Person || b.Person)
	if a.Session == b.Session || ownPerson ||
		!meet(a.Branch, a.WasBranch, b.Branch, b.WasBranch) && !meet(a.Worktree, a.WasWorktree, b.Worktree, b.WasWorktree) {
		return false
	}
	ownA, allA := tokens(a.Path)
	ownB, allB := tokens(b.Path)
	in := func(some, list []Token) bool {
		return slices.ContainsFunc(some, func(t Token) bool { return slices.Contains(list, t) })
	}
	return in(ownA, ownB) || a.Class == Tree && in(ownA, allB) || b.Class == Tree && in(ownB, allA)
}

// endure applies whatever the bytes say and asks whatever they ask.
func endure(t interface{ Fatalf(string, ...any) }, data []byte) {
	b := &bytesOf{data}
	v := New()
	s := &Sequencer{View: v, Term: 1}
	last := v.Time()
	for len(b.rest) > 0 {
		var events []Event
		switch b.next() % 4 {
		case 0:
			events, _, _ = s.Do(b.request(), b.time())
		case 1:
			events = s.Tick(b.time())
		default:
			e := b.event()
			if e.Order.Term > 1 { // close behind the last one, or nothing would ever be after it
				e.Order = Order{v.Position().Term, v.Position().Seq + e.Order.Seq%3}
			}
			v.Apply(e)
		}
		if v.Time() < last {
			t.Fatalf("time went back from %d to %d", last, v.Time())
		}
		last = v.Time()
		for _, e := range events {
			if e.Time < last && e.Order == v.Position() {
				t.Fatalf("an event of %d after %d", e.Time, last)
			}
		}
		held := v.Claims(Token{}, 0)
		for i, h := range held {
			if h.Until > after(v.Time(), Lease) {
				t.Fatalf("a lease that ends in %d ms", h.Until-v.Time())
			}
			for _, other := range held[:i] {
				if conflict(h, other) {
					t.Fatalf("both live:\n%+v\n%+v", h, other)
				}
			}
		}
		who, want := b.who(), Want{Path: b.path(), Class: Class(b.next() % 4)}
		now := b.time()
		v.Blocks(who, want, now)
		v.Presence(who, want, now)
		v.Elsewhere(who, want, now)
		v.Holding(who, want, now)
		v.Queue(who, want, now)
		v.Waiting(want.Path, now)
		v.Waits(who.Session, now)
		v.Writes(who.Session, Order{}, now)
		v.Writes(who.Session, Order{}, now, want.Path)
		v.Lefts(who, want.Path, now)
		v.Claim(b.claim(), now)
		v.Claims(who.Session, now)
		v.Sessions(now)
		v.Session(who.Session, now)
		v.DueAt()
	}
	again := Restore(v.Snapshot())
	if !again.Equal(v) {
		t.Fatalf("restored:\n%+v\n%+v", again.Snapshot(), v.Snapshot())
	}
	s.Tick(v.Time())
	(&Sequencer{View: again, Term: 1}).Tick(again.Time())
	if !again.Equal(v) {
		t.Fatalf("restored, then ticked:\n%+v\n%+v", again.Snapshot(), v.Snapshot())
	}
}

func TestNothingPanics(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		endure(t, rapid.SliceOfN(rapid.Byte(), 500, 3000).Draw(t, "bytes"))
	})
}

func FuzzApply(f *testing.F) {
	f.Add([]byte{})
	seed := make([]byte, 600)
	for i := range seed {
		seed[i] = byte(i*i*31 + i*7 + i>>3)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, data []byte) { endure(t, data) })
}
