package mcpd

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"knoot.dev/knoot/daemon"
	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/integration/stage"
)

func TestMain(m *testing.M) {
	// The daemon runs in this process here, and starts git: what is configured on this machine is not seen.
	for name, value := range map[string]string{"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.DevNull, "CI": ""} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	if len(os.Args) > 1 && os.Args[1] == "stand-in" {
		standIn(os.Args[2:])
		return
	}
	if len(os.Args) > 3 && os.Args[1] == "other-user" {
		otherUser(os.Args[2], os.Args[3], os.Args[4:])
		return
	}
	code := stage.Run(m)
	if err := goleak.Find(); code == 0 && err != nil {
		println(err.Error())
		code = 1
	}
	os.Exit(code)
}

// machine is one on which a daemon runs, in this process, with a repository in which knoot is on.
type machine struct {
	*stage.Person
	t      testing.TB
	repo   string
	server *Server
	stop   func()
	clock  func() time.Time
	// notices are the notifications that the person was shown.
	notices chan string
}

func newMachine(t testing.TB) *machine {
	m := &machine{Person: stage.NewPerson(t, "ash"), t: t, clock: time.Now, notices: make(chan string, 100)}
	m.repo = m.repository("shop")
	m.start()
	return m
}

// repository makes a repository in which knoot is on, with src/billing.js in it.
func (m *machine) repository(name string) string {
	m.t.Helper()
	root := filepath.Join(m.Home, name)
	m.Git(m.Home, "init", "-q", "-b", "main", root)
	m.Commit(root, "src/billing.js", "cents\n", "start")
	m.Knoot(root, "init")
	return root
}

// start runs the daemon until stop, or the test's end.
func (m *machine) start() {
	m.t.Helper()
	vars := map[string]string{}
	for _, v := range m.Env() {
		name, value, _ := strings.Cut(v, "=")
		vars[name] = value
	}
	ctx, cancel := context.WithCancel(context.Background())
	listening, ran := make(chan struct{}), make(chan error, 1)
	go func() {
		ran <- daemon.Run(ctx, daemon.Options{Getenv: func(name string) string { return vars[name] }, Now: func() time.Time { return m.clock() }, HookTime: patience,
			Listening: func(socket.Location) { close(listening) },
			Coordinate: func(h *daemon.Host) daemon.Coordinator {
				m.server = New(h)
				m.server.notify = func(title, text string) error {
					m.notices <- title + ": " + text
					return nil
				}
				return m.server
			}})
	}()
	var once sync.Once
	m.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ran; err != nil {
				m.t.Errorf("the daemon: %v", err)
			}
		})
	}
	m.t.Cleanup(m.stop)
	select {
	case <-listening:
	case err := <-ran:
		ran <- nil
		m.t.Fatalf("the daemon: %v", err)
	}
}

// address is where the server listens.
func (m *machine) address() string {
	m.t.Helper()
	address := m.server.Address(context.Background())
	if address == "" {
		m.t.Fatalf("nothing listens: %s", m.server.Problem())
	}
	return address
}

// member is an agent with a name of its own.
type member struct {
	m          *machine
	id, secret string
	session    string // Mcp-Session-Id; "": none is sent
	version    string // MCP-Protocol-Version; "": none is sent
}

// agent makes an agent of a type, in a repository.
func (m *machine) agent(id, kind, repo string) *member {
	m.t.Helper()
	body, _ := json.Marshal(ConfigRequest{Agent: id, Type: kind})
	answer, err := m.server.Do(context.Background(), "mcp", repo, body)
	if err != nil {
		m.t.Fatalf("%s: %v", id, err)
	}
	return &member{m: m, id: id, secret: answer.(*ConfigAnswer).Secret}
}

// members makes agents in the machine's repository.
func (m *machine) members(ids ...string) []*member {
	m.t.Helper()
	var out []*member
	for _, id := range ids {
		out = append(out, m.agent(id, "claude", m.repo))
	}
	return out
}

// reply is an answer over HTTP.
type reply struct {
	status int
	header http.Header
	body   string
}

// request sends a request as written, with headers "Name: value".
func (m *machine) request(method, path, body string, headers ...string) reply {
	m.t.Helper()
	answer, err := m.try(method, path, body, headers...)
	if err != nil {
		m.t.Fatalf("%s %s: %v", method, path, err)
	}
	return answer
}

func (m *machine) try(method, path, body string, headers ...string) (reply, error) {
	req, err := http.NewRequest(method, "http://"+m.address()+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return reply{}, err
	}
	if body == "" {
		req.Body = nil
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if req.Header.Set(name, value); name == "Host" {
			req.Host = value
		}
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, strings.TrimSpace(string(text))}, err
}

