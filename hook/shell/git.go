package shell

import (
	"slices"
	"strings"
)

// git names the files of the commands that are about files. Those that change the worktree at large, or run hooks, are opaque.
func (c *call) git() {
	spec := options{short: "pPC:c:hv", strict: true, long: "git-dir= work-tree= namespace= bare no-pager paginate no-replace-objects literal-pathspecs " +
		"glob-pathspecs noglob-pathspecs icase-pathspecs no-optional-locks version help exec-path? html-path man-path info-path"}
	p := c.parse(spec)
	inner := *c
	inner.sc = c.sc.clone()
	elsewhere := false
	for _, o := range p.given {
		switch o.name {
		case "C":
			if !o.value.known {
				inner.sc.dir = ""
			} else {
				inner.sc.dir = inner.join(o.value.text)
			}
		case "c":
			if !quietSetting(o.value) {
				c.r.opaque = true
			}
		case "git-dir", "work-tree", "literal-pathspecs", "glob-pathspecs", "noglob-pathspecs", "icase-pathspecs":
			elsewhere = true
		}
	}
	for _, name := range c.sets {
		if strings.HasPrefix(name, "GIT_") && !quietVariable(name) {
			elsewhere = true
		}
	}
	if p.strange || len(p.operands) == 0 {
		return
	}
	if !p.operands[0].known {
		c.r.opaque = true
		return
	}
	inner.name, inner.args = p.operands[0].text, p.operands[1:]
	if elsewhere && !slices.Contains(gitReaders, inner.name) {
		c.r.opaque = true
		return
	}
	inner.gitCommand()
}

// gitReaders change at most what is in .git.
var gitReaders = []string{"status", "log", "diff", "show", "blame", "annotate", "branch", "rev-parse", "ls-files", "ls-tree", "ls-remote", "grep",
	"describe", "shortlog", "reflog", "cat-file", "for-each-ref", "show-ref", "show-branch", "rev-list", "merge-base", "name-rev", "config", "tag", "remote",
	"fetch", "add", "stage", "var", "version", "help", "whatchanged", "range-diff", "cherry", "check-ignore", "check-attr", "diff-tree", "diff-index",
	"diff-files", "count-objects", "fsck", "gc", "prune", "repack", "pack-refs", "update-ref", "symbolic-ref", "hash-object", "write-tree", "commit-tree",
	"mktree", "verify-commit", "verify-tag", "merge-tree", "notes", "patch-id", "diff-pairs", "get-tar-commit-id", "stripspace", "check-ref-format", "update-index"}

// quietSetting says whether git -c NAME=VALUE changes neither what is run nor which files are touched.
func quietSetting(w word) bool {
	name, _, _ := strings.Cut(w.text, "=")
	for _, prefix := range [...]string{"user.", "color.", "advice.", "init.", "log.", "diff.renam", "diff.algorithm", "diff.context", "column.", "gc.",
		"core.quotepath", "core.pager", "core.abbrev", "commit.gpgsign", "tag.gpgsign", "http.", "safe."} {
		if strings.HasPrefix(strings.ToLower(name), prefix) {
			return true
		}
	}
	return false
}

// quietVariable says the same of an environment variable.
func quietVariable(name string) bool {
	switch name {
	case "GIT_PAGER", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "GIT_TERMINAL_PROMPT", "GIT_MERGE_AUTOEDIT", "GIT_OPTIONAL_LOCKS":
		return true
	}
	return strings.HasPrefix(name, "GIT_AUTHOR_") || strings.HasPrefix(name, "GIT_COMMITTER_") || strings.HasPrefix(name, "GIT_TRACE")
}

func (c *call) gitCommand() {
	switch c.name {
	case "mv":
		c.gitMove()
	case "rm":
		c.gitRemove()
	case "restore":
		c.gitRestore()
	case "checkout":
		c.gitCheckout()
	case "reset":
		if !c.plain() || c.has("--hard", "--merge", "--keep", "-p", "--patch") {
			c.r.opaque = true
		}
		if c.has("--hard") {
			c.undo("git reset --hard")
		}
	case "switch":
		c.gitSwitch()
	case "stash":
		c.gitStash()
	case "clean":
		c.gitClean()
	case "add", "stage":
		c.gitAdd()
	case "commit":
		c.gitCommit()
	case "apply":
		if !c.has("--check", "--stat", "--numstat", "--summary") || c.has("--apply", "--index", "--3way") {
			c.r.opaque = true
		}
	case "worktree":
		if len(c.args) == 0 || c.args[0].text != "list" && c.args[0].text != "prune" && c.args[0].text != "lock" && c.args[0].text != "unlock" {
			c.r.opaque = true
		}
	case "submodule":
		if len(c.args) > 0 && c.args[0].text != "status" && c.args[0].text != "summary" {
			c.r.opaque = true
		}
	case "bisect":
		if len(c.args) == 0 || c.args[0].text != "log" && c.args[0].text != "view" {
			c.r.opaque = true
		}
	case "archive":
		out := false
		for i, w := range c.args {
			if name, ok := strings.CutPrefix(w.text, "--output="); ok {
				c.r.write(c.sc, word{text: name, known: w.known}, Write{})
				out = true
			} else if (w.text == "-o" || w.text == "--output") && i+1 < len(c.args) {
				c.r.write(c.sc, c.args[i+1], Write{})
				out = true
			}
		}
		c.r.opaque = c.r.opaque || !out && !c.plain()
	case "grep":
		if slices.ContainsFunc(c.args, func(w word) bool { return strings.HasPrefix(w.text, "-O") || strings.HasPrefix(w.text, "--open-files") }) {
			c.r.opaque = true
		}
	case "config":
		// What an editor does is nobody's guess.
		if c.has("-e", "--edit") {
			c.r.opaque = true
		}
	default:
		if !slices.Contains(gitReaders, c.name) {
			c.r.opaque = true
			return
		}
		for i, w := range c.args {
			if w.text == "--" && w.known {
				break
			}
			if name, ok := strings.CutPrefix(w.text, "--output="); ok {
				c.r.write(c.sc, word{text: name, known: w.known}, Write{})
			} else if w.text == "--output" && i+1 < len(c.args) {
				c.r.write(c.sc, c.args[i+1], Write{})
			}
			c.r.opaque = c.r.opaque || w.text == "--ext-diff"
		}
	}
}

