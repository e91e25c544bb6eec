package gitlog

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// What may happen to a team and what not: see drawn for the language.
func TestScenarios(t *testing.T) {
	const bob = "A: team -> A: member bob, device bob B"
	for name, chain := range map[string]string{
		"a member comes, works, goes":       bob + " -> A: expel bob B.1.3+B.2.7 -> B: member eve !signer",
		"a removed device never comes back": bob + " -> A: remove B -> A: device bob B !state -> A: device bob C",
		"a removed member never comes back": bob + " -> A: expel bob -> A: member bob !state -> A: device bob C !state",
		"a member is nobody's admin": bob + " -> B: member eve !signer -> B: expel ann !signer -> B: admin bob !signer -> B: dismiss ann !signer" +
			" -> B: remove A !signer -> B: room pay bob !signer -> B: repository x !signer -> B: retire A !signer -> B: minimum 1 !signer",
		"a member's own devices": bob + " -> B: device bob C -> C: remove B -> B: device bob D !signer -> C: device ann E !signer -> C: remove A !signer",
		"the last admin device stays": bob + " -> A: remove A !no-admin -> A: dismiss ann !no-admin -> A: expel ann !no-admin -> A: device ann C" +
			" -> A: remove A -> C: remove C !no-admin",
		"an invitation is no admin device": "A: team -> A: invite ann C -> A: remove A !no-admin -> C: join C new D -> A: remove A",
		"two admins remove each other":     bob + " -> A: admin bob -> B: expel ann -> A: expel bob !signer",
		"a dismissed admin":                bob + " -> A: admin bob -> B: dismiss ann -> A: member eve !signer -> B: dismiss ann !state",
		"all or none":                      bob + " -> B: device bob C, member eve !signer -> C: device bob D !signer",
		"permission comes from before":     bob + " -> A: dismiss ann, admin bob, member eve -> A: member dan !signer -> B: member dan",

		"an invitation joins once": "A: team -> A: member bob, invite bob P -> P: join P new B -> P: join P new C !signer -> B: device bob C",
		"an invitation only joins": "A: team -> A: member bob, invite bob P -> P: device bob C !signer -> P: remove P !signer -> P: epoch general !signer" +
			" -> P: join P new B, device bob C !signer",
		"an invitation joins for itself":     "A: team -> A: member bob, invite bob P, invite bob Q -> P: join Q new B !signer -> A: join P new B !signer",
		"an invitation expires":              "A: team -> A: member bob, invite bob P -> P: at 1700000001001, join P new B !state -> A: cancel P -> P: join P new B !signer",
		"an invitation of an admin":          "A: team -> A: invite ann P -> P: member eve !signer -> P: join P new B -> B: member eve",
		"an invitation is cancelled":         "A: team -> A: member bob, invite bob P -> A: cancel P, expel bob -> P: join P new B !signer -> A: cancel P !state",
		"a used key stays used":              "A: team -> A: member bob, invite bob P -> P: join P new B -> A: device bob P !state",
		"joining begins epochs":              "A: team -> A: member bob, invite bob P -> P: join P new B, bare !no-epoch -> P: join P new B, keyless !no-key-file -> P: join P new B, linkless !files",
		"cancelling begins epochs":           "A: team -> A: member bob, invite bob P -> A: cancel P, bare !no-epoch",
		"an invitation is not removed":       "A: team -> A: member bob, invite bob P -> A: remove P !state -> A: cancel A !state",
		"a key that the team knows":          "A: team -> A: member bob, device bob A !state",
		"a device without a key file":        "A: team -> A: member bob, device bob B, keyless !no-key-file",
		"a device of nobody":                 "A: team -> A: device bob B !state",
		"removing begins epochs":             bob + " -> A: expel bob, bare !no-epoch -> A: remove B, bare !no-epoch -> A: expel bob, keyless !no-key-file -> A: expel bob, linkless !files",
		"a cut names the removed alone":      bob + " -> A: expel bob A.1.1 !state -> A: remove B A.1.1 !state -> A: remove B B.1.1 ",
		"a cut knows two logs of a writer":   bob + " -> A: expel bob B.3.1 !value",
		"an earlier time":                    bob + " -> A: at 1600000000000, member eve !chain",
		"an operation of later":              bob + " -> A: unknown !newer",
		"a version of later":                 bob + " -> A: minimum 2 !newer -> A: minimum 1 -> A: minimum 1 !state",
		"a repository twice":                 "A: team -> A: repository x -> A: repository x !state",
		"a log is retired once and too late": bob + " -> A: retire B !state -> A: expel bob -> A: retire B -> A: retire B !state",

		"a room": bob + " -> A: room pay bob -> A: room pay bob !state -> A: member eve, device eve E -> A: grant pay eve -> A: grant pay eve !state" +
			" -> A: revoke pay eve -> A: revoke pay eve !state -> A: grant pay eve",
		"a room's first epoch":         bob + " -> A: room pay bob, bare !no-epoch -> A: room pay bob, keyless !no-key-file",
		"a grant needs key files":      bob + " -> A: room pay ann -> A: grant pay bob, keyless !no-key-file -> A: grant pay bob",
		"admins are in every room":     bob + " -> A: room pay ann -> A: admin bob, keyless !no-key-file -> A: admin bob -> A: revoke pay bob !state -> A: dismiss bob -> A: revoke pay bob",
		"general is everybody's":       bob + " -> A: revoke general bob !state -> A: grant general bob !state",
		"a removal rotates every room": bob + " -> A: room pay bob -> A: remove B, epoch general, bare !no-epoch -> A: remove B, epoch pay, bare !no-epoch -> A: remove B",
		"an epoch of a room":           bob + " -> B: epoch general !signer -> A: epoch general -> A: epoch general, epoch general !state -> A: epoch nowhere !state",
		"own rooms alone": bob + " -> A: room pay ann -> B: device bob C -> B: remove C, epoch pay !signer -> B: remove C" +
			" -> B: device bob D, epoch general !signer",
		"an area": "A: team -> A: area src pay !state -> A: room pay ann, area src pay -> A: area src general -> A: no-area src pay !state -> A: no-area src general" +
			" -> A: no-area src general !state",
	} {
		t.Run(name, func(t *testing.T) {
			d := draw(t, chain)
			again, err := VerifyRoster(d.state.Team, d.chain)
			if err != nil || !reflect.DeepEqual(again, d.state) {
				t.Errorf("the chain read at once is another state: %v", err)
			}
		})
	}
}

