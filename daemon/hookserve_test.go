package daemon

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/gitlog"
)

// repository is a git repository with knoot set up, without a remote.
type repository struct {
	m    *machine
	root string
}

// isOpen waits until the daemon has the repository open: until then a hook says nothing rather than wait.
func (r *repository) isOpen() {
	r.m.t.Helper()
	r.m.mustAsk(&socket.Request{Op: "who", Dir: r.root})
}

func (m *machine) git(dir string, args ...string) string {
	m.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		m.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func (m *machine) gitlogHome() *gitlog.Home {
	m.t.Helper()
	home, err := gitlog.OpenHome(m.getenv)
	if err != nil {
		m.t.Fatal(err)
	}
	return home
}

// repository makes one with a committed file src/billing.js.
func (m *machine) repository(name string) *repository {
	m.t.Helper()
	root := filepath.Join(m.vars["HOME"], name)
	m.git(m.vars["HOME"], "init", "-q", "-b", "main", name)
	r := &repository{m: m, root: root}
	r.write("src/billing.js", "cents\n")
	m.git(root, "add", ".")
	m.git(root, "commit", "-qm", "start")
	repo, err := gitlog.FindRepository(context.Background(), root)
	if err != nil {
		m.t.Fatal(err)
	}
	if _, err := gitlog.Init(context.Background(), repo, m.gitlogHome(), gitlog.InitOptions{Local: true, Name: "ash", Address: "ash@example.com", Label: "here"}); err != nil {
		m.t.Fatal(err)
	}
	return r
}

func (r *repository) write(path, text string) {
	writeFile(r.m.t, filepath.Join(r.root, path), text)
}

// remember publishes a fact through the daemon, as a person.
func (r *repository) remember(name, text string, paths ...string) {
	r.m.t.Helper()
	body, err := json.Marshal(gitlog.RememberRequest{Name: name, Text: text, Paths: paths})
	if err != nil {
		r.m.t.Fatal(err)
	}
	r.m.mustAsk(&socket.Request{Op: "remember", Dir: r.root, Body: body, Caller: &socket.Caller{Terminal: true}})
}

// agent is a session of an agent's in a repository.
type agent struct {
	r        *repository
	session  string
	subagent string
	calls    int
}

func (a *agent) hook(event string, change func(*socket.Hook)) *socket.Answer {
	a.r.m.t.Helper()
	a.calls++
	h := &socket.Hook{Agent: "claude", Event: event, Session: a.session, Subagent: a.subagent, Cwd: a.r.root,
		Places: []socket.Place{{Root: a.r.root}}}
	if change != nil {
		change(h)
	}
	sum := sha256.Sum256([]byte(a.session + a.subagent + event + string(rune(a.calls))))
	if h.Payload == "" {
		h.Payload = hex.EncodeToString(sum[:])
	}
	answer := a.r.m.mustAsk(&socket.Request{Op: "hook", Hook: h}).Answer
	if answer == nil {
		a.r.m.t.Fatal("no answer to a hook")
	}
	return answer
}

func (a *agent) start(source string) string {
	return a.hook(EventSessionStart, func(h *socket.Hook) { h.Source = source }).Context
}

func (a *agent) prompt(text string) string {
	return a.hook(EventPrompt, func(h *socket.Hook) { h.Prompt = text }).Context
}

func (a *agent) read(path string) string {
	return a.hook(EventPreTool, func(h *socket.Hook) { h.Tool, h.Places[0].Reads = "Read", []string{path} }).Context
}

func (a *agent) wrote(path string) string {
	return a.hook(EventPostTool, func(h *socket.Hook) { h.Tool, h.Places[0].Writes = "Write", []string{path} }).Context
}

func (a *agent) stop() { a.hook(eventStop, nil) }

func TestReportClaudeCode69848ReadOfAFileTellsItsFactsOnce(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	m.start(Options{})
	r.remember("money", "all money is integer cents, never floats", "src/billing.js")
	a := &agent{r: r, session: "one"}
	a.start("startup")
	if text := a.read("src/billing.js"); !strings.Contains(text, "integer cents") {
		t.Errorf("the first read: %q", text)
	}
	if text := a.read("src/billing.js"); text != "" {
		t.Errorf("the second read: %q", text)
	}
	sub := &agent{r: r, session: "one", subagent: "sub"}
	if text := sub.read("src/billing.js"); !strings.Contains(text, "integer cents") {
		t.Errorf("a subagent's read: %q", text)
	}
	other := &agent{r: r, session: "two"}
	if text := other.read("src/other.js"); text != "" {
		t.Errorf("another file: %q", text)
	}
}

func TestPromptTellsOfFilesReadBefore(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	m.start(Options{})
	a := &agent{r: r, session: "one"}
	a.start("startup")
	a.read("src/billing.js")
	r.remember("money", "all money is integer cents, never floats", "src/billing.js")
	if text := a.prompt("please add a discount to it"); !strings.Contains(text, "integer cents") {
		t.Errorf("the prompt: %q", text)
	}
}

func TestStaleFactSaysSo(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	d := m.start(Options{})
	r.remember("money", "all money is integer cents, never floats", "src/billing.js")
	r.write("src/billing.js", "floats\n")
	m.git(r.root, "-c", "user.name=sam", "-c", "user.email=sam@example.com", "commit", "-qam", "floats", "--author", "sam <sam@example.com>")
	wt, err := d.clones.find(t.Context(), r.root)
	if err != nil {
		t.Fatal(err)
	}
	wt.facts.warm(t.Context()) // on a busy machine git may take longer than a hook waits for it
	a := &agent{r: r, session: "one"}
	text := a.read("src/billing.js")
	if !strings.Contains(text, "possibly stale") || !strings.Contains(text, "sam") {
		t.Errorf("the read: %q", text)
	}
}

func TestNothingIsSaidTwiceAfterARestart(t *testing.T) {
	for _, how := range []string{"compact", "resume"} {
		t.Run(how, func(t *testing.T) {
			m := newMachine(t)
			r := m.repository("shop")
			old := m.startProcess("1.0.0")
			old.says(t)
			r.remember("money", "all money is integer cents, never floats", "src/billing.js")
			a := &agent{r: r, session: "one"}
			a.start("startup")
			if text := a.read("src/billing.js"); !strings.Contains(text, "integer cents") {
				t.Fatalf("the first read: %q", text)
			}
			if err := old.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			old.says(t)
			m.startProcess("1.0.0").says(t)
			r.isOpen()
			if text := a.read("src/billing.js"); text != "" {
				t.Errorf("after the restart: %q", text)
			}
			text := a.start(how) + a.read("src/billing.js")
			if told := strings.Contains(text, "integer cents"); told != (how == "compact") {
				t.Errorf("after %s: %q", how, text)
			}
		})
	}
}

func TestTakeoverKeepsWhatWasTold(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	m.startProcess("1.0.0").says(t)
	r.remember("money", "all money is integer cents, never floats", "src/billing.js")
	a := &agent{r: r, session: "one"}
	if text := a.read("src/billing.js"); !strings.Contains(text, "integer cents") {
		t.Fatalf("the first read: %q", text)
	}
	m.startProcess("1.1.0").says(t)
	r.isOpen()
	if text := a.read("src/billing.js"); text != "" {
		t.Errorf("after the takeover: %q", text)
	}
	r.remember("rounding", "rounding happens once, at the invoice total", "src/billing.js")
	if text := a.read("src/billing.js"); !strings.Contains(text, "rounding happens once") {
		t.Errorf("a new fact after the takeover: %q", text)
	}
}

func TestTheSameHookTwiceIsRecordedOnce(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	d := m.start(Options{})
	r.remember("money", "all money is integer cents, never floats", "src/billing.js")
	var texts []string
	var mu sync.Mutex
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			h := &socket.Hook{Agent: "claude", Event: EventPostTool, Session: "one", Cwd: r.root, ToolUse: "call", Payload: "same",
				Places: []socket.Place{{Root: r.root, Writes: []string{"src/billing.js"}}}}
			answer := m.mustAsk(&socket.Request{Op: "hook", Hook: h}).Answer
			mu.Lock()
			texts = append(texts, answer.Context)
			mu.Unlock()
		})
	}
	both.Wait()
	told := 0
	for _, text := range texts {
		if strings.Contains(text, "integer cents") {
			told++
		}
	}
	if told != 1 {
		t.Errorf("told %d times: %q", told, texts)
	}
	settleAll(d)
	if n := countEvents(d, gitlog.FileWritten); n != 1 {
		t.Errorf("%d events FileWritten, want 1", n)
	}
}

