package gitlog

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// worktree is a real git repository for tests of what memory sees in one.
type worktree struct {
	testing.TB
	dir  string
	tree *Tree
}

func newWorktree(t testing.TB, initArgs ...string) *worktree {
	isolateGit(t)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &worktree{TB: t, dir: dir}
	w.git(append([]string{"init", "-q", "-b", "main"}, initArgs...)...)
	w.open()
	return w
}

// in returns the same repository seen from another of its worktrees, or another clone.
func (w *worktree) in(dir string) *worktree {
	other := &worktree{TB: w.TB, dir: dir}
	other.open()
	return other
}

// open forgets all that was remembered.
func (w *worktree) open() {
	w.Helper()
	dirs := strings.Split(w.git("rev-parse", "--path-format=absolute", "--git-dir", "--git-common-dir", "--show-object-format", "--is-bare-repository"), "\n")
	repo := &Repository{Root: w.dir, GitDir: dirs[0], CommonDir: dirs[1], ObjectFormat: dirs[2], Bare: dirs[3] == "true"}
	if repo.Bare {
		repo.Root = ""
	}
	w.tree = OpenTree(repo)
}

func (w *worktree) git(args ...string) string {
	w.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = w.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func (w *worktree) write(path, content string) {
	w.Helper()
	file := filepath.Join(w.dir, path)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		w.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		w.Fatal(err)
	}
}

func (w *worktree) commit(message string) string {
	w.Helper()
	w.git("add", "-A")
	w.git("commit", "-q", "--allow-empty", "-m", message)
	return w.git("rev-parse", "HEAD")
}

func (w *worktree) blob(path string) []byte {
	w.Helper()
	blob, err := w.tree.Blob(context.Background(), path)
	if err != nil {
		w.Fatal(err)
	}
	return blob
}

// lines numbers n lines; those named are another's.
func lines(n int, changed ...int) string {
	var b strings.Builder
	for i := 1; i <= n; i++ {
		if slices.Contains(changed, i) {
			fmt.Fprintf(&b, "line %d, changed\n", i)
		} else {
			fmt.Fprintf(&b, "line %d\n", i)
		}
	}
	return b.String()
}

var ours, theirs = WriterID{1}, WriterID{2}

// bystander is a clone that has heard of nothing.
func bystander() *Clone { return &Clone{writer: ours} }

// fact records a fact about paths as the tree is now; its writer is another clone than the one that judges.
func (w *worktree) fact(paths ...string) *Item {
	w.Helper()
	ref, head, err := w.tree.Head(context.Background())
	if err != nil {
		w.Fatal(err)
	}
	commit, _ := hex.DecodeString(head)
	f := &Fact{Name: "n", Text: "x", Branch: ref, Commit: commit, Depth: 1}
	for _, p := range paths {
		name, anchor, _ := strings.Cut(p, ":")
		fp := FactPath{Path: name, Glob: isPattern(name)}
		if !fp.Glob {
			fp.Blob = w.blob(name)
		}
		if anchor != "" {
			l := &LineAnchor{}
			fmt.Sscanf(anchor, "%d-%d", &l.First, &l.Last)
			content, err := w.tree.stored(context.Background(), name, fp.Blob)
			if err != nil {
				w.Fatal(err)
			}
			l.Digest, _ = linesDigest(content, l.First, l.Last)
			fp.Lines = l
		}
		f.Paths = append(f.Paths, fp)
	}
	slices.SortFunc(f.Paths, func(a, b FactPath) int { return strings.Compare(a.Path, b.Path) })
	e := &Entry{Kind: KindFact, Time: MillisOf(time.Now()), Author: DeviceID{2}, Fact: f}
	drawRandom(e.id[:])
	return &Item{Stored: &Stored{Entry: e, Writer: theirs}}
}

func (w *worktree) judge(item *Item) Verdict { return w.judgeWith(bystander(), item) }

func (w *worktree) judgeWith(c *Clone, item *Item) Verdict {
	w.Helper()
	v, err := w.tree.Judge(context.Background(), c, item, MillisOf(time.Now()))
	if err != nil {
		w.Fatal(err)
	}
	return v
}

