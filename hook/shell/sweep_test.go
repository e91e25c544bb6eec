package shell

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
)

// words say what a sweep does, with paths relative to the worktree.
func (s Sweep) words() string {
	out := strings.TrimPrefix(s.Command, "git ") + ":"
	for _, each := range []struct {
		is   bool
		word string
	}{{s.Tracked, "tracked"}, {s.Untracked, "untracked"}, {s.Takes, "takes"}, {s.Stash, "stash"}} {
		if each.is {
			out += " " + each.word
		}
	}
	for _, path := range s.Paths {
		out += " " + cmp.Or(strings.TrimPrefix(path, "/repo"), "/")
	}
	return out
}

func TestGitCommandsThatTakeTheTree(t *testing.T) {
	t.Parallel()
	env := empty
	env.Tree = fstest.MapFS{"repo/src/a.go": {}, "repo/src/deep/b.go": {}, "repo/docs/c.md": {}, "repo/a.go": {}}
	for line, want := range map[string]string{
		"git reset --hard":                           "reset --hard: tracked",
		"git reset -q --hard HEAD~1":                 "reset --hard: tracked",
		"git reset --soft HEAD~1; git reset -q a.go": "",
		"cd src && sudo git reset --hard":            "reset --hard: tracked",
		"bash -c 'git reset --hard && rm a.go'":      "reset --hard: tracked",
		"git -C src -c user.name=x reset --hard":     "reset --hard: tracked",
		"git --git-dir=/x reset --hard":              "",
		"cd \"$UNKNOWN\" && git reset --hard":        "",
		"git log -- reset --hard":                    "",
		"echo git reset --hard":                      "",

		"git checkout -f":                   "checkout --force: tracked",
		"git checkout -f main":              "checkout --force: tracked",
		"git checkout -fB topic":            "checkout --force: tracked",
		"git checkout main":                 "",
		"git checkout -b topic":             "",
		"git checkout .":                    "checkout DIRECTORY: tracked /",
		"git checkout HEAD~1 -- .":          "checkout DIRECTORY: tracked /",
		"cd src; git checkout -- .":         "checkout DIRECTORY: tracked /src",
		"git checkout -- src docs a.go":     "checkout DIRECTORY: tracked /docs /src",
		"git checkout -- a.go src/a.go":     "",
		"git checkout '*.go'":               "checkout DIRECTORY: tracked /",
		"git checkout -- 'src/d*/b.go'":     "checkout DIRECTORY: tracked /src",
		"git checkout -- :/":                "checkout DIRECTORY: tracked",
		"git checkout -- ':!src' \"$FILE\"": "",

		"git restore .":                        "restore DIRECTORY: tracked /",
		"git restore -s HEAD~2 -SW src":        "restore DIRECTORY: tracked /src",
		"git restore --staged .":               "",
		"git restore src/a.go":                 "",
		"git restore --pathspec-from-file=x.t": "restore --pathspec-from-file: tracked",

		"git switch main":                       "",
		"git switch -m main":                    "",
		"git switch -f main":                    "switch --force: tracked",
		"git switch --discard-changes -c new":   "switch --force: tracked",
		"git switch -C new":                     "",
		"git clean":                             "",
		"git clean -nfd":                        "",
		"git clean -fd":                         "clean: untracked /",
		"git clean -ffdx -e keep":               "clean: untracked /",
		"git clean -fX":                         "",
		"cd docs; git clean -f":                 "clean: untracked /docs",
		"git clean -f src a.tmp":                "clean: untracked /a.tmp /src",
		"git stash":                             "stash: tracked stash",
		"git stash -u -m 'git reset --hard'":    "stash: tracked untracked stash",
		"git stash push -- src a.go":            "stash: tracked stash /a.go /src",
		"git stash save -a notes":               "stash: tracked untracked stash",
		"git stash pop; git stash apply":        "stash pop: stash; stash apply: stash",
		"git stash list; git stash show -p":     "",
		"git stash drop":                        "stash drop: stash",
		"git stash; git stash":                  "stash: tracked stash",
		"git add -A":                            "add -A: tracked untracked takes",
		"git add --all && git commit -m x":      "add -A: tracked untracked takes",
		"git add .":                             "add .: tracked untracked takes /",
		"cd src && git add . && git commit":     "add .: tracked untracked takes /src",
		"git add src docs/c.md":                 "add DIRECTORY: tracked untracked takes /src",
		"git add -u":                            "add -u: tracked takes",
		"git stage -u src":                      "add -u: tracked takes /src",
		"git add a.go src/a.go src/*.go":        "",
		"git add '*'":                           "add DIRECTORY: tracked untracked takes /",
		"git add '*.md'":                        "",
		"git add :/":                            "add DIRECTORY: tracked untracked takes",
		"git add -n -A; git add -p; git add -N": "",
		"git commit -am 'x'":                    "commit -a: tracked takes",
		"git commit --all --amend --no-edit":    "commit -a: tracked takes",
		"git commit -m x; git commit -m -a":     "",
		"git commit -m x src":                   "commit DIRECTORY: tracked takes /src",
		"git commit -m x a.go":                  "",
		"git commit -a --dry-run":               "",
	} {
		var got []string
		for _, s := range Read(line, env).Sweeps {
			got = append(got, s.words())
		}
		if strings.Join(got, "; ") != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
	if res := Read("cd src; git reset --hard", env); len(res.Sweeps) != 1 || res.Sweeps[0].Dir != "/repo/src" {
		t.Errorf("where it runs: %v", res.Sweeps)
	}
	if res := Read("for i in {1..100}; do cd d$i; git reset --hard; done", env); len(res.Sweeps) != maxSweeps {
		t.Errorf("there are %d", len(res.Sweeps))
	}
	if res := Read(fmt.Sprintf("git add %s", strings.Repeat("src/ ", 50)), env); len(res.Sweeps) != 1 || len(res.Sweeps[0].Paths) != 1 {
		t.Errorf("one directory many times: %v", res.Sweeps)
	}
}
