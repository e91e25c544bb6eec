package wire

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quic-go/quic-go"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func testKey(name string) ed25519.PrivateKey {
	seed := sha256.Sum256([]byte(name))
	return ed25519.NewKeyFromSeed(seed[:])
}

func testCertificate(t testing.TB, name string) tls.Certificate {
	t.Helper()
	c, err := Certificate(testKey(name))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// transports makes the two ends of a connection, the server's first, neither greeted.
var transports = map[string]func(t testing.TB, server, client *tls.Config) (Conn, Conn, error){
	"tcp": func(t testing.TB, server, client *tls.Config) (Conn, Conn, error) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		type accepted struct {
			conn Conn
			err  error
		}
		ours := make(chan accepted, 1)
		go func() {
			raw, err := listener.Accept()
			if err != nil {
				ours <- accepted{nil, err}
				return
			}
			conn, err := AcceptTCP(context.Background(), raw, server)
			ours <- accepted{conn, err}
		}()
		raw, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		secured := tls.Client(raw, client)
		if err := secured.Handshake(); err != nil {
			raw.Close()
			<-ours
			return nil, nil, err
		}
		got := <-ours
		if got.err != nil {
			raw.Close()
			return nil, nil, got.err
		}
		return got.conn, newTCP(secured, true), nil
	},
	"quic": func(t testing.TB, server, client *tls.Config) (Conn, Conn, error) {
		socket := func() *quic.Transport {
			s, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
			if err != nil {
				t.Fatal(err)
			}
			transport := &quic.Transport{Conn: s}
			t.Cleanup(func() { transport.Close(); s.Close() })
			return transport
		}
		ours := socket()
		listener, err := ours.Listen(server, QUICConfig(false))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { listener.Close() })
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		theirs, err := socket().Dial(ctx, ours.Conn.LocalAddr(), client, QUICConfig(true))
		if err != nil {
			return nil, nil, err
		}
		conn, err := listener.Accept(ctx)
		if err != nil {
			return nil, nil, err
		}
		return NewQUIC(conn), NewQUIC(theirs), nil
	},
}

// pair is a connection between two known keys.
func pair(t testing.TB, transport string) (server, client Conn) {
	t.Helper()
	pin := PinOf(testKey("relay").Public().(ed25519.PublicKey))
	server, client, err := transports[transport](t, ServerTLS(testCertificate(t, "relay")), ClientTLS(testCertificate(t, "device"), &pin, ""))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(0, ""); server.Close(0, "") })
	return server, client
}

