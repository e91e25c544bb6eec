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

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/gitlog"
)

// about asks before a write of paths.
func (a *agent) about(paths ...string) *socket.Answer {
	a.r.m.t.Helper()
	return a.call(EventPreTool, fmt.Sprint("call ", strings.Join(paths, " ")), paths...)
}

// call is an event of a tool call that writes paths.
func (a *agent) call(event, id string, paths ...string) *socket.Answer {
	a.r.m.t.Helper()
	return a.hook(event, func(h *socket.Hook) {
		h.Tool, h.ToolUse, h.Places[0].Writes = "Write", id, slices.Sorted(slices.Values(paths))
	})
}

// edit writes files as an agent does, if it may.
func (a *agent) edit(paths ...string) (denied string) {
	a.r.m.t.Helper()
	if answer := a.about(paths...); answer.Deny != "" {
		return answer.Deny
	}
	for _, path := range paths {
		a.r.write(path, a.session)
	}
	a.call(EventPostTool, fmt.Sprint("call ", strings.Join(paths, " ")), paths...)
	return ""
}

// standingClaims lists who holds what, as "session path", sorted.
func (r *repository) standingClaims(d *daemon) []string {
	r.m.t.Helper()
	var out []string
	for _, a := range d.arbitrations.all() {
		for _, s := range a.standing().Sessions {
			for _, c := range s.Claims {
				out = append(out, s.Session+" "+c.Path)
			}
		}
	}
	slices.Sort(out)
	return out
}

func wantHolds(t *testing.T, r *repository, d *daemon, want ...string) {
	t.Helper()
	if got := r.standingClaims(d); !slices.Equal(got, want) {
		t.Errorf("claims %q, want %q", got, want)
	}
}

// A turn that its person breaks off is over: its claims end, what was written and what was only asked for.
func TestAnInterruptedTurnEndsItsClaims(t *testing.T) {
	r := newMachine(t).repository("shop")
	d := r.m.start(Options{})
	one, two := &agent{r: r, session: "one"}, &agent{r: r, session: "two"}
	one.start("startup")
	one.edit("src/tax.js")
	one.about("src/cart.js")
	wantHolds(t, r, d, "one src/cart.js", "one src/tax.js")
	if answer := one.hook(eventInterrupt, nil); *answer != (socket.Answer{}) {
		t.Errorf("it is told %+v", answer)
	}
	wantHolds(t, r, d)
	if denied := two.edit("src/tax.js", "src/cart.js"); denied != "" {
		t.Errorf("after the interrupt: %q", denied)
	}
	if denied := one.edit("src/tax.js"); denied == "" {
		t.Error("the session goes on, and is not refused what another holds now")
	}
}

