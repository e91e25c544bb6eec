package mcpd

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"knoot.dev/knoot/daemon"
	"knoot.dev/knoot/daemon/socket"
)

// patience is how long a test waits for what has to come.
const patience = 30 * time.Second

// await waits until something is so.
func (m *machine) await(what string, is func() bool) {
	m.t.Helper()
	for until := time.Now().Add(patience); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			m.t.Fatalf("it does not come: %s", what)
		}
	}
}

// withStandIns has agents of the types claude and other run the stand-in.
func (m *machine) withStandIns(more string) {
	m.t.Helper()
	self, err := os.Executable()
	if err != nil {
		m.t.Fatal(err)
	}
	m.stop()
	m.Write(filepath.Join(m.KnootHome, "config.toml"), fmt.Sprintf("[mcp]\nport = 0\n%s\n[agents.claude]\ncommand = [%q, \"stand-in\"]\n[agents.broken]\ncommand = [\"/nowhere\"]\n"+
		"[agents.bold]\ncommand = [\"claude\", \"--dangerously-skip-permissions\"]\n", more, self))
	m.start()
	m.address()
}

// do does the operation agent.
func (m *machine) do(r AgentRequest) (*AgentAnswer, error) {
	m.t.Helper()
	r.Environ = m.Env()
	body, err := json.Marshal(r)
	if err != nil {
		m.t.Fatal(err)
	}
	answer, err := m.server.Do(context.Background(), "agent", m.repo, body)
	if err != nil {
		return nil, err
	}
	return answer.(*AgentAnswer), nil
}

func (m *machine) must(r AgentRequest) *AgentAnswer {
	m.t.Helper()
	answer, err := m.do(r)
	if err != nil {
		m.t.Fatalf("%+v: %v", r, err)
	}
	return answer
}

// terminalAgent makes an agent that runs the stand-in, and starts it.
func (m *machine) terminalAgent(id string) *member {
	m.t.Helper()
	m.must(AgentRequest{Do: "add", Agent: id, Type: "claude"})
	m.must(AgentRequest{Do: "start", Agent: id})
	m.await(id+" is idle", func() bool { return m.state(id) == idle })
	return m.known(id)
}

func (m *machine) known(id string) *member {
	m.t.Helper()
	of, known := m.server.find(id)
	if !known {
		m.t.Fatalf("there is no %s", id)
	}
	return &member{m: m, id: id, secret: of.Secret}
}

func (m *machine) state(id string) string {
	of, _ := m.server.find(id)
	return of.State
}

// screen is what an agent's terminal printed.
func (m *machine) screen(id string) string {
	t, runs := m.server.terminalOf(id)
	if !runs {
		return ""
	}
	text, _, _ := t.since(0)
	return string(text)
}

func (m *machine) shows(id, what string, times int) {
	m.t.Helper()
	m.await(fmt.Sprintf("%s shows %q %d times; it shows %s", id, what, times, m.screen(id)), func() bool { return strings.Count(m.screen(id), what) >= times })
}

// keys types at an agent's terminal, as a person does.
func (m *machine) keys(id, keys string) {
	m.t.Helper()
	m.input(id, 204, `"keys":"`+base64.StdEncoding.EncodeToString([]byte(keys))+`"`)
}

func (m *machine) input(id string, want int, what string) {
	m.t.Helper()
	if got := m.request("POST", "/api/v1/agent/terminal", `{"agent_id":"`+id+`",`+what+`}`, "Authorization: Bearer "+m.token()); got.status != want {
		m.t.Fatalf("%s at %s: %+v", what, id, got)
	}
}

// heardNudge is what the stand-in prints when it is nudged.
var heardNudge = fmt.Sprintf("heard %q", socket.Nudge)

func TestTwoAgentsCarryATask(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.withStandIns("")
	alice := m.terminalAgent("alice")
	m.terminalAgent("bob")
	m.keys("alice", "plan\r")
	state := func() string {
		var tasks []Task
		alice.call("task-status", nil, &tasks)
		var out []string
		for _, each := range tasks {
			out = append(out, each.ID+" "+each.State)
		}
		return strings.Join(out, ", ")
	}
	m.await("the task is done", func() bool { return state() == "parse done, docs ready" })
	m.shows("alice", "complete-task:", 1)
	for _, id := range []string{"alice", "bob"} {
		if n := strings.Count(m.screen(id), heardNudge); n != 1 {
			t.Errorf("%s was nudged %d times, for one message:\n%s", id, n, m.screen(id))
		}
	}
}

