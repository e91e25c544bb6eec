package gitlog

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"
)

func (w *worktree) wantBranch(when, ref, commit string) {
	w.Helper()
	gotRef, gotCommit, err := w.tree.Branch(context.Background())
	if err != nil || gotRef != ref || gotCommit != commit {
		w.Errorf("%s: branch %q at %q, %v; want %q at %q", when, gotRef, gotCommit, err, ref, commit)
	}
}

func TestBranch(t *testing.T) {
	w := newWorktree(t)
	w.wantBranch("before the first commit", "refs/heads/main", "")
	w.write("a", "1\n")
	first := w.commit("first")
	w.wantBranch("after it", "refs/heads/main", first)
	w.git("pack-refs", "--all")
	w.wantBranch("packed", "refs/heads/main", first)
	w.git("switch", "-q", "-c", "feature/x")
	w.wantBranch("another branch", "refs/heads/feature/x", first)
	w.write("a", "2\n")
	second := w.commit("second")
	w.wantBranch("moved on", "refs/heads/feature/x", second)

	other := filepath.Join(t.TempDir(), "other")
	w.git("worktree", "add", "-q", "-b", "y", other, "main")
	o := w.in(other)
	o.wantBranch("in a linked worktree", "refs/heads/y", first)

	w.git("switch", "-q", "--detach", first)
	w.wantBranch("detached", "", first)
}

func TestBranchDuringARebase(t *testing.T) {
	for _, backend := range []string{"--merge", "--apply"} {
		t.Run(backend, func(t *testing.T) {
			w := newWorktree(t)
			w.write("a", "1\n")
			w.commit("first")
			w.git("switch", "-q", "-c", "topic")
			w.write("a", "topic\n")
			topic := w.commit("topic")
			w.git("switch", "-q", "main")
			w.write("a", "main\n")
			onto := w.commit("main")
			w.git("switch", "-q", "topic")
			w.conflict("rebase", backend, "main")
			w.wantBranch("a rebase that stopped", "refs/heads/topic", onto)
			w.git("rebase", "--abort")
			w.wantBranch("aborted", "refs/heads/topic", topic)
			w.git("switch", "-q", "--detach")
			w.conflict("rebase", backend, "main")
			w.wantBranch("a rebase of a detached HEAD", "", onto)
		})
	}
}

// conflict runs git where it has to stop.
func (w *worktree) conflict(args ...string) {
	w.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = w.dir
	if out, err := cmd.CombinedOutput(); err == nil {
		w.Fatalf("git %q went through: %s", args, out)
	}
}

func BenchmarkBranch(b *testing.B) {
	w := newWorktree(b)
	w.write("a", "1\n")
	w.commit("first")
	for b.Loop() {
		if _, _, err := w.tree.Branch(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}
