package daemon

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/gitlog"
)

// The folders of a worktree by which an agent in a sandbox speaks to the daemon. They are below .knoot, which git ignores.
const (
	lettersFolder = ".knoot"
	spoolFolder   = ".knoot/spool"   // requests of commands
	outboxFolder  = ".knoot/outbox"  // messages, as files named after whom they are for, or in folders named so
	refusedFolder = ".knoot/refused" // what could not be done, each with a file that says why
	whyEnd        = ".why"           // of that file's name
)

const (
	// maxSpooled is what one file in these folders may weigh, in bytes.
	maxSpooled = 64 << 10
	// maxLeft is how many requests wait at most; more are refused until a hook has sent some.
	maxLeft = 200
)

// Spooled is a request that a command could not make, because its process may not speak to the daemon: a file in .knoot/spool.
type Spooled struct {
	ID     string          `json:"id"` // 32 hex digits; what was done once is not done again
	Op     string          `json:"op"` // remember, cache, plan or msg
	At     gitlog.Millis   `json:"at"`
	Caller *socket.Caller  `json:"caller"` // without ancestors: numbers of processes mean nothing outside of a sandbox
	Body   json.RawMessage `json:"body"`   // paths in it are relative to the worktree's root
}

// Spool puts a request into the spool of a worktree, from where the next hook that runs outside of the sandbox has it done. ID
// and At are filled in.
func Spool(worktree string, s *Spooled, now gitlog.Millis) error {
	id := make([]byte, 16)
	_, _ = rand.Read(id)
	s.ID, s.At = hex.EncodeToString(id), now
	if s.Caller != nil {
		caller := *s.Caller
		caller.Ancestors = nil
		s.Caller = &caller
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if len(text) > maxSpooled {
		return &gitlog.Refusal{Sentence: fmt.Sprintf("it has %d bytes, and %d fit into %s: make it shorter", len(text), maxSpooled, spoolFolder)}
	}
	root, err := os.OpenRoot(worktree)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := makeFolder(root, spoolFolder); err != nil {
		return err
	}
	if waiting, _ := entries(root, spoolFolder); len(waiting) >= maxLeft {
		return &gitlog.Refusal{Sentence: fmt.Sprintf("%d requests wait in %s already: a hook outside of the sandbox sends them", len(waiting), spoolFolder)}
	}
	// Names are in the order of the requests.
	return writeWhole(root, fmt.Sprintf("%s/%013d-%s.json", spoolFolder, s.At, s.ID), text)
}

// makeFolder makes a folder below the worktree that is no link at any level.
func makeFolder(root *os.Root, folder string) error {
	at := ""
	for part := range strings.SplitSeq(folder, "/") {
		at = path.Join(at, part)
		if err := root.Mkdir(at, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if info, err := root.Lstat(at); err != nil {
			return err
		} else if !info.IsDir() {
			return &gitlog.Refusal{Sentence: at + " is in the way: it is no folder"}
		}
	}
	return nil
}

// isFolder reports whether a folder is there that is no link at any level.
func isFolder(root *os.Root, folder string) bool {
	at := ""
	for part := range strings.SplitSeq(folder, "/") {
		at = path.Join(at, part)
		if info, err := root.Lstat(at); err != nil || !info.IsDir() {
			return false
		}
	}
	return true
}

// writeWhole writes a file that nobody ever sees half of.
func writeWhole(root *os.Root, name string, text []byte) error {
	temporary := path.Join(path.Dir(name), "."+path.Base(name))
	f, err := root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = root.Rename(temporary, name)
	}
	if err != nil {
		_ = root.Remove(temporary)
	}
	return err
}

// entries are the names in a folder, sorted, without those that begin with a dot, which are being written.
func entries(root *os.Root, folder string) ([]string, error) {
	if !isFolder(root, folder) {
		return nil, nil
	}
	f, err := root.Open(folder)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(10 * maxLeft)
	if err != nil && len(names) == 0 {
		return nil, nil // none
	}
	names = slices.DeleteFunc(names, func(name string) bool { return strings.HasPrefix(name, ".") || strings.HasSuffix(name, "~") })
	slices.Sort(names)
	return names, nil
}

// letter is a file in one of the folders as it was read.
type letter struct {
	name string // from the worktree's root
	info fs.FileInfo
	text []byte
}

// readLetter reads a file, which has to be one of this person's, with one name, and of a size that makes sense. A *gitlog.Refusal
// says that it is not. A file that is written to meanwhile is an error of another kind: it is read later.
func readLetter(root *os.Root, name string) (*letter, error) {
	info, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	st, known := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular():
		return nil, &gitlog.Refusal{Sentence: "it is not a plain file"}
	case !known || int(st.Uid) != os.Geteuid():
		return nil, &gitlog.Refusal{Sentence: "it belongs to somebody else"}
	case st.Nlink != 1:
		return nil, &gitlog.Refusal{Sentence: "it has other names elsewhere (hard links)"}
	case info.Size() > maxSpooled:
		return nil, &gitlog.Refusal{Sentence: fmt.Sprintf("it has %d bytes, and may have %d", info.Size(), maxSpooled)}
	}
	// Should something else be in its place by now, opening that neither waits nor follows a link.
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text := make([]byte, maxSpooled+1)
	n := 0
	for n < len(text) {
		m, err := f.Read(text[n:])
		if n += m; err != nil || m == 0 {
			break
		}
	}
	after, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !unchanged(info, after) || int64(n) != info.Size() {
		return nil, errors.New("it is being written")
	}
	return &letter{name: name, info: info, text: text[:n]}, nil
}

