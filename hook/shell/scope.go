package shell

import (
	"maps"
	"slices"

	"mvdan.cc/sh/v3/syntax"
)

// scope is what a shell knows and a subshell has a copy of.
type scope struct {
	dir       string   // working directory; "": not known
	stack     []string // of pushd, the last on top
	vars      map[string]value
	funcs     map[string]*syntax.Stmt // nil: there is one, and which is not known
	args      []string                // $1 and so on
	knowsArgs bool
	// locals are the variables that the function which runs has made its own, with what they are outside of it.
	locals map[string]*value
	// ended says that the shell has left this branch (exit, return, break, continue): what it knew there is known nowhere else.
	ended bool
	// odd says that words are split, or globs matched, in a way that is not followed here.
	odd bool
	// posix says that it may not be bash: braces may be nothing special, and pushd no command.
	posix bool
	// sharesVars says that vars are those of another scope too, sharesFuncs that funcs are.
	sharesVars, sharesFuncs bool
}

// value is a variable's. A variable that is in no map is as little known as one that is known not to be.
type value struct {
	known bool
	array bool
	text  string
	list  []string // of an array
}

func known(text string) value { return value{known: true, text: text} }

func (v value) equal(w value) bool {
	return v.known == w.known && v.array == w.array && v.text == w.text && slices.Equal(v.list, w.list)
}

func (sc *scope) clone() *scope {
	sc.sharesVars, sc.sharesFuncs = true, true
	c := *sc
	c.locals, c.stack = maps.Clone(sc.locals), slices.Clip(sc.stack)
	return &c
}

func (sc *scope) setVar(name string, v value) {
	if sc.sharesVars {
		sc.vars, sc.sharesVars = maps.Clone(sc.vars), false
	}
	sc.vars[name] = v
}

// setFunc defines a function; nil: it is not known which.
func (sc *scope) setFunc(name string, body *syntax.Stmt) {
	if sc.sharesFuncs {
		sc.funcs, sc.sharesFuncs = maps.Clone(sc.funcs), false
	}
	sc.funcs[name] = body
}

// forget makes all variables unknown.
func (sc *scope) forget() {
	for _, name := range slices.Collect(maps.Keys(sc.vars)) {
		sc.setVar(name, value{})
	}
	sc.knowsArgs = false
}

// join makes sc what is known after either of two branches; sc may be one of them.
func (sc *scope) join(a, b *scope) {
	switch {
	case a.ended && !b.ended:
		a = b
	case b.ended && !a.ended:
		b = a
	}
	j := a.clone()
	if a != b {
		for name, v := range b.vars {
			if w, ok := j.vars[name]; !ok || !w.equal(v) {
				j.setVar(name, value{})
			}
		}
		for name, v := range a.vars {
			if w, ok := b.vars[name]; !ok || !w.equal(v) {
				j.setVar(name, value{})
			}
		}
		for name, body := range b.funcs {
			if mine, ok := j.funcs[name]; !ok || mine != body {
				j.setFunc(name, nil)
			}
		}
		for name := range a.funcs {
			if _, ok := b.funcs[name]; !ok {
				j.setFunc(name, nil)
			}
		}
		for name, was := range b.locals {
			if _, ok := j.locals[name]; !ok {
				if j.locals == nil {
					j.locals = map[string]*value{}
				}
				j.locals[name] = was
			}
		}
		if a.dir != b.dir {
			j.dir = ""
		}
		if !slices.Equal(a.stack, b.stack) {
			j.stack = nil
		}
		if a.knowsArgs != b.knowsArgs || !slices.Equal(a.args, b.args) {
			j.knowsArgs = false
		}
		j.odd = a.odd || b.odd
		j.ended = a.ended && b.ended
	}
	*sc = *j
}

// set assigns a variable.
func (sc *scope) set(name string, v value) {
	if name == "IFS" || name == "GLOBIGNORE" {
		sc.odd = true
	}
	sc.setVar(name, v)
}

// change is what running nodes any number of times may leave behind.
type change struct {
	names []string // variables that are assigned
	all   bool     // any variable may be: a command decides which
	dir   bool     // the directory changes
	jumps bool     // break, continue or return: what follows one may not run
}

// changes looks for what the nodes may change in the shell that runs them. Subshells are not told from it: that errs on
// the side of knowing less.
func changes[N syntax.Node](nodes []N, funcs map[string]*syntax.Stmt) change {
	var c change
	seen := map[string]bool{}
	var look func(n syntax.Node) bool
	look = func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.Assign:
			if n.Name != nil {
				c.names = append(c.names, n.Name.Value)
			} else {
				c.all = true
			}
		case *syntax.ForClause:
			if iter, ok := n.Loop.(*syntax.WordIter); ok && iter.Name != nil {
				c.names = append(c.names, iter.Name.Value)
			}
		case *syntax.BinaryArithm:
			if word, ok := n.X.(*syntax.Word); ok && assigns(n.Op) {
				c.names = append(c.names, word.Lit())
			}
		case *syntax.UnaryArithm:
			if word, ok := n.X.(*syntax.Word); ok && (n.Op == syntax.Inc || n.Op == syntax.Dec) {
				c.names = append(c.names, word.Lit())
			}
		case *syntax.ParamExp:
			if n.Exp != nil && (n.Exp.Op == syntax.AssignUnset || n.Exp.Op == syntax.AssignUnsetOrNull) && n.Param != nil {
				c.names = append(c.names, n.Param.Value)
			}
		case *syntax.Redirect:
			if n.N != nil && len(n.N.Value) > 2 && n.N.Value[0] == '{' {
				c.names = append(c.names, n.N.Value[1:len(n.N.Value)-1])
			}
		case *syntax.CallExpr:
			if len(n.Args) == 0 {
				break
			}
			switch name := n.Args[0].Lit(); name {
			case "cd", "pushd", "popd":
				c.dir = true
				c.names = append(c.names, "PWD", "OLDPWD")
			case "break", "continue", "return":
				c.jumps = true
			case "read", "mapfile", "readarray", "getopts", "printf", "unset", "let", "wait", "shift", "set":
				c.all = c.all || name != "printf" || len(n.Args) > 1 && n.Args[1].Lit() == "-v"
			case "eval", "source", ".", "builtin", "command", "":
				c.all, c.dir = true, true
			default:
				if body, ok := funcs[name]; ok && !seen[name] {
					seen[name] = true
					if body == nil {
						c.all, c.dir = true, true
					} else {
						syntax.Walk(body, look)
					}
				}
			}
		}
		return true
	}
	for _, n := range nodes {
		syntax.Walk(n, look)
	}
	return c
}

func assigns(op syntax.BinAritOperator) bool {
	switch op {
	case syntax.Assgn, syntax.AddAssgn, syntax.SubAssgn, syntax.MulAssgn, syntax.QuoAssgn, syntax.RemAssgn, syntax.AndAssgn,
		syntax.OrAssgn, syntax.XorAssgn, syntax.ShlAssgn, syntax.ShrAssgn:
		return true
	}
	return false
}

// apply makes sc know no more than is sure after a change.
func (sc *scope) apply(c change) {
	if c.all {
		sc.forget()
	}
	for _, name := range c.names {
		sc.setVar(name, value{})
	}
	if c.dir {
		sc.dir, sc.stack = "", nil
	}
}