// What each device can open after a chain: rooms with the first epoch of each.
func TestWhoOpensWhat(t *testing.T) {
	for name, c := range map[string]struct{ chain, want string }{
		"a new member reads all history": {
			"A: team -> A: epoch general -> A: epoch general -> A: member bob, device bob B", "A: general 1 2 3; B: general 1 2 3"},
		"a removed device reads what it could": {
			"A: team -> A: member bob, device bob B -> A: remove B -> A: epoch general", "A: general 1 2 3; B: general 1"},
		"an invited laptop": {
			"A: team -> A: member bob, invite bob P -> P: join P new B", "A: general 1 2; P: general 1; B: general 1 2"},
		"rooms": {
			"A: team -> A: member bob, device bob B -> A: room pay ann -> A: epoch pay -> A: grant pay bob -> A: revoke pay bob -> A: epoch pay",
			"A: general 1, pay 1 2 3 4; B: general 1, pay 1 2"},
		"a named admin": {
			"A: team -> A: member bob, device bob B -> A: room pay ann -> A: admin bob", "B: general 1, pay 1"},
	} {
		t.Run(name, func(t *testing.T) {
			d := draw(t, c.chain)
			for _, part := range strings.Split(c.want, "; ") {
				device, want, _ := strings.Cut(part, ": ")
				ring, err := d.state.OpenEpochs(d.device(device))
				if err != nil {
					t.Errorf("%s: %v", device, err)
				}
				if d.state.Devices[d.device(device).ID] != nil {
					if err := d.state.ReadNames(ring); err != nil {
						t.Errorf("%s: %v", device, err)
					}
				}
				var rooms []string
				for _, name := range []string{"general", "pay"} {
					room := d.state.Rooms[d.room(name)]
					if room == nil {
						continue
					}
					text := name
					for _, e := range room.Epochs {
						if ring[e.RoomEpoch] != nil {
							text += fmt.Sprintf(" %d", e.Number)
						}
					}
					if text != name {
						rooms = append(rooms, text)
					}
				}
				if got := strings.Join(rooms, ", "); got != want {
					t.Errorf("%s opens %q, want %q", device, got, want)
				}
			}
		})
	}
}

