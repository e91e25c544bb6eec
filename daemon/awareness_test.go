package daemon

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/gitlog"
)

// before asks whether the agent may write, and reports the answer.
func (a *agent) before(path string) *socket.Answer {
	a.r.m.t.Helper()
	return a.hook(EventPreTool, func(h *socket.Hook) { h.Tool, h.ToolUse, h.Places[0].Writes = "Write", path, []string{path} })
}

// edits writes a text into a file as an agent does, and returns what both hooks told. A refusal is an error.
func (a *agent) edits(path, text string) string {
	a.r.m.t.Helper()
	answer := a.before(path)
	if answer.Deny != "" {
		a.r.m.t.Fatalf("%s may not write %s: %s", a.session, path, answer.Deny)
	}
	a.r.write(path, text)
	after := a.hook(EventPostTool, func(h *socket.Hook) { h.Tool, h.ToolUse, h.Places[0].Writes = "Write", path, []string{path} })
	return answer.Context + after.Context
}

// removes removes a file as an agent does with a shell.
func (a *agent) removes(path string) {
	a.r.m.t.Helper()
	if answer := a.before(path); answer.Deny != "" {
		a.r.m.t.Fatalf("%s may not remove %s: %s", a.session, path, answer.Deny)
	}
	if err := os.Remove(filepath.Join(a.r.root, path)); err != nil {
		a.r.m.t.Fatal(err)
	}
	a.hook(EventPostTool, func(h *socket.Hook) { h.Tool, h.ToolUse, h.Places[0].Writes = "Bash", path, []string{path} })
}

// tool is what a tool call that touches no file is told: news alone.
func (a *agent) tool() string { return a.hook(EventPostTool, nil).Context }

// hold is what the end of a turn is held open with.
func (a *agent) hold(change func(*socket.Hook)) string { return a.hook(eventStop, change).Hold }

// team is a daemon with a repository, and agents in it that have begun and heard of each other.
func team(t *testing.T, o Options, sessions ...string) (*repository, *daemon, []*agent) {
	t.Helper()
	m := newMachine(t)
	r := m.repository("shop")
	d := m.start(o)
	var all []*agent
	for _, session := range sessions {
		a := &agent{r: r, session: session}
		a.start("startup")
		all = append(all, a)
	}
	for _, a := range all {
		a.prompt("go on")
	}
	return r, d, all
}

// wantText checks that a text holds all these, or for no parts that it is empty.
func wantText(t *testing.T, what, text string, parts ...string) {
	t.Helper()
	if len(parts) == 0 && text != "" {
		t.Errorf("%s is told:\n%s", what, text)
	}
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s is told:\n%s\nwant in it: %s", what, text, part)
		}
	}
}

const changedInYourFiles = "- src/billing.js, which you read, was changed by ash's agent just now"

func TestAStaleReadIsToldOnce(t *testing.T) {
	_, d, all := team(t, Options{}, "one", "two", "three")
	one, two, three := all[0], all[1], all[2]
	one.read("src/billing.js")
	sub := &agent{r: one.r, session: "one", subagent: "sub"}
	two.edits("src/billing.js", "floats\n")
	wantText(t, "one, at any tool call,", one.hook(EventPreTool, nil).Context, changedInYourFiles, "in your files now, read it again")
	wantText(t, "one, again,", one.read("src/other.js"))
	wantText(t, "whoever did not read it", three.prompt("x"))
	wantText(t, "a subagent that did not read it", sub.read("src/other.js"))
	wantText(t, "the writer", two.prompt("x"))
	two.edits("src/billing.js", "decimals\n")
	wantText(t, "one, who has not read it again,", one.tool())
	one.read("src/billing.js")
	two.edits("src/billing.js", "euros\n")
	wantText(t, "one, who has,", one.tool(), changedInYourFiles, "(again)")
	settled(t, d, gitlog.StaleRead, 2)
}

