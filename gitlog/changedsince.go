package gitlog

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// ChangedSince looks at paths, without reading any. changed are the files and links among them whose inode changed from from to
// until: their content, name or rights. gone are those that are not there, where something was made or removed meanwhile in the
// folder that they would be in. Folders are neither.
func (t *Tree) ChangedSince(paths []string, from, until time.Time) (changed, gone []string) {
	for _, path := range paths {
		s := stampOf(t.abs(path))
		switch {
		case !s.there:
			folder := s
			for at := path; !folder.there && at != ""; {
				at = at[:max(0, strings.LastIndexByte(at, '/'))]
				folder = stampOf(t.abs(at))
			}
			if folder.mtime >= from.UnixNano() && folder.mtime <= until.UnixNano() {
				gone = append(gone, path)
			}
		case (s.regular() || s.link()) && s.ctime >= from.UnixNano() && s.ctime <= until.UnixNano():
			changed = append(changed, path)
		}
	}
	return changed, gone
}

// Dirty returns the paths that the worktree has otherwise than HEAD: changed, staged, new or gone. It looks at the whole
// worktree. The repository is not written to, nor is its index refreshed.
func (t *Tree) Dirty(ctx context.Context) ([]string, error) {
	out, err := t.git(ctx, "-c", "core.fsmonitor=false", "status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames", "--ignore-submodules=all")
	if err != nil {
		return nil, fmt.Errorf("git does not say what is uncommitted in %s: %w", t.repo.Root, err)
	}
	var dirty []string
	for line := range strings.SplitSeq(out, "\x00") {
		if len(line) < 4 {
			continue
		}
		if path, err := CanonicalPath(strings.TrimSuffix(line[3:], "/")); err == nil {
			dirty = append(dirty, path)
		}
	}
	return dirty, nil
}

// Staged returns the blobs that the index has for paths. One that it does not have, or has in several stages, is not in the answer.
func (t *Tree) Staged(ctx context.Context, paths []string) (map[string][]byte, error) {
	// MODE BLOB STAGE, a tab, the path
	return t.listed(ctx, paths, 1, "ls-files", "-z", "--stage", "--full-name", "--")
}

// Brings reports whether the index has anything in a folder of the worktree, or in its place, however its name is written: a clone of
// the repository brings that along.
func (t *Tree) Brings(ctx context.Context, folder string) (bool, error) {
	cmd := t.command(ctx, "ls-files", "-z", "--full-name", "--", ":(top,icase)"+folder)
	cmd.Env = append(cmd.Env, "GIT_LITERAL_PATHSPECS=0")
	out, err := runGit(ctx, cmd)
	if err != nil {
		return false, fmt.Errorf("git does not say what it has of %s: %w", t.repo.Root, err)
	}
	return out != "", nil
}

// Committed returns the blobs that HEAD has for paths. One that it does not have is not in the answer.
func (t *Tree) Committed(ctx context.Context, paths []string) (map[string][]byte, error) {
	// MODE TYPE BLOB, a tab, the path
	return t.listed(ctx, paths, 2, "ls-tree", "-z", "--full-tree", "HEAD", "--")
}

// listed asks git for the blobs of paths, a part of them at a time.
func (t *Tree) listed(ctx context.Context, paths []string, field int, args ...string) (map[string][]byte, error) {
	blobs := map[string][]byte{}
	for next := 0; next < len(paths); {
		first := next
		for size := 0; next < len(paths) && (next == first || size+len(paths[next]) < statusBytes); next++ {
			size += len(paths[next]) + 1
		}
		out, err := t.git(ctx, append(args[:len(args):len(args)], paths[first:next]...)...)
		if err != nil {
			return nil, fmt.Errorf("git does not say what it has of %s: %w", t.repo.Root, err)
		}
		twice := map[string]bool{}
		for line := range strings.SplitSeq(out, "\x00") {
			about, name, _ := strings.Cut(line, "\t")
			fields := strings.Fields(about)
			path, err := CanonicalPath(name)
			if err != nil || len(fields) != 3 {
				continue
			}
			if blob, err := hex.DecodeString(fields[field]); err == nil {
				twice[path] = blobs[path] != nil
				blobs[path] = blob
			}
		}
		for path, more := range twice {
			if more {
				delete(blobs, path)
			}
		}
	}
	return blobs, nil
}