// A segment judged at the end of a chain: by the device and room of its writer, at the entry it went by.
func TestAdmitsInTime(t *testing.T) {
	const chain = "A: team -> A: member bob, device bob B, invite bob P -> A: room pay bob -> A: epoch pay" + // 0 1 2 3
		" -> A: revoke pay bob B.1.5 -> A: grant pay bob -> A: remove B B.1.9+B.2.1 -> A: expel bob" // 4 5 6 7
	d := draw(t, chain)
	for _, c := range []struct {
		what         string
		device, room string
		epoch, at    uint64
		kind         LogKind
		seq          uint64
		want         error
		withdrawn    bool
	}{
		{"before it was in", "B", "general", 1, 0, MemoryLog, 1, errNotAdmitted, false},
		{"an invitation", "P", "general", 1, 1, MemoryLog, 1, errNotAdmitted, false},
		{"while it was in", "B", "general", 1, 1, MemoryLog, 1, nil, false},
		{"the founder still", "A", "general", 3, 7, MemoryLog, 100, nil, false},
		{"the founder by an epoch that had ended", "A", "general", 1, 7, MemoryLog, 100, errNotAdmitted, false},
		{"the founder, who has not heard of the removal", "A", "general", 1, 5, MemoryLog, 100, nil, false},
		{"by an epoch that had not begun", "B", "pay", 2, 2, MemoryLog, 2, errNotAdmitted, false},
		{"by an epoch that had ended", "B", "pay", 1, 3, MemoryLog, 2, errNotAdmitted, false},
		{"in the room, at its cut", "B", "pay", 2, 3, MemoryLog, 5, nil, false},
		{"in the room, past its cut, backdated", "B", "pay", 2, 3, MemoryLog, 6, nil, true},
		{"in the room, of a log that the cut does not name", "B", "pay", 2, 3, AuditLog, 1, nil, true},
		{"while it was not in the room", "B", "pay", 3, 4, MemoryLog, 6, errNotAdmitted, false},
		{"in the room again", "B", "pay", 3, 5, MemoryLog, 7, nil, false},
		{"in general, past the room's cut", "B", "general", 1, 3, MemoryLog, 6, nil, false},
		{"at the cut", "B", "general", 1, 5, MemoryLog, 9, nil, false},
		{"past the cut, backdated", "B", "general", 1, 1, MemoryLog, 10, errCut, false},
		{"past the other log's cut", "B", "general", 1, 5, AuditLog, 2, errCut, false},
		{"by a head after the removal", "B", "general", 2, 6, MemoryLog, 9, errNotAdmitted, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			w := d.writer(c.device)
			h := &Header{Team: d.state.Team, Repository: RepositoryID{1, 2, 3}, Writer: w, Kind: c.kind, Generation: 1, Seq: c.seq,
				Room: d.room(c.room), Epoch: c.epoch, Roster: RosterHead{c.at, d.state.hashes[c.at]}}
			s := &Segment{Files: []*SegmentFile{{Header: h}}, Digest: segmentDigest(w, c.kind, c.seq)}
			if err := d.state.Admits(s); !errors.Is(err, c.want) || c.want == nil && err != nil {
				t.Errorf("%v, want %v", err, c.want)
			}
			if err := d.state.Withdrawn(s, s.Files[0]); (err != nil) != c.withdrawn {
				t.Errorf("withdrawn: %v, want %v", err, c.withdrawn)
			}
		})
	}
	// Another segment in the place of the last one that counts.
	w := d.writer("B")
	h := &Header{Team: d.state.Team, Repository: RepositoryID{1, 2, 3}, Writer: w, Kind: MemoryLog, Generation: 1, Seq: 9,
		Room: d.state.General, Epoch: 1, Roster: RosterHead{1, d.state.hashes[1]}}
	if err := d.state.Admits(&Segment{Files: []*SegmentFile{{Header: h}}}); !errors.Is(err, errCut) {
		t.Errorf("another segment at the cut: %v", err)
	}
	if seq, digest, removed := d.state.Cut(w, MemoryLog); seq != 9 || digest != segmentDigest(w, MemoryLog, 9) || !removed {
		t.Errorf("cut %d %s %v", seq, digest, removed)
	}
	if _, _, removed := d.state.Cut(d.writer("A"), MemoryLog); removed {
		t.Error("the founder's log has a cut")
	}
	if !d.state.Former(d.device("B").ID) || d.state.Former(d.device("A").ID) {
		t.Error("who is former")
	}
	ring, _ := d.state.OpenEpochs(d.device("A"))
	if err := d.state.ReadNames(ring); err != nil || d.state.MemberOf(d.device("B").ID).Name != "bob" {
		t.Errorf("the former member's name: %v", err)
	}
}

