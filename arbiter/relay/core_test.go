package relay

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/arbiter/wire"
	"knoot.dev/knoot/gitlog"
)

// bench is a core without sockets, whose clock the test moves.
type bench struct {
	t      testing.TB
	state  string
	key    relayKey
	limits Limits
	disk   disk
	wall   atomic.Uint64 // gitlog.Millis; the log's goroutine asks for the time, too
	mono   atomic.Int64  // time.Duration
	core   *core
	counts metrics
}

func newBench(t testing.TB) *bench {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, state: t.TempDir(), key: relayKey{public, private}, limits: DefaultLimits(), disk: osDisk{}}
	b.wall.Store(1_700_000_000_000)
	if err := b.open(true); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.core.close() })
	return b
}

func (b *bench) open(fresh bool) error {
	mono := func() time.Duration { return time.Duration(b.mono.Load()) }
	wall := func() gitlog.Millis { return gitlog.Millis(b.wall.Load()) }
	core, err := openCore(b.state, b.key, fresh, newClock(wall, mono), mono, &b.limits, b.disk, &b.counts)
	if err == nil {
		b.core = core
	}
	return err
}

// reopen is a restart.
func (b *bench) reopen() {
	b.t.Helper()
	b.core.close()
	if err := b.open(false); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) pass(d time.Duration) {
	b.mono.Add(int64(d))
	b.wall.Add(uint64(d.Milliseconds()))
}

var benchKey = repositoryKey{gitlog.TeamID{1}, gitlog.RepositoryID{2}}

func (b *bench) repository() *repository { return b.core.repository(benchKey) }

// machine is a device that asks a repository without a connection.
type machine struct {
	id gitlog.DeviceID
}

func (m machine) by() caller { return caller{device: m.id, member: gitlog.MemberID{9}} }

func (m machine) who(session string) arbiter.Who {
	return arbiter.Who{Session: token(m.id, session), Branch: token("main"), Worktree: token(m.id, "worktree")}
}

func (m machine) claim(session, name string, id arbiter.ClaimID) *wire.Claim {
	return &wire.Claim{Claim: arbiter.Claim{Who: m.who(session), Wants: []arbiter.Want{{ID: id, Path: path(name), Class: arbiter.File}}}}
}

func (m machine) release(session string, id arbiter.ClaimID) *wire.Release {
	return &wire.Release{Release: arbiter.Release{Who: m.who(session), Claims: []arbiter.ClaimID{id}, Reason: arbiter.Released}}
}

var one, two = machine{gitlog.DeviceID{1}}, machine{gitlog.DeviceID{2}}

// tailEvents are the durable events from a place on, as a client reads them.
func tailEvents(t testing.TB, r *repository, place uint64) []arbiter.Event {
	t.Helper()
	var events []arbiter.Event
	for {
		found, kept := r.tail.read(place, 4<<10)
		if !kept {
			t.Fatalf("the events from %d on are gone", place)
		}
		if len(found.events) == 0 {
			return events
		}
		for _, b := range found.events {
			e, err := wire.DecodeEvent(b)
			if err != nil {
				t.Fatal(err)
			}
			events = append(events, e)
		}
		place += uint64(len(found.events))
	}
}

