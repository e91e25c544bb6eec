package relay

import (
	"fmt"
	"testing"
	"time"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/arbiter/wire"
	"knoot.dev/knoot/gitlog"
)

// Sessions that are made up, or anything else, fill a repository up to its limit. Then no more is taken until some of it has
// ended, or nobody has heard of it for long.
func TestWhatGoesOnHasABound(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.limits.StateBytes = 100_000
	const detail = 10_000
	do := func(act arbiter.Request) *wire.Fault {
		_, fault := b.repository().appendActs(&wire.Append{Acts: []arbiter.Request{act}}, one.by())
		return fault
	}
	drawn := 0
	intend := func() *wire.Fault {
		drawn++
		return do(arbiter.Declare{Event: arbiter.Event{Who: one.who(fmt.Sprint("made up ", drawn)), Kind: gitlog.IntentDeclared, Detail: make([]byte, detail)}})
	}
	claim := func() *wire.Fault {
		_, fault := b.repository().claim(two.claim("t", "file", drawClaim()), two.by())
		return fault
	}
	fill := func() {
		t.Helper()
		for range 50 {
			if fault := intend(); fault != nil {
				if fault.Code != wire.TooLarge {
					t.Fatal(fault)
				}
				break
			}
		}
		s := b.repository().seq.Snapshot()
		if n := int64(len(wire.EncodeSnapshot(&s))); n < b.limits.StateBytes-detail || n > b.limits.StateBytes+2*detail {
			t.Fatalf("it is full with %d bytes", n)
		}
	}
	tick := func(d time.Duration) {
		t.Helper()
		b.pass(d)
		if err := b.core.tick(); err != nil {
			t.Fatal(err)
		}
	}
	full := func(when string) {
		t.Helper()
		wants := []arbiter.Want{{ID: drawClaim(), Path: path("file"), Class: arbiter.File}}
		for what, fault := range map[string]*wire.Fault{
			"a claim": claim(), "an intent": intend(), "a write": do(arbiter.Write{Who: one.who("s"), Wants: wants}),
			"what was left": do(arbiter.Leave{Who: one.who("s"), Wants: wants}), "a take": do(arbiter.Take{Who: one.who("s"), Wants: wants}),
		} {
			if fault == nil || fault.Code != wire.TooLarge {
				t.Errorf("%s, %s: %v", what, when, fault)
			}
		}
	}
	fill()
	full("once it is full")
	tick(weighEvery)
	full("once it is weighed")
	b.reopen()
	full("after a restart")
	for i := range 3 {
		if fault := do(arbiter.End{Who: one.who(fmt.Sprint("made up ", i+1)), Reason: arbiter.EndOfLife}); fault != nil {
			t.Fatal(fault)
		}
	}
	tick(weighEvery)
	if fault := claim(); fault != nil {
		t.Errorf("after some have ended: %v", fault)
	}
	tick(weighEvery)
	fill()
	tick(time.Duration(arbiter.StaleAfter) * time.Millisecond)
	if fault := claim(); fault != nil {
		t.Errorf("after nothing was heard for long: %v", fault)
	}
}

// Much that happens is no more than little if it is over: it is weighed before it counts as full.
func TestWhatIsOverWeighsNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.limits.StateBytes = 20_000
	for i := range 300 {
		id := drawClaim()
		if _, fault := b.repository().claim(one.claim("s", "file", id), one.by()); fault != nil {
			t.Fatalf("claim %d: %v", i, fault)
		}
		if _, fault := b.repository().release(one.release("s", id), one.by()); fault != nil {
			t.Fatal(fault)
		}
		b.pass(time.Second)
		if err := b.core.tick(); err != nil {
			t.Fatal(err)
		}
	}
}
