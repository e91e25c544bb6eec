package relay

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/arbiter/wire"
	"knoot.dev/knoot/gitlog"
	"knoot.dev/knoot/integration/stage"
)

// opens opens a repository on a connection and reads its events without opening them; each message is counted.
func opens(b testing.TB, conn wire.Conn, c *crew, repository gitlog.RepositoryID, heard func()) {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	stream, err := conn.Open(ctx)
	if err != nil {
		b.Fatal(err)
	}
	if err := stream.Send(wire.Encode(&wire.Open{Team: c.team, Repository: repository, Head: c.roster.Head})); err != nil {
		b.Fatal(err)
	}
	opened, err := meet(c, stream)
	if err != nil {
		b.Fatal(err)
	}
	for got := uint64(0); got < opened.Snapshot; {
		m, err := wire.ReceiveMessage(stream)
		if err != nil {
			b.Fatal(err)
		}
		got += uint64(len(m.(*wire.SnapshotPart).Bytes))
	}
	go func() {
		for {
			if _, err := stream.Receive(); err != nil {
				return
			}
			heard()
		}
	}()
}

// repositories lets the team have more of them.
func (c *crew) repositories(n int) []gitlog.RepositoryID {
	ids := []gitlog.RepositoryID{c.repository}
	c.change(c.founder, func(change *gitlog.RosterChange) error {
		for i := 1; i < n; i++ {
			id := gitlog.RepositoryID(token("repository", i))
			ids = append(ids, id)
			if err := change.AddRepository(id); err != nil {
				return err
			}
		}
		return nil
	})
	return ids
}

func benchHost(b *testing.B) *host {
	return newHost(b, func(o *Options) { o.Limits.PerDevice = 2_000 })
}

// asker claims and releases files of its own.
type asker struct {
	conn       wire.Conn
	crew       *crew
	repository gitlog.RepositoryID
	who        arbiter.Who
	n          int
}

func (a *asker) claim(ctx context.Context) (arbiter.ClaimID, error) {
	a.n++
	id := drawClaim()
	p := arbiter.Path{Own: token(a.who.Session, a.n%500)}
	for depth := range 6 {
		p.Ancestors = append(p.Ancestors, token("dir", depth, a.n%20))
	}
	answer, err := wire.Ask(ctx, a.conn, &wire.Claim{
		Repository: a.repository, Head: a.crew.roster.Head, Detail: make([]byte, 300),
		Claim: arbiter.Claim{Who: a.who, Wants: []arbiter.Want{{ID: id, Path: p, Class: arbiter.File}}},
	})
	if err == nil && answer.(*wire.Answer).Outcome != wire.Granted {
		err = fmt.Errorf("a claim of its own is answered %+v", answer)
	}
	return id, err
}

func (a *asker) release(ctx context.Context, id arbiter.ClaimID) error {
	_, err := wire.Ask(ctx, a.conn, &wire.Release{Repository: a.repository, Release: arbiter.Release{
		Who: a.who, Claims: []arbiter.ClaimID{id}, Reason: arbiter.Released,
	}})
	return err
}

// bareEcho is the bare round trip on the same machine: a stream, a message of a claim's size there and an answer's back.
func bareEcho(b *testing.B) func() {
	b.Helper()
	certificate, err := wire.Certificate(drawDevice(b).Sign)
	if err != nil {
		b.Fatal(err)
	}
	listener, err := quic.ListenAddr("127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"echo"}}, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { listener.Close() })
	go func() {
		conn, err := listener.Accept(context.Background())
		if err != nil {
			return
		}
		for {
			s, err := conn.AcceptStream(context.Background())
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(io.Discard, s)
				_, _ = s.Write(make([]byte, 40))
				s.Close()
			}()
		}
	}()
	conn, err := quic.DialAddr(context.Background(), listener.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"echo"}}, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.CloseWithError(0, "") })
	return func() {
		s, err := conn.OpenStreamSync(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		_, _ = s.Write(make([]byte, 640))
		s.Close()
		if n, err := io.Copy(io.Discard, s); err != nil || n != 40 {
			b.Fatalf("%d bytes came back: %v", n, err)
		}
	}
}

func quantile(took []time.Duration, q float64) time.Duration {
	slices.Sort(took)
	return took[min(int(float64(len(took))*q), len(took)-1)]
}

