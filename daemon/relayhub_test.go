package daemon

import (
	"slices"
	"strings"
	"testing"
)

// A file that sessions of several machines write is a hub for all of them, with one queue.
func TestHubsOfAllMachines(t *testing.T) {
	h := newRelayHost(t)
	c := newCrew(t, h.address, h.pin)
	one, two, three := begin(c.ash, "alpha-1-session"), begin(c.sam, "beta-12-session"), begin(c.ash, "gamma-3-session")
	c.connected()
	for _, each := range []*agent{one, three, two} {
		awaitTrue(t, each.session+" has its turn", func() bool { return each.edit("src/routes.js") == "" })
		if each != two {
			each.stop()
		}
	}
	knows(t, c.a, 1)
	if denied := one.edit("src/routes.js"); !strings.Contains(denied, "sam's agent") {
		t.Errorf("while another machine's session holds it: %q", denied)
	}
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
