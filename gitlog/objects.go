package gitlog

import (
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Hash is the id of a git object in lower-case hex: 40 digits, or 64 in a SHA-256 repository; "" is no object.
type Hash string

// Bytes returns the id's 20 or 32 bytes; nil for "" and for text that is no hex.
func (h Hash) Bytes() []byte {
	raw, err := hex.DecodeString(string(h))
	if err != nil || len(raw) == 0 {
		return nil
	}
	return raw
}

// valid says whether h can name an object of a repository with the given object format.
func (h Hash) valid(objectFormat string) bool {
	if len(h) != 2*hashSize(objectFormat) {
		return false
	}
	for i := range len(h) {
		if c := h[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func hashSize(objectFormat string) int {
	if objectFormat == "sha256" {
		return sha256.Size
	}
	return sha1.Size
}

// zeroHash is how git writes "no object" where a ref is created or deleted.
func zeroHash(objectFormat string) Hash { return Hash(strings.Repeat("0", 2*hashSize(objectFormat))) }

func newHash(objectFormat string) hash.Hash {
	if objectFormat == "sha256" {
		return sha256.New()
	}
	return sha1.New()
}

func hashObject(objectFormat, kind string, content []byte) Hash {
	h := newHash(objectFormat)
	fmt.Fprintf(h, "%s %d\x00", kind, len(content))
	h.Write(content)
	return Hash(hex.EncodeToString(h.Sum(nil)))
}

var (
	// errMissingObject: the object is not in this clone, whatever the reason: never there, pruned, cut off by a shallow
	// fetch, or left out by a partial clone.
	errMissingObject = errors.New("the object is not in this clone")
	// errCorruptObject: the object is there, and its bytes are not those that its id promises, or not of the wanted shape.
	errCorruptObject = errors.New("the object is damaged")
	// errObjectTooLarge: the object is larger than any of ours can be.
	errObjectTooLarge = errors.New("the object is too large to be knoot's")
)

// rawObjects is where objects are kept: the files of the repository, or processes of the person's git. Implementations may be used from
// several goroutines. They check nothing: objectStore compares what was read with its id.
type rawObjects interface {
	// read returns an object's type ("commit", "tree", "blob", "tag") and content. Errors: errMissingObject; errObjectTooLarge
	// for content of more than max bytes, without holding it in memory; errCorruptObject.
	read(ctx context.Context, h Hash, max int64) (kind string, content []byte, err error)
	// write stores objects, all or an error; on return each is synced, its directory too. Writing what is there already is no
	// error.
	write(ctx context.Context, objects []rawObject) error
	close() error
}

// rawObject is an object to be written, its id known.
type rawObject struct {
	id      Hash
	kind    string
	content []byte
}

// objectStore reads and writes the objects of logs: commits with one parent or none, and flat trees of blobs.
type objectStore struct {
	format string
	reader rawObjects
	writer rawObjects
}

// openObjects chooses how to reach the objects: their files, and go-git for packs, where it can (an append costs 2 ms, and 10 ms with
// processes), else git itself. bulk chooses git itself for reading even there: over a whole history it is the faster one, and
// indifferent to the size of the repository's packs.
func openObjects(ctx context.Context, repo *Repository, bulk bool) (*objectStore, error) {
	processes := newProcessObjects(repo)
	store := &objectStore{format: repo.ObjectFormat, reader: processes, writer: processes}
	if repo.ObjectFormat != "sha1" {
		return store, nil
	}
	known, err := extensionsKnown(ctx, repo)
	if err != nil || !known {
		return store, err
	}
	library, err := openLibraryObjects(repo)
	if err != nil {
		return store, err
	}
	if library == nil {
		return store, nil
	}
	store.writer = library
	if !bulk && library.indexBytes() <= maxIndexBytes {
		store.reader = library
	}
	return store, nil
}

// extensionsKnown says whether go-git's object storage can be trusted with the repository: an extension that this version
// of knoot has not heard of may change how objects are stored.
func extensionsKnown(ctx context.Context, repo *Repository) (bool, error) {
	// git goes by those in the repository's own file alone, and asking it costs a process.
	if text, err := os.ReadFile(filepath.Join(repo.CommonDir, "config")); err == nil && !bytes.Contains(bytes.ToLower(text), []byte("extensions")) {
		return true, nil
	}
	out, err := repo.git().output(ctx, "config", "--name-only", "--get-regexp", `^extensions\.`)
	var failed *gitError
	if errors.As(err, &failed) && failed.exit == 1 {
		return true, nil // none is set
	}
	if err != nil {
		return false, err
	}
	for name := range strings.SplitSeq(out, "\n") {
		switch strings.ToLower(name) {
		case "extensions.objectformat", "extensions.worktreeconfig", "extensions.partialclone", "extensions.preciousobjects",
			"extensions.refstorage", "extensions.relativeworktrees", "extensions.noop", "extensions.noop-v1":
		default:
			return false, nil
		}
	}
	return true, nil
}

func (s *objectStore) close() error {
	err := s.reader.close()
	if s.writer != s.reader {
		err = errors.Join(err, s.writer.close())
	}
	return err
}

// readObject reads an object of the given type and checks that its content is what its id promises.
func (s *objectStore) readObject(ctx context.Context, h Hash, kind string, max int64) ([]byte, error) {
	if !h.valid(s.format) {
		return nil, fmt.Errorf("%q is no id of a %s object", h, s.format)
	}
	found, content, err := s.reader.read(ctx, h, max)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", kind, h, err)
	}
	if found != kind {
		return nil, fmt.Errorf("%s is a %s where a %s belongs: %w", h, found, kind, errCorruptObject)
	}
	if hashObject(s.format, kind, content) != h {
		return nil, fmt.Errorf("%s %s has other content than its id says: %w", kind, h, errCorruptObject)
	}
	return content, nil
}

// logCommit is a commit of a log, as git stores it.
type logCommit struct {
	ID     Hash
	Tree   Hash
	Parent Hash      // "" at a generation's start
	Time   time.Time // whole seconds, the committer's, which is the author's too in all that knoot writes
}

// maxCommitBytes bounds a commit's content; ours are about 200 bytes.
const maxCommitBytes = 16 << 10

// readCommit reads a commit of at most one parent. A merge, or anything that git would not have written, is
// errCorruptObject.
func (s *objectStore) readCommit(ctx context.Context, h Hash) (*logCommit, error) {
	content, err := s.readObject(ctx, h, "commit", maxCommitBytes)
	if err != nil {
		return nil, err
	}
	c, err := parseCommit(s.format, content)
	if err != nil {
		return nil, fmt.Errorf("commit %s %w: %w", h, err, errCorruptObject)
	}
	c.ID = h
	return c, nil
}

func parseCommit(format string, content []byte) (*logCommit, error) {
	header, _, ok := bytes.Cut(content, []byte("\n\n"))
	if !ok {
		return nil, errors.New("has no message")
	}
	c := &logCommit{}
	for i, line := range strings.Split(string(header), "\n") {
		key, value, _ := strings.Cut(line, " ")
		switch {
		case key == "tree" && i == 0 && Hash(value).valid(format):
			c.Tree = Hash(value)
		case key == "parent" && c.Parent == "" && Hash(value).valid(format):
			c.Parent = Hash(value)
		case key == "parent":
			return nil, errors.New("has two parents")
		case key == "committer":
			fields := strings.Fields(value)
			if len(fields) < 2 {
				return nil, errors.New("has no time")
			}
			seconds, err := strconv.ParseInt(fields[len(fields)-2], 10, 64)
			if err != nil {
				return nil, errors.New("has no time")
			}
			c.Time = time.Unix(seconds, 0).UTC()
		}
	}
	if c.Tree == "" || c.Time.IsZero() {
		return nil, errors.New("has no tree or no committer")
	}
	return c, nil
}

// treeEntry is a line of a tree.
type treeEntry struct {
	mode string // as git writes it: 100644, 40000
	name string
	id   Hash
}

func parseTree(format string, content []byte) ([]treeEntry, error) {
	size := hashSize(format)
	var entries []treeEntry
	for len(content) > 0 {
		head, rest, ok := bytes.Cut(content, []byte{0})
		mode, name, spaced := strings.Cut(string(head), " ")
		if !ok || !spaced || name == "" || strings.Contains(name, "/") || len(rest) < size {
			return nil, errors.New("is cut short or holds a bad name")
		}
		entries = append(entries, treeEntry{mode, name, Hash(hex.EncodeToString(rest[:size]))})
		content = rest[size:]
	}
	return entries, nil
}

// fileLimits bounds what readFiles takes into memory, since anybody with write access to the host can have put anything there.
type fileLimits struct {
	Files int   // in the whole tree
	Bytes int64 // in one file
}

// treeBytes bounds a tree's content: a line takes the mode, a name of at most 255 bytes and an id.
func (l fileLimits) treeBytes() int64 { return int64(l.Files+2) * 300 }

// readFiles reads the whole content of a tree: plain files (mode 100644), at most one folder deep, by their path. Anything
// else is errCorruptObject; errObjectTooLarge past a limit.
func (s *objectStore) readFiles(ctx context.Context, tree Hash, limit fileLimits) (map[string][]byte, error) {
	files := map[string][]byte{}
	return files, s.readFolder(ctx, tree, "", limit, files)
}

func (s *objectStore) readFolder(ctx context.Context, tree Hash, prefix string, limit fileLimits, files map[string][]byte) error {
	content, err := s.readObject(ctx, tree, "tree", limit.treeBytes())
	if err != nil {
		return err
	}
	entries, err := parseTree(s.format, content)
	if err != nil {
		return fmt.Errorf("tree %s %w: %w", tree, err, errCorruptObject)
	}
	for _, e := range entries {
		path := prefix + e.name
		switch {
		case e.mode == "40000" && prefix == "":
			if err := s.readFolder(ctx, e.id, e.name+"/", limit, files); err != nil {
				return err
			}
		case e.mode == "100644":
			if _, twice := files[path]; twice {
				return fmt.Errorf("tree %s holds %q twice: %w", tree, path, errCorruptObject)
			}
			if len(files) >= limit.Files {
				return fmt.Errorf("tree %s holds more than %d files: %w", tree, limit.Files, errObjectTooLarge)
			}
			if files[path], err = s.readObject(ctx, e.id, "blob", limit.Bytes); err != nil {
				return err
			}
		default:
			return fmt.Errorf("tree %s holds %q with mode %s: %w", tree, path, e.mode, errCorruptObject)
		}
	}
	return nil
}

// readFile reads one plain file at the top of a tree; errMissingObject where there is none of that name.
func (s *objectStore) readFile(ctx context.Context, tree Hash, name string, limit fileLimits) ([]byte, error) {
	content, err := s.readObject(ctx, tree, "tree", limit.treeBytes())
	if err != nil {
		return nil, err
	}
	entries, err := parseTree(s.format, content)
	if err != nil {
		return nil, fmt.Errorf("tree %s %w: %w", tree, err, errCorruptObject)
	}
	at := slices.IndexFunc(entries, func(e treeEntry) bool { return e.name == name && e.mode == "100644" })
	if at < 0 {
		return nil, fmt.Errorf("tree %s holds no file %q: %w", tree, name, errMissingObject)
	}
	return s.readObject(ctx, entries[at].id, "blob", limit.Bytes)
}

// readChain returns the commits from tip back to, and without, stop ("" for the generation's start), oldest first. reached
// is false where stop is no ancestor of tip; then the commits are those down to the start. A parent that is missing gives
// errMissingObject, which a shallow fetch of the person's causes: see mendShallow. At most max commits are walked.
func (s *objectStore) readChain(ctx context.Context, tip, stop Hash, max int) (commits []*logCommit, reached bool, err error) {
	for at := tip; at != stop; {
		if at == "" {
			break
		}
		if len(commits) == max {
			return nil, false, fmt.Errorf("more than %d commits lie behind %s: %w", max, tip, errObjectTooLarge)
		}
		c, err := s.readCommit(ctx, at)
		if err != nil {
			return nil, false, err
		}
		commits = append(commits, c)
		at = c.Parent
	}
	slices.Reverse(commits)
	reached = stop == "" || len(commits) == 0 || commits[0].Parent == stop
	return commits, reached, nil
}

// holdsChain says whether everything from tip back to its generation's start is in this clone and sound.
func (s *objectStore) holdsChain(ctx context.Context, tip Hash) (bool, error) {
	commits, _, err := s.readChain(ctx, tip, "", maxChain)
	for _, c := range commits {
		if err == nil {
			_, err = s.readFiles(ctx, c.Tree, storedLimits)
		}
	}
	if errors.Is(err, errMissingObject) || errors.Is(err, errCorruptObject) || errors.Is(err, errObjectTooLarge) {
		return false, nil
	}
	return err == nil, err
}

// storedLimits are above whatever a segment or a roster entry may hold: 256 rooms of 1 MiB, or 3,500 keys.
var storedLimits = fileLimits{Files: 4096, Bytes: 1 << 20}

// has says whether the object is in this clone and sound.
func (s *objectStore) has(ctx context.Context, h Hash, kind string, max int64) (bool, error) {
	_, err := s.readObject(ctx, h, kind, max)
	if errors.Is(err, errMissingObject) || errors.Is(err, errCorruptObject) {
		return false, nil
	}
	return err == nil, err
}

// commitIdentity is author and committer of every commit of knoot's, so that no host's rule about addresses depends on the
// user. The message is "knoot".
const commitIdentity = "knoot <knoot@localhost>"

// writeCommit writes a commit whose tree holds the files, by path (at most one folder deep), and returns its id. when is cut
// to whole seconds. All its objects are synced on return; no ref moves. parent "" starts a generation.
func (s *objectStore) writeCommit(ctx context.Context, parent Hash, files map[string][]byte, when time.Time) (Hash, error) {
	var objects []rawObject
	add := func(kind string, content []byte) Hash {
		id := hashObject(s.format, kind, content)
		objects = append(objects, rawObject{id, kind, content})
		return id
	}
	folders := map[string][]treeEntry{"": nil}
	for path, content := range files {
		folder, name, nested := strings.Cut(path, "/")
		if !nested {
			folder, name = "", path
		}
		folders[folder] = append(folders[folder], treeEntry{"100644", name, add("blob", content)})
	}
	for folder, entries := range folders {
		if folder != "" {
			folders[""] = append(folders[""], treeEntry{"40000", folder, add("tree", encodeTree(entries))})
		}
	}
	var commit bytes.Buffer
	fmt.Fprintf(&commit, "tree %s\n", add("tree", encodeTree(folders[""])))
	if parent != "" {
		fmt.Fprintf(&commit, "parent %s\n", parent)
	}
	stamp := fmt.Sprintf("%s %d +0000", commitIdentity, when.Unix())
	fmt.Fprintf(&commit, "author %s\ncommitter %s\n\nknoot\n", stamp, stamp)
	id := add("commit", commit.Bytes())
	if err := s.writer.write(ctx, objects); err != nil {
		return "", fmt.Errorf("a commit of the log could not be stored: %w", err)
	}
	return id, nil
}

func encodeTree(entries []treeEntry) []byte {
	// git orders a folder as if its name ended in a slash.
	key := func(e treeEntry) string {
		if e.mode == "40000" {
			return e.name + "/"
		}
		return e.name
	}
	slices.SortFunc(entries, func(a, b treeEntry) int { return strings.Compare(key(a), key(b)) })
	var out bytes.Buffer
	for _, e := range entries {
		fmt.Fprintf(&out, "%s %s\x00", e.mode, e.name)
		out.Write(e.id.Bytes())
	}
	return out.Bytes()
}

// syncPath makes a file's content, or a directory's list of names, survive a power cut.
func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// syncUpwards syncs dir and the directories above it, up to and with top.
func syncUpwards(dir, top string) error {
	for {
		if err := syncPath(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if dir == top || len(dir) <= len(top) {
			return nil
		}
		dir = filepath.Dir(dir)
	}
}