// Whatever is asked, in whatever order, with restarts between: a client's View of the events, one made of a snapshot, the
// relay's own and the one that a restarted relay makes of its disk are equal.
func TestEverybodysViewIsEqual(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		b := newBench(t)
		b.limits.LogFile = int64(rapid.IntRange(100, 4_000).Draw(rt, "file size"))
		defer func() { b.core.close() }()
		client, place := arbiter.New(), uint64(0)
		follow := func() {
			r := b.repository()
			for _, e := range tailEvents(t, r, place) {
				if e.Order.Compare(client.Position()) <= 0 {
					rt.Fatalf("%v after %v", e.Order, client.Position())
				}
				client.Apply(e)
				place++
			}
		}
		names, sessions := []string{"a", "b", "c"}, []string{"s", "t"}
		claims := []arbiter.ClaimID{}
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			m := rapid.SampledFrom([]machine{one, two}).Draw(rt, "machine")
			session := rapid.SampledFrom(sessions).Draw(rt, "session")
			name := rapid.SampledFrom(names).Draw(rt, "file")
			var err *wire.Fault
			switch rapid.IntRange(0, 8).Draw(rt, "step") {
			case 0, 1, 2:
				id := drawClaim()
				claims = append(claims, id)
				_, err = b.repository().claim(m.claim(session, name, id), m.by())
			case 3:
				if len(claims) > 0 {
					_, err = b.repository().release(m.release(session, rapid.SampledFrom(claims).Draw(rt, "claim")), m.by())
				}
			case 4:
				_, err = b.repository().appendActs(&wire.Append{Acts: []arbiter.Request{
					arbiter.Write{Who: m.who(session), Wants: []arbiter.Want{{Path: path(name), Class: arbiter.File}}},
				}}, m.by())
			case 5:
				_, err = b.repository().appendActs(&wire.Append{Acts: []arbiter.Request{
					arbiter.Renew{Who: m.who(session)}, arbiter.Stop{Who: m.who(session)},
				}}, m.by())
			case 6:
				b.pass(time.Duration(rapid.IntRange(0, 700).Draw(rt, "seconds")) * time.Second)
				if err := b.core.tick(); err != nil {
					rt.Fatal(err)
				}
			case 7:
				b.wall.Add(-uint64(rapid.IntRange(0, 3_600_000).Draw(rt, "back")))
			case 8:
				follow()
				b.reopen()
				// The tail begins anew, perhaps with less in it: the client finds its place.
				next, ok := b.repository().tail.find(client.Position())
				if !ok && client.Position() != (arbiter.Order{}) {
					rt.Fatalf("the position %v is forgotten", client.Position())
				}
				if place = 0; ok {
					place = next
				}
			}
			if err != nil {
				rt.Fatal(err)
			}
		}
		if b.core.log.barrier() != nil {
			if err := b.repository().hold(func(gitlog.Millis) *batch { return nil }); err != nil {
				rt.Fatal(err)
			}
		}
		follow()
		r := b.repository()
		if !client.Equal(r.seq.View) {
			rt.Fatalf("the client sees\n%+v, the relay\n%+v", client.Snapshot(), r.seq.Snapshot())
		}
		snapshot := r.seq.Snapshot()
		restored, err := wire.DecodeSnapshot(wire.EncodeSnapshot(&snapshot))
		if err != nil {
			rt.Fatal(err)
		}
		if !arbiter.Restore(*restored).Equal(client) {
			rt.Fatal("a snapshot makes another View")
		}
		b.reopen()
		if again := b.repository(); !again.seq.Equal(client) {
			rt.Fatalf("a restarted relay sees\n%+v, a client\n%+v", again.seq.Snapshot(), client.Snapshot())
		} else if again.seq.Term <= client.Position().Term {
			rt.Fatalf("term %d after %d", again.seq.Term, client.Position().Term)
		}
	})
}

// The log cut at every byte gives the events before the cut, and the relay goes on from there.
func TestALogCutAnywhere(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.repository()
	ids := []arbiter.ClaimID{drawClaim(), drawClaim(), drawClaim()}
	for i, name := range []string{"a", "b", "c"} {
		if _, fault := r.claim(one.claim("s", name, ids[i]), one.by()); fault != nil {
			t.Fatal(fault)
		}
	}
	if _, fault := r.release(one.release("s", ids[1]), one.by()); fault != nil {
		t.Fatal(fault)
	}
	events := tailEvents(t, r, 0)
	b.core.close()
	whole, err := os.ReadFile(logPath(filepath.Join(b.state, logFolder), 1))
	if err != nil {
		t.Fatal(err)
	}
	born, err := os.ReadFile(filepath.Join(b.state, bornName))
	if err != nil {
		t.Fatal(err)
	}
	last := -1
	for cut := 0; cut <= len(whole); cut++ {
		again := &bench{t: t, state: t.TempDir(), key: b.key, limits: b.limits, disk: osDisk{}}
		again.wall.Store(b.wall.Load())
		dir := filepath.Join(again.state, logFolder)
		if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(logPath(dir, 1), whole[:cut], 0o600), os.WriteFile(filepath.Join(again.state, bornName), born, 0o600)); err != nil {
			t.Fatal(err)
		}
		if err := again.open(false); err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		got := tailEvents(t, again.repository(), 0)
		if len(got) > len(events) || len(got) > 0 && !reflect.DeepEqual(got, events[:len(got)]) {
			t.Fatalf("cut at %d: other events than there were", cut)
		}
		if len(got) < last {
			t.Fatalf("cut at %d: fewer events than before it", cut)
		}
		last = len(got)
		want := arbiter.New()
		for _, e := range events[:len(got)] {
			want.Apply(e)
		}
		if !again.repository().seq.Equal(want) {
			t.Fatalf("cut at %d: another state", cut)
		}
		if _, fault := again.repository().claim(two.claim("t", "new", drawClaim()), two.by()); fault != nil {
			t.Fatalf("cut at %d: it does not go on: %v", cut, fault)
		}
		again.core.close()
	}
	if last != len(events) {
		t.Errorf("uncut there are %d events, want %d", last, len(events))
	}
}

