package daemon

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/gitlog"
)

// hostGone makes the host unreachable, or reachable again.
func (c *crew) hostGone(gone bool) {
	c.t.Helper()
	here := filepath.Join(c.ash.m.vars["HOME"], "host.git")
	from, to := here, here+".away"
	if !gone {
		from, to = to, from
	}
	if err := os.Rename(from, to); err != nil {
		c.t.Fatal(err)
	}
}

// recalled are the names of all that a machine's memory holds, superseded or not.
func recalled(t *testing.T, d *daemon, r *repository) (names []string) {
	t.Helper()
	wt := r.worktreeOf(d)
	found, err := wt.clone.clone.Recall(t.Context(), wt.tree, gitlog.RecallQuery{All: true}, d.now())
	if err != nil {
		t.Fatal(err)
	}
	for _, each := range found {
		names = append(names, each.Name)
	}
	return names
}

// syncs has a machine sync, fetching and pushing.
func syncs(t *testing.T, r *repository) {
	t.Helper()
	if _, sentence := r.order("sync", aPerson, SyncRequest{}, nil); sentence != "" {
		t.Fatal(sentence)
	}
}

// A fact is told on the other machine while no host can be reached, once; the host brings the same segment later, and nothing is
// told again.
func TestAFactReachesOtherMachinesAtOnce(t *testing.T) {
	h := newRelayHost(t)
	c := newCrew(t, h.address, h.pin)
	begin(c.ash, "one")
	two := begin(c.sam, "two")
	c.connected()
	c.hostGone(true)
	c.ash.remember("cents", "all money is integer cents", "src/billing.js")
	told := ""
	awaitTrue(t, "the fact is told", func() bool {
		told += two.read("src/billing.js")
		return strings.Contains(told, "all money is integer cents")
	})
	if !strings.Contains(told, "ash") || !strings.Contains(told, "src/billing.js") {
		t.Errorf("told: %q", told)
	}
	if names := recalled(t, c.s, c.sam); len(names) != 1 {
		t.Errorf("recall has %q", names)
	}
	// A restart of the clone: it is still there, and not told again.
	c.s.clones.close()
	if _, err := c.s.clones.find(t.Context(), c.sam.root); err != nil {
		t.Fatal(err)
	}
	if names := recalled(t, c.s, c.sam); len(names) != 1 {
		t.Errorf("after a restart recall has %q", names)
	}
	if again := two.read("src/billing.js"); again != "" {
		t.Errorf("after a restart it is told again: %q", again)
	}
	c.connected()

	c.hostGone(false)
	syncs(t, c.ash)
	syncs(t, c.sam)
	if again := two.read("src/billing.js") + two.prompt("what about billing in src/billing.js?"); strings.Contains(again, "integer cents") {
		t.Errorf("told again when git had brought it: %q", again)
	}
	if names := recalled(t, c.s, c.sam); len(names) != 1 {
		t.Errorf("from both ways recall has %q", names)
	}
	if three := begin(c.sam, "three").read("src/billing.js"); strings.Count(three, "integer cents") != 1 {
		t.Errorf("a new session is told %q", three)
	}
	// What ends it comes the same way.
	if _, sentence := c.ash.order("forget", aPerson, gitlog.ForgetRequest{Name: "cents"}, nil); sentence != "" {
		t.Fatal(sentence)
	}
	awaitTrue(t, "it is forgotten", func() bool {
		return len(c.sam.worktreeOf(c.s).facts.all(c.s.now())) == 0
	})
}

// What was remembered while the relay was away, or while the daemon was, is told once it is there.
func TestFactsReachARelayThatWasAway(t *testing.T) {
	h := newRelayHost(t)
	c := newCrew(t, h.address, h.pin)
	two := begin(c.sam, "two")
	c.connected()
	c.hostGone(true)
	h.stop()
	awaitTrue(t, "the relay is gone", func() bool { return c.a.clones.all()[0].relay.open() == nil })
	c.ash.remember("cents", "all money is integer cents", "src/billing.js")
	if told := two.read("src/billing.js"); told != "" {
		t.Errorf("told without a way: %q", told)
	}
	h.start()
	c.connected()
	awaitTrue(t, "the fact is told", func() bool { return strings.Contains(two.read("src/billing.js"), "integer cents") })
}

