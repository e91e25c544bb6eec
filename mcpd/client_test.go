package mcpd

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"knoot.dev/knoot/daemon"
)

// withSecret sends an agent's secret with every request.
type withSecret struct {
	secret string
	inner  *http.Transport
}

func (t *withSecret) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", "Bearer "+t.secret)
	// One that meets a connection which ended with the daemon is sent again, on a new one. See http.Transport; the header is not sent.
	req.Header["X-Idempotency-Key"] = []string{}
	return t.inner.RoundTrip(req)
}

// connect connects the SDK's own client as an agent.
func (a *member) connect(ctx context.Context) (*mcp.ClientSession, error) {
	transport := &http.Transport{MaxIdleConnsPerHost: 4}
	a.m.t.Cleanup(transport.CloseIdleConnections)
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	return client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: "http://" + a.m.address() + "/mcp?agent=" + a.id,
		HTTPClient: &http.Client{Transport: &withSecret{a.secret, transport}}}, nil)
}

func textOfResult(r *mcp.CallToolResult) string {
	if len(r.Content) != 1 {
		return fmt.Sprintf("%d contents", len(r.Content))
	}
	text, _ := r.Content[0].(*mcp.TextContent)
	return text.Text
}

// A client that nobody here wrote lists the tools, calls some, outlives the daemon, and is replaced.
func TestTheSDKsClient(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.fixPort()
	both := m.members("alice", "bob")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	session, err := both[0].connect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	t.Logf("it speaks %s", session.InitializeResult().ProtocolVersion)
	tools, err := session.ListTools(ctx, nil)
	if err != nil || len(tools.Tools) != len(allTools()) {
		t.Fatalf("tools: %v, %+v", err, tools)
	}
	for name, arguments := range map[string]any{
		"set-status":   args{"agentId": "alice", "status": "at it"},
		"list-agents":  args{"agentId": "alice"},
		"send-message": args{"agentId": "alice", "to": "bob", "message": "hello"},
	} {
		if got, err := session.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: arguments}); err != nil || got.IsError {
			t.Errorf("%s: %v, %+v", name, err, got)
		}
	}
	both[1].wantInbox("alice: hello")
	if got, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "set-status", Arguments: args{"agentId": "bob", "status": "x"}}); err != nil || !got.IsError || !strings.Contains(textOfResult(got), "alice") {
		t.Errorf("as somebody else: %v, %+v", err, got)
	}
	m.stop()
	m.start()
	m.address()
	if got, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "list-agents", Arguments: args{"agentId": "alice"}}); err != nil || got.IsError {
		t.Errorf("after a restart of the daemon: %v, %+v", err, got)
	}
	newer, err := both[0].connect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer newer.Close()
	if got, err := newer.CallTool(ctx, &mcp.CallToolParams{Name: "list-agents", Arguments: args{"agentId": "alice"}}); err != nil || got.IsError {
		t.Errorf("the newer connection: %v, %+v", err, got)
	}
}

// fixPort has the daemon listen on one port, whenever it is started.
func (m *machine) fixPort() {
	m.t.Helper()
	_, port, _ := strings.Cut(m.address(), ":")
	m.stop()
	m.Write(m.KnootHome+"/config.toml", "[mcp]\nport = "+port+"\n")
	m.start()
}

// A hundred agents write to one another, read and broadcast: every message is read once by whom it is for, and nothing else is.
func TestAHundredAgents(t *testing.T) {
	t.Parallel()
	const agents, direct, broadcasts = 100, 99, 1
	m := newMachine(t)
	var members []*member
	for i := range agents {
		a := m.agent(fmt.Sprintf("agent-%d", i), "claude", m.repo)
		m.server.connected(a.id)
		members = append(members, a)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var mu sync.Mutex
	read := map[string]int{} // "reader<text"
	take := func(a *member) int {
		of, _ := m.server.find(a.id)
		messages, err := m.server.host.Unread(ctx, of.speaker(), true)
		if err != nil {
			t.Errorf("%s: %v", a.id, err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, msg := range messages {
			read[a.id+"<"+msg.Text]++
		}
		return len(messages)
	}
	var wanted sync.Map
	var senders, readers sync.WaitGroup
	sent := make(chan struct{})
	for i, a := range members {
		senders.Go(func() {
			for n := range direct {
				to, text := members[(i+1+n%(agents-1))%agents], fmt.Sprintf("%s to one %d", a.id, n)
				of, _ := m.server.find(a.id)
				if _, err := m.server.host.Send(ctx, of.speaker(), daemon.MessageRequest{To: to.id, Text: text}); err != nil {
					t.Errorf("%s: %v", text, err)
					return
				}
				wanted.Store(to.id+"<"+text, true)
			}
			for n := range broadcasts {
				text := fmt.Sprintf("%s to all %d", a.id, n)
				of, _ := m.server.find(a.id)
				if count, err := m.server.host.Broadcast(ctx, of.speaker(), text); err != nil || count != agents-1 {
					t.Errorf("%s: %d, %v", text, count, err)
				}
				for _, to := range members {
					if to != a {
						wanted.Store(to.id+"<"+text, true)
					}
				}
			}
		})
		for range 2 { // two at one mailbox
			readers.Go(func() {
				for last := false; ; {
					if take(a) > 0 {
						continue
					}
					if last { // looked after all was sent
						return
					}
					select {
					case <-sent:
						last = true
					case <-time.After(time.Millisecond):
					}
				}
			})
		}
	}
	senders.Wait()
	close(sent)
	readers.Wait()
	total := 0
	wanted.Range(func(key, _ any) bool {
		total++
		if read[key.(string)] != 1 {
			t.Errorf("%q was read %d times", key, read[key.(string)])
		}
		delete(read, key.(string))
		return true
	})
	if total != agents*(direct+broadcasts*(agents-1)) || len(read) > 0 {
		t.Errorf("%d messages were wanted, and %d others read", total, len(read))
	}
	for _, a := range members {
		var got registration
		a.call("register-agent", nil, &got)
		if got.Unread != 0 || got.Newest != "" {
			t.Errorf("%s has %d unread", a.id, got.Unread)
		}
	}
}
