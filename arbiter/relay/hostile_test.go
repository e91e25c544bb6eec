package relay

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/arbiter/wire"
	"knoot.dev/knoot/gitlog"
)

// Whoever sends what is no message loses the connection, and nobody else does.
func TestMalformedMessages(t *testing.T) {
	t.Parallel()
	h := newHost(t, nil)
	c := newCrew(t, 1)
	good := newLink(t, h, c, c.devices[0])
	noise := make([]byte, 500)
	_, _ = rand.Read(noise)
	noise[0] = 0xff
	for name, message := range map[string][]byte{
		"noise": noise, "nothing": {}, "half a claim": wire.Encode(good.claimOf("s", "x", drawClaim()))[:60], "trailing": append(wire.Encode(&wire.Ping{}), 0),
	} {
		for _, transport := range []string{"quic", "tcp"} {
			t.Run(name+" "+transport, func(t *testing.T) {
				conn := dial(t, h, transport, c.devices[1])
				s, err := conn.Open(within(t))
				if err != nil {
					t.Fatal(err)
				}
				if err := s.Send(message); err != nil {
					t.Fatal(err)
				}
				<-conn.Done()
				if err := conn.Err(); !isClosed(err, wire.Malformed) {
					t.Errorf("the connection ended with %v", err)
				}
			})
		}
	}
	conn := dial(t, h, "quic", c.devices[1])
	if _, err := wire.Ask(within(t), conn, &wire.Pong{}); !isFault(err, wire.UnknownRequest) {
		t.Errorf("a message that is no request: %v", err)
	}
	later := []byte{0x82, 0x18, 0x63, 0xa0}
	s, err := conn.Open(within(t))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Send(later); err != nil {
		t.Fatal(err)
	}
	if _, err := wire.ReceiveMessage(s); !isFault(err, wire.UnknownRequest) {
		t.Errorf("a request of a newer version: %v", err)
	}
	if got := good.claim("s", "after"); got.Outcome != wire.Granted {
		t.Errorf("others are served %+v", got)
	}
}