// A bit that flips in the middle is found, and the sentence says where.
func TestADamagedLog(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if _, fault := b.repository().claim(one.claim("s", "a", drawClaim()), one.by()); fault != nil {
		t.Fatal(fault)
	}
	b.reopen() // so that the first file is not the newest
	b.core.close()
	dir := filepath.Join(b.state, logFolder)
	whole, err := os.ReadFile(logPath(dir, 1))
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []int{0, len(logMagic), len(logMagic) + 5, len(whole) - 1} {
		bad := append([]byte{}, whole...)
		bad[at] ^= 1
		if err := os.WriteFile(logPath(dir, 1), bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := b.open(false); err == nil || !strings.Contains(err.Error(), logPath(dir, 1)) {
			t.Errorf("byte %d: %v", at, err)
		}
	}
	if err := os.WriteFile(logPath(dir, 1), whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := b.open(false); err != nil {
		t.Fatal(err)
	}
}

// crashDisk keeps what was synced, and of the rest as much as it likes.
type crashDisk struct {
	mu    sync.Mutex
	files map[string]*crashFile
	fail  error // of every write and sync from now on
}

type crashFile struct {
	disk   *crashDisk
	f      logFile
	path   string
	size   int64
	synced int64
}

func (d *crashDisk) Create(path string) (logFile, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail != nil {
		return nil, d.fail
	}
	f, err := osDisk{}.Create(path)
	if err != nil {
		return nil, err
	}
	c := &crashFile{disk: d, f: f, path: path}
	d.files[path] = c
	return c, nil
}

func (d *crashDisk) SyncDir(path string) error { return osDisk{}.SyncDir(path) }

func (c *crashFile) Write(b []byte) (int, error) {
	c.disk.mu.Lock()
	defer c.disk.mu.Unlock()
	if c.disk.fail != nil {
		n, _ := c.f.Write(b[:len(b)/2]) // as a full disk does
		c.size += int64(n)
		return n, c.disk.fail
	}
	n, err := c.f.Write(b)
	c.size += int64(n)
	return n, err
}

func (c *crashFile) Sync() error {
	c.disk.mu.Lock()
	defer c.disk.mu.Unlock()
	if c.disk.fail != nil {
		return c.disk.fail
	}
	c.synced = c.size
	return nil
}

func (c *crashFile) Close() error { return c.f.Close() }

// crash cuts every file somewhere behind what was synced.
func (d *crashDisk) crash(t testing.TB) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.files {
		if _, err := os.Stat(c.path); err != nil {
			continue
		}
		if err := os.Truncate(c.path, c.synced+mathrand.Int64N(c.size-c.synced+1)); err != nil {
			t.Fatal(err)
		}
	}
	d.files = map[string]*crashFile{}
}

// Nothing that anybody was told is missing after a crash at any moment, and there never are two winners.
func TestCrashesLoseNothingThatWasTold(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	d := &crashDisk{files: map[string]*crashFile{}}
	b.disk, b.limits.LogFile = d, 2_000
	b.reopen()
	told := arbiter.New() // what somebody saw
	for round := range 60 {
		var mu sync.Mutex
		granted := map[arbiter.ClaimID]arbiter.Order{} // claims of which somebody heard that they are theirs
		var work sync.WaitGroup
		r := b.repository()
		place, ok := r.tail.find(told.Position())
		if told.Position() == (arbiter.Order{}) {
			place, ok = 0, true
		}
		if !ok {
			t.Fatalf("round %d: the position %v is gone", round, told.Position())
		}
		for _, m := range []machine{one, two} {
			for s := range 3 {
				work.Go(func() {
					for i := range 5 {
						name, id := fmt.Sprint("file", (s+i+round)%7), drawClaim()
						answer, fault := r.claim(m.claim(fmt.Sprint(s), name, id), m.by())
						if fault != nil {
							return // the disk is gone
						}
						if answer.Outcome == wire.Granted {
							mu.Lock()
							granted[id] = answer.Position
							mu.Unlock()
						}
						if i%2 == 1 {
							if _, fault := r.release(m.release(fmt.Sprint(s), id), m.by()); fault != nil {
								return
							}
						}
					}
				})
			}
		}
		stop := mathrand.IntN(3)
		time.Sleep(time.Duration(stop) * time.Millisecond) // no event is awaited: the crash comes at any moment
		d.mu.Lock()
		d.fail = errors.New("the power is gone")
		d.mu.Unlock()
		work.Wait()
		// What listeners saw is what was published.
		for _, e := range tailEvents(t, r, place) {
			told.Apply(e)
		}
		b.core.close()
		d.crash(t)
		d.mu.Lock()
		d.fail = nil
		d.mu.Unlock()
		if err := b.open(false); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		after := b.repository()
		next, ok := after.tail.find(told.Position())
		if told.Position() == (arbiter.Order{}) {
			next, ok = 0, true
		}
		if !ok {
			t.Fatalf("round %d: event %v was seen and is gone", round, told.Position())
		}
		for _, e := range tailEvents(t, after, next) {
			told.Apply(e)
		}
		for id, position := range granted {
			if position.Compare(told.Position()) > 0 {
				t.Fatalf("round %d: claim %x was granted by event %v, which is gone", round, id, position)
			}
		}
		if !after.seq.Equal(told) {
			t.Fatalf("round %d: the relay is at %v in another state than that of the events up to %v", round, after.seq.Position(), told.Position())
		}
		held := map[arbiter.Token]arbiter.ClaimID{}
		for _, h := range told.Claims(arbiter.Token{}, told.Time()) {
			if other, twice := held[h.Path.Own]; twice {
				t.Fatalf("round %d: two claims, %x and %x, on one path", round, other, h.Claim)
			}
			held[h.Path.Own] = h.Claim
		}
	}
}

// A full disk: nobody hears of what was not written, requests fail, and once there is room the relay goes on by itself.
func TestAFullDisk(t *testing.T) {
	t.Parallel()
	d := &crashDisk{files: map[string]*crashFile{}}
	h := newHost(t, func(o *Options) { o.disk = d })
	c := newCrew(t, 1)
	a := newLink(t, h, c, c.devices[0])
	granted := a.claim("one", "kept.js")
	a.reach(granted.Position)
	d.mu.Lock()
	d.fail = errors.New("no space left on device")
	d.mu.Unlock()
	if _, err := a.ask(a.claimOf("one", "lost.js", drawClaim())); !isFault(err, wire.Unavailable) && !isClosed(err, wire.Unavailable) {
		t.Errorf("with a full disk: %v", err)
	}
	<-a.conn.Done()
	if err := a.conn.Err(); !isClosed(err, wire.Unavailable) {
		t.Errorf("the connection ended with %v", err)
	}
	if err := h.server.Healthy(); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("it says of itself: %v", err)
	}
	d.mu.Lock()
	d.fail = nil
	d.mu.Unlock()
	deadline := time.Now().Add(20 * time.Second)
	for h.server.Healthy() != nil {
		if time.Now().After(deadline) {
			t.Fatal("it does not recover")
		}
		time.Sleep(10 * time.Millisecond)
	}
	b := newLink(t, h, c, c.devices[1])
	if got := b.claim("two", "kept.js"); got.Outcome != wire.Denied {
		t.Errorf("what was granted before is forgotten: %+v", got)
	}
	if got := b.claim("two", "lost.js"); got.Outcome != wire.Granted {
		t.Errorf("what was never granted is held: %+v", got)
	}
}

