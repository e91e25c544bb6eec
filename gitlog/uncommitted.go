package gitlog

import (
	"context"
	"fmt"
	"strings"
)

// statusBytes bounds the paths that one git process is given: far below what any system takes as arguments.
const statusBytes = 32 << 10

// Uncommitted returns those of paths that the worktree has otherwise than HEAD: changed, staged, new or gone, in their
// order. A folder counts if anything in it does, an ignored file does not. The repository is not written to, nor is its index
// refreshed.
func (t *Tree) Uncommitted(ctx context.Context, paths []string) ([]string, error) {
	if t.repo.Root == "" {
		return nil, nil
	}
	var dirty []string
	for next := 0; next < len(paths); {
		args := []string{"-c", "core.fsmonitor=false", "status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames",
			"--ignore-submodules=all", "--"}
		first := next
		for size := 0; next < len(paths) && (next == first || size+len(paths[next]) < statusBytes); next++ {
			size += len(paths[next]) + 1
			args = append(args, paths[next])
		}
		out, err := t.git(ctx, args...)
		if err != nil {
			return nil, fmt.Errorf("git does not say what is uncommitted in %s: %w", t.repo.Root, err)
		}
		changed := map[string]bool{} // with the folders above each
		for line := range strings.SplitSeq(out, "\x00") {
			if len(line) < 4 {
				continue
			}
			path, err := CanonicalPath(strings.TrimSuffix(line[3:], "/"))
			if err != nil {
				continue
			}
			for path != "" && !changed[path] {
				changed[path] = true
				path = path[:max(0, strings.LastIndexByte(path, '/'))]
			}
		}
		for _, path := range paths[first:next] {
			if changed[path] || t.FoldsCase() && hasFolded(changed, path) {
				dirty = append(dirty, path)
			}
		}
	}
	return dirty, nil
}

func hasFolded(paths map[string]bool, path string) bool {
	path = FoldPath(path)
	for other := range paths {
		if FoldPath(other) == path {
			return true
		}
	}
	return false
}
