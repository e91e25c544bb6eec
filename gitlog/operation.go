package gitlog

import (
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"
	"io"
	"slices"

	"filippo.io/age"
)

// An operation is one change of the roster. To add one, add a row to operations: the chain around it stays.

// operation is one operation as it stands in an entry.
type operation struct {
	number uint64
	body   map[any]any
}

// Numbers of operations.
const (
	opTeam = 1 + iota
	opMemberAdded
	opMemberRemoved
	opDeviceAdded
	opJoin
	opDeviceRemoved
	opRoomMade
	opRoomGranted
	opRoomRevoked
	opAreaSet
	opAreaRemoved
	opEpochBegun
	opAdminNamed
	opAdminDismissed
	opRepositoryAdded
	opLogRetired
	opMinimumVersion
	opInvitationCancelled
)

// Keys of all operations' maps.
const (
	opNonce = 1 + iota
	opMember
	opDeviceKey
	opDeviceRecipient
	opRoom
	opEpoch
	opEpochRecipient
	opRepository
	opDevice
	opPending
	opExpires
	opCut
	opArea
	opWriter
	opVersion
)

// entryWork is an entry while its operations are applied.
type entryWork struct {
	e     *rosterEntry
	by    author
	begin map[RoomID]bool // rooms that somebody was shut out of, so that the entry must begin their next epoch
	begun map[RoomID]bool // rooms whose next epoch it began
}

// author is who signed an entry, as the state before it says; zero in genesis.
type author struct {
	device  DeviceID
	member  MemberID
	pending bool
	admin   bool
	rooms   map[RoomID]bool
}

func (r *Roster) authorOf(id DeviceID) author {
	d := r.Devices[id]
	if d == nil {
		return author{}
	}
	by := author{device: id, member: d.Member, pending: d.Pending, rooms: map[RoomID]bool{}}
	by.admin = r.Members[d.Member].Admin && !d.Pending
	for _, room := range r.Rooms {
		if _, in := room.Members[d.Member]; in {
			by.rooms[room.ID] = true
		}
	}
	return by
}

// Who may sign an operation.
type signerRule int

const (
	byFounder signerRule = iota
	byAdmin
	byOwner   // an admin, and a member for own devices
	byInvited // the pending device that it names
	byAnyone  // judged by the operation itself
)

func (a author) may(rule signerRule) bool {
	switch rule {
	case byAdmin:
		return a.admin
	case byOwner:
		return a.device != DeviceID{} && !a.pending
	case byInvited:
		return a.pending
	}
	return true
}

// operations holds what this version can apply. An entry with any other number stops the chain there.
var operations map[uint64]operationRow

type operationRow struct {
	keys []uint64 // those that its map may carry (below 64)
	by   signerRule
	// apply changes the roster, which is the state after the operations before this one in the same entry.
	apply func(r *Roster, w *entryWork, f *fields) error
}

func init() { // the functions reach the table again through the fields that they read
	operations = map[uint64]operationRow{
		opTeam: {[]uint64{opNonce, opMember, opDeviceKey, opDeviceRecipient, opRoom, opEpoch, opEpochRecipient, opRepository},
			byFounder, applyTeam},
		opMemberAdded:         {[]uint64{opMember}, byAdmin, applyMemberAdded},
		opMemberRemoved:       {[]uint64{opMember, opCut}, byAdmin, applyMemberRemoved},
		opDeviceAdded:         {[]uint64{opMember, opDeviceKey, opDeviceRecipient, opPending, opExpires}, byOwner, applyDeviceAdded},
		opJoin:                {[]uint64{opDeviceKey, opDeviceRecipient, opDevice}, byInvited, applyJoin},
		opDeviceRemoved:       {[]uint64{opDevice, opCut}, byOwner, applyDeviceRemoved},
		opRoomMade:            {[]uint64{opMember, opRoom}, byAdmin, applyRoomMade},
		opRoomGranted:         {[]uint64{opMember, opRoom}, byAdmin, applyRoomGranted},
		opRoomRevoked:         {[]uint64{opMember, opRoom, opCut}, byAdmin, applyRoomRevoked},
		opAreaSet:             {[]uint64{opRoom, opArea}, byAdmin, applyAreaSet},
		opAreaRemoved:         {[]uint64{opRoom, opArea}, byAdmin, applyAreaRemoved},
		opEpochBegun:          {[]uint64{opRoom, opEpoch, opEpochRecipient}, byAnyone, applyEpochBegun},
		opAdminNamed:          {[]uint64{opMember}, byAdmin, applyAdminNamed},
		opAdminDismissed:      {[]uint64{opMember}, byAdmin, applyAdminDismissed},
		opRepositoryAdded:     {[]uint64{opRepository}, byAdmin, applyRepositoryAdded},
		opLogRetired:          {[]uint64{opWriter}, byAdmin, applyLogRetired},
		opMinimumVersion:      {[]uint64{opVersion}, byAdmin, applyMinimumVersion},
		opInvitationCancelled: {[]uint64{opDevice}, byAdmin, applyInvitationCancelled},
	}
}

