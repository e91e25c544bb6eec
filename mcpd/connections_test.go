package mcpd

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
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

// Several messages in one request, which the oldest version of the protocol has, are answered each, also where another connection has
// taken over.
func TestBatches(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	alice := m.members("alice")[0].initialize()
	batch := `[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/initialized"},` +
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"set-status","arguments":{"agentId":"alice","status":"s"}}}]`
	alice.version = ""
	answers := func() map[int]string {
		t.Helper()
		answer := alice.post(batch)
		var all []struct {
			ID     int
			Result *struct{ IsError bool }
			Error  *struct{ Code int }
		}
		if err := json.Unmarshal([]byte(answer.body), &all); err != nil || answer.status != 200 {
			t.Fatalf("%v: %+v", err, answer)
		}
		out := map[int]string{}
		for _, each := range all {
			switch {
			case each.Error != nil:
				out[each.ID] = fmt.Sprint(each.Error.Code)
			case each.Result != nil:
				out[each.ID] = fmt.Sprint(each.Result.IsError)
			}
		}
		return out
	}
	if got, want := answers(), map[int]string{1: "false", 2: "false"}; !maps.Equal(got, want) {
		t.Errorf("answered are %v, want %v", got, want)
	}
	(&member{m: m, id: alice.id, secret: alice.secret}).initialize()
	if got, want := answers(), map[int]string{1: "-32000", 2: "true"}; !maps.Equal(got, want) {
		t.Errorf("replaced, answered are %v, want %v", got, want)
	}
}

// Two that only look, at one time: whichever leaves first, whoever works is there afterwards.
func TestLooksAtOneTimeEvictNobody(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	works := m.members("alice")[0].initialize()
	works.call("list-agents", nil, nil)
	for _, order := range [][]int{{0, 1}, {1, 0}} {
		looks := []*member{{m: m, id: works.id, secret: works.secret}, {m: m, id: works.id, secret: works.secret}}
		for _, each := range looks {
			each.initialize()
		}
		for _, n := range order {
			if answer := m.request("DELETE", "/mcp?agent=alice", "", looks[n].headers()...); answer.status != 204 {
				t.Errorf("DELETE: %+v", answer)
			}
		}
		works.call("list-agents", nil, nil)
	}
	// Once one of them works, whoever worked before is out for good.
	newer := (&member{m: m, id: works.id, secret: works.secret}).initialize()
	newer.call("list-agents", nil, nil)
	look := (&member{m: m, id: works.id, secret: works.secret}).initialize()
	m.request("DELETE", "/mcp?agent=alice", "", look.headers()...)
	newer.call("list-agents", nil, nil)
	works.refused("list-agents", nil, "another connection")
}

// What the protocol with sessions is answered, in each of its versions.
func TestProtocolWithSessions(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	alice := m.members("alice")[0]
	for _, version := range []string{"2025-06-18", "2025-11-25"} {
		answer := m.request("POST", "/mcp?agent=alice", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"`+version+`","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`, alice.headers()...)
		if answer.status != 200 || !strings.Contains(answer.body, `"protocolVersion":"`+version+`"`) {
			t.Errorf("initialize of %s: %+v", version, answer)
		}
		session := []string{"Mcp-Session-Id: " + answer.header.Get("Mcp-Session-Id"), "Mcp-Protocol-Version: " + version}
		for body, want := range map[string]struct {
			status int
			says   string
		}{
			`{"jsonrpc":"2.0","method":"notifications/initialized"}`: {202, ""},
			listTools: {200, `"tools":[`},
			`{"jsonrpc":"2.0","id":4,"method":"resources/list"}`:         {200, `"id":4`}, // Codex asks unasked
			`{"jsonrpc":"2.0","id":3,"method":"tools/none","params":{}}`: {200, `"code":-32601`},
			`{"jsonrpc":"2.0","method":"notifications/none"}`:            {202, ""},
			`{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{}}`: {200, `"code":-32602`},
			`no json`: {400, ""},
			`{"jsonrpc":"2.0","id":5,"method":"tools/call"}`:                                         {200, `"code":-32602`},
			`{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"none","arguments":{}}}`: {200, `"code":-32602`},
		} {
			got := m.request("POST", "/mcp?agent=alice", body, append(alice.headers(), session...)...)
			if got.status != want.status || !strings.Contains(got.body, want.says) {
				t.Errorf("%s: %s: %+v, want %d with %s", version, body, got, want.status, want.says)
			}
		}
	}
	for _, headers := range [][]string{nil, {"Accept: application/json"}, {"Accept: */*"}, {"Accept: "}, {"Mcp-Protocol-Version: 2025-03-26"}} { // without a session's id, too
		if got := m.request("POST", "/mcp?agent=alice", listTools, append(alice.headers(), headers...)...); got.status != 200 || !strings.Contains(got.header.Get("Content-Type"), "application/json") {
			t.Errorf("with %q: %+v", headers, got)
		}
	}
	for _, version := range []string{"1999-01-01", "2025", "latest"} {
		if got := m.request("POST", "/mcp?agent=alice", listTools, append(alice.headers(), "Mcp-Protocol-Version: "+version)...); got.status != 400 {
			t.Errorf("version %s: %+v", version, got)
		}
	}
}

