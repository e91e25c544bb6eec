package stage

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Relay is `knoot relay`, which runs, and what outlives it.
type Relay struct {
	t       testing.TB
	dir     string
	flags   []string
	inside  []string
	started int64 // where the log of the process begins
	command *exec.Cmd
	ended   chan struct{}

	State   string // its folder
	Address string // HOST:PORT, the same after a restart
	Admin   string // HOST:PORT of its pages
	Key     string // sha256:…
}

// NewRelay starts a relay that listens at an address, with more flags as they are given. inside are the words before its command
// line, nil for none. It ends with the test.
func NewRelay(t testing.TB, inside []string, listen string, flags ...string) *Relay {
	t.Helper()
	dir := Dir(t)
	r := &Relay{t: t, dir: dir, flags: flags, inside: inside, State: filepath.Join(dir, "state"), Address: listen, Admin: "127.0.0.1:0"}
	check(t, os.Mkdir(r.State, 0o700))
	r.Start()
	t.Cleanup(r.Kill)
	return r
}

func (r *Relay) logPath() string { return filepath.Join(r.dir, "log") }

// Log is what all of the relay's processes said.
func (r *Relay) Log() string {
	r.t.Helper()
	data, err := os.ReadFile(r.logPath())
	check(r.t, err)
	return string(data)
}

// With has the next start give it other flags.
func (r *Relay) With(flags ...string) { r.flags = flags }

// Start starts it, again if need be, and returns once it listens.
func (r *Relay) Start() {
	r.t.Helper()
	words := append(r.inside[:len(r.inside):len(r.inside)], filepath.Join(Executables(r.t, Version), "knoot"), "relay",
		"--state", r.State, "--listen", r.Address, "--admin", r.Admin)
	r.command = exec.Command(words[0], append(words[1:], r.flags...)...)
	r.command.Dir = r.dir
	r.command.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + r.dir, "LC_ALL=C"}
	log, err := os.OpenFile(r.logPath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	check(r.t, err)
	defer log.Close()
	r.started, err = log.Seek(0, io.SeekEnd)
	check(r.t, err)
	r.command.Stdout, r.command.Stderr = log, log
	check(r.t, r.command.Start())
	command, ended := r.command, make(chan struct{})
	r.ended = ended
	go func() {
		defer close(ended)
		_ = command.Wait() // tests kill it
	}()
	r.Key = r.awaitLine("relay key ", "\n")
	r.Address = r.awaitLine("msg=listening address=", " ")
	r.Admin = r.awaitLine("msg=admin address=", "\n")
}

// awaitLine waits until the process has logged something, and returns what stands between two texts there.
func (r *Relay) awaitLine(before, after string) string {
	r.t.Helper()
	for began := time.Now(); ; {
		log, err := os.ReadFile(r.logPath())
		check(r.t, err)
		log = log[r.started:]
		if _, rest, found := bytes.Cut(log, []byte(before)); found {
			if value, _, whole := bytes.Cut(rest, []byte(after)); whole {
				return strings.TrimSpace(string(value))
			}
		}
		select {
		case <-r.ended:
			r.t.Fatalf("the relay ended at once:\n%s", log)
		case <-time.After(2 * time.Millisecond):
		}
		if time.Since(began) > 20*time.Second {
			r.t.Fatalf("the relay never said %q:\n%s", before, log)
		}
	}
}

// Kill ends it with SIGKILL, and returns when it is gone.
func (r *Relay) Kill() {
	_ = r.command.Process.Kill() // it may have ended
	<-r.ended
}

// Terminate ends it as a service is ended, and returns when it is gone.
func (r *Relay) Terminate() {
	_ = r.command.Process.Signal(syscall.SIGTERM)
	<-r.ended
}

// Frozen stops it where it is, and returns what lets it go on.
func (r *Relay) Frozen() (thaw func()) {
	r.t.Helper()
	check(r.t, r.command.Process.Signal(syscall.SIGSTOP))
	return func() { _ = r.command.Process.Signal(syscall.SIGCONT) }
}

// Process is its process's number.
func (r *Relay) Process() int { return r.command.Process.Pid }
