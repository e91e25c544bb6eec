package wire

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"pgregory.net/rapid"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/gitlog"
)

// library is an encoder that this package does not use.
var library = func() cbor.EncMode {
	mode, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		panic(err)
	}
	return mode
}()

func libraryEncode(t testing.TB, v any) []byte {
	t.Helper()
	b, err := library.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The drawers below draw any value that a message can hold.

func id16(t *rapid.T, label string) [16]byte {
	b := rapid.SliceOfN(rapid.Byte(), 15, 15).Draw(t, label)
	return [16]byte(append([]byte{1}, b...))
}

func maybe16(t *rapid.T, label string) (id [16]byte) {
	if rapid.Bool().Draw(t, label+"?") {
		return id16(t, label)
	}
	return id
}

func drawToken(t *rapid.T) arbiter.Token { return arbiter.Token(id16(t, "token")) }

func drawWho(t *rapid.T) arbiter.Who {
	return arbiter.Who{
		Session: arbiter.Token(maybe16(t, "session")), Subagent: string(rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "subagent")),
		Device: gitlog.DeviceID(maybe16(t, "device")), Owner: gitlog.MemberID(maybe16(t, "owner")), Person: rapid.Bool().Draw(t, "person"),
		Branch: arbiter.Token(maybe16(t, "branch")), Worktree: arbiter.Token(maybe16(t, "worktree")),
		WasBranch: arbiter.Token(maybe16(t, "was")), WasWorktree: arbiter.Token(maybe16(t, "was")),
	}
}

func drawPath(t *rapid.T) arbiter.Path {
	p := arbiter.Path{Own: drawToken(t), Ancestors: rapid.SliceOfN(rapid.Custom(drawToken), 0, 4).Draw(t, "ancestors")}
	if len(p.Ancestors) == 0 {
		p.Ancestors = nil
	}
	if rapid.Bool().Draw(t, "was") {
		was := arbiter.Path{Own: drawToken(t), Ancestors: []arbiter.Token{drawToken(t)}}
		p.Was = &was
	}
	return p
}

func drawMillis(t *rapid.T) gitlog.Millis {
	return gitlog.Millis(rapid.Uint64Range(0, maxMillis/2).Draw(t, "millis"))
}

func drawSome(t *rapid.T) gitlog.Millis { return drawMillis(t) + 1 }

func drawDetail(t *rapid.T) []byte {
	if b := rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "detail"); len(b) > 0 {
		return b
	}
	return nil
}

func drawOrder(t *rapid.T) arbiter.Order {
	return arbiter.Order{Term: rapid.Uint64().Draw(t, "term"), Seq: rapid.Uint64().Draw(t, "seq")}
}

func drawHead(t *rapid.T) gitlog.RosterHead {
	return gitlog.RosterHead{Seq: rapid.Uint64().Draw(t, "seq"), Hash: gitlog.Digest{rapid.Byte().Draw(t, "hash")}}
}

func drawEvent(t *rapid.T) arbiter.Event {
	e := arbiter.Event{
		Who: drawWho(t), Order: drawOrder(t), Time: drawMillis(t), Late: rapid.Bool().Draw(t, "late"),
		Kind: gitlog.EntryKind(rapid.Uint64Range(1, 60).Draw(t, "kind")), OldBranch: arbiter.Token(maybe16(t, "old")),
		Class: arbiter.Class(rapid.Uint64Range(0, 4).Draw(t, "class")), Claim: arbiter.ClaimID(maybe16(t, "claim")),
		Reason: arbiter.Reason(rapid.Uint64Range(0, 11).Draw(t, "reason")), Other: arbiter.Token(maybe16(t, "other")), Detail: drawDetail(t),
	}
	if rapid.Bool().Draw(t, "paths") {
		e.Paths = []arbiter.Path{drawPath(t)}
	}
	if rapid.Bool().Draw(t, "until") { // before the event's time, too
		e.Until = drawSome(t)
	}
	return e
}

func drawWants(t *rapid.T, least int) []arbiter.Want {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) arbiter.Want {
		w := arbiter.Want{ID: arbiter.ClaimID(maybe16(t, "id")), Path: drawPath(t), Class: arbiter.File, Hub: rapid.Bool().Draw(t, "hub"),
			Removed: rapid.Bool().Draw(t, "removed"), Detail: drawDetail(t)}
		if rapid.Bool().Draw(t, "tree") {
			w.Class = arbiter.Tree
		}
		return w
	}), least, 3).Draw(t, "wants")
}

