package gitlog

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"filippo.io/age"
)

// RosterChange is a roster entry in the making, against one state. What it holds is good for that state alone: epochs, key
// files and cuts follow from it, so against another state the same intents are called again on a new RosterChange.
type RosterChange struct {
	before *Roster
	next   *Roster // before with the operations so far
	work   *entryWork
	signer *Device
	ring   Keyring // what the signer can open, with the epochs begun here
	now    Millis
	tips   func(device DeviceID, since Millis) ([]Tip, error)

	operations []any
	names      Names
	invited    []*Invitation
}

// keyFileCost is what field 7 of an entry takes for each pair of a room and a device.
const keyFileCost = 67

// newRosterChange begins a change by a device that must be in the roster. tips are the last segments accepted of a device's logs
// before a time, 0 for now; nil where nobody is removed.
func newRosterChange(before *Roster, signer *Device, now Millis, tips func(DeviceID, Millis) ([]Tip, error)) (*RosterChange, error) {
	if before.Newer != nil {
		return nil, fmt.Errorf("the team cannot be changed: %w", before.Newer)
	}
	if before.Devices[signer.ID] == nil {
		if d := before.former[signer.ID]; d != nil && d.end == endRemoved {
			return nil, fmt.Errorf("this device was removed from the team by entry %d of the roster, and can change nothing any more", d.until)
		}
		return nil, errors.New("this device is not in the team, and can change nothing")
	}
	ring, err := before.OpenEpochs(signer)
	if err != nil {
		return nil, err
	}
	if err := before.ReadNames(ring); err != nil {
		return nil, err
	}
	c := &RosterChange{before: before, next: before.clone(), signer: signer, ring: maps.Clone(ring), now: max(now, before.Time), tips: tips, names: Names{}}
	c.work = &entryWork{
		e:  &rosterEntry{kid: signer.ID, seq: before.Head.Seq + 1, time: c.now},
		by: before.authorOf(signer.ID), begin: map[RoomID]bool{}, begun: map[RoomID]bool{},
	}
	return c, nil
}

// Change makes the entry that a change by this device adds to a chain whose state is r, and the state after it. It is
// offered to no host: that is ChangeRoster. Cuts of whoever is removed are empty. The entry is nil where nothing changes.
func (r *Roster) Change(signer *Device, now Millis, change func(*RosterChange) error) (*RosterCommit, *Roster, error) {
	c, err := newRosterChange(r, signer, now, func(DeviceID, Millis) ([]Tip, error) { return nil, nil })
	if err != nil {
		return nil, nil, err
	}
	if err := change(c); err != nil {
		return nil, nil, err
	}
	return c.build()
}

// Before is the state that the change is made against, its names read.
func (c *RosterChange) Before() *Roster { return c.before }

// add puts one operation into the entry.
func (c *RosterChange) add(number uint64, body intMap) error {
	v, err := decodeStrict(encodeCBOR(body))
	if err != nil {
		return err
	}
	op := operation{number, v.(map[any]any)}
	c.work.e.operations = append(c.work.e.operations, op)
	if err := c.next.applyOperation(c.work, op); err != nil {
		return fmt.Errorf("the team cannot be changed like that: %w", err)
	}
	c.operations = append(c.operations, []any{number, body})
	return nil
}

// mustBeAdmin is the sentence for whoever is none.
func (c *RosterChange) mustBeAdmin() error {
	if c.work.by.admin {
		return nil
	}
	var admins []string
	for _, m := range c.before.Members {
		if m.Admin {
			admins = append(admins, cmp.Or(m.Address, m.Name, m.ID.String()))
		}
	}
	slices.Sort(admins)
	return fmt.Errorf("only an admin of the team can do that: ask %s", strings.Join(admins, " or "))
}

// FindMember returns the member with an address, letters' case aside, or nil.
func (r *Roster) FindMember(address string) *Member {
	for _, m := range r.Members {
		if address != "" && strings.EqualFold(m.Address, strings.TrimSpace(address)) {
			return m
		}
	}
	return nil
}

// FindRoom returns the room with a name, or nil.
func (r *Roster) FindRoom(name string) *Room {
	for _, room := range r.Rooms {
		if name != "" && room.Name == name {
			return room
		}
	}
	return nil
}

