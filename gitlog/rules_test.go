package gitlog

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// rules opens the rules of a worktree; no process of theirs is left when the test ends.
func (w *worktree) rules() *Rules {
	r := OpenRules(w.tree.repo)
	w.Cleanup(r.Close)
	return r
}

// kinds are what git says in the end, however busy the machine is.
func (w *worktree) kinds(r *Rules, paths ...string) []FileKind {
	return r.KindsUntil(context.Background(), paths, PathSet{})
}

func (w *worktree) wantKind(r *Rules, path string, want FileKind) {
	w.Helper()
	if got := w.kinds(r, path)[0]; got != want {
		w.Errorf("%q is %v, want %v", path, got, want)
	}
}

func TestKindsOfFiles(t *testing.T) {
	w := newWorktree(t)
	w.write(".gitignore", "*.log\nbuild/\n!keep.log\n")
	w.write("sub/.gitignore", "*.tmp\n!keep.tmp\n")
	w.write(".gitattributes", "*.pb.go linguist-generated\ngen/** linguist-generated=true\nyarn.lock -linguist-generated\n")
	w.write("kept.log", "")
	w.write("build/x", "")
	w.git("add", "-f", "kept.log")
	w.git("init", "-q", "--separate-git-dir", filepath.Join(w.dir, "odd"), "nested")
	r := w.rules()
	for path, want := range map[string]FileKind{
		"a.go": FileOrdinary, "new/folder/a.go": FileOrdinary, "": FileOrdinary, "/etc/passwd": FileOrdinary, "../x": FileOrdinary,
		"a.log": FileIgnored, "sub/deep/b.log": FileIgnored, "keep.log": FileOrdinary, "kept.log": FileOrdinary,
		"build/x": FileIgnored, "build": FileIgnored, "builds": FileOrdinary,
		"sub/x.tmp": FileIgnored, "sub/keep.tmp": FileOrdinary, "x.tmp": FileOrdinary,
		"x.pb.go": FileNoted, "a/b/x.pb.go": FileNoted, "gen/a/b": FileNoted,
		"go.sum": FileNoted, "web/package-lock.json": FileNoted, "Cargo.lock": FileNoted, "my.lock": FileOrdinary,
		"yarn.lock": FileOrdinary, "web/yarn.lock": FileOrdinary,
		"a/__snapshots__/b/c.txt": FileNoted, "b.test.js.snap": FileNoted, "__snapshots__": FileOrdinary,
		".git/config": FileIgnored, "nested/.git/HEAD": FileIgnored, ".GIT/x": FileIgnored, ".github/x": FileOrdinary,
		":(top)a.log": FileIgnored, ":x": FileOrdinary, "*.go": FileOrdinary, "line\nbreak.log": FileIgnored, `"q.log`: FileIgnored,
	} {
		w.wantKind(r, path, want)
	}
	note, _ := NewPathSet([]string{"docs/**/*.md", "schema"})
	got := r.KindsUntil(context.Background(), []string{"docs/a.md", "docs/a/b.MD", "schema/x", "a.log", "y"}, note)
	if want := []FileKind{FileNoted, FileNoted, FileNoted, FileIgnored, FileOrdinary}; !slices.Equal(got, want) {
		t.Errorf("with a list of notes: %v, want %v", got, want)
	}
}

func TestGitDirectoryInsideTheWorktree(t *testing.T) {
	w := newWorktree(t, "--separate-git-dir", "store")
	r := w.rules()
	w.wantKind(r, "store/HEAD", FileIgnored)
	w.wantKind(r, "stores", FileOrdinary)
}

// git reads rules and index once; what changes then has to count all the same.
func TestRulesThatChange(t *testing.T) {
	w := newWorktree(t)
	r := w.rules()
	w.wantKind(r, "d/a.log", FileOrdinary)
	w.wantKind(r, "d/x.gen", FileOrdinary)
	w.write(".gitignore", "*.log\n")
	w.wantKind(r, "d/a.log", FileIgnored)
	w.write("d/.gitignore", "!a.log\n*.q\n")
	w.wantKind(r, "d/a.log", FileOrdinary)
	w.wantKind(r, "d/a.q", FileIgnored)
	w.write("d/.gitignore", "!a.log\n*.r\n") // the same size
	w.wantKind(r, "d/a.q", FileOrdinary)
	w.wantKind(r, "d/a.r", FileIgnored)
	w.write(".gitattributes", "*.gen linguist-generated\n")
	w.wantKind(r, "d/x.gen", FileNoted)
	if err := os.Remove(filepath.Join(w.dir, ".gitattributes")); err != nil {
		t.Fatal(err)
	}
	w.wantKind(r, "d/x.gen", FileOrdinary)
	w.write(".git/info/exclude", "private\n")
	w.wantKind(r, "private", FileIgnored)
	w.write("b.log", "")
	w.wantKind(r, "b.log", FileIgnored)
	w.git("add", "-f", "b.log")
	w.wantKind(r, "b.log", FileOrdinary)
	w.write("global", "*.global\n")
	w.git("config", "core.excludesFile", filepath.Join(w.dir, "global"))
	w.wantKind(r, "x.global", FileIgnored)
}

