package gitlog

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestChangedSince(t *testing.T) {
	w := newWorktree(t)
	for _, path := range []string{"same", "changed", "gone", "dir/gone", "was/never"} {
		w.write(path, "1\n")
	}
	w.commit("first")
	first := stampOf(filepath.Join(w.dir, "changed"))
	var from time.Time
	for from = time.Now(); ; from = time.Now() { // a file system's clock is coarse
		w.write("changed", "2\n")
		if s := stampOf(filepath.Join(w.dir, "changed")); s.ctime > from.UnixNano() && s.ctime > first.ctime {
			break
		}
	}
	for _, path := range []string{"gone", "dir/gone"} {
		if err := os.Remove(filepath.Join(w.dir, path)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("nowhere", filepath.Join(w.dir, "link")); err != nil {
		t.Fatal(err)
	}
	paths := []string{"same", "changed", "gone", "dir/gone", "was/absent", "was", "link"}
	changed, gone := w.tree.ChangedSince(paths, from, time.Now().Add(time.Minute))
	if want := []string{"changed", "link"}; !slices.Equal(changed, want) {
		t.Errorf("changed %q, want %q", changed, want)
	}
	// In the folder of the one that was never there nothing changed.
	if want := []string{"gone", "dir/gone"}; !slices.Equal(gone, want) {
		t.Errorf("gone %q, want %q", gone, want)
	}
	if changed, gone := w.tree.ChangedSince(paths, from.Add(-2*time.Minute), from.Add(-time.Minute)); len(changed)+len(gone) > 0 {
		t.Errorf("before: %q, %q", changed, gone)
	}
}

func TestStagedAndCommitted(t *testing.T) {
	w := newWorktree(t)
	for _, path := range []string{"a", "dir/b", "*", "with space"} {
		w.write(path, path+"\n")
	}
	w.commit("first")
	w.write("a", "staged\n")
	w.write("new", "staged\n")
	w.git("add", "a", "new")
	w.write("a", "later\n")
	paths := []string{"a", "dir/b", "*", "with space", "new", "nowhere", "dir"}
	staged, err := w.tree.Staged(context.Background(), paths)
	if err != nil {
		t.Fatal(err)
	}
	committed, err := w.tree.Committed(context.Background(), paths)
	if err != nil {
		t.Fatal(err)
	}
	blob := func(text string) []byte { return hashObject(w.tree.repo.ObjectFormat, "blob", []byte(text)).Bytes() }
	for path, want := range map[string][2]string{
		"a": {"staged\n", "a\n"}, "dir/b": {"dir/b\n", "dir/b\n"}, "*": {"*\n", "*\n"}, "with space": {"with space\n", "with space\n"}, "new": {"staged\n", ""},
		"nowhere": {}, "dir": {},
	} {
		for i, have := range []map[string][]byte{staged, committed} {
			if want[i] == "" && have[path] != nil || want[i] != "" && !bytes.Equal(have[path], blob(want[i])) {
				t.Errorf("%s, %d: %x", path, i, have[path])
			}
		}
	}
	dirty, err := w.tree.Dirty(context.Background())
	if want := []string{"a", "new"}; err != nil || !slices.Equal(dirty, want) {
		t.Errorf("dirty %q, %v", dirty, err)
	}
}

func TestBrings(t *testing.T) {
	w := newWorktree(t)
	for _, path := range []string{".knoot.toml", ".knooty/x", "src/.knoot/x", "a"} {
		w.write(path, "1\n")
	}
	w.commit("first")
	brings := func() bool {
		t.Helper()
		brings, err := w.tree.Brings(t.Context(), ".knoot")
		if err != nil {
			t.Fatal(err)
		}
		return brings
	}
	if brings() {
		t.Error("what is beside a folder is taken for what is in it")
	}
	for name, of := range map[string]string{"a file": ".knoot/spool/x", "in other letters": ".Knoot/outbox/x", "a file in its place": ".knoot", "composed": ".knoot/re\u0301sume\u0301"} {
		w.git("update-index", "--add", "--cacheinfo", "100644,"+w.git("rev-parse", "HEAD:a")+","+of)
		if !brings() {
			t.Errorf("%s is not seen", name)
		}
		w.git("update-index", "--force-remove", of)
	}
	w.git("update-index", "--add", "--cacheinfo", "160000,"+w.git("rev-parse", "HEAD")+",.knoot")
	if !brings() {
		t.Error("a submodule is not seen")
	}
}