// Who calls is known by the address and its secret: neither another agent's session nor the header by which the server tells its tools
// makes one another.
func TestAnAgentIsWhomItsSecretSays(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	both := m.members("alice", "bob")
	both[0].initialize()
	bob := *both[1]
	bob.session, bob.version = both[0].session, both[0].version
	bob.call("set-status", args{"status": "bob's"}, nil)
	if got := m.request("POST", "/mcp?agent=bob", ping, both[0].headers()...); got.status != 403 {
		t.Errorf("alice's secret with bob's address: %+v", got)
	}
	body := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"set-status","arguments":{"agentId":"alice","status":"alice's"}}}`
	if got := m.request("POST", "/mcp?agent=alice", body, append(both[0].headers(), "Knoot-Agent: bob")...); got.status != 200 || strings.Contains(got.body, "isError") {
		t.Errorf("alice with bob in a header: %+v", got)
	}
	for _, a := range both {
		if of, _ := m.server.find(a.id); of.entry.Status != a.id+"'s" {
			t.Errorf("%s's status is %q", a.id, of.entry.Status)
		}
	}
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

// newer sends a request of the protocol without sessions: a method, its parameters beside _meta, and headers beside those that it needs,
// or in the place of theirs.
func (a *member) newer(method, params string, headers ...string) reply {
	a.m.t.Helper()
	body, needed := newerRequest(method, params)
	return a.m.request("POST", "/mcp?agent="+a.id, body, append(append(a.headers(), needed...), headers...)...)
}

func newerRequest(method, params string) (body string, headers []string) {
	if params != "" {
		params = "," + params
	}
	return `{"jsonrpc":"2.0","id":9,"method":"` + method + `","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},` +
		`"io.modelcontextprotocol/clientCapabilities":{}}` + params + `}}`, []string{"Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: " + method}
}

