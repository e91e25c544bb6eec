package daemon

import (
	"context"
	"crypto/sha256"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"knoot.dev/knoot/arbiter/wire"
	"knoot.dev/knoot/gitlog"
)

const (
	// claimTime is how long a hook waits for a relay.
	claimTime = 150 * time.Millisecond
	// pingTime is how long a relay that did not answer in claimTime has to give a sign of life.
	pingTime = time.Second
	// heardFor is how long after it was heard last a relay's word on other machines' claims denies.
	heardFor = 20 * time.Second
	// relayRequest bounds requests that nobody waits for.
	relayRequest = 10 * time.Second
)

// relayLinks are the connections to relays, one a relay, and the repositories that are open there.
type relayLinks struct {
	d *daemon

	mu    sync.Mutex
	links map[relayAddress]*relayLink       // guarded by mu
	byID  map[repositoryID]*relayRepository // guarded by mu
}

func newRelayLinks(d *daemon) *relayLinks {
	return &relayLinks{d: d, links: map[relayAddress]*relayLink{}, byID: map[repositoryID]*relayRepository{}}
}

// attach opens a clone's repository at its relay; nil where it names none, or what it names is not to be used, which the log says.
func (all *relayLinks) attach(ctx context.Context, oc *openClone) *relayRepository {
	settings := oc.clone.Settings()
	if settings.Relay == "" {
		return nil
	}
	at := relayAddress{address: settings.Relay}
	err := all.allowed(ctx, oc.clone)
	if err == nil && settings.RelayKey != "" {
		at.pin, err = wire.ParsePin(settings.RelayKey)
	}
	if err != nil {
		all.d.log.Warn("the relay is not used", "repository", oc.common, "error", err)
		return nil
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	r := all.byID[oc.arbiter.id]
	if r == nil {
		l := all.links[at]
		if l == nil {
			l = newRelayLink(all.d, at, oc.clone.Device())
			all.links[at] = l
			all.d.loops.Go(l.run)
		}
		r = newRelayRepository(l, oc.arbiter)
		all.byID[oc.arbiter.id] = r
	}
	if r.add(oc) {
		r.link.open(r)
	}
	oc.arbiter.away.Store(r)
	return r
}

// allowed says why a clone's relay must not be used: a commit could have put another one there.
func (all *relayLinks) allowed(ctx context.Context, clone *gitlog.Clone) error {
	changes, err := clone.PinChanges(ctx)
	if err == nil && len(changes) > 0 {
		err = &gitlog.ErrPinned{Changes: changes}
	}
	return err
}

// detach is the end of attach. The repository is closed with the last of its clones, the link with the last of its repositories.
func (all *relayLinks) detach(r *relayRepository, oc *openClone) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if !r.remove(oc) {
		return
	}
	r.a.away.CompareAndSwap(r, nil)
	r.forsake()
	if all.byID[r.a.id] == r {
		delete(all.byID, r.a.id)
	}
	if r.link.close(r) && all.links[r.link.at] == r.link {
		delete(all.links, r.link.at)
		r.link.cancel()
	}
}

// tick looks whether the network is another one, and the team.
func (all *relayLinks) tick() {
	all.mu.Lock()
	links, repositories := slices.Collect(maps.Values(all.links)), slices.Collect(maps.Values(all.byID))
	all.mu.Unlock()
	for _, l := range links {
		l.tick()
	}
	for _, r := range repositories {
		r.tick()
	}
}

// relayLink is one connection to a relay, made again whenever it is lost.
type relayLink struct {
	d      *daemon
	at     relayAddress
	device *gitlog.Device
	ctx    context.Context
	cancel context.CancelFunc
	wake   chan struct{} // try now

	mu      sync.Mutex
	conn    wire.Conn                     // guarded by mu; nil: not connected
	order   [16]byte                      // guarded by mu: the id of the relay's sequencer
	opened  map[*relayRepository]struct{} // guarded by mu
	serving sync.WaitGroup                // what runs for the connection
	heard   time.Time                     // guarded by mu: when the relay was heard last
	suspect bool                          // guarded by mu: it is being asked for a sign of life
	problem relayProblem                  // guarded by mu: why it is not connected; none: it is, or was not tried yet
	network string                        // guarded by mu: see networkTo
	reached string                        // guarded by mu: the address at which it was last connected, a number: nothing is to be looked up
}

