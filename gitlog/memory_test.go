package gitlog

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// note makes stored entries for tests of memory; the id is drawn from what the entry says.
type note struct {
	kind       EntryKind
	name, text string
	time       Millis
	seen       Millis
	room       byte
	device     byte
	depth      uint64
	lists      []EntryID
	confirms   *EntryID
	session    string
	salt       int
}

func (n note) stored() *Stored {
	e := &Entry{Kind: n.kind, Time: n.time, Author: DeviceID{n.device}}
	switch n.kind {
	case KindFact, KindCache, KindConfirmation:
		e.Fact = &Fact{Name: n.name, Text: n.text, Supersedes: n.lists, Depth: max(n.depth, 1), Confirms: n.confirms, Session: n.session}
	case KindPlan:
		e.Plan = &Plan{Session: n.session, Text: n.text}
	case KindTombstone:
		e.Tombstone = &Tombstone{Name: n.name, Targets: n.lists}
	case SessionEnded:
		e.Event = &Event{Agent: "claude", Session: n.session}
	}
	n.confirms = nil // an address would make ids differ from run to run; lists holds the id
	sum := sha256.Sum256(fmt.Appendf(nil, "%+v", n))
	e.id = EntryID(sum[:16])
	return &Stored{Entry: e, Room: RoomID{n.room}, FirstSeen: n.seen}
}

const noon = 1_000 * Millis(day) // an ordinary moment for tests

func memoryOf(entries ...*Stored) *Memory {
	m := NewMemory()
	for _, s := range entries {
		m.Add(s)
	}
	return m
}

func texts(items []*Item) []string {
	out := []string{}
	for _, item := range items {
		if item.Plan != nil {
			out = append(out, item.Plan.Text)
		} else {
			out = append(out, item.Fact.Text)
		}
	}
	slices.Sort(out)
	return out
}

func wantCurrent(t *testing.T, m *Memory, now Millis, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := texts(m.Current(now)); !slices.Equal(got, append([]string{}, want...)) {
		t.Errorf("current at %d: %q, want %q", now, got, want)
	}
}

func TestSupersededWhateverTheClocksSay(t *testing.T) {
	old := note{kind: KindFact, name: "money", text: "old", time: noon + 1000}.stored()
	newer := note{kind: KindFact, name: "money", text: "new", time: noon, depth: 2, lists: []EntryID{old.ID()}}.stored()
	m := memoryOf(newer, old)
	wantCurrent(t, m, noon+2000, "new")
	for _, item := range m.All(noon + 2000) {
		if item.ID() == old.ID() && (item.SupersededBy == nil || *item.SupersededBy != newer.ID()) {
			t.Errorf("superseded by %v, want %v", item.SupersededBy, newer.ID())
		}
	}
}

func TestANameIsOfOneRoomAndKind(t *testing.T) {
	a := note{kind: KindFact, name: "money", text: "in a", time: noon, room: 1}.stored()
	b := note{kind: KindFact, name: "money", text: "in b", time: noon, room: 2, depth: 2, lists: []EntryID{a.ID()}}.stored()
	c := note{kind: KindCache, name: "money", text: "cached", time: noon, room: 1}.stored()
	grave := note{kind: KindTombstone, name: "money", time: noon, room: 2, lists: []EntryID{a.ID()}}.stored()
	wantCurrent(t, memoryOf(a, b, c, grave), noon+1, "in a", "in b", "cached")
}

