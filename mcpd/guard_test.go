package mcpd

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"knoot.dev/knoot/daemon"
	"knoot.dev/knoot/daemon/socket"
)

const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`

func TestGuard(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	alice := m.members("alice")[0]
	_, port, _ := net.SplitHostPort(m.address())
	mine := []string{"Authorization: Bearer " + alice.secret}
	for name, c := range map[string]struct {
		headers []string
		want    int
	}{
		"as an agent sends it":           {nil, 200},
		"by the other name":              {[]string{"Host: localhost:" + port}, 200},
		"a name that leads here":         {[]string{"Host: attacker.example:" + port}, 403},
		"no port":                        {[]string{"Host: 127.0.0.1"}, 403},
		"another port":                   {[]string{"Host: 127.0.0.1:1"}, 403},
		"its own origin":                 {[]string{"Origin: http://127.0.0.1:" + port}, 200},
		"another origin":                 {[]string{"Origin: https://attacker.example"}, 403},
		"a port of this machine":         {[]string{"Origin: http://127.0.0.1:1"}, 403},
		"no origin at all":               {[]string{"Origin: null"}, 403},
		"the origin over TLS":            {[]string{"Origin: https://127.0.0.1:" + port}, 403},
		"sent by a page":                 {[]string{"Sec-Fetch-Site: cross-site"}, 403},
		"sent by a page of this machine": {[]string{"Sec-Fetch-Site: same-site"}, 403},
		"sent by its own page":           {[]string{"Sec-Fetch-Site: same-origin"}, 200},
		"a form's":                       {[]string{"Content-Type: text/plain"}, 415},
		"no type":                        {[]string{"Content-Type: "}, 415},
		"another's secret":               {[]string{"Authorization: Bearer " + strings.Repeat("0", 64)}, 403},
		"the secret's beginning":         {[]string{"Authorization: Bearer " + alice.secret[:32]}, 403},
		"no secret":                      {[]string{"Authorization: "}, 403},
		"the secret, badly":              {[]string{"Authorization: Basic " + alice.secret}, 403},
	} {
		if got := m.request("POST", "/mcp?agent=alice", ping, append(slices.Clone(mine), c.headers...)...); got.status != c.want {
			t.Errorf("%s: %d %s, want %d", name, got.status, got.body, c.want)
		}
	}
	// A page can send a GET, and an attacker's name can lead to any route.
	for _, path := range []string{"/", "/health", "/mcp?agent=alice", "/api/v1/agent/status", "/nothing"} {
		for _, header := range []string{"Host: attacker.example:" + port, "Origin: https://attacker.example", "Sec-Fetch-Site: cross-site"} {
			if got := m.request("GET", path, "", header); got.status != 403 {
				t.Errorf("GET %s with %s: %d", path, header, got.status)
			}
		}
		if got := m.request("OPTIONS", path, "", "Origin: https://attacker.example", "Access-Control-Request-Method: POST"); got.status != 403 || got.header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("OPTIONS %s: %+v", path, got)
		}
	}
	for path, want := range map[string]int{"/mcp": 400, "/mcp?agent=": 400, "/mcp?agent=nobody": 403} {
		if got := m.request("POST", path, ping, mine...); got.status != want {
			t.Errorf("POST %s: %+v, want %d", path, got, want)
		}
	}
	if got := m.request("POST", "/mcp", ping, mine...); !strings.Contains(got.body, "/mcp?agent=NAME") {
		t.Errorf("an address without an agent: %q", got.body)
	}
	if got := m.request("PUT", "/mcp?agent=alice", "", mine...); got.status != 405 {
		t.Errorf("PUT: %+v", got)
	}
	// One agent's secret does not make another.
	m.members("bob")
	if got := m.request("POST", "/mcp?agent=bob", ping, mine...); got.status != 403 {
		t.Errorf("alice as bob: %+v", got)
	}
}

// logged are the reasons for which the daemon's log says that something was refused, by how often. It has no secret.
func (m *machine) logged(secrets ...string) map[string]int {
	m.t.Helper()
	log, err := os.ReadFile(filepath.Join(m.KnootHome, "knootd.log"))
	if err != nil {
		m.t.Fatal(err)
	}
	for _, secret := range append(secrets, m.token()) {
		if bytes.Contains(log, []byte(secret)) {
			m.t.Errorf("a secret is in the log: %s", log)
		}
	}
	out := map[string]int{}
	for line := range strings.Lines(string(log)) {
		if !strings.Contains(line, "a request was refused") {
			continue
		}
		_, rest, _ := strings.Cut(line, "why=")
		why, err := strconv.QuotedPrefix(rest)
		if err == nil {
			why, err = strconv.Unquote(why)
		}
		if err != nil {
			m.t.Errorf("the log says of a refusal: %s", line)
		}
		out[why]++
	}
	return out
}

// Whatever is refused is logged, one reason once a minute however often it comes, and without a secret.
func TestRefusalsAreLogged(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.stop()
	var passed atomic.Int64
	began := time.Now()
	m.clock = func() time.Time { return began.Add(time.Duration(passed.Load())) }
	m.start()
	alice := m.members("alice")[0]
	_, port, _ := net.SplitHostPort(m.address())
	wrong := strings.Repeat("0", 64)
	refuse := func() {
		for range 3 {
			for _, header := range []string{"Host: attacker.example:" + port, "Origin: https://attacker.example", "Origin: null", "Sec-Fetch-Site: cross-site",
				"Content-Type: text/plain", "Authorization: Bearer " + wrong, "Authorization: "} {
				headers := []string{"Authorization: Bearer " + alice.secret, header}
				if got := m.request("POST", "/mcp?agent=alice&secret="+alice.secret, ping, headers...); got.status < 400 {
					t.Errorf("%s: %d", header, got.status)
				}
			}
			m.request("GET", "/api/v1/agent/status", "", "Authorization: Bearer "+wrong)
			_, _ = m.try("POST", "/mcp?agent=alice", strings.Repeat(" ", maxBody+1), "Authorization: Bearer "+alice.secret)
		}
	}
	refuse()
	want := map[string]int{}
	for _, why := range []string{"the Host is not this server's", "the Origin is not this server's", "a web page of another origin sent this",
		"the Content-Type is to be application/json", "this is not the agent's secret; `knoot mcp config` says what its configuration needs",
		"this takes an agent's secret, or yours from ~/.knoot/mcp.token, as Authorization: Bearer", "the body is too large"} {
		want[why] = 1
	}
	if got := m.logged(alice.secret, wrong); !maps.Equal(got, want) {
		t.Errorf("logged are %v, want %v", got, want)
	}
	passed.Store(int64(refusalEvery))
	refuse()
	for why := range want {
		want[why] = 2
	}
	if got := m.logged(alice.secret, wrong); !maps.Equal(got, want) {
		t.Errorf("a minute later logged are %v, want %v", got, want)
	}
}

// An answer is nothing that a browser runs, whatever agents put into it.
func TestAnswersAreInert(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	alice := m.members("alice")[0]
	for path, header := range map[string]string{"/": "Accept: text/html", "/health": "Accept: */*", "/nothing": "Accept: */*", "/api/v1/agent/status": "Authorization: Bearer " + alice.secret,
		"/mcp?agent=alice": "Host: attacker.example"} {
		got := m.request("GET", path, "", header)
		for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Access-Control-Allow-Origin": "",
			"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; font-src 'self'; " +
				"frame-ancestors 'none'; base-uri 'none'; form-action 'none'"} {
			if got.header.Get(name) != want {
				t.Errorf("GET %s: %s is %q, want %q", path, name, got.header.Get(name), want)
			}
		}
	}
}

// The endpoint sends no 404 and no 401, on which clients give a server up for as long as they run. Of the protocol without sessions a
// method that is not there is one.
func TestTheEndpointIsAlwaysThere(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	alice := m.members("alice")[0].initialize()
	for _, method := range []string{"GET", "POST", "DELETE", "PUT", "HEAD", "OPTIONS", "PATCH"} {
		for _, secret := range []string{"", "wrong", alice.secret} {
			for _, agent := range []string{"", "nobody", "alice"} {
				for _, session := range []string{"", "unknown", alice.session} {
					for _, version := range []string{"", "1999-01-01", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28", "2099-01-01"} {
						if method == "GET" && secret == alice.secret && agent == "alice" && session != "unknown" && version < withoutSessions {
							continue // a stream
						}
						body := map[bool]string{true: ping}[method == "POST"]
						got := m.request(method, "/mcp?agent="+agent, body, "Authorization: Bearer "+secret, "Mcp-Session-Id: "+session, "Mcp-Protocol-Version: "+version, "Accept: text/event-stream")
						if got.status == 404 && method == "POST" && version >= withoutSessions && strings.Contains(got.body, "-32601") {
							continue
						}
						if got.status == 404 || got.status == 401 || got.status >= 500 {
							t.Errorf("%s as %q with %q, %q and %q: %+v", method, agent, secret, session, version, got)
						}
					}
				}
			}
		}
	}
}

// What another machine sends arrives from an address that is not a loopback's.
func TestRequestsOfOtherMachinesAreRefused(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	address := m.address()
	for from, want := range map[string]int{"192.0.2.7:1234": 403, "[2001:db8::1]:1234": 403, "": 403, "127.0.0.1:1234": 200, "[::ffff:127.0.0.1]:1234": 200} {
		req := httptest.NewRequest("GET", "http://"+address+"/health", nil)
		req.RemoteAddr = from
		w := httptest.NewRecorder()
		m.server.handler(address).ServeHTTP(w, req)
		if w.Code != want {
			t.Errorf("from %q: %d, want %d", from, w.Code, want)
		}
	}
	if host, _, _ := net.SplitHostPort(address); host != "127.0.0.1" {
		t.Errorf("it listens on %s", address)
	}
}

func TestOpenRoutes(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	if got := m.request("GET", "/health", ""); got.status != 200 || got.body != `{"status":"ok"}` {
		t.Errorf("health: %+v", got)
	}
	if got := m.request("GET", "/", ""); got.status != 200 || !strings.HasPrefix(got.body, `{"name":"knoot","version":"`) || !strings.Contains(got.body, `"served":["/mcp",`) {
		t.Errorf("/: %+v", got)
	}
	if got := m.request("GET", "/other", ""); got.status != 404 {
		t.Errorf("/other: %+v", got)
	}
}

