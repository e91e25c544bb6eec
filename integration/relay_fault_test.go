package integration

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"fmt"
	"io"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"knoot.dev/knoot/integration/stage"
)

// badRelay is something that listens where a relay is expected: on TCP tcp or tls has a connection, on UDP quic has one or udp has each
// packet. Where both are nil nobody listens.
type badRelay struct {
	tcp    func(net.Conn)
	tls    func(*tls.Conn)
	quic   func(*quic.Conn)
	udp    func(socket net.PacketConn, from net.Addr, packet []byte)
	stolen bool // TLS has another key than the one that is pinned
	other  bool // TLS speaks another protocol
}

// identity is a relay's key, as TLS has it and as it is pinned.
func identity(t *testing.T) (certificate tls.Certificate, pin string) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "relay"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(public)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}, "sha256:" + hex.EncodeToString(sum[:])
}

func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return b
}

// flood writes until the other side is gone.
func flood(w io.Writer, part []byte) {
	for err := error(nil); err == nil; {
		_, err = w.Write(part)
	}
}

// badRelays are all ways in which what listens there is no relay, or fails as one, up to its first message: those that know the
// messages, too, are in the daemon's own tests.
func badRelays() map[string]badRelay {
	silent := func(net.Conn) {}
	return map[string]badRelay{
		"nobody listens":            {},
		"accepts and never answers": {tcp: silent, udp: func(net.PacketConn, net.Addr, []byte) {}},
		"closes at once":            {tcp: func(c net.Conn) { c.Close() }},
		"resets":                    {tcp: func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0); c.Close() }},
		"closes half":               {tcp: func(c net.Conn) { _ = c.(*net.TCPConn).CloseWrite() }},
		"answers garbage": {tcp: func(c net.Conn) { _, _ = c.Write(noise(1 << 16)) },
			udp: func(s net.PacketConn, from net.Addr, _ []byte) { _, _ = s.WriteTo(noise(1200), from) }},
		"answers garbage for ever": {tcp: func(c net.Conn) { flood(c, noise(1<<16)) },
			udp: func(s net.PacketConn, from net.Addr, _ []byte) {
				for range 1_000 {
					_, _ = s.WriteTo(noise(1200), from)
				}
			}},
		"echoes": {tcp: func(c net.Conn) { _, _ = io.Copy(c, c) }, udp: func(s net.PacketConn, from net.Addr, p []byte) { _, _ = s.WriteTo(p, from) }},
		"is a web server": {tcp: func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
		}},
		"refuses TLS": {tcp: func(c net.Conn) { _, _ = c.Write([]byte{21, 3, 3, 0, 2, 2, 40}) }},
		"says a record of TLS is coming": {tcp: func(c net.Conn) {
			_, _ = c.Write([]byte{22, 3, 3, 0x40, 0, 2})
		}},
		"has another key":           {tls: func(*tls.Conn) {}, quic: func(*quic.Conn) {}, stolen: true},
		"speaks another protocol":   {tls: func(*tls.Conn) {}, quic: func(*quic.Conn) {}, other: true},
		"TLS, and silence":          {tls: func(*tls.Conn) {}},
		"TLS, and an end":           {tls: func(c *tls.Conn) { c.Close() }},
		"TLS, and half an end":      {tls: func(c *tls.Conn) { _ = c.CloseWrite() }},
		"TLS, and garbage":          {tls: func(c *tls.Conn) { _, _ = c.Write(noise(1 << 16)) }},
		"TLS, and garbage for ever": {tls: func(c *tls.Conn) { flood(c, noise(1<<14)) }},
		"TLS, and a huge length":    {tls: func(c *tls.Conn) { _, _ = c.Write(bytes.Repeat([]byte{0xff}, 1<<12)) }},
		"TLS, and zeros for ever":   {tls: func(c *tls.Conn) { flood(c, make([]byte, 1<<14)) }},
		"TLS, and a byte at a time": {tls: func(c *tls.Conn) {
			for _, b := range bytes.Repeat([]byte{0, 0, 0, 3, 1, 0, 0}, 1_000) {
				if _, err := c.Write([]byte{b}); err != nil {
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
		}},
		"QUIC, and silence": {quic: func(*quic.Conn) {}},
		"QUIC, and an end":  {quic: func(c *quic.Conn) { _ = c.CloseWithError(0, "") }},
		"QUIC, and garbage": {quic: onStreams(func(s *quic.Stream) { _, _ = s.Write(noise(1 << 16)) })},
		"QUIC, and a huge length": {quic: onStreams(func(s *quic.Stream) {
			flood(s, bytes.Repeat([]byte{0xff}, 1<<12))
		})},
		"QUIC, and streams that end": {quic: onStreams(func(s *quic.Stream) { _ = s.Close() })},
		"QUIC, and streams given up": {quic: onStreams(func(s *quic.Stream) { s.CancelRead(0); s.CancelWrite(0) })},
		"QUIC, and streams of its own": {quic: func(c *quic.Conn) {
			for {
				s, err := c.OpenStreamSync(c.Context())
				if err != nil {
					return
				}
				_, _ = s.Write(noise(100))
			}
		}},
	}
}