// settleAll waits until what hooks left to do after their answers is done. Jobs run in order.
func settleAll(d *daemon) {
	d.server.drain(0, 20*time.Second)
	for _, oc := range d.clones.all() {
		done := make(chan struct{})
		for !oc.later(func(context.Context) { close(done) }) {
			time.Sleep(time.Millisecond) // as much waits as may
		}
		<-done
	}
}

func countEvents(d *daemon, kind gitlog.EntryKind) int {
	n := 0
	for _, oc := range d.clones.all() {
		for _, e := range oc.clone.Events() {
			if e.Kind == kind {
				n++
			}
		}
	}
	return n
}

func TestEventsOfASession(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	d := m.start(Options{})
	a := &agent{r: r, session: "one"}
	a.prompt("fix it")
	a.prompt("/compact and then do the other thing")
	a.prompt("add a discount to billing")
	a.prompt("use cents for it")
	r.write("src/new.js", "x\n")
	a.wrote("src/new.js")
	settleAll(d) // before the file goes
	if err := os.Remove(filepath.Join(r.root, "src/new.js")); err != nil {
		t.Fatal(err)
	}
	a.wrote("src/new.js")
	a.stop()
	settleAll(d)
	a.hook(eventSessionEnd, nil)
	settleAll(d)
	for kind, want := range map[gitlog.EntryKind]int{gitlog.SessionStarted: 1, gitlog.FileWritten: 1, gitlog.PathRemoved: 1, gitlog.SessionEnded: 1} {
		if n := countEvents(d, kind); n != want {
			t.Errorf("%d events of kind %d, want %d", n, kind, want)
		}
	}
	for _, oc := range d.clones.all() {
		for _, e := range oc.clone.Events() {
			switch e.Kind {
			case gitlog.IntentDeclared:
				if e.Event.Text != "add a discount to billing" {
					t.Errorf("intent %q", e.Event.Text)
				}
			case gitlog.FileWritten:
				if len(e.Event.Paths) != 1 || e.Event.Paths[0].Path != "src/new.js" || len(e.Event.Paths[0].Blob) != 20 || e.Event.Branch != "refs/heads/main" {
					t.Errorf("FileWritten %+v", e.Event)
				}
			}
			if e.Event.Agent != "claude" || e.Event.Session != "one" {
				t.Errorf("event %d of %s:%s", e.Kind, e.Event.Agent, e.Event.Session)
			}
		}
	}
}

