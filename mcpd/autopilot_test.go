package mcpd

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"knoot.dev/knoot/daemon/socket"
)

// model stands in for a model, behind the interface of messages.
type model struct {
	*httptest.Server
	t        testing.TB
	ends     chan struct{}     // closed when the test ends
	verdicts map[string]string // by message; one that is not here is finished

	mu    sync.Mutex
	asked []string                                                  // guarded by mu: what was sent to it, in order
	reply func(w http.ResponseWriter, r *http.Request, said string) // guarded by mu: answers
}

const modelKeyOfTests = "key-4f1d2c"

// newModel makes a model that answers each message with the verdict that is said of it, and finished to all others.
func newModel(t testing.TB, verdicts map[string]string) *model {
	o := &model{t: t, ends: make(chan struct{}), verdicts: verdicts}
	o.reply = func(w http.ResponseWriter, _ *http.Request, said string) { o.decide(w, said) }
	o.Server = httptest.NewServer(http.HandlerFunc(o.serve))
	t.Cleanup(func() {
		close(o.ends)
		o.Close()
	})
	return o
}

func (o *model) say(w http.ResponseWriter, text string) {
	part, _ := json.Marshal(text)
	fmt.Fprintf(w, `{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"text","text":%s}],"stop_reason":"end_turn"}`, part)
}

// decide answers as its verdicts say.
func (o *model) decide(w http.ResponseWriter, said string) {
	o.say(w, cmp.Or(o.verdicts[said], isFinished))
}

// serve holds each request to be of the interface, and to have nothing in it but the message and what is the same for all.
func (o *model) serve(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(r.Body)
	var body struct {
		Model     string `json:"model"`
		MaxTokens int    `json:"max_tokens"`
		System    string `json:"system"`
		Messages  []struct {
			Role    string `json:"role"`
			Content string `json:"content"`
		} `json:"messages"`
	}
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.DisallowUnknownFields()
	if derr := decoder.Decode(&body); err != nil || derr != nil || len(body.Messages) != 1 || body.Messages[0].Role != "user" ||
		body.Model != "small" || body.MaxTokens < 1 || body.System != instruction {
		o.t.Errorf("the model is asked %s: %v, %v", text, err, derr)
		return
	}
	if r.Method != "POST" || r.URL.Path != "/base/v1/messages" || r.URL.RawQuery != "" || r.Header.Get("X-Api-Key") != modelKeyOfTests ||
		r.Header.Get("Anthropic-Version") != "2023-06-01" || r.Header.Get("Content-Type") != "application/json" {
		o.t.Errorf("%s %s with %v", r.Method, r.URL, r.Header)
	}
	said := body.Messages[0].Content
	o.mu.Lock()
	o.asked = append(o.asked, said)
	reply := o.reply
	o.mu.Unlock()
	reply(w, r, said)
}

// heard is what was sent to it, in order.
func (o *model) heard() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.asked)
}

// held has it answer a message when it is let go, or not at all; came is given the message, and left it once its request has ended
// before.
func (o *model) held() (came, left chan string, let chan struct{}) {
	came, left, let = make(chan string, 10), make(chan string, 10), make(chan struct{})
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reply = func(w http.ResponseWriter, r *http.Request, said string) {
		came <- said
		select {
		case <-let:
			o.decide(w, said)
		case <-r.Context().Done():
			left <- said
		case <-o.ends:
		}
	}
	return came, left, let
}

// withAutopilot has agents run the stand-in, and autopilot on with a model.
func (m *machine) withAutopilot(o *model, more string) {
	m.t.Helper()
	m.Extra = append(m.Extra, keyVariable+"="+modelKeyOfTests)
	m.withStandIns(fmt.Sprintf("[autopilot]\nenabled = true\nendpoint = \"%s/base\"\nmodel = \"small\"\n%s", o.URL, more))
}

