package gitlog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrLocked is what taking a clone's lock gives while another process has it; the error's text names that process.
var ErrLocked = errors.New("another process writes this clone's log")

// cloneLock is held by the one process that writes a clone's journal and index and moves its refs. The kernel frees it when the
// process ends, however it ends.
type cloneLock struct{ file *os.File }

// lockClone takes the lock without waiting. home, the KNOOT_HOME of the process, is left in the file beside its pid for whoever
// is refused. The directory <common>/knoot is made if it is not there. The error is ErrLocked if another process has it.
func lockClone(repo *Repository, home string) (*cloneLock, error) {
	dir := filepath.Join(repo.CommonDir, "knoot")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("the folder for this clone's log cannot be made: %w", err)
	}
	path := filepath.Join(dir, "lock")
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("this clone's lock cannot be opened: %w", err)
	}
	for {
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = fmt.Errorf("%w: %s", ErrLocked, lockHolder(file))
		_ = file.Close()
		return nil, err
	}
	if err == nil {
		err = file.Truncate(0)
	}
	if err == nil {
		_, err = file.WriteAt(fmt.Appendf(nil, "%d\n%s\n", os.Getpid(), home), 0)
	}
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("this clone's lock %s cannot be taken: %w", path, err)
	}
	return &cloneLock{file}, nil
}

// lockHolder describes the process that has the lock, by what it wrote into the file.
func lockHolder(file *os.File) string {
	content := make([]byte, 4<<10)
	n, _ := file.ReadAt(content, 0) // the end of the file comes as an error
	pid, rest, whole := strings.Cut(string(content[:n]), "\n")
	home, _, _ := strings.Cut(rest, "\n")
	if !whole || home == "" {
		return "a process that has just started; try again"
	}
	return fmt.Sprintf("process %s with KNOOT_HOME %s; wait for it, or stop it with `KNOOT_HOME=%s knoot daemon --stop`", pid, home, home)
}

// unlock frees the lock. The file stays: to remove it would let two processes lock two files of one name.
func (l *cloneLock) unlock() error {
	if err := l.file.Truncate(0); err != nil {
		return errors.Join(err, l.file.Close())
	}
	return l.file.Close()
}
