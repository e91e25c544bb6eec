package gitlog

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Refusal is an error that a person can act on; it never repeats a secret.
type Refusal struct{ Sentence string }

func (r *Refusal) Error() string { return r.Sentence }

func refuse(format string, args ...any) error { return &Refusal{fmt.Sprintf(format, args...)} }

// argument is a path as somebody typed it, relative to the root: a file, a directory, a glob, or lines of a file.
type argument struct {
	path        string // cleaned, as typed
	first, last uint64 // of `PATH:FIRST-LAST`; 0 without lines
}

// parseArgument splits `PATH[:A-B]` and cleans the path. What does not end like lines is a path as it stands.
func parseArgument(typed string) (argument, error) {
	if typed == "" {
		return argument{}, refuse("a path is empty: leave it out for a fact about the whole repository")
	}
	if strings.IndexByte(typed, 0) >= 0 {
		return argument{}, refuse("the path %q holds a NUL, which no file's name does", typed)
	}
	var a argument
	name := typed
	if i := strings.LastIndexByte(typed, ':'); i > 0 {
		if first, last, ok := parseLines(typed[i+1:]); ok {
			if first == 0 || last < first {
				return argument{}, refuse("%s names no lines: write PATH:FIRST-LAST, counted from 1", strconv.Quote(typed))
			}
			name, a.first, a.last = typed[:i], first, last
		}
	}
	a.path = path.Clean(name)
	return a, nil
}

// parseLines reads `A-B`. Digits alone are no lines: a file may be called so.
func parseLines(s string) (first, last uint64, ok bool) {
	a, b, found := strings.Cut(s, "-")
	if !found || !digits(a) || !digits(b) {
		return 0, 0, false
	}
	first, err1 := strconv.ParseUint(a, 10, 32)
	last, err2 := strconv.ParseUint(b, 10, 32)
	return first, last, err1 == nil && err2 == nil
}

