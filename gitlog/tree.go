package gitlog

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/text/unicode/norm"
)

// Tree answers what a worktree holds, as git would store it, and how facts stand there. What it has asked git once it
// answers from stats, until a file or HEAD moves. Its methods may be called from several goroutines.
//
// A bare repository has no worktree: there the tree is that of HEAD.
type Tree struct {
	repo       *Repository
	ignoreCase func() bool // core.ignorecase, asked once

	mu       sync.Mutex // guards what follows; not held while git runs
	blobs    map[string]blobRecord
	at       headRecord
	asked    map[string]answer // what git said while HEAD was asked.of: see Tree.ask
	askedOf  string
	verdicts map[EntryID]*judgement
}

// OpenTree returns the tree of the repository's worktree. It runs nothing.
func OpenTree(repo *Repository) *Tree {
	t := &Tree{
		repo:     repo,
		blobs:    make(map[string]blobRecord),
		asked:    make(map[string]answer),
		verdicts: make(map[EntryID]*judgement),
	}
	t.ignoreCase = sync.OnceValue(func() bool {
		out, _ := t.git(context.Background(), "config", "--type=bool", "core.ignorecase")
		return strings.TrimSpace(out) == "true"
	})
	return t
}

// Close lets go of what the tree remembers.
func (t *Tree) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.blobs, t.asked, t.verdicts = map[string]blobRecord{}, map[string]answer{}, map[EntryID]*judgement{}
	t.at = headRecord{}
	return nil
}

// maxRemembered bounds each of the maps; a map that outgrows it starts again.
const maxRemembered = 1 << 14

// command prepares git in this worktree. It asks nobody over the network: in a partial clone an object that is not here
// counts as unknown. Paths are never patterns, unless a command says so (see matchGlob).
func (t *Tree) command(ctx context.Context, args ...string) *exec.Cmd {
	g := git{dir: t.repo.Root}
	if t.repo.Root == "" {
		g = t.repo.git()
	}
	cmd := g.command(ctx, args...)
	cmd.Env = append(cmd.Env, "GIT_LITERAL_PATHSPECS=1")
	return cmd
}

// git runs git and returns what it printed.
func (t *Tree) git(ctx context.Context, args ...string) (string, error) {
	return runGit(ctx, t.command(ctx, args...))
}

func runGit(ctx context.Context, cmd *exec.Cmd) (string, error) {
	out, err := cmd.Output()
	if err != nil && ctx.Err() != nil {
		return "", ctx.Err()
	}
	return string(out), err
}

// exitCode is git's exit code, -1 where it did not run to its end.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return -1
}

// answer is what git printed, or how it failed.
type answer struct {
	out  string
	exit int
}

// ask runs git and remembers its answer for as long as HEAD is head: for questions that commits alone answer.
func (t *Tree) ask(ctx context.Context, head string, args ...string) (string, int, error) {
	key := strings.Join(args, "\x00")
	t.mu.Lock()
	if t.askedOf != head || len(t.asked) > maxRemembered {
		t.asked, t.askedOf = make(map[string]answer), head
	}
	known, ok := t.asked[key]
	t.mu.Unlock()
	if ok {
		return known.out, known.exit, nil
	}
	out, err := t.git(ctx, args...)
	exit := exitCode(err)
	if exit < 0 {
		return "", exit, err
	}
	t.mu.Lock()
	if t.askedOf == head {
		t.asked[key] = answer{out, exit}
	}
	t.mu.Unlock()
	return out, exit, nil
}

// stamp is what a file's lstat says; equal stamps mean an unchanged file if the first is settled.
type stamp struct {
	there        bool
	mode         uint32
	dev, ino     uint64
	size         int64
	mtime, ctime int64 // ns
}

func stampOf(path string) stamp {
	var st unix.Stat_t
	for {
		switch err := unix.Lstat(path, &st); err {
		case nil:
			return stamp{
				there: true, mode: uint32(st.Mode), dev: uint64(st.Dev), ino: st.Ino, size: st.Size,
				mtime: st.Mtim.Nano(), ctime: st.Ctim.Nano(),
			}
		case unix.EINTR:
		default:
			return stamp{}
		}
	}
}

func (s stamp) regular() bool { return s.there && s.mode&unix.S_IFMT == unix.S_IFREG }
func (s stamp) link() bool    { return s.there && s.mode&unix.S_IFMT == unix.S_IFLNK }
func (s stamp) dir() bool     { return s.there && s.mode&unix.S_IFMT == unix.S_IFDIR }

