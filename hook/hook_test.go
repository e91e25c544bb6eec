package hook

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"knoot.dev/knoot/daemon/socket"
)

// Whatever a payload is, a hook that has something to tell says nothing when it cannot be sure.
func TestReportCodex23784BadPayloads(t *testing.T) {
	good := `{"session_id":"s1","cwd":"/r","hook_event_name":"Stop","last_assistant_message":"%"}`
	for name, c := range map[string]struct{ payload, code string }{
		"empty":             {"", failEmpty},
		"blank":             {" \n", failEmpty},
		"no JSON":           {"hello", failMalformed},
		"two":               {good + good, failMalformed},
		"list":              {"[" + good + "]", failMalformed},
		"null":              {"null", failMalformed},
		"no event":          {`{"session_id":"s1","cwd":"/r"}`, failMalformed},
		"event of no text":  {`{"session_id":"s1","cwd":"/r","hook_event_name":{}}`, failMalformed},
		"no session":        {`{"cwd":"/r","hook_event_name":"Stop"}`, failMalformed},
		"no directory":      {`{"session_id":"s1","hook_event_name":"Stop"}`, failMalformed},
		"relative":          {`{"session_id":"s1","cwd":"r","hook_event_name":"Stop"}`, failMalformed},
		"UTF-16":            {"\xff\xfe{\x00}\x00", failMalformed},
		"truncated":         {good[:40], failTruncated},
		"truncated inside":  {`{"session_id":"s1","cwd":"/r","tool_input":{"content":"abc\`, failTruncated},
		"nested too deep":   {`{"x":` + strings.Repeat("[", 20000), failMalformed},
		"20 MB":             {strings.Replace(good, "%", strings.Repeat("x", 20<<20), 1), failLarge},
		"20 MB and no JSON": {strings.Repeat("x", 20<<20), failMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.daemon(func(*socket.Request) *socket.Response {
				t.Error("the daemon was asked")
				return &socket.Response{}
			})
			if out := w.hook(c.payload); out != "" {
				t.Errorf("said %q", out)
			}
			if codes := w.failures(); codes != c.code {
				t.Errorf("failures %q, want %s", codes, c.code)
			}
			status, out, errs := w.try(c.payload, "claude", "--explain")
			if status != 1 || out != "" || strings.Count(errs, "\n") != 1 {
				t.Errorf("explained: %d, %q, %q", status, out, errs)
			}
		})
	}
}

// What can be read once it is repaired is told to the daemon, which records it; nothing is said.
func TestRepairedPayloads(t *testing.T) {
	for name, c := range map[string]struct{ prefix, content, code string }{
		"byte order mark": {"\xef\xbb\xbf", "plain", failMark},
		"latin 1":         {"", "caf\xe9", failBroken},
	} {
		w := newWorld(t)
		payload := w.payload("PreToolUse", map[string]any{"tool_name": "Write", "tool_input": map[string]any{"file_path": "x.go", "content": "CONTENT"}})
		payload = c.prefix + strings.Replace(payload, "CONTENT", c.content, 1)
		if out := w.hook(payload); out != "" { // no daemon: one line all the same
			t.Errorf("%s: said %q", name, out)
		}
		if codes := w.failures(); codes != c.code {
			t.Errorf("%s without a daemon: failures %q", name, codes)
		}
		requests := make(chan *socket.Hook, 1)
		w.daemon(func(req *socket.Request) *socket.Response {
			requests <- req.Hook
			return &socket.Response{Answer: &socket.Answer{Context: "note", Deny: "no"}}
		})
		if out := w.hook(payload); out != "" {
			t.Errorf("%s: said %q", name, out)
		}
		if asked := <-requests; !asked.Repaired || len(asked.Places) != 1 || asked.Places[0].Writes[0] != "x.go" {
			t.Errorf("%s: %+v", name, asked)
		}
		if codes := w.failures(); codes != c.code {
			t.Errorf("%s: failures %q", name, codes)
		}
	}
}

func TestBadDaemons(t *testing.T) {
	read := func(c net.Conn) { _, _ = c.Read(make([]byte, 64<<10)) }
	say := func(text string) func(net.Conn) {
		return func(c net.Conn) { read(c); _, _ = io.WriteString(c, text) }
	}
	for name, c := range map[string]struct {
		serve func(net.Conn)
		code  string
	}{
		"none":     {nil, failAbsent},
		"hangs":    {func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }, failBusy},
		"trickles": {func(c net.Conn) { read(c); _, _ = io.WriteString(c, "{"); _, _ = io.Copy(io.Discard, c) }, failBusy},
		"closes":   {func(net.Conn) {}, failGone},
		"silent":   {read, failGone},
		"garbage":  {say("\x00\x01\x02\n"), failGarbage},
		"half":     {say(`{"version":"1","answer":{"deny":"no"`), failGarbage},
		"huge":     {say(`{"version":"1","answer":{"context":"` + strings.Repeat("x", 2<<20) + "\"}}\n"), failGarbage},
		"refuses":  {say(`{"version":"1","error":"no","answer":{"context":"note"}}` + "\n"), failRefused},
		"says no":  {say(`{"version":"1"}` + "\n"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if c.serve != nil {
				w.listen(c.serve)
			}
			if c.code == failBusy {
				w.limits.answer = agentLimits.answer
			}
			if out := w.hook(w.tool("PreToolUse", "Write", "x.go")); out != "" {
				t.Errorf("said %q", out)
			}
			if codes := w.failures(); codes != c.code {
				t.Errorf("failures %q, want %q", codes, c.code)
			}
		})
	}
}

// A write that the daemon was too late to weigh goes on with what there is to say, and is counted.
func TestALateAnswerIsSaidAndCounted(t *testing.T) {
	for _, late := range []bool{false, true} {
		w := newWorld(t)
		w.daemon(func(*socket.Request) *socket.Response {
			return &socket.Response{Answer: &socket.Answer{Context: "note", Late: late}}
		})
		if out := w.hook(w.tool("PreToolUse", "Write", "x.go")); !strings.Contains(out, "note") {
			t.Errorf("said %q", out)
		}
		want := ""
		if late {
			want = failBusy
		}
		if codes := w.failures(); codes != want {
			t.Errorf("late is %v: failures %q", late, codes)
		}
	}
}

func TestForeignSockets(t *testing.T) {
	for name, spoil := range map[string]func(*world) error{
		"another's socket":    func(w *world) error { return os.Chown(w.at().Socket(), 12345, -1) },
		"another's directory": func(w *world) error { return os.Chown(w.home, 12345, -1) },
		"open to all":         func(w *world) error { return os.Chmod(w.home, 0o777) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.listen(func(net.Conn) { t.Error("something was sent") })
			if err := spoil(w); errors.Is(err, os.ErrPermission) {
				t.Skip("giving a file away needs root")
			} else if err != nil {
				t.Fatal(err)
			}
			if out := w.hook(w.payload("SessionStart", nil)); out != "" {
				t.Errorf("said %q", out)
			}
			if codes := w.failures(); codes != failForeign {
				t.Errorf("failures %q", codes)
			}
		})
	}
}

// Without a place for the line about it a hook fails all the same, in silence.
func TestNowhereToTell(t *testing.T) {
	for name, env := range map[string][]string{
		"no HOME":         nil,
		"relative HOME":   {"HOME=."},
		"HOME is a file":  {"HOME=/dev/null"},
		"read-only HOME":  {"HOME=/proc/self"},
		"read-only KNOOT": {"KNOOT_HOME=/proc/self/knoot"},
	} {
		w := newWorld(t)
		w.env = append(env, "PATH=/nowhere")
		for _, payload := range []string{"", "nonsense", w.payload("SessionStart", nil), w.tool("PreToolUse", "Write", "x.go")} {
			if out := w.hook(payload); out != "" {
				t.Errorf("%s: said %q", name, out)
			}
		}
	}
	w := newWorld(t)
	if err := os.Symlink("/dev/full", failuresFile(w.at())); err != nil {
		t.Fatal(err)
	}
	if out := w.hook("nonsense"); out != "" {
		t.Errorf("full disk: said %q", out)
	}
	if err := appendFailure(failuresFile(w.at()), w.now, failSlow); err == nil {
		t.Error("the disk is not full")
	}
}

type brokenPipe struct{ n int }

func (b *brokenPipe) Write([]byte) (int, error) { b.n++; return 0, io.ErrClosedPipe }

func TestStdoutIsGone(t *testing.T) {
	w := newWorld(t)
	out := new(brokenPipe)
	w.stdout = out
	w.daemon(func(*socket.Request) *socket.Response {
		return &socket.Response{Answer: &socket.Answer{Context: "note"}}
	})
	w.hook(w.payload("SessionStart", nil))
	if codes := w.failures(); codes != failStdout || out.n != 1 {
		t.Errorf("failures %q, %d writes", codes, out.n)
	}
}

type panics struct{}

func (panics) Read([]byte) (int, error)  { panic("read") }
func (panics) Write([]byte) (int, error) { panic("write") }

func TestPanics(t *testing.T) {
	w := newWorld(t)
	w.daemon(func(*socket.Request) *socket.Response {
		return &socket.Response{Answer: &socket.Answer{Context: "note"}}
	})
	w.stdout = panics{}
	w.hook(w.payload("SessionStart", nil))
	if codes := w.failures(); codes != failPanic {
		t.Errorf("writing: %q", codes)
	}
	w.stdout, w.stdin = nil, panics{}
	w.hook("")
	if codes := w.failures(); codes != failPanic {
		t.Errorf("reading: %q", codes)
	}
	p := &process{limits: w.limits}
	if out, code := p.limited(func() ([]byte, string) { panic("answering") }); out != nil || code != failPanic {
		t.Errorf("answering: %q, %q", out, code)
	}
}

func TestReportClaudeCode87289StdinDoesNotEnd(t *testing.T) {
	w := newWorld(t)
	w.limits.stdin = 20 * time.Millisecond
	for _, text := range []string{"", "{", w.payload("Stop", nil), "nonsense"} {
		r, write := io.Pipe()
		w.stdin = r
		go func() { _, _ = io.WriteString(write, text) }()
		if out := w.hook(""); out != "" {
			t.Errorf("said %q", out)
		}
		if codes := w.failures(); codes != failStdin {
			t.Errorf("%q: failures %q", text, codes)
		}
		_ = r.Close()
	}
	r, write := io.Pipe()
	_ = write.CloseWithError(errors.New("I/O error"))
	w.stdin, w.limits.stdin = r, time.Minute
	w.hook("")
	if codes := w.failures(); codes != failStdin {
		t.Errorf("broken: failures %q", codes)
	}
}

func TestSlowFileSystem(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	p := &process{limits: agentLimits}
	begin := time.Now()
	if out, code := p.limited(func() ([]byte, string) { <-release; return []byte("late"), "" }); out != nil || code != failSlow {
		t.Errorf("%q, %q", out, code)
	}
	if took := time.Since(begin); took < agentLimits.answer {
		t.Errorf("gave up after %v", took)
	}
}

func TestAgentsThatAreNotKnown(t *testing.T) {
	w := newWorld(t)
	for _, args := range [][]string{nil, {"other"}, {"Claude"}, {"--later-flag"}} {
		if out := w.run(w.payload("SessionStart", nil), args...); out != "" {
			t.Errorf("%v: said %q", args, out)
		}
		if codes := w.failures(); codes != failAgent {
			t.Errorf("%v: failures %q", args, codes)
		}
		status, out, errs := w.try(w.payload("Stop", nil), append(args, "--explain")...)
		if status != 1 || out != "" || !strings.Contains(errs, "claude") {
			t.Errorf("%v: explained: %d, %q, %q", args, status, out, errs)
		}
	}
	if codes := w.failures(); codes != "" {
		t.Errorf("--explain left %q", codes)
	}
}

func TestHelp(t *testing.T) {
	w := newWorld(t)
	for _, arg := range []string{"-h", "--help"} {
		if out := w.run("", "claude", arg); out != Usage {
			t.Errorf("%q", out)
		}
	}
	for name := range agents {
		if !strings.Contains(Usage, name) {
			t.Errorf("no word of %s", name)
		}
	}
}

func TestExplainLeavesNothing(t *testing.T) {
	w := newWorld(t)
	w.run(w.tool("PreToolUse", "Write", "x.go"), "claude", "--explain")
	for dir, want := range map[string]int{w.home: 0, w.repo: 1, filepath.Join(w.repo, ".git"): 0} {
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != want {
			t.Errorf("%s: %v, %v", dir, entries, err)
		}
	}
}
