package daemon

import (
	"slices"
	"strings"
	"testing"

	"knoot.dev/knoot/daemon/socket"
)

// awaitMail waits until a caller reads this, in a repository.
func awaitMail(t *testing.T, r *repository, caller *socket.Caller, want ...string) {
	t.Helper()
	var got []string
	defer func() {
		if t.Failed() {
			t.Logf("read %q", got)
		}
	}()
	awaitTrue(t, strings.Join(want, ", "), func() bool {
		got = append(got, r.inbox(caller, false)...)
		return slices.Equal(got, want)
	})
}

func TestMessagesReachOtherMachines(t *testing.T) {
	h := newRelayHost(t)
	c := newCrew(t, h.address, h.pin)
	one, two := begin(c.ash, "alpha-1-session"), begin(c.sam, "beta-12-session")
	c.connected()
	awaitTrue(t, "sessions of both", func() bool {
		return len(c.a.clones.all()[0].relay.standing()) == 1 && len(c.s.clones.all()[0].relay.standing()) == 1
	})
	// A session by its label, told at its next hook, and back by what the reader sees.
	c.ash.send(anAgent, "claude-beta-12-", "are you at the tax?")
	hears(t, two, "are you at the tax?", "claude-alpha-1-")
	c.sam.send(&socket.Caller{Session: "beta-12-session"}, "claude-alpha-1-", "not the tax today")
	hears(t, one, "not the tax today", "claude-beta-12-")
	// A person by their address, and by their name.
	c.ash.send(aPerson, "sam@example.com", "lunch?")
	awaitMail(t, c.sam, aPerson, "ash@example.com: lunch?")
	c.sam.send(aPerson, "ash", "yes")
	awaitMail(t, c.ash, aPerson, "sam@example.com: yes")
	// Everybody, here and there.
	c.ash.send(aPerson, "all", "main is red")
	awaitMail(t, c.sam, aPerson, "ash@example.com: main is red")
	awaitMail(t, c.sam, &socket.Caller{Session: "beta-12-session"}, "claude-alpha-1-: are you at the tax?", "ash@example.com: main is red")
	awaitMail(t, c.ash, anAgent, "claude-beta-12-: not the tax today") // whose person sent it knows
	if code, sentence := c.ash.order("msg", aPerson, MessageRequest{To: "nobody", Text: "x"}, nil); code != codeRefused {
		t.Errorf("to nobody: %s %q", code, sentence)
	}
	h.stop()
	awaitTrue(t, "the relay is gone", func() bool { return c.a.clones.all()[0].relay.open() == nil })
	if code, sentence := c.ash.order("msg", aPerson, MessageRequest{To: "sam@example.com", Text: "x"}, nil); code != codeRefused ||
		!strings.Contains(sentence, "the relay cannot be reached") {
		t.Errorf("without the relay: %s %q", code, sentence)
	}
}

func TestWaitAndTakeAcrossMachines(t *testing.T) {
	h := newRelayHost(t)
	c := newCrew(t, h.address, h.pin)
	one, _ := begin(c.ash, "alpha-1-session"), begin(c.sam, "beta-12-session")
	c.connected()
	one.edit("src/tax.js")
	one.edit("src/cart.js")
	knows(t, c.s, 2)
	var wait WaitAnswer
	if _, sentence := c.sam.order("wait", anAgent, PathRequest{Path: "src/tax.js", For: 1}, &wait); sentence != "" || wait.Free || wait.By != "ash's agent" {
		t.Errorf("while it is held: %+v %q", wait, sentence)
	}
	if code, sentence := c.sam.order("release", aPerson, PathRequest{Path: "src/tax.js"}, nil); code != codeRefused || !strings.Contains(sentence, "knoot take") {
		t.Errorf("another machine's claim is released: %s %q", code, sentence)
	}
	var take TakeAnswer
	if _, sentence := c.sam.order("take", aPerson, PathRequest{Path: "src/tax.js"}, &take); sentence != "" || !slices.Equal(take.From, []string{"claude-alpha-1-"}) {
		t.Errorf("taken: %+v %q", take, sentence)
	}
	hears(t, one, "src/tax.js", "sam")
	if denied := one.edit("src/tax.js"); !strings.Contains(denied, "sam") {
		t.Errorf("who had it writes on: %q", denied)
	}
	if denied := one.edit("src/cart.js"); denied != "" {
		t.Errorf("what was not taken: %q", denied)
	}
	one.stop()
	if _, sentence := c.sam.order("wait", anAgent, PathRequest{Path: "src/cart.js", For: 20_000}, &wait); sentence != "" || !wait.Free {
		t.Errorf("once it is free: %+v %q", wait, sentence)
	}
}
