package gitlog

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
)

const (
	segmentVersion = 1

	maxHeader      = 32 << 10 // bytes of a complete protected header
	maxHeaderFirst = 96 << 10 // the same in the first file of a generation's first segment
	maxRooms       = 256
	maxSeen        = 256
	maxSeenFirst   = 1_024 // in a generation's first segment
	maxEntries     = 4_096 // in one file
)

// Header says what a segment file is and where it belongs. All files of one segment have the same header but for
// Room, Epoch, Count and Seen.
type Header struct {
	Version    uint64
	Team       TeamID
	Repository RepositoryID
	Writer     WriterID
	Kind       LogKind
	Generation uint64 // from 1
	Seq        uint64 // from 1, through all generations
	Room       RoomID
	Epoch      uint64     // of the room's key, from 1
	Roster     RosterHead // what the writer went by; never decreases in a log
	Count      uint64     // entries in this file
	Created    Millis
	Prev       Digest // of segment Seq-1; zero at Seq 1
	Rooms      []RoomID
	Seen       []Tip       // in the first room's file only
	Checkpoint *Checkpoint // nil: none
}

// RosterHead is a place in the roster's chain.
type RosterHead struct {
	Seq  uint64
	Hash Digest
}

// Tip is another log's newest segment, as read from a host.
type Tip struct {
	Writer     WriterID
	Kind       LogKind
	Generation uint64
	Seq        uint64
	Segment    Digest
}

// Checkpoint is a segment's place among those that carry over what a writer's earlier generations held. Index runs
// from 1 to Total; the checkpoint is complete when all are there.
type Checkpoint struct {
	Index, Total uint64
}

func (t *Tip) encode() []any {
	return []any{t.Writer[:], uint64(t.Kind), t.Generation, t.Seq, t.Segment[:]}
}

// encode also sorts Rooms and Seen, in place.
func (h *Header) encode() intMap {
	slices.SortFunc(h.Rooms, func(a, b RoomID) int { return bytes.Compare(a[:], b[:]) })
	slices.SortFunc(h.Seen, func(a, b Tip) int { return bytes.Compare(encodeCBOR(a.encode()), encodeCBOR(b.encode())) })
	rooms := make([]any, len(h.Rooms))
	for i := range h.Rooms {
		rooms[i] = h.Rooms[i][:]
	}
	seen := make([]any, len(h.Seen))
	for i := range h.Seen {
		seen[i] = h.Seen[i].encode()
	}
	m := intMap{
		1: h.Version, 2: h.Team[:], 3: h.Repository[:], 4: h.Writer[:], 5: uint64(h.Kind), 6: h.Generation, 7: h.Seq,
		8: h.Room[:], 9: h.Epoch, 10: []any{h.Roster.Seq, h.Roster.Hash[:]}, 11: h.Count, 12: uint64(h.Created),
		14: rooms,
	}
	if h.Seq > 1 {
		m[13] = h.Prev[:]
	}
	m.set(15, seen)
	if h.Checkpoint != nil {
		m[16] = []any{h.Checkpoint.Index, h.Checkpoint.Total}
	}
	return m
}

// readHeader reads a header. With an error that wraps ErrNewer the header is there as well, as far as chaining goes:
// Writer, Kind, Generation, Seq, Prev, Room and Rooms are right, anything else may be zero.
func readHeader(v any) (*Header, error) {
	f, err := openFields(v, "segment header")
	if err != nil {
		return nil, err
	}
	h := &Header{
		Kind:       LogKind(f.uint(5, 1)),
		Generation: f.uint(6, 1),
		Seq:        f.uint(7, 1),
	}
	f.fixed(4, h.Writer[:])
	f.fixed(8, h.Room[:])
	if h.Seq > 1 {
		f.fixed(13, h.Prev[:])
	} else if _, ok := f.get(13); ok {
		f.fail(13, fmt.Errorf("there is none before segment 1: %w", errValue))
	}
	f.readRooms(h)
	if f.odd != nil {
		return nil, f.odd
	}
	if h.Version = f.uint(1, 1); h.Version > segmentVersion {
		f.newer(1, h.Version)
	}
	if h.Kind > AuditLog {
		f.newer(5, uint64(h.Kind))
	}
	f.fixed(2, h.Team[:])
	f.fixed(3, h.Repository[:])
	h.Epoch = f.uint(9, 1)
	if l := f.tuple(10, f.list(10), 2); l != nil {
		h.Roster.Seq = f.asUint(10, l[0], 0)
		f.asFixed(10, l[1], h.Roster.Hash[:])
	}
	if h.Count = f.uint(11, 0); h.Count > maxEntries {
		f.fail(11, fmt.Errorf("%d entries: %w of %d", h.Count, errTooLarge, maxEntries))
	}
	h.Created = f.millis(12)
	f.readSeen(h)
	if l := f.listIf(16); l != nil {
		if l = f.tuple(16, l, 2); l != nil {
			h.Checkpoint = &Checkpoint{Index: f.asUint(16, l[0], 1), Total: f.asUint(16, l[1], 1)}
			if h.Checkpoint.Index > h.Checkpoint.Total {
				f.fail(16, errValue)
			}
		}
	}
	err = f.finish()
	if err != nil && !errors.Is(err, ErrNewer) {
		return nil, err
	}
	return h, err
}

func (f *fields) readRooms(h *Header) {
	l := f.list(14)
	if len(l) == 0 || len(l) > maxRooms {
		f.fail(14, fmt.Errorf("%d rooms, 1 to %d are allowed: %w", len(l), maxRooms, errTooLarge))
		return
	}
	for _, v := range l {
		var room RoomID
		f.asFixed(14, v, room[:])
		h.Rooms = append(h.Rooms, room)
	}
	f.sorted(14, encodeEach(l))
	if !slices.Contains(h.Rooms, h.Room) {
		f.fail(14, fmt.Errorf("the file's room %s is not among them: %w", h.Room, errRooms))
	}
}

func (f *fields) readSeen(h *Header) {
	l := f.listIf(15)
	if len(l) > 0 && h.Room != h.Rooms[0] {
		f.fail(15, errSeen)
	}
	if len(l) > maxSeenFirst {
		f.fail(15, fmt.Errorf("%d tips: %w of %d", len(l), errTooLarge, maxSeenFirst))
		return
	}
	for _, v := range l {
		p := f.tuple(15, v, 5)
		if p == nil {
			return
		}
		t := Tip{Kind: LogKind(f.asUint(15, p[1], 1)), Generation: f.asUint(15, p[2], 1), Seq: f.asUint(15, p[3], 1)}
		f.asFixed(15, p[0], t.Writer[:])
		f.asFixed(15, p[4], t.Segment[:])
		h.Seen = append(h.Seen, t)
	}
	f.sorted(15, encodeEach(l))
}

// sharedFields encodes what all files of a segment have in common: the header without keys 8, 9, 11 and 15, with
// whatever keys a newer version added.
func sharedFields(v any) []byte {
	m, _ := v.(map[any]any)
	shared := make(map[any]any, len(m))
	for k, e := range m {
		switch k {
		case uint64(8), uint64(9), uint64(11), uint64(15):
		default:
			shared[k] = e
		}
	}
	return encodeCBOR(shared)
}
