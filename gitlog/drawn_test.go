package gitlog

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"filippo.io/age"
)

// Chains are drawn as strings, so that a scenario reads as what happened:
//
//	A: team -> A: member bob, device bob B -> B: remove A !signer
//
// Steps are entries, in order, each with its signer (a device, by a capital letter) and its operations. A step that ends in
// "!fault" must be refused for that reason (faults, in vectors_test.go), and the chain goes on without it. Devices, members and
// rooms are made when they are first named; ann is A's member and general the first room.
//
//	member M           device M D          invite M D          join D new E        remove D [cut]
//	expel M [cut]      room R M            grant R M           revoke R M [cut]    area P R
//	no-area P R        epoch R             admin M             dismiss M           repository N
//	retire D           minimum N           cancel D            at MILLIS           unknown N
//
// A cut is written D.kind.seq, joined by "+", for the writer that D has in tests; "cut" alone is an empty one and may be
// left out. The files that the state after a step lacks are added, and so is each new epoch that a removal wants; "bare"
// leaves the epochs out, "keyless" and "linkless" the files.
type drawn struct {
	t       testing.TB
	chain   []RosterCommit
	state   *Roster // nil before genesis
	states  []*Roster
	devices map[string]*Device
	members map[string]MemberID
	rooms   map[string]RoomID
	areas   map[string]AreaID
	keys    Keyring // of everything: the one who draws knows all
	clock   Millis

	// cheap makes files that nothing opens, and takes keys from a pool, for tests of many entries.
	cheap bool
	pool  []*age.HybridIdentity
	used  int
}

func newDrawn(t testing.TB) *drawn {
	return &drawn{
		t: t, devices: map[string]*Device{}, members: map[string]MemberID{}, rooms: map[string]RoomID{}, areas: map[string]AreaID{},
		keys: Keyring{}, clock: 1_700_000_000_000,
	}
}

// draw draws a chain. Refusals that the drawing foresees are no failures.
func draw(t testing.TB, chain string) *drawn {
	t.Helper()
	d := newDrawn(t)
	d.draw(chain)
	return d
}

func (d *drawn) draw(chain string) {
	d.t.Helper()
	for _, step := range strings.Split(chain, "->") {
		step, fault, _ := strings.Cut(strings.TrimSpace(step), "!")
		_, err := d.step(strings.TrimSpace(step))
		want := faults[fault]
		if fault != "" && want == nil {
			d.t.Fatalf("%q: no such fault", step)
		}
		if !errors.Is(err, want) || fault == "" && err != nil {
			d.t.Fatalf("%q: %v, want %q (%v)", step, err, fault, want)
		}
	}
}

func (d *drawn) identity() *age.HybridIdentity {
	if d.cheap && d.used < len(d.pool) {
		d.used++
		return d.pool[d.used-1]
	}
	identity, err := age.GenerateHybridIdentity()
	if err != nil {
		d.t.Fatal(err)
	}
	d.used++
	d.pool = append(d.pool, identity)
	return identity
}

func (d *drawn) device(name string) *Device {
	if d.devices[name] == nil {
		seed := sha256.Sum256([]byte("device " + name))
		key := ed25519.NewKeyFromSeed(seed[:])
		d.devices[name] = &Device{ID: DeviceIDOf(key.Public().(ed25519.PublicKey)), Sign: key, Age: d.identity()}
	}
	return d.devices[name]
}

func (d *drawn) member(name string) MemberID {
	if _, ok := d.members[name]; !ok {
		sum := sha256.Sum256([]byte("member " + name))
		d.members[name] = MemberID(sum[:16])
	}
	return d.members[name]
}

func (d *drawn) room(name string) RoomID {
	if name == "general" {
		return d.state.General
	}
	if _, ok := d.rooms[name]; !ok {
		sum := sha256.Sum256([]byte("room " + name))
		d.rooms[name] = RoomID(sum[:8])
	}
	return d.rooms[name]
}

func (d *drawn) area(prefix string) AreaID {
	if _, ok := d.areas[prefix]; !ok {
		sum := sha256.Sum256([]byte("area " + prefix))
		d.areas[prefix] = AreaID(sum[:8])
	}
	return d.areas[prefix]
}

// writer is the writer that a device has in tests.
func (d *drawn) writer(device string) (w WriterID) {
	copy(w[:], d.device(device).ID[:])
	w[23] = 1
	return w
}

// segment is the digest of a writer's segment in tests.
func segmentDigest(w WriterID, kind LogKind, seq uint64) Digest {
	return sha256.Sum256(fmt.Appendf(nil, "segment %x %d %d", w, kind, seq))
}

