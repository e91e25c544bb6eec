package gitlog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// A stage is a throw-away home and repositories of real git, apart from whatever the machine has configured.
type stage struct {
	t    testing.TB
	dir  string
	home *Home
}

func newStage(t testing.TB) *stage {
	t.Helper()
	if test, ok := t.(*testing.T); ok {
		if _, twice := parallel.LoadOrStore(test, true); !twice {
			test.Parallel() // most of their time goes to git, in processes of its own
		}
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return &stage{t: t, dir: dir, home: &Home{Dir: filepath.Join(dir, "home", ".knoot")}}
}

// parallel holds the tests that have a stage already.
var parallel sync.Map

// TestMain keeps what the machine has configured away from all tests.
func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "knoot-gitlog")
		if err == nil {
			defer os.RemoveAll(dir)
			err = os.WriteFile(filepath.Join(dir, "gitconfig"), []byte("[user]\nname = Priya\nemail = priya@example.com\n[init]\ndefaultBranch = main\n"), 0o644)
		}
		for name, value := range map[string]string{
			"HOME": dir, "KNOOT_HOME": "", "XDG_CONFIG_HOME": dir, "CI": "",
			"GIT_CONFIG_GLOBAL": filepath.Join(dir, "gitconfig"), "GIT_CONFIG_NOSYSTEM": "1",
		} {
			if err == nil {
				err = os.Setenv(name, value)
			}
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

func write(t testing.TB, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// git runs git in a folder of the stage and returns what it printed.
func (s *stage) git(dir string, args ...string) string {
	s.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = filepath.Join(s.dir, dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("git %v in %s: %v\n%s", args, dir, err, out)
	}
	return string(out)
}

// repository makes a repository with one commit.
func (s *stage) repository(name string, args ...string) *Repository {
	s.t.Helper()
	s.git(".", append(append([]string{"init", "-q"}, args...), name)...)
	write(s.t, filepath.Join(s.dir, name, "src", "billing.js"), "let cents = 0\n")
	s.git(name, "add", ".")
	s.git(name, "commit", "-q", "-m", "start")
	return s.find(name)
}

func (s *stage) find(name string) *Repository {
	s.t.Helper()
	repo, err := FindRepository(context.Background(), filepath.Join(s.dir, name))
	if err != nil {
		s.t.Fatal(err)
	}
	return repo
}

func (s *stage) init(repo *Repository) *InitReport {
	s.t.Helper()
	report, err := Init(context.Background(), repo, s.home, InitOptions{Name: "Priya", Address: "priya@example.com"})
	if err != nil {
		s.t.Fatal(err)
	}
	return report
}

// open opens a clone, for writing if it is to be locked.
func (s *stage) open(repo *Repository, locked bool) *Clone {
	s.t.Helper()
	c, err := OpenClone(context.Background(), repo, s.home)
	if err != nil {
		s.t.Fatal(err)
	}
	if locked {
		if err := c.Lock(context.Background()); err != nil {
			s.t.Fatal(err)
		}
	}
	s.t.Cleanup(func() { c.Close() })
	return c
}

func factOf(c *Clone, name, text string) *Entry {
	e := c.NewEntry(KindFact)
	e.Fact = &Fact{Name: name, Text: text, Depth: 1, By: ByPerson}
	return e
}

func writtenOf(c *Clone, path string) *Entry {
	e := c.NewEntry(FileWritten)
	e.Event = &Event{Agent: "claude", Session: "s1", Paths: []EventPath{{Path: path}}}
	return e
}

// The same event again, after a kill or a sync that failed, may say more of the file by then; it is there once.
func TestAnEventIsRecordedOnce(t *testing.T) {
	s := newStage(t)
	repo := s.repository("app")
	s.init(repo)
	c := s.open(repo, true)
	first := writtenOf(c, "src/billing.js")
	again, removed := *first, *first
	again.Event = &Event{Agent: first.Event.Agent, Session: first.Event.Session, Paths: []EventPath{{Path: "src/billing.js", Blob: make([]byte, 20)}}}
	removed.Kind = PathRemoved
	for _, e := range []*Entry{first, &again, &removed, writtenOf(c, "src/billing.js")} {
		if err := c.Record(e); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(c.Writes("src/billing.js")); n != 3 { // the first, the removal, and another write
		t.Errorf("%d events, want 3", n)
	}
}

func TestWhatOneCloneWritesIsThereAgain(t *testing.T) {
	ctx := context.Background()
	for _, format := range []string{"sha1", "sha256"} {
		t.Run(format, func(t *testing.T) {
			s := newStage(t)
			repo := s.repository("app", "--object-format="+format)
			report := s.init(repo)
			if !report.Started || report.Member != "Priya" {
				t.Fatalf("init says %+v", report)
			}
			c := s.open(repo, true)
			var facts []*Entry
			for i := range 3 {
				e := factOf(c, fmt.Sprintf("money-%d", i), "all money is integer cents")
				facts = append(facts, e)
				if err := c.Append(ctx, e); err != nil {
					t.Fatal(err)
				}
			}
			event := writtenOf(c, "src/billing.js")
			if err := c.Record(event); err != nil {
				t.Fatal(err)
			}
			for _, state := range []string{"in the journal", "in a segment"} {
				r := s.open(repo, false)
				for _, e := range append(facts, event) {
					if r.entries[e.ID()] == nil {
						t.Errorf("with the event %s a reader lacks %d", state, e.Kind)
					}
				}
				if n := len(r.Writes("src/billing.js")); n != 1 {
					t.Errorf("with the event %s a reader has %d writes", state, n)
				}
				if problems := r.Problems(); len(problems) > 0 {
					t.Errorf("problems: %v", problems)
				}
				if err := c.Flush(ctx); err != nil {
					t.Fatal(err)
				}
			}
			if c.JournalSize() != 0 {
				t.Error("the journal is not empty after Flush")
			}
			if _, err := os.Stat(indexPath(repo.CommonDir)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("an index after four segments: %v", err)
			}
		})
	}
}

// While the journal is shortened, which waits for the disk, events are recorded and nobody who asks waits.
func TestEventsAreRecordedWhileTheJournalIsShortened(t *testing.T) {
	s := newStage(t)
	repo := s.repository("app")
	s.init(repo)
	c := s.open(repo, true)
	if err := c.Record(writtenOf(c, "src/billing.js")); err != nil {
		t.Fatal(err)
	}
	c.keeping.Lock() // as whoever waits for the disk
	flushed := make(chan error)
	go func() { flushed <- c.Flush(context.Background()) }()
	for inSegment := false; !inSegment; {
		c.mu.Lock()
		for _, e := range c.entries {
			inSegment = inSegment || e.Kind == FileWritten && e.Seq > 0
		}
		c.mu.Unlock()
	}
	if err := c.Record(writtenOf(c, "src/tax.js")); err != nil {
		t.Error(err)
	}
	select {
	case err := <-flushed:
		t.Errorf("the journal was shortened while its file was made to last: %v", err)
	default:
	}
	c.keeping.Unlock()
	if err := <-flushed; err != nil {
		t.Error(err)
	}
	if err := c.SyncJournal(); err != nil {
		t.Error(err)
	}
	r := s.open(repo, false)
	for _, path := range []string{"src/billing.js", "src/tax.js"} {
		if n := len(r.Writes(path)); n != 1 {
			t.Errorf("a reader has %d writes of %s", n, path)
		}
	}
}

// While all is read again, since a log's ref went back, nobody waits, and what is recorded meanwhile is there afterwards.
func TestNobodyWaitsWhileAllIsReadAgain(t *testing.T) {
	ctx := context.Background()
	s := newStage(t)
	repo := s.repository("app")
	s.init(repo)
	c := s.open(repo, true)
	fact := factOf(c, "money", "all money is integer cents")
	if err := c.Append(ctx, fact, factOf(c, "tax", "tax is rounded last")); err != nil {
		t.Fatal(err)
	}
	memory := c.Memory()
	// What this home trusts is read for it: the other end of a pipe says when.
	known := s.home.Path(knownFile)
	content, err := os.ReadFile(known)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(known), syscall.Mkfifo(known, 0o600)); err != nil {
		t.Fatal(err)
	}
	reloaded := make(chan error)
	go func() {
		c.writing.Lock()
		defer c.writing.Unlock()
		reloaded <- c.reload(ctx)
	}()
	pipe, err := os.OpenFile(known, os.O_WRONLY, 0) // returns once it is being read
	if err != nil {
		t.Fatal(err)
	}
	if got := len(c.Memory().Current(MillisOf(c.now()))); got != 2 || c.Memory() != memory {
		t.Errorf("meanwhile there are %d facts", got)
	}
	if err := c.Record(writtenOf(c, "src/billing.js")); err != nil {
		t.Error(err)
	}
	if _, err := pipe.Write(content); err != nil {
		t.Error(err)
	}
	if err := errors.Join(pipe.Close(), <-reloaded); err != nil {
		t.Error(err)
	}
	if got := len(c.Memory().Current(MillisOf(c.now()))); got != 2 || c.Memory() == memory || c.Memory().Version() <= memory.Version() {
		t.Errorf("afterwards there are %d facts, at version %d after %d", got, c.Memory().Version(), memory.Version())
	}
	if n := len(c.Writes("src/billing.js")); n != 1 {
		t.Errorf("%d of 1 events recorded meanwhile", n)
	}
}

func (s *stage) sync(c *Clone) *SyncReport {
	s.t.Helper()
	report, err := c.Sync(context.Background(), SyncOptions{Fetch: true, Push: true, Audit: true, Heal: true})
	if err != nil {
		s.t.Fatal(err)
	}
	if len(report.Problems) > 0 {
		s.t.Fatalf("refused: %v", report.Problems)
	}
	return report
}

// team makes a host and two clones of it, both set up, of one device.
func (s *stage) team() (host string, a, b *Clone) {
	s.t.Helper()
	s.git(".", "init", "-q", "--bare", "host.git")
	first := s.repository("a")
	s.git("a", "remote", "add", "origin", filepath.Join(s.dir, "host.git"))
	s.git("a", "push", "-q", "-u", "origin", "main")
	if report := s.init(first); !report.OnHost {
		s.t.Fatalf("the team is not on the host: %+v", report)
	}
	s.git("a", "add", ".knoot.toml")
	s.git("a", "commit", "-q", "-m", "knoot")
	s.git("a", "push", "-q")
	s.git(".", "clone", "-q", "host.git", "b")
	second := s.find("b")
	if report := s.init(second); report.Started {
		s.t.Fatalf("the second clone started a team: %+v", report)
	}
	return filepath.Join(s.dir, "host.git"), s.open(first, true), s.open(second, true)
}

func TestAFactReachesAnotherClone(t *testing.T) {
	ctx := context.Background()
	s := newStage(t)
	_, a, b := s.team()
	fact := factOf(a, "money", "all money is integer cents")
	if err := a.Append(ctx, fact); err != nil {
		t.Fatal(err)
	}
	event := writtenOf(a, "src/billing.js")
	if err := a.Record(event); err != nil {
		t.Fatal(err)
	}
	if err := a.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if n := s.sync(a).PushedSegments; n != 2 {
		t.Errorf("pushed %d segments", n)
	}
	if n := s.sync(b).FetchedSegments; n != 2 {
		t.Errorf("fetched %d segments", n)
	}
	if b.entries[fact.ID()] == nil || len(b.Writes("src/billing.js")) != 1 {
		t.Error("the other clone lacks the fact or the event")
	}
	// What was read from the host is named in the next own segment.
	if err := b.Append(ctx, factOf(b, "tax", "rounded once")); err != nil {
		t.Fatal(err)
	}
	if len(b.seen) != 2 {
		t.Errorf("the own segment names %d tips", len(b.seen))
	}
	if r := s.sync(b); r.PushedSegments != 1 || r.FetchedSegments != 0 {
		t.Errorf("the second sync of the other clone: %+v", r)
	}
	if r := s.sync(a); r.PushedSegments != 0 || r.FetchedSegments != 1 {
		t.Errorf("the second sync of the first clone: %+v", r)
	}
	if r := s.sync(a); r.PushedSegments != 0 || r.FetchedSegments != 0 {
		t.Errorf("a sync with nothing to do: %+v", r)
	}
}

func TestAHostThatLostRefsGetsThemBack(t *testing.T) {
	ctx := context.Background()
	s := newStage(t)
	_, a, b := s.team()
	fact := factOf(a, "money", "all money is integer cents")
	if err := a.Append(ctx, fact); err != nil {
		t.Fatal(err)
	}
	s.sync(a)
	s.sync(b)
	before := s.git("host.git", "for-each-ref", "refs/knoot")
	// Somebody mirrors a repository without knoot onto the host.
	s.git(".", "clone", "-q", "host.git", "other")
	s.git("other", "push", "-q", "--mirror", "origin")
	if got := s.git("host.git", "for-each-ref", "refs/knoot"); got != "" {
		t.Fatalf("the mirror left %s", got)
	}
	s.git("host.git", "update-ref", "refs/heads/main", s.git("a", "rev-parse", "HEAD")[:40])
	s.sync(b) // the other clone alone, as if the writer had left
	if got := s.git("host.git", "for-each-ref", "refs/knoot"); got != before {
		t.Errorf("the host has\n%s, before it had\n%s", got, before)
	}
	s.sync(a)
	if n := len(a.entries); n != 1 {
		t.Errorf("%d entries", n)
	}
}

func TestACloneThatLostItsOwnLogGetsItBack(t *testing.T) {
	ctx := context.Background()
	s := newStage(t)
	_, a, _ := s.team()
	fact := factOf(a, "money", "all money is integer cents")
	if err := a.Append(ctx, fact); err != nil {
		t.Fatal(err)
	}
	s.sync(a)
	s.git("a", "update-ref", "-d", ownRefs+"memory/"+a.Writer().String()+"/1")
	if err := a.Refresh(ctx); err != nil {
		t.Fatal(err)
	}
	if len(a.entries) != 0 {
		t.Error("what the ref held is still there")
	}
	s.sync(a)
	if a.entries[fact.ID()] == nil {
		t.Error("the fact did not come back")
	}
	if err := a.Append(ctx, factOf(a, "tax", "rounded once")); err != nil {
		t.Errorf("after it came back: %v", err)
	}
}

func TestACopiedCloneBecomesAnotherWriter(t *testing.T) {
	ctx := context.Background()
	s := newStage(t)
	_, a, _ := s.team()
	if err := a.Append(ctx, factOf(a, "money", "all money is integer cents")); err != nil {
		t.Fatal(err)
	}
	if err := a.Record(writtenOf(a, "src/billing.js")); err != nil {
		t.Fatal(err)
	}
	s.sync(a)
	if out, err := exec.Command("cp", "-r", filepath.Join(s.dir, "a"), filepath.Join(s.dir, "copy")).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v %s", err, out)
	}
	repo := s.find("copy")
	copied := s.open(repo, true)
	if copied.Writer() == a.Writer() {
		t.Fatal("the copy writes as the same writer")
	}
	if err := copied.Append(ctx, factOf(copied, "tax", "rounded once")); err != nil {
		t.Fatal(err)
	}
	if err := a.Append(ctx, factOf(a, "vat", "half-even")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*Clone{a, copied} {
		if err := c.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		s.sync(c)
	}
	s.sync(a)
	if len(a.entries) != 4 || len(copied.entries) != 4 {
		t.Errorf("%d and %d entries, want three facts and one event in both", len(a.entries), len(copied.entries))
	}
}

func TestARestoredCloneGoesOnAsAnotherWriter(t *testing.T) {
	ctx := context.Background()
	s := newStage(t)
	_, a, b := s.team()
	if err := a.Append(ctx, factOf(a, "one", "first")); err != nil {
		t.Fatal(err)
	}
	ref := ownRefs + "memory/" + a.Writer().String() + "/1"
	backup := s.git("a", "rev-parse", ref)[:40]
	if err := a.Append(ctx, factOf(a, "two", "second")); err != nil {
		t.Fatal(err)
	}
	s.sync(a)
	// The repository comes back from a backup of the state before, and a fact is written there.
	s.git("a", "update-ref", ref, backup)
	if err := a.Refresh(ctx); err != nil {
		t.Fatal(err)
	}
	three := factOf(a, "three", "third")
	if err := a.Append(ctx, three); err != nil {
		t.Fatal(err)
	}
	writer := a.Writer()
	s.sync(a)
	if a.Writer() == writer {
		t.Error("two histories of one writer go on")
	}
	four := factOf(a, "four", "fourth")
	if err := a.Append(ctx, four); err != nil {
		t.Fatal(err)
	}
	s.sync(a)
	s.sync(b)
	for _, c := range []*Clone{a, b} {
		if len(c.entries) != 4 || c.entries[three.ID()] == nil || c.entries[four.ID()] == nil {
			t.Errorf("%s has %d entries of four", c.Repo.Root, len(c.entries))
		}
	}
	// The host loses the log that parted, and gets back what it had.
	hosted := s.git("host.git", "rev-parse", ref)
	s.git("host.git", "update-ref", "-d", ref)
	s.sync(a)
	if got := s.git("host.git", "rev-parse", ref); got != hosted {
		t.Errorf("the host has the log at %s, and had it at %s", got, hosted)
	}
}

func TestACommitCannotRedirectAClone(t *testing.T) {
	ctx := context.Background()
	s := newStage(t)
	_, a, _ := s.team()
	if err := a.Append(ctx, factOf(a, "money", "all money is integer cents")); err != nil {
		t.Fatal(err)
	}
	team := a.Settings().Team
	other := &Settings{Team: TeamID{1}, Repository: RepositoryID{2}}
	write(t, filepath.Join(s.dir, "a", SettingsFile), string(other.Text()))
	s.git("a", "commit", "-q", "-am", "Join them")
	s.git("a", "push", "-q")
	r := s.open(a.Repo, false)
	if r.Settings().Team != team || len(r.Memory().Current(Now())) != 1 {
		t.Error("what the clone knew is not read any more")
	}
	changes, err := r.PinChanges(ctx)
	if err != nil || len(changes) != 2 || changes[0].Old != team.String() || changes[0].New != other.Team.String() {
		t.Errorf("changes: %v, %v", changes, err)
	}
	var pinned *ErrPinned
	if _, err := Init(ctx, a.Repo, s.home, InitOptions{}); err == nil {
		t.Error("init adopts what a commit wrote")
	}
	a.Close()
	b := s.open(a.Repo, true)
	if _, err := b.Sync(ctx, SyncOptions{Fetch: true}); !errors.As(err, &pinned) {
		t.Errorf("sync: %v", err)
	}
	if _, err := b.Trust(ctx); err != nil {
		t.Fatal(err)
	}
	if changes, err := b.PinChanges(ctx); err != nil || len(changes) != 0 {
		t.Errorf("after trust: %v, %v", changes, err)
	}
}

func TestARenamedRemoteIsMendedAtTheNextSync(t *testing.T) {
	s := newStage(t)
	_, a, _ := s.team()
	s.git("a", "remote", "rename", "origin", "work")
	a.Close()
	b := s.open(a.Repo, true)
	s.sync(b)
	got := s.git("a", "config", "--get-all", "remote.work.fetch")
	for _, line := range b.remote.fetchLines() {
		if !strings.Contains(got, line) {
			t.Errorf("the fetch lines are %s, without %s", got, line)
		}
	}
	s.git("a", "config", "--unset-all", "remote.work.fetch", "refs/knoot")
	s.sync(b)
	if got := s.git("a", "config", "--get-all", "remote.work.fetch"); strings.Contains(got, "knoot") {
		t.Errorf("lines that the person took out came back: %s", got)
	}
}

// Whoever can push goes on with the log of somebody who writes: of what they put there nothing is taken over, and that writer goes
// on as another, with nothing lost.
func TestJunkOnOnesOwnLog(t *testing.T) {
	ctx := context.Background()
	forged := func(f *forger, bob *hand) {
		h, tip := f.next(bob.memoryRef())
		files := f.seal(h, bob.device, bob.Roster().Rooms[bob.General()].Current())
		file := files[bob.General().String()]
		file[len(file)-1] ^= 1
		f.write(bob.memoryRef(), tip, files)
	}
	merged := func(f *forger, bob *hand) {
		chain := f.at(bob.memoryRef())
		tip := chain[len(chain)-1]
		f.move(bob.memoryRef(), Hash(bob.crew.git("host.git", "commit-tree", "-m", "junk", "-p", string(tip.ID), "-p", string(chain[0].ID), string(tip.Tree))[:len(tip.ID)]))
	}
	waits := func(bob *hand) { bob.remember("waits", "not pushed yet", "src/billing.js") }
	lost := func(bob *hand) { bob.crew.git("bob", "update-ref", "-d", bob.memoryRef()) }
	for _, c2 := range []struct {
		what   string
		junk   func(f *forger, bob *hand)
		before func(bob *hand) // what happens to bob's clone before it fetches
		want   []string        // of bob
	}{
		{"forged", forged, nil, []string{"four", "one", "three", "two"}},
		{"forged, and something waits", forged, waits, []string{"four", "one", "three", "two", "waits"}},
		{"forged, and the log was lost here", forged, lost, []string{"four", "one", "three", "two"}},
		{"a merge", merged, nil, []string{"four", "one", "three", "two"}},
		{"a merge, and something waits", merged, waits, []string{"four", "one", "three", "two", "waits"}},
		{"a merge, and the log was lost here", merged, lost, []string{"four", "three"}}, // what is behind a merge nobody takes
	} {
		t.Run(c2.what, func(t *testing.T) {
			c, ann, others := newCrew(t, "bob")
			bob := others[0]
			bob.remember("one", "what one is about", "src/billing.js")
			bob.remember("two", "what two is about", "src/billing.js")
			bob.push()
			ann.pull()
			ann.remember("three", "fetched beside the junk", "src/billing.js")
			ann.push()
			if c2.before != nil {
				c2.before(bob)
			}
			old := bob.memoryRef()
			f := &forger{t: t, repo: c.find("host.git")}
			var err error
			f.objects, err = openObjects(ctx, f.repo, true)
			f.must(err)
			defer f.objects.close()
			good := f.at(old)[1].ID
			c2.junk(f, bob)
			tip, err := openRefs(f.repo).read(ctx, old)
			f.must(err)

			report := bob.pull()
			if kept := keptRefs + strings.TrimPrefix(old, ownRefs); len(report.Problems) != 1 || report.Problems[0].Ref != kept {
				t.Errorf("bob is told %+v", report.Problems)
			}
			if at, err := openRefs(bob.Repo).read(ctx, old); err != nil || at == tip {
				t.Errorf("bob's log is at %s, which is the junk: %v", at, err)
			}
			bob.remember("four", "bob goes on", "src/billing.js")
			bob.push()
			if report := bob.pull(); len(report.Problems) > 0 {
				t.Errorf("bob is told again: %+v", report.Problems)
			}
			bob.wantFacts(c2.want...)
			ann.pull()
			for _, name := range append(c2.want, "one", "two") {
				if !slices.Contains(ann.facts(), name) {
					t.Errorf("ann lacks %s", name)
				}
			}
			if err := bob.Close(); err != nil {
				t.Fatal(err)
			}
			bob = c.hand("bob", bob.home)
			bob.wantFacts(c2.want...)

			// Somebody takes the junk off the host: the log comes back to it as it was.
			f.move(old, "")
			bob.sync(SyncOptions{Fetch: true, Push: true, Audit: true, Heal: true})
			ann.sync(SyncOptions{Fetch: true, Push: true, Audit: true, Heal: true})
			if chain := f.at(old); len(chain) < 2 || chain[1].ID != good {
				t.Errorf("the host has %d of the log's segments back", len(chain))
			}
			bob.pull()
			all := slices.Concat(c2.want, []string{"one", "two"})
			slices.Sort(all)
			bob.wantFacts(slices.Compact(all)...)
		})
	}
}
