package wire

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// Over TCP, frames carry the streams: uint32 length of what follows, uvarint stream, one byte kind, and the message. The
// client's streams are odd, the server's even, each side's rising. Stream 0 is the connection: an empty message on it is
// a sign of life, a reset of it ends the connection.
const (
	frameData  = 0
	frameEnd   = 1
	frameReset = 2 // uvarint code; on stream 0 a text follows. After an end it gives the other direction up alone

	maxFrame  = MaxMessage + 16
	maxUnread = 2 << 20   // bytes that wait for the readers of streams; then the connection waits
	maxUnsent = 256 << 10 // bytes that wait for the network; then senders wait
	stallTime = 2 * time.Second

	writeTimeout = 10 * time.Second
)

// tcpConn is a Conn over one TLS connection. One goroutine reads, one writes.
type tcpConn struct {
	net    *tls.Conn
	client bool
	done   chan struct{}

	mu       sync.Mutex
	changed  sync.Cond // of mu: anything below, or in a stream
	err      error     // set once, before done is closed
	unsent   []byte
	streams  map[uint64]*tcpStream
	mine     int          // streams that this side began and that are not over
	theirs   int          // the other side's
	next     uint64       // number of this side's next stream
	last     uint64       // of the other side's newest
	incoming []*tcpStream // not yet accepted
	unread   int          // bytes that wait for the readers of streams
	pumps    sync.WaitGroup
}

// newTCP takes over a connection whose handshake is done.
func newTCP(conn *tls.Conn, client bool) *tcpConn {
	c := &tcpConn{net: conn, client: client, done: make(chan struct{}), streams: map[uint64]*tcpStream{}, next: 2}
	if client {
		c.next = 1
	}
	c.changed.L = &c.mu
	c.pumps.Add(2)
	go c.readLoop()
	go c.writeLoop()
	return c
}

func (c *tcpConn) Peer() ed25519.PublicKey { return peerKey(c.net.ConnectionState()) }
func (c *tcpConn) Addr() net.Addr          { return c.net.RemoteAddr() }
func (c *tcpConn) Transport() string       { return "tcp" }
func (c *tcpConn) Done() <-chan struct{}   { return c.done }

func (c *tcpConn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// end ends the connection for a reason; mu is held. The writer still sends what waits, and then closes.
func (c *tcpConn) end(err error) {
	if c.err == nil {
		c.err = err
		close(c.done)
		for _, s := range c.streams {
			s.stop(err)
		}
		c.changed.Broadcast()
	}
}

func (c *tcpConn) Close(code Code, text string) {
	c.mu.Lock()
	if c.err == nil {
		if len(text) > maxFault {
			text = text[:maxFault]
		}
		c.unsent = appendFrame(c.unsent, 0, frameReset, append(binary.AppendUvarint(nil, uint64(code)), text...))
		c.end(&ClosedError{Code: code, Text: text})
	}
	c.mu.Unlock()
	c.pumps.Wait()
}

func appendFrame(b []byte, stream uint64, kind byte, message []byte) []byte {
	head := append(binary.AppendUvarint(make([]byte, 0, 16), stream), kind)
	b = binary.BigEndian.AppendUint32(b, uint32(len(head)+len(message)))
	b = append(b, head...)
	return append(b, message...)
}

func (c *tcpConn) writeLoop() {
	defer c.pumps.Done()
	defer c.net.Close()
	var out []byte
	for {
		c.mu.Lock()
		for len(c.unsent) == 0 && c.err == nil {
			c.changed.Wait()
		}
		out, c.unsent = c.unsent, out[:0]
		ended := c.err != nil
		c.changed.Broadcast()
		c.mu.Unlock()
		limit := writeTimeout
		if ended {
			limit = time.Second // for the farewell
		}
		_ = c.net.SetWriteDeadline(time.Now().Add(limit))
		_, err := c.net.Write(out)
		if cap(out) > 16<<10 {
			out = nil // an idle connection keeps little
		}
		if err != nil {
			c.mu.Lock()
			c.end(fmt.Errorf("cannot send to %s: %w", c.net.RemoteAddr(), err))
			c.mu.Unlock()
		}
		if ended || err != nil {
			return
		}
	}
}

func (c *tcpConn) readLoop() {
	defer c.pumps.Done()
	err := c.read()
	c.mu.Lock()
	c.end(err)
	c.mu.Unlock()
}

func (c *tcpConn) read() error {
	r := bufio.NewReaderSize(c.net, 4<<10)
	// The client sends signs of life and the server returns them, so an honest side is never silent for so long.
	if c.client {
		ticker := time.NewTicker(KeepAlive)
		defer ticker.Stop()
		go func() {
			for {
				select {
				case <-ticker.C:
					c.alive()
				case <-c.done:
					return
				}
			}
		}()
	}
	var size [4]byte
	for {
		_ = c.net.SetReadDeadline(time.Now().Add(IdleTimeout))
		if _, err := io.ReadFull(r, size[:]); err != nil {
			return fmt.Errorf("nothing comes from %s any more: %w", c.net.RemoteAddr(), err)
		}
		n := binary.BigEndian.Uint32(size[:])
		if n < 2 || n > maxFrame {
			return c.broken()
		}
		frame := make([]byte, n)
		if _, err := io.ReadFull(r, frame); err != nil {
			return fmt.Errorf("nothing comes from %s any more: %w", c.net.RemoteAddr(), err)
		}
		if err := c.takeFrame(frame); err != nil {
			return err
		}
	}
}

// takeFrame handles what follows a length. An error ends the connection.
func (c *tcpConn) takeFrame(frame []byte) error {
	stream, used := binary.Uvarint(frame)
	if used <= 0 || used >= len(frame) || used > 1 && frame[used-1] == 0 {
		return c.broken()
	}
	return c.take(stream, frame[used], frame[used+1:])
}

// broken tells the other side that it does not speak the protocol.
func (c *tcpConn) broken() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.unsent = appendFrame(c.unsent, 0, frameReset, binary.AppendUvarint(nil, uint64(Malformed)))
		c.end(&ClosedError{Code: Malformed, Text: errFrame.Error()})
	}
	return errFrame
}

