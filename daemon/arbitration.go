package daemon

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fxamacker/cbor/v2"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/gitlog"
)

const (
	// maxPending bounds the events of a repository that are in no audit log yet; the oldest go first.
	maxPending = 10_000
	// namesKept is how long a name is kept that no event has used: longer than anything that the arbiter remembers.
	namesKept = arbiter.StaleAfter + gitlog.Millis(60*60*1000)
	// arbiterRewrite is how much a file may grow until it is written anew.
	arbiterRewrite = 4 << 20
	// snapshotPart is how much of a snapshot is in one record.
	snapshotPart = 1 << 20
	// eventsTogether is how many events are in one record.
	eventsTogether = 200
)

// arbitrations are the arbiters of this machine, one a repository, whichever of its clones and worktrees sessions are in.
type arbitrations struct {
	d *daemon

	mu        sync.Mutex
	byID      map[repositoryID]*arbitration      // guarded by mu
	observers []func(*arbitration, []occurrence) // set before the first is opened
}

// repositoryID is a repository as a team knows it. Clones of one repository say the same.
type repositoryID struct {
	team       gitlog.TeamID
	repository gitlog.RepositoryID
}

func newArbitrations(d *daemon) *arbitrations {
	return &arbitrations{d: d, byID: map[repositoryID]*arbitration{}}
}

// observe has f called with whatever happens in any repository from now on, in its order, before anybody else hears of it: the
// arbitration is locked, so f must be quick and must not call it, but for what look allows. It may take the state's lock.
// Only newDaemon may call it.
func (all *arbitrations) observe(f func(a *arbitration, happened []occurrence)) {
	all.observers = append(all.observers, f)
}

// of returns the arbiter of a clone's repository. It goes on deciding if its file cannot be read or written: then it forgets at
// the daemon's end.
func (all *arbitrations) of(clone *gitlog.Clone) *arbitration {
	settings := clone.Settings()
	id := repositoryID{team: settings.Team, repository: settings.Repository}
	all.mu.Lock()
	defer all.mu.Unlock()
	a := all.byID[id]
	if a == nil {
		a = newArbitration(all, id, clone)
		all.byID[id] = a
		all.d.loops.Go(a.run)
	}
	return a
}

// all returns those that are open.
func (all *arbitrations) all() []*arbitration {
	all.mu.Lock()
	defer all.mu.Unlock()
	out := make([]*arbitration, 0, len(all.byID))
	for _, a := range all.byID {
		out = append(out, a)
	}
	return out
}

// tick does what is due, and looks after the files.
func (all *arbitrations) tick() {
	for _, a := range all.all() {
		a.tick()
	}
}

// close ends all. of opens them again.
func (all *arbitrations) close() {
	all.mu.Lock()
	open := all.byID
	all.byID = map[repositoryID]*arbitration{}
	all.mu.Unlock()
	for _, a := range open {
		a.close()
	}
}

// party is who acts, and where it stands.
type party struct {
	Key      sessionKey
	Subagent string
	Owner    string // the address of the session's person, or of the person themself (personOf)
	Person   bool   // the presence of a person, not an agent
	Root     string // of the worktree
	Branch   string // full name of HEAD's ref; "": detached
}

// occurrence is a sequenced event with the names that its tokens stand for; "" or zero where it has none.
type occurrence struct {
	arbiter.Event
	Key       sessionKey // of the session that acted, or that it is about
	Root      string     // of its worktree
	OnBranch  string     // its branch; "": detached
	WasBranch string     // of BranchMoved: the branch before
	Path      string
	OtherKey  sessionKey // of Other
	Text      string     // of an intent or a plan
	// Unsure says that the write is known only from what changed while a command line of the session ran, and that somebody else
	// was at work there too.
	Unsure bool
	// Denied says that the write was refused to the session, and that the file changed all the same, by whom nobody said.
	Denied bool
}

