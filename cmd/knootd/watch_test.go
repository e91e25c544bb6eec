package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/vt"
	"github.com/creack/pty"

	"knoot.dev/knoot/daemon"
	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/integration/stage"
)

// terminal is one that a program draws on, and that answers it.
type terminal struct {
	t            *testing.T
	master, tty  *os.File
	mu           sync.Mutex
	emulator     *vt.Emulator // guarded by mu, but for what it answers
	changed      chan struct{}
	reader, echo chan struct{}
}

func newTerminal(t *testing.T, width, height int) *terminal {
	t.Helper()
	master, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	x := &terminal{t: t, master: master, tty: tty, emulator: vt.NewEmulator(width, height), changed: make(chan struct{}, 1),
		reader: make(chan struct{}), echo: make(chan struct{})}
	x.resize(width, height)
	go func() {
		defer close(x.reader)
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			x.mu.Lock()
			_, _ = x.emulator.Write(buf[:n])
			x.mu.Unlock()
			select {
			case x.changed <- struct{}{}:
			default:
			}
			if err != nil {
				return
			}
		}
	}()
	go func() {
		defer close(x.echo)
		_, _ = io.Copy(master, x.emulator) // what a terminal is asked, it answers
	}()
	t.Cleanup(func() {
		_ = tty.Close()
		_ = master.Close()
		<-x.reader
		_ = x.emulator.InputPipe().(io.Closer).Close() // its own Close is not for use beside a Read
		<-x.echo
	})
	return x
}

func (x *terminal) resize(width, height int) {
	x.t.Helper()
	x.mu.Lock()
	x.emulator.Resize(width, height)
	x.mu.Unlock()
	if err := pty.Setsize(x.tty, &pty.Winsize{Cols: uint16(width), Rows: uint16(height)}); err != nil {
		x.t.Fatal(err)
	}
}

// text is the screen, without what is blank at the end of lines.
func (x *terminal) text() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	var b strings.Builder
	for line := range strings.SplitSeq(x.emulator.String(), "\n") {
		b.WriteString(strings.TrimRight(line, " \r") + "\n")
	}
	return b.String()
}

// shows waits until the screen is as it should be.
func (x *terminal) shows(what string, is func(screen string) bool) {
	x.t.Helper()
	deadline := time.After(20 * time.Second)
	for !is(x.text()) {
		select {
		case <-x.changed:
		case <-deadline:
			x.t.Fatalf("the screen does not show %s:\n%s", what, x.text())
		}
	}
}

func (x *terminal) showsAll(texts ...string) {
	x.t.Helper()
	x.shows(fmt.Sprintf("%q", texts), func(screen string) bool {
		for _, text := range texts {
			if !strings.Contains(screen, text) {
				return false
			}
		}
		return true
	})
}

func (x *terminal) types(keys string) {
	x.t.Helper()
	if _, err := io.WriteString(x.master, keys); err != nil {
		x.t.Fatal(err)
	}
}

// watchOf runs the program of watch on a terminal, of which ask answers. It has ended when the test has.
func watchOf(x *terminal, now time.Time, ask func(daemon.WatchRequest) (*daemon.Watch, error)) (program *tea.Program, ended <-chan error) {
	m := &watchModel{screen: watchScreen{title: "shop"}, ask: ask, now: func() time.Time { return now }}
	done := make(chan error, 1)
	finished := make(chan struct{})
	program = tea.NewProgram(m, tea.WithInput(x.tty), tea.WithOutput(x.tty), tea.WithoutSignals(),
		tea.WithEnvironment([]string{"TERM=xterm-256color", "NO_COLOR=1"}))
	go func() {
		defer close(finished)
		_, err := program.Run()
		done <- err
	}()
	x.t.Cleanup(func() {
		program.Quit() // a cancelled context would leave its reader behind
		<-finished
	})
	return program, done
}