// take handles one frame.
func (c *tcpConn) take(number uint64, kind byte, message []byte) error {
	if kind > frameReset || len(message) > MaxMessage || kind == frameEnd && len(message) > 0 {
		return c.broken()
	}
	code := Code(0)
	if kind == frameReset {
		n, used := binary.Uvarint(message)
		if used <= 0 || number != 0 && used != len(message) || len(message)-used > maxFault {
			return c.broken()
		}
		code, message = Code(n), message[used:]
	}
	if number == 0 {
		switch {
		case kind == frameReset:
			return &ClosedError{Code: code, Text: printable(message), Remote: true}
		case kind != frameData || len(message) > 0:
			return c.broken()
		case !c.client:
			c.alive()
		}
		return nil
	}
	c.mu.Lock()
	s, err := c.streamOf(number)
	if err != nil {
		c.mu.Unlock()
		return c.broken()
	}
	if s == nil { // of a stream that is over here
		c.mu.Unlock()
		return nil
	}
	if s.ended && kind != frameReset {
		c.mu.Unlock()
		return c.broken()
	}
	defer c.mu.Unlock()
	switch kind {
	case frameData:
		c.awaitReader(s, len(message))
		if !s.deaf {
			s.unread = append(s.unread, message)
			c.unread += len(message)
		}
	case frameEnd:
		s.ended = true
	case frameReset:
		if s.ended {
			s.stop(&ResetError{Code: code})
		} else {
			s.ended = true
			s.fail(&ResetError{Code: code})
		}
	}
	c.settle(s)
	c.changed.Broadcast()
	return c.err
}

// awaitReader holds the connection up while too much waits for readers: that is what slows the sender down. A stream whose
// reader takes nothing for stallTime is given up, or it would hold up all others. mu is held.
func (c *tcpConn) awaitReader(s *tcpStream, size int) {
	if c.unread+size <= maxUnread {
		return
	}
	alarm := time.AfterFunc(stallTime, c.wake)
	defer alarm.Stop()
	s.taken = time.Now()
	for c.unread+size > maxUnread && !s.deaf && c.err == nil {
		if rest := stallTime - time.Since(s.taken); rest > 0 {
			alarm.Reset(rest)
			c.changed.Wait()
		} else {
			s.giveUp(SlowReader)
		}
	}
}

