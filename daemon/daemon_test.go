package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"knoot.dev/knoot/daemon/socket"
)

// The test binary is the daemon, too: with this variable set it runs one of that version instead of the tests.
const asDaemon = "KNOOT_TEST_DAEMON"

func TestMain(m *testing.M) {
	if version, ok := os.LookupEnv(asDaemon); ok {
		socket.Version = version
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		err := Run(ctx, Options{Auto: os.Getenv("KNOOT_TEST_AUTO") != "", Listening: func(socket.Location) { fmt.Println("listening") }})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("ended")
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// patientHook is how long hooks wait in tests that are about what is answered, and not when: a busy machine is to say the same.
const patientHook = 20 * time.Second

// clock is a time that tests move.
type clock struct{ ms atomic.Int64 }

func newClock() *clock {
	c := new(clock)
	c.ms.Store(time.Now().UnixMilli())
	return c
}

func (c *clock) now() time.Time       { return time.UnixMilli(c.ms.Load()) }
func (c *clock) pass(d time.Duration) { c.ms.Add(d.Milliseconds()) }

// machine is a throw-away home with its environment.
type machine struct {
	t     testing.TB
	loc   socket.Location
	vars  map[string]string
	stops map[*daemon]func() // of those that run in this process
}

func newMachine(t testing.TB) *machine {
	// Unix sockets have short paths, so the test's name cannot be in it.
	dir, err := os.MkdirTemp("", "knoot")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		t.Fatal(err)
	}
	vars := map[string]string{"HOME": dir, "KNOOT_HOME": filepath.Join(dir, "k"), "GIT_CONFIG_GLOBAL": os.DevNull, "GIT_CONFIG_NOSYSTEM": "1",
		"PATH": os.Getenv("PATH"), "GIT_AUTHOR_NAME": "ash", "GIT_AUTHOR_EMAIL": "ash@example.com",
		"GIT_COMMITTER_NAME": "ash", "GIT_COMMITTER_EMAIL": "ash@example.com"}
	for name, value := range vars {
		t.Setenv(name, value) // gitlog's git processes inherit it
	}
	t.Setenv("CI", "")
	m := &machine{t: t, vars: vars}
	if m.loc, err = socket.Locate(m.getenv); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *machine) getenv(name string) string { return m.vars[name] }

func (m *machine) ask(req *socket.Request) (*socket.Response, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return m.loc.Ask(ctx, req)
}

func (m *machine) mustAsk(req *socket.Request) *socket.Response {
	m.t.Helper()
	resp, err := m.ask(req)
	if err != nil {
		m.t.Fatalf("%s: %v", req.Op, err)
	}
	if resp.Error != "" {
		m.t.Fatalf("%s: %s", req.Op, resp.Error)
	}
	return resp
}

// start runs a daemon in this process. It has ended when the test has.
func (m *machine) start(o Options) *daemon {
	m.t.Helper()
	o.Getenv = m.getenv
	if o.Now == nil {
		o.Now = time.Now
	}
	o.HookTime = cmp.Or(o.HookTime, patientHook)
	listening := make(chan struct{})
	o.Listening = func(socket.Location) { close(listening) }
	config, err := LoadConfig(m.loc.Home)
	if err != nil {
		m.t.Fatal(err)
	}
	if err := m.loc.Make(); err != nil {
		m.t.Fatal(err)
	}
	held, err := takeSeat(context.Background(), m.loc)
	if err != nil {
		m.t.Fatal(err)
	}
	d, err := newDaemon(o, m.loc, config, held)
	if err != nil {
		m.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- d.run(ctx) }()
	if m.stops == nil {
		m.stops = map[*daemon]func(){}
	}
	m.stops[d] = sync.OnceFunc(func() {
		cancel()
		if err := <-ran; err != nil {
			m.t.Errorf("run: %v", err)
		}
	})
	m.t.Cleanup(m.stops[d])
	<-listening
	return d
}

// stop ends a daemon that start began, as SIGTERM does.
func (m *machine) stop(d *daemon) { m.stops[d]() }

// process is a daemon in a process of its own.
type process struct {
	*exec.Cmd
	lines chan string // what it prints; closed when it has ended
}

func (m *machine) startProcess(version string, more ...string) *process {
	m.t.Helper()
	p := &process{Cmd: exec.Command(os.Args[0]), lines: make(chan string, 16)}
	p.Env = append(os.Environ(), append(more, asDaemon+"="+version)...)
	out, err := p.StdoutPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	p.Stderr = os.Stderr
	if err := p.Start(); err != nil {
		m.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(p.lines)
		var text []byte
		buf := make([]byte, 4096)
		for {
			n, err := out.Read(buf)
			text = append(text, buf[:n]...)
			for {
				line, rest, ok := strings.Cut(string(text), "\n")
				if !ok {
					break
				}
				p.lines <- line
				text = []byte(rest)
			}
			if err != nil {
				return
			}
		}
	}()
	m.t.Cleanup(func() {
		_ = p.Process.Kill()
		<-done
		_ = p.Wait()
	})
	return p
}

// says waits for the next line that the process prints; "" when it ends without one.
func (p *process) says(t *testing.T) string {
	t.Helper()
	select {
	case line := <-p.lines:
		return line
	case <-time.After(30 * time.Second):
		t.Fatal("the daemon's process says nothing")
		return ""
	}
}

func TestHelloOnAPrivateSocket(t *testing.T) {
	m := newMachine(t)
	m.start(Options{})
	resp := m.mustAsk(&socket.Request{Op: "hello"})
	var h hello
	if err := json.Unmarshal(resp.Body, &h); err != nil || h.Process != os.Getpid() || resp.Version != socket.Version {
		t.Errorf("hello: %s of version %q, %v", resp.Body, resp.Version, err)
	}
	for path, want := range map[string]os.FileMode{m.loc.Dir: 0o700, m.loc.Socket(): 0o600, m.loc.Lock(): 0o600, filepath.Join(m.loc.Home, "knootd.log"): 0o600} {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want %o", path, info.Mode(), err, want)
		}
	}
}