// An idle agent hears of its mail soon, once, and not while it waits for its person or its person types.
func TestNudges(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.withStandIns("")
	bob := m.terminalAgent("bob")
	carol := m.agent("carol", "codex", m.repo)
	m.server.connected("carol")
	carol.send("bob", "one")
	m.shows("bob", heardNudge, 1)
	m.shows("bob", "rests", 1)
	m.await("bob is idle", func() bool { return m.state("bob") == idle })
	begin := time.Now()
	carol.send("bob", "two")
	m.shows("bob", heardNudge, 2)
	t.Logf("from the message to the nudge: %v", time.Since(begin))
	m.shows("bob", "rests", 2)

	m.keys("bob", "ask\r")
	m.shows("bob", "asks", 1)
	if got := m.state("bob"); got != awaitingInput {
		t.Errorf("bob is %q", got)
	}
	carol.send("bob", "three")
	m.keys("bob", "go on") // no Enter yet
	m.hookOf("bob", "Stop")
	carol.send("bob", "four")
	time.Sleep(quietTime + 500*time.Millisecond) // nothing is to happen, and only time can show it
	if n := strings.Count(m.screen("bob"), heardNudge); n != 2 || strings.Contains(m.screen("bob"), "go on"+socket.Nudge[:3]) {
		t.Errorf("nudged at a bad time:\n%s", m.screen("bob"))
	}
	typed := time.Now()
	m.keys("bob", "\r")
	m.shows("bob", heardNudge, 3)
	if since := time.Since(typed); since < quietTime {
		t.Errorf("it was nudged %v after a key", since)
	}
	m.shows("bob", "rests", 4)
	m.await("all is read", func() bool { return len(bob.inbox(true)) == 0 })
	if n := strings.Count(m.screen("bob"), heardNudge); n != 3 {
		t.Errorf("one nudge was enough for two messages:\n%s", m.screen("bob"))
	}
}

// looks has the server look whether something is to be typed to an agent, and returns what its terminal shows afterwards.
func (m *machine) looks(id string) string {
	m.t.Helper()
	m.server.mu.Lock()
	r := m.server.terminals[id]
	m.server.mu.Unlock()
	if r == nil {
		m.t.Fatalf("%s does not run", id)
	}
	m.server.prompt(m.t.Context(), id, r)
	return m.screen(id)
}

// Mail that comes while an agent works is told when it rests, and what was told is not told again.
func TestANudgeWaitsForTheTurnsEnd(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.withStandIns("")
	bob := m.terminalAgent("bob")
	alice := m.members("alice")[0]
	m.hookOf("bob", "UserPromptSubmit")
	alice.send("bob", "one")
	if text := m.looks("bob"); strings.Contains(text, socket.Nudge) {
		t.Errorf("at work it is nudged:\n%s", text)
	}
	var unread []daemon.Message
	bob.call("check-messages", args{"peek": true}, &unread)
	m.server.mu.Lock()
	m.server.agents["bob"].Nudged = []string{unread[0].ID} // as if it had been told, and had not read it
	m.server.mu.Unlock()
	m.hookOf("bob", "Stop")
	if text := m.looks("bob"); strings.Contains(text, socket.Nudge) {
		t.Errorf("of one message it is told again:\n%s", text)
	}
	m.hookOf("bob", "UserPromptSubmit")
	alice.send("bob", "two")
	if text := m.looks("bob"); strings.Contains(text, socket.Nudge) {
		t.Errorf("at work it is nudged:\n%s", text)
	}
	m.hookOf("bob", "Stop")
	m.shows("bob", heardNudge, 1)
	m.await("all is read", func() bool { return len(bob.inbox(true)) == 0 })
	if n := strings.Count(m.screen("bob"), heardNudge); n != 1 {
		t.Errorf("it was nudged %d times:\n%s", n, m.screen("bob"))
	}
	for _, want := range []string{"check-messages", "go on with your work"} {
		if !strings.Contains(socket.Nudge, want) {
			t.Errorf("a nudge says %q, want %q in it", socket.Nudge, want)
		}
	}
}

// Of an agent of which no hook was seen nobody knows whether it can be typed to.
func TestNothingIsTypedToWhoHasNoHooks(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.withStandIns("[agents.silent]\ncommand = [\"cat\"]\n")
	m.must(AgentRequest{Do: "add", Agent: "bob", Type: "silent"})
	m.must(AgentRequest{Do: "start", Agent: "bob"})
	m.members("alice")[0].send("bob", "are you there?")
	if text := m.looks("bob"); text != "" || m.state("bob") != "" {
		t.Errorf("it is %q, and shows %q", m.state("bob"), text)
	}
	if got := m.known("bob").inbox(true); len(got) != 1 {
		t.Errorf("it has %q", got)
	}
}

