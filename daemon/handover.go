package daemon

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"knoot.dev/knoot/daemon/socket"
)

// A takeover, in order. The old daemon stops accepting (clients wait in the socket's queue), finishes what it
// accepted, writes its state and frees its clones; then it sends the listening socket and the locked file over the
// connection on which it was asked. The new one reads the state and answers with one line; it accepts from then on,
// and the old one ends. If the new one fails before that line, the old one goes on as if nothing had been.
const (
	// drainTime is how long the old daemon waits for requests that it has accepted. It is below what a hook waits
	// for its answer together with the queue, since a hook that hangs longer is lost to its own deadline anyhow.
	drainTime = 2 * time.Second
	// takeTime is how long the new daemon may take to read the state.
	takeTime = 10 * time.Second
	// lockTime is how long a starting daemon waits for one that is starting or ending.
	lockTime = 5 * time.Second
)

// RunningError says that a daemon of this version, or of a newer one, runs already.
type RunningError struct {
	Version string // of the one that runs
	Process int    // 0 when it did not say
}

func (e *RunningError) Error() string {
	return fmt.Sprintf("a knoot daemon of version %s runs already (process %d); `knoot daemon --stop` ends it", e.Version, e.Process)
}

// hello is the body of the answer to hello and to handover.
type hello struct {
	Process int `json:"process"`
}

// seat is what makes a process this person's daemon on this host: the locked file and the listening socket.
type seat struct {
	lock     *os.File
	listener *net.UnixListener
	// from is the daemon that gave the seat up, and waits for a word; nil when there was none.
	from *net.UnixConn
}

// confirm tells the daemon that gave the seat up that it may end.
func (s *seat) confirm() error {
	if s.from == nil {
		return nil
	}
	_, err := s.from.Write([]byte("taken\n"))
	if err == nil {
		// It closes the connection when it no longer needs the person's files, right before its end.
		_, _ = s.from.Read(make([]byte, 1))
	}
	s.drop()
	return err
}

// drop lets the daemon that gave the seat up go on, unless it was confirmed.
func (s *seat) drop() {
	if s.from != nil {
		_ = s.from.Close()
	}
}

// close gives everything back.
func (s *seat) close() {
	_ = s.listener.Close()
	_ = s.lock.Close()
	s.drop()
}

