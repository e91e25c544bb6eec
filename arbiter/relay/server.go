// Package relay is the server that gives a team's machines one order of claims and passes their news on, and cannot read
// either: it compares tokens and carries sealed bytes.
//
// A [Server] listens for QUIC and for TLS on TCP on one port. Devices are admitted by their team's roster, of which it
// keeps the entries. Every repository has a sequencer (arbiter.Sequencer) whose events are on the disk before anyone hears
// of them. The disk holds what live leases and returning clients need and nothing that has to last: that is in git.
package relay

import (
	"context"
	"crypto/ed25519"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"knoot.dev/knoot/arbiter/wire"
	"knoot.dev/knoot/gitlog"
)

// TeamRule is a team that may use the relay.
type TeamRule struct {
	Team  gitlog.TeamID
	Entry *gitlog.Digest // of a fork of its roster, the branch with this entry counts; nil: the rules decide
}

// OldToken is an operator's token that still works for a while after it was replaced.
type OldToken struct {
	Token string
	Until time.Time // zero: until the relay is started without it
}

// Options say how a relay runs. State, Key and Log are required.
type Options struct {
	State       string // folder
	Key         ed25519.PrivateKey
	Fresh       bool             // the key was drawn just now
	Teams       []TeamRule       // empty: any team
	Token       string           // wanted at a team's first connection; empty: none is
	OldTokens   []OldToken       // work beside Token
	Certificate *tls.Certificate // of a public authority; nil: the key's own
	Limits      Limits
	Software    string // said to clients
	Log         *slog.Logger

	// For tests: the wall clock, the monotonic clock, the disk. Nil: the machine's.
	wall func() gitlog.Millis
	mono func() time.Duration
	disk disk
}

// Server is a relay.
type Server struct {
	options  Options
	key      relayKey
	log      *slog.Logger
	mono     func() time.Duration
	clock    *clock
	comeBack time.Duration // what clients are told when it ends
	metrics  metrics
	core     atomic.Pointer[core] // nil while the log cannot be written
	trouble  atomic.Pointer[error]

	life context.Context // ends when the relay drains
	end  context.CancelFunc

	handshakes atomic.Int64 // over QUIC, of connections that have not said hello
	greeting   lobby        // over TCP, likewise
	strangers  lobby        // connections that said hello and never opened a repository: anybody can make up a key

	mu          sync.Mutex
	teams       map[gitlog.TeamID]*team
	devices     map[gitlog.DeviceID]*device
	connections map[*connection]struct{}
}

const tickTime = 250 * time.Millisecond

// New reads the state and makes a relay of it. Serve runs it; Close frees it where Serve was never called.
func New(options Options) (*Server, error) {
	if err := options.Limits.check(); err != nil {
		return nil, err
	}
	s := &Server{
		options: options, key: relayKey{options.Key.Public().(ed25519.PublicKey), options.Key}, log: options.Log, mono: options.mono,
		comeBack: time.Second, devices: map[gitlog.DeviceID]*device{}, connections: map[*connection]struct{}{},
	}
	s.life, s.end = context.WithCancel(context.Background())
	s.greeting.most, s.strangers.most = options.Limits.Handshakes, 1+options.Limits.Connections/8
	if s.mono == nil {
		start := time.Now()
		s.mono = func() time.Duration { return time.Since(start) }
	}
	if options.wall == nil {
		s.options.wall = gitlog.Now
	}
	if options.disk == nil {
		s.options.disk = osDisk{}
	}
	s.clock = newClock(s.options.wall, s.mono)
	var err error
	if s.teams, err = readTeams(options.State); err != nil {
		return nil, err
	}
	for _, t := range s.teams {
		t.rule = s.rule(t.id)
	}
	core, err := s.openCore()
	if err != nil {
		return nil, err
	}
	s.core.Store(core)
	return s, nil
}

func (s *Server) openCore() (*core, error) {
	core, err := openCore(s.options.State, s.key, s.options.Fresh, s.clock, s.mono, &s.options.Limits, s.options.disk, &s.metrics)
	if err == nil {
		s.options.Fresh = false
	}
	return core, err
}

