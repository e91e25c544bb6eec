package daemon

import (
	"context"
	"crypto/ed25519"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/arbiter/relay"
	"knoot.dev/knoot/arbiter/wire"
	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/gitlog"
	"knoot.dev/knoot/integration/stage"
)

// relayHost is a relay under test on loopback, with a state that outlives it.
type relayHost struct {
	t       testing.TB
	state   string
	address string
	pin     string
	stop    func()
}

func newRelayHost(t testing.TB) *relayHost {
	h := &relayHost{t: t, state: t.TempDir(), address: stage.Address(t)}
	h.start()
	t.Cleanup(func() { h.stop() })
	return h
}

func (h *relayHost) start() {
	h.t.Helper()
	key, fresh, err := relay.LoadKey(relay.KeyPath(h.state, ""))
	if err != nil {
		h.t.Fatal(err)
	}
	log := io.Discard
	if os.Getenv("KNOOT_TEST_LOG") != "" {
		log = os.Stderr
	}
	server, err := relay.New(relay.Options{State: h.state, Key: key, Fresh: fresh, Limits: relay.DefaultLimits(), Software: "relay under test",
		Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		h.t.Fatal(err)
	}
	sockets, err := relay.Listen(h.address)
	if err != nil {
		h.t.Fatal(err)
	}
	h.address, h.pin = sockets.TCP.Addr().String(), server.Pin().String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, sockets) }()
	h.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			h.t.Errorf("the relay ended: %v", err)
		}
	})
}

// crew are two machines of one team at one relay, each with a clone and a running daemon.
type crew struct {
	t        testing.TB
	ash, sam *repository
	a, s     *daemon
}

// newCrew makes machines whose repository names a relay.
func newCrew(t testing.TB, address, pin string) *crew {
	c := newStillCrew(t, address, pin)
	c.a, c.s = c.ash.m.start(Options{}), c.sam.m.start(Options{})
	for d, r := range map[*daemon]*repository{c.a: c.ash, c.s: c.sam} {
		if _, err := d.clones.find(t.Context(), r.root); err != nil { // else a slow machine's first hook is over before
			t.Fatal(err)
		}
	}
	return c
}