// operations reads an entry's list.
func (f *fields) operations(key uint64) []operation {
	l := f.list(key)
	if len(l) == 0 {
		f.fail(key, fmt.Errorf("no operation: %w", errValue))
	}
	var ops []operation
	for _, v := range l {
		pair := f.tuple(key, v, 2)
		if pair == nil {
			return nil
		}
		number := f.asUint(key, pair[0], 1)
		body, ok := pair[1].(map[any]any)
		if !ok {
			f.fail(key, errType)
		}
		if _, known := operations[number]; !known && number > 0 {
			f.newer(key, number)
		}
		ops = append(ops, operation{number, body})
	}
	return ops
}

// applyOperation checks that the signer may do it, and does it.
func (r *Roster) applyOperation(w *entryWork, op operation) error {
	f := &fields{what: "operation", m: op.body}
	row := operations[op.number]
	for key := uint64(opNonce); key <= opVersion; key++ {
		if _, there := f.get(key); there && !slices.Contains(row.keys, key) {
			return fmt.Errorf("key %d does not belong to it: %w", key, errValue)
		}
	}
	if !w.by.may(row.by) {
		return fmt.Errorf("device %s: %w", w.by.device, errSigner)
	}
	return row.apply(r, w, f)
}

// applyTeam is genesis: the founder, the founder's device, the room general with its first epoch, a repository.
func applyTeam(r *Roster, w *entryWork, f *fields) error {
	var (
		member     MemberID
		room       RoomID
		repository RepositoryID
		key        = make(ed25519.PublicKey, ed25519.PublicKeySize)
	)
	f.fixed(opNonce, r.nonce[:])
	f.fixed(opMember, member[:])
	f.fixed(opDeviceKey, key)
	_, recipient := f.recipient(opDeviceRecipient)
	f.fixed(opRoom, room[:])
	number := f.uint(opEpoch, 1)
	epochTo, epochRecipient := f.recipient(opEpochRecipient)
	f.fixed(opRepository, repository[:])
	if number != 1 {
		f.fail(opEpoch, errValue)
	}
	if err := f.finish(); err != nil {
		return err
	}
	if w.e.seq != 0 || len(w.e.operations) != 1 {
		return fmt.Errorf("a team begins once, and with nothing else: %w", errState)
	}
	r.General = room
	r.Members[member] = &Member{ID: member, Admin: true}
	device := DeviceIDOf(key)
	r.Devices[device] = &RosterDevice{ID: device, Key: key, Recipient: recipient, Member: member}
	r.Rooms[room] = &Room{
		ID:      room,
		Members: map[MemberID]uint64{member: 0},
		Epochs:  []*Epoch{{RoomEpoch: RoomEpoch{room, 1}, Recipient: epochRecipient, recipient: epochTo}},
	}
	r.Repositories[repository] = true
	w.begun[room] = true
	return nil
}

// readMember reads a member's id, who must be in the team.
func (f *fields) readMember(r *Roster) (*Member, error) {
	var id MemberID
	f.fixed(opMember, id[:])
	if f.odd != nil {
		return nil, f.odd
	}
	m := r.Members[id]
	if m == nil {
		return nil, fmt.Errorf("there is no member %s: %w", id, errState)
	}
	return m, nil
}

// readRoom reads a room's id, which there must be.
func (f *fields) readRoom(r *Roster) (*Room, error) {
	var id RoomID
	f.fixed(opRoom, id[:])
	if f.odd != nil {
		return nil, f.odd
	}
	room := r.Rooms[id]
	if room == nil {
		return nil, fmt.Errorf("there is no room %s: %w", id, errState)
	}
	return room, nil
}