// arbitration decides for one repository who may write which file now. Every event is in its file before anybody hears of it;
// that a process ends costs nothing that was answered, that the machine does at most the last seconds.
type arbitration struct {
	all  *arbitrations
	d    *daemon
	id   repositoryID
	name string // of the file
	key  []byte // of tokens
	seal [32]byte

	away   atomic.Pointer[relayRepository] // the repository at its relay; nil: it has none
	wake   chan struct{}                   // something changed: when something is due may have, too
	ending chan struct{}                   // closed by close

	mu        sync.Mutex
	sequencer *arbiter.Sequencer        // guarded by mu
	unsure    bool                      // guarded by mu: of what happens now, see occurrence.Unsure
	denied    bool                      // guarded by mu: the same, see occurrence.Denied
	origin    [16]byte                  // guarded by mu: the sequencer's id in audit logs
	names     arbiterNames              // guarded by mu
	file      *stateFile[arbiterRecord] // guarded by mu; nil: nothing is kept
	based     int64                     // guarded by mu: the file's size when it was last written anew; 0: by an earlier daemon
	failed    bool                      // guarded by mu: the last write failed, and that was logged
	since     []*arbiterRecord          // guarded by mu: what was appended while the file is being written anew
	syncing   *time.Timer               // guarded by mu: syncs the file; nil: nothing is to be synced
	renewing  bool                      // guarded by mu: the file is being written anew
	last      time.Time                 // guarded by mu: when the last event was, by this process's clock
	frozen    gitlog.Millis             // guarded by mu: the time until finish; 0: it goes on
	pending   []occurrence              // guarded by mu: events that are in no audit log yet
	changed   chan struct{}             // guarded by mu: closed at the next event
	lodgers   map[sessionKey]*lodger    // guarded by mu
	closed    bool                      // guarded by mu
}

// arbiterRecord is one record of an arbiter's file. A file begins with its origin and a snapshot; events follow.
type arbiterRecord struct {
	Origin []byte        `json:"origin,omitempty"` // the sequencer's id
	Term   uint64        `json:"term,omitempty"`   // a daemon began
	Part   []byte        `json:"part,omitempty"`   // of a snapshot, CBOR
	Whole  bool          `json:"whole,omitempty"`  // its last part
	Names  []arbiterName `json:"names,omitempty"`
	Events [][]byte      `json:"events,omitempty"` // CBOR
	// Pending are events from before the snapshot that are in no audit log, Settled those that are in one now.
	Pending [][]byte        `json:"pending,omitempty"`
	Settled []arbiter.Order `json:"settled,omitempty"`
	Calls   []callRecord    `json:"calls,omitempty"`
}

func newArbitration(all *arbitrations, id repositoryID, clone *gitlog.Clone) *arbitration {
	device := clone.Device()
	mac := hmac.New(sha256.New, device.Local[:])
	mac.Write([]byte("knoot/arbiter/1\x00"))
	a := &arbitration{all: all, d: all.d, id: id, key: mac.Sum(nil), seal: device.Local, wake: make(chan struct{}, 1),
		ending: make(chan struct{}), sequencer: &arbiter.Sequencer{View: arbiter.New()}, changed: make(chan struct{}),
		lodgers: map[sessionKey]*lodger{}, names: newArbiterNames(device.ID)}
	a.name = stateName("arbiter-"+hex.EncodeToString(id.repository[:]), all.d.loc)
	if err := a.open(clone); err != nil {
		a.fail(err)
	}
	return a
}

