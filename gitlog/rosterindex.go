package gitlog

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/fxamacker/cbor/v2"
)

// The roster's index holds the state that a chain led to, with the epochs and names that this device opened, so that a start need not
// read, verify and open every entry again. It is one record, sealed under the local key as the clone's index is, and nothing but
// that seal makes it believed: it says what this device itself verified. What it does not decide is whether the state still
// counts: the accepted ref has to descend from its commit, whose entry has to have its head's hash, and what was pinned is compared
// as ever. Whatever does not fit makes it void, and the chain is verified from genesis on. `knoot verify` never looks at it.
const rosterIndexMagic = "knootr1\n"

// rosterIndexEvery is how many entries may be verified again at each start before the index is written anew: each takes about
// half a millisecond.
const rosterIndexEvery = 8

func rosterIndexPath(common string) string { return filepath.Join(common, "knoot", "roster") }

// errRosterIndex marks an index of the roster that cannot be used.
var errRosterIndex = errors.New("the index of the roster does not fit")

// rosterIndex is a Roster as it is kept. Names are those of people's that Sealed holds, so members, devices, rooms and areas come
// without.
type rosterIndex struct {
	Commit       Hash           `cbor:"1,keyasint"` // that has the head
	Device       DeviceID       `cbor:"2,keyasint"` // that opened what is opened
	Team         TeamID         `cbor:"3,keyasint"`
	Time         Millis         `cbor:"4,keyasint"`
	General      RoomID         `cbor:"5,keyasint"`
	MinVersion   uint64         `cbor:"6,keyasint"`
	Nonce        [32]byte       `cbor:"7,keyasint"`
	Hashes       []Digest       `cbor:"8,keyasint"` // of all entries; the last is the head's
	Members      []keptMember   `cbor:"9,keyasint"`
	Devices      []keptDevice   `cbor:"10,keyasint"`
	Rooms        []keptRoom     `cbor:"11,keyasint"`
	Areas        []keptArea     `cbor:"12,keyasint"`
	Repositories []RepositoryID `cbor:"13,keyasint"`
	Retired      []WriterID     `cbor:"14,keyasint"`
	KeyFiles     []keptKeyFile  `cbor:"15,keyasint"` // of current epochs, and this device's of all
	Sealed       []keptNames    `cbor:"16,keyasint"`
}

type keptMember struct {
	_             struct{} `cbor:",toarray"`
	ID            MemberID
	Admin, Former bool
}

type keptDevice struct {
	_            struct{} `cbor:",toarray"`
	Key          []byte
	Recipient    string
	Member       MemberID
	Pending      bool
	Expires      Millis
	Since, Until uint64
	End          ending
	Cut          []keptCut // null and none are two things
	Former       bool
}

type keptCut struct {
	_      struct{} `cbor:",toarray"`
	Writer WriterID
	Log    LogKind
	Seq    uint64
	Digest Digest
}

type keptRoom struct {
	_       struct{} `cbor:",toarray"`
	ID      RoomID
	Members []keptStay
	Past    []keptStay
	Epochs  []keptEpoch
}

type keptStay struct {
	_            struct{} `cbor:",toarray"`
	Member       MemberID
	Since, Until uint64
	Cut          []keptCut
}

type keptEpoch struct {
	_         struct{} `cbor:",toarray"`
	Recipient string
	Since     uint64
	Link      []byte
	Key       string // as age writes it; "" for one that this device could not open
}

type keptArea struct {
	_    struct{} `cbor:",toarray"`
	ID   AreaID
	Room RoomID
}

type keptKeyFile struct {
	_      struct{} `cbor:",toarray"`
	Room   RoomID
	Number uint64
	Device DeviceID
	Data   []byte
}

// keptNames has the names where they were opened, else what has to be opened.
type keptNames struct {
	_      struct{} `cbor:",toarray"`
	Room   RoomID
	Number uint64
	Seq    uint64
	Device DeviceID // who signed the entry, and could
	Member MemberID
	Admin  bool
	Names  []keptName
	Bytes  []byte
	Rest   Digest
}

