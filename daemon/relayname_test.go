package daemon

import (
	"testing"

	"knoot.dev/knoot/gitlog"
)

// What is opened is kept as long as the team is the same, and no longer: who signed it may have left.
func TestWhatWasOpenedIsForgottenWithTheTeam(t *testing.T) {
	h := newRelayHost(t)
	c := newCrew(t, h.address, h.pin)
	two := begin(c.sam, "two")
	c.connected()
	two.prompt("rewriting tax rounding for invoices")
	r := c.a.clones.all()[0].relay
	intent := func() string {
		for _, s := range r.standing() {
			return s.Intent
		}
		return ""
	}
	awaitTrue(t, "the intent of the other machine", func() bool { return intent() != "" })
	r.mu.Lock()
	kept := len(r.names.opened)
	r.mu.Unlock()
	if kept == 0 {
		t.Error("what was opened is opened again each time")
	}
	if _, err := c.a.clones.all()[0].clone.ChangeRoster(t.Context(), gitlog.SyncOptions{}, func(change *gitlog.RosterChange) error {
		return change.RemoveMember("sam@example.com", 0)
	}); err != nil {
		t.Fatal(err)
	}
	if err := r.look(); err != nil {
		t.Fatal(err)
	}
	if got := intent(); got != "" {
		t.Errorf("of somebody who left: %q", got)
	}
}
