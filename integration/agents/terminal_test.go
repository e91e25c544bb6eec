package agents

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"knoot.dev/knoot/integration/stage"
)

// office is where agents work in terminals that knoot keeps, as their person sees it.
type office struct {
	*scene
	carol *endpoint // an agent that only writes to the others
	token string    // the person's
	bin   string    // where the person's PATH has the agents

	mu      sync.Mutex
	screens map[string]*bytes.Buffer // guarded by mu: what their terminals printed, by agent; one that began again goes on in its own
}

// newOffice makes an office for an agent that knoot can run.
func newOffice(s *scene) *office {
	s.Helper()
	if agent, is := s.agent.(Codex); is && agent.codeMode {
		s.Skip("its terminal is that of Codex with another model")
	} else if _, is := s.agent.(Claude); !is && !isCodex(s.agent) {
		s.Skip("knoot does not know how its sessions go on")
	}
	o := &office{scene: s, carol: s.endpoint("carol"), bin: stage.Dir(s.T), screens: map[string]*bytes.Buffer{}}
	token, err := os.ReadFile(filepath.Join(s.person.KnootHome, "mcp.token"))
	if err != nil {
		s.Fatal(err)
	}
	o.token = strings.TrimSpace(string(token))
	path := strings.Join([]string{o.bin, s.person.Bin, os.Getenv("PATH")}, string(os.PathListSeparator))
	s.person.Extra = append(s.person.Extra, "PATH="+path, "SHELL=/bin/sh", "CODEX_HOME="+filepath.Join(s.person.Home, ".codex"))
	s.Cleanup(func() {
		if !s.Failed() {
			return
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		for id, screen := range o.screens {
			s.Logf("the terminal of %s: %q", id, screen)
		}
	})
	return o
}

// asking is a command line before which an agent that was settled so asks its person.
func asking(agent Agent, line string) Item {
	if isCodex(agent) {
		return Item{Tool: "exec_command", Input: object{"cmd": line, "sandbox_permissions": "require_escalated", "justification": "it is to be there"}}
	}
	return agent.Shell(line)
}

func isCodex(agent Agent) bool {
	_, is := agent.(Codex)
	return is
}

// settle sets an agent up as its person has it who works with it by hand: what it asks at its first start is answered, the repository
// and the hooks in it are trusted. asks has it ask before what asking says; else it asks nothing.
func (o *office) settle(agent Agent, m *Model, asks bool) {
	o.Helper()
	program := ""
	switch agent := agent.(type) {
	case Claude:
		const key = "sk-ant-none-of-anybody-0123456789"
		program = agent.executable
		mode := map[bool]string{true: "default", false: "acceptEdits"}[asks]
		o.person.Write(filepath.Join(o.person.Home, ".claude", "settings.json"), encode(object{"permissions": object{"defaultMode": mode}}))
		o.person.Write(filepath.Join(o.person.Home, ".claude.json"), encode(object{
			"hasCompletedOnboarding": true, "hasSeenAutoDefaultNudge": !asks, "customApiKeyResponses": object{"approved": []string{key[len(key)-20:]}},
			"projects": object{o.dir: object{"hasTrustDialogAccepted": true, "hasCompletedProjectOnboarding": true}},
		}))
		o.person.Extra = append(o.person.Extra, "ANTHROPIC_BASE_URL="+m.URL(), "ANTHROPIC_API_KEY="+key, "IS_SANDBOX=1",
			"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1")
	case Codex:
		program = agent.executable
		if err := agent.Configure(o.person.Home, m.URL(), o.dir); err != nil {
			o.Fatal(err)
		}
		config := filepath.Join(o.person.Home, ".codex", "config.toml")
		text, err := os.ReadFile(config)
		if err != nil {
			o.Fatal(err)
		}
		mode := `approval_policy = "never"` + "\n" + `sandbox_mode = "danger-full-access"` + "\n"
		if asks {
			mode = `approval_policy = "on-request"` + "\n" + `sandbox_mode = "workspace-write"` + "\n"
		}
		o.person.Write(config, "model = \"gpt-5.5\"\n"+mode+string(text)+"[notice.model_migrations]\n\"gpt-5.5\" = \"gpt-6-sol\"\n")
		if err := agent.Trust(deadline(o.T), o.person.Home, o.dir); err != nil {
			o.Fatal(err)
		}
	}
	if err := os.Symlink(program, filepath.Join(o.bin, agent.Hooks())); err != nil {
		o.Fatal(err)
	}
}

// begins makes an agent of a type and starts it, and waits until it is idle.
func (o *office) begins(id string, agent Agent) {
	o.Helper()
	o.person.Knoot(o.dir, "agent", "add", id, "--type", agent.Hooks())
	o.person.Knoot(o.dir, "agent", "start", id)
	o.watch(id)
	o.is(id, "idle")
}

// watch keeps what an agent's terminal prints, until it ends.
func (o *office) watch(id string) {
	o.Helper()
	var resp *http.Response
	o.await("the terminal of "+id, func() bool {
		var err error
		if resp, err = o.ask(http.MethodGet, "/api/v1/agent/terminal?agent="+id, nil); err != nil {
			o.Fatal(err)
		}
		if resp.StatusCode != http.StatusOK {
			resp.Body.Close()
		}
		return resp.StatusCode == http.StatusOK
	})
	screen := &bytes.Buffer{}
	o.mu.Lock()
	o.screens[id] = screen
	o.mu.Unlock()
	var reading sync.WaitGroup
	reading.Go(func() {
		for piece := make([]byte, 4096); ; {
			n, err := resp.Body.Read(piece)
			o.mu.Lock()
			screen.Write(piece[:n])
			o.mu.Unlock()
			if err != nil {
				return
			}
		}
	})
	o.Cleanup(func() { resp.Body.Close(); reading.Wait() })
}

// ask sends a request of the person's.
func (o *office) ask(method, path string, body any) (*http.Response, error) {
	at, err := url.Parse(o.carol.URL)
	if err != nil {
		return nil, err
	}
	var text io.Reader
	if body != nil {
		text = strings.NewReader(encode(body))
	}
	req, err := http.NewRequest(method, "http://"+at.Host+path, text)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+o.token)
	req.Header.Set("Content-Type", "application/json")
	return http.DefaultClient.Do(req)
}

