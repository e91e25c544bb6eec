package relay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/arbiter/wire"
	"knoot.dev/knoot/gitlog"
)

// core is everything that the log makes: the repositories, their order, their tails. It is made anew from the disk after
// the log could not be written, as after a crash: there is one way back, and the tests go it all the time.
type core struct {
	state  string
	key    relayKey
	clock  *clock
	mono   func() time.Duration
	limits *Limits
	log    *writeAhead
	grace  atomic.Uint64 // Millis at which it ends; 0: there is none
	events *counter

	// world is held for writing while the log begins another file: nobody decides anything then.
	world sync.RWMutex
	file  uint64                   // number of the log's file that is written to; world
	begun map[uint64]gitlog.Millis // when each file was begun; world

	mu           sync.Mutex
	repositories map[repositoryKey]*repository
	byNumber     map[uint64]*repository
}

type repositoryKey struct {
	team gitlog.TeamID
	id   gitlog.RepositoryID
}

const logFolder = "log"

// openCore reads the log and begins a new term in every repository.
func openCore(state string, key relayKey, fresh bool, c *clock, mono func() time.Duration, limits *Limits, d disk, m *metrics) (*core, error) {
	k := &core{
		state: state, key: key, clock: c, mono: mono, limits: limits, events: &m.events,
		begun: map[uint64]gitlog.Millis{}, repositories: map[repositoryKey]*repository{}, byNumber: map[uint64]*repository{},
	}
	dir := filepath.Join(state, logFolder)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the relay's state folder: %w", err)
	}
	numbers, err := logNumbers(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot read the relay's log: %w", err)
	}
	sizes := map[uint64]int64{}
	for i, number := range numbers {
		k.file = number
		size, err := replay(logPath(dir, number), i == len(numbers)-1, k.take)
		if err != nil {
			return nil, fmt.Errorf("cannot read the relay's log: %w", err)
		}
		if size > 0 {
			sizes[number] = size
			info, err := os.Stat(logPath(dir, number))
			if err != nil {
				return nil, fmt.Errorf("cannot read the relay's log: %w", err)
			}
			k.begun[number] = gitlog.MillisOf(info.ModTime())
		}
	}
	for _, r := range k.repositories {
		r.tail.publish(r.tail.end(), mono())
		c.reach(r.seq.Time())
	}
	if err := k.begin(fresh); err != nil {
		return nil, err
	}
	for _, r := range k.repositories {
		r.weigh(c.now())
	}
	for _, r := range k.repositories {
		r.seq.Term = k.newTerm(max(r.seq.Term, r.seq.Position().Term))
	}
	k.log = &writeAhead{
		dir: dir, disk: d, fileSize: limits.LogFile, sizes: sizes, keepBytes: limits.LogBytes,
		cut: k.cut, dropped: k.dropped, observe: m.syncs.observe,
		young: func(number uint64) bool { // the file after it holds nothing that is too old either
			return k.clock.now() < k.lastOf(number)+gitlog.Millis(k.limits.Tail.Milliseconds())
		},
	}
	if err := k.log.start(k.file + 1); err != nil {
		return nil, fmt.Errorf("cannot write the relay's log: %w", err)
	}
	return k, nil
}

// begin finds out whether this is the state that the key had, and begins the grace if not.
func (k *core) begin(fresh bool) error {
	ours, err := born(k.state, k.key.public)
	if err != nil {
		return fmt.Errorf("cannot read the relay's state folder: %w", err)
	}
	switch {
	case ours:
	case fresh:
		if err := bear(k.state, k.key.public); err != nil {
			return fmt.Errorf("cannot write the relay's state folder: %w", err)
		}
	default:
		k.grace.Store(uint64(k.clock.now() + arbiter.Lease))
	}
	return nil
}

// graceLeft says how long claims are still granted only with a grant.
func (k *core) graceLeft(now gitlog.Millis) gitlog.Millis {
	if until := gitlog.Millis(k.grace.Load()); until > now {
		return until - now
	}
	return 0
}

// newTerm is higher than a term that was, and than any that a relay without its state could have had before.
func (k *core) newTerm(was uint64) uint64 {
	return 1 + max(was, uint64(k.clock.now()/1000))
}

// lastOf is when the last event of a file was written, at the latest: when the one after it was begun.
func (k *core) lastOf(number uint64) gitlog.Millis {
	last, found := gitlog.Millis(0), false
	for n, at := range k.begun {
		if n > number && (!found || at < last) {
			last, found = at, true
		}
	}
	if !found {
		return k.clock.now()
	}
	return last
}

var errRecord = errors.New("it is not what this version of the relay writes")