// streamOf finds a stream, or begins the one that the other side just began; nil for one that is over. mu is held.
func (c *tcpConn) streamOf(number uint64) (*tcpStream, error) {
	if s := c.streams[number]; s != nil {
		return s, nil
	}
	theirs := number%2 == 0
	if !c.client {
		theirs = !theirs
	}
	switch {
	case !theirs && number >= c.next:
		return nil, errFrame // this side did not begin it
	case !theirs || number <= c.last:
		return nil, nil
	case c.theirs >= MaxStreams:
		return nil, errFrame
	}
	// Streams that ended before they were accepted count no more above. What they brought still arrives, so the connection
	// waits for whoever accepts.
	for len(c.incoming) >= MaxStreams && c.err == nil {
		c.changed.Wait()
	}
	c.last = number
	c.theirs++
	s := &tcpStream{conn: c, number: number, done: make(chan struct{})}
	c.streams[number] = s
	c.incoming = append(c.incoming, s)
	return s, nil
}

// settle forgets a stream that both sides have ended. mu is held.
func (c *tcpConn) settle(s *tcpStream) {
	if s.over || !s.ended || !s.sent {
		return
	}
	s.over = true
	delete(c.streams, s.number)
	if s.mine {
		c.mine--
	} else {
		c.theirs--
	}
}

// alive sends a sign of life.
func (c *tcpConn) alive() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil && len(c.unsent) < maxUnsent {
		c.unsent = appendFrame(c.unsent, 0, frameData, nil)
		c.changed.Broadcast()
	}
}

func (c *tcpConn) Open(ctx context.Context) (Stream, error) {
	stop := context.AfterFunc(ctx, c.wake)
	defer stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.mine >= MaxStreams && c.err == nil && ctx.Err() == nil {
		c.changed.Wait()
	}
	if c.err != nil {
		return nil, c.err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	c.mine++
	return &tcpStream{conn: c, mine: true, done: make(chan struct{})}, nil
}

// put appends a frame of a stream to what is sent. A stream of this side gets its number with its first frame, so that
// numbers rise on the wire. mu is held.
func (c *tcpConn) put(s *tcpStream, kind byte, message []byte) {
	if s.number == 0 {
		s.number = c.next
		c.next += 2
		c.streams[s.number] = s
	}
	c.unsent = appendFrame(c.unsent, s.number, kind, message)
	c.changed.Broadcast()
}

func (c *tcpConn) Accept(ctx context.Context) (Stream, error) {
	stop := context.AfterFunc(ctx, c.wake)
	defer stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.incoming) == 0 && c.err == nil && ctx.Err() == nil {
		c.changed.Wait()
	}
	if c.err != nil {
		return nil, c.err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	s := c.incoming[0]
	c.incoming[0] = nil
	c.incoming = c.incoming[1:]
	c.changed.Broadcast()
	return s, nil
}

func (c *tcpConn) wake() {
	c.mu.Lock()
	c.changed.Broadcast()
	c.mu.Unlock()
}

// tcpStream is guarded by its connection's mu.
type tcpStream struct {
	conn     *tcpConn
	number   uint64 // 0 until its first frame
	mine     bool   // begun by this side
	over     bool   // both sides have ended it
	unread   [][]byte
	ended    bool  // the other side sends no more
	sent     bool  // this side sends no more
	deaf     bool  // this side reads no more
	err      error // it was reset, by either side
	unheard  error // the other side reads no more
	done     chan struct{}
	taken    time.Time // when its reader took something last, while the connection waits for it
	deadline time.Time
	alarm    *time.Timer
}

// fail gives both directions up. mu is held.
func (s *tcpStream) fail(err error) {
	if s.err == nil {
		s.err = err
	}
	s.stop(err)
	s.deafen()
}

// stop gives sending up. mu is held.
func (s *tcpStream) stop(err error) {
	if s.unheard == nil {
		s.unheard = err
		close(s.done)
	}
	s.sent = true
}

// deafen drops what was not read and will not be. mu is held.
func (s *tcpStream) deafen() {
	for _, message := range s.unread {
		s.conn.unread -= len(message)
	}
	s.deaf, s.unread = true, nil
	if s.alarm != nil {
		s.alarm.Stop()
	}
}

func (s *tcpStream) Send(message []byte) error {
	if len(message) > MaxMessage {
		return fmt.Errorf("a message of %d bytes %w", len(message), errTooLarge)
	}
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case s.unheard != nil:
			return s.unheard
		case c.err != nil:
			return c.err
		case s.sent:
			return errStreamEnded
		case !s.deadline.IsZero() && !time.Now().Before(s.deadline):
			return os.ErrDeadlineExceeded
		case len(c.unsent) < maxUnsent:
			c.put(s, frameData, message)
			return nil
		}
		c.changed.Wait()
	}
}

