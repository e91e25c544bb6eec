// Package stage sets up what tests of whole programs play on: the two executables, people with homes of their own, a host
// repository and clones of it. Nothing of the machine's own configuration is seen by what runs here.
package stage

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Version is that of the executables that people on a stage run, unless a test gives them others.
const Version = "1.0.0"

var built struct {
	sync.Mutex
	dir     string
	folders map[string]string // by version
}

// Run runs the tests and removes the executables that they had built. TestMain calls it.
func Run(m *testing.M) int {
	defer Leave()
	return m.Run()
}

// Leave removes the executables that were built, for a TestMain that does not call Run.
func Leave() {
	if built.dir != "" {
		os.RemoveAll(built.dir)
	}
}

// Executables returns a folder that holds knoot and knootd, linked as the given version. They are built once a test program.
func Executables(t testing.TB, version string) string {
	t.Helper()
	built.Lock()
	defer built.Unlock()
	if folder, ok := built.folders[version]; ok {
		return folder
	}
	root := moduleRoot(t)
	if built.dir == "" {
		dir, err := os.MkdirTemp("", "knoot-bin-")
		check(t, err)
		built.dir, built.folders = dir, map[string]string{}
		check(t, look(root))
	}
	folder := filepath.Join(built.dir, version)
	check(t, os.Mkdir(folder, 0o755))
	command := exec.Command("go", "build", "-trimpath", "-ldflags", "-X knoot.dev/knoot/daemon/socket.Version="+version,
		"-o", folder+"/", "./cmd/knoot", "./cmd/knootd")
	command.Dir = root
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, output)
	}
	built.folders[version] = folder
	return folder
}

// look asks for the state of every source file. The go command keeps results of tests by the files that they looked at,
// and it does not see what a go build inside a test reads.
func look(root string) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "bin") {
			return fs.SkipDir
		}
		if entry.Name() == "go.mod" || filepath.Ext(path) == ".go" {
			_, err = os.Stat(path)
		}
		return err
	})
}

func moduleRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	check(t, err)
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above the test")
		}
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Dir makes a directory that is gone after the test. Its path is short, since a unix socket's has to fit into 104 bytes.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "knoot")
	check(t, err)
	dir, err = filepath.EvalSymlinks(dir)
	check(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// Person is somebody with a home, whose git and knoot are configured by that home alone.
type Person struct {
	t         testing.TB
	Name      string
	Home      string
	KnootHome string   // ~/.knoot, unless shared with another person
	Bin       string   // the folder of knoot and knootd
	Extra     []string // environment beside what Env makes
	Inside    []string // words before the daemon's command line: they say on which machine of a Network it runs
}

// NewPerson makes a person. Hooks that run for them start no daemon, unless the test writes another config.toml, and a daemon's
// agents coordinate at any port that is free.
func NewPerson(t testing.TB, name string) *Person {
	t.Helper()
	home := Dir(t)
	p := &Person{t: t, Name: name, Home: home, KnootHome: filepath.Join(home, ".knoot"), Bin: Executables(t, Version)}
	p.Write(filepath.Join(home, ".gitconfig"), fmt.Sprintf(
		"[user]\n\tname = %s\n\temail = %s@example.org\n[init]\n\tdefaultBranch = main\n[commit]\n\tgpgSign = false\n", name, name))
	check(t, os.Mkdir(p.KnootHome, 0o700))
	p.Write(filepath.Join(p.KnootHome, "config.toml"), "[daemon]\nautostart = false\n[mcp]\nport = 0\n")
	return p
}

// SharingKeys makes a person with a home and a name of their own who uses this one's keys: two people, as far as git goes, on
// one device.
func (p *Person) SharingKeys(name string) *Person {
	p.t.Helper()
	other := NewPerson(p.t, name)
	other.KnootHome = p.KnootHome
	return other
}

// In is the person in a subtest, which fails by itself.
func (p *Person) In(t testing.TB) *Person {
	other := *p
	other.t = t
	return &other
}

// Env is the whole environment of what the person runs.
func (p *Person) Env() []string {
	return append([]string{
		"PATH=" + p.Bin + string(os.PathListSeparator) + os.Getenv("PATH"),
		"HOME=" + p.Home,
		"KNOOT_HOME=" + p.KnootHome,
		"KNOOT_BIN=" + filepath.Join(p.Bin, "knoot"),
		"GIT_CONFIG_NOSYSTEM=1",
		"TMPDIR=" + os.TempDir(),
		"LC_ALL=C",
	}, p.Extra...)
}

// Result is how a program ended.
type Result struct {
	Stdout, Stderr string
	Code           int
}

// Command is a program of the person, in a directory, ready to run.
func (p *Person) Command(dir, name string, args ...string) *exec.Cmd {
	if name == "knoot" {
		name = filepath.Join(p.Bin, "knoot")
	}
	command := exec.Command(name, args...)
	command.Dir = dir
	command.Env = p.Env()
	return command
}

// Try runs a program and says how it ended.
func (p *Person) Try(dir, stdin, name string, args ...string) Result {
	p.t.Helper()
	command := p.Command(dir, name, args...)
	command.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	err := command.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.t.Fatalf("%s %q: %v", name, args, err)
	}
	return Result{Stdout: stdout.String(), Stderr: stderr.String(), Code: command.ProcessState.ExitCode()}
}