// Budget: the median at most 6 times that of a bare QUIC echo, disk included.
func BenchmarkClaim(b *testing.B) {
	h, c := benchHost(b), newCrew(b, 0)
	a := &asker{conn: dial(b, h, "quic", c.founder), crew: c, repository: c.repository, who: arbiter.Who{Session: token("s"), Branch: token("b"), Worktree: token("w")}}
	opens(b, a.conn, c, c.repository, func() {})
	ctx := context.Background()
	const rounds = 500
	echo := bareEcho(b)
	for b.Loop() {
		took, bare := make([]time.Duration, rounds), make([]time.Duration, rounds)
		for i := range rounds {
			start := time.Now()
			id, err := a.claim(ctx)
			if err != nil {
				b.Fatal(err)
			}
			took[i] = time.Since(start)
			if err := a.release(ctx, id); err != nil {
				b.Fatal(err)
			}
			time.Sleep(5 * time.Millisecond) // a device has 200 requests a second
			start = time.Now()
			echo()
			bare[i] = time.Since(start)
			time.Sleep(5 * time.Millisecond)
		}
		b.ReportMetric(float64(quantile(took, 0.5).Microseconds()), "µs-median")
		b.ReportMetric(float64(quantile(bare, 0.5).Microseconds()), "µs-echo")
		b.ReportMetric(float64(quantile(took, 0.5))/float64(quantile(bare, 0.5)), "echoes")
	}
}

// Budget: 1,000 devices in 50 repositories of 20, 200 claims a second in all: the 99th percentile at most 20 ms.
func BenchmarkThousandDevices(b *testing.B) {
	const devices, many, perSecond, seconds = 1_000, 50, 200, 5
	h, c := benchHost(b), newCrew(b, devices-1)
	repositories := c.repositories(many)
	askers := connectAll(b, h, c, repositories, func() {})
	for b.Loop() {
		var mu sync.Mutex
		var took []time.Duration
		var work sync.WaitGroup
		ticker := time.NewTicker(time.Second / perSecond)
		for i := range perSecond * seconds {
			<-ticker.C
			a := askers[(i*37)%len(askers)]
			work.Go(func() {
				start := time.Now()
				id, err := a.claim(context.Background())
				if err != nil {
					b.Error(err)
					return
				}
				mu.Lock()
				took = append(took, time.Since(start))
				mu.Unlock()
				_ = a.release(context.Background(), id)
			})
		}
		ticker.Stop()
		work.Wait()
		b.ReportMetric(float64(quantile(took, 0.5).Microseconds()), "µs-median")
		b.ReportMetric(float64(quantile(took, 0.99).Microseconds())/1000, "ms-p99")
	}
}

// connectAll connects every device of a crew, and has each open one of the repositories, 20 or so a repository.
func connectAll(b testing.TB, h *host, c *crew, repositories []gitlog.RepositoryID, heard func()) []*asker {
	b.Helper()
	var askers []*asker
	for i, d := range c.devices {
		a := &asker{conn: dial(b, h, "quic", d), crew: c, repository: repositories[i%len(repositories)], who: arbiter.Who{Session: token(d.ID), Branch: token("b"), Worktree: token("w", d.ID)}}
		opens(b, a.conn, c, a.repository, heard)
		askers = append(askers, a)
	}
	return askers
}

// Budget: at least 5,000 durable claims a second from 64 clients in 64 repositories, up to 16 in flight each.
func BenchmarkThroughput(b *testing.B) {
	const clients, inFlight, seconds = 64, 16, 3
	c := newCrew(b, clients-1)
	h := newHost(b, func(o *Options) { o.Limits.Rate, o.Limits.Burst, o.Limits.Claims = 1e6, 1e6, 1e6 })
	askers := connectAll(b, h, c, c.repositories(clients), func() {})
	for b.Loop() {
		var claims atomic.Int64
		ctx, cancel := context.WithTimeout(context.Background(), seconds*time.Second)
		start := time.Now()
		var work sync.WaitGroup
		for _, a := range askers {
			for flight := range inFlight {
				mine := *a
				mine.who.Session, mine.n = token(a.who.Session, flight), flight*1_000
				work.Go(func() {
					for ctx.Err() == nil {
						if _, err := mine.claim(ctx); err != nil {
							if ctx.Err() == nil {
								b.Error(err)
							}
							return
						}
						claims.Add(1)
					}
				})
			}
		}
		work.Wait()
		cancel()
		b.ReportMetric(float64(claims.Load())/time.Since(start).Seconds(), "claims/s")
	}
}

// Budget: the last of 1,000 connections hears of an event within 250 ms.
func BenchmarkFanOut(b *testing.B) {
	const devices, rounds = 1_000, 10
	h, c := benchHost(b), newCrew(b, devices-1)
	var heard atomic.Int64
	all := make(chan struct{}, 1)
	askers := connectAll(b, h, c, []gitlog.RepositoryID{c.repository}, func() {
		if heard.Add(1) == devices {
			all <- struct{}{}
		}
	})
	for b.Loop() {
		var took []time.Duration
		for range rounds {
			heard.Store(0)
			start := time.Now()
			if _, err := askers[0].claim(context.Background()); err != nil {
				b.Fatal(err)
			}
			<-all
			took = append(took, time.Since(start))
		}
		b.ReportMetric(float64(quantile(took, 0.5).Milliseconds()), "ms-median")
		b.ReportMetric(float64(quantile(took, 1).Milliseconds()), "ms-worst")
	}
}