// open reads the file, and begins one where there is none.
func (a *arbitration) open(clone *gitlog.Clone) error {
	var term uint64
	var snapshot []byte
	var pending []arbiter.Event
	settled := map[arbiter.Order]bool{}
	view := a.sequencer.View
	a.origin = originOf(clone)
	dir := filepath.Join(a.d.home.Dir, "state")
	err := os.MkdirAll(dir, 0o700)
	var damaged int
	if err == nil {
		a.file, damaged, err = openStateFile(filepath.Join(dir, a.name), a.seal, func(r *arbiterRecord) {
			if len(r.Origin) == len(a.origin) {
				copy(a.origin[:], r.Origin)
			}
			term = max(term, r.Term)
			a.names.add(r.Names)
			if snapshot = append(snapshot, r.Part...); r.Whole {
				var s arbiter.Snapshot
				if cbor.Unmarshal(snapshot, &s) == nil {
					view = arbiter.Restore(s)
				}
				snapshot = nil
			}
			for _, raw := range r.Events {
				var e arbiter.Event
				if cbor.Unmarshal(raw, &e) == nil {
					view.Apply(e)
					pending = append(pending, e)
				}
			}
			for _, raw := range r.Pending {
				var e arbiter.Event
				if cbor.Unmarshal(raw, &e) == nil {
					pending = append(pending, e)
				}
			}
			for _, order := range r.Settled {
				settled[order] = true
			}
			for _, c := range r.Calls {
				a.lodger(c.Session).apply(c)
			}
		})
	}
	if damaged > 0 {
		a.d.log.Warn("some of what is known of claims does not open and is left out", "records", damaged)
	}
	for _, e := range pending {
		if !settled[e.Order] && audited(e.Kind) {
			a.pending = append(a.pending, a.named(e))
		}
	}
	a.pending = a.pending[max(0, len(a.pending)-maxPending):]
	// So that nobody mistakes one run's order for another's.
	seconds := uint64(max(a.d.options.Now().Unix(), 0))
	a.sequencer = &arbiter.Sequencer{View: view, Term: max(1+max(term, view.Position().Term), seconds)}
	if err != nil {
		return err
	}
	if err := a.file.append(&arbiterRecord{Origin: a.origin[:], Term: a.sequencer.Term}); err != nil {
		return err
	}
	return nil
}

// originOf is the sequencer's id of an arbiter that a clone began.
func originOf(clone *gitlog.Clone) (id [16]byte) {
	writer := clone.Writer()
	if writer == (gitlog.WriterID{}) { // an ephemeral clone, whose events are in no log
		_, _ = rand.Read(id[:])
		return id
	}
	sum := sha256.Sum256(writer[:])
	copy(id[:], sum[:])
	return id
}

func (a *arbitration) fail(err error) {
	if !a.failed {
		a.failed = true
		a.d.log.Error("claims are not kept", "error", err)
	}
}

// now is the time: the larger of the wall clock's and the last event's with what passed since. mu is held.
func (a *arbitration) now() gitlog.Millis {
	if a.frozen != 0 {
		return a.frozen
	}
	at := a.d.options.Now()
	now := gitlog.MillisOf(at)
	if !a.last.IsZero() {
		// By the monotonic clock where it has one.
		now = max(now, a.sequencer.Time()+gitlog.Millis(max(at.Sub(a.last).Milliseconds(), 0)))
	}
	return max(now, a.sequencer.Time())
}

// do has requests decided, one after the other, and returns what happened in their order. mu is held.
func (a *arbitration) do(requests ...arbiter.Request) []occurrence {
	now := a.now()
	var events []arbiter.Event
	for _, r := range requests {
		happened, _, _ := a.sequencer.Do(r, now)
		events = append(events, happened...)
	}
	out := a.happened(events)
	return append(out, a.passOn(out)...)
}

// happened makes events known that were applied just now. mu is held.
func (a *arbitration) happened(events []arbiter.Event) []occurrence {
	if len(events) == 0 {
		return nil
	}
	a.last = a.d.options.Now()
	a.keep(events)
	out := make([]occurrence, len(events))
	for i, e := range events {
		out[i] = a.named(e)
		if audited(e.Kind) {
			a.pending = append(a.pending, out[i])
		}
	}
	if len(a.pending) > maxPending*5/4 { // not at each event
		a.pending = slices.Clone(a.pending[len(a.pending)-maxPending:])
	}
	for _, f := range a.all.observers {
		f(a, out)
	}
	close(a.changed)
	a.changed = make(chan struct{})
	select {
	case a.wake <- struct{}{}:
	default:
	}
	return out
}

// keep writes events to the file. mu is held.
func (a *arbitration) keep(events []arbiter.Event) {
	var records []*arbiterRecord
	for part := range slices.Chunk(events, eventsTogether) {
		r := &arbiterRecord{}
		for _, e := range part {
			a.names.use(e.Time, e)
			raw, err := cbor.Marshal(e)
			if err != nil {
				a.fail(err)
				return
			}
			r.Events = append(r.Events, raw)
		}
		records = append(records, r)
	}
	records[0].Names = a.names.unkept()
	a.append(records...)
}

