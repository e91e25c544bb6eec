package gitlog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// told are the segments that a hand would tell a relay now.
func (h *hand) told() (all [][][]byte) {
	h.crew.t.Helper()
	segments, _, err := h.Unconfirmed(context.Background(), 0)
	if err != nil {
		h.crew.t.Fatal(err)
	}
	for _, s := range segments {
		all = append(all, s.Files)
	}
	return all
}

// hears has a hand hear segments of another, which must not be refused; news is how many held what was not here.
func (h *hand) hears(of *hand, segments ...[][]byte) (news int) {
	h.crew.t.Helper()
	for _, files := range segments {
		fresh, err := h.Hear(of.device.ID, files)
		if err != nil {
			h.crew.t.Fatalf("%s hears %s: %v", h.name, of.name, err)
		}
		if fresh {
			news++
		}
	}
	return news
}

// wantWaiting compares how many heard segments wait for the host, in memory and on the disk.
func (h *hand) wantWaiting(n int) {
	h.crew.t.Helper()
	files, err := os.ReadDir(h.heardFolder())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		h.crew.t.Fatal(err)
	}
	if len(h.heard) != n || len(files) != n {
		h.crew.t.Errorf("%s: %d segments wait for the host, %d files, want %d", h.name, len(h.heard), len(files), n)
	}
}

// again closes a hand's clone and opens it anew.
func (h *hand) again() *hand {
	h.crew.t.Helper()
	if err := h.Close(); err != nil {
		h.crew.t.Fatal(err)
	}
	return h.crew.hand(h.name, h.home)
}

// A fact is there as soon as its segment was heard, over a restart too, and is one with the same segment from the host.
func TestAFactIsHeardBeforeTheHostHasIt(t *testing.T) {
	ctx := context.Background()
	c, ann, others := newCrew(t, "bob")
	bob := others[0]
	said := ann.remember("cents", "money is integer cents", "src/billing.js")
	segments := ann.told()
	if len(segments) != 1 {
		t.Fatalf("%d segments are told, want 1", len(segments))
	}
	if news := bob.hears(ann, segments...); news != 1 {
		t.Errorf("what was heard first is no news")
	}
	bob.wantFacts("cents")
	bob.wantWaiting(1)
	if news := bob.hears(ann, segments...); news != 0 {
		t.Error("what was heard before is news")
	}
	bob.wantWaiting(1)
	first := bob.entries[said.ID()].FirstSeen

	// A restart, and who only reads.
	bob = bob.again()
	bob.wantFacts("cents")
	bob.wantWaiting(1)
	reader, err := OpenClone(ctx, bob.Repo, bob.home)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if len(reader.Memory().Current(Now())) != 1 {
		t.Error("who reads without the lock does not see it")
	}
	// Nothing of it is in git, nor in what is said to have been read there.
	if _, read := bob.refs[keptRefs+strings.TrimPrefix(ann.memoryRef(), ownRefs)]; read || len(bob.unnamedTips(true)) != 0 {
		t.Error("what was heard counts as read from the host")
	}

	ann.push()
	if left := ann.told(); len(left) != 0 {
		t.Errorf("%d segments are told though the host has them", len(left))
	}
	version := bob.Memory().Version()
	report := bob.pull()
	if report.FetchedSegments != 1 || len(report.Problems) != 0 {
		t.Errorf("the fetch brought %d segments with %v", report.FetchedSegments, report.Problems)
	}
	bob.wantFacts("cents")
	bob.wantWaiting(0)
	s := bob.entries[said.ID()]
	if s.Seq != 1 || s.Generation != 1 || s.FirstSeen != first {
		t.Errorf("from git it is segment %d of generation %d, first seen %d, want 1, 1, %d", s.Seq, s.Generation, s.FirstSeen, first)
	}
	if bob.Memory().Version() == version {
		t.Error("memory does not show where it stands now")
	}
	found, err := bob.Recall(ctx, bob.tree, RecallQuery{All: true}, Now())
	if err != nil || len(found) != 1 {
		t.Errorf("recalled %+v, %v", found, err)
	}
	// The same words again, from the relay: what git has is no news.
	if news := bob.hears(ann, segments...); news != 0 {
		t.Error("what the host has is news again")
	}
	bob.wantWaiting(0)
	bob = bob.again()
	bob.wantFacts("cents")
	c.git("ann", "fsck", "--strict")
}