// notice is the next notification that the person gets.
func (m *machine) notice(want string) {
	m.t.Helper()
	select {
	case got := <-m.notices:
		if got != want {
			m.t.Errorf("the person is told %q, want %q", got, want)
		}
	case <-time.After(patience):
		m.t.Errorf("the person is not told %q; bob shows %s", want, m.screen("bob"))
	}
}

// next is what comes from a channel.
func (m *machine) next(from <-chan string, want string) {
	m.t.Helper()
	select {
	case got := <-from:
		if got != want {
			m.t.Errorf("%q comes, want %q", got, want)
		}
	case <-time.After(patience):
		m.t.Fatalf("%q does not come; bob shows %s", want, m.screen("bob"))
	}
}

// logs awaits that the log has lines with all of the words, and returns how many these are.
func (m *machine) logs(words ...string) (lines int) {
	m.t.Helper()
	m.await(fmt.Sprintf("the log says %q", words), func() bool {
		text, err := os.ReadFile(filepath.Join(m.KnootHome, "knootd.log"))
		if err != nil {
			return false
		}
		lines = 0
		for line := range strings.Lines(string(text)) {
			if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
				lines++
			}
		}
		return lines > 0
	})
	return lines
}

// turn tells of a turn of an agent that a person did not type: a prompt from elsewhere, and its end with a last message.
func (m *machine) turn(id, said string) {
	m.t.Helper()
	m.prompted(id, false)
	of, _ := m.server.find(id)
	m.hook(socket.Hook{Session: of.Session.ID, Event: "Stop", Name: id, Said: said})
}

func (m *machine) prompted(id string, machine bool) {
	m.t.Helper()
	of, _ := m.server.find(id)
	m.hook(socket.Hook{Session: of.Session.ID, Event: "UserPromptSubmit", Prompt: "x", Name: id, Machine: machine})
}

var heardContinue = fmt.Sprintf("heard %q", continueText)

// continued awaits that an agent was told to continue so many times, and no more.
func (m *machine) continued(id string, times int) {
	m.t.Helper()
	m.shows(id, heardContinue, times)
	if n := strings.Count(m.screen(id), heardContinue); n != times {
		m.t.Errorf("%s was told to continue %d times, want %d:\n%s", id, n, times, m.screen(id))
	}
}

// With an endpoint and a key, but not switched on, nothing is sent.
func TestAutopilotIsOffByDefault(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	o := newModel(t, map[string]string{"more": shouldContinue})
	m.Extra = append(m.Extra, keyVariable+"="+modelKeyOfTests)
	m.withStandIns(fmt.Sprintf("[autopilot]\nendpoint = \"%s/base\"\nmodel = \"small\"\n", o.URL))
	m.terminalAgent("bob")
	m.turn("bob", "more")
	m.server.mu.Lock()
	r := m.server.terminals["bob"]
	m.server.mu.Unlock()
	m.await("the end of the turn is looked at", func() bool {
		m.server.mu.Lock()
		defer m.server.mu.Unlock()
		return r.ending != nil && r.ending.asked
	})
	carol := m.agent("carol", "codex", m.repo)
	m.server.connected("carol")
	carol.send("bob", "one")
	m.shows("bob", heardNudge, 1)
	if got := m.server.Unpiloted(); got != "" {
		t.Errorf("it is off, and said to do nothing: %q", got)
	}
	m.stop() // which waits for what is under way
	if got := o.heard(); len(got) > 0 {
		t.Errorf("it is off, and sent %q", got)
	}
}