// Run runs a program that must succeed and returns what it printed.
func (p *Person) Run(dir, name string, args ...string) string {
	p.t.Helper()
	result := p.Try(dir, "", name, args...)
	if result.Code != 0 {
		p.t.Fatalf("%s in %s: %s %q: exit %d\n%s%s", p.Name, dir, name, args, result.Code, result.Stdout, result.Stderr)
	}
	return result.Stdout
}

// Git runs git, which must succeed, and returns what it printed without the last newline.
func (p *Person) Git(dir string, args ...string) string {
	p.t.Helper()
	return strings.TrimSuffix(p.Run(dir, "git", args...), "\n")
}

// Knoot runs a command of knoot, which must succeed, and returns what it printed.
func (p *Person) Knoot(dir string, args ...string) string {
	p.t.Helper()
	return p.Run(dir, "knoot", args...)
}

// Clone clones a repository into the person's home and returns the path.
func (p *Person) Clone(host, name string) string {
	p.t.Helper()
	dir := filepath.Join(p.Home, name)
	p.Git(p.Home, "clone", "--quiet", host, dir)
	return dir
}

// Commit writes one file, commits it and returns the commit's id.
func (p *Person) Commit(dir, file, text, message string) string {
	p.t.Helper()
	p.Write(filepath.Join(dir, file), text)
	p.Git(dir, "add", "--", file)
	p.Git(dir, "commit", "--quiet", "--message", message)
	return p.Git(dir, "rev-parse", "HEAD")
}

// Write writes a file, and the directories above it.
func (p *Person) Write(path, text string) {
	p.t.Helper()
	check(p.t, os.MkdirAll(filepath.Dir(path), 0o755))
	check(p.t, os.WriteFile(path, []byte(text), 0o644))
}

// Host makes a bare repository with one commit on main: a git host.
func Host(t testing.TB) string {
	t.Helper()
	host := filepath.Join(Dir(t), "host.git")
	someone := &Person{t: t, Name: "founder", Home: Dir(t), KnootHome: filepath.Join(Dir(t), "none")}
	someone.Write(filepath.Join(someone.Home, ".gitconfig"), "[user]\n\tname = founder\n\temail = founder@example.org\n")
	someone.Git(someone.Home, "init", "--quiet", "--bare", "--initial-branch=main", host)
	clone := someone.Clone(host, "first")
	someone.Git(clone, "checkout", "--quiet", "-B", "main")
	someone.Commit(clone, "README.md", "a shop\n", "Begin")
	someone.Git(clone, "push", "--quiet", "origin", "main")
	return host
}