// waitFor waits until something is so that happens after an answer.
func waitFor(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if is() {
			return
		}
	}
	t.Fatalf("%s: still not so", what)
}

func TestWhereItIsSilent(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	d := m.start(Options{})
	r.remember("money", "all money is integer cents, never floats", "src/billing.js")
	off := filepath.Join(r.root, ".git", "knoot", "off")
	all := filepath.Join(m.loc.Home, "off")
	past, future := "1000", "99999999999999"
	for name, each := range map[string]struct {
		path, text string
		silent     bool
	}{
		"off":            {off, "", true},
		"off for a time": {off, future + "\n", true},
		"off until past": {off, past, false},
		"off everywhere": {all, "", true},
		"off, garbage":   {all, "x", true},
	} {
		t.Run(name, func(t *testing.T) {
			writeFile(t, each.path, each.text)
			defer os.Remove(each.path)
			a := &agent{r: r, session: name}
			if text := a.read("src/billing.js"); (text == "") != each.silent {
				t.Errorf("told %q", text)
			}
			d.state.mu.Lock()
			known := d.state.sessions[sessionKey{"claude", name}] != nil
			d.state.mu.Unlock()
			if known == each.silent {
				t.Errorf("the session is known: %v", known)
			}
		})
	}
	t.Run("a repository without knoot", func(t *testing.T) {
		m.git(m.vars["HOME"], "init", "-q", "plain")
		plain := &agent{r: &repository{m: m, root: filepath.Join(m.vars["HOME"], "plain")}, session: "plain"}
		if text := plain.start("startup"); text != "" {
			t.Errorf("told %q", text)
		}
	})
	t.Run("no repository", func(t *testing.T) {
		nowhere := &agent{r: &repository{m: m, root: filepath.Join(m.vars["HOME"], "nowhere")}, session: "nowhere"}
		if text := nowhere.start("startup"); text != "" {
			t.Errorf("told %q", text)
		}
	})
	t.Run("a repaired payload", func(t *testing.T) {
		a := &agent{r: r, session: "repaired"}
		answer := a.hook(EventPreTool, func(h *socket.Hook) { h.Repaired, h.Places[0].Reads = true, []string{"src/billing.js"} })
		if answer.Context != "" {
			t.Errorf("told %q", answer.Context)
		}
	})
}