// The end of a turn sends the last message, and what comes of the three answers is that the agent goes on, once, that its person is
// asked, and nothing.
func TestAutopilot(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	o := newModel(t, map[string]string{"half of it": shouldContinue, "it is either\n\n  of two: which?\n": needsInput})
	m.withAutopilot(o, "")
	m.terminalAgent("bob")
	typed := time.Now()
	m.keys("bob", "say half of it\r")
	m.shows("bob", heardContinue, 1)
	if since := time.Since(typed); since < quietTime {
		t.Errorf("it was told to continue %v after a person's key", since)
	}
	m.await("that turn's end was sent, too", func() bool { return slices.Equal(o.heard(), []string{"half of it", "continue"}) })
	m.turn("bob", "it is either\n\n  of two: which?\n")
	m.notice("bob waits for you: of two: which?")
	m.turn("bob", "all of it")
	m.await("the last one's end was sent, too", func() bool { return len(o.heard()) == 4 })
	// The key is the daemon's, and no agent's; nor is it in the log, or what was said.
	m.keys("bob", "env\r")
	m.shows("bob", "environment", 1)
	m.shows("bob", "rests", 3)
	if screen := m.screen("bob"); !strings.Contains(screen, "KNOOT_AGENT=bob") || strings.Contains(screen, keyVariable) {
		t.Errorf("the agent has the key:\n%s", screen)
	}
	m.continued("bob", 1)
	m.stop()
	if len(m.notices) > 0 {
		t.Errorf("the person is told more: %q", <-m.notices)
	}
	text, err := os.ReadFile(filepath.Join(m.KnootHome, "knootd.log"))
	if err != nil || !strings.Contains(string(text), "verdict=needs-input") {
		t.Errorf("the log does not say what was answered: %v\n%s", err, text)
	}
	for _, word := range []string{modelKeyOfTests, "half of it", "which?", "all of it"} {
		if strings.Contains(string(text), word) {
			t.Errorf("%q is in the log", word)
		}
	}
}

// An agent that is told to continue again and again is so as often in a row as the limit says; then its person is asked.
func TestAutopilotHasALimit(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	o := newModel(t, map[string]string{"more": shouldContinue, continueText: shouldContinue, socket.Nudge: shouldContinue})
	m.withAutopilot(o, "limit = 2\n")
	m.terminalAgent("bob")
	asks := "bob waits for you: it was told to continue 2 times in a row; is it to go on?"
	m.keys("bob", "say more\r")
	m.notice(asks)
	m.continued("bob", 2)
	// Mail is no person, and neither is a machine.
	carol := m.agent("carol", "codex", m.repo)
	m.server.connected("carol")
	carol.send("bob", "one")
	m.notice(asks)
	m.continued("bob", 2)
	m.prompted("bob", true)
	of, _ := m.server.find("bob")
	m.hook(socket.Hook{Session: of.Session.ID, Event: "Stop", Name: "bob", Said: "more"})
	m.notice(asks)
	m.continued("bob", 2)
	// A person's prompt from elsewhere begins the row anew.
	m.turn("bob", "more")
	m.notice(asks)
	m.continued("bob", 4)
	// So does a person's key, though nothing comes of it.
	term, _ := m.server.terminalOf("bob")
	term.mu.Lock()
	term.lastKey = time.Now() // one that its line does not show
	term.mu.Unlock()
	m.prompted("bob", true)
	m.hook(socket.Hook{Session: of.Session.ID, Event: "Stop", Name: "bob", Said: "more"})
	m.notice(asks)
	m.continued("bob", 6)
	// So does it that the agent was done.
	m.prompted("bob", true)
	m.hook(socket.Hook{Session: of.Session.ID, Event: "Stop", Name: "bob", Said: "all of it"})
	m.logs("verdict=finished")
	m.await("the row has ended", func() bool {
		m.server.mu.Lock()
		defer m.server.mu.Unlock()
		return m.server.terminals["bob"].row == 0
	})
	m.prompted("bob", true)
	m.hook(socket.Hook{Session: of.Session.ID, Event: "Stop", Name: "bob", Said: "more"})
	m.notice(asks)
	m.continued("bob", 8)
}

