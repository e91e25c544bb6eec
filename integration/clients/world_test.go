package clients

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"knoot.dev/knoot/integration/stage"
)

// world is a person with a repository, whose daemon serves one port for as long as the test runs.
type world struct {
	*testing.T
	person *stage.Person
	dir    string
	daemon *stage.Daemon
	agents int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, person: stage.NewPerson(t, "priya")}
	w.dir = w.person.Clone(stage.Host(t), "shop")
	w.person.Knoot(w.dir, "init", "--agent", "claude")
	_, port, _ := net.SplitHostPort(stage.Address(t))
	w.person.Write(filepath.Join(w.person.KnootHome, "config.toml"), "[daemon]\nautostart = false\n[mcp]\nport = "+port+"\n")
	w.daemon = w.person.StartDaemon()
	return w
}

// endpoint is where an agent with a name of its own reaches knoot's tools.
type endpoint struct {
	*testing.T
	world   *world
	Agent   string
	URL     string
	Headers map[string]string
}

// agent makes an agent for a test, which may be a subtest of the world's. The tests of one world do not overlap.
func (w *world) agent(t *testing.T, name string) *endpoint {
	t.Helper()
	w.agents++
	e := &endpoint{T: t, world: w, Agent: fmt.Sprintf("%s-%d", name, w.agents)}
	if err := json.Unmarshal([]byte(w.person.In(t).Knoot(w.dir, "mcp", "config", "json", "--agent", e.Agent)), e); err != nil {
		t.Fatal(err)
	}
	return e
}

// through is the same agent's endpoint behind another address.
func (e *endpoint) through(address string) *endpoint {
	e.Helper()
	u, err := url.Parse(e.URL)
	if err != nil {
		e.Fatal(err)
	}
	other := *e
	u.Host = address
	other.URL = u.String()
	return &other
}

// withSecret is the same agent's endpoint with another secret.
func (e *endpoint) withSecret(secret string) *endpoint {
	other := *e
	other.Headers = map[string]string{"Authorization": "Bearer " + secret}
	return &other
}

// address is the host and port.
func (e *endpoint) address() string {
	e.Helper()
	u, err := url.Parse(e.URL)
	if err != nil {
		e.Fatal(err)
	}
	return u.Host
}

// restart kills the daemon and starts it again, and returns once the port answers.
func (e *endpoint) restart() {
	e.Helper()
	e.world.daemon.Kill()
	e.world.daemon = e.world.person.StartDaemon()
	for patience := time.After(20 * time.Second); ; {
		resp, err := http.Get("http://" + e.address() + "/health")
		if err == nil {
			resp.Body.Close()
			return
		}
		select {
		case <-patience:
			e.Fatalf("nothing listens: %v", err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// deadline bounds what a test does with a client, on a busy machine, too.
func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// log is what the daemon logged.
func (w *world) log() string {
	w.Helper()
	text, err := os.ReadFile(filepath.Join(w.person.KnootHome, "knootd.log"))
	if err != nil {
		w.Fatal(err)
	}
	return string(text)
}