func drawClaims(t *rapid.T) []arbiter.ClaimID {
	if n := rapid.IntRange(0, 3).Draw(t, "claims"); n > 0 {
		return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) arbiter.ClaimID { return arbiter.ClaimID(id16(t, "claim")) }), n, n).Draw(t, "claims")
	}
	return nil
}

func drawReason(t *rapid.T) arbiter.Reason {
	return arbiter.Reason(rapid.Uint64Range(1, 10).Draw(t, "reason"))
}

func drawAct(t *rapid.T) arbiter.Request {
	who := drawWho(t)
	switch rapid.IntRange(actRenew, actDeclare).Draw(t, "act") {
	case actRenew:
		return arbiter.Renew{Who: who, Claims: drawClaims(t)}
	case actWrite:
		return arbiter.Write{Who: who, Wants: drawWants(t, 1)}
	case actStop:
		return arbiter.Stop{Who: who, Keep: drawClaims(t)}
	case actIdle:
		return arbiter.Idle{Who: who}
	case actLeave:
		return arbiter.Leave{Who: who, Wants: drawWants(t, 1)}
	case actClean:
		return arbiter.Clean{Who: who, Claims: drawClaims(t)}
	case actEnd:
		return arbiter.End{Who: who, Reason: rapid.SampledFrom([]arbiter.Reason{arbiter.EndOfLife, arbiter.ProcessGone}).Draw(t, "reason")}
	case actMove:
		return arbiter.Move{Who: who}
	case actTake:
		return arbiter.Take{Who: who, Wants: drawWants(t, 1)}
	}
	return arbiter.Declare{Event: arbiter.Event{Who: who, Kind: gitlog.Message, Late: rapid.Bool().Draw(t, "late"), Detail: drawDetail(t)}}
}

func drawText(t *rapid.T) string { return rapid.StringN(0, 10, 40).Draw(t, "text") }

var drawers = []func(t *rapid.T) Message{
	func(t *rapid.T) Message {
		return &Hello{Version: rapid.Uint64Min(1).Draw(t, "v"), Software: drawText(t)}
	},
	func(t *rapid.T) Message {
		return &Welcome{Version: 1, Software: drawText(t), Key: [32]byte{rapid.Byte().Draw(t, "key")}, Now: drawMillis(t)}
	},
	func(t *rapid.T) Message {
		return &Open{Team: gitlog.TeamID{1}, Repository: gitlog.RepositoryID{2}, Head: drawHead(t), Position: drawOrder(t), Token: drawText(t)}
	},
	func(t *rapid.T) Message {
		return &Opened{Position: drawOrder(t), Head: drawHead(t), Now: drawMillis(t), Snapshot: rapid.Uint64().Draw(t, "snapshot"), Grace: drawMillis(t)}
	},
	func(t *rapid.T) Message { return &RosterWanted{From: rapid.Uint64().Draw(t, "from")} },
	func(t *rapid.T) Message { return &Roster{Repository: gitlog.RepositoryID{2}, Head: drawHead(t)} },
	func(t *rapid.T) Message {
		size := rapid.Uint64Range(1, MaxRosterEntry).Draw(t, "size")
		return &RosterPart{Last: rapid.Bool().Draw(t, "last"), Pieces: []RosterPiece{{Seq: 7, Size: size, Offset: size - 1, Bytes: []byte{1}}}}
	},
	func(t *rapid.T) Message {
		return &Events{Now: drawMillis(t), Events: rapid.SliceOfN(rapid.Custom(drawEvent), 1, 3).Draw(t, "events")}
	},
	func(t *rapid.T) Message { return &SnapshotPart{Bytes: append([]byte{1}, drawDetail(t)...)} },
	func(t *rapid.T) Message {
		return &GrantIssued{Claim: arbiter.ClaimID(id16(t, "claim")), Grant: []byte{1}}
	},
	func(t *rapid.T) Message { return &Farewell{After: drawMillis(t)} },
	func(t *rapid.T) Message {
		c := &Claim{Repository: gitlog.RepositoryID{1}, Head: drawHead(t), Detail: drawDetail(t)}
		c.Claim = arbiter.Claim{Who: drawWho(t), Wants: drawWants(t, 1), Note: rapid.Bool().Draw(t, "note"), Late: rapid.Bool().Draw(t, "late")}
		if rapid.Bool().Draw(t, "grants") {
			c.Grants = [][]byte{{1, 2}, {3}}
		}
		return c
	},
	func(t *rapid.T) Message {
		return &Release{Repository: gitlog.RepositoryID{1}, Release: arbiter.Release{Who: drawWho(t), Claims: drawClaims(t), Reason: drawReason(t)}}
	},
	func(t *rapid.T) Message {
		return &Append{Repository: gitlog.RepositoryID{1}, Head: drawHead(t), Acts: rapid.SliceOfN(rapid.Custom(drawAct), 1, 4).Draw(t, "acts")}
	},
	func(t *rapid.T) Message {
		a := &Answer{Now: drawMillis(t), Position: drawOrder(t), Outcome: Outcome(rapid.Uint64Range(0, 4).Draw(t, "outcome")), Lost: drawClaims(t)}
		if rapid.Bool().Draw(t, "blocks") {
			a.Blocks = []Block{{Claim: arbiter.ClaimID(maybe16(t, "claim")), Holder: drawWho(t), Left: drawMillis(t), Class: arbiter.Hub, Place: 3, Detail: drawDetail(t)}}
		}
		return a
	},
	func(t *rapid.T) Message { rapid.Bool().Draw(t, "nothing to draw"); return &Ping{} },
	func(t *rapid.T) Message { return &Pong{Now: drawMillis(t)} },
	func(t *rapid.T) Message {
		return &Fault{Code: Code(rapid.Uint64Range(1, 30).Draw(t, "code")), Text: drawText(t), After: drawMillis(t), Head: drawHead(t)}
	},
}