// types types keys at an agent's terminal, as its person does.
func (o *office) types(id string, keys ...string) {
	o.Helper()
	for _, each := range keys {
		resp, err := o.ask(http.MethodPost, "/api/v1/agent/terminal", object{"agent_id": id, "keys": base64.StdEncoding.EncodeToString([]byte(each))})
		if err != nil || resp.StatusCode != http.StatusNoContent {
			o.Fatalf("typing at %s: %v, %v", id, err, resp)
		}
		resp.Body.Close()
	}
}

// standing is what the server says of an agent.
type standing struct {
	ID      string `json:"id"`
	State   string `json:"state"`
	Session string `json:"session_id"`
}

func (o *office) standing(id string) standing {
	o.Helper()
	found, err := o.look(id)
	if err != nil {
		o.Fatal(err)
	}
	return found
}

func (o *office) look(id string) (found standing, err error) {
	resp, err := o.ask(http.MethodGet, "/api/v1/agent/status", nil)
	if err != nil {
		return found, err
	}
	defer resp.Body.Close()
	var all []standing
	if err := json.NewDecoder(resp.Body).Decode(&all); err != nil {
		return found, err
	}
	for _, each := range all {
		if each.ID == id {
			found = each
		}
	}
	return found, nil
}

// is waits until an agent is in a state.
func (o *office) is(id, state string) {
	o.Helper()
	o.await(id+" is "+state, func() bool { return o.standing(id).State == state })
}

// await waits until something is so. A start of the real program takes seconds on a busy machine.
func (o *office) await(what string, is func() bool) {
	o.Helper()
	for until := time.Now().Add(90 * time.Second); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(until) {
			o.Fatalf("it does not come: %s", what)
		}
	}
}

