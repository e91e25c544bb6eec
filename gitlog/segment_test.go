package gitlog

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"filippo.io/age"
	"pgregory.net/rapid"
)

// fixture is a team of one device, made anew: what its keys are does not matter to the tests that use it.
type fixture struct {
	device     *Device
	team       TeamID
	repository RepositoryID
	roster     *Roster
	ring       Keyring
	writer     WriterID
}

func newDevice(t testing.TB) *Device {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	identity, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}
	return &Device{ID: DeviceIDOf(public), Sign: private, Age: identity}
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	x := &fixture{device: newDevice(t), repository: RepositoryID{1, 2, 3}}
	team, commit, err := Found(x.device, Founding{
		Name: "Ash", Address: "ash@example.org", Label: "laptop", Repository: x.repository, Now: 1_700_000_000_000,
		Random: rand.Reader,
	})
	if err != nil {
		t.Fatal(err)
	}
	if x.roster, err = VerifyRoster(team, []RosterCommit{commit}); err != nil {
		t.Fatal(err)
	}
	if x.ring, err = x.roster.OpenEpochs(x.device); err != nil {
		t.Fatal(err)
	}
	if err := x.roster.ReadNames(x.ring); err != nil {
		t.Fatal(err)
	}
	x.team = team
	copy(x.writer[:], x.device.ID[:])
	x.writer[23] = 1
	return x
}

func (x *fixture) header() Header {
	return Header{
		Team: x.team, Repository: x.repository, Writer: x.writer, Kind: MemoryLog, Generation: 1, Seq: 1,
		Roster: x.roster.Head, Created: 1_700_000_001_000,
	}
}

func (x *fixture) fact(name string) *Entry {
	e := &Entry{Kind: KindFact, Time: 1_700_000_001_000, Author: x.device.ID, Fact: &Fact{
		Name: name, Text: "Retries are the caller's business.", Depth: 1, By: ByAgent, Session: "claude:s1",
		Paths: []FactPath{{Path: "src/billing.js", Blob: make([]byte, 20)}, {Path: "a.js"}},
	}}
	drawRandom(e.Nonce[:])
	return e
}

func TestSegmentRoundTrip(t *testing.T) {
	x := newFixture(t)
	general := x.roster.Rooms[x.roster.General]
	if got := x.roster.Members; len(got) != 1 || general.Name != "general" {
		t.Fatalf("members %v, general %q", got, general.Name)
	}
	want := []*Entry{x.fact("retries"), x.fact("timeouts")}
	files, sealed, err := SealSegment(x.header(), map[RoomID]Part{general.ID: {general.Current(), want}}, x.device, true)
	if err != nil {
		t.Fatal(err)
	}
	s, err := ParseSegment(files, true)
	if err != nil {
		t.Fatal(err)
	}
	if s.Digest != sealed.Digest {
		t.Errorf("digest %s, sealed %s", s.Digest, sealed.Digest)
	}
	if err := s.Verify(x.roster.DeviceKey(s.Header().Writer.Device())); err != nil {
		t.Fatal(err)
	}
	if err := x.roster.Admits(s); err != nil {
		t.Fatal(err)
	}
	got, err := s.Files[0].Open(x.ring[RoomEpoch{general.ID, 1}])
	if err != nil {
		t.Fatal(err)
	}
	for i := range want {
		if got[i].ID() != want[i].ID() || got[i].Fact.Name != want[i].Fact.Name {
			t.Errorf("entry %d: %+v, want %+v", i, got[i], want[i])
		}
	}
}

