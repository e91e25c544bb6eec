package gitlog

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/fxamacker/cbor/v2"
)

// A new segment of a memory log also travels through the relay, sealed and signed as it is. What came so and not yet from the
// host is *heard*: judged by the same rules as what the host shows, but for its place in the log, since what stands before it may
// come later, or by the host alone. It becomes one with the host's as soon as that is here, by the ids of its entries; where the
// host never brings it, it lives as long as any entry.
//
// Heard segments are kept beside the clone, as they came, one file each, which is named by the segment's digest:
//
//	<common>/knoot/heard/<64 hex>   CBOR [first sight in ms, [files in room order]]
//
// Nothing is believed for standing there: each is judged again whenever it is read.

// MaxLiveSegment is the size of all files of a segment up to which it travels through a relay; larger ones go by git alone.
const MaxLiveSegment = 32 << 10

const (
	// maxHeard is how many segments of one device wait for the host here. A device that publishes more in the time between two
	// fetches is told from the host.
	maxHeard = 256
	// maxUnconfirmed is how many segments that the host has not confirmed are told to a relay again, the newest.
	maxUnconfirmed = 64
)

// LiveSegment is a segment as it is stored, sealed and signed.
type LiveSegment struct {
	Seq   uint64
	Files [][]byte // in room order
}

// heardSegment is a segment that the host has not brought yet.
type heardSegment struct {
	digest Digest
	device DeviceID
	files  [][]byte
	first  Millis    // when it was heard first
	ids    []EntryID // of the entries that this device can read
}

type heardFile struct {
	_     struct{} `cbor:",toarray"`
	First Millis
	Files [][]byte
}

func (c *Clone) heardFolder() string { return filepath.Join(c.Repo.CommonDir, "knoot", "heard") }

func (c *Clone) heardPath(d Digest) string { return filepath.Join(c.heardFolder(), d.String()) }

// Unconfirmed returns the segments of this clone's memory after a seq which the host has not confirmed, oldest first, and the seq
// of the last segment: what a relay is told. Segments that travel by git alone are left out: those over MaxLiveSegment, and those
// sealed to an epoch that has ended, which are sealed again before they leave.
func (c *Clone) Unconfirmed(ctx context.Context, after uint64) (segments []LiveSegment, last uint64, err error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.remote == nil || c.mayWrite() != nil {
		return nil, after, nil
	}
	tip := c.logs[logKey{ownRefs, c.writer, MemoryLog}]
	if tip.seq <= after {
		return nil, after, nil
	}
	place := refPlace{Log: MemoryLog, Writer: c.writer, Generation: tip.generation}
	hosted, err := openRefs(c.Repo).read(ctx, c.remote.inbox+place.String())
	if err != nil {
		return nil, after, err
	}
	objects, err := c.store(ctx)
	if err != nil {
		return nil, after, err
	}
	commits, reached, err := objects.readChain(ctx, Hash(c.refs[ownRefs+place.String()].Commit), hosted, maxChain)
	if err != nil {
		return nil, after, err
	}
	if !reached {
		return nil, tip.seq, nil // the host's went another way, and what is only here is published again
	}
	for _, commit := range commits[max(0, len(commits)-maxUnconfirmed):] {
		files, err := objects.readFiles(ctx, commit.Tree, fileLimits{Files: maxRooms, Bytes: maxSegmentFile})
		if err != nil {
			return nil, after, err
		}
		rooms, err := filesByRoom(files)
		if err != nil {
			return nil, after, err
		}
		segment, err := ParseSegment(rooms, commit.Parent == "")
		if err != nil {
			return nil, after, err
		}
		if segment.Header().Seq <= after || segment.Newer() != nil || c.hasEnded(segment) {
			continue
		}
		live := LiveSegment{Seq: segment.Header().Seq}
		size := 0
		for _, f := range segment.Files {
			live.Files = append(live.Files, rooms[f.Room])
			size += len(rooms[f.Room])
		}
		if size <= MaxLiveSegment {
			segments = append(segments, live)
		}
	}
	return segments, tip.seq, nil
}

