package gitlog

import (
	"bytes"
	"context"
	"strings"
)

// Pushed returns the commit, in hex, that a remote had a branch at when it was last fetched, if a file is there what blob says
// (nil: gone); "" if no remote has it so. branch is a full ref name.
func (t *Tree) Pushed(ctx context.Context, branch, path string, blob []byte) (string, error) {
	name, ok := strings.CutPrefix(branch, "refs/heads/")
	if !ok {
		return "", nil
	}
	out, err := t.git(ctx, "for-each-ref", "--format=%(objectname) %(refname)", "refs/remotes")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(out) {
		commit, ref, _ := strings.Cut(strings.TrimSpace(line), " ")
		remote, _, _ := strings.Cut(strings.TrimPrefix(ref, "refs/remotes/"), "/")
		if ref != "refs/remotes/"+remote+"/"+name {
			continue
		}
		there, _, err := (&fileMerge{tree: t}).fileAt(ctx, commit, path)
		if err != nil {
			return "", err
		}
		if bytes.Equal(there, blob) {
			return commit, nil
		}
	}
	return "", nil
}
