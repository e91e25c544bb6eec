package hook

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"knoot.dev/knoot/daemon/socket"
)

// standIn puts a knootd beside the hook that tells of its start: its arguments, session, descriptors, directory, environment.
// wait returns what it told, once it did.
func (w *world) standIn() (wait func() string) {
	w.t.Helper()
	pipe := filepath.Join(filepath.Dir(w.knootd), "told")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		w.t.Fatal(err)
	}
	w.write(`#!/bin/sh
{
	echo "args $*"
	for fd in 0 1 2; do [ /dev/fd/$fd -ef /dev/null ] && echo "fd $fd null"; done
	echo "open" $(ls /proc/$$/fd 2>/dev/null)
	echo "cwd $PWD"
	read -r pid name state parent group session rest </proc/$$/stat && echo "leads $((session == $$))"
	env
} >`+"'"+pipe+"'\n", w.knootd)
	if err := os.Chmod(w.knootd, 0o755); err != nil {
		w.t.Fatal(err)
	}
	return func() string {
		told, err := os.ReadFile(pipe) // opening waits for the writer
		if err != nil {
			w.t.Fatal(err)
		}
		return string(told)
	}
}

func (w *world) started() bool {
	w.t.Helper()
	_, err := os.Stat(filepath.Join(w.home, "autostart"))
	return err == nil
}

func TestReportClaudeCode77078AbsentDaemonIsStarted(t *testing.T) {
	w := newWorld(t)
	w.env = append(w.env, "CLAUDECODE=1", "CLAUDE_CODE_MESSAGING_TOKEN=t", "ANTHROPIC_API_KEY=k", "GEMINI_API_KEY=k", "COPILOT_CLI=1", "OPENCODE=1", "GIT_DIR=/elsewhere", "GIT_SSH_COMMAND=ssh -v",
		"KNOOT_AGENT=tidy", "PATH="+os.Getenv("PATH"))
	told := w.standIn()
	if out := w.hook(w.payload("SessionStart", nil)); out != "" {
		t.Errorf("said %q", out)
	}
	got := strings.Split(strings.TrimSpace(told()), "\n")
	want := []string{"args daemon --auto", "KNOOT_HOME=" + w.home, "GIT_SSH_COMMAND=ssh -v", "cwd /"}
	if _, err := os.Stat("/proc/self/stat"); err == nil {
		want = append(want, "leads 1", "fd 0 null", "fd 2 null")
	}
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("no %q in %q", line, got)
		}
	}
	for _, line := range got {
		for _, name := range []string{"CLAUDE", "ANTHROPIC", "GEMINI", "COPILOT", "OPENCODE", "GIT_DIR", "KNOOT_AGENT"} {
			if strings.HasPrefix(line, name) {
				t.Errorf("the daemon got %s", line)
			}
		}
	}
	if codes := w.failures(); codes != failStarted {
		t.Errorf("failures %q", codes)
	}
	for name, mode := range map[string]os.FileMode{"": 0o700, "autostart": 0o600} {
		if info, err := os.Stat(filepath.Join(w.home, name)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%q: %v, %v", name, info.Mode(), err)
		}
	}
}

func TestStartsAreRare(t *testing.T) {
	w := newWorld(t)
	told := w.standIn()
	prompt := w.payload("UserPromptSubmit", map[string]any{"prompt": "go on"})
	for _, step := range []struct {
		later time.Duration
		want  string
	}{
		{0, failStarted}, {0, failAbsent}, {startPause - time.Millisecond, failAbsent}, {time.Millisecond, failStarted},
		{-time.Hour, failStarted}, // the clock was set back
	} {
		w.now = w.now.Add(step.later)
		w.hook(prompt)
		if step.want == failStarted {
			told()
		}
		if codes := w.failures(); codes != step.want {
			t.Errorf("after %v: %q", step.later, codes)
		}
	}
}

