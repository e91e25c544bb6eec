package gitlog

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// LogKind is the kind of a log: facts live in one, what happened in the other.
type LogKind uint64

const (
	MemoryLog LogKind = 1
	AuditLog  LogKind = 2
)

// EntryKind says what an entry's body is (formats.md, Entry).
type EntryKind uint64

const (
	KindFact         EntryKind = 1
	KindCache        EntryKind = 2
	KindPlan         EntryKind = 3
	KindTombstone    EntryKind = 4
	KindConfirmation EntryKind = 5

	SessionStarted     EntryKind = 32
	IntentDeclared     EntryKind = 33
	PlanDeclared       EntryKind = 34
	ClaimAcquired      EntryKind = 35
	ClaimRenewed       EntryKind = 36
	ClaimDenied        EntryKind = 37
	ClaimReleased      EntryKind = 38
	ClaimLeft          EntryKind = 39
	BranchMoved        EntryKind = 40
	HubTurn            EntryKind = 41
	PathFreed          EntryKind = 42
	FileWritten        EntryKind = 43
	PathRemoved        EntryKind = 44
	UngatedWrite       EntryKind = 45
	CrossBranchOverlap EntryKind = 46
	StaleRead          EntryKind = 47
	CreateCollision    EntryKind = 48
	DuplicateIntent    EntryKind = 49
	Message            EntryKind = 50
	MemoryPublished    EntryKind = 51
	MemoryRefused      EntryKind = 52
	RosterChanged      EntryKind = 53
	SessionEnded       EntryKind = 54
)

var kindNames = map[EntryKind]string{
	KindFact:           "fact",
	KindCache:          "cache",
	KindPlan:           "plan",
	KindTombstone:      "tombstone",
	KindConfirmation:   "confirmation",
	SessionStarted:     "SessionStarted",
	IntentDeclared:     "IntentDeclared",
	PlanDeclared:       "PlanDeclared",
	ClaimAcquired:      "ClaimAcquired",
	ClaimRenewed:       "ClaimRenewed",
	ClaimDenied:        "ClaimDenied",
	ClaimReleased:      "ClaimReleased",
	ClaimLeft:          "ClaimLeft",
	BranchMoved:        "BranchMoved",
	HubTurn:            "HubTurn",
	PathFreed:          "PathFreed",
	FileWritten:        "FileWritten",
	PathRemoved:        "PathRemoved",
	UngatedWrite:       "UngatedWrite",
	CrossBranchOverlap: "CrossBranchOverlap",
	StaleRead:          "StaleRead",
	CreateCollision:    "CreateCollision",
	DuplicateIntent:    "DuplicateIntent",
	Message:            "Message",
	MemoryPublished:    "MemoryPublished",
	MemoryRefused:      "MemoryRefused",
	RosterChanged:      "RosterChanged",
	SessionEnded:       "SessionEnded",
}

// String is the kind's name in JSON and on screen: fact, cache, plan, tombstone or confirmation, an event's own name, or
// the number of a kind from the future.
func (k EntryKind) String() string {
	if name, ok := kindNames[k]; ok {
		return name
	}
	return fmt.Sprintf("kind %d", uint64(k))
}

// Entry is one thing said: a fact, a cached answer, a plan, a tombstone, a confirmation, or an event.
// Exactly one of Fact, Plan, Tombstone and Event is set for the kinds this version knows (Fact for KindFact,
// KindCache and KindConfirmation); none for a kind from the future, which is kept and counted, not opened.
type Entry struct {
	Kind   EntryKind
	Time   Millis
	Nonce  [8]byte
	Author DeviceID

	Fact      *Fact
	Plan      *Plan
	Tombstone *Tombstone
	Event     *Event

	raw   []byte // the bytes as they stand, unknown keys included; the id is taken over these
	id    EntryID
	newer error
}

// ID returns the id derived from the entry's bytes; it is zero until the entry was encoded or decoded.
func (e *Entry) ID() EntryID { return e.id }

// Raw returns the entry's bytes as they stand; nil until the entry was encoded. The caller must not change them.
func (e *Entry) Raw() []byte { return e.raw }

// Newer returns nil, or an error wrapping ErrNewer for an entry that this version keeps and counts but cannot read:
// its kind is unknown, or something in it is that must not be ignored. It has no body then.
func (e *Entry) Newer() error { return e.newer }

// WrittenBy says whether a person or an agent wrote a fact.
type WrittenBy uint64

