package gitlog

import (
	"bytes"
	"cmp"
	"slices"
	"sync"
)

// How long entries live. A lifetime counts from the earlier of the entry's time and first sight, so that a clock
// which runs ahead lengthens nothing.
const (
	day = 24 * 60 * 60 * 1000 // in Millis

	factLife  Millis = 90 * day
	cacheLife Millis = 14 * day

	// A plan lives as long as its session: until the session ends or says another. A session that ends without a
	// word (a crash, a lost machine) must not go on announcing work, so a plan also ends after a day.
	planLife Millis = day

	// A time further ahead of the reader than this is shown as first sight.
	clockSkew Millis = 10 * 60 * 1000
)

// Memory is what the logs say now: facts, cached answers and plans that count, what they superseded, where two
// current ones disagree, and what was forgotten. It depends on the set of entries alone: the order in which they were
// added, and how often, changes nothing. Its methods may be called from several goroutines.
type Memory struct {
	mu      sync.Mutex
	version uint64

	entries map[EntryID]*Stored
	listed  map[listing]EntryID     // what is superseded, by the entry that counts as its successor
	buried  map[listing]EntryID     // what is forgotten, by a tombstone
	ended   map[sessionKey][]Millis // when sessions ended

	// The last answer, which holds while nothing is added and now stays in [from, until).
	view struct {
		version     uint64
		from, until Millis
		all         []*Item
		current     []*Item
	}
}

// listing is an entry named by another of the same room. An entry of one room says nothing about another room's,
// whose readers may be others.
type listing struct {
	room RoomID
	id   EntryID
}

// sessionKey is a session as its plans are grouped. The device is in it so that nobody ends or replaces another's plan.
type sessionKey struct {
	device  DeviceID
	session string // "<agent>:<session id>"
}

// Item is an entry as memory sees it. Items are shared between callers: do not change them.
type Item struct {
	*Stored
	Current      bool // the one of its name that counts now
	SupersededBy *EntryID
	Forgotten    bool
	Expired      bool
	At           Millis  // when it was said, as it is shown: first sight where the entry's own time was far ahead
	Since        Millis  // remembered or confirmed; lifetimes count from here
	Origin       *Stored // whose words they are: for a confirmation the fact confirmed, for all others the entry itself
	Disagrees    []*Item // other current entries of the same name that say something else, unseen by each other
}

// NewMemory returns an empty memory.
func NewMemory() *Memory {
	return &Memory{
		entries: make(map[EntryID]*Stored),
		listed:  make(map[listing]EntryID),
		buried:  make(map[listing]EntryID),
		ended:   make(map[sessionKey][]Millis),
	}
}

// Add takes in an entry of either log: facts, cached answers, plans, confirmations, tombstones, and the events that
// end a session; all else is ignored. Any order and any repetition give the same memory. FirstSeen should be set: an
// entry without it is taken at its word about its time.
func (m *Memory) Add(s *Stored) {
	m.mu.Lock()
	defer m.mu.Unlock()
	changed := false
	switch s.Kind {
	case KindFact, KindCache, KindConfirmation:
		if s.Fact == nil {
			return
		}
		changed = m.keep(s)
		for _, id := range s.Fact.Supersedes {
			changed = m.list(m.listed, listing{s.Room, id}, s) || changed
		}
	case KindPlan:
		if s.Plan == nil {
			return
		}
		changed = m.keep(s)
	case KindTombstone:
		if s.Tombstone == nil {
			return
		}
		changed = m.keep(s)
		for _, id := range s.Tombstone.Targets {
			changed = m.list(m.buried, listing{s.Room, id}, s) || changed
		}
	case SessionEnded:
		if s.Event == nil {
			return
		}
		key := sessionKey{s.Author, s.Event.Agent + ":" + s.Event.Session}
		at, found := slices.BinarySearch(m.ended[key], s.Time)
		if !found {
			m.ended[key] = slices.Insert(m.ended[key], at, s.Time)
			changed = true
		}
	}
	if changed {
		m.version++
	}
}

