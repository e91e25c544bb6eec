package relay

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/arbiter/wire"
	"knoot.dev/knoot/gitlog"
)

// granted lets a claim live for so long that it is signed, and returns what its device is sent.
func (b *bench) granted(m machine, l *listener) []*wire.GrantIssued {
	b.t.Helper()
	b.pass(time.Duration(grantAfter) * time.Millisecond)
	if err := b.core.tick(); err != nil {
		b.t.Fatal(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	issued := l.issued
	l.issued = nil
	return issued
}

func (b *bench) listen(m machine) *listener {
	b.t.Helper()
	l := &listener{device: m.id, wake: make(chan struct{}, 1)}
	if _, fault := b.repository().open(arbiter.Order{}, l); fault != nil {
		b.t.Fatal(fault)
	}
	return l
}

func (b *bench) ask(m machine, c *wire.Claim) *wire.Answer {
	b.t.Helper()
	answer, fault := b.repository().claim(c, m.by())
	if fault != nil {
		b.t.Fatal(fault)
	}
	return answer
}

// A claim that lives over five seconds is signed, for its device alone, and again when its lease has moved on.
func TestGrantsAreSigned(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	mine, others := b.listen(one), b.listen(two)
	kept, short := drawClaim(), drawClaim()
	position := b.ask(one, one.claim("s", "kept", kept)).Position
	b.ask(one, one.claim("s", "short", short))
	if _, fault := b.repository().release(one.release("s", short), one.by()); fault != nil {
		t.Fatal(fault)
	}
	issued := b.granted(one, mine)
	if len(issued) != 1 || issued[0].Claim != kept {
		t.Fatalf("%d grants", len(issued))
	}
	g, err := gitlog.ReadGrant(issued[0].Grant, b.key.public)
	if err != nil {
		t.Fatal(err)
	}
	want := gitlog.Grant{
		Team: benchKey.team, Repository: benchKey.id, Claim: kept, Device: one.id, Session: gitlog.Token(one.who("s").Session),
		Path: gitlog.Token(path("kept").Own), Branch: gitlog.Token(token("main")), Worktree: gitlog.Token(one.who("s").Worktree),
		Class: uint64(arbiter.File), Term: position.Term, Seq: position.Seq, Until: 1_700_000_000_000 + arbiter.Lease,
	}
	if *g != want {
		t.Errorf("the grant says\n%+v, want\n%+v", *g, want)
	}
	if len(others.issued) != 0 {
		t.Error("another device has it too")
	}
	renew := func() {
		if _, fault := b.repository().appendActs(&wire.Append{Acts: []arbiter.Request{arbiter.Renew{Who: one.who("s")}}}, one.by()); fault != nil {
			t.Fatal(fault)
		}
	}
	renew()
	if again := b.granted(one, mine); len(again) != 0 {
		t.Errorf("signed again after five seconds: %d", len(again))
	}
	b.pass(5 * time.Minute)
	renew()
	again := b.granted(one, mine)
	if len(again) != 1 {
		t.Fatalf("renewed at half its life it is signed %d times", len(again))
	}
	if g, err := gitlog.ReadGrant(again[0].Grant, b.key.public); err != nil || g.Until <= want.Until {
		t.Errorf("for no longer than before: %v (%v)", g, err)
	}
}

// After the state was lost, with the key kept: what was granted is granted again, the later grant wins, everything else
// waits for the grace to end, and then all is as ever.
func TestGrace(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ones, twos := b.listen(one), b.listen(two)
	first := drawClaim()
	b.ask(one, one.claim("s", "contested", first))
	grants := map[arbiter.ClaimID][]byte{}
	for _, g := range b.granted(one, ones) {
		grants[g.Claim] = g.Grant
	}
	if _, fault := b.repository().release(one.release("s", first), one.by()); fault != nil {
		t.Fatal(fault)
	}
	second, other, rekeyed := drawClaim(), drawClaim(), drawClaim()
	b.ask(two, two.claim("t", "contested", second))
	b.ask(one, one.claim("s", "other", other))
	b.ask(one, one.claim("s", "rekeyed", rekeyed))
	for _, g := range append(b.granted(two, twos), func() []*wire.GrantIssued { return b.granted(one, ones) }()...) {
		grants[g.Claim] = g.Grant
	}
	before := b.repository().seq.Position()
	b.core.close()
	if err := os.RemoveAll(b.state); err != nil {
		t.Fatal(err)
	}
	if err := b.open(false); err != nil {
		t.Fatal(err)
	}
	ask := func(m machine, session, name string, id arbiter.ClaimID, grant []byte) (*wire.Answer, *wire.Fault) {
		c := m.claim(session, name, id)
		c.Late = true
		if grant != nil {
			c.Grants = [][]byte{grant}
		}
		return b.repository().claim(c, m.by())
	}
	l := b.listen(one)
	if o, fault := b.repository().open(before, l); fault != nil || o.grace == 0 || o.snapshot == nil {
		t.Errorf("who comes back is told %+v (%v)", o, fault)
	}
	if term := b.repository().seq.Term; term <= before.Term {
		t.Errorf("term %d after %d", term, before.Term)
	}
	if _, fault := ask(one, "s", "new", drawClaim(), nil); fault == nil || fault.Code != wire.Grace || fault.After == 0 || fault.After > arbiter.Lease {
		t.Errorf("a claim without a grant: %+v", fault)
	}
	for what, c := range map[string]struct {
		m             machine
		session, name string
		id            arbiter.ClaimID
	}{
		"another claim's":   {one, "s", "other", drawClaim()},
		"another path's":    {one, "s", "new", other},
		"another device's":  {two, "s", "other", other},
		"another session's": {one, "t", "other", other},
	} {
		if _, fault := ask(c.m, c.session, c.name, c.id, grants[other]); fault == nil || fault.Code != wire.Grace {
			t.Errorf("%s grant: %+v", what, fault)
		}
	}
	if _, fault := ask(one, "s", "other", other, append([]byte{}, grants[other][:len(grants[other])-1]...)); fault == nil {
		t.Error("half a grant is taken for one")
	}
	if answer, fault := ask(one, "s", "other", other, grants[other]); fault != nil || answer.Outcome != wire.Granted {
		t.Errorf("with its grant: %+v, %v", answer, fault)
	}
	renewed := one.claim("s", "rekeyed by a new epoch", rekeyed)
	was := one.claim("s", "rekeyed", rekeyed)
	renewed.Late, renewed.Grants = true, [][]byte{grants[rekeyed]}
	renewed.Wants[0].Path.Was, renewed.WasBranch, renewed.WasWorktree = &was.Wants[0].Path, renewed.Branch, renewed.Worktree
	renewed.Branch, renewed.Worktree = arbiter.Token{0xb1}, arbiter.Token{0xb2}
	if answer, fault := b.repository().claim(renewed, one.by()); fault != nil || answer.Outcome != wire.Granted {
		t.Errorf("with a grant from before a new epoch: %+v, %v", answer, fault)
	}
	// The older of two grants for one path comes first, and gives way.
	if answer, fault := ask(one, "s", "contested", first, grants[first]); fault != nil || answer.Outcome != wire.Granted {
		t.Errorf("the older grant, first: %+v, %v", answer, fault)
	}
	if answer, fault := ask(two, "t", "contested", second, grants[second]); fault != nil || answer.Outcome != wire.Granted {
		t.Errorf("the later grant: %+v, %v", answer, fault)
	}
	if answer, fault := ask(one, "s", "contested", first, grants[first]); fault != nil || answer.Outcome != wire.Lost || len(answer.Lost) != 1 {
		t.Errorf("the older grant, again: %+v, %v", answer, fault)
	}
	// A restart in the middle does not end it.
	b.reopen()
	if b.core.graceLeft(b.core.clock.now()) == 0 {
		t.Error("a restart ends the grace")
	}
	b.pass(time.Duration(arbiter.Lease+1) * time.Millisecond)
	if err := b.core.tick(); err != nil {
		t.Fatal(err)
	}
	if answer, fault := ask(one, "s", "new", drawClaim(), nil); fault != nil || answer.Outcome != wire.Granted {
		t.Errorf("after the grace: %+v, %v", answer, fault)
	}
	if _, err := os.Stat(filepath.Join(b.state, bornName)); err != nil {
		t.Errorf("after the grace: %v", err)
	}
	b.reopen()
	if b.core.graceLeft(b.core.clock.now()) != 0 {
		t.Error("with its state a relay begins in grace")
	}
}

// What time brings comes without anybody asking: a lease that runs out frees the path for who waits.
func TestTimeFreesPaths(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.ask(one, one.claim("s", "file", drawClaim()))
	if got := b.ask(two, two.claim("t", "file", drawClaim())); got.Outcome != wire.Denied {
		t.Fatalf("%+v", got)
	}
	b.pass(time.Duration(arbiter.Lease) * time.Millisecond)
	if err := b.core.tick(); err != nil {
		t.Fatal(err)
	}
	if err := b.repository().hold(func(gitlog.Millis) *batch { return nil }); err != nil {
		t.Fatal(err)
	}
	var kinds []gitlog.EntryKind
	for _, e := range tailEvents(t, b.repository(), 0) {
		kinds = append(kinds, e.Kind)
	}
	if n := len(kinds); n < 2 || kinds[n-2] != gitlog.ClaimReleased || kinds[n-1] != gitlog.PathFreed {
		t.Errorf("the events are %v", kinds)
	}
}

// What is sequenced while a file is begun is in the order of its repository, once.
func TestFilesBegunUnderLoad(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.limits.LogFile = 1
	b.reopen()
	var work sync.WaitGroup
	for i := range 8 {
		work.Go(func() {
			m := machine{gitlog.DeviceID{byte(i + 1)}}
			for range 40 {
				if _, fault := b.repository().claim(m.claim("s", "file", drawClaim()), m.by()); fault != nil {
					t.Error(fault)
				}
				if _, fault := b.repository().appendActs(&wire.Append{Acts: []arbiter.Request{arbiter.Stop{Who: m.who("s")}}}, m.by()); fault != nil {
					t.Error(fault)
				}
			}
		})
	}
	work.Wait()
	events := tailEvents(t, b.repository(), 0)
	for i := 1; i < len(events); i++ {
		if was, is := events[i-1].Order, events[i].Order; is.Seq != was.Seq+1 {
			t.Fatalf("%v after %v", is, was)
		}
	}
	want := b.repository().seq.Snapshot()
	b.reopen()
	again := b.repository().seq.Snapshot()
	if !arbiter.Restore(want).Equal(arbiter.Restore(again)) {
		t.Error("the disk holds another state")
	}
}

// However a claim ends, nothing of it is kept beside the View: with its device, by a release, or as what was left.
func TestNothingIsKeptOfEndedClaims(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.repository()
	kept := func(when string, want int) {
		t.Helper()
		if len(r.granted) != want || len(r.shown) != want || r.claims[one.id] != want {
			t.Errorf("%s %d grants are kept, %d that were shown, and %d claims counted; want %d of each", when, len(r.granted), len(r.shown), r.claims[one.id], want)
		}
	}
	take := func(name string) arbiter.ClaimID {
		id := drawClaim()
		b.ask(one, one.claim("s", name, id))
		r.shown[id] = r.seq.Position()
		return id
	}
	do := func(act arbiter.Request) {
		t.Helper()
		if _, fault := r.appendActs(&wire.Append{Acts: []arbiter.Request{act}}, one.by()); fault != nil {
			t.Fatal(fault)
		}
	}
	leave := func(name string, id arbiter.ClaimID) {
		do(arbiter.Leave{Who: one.who("s"), Wants: []arbiter.Want{{ID: id, Path: path(name), Class: arbiter.File}}})
	}
	first, second := take("a"), take("b")
	kept("while they live", 2)
	leave("a", first)
	kept("once one is what was left", 1)
	do(arbiter.Clean{Who: one.who("s"), Claims: []arbiter.ClaimID{first}})
	kept("once that is clean", 1)
	never := drawClaim()
	leave("c", never)
	do(arbiter.Clean{Who: one.who("s"), Claims: []arbiter.ClaimID{never}})
	kept("once what was no claim is left and clean", 1)
	if _, fault := r.release(one.release("s", second), one.by()); fault != nil {
		t.Fatal(fault)
	}
	kept("once it is released", 0)
	take("d")
	take("e")
	kept("with two more", 2)
	if err := r.rosterChanged([]gitlog.DeviceID{two.id}); err != nil {
		t.Fatal(err)
	}
	kept("once another device is removed", 2)
	if err := r.rosterChanged([]gitlog.DeviceID{one.id}); err != nil {
		t.Fatal(err)
	}
	kept("once the device is removed", 0)
}
