package shell

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	if s.Suffix != "" {
		out += " …" + s.Suffix
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
		"git checkout '*.go'":               "checkout PATTERN: tracked / ….go",
		"git checkout -- 'src/d*/b.go'":     "checkout PATTERN: tracked /src …/b.go",
		"git checkout -- :/":                "checkout DIRECTORY: tracked",
		"git checkout -- ':!src' \"$FILE\"": "",
		"git checkout -- ':!src'":           "checkout DIRECTORY: tracked",

		"git restore .":                        "restore DIRECTORY: tracked /",
		"git restore -s HEAD~2 -SW src":        "restore DIRECTORY: tracked /src",
		"git restore --staged .":               "",
		"git restore src/a.go":                 "",
		"git restore --pathspec-from-file=x.t": "restore --pathspec-from-file: tracked",

		"git switch main":                       "",
		"git switch -m main":                    "switch --merge: tracked",
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
		"git stash push -- \"$f\"; git stash":   "stash: stash; stash: tracked stash",
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
		"git add '*'":                           "add PATTERN: tracked untracked takes /",
		"git add '*.md'":                        "add PATTERN: tracked untracked takes / ….md",
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

func TestWhatUndoesIsKeptBeforeWhatStages(t *testing.T) {
	t.Parallel()
	var got []string
	for _, s := range Read(`for i in {1..40}; do git add "*.$i"; done; git reset --hard; git add -A; git clean -fd`, empty).Sweeps {
		got = append(got, s.words())
	}
	var want []string
	for i := 1; i <= maxSweeps-2; i++ {
		want = append(want, fmt.Sprintf("add PATTERN: tracked untracked takes / ….%d", i))
	}
	if want = append(want, "reset --hard: tracked", "clean: untracked /"); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// The paths of sweeps count as all others do: what is beyond is opaque, and what needs no path is said in any case.
func TestSweepsHaveRoomForSoManyPaths(t *testing.T) {
	t.Parallel()
	for line, opaque := range map[string]bool{
		"d=" + strings.Repeat("d", 200) + "; for i in {1..2}; do git add $i$d/{1..500}/; done":                     false,
		"d=" + strings.Repeat("d", 200) + "; for i in {1..15}; do git add $i$d/{1..900}/; done; git reset --hard":  true,
		"d=" + strings.Repeat("d", 100<<10) + "; for i in {1..15}; do git add '*'\"$d$i\"; done; git reset --hard": true,
	} {
		res := Read(line, empty)
		named := 0
		for _, s := range res.Sweeps {
			named += len(s.Suffix) + len(strings.Join(s.Paths, ""))
		}
		last := res.Sweeps[len(res.Sweeps)-1]
		undoes := last.Command == "git reset --hard"
		if len(res.Sweeps) < 2 || named > maxNamed || undoes != opaque {
			t.Errorf("%.20s…: %d sweeps of %d bytes, the last is %s", line, len(res.Sweeps), named, last.Command)
		}
		if adds, _, _ := strings.Cut(line, "; git reset"); Read(adds, empty).Opaque != opaque {
			t.Errorf("%.20s…: opaque %v", adds, !opaque)
		}
	}
}

// What git does with the changes of others has been said: of each command that undoes, removes, puts away, stages or commits any, the
// sweeps say so, or the file is named.
func TestGitTakesNothingElse(t *testing.T) {
	t.Parallel()
	needBash(t)
	template := newSandbox(t, true)
	for _, command := range []string{
		"git reset --hard", "git reset -q --hard side", "git reset -q", "git reset --keep side", "git reset src/app.ts",
		"git checkout -q -f", "git checkout -q side", "git checkout -qf side", "git checkout -q -b topic", "git checkout -q .", "git checkout -q -- src", "git checkout HEAD -- src docs",
		"git checkout -- src/app.ts", "git checkout -q '*.ts'", "git checkout -q -- ':(glob)**/*.ts'", "cd docs && git checkout -q .", "cd docs && git checkout -q :/",
		"git restore .", "git restore src", "git restore --staged .", "git restore -SW src", "git restore src/app.ts", "git restore ':!docs'",
		"git switch -q side", "git switch -q -f side", "git switch -q --discard-changes side", "git switch -q -c topic", "git switch -q -C topic", "git switch -q -m side",
		"git clean -fq", "git clean -fdq", "git clean -n", "git clean -fdxq docs", "git clean -fXq", "cd docs && git clean -fdq", "cd docs && git clean -fdq ..", "git clean -fdq -e new.ts",
		"git stash -q", "git stash -q -u", "git stash push -q -- docs", "git stash push -q src", "git stash save -q x", "git stash -q -a", "git stash create", "git stash list", "git stash -q -k",
		"git add -A", "git add .", "cd docs && git add .", "cd docs && git add -A", "git add -u", "git add src", "git add src/app.ts", "git add '*.ts'", "git add '*'", "git add -n .", "git add -v src/new.ts docs",
		"git add :/", "cd docs && git add :/", "git stage .", "git add --refresh .", "git add --all src",
		"git commit -qam x", "git commit -q -m x", "git commit -qm x src", "git commit -qm x src/app.ts", "git commit -q --all -m x", "git commit -qa --amend --no-edit", "git commit -m x -a --dry-run",
		"git rm -rqf src", "git mv src code", "git stash -q && git stash pop -q",
	} {
		s := template.copy(t)
		before := s.changesOfOthers(t)
		res := Read(command, s.env)
		s.run(t, command)
		after := s.changesIn(t)
		for path, was := range before {
			now := after[path]
			tracked := was != "??"
			named := slices.ContainsFunc(res.Writes, func(w Write) bool {
				return w.Path == filepath.Join(s.root, path) || w.Tree && strings.HasPrefix(filepath.Join(s.root, path), w.Path+"/")
			})
			said := func(takes bool) bool {
				return slices.ContainsFunc(res.Sweeps, func(sweep Sweep) bool {
					reaches := len(sweep.Paths) == 0
					for _, dir := range sweep.Paths {
						reaches = reaches || dir == s.root || filepath.Join(s.root, path) == dir || strings.HasPrefix(filepath.Join(s.root, path), dir+"/")
					}
					return reaches && strings.HasSuffix(path, sweep.Suffix) && sweep.Takes == takes && (tracked && sweep.Tracked || !tracked && sweep.Untracked)
				})
			}
			there := s.has(path, "theirs\n")
			switch {
			case !there && !named && !said(false):
				t.Errorf("%s undoes %s, and said is %v", command, path, res.Sweeps)
			case there && said(false) && !strings.Contains(command, "-e new.ts") && !strings.Contains(command, "pop"):
				// More is said than is done where git is asked for a pattern, or has nothing to do: that is for git to say.
				if !strings.ContainsAny(command, "*!") && !strings.Contains(command, "-m side") && !strings.Contains(command, "clean -fq") {
					t.Errorf("%s leaves %s alone, and said is %v", command, path, res.Sweeps)
				}
			case there && now != was && !said(true) && !namesFile(command, path) && strings.TrimSpace(was) != strings.TrimSpace(now):
				// Staged or committed; what is staged already git commits all the same.
				t.Errorf("%s makes %q %q of %s, and said is %v", command, was, now, path, res.Sweeps)
			}
		}
		must(t, os.RemoveAll(filepath.Dir(s.root)))
	}
}

// changesOfOthers changes and adds files in the worktree, and returns them with what git status has for them.
func (s sandbox) changesOfOthers(t *testing.T) map[string]string {
	for _, path := range []string{"src/app.ts", "docs/guide.md", "VERSION", "src/new.ts", "docs/new/deep.md", "new.txt"} {
		file := filepath.Join(s.root, path)
		must(t, os.MkdirAll(filepath.Dir(file), 0o755))
		must(t, os.WriteFile(file, []byte("theirs\n"), 0o644))
	}
	return s.changesIn(t)
}

// changesIn is what git status has, by path.
func (s sandbox) changesIn(t *testing.T) map[string]string {
	command := exec.Command("git", "status", "--porcelain", "-z", "--untracked-files=all", "--no-renames")
	command.Dir, command.Env = s.root, s.environ()
	out, err := command.Output()
	must(t, err)
	changes := map[string]string{}
	for line := range strings.SplitSeq(string(out), "\x00") {
		if len(line) > 3 {
			changes[line[3:]] = line[:2]
		}
	}
	return changes
}

func (s sandbox) has(path, text string) bool {
	content, err := os.ReadFile(filepath.Join(s.root, path))
	return err == nil && string(content) == text
}

// namesFile says whether a command is about a file by its name.
func namesFile(command, path string) bool { return strings.Contains(command, path) }