// settled waits until the audit log has so many events of a kind.
func settled(t *testing.T, d *daemon, kind gitlog.EntryKind, want int) {
	t.Helper()
	waitFor(t, "the log has it", func() bool {
		settleAll(d)
		return countEvents(d, kind) >= want
	})
	if n := countEvents(d, kind); n != want {
		t.Errorf("%d events %s, want %d", n, kind, want)
	}
}

// Who read the new text before the news could be told hears nothing.
func TestReadingAgainSettlesAStaleRead(t *testing.T) {
	_, _, all := team(t, Options{}, "one", "two")
	all[0].read("src/billing.js")
	all[1].edits("src/billing.js", "floats\n")
	wantText(t, "the reader", all[0].read("src/billing.js")+all[0].tool())
}

// After compaction the context does not know what it read.
func TestACompactedContextHasReadNothing(t *testing.T) {
	_, _, all := team(t, Options{}, "one", "two")
	all[0].read("src/billing.js")
	all[1].edits("src/billing.js", "floats\n")
	if text := all[0].start("compact"); strings.Contains(text, "which you read") {
		t.Errorf("told %s", text)
	}
	all[1].edits("src/billing.js", "euros\n")
	if text := all[0].prompt("x"); strings.Contains(text, "which you read") {
		t.Errorf("told %s", text)
	}
}

func TestOwnPullIsNoNews(t *testing.T) {
	r, _, all := team(t, Options{}, "one", "two")
	all[0].read("src/billing.js")
	// A pull, a switch and a rebase write files that no hook names.
	r.write("src/billing.js", "pulled\n")
	wantText(t, "the reader", all[0].hook(EventPostTool, func(h *socket.Hook) { h.Tool, h.Opaque = "Bash", true }).Context)
}

func TestARemovalIsToldWhenTheFileIsGone(t *testing.T) {
	r, _, all := team(t, Options{}, "one", "two")
	one, two := all[0], all[1]
	one.read("src/billing.js")
	two.removes("src/billing.js")
	r.write("src/billing.js", "back\n") // git checkout, say
	wantText(t, "the reader, while it is there,", one.tool())
	if err := os.Remove(filepath.Join(r.root, "src/billing.js")); err != nil {
		t.Fatal(err)
	}
	wantText(t, "the reader", one.tool(), "- src/billing.js, which you read, was removed by ash's agent", "it is gone")
	wantText(t, "the reader, again,", one.tool())
}

func TestWhoeverWasDeniedHearsThatItIsFree(t *testing.T) {
	_, _, all := team(t, Options{}, "one", "two")
	one, two := all[0], all[1]
	one.edits("src/billing.js", "floats\n")
	if two.before("src/billing.js").Deny == "" {
		t.Fatal("not denied")
	}
	wantText(t, "two, while it is held,", two.read("src/other.js"))
	wantText(t, "two's end, while it is held,", two.hold(nil))
	two.prompt("go on")
	one.stop()
	wantText(t, "two", two.hook(EventPostTool, nil).Context, "- src/billing.js, which you were denied, is free now: ash's agent is done with it")
	wantText(t, "two, again,", two.prompt("x")+two.hold(nil))
	two.edits("src/billing.js", "euros\n")
}

// A subagent's session hears what the subagent waited for.
func TestASubagentsWaitPassesToItsSession(t *testing.T) {
	_, _, all := team(t, Options{}, "one", "two")
	one := all[0]
	one.edits("src/billing.js", "floats\n")
	sub := &agent{r: one.r, session: "two", subagent: "sub"}
	if sub.before("src/billing.js").Deny == "" {
		t.Fatal("not denied")
	}
	sub.hook(eventSubagentStop, nil)
	one.stop()
	wantText(t, "the session", all[1].prompt("x"), "which you were denied, is free now")
}

