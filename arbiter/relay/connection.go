package relay

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"knoot.dev/knoot/arbiter/wire"
	"knoot.dev/knoot/gitlog"
)

// connection is a device's connection that said hello.
type connection struct {
	server *Server
	conn   wire.Conn
	key    ed25519.PublicKey
	device *device
	log    *slog.Logger
	known  func() // the connection has opened a repository

	mu     sync.Mutex
	opened map[gitlog.RepositoryID]*opened
}

// opened is a repository that a connection has open.
type opened struct {
	team       *team
	repository *repository
}

// device is what all connections of one device share.
type device struct {
	id     gitlog.DeviceID
	asking atomic.Int32 // requests that are under way

	mu          sync.Mutex
	requests    rate
	entries     rate
	connections []*connection // oldest first
	left        time.Duration // when the last one ended, by the monotonic clock
}

// helloTime is how long a new connection has to say hello, and a new stream its first message.
const helloTime = 5 * time.Second

// serveConnection speaks with one client until the connection ends.
func (s *Server) serveConnection(conn wire.Conn, greeted func()) {
	c := &connection{server: s, conn: conn, key: conn.Peer(), opened: map[gitlog.RepositoryID]*opened{}}
	id := gitlog.DeviceIDOf(c.key)
	c.log = s.log.With("device", id.String(), "from", conn.Addr().String(), "transport", conn.Transport())
	software, err := c.greet()
	greeted()
	if err != nil {
		s.metrics.refused.Add(1)
		c.log.Debug("connection without hello", "error", err)
		conn.Close(wire.Malformed, "hello was expected")
		return
	}
	if !s.enter(c, id) {
		s.metrics.fault(wire.TooMany)
		conn.Close(wire.TooMany, "the relay has as many connections as it takes")
		return
	}
	defer s.leave(c)
	c.known = s.strangers.enter(closing(func() { go conn.Close(wire.TooMany, "others came that may have more to say") }))
	defer c.known()
	s.metrics.accepted[map[string]int{"quic": 0, "tcp": 1}[conn.Transport()]].Add(1)
	c.log.Info("connected", "software", software)
	var streams sync.WaitGroup
	for {
		stream, err := conn.Accept(s.life)
		if err != nil {
			break
		}
		streams.Go(func() { c.serveStream(stream) })
	}
	if s.life.Err() != nil {
		streams.Wait() // those that listen say farewell
		select {
		case <-conn.Done(): // the client has read it
		case <-time.After(drainTime):
		}
		conn.Close(wire.Draining, "the relay ends")
	}
	<-conn.Done()
	streams.Wait()
	c.log.Info("disconnected", "reason", conn.Err())
}

// greet answers the client's hello.
func (c *connection) greet() (software string, err error) {
	ctx, cancel := context.WithTimeout(c.server.life, helloTime)
	defer cancel()
	stream, err := c.conn.Accept(ctx)
	if err != nil {
		return "", err
	}
	defer stream.Close()
	_ = stream.SetDeadline(time.Now().Add(helloTime))
	m, err := wire.ReceiveMessage(stream)
	if err != nil {
		return "", err
	}
	hello, ok := m.(*wire.Hello)
	if !ok {
		return "", fmt.Errorf("the first message is %T", m)
	}
	welcome := &wire.Welcome{Version: wire.Version, Software: c.server.options.Software, Now: c.server.clock.now()}
	copy(welcome.Key[:], c.server.key.public)
	return hello.Software, stream.Send(wire.Encode(welcome))
}

// fail answers with a fault.
func (c *connection) fail(stream wire.Stream, fault *wire.Fault) {
	c.server.metrics.fault(fault.Code)
	_ = stream.Send(wire.Encode(fault))
}

