package gitlog

import (
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"filippo.io/age"
)

// The roster is one linear chain of signed entries, each a list of operations, all or none. The hash of the first
// entry is the team's id. This file checks a chain and holds the state that it leads to; what an operation means is
// in operation.go, the key files are in keyfile.go.

const (
	rosterVersion  = 1
	maxRosterEntry = 256 << 10
	maxRosterSeq   = 100_000
)

var (
	errChain     = errors.New("does not continue the roster")
	errSigner    = errors.New("is signed by a device that may not do this")
	errFiles     = errors.New("its key files are not those that it lists")
	errNoKeyFile = errors.New("leaves a device without a key file for one of its rooms")
	errState     = errors.New("does not fit the state before it")
	errNoEpoch   = errors.New("shuts somebody out of a room without beginning its next epoch")
	errNoAdmin   = errors.New("would leave the team without a device that can change it")

	// ErrRosterBehind marks a segment whose writer went by a roster head that is not in this clone's chain: the host
	// shows less of the roster than others have seen. The segment is kept unopened, and nothing is sealed.
	ErrRosterBehind = errors.New("goes by a roster that this clone has not been shown")
	// errNotAdmitted marks a segment that the roster does not allow.
	errNotAdmitted = errors.New("is not allowed by the roster")
)

// RosterCommit is one commit of the roster's ref: its tree's blob `entry`, and the others by name (`keys/…`,
// `links/…`).
type RosterCommit struct {
	Entry []byte
	Files map[string][]byte
}

// Roster is the state that a verified chain leads to. Its maps must not be changed from outside.
type Roster struct {
	Team         TeamID
	Head         RosterHead
	Time         Millis // of the head
	General      RoomID // the room that holds every member
	Members      map[MemberID]*Member
	Devices      map[DeviceID]*RosterDevice // those that are in it now, pending ones included
	Rooms        map[RoomID]*Room
	Areas        map[AreaID]*Area
	Repositories map[RepositoryID]bool
	Retired      map[WriterID]bool // logs of departed writers that may be deleted
	MinVersion   uint64            // of whoever seals; 0 where none was set

	// Newer is nil, or wraps ErrNewer: the chain goes on with an entry that this version cannot apply. The state
	// before it is good for reading; nothing may be sealed by it, since who may read is not known.
	Newer error

	former        map[DeviceID]*RosterDevice
	formerMembers map[MemberID]*Member

	bare     bool     // made of entries alone (chain.go): no key or link file is held, and no sealed name
	nonce    [32]byte // of genesis; stands for the team inside key files
	hashes   []Digest // of all entries, by seq
	keyFiles map[keyFileName][]byte
	links    map[RoomEpoch][]byte
	sealed   []sealedNames
}

// Member is a person. Name and Address are empty until ReadNames could open them.
type Member struct {
	ID      MemberID
	Name    string
	Address string
	Admin   bool
}

// RosterDevice is a device of a member: one that may write, or, while it is pending, the key of an invitation, which may
// sign one entry.
type RosterDevice struct {
	ID        DeviceID
	Key       ed25519.PublicKey
	Recipient string
	Member    MemberID
	Label     string
	Pending   bool
	Expires   Millis // of a pending one

	since, until uint64 // seqs of the entries that let it in and out; until is 0 while it is in
	end          ending
	cut          cut
}

// ending says how a device left the roster.
type ending int

const (
	stillIn ending = iota
	endRemoved
	endJoined    // a pending one was replaced by the laptop's own keys
	endCancelled // a pending one was taken back
)

// Room is an access group.
type Room struct {
	ID      RoomID
	Name    string
	Members map[MemberID]uint64 // by the seq of the entry that let each in
	Epochs  []*Epoch            // Epochs[i].Number is i+1; the last is current

	past []stay
}

// stay is a member's time in a room that has ended: from the entry since on, up to and without until.
type stay struct {
	member       MemberID
	since, until uint64
	cut          cut // of a revocation; nil where the member left the team
}

// Area is a path prefix that belongs to a room. Prefix is empty until ReadNames could open it.
type Area struct {
	ID     AreaID
	Room   RoomID
	Prefix string

	read bool // Prefix was opened; it may be empty
}

// Epoch is what is sealed to in one epoch of a room.
type Epoch struct {
	RoomEpoch
	Recipient string
	recipient *age.HybridRecipient // Recipient, read; nil in a state from the roster's index, where the epoch was not current
	since     uint64

	opened atomic.Pointer[openedEpoch] // the last that OpenEpochs opened; an epoch is shared by all states that go on from it
}

