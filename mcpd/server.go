// Package mcpd is the server through which agents of one machine find, write to and plan with each other: MCP over HTTP on
// 127.0.0.1, and a few routes for scripts. It lives in the daemon (package daemon), which keeps the mailbox and the claims; what
// is here is who the agents are, the graphs of tasks and what is shown to the person.
//
// It is a server on a person's laptop. Whoever may open a connection to 127.0.0.1 may talk to it: web pages, and other users.
// So every request passes the guard (guard.go) before anything else is looked at, and an agent is known by a secret of its own.
package mcpd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"knoot.dev/knoot/daemon"
)

const (
	// headerTime and idleTime bound what a connection may take without a request; bodyTime is for a request's body, answerTime
	// for each write of an answer.
	headerTime = 5 * time.Second
	idleTime   = 2 * time.Minute
	bodyTime   = 10 * time.Second
	answerTime = 30 * time.Second
	// maxHeader and maxBody bound a request, in bytes.
	maxHeader = 16 << 10
	maxBody   = 1 << 20
	// maxConnections bounds the connections at one time; one more is closed at once.
	maxConnections = 512
	// closeTime is how long requests that are under way may take to end.
	closeTime = 2 * time.Second
	// portPatience is how long a port that is taken is tried again before anybody is told: an older daemon may be about to leave it.
	portPatience = 3 * time.Second
	portEvery    = 50 * time.Millisecond
)

// Server is the coordination server of a daemon. Its methods may be called from several goroutines.
type Server struct {
	host        *daemon.Host
	connections connections
	keepAlive   time.Duration // between signs of life on a stream
	tools       atomic.Pointer[toolbox]
	notify      func(title, text string) error // shows the person a notification
	answerIn    time.Duration                  // what a model may take to answer

	following sync.Mutex // held while listening begins or ends; taken before writing

	// writing is held by whoever changes what is kept, from what the change follows from until it is on the disk; it is taken
	// before mu, and hooks never wait for it.
	writing sync.Mutex
	ledger  *daemon.Ledger[record] // guarded by writing; nil: not open
	shrunk  int64                  // guarded by writing: the ledger's size when it was written anew last, in bytes

	starting sync.Mutex // held while an agent is started; taken before mu

	mu        sync.Mutex
	agents    map[string]*agent            // guarded by mu: by id
	visits    map[daemon.SessionKey]*visit // guarded by mu: sessions that live and have no name of their own
	bound     map[daemon.SessionKey]string // guarded by mu: which agent a session is
	graphs    map[string]*graph            // guarded by mu: by agent
	boards    map[string]*board            // guarded by mu: by agent
	person    string                       // guarded by mu: the person's secret
	serving   *serving                     // guarded by mu; nil: nothing listens
	problem   string                       // guarded by mu: why nothing listens although it should
	begun     chan struct{}                // guarded by mu: closed when Open's work is done; nil: not open
	cancel    context.CancelFunc           // guarded by mu: ends that work
	loops     sync.WaitGroup               // that work
	alive     context.Context              // guarded by mu: of what goes on while it is open; nil: it is not
	terminals map[string]*running          // guarded by mu: terminal agents that run, by id
	environs  map[string][]string          // guarded by mu: the environment that a terminal agent was started with last, by id
	starts    []time.Time                  // guarded by mu: of agents, lately
	refusals  map[string]time.Time         // guarded by mu: when a reason was last logged
}

var _ daemon.Coordinator = (*Server)(nil)

// New makes the server of a daemon. It serves once it is opened.
func New(host *daemon.Host) *Server {
	return &Server{host: host, notify: desktopNotify, answerIn: modelTime, keepAlive: 15 * time.Second, connections: newConnections(), agents: map[string]*agent{},
		visits: map[daemon.SessionKey]*visit{}, bound: map[daemon.SessionKey]string{}, graphs: map[string]*graph{}, boards: map[string]*board{},
		terminals: map[string]*running{}, environs: map[string][]string{}, refusals: map[string]time.Time{}}
}

// Open reads what is known of agents, since hooks may come from now on, and begins to serve, in the background.
func (s *Server) Open() {
	s.load()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	begun := make(chan struct{})
	s.begun, s.cancel, s.alive = begun, cancel, ctx
	s.loops.Go(func() {
		s.begin(ctx)
		close(begun)
		for _, e := range s.host.Sessions(ctx) { // that takes as long as opening their repositories
			s.Hear(e)
		}
	})
}

func (s *Server) begin(ctx context.Context) {
	s.writing.Lock()
	if s.ledger != nil {
		s.rewrite()
	}
	s.writing.Unlock()
	s.following.Lock()
	defer s.following.Unlock()
	s.follow(ctx, portPatience)
}