// append writes records to the file. mu is held.
func (a *arbitration) append(records ...*arbiterRecord) {
	if a.file == nil {
		return
	}
	if a.renewing {
		a.since = append(a.since, records...)
	}
	if err := a.file.append(records...); err != nil {
		a.fail(err)
		return
	}
	a.failed = false
	a.syncSoon()
}

// syncSoon has what was written made to survive the machine. mu is held.
func (a *arbitration) syncSoon() {
	if a.syncing == nil && a.file.unsynced {
		a.syncing = time.AfterFunc(syncAfter, a.sync)
	}
}

// sync makes the file survive the machine. Nobody waits for the disk with mu held.
func (a *arbitration) sync() {
	a.mu.Lock()
	a.syncing = nil
	written := a.file
	if written == nil {
		a.mu.Unlock()
		return
	}
	file := written.file
	written.unsynced = false
	a.mu.Unlock()
	if err := file.Sync(); err != nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.file == written { // else it was closed meanwhile, and synced then
			written.unsynced = true
			a.fail(err)
		}
	}
}

// owedIn returns the events of a worktree's sessions that are in no audit log yet, oldest first, and the sequencer's id there.
// Those of worktrees that were removed are any other's.
func (a *arbitration) owedIn(root string) (owed []occurrence, origin [16]byte) {
	a.mu.Lock()
	pending := slices.Clone(a.pending)
	origin = a.origin
	a.mu.Unlock()
	ours := map[string]bool{root: true}
	for _, o := range pending {
		own, looked := ours[o.Root]
		if !looked {
			own = !there(o.Root, "")
			ours[o.Root] = own
		}
		if own {
			owed = append(owed, o)
		}
	}
	return owed, origin
}