const (
	ByPerson WrittenBy = 1
	ByAgent  WrittenBy = 2
)

// Fact is the body of a fact, a cached answer and a confirmation.
type Fact struct {
	Name       string
	Text       string
	Paths      []FactPath // sorted when it is encoded
	Branch     string     // full ref name, as bytes in the format; "" when detached
	Commit     []byte     // HEAD when it was written, 20 or 32 bytes; nil in a repository without commits
	Supersedes []EntryID  // sorted when it is encoded
	Depth      uint64     // 1 + the largest superseded; 1 when it supersedes nothing
	Confirms   *EntryID
	By         WrittenBy
	Session    string // "<agent>:<session id>", "" outside one
	Pinned     bool
	Area       *AreaID // only without paths; nil: the whole repository
}

// FactPath is a path that a fact is about. Path holds bytes as git's index has them, not necessarily UTF-8.
type FactPath struct {
	Path  string
	Blob  []byte // 20 or 32 bytes; nil: gone, a directory or a glob
	Lines *LineAnchor
	Glob  bool
}

// LineAnchor ties a fact to lines of a file, 1-based and inclusive. Digest is the SHA-256 of those lines as git
// would store them, joined by LF, without a final LF.
type LineAnchor struct {
	First, Last uint64
	Digest      Digest
}

// Plan is what a session means to do and what it decided.
type Plan struct {
	Session string
	Text    string
	Decided []string
	Derived bool
	Paths   []FactPath
}

// Tombstone ends what it targets.
type Tombstone struct {
	Name    string
	Reason  string
	Targets []EntryID
}

// Event is what happened. Absent fields are zero.
type Event struct {
	Order     *Order
	Late      bool
	Agent     string
	Session   string
	Subagent  string
	Person    bool
	Branch    string
	Worktree  []byte // 16
	Paths     []EventPath
	Claim     []byte // 16
	Until     Millis
	Class     uint64 // 1 file, 2 tree, 3 hub
	Reason    uint64 // formats.md, Entry, key 13
	Other     []byte // 16, the other session's token
	Text      string
	OldBranch string
	Commit    []byte
}

// EventPath is a path an event is about, with the blob it had then when known.
type EventPath struct {
	Path string
	Blob []byte
}

// Order is a place in a sequencer's order.
type Order struct {
	Sequencer [16]byte
	Term, Seq uint64
}

// Stored is an entry with its place in a log.
type Stored struct {
	*Entry
	Room       RoomID
	Epoch      uint64
	Writer     WriterID
	Log        LogKind
	Generation uint64
	Seq        uint64 // of its segment; 0: still in this clone's journal, or heard through a relay and not from the host yet
	FirstSeen  Millis // when this clone first had it; lifetimes count from the earlier of this and Time
}

// maxEntry is what one encoded entry may weigh.
const maxEntry = 64 << 10

// encode fixes the entry's bytes and id. It sorts what the format wants sorted, in place, and refuses what no
// decoder would take. An entry that has its bytes already keeps them: from then on its fields must not change.
func (e *Entry) encode(team TeamID, repository RepositoryID) error {
	if e.raw == nil {
		body, err := e.body()
		if err != nil {
			return err
		}
		raw := encodeCBOR(intMap{1: uint64(e.Kind), 2: uint64(e.Time), 3: e.Nonce[:], 4: e.Author[:], 5: body})
		back, err := decodeEntry(raw, team, repository)
		if err == nil {
			err = back.newer
		}
		if err != nil {
			return fmt.Errorf("this entry cannot be stored: %w", err)
		}
		e.raw = raw
	}
	// One that is in a journal is read by others while it goes into a segment, so nothing is written twice.
	if id := entryID(team, repository, e.raw); e.id != id {
		e.id = id
	}
	return nil
}

func entryID(team TeamID, repository RepositoryID, raw []byte) EntryID {
	h := sha256.New()
	h.Write([]byte("knoot/entry/1\x00"))
	h.Write(team[:])
	h.Write(repository[:])
	h.Write(raw)
	return EntryID(h.Sum(nil)[:len(EntryID{})])
}

// decodeEntry reads an entry's bytes and keeps them as they stand. An entry from a newer version is no error: see
// Newer.
func decodeEntry(raw []byte, team TeamID, repository RepositoryID) (*Entry, error) {
	if len(raw) > maxEntry { // before it is decoded
		return nil, fmt.Errorf("an entry of %d bytes: %w of %d", len(raw), errTooLarge, maxEntry)
	}
	v, err := decodeStrict(raw)
	if err != nil {
		return nil, fmt.Errorf("entry: %w", err)
	}
	return newEntry(v, bytes.Clone(raw), team, repository)
}