// Sockets that say nothing, or garbage, or huge lengths are dropped, and do not keep others out.
func TestHalfOpenConnections(t *testing.T) {
	t.Parallel()
	h := newHost(t, func(o *Options) { o.Limits.Handshakes = 10 })
	c := newCrew(t, 0)
	var silent []net.Conn
	for i := range 40 {
		conn, err := net.Dial("tcp", h.address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		switch i % 3 {
		case 1:
			_, _ = conn.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
		case 2:
			_, _ = conn.Write(binary.BigEndian.AppendUint32([]byte{22, 3, 1}, 0xffffffff))
		}
		silent = append(silent, conn)
	}
	// Who comes now is let in, over both.
	for _, transport := range []string{"tcp", "quic"} {
		if _, err := wire.Ask(within(t), dial(t, h, transport, c.founder), &wire.Ping{}); err != nil {
			t.Errorf("over %s: %v", transport, err)
		}
	}
	udp, err := net.Dial("udp", h.address)
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	for range 100 {
		noise := make([]byte, 1200)
		_, _ = rand.Read(noise)
		_, _ = udp.Write(noise)
	}
	// Those beyond the limit go as others come, the rest when their time for a handshake is over.
	for _, conn := range silent {
		_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, context.DeadlineExceeded) || err != nil && strings.Contains(err.Error(), "timeout") {
			t.Fatal("a connection that says nothing is kept")
		}
	}
	l := newLink(t, h, c, c.founder)
	if got := l.claim("s", "x"); got.Outcome != wire.Granted {
		t.Errorf("%+v", got)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	t.Run("requests in a time", func(t *testing.T) {
		t.Parallel()
		h := newHost(t, func(o *Options) { o.Limits.Rate, o.Limits.Burst = 1, 5 })
		c := newCrew(t, 1)
		l := newLink(t, h, c, c.founder)
		refused := 0
		for range 8 {
			if _, err := wire.Ask(within(t), l.conn, &wire.Ping{}); isFault(err, wire.SlowDown) && err.(*wire.Fault).After > 0 {
				refused++
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if refused < 3 { // opening was one of the five
			t.Errorf("%d of 8 are refused", refused)
		}
		if _, err := wire.Ask(within(t), dial(t, h, "tcp", c.founder), &wire.Ping{}); !isFault(err, wire.SlowDown) {
			t.Errorf("a second connection of the device: %v", err)
		}
		if _, err := wire.Ask(within(t), dial(t, h, "tcp", c.devices[1]), &wire.Ping{}); err != nil {
			t.Errorf("another device: %v", err)
		}
	})
	t.Run("requests at once", func(t *testing.T) {
		t.Parallel()
		h := newHost(t, func(o *Options) { o.Limits.Streams = 1 })
		c := newCrew(t, 1)
		stream, err := dial(t, h, "quic", c.founder).Open(within(t))
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Close()
		if err := stream.Send(wire.Encode(&wire.Open{Team: c.team, Repository: c.repository, Head: c.roster.Head})); err != nil {
			t.Fatal(err)
		}
		if m, err := wire.ReceiveMessage(stream); err != nil { // and waits for the roster's entries
			t.Fatal(err)
		} else if _, ok := m.(*wire.RosterWanted); !ok {
			t.Fatalf("the relay sends %T", m)
		}
		if _, err := wire.Ask(within(t), dial(t, h, "tcp", c.founder), &wire.Ping{}); !isFault(err, wire.Busy) {
			t.Errorf("a second request, on another connection of the device: %v", err)
		}
		if _, err := wire.Ask(within(t), dial(t, h, "tcp", c.devices[1]), &wire.Ping{}); err != nil {
			t.Errorf("another device: %v", err)
		}
	})
	t.Run("claims", func(t *testing.T) {
		t.Parallel()
		h := newHost(t, func(o *Options) { o.Limits.Claims = 2 })
		c := newCrew(t, 1)
		a, b := newLink(t, h, c, c.devices[0]), newLink(t, h, c, c.devices[1])
		a.claim("s", "1")
		a.claim("s", "2")
		if _, err := a.ask(a.claimOf("s", "3", drawClaim())); !isFault(err, wire.TooManyClaims) {
			t.Errorf("a third: %v", err)
		}
		if got := b.claim("s", "3"); got.Outcome != wire.Granted {
			t.Errorf("another device's: %+v", got)
		}
		if _, err := a.ask(&wire.Append{Repository: c.repository, Head: c.roster.Head, Acts: []arbiter.Request{arbiter.Stop{Who: a.who("s")}}}); err != nil {
			t.Fatal(err)
		}
		if got := a.claim("s", "4"); got.Outcome != wire.Granted {
			t.Errorf("after the others ended: %+v", got)
		}
	})
	t.Run("bytes of a claim", func(t *testing.T) {
		t.Parallel()
		h := newHost(t, func(o *Options) { o.Limits.ClaimBytes = 100 })
		c := newCrew(t, 0)
		a := newLink(t, h, c, c.founder)
		big := a.claimOf("s", "1", drawClaim())
		big.Detail = make([]byte, 101)
		if _, err := a.ask(big); !isFault(err, wire.TooLarge) {
			t.Errorf("%v", err)
		}
	})
	t.Run("connections of a device", func(t *testing.T) {
		t.Parallel()
		h := newHost(t, func(o *Options) { o.Limits.PerDevice = 2 })
		c := newCrew(t, 0)
		first, second, third := dial(t, h, "quic", c.founder), dial(t, h, "tcp", c.founder), dial(t, h, "quic", c.founder)
		<-first.Done()
		if !isClosed(first.Err(), wire.TooMany) {
			t.Errorf("the oldest of a device ends with %v", first.Err())
		}
		for _, conn := range []wire.Conn{second, third} {
			if _, err := wire.Ask(within(t), conn, &wire.Ping{}); err != nil {
				t.Errorf("a newer one: %v", err)
			}
		}
	})
	t.Run("connections", func(t *testing.T) {
		t.Parallel()
		h := newHost(t, func(o *Options) { o.Limits.Connections = 3 })
		c := newCrew(t, 2)
		for _, d := range c.devices {
			newLink(t, h, c, d)
		}
		last := dial(t, h, "tcp", drawDevice(t)) // it is told after hello
		<-last.Done()
		if !isClosed(last.Err(), wire.TooMany) {
			t.Errorf("one more than the relay takes ends with %v", last.Err())
		}
	})
	t.Run("strangers", func(t *testing.T) {
		t.Parallel()
		h := newHost(t, func(o *Options) { o.Limits.Connections = 8 })
		c := newCrew(t, 1)
		a := newLink(t, h, c, c.devices[0])
		var strangers []wire.Conn
		for i := range 5 {
			strangers = append(strangers, dial(t, h, []string{"quic", "tcp"}[i%2], drawDevice(t)))
		}
		for _, conn := range strangers[:3] { // two may be there
			<-conn.Done()
			if !isClosed(conn.Err(), wire.TooMany) {
				t.Errorf("the stranger who is there longest ends with %v", conn.Err())
			}
		}
		b := newLink(t, h, c, c.devices[1])
		for _, l := range []*link{a, b} {
			if got := l.claim("s", l.device.ID.String()); got.Outcome != wire.Granted {
				t.Errorf("who is known is answered %+v", got)
			}
		}
	})
	t.Run("repositories and teams", func(t *testing.T) {
		t.Parallel()
		h := newHost(t, func(o *Options) { o.Limits.Opened, o.Limits.Repositories, o.Limits.Teams = 1, 1, 1 })
		c := newCrew(t, 1)
		ids := c.repositories(2)
		l := newLink(t, h, c, c.founder)
		more := *c
		more.repository = ids[1]
		again := &link{t: t, crew: c, device: c.founder, conn: l.conn}
		if err := again.open(arbiter.Order{}, nil, ""); !isFault(err, wire.UnknownRepository) {
			t.Errorf("the same repository again: %v", err)
		}
		if _, err := tryOpen(t, h, &more, c.devices[1], ""); !isFault(err, wire.TooMany) {
			t.Errorf("a second repository: %v", err)
		}
		other := newCrew(t, 0)
		if _, err := tryOpen(t, h, other, other.founder, ""); !isFault(err, wire.TooMany) {
			t.Errorf("a second team: %v", err)
		}
	})
	t.Run("a limit of nothing", func(t *testing.T) {
		t.Parallel()
		o := Options{State: t.TempDir(), Limits: DefaultLimits()}
		o.Limits.Rate = 0
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), "--max-rate") {
			t.Errorf("%v", err)
		}
	})
}

// A device speaks for its own sessions, of repositories that it opened.
func TestSessionsOfOthers(t *testing.T) {
	t.Parallel()
	h := newHost(t, nil)
	c := newCrew(t, 1)
	a, b := newLink(t, h, c, c.devices[0]), newLink(t, h, c, c.devices[1])
	held := drawClaim()
	if _, err := a.ask(a.claimOf("s", "x", held)); err != nil {
		t.Fatal(err)
	}
	theirs := &wire.Release{Repository: c.repository, Release: arbiter.Release{Who: a.who("s"), Claims: []arbiter.ClaimID{held}, Reason: arbiter.Released}}
	if _, err := b.ask(theirs); !isFault(err, wire.NotYours) {
		t.Errorf("a release for another's session: %v", err)
	}
	if _, err := b.ask(&wire.Append{Repository: c.repository, Head: c.roster.Head, Acts: []arbiter.Request{arbiter.End{Who: a.who("s"), Reason: arbiter.EndOfLife}}}); !isFault(err, wire.NotYours) {
		t.Errorf("the end of another's session: %v", err)
	}
	lying := b.claimOf("t", "y", drawClaim())
	lying.Device = a.device.ID
	answer, err := b.ask(lying)
	if err != nil {
		t.Fatal(err)
	}
	b.reach(answer.Position)
	b.mu.Lock()
	if hold, ok := b.view.Claim(lying.Wants[0].ID, b.view.Time()); !ok || hold.Device != b.device.ID {
		t.Errorf("the claim is %v's", hold.Device)
	}
	b.mu.Unlock()
	twice := b.claimOf("t", "z", held) // another's claim id
	if _, err := b.ask(twice); !isFault(err, wire.NotYours) {
		t.Errorf("a claim under another's id: %v", err)
	}
	unopened := *b.claimOf("t", "q", drawClaim())
	unopened.Repository = gitlog.RepositoryID{9}
	if _, err := b.ask(&unopened); !isFault(err, wire.UnknownRepository) {
		t.Errorf("a repository that is not open: %v", err)
	}
	// The same claim asked for twice is granted once.
	again := b.claimOf("t", "once", drawClaim())
	for range 2 {
		if answer, err := b.ask(again); err != nil || answer.Outcome != wire.Granted {
			t.Errorf("%+v, %v", answer, err)
		}
	}
}

// Another team at the same relay that has got hold of this one's tokens, of sessions, claims and paths: what it does with them in a
// repository of its own touches nobody else's.
func TestAnotherTeamsTokens(t *testing.T) {
	t.Parallel()
	h := newHost(t, nil)
	c, other := newCrew(t, 1), newCrew(t, 0)
	a, b := newLink(t, h, c, c.devices[0]), newLink(t, h, c, c.devices[1])
	held := drawClaim()
	if _, err := a.ask(a.claimOf("s", "x", held)); err != nil {
		t.Fatal(err)
	}
	thief := newLink(t, h, other, other.founder)
	theirs := thief.claimOf("s", "x", held)
	theirs.Who = a.who("s")
	for what, m := range map[string]wire.Message{
		"a claim":   theirs,
		"a release": &wire.Release{Repository: other.repository, Release: arbiter.Release{Who: a.who("s"), Claims: []arbiter.ClaimID{held}, Reason: arbiter.Released}},
		"an end":    &wire.Append{Repository: other.repository, Head: other.roster.Head, Acts: []arbiter.Request{arbiter.End{Who: a.who("s"), Reason: arbiter.EndOfLife}}},
	} {
		if _, err := thief.ask(m); err != nil {
			t.Errorf("%s in a repository of its own: %v", what, err)
		}
	}
	for _, m := range []wire.Message{a.claimOf("s", "y", drawClaim()),
		&wire.Release{Repository: c.repository, Release: arbiter.Release{Who: a.who("s"), Claims: []arbiter.ClaimID{held}, Reason: arbiter.Released}}} {
		if _, err := thief.ask(m); !isFault(err, wire.UnknownRepository) {
			t.Errorf("in this team's repository: %v", err)
		}
	}
	if got := b.claim("t", "x"); got.Outcome != wire.Denied || got.Blocks[0].Holder.Device != a.device.ID {
		t.Errorf("the claim is not held any more: %+v", got)
	}
}

// Who does not read is dropped, and holds up nobody; who comes back finds what was missed.
func TestASlowReader(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"quic", "tcp"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, func(o *Options) {
				o.Limits.Slow = 3 * time.Second // who reads is never that late, on a busy machine either
				o.Limits.Rate, o.Limits.Burst = 100_000, 100_000
			})
			c := newCrew(t, 1)
			slow := dial(t, h, transport, c.devices[1])
			stream, err := slow.Open(within(t))
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.Send(wire.Encode(&wire.Open{Team: c.team, Repository: c.repository, Head: c.roster.Head})); err != nil {
				t.Fatal(err)
			}
			opened, err := meet(c, stream)
			if err != nil {
				t.Fatal(err)
			}
			a := newLink(t, h, c, c.founder)
			say := func() *wire.Answer {
				answer, err := a.ask(&wire.Append{Repository: c.repository, Head: c.roster.Head, Acts: []arbiter.Request{
					arbiter.Declare{Event: arbiter.Event{Who: a.who("s"), Kind: gitlog.Message, Detail: make([]byte, 16<<10)}}}})
				if err != nil {
					t.Fatal(err)
				}
				return answer
			}
			// Over QUIC the relay's patience ends first. Over TCP the client's own side may give the stream up before that, or
			// the connection would be held up for all of it.
			for start, dropped := time.Now(), false; !dropped; {
				if say(); time.Since(start) > time.Minute {
					t.Fatal("the slow reader is not dropped")
				}
				select {
				case <-slow.Done():
					dropped = true
					if transport == "quic" && !isClosed(slow.Err(), wire.SlowReader) {
						t.Errorf("it was dropped: %v", slow.Err())
					}
				case <-stream.Done():
					dropped = true
				default:
				}
			}
			last := say()
			a.reach(last.Position)
			back := &link{t: t, crew: c, device: c.devices[1], conn: dial(t, h, "quic", c.devices[1])}
			if err := back.open(opened.Position, nil, ""); err != nil {
				t.Fatal(err)
			}
			back.reach(last.Position)
		})
	}
}

