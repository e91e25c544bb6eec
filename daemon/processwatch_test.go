package daemon

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"knoot.dev/knoot/daemon/socket"
)

func TestAgentPrograms(t *testing.T) {
	for _, c := range []struct {
		args []string
		want bool
	}{
		{[]string{"claude"}, true},
		{[]string{"/home/a/.local/bin/claude", "-p", "x"}, true},
		{[]string{"node", "--max-old-space-size=8192", "/usr/bin/codex"}, true},
		{[]string{"/usr/bin/node", "/opt/gemini.js"}, true},
		{[]string{"node", "/usr/lib/node_modules/@anthropic-ai/claude-code/cli.js"}, true},
		{[]string{"python3", "/usr/bin/aider"}, true},
		{[]string{"node", "server.js", "codex"}, false},
		{[]string{"bash", "-c", "claude"}, false},
		{[]string{"vim", "claude"}, false},
		{[]string{"node"}, false},
		{nil, false},
	} {
		if isAgentProgram(c.args) != c.want {
			t.Errorf("%q: %v, want %v", c.args, !c.want, c.want)
		}
	}
}

// program starts a program of that name that lives until it is stopped.
func program(t *testing.T, name string) (pid int, stop func()) {
	t.Helper()
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Skip(err)
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.Symlink(sleep, path); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	t.Cleanup(stop)
	return cmd.Process.Pid, stop
}

func TestProcessOfASession(t *testing.T) {
	t.Parallel()
	agent, _ := program(t, "codex")
	editor, _ := program(t, "vim")
	for _, c := range []struct {
		h    socket.Hook
		want int
	}{
		{socket.Hook{Process: 7, Ancestors: []int{agent}}, 7},
		{socket.Hook{Ancestors: []int{editor, agent, 1}}, agent},
		{socket.Hook{Ancestors: []int{editor, os.Getpid(), 1}}, 0},
		{socket.Hook{}, 0},
	} {
		if got := agentProcess(&c.h); got != c.want {
			t.Errorf("%+v: %d, want %d", c.h, got, c.want)
		}
	}
}

func TestProcessesThatGo(t *testing.T) {
	t.Parallel()
	dead, stop := program(t, "claude")
	alive, _ := program(t, "claude")
	sessions := []LiveSession{
		{Agent: "claude", ID: "dead", Process: dead, birth: birthOf(dead)},
		{Agent: "claude", ID: "alive", Process: alive, birth: birthOf(alive)},
		{Agent: "claude", ID: "reused", Process: alive, birth: birthOf(alive) + 1},
		{Agent: "claude", ID: "unknown"},
		{Agent: "claude", ID: "unborn", Process: 1 << 30},
	}
	var gone []string
	w := newProcessWatch(func() []LiveSession { return sessions }, func(key sessionKey) { gone = append(gone, key.ID) })
	look := func(when string, want ...string) {
		t.Helper()
		gone = nil
		if w.look(); !slices.Equal(gone, want) {
			t.Errorf("%s: gone are %q, want %q", when, gone, want)
		}
	}
	if birthOf(dead) == 0 || birthOf(alive) == 0 {
		t.Fatal("the start of a process is not known")
	}
	look("at first", "reused")
	look("nothing new")
	stop()
	look("once it ended", "dead")
	look("told once")
	sessions = sessions[1:]
	look("after the session is forgotten")
	sessions = append(sessions, LiveSession{Agent: "claude", ID: "dead", Process: dead, birth: 1})
	look("a session that comes back and goes again", "dead")
}
