package mcpd

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"knoot.dev/knoot/daemon"
	"knoot.dev/knoot/daemon/socket"
)

// event posts a hook's event with a secret.
func (m *machine) event(route, secret, body string) reply {
	m.t.Helper()
	return m.request("POST", "/api/v1/agent/"+route, body, "Authorization: Bearer "+secret)
}

func (m *machine) token() string {
	m.t.Helper()
	m.address()
	m.server.mu.Lock()
	defer m.server.mu.Unlock()
	return m.server.person
}

func TestStatusRoute(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	alice := m.members("alice", "bob")[0]
	m.agent("carol", "codex", m.repository("ledger"))
	m.makeCompanion("pet", "bob")
	ids := func(secret string) (out []string) {
		answer := m.request("GET", "/api/v1/agent/status", "", "Authorization: Bearer "+secret)
		var all []Status
		if err := json.Unmarshal([]byte(answer.body), &all); err != nil || answer.status != 200 {
			t.Fatalf("status: %v, %+v", err, answer)
		}
		for _, each := range all {
			out = append(out, each.ID)
		}
		return out
	}
	if got, want := ids(alice.secret), []string{"alice", "bob"}; !slices.Equal(got, want) {
		t.Errorf("alice sees %q, want %q", got, want)
	}
	if got, want := ids(m.token()), []string{"alice", "bob", "carol", "pet"}; !slices.Equal(got, want) {
		t.Errorf("the person sees %q, want %q", got, want)
	}
	for _, secret := range []string{"", strings.Repeat("0", 64), alice.secret[:10]} {
		if answer := m.request("GET", "/api/v1/agent/status", "", "Authorization: Bearer "+secret); answer.status != 401 {
			t.Errorf("with %q: %+v", secret, answer)
		}
	}
	// The keys are in a stable order.
	alice.call("register-agent", nil, nil)
	m.event("status", alice.secret, `{"agent_id":"alice","status":"idle","session_id":"s-1","payload":{"cwd":"/x"}}`)
	body := m.request("GET", "/api/v1/agent/status", "", "Authorization: Bearer "+alice.secret).body
	want := `[{"id":"alice","name":"alice","folder":"` + m.repo + `","state":"idle","status":"","registered":true,"type":"claude","session_id":"s-1","metadata":{"cwd":"/x"},"cost":"medium"},{"id":"bob",`
	if !strings.HasPrefix(body, want) {
		t.Errorf("status: %s, want %s", body, want)
	}
}

