package daemon

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fxamacker/cbor/v2"
	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/arbiter/wire"
	"knoot.dev/knoot/gitlog"
)

const (
	// relayRewrite is how much a relay's file may grow until it is written anew.
	relayRewrite = 4 << 20
	// grantsTogether is how many grants are in one record.
	grantsTogether = 100
)

// relayRecord is one record of what is kept of a repository at its relay: the mirror with its position, and the grants, so that a
// restarted daemon goes on from there and can show what it was granted. A file begins with whose order it is; a snapshot, and what
// was sequenced since, follow.
type relayRecord struct {
	Sequencer []byte        `json:"sequencer,omitempty"` // whose order the rest is in; what came before is another's
	Part      []byte        `json:"part,omitempty"`      // of a snapshot, as a relay sends it
	Whole     bool          `json:"whole,omitempty"`     // its last part
	Events    [][]byte      `json:"events,omitempty"`    // as a relay sends them
	Now       gitlog.Millis `json:"now,omitempty"`       // by the relay's clock
	At        gitlog.Millis `json:"at,omitempty"`        // by this machine's, when the relay's was Now
	Counters  []liveCounter `json:"counters,omitempty"`  // of what was opened
	Grants    []relayGrant  `json:"grants,omitempty"`
	Ended     [][]byte      `json:"ended,omitempty"` // claims whose grants are of no use any more
	// Missed is what happened here while the relay could not be told, in its order. Told says that nothing before is owed any more.
	Missed []missedRecord `json:"missed,omitempty"`
	Told   bool           `json:"told,omitempty"`
}

// missedRecord is an occurrence that the relay has not been told.
type missedRecord struct {
	Event     []byte     `json:"event"` // CBOR
	Key       sessionKey `json:"key"`
	Root      string     `json:"root"`
	OnBranch  string     `json:"on_branch,omitempty"`
	WasBranch string     `json:"was_branch,omitempty"`
	Path      string     `json:"path,omitempty"`
	OtherKey  sessionKey `json:"other_key"`
	Text      string     `json:"text,omitempty"`
	Unsure    bool       `json:"unsure,omitempty"`
	Denied    bool       `json:"denied,omitempty"`
}

// liveCounter is the last counter of a session.
type liveCounter struct {
	Session []byte `json:"session"` // its token
	Counter uint64 `json:"counter"`
}

// relayGrant is what a relay signed for a claim.
type relayGrant struct {
	Claim []byte `json:"claim"`
	Grant []byte `json:"grant"`
}

// relayState is the file of what is kept of a repository at its relay. The repository's lock guards it.
//
// It is not synced: what a machine's crash takes the relay sends again. A file with a hole in it is not believed, since a mirror
// that lacks an event would never learn that it does.
type relayState struct {
	path      string
	seal      [32]byte
	file      *stateFile[relayRecord] // nil: nothing is kept
	based     int64                   // the file's size when it was last written anew; 0: by an earlier daemon
	sequencer [16]byte                // whose order is kept; zero: nobody's yet
	renewing  bool                    // the file is being written anew
	since     []*relayRecord          // what was appended meanwhile
	broken    bool                    // a record could not be written: none follows it until the file was written anew
	failed    func(error)
}

// keptRelay is what a file holds.
type keptRelay struct {
	view     *arbiter.View
	now, at  gitlog.Millis // the relay's clock, and this machine's when it said so; zero: it never did
	counters gitlog.LiveCounters
	grants   map[arbiter.ClaimID][]byte
	missed   []occurrence
}

