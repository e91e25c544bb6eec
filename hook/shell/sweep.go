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
	// files. Without any it reaches all of Dir's worktree. Of all these it reaches those whose path ends with Suffix.
	Dir    string
	Paths  []string
	Suffix string
	// Tracked are changes to files that git knows, Untracked files that it does not know.
	Tracked, Untracked bool
	// Takes says that what it reaches is staged or committed. Else the changes are undone, and the files removed.
	Takes bool
	// Stash says that it uses the stash, which all worktrees of a clone share.
	Stash bool
}

// maxSweeps bounds those of a line. Of more the first are kept, but one that undoes changes is kept rather than one that takes them,
// which is denied only once and loses nothing.
const maxSweeps = 16

// sweep records one, unless it reaches nothing.
func (c *call) sweep(s Sweep) {
	s.Dir = c.sc.dir
	slices.Sort(s.Paths)
	s.Paths = slices.Compact(s.Paths)
	same := func(t Sweep) bool {
		return t.Command == s.Command && t.Dir == s.Dir && t.Suffix == s.Suffix && t.Tracked == s.Tracked && t.Untracked == s.Untracked &&
			slices.Equal(t.Paths, s.Paths)
	}
	if s.Dir == "" || slices.ContainsFunc(c.r.sweeps, same) {
		return
	}
	less := -1
	if len(c.r.sweeps) == maxSweeps {
		for i, t := range c.r.sweeps {
			if t.Takes {
				less = i
			}
		}
		if s.Takes || less < 0 {
			return
		}
	}
	for _, at := range s.Paths {
		if !c.r.room(at + s.Suffix) { // where there is a suffix there is one path
			return
		}
	}
	if less >= 0 {
		c.r.sweeps = slices.Delete(c.r.sweeps, less, less+1)
	}
	c.r.sweeps = append(c.r.sweeps, s)
}

// reach records s once for the operands of git that are directories or files, and once for each pattern: it is about what is below
// where the pattern begins and ends as the pattern does. What nobody knows is left out. It reports whether there was any.
func (c *call) reach(s Sweep, operands []word) bool {
	whole, without, unknown := false, false, false
	var paths []string
	patterns := 0
	for _, w := range operands {
		text := w.text
		switch {
		case !w.known:
			unknown = true
			continue
		case text == "":
			continue
		case strings.HasPrefix(text, ":!"), strings.HasPrefix(text, ":^"), strings.HasPrefix(text, ":(exclude"):
			without = true
			continue
		case strings.HasPrefix(text, ":"):
			whole = true // from the top, mostly
			continue
		}
		first := strings.IndexAny(text, "*?[")
		if first < 0 {
			if at, ok := c.r.path(c.sc, text); ok {
				paths = append(paths, at)
			}
			continue
		}
		if at, ok := c.r.path(c.sc, path.Dir(text[:first]+"x")); ok {
			patterns++
			one := s
			one.Command, one.Paths, one.Suffix = strings.Replace(s.Command, "DIRECTORY", "PATTERN", 1), []string{at}, unescape(text[strings.LastIndexAny(text, "*?]")+1:])
			c.sweep(one)
		}
	}
	switch {
	case whole, without && !unknown && len(paths)+patterns == 0: // all but what is excluded
		s.Paths = nil
		c.sweep(s)
	case len(paths) > 0:
		s.Paths = paths
		c.sweep(s)
	default:
		return patterns > 0
	}
	return true
}

// undo records what puts all back as git has it.
func (c *call) undo(command string) { c.sweep(Sweep{Command: command, Tracked: true}) }

func (c *call) gitSwitch() {
	c.r.opaque = true
	p := options{short: "fqc:C:dtm", long: "force discard-changes create= force-create= detach guess no-guess quiet progress no-progress merge conflict= track? " +
		"no-track orphan= ignore-other-worktrees recurse-submodules no-recurse-submodules"}.parse(c.args)
	switch {
	case p.is("f", "force", "discard-changes"):
		c.undo("git switch --force")
	case p.is("m", "merge"):
		c.undo("git switch --merge")
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
	clean := Sweep{Command: "git clean", Untracked: true}
	if len(p.operands) > 0 {
		c.reach(clean, p.operands)
		return
	}
	clean.Paths = []string{c.sc.dir} // it stays below where it runs
	c.sweep(clean)
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
		if name == "save" || len(p.operands) == 0 || p.is("pathspec-from-file") {
			c.sweep(s)
		} else if !c.reach(s, p.operands) {
			c.sweep(Sweep{Command: s.Command, Stash: true})
		}
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

// takes records a sweep that stages or commits: of its operands those count that are directories or patterns. A file that is named is
// what the command is for.
func (c *call) takes(s Sweep, operands []word, all bool) {
	if len(operands) == 0 {
		if all {
			c.sweep(s)
		}
		return
	}
	var more []word
	for _, w := range operands {
		at, ok := c.r.path(c.sc, w.text)
		if w.known && (strings.HasPrefix(w.text, ":") || strings.ContainsAny(w.text, "*?[") || strings.HasSuffix(w.text, "/") || ok && c.r.isDir(at)) {
			more = append(more, w)
		}
	}
	switch {
	case all:
	case slices.ContainsFunc(more, func(w word) bool { return w.text == "." }):
		s.Command += " ."
	default:
		s.Command += " DIRECTORY"
	}
	c.reach(s, more)
}
