package gitlog

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Whoever can push asks to join 1,000 times: of these a fetch takes none, what came in another way goes, and all else goes on.
func TestFetchBesideAThousandRequests(t *testing.T) {
	c, ann, others := newCrew(t, "bob")
	bob := others[0]
	host := c.find("host.git")
	roster, err := openRefs(host).read(t.Context(), rosterRef)
	if err != nil {
		t.Fatal(err)
	}
	onHost := func(format string) {
		t.Helper()
		var input strings.Builder
		for i := range 1_000 {
			fmt.Fprintf(&input, format+"\n", fmt.Sprintf("%steam/request/%032x", ownRefs, i), roster)
		}
		cmd := exec.Command("git", "-C", host.CommonDir, "-c", "core.fsync=none", "update-ref", "--stdin")
		cmd.Stdin = strings.NewReader(input.String())
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	requests := func(h *hand) int {
		t.Helper()
		found, _, err := openRefs(h.Repo).list(t.Context(), h.remote.inbox+"team/request/")
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	told := func(r *SyncReport) bool {
		return slices.ContainsFunc(r.Problems, func(p Problem) bool { return strings.Contains(p.What, "requests to join are on the host") })
	}

	onHost("create %s %s")
	bob.remember("one", "what one is about", "src/billing.js")
	bob.push()
	ann.change(func(change *RosterChange) error { return change.NameAdmin("bob@example.com") })
	for _, h := range []*hand{ann, bob} {
		if !h.isCrowded() {
			t.Errorf("%s saw the requests and did not keep that in mind", h.name)
		}
		for range 2 { // while it is found out, and while it is known
			if report := h.pull(); !told(report) {
				t.Errorf("%s is not told: %+v", h.name, report)
			}
			if n := requests(h); n > 0 {
				t.Errorf("%s has %d requests", h.name, n)
			}
		}
	}
	ann.wantFacts("one")
	if bob.Roster().Head != ann.Roster().Head {
		t.Error("beside the requests the roster did not arrive")
	}

	// A plain `git fetch` takes them all.
	c.git("ann", "fetch", "-q", "origin")
	if n := requests(ann); n != 1_000 {
		t.Fatalf("a plain fetch brought %d", n)
	}
	ann.pull()
	if n := requests(ann); n > maxRequestsFetched {
		t.Errorf("%d requests are left of a plain fetch", n)
	}

	onHost("delete %s %s")
	ann.crowded = ann.now().Add(-crowdedAgain)
	if report := ann.pull(); told(report) || requests(ann) > 0 {
		t.Errorf("when they are gone: %+v, %d requests", report, requests(ann))
	}
}

// What somebody pushed below refs/knoot that is no log of the team's is not fetched for a change of the team, either, nor are
// requests to join that were found to crowd the host.
func TestAChangeFetchesTheTeamAlone(t *testing.T) {
	c, ann, others := newCrew(t, "bob")
	bob := others[0]
	bob.remember("one", "what one is about", "src/billing.js")
	bob.push()
	tip := strings.TrimSpace(c.git("host.git", "rev-parse", bob.memoryRef()))
	for _, name := range []string{"memory/" + strings.Repeat("ab", 24) + "/1", "audit/" + strings.Repeat("cd", 24) + "/1", "team/request/" + strings.Repeat("ef", 16)} {
		c.git("host.git", "update-ref", ownRefs+name, tip)
	}
	ann.crowded = ann.now()
	ann.change(func(change *RosterChange) error { return change.NameAdmin("bob@example.com") })
	ann.wantFacts("one")
	bob.crowded = bob.now()
	bob.push()
	for _, h := range []*hand{ann, bob} {
		found, _, err := openRefs(h.Repo).list(t.Context(), h.remote.inbox)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range found {
			place, ok := parseRefPlace(strings.TrimPrefix(r.Name, h.remote.inbox))
			if !ok || place.Request != nil || place.Log != 0 && place.Writer.Device() != ann.device.ID && place.Writer.Device() != bob.device.ID {
				t.Errorf("%s fetched %s", h.name, r.Name)
			}
		}
	}
}
