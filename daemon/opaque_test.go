package daemon

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/gitlog"
)

// anyStatus has git look at the whole worktree however long it takes: a machine that does much else at once is slow.
var anyStatus = Options{cheapStatus: time.Minute}

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
	d := m.start(anyStatus)
	r.isOpen()
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
	d := m.start(anyStatus)
	r.isOpen()
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
	d := m.start(anyStatus)
	r.isOpen()
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
	d := m.start(anyStatus)
	r.isOpen()
	one := &agent{r: r, session: "one"}
	one.opaque(EventPreTool, "1")
	r.write("made.txt", "x\n")
	one.stop()
	if got := r.audited(d, gitlog.FileWritten); !slices.Equal(got, []string{"FileWritten made.txt"}) {
		t.Errorf("the audit log has %q", got)
	}
}

// The next hook of its context says that a call has ended, where nothing else does; what goes on is looked at again at the end.
func TestACallWithoutAnEndIsLookedAtWithTheNextHook(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	d := m.start(anyStatus)
	r.isOpen()
	one, helper := &agent{r: r, session: "one"}, &agent{r: r, session: "one", subagent: "helper"}
	one.opaque(EventPreTool, "1", "named.txt", "never.txt")
	r.write("named.txt", "x\n")
	r.write("made.txt", "x\n")
	helper.read("README.md")
	if got := r.audited(d, gitlog.FileWritten); len(got) != 0 {
		t.Errorf("another context's hook: %q", got)
	}
	one.read("README.md")
	if got, want := r.audited(d, gitlog.FileWritten), []string{"FileWritten made.txt", "FileWritten named.txt"}; !slices.Equal(got, want) {
		t.Errorf("the next hook: %q, want %q", got, want)
	}
	for _, path := range []string{"named.txt", "made.txt"} {
		if !d.state.wrote(sessionKey{"claude", "one"}, r.root, path) {
			t.Errorf("%s does not count as written", path)
		}
	}
	tick()
	r.write("later.txt", "x\n")
	one.read("README.md")
	one.opaque(EventPostTool, "1", "named.txt", "never.txt")
	if got, want := r.audited(d, gitlog.FileWritten), []string{"FileWritten later.txt", "FileWritten made.txt", "FileWritten named.txt"}; !slices.Equal(got, want) {
		t.Errorf("its end, after all: %q, want %q", got, want)
	}
	wantHolds(t, r, d, "one named.txt")
}

// Some agents say nothing of the end of an edit either: a patch in a here-document is a command line that Codex never runs.
func TestWritesOfACallWithoutAnEnd(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	d := m.start(anyStatus)
	r.isOpen()
	one := &agent{r: r, session: "one"}
	one.shell(EventPreTool, "patch", "src/billing.js", "src/never.js")
	r.write("src/billing.js", "patched\n")
	one.about("next.js")
	if got := r.audited(d, gitlog.FileWritten); !slices.Equal(got, []string{"FileWritten src/billing.js"}) {
		t.Errorf("after the next call's beginning: %q", got)
	}
	r.write("next.js", "x\n")
	one.prompt("go on")
	if got := r.audited(d, gitlog.FileWritten); !slices.Equal(got, []string{"FileWritten next.js", "FileWritten src/billing.js"}) {
		t.Errorf("after the turn: %q", got)
	}
	wantHolds(t, r, d, "one next.js", "one src/billing.js")

	// Calls beside each other are told from each other, and counted once.
	one.about("a.js")
	r.write("a.js", "1\n")
	one.about("b.js")
	r.write("b.js", "1\n")
	one.call(EventPostTool, "call a.js", "a.js")
	one.call(EventPostTool, "call b.js", "b.js")
	want := []string{"FileWritten a.js", "FileWritten b.js", "FileWritten next.js", "FileWritten src/billing.js"}
	if got := r.audited(d, gitlog.FileWritten); !slices.Equal(got, want) {
		t.Errorf("two calls at once: %q, want %q", got, want)
	}
}