// A subagent that has ended reads nothing any more, so nothing is stale for it; one that goes on hears of it.
func TestAStoppedSubagentIsNewsOnce(t *testing.T) {
	_, d, all := team(t, Options{}, "one", "two")
	one, two := all[0], all[1]
	one.read("src/billing.js")
	sub := &agent{r: one.r, session: "one", subagent: "sub"}
	sub.read("src/billing.js")
	sub.hook(eventSubagentStop, nil)
	var first string
	for i, text := range []string{"floats\n", "decimals\n", "euros\n"} {
		two.edits("src/billing.js", text)
		d.state.mu.Lock()
		news := d.state.sessions[sessionKey{"claude", "one"}].contexts["sub"].news
		if len(news) != 1 || i > 0 && news[0].Key != first {
			t.Errorf("after %d changes: %+v", i+1, news)
		}
		first = news[0].Key
		d.state.mu.Unlock()
	}
	settled(t, d, gitlog.StaleRead, 1) // one's
	wantText(t, "the subagent that goes on", sub.hook(EventSubagentStart, nil).Context, changedInYourFiles)
	two.edits("src/billing.js", "cents\n")
	sub.read("src/billing.js")
	two.edits("src/billing.js", "floats\n")
	wantText(t, "the subagent that reads again", sub.tool(), changedInYourFiles)
}

func TestTheTurnIsHeldForWhatItWaitedFor(t *testing.T) {
	for _, c := range []struct {
		name   string
		config string
		change func(*socket.Hook)
		held   bool
	}{
		{"held", "", nil, true},
		{"it was held before", "", func(h *socket.Hook) { h.StopHook = true }, false},
		{"background tasks run", "", func(h *socket.Hook) { h.Tasks = []socket.Task{{ID: "1", Status: "running"}} }, false},
		{"turned off", "[brief]\nhold_stop = false\n", nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t)
			r := m.repository("shop")
			writeFile(t, filepath.Join(m.loc.Home, "config.toml"), c.config)
			m.start(Options{})
			one, two := &agent{r: r, session: "one"}, &agent{r: r, session: "two"}
			one.edits("src/billing.js", "floats\n")
			two.prompt("go on")
			if two.before("src/billing.js").Deny == "" {
				t.Fatal("not denied")
			}
			one.stop()
			if text := two.hold(c.change); c.held {
				wantText(t, "two's end", text, holdHeading, "- src/billing.js, which you were denied, is free now")
				wantText(t, "two's end, again,", two.hold(nil))
				wantText(t, "two, at the next prompt,", two.prompt("x"))
			} else {
				wantText(t, "two's end", text)
				wantText(t, "two, at the next prompt,", two.prompt("x"), "which you were denied, is free now")
			}
		})
	}
}

// A turn that goes on keeps what it holds.
func TestAHeldTurnKeepsItsClaims(t *testing.T) {
	r, d, all := team(t, Options{}, "one", "two")
	one, two := all[0], all[1]
	one.edits("src/billing.js", "floats\n")
	two.edits("src/tax.js", "7\n")
	if two.before("src/billing.js").Deny == "" {
		t.Fatal("not denied")
	}
	one.stop()
	wantText(t, "two's end", two.hold(nil), "is free now")
	wantHolds(t, r, d, "two src/tax.js")
	two.hold(func(h *socket.Hook) { h.StopHook = true })
	wantHolds(t, r, d)
}

// What was denied in an earlier turn holds nothing open.
func TestAnEarlierTurnsDenialHoldsNothing(t *testing.T) {
	_, _, all := team(t, Options{}, "one", "two")
	one, two := all[0], all[1]
	one.edits("src/billing.js", "floats\n")
	two.before("src/billing.js")
	two.prompt("something else")
	one.stop()
	wantText(t, "two's end", two.hold(nil))
	wantText(t, "two, at the next prompt,", two.prompt("x"), "which you were denied, is free now")
}

// send sends a message through the daemon.
func (a *agent) send(to, text string, urgent bool) {
	a.r.m.t.Helper()
	body, err := json.Marshal(MessageRequest{To: to, Text: text, Urgent: urgent})
	if err != nil {
		a.r.m.t.Fatal(err)
	}
	a.r.m.mustAsk(&socket.Request{Op: "msg", Dir: a.r.root, Body: body, Caller: &socket.Caller{Session: a.session, Agent: true}})
}

