package gitlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The three namespaces. What this device writes is never the target of a fetch; what a fetch brings is never read before it
// was checked and copied to keptRefs.
const (
	ownRefs   = "refs/knoot/"
	keptRefs  = "refs/knoot-kept/"
	inboxRefs = "refs/knoot-remote/"
)

// refPlace is what the part of a ref behind its namespace says: a log's generation, the roster, or a request to join.
// Exactly one of Log, Roster and Request is set.
type refPlace struct {
	Log        LogKind // 0: no log
	Writer     WriterID
	Generation uint64 // from 1
	Roster     bool
	Request    *DeviceID
}

// maxGenerationDigits keeps a junk ref from naming a generation that no log reaches in a lifetime.
const maxGenerationDigits = 9

// parseRefPlace reads the part of a ref behind its namespace: "memory/<48 hex>/<n>", "audit/<48 hex>/<n>", "team/roster" or
// "team/request/<32 hex>". Whatever else stands there is junk and is parsed no further.
func parseRefPlace(tail string) (refPlace, bool) {
	parts := strings.Split(tail, "/")
	switch {
	case tail == "team/roster":
		return refPlace{Roster: true}, true
	case len(parts) == 3 && parts[0] == "team" && parts[1] == "request":
		device, err := ParseDeviceID(parts[2])
		return refPlace{Request: &device}, err == nil
	case len(parts) == 3 && (parts[0] == "memory" || parts[0] == "audit"):
		place := refPlace{Log: MemoryLog}
		if parts[0] == "audit" {
			place.Log = AuditLog
		}
		var err error
		if place.Writer, err = ParseWriterID(parts[1]); err != nil {
			return refPlace{}, false
		}
		n := parts[2]
		if n == "" || n[0] < '1' || n[0] > '9' || len(n) > maxGenerationDigits {
			return refPlace{}, false
		}
		place.Generation, err = strconv.ParseUint(n, 10, 64)
		return place, err == nil
	}
	return refPlace{}, false
}

// String is the inverse of parseRefPlace.
func (p refPlace) String() string {
	switch {
	case p.Roster:
		return "team/roster"
	case p.Request != nil:
		return "team/request/" + p.Request.String()
	case p.Log == AuditLog:
		return fmt.Sprintf("audit/%s/%d", p.Writer, p.Generation)
	}
	return fmt.Sprintf("memory/%s/%d", p.Writer, p.Generation)
}

// ref is a ref as git lists it.
type ref struct {
	Name   string
	Hash   Hash
	Symref string // the ref it points to; "" for a plain one
}

// refStore reads and moves a clone's refs through git, whose locks and transactions hold between all processes.
type refStore struct {
	repo *Repository
	git  git
}

// With core.warnAmbiguousRefs git looks for a ref of the same name as each hash that update-ref is given, and so reads
// packed-refs before it has locked anything. It takes the file for unchanged as long as inode, size and whole seconds are
// the same, which two runs of `git pack-refs` in one second leave them: the compare-and-swap then goes by what the ref was,
// and takes back what another process had moved meanwhile (seen, with git 2.39). Without it the first look is under the lock.
func openRefs(repo *Repository) refStore {
	g := repo.git()
	g.config = []string{"core.warnAmbiguousRefs=false"}
	return refStore{repo: repo, git: g}
}

// list returns the refs below the prefixes, each of which ends in a slash or is a whole name, sorted by name. It costs one process
// and opens no object, so it is also how to learn that something moved. broken names those that git cannot read (an empty
// file, a name that is none).
func (r refStore) list(ctx context.Context, prefixes ...string) (refs []ref, broken []string, err error) {
	args := append([]string{"for-each-ref", "--format=%(objectname) %(refname) %(symref)"}, prefixes...)
	out, stderr, err := r.git.run(ctx, nil, args...)
	if err != nil {
		return nil, nil, err
	}
	for line := range strings.SplitSeq(string(out), "\n") {
		fields := strings.Split(line, " ")
		if len(fields) == 3 {
			refs = append(refs, ref{Hash: Hash(fields[0]), Name: fields[1], Symref: fields[2]})
		}
	}
	for line := range strings.SplitSeq(stderr, "\n") {
		for _, sign := range []string{"warning: ignoring broken ref ", "warning: ignoring ref with broken name ", "warning: ignoring dangling symref "} {
			if name, ok := strings.CutPrefix(line, sign); ok && hasPrefixOf(name, prefixes) {
				broken = append(broken, name)
			}
		}
	}
	return refs, broken, nil
}

