package mcpd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"knoot.dev/knoot/daemon"
)

const (
	// gitTime bounds one run of git.
	gitTime = 60 * time.Second
	// maxRepositories bounds what is looked at of the source folder, sourceDepth how far below it a repository may lie.
	maxRepositories = 500
	sourceDepth     = 3
	// worktreesSuffix ends the folder, beside a repository, that created worktrees of it lie in.
	worktreesSuffix = "-worktrees"
)

func worktreeTools() []*tool {
	return []*tool{
		{group: coordination, name: "list-repos", about: "List the repositories below your user's source folder, with their worktrees.", hints: hints{reads: true}, anonymous: true, do: listRepos},
		{group: coordination, name: "list-worktrees", about: "List one repository's worktrees.", hints: hints{reads: true}, anonymous: true, takes: []argument{{name: "repo", about: "its name, as list-repos has it"}}, do: listWorktrees},
		{group: coordination, name: "create-worktree", about: "Make a worktree on a new branch. Returns its path. Nothing is ever deleted.",
			takes: []argument{{name: "repo", about: "its name, as list-repos has it"}, {name: "branch"}, {name: "base?", about: "what it begins at; else HEAD"}}, do: createWorktree},
	}
}

// Repository is a repository of the source folder.
type Repository struct {
	Name      string     `json:"name"` // relative to the source folder, with slashes
	Path      string     `json:"path"`
	Worktrees []Worktree `json:"worktrees"`
}

// Worktree is a worktree of a repository.
type Worktree struct {
	Name string `json:"name"` // of its folder
	Path string `json:"path"` // absolute
}

// source is the folder that holds the person's repositories.
func (s *Server) source() (string, error) {
	folder := s.host.Config().Source.Folder
	if rest, home := strings.CutPrefix(folder, "~/"); home {
		folder = filepath.Join(s.host.Getenv("HOME"), rest)
	}
	switch {
	case folder == "":
		return "", refusal("no source folder is set: your user sets [source] folder in config.toml")
	case !filepath.IsAbs(folder):
		return "", refusef("[source] folder is %q in config.toml and is to be absolute", folder)
	}
	real, err := filepath.EvalSymlinks(folder)
	if err != nil {
		return "", refusef("[source] folder of config.toml cannot be read: %v", err)
	}
	return real, nil
}

func listRepos(ctx context.Context, c *call) (any, error) {
	source, err := c.source()
	if err != nil {
		return nil, err
	}
	out := []Repository{}
	err = filepath.WalkDir(source, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return fs.SkipDir // what cannot be read is nobody's repository
		case !entry.IsDir() || len(out) == maxRepositories:
			return nil
		}
		rel, _ := filepath.Rel(source, path)
		depth := strings.Count(filepath.ToSlash(rel), "/") + 1
		if rel == "." {
			depth = 0
		}
		if info, err := os.Lstat(filepath.Join(path, ".git")); err == nil && info.IsDir() {
			found := Repository{Name: filepath.ToSlash(rel), Path: path}
			if found.Worktrees, err = worktreesOf(ctx, path); err == nil {
				out = append(out, found)
			}
			return fs.SkipDir
		}
		if depth >= sourceDepth || depth > 0 && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "node_modules" || strings.HasSuffix(entry.Name(), worktreesSuffix)) {
			return fs.SkipDir
		}
		return nil
	})
	return out, err
}

// repository returns the folder of a repository that is named as list-repos has it.
func (c *call) repository() (string, error) {
	name, err := c.args.text("repo")
	if err != nil {
		return "", err
	}
	source, err := c.source()
	if err != nil {
		return "", err
	}
	if rel, rerr := filepath.Rel(source, name); filepath.IsAbs(name) && rerr == nil {
		name = rel
	}
	if !filepath.IsLocal(name) {
		return "", refusef("%s is outside of the source folder", daemon.Clean(name, 200))
	}
	path, err := filepath.EvalSymlinks(filepath.Join(source, name))
	if err == nil {
		if rel, rerr := filepath.Rel(source, path); rerr != nil || !filepath.IsLocal(rel) {
			return "", refusef("%s leads out of the source folder", daemon.Clean(name, 200))
		}
		_, err = os.Lstat(filepath.Join(path, ".git"))
	}
	if err != nil {
		return "", refusef("there is no repository %s below the source folder: list-repos names them", daemon.Clean(name, 200))
	}
	return path, nil
}