// headers are those that the agent's configuration sends.
func (a *member) headers() []string {
	out := []string{"Authorization: Bearer " + a.secret, "Accept: application/json, text/event-stream"}
	if a.session != "" {
		out = append(out, "Mcp-Session-Id: "+a.session)
	}
	if a.version != "" {
		out = append(out, "Mcp-Protocol-Version: "+a.version)
	}
	return out
}

// post sends one JSON-RPC message.
func (a *member) post(body string) reply {
	a.m.t.Helper()
	return a.m.request("POST", "/mcp?agent="+a.id, body, a.headers()...)
}

// initialize begins a connection of the protocol with sessions.
func (a *member) initialize() *member {
	a.m.t.Helper()
	a.session, a.version = "", ""
	answer := a.post(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	if a.session = answer.header.Get("Mcp-Session-Id"); answer.status != 200 || a.session == "" {
		a.m.t.Fatalf("initialize: %+v", answer)
	}
	a.version = "2025-06-18"
	return a
}

// result is what a tool's call came to.
type result struct {
	Text  string
	Error bool
}

// raw calls a tool with arguments as written.
func (a *member) raw(tool, arguments string) (result, error) {
	answer, err := a.m.try("POST", "/mcp?agent="+a.id, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"`+tool+`","arguments":`+arguments+`}}`, a.headers()...)
	if err != nil {
		return result{}, err
	}
	var got struct {
		Result struct {
			IsError bool
			Content []struct{ Type, Text string }

			StructuredContent json.RawMessage
		}
		Error *struct {
			Code    int
			Message string
		}
	}
	if err := json.Unmarshal([]byte(answer.body), &got); err != nil || got.Error != nil || answer.status != 200 || len(got.Result.Content) != 1 ||
		got.Result.Content[0].Type != "text" || got.Result.StructuredContent != nil {
		return result{}, &unexpected{answer}
	}
	return result{got.Result.Content[0].Text, got.Result.IsError}, nil
}

type unexpected struct{ reply }

func (u *unexpected) Error() string { return "no result: " + u.body }

// call calls a tool, which must not fail, and reads its answer into into unless that is nil.
func (a *member) call(tool string, arguments map[string]any, into any) string {
	a.m.t.Helper()
	got, err := a.try(tool, arguments)
	if err != nil || got.Error {
		a.m.t.Fatalf("%s by %s: %v, %q", tool, a.id, err, got.Text)
	}
	if into != nil {
		if err := json.Unmarshal([]byte(got.Text), into); err != nil {
			a.m.t.Fatalf("%s answers %q: %v", tool, got.Text, err)
		}
	}
	return got.Text
}

func (a *member) try(tool string, arguments map[string]any) (result, error) {
	args := map[string]any{"agentId": a.id}
	for name, value := range arguments {
		args[name] = value
	}
	text, err := json.Marshal(args)
	if err != nil {
		return result{}, err
	}
	return a.raw(tool, string(text))
}

// refused calls a tool, which must fail with all of the words.
func (a *member) refused(tool string, arguments map[string]any, words ...string) {
	a.m.t.Helper()
	got, err := a.try(tool, arguments)
	if err != nil || !got.Error {
		a.m.t.Errorf("%s by %s with %v: %v, %q, want a refusal", tool, a.id, arguments, err, got.Text)
	}
	for _, word := range words {
		if !strings.Contains(got.Text, word) {
			a.m.t.Errorf("%s by %s with %v says %q, want %q in it", tool, a.id, arguments, got.Text, word)
		}
	}
}

// args are arguments of a tool.
type args = map[string]any

// inbox reads what is unread: "from: text" each.
func (a *member) inbox(peek bool) []string {
	a.m.t.Helper()
	var messages []daemon.Message
	a.call("check-messages", args{"peek": peek}, &messages)
	out := []string{}
	for _, m := range messages {
		out = append(out, m.From+": "+m.Text)
	}
	return out
}

// hook tells the daemon of a hook, as the shim does.
func (m *machine) hook(h socket.Hook) *socket.Answer {
	m.t.Helper()
	loc, err := socket.Locate(func(name string) string {
		if name == "KNOOT_HOME" {
			return m.KnootHome
		}
		return ""
	})
	if err != nil {
		m.t.Fatal(err)
	}
	if h.Agent == "" {
		h.Agent = "claude"
	}
	if h.Cwd == "" {
		h.Cwd = m.repo
	}
	h.Places = append([]socket.Place{{Root: h.Cwd}}, h.Places...)
	resp, err := loc.Ask(context.Background(), &socket.Request{Op: "hook", Hook: &h})
	if err != nil || resp.Error != "" {
		m.t.Fatalf("hook %s: %v, %v", h.Event, err, resp)
	}
	return resp.Answer
}

// gone is the event of a session whose process has gone.
func gone(session string) daemon.SessionEvent {
	return daemon.SessionEvent{Session: daemon.SessionKey{Agent: "claude", ID: session}, Event: daemon.GoneEvent}
}