func newRelayLink(d *daemon, at relayAddress, device *gitlog.Device) *relayLink {
	l := &relayLink{d: d, at: at, device: device, wake: make(chan struct{}, 1), opened: map[*relayRepository]struct{}{}}
	l.ctx, l.cancel = context.WithCancel(d.work)
	return l
}

// run connects, and connects again, until the link's end.
func (l *relayLink) run() {
	dialer := newDialer(l.at)
	tries := newRetries()
	for l.ctx.Err() == nil {
		pause := time.NewTimer(tries.pause())
		select {
		case <-pause.C:
		case <-l.wake:
			tries.nth = 0
		case <-l.ctx.Done():
		}
		pause.Stop()
		if l.ctx.Err() != nil {
			return
		}
		conn, welcome, err := dialer.connect(l.ctx, l.device.Sign)
		if err != nil {
			tries.ended(0)
			l.fail(err)
			continue
		}
		began := time.Now()
		l.d.guard("relay", func() { l.serve(conn, sequencerOf(welcome)) })
		tries.ended(time.Since(began))
	}
}

// sequencerOf is the id of a relay's sequencer: its order is the same wherever it is reached.
func sequencerOf(welcome *wire.Welcome) (id [16]byte) {
	sum := sha256.Sum256(welcome.Key[:])
	copy(id[:], sum[:])
	return id
}

// sequencer is the id of the sequencer of the relay to which the link is connected.
func (l *relayLink) sequencer() [16]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.order
}

// fail notes why there is no connection; the log has each reason once.
func (l *relayLink) fail(err error) {
	problem := problemOf(err)
	l.mu.Lock()
	same := l.problem == problem
	l.problem = problem
	l.mu.Unlock()
	if !same && l.ctx.Err() == nil {
		l.d.log.Warn("no connection to the relay", "relay", l.at.address, "error", err)
	}
}

// serve keeps a connection until it ends.
func (l *relayLink) serve(conn wire.Conn, sequencer [16]byte) {
	reached := conn.Addr().String()
	network := networkTo(reached)
	l.mu.Lock()
	l.conn, l.order, l.heard, l.suspect, l.problem, l.reached, l.network = conn, sequencer, time.Now(), false, relayProblem{}, reached, network
	for r := range l.opened {
		l.serving.Go(func() { r.serve(conn) })
	}
	l.mu.Unlock()
	l.d.log.Info("connected to the relay", "relay", l.at.address, "transport", conn.Transport())
	ticker := time.NewTicker(wire.KeepAlive)
	defer ticker.Stop()
	for open := true; open; {
		select {
		case <-ticker.C:
			l.probe(conn)
		case <-conn.Done():
			open = false
		case <-l.ctx.Done():
			open = false
		}
	}
	conn.Close(0, "")
	l.mu.Lock()
	l.conn = nil
	l.mu.Unlock()
	l.serving.Wait()
	if err := conn.Err(); err != nil && l.ctx.Err() == nil {
		var closed *wire.ClosedError
		if errors.As(err, &closed) && !closed.Remote && closed.Text == silent {
			err = errors.New("it does not answer")
		}
		l.fail(err)
	}
}

// silent is why this side closes a connection on which nothing is answered.
const silent = "no answer"

// open serves a repository from now on.
func (l *relayLink) open(r *relayRepository) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.opened[r] = struct{}{}
	if conn := l.conn; conn != nil {
		l.serving.Go(func() { r.serve(conn) })
	}
	l.nudge()
}

// close ends serving a repository; true where it was the last.
func (l *relayLink) close(r *relayRepository) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.opened, r)
	r.cancel()
	return len(l.opened) == 0
}

