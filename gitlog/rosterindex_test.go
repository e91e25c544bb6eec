package gitlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"
)

// drawnLong has of everything that a state holds.
const drawnLong = "A: team -> A: member bob, device bob B -> A: admin bob -> A: member eve, invite eve P -> P: join P new E -> A: room pay bob -> A: area src pay" +
	" -> A: grant pay eve -> A: revoke pay eve E.1.3 -> B: device bob C -> A: member max, device max M -> A: remove M M.1.4+M.2.7 -> A: epoch general" +
	" -> A: repository x -> A: member zoe, invite zoe Z -> A: cancel Z -> A: expel eve E.1.5 -> A: retire E -> A: minimum 1 -> A: area lib pay, no-area src pay"

// alike makes of a state what two that are the same have in common: what was opened, and how it is held, does not count.
func alike(r *Roster, device *Device) Roster {
	same := *r
	same.sealed, same.keyFiles, same.Rooms = nil, map[keyFileName][]byte{}, map[RoomID]*Room{}
	for name, data := range r.keyFiles {
		if name.Device == device.ID || name.RoomEpoch == r.Rooms[name.Room].Current().RoomEpoch {
			same.keyFiles[name] = data
		}
	}
	for id, room := range r.Rooms {
		copied := *room
		copied.Epochs = nil
		for _, e := range room.Epochs {
			copied.Epochs = append(copied.Epochs, &Epoch{RoomEpoch: e.RoomEpoch, Recipient: e.Recipient, since: e.since})
		}
		same.Rooms[id] = &copied
	}
	return same
}

// restored is a state as a start finds it in the index.
func restored(t testing.TB, r *Roster, device *Device) *Roster {
	t.Helper()
	plain, err := cbor.Marshal(keepRoster(r, device.ID, "commit"))
	if err != nil {
		t.Fatal(err)
	}
	kept := &rosterIndex{}
	if err := cbor.Unmarshal(plain, kept); err != nil {
		t.Fatal(err)
	}
	again, err := kept.roster()
	if err != nil {
		t.Fatal(err)
	}
	return again
}

// read opens what a device can open of a state, as a start does.
func read(t testing.TB, r *Roster, device *Device) (*Roster, map[RoomEpoch]string) {
	t.Helper()
	r = r.clone()
	ring, err := r.OpenEpochs(device)
	if err != nil {
		t.Error(err)
	}
	_ = r.ReadNames(ring) // who left cannot read what came since, of both states alike
	keys := map[RoomEpoch]string{}
	for epoch, key := range ring {
		keys[epoch] = key.text
	}
	return r, keys
}

// A state that was kept, wherever the chain had got to and whoever kept it, is the one that it was, and the rest of the chain leads
// from it to where it leads from genesis.
func TestAKeptRosterIsTheSame(t *testing.T) {
	t.Parallel()
	d := draw(t, drawnLong)
	for _, name := range []string{"A", "B", "E", "M"} {
		device := d.device(name)
		want, wantKeys := read(t, d.state, device)
		for n := 1; n <= len(d.chain); n++ {
			state, err := VerifyRoster(d.state.Team, d.chain[:n])
			if err != nil {
				t.Fatal(err)
			}
			opened, _ := read(t, state, device)
			again := restored(t, opened, device)
			if here, _ := read(t, again, device); !reflect.DeepEqual(alike(here, device), alike(opened, device)) {
				t.Fatalf("%s: the state after entry %d is another one", name, n-1)
			}
			last, err := again.resume(d.chain[n:])
			if err != nil {
				t.Fatalf("%s: from entry %d on: %v", name, n, err)
			}
			got, keys := read(t, last, device)
			if !reflect.DeepEqual(alike(got, device), alike(want, device)) {
				t.Fatalf("%s: the chain leads elsewhere from entry %d on", name, n)
			}
			if !reflect.DeepEqual(keys, wantKeys) {
				t.Fatalf("%s: %d epochs opened from entry %d on, want %d", name, len(keys), n, len(wantKeys))
			}
		}
	}
}

// A kept state goes on only by what is right, and says the same of what is wrong.
func TestAKeptRosterRefusesWhatIsWrong(t *testing.T) {
	t.Parallel()
	d := draw(t, drawnLong)
	kept := restored(t, d.states[5], d.device("A"))
	forged := bytes.Clone(d.chain[7].Entry)
	forged[len(forged)-1] ^= 1 // of the signature
	for name, chain := range map[string][]RosterCommit{
		"an entry is missing": d.chain[7:],
		"an entry twice":      d.chain[5:],
		"a forged entry":      {d.chain[6], {Entry: forged, Files: d.chain[7].Files}},
	} {
		got, err := kept.resume(chain)
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
		whole, want := VerifyRoster(d.state.Team, slices.Concat(d.chain[:6], chain))
		if err == nil || want == nil || err.Error() != want.Error() || got.Head != whole.Head {
			t.Errorf("%s: %v at %d, and read whole %v at %d", name, err, got.Head.Seq, want, whole.Head.Seq)
		}
	}
}

