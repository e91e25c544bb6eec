package hook

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"knoot.dev/knoot/daemon/socket"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a person with a home and a repository, in which hooks run.
type world struct {
	t      testing.TB
	home   string // KNOOT_HOME
	repo   string
	env    []string
	knootd string // what is beside the executable; there need be nothing
	now    time.Time
	limits limits    // long, so that a busy machine fails no test
	stdin  io.Reader // instead of the payload
	stdout io.Writer // instead of what hook returns
}

func newWorld(t testing.TB) *world {
	t.Helper()
	home, err := os.MkdirTemp("", "k") // t.TempDir has the test's name, which may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	w := &world{t: t, home: home, repo: realPath(t.TempDir()), now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC), limits: limits{time.Minute, time.Minute, time.Minute}}
	w.env = []string{"KNOOT_HOME=" + home, "CLAUDE_PID=4711"}
	w.knootd = filepath.Join(t.TempDir(), "knootd")
	w.mkdir(w.repo, ".git")
	return w
}

func (w *world) mkdir(parts ...string) string {
	w.t.Helper()
	dir := filepath.Join(parts...)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		w.t.Fatal(err)
	}
	return dir
}

func (w *world) write(text string, parts ...string) string {
	w.t.Helper()
	file := filepath.Join(parts...)
	w.mkdir(filepath.Dir(file))
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
	return file
}

func (w *world) link(target string, parts ...string) string {
	w.t.Helper()
	file := filepath.Join(parts...)
	if err := os.Symlink(target, file); err != nil {
		w.t.Fatal(err)
	}
	return file
}

func (w *world) at() socket.Location { return socket.Location{Home: w.home, Dir: w.home} }

// payload is an event in the repository.
func (w *world) payload(event string, extra map[string]any) string {
	w.t.Helper()
	m := map[string]any{"session_id": "s1", "transcript_path": "/t.jsonl", "cwd": w.repo, "hook_event_name": event}
	for key, v := range extra {
		m[key] = v
	}
	data, err := json.Marshal(m)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(data) + "\n"
}

func (w *world) tool(event, name, path string) string {
	key := "file_path"
	if name == "NotebookEdit" {
		key = "notebook_path"
	}
	return w.payload(event, map[string]any{"tool_name": name, "tool_input": map[string]any{key: path}, "tool_use_id": "u1"})
}

// run is `knoot hook ARGS`. A hook that does not end with 0, or writes to stderr, fails the test.
func (w *world) run(payload string, args ...string) string {
	w.t.Helper()
	status, stdout, stderr := w.try(payload, args...)
	if status != 0 || stderr != "" {
		w.t.Errorf("hook ended with %d, stderr %q", status, stderr)
	}
	return stdout
}

func (w *world) try(payload string, args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	p := &process{
		stdin: strings.NewReader(payload), stdout: &out, stderr: &errs, environ: w.env,
		now:        func() time.Time { return w.now },
		executable: func() (string, error) { return filepath.Join(filepath.Dir(w.knootd), "knoot"), nil },
		limits:     w.limits,
	}
	if w.stdin != nil {
		p.stdin = w.stdin
	}
	if w.stdout != nil {
		p.stdout = w.stdout
	}
	status = p.run(args)
	return status, out.String(), errs.String()
}

// hook is `knoot hook claude`.
func (w *world) hook(payload string) string {
	w.t.Helper()
	return w.run(payload, "claude")
}

// failures are the codes recorded so far; reading empties the file.
func (w *world) failures() string {
	w.t.Helper()
	list, err := Failures(w.at(), time.Time{})
	if err != nil {
		w.t.Fatal(err)
	}
	var codes []string
	for _, f := range list {
		if !f.At.Equal(w.now) {
			w.t.Errorf("failure at %v, not %v", f.At, w.now)
		}
		codes = append(codes, f.Code)
	}
	if err := os.Remove(failuresFile(w.at())); err != nil && !errors.Is(err, os.ErrNotExist) {
		w.t.Fatal(err)
	}
	return strings.Join(codes, " ")
}

// daemon answers each request with answer, until the test ends.
func (w *world) daemon(answer func(*socket.Request) *socket.Response) (stop func()) {
	w.t.Helper()
	return w.listen(func(c net.Conn) {
		req, err := socket.ReadRequest(bufio.NewReader(c))
		if err != nil {
			w.t.Error(err)
			return
		}
		if req.Op != "hook" || req.Hook == nil || req.Version != socket.Version {
			w.t.Errorf("request %+v", req)
		}
		if err := socket.WriteResponse(c, answer(req)); err != nil {
			w.t.Log(err) // it did not wait
		}
	})
}

// listen serves connections one after the other, until it is stopped or the test ends.
func (w *world) listen(serve func(net.Conn)) (stop func()) {
	w.t.Helper()
	ln, err := net.Listen("unix", w.at().Socket())
	if err != nil {
		w.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			serve(conn)
			_ = conn.Close()
		}
	}()
	stop = sync.OnceFunc(func() { _ = ln.Close(); <-done })
	w.t.Cleanup(stop)
	return stop
}

// asked is askedBy Claude Code.
func (w *world) asked(payload string) *socket.Hook {
	w.t.Helper()
	return w.askedBy("claude", payload)
}

// askedBy runs a hook of an agent and returns what a daemon was asked that has nothing to say, nil if it was not asked.
func (w *world) askedBy(agent, payload string) *socket.Hook {
	w.t.Helper()
	requests := make(chan *socket.Hook, 1)
	stop := w.daemon(func(req *socket.Request) *socket.Response {
		requests <- req.Hook
		return &socket.Response{}
	})
	if out := w.run(payload, agent); out != "" {
		w.t.Errorf("it said %q", out)
	}
	stop()
	select {
	case h := <-requests:
		return h
	default:
		return nil
	}
}

// git runs git in dir, with no settings but its own.
func (w *world) git(dir string, args ...string) {
	w.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+w.home, "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=Mira", "GIT_AUTHOR_EMAIL=mira@example.com", "GIT_COMMITTER_NAME=Mira", "GIT_COMMITTER_EMAIL=mira@example.com")
	if out, err := cmd.CombinedOutput(); err != nil {
		w.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}
