package gitlog

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// An entry put together byte by byte from the grammar, to check encoder and id against something else than each other.
func TestEntryByHand(t *testing.T) {
	raw := unhex(t, strings.Join([]string{
		"a5",                                     // five pairs
		"0104",                                   // 1: kind 4, tombstone
		"021b0000018bcfe56800",                   // 2: 1,700,000,000,000 ms
		"03480102030405060708",                   // 3: nonce
		"0450a0a1a2a3a4a5a6a7a8a9aaabacadaeaf",   // 4: author
		"05a3",                                   // 5: three pairs
		"0167726574726965" + "73",                // 1: "retries"
		"026577726f6e67",                         // 2: "wrong"
		"038150b0b1b2b3b4b5b6b7b8b9babbbcbdbebf", // 3: one target
	}, ""))
	e := &Entry{
		Kind: KindTombstone, Time: 1_700_000_000_000, Nonce: [8]byte{1, 2, 3, 4, 5, 6, 7, 8},
		Tombstone: &Tombstone{Name: "retries", Reason: "wrong", Targets: []EntryID{{}}},
	}
	for i := range 16 {
		e.Author[i], e.Tombstone.Targets[0][i] = 0xa0+byte(i), 0xb0+byte(i)
	}
	team, repository := TeamID{1: 1}, RepositoryID{2: 2}
	if err := e.encode(team, repository); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(e.Raw(), raw) {
		t.Fatalf("%x, want %x", e.Raw(), raw)
	}
	hash := sha256.New()
	hash.Write([]byte{'k', 'n', 'o', 'o', 't', '/', 'e', 'n', 't', 'r', 'y', '/', '1', 0})
	hash.Write(team[:])
	hash.Write(repository[:])
	hash.Write(raw)
	if id := e.ID(); !bytes.Equal(id[:], hash.Sum(nil)[:16]) {
		t.Errorf("id %s, want %x", id, hash.Sum(nil)[:16])
	}
}

func optional[T any](g *rapid.Generator[T]) *rapid.Generator[T] {
	return rapid.Custom(func(t *rapid.T) (v T) {
		if rapid.Bool().Draw(t, "there") {
			v = g.Draw(t, "value")
		}
		return v
	})
}

func drawBytes(t *rapid.T, what string, n int) []byte {
	return rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, what)
}

func objectID(t *rapid.T) []byte {
	switch rapid.IntRange(0, 2).Draw(t, "object") {
	case 0:
		return nil
	case 1:
		return drawBytes(t, "sha1", 20)
	}
	return drawBytes(t, "sha256", 32)
}

func drawPath(t *rapid.T) string {
	raw := rapid.SliceOfN(rapid.SampledFrom([]byte("abAB/.\xe9\xc3\xa9e\xcc\x81\\*")), 0, 12).Draw(t, "path")
	p, err := CanonicalPath(strings.Trim(string(raw), "/"))
	if err != nil {
		return "plain"
	}
	return p
}

func drawFactPaths(t *rapid.T) []FactPath {
	var paths []FactPath
	used := map[string]bool{}
	for range rapid.IntRange(0, 4).Draw(t, "paths") {
		p := FactPath{Path: drawPath(t)}
		if used[p.Path] {
			continue
		}
		used[p.Path] = true
		if p.Glob = rapid.Bool().Draw(t, "glob"); !p.Glob {
			p.Blob = objectID(t)
			if rapid.Bool().Draw(t, "anchored") {
				p.Lines = &LineAnchor{First: rapid.Uint64Range(1, 1000).Draw(t, "first"), Digest: Digest(drawBytes(t, "lines", 32))}
				p.Lines.Last = p.Lines.First + rapid.Uint64Range(0, 1000).Draw(t, "more")
			}
		}
		paths = append(paths, p)
	}
	return paths
}

func drawSession(t *rapid.T) string {
	if !rapid.Bool().Draw(t, "in a session") {
		return ""
	}
	return rapid.StringMatching(`[a-z]{1,8}:[!-~]{1,36}`).Draw(t, "session")
}

func drawIDs(t *rapid.T, least int) []EntryID {
	n := rapid.IntRange(least, 4).Draw(t, "ids")
	return rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) EntryID {
		return EntryID(drawBytes(t, "id", 16))
	}), n, n, rapid.ID).Draw(t, "ids")
}

