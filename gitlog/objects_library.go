package gitlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/go-git/go-billy/v5"
	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/storage/filesystem"
)

// libraryObjects reaches objects through go-git's storage. The storage, not git.PlainOpen, which refuses repositories for
// extensions that do not touch objects.
type libraryObjects struct {
	dirs []string // the repository's own objects directory, then its alternates'

	mu     sync.Mutex
	stores []*filesystem.Storage // one a directory; guarded by mu, as go-git's index is not safe
	packs  string                // what the pack directories looked like when the stores last indexed them; guarded by mu
}

// Objects above this are handed out as streams, so that a hostile one is not held in memory; ours are at most 1 MiB.
const streamedAbove = 2 << 20

// Above this many bytes of pack indexes git itself reads objects: it maps what go-git would decode into memory.
const maxIndexBytes = 32 << 20

// openLibraryObjects returns nil without an error where an objects directory has another name than go-git expects.
func openLibraryObjects(repo *Repository) (*libraryObjects, error) {
	dirs, err := alternateDirs(filepath.Join(repo.CommonDir, "objects"), 0)
	if err != nil {
		return nil, err
	}
	l := &libraryObjects{}
	for i, dir := range dirs {
		// Some tools make it a symbolic link, which go-git's file system does not follow out of its root.
		dir, err := filepath.EvalSymlinks(dir)
		if err != nil && i > 0 {
			continue // git goes on without an alternate that is gone, too
		}
		if err != nil {
			return nil, fmt.Errorf("the object directory of this repository is gone: %w", err)
		}
		if filepath.Base(dir) != "objects" {
			return nil, nil
		}
		l.dirs = append(l.dirs, dir)
		l.stores = append(l.stores, filesystem.NewStorageWithOptions(newObjectFS(dir), cache.NewObjectLRU(4*cache.MiByte),
			filesystem.Options{LargeObjectThreshold: streamedAbove}))
	}
	return l, nil
}

// alternateDirs returns dir and the objects directories that it borrows from. go-git follows neither relative paths nor a
// second level, and decodes an alternate's whole index for each object.
func alternateDirs(dir string, depth int) ([]string, error) {
	dirs := []string{dir}
	content, err := os.ReadFile(filepath.Join(dir, "info", "alternates"))
	if errors.Is(err, os.ErrNotExist) || depth > 5 { // git stops at five too
		return dirs, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the list of alternate object directories cannot be read: %w", err)
	}
	for line := range strings.SplitSeq(string(content), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		if !filepath.IsAbs(line) {
			line = filepath.Join(dir, line)
		}
		further, err := alternateDirs(filepath.Clean(line), depth+1)
		if err != nil {
			return nil, err
		}
		dirs = append(dirs, further...)
	}
	return dirs, nil
}

// indexBytes is the size of all pack indexes, which go-git holds in memory once an object is not loose.
func (l *libraryObjects) indexBytes() int64 {
	var sum int64
	for _, dir := range l.dirs {
		found, _ := filepath.Glob(filepath.Join(dir, "pack", "*.idx"))
		for _, name := range found {
			if info, err := os.Stat(name); err == nil {
				sum += info.Size()
			}
		}
	}
	return sum
}

func (l *libraryObjects) read(ctx context.Context, h Hash, max int64) (string, []byte, error) {
	if err := ctx.Err(); err != nil {
		return "", nil, err
	}
	id := plumbing.NewHash(string(h))
	l.mu.Lock()
	defer l.mu.Unlock()
	object, err := l.find(id)
	if err != nil && l.packsChanged() {
		// A fetch or a repack came in between: the indexes are those of packs that went.
		for _, store := range l.stores {
			store.Reindex()
		}
		object, err = l.find(id)
	}
	if errors.Is(err, plumbing.ErrObjectNotFound) {
		return "", nil, errMissingObject
	}
	if err != nil {
		return "", nil, fmt.Errorf("%w (%w)", errCorruptObject, err)
	}
	if object.Size() > max {
		return "", nil, errObjectTooLarge
	}
	r, err := object.Reader()
	if err != nil {
		return "", nil, fmt.Errorf("%w (%w)", errCorruptObject, err)
	}
	content, err := io.ReadAll(io.LimitReader(r, max+1))
	if err = errors.Join(err, r.Close()); err != nil {
		return "", nil, fmt.Errorf("%w (%w)", errCorruptObject, err)
	}
	return object.Type().String(), content, nil
}