// shows waits until an agent's terminal has shown a text; blanks do not count, which a terminal jumps over.
func (o *office) shows(id, text string) {
	o.Helper()
	o.await(id+" shows "+text, func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		plain := control.ReplaceAll(o.screens[id].Bytes(), nil)
		return bytes.Contains(bytes.ReplaceAll(plain, []byte(" "), nil), []byte(strings.ReplaceAll(text, " ", "")))
	})
}

// control is what a program prints that is no text.
var control = regexp.MustCompile(`\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|.)`)

// turns waits until a model was asked so often, and returns what.
func (o *office) turns(m *Model, times int) []Request {
	o.Helper()
	o.await(fmt.Sprintf("the model is asked %d times", times), func() bool { return len(m.Turns()) >= times })
	return m.Turns()
}

// writes has carol send a message.
func (o *office) writes(to, text string) {
	o.Helper()
	o.carol.calls("send-message", object{"to": to, "message": text})
}

// calls calls a tool, as an agent's own program does, and returns its answer's text.
func (e *endpoint) calls(tool string, arguments object) string {
	e.Helper()
	at, err := url.Parse(e.URL)
	if err != nil {
		e.Fatal(err)
	}
	arguments["agentId"] = at.Query().Get("agent")
	text := e.post(encode(object{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": object{"name": tool, "arguments": arguments}}))
	var answer struct {
		Result struct {
			IsError bool
			Content []struct{ Text string }
		}
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil || answer.Result.IsError || len(answer.Result.Content) != 1 {
		e.Fatalf("%s answers %s", tool, text)
	}
	return answer.Result.Content[0].Text
}

const introduction = "knoot started you as the agent alice."

// nudge is how the line begins that is typed to an agent that has mail.
const nudge = "You have mail: read it with knoot's check-messages tool."

// Idle, it is told of its mail by one line that is typed to it; while it asks its person nothing is, for Enter would be the answer.
func isNudgedWhenIdle(s *scene) {
	o := newOffice(s)
	m := s.model(Script{
		{s.tool("check-messages", `{"agentId":"alice"}`)}, {s.tool("send-message", `{"agentId":"alice","to":"carol","message":"I am"}`)},
		{asking(s.agent, "touch asked.txt")}, {{Text: "It is made."}},
		{s.tool("check-messages", `{"agentId":"alice"}`)}, {{Text: "I know."}},
	})
	o.settle(s.agent, m, true)
	m.Asked(func(turn int) {
		// The model waits for this; the daemon may hear of the turn a little later than the model.
		state, err := "", error(nil)
		for until := time.Now().Add(10 * time.Second); state != "working" && time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
			var found standing
			if found, err = o.look("alice"); err != nil {
				break
			}
			state = found.State
		}
		if state != "working" {
			s.Errorf("at the model's turn %d it is %q, %v", turn, state, err)
		}
	})
	o.begins("alice", s.agent)
	o.writes("alice", "are you there?")
	if !isCodex(s.agent) {
		// At its start it asks which mode is to be the default, and its hooks say nothing of that.
		o.shows("alice", "Make auto mode your default")
		time.Sleep(1500 * time.Millisecond) // nothing is to happen, and only time can show it
		if len(m.Turns()) > 0 {
			s.Error("what it asked was answered")
		}
		o.types("alice", "\x1b[B", "\r")
	}
	o.is("alice", "awaiting-input")
	requests := o.turns(m, 3)
	s.counts(requests, introduction, 1, 1, 1)
	s.counts(requests, nudge, 1, 1, 1)
	if mail := o.carol.calls("check-messages", object{}); !strings.Contains(mail, `"text":"I am"`) {
		s.Errorf("carol reads %s", mail)
	}

	o.writes("alice", "never mind")
	time.Sleep(1500 * time.Millisecond) // nothing is to happen, and only time can show it
	if _, err := os.Stat(s.path("asked.txt")); err == nil || len(m.Turns()) != 3 || o.standing("alice").State != "awaiting-input" {
		s.Errorf("while it asked, something answered: %v, %d turns, it is %q", err, len(m.Turns()), o.standing("alice").State)
	}
	o.types("alice", "\r")
	requests = o.turns(m, 6)
	if _, err := os.Stat(s.path("asked.txt")); err != nil {
		s.Errorf("what was allowed did not happen: %v", err)
	}
	s.counts(requests, introduction, 1, 1, 1, 1, 1, 1)
	s.counts(requests, nudge, 1, 1, 1, 1, 2, 2)
	o.is("alice", "idle")
}

// Stopped, it is started by a message to it alone, and goes on with its session.
func isResumedByAMessage(s *scene) {
	o := newOffice(s)
	m := s.model(Script{
		{s.tool("check-messages", `{"agentId":"alice"}`)}, {{Text: "The rate is nineteen."}},
		{s.tool("check-messages", `{"agentId":"alice"}`)}, {{Text: "As I said."}},
	})
	o.settle(s.agent, m, false)
	o.begins("alice", s.agent)
	o.writes("alice", "what is the rate?")
	o.turns(m, 2)
	o.is("alice", "idle")
	before := o.standing("alice").Session
	s.person.Knoot(s.dir, "agent", "stop", "alice")
	o.is("alice", "deactivated")
	o.writes("alice", "are you sure?")
	o.watch("alice")
	requests := o.turns(m, 4)
	o.is("alice", "idle")
	if after := o.standing("alice").Session; after != before || before == "" {
		s.Errorf("the session was %q and is %q", before, after)
	}
	s.counts(requests, "The rate is nineteen.", 0, 0, 1, 1)
	s.counts(requests, introduction, 1, 1, 1, 1)
	s.counts(requests, nudge, 1, 1, 2, 2)
}

// Two agents that nobody types to but knoot: one plans and gives a task out, the other does it and says so, the first takes it for done.
func carriesATask(s *scene) {
	o := newOffice(s)
	find := FindCodex
	if isCodex(s.agent) {
		find = FindClaude
	}
	other, err := find()
	if err != nil {
		s.Skip(err)
	}
	s.person.Knoot(s.dir, "init", "--agent", other.Hooks())
	plans := s.model(Script{
		{s.tool("plan-tasks", `{"agentId":"alice","tasks":[{"id":"rate","goal":"lower the rate in `+heldPath+` to 7","assignee":"bob"},{"id":"docs","goal":"say so","dependsOn":["rate"]}]}`)},
		{s.tool("dispatch-task", `{"agentId":"alice","taskId":"rate"}`)}, {{Text: "It is given out."}},
		{s.tool("check-messages", `{"agentId":"alice"}`)}, {s.tool("complete-task", `{"agentId":"alice","taskId":"rate","outcome":"done"}`)}, {{Text: "It is done."}},
	})
	works := s.model(Script{
		{toolOf(other, "check-messages", `{"agentId":"bob"}`)}, {other.Read(s.path(heldPath))}, {other.Edit(s.path(heldPath), heldLine, "export const rate = 7")},
		{toolOf(other, "send-message", `{"agentId":"bob","to":"alice","message":"the rate is 7 now"}`)}, {{Text: "I said so."}},
	})
	o.settle(s.agent, plans, false)
	o.settle(other, works, false)
	o.begins("alice", s.agent)
	o.begins("bob", other)
	o.types("alice", "\x1b[200~have the rate lowered, by bob\x1b[201~")
	o.shows("alice", "have the rate lowered, by bob") // an Enter that comes with a pasted text may be taken for a part of it
	o.types("alice", "\r")
	alice, bob := o.turns(plans, 6), o.turns(works, 5)
	o.is("alice", "idle")
	o.is("bob", "idle")
	s.counts(alice, nudge, 0, 0, 0, 1, 1, 1)
	s.counts(bob, nudge, 1, 1, 1, 1, 1)
	if text := s.text(heldPath); text != "export const rate = 7\n" {
		s.Errorf("after bob's work the file is %q", text)
	}
	var tasks []struct{ ID, State string }
	if err := json.Unmarshal([]byte(s.endpoint("alice").calls("task-status", object{})), &tasks); err != nil || fmt.Sprint(tasks) != "[{rate done} {docs ready}]" {
		s.Errorf("the tasks are %v, %v", tasks, err)
	}
}
