package mcpd

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

const (
	// scrollback is how much of what a terminal printed is kept, in bytes.
	scrollback = 256 << 10
	// quietTime is how long after a person's last key nothing else is typed.
	quietTime = 2 * time.Second
	// enterPause is between a text that is typed and its Enter: what comes in one piece is taken for something pasted. See say.
	enterPause = 50 * time.Millisecond
	// showTime is how long a program has to show a text that is typed before whoever typed it looks again later.
	showTime = 200 * time.Millisecond
	// typeTime bounds what a program may take to accept keys.
	typeTime = 2 * time.Second
	// endTime is how long a program has to end once its terminal is gone, before it is killed.
	endTime = 2 * time.Second
	// Size of a terminal that nobody looks at.
	terminalRows, terminalColumns = 40, 120
	maxSide                       = 1000
)

// terminal is a pseudo-terminal and the program in it. Its methods may be called from several goroutines.
type terminal struct {
	pty     *os.File
	process *os.Process
	ended   chan struct{} // closed once the program has ended and what it printed is kept
	wake    chan struct{} // there may be something to type; see Server.attend

	typing sync.Mutex // held while keys are written, so that a text is not torn; taken before mu

	mu      sync.Mutex
	kept    []byte        // guarded by mu: the last of what it printed
	printed int64         // guarded by mu: how much it printed
	more    chan struct{} // guarded by mu: closed when it prints again
	lastKey time.Time     // guarded by mu: of a person's
	begun   bool          // guarded by mu: a person typed something since the last Enter
	unsent  string        // guarded by mu: a text that was typed and whose Enter is still to be; "": none
	typed   int64         // guarded by mu: how much was printed before that text
	touched bool          // guarded by mu: a person typed something, ever
	pastes  bool          // guarded by mu: the program asked for marks around what is pasted
}

var (
	errEnded = errors.New("the program has ended")
	errDeaf  = errors.New("the program reads no keys; wait until it does")
)

// startTerminal runs a command in a terminal of its own. The process leads a session, and a group.
func startTerminal(command *exec.Cmd) (*terminal, error) {
	file, err := pty.StartWithSize(command, &pty.Winsize{Rows: terminalRows, Cols: terminalColumns})
	if err != nil {
		return nil, err
	}
	if file, err = pollable(file); err != nil {
		_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
		_ = command.Wait()
		return nil, err
	}
	t := &terminal{pty: file, process: command.Process, ended: make(chan struct{}), wake: make(chan struct{}, 1), more: make(chan struct{})}
	read := make(chan struct{})
	go func() {
		defer close(read)
		buffer := make([]byte, 16<<10)
		for {
			n, err := file.Read(buffer)
			t.print(buffer[:n])
			if err != nil {
				return // the terminal is closed, or nobody is left in it
			}
		}
	}()
	go func() {
		_ = command.Wait()                 // how it ended is on the screen
		_ = t.signal(syscall.SIGHUP)       // to what it left behind
		timer := time.NewTimer(enterPause) // what it printed last is still on its way
		defer timer.Stop()
		select {
		case <-read:
		case <-timer.C:
		}
		_ = t.signal(syscall.SIGKILL)
		timer.Reset(endTime)
		select {
		case <-read: // nobody of the group is left
		case <-timer.C: // who left the group holds the terminal
		}
		_ = file.Close()
		<-read
		close(t.ended)
	}()
	return t, nil
}

// pollable returns a file in the place of another, which it closes, of which a read or a write that is under way ends once it is
// closed, or its deadline is over. Package pty takes the descriptor out of its file, which makes that one wait in the kernel: for as
// long as somebody holds the other end of the terminal, as a program does that left its session.
func pollable(file *os.File) (*os.File, error) {
	defer file.Close()
	syscall.ForkLock.RLock()
	fd, err := syscall.Dup(int(file.Fd()))
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	if err := syscall.SetNonblock(fd, true); err != nil {
		_ = syscall.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fd), file.Name()), nil
}

// signal sends a signal to all of the program's group.
func (t *terminal) signal(which syscall.Signal) error { return syscall.Kill(-t.process.Pid, which) }

func (t *terminal) print(text []byte) {
	if len(text) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.followPastes(text)
	t.kept = append(t.kept, text...)
	if len(t.kept) > 2*scrollback {
		t.kept = append([]byte(nil), t.kept[len(t.kept)-scrollback:]...)
	}
	t.printed += int64(len(text))
	close(t.more)
	t.more = make(chan struct{})
}

// followPastes takes note of whether the program, by what it prints next, wants what is pasted marked. mu is held.
func (t *terminal) followPastes(text []byte) {
	on, off := []byte("\x1b[?2004h"), []byte("\x1b[?2004l")
	begun := t.kept[max(0, len(t.kept)-len(on)+1):] // of a sequence that ends in text
	all := append(bytes.Clone(begun), text...)
	if at := max(bytes.LastIndex(all, on), bytes.LastIndex(all, off)); at >= 0 {
		t.pastes = bytes.HasPrefix(all[at:], on)
		t.poke()
	}
}

// since returns what was printed after the first from bytes, as far as it is kept, how much that makes in all, and what is closed
// when there is more.
func (t *terminal) since(from int64) (text []byte, printed int64, more <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := t.kept[max(0, len(t.kept)-scrollback):]
	if first := t.printed - int64(len(kept)); from > first {
		kept = kept[min(from-first, int64(len(kept))):]
	}
	return bytes.Clone(kept), t.printed, t.more
}