func TestAnswerThatNobodyTookIsToldAgain(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	d := m.start(Options{})
	r.remember("money", "all money is integer cents, never floats", "src/billing.js")
	h := &socket.Hook{Agent: "claude", Event: EventPreTool, Session: "one", Cwd: r.root, Payload: "first",
		Places: []socket.Place{{Root: r.root, Reads: []string{"src/billing.js"}}}}
	rep := d.answer(t.Context(), &socket.Request{Op: "hook", Hook: h}, nil)
	if !strings.Contains(rep.Answer.Context, "integer cents") {
		t.Fatalf("told %q", rep.Answer.Context)
	}
	rep.unwritten()
	if history, err := ReadHistory(m.gitlogHome(), time.Now()); err != nil || len(history.Shown) != 0 {
		t.Errorf("shown %+v, %v", history, err)
	}
	a := &agent{r: r, session: "one"}
	if text := a.read("src/billing.js"); !strings.Contains(text, "integer cents") {
		t.Errorf("told %q after that", text)
	}
}

// introducer is a coordinator that has sessions told one line of who they are.
type introducer string

func (i introducer) Introduction(SessionKey) string { return string(i) }

func (introducer) Open()                            {}
func (introducer) Close()                           {}
func (introducer) Tick()                            {}
func (introducer) Hear(SessionEvent)                {}
func (introducer) Agents(string) []Agent            { return nil }
func (introducer) AgentOf(SessionKey) (Agent, bool) { return Agent{}, false }
func (introducer) Mailed(string, bool)              {}
func (introducer) Problem() string                  { return "" }
func (introducer) Unpiloted() string                { return "" }
func (introducer) Do(context.Context, string, string, json.RawMessage) (any, error) {
	return nil, errors.New("it does nothing")
}

// Who it is a session is told once, whichever hook can say so first, and again only if nobody took the answer.
func TestASessionIsToldOnceWhoItIs(t *testing.T) {
	const line = "knoot started you as the agent bob."
	m := newMachine(t)
	r := m.repository("shop")
	d := m.start(Options{Coordinate: func(*Host) Coordinator { return introducer(line) }})
	r.isOpen()
	start := &socket.Hook{Agent: "claude", Event: EventSessionStart, Session: "one", Source: "startup", Cwd: r.root, Payload: "first", Places: []socket.Place{{Root: r.root}}}
	rep := d.answer(t.Context(), &socket.Request{Op: "hook", Hook: start}, nil)
	if !strings.HasPrefix(rep.Answer.Context, line+"\n") {
		t.Fatalf("told %q", rep.Answer.Context)
	}
	rep.unwritten()
	a := &agent{r: r, session: "one"}
	if text := (&agent{r: r, session: "one", subagent: "sub"}).hook(EventSubagentStart, nil).Context; text != "" {
		t.Errorf("a subagent is told %q", text)
	}
	if text := a.prompt("go"); text != line {
		t.Errorf("its prompt is told %q", text)
	}
	for _, source := range []string{"compact", "resume", "startup"} {
		if text := a.start(source) + a.prompt("go on"); strings.Contains(text, line) {
			t.Errorf("after %s it is told again: %q", source, text)
		}
	}
	if text := (&agent{r: r, session: "two"}).start("startup"); !strings.HasPrefix(text, line) {
		t.Errorf("another session is told %q", text)
	}
	d.state.compact(d.now()) // what is kept of it says so, too
	kept := sessions{}
	d.state.mu.Lock()
	for _, r := range d.state.sessions[sessionKey{"claude", "one"}].records() {
		kept.apply(r)
	}
	d.state.mu.Unlock()
	if !kept[sessionKey{"claude", "one"}].introduced {
		t.Error("a later daemon would tell it again")
	}
}