func unchanged(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// remove removes a letter, unless somebody has put another one in its place.
func (l *letter) remove(root *os.Root) error {
	now, err := root.Lstat(l.name)
	if err != nil || !unchanged(l.info, now) {
		return nil
	}
	return root.Remove(l.name)
}

// refuse puts what cannot be done aside, with a file that says why. Nothing is overwritten.
func refuse(root *os.Root, name, why string) error {
	if err := makeFolder(root, refusedFolder); err != nil {
		return err
	}
	to := path.Join(refusedFolder, strings.ReplaceAll(strings.TrimPrefix(name, ".knoot/"), "/", "-"))
	for i := 2; ; i++ {
		if _, err := root.Lstat(to); errors.Is(err, fs.ErrNotExist) {
			break
		}
		if i > maxLeft {
			return fmt.Errorf("%s is full", refusedFolder)
		}
		to = fmt.Sprintf("%s-%d", strings.TrimSuffix(to, fmt.Sprintf("-%d", i-1)), i)
	}
	if err := root.Rename(name, to); err != nil {
		return err
	}
	return writeWhole(root, to+whyEnd, []byte(why+"\n"))
}

// Spooling is what waits in the folders of a worktree, and what was refused there.
type Spooling struct {
	Waiting int
	Oldest  gitlog.Millis // of those; 0: nothing waits
	Refused []string      // "FILE: why", by file
}

// ReadSpooling looks at the folders of a worktree, without the daemon.
func ReadSpooling(worktree string) (*Spooling, error) {
	root, err := os.OpenRoot(worktree)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	out := &Spooling{}
	waiting, err := letters(root)
	if err != nil {
		return nil, err
	}
	for _, name := range waiting {
		if info, err := root.Lstat(name); err == nil {
			out.Waiting++
			if at := gitlog.MillisOf(info.ModTime()); out.Oldest == 0 || at < out.Oldest {
				out.Oldest = at
			}
		}
	}
	refused, err := entries(root, refusedFolder)
	if err != nil {
		return nil, err
	}
	for _, name := range refused {
		if file, ok := strings.CutSuffix(name, whyEnd); ok {
			why := "nobody knows why"
			if l, err := readLetter(root, path.Join(refusedFolder, name)); err == nil {
				why = strings.TrimSpace(string(l.text))
			}
			out.Refused = append(out.Refused, path.Join(refusedFolder, file)+": "+why)
		}
	}
	return out, nil
}

// letters are the files in spool and outbox, in the order in which they are sent.
func letters(root *os.Root) ([]string, error) {
	var names []string
	spool, err := entries(root, spoolFolder)
	if err != nil {
		return nil, err
	}
	for _, name := range spool {
		names = append(names, path.Join(spoolFolder, name))
	}
	outbox, err := entries(root, outboxFolder)
	if err != nil {
		return nil, err
	}
	for _, to := range outbox {
		to = path.Join(outboxFolder, to)
		if !isFolder(root, to) {
			names = append(names, to)
			continue
		}
		inside, err := entries(root, to)
		if err != nil {
			return nil, err
		}
		for _, name := range inside {
			names = append(names, path.Join(to, name))
		}
	}
	return names, nil
}
