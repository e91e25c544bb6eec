package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"knoot.dev/knoot/integration/stage"
)

// A person sees what the agent's terminal shows, types to it, and leaves it running, by a key or by ending what shows it.
func TestAttach(t *testing.T) {
	t.Parallel()
	p := stage.NewPerson(t, "ash")
	repo := filepath.Join(p.Home, "shop")
	p.Git(p.Home, "init", "-q", "-b", "main", repo)
	p.Commit(repo, "README.md", "a shop\n", "start")
	p.Knoot(repo, "init")
	p.Write(filepath.Join(p.KnootHome, "config.toml"), "[mcp]\nport = 0\n[agents.echo]\ncommand = [\"sh\", \"-c\", \"echo ready; while read line; do stty size; echo heard $line; done\"]\n")
	p.StartDaemon()
	p.Knoot(repo, "agent", "add", "bob", "--type", "echo")
	p.Knoot(repo, "agent", "start", "bob")
	for _, leave := range []func(x *terminal, attach *os.Process){
		func(x *terminal, _ *os.Process) { x.types("not sent\x1d") },
		func(_ *terminal, attach *os.Process) { _ = attach.Signal(syscall.SIGTERM) },
	} {
		x := newTerminal(t, 70, 20)
		attach := p.Command(repo, filepath.Join(p.Bin, "knoot"), "agent", "attach", "bob")
		attach.Stdin, attach.Stdout, attach.Stderr = x.tty, x.tty, x.tty
		attach.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		if err := attach.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- attach.Wait() }()
		x.showsAll("ready")
		x.types("hello\r")
		x.showsAll("heard hello", "20 70")
		leave(x, attach.Process)
		x.showsAll("You left bob, which goes on.")
		if err := <-ended; err != nil {
			t.Errorf("it ends with %v:\n%s", err, x.text())
		}
	}
	if list := p.Knoot(repo, "agent", "stop", "bob"); !strings.Contains(list, "bob has ended") {
		t.Errorf("bob did not go on: %s", list)
	}
}