// A segment may come before those that stand before it in its log, or that never come by the relay.
func TestSegmentsAreHeardInAnyOrder(t *testing.T) {
	_, ann, others := newCrew(t, "bob", "eve")
	bob, eve := others[0], others[1]
	bob.pull()
	ann.remember("long", strings.Repeat("a text that is too long for the relay. ", 1000), "src/billing.js")
	ann.remember("second", "rounding happens once", "src/billing.js")
	ann.remember("third", "tax is per line", "src/billing.js")
	segments := ann.told()
	if len(segments) != 2 {
		t.Fatalf("%d segments are told, want 2: one is over %d bytes", len(segments), MaxLiveSegment)
	}
	bob.hears(ann, segments[1], segments[0])
	bob.wantFacts("second", "third")
	eve.hears(ann, segments[1])
	// What replaces it lists what was heard.
	bob.remember("third", "tax is per invoice", "src/billing.js")
	bob.push()
	ann.push()
	for _, h := range []*hand{ann, bob, eve} {
		h.pull()
		h.wantFacts("long", "second", "third")
		h.wantWaiting(0)
		for _, item := range h.Memory().Current(Now()) {
			if item.Fact.Name == "third" && (item.Fact.Text != "tax is per invoice" || len(item.Disagrees) > 0) {
				t.Errorf("%s: third is %q, disagreeing %d", h.name, item.Fact.Text, len(item.Disagrees))
			}
		}
	}
}

// What is heard is judged by the rules of what the host shows.
func TestWhatIsNotHeard(t *testing.T) {
	_, ann, others := newCrew(t, "bob", "eve")
	bob, eve := others[0], others[1]
	older := ann.Roster().Head
	ann.payRoom() // general's epoch stays
	bob.pull()
	ann.remember("kept", "the host has this", "src/billing.js")
	ann.push()
	bob.pull()
	ann.remember("cents", "money is integer cents", "src/billing.js")
	good := ann.told()[0]
	general := ann.Roster().Rooms[ann.General()]

	header := func(of *hand) Header {
		tip := of.logs[logKey{ownRefs, of.writer, MemoryLog}]
		return Header{Team: of.Roster().Team, Repository: of.settings.Repository, Writer: of.writer, Kind: MemoryLog, Generation: 1,
			Seq: tip.seq + 1, Prev: tip.digest, Roster: of.Roster().Head, Created: Now()}
	}
	forge := func(of *hand, device *Device, change func(*Header)) [][]byte {
		t.Helper()
		h := header(of)
		change(&h)
		e := factOf(of.Clone, "forged", "what nobody should read")
		e.Author = device.ID
		files, _, err := SealSegment(h, map[RoomID]Part{general.ID: {general.Current(), []*Entry{e}}}, device, true)
		if err != nil {
			t.Fatal(err)
		}
		return [][]byte{files[general.ID]}
	}
	flipped := slices.Clone(good[0])
	flipped[len(flipped)-1] ^= 1
	stranger := newDevice(t)
	var strange WriterID
	copy(strange[:], stranger.ID[:])

	for what, each := range map[string]struct {
		device DeviceID
		files  [][]byte
		want   error // nil: any
	}{
		"nothing":                          {ann.device.ID, nil, errRooms},
		"garbage":                          {ann.device.ID, [][]byte{[]byte("garbage")}, nil},
		"one file twice":                   {ann.device.ID, [][]byte{good[0], good[0]}, errRooms},
		"a changed signature":              {ann.device.ID, [][]byte{flipped}, errSignature},
		"sent by another device":           {eve.device.ID, good, errKeyID},
		"more than 32 KiB":                 {ann.device.ID, [][]byte{good[0], make([]byte, MaxLiveSegment)}, errTooLarge},
		"a device that nobody let in":      {stranger.ID, forge(ann, stranger, func(h *Header) { h.Writer = strange; h.Prev = Digest{}; h.Seq = 1 }), nil},
		"another repository":               {ann.device.ID, forge(ann, ann.device, func(h *Header) { h.Repository[0]++ }), errFields},
		"another team":                     {ann.device.ID, forge(ann, ann.device, func(h *Header) { h.Team[0]++ }), errNotAdmitted},
		"of the audit log":                 {ann.device.ID, forge(ann, ann.device, func(h *Header) { h.Kind = AuditLog }), errFields},
		"after another segment":            {ann.device.ID, forge(ann, ann.device, func(h *Header) { h.Seq--; h.Prev[0]++ }), nil},
		"by an older state of the team":    {ann.device.ID, forge(ann, ann.device, func(h *Header) { h.Roster = older }), nil},
		"by a state that nobody has shown": {ann.device.ID, forge(ann, ann.device, func(h *Header) { h.Roster.Seq += 5 }), ErrRosterBehind},
	} {
		t.Run(what, func(t *testing.T) {
			news, err := bob.Hear(each.device, each.files)
			if news || err == nil || each.want != nil && !errors.Is(err, each.want) {
				t.Errorf("%t, %v, want %v", news, err, each.want)
			}
			bob.wantFacts("kept")
			bob.wantWaiting(0)
		})
	}

	// One that takes the place of what the host has shown already changes nothing.
	if news, err := bob.Hear(ann.device.ID, forge(ann, ann.device, func(h *Header) { h.Seq, h.Prev = 1, Digest{} })); news || err != nil {
		t.Errorf("a segment for a place that is taken: %t, %v", news, err)
	}
	bob.wantFacts("kept")
	// A removed device is not heard, from no place of its log, whatever it claims to go by.
	eve.remember("before", "eve knew this", "src/billing.js")
	eve.remember("then", "and this", "src/billing.js")
	eve.push()
	bob.pull()
	early := forge(eve, eve.device, func(*Header) {})
	ann.change(func(change *RosterChange) error { return change.RemoveMember("eve@example.com", 0) })
	bob.pull()
	for what, files := range map[string][][]byte{"past the cut": early, "before it": forge(eve, eve.device, func(h *Header) { h.Seq = 1; h.Prev = Digest{} })} {
		if news, err := bob.Hear(eve.device.ID, files); news || !errors.Is(err, errNotAdmitted) {
			t.Errorf("a removed device, %s: %t, %v", what, news, err)
		}
	}
	bob.wantFacts("before", "kept", "then")
	if news := bob.hears(ann, good); news != 1 {
		t.Error("the good one is not heard any more")
	}
}