// What is set as a type's command is run, and nothing that asks its person for nothing.
func TestCommandsOfTypes(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	config := "[mcp]\nport = 0\n"
	refused := [][]string{{"claude", "--dangerously-skip-permissions"}, {"claude", "--dangerously-skip-permissions=true"}, {"claude", "--allow-dangerously-skip-permissions"},
		{"claude", "--permission-mode", "bypassPermissions"}, {"claude", "--permission-mode=bypassPermissions"}, {"claude", "--settings", `{"permissions":{"defaultMode":"bypassPermissions"}}`},
		{"codex", "--dangerously-bypass-approvals-and-sandbox"}, {"codex", "--yolo"}, {"codex", "-c", `sandbox_mode="danger-full-access"`}, {"codex", "--dangerously-bypass-hook-trust"},
		{"gemini", "--approval-mode=yolo"}, {"gemini", "--approval-mode", "yolo"}, {"copilot", "--allow-all-tools"}, {"sh", "-c", "exec claude --dangerously-skip-permissions"}}
	taken := [][]string{{"claude", "--model", "opus", "--permission-mode", "acceptEdits"}, {"codex", "--sandbox", "workspace-write"}, {"gemini", "--model=flash"}}
	for n, command := range append(slices.Clone(refused), taken...) {
		config += fmt.Sprintf("[agents.t%d]\ncommand = [", n)
		for _, word := range command {
			config += fmt.Sprintf("%q, ", word)
		}
		config += "]\n"
	}
	m.stop()
	m.Write(filepath.Join(m.KnootHome, "config.toml"), config)
	m.start()
	for n, command := range refused {
		if got, err := m.server.commandOf(fmt.Sprint("t", n)); err == nil || !strings.Contains(err.Error(), "knoot starts no agent so") {
			t.Errorf("%q: %q, %v", command, got, err)
		}
	}
	for n, command := range taken {
		if got, err := m.server.commandOf(fmt.Sprint("t", len(refused)+n)); err != nil || !slices.Equal(got, command) {
			t.Errorf("%q: %q, %v", command, got, err)
		}
	}
	for kind, command := range map[string][]string{"claude": {"claude"}, "codex": {"codex"}} {
		if got, err := m.server.commandOf(kind); err != nil || !slices.Equal(got, command) {
			t.Errorf("%s: %q, %v", kind, got, err)
		}
	}
	if got, err := m.server.commandOf("shell"); err != nil || len(got) != 1 || !filepath.IsAbs(got[0]) {
		t.Errorf("a shell: %q, %v", got, err)
	}
}

// An agent that knoot starts is told once who it is, with a name as long as there may be; nobody else is, and nobody where nothing could
// be done about it.
func TestIntroduction(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.withStandIns("")
	name := strings.Repeat("b", maxName)
	text := fmt.Sprintf(introduction, name)
	if len(text) > 300 || !strings.Contains(text, "register") || strings.Contains(text, "\n") {
		t.Errorf("it is %d bytes: %s", len(text), text)
	}
	told := func(agent string, begins int) int {
		m.keys(agent, "hello\r") // what its start was too early for comes with its prompt
		m.shows(agent, "rests", begins)
		return strings.Count(m.screen(agent), "knoot started you as")
	}
	m.terminalAgent(name)
	if n := told(name, 1); n != 1 || !strings.Contains(m.screen(name), text) {
		t.Errorf("it is told %d times: %s", n, m.screen(name))
	}
	m.must(AgentRequest{Do: "stop", Agent: name})
	m.terminalAgent(name) // with the session that it had
	if n := told(name, 1); n != 0 {
		t.Errorf("it is told again: %s", m.screen(name))
	}
	m.agent("alice", "claude", m.repo)
	for _, event := range []string{"SessionStart", "UserPromptSubmit"} {
		if answer := m.hook(socket.Hook{Session: "one", Event: event, Source: "startup", Prompt: "go", Name: "alice"}); strings.Contains(answer.Context, "knoot started you") {
			t.Errorf("an agent that its person started is told %q", answer.Context)
		}
	}
	settings := filepath.Join(m.KnootHome, "config.toml")
	config, err := os.ReadFile(settings)
	if err != nil {
		t.Fatal(err)
	}
	for agent, off := range map[string]string{"carol": "enabled = false", "dora": `tools = ["memory"]`} {
		m.stop()
		m.Write(settings, strings.Replace(string(config), "[mcp]\n", "[mcp]\n"+off+"\n", 1))
		m.start()
		m.must(AgentRequest{Do: "add", Agent: agent, Type: "claude"})
		m.must(AgentRequest{Do: "start", Agent: agent})
		m.await(agent+" is idle", func() bool { return m.state(agent) == idle })
		term, _ := m.server.terminalOf(agent)
		if err := term.press([]byte("hello\r")); err != nil {
			t.Fatal(err)
		}
		m.shows(agent, "rests", 1)
		if strings.Contains(m.screen(agent), "knoot started you") {
			t.Errorf("with %s it is told %s", off, m.screen(agent))
		}
	}
}