// serveStream serves one request, or a repository for as long as it is open.
func (c *connection) serveStream(stream wire.Stream) {
	defer stream.Close()
	s := c.server
	_ = stream.SetDeadline(time.Now().Add(helloTime))
	data, err := stream.Receive()
	if err != nil {
		if err == io.EOF {
			c.malformed(errors.New("a stream without a message"))
		}
		return
	}
	started := s.mono()
	if c.device.asking.Add(1) > int32(s.options.Limits.Streams) {
		c.device.asking.Add(-1)
		c.fail(stream, &wire.Fault{Code: wire.Busy, Text: "the device has too many requests under way"})
		return
	}
	asking := sync.OnceFunc(func() { c.device.asking.Add(-1) })
	defer asking()
	m, err := wire.Decode(data)
	if errors.Is(err, wire.ErrUnknown) {
		s.metrics.requests[otherRequest].Add(1)
		c.fail(stream, &wire.Fault{Code: wire.UnknownRequest, Text: "the relay does not know this request: update it"})
		return
	}
	if err != nil {
		c.malformed(err)
		return
	}
	if wait := c.device.takeRequest(s.mono()); wait > 0 {
		c.fail(stream, &wire.Fault{Code: wire.SlowDown, Text: "the device asks too often", After: gitlog.Millis(wait.Milliseconds()) + 1})
		return
	}
	_ = stream.SetDeadline(time.Now().Add(s.options.Limits.Slow))
	var answer wire.Message
	var fault *wire.Fault
	switch m := m.(type) {
	case *wire.Claim:
		s.metrics.requests[claimRequest].Add(1)
		var o *opened
		var by caller
		if o, by, fault = c.admitted(m.Repository, &m.Head); fault == nil {
			var a *wire.Answer
			if a, fault = o.repository.claim(m, by); fault == nil {
				s.metrics.outcomes[min(a.Outcome, wire.Lost)].Add(1)
				s.metrics.claimTimes.observe(s.mono() - started)
				answer = a
			}
		}
	case *wire.Release:
		s.metrics.requests[releaseRequest].Add(1)
		var o *opened
		var by caller
		if o, by, fault = c.admitted(m.Repository, nil); fault == nil {
			answer, fault = o.repository.release(m, by)
		}
	case *wire.Append:
		s.metrics.requests[appendRequest].Add(1)
		var o *opened
		var by caller
		if o, by, fault = c.admitted(m.Repository, &m.Head); fault == nil {
			answer, fault = o.repository.appendActs(m, by)
		}
	case *wire.Ping:
		s.metrics.requests[pingRequest].Add(1)
		answer = &wire.Pong{Now: s.clock.now()}
	case *wire.Roster:
		s.metrics.requests[rosterRequest].Add(1)
		answer, fault, err = c.serveRoster(stream, m)
	case *wire.Open:
		s.metrics.requests[openRequest].Add(1)
		fault, err = c.serveOpen(stream, m, asking)
	default:
		s.metrics.requests[otherRequest].Add(1)
		fault = &wire.Fault{Code: wire.UnknownRequest, Text: "this is no request"}
	}
	switch {
	case err != nil:
		c.broken(err)
	case fault != nil:
		c.fail(stream, fault)
		if fault.Code == wire.Removed {
			c.conn.Close(wire.Removed, fault.Text)
		}
	case answer != nil:
		_ = stream.Send(wire.Encode(answer))
	}
}

// malformed closes the connection of whoever sends no messages, and nobody else's.
func (c *connection) malformed(err error) {
	c.server.metrics.fault(wire.Malformed)
	c.log.Warn("malformed", "error", err)
	c.conn.Close(wire.Malformed, cutText(err.Error()))
}

// broken judges an error on a stream that is used for long.
func (c *connection) broken(err error) {
	var closed *wire.ClosedError
	var reset *wire.ResetError
	switch {
	case errors.As(err, &closed), errors.As(err, &reset), errors.Is(err, io.EOF), c.conn.Err() != nil:
	case errors.Is(err, errSlow):
		c.server.metrics.fault(wire.SlowReader)
		c.log.Warn("dropped", "error", err)
		c.conn.Close(wire.SlowReader, err.Error())
	default:
		c.malformed(err)
	}
}