func TestFactThatCannotBeJudgedInTimeIsMarkedByItsBytes(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	d := m.start(Options{})
	r.remember("money", "all money is integer cents, never floats", "src/billing.js")
	wt, err := d.clones.find(t.Context(), r.root)
	if err != nil {
		t.Fatal(err)
	}
	r.write("src/billing.js", "floats\n")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	facts := wt.facts.about([]string{"src/billing.js"}, d.now())
	if len(facts) != 1 {
		t.Fatalf("facts %+v", facts)
	}
	waitFor(t, "the mark", func() bool { // on a busy machine even the file's id takes long
		wt.facts.judge(ended, facts, map[string]bool{facts[0].ID: true}, d.now())
		return facts[0].Stale && facts[0].Reason == "src/billing.js changed since"
	})
}

func TestPrivateSessionSharesNoIntent(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	d := m.start(Options{})
	a := &agent{r: r, session: "one"}
	a.hook(EventPrompt, func(h *socket.Hook) { h.Private, h.Prompt = true, "add a discount to billing please" })
	a.stop()
	settleAll(d)
	if n := countEvents(d, gitlog.IntentDeclared); n != 0 {
		t.Errorf("%d intents", n)
	}
}

func TestRepositoriesStayApart(t *testing.T) {
	m := newMachine(t)
	shop, site := m.repository("shop"), m.repository("site")
	m.start(Options{})
	shop.remember("money", "all money is integer cents, never floats", "src/billing.js")
	inSite := &agent{r: site, session: "one"}
	if text := inSite.read("src/billing.js"); text != "" {
		t.Errorf("told in the other repository: %q", text)
	}
	// A session in one repository that touches a file of another hears of that file.
	answer := inSite.hook(EventPreTool, func(h *socket.Hook) {
		h.Places = append(h.Places, socket.Place{Root: shop.root, Reads: []string{"src/billing.js"}})
	})
	if !strings.Contains(answer.Context, "integer cents") {
		t.Errorf("told %q", answer.Context)
	}
}

func TestKnootIsSetUpWhileTheDaemonRuns(t *testing.T) {
	m := newMachine(t)
	clock := newClock()
	m.start(Options{Now: clock.now})
	r := m.repository("first")
	// A clone of it has the settings, since they are committed, and no writer.
	m.git(r.root, "add", ".knoot.toml")
	m.git(r.root, "commit", "-qm", "knoot")
	m.git(m.vars["HOME"], "clone", "-q", "first", "second")
	second := &repository{m: m, root: filepath.Join(m.vars["HOME"], "second")}
	a := &agent{r: second, session: "one"}
	a.start("startup")
	body, err := json.Marshal(gitlog.RememberRequest{Name: "money", Text: "cents", Paths: []string{"src/billing.js"}})
	if err != nil {
		t.Fatal(err)
	}
	remember := &socket.Request{Op: "remember", Dir: second.root, Body: body, Caller: &socket.Caller{Terminal: true}}
	if resp, err := m.ask(remember); err != nil || resp.Error == "" {
		t.Errorf("remember before init: %+v, %v", resp, err)
	}
	m.setUp(second.root)
	clock.pass(retryOpen + time.Second)
	if resp := m.mustAsk(remember); len(resp.Body) == 0 {
		t.Errorf("remember after init: %+v", resp)
	}
	// And taken out again, with the repository: nothing is left open.
	if err := os.RemoveAll(second.root); err != nil {
		t.Fatal(err)
	}
	if resp, err := m.ask(remember); err != nil || resp.Error == "" {
		t.Errorf("remember in a repository that is gone: %+v, %v", resp, err)
	}
}