// Every message comes back as it was, in bytes that another encoder would have made.
func TestMessagesComeBack(t *testing.T) {
	t.Parallel()
	kinds := map[uint64]bool{}
	for _, draw := range drawers {
		rapid.Check(t, func(t *rapid.T) {
			m := draw(t)
			kinds[m.kind()] = true
			data := Encode(m)
			back, err := Decode(data)
			if err != nil {
				t.Fatalf("%T: %v", m, err)
			}
			if !reflect.DeepEqual(back, m) {
				t.Fatalf("%T comes back as\n%+v, was\n%+v", m, back, m)
			}
			var generic any
			if err := cbor.Unmarshal(data, &generic); err != nil {
				t.Fatal(err)
			}
			if again, err := library.Marshal(generic); err != nil || !bytes.Equal(again, data) {
				t.Fatalf("%T is not in deterministic encoding: %x, want %x (%v)", m, data, again, err)
			}
		})
	}
	for kind := range decoders {
		if !kinds[kind] {
			t.Errorf("message %d is not drawn", kind)
		}
	}
}

func TestSnapshotsComeBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := &arbiter.Snapshot{Order: drawOrder(t), Time: drawMillis(t)}
		wait := func() arbiter.WaitState {
			return arbiter.WaitState{Wait: arbiter.Wait{Who: drawWho(t), Path: drawPath(t), Class: arbiter.Hub, Since: drawMillis(t), Place: rapid.IntRange(0, 5).Draw(t, "place")},
				Order: drawOrder(t), Passed: rapid.Bool().Draw(t, "passed")}
		}
		for range rapid.IntRange(0, 2).Draw(t, "n") {
			s.Sessions = append(s.Sessions, arbiter.SessionState{Ended: rapid.Bool().Draw(t, "ended"), Session: arbiter.Session{
				Who: drawWho(t), Started: drawMillis(t), Seen: drawMillis(t), Detail: drawDetail(t), Intent: drawDetail(t), Plan: drawDetail(t),
				Intended: drawMillis(t), Planned: drawMillis(t)}})
			s.Claims = append(s.Claims, arbiter.Hold{Who: drawWho(t), Claim: arbiter.ClaimID(maybe16(t, "claim")), Path: drawPath(t), Class: arbiter.Tree,
				Since: drawMillis(t), Until: drawMillis(t), Written: drawMillis(t), Order: drawOrder(t), Detail: drawDetail(t)})
			s.Writes = append(s.Writes, arbiter.WriteState{LastGated: drawMillis(t), Written: arbiter.Written{Who: drawWho(t), Path: drawPath(t), Order: drawOrder(t),
				Time: drawMillis(t), Gated: rapid.Bool().Draw(t, "gated"), Removed: rapid.Bool().Draw(t, "removed"), Detail: drawDetail(t)}})
			s.Left = append(s.Left, arbiter.Left{Who: drawWho(t), Path: drawPath(t), Claim: arbiter.ClaimID(maybe16(t, "claim")), Time: drawMillis(t), Detail: drawDetail(t)})
			s.Waits = append(s.Waits, wait())
			s.Queues = append(s.Queues, arbiter.QueueState{Path: drawToken(t), Branch: arbiter.Token(maybe16(t, "branch")), Until: drawMillis(t), Waits: []arbiter.WaitState{wait()}})
		}
		back, err := DecodeSnapshot(EncodeSnapshot(s))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(back, s) {
			t.Fatalf("comes back as\n%+v, was\n%+v", back, s)
		}
	})
}