// settled says whether a change after now would show in the stamp. A file system keeps time in ticks: a write in the
// same tick as the one before leaves the same times. Linux ticks every 10 ms at most; where times are whole
// milliseconds or more, the file system may keep no finer ones than two seconds.
func (s stamp) settled(now time.Time) bool {
	if !s.there {
		return true
	}
	tick := 20 * time.Millisecond
	if s.mtime%int64(time.Millisecond) == 0 || s.ctime%int64(time.Millisecond) == 0 {
		tick = 2 * time.Second
	}
	return max(s.mtime, s.ctime) < now.Add(-tick).UnixNano()
}

// blobRecord is the id that git gave a path's content, and by what it can be seen to hold still.
type blobRecord struct {
	stamp   stamp
	rules   uint64 // what decides about filters: see Tree.rules
	index   stamp  // of the index; only where the file is missing
	settled bool
	blob    []byte
	name    string // the path as it is spelled in the tree
}

// rules sums up the files that decide which filters git applies to a path: attributes on the way to it, and the
// repository's configuration. (A change of the person's own configuration is seen when the tree is opened again.)
func (t *Tree) rules(path string) uint64 {
	sum := uint64(14695981039346656037) // FNV-1a, over words
	add := func(file string) {
		s := stampOf(file)
		for _, word := range [...]uint64{s.ino, uint64(s.size), uint64(s.mtime), uint64(s.ctime)} {
			sum = (sum ^ word) * 1099511628211
		}
	}
	add(t.repo.CommonDir + "/config")
	add(t.repo.CommonDir + "/info/attributes")
	add(t.repo.Root + "/.gitattributes")
	for i, c := range []byte(path) {
		if c == '/' {
			add(t.repo.Root + "/" + path[:i] + "/.gitattributes")
		}
	}
	return sum
}

// Root is the worktree's root, "" in a bare repository.
func (t *Tree) Root() string { return t.repo.Root }

// FoldsCase says whether paths that differ in case alone are one file here (core.ignorecase).
func (t *Tree) FoldsCase() bool { return t.ignoreCase() }

// abs returns where a path is in the file system.
func (t *Tree) abs(path string) string { return t.repo.Root + "/" + path }

func (t *Tree) indexStamp() stamp { return stampOf(t.repo.GitDir + "/index") }

// recorded returns the id of path's content if stats alone show it.
func (t *Tree) recorded(path string) (blobRecord, bool) {
	if t.repo.Root == "" {
		return blobRecord{}, false
	}
	t.mu.Lock()
	r, ok := t.blobs[path]
	t.mu.Unlock()
	if !ok || !r.settled || stampOf(t.abs(r.name)) != r.stamp {
		return blobRecord{}, false
	}
	if r.stamp.there {
		return r, t.rules(r.name) == r.rules
	}
	return r, t.indexStamp() == r.index
}

// Blob returns the id that git would give path's content now; nil: gone, or no file. Filters are applied as `git
// add` would; a file that a sparse checkout leaves out counts as the index has it.
func (t *Tree) Blob(ctx context.Context, path string) ([]byte, error) {
	r, err := t.look(ctx, path)
	return r.blob, err
}

func (t *Tree) look(ctx context.Context, path string) (blobRecord, error) {
	found, err := t.lookAll(ctx, []string{path})
	return found[path], err
}

// Blobs does what Blob does for many paths with one git process. A path that git could not read is not in the
// answer; the error tells of the first.
func (t *Tree) Blobs(ctx context.Context, paths []string) (map[string][]byte, error) {
	found, err := t.lookAll(ctx, paths)
	blobs := make(map[string][]byte, len(found))
	for path, r := range found {
		blobs[path] = r.blob
	}
	return blobs, err
}

