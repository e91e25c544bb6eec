package daemon

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/arbiter/wire"
	"knoot.dev/knoot/gitlog"
)

// bareEcho is the bare round trip on the same machine: a stream, a message of a claim's size there and an answer's back.
func bareEcho(b *testing.B) func() {
	b.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		b.Fatal(err)
	}
	certificate, err := wire.Certificate(key)
	if err != nil {
		b.Fatal(err)
	}
	listener, err := quic.ListenAddr("127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"echo"}}, nil)
	if err != nil {
		b.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		conn, err := listener.Accept(context.Background())
		if err != nil {
			return
		}
		for {
			s, err := conn.AcceptStream(context.Background())
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, s)
			_, _ = s.Write(make([]byte, 40))
			_ = s.Close()
		}
	}()
	conn, err := quic.DialAddr(context.Background(), listener.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"echo"}}, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = conn.CloseWithError(0, "")
		_ = listener.Close()
		<-ended
	})
	return func() {
		s, err := conn.OpenStreamSync(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		_, _ = s.Write(make([]byte, 640))
		_ = s.Close()
		if n, err := io.Copy(io.Discard, s); err != nil || n != 40 {
			b.Fatalf("%d bytes came back: %v", n, err)
		}
	}
}

func median(took []time.Duration) time.Duration {
	slices.Sort(took)
	return took[len(took)/2]
}

// A daemon asks for a file, with its name sealed, and has the answer, which is on the relay's disk. Budget: the median at most 6 times
// that of a bare QUIC echo.
func BenchmarkClaimByADaemon(b *testing.B) {
	h := newRelayHost(b)
	c := newCrew(b, h.address, h.pin)
	c.connected()
	wt, err := c.a.clones.find(b.Context(), c.ash.root)
	if err != nil {
		b.Fatal(err)
	}
	a, r := wt.clone.arbiter, wt.clone.relay
	s := &site{tree: wt, by: wt.party(b.Context(), sessionKey{"claude", "one"}, "", "")}
	echo := bareEcho(b)
	const rounds = 500
	n := 0
	for b.Loop() {
		took, bare := make([]time.Duration, rounds), make([]time.Duration, rounds)
		for i := range rounds {
			n++
			path := fmt.Sprintf("src/part%d/file%d.js", n%20, n)
			claimed := slices.DeleteFunc(c.ash.claim(c.a, "one", path), func(o occurrence) bool { return o.Kind != gitlog.ClaimAcquired })
			r.flushed(b.Context())
			start := time.Now()
			answer, err := r.claim(b.Context(), r.open(), s, claimed)
			took[i] = time.Since(start)
			if err != nil || answer.Outcome != wire.Granted {
				b.Fatalf("a file that nobody else wants: %+v, %v", answer, err)
			}
			a.mu.Lock()
			a.do(arbiter.Release{Who: claimed[0].Who, Claims: []arbiter.ClaimID{claimed[0].Claim}, Reason: arbiter.Released})
			a.mu.Unlock()
			r.flushed(b.Context())
			time.Sleep(10 * time.Millisecond) // a device has 200 requests a second
			start = time.Now()
			echo()
			bare[i] = time.Since(start)
			time.Sleep(5 * time.Millisecond)
		}
		b.ReportMetric(float64(median(took).Microseconds()), "µs-median")
		b.ReportMetric(float64(median(bare).Microseconds()), "µs-echo")
		b.ReportMetric(float64(median(took))/float64(median(bare)), "echoes")
	}
}

// A fact from one machine's `knoot remember` to another's memory, through a relay on loopback; every step is on a disk. Budget: the
// median until the other machine has it at most three times that until it is durable here.
func BenchmarkAFactToAnotherMachine(b *testing.B) {
	h := newRelayHost(b)
	c := newCrew(b, h.address, h.pin)
	c.connected()
	c.sam.isOpen()
	memory := c.s.clones.all()[0].clone.Memory()
	const rounds = 50
	n := 0
	for b.Loop() {
		durable, there := make([]time.Duration, rounds), make([]time.Duration, rounds)
		for i := range rounds {
			n++
			before := memory.Version()
			start := time.Now()
			c.ash.remember(fmt.Sprint("fact ", n), fmt.Sprintf("what is said the %dth time has %d parts and %d ends", n, 3*n, 7*n))
			durable[i] = time.Since(start)
			awaitTrue(b, "the other machine has it", func() bool { return memory.Version() != before })
			there[i] = time.Since(start)
		}
		b.ReportMetric(float64(median(durable).Microseconds())/1000, "ms-durable")
		b.ReportMetric(float64(median(there).Microseconds())/1000, "ms-there")
		b.ReportMetric(float64(median(there))/float64(median(durable)), "times")
	}
}
