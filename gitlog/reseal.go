package gitlog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// What was sealed to an epoch that has ended and was not yet pushed is sealed again, so that whoever was shut out can read
// nothing that leaves a device which knows of it. The new segments are stored beside the old ones first; then one
// compare-and-swap moves the log's ref from the old chain to the new. A process that is killed before it leaves the old chain,
// after it the new one, and both hold every entry.

// unpushed is the part of an own log, past the host's tip, that begins with a segment sealed to an ended epoch.
type unpushed struct {
	name    string // the ref
	tip     Hash
	commits []*logCommit
}

// lookAtRosterBeforePush brings the roster as it is now, where the round fetches nothing else.
func (c *Clone) lookAtRosterBeforePush(ctx context.Context, mode gitMode, report *SyncReport) error {
	at, err := c.rosterRemote()
	if err != nil {
		return err
	}
	objects, err := c.store(ctx)
	if err != nil {
		return err
	}
	if err := c.fetchTeam(ctx, objects, at, mode, nil, false); err != nil {
		return err
	}
	return c.accept(ctx, report)
}

// sealAgain seals what waits to be pushed to the epochs that are current now.
func (c *Clone) sealAgain(ctx context.Context, mode gitMode, report *SyncReport) error {
	if c.roster == nil || c.roster.Sealable() != nil || c.roster.Devices[c.device.ID] == nil {
		return nil
	}
	logs, err := c.sealedToEnded(ctx)
	if err != nil || len(logs) == 0 {
		return err
	}
	// The answer of an earlier push may have been lost: what the host has stands, and stays as it is.
	objects, err := c.store(ctx)
	if err != nil {
		return err
	}
	if err := c.fetchLogs(ctx, objects, mode, true); err != nil {
		return err
	}
	if err := c.accept(ctx, report); err != nil {
		return err
	}
	if logs, err = c.sealedToEnded(ctx); err != nil || len(logs) == 0 {
		return err
	}
	for _, log := range logs {
		if err := c.sealLogAgain(ctx, log, report); err != nil {
			return fmt.Errorf("%s waits to be pushed, is sealed to keys that have ended, and cannot be sealed again: %w", log.name, err)
		}
	}
	return c.reload(ctx)
}

// sealedToEnded finds own logs with segments past the host's tip that are sealed to an ended epoch, or to a room that this
// device has lost.
func (c *Clone) sealedToEnded(ctx context.Context) ([]unpushed, error) {
	inbox := c.remote.inbox
	found, _, err := openRefs(c.Repo).list(ctx, inbox, ownRefs)
	if err != nil {
		return nil, err
	}
	hosted := map[string]Hash{}
	for _, r := range found {
		if tail, ok := strings.CutPrefix(r.Name, inbox); ok {
			hosted[tail] = r.Hash
		}
	}
	objects, err := c.store(ctx)
	if err != nil {
		return nil, err
	}
	var logs []unpushed
	for _, log := range sortLogs(found) {
		at, ours := hosted[log.place.String()], log.place.Writer.Device() == c.device.ID
		if !strings.HasPrefix(log.Name, ownRefs) || !ours || at == log.Hash {
			continue
		}
		commits, reached, err := objects.readChain(ctx, log.Hash, at, maxChain)
		if err != nil {
			return nil, err
		}
		if !reached {
			continue // the host has more, or went another way and stands
		}
		for i, commit := range commits {
			segment, err := c.ownSegment(ctx, objects, commit)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", log.Name, err)
			}
			if segment.Newer() == nil && c.hasEnded(segment) {
				logs = append(logs, unpushed{log.Name, log.Hash, commits[i:]})
				break
			}
		}
	}
	return logs, nil
}

func (c *Clone) hasEnded(s *Segment) bool {
	for _, f := range s.Files {
		if !c.inRoom(f.Room) || c.roster.Rooms[f.Room].Current().Number != f.Epoch {
			return true
		}
	}
	return false
}

// ownSegment reads a segment of an own log from its commit.
func (c *Clone) ownSegment(ctx context.Context, objects *objectStore, commit *logCommit) (*Segment, error) {
	files, err := objects.readFiles(ctx, commit.Tree, fileLimits{Files: maxRooms, Bytes: maxSegmentFile})
	if err != nil {
		return nil, err
	}
	rooms, err := filesByRoom(files)
	if err != nil {
		return nil, err
	}
	return ParseSegment(rooms, commit.Parent == "")
}

// sealLogAgain makes the same segments anew, with the same entries and so the same ids, and moves the ref to them.
func (c *Clone) sealLogAgain(ctx context.Context, log unpushed, report *SyncReport) error {
	objects, err := c.store(ctx)
	if err != nil {
		return err
	}
	parent := log.commits[0].Parent
	var seq uint64
	var prev Digest
	for i, commit := range log.commits {
		old, err := c.ownSegment(ctx, objects, commit)
		if err != nil {
			return err
		}
		if i == 0 {
			seq, prev = old.Header().Seq, old.Header().Prev
		}
		parts, err := c.partsOf(old)
		if err != nil {
			return err
		}
		if len(parts) < len(old.Files) {
			report.Problems = append(report.Problems, Problem{Ref: log.name, Seq: old.Header().Seq,
				What: "it held entries for a room that you are not in any more, and these are not pushed"})
		}
		if len(parts) == 0 {
			continue
		}
		header := *old.Header()
		header.Seq, header.Prev, header.Roster, header.Seen = seq, prev, c.roster.Head, old.Files[0].Seen
		sealed, segment, err := SealSegment(header, parts, c.device, parent == "")
		if err != nil {
			return err
		}
		files := make(map[string][]byte, len(sealed))
		for room, file := range sealed {
			files[room.String()] = file
		}
		if parent, err = objects.writeCommit(ctx, parent, files, header.Created.Time().Truncate(time.Second)); err != nil {
			return err
		}
		seq, prev = seq+1, segment.Digest
	}
	return openRefs(c.Repo).change(ctx, refChange{Name: log.name, Old: log.tip, New: parent})
}

// partsOf opens a segment and prepares its entries for the current epochs of the rooms that this device is in.
func (c *Clone) partsOf(s *Segment) (map[RoomID]Part, error) {
	if err := s.Newer(); err != nil {
		return nil, err
	}
	parts := map[RoomID]Part{}
	for _, f := range s.Files {
		if !c.inRoom(f.Room) {
			continue
		}
		key := c.keys[RoomEpoch{f.Room, f.Epoch}]
		if key == nil {
			return nil, errors.New("its key is not here")
		}
		entries, err := f.Open(key)
		if err != nil {
			return nil, err
		}
		parts[f.Room] = Part{Epoch: c.roster.Rooms[f.Room].Current(), Entries: entries}
	}
	return parts, nil
}
