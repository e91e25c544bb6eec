package daemon

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/arbiter/wire"
	"knoot.dev/knoot/gitlog"
)

// A relay that knows the messages, and fails as it answers them: nothing is denied because of it, no hook waits, and the machine's own
// order holds. What fails before the first message is in integration.
func TestARelayThatAnswersWrongly(t *testing.T) {
	type way = func(conn wire.Conn, stream wire.Stream, m wire.Message)
	say := func(m wire.Message) way {
		return func(_ wire.Conn, stream wire.Stream, _ wire.Message) { _ = stream.Send(wire.Encode(m)) }
	}
	raw := func(message []byte) way {
		return func(_ wire.Conn, stream wire.Stream, _ wire.Message) { _ = stream.Send(message) }
	}
	garbage := bytes.Repeat([]byte{0xff}, 1_000)
	granted := wire.Encode(&wire.Answer{Now: gitlog.Now(), Outcome: wire.Granted})
	ends := map[string]way{
		"nothing":                 func(wire.Conn, wire.Stream, wire.Message) {},
		"garbage":                 raw(garbage),
		"an empty message":        raw(nil),
		"half an answer":          raw(granted[:len(granted)-1]),
		"something else":          say(&wire.Pong{}),
		"a farewell":              say(&wire.Farewell{After: 1}),
		"an end":                  func(_ wire.Conn, stream wire.Stream, _ wire.Message) { stream.Close() },
		"a reset":                 func(_ wire.Conn, stream wire.Stream, _ wire.Message) { stream.Reset(wire.Malformed) },
		"the connection's end":    func(conn wire.Conn, _ wire.Stream, _ wire.Message) { conn.Close(wire.Draining, "") },
		"a message of the future": raw([]byte{0x82, 0x18, 0x63, 0xa0}),
	}
	for _, code := range append(wire.Codes(), 999) {
		ends[fmt.Sprintf("fault %d", code)] = say(&wire.Fault{Code: code, Text: "no", After: 1 << 40})
	}

	var claims, opens atomic.Pointer[way]
	var asked atomic.Pointer[relayLink] // the link to which things are done
	tried := make(chan struct{}, 1)
	try := func(w *way, conn wire.Conn, stream wire.Stream, m wire.Message) {
		(*w)(conn, stream, m)
		select {
		case tried <- struct{}{}:
		default:
		}
	}
	address, pin := oddHost(t, func(conn wire.Conn, stream wire.Stream, m wire.Message) {
		link := asked.Load()
		ours := link != nil && conn.Peer().Equal(link.device.Sign.Public())
		switch m := m.(type) {
		case *wire.Open:
			if w := opens.Load(); ours && w != nil {
				try(w, conn, stream, m)
				return
			}
			_ = stream.Send(wire.Encode(&wire.Opened{Now: gitlog.Now(), Head: m.Head}))
		case *wire.Claim:
			if w := claims.Load(); ours && w != nil {
				try(w, conn, stream, m)
				return
			}
			_ = stream.Send(granted)
		case *wire.Ping:
			_ = stream.Send(wire.Encode(&wire.Pong{}))
		default:
			_ = stream.Send(wire.Encode(&wire.Answer{Now: gitlog.Now()}))
		}
	})
	c := newCrew(t, address, pin)
	one, three := begin(c.ash, "one"), begin(c.ash, "three")
	r := c.a.clones.all()[0].relay
	asked.Store(r.link)
	open := func() {
		awaitTrue(t, "open", func() bool {
			r.link.nudge()
			return r.open() != nil
		})
	}
	n := 0
	works := func(t *testing.T) {
		t.Helper()
		n++
		file, began := fmt.Sprintf("src/file%d.js", n), time.Now()
		if denied := one.edit(file); denied != "" {
			t.Errorf("denied: %q", denied)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it took %v", took)
		}
		if denied := three.edit(file); denied == "" {
			t.Error("the machine's own order is gone")
		}
	}
	await := func(t *testing.T) {
		t.Helper()
		for end := time.After(20 * time.Second); ; {
			select {
			case <-tried:
				return
			case <-end:
				t.Fatal("it was never asked")
			case <-time.After(10 * time.Millisecond):
				r.link.nudge()
			}
		}
	}

	denies := func(change func(*wire.Answer)) way {
		return func(_ wire.Conn, stream wire.Stream, m wire.Message) {
			a := &wire.Answer{Now: gitlog.Now(), Outcome: wire.Denied, Blocks: []wire.Block{{Claim: m.(*wire.Claim).Wants[0].ID, Left: 1_000, Class: arbiter.File,
				Holder: arbiter.Who{Session: arbiter.Token{1}, Device: r.names.device, Branch: arbiter.Token{2}, Worktree: arbiter.Token{3}}}}}
			change(a)
			_ = stream.Send(wire.Encode(a))
		}
	}
	answers := map[string]way{
		"a denial without a reason": denies(func(a *wire.Answer) { a.Blocks = nil }),
		"a denial by this machine":  denies(func(*wire.Answer) {}),
		"a denial of another claim": denies(func(a *wire.Answer) {
			a.Blocks[0].Claim, a.Blocks[0].Holder.Device = arbiter.ClaimID{9}, gitlog.DeviceID{9}
		}),
		"an outcome that there is not": denies(func(a *wire.Answer) { a.Outcome = 99 }),
		"a thousand answers and no outcome": func(_ wire.Conn, s wire.Stream, _ wire.Message) {
			for range 1_000 {
				if s.Send(wire.Encode(&wire.Answer{})) != nil {
					return
				}
			}
		},
	}
	for what, w := range ends {
		answers[what] = w
	}
	for what, w := range answers {
		t.Run("a claim is answered with "+what, func(t *testing.T) {
			claims.Store(nil)
			open()
			claims.Store(&w)
			works(t)
			await(t)
		})
	}
	claims.Store(nil)

	then := func(and way) way {
		return func(conn wire.Conn, stream wire.Stream, m wire.Message) {
			_ = stream.Send(wire.Encode(&wire.Opened{Now: gitlog.Now(), Head: m.(*wire.Open).Head}))
			and(conn, stream, m)
		}
	}
	openings := map[string]way{
		"a roster that is wanted from far": say(&wire.RosterWanted{From: 1 << 40}),
		"a roster without an end": func(_ wire.Conn, stream wire.Stream, _ wire.Message) {
			for range 1_000 {
				if stream.Send(wire.Encode(&wire.RosterPart{})) != nil {
					return
				}
			}
		},
		"a huge snapshot":             say(&wire.Opened{Snapshot: 1 << 50}),
		"a snapshot that never comes": say(&wire.Opened{Snapshot: 1 << 20}),
		"a snapshot of garbage": func(_ wire.Conn, stream wire.Stream, m wire.Message) {
			_ = stream.Send(wire.Encode(&wire.Opened{Snapshot: 1_000, Head: m.(*wire.Open).Head}))
			_ = stream.Send(wire.Encode(&wire.SnapshotPart{Bytes: garbage}))
		},
	}
	for what, w := range ends {
		openings[what] = w
		if what != "nothing" {
			openings["an opening, and "+what] = then(w)
		}
	}
	for what, w := range openings {
		t.Run("the repository is opened with "+what, func(t *testing.T) {
			opens.Store(&w)
			for len(tried) > 0 {
				<-tried
			}
			r.link.mu.Lock()
			if conn := r.link.conn; conn != nil {
				go conn.Close(0, "the next way")
			}
			r.link.mu.Unlock()
			await(t)
			works(t)
		})
	}
	opens.Store(nil)
	open()
	works(t)
}