// A denied write that happens all the same is found, whether the agent says so (its end comes as of any other) or not.
func TestReportCodex27833AWriteThatWasRefusedAndHappenedAnyway(t *testing.T) {
	for name, end := range map[string]func(*agent){
		"said":                     func(a *agent) { a.call(EventPostTool, "call src/billing.js", "src/billing.js") },
		"failed":                   func(a *agent) { a.call(eventToolFailure, "call src/billing.js", "src/billing.js") },
		"not said, the next call":  func(a *agent) { a.read("README.md") },
		"not said, the turn's end": func(a *agent) { a.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			r := m.repository("shop")
			d := m.start(anyStatus)
			r.isOpen()
			holder, other := &agent{r: r, session: "holder"}, &agent{r: r, session: "other"}
			holder.edit("src/billing.js")
			tick()
			if other.edit("src/billing.js") == "" {
				t.Fatal("it is allowed")
			}
			tick()
			r.write("src/billing.js", "anyway\n")
			end(other)
			if got := r.audited(d, gitlog.UngatedWrite); !slices.Equal(got, []string{"UngatedWrite src/billing.js"}) {
				t.Errorf("the audit log has %q", got)
			}
			told, want := holder.read("README.md"), "src/billing.js, which you hold, was changed after knoot refused that to ash's agent"
			if name == "said" || name == "failed" {
				want = "src/billing.js, which you hold, was written by ash's agent"
			}
			if !strings.Contains(told, want) {
				t.Errorf("the holder is told %q", told)
			}
			if text := other.prompt("on"); name == "not said, the turn's end" && !strings.Contains(text, "src/billing.js was changed though your write of it was refused") {
				t.Errorf("whose write it was is told %q", text)
			}
		})
	}
}

// What the holder does meanwhile, or a person who is present, is nobody else's.
func TestAWriteThatWasRefusedAndDidNotHappen(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	d := m.start(anyStatus)
	r.isOpen()
	holder, other := &agent{r: r, session: "holder"}, &agent{r: r, session: "other"}
	holder.edit("src/billing.js")
	refused := func() {
		t.Helper()
		if answer := other.about("src/billing.js"); answer.Deny == "" {
			t.Fatal("it is allowed")
		}
		tick()
	}
	refused()
	other.read("README.md")
	refused()
	holder.edits("src/billing.js", "done meanwhile\n")
	other.read("README.md")
	refused()
	holder.about("src/billing.js") // it has begun, and its end is not here yet
	r.write("src/billing.js", "half done\n")
	other.read("README.md")
	other.stop()
	if got := r.audited(d, gitlog.UngatedWrite); len(got) != 0 {
		t.Errorf("the audit log has %q", got)
	}
}

// The last that is known of a file is what the daemon saw written, not what the index has.
func TestWhatASessionWroteIsWhatALineIsComparedWith(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	d := m.start(anyStatus)
	r.isOpen()
	one := &agent{r: r, session: "one"}
	one.edits("src/billing.js", "floats\n")
	one.edits("src/gone.js", "x\n")
	one.removes("src/gone.js")
	settleAll(d)
	before := r.audited(d, gitlog.FileWritten, gitlog.PathRemoved)
	tick()
	one.opaque(EventPreTool, "1")
	r.write("src/billing.js", "")
	r.write("src/billing.js", "floats\n") // written anew, and the same
	one.opaque(EventPostTool, "1")
	if got := r.audited(d, gitlog.FileWritten, gitlog.PathRemoved); !slices.Equal(got, before) {
		t.Errorf("the same bytes: %q, before %q", got, before)
	}
	tick()
	one.opaque(EventPreTool, "2")
	r.write("src/billing.js", "cents\n") // as the index has it
	r.write("src/gone.js", "x\n")
	one.opaque(EventPostTool, "2")
	want := append(slices.Clone(before), "FileWritten src/billing.js", "FileWritten src/gone.js")
	slices.Sort(want)
	if got := r.audited(d, gitlog.FileWritten, gitlog.PathRemoved); !slices.Equal(got, want) {
		t.Errorf("put back: %q, want %q", got, want)
	}
}

// What another session has begun to write is its own, though its end comes later; and so is what a person who is present saves.
func TestWhatOthersAreAtIsNotTheLines(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	d := m.start(anyStatus)
	r.isOpen()
	one, two, helper := &agent{r: r, session: "one"}, &agent{r: r, session: "two"}, &agent{r: r, session: "one", subagent: "helper"}
	one.opaque(EventPreTool, "1")
	two.about("theirs.js")
	helper.about("helpers.js")
	r.write("theirs.js", "x\n")
	r.write("helpers.js", "x\n")
	r.write("saved.js", "x\n")
	wt := r.worktreeOf(d)
	person := party{Key: sessionKey{personAgent, "sam"}, Owner: "sam@example.com", Person: true, Root: r.root, Branch: "refs/heads/main"}
	wt.clone.arbiter.present(person, "")
	wt.clone.arbiter.wrote(person, []string{"saved.js"}, nil)
	one.opaque(EventPostTool, "1")
	settleAll(d)
	settleAll(d)
	for _, e := range wt.clone.clone.Events() {
		if (e.Kind == gitlog.FileWritten || e.Kind == gitlog.UngatedWrite) && e.Event.Agent == "claude" && e.Event.Session == "one" {
			t.Errorf("%v of %v counts as the line's", e.Kind, e.Event.Paths)
		}
	}
}