// Pin is the relay's key as clients pin it.
func (s *Server) Pin() wire.Pin { return wire.PinOf(s.key.public) }

func (s *Server) rule(id gitlog.TeamID) *TeamRule {
	if i := slices.IndexFunc(s.options.Teams, func(r TeamRule) bool { return r.Team == id }); i >= 0 {
		return &s.options.Teams[i]
	}
	return nil
}

// team finds a team that may use the relay, by the first rules of what a relay accepts. The caller lets go of it
// (letGo) once it has opened the team, or has not.
func (s *Server) team(id gitlog.TeamID, token string, log *slog.Logger) (*team, *wire.Fault) {
	rule := s.rule(id)
	if len(s.options.Teams) > 0 && rule == nil {
		return nil, &wire.Fault{Code: wire.TeamNotServed, Text: "the relay serves other teams"}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.teams[id]; t != nil && t.chain.Load() != nil {
		if s.options.Token != "" && token != "" {
			s.allows(token, id, log) // it needs none; an old one is logged all the same
		}
		t.users++
		return t, nil
	}
	if s.options.Token != "" && !s.allows(token, id, log) {
		return nil, &wire.Fault{Code: wire.OperatorToken, Text: "a team's first connection needs the operator's token"}
	}
	t := s.teams[id]
	if t == nil {
		if len(s.teams) >= s.options.Limits.Teams {
			return nil, &wire.Fault{Code: wire.TooMany, Text: "the relay keeps as many teams as it may"}
		}
		t = &team{id: id, path: teamPath(s.options.State, id), rule: rule}
		s.teams[id] = t
	}
	t.users++
	return t, nil
}

// letGo forgets a team that was named and never got a roster, or made-up names would fill the relay.
func (s *Server) letGo(t *team) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.users--; t.users == 0 && t.chain.Load() == nil {
		_ = t.close()
		delete(s.teams, t.id)
	}
}

// allows compares a token with the operator's. Each use of an old one is logged, so that the operator sees who still
// has it.
func (s *Server) allows(token string, team gitlog.TeamID, log *slog.Logger) bool {
	same := func(a string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(token)) == 1 }
	if same(s.options.Token) {
		return true
	}
	for _, old := range s.options.OldTokens {
		if same(old.Token) && (old.Until.IsZero() || s.options.wall() < gitlog.MillisOf(old.Until)) {
			s.metrics.oldTokens.Add(1)
			log.Warn("an old operator's token was used", "team", team.String())
			return true
		}
	}
	return false
}

// enter counts a connection that said hello; false where there are too many.
func (s *Server) enter(c *connection, id gitlog.DeviceID) bool {
	s.mu.Lock()
	if len(s.connections) >= s.options.Limits.Connections {
		s.mu.Unlock()
		return false
	}
	d := s.devices[id]
	if d == nil {
		now := s.mono()
		d = &device{
			id: id, requests: newRate(s.options.Limits.Rate, s.options.Limits.Burst, now),
			entries: newRate(s.options.Limits.RosterRate, s.options.Limits.RosterBurst, now),
		}
		s.devices[id] = d
	}
	c.device = d
	s.connections[c] = struct{}{}
	d.mu.Lock()
	d.connections = append(d.connections, c)
	var oldest *connection
	if len(d.connections) > s.options.Limits.PerDevice {
		oldest = d.connections[0]
		d.connections = d.connections[1:]
	}
	d.mu.Unlock()
	s.mu.Unlock()
	if oldest != nil {
		go oldest.conn.Close(wire.TooMany, "the device connected again")
	}
	return true
}

func (s *Server) leave(c *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.connections, c)
	d := c.device
	d.mu.Lock()
	defer d.mu.Unlock()
	d.connections = slices.DeleteFunc(d.connections, func(o *connection) bool { return o == c })
	d.left = s.mono()
}

// forgetDevices drops what is known of devices that have been away: their buckets are full again.
func (s *Server) forgetDevices() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, d := range s.devices {
		d.mu.Lock()
		if len(d.connections) == 0 && s.mono()-d.left > 5*time.Minute {
			delete(s.devices, id)
		}
		d.mu.Unlock()
	}
}