// newEntry makes an entry of its bytes and what they decode to.
func newEntry(v any, raw []byte, team TeamID, repository RepositoryID) (*Entry, error) {
	if len(raw) > maxEntry {
		return nil, fmt.Errorf("an entry of %d bytes: %w of %d", len(raw), errTooLarge, maxEntry)
	}
	e, err := readEntry(v)
	if err != nil {
		return nil, err
	}
	e.raw = raw
	e.id = entryID(team, repository, raw)
	return e, nil
}

func readEntry(v any) (*Entry, error) {
	f, err := openFields(v, "entry")
	if err != nil {
		return nil, err
	}
	e := &Entry{Kind: EntryKind(f.uint(1, 1)), Time: f.millis(2)}
	f.fixed(3, e.Nonce[:])
	f.fixed(4, e.Author[:])
	if f.odd != nil { // author, time and kind are what keeping and counting needs, from whichever version
		return nil, f.odd
	}
	body, _ := f.need(5)
	if err := f.finish(); errors.Is(err, ErrNewer) {
		e.newer = err
		return e, nil
	} else if err != nil {
		return nil, err
	}
	switch {
	case e.Kind == KindFact, e.Kind == KindCache, e.Kind == KindConfirmation:
		e.Fact, err = readFact(body, e.Kind)
	case e.Kind == KindPlan:
		e.Plan, err = readPlan(body)
	case e.Kind == KindTombstone:
		e.Tombstone, err = readTombstone(body)
	case e.Kind >= SessionStarted && e.Kind <= SessionEnded:
		e.Event, err = readEvent(body)
	default:
		err = fmt.Errorf("entry of kind %d: %w", e.Kind, ErrNewer)
	}
	if errors.Is(err, ErrNewer) {
		e.Fact, e.Plan, e.Tombstone, e.Event, e.newer = nil, nil, nil, nil, err
		return e, nil
	}
	if err != nil {
		return nil, err
	}
	return e, nil
}

// body builds the body to encode; exactly the one that belongs to the kind must be set.
func (e *Entry) body() (intMap, error) {
	set := 0
	for _, there := range []bool{e.Fact != nil, e.Plan != nil, e.Tombstone != nil, e.Event != nil} {
		if there {
			set++
		}
	}
	var body intMap
	switch {
	case set != 1:
	case e.Fact != nil && (e.Kind == KindFact || e.Kind == KindCache || e.Kind == KindConfirmation):
		body = e.Fact.encode()
	case e.Plan != nil && e.Kind == KindPlan:
		body = e.Plan.encode()
	case e.Tombstone != nil && e.Kind == KindTombstone:
		body = e.Tombstone.encode()
	case e.Event != nil && e.Kind >= SessionStarted && e.Kind <= SessionEnded:
		body = e.Event.encode()
	}
	if body == nil {
		return nil, fmt.Errorf("an entry of kind %d needs the body of that kind and no other: %w", e.Kind, errType)
	}
	return body, nil
}

func (b *Fact) encode() intMap {
	slices.SortFunc(b.Supersedes, func(x, y EntryID) int { return bytes.Compare(x[:], y[:]) })
	m := intMap{1: b.Name, 2: b.Text, 7: b.Depth, 9: uint64(b.By)}
	m.set(3, encodePaths(b.Paths))
	m.set(4, []byte(b.Branch))
	m.set(5, b.Commit)
	m.set(6, encodeIDs(b.Supersedes))
	if b.Confirms != nil {
		m[8] = b.Confirms[:]
	}
	m.set(10, b.Session)
	m.set(11, b.Pinned)
	if b.Area != nil {
		m[12] = b.Area[:]
	}
	return m
}