func TestMailIsToldOnceAndUrgentMailHoldsTheTurn(t *testing.T) {
	_, _, all := team(t, Options{}, "session-one", "session-two")
	one, two := all[0], all[1]
	one.send("session-two", "the rounding is done", false)
	wantText(t, "two", two.hook(EventPreTool, nil).Context, `- message from claude-session- (an agent), just now: "the rounding is done"`)
	wantText(t, "two, again,", two.prompt("x"))
	one.send("session-two", "stop", true)
	wantText(t, "two's end", two.hold(nil), `- urgent message from claude-session- (an agent), just now: "stop"`)
	one.send("session-two", "stop now", true)
	wantText(t, "two's end, a second time in the turn,", two.hold(nil))
	wantText(t, "two, at the next prompt,", two.prompt("x"), `"stop now"`)
	// Read is what was never told.
	one.send("session-two", "never mind", false)
	two.r.m.mustAsk(&socket.Request{Op: "inbox", Dir: two.r.root, Caller: &socket.Caller{Session: "session-two", Agent: true}})
	wantText(t, "two, who read it,", two.prompt("x"))
}

func TestPeersPlansAndDecisions(t *testing.T) {
	r, d, all := team(t, Options{}, "one", "two")
	one, two := all[0], all[1]
	one.prompt("rewrite the tax rounding of invoices")
	one.edits("src/tax.js", "7\n")
	two.read("src/billing.js")
	wantText(t, "two", two.prompt("x"), `- ash's agent is in src/tax.js in your working tree: "rewrite the tax rounding of invoices" (derived)`)
	wantText(t, "two, again,", two.prompt("x"))
	plan := func(request gitlog.PlanRequest) {
		body, err := json.Marshal(request)
		if err != nil {
			t.Fatal(err)
		}
		r.m.mustAsk(&socket.Request{Op: "plan", Dir: r.root, Body: body, Caller: &socket.Caller{Session: "one", Agent: true}})
	}
	plan(gitlog.PlanRequest{Text: "rounding at the total", Decided: []string{"half-even"}})
	two.read("src/billing.js") // it is at that still
	wantText(t, "two", two.prompt("x"), `- ash's agent is in src/tax.js in your working tree: "rounding at the total"; decided: half-even`)
	plan(gitlog.PlanRequest{Clear: true})
	wantText(t, "two, of what it knows,", two.prompt("x"))
	settled(t, d, gitlog.PlanDeclared, 2)
}

// A private session takes its claims and shares no word.
func TestAPrivateSessionSharesNoWords(t *testing.T) {
	r, d, all := team(t, Options{}, "two")
	two := all[0]
	private := func(h *socket.Hook) { h.Private = true }
	one := &agent{r: r, session: "one"}
	one.hook(EventPrompt, func(h *socket.Hook) { h.Private, h.Prompt = true, "rewrite the tax rounding of secret invoices" })
	one.hook(EventPreTool, func(h *socket.Hook) { private(h); h.Places[0].Writes = []string{"src/tax.js"} })
	body, err := json.Marshal(gitlog.PlanRequest{Text: "secret plan"})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := r.m.ask(&socket.Request{Op: "plan", Dir: r.root, Body: body, Caller: &socket.Caller{Session: "one", Agent: true}})
	if err != nil || !strings.Contains(resp.Error, "is private") {
		t.Errorf("a private plan: %+v, %v", resp, err)
	}
	two.read("src/billing.js")
	text := two.prompt("rewrite the tax rounding of secret invoices, please")
	wantText(t, "two", text, "- ash's agent is in src/tax.js in your working tree")
	if strings.Contains(text, "secret") || strings.Contains(text, "working tree:") {
		t.Errorf("two is told %s", text)
	}
	settleAll(d)
	if n := countEvents(d, gitlog.DuplicateIntent); n != 0 {
		t.Errorf("%d events DuplicateIntent", n)
	}
}

