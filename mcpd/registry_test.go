package mcpd

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"knoot.dev/knoot/daemon/socket"
)

// list reads a list of agents, by id.
func (a *member) list(tool string, arguments args) (ids []string, byID map[string]Status) {
	a.m.t.Helper()
	var all []Status
	a.call(tool, arguments, &all)
	byID = map[string]Status{}
	for _, each := range all {
		ids, byID[each.ID] = append(ids, each.ID), each
	}
	return ids, byID
}

// describe gives an agent what it says of itself.
func (m *machine) describe(id, cost string, tags ...string) {
	m.t.Helper()
	if _, err := m.server.change(id, func(e *entry) error { e.Cost, e.Tags = cost, tags; return nil }); err != nil {
		m.t.Fatal(err)
	}
}

func TestTagsAreOpaque(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	alice := m.members("alice", "bob", "carol")[0]
	m.describe("bob", "", "Go", "code review:strict")
	m.describe("carol", "", "go")
	for _, c := range []struct {
		tags any
		want []string
	}{
		{[]string{"GO"}, []string{"bob", "carol"}},
		{[]string{"go", "CODE REVIEW:STRICT"}, []string{"bob"}},
		{"go", []string{"bob", "carol"}}, // one tag is a list of one
		{`["go","code review:strict"]`, []string{"bob"}},
		{[]string{"code"}, nil},
		{[]string{"nobody carries it"}, nil},
		{nil, []string{"alice", "bob", "carol"}},
		{[]string{}, []string{"alice", "bob", "carol"}},
	} {
		if got, _ := alice.list("describe-agents", args{"tags": c.tags}); !slices.Equal(got, c.want) {
			t.Errorf("with the tags %v: %q, want %q", c.tags, got, c.want)
		}
	}
	if text := alice.call("describe-agents", args{"tags": "nobody carries it"}, nil); text != "[]" {
		t.Errorf("a tag that nobody carries gives %s", text)
	}
}

func TestRankingOfEntries(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.Write(filepath.Join(m.KnootHome, "config.toml"), "[mcp]\nport = 0\n[templates.aaa]\ntype = \"claude\"\ncost = \"low\"\n[templates.bench]\ntype = \"codex\"\n")
	m.stop()
	m.start()
	names := []string{"idle-high", "idle-low", "idle-medium-b", "idle-medium-a", "working-low", "unseen-medium", "gone-high"}
	members := m.members(names...)
	for i, name := range names {
		m.describe(name, map[bool]string{true: "low"}[strings.HasSuffix(name, "low")]+map[bool]string{true: "high"}[strings.HasSuffix(name, "high")])
		state, _, _ := strings.Cut(name, "-")
		for _, event := range map[string][]string{"idle": {"SessionStart"}, "working": {"UserPromptSubmit"}, "gone": {"SessionStart", "SessionEnd"}}[state] {
			m.hook(socket.Hook{Session: "session-" + name, Event: event, Source: "startup", Name: names[i], Prompt: "go"})
		}
	}
	got, entries := members[0].list("describe-agents", nil)
	want := []string{"idle-low", "idle-medium-a", "idle-medium-b", "idle-high", "working-low", "unseen-medium", "gone-high", "aaa", "bench"}
	if !slices.Equal(got, want) {
		t.Errorf("the order is %q, want %q", got, want)
	}
	if e := entries["bench"]; e.State != "template" || e.Cost != "medium" || e.Type != "codex" {
		t.Errorf("a template is %+v", e)
	}
	for name, state := range map[string]string{"idle-low": "idle", "working-low": "working", "gone-high": "deactivated", "unseen-medium": ""} {
		if entries[name].State != state {
			t.Errorf("%s is %q, want %q", name, entries[name].State, state)
		}
	}
	if !slices.Equal(entries["idle-low"].Tools, []string{"coordination", "display", "tasks", "memory"}) {
		t.Errorf("the tools that it can reach are %q", entries["idle-low"].Tools)
	}
}

func TestStatesFollowHooks(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	alice := m.members("alice")[0]
	state := func(session string) string {
		_, all := alice.list("list-agents", nil)
		for _, each := range all {
			if each.SessionID == session {
				return each.State
			}
		}
		return "none"
	}
	for _, step := range []struct{ event, want string }{
		{"SessionStart", idle}, {"UserPromptSubmit", working}, {"PreToolUse", working}, {"PermissionRequest", awaitingInput},
		{"SubagentStop", awaitingInput}, {"PostToolUse", working}, {"Stop", idle}, {"UserPromptSubmit", working}, {"Interrupt", idle}, {"SessionEnd", "none"},
	} {
		m.hook(socket.Hook{Session: "a-session-of-hooks", Event: step.event, Source: "startup"})
		if got := state("a-session-of-hooks"); got != step.want {
			t.Errorf("after %s it is %q, want %q", step.event, got, step.want)
		}
	}
	m.hook(socket.Hook{Session: "alices", Event: "SessionStart", Source: "startup", Name: "alice"})
	m.server.Hear(gone("alices"))
	if of, _ := m.server.find("alice"); of.State != deactivated || of.Registered {
		t.Errorf("after its process has gone alice is %q, registered %v", of.State, of.Registered)
	}
	alice.call("list-agents", nil, nil)
	if of, _ := m.server.find("alice"); !of.Registered {
		t.Error("a request does not register")
	}
}

