package daemon

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/arbiter/relay"
	"knoot.dev/knoot/arbiter/wire"
	"knoot.dev/knoot/gitlog"
)

// openings are the sizes of the snapshots with which a machine's daemons, one after the other, began at the relay.
func (m *machine) openings() (sizes []string) {
	m.t.Helper()
	text, err := os.ReadFile(filepath.Join(m.loc.Home, "knootd.log"))
	if err != nil {
		m.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "the repository is open at the relay") {
			_, size, _ := strings.Cut(strings.TrimSpace(line), "snapshot=")
			sizes = append(sizes, size)
		}
	}
	return sizes
}

// runs starts a machine's daemon as a process of its own.
func (r *repository) runs(t *testing.T) *process {
	t.Helper()
	p := r.m.startProcess("1.0.0", "KNOOT_HOME="+r.m.vars["KNOOT_HOME"])
	if line := p.says(t); line != "listening" {
		t.Fatal(line)
	}
	r.isOpen()
	return p
}

// kill ends a daemon's process at once.
func (p *process) kill(t *testing.T) {
	t.Helper()
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for range p.lines {
	}
}

// awaitHolds waits until a machine says that this is held, by its own sessions and by others.
func (r *repository) awaitHolds(want ...string) {
	r.m.t.Helper()
	var got []string
	defer func() {
		if r.m.t.Failed() {
			r.m.t.Logf("%s: held are %q", filepath.Base(r.root), got)
		}
	}()
	awaitTrue(r.m.t, strings.Join(want, ", "), func() bool {
		got = r.holds()
		return slices.Equal(got, want)
	})
}

func TestADaemonThatWasKilledGoesOnFromItsPosition(t *testing.T) {
	h := newRelayHost(t)
	c := newStillCrew(t, h.address, h.pin)
	c.ash.runs(t)
	p := c.sam.runs(t)
	one, two := begin(c.ash, "one"), begin(c.sam, "two")
	one.edit("src/a.js")
	two.edit("src/b.js")
	c.sam.awaitHolds("one src/a.js", "two src/b.js")
	c.ash.awaitHolds("one src/a.js", "two src/b.js")
	p.kill(t)
	one.edit("src/c.js")
	c.sam.runs(t)
	c.sam.awaitHolds("one src/a.js", "one src/c.js", "two src/b.js")
	refuses(t, two, "src/c.js", "ash's agent")
	if denied := two.edit("src/b.js"); denied != "" {
		t.Errorf("its own claim: %q", denied)
	}
	refuses(t, one, "src/b.js", "sam's agent")
	sizes := c.sam.m.openings()
	if len(sizes) != 2 || sizes[0] == "0" || sizes[1] != "0" {
		t.Errorf("the daemon began with snapshots of %q bytes: want some, then none", sizes)
	}
}

// loseState deletes all that the relay has but its key.
func (h *relayHost) loseState() {
	h.t.Helper()
	entries, err := os.ReadDir(h.state)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, e := range entries {
		if path := filepath.Join(h.state, e.Name()); path != relay.KeyPath(h.state, "") {
			if err := os.RemoveAll(path); err != nil {
				h.t.Fatal(err)
			}
		}
	}
}

// granted waits until so many claims of a machine have a grant. The relay signs what has lived five seconds.
func (r *relayRepository) granted(t *testing.T, n int) {
	t.Helper()
	awaitTrue(t, "grants", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.grants) == n
	})
}