func TestTwoSessionsAtOneTask(t *testing.T) {
	clock := newClock()
	_, d, all := team(t, Options{Now: clock.now}, "one", "two", "three")
	one, two, three := all[0], all[1], all[2]
	one.prompt("move the rounding of money into the invoice total")
	clock.pass(20 * time.Minute)
	const question = `- ash's agent began on "move the rounding of money into the invoice total" 20 minutes ago: is that the task that you are at?`
	wantText(t, "two, the later one,", two.prompt("please move all rounding of money to the invoice total"), question)
	wantText(t, "two, again,", two.prompt("and move the rounding of money into the total of the invoice as well"))
	if text := one.prompt("go on"); strings.Contains(text, "is that the task") {
		t.Errorf("the earlier one is told %s", text)
	}
	clock.pass(12*time.Hour + time.Minute)
	if text := three.prompt("move the rounding of money into the invoice total"); strings.Contains(text, "is that the task") {
		t.Errorf("half a day later is told %s", text)
	}
	settled(t, d, gitlog.DuplicateIntent, 1)
}

// worktree makes a second worktree of a repository, on a branch of its own.
func (r *repository) worktree(branch string) *repository {
	r.m.t.Helper()
	root := r.root + "-" + branch
	r.m.git(r.root, "worktree", "add", "-q", "-b", branch, root)
	return &repository{m: r.m, root: root}
}

func TestTwoBranchesOnOneFile(t *testing.T) {
	r, d, all := team(t, Options{}, "one")
	one := all[0]
	two := &agent{r: r.worktree("tax"), session: "two"}
	two.start("startup")
	one.read("src/billing.js")
	two.edits("src/billing.js", "floats\n")
	wantText(t, "one, on another branch,", one.hook(EventPreTool, nil).Context)
	wantText(t, "one, before its write,", one.before("src/billing.js").Context, "- src/billing.js is being changed by ash's agent on branch tax, too")
	waitFor(t, "how they go together is known", func() bool {
		return d.overlaps.between(r.root, two.r.root, "src/billing.js") != OverlapUnknown
	})
	one.before("src/billing.js") // tells that, if git had not looked at the first
	wantText(t, "one, again,", one.before("src/billing.js").Context)
	// Both make a file of one name.
	one.edits("src/new.js", "1\n")
	wantText(t, "two", two.edits("src/new.js", "2\n"), "- src/new.js, which you created, was created by ash's agent too", "(branch main)")
	wantText(t, "one", one.prompt("x"), "- src/new.js, which you created, was created by ash's agent too", "(branch tax)")
	two.edits("src/new.js", "3\n")
	wantText(t, "one, again,", one.prompt("x"))
	settled(t, d, gitlog.CreateCollision, 1)
}

func TestWhatWasLeftIsToldBeforeAWrite(t *testing.T) {
	clock := newClock()
	_, d, all := team(t, Options{Now: clock.now}, "one", "two", "three")
	one, two, three := all[0], all[1], all[2]
	one.edits("src/billing.js", "floats\n")
	one.stop()
	waitFor(t, "what was left is known", func() bool {
		left := false
		for _, a := range d.arbitrations.all() {
			a.look(func(v *arbiter.View, now gitlog.Millis) {
				left = left || len(v.Lefts(arbiter.Who{Worktree: a.names.token(a, worktreeType, one.r.root)}, a.pathToken("src/billing.js"), now)) > 0
			})
		}
		return left
	})
	clock.pass(4 * time.Minute)
	const line = "- src/billing.js: ash's agent left uncommitted changes here 4 minutes ago"
	wantText(t, "two, before a read,", two.read("src/billing.js"))
	fails := func() {
		two.hook(eventToolFailure, func(h *socket.Hook) {
			h.Tool, h.ToolUse, h.Places[0].Writes = "Write", "src/billing.js", []string{"src/billing.js"}
		})
	}
	wantText(t, "two, before its write,", two.before("src/billing.js").Context, line)
	fails()
	wantText(t, "two, again,", two.before("src/billing.js").Context)
	fails()
	two.stop()
	wantText(t, "three, before its write,", three.before("src/billing.js").Context, line)
}