// settled takes note that these are in an audit log.
func (a *arbitration) settled(orders []arbiter.Order) {
	if len(orders) == 0 {
		return
	}
	done := make(map[arbiter.Order]bool, len(orders))
	for _, order := range orders {
		done[order] = true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pending = slices.DeleteFunc(a.pending, func(o occurrence) bool { return done[o.Order] })
	a.append(&arbiterRecord{Settled: orders})
}

// forgive drops what is owed of a directory in which there is no knoot.
func (a *arbitration) forgive(root string) {
	owed, _ := a.owedIn(root)
	var orders []arbiter.Order
	for _, o := range owed {
		if o.Root == root {
			orders = append(orders, o.Order)
		}
	}
	a.settled(orders)
}

// look asks the view. f must not keep what it is given, nor call the arbitration but for who, want, sessionOf and named.
func (a *arbitration) look(f func(v *arbiter.View, now gitlog.Millis)) {
	a.mu.Lock()
	defer a.finish()
	a.begin()
	f(a.sequencer.View, a.now())
}

// request has one request of a party decided, and returns what happened. f makes it of the tokens.
func (a *arbitration) request(by party, f func(who arbiter.Who) arbiter.Request) []occurrence {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.do(f(a.who(by)))
}

// release ends a session's own claims on a path, and reports how many there were.
func (a *arbitration) release(key sessionKey, path string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	token, own := a.sessionToken(key), a.pathToken(path).Own
	byPlace := map[arbiter.Who][]arbiter.ClaimID{}
	n := 0
	for _, h := range a.sequencer.Claims(token, a.now()) {
		if h.Path.Own == own {
			who := h.Who
			who.Subagent = ""
			byPlace[who] = append(byPlace[who], h.Claim)
			n++
		}
	}
	for who, claims := range byPlace {
		a.do(arbiter.Release{Who: who, Claims: claims, Reason: arbiter.Released})
	}
	return n
}

// take gives a file to a person's presence for one lease, whoever holds it. by is the presence: present has registered it.
func (a *arbitration) take(by party, path string) []occurrence {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.do(arbiter.Take{Who: a.who(by), Wants: []arbiter.Want{a.want(path, false)}})
}

// await waits until nothing blocks a party's write of a path, and returns nil, or until ctx ends, and returns why. It claims
// nothing. Another session's claim, a person's, and another's turn in a queue block.
func (a *arbitration) await(ctx context.Context, by party, gitDir, path string) error {
	for {
		var away <-chan struct{}
		held := false
		if r := a.away.Load(); r != nil {
			away = r.change()
			held = r.heldBy(by, gitDir, path, arbiter.File, false) != nil
		}
		a.mu.Lock()
		_, blocked := a.sequencer.Blocks(a.who(by), a.want(path, false), a.now())
		changed := a.changed
		a.mu.Unlock()
		if !blocked && !held {
			return nil
		}
		select {
		case <-changed:
		case <-away:
		case <-a.ending:
			return errors.New("the daemon ends")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// present registers a person's presence in a worktree, and what they are doing ("": not said); each time it renews what they
// hold. Writes are told by wrote.
func (a *arbitration) present(by party, doing string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	who := a.who(by)
	requests := []arbiter.Request{}
	session, known := a.sequencer.Session(who.Session, a.now())
	if !known {
		requests = append(requests, declare(who, gitlog.SessionStarted, sessionDetail{Owner: by.Owner}.encode()))
	}
	if doing != "" && string(session.Intent) != doing {
		requests = append(requests, declare(who, gitlog.IntentDeclared, []byte(doing)))
	}
	if len(requests) == 0 {
		requests = append(requests, arbiter.Renew{Who: who})
	}
	a.do(requests...)
}

// wrote says that files were written, or are gone. A session's write is gated where it holds the file; a person's presence
// claims what nobody holds.
func (a *arbitration) wrote(by party, written, removed []string) []occurrence {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(written)+len(removed) == 0 {
		return nil
	}
	return a.do(a.writing(by, written, removed))
}

func (a *arbitration) writing(by party, written, removed []string) arbiter.Write {
	w := arbiter.Write{Who: a.who(by)}
	for _, path := range written {
		w.Wants = append(w.Wants, a.want(path, false))
	}
	for _, path := range removed {
		want := a.want(path, false)
		want.Removed = true
		w.Wants = append(w.Wants, want)
	}
	return w
}

// left says that a session left files with uncommitted changes. What it returns as the claim of a ClaimLeft is what clean wants.
func (a *arbitration) left(by party, paths []string) []occurrence {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := arbiter.Leave{Who: a.who(by)}
	for _, path := range paths {
		r.Wants = append(r.Wants, a.want(path, false))
	}
	return a.do(r)
}

// clean says that what was left has no uncommitted changes any more.
func (a *arbitration) clean(by party, claims ...arbiter.ClaimID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.do(arbiter.Clean{Who: a.who(by), Claims: claims})
}

// gone ends a session whose process is gone.
func (a *arbitration) gone(key sessionKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.end(key, arbiter.ProcessGone)
}

// end ends a session, if it is known here. mu is held.
func (a *arbitration) end(key sessionKey, reason arbiter.Reason) []occurrence {
	session, known := a.sequencer.Session(a.sessionToken(key), a.now())
	if !known {
		return nil
	}
	happened := a.do(arbiter.End{Who: session.Who, Reason: reason})
	delete(a.lodgers, key)
	return happened
}

// declare says something that needs no decision: IntentDeclared, PlanDeclared (no text: it is withdrawn), StaleRead,
// CreateCollision, DuplicateIntent, MemoryRefused. path may be "", other the zero key.
func (a *arbitration) declare(by party, kind gitlog.EntryKind, text, path string, other sessionKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	d := declare(a.who(by), kind, []byte(text))
	if path != "" {
		d.Paths = []arbiter.Path{a.pathToken(path)}
	}
	if other != (sessionKey{}) {
		d.Other = a.sessionToken(other)
	}
	a.do(d)
}

func declare(who arbiter.Who, kind gitlog.EntryKind, detail []byte) arbiter.Declare {
	if len(detail) == 0 {
		detail = nil
	}
	return arbiter.Declare{Event: arbiter.Event{Who: who, Kind: kind, Detail: detail}}
}

// run does what is due when it is, until close or the daemon's end.
func (a *arbitration) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		next := dueLatest
		a.d.guard("arbitration", func() {
			a.due()
			next = a.untilDue()
		})
		timer.Reset(next)
		select {
		case <-timer.C:
		case <-a.wake:
		case <-a.ending:
			return
		case <-a.d.work.Done():
			return
		}
	}
}

// dueSoonest keeps a clock that does not move from being asked all the time, dueLatest looks again where the clock jumped.
const (
	dueSoonest = 20 * time.Millisecond
	dueLatest  = time.Minute
)

func (a *arbitration) untilDue() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	at, ever := a.sequencer.DueAt()
	if !ever {
		return dueLatest
	}
	now := a.now()
	return min(max(time.Duration(max(at, now)-now)*time.Millisecond, dueSoonest), dueLatest)
}

func (a *arbitration) due() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.closed {
		a.passOn(a.happened(a.sequencer.Tick(a.now())))
	}
}