// Budget: at most 150 kB a connection, in a relay with 1,000 of them that opened a repository.
func BenchmarkMemory(b *testing.B) {
	const devices = 1_000
	c := newCrew(b, devices-1)
	repositories := c.repositories(50)
	for b.Loop() {
		relay := &child{t: b, state: b.TempDir(), address: stage.Address(b)}
		relay.start()
		key, _, err := LoadKey(KeyPath(relay.state, ""))
		if err != nil {
			b.Fatal(err)
		}
		h := &host{t: b, address: relay.address, server: &Server{key: relayKey{public: key.Public().(ed25519.PublicKey)}}}
		first := *c
		first.devices = c.devices[:1]
		connectAll(b, h, &first, repositories, func() {}) // the roster is there
		before := residentKB(b, relay.command.Process.Pid)
		rest := *c
		rest.devices = c.devices[1:]
		askers := connectAll(b, h, &rest, repositories, func() {})
		for _, a := range askers {
			if _, err := a.claim(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
		after := residentKB(b, relay.command.Process.Pid)
		b.ReportMetric(float64(after-before)/float64(len(askers)), "kB/connection")
		for _, a := range askers {
			a.conn.Close(0, "")
		}
		relay.kill()
	}
}

// residentKB is what a process has in memory.
func residentKB(b testing.TB, pid int) (kb int) {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Skip("memory is read from /proc")
	}
	_, line, _ := strings.Cut(string(text), "VmRSS:")
	if _, err := fmt.Sscan(line, &kb); err != nil {
		b.Fatal(err)
	}
	return kb
}

// Budget: with 10,000 hostile connections (silent, garbage, strangers) the 99th percentile of others at most doubles, and
// memory is bounded.
func BenchmarkFlood(b *testing.B) {
	const hostile, rounds = 10_000, 400
	c := newCrew(b, 0)
	for b.Loop() {
		relay := &child{t: b, state: b.TempDir(), address: stage.Address(b)}
		relay.start()
		key, _, err := LoadKey(KeyPath(relay.state, ""))
		if err != nil {
			b.Fatal(err)
		}
		h := &host{t: b, address: relay.address, server: &Server{key: relayKey{public: key.Public().(ed25519.PublicKey)}}}
		a := connectAll(b, h, c, []gitlog.RepositoryID{c.repository}, func() {})[0]
		measure := func() time.Duration {
			var took []time.Duration
			for range rounds {
				start := time.Now()
				id, err := a.claim(context.Background())
				if err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(start))
				if err := a.release(context.Background(), id); err != nil {
					b.Fatal(err)
				}
				time.Sleep(2 * time.Millisecond)
			}
			return quantile(took, 0.99)
		}
		calm, before := measure(), residentKB(b, relay.command.Process.Pid)
		flooding, end := context.WithCancel(context.Background())
		var flood, opening sync.WaitGroup
		opening.Add(4)
		var opened atomic.Int64
		stranger := clientTLS(b, h, drawDevice(b))
		for worker := range 4 {
			flood.Go(func() {
				var held []net.Conn
				for i := worker; i < hostile; i += 4 {
					conn, err := net.DialTimeout("tcp", relay.address, time.Second)
					if err != nil {
						time.Sleep(time.Millisecond)
						continue
					}
					opened.Add(1)
					held = append(held, conn)
					switch i % 10 {
					case 0: // a handshake, and then silence
						secured := tls.Client(conn, stranger)
						_ = conn.SetDeadline(time.Now().Add(time.Second))
						_ = secured.Handshake()
					case 1, 2, 3:
						_, _ = conn.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
					}
				}
				opening.Done()
				<-flooding.Done()
				for _, conn := range held {
					conn.Close()
				}
			})
		}
		opening.Wait() // or the machine is measured that opens them, which is the same one
		flooded := measure()
		after := residentKB(b, relay.command.Process.Pid)
		end()
		flood.Wait()
		b.ReportMetric(float64(opened.Load()), "connections")
		b.ReportMetric(float64(calm.Microseconds())/1000, "ms-p99-calm")
		b.ReportMetric(float64(flooded)/float64(calm), "times-p99")
		b.ReportMetric(float64(after-before)/1024, "MB-more")
		a.conn.Close(0, "")
		relay.kill()
	}
}
