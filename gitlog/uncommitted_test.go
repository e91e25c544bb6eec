package gitlog

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestUncommitted(t *testing.T) {
	w := newWorktree(t)
	w.write(".gitignore", "*.log\n")
	for _, path := range []string{"same", "changed", "staged", "gone", "dir/a", "dir/b", "clean/a", "*", "back"} {
		w.write(path, "1\n")
	}
	w.commit("first")
	w.write("changed", "2\n")
	w.write("staged", "2\n")
	w.git("add", "staged")
	w.write("new/deep/file", "1\n")
	w.write("x.log", "1\n")
	w.write("dir/b", "2\n")
	w.write("back", "2\n")
	w.write("back", "1\n")
	if err := os.Remove(filepath.Join(w.dir, "gone")); err != nil {
		t.Fatal(err)
	}
	index := stampOf(w.dir + "/.git/index")
	paths := []string{"same", "changed", "staged", "gone", "dir", "clean", "*", "new/deep/file", "x.log", "back", "nowhere"}
	got, err := w.tree.Uncommitted(context.Background(), paths)
	if want := []string{"changed", "staged", "gone", "dir", "new/deep/file"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	tracked, untracked, err := w.tree.Changes(context.Background(), append(paths, "dir/b"))
	if err != nil || !slices.Equal(tracked, []string{"changed", "staged", "gone", "dir/b"}) || !slices.Equal(untracked, []string{"new/deep/file"}) {
		t.Errorf("tracked %q, untracked %q, %v", tracked, untracked, err)
	}
	if stampOf(w.dir+"/.git/index") != index {
		t.Error("the index was written")
	}
	w.commit("second")
	if got, err := w.tree.Uncommitted(context.Background(), paths); err != nil || len(got) > 0 {
		t.Errorf("after a commit: %q, %v", got, err)
	}
}

func TestUncommittedOfMany(t *testing.T) {
	w := newWorktree(t)
	w.commit("first")
	var paths []string
	for i := range 2000 {
		paths = append(paths, fmt.Sprintf("some/quite/long/folder/file-%d", i))
	}
	w.write(paths[0], "x")
	w.write(paths[1999], "x")
	got, err := w.tree.Uncommitted(context.Background(), paths)
	if err != nil || !slices.Equal(got, []string{paths[0], paths[1999]}) {
		t.Errorf("%d paths, %v", len(got), err)
	}
}
