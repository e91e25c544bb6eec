package mcpd

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

func TestWorktrees(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	alice := m.members("alice")[0]
	alice.refused("list-repos", nil, "[source] folder")
	source := filepath.Join(m.Home, "src")
	m.Write(filepath.Join(m.KnootHome, "config.toml"), "[mcp]\nport = 0\n[source]\nfolder = \"~/src\"\n")
	for _, name := range []string{"shop", "group/ledger"} {
		repo := filepath.Join(source, filepath.FromSlash(name))
		m.Git(m.Home, "init", "-q", "-b", "main", repo)
		m.Commit(repo, "README.md", name+"\n", "Begin")
	}
	m.Write(filepath.Join(source, "notes", "todo.txt"), "none\n")
	outside := filepath.Join(m.Home, "outside")
	m.Git(m.Home, "init", "-q", outside)
	if err := os.Symlink(outside, filepath.Join(source, "link")); err != nil {
		t.Fatal(err)
	}
	m.stop()
	m.start()
	shop := filepath.Join(source, "shop")
	var made created
	alice.call("create-worktree", args{"repo": "shop", "branch": "fix/dates"}, &made)
	if want := filepath.Join(source, "shop-worktrees", "fix-dates"); made.Path != want {
		t.Errorf("it is at %s, want %s", made.Path, want)
	}
	if got := m.Git(made.Path, "rev-parse", "--abbrev-ref", "HEAD"); got != "fix/dates" {
		t.Errorf("its branch is %s", got)
	}
	both := []Worktree{{"shop", shop}, {"fix-dates", made.Path}}
	ledger := filepath.Join(source, "group", "ledger")
	var repos []Repository
	alice.call("list-repos", nil, &repos)
	if want := []Repository{{"group/ledger", ledger, []Worktree{{"ledger", ledger}}}, {"shop", shop, both}}; !reflect.DeepEqual(repos, want) {
		t.Errorf("list-repos: %+v, want %+v", repos, want)
	}
	var trees []Worktree
	alice.call("list-worktrees", args{"repo": shop}, &trees)
	if !reflect.DeepEqual(trees, both) {
		t.Errorf("list-worktrees: %+v, want %+v", trees, both)
	}

	// Nothing is touched by what is refused.
	m.Write(filepath.Join(source, "shop-worktrees", "taken", "mine.txt"), "mine\n")
	elsewhere := t.TempDir()
	if err := os.Symlink(elsewhere, filepath.Join(source, "group", "ledger-worktrees")); err != nil {
		t.Fatal(err)
	}
	for want, arguments := range map[string]args{
		"there is a branch fix/dates":  {"repo": "shop", "branch": "fix/dates"},
		"there is a folder":            {"repo": "shop", "branch": "taken"},
		"outside of the source":        {"repo": "../outside", "branch": "b"},
		"leads out of the source":      {"repo": "link", "branch": "b"},
		"no repository notes":          {"repo": "notes", "branch": "b"},
		"no repository none":           {"repo": "none", "branch": "b"},
		"no commit":                    {"repo": "shop", "branch": "b", "base": "nowhere"},
		`no commit "--output=x"`:       {"repo": "shop", "branch": "b", "base": "--output=x"},
		`"../../up" is no name`:        {"repo": "shop", "branch": "../../up"},
		`"-d" is no name`:              {"repo": "shop", "branch": "-d"},
		`"a..b" is no name`:            {"repo": "shop", "branch": "a..b"},
		`"@{-1}" is no name`:           {"repo": "shop", "branch": "@{-1}"},
		`"/tmp/b" is no name`:          {"repo": "shop", "branch": "/tmp/b"},
		`".." is no name`:              {"repo": "shop", "branch": ".."},
		"no repository -x":             {"repo": "-x", "branch": "b"},
		"../outside is outside of the": {"repo": outside, "branch": "b"},
		"no folder":                    {"repo": "group/ledger", "branch": "b"}, // its folder of worktrees leads elsewhere
	} {
		alice.refused("create-worktree", arguments, want)
	}
	if entries, err := os.ReadDir(elsewhere); err != nil || len(entries) > 0 {
		t.Errorf("where a link leads there are %v, %v", entries, err)
	}
	if got := m.Git(shop, "branch", "--format=%(refname:short)"); got != "fix/dates\nmain" {
		t.Errorf("the branches are %q", got)
	}
	if text, err := os.ReadFile(filepath.Join(source, "shop-worktrees", "taken", "mine.txt")); err != nil || string(text) != "mine\n" {
		t.Errorf("what was there holds %q, %v", text, err)
	}
	first := m.Git(shop, "rev-parse", "HEAD")
	m.Commit(shop, "more.txt", "more\n", "More")
	alice.call("create-worktree", args{"repo": "shop", "branch": "old", "base": first}, &made)
	if got := m.Git(made.Path, "rev-parse", "HEAD"); got != first {
		t.Errorf("it begins at %s, want %s", got, first)
	}
}
