package gitlog

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/fxamacker/cbor/v2"
)

// A segment is one file a room: a COSE_Sign1 object whose payload is an age file sealed to the room's epoch. Anybody
// can check one without a key; opening it compares what the seal holds with what the signature says.

const (
	maxSegmentFile = 1 << 20

	segmentContentType = "application/age"
	labelHeader        = "knoot"
)

var (
	errRooms  = errors.New("its files do not match its list of rooms")
	errSeen   = errors.New("lists what was seen in another file than its first room's")
	errFields = errors.New("its files disagree about what they belong to")
	errMoved  = errors.New("holds text that was sealed for another place")
	errCount  = errors.New("does not hold as many entries as it says")
	errAuthor = errors.New("holds an entry of somebody else")
	errEpoch  = errors.New("is sealed to another epoch than this key's")
)

// Part is one room's share of a segment to be.
type Part struct {
	Epoch   *Epoch // what it is sealed to
	Entries []*Entry
}

// SealSegment makes a segment's files, by room. Of the header it fills Version, Room, Epoch, Count and Rooms, and it
// puts Seen into the first room's file; the device must be the writer's. first says that the segment begins a
// generation. Entries get their bytes and ids. A segment has at least one room, and a room may have no entries.
func SealSegment(header Header, parts map[RoomID]Part, device *Device, first bool) (map[RoomID][]byte, *Segment, error) {
	header.Version = segmentVersion
	header.Rooms = make([]RoomID, 0, len(parts))
	for room := range parts {
		header.Rooms = append(header.Rooms, room)
	}
	slices.SortFunc(header.Rooms, func(a, b RoomID) int { return bytes.Compare(a[:], b[:]) })
	seen := slices.Clone(header.Seen)
	files := make(map[RoomID][]byte, len(parts))
	for i, room := range header.Rooms {
		h := header
		h.Room, h.Epoch, h.Count, h.Seen = room, parts[room].Epoch.Number, uint64(len(parts[room].Entries)), nil
		if i == 0 {
			h.Seen = seen
		}
		file, err := sealFile(&h, parts[room], device)
		if err != nil {
			return nil, nil, fmt.Errorf("room %s: %w", room, err)
		}
		files[room] = file
	}
	// Read back: what this version would refuse is never written.
	segment, err := ParseSegment(files, first)
	if err != nil {
		return nil, nil, fmt.Errorf("this segment cannot be stored: %w", err)
	}
	return files, segment, nil
}

func sealFile(h *Header, part Part, device *Device) ([]byte, error) {
	protected := encodeProtected(h, device.ID)
	digest := sha256.Sum256(protected)
	entries := make([]any, len(part.Entries))
	for i, e := range part.Entries {
		if e.Author != device.ID {
			return nil, fmt.Errorf("entry %d: %w", i, errAuthor)
		}
		if err := e.encode(h.Team, h.Repository); err != nil {
			return nil, fmt.Errorf("entry %d: %w", i, err)
		}
		entries[i] = cbor.RawMessage(e.raw)
	}
	to, err := part.Epoch.sealsTo()
	if err != nil {
		return nil, err
	}
	sealed, err := seal(to, encodeCBOR(intMap{1: digest[:], 2: entries}))
	if err != nil {
		return nil, err
	}
	return sign(device.Sign, segmentContext, protected, sealed)
}

func encodeProtected(h *Header, kid DeviceID) []byte {
	return encodeCBOR(map[any]any{
		labelAlgorithm: algorithmEdDSA, labelContentType: segmentContentType, labelKeyID: kid[:], labelHeader: h.encode(),
	})
}

// SegmentFile is one room's file, taken apart and not opened.
type SegmentFile struct {
	*Header
	Signer DeviceID
	// Newer is nil, or wraps ErrNewer for a file to keep, chain and count, and not to open. Of the header Writer,
	// Kind, Generation, Seq, Prev, Room and Rooms are right then, and the rest may be zero.
	Newer error
	// Digest is the SHA-256 of the file.
	Digest Digest

	signed *signed
	fields any // the header as decoded
}