func TestEventsOfHooksOverHTTP(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	alice := m.members("alice", "bob")[0]
	alices := func(rest string) string { return `{"agent_id":"alice"` + rest + `}` }
	for _, c := range []struct {
		route, body string
		want        int
		state       string // after it; "": as before
	}{
		{"register", `no json`, 400, ""},
		{"register", `{}`, 400, ""},
		{"register", `{"agent_id":"nobody","source":"startup"}`, 401, ""},
		{"register", alices(``), 400, ""},
		{"register", alices(`,"source":"clear"`), 400, ""},
		{"register", alices(`,"source":"startup","agent":"codex"`), 400, ""},
		{"register", alices(`,"source":"startup","agent":"gemini"`), 400, ""},
		{"register", alices(`,"source":"startup","session_id":"s-1"`), 200, idle},
		{"status", alices(`,"status":"running"`), 204, working},
		{"status", alices(`,"status":"input","payload":{"message":"may I?"}`), 204, awaitingInput},
		{"status", alices(`,"status":"idle"`), 204, idle},
		{"status", alices(`,"status":"busy"`), 400, ""},
		{"status", alices(``), 400, ""},
		{"status", alices(`,"agent":"codex","status":"running"`), 400, ""},
		{"status", alices(`,"agent":"codex","payload":{"type":"agent-turn-begun"}`), 400, ""},
		{"status", alices(`,"status":"running"`), 204, working},
		{"status", alices(`,"agent":"codex","payload":{"type":"agent-turn-complete","thread-id":"t-9","turn-id":"7"}`), 204, idle},
		{"status", alices(`,"agent":"gemini","status":"idle"`), 400, ""},
	} {
		before, _ := m.server.find("alice")
		answer := m.event(c.route, alice.secret, c.body)
		after, _ := m.server.find("alice")
		want := c.state
		if want == "" {
			want = before.State
		}
		if answer.status != c.want || after.State != want {
			t.Errorf("%s %s: %d %s, and it is %q; want %d and %q", c.route, c.body, answer.status, answer.body, after.State, c.want, want)
		}
	}
	of, _ := m.server.find("alice")
	if of.Session.Agent != "codex" || of.Session.ID != "t-9" {
		t.Errorf("the session is %+v", of.Session)
	}
	if want := map[string]string{"thread-id": "t-9", "turn-id": "7"}; !maps.Equal(of.Metadata, want) {
		t.Errorf("the metadata are %v, want %v", of.Metadata, want)
	}
	m.event("status", alice.secret, alices(`,"agent":"codex","payload":{"type":"agent-turn-complete","cwd":"/work","thread-id":"","model":"m","session_id":"s"}`))
	of, _ = m.server.find("alice")
	if want := map[string]string{"thread-id": "t-9", "turn-id": "7", "cwd": "/work"}; !maps.Equal(of.Metadata, want) || of.Session.ID != "t-9" { // known, and not empty
		t.Errorf("the metadata are %v, want %v", of.Metadata, want)
	}
	if answer := m.request("GET", "/api/v1/agent/register", "", "Authorization: Bearer "+alice.secret); answer.status != 405 { // a GET changes nothing
		t.Errorf("GET register: %+v", answer)
	}
	for _, route := range []string{"register", "status"} {
		if answer := m.event(route, alice.secret, `[]`); answer.status != 400 {
			t.Errorf("%s of what is no object: %+v", route, answer)
		}
	}
	if answer := m.event("status", "", alices(`,"status":"idle"`)); answer.status != 401 {
		t.Errorf("without a secret: %+v", answer)
	}
	if answer := m.event("status", alice.secret, `{"agent_id":"bob","status":"idle"}`); answer.status != 401 {
		t.Errorf("alice for bob: %+v", answer)
	}
	if answer := m.event("status", m.token(), `{"agent_id":"bob","status":"running"}`); answer.status != 204 {
		t.Errorf("the person for bob: %+v", answer)
	}
	if answer := m.event("status", m.token(), `{"agent_id":"nobody","status":"running"}`); answer.status != 400 {
		t.Errorf("the person for nobody: %+v", answer)
	}
}

func TestRegisterRoute(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	both := m.members("alice", "bob")
	both[1].send("alice", "hello")
	answer := m.event("register", both[0].secret, `{"agent_id":"alice","source":"startup","session_id":"first","payload":{"model":"m","transcript_path":"/t","cwd":"","other":"o"}}`)
	var got registration
	if err := json.Unmarshal([]byte(answer.body), &got); err != nil || got.Unread != 1 || len(got.Members) != 2 || !got.Members[0].Registered {
		t.Errorf("registered: %v, %+v", err, answer)
	}
	if want := map[string]string{"model": "m", "transcript_path": "/t"}; !maps.Equal(got.Members[0].Metadata, want) { // known, and not empty
		t.Errorf("the metadata are %v, want %v", got.Members[0].Metadata, want)
	}
	m.event("register", both[0].secret, `{"agent_id":"alice","source":"resume","payload":{"session_id":"second"}}`)
	m.stop()
	m.start()
	m.address()
	if of, _ := m.server.find("alice"); of.Session.ID != "second" || of.Metadata["session_id"] != "second" || of.Metadata["model"] != "m" {
		t.Errorf("resumed, alice is %+v", of.seen)
	}
}

// A session is one agent's: another that names it as its own is heard of itself, and the session stays whose it is.
func TestAnotherAgentsSession(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	both := m.members("alice", "bob")
	alices := daemon.SessionKey{Agent: "claude", ID: "alices-session"}
	is := func(want string) {
		t.Helper()
		if of, known := m.server.AgentOf(alices); !known || of.ID != want {
			t.Errorf("the session is %q, want %s", of.ID, want)
		}
	}
	m.hook(socket.Hook{Session: alices.ID, Event: "SessionStart", Source: "startup", Name: "alice"})
	for route, body := range map[string]string{"register": `"source":"startup","session_id":"alices-session"`, "status": `"status":"running","session_id":"alices-session"`} {
		if answer := m.event(route, both[1].secret, `{"agent_id":"bob",`+body+`}`); answer.status >= 300 {
			t.Errorf("%s: %+v", route, answer)
		}
		is("alice")
	}
	m.event("status", both[1].secret, `{"agent_id":"bob","status":"running","session_id":"bobs-session"}`)
	is("alice")
	// Its hooks say whose it is. Who was it before is it no more, and takes it from nobody later.
	m.hook(socket.Hook{Session: alices.ID, Event: "UserPromptSubmit", Prompt: "x", Name: "bob"})
	is("bob")
	if of, _ := m.server.find("alice"); of.Session.ID != "" {
		t.Errorf("alice is still %+v", of.Session)
	}
	m.event("status", both[0].secret, `{"agent_id":"alice","status":"running","session_id":"another-session"}`)
	is("bob")
	m.must(AgentRequest{Do: "rm", Agent: "alice"})
	is("bob")
}

