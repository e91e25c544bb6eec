package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"knoot.dev/knoot/integration/stage"
)

// events returns what why --json tells of a path.
func events(t *testing.T, p *stage.Person, dir, path string) []map[string]string {
	t.Helper()
	var story struct {
		Events []map[string]string `json:"events"`
	}
	output := p.Knoot(dir, "why", "--json", path)
	if err := json.Unmarshal([]byte(output), &story); err != nil {
		t.Fatalf("why --json: %v\n%s", err, output)
	}
	return story.Events
}

func failures(t testing.TB, p *stage.Person) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(p.KnootHome, "failures"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(data)
}

// Whatever was acknowledged is there after a SIGKILL at any moment: facts, which are segments at once, and events, which
// gather in the journal first. The turn's end, which makes a segment of the journal, is under way when the daemon dies. A
// hook has acknowledged unless it counted a failure.
func TestKillingTheDaemonAHundredTimesLosesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("a hundred daemons take a while; -short leaves them out")
	}
	s := newShop(t)
	random := rand.New(rand.NewPCG(1, 2))
	const rounds = 100
	file := func(i int) string { return fmt.Sprintf("src/file%d.js", i) }
	var acknowledged []string
	for i := range rounds {
		daemon := s.priya.StartDaemon()
		session := stage.Session{Person: s.priya, ID: fmt.Sprint("round-", i), Dir: s.hers}
		before := failures(t, s.priya)
		session.Write(file(i), fmt.Sprintf("export const n = %d\n", i))
		if failures(t, s.priya) == before {
			acknowledged = append(acknowledged, file(i))
		}
		s.priya.Knoot(s.hers, "remember", "--yes", "--name", fmt.Sprint("fact-", i), "--path", file(i),
			fmt.Sprintf("file number %d answers question number %d of the catalogue", i, i*i))

		stop := s.priya.Command(s.hers, "knoot", "hook", "claude")
		stop.Stdin = strings.NewReader(session.Payload("Stop", map[string]any{"stop_hook_active": false}))
		if err := stop.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(random.IntN(20_000)) * time.Microsecond) // the moment is what is tried, not awaited
		daemon.Kill()
		if err := stop.Wait(); err != nil {
			t.Fatalf("round %d: the hook noticed that the daemon was killed: %v", i, err)
		}
	}
	if n := len(acknowledged); n < rounds/2 {
		t.Fatalf("of %d writes %d were acknowledged: too few to say anything", rounds, n)
	}

	have := map[string]bool{}
	for _, row := range recall(t, s.priya, s.hers) {
		have[row.Name] = true
	}
	for i := range rounds {
		if !have[fmt.Sprint("fact-", i)] {
			t.Errorf("fact-%d was acknowledged and is lost", i)
		}
	}

	// What a daemon could not write to the log in time it owes; the next one settles that.
	s.priya.StartDaemon()
	stage.Session{Person: s.priya, ID: "last", Dir: s.hers}.Start()
	var written map[string]int
	missing := func() (files []string) {
		written = writes(t, s.priya, s.hers)
		for _, file := range acknowledged {
			if written[file] == 0 {
				files = append(files, file)
			}
		}
		return files
	}
	for began := time.Now(); len(missing()) > 0 && time.Since(began) < 20*time.Second; {
	}
	if lost := missing(); len(lost) > 0 {
		t.Errorf("writes that were acknowledged and are lost: %v", lost)
	}
	for file, n := range written {
		if n > 1 {
			t.Errorf("one write of %s is recorded %d times", file, n)
		}
	}
	s.priya.Git(s.hers, "fsck", "--strict", "--no-dangling")
	s.priya.Knoot(s.hers, "sync")
}