// Many events come in few messages.
func TestEventsAreGathered(t *testing.T) {
	t.Parallel()
	h := newHost(t, func(o *Options) { o.Limits.Rate, o.Limits.Burst = 100_000, 100_000 })
	c := newCrew(t, 1)
	a := newLink(t, h, c, c.founder)
	conn := dial(t, h, "quic", c.devices[1])
	stream, err := conn.Open(within(t))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if err := stream.Send(wire.Encode(&wire.Open{Team: c.team, Repository: c.repository, Head: c.roster.Head})); err != nil {
		t.Fatal(err)
	}
	if _, err := meet(c, stream); err != nil {
		t.Fatal(err)
	}
	const asked = 1_000
	var work sync.WaitGroup
	for i := range 10 {
		work.Go(func() {
			for j := range asked / 10 {
				if _, err := a.ask(a.claimOf("s", fmt.Sprint(i, j), drawClaim())); err != nil {
					t.Error(err)
				}
			}
		})
	}
	events, messages := 0, 0
	for start := time.Now(); events < asked; {
		m, err := wire.ReceiveMessage(stream)
		if err != nil {
			t.Fatal(err)
		}
		if batch, ok := m.(*wire.Events); ok {
			events += len(batch.Events)
			messages++
		} else if time.Since(start) > 20*time.Second {
			t.Fatal("the events do not come")
		}
	}
	work.Wait()
	// At most the first 50 come alone, however fast they come, and then one message in 20 ms.
	if messages > asked/2 {
		t.Errorf("%d events in %d messages", events, messages)
	}
}

