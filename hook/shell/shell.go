// Package shell finds out which files a command line reads and writes, without running it, and says when it cannot know.
//
// A line is interpreted: directories, variables, loops over words and functions are followed, all branches are taken, and
// every simple command is looked up in tables that know its options. What the tables do not know, or what depends on
// something that only the shell will know, makes the line opaque: it could change files that are not named. Never does it
// make an error: whoever asks is about to let the line run in any case.
//
// Nothing of a file is read. Directories are listed for globs, and names are looked up to tell directories and links from files.
package shell

import (
	"errors"
	"io"
	"io/fs"
	"runtime"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// The limits of a line. What goes beyond one is opaque and names nothing.
const (
	maxLine    = 256 << 10 // bytes: more than Linux lets a program have as one argument
	maxWords   = 1000      // of one command beside its name, or of one loop, after expansion
	maxWork    = 20_000    // words of all commands together, each as often as it is come by
	maxMatches = 20        // files of a glob
	maxListed  = 20_000    // names looked at for all globs
	maxLevels  = 200       // of nesting, calls of functions and lines within lines included
	maxFrames  = 6000      // of the parser's stack: it has no limit of its own
	maxText    = 256 << 10 // bytes of a word
	maxNamed   = 256 << 10 // bytes of all paths
)

// Env is what a line is read against.
type Env struct {
	Dir  string // absolute working directory
	Root string // of the worktree; "" outside of one. A line that removes it as a whole is opaque
	// Vars are HOME, PWD, OLDPWD, TMPDIR and USER as the shell has them. PWD is Dir where it is missing.
	Vars map[string]string
	// Tree is the file system, from its root: os.DirFS("/"). nil is one that is empty.
	Tree fs.FS
}

// Result is what a line may do.
type Result struct {
	Reads []string // absolute, lexically clean, sorted, each once
	// Writes are sorted by path. Each is there once, but for a link that is written through and replaced too.
	Writes []Write
	Opaque bool // files that are not in Writes may change
	// Sweeps are git commands that reach what they do not name, in the order of the line, each once.
	Sweeps []Sweep
}

// Write is a path that is made, changed or removed.
type Write struct {
	Path string // absolute and lexically clean
	// Tree says that all below changes with it: a directory is removed or moved.
	Tree bool
	// Entry says that the name itself is replaced or removed: where it is a symbolic link, what it points to stays as it is.
	Entry bool
}

// Read interprets a line of bash.
func Read(line string, env Env) Result {
	r := newReading(env)
	sc := &scope{dir: env.Dir, vars: map[string]value{}, funcs: map[string]*syntax.Stmt{}, knowsArgs: true}
	for _, name := range [...]string{"HOME", "PWD", "OLDPWD", "TMPDIR", "USER"} {
		if text, ok := env.Vars[name]; ok {
			sc.setVar(name, known(text))
		}
	}
	if _, ok := sc.vars["PWD"]; !ok {
		sc.setVar("PWD", known(env.Dir))
	}
	r.code(line, sc)
	for _, code := range r.traps {
		// It runs whenever the signal comes.
		at := sc.clone()
		at.forget()
		if r.moved {
			at.dir = ""
		}
		r.code(code, at)
	}
	return r.result()
}

// written is how a path is written: the ways of all writes together.
type written struct{ tree, entry, through bool }

// reading is one line that is being interpreted.
type reading struct {
	env    Env
	reads  map[string]bool
	writes map[string]written
	named  int // bytes of both, and of the paths and suffixes of sweeps
	opaque bool
	sweeps []Sweep

	entries map[string]entry    // of the tree, as they were found
	names   map[string][]string // in its directories
	parser  *syntax.Parser
	spare   []word                           // for words to come
	last    struct{ dir, name, path string } // that was made absolute: most are asked for more than once

	level  int
	work   int
	listed int // names
	// maybe is above zero while what is interpreted may not run.
	maybe int

	made  map[string]bool // directories that the line makes; false: perhaps
	links map[string]bool // links that it makes: a write there, or below, goes elsewhere
	moved bool            // it changes its directory somewhere
	traps []string
}

func newReading(env Env) *reading {
	return &reading{env: env, reads: map[string]bool{}, writes: map[string]written{}, made: map[string]bool{}, links: map[string]bool{},
		entries: map[string]entry{}, names: map[string][]string{}, parser: syntax.NewParser(syntax.Variant(syntax.LangBash))}
}

func (r *reading) result() Result {
	res := Result{Opaque: r.opaque, Sweeps: r.sweeps}
	res.Reads = slices.Grow(res.Reads, len(r.reads))
	for path := range r.reads {
		res.Reads = append(res.Reads, path)
	}
	res.Writes = slices.Grow(res.Writes, len(r.writes))
	for path, w := range r.writes {
		both := w.entry && w.through && r.isLink(path)
		res.Writes = append(res.Writes, Write{Path: path, Tree: w.tree, Entry: w.entry && (both || !w.through)})
		if both {
			res.Writes = append(res.Writes, Write{Path: path, Tree: w.tree})
		}
	}
	slices.Sort(res.Reads)
	slices.SortFunc(res.Writes, func(a, b Write) int { return strings.Compare(a.Path, b.Path) })
	return res
}

// code interprets text as a list of commands in sc.
func (r *reading) code(text string, sc *scope) {
	if !r.enter() {
		return
	}
	defer r.leave()
	if len(text) > maxLine {
		r.opaque = true
		return
	}
	file, err := r.parser.Parse(&shallow{text: text}, "")
	if err != nil {
		r.opaque = true
		return
	}
	r.stmts(file.Stmts, sc)
}

// enter goes one level down, and says whether that is still allowed; if so, leave goes up again.
func (r *reading) enter() bool {
	if r.level >= maxLevels || r.work >= maxWork {
		r.opaque = true
		return false
	}
	r.level++
	return true
}

func (r *reading) leave() { r.level-- }

var errDeep = errors.New("nested too deeply")

// shallow is a text that ends with an error once its reader has a deep stack. The parser calls itself for all that is nested
// and asks for a few bytes at a time, so that this keeps a hostile line from overflowing the stack, which nothing could catch.
type shallow struct {
	text string
	read int // bytes since the stack was looked at
}

// looksEvery is how many bytes are read until the stack is looked at again: few of them nest anything.
const looksEvery = 4 << 10

func (s *shallow) Read(to []byte) (int, error) {
	if s.read >= looksEvery {
		s.read = 0
		var frame [1]uintptr
		if runtime.Callers(maxFrames, frame[:]) > 0 {
			return 0, errDeep
		}
	}
	n := copy(to, s.text)
	s.text = s.text[n:]
	s.read += n
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}