func (w *worktree) want(v Verdict, stale bool, reason string) {
	w.Helper()
	if v.Stale != stale || v.Reason != reason {
		w.Errorf("stale %v, %q\nwant  %v, %q", v.Stale, v.Reason, stale, reason)
	}
}

// objects lists every object of the repository, to see that nothing was added.
func (w *worktree) objects() string {
	return w.git("cat-file", "--batch-all-objects", "--batch-check")
}

func TestStaleNamesTheCommitThatChangedIt(t *testing.T) {
	w := newWorktree(t)
	w.write("src/billing.js", lines(210))
	w.commit("one")
	item := w.fact("src/billing.js")
	w.want(w.judge(item), false, "")

	w.write("src/billing.js", lines(210, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31))
	before := w.objects()
	w.want(w.judge(item), true, "src/billing.js changed here, not committed, 31 of 210 lines")
	if w.objects() != before {
		t.Error("judging stored objects in the repository")
	}
	commit := w.commit("two")
	w.write("other", "x")
	w.commit("three") // by the same author, but not about this file
	w.want(w.judge(item), true, "Ash changed src/billing.js just now (commit "+commit[:7]+"), 31 of 210 lines")

	w.write("src/billing.js", lines(210, 1))
	w.want(w.judge(item), true, "Ash changed src/billing.js just now (commit "+commit[:7]+"), and it changed here since, not committed, 1 of 210 lines")

	w.write("src/billing.js", lines(210))
	w.want(w.judge(item), false, "")
}

func TestStaleInARepositoryWithoutCommits(t *testing.T) {
	w := newWorktree(t)
	w.write("a", "1\n")
	item := w.fact("a")
	w.want(w.judge(item), false, "")
	w.write("a", "2\n")
	w.want(w.judge(item), true, "a changed here, not committed")
	os.Remove(w.dir + "/a")
	w.want(w.judge(item), false, "a is gone")
}

func TestStaleNamesWhoWroteWhatIsThere(t *testing.T) {
	s := newStage(t)
	repo := s.repository("app")
	s.init(repo)
	c := s.open(repo, true)
	w := (&worktree{TB: t}).in(repo.Root)
	w.write("a", "1\n2\n")
	w.commit("one")
	item := w.fact("a")
	w.write("a", "1\n3\n")
	record := func(person bool, blob []byte, at Millis) {
		t.Helper()
		e := c.NewEntry(FileWritten)
		e.Time = at
		e.Event = &Event{Agent: "claude", Session: "s", Person: person, Paths: []EventPath{{"a", blob}}}
		if err := c.Record(e); err != nil {
			t.Fatal(err)
		}
	}
	record(true, w.blob("a"), item.Time-1) // before the fact
	record(false, w.blob("a"), item.Time+1)
	record(true, bytes.Repeat([]byte{9}, 20), item.Time+2) // not what is there
	w.want(w.judgeWith(c, item), true, "Priya's agent changed a just now, 1 of 2 lines")
	record(true, w.blob("a"), item.Time+3)
	w.want(w.judgeWith(c, item), true, "Priya changed a just now, 1 of 2 lines")

	if err := os.Remove(w.dir + "/a"); err != nil {
		t.Fatal(err)
	}
	e := c.NewEntry(PathRemoved)
	e.Time = item.Time + 4
	e.Event = &Event{Agent: "claude", Session: "s", Paths: []EventPath{{Path: "a"}}}
	if err := c.Record(e); err != nil {
		t.Fatal(err)
	}
	w.want(w.judgeWith(c, item), false, "a is gone: Priya's agent removed it just now")
}

