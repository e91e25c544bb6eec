package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"knoot.dev/knoot/gitlog"
)

var errNoDir = errors.New("the working directory is gone: change to one that exists")

// repository finds the repository of the working directory; a command asks git once.
func (c *console) repository(ctx context.Context) (*gitlog.Repository, error) {
	if c.dir == "" {
		return nil, errNoDir
	}
	if c.repo == nil {
		repo, err := gitlog.FindRepository(ctx, c.dir)
		if err != nil {
			return nil, err
		}
		c.repo = repo
	}
	return c.repo, nil
}

// open opens this clone's memory to read: no daemon, no network. What the person's own `git fetch` brought is taken over
// first, where no daemon has the clone, which would do it. Should that not work, what was read before still counts, and
// status says what is wrong.
func (c *console) open(ctx context.Context) (*gitlog.Clone, error) {
	home, err := gitlog.OpenHome(c.getenv)
	if err != nil {
		return nil, err
	}
	repo, err := c.repository(ctx)
	if err != nil {
		return nil, err
	}
	clone, err := gitlog.OpenClone(ctx, repo, home)
	if err != nil {
		return nil, err
	}
	if c.ephemeral() || c.ciWithoutKnoot() {
		return clone, nil
	}
	switch err := clone.Lock(ctx); {
	case err == nil:
		_, _ = clone.Accept(ctx)
	case errors.Is(err, gitlog.ErrLocked):
		// The daemon has it, and would look at what a plain fetch brought a little later: it is asked to look now. One
		// that does not answer leaves what was accepted before, which can be read all the same.
		if c.ask(ctx, "accept", struct{}{}, nil, acceptTime) == nil {
			_ = clone.Refresh(ctx)
		}
	}
	return clone, nil
}

// inTree makes a path that was typed relative to the worktree's root, with slashes. It need not exist.
func (c *console) inTree(repo *gitlog.Repository, path string) (string, error) {
	if repo.Root == "" {
		return filepath.ToSlash(filepath.Clean(path)), nil
	}
	abs := path
	if !filepath.IsAbs(abs) {
		abs = filepath.Join(c.dir, path)
	}
	rel, err := filepath.Rel(repo.Root, resolve(abs))
	if err != nil || rel == ".." || len(rel) > 2 && rel[:3] == "../" {
		return "", misusef("%s is outside of this repository (%s)", path, repo.Root)
	}
	return filepath.ToSlash(rel), nil
}

// resolve follows symbolic links in the folders of a path, as far as they exist; the last part is kept as it is, since
// git stores a link, not what it points to.
func resolve(path string) string {
	dir, name := filepath.Split(filepath.Clean(path))
	dir = filepath.Clean(dir)
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		return filepath.Join(real, name)
	}
	if dir == filepath.Dir(dir) {
		return path
	}
	return filepath.Join(resolve(dir), name)
}

// ciWithoutKnoot reports whether this is a CI machine where nobody asked for knoot.
func (c *console) ciWithoutKnoot() bool { return c.getenv("CI") != "" && c.getenv("KNOOT") != "on" }

// ephemeral reports whether the clone is thrown away soon: it gets no writer and no refs.
func (c *console) ephemeral() bool {
	return c.getenv("KNOOT_EPHEMERAL") == "1" || c.getenv("CI") != "" && c.getenv("KNOOT") == "on"
}

// idle says that nothing is done on a CI machine, for commands that would change something.
func (c *console) idle() bool {
	if !c.ciWithoutKnoot() {
		return false
	}
	fmt.Fprintln(c.stderr, "knoot: nothing done, since CI is set (KNOOT=on makes knoot work here)")
	return true
}
