package shell

import (
	"path"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// builtin interprets what the shell does itself; false: it is no builtin.
func (c *call) builtin() (sure, ok bool) {
	r, sc := c.r, c.sc
	switch c.name {
	case "cd", "chdir":
		c.changeDir()
		return true, true
	case "pushd":
		c.pushDir()
		return true, true
	case "popd":
		r.moved = true
		dir := ""
		if n := len(sc.stack); n > 0 && len(c.args) == 0 && !sc.posix {
			dir, sc.stack = sc.stack[n-1], sc.stack[:n-1]
		} else {
			sc.stack = nil
		}
		c.setDir(dir)
		return true, true
	case "mkdir":
		p := options{short: "m:pvZ", long: "mode= parents verbose context?"}.parse(c.args)
		for _, w := range p.operands {
			r.make(sc, w)
		}
		return true, true
	case "rmdir":
		for _, w := range c.args {
			if at, ok := r.path(sc, w.text); ok && r.isDir(at) {
				r.made[at] = false
			}
		}
		return false, true
	case "echo", "true", ":", "pwd", "printf":
		if c.name == "printf" && len(c.args) > 1 && c.args[0].text == "-v" {
			sc.set(c.args[1].text, value{})
		}
		return true, true
	case "false", "test", "[", "type", "hash", "dirs", "ulimit", "umask", "times", "jobs", "fg", "bg", "disown", "wait", "kill", "caller", "help",
		"complete", "compgen", "compopt", "bind", "suspend", "logout":
		return false, true
	case "exit", "return", "break", "continue":
		sc.ended = true
		return false, true
	case "set":
		c.setOptions()
		return true, true
	case "shopt":
		sc.odd = true
		return true, true
	case "shift":
		switch {
		case !sc.knowsArgs || len(c.args) > 0:
			sc.knowsArgs = false
		case len(sc.args) > 0:
			sc.args = sc.args[1:]
		}
		return true, true
	case "unset":
		for _, w := range c.args {
			switch {
			case !w.known:
				sc.forget()
			case strings.HasPrefix(w.text, "-"):
			default:
				sc.set(w.text, value{})
				if _, ok := sc.funcs[w.text]; ok {
					sc.setFunc(w.text, nil)
				}
			}
		}
		return true, true
	case "read", "mapfile", "readarray", "getopts":
		for _, w := range c.args {
			if !w.known {
				sc.forget()
			} else {
				sc.setVar(w.text, value{})
			}
		}
		for _, name := range [...]string{"REPLY", "MAPFILE", "OPTARG", "OPTIND"} {
			sc.setVar(name, value{})
		}
		return false, true
	case "let", "local", "declare", "export", "readonly", "typeset": // spelled so that the parser does not know them
		sc.forget()
		return true, true
	case "history":
		if len(c.args) > 0 {
			r.opaque = true
		}
		return true, true
	case "alias", "unalias", "enable", "source", ".":
		r.opaque = true
		if c.name == "source" || c.name == "." {
			sc.forget()
			sc.dir, sc.stack = "", nil
		}
		return true, true
	case "eval":
		c.eval()
		return false, true
	case "trap":
		p := options{short: "lp", strict: true}.parse(c.args)
		switch {
		case len(p.operands) == 0 || len(p.operands) == 1 && !p.is("p"):
		case !p.operands[0].known:
			r.opaque = true
		case p.operands[0].text != "-" && !p.is("p", "l"):
			r.traps = append(r.traps, p.operands[0].text)
		}
		return true, true
	}
	return false, false
}

func (c *call) changeDir() {
	sc := c.sc
	c.r.moved = true
	p := options{short: "LPe@"}.parse(c.args)
	physical := p.is("P")
	switch {
	case p.strange || len(p.operands) > 1:
		c.setDir("")
	case len(p.operands) == 0:
		home := sc.vars["HOME"]
		c.setDir(home.text)
	case p.operands[0].text == "-" && p.operands[0].known:
		old := sc.vars["OLDPWD"]
		c.setDir(old.text)
	default:
		to := p.operands[0]
		if _, odd := sc.vars["CDPATH"]; !to.known || physical || odd && !strings.HasPrefix(to.text, "/") && !strings.HasPrefix(to.text, ".") {
			c.setDir("")
			return
		}
		c.setDir(c.join(to.text))
	}
}

// join is the directory that a name leads to: cd goes by names, so that .. is the parent that the name shows.
func (c *call) join(name string) string {
	switch {
	case strings.HasPrefix(name, "/"):
		return path.Clean(name)
	case c.sc.dir == "" || name == "":
		return c.sc.dir
	}
	return path.Join(c.sc.dir, name)
}

// setDir changes the directory; "": it is not known any more.
func (c *call) setDir(dir string) {
	sc := c.sc
	if !strings.HasPrefix(dir, "/") {
		dir = ""
	}
	sc.setVar("OLDPWD", value{known: sc.dir != "", text: sc.dir})
	sc.dir = dir
	sc.setVar("PWD", value{known: dir != "", text: dir})
}

func (c *call) pushDir() {
	sc := c.sc
	c.r.moved = true
	if len(c.args) != 1 || !c.args[0].known || sc.posix || strings.HasPrefix(c.args[0].text, "+") || strings.HasPrefix(c.args[0].text, "-") {
		sc.stack = nil
		c.setDir("")
		return
	}
	sc.stack = append(sc.stack[:len(sc.stack):len(sc.stack)], sc.dir)
	c.setDir(c.join(c.args[0].text))
}

func (c *call) setOptions() {
	sc := c.sc
	for i, w := range c.args {
		switch {
		case !w.known:
			sc.odd, sc.knowsArgs = true, false
			return
		case w.text == "--" || w.text == "-" || !strings.HasPrefix(w.text, "-") && !strings.HasPrefix(w.text, "+"):
			if w.text == "--" || w.text == "-" {
				i++
			}
			if i > 0 && strings.HasSuffix(c.args[i-1].text, "o") && w.text != "--" && w.text != "-" {
				sc.odd = sc.odd || w.text == "noglob" || w.text == "posix"
				continue
			}
			sc.args, sc.knowsArgs = nil, true
			for _, arg := range c.args[i:] {
				sc.args = append(sc.args, arg.text)
				sc.knowsArgs = sc.knowsArgs && arg.known
			}
			return
		case strings.Contains(w.text, "f"):
			sc.odd = true
		}
	}
}

// function interprets a call of a function of the line.
func (c *call) function(body *syntax.Stmt) {
	r, sc := c.r, c.sc
	if body == nil {
		r.opaque = true
		sc.forget()
		sc.dir, sc.stack = "", nil
		return
	}
	args, knows, locals := sc.args, sc.knowsArgs, sc.locals
	sc.args, sc.knowsArgs, sc.locals = nil, true, map[string]*value{}
	for _, w := range c.args {
		sc.args = append(sc.args, w.text)
		sc.knowsArgs = sc.knowsArgs && w.known
	}
	r.stmt(body, sc)
	if ch := changes([]*syntax.Stmt{body}, sc.funcs); ch.jumps {
		sc.apply(ch)
		sc.ended = false
	}
	for name, was := range sc.locals {
		if was == nil {
			sc.setVar(name, value{})
		} else {
			sc.setVar(name, *was)
		}
	}
	sc.args, sc.knowsArgs, sc.locals = args, knows, locals
}

// eval interprets its words as a line in the same shell.
func (c *call) eval() {
	var text []string
	for _, w := range c.args {
		if !w.known {
			c.r.opaque = true
			c.sc.forget()
			c.sc.dir, c.sc.stack = "", nil
			return
		}
		text = append(text, w.text)
	}
	c.r.code(strings.Join(text, " "), c.sc)
}

// shell interprets what another shell is given to run, if that is in the line.
func (c *call) shell() {
	spec := options{short: "abefhkmnptuvxBCHPirsDclo:O:", long: "norc noprofile login posix verbose rcfile= init-file= restricted noediting", strict: true}
	p := spec.parse(c.args)
	switch {
	case p.strange || p.is("i", "rcfile", "init-file", "O", "o") && !harmlessOption(&p):
		c.r.opaque = true
	case p.is("c"):
		if len(p.operands) == 0 {
			return
		}
		c.child(p.operands[0], p.operands[1:], 1)
	case len(p.operands) > 0 && !p.is("s"):
		c.r.opaque = true // a script
	case c.in.given:
		c.child(c.in.text, p.operands, 0)
	default:
		c.r.opaque = true // what a pipe holds
	}
}

// harmlessOption says whether -o sets what changes nothing of how a line is read.
func harmlessOption(p *parsed) bool {
	if p.is("i", "rcfile", "init-file", "O") {
		return false
	}
	for _, o := range p.given {
		if o.name == "o" && o.value.text != "pipefail" && o.value.text != "errexit" && o.value.text != "nounset" && o.value.text != "xtrace" {
			return false
		}
	}
	return true
}

// child interprets code in a shell of its own, which knows what is in the environment. Its arguments are those from the
// skip-th on: bash -c gives the first to $0.
func (c *call) child(code word, args []word, skip int) {
	if !code.known {
		c.r.opaque = true
		return
	}
	sc := &scope{dir: c.sc.dir, vars: map[string]value{}, funcs: map[string]*syntax.Stmt{}, knowsArgs: true, odd: c.name == "zsh", posix: c.name != "bash" && c.name != "zsh"}
	for _, name := range [...]string{"HOME", "PWD", "OLDPWD", "TMPDIR", "USER"} {
		if v, ok := c.sc.vars[name]; ok {
			sc.setVar(name, v)
		}
	}
	for i, w := range args {
		if i < skip {
			continue
		}
		sc.args = append(sc.args, w.text)
		sc.knowsArgs = sc.knowsArgs && w.known
	}
	c.r.code(code.text, sc)
}