// readCut reads a cut, sorted; of asks whether a log may stand in it.
func (f *fields) readCut(of func(WriterID) bool) cut {
	c := cut{}
	var encoded [][]byte
	for _, v := range f.list(opCut) {
		l := f.tuple(opCut, v, 4)
		if l == nil {
			return nil
		}
		var (
			name logName
			at   cutAt
		)
		f.asFixed(opCut, l[0], name.writer[:])
		name.kind = LogKind(f.asUint(opCut, l[1], 1))
		at.seq = f.asUint(opCut, l[2], 1)
		f.asFixed(opCut, l[3], at.digest[:])
		if _, twice := c[name]; twice || name.kind > AuditLog {
			f.fail(opCut, errValue)
		}
		if f.odd == nil && !of(name.writer) {
			f.fail(opCut, fmt.Errorf("a log of device %s, which is not shut out: %w", name.writer.Device(), errState))
		}
		c[name] = at
		encoded = append(encoded, encodeCBOR(v))
	}
	f.sorted(opCut, encoded)
	return c
}

// recipient reads a recipient, and how it is written, which is in one way alone.
func (f *fields) recipient(key uint64) (*age.HybridRecipient, string) {
	text := f.text(key)
	if f.odd != nil {
		return nil, ""
	}
	r, err := parseRecipient(text)
	if err != nil {
		f.fail(key, err)
	}
	return r, text
}

// founderKey is the key that must have signed genesis.
func (e *rosterEntry) founderKey() (ed25519.PublicKey, error) {
	if len(e.operations) == 0 || e.operations[0].number != opTeam {
		if e.newer != nil {
			return nil, e.newer
		}
		return nil, fmt.Errorf("a roster begins with the team: %w", errState)
	}
	key := make(ed25519.PublicKey, ed25519.PublicKeySize)
	f := &fields{what: "operation", m: e.operations[0].body}
	f.fixed(opDeviceKey, key)
	return key, f.odd
}

// Founding is what a team begins with.
type Founding struct {
	Name, Address string // of the founding member
	Label         string // of the founding device, such as its host's name; may be empty
	Repository    RepositoryID
	Now           Millis
	Random        io.Reader // crypto/rand.Reader outside tests
}

// Found makes genesis: a team with one member, whose device is given, and the room general. It returns the team's id
// and the roster's first commit.
func Found(device *Device, with Founding) (TeamID, RosterCommit, error) {
	epoch, err := age.GenerateHybridIdentity()
	if err != nil {
		return TeamID{}, RosterCommit{}, err
	}
	return found(device, with, epoch)
}

func found(device *Device, with Founding, epoch *age.HybridIdentity) (TeamID, RosterCommit, error) {
	var (
		nonce  [32]byte
		member MemberID
		room   RoomID
	)
	for _, b := range [][]byte{nonce[:], member[:], room[:]} {
		if _, err := io.ReadFull(with.Random, b); err != nil {
			return TeamID{}, RosterCommit{}, err
		}
	}
	key := newEpochKey(RoomEpoch{room, 1}, epoch)
	keyFile, err := sealKeyFile(nonce, key, device.Age.Recipient())
	if err != nil {
		return TeamID{}, RosterCommit{}, err
	}
	draft := &rosterDraft{
		time: with.Now,
		operations: []any{[]any{uint64(opTeam), intMap{
			opNonce: nonce[:], opMember: member[:], opDeviceKey: []byte(device.Sign.Public().(ed25519.PublicKey)),
			opDeviceRecipient: device.Age.Recipient().String(), opRoom: room[:], opEpoch: uint64(1),
			opEpochRecipient: epoch.Recipient().String(), opRepository: with.Repository[:],
		}}},
		names: Names{
			string(member[:]):    {Name: with.Name, Address: with.Address},
			string(device.ID[:]): {Label: with.Label},
			string(room[:]):      {Name: "general"},
		},
		general:  epoch.Recipient(),
		keyFiles: map[keyFileName][]byte{{key.RoomEpoch, device.ID}: keyFile},
	}
	commit, err := draft.sign(device)
	if err != nil {
		return TeamID{}, RosterCommit{}, err
	}
	team := TeamID(sha256.Sum256(commit.Entry))
	if _, err := VerifyRoster(team, []RosterCommit{commit}); err != nil { // never write what could not be read
		return TeamID{}, RosterCommit{}, err
	}
	return team, commit, nil
}
