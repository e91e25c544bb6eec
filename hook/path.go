package hook

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/hook/patch"
	"knoot.dev/knoot/hook/shell"
)

// maxLinks is how many symbolic links are followed in one path; Linux follows 40.
const maxLinks = 40

// realPath resolves the symbolic links of an absolute path as far as it exists. A link that points nowhere is resolved too:
// writing through it makes a file there. Nothing is opened; directories are only looked up. It is "" where links go in circles.
func realPath(path string) string {
	dir, links := "/", 0
	rest := strings.Split(filepath.Clean(path), "/")
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			dir = filepath.Dir(dir)
			continue
		}
		dir = filepath.Join(dir, name)
		info, err := os.Lstat(dir)
		if err != nil {
			// It is not there, or closed to us: what follows cannot be a link that we could follow.
			return filepath.Join(dir, filepath.Join(rest...))
		}
		if info.Mode().Type() != os.ModeSymlink {
			continue
		}
		if links++; links > maxLinks {
			return ""
		}
		target, err := os.Readlink(dir)
		if err != nil {
			return ""
		}
		dir = filepath.Dir(dir)
		if filepath.IsAbs(target) {
			dir = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return dir
}

// findRoot returns dir or its nearest parent that has a .git, which is a directory or, in linked worktrees and submodules,
// a file. It is "" where there is none.
func findRoot(dir string) string {
	for {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return ""
		}
		dir = parent
	}
}

// below returns path relative to root, with slashes, unless it is root itself, outside of it, or git's own.
func below(root, path string) (string, bool) {
	rel, err := filepath.Rel(root, path)
	if err != nil || rel == "." || rel == ".." || strings.HasPrefix(rel, "../") {
		return "", false
	}
	first, _, _ := strings.Cut(rel, "/")
	if first == ".git" || runtime.GOOS == "darwin" && strings.EqualFold(first, ".git") {
		return "", false
	}
	return filepath.ToSlash(rel), true
}

// touch is one path of a payload: where it really is, and whether it is written.
type touch struct {
	path   string
	writes bool
	tree   bool // what is below is written too
	// sweep is a git command that runs in path, a directory, with Paths that are absolute still; nil: path is a file that is touched.
	sweep *socket.Sweep
}

// maxNamed bounds the bytes of all paths of a payload, each as often as the daemon is told it: of a request that is longer than
// socket.MaxLine nothing is told, and this leaves half of it to what encoding adds.
const maxNamed = socket.MaxLine / 2

// size is how many bytes of maxNamed a touch takes.
func (t *touch) size() int {
	n := len(t.path)
	if t.tree {
		n *= 2
	}
	if t.sweep != nil {
		n += len(t.sweep.Suffix)
		for _, path := range t.sweep.Paths {
			n += len(path)
		}
	}
	return n
}

// within are the first of touches, as many as maxNamed allows. Where there are more it is opaque.
func within(list []touch, opaque bool) ([]touch, bool) {
	named := 0
	for i := range list {
		if named += list[i].size(); named > maxNamed {
			return list[:i], true
		}
	}
	return list, opaque
}

// touches are the paths that a payload names, joined with its working directory and resolved. It is opaque where files may
// change that it does not name.
func (a *agent) touches(p *payload, getenv func(string) string) (list []touch, opaque bool) {
	if !a.events[p.event].tool {
		return nil, false
	}
	t := a.tools[p.hook.Tool]
	switch {
	case t.shell:
		return within(commandTouches(p, getenv))
	case t.patch:
		return within(patchTouches(p))
	}
	name := p.name(t)
	if name == "" || strings.ContainsRune(name, 0) {
		return nil, false
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(p.hook.Cwd, name)
	}
	if name = realPath(name); name == "" {
		return nil, false
	}
	return []touch{{path: name, writes: t.writes}}, false
}

