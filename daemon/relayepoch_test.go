package daemon

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/gitlog"
)

// change changes the team on ash's machine.
func (c *crew) change(change func(*gitlog.RosterChange) error) {
	c.t.Helper()
	if _, err := c.a.clones.all()[0].clone.ChangeRoster(c.t.Context(), gitlog.SyncOptions{}, change); err != nil {
		c.t.Fatal(err)
	}
}

// fetches has a machine fetch from its host, or from nowhere.
func (r *repository) fetches(d *daemon, from string) {
	r.m.t.Helper()
	r.m.git(r.root, "remote", "set-url", "origin", from)
	_, err := d.clones.all()[0].sync.sync(r.m.t.Context(), gitlog.SyncOptions{Fetch: true})
	if _, there := filepathOf(from); there != (err == nil) {
		r.m.t.Fatalf("fetched from %s: %v", from, err)
	}
}

// filepathOf says whether there is anything at an address that is a path.
func filepathOf(address string) (string, bool) {
	found, err := filepath.Glob(address)
	return address, err == nil && len(found) == 1
}

// doubts makes a machine believe nothing of others but what the relay answers.
func doubts(d *daemon) {
	d.clones.all()[0].relay.link.heardAt(time.Now().Add(-time.Minute))
}

// holders are the machines that the relay says hold a path, as a machine that has all keys sees it.
func (r *relayRepository) holders(path string) (ids []gitlog.DeviceID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, _ := r.names.path(path)
	own := []arbiter.Token{p.Own}
	if p.Was != nil {
		own = append(own, p.Was.Own)
	}
	for _, h := range r.view.Claims(arbiter.Token{}, r.clock.now()) {
		if slices.Contains(own, h.Path.Own) || h.Path.Was != nil && slices.Contains(own, h.Path.Was.Own) {
			ids = append(ids, h.Device)
		}
	}
	return ids
}

// A new epoch in the middle of live claims: they go on to count for both sides, and nobody holds what another holds.
func TestClaimsOverANewEpoch(t *testing.T) {
	h := newRelayHost(t)
	c := newCrew(t, h.address, h.pin)
	one, two := begin(c.ash, "one"), begin(c.sam, "two")
	c.connected()
	one.edit("src/a.js")
	two.edit("src/b.js")
	knows(t, c.a, 1)
	knows(t, c.s, 1)
	host := filepath.Join(c.ash.m.vars["HOME"], "host.git")
	c.sam.fetches(c.s, filepath.Join(c.ash.m.vars["HOME"], "nowhere.git"))
	c.change(func(change *gitlog.RosterChange) error { return change.Rotate(change.Before().General) })
	a, s := c.a.clones.all()[0].relay, c.s.clones.all()[0].relay
	before := s.blinding().Roster.Head
	a.tick()
	awaitTrue(t, "the relay has the new epoch", func() bool { return a.toldHead() != before && a.prompt() })
	awaitTrue(t, "the claim is asked for again", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, held := range a.view.Claims(arbiter.Token{}, a.clock.now()) {
			if held.Device == a.names.device {
				return held.Path.Was != nil
			}
		}
		return false
	})
	// What the other machine claimed by the old keys denies, by the mirror and by the relay.
	refuses(t, one, "src/b.js", "sam's agent")
	doubts(c.a)
	refuses(t, one, "src/b.js", "sam's agent")
	// And the other way, as far as the machine that lacks the epoch still hears of it.
	refuses(t, two, "src/a.js", "ash's agent")
	// The relay takes no claim by the old keys: that is no denial, and is made good.
	for _, path := range []string{"src/a.js", "src/c.js"} {
		awaitTrue(t, path+" is written by the old keys", func() bool {
			doubts(c.s) // until it is heard again
			return two.edit(path) == ""
		})
	}
	if got := a.holders("src/c.js"); len(got) != 0 {
		t.Errorf("by the old keys src/c.js was given to %v", got)
	}
	c.sam.fetches(c.s, host)
	awaitTrue(t, "what was claimed meanwhile is claimed again", func() bool { return len(a.holders("src/c.js")) == 1 })
	awaitTrue(t, "what another holds is given up", func() bool { return !slices.Contains(c.sam.standingClaims(c.s), "two src/a.js") })
	for _, path := range []string{"src/a.js", "src/b.js", "src/c.js"} {
		if got := a.holders(path); len(got) != 1 {
			t.Errorf("%s is held by %v", path, got)
		}
	}
	refuses(t, one, "src/c.js", "sam's agent")
	// A daemon that starts now knows of the old keys, too, and its sessions are who they were.
	c.sam.m.stop(c.s)
	c.s = c.sam.m.start(Options{})
	c.sam.isOpen()
	c.connected()
	if s = c.s.clones.all()[0].relay; s.blinding().Roster.Head != a.blinding().Roster.Head {
		t.Fatal("the machines go by two rosters")
	}
	s.mu.Lock()
	p, _ := s.names.path("src/d.js")
	s.mu.Unlock()
	if p.Was == nil {
		t.Error("a daemon that starts soon after a new epoch has forgotten the one before")
	}
	awaitTrue(t, "all is told", func() bool { return s.prompt() })
	one.prompt("anything")
	for _, path := range []string{"src/b.js", "src/c.js"} {
		if got := a.holders(path); len(got) != 1 || got[0] != s.names.device {
			t.Errorf("after a restart %s is held by %v", path, got)
		}
	}
	// After one lease the old keys are over.
	s.mu.Lock()
	s.wasTill = time.Now().Add(-time.Millisecond)
	s.mu.Unlock()
	s.tick()
	s.mu.Lock()
	p, _ = s.names.path("src/d.js")
	s.mu.Unlock()
	if p.Was != nil {
		t.Error("claims go by the old keys for ever")
	}
	knows(t, c.s, 1)
	refuses(t, two, "src/a.js", "ash's agent")
}

// What a removed device held is free once its removal is sequenced, and it hears no more. Its agents work on.
func TestARemovedDeviceHoldsNothing(t *testing.T) {
	h := newRelayHost(t)
	c := newCrew(t, h.address, h.pin)
	one, two := begin(c.ash, "one"), begin(c.sam, "two")
	c.connected()
	two.edit("src/b.js")
	knows(t, c.a, 1)
	s := c.s.clones.all()[0].relay
	s.mu.Lock()
	conn := s.conn
	s.mu.Unlock()
	c.change(func(change *gitlog.RosterChange) error { return change.RemoveMember("sam@example.com", 0) })
	c.a.clones.all()[0].relay.tick()
	knows(t, c.a, 0)
	<-conn.Done()
	if denied := one.edit("src/b.js"); denied != "" {
		t.Errorf("what a removed device held: %q", denied)
	}
	awaitTrue(t, "the relay says why it lets the device in no more", func() bool {
		problem := s.status().Problem
		return s.open() == nil && strings.Contains(problem, "team")
	})
	if denied := two.edit("src/b.js", "src/c.js"); denied != "" {
		t.Errorf("the removed device's own agents: %q", denied)
	}
}