func TestResumeSaysWhatChangedMeanwhile(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	clock := newClock()
	d := m.start(Options{Now: clock.now})
	r.write("src/tax.js", "7 percent\n")
	r.remember("money", "all money is integer cents, never floats", "src/billing.js")
	a := &agent{r: r, session: "one"}
	a.start("startup")
	a.read("src/billing.js")
	a.read("src/tax.js")
	waitFor(t, "what was read is known", func() bool {
		d.state.mu.Lock()
		defer d.state.mu.Unlock()
		t := d.state.sessions[sessionKey{"claude", "one"}].context("").touched[r.root]["src/tax.js"]
		return t != nil && t.Blob != nil
	})
	clock.pass(14 * time.Hour)
	other := &agent{r: r, session: "two"}
	r.write("src/tax.js", "19 percent\n")
	other.wrote("src/tax.js")
	// Written again with the same bytes: no news.
	if err := os.Chtimes(filepath.Join(r.root, "src/billing.js"), clock.now(), clock.now()); err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(gitlog.ForgetRequest{Name: "money"})
	if err != nil {
		t.Fatal(err)
	}
	m.mustAsk(&socket.Request{Op: "forget", Dir: r.root, Body: body, Caller: &socket.Caller{Terminal: true}})
	text := a.start("resume")
	if !strings.Contains(text, "14 hours ago") || !strings.Contains(text, "src/tax.js") || !strings.Contains(text, "money") || strings.Contains(text, "billing.js changed") {
		t.Errorf("told %q", text)
	}
	if text := a.start("resume"); text != "" {
		t.Errorf("told again %q", text)
	}
}

// A change by somebody without knoot is known from git's history alone.
func TestChangedFileNamesGitsAuthor(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	d := m.start(Options{})
	wt, err := d.clones.find(t.Context(), r.root)
	if err != nil {
		t.Fatal(err)
	}
	blob, err := wt.tree.Blob(t.Context(), "src/billing.js")
	if err != nil {
		t.Fatal(err)
	}
	read := &touch{Root: r.root, Path: "src/billing.js", Read: 1, At: d.now(), Stamp: stampOf(r.root, "src/billing.js"), Blob: blob}
	r.write("src/billing.js", "floats\n")
	t.Setenv("GIT_COMMITTER_DATE", time.Now().Add(time.Hour).Format(time.RFC3339)) // the reflog counts seconds
	m.git(r.root, "commit", "-qam", "floats", "--author", "sam <sam@example.com>")
	c := &hookCall{d: d, now: d.now()}
	waitFor(t, "sam is named", func() bool { // git may take longer than a hook waits for it
		changed := c.changedFiles(t.Context(), hookPlace{Place: socket.Place{Root: r.root}, tree: wt}, []*touch{read})
		return len(changed) == 1 && changed[0].By == "sam" && changed[0].Commit != ""
	})
}

