package gitlog

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"testing"

	"filippo.io/age"
)

func TestFound(t *testing.T) {
	x := newFixture(t)
	r := x.roster
	if r.Head.Seq != 0 || r.Head.Hash != Digest(x.team) || r.Sealable() != nil {
		t.Errorf("head %+v, sealable %v", r.Head, r.Sealable())
	}
	d := r.Devices[x.device.ID]
	if d == nil || d.Label != "laptop" || d.Recipient != x.device.Age.Recipient().String() {
		t.Fatalf("device %+v", d)
	}
	m := r.Members[d.Member]
	if m == nil || m.Name != "Ash" || m.Address != "ash@example.org" || !m.Admin {
		t.Errorf("member %+v", m)
	}
	if !r.Repositories[x.repository] || len(r.Repositories) != 1 {
		t.Errorf("repositories %v", r.Repositories)
	}
	if general := r.Rooms[r.General]; general == nil || len(general.Epochs) != 1 || general.Current().Number != 1 {
		t.Errorf("general %+v", general)
	}
}

// A chain that this version cannot follow stays good for reading, and is never extended.
func TestRosterStops(t *testing.T) {
	device := newDevice(t)
	genesis, _ := forgeGenesis(t, device, nil)
	team := TeamID(sha256.Sum256(genesis.Entry))
	draft := &rosterDraft{seq: 1, prev: Digest(team), time: 1_800_000_000_000, operations: []any{[]any{uint64(19), intMap{2: id16(1)}}}}
	later, err := draft.sign(device)
	if err != nil {
		t.Fatal(err)
	}
	r, err := VerifyRoster(team, []RosterCommit{genesis, later})
	if err != nil || !errors.Is(r.Newer, ErrNewer) || !errors.Is(r.Sealable(), ErrNewer) || r.Head.Hash != Digest(team) {
		t.Fatalf("%v, newer %v, head %+v", err, r.Newer, r.Head)
	}
	if ring, err := r.OpenEpochs(device); err != nil || len(ring) != 1 {
		t.Errorf("%d epochs opened: %v", len(ring), err)
	}
	if _, err := r.Extend(later); !errors.Is(err, ErrNewer) {
		t.Errorf("extended: %v", err)
	}
	before, err := VerifyRoster(team, []RosterCommit{genesis})
	if err != nil {
		t.Fatal(err)
	}
	if after, err := before.Extend(later); err != nil || before.Newer != nil || after.Newer == nil {
		t.Errorf("%v: extending changed the state before, or did not stop", err)
	}
}

// What the roster says about a segment, in the state that its writer went by.
func TestAdmits(t *testing.T) {
	x := newFixture(t)
	general := x.roster.General
	for name, c := range map[string]struct {
		change func(h *Header)
		want   error
	}{
		"as it should be":    {func(h *Header) {}, nil},
		"another team":       {func(h *Header) { h.Team[0] ^= 1 }, errNotAdmitted},
		"another repository": {func(h *Header) { h.Repository[0] ^= 1 }, errNotAdmitted},
		"a later head":       {func(h *Header) { h.Roster.Seq = 1 }, ErrRosterBehind},
		"another head":       {func(h *Header) { h.Roster.Hash[0] ^= 1 }, ErrRosterBehind},
		"a device of nobody": {func(h *Header) { h.Writer[0] ^= 1 }, errNotAdmitted},
		"a room of nobody":   {func(h *Header) { h.Room[0] ^= 1 }, errNotAdmitted},
		"a later epoch":      {func(h *Header) { h.Epoch = 2 }, errNotAdmitted},
	} {
		h := x.header()
		h.Room, h.Epoch = general, 1
		c.change(&h)
		if err := x.roster.Admits(&Segment{Files: []*SegmentFile{{Header: &h}}}); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// A new member gets the current epoch's key and reads what came before through links.
func TestOpenEpochsThroughLinks(t *testing.T) {
	x := newFixture(t)
	room := x.roster.Rooms[x.roster.General]
	keys := []*EpochKey{x.ring[room.Epochs[0].RoomEpoch]}
	for n := uint64(2); n <= 3; n++ {
		identity, err := age.GenerateHybridIdentity()
		if err != nil {
			t.Fatal(err)
		}
		key := newEpochKey(RoomEpoch{room.ID, n}, identity)
		room.Epochs = append(room.Epochs, &Epoch{RoomEpoch: key.RoomEpoch, Recipient: identity.Recipient().String()})
		link, err := sealKeyFile(x.roster.nonce, keys[len(keys)-1], identity.Recipient())
		if err != nil {
			t.Fatal(err)
		}
		x.roster.links[key.RoomEpoch] = link
		keys = append(keys, key)
	}
	newcomer := newDevice(t)
	file, err := sealKeyFile(x.roster.nonce, keys[2], newcomer.Age.Recipient())
	if err != nil {
		t.Fatal(err)
	}
	x.roster.keyFiles[keyFileName{keys[2].RoomEpoch, newcomer.ID}] = file
	ring, err := x.roster.OpenEpochs(newcomer)
	if err != nil || len(ring) != 3 {
		t.Fatalf("%d epochs opened, want 3: %v", len(ring), err)
	}
	for _, key := range keys {
		if got := ring[key.RoomEpoch].text; got != key.text {
			t.Errorf("epoch %d: another identity", key.Number)
		}
	}

	// A link that holds another epoch than the one before is refused, and what is later stays open.
	if x.roster.links[keys[1].RoomEpoch], err = sealKeyFile(x.roster.nonce, keys[1], keys[1].read.Load().Recipient()); err != nil {
		t.Fatal(err)
	}
	if ring, err := x.roster.OpenEpochs(newcomer); !errors.Is(err, errMoved) || len(ring) != 2 {
		t.Errorf("%d epochs opened: %v, want 2 and %v", len(ring), err, errMoved)
	}
}

// The seeds come from the vectors: fuzzing runs in several processes, and keys drawn anew would differ between them.
func FuzzRosterEntry(f *testing.F) {
	var genesis *Roster
	var files map[string][]byte
	signed := map[string]bool{}
	for _, v := range readVectors[[]rosterVector](f, "roster.json") {
		for _, c := range v.Chain {
			if len(c.Entry) < 32<<10 {
				f.Add([]byte(c.Entry))
			}
			signed[string(c.Entry)] = true
		}
		if v.Name == "then version 2" {
			files = map[string][]byte{}
			for name, data := range v.Chain[0].Files {
				files[name] = data
			}
			var err error
			if genesis, err = VerifyRoster(TeamID(v.Team), []RosterCommit{{v.Chain[0].Entry, files}}); err != nil {
				f.Fatal(err)
			}
		}
	}
	f.Fuzz(func(t *testing.T, entry []byte) {
		if e, err := parseRosterEntry(entry); err == nil {
			again := object(18, e.signed.protected, intMap{}, e.signed.payload, e.signed.signature)
			if !bytes.Equal(again, entry) {
				t.Errorf("%x taken apart and put together is %x", entry, again)
			}
		}
		if r, err := genesis.Extend(RosterCommit{Entry: entry}); err == nil && !signed[string(entry)] {
			t.Errorf("%x extends the chain to %+v (%v) and was never signed", entry, r.Head, r.Newer)
		}
		_, _ = VerifyRoster(TeamID(sha256.Sum256(entry)), []RosterCommit{{entry, files}})
	})
}
