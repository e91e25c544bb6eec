package daemon

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"knoot.dev/knoot/daemon/socket"
)

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestGarbageIsAnsweredWithASentence(t *testing.T) {
	m := newMachine(t)
	m.start(Options{})
	for name, text := range map[string]string{
		"no JSON":       "GET / HTTP/1.1\r\n",
		"half a line":   `{"op":"hello"`,
		"an array":      "[1]\n",
		"binary":        "\x00\xff\x80\n",
		"an empty line": "\n",
		"too long":      `{"op":"` + strings.Repeat("x", socket.MaxLine) + "\"}\n",
	} {
		t.Run(name, func(t *testing.T) {
			conn := dialTest(t, m)
			go func() {
				_, _ = conn.Write([]byte(text))
				_ = conn.CloseWrite()
			}()
			line, err := bufio.NewReader(conn).ReadString('\n')
			if err != nil {
				t.Fatalf("no answer: %v", err)
			}
			var resp socket.Response
			if err := json.Unmarshal([]byte(line), &resp); err != nil || resp.Code != codeMisuse || resp.Error == "" {
				t.Errorf("%s: %v", line, err)
			}
		})
	}
	for name, req := range map[string]*socket.Request{
		"no operation":        {},
		"a later operation":   {Op: "claim"},
		"a hook without hook": {Op: "hook"},
		"a command nowhere":   {Op: "remember", Dir: "relative"},
	} {
		t.Run(name, func(t *testing.T) {
			if resp, err := m.ask(req); err != nil || resp.Error == "" {
				t.Errorf("%+v, %v", resp, err)
			}
		})
	}
	m.mustAsk(&socket.Request{Op: "hello"})
}

func TestSilentClientsHoldNobodyUp(t *testing.T) {
	m := newMachine(t)
	m.start(Options{})
	for range 32 {
		conn := dialTest(t, m)
		_, _ = conn.Write([]byte(`{"op":`))
	}
	began := time.Now()
	m.mustAsk(&socket.Request{Op: "hello"})
	if took := time.Since(began); took > time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestSlowClientIsCutOff(t *testing.T) {
	m := newMachine(t)
	if err := m.loc.Make(); err != nil {
		t.Fatal(err)
	}
	listener, err := listen(m.loc.Socket())
	if err != nil {
		t.Fatal(err)
	}
	s, err := newServer(listener, m.loc.Socket(), nil)
	if err != nil {
		t.Fatal(err)
	}
	s.patience = 20 * time.Millisecond
	go s.serve(t.Context())
	defer func() { s.close(); <-s.done; s.conns.Wait() }()
	conn := dialTest(t, m)
	if _, err := conn.Write([]byte(`{"op"`)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the connection: %v, want EOF", err)
	}
}

func TestManyClientsAtOnce(t *testing.T) {
	m := newMachine(t)
	m.start(Options{})
	var clients sync.WaitGroup
	for range 2 * maxConnections {
		clients.Go(func() {
			if _, err := m.ask(&socket.Request{Op: "hello"}); err != nil {
				t.Error(err)
			}
		})
	}
	clients.Wait()
}