// takeRequest counts a request; it says how long until one more may come, 0 for now.
func (d *device) takeRequest(now time.Duration) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.requests.take(1, now)
}

// admitted finds an open repository and judges the device by the team's chain as it is now. head, where there is one, is
// what the request's tokens go by.
func (c *connection) admitted(id gitlog.RepositoryID, head *gitlog.RosterHead) (*opened, caller, *wire.Fault) {
	c.mu.Lock()
	o := c.opened[id]
	c.mu.Unlock()
	if o == nil {
		return nil, caller{}, &wire.Fault{Code: wire.UnknownRepository, Text: "the repository is not open on this connection"}
	}
	chain := o.team.chain.Load()
	member, live := chain.Member(c.key)
	if !live {
		return nil, caller{}, &wire.Fault{Code: wire.Removed, Text: "the device is not in the team any more"}
	}
	if head != nil && (head.Seq < chain.Rotated() || !o.team.knows(*head)) {
		return nil, caller{}, &wire.Fault{Code: wire.RosterStale, Text: "the tokens go by another roster than the relay's", Head: chain.Head()}
	}
	return o, caller{c.device.id, member}, nil
}

// serveRoster brings both sides' rosters together.
func (c *connection) serveRoster(stream wire.Stream, m *wire.Roster) (wire.Message, *wire.Fault, error) {
	c.mu.Lock()
	o := c.opened[m.Repository]
	c.mu.Unlock()
	if o == nil {
		return nil, &wire.Fault{Code: wire.UnknownRepository, Text: "the repository is not open on this connection"}, nil
	}
	if fault, err := c.exchange(stream, o.team, m.Head); fault != nil || err != nil {
		return nil, fault, err
	}
	return &wire.Opened{Head: o.team.chain.Load().Head(), Now: c.server.clock.now()}, nil, nil
}

func (c *connection) exchange(stream wire.Stream, t *team, head gitlog.RosterHead) (*wire.Fault, error) {
	return t.exchange(stream, head, func(n int) (int, *wire.Fault) {
		_ = stream.SetDeadline(time.Now().Add(c.server.options.Limits.Slow))
		c.device.mu.Lock()
		defer c.device.mu.Unlock()
		allowed := c.device.entries.some(n, c.server.mono())
		if allowed == n {
			return n, nil
		}
		wait := c.device.entries.wait(min(n-allowed, c.server.options.Limits.RosterBurst))
		return allowed, &wire.Fault{Code: wire.SlowDown, Text: "the device brings too many roster entries", After: gitlog.Millis(wait.Milliseconds()) + 1}
	}, func(change change) { c.server.teamChanged(t, change) })
}

// serveOpen opens a repository and sends its events until either side has enough.
func (c *connection) serveOpen(stream wire.Stream, m *wire.Open, asked func()) (*wire.Fault, error) {
	s := c.server
	t, fault := s.team(m.Team, m.Token, c.log)
	if fault != nil {
		return fault, nil
	}
	fault, err := c.exchange(stream, t, m.Head)
	s.letGo(t)
	if fault != nil || err != nil {
		return fault, err
	}
	chain := t.chain.Load()
	if chain == nil {
		return &wire.Fault{Code: wire.RosterWrong, Text: "the roster is empty"}, nil
	}
	if _, live := chain.Member(c.key); !live {
		return &wire.Fault{Code: wire.NotAdmitted, Text: "the team's roster does not let this device in", Head: chain.Head()}, nil
	}
	if !chain.Repository(m.Repository) {
		return &wire.Fault{Code: wire.UnknownRepository, Text: "the team has no such repository", Head: chain.Head()}, nil
	}
	core := s.core.Load()
	if core == nil {
		return unavailable(), nil
	}
	r := core.repository(repositoryKey{m.Team, m.Repository})
	if r == nil {
		return &wire.Fault{Code: wire.TooMany, Text: "the relay keeps as many repositories as it may"}, nil
	}
	if fault := c.keep(m.Repository, &opened{t, r}); fault != nil {
		return fault, nil
	}
	defer func() {
		c.mu.Lock()
		delete(c.opened, m.Repository)
		c.mu.Unlock()
	}()
	c.known()
	l := &listener{device: c.device.id, wake: make(chan struct{}, 1)}
	o, fault := r.open(m.Position, l)
	if fault != nil {
		return fault, nil
	}
	defer r.closeListener(l)
	opening := &wire.Opened{Position: o.position, Head: chain.Head(), Now: o.now, Snapshot: uint64(len(o.snapshot)), Grace: o.grace}
	if err := stream.Send(wire.Encode(opening)); err != nil {
		return nil, slow(err)
	}
	const part = wire.MaxMessage - 64
	for rest := o.snapshot; len(rest) > 0; rest = rest[min(part, len(rest)):] {
		_ = stream.SetDeadline(time.Now().Add(s.options.Limits.Slow))
		if err := stream.Send(wire.Encode(&wire.SnapshotPart{Bytes: rest[:min(part, len(rest))]})); err != nil {
			return nil, slow(err)
		}
	}
	asked() // from here on it is no request that is under way
	s.metrics.listening.Add(1)
	defer s.metrics.listening.Add(-1)
	return nil, l.serve(s, stream, r, o.place)
}