// sealsTo is Recipient, read: whom one seals to.
func (e *Epoch) sealsTo() (*age.HybridRecipient, error) {
	if e.recipient != nil {
		return e.recipient, nil
	}
	return parseRecipient(e.Recipient)
}

// openedEpoch is an epoch's key, the file that held it, and the device that opened it.
type openedEpoch struct {
	by   DeviceID
	file []byte
	key  *EpochKey
}

// Current returns the room's current epoch.
func (r *Room) Current() *Epoch { return r.Epochs[len(r.Epochs)-1] }

// VerifyRoster checks a chain from genesis on. With an error it returns the state before the entry that is wrong, nil
// if that is genesis. An entry that only a newer version can apply is no error once genesis is read: see Newer. One
// whose signature only a newer version could check is an error (ErrNewer), for it may be anybody's.
func VerifyRoster(team TeamID, chain []RosterCommit) (*Roster, error) {
	if len(chain) == 0 {
		return nil, fmt.Errorf("an empty roster: %w", errChain)
	}
	if hash := sha256.Sum256(chain[0].Entry); hash != team {
		return nil, fmt.Errorf("the roster is that of team %x, not of %s: %w", hash, team, errChain)
	}
	r := newRoster()
	if err := r.extend(chain[0]); err != nil {
		return nil, err
	}
	return r.resume(chain[1:])
}

// resume is VerifyRoster for a chain whose beginning led to r, which stays as it is.
func (r *Roster) resume(chain []RosterCommit) (*Roster, error) {
	next := r.clone()
	for i, commit := range chain {
		err := next.extend(commit)
		if err == nil {
			continue
		}
		// The entry may have been applied in part.
		if next, _ = r.resume(chain[:i]); errors.Is(err, errNewerEntry) {
			next.Newer, err = err, nil
		}
		return next, err
	}
	return next, nil
}

func newRoster() *Roster {
	return &Roster{
		Members: map[MemberID]*Member{}, Devices: map[DeviceID]*RosterDevice{}, Rooms: map[RoomID]*Room{},
		Areas: map[AreaID]*Area{}, Repositories: map[RepositoryID]bool{}, Retired: map[WriterID]bool{},
		former: map[DeviceID]*RosterDevice{}, formerMembers: map[MemberID]*Member{},
		keyFiles: map[keyFileName][]byte{}, links: map[RoomEpoch][]byte{},
	}
}

// Extend returns the state after one more entry; r stays as it is. If only a newer version can apply the entry, the
// state returned is r's own with Newer set.
func (r *Roster) Extend(commit RosterCommit) (*Roster, error) {
	if r.Newer != nil {
		return nil, r.Newer
	}
	next := r.clone()
	err := next.extend(commit)
	if errors.Is(err, errNewerEntry) {
		stopped := *r
		stopped.Newer = err
		return &stopped, nil
	}
	if err != nil {
		return nil, err
	}
	return next, nil
}

// errNewerEntry marks an entry that is rightly signed and that only a newer version can apply.
var errNewerEntry = fmt.Errorf("the roster goes on: %w", ErrNewer)

// extend applies one more entry to r itself, which is worth nothing after an error.
func (r *Roster) extend(commit RosterCommit) error {
	seq := uint64(len(r.hashes))
	e, err := r.verify(commit.Entry, seq)
	if err != nil {
		return fmt.Errorf("roster entry %d: %w", seq, err)
	}
	err = r.apply(e, commit.Files)
	if errors.Is(err, ErrNewer) {
		return fmt.Errorf("%w (entry %d: %w)", errNewerEntry, seq, err)
	}
	if err != nil {
		return fmt.Errorf("roster entry %d: %w", seq, err)
	}
	return nil
}

// verify takes an entry apart and checks that it continues the chain and is signed by a device that may sign. Only
// after that does a mark of a newer version count: otherwise whoever can push to the host could keep a team from
// sealing.
func (r *Roster) verify(entry []byte, seq uint64) (*rosterEntry, error) {
	e, err := parseRosterEntry(entry)
	if err != nil {
		return nil, err
	}
	switch {
	case e.seq != seq:
		return nil, fmt.Errorf("it says seq %d: %w", e.seq, errChain)
	case seq > 0 && e.prev != r.Head.Hash:
		return nil, fmt.Errorf("it follows %s, the head is %s: %w", e.prev, r.Head.Hash, errChain)
	case seq >= maxRosterSeq:
		return nil, fmt.Errorf("the chain: %w of %d", errTooLarge, maxRosterSeq)
	}
	signer, err := r.signer(e)
	if err != nil {
		return nil, err
	}
	return e, e.signed.verify(signer, rosterContext)
}