// tick does what is due, renews what open calls hold, and shrinks the file when it has grown.
func (a *arbitration) tick() {
	a.due()
	a.renewCalls()
	a.mu.Lock()
	grown := a.file != nil && a.file.size-a.based > arbiterRewrite
	a.mu.Unlock()
	if grown {
		if err := a.rewrite(); err != nil {
			a.d.log.Warn("what is known of claims cannot be written anew", "error", err)
		}
	}
}

// rewrite puts a snapshot in the place of the file. Hooks go on meanwhile.
func (a *arbitration) rewrite() error {
	a.mu.Lock()
	if a.file == nil || a.renewing || a.closed {
		a.mu.Unlock()
		return nil
	}
	a.renewing, a.since = true, nil
	snapshot := a.sequencer.Snapshot()
	a.names.forget(a.now())
	records := []*arbiterRecord{{Origin: slices.Clone(a.origin[:]), Term: a.sequencer.Term, Names: a.names.kept()}}
	pending := slices.Clone(a.pending)
	for key, l := range a.lodgers {
		if calls := l.records(key); len(calls) > 0 {
			records = append(records, &arbiterRecord{Calls: calls})
		}
	}
	path := filepath.Join(a.d.home.Dir, "state", a.name)
	a.mu.Unlock()

	file, err := func() (*stateFile[arbiterRecord], error) {
		raw, err := cbor.Marshal(snapshot)
		if err != nil {
			return nil, fmt.Errorf("cannot encode a snapshot: %w", err)
		}
		for part := range slices.Chunk(raw, snapshotPart) {
			records = append(records, &arbiterRecord{Part: part})
		}
		records = append(records, &arbiterRecord{Whole: true})
		for part := range slices.Chunk(pending, eventsTogether) {
			r := &arbiterRecord{}
			for _, o := range part {
				raw, err := cbor.Marshal(o.Event)
				if err != nil {
					return nil, fmt.Errorf("cannot encode an event: %w", err)
				}
				r.Pending = append(r.Pending, raw)
			}
			records = append(records, r)
		}
		return writeState(path, a.seal, records)
	}()

	a.mu.Lock()
	defer a.mu.Unlock()
	since := a.since
	a.renewing, a.since = false, nil
	if err != nil {
		return err
	}
	if a.closed {
		file.discard()
		return nil
	}
	return a.replaceFile(file, since)
}

// replaceFile puts a file, and what came since it was made, in the place of the one that is open. mu is held.
func (a *arbitration) replaceFile(file *stateFile[arbiterRecord], since []*arbiterRecord) error {
	if err := file.replace(a.file, since); err != nil {
		return err
	}
	a.file, a.based = file, file.size
	a.syncSoon()
	return nil
}

func (a *arbitration) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return
	}
	a.closed = true
	close(a.ending)
	if a.file != nil {
		if err := a.file.close(); err != nil {
			a.fail(err)
		}
		a.file = nil
	}
}

// Tokens stand for names. On one machine they are made under its local key, and stay what they are for ever.
const (
	pathType     = 1
	branchType   = 2
	worktreeType = 3
	sessionType  = 4
)