// TestWatchDrawsAndResizes holds what stands on a terminal against the pictures of TestWatchScreens.
func TestWatchDrawsAndResizes(t *testing.T) {
	t.Parallel()
	w, now := busy()
	x := newTerminal(t, 80, 24)
	more := make(chan *daemon.Watch, 1)
	defer close(more)
	more <- w
	asked := make(chan daemon.WatchRequest, 8)
	program, ended := watchOf(x, now, func(r daemon.WatchRequest) (*daemon.Watch, error) {
		asked <- r
		if next, ok := <-more; ok {
			return next, nil
		}
		return nil, socket.ErrAbsent
	})
	picture := func(name string) func(string) bool {
		want, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		return func(screen string) bool { return screen == string(want) }
	}
	x.shows("the picture of 80x24", picture("watch_80x24.txt"))
	x.resize(120, 40)
	program.Send(tea.WindowSizeMsg{Width: 120, Height: 40}) // as its signal handler does; the test's process has no terminal
	x.shows("the picture of 120x40", picture("watch_120x40.txt"))

	if r := <-asked; r != (daemon.WatchRequest{}) {
		t.Errorf("at first it asks for what came after %+v", r)
	}
	if r := <-asked; r != (daemon.WatchRequest{After: w.Number, Memory: w.Memory}) {
		t.Errorf("then it asks for what came after %+v", r)
	}
	next := *w
	next.Events = []daemon.WatchEvent{{At: w.Events[8].At, Kind: "FileWritten", Who: "reviewer", Path: "src/new.js"}}
	more <- &next
	x.showsAll("wrote src/new.js", "hears that src/tax.js is free")
	x.types("q")
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestWatchScrolls(t *testing.T) {
	t.Parallel()
	w, now := busy()
	w.Events = nil
	for n := range 100 {
		w.Events = append(w.Events, daemon.WatchEvent{At: w.Facts[0].At, Kind: "FileWritten", Who: "reviewer", Path: fmt.Sprintf("file-%02d", n)})
	}
	x := newTerminal(t, 80, 24)
	hang := make(chan struct{})
	defer close(hang)
	first := true
	watchOf(x, now, func(daemon.WatchRequest) (*daemon.Watch, error) {
		if first {
			first = false
			return w, nil
		}
		<-hang
		return nil, errors.New("over")
	})
	x.showsAll("wrote file-99")
	x.types("\t\tG")
	x.showsAll("▸ What happened", "wrote file-00")
	x.types("g")
	x.showsAll("wrote file-99")
	x.types("j")
	x.shows("the next but no longer the first", func(s string) bool {
		return strings.Contains(s, "wrote file-98") && !strings.Contains(s, "wrote file-99")
	})
}

// TestWatchShowsNoForeignEscapes puts what could act on a terminal into all that others choose.
func TestWatchShowsNoForeignEscapes(t *testing.T) {
	t.Parallel()
	const evil = "a\x1b[2J\x1b]0;owned\x07\r\n\u202eb\u200b\x9b31m\x00"
	w, now := busy()
	for i := range w.Standing.Sessions {
		s := &w.Standing.Sessions[i]
		s.Name, s.Session, s.Member, s.Branch, s.Intent, s.Plan = evil, evil, evil, evil, evil, evil
		s.Decided, s.Waiting = []string{evil, evil}, []string{evil}
		for k := range s.Claims {
			s.Claims[k].Path = evil
		}
	}
	for i := range w.Hubs {
		w.Hubs[i].Path, w.Hubs[i].Queue = evil, []string{evil}
	}
	for i := range w.Events {
		e := &w.Events[i]
		e.Who, e.Path, e.Other, e.Branch, e.Text = evil, evil, evil, evil, evil
	}
	w.Events = append(w.Events, daemon.WatchEvent{Kind: evil, Who: evil})
	for i := range w.Facts {
		w.Facts[i].Name, w.Facts[i].Text, w.Facts[i].Author = evil, evil, evil
	}
	s := screenOf(w, 160, 60)
	s.title = evil
	for _, line := range strings.Split(s.draw(now), "\n") {
		if i := strings.IndexFunc(line, func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u202e' || r == '\u200b' }); i >= 0 {
			t.Errorf("%q", line)
		}
	}
	if lines := strings.Count(s.draw(now), "\n"); lines != 59 {
		t.Errorf("%d line breaks on 60 lines", lines)
	}
}

func TestWatchSaysThatNoDaemonRuns(t *testing.T) {
	t.Parallel()
	w, now := busy()
	x := newTerminal(t, 80, 24)
	answers := make(chan *daemon.Watch, 1)
	watchOf(x, now, func(daemon.WatchRequest) (*daemon.Watch, error) {
		select {
		case w := <-answers:
			return w, nil
		default:
			return nil, socket.ErrAbsent
		}
	})
	x.showsAll("No daemon runs")
	answers <- w
	x.showsAll("rewriting tax rounding", "src/billing.js")
}

// TestWatchOfTheDaemon runs the executables.
func TestWatchOfTheDaemon(t *testing.T) {
	t.Parallel()
	p := stage.NewPerson(t, "priya")
	app := p.Clone(stage.Host(t), "app")
	p.Knoot(app, "init", "--no-recovery")
	p.Knoot(app, "remember", "--name", "money", "all money is integer cents")
	p.StartDaemon()
	stage.Session{Person: p, ID: "monday-session", Dir: app}.Start()

	x := newTerminal(t, 80, 24)
	command := p.Command(app, "knoot", "watch")
	command.Env = append(command.Env, "TERM=xterm-256color")
	command.Stdin, command.Stdout, command.Stderr = x.tty, x.tty, x.tty
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true} // so that it hears of another size
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	defer command.Process.Kill()
	x.showsAll("knoot app", "Who is here", "all money is integer cents", "q quit")
	p.Knoot(app, "take", "README.md")
	x.showsAll("priya@example.org", "claimed README.md", "10 min left", "1 person, 1 file held")
	p.Knoot(app, "remember", "--name", "readme", "the readme is generated")
	x.showsAll("the readme is generated")
	x.resize(100, 30)
	x.shows("30 lines", func(screen string) bool { return strings.HasPrefix(strings.Split(screen, "\n")[29], "q quit") })
	x.types("q")
	if err := <-ended; err != nil {
		t.Error(err)
	}
	x.shows("what was there before", func(screen string) bool { return !strings.Contains(screen, "Who is here") })

	lines := p.Command(app, "knoot", "watch", "--json")
	out, err := lines.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := lines.Start(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 64<<10)
	text := ""
	for !strings.Contains(text, `"kind":"ClaimAcquired"`) {
		n, err := out.Read(buf)
		if text += string(buf[:n]); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	}
	if err := lines.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := lines.Wait(); err != nil {
		t.Errorf("watch --json ends with %v after an interrupt", err)
	}
	if result := p.Try(app, "", "knoot", "watch"); result.Code != 1 || !strings.Contains(result.Stderr, "this is none") {
		t.Errorf("without a terminal: exit %d, %q", result.Code, result.Stderr)
	}
}
