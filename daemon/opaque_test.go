package daemon

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/gitlog"
)

// opaque is an event of a command line that may change any file.
func (a *agent) opaque(event, id string, paths ...string) *socket.Answer {
	a.r.m.t.Helper()
	return a.hook(event, func(h *socket.Hook) {
		h.Tool, h.ToolUse, h.Shell, h.Opaque, h.Places[0].Writes = "Bash", id, true, true, paths
	})
}

// tick waits until it is another millisecond: what happens in the same one has no order.
func tick() {
	for now := time.Now().UnixMilli(); time.Now().UnixMilli() == now; {
	}
}

// audited lists the events of kinds that the audit log has, as "kind path", sorted.
func (r *repository) audited(d *daemon, kinds ...gitlog.EntryKind) (list []string) {
	settleAll(d)
	settleAll(d) // what was found is told to the log by a job of its own
	for _, e := range r.worktreeOf(d).clone.clone.Events() {
		if slices.Contains(kinds, e.Kind) {
			list = append(list, e.Kind.String()+" "+e.Event.Paths[0].Path)
		}
	}
	slices.Sort(list)
	return list
}

func TestAHeldFileThatACommandLineWroteIsToldToBoth(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	d := m.start(Options{})
	holder, other := &agent{r: r, session: "holder"}, &agent{r: r, session: "other"}
	if denied := holder.edit("src/cart.js"); denied != "" {
		t.Fatal(denied)
	}
	tick()
	if answer := other.opaque(EventPreTool, "1"); answer.Deny != "" {
		t.Fatalf("an opaque line is refused: %s", answer.Deny)
	}
	r.write("src/cart.js", "by python\n")
	other.opaque(EventPostTool, "1")
	if got := r.audited(d, gitlog.UngatedWrite); !slices.Equal(got, []string{"UngatedWrite src/cart.js"}) {
		t.Errorf("the audit log has %q", got)
	}
	if told := other.read("README.md"); !strings.Contains(told, "src/cart.js was changed while your command ran") || strings.Contains(told, "which you wrote") {
		t.Errorf("whose command ran is told %q", told)
	}
	if told := holder.read("README.md"); !strings.Contains(told, "src/cart.js, which you hold, was changed while a command of ") || strings.Contains(told, "written by") {
		t.Errorf("the holder is told %q", told)
	}
	wantHolds(t, r, d, "holder src/cart.js")
}

func TestWhatChangedWhileACommandLineRan(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	for _, name := range []string{"same.txt", "changed.txt", "removed.txt", "pulled.txt", "named.txt", "theirs.txt"} {
		r.write(name, "before\n")
	}
	r.write(".gitignore", "*.log\n")
	m.git(r.root, "add", ".")
	m.git(r.root, "commit", "-qm", "files")
	d := m.start(Options{})
	one := &agent{r: r, session: "one"}
	one.opaque(EventPreTool, "1", "named.txt")
	r.write("changed.txt", "after\n")
	r.write("new.txt", "new\n")
	r.write("build.log", "ignored\n")
	r.write("named.txt", "as it was said\n")
	if err := os.Remove(filepath.Join(r.root, "removed.txt")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(filepath.Join(r.root, "same.txt"), time.Time{}, time.Now()); err != nil {
		t.Fatal(err)
	}
	one.opaque(EventPostTool, "1", "named.txt")
	want := []string{"FileWritten changed.txt", "FileWritten named.txt", "FileWritten new.txt", "PathRemoved removed.txt"}
	if got := r.audited(d, gitlog.FileWritten, gitlog.PathRemoved, gitlog.UngatedWrite); !slices.Equal(got, want) {
		t.Errorf("the audit log has %q, want %q", got, want)
	}
	for path, wrote := range map[string]bool{"changed.txt": true, "new.txt": true, "removed.txt": true, "same.txt": false, "build.log": false} {
		if d.state.wrote(sessionKey{"claude", "one"}, r.root, path) != wrote {
			t.Errorf("%s: wrote %v", path, !wrote)
		}
	}

	// Nothing more is found for a line that changes nothing, or that only brings what somebody committed.
	one.opaque(EventPreTool, "2")
	r.write("pulled.txt", "committed\n")
	m.git(r.root, "add", "pulled.txt")
	m.git(r.root, "commit", "-qm", "pulled", "pulled.txt")
	one.opaque(EventPostTool, "2")
	if got := r.audited(d, gitlog.FileWritten, gitlog.PathRemoved, gitlog.UngatedWrite); !slices.Equal(got, want) {
		t.Errorf("after a commit the audit log has %q", got)
	}

	// Nor what another session says that it wrote.
	two := &agent{r: r, session: "two"}
	one.opaque(EventPreTool, "3")
	tick()
	if denied := two.edit("theirs.txt"); denied != "" {
		t.Fatal(denied)
	}
	one.opaque(EventPostTool, "3")
	if got := r.audited(d, gitlog.UngatedWrite); len(got) != 0 {
		t.Errorf("another's write: %q", got)
	}
}

// A line that goes on in the background keeps what it named until the turn ends, and what it changes is found then.
func TestALineInTheBackground(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	d := m.start(Options{})
	one := &agent{r: r, session: "one"}
	background := func(event string) {
		one.hook(event, func(h *socket.Hook) {
			h.Tool, h.ToolUse, h.Shell, h.Background, h.Places[0].Writes = "Bash", "1", true, true, []string{"server.txt"}
		})
	}
	background(EventPreTool)
	background(EventPostTool)
	wantHolds(t, r, d, "one server.txt")
	r.write("server.txt", "started\n")
	one.stop()
	wantHolds(t, r, d)
	if got := r.audited(d, gitlog.FileWritten); !slices.Equal(got, []string{"FileWritten server.txt"}) {
		t.Errorf("the audit log has %q", got)
	}
}

// A call that nobody says the end of ends with the turn.
func TestAnOpaqueCallWithoutAnEnd(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	d := m.start(Options{})
	one := &agent{r: r, session: "one"}
	one.opaque(EventPreTool, "1")
	r.write("made.txt", "x\n")
	one.stop()
	if got := r.audited(d, gitlog.FileWritten); !slices.Equal(got, []string{"FileWritten made.txt"}) {
		t.Errorf("the audit log has %q", got)
	}
}