func TestANeverClaimedFileHasANote(t *testing.T) {
	clock := newClock()
	_, _, all := team(t, Options{Now: clock.now}, "one", "two", "three")
	one, two, three := all[0], all[1], all[2]
	one.edits("go.sum", "a\n")
	clock.pass(time.Minute)
	wantText(t, "two", two.edits("go.sum", "b\n"), "- go.sum was written by ash's agent 1 minute ago")
	clock.pass(11 * time.Minute)
	wantText(t, "three, too late,", three.before("go.sum").Context)
}

func TestNewsSurvivesARestart(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	old := m.startProcess("1.0.0")
	old.says(t)
	one, two := &agent{r: r, session: "one"}, &agent{r: r, session: "two"}
	one.start("startup")
	two.start("startup")
	one.read("src/billing.js")
	two.edits("src/billing.js", "floats\n")
	two.edits("src/tax.js", "7\n")
	if one.before("src/tax.js").Deny == "" {
		t.Fatal("not denied")
	}
	two.stop()
	if err := old.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	old.says(t)
	next := m.startProcess("1.0.0")
	next.says(t)
	r.isOpen()
	wantText(t, "the reader", one.prompt("x"), changedInYourFiles, "- src/tax.js, which you were denied, is free now")
	if err := next.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	next.says(t)
	m.startProcess("1.0.0").says(t)
	r.isOpen()
	wantText(t, "the reader, again,", one.prompt("x"))
}

// Two clones on one branch: a change is in the other one, then it is pushed and fetched, then it is here.
func TestWhereAChangeIs(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	m.git(r.root, "add", ".knoot.toml")
	m.git(r.root, "commit", "-qm", "knoot")
	m.git(m.vars["HOME"], "clone", "-q", "--bare", "shop", "host")
	m.git(r.root, "push", "-q", "../host", "refs/knoot/*:refs/knoot/*")
	clone := func(name string) *repository {
		m.git(m.vars["HOME"], "clone", "-q", "host", name)
		m.setUp(filepath.Join(m.vars["HOME"], name))
		return &repository{m: m, root: filepath.Join(m.vars["HOME"], name)}
	}
	d := m.start(Options{})
	mine, theirs := clone("mine"), clone("theirs")
	var readers []*agent
	for _, session := range []string{"away", "pushed", "pulled"} {
		a := &agent{r: mine, session: session}
		a.start("startup")
		a.read("src/billing.js")
		readers = append(readers, a)
	}
	writer := &agent{r: theirs, session: "writer"}
	writer.edits("src/billing.js", "floats\n")
	wantText(t, "who asks first", readers[0].tool(), "which you read, was changed by ash's agent just now: only in another worktree so far (branch main)")

	m.git(theirs.root, "commit", "-qam", "floats")
	m.git(theirs.root, "push", "-q", "origin", "main")
	m.git(mine.root, "fetch", "-q")
	wt, err := d.clones.find(t.Context(), mine.root)
	if err != nil {
		t.Fatal(err)
	}
	d.followNews(t.Context(), wt)
	commit := m.git(theirs.root, "rev-parse", "HEAD")
	wantText(t, "who asks after the push", readers[1].tool(), "pushed, and not in your files yet (commit "+commit[:7]+")")

	m.git(mine.root, "merge", "-q", "--ff-only", "origin/main")
	writer.edits("src/billing.js", "floats\n") // the same
	d.followNews(t.Context(), wt)
	readers[2].read("src/other.js")
	wantText(t, "who asks after the pull", readers[2].tool())
}