func readFact(v any, kind EntryKind) (*Fact, error) {
	f, err := openFields(v, "body")
	if err != nil {
		return nil, err
	}
	b := &Fact{
		Name:       f.text(1),
		Text:       f.text(2),
		Paths:      f.paths(3),
		Branch:     string(f.bytesIf(4)),
		Commit:     f.bytesIf(5, 20, 32),
		Supersedes: f.entryIDs(6, f.listIf(6)),
		Depth:      f.uint(7, 1),
		By:         WrittenBy(f.uint(9, 1)),
		Session:    f.session(10),
		Pinned:     f.flag(11),
	}
	var confirms EntryID
	if f.fixedIf(8, confirms[:]) {
		b.Confirms = &confirms
	}
	var area AreaID
	if f.fixedIf(12, area[:]) {
		b.Area = &area
	}
	if err := checkName(b.Name); err != nil {
		f.fail(1, err)
	}
	f.sorted(6, encodeEach(encodeIDs(b.Supersedes)))
	if (len(b.Supersedes) == 0) != (b.Depth == 1) {
		f.fail(7, fmt.Errorf("depth %d: %w", b.Depth, errValue))
	}
	if kind == KindConfirmation && (b.Confirms == nil || len(b.Supersedes) != 1 || b.Supersedes[0] != confirms) {
		f.fail(8, fmt.Errorf("a confirmation supersedes what it confirms and nothing else: %w", errValue))
	}
	if b.By > ByAgent {
		f.newer(9, uint64(b.By))
	}
	if b.Area != nil && len(b.Paths) > 0 {
		f.fail(12, fmt.Errorf("only without paths: %w", errValue))
	}
	return b, f.finish()
}

func (b *Plan) encode() intMap {
	decided := make([]any, len(b.Decided))
	for i, d := range b.Decided {
		decided[i] = d
	}
	m := intMap{}
	m.set(1, b.Session)
	m.set(2, b.Text)
	m.set(3, decided)
	m.set(4, b.Derived)
	m.set(5, encodePaths(b.Paths))
	return m
}

func readPlan(v any) (*Plan, error) {
	f, err := openFields(v, "body")
	if err != nil {
		return nil, err
	}
	b := &Plan{Session: f.session(1), Text: f.textIf(2)}
	for _, d := range f.listIf(3) {
		s, ok := d.(string)
		if !ok {
			f.fail(3, errType)
		}
		b.Decided = append(b.Decided, s)
	}
	b.Derived = f.flag(4)
	b.Paths = f.paths(5)
	return b, f.finish()
}

func (b *Tombstone) encode() intMap {
	m := intMap{3: encodeIDs(b.Targets)}
	m.set(1, b.Name)
	m.set(2, b.Reason)
	return m
}

func readTombstone(v any) (*Tombstone, error) {
	f, err := openFields(v, "body")
	if err != nil {
		return nil, err
	}
	b := &Tombstone{Name: f.textIf(1), Reason: f.textIf(2), Targets: f.entryIDs(3, f.list(3))}
	if b.Name != "" {
		if err := checkName(b.Name); err != nil {
			f.fail(1, err)
		}
	}
	if len(b.Targets) == 0 {
		f.fail(3, errValue)
	}
	return b, f.finish()
}

func (b *Event) encode() intMap {
	m := intMap{}
	if b.Order != nil {
		m[1] = []any{b.Order.Sequencer[:], b.Order.Term, b.Order.Seq}
	}
	m.set(2, b.Late)
	m.set(3, b.Agent)
	m.set(4, b.Session)
	m.set(5, b.Subagent)
	m.set(6, b.Person)
	m.set(7, []byte(b.Branch))
	m.set(8, b.Worktree)
	paths := make([]any, len(b.Paths))
	for i, p := range b.Paths {
		pm := intMap{1: []byte(p.Path)}
		pm.set(2, p.Blob)
		paths[i] = pm
	}
	m.set(9, paths)
	m.set(10, b.Claim)
	m.set(11, uint64(b.Until))
	m.set(12, b.Class)
	m.set(13, b.Reason)
	m.set(14, b.Other)
	m.set(15, b.Text)
	m.set(16, []byte(b.OldBranch))
	m.set(17, b.Commit)
	return m
}

// The last values that this version knows of an event's class and reason.
const (
	lastClass  = 3  // hub
	lastReason = 10 // call ended
)

