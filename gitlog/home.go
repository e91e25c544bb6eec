package gitlog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Home is the folder of this person's keys, settings and state on this machine: ~/.knoot, or KNOOT_HOME.
type Home struct{ Dir string }

// ErrNoHome is returned where neither KNOOT_HOME nor HOME says where the person's files are.
var ErrNoHome = errors.New("no home directory: set HOME, or KNOOT_HOME to the folder that holds your knoot keys")

// OpenHome finds the home folder by the environment. It makes nothing.
func OpenHome(getenv func(string) string) (*Home, error) {
	if dir := getenv("KNOOT_HOME"); dir != "" {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return nil, fmt.Errorf("KNOOT_HOME %q: %w", dir, err)
		}
		return &Home{Dir: abs}, nil
	}
	home := getenv("HOME")
	if home == "" {
		return nil, ErrNoHome
	}
	return &Home{Dir: filepath.Join(home, ".knoot")}, nil
}

// Path returns the path of one of the home's files.
func (h *Home) Path(elem ...string) string {
	return filepath.Join(append([]string{h.Dir}, elem...)...)
}

// Make creates the folder, readable by its owner alone.
func (h *Home) Make() error {
	if err := os.MkdirAll(h.Dir, 0o700); err != nil {
		return fmt.Errorf("cannot make %s, where your keys are kept: %w", h.Dir, err)
	}
	return nil
}

// ReplaceFile writes a file whole or not at all: a synced temporary file beside it, renamed over it.
func ReplaceFile(path string, content []byte, mode os.FileMode) error {
	return stageFile(path, content, mode, os.Rename)
}

// createFile writes a file that must not be there yet: whole, synced, or fs.ErrExist.
func createFile(path string, content []byte, mode os.FileMode) error {
	return stageFile(path, content, mode, os.Link)
}

// stageFile writes a synced temporary file beside path and has place bring it there.
func stageFile(path string, content []byte, mode os.FileMode, place func(staged, path string) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if err := f.Chmod(mode); err != nil {
		return err
	}
	if _, err := f.Write(content); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := place(f.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// lockFile waits for an exclusive flock on a file of its own, made if absent, and returns what frees it.
func lockFile(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}
