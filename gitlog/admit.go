package gitlog

import (
	"crypto/ed25519"
	"errors"
	"fmt"
)

// What the roster says about a segment: judged in the state that its writer went by, and then against the cuts of those who
// were shut out since.

// errCut marks a segment after the last one that is accepted of somebody who was removed, whatever time or roster head it
// claims.
var errCut = errors.New("comes after the last segment that is accepted of a removed device")

// cut holds, for each log of the removed, the last segment that is accepted; of a log not named there is none.
type cut map[logName]cutAt

type logName struct {
	writer WriterID
	kind   LogKind
}

type cutAt struct {
	seq    uint64
	digest Digest
}

// allows says whether a segment is at or before the cut. Its chain holds the digests before the last.
func (c cut) allows(h *Header, digest Digest) bool {
	at := c[logName{h.Writer, h.Kind}]
	return h.Seq < at.seq || h.Seq == at.seq && digest == at.digest
}

// device returns a device that is or was in the roster, or nil.
func (r *Roster) device(id DeviceID) *RosterDevice {
	if d := r.Devices[id]; d != nil {
		return d
	}
	return r.former[id]
}

// MemberOf returns the member whose device it is or was, or nil. Names of those who left stay readable.
func (r *Roster) MemberOf(id DeviceID) *Member {
	d := r.device(id)
	if d == nil {
		return nil
	}
	if m := r.Members[d.Member]; m != nil {
		return m
	}
	return r.formerMembers[d.Member]
}

// Former says that a device was in the roster and is no more, or its member is no more: what it wrote up to its cut stays
// valid and is shown as by a former member where nobody of that member is left.
func (r *Roster) Former(id DeviceID) bool {
	d := r.device(id)
	return d != nil && r.Members[d.Member] == nil
}

// DeviceKey returns the key that a device signs or signed with, or nil.
func (r *Roster) DeviceKey(id DeviceID) ed25519.PublicKey {
	if d := r.device(id); d != nil {
		return d.Key
	}
	return nil
}

// Cut returns the last segment that is accepted of a log whose device was removed; seq 0: none of it. ok is false for the log
// of a device that was not removed.
func (r *Roster) Cut(writer WriterID, kind LogKind) (seq uint64, digest Digest, ok bool) {
	d := r.former[writer.Device()]
	if d == nil {
		return 0, Digest{}, false
	}
	at := d.cut[logName{writer, kind}]
	return at.seq, at.digest, true
}

// Admits judges a verified segment: the team and repository, the device, its rooms and their epochs in the state that its
// writer went by, then the device's cut. ErrRosterBehind: that state is not in this chain. What a member may have written into
// a room that was revoked since is judged file by file: see Withdrawn.
func (r *Roster) Admits(s *Segment) error {
	for _, f := range s.Files {
		if err := r.admits(f.Header); err != nil {
			return fmt.Errorf("room %s: %w", f.Room, err)
		}
	}
	h := s.Files[0].Header
	if d := r.former[h.Writer.Device()]; d != nil && !d.cut.allows(h, s.Digest) {
		at := d.cut[logName{h.Writer, h.Kind}]
		return fmt.Errorf("segment %d of device %s, accepted up to %d: %w: %w", h.Seq, d.ID, at.seq, errCut, errNotAdmitted)
	}
	return nil
}

func (r *Roster) admits(h *Header) error {
	if h.Team != r.Team || !r.Repositories[h.Repository] {
		return fmt.Errorf("team %s, repository %s: %w", h.Team, h.Repository, errNotAdmitted)
	}
	at := h.Roster.Seq
	if at >= uint64(len(r.hashes)) || r.hashes[at] != h.Roster.Hash {
		return fmt.Errorf("roster entry %d, %s: %w", at, h.Roster.Hash, ErrRosterBehind)
	}
	d := r.device(h.Writer.Device())
	switch {
	case d == nil || d.since > at:
		return fmt.Errorf("device %s: %w", h.Writer.Device(), errNotAdmitted)
	case d.Pending:
		return fmt.Errorf("device %s is the key of an invitation: %w", d.ID, errNotAdmitted)
	case d.until != 0 && d.until <= at:
		return fmt.Errorf("device %s had been removed: %w", d.ID, errNotAdmitted)
	}
	room := r.Rooms[h.Room]
	if room == nil {
		return fmt.Errorf("no such room: %w", errNotAdmitted)
	}
	if _, in := room.stayAt(d.Member, at); !in {
		return fmt.Errorf("device %s is not in it: %w", d.ID, errNotAdmitted)
	}
	epoch := r.Epoch(RoomEpoch{h.Room, h.Epoch})
	if epoch == nil || epoch.since > at {
		return fmt.Errorf("it has no epoch %d: %w", h.Epoch, errNotAdmitted)
	}
	if next := r.Epoch(RoomEpoch{h.Room, h.Epoch + 1}); next != nil && next.since <= at {
		return fmt.Errorf("its epoch %d had ended: %w", h.Epoch, errNotAdmitted)
	}
	return nil
}

// stayAt returns a member's time in the room that holds the state after entry at; until is 0 where it goes on.
func (room *Room) stayAt(member MemberID, at uint64) (stay, bool) {
	if since, in := room.Members[member]; in && since <= at {
		return stay{member: member, since: since}, true
	}
	for _, s := range room.past {
		if s.member == member && s.since <= at && at < s.until {
			return s, true
		}
	}
	return stay{}, false
}

// Withdrawn returns nil, or why one file of an admitted segment is not to be opened while the others count: it comes after the
// cut with which its writer's member lost that room.
func (r *Roster) Withdrawn(s *Segment, f *SegmentFile) error {
	d, room := r.device(f.Writer.Device()), r.Rooms[f.Room]
	if d == nil || room == nil {
		return nil
	}
	stay, in := room.stayAt(d.Member, f.Roster.Seq)
	if !in || stay.cut == nil || d.until != 0 && d.until < stay.until { // removed before: its own cut holds
		return nil
	}
	if !stay.cut.allows(f.Header, s.Digest) {
		return fmt.Errorf("room %s: segment %d of device %s: %w that its member lost", f.Room, f.Seq, d.ID, errRoomCut)
	}
	return nil
}

var errRoomCut = errors.New("comes after the last one accepted in a room")
