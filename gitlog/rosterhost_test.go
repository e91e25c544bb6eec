package gitlog

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Four clones with four homes. Two admins change the team at the same moment, again and again: both changes are in, in one
// order, which is everywhere the same.
func TestTwoAdminsAtOnce(t *testing.T) {
	ctx := context.Background()
	ann, a, _ := newTeam(t, InitOptions{})
	people, clones := []*colleague{ann}, []*Clone{a}
	for _, name := range []string{"bob", "cleo", "dan"} {
		p := ann.colleague(name)
		people, clones = append(people, p), append(clones, p.comes(a))
	}
	ann.change(a, func(change *RosterChange) error { return change.NameAdmin("bob@example.com") })
	for round := range rounds(t, 3) {
		start := make(chan struct{})
		errs := make([]error, 2)
		var done sync.WaitGroup
		for i := range 2 {
			done.Go(func() {
				<-start
				_, errs[i] = clones[i].ChangeRoster(ctx, SyncOptions{}, func(change *RosterChange) error {
					_, err := change.MakeRoom(fmt.Sprintf("room-%d-%d", round, i), "cleo@example.com")
					return err
				})
			})
		}
		close(start)
		done.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		var first *Roster
		for i, c := range clones {
			people[i].sync(c)
			r := c.Roster()
			if first == nil {
				first = r
			}
			if r.Head != first.Head || !slices.Equal(r.hashes, first.hashes) {
				t.Fatalf("round %d: %s has head %+v, ann has %+v", round, people[i].name, r.Head, first.Head)
			}
			for by := range 2 {
				if r.FindRoom(fmt.Sprintf("room-%d-%d", round, by)) == nil {
					t.Fatalf("round %d: the change of %s is lost at %s", round, people[by].name, people[i].name)
				}
			}
		}
	}
	host := strings.Count(ann.git("host.git", "rev-list", rosterRef), "\n")
	if head := a.Roster().Head; uint64(host) != head.Seq+1 {
		t.Errorf("%d entries on the host, head %d", host, head.Seq)
	}
}

// Two admins who remove each other: the host's order decides, and the loser is told.
func TestTwoAdminsRemoveEachOther(t *testing.T) {
	ctx := context.Background()
	ann, a, _ := newTeam(t, InitOptions{})
	bob := ann.colleague("bob")
	b := bob.comes(a)
	ann.change(a, func(change *RosterChange) error { return change.NameAdmin("bob@example.com") })
	_, err := a.ChangeRoster(ctx, SyncOptions{}, func(change *RosterChange) error {
		// While ann's entry is built, bob's reaches the host.
		if _, err := b.ChangeRoster(ctx, SyncOptions{}, func(change *RosterChange) error { return change.RemoveMember("ann@example.com", 0) }); err != nil {
			return fmt.Errorf("bob: %w", err)
		}
		return change.RemoveMember("bob@example.com", 0)
	})
	if !errors.Is(err, ErrTeamMoved) {
		t.Errorf("%v, want %v", err, ErrTeamMoved)
	}
	wantError(t, err, "this device was removed from the team by entry")
	if !a.Roster().Former(a.device.ID) || a.Roster().Former(b.device.ID) {
		t.Error("ann's clone does not know how it ended")
	}
	wantError(t, a.Append(ctx, factOf(a, "late", "text")), "was removed from the team")
}

// A change that came first and makes another impossible says so; one that leaves room for it does not.
func TestTheLoserBuildsAgain(t *testing.T) {
	ctx := context.Background()
	ann, a, _ := newTeam(t, InitOptions{})
	bob := ann.colleague("bob")
	b := bob.comes(a)
	ann.change(a, func(change *RosterChange) error { return change.NameAdmin("bob@example.com") })
	for _, c := range []struct{ first, second, want string }{{"pay", "deep", ""}, {"ops", "ops", "there is a room \"ops\" already"}} {
		calls := 0
		_, err := a.ChangeRoster(ctx, SyncOptions{}, func(change *RosterChange) error {
			if calls++; calls == 1 {
				bob.change(b, func(change *RosterChange) error { _, err := change.MakeRoom(c.first); return err })
			}
			_, err := change.MakeRoom(c.second)
			return err
		})
		// In the second case the change is told at once what it looks at, and is refused by the host.
		if calls != 2 {
			t.Errorf("%s: built %d times", c.second, calls)
		}
		if c.want == "" && err != nil {
			t.Error(err)
		} else if c.want != "" {
			wantError(t, err, c.want)
		}
	}
}

