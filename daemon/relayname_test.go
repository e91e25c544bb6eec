package daemon

import (
	"crypto/sha256"
	"testing"

	"knoot.dev/knoot/arbiter"
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

// What comes sealed, and is asked about again, is opened as it comes, and again as the team changes: no hook waits for that. What does
// not open is not tried again either.
func TestWhatComesSealedIsOpenedOnce(t *testing.T) {
	h := newRelayHost(t)
	c := newCrew(t, h.address, h.pin)
	two := begin(c.sam, "two")
	c.connected()
	two.prompt("rewriting tax rounding for invoices")
	two.edit("src/tax.js")
	r := c.a.clones.all()[0].relay
	opened := func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		now := r.clock.now()
		sessions, claims := r.view.Sessions(now), r.view.Claims(arbiter.Token{}, now)
		if len(sessions) != 1 || len(sessions[0].Intent) == 0 || len(claims) != 1 {
			return false
		}
		return r.names.opened[sha256.Sum256(sessions[0].Intent)] != nil && r.names.opened[sha256.Sum256(claims[0].Detail)] != nil
	}
	awaitTrue(t, "the intent and the claim are opened", opened)
	before := r.blinding()
	c.change(func(change *gitlog.RosterChange) error { return change.Rotate(change.Before().General) })
	awaitTrue(t, "the team is another", func() bool { return r.look() == nil && r.blinding() != before })
	awaitTrue(t, "they are opened by the new state of the team", opened)

	r.mu.Lock()
	defer r.mu.Unlock()
	nobodys := []byte("sealed for nobody")
	if _, ok := r.names.open(gitlog.IntentDeclared, arbiter.Token{}, nobodys); ok {
		t.Fatal("it opens")
	}
	if o, known := r.names.opened[sha256.Sum256(nobodys)]; o != nil || !known {
		t.Error("what does not open is tried again each time")
	}
}