func TestSecondToWriteIsRefusedUntilTheFirstStops(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	d := m.start(Options{})
	one, two := &agent{r: r, session: "one"}, &agent{r: r, session: "two"}
	one.prompt("rewriting tax rounding for invoices")
	settleAll(d)
	if denied := one.edit("src/tax.js"); denied != "" {
		t.Fatalf("the first write: %q", denied)
	}
	if denied := one.edit("src/tax.js"); denied != "" {
		t.Errorf("the holder's own: %q", denied)
	}
	sub := &agent{r: r, session: "one", subagent: "sub"}
	if denied := sub.edit("src/tax.js"); denied != "" {
		t.Errorf("the holder's subagent: %q", denied)
	}
	answer := two.about("src/tax.js")
	for _, part := range []string{"src/tax.js has unfinished changes by ash's agent", "branch main", "last write just now", "10 minutes", `"rewriting tax rounding for invoices"`, "knoot wait src/tax.js"} {
		if !strings.Contains(answer.Deny, part) {
			t.Errorf("the denial lacks %q: %q", part, answer.Deny)
		}
	}
	if !strings.Contains(answer.Person, "src/tax.js") || answer.Context != "" {
		t.Errorf("the person reads %q, the agent also %q", answer.Person, answer.Context)
	}
	if denied := two.edit("src/cart.js"); denied != "" {
		t.Errorf("another file: %q", denied)
	}
	one.stop()
	if denied := two.edit("src/tax.js"); denied != "" {
		t.Errorf("after the first stopped: %q", denied)
	}
	wantHolds(t, r, d, "two src/cart.js", "two src/tax.js")
	settleAll(d)
	for kind, want := range map[gitlog.EntryKind]int{gitlog.ClaimAcquired: 3, gitlog.ClaimDenied: 1, gitlog.FileWritten: 5, gitlog.IntentDeclared: 1} {
		if n := countEvents(d, kind); n != want {
			t.Errorf("%d events %s, want %d", n, kind, want)
		}
	}
	seen := map[gitlog.Order]bool{}
	for _, oc := range d.clones.all() {
		for _, e := range oc.clone.Events() {
			if e.Event.Order == nil || seen[*e.Event.Order] {
				t.Errorf("the event %s has no place of its own in the order: %v", e.Kind, e.Event.Order)
				continue
			}
			seen[*e.Event.Order] = true
			if e.Kind == gitlog.ClaimDenied {
				token, _ := oc.clone.SessionToken("claude", "one")
				if e.Event.Session != "two" || !slices.Equal(e.Event.Other, token[:]) || e.Event.Paths[0].Path != "src/tax.js" {
					t.Errorf("ClaimDenied %+v", e.Event)
				}
			}
		}
	}
}

func TestPatchIsRefusedWhole(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	d := m.start(Options{})
	one, two := &agent{r: r, session: "one"}, &agent{r: r, session: "two"}
	one.edit("src/b.js")
	denied := two.edit("src/a.js", "src/b.js", "src/c.js")
	if !strings.Contains(denied, "Free in this patch: src/a.js, src/c.js. Resend it with those only.") {
		t.Errorf("denied: %q", denied)
	}
	wantHolds(t, r, d, "one src/b.js")
}

// One hook, two worktrees of one repository: all or nothing, too.
func TestPatchAcrossWorktreesIsRefusedWhole(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	d := m.start(Options{})
	m.git(r.root, "add", ".")
	m.git(r.root, "commit", "-qm", "knoot")
	m.git(r.root, "worktree", "add", "-q", "-b", "side", filepath.Join(m.vars["HOME"], "side"))
	side := &repository{m: m, root: filepath.Join(m.vars["HOME"], "side")}
	(&agent{r: side, session: "one"}).edit("src/b.js")
	two := &agent{r: r, session: "two"}
	ask := func(there string) *socket.Answer {
		return two.hook(EventPreTool, func(h *socket.Hook) {
			h.Tool, h.ToolUse, h.Places[0].Writes = "Write", there, []string{"src/a.js"}
			h.Places = append(h.Places, socket.Place{Root: side.root, Writes: []string{there}})
		})
	}
	if answer := ask("src/b.js"); !strings.Contains(answer.Deny, "branch side") || !strings.Contains(answer.Deny, "Free in this patch: src/a.js") {
		t.Errorf("denied: %q", answer.Deny)
	}
	wantHolds(t, r, d, "one src/b.js")
	if answer := ask("src/c.js"); answer.Deny != "" {
		t.Errorf("denied: %q", answer.Deny)
	}
	wantHolds(t, r, d, "one src/b.js", "two src/a.js", "two src/c.js")
	// The same file on another branch, in another worktree, is another file.
	if denied := two.edit("src/b.js"); denied != "" {
		t.Errorf("on another branch: %q", denied)
	}
}