// take replays one record.
func (k *core) take(payload []byte) error {
	number, n := binary.Uvarint(payload[1:])
	if n <= 0 {
		return errRecord
	}
	rest := payload[1+n:]
	r := k.byNumber[number]
	switch payload[0] {
	case recordState:
		var key repositoryKey
		if len(rest) < len(key.team)+len(key.id) {
			return errRecord
		}
		rest = rest[copy(key.team[:], rest):]
		rest = rest[copy(key.id[:], rest):]
		term, n := binary.Uvarint(rest)
		if n <= 0 {
			return errRecord
		}
		if r == nil {
			view := arbiter.New()
			if rest = rest[n:]; len(rest) > 0 {
				snapshot, err := wire.DecodeSnapshot(rest)
				if err != nil {
					return err
				}
				view = arbiter.Restore(*snapshot)
			}
			r = k.add(key, number, view)
			r.weight.since = int64(len(rest))
		}
		if r.key != key {
			return errRecord
		}
		r.seq.Term = max(r.seq.Term, term)
	case recordEvent:
		if r == nil {
			return errRecord
		}
		event, err := wire.DecodeEvent(rest)
		if err != nil {
			return err
		}
		r.seq.Apply(event)
		r.note(&event, len(rest))
		r.tail.add(tailEvent{order: event.Order, file: k.file, bytes: rest})
	case recordTerm:
		term, n := binary.Uvarint(rest)
		if r == nil || n <= 0 {
			return errRecord
		}
		r.seq.Term = max(r.seq.Term, term)
	default:
		return errRecord
	}
	return nil
}

// add makes a repository. mu is held, or nobody else is there yet.
func (k *core) add(key repositoryKey, number uint64, view *arbiter.View) *repository {
	r := &repository{
		core: k, key: key, number: number, seq: arbiter.Sequencer{View: view}, tail: newTail(k.mono()),
		listeners: map[*listener]struct{}{}, granted: map[arbiter.ClaimID]grantState{}, claims: map[gitlog.DeviceID]int{},
		shown: map[arbiter.ClaimID]arbiter.Order{}, weight: weight{at: k.mono() - weighEvery},
	}
	for _, hold := range view.Claims(arbiter.Token{}, view.Time()) {
		r.claims[hold.Device]++
		r.queueGrant(hold.Claim, hold.Device, view.Time(), hold.Until)
	}
	k.repositories[key], k.byNumber[number] = r, r
	return r
}

// appendState frames a repository's state.
func (r *repository) appendState(b []byte, term uint64, snapshot []byte) []byte {
	head := binary.AppendUvarint([]byte{recordState}, r.number)
	head = append(head, r.key.team[:]...)
	head = append(head, r.key.id[:]...)
	return appendRecord(b, binary.AppendUvarint(head, term), snapshot)
}

// repository finds a repository, or begins it; nil where there are too many.
func (k *core) repository(key repositoryKey) *repository {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r := k.repositories[key]; r != nil {
		return r
	}
	if len(k.repositories) >= k.limits.Repositories {
		return nil
	}
	number := uint64(len(k.byNumber)) + 1
	for k.byNumber[number] != nil {
		number++
	}
	k.world.RLock()
	defer k.world.RUnlock()
	r := k.add(key, number, arbiter.New())
	r.seq.Term = k.newTerm(0)
	k.log.append(r.appendState(nil, r.seq.Term, nil), r, 0)
	return r
}

// all lists the repositories.
func (k *core) all() []*repository {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := make([]*repository, 0, len(k.repositories))
	for _, r := range k.repositories {
		all = append(all, r)
	}
	return all
}

// cut stops the world, lets the log take what waits, and returns everybody's state. The snapshots are encoded when the
// world goes on again.
func (k *core) cut(take func()) []byte {
	type cutState struct {
		r        *repository
		snapshot arbiter.Snapshot
		term     uint64
	}
	k.mu.Lock()
	k.world.Lock()
	take()
	states := make([]cutState, 0, len(k.repositories))
	for _, r := range k.repositories {
		states = append(states, cutState{r, r.seq.Snapshot(), r.seq.Term})
	}
	k.file++
	k.begun[k.file] = k.clock.now()
	k.world.Unlock()
	k.mu.Unlock()
	var records []byte
	for _, s := range states {
		records = s.r.appendState(records, s.term, wire.EncodeSnapshot(&s.snapshot))
	}
	return records
}

// dropped forgets what was in files that are gone.
func (k *core) dropped(before uint64) {
	k.world.Lock()
	for number := range k.begun {
		if number < before {
			delete(k.begun, number)
		}
	}
	k.world.Unlock()
	for _, r := range k.all() {
		r.tail.drop(before)
	}
}

// tick does what time alone brings. It is called several times a second.
func (k *core) tick() error {
	now := k.clock.now()
	if until := k.grace.Load(); until != 0 && gitlog.Millis(until) <= now {
		if err := bear(k.state, k.key.public); err != nil {
			return fmt.Errorf("cannot write the relay's state folder: %w", err)
		}
		k.grace.Store(0)
	}
	weighed := false
	for _, r := range k.all() {
		r.tick(now)
		weighed = weighed || r.weigh(now) // one at a time, or the others' time would stand still
	}
	return nil
}

func (k *core) close() { k.log.close() }