// plain says whether all arguments are known.
func (c *call) plain() bool {
	return !slices.ContainsFunc(c.args, func(w word) bool { return !w.known })
}

func (c *call) has(names ...string) bool {
	for _, w := range c.args {
		if w.text == "--" && w.known {
			return false
		}
		if w.known && slices.Contains(names, w.text) {
			return true
		}
	}
	return false
}

// pathspec reports whether an operand is one path and no pattern, and no directory.
func (c *call) pathspec(w word) bool {
	if !w.known {
		return false
	}
	at, ok := c.r.path(c.sc, w.text)
	return ok && !strings.ContainsAny(w.text, "*?[") && !strings.HasPrefix(w.text, ":") && !strings.HasSuffix(w.text, "/") && !c.r.isDir(at)
}

// checkedOut names files that a command puts into the worktree. All in a directory, or that a pattern matches, is opaque.
func (c *call) checkedOut(command string, paths []word) {
	var more []word
	for _, w := range paths {
		if !c.pathspec(w) {
			c.r.opaque = true
			more = append(more, w)
		} else {
			c.r.write(c.sc, w, Write{Entry: true})
		}
	}
	c.reach(Sweep{Command: command + " DIRECTORY", Tracked: true}, more)
}

func (c *call) gitMove() {
	p := c.parse(options{short: "fknv", long: "force dry-run verbose sparse"})
	if p.strange || p.is("n", "dry-run") || len(p.operands) < 2 {
		return
	}
	move := *c
	move.name = "mv"
	t := transfer{c: &move, entry: true, keep: true}
	last := len(p.operands) - 1
	if p.operands[last].many || p.operands[last].perhaps {
		c.r.opaque = true
		return
	}
	t.run(p.operands[:last], p.operands[last], false, true)
}

func (c *call) gitRemove() {
	p := c.parse(options{short: "frnq", long: "force dry-run cached ignore-unmatch quiet sparse pathspec-from-file="})
	if p.is("pathspec-from-file") {
		c.r.opaque = true
	}
	if p.is("cached", "n", "dry-run") {
		return
	}
	for _, w := range p.operands {
		switch {
		case c.pathspec(w):
			at, _ := c.r.path(c.sc, w.text)
			c.r.write(c.sc, w, Write{Entry: true, Tree: p.is("r") && !c.r.isFile(at)})
		case w.known && p.is("r") && !strings.ContainsAny(w.text, "*?[") && !strings.HasPrefix(w.text, ":"):
			c.r.write(c.sc, w, Write{Entry: true, Tree: true})
		default:
			c.r.opaque = true
		}
	}
}

func (c *call) gitRestore() {
	p := c.parse(options{short: "s:SWmpq2U:", long: "source= staged worktree merge conflict= patch quiet progress no-progress ours theirs overlay no-overlay " +
		"ignore-unmerged ignore-skip-worktree-bits recurse-submodules no-recurse-submodules pathspec-from-file= pathspec-file-nul"})
	if p.is("pathspec-from-file", "recurse-submodules") {
		c.r.opaque = true
	}
	if p.is("S", "staged") && !p.is("W", "worktree") {
		return
	}
	if p.is("pathspec-from-file") {
		c.undo("git restore --pathspec-from-file")
	}
	c.checkedOut("git restore", p.operands)
}

func (c *call) gitCheckout() {
	spec := options{short: "fqb:B:tdlmp23U:", long: "force quiet progress no-progress ours theirs track? no-track guess no-guess detach orphan= merge conflict= patch " +
		"ignore-skip-worktree-bits ignore-other-worktrees overlay no-overlay pathspec-from-file= pathspec-file-nul recurse-submodules no-recurse-submodules overwrite-ignore"}
	dashes := slices.IndexFunc(c.args, func(w word) bool { return w.known && w.text == "--" })
	var paths []word
	if dashes >= 0 {
		paths = c.args[dashes+1:]
		c.args = c.args[:dashes]
	}
	p := c.parse(spec)
	branch := p.is("b", "B", "t", "d", "l", "orphan", "track", "detach", "pathspec-from-file", "recurse-submodules")
	if dashes < 0 && !branch {
		paths = p.operands
		if len(paths) > 0 && !c.there(paths[0]) && !strings.ContainsAny(paths[0].text, "*?[:") {
			paths = paths[1:] // a commit
		}
		if p.is("p", "patch") && len(paths) == 0 {
			c.r.opaque = true
		}
	}
	if branch || len(paths) == 0 {
		c.r.opaque = true // another branch
		switch {
		case p.is("pathspec-from-file"):
			c.undo("git checkout --pathspec-from-file")
		case p.is("f", "force"):
			c.undo("git checkout --force")
		case p.is("m", "merge"):
			c.undo("git checkout --merge")
		}
		return
	}
	c.checkedOut("git checkout", paths)
}

// there says whether an operand is a path in the tree.
func (c *call) there(w word) bool {
	at, ok := c.r.path(c.sc, w.text)
	return ok && w.known && (c.r.exists(at) || c.r.isDir(at))
}
