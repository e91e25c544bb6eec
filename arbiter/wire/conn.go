package wire

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net"
	"time"
)

// Conn is a connection between a daemon and a relay. It is safe for concurrent use. Either side may open streams.
type Conn interface {
	// Open begins a stream. It waits while as many are open as the other side takes.
	Open(ctx context.Context) (Stream, error)
	// Accept returns the next stream that the other side began.
	Accept(ctx context.Context) (Stream, error)
	// Peer is the other side's key: TLS has proved that it holds it. Nil where its certificate is of another kind, which
	// only a relay's may be.
	Peer() ed25519.PublicKey
	// Addr is the other side's address.
	Addr() net.Addr
	// Transport is "quic" or "tcp".
	Transport() string
	// Close ends the connection and all its streams, and tells the other side why.
	Close(code Code, text string)
	// Done is closed when the connection has ended; Err then says why: a *ClosedError if either side closed it.
	Done() <-chan struct{}
	Err() error
}

// Stream carries messages in order, both ways. One goroutine may receive while another sends.
type Stream interface {
	// Send sends one message of at most MaxMessage bytes. It may return before the other side has it, and it waits while
	// the other side does not read.
	Send(message []byte) error
	// Receive returns the next message, which the caller owns; io.EOF after the other side's last.
	Receive() ([]byte, error)
	// SetDeadline bounds Send and Receive, those that wait included. The zero time: no bound.
	SetDeadline(t time.Time) error
	// End says that nothing more will be sent. What was sent still arrives.
	End() error
	// Close is End for a side that reads no more either: what the other side still sends is dropped, and it is told. Every
	// stream is closed or reset in the end, by both sides.
	Close()
	// Reset gives both directions up, what is under way included.
	Reset(code Code)
	// Done is closed when nothing that is sent would be read any more.
	Done() <-chan struct{}
}

// ClosedError is why a connection ended that one side closed.
type ClosedError struct {
	Code   Code
	Text   string
	Remote bool // the other side closed it
}

func (e *ClosedError) Error() string {
	who := "this side closed the connection"
	if e.Remote {
		who = "the other side closed the connection"
	}
	if e.Text == "" {
		return fmt.Sprintf("%s: %s", who, e.Code)
	}
	return fmt.Sprintf("%s: %s: %s", who, e.Code, e.Text)
}

// ResetError is why a stream ended that the other side reset.
type ResetError struct{ Code Code }

func (e *ResetError) Error() string {
	return fmt.Sprintf("the other side gave the stream up: %s", e.Code)
}

var (
	errStreamEnded = errors.New("the stream was ended")
	errFrame       = errors.New("a frame is not right")
)

// Times that both transports keep. The client alone keeps an idle connection alive.
const (
	KeepAlive        = 15 * time.Second
	IdleTimeout      = 45 * time.Second
	HandshakeTimeout = 5 * time.Second
)

// MaxStreams is how many streams one side may have open towards the other: 64 requests and 256 repositories.
const MaxStreams = 320

// Ask sends one request on a stream of its own and returns its answer; a *Fault is returned as an error. The context
// bounds it all.
func Ask(ctx context.Context, conn Conn, request Message) (Message, error) {
	stream, err := conn.Open(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { stream.Reset(0) })
	defer stop()
	defer stream.Close()
	if err := stream.Send(Encode(request)); err != nil {
		return nil, ended(ctx, err)
	}
	_ = stream.End() // the other side may have answered already, and reads no more
	answer, err := ReceiveMessage(stream)
	if err != nil {
		return nil, ended(ctx, err)
	}
	return answer, nil
}

// ended prefers the context's reason to what followed from it.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// ReceiveMessage receives and reads the next message; a *Fault is returned as an error.
func ReceiveMessage(stream Stream) (Message, error) {
	data, err := stream.Receive()
	if err != nil {
		return nil, err
	}
	m, err := Decode(data)
	if err != nil {
		return nil, err
	}
	if fault, ok := m.(*Fault); ok {
		return nil, fault
	}
	return m, nil
}

// greet is the client's hello, without which nothing is connected.
func greet(ctx context.Context, conn Conn, software string) (*Welcome, error) {
	answer, err := Ask(ctx, conn, &Hello{Version: Version, Software: software})
	if err != nil {
		return nil, err
	}
	welcome, ok := answer.(*Welcome)
	if !ok {
		return nil, fmt.Errorf("the relay answers the greeting with %T", answer)
	}
	if peer := conn.Peer(); peer != nil && !peer.Equal(ed25519.PublicKey(welcome.Key[:])) {
		return nil, errors.New("the relay names another key than its certificate's")
	}
	return welcome, nil
}