type keptName struct {
	_                            struct{} `cbor:",toarray"`
	ID                           []byte
	Name, Address, Label, Prefix []byte
}

// readRosterIndex returns the state that was kept and the commit that it goes up to; errRosterIndex where there is none, or it is
// damaged, another team's, device's or clone's, or from another version.
func readRosterIndex(common string, device *Device, writer WriterID, team TeamID) (*Roster, Hash, error) {
	content, err := os.ReadFile(rosterIndexPath(common))
	if err != nil || !bytes.HasPrefix(content, []byte(rosterIndexMagic)) {
		return nil, "", errRosterIndex
	}
	plain, err := OpenRecord(&device.Local, writer.String()+"/roster", 0, content[len(rosterIndexMagic):])
	if err != nil {
		return nil, "", errRosterIndex
	}
	kept := &rosterIndex{}
	if cbor.Unmarshal(plain, kept) != nil || kept.Team != team || kept.Device != device.ID {
		return nil, "", errRosterIndex
	}
	roster, err := kept.roster()
	if err != nil {
		return nil, "", err
	}
	return roster, kept.Commit, nil
}

// writeRosterIndex keeps a state whose head is in that commit.
func writeRosterIndex(common string, device *Device, writer WriterID, roster *Roster, commit Hash) error {
	plain, err := cbor.Marshal(keepRoster(roster, device.ID, commit))
	if err == nil {
		sealed := SealRecord(&device.Local, writer.String()+"/roster", 0, plain)
		err = ReplaceFile(rosterIndexPath(common), append([]byte(rosterIndexMagic), sealed...), 0o600)
	}
	if err != nil {
		return fmt.Errorf("cannot keep the index of the roster: %w", err)
	}
	return nil
}

// resumeRoster reads the chain up to tip, as far as the roster's index does not have it. errRosterIndex: there is none that the chain
// goes on from, so that it has to be verified whole. Otherwise it says what VerifyRoster would.
func (c *Clone) resumeRoster(ctx context.Context, objects *objectStore, tip Hash) (*Roster, error) {
	roster, commit, err := readRosterIndex(c.Repo.CommonDir, c.device, c.writer, c.settings.Team)
	if err != nil {
		return nil, err
	}
	later, reached, err := objects.readChain(ctx, tip, commit, maxRosterSeq)
	if err != nil || !reached {
		return nil, errRosterIndex
	}
	// A git id is a SHA-1; the chain goes by hashes of its own.
	head, err := objects.readCommit(ctx, commit)
	if err != nil {
		return nil, errRosterIndex
	}
	if entry, err := objects.readFile(ctx, head.Tree, "entry", fileLimits{Files: maxRosterFiles, Bytes: maxRosterEntry}); err != nil || sha256.Sum256(entry) != roster.Head.Hash {
		return nil, errRosterIndex
	}
	kept := roster.Head.Seq
	chain, err := readRosterCommits(ctx, objects, later, kept+1)
	if err != nil {
		return nil, errRosterIndex // whoever reads the whole chain says what is wrong
	}
	roster, err = roster.resume(chain)
	if err == nil {
		c.keptRoster = kept + 1
	}
	return roster, err
}

// keepRosterIndex writes the roster's index where it lacks much. A chain that goes on with what is wrong, or newer, is verified
// again each time.
func (c *Clone) keepRosterIndex() error {
	if c.roster == nil || c.rosterTip == "" || c.roster.Head.Seq+1 < c.keptRoster+rosterIndexEvery {
		return nil
	}
	if err := writeRosterIndex(c.Repo.CommonDir, c.device, c.writer, c.roster, c.rosterTip); err != nil {
		return err
	}
	c.keptRoster = c.roster.Head.Seq + 1
	return nil
}