// A member leaves: what they wrote before stays, what they write after does not count, and what is written after is closed to them.
func TestARemovedMember(t *testing.T) {
	ctx := context.Background()
	ann, a, _ := newTeam(t, InitOptions{})
	bob := ann.colleague("bob")
	b := bob.comes(a)
	remember(t, b, "bob-before")
	if err := b.Record(writtenOf(b, "src/billing.js")); err != nil {
		t.Fatal(err)
	}
	if err := b.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	bob.sync(b)
	r := ann.change(a, func(change *RosterChange) error { return change.RemoveMember("bob@example.com", 0) })
	for _, kind := range []LogKind{MemoryLog, AuditLog} {
		if seq, _, removed := r.Cut(b.Writer(), kind); seq != 1 || !removed {
			t.Errorf("log %d is cut at %d", kind, seq)
		}
	}
	remember(t, a, "after")
	ann.sync(a)

	// Bob has not heard of it, writes on, and pushes by hand.
	remember(t, b, "bob-after")
	ref := ownRefs + refPlace{Log: MemoryLog, Writer: b.Writer(), Generation: 1}.String()
	ann.git("bob", "push", "-q", "origin", ref)
	report, err := a.Sync(ctx, SyncOptions{Fetch: true, Push: true, Audit: true})
	if err != nil || len(report.Problems) != 1 || report.Problems[0].Seq != 2 || !strings.Contains(report.Problems[0].What, "removed device") {
		t.Errorf("%v: %+v", err, report)
	}
	if got := knows(a); got != "after bob-before" {
		t.Errorf("ann reads %q", got)
	}
	if !a.Former(b.device.ID) || a.MemberName(b.device.ID) != "bob@example.com" {
		t.Error("bob is not shown as a former member")
	}
	// A fresh clone of ann's comes to the same.
	c := ann.open(ann.find("ann"), false)
	if got := knows(c); got != "after bob-before" {
		t.Errorf("a fresh look reads %q", got)
	}
	if events := len(c.Events()); events != 1 {
		t.Errorf("%d events", events)
	}

	// Bob fetches all there is and opens what was his.
	if _, err := b.Sync(ctx, SyncOptions{Fetch: true, Audit: true}); err != nil {
		t.Fatal(err)
	}
	if got := knows(b); got != "bob-before" {
		t.Errorf("bob reads %q", got)
	}
	for epoch := range b.keys {
		if epoch.Number > 2 {
			t.Errorf("bob opens epoch %d", epoch.Number)
		}
	}
}

// After a theft the cut is set to before it.
func TestSince(t *testing.T) {
	ann, a, _ := newTeam(t, InitOptions{})
	bob := ann.colleague("bob")
	b := bob.comes(a)
	start := time.Now()
	for i := range 3 {
		b.now = func() time.Time { return start.Add(time.Duration(i) * time.Hour) }
		remember(t, b, fmt.Sprint("fact-", i))
	}
	bob.sync(b)
	r := ann.change(a, func(change *RosterChange) error {
		return change.RemoveMember("bob@example.com", MillisOf(start.Add(time.Hour)))
	})
	if seq, _, _ := r.Cut(b.Writer(), MemoryLog); seq != 1 {
		t.Errorf("cut at %d", seq)
	}
	if got := knows(a); got != "fact-0" {
		t.Errorf("ann reads %q", got)
	}
}