// A segment is told to those in its room alone; who is removed after it was heard is not heard any more; what was sealed to an
// epoch that ended goes by git, once.
func TestWhatWasHeardFollowsTheTeam(t *testing.T) {
	_, ann, others := newCrew(t, "bob", "eve")
	bob, eve := others[0], others[1]
	ann.payRoom("bob@example.com")
	bob.pull()
	eve.pull()
	ann.remember("cards", "cards are charged in cents", "src/pay/card.js")
	ann.remember("tax", "tax is rounded once", "src/billing.js")
	if news := bob.hears(ann, ann.told()...); news != 2 {
		t.Errorf("bob, who is in the room, hears %d", news)
	}
	if news := eve.hears(ann, ann.told()...); news != 1 {
		t.Errorf("eve, who is not, hears %d", news)
	}
	eve.wantFacts("tax")

	eve.remember("late", "eve says this as she goes", "src/billing.js")
	bob.hears(eve, eve.told()...)
	bob.wantFacts("cards", "late", "tax")
	ann.change(func(change *RosterChange) error { return change.RemoveMember("eve@example.com", 0) })
	bob.pull()
	bob.wantFacts("cards", "tax")
	bob.wantWaiting(2)
	if waiting := ann.told(); len(waiting) != 1 {
		t.Errorf("%d segments are told, want that of the room whose epoch goes on alone", len(waiting))
	}
	// Who is out of a room is not heard in it, though they went by the team before.
	bob.remember("fees", "fees are in cents too", "src/pay/card.js")
	lost := bob.told()
	ann.change(func(change *RosterChange) error { return change.Revoke("pay", "bob@example.com", 0) })
	if news := ann.hears(bob, lost...); news != 0 {
		t.Error("ann hears bob in a room that he has lost")
	}
	ann.change(func(change *RosterChange) error { return change.Grant("pay", "bob@example.com") })
	bob.pull()
	ann.push() // sealed again: the same entries in other segments
	bob.pull()
	bob.wantFacts("cards", "tax") // what he wrote there when he was out of it does not count
	bob.wantWaiting(0)
	if len(bob.Memory().All(Now())) != 2 {
		t.Errorf("memory holds %d entries", len(bob.Memory().All(Now())))
	}
}