// writes counts the writes of each path in export.
func writes(t *testing.T, p *stage.Person, dir string) map[string]int {
	t.Helper()
	count := map[string]int{}
	for line := range strings.Lines(p.Knoot(dir, "export")) {
		var row struct {
			Kind  string   `json:"kind"`
			Paths []string `json:"paths"`
		}
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatalf("export: %v\n%s", err, line)
		}
		if row.Kind == "FileWritten" {
			for _, path := range row.Paths {
				count[path]++
			}
		}
	}
	return count
}

func TestHooksInstalledTwiceAnswerAlikeAndRecordOnce(t *testing.T) {
	s := newShop(t)
	s.priya.StartDaemon()
	s.remember(t)
	session := stage.Session{Person: s.priya, ID: "twice", Dir: s.hers}
	path := filepath.Join(s.hers, factPath)
	fields := map[string]any{"tool_name": "Write", "tool_use_id": "toolu_twice",
		"tool_input": map[string]any{"file_path": path, "content": "export {}\n"}}
	both := func(event string) [2]string {
		payload := session.Payload(event, fields)
		var told [2]string
		var wait sync.WaitGroup
		for i := range told {
			wait.Go(func() { told[i] = s.priya.Try(s.hers, payload, "knoot", "hook", "claude").Stdout })
		}
		wait.Wait()
		return told
	}
	told := both("PreToolUse")
	if n := strings.Count(told[0]+told[1], factText); n < 1 {
		t.Errorf("neither hook told the fact: %q", told)
	}
	s.priya.Write(path, "export {}\n")
	fields["tool_response"] = map[string]any{"type": "update", "filePath": path}
	both("PostToolUse")
	var kinds []string
	// What a hook reported is in the log soon after its answer.
	for began := time.Now(); !slices.Contains(kinds, "FileWritten") && time.Since(began) < 20*time.Second; {
		kinds = nil
		for _, e := range events(t, s.priya, s.hers, factPath) {
			kinds = append(kinds, e["kind"])
		}
	}
	if want := []string{"ClaimAcquired", "FileWritten"}; !slices.Equal(kinds, want) {
		t.Errorf("one write is recorded as %v, want %v", kinds, want)
	}
}

func TestANewerExecutableTakesOverAndNoSessionNotices(t *testing.T) {
	s := newShop(t)
	_, port, _ := net.SplitHostPort(stage.Address(t))
	s.priya.Write(filepath.Join(s.priya.KnootHome, "config.toml"), "[daemon]\nautostart = false\n[mcp]\nport = "+port+"\n")
	old := s.priya.StartDaemon()
	alice := s.connect(t, "alice")
	alice.listsItself(t)
	s.remember(t)
	s.priya.Write(filepath.Join(s.hers, "src/tax.js"), "export const tax = 0.19\n")
	s.priya.Knoot(s.hers, "remember", "--name", "taxes", "--path", "src/tax.js", "taxes round half to even, at the line")
	session := stage.Session{Person: s.priya, ID: "long", Dir: s.hers}
	session.Start()
	once(t, "before the update", session.Hears(factPath, factText), factText)
	before := failures(t, s.priya)

	s.priya.Bin = stage.Executables(t, "2.0.0")
	s.priya.StartDaemon()
	<-old.Ended()
	never(t, "after the update", session.Read(factPath), factText)
	once(t, "after the update", session.Hears("src/tax.js", "round half to even"), "round half to even")
	if after := failures(t, s.priya); after != before {
		t.Errorf("a hook failed while the daemon was replaced:\n%s", after)
	}
	alice.listsItself(t) // at the same port, with the same secret

	// An older one does not take over from a newer one.
	s.priya.Bin = stage.Executables(t, stage.Version)
	if result := s.priya.Try(s.hers, "", "knoot", "daemon"); result.Code != 1 || result.Stderr == "" {
		t.Errorf("an older daemon beside a newer one: %+v", result)
	}
	never(t, "after an older one tried", session.Read(factPath), factText)
}

// client is an agent that speaks MCP.
type client struct {
	URL     string
	Headers map[string]string
}