// Where the beginning of a line was not seen to, since the repository was being opened, its end is enough.
func TestALineWhoseBeginningNobodySawTo(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	d := m.start(anyStatus)
	r.isOpen()
	one := &agent{r: r, session: "one"}
	one.start("startup")
	tick()
	r.write("made.txt", "x\n")
	one.opaque(EventPostTool, "1")
	if got := r.audited(d, gitlog.FileWritten); !slices.Equal(got, []string{"FileWritten made.txt"}) {
		t.Errorf("the audit log has %q", got)
	}
}

// What has to be looked at is kept until it was, however much waits beside it.
func TestNoLineIsForgottenWhereMuchWaits(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	d := m.start(anyStatus)
	r.isOpen()
	one := &agent{r: r, session: "one"}
	oc := r.worktreeOf(d).clone
	settleAll(d)
	busy, free := make(chan struct{}), make(chan struct{})
	oc.later(func(context.Context) { close(busy); <-free })
	<-busy
	for range cap(oc.jobs) + 1 {
		oc.later(func(context.Context) {})
	}
	one.opaque(EventPreTool, "1")
	r.write("made.txt", "x\n")
	one.opaque(EventPostTool, "1")
	close(free)
	waitFor(t, "the others are done", func() bool { return len(oc.jobs) == 0 })
	oc.tick()
	if got := r.audited(d, gitlog.FileWritten); !slices.Equal(got, []string{"FileWritten made.txt"}) {
		t.Errorf("the audit log has %q", got)
	}
}

// What is looked at is bounded, and the whole worktree is left alone where that takes git long.
func TestSoManyFilesAreLookedAtAndNoMore(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	now := newClock()
	d := m.start(Options{Now: now.now, cheapStatus: time.Minute})
	r.isOpen()
	r.write("dirty.txt", "x\n")
	wt := r.worktreeOf(d)
	one := party{Key: sessionKey{"claude", "one"}, Root: r.root, Branch: "refs/heads/main"}
	call := &opaqueCall{tree: wt, by: one}
	looked := func(path string) bool { return slices.Contains(d.lookedAt(context.Background(), call), path) }
	if !looked("dirty.txt") {
		t.Error("what HEAD does not have is not looked at")
	}
	wt.statusTook.Store(int64(time.Hour))
	if looked("dirty.txt") {
		t.Error("the whole worktree is looked at though that takes long")
	}
	now.pass(time.Duration(statusAgain) * time.Millisecond)
	if !looked("dirty.txt") {
		t.Error("it is not tried again")
	}
	r.remember("money", "all money is integer cents", "src/billing.js")
	wt.clone.arbiter.claimFor(t, party{Key: sessionKey{"claude", "two"}, Root: r.root, Branch: "refs/heads/main"}, "held.js")
	if !looked("src/billing.js") || !looked("held.js") {
		t.Error("what facts are about, or somebody holds, is not looked at")
	}
	var all []*touch
	for i := range maxTouched {
		all = append(all, &touch{Root: r.root, Path: fmt.Sprintf("many/%d", i), Read: 1, At: d.now()})
	}
	d.state.mu.Lock()
	for _, subagent := range []string{"", "helper"} {
		d.state.commit(&stateRecord{At: d.now(), Session: one.Key, Subagent: subagent, Touched: all})
		for _, t := range all {
			t.Path = "more/" + t.Path
		}
	}
	d.state.mu.Unlock()
	if paths := d.lookedAt(context.Background(), call); len(paths) != maxLookedAt || !slices.Contains(paths, "held.js") {
		t.Errorf("%d paths are looked at", len(paths))
	}
}

// A line whose hook came too late runs all the same.
func TestALineWhoseHookCameTooLate(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	d := m.start(anyStatus)
	r.isOpen()
	h := &socket.Hook{Agent: "claude", Event: EventPreTool, Session: "one", Cwd: r.root, Tool: "Bash", ToolUse: "1", Shell: true, Opaque: true,
		Places: []socket.Place{{Root: r.root, Writes: []string{"named.txt"}}}}
	c := &hookCall{d: d, h: h, now: d.now(), places: d.placesOf(context.Background(), h, d.now()), key: sessionKey{"claude", "one"}}
	c.register()
	late, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer cancel()
	if c.arbitrate(late) != nil {
		t.Fatal("it is refused")
	}
	wantHolds(t, r, d)
	r.write("made.txt", "x\n")
	(&agent{r: r, session: "one"}).stop()
	if got := r.audited(d, gitlog.FileWritten); !slices.Equal(got, []string{"FileWritten made.txt"}) {
		t.Errorf("the audit log has %q", got)
	}
}