// The protected header and the signature, put together byte by byte from RFC 9052 and the grammar.
func TestSegmentByHand(t *testing.T) {
	x := newFixture(t)
	general := x.roster.Rooms[x.roster.General]
	files, s, err := SealSegment(x.header(), map[RoomID]Part{general.ID: {Epoch: general.Current()}}, x.device, true)
	if err != nil {
		t.Fatal(err)
	}
	protected := slices.Concat(
		[]byte{0xa4, 0x01, 0x27, 0x03, 0x6f}, []byte("application/age"), []byte{0x04, 0x50}, x.device.ID[:],
		[]byte{0x65}, []byte("knoot"), []byte{0xad, 0x01, 0x01, 0x02, 0x58, 0x20}, x.team[:], // 13 pairs
		[]byte{0x03, 0x50}, x.repository[:], []byte{0x04, 0x58, 0x18}, x.writer[:],
		[]byte{0x05, 0x01, 0x06, 0x01, 0x07, 0x01, 0x08, 0x48}, general.ID[:], []byte{0x09, 0x01},
		[]byte{0x0a, 0x82, 0x00, 0x58, 0x20}, x.team[:], // the roster's head is genesis, whose hash is the team
		[]byte{0x0b, 0x00, 0x0c, 0x1b}, unhex(t, "0000018bcfe56be8"), []byte{0x0e, 0x81, 0x48}, general.ID[:],
	)
	if got := s.Files[0].signed.protected; !bytes.Equal(got, protected) {
		t.Fatalf("protected header\n%x, want\n%x", got, protected)
	}
	payload := s.Files[0].signed.payload
	toBeSigned := slices.Concat(
		[]byte{0x84, 0x6a}, []byte("Signature1"), []byte{0x58, byte(len(protected))}, protected,
		[]byte{0x4f}, []byte("knoot/segment/1"), []byte{0x59, byte(len(payload) >> 8), byte(len(payload))}, payload,
	)
	signature := ed25519.Sign(x.device.Sign, toBeSigned)
	file := slices.Concat([]byte{0xd2, 0x84, 0x58, byte(len(protected))}, protected, []byte{0xa0, 0x59, byte(len(payload) >> 8), byte(len(payload))},
		payload, []byte{0x58, 0x40}, signature)
	if len(protected) < 256 && !bytes.Equal(files[general.ID], file) {
		t.Errorf("file\n%x, want\n%x", files[general.ID], file)
	}
	inner := sha256.Sum256(files[general.ID])
	if outer := sha256.Sum256(inner[:]); s.Digest != outer {
		t.Errorf("digest %s, want %x", s.Digest, outer)
	}
}

func drawHeader(t *rapid.T) *Header {
	counter := rapid.Uint64Min(1)
	h := &Header{
		Version: 1, Team: TeamID(drawBytes(t, "team", 32)), Repository: RepositoryID(drawBytes(t, "repository", 16)),
		Writer: WriterID(drawBytes(t, "writer", 24)), Kind: rapid.SampledFrom([]LogKind{MemoryLog, AuditLog}).Draw(t, "kind"),
		Generation: counter.Draw(t, "generation"), Seq: rapid.Uint64Range(1, 3).Draw(t, "seq"), Epoch: counter.Draw(t, "epoch"),
		Roster:  RosterHead{rapid.Uint64().Draw(t, "head"), Digest(drawBytes(t, "hash", 32))},
		Count:   rapid.Uint64Max(maxEntries).Draw(t, "count"),
		Created: Millis(rapid.Uint64Max(maxMillis).Draw(t, "created")),
	}
	if h.Seq > 1 {
		h.Prev = Digest(drawBytes(t, "prev", 32))
	}
	h.Rooms = rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) RoomID { return RoomID(drawBytes(t, "room", 8)) }), 1, 4, rapid.ID).Draw(t, "rooms")
	slices.SortFunc(h.Rooms, func(a, b RoomID) int { return bytes.Compare(a[:], b[:]) })
	h.Room = rapid.SampledFrom(h.Rooms).Draw(t, "room")
	if h.Room == h.Rooms[0] {
		for range rapid.IntRange(0, 3).Draw(t, "tips") {
			h.Seen = append(h.Seen, Tip{WriterID(drawBytes(t, "tip", 24)), LogKind(rapid.Uint64Min(1).Draw(t, "kind")), counter.Draw(t, "gen"), counter.Draw(t, "seq"), Digest(drawBytes(t, "segment", 32))})
		}
	}
	if rapid.Bool().Draw(t, "checkpoint") {
		total := rapid.Uint64Range(1, 99).Draw(t, "total")
		h.Checkpoint = &Checkpoint{rapid.Uint64Range(1, total).Draw(t, "index"), total}
	}
	return h
}

func TestHeaderRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := drawHeader(t)
		v, err := decodeStrict(encodeCBOR(h.encode()))
		if err != nil {
			t.Fatal(err)
		}
		back, err := readHeader(v)
		if err != nil || !reflect.DeepEqual(back, h) {
			t.Fatalf("%+v became %+v (%v)", h, back, err)
		}
	})
}

// Entries and rooms of any number come back from a segment as they went in.
func TestSegmentsRoundTrip(t *testing.T) {
	x := newFixture(t)
	second, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}
	other := RoomEpoch{RoomID{9}, 7}
	x.ring[other] = newEpochKey(other, second)
	epochs := []*Epoch{
		x.roster.Rooms[x.roster.General].Current(),
		{RoomEpoch: other, Recipient: second.Recipient().String(), recipient: second.Recipient()},
	}
	rapid.Check(t, func(t *rapid.T) {
		h := x.header()
		parts := map[RoomID]Part{}
		for _, epoch := range epochs[rapid.IntRange(0, 1).Draw(t, "from"):] {
			part := Part{Epoch: epoch}
			for range rapid.IntRange(0, 3).Draw(t, "entries") {
				e := drawEntry(t)
				e.Author = x.device.ID
				part.Entries = append(part.Entries, e)
			}
			parts[epoch.Room] = part
		}
		h.Seen = []Tip{{WriterID{1}, AuditLog, 1, 1, Digest{}}}
		files, sealed, err := SealSegment(h, parts, x.device, true)
		if err != nil {
			t.Fatal(err)
		}
		s, err := ParseSegment(files, true)
		if err != nil || s.Verify(x.roster.DeviceKey(x.device.ID)) != nil || s.Digest != sealed.Digest {
			t.Fatal(err, s.Digest, sealed.Digest)
		}
		if len(s.Header().Seen) != 1 {
			t.Fatal("the first room's file lacks what was seen")
		}
		for room, part := range parts {
			got, err := s.File(room).Open(x.ring[part.Epoch.RoomEpoch])
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != len(part.Entries) {
				t.Fatalf("%d entries, want %d", len(got), len(part.Entries))
			}
			for i := range got {
				if !reflect.DeepEqual(got[i], part.Entries[i]) {
					t.Fatalf("%+v became %+v", part.Entries[i], got[i])
				}
			}
		}
	})
}

// Whichever bit of a file flips, nobody takes it for what was signed.
func TestSegmentBitFlips(t *testing.T) {
	x := newFixture(t)
	general := x.roster.General
	h := x.header()
	h.Room, h.Rooms, h.Epoch = general, []RoomID{general}, 1
	file := x.forge(t, h, []*Entry{x.fact("retries")}, func(f *forgery) { f.header[64] = "kept" })
	public := x.roster.DeviceKey(x.device.ID)
	for i := range file {
		for bit := range 8 {
			if bit != i%8 && i > 64 { // every bit of the beginning, one bit a byte of the rest
				continue
			}
			file[i] ^= 1 << bit
			if s, err := ParseSegment(map[RoomID][]byte{general: file}, true); err == nil && s.Verify(public) == nil {
				t.Errorf("byte %d, bit %d: still verifies", i, bit)
			}
			file[i] ^= 1 << bit
		}
	}
	if s, err := ParseSegment(map[RoomID][]byte{general: file}, true); err != nil || s.Verify(public) != nil {
		t.Errorf("the file itself does not verify: %v", err)
	}
}

