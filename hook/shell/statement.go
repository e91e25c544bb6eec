package shell

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

func (r *reading) stmts(list []*syntax.Stmt, sc *scope) (sure bool) {
	for _, s := range list {
		sure = r.stmt(s, sc)
	}
	return sure
}

// subshell interprets statements in a shell of their own.
func (r *reading) subshell(list []*syntax.Stmt, sc *scope) {
	r.stmts(list, sc.clone())
}

// branch interprets what may not run, and says what is known then.
func (r *reading) branch(sc *scope, f func(*scope)) *scope {
	r.maybe++
	defer func() { r.maybe-- }()
	in := sc.clone()
	f(in)
	return in
}

// stmt interprets a statement. It is sure where it cannot fail for a reason that a line is written for.
func (r *reading) stmt(s *syntax.Stmt, sc *scope) (sure bool) {
	if !r.enter() {
		return false
	}
	defer r.leave()
	r.work++
	if s.Background || s.Coprocess {
		sc = sc.clone()
	}
	switch cmd := s.Cmd.(type) {
	case *syntax.CallExpr:
		return r.call(cmd, sc, s.Redirs) && !s.Negated
	case *syntax.FuncDecl:
		r.redirects(s.Redirs, sc)
		if cmd.Name != nil {
			sc.setFunc(cmd.Name.Value, cmd.Body)
		}
		return true
	default:
		r.redirects(s.Redirs, sc)
	}
	switch cmd := s.Cmd.(type) {
	case *syntax.Subshell:
		r.subshell(cmd.Stmts, sc)
	case *syntax.Block:
		sure = r.stmts(cmd.Stmts, sc)
	case *syntax.BinaryCmd:
		sure = r.binary(cmd, sc)
	case *syntax.IfClause:
		r.ifClause(cmd, sc)
	case *syntax.CaseClause:
		r.caseClause(cmd, sc)
	case *syntax.WhileClause:
		body := slices.Concat(cmd.Cond, cmd.Do)
		r.loop(body, sc, func(in *scope) {
			r.stmts(cmd.Cond, in)
			*in = *r.branch(in, func(in *scope) { r.stmts(cmd.Do, in) })
		})
	case *syntax.ForClause:
		r.forClause(cmd, sc)
	case *syntax.DeclClause:
		r.declare(cmd, sc)
		sure = true
	case *syntax.TimeClause:
		if cmd.Stmt != nil {
			sure = r.stmt(cmd.Stmt, sc)
		}
	case *syntax.CoprocClause:
		r.subshell([]*syntax.Stmt{cmd.Stmt}, sc)
	case *syntax.TestClause:
		r.effects(cmd.X, sc)
	case *syntax.ArithmCmd:
		r.effects(cmd.X, sc)
	case *syntax.LetClause:
		for _, x := range cmd.Exprs {
			r.effects(x, sc)
		}
	case nil: // only redirections
	default:
		r.opaque = true
	}
	return sure && !s.Negated
}

// binary interprets a list or a pipe.
func (r *reading) binary(cmd *syntax.BinaryCmd, sc *scope) (sure bool) {
	switch cmd.Op {
	case syntax.Pipe, syntax.PipeAll:
		r.subshell([]*syntax.Stmt{cmd.X}, sc)
		r.subshell([]*syntax.Stmt{cmd.Y}, sc)
		return false
	}
	won, lost := r.andOr(cmd, sc)
	if lost != nil {
		won.join(won, lost)
	}
	*sc = *won
	return lost == nil
}

// outcome interprets a statement, and returns what is known where it succeeds, and where it fails; nil: it does not. sc is
// not to be used any more.
func (r *reading) outcome(s *syntax.Stmt, sc *scope) (won, lost *scope) {
	if cmd, ok := s.Cmd.(*syntax.BinaryCmd); ok && len(s.Redirs) == 0 && !s.Negated && !s.Background && (cmd.Op == syntax.AndStmt || cmd.Op == syntax.OrStmt) {
		if !r.enter() {
			return sc, sc.clone()
		}
		defer r.leave()
		return r.andOr(cmd, sc)
	}
	if r.stmt(s, sc) {
		return sc, nil
	}
	return sc, sc.clone()
}