// apply makes r the state after a verified entry.
func (r *Roster) apply(e *rosterEntry, files map[string][]byte) error {
	if e.newer != nil {
		return e.newer
	}
	if e.time < r.Time {
		return fmt.Errorf("it is older than the entry before it: %w", errChain)
	}
	w := &entryWork{e: e, by: r.authorOf(e.kid), begin: map[RoomID]bool{}, begun: map[RoomID]bool{}}
	r.Head = RosterHead{Seq: e.seq, Hash: e.hash}
	r.Time = e.time
	r.hashes = append(r.hashes, e.hash)
	if e.seq == 0 {
		r.Team = TeamID(e.hash)
	}
	for i, op := range e.operations {
		if err := r.applyOperation(w, op); err != nil {
			return fmt.Errorf("operation %d of it (number %d): %w", i+1, op.number, err)
		}
	}
	for room := range w.begin {
		if !w.begun[room] {
			return fmt.Errorf("room %s: %w", room, errNoEpoch)
		}
	}
	if !r.hasAdminDevice() {
		return errNoAdmin
	}
	if err := r.addFiles(w, files); err != nil {
		return err
	}
	if e.sealed != nil && !r.bare {
		r.sealed = append(r.sealed, sealedNames{
			epoch: r.Rooms[r.General].Current().RoomEpoch, bytes: e.sealed, rest: e.restDigest, seq: e.seq, by: w.by, names: new(atomic.Pointer[Names]),
		})
	}
	return nil
}

// hasAdminDevice says whether somebody can still change the team.
func (r *Roster) hasAdminDevice() bool {
	for _, d := range r.Devices {
		if !d.Pending && r.Members[d.Member].Admin {
			return true
		}
	}
	return false
}

// signer returns the key that must have signed an entry: a live device's, or in genesis the founder's own.
func (r *Roster) signer(e *rosterEntry) (ed25519.PublicKey, error) {
	if e.seq > 0 {
		d := r.Devices[e.kid]
		if d == nil {
			return nil, fmt.Errorf("device %s: %w", e.kid, errSigner)
		}
		return d.Key, nil
	}
	key, err := e.founderKey()
	if err == nil && DeviceIDOf(key) != e.kid {
		err = errKeyID
	}
	return key, err
}

// clone copies all that operations change.
func (r *Roster) clone() *Roster {
	c := *r
	c.Members, c.Devices, c.Areas = cloneEach(r.Members), cloneEach(r.Devices), cloneEach(r.Areas)
	c.former, c.formerMembers = cloneEach(r.former), cloneEach(r.formerMembers)
	c.Rooms = cloneEach(r.Rooms)
	for _, room := range c.Rooms {
		room.Members = maps.Clone(room.Members)
		room.Epochs, room.past = slices.Clip(room.Epochs), slices.Clip(room.past)
	}
	c.Repositories, c.Retired = maps.Clone(r.Repositories), maps.Clone(r.Retired)
	c.keyFiles, c.links = maps.Clone(r.keyFiles), maps.Clone(r.links)
	c.hashes, c.sealed = slices.Clip(r.hashes), slices.Clip(r.sealed)
	return &c
}

func cloneEach[K comparable, V any](m map[K]*V) map[K]*V {
	c := make(map[K]*V, len(m))
	for k, v := range m {
		copied := *v
		c[k] = &copied
	}
	return c
}