func TestRequestsWithoutSessions(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	alice := m.members("alice")[0]
	call := `"name":"list-agents","arguments":{"agentId":"alice"}`
	for _, c := range []struct {
		what, method, params string
		headers              []string
		status               int
		says                 []string
	}{
		{"discover", "server/discover", "", nil, 200, []string{`"resultType":"complete"`, `"2026-07-28"`}},
		{"the list", "tools/list", "", nil, 200, []string{`"resultType":"complete"`, `"ttlMs":`, `"cacheScope":`, `"tools":[`}},
		{"a call", "tools/call", call, []string{"Mcp-Name: list-agents"}, 200, []string{`"resultType":"complete"`, `\"id\":\"alice\"`}},
		{"a call that is refused", "tools/call", `"name":"send-message","arguments":{"agentId":"alice"}`, []string{"Mcp-Name: send-message"}, 200, []string{`"isError":true`}},
		{"another version in the header", "tools/list", "", []string{"Mcp-Protocol-Version: 2025-11-25"}, 400, []string{`"code":-32020`}},
		{"no version in the header", "tools/list", "", []string{"Mcp-Protocol-Version: "}, 400, []string{`"code":-32020`}},
		{"another method in the header", "tools/list", "", []string{"Mcp-Method: tools/call"}, 400, []string{`"code":-32020`}},
		{"no method in the header", "tools/list", "", []string{"Mcp-Method: "}, 400, []string{`"code":-32020`}},
		{"another name in the header", "tools/call", call, []string{"Mcp-Name: set-status"}, 400, []string{`"code":-32020`}},
		{"no name in the header", "tools/call", call, nil, 400, []string{`"code":-32020`}},
		{"a method that is not there", "tools/none", "", nil, 404, []string{`"code":-32601`}},
		{"what the version has no more", "ping", "", nil, 404, []string{`"code":-32601`}},
		{"prompts, of which there are none", "prompts/list", "", nil, 404, []string{`"code":-32601`}},
		{"resources, of which there are none", "resources/list", "", nil, 404, []string{`"code":-32601`}},
		{"a call of nothing", "tools/call", "", []string{"Mcp-Name: x"}, 400, []string{`"code":-32020`}},
		{"a tool that is not there", "tools/call", `"name":"none","arguments":{}`, []string{"Mcp-Name: none"}, 400, []string{`"code":-32602`}},
	} {
		got := alice.newer(c.method, c.params, c.headers...)
		if got.status != c.status || got.header.Get("Mcp-Session-Id") != "" {
			t.Errorf("%s: %+v, want %d", c.what, got, c.status)
		}
		for _, want := range c.says {
			if !strings.Contains(got.body, want) {
				t.Errorf("%s: %s, want %s in it", c.what, got.body, want)
			}
		}
	}
	body, _ := newerRequest("tools/list", "")
	got := m.request("POST", "/mcp?agent=alice", strings.ReplaceAll(body, "2026-07-28", "2099-01-01"), append(alice.headers(), "Mcp-Protocol-Version: 2099-01-01", "Mcp-Method: tools/list")...)
	if got.status != 400 || !strings.Contains(got.body, `"code":-32022`) || !strings.Contains(got.body, `"supported":[`) {
		t.Errorf("a version that is to come: %+v", got)
	}
	// It takes nobody's place.
	works := (&member{m: m, id: alice.id, secret: alice.secret}).initialize()
	alice.newer("tools/call", call, "Mcp-Name: list-agents", "Mcp-Session-Id: whatever")
	works.call("list-agents", nil, nil)
}

// The list of tools never changes, so a subscription to that is told so, and has nothing more to wait for.
func TestSubscriptionsEnd(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	got := m.members("alice")[0].newer("subscriptions/listen", `"notifications":{"toolsListChanged":true}`)
	if got.status != 200 || got.header.Get("Content-Type") != "text/event-stream" || !strings.Contains(got.body, `"method":"notifications/subscriptions/acknowledged"`) ||
		strings.Contains(got.body, `"toolsListChanged":true`) || !strings.Contains(got.body, `"id":9`) {
		t.Errorf("a subscription: %+v", got)
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
	return resp.StatusCode, linesOf(resp)
}

func linesOf(resp *http.Response) chan string {
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		defer resp.Body.Close()
		for scanner := bufio.NewScanner(resp.Body); scanner.Scan(); {
			if scanner.Text() != "" {
				select {
				case lines <- scanner.Text():
				case <-resp.Request.Context().Done():
					return
				}
			}
		}
	}()
	return lines
}

// A stream says that it lives every 15 seconds, between its events and not within one.
func TestSignsOfLife(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		recorder := httptest.NewRecorder()
		w := newStreamWriter(recorder, New(nil).keepAlive)
		defer w.finish()
		written := func() string {
			synctest.Wait()
			w.mu.Lock()
			defer w.mu.Unlock()
			return recorder.Body.String()
		}
		time.Sleep(time.Hour)
		if got := written(); got != "" {
			t.Errorf("before it is a stream %q is written", got)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		time.Sleep(15*time.Second - time.Nanosecond)
		if got := written(); got != "" {
			t.Errorf("in less than 15 seconds %q is written", got)
		}
		time.Sleep(30 * time.Second)
		want := strings.Repeat(": knoot\n\n", 2)
		if got := written(); got != want || !recorder.Flushed {
			t.Errorf("after 45 seconds %q is written, want %q", got, want)
		}
		_, _ = w.Write([]byte("data: half"))
		time.Sleep(time.Minute)
		_, _ = w.Write([]byte(" of it\n\n"))
		want += "data: half of it\n\n"
		if got := written(); got != want {
			t.Errorf("within an event %q is written, want %q", got, want)
		}
		time.Sleep(15 * time.Second)
		if got := written(); got != want+": knoot\n\n" {
			t.Errorf("after the event %q is written", got)
		}
		w.finish()
		time.Sleep(time.Hour)
		if got := written(); got != want+": knoot\n\n" {
			t.Errorf("after its end %q is written", got)
		}
	})
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