func TestARenameCarriesTheFactAlong(t *testing.T) {
	w := newWorktree(t)
	w.write("src/a.js", lines(40))
	w.write("src/b.js", "something else\n")
	w.commit("one")
	item := w.fact("src/a.js")
	rename := func(to string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(w.dir+"/"+to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(w.dir+"/src/a.js", w.dir+"/"+to); err != nil {
			t.Fatal(err)
		}
	}
	wantAt := func(v Verdict, stale bool, reason, path string) {
		t.Helper()
		w.want(v, stale, reason)
		if !slices.Equal(v.Paths, []string{path}) || v.Gone {
			t.Errorf("paths %q, gone %v, want %s", v.Paths, v.Gone, path)
		}
	}
	// Moved without telling git, edited too.
	before := w.objects()
	rename("lib/z.js")
	wantAt(w.judge(item), false, "", "lib/z.js")
	w.write("lib/z.js", lines(40, 7))
	wantAt(w.judge(item), true, "lib/z.js (was src/a.js) changed here, not committed, 1 of 40 lines", "lib/z.js")
	if w.objects() != before {
		t.Error("judging stored objects in the repository")
	}
	w.write("lib/z.js", lines(40))
	// Staged, then committed, then changed by a commit, then moved again.
	w.git("add", "-A")
	wantAt(w.judge(item), false, "", "lib/z.js")
	w.commit("two")
	wantAt(w.judge(item), false, "", "lib/z.js")
	w.write("lib/z.js", lines(40, 7, 8))
	commit := w.commit("three")
	wantAt(w.judge(item), true, "Ash changed lib/z.js (was src/a.js) just now (commit "+commit[:7]+"), 2 of 40 lines", "lib/z.js")
	w.git("mv", "lib/z.js", "last.js")
	w.write("last.js", lines(40))
	wantAt(w.judge(item), false, "", "last.js")
	// So much changed on the way that only the commit of the move tells.
	w.commit("four")
	w.write("last.js", strings.Repeat("new\n", 100))
	commit = w.commit("five")
	wantAt(w.judge(item), true, "Ash changed last.js (was src/a.js) just now (commit "+commit[:7]+"), 100 of 100 lines", "last.js")
}

func TestGonePaths(t *testing.T) {
	w := newWorktree(t)
	w.write("a", "1\n")
	w.write("b", "2\n")
	w.write("dir/c", "3\n")
	w.commit("one")
	item, dir, glob, both := w.fact("a"), w.fact("dir"), w.fact("dir/*"), w.fact("a", "b")
	w.want(w.judge(dir), false, "")
	w.want(w.judge(glob), false, "")
	w.write("dir/c", "changed\n")
	w.write("dir/d", "new\n")
	w.want(w.judge(dir), false, "")
	w.want(w.judge(glob), false, "")

	os.Remove(w.dir + "/a")
	os.RemoveAll(w.dir + "/dir")
	w.want(w.judge(item), false, "a is gone: removed here, not committed")
	w.want(w.judge(dir), false, "dir is gone: removed here, not committed")
	w.want(w.judge(glob), false, "dir/* is gone")
	if v := w.judge(item); !v.Gone || !slices.Equal(v.Paths, []string{"a"}) {
		t.Errorf("%+v", v)
	}
	if v := w.judge(both); v.Gone {
		t.Errorf("b is there: %+v", v)
	}
	commit := w.commit("two")
	w.want(w.judge(item), false, "a is gone: Ash removed it just now (commit "+commit[:7]+")")
	w.write("a", "1\n")
	w.write("dir/e", "1\n")
	w.want(w.judge(item), false, "")
	w.want(w.judge(dir), false, "")
	w.want(w.judge(glob), false, "")
}

func TestLineAnchors(t *testing.T) {
	w := newWorktree(t)
	w.write("a", lines(60))
	w.commit("one")
	item := w.fact("a:20-40")
	w.want(w.judge(item), false, "")
	w.write("a", lines(60, 1, 2, 19, 41, 60))
	w.want(w.judge(item), false, "")
	w.write("a", "new\nnew\n"+lines(60))
	w.want(w.judge(item), false, "")
	w.write("a", strings.TrimSuffix(lines(40), "\n")) // the last line without its end
	w.want(w.judge(item), false, "")
	w.write("a", lines(60, 30))
	w.want(w.judge(item), true, "lines 20-40 of a changed here, not committed")
	commit := w.commit("two")
	w.want(w.judge(item), true, "Ash changed lines 20-40 of a just now (commit "+commit[:7]+")")
	w.write("a", lines(19))
	w.want(w.judge(item), true, "Ash changed lines 20-40 of a just now (commit "+commit[:7]+"), and it changed here since, not committed")
	w.write("a", lines(60))
	w.want(w.judge(item), false, "")
}

func TestFiltersAreAppliedAsGitWould(t *testing.T) {
	w := newWorktree(t)
	w.git("config", "filter.upper.clean", "tr a-z A-Z")
	w.git("config", "filter.upper.smudge", "tr A-Z a-z")
	w.write(".gitattributes", "*.up filter=upper\n*.txt text eol=lf\n")
	w.write("a.up", "hello\n")
	w.write("b.txt", "one\r\ntwo\r\nthree\r\n")
	w.commit("one")
	for _, path := range []string{"a.up", "b.txt"} {
		if want := w.git("rev-parse", "HEAD:"+path); hex.EncodeToString(w.blob(path)) != want {
			t.Errorf("%s: %x, git says %s", path, w.blob(path), want)
		}
	}
	item := w.fact("a.up", "b.txt:2-3")
	w.write("b.txt", "two\nthree\n")
	w.want(w.judge(item), false, "")
	w.write("a.up", "HELLO\n")
	w.want(w.judge(item), false, "")
	w.write("b.txt", "zero\r\ntwo\r\nthree\r\n")
	before := w.objects()
	w.want(w.judge(item), false, "")
	w.write("a.up", "hallo\n")
	w.want(w.judge(item), true, "a.up changed here, not committed, 1 of 1 line")
	if w.objects() != before {
		t.Error("judging stored objects in the repository")
	}

	// autocrlf comes from the configuration alone, and a change of it is seen.
	w.write("c", "x\r\n")
	raw := w.blob("c")
	w.git("config", "core.autocrlf", "input")
	if cooked := w.blob("c"); bytes.Equal(raw, cooked) || hex.EncodeToString(cooked) != w.git("hash-object", "c") {
		t.Error("core.autocrlf was not seen")
	}
	// A filter that is needed and missing: nothing can be said, so nothing is.
	w.git("config", "filter.lfs.required", "true")
	w.git("config", "filter.lfs.clean", "no-such-program")
	w.write("d.bin", "1\n")
	w.commit("two")
	item = w.fact("d.bin", "c")
	w.write(".gitattributes", "*.bin filter=lfs\n")
	w.write("d.bin", "2\n")
	w.want(w.judge(item), false, "")
}

func TestAnOlderTreeIsNotStale(t *testing.T) {
	w := newWorktree(t)
	w.write("a", "1\n")
	w.write("b", "1\n")
	first := w.commit("one")
	w.git("switch", "-q", "-c", "feature")
	w.write("a", "2\n")
	w.write("new", "1\n")
	second := w.commit("two")
	item, added := w.fact("a"), w.fact("new")
	w.git("switch", "-q", "main")
	w.want(w.judge(item), false, "written against a newer version than yours (feature, commit "+second[:7]+")")
	w.want(w.judge(added), false, "written against a newer version than yours (feature, commit "+second[:7]+")")

	// The same content came by another commit: what follows it is a change.
	w.write("a", "2\n")
	w.commit("squashed")
	w.want(w.judge(item), false, "")
	w.write("a", "3\n")
	last := w.commit("three")
	w.want(w.judge(item), true, "Ash changed a just now (commit "+last[:7]+"), 1 of 1 line")

	// A commit that is not here at all.
	unknown := w.fact("b")
	unknown.Fact.Commit = bytes.Repeat([]byte{7}, 20)
	unknown.Fact.Paths[0].Blob = bytes.Repeat([]byte{8}, 20)
	w.want(w.judge(unknown), false, "written against a newer version than yours (main, commit 0707070)")

	// Written against changes that were not committed, seen in a tree that does not have them.
	w.write("b", "dirty\n")
	w.write("c", "new and dirty\n")
	dirty, dirtyNew := w.fact("b"), w.fact("c")
	w.git("worktree", "add", "-q", "--detach", w.dir+"/../other")
	other := w.in(w.dir + "/../other")
	other.want(other.judge(dirty), false, "written against a newer version than yours (not committed then; main, commit "+last[:7]+")")
	other.want(other.judge(dirtyNew), false, "written against a newer version than yours (not committed then; main, commit "+last[:7]+")")
	w.want(w.judge(dirty), false, "")
	w.want(w.judge(dirtyNew), false, "")
	// In the very tree where it was written, taking the changes back is a change.
	dirty.Writer, dirtyNew.Writer = ours, ours
	w.git("checkout", "-q", "b")
	os.Remove(w.dir + "/c")
	w.want(w.judge(dirty), true, "b changed here, not committed")
	w.want(w.judge(dirtyNew), false, "c is gone")

	// Detached, on the first commit.
	w.git("switch", "-q", "--detach", first)
	w.want(w.judge(item), false, "written against a newer version than yours (feature, commit "+second[:7]+")")
}

func TestShallowPartialSparseAndBare(t *testing.T) {
	w := newWorktree(t)
	w.git("config", "uploadpack.allowFilter", "true")
	w.write("a", lines(20))
	w.write("dir/b", "1\n")
	w.commit("one")
	item, dir, gone := w.fact("a"), w.fact("dir"), w.fact("dir/b")
	w.write("a", lines(20, 3))
	os.Remove(w.dir + "/dir/b")
	w.write("c", "x")
	// The fact's commit is cut off; HEAD is younger than the fact.
	os.Setenv("GIT_COMMITTER_DATE", fmt.Sprint(time.Now().Unix()+5, " +0000"))
	last := w.commit("two")
	os.Unsetenv("GIT_COMMITTER_DATE")

	w.git("clone", "-q", "--depth=1", "file://"+w.dir, w.dir+"/../shallow")
	shallow := w.in(w.dir + "/../shallow")
	shallow.want(shallow.judge(item), true, "Ash changed a just now (commit "+last[:7]+")")
	shallow.want(shallow.judge(dir), false, "dir is gone")

	w.git("clone", "-q", "--filter=blob:none", "file://"+w.dir, w.dir+"/../partial")
	partial := w.in(w.dir + "/../partial")
	w.git("config", "uploadpack.allowAnySHA1InWant", "true") // it could be fetched, and is not
	partial.want(partial.judge(item), true, "Ash changed a just now (commit "+last[:7]+")")
	partial.want(partial.judge(gone), false, "dir/b is gone: Ash removed it just now (commit "+last[:7]+")")

	w.git("clone", "-q", "--bare", "file://"+w.dir, w.dir+"/../bare")
	bare := w.in(w.dir + "/../bare")
	bare.want(bare.judge(item), true, "Ash changed a just now (commit "+last[:7]+"), 1 of 20 lines")
	bare.want(bare.judge(dir), false, "dir is gone: Ash removed it just now (commit "+last[:7]+")")
	bare.want(bare.judge(w.fact("*")), false, "")

	w.write("dir/b", "1\n")
	w.commit("three")
	w.git("sparse-checkout", "set", "--no-cone", "/a")
	if _, err := os.Stat(w.dir + "/dir/b"); err == nil {
		t.Fatal("dir/b is there")
	}
	w.want(w.judge(gone), false, "")
	w.want(w.judge(dir), false, "")
}

func TestSHA256AndLinkedWorktrees(t *testing.T) {
	w := newWorktree(t, "--object-format=sha256")
	w.write("a", "1\n2\n")
	w.commit("one")
	item := w.fact("a")
	w.git("worktree", "add", "-q", "-b", "side", w.dir+"/../linked")
	linked := w.in(w.dir + "/../linked")
	linked.want(linked.judge(item), false, "")
	linked.write("a", "1\n3\n")
	linked.want(linked.judge(item), true, "a changed here, not committed, 1 of 2 lines")
	w.want(w.judge(item), false, "")
	commit := linked.commit("two")
	linked.want(linked.judge(item), true, "Ash changed a just now (commit "+commit[:7]+"), 1 of 2 lines")
	w.want(w.judge(item), false, "")
}

func TestOtherSpellings(t *testing.T) {
	w := newWorktree(t)
	w.write("Makefile", "1\n")
	w.write("e\u0301.txt", "1\n") // decomposed, as the index of an old Mac has it
	w.commit("one")
	item, accent := w.fact("Makefile"), w.fact("\u00e9.txt")
	if accent.Fact.Paths[0].Blob == nil {
		t.Error("a path in NFC does not find its file in NFD")
	}
	if err := os.Rename(w.dir+"/Makefile", w.dir+"/makefile"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(w.dir + "/Makefile"); err == nil {
		t.Skip("the file system folds case itself")
	}
	w.git("config", "core.ignorecase", "true")
	w.open()
	w.want(w.judge(item), false, "")
	w.write("makefile", "2\n")
	w.want(w.judge(item), true, "Makefile changed here, not committed, 1 of 1 line")
	w.git("config", "core.ignorecase", "false")
	w.open()
	w.write("makefile", "1\n")
	if v := w.judge(item); !slices.Equal(v.Paths, []string{"makefile"}) || !v.Fresh() {
		t.Errorf("renamed: %+v", v)
	}
}

func TestStrangeNames(t *testing.T) {
	w := newWorktree(t)
	names := []string{"a\nb", `"quoted"`, "-x", "*", "app/[id]/page.tsx", "\xff\xfe", "tab\there", ":(top)x"}
	for _, name := range names {
		w.write(name, "1\n")
	}
	w.commit("one")
	for _, name := range names {
		blob := w.blob(name)
		if hex.EncodeToString(blob) != "d00491fd7e5bb6fa28c517a0bb32b8b506539d4d" {
			t.Errorf("%q: %x", name, blob)
		}
	}
	item := w.fact("a\nb")
	w.write("a\nb", "2\n")
	w.want(w.judge(item), true, `a\nb changed here, not committed, 1 of 1 line`)
}

func TestJudgedGoesByStats(t *testing.T) {
	w := newWorktree(t)
	w.write("a", "1\n")
	w.write("b", "1\n")
	w.commit("one")
	past := time.Now().Add(-time.Hour)
	age := func(path string) {
		if err := os.Chtimes(w.dir+"/"+path, past, past); err != nil {
			t.Fatal(err)
		}
	}
	settle := func(paths ...string) {
		// What changed in this tick of the file system's clock is never trusted; look until the tick is over.
		deadline := time.Now().Add(5 * time.Second)
		for _, path := range paths {
			for !stampOf(w.dir+"/"+path).settled(time.Now()) && time.Now().Before(deadline) {
			}
		}
	}
	age("a")
	settle("a")
	item := w.fact("a")
	if _, ok := w.tree.Judged(item, 0); ok {
		t.Error("judged before Judge")
	}
	w.judge(item)
	calls := 0
	w.tree.mu.Lock()
	for range w.tree.verdicts {
		calls++
	}
	w.tree.mu.Unlock()
	if v, ok := w.tree.Judged(item, 0); !ok || !v.Fresh() || calls != 1 {
		t.Errorf("not judged: %v %v", v, ok)
	}
	// A commit elsewhere leaves a fresh verdict alone.
	w.write("b", "2\n")
	w.commit("two")
	if _, ok := w.tree.Judged(item, 0); !ok {
		t.Error("a commit on another file ended a fresh verdict")
	}
	// The same size and time of modification: ctime tells.
	w.write("a", "2\n")
	age("a")
	if _, ok := w.tree.Judged(item, 0); ok {
		t.Error("a change within the same mtime went unseen")
	}
	settle("a")
	w.want(w.judge(item), true, "a changed here, not committed, 1 of 1 line")
	now := MillisOf(time.Now())
	if v, ok := w.tree.Judged(item, now); !ok || !v.Stale {
		t.Errorf("stale verdict is not at hand: %v %v", v, ok)
	}
	w.write("a", "22\n") // another size, since git's own index goes by whole seconds
	w.judge(item)
	commit := w.commit("three") // moves HEAD
	if _, ok := w.tree.Judged(item, now); ok {
		t.Error("a stale verdict outlived HEAD's move")
	}
	settle("a", ".git/refs/heads/main") // both of them were written just now
	w.judge(item)
	if v, ok := w.tree.Judged(item, now+2*60*60*1000+60_000); !ok || v.Reason != "Ash changed a 2 hours ago (commit "+commit[:7]+"), 1 of 1 line" {
		t.Errorf("two hours later: %v %q", ok, v.Reason)
	}
}

func TestAFreshStampIsNotTrusted(t *testing.T) {
	w := newWorktree(t)
	w.write("a", "1\n")
	item := w.fact("a")
	// Written again within the tick of its first look, same size: whatever the stamps say, this is seen.
	for i := range 50 {
		w.write("a", "1\n")
		w.judge(item)
		w.write("a", "2\n")
		if v, ok := w.tree.Judged(item, 0); ok && v.Fresh() {
			t.Fatalf("round %d: a write right after the look went unseen", i)
		}
	}
}

func TestHeadIsRead(t *testing.T) {
	w := newWorktree(t)
	check := func() {
		t.Helper()
		ref, head, err := w.tree.Head(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		wantRef, _ := exec.Command("git", "-C", w.dir, "symbolic-ref", "-q", "HEAD").Output()
		want, _ := exec.Command("git", "-C", w.dir, "rev-parse", "-q", "--verify", "HEAD").Output()
		if ref != strings.TrimSpace(string(wantRef)) || head != strings.TrimSpace(string(want)) {
			t.Errorf("%q %q, git says %q %q", ref, head, wantRef, want)
		}
	}
	check()
	w.commit("one")
	check()
	w.git("pack-refs", "--all")
	check()
	w.commit("two")
	check()
	w.git("switch", "-q", "-c", "a/b")
	w.git("pack-refs", "--all", "--prune")
	check()
	w.git("switch", "-q", "--detach")
	check()
	w.git("symbolic-ref", "refs/heads/alias", "refs/heads/main")
	w.git("symbolic-ref", "HEAD", "refs/heads/alias")
	_, head, err := w.tree.Head(context.Background())
	if err != nil || head != w.git("rev-parse", "HEAD") {
		t.Errorf("by way of another ref: %q, %v", head, err)
	}
}

// The shortest way from one version to another is as long as git's minimal diff.
func TestChangesAreCountedAsGitDoes(t *testing.T) {
	w := newWorktree(t)
	w.write("seed", "x")
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.Custom(func(rt *rapid.T) string {
			return strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a\n", "b\n", "c\n", "d\n", "\n"}), 1, 30).Draw(rt, "lines"), "")
		})
		before, after := text.Draw(rt, "before"), text.Draw(rt, "after")
		added, removed := countChanges(splitLines([]byte(before)), splitLines([]byte(after)))
		if !rapid.SampledFrom([]bool{true, false, false, false, false}).Draw(rt, "ask git") {
			if added-removed != strings.Count(after, "\n")-strings.Count(before, "\n") || added < 0 || removed < 0 {
				rt.Fatalf("%d added, %d removed", added, removed)
			}
			return // git takes its time
		}
		w.write("before", before)
		w.write("after", after)
		cmd := exec.Command("git", "diff", "--no-index", "--minimal", "--numstat", "before", "after")
		cmd.Dir = w.dir
		out, _ := cmd.Output()
		var wantAdded, wantRemoved int
		fmt.Sscan(string(out), &wantAdded, &wantRemoved)
		if added != wantAdded || removed != wantRemoved {
			rt.Fatalf("%d added, %d removed; git says %d, %d", added, removed, wantAdded, wantRemoved)
		}
	})
}

func TestAmount(t *testing.T) {
	huge := func(seed string) string {
		var b strings.Builder
		for i := range 10_000 {
			fmt.Fprintf(&b, "%s %d\n", seed, i)
		}
		return b.String()
	}
	for _, c := range []struct{ before, after, want string }{
		{"a\nb\n", "a\nb\n", "0 of 2 lines"}, {"a\n", "b\n", "1 of 1 line"}, {"", "a\nb\n", "2 of 2 lines"}, {"a\nb\nc\n", "", "3 of 3 lines"},
		{"a\nb\n", "a\nx\nb", "1 of 3 lines"}, {"a\x00", "b", ""}, {huge("x"), huge("y") + "x 1\n", "10000 of 10001 lines"},
	} {
		if got := amount([]byte(c.before), []byte(c.after)); got != c.want {
			t.Errorf("%.10q to %.10q: %q, want %q", c.before, c.after, got, c.want)
		}
	}
}

func TestAge(t *testing.T) {
	const second = 1000
	for ago, want := range map[Millis]string{
		0: "just now", 59 * second: "just now", 60 * second: "1 minute ago", 59 * 60 * second: "59 minutes ago",
		60 * 60 * second: "1 hour ago", 47 * 60 * 60 * second: "1 day ago", 3 * day: "3 days ago", 59 * day: "59 days ago", 90 * day: "3 months ago",
	} {
		if got := Age(noon-ago, noon); got != want {
			t.Errorf("%d: %q, want %q", ago, got, want)
		}
	}
	if Age(noon+1, noon) != "just now" {
		t.Error("the future is not just now")
	}
}

func TestMatchPattern(t *testing.T) {
	for _, c := range []struct {
		pattern, path string
		want          bool
	}{
		{"*.go", "a.go", true}, {"*.go", "dir/a.go", false}, {"**/*.go", "a.go", true}, {"**/*.go", "x/y/a.go", true},
		{"src/**", "src/a/b", true}, {"src/**", "src", false}, {"a/**/b", "a/b", true}, {"a/**/b", "a/x/y/b", true}, {"a/**/b", "a/x", false},
		{"[!a]", "b", true}, {"[!a]", "a", false}, {"a?c", "abc", true}, {"a?c", "a/c", false}, {"[", "[", false},
		{"**", "a/b", true}, {"a/**/**/b", "a/b", true}, {strings.Repeat("**/a/", 60) + "b", strings.Repeat("a/", 200) + "c", false},
	} {
		if got := matchPattern(c.pattern, c.path); got != c.want {
			t.Errorf("%s against %s: %v", c.pattern, c.path, got)
		}
	}
}

func TestTouches(t *testing.T) {
	for _, c := range []struct {
		p     FactPath
		other string
		fold  bool
		want  bool
	}{
		{FactPath{Path: "src/a"}, "src/a", false, true}, {FactPath{Path: "src/a"}, "src", false, true}, {FactPath{Path: "src"}, "src/a", false, true},
		{FactPath{Path: "src/a"}, "src/ab", false, false}, {FactPath{Path: "src/A"}, "src/a", false, false}, {FactPath{Path: "src/A"}, "src/a", true, true},
		{FactPath{Path: "src/*.js", Glob: true}, "src/a.js", false, true}, {FactPath{Path: "src/*.js", Glob: true}, "src", false, true},
		{FactPath{Path: "src/*.js", Glob: true}, "src/a.go", false, false}, {FactPath{Path: "src/*.js", Glob: true}, "", false, true},
		{FactPath{Path: ""}, "src/a", false, true},
	} {
		if got := c.p.Touches(c.other, c.fold); got != c.want {
			t.Errorf("%+v and %q: %v", c.p, c.other, got)
		}
	}
}

// Budget: 20 µs, since a hook asks for each fact about its files.
func BenchmarkJudged(b *testing.B) {
	w := newWorktree(b)
	w.write("src/deep/down/a.go", lines(100))
	w.commit("one")
	item := w.fact("src/deep/down/a.go")
	for !stampOf(w.dir + "/src/deep/down/a.go").settled(time.Now()) {
	}
	w.judge(item)
	for b.Loop() {
		if _, ok := w.tree.Judged(item, 0); !ok {
			b.Fatal("not judged")
		}
	}
}

func BenchmarkJudgedStale(b *testing.B) {
	w := newWorktree(b)
	w.write("src/deep/down/a.go", lines(100))
	w.commit("one")
	item := w.fact("src/deep/down/a.go")
	w.write("src/deep/down/a.go", lines(100, 1))
	w.commit("two")
	for !stampOf(w.dir + "/.git/refs/heads/main").settled(time.Now()) {
	}
	w.judge(item)
	for b.Loop() {
		if _, ok := w.tree.Judged(item, 0); !ok {
			b.Fatal("not judged")
		}
	}
}

func BenchmarkJudgeCold(b *testing.B) {
	w := newWorktree(b)
	w.write("src/a.go", lines(100))
	w.commit("one")
	item := w.fact("src/a.go")
	b.Run("fresh", func(b *testing.B) {
		for b.Loop() {
			w.open()
			w.judge(item)
		}
	})
	w.write("src/a.go", lines(100, 1))
	w.commit("two")
	b.Run("stale", func(b *testing.B) {
		for b.Loop() {
			w.open()
			w.judge(item)
		}
	})
}