func (l *relayLink) nudge() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// tick tries at once where the network changed, and asks a relay that may have been left behind for a sign of life.
func (l *relayLink) tick() {
	l.mu.Lock()
	reached := l.reached
	l.mu.Unlock()
	if reached == "" {
		return // it never was, and is tried again anyway
	}
	network := networkTo(reached)
	l.mu.Lock()
	changed := l.network != network
	l.network = network
	conn := l.conn
	l.mu.Unlock()
	switch {
	case !changed:
	case conn == nil:
		l.nudge()
	default:
		l.probe(conn)
	}
}

// hear notes a sign of life.
func (l *relayLink) hear() {
	l.mu.Lock()
	l.heard = time.Now()
	l.mu.Unlock()
}

// lately says whether the relay was heard so lately that what it said of other machines still counts.
func (l *relayLink) lately() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn != nil && time.Since(l.heard) < heardFor
}

// answers says whether it is worth to wait for the relay on this connection.
func (l *relayLink) answers(conn wire.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return conn != nil && l.conn == conn && !l.suspect
}

// probe asks for a sign of life, and drops the connection where none comes in pingTime. No claim waits meanwhile.
func (l *relayLink) probe(conn wire.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != conn || l.suspect {
		return
	}
	l.suspect = true
	l.serving.Go(func() {
		ctx, cancel := context.WithTimeout(l.ctx, pingTime)
		defer cancel()
		_, err := wire.Ask(ctx, conn, &wire.Ping{})
		l.mu.Lock()
		l.suspect = false
		l.mu.Unlock()
		var fault *wire.Fault
		switch {
		case err == nil, errors.As(err, &fault):
			l.hear()
		default:
			conn.Close(0, silent)
		}
	})
}

// ask asks a question. One that is not answered in claimTime has the connection looked at.
func (l *relayLink) ask(ctx context.Context, conn wire.Conn, m wire.Message) (wire.Message, error) {
	late := time.AfterFunc(claimTime, func() { l.probe(conn) })
	defer late.Stop()
	answer, err := wire.Ask(ctx, conn, m)
	var fault *wire.Fault
	if err == nil || errors.As(err, &fault) {
		l.hear()
	}
	return answer, err
}

// status is how the repository stands with its relay.
func (r *relayRepository) status() *RelayStatus {
	r.mu.Lock()
	s := &RelayStatus{Address: r.link.at.address, Open: r.conn != nil && !r.owing}
	problem := r.problem
	r.mu.Unlock()
	r.link.mu.Lock()
	defer r.link.mu.Unlock()
	if conn := r.link.conn; conn != nil {
		s.Transport = conn.Transport()
	} else if s.Open = false; r.link.problem != (relayProblem{}) {
		problem = r.link.problem
	}
	s.Problem = problem.text
	if problem.code != 0 {
		s.Code = problem.code.String()
	}
	return s
}

// RelayStatus is how a clone stands with its relay.
type RelayStatus struct {
	Address   string `json:"address"`
	Open      bool   `json:"open"`                // claims are asked for there
	Transport string `json:"transport,omitempty"` // quic or tcp; "": not connected
	Problem   string `json:"problem,omitempty"`   // why it is not open, a sentence
	Code      string `json:"code,omitempty"`      // what the relay called it, where it said so
}

// relayProblem is why something is not connected or open.
type relayProblem struct {
	text string    // a sentence; "": there is none
	code wire.Code // what the relay called it; zero: it was not the relay
}

func problemOf(err error) relayProblem {
	p := relayProblem{text: err.Error()}
	var fault *wire.Fault
	var closed *wire.ClosedError
	switch {
	case errors.As(err, &fault):
		p.code = fault.Code
	case errors.As(err, &closed) && closed.Remote:
		p.code = closed.Code
	}
	return p
}

// work runs f beside the connection; false where there is none.
func (l *relayLink) work(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil {
		return false
	}
	l.serving.Go(func() { l.d.guard("relay", f) })
	return true
}
