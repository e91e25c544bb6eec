package gitlog

import (
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"

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
	Devices      map[DeviceID]*RosterDevice
	Rooms        map[RoomID]*Room
	Repositories map[RepositoryID]bool

	// Newer is nil, or wraps ErrNewer: the chain goes on with an entry that this version cannot apply. The state
	// before it is good for reading; nothing may be sealed by it, since who may read is not known.
	Newer error

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

// RosterDevice is a device that may write.
type RosterDevice struct {
	ID        DeviceID
	Key       ed25519.PublicKey
	Recipient string
	Member    MemberID
	Label     string
	since     uint64
}

// Room is an access group.
type Room struct {
	ID      RoomID
	Name    string
	Members map[MemberID]uint64 // by the seq of the entry that let each in
	Epochs  []*Epoch            // Epochs[i].Number is i+1; the last is current
}

// Epoch is what is sealed to in one epoch of a room.
type Epoch struct {
	RoomEpoch
	Recipient string
	recipient *age.HybridRecipient
	since     uint64
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
	r := &Roster{
		Members: map[MemberID]*Member{}, Devices: map[DeviceID]*RosterDevice{}, Rooms: map[RoomID]*Room{},
		Repositories: map[RepositoryID]bool{}, keyFiles: map[keyFileName][]byte{}, links: map[RoomEpoch][]byte{},
	}
	for i, commit := range chain {
		next, err := r.Extend(commit)
		switch {
		case err != nil && i == 0:
			return nil, err
		case err != nil:
			return r, err
		}
		if r = next; r.Newer != nil && i == 0 {
			return nil, r.Newer
		} else if r.Newer != nil {
			break
		}
	}
	return r, nil
}

// Extend returns the state after one more entry; r stays as it is. If only a newer version can apply the entry, the
// state returned is r's own with Newer set.
func (r *Roster) Extend(commit RosterCommit) (*Roster, error) {
	if r.Newer != nil {
		return nil, r.Newer
	}
	seq := uint64(len(r.hashes))
	e, err := r.verify(commit.Entry, seq)
	if err != nil {
		return nil, fmt.Errorf("roster entry %d: %w", seq, err)
	}
	next, err := r.applied(e, commit.Files)
	if errors.Is(err, ErrNewer) {
		stopped := *r
		stopped.Newer = fmt.Errorf("roster entry %d: %w", seq, err)
		return &stopped, nil
	}
	if err != nil {
		return nil, fmt.Errorf("roster entry %d: %w", seq, err)
	}
	return next, nil
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

// applied returns the state after a verified entry.
func (r *Roster) applied(e *rosterEntry, files map[string][]byte) (*Roster, error) {
	if e.newer != nil {
		return nil, e.newer
	}
	if e.time < r.Time {
		return nil, fmt.Errorf("it is older than the entry before it: %w", errChain)
	}
	next := r.clone()
	next.Head = RosterHead{Seq: e.seq, Hash: e.hash}
	next.Time = e.time
	next.hashes = append(next.hashes, e.hash)
	if e.seq == 0 {
		next.Team = TeamID(e.hash)
	}
	for i, op := range e.operations {
		if err := next.apply(r, e, op); err != nil {
			return nil, fmt.Errorf("operation %d of it (number %d): %w", i+1, op.number, err)
		}
	}
	if err := next.addFiles(e, files); err != nil {
		return nil, err
	}
	if e.sealed != nil {
		next.sealed = append(next.sealed, sealedNames{
			epoch: next.Rooms[next.General].Current().RoomEpoch, bytes: e.sealed, rest: e.restDigest, seq: e.seq,
		})
	}
	return next, nil
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

// clone copies what operations change; what it points to is replaced, never changed.
func (r *Roster) clone() *Roster {
	c := *r
	c.Members, c.Devices, c.Rooms = maps.Clone(r.Members), maps.Clone(r.Devices), maps.Clone(r.Rooms)
	c.Repositories = maps.Clone(r.Repositories)
	c.keyFiles, c.links = maps.Clone(r.keyFiles), maps.Clone(r.links)
	c.hashes, c.sealed = slices.Clip(r.hashes), slices.Clip(r.sealed)
	return &c
}

// addFiles takes over the files that an entry lists, after its operations.
func (r *Roster) addFiles(e *rosterEntry, files map[string][]byte) error {
	if len(files) != len(e.keyFiles)+len(e.links) {
		return fmt.Errorf("%d files, %d listed: %w", len(files), len(e.keyFiles)+len(e.links), errFiles)
	}
	listed := func(name string, digest Digest) ([]byte, error) {
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
		if r.Epoch(name.RoomEpoch) == nil || r.Devices[name.Device] == nil {
			return fmt.Errorf("%s: no such room, epoch or device: %w", name, errState)
		}
		r.keyFiles[name] = data
	}
	for name, digest := range e.links {
		data, err := listed(linkName(name), digest)
		if err != nil {
			return err
		}
		if name.Number < 2 || r.Epoch(name) == nil {
			return fmt.Errorf("%s: no such room or epoch, or none before it: %w", linkName(name), errState)
		}
		r.links[name] = data
	}
	for id, d := range r.Devices {
		if d.since != e.seq {
			continue
		}
		for _, room := range r.Rooms {
			if _, in := room.Members[d.Member]; in && e.keyFiles[keyFileName{room.Current().RoomEpoch, id}] == (Digest{}) {
				return fmt.Errorf("device %s, room %s: %w", id, room.ID, errNoKeyFile)
			}
		}
	}
	return nil
}

// Epoch returns an epoch, or nil.
func (r *Roster) Epoch(e RoomEpoch) *Epoch {
	room := r.Rooms[e.Room]
	if room == nil || e.Number < 1 || e.Number > uint64(len(room.Epochs)) {
		return nil
	}
	return room.Epochs[e.Number-1]
}

// Sealable returns nil, or why nothing may be sealed by this state.
func (r *Roster) Sealable() error { return r.Newer }

// DeviceKey returns the key that a device signs with, or nil.
func (r *Roster) DeviceKey(id DeviceID) ed25519.PublicKey {
	if d := r.Devices[id]; d != nil {
		return d.Key
	}
	return nil
}

// Admits judges a verified segment in the state that its writer went by: the team and repository, the device, its
// rooms and their epochs. ErrRosterBehind: that state is not in this chain.
func (r *Roster) Admits(s *Segment) error {
	for _, f := range s.Files {
		if err := r.admits(f.Header); err != nil {
			return fmt.Errorf("room %s: %w", f.Room, err)
		}
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
	d := r.Devices[h.Writer.Device()]
	if d == nil || d.since > at {
		return fmt.Errorf("device %s: %w", h.Writer.Device(), errNotAdmitted)
	}
	room := r.Rooms[h.Room]
	if room == nil {
		return fmt.Errorf("no such room: %w", errNotAdmitted)
	}
	if since, in := room.Members[d.Member]; !in || since > at {
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