func TestARelayThatLostItsStateGrantsWhatIsShown(t *testing.T) {
	h := newRelayHost(t)
	c := newCrew(t, h.address, h.pin)
	one, two := begin(c.ash, "one"), begin(c.sam, "two")
	c.connected()
	one.edit("src/a.js")
	c.a.clones.all()[0].relay.granted(t, 1)
	// The daemon that has the grant ends, and the next one shows it.
	c.ash.m.stop(c.a)
	two.edit("src/b.js") // too young for a grant
	knows(t, c.s, 1)
	h.stop()
	h.loseState()
	h.start()
	c.a = c.ash.m.start(Options{})
	c.ash.isOpen()
	c.connected()
	knows(t, c.s, 1)
	refuses(t, two, "src/a.js", "ash's agent")
	// Grace is no denial, neither of the claim that is asked for again nor of a new one.
	wantHolds(t, c.sam, c.s, "one src/a.js", "two src/b.js")
	for _, path := range []string{"src/b.js", "src/c.js"} {
		if denied := one.edit(path); denied != "" {
			t.Errorf("%s in grace: %q", path, denied)
		}
	}
	three := begin(c.ash, "three")
	refuses(t, three, "src/c.js", "src/c.js")
	// When the grace is over, what came without a grant is asked for again.
	r := c.s.clones.all()[0].relay
	r.mu.Lock()
	r.grace = time.Now()
	r.mu.Unlock()
	r.tick()
	awaitTrue(t, "asked again, and answered that there is more of it", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.grace.After(time.Now())
	})
}

func TestWhatIsKeptOfARelay(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state", "relay-1")
	open := func() (*relayState, *keptRelay, error) {
		s := &relayState{path: path, seal: [32]byte{1}, failed: func(err error) { t.Error(err) }}
		k, err := s.open()
		t.Cleanup(s.end)
		return s, k, err
	}
	who := arbiter.Who{Session: arbiter.Token{1}, Branch: arbiter.Token{2}, Worktree: arbiter.Token{3}}
	seq := &arbiter.Sequencer{View: arbiter.New(), Term: 7}
	claim := func(id byte) (encoded [][]byte) {
		events, _, _ := seq.Do(arbiter.Claim{Who: who, Wants: []arbiter.Want{{ID: arbiter.ClaimID{id}, Path: arbiter.Path{Own: arbiter.Token{id}}}}}, 1_000)
		for i := range events {
			encoded = append(encoded, wire.EncodeEvent(&events[i]))
		}
		return encoded
	}
	s, k, err := open()
	if err != nil || k.view.Position() != (arbiter.Order{}) {
		t.Fatalf("a new one has %v, %v", k.view.Position(), err)
	}
	if !s.follows([16]byte{9}) {
		t.Error("the first relay is another one")
	}
	claim(1)
	snapshot := seq.Snapshot()
	s.append(snapshotRecords(wire.EncodeSnapshot(&snapshot))...)
	s.append(&relayRecord{Events: claim(2), Now: 1_000, At: 2_000, Counters: []liveCounter{{who.Session[:], 5}}},
		&relayRecord{Grants: []relayGrant{{(&arbiter.ClaimID{1})[:], []byte("one")}, {(&arbiter.ClaimID{2})[:], []byte("two")}}},
		&relayRecord{Ended: [][]byte{(&arbiter.ClaimID{1})[:]}})
	s.end()

	s, k, err = open()
	if err != nil || !k.view.Equal(seq.View) || k.now != 1_000 || k.at != 2_000 || k.counters.Last(gitlog.Token(who.Session)) != 5 ||
		len(k.grants) != 1 || string(k.grants[arbiter.ClaimID{2}]) != "two" {
		t.Errorf("read %+v %v", k, err)
	}
	if !s.follows([16]byte{9}) {
		t.Error("the same relay is another one")
	}
	// What was kept of one relay means nothing to another.
	if s.follows([16]byte{8}) {
		t.Error("another relay is the same")
	}
	s.end()
	if s, k, err = open(); err != nil || k.view.Position() != (arbiter.Order{}) || len(k.grants) != 0 {
		t.Errorf("of another relay %+v %v", k, err)
	}
	// With a hole in it nothing is believed.
	s.append(&relayRecord{Events: claim(3)})
	size := s.file.size
	s.append(&relayRecord{Events: claim(4)})
	s.end()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text[size-1] ^= 1
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, k, err = open(); err == nil || k.view.Position() != (arbiter.Order{}) {
		t.Errorf("with a hole: %v %v", k.view.Position(), err)
	}
}
