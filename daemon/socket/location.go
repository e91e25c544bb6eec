package socket

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// Location says where the daemon of this person is on this host.
type Location struct {
	Home string // KNOOT_HOME, or .knoot in the home directory: keys, settings, log, failures
	Dir  string // of socket and lock: Home, or a directory of this host alone
}

// longestSocket is what fits in sockaddr_un with its closing zero byte: 104 bytes on macOS, 108 on Linux.
const longestSocket = 103

// ErrNoHome is returned by Locate when the environment names neither KNOOT_HOME nor HOME.
var ErrNoHome = errors.New("there is no home directory: set HOME, or KNOOT_HOME to a directory of your own")

// Locate finds the daemon from an environment; getenv is os.Getenv outside tests. Nothing is opened or made. The socket is in
// $XDG_RUNTIME_DIR/knoot where that is set and KNOOT_HOME is not, because a home may be on a file system that several hosts
// share, and each host has a daemon of its own. Relative directories count as unset: a hook's working directory moves.
func Locate(getenv func(string) string) (Location, error) {
	if home := getenv("KNOOT_HOME"); filepath.IsAbs(home) {
		home = filepath.Clean(home)
		return Location{Home: home, Dir: home}, nil
	}
	home := getenv("HOME")
	if !filepath.IsAbs(home) {
		return Location{}, ErrNoHome
	}
	home = filepath.Join(home, ".knoot")
	if run := getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(run) {
		return Location{Home: home, Dir: filepath.Join(run, "knoot")}, nil
	}
	return Location{Home: home, Dir: home}, nil
}

// Socket is the path of the daemon's unix socket.
func (l Location) Socket() string { return filepath.Join(l.Dir, "knootd.sock") }

// Lock is the path of the file that the running daemon has locked.
func (l Location) Lock() string { return filepath.Join(l.Dir, "knootd.lock") }

// Make creates Home and Dir, for this user alone, and takes from others what rights they have on them. Who listens calls
// it first: a client refuses a directory that others may write to.
func (l Location) Make() error {
	for _, dir := range []string{l.Home, l.Dir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("cannot make %s: %w", dir, err)
		}
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if !ownedByMe(info) {
			return fmt.Errorf("%s belongs to another user; set KNOOT_HOME to a directory of your own", dir)
		}
		if info.Mode().Perm()&0o077 != 0 {
			if err := os.Chmod(dir, 0o700); err != nil {
				return fmt.Errorf("cannot close %s to other users: %w", dir, err)
			}
		}
	}
	return l.checkLength()
}

func (l Location) checkLength() error {
	if n := len(l.Socket()); n > longestSocket {
		return fmt.Errorf("the socket's path %s has %d bytes and the system takes %d; set KNOOT_HOME to a shorter directory", l.Socket(), n, longestSocket)
	}
	return nil
}

// check refuses a socket that somebody else could have put there. What is sent to it names files and quotes prompts, and
// what comes from it an agent takes for its user's word.
func (l Location) check() error {
	dir, err := os.Stat(l.Dir)
	if err != nil {
		return err
	}
	if !ownedByMe(dir) || dir.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%w: others may write to %s; make it yours and run `chmod 700 %s`", ErrForeign, l.Dir, l.Dir)
	}
	sock, err := os.Lstat(l.Socket())
	if err != nil {
		return err
	}
	if sock.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("%w: %s is not a socket; remove it", ErrForeign, l.Socket())
	}
	if !ownedByMe(sock) {
		return fmt.Errorf("%w: %s belongs to another user; remove it, or set KNOOT_HOME to a directory of your own", ErrForeign, l.Socket())
	}
	return nil
}

func ownedByMe(info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}