// ParseSegmentFile checks all of a file that can be checked without a key: form, limits, whose it says it is. It
// does not check the signature: see Verify. first says that the segment begins a generation. An error that wraps
// ErrNewer means that not even the signature could be checked.
func ParseSegmentFile(data []byte, first bool) (*SegmentFile, error) {
	if len(data) > maxSegmentFile {
		return nil, fmt.Errorf("a file of %d bytes: %w of %d", len(data), errTooLarge, maxSegmentFile)
	}
	s, err := parseSigned(data)
	if err != nil {
		return nil, err
	}
	if len(s.protected) > maxHeaderFirst {
		return nil, fmt.Errorf("a header of %d bytes: %w of %d", len(s.protected), errTooLarge, maxHeaderFirst)
	}
	v, err := decodeStrict(s.protected)
	if err != nil {
		return nil, fmt.Errorf("protected header: %w", err)
	}
	file := &SegmentFile{Digest: sha256.Sum256(data), signed: s}
	header, err := file.readProtected(v)
	if err != nil {
		return nil, err
	}
	file.fields = header
	file.Header, err = readHeader(header)
	switch {
	case errors.Is(err, ErrNewer):
		file.Newer = cmp.Or(file.Newer, err)
	case err != nil:
		return nil, err
	}
	if file.Writer.Device() != file.Signer {
		return nil, fmt.Errorf("writer %s, signed by %s: %w", file.Writer, file.Signer, errKeyID)
	}
	if file.Newer != nil {
		return file, nil
	}
	limit, tips := maxHeader, maxSeen
	if first {
		tips = maxSeenFirst
		if file.Room == file.Rooms[0] {
			limit = maxHeaderFirst
		}
	}
	if len(s.protected) > limit {
		return nil, fmt.Errorf("a header of %d bytes: %w of %d", len(s.protected), errTooLarge, limit)
	}
	if len(file.Seen) > tips {
		return nil, fmt.Errorf("%d tips: %w of %d", len(file.Seen), errTooLarge, tips)
	}
	if err := checkStanza(s.payload); err != nil {
		return nil, err
	}
	return file, nil
}

// readProtected reads the labels around the header. An unknown one below 64 is as critical as a header's key.
func (file *SegmentFile) readProtected(v any) (header any, err error) {
	m, ok := v.(map[any]any)
	if !ok {
		return nil, fmt.Errorf("protected header: %w: want a map", errType)
	}
	header, ok = m[labelHeader]
	if !ok {
		return nil, fmt.Errorf("protected header, %q: %w", labelHeader, errMissing)
	}
	delete(m, labelHeader)
	f := &fields{what: "protected header", m: m}
	if file.Signer, err = readSigner(f); err != nil {
		return nil, err
	}
	if contentType := f.text(labelContentType); f.odd == nil && contentType != segmentContentType {
		f.fail(labelContentType, errValue)
	}
	err = f.finish()
	if errors.Is(err, ErrNewer) {
		file.Newer, err = err, nil
	}
	return header, err
}

// Verify checks the signature against the key that the roster has for the writer's device.
func (file *SegmentFile) Verify(key ed25519.PublicKey) error {
	if DeviceIDOf(key) != file.Signer {
		return fmt.Errorf("signed by %s: %w", file.Signer, errKeyID)
	}
	return file.signed.verify(key, segmentContext)
}