func (l *libraryObjects) find(id plumbing.Hash) (plumbing.EncodedObject, error) {
	first := plumbing.ErrObjectNotFound
	for _, store := range l.stores {
		object, err := store.EncodedObject(plumbing.AnyObject, id)
		if err == nil {
			return object, nil
		}
		// A sound copy in an alternate is better than a damaged one here.
		if errors.Is(first, plumbing.ErrObjectNotFound) {
			first = err
		}
	}
	return nil, first
}

// packsChanged says whether the pack directories changed since it was last asked.
func (l *libraryObjects) packsChanged() bool {
	var now strings.Builder
	for _, dir := range l.dirs {
		found, _ := filepath.Glob(filepath.Join(dir, "pack", "*.idx"))
		fmt.Fprintln(&now, found)
	}
	if now.String() == l.packs {
		return false
	}
	l.packs = now.String()
	return true
}

func (l *libraryObjects) write(ctx context.Context, objects []rawObject) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	// Side by side, since what takes time is waiting for the disk, which takes several in one go.
	failures := make(chan error)
	for _, o := range objects {
		go func() { failures <- l.writeOne(o) }()
	}
	var all error
	for range objects {
		all = errors.Join(all, <-failures)
	}
	return all
}

func (l *libraryObjects) writeOne(o rawObject) error {
	// A storage of its own: one storage must not write twice at a time.
	store := filesystem.NewStorage(newObjectFS(l.dirs[0]), nil)
	object := store.NewEncodedObject()
	kind, err := plumbing.ParseObjectType(o.kind)
	if err != nil {
		return err
	}
	object.SetType(kind)
	w, err := object.Writer()
	if err != nil {
		return err
	}
	if _, err = w.Write(o.content); err != nil {
		return err
	}
	if err = w.Close(); err != nil {
		return err
	}
	written, err := store.SetEncodedObject(object)
	if err == nil && Hash(written.String()) != o.id {
		return fmt.Errorf("go-git stored %s as %s: report this", o.id, written)
	}
	return err
}

func (l *libraryObjects) close() error { return nil }

// objectFS is the file system go-git sees. What it adds: a file is synced before it gets its name, and its directory
// after (go-git syncs nothing); a new directory gets the mode of objects/ (core.sharedRepository); alternates are hidden, since
// libraryObjects follows them itself.
type objectFS struct {
	billy.Filesystem // rooted at the directory that holds objects/
}

func newObjectFS(objectDir string) objectFS { return objectFS{osfs.New(filepath.Dir(objectDir))} }

func (fs objectFS) real(name string) string { return filepath.Join(fs.Root(), name) }

func (fs objectFS) Open(name string) (billy.File, error) {
	if filepath.Base(name) == "alternates" {
		return nil, &os.PathError{Op: "open", Path: name, Err: os.ErrNotExist}
	}
	return fs.Filesystem.Open(name)
}

func (fs objectFS) TempFile(dir, prefix string) (billy.File, error) {
	f, err := os.CreateTemp(fs.real(dir), prefix)
	if err != nil {
		return nil, err
	}
	name, err := filepath.Rel(fs.Root(), f.Name())
	return &syncedFile{f, name}, err
}

func (fs objectFS) Rename(from, to string) error {
	dir := filepath.Dir(fs.real(to))
	parent := filepath.Dir(dir)
	top, err := os.Stat(parent)
	if err != nil {
		return err
	}
	// The bits beyond permissions count: a shared repository's directories hand their group on.
	const bits = os.ModePerm | os.ModeSetgid
	switch err := os.Mkdir(dir, top.Mode()&os.ModePerm); {
	case err == nil:
		if err := os.Chmod(dir, top.Mode()&bits); err != nil {
			return err
		}
		if err := syncPath(parent); err != nil {
			return err
		}
	case !errors.Is(err, os.ErrExist):
		return err
	}
	if err := os.Rename(fs.real(from), fs.real(to)); err != nil {
		return err
	}
	return syncPath(dir)
}

// Chmod is how go-git makes an object read-only.
func (fs objectFS) Chmod(name string, mode os.FileMode) error { return os.Chmod(fs.real(name), mode) }

// syncedFile is a temporary file that is on the disk once it is closed.
type syncedFile struct {
	*os.File
	name string // relative to the file system's root
}

func (f *syncedFile) Name() string  { return f.name }
func (f *syncedFile) Lock() error   { return nil }
func (f *syncedFile) Unlock() error { return nil }
func (f *syncedFile) Close() error  { return errors.Join(f.Sync(), f.File.Close()) }