// Files that are too old or too many go, and who comes back from before gets a snapshot.
func TestOldFilesGo(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.limits.LogFile, b.limits.Tail = 1_000, time.Hour
	b.reopen()
	ask := func() arbiter.Order {
		answer, fault := b.repository().claim(one.claim("s", fmt.Sprint("file", drawClaim()), drawClaim()), one.by())
		if fault != nil {
			t.Fatal(fault)
		}
		return answer.Position
	}
	early := ask()
	for range 40 {
		ask()
	}
	files := func() int {
		numbers, err := logNumbers(filepath.Join(b.state, logFolder))
		if err != nil {
			t.Fatal(err)
		}
		return len(numbers)
	}
	before := files()
	if before < 3 {
		t.Fatalf("%d files: none was begun", before)
	}
	if _, ok := b.repository().tail.find(early); !ok {
		t.Error("an event of a moment ago is gone")
	}
	b.pass(2 * time.Hour)
	for i := 0; files() >= before && i < 60; i++ {
		ask()
	}
	late := ask()
	r := b.repository()
	if _, ok := r.tail.find(early); ok {
		t.Error("an event of two hours ago is kept")
	}
	o, fault := r.open(early, &listener{})
	if fault != nil || o.snapshot == nil || o.position.Compare(late) < 0 {
		t.Errorf("who comes back from before gets %v at %v (%v)", o.snapshot != nil, o.position, fault)
	}
	if o, fault := r.open(late, &listener{}); fault != nil || o.snapshot != nil || o.position != late {
		t.Errorf("who comes back from a moment ago gets %v at %v (%v)", o.snapshot != nil, o.position, fault)
	}
	b.limits.LogBytes = 1
	b.reopen()
	if n := files(); n != 1 {
		t.Errorf("%d files, with room for none", n)
	}
}