func TestBodiesAreBounded(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	alice := m.members("alice")[0]
	conn, err := net.Dial("tcp", m.address())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /mcp?agent=alice HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", m.address(), alice.secret, 100<<20)
	block := bytes.Repeat([]byte("x"), 64<<10)
	sent := 0
	for ; sent < 100<<20; sent += len(block) {
		if _, err := conn.Write(block); err != nil {
			break // it was refused, and the connection closed
		}
	}
	if sent >= 100<<20 {
		t.Error("100 MB were taken")
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err == nil && resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("100 MB: %d", resp.StatusCode)
	}
	if got, err := m.try("POST", "/mcp?agent=alice", `{"jsonrpc":"2.0","id":1,"method":"`+strings.Repeat("x", maxBody)+`"}`, alice.headers()...); err == nil && got.status != 413 {
		t.Errorf("a body that is a little too large: %d", got.status)
	}
	// The connection may be gone before the answer is read.
	if got, err := m.try("GET", "/", "", "Cookie: "+strings.Repeat("x", 64<<10)); err == nil && got.status != 431 {
		t.Errorf("64 KB of headers: %d", got.status)
	}
}

// raw begins a request by hand, and says when the server has closed the connection.
func (m *machine) opened(text string) (net.Conn, chan struct{}) {
	m.t.Helper()
	conn, err := net.Dial("tcp", m.address())
	if err != nil {
		m.t.Fatal(err)
	}
	if _, err := io.WriteString(conn, text); err != nil {
		m.t.Fatal(err)
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_, _ = io.Copy(io.Discard, conn)
	}()
	return conn, closed
}

