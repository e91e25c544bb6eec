package gitlog

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/cryptotest"

	"filippo.io/age"
	"github.com/fxamacker/cbor/v2"
	"golang.org/x/crypto/chacha20poly1305"
)

// TestMakeVectors writes the vectors that are not there yet. Each states its outcome here, by hand; that this package
// agrees is for vectors_test.go to say. Keys come from fixed seeds, so that with the same versions of Go and age the
// bytes are the same too.
func TestMakeVectors(t *testing.T) {
	if !*update {
		t.Skip("only with -update")
	}
	cryptotest.SetGlobalRandom(t, 1)
	x := newFixture(t)

	addVectors(t, "cbor.json", makeCBORVectors(t), func(v cborVector) string { return v.Name })
	addVectors(t, "path.json", makePathVectors(), func(v pathVector) string { return v.Name })
	addVectors(t, "keys.json", makeKeyVectors(t, x), func(v keyVector) string { return v.Name })
	addVectors(t, "segment.json", makeSegmentVectors(t, x), func(v segmentVector) string { return v.Name })
	addVectors(t, "roster.json", makeRosterVectors(t), func(v rosterVector) string { return v.Name })

	addVectors(t, "roster.json", makeTeamVectors(t), func(v rosterVector) string { return v.Name })
	addVectors(t, "request.json", makeRequestVectors(t), func(v requestVector) string { return v.Name })
	addVectors(t, "live.json", makeLiveVectors(t, x), func(v liveVector) string { return v.Name })
	addVectors(t, "grant.json", makeGrantVectors(t, x), func(v grantVector) string { return v.Name })

	file := entryVectors{Team: bytes.Repeat([]byte{0x11}, 32), Repository: bytes.Repeat([]byte{0x22}, 16)}
	if data, err := os.ReadFile(filepath.Join(vectorFolder, "entry.json")); err == nil {
		if err := json.Unmarshal(data, &file); err != nil {
			t.Fatal(err)
		}
	}
	file.Vectors = merged(file.Vectors, makeEntryVectors(t, TeamID(file.Team), RepositoryID(file.Repository)),
		func(v entryVector) string { return v.Name })
	writeVectors(t, "entry.json", file)
}

func merged[T any](old, made []T, name func(T) string) []T {
	for _, v := range made {
		if !slices.ContainsFunc(old, func(o T) bool { return name(o) == name(v) }) {
			old = append(old, v)
		}
	}
	return old
}