// andOr is outcome for && and ||.
func (r *reading) andOr(cmd *syntax.BinaryCmd, sc *scope) (won, lost *scope) {
	won, lost = r.outcome(cmd.X, sc)
	if cmd.Op == syntax.AndStmt {
		if lost == nil {
			return r.outcome(cmd.Y, won)
		}
		r.maybe++
		defer func() { r.maybe-- }()
		won, again := r.outcome(cmd.Y, won)
		if again != nil {
			lost.join(lost, again)
		}
		return won, lost
	}
	r.maybe++
	defer func() { r.maybe-- }()
	if lost == nil {
		r.outcome(cmd.Y, won.clone())
		return won, nil
	}
	other, lost := r.outcome(cmd.Y, lost)
	won.join(won, other)
	return won, lost
}

func (r *reading) ifClause(cmd *syntax.IfClause, sc *scope) {
	if !r.enter() {
		return
	}
	defer r.leave()
	won, lost := sc, sc
	if n := len(cmd.Cond); n > 0 {
		r.stmts(cmd.Cond[:n-1], sc)
		if won, lost = r.outcome(cmd.Cond[n-1], sc); lost == nil {
			lost = won
		}
	}
	then := r.branch(won, func(in *scope) { r.stmts(cmd.Then, in) })
	other := lost
	if cmd.Else != nil {
		other = r.branch(lost, func(in *scope) {
			if len(cmd.Else.Cond) > 0 {
				r.ifClause(cmd.Else, in)
			} else {
				r.stmts(cmd.Else.Then, in)
			}
		})
	}
	sc.join(then, other)
}

func (r *reading) caseClause(cmd *syntax.CaseClause, sc *scope) {
	r.one(cmd.Word, sc)
	ends := []*scope{sc.clone()}
	before := sc.clone()
	for _, item := range cmd.Items {
		for _, p := range item.Patterns {
			r.one(p, sc)
		}
		in := r.branch(before, func(in *scope) { r.stmts(item.Stmts, in) })
		if item.Op == syntax.Fallthrough || item.Op == syntax.Resume {
			before = before.clone()
			before.join(before, in)
		}
		ends = append(ends, in)
	}
	for _, end := range ends {
		sc.join(sc, end)
	}
}

// loop interprets a body that runs any number of times.
func (r *reading) loop(body []*syntax.Stmt, sc *scope, once func(*scope)) {
	c := changes(body, sc.funcs)
	sc.apply(c)
	for range 2 { // what the first time makes, the second meets
		before := len(r.made) + len(r.links) + len(r.writes)
		in := r.branch(sc, once)
		in.ended = false
		in.apply(c)
		sc.join(sc, in)
		if len(r.made)+len(r.links)+len(r.writes) == before {
			break
		}
	}
}