// Close ends serving: streams and calls that are under way, too.
func (s *Server) Close() {
	s.mu.Lock()
	begun, cancel := s.begun, s.cancel
	s.mu.Unlock()
	if begun == nil {
		return
	}
	cancel()
	s.stopAll()
	s.loops.Wait()
	s.following.Lock()
	defer s.following.Unlock()
	s.mu.Lock()
	serving := s.serving
	s.serving, s.begun, s.problem = nil, nil, ""
	s.mu.Unlock()
	serving.close()
	s.unload()
}

// Tick follows the settings, and keeps what hooks said.
func (s *Server) Tick() {
	s.following.Lock()
	defer s.following.Unlock()
	s.mu.Lock()
	begun := s.begun
	s.mu.Unlock()
	select {
	case <-begun: // never, where it is nil
	default:
		return
	}
	s.follow(context.Background(), 0)
	s.flush()
}

// Problem says why nothing listens although it should.
func (s *Server) Problem() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.problem
}

// follow listens as the settings say, and tries a port that is taken for as long as patience. following is held.
func (s *Server) follow(ctx context.Context, patience time.Duration) {
	config := s.host.Config().MCP
	if box := s.tools.Load(); box == nil || !slices.Equal(box.groups, config.Tools) {
		s.tools.Store(newToolbox(s, config.Tools))
	}
	s.mu.Lock()
	old := s.serving
	s.mu.Unlock()
	switch {
	case old == nil && !config.Enabled:
		s.say("")
		return
	case old != nil && config.Enabled && old.asked == config.Port:
		return
	case old != nil:
		s.mu.Lock()
		s.serving = nil
		s.mu.Unlock()
		old.close()
		s.follow(ctx, patience)
		return
	}
	for until := time.Now().Add(patience); ; {
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(config.Port)))
		if err == nil {
			now := newServing(s, listener, config.Port)
			s.mu.Lock()
			s.serving = now
			s.mu.Unlock()
			s.say("")
			s.host.Log().Info("agents coordinate", "address", listener.Addr().String())
			return
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			s.say(fmt.Sprintf("agents cannot coordinate: 127.0.0.1 port %d: %v; another port is set with [mcp] port in config.toml", config.Port, err))
			return
		}
		if time.Now().After(until) {
			s.say(portTaken(config.Port))
			return
		}
		select {
		case <-time.After(portEvery):
		case <-ctx.Done():
			return
		}
	}
}

// sharedPort is the port of the default settings, which another tool has as its own default, too.
const sharedPort = 8766

// portTaken says that a port is another program's.
func portTaken(port int) string {
	by := "another program"
	if port == sharedPort {
		by += " (vox-mcp uses it, too)"
	}
	return fmt.Sprintf("agents cannot coordinate: port %d of 127.0.0.1 is taken by %s; set another with [mcp] port in config.toml, or [mcp] enabled = false", port, by)
}

// say keeps what hinders it, and logs it once.
func (s *Server) say(problem string) {
	s.mu.Lock()
	news := problem != "" && problem != s.problem
	s.problem = problem
	s.mu.Unlock()
	if news {
		s.host.Log().Warn(problem)
	}
}

// serving is a port that is listened on.
type serving struct {
	asked   int    // the port of the settings
	address string // host and port
	server  *http.Server
	cancel  context.CancelFunc // ends every request's context
	done    sync.WaitGroup
}

func newServing(s *Server, listener net.Listener, asked int) *serving {
	ctx, cancel := context.WithCancel(context.Background())
	address := listener.Addr().String()
	now := &serving{asked: asked, address: address, cancel: cancel, server: &http.Server{
		Handler: s.handler(address), ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return ctx }, ErrorLog: quiet}}
	now.done.Go(func() {
		_ = now.server.Serve(&boundedListener{Listener: listener, free: newSlots(maxConnections), full: func() { s.logRefusal(tooMany, "connections", maxConnections) }})
	})
	return now
}

// close frees the port, ends streams, and waits a moment for what is under way.
func (now *serving) close() {
	if now == nil {
		return
	}
	now.cancel() // first: streams end by it alone
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	if now.server.Shutdown(ctx) != nil {
		_ = now.server.Close()
	}
	now.done.Wait()
}

// Address is the host and port that agents are to connect to; it waits for Open to have tried. "": nothing listens.
func (s *Server) Address(ctx context.Context) string {
	s.mu.Lock()
	begun := s.begun
	s.mu.Unlock()
	if begun == nil {
		return ""
	}
	select {
	case <-begun:
	case <-ctx.Done():
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.serving == nil {
		return ""
	}
	return s.serving.address
}
