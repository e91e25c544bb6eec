package daemon

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/gitlog"
)

// shell is an event of a command line that may write paths; those that end with a slash are trees.
func (a *agent) shell(event, id string, paths ...string) *socket.Answer {
	a.r.m.t.Helper()
	return a.hook(event, func(h *socket.Hook) {
		h.Tool, h.ToolUse, h.Shell = "Bash", id, true
		p := &h.Places[0]
		for _, path := range paths {
			tree, isTree := strings.CutSuffix(path, "/")
			if p.Writes = append(p.Writes, tree); isTree {
				p.Trees = append(p.Trees, tree)
			}
		}
		slices.Sort(p.Writes)
	})
}

func TestARemovedDirectoryTakesAllBelow(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	d := m.start(Options{})
	one, two := &agent{r: r, session: "one"}, &agent{r: r, session: "two"}
	r.write("src/deep/cart.js", "x\n")
	if denied := two.edit("src/deep/cart.js"); denied != "" {
		t.Fatal(denied)
	}
	for _, tree := range []string{"src/", "src/deep/"} {
		if answer := one.shell(EventPreTool, "1", tree); !strings.Contains(answer.Deny, "src/deep/cart.js") {
			t.Errorf("rm -r %s, and below it is what another holds: %q", tree, answer.Deny)
		}
	}
	if answer := one.shell(EventPreTool, "1", "src"); answer.Deny != "" {
		t.Errorf("the name of the directory alone: %q", answer.Deny)
	}
	if answer := one.shell(EventPreTool, "2", "docs/", "src/deep/cart.js"); !strings.Contains(answer.Deny, "src/deep/cart.js") {
		t.Errorf("a line of which one write is held: %q", answer.Deny)
	}
	two.stop()
	one.prompt("on")

	if answer := one.shell(EventPreTool, "3", "src/"); answer.Deny != "" {
		t.Errorf("rm -r src, and nobody holds anything: %q", answer.Deny)
	}
	wantHolds(t, r, d, "one src")
	if answer := two.about("src/deep/cart.js"); answer.Deny == "" {
		t.Error("a file below a directory that is being removed is free")
	}
	if answer := two.about("docs/guide.md"); answer.Deny != "" {
		t.Errorf("a file elsewhere: %q", answer.Deny)
	}
	if err := os.RemoveAll(filepath.Join(r.root, "src")); err != nil {
		t.Fatal(err)
	}
	one.shell(EventPostTool, "3", "src/")
	wantHolds(t, r, d, "two docs/guide.md")
	if answer := two.about("src/deep/cart.js"); answer.Deny != "" {
		t.Errorf("after it: %q", answer.Deny)
	}
	settleAll(d)
	removed := 0
	for _, e := range r.worktreeOf(d).clone.clone.Events() {
		if e.Kind == gitlog.PathRemoved {
			removed++
		}
	}
	if removed != 1 {
		t.Errorf("the audit log has %d removals", removed)
	}
}

// What a line named before it ran is what it is asked about afterwards, when its globs match other files.
func TestOnlyWhatACommandLineWroteCounts(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	d := m.start(Options{})
	one := &agent{r: r, session: "one"}
	for _, name := range []string{"a.txt", "b.txt", "c.txt"} {
		r.write(name, "before\n")
	}
	one.shell(EventPreTool, "1", "a.txt", "b.txt", "c.txt", "new.txt", "never.txt")
	wantHolds(t, r, d, "one a.txt", "one b.txt", "one c.txt", "one never.txt", "one new.txt")
	r.write("a.txt", "another length\n")
	r.write("new.txt", "x\n")
	if err := os.Remove(filepath.Join(r.root, "b.txt")); err != nil {
		t.Fatal(err)
	}
	one.shell(EventPostTool, "1", "*.txt")
	wantHolds(t, r, d, "one a.txt", "one b.txt", "one new.txt")
	d.state.mu.Lock()
	defer d.state.mu.Unlock()
	touched := d.state.sessions[sessionKey{"claude", "one"}].context("").touched[r.root]
	for path, wrote := range map[string]bool{"a.txt": true, "b.txt": true, "new.txt": true, "c.txt": false, "never.txt": false, "*.txt": false} {
		if (touched[path] != nil && touched[path].Wrote != 0) != wrote {
			t.Errorf("%s: %+v", path, touched[path])
		}
	}
}
