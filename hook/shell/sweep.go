package shell

import (
	"path"
	"slices"
	"strings"
)

// Sweep is a git command of a line that is about all of a worktree, or all below some of its directories, and not about files that it
// names: what it does to the changes that others have there is done to them all.
type Sweep struct {
	// Command is what the command is called, in words of this package alone: "git reset --hard".
	Command string
	// Dir is the directory in which it runs, Paths are those below which it reaches: absolute and lexically clean, sorted, perhaps
	// files. Without any it reaches all of Dir's worktree.
	Dir   string
	Paths []string
	// Tracked are changes to files that git knows, Untracked files that it does not know.
	Tracked, Untracked bool
	// Takes says that what it reaches is staged or committed. Else the changes are undone, and the files removed.
	Takes bool
	// Stash says that it uses the stash, which all worktrees of a clone share.
	Stash bool
}

// maxSweeps bounds those of a line.
const maxSweeps = 16

// sweep records one, unless it reaches nothing.
func (c *call) sweep(s Sweep) {
	s.Dir = c.sc.dir
	slices.Sort(s.Paths)
	s.Paths = slices.Compact(s.Paths)
	same := func(t Sweep) bool {
		return t.Command == s.Command && t.Dir == s.Dir && t.Untracked == s.Untracked && slices.Equal(t.Paths, s.Paths)
	}
	if s.Dir != "" && len(c.r.sweeps) < maxSweeps && !slices.ContainsFunc(c.r.sweeps, same) {
		c.r.sweeps = append(c.r.sweeps, s)
	}
}

// pathspecs are where operands of git reach: paths, and for a pattern the directory in which it begins. whole says that one of them
// is about all of the worktree. What nobody knows is left out, and so is what an operand excludes.
func (c *call) pathspecs(operands []word) (paths []string, whole bool) {
	for _, w := range operands {
		text := w.text
		switch {
		case !w.known || text == "":
			continue
		case strings.HasPrefix(text, ":!"), strings.HasPrefix(text, ":^"), strings.HasPrefix(text, ":(exclude"):
			continue
		case strings.HasPrefix(text, ":"):
			whole = true // from the top, mostly
			continue
		}
		if i := strings.IndexAny(text, "*?["); i >= 0 {
			text = path.Dir(text[:i] + "x")
		}
		if at, ok := c.r.path(c.sc, text); ok {
			paths = append(paths, at)
		}
	}
	return paths, whole
}

// undo records what puts the files below its operands, or all, back as git has them.
func (c *call) undo(command string, operands []word) {
	paths, whole := c.pathspecs(operands)
	if whole {
		paths = nil
	} else if len(operands) > 0 && len(paths) == 0 {
		return
	}
	c.sweep(Sweep{Command: command, Paths: paths, Tracked: true})
}

func (c *call) gitSwitch() {
	c.r.opaque = true
	p := options{short: "fqc:C:dtm", long: "force discard-changes create= force-create= detach guess no-guess quiet progress no-progress merge conflict= track? " +
		"no-track orphan= ignore-other-worktrees recurse-submodules no-recurse-submodules"}.parse(c.args)
	if p.is("f", "force", "discard-changes") {
		c.undo("git switch --force", nil)
	}
}

func (c *call) gitClean() {
	p := options{short: "dfnqie:xX", long: "force dry-run quiet interactive exclude="}.parse(c.args)
	if p.is("n", "dry-run") && !p.strange {
		return
	}
	c.r.opaque = true
	if p.is("X") || p.is("n", "dry-run") || !p.is("f", "force", "i", "interactive") {
		return // only what is ignored; nothing
	}
	paths, whole := c.pathspecs(p.operands)
	switch {
	case whole:
		paths = nil
	case len(p.operands) == 0:
		paths = []string{c.sc.dir} // it stays below where it runs
	case len(paths) == 0:
		return
	}
	c.sweep(Sweep{Command: "git clean", Paths: paths, Untracked: true})
}