func TestIdsAreUniqueOnAMachine(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	elsewhere := m.repository("ledger")
	first := m.agent("alice", "claude", m.repo)
	if again := m.agent("alice", "codex", m.repo); again.secret != first.secret {
		t.Error("the same agent has two secrets")
	}
	for id, want := range map[string]string{"alice": "another repository", "": "no name", "all": "no name", "a b": "no name", "-x": "no name", "ä": "no name", strings.Repeat("x", 41): "no name"} {
		body, _ := json.Marshal(ConfigRequest{Agent: id})
		if _, err := m.server.Do(t.Context(), "mcp", elsewhere, body); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", id, err, want)
		}
	}
}

// The person's own agents are made in a repository, too, and none in the place of another repository's.
func TestAddedAgentsAreUniqueOnAMachine(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.agent("alice", "claude", m.repository("ledger"))
	if _, err := m.do(AgentRequest{Do: "add", Agent: "alice", Type: "claude"}); err == nil || !strings.Contains(err.Error(), "another repository") {
		t.Errorf("another repository's name: %v", err)
	}
	m.must(AgentRequest{Do: "add", Agent: "bob", Type: "claude"})
	if of, _ := m.server.find("bob"); len(of.Secret) != secretLength || of.Folder != m.repo || of.Workspace == "" {
		t.Errorf("bob is %+v", of.entry)
	}
}

// A session that its hooks made known is an agent by its agent's name and the beginning of its id, until it is bound.
func TestASessionIsAnAgentUntilItIsBound(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	all := m.members("alice", "bob", "carol")
	for session, agent := range map[string]string{"5d41402a-by-the-tool": "claude", "7d793037-by-environment": "codex"} {
		m.hook(socket.Hook{Agent: agent, Session: session, Event: "SessionStart", Source: "startup"})
	}
	want := []string{"alice", "bob", "carol", "claude-5d41402a", "codex-7d793037"}
	slices.Sort(want)
	if got, _ := all[2].list("list-agents", nil); !slices.Equal(got, want) {
		t.Errorf("there are %q, want %q", got, want)
	}
	all[2].send("claude-5d41402a", "as it is called")
	all[2].send("5d4140", "by six characters of its id")
	all[2].refused("send-message", args{"to": "5d414", "message": "x"}, "nobody here is called")
	all[0].call("register-agent", args{"sessionId": "5d41402a"}, nil)
	m.hook(socket.Hook{Agent: "codex", Session: "7d793037-by-environment", Event: "UserPromptSubmit", Prompt: "go", Name: "bob"})
	got, entries := all[2].list("list-agents", nil)
	if !slices.Equal(got, []string{"alice", "bob", "carol"}) || entries["alice"].SessionID != "5d41402a-by-the-tool" || entries["bob"].SessionID != "7d793037-by-environment" {
		t.Errorf("bound, they are %+v", entries)
	}
	all[0].wantInbox("carol: as it is called", "carol: by six characters of its id")
	// What names several names none.
	for _, session := range []string{"abcdef-one", "abcdef-two"} {
		m.hook(socket.Hook{Session: session, Event: "SessionStart", Source: "startup"})
	}
	all[2].refused("register-agent", args{"sessionId": "abcdef"}, "several sessions")
	all[2].refused("send-message", args{"to": "abcdef", "message": "x"}, "several", "claude-abcdef-o", "claude-abcdef-t")
}

// A machine has a thousand agents with a name, and no more.
func TestEntriesAreBounded(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	alice := m.members("alice")[0]
	m.server.mu.Lock()
	for n := range maxAgents - 1 {
		id := fmt.Sprint("filler-", n)
		m.server.agents[id] = &agent{entry: entry{ID: id, Name: id, Workspace: "another"}}
	}
	m.server.mu.Unlock()
	const want = "1000 agents on this machine"
	body, _ := json.Marshal(ConfigRequest{Agent: "bob"})
	if _, err := m.server.Do(t.Context(), "mcp", m.repo, body); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("mcp config: %v", err)
	}
	if _, err := m.do(AgentRequest{Do: "add", Agent: "bob", Type: "claude"}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("agent add: %v", err)
	}
	alice.refused("create-agent", args{"name": "bob", "folder": ".", "type": "claude"}, want)
	alice.call("set-status", args{"status": "who is there may say so still"}, nil)
}

