package gitlog

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestChooseRemote(t *testing.T) {
	isolateGit(t)
	for _, c := range []struct {
		name       string
		remotes    string
		commands   [][]string
		configured string
		want       string // the remote's name, or a part of the complaint
		inbox      string
	}{
		{name: "none", want: "has no remote"},
		{name: "the only one", remotes: "hub", want: "hub", inbox: "refs/knoot-remote/hub/"},
		{name: "upstream before origin", remotes: "origin upstream", want: "upstream"},
		{name: "the default branch's", remotes: "origin hub", commands: [][]string{{"config", "branch.main.remote", "hub"}}, want: "hub"},
		{name: "the default branch's, by the remote's HEAD", remotes: "origin hub", commands: [][]string{
			{"symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/trunk"}, {"config", "branch.trunk.remote", "hub"}, {"config", "branch.main.remote", "origin"}}, want: "hub"},
		{name: "a branch that follows a local one", remotes: "origin hub", commands: [][]string{{"config", "branch.main.remote", "."}}, want: "origin"},
		{name: "undecided", remotes: "a b", want: "a, b"},
		{name: "git's setting", remotes: "origin upstream", commands: [][]string{{"config", "knoot.remote", "origin"}}, configured: "upstream", want: "origin"},
		{name: "git's setting names none", remotes: "origin", commands: [][]string{{"config", "knoot.remote", "gone"}}, want: "no such remote"},
		{name: ".knoot.toml", remotes: "origin upstream", configured: "origin", want: "origin"},
		{name: ".knoot.toml names none", remotes: "origin", configured: "hub", want: "git remote add hub"},
		{name: ".knoot.toml names a program", remotes: "origin", configured: "ext::sh -c evil", want: "does not follow"},
		{name: ".knoot.toml names an option", remotes: "origin", configured: "--upload-pack=evil/x", want: "does not follow"},
		{name: "an address", remotes: "origin", configured: "https://ash:s3cret@example.org/memory.git", want: "https://example.org/memory.git"},
		{name: "a name with slashes", remotes: "team/hub", want: "team/hub", inbox: "refs/knoot-remote/team/hub/"},
	} {
		t.Run(c.name, func(t *testing.T) {
			repo := newRepository(t)
			for name := range strings.FieldsSeq(c.remotes) {
				mustGit(t, repo.Root, "remote", "add", name, "https://example.org/"+name)
			}
			for _, args := range c.commands {
				mustGit(t, repo.Root, args...)
			}
			r, err := chooseRemote(context.Background(), repo, c.configured)
			if err != nil {
				if !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrNoRemote) != (c.name == "none") {
					t.Errorf("%v; want %q", err, c.want)
				}
				return
			}
			if r.String() != c.want || c.inbox != "" && r.inbox != c.inbox {
				t.Errorf("%s into %s, want %s into %s", r, r.inbox, c.want, c.inbox)
			}
		})
	}
}