func TestOneDaemonAMachine(t *testing.T) {
	m := newMachine(t)
	m.start(Options{})
	var running *RunningError
	if err := Run(context.Background(), Options{Getenv: m.getenv}); !errors.As(err, &running) || running.Process != os.Getpid() {
		t.Errorf("a second daemon: %v", err)
	}
	if err := Run(context.Background(), Options{Getenv: m.getenv, Auto: true}); err != nil {
		t.Errorf("a second daemon that a hook started: %v", err)
	}
	m.mustAsk(&socket.Request{Op: "hello"})
}

func TestStopEndsItAndFreesItsPlace(t *testing.T) {
	m := newMachine(t)
	p := m.startProcess("1.0.0")
	if line := p.says(t); line != "listening" {
		t.Fatal(line)
	}
	ran, err := Stop(context.Background(), m.getenv)
	if !ran || err != nil {
		t.Fatalf("stop: %v, %v", ran, err)
	}
	if line := p.says(t); line != "ended" {
		t.Error(line)
	}
	if _, err := os.Lstat(m.loc.Socket()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
	if ran, err := Stop(context.Background(), m.getenv); ran || err != nil {
		t.Errorf("stop again: %v, %v", ran, err)
	}
}

// ender is a coordinator whose agents say goodbye when they are ended.
type ender struct {
	introducer
	goodbye func()
}

func (e *ender) Close() { e.goodbye() }

// The last hooks of the agents that a daemon runs find that daemon: else they would start another when a person stops it.
func TestAgentsThatEndWithTheDaemonStillReachIt(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	answered := make(chan error, 1)
	d := m.start(Options{Coordinate: func(*Host) Coordinator {
		return &ender{goodbye: func() {
			_, err := m.ask(&socket.Request{Op: "hook", Hook: &socket.Hook{Agent: "claude", Event: eventSessionEnd, Session: "one", Cwd: r.root,
				Places: []socket.Place{{Root: r.root}}}})
			answered <- err
		}}
	}})
	r.isOpen()
	m.stop(d)
	if err := <-answered; err != nil {
		t.Errorf("a hook while agents end: %v", err)
	}
}

func TestStopEndsADaemonThatHangs(t *testing.T) {
	m := newMachine(t)
	p := m.startProcess("1.0.0")
	p.says(t)
	if err := p.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if testing.Short() {
		t.Skip("takes the time that a daemon has for its end")
	}
	if ran, err := Stop(context.Background(), m.getenv); !ran || err != nil {
		t.Fatalf("stop: %v, %v", ran, err)
	}
}

func TestSignalEndsIt(t *testing.T) {
	m := newMachine(t)
	p := m.startProcess("1.0.0")
	p.says(t)
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if line := p.says(t); line != "ended" {
		t.Error(line)
	}
}

func TestSeatOfAKilledDaemonIsFree(t *testing.T) {
	m := newMachine(t)
	p := m.startProcess("1.0.0")
	p.says(t)
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if line := p.says(t); line != "" {
		t.Fatal(line)
	}
	next := m.startProcess("1.0.0")
	if line := next.says(t); line != "listening" {
		t.Error(line)
	}
}

func TestOfManyThatStartOneServes(t *testing.T) {
	m := newMachine(t)
	var all []*process
	for range 6 {
		all = append(all, m.startProcess("1.0.0"))
	}
	listening := 0
	for _, p := range all {
		switch line := p.says(t); {
		case line == "listening":
			listening++
		case !strings.Contains(line, "runs already"):
			t.Error(line)
		}
	}
	if listening != 1 {
		t.Errorf("%d daemons serve, want 1", listening)
	}
	m.mustAsk(&socket.Request{Op: "hello"})
}

func TestLosesItsSocketAndEnds(t *testing.T) {
	m := newMachine(t)
	d := m.start(Options{})
	if err := os.Remove(m.loc.Socket()); err != nil {
		t.Fatal(err)
	}
	other, err := listen(m.loc.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	d.tick()
	<-d.ended
	// The other's socket has to stay when the daemon has ended.
	t.Cleanup(func() {
		if _, err := os.Lstat(m.loc.Socket()); err != nil {
			t.Errorf("the other daemon's socket: %v", err)
		}
	})
}

func TestIdleEndIsForDaemonsThatAHookStarted(t *testing.T) {
	for _, auto := range []bool{true, false} {
		t.Run(fmt.Sprint(auto), func(t *testing.T) {
			m := newMachine(t)
			clock := newClock()
			d := m.start(Options{Auto: auto, Now: clock.now})
			clock.pass(idleEnd - time.Minute)
			d.tick()
			select {
			case <-d.ended:
				t.Fatal("it ended too early")
			default:
			}
			clock.pass(time.Minute)
			d.tick()
			ended := false
			select {
			case <-d.ended:
				ended = true
			default:
			}
			if ended != auto {
				t.Errorf("ended: %v", ended)
			}
		})
	}
}

func TestAutoRespectsConfig(t *testing.T) {
	for name, text := range map[string]string{"autostart off": "[daemon]\nautostart = false\n", "does not parse": "[daemon\n"} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			if err := os.MkdirAll(m.loc.Home, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(m.loc.Home, "config.toml"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := Run(context.Background(), Options{Getenv: m.getenv, Auto: true}); err != nil {
				t.Error(err)
			}
			if _, err := os.Lstat(m.loc.Lock()); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("it took the lock: %v", err)
			}
		})
	}
}