// Without a key, an answer, or one that is whole, nothing happens, and the log says so in one line.
func TestNothingComesOfNoVerdict(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	o := newModel(t, map[string]string{"more": shouldContinue})
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("a redirect was followed: %s %s, %v", r.Method, r.URL, r.Header)
	}))
	t.Cleanup(elsewhere.Close)
	m.withAutopilot(o, "")
	m.terminalAgent("bob")
	for i, c := range []struct {
		name, log string
		said      string
		reply     func(w http.ResponseWriter) // nil: nothing is to be sent
	}{
		{name: "a credential", log: "credential", said: "the token is ghp_" + "x9Kd83hfJw72bQpLmZ4vTnRc5YsEa1GuH6oX"},
		{name: "no message", log: "not known"},
		{name: "another word", log: "none of", said: "other", reply: func(w http.ResponseWriter) { o.say(w, "should-continue, I think") }},
		{name: "no text", log: "none of", said: "none", reply: func(w http.ResponseWriter) { fmt.Fprint(w, `{"content":[]}`) }},
		{name: "no JSON", log: "none of", said: "html", reply: func(w http.ResponseWriter) { fmt.Fprint(w, "<p>should-continue</p>") }},
		{name: "half an answer", log: "none of", said: "half", reply: func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, `{"content":[{"type":"text","text":"should-continue"}`)
		}},
		{name: "an answer without end", log: "none of", said: "long", reply: func(w http.ResponseWriter) {
			o.say(w, shouldContinue)
			fmt.Fprint(w, strings.Repeat(" ", maxVerdict))
		}},
		{name: "a failure", log: "status 529", said: "busy", reply: func(w http.ResponseWriter) {
			w.WriteHeader(529)
			o.say(w, shouldContinue)
		}},
		{name: "another place", log: "status 307", said: "moved", reply: func(w http.ResponseWriter) {
			w.Header().Set("Location", elsewhere.URL+"/base/v1/messages")
			w.WriteHeader(http.StatusTemporaryRedirect)
		}},
		{name: "no HTTP", log: "does not speak HTTP", said: "garbage", reply: func(w http.ResponseWriter) {
			conn, buffer, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			fmt.Fprintf(buffer, "%s should-continue\r\n\r\n", modelKeyOfTests)
			_ = buffer.Flush()
			_ = conn.Close()
		}},
	} {
		o.mu.Lock()
		before := len(o.asked)
		o.reply = func(w http.ResponseWriter, _ *http.Request, _ string) { c.reply(w) }
		o.mu.Unlock()
		m.turn("bob", c.said)
		m.await(c.name+" is logged", func() bool { return m.logs("autopilot does nothing", "agent=bob") == i+1 })
		m.logs("autopilot does nothing", c.log)
		if sent := len(o.heard()) - before; (sent == 1) != (c.reply != nil) {
			t.Errorf("%s: the model was asked %d times", c.name, sent)
		}
	}
	if got := m.server.Unpiloted(); got != "" {
		t.Errorf("with a key it is said to do nothing: %q", got)
	}
	// Who starts an agent decides which key is its.
	m.Extra = append(m.Extra, keyVariable+"=")
	m.terminalAgent("dora")
	m.turn("dora", "keyless")
	m.logs("autopilot does nothing", "agent=dora", "there is no key", keyVariable)
	if got := m.server.Unpiloted(); !strings.Contains(got, "for dora: there was no "+keyVariable) {
		t.Errorf("of an agent without a key it is said %q", got)
	}
	m.Extra = append(m.Extra, keyVariable+"=key of some\tkind")
	m.terminalAgent("eve")
	m.turn("eve", "odd key")
	m.logs("autopilot does nothing", "agent=eve", "characters that no key has")
	m.server.stop("dora")
	m.server.stop("eve")
	// All of it came to nothing, while bob is still cared for.
	o.mu.Lock()
	o.reply = func(w http.ResponseWriter, _ *http.Request, said string) { o.decide(w, said) }
	o.mu.Unlock()
	m.turn("bob", "more")
	m.continued("bob", 1)
	m.await("its end is sent", func() bool { return slices.Contains(o.heard(), continueText) })
	m.stop()
	if got := o.heard(); slices.Contains(got, "keyless") || slices.Contains(got, "odd key") {
		t.Errorf("sent without a key: %q", got)
	}
	if len(m.notices) > 0 {
		t.Errorf("the person is told %q", <-m.notices)
	}
	text, _ := os.ReadFile(filepath.Join(m.KnootHome, "knootd.log"))
	for _, word := range []string{modelKeyOfTests, "of some", "ghp_"} {
		if strings.Contains(string(text), word) {
			t.Errorf("%q is in the log", word)
		}
	}
}