// press types a person's keys.
func (t *terminal) press(keys []byte) error {
	t.typing.Lock()
	defer t.typing.Unlock()
	if isReply(keys) {
		return t.write(keys)
	}
	t.mu.Lock()
	t.lastKey, t.touched = time.Now(), true
	if at := bytes.LastIndexAny(keys, "\r\n"); at >= 0 {
		t.begun, t.unsent = at < len(keys)-1, ""
	} else if len(keys) > 0 {
		t.begun = true
	}
	t.mu.Unlock()
	t.poke()
	return t.write(keys)
}

// isReply reports whether keys are what a terminal itself answers to a program that asks what it is, or says of its focus.
func isReply(keys []byte) bool {
	switch {
	case bytes.HasPrefix(keys, []byte("\x1b]")), bytes.HasPrefix(keys, []byte("\x1bP")):
		return true
	case bytes.HasPrefix(keys, []byte("\x1b[")):
		return bytes.IndexByte([]byte("cnyRIO"), keys[len(keys)-1]) >= 0
	}
	return false
}

func (t *terminal) write(keys []byte) error {
	_ = t.pty.SetWriteDeadline(time.Now().Add(typeTime)) // fails where it is closed, as the write does
	_, err := t.pty.Write(keys)
	switch {
	case errors.Is(err, os.ErrClosed):
		return errEnded
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errDeaf
	}
	return err
}

// pressed is when a person typed a key last.
func (t *terminal) pressed() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lastKey
}

// quiet is how long to wait until something may be typed; forever: until the person has typed Enter.
func (t *terminal) quiet() (wait time.Duration, forever bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(0, time.Until(t.lastKey.Add(quietTime))), t.begun
}

// wantsMarks says whether the program asked for marks around what is pasted.
func (t *terminal) wantsMarks() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pastes
}

// stands says whether a text was typed whose Enter is still to be.
func (t *terminal) stands() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.unsent != ""
}

// control is what a program prints that is no text: where the cursor goes, colours, titles.
var control = regexp.MustCompile(`\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|.)`)

// awaitShown waits until the program has shown the text that was typed last, for so long. Whatever asks a person something lets them choose
// or has a line of its own, and does not show what was meant for the program's line. Half of the longer words are enough: a screen is
// printed in pieces, and lines are broken.
func (t *terminal) awaitShown(ctx context.Context, text string, patience time.Duration) (bool, error) {
	words := slices.DeleteFunc(strings.Fields(text), func(word string) bool { return len(word) < 4 })
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		t.mu.Lock()
		from := t.typed
		t.mu.Unlock()
		printed, _, more := t.since(from)
		plain, shown := control.ReplaceAll(printed, nil), 0
		for _, word := range words {
			if bytes.Contains(plain, []byte(word)) {
				shown++
			}
		}
		if 2*shown > len(words) {
			return true, nil
		}
		select {
		case <-more:
		case <-timer.C:
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		case <-t.ended:
			return false, errEnded
		}
	}
}

// untouched says whether no person has typed anything, since the program began.
func (t *terminal) untouched() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.touched
}

// say types a text, and Enter once the program has shown it, for as long as may says that it may, which is asked before each: with ""
// before the text, with the text that then stands in the line before Enter. A text whose Enter was not typed stands there, and Enter
// alone is typed the next time, whatever is to be said then. A program that asked for it gets the text marked as something pasted: it
// reads text and Enter in one piece when it is slow, and may take Enter for a part of the text. It returns what was said; "": nothing.
func (t *terminal) say(ctx context.Context, text string, may func(stands string) bool) (said string, err error) {
	t.typing.Lock()
	defer t.typing.Unlock()
	t.mu.Lock()
	stands, marked := t.unsent, t.pastes
	t.mu.Unlock()
	patience := time.Duration(0)
	if stands == "" {
		if !may("") {
			return "", nil
		}
		patience = showTime
		t.mu.Lock()
		t.unsent, t.typed = text, t.printed
		t.mu.Unlock()
		keys := text
		if marked {
			keys = "\x1b[200~" + text + "\x1b[201~"
		}
		if err := t.write([]byte(keys)); err != nil {
			return "", err
		}
	}
	if shown, err := t.awaitShown(ctx, cmp.Or(stands, text), patience); !shown {
		return "", err
	}
	if stands == "" {
		select {
		case <-time.After(enterPause):
		case <-ctx.Done():
			return "", ctx.Err()
		case <-t.ended:
			return "", errEnded
		}
	}
	text = cmp.Or(stands, text)
	if !may(text) {
		return "", nil
	}
	if err := t.write([]byte("\r")); err != nil {
		return "", err
	}
	t.mu.Lock()
	t.unsent = ""
	t.mu.Unlock()
	return text, nil
}

// poke has Server.attend look whether there is something to type.
func (t *terminal) poke() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// resize tells the program how large the terminal is.
func (t *terminal) resize(rows, columns int) error {
	if rows < 1 || columns < 1 || rows > maxSide || columns > maxSide {
		return refusef("a terminal has 1 to %d rows and columns", maxSide)
	}
	conn, err := t.pty.SyscallConn() // pty.Setsize would make it wait in the kernel; see pollable
	if err != nil {
		return err
	}
	if conn.Control(func(fd uintptr) {
		err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(rows), Col: uint16(columns)})
	}) != nil {
		return errEnded
	}
	return err
}

// end ends the program and its group, and returns once they have ended.
func (t *terminal) end() {
	select {
	case <-t.ended:
		return // its number may be another's by now
	default:
	}
	_ = t.signal(syscall.SIGHUP)
	_ = t.signal(syscall.SIGCONT) // one that is stopped hears nothing
	timer := time.NewTimer(endTime)
	defer timer.Stop()
	select {
	case <-t.ended:
		return
	case <-timer.C:
	}
	_ = t.signal(syscall.SIGKILL)
	<-t.ended
}
