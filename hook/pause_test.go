package hook

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"knoot.dev/knoot/daemon/socket"
)

func TestSwitchedOff(t *testing.T) {
	for _, c := range []struct {
		env  []string
		want bool
	}{
		{nil, false}, {[]string{"KNOOT=off"}, true}, {[]string{"KNOOT=on"}, false}, {[]string{"KNOOT=x"}, false},
		{[]string{"CI=true"}, true}, {[]string{"CI=1", "KNOOT=on"}, false}, {[]string{"CI=1", "KNOOT=off"}, true}, {[]string{"CI="}, false},
	} {
		w := newWorld(t)
		w.env = append(w.env, c.env...)
		w.daemon(func(*socket.Request) *socket.Response {
			if c.want {
				t.Errorf("%v: the daemon was asked", c.env)
			}
			return &socket.Response{Answer: &socket.Answer{Context: "note"}}
		})
		out := w.hook(w.payload("SessionStart", nil))
		if (out == "") != c.want {
			t.Errorf("%v: %q", c.env, out)
		}
		if w.hook("no payload"); (w.failures() == "") != c.want {
			t.Errorf("%v: a failure of a hook that is off", c.env)
		}
		if out := w.run(w.payload("Stop", nil), "claude", "--explain"); out == "" {
			t.Errorf("%v: nothing explained", c.env)
		}
	}
}

func TestPausedByAFile(t *testing.T) {
	w := newWorld(t)
	ms := func(d time.Duration) string { return strconv.FormatInt(w.now.Add(d).UnixMilli(), 10) }
	files := map[string]string{"all": filepath.Join(w.home, "off"), "repository": filepath.Join(w.repo, ".git", "knoot", "off")}
	for name, file := range files {
		for text, asked := range map[string]bool{
			"": false, "\n": false, ms(time.Millisecond): false, ms(time.Hour) + "\n": false, "unknown": false,
			ms(0): true, ms(-time.Hour) + "\n": true, "0": true,
		} {
			w.write(text, file)
			if h := w.asked(w.payload("Stop", nil)); (h != nil) != asked {
				t.Errorf("%s: %q: asked %v", name, text, h != nil)
			}
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	if codes := w.failures(); codes != "" {
		t.Errorf("failures %s", codes)
	}
}

func TestPausedRepositoryBesideAnother(t *testing.T) {
	w := newWorld(t)
	on := filepath.Join(realPath(t.TempDir()), "on")
	w.mkdir(on, ".git")
	w.write("", w.repo, ".git", "knoot", "off")
	h := w.asked(w.tool("PreToolUse", "Write", filepath.Join(on, "x.go")))
	if h == nil || len(h.Places) != 1 || h.Places[0].Root != on {
		t.Errorf("%+v", h)
	}
	if h := w.asked(w.tool("PreToolUse", "Write", "x.go")); h != nil {
		t.Errorf("%+v", h)
	}
}

// The pause of a repository holds in its linked worktrees; a submodule is a repository of its own.
func TestCommonDirIsGits(t *testing.T) {
	w := newWorld(t)
	base := realPath(t.TempDir())
	repo, linked, other := filepath.Join(base, "repo"), filepath.Join(base, "linked"), filepath.Join(base, "other")
	for _, dir := range []string{repo, other} {
		w.git(base, "init", "-q", dir)
		w.git(dir, "commit", "-q", "--allow-empty", "-m", "first")
	}
	w.git(repo, "worktree", "add", "-q", linked)
	w.git(repo, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", other, "sub")
	for _, root := range []string{repo, linked, filepath.Join(repo, "sub"), other} {
		cmd := exec.Command("git", "-C", root, "rev-parse", "--path-format=absolute", "--git-common-dir")
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		if got, want := commonDir(root), string(bytes.TrimSpace(out)); got != want {
			t.Errorf("%s: %s, git says %s", root, got, want)
		}
	}
	for text, want := range map[string]string{
		"":                    filepath.Join(base, "odd", ".git"),
		"nonsense":            filepath.Join(base, "odd", ".git"),
		"gitdir: ../repo/x\n": filepath.Join(repo, "x"),
		"gitdir: " + strings.Repeat("x", 2*maxName): filepath.Join(base, "odd", strings.Repeat("x", maxName-len("gitdir: "))),
	} {
		w.write(text, base, "odd", ".git")
		if got := commonDir(filepath.Join(base, "odd")); got != want {
			t.Errorf("%.20q: %s", text, got)
		}
	}
	if got := commonDir(filepath.Join(base, "none")); got != filepath.Join(base, "none", ".git") {
		t.Error(got)
	}
}
