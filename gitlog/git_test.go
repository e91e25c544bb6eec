package gitlog

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// isolateGit keeps the tester's own configuration, home and surroundings out of a test, and gives its git a name.
func isolateGit(t testing.TB) {
	t.Helper()
	for _, name := range []string{"CI", "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"} {
		t.Setenv(name, "")
		os.Unsetenv(name)
	}
	home := t.TempDir()
	for name, value := range map[string]string{
		"HOME": home, "KNOOT_HOME": filepath.Join(home, ".knoot"), "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1",
		"GIT_AUTHOR_NAME": "Ash", "GIT_AUTHOR_EMAIL": "ash@example.org", "GIT_COMMITTER_NAME": "Ash", "GIT_COMMITTER_EMAIL": "ash@example.org",
	} {
		t.Setenv(name, value)
	}
}

// mustGit runs git as a person would, in dir, and returns what it printed without the last line's end.
func mustGit(t testing.TB, dir string, args ...string) string {
	t.Helper()
	out, err := tryGit(dir, args...)
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// tryGit returns stdout, or both outputs beside an error.
func tryGit(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", append([]string{"-c", "protocol.file.allow=always", "-c", "init.defaultBranch=main"}, args...)...)
	cmd.Dir = dir
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return string(out) + string(exit.Stderr), err
	}
	return strings.TrimSuffix(string(out), "\n"), err
}

// newRepository makes a repository with one commit; args go to `git init`.
func newRepository(t testing.TB, args ...string) *Repository {
	t.Helper()
	dir := realTempDir(t)
	mustGit(t, dir, append([]string{"init", "-q"}, args...)...)
	mustGit(t, dir, "commit", "-q", "--allow-empty", "-m", "first")
	return mustFind(t, dir)
}

func mustFind(t testing.TB, dir string) *Repository {
	t.Helper()
	repo, err := FindRepository(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return repo
}

// realTempDir is t.TempDir without symbolic links in its path, as git prints it.
func realTempDir(t testing.TB) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func mustWrite(t testing.TB, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
		t.Fatal(err)
	}
}

