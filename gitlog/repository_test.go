package gitlog

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFindRepository(t *testing.T) {
	isolateGit(t)
	base := realTempDir(t)
	at := func(parts ...string) string { return filepath.Join(append([]string{base}, parts...)...) }
	commit := func(dir string) { mustGit(t, dir, "commit", "-q", "--allow-empty", "-m", "first") }

	mustGit(t, base, "init", "-q", "plain")
	commit(at("plain"))
	mustGit(t, base, "init", "-q", "empty")
	mustGit(t, base, "init", "-q", "--object-format=sha256", "long")
	mustGit(t, base, "init", "-q", "--bare", "bare.git")
	mustGit(t, base, "init", "-q", "--separate-git-dir="+at("store"), "separate")
	mustGit(t, at("plain"), "worktree", "add", "-q", at("linked"))
	mustGit(t, at("plain"), "config", "extensions.worktreeConfig", "true")
	mustGit(t, at("linked"), "config", "--worktree", "core.sparseCheckout", "true")
	mustGit(t, base, "init", "-q", "outer")
	commit(at("outer"))
	mustGit(t, at("outer"), "submodule", "--quiet", "add", at("plain"), "sub")
	mustGit(t, base, "clone", "-q", "--bare", at("plain"), "hub.git")
	mustGit(t, at("hub.git"), "worktree", "add", "-q", at("of-bare"))
	mustWrite(t, at("plain", "a", "b", "file"), "")
	if err := os.Symlink(at("plain", "a"), at("link")); err != nil {
		t.Fatal(err)
	}
	mustGit(t, base, "init", "-q", "apart")
	mustGit(t, at("apart"), "config", "core.worktree", at("elsewhere"))
	mustWrite(t, at("elsewhere", "file"), "")

	for _, c := range []struct {
		name, dir string
		want      Repository
	}{
		{"plain", at("plain"), Repository{at("plain"), at("plain/.git"), at("plain/.git"), "sha1", false}},
		{"a folder below", at("plain/a/b"), Repository{at("plain"), at("plain/.git"), at("plain/.git"), "sha1", false}},
		{"through a symbolic link", at("link/b"), Repository{at("plain"), at("plain/.git"), at("plain/.git"), "sha1", false}},
		{"inside the git directory", at("plain/.git/refs"), Repository{at("plain"), at("plain/.git"), at("plain/.git"), "sha1", false}},
		{"without commits", at("empty"), Repository{at("empty"), at("empty/.git"), at("empty/.git"), "sha1", false}},
		{"SHA-256", at("long"), Repository{at("long"), at("long/.git"), at("long/.git"), "sha256", false}},
		{"bare", at("bare.git"), Repository{"", at("bare.git"), at("bare.git"), "sha1", true}},
		{"separate git directory", at("separate"), Repository{at("separate"), at("store"), at("store"), "sha1", false}},
		{"linked worktree with its own configuration", at("linked"), Repository{at("linked"), at("plain/.git/worktrees/linked"), at("plain/.git"), "sha1", false}},
		{"submodule", at("outer/sub"), Repository{at("outer/sub"), at("outer/.git/modules/sub"), at("outer/.git/modules/sub"), "sha1", false}},
		{"worktree of a bare repository", at("of-bare"), Repository{at("of-bare"), at("hub.git/worktrees/of-bare"), at("hub.git"), "sha1", false}},
		{"worktree elsewhere", at("apart"), Repository{at("elsewhere"), at("apart/.git"), at("apart/.git"), "sha1", false}},
	} {
		t.Run(c.name, func(t *testing.T) {
			// What git sets for its hooks must not lead us elsewhere.
			t.Setenv("GIT_DIR", at("empty/.git"))
			t.Setenv("GIT_WORK_TREE", at("empty"))
			got, err := FindRepository(context.Background(), c.dir)
			if err != nil {
				t.Fatal(err)
			}
			if *got != c.want {
				t.Errorf("got  %+v\nwant %+v", *got, c.want)
			}
		})
	}
}

func TestWorktrees(t *testing.T) {
	isolateGit(t)
	base := realTempDir(t)
	at := func(parts ...string) string { return filepath.Join(append([]string{base}, parts...)...) }
	mustGit(t, base, "init", "-q", "shop [1]")
	mustGit(t, at("shop [1]"), "commit", "-q", "--allow-empty", "-m", "begin")
	for _, name := range []string{"side", "gone"} {
		mustGit(t, at("shop [1]"), "worktree", "add", "-q", at(name))
	}
	if err := os.RemoveAll(at("gone")); err != nil {
		t.Fatal(err)
	}
	common := at("shop [1]", ".git")
	want := map[string]string{common: at("shop [1]"), filepath.Join(common, "worktrees", "side"): at("side")}
	for _, dir := range []string{at("shop [1]"), at("side")} {
		repo, err := FindRepository(context.Background(), dir)
		if err != nil {
			t.Fatal(err)
		}
		if got := repo.Worktrees(); !maps.Equal(got, want) {
			t.Errorf("from %s: %v, want %v", dir, got, want)
		}
	}
}

func TestFindRepositoryRefuses(t *testing.T) {
	isolateGit(t)
	base := realTempDir(t)
	at := func(parts ...string) string { return filepath.Join(append([]string{base}, parts...)...) }
	mustWrite(t, at("outside", "file"), "")
	mustWrite(t, at("broken", ".git"), "gitdir: "+at("gone")+"\n")
	mustGit(t, base, "init", "-q", "future")
	mustGit(t, at("future"), "config", "core.repositoryFormatVersion", "1")
	mustGit(t, at("future"), "config", "extensions.notYetInvented", "true")

	for _, c := range []struct{ name, dir, want string }{
		{"no repository", at("outside"), "not inside a git repository"},
		{"no folder", at("outside", "file"), "is no folder"},
		{"nothing", at("nothing"), "cannot be entered"},
		{"a worktree whose git directory is gone", at("broken"), "git worktree repair"},
		{"an extension that git does not know", at("future"), "notyetinvented"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := FindRepository(context.Background(), c.dir)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v; want %q", err, c.want)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than a sentence: %q", err)
			}
			if errors.Is(err, ErrNoRepository) != (c.name == "no repository") {
				t.Errorf("ErrNoRepository for %v", err)
			}
		})
	}
}