func (t *Tree) lookAll(ctx context.Context, paths []string) (map[string]blobRecord, error) {
	found := make(map[string]blobRecord, len(paths))
	if t.repo.Root == "" {
		return found, t.lookAtHead(ctx, paths, found)
	}
	var unknown []string
	for _, path := range paths {
		if _, ok := found[path]; ok {
			continue
		}
		if r, ok := t.recorded(path); ok {
			found[path] = r
		} else if !slices.Contains(unknown, path) {
			unknown = append(unknown, path)
		}
	}
	if len(unknown) == 0 {
		return found, nil
	}
	var files []string
	started := time.Now()
	fresh := make(map[string]blobRecord, len(unknown))
	for _, path := range unknown {
		r := blobRecord{name: path, stamp: stampOf(t.abs(path))}
		if !r.stamp.there {
			if r.name = t.respell(path); r.name != path {
				r.stamp = stampOf(t.abs(r.name))
			}
		}
		switch {
		case r.stamp.regular():
			r.rules = t.rules(r.name)
			files = append(files, path)
		case r.stamp.link():
			target, err := os.Readlink(t.abs(r.name))
			if err == nil {
				r.rules = t.rules(r.name)
				r.blob = hashObject(t.repo.ObjectFormat, "blob", []byte(target)).Bytes()
			}
		case !r.stamp.there:
			r.index = t.indexStamp()
			blob, err := t.leftOut(ctx, path)
			if err != nil {
				return found, err
			}
			r.blob = blob
			r.settled = r.index.settled(started)
		}
		if r.stamp.there {
			r.settled = r.stamp.settled(started)
		}
		fresh[path] = r
	}
	names := make([]string, len(files))
	for i, path := range files {
		names[i] = fresh[path].name
	}
	ids, err := t.hashFiles(ctx, names)
	for i, path := range files {
		r := fresh[path]
		if ids[i] == nil {
			delete(fresh, path)
			continue
		}
		r.blob = ids[i]
		r.settled = r.settled && stampOf(t.abs(r.name)) == r.stamp
		fresh[path] = r
	}
	t.mu.Lock()
	if len(t.blobs) > maxRemembered {
		clear(t.blobs)
	}
	for path, r := range fresh {
		t.blobs[path] = r
	}
	t.mu.Unlock()
	for path, r := range fresh {
		found[path] = r
	}
	return found, err
}

// hashFiles asks git for the ids of files, without storing anything. An id is nil where git failed; the error tells
// of the first such file.
func (t *Tree) hashFiles(ctx context.Context, names []string) ([][]byte, error) {
	ids := make([][]byte, len(names))
	var first error
	for next := 0; next < len(names); {
		var input bytes.Buffer
		for _, name := range names[next:] {
			input.WriteString(quotePath(name))
			input.WriteByte('\n')
		}
		cmd := t.command(ctx, "hash-object", "--stdin-paths")
		cmd.Stdin = &input
		out, err := runGit(ctx, cmd)
		for line := range strings.Lines(out) {
			id, bad := hex.DecodeString(strings.TrimSuffix(line, "\n"))
			if bad != nil || next == len(names) {
				break
			}
			ids[next] = id
			next++
		}
		if err == nil {
			break
		}
		if ctx.Err() != nil || exitCode(err) < 0 {
			return ids, err
		}
		// git stopped at a file that it cannot read or filter: leave that out and go on.
		if next < len(names) && first == nil {
			first = fmt.Errorf("git cannot read %s", strconv.Quote(names[next]))
		}
		next++
	}
	return ids, first
}