func keepRoster(r *Roster, device DeviceID, commit Hash) *rosterIndex {
	k := &rosterIndex{
		Commit: commit, Device: device, Team: r.Team, Time: r.Time, General: r.General, MinVersion: r.MinVersion,
		Nonce: r.nonce, Hashes: r.hashes,
	}
	for former, members := range []map[MemberID]*Member{r.Members, r.formerMembers} {
		for _, m := range members {
			k.Members = append(k.Members, keptMember{ID: m.ID, Admin: m.Admin, Former: former == 1})
		}
	}
	for former, devices := range []map[DeviceID]*RosterDevice{r.Devices, r.former} {
		for _, d := range devices {
			k.Devices = append(k.Devices, keptDevice{
				Key: d.Key, Recipient: d.Recipient, Member: d.Member, Pending: d.Pending, Expires: d.Expires,
				Since: d.since, Until: d.until, End: d.end, Cut: keepCut(d.cut), Former: former == 1,
			})
		}
	}
	for _, room := range r.Rooms {
		k.Rooms = append(k.Rooms, r.keepRoom(room, device))
	}
	for _, a := range r.Areas {
		k.Areas = append(k.Areas, keptArea{ID: a.ID, Room: a.Room})
	}
	for id := range r.Repositories {
		k.Repositories = append(k.Repositories, id)
	}
	for id := range r.Retired {
		k.Retired = append(k.Retired, id)
	}
	for name, data := range r.keyFiles {
		if name.Device == device || name.RoomEpoch == r.Rooms[name.Room].Current().RoomEpoch {
			k.KeyFiles = append(k.KeyFiles, keptKeyFile{Room: name.Room, Number: name.Number, Device: name.Device, Data: data})
		}
	}
	for _, s := range r.sealed {
		kept := keptNames{Room: s.epoch.Room, Number: s.epoch.Number, Seq: s.seq, Device: s.by.device, Member: s.by.member, Admin: s.by.admin}
		if names := s.names.Load(); names != nil {
			kept.Names = []keptName{}
			for id, n := range *names {
				kept.Names = append(kept.Names, keptName{ID: []byte(id), Name: []byte(n.Name), Address: []byte(n.Address), Label: []byte(n.Label), Prefix: []byte(n.Prefix)})
			}
		} else {
			kept.Bytes, kept.Rest = s.bytes, s.rest
		}
		k.Sealed = append(k.Sealed, kept)
	}
	return k
}

func (r *Roster) keepRoom(room *Room, device DeviceID) keptRoom {
	kept := keptRoom{ID: room.ID}
	for id, since := range room.Members {
		kept.Members = append(kept.Members, keptStay{Member: id, Since: since})
	}
	for _, s := range room.past {
		kept.Past = append(kept.Past, keptStay{Member: s.member, Since: s.since, Until: s.until, Cut: keepCut(s.cut)})
	}
	for _, e := range room.Epochs {
		epoch := keptEpoch{Recipient: e.Recipient, Since: e.since, Link: r.links[e.RoomEpoch]}
		if opened := e.opened.Load(); opened != nil && opened.by == device {
			epoch.Key = opened.key.text
		}
		kept.Epochs = append(kept.Epochs, epoch)
	}
	return kept
}

func keepCut(c cut) []keptCut {
	if c == nil {
		return nil
	}
	kept := []keptCut{}
	for name, at := range c {
		kept = append(kept, keptCut{Writer: name.writer, Log: name.kind, Seq: at.seq, Digest: at.digest})
	}
	return kept
}

