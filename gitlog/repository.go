package gitlog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Repository is a git repository as seen from one worktree.
type Repository struct {
	Root         string // real absolute path of the worktree; "" in a bare repository
	GitDir       string // this worktree's git directory, real absolute path
	CommonDir    string // the common git directory, real absolute path
	ObjectFormat string // sha1 or sha256
	Bare         bool   // true too where only linked worktrees hang on it, seen from the repository itself
}

// ErrNoRepository is returned by FindRepository for a folder outside every git repository.
var ErrNoRepository = errors.New("not inside a git repository: run `git init`, or go to a folder of one")

// FindRepository asks git which repository dir, a folder, is in. Linked worktrees, separate git directories, submodules and
// bare repositories are all served; inside a git directory it is the worktree beside it. GIT_DIR and the like in the
// environment do not count. Errors: ErrNoRepository, ErrNoGit, and sentences for a broken or refused repository.
func FindRepository(ctx context.Context, dir string) (*Repository, error) {
	if info, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("the folder %s cannot be entered: %w", dir, err)
	} else if !info.IsDir() {
		return nil, fmt.Errorf("%s is no folder", dir)
	}
	out, _, err := git{dir: dir}.run(ctx, nil, "rev-parse", "--path-format=absolute", "--show-object-format",
		"--is-bare-repository", "--git-dir", "--git-common-dir", "--show-toplevel")
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if err != nil && len(lines) < 4 {
		return nil, explainNoRepository(ctx, dir, err)
	}
	// Where there is no work tree, the answer to --show-toplevel is an error, after four good lines.
	if len(lines) != 4 && len(lines) != 5 {
		return nil, fmt.Errorf("git's answer about %s makes no sense, maybe because of a line break in the path: rename that folder", dir)
	}
	repo := &Repository{ObjectFormat: lines[0], Bare: lines[1] == "true"}
	if repo.ObjectFormat != "sha1" && repo.ObjectFormat != "sha256" {
		return nil, fmt.Errorf("%s uses the object format %q, which this knoot cannot read: a newer knoot may", dir, repo.ObjectFormat)
	}
	if repo.GitDir, err = filepath.EvalSymlinks(lines[2]); err != nil {
		return nil, fmt.Errorf("the git directory of %s cannot be entered: %w", dir, err)
	}
	if repo.CommonDir, err = filepath.EvalSymlinks(lines[3]); err != nil {
		return nil, fmt.Errorf("the common git directory of %s cannot be entered: %w", dir, err)
	}
	if len(lines) == 5 {
		if repo.Root, err = filepath.EvalSymlinks(lines[4]); err != nil {
			return nil, fmt.Errorf("the worktree of %s cannot be entered: %w", dir, err)
		}
	} else if !repo.Bare {
		return besideGitDir(ctx, dir, repo)
	}
	return repo, nil
}

// Worktrees returns the real paths of the roots of this repository's worktrees, by their git directories. One that is gone, or
// that cannot be read, is left out.
func (r *Repository) Worktrees() map[string]string {
	roots := map[string]string{}
	if filepath.Base(r.CommonDir) == ".git" {
		roots[r.CommonDir] = filepath.Dir(r.CommonDir)
	}
	if r.Root != "" {
		roots[r.GitDir] = r.Root // which the settings may have put elsewhere
	}
	linked, _ := os.ReadDir(filepath.Join(r.CommonDir, "worktrees")) // most repositories have none
	for _, entry := range linked {
		gitDir := filepath.Join(r.CommonDir, "worktrees", entry.Name())
		text, err := os.ReadFile(filepath.Join(gitDir, "gitdir"))
		if err != nil {
			continue
		}
		if root, err := filepath.EvalSymlinks(filepath.Dir(strings.TrimSpace(string(text)))); err == nil {
			roots[gitDir] = root
		}
	}
	return roots
}

// besideGitDir serves a folder inside the git directory of a repository that has a worktree.
func besideGitDir(ctx context.Context, dir string, repo *Repository) (*Repository, error) {
	if parent := filepath.Dir(repo.GitDir); filepath.Base(repo.GitDir) == ".git" && parent != dir {
		return FindRepository(ctx, parent)
	}
	return nil, fmt.Errorf("%s is inside the git directory %s: go to its worktree", dir, repo.GitDir)
}

func explainNoRepository(ctx context.Context, dir string, err error) error {
	var failed *gitError
	if !errors.As(err, &failed) {
		return err
	}
	text := failed.stderr
	switch {
	case strings.Contains(text, "not a git repository (or any"), strings.Contains(text, "not a git repository: '(null)'"):
		return fmt.Errorf("%s is %w", dir, ErrNoRepository)
	case strings.Contains(text, "dubious ownership"):
		return fmt.Errorf("git refuses the repository of %s, since it belongs to another user: run `git config --global --add safe.directory %s` if you trust it", dir, safeDirectory(text, dir))
	case strings.Contains(text, "not a git repository: "):
		return fmt.Errorf("the .git file of %s names a git directory that is gone: run `git worktree repair`, or clone again (%s)", dir, complaint(text, failed.exit))
	}
	if _, versionErr := GitVersion(ctx); versionErr != nil {
		return versionErr
	}
	return fmt.Errorf("git cannot read the repository of %s: %s", dir, complaint(text, failed.exit))
}

func safeDirectory(stderr, dir string) string {
	if _, rest, ok := strings.Cut(stderr, "safe.directory "); ok {
		line, _, _ := strings.Cut(rest, "\n")
		return strings.TrimSpace(line)
	}
	return dir
}
