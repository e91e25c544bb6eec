package relay

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"knoot.dev/knoot/arbiter/wire"
	"knoot.dev/knoot/gitlog"
)

// team is a roster as the relay has it: the chain in memory, its entries in a file. It is kept for good, so that a device
// that was removed stays out.
type team struct {
	id    gitlog.TeamID
	path  string
	rule  *TeamRule
	chain atomic.Pointer[gitlog.Chain] // nil before genesis
	users int                          // who is opening it; the server's mu

	mu     sync.Mutex // whoever changes the chain
	file   *os.File
	places []int64 // of entries in the file
	size   int64
	newer  atomic.Bool // the chain goes on with an entry that this version cannot apply
}

const (
	teamFolder    = "teams"
	teamMagic     = "knoot relay roster 1\n"
	teamExtension = ".roster"
)

func teamPath(state string, id gitlog.TeamID) string {
	return filepath.Join(state, teamFolder, id.String()+teamExtension)
}

// readTeams reads all rosters.
func readTeams(state string) (map[gitlog.TeamID]*team, error) {
	dir := filepath.Join(state, teamFolder)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the relay's state folder: %w", err)
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot read the relay's rosters: %w", err)
	}
	teams := map[gitlog.TeamID]*team{}
	for _, name := range names {
		digits, ok := strings.CutSuffix(name.Name(), teamExtension)
		raw, err := hex.DecodeString(digits)
		if !ok || err != nil || len(raw) != len(gitlog.TeamID{}) {
			continue
		}
		t := &team{id: gitlog.TeamID(raw), path: filepath.Join(dir, name.Name())}
		if err := t.read(); err != nil {
			return nil, fmt.Errorf("cannot read the roster %s: %w", t.path, err)
		}
		if t.chain.Load() != nil {
			teams[t.id] = t
		} else if err := t.close(); err != nil {
			return nil, err
		}
	}
	return teams, nil
}

// read reads the file, cuts what a crash left at its end, and verifies the chain. Entries past one that does not verify
// are cut too: they were never acted upon.
func (t *team) read() error {
	f, err := os.OpenFile(t.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	t.file = f
	info, err := f.Stat()
	if err != nil {
		return err
	}
	r := bufio.NewReaderSize(f, 64<<10)
	magic := make([]byte, len(teamMagic))
	if n, err := io.ReadFull(r, magic); err != nil {
		if string(magic[:n]) != teamMagic[:n] {
			return errors.New("it is not what this version of the relay writes")
		}
		if err := f.Truncate(0); err != nil {
			return err
		}
		if _, err := f.WriteAt([]byte(teamMagic), 0); err != nil {
			return err
		}
		t.size = int64(len(teamMagic))
		return nil
	}
	if string(magic) != teamMagic {
		return errors.New("it is not what this version of the relay writes")
	}
	at := int64(len(teamMagic))
	var entries [][]byte
	var places []int64
	for {
		entry, err := readRecord(r, info.Size()-at)
		if err != nil {
			break // the end, or torn
		}
		entries, places = append(entries, entry), append(places, at)
		at += recordHead + int64(len(entry))
	}
	if len(entries) > 0 {
		chain, err := gitlog.BeginChain(t.id, entries[0])
		if err != nil {
			return err
		}
		chain, n, err := chain.Extend(entries[1:])
		t.newer.Store(errors.Is(err, gitlog.ErrNewer))
		if n++; n < len(entries) {
			at, places = places[n], places[:n]
		}
		t.chain.Store(chain)
	}
	t.places, t.size = places, at
	return f.Truncate(at)
}

func (t *team) close() error {
	if t.file == nil {
		return nil
	}
	return t.file.Close()
}

// entry reads an entry from the file.
func (t *team) entry(seq uint64) ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if seq >= uint64(len(t.places)) {
		return nil, fmt.Errorf("there is no roster entry %d", seq)
	}
	end := t.size
	if next := seq + 1; next < uint64(len(t.places)) {
		end = t.places[next]
	}
	section := io.NewSectionReader(t.file, t.places[seq], end-t.places[seq])
	return readRecord(bufio.NewReader(section), section.Size())
}

// store makes entries durable behind those that are there. mu is held.
func (t *team) store(entries [][]byte) error {
	if t.file == nil {
		if err := t.read(); err != nil {
			return err
		}
		if err := syncDir(filepath.Dir(t.path)); err != nil {
			return err
		}
	}
	var records []byte
	places := t.places
	for _, entry := range entries {
		places = append(places, t.size+int64(len(records)))
		records = appendRecord(records, entry)
	}
	if _, err := t.file.WriteAt(records, t.size); err != nil {
		return errors.Join(err, t.file.Truncate(t.size))
	}
	if err := t.file.Sync(); err != nil {
		return errors.Join(err, t.file.Truncate(t.size))
	}
	t.places, t.size = places, t.size+int64(len(records))
	return nil
}