func (d *drawn) cut(text string) []any {
	cut := []any{}
	for _, part := range strings.Split(text, "+") {
		var kind, seq uint64
		device, rest, ok := strings.Cut(part, ".")
		if !ok {
			continue
		}
		if _, err := fmt.Sscanf(rest, "%d.%d", &kind, &seq); err != nil {
			d.t.Fatalf("cut %q: %v", text, err)
		}
		w := d.writer(device)
		digest := segmentDigest(w, LogKind(kind), seq)
		cut = append(cut, []any{w[:], kind, seq, digest[:]})
	}
	slices.SortFunc(cut, func(a, b any) int { return bytes.Compare(encodeCBOR(a), encodeCBOR(b)) })
	return cut
}

// step draws one entry, and takes it into the chain if it is right.
func (d *drawn) step(text string) (RosterCommit, error) {
	signerName, rest, ok := strings.Cut(text, ":")
	if !ok {
		d.t.Fatalf("%q has no signer", text)
	}
	signer := d.device(strings.TrimSpace(signerName))
	if d.state == nil {
		return d.found(signer)
	}
	d.clock++
	var (
		ops                     []any
		bare, keyless, linkless bool
		names                   = Names{}
		after                   = d.state.clone()
		work                    = &entryWork{e: &rosterEntry{kid: signer.ID, seq: d.state.Head.Seq + 1, time: d.clock}, by: d.state.authorOf(signer.ID),
			begin: map[RoomID]bool{}, begun: map[RoomID]bool{}}
	)
	add := func(number uint64, body intMap) {
		ops = append(ops, []any{number, body})
		v, err := decodeStrict(encodeCBOR(body))
		if err != nil {
			d.t.Fatal(err)
		}
		op := operation{number, v.(map[any]any)}
		work.e.operations = append(work.e.operations, op)
		if _, known := operations[number]; known {
			_ = after.applyOperation(work, op) // as far as it goes: the chain judges
		}
	}
	epoch := func(room RoomID) {
		identity := d.identity()
		number := uint64(1)
		if r := after.Rooms[room]; r != nil {
			number = uint64(len(r.Epochs)) + 1
		}
		add(opEpochBegun, intMap{opRoom: room[:], opEpoch: number, opEpochRecipient: identity.Recipient().String()})
		d.keys[RoomEpoch{room, number}] = newEpochKey(RoomEpoch{room, number}, identity)
	}
	keysOf := func(device *Device) intMap {
		return intMap{opDeviceKey: []byte(device.Sign.Public().(ed25519.PublicKey)), opDeviceRecipient: device.Age.Recipient().String()}
	}
	for _, op := range strings.Split(rest, ",") {
		words := strings.Fields(op)
		arg := func(i int) string {
			if i < len(words) {
				return words[i]
			}
			return ""
		}
		switch words[0] {
		case "member":
			id := d.member(arg(1))
			add(opMemberAdded, intMap{opMember: id[:]})
			names[string(id[:])] = NameRecord{Name: arg(1), Address: arg(1) + "@example.org"}
		case "expel":
			id := d.member(arg(1))
			add(opMemberRemoved, intMap{opMember: id[:], opCut: d.cut(arg(2))})
		case "device", "invite":
			id, device := d.member(arg(1)), d.device(arg(2))
			body := keysOf(device)
			body[opMember] = id[:]
			if words[0] == "invite" {
				body[opPending], body[opExpires] = true, uint64(d.clock+1_000)
			}
			add(opDeviceAdded, body)
			names[string(device.ID[:])] = NameRecord{Label: arg(2)}
		case "join":
			pending, device := d.device(arg(1)), d.device(arg(3))
			body := keysOf(device)
			body[opDevice] = pending.ID[:]
			add(opJoin, body)
		case "remove":
			device := d.device(arg(1))
			add(opDeviceRemoved, intMap{opDevice: device.ID[:], opCut: d.cut(arg(2))})
		case "room":
			room, member := d.room(arg(1)), d.member(arg(2))
			add(opRoomMade, intMap{opMember: member[:], opRoom: room[:]})
			names[string(room[:])] = NameRecord{Name: arg(1)}
		case "grant":
			room, member := d.room(arg(1)), d.member(arg(2))
			add(opRoomGranted, intMap{opMember: member[:], opRoom: room[:]})
		case "revoke":
			room, member := d.room(arg(1)), d.member(arg(2))
			add(opRoomRevoked, intMap{opMember: member[:], opRoom: room[:], opCut: d.cut(arg(3))})
		case "area", "no-area":
			area, room := d.area(arg(1)), d.room(arg(2))
			if words[0] == "area" {
				add(opAreaSet, intMap{opRoom: room[:], opArea: area[:]})
				names[string(area[:])] = NameRecord{Prefix: arg(1)}
			} else {
				add(opAreaRemoved, intMap{opRoom: room[:], opArea: area[:]})
			}
		case "epoch":
			epoch(d.room(arg(1)))
		case "admin":
			id := d.member(arg(1))
			add(opAdminNamed, intMap{opMember: id[:]})
		case "dismiss":
			id := d.member(arg(1))
			add(opAdminDismissed, intMap{opMember: id[:]})
		case "repository":
			add(opRepositoryAdded, intMap{opRepository: id16(arg(1)[0])})
		case "retire":
			w := d.writer(arg(1))
			add(opLogRetired, intMap{opWriter: w[:]})
		case "minimum":
			add(opMinimumVersion, intMap{opVersion: uint64(arg(1)[0] - '0')})
		case "cancel":
			device := d.device(arg(1))
			add(opInvitationCancelled, intMap{opDevice: device.ID[:]})
		case "unknown":
			add(uint64(19), intMap{})
		case "at":
			if _, err := fmt.Sscan(arg(1), &d.clock); err != nil {
				d.t.Fatal(err)
			}
			work.e.time = d.clock
		case "bare":
			bare = true
		case "keyless":
			keyless = true
		case "linkless":
			linkless = true
		default:
			d.t.Fatalf("%q: no such operation", op)
		}
	}
	if !bare {
		for _, room := range slices.SortedFunc(maps.Keys(work.begin), func(a, b RoomID) int { return bytes.Compare(a[:], b[:]) }) {
			if !work.begun[room] {
				epoch(room)
			}
		}
	}
	draft := &rosterDraft{
		seq: d.state.Head.Seq + 1, prev: d.state.Head.Hash, time: d.clock, operations: ops, keyFiles: map[keyFileName][]byte{}, links: map[RoomEpoch][]byte{},
		general: after.Rooms[after.General].Current().recipient,
	}
	if len(names) > 0 && !d.cheap {
		draft.names = names
	}
	if !keyless {
		for _, name := range after.lacking() {
			draft.keyFiles[name] = d.file(name.RoomEpoch, name.String(), after.Devices[name.Device].Recipient)
		}
	}
	for room := range work.begun {
		if at := after.Rooms[room].Current(); at.Number > 1 && !linkless {
			draft.links[at.RoomEpoch] = d.file(RoomEpoch{room, at.Number - 1}, linkName(at.RoomEpoch), at.Recipient)
		}
	}
	commit, err := draft.sign(signer)
	if err != nil {
		d.t.Fatal(err)
	}
	return commit, d.take(commit)
}

