package agents

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"knoot.dev/knoot/integration/stage"
)

// endpoint is where an agent with a name of its own reaches knoot's tools.
type endpoint struct {
	*testing.T
	URL     string
	Headers map[string]string
}

// endpoint makes an agent.
func (s *scene) endpoint(name string) *endpoint {
	s.Helper()
	e := &endpoint{T: s.T}
	if err := json.Unmarshal([]byte(s.person.Knoot(s.dir, "mcp", "config", "json", "--agent", name)), e); err != nil {
		s.Fatal(err)
	}
	return e
}

// post sends a message, and returns the answer's text.
func (e *endpoint) post(message string) string {
	e.Helper()
	req, err := http.NewRequest(http.MethodPost, e.URL, bytes.NewReader([]byte(message)))
	if err != nil {
		e.Fatal(err)
	}
	for name, value := range e.Headers {
		req.Header.Set(name, value)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		e.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		e.Fatal(err)
	}
	return string(text)
}

// listens waits until the port does.
func (e *endpoint) listens() {
	address, err := url.Parse(e.URL)
	for patience := time.After(20 * time.Second); err == nil; {
		connection, derr := net.Dial("tcp", address.Host)
		if derr == nil {
			connection.Close()
			return
		}
		select {
		case <-patience:
			err = derr
		case <-time.After(5 * time.Millisecond):
		}
	}
	e.Errorf("nothing listens: %v", err)
}

// fixedPort has the person's agents connect to one port, whichever daemon runs.
func (s *scene) fixedPort() {
	s.Helper()
	_, port, _ := net.SplitHostPort(stage.Address(s))
	s.daemon.Kill()
	s.person.Write(filepath.Join(s.person.KnootHome, "config.toml"), "[daemon]\nautostart = false\n[mcp]\nport = "+port+"\n")
	s.daemon = s.person.StartDaemon()
}

// The tools in a client that nobody here wrote: the model is told of them, or finds them where the agent has it look; three calls, one of
// them after the daemon was started again, and a newer connection that takes the agent over.
func usesTheTools(s *scene) {
	s.fixedPort()
	bob := s.endpoint("bob")
	alice := s.endpoint("alice")
	listed := []string{"describe-agents", "show-checklist", "plan-tasks", "remember"} // one of each group
	var looks Script
	if agent, is := s.agent.(Codex); is && !agent.codeMode { // which lets its model look for tools; in code mode it knows them when it calls them
		looks = Script{{{Tool: "tool_search", Input: object{"query": strings.Join(listed, " "), "limit": 50}}}}
	}
	m := s.model(append(looks, Script{
		{s.tool("register-agent", `{"agentId":"alice"}`)},
		{s.tool("send-message", `{"agentId":"alice","to":"bob","message":"is the parser yours?"}`)},
		{s.tool("list-agents", `{"agentId":"alice"}`)},
		{s.tool("set-status", `{"agentId":"alice","status":"evicted"}`)},
		{{Text: "done"}},
	}...))
	configure(s, m)
	m.Asked(func(turn int) {
		switch turn - len(looks) {
		case 3:
			s.daemon.Kill()
			s.daemon = s.person.StartDaemon()
			bob.listens()
		case 4:
			alice.post(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"newer","version":"1"}}}`)
		}
	})
	requests, _ := s.run(m, "find out whose the parser is")
	if len(requests) != 5+len(looks) {
		s.Fatalf("the model was asked %d times", len(requests))
	}
	requests = requests[len(looks):]
	told := strings.ReplaceAll(string(requests[0].Body), "_", "-")
	for _, name := range listed {
		if agent, is := s.agent.(Codex); (!is || !agent.codeMode) && !strings.Contains(told, "mcp--knoot--"+name) && !strings.Contains(told, `"name":"`+name+`"`) {
			s.Errorf("the model is not told of %s", name)
		}
	}
	for call, word := range map[int]string{1: "unread", 3: "folder"} { // keys of the answers; some clients quote them twice
		if requests[call].Count(word) <= requests[call-1].Count(word) {
			s.Errorf("after call %d the model reads no answer with %q", call, word)
		}
	}
	if text := bob.post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"check-messages","arguments":{"agentId":"bob"}}}`); !strings.Contains(text, "is the parser yours?") {
		s.Errorf("bob reads %s", text)
	}
	// A client of the protocol without sessions is not told: it has no connection that could be replaced.
	replaced, done := requests[4].Count("another connection works as alice now") > 0, requests[4].Count("Your status is: evicted") > 0
	if replaced == done {
		s.Errorf("after it was taken over: told so %v, and its call is done %v", replaced, done)
	}
	s.Logf("told that another connection took over: %v", replaced)
}

// tool calls one of knoot's tools.
func (s *scene) tool(name, arguments string) Item { return toolOf(s.agent, name, arguments) }

// toolOf is how an agent calls one of knoot's tools; arguments is JSON.
func toolOf(agent Agent, name, arguments string) Item {
	var input map[string]any
	if err := json.Unmarshal([]byte(arguments), &input); err != nil {
		panic(fmt.Sprintf("a script's arguments are no JSON: %v", err))
	}
	if c, ok := agent.(Codex); ok {
		if c.codeMode {
			return c.script("mcp__knoot__"+strings.ReplaceAll(name, "-", "_"), input)
		}
		return Item{Namespace: "mcp__knoot", Tool: strings.ReplaceAll(name, "-", "_"), Input: input}
	}
	return Item{Tool: "mcp__knoot__" + name, Input: input}
}

// configure connects the agent as alice, as its person does.
func configure(s *scene, m *Model) {
	s.Helper()
	person := s.person.In(s.T)
	person.Extra = []string{"HOME=" + s.home, "CODEX_HOME=" + filepath.Join(s.home, ".codex"), "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1"}
	switch agent := s.agent.(type) {
	case Claude:
		person.Write(filepath.Join(s.home, ".claude", "settings.json"), `{"permissions":{"allow":["mcp__knoot"]}}`)
		bin := stage.Dir(s.T)
		if err := os.Symlink(agent.executable, filepath.Join(bin, "claude")); err != nil {
			s.Fatal(err)
		}
		person.Extra = append(person.Extra, "PATH="+bin+":"+person.Bin+":"+os.Getenv("PATH"))
	case Codex:
		s.ownTrust = true // what is written here stays
		if err := agent.Configure(s.home, m.URL(), s.dir); err != nil {
			s.Fatal(err)
		}
	}
	s.Log(person.Knoot(s.dir, "mcp", "config", s.agent.Hooks(), "--agent", "alice", "--write"))
}