// open reads the file, and begins one where there is none.
func (s *relayState) open() (*keptRelay, error) {
	k := &keptRelay{view: arbiter.New(), counters: gitlog.LiveCounters{}, grants: map[arbiter.ClaimID][]byte{}}
	if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
		return k, fmt.Errorf("cannot make the daemon's state: %w", err)
	}
	var snapshot []byte
	odd := false // it holds what does not read
	file, damaged, err := openStateFile(s.path, s.seal, func(r *relayRecord) {
		if len(r.Sequencer) == len(s.sequencer) {
			copy(s.sequencer[:], r.Sequencer)
			k.view, k.grants, snapshot, odd = arbiter.New(), map[arbiter.ClaimID][]byte{}, nil, false
		}
		if snapshot = append(snapshot, r.Part...); r.Whole {
			read, err := wire.DecodeSnapshot(snapshot)
			if odd = err != nil; !odd {
				k.view = arbiter.Restore(*read)
			}
			snapshot = nil
		}
		for _, raw := range r.Events {
			e, err := wire.DecodeEvent(raw)
			if err != nil {
				odd = true
				break
			}
			k.view.Apply(e)
		}
		if r.At != 0 {
			k.now, k.at = r.Now, r.At
		}
		for _, c := range r.Counters {
			if len(c.Session) == len(gitlog.Token{}) {
				k.counters.Resume(gitlog.Token(c.Session), c.Counter)
			}
		}
		for _, g := range r.Grants {
			if len(g.Claim) == len(arbiter.ClaimID{}) {
				k.grants[arbiter.ClaimID(g.Claim)] = g.Grant
			}
		}
		for _, id := range r.Ended {
			if len(id) == len(arbiter.ClaimID{}) {
				delete(k.grants, arbiter.ClaimID(id))
			}
		}
		if r.Told {
			k.missed = nil
		}
		for i := range r.Missed {
			if o, ok := r.Missed[i].occurrence(); ok {
				k.missed = append(k.missed, o)
			}
		}
	})
	if err != nil {
		return k, err
	}
	s.file = file
	if damaged > 0 || odd {
		k.view = arbiter.New()
		return k, fmt.Errorf("%d records do not open, so that the relay has to send all again", damaged)
	}
	return k, nil
}

// follows says whose order is kept from now on. What was kept of another's is void: false.
func (s *relayState) follows(sequencer [16]byte) bool {
	if s.sequencer == sequencer {
		return true
	}
	first := s.sequencer == [16]byte{}
	s.sequencer = sequencer
	s.append(&relayRecord{Sequencer: sequencer[:]})
	return first
}

// append writes records to the file.
func (s *relayState) append(records ...*relayRecord) {
	if s.file == nil {
		return
	}
	if s.renewing {
		s.since = append(s.since, records...)
	}
	if s.broken {
		return
	}
	if err := s.file.append(records...); err != nil {
		s.broken = true
		s.failed(err)
	}
}

// snapshotRecords are the records of a snapshot, encoded.
func snapshotRecords(snapshot []byte) (records []*relayRecord) {
	for part := range slices.Chunk(snapshot, snapshotPart) {
		records = append(records, &relayRecord{Part: part})
	}
	return append(records, &relayRecord{Whole: true})
}

// end ends writing.
func (s *relayState) end() {
	if s.file != nil {
		_ = s.file.file.Close()
		s.file = nil
	}
}

// keepEvents keeps what was sequenced. mu is held.
func (r *relayRepository) keepEvents(events []arbiter.Event) {
	if r.kept.file == nil || len(events) == 0 {
		return
	}
	record := &relayRecord{Now: r.clock.at, At: gitlog.Now()}
	sessions := map[arbiter.Token]bool{}
	for i := range events {
		record.Events = append(record.Events, wire.EncodeEvent(&events[i]))
		if session := events[i].Session; !sessions[session] {
			sessions[session] = true
			if n := r.names.counters.Last(gitlog.Token(session)); n != 0 {
				record.Counters = append(record.Counters, liveCounter{session[:], n})
			}
		}
	}
	r.kept.append(record)
}

// keepSnapshot keeps a state with which the relay began anew. mu is held.
func (r *relayRepository) keepSnapshot(snapshot []byte) {
	records := snapshotRecords(snapshot)
	records[0].Now, records[0].At = r.clock.at, gitlog.Now()
	r.kept.append(records...)
}

// keepGrant keeps what the relay signed. mu is held.
func (r *relayRepository) keepGrant(claim arbiter.ClaimID, grant []byte) {
	r.grants[claim] = grant
	r.kept.append(&relayRecord{Grants: []relayGrant{{claim[:], grant}}})
}

// dropGrant forgets what the relay signed for a claim that ended. mu is held.
func (r *relayRepository) dropGrant(claim arbiter.ClaimID) {
	if _, there := r.grants[claim]; there {
		delete(r.grants, claim)
		r.kept.append(&relayRecord{Ended: [][]byte{claim[:]}})
	}
}

// missedRecords are the records of what the relay has not been told.
func missedRecords(missed []occurrence) (records []*relayRecord) {
	for part := range slices.Chunk(missed, eventsTogether) {
		record := &relayRecord{}
		for i := range part {
			o := &part[i]
			if raw, err := cbor.Marshal(o.Event); err == nil {
				record.Missed = append(record.Missed, missedRecord{raw, o.Key, o.Root, o.OnBranch, o.WasBranch, o.Path, o.OtherKey, o.Text, o.Unsure, o.Denied})
			}
		}
		records = append(records, record)
	}
	return records
}

