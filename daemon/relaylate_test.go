package daemon

import (
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/arbiter/wire"
	"knoot.dev/knoot/gitlog"
)

// slowWay is a way to a relay, by TCP, on which the relay's answers can be held back.
type slowWay struct {
	address string

	mu    sync.Mutex
	held  *sync.Cond
	hold  map[int]bool // by connection, from 0
	conns []net.Conn
}

func newSlowWay(t *testing.T, to string) *slowWay {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &slowWay{address: listener.Addr().String(), hold: map[int]bool{}}
	w.held = sync.NewCond(&w.mu)
	var work sync.WaitGroup
	work.Go(func() {
		for n := 0; ; n++ {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				_ = client.Close()
				continue
			}
			w.mu.Lock()
			w.conns = append(w.conns, client, server)
			w.mu.Unlock()
			work.Go(func() {
				_, _ = io.Copy(server, client)
				_ = server.Close()
			})
			work.Go(func() {
				defer client.Close()
				buffer := make([]byte, 64<<10)
				for {
					got, err := server.Read(buffer)
					w.mu.Lock()
					for w.hold[n] {
						w.held.Wait()
					}
					w.mu.Unlock()
					if err != nil {
						return
					}
					if _, err := client.Write(buffer[:got]); err != nil {
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		w.answers(0, true)
		w.answers(1, true)
		w.mu.Lock()
		for _, conn := range w.conns {
			_ = conn.Close()
		}
		w.mu.Unlock()
		work.Wait()
	})
	return w
}

// answers says whether what the relay answers on a connection comes through.
func (w *slowWay) answers(conn int, yes bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hold[conn] = !yes
	w.held.Broadcast()
}

// A relay's word that comes after the 150 ms counts: a grant is kept, and with a denial both sides hear of a write without a claim,
// and the next one is denied.
func TestAnAnswerThatComesLate(t *testing.T) {
	h := newRelayHost(t)
	way := newSlowWay(t, h.address)
	c := newStillCrew(t, way.address, h.pin)
	c.a = c.ash.m.start(Options{})
	c.ash.isOpen()
	awaitTrue(t, "the first is there", func() bool { return c.a.clones.all()[0].relay.open() != nil })
	c.s = c.sam.m.start(Options{})
	c.sam.isOpen()
	c.connected()
	one, two := begin(c.ash, "one"), begin(c.sam, "two")
	s := c.s.clones.all()[0].relay
	awaitTrue(t, "the relay is prompt", func() bool { return s.prompt() && len(c.a.clones.all()[0].relay.standing()) == 1 })

	way.answers(1, false)
	if denied := two.edit("src/kept.js"); denied != "" {
		t.Errorf("while the relay says nothing: %q", denied)
	}
	way.answers(1, true)
	knows(t, c.a, 1)
	wantHolds(t, c.ash, c.a, "two src/kept.js")
	refuses(t, one, "src/kept.js", "sam's agent")

	awaitTrue(t, "the relay is prompt again", func() bool { return s.open() != nil })
	way.answers(1, false)
	if denied := one.edit("src/lost.js"); denied != "" {
		t.Fatalf("the first to write: %q", denied)
	}
	if denied := two.edit("src/lost.js"); denied != "" {
		t.Errorf("while the relay says nothing: %q", denied)
	}
	way.answers(1, true)
	awaitTrue(t, "the claim that was denied late is over", func() bool {
		return !slices.Contains(c.sam.standingClaims(c.s), "two src/lost.js")
	})
	hears(t, one, "src/lost.js", "sam's agent", "without asking")
	hears(t, two, "src/lost.js", "ash's agent", "held")
	refuses(t, two, "src/lost.js", "ash's agent")
}

// heard are the events that a machine has heard from its relay, as it keeps them.
func (r *relayRepository) heard(t *testing.T) (events []arbiter.Event) {
	t.Helper()
	r.mu.Lock()
	path, seal := r.kept.path, r.kept.seal
	r.mu.Unlock()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	scanState(text, &seal, filepath.Base(path), func(record *relayRecord) {
		for _, raw := range record.Events {
			e, err := wire.DecodeEvent(raw)
			if err != nil {
				t.Fatal(err)
			}
			events = append(events, e)
		}
	})
	return events
}

// What happens without the relay is told when it is back, as late. Of files that both changed meanwhile both hear if both still have
// uncommitted changes, else neither.
func TestWhatHappensWithoutTheRelayIsToldLate(t *testing.T) {
	h := newRelayHost(t)
	c := newCrew(t, h.address, h.pin)
	one, two := begin(c.ash, "one"), begin(c.sam, "two")
	c.connected()
	one.edit("src/a.js")
	knows(t, c.s, 1)
	h.stop()
	for _, d := range []*daemon{c.a, c.s} {
		awaitTrue(t, "the relay is gone", func() bool { return d.clones.all()[0].relay.open() == nil })
	}
	a, s := c.a.clones.all()[0].relay, c.s.clones.all()[0].relay
	a.mu.Lock()
	gap := a.view.Position()
	a.mu.Unlock()
	// On one machine a session comes, and one comes and goes.
	three, four := begin(c.sam, "three"), begin(c.sam, "four")
	three.prompt("moving the cart to the new prices")
	three.edit("src/cart.js")
	four.edit("src/gone.js")
	four.hook(eventSessionEnd, nil)
	// On both, two files are changed; on one, the other's change is committed.
	for _, agent := range []*agent{one, two} {
		agent.edit("src/both.js", "src/committed.js")
		agent.stop()
	}
	c.ash.m.git(c.ash.root, "add", "src/committed.js")
	c.ash.m.git(c.ash.root, "commit", "-qm", "done")
	// Another machine's claim is a note by then.
	s.link.heardAt(s.link.heardLast().Add(-heardFor))
	if answer := two.about("src/a.js"); answer.Deny != "" || !strings.Contains(answer.Context, "ash's agent") {
		t.Errorf("by an old word: %q %q", answer.Deny, answer.Context)
	}
	h.start()
	c.connected()

	told := map[*agent]string{}
	hear := func(agent *agent, word string) {
		t.Helper()
		awaitTrue(t, agent.session+" hears of "+word, func() bool {
			told[agent] += agent.read("src/other.js")
			return strings.Contains(told[agent], word)
		})
	}
	hear(one, "src/both.js, at which you are, was written by sam's agent")
	hear(two, "src/both.js, at which you are, was written by ash's agent")
	for _, path := range []string{"src/last-of-sam.js", "src/last-of-ash.js"} { // what comes after has come
		agent, other := two, c.a
		if path == "src/last-of-ash.js" {
			agent, other = one, c.s
		}
		agent.edit(path)
		awaitTrue(t, path, func() bool {
			for _, each := range other.clones.all()[0].relay.standing() {
				if slices.ContainsFunc(each.Claims, func(c StandingClaim) bool { return c.Path == path }) {
					return true
				}
			}
			return false
		})
	}
	for _, agent := range []*agent{one, two} {
		if told[agent] += agent.read("src/other.js"); strings.Contains(told[agent], "src/committed.js, at which you are") {
			t.Errorf("%s hears of what one of both has committed: %q", agent.session, told[agent])
		}
	}

	// How it was told.
	var got map[string][]bool // late, by what
	listen := func() bool {
		got = map[string][]bool{}
		for _, e := range a.heard(t) {
			if e.Order.Compare(gap) <= 0 || e.Device != s.names.device {
				continue
			}
			a.mu.Lock()
			o := a.named(e, relayDetail{})
			a.mu.Unlock()
			what := map[gitlog.EntryKind]string{gitlog.SessionStarted: "started", gitlog.SessionEnded: "ended", gitlog.IntentDeclared: "intent",
				gitlog.FileWritten: "wrote", gitlog.ClaimAcquired: "claimed", gitlog.UngatedWrite: "crossed"}[e.Kind]
			got[o.Key.ID+" "+what+" "+o.Path] = append(got[o.Key.ID+" "+what+" "+o.Path], e.Late)
		}
		return len(got["two wrote src/last-of-sam.js"]) > 0
	}
	awaitTrue(t, "the last that one machine did is heard on the other", listen)
	for what, want := range map[string]string{
		"three started ": "late", "three intent ": "late", "three claimed src/cart.js": "late", "three wrote src/cart.js": "late",
		"four started ": "late", "four wrote src/gone.js": "late", "four ended ": "late",
		"two wrote src/both.js": "late", "two crossed src/both.js": "late",
		"two claimed src/last-of-sam.js": "in time", "two wrote src/last-of-sam.js": "in time",
	} {
		if len(got[what]) == 0 || slices.Contains(got[what], want != "late") {
			t.Errorf("%q is told as late %v, want it %s", what, got[what], want)
		}
	}
	if t.Failed() {
		t.Logf("told was %v", got)
	}
}

// relayOpen says whether a machine's daemon, a process of its own, has its repository open at the relay.
func (r *repository) relayOpen() bool {
	r.m.t.Helper()
	state, err := Status(r.m.t.Context(), r.m.getenv)
	if err != nil {
		r.m.t.Fatal(err)
	}
	return len(state.Clones) == 1 && state.Clones[0].Relay != nil && state.Clones[0].Relay.Open
}

// What happened without the relay is told although the daemon was killed before it could be, once.
func TestWhatHappensWithoutTheRelayOutlivesTheDaemon(t *testing.T) {
	h := newRelayHost(t)
	c := newStillCrew(t, h.address, h.pin)
	c.a = c.ash.m.start(Options{})
	c.ash.isOpen()
	p := c.sam.runs(t)
	a := func() *relayRepository { return c.a.clones.all()[0].relay }
	awaitTrue(t, "both are open", func() bool { return a().prompt() && c.sam.relayOpen() })
	one, two, gone := begin(c.ash, "one"), begin(c.sam, "two"), begin(c.sam, "gone")
	two.edit("src/b.js")
	knows(t, c.a, 1)
	h.stop()
	awaitTrue(t, "the relay is gone", func() bool { return a().open() == nil && !c.sam.relayOpen() })
	a().mu.Lock()
	gap := a().view.Position()
	a().mu.Unlock()
	gone.edit("src/gone.js")
	gone.hook(eventSessionEnd, nil)
	for _, agent := range []*agent{one, two} {
		agent.edit("src/both.js")
		agent.stop()
	}
	p.kill(t)
	c.sam.runs(t)
	h.start()
	awaitTrue(t, "both are open again", func() bool { return a().prompt() && c.sam.relayOpen() })
	hears(t, one, "src/both.js, at which you are, was written by sam's agent")
	hears(t, two, "src/both.js, at which you are, was written by ash's agent")

	// A daemon that begins again has nothing more to tell.
	late := func() (got []string) {
		for _, e := range a().heard(t) {
			if e.Order.Compare(gap) <= 0 || e.Device == a().names.device || !e.Late {
				continue
			}
			a().mu.Lock()
			o := a().named(e, relayDetail{})
			a().mu.Unlock()
			switch e.Kind {
			case gitlog.FileWritten:
				got = append(got, o.Key.ID+" wrote "+o.Path)
			case gitlog.SessionEnded:
				got = append(got, o.Key.ID+" ended")
			}
		}
		slices.Sort(got)
		return got
	}
	want := []string{"gone ended", "gone wrote src/gone.js", "two wrote src/both.js"}
	awaitTrue(t, "what was missed is told", func() bool { return slices.Equal(late(), want) })
	h.stop()
	awaitTrue(t, "the relay is gone once more", func() bool { return a().open() == nil && !c.sam.relayOpen() })
	two.edit("src/later.js")
	h.start()
	awaitTrue(t, "what came then is told", func() bool {
		return slices.Contains(late(), "two wrote src/later.js")
	})
	if got := late(); !slices.Equal(got, append(slices.Clone(want), "two wrote src/later.js")) {
		t.Errorf("told as late are %q", got)
	}
}

// A session that moves to another branch takes its claims along, but those that another machine's session holds there: both hear.
func TestABranchMovedAcrossMachines(t *testing.T) {
	h := newRelayHost(t)
	c := newCrew(t, h.address, h.pin)
	c.sam.m.git(c.sam.root, "checkout", "-q", "-b", "feature")
	one, two := begin(c.ash, "one"), begin(c.sam, "two")
	c.connected()
	for _, agent := range []*agent{one, two} { // on two branches nobody is in the other's way
		if denied := agent.edit("src/both.js"); denied != "" {
			t.Fatalf("%s: %q", agent.session, denied)
		}
	}
	if denied := two.edit("src/alone.js"); denied != "" {
		t.Fatal(denied)
	}
	knows(t, c.a, 2)
	knows(t, c.s, 1)
	c.sam.m.git(c.sam.root, "checkout", "-q", "main")
	hears(t, two, "src/both.js is held by ash's agent on the branch that you moved to")
	hears(t, one, "src/both.js, which you hold, was being changed by sam's agent, who moved to your branch")
	knows(t, c.a, 1)
	wantHolds(t, c.sam, c.s, "one src/both.js", "two src/alone.js")
	refuses(t, one, "src/alone.js", "sam's agent")
}

// What was not told is told again, but for what the relay cannot read: else it would never be open again.
func TestWhatIsToldAgain(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		err  error
		kept int
	}{
		"the connection is lost": {io.ErrUnexpectedEOF, 1},
		"the relay ends":         {&wire.ClosedError{Code: wire.Draining, Remote: true}, 1},
		"it cannot be read":      {&wire.ClosedError{Code: wire.Malformed, Remote: true}, 0},
	} {
		r := &relayRepository{told: make(chan struct{}), more: make(chan struct{}, 1)}
		written := occurrence{Event: arbiter.Event{Kind: gitlog.FileWritten}}
		untold := crossing{arbiter.Token{1}, arbiter.Token{2}, arbiter.Token{3}}
		r.crossed = map[crossing]bool{untold: true, {}: true}
		r.outbox = []relayTold{{happened: &written}, {request: arbiter.Idle{}}, {request: arbiter.Write{Who: arbiter.Who{Session: untold.own},
			Wants: []arbiter.Want{{Path: arbiter.Path{Own: untold.path}}}, Late: true, Crosses: untold.other}}}
		r.shut(c.err)
		if r.crossed[untold] || len(r.crossed) != 1 {
			t.Errorf("%s: the overlaps that are told are %v", what, r.crossed)
		}
		if len(r.missed) != c.kept || len(r.outbox) != 0 {
			t.Errorf("%s: %d events are kept, want %d", what, len(r.missed), c.kept)
		}
	}
}

// However much a machine missed, telling it does not have the repository opened again: what is told then is as much again.
func TestMuchThatWasMissedIsTold(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, maxMissed + 1, maxMissed * 5 / 4, maxRelayOutbox + 1} {
		r := &relayRepository{d: &daemon{log: slog.New(slog.DiscardHandler)}, told: make(chan struct{}), more: make(chan struct{}, 1)}
		for range n {
			r.outbox = append(r.outbox, relayTold{happened: &occurrence{Event: arbiter.Event{Kind: gitlog.FileWritten}}})
		}
		r.shut(io.ErrUnexpectedEOF)
		missed := r.missed
		r.missed = nil
		again := false
		r.reopen = func() { again = true }
		r.tellMissed(missed, nil)
		if again || len(r.outbox) < min(n, maxMissed) {
			t.Errorf("of %d events %d are told, opened again: %v", n, len(r.outbox), again)
		}
	}
}