func TestUnseenByEachOtherDisagree(t *testing.T) {
	root := note{kind: KindFact, name: "n", text: "root", time: noon}.stored()
	deep := note{kind: KindFact, name: "n", text: "deep", time: noon, depth: 2, lists: []EntryID{root.ID()}}.stored()
	late := note{kind: KindFact, name: "n", text: "late", time: noon + 5000}.stored()
	m := memoryOf(late, root, deep)
	wantCurrent(t, m, noon+6000, "deep")
	if got := texts(m.Current(noon + 6000)[0].Disagrees); !slices.Equal(got, []string{"late"}) {
		t.Errorf("disagrees with %q, want late", got)
	}

	// Same depth: the later. Same time: the greater id.
	early := note{kind: KindFact, name: "n", text: "early", time: noon}.stored()
	wantCurrent(t, memoryOf(late, early), noon+6000, "late")
	other := note{kind: KindFact, name: "n", text: "other", time: noon + 5000}.stored()
	winner, id, otherID := "late", late.ID(), other.ID()
	if bytes.Compare(otherID[:], id[:]) > 0 {
		winner = "other"
	}
	wantCurrent(t, memoryOf(late, other), noon+6000, winner)

	// Two confirmations of one fact say the same: no disagreement.
	rootID := root.ID()
	one := note{kind: KindConfirmation, name: "n", text: "root", time: noon + 1, device: 1, depth: 2, lists: []EntryID{rootID}, confirms: &rootID}.stored()
	two := note{kind: KindConfirmation, name: "n", text: "root", time: noon + 2, device: 2, depth: 2, lists: []EntryID{rootID}, confirms: &rootID}.stored()
	m = memoryOf(root, one, two)
	wantCurrent(t, m, noon+3, "root")
	if got := m.Current(noon + 3)[0]; len(got.Disagrees) != 0 || got.ID() != two.ID() || got.Origin.ID() != rootID {
		t.Errorf("confirmed twice: %+v", got)
	}
}

func TestConfirmationRenewsTheLifetimeAndKeepsTheAuthor(t *testing.T) {
	fact := note{kind: KindFact, name: "n", text: "x", time: noon, device: 1}.stored()
	id := fact.ID()
	m := memoryOf(fact)
	wantCurrent(t, m, noon+90*day-1, "x")
	wantCurrent(t, m, noon+90*day)
	wantCurrent(t, m, noon+90*day-1, "x") // back in time: the answer is no leftover
	m.Add(note{kind: KindConfirmation, name: "n", text: "x", time: noon + 80*day, device: 2, depth: 2, lists: []EntryID{id}, confirms: &id}.stored())
	wantCurrent(t, m, noon+169*day, "x")
	if got := m.Current(noon + 169*day)[0]; got.Origin.Author != (DeviceID{1}) || got.Since != noon+80*day {
		t.Errorf("origin %v since %v", got.Origin.Author, got.Since)
	}
	wantCurrent(t, m, noon+170*day)

	// Words that were not confirmed are their writer's own.
	forged := note{kind: KindConfirmation, name: "n", text: "y", time: noon + 1, device: 3, depth: 9, lists: []EntryID{id}, confirms: &id}.stored()
	if got := memoryOf(fact, forged).Current(noon + 2)[0]; got.Origin.Author != (DeviceID{3}) {
		t.Errorf("changed words are said to be by %v", got.Origin.Author)
	}
}

func TestLifetimesCountFromTheEarlierOfTimeAndFirstSight(t *testing.T) {
	ahead := note{kind: KindFact, name: "n", text: "x", time: noon + 30*day, seen: noon}.stored()
	m := memoryOf(ahead)
	if got := m.Current(noon + 1)[0]; got.At != noon || got.Since != noon {
		t.Errorf("an entry from the future is shown at %d since %d, want first sight %d", got.At, got.Since, noon)
	}
	wantCurrent(t, m, noon+90*day)

	slightly := note{kind: KindFact, name: "n", text: "x", time: noon + 9*60*1000, seen: noon}.stored()
	if got := memoryOf(slightly).Current(noon + 1)[0]; got.At != noon+9*60*1000 || got.Since != noon {
		t.Errorf("nine minutes ahead: shown at %d since %d", got.At, got.Since)
	}

	late := note{kind: KindFact, name: "n", text: "x", time: noon, seen: noon + 80*day}.stored()
	wantCurrent(t, memoryOf(late), noon+90*day)
}