// Codex says nothing by its hooks before its first prompt. It is idle once it has connected, until somebody types to it; where its hooks
// never say anything, one line is typed to it and no more.
func TestCodexIsIdleOnceItHasConnected(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	m.withStandIns(fmt.Sprintf("[agents.codex]\ncommand = [%q, \"stand-in\", \"as-codex\"]\n", self))
	carol := m.agent("carol", "claude", m.repo)
	m.server.connected("carol")
	for _, id := range []string{"bob", "eve", "fay"} {
		m.must(AgentRequest{Do: "add", Agent: id, Type: "codex"})
		m.must(AgentRequest{Do: "start", Agent: id})
	}
	for _, id := range []string{"bob", "eve", "fay"} {
		m.await(id+" is idle", func() bool { return m.state(id) == idle })
	}
	marked := fmt.Sprintf("heard %q", "\x1b[200~"+socket.Nudge+"\x1b[201~")
	m.keys("fay", "go") // its person begins: whatever it asks now is theirs to answer
	for _, id := range []string{"bob", "eve", "fay"} {
		carol.send(id, "are you there?")
	}
	m.shows("bob", marked, 1)
	m.shows("bob", "rests", 1)
	m.await("bob is idle, by its hooks", func() bool { return m.state("bob") == idle })
	if of, _ := m.server.find("bob"); of.Session.Agent != "codex" || of.Session.ID == "" {
		t.Errorf("bob is %+v", of.seen)
	}
	carol.send("bob", "and now?")
	m.shows("bob", marked, 2)

	m.shows("eve", marked, 1)
	m.await("eve works, as far as is known", func() bool { return m.state("eve") == working })
	carol.send("eve", "and now?")

	m.keys("fay", " on\r")
	time.Sleep(quietTime + time.Second) // nothing is to happen, and only time can show it
	if n := strings.Count(m.screen("eve"), "heard "); n != 1 {
		t.Errorf("without a word from its hooks it was typed to again:\n%s", m.screen("eve"))
	}
	if strings.Contains(m.screen("fay"), "mail") {
		t.Errorf("it was typed to although its person had:\n%s", m.screen("fay"))
	}
}

// Enter is typed once the program has shown the text: what asks a person something does not, and Enter would answer it.
func TestEnterWaitsForItsText(t *testing.T) {
	t.Parallel()
	term, err := startTerminal(exec.Command("/bin/sh", "-c", `stty -echo; echo asks; read a; stty echo; echo rests; read b; echo "heard $b"`))
	if err != nil {
		t.Fatal(err)
	}
	defer term.end()
	prints := func(what string) {
		t.Helper()
		for deadline := time.After(patience); ; {
			text, _, more := term.since(0)
			if strings.Contains(string(text), what) {
				return
			}
			select {
			case <-more:
			case <-deadline:
				t.Fatalf("it does not print %q: %q", what, text)
			}
		}
	}
	say := func() bool {
		t.Helper()
		said, err := term.say(t.Context(), "several words that are typed", func(string) bool { return true })
		if err != nil {
			t.Fatal(err)
		}
		return said != ""
	}
	prints("asks")
	for range 2 { // the second time looks again at what the first one typed
		if say() || !term.stands() {
			t.Error("it is said to who does not show it")
		}
	}
	if text, _, _ := term.since(0); strings.Contains(string(text), "rests") {
		t.Errorf("it was answered: %q", text)
	}
	if err := term.press([]byte("\r")); err != nil {
		t.Fatal(err)
	}
	prints("rests")
	for deadline := time.Now().Add(patience); !say(); { // at once, but on a busy machine
		if time.Now().After(deadline) {
			t.Fatal("it is not said")
		}
	}
	prints("heard several words that are typed")
}

// An agent in a terminal is there for as long as its program runs. What is heard of the end of a session may be late, and be that of the
// program that went on with it before.
func TestAnEndThatIsHeardOfLate(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.withStandIns("")
	bob := m.terminalAgent("bob")
	bob.call("register-agent", nil, nil)
	of, _ := m.server.find("bob")
	m.hookOf("bob", "SessionEnd")
	m.server.Hear(gone(of.Session.ID))
	if now, _ := m.server.find("bob"); now.State != idle || !now.Registered || now.Session != of.Session {
		t.Errorf("bob is %+v", now.seen)
	}
	m.must(AgentRequest{Do: "stop", Agent: "bob"})
	if got := m.state("bob"); got != deactivated {
		t.Errorf("bob is %q", got)
	}
}

// Whether a program wants what is pasted marked it says in what it prints, in pieces of any size.
func TestMarksAroundWhatIsPasted(t *testing.T) {
	t.Parallel()
	const on, off = "\x1b[?2004h", "\x1b[?2004l"
	for text, want := range map[string]bool{"": false, "a" + on + "b": true, on + off: false, off + "x" + on + on: true, on + "\x1b[?2004": true, "x": false} {
		for size := 1; size <= 9; size++ {
			term := &terminal{more: make(chan struct{})}
			for piece := range slices.Chunk([]byte(text), size) {
				term.print(piece)
			}
			if term.pastes != want {
				t.Errorf("%q in pieces of %d: %v", text, size, term.pastes)
			}
		}
	}
}

// hookOf tells the daemon of a hook of the session that an agent is.
func (m *machine) hookOf(id, event string) {
	m.t.Helper()
	of, _ := m.server.find(id)
	m.hook(socket.Hook{Agent: of.Session.Agent, Session: of.Session.ID, Event: event, Name: id})
}