// Open opens a file that was verified, and returns its entries. They share the opened text's memory.
func (file *SegmentFile) Open(key *EpochKey) ([]*Entry, error) {
	if file.Newer != nil {
		return nil, file.Newer
	}
	if (RoomEpoch{file.Room, file.Epoch}) != key.RoomEpoch {
		return nil, fmt.Errorf("room %s, epoch %d: %w", file.Room, file.Epoch, errEpoch)
	}
	v, item, err := key.open(file.signed.payload)
	if err != nil {
		return nil, err
	}
	f, err := openFields(v, "sealed text")
	if err != nil {
		return nil, err
	}
	var digest Digest
	f.fixed(1, digest[:])
	list := f.list(2)
	if err := f.finish(); err != nil {
		return nil, err
	}
	if digest != sha256.Sum256(file.signed.protected) {
		return nil, errMoved
	}
	if uint64(len(list)) != file.Count {
		return nil, fmt.Errorf("%d entries, the header says %d: %w", len(list), file.Count, errCount)
	}
	var raw struct {
		Entries []cbor.RawMessage `cbor:"2,keyasint"`
	}
	if err := cborDecoding.Unmarshal(item, &raw); err != nil {
		return nil, cborError(err)
	}
	entries := make([]*Entry, len(list))
	for i := range list {
		e, err := newEntry(list[i], raw.Entries[i], file.Team, file.Repository)
		if err != nil {
			return nil, fmt.Errorf("entry %d: %w", i, err)
		}
		if e.Author != file.Signer {
			return nil, fmt.Errorf("entry %d: %w", i, errAuthor)
		}
		entries[i] = e
	}
	return entries, nil
}

// Segment is a whole segment, taken apart and not opened.
type Segment struct {
	Files  []*SegmentFile // in room order, at least one
	Digest Digest         // of the files' digests, in room order
}

// Header is the first file's: of the others only Room, Epoch, Count and Seen differ.
func (s *Segment) Header() *Header { return s.Files[0].Header }

// Newer returns nil, or an error wrapping ErrNewer if one of the files is from a newer version: the segment is then
// kept, chained and counted; files that are not newer may be opened.
func (s *Segment) Newer() error {
	for _, f := range s.Files {
		if f.Newer != nil {
			return f.Newer
		}
	}
	return nil
}

// File returns a room's file, or nil.
func (s *Segment) File(room RoomID) *SegmentFile {
	for _, f := range s.Files {
		if f.Room == room {
			return f
		}
	}
	return nil
}

// ParseSegment checks all of a segment that can be checked without a key, given its files by the room that each is
// named for. See ParseSegmentFile.
func ParseSegment(files map[RoomID][]byte, first bool) (*Segment, error) {
	if len(files) == 0 {
		return nil, fmt.Errorf("no file: %w", errRooms)
	}
	s := &Segment{}
	for room, data := range files {
		file, err := ParseSegmentFile(data, first)
		if err != nil {
			return nil, fmt.Errorf("room %s: %w", room, err)
		}
		if file.Room != room {
			return nil, fmt.Errorf("the file of room %s says room %s: %w", room, file.Room, errRooms)
		}
		s.Files = append(s.Files, file)
	}
	slices.SortFunc(s.Files, func(a, b *SegmentFile) int { return bytes.Compare(a.Room[:], b.Room[:]) })
	digests := sha256.New()
	shared := sharedFields(s.Files[0].fields)
	for i, f := range s.Files {
		digests.Write(f.Digest[:])
		if i > 0 && (f.Signer != s.Files[0].Signer || !bytes.Equal(sharedFields(f.fields), shared)) {
			return nil, fmt.Errorf("rooms %s and %s: %w", s.Files[0].Room, f.Room, errFields)
		}
	}
	if len(s.Header().Rooms) != len(s.Files) { // each file's room is in the list, which is the same in all
		return nil, fmt.Errorf("%d files, %d rooms: %w", len(s.Files), len(s.Header().Rooms), errRooms)
	}
	s.Digest = Digest(digests.Sum(nil))
	return s, nil
}

// Verify checks the signatures of all files.
func (s *Segment) Verify(key ed25519.PublicKey) error {
	for _, f := range s.Files {
		if err := f.Verify(key); err != nil {
			return fmt.Errorf("room %s: %w", f.Room, err)
		}
	}
	return nil
}
