package daemon

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"errors"
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

// A relay that is just beginning refuses TCP for a moment. Where UDP is dropped QUIC says nothing meanwhile, and TCP is tried again.
func TestTCPIsTriedAgainWhileQUICSaysNothing(t *testing.T) {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, first := range []string{"quic", "tcp"} {
		t.Run(first+" first", func(t *testing.T) { synctest.Test(t, func(t *testing.T) { triedAgain(t, key, first == "tcp") }) })
	}
}

func triedAgain(t *testing.T, key ed25519.PrivateKey, tcpFirst bool) {
	d := newDialer(relayAddress{address: "127.0.0.1:1"})
	d.tcp[networkTo(d.at.address)] = tcpFirst
	tries := 0
	d.dial["quic"] = func(ctx context.Context, _ string, _ *tls.Config, _ string) (wire.Conn, *wire.Welcome, error) {
		ctx, cancel := context.WithTimeout(ctx, wire.HandshakeTimeout)
		defer cancel()
		<-ctx.Done()
		return nil, nil, ctx.Err()
	}
	d.dial["tcp"] = func(context.Context, string, *tls.Config, string) (wire.Conn, *wire.Welcome, error) {
		if tries++; tries < 3 {
			return nil, nil, errors.New("connection refused")
		}
		return struct{ wire.Conn }{}, &wire.Welcome{}, nil
	}
	began := time.Now()
	conn, _, err := d.connect(t.Context(), key)
	if took := time.Since(began); conn == nil || took >= wire.HandshakeTimeout {
		t.Errorf("not connected by the third try of TCP: after %v, %v", took, err)
	}
	tries = -100
	began = time.Now()
	if _, _, err = d.connect(t.Context(), key); err == nil || !strings.Contains(err.Error(), "connection refused") || !strings.Contains(err.Error(), "context deadline exceeded") {
		t.Errorf("where neither answers: %v", err)
	}
	if took := time.Since(began); took > 2*wire.HandshakeTimeout {
		t.Errorf("it goes on for %v", took)
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