// A message to an agent that does not run starts it, with the session that it had; a broadcast starts nobody.
func TestADirectMessageStartsAnAgent(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.withStandIns("")
	bob := m.terminalAgent("bob")
	m.must(AgentRequest{Do: "add", Agent: "dora", Type: "claude"})
	carol := m.agent("carol", "codex", m.repo)
	m.server.connected("carol")
	of, _ := m.server.find("bob")
	session := of.Session.ID
	bob.call("register-agent", nil, nil)
	if answer := m.must(AgentRequest{Do: "stop", Agent: "bob"}); !answer.Did || answer.Status.State != deactivated || answer.Status.Registered {
		t.Errorf("stopped: %+v", answer)
	}
	carol.call("broadcast-message", args{"message": "anybody?"}, nil)
	if _, runs := m.server.terminalOf("bob"); runs {
		t.Error("a broadcast started bob")
	}
	carol.send("bob", "come back")
	m.shows("bob", "bob is "+session, 1)
	m.shows("bob", heardNudge, 1)
	// Its daemon's end is its end, and the next one starts it likewise.
	m.stop()
	m.start()
	m.address()
	if got := m.state("bob"); got != deactivated {
		t.Errorf("after a restart of the daemon bob is %q", got)
	}
	// A session that is no more is not gone on with.
	m.server.mu.Lock()
	m.server.agents["bob"].Session.ID = "lost-session"
	m.server.mu.Unlock()
	m.known("carol").send("bob", "again")
	m.shows("bob", "bob is 5e551017-", 1)
	m.shows("bob", heardNudge, 1)
}

func TestTerminals(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.withStandIns("")
	m.terminalAgent("bob")
	if text := m.screen("bob"); !strings.Contains(text, "bob is 5e551017-") || !strings.Contains(text, " in "+m.repo) || !strings.Contains(text, "--strict-mcp-config") {
		t.Errorf("it shows %q", text)
	}
	config := filepath.Join(m.KnootHome, "agents", "bob.json")
	if info, err := os.Stat(config); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("its configuration: %v, %v", info, err)
	}
	// The person sees it, from what is kept, and nobody else does.
	for _, secret := range []string{"", m.known("bob").secret} {
		if got := m.request("GET", "/api/v1/agent/terminal?agent=bob", "", "Authorization: Bearer "+secret); got.status != 401 {
			t.Errorf("with %q: %+v", secret, got)
		}
		if got := m.request("POST", "/api/v1/agent/terminal", `{"agent_id":"bob","keys":"eA=="}`, "Authorization: Bearer "+secret); got.status != 401 {
			t.Errorf("with %q: %+v", secret, got)
		}
	}
	m.input("nobody", 404, `"rows":30,"columns":90`)
	m.input("bob", 400, `"rows":0,"columns":90`)
	m.input("bob", 204, `"rows":30,"columns":90`)
	req, _ := http.NewRequest("GET", "http://"+m.address()+"/api/v1/agent/terminal?agent=bob", nil)
	req.Header.Set("Authorization", "Bearer "+m.token())
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%v, %v", err, resp)
	}
	defer resp.Body.Close()
	m.keys("bob", "hello\r")
	m.shows("bob", "rests", 1)
	m.must(AgentRequest{Do: "stop", Agent: "bob"})
	text, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(text), "bob is ") || !strings.Contains(string(text), `heard "hello"`) {
		t.Errorf("the stream: %v, %q", err, text)
	}
	// All of it goes with it, mail too.
	carol := m.agent("carol", "codex", m.repo)
	m.server.connected("carol")
	m.server.mu.Lock()
	m.server.agents["bob"].Allowed = false // so that it is not started by this
	m.server.mu.Unlock()
	carol.send("bob", "of old")
	m.must(AgentRequest{Do: "rm", Agent: "bob"})
	if got := m.agent("bob", "claude", m.repo).inbox(true); len(got) > 0 {
		t.Errorf("a new bob has the mail of the old one: %q", got)
	}
	m.must(AgentRequest{Do: "rm", Agent: "bob"})
	if _, err := os.Stat(config); !os.IsNotExist(err) {
		t.Errorf("its configuration is still there: %v", err)
	}
	m.stop()
	m.start()
	m.address()
	if _, known := m.server.find("bob"); known {
		t.Error("it is back")
	}
}

// What runs in a terminal is told its size, and that it has another.
func TestATerminalIsResized(t *testing.T) {
	t.Parallel()
	term, err := startTerminal(exec.Command("/bin/sh", "-c", "stty size; read x; stty size; cat"))
	if err != nil {
		t.Fatal(err)
	}
	defer term.end()
	says := func(want string) {
		t.Helper()
		for {
			text, _, more := term.since(0)
			if strings.Contains(string(text), want) {
				return
			}
			select {
			case <-more:
			case <-time.After(patience):
				t.Fatalf("it says %q, want %q", text, want)
			}
		}
	}
	says(fmt.Sprintf("%d %d", terminalRows, terminalColumns))
	if err := term.resize(31, 97); err != nil {
		t.Fatal(err)
	}
	if err := term.press([]byte("\r")); err != nil {
		t.Fatal(err)
	}
	says("31 97")
}

