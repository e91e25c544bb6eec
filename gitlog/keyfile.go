package gitlog

import (
	"bytes"
	"cmp"
	"fmt"
	"strconv"
	"sync/atomic"

	"filippo.io/age"
	"github.com/fxamacker/cbor/v2"
)

// A key file seals a room's epoch identity to one device; a link file seals the identity of the epoch before to the
// next one's, so that who can read an epoch can read what came before.

const maxKeyFile = 4 << 10 // a hybrid age file of 256 or 512 bytes has under 2.5 kB

type keyFileName struct {
	RoomEpoch
	Device DeviceID
}

// String is the file's path in its commit's tree.
func (n keyFileName) String() string {
	return "keys/" + n.Room.String() + "-" + strconv.FormatUint(n.Number, 10) + "-" + n.Device.String()
}

// linkName is the path in its commit's tree of the file that leads from an epoch to the one before.
func linkName(e RoomEpoch) string {
	return "links/" + e.Room.String() + "-" + strconv.FormatUint(e.Number, 10)
}

func compareEpochs(a, b RoomEpoch) int {
	return cmp.Or(bytes.Compare(a.Room[:], b.Room[:]), cmp.Compare(a.Number, b.Number))
}

func compareKeyFiles(a, b keyFileName) int {
	return cmp.Or(compareEpochs(a.RoomEpoch, b.RoomEpoch), bytes.Compare(a.Device[:], b.Device[:]))
}

// sealKeyFile seals an epoch's identity: in a key file to a device, in a link file to the epoch after it.
func sealKeyFile(nonce [32]byte, key *EpochKey, to *age.HybridRecipient) ([]byte, error) {
	return seal(to, encodeCBOR(intMap{1: nonce[:], 2: key.Room[:], 3: key.Number, 4: key.text}))
}

// openKeyFile opens a key or link file and checks that it holds the identity of that epoch of this team.
func openKeyFile(file []byte, with *age.HybridIdentity, nonce [32]byte, want *Epoch) (*EpochKey, error) {
	if len(file) > maxKeyFile {
		return nil, fmt.Errorf("a key file of %d bytes: %w of %d", len(file), errTooLarge, maxKeyFile)
	}
	v, _, err := open(with, file)
	if err != nil {
		return nil, err
	}
	f, err := openFields(v, "key file")
	if err != nil {
		return nil, err
	}
	var (
		team  [32]byte
		epoch RoomEpoch
	)
	f.fixed(1, team[:])
	f.fixed(2, epoch.Room[:])
	epoch.Number = f.uint(3, 1)
	text := f.text(4)
	if err := f.finish(); err != nil {
		return nil, err
	}
	if team != nonce || epoch != want.RoomEpoch {
		return nil, fmt.Errorf("the key of room %s, epoch %d: %w", want.Room, want.Number, errMoved)
	}
	// The error of age could repeat a part of the key.
	identity, err := age.ParseHybridIdentity(text)
	if err != nil || identity.String() != text {
		return nil, fmt.Errorf("the key of room %s, epoch %d: no identity: %w", want.Room, want.Number, errValue)
	}
	if identity.Recipient().String() != want.Recipient {
		return nil, fmt.Errorf("the key of room %s, epoch %d: not that of the roster's recipient: %w", want.Room, want.Number, errRecipient)
	}
	return newEpochKey(epoch, identity), nil
}

// OpenEpochs opens all epochs that the device can read: in each room those that have a key file for it, and through
// links those before. A room that it is not in is absent from the ring. With an error, which names the first file
// that should have opened and did not, the ring holds the others.
func (r *Roster) OpenEpochs(device *Device) (Keyring, error) {
	ring := Keyring{}
	var first error
	for _, room := range r.Rooms {
		for n := len(room.Epochs); n > 0; n-- {
			epoch := room.Epochs[n-1]
			file, after := r.fileOf(epoch, device.ID, ring)
			if file == nil {
				continue
			}
			if known := epoch.opened.Load(); known != nil && known.by == device.ID && bytes.Equal(known.file, file) {
				ring[epoch.RoomEpoch] = known.key
				continue
			}
			identity := device.Age
			var err error
			if after != nil {
				identity, err = after.identity()
			}
			var key *EpochKey
			if err == nil {
				key, err = openKeyFile(file, identity, r.nonce, epoch)
			}
			if err != nil {
				first = cmp.Or(first, err)
				continue
			}
			epoch.opened.Store(&openedEpoch{device.ID, file, key})
			ring[epoch.RoomEpoch] = key
		}
	}
	return ring, first
}