func TestEncodedEventsGoIntoMessages(t *testing.T) {
	t.Parallel()
	event := arbiter.Event{Kind: gitlog.Message, Order: arbiter.Order{Term: 1, Seq: 1}, Time: 5, Detail: make([]byte, 20<<10)}
	encoded := EncodeEvent(&event)
	all := [][]byte{encoded, encoded, encoded, encoded}
	message, n := EventsOf(9, all)
	if n != 3 || len(message) > MaxMessage {
		t.Fatalf("%d events in %d bytes", n, len(message))
	}
	m, err := Decode(message)
	if err != nil {
		t.Fatal(err)
	}
	want := &Events{Now: 9, Events: []arbiter.Event{event, event, event}}
	if !reflect.DeepEqual(m, want) || !bytes.Equal(Encode(want), message) {
		t.Error("what is put together is not what would be encoded at once")
	}
	if back, err := DecodeEvent(encoded); err != nil || !reflect.DeepEqual(back, event) {
		t.Errorf("an event alone: %v", err)
	}
}

// A message from the future: keys and acts that this version does not know are passed over, at every depth.
func TestMessagesFromTheFuture(t *testing.T) {
	t.Parallel()
	later := map[uint64]any{1: "x", 40: []any{map[string]any{"why": []any{int64(-3), true}}}}
	id := func(b byte) []byte { return bytes.Repeat([]byte{b}, 16) }
	hash := make([]byte, 32)
	who := map[uint64]any{1: id(1), 50: later}
	want := map[uint64]any{1: id(2), 2: []any{0}, 31: later}
	for name, c := range map[string]struct {
		message any
		want    Message
	}{
		"hello": {[]any{1, map[uint64]any{1: 2, 2: "knoot 9", 3: later, 1 << 40: "x"}}, &Hello{Version: 2, Software: "knoot 9"}},
		"claim": {[]any{11, map[uint64]any{1: id(3), 2: []any{1, hash}, 3: who, 4: id(4), 5: []any{want}, 23: later}},
			&Claim{Repository: gitlog.RepositoryID(id(3)), Head: gitlog.RosterHead{Seq: 1}, Claim: arbiter.Claim{Who: arbiter.Who{Session: arbiter.Token(id(1))},
				Wants: []arbiter.Want{{ID: arbiter.ClaimID(id(2)), Class: arbiter.File, Path: arbiter.Path{Own: arbiter.Token(id(4))}}}}}},
		"an act between two": {[]any{13, map[uint64]any{1: id(3), 2: []any{1, hash}, 3: []any{
			map[uint64]any{1: 4, 2: who}, map[uint64]any{1: 99, 2: who, 3: id(7)}, map[uint64]any{1: 8, 2: who}}}},
			&Append{Repository: gitlog.RepositoryID(id(3)), Head: gitlog.RosterHead{Seq: 1}, Acts: []arbiter.Request{
				arbiter.Idle{Who: arbiter.Who{Session: arbiter.Token(id(1))}}, arbiter.Move{Who: arbiter.Who{Session: arbiter.Token(id(1))}}}}},
		"an event of another kind": {[]any{7, map[uint64]any{1: 1, 2: []any{map[uint64]any{1: 200, 2: []any{1, 1}, 3: 4, 4: who, 14: later}}}},
			&Events{Now: 1, Events: []arbiter.Event{{Kind: 200, Order: arbiter.Order{Term: 1, Seq: 1}, Time: 4, Who: arbiter.Who{Session: arbiter.Token(id(1))}}}}},
		"a fault with another code": {[]any{18, map[uint64]any{1: 999}}, &Fault{Code: 999}},
	} {
		if got, err := Decode(libraryEncode(t, c.message)); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v (%v), want %+v", name, got, err, c.want)
		}
	}
	if _, err := Decode(libraryEncode(t, []any{77, later})); !errors.Is(err, ErrUnknown) {
		t.Errorf("a message of another kind: %v", err)
	}
	if Code(999).String() == "" || Grace.String() != "grace" || len(Codes()) != len(codeNames) {
		t.Error("codes have no names")
	}
}

