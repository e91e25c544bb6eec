package gitlog

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// load reads the clone from its index and what came after it; found are its own and the kept refs.
func (c *Clone) load(ctx context.Context, found []ref) error {
	c.reset()
	if err := c.readRosterAt(ctx, found); err != nil {
		return err
	}
	if err := c.loadIndex(); errors.Is(err, errIndex) {
		if err := c.readInBulk(ctx); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	fresh, err := c.readMovedIn(ctx, found)
	if err != nil {
		return err
	}
	if fresh == nil { // the index is of another state
		if err := c.reload(ctx); err != nil {
			return err
		}
	}
	c.merge(fresh)
	j := c.newJournal()
	if err := j.read(); err != nil {
		return err
	}
	if err := c.addJournal(j); err != nil {
		return err
	}
	if err := c.readHeard(); err != nil {
		return err
	}
	c.addHeard()
	return nil
}

func (c *Clone) reset() {
	c.keys = Keyring{}
	c.refs = map[string]indexTip{}
	c.logs = map[logKey]logTip{}
	c.seen = map[Tip]bool{}
	c.entries = map[EntryID]*Stored{}
	c.events = nil
	c.writes = map[string][]*Stored{}
	c.memory = NewMemory()
	c.problems = map[string]Problem{}
	c.withheld = map[string]bool{}
	c.refused = map[string]Hash{}
}

func (c *Clone) newJournal() *journal {
	return &journal{path: journalPath(c.Repo.CommonDir), key: &c.device.Local, writer: c.writer}
}

// Refresh reads what moved in the refs since the last look.
func (c *Clone) Refresh(ctx context.Context) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.refresh(ctx)
}

func (c *Clone) refresh(ctx context.Context) error {
	found, _, err := openRefs(c.Repo).list(ctx, ownRefs, keptRefs)
	if err != nil {
		return err
	}
	return c.refreshTo(ctx, found)
}