// TestTransports is the suite that every Conn passes.
func TestTransports(t *testing.T) {
	for name := range transports {
		t.Run(name, func(t *testing.T) {
			for what, test := range map[string]func(t *testing.T, server, client Conn){
				"peers": testPeers, "messages": testMessages, "both open streams": testBothOpen, "large and small": testSizes,
				"end and close": testEnd, "reset": testReset, "a closed stream takes no more": testStop, "deadline": testDeadline,
				"close says why": testCloseSaysWhy, "a slow stream holds up no other": testSlowStream, "many streams": testManyStreams,
				"open waits": testOpenWaits, "asking": testAsk, "a context ends what waits": testContexts,
			} {
				t.Run(what, func(t *testing.T) {
					t.Parallel()
					server, client := pair(t, name)
					test(t, server, client)
				})
			}
		})
	}
}

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func open(t testing.TB, c Conn) Stream {
	t.Helper()
	s, err := c.Open(within(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func accept(t testing.TB, c Conn) Stream {
	t.Helper()
	s, err := c.Accept(within(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func send(t testing.TB, s Stream, text string) {
	t.Helper()
	if err := s.Send([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

func hears(t testing.TB, s Stream, text string) {
	t.Helper()
	if got, err := s.Receive(); err != nil || string(got) != text {
		t.Fatalf("received %.40q (%v), want %.40q", got, err, text)
	}
}

func testPeers(t *testing.T, server, client Conn) {
	if !client.Peer().Equal(testKey("relay").Public()) || !server.Peer().Equal(testKey("device").Public()) {
		t.Error("a side takes the other for somebody else")
	}
	if server.Addr() == nil || client.Addr() == nil || server.Transport() != client.Transport() {
		t.Error("no address, or two transports")
	}
}

func testMessages(t *testing.T, server, client Conn) {
	s := open(t, client)
	send(t, s, "one")
	send(t, s, "two")
	r := accept(t, server)
	hears(t, r, "one")
	hears(t, r, "two")
	send(t, r, "three")
	hears(t, s, "three")
}

func testBothOpen(t *testing.T, server, client Conn) {
	a, b := open(t, server), open(t, client)
	send(t, a, "from the server")
	send(t, b, "from the client")
	hears(t, accept(t, client), "from the server")
	hears(t, accept(t, server), "from the client")
}

func testSizes(t *testing.T, server, client Conn) {
	s := open(t, client)
	sizes := []int{0, 1, 1200, MaxMessage - 1, MaxMessage}
	go func() {
		for _, size := range sizes {
			_ = s.Send(bytes.Repeat([]byte{7}, size))
		}
		_ = s.End()
	}()
	r := accept(t, server)
	for _, size := range sizes {
		if got, err := r.Receive(); err != nil || len(got) != size {
			t.Fatalf("%d bytes (%v), want %d", len(got), err, size)
		}
	}
	if _, err := r.Receive(); err != io.EOF {
		t.Errorf("after the last message: %v", err)
	}
	if err := s.Send(make([]byte, MaxMessage+1)); !errors.Is(err, errTooLarge) {
		t.Errorf("a message over the limit: %v", err)
	}
}

func testEnd(t *testing.T, server, client Conn) {
	s := open(t, client)
	send(t, s, "all")
	if err := s.End(); err != nil {
		t.Fatal(err)
	}
	r := accept(t, server)
	hears(t, r, "all")
	if _, err := r.Receive(); err != io.EOF {
		t.Errorf("after End: %v", err)
	}
	send(t, r, "and back")
	r.Close()
	hears(t, s, "and back")
	if _, err := s.Receive(); err != io.EOF {
		t.Errorf("after Close: %v", err)
	}
	if err := s.Send([]byte("more")); err == nil {
		t.Error("sent after End")
	}
}

func testReset(t *testing.T, server, client Conn) {
	s := open(t, client)
	send(t, s, "begun")
	r := accept(t, server)
	hears(t, r, "begun")
	s.Reset(Busy)
	var reset *ResetError
	if _, err := r.Receive(); !errors.As(err, &reset) || reset.Code != Busy {
		t.Errorf("receiving what was reset: %v", err)
	}
	<-r.Done()
	if err := r.Send([]byte("x")); err == nil {
		t.Error("sent to a side that gave the stream up")
	}
	other := open(t, client)
	send(t, other, "goes on")
	hears(t, accept(t, server), "goes on")
}

func testStop(t *testing.T, server, client Conn) {
	s := open(t, client)
	send(t, s, "hello")
	r := accept(t, server)
	hears(t, r, "hello")
	s.Close()
	select {
	case <-r.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the sender does not hear that nobody reads")
	}
	if err := r.Send([]byte("x")); err == nil {
		t.Error("sent to a side that reads no more")
	}
}

func testDeadline(t *testing.T, _, client Conn) {
	s := open(t, client)
	if err := s.SetDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	var timeout interface{ Timeout() bool }
	if _, err := s.Receive(); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("after the deadline: %v", err)
	}
	_ = s.SetDeadline(time.Now().Add(20 * time.Millisecond)) // one that comes while it waits
	if _, err := s.Receive(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("at the deadline: %v", err)
	}
	if err := s.SetDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	send(t, s, "still open")
}

func testCloseSaysWhy(t *testing.T, server, client Conn) {
	s := open(t, client)
	send(t, s, "hello")
	accept(t, server)
	server.Close(Draining, "the relay ends")
	<-client.Done()
	var closed *ClosedError
	if err := client.Err(); !errors.As(err, &closed) || closed.Code != Draining || closed.Text != "the relay ends" || !closed.Remote {
		t.Errorf("the client hears: %v", err)
	}
	if err := server.Err(); !errors.As(err, &closed) || closed.Remote {
		t.Errorf("the server says of itself: %v", err)
	}
	if _, err := s.Receive(); err == nil {
		t.Error("received from a closed connection")
	}
	if _, err := client.Open(within(t)); err == nil {
		t.Error("opened on a closed connection")
	}
	if _, err := client.Accept(within(t)); err == nil {
		t.Error("accepted on a closed connection")
	}
	client.Close(0, "") // a second time, from the other side
}

func testSlowStream(t *testing.T, server, client Conn) {
	slow := open(t, client)
	stuck := make(chan struct{})
	go func() { // until the receiver's window is full
		defer close(stuck)
		for slow.Send(make([]byte, 16<<10)) == nil {
		}
	}()
	accept(t, server)
	// The deadline ends the flood; until then, and after it, another stream is served.
	_ = slow.SetDeadline(time.Now().Add(200 * time.Millisecond))
	<-stuck
	slow.Reset(SlowReader)
	quick := open(t, client)
	send(t, quick, "quick")
	hears(t, accept(t, server), "quick")
}

func testManyStreams(t *testing.T, server, client Conn) {
	ctx := within(t)
	go echo(ctx, server)
	var work sync.WaitGroup
	for i := range 8 {
		work.Go(func() {
			for j := range 100 { // more in all than may be open at once
				text := fmt.Sprint(i, j)
				s, err := client.Open(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				send(t, s, text)
				_ = s.End()
				hears(t, s, text)
				s.Close()
			}
		})
	}
	work.Wait()
}

// echo answers every stream's first message with itself.
func echo(ctx context.Context, c Conn) {
	for {
		s, err := c.Accept(ctx)
		if err != nil {
			return
		}
		go func() {
			defer s.Close()
			if m, err := s.Receive(); err == nil {
				_ = s.Send(m)
			}
		}()
	}
}

func testOpenWaits(t *testing.T, server, client Conn) {
	var streams []Stream
	for range MaxStreams {
		s := open(t, client)
		send(t, s, "x")
		streams = append(streams, s)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := client.Open(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("one more than the other side takes: %v", err)
	}
	opened := make(chan error, 1)
	go func() {
		s, err := client.Open(within(t))
		if err == nil {
			s.Close()
		}
		opened <- err
	}()
	r := accept(t, server)
	hears(t, r, "x")
	streams[0].Close()
	r.Close()
	if err := <-opened; err != nil {
		t.Errorf("one was closed, and still: %v", err)
	}
}

func testAsk(t *testing.T, server, client Conn) {
	go func() {
		for {
			s, err := server.Accept(context.Background())
			if err != nil {
				return
			}
			m, err := ReceiveMessage(s)
			if err != nil {
				return
			}
			switch m.(type) {
			case *Ping:
				_ = s.Send(Encode(&Pong{Now: 5}))
			default:
				_ = s.Send(Encode(&Fault{Code: Grace, Text: "wait", After: 7}))
			}
			s.Close()
		}
	}()
	answer, err := Ask(within(t), client, &Ping{})
	if pong, ok := answer.(*Pong); err != nil || !ok || pong.Now != 5 {
		t.Errorf("answered %v, %v", answer, err)
	}
	_, err = Ask(within(t), client, &Roster{})
	var fault *Fault
	if !errors.As(err, &fault) || fault.Code != Grace || fault.After != 7 || !strings.Contains(err.Error(), "wait") {
		t.Errorf("a fault is an error: %v", err)
	}
}

func testContexts(t *testing.T, _, client Conn) {
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("no longer wanted")
	asked := make(chan error, 2)
	go func() {
		_, err := Ask(ctx, client, &Ping{}) // nobody answers
		asked <- err
	}()
	go func() {
		_, err := client.Accept(ctx)
		asked <- err
	}()
	cancel(why)
	for range 2 {
		if err := <-asked; !errors.Is(err, why) {
			t.Errorf("what waited ended with %v", err)
		}
	}
}

func TestIdentities(t *testing.T) {
	relay, other := testCertificate(t, "relay"), testCertificate(t, "other")
	pin := PinOf(testKey("relay").Public().(ed25519.PublicKey))
	if parsed, err := ParsePin(pin.String()); err != nil || parsed != pin {
		t.Errorf("%s reads as %s (%v)", pin, parsed, err)
	}
	for _, text := range []string{"", "sha256:", "sha256:00", strings.TrimPrefix(pin.String(), "sha256:"), pin.String() + "00"} {
		if _, err := ParsePin(text); err == nil {
			t.Errorf("%q is taken for a pin", text)
		}
	}
	device := testCertificate(t, "device")
	for name, c := range map[string]struct {
		server, client *tls.Config
		want           string
	}{
		"another relay's key":   {ServerTLS(other), ClientTLS(device, &pin, ""), "is pinned"},
		"no pin, no authority":  {ServerTLS(relay), ClientTLS(device, nil, "relay.example"), "certificate"},
		"another protocol":      {with(ServerTLS(relay), func(c *tls.Config) { c.NextProtos = []string{"h3"} }), ClientTLS(device, &pin, ""), "protocol"},
		"an older TLS":          {ServerTLS(relay), with(ClientTLS(device, &pin, ""), func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS12, tls.VersionTLS12 }), ""},
		"a client without keys": {ServerTLS(relay), with(ClientTLS(device, &pin, ""), func(c *tls.Config) { c.Certificates = nil }), ""},
	} {
		for transport, dial := range transports {
			t.Run(name+" "+transport, func(t *testing.T) {
				server, client, err := dial(t, c.server, c.client)
				if err == nil {
					// In TLS 1.3 a client is done before the server has seen its certificate: the connection ends at once.
					defer server.Close(0, "")
					_, err = Ask(within(t), client, &Ping{})
					client.Close(0, "")
				}
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("connected, or refused for another reason: %v", err)
				}
			})
		}
	}
}

func with(c *tls.Config, change func(*tls.Config)) *tls.Config {
	change(c)
	return c
}

// Frames that no honest side sends end the connection, and say so.
func TestFramesThatAreNotRight(t *testing.T) {
	frame := func(body ...byte) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
	}
	for name, bytes := range map[string][]byte{
		"an empty frame":                 frame(),
		"a frame over the limit":         {0, 255, 255, 255},
		"a huge frame":                   {255, 255, 255, 255, 1, 0},
		"no kind":                        frame(1),
		"a stream in a longer encoding":  frame(0x81, 0x00, 0, 'x'),
		"a stream number over 64 bits":   frame(255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1, 0),
		"an unknown kind":                frame(1, 9),
		"an end with a message":          frame(1, 1, 'x'),
		"a reset without a code":         frame(1, 2),
		"a stream of the server's":       frame(2, 0, 'x'),
		"data on the connection":         frame(0, 0, 'x'),
		"the connection's end":           frame(0, 1),
		"more data after a stream's end": append(frame(1, 1), frame(1, 0, 'x')...),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, client := pair(t, "tcp")
			raw := client.(*tcpConn).net
			if _, err := raw.Write(bytes); err != nil {
				t.Fatal(err)
			}
			<-server.Done()
			var closed *ClosedError
			if err := server.Err(); !errors.As(err, &closed) || closed.Code != Malformed {
				t.Errorf("the server says %v", err)
			}
			<-client.Done()
			if err := client.Err(); !errors.As(err, &closed) || closed.Code != Malformed || !closed.Remote {
				t.Errorf("the client hears %v", err)
			}
		})
	}
}

// More streams than were agreed on end a connection too: an honest side waits.
func TestTooManyStreams(t *testing.T) {
	server, client := pair(t, "tcp")
	var all []byte
	for i := range uint64(MaxStreams + 1) {
		all = appendFrame(all, 2*i+1, frameData, []byte("x"))
	}
	if _, err := client.(*tcpConn).net.Write(all); err != nil {
		t.Fatal(err)
	}
	<-server.Done()
	var closed *ClosedError
	if err := server.Err(); !errors.As(err, &closed) || closed.Code != Malformed {
		t.Errorf("the server says %v", err)
	}
}

// Streams that are over before anybody accepts them count, too: the connection waits, and what they brought still arrives.
func TestStreamsThatNobodyAcceptsYet(t *testing.T) {
	for name, frames := range map[string][]byte{
		"reset": {frameReset}, "ended and reset": {frameEnd, frameReset}, "reset after a message": {frameData, frameEnd, frameReset},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &tcpConn{done: make(chan struct{}), streams: map[uint64]*tcpStream{}, next: 2}
				c.changed.L = &c.mu
				const all = 3 * MaxStreams
				go func() {
					for i := range uint64(all) {
						for _, kind := range frames {
							if err := c.take(2*i+1, kind, map[byte][]byte{frameData: []byte("x"), frameReset: {0}}[kind]); err != nil {
								t.Error(err)
							}
						}
					}
				}()
				synctest.Wait()
				if n := len(c.incoming); n != MaxStreams {
					t.Errorf("%d streams wait to be accepted", n)
				}
				for range all {
					s := accept(t, c)
					if frames[0] == frameData {
						hears(t, s, "x")
					}
				}
			})
		})
	}
}
