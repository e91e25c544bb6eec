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
	changed := map[string]bool{} // with the folders above each
	if err := t.status(ctx, paths, func(_, path string) {
		for path != "" && !changed[path] {
			changed[path] = true
			path = path[:max(0, strings.LastIndexByte(path, '/'))]
		}
	}); err != nil {
		return nil, err
	}
	var dirty []string
	for _, path := range paths {
		if changed[path] || t.FoldsCase() && hasFolded(changed, path) {
			dirty = append(dirty, path)
		}
	}
	return dirty, nil
}

// Changes is Uncommitted for files, and tells those that git knows, be it only in the index, from new ones that it does not.
func (t *Tree) Changes(ctx context.Context, paths []string) (tracked, untracked []string, err error) {
	known, unknown := map[string]bool{}, map[string]bool{}
	if err := t.status(ctx, paths, func(code, path string) {
		if code == "??" {
			unknown[path] = true
		} else {
			known[path] = true
		}
	}); err != nil {
		return nil, nil, err
	}
	for _, path := range paths {
		switch {
		case known[path], t.FoldsCase() && hasFolded(known, path):
			tracked = append(tracked, path)
		case unknown[path], t.FoldsCase() && hasFolded(unknown, path):
			untracked = append(untracked, path)
		}
	}
	return tracked, untracked, nil
}

// status calls each for what the worktree has otherwise than HEAD at paths, with the two letters that git has for it. git is given
// a part of the paths at a time.
func (t *Tree) status(ctx context.Context, paths []string, each func(code, path string)) error {
	if t.repo.Root == "" {
		return nil
	}
	for next := 0; next < len(paths); {
		args := []string{"-c", "core.fsmonitor=false", "status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames",
			"--ignore-submodules=all", "--"}
		for size, first := 0, next; next < len(paths) && (next == first || size+len(paths[next]) < statusBytes); next++ {
			size += len(paths[next]) + 1
			args = append(args, paths[next])
		}
		out, err := t.git(ctx, args...)
		if err != nil {
			return fmt.Errorf("git does not say what is uncommitted in %s: %w", t.repo.Root, err)
		}
		for line := range strings.SplitSeq(out, "\x00") {
			if len(line) < 4 {
				continue
			}
			if path, err := CanonicalPath(strings.TrimSuffix(line[3:], "/")); err == nil {
				each(line[:2], path)
			}
		}
	}
	return nil
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