func TestRefusalsOfATurnBecomeShorter(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	m.start(Options{})
	one, two := &agent{r: r, session: "one"}, &agent{r: r, session: "two"}
	one.edit("src/tax.js")
	first, second, third := two.about("src/tax.js"), two.about("src/tax.js"), two.about("src/tax.js")
	if strings.Count(first.Deny, "\n") != 3 || strings.Contains(second.Deny, "\n") || !strings.Contains(second.Deny, "again") ||
		!strings.Contains(third.Deny, "End your turn") {
		t.Errorf("refused:\n%s\n%s\n%s", first.Deny, second.Deny, third.Deny)
	}
	if first.Person == "" || second.Person != "" || third.Person != "" {
		t.Errorf("the person reads %q, %q, %q", first.Person, second.Person, third.Person)
	}
	two.prompt("go on")
	if again := two.about("src/tax.js"); again.Deny != first.Deny || again.Person == "" {
		t.Errorf("in the next turn: %q, %q", again.Deny, again.Person)
	}
	history, err := ReadHistory(m.gitlogHome(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	var shown []string
	for _, s := range history.Shown {
		if len(s.Denied) > 0 {
			shown = append(shown, s.Text)
		}
	}
	if want := []string{first.Deny, second.Deny, third.Deny, first.Deny}; !slices.Equal(shown, want) {
		t.Errorf("shown %q", shown)
	}
}

func TestBothCopiesOfADoubledHookAreDenied(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	d := m.start(Options{})
	one, two := &agent{r: r, session: "one"}, &agent{r: r, session: "two"}
	one.edit("src/tax.js")
	twice := func(a *agent, payload string) (texts []string) {
		for range 2 {
			answer := a.hook(EventPreTool, func(h *socket.Hook) {
				h.Tool, h.ToolUse, h.Payload, h.Places[0].Writes = "Write", payload, payload, []string{"src/tax.js"}
			})
			texts = append(texts, answer.Deny)
		}
		return texts
	}
	if texts := twice(two, "theirs"); texts[0] == "" || texts[1] != texts[0] {
		t.Errorf("denied: %q", texts)
	}
	if texts := twice(one, "own"); texts[0] != "" || texts[1] != "" {
		t.Errorf("denied its own: %q", texts)
	}
	settleAll(d)
	if n := countEvents(d, gitlog.ClaimDenied); n != 1 {
		t.Errorf("%d events ClaimDenied, want 1", n)
	}
	if answer := two.about("src/tax.js"); !strings.Contains(answer.Deny, "again") {
		t.Errorf("the second refusal: %q", answer.Deny)
	}
}

func TestWhenAClaimEnds(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	clock := newClock()
	d := m.start(Options{Now: clock.now})
	a, sub := &agent{r: r, session: "one"}, &agent{r: r, session: "one", subagent: "sub"}
	t.Run("a failed call that took it", func(t *testing.T) {
		a.call(EventPreTool, "1", "src/a.js")
		wantHolds(t, r, d, "one src/a.js")
		a.call(eventToolFailure, "1", "src/a.js")
		wantHolds(t, r, d)
	})
	t.Run("a failed call after a write", func(t *testing.T) {
		a.edit("src/a.js")
		a.call(EventPreTool, "2", "src/a.js")
		a.call(eventToolFailure, "2", "src/a.js")
		wantHolds(t, r, d, "one src/a.js")
	})
	t.Run("a call of which nothing was heard", func(t *testing.T) {
		a.call(EventPreTool, "3", "src/b.js")
		sub.call(EventPreTool, "4", "src/c.js")
		a.prompt("and now?")
		wantHolds(t, r, d, "one src/a.js", "one src/c.js")
		sub.hook(eventSubagentStop, nil)
		wantHolds(t, r, d, "one src/a.js")
	})
	t.Run("a shell that failed after it wrote", func(t *testing.T) {
		shell := func(event string) {
			a.hook(event, func(h *socket.Hook) {
				h.Tool, h.ToolUse, h.Shell, h.Places[0].Writes = "Bash", "5", true, []string{"src/d.js", "src/e.js"}
			})
		}
		shell(EventPreTool)
		r.write("src/d.js", "written")
		shell(eventToolFailure)
		wantHolds(t, r, d, "one src/a.js", "one src/d.js")
	})
	t.Run("stop, but for what a subagent in the background uses", func(t *testing.T) {
		sub.edit("src/c.js")
		a.hook(eventStop, func(h *socket.Hook) {
			h.Tasks = []socket.Task{{ID: "sub", Type: "subagent", Status: "running"}, {ID: "x", Type: "shell", Status: "running"}}
		})
		wantHolds(t, r, d, "one src/c.js")
		a.stop()
		wantHolds(t, r, d)
	})
	t.Run("the session's end", func(t *testing.T) {
		a.edit("src/a.js")
		a.hook(eventSessionEnd, nil)
		wantHolds(t, r, d)
	})
	t.Run("its lease", func(t *testing.T) {
		a.edit("src/a.js")
		clock.pass(6 * time.Minute)
		a.read("src/other.js") // any hook renews it
		clock.pass(6 * time.Minute)
		wantHolds(t, r, d, "one src/a.js")
		clock.pass(5 * time.Minute)
		wantHolds(t, r, d)
	})
	settleAll(d)
	reasons := map[arbiter.Reason]int{}
	d.tick()
	settleAll(d)
	for _, oc := range d.clones.all() {
		for _, e := range oc.clone.Events() {
			if e.Kind == gitlog.ClaimReleased {
				reasons[arbiter.Reason(e.Event.Reason)]++
			}
		}
	}
	for _, reason := range []arbiter.Reason{arbiter.Expired, arbiter.Failed, arbiter.Stopped, arbiter.EndOfLife, arbiter.CallEnded} {
		if reasons[reason] == 0 {
			t.Errorf("the audit log has no claim that ended for the reason %d: %v", reason, reasons)
		}
	}
}

// A call that takes long keeps its claim while the agent's process lives, without another hook.
func TestOpenCallKeepsItsClaim(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	clock := newClock()
	d := m.start(Options{Now: clock.now})
	a := &agent{r: r, session: "one"}
	call := func(process int, path string) {
		a.hook(EventPreTool, func(h *socket.Hook) { h.Process, h.ToolUse, h.Places[0].Writes = process, path, []string{path} })
	}
	call(os.Getpid(), "src/slow.js")
	for range 5 {
		clock.pass(6 * time.Minute)
		d.arbitrations.tick()
	}
	wantHolds(t, r, d, "one src/slow.js")
	for range 3 { // not for ever
		clock.pass(6 * time.Minute)
		d.arbitrations.tick()
	}
	wantHolds(t, r, d)
}

func TestClaimsMoveAlongWithHead(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	d := m.start(Options{})
	one, two := &agent{r: r, session: "one"}, &agent{r: r, session: "two"}
	one.edit("src/tax.js")
	m.git(r.root, "checkout", "-q", "-b", "other")
	one.read("src/cart.js")
	settleAll(d)
	if n := countEvents(d, gitlog.BranchMoved); n != 1 {
		t.Errorf("%d events BranchMoved, want 1", n)
	}
	if denied := two.edit("src/tax.js"); !strings.Contains(denied, "branch other") {
		t.Errorf("on the new branch: %q", denied)
	}
}

func TestModesOfClaims(t *testing.T) {
	m := newMachine(t)
	m.start(Options{})
	for i, mode := range []string{"deny", "note", "off"} {
		t.Run(mode, func(t *testing.T) {
			r := m.repository(mode)
			own, err := os.ReadFile(filepath.Join(r.root, gitlog.SettingsFile))
			if err != nil {
				t.Fatal(err)
			}
			r.write(gitlog.SettingsFile, string(own)+"\n[claims]\nmode = \""+mode+"\"\n")
			m.git(r.root, "add", ".")
			m.git(r.root, "commit", "-qm", "mode")
			one, two := &agent{r: r, session: fmt.Sprint("one", i)}, &agent{r: r, session: fmt.Sprint("two", i)}
			one.edit("src/tax.js")
			answer := two.about("src/tax.js")
			if denied := answer.Deny != ""; denied != (mode == "deny") {
				t.Errorf("denied: %q", answer.Deny)
			}
			if noted := strings.Contains(answer.Context, "ash's agent is at it too"); noted != (mode == "note") {
				t.Errorf("told: %q", answer.Context)
			}
		})
	}
}

func TestFilesThatAreNeverClaimed(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	d := m.start(Options{})
	r.write(".gitignore", "*.log\n")
	one, two := &agent{r: r, session: "one"}, &agent{r: r, session: "two"}
	wt, err := d.clones.find(t.Context(), r.root)
	if err != nil {
		t.Fatal(err)
	}
	wt.rules.Warm(t.Context()) // on a busy machine git may take longer than a hook waits for it
	one.edit("go.sum")
	one.edit("debug.log")
	for _, path := range []string{"go.sum", "debug.log"} {
		if denied := two.edit(path); denied != "" {
			t.Errorf("%s: %q", path, denied)
		}
	}
	wantHolds(t, r, d)
	settleAll(d)
	if n := countEvents(d, gitlog.FileWritten); n != 2 { // an ignored file concerns nobody
		t.Errorf("%d events FileWritten, want 2", n)
	}
}

// Whoever writes all the same, since their hook was answered by nobody, is not kept from it, and both sides' logs say so.
func TestReportClaudeCode31469UngatedWriteIsRecorded(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	d := m.start(Options{})
	one, two := &agent{r: r, session: "one"}, &agent{r: r, session: "two"}
	one.edit("src/tax.js")
	two.call(EventPostTool, "unseen", "src/tax.js")
	settleAll(d)
	if n := countEvents(d, gitlog.UngatedWrite); n != 1 {
		t.Errorf("%d events UngatedWrite, want 1", n)
	}
	wantHolds(t, r, d, "one src/tax.js")
}

func TestClaimsSurviveTheDaemon(t *testing.T) {
	for how, end := range map[string]func(t *testing.T, m *machine, old *process) string{
		"killed": func(t *testing.T, m *machine, old *process) string {
			if err := old.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			old.says(t)
			m.startProcess("1.0.0").says(t)
			return ""
		},
		"taken over": func(t *testing.T, m *machine, old *process) string {
			return m.startProcess("1.1.0").says(t)
		},
	} {
		t.Run(how, func(t *testing.T) {
			m := newMachine(t)
			r := m.repository("shop")
			old := m.startProcess("1.0.0")
			old.says(t)
			one, two, three := &agent{r: r, session: "one"}, &agent{r: r, session: "two"}, &agent{r: r, session: "three"}
			one.edit("src/tax.js")
			one.call(EventPreTool, "open", "src/open.js")
			if two.edit("src/tax.js") == "" {
				t.Fatal("not denied before")
			}
			end(t, m, old)
			r.isOpen()
			if denied := two.edit("src/tax.js"); !strings.Contains(denied, "again") {
				t.Errorf("after: %q", denied)
			}
			if denied := three.edit("src/open.js"); !strings.Contains(denied, "claimed") {
				t.Errorf("a claim of an open call, after: %q", denied)
			}
			one.call(eventToolFailure, "open", "src/open.js")
			if denied := three.edit("src/open.js"); denied != "" {
				t.Errorf("the call failed: %q", denied)
			}
			one.stop()
			if denied := two.edit("src/tax.js"); denied != "" {
				t.Errorf("after the holder's stop: %q", denied)
			}
		})
	}
}

// What the daemon knows is what a log of all its events adds up to, also after its file was written anew, and nothing is in an
// audit log twice.
func TestArbitersFileIsWrittenAnew(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	clock := newClock()
	d := m.start(Options{Now: clock.now})
	one, two := &agent{r: r, session: "one"}, &agent{r: r, session: "two"}
	one.edit("src/a.js")
	clock.pass(time.Second)
	two.call(EventPreTool, "open", "src/b.js")
	settleAll(d)
	a := d.arbitrations.all()[0]
	size := func() int64 {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.file.size
	}
	before := size()
	for range 200 {
		one.edit("src/a.js")
	}
	if err := a.rewrite(); err != nil {
		t.Fatal(err)
	}
	if now := size(); now > before*20 {
		t.Errorf("%d bytes, %d before 200 writes", now, before)
	}
	two.edit("src/c.js")
	settleAll(d)
	a.mu.Lock()
	view, clone := a.sequencer.View, d.clones.all()[0].clone
	a.mu.Unlock()
	a.close()
	again := newArbitration(d.arbitrations, a.id, clone)
	t.Cleanup(again.close)
	if !again.sequencer.View.Equal(view) {
		t.Error("another view")
	}
	if len(again.pending) != 0 {
		t.Errorf("%d events are owed again", len(again.pending))
	}
	if got := again.standing(); len(got.Sessions) != 2 || len(got.Sessions[1].Claims) != 2 || got.Sessions[1].Claims[0].Path != "src/b.js" {
		t.Errorf("standing %+v", got)
	}
	if call := again.lodgers[sessionKey{"claude", "two"}].calls[callKey{Root: r.root, ToolUse: "open"}]; call == nil || len(call.took) != 1 {
		t.Errorf("the open call: %+v", call)
	}
	if again.origin != a.origin || again.sequencer.Term <= a.sequencer.Term {
		t.Errorf("origin %x and %x, term %d after %d", again.origin, a.origin, again.sequencer.Term, a.sequencer.Term)
	}
}

// The time of events never goes back, whatever the clock does.
func TestClockThatJumps(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	clock := newClock()
	d := m.start(Options{Now: clock.now})
	a := &agent{r: r, session: "one"}
	a.edit("src/a.js")
	clock.pass(-time.Hour)
	a.edit("src/b.js")
	wantHolds(t, r, d, "one src/a.js", "one src/b.js")
	clock.pass(2 * time.Hour)
	wantHolds(t, r, d)
	settleAll(d)
	var last gitlog.Millis
	for _, oc := range d.clones.all() {
		events := oc.clone.Events()
		slices.SortFunc(events, func(a, b *gitlog.Stored) int {
			return int(int64(a.Event.Order.Seq) - int64(b.Event.Order.Seq))
		})
		for _, e := range events {
			if e.Time < last {
				t.Errorf("%s at %d after %d", e.Kind, e.Time, last)
			}
			last = e.Time
		}
	}
}

func TestPathFreedWithinASecond(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	d := m.start(Options{})
	one, two := &agent{r: r, session: "one"}, &agent{r: r, session: "two"}
	one.edit("src/a.js")
	if two.edit("src/a.js") == "" {
		t.Fatal("not denied")
	}
	a := d.arbitrations.all()[0]
	wt, err := d.clones.find(t.Context(), r.root)
	if err != nil {
		t.Fatal(err)
	}
	waited := make(chan error, 1)
	go func() {
		waited <- a.await(t.Context(), wt.party(t.Context(), sessionKey{"claude", "two"}, "", ""), wt.repo.GitDir, "src/a.js")
	}()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.await(ended, wt.party(t.Context(), sessionKey{"claude", "two"}, "", ""), wt.repo.GitDir, "src/a.js"); err != context.Canceled {
		t.Errorf("a wait that was given up: %v", err)
	}
	one.stop()
	if err := <-waited; err != nil {
		t.Errorf("waited: %v", err)
	}
	waitFor(t, "PathFreed", func() bool {
		d.settle(t.Context(), wt)
		return countEvents(d, gitlog.PathFreed) == 1
	})
}

// A worktree that is removed while its session holds something: what follows is in the audit log all the same.
func TestWorktreeThatIsRemoved(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	clock := newClock()
	d := m.start(Options{Now: clock.now})
	m.git(r.root, "add", ".")
	m.git(r.root, "commit", "-qm", "knoot")
	m.git(r.root, "worktree", "add", "-q", "-b", "side", filepath.Join(m.vars["HOME"], "side"))
	side := &repository{m: m, root: filepath.Join(m.vars["HOME"], "side")}
	(&agent{r: side, session: "one"}).edit("src/a.js")
	settleAll(d)
	m.git(r.root, "worktree", "remove", "--force", side.root)
	clock.pass(time.Hour)
	d.arbitrations.tick()
	(&agent{r: r, session: "two"}).edit("src/b.js")
	settleAll(d)
	if n := countEvents(d, gitlog.ClaimReleased); n != 1 {
		t.Errorf("%d events ClaimReleased, want 1", n)
	}
}

// A panic in the way of a claim is an allowed write, and the next claim works.
func TestFailureAllowsTheWrite(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	d := m.start(Options{})
	one, two := &agent{r: r, session: "one"}, &agent{r: r, session: "two"}
	one.edit("src/a.js")
	a := d.arbitrations.all()[0]
	a.mu.Lock()
	whole := a.sequencer
	a.sequencer = nil
	a.mu.Unlock()
	h := &socket.Hook{Agent: "claude", Event: EventPreTool, Session: "two", Cwd: r.root, Payload: "first", Places: []socket.Place{{Root: r.root, Writes: []string{"src/a.js"}}}}
	if resp, err := m.ask(&socket.Request{Op: "hook", Hook: h}); err != nil || resp.Answer != nil && *resp.Answer != (socket.Answer{}) {
		t.Errorf("answered %+v, %v", resp, err)
	}
	a.mu.Lock()
	a.sequencer = whole
	a.mu.Unlock()
	if answer := two.about("src/a.js"); answer.Deny == "" {
		t.Error("not denied once it works again")
	}
}

// A file that three sessions wrote is a hub: whoever is refused stands in line, is told its place, and gets its turn.
func TestHubIsTakenInTurns(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	d := m.start(Options{})
	var all []*agent
	for _, name := range []string{"one", "two", "three", "four"} {
		a := &agent{r: r, session: name}
		all = append(all, a)
		if denied := a.edit("src/index.js"); denied != "" {
			t.Fatalf("%s: %q", name, denied)
		}
		if name != "four" {
			a.stop()
		}
	}
	if denied := all[0].edit("src/index.js"); !strings.Contains(denied, "You are number 1 in its queue.") || !strings.Contains(denied, "has 2 minutes") {
		t.Errorf("the first in line: %q", denied)
	}
	if denied := all[1].edit("src/index.js"); !strings.Contains(denied, "You are number 2 in its queue.") {
		t.Errorf("the second in line: %q", denied)
	}
	all[3].stop()
	if denied := all[1].edit("src/index.js"); !strings.Contains(denied, "kept for ash's agent, whose turn it is (you are number 2") {
		t.Errorf("out of turn: %q", denied)
	}
	hubs := d.arbitrations.all()[0].hubs()
	if len(hubs) != 1 || hubs[0].Path != "src/index.js" || hubs[0].Holder != (sessionKey{}) ||
		!slices.Equal(hubs[0].Queue, []sessionKey{{"claude", "one"}, {"claude", "two"}}) {
		t.Errorf("hubs %+v", hubs)
	}
	if denied := all[0].edit("src/index.js"); denied != "" {
		t.Errorf("in its turn: %q", denied)
	}
	all[0].stop()
	// Whoever sits idle when its turn comes lets the next go first.
	if denied := all[2].edit("src/index.js"); denied == "" {
		t.Error("the third got before the second")
	}
	all[1].hook(eventStop, func(h *socket.Hook) { h.StopHook = true }) // its turn was held open for that, once
	if denied := all[2].edit("src/index.js"); denied != "" {
		t.Errorf("after the second sat idle: %q", denied)
	}
}

// Somebody else's presence holds a file like a session; the person's own agents are told, and nobody is asked to wait.
func TestPersonWhoHoldsAFile(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	d := m.start(Options{})
	wt, err := d.clones.find(t.Context(), r.root)
	if err != nil {
		t.Fatal(err)
	}
	by := wt.presence(t.Context(), "")
	wt.clone.arbiter.present(by, "moving the tax tables")
	wt.clone.arbiter.wrote(by, []string{"src/tax.js"}, nil)
	own := &agent{r: r, session: "own"}
	if answer := own.about("src/tax.js"); answer.Deny != "" || !strings.Contains(answer.Context, `src/tax.js: ash (a person) is at it too`) {
		t.Errorf("their own agent: %+v", answer)
	}
	other := &agent{r: r, session: "other"}
	answer := other.hook(EventPreTool, func(h *socket.Hook) { h.User, h.Places[0].Writes = "sam", []string{"src/tax.js"} })
	if !strings.Contains(answer.Deny, `unfinished changes by ash (a person) (branch main, last write just now): "moving the tax tables"`) ||
		strings.Contains(answer.Deny, "knoot wait") || strings.Contains(answer.Deny, "waits for") {
		t.Errorf("another's agent: %q", answer.Deny)
	}
}

// What the audit log says of a time is what was so then.
func TestAuditLogSaysWhoHeldWhat(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	clock := newClock()
	d := m.start(Options{Now: clock.now})
	one, two := &agent{r: r, session: "one"}, &agent{r: r, session: "two"}
	type moment struct {
		at    gitlog.Millis
		holds []string
	}
	var moments []moment
	look := func() {
		moments = append(moments, moment{d.now(), r.standingClaims(d)})
		clock.pass(time.Minute)
	}
	for _, step := range []func(){
		func() { one.edit("src/a.js") },
		func() { two.edit("src/a.js", "src/b.js") },
		func() { two.edit("src/b.js") },
		func() { clock.pass(4 * time.Minute); one.read("src/a.js") },
		func() { clock.pass(7 * time.Minute); two.read("src/c.js") },
		func() { one.stop() },
		func() { two.call(EventPreTool, "x", "src/d.js") },
		func() { two.call(eventToolFailure, "x", "src/d.js") },
		func() { clock.pass(11 * time.Minute) },
		func() { two.edit("src/e.js"); two.hook(eventSessionEnd, nil) },
	} {
		step()
		look()
	}
	d.tick()
	settleAll(d)
	clone := d.clones.all()[0].clone
	for i, want := range moments {
		var got []string
		for _, s := range StandingAt(clone.Events(), want.at, func(gitlog.DeviceID) string { return "" }, func(gitlog.DeviceID, []byte) string { return "" }).Sessions {
			for _, c := range s.Claims {
				got = append(got, s.Session+" "+c.Path)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want.holds) {
			t.Errorf("after step %d: the log says %q, it was %q", i, got, want.holds)
		}
	}
}

// A private session claims, and says no more than whose it is.
func TestPrivateSessionClaimsWithoutWords(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	d := m.start(Options{})
	one := &agent{r: r, session: "one"}
	one.hook(EventPrompt, func(h *socket.Hook) { h.Private, h.Prompt = true, "rewriting tax rounding for invoices" })
	settleAll(d)
	one.hook(EventPreTool, func(h *socket.Hook) { h.Private, h.Places[0].Writes = true, []string{"src/tax.js"} })
	denied := (&agent{r: r, session: "two"}).edit("src/tax.js")
	if !strings.Contains(denied, "is about to be changed by ash's agent (branch main, claimed just now; its lease has 10 minutes, more if they go on).\n") {
		t.Errorf("denied: %q", denied)
	}
}

// Of the lines that claims bring into a brief none is said while nothing is shared: a session alone is told nothing.
func TestSessionAloneHearsNothingOfClaims(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	m.start(Options{})
	a := &agent{r: r, session: "one"}
	for _, path := range []string{"src/a.js", "src/b.js", "src/a.js"} {
		if answer := a.about(path); *answer != (socket.Answer{}) {
			t.Errorf("before %s: %+v", path, answer)
		}
		r.write(path, "x")
		if answer := a.call(EventPostTool, "call "+path, path); *answer != (socket.Answer{}) {
			t.Errorf("after %s: %+v", path, answer)
		}
	}
	if answer := a.hook(eventStop, nil); *answer != (socket.Answer{}) {
		t.Errorf("at the turn's end: %+v", answer)
	}
}
