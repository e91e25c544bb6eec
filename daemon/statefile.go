package daemon

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/gitlog"
)

// What the daemon must not forget is in files of records, each sealed under the device's local key; the one of sessions
// (stateRecord) says what hooks reported and what they were told. They are only ever appended to, and written anew when
// the daemon starts.
//
// A file is a header of 16 bytes, then records: their length as uint32, big-endian, and so many bytes, which open with
// the file's name and the record's number (from 0). A record is a JSON object. An incomplete record at the end is what a
// crash leaves; it is cut off.
const (
	stateHeader = "knoot state 1\n\x00\x00"
	// maxStateRecord bounds a record; a longer length is damage.
	maxStateRecord = 4 << 20
	// stateKept is how long told texts, and sessions of which nothing is heard, are kept.
	stateKept = gitlog.Millis(7 * 24 * 60 * 60 * 1000)
	// stateRewrite is how much the file of sessions may grow until a running daemon writes it anew.
	stateRewrite = 32 << 20
)

// stateName is the name of the state file that a daemon has for something, such as "sessions". Where socket and lock are not
// in the home directory, several hosts may share it, each with a daemon of its own, so each has a file of its own.
func stateName(what string, loc socket.Location) string {
	if loc.Dir == loc.Home {
		return what
	}
	host, err := os.Hostname()
	if err != nil || host == "" {
		return what
	}
	return what + "@" + strings.Map(func(r rune) rune {
		if r == '/' || r == 0 {
			return '_'
		}
		return r
	}, host)
}

// stateFile is an open file of records R. Its owner has a lock around it.
type stateFile[R any] struct {
	file *os.File
	key  [32]byte
	name string
	next uint64 // number of the next record
	size int64
	// unsynced says that something was written since the last sync.
	unsynced bool
}

// openStateFile reads the file at path, cuts off an incomplete end, and leaves it open for appending. Each record is
// given to visit, in order; one that does not open is skipped and counted.
func openStateFile[R any](path string, key [32]byte, visit func(*R)) (*stateFile[R], int, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, 0, fmt.Errorf("cannot open the daemon's state: %w", err)
	}
	s := &stateFile[R]{file: file, key: key, name: filepath.Base(path)}
	damaged, err := s.replay(visit)
	if err != nil {
		_ = file.Close()
		return nil, 0, err
	}
	return s, damaged, nil
}

func (s *stateFile[R]) replay(visit func(*R)) (damaged int, err error) {
	text, err := io.ReadAll(s.file)
	if err != nil {
		return 0, fmt.Errorf("cannot read the daemon's state: %w", err)
	}
	end, next, damaged := scanState(text, &s.key, s.name, visit)
	if end == 0 {
		if _, err := s.file.WriteAt([]byte(stateHeader), 0); err != nil {
			return 0, fmt.Errorf("cannot write the daemon's state: %w", err)
		}
		end = int64(len(stateHeader))
	}
	if err := s.file.Truncate(end); err != nil {
		return 0, fmt.Errorf("cannot write the daemon's state: %w", err)
	}
	if _, err := s.file.Seek(end, io.SeekStart); err != nil {
		return 0, err
	}
	s.next, s.size = next, end
	return damaged, nil
}

// scanState visits the records in a state file's bytes. end is where the last whole one ends; 0: this is no state file.
func scanState[R any](text []byte, key *[32]byte, name string, visit func(*R)) (end int64, next uint64, damaged int) {
	if !strings.HasPrefix(string(text[:min(len(text), len(stateHeader))]), stateHeader) {
		return 0, 0, 0
	}
	rest := text[len(stateHeader):]
	for len(rest) >= 4 {
		n := binary.BigEndian.Uint32(rest)
		if n > maxStateRecord || uint64(n) > uint64(len(rest)-4) {
			break
		}
		sealed := rest[4 : 4+n]
		rest = rest[4+n:]
		record := new(R)
		plain, err := gitlog.OpenRecord(key, stateContext(name), next, sealed)
		if err == nil {
			err = json.Unmarshal(plain, record)
		}
		if err == nil {
			visit(record)
		} else {
			damaged++
		}
		next++
	}
	return int64(len(text) - len(rest)), next, damaged
}