func (d *drawn) file(epoch RoomEpoch, name, recipient string) []byte {
	if d.cheap {
		return []byte(name)
	}
	to, err := parseRecipient(recipient)
	if err != nil {
		d.t.Fatal(err)
	}
	file, err := sealKeyFile(d.state.nonce, d.keys[epoch], to)
	if err != nil {
		d.t.Fatal(err)
	}
	return file
}

func (d *drawn) take(commit RosterCommit) error {
	next, err := d.state.Extend(commit)
	if err != nil {
		return err
	}
	if next.Newer != nil {
		return next.Newer
	}
	d.chain, d.state = append(d.chain, commit), next
	d.states = append(d.states, next)
	return nil
}

func (d *drawn) found(device *Device) (RosterCommit, error) {
	identity := d.identity()
	team, commit, err := found(device, Founding{
		Name: "ann", Address: "ann@example.org", Label: "A", Repository: RepositoryID{1, 2, 3}, Now: d.clock,
		Random: strings.NewReader(strings.Repeat("knoot drawn chain", 8)),
	}, identity)
	if err != nil {
		return commit, err
	}
	d.chain = []RosterCommit{commit}
	if d.state, err = VerifyRoster(team, d.chain); err != nil {
		return commit, err
	}
	d.states = []*Roster{d.state}
	d.members["ann"] = d.state.Devices[device.ID].Member
	epoch := RoomEpoch{d.state.General, 1}
	d.keys[epoch] = newEpochKey(epoch, identity)
	return commit, nil
}

func (d *drawn) hex(member string) string {
	id := d.member(member)
	return hex.EncodeToString(id[:])
}