// Names say nothing about permission, and permission is needed to say a name.
func TestMembersNameOnlyTheirOwn(t *testing.T) {
	d := draw(t, "A: team -> A: member bob, device bob B")
	change := func(signer string, rename string) {
		c, err := newRosterChange(d.state.clone(), d.device(signer), d.clock, nil)
		if err != nil {
			t.Fatal(err)
		}
		d.clock++
		if err := c.AddDevice(d.device(signer+rename), "new"); err != nil {
			t.Fatal(err)
		}
		id := d.member("ann")
		c.names[string(id[:])] = NameRecord{Name: rename}
		commit, _, err := c.build()
		if err != nil {
			t.Fatal(err)
		}
		if err := d.take(*commit); err != nil {
			t.Fatal(err)
		}
		ring, _ := d.state.OpenEpochs(d.device("B"))
		if err := d.state.ReadNames(ring); err != nil {
			t.Fatal(err)
		}
	}
	change("B", "mallory")
	if name := d.state.Members[d.member("ann")].Name; name != "ann" {
		t.Errorf("bob renamed ann to %q", name)
	}
	change("A", "anna")
	if name := d.state.Members[d.member("ann")].Name; name != "anna" {
		t.Errorf("ann is %q after she renamed herself", name)
	}
}

func TestRoomOf(t *testing.T) {
	d := draw(t, "A: team -> A: room pay ann, area src/Pay pay, room deep ann, area src/pay/deep deep, area docs general")
	ring, err := d.state.OpenEpochs(d.device("A"))
	if err != nil {
		t.Fatal(err)
	}
	if d.state.Sealable() == nil {
		t.Error("sealable with areas whose prefixes were not read")
	}
	if err := d.state.ReadNames(ring); err != nil || d.state.Sealable() != nil {
		t.Fatal(err, d.state.Sealable())
	}
	for path, want := range map[string]string{
		"": "general", "src": "general", "src/pay": "pay", "SRC/PAY/x.js": "pay", "src/payroll.js": "general", "src/pay/deep/a": "deep",
		"src/pay/deeper": "pay", "docs/a": "general",
	} {
		if got := d.state.RoomOf(path); got != d.room(want) {
			t.Errorf("%q is in %s, want %s", path, d.state.Rooms[got].Name, want)
		}
	}
	d.draw("A: area src/Pay general")
	if err := d.state.ReadNames(ring); err != nil || d.state.RoomOf("src/pay/x") != d.state.General {
		t.Errorf("the area did not move: %v", err)
	}
}

// Whatever is tried in whatever order: what the chain takes was permitted, and leaves a team that can go on.
func TestAnyOrder(t *testing.T) {
	pool := newDrawn(t)
	for range 40 {
		pool.identity()
	}
	rapid.Check(t, func(rt *rapid.T) {
		d := newDrawn(t)
		d.cheap, d.pool = true, pool.pool
		d.draw("A: team")
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			var ops []string
			for range rapid.IntRange(1, 5).Draw(rt, "ops")/3 + 1 {
				ops = append(ops, d.anyOperation(rt))
			}
			if onlyModifiers(ops) {
				continue
			}
			before, signer := d.state, rapid.SampledFrom(drawnDevices).Draw(rt, "signer")
			if rapid.IntRange(0, 3).Draw(rt, "by an admin") > 0 {
				for _, name := range drawnDevices {
					if before.authorOf(d.device(name).ID).admin {
						signer = name
						break
					}
				}
			}
			step := signer + ": " + strings.Join(ops, ", ")
			_, err := d.step(step)
			if err != nil {
				if d.state != before {
					rt.Fatalf("%q was refused (%v) and changed the state", step, err)
				}
				continue
			}
			checkPermitted(rt, before, d, signer, ops)
			checkWhole(rt, d.state)
		}
		again, err := VerifyRoster(d.state.Team, d.chain)
		if err != nil || !reflect.DeepEqual(again, d.state) {
			rt.Fatalf("the chain read at once is another state: %v", err)
		}
	})
}

var (
	drawnDevices = []string{"A", "B", "C", "D", "E"}
	drawnMembers = []string{"ann", "bob", "eve"}
	drawnRooms   = []string{"general", "pay", "deep"}
)

