package relay

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"filippo.io/age"
	"go.uber.org/goleak"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/arbiter/wire"
	"knoot.dev/knoot/gitlog"
	"knoot.dev/knoot/integration/stage"
)

func TestMain(m *testing.M) {
	beChild()
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		stage.Leave()
		os.Exit(code)
	}))
}

// crew is a team in the making, as its members' clones have it.
type crew struct {
	t          testing.TB
	team       gitlog.TeamID
	repository gitlog.RepositoryID
	roster     *gitlog.Roster
	entries    [][]byte
	founder    *gitlog.Device
	devices    []*gitlog.Device
	now        gitlog.Millis
}

func drawDevice(t testing.TB) *gitlog.Device {
	t.Helper()
	identity, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &gitlog.Device{ID: gitlog.DeviceIDOf(public), Sign: private, Age: identity}
}

// newCrew founds a team and lets more devices of its founder in.
func newCrew(t testing.TB, more int) *crew {
	t.Helper()
	c := &crew{t: t, founder: drawDevice(t), now: gitlog.Now()}
	_, _ = rand.Read(c.repository[:])
	team, genesis, err := gitlog.Found(c.founder, gitlog.Founding{
		Name: "ann", Address: "ann@example.org", Repository: c.repository, Now: c.now, Random: rand.Reader,
	})
	if err != nil {
		t.Fatal(err)
	}
	c.team, c.entries, c.devices = team, [][]byte{genesis.Entry}, []*gitlog.Device{c.founder}
	if c.roster, err = gitlog.VerifyRoster(team, []gitlog.RosterCommit{genesis}); err != nil {
		t.Fatal(err)
	}
	const fit = 100 // in one entry
	for more > 0 {
		n := min(more, fit)
		more -= n
		c.change(c.founder, func(change *gitlog.RosterChange) error {
			for range n {
				d := drawDevice(t)
				c.devices = append(c.devices, d)
				if err := change.AddDevice(d, "one more"); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return c
}

func (c *crew) change(signer *gitlog.Device, change func(*gitlog.RosterChange) error) {
	c.t.Helper()
	c.now++
	commit, after, err := c.roster.Change(signer, c.now, change)
	if err != nil {
		c.t.Fatal(err)
	}
	c.entries, c.roster = append(c.entries[:len(c.entries):len(c.entries)], commit.Entry), after
}

func (c *crew) remove(d *gitlog.Device) {
	c.t.Helper()
	c.change(c.founder, func(change *gitlog.RosterChange) error { return change.RemoveDevice(d.ID, 0) })
}

// branch is the crew as somebody has it who goes another way from here.
func (c *crew) branch() *crew {
	other := *c
	other.now++ // or two equal changes would be one entry
	return &other
}

// host is a relay under test: the state folder and key that outlive it, and what runs on them now.
type host struct {
	t       testing.TB
	options Options
	address string

	server *Server
	stop   context.CancelFunc
	ended  chan error
}

// newHost begins a relay on a state folder of its own.
func newHost(t testing.TB, change func(*Options)) *host {
	t.Helper()
	h := &host{t: t, options: Options{State: t.TempDir(), Limits: DefaultLimits(), Software: "relay under test", Log: slog.New(slog.NewTextHandler(io.Discard, nil))}}
	if os.Getenv("KNOOT_TEST_LOG") != "" {
		h.options.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	if change != nil {
		change(&h.options)
	}
	h.start()
	t.Cleanup(h.drain)
	return h
}

func (h *host) start() {
	h.t.Helper()
	key, fresh, err := LoadKey(KeyPath(h.options.State, ""))
	if h.options.Key == nil {
		h.options.Key, h.options.Fresh = key, fresh
	}
	if err != nil {
		h.t.Fatal(err)
	}
	if h.server, err = New(h.options); err != nil {
		h.t.Fatal(err)
	}
	h.options.Fresh = false
	if h.address == "" {
		h.address = stage.Address(h.t)
	}
	sockets, err := Listen(h.address)
	if err != nil {
		h.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	h.stop, h.ended = stop, make(chan error, 1)
	go func() { h.ended <- h.server.Serve(ctx, sockets) }()
}

// drain ends the relay as SIGTERM does.
func (h *host) drain() {
	h.t.Helper()
	if h.stop == nil {
		return
	}
	h.stop()
	if err := <-h.ended; err != nil {
		h.t.Errorf("the relay ended: %v", err)
	}
	h.stop = nil
}

func (h *host) restart() {
	h.t.Helper()
	h.drain()
	h.start()
}

// link is a device's connection, and what it knows of the repository that it opened.
type link struct {
	t      testing.TB
	crew   *crew
	device *gitlog.Device
	conn   wire.Conn

	mu      sync.Mutex
	changed sync.Cond
	view    *arbiter.View
	events  []arbiter.Event
	grants  map[arbiter.ClaimID][]byte
	opened  *wire.Opened
	ended   error // of the stream of events
	bye     *wire.Farewell
}

func clientTLS(t testing.TB, h *host, device *gitlog.Device) *tls.Config {
	t.Helper()
	certificate, err := wire.Certificate(device.Sign)
	if err != nil {
		t.Fatal(err)
	}
	pin := h.server.Pin()
	return wire.ClientTLS(certificate, &pin, "")
}

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func dial(t testing.TB, h *host, transport string, device *gitlog.Device) wire.Conn {
	t.Helper()
	how := wire.DialQUIC
	if transport == "tcp" {
		how = wire.DialTCP
	}
	conn, welcome, err := how(within(t), h.address, clientTLS(t, h, device), "test")
	if err != nil {
		t.Fatal(err)
	}
	if welcome.Version != wire.Version || wire.PinOf(welcome.Key[:]) != h.server.Pin() {
		t.Fatalf("welcomed by %+v", welcome)
	}
	t.Cleanup(func() { conn.Close(0, "") })
	return conn
}

// newLink connects and opens the crew's repository.
func newLink(t testing.TB, h *host, c *crew, device *gitlog.Device) *link {
	t.Helper()
	l := &link{t: t, crew: c, device: device, conn: dial(t, h, "quic", device)}
	if err := l.open(arbiter.Order{}, nil, ""); err != nil {
		t.Fatal(err)
	}
	return l
}

// open opens the repository from a position on and follows its events.
func (l *link) open(from arbiter.Order, view *arbiter.View, token string) error {
	l.changed.L = &l.mu
	l.view, l.grants = view, map[arbiter.ClaimID][]byte{}
	if view == nil {
		l.view = arbiter.New()
	}
	stream, err := l.conn.Open(within(l.t))
	if err != nil {
		return err
	}
	l.t.Cleanup(stream.Close)
	if err := stream.Send(wire.Encode(&wire.Open{
		Team: l.crew.team, Repository: l.crew.repository, Head: l.crew.roster.Head, Position: from, Token: token,
	})); err != nil {
		return err
	}
	opened, err := meet(l.crew, stream)
	if err != nil {
		return err
	}
	l.opened = opened
	var snapshot []byte
	for uint64(len(snapshot)) < opened.Snapshot {
		m, err := wire.ReceiveMessage(stream)
		if err != nil {
			return err
		}
		snapshot = append(snapshot, m.(*wire.SnapshotPart).Bytes...)
	}
	if len(snapshot) > 0 {
		s, err := wire.DecodeSnapshot(snapshot)
		if err != nil {
			return err
		}
		l.view = arbiter.Restore(*s)
	}
	go l.follow(stream)
	return nil
}

// meet is the client's side of bringing two rosters together.
func meet(c *crew, stream wire.Stream) (*wire.Opened, error) {
	for {
		m, err := wire.ReceiveMessage(stream)
		if err != nil {
			return nil, err
		}
		switch m := m.(type) {
		case *wire.Opened:
			return m, nil
		case *wire.RosterWanted:
			err = wire.SendRoster(func(m wire.Message) error { return stream.Send(wire.Encode(m)) }, m.From, uint64(len(c.entries))-m.From,
				func(seq uint64) ([]byte, error) { return c.entries[seq], nil })
			if err != nil {
				return nil, err
			}
		case *wire.RosterPart: // a client has git for this
		default:
			return nil, fmt.Errorf("the relay sends %T", m)
		}
	}
}

func (l *link) follow(stream wire.Stream) {
	for {
		m, err := wire.ReceiveMessage(stream)
		l.mu.Lock()
		switch m := m.(type) {
		case *wire.Events:
			for _, e := range m.Events {
				l.view.Apply(e)
				l.events = append(l.events, e)
			}
		case *wire.GrantIssued:
			l.grants[m.Claim] = m.Grant
		case *wire.Farewell:
			l.bye = m
		}
		if err != nil {
			l.ended = err
		}
		l.changed.Broadcast()
		l.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// await waits until something is so in what the link knows.
func (l *link) await(what string, is func() bool) {
	l.t.Helper()
	done := time.AfterFunc(20*time.Second, func() { l.mu.Lock(); l.changed.Broadcast(); l.mu.Unlock() })
	defer done.Stop()
	start := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for !is() {
		if time.Since(start) > 20*time.Second {
			l.t.Fatalf("never: %s (%d events, %v)", what, len(l.events), l.ended)
		}
		l.changed.Wait()
	}
}

// reach waits until the link knows an event.
func (l *link) reach(o arbiter.Order) {
	l.t.Helper()
	l.await(fmt.Sprintf("event %v", o), func() bool { return l.view.Position().Compare(o) >= 0 })
}

// sameView says whether two links that have reached one event see one state.
func sameView(a, b *link) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	return a.view.Equal(b.view)
}

func (l *link) ask(m wire.Message) (*wire.Answer, error) {
	answer, err := wire.Ask(within(l.t), l.conn, m)
	if err != nil {
		return nil, err
	}
	return answer.(*wire.Answer), nil
}

// token stands for a name in tests.
func token(parts ...any) arbiter.Token {
	sum := sha256.Sum256([]byte(fmt.Sprintln(parts...)))
	return arbiter.Token(sum[:16])
}

// who is a session of the link's device on main in a worktree of its own.
func (l *link) who(session string) arbiter.Who {
	return arbiter.Who{Session: token(l.device.ID, session), Branch: token("main"), Worktree: token(l.device.ID, "worktree")}
}

func path(name string) arbiter.Path {
	return arbiter.Path{Own: token("path", name), Ancestors: []arbiter.Token{token("dir", "src"), token("dir", "")}}
}

func (l *link) claimOf(session, name string, id arbiter.ClaimID) *wire.Claim {
	return &wire.Claim{
		Repository: l.crew.repository, Head: l.crew.roster.Head,
		Claim:  arbiter.Claim{Who: l.who(session), Wants: []arbiter.Want{{ID: id, Path: path(name), Class: arbiter.File}}},
		Detail: []byte("sealed for " + name),
	}
}

// claim asks for one file.
func (l *link) claim(session, name string) *wire.Answer {
	l.t.Helper()
	answer, err := l.ask(l.claimOf(session, name, drawClaim()))
	if err != nil {
		l.t.Fatal(err)
	}
	return answer
}

var drawn struct {
	sync.Mutex
	n uint64
}

func drawClaim() (id arbiter.ClaimID) {
	drawn.Lock()
	defer drawn.Unlock()
	drawn.n++
	binary.BigEndian.PutUint64(id[8:], drawn.n)
	_, _ = rand.Read(id[:8])
	return id
}

func isFault(err error, code wire.Code) bool {
	var fault *wire.Fault
	return errors.As(err, &fault) && fault.Code == code
}

func isClosed(err error, code wire.Code) bool {
	var closed *wire.ClosedError
	return errors.As(err, &closed) && closed.Code == code
}

// One device's claim is another's denial, on both transports, and both see the same order.
func TestClaimsAcrossMachines(t *testing.T) {
	t.Parallel()
	h := newHost(t, nil)
	c := newCrew(t, 2)
	a, b := newLink(t, h, c, c.devices[0]), &link{t: t, crew: c, device: c.devices[1], conn: dial(t, h, "tcp", c.devices[1])}
	if err := b.open(arbiter.Order{}, nil, ""); err != nil {
		t.Fatal(err)
	}
	first := drawClaim()
	if got, err := a.ask(a.claimOf("one", "auth.js", first)); err != nil || got.Outcome != wire.Granted {
		t.Fatalf("the first: %+v (%v)", got, err)
	}
	denied := b.claim("two", "auth.js")
	if denied.Outcome != wire.Denied || len(denied.Blocks) != 1 {
		t.Fatalf("the second: %+v", denied)
	}
	block := denied.Blocks[0]
	if block.Holder.Session != a.who("one").Session || block.Holder.Device != a.device.ID || string(block.Detail) != "sealed for auth.js" {
		t.Errorf("blocked by %+v", block)
	}
	if block.Left == 0 || block.Left > arbiter.Lease {
		t.Errorf("for %d ms more", block.Left)
	}
	if got := b.claim("two", "other.js"); got.Outcome != wire.Granted {
		t.Errorf("another file: %+v", got)
	}
	// A batch is granted whole or not at all.
	batch := b.claimOf("two", "third.js", drawClaim())
	batch.Wants = append(batch.Wants, arbiter.Want{ID: drawClaim(), Path: path("auth.js"), Class: arbiter.File})
	if got, err := b.ask(batch); err != nil || got.Outcome != wire.Denied || len(got.Blocks) != 1 {
		t.Errorf("a batch with a file that is held: %+v (%v)", got, err)
	}
	if got := a.claim("one", "third.js"); got.Outcome != wire.Granted {
		t.Errorf("the free file of a denied batch: %+v", got)
	}
	// With Note the writer goes on, and waits for nothing.
	note := b.claimOf("two", "auth.js", drawClaim())
	note.Note = true
	if got, err := b.ask(note); err != nil || got.Outcome != wire.Refused || len(got.Blocks) != 1 {
		t.Errorf("with note: %+v (%v)", got, err)
	}
	released, err := a.ask(&wire.Release{Repository: c.repository, Release: arbiter.Release{
		Who: a.who("one"), Claims: []arbiter.ClaimID{first}, Reason: arbiter.Released,
	}})
	if err != nil {
		t.Fatal(err)
	}
	a.reach(released.Position)
	b.reach(released.Position)
	b.await("b hears that the file is free", func() bool {
		for _, e := range b.events {
			if e.Kind == gitlog.PathFreed && e.Session == b.who("two").Session {
				return true
			}
		}
		return false
	})
	if got := b.claim("two", "auth.js"); got.Outcome != wire.Granted {
		t.Errorf("after the release: %+v", got)
	}
	last := a.claim("one", "last.js")
	a.reach(last.Position)
	b.reach(last.Position)
	if !sameView(a, b) {
		t.Error("two machines see two states")
	}
	for i := 1; i < len(b.events); i++ {
		if was, is := b.events[i-1].Order, b.events[i].Order; is.Term != was.Term || is.Seq != was.Seq+1 {
			t.Errorf("%v after %v", is, was)
		}
	}
}

// What was granted is known after a restart, in a higher term, and a client goes on where it was.
func TestARestartForgetsNothing(t *testing.T) {
	t.Parallel()
	h := newHost(t, nil)
	c := newCrew(t, 1)
	a := newLink(t, h, c, c.devices[0])
	granted := a.claim("one", "auth.js")
	a.reach(granted.Position)
	h.restart()
	a.await("the farewell", func() bool { return a.bye != nil })

	back := &link{t: t, crew: c, device: a.device, conn: dial(t, h, "quic", a.device)}
	if err := back.open(granted.Position, a.view, ""); err != nil {
		t.Fatal(err)
	}
	if back.opened.Snapshot != 0 || back.opened.Position != granted.Position {
		t.Errorf("not resumed: %+v", back.opened)
	}
	b := newLink(t, h, c, c.devices[1])
	denied := b.claim("two", "auth.js")
	if denied.Outcome != wire.Denied {
		t.Fatalf("a lease is forgotten: %+v", denied)
	}
	if denied.Position.Term <= granted.Position.Term {
		t.Errorf("term %d after %d", denied.Position.Term, granted.Position.Term)
	}
	back.reach(denied.Position)
	b.reach(denied.Position)
	if !sameView(back, b) {
		t.Error("who resumed sees another state than who got a snapshot")
	}
}