// connect makes an agent in her clone.
func (s *shop) connect(t *testing.T, name string) (c client) {
	t.Helper()
	if err := json.Unmarshal([]byte(s.priya.Knoot(s.hers, "mcp", "config", "json", "--agent", name)), &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// listsItself calls a tool, as soon as somebody listens.
func (c client) listsItself(t *testing.T) {
	t.Helper()
	for patience := time.After(20 * time.Second); ; {
		req, err := http.NewRequest(http.MethodPost, c.URL, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list-agents","arguments":{"agentId":"alice"}}}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		for name, value := range c.Headers {
			req.Header.Set(name, value)
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			text, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if !strings.Contains(string(text), "alice") || resp.StatusCode != http.StatusOK {
				t.Fatalf("the agent is answered %d %s", resp.StatusCode, text)
			}
			return
		}
		select {
		case <-patience:
			t.Fatal(err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// A hook of a newer executable is enough: nobody has to restart anything.
func TestAHookOfANewerExecutableHasTheDaemonReplaced(t *testing.T) {
	s := newShop(t)
	s.priya.Write(filepath.Join(s.priya.KnootHome, "config.toml"), "[daemon]\nautostart = true\n")
	old := s.priya.StartDaemon()
	s.remember(t)
	session := stage.Session{Person: s.priya, ID: "long", Dir: s.hers}
	session.Start()
	once(t, "before the update", session.Hears(factPath, factText), factText)

	s.priya.Bin = stage.Executables(t, "2.0.0")
	t.Cleanup(func() { s.priya.Try(s.hers, "", "knoot", "daemon", "--stop") })
	session.Prompt("go on with what you did before, please")
	select {
	case <-old.Ended():
	case <-time.After(30 * time.Second):
		t.Fatal("the older daemon still runs")
	}
}

func TestASecondDaemonOfTheSameVersionSaysSo(t *testing.T) {
	p := stage.NewPerson(t, "priya")
	p.StartDaemon()
	result := p.Try(p.Home, "", "knoot", "daemon")
	if result.Code != 1 || !strings.Contains(result.Stderr, "runs") {
		t.Errorf("a second daemon: %+v", result)
	}
}

func TestAHookStartsADaemonOnlyWhereThatIsAllowed(t *testing.T) {
	s := newShop(t)
	t.Cleanup(func() { s.priya.Try(s.hers, "", "knoot", "daemon", "--stop") })
	session := stage.Session{Person: s.priya, ID: "first", Dir: s.hers}

	for _, config := range []string{"[daemon]\nautostart = false\n", "[daemon\n"} {
		s.priya.Write(filepath.Join(s.priya.KnootHome, "config.toml"), config)
		session.Start()
		// The started program ends at once; one that stays would have made its socket in this time.
		time.Sleep(500 * time.Millisecond)
		if _, err := os.Lstat(s.priya.Socket()); err == nil {
			t.Fatalf("a daemon was started although config.toml is %q", config)
		}
	}
}

func TestAHookStartsADaemonWhichServesTheNextHook(t *testing.T) {
	s := newShop(t)
	s.remember(t)
	if err := os.Remove(filepath.Join(s.priya.KnootHome, "config.toml")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.priya.Try(s.hers, "", "knoot", "daemon", "--stop") })
	session := stage.Session{Person: s.priya, ID: "first", Dir: s.hers}
	session.Start()
	s.priya.AwaitSocket()
	once(t, "the read after the start", session.Hears(factPath, factText), factText)
	s.priya.Knoot(s.hers, "daemon", "--stop")
	if _, err := os.Lstat(s.priya.Socket()); err == nil {
		t.Error("the daemon was stopped and its socket is still there")
	}
}

func TestADaemonEndsWhenItsSocketIsTaken(t *testing.T) {
	p := stage.NewPerson(t, "priya")
	daemon := p.StartDaemon()
	if err := os.Remove(p.Socket()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-daemon.Ended():
	case <-time.After(time.Minute):
		t.Error("a daemon that nobody can reach still runs")
	}
}