// DevicesOf returns a member's devices, pending ones included, by id.
func (r *Roster) DevicesOf(member MemberID) []*RosterDevice {
	var list []*RosterDevice
	for _, d := range r.Devices {
		if d.Member == member {
			list = append(list, d)
		}
	}
	slices.SortFunc(list, func(a, b *RosterDevice) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	return list
}

func (c *RosterChange) member(address string) (*Member, error) {
	m := c.next.FindMember(address)
	if m == nil {
		return nil, fmt.Errorf("nobody with the address %q is in the team: `knoot member ls` lists who is", address)
	}
	return m, nil
}

func (c *RosterChange) room(name string) (*Room, error) {
	room := c.next.FindRoom(name)
	if room == nil {
		return nil, fmt.Errorf("the team has no room %q: `knoot room ls` lists what there is", name)
	}
	return room, nil
}

// enter returns the member with the address, added if there is none.
func (c *RosterChange) enter(address, name string) (MemberID, error) {
	if address = strings.TrimSpace(address); address == "" {
		return MemberID{}, errors.New("a member needs an address, by which others know whom they share with")
	}
	if m := c.next.FindMember(address); m != nil {
		return m.ID, nil
	}
	var id MemberID
	drawRandom(id[:])
	if err := c.add(opMemberAdded, intMap{opMember: id[:]}); err != nil {
		return id, err
	}
	c.name(string(id[:]), NameRecord{Name: cmp.Or(name, address), Address: address})
	return id, nil
}

// name puts a record into the sealed part.
func (c *RosterChange) name(id string, record NameRecord) {
	c.names[id] = record
	c.next.takeNames(Names{id: record}, author{})
}

func (c *RosterChange) addDevice(member MemberID, key ed25519.PublicKey, recipient, label string, expires Millis) error {
	body := intMap{opMember: member[:], opDeviceKey: []byte(key), opDeviceRecipient: recipient}
	body.set(opPending, expires > 0)
	body.set(opExpires, uint64(expires))
	if err := c.add(opDeviceAdded, body); err != nil {
		return err
	}
	id := DeviceIDOf(key)
	c.name(string(id[:]), NameRecord{Label: label})
	return nil
}

// AddDevice lets another of the signer's own devices in.
func (c *RosterChange) AddDevice(device *Device, label string) error {
	return c.addDevice(c.work.by.member, device.Sign.Public().(ed25519.PublicKey), device.Age.Recipient().String(), label, 0)
}

// Admit lets the device of a request in: of the member with that address, who is added if there is none. An empty name
// takes the request's.
func (c *RosterChange) Admit(request *JoinRequest, address, name string) error {
	if err := c.mustBeAdmin(); err != nil {
		return err
	}
	switch {
	case request.Team != c.before.Team:
		return fmt.Errorf("the request %s is for the team %s, not for this one", request.Device, request.Team)
	case c.before.Devices[request.Device] != nil:
		return fmt.Errorf("the device %s is in the team already", request.Device)
	case c.before.former[request.Device] != nil:
		return fmt.Errorf("the device %s was removed from the team, and a removed key never comes back: they delete their KNOOT_HOME's device.* files and ask again", request.Device)
	case c.now >= request.Expires():
		return fmt.Errorf("the request %s is more than %d days old: they run `knoot join` again", request.Device, invitationDays)
	}
	member, err := c.enter(address, cmp.Or(name, request.Name))
	if err != nil {
		return err
	}
	return c.addDevice(member, request.Key, request.Recipient, request.Label, 0)
}

// Invite makes an invitation for the member with that address, who is added if there is none. Its key can be read once the entry is
// accepted.
func (c *RosterChange) Invite(address, name, label string) (*Invitation, error) {
	if err := c.mustBeAdmin(); err != nil {
		return nil, err
	}
	member, err := c.enter(address, name)
	if err != nil {
		return nil, err
	}
	device, err := drawDevice()
	if err != nil {
		return nil, err
	}
	invitation := &Invitation{Team: c.before.Team, Expires: c.now + MillisOf(time.Unix(invitationDays*24*3600, 0)), device: device}
	if err := c.addDevice(member, device.Sign.Public().(ed25519.PublicKey), device.Age.Recipient().String(), label, invitation.Expires); err != nil {
		return nil, err
	}
	c.invited = append(c.invited, invitation)
	return invitation, nil
}

// AddRecovery makes a key that a person keeps on paper: a device of the signer's own member.
func (c *RosterChange) AddRecovery() (*Invitation, error) {
	device, err := drawDevice()
	if err != nil {
		return nil, err
	}
	recovery := &Invitation{Team: c.before.Team, Recovery: true, device: device}
	if err := c.addDevice(c.work.by.member, device.Sign.Public().(ed25519.PublicKey), device.Age.Recipient().String(), RecoveryLabel, 0); err != nil {
		return nil, err
	}
	c.invited = append(c.invited, recovery)
	return recovery, nil
}

// RecoveryLabel is how the recovery key is listed among a member's devices.
const RecoveryLabel = "recovery key"

// onlyDevice says whether the roster has no device but this one and its member's recovery keys.
func (r *Roster) onlyDevice(id DeviceID) bool {
	own := r.Devices[id]
	for _, d := range r.Devices {
		if own == nil || d != own && (d.Member != own.Member || d.Label != RecoveryLabel) {
			return false
		}
	}
	return own != nil
}

// Join puts a device's own keys in the place of the invitation that signs the change.
func (c *RosterChange) Join(device *Device, label string) error {
	invitation := c.before.Devices[c.signer.ID]
	if invitation.Pending && c.now >= invitation.Expires {
		return errInvitationExpired
	}
	body := intMap{
		opDeviceKey: []byte(device.Sign.Public().(ed25519.PublicKey)), opDeviceRecipient: device.Age.Recipient().String(),
		opDevice: c.signer.ID[:],
	}
	if err := c.add(opJoin, body); err != nil {
		return err
	}
	c.name(string(device.ID[:]), NameRecord{Label: label})
	return nil
}

// CancelInvitation takes an invitation back, and with it a member who has no other device.
func (c *RosterChange) CancelInvitation(device DeviceID) error {
	if err := c.mustBeAdmin(); err != nil {
		return err
	}
	d := c.next.Devices[device]
	if d == nil || !d.Pending {
		return fmt.Errorf("there is no open invitation %s", device)
	}
	if err := c.add(opInvitationCancelled, intMap{opDevice: device[:]}); err != nil {
		return err
	}
	if len(c.next.DevicesOf(d.Member)) > 0 {
		return nil
	}
	return c.removeMember(d.Member, 0)
}

// RemoveMember takes a member out with all devices. since is 0, or the time from which on nothing of theirs counts, after a
// theft.
func (c *RosterChange) RemoveMember(address string, since Millis) error {
	if err := c.mustBeAdmin(); err != nil {
		return err
	}
	m, err := c.member(address)
	if err != nil {
		return err
	}
	return c.removeMember(m.ID, since)
}

func (c *RosterChange) removeMember(id MemberID, since Millis) error {
	cut, err := c.cut(since, c.next.DevicesOf(id)...)
	if err != nil {
		return err
	}
	if err := c.add(opMemberRemoved, intMap{opMember: id[:], opCut: cut}); err != nil {
		return err
	}
	return c.lastAdmin()
}

// RemoveDevice takes one device out; an open invitation is cancelled.
func (c *RosterChange) RemoveDevice(id DeviceID, since Millis) error {
	d := c.next.Devices[id]
	switch {
	case d == nil:
		return fmt.Errorf("the team has no device %s: `knoot member ls` lists which there are", id)
	case d.Pending:
		return c.CancelInvitation(id)
	case d.Member != c.work.by.member:
		if err := c.mustBeAdmin(); err != nil {
			return err
		}
	}
	cut, err := c.cut(since, d)
	if err != nil {
		return err
	}
	if err := c.add(opDeviceRemoved, intMap{opDevice: id[:], opCut: cut}); err != nil {
		return err
	}
	return c.lastAdmin()
}

func (c *RosterChange) lastAdmin() error {
	if !c.next.hasAdminDevice() {
		return errors.New("that is the last device that can change the team: name another admin first (`knoot member add`, then `--admin`), or make a recovery key")
	}
	return nil
}

// cut is field 12 for devices that are shut out: where their logs end from now on.
func (c *RosterChange) cut(since Millis, devices ...*RosterDevice) ([]any, error) {
	cut := []any{}
	for _, d := range devices {
		if d.Pending || c.tips == nil {
			continue
		}
		tips, err := c.tips(d.ID, since)
		if err != nil {
			return nil, err
		}
		for _, tip := range tips {
			cut = append(cut, []any{tip.Writer[:], uint64(tip.Kind), tip.Seq, tip.Segment[:]})
		}
	}
	slices.SortFunc(cut, func(a, b any) int { return bytes.Compare(encodeCBOR(a), encodeCBOR(b)) })
	return cut, nil
}

// NameAdmin lets a member change the team, and into every room with all that was written there.
func (c *RosterChange) NameAdmin(address string) error {
	return c.ofMember(address, opAdminNamed)
}

// DismissAdmin takes that back. The rooms stay the member's until they are revoked.
func (c *RosterChange) DismissAdmin(address string) error {
	if err := c.ofMember(address, opAdminDismissed); err != nil {
		return err
	}
	return c.lastAdmin()
}

func (c *RosterChange) ofMember(address string, operation uint64) error {
	if err := c.mustBeAdmin(); err != nil {
		return err
	}
	m, err := c.member(address)
	if err != nil {
		return err
	}
	return c.add(operation, intMap{opMember: m.ID[:]})
}

// MakeRoom makes a room of the signer, the admins and the members with these addresses.
func (c *RosterChange) MakeRoom(name string, addresses ...string) (RoomID, error) {
	var id RoomID
	if err := c.mustBeAdmin(); err != nil {
		return id, err
	}
	if name = strings.TrimSpace(name); name == "" {
		return id, errors.New("a room needs a name")
	}
	if c.next.FindRoom(name) != nil {
		return id, fmt.Errorf("there is a room %q already", name)
	}
	drawRandom(id[:])
	if err := c.add(opRoomMade, intMap{opMember: c.work.by.member[:], opRoom: id[:]}); err != nil {
		return id, err
	}
	c.name(string(id[:]), NameRecord{Name: name})
	for _, address := range addresses {
		m, err := c.member(address)
		if err != nil {
			return id, err
		}
		if _, in := c.next.Rooms[id].Members[m.ID]; in {
			continue
		}
		if err := c.add(opRoomGranted, intMap{opMember: m.ID[:], opRoom: id[:]}); err != nil {
			return id, err
		}
	}
	return id, nil
}

// Grant lets a member into a room and all that was ever written there.
func (c *RosterChange) Grant(room, address string) error {
	r, m, err := c.place(room, address)
	if err != nil {
		return err
	}
	if _, in := r.Members[m.ID]; in {
		return fmt.Errorf("%s is in the room %q already", m.Address, room)
	}
	return c.add(opRoomGranted, intMap{opMember: m.ID[:], opRoom: r.ID[:]})
}

// Revoke takes a member out of a room. since is as for RemoveMember.
func (c *RosterChange) Revoke(room, address string, since Millis) error {
	r, m, err := c.place(room, address)
	if err != nil {
		return err
	}
	_, in := r.Members[m.ID]
	switch {
	case r.ID == c.next.General:
		return fmt.Errorf("the room %q holds every member: remove the member instead", room)
	case m.Admin:
		return fmt.Errorf("%s is an admin, and admins are in every room: dismiss them first", m.Address)
	case !in:
		return fmt.Errorf("%s is not in the room %q", m.Address, room)
	}
	return c.revoke(r, m.ID, since)
}

func (c *RosterChange) revoke(room *Room, member MemberID, since Millis) error {
	cut, err := c.cut(since, c.next.DevicesOf(member)...)
	if err != nil {
		return err
	}
	return c.add(opRoomRevoked, intMap{opMember: member[:], opRoom: room.ID[:], opCut: cut})
}

// RemoveRoom takes a room's areas away and everybody out of it but the admins, who keep what was written there.
func (c *RosterChange) RemoveRoom(name string) error {
	if err := c.mustBeAdmin(); err != nil {
		return err
	}
	room, err := c.room(name)
	if err != nil {
		return err
	}
	if room.ID == c.next.General {
		return fmt.Errorf("the room %q holds every member, and stays", name)
	}
	changed := false
	for _, area := range c.next.areas() {
		if area.Room == room.ID {
			changed = true
			if err := c.add(opAreaRemoved, intMap{opRoom: area.Room[:], opArea: area.ID[:]}); err != nil {
				return err
			}
		}
	}
	for _, member := range slices.SortedFunc(maps.Keys(room.Members), func(a, b MemberID) int { return bytes.Compare(a[:], b[:]) }) {
		if !c.next.Members[member].Admin {
			changed = true
			if err := c.revoke(room, member, 0); err != nil {
				return err
			}
		}
	}
	if !changed {
		return fmt.Errorf("the room %q has no area, and only admins are in it: nothing is left to remove", name)
	}
	return nil
}

func (c *RosterChange) place(room, address string) (*Room, *Member, error) {
	if err := c.mustBeAdmin(); err != nil {
		return nil, nil, err
	}
	r, err := c.room(room)
	if err != nil {
		return nil, nil, err
	}
	m, err := c.member(address)
	return r, m, err
}

// SetAreas makes the division of paths what is given, by canonical prefix the name of its room, and says whether that changes
// anything. Prefixes that differ in case alone are one.
func (c *RosterChange) SetAreas(division map[string]string) (changed bool, err error) {
	if err := c.mustBeAdmin(); err != nil {
		return false, err
	}
	wanted := map[string]RoomID{}
	spelling := map[string]string{}
	for prefix, name := range division {
		prefix, err := CanonicalPath(prefix)
		if err != nil {
			return false, fmt.Errorf("the area %q: %w", prefix, err)
		}
		if prefix == "" {
			return false, errors.New("the whole repository cannot be an area: what belongs to none is `general`'s")
		}
		room, err := c.room(name)
		if err != nil {
			return false, err
		}
		folded := FoldPath(prefix)
		if _, twice := wanted[folded]; twice {
			return false, fmt.Errorf("the area %q stands there twice, since letters' case does not count", prefix)
		}
		wanted[folded], spelling[folded] = room.ID, prefix
	}
	for _, area := range c.next.areas() {
		folded := FoldPath(area.Prefix)
		room, want := wanted[folded]
		want = want && area.read
		switch {
		case !want:
			err = c.add(opAreaRemoved, intMap{opRoom: area.Room[:], opArea: area.ID[:]})
		case room != area.Room:
			err = c.add(opAreaSet, intMap{opRoom: room[:], opArea: area.ID[:]})
			fallthrough
		default:
			delete(wanted, folded)
		}
		if err != nil {
			return false, err
		}
	}
	for _, folded := range slices.Sorted(maps.Keys(wanted)) {
		room := wanted[folded]
		var id AreaID
		drawRandom(id[:])
		if err := c.add(opAreaSet, intMap{opRoom: room[:], opArea: id[:]}); err != nil {
			return false, err
		}
		c.name(string(id[:]), NameRecord{Prefix: spelling[folded]})
	}
	return len(c.operations) > 0, nil
}

// areas lists the areas by id.
func (r *Roster) areas() []*Area {
	return slices.SortedFunc(maps.Values(r.Areas), func(a, b *Area) int { return bytes.Compare(a.ID[:], b.ID[:]) })
}

// Rotate begins a room's next epoch with nobody leaving, as after a key may have been read.
func (c *RosterChange) Rotate(room RoomID) error {
	if err := c.mustBeAdmin(); err != nil {
		return err
	}
	if c.next.Rooms[room] == nil {
		return fmt.Errorf("the team has no room %s", room)
	}
	c.work.begin[room] = true
	return nil
}

// AddRepository lets another repository share the team.
func (c *RosterChange) AddRepository(id RepositoryID) error {
	if err := c.mustBeAdmin(); err != nil {
		return err
	}
	return c.add(opRepositoryAdded, intMap{opRepository: id[:]})
}

// RetireLog lets everybody delete a departed writer's log. The caller has seen that it holds no live entry.
func (c *RosterChange) RetireLog(writer WriterID) error {
	if err := c.mustBeAdmin(); err != nil {
		return err
	}
	return c.add(opLogRetired, intMap{opWriter: writer[:]})
}

// SetMinimumVersion keeps versions of the formats before that from sealing.
func (c *RosterChange) SetMinimumVersion(version uint64) error {
	if err := c.mustBeAdmin(); err != nil {
		return err
	}
	return c.add(opMinimumVersion, intMap{opVersion: version})
}

// build makes the entry: the epochs that it has to begin, the key files that are lacking then, the links. It returns the state
// that it leads to, nothing where there is nothing to change.
func (c *RosterChange) build() (*RosterCommit, *Roster, error) {
	if err := c.beginEpochs(); err != nil {
		return nil, nil, err
	}
	if len(c.operations) == 0 {
		return nil, c.before, nil
	}
	general, err := c.next.Rooms[c.next.General].Current().sealsTo()
	if err != nil {
		return nil, nil, err
	}
	draft := &rosterDraft{
		seq: c.work.e.seq, prev: c.before.Head.Hash, time: c.now, operations: c.operations,
		general: general, keyFiles: map[keyFileName][]byte{}, links: map[RoomEpoch][]byte{},
	}
	if len(c.names) > 0 {
		draft.names = c.names
	}
	lacking := c.next.lacking()
	if most := maxRosterEntry / keyFileCost; len(lacking) > most {
		return nil, nil, tooManyPairs(len(lacking), most)
	}
	for _, name := range lacking {
		key := c.ring[name.RoomEpoch]
		if key == nil {
			return nil, nil, fmt.Errorf("this device cannot open the room %q, so it can let nobody in", c.next.Rooms[name.Room].Name)
		}
		to, err := parseRecipient(c.next.Devices[name.Device].Recipient)
		if err != nil {
			return nil, nil, err
		}
		if draft.keyFiles[name], err = sealKeyFile(c.before.nonce, key, to); err != nil {
			return nil, nil, err
		}
	}
	for room := range c.work.begun {
		current := c.next.Rooms[room].Current()
		if current.Number == 1 {
			continue
		}
		last := c.ring[RoomEpoch{room, current.Number - 1}]
		if last == nil {
			return nil, nil, fmt.Errorf("this device cannot open the room %q, so it cannot begin its next key", c.next.Rooms[room].Name)
		}
		to, err := current.sealsTo()
		if err != nil {
			return nil, nil, err
		}
		if draft.links[current.RoomEpoch], err = sealKeyFile(c.before.nonce, last, to); err != nil {
			return nil, nil, err
		}
	}
	commit, err := draft.sign(c.signer)
	if err != nil {
		return nil, nil, err
	}
	if over := len(commit.Entry) - maxRosterEntry; over > 0 {
		return nil, nil, tooManyPairs(len(lacking), len(lacking)-(over+keyFileCost-1)/keyFileCost)
	}
	after, err := c.before.Extend(commit) // never write what others would refuse
	if err != nil {
		return nil, nil, fmt.Errorf("the team cannot be changed like that: %w", err)
	}
	if err := after.ReadNames(c.ring); err != nil {
		return nil, nil, err
	}
	for _, invitation := range c.invited {
		invitation.Head = after.Head
	}
	return &commit, after, nil
}

// tooManyPairs says that an entry cannot hold so many key files.
func tooManyPairs(need, fit int) error {
	return fmt.Errorf("this change needs a key file for each of %d pairs of a room and a device, and one entry of the roster holds %d: change fewer rooms or devices at once", need, max(fit, 0))
}

// beginEpochs begins the next epoch of each room that somebody is shut out of.
func (c *RosterChange) beginEpochs() error {
	for _, room := range slices.SortedFunc(maps.Keys(c.work.begin), func(a, b RoomID) int { return bytes.Compare(a[:], b[:]) }) {
		if c.work.begun[room] {
			continue
		}
		identity, err := age.GenerateHybridIdentity()
		if err != nil {
			return err
		}
		number := uint64(len(c.next.Rooms[room].Epochs)) + 1
		if err := c.add(opEpochBegun, intMap{opRoom: room[:], opEpoch: number, opEpochRecipient: identity.Recipient().String()}); err != nil {
			return err
		}
		key := newEpochKey(RoomEpoch{room, number}, identity)
		c.ring[key.RoomEpoch] = key
	}
	return nil
}