func (m *missedRecord) occurrence() (o occurrence, ok bool) {
	o = occurrence{Key: m.Key, Root: m.Root, OnBranch: m.OnBranch, WasBranch: m.WasBranch, Path: m.Path, OtherKey: m.OtherKey, Text: m.Text, Unsure: m.Unsure, Denied: m.Denied}
	return o, cbor.Unmarshal(m.Event, &o.Event) == nil
}

// recall takes over what an earlier daemon kept.
func (r *relayRepository) recall() {
	name := stateName("relay-"+hex.EncodeToString(r.a.id.repository[:]), r.d.loc)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept = relayState{path: filepath.Join(r.d.home.Dir, "state", name), seal: r.link.device.Local, failed: func(err error) {
		r.d.log.Error("what is known of other machines is not kept", "error", err)
	}}
	k, err := r.kept.open()
	if err != nil {
		r.d.log.Warn("what was known of other machines is not used", "error", err)
	}
	r.view, r.names.counters, r.grants, r.missed = k.view, k.counters, k.grants, k.missed
	r.trimMissed()
	if k.at != 0 {
		// By the wall clocks. What depends on it is notes, until the relay says what time it is.
		r.closed = k.at.Time()
		r.clock = relayClock{k.now + max(gitlog.Now(), k.at) - k.at, time.Now()}
	}
}

// forsake ends keeping: another may open the file.
func (r *relayRepository) forsake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.missUntold() // shut comes when the file is closed
	r.kept.end()
}

// tidy writes the file anew when it has grown, and forgets grants of claims that are over.
func (r *relayRepository) tidy() {
	r.mu.Lock()
	grown := r.kept.file != nil && !r.kept.renewing && (r.kept.broken || r.kept.file.size-r.kept.based > relayRewrite)
	many := len(r.grants) >= r.tidied
	r.mu.Unlock()
	if !grown && !many {
		return
	}
	_, holdings := r.a.here()
	live := make(map[arbiter.ClaimID]bool, len(holdings))
	for _, h := range holdings {
		live[h.Claim] = true
	}
	r.mu.Lock()
	for claim := range r.grants {
		if !live[claim] {
			r.dropGrant(claim)
		}
	}
	r.tidied = 2*len(r.grants) + grantsTogether
	r.mu.Unlock()
	if grown {
		if err := r.renew(); err != nil {
			r.d.log.Warn("what is known of other machines cannot be written anew", "error", err)
		}
	}
}

// renew puts what is so now in the place of the file. Hooks go on meanwhile.
func (r *relayRepository) renew() error {
	r.mu.Lock()
	if r.kept.file == nil || r.kept.renewing {
		r.mu.Unlock()
		return nil
	}
	r.kept.renewing, r.kept.since = true, nil
	snapshot := r.view.Snapshot()
	first := &relayRecord{Sequencer: slices.Clone(r.kept.sequencer[:]), Now: r.clock.now(), At: gitlog.Now()}
	for _, x := range snapshot.Sessions {
		if n := r.names.counters.Last(gitlog.Token(x.Who.Session)); n != 0 {
			first.Counters = append(first.Counters, liveCounter{slices.Clone(x.Who.Session[:]), n})
		}
	}
	var grants []relayGrant
	for claim, grant := range r.grants {
		grants = append(grants, relayGrant{slices.Clone(claim[:]), grant})
	}
	missed := slices.Concat(r.owed, r.missed)
	old := r.kept.file
	r.mu.Unlock()

	records := append([]*relayRecord{first}, snapshotRecords(wire.EncodeSnapshot(&snapshot))...)
	for part := range slices.Chunk(grants, grantsTogether) {
		records = append(records, &relayRecord{Grants: part})
	}
	records = append(records, missedRecords(missed)...)
	file, err := writeState(r.kept.path, r.kept.seal, records)

	r.mu.Lock()
	defer r.mu.Unlock()
	since := r.kept.since
	r.kept.renewing, r.kept.since = false, nil
	if err != nil {
		return err
	}
	if r.kept.file != old { // it was closed meanwhile
		file.discard()
		return nil
	}
	if err := file.replace(old, since); err != nil {
		return err
	}
	r.kept.file, r.kept.based, r.kept.broken = file, file.size, false
	return nil
}