func (r *reading) forClause(cmd *syntax.ForClause, sc *scope) {
	iter, ok := cmd.Loop.(*syntax.WordIter)
	if !ok {
		if c, ok := cmd.Loop.(*syntax.CStyleLoop); ok {
			for _, x := range [...]syntax.ArithmExpr{c.Init, c.Cond, c.Post} {
				if x != nil {
					r.effects(x, sc)
				}
			}
			sc.apply(changes([]*syntax.ForClause{cmd}, sc.funcs))
		}
		r.loop(cmd.Do, sc, func(in *scope) { r.stmts(cmd.Do, in) })
		return
	}
	if iter.Name == nil {
		r.opaque = true
		return
	}
	name := iter.Name.Value
	var words []word
	if iter.InPos.IsValid() {
		if words, ok = r.fields(iter.Items, sc, maxWords); !ok {
			r.opaque = true
		}
	} else {
		for _, arg := range sc.args {
			words = append(words, literal(arg))
		}
		ok = sc.knowsArgs
	}
	c := changes(cmd.Do, sc.funcs)
	if !ok || cmd.Select || slices.ContainsFunc(words, func(w word) bool { return w.many }) {
		sc.set(name, value{})
		r.loop(cmd.Do, sc, func(in *scope) { r.stmts(cmd.Do, in) })
		if !ok || cmd.Select {
			return
		}
	}
	for _, w := range words {
		if w.many {
			continue
		}
		if !r.enter() {
			return
		}
		if c.jumps {
			sc.apply(c)
		}
		if w.known {
			sc.set(name, known(w.text))
		} else {
			sc.set(name, value{})
		}
		in := sc.clone()
		r.stmts(cmd.Do, in)
		in.ended = in.ended && !c.jumps
		if c.jumps {
			sc.join(sc, in)
		} else {
			*sc = *in
		}
		r.leave()
	}
	if c.jumps {
		sc.apply(c)
	}
}

func (r *reading) declare(cmd *syntax.DeclClause, sc *scope) {
	local, strange := cmd.Variant.Value == "local", cmd.Variant.Value == "nameref"
	for _, a := range cmd.Args {
		if a.Name == nil {
			option := r.one(a.Value, sc)
			if !option.known || strings.ContainsAny(option.text, "inuclA") {
				strange = true
			}
			continue
		}
		if sc.locals != nil && (local || cmd.Variant.Value == "declare" || cmd.Variant.Value == "typeset") {
			if _, ok := sc.locals[a.Name.Value]; !ok {
				var was *value
				if v, ok := sc.vars[a.Name.Value]; ok {
					was = &v
				}
				sc.locals[a.Name.Value] = was
				if a.Naked {
					sc.setVar(a.Name.Value, known(""))
				}
			}
		}
		if !a.Naked {
			r.assign(a, sc)
		}
		if strange {
			sc.set(a.Name.Value, value{})
		}
	}
	if strange {
		sc.forget() // a reference gives another variable's value another name
	}
}

// assign carries out an assignment.
func (r *reading) assign(a *syntax.Assign, sc *scope) {
	if a.Name == nil {
		r.one(a.Value, sc)
		sc.forget()
		return
	}
	name := a.Name.Value
	was := sc.vars[name]
	var v value
	switch {
	case a.Array != nil:
		v = value{known: true, array: true}
		var words []*syntax.Word
		for _, elem := range a.Array.Elems {
			if elem.Index != nil || elem.Value == nil {
				v.known = false
			}
			if elem.Value != nil {
				words = append(words, elem.Value)
			}
		}
		list, ok := r.fields(words, sc, maxWords)
		v.known = v.known && ok
		for _, w := range list {
			v.known = v.known && w.known
			v.list = append(v.list, w.text)
		}
		if a.Append {
			v.known = v.known && was.known && was.array
			v.list = slices.Concat(was.list, v.list)
		}
	case a.Index != nil:
		r.effects(a.Index, sc)
		r.one(a.Value, sc)
	default:
		w := r.one(a.Value, sc)
		v = value{known: w.known && !strings.Contains(w.text, ":~"), text: w.text}
		if a.Append {
			v.known = v.known && was.known && !was.array
			v.text = was.text + v.text
		}
	}
	if !v.known {
		v = value{}
	}
	sc.set(name, v)
}

// effects interprets what is run, and assigned, when nodes of an expression are evaluated.
func (r *reading) effects(n syntax.Node, sc *scope) {
	syntax.Walk(n, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.CmdSubst:
			if n.ReplyVar || n.TempFile {
				r.stmts(n.Stmts, sc)
			} else {
				r.subshell(n.Stmts, sc)
			}
			return false
		case *syntax.ProcSubst:
			r.subshell(n.Stmts, sc)
			return false
		}
		return true
	})
	for _, name := range changes([]syntax.Node{n}, nil).names {
		sc.set(name, value{})
	}
}