// quotePath writes a path as git reads it from a list of lines.
func quotePath(path string) string {
	if !strings.ContainsAny(path, "\n\r") && !strings.HasPrefix(path, `"`) {
		return path
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range []byte(path) {
		switch c {
		case '"', '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case '\n', '\r':
			fmt.Fprintf(&b, `\%03o`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// leftOut returns the id of a file that the index has and the worktree should not (a sparse checkout), else nil.
func (t *Tree) leftOut(ctx context.Context, path string) ([]byte, error) {
	out, err := t.git(ctx, "ls-files", "-v", "-s", "-z", "--", path)
	if err != nil {
		if exitCode(err) < 0 {
			return nil, err
		}
		return nil, nil // no index that git can read: nothing is left out
	}
	for line := range strings.SplitSeq(out, "\x00") {
		info, name, ok := strings.Cut(line, "\t")
		fields := strings.Fields(info)
		if ok && name == path && len(fields) == 4 && fields[3] == "0" && strings.EqualFold(fields[0], "s") {
			return hex.DecodeString(fields[2])
		}
	}
	return nil, nil
}

// lookAtHead takes ids from HEAD's tree.
func (t *Tree) lookAtHead(ctx context.Context, paths []string, found map[string]blobRecord) error {
	_, head, err := t.Head(ctx)
	if err != nil {
		return err
	}
	for _, path := range paths {
		blob, err := t.headBlob(ctx, head, path)
		if err != nil {
			return err
		}
		found[path] = blobRecord{name: path, blob: blob}
	}
	return nil
}

// headBlob returns the id of path in HEAD's tree; nil where it has no such file.
func (t *Tree) headBlob(ctx context.Context, head, path string) ([]byte, error) {
	if head == "" {
		return nil, nil
	}
	out, exit, err := t.ask(ctx, head, "ls-tree", "-z", "--full-tree", head, "--", path)
	if err != nil || exit != 0 {
		return nil, err
	}
	for line := range strings.SplitSeq(out, "\x00") {
		info, name, ok := strings.Cut(line, "\t")
		fields := strings.Fields(info)
		if ok && name == path && len(fields) == 3 && fields[1] == "blob" {
			return hex.DecodeString(fields[2])
		}
	}
	return nil, nil
}

// respell finds how a missing path is spelled in the tree: in other normalisation (a stored path is NFC, an index may
// not be), and in other case where core.ignorecase is true. It returns path where there is none.
func (t *Tree) respell(path string) string {
	fold := t.ignoreCase()
	ascii := !strings.ContainsFunc(path, func(r rune) bool { return r >= 0x80 })
	if ascii && !fold {
		return path
	}
	canonical := func(name string) string {
		name = norm.NFC.String(name)
		if fold {
			name = FoldPath(name)
		}
		return name
	}
	here := ""
	for part := range strings.SplitSeq(path, "/") {
		next := filepath.Join(here, part)
		if !stampOf(t.abs(next)).there {
			names, err := os.ReadDir(t.abs(here))
			if err != nil {
				return path
			}
			i := slices.IndexFunc(names, func(e os.DirEntry) bool { return canonical(e.Name()) == canonical(part) })
			if i < 0 {
				return path
			}
			next = filepath.Join(here, names[i].Name())
		}
		here = next
	}
	return here
}

// headRecord is where HEAD was, and the files that would show it moving.
type headRecord struct {
	known  bool
	ref    string
	commit string
	files  []string
	stamps []stamp
}

// Head returns the full name of the branch that is checked out ("" when HEAD is detached) and the commit in hex (""
// where there is none yet). While nothing moves it costs stats alone.
func (t *Tree) Head(ctx context.Context) (ref, commit string, err error) {
	t.mu.Lock()
	at := t.at
	t.mu.Unlock()
	if at.holds() {
		return at.ref, at.commit, nil
	}
	started := time.Now()
	if at, err = t.readHead(ctx); err != nil {
		return "", "", err
	}
	at.known = true
	for _, s := range at.stamps {
		at.known = at.known && s.settled(started)
	}
	t.mu.Lock()
	t.at = at
	t.mu.Unlock()
	return at.ref, at.commit, nil
}

func (at *headRecord) holds() bool {
	if !at.known {
		return false
	}
	for i, file := range at.files {
		if stampOf(file) != at.stamps[i] {
			return false
		}
	}
	return true
}

// read reads a file that is part of where HEAD is; the stamp is taken first, so that a later write shows.
func (at *headRecord) read(file string) (string, bool) {
	at.files = append(at.files, file)
	at.stamps = append(at.stamps, stampOf(file))
	content, err := os.ReadFile(file)
	return string(content), err == nil
}

func (t *Tree) readHead(ctx context.Context) (headRecord, error) {
	var at headRecord
	text, ok := at.read(t.repo.GitDir + "/HEAD")
	if !ok {
		return at, fmt.Errorf("%s has no readable HEAD", t.repo.GitDir)
	}
	text = strings.TrimSpace(text)
	name, symbolic := strings.CutPrefix(text, "ref:")
	if !symbolic {
		at.commit = text
		return at, nil
	}
	at.ref = strings.TrimSpace(name)
	if at.ref == "refs/heads/.invalid" {
		return t.askHead(ctx, at) // refs are in reftables, which git reads for us
	}
	for name, depth := at.ref, 0; depth < 5; depth++ {
		text, ok := at.read(t.repo.CommonDir + "/" + name)
		if text = strings.TrimSpace(text); ok && text != "" {
			next, symbolic := strings.CutPrefix(text, "ref:")
			if !symbolic {
				at.commit = text
				return at, nil
			}
			name = strings.TrimSpace(next)
			continue
		}
		packed, _ := at.read(t.repo.CommonDir + "/packed-refs")
		if i := strings.Index(packed, " "+name+"\n"); i >= 0 {
			at.commit = packed[strings.LastIndexByte(packed[:i], '\n')+1 : i]
		}
		return at, nil
	}
	return at, nil
}

func (t *Tree) askHead(ctx context.Context, at headRecord) (headRecord, error) {
	at.read(t.repo.GitDir + "/reftable/tables.list")
	at.read(t.repo.CommonDir + "/reftable/tables.list")
	ref, err := t.git(ctx, "symbolic-ref", "-q", "HEAD")
	if exitCode(err) < 0 {
		return at, err
	}
	commit, err := t.git(ctx, "rev-parse", "-q", "--verify", "HEAD")
	if exitCode(err) < 0 {
		return at, err
	}
	at.ref, at.commit = strings.TrimSpace(ref), strings.TrimSpace(commit)
	return at, nil
}

// maxContent bounds what is read to look for lines or to count them.
const maxContent = 16 << 20

// stored returns a file's content as git would store it, given the id that it has so. Where filters change it, it is
// made in a throw-away object directory: nothing is added to the repository.
func (t *Tree) stored(ctx context.Context, name string, blob []byte) ([]byte, error) {
	if t.repo.Root != "" {
		if s := stampOf(t.abs(name)); s.regular() && s.size <= maxContent {
			raw, err := os.ReadFile(t.abs(name))
			if err == nil && bytes.Equal(hashObject(t.repo.ObjectFormat, "blob", raw).Bytes(), blob) {
				return raw, nil
			}
		}
	}
	content, err := t.object(ctx, nil, blob)
	if err == nil || t.repo.Root == "" {
		return content, err
	}
	scratch, err := t.openScratch()
	if err != nil {
		return nil, err
	}
	defer scratch.close()
	if err := scratch.add(ctx, name); err != nil {
		return nil, err
	}
	return t.object(ctx, scratch, blob)
}

var errNoObject = errors.New("object is not here, or too large")

// object returns a blob's content from the object store, and from scratch if that is not nil.
func (t *Tree) object(ctx context.Context, scratch *scratch, blob []byte) ([]byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := t.command(ctx, "cat-file", "--batch")
	scratch.use(cmd)
	cmd.Stdin = strings.NewReader(hex.EncodeToString(blob) + "\n")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	defer cmd.Wait()
	r := bufio.NewReader(out)
	info, err := r.ReadString('\n')
	fields := strings.Fields(info)
	if err != nil || len(fields) != 3 || fields[1] != "blob" {
		return nil, errNoObject
	}
	size, err := strconv.Atoi(fields[2])
	if err != nil || size > maxContent {
		cancel() // git is writing what nobody will read
		return nil, errNoObject
	}
	content := make([]byte, size)
	if _, err := io.ReadFull(r, content); err != nil {
		return nil, errNoObject
	}
	return content, nil
}

// scratch is an object directory beside the repository's, for content that must not be stored there.
type scratch struct {
	tree *Tree
	dir  string
}

func (t *Tree) openScratch() (*scratch, error) {
	dir, err := os.MkdirTemp("", "knoot-")
	if err != nil {
		return nil, err
	}
	return &scratch{t, dir}, nil
}

func (s *scratch) close() { os.RemoveAll(s.dir) }

// use makes cmd write objects into the scratch directory and read them there too. A nil scratch changes nothing.
func (s *scratch) use(cmd *exec.Cmd) {
	if s == nil {
		return
	}
	cmd.Env = append(cmd.Env, "GIT_OBJECT_DIRECTORY="+s.dir, "GIT_ALTERNATE_OBJECT_DIRECTORIES="+quoteAlternate(s.tree.repo.CommonDir+"/objects"))
}

// quoteAlternate writes an object directory as git reads it from a list of them.
func quoteAlternate(dir string) string {
	if !strings.ContainsAny(dir, ":\"\n") {
		return dir
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(dir) + `"`
}

// add puts a file of the tree into the scratch directory, filters applied.
func (s *scratch) add(ctx context.Context, name string) error {
	cmd := s.tree.command(ctx, "hash-object", "-w", "--stdin-paths")
	s.use(cmd)
	cmd.Stdin = strings.NewReader(quotePath(name) + "\n")
	_, err := runGit(ctx, cmd)
	return err
}