func drawFact(t *rapid.T, kind EntryKind) *Fact {
	name, err := CanonicalName(rapid.String().Draw(t, "name"))
	if err != nil {
		name = "plain"
	}
	f := &Fact{
		Name: name, Text: rapid.String().Draw(t, "text"), Paths: drawFactPaths(t), Branch: optional(rapid.String()).Draw(t, "branch"),
		Commit: objectID(t), Depth: 1, By: rapid.SampledFrom([]WrittenBy{ByPerson, ByAgent}).Draw(t, "by"),
		Session: drawSession(t), Pinned: rapid.Bool().Draw(t, "pinned"),
	}
	if kind == KindConfirmation {
		id := EntryID(drawBytes(t, "confirmed", 16))
		f.Confirms, f.Supersedes = &id, []EntryID{id}
	} else if ids := drawIDs(t, 0); len(ids) > 0 {
		f.Supersedes = ids
	}
	if f.Supersedes != nil {
		f.Depth = rapid.Uint64Min(2).Draw(t, "depth")
	}
	if f.Paths == nil && rapid.Bool().Draw(t, "about an area") {
		f.Area = &AreaID{1, 2}
	}
	return f
}

func drawEvent(t *rapid.T) *Event {
	e := &Event{
		Late: rapid.Bool().Draw(t, "late"), Agent: rapid.String().Draw(t, "agent"), Session: rapid.String().Draw(t, "session"),
		Subagent: rapid.String().Draw(t, "subagent"), Person: rapid.Bool().Draw(t, "person"), Branch: rapid.String().Draw(t, "branch"),
		Until: Millis(rapid.Uint64Max(maxMillis).Draw(t, "until")), Class: rapid.Uint64Max(lastClass).Draw(t, "class"),
		Reason: rapid.Uint64Max(lastReason).Draw(t, "reason"), Text: rapid.String().Draw(t, "text"),
		OldBranch: rapid.String().Draw(t, "old"), Commit: objectID(t),
	}
	if rapid.Bool().Draw(t, "ordered") {
		e.Order = &Order{[16]byte(drawBytes(t, "sequencer", 16)), rapid.Uint64().Draw(t, "term"), rapid.Uint64().Draw(t, "seq")}
	}
	for _, b := range []*[]byte{&e.Worktree, &e.Claim, &e.Other} {
		if rapid.Bool().Draw(t, "there") {
			*b = drawBytes(t, "bytes", 16)
		}
	}
	for range rapid.IntRange(0, 3).Draw(t, "paths") {
		e.Paths = append(e.Paths, EventPath{drawPath(t), objectID(t)})
	}
	return e
}

func drawEntry(t *rapid.T) *Entry {
	e := &Entry{
		Kind:   rapid.SampledFrom([]EntryKind{KindFact, KindCache, KindPlan, KindTombstone, KindConfirmation, SessionStarted, FileWritten, SessionEnded}).Draw(t, "kind"),
		Time:   Millis(rapid.Uint64Max(maxMillis).Draw(t, "time")),
		Nonce:  [8]byte(drawBytes(t, "nonce", 8)),
		Author: DeviceID(drawBytes(t, "author", 16)),
	}
	switch e.Kind {
	case KindFact, KindCache, KindConfirmation:
		e.Fact = drawFact(t, e.Kind)
	case KindPlan:
		e.Plan = &Plan{Session: drawSession(t), Text: rapid.String().Draw(t, "text"), Derived: rapid.Bool().Draw(t, "derived"), Paths: drawFactPaths(t)}
		if d := rapid.SliceOfN(rapid.String(), 1, 3); rapid.Bool().Draw(t, "decided") {
			e.Plan.Decided = d.Draw(t, "decisions")
		}
	case KindTombstone:
		e.Tombstone = &Tombstone{Reason: rapid.String().Draw(t, "reason"), Targets: drawIDs(t, 1)}
	default:
		e.Event = drawEvent(t)
	}
	return e
}

// What is encoded comes back the same, with the same bytes and id.
func TestEntryRoundTrip(t *testing.T) {
	team, repository := TeamID{1}, RepositoryID{2}
	rapid.Check(t, func(t *rapid.T) {
		e := drawEntry(t)
		if err := e.encode(team, repository); err != nil {
			t.Fatalf("%+v: %v", e, err)
		}
		back, err := decodeEntry(e.Raw(), team, repository)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(back, e) {
			t.Fatalf("%+v became %+v", e, back)
		}
	})
}