func TestCloneThatAnotherProcessWrites(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	repo, err := gitlog.FindRepository(t.Context(), r.root)
	if err != nil {
		t.Fatal(err)
	}
	other, err := gitlog.OpenClone(t.Context(), repo, m.gitlogHome())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := other.Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	tree := gitlog.OpenTree(repo)
	defer tree.Close()
	if _, err := other.Remember(t.Context(), tree, gitlog.RememberRequest{Kind: gitlog.KindFact, Name: "money", Text: "integer cents", Paths: []string{"src/billing.js"},
		Author: gitlog.Author{By: gitlog.ByPerson}}); err != nil {
		t.Fatal(err)
	}
	d := m.start(Options{})
	a := &agent{r: r, session: "one"}
	a.start("startup")
	if text := a.read("src/billing.js"); !strings.Contains(text, "integer cents") {
		t.Errorf("told %q", text)
	}
	a.wrote("src/billing.js")
	body, err := json.Marshal(gitlog.ForgetRequest{Name: "money"})
	if err != nil {
		t.Fatal(err)
	}
	forget := &socket.Request{Op: "forget", Dir: r.root, Body: body, Caller: &socket.Caller{Terminal: true}}
	if resp, err := m.ask(forget); err != nil || resp.Error == "" {
		t.Errorf("forget: %+v, %v", resp, err)
	}
	if state, err := Status(t.Context(), m.getenv); err != nil || len(state.Clones) != 1 || state.Clones[0].ReadOnly == "" {
		t.Errorf("state %+v, %v", state, err)
	}
	if n := countEvents(d, gitlog.FileWritten); n != 0 {
		t.Errorf("%d events in a log that another process writes", n)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	d.tick()
	waitFor(t, "what was owed is in the log", func() bool { return countEvents(d, gitlog.FileWritten) == 1 })
	if n := countEvents(d, gitlog.SessionStarted); n != 1 {
		t.Errorf("%d sessions started, want 1", n)
	}
	m.mustAsk(forget)
}

// What an agent cannot be told with one event it is told with the next that it can be told something with. A denial it hears.
func TestWhatIsSaidWhereNobodyReadsIsSaidLater(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	m.start(Options{})
	r.isOpen()
	r.remember("money", "all money is integer cents", "src/billing.js")
	silent := func(change func(*socket.Hook)) func(*socket.Hook) {
		return func(h *socket.Hook) {
			h.Agent, h.Silent = "gemini", true
			if change != nil {
				change(h)
			}
		}
	}
	a := &agent{r: r, session: "alpha"}
	write := func(h *socket.Hook) {
		h.Tool, h.ToolUse, h.Places[0].Writes = "replace", "1", []string{"src/billing.js"}
	}
	for _, event := range []string{EventSessionStart, EventPrompt, EventPreTool} {
		if answer := a.hook(event, silent(write)); *answer != (socket.Answer{}) {
			t.Errorf("%s: %+v", event, answer)
		}
	}
	after := a.hook(EventPostTool, func(h *socket.Hook) { h.Agent = "gemini"; write(h) })
	if !strings.Contains(after.Context, "integer cents") {
		t.Errorf("after the call: %+v", after)
	}
	b := &agent{r: r, session: "beta"}
	if answer := b.hook(EventPreTool, silent(write)); answer.Deny == "" || answer.Context != "" {
		t.Errorf("a file that another session holds: %+v", answer)
	}
	r.send(&socket.Caller{Terminal: true}, "gemini-beta", "stop and look") // it would hold the turn, were it urgent and heard
	if answer := b.hook(eventStop, silent(nil)); *answer != (socket.Answer{}) {
		t.Errorf("a turn's end: %+v", answer)
	}
}

// What nobody was asked about in time goes on, and says so.
func TestAWriteThatNobodyWasAskedAboutIsLate(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	d := m.start(Options{HookTime: hookTime})
	a := &agent{r: r, session: "one"}
	a.start("startup")
	write := func(h *socket.Hook) { h.Tool, h.Places[0].Writes = "Write", []string{"src/billing.js"} }
	if answer := a.hook(EventPreTool, write); answer.Late {
		t.Error("one that was weighed in time is late")
	}
	locked := &r.worktreeOf(d).clone.arbiter.mu
	locked.Lock()
	time.AfterFunc(hookTime*11/10, locked.Unlock)
	if answer := a.hook(EventPreTool, write); !answer.Late {
		t.Error("one that was not weighed in time is not late")
	}

	d.clones.mu.Lock()
	opened := d.clones.roots[r.root]
	d.clones.roots[r.root] = &opening{ready: make(chan struct{}), git: opened.git} // and it is never opened
	d.clones.mu.Unlock()
	for what, c := range map[string]struct {
		event  string
		change func(*socket.Hook)
		late   bool
	}{
		"a write":               {EventPreTool, write, true},
		"a read":                {EventPreTool, func(h *socket.Hook) { h.Tool, h.Places[0].Reads = "Read", []string{"src/billing.js"} }, false},
		"a write that has been": {EventPostTool, write, false},
		"a write of another worktree": {EventPreTool, func(h *socket.Hook) {
			write(h)
			h.Places = append(h.Places, socket.Place{Root: r.root})
			h.Places[0].Root = t.TempDir()
		}, false},
	} {
		if answer := a.hook(c.event, c.change); answer.Late != c.late {
			t.Errorf("%s while the worktree is being opened: late is %v", what, answer.Late)
		}
	}
	d.clones.mu.Lock()
	d.clones.roots[r.root] = opened
	d.clones.mu.Unlock()
}

// Codex tells of a session's start with the first prompt, and of both at once.
func TestReportCodex15269StartAndPromptAtOnce(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	d := m.start(Options{})
	r.isOpen()
	var both sync.WaitGroup
	for _, event := range []string{EventSessionStart, EventPrompt} {
		both.Go(func() {
			a := &agent{r: r, session: "one"}
			a.hook(event, func(h *socket.Hook) { h.Source, h.Prompt = "startup", "add a discount to billing" })
		})
	}
	both.Wait()
	settleAll(d)
	d.state.mu.Lock()
	sessions := len(d.state.sessions)
	d.state.mu.Unlock()
	if n := countEvents(d, gitlog.SessionStarted); sessions != 1 || n != 1 {
		t.Errorf("%d sessions, %d events of their start", sessions, n)
	}
}