// fileOf returns the file that holds an epoch's key for a device: its own, or the link that an epoch after it opens; nil where there
// is none. after is that epoch's key, nil where it is the device's own file.
func (r *Roster) fileOf(epoch *Epoch, device DeviceID, ring Keyring) (file []byte, after *EpochKey) {
	if file = r.keyFiles[keyFileName{epoch.RoomEpoch, device}]; file != nil {
		return file, nil
	}
	if after = ring[RoomEpoch{epoch.Room, epoch.Number + 1}]; after != nil {
		return r.links[after.RoomEpoch], after
	}
	return nil, nil
}

// Names are the sealed part of a roster entry, by id (as bytes): what people read. Permission never depends on them.
type Names map[string]NameRecord

// NameRecord says how to call a member, device, room or area; each text may be empty.
type NameRecord struct {
	Name    string
	Address string // a member's
	Label   string // a device's
	Prefix  string // an area's path, as bytes
}

func (n Names) encode() map[any]any {
	m := make(map[any]any, len(n))
	for id, record := range n {
		r := intMap{}
		r.set(1, record.Name)
		r.set(2, record.Address)
		r.set(3, record.Label)
		r.set(4, []byte(record.Prefix))
		m[cbor.ByteString(id)] = r
	}
	return m
}

// sealedNames is one entry's sealed part and what it must agree with.
type sealedNames struct {
	epoch RoomEpoch
	bytes []byte
	rest  Digest // of the entry's payload without this part
	seq   uint64
	by    author
	names *atomic.Pointer[Names] // once opened; shared by all states that go on from the entry
}

func (s *sealedNames) open(ring Keyring) (Names, error) {
	key := ring[s.epoch]
	if key == nil {
		return nil, fmt.Errorf("room %s, epoch %d: %w", s.epoch.Room, s.epoch.Number, errIdentity)
	}
	if known := s.names.Load(); known != nil {
		return *known, nil
	}
	v, _, err := key.open(s.bytes)
	if err != nil {
		return nil, err
	}
	f, err := openFields(v, "sealed part")
	if err != nil {
		return nil, err
	}
	var rest Digest
	f.fixed(1, rest[:])
	names := Names{}
	byID, _ := f.need(2)
	m, ok := byID.(map[any]any)
	if !ok {
		f.fail(2, errType)
	}
	for k, v := range m {
		id, ok := k.(cbor.ByteString)
		if !ok || !oneOf(len(id), []int{len(MemberID{}), len(RoomID{})}) {
			f.fail(2, errType)
			continue
		}
		rf, err := openFields(v, "name")
		if err != nil {
			f.within(err)
			continue
		}
		record := NameRecord{Name: rf.textIf(1), Address: rf.textIf(2), Label: rf.textIf(3), Prefix: string(rf.bytesIf(4))}
		f.within(rf.finish())
		names[string(id)] = record
	}
	if err := f.finish(); err != nil {
		return nil, err
	}
	if rest != s.rest {
		return nil, errMoved
	}
	s.names.Store(&names)
	return names, nil
}

// ReadNames fills in names, addresses, labels and prefixes from what the ring opens, later entries' last, of those who left
// too. Who was no admin names only own devices and the own member. With an error, which names the first entry whose names
// could not be read, the others are filled in.
func (r *Roster) ReadNames(ring Keyring) error {
	var first error
	for i := range r.sealed {
		names, err := r.sealed[i].open(ring)
		if err != nil {
			first = cmp.Or(first, fmt.Errorf("the names in roster entry %d: %w", r.sealed[i].seq, err))
			continue
		}
		r.takeNames(names, r.sealed[i].by)
	}
	return first
}

func (r *Roster) takeNames(names Names, by author) {
	all := by.admin || by.device == DeviceID{} // genesis has no author in the state before
	for id, n := range names {
		if len(id) == len(MemberID{}) {
			m := r.Members[MemberID([]byte(id))]
			if m == nil {
				m = r.formerMembers[MemberID([]byte(id))]
			}
			if m != nil && (all || m.ID == by.member) {
				m.Name, m.Address = n.Name, n.Address
			}
			if d := r.device(DeviceID([]byte(id))); d != nil && (all || d.Member == by.member) {
				d.Label = n.Label
			}
			continue
		}
		if !all {
			continue
		}
		if room := r.Rooms[RoomID([]byte(id))]; room != nil {
			room.Name = n.Name
		}
		if area := r.Areas[AreaID([]byte(id))]; area != nil {
			area.Prefix, area.read = n.Prefix, true
		}
	}
}