// Daemon is a running daemon.
type Daemon struct {
	command *exec.Cmd
	ended   chan struct{}
	output  saying
}

// saying is what a daemon prints.
type saying struct {
	listens chan struct{} // closed once it says that it listens

	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
	said bool         // guarded by mu: listens is closed
}

func (s *saying) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Write(text)
	if !s.said && bytes.Contains(s.text.Bytes(), []byte(" listens on ")) {
		s.said = true
		close(s.listens)
	}
	return len(text), nil
}

func (s *saying) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// StartDaemon starts the person's daemon and waits until it says that it listens: one that was killed may still be connected to, for as
// long as a program that it was about to start has its socket. It ends with the test.
func (p *Person) StartDaemon() *Daemon {
	p.t.Helper()
	command := p.Command(p.Home, "knoot", "daemon")
	if len(p.Inside) > 0 {
		command = p.Command(p.Home, p.Inside[0], append(p.Inside[1:len(p.Inside):len(p.Inside)], command.Args...)...)
	}
	d := &Daemon{command: command, ended: make(chan struct{}), output: saying{listens: make(chan struct{})}}
	d.command.Stdout, d.command.Stderr = &d.output, &d.output
	check(p.t, d.command.Start())
	go func() {
		defer close(d.ended)
		_ = d.command.Wait() // most tests kill it
	}()
	p.t.Cleanup(d.Kill)
	select {
	case <-d.output.listens:
	case <-d.ended:
		p.t.Fatalf("the daemon ended at once:\n%s", d.output.String())
	case <-time.After(20 * time.Second):
		p.t.Fatalf("the daemon does not listen:\n%s", d.output.String())
	}
	return d
}

// AwaitSocket waits until a daemon that something else started answers.
func (p *Person) AwaitSocket() {
	p.t.Helper()
	for patience := time.After(20 * time.Second); ; {
		connection, err := net.Dial("unix", p.Socket())
		if err == nil {
			connection.Close()
			return
		}
		select {
		case <-patience:
			p.t.Fatalf("no daemon answers at %s: %v", p.Socket(), err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Socket is where the person's daemon listens.
func (p *Person) Socket() string { return filepath.Join(p.KnootHome, "knootd.sock") }

// Socketed puts one request to the person's daemon, as JSON, and returns its answer, which must be no error.
func (p *Person) Socketed(request any) map[string]any {
	p.t.Helper()
	connection, err := net.Dial("unix", p.Socket())
	check(p.t, err)
	defer connection.Close()
	check(p.t, json.NewEncoder(connection).Encode(request))
	var answer map[string]any
	check(p.t, json.NewDecoder(connection).Decode(&answer))
	if answer["error"] != nil {
		p.t.Fatalf("the daemon answers %v", answer["error"])
	}
	return answer
}

// Asked asks the person's daemon about a clone, and reads what it answers.
func (p *Person) Asked(op, dir string, answer any) {
	p.t.Helper()
	body, err := json.Marshal(p.Socketed(map[string]any{"op": op, "version": Version, "dir": dir})["body"])
	check(p.t, err)
	check(p.t, json.Unmarshal(body, answer))
}

// Frozen stops the daemon where it is, as a machine without memory does, and returns what lets it go on.
func (d *Daemon) Frozen() (thaw func()) {
	_ = d.command.Process.Signal(syscall.SIGSTOP) // it may have ended
	return func() { _ = d.command.Process.Signal(syscall.SIGCONT) }
}

// Kill ends the daemon with SIGKILL, and returns when it is gone.
func (d *Daemon) Kill() {
	_ = d.command.Process.Kill() // it may have ended
	<-d.ended
}

// Terminate ends the daemon as a user service is ended, and returns when it is gone.
func (d *Daemon) Terminate() {
	_ = d.command.Process.Signal(syscall.SIGTERM)
	<-d.ended
}

// Process is its process's number.
func (d *Daemon) Process() int { return d.command.Process.Pid }

// Ended is closed when the daemon is gone.
func (d *Daemon) Ended() <-chan struct{} { return d.ended }