// How an agent is started: with what it needs to reach this server, of which nothing is in its command line, and with its session.
func TestCommandsOfAgents(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	bin := t.TempDir()
	for _, name := range []string{"claude", "codex"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	environ := []string{"PATH=" + bin + ":bin", "LANG=C", "GIT_DIR=/x", "KNOOT_AGENT=another", "KNOOT_MCP_TOKEN=another", "PWD=/", "CI=1", "TERM=dumb"}
	const address = "127.0.0.1:8766"
	for kind, want := range map[string][]string{
		"claude": {"claude", "--mcp-config", filepath.Join(m.KnootHome, "agents", "bob.json"), "--strict-mcp-config", "--allowedTools=mcp__knoot", "--resume", "5e55"},
		"codex": {"codex", "resume", "5e55", "-c", `mcp_servers.knoot.url="http://127.0.0.1:8766/mcp?agent=bob"`, "-c", `mcp_servers.knoot.bearer_token_env_var="KNOOT_MCP_TOKEN"`,
			"-c", `mcp_servers.knoot.default_tools_approval_mode="approve"`},
	} {
		of := &agent{entry: entry{ID: "bob", Type: kind, Folder: m.repo, Secret: newSecret()}, seen: seen{Session: daemon.SessionKey{Agent: kind, ID: "5e55"}}}
		command, err := m.server.command(of, environ, true, address)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(command.Args, want) || command.Path != filepath.Join(bin, kind) || command.Dir != m.repo {
			t.Errorf("%s is started by %s with %q in %s, want %q", kind, command.Path, command.Args, command.Dir, want)
		}
		for _, v := range []string{"KNOOT_AGENT=bob", "LANG=C", "PWD=" + m.repo, "TERM=xterm-256color"} {
			if !slices.Contains(command.Env, v) {
				t.Errorf("%s has no %s in %q", kind, v, command.Env)
			}
		}
		for _, v := range command.Env {
			if strings.HasPrefix(v, "GIT_") || strings.HasPrefix(v, "CI=") || strings.HasSuffix(v, "=another") {
				t.Errorf("%s has %s", kind, v)
			}
		}
		if has := slices.Contains(command.Env, "KNOOT_MCP_TOKEN="+of.Secret); has != (kind == "codex") {
			t.Errorf("%s has the secret in its environment: %v", kind, has)
		}
		if text, err := os.ReadFile(filepath.Join(m.KnootHome, "agents", "bob.json")); err != nil || !strings.Contains(string(text), of.Secret) || !strings.Contains(string(text), "/mcp?agent=bob") {
			t.Errorf("%s has in its configuration %s, %v", kind, text, err)
		}
		fresh, err := m.server.command(of, environ, false, "") // nothing is listened on
		if err != nil || !slices.Equal(fresh.Args, []string{kind}) {
			t.Errorf("without a server and a session %s is started with %q, %v", kind, fresh.Args, err)
		}
	}
}

// A terminal ends with all that it runs, also what ignores that.
func TestATerminalEndsWithItsGroup(t *testing.T) {
	t.Parallel()
	term, err := startTerminal(exec.Command("/bin/sh", "-c", "trap '' HUP; sleep 1000 & echo begun $!; while :; do sleep 1000; done"))
	if err != nil {
		t.Fatal(err)
	}
	var child int
	for child == 0 {
		text, _, more := term.since(0)
		if _, err := fmt.Sscanf(string(text), "begun %d", &child); err != nil {
			<-more
		}
	}
	term.end()
	// It lets go of the terminal a moment before it has ended.
	for until := time.Now().Add(patience); syscall.Kill(child, 0) == nil && !isZombie(child); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%d still runs", child)
		}
	}
	if err := term.press([]byte("x")); err == nil {
		t.Error("keys were typed to nobody")
	}
}

// A program that left its session holds the terminal and hears no signal: whoever ends the terminal does not wait for it.
func TestATerminalEndsWithoutWhoLeftIt(t *testing.T) {
	t.Parallel()
	setsid, err := exec.LookPath("setsid")
	if err != nil {
		t.Skip(err)
	}
	term, err := startTerminal(exec.Command("/bin/sh", "-c", setsid+` sh -c 'echo begun $$ begun; exec sleep 600' & exec cat`))
	if err != nil {
		t.Fatal(err)
	}
	var child int
	for child == 0 {
		text, _, more := term.since(0)
		if n, _ := fmt.Sscanf(string(text), "begun %d begun", &child); n == 0 {
			<-more
		}
	}
	t.Cleanup(func() { _ = syscall.Kill(child, syscall.SIGKILL) })
	if err := term.resize(30, 90); err != nil {
		t.Error(err)
	}
	ended := make(chan struct{})
	go func() {
		term.end()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("the terminal does not end")
	}
	if err := syscall.Kill(child, 0); err != nil {
		t.Errorf("what left it does not run, and this shows nothing: %v", err)
	}
	if err := term.resize(20, 80); err != errEnded {
		t.Errorf("a terminal that ended is resized: %v", err)
	}
}

