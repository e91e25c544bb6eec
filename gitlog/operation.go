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

const opTeam = 1

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

// operations holds what this version can apply. An entry with any other number stops the chain there.
var operations = map[uint64]struct {
	keys []uint64 // exactly those that its map carries (below 64)
	// apply changes next, the state after the operations before this one in the same entry; before is the state in
	// which the signer must have been allowed to do it.
	apply func(next, before *Roster, e *rosterEntry, f *fields) error
}{
	opTeam: {
		keys:  []uint64{opNonce, opMember, opDeviceKey, opDeviceRecipient, opRoom, opEpoch, opEpochRecipient, opRepository},
		apply: applyTeam,
	},
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

// apply applies one operation to r, which is before with the entry's earlier operations.
func (r *Roster) apply(before *Roster, e *rosterEntry, op operation) error {
	f := &fields{what: "operation", m: op.body}
	row := operations[op.number]
	for key := uint64(opNonce); key <= opVersion; key++ {
		if _, there := f.get(key); there && !slices.Contains(row.keys, key) {
			return fmt.Errorf("key %d does not belong to it: %w", key, errValue)
		}
	}
	return row.apply(r, before, e, f)
}

// applyTeam is genesis: the founder, the founder's device, the room general with its first epoch, a repository.
func applyTeam(next, before *Roster, e *rosterEntry, f *fields) error {
	var (
		member     MemberID
		room       RoomID
		repository RepositoryID
		key        = make(ed25519.PublicKey, ed25519.PublicKeySize)
	)
	f.fixed(opNonce, next.nonce[:])
	f.fixed(opMember, member[:])
	f.fixed(opDeviceKey, key)
	recipient := f.recipient(opDeviceRecipient)
	f.fixed(opRoom, room[:])
	number := f.uint(opEpoch, 1)
	epochRecipient := f.recipient(opEpochRecipient)
	f.fixed(opRepository, repository[:])
	if number != 1 {
		f.fail(opEpoch, errValue)
	}
	if err := f.finish(); err != nil {
		return err
	}
	if e.seq != 0 || len(e.operations) != 1 {
		return fmt.Errorf("a team begins once, and with nothing else: %w", errState)
	}
	next.General = room
	next.Members[member] = &Member{ID: member, Admin: true}
	device := DeviceIDOf(key)
	next.Devices[device] = &RosterDevice{ID: device, Key: key, Recipient: recipient.String(), Member: member}
	next.Rooms[room] = &Room{
		ID:      room,
		Members: map[MemberID]uint64{member: 0},
		Epochs: []*Epoch{{
			RoomEpoch: RoomEpoch{room, 1}, Recipient: epochRecipient.String(), recipient: epochRecipient,
		}},
	}
	next.Repositories[repository] = true
	return nil
}

func (f *fields) recipient(key uint64) *age.HybridRecipient {
	text := f.text(key)
	if f.odd != nil {
		return nil
	}
	r, err := parseRecipient(text)
	if err != nil {
		f.fail(key, err)
	}
	return r
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
	key := &EpochKey{RoomEpoch{room, 1}, epoch}
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