// Hear takes in a segment of another clone's memory that a device sent through a relay, and says whether it holds anything that
// was not here. Errors: ErrRosterBehind where the segment goes by a state of the team that is not here yet, so that it has to be
// asked again once that is; ErrNewer; else why it is refused.
func (c *Clone) Hear(device DeviceID, files [][]byte) (news bool, err error) {
	size := 0
	for _, f := range files {
		size += len(f)
	}
	if size > MaxLiveSegment {
		return false, fmt.Errorf("a segment of %d bytes: %w of %d", size, errTooLarge, MaxLiveSegment)
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	segment, entries, err := c.judgeHeard(files, MillisOf(c.now()))
	if err != nil {
		return false, err
	}
	h := segment.Header()
	if h.Writer.Device() != device {
		return false, fmt.Errorf("the segment is of device %s, and %s sent it: %w", h.Writer.Device(), device, errKeyID)
	}
	if h.Writer == c.writer || h.Seq <= c.heldOf(h).seq || len(entries) == 0 {
		return false, nil // it is here, or nobody here can read it
	}
	waiting := 0
	for _, other := range c.heard {
		if other.digest == segment.Digest {
			return false, nil
		}
		if other.device == device {
			waiting++
		}
	}
	if waiting >= maxHeard {
		return false, fmt.Errorf("%d segments of device %s wait for the host already", waiting, device)
	}
	heard := newHeardSegment(segment, files, entries)
	if err := c.keepHeard(heard); err != nil {
		return false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = append(c.heard, heard)
	for _, s := range entries {
		news = news || c.entries[s.ID()] == nil
		c.add(s)
	}
	return news, nil
}

func newHeardSegment(segment *Segment, files [][]byte, entries []*Stored) *heardSegment {
	h := &heardSegment{digest: segment.Digest, device: segment.Header().Writer.Device(), files: files, first: entries[0].FirstSeen}
	for _, s := range entries {
		h.ids = append(h.ids, s.ID())
	}
	return h
}

// heldOf is the tip of a segment's log as git has brought it.
func (c *Clone) heldOf(h *Header) logTip {
	kept, own := c.logs[logKey{keptRefs, h.Writer, h.Kind}], c.logs[logKey{ownRefs, h.Writer, h.Kind}]
	if own.seq > kept.seq {
		return own
	}
	return kept
}

// judgeHeard checks a segment that came through a relay, and opens what this device can open. Who was shut out is not heard, from
// no place of the log: only the log's own chain, which the host brings, says what stands before a cut.
func (c *Clone) judgeHeard(files [][]byte, first Millis) (*Segment, []*Stored, error) {
	if c.roster == nil {
		return nil, nil, c.noTeam()
	}
	byRoom := make(map[string][]byte, len(files))
	var header *Header
	for _, data := range files {
		// Whether it begins a generation only its log says: MaxLiveSegment is less than what is allowed there.
		file, err := ParseSegmentFile(data, true)
		if err != nil {
			return nil, nil, err
		}
		header = file.Header
		byRoom[file.Room.String()] = data
	}
	if header == nil || len(byRoom) < len(files) {
		return nil, nil, fmt.Errorf("%d files of %d rooms: %w", len(files), len(byRoom), errRooms)
	}
	if header.Kind != MemoryLog {
		return nil, nil, fmt.Errorf("a segment of log %d: %w", header.Kind, errFields)
	}
	before := indexTip{Seq: header.Seq - 1, Digest: header.Prev}
	if held := c.heldOf(header); held.seq < header.Seq {
		before.RosterSeq = held.roster
		if held.seq == header.Seq-1 {
			before.Digest = held.digest
		}
	}
	segment, err := c.checkSegment(refPlace{Log: header.Kind, Writer: header.Writer, Generation: header.Generation}, before, byRoom)
	if err != nil {
		return nil, nil, err
	}
	device := c.roster.Devices[header.Writer.Device()]
	if device == nil {
		return nil, nil, fmt.Errorf("device %s was removed from the team: %w", header.Writer.Device(), errNotAdmitted)
	}
	var entries []*Stored
	for _, file := range segment.Files {
		key := c.keys[RoomEpoch{Room: file.Room, Number: file.Epoch}]
		if key == nil {
			continue // a room that this device is not in
		}
		if _, in := c.roster.Rooms[file.Room].Members[device.Member]; !in {
			continue
		}
		opened, err := file.Open(key)
		if err != nil {
			return nil, nil, fmt.Errorf("room %s: %w", file.Room, err)
		}
		for _, e := range opened {
			entries = append(entries, &Stored{Entry: e, Room: file.Room, Epoch: file.Epoch, Writer: file.Writer, Log: file.Kind, FirstSeen: first})
		}
	}
	return segment, entries, nil
}

// addHeard takes in what was heard, as far as it is still right; what the host has brought since is dropped.
func (c *Clone) addHeard() {
	if c.roster == nil {
		return // nothing can be judged yet
	}
	heard := c.heard
	c.heard = nil
	for _, h := range heard {
		segment, entries, err := c.judgeHeard(h.files, h.first)
		if err != nil || len(entries) == 0 {
			c.forgetHeard(h)
			continue
		}
		c.heard = append(c.heard, newHeardSegment(segment, h.files, entries))
		for _, s := range entries {
			c.add(s)
		}
	}
	c.dropBrought()
}

// dropBrought drops what git has brought by now, and what is too old to count.
func (c *Clone) dropBrought() {
	now := MillisOf(c.now())
	kept := c.heard[:0:0]
	for _, h := range c.heard {
		waits := slices.ContainsFunc(h.ids, func(id EntryID) bool {
			s := c.entries[id]
			return s == nil || s.Seq == 0
		})
		if waits && now < h.first+factLife {
			kept = append(kept, h)
		} else {
			c.forgetHeard(h)
		}
	}
	c.heard = kept
}

// forgetHeard removes what keepHeard wrote. What stays is judged again at the next start.
func (c *Clone) forgetHeard(h *heardSegment) {
	if c.lock != nil {
		_ = os.Remove(c.heardPath(h.digest))
	}
}

// keepHeard writes a segment down, so that a restart does not forget what was told. Who does not hold the lock keeps nothing.
func (c *Clone) keepHeard(h *heardSegment) error {
	if c.lock == nil {
		return nil
	}
	content, err := cbor.Marshal(heardFile{First: h.first, Files: h.files})
	if err != nil {
		return err
	}
	if err = os.MkdirAll(c.heardFolder(), 0o700); err == nil {
		err = ReplaceFile(c.heardPath(h.digest), content, 0o600)
	}
	if err != nil {
		return fmt.Errorf("what came through the relay cannot be kept: %w", err)
	}
	return nil
}

// readHeard reads what was kept, beside what is in memory already.
func (c *Clone) readHeard() error {
	folder, err := os.ReadDir(c.heardFolder())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("what came through the relay cannot be read: %w", err)
	}
	for _, each := range folder {
		var digest Digest
		name, err := hex.DecodeString(each.Name())
		if err != nil || copy(digest[:], name) != len(digest) {
			continue
		}
		if slices.ContainsFunc(c.heard, func(h *heardSegment) bool { return h.digest == digest }) {
			continue
		}
		if info, err := each.Info(); err != nil || info.Size() > 2*MaxLiveSegment {
			continue
		}
		content, err := os.ReadFile(c.heardPath(digest))
		var file heardFile
		if err != nil || cbor.Unmarshal(content, &file) != nil {
			continue // it comes by git
		}
		c.heard = append(c.heard, &heardSegment{digest: digest, files: file.Files, first: file.First})
	}
	return nil
}

// sweepHeard removes what does not count from the folder of what was heard. The lock is about to be held.
func (c *Clone) sweepHeard() {
	if c.roster == nil {
		return // nothing could be judged
	}
	folder, _ := os.ReadDir(c.heardFolder())
	for _, each := range folder {
		if !slices.ContainsFunc(c.heard, func(h *heardSegment) bool { return h.digest.String() == each.Name() }) {
			_ = os.Remove(filepath.Join(c.heardFolder(), each.Name()))
		}
	}
}
