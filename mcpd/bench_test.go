package mcpd

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// BenchmarkToolCall is a call on loopback by the SDK's client: of check-messages with nothing unread, which every agent makes all the time,
// and of a tool that returns its argument in a bare server of the SDK's. The first may take twice the time of the second.
func BenchmarkToolCall(b *testing.B) {
	call := func(b *testing.B, session *mcp.ClientSession, name string, arguments any) {
		for b.Loop() {
			if got, err := session.CallTool(b.Context(), &mcp.CallToolParams{Name: name, Arguments: arguments}); err != nil || got.IsError {
				b.Fatalf("%v, %+v", err, got)
			}
		}
	}
	b.Run("knoot", func(b *testing.B) {
		m := newMachine(b)
		session, err := m.members("alice")[0].connect(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		defer session.Close()
		call(b, session, "check-messages", args{"agentId": "alice"})
	})
	b.Run("echo", func(b *testing.B) {
		server := mcp.NewServer(&mcp.Implementation{Name: "echo", Version: "1"}, nil)
		server.AddTool(&mcp.Tool{Name: "echo", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(req.Params.Arguments)}}}, nil
		})
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		bare := &http.Server{Handler: mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true})}
		go func() { _ = bare.Serve(listener) }()
		defer bare.Close()
		transport := &http.Transport{}
		defer transport.CloseIdleConnections()
		client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
		session, err := client.Connect(context.Background(), &mcp.StreamableClientTransport{Endpoint: "http://" + listener.Addr().String(), HTTPClient: &http.Client{Transport: transport}}, nil)
		if err != nil {
			b.Fatal(err)
		}
		defer session.Close()
		call(b, session, "echo", args{"agentId": "alice"})
	})
}

// BenchmarkNudge is from a message to an idle terminal agent until its program has read the line that says so, hook included. It may take
// 200 ms, of which 50 pass between the line and its Enter.
func BenchmarkNudge(b *testing.B) {
	m := newMachine(b)
	m.withStandIns("")
	bob := m.terminalAgent("bob")
	alice := m.members("alice")[0]
	alice.send("bob", "the first one waits for its program")
	m.shows("bob", "rests", 1)
	t, _ := m.server.terminalOf("bob")
	for b.Loop() {
		b.StopTimer()
		m.await("bob is idle", func() bool { return m.state("bob") == idle && len(bob.inbox(true)) == 0 })
		_, from, _ := t.since(0)
		b.StartTimer()
		alice.send("bob", "news")
		for {
			text, _, more := t.since(from)
			if strings.Contains(string(text), heardNudge) {
				break
			}
			<-more
		}
	}
}

// An idle agent with a connection and a stream of events takes at most 2 MB of the daemon.
func TestIdleAgentsAreSmall(t *testing.T) {
	const agents = 100
	m := newMachine(t)
	m.address()
	before := inUse()
	for i := range agents {
		a := m.agent("agent-"+string(rune('a'+i/26))+string(rune('a'+i%26)), "claude", m.repo).initialize()
		if _, lines := a.stream(t.Context()); <-lines == "" {
			t.Fatal("a stream says nothing")
		}
	}
	each := (int64(inUse()) - int64(before)) / agents
	t.Logf("%d KB an agent, its client here included", each>>10)
	if each > 2<<20 {
		t.Errorf("an idle agent takes %d KB, and may take 2 MB", each>>10)
	}
}

// inUse is what the heap and the stacks hold.
func inUse() uint64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc + s.StackInuse
}