func TestTheClockNeverGoesBack(t *testing.T) {
	wall, mono := gitlog.Millis(10_000_000), time.Duration(0)
	c := newClock(func() gitlog.Millis { return wall }, func() time.Duration { return mono })
	at := func(want gitlog.Millis, what string) {
		t.Helper()
		if got := c.now(); got != want {
			t.Errorf("%s: %d, want %d", what, got, want)
		}
	}
	at(10_000_000, "at first")
	wall -= 3_600_000
	at(10_000_000, "an hour back")
	mono += 1_500 * time.Microsecond
	at(10_000_001, "a millisecond later")
	mono += 500 * time.Microsecond
	at(10_000_002, "what was left of one counts")
	wall = 15_000_000
	at(15_000_000, "forward")
	c.reach(16_000_000)
	at(16_000_000, "what an earlier run gave")
	mono += time.Second
	at(16_001_000, "a second later")
}

func TestRates(t *testing.T) {
	r := newRate(10, 3, 0)
	for i := range 3 {
		if wait := r.take(1, 0); wait != 0 {
			t.Errorf("take %d waits %v", i, wait)
		}
	}
	if wait := r.take(1, 0); wait != 100*time.Millisecond {
		t.Errorf("over the burst it waits %v", wait)
	}
	if wait := r.take(1, 100*time.Millisecond); wait != 0 {
		t.Errorf("after that time it waits %v", wait)
	}
	if wait := r.take(3, time.Hour); wait != 0 {
		t.Errorf("a full bucket holds %v too little", wait)
	}
}

func TestKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "relay.key")
	key, fresh, err := LoadKey(path)
	if err != nil || !fresh {
		t.Fatalf("fresh %v, %v", fresh, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key's file: %v, %v", info.Mode(), err)
	}
	again, fresh, err := LoadKey(path)
	if err != nil || fresh || !again.Equal(key) {
		t.Errorf("loaded again: fresh %v, %v", fresh, err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := LoadKey(path); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a key for everybody to read: %v", err)
	}
	if err := errors.Join(os.Chmod(path, 0o600), os.WriteFile(path, []byte("no key"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := LoadKey(path); err == nil || !strings.Contains(err.Error(), "backup") {
		t.Errorf("no key in the file: %v", err)
	}
	one, err1 := resetKey(key)
	two, err2 := resetKey(again)
	if err1 != nil || err2 != nil || one != two || one == sha256.Sum256(key.Seed()) {
		t.Error("the reset key is not the key's own")
	}
}
