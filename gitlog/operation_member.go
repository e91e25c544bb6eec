package gitlog

import "fmt"

// Members: who is in the team, and who of them may change it.

func applyMemberAdded(r *Roster, w *entryWork, f *fields) error {
	var id MemberID
	f.fixed(opMember, id[:])
	if err := f.finish(); err != nil {
		return err
	}
	if r.Members[id] != nil || r.formerMembers[id] != nil {
		return fmt.Errorf("member %s is or was in the team: %w", id, errState)
	}
	r.Members[id] = &Member{ID: id}
	r.Rooms[r.General].Members[id] = w.e.seq
	return nil
}

// applyMemberRemoved takes a member out of every room, with all devices.
func applyMemberRemoved(r *Roster, w *entryWork, f *fields) error {
	member, err := f.readMember(r)
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
	for _, d := range r.Devices {
		if d.Member == member.ID {
			r.endDevice(w, d, endRemoved, c)
		}
	}
	for _, room := range r.Rooms {
		r.leave(w, room, member.ID, nil)
	}
	delete(r.Members, member.ID)
	r.formerMembers[member.ID] = member
	return nil
}

// applyAdminNamed lets a member change the team, and into every room.
func applyAdminNamed(r *Roster, w *entryWork, f *fields) error {
	member, err := f.readMember(r)
	if err != nil {
		return err
	}
	if err := f.finish(); err != nil {
		return err
	}
	if member.Admin {
		return fmt.Errorf("member %s is an admin: %w", member.ID, errState)
	}
	member.Admin = true
	for _, room := range r.Rooms {
		if _, in := room.Members[member.ID]; !in {
			room.Members[member.ID] = w.e.seq
		}
	}
	return nil
}

// applyAdminDismissed leaves a member in the rooms that came with being an admin, until they are revoked.
func applyAdminDismissed(r *Roster, _ *entryWork, f *fields) error {
	member, err := f.readMember(r)
	if err != nil {
		return err
	}
	if err := f.finish(); err != nil {
		return err
	}
	if !member.Admin {
		return fmt.Errorf("member %s is no admin: %w", member.ID, errState)
	}
	member.Admin = false
	return nil
}