// teamChanged has a newer roster's consequences: it is sequenced in the team's repositories, and who was removed is cut.
func (s *Server) teamChanged(t *team, c change) {
	if !c.changed {
		return
	}
	if core := s.core.Load(); core != nil {
		for _, r := range core.all() {
			if r.key.team == t.id {
				if err := r.rosterChanged(c.removed); err != nil {
					s.log.Error("the roster's change is not sequenced", "error", err)
				}
			}
		}
	}
	if len(c.removed) == 0 {
		return
	}
	for _, conn := range s.current() {
		if slices.Contains(c.removed, conn.device.id) && conn.has(t) {
			conn.log.Info("removed", "team", t.id.String())
			s.metrics.fault(wire.Removed)
			go conn.conn.Close(wire.Removed, "the device was removed from its team")
		}
	}
}

// has says whether a connection has a repository of the team open.
func (c *connection) has(t *team) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.opened {
		if o.team == t {
			return true
		}
	}
	return false
}

func (s *Server) current() []*connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*connection, 0, len(s.connections))
	for c := range s.connections {
		all = append(all, c)
	}
	return all
}

// Sockets are where a relay listens: UDP and TCP of one port.
type Sockets struct {
	UDP net.PacketConn
	TCP net.Listener
}

// Listen opens both sockets. With port 0 the system chooses one that is free for both.
func Listen(address string) (*Sockets, error) {
	for try := 0; ; try++ {
		tcp, err := net.Listen("tcp", address)
		if err != nil {
			return nil, fmt.Errorf("cannot listen on %s: %w", address, err)
		}
		udp, err := net.ListenPacket("udp", tcp.Addr().String())
		if err == nil {
			return &Sockets{UDP: udp, TCP: tcp}, nil
		}
		_ = tcp.Close()
		if _, port, _ := net.SplitHostPort(address); port != "0" || try == 10 {
			return nil, fmt.Errorf("cannot listen on %s for UDP: %w", address, err)
		}
	}
}

// Close closes both, where Serve will not.
func (s *Sockets) Close() {
	_ = s.UDP.Close()
	_ = s.TCP.Close()
}

// drainTime is how long clients have to leave by themselves once the relay ends.
const drainTime = time.Second

// Serve serves until the context ends; then it drains: no new connection, what is under way is finished, clients are told
// to come back, the log is synced. It closes the sockets.
func (s *Server) Serve(ctx context.Context, sockets *Sockets) error {
	certificate := s.options.Certificate
	if certificate == nil {
		own, err := wire.Certificate(s.key.private)
		if err != nil {
			return err
		}
		certificate = &own
	}
	config := wire.ServerTLS(*certificate)
	reset, err := resetKey(s.key.private)
	if err != nil {
		return err
	}
	resetting := quic.StatelessResetKey(reset)
	transport := &quic.Transport{
		Conn: sockets.UDP, StatelessResetKey: &resetting,
		// Under load an address has to be shown to be real before a handshake costs anything.
		VerifySourceAddress: func(net.Addr) bool { return s.handshakes.Load() > int64(s.options.Limits.Handshakes/4) },
		ConnContext: func(ctx context.Context, _ *quic.ClientInfo) (context.Context, error) {
			if s.handshakes.Load() >= int64(s.options.Limits.Handshakes) {
				return nil, errors.New("too many connections at once")
			}
			s.handshakes.Add(1)
			greeted := sync.OnceFunc(func() { s.handshakes.Add(-1) })
			context.AfterFunc(ctx, greeted)
			return context.WithValue(ctx, greetingKey{}, greeted), nil
		},
	}
	listener, err := transport.Listen(config, wire.QUICConfig(false))
	if err != nil {
		return fmt.Errorf("cannot listen for QUIC: %w", err)
	}
	var work sync.WaitGroup
	work.Go(func() { s.acceptQUIC(listener, &work) })
	work.Go(func() { s.acceptTCP(sockets.TCP, config, &work) })
	ticking := make(chan struct{})
	go func() { defer close(ticking); s.keepGoing() }()
	<-ctx.Done()
	s.log.Info("draining")
	s.end()
	_ = listener.Close()
	_ = sockets.TCP.Close()
	work.Wait()
	_ = transport.Close()
	_ = sockets.UDP.Close()
	<-ticking
	s.Close()
	return nil
}