func TestStartsAreForTheBeginningOfATurn(t *testing.T) {
	w := newWorld(t)
	w.standIn()
	for event := range claude.events {
		if event != "SessionStart" && event != "UserPromptSubmit" {
			w.hook(w.tool(event, "Write", "x.go"))
			if codes := w.failures(); codes != failAbsent || w.started() {
				t.Errorf("%s: %s, started %v", event, codes, w.started())
			}
		}
	}
	if err := os.Remove(filepath.Join(w.repo, ".git")); err != nil {
		t.Fatal(err)
	}
	w.hook(w.payload("SessionStart", nil))
	if codes := w.failures(); codes != failAbsent || w.started() {
		t.Errorf("outside of a repository: %s, started %v", codes, w.started())
	}
}

func TestNoStartWithoutAnExecutableOrAStamp(t *testing.T) {
	for name, spoil := range map[string]func(*world){
		"missing":         func(w *world) {},
		"not executable":  func(w *world) { w.write("", w.knootd) },
		"a directory":     func(w *world) { w.mkdir(w.knootd) },
		"on a lying PATH": func(w *world) { w.env = append(w.env, "PATH=.:testdata:") },
		"broken": func(w *world) {
			w.write("\x7fELF", w.knootd)
			if err := os.Chmod(w.knootd, 0o755); err != nil {
				w.t.Fatal(err)
			}
		},
		"stamp is a directory": func(w *world) { w.standIn(); w.mkdir(w.home, "autostart") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			spoil(w)
			w.hook(w.payload("SessionStart", nil))
			if codes := w.failures(); codes != failNoStart {
				t.Errorf("failures %q", codes)
			}
		})
	}
}

func TestOlderDaemonIsReplaced(t *testing.T) {
	defer func(v string) { socket.Version = v }(socket.Version)
	socket.Version = "1.2.0"
	for _, c := range []struct {
		event, daemon string
		want          bool
	}{
		{"SessionStart", "1.1.9", true}, {"SessionStart", "1.2.0", false}, {"SessionStart", "1.3.0", false}, {"PreToolUse", "1.1.9", false},
	} {
		w := newWorld(t)
		told := w.standIn()
		w.listen(func(conn net.Conn) {
			if _, err := socket.ReadRequest(bufio.NewReader(conn)); err != nil {
				t.Error(err)
			}
			if _, err := fmt.Fprintf(conn, "{\"version\":%q,\"answer\":{\"context\":\"note\"}}\n", c.daemon); err != nil {
				t.Error(err)
			}
		})
		if out := w.hook(w.tool(c.event, "Write", "x.go")); !strings.Contains(out, "note") {
			t.Errorf("%+v: said %q", c, out)
		}
		if w.started() != c.want {
			t.Errorf("%+v: started %v", c, w.started())
		} else if c.want {
			told()
		}
		if codes := w.failures(); codes != "" {
			t.Errorf("%+v: failures %s", c, codes)
		}
	}
}

func TestKnootdIsFoundWhereItIsInstalled(t *testing.T) {
	w := newWorld(t)
	base := realPath(t.TempDir())
	program := func(parts ...string) string {
		file := w.write("", filepath.Join(append([]string{base}, parts...)...))
		if err := os.Chmod(file, 0o755); err != nil {
			t.Fatal(err)
		}
		return file
	}
	beside := program("cellar", "knootd")
	knoot := program("cellar", "knoot")
	onPath := program("bin", "knootd")
	alone := program("store", "knoot")
	link := w.link(knoot, base, "bin", "knoot")
	path := func(string) string {
		return "relative:" + filepath.Join(base, "none") + ":" + filepath.Join(base, "bin")
	}
	none := func(string) string { return "" }
	for name, c := range map[string]struct {
		exe    string
		getenv func(string) string
		want   string
	}{
		"beside":               {knoot, path, beside},
		"beside, by a link":    {link, path, beside},
		"elsewhere on PATH":    {alone, path, onPath},
		"nowhere":              {alone, none, ""},
		"executable is gone":   {filepath.Join(base, "bin", "gone"), none, onPath},
		"executable is hidden": {"", path, onPath},
	} {
		got, err := Knootd(func() (string, error) { return c.exe, nil }, c.getenv)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}
