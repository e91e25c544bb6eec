package gitlog

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// twoBranches makes a repository with a file, and a worktree of it on another branch.
func twoBranches(t *testing.T, path, content string) (ours, theirs *worktree) {
	ours = newWorktree(t)
	ours.write(path, content)
	ours.commit("first")
	dir := filepath.Join(t.TempDir(), "theirs")
	ours.git("worktree", "add", "-q", "-b", "theirs", dir)
	return ours, ours.in(dir)
}

// stored lists the files of a git directory with their stamps.
func (w *worktree) gitFiles() (all []string) {
	err := filepath.WalkDir(filepath.Join(w.tree.repo.CommonDir, "objects"), func(path string, _ fs.DirEntry, err error) error {
		all = append(all, path)
		return err
	})
	if err != nil {
		w.Fatal(err)
	}
	return all
}

func (w *worktree) wantOverlap(what string, other *worktree, path string, want MergeOutcome, lines ...LineRange) {
	w.Helper()
	before := append(w.gitFiles(), other.gitFiles()...)
	got, err := w.tree.Overlap(context.Background(), path, other.tree)
	if err != nil || got.Outcome != want || !slices.Equal(got.Lines, lines) {
		w.Errorf("%s: %v, lines %v, %v; want %v, lines %v", what, got.Outcome, got.Lines, err, want, lines)
	}
	if after := append(w.gitFiles(), other.gitFiles()...); !slices.Equal(before, after) {
		w.Errorf("%s: objects were stored", what)
	}
}

func TestOverlap(t *testing.T) {
	ours, theirs := twoBranches(t, "a", lines(30))
	ours.wantOverlap("nothing is changed", theirs, "a", WouldMerge)
	ours.write("a", lines(30, 2, 3))
	ours.wantOverlap("one side changes", theirs, "a", WouldMerge)
	theirs.wantOverlap("seen from the other", ours, "a", WouldMerge)
	theirs.write("a", lines(30, 20))
	ours.wantOverlap("far apart", theirs, "a", WouldMerge)
	theirs.write("a", strings.Replace(lines(30, 20), "line 3\n", "line three\n", 1))
	ours.wantOverlap("the same line", theirs, "a", WouldConflict, LineRange{2, 3})
	theirs.commit("on their branch")
	ours.wantOverlap("committed there", theirs, "a", WouldConflict, LineRange{2, 3})
	theirs.write("a", lines(30, 2, 3, 20))
	ours.wantOverlap("the same change", theirs, "a", WouldMerge)
	ours.write("a", "added\n"+strings.Replace(lines(30, 2), "line 25\n", "", 1))
	theirs.write("a", strings.Replace(lines(30, 2), "line 25\n", "line 25 is long\n", 1))
	ours.wantOverlap("a line that one side takes out", theirs, "a", WouldConflict, LineRange{25, 25})

	ours.write("new", "a\n")
	theirs.write("new", "a\n")
	ours.wantOverlap("both add the same", theirs, "new", WouldMerge)
	theirs.write("new", "b\n")
	ours.wantOverlap("both add", theirs, "new", WouldConflict, LineRange{1, 1})
	if err := os.Remove(filepath.Join(theirs.dir, "a")); err != nil {
		t.Fatal(err)
	}
	ours.wantOverlap("gone there", theirs, "a", WouldConflict)
	theirs.wantOverlap("gone here", ours, "a", WouldConflict)
	ours.write("b", "\x00\x01ours")
	theirs.write("b", "\x00\x01theirs")
	ours.wantOverlap("binary files", theirs, "b", WouldConflict)
	ours.write("big", strings.Repeat("ours\n", overlapBytes/5+1))
	theirs.write("big", "theirs\n")
	ours.wantOverlap("too large", theirs, "big", MayConflict)
	for w, target := range map[*worktree]string{ours: "x", theirs: "y"} {
		if err := os.Symlink(target, filepath.Join(w.dir, "link")); err != nil {
			t.Fatal(err)
		}
	}
	ours.wantOverlap("links", theirs, "link", WouldConflict)
}

// What filters make of files is merged, not what is on the disk.
func TestOverlapAppliesFilters(t *testing.T) {
	ours, theirs := twoBranches(t, "a", lines(30))
	ours.write(".gitattributes", "a text eol=crlf\n")
	ours.write("a", strings.ReplaceAll(lines(30, 2), "\n", "\r\n"))
	theirs.write("a", lines(30, 20))
	ours.wantOverlap("line ends that differ on the disk alone", theirs, "a", WouldMerge)
}

func TestOverlapWithAnotherClone(t *testing.T) {
	ours, _ := twoBranches(t, "a", lines(30))
	dir := filepath.Join(t.TempDir(), "clone: theirs")
	ours.git("clone", "-q", "--no-hardlinks", ours.dir, dir)
	theirs := ours.in(dir)
	theirs.write("a", lines(30, 2))
	theirs.commit("there alone")
	theirs.write("a", lines(30, 2, 20))
	ours.write("a", lines(30, 10))
	ours.wantOverlap("far apart", theirs, "a", WouldMerge)
	ours.write("a", strings.Replace(lines(30), "line 20\n", "x\n", 1))
	ours.wantOverlap("the same line", theirs, "a", WouldConflict, LineRange{20, 20})

	stranger := newWorktree(t)
	stranger.write("a", "else\n")
	stranger.commit("first")
	ours.wantOverlap("without a common commit", stranger, "a", MayConflict)
}

func TestOverlapWithTip(t *testing.T) {
	host := newWorktree(t)
	host.write("a", lines(30))
	host.commit("first")
	host.git("branch", "feature/x")
	dir := filepath.Join(t.TempDir(), "clone")
	host.git("clone", "-q", host.dir, dir)
	host.git("switch", "-q", "feature/x")
	host.write("a", lines(30, 2))
	host.commit("second")
	w := host.in(dir)
	w.write("a", strings.Replace(lines(30), "line 2\n", "x\n", 1))
	want := func(when, branch string, outcome MergeOutcome, lines ...LineRange) {
		t.Helper()
		got, err := w.tree.OverlapWithTip(context.Background(), "a", branch)
		if err != nil || got.Outcome != outcome || !slices.Equal(got.Lines, lines) {
			t.Errorf("%s: %v, lines %v, %v; want %v, lines %v", when, got.Outcome, got.Lines, err, outcome, lines)
		}
	}
	want("not fetched yet", "refs/heads/feature/x", WouldMerge)
	w.git("fetch", "-q")
	want("fetched", "refs/heads/feature/x", WouldConflict, LineRange{2, 2})
	want("a branch that is not here", "refs/heads/x", MayConflict)
	want("detached", "", MayConflict)
}