// An encoder must refuse what readers would.
func TestEntryEncodeRefuses(t *testing.T) {
	fact := func(change func(f *Fact)) *Entry {
		f := &Fact{Name: "n", Depth: 1, By: ByAgent}
		change(f)
		return &Entry{Kind: KindFact, Fact: f}
	}
	for name, c := range map[string]struct {
		e    *Entry
		want error
	}{
		"no body":               {&Entry{Kind: KindFact}, errType},
		"the body of a plan":    {&Entry{Kind: KindFact, Plan: &Plan{}}, errType},
		"two bodies":            {&Entry{Kind: KindPlan, Plan: &Plan{}, Event: &Event{}}, errType},
		"a kind from later":     {&Entry{Kind: 55, Event: &Event{}}, errType},
		"a name with spaces":    {fact(func(f *Fact) { f.Name = " n" }), errValue},
		"text that is not text": {fact(func(f *Fact) { f.Text = "\xff" }), errUTF8},
		"no depth":              {fact(func(f *Fact) { f.Depth = 0 }), errValue},
		"nobody wrote it":       {fact(func(f *Fact) { f.By = 0 }), errValue},
		"written by 3":          {fact(func(f *Fact) { f.By = 3 }), ErrNewer},
		"an absolute path":      {fact(func(f *Fact) { f.Paths = []FactPath{{Path: "/etc"}} }), errValue},
		"a path twice":          {fact(func(f *Fact) { f.Paths = []FactPath{{Path: "a"}, {Path: "a"}} }), errUnsorted},
		"too much text":         {fact(func(f *Fact) { f.Text = strings.Repeat("x", maxEntry) }), errTooLarge},
	} {
		if err := c.e.encode(TeamID{}, RepositoryID{}); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if c.e.Raw() != nil {
			t.Errorf("%s: has bytes all the same", name)
		}
	}
}

func FuzzDecodeEntry(f *testing.F) {
	for _, b := range [][]byte{
		anEntry(KindFact, fullFact), anEntry(KindConfirmation, confirmation), anEntry(KindPlan, fullPlan),
		anEntry(KindTombstone, fullTombstone), anEntry(SessionStarted, fullEvent), anEntry(99, intMap{1: true}),
	} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		e, err := decodeEntry(raw, TeamID{}, RepositoryID{})
		if err != nil {
			return
		}
		if !bytes.Equal(e.Raw(), raw) {
			t.Error("the bytes did not stay as they were")
		}
		if e.Newer() != nil || hasExtensions(t, raw) {
			return
		}
		again := *e
		again.raw = nil
		if err := again.encode(TeamID{}, RepositoryID{}); err != nil || !bytes.Equal(again.Raw(), raw) {
			t.Errorf("%x was encoded again as %x (%v)", raw, again.Raw(), err)
		}
	})
}

// hasExtensions says whether keys from 64 on are anywhere in an item: those are not in the decoded entry.
func hasExtensions(t *testing.T, raw []byte) bool {
	v, err := decodeStrict(raw)
	if err != nil {
		t.Fatal(err)
	}
	var has func(v any) bool
	has = func(v any) bool {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				if has(e) {
					return true
				}
			}
		case map[any]any:
			for k, e := range v {
				if n, ok := k.(uint64); ok && n >= 64 || has(e) {
					return true
				}
			}
		}
		return false
	}
	return has(v)
}

func TestRawNonceIsTheEntrysWhateverItsKindAndTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := &Entry{Kind: FileWritten, Time: Millis(rapid.Uint64Range(0, maxMillis).Draw(t, "time")), Nonce: [8]byte(rapid.SliceOfN(rapid.Byte(), 8, 8).Draw(t, "nonce")),
			Event: &Event{Agent: "claude", Session: "one"}}
		if rapid.Bool().Draw(t, "tombstone") {
			e.Kind, e.Event, e.Tombstone = KindTombstone, nil, &Tombstone{Targets: []EntryID{{}}}
		}
		if err := e.encode(TeamID{}, RepositoryID{}); err != nil {
			t.Fatal(err)
		}
		if nonce, ok := rawNonce(e.Raw()); !ok || nonce != e.Nonce {
			t.Errorf("%x, %v; want %x", nonce, ok, e.Nonce)
		}
		if nonce, ok := rawNonce(e.Raw()[:rapid.IntRange(0, 12).Draw(t, "cut")]); ok {
			t.Errorf("%x in a stump", nonce)
		}
	})
}
