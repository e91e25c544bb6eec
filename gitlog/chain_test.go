package gitlog

import (
	"crypto/ed25519"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// chainOf reads a drawn roster as a relay does.
func bareChain(t *testing.T, d *drawn) *Chain {
	t.Helper()
	c, err := BeginChain(d.state.Team, d.chain[0].Entry)
	if err != nil {
		t.Fatal(err)
	}
	c, n, err := c.Extend(rosterEntries(d.chain[1:]))
	if err != nil || n != len(d.chain)-1 {
		t.Fatalf("%d of %d entries: %v", n, len(d.chain)-1, err)
	}
	return c
}

func publicKey(d *Device) ed25519.PublicKey { return d.Sign.Public().(ed25519.PublicKey) }

// Without key files and names a chain says the same of devices, rooms and epochs as with them.
func TestAChainIsTheRosterWithoutItsFiles(t *testing.T) {
	d := draw(t, "A: team -> A: member bob, device bob B, invite bob P -> P: join P new C -> A: room pay bob, area src pay"+
		" -> A: repository x -> A: remove B -> A: member eve, device eve E -> A: expel eve")
	c := bareChain(t, d)
	r := c.roster
	if r.Head != d.state.Head || !reflect.DeepEqual(r.Devices, d.state.Devices) || !reflect.DeepEqual(r.former, d.state.former) ||
		!reflect.DeepEqual(r.Repositories, d.state.Repositories) {
		t.Error("the chain leads to another state than the roster")
	}
	for id, room := range d.state.Rooms {
		if !reflect.DeepEqual(r.Rooms[id].Members, room.Members) || len(r.Rooms[id].Epochs) != len(room.Epochs) {
			t.Errorf("room %s is another", id)
		}
	}
	for name, want := range map[string]bool{"A": true, "B": false, "C": true, "E": false, "P": false} {
		member, live := c.Member(publicKey(d.device(name)))
		if live != want || live && d.state.Members[member] == nil {
			t.Errorf("device %s is in: %v, want %v", name, live, want)
		}
	}
	if c.Repository(RepositoryID{9}) || !c.Repository(RepositoryID{1, 2, 3}) {
		t.Error("other repositories than the roster's")
	}
	if got := c.Link(5).Removed; !slices.Equal(got, []DeviceID{d.device("B").ID}) {
		t.Errorf("entry 5 removes %v", got)
	}
	if got := c.Link(7).Removed; !slices.Equal(got, []DeviceID{d.device("E").ID}) {
		t.Errorf("entry 7 removes %v", got)
	}
	if got := c.Link(2).Removed; len(got) != 0 {
		t.Errorf("joining removes %v: the invitation was no device", got)
	}
	for seq, want := range []bool{false, false, true, true, false, true, false, true} {
		if c.Link(uint64(seq)).Rotates != want {
			t.Errorf("entry %d rotates: %v, want %v", seq, !want, want)
		}
	}
	if c.Rotated() != 7 {
		t.Errorf("tokens changed at %d, want 7", c.Rotated())
	}
}

func TestAChainRefusesWhatTheRosterRefuses(t *testing.T) {
	d := draw(t, "A: team -> A: member bob, device bob B")
	c := bareChain(t, d)
	for step, want := range map[string]error{
		"B: member eve":          errSigner,
		"A: expel bob, bare":     errNoEpoch,
		"A: expel bob, keyless":  errNoKeyFile,
		"A: expel bob, linkless": errFiles,
		"A: unknown":             ErrNewer,
	} {
		commit, _ := draw(t, "A: team -> A: member bob, device bob B").step(step)
		// The drawing above is of the same names, but its identities are others: only its own chain takes the entry.
		if _, n, err := c.Extend([][]byte{commit.Entry}); n != 0 || !errors.Is(err, errChain) {
			t.Errorf("%s, of another chain: %d taken, %v", step, n, err)
		}
		own, _ := d.step(step)
		next, n, err := c.Extend([][]byte{own.Entry})
		if n != 0 || !errors.Is(err, want) {
			t.Errorf("%s: %d taken, %v, want %v", step, n, err, want)
		}
		if next.Head() != c.Head() {
			t.Errorf("%s: the head moved", step)
		}
	}
	if _, err := BeginChain(TeamID{1}, d.chain[0].Entry); !errors.Is(err, ErrOtherTeam) {
		t.Errorf("another team's genesis: %v", err)
	}
	good, err := d.step("A: member zoe")
	if err != nil {
		t.Fatal(err)
	}
	if next, n, err := c.Extend([][]byte{good.Entry, good.Entry}); n != 1 || !errors.Is(err, errChain) || next.Len() != 3 {
		t.Errorf("what was right before a wrong entry stays: %d, %v", n, err)
	}
	if c.Len() != 2 {
		t.Error("a chain changed under its holder")
	}
}

// branch draws on from a chain that is shared.
func branch(t *testing.T, shared *drawn, steps string) *Chain {
	t.Helper()
	d := *shared
	d.chain, d.states = slices.Clip(d.chain), slices.Clip(d.states)
	d.clock += Millis(len(steps)) // or two equal steps would be one entry
	d.draw(steps)
	return bareChain(t, &d)
}

func TestForks(t *testing.T) {
	shared := draw(t, "A: team -> A: member bob, device bob B, admin bob -> A: device ann C -> A: member eve, device eve E")
	for name, c := range map[string]struct {
		ours, theirs string
		want         bool // ours is kept
	}{
		"it removes the other's signer":         {"C: expel bob", "B: member zoe", true},
		"it is removed by the other":            {"B: member zoe", "C: expel bob", false},
		"a device is removed":                   {"C: remove B", "B: member zoe", true},
		"both remove each other, first in":      {"A: expel bob", "B: remove A", true},
		"both remove each other, second in":     {"B: remove A", "A: expel bob", false},
		"neither, first in":                     {"B: member zoe", "C: member zoe", true},
		"neither, second in":                    {"C: member zoe", "B: member zoe", false},
		"neither, one signer: what it has":      {"B: member zoe", "B: member yan", true},
		"one signer the other way round":        {"B: member yan", "B: member zoe", true},
		"only the first entry counts":           {"B: member zoe -> C: expel bob", "C: member yan", true},
		"a longer branch is dropped":            {"C: member zoe -> A: member yan -> A: member xia", "A: remove C", false},
		"a removal of somebody else is no case": {"C: expel eve", "B: expel eve", false},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := branch(t, shared, c.ours), branch(t, shared, strings.ReplaceAll(c.theirs, "zoe", "zo"))
			if got := ours.Prefers(theirs); got != c.want {
				t.Errorf("kept %v, want %v", got, c.want)
			}
		})
	}
	long := branch(t, shared, "A: member zoe")
	if short := bareChain(t, shared); !long.Prefers(short) || short.Prefers(long) {
		t.Error("a longer chain is dropped for its prefix")
	}
	if !long.Has(long.Head()) || long.Has(RosterHead{Seq: 9}) || bareChain(t, shared).Has(long.Head()) {
		t.Error("a chain has other entries than its own")
	}
}

func TestAChangeIsBuiltWithoutAHost(t *testing.T) {
	d := draw(t, "A: team")
	commit, after, err := d.state.Change(d.device("A"), d.clock, func(c *RosterChange) error { return c.AddDevice(newDevice(t), "two") })
	if err != nil {
		t.Fatal(err)
	}
	if len(after.Devices) != 2 {
		t.Errorf("%d devices, want 2", len(after.Devices))
	}
	if c, n, err := bareChain(t, d).Extend([][]byte{commit.Entry}); err != nil || n != 1 || c.Head() != after.Head {
		t.Errorf("its entry is refused: %v", err)
	}
}