// Close syncs and closes the state.
func (s *Server) Close() {
	s.end()
	if core := s.core.Load(); core != nil {
		core.close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.teams {
		_ = t.close()
	}
}

// greetingKey finds in a connection's context what says that it is greeted.
type greetingKey struct{}

func (s *Server) acceptQUIC(listener *quic.Listener, work *sync.WaitGroup) {
	for {
		conn, err := listener.Accept(s.life)
		if err != nil {
			return
		}
		greeted := conn.Context().Value(greetingKey{}).(func())
		work.Go(func() { s.serveConnection(wire.NewQUIC(conn), greeted) })
	}
}

func (s *Server) acceptTCP(listener net.Listener, config *tls.Config, work *sync.WaitGroup) {
	for {
		raw, err := listener.Accept()
		if err != nil {
			if s.life.Err() != nil {
				return
			}
			s.log.Warn("cannot accept a connection", "error", err)
			time.Sleep(50 * time.Millisecond) // too many open files: it passes
			continue
		}
		greeted := s.greeting.enter(raw)
		work.Go(func() {
			conn, err := wire.AcceptTCP(s.life, raw, config)
			if err != nil {
				greeted()
				s.metrics.refused.Add(1)
				s.log.Debug("handshake", "from", raw.RemoteAddr().String(), "error", err)
				return
			}
			s.serveConnection(conn, greeted)
		})
	}
}

// keepGoing does what time brings, and makes the core anew from the disk after the log could not be written.
func (s *Server) keepGoing() {
	ticker := time.NewTicker(tickTime)
	defer ticker.Stop()
	for n := 0; ; n++ {
		core := s.core.Load()
		var failed <-chan struct{}
		if core != nil {
			failed = core.log.stopped
		}
		select {
		case <-s.life.Done():
			return
		case <-failed:
			s.lose(core)
			continue
		case <-ticker.C:
		}
		switch {
		case core != nil:
			if err := core.tick(); err != nil {
				s.log.Error("trouble", "error", err)
			}
		case n%4 == 0:
			again, err := s.openCore()
			if err != nil {
				s.trouble.Store(&err)
				continue
			}
			s.core.Store(again)
			s.trouble.Store(nil)
			s.log.Info("the log can be written again")
		}
		if n%64 == 0 {
			s.forgetDevices()
		}
	}
}

// lose gives up a core whose log cannot be written. Nobody has heard of what is not on the disk; clients come back to what
// is.
func (s *Server) lose(core *core) {
	err := core.log.failure()
	s.metrics.failures.Add(1)
	s.trouble.Store(&err)
	s.core.Store(nil)
	s.log.Error("the relay cannot go on", "error", err)
	for _, c := range s.current() {
		go c.conn.Close(wire.Unavailable, "the relay cannot write its log")
	}
}

// Healthy says why the relay cannot serve, nil while it can.
func (s *Server) Healthy() error {
	if s.life.Err() != nil {
		return errors.New("the relay is ending")
	}
	if err := s.trouble.Load(); err != nil {
		return *err
	}
	return nil
}

func (s *Server) gauges() gauges {
	s.mu.Lock()
	g := gauges{connections: len(s.connections), teams: len(s.teams), listeners: int(s.metrics.listening.Load())}
	s.mu.Unlock()
	core := s.core.Load()
	if core == nil {
		return g
	}
	now := s.clock.now()
	for _, r := range core.all() {
		g.repositories++
		r.core.world.RLock()
		r.mu.Lock()
		for _, n := range r.claims {
			g.claims += n
		}
		r.mu.Unlock()
		r.core.world.RUnlock()
	}
	g.logBytes = core.log.total.Load()
	g.grace = time.Duration(core.graceLeft(now)) * time.Millisecond
	return g
}