// What is sealed for a state of the team that a machine does not know yet waits for that, and is then told.
func TestWhatIsAheadOfTheRosterWaits(t *testing.T) {
	h := newRelayHost(t)
	c := newCrew(t, h.address, h.pin)
	two := begin(c.sam, "two")
	c.connected()
	sam := c.s.clones.all()[0]
	sam.sync.running.Lock() // it cannot fetch
	ash := c.a.clones.all()[0]
	before := ash.relay.toldHead()
	if _, err := ash.clone.ChangeRoster(t.Context(), gitlog.SyncOptions{}, func(change *gitlog.RosterChange) error {
		return change.Rotate(change.Before().General)
	}); err != nil {
		sam.sync.running.Unlock()
		t.Fatal(err)
	}
	ash.sync.running.Lock() // the host gets the roster, and not the fact
	defer ash.sync.running.Unlock()
	ash.relay.tick()
	awaitTrue(t, "the relay has the new roster", func() bool { return ash.relay.toldHead() != before })
	c.ash.remember("cents", "all money is integer cents", "src/billing.js")
	c.ash.send(aPerson, "sam@example.com", "new keys, and a fact")
	awaitTrue(t, "both are here, and wait", func() bool {
		sam.relay.mu.Lock()
		defer sam.relay.mu.Unlock()
		return len(sam.relay.unopened) == 2
	})
	if told := two.read("src/billing.js"); told != "" {
		t.Errorf("told by keys that are not here: %q", told)
	}
	if names := recalled(t, c.s, c.sam); len(names) != 0 {
		t.Errorf("recall has %q", names)
	}
	if read := c.sam.inbox(aPerson, false); len(read) != 0 {
		t.Errorf("read by keys that are not here: %q", read)
	}
	sam.sync.mu.Lock()
	sam.sync.fetched = time.Time{} // else it would not fetch again so soon
	sam.sync.mu.Unlock()
	sam.sync.running.Unlock()
	awaitTrue(t, "the fact is told", func() bool { return strings.Contains(two.read("src/billing.js"), "integer cents") })
	awaitMail(t, c.sam, aPerson, "ash@example.com: new keys, and a fact")
}

// What no state of the team opens is fetched for once, not for good.
func TestWhatNeverOpensIsFetchedForOnce(t *testing.T) {
	h := newRelayHost(t)
	c := newCrew(t, h.address, h.pin)
	c.connected()
	sam := c.s.clones.all()[0]
	fetched := func() time.Time {
		sam.sync.mu.Lock()
		defer sam.sync.mu.Unlock()
		return sam.sync.fetched
	}
	before := fetched()
	lacksNothing(t, sam.relay)
	sam.relay.await([]arbiter.Event{{Kind: gitlog.Message, Detail: []byte("sealed for nobody")}})
	awaitTrue(t, "it is fetched for", func() bool { return fetched().After(before) })
	sam.sync.running.Lock() // it cannot fetch
	defer sam.sync.running.Unlock()
	sam.sync.mu.Lock()
	sam.sync.fetched, sam.sync.fetchAt = time.Now().Add(-fetchAgain), time.Time{}
	sam.sync.mu.Unlock()
	sam.relay.tick()
	sam.relay.mu.Lock()
	waiting := len(sam.relay.unopened)
	sam.relay.mu.Unlock()
	sam.sync.mu.Lock()
	defer sam.sync.mu.Unlock()
	if waiting != 1 || !sam.sync.fetchAt.IsZero() {
		t.Errorf("%d wait; the next fetch for it is at %v", waiting, sam.sync.fetchAt)
	}
}

// Another clone of the same machine hears of it, too.
func TestAFactReachesAnotherCloneOfTheMachine(t *testing.T) {
	h := newRelayHost(t)
	c := newCrew(t, h.address, h.pin)
	m := c.ash.m
	m.git(m.vars["HOME"], "clone", "-q", "host.git", "second")
	second := &repository{m: m, root: filepath.Join(m.vars["HOME"], "second")}
	repo, err := gitlog.FindRepository(t.Context(), second.root)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := gitlog.Init(t.Context(), repo, m.gitlogHome(), gitlog.InitOptions{Name: "ash", Address: "ash@example.com"}); err != nil {
		t.Fatal(err)
	}
	second.isOpen()
	c.hostGone(true)
	c.ash.remember("cents", "all money is integer cents", "src/billing.js")
	awaitTrue(t, "the other clone has it", func() bool { return len(recalled(t, c.a, second)) == 1 })
	if names := recalled(t, c.a, c.ash); len(names) != 1 {
		t.Errorf("where it was remembered recall has %q", names)
	}
}

// What a machine may not say is refused, and costs nothing.
func TestWhatAnotherMachineMayNotSay(t *testing.T) {
	h := newRelayHost(t)
	c := newCrew(t, h.address, h.pin)
	two := begin(c.sam, "two")
	c.connected()
	ash, sam := c.a.clones.all()[0], c.s.clones.all()[0]
	c.hostGone(true)
	c.ash.remember("cents", "all money is integer cents", "src/billing.js")
	awaitTrue(t, "the fact is told", func() bool { return strings.Contains(two.read("src/billing.js"), "integer cents") })
	segments, _, err := ash.clone.Unconfirmed(t.Context(), 0)
	if err != nil || len(segments) != 1 {
		t.Fatalf("%d segments, %v", len(segments), err)
	}
	good := segments[0].Files
	forged := append([]byte{}, good[0]...)
	forged[len(forged)-1] ^= 1
	// Sam's machine sends them as its own: ash's hears them, and takes neither.
	for what, files := range map[string][][]byte{"another device's segment": good, "a forged one": {forged}, "no segment": {[]byte("x")}} {
		if err := sam.relay.tellSegment(context.Background(), sam.relay.open(), files); err != nil {
			t.Errorf("%s: the relay, which cannot know, says %v", what, err)
		}
	}
	c.sam.remember("rounding", "rounding happens once", "src/billing.js")
	awaitTrue(t, "the next one is heard", func() bool { return len(recalled(t, c.a, c.ash)) == 2 })
	log, err := os.ReadFile(filepath.Join(c.ash.m.loc.Home, "knootd.log"))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(log), "what another machine remembered is refused"); n != 3 {
		t.Errorf("the log names %d refusals, want 3:\n%s", n, log)
	}
}