func TestAHostThatShowsAnotherRoster(t *testing.T) {
	ctx := context.Background()
	ann, a, _ := newTeam(t, InitOptions{})
	first := strings.TrimSpace(ann.git("host.git", "rev-parse", rosterRef))
	ann.change(a, func(change *RosterChange) error { _, err := change.MakeRoom("pay"); return err })
	remember(t, a, "one")
	ann.sync(a)

	// The host goes back, and another clone of the same person, which has nothing yet, is shown that.
	ann.git("host.git", "update-ref", rosterRef, first)
	second := ann.clone("second")
	_, err := Init(ctx, second, ann.home, InitOptions{})
	wantError(t, err, "does not go on from the one accepted here")
	wantError(t, err, "knoot trust --roster")

	// The first clone heals the host.
	ann.sync(a)
	if _, err := Init(ctx, second, ann.home, InitOptions{}); err != nil {
		t.Fatal(err)
	}
	c := ann.open(second, true)
	ann.sync(c)

	// The host shows a fork: somebody else's entry on genesis. Both clones refuse it, and one is told to follow it.
	fork, err := newRosterChange(must2(VerifyRoster(a.settings.Team, chainOf(t, a)[:1])), a.device, Now(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fork.MakeRoom("fork"); err != nil {
		t.Fatal(err)
	}
	commit, forked, err := fork.build()
	if err != nil {
		t.Fatal(err)
	}
	objects, err := a.store(ctx)
	if err != nil {
		t.Fatal(err)
	}
	tip, err := writeRosterCommit(ctx, objects, Hash(first), *commit, forked.Time)
	if err != nil {
		t.Fatal(err)
	}
	ann.git("ann", "push", "-q", "-f", "origin", string(tip)+":"+rosterRef)
	report, err := c.Sync(ctx, SyncOptions{Fetch: true, Push: true})
	if len(report.Problems) != 1 || !strings.Contains(report.Problems[0].What, forked.Head.Hash.String()) {
		t.Errorf("%v: %+v", err, report)
	}
	_, err = c.ChangeRoster(ctx, SyncOptions{}, func(change *RosterChange) error { _, err := change.MakeRoom("x"); return err })
	wantError(t, err, "does not go on from")
	wantError(t, c.TrustRoster(ctx, Digest{1}), "has no entry")
	if err := c.TrustRoster(ctx, forked.Head.Hash); err != nil {
		t.Fatal(err)
	}
	if c.Roster().FindRoom("fork") == nil || c.Roster().FindRoom("pay") != nil {
		t.Error("the trusted roster is not followed")
	}
}

func must2[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func chainOf(t testing.TB, c *Clone) []RosterCommit {
	t.Helper()
	tip, err := openRefs(c.Repo).read(context.Background(), rosterRef)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := c.store(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	chain, err := readRosterChain(context.Background(), objects, tip)
	if err != nil {
		t.Fatal(err)
	}
	return chain
}

// One team in two repositories, each with a host of its own; the roster is in the first one's.
func TestOneRosterForTwoRepositories(t *testing.T) {
	ctx := context.Background()
	ann, a, _ := newTeam(t, InitOptions{})
	bob := ann.colleague("bob")
	bob.comes(a)
	address := filepath.Join(ann.dir, "host.git")

	ann.git(".", "init", "-q", "--bare", "other.git")
	other := ann.repository("other")
	ann.git("other", "remote", "add", "origin", filepath.Join(ann.dir, "other.git"))
	ann.git("other", "push", "-q", "-u", "origin", "main")
	report, err := Init(ctx, other, ann.home, InitOptions{Roster: address})
	if err != nil || report.Started || report.Team != a.settings.Team || report.Repository == a.settings.Repository {
		t.Fatalf("%v: %+v", err, report)
	}
	ann.git("other", "add", ".")
	ann.git("other", "commit", "-q", "-m", "knoot")
	ann.git("other", "push", "-q")
	o := ann.open(other, true)
	remember(t, o, "in-other")
	ann.sync(o)
	if refs := ann.git("other.git", "for-each-ref", "refs/knoot/team"); refs != "" {
		t.Errorf("a roster in the second repository: %s", refs)
	}

	// A change made there is in the first.
	ann.change(o, func(change *RosterChange) error { _, err := change.MakeRoom("pay", "bob@example.com"); return err })
	ann.sync(a)
	if a.Roster().FindRoom("pay") == nil {
		t.Error("the first repository does not know the room")
	}
	// A member comes to the second repository, and reads; their segments name a head that is found.
	bob.git(".", "clone", "-q", "other.git", "bob-other")
	repo := bob.find("bob-other")
	if joined, err := bob.join(repo, ""); err != nil || joined.Waiting || joined.Member != "bob@example.com" {
		t.Fatalf("%v: %+v", err, joined)
	}
	b := bob.open(repo, true)
	bob.sync(b)
	if got := knows(b); got != "in-other" {
		t.Errorf("bob reads %q", got)
	}
	remember(t, b, "bob's")
	bob.sync(b)
	ann.sync(o)
	if got := knows(o); got != "bob's in-other" {
		t.Errorf("ann reads %q", got)
	}

	for _, bad := range []string{"ext::sh -c true", "-u/x", "host"} {
		if _, err := rosterRemoteOf(o.remote, &Settings{Roster: bad}); err == nil {
			t.Errorf("%q is followed", bad)
		}
	}
}

// With no remote the team is changed here, and what was written before is read on.
func TestATeamWithoutAHost(t *testing.T) {
	s := newStage(t)
	repo := s.repository("alone")
	s.init(repo)
	c := s.open(repo, true)
	remember(t, c, "one")
	r, err := c.ChangeRoster(context.Background(), SyncOptions{}, func(change *RosterChange) error {
		_, err := change.Invite("bob@example.com", "Bob", "laptop")
		return err
	})
	if err != nil || r.FindMember("BOB@example.com").Name != "Bob" || r.Head.Seq != 1 {
		t.Fatalf("%v: %+v", err, r)
	}
	if c = s.open(repo, false); knows(c) != "one" || c.Roster().Head != r.Head {
		t.Errorf("it reads %q at %+v", knows(c), c.Roster().Head)
	}
}

// A clone that has not heard what another one on the machine has: it reads by what it has, and seals nothing by it.
func TestACloneThatIsBehind(t *testing.T) {
	ctx := context.Background()
	ann, a, _ := newTeam(t, InitOptions{})
	remember(t, a, "one")
	ann.sync(a)
	second := ann.clone("second")
	if _, err := Init(ctx, second, ann.home, InitOptions{}); err != nil {
		t.Fatal(err)
	}
	b := ann.open(second, true)
	ann.sync(b)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	ann.change(a, func(change *RosterChange) error { _, err := change.MakeRoom("pay"); return err })

	third := ann.open(ann.find("second"), true)
	if got := knows(third); got != "one" {
		t.Errorf("it reads %q", got)
	}
	if problems := third.Problems(); len(problems) != 1 || !strings.Contains(problems[0].What, "knoot sync") {
		t.Errorf("problems %v", problems)
	}
	wantError(t, third.Append(ctx, factOf(third, "two", "text")), "another clone on this machine")
	ann.sync(third)
	remember(t, third, "two")
	if problems := third.Problems(); len(problems) != 0 {
		t.Errorf("problems %v", problems)
	}
}

// 20 devices: a removal, from the command to the new epoch on the host. The budget is 5 times one `git push` of as much.
func BenchmarkRemoval(b *testing.B) {
	ctx := context.Background()
	ann, a, _ := newTeam(b, InitOptions{})
	var id DeviceID
	fill := func() {
		ann.change(a, func(change *RosterChange) error {
			for range 20 - len(change.Before().Devices) {
				device, err := drawDevice()
				if err != nil {
					return err
				}
				if err := change.AddDevice(device, "laptop"); err != nil {
					return err
				}
				id = device.ID
			}
			return nil
		})
	}
	var pushes, removals time.Duration
	for b.Loop() {
		fill()
		start := time.Now()
		if _, err := a.ChangeRoster(ctx, SyncOptions{}, func(change *RosterChange) error { return change.RemoveDevice(id, 0) }); err != nil {
			b.Fatal(err)
		}
		removals += time.Since(start)
		tip := strings.TrimSpace(ann.git("ann", "rev-parse", rosterRef))
		ann.git("host.git", "update-ref", rosterRef, tip+"^")
		start = time.Now()
		ann.git("ann", "push", "-q", "origin", rosterRef)
		pushes += time.Since(start)
	}
	b.ReportMetric(float64(removals)/float64(pushes), "removals/push")
}

// A local roster that goes on with what is wrong is not gone on from: what would be pushed has it in its middle.
func TestNothingGoesOnFromAWrongEntry(t *testing.T) {
	ctx := context.Background()
	ann, a, _ := newTeam(t, InitOptions{})
	before := ann.change(a, func(change *RosterChange) error { _, err := change.MakeRoom("pay"); return err }).Head
	tip, err := writeRosterCommit(ctx, must2(a.store(ctx)), a.rosterTip, RosterCommit{Entry: []byte("no entry")}, Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	hosted := ann.git("host.git", "rev-parse", rosterRef)
	ann.git("ann", "update-ref", rosterRef, string(tip))
	c := ann.open(a.Repo, true)
	if c.Roster().Head != before {
		t.Errorf("the head is %+v, want %+v", c.Roster().Head, before)
	}
	_, err = c.ChangeRoster(ctx, SyncOptions{}, func(change *RosterChange) error { _, err := change.MakeRoom("ops"); return err })
	wantError(t, err, "its roster goes on with what is wrong (roster entry 2:")
	if now := ann.git("host.git", "rev-parse", rosterRef); now != hosted {
		t.Errorf("the host's roster went from %s to %s", hosted, now)
	}
}