func TestGitVersion(t *testing.T) {
	isolateGit(t)
	if version, err := GitVersion(context.Background()); err != nil || version == "" {
		t.Fatalf("the git of this machine: %q, %v", version, err)
	}
	for _, c := range []struct{ out, version, complaint string }{
		{"git version 2.34.0", "2.34.0", ""},
		{"git version 2.39.5 (Apple Git-154)", "2.39.5", ""},
		{"git version 2.47.0.rc1.windows.1", "2.47.0.rc1.windows.1", ""},
		{"git version 3.0", "3.0", ""},
		{"git version 2.33.8", "2.33.8", "git 2.33.8 is too old: install git 2.34 or newer"},
		{"git version 1.8.3.1", "1.8.3.1", "git 1.8.3.1 is too old: install git 2.34 or newer"},
		{"hub 2.14", "", "names no version"},
		{"git version next", "", "names no version"},
	} {
		version, err := parseGitVersion(c.out)
		if version != c.version || (err == nil) != (c.complaint == "") || err != nil && !strings.Contains(err.Error(), c.complaint) {
			t.Errorf("%q: %q, %v; want %q, %q", c.out, version, err, c.version, c.complaint)
		}
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := GitVersion(context.Background()); !errors.Is(err, ErrNoGit) {
		t.Errorf("without git on PATH: %v", err)
	}
}

func TestGitEnvironment(t *testing.T) {
	own := []string{"HOME=/h", "GIT_DIR=/elsewhere", "GIT_INDEX_FILE=x", "GIT_TRACE2=1", "GIT_CONFIG_COUNT=1", "LC_ALL=de_DE", "GIT_ASKPASS=/editor", "LANGUAGE=de"}
	env := func(mode gitMode) []string { return git{gitDir: "/here", mode: mode}.environment(own) }
	last := func(env []string, name string) (value string, set bool) {
		for _, pair := range env {
			if v, ok := strings.CutPrefix(pair, name+"="); ok {
				value, set = v, true
			}
		}
		return value, set
	}
	for _, mode := range []gitMode{gitLocal, gitBackground, gitForeground} {
		for name, want := range map[string]string{"HOME": "/h", "GIT_DIR": "/here", "GIT_CONFIG_COUNT": "1", "LC_ALL": "C"} {
			if got, _ := last(env(mode), name); got != want {
				t.Errorf("mode %d: %s=%q, want %q", mode, name, got, want)
			}
		}
		for _, name := range []string{"GIT_INDEX_FILE", "GIT_TRACE2", "LANGUAGE"} {
			if _, set := last(env(mode), name); set {
				t.Errorf("mode %d: %s is set", mode, name)
			}
		}
	}
	if got, _ := last(env(gitBackground), "GIT_ASKPASS"); got != "" {
		t.Errorf("in the background GIT_ASKPASS=%q could open a window", got)
	}
	if got, _ := last(env(gitForeground), "GIT_ASKPASS"); got != "/editor" {
		t.Errorf("in the foreground GIT_ASKPASS=%q", got)
	}
	if got, _ := last(env(gitBackground), "GIT_TERMINAL_PROMPT"); got != "0" {
		t.Errorf("in the background GIT_TERMINAL_PROMPT=%q", got)
	}
}

func TestGitErrorSaysWhatIsWrong(t *testing.T) {
	for _, c := range []struct{ stderr, want string }{
		{"error: first\nfatal: second\nhint: third\n", "second"},
		{"warning: w\nerror: first\nerror: second\n", "first"},
		{"remote: no\nssh: later\n", "ssh: later"},
		{"", "exit status 3"},
	} {
		if got := complaint(c.stderr, 3); got != c.want {
			t.Errorf("%q: %q, want %q", c.stderr, got, c.want)
		}
	}
	for _, c := range []struct{ text, want string }{
		{"fatal: unable to access 'https://ash:s3cret@host/x.git/': 403", "fatal: unable to access 'https://host/x.git/': 403"},
		{"https://ghp_token@host/x", "https://host/x"},
		{"ssh://git@host/x git@host:x", "ssh://git@host/x git@host:x"},
		{"ssh://git:pass@host/x", "ssh://git@host/x"},
	} {
		if got := redact(c.text); got != c.want {
			t.Errorf("redact(%q) = %q, want %q", c.text, got, c.want)
		}
	}
}

// A helper that hangs must not outlive its git: in the background both are one process group.
func TestGitBackgroundEndsItsHelpers(t *testing.T) {
	isolateGit(t)
	repo := newRepository(t)
	dir := t.TempDir()
	fifo := filepath.Join(dir, "alive")
	mustWrite(t, filepath.Join(dir, "ssh"), "#!/bin/sh\necho $$ > "+fifo+".new; mv "+fifo+".new "+fifo+"; exec sleep 600\n")
	if err := os.Chmod(filepath.Join(dir, "ssh"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GIT_SSH_COMMAND", filepath.Join(dir, "ssh"))
	t.Setenv("GIT_SSH_VARIANT", "simple")
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		for {
			if _, err := os.Stat(fifo); err == nil {
				cancel()
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	_, err := repo.git().with(gitBackground).output(ctx, "ls-remote", "ssh://host/x")
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("a stopped command: %v", err)
	}
	pid, err := os.ReadFile(fifo)
	if err != nil {
		t.Fatal(err)
	}
	proc := filepath.Join("/proc", strings.TrimSpace(string(pid)), "stat")
	for range 2000 {
		state, err := os.ReadFile(proc)
		if err != nil || strings.Contains(string(state), ") Z") {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Error("the helper is still there two seconds after its git was stopped")
}

// ssh with ControlPersist leaves a process that keeps the stderr of the git which began the connection.
func TestGitWhoseConnectionGoesOn(t *testing.T) {
	isolateGit(t)
	repo := newRepository(t)
	script := filepath.Join(t.TempDir(), "ssh")
	mustWrite(t, script, "#!/bin/sh\nsleep 600 </dev/null >/dev/null &\necho $! >\"$0.pid\"\nshift\neval \"$@\"\n")
	if err := os.Chmod(script, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		text, err := os.ReadFile(script + ".pid")
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Errorf("the connection did not go on: %v", err)
		}
	})
	run := repo.git().with(gitBackground)
	run.config = []string{"core.sshCommand=" + script, "ssh.variant=simple"}
	want, err := repo.git().with(gitBackground).output(t.Context(), "ls-remote", repo.CommonDir)
	if err != nil {
		t.Fatal(err)
	}
	got, err := run.output(t.Context(), "ls-remote", "ssh://host"+repo.CommonDir)
	if err != nil || got != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
}

func TestGitRunsNoHook(t *testing.T) {
	isolateGit(t)
	repo := newRepository(t)
	mark := filepath.Join(t.TempDir(), "ran")
	hook := filepath.Join(repo.CommonDir, "hooks", "reference-transaction")
	mustWrite(t, hook, "#!/bin/sh\ntouch "+mark+"\n")
	if err := os.Chmod(hook, 0o755); err != nil {
		t.Fatal(err)
	}
	head := Hash(mustGit(t, repo.Root, "rev-parse", "HEAD"))
	if err := openRefs(repo).create(context.Background(), ownRefs+"memory/x", head); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("the person's reference-transaction hook ran for a ref of knoot's")
	}
	if logs, _ := filepath.Glob(filepath.Join(repo.CommonDir, "logs", "refs", "knoot*")); slices.Compact(logs) != nil {
		t.Errorf("a reflog was written: %v", logs)
	}
}
