package gitlog

import (
	"bytes"
	"compress/zlib"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/adler32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-git/go-billy/v5"
	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/storage/filesystem"
)

// libraryObjects reads and writes loose objects itself, and reads packed ones through go-git's storage. The storage, not git.PlainOpen,
// which refuses repositories for extensions that do not touch objects.
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
	if kind, content, ok := l.readLoose(h, max); ok {
		return kind, content, nil
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

// readLoose reads an object that is a file of its own, as ours are until git packs them: a log's or a roster's history is many of
// these, and go-git takes three times as long for one. What is not there, or not plainly in order, is go-git's to judge.
func (l *libraryObjects) readLoose(h Hash, max int64) (kind string, content []byte, ok bool) {
	for _, dir := range l.dirs {
		name := filepath.Join(dir, string(h[:2]), string(h[2:]))
		info, err := os.Stat(name)
		if err != nil {
			continue
		}
		const header = 32 // type, space, size and a NUL are fewer
		if info.Size() > max+max/1000+header {
			return "", nil, false // not even zlib makes so much of so little
		}
		packed, err := os.ReadFile(name)
		if err != nil {
			return "", nil, false
		}
		plain, err := inflate(packed, max+header+1)
		if err != nil {
			return "", nil, false
		}
		head, content, found := bytes.Cut(plain, []byte{0})
		kind, size, spaced := strings.Cut(string(head), " ")
		n, err := strconv.ParseInt(size, 10, 64)
		if !found || !spaced || err != nil || n > max || n != int64(len(content)) {
			return "", nil, false
		}
		return kind, content, true
	}
	return "", nil, false
}

// inflaters are zlib readers to be used again: making one takes longer than reading one of our objects.
var inflaters sync.Pool

// inflate returns the first max bytes of what was packed.
func inflate(packed []byte, max int64) ([]byte, error) {
	source := bytes.NewReader(packed)
	r, ok := inflaters.Get().(io.ReadCloser)
	var err error
	if ok {
		err = r.(zlib.Resetter).Reset(source, nil)
	} else {
		r, err = zlib.NewReader(source)
	}
	if err != nil {
		return nil, err
	}
	defer inflaters.Put(r)
	return io.ReadAll(io.LimitReader(r, max))
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
	for part := range slices.Chunk(objects, writtenTogether) {
		for _, o := range part {
			go func() { failures <- l.writeOne(o) }()
		}
		var failed error
		for range part {
			failed = errors.Join(failed, <-failures)
		}
		if failed != nil {
			return failed
		}
	}
	return nil
}

// writtenTogether bounds the files that are open at once: a log that is sealed again or taken over has thousands of objects.
const writtenTogether = 64

// writeOne writes a loose object: a temporary file, synced, that then gets its name; after that the directory is synced. (go-git
// syncs nothing, and sets up a compressor for each object, which takes longer than all the rest.)
func (l *libraryObjects) writeOne(o rawObject) error {
	f, err := os.CreateTemp(l.dirs[0], "tmp_obj_") // git clears these away if we are killed
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // in vain once it has its name
	header := fmt.Appendf(nil, "%s %d\x00", o.kind, len(o.content))
	_, err = f.Write(zlibStored(append(header, o.content...)))
	if err = errors.Join(err, f.Chmod(0o444), f.Sync(), f.Close()); err != nil {
		return err
	}
	dir := filepath.Join(l.dirs[0], string(o.id[:2]))
	if err := makeObjectDir(dir); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), filepath.Join(dir, string(o.id[2:]))); err != nil {
		return err
	}
	return syncPath(dir)
}

// makeObjectDir makes a directory of loose objects if it is not there, with the mode of objects/ (core.sharedRepository).
func makeObjectDir(dir string) error {
	parent := filepath.Dir(dir)
	top, err := os.Stat(parent)
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, top.Mode()&os.ModePerm); errors.Is(err, os.ErrExist) {
		return nil
	} else if err != nil {
		return err
	}
	// The bits beyond permissions count: a shared repository's directories hand their group on.
	if err := os.Chmod(dir, top.Mode()&(os.ModePerm|os.ModeSetgid)); err != nil {
		return err
	}
	return syncPath(parent)
}

// zlibStored puts content into zlib's format as it is. What is sealed would get no smaller, and git compresses what it packs.
func zlibStored(content []byte) []byte {
	const most = 1<<16 - 1 // in a block
	out := append(make([]byte, 0, len(content)+len(content)/most*5+16), 0x78, 0x01)
	for rest, last := content, byte(0); last == 0; {
		n := min(len(rest), most)
		if n == len(rest) {
			last = 1
		}
		out = binary.LittleEndian.AppendUint16(append(out, last), uint16(n))
		out = binary.LittleEndian.AppendUint16(out, ^uint16(n))
		out = append(out, rest[:n]...)
		rest = rest[n:]
	}
	return binary.BigEndian.AppendUint32(out, adler32.Checksum(content))
}

func (l *libraryObjects) close() error { return nil }

// objectFS is the file system go-git reads through. Alternates are hidden from it, since libraryObjects follows them itself.
type objectFS struct {
	billy.Filesystem // rooted at the directory that holds objects/
}

func newObjectFS(objectDir string) objectFS { return objectFS{osfs.New(filepath.Dir(objectDir))} }

func (fs objectFS) Open(name string) (billy.File, error) {
	if filepath.Base(name) == "alternates" {
		return nil, &os.PathError{Op: "open", Path: name, Err: os.ErrNotExist}
	}
	return fs.Filesystem.Open(name)
}