// takeSeat becomes the daemon at loc: by the lock when it is free, else by a takeover from an older version. The error
// is a *RunningError when one of this version or a newer one has it.
func takeSeat(ctx context.Context, loc socket.Location) (*seat, error) {
	ctx, cancel := context.WithTimeout(ctx, lockTime+takeTime)
	defer cancel()
	var unanswered time.Duration
	for {
		lock, err := lockFile(loc.Lock())
		if err != nil {
			return nil, err
		}
		if lock != nil {
			listener, err := listen(loc.Socket())
			if err != nil {
				_ = lock.Close()
				return nil, err
			}
			return &seat{lock: lock, listener: listener}, nil
		}
		began := time.Now()
		running, err := askHello(ctx, loc)
		switch {
		case err == nil && socket.NewerThan(socket.Version, running.Version):
			taken, err := takeOver(ctx, loc)
			if err == nil {
				return taken, nil
			}
			if !errors.Is(err, errNotGiven) {
				return nil, err
			}
		case err == nil:
			var h hello
			_ = json.Unmarshal(running.Body, &h)
			return nil, &RunningError{Version: running.Version, Process: h.Process}
		case errors.Is(err, socket.ErrAbsent), errors.Is(err, socket.ErrBusy), errors.Is(err, socket.ErrGarbage):
			// It is starting, ending, or handing over.
		default:
			return nil, err
		}
		// What has the lock and does not answer is given a few seconds; time in which it answered does not count.
		unanswered += max(time.Since(began), 20*time.Millisecond)
		if unanswered > lockTime {
			return nil, fmt.Errorf("process %d has %s locked and does not answer; `knoot daemon --stop` ends it", lockOwner(loc.Lock()), loc.Lock())
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func askHello(ctx context.Context, loc socket.Location) (*socket.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	resp, err := loc.Ask(ctx, &socket.Request{Op: "hello"})
	if err == nil && resp.Error != "" {
		return nil, errors.New(resp.Error)
	}
	return resp, err
}

// lockFile locks the file at path and writes this process into it. nil, nil: another process has it.
func lockFile(path string) (*os.File, error) {
	for {
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, fmt.Errorf("cannot open the daemon's lock: %w", err)
		}
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			_ = file.Close()
			return nil, nil
		}
		if err != nil {
			_ = file.Close()
			return nil, fmt.Errorf("cannot lock %s: %w", path, err)
		}
		// Somebody may have removed the file between the two calls: then the lock is on a file that nobody finds.
		info, err := file.Stat()
		now, err2 := os.Stat(path)
		if err == nil && err2 == nil && os.SameFile(info, now) {
			return file, signLock(file)
		}
		_ = file.Close()
	}
}

// signLock writes this process's id into the locked file.
func signLock(file *os.File) error {
	if err := file.Truncate(0); err != nil {
		return fmt.Errorf("cannot write the daemon's lock: %w", err)
	}
	if _, err := file.WriteAt(strconv.AppendInt(nil, int64(os.Getpid()), 10), 0); err != nil {
		return fmt.Errorf("cannot write the daemon's lock: %w", err)
	}
	return nil
}

// lockOwner reads which process locked the file at path; 0 when it does not say.
func lockOwner(path string) int {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 0 {
		return 0
	}
	return pid
}

// listen binds the socket at path, in the place of one that a dead daemon left. The lock is held.
func listen(path string) (*net.UnixListener, error) {
	info, err := os.Lstat(path)
	switch {
	case err == nil && info.Mode().Type() != os.ModeSocket:
		return nil, fmt.Errorf("%s is not a socket; remove it", path)
	case err == nil:
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("cannot remove the socket of an ended daemon: %w", err)
		}
	case !errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("cannot look at the daemon's socket: %w", err)
	}
	// It is bound under another name and renamed into place: whoever sees it sees it with its final mode, listening.
	fresh := filepath.Join(filepath.Dir(path), ".s"+strconv.Itoa(os.Getpid()))
	_ = os.Remove(fresh)
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: fresh, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("cannot listen on the daemon's socket: %w", err)
	}
	listener.SetUnlinkOnClose(false)
	if err = os.Chmod(fresh, 0o600); err == nil {
		err = os.Rename(fresh, path)
	}
	if err != nil {
		_ = listener.Close()
		_ = os.Remove(fresh)
		return nil, fmt.Errorf("cannot make the daemon's socket: %w", err)
	}
	return listener, nil
}

// errNotGiven says that the older daemon did not give its seat up: it ended, or another daemon was faster.
var errNotGiven = errors.New("the running daemon did not hand over")

// takeOver asks the older daemon at loc for its seat.
func takeOver(ctx context.Context, loc socket.Location) (*seat, error) {
	var dialer net.Dialer
	raw, err := dialer.DialContext(ctx, "unix", loc.Socket())
	if err != nil {
		return nil, errNotGiven
	}
	conn := raw.(*net.UnixConn)
	fail := func(err error) (*seat, error) {
		_ = conn.Close()
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(drainTime + takeTime))
	line, err := json.Marshal(&socket.Request{Op: "handover", Version: socket.Version})
	if err != nil {
		return fail(err)
	}
	if _, err := conn.Write(append(line, '\n')); err != nil {
		return fail(errNotGiven)
	}
	// The descriptors come with the first byte of the answer, and the answer is short.
	text, rights := make([]byte, 4096), make([]byte, unix.CmsgSpace(2*4))
	syscall.ForkLock.RLock() // until they are marked, no process started here may inherit them
	n, oobn, _, _, err := conn.ReadMsgUnix(text, rights)
	files, err2 := receivedFiles(rights[:max(oobn, 0)])
	syscall.ForkLock.RUnlock()
	closeAll := func() {
		for _, f := range files {
			_ = f.Close()
		}
	}
	var resp socket.Response
	if err != nil || err2 != nil || json.Unmarshal(text[:n], &resp) != nil || resp.Error != "" || len(files) != 2 {
		closeAll()
		return fail(errNotGiven)
	}
	listener, err := net.FileListener(files[0])
	if err != nil {
		closeAll()
		return fail(fmt.Errorf("cannot use the socket of the older daemon: %w", err))
	}
	_ = files[0].Close()
	if err := signLock(files[1]); err != nil {
		_ = listener.Close()
		_ = files[1].Close()
		return fail(err)
	}
	unixListener := listener.(*net.UnixListener)
	unixListener.SetUnlinkOnClose(false)
	return &seat{lock: files[1], listener: unixListener, from: conn}, nil
}