// keep stores the entry and says whether that changed anything. Of several copies (a checkpoint, a segment that came
// by two ways) the one in the newest generation stands, with the earliest first sight of all.
func (m *Memory) keep(s *Stored) bool {
	old, ok := m.entries[s.ID()]
	if !ok {
		m.entries[s.ID()] = s
		return true
	}
	stands, other := old, s
	if comparePlaces(s, old) > 0 {
		stands, other = s, old
	}
	if other.FirstSeen != 0 && (stands.FirstSeen == 0 || other.FirstSeen < stands.FirstSeen) {
		merged := *stands
		merged.FirstSeen = other.FirstSeen
		stands = &merged
	}
	if stands == old {
		return false
	}
	changed := *stands != *old
	m.entries[s.ID()] = stands
	return changed
}

// comparePlaces orders copies of one entry by where they stand; any total order does that the copies themselves decide.
func comparePlaces(a, b *Stored) int {
	return cmp.Or(
		cmp.Compare(a.Generation, b.Generation),
		cmp.Compare(a.Seq, b.Seq),
		bytes.Compare(a.Writer[:], b.Writer[:]),
		bytes.Compare(a.Room[:], b.Room[:]),
		cmp.Compare(a.Epoch, b.Epoch),
	)
}

// list notes that by names what, and says whether that is new. Of several that do, the one that would be current of
// them is told to the reader.
func (m *Memory) list(names map[listing]EntryID, what listing, by *Stored) bool {
	if old, ok := names[what]; ok && compareRank(m.entries[old], by) >= 0 {
		return false
	}
	names[what] = by.ID()
	return true
}

// compareRank orders entries of one name: the deeper, then the later, then the greater id counts. It goes by the
// entries' own times, since every reader has to come to the same answer.
func compareRank(a, b *Stored) int {
	depth := func(s *Stored) uint64 {
		if s.Fact == nil {
			return 0
		}
		return s.Fact.Depth
	}
	ida, idb := a.ID(), b.ID()
	return cmp.Or(
		cmp.Compare(depth(a), depth(b)),
		cmp.Compare(a.Time, b.Time),
		bytes.Compare(ida[:], idb[:]),
	)
}

// Version grows with each change.
func (m *Memory) Version() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.version
}

// Current returns the facts, cached answers and plans that count at now, one for each name (of each session, for
// plans), newest first. Whether a cached answer's files have changed is for Tree.Judge to say. Do not change the slice.
func (m *Memory) Current(now Millis) []*Item {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.look(now)
	return m.view.current
}

// All returns every fact, confirmation, cached answer and plan, newest first: superseded, expired and forgotten ones
// too. Do not change the slice.
func (m *Memory) All(now Millis) []*Item {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.look(now)
	return m.view.all
}

// scope is what a name is unique in; for a plan the name is its session.
type scope struct {
	room   RoomID
	kind   EntryKind // a confirmation's is KindFact
	name   string
	device DeviceID // plans only
}

func scopeOf(s *Stored) scope {
	switch s.Kind {
	case KindPlan:
		return scope{kind: KindPlan, name: s.Plan.Session, device: s.Author}
	case KindCache:
		return scope{room: s.Room, kind: KindCache, name: s.Fact.Name}
	default:
		return scope{room: s.Room, kind: KindFact, name: s.Fact.Name}
	}
}

func lifeOf(kind EntryKind) Millis {
	switch kind {
	case KindPlan:
		return planLife
	case KindCache:
		return cacheLife
	default:
		return factLife
	}
}