// anyOperation draws an operation, mostly one that the state has a use for.
func (d *drawn) anyOperation(t *rapid.T) string {
	var all, fitting []string
	add := func(fits bool, op string) {
		all = append(all, op)
		if fits {
			fitting = append(fitting, op)
		}
	}
	r := d.state
	for _, m := range drawnMembers {
		member := r.Members[d.member(m)]
		add(member == nil && r.formerMembers[d.member(m)] == nil, "member "+m)
		add(member != nil && len(r.Members) > 2, "expel "+m)
		add(member != nil && !member.Admin, "admin "+m)
		add(member != nil && member.Admin, "dismiss "+m)
		for _, name := range drawnRooms {
			room := r.Rooms[d.room(name)]
			in := false
			if room != nil && member != nil {
				_, in = room.Members[member.ID]
			}
			add(room == nil && member != nil, "room "+name+" "+m)
			add(room != nil && member != nil && !in, "grant "+name+" "+m)
			add(in && !member.Admin && name != "general", "revoke "+name+" "+m)
		}
		for _, name := range drawnDevices {
			fresh := r.device(d.device(name).ID) == nil && member != nil
			add(fresh, "device "+m+" "+name)
			add(fresh, "invite "+m+" "+name)
		}
	}
	for _, name := range drawnDevices {
		device := r.Devices[d.device(name).ID]
		add(device != nil && !device.Pending, "remove "+name)
		add(device != nil && device.Pending, "cancel "+name)
		add(device == nil && r.former[d.device(name).ID] != nil, "retire "+name)
		for _, other := range drawnDevices {
			add(device != nil && device.Pending && r.device(d.device(other).ID) == nil, "join "+name+" new "+other)
		}
	}
	for _, name := range drawnRooms {
		add(r.Rooms[d.room(name)] != nil, "epoch "+name)
		add(r.Rooms[d.room(name)] != nil, "area x "+name)
		add(r.Rooms[d.room(name)] != nil, "no-area x "+name)
	}
	add(true, "repository x")
	if rapid.IntRange(0, 9).Draw(t, "fitting") == 0 {
		return rapid.SampledFrom(append(all, "bare", "keyless", "linkless")).Draw(t, "operation")
	}
	return rapid.SampledFrom(fitting).Draw(t, "operation")
}

func onlyModifiers(ops []string) bool {
	for _, op := range ops {
		if op != "bare" && op != "keyless" && op != "linkless" {
			return false
		}
	}
	return true
}

// checkPermitted says who may what in its own words.
func checkPermitted(t *rapid.T, before *Roster, d *drawn, signer string, ops []string) {
	by := before.Devices[d.device(signer).ID]
	if by == nil {
		t.Fatalf("%s signed %q and is in no team", signer, ops)
	}
	if !by.Pending && before.Members[by.Member].Admin {
		return
	}
	for _, op := range ops {
		words := strings.Fields(op)
		own := map[string]func() bool{
			"device": func() bool { return !by.Pending && d.member(words[1]) == by.Member },
			"invite": func() bool { return !by.Pending && d.member(words[1]) == by.Member },
			"remove": func() bool { return !by.Pending && d.state.former[d.device(words[1]).ID].Member == by.Member },
			"join":   func() bool { return by.Pending && words[1] == signer },
			"epoch":  func() bool { _, in := before.Rooms[d.room(words[1])].Members[by.Member]; return in },
		}[words[0]]
		if own == nil && !onlyModifiers([]string{op}) || own != nil && !own() {
			t.Fatalf("%s, who is no admin, did %q", signer, op)
		}
	}
}

// checkWhole checks what must be so after every entry.
func checkWhole(t *rapid.T, r *Roster) {
	admin := false
	for id, dev := range r.Devices {
		m := r.Members[dev.Member]
		if m == nil || r.former[id] != nil {
			t.Fatalf("device %s is in, and its member is not, or it was removed", id)
		}
		admin = admin || m.Admin && !dev.Pending
		for _, room := range r.Rooms {
			if _, in := room.Members[m.ID]; in && r.keyFiles[keyFileName{room.Current().RoomEpoch, id}] == nil {
				t.Fatalf("device %s has no key of room %s", id, room.ID)
			}
		}
	}
	if !admin {
		t.Fatal("nobody can change the team")
	}
	for _, room := range r.Rooms {
		for _, m := range r.Members {
			if _, in := room.Members[m.ID]; !in && (m.Admin || room.ID == r.General) {
				t.Fatalf("member %s is not in room %s", m.ID, room.ID)
			}
		}
		for member := range room.Members {
			if r.Members[member] == nil {
				t.Fatalf("room %s holds somebody who left", room.ID)
			}
		}
		for _, e := range room.Epochs[1:] {
			if r.links[e.RoomEpoch] == nil {
				t.Fatalf("room %s: epoch %d leads nowhere", room.ID, e.Number)
			}
		}
		for _, s := range room.past {
			if next := room.Current(); next.since < s.until {
				t.Fatalf("room %s: %s left at %d, and the epoch is of %d", room.ID, s.member, s.until, next.since)
			}
		}
	}
}