// receivedFiles makes files of the descriptors in a control message, closed on exec.
func receivedFiles(rights []byte) ([]*os.File, error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "handed over"))
		}
	}
	return files, nil
}

// give sends the seat over conn and waits for the word that it was taken. The descriptors here stay open.
func give(conn *net.UnixConn, listener *net.UnixListener, lock *os.File) error {
	_ = conn.SetDeadline(time.Now().Add(takeTime))
	body, err := json.Marshal(hello{Process: os.Getpid()})
	if err != nil {
		return err
	}
	line, err := json.Marshal(&socket.Response{Version: socket.Version, Body: body})
	if err != nil {
		return err
	}
	raw, err := listener.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = raw.Control(func(fd uintptr) {
		_, _, sent = conn.WriteMsgUnix(append(line, '\n'), unix.UnixRights(int(fd), int(lock.Fd())), nil)
	})
	if err := errors.Join(err, sent); err != nil {
		return err
	}
	word, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err
	}
	if word != "taken\n" {
		return errors.New("the newer daemon did not say that it took over")
	}
	return nil
}

// Stop ends the daemon that the environment leads to, and waits until it has ended. It reports whether one ran. One
// that does not answer is sent SIGTERM, and after a few seconds SIGKILL.
func Stop(ctx context.Context, getenv func(string) string) (bool, error) {
	loc, err := socket.Locate(getenv)
	if err != nil {
		return false, err
	}
	if ended, err := lockIsFree(loc.Lock()); ended || err != nil {
		return false, err
	}
	process := lockOwner(loc.Lock())
	ask, cancel := context.WithTimeout(ctx, time.Second)
	_, err = loc.Ask(ask, &socket.Request{Op: "stop"})
	cancel()
	if errors.Is(err, socket.ErrForeign) {
		return false, err
	}
	asked := err == nil
	for _, step := range []struct {
		signal syscall.Signal
		wait   time.Duration
	}{{0, pushAtEnd + 5*time.Second}, {syscall.SIGTERM, pushAtEnd + 5*time.Second}, {syscall.SIGKILL, 2 * time.Second}} {
		if step.signal == 0 && !asked {
			continue
		}
		if step.signal != 0 {
			if process == 0 || lockOwner(loc.Lock()) != process {
				break
			}
			_ = syscall.Kill(process, step.signal)
		}
		for deadline := time.Now().Add(step.wait); time.Now().Before(deadline); {
			if ended, err := lockIsFree(loc.Lock()); ended || err != nil {
				return true, err
			}
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
				return true, ctx.Err()
			}
		}
	}
	return true, fmt.Errorf("the daemon (process %d) does not end; end it by hand", process)
}

// lockIsFree reports whether no daemon has the lock.
func lockIsFree(path string) (bool, error) {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("cannot open the daemon's lock: %w", err)
	}
	defer file.Close()
	switch err := syscall.Flock(int(file.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); {
	case err == nil:
		return true, nil
	case errors.Is(err, syscall.EWOULDBLOCK):
		return false, nil
	default:
		return false, fmt.Errorf("cannot look at the daemon's lock: %w", err)
	}
}
