package gitlog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"
)

// Append publishes facts, cached answers, plans and what ends them: a segment of its own at once, durable on return. Each is
// sealed to the room of its paths, or of what it confirms or ends; *Refusal where that is none of this device's, or not one.
func (c *Clone) Append(ctx context.Context, entries ...*Entry) error {
	rooms := map[RoomID][]*Entry{}
	for _, e := range entries {
		room, err := c.roomOfEntry(e)
		if err != nil {
			return err
		}
		rooms[room] = append(rooms[room], e)
	}
	return c.appendTo(ctx, rooms)
}

// appendTo publishes entries, by the room that may read them.
func (c *Clone) appendTo(ctx context.Context, rooms map[RoomID][]*Entry) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := c.mayWrite(); err != nil {
		return err
	}
	return c.appendSegment(ctx, MemoryLog, rooms)
}

// Record puts events into the journal, each room's paths apart. On return a killed process loses none of them; SyncJournal makes
// them outlast the machine, and Flush makes them a segment. Of paths in rooms that this device is not in nothing is recorded.
// An event whose kind and nonce the journal has is there already: who was killed, or could not sync, may come again.
func (c *Clone) Record(events ...*Entry) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.mayWrite(); err != nil {
		return err
	}
	known := c.withNonces(events)
	for _, e := range events {
		parts := c.splitEvent(e)
		for _, room := range slices.SortedFunc(maps.Keys(parts), compareRooms) {
			part := parts[room]
			if c.journaled(known, room, part) {
				continue
			}
			if err := part.encode(c.roster.Team, c.settings.Repository); err != nil {
				return err
			}
			if err := c.journal.append(room, part.raw); err != nil {
				return err
			}
			c.add(&Stored{Entry: part, Room: room, Writer: c.writer, Log: AuditLog, FirstSeen: part.Time})
		}
	}
	return nil
}

// journaled reports whether the journal has an event for a room already. entries are those of the journal that may be it.
func (c *Clone) journaled(entries []journaled, room RoomID, e *Entry) bool {
	return slices.ContainsFunc(entries, func(r journaled) bool {
		if r.room != room {
			return false
		}
		s := c.entries[entryID(c.roster.Team, c.settings.Repository, r.raw)]
		return s != nil && s.Kind == e.Kind && s.Nonce == e.Nonce
	})
}

// withNonces are the entries of the journal that have the nonce of one of these events. It reads no more of an entry than that:
// those who answer hooks wait for it.
func (c *Clone) withNonces(events []*Entry) (found []journaled) {
	wanted := make(map[[8]byte]bool, len(events))
	for _, e := range events {
		wanted[e.Nonce] = true
	}
	for _, r := range c.journal.entries {
		if nonce, ok := rawNonce(r.raw); ok && wanted[nonce] {
			found = append(found, r)
		}
	}
	return found
}

// rawNonce reads the nonce of an encoded entry: behind the head of the map come kind, time and nonce, under the keys 1, 2 and 3.
func rawNonce(raw []byte) (nonce [8]byte, ok bool) {
	rest := raw[min(1, len(raw)):]
	for key := range byte(2) {
		if len(rest) < 2 || rest[0] != key+1 {
			return nonce, false
		}
		n := 2 // the key, and a number of one byte
		if size := rest[1]; size >= 24 && size <= 27 {
			n += 1 << (size - 24)
		}
		rest = rest[min(n, len(rest)):]
	}
	if len(rest) < 10 || rest[0] != 3 || rest[1] != 0x48 { // 8 bytes
		return nonce, false
	}
	return [8]byte(rest[2:10]), true
}

// JournalSize returns the size of the journal in bytes; at JournalFull it wants to become a segment.
func (c *Clone) JournalSize() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.journal == nil || len(c.journal.entries) == 0 {
		return 0
	}
	return c.journal.size
}

// SyncJournal makes what was recorded durable. It costs nothing where nothing was, and nobody waits for the disk but its caller.
func (c *Clone) SyncJournal() error {
	c.keeping.Lock()
	defer c.keeping.Unlock()
	c.mu.Lock()
	j := c.journal
	if j == nil || !j.dirty {
		c.mu.Unlock()
		return nil
	}
	file := j.file
	j.dirty = false // what comes from now on wants the next sync
	c.mu.Unlock()
	err := file.Sync()
	if err == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if j.file != file {
		return nil // closed meanwhile, and synced then
	}
	j.dirty = true
	return fmt.Errorf("cannot sync the journal: %w", err)
}

const (
	// flushBytes and flushEntries bound one segment of the journal: far under what a file may hold, and small enough to
	// travel. More become several segments.
	flushBytes   = 256 << 10
	flushEntries = 1_024
)

// Flush makes the journal a segment of the audit log, durable on return.
func (c *Clone) Flush(ctx context.Context) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	for {
		n, rooms, err := c.nextFlush()
		if err != nil || n == 0 {
			return err
		}
		if len(rooms) > 0 {
			if err := c.appendSegment(ctx, AuditLog, rooms); err != nil {
				return err
			}
		}
		if err := c.dropJournal(n); err != nil {
			return err
		}
	}
}

