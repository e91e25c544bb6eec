package main

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
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"knoot.dev/knoot/daemon/socket"
)

// built holds the executables that tests run.
var built struct{ knoot, empty string }

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "knoot")
	if err != nil {
		panic(err)
	}
	built.knoot, built.empty = filepath.Join(dir, "knoot"), filepath.Join(dir, "empty")
	source := filepath.Join(dir, "empty.go")
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o600); err != nil {
		panic(err)
	}
	for _, args := range [][]string{
		{"build", "-ldflags", "-X knoot.dev/knoot/daemon/socket.Version=1.2.3", "-o", built.knoot, "."},
		{"build", "-o", built.empty, source},
	} {
		if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
			panic(string(out))
		}
	}
	status := m.Run()
	if err := goleak.Find(); err != nil && status == 0 {
		println(err.Error())
		status = 1
	}
	_ = os.RemoveAll(dir)
	os.Exit(status)
}

// scene is a home and a repository.
type scene struct {
	home, repo string
	env        []string
}

func newScene(t testing.TB) *scene {
	t.Helper()
	home, err := os.MkdirTemp("", "k") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	s := &scene{home: home, repo: t.TempDir()}
	s.env = []string{"KNOOT_HOME=" + home, "PATH=" + os.Getenv("PATH")}
	if err := os.MkdirAll(filepath.Join(s.repo, ".git"), 0o755); err != nil {
		t.Fatal(err)
	}
	return s
}

// daemon answers every hook with answer, until the test ends. It calls asked before, while the hook waits.
func (s *scene) daemon(t testing.TB, answer socket.Answer, asked func()) {
	t.Helper()
	ln, err := net.Listen("unix", filepath.Join(s.home, "knootd.sock"))
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			if _, err := socket.ReadRequest(bufio.NewReader(conn)); err != nil {
				t.Error(err)
			}
			asked()
			if err := socket.WriteResponse(conn, &socket.Response{Answer: &answer}); err != nil {
				t.Log(err) // the hook did not wait
			}
			_ = conn.Close()
		}
	})
	t.Cleanup(func() { _ = ln.Close(); all.Wait() })
}

func (s *scene) payload(t testing.TB, event string, extra map[string]any) []byte {
	t.Helper()
	m := map[string]any{"session_id": "s", "cwd": s.repo, "hook_event_name": event}
	for key, v := range extra {
		m[key] = v
	}
	data, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func (s *scene) command(args ...string) *exec.Cmd {
	cmd := exec.Command(built.knoot, args...)
	cmd.Env = s.env
	return cmd
}

func (s *scene) failures(t testing.TB) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(s.home, "failures"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(data)
}

// hook runs a command and returns what it printed and the code of its failure. A busy machine can make the daemon too slow
// for a hook: then it runs again.
func (s *scene) hook(t testing.TB, command func() *exec.Cmd) (out, code string) {
	t.Helper()
	for range 20 {
		data, err := command().CombinedOutput()
		if err != nil {
			t.Errorf("hook: %v, %q", err, data)
		}
		_, code, _ = strings.Cut(strings.TrimSpace(s.failures(t)), " ")
		if err := os.RemoveAll(filepath.Join(s.home, "failures")); err != nil {
			t.Fatal(err)
		}
		if code != "daemon-slow" && code != "slow" {
			return string(data), code
		}
	}
	t.Fatalf("a hook was too slow 20 times")
	return "", ""
}

func TestHookOfARealProcess(t *testing.T) {
	s := newScene(t)
	s.daemon(t, socket.Answer{Context: "note"}, func() {})
	out, code := s.hook(t, func() *exec.Cmd {
		cmd := s.command("hook", "claude")
		cmd.Stdin = bytes.NewReader(s.payload(t, "SessionStart", nil))
		return cmd
	})
	const want = `{"hookSpecificOutput":{"hookEventName":"SessionStart","additionalContext":"note"}}`
	if out != want || code != "" {
		t.Errorf("%s, failure %q", out, code)
	}
}

// However stdin and stdout are broken, the hook ends with 0.
func TestHookWithBrokenDescriptors(t *testing.T) {
	s := newScene(t)
	s.daemon(t, socket.Answer{Context: "note"}, func() {})
	file := filepath.Join(t.TempDir(), "payload")
	if err := os.WriteFile(file, s.payload(t, "SessionStart", nil), 0o600); err != nil {
		t.Fatal(err)
	}
	r, unread, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	defer unread.Close()
	for redirection, want := range map[string]string{
		`<"$1" >/dev/full`:             "stdout",
		`<"$1" >&3`:                    "stdout",        // a pipe that nobody reads
		`<&-`:                          "payload-empty", // the runtime opens /dev/null
		`<"$1" >&-`:                    "",
		`</`:                           "stdin",
		`</dev/null`:                   "payload-empty",
		`<"$1" 2>&- >/dev/null`:        "",
		`<"$1" >/dev/null 2>/dev/full`: "",
	} {
		if strings.Contains(redirection, "full") && runtime.GOOS != "linux" {
			continue
		}
		out, code := s.hook(t, func() *exec.Cmd {
			cmd := exec.Command("sh", "-c", `exec "$0" hook claude `+redirection, built.knoot, file)
			cmd.Env, cmd.ExtraFiles = s.env, []*os.File{unread}
			return cmd
		})
		if out != "" || code != want {
			t.Errorf("%s: %q, failure %q, want %q", redirection, out, code, want)
		}
	}
}

func TestHookOutlivesNoLimit(t *testing.T) {
	s := newScene(t)
	cmd := s.command("hook", "claude")
	stdin, err := cmd.StdinPipe() // never closed
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v, %q", err, out)
	}
	_ = stdin.Close()
	if took := time.Since(begin); took < 2*time.Second || took > 4*time.Second {
		t.Errorf("ended after %v", took)
	}
	if f := s.failures(t); !strings.HasSuffix(f, " stdin\n") {
		t.Error(f)
	}
}