// newStillCrew makes them without a daemon.
func newStillCrew(t testing.TB, address, pin string) *crew {
	c := &crew{t: t}
	m := newMachine(t)
	home := m.vars["HOME"]
	m.git(home, "init", "-q", "--bare", "-b", "main", "host.git")
	m.git(home, "clone", "-q", "host.git", "ash")
	c.ash = &repository{m: m, root: filepath.Join(home, "ash")}
	m.git(c.ash.root, "checkout", "-q", "-b", "main")
	c.ash.write("src/billing.js", "cents\n")
	ctx := t.Context()
	repo, err := gitlog.FindRepository(ctx, c.ash.root)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := gitlog.Init(ctx, repo, m.gitlogHome(), gitlog.InitOptions{Name: "ash", Address: "ash@example.com", Label: "ash's laptop", Relay: address, RelayKey: pin}); err != nil {
		t.Fatal(err)
	}
	m.git(c.ash.root, "add", ".")
	m.git(c.ash.root, "commit", "-qm", "start")
	m.git(c.ash.root, "push", "-q", "-u", "origin", "main")
	clone, err := gitlog.OpenClone(ctx, repo, m.gitlogHome())
	if err != nil {
		t.Fatal(err)
	}
	if err := clone.Lock(ctx); err != nil {
		t.Fatal(err)
	}
	var made *gitlog.Invitation
	if _, err := clone.ChangeRoster(ctx, gitlog.SyncOptions{}, func(change *gitlog.RosterChange) (err error) {
		made, err = change.Invite("sam@example.com", "sam", "laptop")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := clone.Close(); err != nil {
		t.Fatal(err)
	}
	m2 := &machine{t: t, vars: map[string]string{}}
	for name, value := range m.vars {
		m2.vars[name] = value
	}
	m2.vars["KNOOT_HOME"] = filepath.Join(home, "k2")
	if m2.loc, err = socket.Locate(m2.getenv); err != nil {
		t.Fatal(err)
	}
	m.git(home, "clone", "-q", "host.git", "sam")
	c.sam = &repository{m: m2, root: filepath.Join(home, "sam")}
	if repo, err = gitlog.FindRepository(ctx, c.sam.root); err != nil {
		t.Fatal(err)
	}
	if _, err := gitlog.Join(ctx, repo, m2.gitlogHome(), gitlog.JoinOptions{Key: made.Key(), Name: "sam", Address: "sam@example.com", Label: "sam's laptop"}); err != nil {
		t.Fatal(err)
	}
	if os.Getenv("KNOOT_TEST_LOG") != "" {
		t.Cleanup(func() {
			for _, m := range []*machine{m, m2} {
				text, _ := os.ReadFile(filepath.Join(m.loc.Home, "knootd.log"))
				t.Logf("%s", text)
			}
		})
	}
	return c
}

// connected waits until both machines have the repository open at the relay.
func (c *crew) connected() {
	c.t.Helper()
	for _, d := range []*daemon{c.a, c.s} {
		awaitTrue(c.t, "open at the relay", func() bool {
			all := d.clones.all()
			return len(all) == 1 && all[0].relay != nil && all[0].relay.prompt()
		})
	}
	awaitTrue(c.t, "one roster", func() bool {
		return c.a.clones.all()[0].relay.toldHead() == c.s.clones.all()[0].relay.toldHead()
	})
}

// toldHead is the head of the roster that the relay was told.
func (r *relayRepository) toldHead() gitlog.RosterHead {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.head
}

// awaitTrue waits until something is so.
func awaitTrue(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// knows waits until a machine's mirror has so many claims of other machines.
func knows(t testing.TB, d *daemon, n int) {
	t.Helper()
	awaitTrue(t, "claims of the other machine", func() bool {
		claims := 0
		for _, s := range d.clones.all()[0].arbiter.away.Load().standing() {
			claims += len(s.Claims)
		}
		return claims == n
	})
}

// hears waits until a session was told something with all these words, at a hook that means nothing.
func hears(t testing.TB, a *agent, words ...string) {
	t.Helper()
	awaitTrue(t, strings.Join(words, " "), func() bool {
		text := a.read("src/other.js")
		for _, word := range words {
			if !strings.Contains(text, word) {
				return false
			}
		}
		return true
	})
}

// refuses waits until a session is refused a file with these words. On a busy machine a hook that is not answered in time allows.
func refuses(t testing.TB, a *agent, path, words string) {
	t.Helper()
	denied := ""
	defer func() {
		if t.Failed() {
			t.Logf("%s was last told of %s: %q", a.session, path, denied)
		}
	}()
	awaitTrue(t, a.session+" is refused "+path, func() bool {
		denied = a.edit(path)
		return strings.Contains(denied, words)
	})
}

// begin begins a session.
func begin(r *repository, id string) *agent {
	a := &agent{r: r, session: id}
	a.start("startup")
	return a
}

func TestAnotherMachinesClaimDenies(t *testing.T) {
	h := newRelayHost(t)
	c := newCrew(t, h.address, h.pin)
	one, two := begin(c.ash, "one"), begin(c.sam, "two")
	c.connected()
	one.prompt("rewriting tax rounding for invoices")
	awaitTrue(t, "the intent is known on the other machine", func() bool {
		standing := c.s.clones.all()[0].relay.standing()
		return len(standing) == 1 && standing[0].Intent != ""
	})
	if denied := one.edit("src/tax.js"); denied != "" {
		t.Fatalf("the first write: %q", denied)
	}
	answer := two.about("src/tax.js")
	for _, part := range []string{"src/tax.js", "ash's agent", "branch main", `"rewriting tax rounding for invoices"`} {
		if !strings.Contains(answer.Deny, part) {
			t.Errorf("the denial lacks %q: %q", part, answer.Deny)
		}
	}
	wantHolds(t, c.sam, c.s, "one src/tax.js")
	// By the mirror as by the relay.
	knows(t, c.s, 1)
	if again := two.about("src/tax.js"); !strings.Contains(again.Deny, "again") {
		t.Errorf("the second time: %q", again.Deny)
	}
	if denied := two.edit("src/cart.js"); denied != "" {
		t.Errorf("another file: %q", denied)
	}
	one.stop()
	knows(t, c.s, 0)
	hears(t, two, "src/tax.js", "free")
	if denied := two.edit("src/tax.js"); denied != "" {
		t.Errorf("after the first stopped: %q", denied)
	}
	knows(t, c.a, 2)
	if denied := one.edit("src/tax.js"); !strings.Contains(denied, "sam's agent") {
		t.Errorf("the other way: %q", denied)
	}
}

// silentHost accepts and never answers: on TCP the handshake begins, UDP says nothing.
func silentHost(t *testing.T) string {
	tcp, err := net.Listen("tcp", stage.Address(t))
	if err != nil {
		t.Fatal(err)
	}
	udp, err := net.ListenPacket("udp", tcp.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	var conns []net.Conn
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := tcp.Accept()
			if err != nil {
				return
			}
			conns = append(conns, conn)
		}
	}()
	t.Cleanup(func() {
		_ = tcp.Close()
		_ = udp.Close()
		<-done
		for _, conn := range conns {
			_ = conn.Close()
		}
	})
	return tcp.Addr().String()
}

// muteHost greets, and opens repositories and gives signs of life where that is wanted, and answers nothing else.
func muteHost(t *testing.T, opens, lives bool) (address, pin string) {
	return oddHost(t, func(_ wire.Conn, stream wire.Stream, m wire.Message) {
		switch m := m.(type) {
		case *wire.Open:
			if opens {
				_ = stream.Send(wire.Encode(&wire.Opened{Now: gitlog.Now(), Head: m.Head}))
			}
		case *wire.Ping:
			if lives {
				_ = stream.Send(wire.Encode(&wire.Pong{}))
			}
		}
	})
}

// oddHost greets as a relay does, over TCP, and does with all other requests what a test wants.
func oddHost(t *testing.T, answer func(conn wire.Conn, stream wire.Stream, m wire.Message)) (address, pin string) {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := wire.Certificate(key)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	serve := func(conn wire.Conn) {
		for {
			stream, err := conn.Accept(ctx)
			if err != nil {
				return
			}
			work.Go(func() {
				m, err := wire.ReceiveMessage(stream)
				if err != nil {
					return
				}
				if _, greets := m.(*wire.Hello); !greets {
					answer(conn, stream, m)
					return
				}
				welcome := &wire.Welcome{Version: wire.Version, Now: gitlog.Now()}
				copy(welcome.Key[:], key.Public().(ed25519.PublicKey))
				_ = stream.Send(wire.Encode(welcome))
				stream.Close()
			})
		}
	}
	work.Go(func() {
		for {
			raw, err := listener.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				conn, err := wire.AcceptTCP(ctx, raw, wire.ServerTLS(certificate))
				if err != nil {
					return
				}
				defer conn.Close(0, "")
				serve(conn)
			})
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = listener.Close()
		work.Wait()
	})
	return listener.Addr().String(), wire.PinOf(key.Public().(ed25519.PublicKey)).String()
}

// A relay that opened the repository and then says nothing costs one hook 150 ms, and is dropped.
func TestARelayThatFallsSilentCostsLittle(t *testing.T) {
	address, pin := muteHost(t, true, false)
	c := newCrew(t, address, pin)
	one := begin(c.ash, "one")
	relay := func() *relayRepository { return c.a.clones.all()[0].relay }
	awaitTrue(t, "open", func() bool { return relay().open() != nil })
	relay().mu.Lock()
	conn := relay().conn
	relay().mu.Unlock()
	if denied := one.edit("src/a.js"); denied != "" {
		t.Errorf("denied: %q", denied)
	}
	awaitTrue(t, "nobody waits for it any more", func() bool { return !relay().link.answers(conn) })
	if denied := one.edit("src/b.js"); denied != "" {
		t.Errorf("denied: %q", denied)
	}
	<-conn.Done()
}

// Whatever a relay does, the agents work, and each machine's own order holds.
func TestARelayThatFailsDeniesNothing(t *testing.T) {
	nobody := stage.Address(t)
	other := newRelayHost(t)
	mute, mutePin := muteHost(t, false, false)
	pin := "sha256:" + strings.Repeat("ab", 32)
	for what, at := range map[string][2]string{
		"nobody listens":             {nobody, pin},
		"accepts and never answers":  {silentHost(t), pin},
		"has another key":            {other.address, pin},
		"has no certificate":         {other.address, ""},
		"an address that is none":    {"nowhere", pin},
		"a key that is none":         {other.address, "sha256:ab"},
		"greets and never answers":   {mute, mutePin},
		"a name that nobody has":     {"relay.invalid:7420", pin},
		"a port that nobody may use": {"127.0.0.1:0", pin},
	} {
		t.Run(what, func(t *testing.T) {
			c := newCrew(t, at[0], at[1])
			one, two, three := begin(c.ash, "one"), begin(c.sam, "two"), begin(c.ash, "three")
			for _, a := range []*agent{one, two} {
				start := time.Now()
				if denied := a.edit("src/tax.js"); denied != "" {
					t.Errorf("%s is denied: %q", a.session, denied)
				}
				if took := time.Since(start); took > 5*time.Second {
					t.Errorf("a hook waits %v for a relay that is not there", took)
				}
			}
			if denied := three.edit("src/tax.js"); denied == "" {
				t.Error("the machine's own order is gone")
			}
		})
	}
}

// The relay goes and comes back: meanwhile everybody works, and then there is one order again.
func TestOrderIsRestored(t *testing.T) {
	h := newRelayHost(t)
	c := newCrew(t, h.address, h.pin)
	one, two := begin(c.ash, "one"), begin(c.sam, "two")
	c.connected()
	one.edit("src/a.js")
	knows(t, c.s, 1)
	h.stop()
	for _, d := range []*daemon{c.a, c.s} {
		awaitTrue(t, "the relay is gone", func() bool { return d.clones.all()[0].relay.open() == nil })
	}
	if denied := one.edit("src/b.js"); denied != "" {
		t.Errorf("without the relay: %q", denied)
	}
	if denied := two.edit("src/c.js"); denied != "" {
		t.Errorf("without the relay: %q", denied)
	}
	// Nobody denies by what was heard when it was there.
	c.s.clones.all()[0].relay.link.heardAt(time.Now().Add(-time.Minute))
	if denied := two.edit("src/a.js"); denied != "" {
		t.Errorf("by an old word: %q", denied)
	}
	h.start()
	c.connected()
	knows(t, c.s, 2)
	knows(t, c.a, 1)
	awaitTrue(t, "the relay's order holds", func() bool {
		for _, held := range c.sam.standingClaims(c.s) {
			if held == "two src/a.js" {
				return false
			}
		}
		return true
	})
	// What both changed both hear of.
	hears(t, two, "src/a.js", "ash's agent")
	hears(t, one, "src/a.js", "sam's agent")
	if denied := two.edit("src/b.js"); !strings.Contains(denied, "ash's agent") {
		t.Errorf("a claim of the time without a relay: %q", denied)
	}
	if denied := one.edit("src/c.js"); !strings.Contains(denied, "sam's agent") {
		t.Errorf("a claim of the time without a relay: %q", denied)
	}
}

// heardAt says when the relay was heard last.
func (l *relayLink) heardAt(at time.Time) {
	l.mu.Lock()
	l.heard = at
	l.mu.Unlock()
}

// A connection that is there says nothing of a repository that is not followed on it.
func TestAMirrorThatIsNotFollowedDeniesNothing(t *testing.T) {
	h := newRelayHost(t)
	c := newCrew(t, h.address, h.pin)
	one, two := begin(c.ash, "one"), begin(c.sam, "two")
	c.connected()
	one.edit("src/a.js")
	knows(t, c.s, 1)
	if answer := two.about("src/a.js"); answer.Deny == "" {
		t.Fatal("while it is followed nothing is denied")
	}
	relay := c.s.clones.all()[0].relay
	relay.shut(errors.New("the relay has no room for this repository"))
	if !relay.link.lately() {
		t.Fatal("the connection is gone, too")
	}
	if answer := two.about("src/a.js"); answer.Deny != "" {
		t.Errorf("by a mirror of a while ago: %q", answer.Deny)
	}
}

// While a relay is told what happened before it was there no hook waits for it.
func TestNobodyWaitsForARelayThatIsBehind(t *testing.T) {
	address, pin := muteHost(t, true, true)
	c := newCrew(t, address, pin)
	one := begin(c.ash, "one")
	relay := c.a.clones.all()[0].relay
	awaitTrue(t, "open", func() bool { return relay.open() != nil }) // and it does not take in the session
	least := time.Hour
	for _, path := range []string{"src/a.js", "src/b.js", "src/c.js", "src/d.js", "src/e.js"} {
		start := time.Now()
		if denied := one.edit(path); denied != "" {
			t.Errorf("denied: %q", denied)
		}
		least = min(least, time.Since(start))
		awaitTrue(t, "a sign of life", func() bool { return relay.open() != nil })
	}
	if least >= claimTime {
		t.Errorf("the quickest hook took %v", least)
	}
}

// A repository whose relay does not keep up is opened again, on the connection that others are at work on.
func TestTooMuchThatWaitsHasTheRepositoryOpenedAgain(t *testing.T) {
	h := newRelayHost(t)
	c := newCrew(t, h.address, h.pin)
	one := begin(c.ash, "one")
	c.connected()
	one.edit("src/a.js")
	knows(t, c.s, 1)
	relay := c.a.clones.all()[0].relay
	relay.mu.Lock()
	conn, since := relay.conn, relay.since
	relay.mu.Unlock()
	relay.request(make([]arbiter.Request, maxRelayOutbox+1)...)
	awaitTrue(t, "opened again", func() bool {
		relay.mu.Lock()
		defer relay.mu.Unlock()
		return relay.conn != nil && relay.since != since
	})
	if now := relay.open(); now != conn {
		t.Errorf("the connection is another one: %v, it was %v", now, conn)
	}
	one.edit("src/b.js")
	knows(t, c.s, 2)
}

// heardLast is when the relay was heard last.
func (l *relayLink) heardLast() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.heard
}

// A claim of the moment in which a relay is asked for a sign of life is asked for all the same, and nobody waits for that.
func TestAClaimOfAMomentOfSilenceReachesTheRelay(t *testing.T) {
	h := newRelayHost(t)
	c := newCrew(t, h.address, h.pin)
	one := begin(c.ash, "one")
	c.connected()
	link := c.a.clones.all()[0].relay.link
	link.mu.Lock()
	link.suspect = true
	link.mu.Unlock()
	if denied := one.edit("src/a.js"); denied != "" {
		t.Errorf("denied: %q", denied)
	}
	knows(t, c.s, 1)
}
