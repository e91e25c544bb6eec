package gitlog

import (
	"bytes"
	"context"
	"testing"
)

func TestBlindingsOfTwoDevicesAgree(t *testing.T) {
	ann, a, _ := newTeam(t, InitOptions{})
	bob := ann.colleague("bob")
	b := bob.comes(a)
	ann.sync(a)
	one, err := a.Blinding()
	if err != nil {
		t.Fatal(err)
	}
	two, err := b.Blinding()
	if err != nil {
		t.Fatal(err)
	}
	if !one.SameTokens(two) {
		t.Error("two members have other tokens")
	}
	own, above, ok := one.Path("Src/tax.js")
	folded, aboveToo, okToo := two.Path("src/TAX.js")
	if !ok || !okToo || own != folded || len(above) != 2 || above[0] != aboveToo[0] || above[1] != aboveToo[1] {
		t.Errorf("a path has the tokens %v %v, and %v %v", own, above, folded, aboveToo)
	}
	if root, none, _ := one.Path(""); root != above[1] || len(none) > 0 {
		t.Errorf("the root has the token %v, and %v above", root, none)
	}
	if one.Branch("refs/heads/main", "x") != two.Branch("refs/heads/main", "y") {
		t.Error("a branch has two tokens")
	}
	if one.Branch("", "/x") == two.Branch("", "/x") || one.Worktree("/x") == two.Worktree("/x") || one.Session("claude", "1") == two.Session("claude", "1") {
		t.Error("two devices have one worktree, or one session")
	}
	session := one.Session("claude", "1")
	sealed, err := one.Seal("src/tax.js", Message, session, 1, 5, []byte("hello"))
	if err != nil {
		t.Fatal(err)
	}
	h, text, err := two.Open(sealed)
	if err != nil || h.Session != session || h.Kind != Message || h.Device != a.device.ID || !bytes.Equal(text, []byte("hello")) {
		t.Errorf("opened %+v %q, %v", h, text, err)
	}
	entries, err := b.RosterEntries(context.Background(), two.Roster.Head)
	if err != nil {
		t.Fatal(err)
	}
	chain, err := BeginChain(two.Roster.Team, entries[0])
	if err != nil {
		t.Fatal(err)
	}
	if chain, _, err = chain.Extend(entries[1:]); err != nil || chain.Head() != two.Roster.Head || !chain.Live(b.device.ID) {
		t.Errorf("the entries lead to %v, %v", chain.Head(), err)
	}
	// Who is removed has other keys than those who stay: what they had opens nothing that comes.
	ann.change(a, func(change *RosterChange) error { return change.RemoveMember("bob@example.com", 0) })
	after, err := a.Blinding()
	if err != nil {
		t.Fatal(err)
	}
	if after.SameTokens(two) {
		t.Error("the tokens of a new epoch are those of the one before")
	}
	before, err := a.BlindingBefore(t.Context(), after, after.Roster.Time-1)
	if err != nil || before == nil || !before.SameTokens(two) {
		t.Errorf("before the epoch there was %v, %v: want what bob has", before, err)
	}
	if before, err := a.BlindingBefore(t.Context(), after, after.Roster.Time); err != nil || before != nil {
		t.Errorf("long after the epoch there was %v, %v: want nothing", before, err)
	}
	if sealed, err = after.Seal("", Message, session, 2, 6, []byte("among us")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := two.Open(sealed); err == nil {
		t.Error("a removed member opens what was sealed since")
	}
	if sealed, err = two.Seal("", Message, session, 1, 7, []byte("still here")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := after.Open(sealed); err == nil {
		t.Error("what a removed member sealed is taken")
	}
}