// Rosters travel in pieces and come out as they were.
func TestRostersInPieces(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		entries := rapid.SliceOfN(rapid.Map(rapid.IntRange(1, MaxRosterEntry), func(n int) []byte { return bytes.Repeat([]byte{byte(n)}, n) }), 0, 6).Draw(t, "entries")
		reader := NewRosterReader(3)
		var got [][]byte
		last := false
		err := SendRoster(func(m Message) error {
			back, err := Decode(Encode(m))
			if err != nil {
				return err
			}
			part := back.(*RosterPart)
			last = part.Last
			whole, err := reader.Take(part)
			got = append(got, whole...)
			return err
		}, 3, uint64(len(entries)), func(seq uint64) ([]byte, error) { return entries[seq-3], nil })
		if err != nil || !last || len(got) != len(entries) {
			t.Fatalf("%d of %d entries, last %v: %v", len(got), len(entries), last, err)
		}
		for i := range got {
			if !bytes.Equal(got[i], entries[i]) {
				t.Fatalf("entry %d is another", i)
			}
		}
	})
	for name, pieces := range map[string][]RosterPiece{
		"another entry":    {{Seq: 4, Size: 1, Bytes: []byte{1}}},
		"a gap in one":     {{Seq: 3, Size: 9, Bytes: []byte{1}}, {Seq: 3, Size: 9, Offset: 2, Bytes: []byte{1}}},
		"cut short":        {{Seq: 3, Size: 9, Bytes: []byte{1}}},
		"the same again":   {{Seq: 3, Size: 1, Bytes: []byte{1}}, {Seq: 3, Size: 1, Bytes: []byte{1}}},
		"another size now": {{Seq: 3, Size: 9, Bytes: []byte{1}}, {Seq: 3, Size: 2, Offset: 1, Bytes: []byte{1}}, {Seq: 3, Size: 2, Offset: 1, Bytes: []byte{1}}},
	} {
		if _, err := NewRosterReader(3).Take(&RosterPart{Pieces: pieces, Last: true}); !errors.Is(err, errPieces) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for i := range drawers {
		f.Add(Encode(rapid.Custom(drawers[i]).Example(i)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Decode(data)
		if err != nil {
			return
		}
		again, err := Decode(Encode(m))
		if err != nil || !reflect.DeepEqual(again, m) {
			t.Errorf("what was read does not come back: %+v, then %+v (%v)", m, again, err)
		}
	})
}

func FuzzDecodeSnapshot(f *testing.F) {
	f.Add(EncodeSnapshot(&arbiter.Snapshot{}))
	f.Add(EncodeSnapshot(&arbiter.Snapshot{Order: arbiter.Order{Term: 1, Seq: 2}, Time: 3, Claims: []arbiter.Hold{{Path: arbiter.Path{Own: arbiter.Token{1}}, Until: 9}}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := DecodeSnapshot(data)
		if err != nil {
			return
		}
		arbiter.Restore(*s) // whatever it holds
		if again, err := DecodeSnapshot(EncodeSnapshot(s)); err != nil || !reflect.DeepEqual(again, s) {
			t.Errorf("what was read does not come back (%v)", err)
		}
	})
}

func FuzzDecodeEvent(f *testing.F) {
	f.Add(EncodeEvent(&arbiter.Event{Kind: gitlog.ClaimAcquired, Order: arbiter.Order{Term: 1, Seq: 1}, Time: 1, Until: 2, Paths: []arbiter.Path{{Own: arbiter.Token{1}}}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := DecodeEvent(data)
		if err != nil {
			return
		}
		arbiter.New().Apply(e)
		if again, err := DecodeEvent(EncodeEvent(&e)); err != nil || !reflect.DeepEqual(again, e) {
			t.Errorf("what was read does not come back (%v)", err)
		}
	})
}

// FuzzFrames feeds bytes to the decoder of TCP's frames, as far as they are one frame's body.
func FuzzFrames(f *testing.F) {
	f.Add(appendFrame(nil, 1, frameData, []byte("x"))[4:])
	f.Add(appendFrame(nil, 0, frameReset, []byte{3, 'x'})[4:])
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) < 2 || len(body) > maxFrame {
			return
		}
		c := &tcpConn{done: make(chan struct{}), streams: map[uint64]*tcpStream{}, next: 2}
		c.changed.L = &c.mu
		_ = c.takeFrame(body)
	})
}

// Nothing but the Who of an act changes, whichever act it is.
func TestWithWhoChangesNothingElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		act, other := drawAct(t), drawWho(t)
		var mine arbiter.Who
		changed := WithWho(act, func(who *arbiter.Who) { mine, *who = *who, other })
		var got arbiter.Who
		back := WithWho(changed, func(who *arbiter.Who) { got, *who = *who, mine })
		if !reflect.DeepEqual(got, other) {
			t.Errorf("the Who is %+v, want %+v", got, other)
		}
		if !reflect.DeepEqual(back, act) {
			t.Errorf("%+v became %+v", act, back)
		}
	})
}
