package mcpd

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"
)

const listTools = `{"jsonrpc":"2.0","id":3,"method":"tools/list"}`

func TestNewerConnectionReplacesTheOlder(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	first := m.members("alice")[0].initialize()
	first.call("list-agents", nil, nil)
	second := &member{m: m, id: first.id, secret: first.secret}
	second.initialize()
	got, err := first.try("set-status", args{"status": "old"})
	if err != nil || !got.Error || !strings.Contains(got.Text, "another connection works as alice now") {
		t.Errorf("a call of the older one: %v, %+v", err, got)
	}
	if answer := first.post(listTools); answer.status != 200 || !strings.Contains(answer.body, `"code":-32000`) || !strings.Contains(answer.body, `"id":3`) {
		t.Errorf("another request of the older one: %+v", answer)
	}
	if answer := first.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`); answer.status != 202 {
		t.Errorf("a notification of the older one: %+v", answer)
	}
	if answer := m.request("GET", "/mcp?agent=alice", "", first.headers()...); answer.status != 405 {
		t.Errorf("the older one's stream: %+v", answer)
	}
	second.call("set-status", args{"status": "new"}, nil)
	if of, _ := m.server.find("alice"); of.entry.Status != "new" {
		t.Errorf("the status is %q", of.entry.Status)
	}
}

// `claude mcp list` connects as the agent, asks for the tools, and leaves.
func TestALookDoesNotEvictWhoeverWorks(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	works := m.members("alice")[0].initialize()
	works.call("list-agents", nil, nil)
	looks := &member{m: m, id: works.id, secret: works.secret}
	looks.initialize()
	if answer := looks.post(listTools); answer.status != 200 {
		t.Fatalf("tools/list: %+v", answer)
	}
	if answer := m.request("DELETE", "/mcp?agent=alice", "", looks.headers()...); answer.status != 204 {
		t.Fatalf("DELETE: %+v", answer)
	}
	works.call("list-agents", nil, nil)

	other := &member{m: m, id: works.id, secret: works.secret}
	other.initialize().call("list-agents", nil, nil)
	m.request("DELETE", "/mcp?agent=alice", "", other.headers()...)
	works.call("list-agents", nil, nil) // nobody's place is taken: the one that is left is adopted
}

func TestConnectionSurvivesARestart(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	alice := m.members("alice")[0].initialize()
	alice.call("set-status", args{"status": "before"}, nil)
	m.stop()
	m.start()
	alice.call("set-status", args{"status": "after"}, nil)
	late := &member{m: m, id: alice.id, secret: alice.secret}
	late.initialize()
	alice.refused("set-status", args{"status": "again"}, "another connection")
}

// The newer protocol has neither sessions nor streams of the server's own; what it sends of them counts for nothing.
func TestProtocolWithoutSessions(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	alice := m.members("alice")[0]
	discover := func(version string, headers ...string) reply {
		return m.request("POST", "/mcp?agent=alice", `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"`+version+`","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`,
			append(alice.headers(), append(headers, "Mcp-Protocol-Version: "+version, "Mcp-Method: server/discover")...)...)
	}
	newer := []string{"Mcp-Protocol-Version: 2026-07-28"}
	if answer := discover("2026-07-28", "Mcp-Session-Id: whatever"); answer.status != 200 || answer.header.Get("Mcp-Session-Id") != "" || !strings.Contains(answer.body, "2026-07-28") {
		t.Errorf("discover: %+v", answer)
	}
	if answer := discover("2099-01-01"); answer.status != 400 || !strings.Contains(answer.body, "-32022") {
		t.Errorf("discover of a version that is to come: %+v", answer)
	}
	for _, method := range []string{"GET", "DELETE"} {
		if answer := m.request(method, "/mcp?agent=alice", "", append(alice.headers(), newer...)...); answer.status != 405 {
			t.Errorf("%s: %+v", method, answer)
		}
	}
}

// stream opens the agent's event stream, and returns its lines; the channel is closed when the stream ends.
func (a *member) stream(ctx context.Context) (status int, lines chan string) {
	a.m.t.Helper()
	req, err := http.NewRequestWithContext(ctx, "GET", "http://"+a.m.address()+"/mcp?agent="+a.id, nil)
	if err != nil {
		a.m.t.Fatal(err)
	}
	for _, h := range a.headers() {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		a.m.t.Fatal(err)
	}
	lines = make(chan string, 100)
	go func() {
		defer close(lines)
		defer resp.Body.Close()
		for scanner := bufio.NewScanner(resp.Body); scanner.Scan(); {
			if scanner.Text() != "" {
				lines <- scanner.Text()
			}
		}
	}()
	return resp.StatusCode, lines
}

func TestStreamsLiveUntilTheyAreReplaced(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.server.keepAlive = 5 * time.Millisecond
	alice := m.members("alice")[0].initialize()
	status, lines := alice.stream(t.Context())
	if status != 200 {
		t.Fatalf("the stream: %d", status)
	}
	for range 3 { // the first comes at once, the others are signs of life
		if line := <-lines; line != ": knoot" {
			t.Fatalf("the stream says %q", line)
		}
	}
	_, again := alice.stream(t.Context())
	for range lines { // until it ends
	}
	(&member{m: m, id: alice.id, secret: alice.secret}).initialize()
	for range again {
	}
	if answer := m.request("GET", "/mcp?agent=alice", "", "Authorization: Bearer "+alice.secret, "Accept: */*"); answer.status != 405 {
		t.Errorf("a GET that asks for no stream: %+v", answer)
	}
}

func TestStreamsEndWithTheDaemon(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	alice := m.members("alice")[0].initialize()
	_, lines := alice.stream(t.Context())
	<-lines
	began := time.Now()
	m.stop()
	for range lines {
	}
	if took := time.Since(began); took > 2*closeTime {
		t.Errorf("the daemon's end took %v", took)
	}
}
