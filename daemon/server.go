package daemon

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"knoot.dev/knoot/daemon/socket"
)

// Limits of the socket. A client is a process of the same person, so they guard against accidents, not attacks.
const (
	// requestTime is how long a client may take to send its line, and to take the answer's.
	requestTime = 5 * time.Second
	// maxConnections bounds the goroutines that serve clients; whoever comes later waits in the socket's queue.
	maxConnections = 256
)

// server is the daemon's end of the socket: it accepts, reads one request, has it answered, and writes one line. It
// starts a goroutine a connection and ends with all of them.
type server struct {
	listener *net.UnixListener
	inode    fileIdentity // of the socket's path when it was bound
	answer   func(ctx context.Context, req *socket.Request, conn *net.UnixConn) *reply
	patience time.Duration // requestTime

	slots chan struct{} // one for each connection that may still be accepted

	mu      sync.Mutex
	paused  bool          // guarded by mu: accepting has stopped, or is about to
	parting chan struct{} // guarded by mu: closed when accepting stops, so that requests which wait for something end
	resume  chan struct{} // guarded by mu: closed when accepting goes on
	waiting int           // guarded by mu: connections that are being served
	idle    chan struct{} // guarded by mu: closed when waiting is zero; nil unless somebody waits for that
	closing chan struct{} // closed by close
	once    sync.Once     // of close
	done    chan struct{} // closed when the accept loop has ended
	conns   sync.WaitGroup
}

// reply is an answer with what has to happen around its being written.
type reply struct {
	*socket.Response
	// unwritten is called when the client was gone before it had the answer; nil: nothing to take back.
	unwritten func()
	// after is called once the answer is written, while the connection still counts as served; nil: nothing to do.
	after func()
	// taken says that the answer was written already and the connection belongs to somebody else now.
	taken bool
}

func newServer(listener *net.UnixListener, path string, answer func(context.Context, *socket.Request, *net.UnixConn) *reply) (*server, error) {
	listener.SetUnlinkOnClose(false) // whose path it is then is not certain; see owns
	inode, err := identify(path)
	if err != nil {
		return nil, err
	}
	s := &server{listener: listener, inode: inode, answer: answer, patience: requestTime, slots: make(chan struct{}, maxConnections),
		parting: make(chan struct{}), closing: make(chan struct{}), done: make(chan struct{})}
	for range maxConnections {
		s.slots <- struct{}{}
	}
	return s, nil
}

// serve accepts until close is called. Requests that it accepted may still run then; see drain. Their contexts come
// from ctx.
func (s *server) serve(ctx context.Context) {
	defer close(s.done)
	for {
		select {
		case <-s.slots:
		case <-s.closing:
			return
		}
		conn, err := s.listener.AcceptUnix()
		switch {
		case err == nil:
			s.enter()
			s.conns.Add(1)
			go func() {
				defer s.conns.Done()
				defer func() { s.slots <- struct{}{} }()
				defer s.leave()
				s.one(ctx, conn)
			}()
			continue
		case errors.Is(err, os.ErrDeadlineExceeded):
			s.awaitResume()
		case errors.Is(err, net.ErrClosed):
			return
		default:
			// Out of descriptors, or a client that left the queue: both pass, and spinning helps neither.
			select {
			case <-time.After(5 * time.Millisecond):
			case <-s.closing:
				return
			}
		}
		s.slots <- struct{}{}
	}
}

func (s *server) enter() {
	s.mu.Lock()
	s.waiting++
	s.mu.Unlock()
}

func (s *server) leave() {
	s.mu.Lock()
	s.waiting--
	s.signalIdle()
	s.mu.Unlock()
}

// signalIdle tells drain that enough connections have ended. mu is held.
func (s *server) signalIdle() {
	if s.idle != nil && s.waiting == 0 {
		close(s.idle)
		s.idle = nil
	}
}