// A key is only where an agent is started, or nowhere.
func TestAutopilotWithoutAKey(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	o := newModel(t, nil)
	m.withStandIns(fmt.Sprintf("[autopilot]\nenabled = true\nendpoint = \"%s/base\"\nmodel = \"small\"\n", o.URL))
	if got := m.server.Unpiloted(); !strings.Contains(got, "the daemon has no "+keyVariable) {
		t.Errorf("of a daemon without a key it is said %q", got)
	}
	m.Extra = append(m.Extra, keyVariable+"=  "+modelKeyOfTests+"\n")
	m.terminalAgent("bob")
	if got := m.server.Unpiloted(); got != "" {
		t.Errorf("of an agent with a key it is said %q", got)
	}
	m.turn("bob", "all of it")
	m.await("it is sent", func() bool { return slices.Equal(o.heard(), []string{"all of it"}) })
}

// A model that does not answer holds nothing up, and is given up.
func TestASlowModel(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	o := newModel(t, nil)
	came, left, _ := o.held()
	m.withAutopilot(o, "")
	m.server.answerIn = 50 * time.Millisecond
	m.terminalAgent("bob")
	m.turn("bob", "more")
	m.next(came, "more")
	m.next(left, "more")
	m.logs("autopilot does nothing", "agent=bob", "does not answer in time")
}

// The daemon's end does not wait for a model.
func TestTheEndOfTheDaemonEndsAQuestion(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	o := newModel(t, nil)
	came, left, _ := o.held()
	m.withAutopilot(o, "")
	m.server.answerIn = time.Hour
	m.terminalAgent("bob")
	m.turn("bob", "more")
	m.next(came, "more")
	m.stop()
	m.next(left, "more")
}

// What is answered is of use as long as the agent is idle and nothing was typed to it: not once it works, asks its person something,
// was told of its mail, or began anew.
func TestAVerdictThatComesTooLate(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	o := newModel(t, map[string]string{socket.Nudge: shouldContinue, "go on": shouldContinue})
	came, left, let := o.held()
	m.withAutopilot(o, "")
	m.server.answerIn = time.Hour
	m.terminalAgent("bob")
	of, _ := m.server.find("bob")
	tell := func(h socket.Hook) {
		h.Session, h.Name = of.Session.ID, "bob"
		m.hook(h)
	}
	m.turn("bob", "while it works")
	m.next(came, "while it works")
	tell(socket.Hook{Event: "PreToolUse", Tool: "Bash"})
	m.next(left, "while it works")
	m.turn("bob", "while it asks")
	m.next(came, "while it asks")
	tell(socket.Hook{Event: "PermissionRequest"})
	m.next(left, "while it asks")
	m.notice("bob waits for you: " + m.repo)
	m.turn("bob", "another session")
	m.next(came, "another session")
	tell(socket.Hook{Event: "SessionStart", Source: "clear"})
	m.next(left, "another session")
	m.turn("bob", "another turn")
	m.next(came, "another turn")
	m.turn("bob", "mail")
	m.next(left, "another turn")
	m.next(came, "mail")
	carol := m.agent("carol", "codex", m.repo)
	m.server.connected("carol")
	carol.send("bob", "one")
	m.next(left, "mail")
	m.shows("bob", heardNudge, 1)
	m.next(came, socket.Nudge)
	m.keys("bob", "go on") // no Enter yet
	close(let)
	m.logs("verdict=should-continue")
	time.Sleep(quietTime + 500*time.Millisecond) // nothing is to happen, and only time can show it
	m.keys("bob", "\r")
	m.shows("bob", `heard "go on"`, 1)
	if n := strings.Count(m.screen("bob"), heardContinue); n != 0 {
		t.Errorf("told to continue at a bad time:\n%s", m.screen("bob"))
	}
	m.continued("bob", 1) // after that turn
}