// input is what a command finds on its standard input.
type input struct {
	given bool // by a redirection
	text  word // of a document in the line; else not known
}

// redirects opens the files of a statement's redirections.
func (r *reading) redirects(list []*syntax.Redirect, sc *scope) (in input) {
	for _, d := range list {
		if d.N != nil && strings.HasPrefix(d.N.Value, "{") {
			sc.set(strings.Trim(d.N.Value, "{}"), value{})
		}
		stdin := d.N == nil || d.N.Value == "0"
		switch d.Op {
		case syntax.Hdoc, syntax.DashHdoc, syntax.WordHdoc:
			w := word{}
			if d.Op == syntax.WordHdoc {
				w = r.one(d.Word, sc)
				w.text += "\n"
			} else {
				w = r.document(d, sc)
			}
			if stdin {
				in = input{given: true, text: w}
			}
			continue
		}
		target := r.target(d.Word, sc)
		switch d.Op {
		case syntax.RdrIn:
			r.read(sc, target)
			if stdin {
				in = input{given: true}
			}
		case syntax.RdrInOut:
			r.read(sc, target)
			r.write(sc, target, Write{})
			if stdin {
				in = input{given: true}
			}
		case syntax.DplIn:
			if stdin {
				in = input{given: true}
			}
		case syntax.DplOut:
			if !target.known || strings.Trim(target.text, "0123456789") != "" && target.text != "-" && !isMove(target.text) {
				r.write(sc, target, Write{})
			}
		default: // > >> >| &> &>>
			r.write(sc, target, Write{})
		}
	}
	return in
}

// isMove reports whether a descriptor is moved: 3- .
func isMove(target string) bool {
	digits, ok := strings.CutSuffix(target, "-")
	return ok && digits != "" && strings.Trim(digits, "0123456789") == ""
}

// document is the text of a here-document.
func (r *reading) document(d *syntax.Redirect, sc *scope) word {
	if d.Hdoc == nil {
		return literal("")
	}
	quoted := false
	for _, part := range d.Word.Parts {
		if lit, ok := part.(*syntax.Lit); !ok || strings.Contains(lit.Value, `\`) {
			quoted = true
		}
	}
	var text word
	if quoted {
		var out strings.Builder
		for _, part := range d.Hdoc.Parts {
			if lit, ok := part.(*syntax.Lit); ok {
				out.WriteString(lit.Value)
			} else {
				return word{}
			}
		}
		text = literal(out.String())
	} else {
		f := field{r: r, sc: sc, whole: true}
		for _, part := range d.Hdoc.Parts {
			if lit, ok := part.(*syntax.Lit); ok {
				f.quoted(unescapeDocument(lit.Value))
			} else {
				f.parts([]syntax.WordPart{part}, true)
			}
		}
		text = word{text: f.text.String(), known: !f.unknown}
	}
	if d.Op == syntax.DashHdoc {
		lines := strings.SplitAfter(text.text, "\n")
		for i := range lines {
			lines[i] = strings.TrimLeft(lines[i], "\t")
		}
		text.text = strings.Join(lines, "")
	}
	return text
}

// unescapeDocument is what text in a here-document stands for, where quotes are nothing special.
func unescapeDocument(text string) string {
	return unescapeQuoted(strings.ReplaceAll(text, `\"`, `\\"`))
}

// target is the one file of a redirection. One that is several is an error in bash, and opens none.
func (r *reading) target(w *syntax.Word, sc *scope) word {
	if w == nil {
		return word{}
	}
	words, ok := r.fields([]*syntax.Word{w}, sc, maxWords)
	if !ok || len(words) != 1 {
		return word{}
	}
	return words[0]
}