func TestRemoteAddress(t *testing.T) {
	isolateGit(t)
	repo := newRepository(t)
	mustGit(t, repo.Root, "remote", "add", "origin", "short:x.git")
	mustGit(t, repo.Root, "config", "url.https://ash:s3cret@example.org/.insteadOf", "short:")
	r, err := chooseRemote(context.Background(), repo, "")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := r.address(context.Background(), repo); err != nil || got != "https://example.org/x.git" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestFetchLines(t *testing.T) {
	isolateGit(t)
	ctx := context.Background()
	repo := newRepository(t)
	mustGit(t, repo.Root, "remote", "add", "origin", "https://example.org/x")
	const theirs = "+refs/heads/*:refs/remotes/%/*"
	lines := func(name string) []string {
		out := mustGit(t, repo.Root, "config", "--get-all", "remote."+name+".fetch")
		return strings.Split(out, "\n")
	}
	want := func(name string) []string {
		return []string{strings.Replace(theirs, "%", name, 1), "+refs/knoot/team/*:refs/knoot-remote/" + name + "/team/*", "+refs/knoot/memory/*:refs/knoot-remote/" + name + "/memory/*"}
	}
	ensure := func(wantChanged bool) string {
		t.Helper()
		r, err := chooseRemote(ctx, repo, "")
		if err != nil {
			t.Fatal(err)
		}
		changed, warning, err := r.ensureFetchLines(ctx, repo)
		if err != nil || changed != wantChanged {
			t.Fatalf("changed %v, %v; want %v", changed, err, wantChanged)
		}
		return warning
	}
	ensure(true)
	ensure(false)
	if !slices.Equal(lines("origin"), want("origin")) {
		t.Errorf("%q", lines("origin"))
	}

	l := openTestLog(t, repo)
	one := l.commit(t, "", "one")
	for _, name := range []string{inboxOf("origin") + memoryRef(1, 1), inboxOf("origin/two") + memoryRef(1, 1)} {
		if err := l.refs.create(ctx, name, one); err != nil {
			t.Fatal(err)
		}
	}
	mustGit(t, repo.Root, "remote", "rename", "origin", "hub")
	ensure(true)
	if !slices.Equal(lines("hub"), want("hub")) {
		t.Errorf("after a rename: %q", lines("hub"))
	}
	if l.at(t, inboxOf("origin")+memoryRef(1, 1)) != "" || l.at(t, inboxOf("origin/two")+memoryRef(1, 1)) != one {
		t.Error("the forsaken inbox stays, or another's went")
	}
	ensure(false)

	mustGit(t, repo.Root, "config", "--add", "remote.hub.fetch", "+refs/*:refs/*")
	if warning := ensure(false); !strings.Contains(warning, "+refs/*:refs/*") || !strings.Contains(warning, "remote.hub.fetch") {
		t.Errorf("a line that overwrites our log: %q", warning)
	}
	mustGit(t, repo.Root, "config", "--fixed-value", "--unset", "remote.hub.fetch", "+refs/*:refs/*")

	if err := removeFetchLines(ctx, repo); err != nil {
		t.Fatal(err)
	}
	if got := lines("hub"); !slices.Equal(got, want("hub")[:1]) {
		t.Errorf("after the removal: %q", got)
	}
	mustGit(t, repo.Root, "config", "--unset-all", "remote.hub.fetch")
	ensure(false) // a plain fetch of such a remote brings what the host's HEAD is; two lines of ours would end that
}

func TestFetchesIntoOurs(t *testing.T) {
	for line, want := range map[string]bool{
		"+refs/heads/*:refs/remotes/origin/*":                    false,
		"+refs/*:refs/*":                                         true,
		"+refs/knoot/*:refs/knoot/*":                             true,
		"refs/knoot/memory/x:refs/knoot/memory/x":                true,
		"+refs/k*:refs/k*":                                       true,
		"+refs/knoot/memory/*:refs/knoot-kept/memory/*":          true,
		"+refs/knoot/memory/*:refs/knoot-remote/origin/memory/*": false,
		"+refs/*:refs/mirror/*":                                  false,
		"^refs/knoot/*":                                          false,
		"main":                                                   false,
		"+refs/heads/*:*":                                        true,
	} {
		if got := fetchesIntoOurs(line); got != want {
			t.Errorf("%s: %v", line, got)
		}
	}
}

func TestDecoration(t *testing.T) {
	isolateGit(t)
	ctx := context.Background()
	for _, c := range []struct {
		name     string
		settings []string // key=value
	}{
		{"git's own", nil},
		{"all refs", []string{"log.initialDecorationSet=all"}},
		{"the person's filter", []string{"log.excludeDecoration=refs/pull"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := openTestLog(t, newRepository(t))
			for _, s := range c.settings {
				key, value, _ := strings.Cut(s, "=")
				mustGit(t, l.Root, "config", key, value)
			}
			one := l.commit(t, "", "one")
			name := ownRefs + memoryRef(1, 1)
			for _, ref := range []string{name, keptRefs + memoryRef(1, 1), inboxOf("origin") + memoryRef(1, 1)} {
				if err := l.refs.create(ctx, ref, one); err != nil {
					t.Fatal(err)
				}
			}
			shown := func() string { return mustGit(t, l.Root, "log", "-1", "--decorate=full", "--format=%D", string(one)) }
			before := shown()
			changed, err := hideDecoration(ctx, l.Repository, name)
			if err != nil || changed != strings.Contains(before, "refs/knoot") {
				t.Errorf("changed %v, %v, while git showed %q", changed, err, before)
			}
			if got := shown(); got != "" {
				t.Errorf("git shows %q", got)
			}
			if changed, err := hideDecoration(ctx, l.Repository, name); err != nil || changed {
				t.Errorf("a second time: %v, %v", changed, err)
			}
			if err := showDecoration(ctx, l.Repository); err != nil {
				t.Fatal(err)
			}
			if got := shown(); got != before {
				t.Errorf("after it was taken out git shows %q, before %q", got, before)
			}
		})
	}
}

func TestRemotesOfLinkedWorktree(t *testing.T) {
	isolateGit(t)
	repo := newRepository(t)
	mustGit(t, repo.Root, "remote", "add", "origin", "https://example.org/x")
	mustGit(t, repo.Root, "worktree", "add", "-q", filepath.Join(repo.Root, "linked"))
	linked := mustFind(t, filepath.Join(repo.Root, "linked"))
	r, err := chooseRemote(context.Background(), linked, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.ensureFetchLines(context.Background(), linked); err != nil {
		t.Fatal(err)
	}
	if got := mustGit(t, repo.Root, "config", "--get-all", "remote.origin.fetch"); !strings.Contains(got, "refs/knoot-remote/origin/memory/*") {
		t.Errorf("the lines are not in the common configuration: %q", got)
	}
}