func readEvent(v any) (*Event, error) {
	f, err := openFields(v, "body")
	if err != nil {
		return nil, err
	}
	b := &Event{}
	if l := f.listIf(1); l != nil {
		if l = f.tuple(1, l, 3); l != nil {
			b.Order = &Order{Term: f.asUint(1, l[1], 0), Seq: f.asUint(1, l[2], 0)}
			f.asFixed(1, l[0], b.Order.Sequencer[:])
		}
	}
	b.Late = f.flag(2)
	b.Agent, b.Session, b.Subagent = f.textIf(3), f.textIf(4), f.textIf(5)
	b.Person = f.flag(6)
	b.Branch = string(f.bytesIf(7))
	b.Worktree = f.bytesIf(8, 16)
	for _, p := range f.listIf(9) {
		pf, err := openFields(p, "path")
		if err != nil {
			f.within(err)
			continue
		}
		ep := EventPath{Path: pf.path(1), Blob: pf.bytesIf(2, 20, 32)}
		f.within(pf.finish())
		b.Paths = append(b.Paths, ep)
	}
	b.Claim = f.bytesIf(10, 16)
	b.Until = f.millisOr0(11)
	if b.Class = f.uintOr0(12); b.Class > lastClass {
		f.newer(12, b.Class)
	}
	if b.Reason = f.uintOr0(13); b.Reason > lastReason {
		f.newer(13, b.Reason)
	}
	b.Other = f.bytesIf(14, 16)
	b.Text = f.textIf(15)
	b.OldBranch = string(f.bytesIf(16))
	b.Commit = f.bytesIf(17, 20, 32)
	return b, f.finish()
}

func encodeIDs(ids []EntryID) []any {
	l := make([]any, len(ids))
	for i := range ids {
		l[i] = ids[i][:]
	}
	return l
}

func (f *fields) entryIDs(key uint64, l []any) []EntryID {
	var ids []EntryID
	for _, v := range l {
		var id EntryID
		f.asFixed(key, v, id[:])
		ids = append(ids, id)
	}
	return ids
}

func encodeEach(l []any) [][]byte {
	encoded := make([][]byte, len(l))
	for i, v := range l {
		encoded[i] = encodeCBOR(v)
	}
	return encoded
}

func (p *FactPath) encode() intMap {
	m := intMap{1: []byte(p.Path)}
	m.set(2, p.Blob)
	if p.Lines != nil {
		m[3] = []any{p.Lines.First, p.Lines.Last, p.Lines.Digest[:]}
	}
	m.set(4, p.Glob)
	return m
}

// orderPaths orders by the encoded path, which is: shorter first, then bytewise.
func orderPaths(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}

// encodePaths sorts paths in place; one path may stand there several times with different anchors, and then the whole
// encoded element decides.
func encodePaths(paths []FactPath) []any {
	slices.SortFunc(paths, func(a, b FactPath) int {
		if c := orderPaths(a.Path, b.Path); c != 0 {
			return c
		}
		return bytes.Compare(encodeCBOR(a.encode()), encodeCBOR(b.encode()))
	})
	l := make([]any, len(paths))
	for i := range paths {
		l[i] = paths[i].encode()
	}
	return l
}

func (f *fields) paths(key uint64) []FactPath {
	var paths []FactPath
	l := f.listIf(key)
	for _, v := range l {
		pf, err := openFields(v, "path")
		if err != nil {
			f.within(err)
			continue
		}
		p := FactPath{Path: pf.path(1), Blob: pf.bytesIf(2, 20, 32)}
		if l := pf.listIf(3); l != nil {
			if l = pf.tuple(3, l, 3); l != nil {
				p.Lines = &LineAnchor{First: pf.asUint(3, l[0], 1), Last: pf.asUint(3, l[1], 1)}
				pf.asFixed(3, l[2], p.Lines.Digest[:])
				if p.Lines.Last < p.Lines.First {
					pf.fail(3, errValue)
				}
			}
		}
		p.Glob = pf.flag(4)
		if p.Glob && (p.Blob != nil || p.Lines != nil) {
			pf.fail(4, errValue)
		}
		f.within(pf.finish())
		paths = append(paths, p)
	}
	if f.odd != nil || f.up != nil {
		return paths
	}
	for i := 1; i < len(paths); i++ {
		c := orderPaths(paths[i-1].Path, paths[i].Path)
		if c == 0 {
			c = bytes.Compare(encodeCBOR(l[i-1]), encodeCBOR(l[i]))
		}
		if c >= 0 {
			f.fail(key, errUnsorted)
		}
	}
	return paths
}

func (f *fields) path(key uint64) string {
	p := string(f.bytes(key))
	if err := checkPath(p); err != nil {
		f.fail(key, err)
	}
	return p
}

// session reads an optional `<agent>:<session id>`.
func (f *fields) session(key uint64) string {
	s := f.textIf(key)
	if s != "" {
		if agent, id, ok := strings.Cut(s, ":"); !ok || agent == "" || id == "" {
			f.fail(key, fmt.Errorf("session %q is no <agent>:<session id>: %w", s, errValue))
		}
	}
	return s
}
