package daemon

import (
	"crypto/ed25519"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"knoot.dev/knoot/arbiter/wire"
)

// A relay that is another than the pinned one is named once, with what to do, by whichever transport it was found out.
func TestAnotherKeyIsSaidOnce(t *testing.T) {
	h := newRelayHost(t)
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	pinned := wire.PinOf(key.Public().(ed25519.PublicKey))
	_, _, err = newDialer(relayAddress{address: h.address, pin: pinned}).connect(t.Context(), key)
	if err == nil {
		t.Fatal("connected to a relay whose key is not the pinned one")
	}
	text := err.Error()
	if strings.Count(text, h.pin) != 1 || strings.Count(text, pinned.String()) != 1 || !strings.HasPrefix(text, "the relay has the key") || !strings.Contains(text, "knoot init --relay") {
		t.Errorf("refused with %q", text)
	}
}

// Tries come ever more seldom, and after one that lasted at once.
func TestRetriesBeginAnewAfterOneThatLasted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := newRetries()
		if got := tries.pause(); got != 0 {
			t.Errorf("the first time: %v", got)
		}
		for range 10 {
			tries.ended(reconnectMost / 2)
		}
		if got := tries.pause(); got < reconnectMost/2 {
			t.Errorf("the eleventh time: %v", got)
		}
		time.Sleep(reconnectPatience)
		tries.ended(0)
		if got := tries.pause(); got < reconnectLong/2 {
			t.Errorf("after a long time: %v", got)
		}
		tries.ended(2 * reconnectMost)
		if got := tries.pause(); got != 0 {
			t.Errorf("after one that lasted: %v", got)
		}
		tries.ended(0)
		if got := tries.pause(); got > reconnectMost {
			t.Errorf("then: %v", got)
		}
	})
}
