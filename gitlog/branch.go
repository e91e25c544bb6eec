package gitlog

import (
	"context"
	"os"
	"strings"
)

// Branch returns the full name of the branch that work in the worktree is for, and HEAD's commit in hex ("" where there is
// none yet). The branch is the one that is checked out; during a rebase, which detaches HEAD, the one that is being
// rebased; "" when HEAD is detached otherwise. Two answers that differ say that HEAD moved.
//
// Files are read, no process is started, and while nothing moves it costs stats alone. Where refs are in reftables git is
// asked, once for each time that any ref moved: whoever cannot wait for that gives a ctx that ends.
func (t *Tree) Branch(ctx context.Context) (ref, commit string, err error) {
	ref, commit, err = t.Head(ctx)
	if err != nil || ref != "" {
		return ref, commit, err
	}
	// The first is of the merge backend, the second of the apply backend; `git am` has the second's folder, without a name.
	for _, dir := range []string{"rebase-merge", "rebase-apply"} {
		text, err := os.ReadFile(t.repo.GitDir + "/" + dir + "/head-name")
		if name := strings.TrimSpace(string(text)); err == nil && strings.HasPrefix(name, "refs/") {
			return name, commit, nil // else it says "detached HEAD"
		}
	}
	return "", commit, nil
}