func TestCachedAnswersLiveFourteenDays(t *testing.T) {
	m := memoryOf(note{kind: KindCache, name: "n", text: "x", time: noon}.stored())
	wantCurrent(t, m, noon+14*day-1, "x")
	wantCurrent(t, m, noon+14*day)
}

func TestForgotten(t *testing.T) {
	fact := note{kind: KindFact, name: "n", text: "x", time: noon}.stored()
	next := note{kind: KindFact, name: "n", text: "y", time: noon + 1, depth: 2, lists: []EntryID{fact.ID()}}.stored()
	grave := note{kind: KindTombstone, name: "n", time: noon + 2, lists: []EntryID{next.ID()}}.stored()
	m := memoryOf(grave, next, fact)
	wantCurrent(t, m, noon+3)
	if all := m.All(noon + 3); len(all) != 2 || !all[0].Forgotten {
		t.Errorf("all: %+v", all)
	}
	// Forgetting what somebody meanwhile replaced forgets only what was seen.
	wantCurrent(t, memoryOf(fact, note{kind: KindTombstone, name: "n", time: noon, lists: []EntryID{fact.ID()}}.stored(), next), noon+3, "y")
}

func TestPlansAreTheSessions(t *testing.T) {
	first := note{kind: KindPlan, session: "claude:s", text: "first", time: noon, device: 1}.stored()
	second := note{kind: KindPlan, session: "claude:s", text: "second", time: noon + 1, device: 1}.stored()
	elsewhere := note{kind: KindPlan, session: "claude:s", text: "elsewhere", time: noon, device: 2}.stored()
	end := note{kind: SessionEnded, session: "s", time: noon + 2, device: 1}.stored()
	resumed := note{kind: KindPlan, session: "claude:s", text: "resumed", time: noon + 3, device: 1}.stored()
	wantCurrent(t, memoryOf(second, first, elsewhere), noon+2, "second", "elsewhere")
	wantCurrent(t, memoryOf(end, second, first, elsewhere), noon+2, "elsewhere")
	wantCurrent(t, memoryOf(end, second, resumed, first), noon+3, "resumed")
	wantCurrent(t, memoryOf(first), noon+day)
	cleared := note{kind: KindTombstone, time: noon + 2, lists: []EntryID{first.ID(), second.ID()}}.stored()
	wantCurrent(t, memoryOf(first, cleared, second), noon+3)
}

// drawNotes draws entries that list one another at random, as concurrent writers with bad clocks would leave them.
func drawNotes(t *rapid.T) []*Stored {
	var drawn []*Stored
	for i := range rapid.IntRange(1, 14).Draw(t, "entries") {
		n := note{
			kind:    rapid.SampledFrom([]EntryKind{KindFact, KindFact, KindFact, KindCache, KindPlan, KindTombstone, KindConfirmation, SessionEnded}).Draw(t, "kind"),
			name:    rapid.SampledFrom([]string{"a", "b"}).Draw(t, "name"),
			text:    rapid.SampledFrom([]string{"x", "y"}).Draw(t, "text"),
			time:    noon + Millis(rapid.IntRange(0, 3).Draw(t, "time"))*40*day,
			room:    byte(rapid.IntRange(0, 1).Draw(t, "room")),
			device:  byte(rapid.IntRange(0, 1).Draw(t, "device")),
			session: rapid.SampledFrom([]string{"claude:s", "s"}).Draw(t, "session"),
			salt:    i,
		}
		if len(drawn) > 0 {
			for range rapid.IntRange(0, 2).Draw(t, "lists") {
				of := drawn[rapid.IntRange(0, len(drawn)-1).Draw(t, "listed")]
				n.lists = append(n.lists, of.ID())
				if of.Fact != nil {
					n.depth = max(n.depth, of.Fact.Depth+1)
				}
				id := of.ID()
				n.confirms = &id
			}
		}
		s := n.stored()
		s.FirstSeen = noon + Millis(rapid.IntRange(0, 3).Draw(t, "seen"))*30*day
		drawn = append(drawn, s)
	}
	return drawn
}