func hasPrefixOf(name string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// read returns where a ref points, "" if there is none.
func (r refStore) read(ctx context.Context, name string) (Hash, error) {
	refs, _, err := r.list(ctx, name)
	if err != nil {
		return "", err
	}
	return hashOf(refs, name), nil
}

// hashOf returns where a ref of a list points, "" if it is not in it.
func hashOf(refs []ref, name string) Hash {
	at := slices.IndexFunc(refs, func(r ref) bool { return r.Name == name })
	if at < 0 {
		return ""
	}
	return refs[at].Hash
}

// refChange moves one ref, if it still is where it was.
type refChange struct {
	Name string
	Old  Hash // "": it must not exist
	New  Hash // "": it is deleted
}

var (
	// errRefMoved: a compare-and-swap found another value than the old one. Read again, and decide again.
	errRefMoved = errors.New("the ref moved meanwhile")
	// errRefBusy: git's lock file on the ref or on packed-refs stayed for as long as we waited, or its directory, emptied by
	// `git pack-refs`, was removed each time that we had made it.
	errRefBusy = errors.New("another git process holds the ref's lock")
)

// lockedRefAttempts and lockedRefPause bound the wait for somebody's `git pack-refs`; git itself waits 0.1 to 1 s in each.
const (
	lockedRefAttempts = 5
	lockedRefPause    = 50 * time.Millisecond
)

// change moves refs in one transaction: all or none. On return they are synced, their directories too. errRefMoved if one is not
// where Old says; errRefBusy if a lock stays. New objects must be in the clone.
func (r refStore) change(ctx context.Context, changes ...refChange) error {
	var input bytes.Buffer
	zero := zeroHash(r.repo.ObjectFormat)
	for _, c := range changes {
		old := c.Old
		if old == "" {
			old = zero
		}
		input.WriteString("option no-deref\x00")
		if c.New == "" {
			fmt.Fprintf(&input, "delete %s\x00%s\x00", c.Name, old)
		} else {
			fmt.Fprintf(&input, "update %s\x00%s\x00%s\x00", c.Name, c.New, old)
		}
	}
	for attempt := 1; ; attempt++ {
		_, stderr, err := r.git.run(ctx, input.Bytes(), "update-ref", "--stdin", "-z")
		if err == nil {
			return r.sync(changes)
		}
		switch {
		case strings.Contains(stderr, ".lock'"), strings.Contains(stderr, "Unable to create"),
			strings.Contains(stderr, "unable to create directory"):
			if attempt == lockedRefAttempts {
				return fmt.Errorf("%w: %w", errRefBusy, err)
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(lockedRefPause):
			}
		case strings.Contains(stderr, "but expected"), strings.Contains(stderr, "already exists"),
			strings.Contains(stderr, "unable to resolve reference"), strings.Contains(stderr, "reference is missing"):
			return fmt.Errorf("%w: %w", errRefMoved, err)
		default:
			return err
		}
	}
}

// sync makes moved refs survive a power cut. Git syncs the file of a ref since 2.36 (core.fsync) and its directory never. With
// a ref format other than files there is no such file, and git's own syncing stands.
func (r refStore) sync(changes []refChange) error {
	for _, c := range changes {
		if c.New == "" {
			continue // one that comes back is deleted again
		}
		file := filepath.Join(r.repo.CommonDir, filepath.FromSlash(c.Name))
		if err := syncPath(file); errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return err
		}
		top := filepath.Dir(file)
		if c.Old == "" {
			top = filepath.Join(r.repo.CommonDir, "refs")
		}
		if err := syncUpwards(filepath.Dir(file), top); err != nil {
			return err
		}
	}
	return nil
}

// create is change for one ref that is not there.
func (r refStore) create(ctx context.Context, name string, to Hash) error {
	return r.change(ctx, refChange{Name: name, New: to})
}

// errNotForward: the new tip does not descend from the old one.
var errNotForward = errors.New("the new tip does not descend from the old one")

// maxChain bounds a walk through what a host sent. A roster has at most 100,000 entries.
const maxChain = 1 << 20

// inboxOf returns the namespace into which a remote's refs are fetched.
func inboxOf(remote string) string { return inboxRefs + remote + "/" }

// junk finds what must not stay below an inbox or in keptRefs: names that are not ours in shape (each of which may collide
// with a right one, and then makes the person's own `git fetch` fail), symbolic refs, refs that git cannot read, refs to
// objects that are not here, and requests to join beyond those that a fetch takes. namespace ends in a slash; refs and unreadable are
// what list said of it, and may hold others.
func (r refStore) junk(ctx context.Context, objects *objectStore, namespace string, refs []ref, unreadable []string) ([]ref, error) {
	if !strings.HasPrefix(namespace, inboxRefs) && namespace != keptRefs {
		return nil, fmt.Errorf("%s is not ours to clean", namespace)
	}
	broken, err := r.symbolicFiles(namespace)
	if err != nil {
		return nil, err
	}
	refs = slices.DeleteFunc(slices.Clone(refs), func(f ref) bool { return !strings.HasPrefix(f.Name, namespace) })
	broken = slices.DeleteFunc(broken, func(name string) bool {
		return slices.ContainsFunc(refs, func(f ref) bool { return f.Name == name })
	})
	for _, name := range unreadable {
		if strings.HasPrefix(name, namespace) && !slices.Contains(broken, name) {
			broken = append(broken, name)
		}
	}
	var found []ref
	for _, name := range broken {
		found = append(found, ref{Name: name})
	}
	requests := 0
	for _, f := range refs {
		place, shaped := parseRefPlace(strings.TrimPrefix(f.Name, namespace))
		if place.Request != nil {
			if requests++; requests > maxRequestsFetched {
				shaped = false // the person's own `git fetch` brings all that there are
			}
		}
		if shaped && f.Symref == "" {
			sound, err := objects.has(ctx, f.Hash, "commit", maxCommitBytes)
			if err != nil && !errors.Is(err, errObjectTooLarge) {
				return nil, err
			}
			if sound {
				continue
			}
		}
		found = append(found, f)
	}
	return found, nil
}