// keep notes an open repository. One repository is open once on a connection.
func (c *connection) keep(id gitlog.RepositoryID, o *opened) *wire.Fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.opened[id] != nil:
		return &wire.Fault{Code: wire.UnknownRepository, Text: "a repository of this id is open on this connection"}
	case len(c.opened) >= c.server.options.Limits.Opened:
		return &wire.Fault{Code: wire.TooMany, Text: "the connection has as many repositories open as one may"}
	}
	c.opened[id] = o
	return nil
}

// listener is one stream of events.
type listener struct {
	device gitlog.DeviceID
	wake   chan struct{} // holds one: there is something in issued

	mu     sync.Mutex
	issued []*wire.GrantIssued
}

// maxIssued bounds the grants that wait for a listener: they are of use only when the relay loses its state.
const maxIssued = 1_000

func (l *listener) offer(g *wire.GrantIssued) {
	l.mu.Lock()
	if len(l.issued) < maxIssued {
		l.issued = append(l.issued, g)
	}
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

var errSlow = errors.New("the client does not read what it is sent")

// slow says what a failed send of events means.
func slow(err error) error {
	var timeout interface{ Timeout() bool }
	if errors.As(err, &timeout) && timeout.Timeout() {
		return errSlow
	}
	return err
}

// serve sends events from a place on, and grants.
func (l *listener) serve(s *Server, stream wire.Stream, r *repository, place uint64) error {
	send := func(message []byte) error {
		_ = stream.SetDeadline(time.Now().Add(s.options.Limits.Slow))
		return slow(stream.Send(message))
	}
	var (
		sent  time.Duration // when the last train left
		train uint64        // the place behind it: what was there as it left goes with it
	)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		l.mu.Lock()
		issued := l.issued
		l.issued = nil
		l.mu.Unlock()
		for _, g := range issued {
			if err := send(wire.Encode(g)); err != nil {
				return err
			}
		}
		found, kept := r.tail.read(place, wire.MaxMessage-64)
		if !kept {
			return errSlow
		}
		changed := found.changed
		if len(found.events) > 0 {
			pause := trainTime - (s.mono() - sent)
			if place >= train && (!found.busy || pause <= 0) {
				sent, train = s.mono(), found.end
			}
			if place < train {
				message, n := wire.EventsOf(s.clock.now(), found.events)
				if err := send(message); err != nil {
					return err
				}
				place += uint64(n)
				continue
			}
			timer.Reset(pause)
			changed = nil // what comes now goes with the next train
		}
		select {
		case <-changed:
		case <-timer.C:
		case <-l.wake:
		case <-stream.Done():
			return nil
		case <-s.life.Done():
			return send(wire.Encode(&wire.Farewell{After: gitlog.Millis(s.comeBack.Milliseconds())}))
		}
	}
}