// Whoever sends headers or a body a byte at a time is let go.
func TestSlowRequestsEnd(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	alice := m.members("alice")[0]
	began := time.Now()
	headers, headersClosed := m.opened("POST /mcp?agent=alice HTTP/1.1\r\nHost: ")
	defer headers.Close()
	body, bodyClosed := m.opened("POST /mcp?agent=alice HTTP/1.1\r\nHost: " + m.address() + "\r\nAuthorization: Bearer " + alice.secret +
		"\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
	defer body.Close()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(500 * time.Millisecond):
				_, _ = headers.Write([]byte("x"))
				_, _ = body.Write([]byte(" "))
			}
		}
	}()
	<-headersClosed
	if took := time.Since(began); took < headerTime-time.Second {
		t.Errorf("headers were given %v", took)
	}
	<-bodyClosed
	if took := time.Since(began); took < bodyTime-time.Second {
		t.Errorf("a body was given %v", took)
	}
	m.await("the slow body is logged", func() bool { return m.logged(alice.secret)["the body came too slowly"] == 1 })
}

// Of 1,000 streams that do nothing one agent has one.
func TestIdleStreamsAreBounded(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	alice := m.members("alice")[0]
	request := "GET /mcp?agent=alice HTTP/1.1\r\nHost: " + m.address() + "\r\nAuthorization: Bearer " + alice.secret + "\r\nAccept: text/event-stream\r\n\r\n"
	const streams = 1000
	ended := make(chan struct{}, streams)
	for range streams {
		conn, closed := m.opened(request)
		defer conn.Close()
		go func() {
			<-closed
			ended <- struct{}{}
		}()
	}
	alice.call("list-agents", nil, nil) // and it still answers
	for range streams - 1 {
		<-ended
	}
	alice.call("list-agents", nil, nil)
	if len(ended) > 0 {
		t.Error("the newest stream has ended, too")
	}
}