// After something was typed nothing else is, until something was heard of the agent, or for long nothing was.
func TestOneTextAtATime(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.withStandIns("")
	m.terminalAgent("bob")
	m.server.mu.Lock()
	r := m.server.terminals["bob"]
	r.typed = time.Now()
	m.server.mu.Unlock()
	carol := m.agent("carol", "codex", m.repo)
	m.server.connected("carol")
	carol.send("bob", "one")
	if wait := m.server.prompt(context.Background(), "bob", r); wait <= 0 || wait > typedAgain {
		t.Errorf("mail waits for %v", wait)
	}
	m.server.mu.Lock()
	m.server.stirred(m.server.agents["bob"])
	m.server.mu.Unlock()
	m.shows("bob", heardNudge, 1)
}

// A text that stands in the line without its Enter is what the next Enter sends, and is not taken for what was to be typed then.
func TestATextThatStands(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.withStandIns("")
	m.terminalAgent("bob")
	m.server.mu.Lock()
	r := m.server.terminals["bob"]
	m.server.mu.Unlock()
	asks := 0
	said, err := r.say(context.Background(), continueText, func(stands string) bool {
		asks++
		return stands == ""
	})
	if said != "" || err != nil || asks != 2 {
		t.Errorf("said %q, %v, after %d questions", said, err, asks)
	}
	if said, err = r.say(context.Background(), socket.Nudge, func(stands string) bool { return stands == continueText }); said != continueText || err != nil {
		t.Errorf("said %q, %v", said, err)
	}
	m.continued("bob", 1)
}