func (s *tcpStream) Receive() ([]byte, error) {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case s.err != nil:
			return nil, s.err
		case s.deaf:
			return nil, errStreamEnded
		case len(s.unread) > 0:
			message := s.unread[0]
			s.unread[0] = nil
			s.unread = s.unread[1:]
			c.unread -= len(message)
			s.taken = time.Now()
			c.settle(s)
			c.changed.Broadcast()
			return message, nil
		case s.ended:
			return nil, io.EOF
		case c.err != nil:
			return nil, c.err
		case !s.deadline.IsZero() && !time.Now().Before(s.deadline):
			return nil, os.ErrDeadlineExceeded
		}
		c.changed.Wait()
	}
}

func (s *tcpStream) SetDeadline(t time.Time) error {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	if s.deadline = t; s.alarm != nil {
		s.alarm.Stop()
		s.alarm = nil
	}
	if !t.IsZero() {
		s.alarm = time.AfterFunc(time.Until(t), s.conn.wake)
	}
	s.conn.changed.Broadcast()
	return nil
}

func (s *tcpStream) Done() <-chan struct{} { return s.done }

func (s *tcpStream) End() error {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	return s.endSending()
}

// endSending is End with mu held. The frame goes past the limit of what may wait: it is small.
func (s *tcpStream) endSending() error {
	c := s.conn
	if s.sent || c.err != nil {
		return errors.Join(s.err, c.err)
	}
	s.sent = true
	c.put(s, frameEnd, nil)
	c.settle(s)
	return nil
}

func (s *tcpStream) Close() {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	c := s.conn
	_ = s.endSending()
	s.deafen()
	if !s.ended && c.err == nil {
		c.put(s, frameReset, []byte{0})
		s.ended = true // what still comes belongs to a stream that is over
	}
	c.settle(s)
	c.changed.Broadcast()
}

func (s *tcpStream) Reset(code Code) {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	s.giveUp(code)
}

// giveUp is Reset with mu held.
func (s *tcpStream) giveUp(code Code) {
	c := s.conn
	if s.over || c.err != nil {
		return
	}
	c.put(s, frameReset, binary.AppendUvarint(nil, uint64(code)))
	s.fail(&ResetError{Code: code})
	// Nothing more is expected: what is still under way belongs to a stream that is over.
	s.ended = true
	c.settle(s)
	c.changed.Broadcast()
}

// printable keeps what a log may show of another side's words.
func printable(b []byte) string {
	out := make([]byte, 0, len(b))
	for _, c := range b {
		if c >= ' ' && c < 0x7f {
			out = append(out, c)
		}
	}
	return string(out)
}

// DialTCP connects by TLS on TCP. The context bounds the whole of it, the greeting included.
func DialTCP(ctx context.Context, address string, config *tls.Config, software string) (Conn, *Welcome, error) {
	ctx, cancel := context.WithTimeout(ctx, HandshakeTimeout)
	defer cancel()
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, nil, err
	}
	secured := tls.Client(raw, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, nil, err
	}
	conn := newTCP(secured, true)
	welcome, err := greet(ctx, conn, software)
	if err != nil {
		conn.Close(0, "")
		return nil, nil, err
	}
	return conn, welcome, nil
}

// AcceptTCP does a relay's side of the handshake on a connection just accepted. It closes raw on failure.
func AcceptTCP(ctx context.Context, raw net.Conn, config *tls.Config) (Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, HandshakeTimeout)
	defer cancel()
	secured := tls.Server(raw, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, err
	}
	return newTCP(secured, false), nil
}