// What cannot be read is not written either.
func TestSealSegmentRefuses(t *testing.T) {
	x := newFixture(t)
	epoch := x.roster.Rooms[x.roster.General].Current()
	seal := func(h Header, first bool, entries ...*Entry) error {
		_, _, err := SealSegment(h, map[RoomID]Part{epoch.Room: {epoch, entries}}, x.device, first)
		return err
	}
	foreign := x.fact("retries")
	foreign.Author[0] ^= 1
	if err := seal(x.header(), true, foreign); !errors.Is(err, errAuthor) {
		t.Errorf("another's entry: %v", err)
	}
	h := x.header()
	h.Writer[0] ^= 1
	if err := seal(h, true); !errors.Is(err, errKeyID) {
		t.Errorf("another's writer: %v", err)
	}
	h = x.header()
	for i := range maxSeen + 1 {
		h.Seen = append(h.Seen, Tip{WriterID{byte(i >> 8), byte(i)}, MemoryLog, 1, 1, Digest{}})
	}
	if err := seal(h, false); !errors.Is(err, errTooLarge) {
		t.Errorf("257 tips: %v", err)
	}
	if err := seal(h, true); err != nil {
		t.Errorf("257 tips at a generation's start: %v", err)
	}
	var large []*Entry
	for range 20 {
		e := x.fact("retries")
		e.Fact.Text = strings.Repeat("x", 60<<10)
		large = append(large, e)
	}
	if err := seal(x.header(), true, large...); !errors.Is(err, errTooLarge) {
		t.Errorf("1.2 MB: %v", err)
	}
	if _, _, err := SealSegment(x.header(), nil, x.device, true); !errors.Is(err, errRooms) {
		t.Errorf("no room: %v", err)
	}
}

func FuzzParseSegmentFile(f *testing.F) {
	var public ed25519.PublicKey
	var key *EpochKey
	signed := map[string]bool{}
	for _, v := range readVectors[[]segmentVector](f, "segment.json") {
		for _, data := range v.Files {
			if len(data) < 16<<10 {
				f.Add([]byte(data), v.First)
			}
			signed[string(data)] = true
		}
		if v.Name == "one room" {
			public, key = ed25519.PublicKey(v.Key), v.Open[0].key(f)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, first bool) {
		file, err := ParseSegmentFile(data, first)
		if err != nil {
			return
		}
		again := object(18, file.signed.protected, intMap{}, file.signed.payload, file.signed.signature)
		if !bytes.Equal(again, data) {
			t.Errorf("%x taken apart and put together is %x", data, again)
		}
		if file.Verify(public) == nil && !signed[string(data)] {
			t.Errorf("%x verifies and was never signed", data)
		}
		_, _ = file.Open(key)
	})
}

// Sealing costs about 0.35 ms a file, whatever is in it: hence 64 entries in a segment of the audit log.
func BenchmarkSealSegment(b *testing.B) {
	for name, n := range map[string]int{"1": 1, "64": 64} {
		b.Run(name, func(b *testing.B) {
			x := newFixture(b)
			epoch := x.roster.Rooms[x.roster.General].Current()
			for b.Loop() {
				b.StopTimer()
				entries := make([]*Entry, n)
				for i := range entries {
					entries[i] = x.fact("retries")
				}
				b.StartTimer()
				if _, _, err := SealSegment(x.header(), map[RoomID]Part{epoch.Room: {epoch, entries}}, x.device, true); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// 100,000 entries in segments of 64 are 1,563 of these, parsed, verified and opened in about a second.
func BenchmarkOpenSegment(b *testing.B) {
	for name, n := range map[string]int{"1": 1, "64": 64} {
		b.Run(name, func(b *testing.B) {
			x := newFixture(b)
			epoch := x.roster.Rooms[x.roster.General].Current()
			entries := make([]*Entry, n)
			for i := range entries {
				entries[i] = x.fact("retries")
			}
			files, _, err := SealSegment(x.header(), map[RoomID]Part{epoch.Room: {epoch, entries}}, x.device, true)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				s, err := ParseSegment(files, true)
				if err == nil {
					err = s.Verify(x.roster.DeviceKey(x.device.ID))
				}
				if err == nil {
					_, err = s.Files[0].Open(x.ring[epoch.RoomEpoch])
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