// commandTouches are those of a command line.
func commandTouches(p *payload, getenv func(string) string) (list []touch, opaque bool) {
	if p.cut {
		return nil, true
	}
	cwd := p.hook.Cwd
	if p.dir != "" && !strings.ContainsRune(p.dir, 0) {
		if cwd = p.dir; !filepath.IsAbs(cwd) {
			cwd = filepath.Join(p.hook.Cwd, cwd)
		}
	}
	cwd = realCwd(cwd)
	env := shell.Env{Dir: cwd, Root: findRoot(cwd), Vars: map[string]string{"PWD": cwd}, Tree: os.DirFS("/")}
	for _, name := range [...]string{"HOME", "OLDPWD", "TMPDIR", "USER"} {
		// The hook has the environment of the shell. What it has not is unknown, but for TMPDIR: without it nothing is.
		if value := getenv(name); value != "" || name == "TMPDIR" {
			env.Vars[name] = value
		}
	}
	res := shell.Read(p.line, env)
	for _, path := range res.Reads {
		if path = realPath(path); path != "" {
			list = append(list, touch{path: path})
		}
	}
	for _, w := range res.Writes {
		path := realPath(w.Path)
		if w.Entry {
			path = realEntry(w.Path)
		}
		if path != "" {
			list = append(list, touch{path: path, writes: true, tree: w.Tree})
		}
	}
	for _, s := range res.Sweeps {
		sweep := &socket.Sweep{Command: s.Command, Suffix: s.Suffix, Tracked: s.Tracked, Untracked: s.Untracked, Takes: s.Takes, Stash: s.Stash}
		for _, path := range s.Paths {
			if path = realPath(path); path != "" {
				sweep.Paths = append(sweep.Paths, path)
			}
		}
		if dir := realPath(s.Dir); dir != "" && len(sweep.Paths) == len(s.Paths) {
			list = append(list, touch{path: dir, sweep: sweep})
		}
	}
	return list, res.Opaque
}

// patchTouches are the files of a patch. One that does not follow the grammar is applied by nobody who is known here, so what
// else it may do is not.
func patchTouches(p *payload) (list []touch, opaque bool) {
	operations, whole := p.patch.End()
	cwd := realCwd(p.hook.Cwd)
	for _, o := range operations {
		for i, path := range o.Paths() {
			if !filepath.IsAbs(path) {
				path = filepath.Join(cwd, path)
			}
			// What is removed is the entry: of a link not what it points to.
			if o.Kind == patch.Delete || o.Kind == patch.Move && i == 0 {
				path = realEntry(path)
			} else {
				path = realPath(path)
			}
			if path != "" {
				list = append(list, touch{path: path, writes: true})
			}
		}
	}
	return list, !whole
}

// realEntry is realPath of the directory that a path is in: the path itself may be a link.
func realEntry(path string) string {
	dir := realPath(filepath.Dir(path))
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, filepath.Base(path))
}

// places sorts touches by worktree: that of the working directory first, if it is in one, then those of paths outside of it.
// Paths in no worktree are left out. Cwd is resolved.
func places(cwd string, touches []touch) []socket.Place {
	var list []socket.Place
	if root := findRoot(cwd); root != "" {
		list = append(list, socket.Place{Root: root})
	}
	for _, t := range touches {
		root, rel, ok := "", "", true
		if t.sweep != nil {
			root = findRoot(t.path)
		} else {
			root = findRoot(filepath.Dir(t.path))
			rel, ok = below(root, t.path)
		}
		if root == "" || !ok {
			continue
		}
		i := slices.IndexFunc(list, func(p socket.Place) bool { return p.Root == root })
		if i < 0 {
			i = len(list)
			list = append(list, socket.Place{Root: root})
		}
		if t.sweep != nil {
			if s, ok := sweptIn(root, t.sweep); ok {
				list[i].Sweeps = append(list[i].Sweeps, s)
			}
			continue
		}
		to := &list[i].Reads
		if t.writes {
			to = &list[i].Writes
		}
		*to = append(*to, rel)
		if t.tree {
			list[i].Trees = append(list[i].Trees, rel)
		}
	}
	for i := range list {
		sortUnique(&list[i].Reads)
		sortUnique(&list[i].Writes)
		sortUnique(&list[i].Trees)
	}
	return list
}

// sweptIn is a sweep with paths relative to the worktree in which it runs; false: none of them is there.
func sweptIn(root string, sweep *socket.Sweep) (socket.Sweep, bool) {
	s := *sweep
	s.Paths = nil
	for _, path := range sweep.Paths {
		if rel, ok := below(root, path); ok {
			s.Paths = append(s.Paths, rel)
		} else if path == root || strings.HasPrefix(root, strings.TrimSuffix(path, "/")+"/") {
			s.Paths = nil
			return s, true // all of it
		}
	}
	return s, len(sweep.Paths) == 0 || len(s.Paths) > 0
}

func sortUnique(list *[]string) {
	slices.Sort(*list)
	*list = slices.Compact(*list)
}