// Whose last message is sent: an agent's in a terminal, of a turn of its own that has ended, once.
func TestWhatIsSentToAModel(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	o := newModel(t, nil)
	m.withAutopilot(o, "")
	m.terminalAgent("bob")
	m.must(AgentRequest{Do: "add", Agent: "sh", Type: "shell"})
	m.must(AgentRequest{Do: "start", Agent: "sh"})
	m.members("carol")
	of, _ := m.server.find("bob")
	tell := func(h socket.Hook) *socket.Answer {
		t.Helper()
		if h.Session == "" {
			h.Session, h.Name = of.Session.ID, "bob"
		}
		return m.hook(h)
	}
	for _, id := range []string{"carol", "sh", ""} { // no terminal, a person's own, no name
		tell(socket.Hook{Session: "session-of-" + id, Event: "UserPromptSubmit", Prompt: "x", Name: id})
		tell(socket.Hook{Session: "session-of-" + id, Event: "Stop", Said: "of another agent", Name: id})
	}
	tell(socket.Hook{Agent: "codex", Session: "inner-session", Event: "Stop", Said: "of an agent in it", Name: "bob"})
	tell(socket.Hook{Event: "UserPromptSubmit", Prompt: "x"})
	tell(socket.Hook{Event: "Stop", Subagent: "sub", Said: "of a subagent"})
	tell(socket.Hook{Event: "Stop", Said: "in the background", Tasks: []socket.Task{{ID: "1", Status: "running"}}})
	tell(socket.Hook{Event: "UserPromptSubmit", Prompt: "x"})
	m.known("carol").call("send-message", args{"to": "bob", "message": "look at this first", "urgent": true}, nil)
	if answer := tell(socket.Hook{Event: "Stop", Said: "not yet"}); answer == nil || answer.Hold == "" {
		t.Errorf("the turn is not held open: %+v", answer)
	}
	if got := m.state("bob"); got != working {
		t.Errorf("bob, whose turn is held open, is %q", got)
	}
	m.known("bob").inbox(false) // so that nothing is typed
	for range 2 {               // as where hooks are installed twice
		tell(socket.Hook{Event: "Stop", StopHook: true, Said: "all of it", PromptID: "p1", Payload: "d1"})
	}
	m.await("it is sent", func() bool { return slices.Contains(o.heard(), "all of it") })
	tell(socket.Hook{Event: "UserPromptSubmit", Prompt: "x"})
	tell(socket.Hook{Event: "Stop", Said: "private", Private: true})
	tell(socket.Hook{Event: "UserPromptSubmit", Prompt: "x"})
	tell(socket.Hook{Event: "Stop", Said: "no UTF-8", Repaired: true})
	// The executable, as Claude Code runs it, brings the message along. One that was too slow, on a busy machine, is run again.
	m.prompted("bob", false)
	m.Extra = append(m.Extra, "KNOOT_AGENT=bob")
	payload, err := json.Marshal(map[string]any{"hook_event_name": "Stop", "session_id": of.Session.ID, "cwd": m.repo, "transcript_path": "/t.jsonl",
		"prompt_id": "p2", "stop_hook_active": false, "last_assistant_message": "by the hook", "background_tasks": []any{}})
	if err != nil {
		t.Fatal(err)
	}
	m.await("the turn has ended", func() bool {
		m.Try(m.repo, string(payload), "knoot", "hook", "claude")
		return m.state("bob") == idle
	})
	m.await("it is sent", func() bool { return slices.Contains(o.heard(), "by the hook") })
	m.turn("bob", "the last")
	m.await("the last is sent", func() bool { return slices.Contains(o.heard(), "the last") })
	m.stop()
	if got := slices.DeleteFunc(o.heard(), func(said string) bool { return said == socket.Nudge }); !slices.Equal(got, []string{"all of it", "by the hook", "the last"}) {
		t.Errorf("sent: %q", got)
	}
}

func TestReadVerdict(t *testing.T) {
	t.Parallel()
	text := func(texts ...string) string {
		var parts []map[string]string
		for _, each := range texts {
			parts = append(parts, map[string]string{"type": "text", "text": each})
		}
		out, _ := json.Marshal(map[string]any{"type": "message", "content": parts})
		return string(out)
	}
	for answer, want := range map[string]string{
		text("finished"): isFinished, text(" Needs-Input.\n"): needsInput, text("`should-continue`"): shouldContinue, text("should-", "continue"): shouldContinue,
		`{"content":[{"type":"thinking","thinking":"finished"},{"type":"text","text":"needs-input"}]}`: needsInput,
		text(): "", text(""): "", text("continue"): "", text("finished", "finished"): "", text("not finished"): "", text("finished or needs-input"): "",
		"": "", "null": "", "[]": "", "{}": "", `"finished"`: "", `{"content":"finished"}`: "", `{"content":[null]}`: "", text("finished") + "x": "",
		text("finished") + strings.Repeat(" ", maxVerdict): "",
	} {
		got, err := readVerdict(strings.NewReader(answer))
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%.60q is read as %q, %v, want %q", answer, got, err, want)
		}
	}
}

// Whatever a model answers is one of the three verdicts, or an error that repeats nothing of it.
func FuzzVerdict(f *testing.F) {
	f.Add(`{"content":[{"type":"text","text":"finished"}]}`)
	f.Add(`{"content":[{"type":"text","text":"needs-"},{"text":"input"}],"usage":{"output_tokens":3}}`)
	f.Add(`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`)
	f.Fuzz(func(t *testing.T, answer string) {
		got, err := readVerdict(strings.NewReader(answer))
		if err == nil && !slices.Contains([]string{isFinished, needsInput, shouldContinue}, got) || err != nil && (got != "" || err != errVerdict) {
			t.Errorf("%q is read as %q, %v", answer, got, err)
		}
	})
}