// refreshTo is refresh for refs that were listed already.
func (c *Clone) refreshTo(ctx context.Context, found []ref) error {
	fresh, err := c.readMovedIn(ctx, found)
	if err != nil {
		return err
	}
	if fresh == nil { // a ref went back or away: what was read from it must not stay
		return c.reload(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.merge(fresh)
	return nil
}

// reload reads everything again; the journal's entries stay, and what was heard is judged again. writing is held, mu is not.
func (c *Clone) reload(ctx context.Context) error {
	found, _, err := openRefs(c.Repo).list(ctx, ownRefs, keptRefs)
	if err != nil {
		return err
	}
	return c.reloadBy(ctx, found, func(next *Clone) error { return next.readRosterAt(ctx, found) })
}

// reloadBy is reload with refs that were listed already; takeRoster has the clone that it is given take its roster. All is read
// beside what is here, which nobody waits for and which stays as it is where that fails.
func (c *Clone) reloadBy(ctx context.Context, found []ref, takeRoster func(*Clone) error) error {
	c.mu.Lock() // an event may be recorded now
	next := &Clone{Repo: c.Repo, home: c.home, device: c.device, settings: c.settings, now: c.now, lock: c.lock, objects: c.objects, writer: c.writer,
		heard: c.heard, replayed: c.replayed}
	c.mu.Unlock()
	next.reset()
	err := takeRoster(next)
	c.objects = next.objects // opened now, if they were not
	if err != nil {
		return err
	}
	fresh, err := next.readMovedIn(ctx, found)
	c.objects = next.objects
	if err != nil {
		return err
	}
	next.merge(fresh)
	next.addHeard()
	c.mu.Lock()
	defer c.mu.Unlock()
	next.memory.version = max(next.memory.version, c.memory.Version()+1) // what was made from the memory before is made anew
	c.replayed, c.heard = next.replayed, next.heard
	if c.journal != nil {
		return c.addJournal(c.journal)
	}
	return nil
}

// readMovedIn reads the refs that are not where they were last seen. nil without an error: one of them went back or away.
func (c *Clone) readMovedIn(ctx context.Context, found []ref) ([]*logReading, error) {
	known := 0
	fresh := []*logReading{}
	tips := map[logKey]logTip{} // of what is read here, for the next generation
	for _, ref := range sortLogs(found) {
		old, had := c.refs[ref.Name]
		if had {
			known++
		}
		if had && old.Commit == string(ref.Hash) {
			continue
		}
		key := ref.key()
		before, ok := tips[key]
		if !ok {
			before = c.logs[key]
		}
		reading, err := c.readLog(ctx, ref, old, before)
		if errors.Is(err, errNotForward) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		tips[key] = reading.tip()
		fresh = append(fresh, reading)
	}
	if known < len(c.refs) {
		return nil, nil
	}
	return fresh, nil
}

// logRef is a log's ref in one of the namespaces.
type logRef struct {
	ref
	namespace string
	place     refPlace
}

func (r logRef) key() logKey {
	return logKey{namespace: r.namespace, writer: r.place.Writer, kind: r.place.Log}
}

// sortLogs picks the refs of logs, a log's generations in order. Names of other shapes are left out.
func sortLogs(refs []ref) []logRef {
	var logs []logRef
	for _, r := range refs {
		namespace := ownRefs
		if strings.HasPrefix(r.Name, keptRefs) {
			namespace = keptRefs
		}
		if place, ok := parseRefPlace(strings.TrimPrefix(r.Name, namespace)); ok && place.Log != 0 && r.Symref == "" {
			logs = append(logs, logRef{r, namespace, place})
		}
	}
	slices.SortFunc(logs, func(a, b logRef) int {
		return cmp.Or(compareLogs(a.key(), b.key()), cmp.Compare(a.place.Generation, b.place.Generation))
	})
	return logs
}

// logReading is what one look at a ref gave.
type logReading struct {
	ref      logRef
	at       indexTip
	entries  []*Stored
	seen     []Tip
	segments int
	withheld bool
	problem  *Problem
}

func (r *logReading) tip() logTip {
	return logTip{r.at.Generation, r.at.Seq, r.at.Digest, r.at.RosterSeq}
}

// readLog reads and checks a log's segments after old, as far as they are good. before is the log's tip so far, over all
// generations. errNotForward: the ref does not descend from old.
func (c *Clone) readLog(ctx context.Context, ref logRef, old indexTip, before logTip) (*logReading, error) {
	objects, err := c.store(ctx)
	if err != nil {
		return nil, err
	}
	reading := &logReading{ref: ref, at: old}
	reading.at.Ref = ref.Name
	if old.Commit == "" {
		reading.at.Generation, reading.at.Seq, reading.at.Digest, reading.at.RosterSeq = before.generation, before.seq, before.digest, before.roster
	}
	fail := func(seq uint64, err error) (*logReading, error) {
		reading.problem = &Problem{Ref: ref.Name, Seq: seq, What: err.Error()}
		return reading, nil
	}
	if c.roster != nil && c.roster.DeviceKey(ref.place.Writer.Device()) == nil {
		// Whatever it points to, it may be long.
		return fail(reading.at.Seq+1, fmt.Errorf("the device %s is no member's", ref.place.Writer.Device()))
	}
	commits, reached, err := objects.readChain(ctx, ref.Hash, Hash(old.Commit), maxChain)
	if err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		return fail(reading.at.Seq+1, err)
	}
	if !reached {
		return nil, fmt.Errorf("%s: %w", ref.Name, errNotForward)
	}
	for _, commit := range commits {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		files, err := objects.readFiles(ctx, commit.Tree, fileLimits{Files: maxRooms, Bytes: maxSegmentFile})
		if err != nil {
			return fail(reading.at.Seq+1, err)
		}
		if err := c.readSegment(reading, files); err != nil {
			return fail(reading.at.Seq+1, err)
		}
		reading.at.Commit = string(commit.ID)
	}
	return reading, nil
}

// readSegment checks the next segment of a log, opens what this device can open, and moves the reading past it.
func (c *Clone) readSegment(reading *logReading, files map[string][]byte) error {
	at, place := &reading.at, reading.ref.place
	segment, err := c.checkSegment(place, *at, files)
	withheld := errors.Is(err, ErrRosterBehind)
	if err != nil && !withheld && (segment == nil || !errors.Is(err, ErrNewer)) {
		return err
	}
	header := segment.Header()
	var entries []*Stored
	if err == nil {
		for _, file := range segment.Files {
			key := c.keys[RoomEpoch{Room: file.Room, Number: file.Epoch}]
			if key == nil {
				continue // a room that this device is not in
			}
			if err := c.roster.Withdrawn(segment, file); err != nil {
				at.Unopened++
				at.Why = err.Error()
				continue
			}
			opened, err := file.Open(key)
			if err != nil {
				return fmt.Errorf("room %s: %w", file.Room, err)
			}
			for _, e := range opened {
				entries = append(entries, &Stored{
					Entry: e, Room: file.Room, Epoch: file.Epoch, Writer: file.Writer, Log: file.Kind,
					Generation: file.Generation, Seq: file.Seq, FirstSeen: MillisOf(c.now()),
				})
			}
		}
	} else {
		at.Unopened++
		at.Why = err.Error()
		reading.withheld = reading.withheld || withheld
	}
	at.Generation, at.Seq, at.Digest = header.Generation, header.Seq, segment.Digest
	if err == nil {
		at.RosterSeq = header.Roster.Seq
	}
	at.Segments++
	reading.segments++
	reading.entries = append(reading.entries, entries...)
	if header.Writer == c.writer {
		reading.seen = append(reading.seen, header.Seen...)
	}
	return nil
}

// checkSegment says whether a segment is the next of the log. An error that wraps ErrRosterBehind or ErrNewer comes with the
// segment, which is then kept and chained but not opened.
func (c *Clone) checkSegment(place refPlace, before indexTip, files map[string][]byte) (*Segment, error) {
	return checkSegment(c.roster, c.settings.Repository, place, before, files)
}

// filesByRoom takes the files of a segment's commit by the rooms that they are named after.
func filesByRoom(files map[string][]byte) (map[RoomID][]byte, error) {
	rooms := make(map[RoomID][]byte, len(files))
	for name, data := range files {
		room, err := ParseRoomID(name)
		if err != nil {
			return nil, fmt.Errorf("the file %q: %w", name, err)
		}
		rooms[room] = data
	}
	return rooms, nil
}

// checkSegment is the check of a reader who goes by a roster, nil where it is not there. A zero repository stands for each of the
// team's.
func checkSegment(roster *Roster, repository RepositoryID, place refPlace, before indexTip, files map[string][]byte) (*Segment, error) {
	rooms, err := filesByRoom(files)
	if err != nil {
		return nil, err
	}
	first := before.Generation != place.Generation
	segment, err := ParseSegment(rooms, first)
	if err != nil {
		return nil, err
	}
	h := segment.Header()
	switch {
	case h.Writer != place.Writer, h.Kind != place.Log, h.Generation != place.Generation:
		return nil, fmt.Errorf("the segment belongs to %s, generation %d of log %d: %w", h.Writer, h.Generation, h.Kind, errFields)
	case before.Seq == 0 && place.Generation > 1:
		// The generations before are gone, as they may be: the chain begins here.
	case h.Seq != before.Seq+1:
		return nil, fmt.Errorf("segment %d stands where %d belongs: one is missing, repeated or out of order", h.Seq, before.Seq+1)
	case h.Seq > 1 && h.Prev != before.Digest:
		return nil, fmt.Errorf("segment %d follows another segment %d than the one that is here", h.Seq, before.Seq)
	}
	if roster == nil {
		return segment, ErrRosterBehind
	}
	// Who signed is judged before anything else is believed, of a newer version's segments too.
	key := roster.DeviceKey(h.Writer.Device())
	if key == nil {
		return nil, fmt.Errorf("the device %s is no member's", h.Writer.Device())
	}
	if err := segment.Verify(key); err != nil {
		return nil, err
	}
	if err := segment.Newer(); err != nil {
		return segment, err
	}
	switch {
	case repository != (RepositoryID{}) && h.Repository != repository:
		return nil, fmt.Errorf("the segment is of repository %s: %w", h.Repository, errFields)
	case h.Roster.Seq < before.RosterSeq:
		return nil, fmt.Errorf("the segment goes by roster entry %d, and the one before by %d", h.Roster.Seq, before.RosterSeq)
	}
	if err := roster.Admits(segment); errors.Is(err, ErrRosterBehind) {
		return segment, err
	} else if err != nil {
		return nil, err
	}
	return segment, nil
}

// merge takes what was read into the clone.
func (c *Clone) merge(fresh []*logReading) {
	for _, r := range fresh {
		c.unkept += r.segments
		if r.at.Commit != "" {
			c.refs[r.ref.Name] = r.at
			c.logs[r.ref.key()] = r.tip()
		}
		for _, tip := range r.seen {
			c.seen[tip] = true
		}
		delete(c.problems, r.ref.Name)
		delete(c.withheld, r.ref.Name)
		if r.problem != nil {
			c.problems[r.ref.Name] = *r.problem
		} else if r.at.Unopened > 0 {
			c.problems[r.ref.Name] = Problem{Ref: r.ref.Name, Seq: r.at.Seq,
				What: fmt.Sprintf("%d segments are kept and not opened: %s", r.at.Unopened, r.at.Why)}
		}
		if r.withheld {
			c.withheld[r.ref.Name] = true
		}
		for _, s := range r.entries {
			c.add(s)
		}
	}
	if len(fresh) > 0 && len(c.heard) > 0 {
		c.dropBrought()
	}
}

// add takes one entry in. The same entry again (from git after the journal or the relay, or from two refs) changes only its place.
func (c *Clone) add(s *Stored) {
	if had := c.entries[s.ID()]; had != nil {
		switch {
		case had.Seq != 0 || s.Seq == 0:
		case had.Event != nil:
			had.Writer, had.Generation, had.Seq, had.Epoch = s.Writer, s.Generation, s.Seq, s.Epoch
		default: // a copy: whoever has the entry from memory reads it without our lock
			if had.FirstSeen != 0 {
				s.FirstSeen = min(had.FirstSeen, s.FirstSeen)
			}
			c.entries[s.ID()] = s
			c.memory.Add(s)
		}
		return
	}
	c.entries[s.ID()] = s
	if s.Event == nil {
		c.memory.Add(s)
		return
	}
	c.events = insertEvent(c.events, s)
	switch s.Kind {
	case FileWritten, PathRemoved, UngatedWrite:
		for _, p := range s.Event.Paths {
			c.writes[p.Path] = insertEvent(c.writes[p.Path], s)
		}
	case SessionEnded:
		c.memory.Add(s) // a session's plan ends with it
	}
}

func insertEvent(events []*Stored, s *Stored) []*Stored {
	order := func(a, b *Stored) int {
		x, y := a.ID(), b.ID()
		return cmp.Or(cmp.Compare(a.Time, b.Time), bytes.Compare(x[:], y[:]))
	}
	if n := len(events); n == 0 || order(events[n-1], s) < 0 {
		return append(events, s)
	}
	at, _ := slices.BinarySearchFunc(events, s, order)
	return slices.Insert(events, at, s)
}

// addJournal takes in what is not in a segment yet.
func (c *Clone) addJournal(j *journal) error {
	for _, r := range j.entries {
		e, err := decodeEntry(r.raw, c.settings.Team, c.settings.Repository)
		if err != nil {
			return fmt.Errorf("the journal holds something else than entries (%w): move %s away", err, j.path)
		}
		c.add(&Stored{Entry: e, Room: r.room, Writer: c.writer, Log: AuditLog, FirstSeen: e.Time})
	}
	return nil
}

// store opens the objects at the first need.
func (c *Clone) store(ctx context.Context) (*objectStore, error) {
	if c.objects == nil {
		objects, err := openObjects(ctx, c.Repo, false)
		if err != nil {
			return nil, err
		}
		c.objects = objects
	}
	return c.objects, nil
}

// readInBulk prepares for a whole history, where there is an index and so was much: a clone without one has little.
func (c *Clone) readInBulk(ctx context.Context) error {
	if _, err := os.Stat(indexPath(c.Repo.CommonDir)); err != nil {
		return nil
	}
	if c.objects != nil {
		if err := c.objects.close(); err != nil {
			return err
		}
	}
	var err error
	c.objects, err = openObjects(ctx, c.Repo, true)
	return err
}

// loadIndex takes in the index, if it fits the roster; errIndex otherwise.
func (c *Clone) loadIndex() error {
	head, entries, err := readIndex(c.Repo.CommonDir, &c.device.Local, c.writer)
	if err != nil {
		return err
	}
	if c.roster == nil || c.roster.Head.Seq != head.RosterSeq || c.roster.Head.Hash != head.RosterHash {
		return errIndex
	}
	stored := make([]*Stored, len(entries))
	for i, e := range entries {
		entry, err := decodeEntry(e.Raw, c.settings.Team, c.settings.Repository)
		if err != nil {
			return errIndex
		}
		stored[i] = &Stored{Entry: entry, Room: e.Room, Epoch: e.Epoch, Writer: e.Writer, Log: e.Log,
			Generation: e.Generation, Seq: e.Seq, FirstSeen: e.FirstSeen}
	}
	for _, tip := range head.Tips {
		place, ok := parseRefPlace(strings.TrimPrefix(strings.TrimPrefix(tip.Ref, ownRefs), keptRefs))
		if !ok {
			return errIndex
		}
		namespace := ownRefs
		if strings.HasPrefix(tip.Ref, keptRefs) {
			namespace = keptRefs
		}
		c.refs[tip.Ref] = tip
		key := logKey{namespace, place.Writer, place.Log}
		if c.logs[key].seq < tip.Seq {
			c.logs[key] = logTip{tip.Generation, tip.Seq, tip.Digest, tip.RosterSeq}
		}
	}
	for _, tip := range head.Seen {
		c.seen[tip] = true
	}
	for _, s := range stored {
		c.add(s)
	}
	return nil
}

// indexEvery is how many segments may be read again at each start before the index is written anew: each takes about a
// millisecond.
const indexEvery = 16

// keepIndex writes the index where it lacks much. What could not be opened or read is left out of it, so that a newer
// version, or a clone that was mended, looks again.
func (c *Clone) keepIndex() error {
	if c.unkept < indexEvery || c.roster == nil {
		return nil
	}
	head := &indexHead{RosterSeq: c.roster.Head.Seq, RosterHash: c.roster.Head.Hash}
	for name, tip := range c.refs {
		if tip.Unopened > 0 || c.problems[name].What != "" {
			continue
		}
		head.Tips = append(head.Tips, tip)
	}
	for tip := range c.seen {
		head.Seen = append(head.Seen, tip)
	}
	entries := make([]indexEntry, 0, len(c.entries))
	for _, s := range c.entries {
		if s.Seq != 0 {
			entries = append(entries, indexEntry{Room: s.Room, Epoch: s.Epoch, Writer: s.Writer, Log: s.Log,
				Generation: s.Generation, Seq: s.Seq, FirstSeen: s.FirstSeen, Raw: s.Raw()})
		}
	}
	if err := writeIndex(c.Repo.CommonDir, &c.device.Local, c.writer, head, entries); err != nil {
		return err
	}
	c.unkept = 0
	return nil
}

func compareLogs(a, b logKey) int {
	return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.kind, b.kind), bytes.Compare(a.writer[:], b.writer[:]))
}

func sortedProblems(problems map[string]Problem) []Problem {
	list := make([]Problem, 0, len(problems))
	for _, p := range problems {
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b Problem) int { return cmp.Compare(a.Ref, b.Ref) })
	return list
}