// Keys for a program that reads none are not waited for without end.
func TestKeysForAProgramThatReadsNone(t *testing.T) {
	t.Parallel()
	term, err := startTerminal(exec.Command("/bin/sh", "-c", "stty raw -echo; echo begun; exec sleep 600"))
	if err != nil {
		t.Fatal(err)
	}
	defer term.end()
	for {
		text, _, more := term.since(0)
		if strings.Contains(string(text), "begun") {
			break
		}
		<-more
	}
	pressed := make(chan error, 1)
	go func() { pressed <- term.press(make([]byte, maxKeys)) }()
	select {
	case err := <-pressed:
		if err != errDeaf {
			t.Errorf("typed: %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the keys are waited for")
	}
}

// isZombie reports whether a process has ended and nobody has asked how: whoever inherited it may never do.
func isZombie(process int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", process))
	return err == nil && strings.Contains(string(text), ") Z ")
}

func TestWhatATerminalKeepsIsBounded(t *testing.T) {
	t.Parallel()
	term := &terminal{more: make(chan struct{})}
	for i := range 100_000 {
		term.print([]byte(fmt.Sprintf("line %07d\n", i)))
	}
	text, printed, _ := term.since(0)
	if len(text) != scrollback || printed != 1_300_000 || cap(term.kept) > 4*scrollback || !strings.HasSuffix(string(text), "line 0099999\n") {
		t.Errorf("%d bytes of %d, in %d", len(text), printed, cap(term.kept))
	}
	if text, _, _ := term.since(printed - 13); string(text) != "line 0099999\n" {
		t.Errorf("the last line is %q", text)
	}
	if text, _, _ := term.since(printed + 1); len(text) != 0 {
		t.Errorf("after the end stands %q", text)
	}
}

func TestWhatATerminalAnswersItselfIsNoKey(t *testing.T) {
	t.Parallel()
	for keys, want := range map[string]bool{"\x1b[?62;c": true, "\x1b[12;40R": true, "\x1b[I": true, "\x1b]11;rgb:0/0/0\x1b\\": true, "\x1b[A": false, "\x1b": false, "y": false, "\r": false} {
		if got := isReply([]byte(keys)); got != want {
			t.Errorf("%q: %v", keys, got)
		}
	}
}

func TestWhoMayStartWhat(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.withStandIns("[templates.reviewer]\ntype = \"claude\"\ndescription = \"reviews Go\"\ntags = [\"go\"]\n")
	elsewhere := m.repository("ledger")
	link := filepath.Join(m.repo, "out")
	if err := os.Symlink(elsewhere, link); err != nil {
		t.Fatal(err)
	}
	alice := m.members("alice", "eve")[0]
	m.agent("stranger", "claude", elsewhere)
	// It asks.
	var made creation
	alice.call("create-agent", args{"name": "bob", "folder": ".", "type": "claude", "tags": "go", "cost": "low"}, &made)
	if made.ID != "bob" || made.Started || !strings.Contains(made.Note, "knoot agent start bob") {
		t.Errorf("made: %+v", made)
	}
	alice.send("bob", "are you there?") // which does not start what nobody allowed
	if _, runs := m.server.terminalOf("bob"); runs {
		t.Error("bob runs")
	}
	_, all := alice.list("list-agents", nil)
	if got := all["bob"]; got.CreatedBy != "alice" || got.State != deactivated || !slices.Equal(got.Tags, []string{"go"}) || got.Cost != "low" {
		t.Errorf("bob is %+v", got)
	}
	m.must(AgentRequest{Do: "start", Agent: "bob"})
	m.shows("bob", heardNudge, 1)
	// What is refused.
	for _, c := range []struct {
		arguments args
		words     []string
	}{
		{args{"folder": ".", "type": "claude"}, []string{`missing required argument "name"`}},
		{args{"name": "x", "type": "claude"}, []string{`missing required argument "folder"`}},
		{args{"name": "x", "folder": "."}, []string{`missing required argument "type"`}},
		{args{"template": "nothing"}, []string{"no template nothing"}},
		{args{"name": "x", "folder": ".", "type": "shell"}, []string{"shell", "person"}},
		{args{"name": "x", "folder": ".", "type": "gemini"}, []string{"[agents.gemini]"}},
		{args{"name": "x", "folder": ".", "type": "bold"}, []string{"--dangerously-skip-permissions"}},
		{args{"name": "x", "folder": elsewhere, "type": "claude"}, []string{"no worktree of this repository"}},
		{args{"name": "x", "folder": "out", "type": "claude"}, []string{"no worktree of this repository"}},
		{args{"name": "x", "folder": "..", "type": "claude"}, []string{"no worktree of this repository"}},
		{args{"name": "x", "folder": "nowhere", "type": "claude"}, []string{"no folder"}},
		{args{"name": "bob", "folder": ".", "type": "claude"}, []string{"bob already"}},
		{args{"name": "stranger", "folder": ".", "type": "claude"}, []string{"another repository"}},
		{args{"name": "all", "folder": ".", "type": "claude"}, []string{"no name"}},
		{args{"name": "x", "folder": ".", "type": "claude", "cost": "huge"}, []string{"cost"}},
	} {
		alice.refused("create-agent", c.arguments, c.words...)
	}
	// A template gives what is not said.
	alice.call("create-agent", args{"template": "reviewer", "companion": true}, &made)
	if of, _ := m.server.find("reviewer"); of.Type != "claude" || of.Description != "reviews Go" || of.Owner != "alice" || of.Folder != m.repo {
		t.Errorf("the reviewer is %+v", of.entry)
	}
	alice.call("create-agent", args{"template": "reviewer"}, &made)
	if made.ID != "reviewer-2" {
		t.Errorf("the second is %s", made.ID)
	}
	// Who made it closes it, and no other.
	m.known("eve").refused("close-agent", args{"target": "bob"}, "not created by you")
	m.known("eve").refused("close-agent", args{"target": "reviewer"}, "no agent reviewer")
	alice.refused("close-agent", args{"target": "eve"}, "not created by you")
	alice.refused("close-agent", args{"target": "stranger"}, "no agent stranger")
	alice.call("close-agent", args{"target": "bob"}, nil)
	if _, known := m.server.find("bob"); known {
		t.Error("bob is still there")
	}
	if _, runs := m.server.terminalOf("bob"); runs {
		t.Error("bob still runs")
	}
}

func TestAgentsStartAgents(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.withStandIns("agents_may_start = \"yes\"\n")
	maker := m.members("a0")[0]
	for i := range maxDepth {
		var made creation
		maker.call("create-agent", args{"name": fmt.Sprintf("a%d", i+1), "folder": ".", "type": "claude"}, &made)
		if !made.Started {
			t.Errorf("made: %+v", made)
		}
		maker = m.known(made.ID)
	}
	maker.refused("create-agent", args{"name": "a9", "folder": ".", "type": "claude"}, "in a row")
	m.known("a0").refused("create-agent", args{"name": "b", "folder": ".", "type": "broken"}, "cannot be started")
	if _, known := m.server.find("b"); known {
		t.Error("what cannot be started is there")
	}
	for i := range maxStarts - maxDepth {
		m.known("a0").call("create-agent", args{"name": fmt.Sprintf("c%d", i), "folder": ".", "type": "claude"}, nil)
	}
	m.known("a0").refused("create-agent", args{"name": "d", "folder": ".", "type": "claude"}, "within a minute")
	m.server.mu.Lock()
	m.server.starts = nil
	for i := range maxRunning - len(m.server.terminals) {
		m.server.terminals[fmt.Sprintf("filler-%d", i)] = m.server.terminals["a1"]
	}
	m.server.mu.Unlock()
	m.known("a0").refused("create-agent", args{"name": "d", "folder": ".", "type": "claude"}, "may be no more")
	m.server.mu.Lock()
	for i := range maxRunning {
		delete(m.server.terminals, fmt.Sprintf("filler-%d", i))
	}
	m.server.mu.Unlock()
	m.stop()
	m.withStandIns("agents_may_start = \"no\"\n")
	m.known("a0").refused("create-agent", args{"name": "e", "folder": ".", "type": "claude"}, "agents_may_start")
}

// A session of another agent that a terminal agent runs has its name, and is not it.
func TestAnAgentInAnAgentIsNotIt(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.withStandIns("")
	m.terminalAgent("bob")
	m.hook(socket.Hook{Agent: "codex", Session: "inner-session", Event: "UserPromptSubmit", Prompt: "x", Name: "bob"})
	if of, _ := m.server.find("bob"); of.Session.Agent != "claude" || of.State != idle {
		t.Errorf("bob is %+v", of.seen)
	}
}

// Events of a question make an agent wait for its person, until something else is heard.
func TestStatesFromQuestions(t *testing.T) {
	t.Parallel()
	for event, want := range map[daemon.SessionEvent]string{
		{Event: "PermissionRequest"}:                          awaitingInput,
		{Event: "Notification", Reason: "permission_prompt"}:  awaitingInput,
		{Event: "Notification", Reason: "elicitation_dialog"}: awaitingInput,
		{Event: "Notification", Reason: "idle_prompt"}:        "",
		{Event: "PostToolUse"}:                                working,
		{Event: "Stop"}:                                       idle,
		{Event: "SubagentStop"}:                               "",
	} {
		if got := stateAfter(event); got != want {
			t.Errorf("%+v: %q, want %q", event, got, want)
		}
	}
}