// symbolicFiles returns the symbolic refs that are files below a namespace: git lists none that points to nothing, and a fetch
// would write through it.
func (r refStore) symbolicFiles(namespace string) (names []string, err error) {
	err = r.walk(namespace, func(path string, entry fs.DirEntry) error {
		content, err := os.ReadFile(path)
		if err == nil && bytes.HasPrefix(content, []byte("ref:")) {
			name, err := filepath.Rel(r.repo.CommonDir, path)
			names = append(names, filepath.ToSlash(name))
			return err
		}
		return nil // it went meanwhile, or git's own listing deals with it
	})
	return names, err
}

// walk visits the files below a namespace; directories that go meanwhile are no error.
func (r refStore) walk(namespace string, visit func(path string, entry fs.DirEntry) error) error {
	return filepath.WalkDir(filepath.Join(r.repo.CommonDir, filepath.FromSlash(namespace)), func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || entry.IsDir() {
			return err
		}
		return visit(path, entry)
	})
}

// removeJunk deletes what junk finds and returns the names. It goes on past a ref that cannot be deleted and returns that
// error with what it did.
func (r refStore) removeJunk(ctx context.Context, objects *objectStore, namespace string) (removed []string, err error) {
	refs, unreadable, err := r.list(ctx, namespace)
	if err != nil {
		return nil, err
	}
	return r.removeJunkOf(ctx, objects, namespace, refs, unreadable)
}

// removeJunkOf is removeJunk for refs that were listed already.
func (r refStore) removeJunkOf(ctx context.Context, objects *objectStore, namespace string, refs []ref, unreadable []string) (removed []string, err error) {
	found, err := r.junk(ctx, objects, namespace, refs, unreadable)
	if err != nil {
		return nil, err
	}
	var failures error
	if r.removeAll(ctx, found) == nil {
		for _, f := range found {
			removed = append(removed, f.Name)
		}
		found = nil
	}
	for _, f := range found { // some of it git cannot remove in one go
		if err := r.remove(ctx, f.Name); err != nil {
			failures = errors.Join(failures, fmt.Errorf("the junk ref %q cannot be removed: %w", f.Name, err))
			continue
		}
		removed = append(removed, f.Name)
	}
	return removed, errors.Join(failures, r.removeStaleLocks(namespace))
}

// removeAll deletes refs in one transaction, all or none.
func (r refStore) removeAll(ctx context.Context, refs []ref) error {
	if len(refs) == 0 {
		return nil
	}
	var input bytes.Buffer
	for _, f := range refs {
		fmt.Fprintf(&input, "option no-deref\x00delete %s\x00\x00", f.Name)
	}
	_, _, err := r.git.run(ctx, input.Bytes(), "update-ref", "--stdin", "-z")
	return err
}

// remove deletes a ref whatever it points to, packed or not.
func (r refStore) remove(ctx context.Context, name string) error {
	_, _, err := r.git.run(ctx, nil, "update-ref", "--no-deref", "-d", name)
	if err == nil || ctx.Err() != nil {
		return err
	}
	// Git refuses to delete what it cannot read, such as an empty file. Its lock keeps others off it.
	file := filepath.Join(r.repo.CommonDir, filepath.FromSlash(name))
	if !strings.HasPrefix(file, filepath.Join(r.repo.CommonDir, "refs")+string(filepath.Separator)) {
		return err
	}
	if info, statErr := os.Lstat(file); statErr != nil || info.IsDir() {
		return err
	}
	lock, lockErr := os.OpenFile(file+".lock", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if lockErr != nil {
		return errors.Join(err, lockErr)
	}
	return errors.Join(lock.Close(), os.Remove(file), os.Remove(file+".lock"))
}

// staleLockAge is far above the time for which git holds a ref's lock, and a machine's sleep would still have to fall into it.
const staleLockAge = 10 * time.Minute

// removeStaleLocks deletes the lock files that a killed git left below a namespace of ours; with one, the ref can never move
// again. Lock files of others' refs are left alone.
func (r refStore) removeStaleLocks(namespace string) error {
	if namespace != ownRefs && namespace != keptRefs && !strings.HasPrefix(namespace, inboxRefs) {
		return fmt.Errorf("%s is not ours to clean", namespace)
	}
	return r.walk(namespace, func(path string, entry fs.DirEntry) error {
		if !strings.HasSuffix(path, ".lock") {
			return nil
		}
		info, err := entry.Info()
		if err != nil || time.Since(info.ModTime()) < staleLockAge {
			return nil // it went, or it is in use
		}
		return os.Remove(path)
	})
}
