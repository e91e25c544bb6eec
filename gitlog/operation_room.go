package gitlog

import "fmt"

// Rooms: who reads and writes what, which paths belong there, and the keys that they are sealed with.

// applyRoomMade makes a room of one member and the admins. Its first epoch is begun in the same entry.
func applyRoomMade(r *Roster, w *entryWork, f *fields) error {
	member, err := f.readMember(r)
	if err != nil {
		return err
	}
	room := &Room{Members: map[MemberID]uint64{member.ID: w.e.seq}}
	f.fixed(opRoom, room.ID[:])
	if err := f.finish(); err != nil {
		return err
	}
	if r.Rooms[room.ID] != nil {
		return fmt.Errorf("there is a room %s: %w", room.ID, errState)
	}
	for _, m := range r.Members {
		if m.Admin {
			room.Members[m.ID] = w.e.seq
		}
	}
	r.Rooms[room.ID] = room
	w.begin[room.ID] = true
	return nil
}

func applyRoomGranted(r *Roster, w *entryWork, f *fields) error {
	member, room, err := f.readPlace(r)
	if err != nil {
		return err
	}
	if err := f.finish(); err != nil {
		return err
	}
	if _, in := room.Members[member.ID]; in {
		return fmt.Errorf("member %s is in room %s: %w", member.ID, room.ID, errState)
	}
	room.Members[member.ID] = w.e.seq
	return nil
}

func applyRoomRevoked(r *Roster, w *entryWork, f *fields) error {
	member, room, err := f.readPlace(r)
	if err != nil {
		return err
	}
	c := f.readCut(func(log WriterID) bool {
		d := r.Devices[log.Device()]
		return d != nil && d.Member == member.ID
	})
	if err := f.finish(); err != nil {
		return err
	}
	if _, in := room.Members[member.ID]; !in || member.Admin || room.ID == r.General {
		return fmt.Errorf("member %s cannot lose room %s (is not in it, or is an admin, or it is everybody's): %w", member.ID, room.ID, errState)
	}
	r.leave(w, room, member.ID, c)
	return nil
}

func (f *fields) readPlace(r *Roster) (*Member, *Room, error) {
	member, err := f.readMember(r)
	if err != nil {
		return nil, nil, err
	}
	room, err := f.readRoom(r)
	return member, room, err
}

// leave ends a member's stay in a room.
func (r *Roster) leave(w *entryWork, room *Room, member MemberID, c cut) {
	since, in := room.Members[member]
	if !in {
		return
	}
	delete(room.Members, member)
	room.past = append(room.past, stay{member: member, since: since, until: w.e.seq, cut: c})
	w.begin[room.ID] = true
}

// applyAreaSet gives an area to a room: a new one, or one that moves. What was sealed before stays in its room.
func applyAreaSet(r *Roster, _ *entryWork, f *fields) error {
	room, err := f.readRoom(r)
	if err != nil {
		return err
	}
	var id AreaID
	f.fixed(opArea, id[:])
	if err := f.finish(); err != nil {
		return err
	}
	if area := r.Areas[id]; area != nil {
		area.Room = room.ID
		return nil
	}
	r.Areas[id] = &Area{ID: id, Room: room.ID}
	return nil
}

func applyAreaRemoved(r *Roster, _ *entryWork, f *fields) error {
	room, err := f.readRoom(r)
	if err != nil {
		return err
	}
	var id AreaID
	f.fixed(opArea, id[:])
	if err := f.finish(); err != nil {
		return err
	}
	if area := r.Areas[id]; area == nil || area.Room != room.ID {
		return fmt.Errorf("room %s has no area %s: %w", room.ID, id, errState)
	}
	delete(r.Areas, id)
	return nil
}

// applyEpochBegun begins a room's next epoch. Who is no admin may do it only where a device of the own member comes or goes.
func applyEpochBegun(r *Roster, w *entryWork, f *fields) error {
	room, err := f.readRoom(r)
	if err != nil {
		return err
	}
	number := f.uint(opEpoch, 1)
	to, recipient := f.recipient(opEpochRecipient)
	if err := f.finish(); err != nil {
		return err
	}
	if !w.by.admin {
		change := false
		for _, op := range w.e.operations {
			change = change || op.number == opJoin || op.number == opDeviceRemoved
		}
		if !change || !w.by.rooms[room.ID] {
			return fmt.Errorf("device %s begins an epoch of room %s: %w", w.by.device, room.ID, errSigner)
		}
	}
	before := uint64(len(room.Epochs))
	switch {
	case w.begun[room.ID] || number != before+1:
		return fmt.Errorf("epoch %d of room %s after %d, or a second one at once: %w", number, room.ID, before, errState)
	case before > 0 && room.Current().Recipient == recipient:
		return fmt.Errorf("epoch %d of room %s has the key of the one before: %w", number, room.ID, errState)
	}
	room.Epochs = append(room.Epochs, &Epoch{RoomEpoch: RoomEpoch{room.ID, number}, Recipient: recipient, recipient: to, since: w.e.seq})
	w.begun[room.ID] = true
	return nil
}