// look brings the view up to date.
func (m *Memory) look(now Millis) {
	v := &m.view
	if v.all != nil && v.version == m.version && v.from <= now && now < v.until {
		return
	}
	v.version, v.from, v.until = m.version, 0, ^Millis(0)
	v.all = make([]*Item, 0, len(m.entries))
	v.current = nil
	heads := make(map[scope][]*Item)
	for id, s := range m.entries {
		if s.Kind == KindTombstone {
			continue
		}
		item := &Item{Stored: s, At: s.Time, Since: s.Time, Origin: m.origin(s)}
		if s.FirstSeen != 0 {
			item.Since = min(s.Time, s.FirstSeen)
			if s.Time > s.FirstSeen+clockSkew {
				item.At = s.FirstSeen
			}
		}
		if by, ok := m.listed[listing{s.Room, id}]; ok {
			item.SupersededBy = &by
		}
		_, item.Forgotten = m.buried[listing{s.Room, id}]

		end := item.Since + lifeOf(s.Kind)
		if s.Kind == KindPlan && s.Plan.Session != "" {
			ended := m.ended[sessionKey{s.Author, s.Plan.Session}]
			if i, _ := slices.BinarySearch(ended, s.Time); i < len(ended) {
				end = 0 // whatever now is, the session has said that it is over
			}
		}
		if item.Expired = end <= now; item.Expired {
			v.from = max(v.from, end)
		} else {
			v.until = min(v.until, end)
		}
		v.all = append(v.all, item)
		if item.SupersededBy == nil && !item.Forgotten && (!item.Expired || s.Kind == KindPlan) {
			heads[scopeOf(s)] = append(heads[scopeOf(s)], item)
		}
	}
	slices.SortFunc(v.all, func(a, b *Item) int {
		return cmp.Or(cmp.Compare(b.At, a.At), -compareRank(a.Stored, b.Stored))
	})
	for _, of := range heads {
		top := slices.MaxFunc(of, func(a, b *Item) int { return compareRank(a.Stored, b.Stored) })
		if top.Kind == KindPlan {
			// A newer plan replaces an older one even when the newer has ended.
			top.Current = !top.Expired
			for _, item := range of {
				if id := top.ID(); item != top {
					item.SupersededBy = &id
				}
			}
			continue
		}
		top.Current = true
		for _, item := range of {
			for _, other := range of {
				if item.Fact.Text != other.Fact.Text {
					item.Disagrees = append(item.Disagrees, other)
				}
			}
			slices.SortFunc(item.Disagrees, func(a, b *Item) int { return -compareRank(a.Stored, b.Stored) })
		}
	}
	for _, item := range v.all {
		if item.Current {
			v.current = append(v.current, item)
		}
	}
}

// origin follows a confirmation to the fact whose words it repeats. A confirmation that changes the words is its own
// author's, so that nobody can put words into another's mouth.
func (m *Memory) origin(s *Stored) *Stored {
	for s.Kind == KindConfirmation && s.Fact.Confirms != nil {
		of, ok := m.entries[*s.Fact.Confirms]
		if !ok || of.Fact == nil || of.Room != s.Room || of.Kind == KindCache || of.Fact.Name != s.Fact.Name || of.Fact.Text != s.Fact.Text {
			break
		}
		s = of
	}
	return s
}

// heads returns the entries of a scope that nothing lists and nobody forgot, expired ones too, greatest first: what a
// new entry of that name supersedes.
func (m *Memory) heads(of scope) []*Stored {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []*Stored
	for id, s := range m.entries {
		if s.Kind == KindTombstone || scopeOf(s) != of {
			continue
		}
		_, listed := m.listed[listing{s.Room, id}]
		_, buried := m.buried[listing{s.Room, id}]
		if !listed && !buried {
			found = append(found, s)
		}
	}
	slices.SortFunc(found, func(a, b *Stored) int { return -compareRank(a, b) })
	return found
}

// entry returns an entry by its id.
func (m *Memory) entry(id EntryID) (*Stored, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.entries[id]
	return s, ok
}

// roomsOf returns the rooms in which a name of one of these kinds has a head, in order.
func (m *Memory) roomsOf(name string, kinds ...EntryKind) []RoomID {
	m.mu.Lock()
	defer m.mu.Unlock()
	var rooms []RoomID
	for id, s := range m.entries {
		if s.Fact == nil || s.Fact.Name != name || !slices.Contains(kinds, scopeOf(s).kind) || slices.Contains(rooms, s.Room) {
			continue
		}
		_, listed := m.listed[listing{s.Room, id}]
		_, buried := m.buried[listing{s.Room, id}]
		if !listed && !buried {
			rooms = append(rooms, s.Room)
		}
	}
	slices.SortFunc(rooms, func(a, b RoomID) int { return bytes.Compare(a[:], b[:]) })
	return rooms
}