// one serves a connection. A client that sends garbage, nothing, or too slowly gets a closed connection.
func (s *server) one(ctx context.Context, conn *net.UnixConn) {
	keep := false
	defer func() {
		if !keep {
			_ = conn.Close()
		}
	}()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	_ = conn.SetDeadline(time.Now().Add(s.patience))
	req, err := socket.ReadRequest(bufio.NewReader(conn))
	stop()
	if err != nil {
		if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrDeadlineExceeded) {
			_ = socket.WriteResponse(conn, failure(codeMisuse, "this is not a request that knoot's daemon understands"))
		}
		return
	}
	rep := s.answer(ctx, req, conn)
	if rep == nil {
		return
	}
	if rep.taken {
		keep = true
		return
	}
	_ = conn.SetWriteDeadline(time.Now().Add(s.patience))
	if err := socket.WriteResponse(conn, rep.Response); err != nil && rep.unwritten != nil {
		rep.unwritten()
	}
	_ = conn.Close()
	keep = true
	if rep.after != nil {
		rep.after()
	}
}

// pause stops accepting; who connects meanwhile waits in the socket's queue. proceed undoes it.
func (s *server) pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paused {
		return
	}
	s.paused, s.resume = true, make(chan struct{})
	close(s.parting)
	_ = s.listener.SetDeadline(time.Unix(1, 0))
}

func (s *server) proceed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.paused {
		return
	}
	_ = s.listener.SetDeadline(time.Time{})
	s.paused, s.parting = false, make(chan struct{})
	close(s.resume)
}

// awaitResume waits until accepting goes on, or ends.
func (s *server) awaitResume() {
	s.mu.Lock()
	resume, paused := s.resume, s.paused
	s.mu.Unlock()
	if paused {
		select {
		case <-resume:
		case <-s.closing:
		}
	}
}

// drain waits until all connections but own are served, at most for limit. own counts those that wait in drain
// themselves (a handover is a request, too).
func (s *server) drain(own int, limit time.Duration) {
	s.mu.Lock()
	s.waiting -= own
	idle := s.idle
	if idle == nil {
		idle = make(chan struct{})
		s.idle = idle
	}
	s.signalIdle()
	s.mu.Unlock()
	select {
	case <-idle:
	case <-time.After(limit):
	}
	s.mu.Lock()
	s.waiting += own
	if s.idle == idle {
		s.idle = nil
	}
	s.mu.Unlock()
}

// whenParting returns a channel that is closed when accepting stops: whoever waits for something then answers that it did not
// come, since the daemon ends or another one takes over.
func (s *server) whenParting() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.parting
}

// close ends accepting. The socket's path stays.
func (s *server) close() {
	s.once.Do(func() {
		s.mu.Lock()
		if !s.paused {
			s.paused, s.resume = true, make(chan struct{})
			close(s.parting)
		}
		s.mu.Unlock()
		close(s.closing)
		_ = s.listener.Close()
	})
}

// owns reports whether the socket's path still leads to this daemon.
func (s *server) owns(path string) bool {
	now, err := identify(path)
	return err == nil && now == s.inode
}

// fileIdentity tells two files apart. The inode of a bound socket, or of an open file, is not given to another one
// while it is in use, whatever became of its name.
type fileIdentity struct{ dev, ino uint64 }

func identify(path string) (fileIdentity, error) {
	var st syscall.Stat_t
	if err := syscall.Lstat(path, &st); err != nil {
		return fileIdentity{}, &os.PathError{Op: "lstat", Path: path, Err: err}
	}
	return fileIdentity{dev: uint64(st.Dev), ino: st.Ino}, nil
}

// Codes of a Response with an Error.
const (
	codeMisuse  = "misuse"  // the request makes no sense: exit 2
	codeRefused = "refused" // it was understood and is not done: a Refusal
	codeFailed  = "failed"
)

func failure(code, sentence string) *socket.Response {
	return &socket.Response{Code: code, Error: sentence}
}