func (a *arbitration) token(kind byte, value string) (t arbiter.Token) {
	mac := hmac.New(sha256.New, a.key)
	mac.Write([]byte{kind})
	mac.Write(a.id.repository[:])
	mac.Write([]byte(value))
	copy(t[:], mac.Sum(nil))
	return t
}

// who makes the tokens of a party. mu is held.
func (a *arbitration) who(by party) arbiter.Who {
	who := arbiter.Who{Session: a.sessionToken(by.Key), Subagent: by.Subagent, Device: a.names.device, Owner: ownerOf(by.Owner), Person: by.Person,
		Worktree: a.names.token(a, worktreeType, by.Root)}
	if by.Branch != "" {
		who.Branch = a.names.token(a, branchType, by.Branch)
	} else {
		who.Branch = a.names.token(a, branchType, detachedAt+by.Root)
	}
	return who
}

// detachedAt begins the name of the branch of a detached HEAD: it is its worktree's alone. No ref begins so.
const detachedAt = "\x00"

// ownerOf stands for a person: sessions of one person have the same.
func ownerOf(address string) (id gitlog.MemberID) {
	if address != "" {
		sum := sha256.Sum256([]byte(address))
		copy(id[:], sum[:])
	}
	return id
}

func (a *arbitration) sessionToken(key sessionKey) arbiter.Token {
	return a.names.token(a, sessionType, key.Agent+"\x00"+key.ID)
}

// want is a path of a request. listed says that it is under hubs. mu is held.
func (a *arbitration) want(path string, listed bool) arbiter.Want {
	w := arbiter.Want{Path: a.pathToken(path), Class: arbiter.File, Hub: listed}
	if a.pathOf(w.Path) != path {
		w.Detail = []byte(path) // it differs from what the token is known by in upper and lower case
	}
	_, _ = rand.Read(w.ID[:])
	return w
}

// pathToken is a path, relative to the worktree's root, as its tokens. mu is held.
func (a *arbitration) pathToken(path string) arbiter.Path {
	p := arbiter.Path{Own: a.names.token(a, pathType, path)}
	for dir := path; dir != ""; {
		dir = parent(dir)
		p.Ancestors = append(p.Ancestors, a.names.token(a, pathType, dir))
	}
	return p
}

// sessionOf is the session that a token stands for; the zero key: none that is known. mu is held.
func (a *arbitration) sessionOf(t arbiter.Token) sessionKey {
	agent, id, _ := strings.Cut(a.names.name(sessionType, t), "\x00")
	return sessionKey{Agent: agent, ID: id}
}

// named adds the names to an event. mu is held.
func (a *arbitration) named(e arbiter.Event) occurrence {
	o := occurrence{Event: e, Key: a.sessionOf(e.Session), Root: a.names.name(worktreeType, e.Worktree), OnBranch: a.branchOf(e.Branch),
		WasBranch: a.branchOf(e.OldBranch), OtherKey: a.sessionOf(e.Other), Unsure: a.unsure, Denied: a.denied}
	if len(e.Paths) > 0 {
		o.Path = a.pathOf(e.Paths[0])
	}
	if o.Root == "" { // a turn in a queue is nobody's doing
		if session, known := a.sequencer.Session(e.Session, e.Time); known {
			o.Root = a.names.name(worktreeType, session.Worktree)
		}
	}
	switch e.Kind {
	case gitlog.IntentDeclared, gitlog.PlanDeclared:
		o.Text = string(e.Detail)
	case gitlog.ClaimAcquired, gitlog.FileWritten, gitlog.PathRemoved, gitlog.UngatedWrite, gitlog.ClaimLeft:
		if len(e.Detail) > 0 {
			o.Path = string(e.Detail)
		}
	}
	return o
}

// pathOf is the path that tokens stand for. mu is held.
func (a *arbitration) pathOf(p arbiter.Path) string { return a.names.name(pathType, p.Own) }

// branchOf is the full ref name that a token stands for; "": detached, or not known. mu is held.
func (a *arbitration) branchOf(t arbiter.Token) string {
	name := a.names.name(branchType, t)
	if strings.HasPrefix(name, detachedAt) {
		return ""
	}
	return name
}