func (c *call) gitStash() {
	name, args := "push", c.args
	if len(args) > 0 {
		if !args[0].known {
			c.r.opaque = true
			return
		}
		if !strings.HasPrefix(args[0].text, "-") {
			name, args = args[0].text, args[1:]
		}
	}
	switch name {
	case "list", "show":
		return
	case "push", "save":
		p := options{short: "pSkquam:", long: "patch staged keep-index no-keep-index quiet include-untracked all message= pathspec-from-file= pathspec-file-nul"}.parse(args)
		s := Sweep{Command: "git stash", Tracked: true, Untracked: p.is("u", "a", "include-untracked", "all"), Stash: true}
		whole := name == "save" || len(p.operands) == 0
		if !whole {
			s.Paths, whole = c.pathspecs(p.operands)
		}
		if whole {
			s.Paths = nil
		} else if len(s.Paths) == 0 {
			s.Tracked, s.Untracked = false, false
		}
		c.sweep(s)
	case "pop", "apply", "drop", "clear", "branch":
		c.sweep(Sweep{Command: "git stash " + name, Stash: true})
	}
	c.r.opaque = true
}

// gitAdd records what stages more than the files that it names.
func (c *call) gitAdd() {
	p := options{short: "vnfipuANe", long: "verbose dry-run force sparse interactive patch edit all no-all no-ignore-removal ignore-removal update intent-to-add refresh " +
		"ignore-errors ignore-missing chmod= pathspec-from-file= pathspec-file-nul renormalize no-warn-embedded-repo"}.parse(c.args)
	if p.is("e", "edit") {
		c.r.opaque = true // what an editor does is nobody's guess
	}
	if p.is("n", "dry-run", "i", "interactive", "p", "patch", "e", "edit", "N", "intent-to-add", "refresh") {
		return
	}
	s := Sweep{Command: "git add", Tracked: true, Untracked: true, Takes: true}
	all := p.is("A", "all", "no-ignore-removal")
	switch {
	case all:
		s.Command += " -A"
	case p.is("u", "update"):
		s.Command, s.Untracked, all = "git add -u", false, true
	}
	c.takes(s, p.operands, all)
}

// gitCommit records what commits more than the files that it names, and what is staged.
func (c *call) gitCommit() {
	c.r.opaque = true // hooks run
	p := options{short: "apC:c:m:F:t:sS::u::vnqzeio", long: "all patch interactive reuse-message= reedit-message= fixup= squash= reset-author short branch porcelain " +
		"long null file= author= date= message= template= signoff no-signoff trailer= no-verify allow-empty allow-empty-message cleanup= edit no-edit amend " +
		"no-post-rewrite include only pathspec-from-file= pathspec-file-nul untracked-files? verbose quiet dry-run status no-status gpg-sign? no-gpg-sign"}.parse(c.args)
	if p.is("dry-run", "p", "patch", "interactive") {
		return
	}
	all := p.is("a", "all")
	s := Sweep{Command: "git commit", Tracked: true, Takes: true}
	if all {
		s.Command += " -a"
	}
	c.takes(s, p.operands, all)
}

// takes records a sweep that stages or commits: of its operands those count that are directories, or patterns for all in one. A file
// that is named is what the command is for.
func (c *call) takes(s Sweep, operands []word, all bool) {
	if len(operands) == 0 {
		if all {
			c.sweep(s)
		}
		return
	}
	var directories []word
	for _, w := range operands {
		at, ok := c.r.path(c.sc, w.text)
		pattern := strings.ContainsAny(w.text, "*?[")
		switch {
		case !w.known || !ok:
		case strings.HasPrefix(w.text, ":"), pattern && path.Base(w.text) == "*", !pattern && (c.r.isDir(at) || strings.HasSuffix(w.text, "/")):
			directories = append(directories, w)
		}
	}
	paths, whole := c.pathspecs(directories)
	if whole {
		paths = nil
	} else if len(paths) == 0 {
		return
	}
	if !all {
		s.Command += " DIRECTORY"
		if slices.ContainsFunc(directories, func(w word) bool { return w.text == "." }) {
			s.Command = strings.TrimSuffix(s.Command, "DIRECTORY") + "."
		}
	}
	s.Paths = paths
	c.sweep(s)
}
