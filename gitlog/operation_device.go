package gitlog

import (
	"crypto/ed25519"
	"fmt"
)

// Devices: which keys write for a member, and invitations, which are keys that may sign one entry.

// readDevice reads a new device's keys. A key that is or was in the roster never comes (back) in.
func (f *fields) readDevice(r *Roster) (*RosterDevice, error) {
	key := make(ed25519.PublicKey, ed25519.PublicKeySize)
	f.fixed(opDeviceKey, key)
	_, recipient := f.recipient(opDeviceRecipient)
	if f.odd != nil {
		return nil, f.odd
	}
	d := &RosterDevice{ID: DeviceIDOf(key), Key: key, Recipient: recipient}
	if r.device(d.ID) != nil {
		return nil, fmt.Errorf("device %s is or was in the team: %w", d.ID, errState)
	}
	for _, known := range []map[DeviceID]*RosterDevice{r.Devices, r.former} {
		for _, other := range known {
			if other.Recipient == d.Recipient {
				return nil, fmt.Errorf("its recipient is that of device %s: %w", other.ID, errState)
			}
		}
	}
	return d, nil
}

func applyDeviceAdded(r *Roster, w *entryWork, f *fields) error {
	member, err := f.readMember(r)
	if err != nil {
		return err
	}
	d, err := f.readDevice(r)
	if err != nil {
		return err
	}
	if d.Pending = f.flag(opPending); d.Pending {
		if d.Expires = f.millis(opExpires); d.Expires <= w.e.time {
			f.fail(opExpires, errValue)
		}
	} else if _, there := f.get(opExpires); there {
		f.fail(opExpires, fmt.Errorf("only what is pending expires: %w", errValue))
	}
	if err := f.finish(); err != nil {
		return err
	}
	if !w.by.admin && member.ID != w.by.member {
		return fmt.Errorf("device %s adds one to another member: %w", w.by.device, errSigner)
	}
	d.Member, d.since = member.ID, w.e.seq
	r.Devices[d.ID] = d
	return nil
}

// applyJoin puts a laptop's own keys in the place of an invitation's, which whoever carried it may have read.
func applyJoin(r *Roster, w *entryWork, f *fields) error {
	d, err := f.readDevice(r)
	if err != nil {
		return err
	}
	var pending DeviceID
	f.fixed(opDevice, pending[:])
	if err := f.finish(); err != nil {
		return err
	}
	invitation := r.Devices[pending]
	switch {
	case pending != w.by.device:
		return fmt.Errorf("device %s joins for another: %w", w.by.device, errSigner)
	case invitation == nil:
		return fmt.Errorf("there is no invitation %s: %w", pending, errState)
	case w.e.time >= invitation.Expires:
		return fmt.Errorf("the invitation %s expired: %w", pending, errState)
	}
	d.Member, d.since = invitation.Member, w.e.seq
	r.endDevice(w, invitation, endJoined, nil)
	r.Devices[d.ID] = d
	return nil
}

func applyDeviceRemoved(r *Roster, w *entryWork, f *fields) error {
	var id DeviceID
	f.fixed(opDevice, id[:])
	c := f.readCut(func(log WriterID) bool { return log.Device() == id })
	if err := f.finish(); err != nil {
		return err
	}
	d := r.Devices[id]
	switch {
	case d == nil || d.Pending:
		return fmt.Errorf("there is no device %s: %w", id, errState)
	case !w.by.admin && d.Member != w.by.member:
		return fmt.Errorf("device %s removes another member's: %w", w.by.device, errSigner)
	}
	r.endDevice(w, d, endRemoved, c)
	return nil
}

func applyInvitationCancelled(r *Roster, w *entryWork, f *fields) error {
	var id DeviceID
	f.fixed(opDevice, id[:])
	if err := f.finish(); err != nil {
		return err
	}
	d := r.Devices[id]
	if d == nil || !d.Pending {
		return fmt.Errorf("there is no invitation %s: %w", id, errState)
	}
	r.endDevice(w, d, endCancelled, nil)
	return nil
}

// endDevice takes a device out of the roster; what it could open, the entry must rotate.
func (r *Roster) endDevice(w *entryWork, d *RosterDevice, end ending, c cut) {
	for _, room := range r.Rooms {
		if _, in := room.Members[d.Member]; in {
			w.begin[room.ID] = true
		}
	}
	d.until, d.end, d.cut = w.e.seq, end, c
	delete(r.Devices, d.ID)
	r.former[d.ID] = d
}