// What is told of an agent while hooks speak of it is of its own; the race detector sees where it is not.
func TestAnAgentIsShownWhileItIsHeard(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	alice := m.members("alice")[0]
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 200 {
			m.server.mu.Lock()
			m.server.agents["alice"].tell(&hookEvent{Agent: "claude", Payload: map[string]any{"model": fmt.Sprint(i)}})
			m.server.mu.Unlock()
		}
	}()
	for range 200 {
		of, _ := m.server.find(alice.id)
		_ = of.status()
	}
	<-done
	before, _ := m.server.find(alice.id)
	m.event("status", alice.secret, `{"agent_id":"alice","status":"idle","payload":{"model":"new"}}`)
	if before.Metadata["model"] != "199" {
		t.Errorf("what was found before an event has the model %q", before.Metadata["model"])
	}
}

func TestEventsOfSubagents(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	alice := m.members("alice")[0]
	m.event("status", alice.secret, `{"agent_id":"alice","status":"idle"}`)
	post := func(hook, payload string, want int) {
		t.Helper()
		if answer := m.event("status", alice.secret, `{"agent_id":"alice","hook":"`+hook+`","status":"running","payload":`+payload+`}`); answer.status != want {
			t.Errorf("%s %s: %+v, want %d", hook, payload, answer, want)
		}
	}
	post("SubagentStart", `{"agent_id":"one","task":"look for it","agent_type":"Explore"}`, 204)
	post("SubagentStart", `{"agent_id":"two","task":"build it"}`, 204)
	post("SubagentStart", `{"agent_id":"three","task":"try it"}`, 204)
	post("SubagentStop", `{"agent_id":"two"}`, 204)
	post("SubagentStop", `{"agent_id":"three","error":"no such file"}`, 204)
	post("SubagentStop", `{"agent_id":"unknown"}`, 204)
	post("SubagentStart", `{"task":"x"}`, 400)
	post("SubagentStop", `{}`, 400)
	of, _ := m.server.find("alice")
	want := map[string]subwork{"one": {Task: "look for it", Kind: "Explore", State: "running"}, "two": {Task: "build it", State: "finished"},
		"three": {Task: "try it", State: "failed", Why: "no such file"}}
	if !maps.Equal(of.Subagents, want) || of.State != idle {
		t.Errorf("alice is %q, and her subagents %+v, want %+v", of.State, of.Subagents, want)
	}
}

// An agent that begins to wait for its person says so on the desktop, once.
func TestAnAgentThatWaitsIsAnnounced(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	both := m.members("alice", "bob")
	wait := func(want string) {
		t.Helper()
		select {
		case got := <-m.notices:
			if got != want {
				t.Errorf("the person is told %q, want %q", got, want)
			}
		case <-time.After(patience):
			t.Errorf("the person is not told %q", want)
		}
	}
	for range 2 {
		m.event("status", both[0].secret, `{"agent_id":"alice","status":"input","payload":{"message":"may I\nrun it?"}}`)
	}
	wait("alice waits for you: may I run it?")
	for _, event := range []string{"UserPromptSubmit", "PermissionRequest", "Notification", "PostToolUse", "PermissionRequest"} {
		m.hook(socket.Hook{Session: "bobs-session", Event: event, Name: "bob", Reason: "permission_prompt"})
	}
	wait("bob waits for you: " + m.repo)
	wait("bob waits for you: " + m.repo)
	if len(m.notices) > 0 {
		t.Errorf("the person is told more: %q", <-m.notices)
	}
}