// describe writes a memory's whole answer as text, so that two can be compared.
func describe(m *Memory, now Millis) string {
	var b bytes.Buffer
	for _, item := range m.All(now) {
		fmt.Fprintf(&b, "%v current=%v by=%v forgotten=%v expired=%v at=%d since=%d seen=%d gen=%d origin=%v", item.ID(), item.Current,
			item.SupersededBy, item.Forgotten, item.Expired, item.At, item.Since, item.FirstSeen, item.Generation, item.Origin.ID())
		for _, other := range item.Disagrees {
			fmt.Fprintf(&b, " not %v", other.ID())
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func TestAnyOrderAndRepetitionIsTheSameMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entries := drawNotes(t)
		// The same entry may come again from another place, or be first seen at another time.
		for i := range rapid.IntRange(0, 4).Draw(t, "copies") {
			again := *entries[rapid.IntRange(0, len(entries)-1).Draw(t, "copied")]
			again.Generation = uint64(i)
			again.FirstSeen = Millis(rapid.IntRange(0, 2).Draw(t, "seen again")) * noon
			entries = append(entries, &again)
		}
		now := noon + Millis(rapid.IntRange(0, 200).Draw(t, "now"))*day
		want := describe(memoryOf(entries...), now)
		shuffled := rapid.Permutation(entries).Draw(t, "order")
		m := NewMemory()
		for i, s := range shuffled {
			m.Add(s)
			if rapid.Bool().Draw(t, "look between") {
				m.All(now)
			}
			m.Add(shuffled[rapid.IntRange(0, i).Draw(t, "again")])
		}
		if got := describe(m, now); got != want {
			t.Fatalf("another order gives another memory:\n%s\nwant\n%s", got, want)
		}
		before := m.Version()
		for _, s := range shuffled {
			m.Add(s)
		}
		if m.Version() != before {
			t.Fatalf("adding everything again changed the version")
		}
	})
}

func TestWhatIsListedIsNeverCurrent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entries := drawNotes(t)
		listed := make(map[listing]bool)
		for _, s := range entries {
			if s.Fact != nil {
				for _, id := range s.Fact.Supersedes {
					listed[listing{s.Room, id}] = true
				}
			}
			if s.Tombstone != nil {
				for _, id := range s.Tombstone.Targets {
					listed[listing{s.Room, id}] = true
				}
			}
		}
		m := memoryOf(entries...)
		now := noon + Millis(rapid.IntRange(0, 200).Draw(t, "now"))*day
		seen := make(map[scope]bool)
		for _, item := range m.Current(now) {
			if listed[listing{item.Room, item.ID()}] {
				t.Fatalf("%v is listed and current", item.ID())
			}
			if seen[scopeOf(item.Stored)] {
				t.Fatalf("two current entries of %+v", scopeOf(item.Stored))
			}
			seen[scopeOf(item.Stored)] = true
			for _, other := range item.Disagrees {
				if listed[listing{other.Room, other.ID()}] || other.Expired {
					t.Fatalf("disagrees with %v, which does not count", other.ID())
				}
			}
		}
	})
}

// A hook asks for what is current on every call: the answer has to be at hand.
func BenchmarkMemoryCurrent(b *testing.B) {
	m := NewMemory()
	for i := range 2000 {
		m.Add(note{kind: KindFact, name: fmt.Sprint(i), text: "x", time: noon}.stored())
	}
	for b.Loop() {
		m.Current(noon + 1)
	}
}

func BenchmarkMemoryCurrentAfterAdd(b *testing.B) {
	m := NewMemory()
	for i := range 2000 {
		m.Add(note{kind: KindFact, name: fmt.Sprint(i), text: "x", time: noon}.stored())
	}
	for i := 0; b.Loop(); i++ {
		m.Add(note{kind: KindFact, name: "again", text: "x", time: noon, salt: i}.stored())
		m.Current(noon + 1)
	}
}