// longTeam is a team whose roster is worth keeping: the founder's clone, closed, and the index of its roster.
func longTeam(t *testing.T) (*colleague, *Clone, []byte) {
	ann, a, _ := newTeam(t, InitOptions{})
	for i := range rosterIndexEvery {
		ann.change(a, func(change *RosterChange) error { _, err := change.MakeRoom(fmt.Sprint("room ", i)); return err })
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(rosterIndexPath(a.Repo.CommonDir))
	if err != nil {
		t.Fatal(err)
	}
	return ann, a, content
}

// With the roster's index a start verifies nothing again; without one, or with one that does not fit, all.
func TestARosterIndexIsUsedOrVoid(t *testing.T) {
	ann, a, content := longTeam(t)
	want, whole := a.Roster(), a.Roster().Head.Seq+1
	reads := func(what string, kept uint64) *Clone {
		t.Helper()
		c := ann.open(a.Repo, false)
		r := c.Roster()
		if r == nil || len(c.Problems()) > 0 {
			t.Fatalf("%s: no roster, or problems %v", what, c.Problems())
		}
		if r.Head != want.Head || r.FindRoom("room 0") == nil || len(c.keys) != len(a.keys) {
			t.Fatalf("%s: head %+v, want %+v; %d keys, want %d", what, r.Head, want.Head, len(c.keys), len(a.keys))
		}
		if c.keptRoster != kept {
			t.Errorf("%s: %d entries were not verified again, want %d", what, c.keptRoster, kept)
		}
		return c
	}
	put := func(content []byte) {
		t.Helper()
		write(t, rosterIndexPath(a.Repo.CommonDir), string(content))
	}
	reads("as it was kept", whole)

	first, last := bytes.Clone(content), bytes.Clone(content)
	first[len(rosterIndexMagic)] ^= 1
	last[len(last)-1] ^= 1
	for what, damage := range map[string][]byte{
		"none": {}, "foreign": []byte("something else"), "cut": content[:len(content)/2], "the magic alone": content[:len(rosterIndexMagic)],
		"longer": append(bytes.Clone(content), 0), "another nonce": first, "another tag": last,
	} {
		put(damage)
		reads(what, 0)
	}

	tip := a.rosterTip
	other := *a.device
	other.Local[0] ^= 1
	for what, keep := range map[string]func() error{
		"of another local key": func() error { return writeRosterIndex(a.Repo.CommonDir, &other, a.writer, want, tip) },
		"of another clone": func() error {
			return writeRosterIndex(a.Repo.CommonDir, a.device, WriterID{1}, want, tip)
		},
		"of another device": func() error {
			stranger := *draw(t, "A: team").device("A")
			stranger.Local = a.device.Local
			return writeRosterIndex(a.Repo.CommonDir, &stranger, a.writer, want, tip)
		},
		"of another team": func() error {
			return writeRosterIndex(a.Repo.CommonDir, a.device, a.writer, draw(t, "A: team").state, tip)
		},
		// Under the right key, a state that is not the one of its commit: the commit's entry has another hash.
		"of another commit": func() error {
			return writeRosterIndex(a.Repo.CommonDir, a.device, a.writer, must2(VerifyRoster(want.Team, chainOf(t, a)[:3])), tip)
		},
		"of a commit that is not here": func() error {
			return writeRosterIndex(a.Repo.CommonDir, a.device, a.writer, want, zeroHash("sha1"))
		},
	} {
		if err := keep(); err != nil {
			t.Fatal(err)
		}
		reads(what, 0)
	}

	// One that is behind spares what it has, and the rest is verified.
	chain := chainOf(t, a)
	parent := Hash(strings.TrimSpace(ann.git("ann", "rev-parse", rosterRef+"~2")))
	if err := writeRosterIndex(a.Repo.CommonDir, a.device, a.writer, must2(VerifyRoster(want.Team, chain[:len(chain)-2])), parent); err != nil {
		t.Fatal(err)
	}
	reads("behind", whole-2)

	// What is kept is written anew once it lacks much.
	put(nil)
	c := ann.open(a.Repo, true)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	reads("written anew", whole)
}

// Whatever is kept, a ref that goes back or elsewhere is seen, here and on the host, and verify reads all of the chain.
func TestAKeptRosterHidesNothing(t *testing.T) {
	ctx := context.Background()
	ann, a, content := longTeam(t)
	head := a.Roster().Head
	keep := func() { // whatever was kept meanwhile
		write(t, rosterIndexPath(a.Repo.CommonDir), string(content))
	}
	back := strings.TrimSpace(ann.git("ann", "rev-parse", rosterRef+"~3"))

	ann.git("ann", "update-ref", rosterRef, back)
	c := ann.open(a.Repo, false)
	if r := c.Roster(); r.Head.Seq != head.Seq-3 || !c.behind || c.keptRoster != 0 {
		t.Errorf("a ref that went back: head %d, behind %v, %d entries not verified", r.Head.Seq, c.behind, c.keptRoster)
	}
	chain := chainOf(t, c)

	// Another entry in the place of one that was pinned.
	fork := must2(newRosterChange(must2(VerifyRoster(a.settings.Team, chain)), a.device, Now(), nil))
	tip := Hash(back)
	for i := range 4 {
		if _, err := fork.MakeRoom(fmt.Sprint("fork ", i)); err != nil {
			t.Fatal(err)
		}
		commit, after, err := fork.build()
		if err != nil {
			t.Fatal(err)
		}
		if tip, err = writeRosterCommit(ctx, must2(c.store(ctx)), tip, *commit, after.Time); err != nil {
			t.Fatal(err)
		}
		fork = must2(newRosterChange(after, a.device, Now(), nil))
	}
	keep()
	ann.git("ann", "update-ref", rosterRef, string(tip))
	c = ann.open(a.Repo, false)
	if c.Roster() != nil || len(c.Problems()) != 1 || !strings.Contains(c.Problems()[0].What, "does not go on from entry") {
		t.Errorf("a fork in the place of what was pinned: %v", c.Problems())
	}
	ann.git("ann", "update-ref", rosterRef, string(a.rosterTip))

	// The host shows the fork to a clone that has the index.
	ann.git("ann", "push", "-q", "-f", "origin", string(tip)+":"+rosterRef)
	keep()
	c = ann.open(a.Repo, true)
	if c.keptRoster != head.Seq+1 {
		t.Errorf("%d entries came from the index, want %d", c.keptRoster, head.Seq+1)
	}
	report, err := c.Sync(ctx, SyncOptions{Fetch: true})
	if err != nil || len(report.Problems) != 1 || !strings.Contains(report.Problems[0].What, "does not go on from the one accepted here") {
		t.Errorf("a fork on the host: %v, %+v", err, report)
	}
	if c.Roster().Head != head {
		t.Errorf("the head is %+v, want %+v", c.Roster().Head, head)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}

	// An entry that the index spares a start is gone: verify says so.
	blob := strings.TrimSpace(ann.git("ann", "rev-parse", rosterRef+"~5:entry"))
	if err := os.Remove(filepath.Join(a.Repo.CommonDir, "objects", blob[:2], blob[2:])); err != nil {
		t.Fatal(err)
	}
	keep()
	if c = ann.open(a.Repo, false); c.keptRoster != head.Seq+1 {
		t.Errorf("%d entries came from the index, want %d", c.keptRoster, head.Seq+1)
	}
	verified, err := Verify(ctx, a.Repo, VerifyOptions{Home: ann.home})
	if err != nil || !slices.ContainsFunc(verified.Problems, func(p Problem) bool { return p.Ref == rosterRef && strings.Contains(p.What, blob) }) {
		t.Errorf("verify of a roster that lacks an entry: %v, %+v", err, verified)
	}
}

// Whatever bytes the seal holds, no state comes of them that a start cannot go on with.
func FuzzRosterIndex(f *testing.F) {
	d := draw(f, drawnLong)
	device := d.device("A")
	for _, n := range []int{1, 6, len(d.chain)} {
		state, _ := read(f, must2(VerifyRoster(d.state.Team, d.chain[:n])), device)
		plain, err := cbor.Marshal(keepRoster(state, device.ID, "commit"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(plain)
	}
	f.Fuzz(func(t *testing.T, plain []byte) {
		kept := &rosterIndex{}
		if cbor.Unmarshal(plain, kept) != nil {
			return
		}
		r, err := kept.roster()
		if errors.Is(err, errRosterIndex) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		ring, _ := r.OpenEpochs(device)
		_ = r.ReadNames(ring)
		_, _ = r.resume(d.chain[:1])
		_, _, _ = r.Change(device, r.Time, func(change *RosterChange) error {
			for _, room := range r.Rooms {
				_ = change.RemoveRoom(room.Name)
			}
			_, err := change.Invite("zoe@example.com", "", "")
			return err
		})
	})
}