// One path that ends git's process costs no other its answer.
func TestPathsThatGitRefuses(t *testing.T) {
	w := newWorktree(t)
	w.write(".gitignore", "*.log\n")
	if err := os.Symlink("/etc", filepath.Join(w.dir, "link")); err != nil {
		t.Fatal(err)
	}
	r := w.rules()
	got := w.kinds(r, "a.log", "link/passwd", "b.log", "link/hosts", "c.log", "d")
	want := []FileKind{FileIgnored, FileOrdinary, FileIgnored, FileOrdinary, FileIgnored, FileOrdinary}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestRulesSurviveTheirProcess(t *testing.T) {
	w := newWorktree(t)
	w.write(".gitignore", "*.log\n")
	w.write(".gitattributes", "*.gen linguist-generated\n")
	r := w.rules()
	w.wantKind(r, "a.log", FileIgnored)
	w.wantKind(r, "a.gen", FileNoted)
	for _, p := range []*ruleProcess{r.ignored, r.attributes} {
		if err := p.process.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	w.wantKind(r, "a.log", FileIgnored)
	w.wantKind(r, "a.gen", FileNoted)
}

// A git that hangs makes files ordinary; and once it answers again they are what they are.
func TestGitThatHangs(t *testing.T) {
	w := newWorktree(t)
	w.write(".gitignore", "*.log\n")
	r := w.rules()
	r.ignored.turn <- struct{}{} // as if it were still busy with a question before
	if got := r.Kinds(context.Background(), []string{"a.log", "go.sum"}, PathSet{}); !slices.Equal(got, []FileKind{FileOrdinary, FileNoted}) {
		t.Errorf("%v, want ordinary, and noted by its name", got)
	}
	<-r.ignored.turn
	w.wantKind(r, "a.log", FileIgnored)
}

// Rules that never end hold up nobody for longer than that, and nothing of them is left.
func TestRulesThatNeverEnd(t *testing.T) {
	w := newWorktree(t)
	if err := unix.Mkfifo(filepath.Join(w.dir, ".gitignore"), 0o600); err != nil {
		t.Skip(err)
	}
	before := goleak.IgnoreCurrent()
	r := OpenRules(w.tree.repo)
	for range 3 {
		if got := r.Kinds(context.Background(), []string{"a.log"}, PathSet{}); got[0] != FileOrdinary {
			t.Errorf("a.log is %v", got[0])
		}
	}
	r.Close()
	goleak.VerifyNone(t, before)
}

func TestManyPathsAtOnce(t *testing.T) {
	w := newWorktree(t)
	w.write(".gitignore", "*.log\n")
	r := w.rules()
	var paths []string
	for i := range 3000 {
		paths = append(paths, fmt.Sprintf("%s/%d.%s", strings.Repeat("long/", 20), i, []string{"log", "go"}[i%2]))
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i, kind := range w.kinds(r, paths...) {
				if want := []FileKind{FileIgnored, FileOrdinary}[i%2]; kind != want {
					t.Errorf("%s is %v, want %v", paths[i], kind, want)
					return
				}
			}
		})
	}
	all.Wait()
}

func TestRulesLeaveNothingBehind(t *testing.T) {
	w := newWorktree(t)
	before := goleak.IgnoreCurrent()
	r := OpenRules(w.tree.repo)
	r.Warm(context.Background())
	process := r.ignored.process.cmd
	r.Close()
	if process.ProcessState == nil {
		t.Error("git's process was not waited for")
	}
	w.wantKind(r, "go.sum", FileNoted) // still safe to ask; git is not
	goleak.VerifyNone(t, before)
}

func BenchmarkKinds(b *testing.B) {
	w := newWorktree(b)
	w.write("a/b/c/d.go", "")
	r := w.rules()
	r.Warm(context.Background())
	for b.Loop() {
		r.Kinds(context.Background(), []string{"a/b/c/d.go"}, PathSet{})
	}
}

// The guide names each lockfile that is never claimed.
func TestGuideListsWhatIsNeverClaimed(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "docs", "guide.md"))
	if err != nil {
		t.Fatal(err)
	}
	guide := FoldPath(string(text))
	for name := range madeByPrograms {
		if !strings.Contains(guide, "`"+name+"`") {
			t.Errorf("docs/guide.md does not name %s", name)
		}
	}
	for folder := range snapshotFolders {
		if !strings.Contains(guide, "`"+folder+"`") {
			t.Errorf("docs/guide.md does not name %s", folder)
		}
	}
	for _, ending := range snapshotEndings {
		if !strings.Contains(guide, "`*"+ending+"`") {
			t.Errorf("docs/guide.md does not name *%s", ending)
		}
	}
}