// addFiles takes over the files that an entry lists, after its operations: key files that were lacking, and links of the
// epochs that it begins. None is ever replaced.
func (r *Roster) addFiles(w *entryWork, files map[string][]byte) error {
	e := w.e
	if !r.bare && len(files) != len(e.keyFiles)+len(e.links) {
		return fmt.Errorf("%d files, %d listed: %w", len(files), len(e.keyFiles)+len(e.links), errFiles)
	}
	listed := func(name string, digest Digest) ([]byte, error) {
		if r.bare {
			return nil, nil
		}
		data, ok := files[name]
		if !ok || sha256.Sum256(data) != digest {
			return nil, fmt.Errorf("%s: %w", name, errFiles)
		}
		if len(data) > maxKeyFile {
			return nil, fmt.Errorf("%s has %d bytes: %w of %d", name, len(data), errTooLarge, maxKeyFile)
		}
		return data, nil
	}
	for name, digest := range e.keyFiles {
		data, err := listed(name.String(), digest)
		if err != nil {
			return err
		}
		if !r.wants(name) {
			return fmt.Errorf("%s: not of the current epoch of a room and a device in it, or there is one already: %w", name, errState)
		}
		r.keyFiles[name] = data
	}
	for name, digest := range e.links {
		data, err := listed(linkName(name), digest)
		if err != nil {
			return err
		}
		if epoch := r.Epoch(name); epoch == nil || name.Number < 2 || epoch.since != e.seq {
			return fmt.Errorf("%s: not of an epoch that it begins, or none is before that: %w", linkName(name), errState)
		}
		r.links[name] = data
	}
	for room := range w.begun {
		epoch := r.Rooms[room].Current().RoomEpoch
		if _, there := r.links[epoch]; epoch.Number > 1 && !there {
			return fmt.Errorf("%s is not listed: %w", linkName(epoch), errFiles)
		}
	}
	if lacking := r.lacking(); len(lacking) > 0 {
		return fmt.Errorf("device %s, room %s: %w", lacking[0].Device, lacking[0].Room, errNoKeyFile)
	}
	return nil
}

// wants says whether there should be a key file of this name and is none.
func (r *Roster) wants(name keyFileName) bool {
	room, device := r.Rooms[name.Room], r.Devices[name.Device]
	if room == nil || device == nil || len(room.Epochs) == 0 || name.RoomEpoch != room.Current().RoomEpoch {
		return false
	}
	_, in := room.Members[device.Member]
	_, there := r.keyFiles[name]
	return in && !there
}

// lacking lists, in order, the key files that are not there for the current epochs: every device has one for each of its
// rooms.
func (r *Roster) lacking() []keyFileName {
	var names []keyFileName
	for _, room := range r.Rooms {
		if len(room.Epochs) == 0 {
			continue
		}
		for id := range r.Devices {
			if name := (keyFileName{room.Current().RoomEpoch, id}); r.wants(name) {
				names = append(names, name)
			}
		}
	}
	slices.SortFunc(names, compareKeyFiles)
	return names
}

// Epoch returns an epoch, or nil.
func (r *Roster) Epoch(e RoomEpoch) *Epoch {
	room := r.Rooms[e.Room]
	if room == nil || e.Number < 1 || e.Number > uint64(len(room.Epochs)) {
		return nil
	}
	return room.Epochs[e.Number-1]
}

// Sealable returns nil, or why nothing may be sealed by this state: a newer version's entry, or an area whose prefix could not
// be read, so that what belongs to its room would be sealed to everybody.
func (r *Roster) Sealable() error {
	if r.Newer != nil {
		return r.Newer
	}
	for _, a := range r.Areas {
		if !a.read {
			return fmt.Errorf("area %s has no prefix that can be read: an admin has to run `knoot areas --apply`", a.ID)
		}
	}
	return nil
}

// rosterEntry is one entry, taken apart.
type rosterEntry struct {
	hash       Digest
	kid        DeviceID
	signed     *signed
	newer      error
	seq        uint64
	prev       Digest
	time       Millis
	operations []operation
	sealed     []byte // part 6
	restDigest Digest // of the payload without part 6
	keyFiles   map[keyFileName]Digest
	links      map[RoomEpoch]Digest
}

func parseRosterEntry(data []byte) (*rosterEntry, error) {
	if len(data) > maxRosterEntry {
		return nil, fmt.Errorf("%d bytes: %w of %d", len(data), errTooLarge, maxRosterEntry)
	}
	s, err := parseSigned(data)
	if err != nil {
		return nil, err
	}
	e := &rosterEntry{hash: sha256.Sum256(data), signed: s}
	v, err := decodeStrict(s.protected)
	if err != nil {
		return nil, fmt.Errorf("protected header: %w", err)
	}
	f, err := openFields(v, "protected header")
	if err != nil {
		return nil, err
	}
	if e.kid, err = readSigner(f); err != nil {
		return nil, err
	}
	if e.newer = f.finish(); e.newer != nil && !errors.Is(e.newer, ErrNewer) {
		return nil, e.newer
	}
	if v, err = decodeStrict(s.payload); err != nil {
		return nil, fmt.Errorf("payload: %w", err)
	}
	if f, err = openFields(v, "payload"); err != nil {
		return nil, err
	}
	e.seq = f.uint(2, 0)
	if e.seq > 0 {
		f.fixed(3, e.prev[:])
	} else if _, ok := f.get(3); ok {
		f.fail(3, fmt.Errorf("nothing comes before genesis: %w", errValue))
	}
	if f.odd != nil { // the chain's frame, in whichever version
		return nil, f.odd
	}
	if version := f.uint(1, 1); version > rosterVersion {
		f.newer(1, version)
	}
	e.time = f.millis(4)
	e.operations = f.operations(5)
	e.sealed = f.bytesIf(6)
	e.readFileLists(f)
	if err := f.finish(); errors.Is(err, ErrNewer) {
		e.newer = err
	} else if err != nil {
		return nil, err
	}
	rest := maps.Clone(f.m)
	delete(rest, uint64(6))
	e.restDigest = sha256.Sum256(encodeCBOR(rest))
	return e, nil
}