// A connection that is one too many is closed, and those that are there go on.
func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	full := make(chan struct{}, 4)
	listener := &boundedListener{Listener: inner, free: newSlots(2), full: func() { full <- struct{}{} }}
	defer listener.Close()
	accepted := make(chan net.Conn, 4)
	go func() {
		defer close(accepted)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	first, second := dial(), dial()
	defer first.Close()
	defer second.Close()
	held := []net.Conn{<-accepted, <-accepted}
	third := dial()
	if n, err := third.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("the third reads %d bytes, %v", n, err)
	}
	<-full // it is told of it
	third.Close()
	held[0].Close()
	held[0].Close() // frees one place, once
	fourth := dial()
	defer fourth.Close()
	(<-accepted).Close()
	held[1].Close()
}

// Connections that do nothing, more than are let in: those that are too many are closed and logged, once, and once the others have gone
// the server answers. Hooks come by another way.
func TestIdleConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	alice := m.members("alice")[0]
	const connections = 1000
	var conns []net.Conn
	closed := make(chan struct{}, connections)
	for range connections {
		conn, ended := m.opened("POST /mcp?agent=alice HTTP/1.1\r\nHost: ")
		defer conn.Close()
		conns = append(conns, conn)
		go func() {
			<-ended
			closed <- struct{}{}
		}()
	}
	for range connections - maxConnections {
		<-closed
	}
	if m.hook(socket.Hook{Session: "alices-session", Event: "SessionStart", Source: "startup", Name: "alice"}); m.state("alice") != idle {
		t.Errorf("alice is %q", m.state("alice"))
	}
	m.await("it is logged", func() bool { return m.logged(alice.secret)[tooMany] == 1 })
	for _, conn := range conns {
		conn.Close()
	}
	m.await("the server answers", func() bool {
		_, err := alice.try("list-agents", nil)
		return err == nil
	})
}

func TestWhatIsSaidOfAPortThatIsTaken(t *testing.T) {
	t.Parallel()
	for port, others := range map[int]bool{8766: true, 8767: false} {
		if said := portTaken(port); !strings.Contains(said, fmt.Sprintf("port %d of 127.0.0.1", port)) || !strings.Contains(said, "[mcp] port") || strings.Contains(said, "vox-mcp") != others {
			t.Errorf("of %d it says %q", port, said)
		}
	}
	if port := daemon.DefaultConfig().MCP.Port; port != sharedPort {
		t.Errorf("the port is %d where nothing is set", port)
	}
}

// The port of the settings is another program's.
func TestAPortThatIsTaken(t *testing.T) {
	t.Parallel()
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := other.Addr().(*net.TCPAddr).Port
	m := newMachine(t)
	m.stop()
	m.Write(filepath.Join(m.KnootHome, "config.toml"), fmt.Sprintf("[mcp]\nport = %d\n", port))
	m.start()
	if address := m.server.Address(t.Context()); address != "" {
		t.Fatalf("it listens on %s", address)
	}
	if problem := m.server.Problem(); !strings.Contains(problem, fmt.Sprint(port)) || !strings.Contains(problem, "[mcp] port") {
		t.Errorf("it says %q", problem)
	}
	if out := m.Try(m.repo, "", "knoot", "status").Stdout; !strings.Contains(out, fmt.Sprintf("port %d of 127.0.0.1 is taken", port)) {
		t.Errorf("status says %q", out)
	}
	m.Knoot(m.repo, "remember", "--name", "n", "the rest of the daemon goes on")
	other.Close()
	m.server.Tick()
	if address := m.server.Address(t.Context()); address != fmt.Sprintf("127.0.0.1:%d", port) || m.server.Problem() != "" {
		t.Errorf("once it is free it listens on %q, and says %q", address, m.server.Problem())
	}
}

func TestOffAndOn(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	address := m.address()
	m.Write(filepath.Join(m.KnootHome, "config.toml"), "[mcp]\nenabled = false\n")
	m.stop()
	m.start()
	if now := m.server.Address(t.Context()); now != "" || m.server.Problem() != "" {
		t.Errorf("off, it listens on %q and says %q", now, m.server.Problem())
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Errorf("the port is not free: %v", err)
	} else {
		listener.Close()
	}
	if got := m.Try(m.repo, "", "knoot", "mcp", "config", "json", "--agent", "alice"); got.Code != 1 || !strings.Contains(got.Stderr, "[mcp] enabled") {
		t.Errorf("mcp config: %+v", got)
	}
}