// replace puts another branch in the place of what is there. mu is held.
func (t *team) replace(entries [][]byte) error {
	content := []byte(teamMagic)
	var places []int64
	for _, entry := range entries {
		places = append(places, int64(len(content)))
		content = appendRecord(content, entry)
	}
	if err := gitlog.ReplaceFile(t.path, content, 0o600); err != nil {
		return err
	}
	f, err := os.OpenFile(t.path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	_ = t.file.Close()
	t.file, t.places, t.size = f, places, int64(len(content))
	return nil
}

// change is what a newer chain means for those who are connected.
type change struct {
	removed []gitlog.DeviceID
	changed bool
}

// learn takes entries from seq first on, as they come. A fork is errFork: then the whole other branch is wanted. It
// returns how many entries are new, all of which count against the rate of the device that brought them.
func (t *team) learn(first uint64, entries [][]byte) (c change, n int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	chain := t.chain.Load()
	for chain != nil && len(entries) > 0 && first < uint64(chain.Len()) { // what is known already
		if gitlog.HashEntry(entries[0]) != chain.Link(first).Hash {
			return c, 0, errFork
		}
		entries, first = entries[1:], first+1
	}
	if len(entries) == 0 {
		return c, 0, nil
	}
	var next *gitlog.Chain
	if chain == nil {
		if first != 0 {
			return c, 0, errFork
		}
		begun, err := gitlog.BeginChain(t.id, entries[0])
		if err != nil {
			return c, 0, err
		}
		next, n, err = begun.Extend(entries[1:])
		n++
		t.newer.Store(errors.Is(err, gitlog.ErrNewer))
		return t.adopt(nil, next, entries[:n], n, err)
	}
	if first != uint64(chain.Len()) {
		return c, 0, errFork
	}
	next, n, err = chain.Extend(entries)
	if n == 0 && err != nil && !errors.Is(err, gitlog.ErrNewer) {
		return c, 0, errFork // it may follow another entry than the head
	}
	t.newer.Store(errors.Is(err, gitlog.ErrNewer))
	return t.adopt(chain, next, entries[:n], n, err)
}

// errFork says that entries do not go on from the chain that is known.
var errFork = errors.New("the entries are of another branch of the roster")

// adopt stores new entries and makes the chain that they lead to the team's. mu is held.
func (t *team) adopt(before, next *gitlog.Chain, entries [][]byte, n int, wrong error) (change, int, error) {
	if len(entries) > 0 {
		if err := t.store(entries); err != nil {
			return change{}, n, &storeError{err}
		}
		t.chain.Store(next)
	}
	if errors.Is(wrong, gitlog.ErrNewer) {
		wrong = nil // the state before it goes on counting
	}
	return changeBetween(before, next), n, wrong
}

// storeError says that a roster could not be written.
type storeError struct{ cause error }

func (e *storeError) Error() string { return "a roster cannot be written: " + e.cause.Error() }
func (e *storeError) Unwrap() error { return e.cause }

func changeBetween(before, after *gitlog.Chain) change {
	c := change{changed: before != nil && before.Head() != after.Head()}
	if !c.changed {
		return c
	}
	// Also across a fork: whoever is in one branch and not in the other.
	for _, id := range before.Devices() {
		if !after.Live(id) {
			c.removed = append(c.removed, id)
		}
	}
	return c
}

// judge decides between the chain and another branch of it, whole. n is how many entries were checked.
func (t *team) judge(entries [][]byte) (c change, n int, err error) {
	other, err := gitlog.BeginChain(t.id, entries[0])
	if err != nil {
		return c, 1, err
	}
	other, n, err = other.Extend(entries[1:])
	n++
	if err != nil && !errors.Is(err, gitlog.ErrNewer) {
		return c, n, err
	}
	newer := err != nil
	t.mu.Lock()
	defer t.mu.Unlock()
	chain := t.chain.Load()
	if chain == nil || t.prefers(chain, other) {
		return c, n, nil
	}
	if err := t.replace(entries[:n]); err != nil {
		return c, n, &storeError{err}
	}
	t.newer.Store(newer)
	t.chain.Store(other)
	return changeBetween(chain, other), n, nil
}

// prefers says whether the chain is kept, against a branch. The operator may have named an entry that decides.
func (t *team) prefers(chain, other *gitlog.Chain) bool {
	if t.rule != nil && t.rule.Entry != nil {
		ours, theirs := chain.HasHash(*t.rule.Entry), other.HasHash(*t.rule.Entry)
		if ours != theirs {
			return ours
		}
	}
	return chain.Prefers(other)
}

// knows says whether a head that a client names is in the chain, or may be in the part that this version cannot read.
func (t *team) knows(head gitlog.RosterHead) bool {
	chain := t.chain.Load()
	return chain.Has(head) || t.newer.Load() && head.Seq >= uint64(chain.Len())
}

// holds says whether an entry is the one that the chain has in this place.
func (t *team) holds(seq uint64, entry []byte) bool {
	chain := t.chain.Load()
	return chain != nil && seq < uint64(chain.Len()) && chain.Link(seq).Hash == gitlog.HashEntry(entry)
}

// exchange brings the relay's chain and a client's together, on the client's stream: each side sends what the other
// lacks. spend says how many of n entries may be checked now; with fewer a fault ends it, and what was learnt stays.
func (t *team) exchange(stream wire.Stream, head gitlog.RosterHead, spend func(n int) (int, *wire.Fault), act func(change)) (fault *wire.Fault, err error) {
	send := func(m wire.Message) error { return stream.Send(wire.Encode(m)) }
	for round := 0; ; round++ {
		chain := t.chain.Load()
		if chain != nil && t.knows(head) {
			if behind := uint64(chain.Len()) - min(uint64(chain.Len()), head.Seq+1); behind > 0 {
				return nil, wire.SendRoster(send, head.Seq+1, behind, t.entry)
			}
			return nil, nil
		}
		// First what would go on from here; if it does not, all of it.
		from := uint64(0)
		if chain != nil && round == 0 && head.Seq >= uint64(chain.Len()) {
			from = uint64(chain.Len())
		}
		if round > 1 {
			return nil, nil // another branch was judged, and this one is kept
		}
		if err := send(&wire.RosterWanted{From: from}); err != nil {
			return nil, err
		}
		forked, fault, err := t.receive(stream, from, chain != nil && from == 0, spend, act)
		if fault != nil || err != nil {
			return fault, err
		}
		if !forked && from == 0 {
			return nil, nil
		}
		if !forked && !t.knows(head) {
			return &wire.Fault{Code: wire.RosterWrong, Text: "the entries do not lead to the head that was named"}, nil
		}
	}
}

// maxBranch bounds the bytes of a branch that is judged whole.
const maxBranch = 64 << 20

// receive takes entries from a client. Those that go on from the chain are learnt as they come. Of a whole branch (judge)
// all are gathered first.
func (t *team) receive(stream wire.Stream, from uint64, whole bool, spend func(n int) (int, *wire.Fault), act func(change)) (forked bool, fault *wire.Fault, err error) {
	reader := wire.NewRosterReader(from)
	var branch [][]byte
	size := 0
	wrong := func(err error) (bool, *wire.Fault, error) {
		var store *storeError
		if errors.As(err, &store) {
			return false, unavailable(), nil
		}
		return false, &wire.Fault{Code: wire.RosterWrong, Text: cutText(err.Error())}, nil
	}
	for {
		m, err := wire.ReceiveMessage(stream)
		if err != nil {
			return false, nil, err
		}
		part, ok := m.(*wire.RosterPart)
		if !ok {
			return false, &wire.Fault{Code: wire.UnknownRequest, Text: "entries of a roster were asked for"}, nil
		}
		entries, err := reader.Take(part)
		if err != nil {
			return wrong(err)
		}
		// What is in the chain already costs nothing.
		cost := 0
		for i, entry := range entries {
			if size += len(entry); !t.holds(from+uint64(len(branch)+i), entry) {
				cost++
			}
		}
		var short *wire.Fault
		if cost > 0 && !forked {
			allowed, fault := spend(cost)
			if short = fault; fault != nil {
				entries = entries[:len(entries)-(cost-allowed)]
			}
		}
		switch {
		case forked: // the rest is passed over
		case size > maxBranch && whole:
			return wrong(errors.New("the branch is too large"))
		case whole:
			branch = append(branch, entries...)
		default:
			c, _, err := t.learn(from, entries)
			act(c)
			if from += uint64(len(entries)); errors.Is(err, errFork) {
				forked = true
			} else if err != nil {
				return wrong(err)
			}
		}
		if short != nil {
			return false, short, nil
		}
		if part.Last {
			break
		}
	}
	if whole && len(branch) > 0 {
		c, _, err := t.judge(branch)
		act(c)
		if err != nil {
			return wrong(err)
		}
	}
	return forked, nil, nil
}

func cutText(s string) string {
	const most = 400
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "")
	}
	return s
}
