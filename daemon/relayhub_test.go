package daemon

import (
	"slices"
	"strings"
	"testing"

	"knoot.dev/knoot/arbiter"
)

// A file that sessions of several machines write is a hub for all of them, with one queue.
func TestHubsOfAllMachines(t *testing.T) {
	h := newRelayHost(t)
	c := newCrew(t, h.address, h.pin)
	one, two, three := begin(c.ash, "alpha-1-session"), begin(c.sam, "beta-12-session"), begin(c.ash, "gamma-3-session")
	c.connected()
	for _, each := range []*agent{one, three, two} {
		d := map[*repository]*daemon{c.ash: c.a, c.sam: c.s}[each.r]
		awaitTrue(t, each.session+" has written under a claim of the relay's", func() bool {
			return each.edit("src/routes.js") == "" && d.clones.all()[0].relay.gated(each.session)
		})
		if each != two {
			each.stop()
			awaitTrue(t, "the claim is over", func() bool { return len(d.clones.all()[0].relay.holders("src/routes.js")) == 0 })
		}
	}
	knows(t, c.a, 1)
	refuses(t, one, "src/routes.js", "sam's agent")
	for name, r := range map[string]*repository{"ash": c.ash, "sam": c.sam} {
		var hubs []Hub
		awaitTrue(t, name+" sees the queue", func() bool {
			if _, sentence := r.order("hubs", aPerson, nil, &hubs); sentence != "" {
				t.Fatal(sentence)
			}
			return len(hubs) == 1 && len(hubs[0].Queue) == 1
		})
		if hub := hubs[0]; hub.Path != "src/routes.js" || hub.Branch != "refs/heads/main" || hub.Holder != "claude-beta-12-" ||
			!slices.Equal(hub.Queue, []string{"claude-alpha-1-"}) || hub.Until == 0 {
			t.Errorf("%s sees %+v", name, hub)
		}
		var s Standing
		r.order("who", aPerson, nil, &s)
		for _, each := range s.Sessions {
			if want := each.Session == "alpha-1-session"; want != slices.Contains(each.Waiting, "src/routes.js") {
				t.Errorf("%s sees %s wait for %q", name, each.Session, each.Waiting)
			}
		}
		var w Watch
		r.order("watch", aPerson, WatchRequest{}, &w)
		if len(w.Hubs) != 1 || len(w.Hubs[0].Queue) != 1 {
			t.Errorf("%s watches %+v", name, w.Hubs)
		}
	}
	if brief := one.prompt("on to the routes of the shop"); !strings.Contains(brief, "src/routes.js is widely shared: 1 session in its queue, you are the 1st") {
		t.Errorf("who waits is told %q", brief)
	}
	if brief := two.prompt("on to the routes of the shop"); !strings.Contains(brief, "src/routes.js is widely shared: 1 session in its queue") {
		t.Errorf("who holds is told %q", brief)
	}
}

// gated says whether the relay knows of a write of a session under a claim.
func (r *relayRepository) gated(session string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.view.Writes(arbiter.Token{}, arbiter.Order{}, r.clock.now()) {
		if r.sessionOf(w.Session).ID == session && w.Gated {
			return true
		}
	}
	return false
}