func addVectors[T any](t *testing.T, file string, made []T, name func(T) string) {
	var old []T
	data, err := os.ReadFile(filepath.Join(vectorFolder, file))
	if err == nil {
		err = json.Unmarshal(data, &old)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	writeVectors(t, file, merged(old, made, name))
}

func writeVectors(t *testing.T, file string, v any) {
	data, err := json.MarshalIndent(v, "", "  ")
	if err == nil {
		err = os.WriteFile(filepath.Join(vectorFolder, file), append(data, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func makeCBORVectors(t *testing.T) []cborVector {
	var vectors []cborVector
	for _, v := range []struct{ name, hex, fault string }{
		{"map", "a201020340", ""},
		{"depth 8", "8181818181818180", ""},
		{"text", "63e282ac", ""},
		{"true", "f5", ""},
		{"empty", "", "syntax"},
		{"truncated", "8201", "syntax"},
		{"reserved head", "1c", "syntax"},
		{"two items", "0101", "trailing"},
		{"integer longer than needed", "1817", "not-deterministic"},
		{"length longer than needed", "5801ff", "not-deterministic"},
		{"array head longer than needed", "980101", "not-deterministic"},
		{"map keys out of order", "a203010102", "not-deterministic"},
		{"float longer than needed", "fb3ff8000000000000", "not-deterministic"},
		{"duplicate key", "a201020103", "duplicate-key"},
		{"indefinite array", "9f01ff", "indefinite-length"},
		{"indefinite map", "bf0102ff", "indefinite-length"},
		{"indefinite bytes", "5f41ff41ffff", "indefinite-length"},
		{"null", "f6", "null"},
		{"null in a map", "a101f6", "null"},
		{"undefined", "f7", "null"},
		{"tag 0", "c06161", "tag"},
		{"tag 1", "c11a514b67b0", "tag"},
		{"tag 18 inside", "81d280", "tag"},
		{"bignum", "c249010000000000000000", "tag"},
		{"simple value", "e0", "type"},
		{"depth 9", "818181818181818180", "depth"},
		{"text not UTF-8", "62c328", "utf-8"},
		{"key not UTF-8", "a161ff01", "utf-8"},
		{"array as key", "a18001", "type"},
		{"true as key", "a1f501", "type"},
	} {
		vectors = append(vectors, cborVector{v.name, unhex(t, v.hex), v.fault})
	}
	long := append([]byte{0x99, 0x40, 0x01}, make([]byte, 16_385)...)
	return append(vectors, cborVector{"array of 16,385", long, "too-large"})
}

func makePathVectors() []pathVector {
	var vectors []pathVector
	for _, v := range []struct{ name, path, canonical, folded, fault string }{
		{"root", "", "", "", ""},
		{"plain", "src/auth.js", "src/auth.js", "src/auth.js", ""},
		{"case", "Src/Makefile", "Src/Makefile", "src/makefile", ""},
		{"NFD becomes NFC", "cafe\u0301", "caf\u00e9", "caf\u00e9", ""},
		{"only A to Z fold", "\u00c9A", "\u00c9A", "\u00c9a", ""},
		{"not UTF-8 stays", "caf\xe9/cafe\xcc\x81", "caf\xe9/cafe\xcc\x81", "caf\xe9/cafe\xcc\x81", ""},
		{"backslash is a name's", "a\\b", "a\\b", "a\\b", ""},
		{"leading slash", "/a", "", "", "value"},
		{"trailing slash", "a/", "", "", "value"},
		{"empty component", "a//b", "", "", "value"},
		{"dot", "./a", "", "", "value"},
		{"dot dot", "a/../b", "", "", "value"},
		{"NUL", "a\x00", "", "", "value"},
	} {
		vectors = append(vectors, pathVector{v.name, hexBytes(v.path), hexBytes(v.canonical), hexBytes(v.folded), v.fault})
	}
	return vectors
}

// anEntry is {1: 1, 2: 1700000000000, 3: nonce, 4: author, 5: body} with what change does to it.
func anEntry(kind EntryKind, body any, change ...func(m intMap)) []byte {
	m := intMap{
		1: uint64(kind), 2: uint64(1_700_000_000_000), 3: bytes.Repeat([]byte{0x33}, 8), 4: bytes.Repeat([]byte{0x44}, 16),
		5: body,
	}
	for _, c := range change {
		c(m)
	}
	return encodeCBOR(m)
}

func with(m intMap, key uint64, v any) intMap {
	m = maps.Clone(m)
	m[key] = v
	return m
}

func without(m intMap, key uint64) intMap {
	m = maps.Clone(m)
	delete(m, key)
	return m
}

func id16(b byte) []byte { return bytes.Repeat([]byte{b}, 16) }

// Bodies with every key that their kind has (but for those that exclude each other).
var (
	fullPath = intMap{1: []byte("src/auth.js"), 2: bytes.Repeat([]byte{5}, 20), 3: []any{uint64(20), uint64(40), bytes.Repeat([]byte{6}, 32)}}
	fullFact = intMap{
		1: "retries", 2: "The caller retries.", 3: []any{fullPath}, 4: []byte("refs/heads/main"), 5: bytes.Repeat([]byte{7}, 32),
		6: []any{id16(8), id16(9)}, 7: uint64(2), 8: id16(8), 9: uint64(1), 10: "claude:s1", 11: true,
	}
	leanFact      = intMap{1: "retries", 2: "", 7: uint64(1), 9: uint64(2)}
	confirmation  = with(with(fullFact, 6, []any{id16(8)}), 8, id16(8))
	fullPlan      = intMap{1: "claude:s1", 2: "Move retries.", 3: []any{"no queue", "keep the API"}, 4: true, 5: []any{fullPath}}
	fullTombstone = intMap{1: "retries", 2: "wrong", 3: []any{id16(9), id16(8)}}
	fullEvent     = intMap{
		1: []any{id16(1), uint64(0), uint64(7)}, 2: true, 3: "claude", 4: "s1", 5: "a1", 6: true, 7: []byte("refs/heads/main"),
		8: id16(2), 9: []any{intMap{1: []byte("b.go"), 2: bytes.Repeat([]byte{5}, 20)}, intMap{1: []byte("a.go")}}, 10: id16(3),
		11: uint64(1_700_000_900_000), 12: uint64(3), 13: uint64(10), 14: id16(4), 15: "text", 16: []byte("refs/heads/old"),
		17: bytes.Repeat([]byte{7}, 20),
	}
)

func makeEntryVectors(t *testing.T, team TeamID, repository RepositoryID) []entryVector {
	var vectors []entryVector
	add := func(name string, entry []byte, newer bool, fault string) {
		v := entryVector{Name: name, Entry: entry, Newer: newer, Error: fault}
		if fault == "" {
			h := sha256.Sum256(slices.Concat([]byte("knoot/entry/1\x00"), team[:], repository[:], entry))
			v.ID = h[:16]
		}
		vectors = append(vectors, v)
	}
	valid := func(name string, kind EntryKind, body intMap) { add(name, anEntry(kind, body), false, "") }
	bad := func(name, fault string, kind EntryKind, body intMap) { add(name, anEntry(kind, body), false, fault) }

	valid("fact", KindFact, fullFact)
	valid("fact, least", KindFact, leanFact)
	valid("fact about an area", KindFact, with(leanFact, 12, make([]byte, 8)))
	valid("fact about the root and a glob", KindFact,
		with(leanFact, 3, []any{intMap{1: []byte{}}, intMap{1: []byte("src/**"), 4: true}}))
	valid("fact with one path and two anchors", KindFact, with(leanFact, 3, []any{
		intMap{1: []byte("a"), 3: []any{uint64(1), uint64(2), make([]byte, 32)}},
		intMap{1: []byte("a"), 3: []any{uint64(7), uint64(7), make([]byte, 32)}},
	}))
	valid("paths in order: shorter first", KindFact, with(leanFact, 3, []any{intMap{1: []byte("b")}, intMap{1: []byte("aa")}}))
	valid("path that is not UTF-8", KindFact, with(leanFact, 3, []any{intMap{1: []byte("caf\xe9")}}))
	valid("name of 100 bytes", KindFact, with(leanFact, 1, strings.Repeat("n", 100)))
	valid("cached answer", KindCache, fullFact)
	valid("confirmation", KindConfirmation, confirmation)
	valid("plan", KindPlan, fullPlan)
	valid("plan, least", KindPlan, intMap{})
	valid("tombstone", KindTombstone, fullTombstone)
	valid("event", SessionStarted, fullEvent)
	valid("event, least", SessionEnded, intMap{})
	valid("key 64 in the body is ignored", KindFact, with(leanFact, 64, "later"))
	add("key 64 in the entry is ignored, and part of the id", anEntry(KindFact, leanFact, func(m intMap) { m[64] = []any{true} }), false, "")
	valid("key 64 in a path is ignored", KindFact, with(leanFact, 3, []any{intMap{1: []byte("a"), 64: uint64(1)}}))
	add("entry of 65,536 bytes", anEntry(KindFact, with(leanFact, 2, strings.Repeat("a", maxEntry-len(anEntry(KindFact, leanFact))-2))), false, "")

	add("kind 6", anEntry(6, intMap{}), true, "")
	add("kind 55", anEntry(55, intMap{1: "other"}), true, "")
	add("key 6 in the entry", anEntry(KindFact, leanFact, func(m intMap) { m[6] = uint64(1) }), true, "")
	add("key 13 in a fact", anEntry(KindFact, with(leanFact, 13, true)), true, "")
	add("key 5 in a path", anEntry(KindFact, with(leanFact, 3, []any{intMap{1: []byte("a"), 5: true}})), true, "")
	add("key -1 in a plan", anEntry(KindPlan, nil, func(m intMap) { m[5] = map[any]any{-1: true} }), true, "")
	add("written by 3", anEntry(KindFact, with(leanFact, 9, uint64(3))), true, "")
	add("reason 11", anEntry(SessionEnded, intMap{13: uint64(11)}), true, "")

	bad("no map", "type", KindFact, nil)
	vectors[len(vectors)-1].Entry = encodeCBOR([]any{})
	bad("no name", "missing", KindFact, without(leanFact, 1))
	bad("empty name", "value", KindFact, with(leanFact, 1, ""))
	bad("name of 101 bytes", "value", KindFact, with(leanFact, 1, strings.Repeat("n", 101)))
	bad("name not trimmed", "value", KindFact, with(leanFact, 1, "retries "))
	bad("name in NFD", "value", KindFact, with(leanFact, 1, "cafe\u0301"))
	bad("depth 0", "value", KindFact, with(leanFact, 7, uint64(0)))
	bad("depth 2 without supersedes", "value", KindFact, with(leanFact, 7, uint64(2)))
	bad("empty list instead of none", "type", KindFact, with(leanFact, 3, []any{}))
	bad("empty branch instead of none", "type", KindFact, with(leanFact, 4, []byte{}))
	bad("pinned false", "type", KindFact, with(leanFact, 11, false))
	bad("blob of 19 bytes", "type", KindFact, with(leanFact, 3, []any{intMap{1: []byte("a"), 2: make([]byte, 19)}}))
	bad("path as text", "type", KindFact, with(leanFact, 3, []any{intMap{1: "a"}}))
	bad("path with dot dot", "value", KindFact, with(leanFact, 3, []any{intMap{1: []byte("../a")}}))
	bad("path in NFD", "value", KindFact, with(leanFact, 3, []any{intMap{1: []byte("cafe\u0301")}}))
	bad("paths not sorted", "unsorted", KindFact, with(leanFact, 3, []any{intMap{1: []byte("aa")}, intMap{1: []byte("b")}}))
	bad("path twice", "unsorted", KindFact, with(leanFact, 3, []any{intMap{1: []byte("a")}, intMap{1: []byte("a")}}))
	bad("glob with a blob", "value", KindFact, with(leanFact, 3, []any{intMap{1: []byte("a*"), 2: make([]byte, 20), 4: true}}))
	bad("lines backwards", "value", KindFact, with(leanFact, 3, []any{intMap{1: []byte("a"), 3: []any{uint64(2), uint64(1), make([]byte, 32)}}}))
	bad("supersedes not sorted", "unsorted", KindFact, with(fullFact, 6, []any{id16(9), id16(8)}))
	bad("area with paths", "value", KindFact, with(fullFact, 12, make([]byte, 8)))
	bad("session without agent", "value", KindFact, with(leanFact, 10, ":s1"))
	bad("confirmation of nothing", "value", KindConfirmation, without(confirmation, 8))
	bad("confirmation that supersedes others", "value", KindConfirmation, with(confirmation, 6, []any{id16(8), id16(9)}))
	bad("tombstone of nothing", "value", KindTombstone, intMap{3: []any{}})
	bad("text key in the body", "type", KindPlan, nil)
	vectors[len(vectors)-1].Entry = anEntry(KindPlan, nil, func(m intMap) { m[5] = map[any]any{"a": true} })
	bad("event with a short worktree", "type", SessionStarted, intMap{8: make([]byte, 15)})
	bad("event of year 10000", "value", SessionStarted, intMap{11: uint64(253_402_300_800_000)})
	add("kind 0", anEntry(0, intMap{}), false, "value")
	add("short nonce", anEntry(KindPlan, intMap{}, func(m intMap) { m[3] = make([]byte, 7) }), false, "type")
	add("short author", anEntry(KindPlan, intMap{}, func(m intMap) { m[4] = make([]byte, 15) }), false, "type")
	add("no body", anEntry(KindPlan, nil, func(m intMap) { delete(m, 5) }), false, "missing")
	add("body null", anEntry(KindPlan, nil), false, "null")
	add("entry of 65,537 bytes", anEntry(KindFact, with(leanFact, 2, strings.Repeat("a", maxEntry+1-len(anEntry(KindFact, leanFact))-2))), false, "too-large")
	add("followed by a zero", append(anEntry(KindPlan, intMap{}), 0), false, "trailing")
	return vectors
}

// forgery is a segment file in the making, for whoever wants to spoil it.
type forgery struct {
	labels  map[any]any
	header  intMap
	text    intMap              // sealed; its key 1, unless set, is the digest of the protected header
	pad     func([]byte) []byte // of the encoded text
	to      []age.Recipient
	payload []byte // instead of what text, pad and to would give
	key     ed25519.PrivateKey
	context signingContext
	object  func(protected, payload, signature []byte) []byte // nil: as it should be
}

func (x *fixture) forge(t *testing.T, h Header, entries []*Entry, spoil func(f *forgery)) []byte {
	t.Helper()
	h.Version, h.Count = segmentVersion, uint64(len(entries))
	list := []any{}
	for _, e := range entries {
		if err := e.encode(h.Team, h.Repository); err != nil {
			t.Fatal(err)
		}
		list = append(list, cbor.RawMessage(e.raw))
	}
	general := x.roster.Rooms[x.roster.General]
	f := &forgery{
		labels: map[any]any{labelAlgorithm: algorithmEdDSA, labelContentType: segmentContentType, labelKeyID: x.device.ID[:]},
		header: h.encode(), text: intMap{2: list}, to: []age.Recipient{general.Current().recipient},
		key: x.device.Sign, context: segmentContext,
		pad: func(b []byte) []byte { return append(b, make([]byte, (256-len(b)%256)%256)...) },
	}
	if spoil != nil {
		spoil(f)
	}
	if _, there := f.labels[labelHeader]; !there {
		f.labels[labelHeader] = f.header
	}
	protected := encodeCBOR(f.labels)
	if f.payload == nil {
		if _, there := f.text[1]; !there {
			digest := sha256.Sum256(protected)
			f.text[1] = digest[:]
		}
		var sealed bytes.Buffer
		w, err := age.Encrypt(&sealed, f.to...)
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.Write(f.pad(encodeCBOR(f.text)))
		if err := errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
		f.payload = sealed.Bytes()
	}
	file, err := sign(f.key, f.context, protected, f.payload)
	if err != nil {
		t.Fatal(err)
	}
	if f.object != nil {
		s, err := parseSigned(file)
		if err != nil {
			t.Fatal(err)
		}
		file = f.object(s.protected, s.payload, s.signature)
	}
	return file
}

func object(tag uint64, parts ...any) []byte {
	return encodeCBOR(cbor.Tag{Number: tag, Content: parts})
}

func makeSegmentVectors(t *testing.T, x *fixture) []segmentVector {
	general := x.roster.General
	identity := x.ring[RoomEpoch{general, 1}].read.Load()
	public := x.device.Sign.Public().(ed25519.PublicKey)
	thief := newDevice(t)
	thiefWriter := x.writer
	copy(thiefWriter[:], thief.ID[:])
	entry := func() []*Entry { return []*Entry{x.fact("retries")} }
	first := x.header()
	first.Room, first.Rooms, first.Epoch = general, []RoomID{general}, 1
	later := first
	later.Seq, later.Prev = 2, sha256.Sum256([]byte("segment 1"))

	var vectors []segmentVector
	add := func(name string, h Header, files map[RoomID][]byte, step, fault string, change ...func(v *segmentVector)) {
		v := segmentVector{
			Name: name, First: h.Seq == 1, Files: map[string]hexBytes{}, Key: hexBytes(public), Step: step, Error: fault,
			Open: []epochVector{{general[:], 1, identity.String()}},
		}
		for room, data := range files {
			v.Files[room.String()] = data
		}
		for _, c := range change {
			c(&v)
		}
		if fault == "" {
			sums := []byte{}
			for _, room := range slices.Sorted(maps.Keys(v.Files)) {
				sum := sha256.Sum256(v.Files[room])
				sums = append(sums, sum[:]...)
			}
			digest := sha256.Sum256(sums)
			v.Digest = digest[:]
		}
		vectors = append(vectors, v)
	}
	// one adds a segment of one file.
	one := func(name string, h Header, step, fault string, spoil func(f *forgery), change ...func(v *segmentVector)) {
		entries := entry()
		file := x.forge(t, h, entries, spoil)
		if fault == "" {
			change = append(change, func(v *segmentVector) {
				v.Entries = map[string][]string{general.String(): {hex.EncodeToString(entries[0].id[:])}}
			})
		}
		add(name, h, map[RoomID][]byte{h.Room: file}, step, fault, change...)
	}
	newer := func(v *segmentVector) { v.Newer, v.Open = true, nil }

	one("one room", first, "", "", nil)
	one("second segment", later, "", "", nil)
	start := later
	start.Generation = 3
	start.Checkpoint = &Checkpoint{1, 2}
	for i := range 257 {
		start.Seen = append(start.Seen, Tip{WriterID{byte(i >> 8), byte(i)}, AuditLog, 1, uint64(i + 1), Digest{byte(i)}})
	}
	one("start of a generation: checkpoint, 257 tips", start, "", "", nil, func(v *segmentVector) { v.First = true })
	one("key 64 in header, protected header and sealed text", first, "", "", func(f *forgery) {
		f.labels[64], f.header[64], f.text[64] = true, "x", uint64(1)
	})
	add("no entries", first, map[RoomID][]byte{general: x.forge(t, first, nil, nil)}, "", "")

	// Two rooms; the second has its own identity and epoch.
	second, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}
	other := general
	other[0] ^= 0x80
	rooms := []RoomID{general, other}
	if bytes.Compare(other[:], general[:]) < 0 {
		rooms = []RoomID{other, general}
	}
	both := later
	both.Rooms = rooms
	tip := []Tip{{x.writer, AuditLog, 1, 9, Digest{9}}}
	twoRooms := func(spoil func(room RoomID, h *Header, f *forgery)) map[RoomID][]byte {
		files := map[RoomID][]byte{}
		for i, room := range rooms {
			h := both
			h.Room, h.Rooms = room, slices.Clone(rooms)
			if i == 0 {
				h.Seen = slices.Clone(tip)
			}
			files[room] = x.forge(t, h, nil, func(f *forgery) {
				if room == other {
					f.header[9], f.to = uint64(4), []age.Recipient{second.Recipient()}
				}
				if spoil != nil {
					spoil(room, &h, f)
				}
			})
		}
		return files
	}
	openBoth := func(v *segmentVector) { v.Open = append(v.Open, epochVector{other[:], 4, second.String()}) }
	add("two rooms", both, twoRooms(nil), "", "", openBoth)
	pair := twoRooms(nil)
	add("a room's file is missing", both, map[RoomID][]byte{general: pair[general]}, "parse", "rooms")
	add("a file too many", later, map[RoomID][]byte{general: x.forge(t, later, nil, nil), other: pair[other]}, "parse", "fields")
	add("files swapped", both, map[RoomID][]byte{general: pair[other], other: pair[general]}, "parse", "rooms")
	add("files disagree on created", both, twoRooms(func(room RoomID, _ *Header, f *forgery) {
		if room == rooms[1] {
			f.header[12] = uint64(1)
		}
	}), "parse", "fields")
	add("files disagree on key 64", both, twoRooms(func(room RoomID, _ *Header, f *forgery) {
		if room == rooms[1] {
			f.header[64] = uint64(1)
		}
	}), "parse", "fields")
	add("seen in the second file", both, twoRooms(func(room RoomID, _ *Header, f *forgery) {
		if room == rooms[1] {
			f.header[15] = []any{tip[0].encode()}
		}
	}), "parse", "seen")
	add("file named for another room", first, map[RoomID][]byte{other: x.forge(t, first, nil, nil)}, "parse", "rooms")

	// From a newer version: verified, kept, chained, counted, not opened.
	one("version 2", later, "", "", func(f *forgery) { f.header[1] = uint64(2) }, newer)
	one("version 2, other fields changed", later, "", "", func(f *forgery) {
		f.header[1], f.header[9], f.payload = uint64(2), "x", []byte("otherwise sealed")
	}, newer)
	one("kind 3", later, "", "", func(f *forgery) { f.header[5] = uint64(3) }, newer)
	one("key 17 in the header", later, "", "", func(f *forgery) { f.header[17] = true }, newer)
	one("label 2 in the protected header", later, "", "", func(f *forgery) { f.labels[2] = []any{uint64(4)} }, newer)
	one("algorithm -7", later, "parse", "newer", func(f *forgery) { f.labels[1] = int64(-7) })
	one("key 3 in the sealed text", later, "open", "newer", func(f *forgery) { f.text[3] = true })
	one("version 2, signed by another", later, "verify", "signature", func(f *forgery) {
		f.header[1], f.key = uint64(2), thief.Sign
	})
	one("version 2 without seq", later, "parse", "missing", func(f *forgery) { f.header[1] = uint64(2); delete(f.header, 7) })

	// The object.
	one("no tag", first, "parse", "tag", func(f *forgery) {
		f.object = func(p, c, s []byte) []byte { return encodeCBOR([]any{p, intMap{}, c, s}) }
	})
	one("tag 98", first, "parse", "tag", func(f *forgery) {
		f.object = func(p, c, s []byte) []byte { return object(98, p, intMap{}, c, s) }
	})
	one("unprotected header not empty", first, "parse", "value", func(f *forgery) {
		f.object = func(p, c, s []byte) []byte { return object(18, p, intMap{4: []byte{1}}, c, s) }
	})
	one("no payload", first, "parse", "null", func(f *forgery) {
		f.object = func(p, _, s []byte) []byte { return object(18, p, intMap{}, nil, s) }
	})
	one("five parts", first, "parse", "type", func(f *forgery) {
		f.object = func(p, c, s []byte) []byte { return object(18, p, intMap{}, c, s, s) }
	})
	one("short signature", first, "parse", "type", func(f *forgery) {
		f.object = func(p, c, s []byte) []byte { return object(18, p, intMap{}, c, s[:63]) }
	})
	one("followed by a zero", first, "parse", "trailing", func(f *forgery) {
		f.object = func(p, c, s []byte) []byte { return append(object(18, p, intMap{}, c, s), 0) }
	})
	one("length longer than needed", first, "parse", "not-deterministic", func(f *forgery) {
		f.object = func(p, c, s []byte) []byte { // the signature's 64 bytes with a length of two bytes
			return append(bytes.TrimSuffix(object(18, p, intMap{}, c, s), append([]byte{0x58, 64}, s...)), append([]byte{0x59, 0, 64}, s...)...)
		}
	})
	one("signature of something else", first, "verify", "signature", func(f *forgery) { f.context = rosterContext })
	one("one bit of the signature", first, "verify", "signature", func(f *forgery) {
		f.object = func(p, c, s []byte) []byte { s[7] ^= 1; return object(18, p, intMap{}, c, s) }
	})
	one("one bit of the payload", first, "verify", "signature", func(f *forgery) {
		f.object = func(p, c, s []byte) []byte { c[len(c)-1] ^= 1; return object(18, p, intMap{}, c, s) }
	})

	// The header.
	for _, c := range []struct {
		name, fault string
		spoil       func(f *forgery)
	}{
		{"content type", "value", func(f *forgery) { f.labels[3] = "text/plain" }},
		{"no content type", "missing", func(f *forgery) { delete(f.labels, labelContentType) }},
		{"no algorithm", "missing", func(f *forgery) { delete(f.labels, labelAlgorithm) }},
		{"header null", "null", func(f *forgery) { f.labels[labelHeader] = nil }},
		{"text label", "type", func(f *forgery) { f.labels["other"] = true }},
		{"kid too short", "type", func(f *forgery) { f.labels[4] = make([]byte, 15) }},
		{"kid not the writer's", "key-id", func(f *forgery) { f.labels[4] = thief.ID[:] }},
		{"version 0", "value", func(f *forgery) { f.header[1] = uint64(0) }},
		{"generation 0", "value", func(f *forgery) { f.header[6] = uint64(0) }},
		{"prev missing", "missing", func(f *forgery) { delete(f.header, 13) }},
		{"prev before segment 1", "value", func(f *forgery) { f.header[7] = uint64(1) }},
		{"no rooms", "too-large", func(f *forgery) { f.header[14] = []any{} }},
		{"room not listed", "rooms", func(f *forgery) { f.header[14] = []any{other[:]} }},
		{"rooms not sorted", "unsorted", func(f *forgery) { f.header[14] = []any{rooms[1][:], rooms[0][:]} }},
		{"room twice", "unsorted", func(f *forgery) { f.header[14] = []any{general[:], general[:]} }},
		{"257 rooms", "too-large", func(f *forgery) {
			list := []any{}
			for i := range 257 {
				list = append(list, []byte{byte(i >> 8), byte(i), 0, 0, 0, 0, 0, 0})
			}
			f.header[14] = list
		}},
		{"roster head without hash", "type", func(f *forgery) { f.header[10] = []any{uint64(0)} }},
		{"count 4,097", "too-large", func(f *forgery) { f.header[11] = uint64(4_097) }},
		{"empty seen instead of none", "type", func(f *forgery) { f.header[15] = []any{} }},
		{"seen not sorted", "unsorted", func(f *forgery) {
			f.header[15] = []any{(&Tip{WriterID{2}, 1, 1, 1, Digest{}}).encode(), (&Tip{WriterID{1}, 1, 1, 1, Digest{}}).encode()}
		}},
		{"257 tips outside a generation's start", "too-large", func(f *forgery) {
			list := []any{}
			for i := range 257 {
				list = append(list, (&Tip{WriterID{byte(i >> 8), byte(i)}, 1, 1, 1, Digest{}}).encode())
			}
			f.header[15] = list
		}},
		{"checkpoint 3 of 2", "value", func(f *forgery) { f.header[16] = []any{uint64(3), uint64(2)} }},
		{"checkpoint 0", "value", func(f *forgery) { f.header[16] = []any{uint64(0), uint64(2)} }},
		{"header over 32 KiB", "too-large", func(f *forgery) { f.header[64] = make([]byte, 32<<10) }},
		{"file over 1 MiB", "too-large", func(f *forgery) { f.payload = make([]byte, 1<<20) }},
	} {
		one(c.name, later, "parse", c.fault, c.spoil)
	}
	// Who wrote it.
	one("signed by another, who names the writer", first, "verify", "signature", func(f *forgery) { f.key = thief.Sign })
	one("verified with another device's key", first, "verify", "key-id", nil, func(v *segmentVector) {
		v.Key = hexBytes(thief.Sign.Public().(ed25519.PublicKey))
	})

	// The same ciphertext in another place, signed by a device of the team.
	genuine, err := parseSigned(x.forge(t, first, entry(), nil))
	if err != nil {
		t.Fatal(err)
	}
	moved := func(name string, change func(h *Header), open func(v *segmentVector)) {
		h := first
		change(&h)
		one(name, h, "open", "moved", func(f *forgery) {
			f.payload = genuine.payload
			if h.Writer == thiefWriter {
				f.labels[labelKeyID], f.key = thief.ID[:], thief.Sign
			}
		}, open)
	}
	same := func(*segmentVector) {}
	moved("moved to another room", func(h *Header) { h.Room, h.Rooms = other, []RoomID{other} }, func(v *segmentVector) { v.Open[0].Room = other[:] })
	moved("moved to another epoch", func(h *Header) { h.Epoch = 2 }, func(v *segmentVector) { v.Open[0].Epoch = 2 })
	moved("moved to another writer of the device", func(h *Header) { h.Writer[20] ^= 1 }, same)
	moved("moved to another repository", func(h *Header) { h.Repository[0] ^= 1 }, same)
	moved("moved to another team", func(h *Header) { h.Team[0] ^= 1 }, same)
	moved("moved to another seq", func(h *Header) { h.Seq, h.Prev = later.Seq, later.Prev }, same)
	moved("moved to another kind", func(h *Header) { h.Kind = AuditLog }, same)
	moved("republished by another device", func(h *Header) { h.Writer = thiefWriter }, func(v *segmentVector) {
		v.Key = hexBytes(thief.Sign.Public().(ed25519.PublicKey))
	})
	one("opened as another epoch", first, "open", "epoch", nil, func(v *segmentVector) { v.Open[0].Epoch = 2 })
	one("opened with another identity", first, "open", "identity", nil, func(v *segmentVector) { v.Open[0].Identity = second.String() })

	// The seal.
	classic, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	one("two stanzas", first, "parse", "stanza", func(f *forgery) { f.to = append(f.to, second.Recipient()) })
	one("X25519 stanza", first, "parse", "stanza", func(f *forgery) { f.to = []age.Recipient{classic.Recipient()} })
	one("payload that is no age file", first, "parse", "stanza", func(f *forgery) { f.payload = []byte("plain") })
	one("no padding", first, "open", "padding", func(f *forgery) { f.pad = func(b []byte) []byte { return b } })
	one("padding that is not zero", first, "open", "padding", func(f *forgery) {
		pad := f.pad
		f.pad = func(b []byte) []byte { b = pad(b); b[len(b)-1] = 1; return b }
	})
	one("256 zero bytes too many", first, "open", "padding", func(f *forgery) {
		pad := f.pad
		f.pad = func(b []byte) []byte { return append(pad(b), make([]byte, 256)...) }
	})
	one("sealed text that is no CBOR", first, "open", "syntax", func(f *forgery) {
		f.pad = func(b []byte) []byte { return bytes.Repeat([]byte{0xff}, 256) }
	})
	one("count says more", first, "open", "count", func(f *forgery) { f.header[11] = uint64(2) })
	one("count says less", first, "open", "count", func(f *forgery) { f.header[11] = uint64(0) })
	one("entry of another author", first, "open", "author", func(f *forgery) {
		f.text[2] = []any{cbor.RawMessage(anEntry(KindPlan, intMap{}))}
	})
	one("entry that is wrong", first, "open", "missing", func(f *forgery) {
		f.text[2] = []any{cbor.RawMessage(anEntry(KindFact, intMap{}))}
	})
	one("sealed text nested too deeply", first, "open", "depth", func(f *forgery) {
		f.text[64] = []any{[]any{[]any{[]any{[]any{[]any{[]any{[]any{}}}}}}}}
	})
	return vectors
}

func makeKeyVectors(t *testing.T, x *fixture) []keyVector {
	key := x.ring[RoomEpoch{x.roster.General, 1}]
	v := keyVector{
		Name: "tokens", Team: x.team[:], Repository: x.repository[:], Device: x.device.ID[:],
		Open: epochVector{key.Room[:], 1, key.text}, Path: map[string]string{}, Branch: map[string]string{},
		GitDir: "/home/ash/app/.git", Agent: "claude", Session: "s1",
	}
	token, err := key.TokenKey(x.team)
	if err != nil {
		t.Fatal(err)
	}
	live, err := key.LiveKey(x.team)
	if err != nil {
		t.Fatal(err)
	}
	v.TokenKey, v.LiveKey = token[:], live[:]
	text := func(k Token) string { return hex.EncodeToString(k[:]) }
	for _, p := range []string{"", "src/auth.js", "Makefile", "makefile"} {
		v.Path[p] = text(token.Path(x.repository, p))
	}
	for _, b := range []string{"refs/heads/main", "refs/heads/Main"} {
		v.Branch[b] = text(token.Branch(x.repository, b))
	}
	v.Worktree = text(token.Worktree(x.repository, x.device.ID, v.GitDir))
	v.Detached = text(token.Detached(x.repository, x.device.ID, v.GitDir))
	v.Token = text(token.Session(x.repository, x.device.ID, v.Agent, v.Session))
	return []keyVector{v}
}

// rosterForgery is a genesis in the making.
type rosterForgery struct {
	payload intMap // key 6 is made, unless it is there or names is nil
	team    intMap // the body of operation 1, put into the payload
	names   map[any]any
	key     *EpochKey
	keyText intMap // of the key file
	files   map[string][]byte
	device  *Device
	signer  ed25519.PrivateKey
	context signingContext
	rest    []byte // the digest inside key 6, if not the right one
}

func forgeGenesis(t *testing.T, device *Device, spoil func(f *rosterForgery)) (RosterCommit, *EpochKey) {
	t.Helper()
	identity, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}
	room := RoomID{1, 2, 3, 4, 5, 6, 7, 8}
	nonce := bytes.Repeat([]byte{0x77}, 32)
	f := &rosterForgery{
		device: device, signer: device.Sign, context: rosterContext, key: newEpochKey(RoomEpoch{room, 1}, identity),
		team: intMap{
			1: nonce, 2: id16(0x55), 3: []byte(device.Sign.Public().(ed25519.PublicKey)), 4: device.Age.Recipient().String(),
			5: room[:], 6: uint64(1), 7: identity.Recipient().String(), 8: id16(0x22),
		},
		keyText: intMap{1: nonce, 2: room[:], 3: uint64(1), 4: identity.String()},
		names:   map[any]any{cbor.ByteString(id16(0x55)): intMap{1: "Ash", 2: "ash@example.org"}},
		files:   map[string][]byte{},
		payload: intMap{1: uint64(1), 2: uint64(0), 4: uint64(1_700_000_000_000)},
	}
	name := keyFileName{f.key.RoomEpoch, device.ID}.String()
	f.payload[7] = []any{}
	if spoil != nil {
		spoil(f)
	}
	if _, there := f.payload[5]; !there {
		f.payload[5] = []any{[]any{uint64(1), f.team}}
	}
	if _, there := f.files[name]; !there {
		file, err := seal(device.Age.Recipient(), encodeCBOR(f.keyText))
		if err != nil {
			t.Fatal(err)
		}
		f.files[name] = file
	}
	if l, ok := f.payload[7].([]any); ok && len(l) == 0 {
		digest := sha256.Sum256(f.files[name])
		f.payload[7] = []any{[]any{room[:], uint64(1), device.ID[:], digest[:]}}
	}
	if f.names != nil {
		rest := sha256.Sum256(encodeCBOR(f.payload))
		if f.rest == nil {
			f.rest = rest[:]
		}
		sealed, err := seal(identity.Recipient(), encodeCBOR(intMap{1: f.rest, 2: f.names}))
		if err != nil {
			t.Fatal(err)
		}
		f.payload[6] = sealed
	}
	entry, err := sign(f.signer, f.context, encodeCBOR(map[any]any{1: algorithmEdDSA, 4: device.ID[:]}), encodeCBOR(f.payload))
	if err != nil {
		t.Fatal(err)
	}
	return RosterCommit{entry, f.files}, f.key
}

func makeRosterVectors(t *testing.T) []rosterVector {
	device, thief := newDevice(t), newDevice(t)
	var vectors []rosterVector
	add := func(name, step, fault string, chain []RosterCommit, key *EpochKey, change ...func(v *rosterVector)) {
		team := sha256.Sum256(chain[0].Entry)
		v := rosterVector{
			Name: name, Team: team[:], Device: device.ID[:], Identity: device.Age.String(), Step: step, Error: fault,
			Epochs: []epochVector{{key.Room[:], key.Number, key.text}},
			Names:  map[string]string{hex.EncodeToString(id16(0x55)): "Ash"},
		}
		for _, c := range chain {
			cv := commitVector{Entry: c.Entry, Files: map[string]hexBytes{}}
			for name, data := range c.Files {
				cv.Files[name] = data
			}
			v.Chain = append(v.Chain, cv)
		}
		for _, c := range change {
			c(&v)
		}
		vectors = append(vectors, v)
	}
	genesis := func(name, step, fault string, spoil func(f *rosterForgery), change ...func(v *rosterVector)) {
		commit, key := forgeGenesis(t, device, spoil)
		add(name, step, fault, []RosterCommit{commit}, key, change...)
	}
	nameless := func(v *rosterVector) { v.Names = nil }

	genesis("genesis", "", "", nil)
	genesis("genesis without names", "", "", func(f *rosterForgery) { f.names = nil }, nameless)
	genesis("key 64 everywhere", "", "", func(f *rosterForgery) {
		f.payload[64], f.team[64], f.keyText[64] = true, true, true
	})
	genesis("read by a device that is not in it", "", "", nil, func(v *rosterVector) {
		v.Device, v.Identity, v.Epochs, v.Names = thief.ID[:], thief.Age.String(), nil, nil
		v.Step, v.Error = "names", "identity"
	})

	for _, c := range []struct {
		name, fault string
		spoil       func(f *rosterForgery)
	}{
		{"genesis of version 2", "newer", func(f *rosterForgery) { f.payload[1] = uint64(2) }},
		{"genesis with key 9", "newer", func(f *rosterForgery) { f.payload[9] = true }},
		{"genesis with operation 19", "newer", func(f *rosterForgery) {
			f.payload[5] = []any{[]any{uint64(1), f.team}, []any{uint64(19), intMap{}}}
		}},
		{"key 16 in operation 1", "newer", func(f *rosterForgery) { f.team[16] = true }},
		{"key of another operation", "value", func(f *rosterForgery) { f.team[9] = id16(1) }},
		{"key missing in operation 1", "missing", func(f *rosterForgery) { delete(f.team, 8) }},
		{"epoch 2", "value", func(f *rosterForgery) { f.team[6] = uint64(2) }},
		{"recipient cut short", "recipient", func(f *rosterForgery) { f.team[7] = f.team[7].(string)[:1_958] }},
		{"recipient with a wrong checksum", "recipient", func(f *rosterForgery) {
			s := []byte(f.team[4].(string))
			s[1_900] ^= 'q' ^ 'p'
			if s[1_900] != 'q' && s[1_900] != 'p' {
				s[1_900] = 'q'
			}
			f.team[4] = string(s)
		}},
		{"recipient in capitals", "recipient", func(f *rosterForgery) { f.team[7] = strings.ToUpper(f.team[7].(string)) }},
		{"team twice", "state", func(f *rosterForgery) {
			f.payload[5] = []any{[]any{uint64(1), f.team}, []any{uint64(1), f.team}}
		}},
		{"no operation", "value", func(f *rosterForgery) { f.payload[5] = []any{} }},
		{"prev in genesis", "value", func(f *rosterForgery) { f.payload[3] = make([]byte, 32) }},
		{"seq 1 at the start", "chain", func(f *rosterForgery) { f.payload[2], f.payload[3] = uint64(1), make([]byte, 32) }},
		{"empty list of links instead of none", "type", func(f *rosterForgery) { f.payload[8] = []any{} }},
		{"signed by another", "signature", func(f *rosterForgery) { f.signer = thief.Sign }},
		{"signed as a segment", "signature", func(f *rosterForgery) { f.context = segmentContext }},
		{"key of another device", "key-id", func(f *rosterForgery) {
			f.team[3] = []byte(thief.Sign.Public().(ed25519.PublicKey))
		}},
		{"a file that is not listed", "files", func(f *rosterForgery) { f.files["keys/other"] = []byte{1} }},
		{"key file of another digest", "files", func(f *rosterForgery) {
			f.payload[7] = []any{[]any{f.key.Room[:], uint64(1), device.ID[:], make([]byte, 32)}}
		}},
		{"key file listed twice", "value", func(f *rosterForgery) {
			row := []any{f.key.Room[:], uint64(1), device.ID[:], make([]byte, 32)}
			f.payload[7] = []any{row, row}
		}},
		{"key file over 4 KiB", "too-large", func(f *rosterForgery) { f.keyText[64] = make([]byte, 4<<10) }},
		{"entry over 256 KiB", "too-large", func(f *rosterForgery) { f.payload[64] = make([]byte, 256<<10) }},
	} {
		genesis(c.name, "chain", c.fault, c.spoil, func(v *rosterVector) { v.Epochs, v.Names = nil, nil })
	}
	genesis("no key file", "chain", "no-key-file", func(f *rosterForgery) { delete(f.payload, 7) }, func(v *rosterVector) {
		v.Epochs, v.Names, v.Chain[0].Files = nil, nil, nil
	})
	genesis("another team's roster", "chain", "chain", nil, func(v *rosterVector) { v.Team = make([]byte, 32); v.Epochs, v.Names = nil, nil })

	noEpochs := func(v *rosterVector) { v.Epochs, v.Names = nil, nil }
	genesis("key file of another team", "keys", "moved", func(f *rosterForgery) { f.keyText[1] = make([]byte, 32) }, noEpochs)
	genesis("key file of another room", "keys", "moved", func(f *rosterForgery) { f.keyText[2] = make([]byte, 8) }, noEpochs)
	genesis("key file of another epoch", "keys", "moved", func(f *rosterForgery) { f.keyText[3] = uint64(2) }, noEpochs)
	genesis("key file with another identity", "keys", "recipient", func(f *rosterForgery) { f.keyText[4] = thief.Age.String() }, noEpochs)
	genesis("key file without identity", "keys", "value", func(f *rosterForgery) { f.keyText[4] = "AGE-SECRET-KEY-PQ-1" }, noEpochs)
	genesis("key file sealed to another device", "keys", "identity", func(f *rosterForgery) {
		file, err := seal(thief.Age.Recipient(), encodeCBOR(f.keyText))
		if err != nil {
			t.Fatal(err)
		}
		f.files[keyFileName{f.key.RoomEpoch, device.ID}.String()] = file
	}, noEpochs)
	genesis("names of another entry", "names", "moved", func(f *rosterForgery) { f.rest = make([]byte, 32) }, nameless)
	genesis("names under a short id", "names", "type", func(f *rosterForgery) {
		f.names = map[any]any{cbor.ByteString("short"): intMap{1: "Ash"}}
	}, nameless)

	second := func(name, fault string, newer bool, signer *Device, change func(payload intMap, prev Digest)) {
		commit, key := forgeGenesis(t, device, nil)
		prev := Digest(sha256.Sum256(commit.Entry))
		payload := intMap{
			1: uint64(1), 2: uint64(1), 3: prev[:], 4: uint64(1_700_000_000_001),
			5: []any{[]any{uint64(2), intMap{2: id16(0x66)}}},
		}
		if change != nil {
			change(payload, prev)
		}
		algorithm := algorithmEdDSA
		if fault == "newer" {
			algorithm = -7
		}
		entry, err := sign(signer.Sign, rosterContext, encodeCBOR(map[any]any{1: algorithm, 4: signer.ID[:]}), encodeCBOR(payload))
		if err != nil {
			t.Fatal(err)
		}
		step := "chain"
		if fault == "" {
			step = ""
		}
		add(name, step, fault, []RosterCommit{commit, {Entry: entry}}, key, func(v *rosterVector) {
			if v.Newer = newer; fault == "" && !newer {
				v.Head = 1
			}
		})
	}
	second("then a member", "", false, device, nil)
	second("then version 2", "", true, device, func(p intMap, _ Digest) { p[1] = uint64(2) })
	second("then operation 19", "", true, device, func(p intMap, _ Digest) { p[5] = []any{[]any{uint64(19), intMap{}}} })
	second("then a second team", "state", false, device, func(p intMap, _ Digest) {
		forgeGenesis(t, device, func(f *rosterForgery) { p[5] = []any{[]any{uint64(1), f.team}} })
	})
	second("then one signed with another algorithm, by whom cannot be checked", "newer", false, device, nil)
	second("then an entry of nobody", "signer", false, thief, nil)
	second("then one that follows something else", "chain", false, device, func(p intMap, _ Digest) { p[3] = make([]byte, 32) })
	second("then one that leaves a gap", "chain", false, device, func(p intMap, _ Digest) { p[2] = uint64(2) })
	second("then one without prev", "missing", false, device, func(p intMap, _ Digest) { delete(p, 3) })
	second("then one of an earlier time, with a team", "chain", false, device, func(p intMap, _ Digest) {
		p[4] = uint64(1_600_000_000_000)
		forgeGenesis(t, device, func(f *rosterForgery) { p[5] = []any{[]any{uint64(1), f.team}} })
	})
	return vectors
}

// makeTeamVectors draws chains of every operation (see drawn). The last entry is refused where there is an error.
func makeTeamVectors(t *testing.T) []rosterVector {
	const bob = "A: team -> A: member bob, device bob B"
	const invited = "A: team -> A: member bob, invite bob P"
	var vectors []rosterVector
	for _, c := range []struct {
		name, chain  string
		last         string // the entry that is refused; "" for none
		fault        string
		head         uint64 // of what counts
		device       string
		opens, names string
	}{
		{"a member and a device", bob, "", "", 1, "B", "general 1", "ann bob"},
		{"a member removed", bob + " -> A: expel bob B.1.3+B.2.7", "", "", 2, "A", "general 2", "ann"},
		{"a removed member's device", bob + " -> A: expel bob B.1.3 -> A: member eve", "", "", 3, "B", "general 1", "-"},
		{"a device removed by its member", bob + " -> B: device bob C -> C: remove B B.1.1", "", "", 3, "C", "general 2", "ann bob"},
		{"an invitation", invited, "", "", 1, "P", "general 1", "ann bob"},
		{"an invitation used", invited + " -> P: join P new B", "", "", 2, "B", "general 2", "ann bob"},
		{"an invitation cancelled", invited + " -> A: cancel P, expel bob", "", "", 2, "A", "general 2", "ann"},
		{"a room made, granted and revoked", bob + " -> A: room pay ann -> A: grant pay bob -> A: revoke pay bob B.1.1", "", "", 4, "B", "general 1, pay 1", "ann bob"},
		{"areas set, moved and removed", bob + " -> A: room pay bob, area src pay -> A: area src general -> A: no-area src general", "", "", 4, "A", "general 1, pay 1", "ann bob"},
		{"an epoch begun", bob + " -> A: epoch general", "", "", 2, "B", "general 2", "ann bob"},
		{"an admin named and dismissed", bob + " -> A: room pay ann -> A: admin bob -> B: dismiss ann", "", "", 4, "B", "general 1, pay 1", "ann bob"},
		{"a repository, a log retired, a minimum version", bob + " -> A: repository x -> A: expel bob -> A: retire B -> A: minimum 1", "", "", 5, "A", "general 2", "ann"},

		{"a member adds a member", bob, "B: member eve", "signer", 1, "", "", ""},
		{"a member adds another's device", bob, "B: device ann C", "signer", 1, "", "", ""},
		{"a removed device signs", bob + " -> A: remove B", "B: device bob C", "signer", 2, "", "", ""},
		{"an admin named in the same entry signs too early", bob, "B: admin bob, member eve", "signer", 1, "", "", ""},
		{"an invitation does something else", invited, "P: device bob C", "signer", 1, "", "", ""},
		{"an invitation joins for another", invited, "A: join P new B", "signer", 1, "", "", ""},
		{"an invitation used twice", invited + " -> P: join P new B", "P: join P new C", "signer", 2, "", "", ""},
		{"an expired invitation", invited, "P: at 1700000009000, join P new B", "state", 1, "", "", ""},
		{"an epoch of a room that the signer is not in", bob + " -> A: room pay ann", "B: remove B, epoch pay", "signer", 2, "", "", ""},
		{"a removal without a new epoch", bob, "A: expel bob, bare", "no-epoch", 1, "", "", ""},
		{"a room without an epoch", bob, "A: room pay bob, bare", "no-epoch", 1, "", "", ""},
		{"a removal without key files", bob, "A: remove B, keyless", "no-key-file", 1, "", "", ""},
		{"a removal without a link file", bob, "A: remove B, linkless", "files", 1, "", "", ""},
		{"a grant without a key file", bob + " -> A: room pay ann", "A: grant pay bob, keyless", "no-key-file", 2, "", "", ""},
		{"the last admin device removed", bob, "A: remove A", "no-admin", 1, "", "", ""},
		{"a removed key again", bob + " -> A: remove B", "A: device bob B", "state", 2, "", "", ""},
		{"a cut of another device's log", bob, "A: remove B A.1.1", "state", 1, "", "", ""},
		{"two epochs of a room at once", bob, "A: epoch general, epoch general", "state", 1, "", "", ""},
		{"an admin loses a room", bob + " -> A: room pay bob -> A: admin bob", "A: revoke pay bob", "state", 3, "", "", ""},
		{"a log retired whose device is in the team", bob, "A: retire B", "state", 1, "", "", ""},
		{"all or none", bob, "A: member eve, member eve", "state", 1, "", "", ""},
	} {
		d := draw(t, c.chain)
		chain := d.chain
		if c.last != "" {
			commit, err := d.step(c.last)
			if err == nil {
				t.Errorf("%q was taken", c.last)
			}
			chain = append(slices.Clip(chain), commit)
		}
		team := sha256.Sum256(chain[0].Entry)
		v := rosterVector{Name: c.name, Team: team[:], Head: c.head, Error: c.fault}
		device := d.device("A")
		if c.device != "" {
			device = d.device(c.device)
		}
		v.Device, v.Identity = device.ID[:], device.Age.String()
		if c.fault != "" {
			v.Step = "chain"
		}
		for _, part := range strings.Split(c.opens, ", ") {
			var room string
			var epochs uint64
			if _, err := fmt.Sscan(part, &room, &epochs); err != nil {
				continue
			}
			for n := range epochs {
				key := d.keys[RoomEpoch{d.room(room), n + 1}]
				v.Epochs = append(v.Epochs, epochVector{key.Room[:], key.Number, key.text})
			}
		}
		if c.names == "-" { // what came after it left
			v.Step, v.Error = "names", "identity"
		}
		for _, name := range strings.Fields(c.names) {
			if v.Names == nil {
				v.Names = map[string]string{}
			}
			if name != "-" {
				v.Names[d.hex(name)] = name
			}
		}
		for _, commit := range chain {
			cv := commitVector{Entry: commit.Entry, Files: map[string]hexBytes{}}
			for name, data := range commit.Files {
				cv.Files[name] = data
			}
			v.Chain = append(v.Chain, cv)
		}
		vectors = append(vectors, v)
	}
	return vectors
}

// spell is the fingerprint's spelling, by the book: as a row of bits, cut into 4, 2, 4, 2, 4.
func spell(b []byte) string {
	var bits string
	for _, c := range b {
		bits += fmt.Sprintf("%08b", c)
	}
	var words []string
	for len(bits) > 0 {
		word := ""
		for _, n := range []int{4, 2, 4, 2, 4} {
			i, err := strconv.ParseUint(bits[:n], 2, 8)
			if err != nil {
				panic(err)
			}
			word += string(map[int]string{4: "bdfghjklmnprstvz", 2: "aiou"}[n][i])
			bits = bits[n:]
		}
		words = append(words, word)
	}
	return strings.Join(words, "-")
}

func makeRequestVectors(t *testing.T) []requestVector {
	d := draw(t, "A: team -> A: epoch general")
	general, device, thief := d.keys[RoomEpoch{d.state.General, 2}], d.device("B"), d.device("C")
	var vectors []requestVector
	add := func(name, step, fault string, change func(payload, text intMap), signer *Device, kid DeviceID, context signingContext) {
		text := intMap{1: "Bob", 2: "bob@example.org", 3: "laptop"}
		payload := intMap{
			1: uint64(1), 2: d.state.Team[:], 3: []byte(device.Sign.Public().(ed25519.PublicKey)), 4: device.Age.Recipient().String(),
			5: uint64(1_700_000_000_000), 6: uint64(2),
		}
		change(payload, text)
		digest, moved := payload[99], false
		delete(payload, 99)
		if digest != nil {
			moved = true
		}
		rest := sha256.Sum256(encodeCBOR(payload))
		if moved {
			rest[0] ^= 1
		}
		if _, there := payload[7]; !there {
			sealed, err := seal(general.read.Load().Recipient(), encodeCBOR(intMap{1: rest[:], 2: text}))
			if err != nil {
				t.Fatal(err)
			}
			payload[7] = sealed
		}
		data, err := sign(signer.Sign, context, encodeCBOR(map[any]any{1: algorithmEdDSA, 4: kid[:]}), encodeCBOR(payload))
		if err != nil {
			t.Fatal(err)
		}
		vectors = append(vectors, requestVector{
			Name: name, Team: d.state.Team[:], Open: []epochVector{{general.Room[:], 2, general.text}}, Request: data, Step: step, Error: fault,
		})
	}
	plain := func(name, step, fault string, change func(payload, text intMap)) {
		add(name, step, fault, change, device, device.ID, requestContext)
	}
	nothing := func(payload, text intMap) {}
	plain("a request", "", "", nothing)
	vectors[0].Device, vectors[0].Time = device.ID[:], 1_700_000_000_000
	vectors[0].Who = map[string]string{"name": "Bob", "address": "bob@example.org", "label": "laptop"}
	sum := sha256.Sum256(slices.Concat([]byte("knoot/request/1\x00"), d.state.Team[:], device.Sign.Public().(ed25519.PublicKey), []byte(device.Age.Recipient().String())))
	vectors[0].Words = spell(sum[:8])

	plain("of version 2", "parse", "newer", func(p, _ intMap) { p[1] = uint64(2) })
	plain("with key 8", "parse", "newer", func(p, _ intMap) { p[8] = true })
	plain("without a time", "parse", "missing", func(p, _ intMap) { delete(p, 5) })
	plain("for another team", "parse", "request", func(p, _ intMap) { p[2] = make([]byte, 32) })
	plain("recipient cut short", "parse", "recipient", func(p, _ intMap) { p[4] = p[4].(string)[:1_958] })
	plain("over 16 KiB", "parse", "too-large", func(p, _ intMap) { p[64] = make([]byte, 16<<10) })
	add("signed by another", "parse", "signature", nothing, thief, device.ID, requestContext)
	add("kid of another", "parse", "key-id", nothing, thief, thief.ID, requestContext)
	add("signed as a roster entry", "parse", "signature", nothing, device, device.ID, rosterContext)
	plain("texts of another request", "open", "moved", func(p, _ intMap) { p[99] = true })
	plain("an empty name", "open", "type", func(_, x intMap) { x[1] = "" })
	plain("a name over 256 bytes", "open", "too-large", func(_, x intMap) { x[1] = strings.Repeat("x", 257) })
	plain("texts that are not sealed", "open", "stanza", func(p, _ intMap) { p[7] = []byte("Bob") })
	return vectors
}

func makeLiveVectors(t *testing.T, x *fixture) []liveVector {
	key, thief := x.ring[RoomEpoch{x.roster.General, 1}], newDevice(t)
	full := intMap{1: uint64(1), 2: x.team[:], 3: x.repository[:], 4: x.roster.General[:], 5: uint64(1), 6: id16(6), 7: uint64(ClaimAcquired), 8: uint64(1_700_000_000_000 << 10),
		9: uint64(1_700_000_000_000)}
	text := encodeCBOR(intMap{1: []byte("src/auth.js"), 2: "refs/heads/main"})
	var vectors []liveVector
	add := func(name, step, fault string, data []byte, open epochVector) {
		vectors = append(vectors, liveVector{Name: name, Live: data, Key: hexBytes(publicKey(x.device)), Open: open, Step: step, Error: fault})
	}
	open := epochVector{key.Room[:], 1, key.text}
	forged := func(header intMap, signer *Device, kid DeviceID, context signingContext, spoil func([]byte)) []byte {
		live, err := key.LiveKey(x.team)
		if err != nil {
			t.Fatal(err)
		}
		aead, err := chacha20poly1305.NewX(live[:])
		if err != nil {
			t.Fatal(err)
		}
		protected := encodeCBOR(map[any]any{labelAlgorithm: algorithmEdDSA, labelKeyID: kid[:], labelLive: header})
		nonce := id16(9)
		nonce = append(nonce, nonce[:8]...)
		sealed := aead.Seal(nonce, nonce, text, protected)
		if spoil != nil {
			spoil(sealed)
		}
		data, err := sign(signer.Sign, context, protected, sealed)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	ours := func(header intMap) []byte { return forged(header, x.device, x.device.ID, liveContext, nil) }
	add("a live payload", "", "", ours(full), open)
	vectors[0].Header = &liveHeaderVector{Device: x.device.ID[:], Team: x.team[:], Repository: x.repository[:], Session: id16(6), Kind: uint64(ClaimAcquired),
		Counter: 1_700_000_000_000 << 10, Time: 1_700_000_000_000}
	vectors[0].Text = text
	add("with a key that may be ignored", "", "", ours(with(full, 64, true)), open)
	vectors[1].Text = text
	add("of version 2", "parse", "newer", ours(with(full, 1, uint64(2))), open)
	add("with key 10", "parse", "newer", ours(with(full, 10, true)), open)
	for k := uint64(1); k <= 9; k++ {
		add(fmt.Sprintf("without key %d", k), "parse", "missing", ours(without(full, k)), open)
	}
	add("with counter 0", "parse", "value", ours(with(full, 8, uint64(0))), open)
	add("with half a token", "parse", "type", ours(with(full, 6, id16(6)[:8])), open)
	add("over 48 KiB", "parse", "too-large", make([]byte, maxLive+1), open)
	add("signed by another", "open", "signature", forged(full, thief, x.device.ID, liveContext, nil), open)
	add("kid of another", "open", "key-id", forged(full, thief, thief.ID, liveContext, nil), open)
	add("signed as a grant", "open", "signature", forged(full, x.device, x.device.ID, grantContext, nil), open)
	add("for another epoch", "open", "epoch", ours(with(full, 5, uint64(2))), open)
	add("for another room", "open", "epoch", ours(with(full, 4, id16(4)[:8])), open)
	add("with a byte of the ciphertext changed", "open", "seal", forged(full, x.device, x.device.ID, liveContext, func(b []byte) { b[30] ^= 1 }), open)
	add("under another key", "open", "seal", ours(full), epochVector{key.Room[:], 1, thief.Age.String()})
	return vectors
}

func makeGrantVectors(t *testing.T, x *fixture) []grantVector {
	relay, other := newDevice(t), newDevice(t)
	full := intMap{1: uint64(1), 2: x.team[:], 3: x.repository[:], 4: id16(4), 5: x.device.ID[:], 6: id16(6), 7: id16(7), 8: id16(8), 9: id16(9), 10: uint64(1),
		11: uint64(1_700_000_000), 12: uint64(12), 13: uint64(1_700_000_600_000)}
	var vectors []grantVector
	add := func(name, fault string, payload intMap, signer *Device, kid DeviceID, context signingContext) {
		data, err := sign(signer.Sign, context, encodeCBOR(map[any]any{labelAlgorithm: algorithmEdDSA, labelKeyID: kid[:]}), encodeCBOR(payload))
		if err != nil {
			t.Fatal(err)
		}
		v := grantVector{Name: name, Grant: data, Relay: hexBytes(publicKey(relay)), Error: fault}
		if fault == "" {
			v.Means = map[string]string{"team": x.team.String(), "repository": x.repository.String(), "claim": hex.EncodeToString(id16(4)), "device": x.device.ID.String(),
				"session": hex.EncodeToString(id16(6)), "path": hex.EncodeToString(id16(7)), "branch": hex.EncodeToString(id16(8)),
				"worktree": hex.EncodeToString(id16(9)), "class": "1", "term": "1700000000", "seq": "12", "until": "1700000600000"}
		}
		vectors = append(vectors, v)
	}
	ours := func(name, fault string, payload intMap) { add(name, fault, payload, relay, relay.ID, grantContext) }
	ours("a grant", "", full)
	ours("with a key that may be ignored", "", with(full, 64, true))
	ours("of version 2", "newer", with(full, 1, uint64(2)))
	ours("with key 14", "newer", with(full, 14, true))
	ours("of a class of later", "newer", with(full, 10, uint64(4)))
	for k := uint64(1); k <= 13; k++ {
		ours(fmt.Sprintf("without key %d", k), "missing", without(full, k))
	}
	ours("with half a token", "type", with(full, 7, id16(7)[:8]))
	ours("over 1 KiB", "too-large", with(full, 64, make([]byte, maxGrant)))
	add("signed by another", "signature", full, other, relay.ID, grantContext)
	add("of another relay", "key-id", full, other, other.ID, grantContext)
	add("signed as a live payload", "signature", full, relay, relay.ID, liveContext)
	return vectors
}