// What an entry says that its agent can reach: tools, which a shell does not.
func TestToolsThatATypeReaches(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	alice := m.members("alice")[0]
	m.agent("sh", "shell", m.repo)
	_, entries := alice.list("describe-agents", nil)
	if len(entries["sh"].Tools) > 0 || !slices.Equal(entries["alice"].Tools, []string{"coordination", "display", "tasks", "memory"}) {
		t.Errorf("a shell reaches %q, Claude Code %q", entries["sh"].Tools, entries["alice"].Tools)
	}
}

func TestAnotherCallersNameChangesNothing(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	both := m.members("alice", "bob")
	both[0].refused("set-status", args{"agentId": "bob", "status": "x"}, "alice's", "nothing was done")
	both[0].refused("send-message", args{"agentId": "bob", "to": "alice", "message": "x"}, "alice's")
	both[0].refused("set-status", args{"agentId": nil, "status": "x"}, `missing required argument "agentId"`, `"alice"`)
	for _, a := range both {
		if of, _ := m.server.find(a.id); of.entry.Status != "" {
			t.Errorf("%s's status is %q", a.id, of.entry.Status)
		}
	}
	both[0].wantInbox()
}

func TestStatusText(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	both := m.members("alice", "bob")
	both[0].call("set-status", args{"status": "parsing\n\x1b[31mdates\u202e"}, nil)
	if _, all := both[1].list("list-agents", nil); all["alice"].Status != "parsing [31mdates" || all["alice"].State != "" {
		t.Errorf("alice is %+v", all["alice"])
	}
	m.stop()
	m.start()
	if _, all := both[1].list("list-agents", nil); all["alice"].Status != "parsing [31mdates" || !all["alice"].Registered {
		t.Errorf("after a restart alice is %+v", all["alice"])
	}
	both[0].call("set-status", args{"status": ""}, nil)
	if _, all := both[1].list("list-agents", nil); all["alice"].Status != "" {
		t.Errorf("cleared, alice's status is %q", all["alice"].Status)
	}
	both[0].refused("set-status", nil, `missing required argument "status"`)
}

func TestAgentsSurviveTheDaemon(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	alice := m.members("alice")[0]
	m.describe("alice", "low", "go")
	m.hook(socket.Hook{Session: "alices-session", Event: "SessionStart", Source: "startup", Name: "alice"})
	m.stop()
	m.start()
	_, all := alice.list("list-agents", nil)
	if e := all["alice"]; e.Cost != "low" || !slices.Equal(e.Tags, []string{"go"}) || e.SessionID != "alices-session" || e.State != idle || e.Folder != m.repo {
		t.Errorf("after a restart alice is %+v", e)
	}
	for name, mode := range map[string]os.FileMode{"mcp.token": 0o600, "state/coordination": 0o600} {
		if info, err := os.Stat(filepath.Join(m.KnootHome, name)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if text, err := os.ReadFile(filepath.Join(m.KnootHome, "state", "coordination")); err != nil || strings.Contains(string(text), alice.secret) {
		t.Errorf("the secret is readable in the state: %v", err)
	}
	if text, err := os.ReadFile(filepath.Join(m.KnootHome, "knootd.log")); err != nil || strings.Contains(string(text), alice.secret) {
		t.Errorf("the secret is in the log: %v", err)
	}
}

// A ledger of which most lives is not written anew at each tick.
func TestTheLedgerIsWrittenAnewWhenItHasDoubled(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.members("alice")
	text := strings.Repeat("x", 64<<10)
	tasks := make([]Task, ledgerRewrite/len(text)+1)
	for i := range tasks {
		tasks[i].Goal = text
	}
	s := m.server
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	s.graphs["alice"] = &graph{tasks: tasks}
	s.agents["alice"].State = idle
	s.mu.Unlock()
	s.rewrite()
	size := s.ledger.Size()
	if size < ledgerRewrite {
		t.Fatalf("it has %d bytes, too few to show anything", size)
	}
	see := func() {
		s.mu.Lock()
		s.agents["alice"].changed = true
		s.mu.Unlock()
		s.writing.Unlock()
		s.flush()
		s.writing.Lock()
	}
	see() // what was so before: written anew, it is as large as it was
	if s.ledger.Size() <= size {
		t.Errorf("it had %d bytes and has %d: it was written anew", size, s.ledger.Size())
	}
	for s.ledger.Size() < 2*size {
		if err := s.keep(&record{Graph: &graphRecord{Owner: "alice", Tasks: tasks}}); err != nil {
			t.Fatal(err)
		}
	}
	see()
	if s.ledger.Size() >= 2*size {
		t.Errorf("it has doubled from %d bytes, and has %d still", size, s.ledger.Size())
	}
}
