package gitlog

import (
	"context"
	"fmt"
	"strings"
)

// IgnoredFolders returns the folders of the worktree that git ignores as a whole, without those inside of others.
func (t *Tree) IgnoredFolders(ctx context.Context) ([]string, error) {
	out, err := t.git(ctx, "-c", "core.fsmonitor=false", "ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")
	if err != nil {
		return nil, fmt.Errorf("git does not say what is ignored in %s: %w", t.repo.Root, err)
	}
	var folders []string
	for path := range strings.SplitSeq(out, "\x00") {
		if folder, ok := strings.CutSuffix(path, "/"); ok && folder != "" {
			folders = append(folders, folder)
		}
	}
	return folders, nil
}