// What the host never brings ends like any entry, and no device fills another's disk.
func TestWhatTheHostNeverBrings(t *testing.T) {
	_, ann, others := newCrew(t, "bob")
	bob := others[0]
	ann.remember("cents", "money is integer cents", "src/billing.js")
	bob.hears(ann, ann.told()...)
	entry, key := factOf(ann.Clone, "many", "one of many"), ann.Roster().Rooms[ann.General()]
	for n := range uint64(maxHeard) {
		h := Header{Team: ann.Roster().Team, Repository: ann.settings.Repository, Writer: ann.writer, Kind: MemoryLog, Generation: 1, Seq: n + 2,
			Prev: Digest{1}, Roster: ann.Roster().Head, Created: Now()}
		files, _, err := SealSegment(h, map[RoomID]Part{key.ID: {key.Current(), []*Entry{entry}}}, ann.device, true)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := bob.Hear(ann.device.ID, [][]byte{files[key.ID]}); (err != nil) != (n == maxHeard-1) {
			t.Fatalf("segment %d: %v", n+2, err)
		}
	}
	bob.wantFacts("cents", "many")
	bob.wantWaiting(maxHeard)
	// Damage on the disk, and what does not belong there.
	write(t, filepath.Join(bob.heardFolder(), strings.Repeat("ab", 32)), "damaged")
	write(t, filepath.Join(bob.heardFolder(), ".left-over"), "x")
	bob = bob.again()
	bob.wantFacts("cents", "many")
	bob.wantWaiting(maxHeard)

	bob.now = func() time.Time { return time.Now().Add(91 * 24 * time.Hour) }
	bob.wantFacts()
	if err := bob.Refresh(context.Background()); err != nil {
		t.Fatal(err)
	}
	bob.remember("news", "something else", "src/billing.js") // whatever moves a log
	bob.wantWaiting(0)
	bob.wantFacts("news")
}

// Whatever was heard, fetched, forgotten and started anew in between, both have the same in the end, once, and nothing that was heard
// is gone meanwhile.
func TestHeardAndFetchedInAnyOrder(t *testing.T) {
	_, ann, others := newCrew(t, "bob")
	bob := others[0]
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	draw := rand.New(rand.NewPCG(seed, 1))
	names := []string{"cents", "rounding", "tax", "cart"}
	var told [][][]byte
	heard := map[EntryID]bool{}
	for step := range 60 {
		name := names[draw.IntN(len(names))]
		switch draw.IntN(9) {
		case 0, 1:
			ann.remember(name, fmt.Sprintf("ann says %d of it at step %d", step*step, step))
		case 2:
			_, err := ann.Forget(context.Background(), ann.tree, ForgetRequest{Name: name, Author: byPerson})
			var refused *Refusal
			if err != nil && !errors.As(err, &refused) {
				t.Fatal(err)
			}
		case 3:
			bob.remember(name, fmt.Sprintf("bob says %d of it at step %d", step+step, step))
		case 4, 5:
			told = append(told, ann.told()...)
			for range min(3, len(told)) {
				bob.hears(ann, told[draw.IntN(len(told))])
			}
			for _, h := range bob.heard {
				for _, id := range h.ids {
					heard[id] = true
				}
			}
		case 6:
			ann.push()
		case 7:
			bob.pull()
		case 8:
			bob = bob.again()
		}
		for id := range heard {
			if bob.entries[id] == nil {
				t.Fatalf("step %d: entry %s was heard and is gone", step, id)
			}
		}
	}
	for _, h := range []*hand{ann, bob, ann, bob} {
		h.sync(SyncOptions{Fetch: true, Push: true})
	}
	bob.wantWaiting(0)
	rows := func(h *hand) (rows []string) {
		for _, item := range h.Memory().All(MillisOf(h.now())) {
			rows = append(rows, fmt.Sprintf("%s %s %t %t %t in %d", item.ID(), item.Fact.Text, item.Current, item.SupersededBy != nil, item.Forgotten, item.Seq))
		}
		slices.Sort(rows)
		return rows
	}
	if a, b := rows(ann), rows(bob); !slices.Equal(a, b) {
		t.Errorf("ann has\n%s\nbob has\n%s", strings.Join(a, "\n"), strings.Join(b, "\n"))
	}
}