// The relay ends as it should: who is connected is told to come back, what was asked is answered.
func TestDraining(t *testing.T) {
	t.Parallel()
	h := newHost(t, nil)
	c := newCrew(t, 1)
	a := newLink(t, h, c, c.founder)
	b := &link{t: t, crew: c, device: c.devices[1], conn: dial(t, h, "tcp", c.devices[1])}
	if err := b.open(arbiter.Order{}, nil, ""); err != nil {
		t.Fatal(err)
	}
	a.claim("s", "x")
	h.drain()
	for _, l := range []*link{a, b} {
		l.await("farewell", func() bool { return l.bye != nil && l.bye.After > 0 })
		<-l.conn.Done()
		if err := l.conn.Err(); !isClosed(err, wire.Draining) {
			t.Errorf("%s ended with %v", l.conn.Transport(), err)
		}
	}
	if h.server.Healthy() == nil {
		t.Error("an ended relay is healthy")
	}
}

func TestAdminPages(t *testing.T) {
	t.Parallel()
	d := &crashDisk{files: map[string]*crashFile{}}
	h := newHost(t, func(o *Options) { o.disk = d })
	c := newCrew(t, 1)
	a := newLink(t, h, c, c.founder)
	a.claim("s", "x")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.server.Admin(ctx, listener) }()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	get := func(path string) (int, string) {
		t.Helper()
		r, err := client.Get("http://" + listener.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, string(text)
	}
	if code, text := get("/health"); code != http.StatusOK || text != "ok\n" {
		t.Errorf("/health: %d %q", code, text)
	}
	if code, text := get("/status"); code != http.StatusOK || !strings.Contains(text, c.team.String()) || !strings.Contains(text, h.server.Pin().String()) {
		t.Errorf("/status: %d %q", code, text)
	}
	_, text := get("/metrics")
	for _, line := range []string{
		"knoot_relay_connections 1", "knoot_relay_open_repositories 1", "knoot_relay_claims 1", `knoot_relay_requests_total{kind="claim"} 1`,
		`knoot_relay_claims_total{outcome="granted"} 1`, `knoot_relay_accepted_connections_total{transport="quic"} 1`, `knoot_relay_claim_seconds_count 1`,
		`knoot_relay_faults_total{fault="grace"} 0`,
	} {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("/metrics lacks %q", line)
		}
	}
	seen := map[string]bool{}
	for line := range strings.Lines(text) { // each family once, each sample of a family that was announced
		if name, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, _, _ = strings.Cut(name, " ")
			if seen[name] {
				t.Errorf("%s is announced twice", name)
			}
			seen[name] = true
		} else if !strings.HasPrefix(line, "#") {
			name := strings.FieldsFunc(line, func(r rune) bool { return r == '{' || r == ' ' })[0]
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				if base := strings.TrimSuffix(name, suffix); seen[base] {
					name = base
				}
			}
			if !seen[name] {
				t.Errorf("%q belongs to no family", line)
			}
		}
	}
	if code, _ := get("/else"); code != http.StatusNotFound {
		t.Errorf("/else: %d", code)
	}
	d.mu.Lock()
	d.fail = errors.New("<no space>")
	d.mu.Unlock()
	_, _ = a.ask(a.claimOf("s", "y", drawClaim()))
	<-a.conn.Done()
	if code, text := get("/health"); code != http.StatusServiceUnavailable || !strings.Contains(text, "<no space>") {
		t.Errorf("/health without a disk: %d %q", code, text)
	}
	if _, text := get("/status"); !strings.Contains(text, "&lt;no space&gt;") || strings.Contains(text, "<no space>") {
		t.Errorf("/status without a disk: %q", text)
	}
	d.mu.Lock()
	d.fail = nil
	d.mu.Unlock()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