func digits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// paths resolves the paths of a request and records what is there now. Refused are paths outside the repository, of
// another repository inside it, ignored, secret or missing ones, and files that hold a credential.
func (t *Tree) paths(ctx context.Context, typed []string) ([]FactPath, error) {
	if len(typed) == 0 {
		return nil, nil
	}
	if t.repo.Root == "" {
		return nil, refuse("this is a bare repository, which has no files to name: do it in a clone of it")
	}
	var files, places []string
	arguments := make([]argument, 0, len(typed))
	for _, each := range typed {
		a, err := t.resolve(ctx, each)
		if err != nil {
			return nil, err
		}
		if a.path == "" {
			continue // the root is the whole repository, as no path at all is
		}
		if pattern := secretPath(a.path); pattern != "" {
			return nil, refuse("%s is the kind of file that holds secrets (%s): leave that path out", printable(a.path), pattern)
		}
		arguments = append(arguments, a)
		if !t.pattern(a) {
			places = append(places, a.path)
			files = append(files, a.path)
		}
	}
	// Two questions to git that do not depend on each other: somebody waits for both.
	ignored := make(chan error, 1)
	go func() { ignored <- t.refuseIgnored(ctx, places) }()
	found, err := t.lookAll(ctx, files)
	if err := <-ignored; err != nil {
		return nil, err
	}
	if err != nil {
		return nil, err
	}
	var out []FactPath
	for _, a := range arguments {
		p := FactPath{Path: a.path}
		if t.pattern(a) {
			p.Glob = true
			match, err := t.matchGlob(ctx, a.path)
			if err != nil {
				return nil, err
			}
			if match == "" {
				return nil, refuse("no file matches %s here: correct the pattern, or leave it out", printable(a.path))
			}
		} else if p, err = t.recordPath(ctx, a, found[a.path]); err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	for i := range out {
		if out[i].Path, err = CanonicalPath(out[i].Path); err != nil {
			return nil, refuse("%v", err)
		}
	}
	slices.SortFunc(out, comparePaths)
	return slices.CompactFunc(out, func(a, b FactPath) bool { return comparePaths(a, b) == 0 }), nil
}

func comparePaths(a, b FactPath) int {
	if c := orderPaths(a.Path, b.Path); c != 0 {
		return c
	}
	lines := func(p FactPath) (uint64, uint64) {
		if p.Lines == nil {
			return 0, 0
		}
		return p.Lines.First, p.Lines.Last
	}
	a1, a2 := lines(a)
	b1, b2 := lines(b)
	if a1 != b1 {
		return int(int64(a1) - int64(b1))
	}
	return int(int64(a2) - int64(b2))
}

// pattern says whether an argument is a glob: it looks like one, and no file is called so.
func (t *Tree) pattern(a argument) bool { return isPattern(a.path) && !stampOf(t.abs(a.path)).there }

// recordPath records a file, some of its lines, or a directory.
func (t *Tree) recordPath(ctx context.Context, a argument, r blobRecord) (FactPath, error) {
	p := FactPath{Path: a.path, Blob: r.blob}
	if r.blob == nil {
		switch {
		case r.stamp.dir() && a.first == 0:
			return p, nil
		case r.stamp.dir():
			return p, refuse("%s is a directory, which has no lines: name a file", printable(a.path))
		case r.stamp.there:
			return p, refuse("%s is no file that git could store: leave that path out", printable(a.path))
		}
		return p, refuse("there is no %s here: correct the path, or leave it out", printable(a.path))
	}
	if a.first == 0 && r.stamp.size > maxScanned {
		return p, t.refuseCredential(r.name)
	}
	content, err := t.stored(ctx, r.name, r.blob)
	if err != nil {
		if a.first != 0 {
			return p, refuse("the lines of %s cannot be read: name the whole file", printable(a.path))
		}
		return p, ctx.Err()
	}
	if rule := credentialRule(a.path, string(content[:min(len(content), maxScanned)])); rule != "" {
		return p, refuse("%s looks like it holds a credential (gitleaks' rule %s): leave that path out, or take the credential out of the file", printable(a.path), rule)
	}
	if a.first != 0 {
		digest, ok := linesDigest(content, a.first, a.last)
		if !ok {
			return p, refuse("%s has %d lines, so there is no %d-%d in it", printable(a.path), len(splitLines(content)), a.first, a.last)
		}
		p.Lines = &LineAnchor{First: a.first, Last: a.last, Digest: digest}
	}
	return p, nil
}

// refuseCredential looks at the start of a file that is too large to be read whole.
func (t *Tree) refuseCredential(name string) error {
	file, err := os.Open(t.abs(name))
	if err != nil {
		return refuse("%s cannot be read: %v", printable(name), err)
	}
	defer file.Close()
	start := make([]byte, maxScanned)
	n, _ := file.Read(start)
	if rule := credentialRule(name, string(start[:n])); rule != "" {
		return refuse("%s looks like it holds a credential (gitleaks' rule %s): leave that path out, or take the credential out of the file", printable(name), rule)
	}
	return nil
}

// resolve brings a typed path to the spelling that the tree has: symlinks followed, other case and normalisation found.
func (t *Tree) resolve(ctx context.Context, typed string) (argument, error) {
	// A file may be called `a:1-2`.
	a := argument{path: path.Clean(typed)}
	if typed == "" || strings.IndexByte(typed, 0) >= 0 || filepath.IsAbs(a.path) || !stampOf(t.abs(a.path)).there {
		var err error
		if a, err = parseArgument(typed); err != nil {
			return a, err
		}
	}
	if filepath.IsAbs(a.path) {
		rel, err := filepath.Rel(t.repo.Root, a.path)
		if err != nil {
			return a, refuse("%s is outside this repository", printable(typed))
		}
		a.path = filepath.ToSlash(rel)
	}
	if a.path == ".." || strings.HasPrefix(a.path, "../") {
		return a, refuse("%s is outside this repository: name a path inside it", printable(typed))
	}
	if a.path == "." {
		a.path = ""
		return a, nil
	}
	if t.pattern(a) {
		return a, nil
	}
	if !stampOf(t.abs(a.path)).there {
		a.path = t.respell(a.path)
	}
	if real, err := filepath.EvalSymlinks(t.abs(a.path)); err == nil {
		rel, err := filepath.Rel(t.repo.Root, real)
		if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
			return a, refuse("%s leads outside this repository: name a path inside it", printable(typed))
		}
		if a.path = filepath.ToSlash(rel); a.path == "." {
			a.path = ""
		}
	}
	for i, c := range []byte(a.path + "/") {
		if c != '/' {
			continue
		}
		if part := a.path[:i]; FoldPath(path.Base(part)) == ".git" {
			return a, refuse("%s is git's own: name a path of the work tree", printable(typed))
		} else if stampOf(t.abs(part) + "/.git").there {
			return a, refuse("%s is in another repository, %s: do it there", printable(typed), printable(part))
		}
	}
	return a, ctx.Err()
}

// refuseIgnored refuses paths that git ignores: nobody else has them.
func (t *Tree) refuseIgnored(ctx context.Context, places []string) error {
	if len(places) == 0 {
		return nil
	}
	// This command knows no literal paths; behind "./" nothing is magic.
	cmd := t.command(ctx, "check-ignore", "-z", "--stdin")
	cmd.Env = append(cmd.Env, "GIT_LITERAL_PATHSPECS=0")
	cmd.Stdin = strings.NewReader("./" + strings.Join(places, "\x00./") + "\x00")
	out, err := runGit(ctx, cmd)
	switch exitCode(err) {
	case 1:
		return nil
	case 0:
		first, _, _ := strings.Cut(out, "\x00")
		return refuse("git ignores %s, so nobody else has it: leave that path out", printable(strings.TrimPrefix(first, "./")))
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return refuse("git cannot say whether %s is ignored: check the path", printable(places[0]))
}
