package relay

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/arbiter/wire"
	"knoot.dev/knoot/gitlog"
	"knoot.dev/knoot/integration/stage"
)

// The test's own executable is the relay that is killed.
const (
	childState   = "KNOOT_RELAY_CHILD_STATE"
	childAddress = "KNOOT_RELAY_CHILD_ADDRESS"
	childBytes   = "KNOOT_RELAY_CHILD_BYTES" // of the log, if not the usual limit
)

// beChild runs a relay until it is killed, where the environment asks for it.
func beChild() {
	state, address := os.Getenv(childState), os.Getenv(childAddress)
	if state == "" {
		return
	}
	err := func() error {
		key, fresh, err := LoadKey(KeyPath(state, ""))
		if err != nil {
			return err
		}
		limits := DefaultLimits()
		limits.LogFile, limits.Rate, limits.Burst, limits.PerDevice = 200_000, 1e6, 1e6, 2_000
		if n, err := strconv.ParseInt(os.Getenv(childBytes), 10, 64); err == nil {
			limits.LogBytes = n
		}
		server, err := New(Options{State: state, Key: key, Fresh: fresh, Limits: limits, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
		if err != nil {
			return err
		}
		sockets, err := Listen(address)
		if err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		fmt.Println(sockets.TCP.Addr())
		return server.Serve(ctx, sockets)
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// child is a relay in a process of its own.
type child struct {
	t       testing.TB
	state   string
	address string
	bytes   int64 // of its log; 0: the usual limit
	command *exec.Cmd
}

func (c *child) start() {
	c.t.Helper()
	c.command = exec.Command(os.Args[0])
	c.command.Env = append(os.Environ(), childState+"="+c.state, childAddress+"="+c.address)
	if c.bytes > 0 {
		c.command.Env = append(c.command.Env, fmt.Sprint(childBytes, "=", c.bytes))
	}
	var stderr bytes.Buffer
	c.command.Stderr = &stderr
	out, err := c.command.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := c.command.Start(); err != nil {
		c.t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		_ = c.command.Wait()
		c.t.Fatalf("the relay does not start: %v, %s", err, stderr.String())
	}
}

func (c *child) kill() {
	_ = c.command.Process.Kill()
	_ = c.command.Wait()
}

// deed is what a session asked for, as the checker sees it.
type deed struct {
	session, file string
	claim         bool // else a release
}

// outcome is what it heard.
type outcome int

const (
	unheard outcome = iota // the connection broke: it was done, or it was not
	done
	refused
)

// oneHolder is a file that one session holds at most. Its state is the holder.
var oneHolder = (&porcupine.NondeterministicModel{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byFile := map[string][]porcupine.Operation{}
		for _, o := range history {
			byFile[o.Input.(deed).file] = append(byFile[o.Input.(deed).file], o)
		}
		var parts [][]porcupine.Operation
		for _, part := range byFile {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() []any { return []any{""} },
	Step: func(state, input, output any) []any {
		holder, d, heard := state.(string), input.(deed), output.(outcome)
		after := holder
		switch {
		case d.claim && (holder == "" || holder == d.session):
			after = d.session
		case d.claim:
			if heard == done {
				return nil
			}
			return []any{holder}
		case holder == d.session:
			after = ""
		}
		switch heard {
		case done:
			return []any{after}
		case refused:
			return nil // nobody else held it
		}
		if after == holder {
			return []any{holder}
		}
		return []any{holder, after}
	},
}).ToModel()

// The relay is killed again and again, at any moment under load: no claim that was granted is forgotten, there never are two
// winners, and no event that anybody saw is missing afterwards. `make chaos` does it 200 times.
func TestKilledAgainAndAgain(t *testing.T) {
	rounds := 8
	if n, err := strconv.Atoi(os.Getenv("KNOOT_ROUNDS")); err == nil {
		rounds = n
	}
	relay := &child{t: t, state: t.TempDir(), address: stage.Address(t)}
	relay.start()
	t.Cleanup(func() { relay.kill() })
	key, _, err := LoadKey(KeyPath(relay.state, ""))
	if err != nil {
		t.Fatal(err)
	}
	pin := wire.PinOf(key.Public().(ed25519.PublicKey))
	c := newCrew(t, 3)

	var (
		mu      sync.Mutex
		history []porcupine.Operation
		seen    = map[arbiter.Order][]byte{}
		newest  arbiter.Order
		wrong   error
	)
	start := time.Now()
	saw := func(e *arbiter.Event) {
		mu.Lock()
		defer mu.Unlock()
		bytes := wire.EncodeEvent(e)
		if other, ok := seen[e.Order]; ok && string(other) != string(bytes) {
			wrong = errors.Join(wrong, fmt.Errorf("event %v is two events", e.Order))
		}
		if seen[e.Order] = bytes; e.Order.Compare(newest) > 0 {
			newest = e.Order
		}
	}
	life, end := context.WithCancel(context.Background())
	defer end()
	var work sync.WaitGroup
	answered := make(chan struct{}) // something was
	for n, device := range c.devices {
		work.Go(func() {
			w := &worker{crew: c, device: device, pin: pin, relay: relay, saw: saw, view: arbiter.New()}
			defer w.drop()
			for life.Err() == nil {
				d := deed{session: fmt.Sprint(n, "/", mathrand.IntN(2)), file: fmt.Sprint("file", mathrand.IntN(3)), claim: mathrand.IntN(2) == 0}
				called := time.Since(start)
				heard, tried := w.do(life, d)
				if !tried {
					continue
				}
				mu.Lock()
				history = append(history, porcupine.Operation{ClientId: n, Input: d, Call: int64(called), Output: heard, Return: int64(time.Since(start))})
				mu.Unlock()
				if heard != unheard {
					select {
					case answered <- struct{}{}:
					default:
					}
				}
			}
		})
	}
	var away time.Duration
	for range rounds {
		for range 1 + mathrand.IntN(40) { // any moment, but not before it is at work
			select {
			case <-answered:
			case <-time.After(10 * time.Second):
				t.Fatal("nobody is answered any more")
			}
		}
		relay.kill()
		began := time.Now()
		relay.start()
		away += time.Since(began)
	}
	for range 20 {
		<-answered
	}
	end()
	work.Wait()

	if wrong != nil {
		t.Error(wrong)
	}
	// Whoever comes now, to the state as it is, and whoever was there from the beginning see the same.
	relay.kill()
	core := &bench{t: t, state: relay.state, key: relayKey{key.Public().(ed25519.PublicKey), key}, limits: DefaultLimits(), disk: osDisk{}}
	core.wall.Store(uint64(gitlog.Now()))
	if err := core.open(false); err != nil {
		t.Fatal(err)
	}
	defer core.core.close()
	r := core.core.repository(repositoryKey{c.team, c.repository})
	kept := map[arbiter.Order]bool{}
	for _, e := range tailEvents(t, r, 0) {
		kept[e.Order] = true
		if was, ok := seen[e.Order]; ok && string(was) != string(wire.EncodeEvent(&e)) {
			t.Errorf("event %v was another when it was seen", e.Order)
		}
	}
	missing := 0
	for order := range seen {
		if !kept[order] {
			missing++
		}
	}
	if missing > 0 {
		t.Errorf("%d of %d events that were seen are missing", missing, len(seen))
	}
	if len(history) == 0 || len(seen) == 0 {
		t.Fatalf("%d requests, %d events: there was no load", len(history), len(seen))
	}
	counts := map[outcome]int{}
	for _, o := range history {
		counts[o.Output.(outcome)]++
	}
	result := porcupine.CheckOperationsTimeout(oneHolder, history, 2*time.Minute)
	t.Logf("%d kills, %v until it listens again on average: %d requests (%d done, %d refused, %d never answered), %d events seen, %d missing; linearizable: %s",
		rounds, (away / time.Duration(rounds)).Round(time.Millisecond), len(history), counts[done], counts[refused], counts[unheard], len(seen), missing, result)
	if result != porcupine.Ok {
		t.Errorf("the answers are those of no order in which a file has one holder at most: %s", result)
	}
}

// worker is a device whose connection breaks all the time.
type worker struct {
	crew   *crew
	device *gitlog.Device
	pin    wire.Pin
	relay  *child
	saw    func(*arbiter.Event)

	conn   wire.Conn
	reader sync.WaitGroup
	view   *arbiter.View // of the events so far; the reader's, and nobody's between
	held   sync.Map      // claim ids by session and file
}

func (w *worker) drop() {
	if w.conn != nil {
		w.conn.Close(0, "")
		w.reader.Wait()
		w.conn = nil
	}
}

// connect opens the repository again where the last connection ended.
func (w *worker) connect(ctx context.Context) error {
	w.drop()
	certificate, err := wire.Certificate(w.device.Sign)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	config := wire.ClientTLS(certificate, &w.pin, "")
	dial := wire.DialQUIC
	if mathrand.IntN(2) == 0 {
		dial = wire.DialTCP
	}
	conn, _, err := dial(ctx, w.relay.address, config, "worker")
	if err != nil {
		return err
	}
	w.conn = conn
	stream, err := conn.Open(ctx)
	if err != nil {
		return err
	}
	_ = stream.SetDeadline(time.Now().Add(2 * time.Second))
	position := w.view.Position()
	if err := stream.Send(wire.Encode(&wire.Open{Team: w.crew.team, Repository: w.crew.repository, Head: w.crew.roster.Head, Position: position})); err != nil {
		return err
	}
	opened, err := meet(w.crew, stream)
	if err != nil {
		return err
	}
	if position != (arbiter.Order{}) && opened.Snapshot != 0 {
		return fmt.Errorf("the position %v is forgotten", position)
	}
	for got := uint64(0); got < opened.Snapshot; {
		m, err := wire.ReceiveMessage(stream)
		if err != nil {
			return err
		}
		part := m.(*wire.SnapshotPart).Bytes
		if got += uint64(len(part)); got == opened.Snapshot && got == uint64(len(part)) {
			s, err := wire.DecodeSnapshot(part)
			if err != nil {
				return err
			}
			w.view = arbiter.Restore(*s)
		}
	}
	_ = stream.SetDeadline(time.Time{})
	w.reader.Go(func() {
		defer stream.Close()
		for {
			m, err := wire.ReceiveMessage(stream)
			if err != nil {
				return
			}
			if events, ok := m.(*wire.Events); ok {
				for i := range events.Events {
					w.view.Apply(events.Events[i])
					w.saw(&events.Events[i])
				}
			}
		}
	})
	return nil
}

// do asks for a deed; tried says whether it can have reached the relay.
func (w *worker) do(ctx context.Context, d deed) (heard outcome, tried bool) {
	if w.conn == nil || w.conn.Err() != nil {
		if err := w.connect(ctx); err != nil {
			w.drop()
			time.Sleep(10 * time.Millisecond) // the relay is away
			return unheard, false
		}
	}
	who := arbiter.Who{Session: token(d.session), Branch: token("main"), Worktree: token(d.session, "worktree")}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	slot := d.session + d.file
	if d.claim {
		id := drawClaim()
		answer, err := wire.Ask(ctx, w.conn, &wire.Claim{Repository: w.crew.repository, Head: w.crew.roster.Head,
			Claim: arbiter.Claim{Who: who, Wants: []arbiter.Want{{ID: id, Path: path(d.file), Class: arbiter.File}}}})
		if err != nil {
			w.drop()
			w.held.Store(slot, append(w.ids(slot), id)) // it may have been granted
			return unheard, true
		}
		if answer.(*wire.Answer).Outcome != wire.Granted {
			return refused, true
		}
		w.held.Store(slot, append(w.ids(slot), id))
		return done, true
	}
	_, err := wire.Ask(ctx, w.conn, &wire.Release{Repository: w.crew.repository,
		Release: arbiter.Release{Who: who, Claims: w.ids(slot), Reason: arbiter.Released}})
	if err != nil {
		w.drop()
		return unheard, true
	}
	w.held.Delete(slot)
	return done, true
}

func (w *worker) ids(slot string) []arbiter.ClaimID {
	if ids, ok := w.held.Load(slot); ok {
		return ids.([]arbiter.ClaimID)
	}
	return nil
}
