package gitlog

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// forger changes a copy of a host the way that somebody who can push to it could.
type forger struct {
	t       *testing.T
	repo    *Repository
	objects *objectStore
}

func (c *crew) forger(t *testing.T) *forger {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "host.git")
	if out, err := exec.Command("cp", "-r", c.host, dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	repo, err := FindRepository(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := openObjects(context.Background(), repo, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { objects.close() })
	return &forger{t, repo, objects}
}

func (f *forger) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// at returns a ref's commits, oldest first.
func (f *forger) at(name string) []*logCommit {
	f.t.Helper()
	tip, err := openRefs(f.repo).read(context.Background(), name)
	f.must(err)
	commits, _, err := f.objects.readChain(context.Background(), tip, "", maxChain)
	f.must(err)
	return commits
}

func (f *forger) files(c *logCommit) map[string][]byte {
	f.t.Helper()
	files, err := f.objects.readFiles(context.Background(), c.Tree, fileLimits{Files: maxRosterFiles, Bytes: maxSegmentFile})
	f.must(err)
	return files
}

// write puts commits with these files after parent and moves the ref there.
func (f *forger) write(name string, parent Hash, commits ...map[string][]byte) {
	f.t.Helper()
	for _, files := range commits {
		var err error
		parent, err = f.objects.writeCommit(context.Background(), parent, files, time.Unix(1_700_000_000, 0))
		f.must(err)
	}
	f.move(name, parent)
}

func (f *forger) move(name string, to Hash) {
	f.t.Helper()
	refs := openRefs(f.repo)
	at, err := refs.read(context.Background(), name)
	f.must(err)
	f.must(refs.change(context.Background(), refChange{Name: name, Old: at, New: to}))
}

// parsed is a segment of a ref, from 1.
func (f *forger) parsed(name string, seq int) *Segment {
	f.t.Helper()
	rooms, err := filesByRoom(f.files(f.at(name)[seq-1]))
	f.must(err)
	segment, err := ParseSegment(rooms, seq == 1)
	f.must(err)
	return segment
}

// next is the header of the segment that would follow in a log, and the commit before it.
func (f *forger) next(name string) (Header, Hash) {
	f.t.Helper()
	commits := f.at(name)
	last := f.parsed(name, len(commits))
	h := *last.Header()
	h.Seq, h.Prev, h.Seen, h.Created = h.Seq+1, last.Digest, nil, h.Created+1
	return h, commits[len(commits)-1].ID
}

// seal makes the files of a segment with one fact in a room.
func (f *forger) seal(h Header, by *Device, epoch *Epoch) map[string][]byte {
	f.t.Helper()
	e := &Entry{Kind: KindFact, Time: h.Created, Author: by.ID, Fact: &Fact{Name: "forged", Text: "a text", Depth: 1, By: ByPerson}}
	sealed, _, err := SealSegment(h, map[RoomID]Part{epoch.Room: {Epoch: epoch, Entries: []*Entry{e}}}, by, h.Seq == 1)
	f.must(err)
	files := map[string][]byte{}
	for room, file := range sealed {
		files[room.String()] = file
	}
	return files
}

func TestVerifyNamesEachTampering(t *testing.T) {
	ctx := context.Background()
	c, ann, others := newCrew(t, "bob", "eve")
	bob, eve := others[0], others[1]
	pay := ann.payRoom()
	for _, h := range []*hand{bob, eve} {
		h.pull()
		for _, name := range []string{"first", "second"} {
			h.remember(h.name+" "+name, "what "+h.name+" knows "+name, "src/billing.js")
		}
		h.push()
	}
	ann.pull()
	before := ann.Roster()
	ann.change(func(change *RosterChange) error { return change.RemoveMember("eve@example.com", 0) })
	ann.remember("ann first", "everybody's", "src/billing.js")
	ann.remember("ann second", "the room's", "src/pay/card.js")
	ann.push()
	bob.pull()
	bob.remember("bob third", "after the removal", "src/billing.js")
	bob.push()
	ann.pull()
	ann.remember("ann third", "names bob's third", "src/billing.js")
	ann.push()
	roster, general := ann.Roster(), ann.General()
	current := roster.Rooms[general].Current()
	head := roster.Head.Seq

	clean := func(what string, repo *Repository, home *Home) {
		t.Helper()
		report, err := Verify(ctx, repo, VerifyOptions{Home: home})
		if err != nil {
			t.Fatal(err)
		}
		if len(report.Problems) > 0 || report.Writers != 3 || report.Segments != 8 || report.Entries != 8 {
			t.Errorf("%s: %+v", what, report)
		}
	}
	clean("the host", c.find("host.git"), nil)
	clean("the host, on ann's machine", c.find("host.git"), ann.home)
	clean("ann's clone", ann.Repo, ann.home)

	stranger, err := drawDevice()
	if err != nil {
		t.Fatal(err)
	}
	otherWriter := WriterID(append(slices.Clone(bob.device.ID[:]), 1, 2, 3, 4, 5, 6, 7, 8))
	strangersWriter := WriterID(append(slices.Clone(stranger.ID[:]), 1, 2, 3, 4, 5, 6, 7, 8))
	refOf := func(w WriterID) string { return ownRefs + refPlace{Log: MemoryLog, Writer: w, Generation: 1}.String() }
	a, b, e := ann.memoryRef(), bob.memoryRef(), eve.memoryRef()

	for _, c2 := range []struct {
		what   string
		ref    string
		seq    uint64
		says   string
		tamper func(f *forger)
	}{
		{"forged", b, 4, "signature", func(f *forger) {
			h, tip := f.next(b)
			files := f.seal(h, bob.device, current)
			file := files[general.String()]
			file[len(file)-1] ^= 1
			f.write(b, tip, files)
		}},
		{"replayed", b, 4, "1 stands where 4", func(f *forger) {
			chain := f.at(b)
			f.write(b, chain[2].ID, f.files(chain[0]))
		}},
		{"reordered", b, 2, "3 stands where 2", func(f *forger) {
			chain := f.at(b)
			f.write(b, chain[0].ID, f.files(chain[2]), f.files(chain[1]))
		}},
		{"one left out", b, 2, "3 stands where 2", func(f *forger) {
			chain := f.at(b)
			f.write(b, chain[0].ID, f.files(chain[2]))
		}},
		{"signed again by another", b, 3, "signature", func(f *forger) {
			file := f.parsed(b, 3).Files[0]
			signed, err := sign(eve.device.Sign, segmentContext, file.signed.protected, file.signed.payload)
			f.must(err)
			f.write(b, f.at(b)[1].ID, map[string][]byte{general.String(): signed})
		}},
		{"signed again as one's own", b, 4, "signed again", func(f *forger) {
			h, tip := f.next(b)
			h.Room, h.Rooms, h.Epoch = general, []RoomID{general}, current.Number
			signed, err := sign(bob.device.Sign, segmentContext, encodeProtected(&h, bob.device.ID), f.parsed(a, 1).Files[0].signed.payload)
			f.must(err)
			f.write(b, tip, map[string][]byte{general.String(): signed})
		}},
		{"moved to another room", a, 2, "room", func(f *forger) {
			chain := f.at(a)
			f.write(a, chain[0].ID, map[string][]byte{general.String(): f.files(chain[1])[pay.String()]})
		}},
		{"moved to an ended epoch", b, 4, "had ended", func(f *forger) {
			h, tip := f.next(b)
			f.write(b, tip, f.seal(h, bob.device, before.Rooms[general].Current()))
		}},
		{"moved to another writer", refOf(otherWriter), 1, "belongs to", func(f *forger) { f.move(refOf(otherWriter), f.at(b)[2].ID) }},
		{"truncated", b, 3, "cut short", func(f *forger) { f.move(b, f.at(b)[1].ID) }},
		{"deleted", b, 3, "gone", func(f *forger) { f.move(b, "") }},
		{"a removed device's log, truncated", e, 2, "cut short", func(f *forger) { f.move(e, f.at(e)[0].ID) }},
		{"a roster rolled back", rosterRef, head, "rolled back", func(f *forger) { f.move(rosterRef, f.at(rosterRef)[head-1].ID) }},
		{"a roster entry forged", rosterRef, head + 1, "signature", func(f *forger) {
			chain := f.at(rosterRef)
			draft := rosterDraft{seq: head + 1, prev: roster.Head.Hash, time: roster.Time, operations: []any{[]any{uint64(opAdminNamed), intMap{opMember: roster.MemberOf(bob.device.ID).ID[:]}}}}
			commit, err := draft.sign(bob.device)
			f.must(err)
			commit.Entry[len(commit.Entry)-1] ^= 1
			f.write(rosterRef, chain[head].ID, map[string][]byte{"entry": commit.Entry})
		}},
		{"a roster entry by who may not", rosterRef, head + 1, "may not", func(f *forger) {
			chain := f.at(rosterRef)
			draft := rosterDraft{seq: head + 1, prev: roster.Head.Hash, time: roster.Time, operations: []any{[]any{uint64(opAdminNamed), intMap{opMember: roster.MemberOf(bob.device.ID).ID[:]}}}}
			commit, err := draft.sign(bob.device)
			f.must(err)
			f.write(rosterRef, chain[head].ID, map[string][]byte{"entry": commit.Entry})
		}},
		{"a device's recipient of the wrong length", rosterRef, head + 1, "recipient", func(f *forger) {
			recipient := stranger.Age.Recipient().String()
			draft := rosterDraft{seq: head + 1, prev: roster.Head.Hash, time: roster.Time, operations: []any{[]any{uint64(opDeviceAdded), intMap{
				opMember: roster.MemberOf(bob.device.ID).ID[:], opDeviceKey: []byte(stranger.Sign.Public().(ed25519.PublicKey)), opDeviceRecipient: recipient[:len(recipient)-8],
			}}}}
			commit, err := draft.sign(ann.device)
			f.must(err)
			f.write(rosterRef, f.at(rosterRef)[head].ID, map[string][]byte{"entry": commit.Entry})
		}},
		{"a text sealed in another way", b, 4, "one recipient", func(f *forger) {
			h, tip := f.next(b)
			h.Room, h.Rooms, h.Epoch = general, []RoomID{general}, current.Number
			payload := f.parsed(a, 1).Files[0].signed.payload
			cut := strings.Index(string(payload), "\n--- ")
			short := append(slices.Clone(payload[:cut-4]), payload[cut:]...)
			signed, err := sign(bob.device.Sign, segmentContext, encodeProtected(&h, bob.device.ID), short)
			f.must(err)
			f.write(b, tip, map[string][]byte{general.String(): signed})
		}},
		{"an unknown device", refOf(strangersWriter), 1, "no member's", func(f *forger) {
			h, _ := f.next(b)
			h.Writer, h.Seq, h.Prev = strangersWriter, 1, Digest{}
			f.write(refOf(strangersWriter), "", f.seal(h, stranger, current))
		}},
		{"a removed device, backdated", e, 3, "removed device", func(f *forger) {
			h, tip := f.next(e)
			f.write(e, tip, f.seal(h, eve.device, before.Rooms[general].Current()))
		}},
		{"about an area of others", b, 4, "not in it", func(f *forger) {
			h, tip := f.next(b)
			f.write(b, tip, f.seal(h, bob.device, roster.Rooms[pay].Current()))
		}},
		{"a request by nobody", ownRefs + "team/request/" + stranger.ID.String(), 0, "request", func(f *forger) {
			f.move(ownRefs+"team/request/"+stranger.ID.String(), f.at(b)[0].ID)
		}},
		{"10,000 junk refs", ownRefs + "memory/junk/9999", 0, "junk", func(f *forger) {
			var input strings.Builder
			some := f.at(b)[0].ID
			for i := range 10_000 {
				fmt.Fprintf(&input, "create %smemory/junk/%d %s\n", ownRefs, i, some)
			}
			_, _, err := f.repo.git().run(ctx, []byte(input.String()), "update-ref", "--stdin")
			f.must(err)
		}},
	} {
		t.Run(c2.what, func(t *testing.T) {
			f := c.forger(t)
			c2.tamper(f)
			report, err := Verify(ctx, f.repo, VerifyOptions{Home: ann.home})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(report.Problems, func(p Problem) bool {
				return p.Ref == c2.ref && p.Seq == c2.seq && strings.Contains(p.What, c2.says)
			}) {
				t.Errorf("no problem at %s, %d that says %q among %.2000q", c2.ref, c2.seq, c2.says, fmt.Sprint(report.Problems))
			}
		})
	}

	// In a clone, what was kept says what the host has lost.
	inbox := ann.remote.inbox + strings.TrimPrefix(b, ownRefs)
	f := &forger{t, ann.Repo, nil}
	if f.objects, err = openObjects(ctx, ann.Repo, true); err != nil {
		t.Fatal(err)
	}
	defer f.objects.close()
	f.move(inbox, f.at(inbox)[1].ID)
	report, err := Verify(ctx, ann.Repo, VerifyOptions{})
	if err != nil || !slices.ContainsFunc(report.Problems, func(p Problem) bool { return p.Ref == inbox && p.Seq == 3 }) {
		t.Errorf("a host that went back: %+v, %v", report, err)
	}
}

// Where host and clone go back alike, the clone's index remembers what was read.
func TestVerifyRemembersWhatWasRead(t *testing.T) {
	_, ann, others := newCrew(t, "bob")
	bob := others[0]
	for _, name := range []string{"one", "two", "three"} {
		bob.remember(name, "what "+name+" is about", "src/billing.js")
	}
	bob.push()
	ann.pull()
	ann.mu.Lock()
	ann.unkept = indexEvery
	err := ann.keepIndex()
	ann.mu.Unlock()
	f := &forger{t, ann.Repo, nil}
	f.must(err)
	f.objects, err = openObjects(t.Context(), ann.Repo, true)
	f.must(err)
	defer f.objects.close()
	problems := func() []Problem {
		t.Helper()
		report, err := Verify(t.Context(), ann.Repo, VerifyOptions{Home: ann.home})
		f.must(err)
		return report.Problems
	}
	if found := problems(); len(found) > 0 {
		t.Errorf("before: %+v", found)
	}
	log := "memory/" + bob.Writer().String() + "/1"
	for _, namespace := range []string{keptRefs, ann.remote.inbox} {
		f.move(namespace+log, f.at(namespace + log)[1].ID)
	}
	found := problems()
	if len(found) != 1 || found[0].Ref != ann.remote.inbox+log && found[0].Ref != keptRefs+log || found[0].Seq != 3 || !strings.Contains(found[0].What, "held segment 3 when this clone last read it") {
		t.Errorf("after it was cut short: %+v", found)
	}
}

// With the keys of a removed device and all that the host has, what was written before the removal opens, and nothing later.
func TestARemovedDeviceReadsNothingLater(t *testing.T) {
	ctx := context.Background()
	c, ann, others := newCrew(t, "bob", "eve")
	bob, eve := others[0], others[1]
	ann.remember("earlier", "the earlier secret", "src/billing.js")
	ann.push()
	ann.change(func(change *RosterChange) error { return change.RemoveMember("eve@example.com", 0) })
	bob.remember("later bob", "the later secret of bob", "src/billing.js") // bob has not heard of it yet
	bob.push()
	ann.remember("later ann", "the later secret of ann", "src/billing.js")
	ann.push()

	// Every object of the host, however it is reached.
	out := c.git("host.git", "cat-file", "--batch-check", "--batch-all-objects")
	ring, _ := ann.Roster().OpenEpochs(eve.device)
	var plain strings.Builder
	files := 0
	host := c.find("host.git")
	objects, err := openObjects(ctx, host, true)
	if err != nil {
		t.Fatal(err)
	}
	defer objects.close()
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if fields[1] != "blob" {
			continue
		}
		blob, err := objects.readObject(ctx, Hash(fields[0]), "blob", 1<<24)
		if err != nil {
			t.Fatal(err)
		}
		plain.Write(blob)
		file, err := ParseSegmentFile(blob, true)
		if err != nil {
			continue
		}
		files++
		for _, key := range ring {
			if entries, err := file.Open(newEpochKey(RoomEpoch{file.Room, file.Epoch}, key.read.Load())); err == nil {
				for _, e := range entries {
					fmt.Fprintf(&plain, "%s %s\n", e.Fact.Name, e.Fact.Text)
				}
			}
		}
	}
	if files < 3 {
		t.Fatalf("the host holds %d segment files", files)
	}
	if !strings.Contains(plain.String(), "the earlier secret") {
		t.Error("the earlier fact does not open with the removed device's keys")
	}
	if strings.Contains(plain.String(), "later") {
		t.Error("a later fact opens with the removed device's keys")
	}
}
