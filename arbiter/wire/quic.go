package wire

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/quic-go/quic-go"
)

// Over QUIC each message on a stream follows its length, a uint32.

// QUICConfig is what both sides set. Windows are small: messages are, and a relay has thousands of connections.
func QUICConfig(client bool) *quic.Config {
	config := &quic.Config{
		Versions:             []quic.Version{quic.Version1},
		HandshakeIdleTimeout: HandshakeTimeout, MaxIdleTimeout: IdleTimeout,
		InitialStreamReceiveWindow: MaxMessage, MaxStreamReceiveWindow: 4 * MaxMessage,
		InitialConnectionReceiveWindow: 4 * MaxMessage, MaxConnectionReceiveWindow: 32 * MaxMessage,
		MaxIncomingStreams: MaxStreams, MaxIncomingUniStreams: -1,
	}
	if client {
		config.KeepAlivePeriod = KeepAlive
		config.MaxStreamReceiveWindow = 16 * MaxMessage // events come in on one
	}
	return config
}

type quicConn struct {
	conn *quic.Conn
	// of a client that made it for this connection alone
	transport *quic.Transport
	socket    net.PacketConn
}

// NewQUIC wraps a connection whose handshake is done.
func NewQUIC(conn *quic.Conn) Conn { return &quicConn{conn: conn} }

func (c *quicConn) Peer() ed25519.PublicKey { return peerKey(c.conn.ConnectionState().TLS) }
func (c *quicConn) Addr() net.Addr          { return c.conn.RemoteAddr() }
func (c *quicConn) Transport() string       { return "quic" }
func (c *quicConn) Done() <-chan struct{}   { return c.conn.Context().Done() }
func (c *quicConn) Err() error              { return quicError(context.Cause(c.conn.Context())) }

func (c *quicConn) Close(code Code, text string) {
	_ = c.conn.CloseWithError(quic.ApplicationErrorCode(code), text)
	if c.transport != nil {
		_ = c.transport.Close()
		_ = c.socket.Close()
	}
}

func (c *quicConn) Open(ctx context.Context) (Stream, error) {
	s, err := c.conn.OpenStreamSync(ctx)
	if err != nil {
		return nil, ended(ctx, quicError(err))
	}
	return &quicStream{s}, nil
}

func (c *quicConn) Accept(ctx context.Context) (Stream, error) {
	s, err := c.conn.AcceptStream(ctx)
	if err != nil {
		return nil, ended(ctx, quicError(err))
	}
	return &quicStream{s}, nil
}

// quicError puts the library's reasons in this package's words.
func quicError(err error) error {
	var closed *quic.ApplicationError
	if errors.As(err, &closed) {
		return &ClosedError{Code: Code(closed.ErrorCode), Text: printable([]byte(closed.ErrorMessage)), Remote: closed.Remote}
	}
	var reset *quic.StreamError
	if errors.As(err, &reset) {
		return &ResetError{Code: Code(reset.ErrorCode)}
	}
	var handshake *quic.TransportError
	if errors.As(err, &handshake) && handshake.ErrorCode.IsCryptoError() && !handshake.Remote {
		for _, cause := range handshake.Unwrap() {
			if cause != nil && !errors.Is(cause, net.ErrClosed) {
				return cause // as over TCP: what this side found wrong, in its own words
			}
		}
	}
	return err
}

type quicStream struct{ s *quic.Stream }

func (q *quicStream) Send(message []byte) error {
	if len(message) > MaxMessage {
		return fmt.Errorf("a message of %d bytes %w", len(message), errTooLarge)
	}
	frame := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(message)), uint32(len(message)))
	_, err := q.s.Write(append(frame, message...))
	return quicError(err)
}

func (q *quicStream) Receive() ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(q.s, size[:]); err != nil {
		return nil, quicError(err)
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > MaxMessage {
		return nil, fmt.Errorf("a message of %d bytes %w", n, errTooLarge)
	}
	message := make([]byte, n)
	if _, err := io.ReadFull(q.s, message); err != nil {
		return nil, quicError(err)
	}
	return message, nil
}

func (q *quicStream) SetDeadline(t time.Time) error { return q.s.SetDeadline(t) }
func (q *quicStream) End() error                    { return quicError(q.s.Close()) }

func (q *quicStream) Done() <-chan struct{} { return q.s.Context().Done() }

func (q *quicStream) Close() {
	_ = q.s.Close()
	q.s.CancelRead(0)
}

func (q *quicStream) Reset(code Code) {
	q.s.CancelRead(quic.StreamErrorCode(code))
	q.s.CancelWrite(quic.StreamErrorCode(code))
}

// DialQUIC connects by QUIC from a socket of its own. The context bounds the whole of it, the greeting included.
func DialQUIC(ctx context.Context, address string, config *tls.Config, software string) (Conn, *Welcome, error) {
	ctx, cancel := context.WithTimeout(ctx, HandshakeTimeout)
	defer cancel()
	to, err := net.ResolveUDPAddr("udp", address)
	if err != nil {
		return nil, nil, err
	}
	socket, err := net.ListenUDP("udp", nil)
	if err != nil {
		return nil, nil, err
	}
	transport := &quic.Transport{Conn: socket}
	conn, err := transport.Dial(ctx, to, config, QUICConfig(true))
	if err != nil {
		_ = transport.Close()
		_ = socket.Close()
		return nil, nil, quicError(err)
	}
	c := &quicConn{conn: conn, transport: transport, socket: socket}
	welcome, err := greet(ctx, c, software)
	if err != nil {
		c.Close(0, "")
		return nil, nil, err
	}
	return c, welcome, nil
}