func stateContext(name string) string { return "state/" + name }

// append writes records in one write. What is written survives this process's end, not the machine's; see sync.
func (s *stateFile[R]) append(records ...*R) error {
	var out []byte
	for i, r := range records {
		plain, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("cannot encode the daemon's state: %w", err)
		}
		sealed := gitlog.SealRecord(&s.key, stateContext(s.name), s.next+uint64(i), plain)
		out = binary.BigEndian.AppendUint32(out, uint32(len(sealed)))
		out = append(out, sealed...)
	}
	if _, err := s.file.WriteAt(out, s.size); err != nil {
		// Half of it may stand there (a full disk). The next record is written over it, at the same place.
		return fmt.Errorf("cannot write the daemon's state: %w", err)
	}
	s.size += int64(len(out))
	s.next += uint64(len(records))
	s.unsynced = true
	return nil
}

// sync makes what was appended survive the machine.
func (s *stateFile[R]) sync() error {
	if !s.unsynced {
		return nil
	}
	err := s.file.Sync()
	s.unsynced = err != nil
	return err
}

func (s *stateFile[R]) close() error {
	_ = s.sync()
	return s.file.Close()
}

// rewriteState puts records in the place of the file at path, and returns it open. A reader that has the old file open
// goes on reading that.
func rewriteState[R any](path string, key [32]byte, records []*R) (*stateFile[R], error) {
	s, err := writeState(path, key, records)
	if err != nil {
		return nil, err
	}
	if err := s.install(); err != nil {
		s.discard()
		return nil, err
	}
	return s, nil
}

// writeState writes records to a file beside the one at path, whose place it takes with install. It is synced.
func writeState[R any](path string, key [32]byte, records []*R) (*stateFile[R], error) {
	file, err := os.OpenFile(path+".new", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot write the daemon's state: %w", err)
	}
	s := &stateFile[R]{file: file, key: key, name: filepath.Base(path), size: int64(len(stateHeader))}
	_, err = file.WriteAt([]byte(stateHeader), 0)
	for len(records) > 0 && err == nil {
		n := min(len(records), 64)
		err = s.append(records[:n]...)
		records = records[n:]
	}
	if err == nil {
		err = file.Sync()
	}
	if err != nil {
		s.discard()
		return nil, fmt.Errorf("cannot write the daemon's state: %w", err)
	}
	s.unsynced = false
	return s, nil
}

// install puts what writeState wrote in its place.
func (s *stateFile[R]) install() error {
	if err := os.Rename(s.file.Name(), strings.TrimSuffix(s.file.Name(), ".new")); err != nil {
		return fmt.Errorf("cannot write the daemon's state: %w", err)
	}
	return nil
}

// replace puts what writeState wrote, and the records that were appended to old meanwhile, in the place of old, which is closed.
// It is not synced: whoever calls it has a lock that others wait for.
func (s *stateFile[R]) replace(old *stateFile[R], since []*R) error {
	var err error
	if len(since) > 0 {
		err = s.append(since...)
	}
	if err == nil {
		err = s.install()
	}
	if err != nil {
		s.discard()
		return err
	}
	_ = old.file.Close() // it is no longer at its path
	return nil
}

// discard drops what writeState wrote and install did not put anywhere.
func (s *stateFile[R]) discard() {
	_ = s.file.Close()
	_ = os.Remove(s.file.Name())
}

// readStates visits the records of all files of sessions in a home directory, file by file; a daemon may be running. key is the
// device's local key.
func readStates(home string, key *[32]byte, visit func(*stateRecord)) error {
	dir := filepath.Join(home, "state")
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot read the daemon's state: %w", err)
	}
	for _, e := range entries {
		if name := e.Name(); (name == "sessions" || strings.HasPrefix(name, "sessions@")) && !strings.HasSuffix(name, ".new") {
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				return fmt.Errorf("cannot read the daemon's state: %w", err)
			}
			scanState(text, key, name, visit)
		}
	}
	return nil
}