func listWorktrees(ctx context.Context, c *call) (any, error) {
	path, err := c.repository()
	if err != nil {
		return nil, err
	}
	return worktreesOf(ctx, path)
}

func worktreesOf(ctx context.Context, repository string) ([]Worktree, error) {
	text, err := git(ctx, repository, "worktree", "list", "--porcelain", "-z")
	if err != nil {
		return nil, err
	}
	out := []Worktree{}
	for _, field := range strings.Split(text, "\x00") {
		if path, is := strings.CutPrefix(field, "worktree "); is {
			out = append(out, Worktree{Name: filepath.Base(path), Path: path})
		}
	}
	return out, nil
}

// created is the answer to create-worktree.
type created struct {
	Path string `json:"path"`
}

func createWorktree(ctx context.Context, c *call) (any, error) {
	path, err := c.repository()
	if err != nil {
		return nil, err
	}
	branch, err := c.args.text("branch")
	if err != nil {
		return nil, err
	}
	base, err := c.args.text("base")
	if err != nil {
		return nil, err
	}
	if base == "" {
		base = "HEAD"
	}
	branch, shown := strings.TrimSpace(branch), daemon.Clean(branch, 80)
	if _, err := git(ctx, path, "check-ref-format", "--branch", branch); err != nil || strings.HasPrefix(branch, "-") || strings.Contains(branch, "@{") {
		return nil, refusef("%q is no name for a branch", shown)
	}
	if _, err := git(ctx, path, "show-ref", "--verify", "--quiet", "refs/heads/"+branch); err == nil {
		return nil, refusef("there is a branch %s already: choose another name", shown)
	}
	commit, err := git(ctx, path, "rev-parse", "--verify", "--quiet", "--end-of-options", base+"^{commit}")
	if err != nil {
		return nil, refusef("there is no commit %q to begin at", daemon.Clean(base, 80))
	}
	folder := path + worktreesSuffix
	into := filepath.Join(folder, strings.ReplaceAll(branch, "/", "-"))
	if filepath.Dir(into) != folder || filepath.Base(into) == ".." {
		return nil, refusef("%q leads out of the folder of worktrees", shown)
	}
	if info, err := os.Lstat(folder); err == nil && !info.IsDir() {
		return nil, refusef("%s is no folder, and worktrees are made in none that a link leads to", daemon.Clean(folder, 200))
	}
	if _, err := os.Lstat(into); err == nil {
		return nil, refusef("there is a folder %s already: choose another branch", daemon.Clean(into, 200))
	}
	if _, err := git(ctx, path, "worktree", "add", "-b", branch, "--", into, strings.TrimSpace(commit)); err != nil {
		return nil, refusef("the worktree cannot be made: %v", err)
	}
	return created{into}, nil
}

// git runs git in a folder and returns what it prints; an error says in its words what is wrong.
func git(ctx context.Context, dir string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, gitTime)
	defer cancel()
	command := exec.CommandContext(ctx, "git", args...)
	command.Dir = dir
	// Of the daemon's own environment nothing may lead git elsewhere, nor have it ask.
	command.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GIT_") }), "GIT_TERMINAL_PROMPT=0", "LC_ALL=C")
	var out, said bytes.Buffer
	command.Stdout, command.Stderr = &out, &said
	err := command.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return "", fmt.Errorf("git %s: %s", args[0], daemon.Clean(said.String(), 300))
	}
	return out.String(), err
}