// dropJournal drops the first n records of the journal. Events are recorded meanwhile; who wants them to outlast the machine waits
// until they are in a file that does. writing is held.
func (c *Clone) dropJournal(n int) error {
	c.keeping.Lock()
	defer c.keeping.Unlock()
	c.mu.Lock()
	j, rest := c.journal, c.journal.entries[n:]
	c.mu.Unlock()
	next, err := j.shortened(rest)
	if err != nil {
		return err
	}
	c.mu.Lock()
	err = j.become(next, n)
	c.mu.Unlock()
	if err != nil {
		return err
	}
	return syncDir(filepath.Dir(j.path))
}

// nextFlush picks the oldest records of the journal. What is in a segment already (the process was killed between the ref
// and the journal) only leaves the journal, and so does what belongs to a room that this device has lost since.
func (c *Clone) nextFlush() (n int, rooms map[RoomID][]*Entry, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.mayWrite(); err != nil {
		return 0, nil, err
	}
	rooms = map[RoomID][]*Entry{}
	size, count := 0, 0
	for _, r := range c.journal.entries {
		if size += len(r.raw); count > 0 && (size > flushBytes || count == flushEntries) {
			break
		}
		n++
		s := c.entries[entryID(c.roster.Team, c.settings.Repository, r.raw)]
		if s == nil {
			return 0, nil, fmt.Errorf("the journal %s holds an entry that was not read from it", c.journal.path)
		}
		if s.Seq == 0 && c.inRoom(r.room) {
			rooms[r.room] = append(rooms[r.room], s.Entry)
			count++
		}
	}
	return n, rooms, nil
}

// appendAttempts is how often an append reads again and tries again where the ref had moved under it: once is somebody's
// own doing, more is a fight that no lock holder can win.
const appendAttempts = 3

// appendSegment makes one segment and moves the log's ref to it. writing is held.
func (c *Clone) appendSegment(ctx context.Context, kind LogKind, rooms map[RoomID][]*Entry) error {
	for attempt := 1; ; attempt++ {
		err := c.tryAppend(ctx, kind, rooms)
		if !errors.Is(err, errRefMoved) || attempt == appendAttempts {
			return err
		}
		if err := c.refresh(ctx); err != nil {
			return err
		}
	}
}

func (c *Clone) tryAppend(ctx context.Context, kind LogKind, rooms map[RoomID][]*Entry) error {
	parts := make(map[RoomID]Part, len(rooms))
	for id, entries := range rooms {
		if err := c.mayWriteTo(id); err != nil {
			return err
		}
		parts[id] = Part{Epoch: c.roster.Rooms[id].Current(), Entries: entries}
	}
	tip := c.logs[logKey{ownRefs, c.writer, kind}]
	place := refPlace{Log: kind, Writer: c.writer, Generation: max(tip.generation, 1)}
	name := ownRefs + place.String()
	at := c.refs[name]
	if problem, ok := c.problems[name]; ok && at.Unopened == 0 {
		return fmt.Errorf("this clone's own log is damaged at segment %d (%s): move it away with `git update-ref -d %s`, and `knoot sync` brings it back from the host", problem.Seq, problem.What, name)
	}
	header := Header{
		Team: c.roster.Team, Repository: c.settings.Repository, Writer: c.writer, Kind: kind, Generation: place.Generation,
		Seq: tip.seq + 1, Roster: c.roster.Head, Created: MillisOf(c.now()), Prev: tip.digest,
	}
	first := at.Commit == ""
	header.Seen = c.unnamedTips(first)
	sealed, segment, err := SealSegment(header, parts, c.device, first)
	if err != nil {
		return err
	}
	files := make(map[string][]byte, len(sealed))
	for room, file := range sealed {
		files[room.String()] = file
	}
	objects, err := c.store(ctx)
	if err != nil {
		return err
	}
	commit, err := objects.writeCommit(ctx, Hash(at.Commit), files, header.Created.Time().Truncate(time.Second))
	if err != nil {
		return fmt.Errorf("the segment could not be stored: %w", err)
	}
	if err := openRefs(c.Repo).change(ctx, refChange{Name: name, Old: Hash(at.Commit), New: commit}); err != nil {
		return err
	}

	reading := &logReading{
		ref: logRef{ref{Name: name, Hash: commit}, ownRefs, place},
		at: indexTip{Ref: name, Commit: string(commit), Generation: place.Generation, Seq: header.Seq, Digest: segment.Digest,
			RosterSeq: header.Roster.Seq, Segments: at.Segments + 1, Unopened: at.Unopened, Why: at.Why},
		seen: header.Seen, segments: 1,
	}
	now := MillisOf(c.now())
	for id, entries := range rooms {
		for _, e := range entries {
			reading.entries = append(reading.entries, &Stored{Entry: e, Room: id, Epoch: parts[id].Epoch.Number, Writer: c.writer,
				Log: kind, Generation: place.Generation, Seq: header.Seq, FirstSeen: now})
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.merge([]*logReading{reading})
	return nil
}

// unnamedTips lists the other writers' tips that were read from a host and that no own segment has named: all of them at a
// generation's start.
func (c *Clone) unnamedTips(all bool) []Tip {
	limit := maxSeen
	if all {
		limit = maxSeenFirst
	}
	var tips []Tip
	for _, key := range slices.SortedFunc(maps.Keys(c.logs), compareLogs) {
		if key.namespace != keptRefs || key.writer == c.writer {
			continue
		}
		at := c.logs[key]
		tip := Tip{Writer: key.writer, Kind: key.kind, Generation: at.generation, Seq: at.seq, Segment: at.digest}
		if (all || !c.seen[tip]) && len(tips) < limit {
			tips = append(tips, tip)
		}
	}
	return tips
}