func (e *rosterEntry) readFileLists(f *fields) {
	e.keyFiles, e.links = map[keyFileName]Digest{}, map[RoomEpoch]Digest{}
	for _, v := range f.listIf(7) {
		if l := f.tuple(7, v, 4); l != nil {
			var name keyFileName
			var digest Digest
			f.asFixed(7, l[0], name.Room[:])
			name.Number = f.asUint(7, l[1], 1)
			f.asFixed(7, l[2], name.Device[:])
			f.asFixed(7, l[3], digest[:])
			if _, twice := e.keyFiles[name]; twice {
				f.fail(7, fmt.Errorf("%s twice: %w", name, errValue))
			}
			e.keyFiles[name] = digest
		}
	}
	for _, v := range f.listIf(8) {
		if l := f.tuple(8, v, 3); l != nil {
			var name RoomEpoch
			var digest Digest
			f.asFixed(8, l[0], name.Room[:])
			name.Number = f.asUint(8, l[1], 1)
			f.asFixed(8, l[2], digest[:])
			if _, twice := e.links[name]; twice {
				f.fail(8, fmt.Errorf("%s twice: %w", linkName(name), errValue))
			}
			e.links[name] = digest
		}
	}
}

// rosterDraft is an entry to be.
type rosterDraft struct {
	seq        uint64
	prev       Digest
	time       Millis
	operations []any // [number, map] each
	names      Names // nil: no part 6
	general    *age.HybridRecipient
	keyFiles   map[keyFileName][]byte
	links      map[RoomEpoch][]byte
}

// sign encodes and signs an entry and names its files.
func (d *rosterDraft) sign(device *Device) (RosterCommit, error) {
	commit := RosterCommit{Files: map[string][]byte{}}
	var keyFiles, links []any
	for _, name := range slices.SortedFunc(maps.Keys(d.keyFiles), compareKeyFiles) {
		digest := sha256.Sum256(d.keyFiles[name])
		keyFiles = append(keyFiles, []any{name.Room[:], name.Number, name.Device[:], digest[:]})
		commit.Files[name.String()] = d.keyFiles[name]
	}
	for _, name := range slices.SortedFunc(maps.Keys(d.links), compareEpochs) {
		digest := sha256.Sum256(d.links[name])
		links = append(links, []any{name.Room[:], name.Number, digest[:]})
		commit.Files[linkName(name)] = d.links[name]
	}
	payload := intMap{1: uint64(rosterVersion), 2: d.seq, 4: uint64(d.time), 5: d.operations}
	if d.seq > 0 {
		payload[3] = d.prev[:]
	}
	payload.set(7, keyFiles)
	payload.set(8, links)
	if d.names != nil {
		rest := sha256.Sum256(encodeCBOR(payload))
		sealed, err := seal(d.general, encodeCBOR(intMap{1: rest[:], 2: d.names.encode()}))
		if err != nil {
			return commit, err
		}
		payload[6] = sealed
	}
	protected := encodeCBOR(map[any]any{labelAlgorithm: algorithmEdDSA, labelKeyID: device.ID[:]})
	var err error
	commit.Entry, err = sign(device.Sign, rosterContext, protected, encodeCBOR(payload))
	return commit, err
}

// Has says whether an entry with this seq and hash, in hex, is in the chain.
func (r *Roster) Has(seq uint64, hash string) bool {
	return seq < uint64(len(r.hashes)) && r.hashes[seq].String() == hash
}

// teamOf returns the id of the team that a genesis entry begins.
func teamOf(genesis RosterCommit) TeamID { return sha256.Sum256(genesis.Entry) }
