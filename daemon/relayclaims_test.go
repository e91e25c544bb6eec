package daemon

import (
	"testing"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/arbiter/wire"
)

// A claim that the relay granted and nobody holds, since the answer was lost with a connection, is given back.
func TestAClaimThatNobodyHoldsIsGivenBack(t *testing.T) {
	h := newRelayHost(t)
	c := newCrew(t, h.address, h.pin)
	one, two := begin(c.ash, "one"), begin(c.sam, "two")
	c.connected()
	if denied := one.edit("src/held.js"); denied != "" {
		t.Fatal(denied)
	}
	wt := c.a.clones.opened(c.ash.root)
	r := wt.clone.relay
	lost := arbiter.ClaimID{7}
	r.mu.Lock()
	path, _ := r.names.path("src/lost.js")
	m := &wire.Claim{Repository: r.a.id.repository, Head: r.names.blinding.Roster.Head, Claim: arbiter.Claim{
		Who:   r.names.who(party{Key: sessionKey{Agent: "claude", ID: "one"}, Root: c.ash.root, Branch: "refs/heads/main"}, wt.repo.GitDir),
		Wants: []arbiter.Want{{ID: lost, Path: path, Class: arbiter.File}}}}
	conn := r.conn
	r.mu.Unlock()
	answer, err := wire.Ask(t.Context(), conn, m)
	if err != nil || answer.(*wire.Answer).Outcome != wire.Granted {
		t.Fatalf("%+v, %v", answer, err)
	}
	theirs := c.s.clones.all()[0].relay
	awaitTrue(t, "nobody has the claim", func() bool {
		theirs.mu.Lock()
		defer theirs.mu.Unlock()
		_, held := theirs.view.Claim(lost, theirs.clock.now())
		return !held && theirs.view.Position().Compare(answer.(*wire.Answer).Position) >= 0
	})
	knows(t, c.s, 1) // the one that is held stays
	if denied := two.edit("src/lost.js"); denied != "" {
		t.Errorf("it is denied still: %q", denied)
	}
}