func TestVersion(t *testing.T) {
	for _, arg := range []string{"version", "--version"} {
		out, err := newScene(t).command(arg).CombinedOutput()
		if err != nil || string(out) != "knoot 1.2.3\n" {
			t.Errorf("%v, %q", err, out)
		}
	}
}

func TestBecomesKnootd(t *testing.T) {
	dir := t.TempDir()
	data, err := os.ReadFile(built.knoot)
	if err != nil {
		t.Fatal(err)
	}
	knoot := filepath.Join(dir, "bin", "knoot")
	link := filepath.Join(dir, "knoot")
	if err := errors.Join(os.Mkdir(filepath.Dir(knoot), 0o755), os.WriteFile(knoot, data, 0o755), os.Symlink("bin/knoot", link)); err != nil {
		t.Fatal(err)
	}
	run := func(path string, args ...string) (string, error) {
		cmd := exec.Command(path, args...)
		cmd.Env = []string{"HOME=" + dir, "PATH=/nowhere", "MARK=kept"}
		cmd.Stdin = strings.NewReader("typed")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for _, args := range [][]string{nil, {"status"}} {
		out, err := run(knoot, args...)
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 || out != "knoot: knootd is missing: it belongs beside knoot; install both from one archive\n" {
			t.Errorf("%v: %v, %q", args, err, out)
		}
	}
	knootd := filepath.Join(dir, "bin", "knootd")
	const script = "#!/bin/sh\necho \"$MARK $# $* $(/bin/cat) $$\"\nexit 7\n"
	if err := os.WriteFile(knootd, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{knoot, link} {
		for _, args := range [][]string{{}, {"recall", "two words", ""}, {"version", "-h"}, {"-h"}, {"hooks"}} {
			cmd := exec.Command(path, args...)
			cmd.Env, cmd.Stdin = []string{"PATH=/nowhere", "MARK=kept"}, strings.NewReader("typed")
			out, err := cmd.Output()
			var exit *exec.ExitError
			want := "kept " + strconv.Itoa(len(args)) + " " + strings.Join(args, " ") + " typed " + strconv.Itoa(cmd.Process.Pid) + "\n"
			if !errors.As(err, &exit) || exit.ExitCode() != 7 || string(out) != want {
				t.Errorf("%s %q: %v, %q, want %q", path, args, err, out, want)
			}
		}
	}
	if err := os.WriteFile(knootd, []byte("\x7fELF"), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := run(knoot, "status"); err == nil || !strings.HasPrefix(out, "knoot: "+knootd+" cannot be run: ") || !strings.HasSuffix(out, "; install it again\n") {
		t.Errorf("%v, %q", err, out)
	}
	if out, err := run(knoot, "hook", "claude"); err != nil || out != "" { // stdin is no payload, knootd is broken: silence
		t.Errorf("%v, %q", err, out)
	}
}

// A PostToolUse carries the whole file, once before and once after. Budget: 60 MB of memory for 4 MB.
func TestHookOfALargeFileIsSmall(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("memory is read from /proc")
	}
	s := newScene(t)
	var cmd *exec.Cmd
	started, peaks := make(chan struct{}), make(chan int64, 1)
	s.daemon(t, socket.Answer{}, func() {
		<-started
		peaks <- peakOf(t, cmd.Process.Pid)
	})
	file := strings.Repeat("a line of a file with \"quotes\" and \t tabs, é and 😀\n", (4<<20)/54)
	payload := s.payload(t, "PostToolUse", map[string]any{"tool_name": "Write", "tool_input": map[string]any{"content": "", "file_path": "x.go"},
		"tool_response": map[string]any{"originalFile": file}})
	memory := func(payload []byte) int64 {
		cmd = s.command("hook", "claude")
		var out bytes.Buffer
		cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(payload), &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		started <- struct{}{}
		peak := <-peaks
		if err := cmd.Wait(); err != nil || out.Len() > 0 {
			t.Fatalf("%v, %q", err, out.String())
		}
		return peak
	}
	large, small := memory(payload), memory(s.payload(t, "Stop", nil))
	t.Logf("%d bytes of payload: %d KB, without: %d KB", len(payload), large>>10, small>>10)
	if large > 60<<20 {
		t.Errorf("%d MB", large>>20)
	}
	if large > small+8<<20 {
		t.Errorf("the payload was kept: %d KB more than without", (large-small)>>10)
	}
}

// peakOf is the most memory that a running process ever had, in bytes. What the system says of one that has ended counts its
// parent before the executable was loaded.
func peakOf(t testing.TB, pid int) int64 {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		t.Error(err)
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		t.Error(err)
	}
	return kb << 10
}

// initOf sums what packages take to initialise themselves, as the runtime tells, without the runtime itself.
func initOf(t testing.TB, path string, args ...string) (clock time.Duration, allocated int) {
	t.Helper()
	cmd := exec.Command(path, args...)
	cmd.Env = []string{"GODEBUG=inittrace=1"}
	var trace strings.Builder
	cmd.Stderr = &trace
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	packages := 0
	for line := range strings.Lines(trace.String()) { // init PACKAGE @TIME ms, CLOCK ms clock, BYTES bytes, N allocs
		f := strings.Fields(line)
		if len(f) != 11 || f[0] != "init" || f[1] == "runtime" {
			continue
		}
		ms, err := strconv.ParseFloat(f[4], 64)
		if err != nil {
			t.Fatal(line)
		}
		n, err := strconv.Atoi(f[7])
		if err != nil {
			t.Fatal(line)
		}
		packages++
		clock += time.Duration(ms * float64(time.Millisecond))
		allocated += n
	}
	if packages == 0 {
		t.Fatalf("the runtime traces in another way: %s", trace.String())
	}
	return clock, allocated
}

// What is linked is initialised at each start. The time is the shortest of several, beside that of starting an empty Go
// program, so that a busy machine does not fail it; what is allocated is the same on every run, and shows what was added.
func TestInitTime(t *testing.T) {
	clock, start := time.Hour, time.Hour
	allocated := 0
	for range 20 {
		c, n := initOf(t, built.knoot, "version")
		clock, allocated = min(clock, c), n
		begin := time.Now()
		if err := exec.Command(built.empty).Run(); err != nil {
			t.Fatal(err)
		}
		start = min(start, time.Since(begin))
	}
	t.Logf("init %v, %d bytes; an empty program runs %v", clock, allocated, start)
	if allocated > 40<<10 { // two thirds of it the parser's: two expressions, and unicode's tables for regexp
		t.Errorf("packages allocate %d bytes at start", allocated)
	}
	if clock > start/2 {
		t.Errorf("packages take %v to start, an empty program as a whole %v", clock, start)
	}
}

// BenchmarkHook runs the whole hook, each time beside git. Budget: 2.5 times `git --version` at the median of 200.
func BenchmarkHook(b *testing.B) {
	s := newScene(b)
	s.daemon(b, socket.Answer{Context: "note"}, func() {})
	payload := s.payload(b, "PreToolUse", map[string]any{"tool_name": "Edit", "tool_use_id": "u",
		"tool_input": map[string]any{"file_path": filepath.Join(s.repo, "src", "x.go"), "old_string": "a", "new_string": "b"}})
	git, err := exec.LookPath("git")
	if err != nil {
		b.Fatal(err)
	}
	timed := func(cmd *exec.Cmd) time.Duration {
		begin := time.Now()
		if err := cmd.Run(); err != nil {
			b.Fatal(err)
		}
		return time.Since(begin)
	}
	median := func(list []time.Duration) time.Duration {
		slices.Sort(list)
		return list[len(list)/2]
	}
	const runs = 200
	for b.Loop() {
		var hooks, gits, empties []time.Duration
		for range runs {
			cmd := s.command("hook", "claude")
			cmd.Stdin = bytes.NewReader(payload)
			cmd.Stdout = io.Discard
			hooks = append(hooks, timed(cmd))
			cmd = exec.Command(git, "--version")
			cmd.Stdout = io.Discard
			gits = append(gits, timed(cmd))
			empties = append(empties, timed(exec.Command(built.empty)))
		}
		ratio := float64(median(hooks)) / float64(median(gits))
		b.ReportMetric(ratio, "x-git")
		b.ReportMetric(float64(median(empties))/float64(median(gits)), "empty-x-git")
		b.ReportMetric(float64(median(hooks))/1e6, "hook-ms")
		b.ReportMetric(0, "ns/op")
		if ratio > 2.5 {
			b.Errorf("the hook takes %.2f times git --version, more than 2.5", ratio)
		}
	}
	if f := s.failures(b); f != "" {
		b.Error(f)
	}
}