// roster is the state that was kept; errRosterIndex where it is none that a chain can lead to.
func (k *rosterIndex) roster() (*Roster, error) {
	if len(k.Hashes) == 0 || TeamID(k.Hashes[0]) != k.Team {
		return nil, errRosterIndex
	}
	r := newRoster()
	r.Team, r.Time, r.General, r.MinVersion = k.Team, k.Time, k.General, k.MinVersion
	r.nonce, r.hashes = k.Nonce, k.Hashes
	r.Head = RosterHead{Seq: uint64(len(k.Hashes) - 1), Hash: k.Hashes[len(k.Hashes)-1]}
	for _, m := range k.Members {
		into := r.Members
		if m.Former {
			into = r.formerMembers
		}
		into[m.ID] = &Member{ID: m.ID, Admin: m.Admin}
	}
	for _, d := range k.Devices {
		if len(d.Key) != ed25519.PublicKeySize || r.Members[d.Member] == nil && (!d.Former || r.formerMembers[d.Member] == nil) {
			return nil, errRosterIndex
		}
		into := r.Devices
		if d.Former {
			into = r.former
		}
		id := DeviceIDOf(d.Key)
		into[id] = &RosterDevice{
			ID: id, Key: d.Key, Recipient: d.Recipient, Member: d.Member, Pending: d.Pending, Expires: d.Expires,
			since: d.Since, until: d.Until, end: d.End, cut: restoreCut(d.Cut),
		}
	}
	for _, kept := range k.Rooms {
		if err := r.restoreRoom(kept); err != nil {
			return nil, err
		}
	}
	if r.Rooms[r.General] == nil || !r.hasAdminDevice() {
		return nil, errRosterIndex
	}
	for _, a := range k.Areas {
		if r.Rooms[a.Room] == nil {
			return nil, errRosterIndex
		}
		r.Areas[a.ID] = &Area{ID: a.ID, Room: a.Room}
	}
	for _, id := range k.Repositories {
		r.Repositories[id] = true
	}
	for _, id := range k.Retired {
		r.Retired[id] = true
	}
	for _, f := range k.KeyFiles {
		name := keyFileName{RoomEpoch{f.Room, f.Number}, f.Device}
		if r.Epoch(name.RoomEpoch) == nil {
			return nil, errRosterIndex
		}
		r.keyFiles[name] = f.Data
	}
	for _, kept := range k.Rooms {
		ring := Keyring{}
		for i := len(kept.Epochs) - 1; i >= 0; i-- {
			epoch := r.Rooms[kept.ID].Epochs[i]
			if text := kept.Epochs[i].Key; text != "" {
				key := &EpochKey{RoomEpoch: epoch.RoomEpoch, text: text}
				file, _ := r.fileOf(epoch, k.Device, ring)
				epoch.opened.Store(&openedEpoch{k.Device, file, key})
				ring[epoch.RoomEpoch] = key
			}
		}
	}
	for _, kept := range k.Sealed {
		s := sealedNames{
			epoch: RoomEpoch{kept.Room, kept.Number}, bytes: kept.Bytes, rest: kept.Rest, seq: kept.Seq,
			by: author{device: kept.Device, member: kept.Member, admin: kept.Admin}, names: new(atomic.Pointer[Names]),
		}
		if kept.Names != nil {
			names := Names{}
			for _, n := range kept.Names {
				if !oneOf(len(n.ID), []int{len(MemberID{}), len(RoomID{})}) {
					return nil, errRosterIndex
				}
				names[string(n.ID)] = NameRecord{Name: string(n.Name), Address: string(n.Address), Label: string(n.Label), Prefix: string(n.Prefix)}
			}
			s.names.Store(&names)
		}
		r.sealed = append(r.sealed, s)
	}
	return r, nil
}

func (r *Roster) restoreRoom(kept keptRoom) error {
	room := &Room{ID: kept.ID, Members: map[MemberID]uint64{}}
	for _, s := range kept.Members {
		if r.Members[s.Member] == nil {
			return errRosterIndex
		}
		room.Members[s.Member] = s.Since
	}
	for _, s := range kept.Past {
		room.past = append(room.past, stay{member: s.Member, since: s.Since, until: s.Until, cut: restoreCut(s.Cut)})
	}
	for i, e := range kept.Epochs {
		epoch := &Epoch{RoomEpoch: RoomEpoch{kept.ID, uint64(i) + 1}, Recipient: e.Recipient, since: e.Since}
		if e.Link != nil {
			r.links[epoch.RoomEpoch] = e.Link
		}
		room.Epochs = append(room.Epochs, epoch)
	}
	if len(room.Epochs) == 0 || r.Rooms[room.ID] != nil {
		return errRosterIndex
	}
	var err error
	if room.Current().recipient, err = parseRecipient(room.Current().Recipient); err != nil {
		return errRosterIndex
	}
	r.Rooms[room.ID] = room
	return nil
}

func restoreCut(kept []keptCut) cut {
	if kept == nil {
		return nil
	}
	c := cut{}
	for _, k := range kept {
		c[logName{k.Writer, k.Log}] = cutAt{k.Seq, k.Digest}
	}
	return c
}