func onStreams(do func(*quic.Stream)) func(*quic.Conn) {
	return func(c *quic.Conn) {
		for {
			s, err := c.AcceptStream(c.Context())
			if err != nil {
				return
			}
			go do(s)
		}
	}
}

// listenBadly has a bad relay listen. tried is closed once somebody has come, where that can be seen.
func (b badRelay) listenBadly(t *testing.T, address string, certificate tls.Certificate) (tried <-chan struct{}) {
	t.Helper()
	came := make(chan struct{})
	come := sync.OnceFunc(func() { close(came) })
	config := &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"knoot/1"}, ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS13}
	if b.other {
		config.NextProtos = []string{"http/1.1"}
	}
	if b.stolen {
		another, _ := identity(t)
		config.Certificates = []tls.Certificate{another}
	}
	var work sync.WaitGroup
	var mu sync.Mutex
	var open []io.Closer
	t.Cleanup(func() {
		mu.Lock()
		for _, each := range open {
			_ = each.Close()
		}
		mu.Unlock()
		work.Wait()
	})
	keep := func(c io.Closer) {
		mu.Lock()
		open = append(open, c)
		mu.Unlock()
	}
	if b.tcp != nil || b.tls != nil {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		keep(listener)
		work.Go(func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				come()
				keep(conn)
				work.Go(func() {
					if b.tcp != nil {
						b.tcp(conn)
					} else if s := tls.Server(conn, config); s.Handshake() == nil {
						b.tls(s)
					}
				})
			}
		})
	}
	if b.udp == nil && b.quic == nil {
		return came
	}
	socket, err := net.ListenPacket("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	keep(socket)
	if b.udp != nil {
		work.Go(func() {
			for packet := make([]byte, 1<<16); ; {
				n, from, err := socket.ReadFrom(packet)
				if err != nil {
					return
				}
				come()
				b.udp(socket, from, packet[:n])
			}
		})
		return came
	}
	transport := &quic.Transport{Conn: socket}
	keep(transport)
	listener, err := transport.Listen(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	work.Go(func() {
		for {
			conn, err := listener.Accept(context.Background())
			if err != nil {
				return
			}
			come()
			work.Go(func() { b.quic(conn) })
		}
	})
	return came
}

// Whatever is where the relay should be: hooks exit 0, say nothing, are in time, and the machine's own order holds.
func TestEveryWayInWhichARelayFails(t *testing.T) {
	t.Parallel()
	certificate, pin := identity(t)
	address := stage.Address(t)
	m := newMachines(t, 1, address, pin)[0]
	m.start()
	total := &toll{}
	for what, bad := range badRelays() {
		t.Run(what, func(t *testing.T) {
			tried := bad.listenBadly(t, address, certificate)
			m.daemon.Kill()
			m.start()
			name := strings.NewReplacer(" ", "-", ",", "").Replace(what)
			one := stage.Session{Person: m.In(t), ID: "one " + what, Dir: m.dir}
			two := stage.Session{Person: m.In(t), ID: "two " + what, Dir: m.dir}
			one.Start()
			two.Start()
			if bad.tcp != nil || bad.tls != nil && bad.quic == nil || bad.quic != nil && !bad.stolen && !bad.other { // else nobody gets so far
				select {
				case <-tried:
				case <-time.After(20 * time.Second):
					t.Fatal("the daemon never tried")
				}
			}
			for i := range 4 {
				file := fmt.Sprintf("src/%s%d.js", name, i)
				took := silent(t, m.Person, m.dir, one.BeforeWrite(file))
				if total.hooks, total.slowest = total.hooks+1, max(total.slowest, took); took > slowHook {
					t.Errorf("a hook took %v", took)
				}
				has(t, "two", refused(t, two, file), "ana's agent")
			}
			total.hook(t, one, one.Payload("Stop", one.TurnEnds()))
			total.hook(t, one, one.Payload("SessionEnd", map[string]any{"reason": "other"}))
			two.Hook("SessionEnd", map[string]any{"reason": "other"})
			if s := m.relay(); s.Open {
				t.Errorf("it is taken for a relay: %+v", s)
			}
		})
	}
	t.Logf("%d hooks at %d bad relays, the slowest took %v", total.hooks, len(badRelays()), total.slowest.Round(time.Millisecond))
}
