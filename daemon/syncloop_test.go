package daemon

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/gitlog"
)

// team makes a bare host and two clones of one person's, each set up.
func (m *machine) team() (host string, one, two *repository) {
	m.t.Helper()
	dir := m.vars["HOME"]
	host = filepath.Join(dir, "host.git")
	m.git(dir, "init", "-q", "--bare", "-b", "main", host)
	m.git(dir, "clone", "-q", host, "one")
	one = &repository{m: m, root: filepath.Join(dir, "one")}
	m.git(one.root, "checkout", "-qb", "main")
	one.write("src/billing.js", "cents\n")
	m.git(one.root, "add", ".")
	m.git(one.root, "commit", "-qm", "start")
	m.setUp(one.root)
	m.git(one.root, "add", ".knoot.toml")
	m.git(one.root, "commit", "-qm", "knoot")
	m.git(one.root, "push", "-q", "-u", "origin", "main")
	m.git(dir, "clone", "-q", host, "two")
	two = &repository{m: m, root: filepath.Join(dir, "two")}
	m.setUp(two.root)
	return host, one, two
}

func (m *machine) setUp(root string) {
	m.t.Helper()
	repo, err := gitlog.FindRepository(context.Background(), root)
	if err != nil {
		m.t.Fatal(err)
	}
	if _, err := gitlog.Init(context.Background(), repo, m.gitlogHome(), gitlog.InitOptions{Name: "ash", Address: "ash@example.com", Label: "here"}); err != nil {
		m.t.Fatal(err)
	}
}

func TestFactReachesTheOtherCloneUnasked(t *testing.T) {
	m := newMachine(t)
	host, one, two := m.team()
	m.start(Options{})
	reader := &agent{r: two, session: "reader"}
	reader.start("startup")
	one.remember("money", "all money is integer cents, never floats", "src/billing.js")
	waitFor(t, "the fact is on the host", func() bool {
		return strings.Contains(m.git(host, "for-each-ref", "--format=%(refname)"), "refs/knoot/memory/")
	})
	m.mustAsk(&socket.Request{Op: "sync", Dir: two.root})
	if text := reader.read("src/billing.js"); !strings.Contains(text, "integer cents") {
		t.Errorf("the other clone's agent is told %q", text)
	}
}

func TestPlainFetchBringsAFact(t *testing.T) {
	m := newMachine(t)
	_, one, two := m.team()
	m.start(Options{})
	reader := &agent{r: two, session: "reader"}
	reader.start("startup")
	one.remember("money", "all money is integer cents, never floats", "src/billing.js")
	m.mustAsk(&socket.Request{Op: "sync", Dir: one.root})
	m.git(two.root, "fetch", "-q")
	waitFor(t, "the fact is told", func() bool { return strings.Contains(reader.read("src/billing.js"), "integer cents") })
}

func TestSyncThatFailsIsInTheStateAndLosesNothing(t *testing.T) {
	m := newMachine(t)
	host, one, _ := m.team()
	m.start(Options{})
	if err := os.Rename(host, host+".away"); err != nil {
		t.Fatal(err)
	}
	one.remember("money", "all money is integer cents, never floats", "src/billing.js")
	if resp, err := m.ask(&socket.Request{Op: "sync", Dir: one.root}); err != nil || resp.Error == "" {
		t.Errorf("sync with a host that is away: %+v, %v", resp, err)
	}
	status := func() SyncStatus {
		state, err := Status(t.Context(), m.getenv)
		if err != nil || len(state.Clones) != 1 {
			t.Fatalf("state %+v, %v", state, err)
		}
		return state.Clones[0].Sync
	}
	if s := status(); s.Problem == "" || !s.Waiting {
		t.Errorf("status %+v", s)
	}
	if err := os.Rename(host+".away", host); err != nil {
		t.Fatal(err)
	}
	var report gitlog.SyncReport
	resp := m.mustAsk(&socket.Request{Op: "sync", Dir: one.root})
	if err := json.Unmarshal(resp.Body, &report); err != nil || report.PushedSegments == 0 {
		t.Errorf("the host is back: %s, %v", resp.Body, err)
	}
	if s := status(); s.Problem != "" || s.Waiting || s.Confirmed == "" {
		t.Errorf("status %+v", s)
	}
}

func TestEndOfTheDaemonPushesWhatWaits(t *testing.T) {
	m := newMachine(t)
	host, one, _ := m.team()
	p := m.startProcess("1.0.0")
	p.says(t)
	a := &agent{r: one, session: "one"}
	a.start("startup")
	one.write("src/new.js", "x\n")
	a.wrote("src/new.js")
	if _, err := Stop(context.Background(), m.getenv); err != nil {
		t.Fatal(err)
	}
	if refs := m.git(host, "for-each-ref", "--format=%(refname)"); !strings.Contains(refs, "refs/knoot/audit/") {
		t.Errorf("the host has\n%s", refs)
	}
}

func TestNobodyWaitsForAHostThatHangs(t *testing.T) {
	m := newMachine(t)
	_, one, _ := m.team()
	m.start(Options{})
	// What git runs in the place of the host's end of a fetch says that it runs, and waits for a word.
	dir := m.vars["HOME"]
	started, word := filepath.Join(dir, "started"), filepath.Join(dir, "word")
	for _, pipe := range []string{started, word} {
		if err := syscall.Mkfifo(pipe, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	writeFile(t, filepath.Join(dir, "hang"), "#!/bin/sh\necho x > "+started+"\nread x < "+word+"\nexec git-upload-pack \"$@\"\n")
	if err := os.Chmod(filepath.Join(dir, "hang"), 0o700); err != nil {
		t.Fatal(err)
	}
	m.git(one.root, "config", "remote.origin.uploadpack", filepath.Join(dir, "hang"))
	synced := make(chan error, 1)
	go func() {
		_, err := m.ask(&socket.Request{Op: "sync", Dir: one.root})
		synced <- err
	}()
	if _, err := os.ReadFile(started); err != nil { // waits until the host is asked
		t.Fatal(err)
	}
	one.remember("money", "all money is integer cents, never floats", "src/billing.js")
	a := &agent{r: one, session: "one"}
	if text := a.read("src/billing.js"); !strings.Contains(text, "integer cents") {
		t.Errorf("told %q", text)
	}
	select {
	case err := <-synced:
		t.Errorf("the sync did not wait: %v", err)
	default:
	}
	m.git(one.root, "config", "--unset", "remote.origin.uploadpack")
	writeFile(t, word, "go\n")
	if err := <-synced; err != nil {
		t.Error(err)
	}
}
