package shell

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"
)

// word is one word of a command after all expansions.
type word struct {
	text  string // where it is not known: what it begins with for sure
	known bool
	many  bool // not known, and it may be no word, or several
	// perhaps says that a glob matches it only if the line has made it, or has not removed it: it may not be there as a word.
	perhaps bool
}

func literal(text string) word { return word{text: text, known: true} }

// fields expands words as those of a command. It is false, and nothing is expanded, where there are more than most.
func (r *reading) fields(words []*syntax.Word, sc *scope, most int) ([]word, bool) {
	out := r.words(len(words))
	for _, w := range words {
		text, ok := plainText(w)
		switch {
		case ok:
			out = append(out, literal(text))
		case braces(w) == 0:
			out = r.expand(out, w.Parts, sc)
		case braces(w) > maxLevels: // SplitBraces takes the square of that
			return nil, false
		default:
			split := *w // SplitBraces writes to it
			switch {
			case !syntax.SplitBraces(&split):
				out = r.expand(out, w.Parts, sc)
			case sc.posix:
				out = append(out, word{many: true})
			case count(&split) > most-len(out):
				return nil, false
			default:
				each(split.Parts, nil, func(parts []syntax.WordPart) {
					if renamed(parts) {
						out = append(out, word{many: true})
					} else {
						out = r.expand(out, parts, sc)
					}
				})
			}
		}
		if len(out) > most {
			return nil, false
		}
	}
	r.work += len(out) + 1
	return out, true
}

// words returns room for n words: many commands have theirs in one piece of memory.
func (r *reading) words(n int) []word {
	if n > len(r.spare) {
		r.spare = make([]word, max(n, 128))
	}
	room := r.spare[:0:n]
	r.spare = r.spare[n:]
	return room
}

// renamed reports whether braces have made another variable, or another word with a home, of what was there: they come first,
// and $F{a,b} is $Fa and $Fb.
func renamed(parts []syntax.WordPart) bool {
	for i, part := range parts {
		lit, ok := part.(*syntax.Lit)
		switch {
		case !ok || lit.Value == "":
		case i == 0:
			if strings.Contains(lit.Value, "=~") {
				return true
			}
		default:
			p, ok := parts[i-1].(*syntax.ParamExp)
			if c := lit.Value[0]; ok && p.Short && (letter(c) || '0' <= c && c <= '9') {
				return true
			}
		}
	}
	return false
}

// plainText is what a word stands for in which nothing is special, as in most.
func plainText(w *syntax.Word) (string, bool) {
	if len(w.Parts) != 1 {
		return "", false
	}
	switch p := w.Parts[0].(type) {
	case *syntax.Lit:
		for i := range len(p.Value) {
			switch p.Value[i] {
			case '\\', '~', '*', '?', '[', '{':
				return "", false
			}
		}
		return p.Value, true
	case *syntax.SglQuoted:
		return p.Value, !p.Dollar
	}
	return "", false
}

// braces counts those that a word opens.
func braces(w *syntax.Word) (n int) {
	for _, part := range w.Parts {
		if lit, ok := part.(*syntax.Lit); ok {
			n += strings.Count(lit.Value, "{")
		}
	}
	return n
}

// count is how many words the braces of a word make; what is more than maxWords+1 is not counted.
func count(w *syntax.Word) int {
	n := 1
	for _, part := range w.Parts {
		b, ok := part.(*syntax.BraceExp)
		if !ok {
			continue
		}
		of := 0
		if b.Sequence {
			from, to, step, _ := sequence(b)
			of = maxWords + 2
			if steps := distance(from, to) / step; steps <= maxWords {
				of = int(steps) + 1
			}
		} else {
			for _, elem := range b.Elems {
				of += count(elem)
			}
		}
		if n *= min(of, maxWords+2); n > maxWords+1 {
			return maxWords + 2
		}
	}
	return n
}

func distance(a, b int64) uint64 {
	if a > b {
		a, b = b, a
	}
	return uint64(b) - uint64(a)
}

// sequence takes {x..y..step} apart; width is that of numbers with leading zeros, -1 for letters.
func sequence(b *syntax.BraceExp) (from, to int64, step uint64, width int) {
	first, last := b.Elems[0].Lit(), b.Elems[1].Lit()
	from, err := strconv.ParseInt(first, 10, 64)
	to, err2 := strconv.ParseInt(last, 10, 64)
	if err != nil || err2 != nil {
		from, to, width = int64(first[0]), int64(last[0]), -1
	} else if padded(first) || padded(last) {
		width = max(len(first), len(last))
	}
	step = 1
	if len(b.Elems) > 2 {
		if n, _ := strconv.ParseInt(b.Elems[2].Lit(), 10, 64); n != 0 {
			step = distance(n, 0)
		}
	}
	return from, to, step, width
}

func padded(number string) bool {
	number = strings.TrimPrefix(number, "-")
	return len(number) > 1 && number[0] == '0'
}

// each calls f with the parts of each word that braces make.
func each(parts, before []syntax.WordPart, f func([]syntax.WordPart)) {
	i := slices.IndexFunc(parts, func(p syntax.WordPart) bool { _, ok := p.(*syntax.BraceExp); return ok })
	if i < 0 {
		f(slices.Concat(before, parts))
		return
	}
	b, rest := parts[i].(*syntax.BraceExp), parts[i+1:]
	before = slices.Concat(before, parts[:i])
	if !b.Sequence {
		for _, elem := range b.Elems {
			each(slices.Concat(elem.Parts, rest), before, f)
		}
		return
	}
	from, to, step, width := sequence(b)
	for n, steps := from, distance(from, to)/step; ; steps-- {
		text := ""
		switch {
		case width < 0:
			text = string(rune(n))
		case width > 0:
			text = strconv.FormatUint(distance(n, 0), 10)
			sign := ""
			if n < 0 {
				sign = "-"
			}
			text = sign + strings.Repeat("0", max(0, width-len(sign)-len(text))) + text
		default:
			text = strconv.FormatInt(n, 10)
		}
		var part syntax.WordPart = &syntax.Lit{Value: text}
		if width < 0 && !letter(text[0]) {
			part = &syntax.SglQuoted{Value: text} // between Z and a
		}
		each(rest, slices.Concat(before, []syntax.WordPart{part}), f)
		if steps == 0 {
			return
		}
		if from <= to {
			n += int64(step)
		} else {
			n -= int64(step)
		}
	}
}

// one expands a word that stays one: a value, a document, a pattern.
func (r *reading) one(w *syntax.Word, sc *scope) word {
	if w == nil {
		return literal("")
	}
	r.work++
	f := field{r: r, sc: sc, whole: true}
	f.parts(w.Parts, false)
	f.end()
	if len(f.out) == 0 {
		return literal("")
	}
	return f.out[0]
}

// expand expands the parts of a word of a command, without braces, and adds what they become to words.
func (r *reading) expand(words []word, parts []syntax.WordPart, sc *scope) []word {
	f := field{r: r, sc: sc, out: words}
	f.parts(parts, false)
	f.end()
	return f.out
}

// field collects words while parts are expanded.
type field struct {
	r     *reading
	sc    *scope
	whole bool // nothing is split, and no glob matched
	out   []word

	text    strings.Builder // of the word that is being collected
	pattern strings.Builder // the same, with a backslash before what is quoted
	begun   bool
	isGlob  bool
	unknown bool // what is in text is followed by something else
	many    bool
}

func (f *field) quoted(s string) {
	if f.begun = true; f.unknown || !f.room(s) {
		return
	}
	f.text.WriteString(s)
	for i := range len(s) {
		if strings.IndexByte(`*?[]\-!^`, s[i]) >= 0 {
			f.pattern.WriteByte('\\')
		}
		f.pattern.WriteByte(s[i])
	}
}

// room says whether a word may be as long as that. Long ones cost more than short ones.
func (f *field) room(s string) bool {
	if f.text.Len()+len(s) > maxText {
		f.lose(false)
		return false
	}
	f.r.work += len(s) >> 10
	return true
}

func (f *field) plain(s string) {
	if f.begun = true; f.unknown || !f.room(s) {
		return
	}
	f.text.WriteString(s)
	f.pattern.WriteString(s)
	f.isGlob = f.isGlob || strings.ContainsAny(s, "*?[")
}

func (f *field) lose(many bool) {
	f.begun, f.unknown = true, true
	f.many = f.many || many && !f.whole
}

// end ends the word that is being collected.
func (f *field) end() {
	if !f.begun {
		return
	}
	w := word{text: f.text.String(), known: !f.unknown, many: f.many}
	glob := f.isGlob && !f.whole
	pattern := f.pattern.String()
	f.text.Reset()
	f.pattern.Reset()
	f.begun, f.isGlob, f.unknown, f.many = false, false, false, false
	switch {
	case !w.known || !glob:
		f.out = append(f.out, w)
	case f.sc.odd:
		f.out = append(f.out, word{text: prefixOf(pattern), many: true})
	default:
		names, ok := f.r.glob(f.sc, pattern)
		if !ok {
			f.out = append(f.out, word{text: prefixOf(pattern), many: true})
			return
		}
		perhaps := 0
		for _, name := range names {
			n := literal(name)
			if at, ok := f.r.path(f.sc, name); ok && f.r.touched(at) {
				n.perhaps = true
				perhaps++
			}
			f.out = append(f.out, n)
		}
		if perhaps == len(names) { // the pattern itself, if nothing is there
			w.perhaps = perhaps > 0
			f.out = append(f.out, w)
		}
	}
}

// prefixOf is what all that a pattern matches begins with.
func prefixOf(pattern string) string {
	var out strings.Builder
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; c {
		case '*', '?', '[':
			return out.String()
		case '\\':
			i++
			if i < len(pattern) {
				out.WriteByte(pattern[i])
			}
		default:
			out.WriteByte(c)
		}
	}
	return out.String()
}

func (f *field) parts(parts []syntax.WordPart, inQuotes bool) {
	for i, part := range parts {
		switch p := part.(type) {
		case *syntax.Lit:
			text := p.Value
			if inQuotes {
				f.quoted(unescapeQuoted(text))
				continue
			}
			if i == 0 {
				text = f.tilde(text, len(parts) == 1)
			}
			f.unquoted(text)
		case *syntax.SglQuoted:
			if !p.Dollar {
				f.quoted(p.Value)
			} else if text, ok := ansi(p.Value); ok {
				f.quoted(text)
			} else {
				f.lose(false)
			}
		case *syntax.DblQuoted:
			if len(p.Parts) != 1 || !isList(p.Parts[0]) {
				f.begun = true // "$@" of nothing is no word, "" is one
			}
			f.parts(p.Parts, true)
		case *syntax.ParamExp:
			f.param(p, inQuotes)
		case *syntax.ProcSubst:
			f.r.subshell(p.Stmts, f.sc)
			f.quoted("/dev/fd/63")
		default: // CmdSubst, ArithmExp, ExtGlob
			f.r.effects(p, f.sc)
			f.lose(!inQuotes)
		}
	}
}

// tilde expands the home directory at the beginning of a word, or after a name and "=", as bash does for dd of=~/x.
func (f *field) tilde(text string, whole bool) string {
	at := 0
	if name, _, ok := strings.Cut(text, "=~"); ok && (syntax.ValidName(name) || strings.HasPrefix(name, "--")) {
		if !syntax.ValidName(name) {
			return text
		}
		at = len(name) + 1
	}
	if at >= len(text) || text[at] != '~' {
		return text
	}
	user, rest, slash := strings.Cut(text[at+1:], "/")
	if slash {
		rest = "/" + rest
	}
	f.plain(text[:at])
	home, ok := f.sc.vars["HOME"]
	if user != "" || !slash && !whole || !ok || !home.known {
		f.lose(false)
		return ""
	}
	f.quoted(home.text)
	return rest
}

// unquoted adds text that is in no quotes, and may have backslashes.
func (f *field) unquoted(text string) {
	for text != "" {
		i := strings.IndexByte(text, '\\')
		if i < 0 {
			f.plain(text)
			return
		}
		if i > 0 {
			f.plain(text[:i])
		}
		text = text[i+1:]
		if text == "" {
			f.quoted(`\`)
			return
		}
		_, n := utf8.DecodeRuneInString(text)
		if text[:n] != "\n" {
			f.quoted(text[:n])
		}
		text = text[n:]
	}
}

// unescapeQuoted is what text between double quotes stands for.
func unescapeQuoted(text string) string {
	if strings.IndexByte(text, '\\') < 0 {
		return text
	}
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+1 < len(text) {
			switch text[i+1] {
			case '$', '`', '"', '\\':
				i++
			case '\n':
				i++
				continue
			}
		}
		out.WriteByte(text[i])
	}
	return out.String()
}

// ansi is what text in $'...' stands for.
func ansi(text string) (string, bool) {
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 == len(text) {
			out.WriteByte(text[i])
			continue
		}
		i++
		if at := strings.IndexByte(`nt\'"?abefrv`, text[i]); at >= 0 {
			if text[i] == 'e' {
				out.WriteByte(0x1b)
			} else {
				out.WriteByte("\n\t\\'\"?\a\b\x1b\f\r\v"[at])
			}
			continue
		}
		digits, base, most := 0, 16, 2
		switch text[i] {
		case 'x':
			i++
		case '0', '1', '2', '3', '4', '5', '6', '7':
			base, most = 8, 3
		default: // \u, \U, \c and what bash may learn
			return "", false
		}
		for digits < most && i+digits < len(text) && strings.IndexByte("0123456789abcdefABCDEF", text[i+digits]) >= 0 &&
			(base == 16 || text[i+digits] < '8') {
			digits++
		}
		n, err := strconv.ParseUint(text[i:i+digits], base, 16)
		if err != nil || n == 0 || n > 255 {
			return "", false
		}
		out.WriteByte(byte(n))
		i += digits - 1
	}
	return out.String(), true
}

// isList reports whether a part is "$@" or "${name[@]}", which in quotes makes as many words as there are.
func isList(part syntax.WordPart) bool {
	p, ok := part.(*syntax.ParamExp)
	return ok && p.Param != nil && (p.Param.Value == "@" || indexOf(p) == "@")
}

func indexOf(p *syntax.ParamExp) string {
	if w, ok := p.Index.(*syntax.Word); ok {
		return w.Lit()
	}
	return ""
}

// param adds the value of a variable.
func (f *field) param(p *syntax.ParamExp, inQuotes bool) {
	v, ok := f.r.parameter(p, f.sc)
	switch {
	case !ok:
		f.lose(!inQuotes || isList(p))
	case v.array && inQuotes && isList(p) && !f.whole:
		for i, text := range v.list {
			if i > 0 {
				f.end()
			}
			f.quoted(text)
		}
	default:
		texts := []string{v.text}
		if v.array {
			texts = []string{strings.Join(v.list, " ")}
			if f.sc.odd {
				f.lose(true)
				return
			}
			if !inQuotes && !f.whole {
				texts = v.list
			}
		}
		for i, text := range texts {
			if i > 0 {
				f.end()
			}
			switch {
			case inQuotes || f.whole:
				f.quoted(text)
			case f.sc.odd:
				f.lose(true)
			default:
				f.split(text)
			}
		}
	}
}

const blanks = " \t\n"

// split adds a variable's value that is in no quotes: it may be several words, and a glob.
func (f *field) split(text string) {
	for text != "" {
		if i := strings.IndexAny(text, blanks); i != 0 {
			if i < 0 {
				i = len(text)
			}
			if strings.IndexByte(text[:i], '\\') >= 0 {
				f.quoted(text[:i]) // bash takes it for a pattern, which matches nothing else
			} else {
				f.plain(text[:i])
			}
			text = text[i:]
			continue
		}
		f.end()
		text = strings.TrimLeft(text, blanks)
	}
}

// parameter is what ${...} stands for; false: nobody knows.
func (r *reading) parameter(p *syntax.ParamExp, sc *scope) (value, bool) {
	switch {
	case p.Excl || p.Length || p.Width || p.IsSet || p.Slice != nil || p.Names != 0 || p.Param == nil || p.Flags != nil || len(p.Modifiers) > 0:
		r.effects(p, sc)
		return value{}, false
	}
	v := sc.value(p.Param.Value, p.Index)
	if p.Index != nil {
		r.effects(p.Index, sc)
	}
	switch {
	case p.Repl != nil:
		from, with := r.one(p.Repl.Orig, sc), r.one(p.Repl.With, sc)
		if !v.known || v.array || !from.known || !with.known || from.text == "" || strings.ContainsAny(from.text, `*?[\#%`) || strings.ContainsAny(with.text, `&\`) {
			return value{}, false
		}
		n := 1
		if p.Repl.All {
			n = -1
		}
		return known(strings.Replace(v.text, from.text, with.text, n)), true
	case p.Exp != nil:
		return r.expansion(p, v, sc)
	}
	return v, v.known
}

// value is that of a parameter, with an index or nil.
func (sc *scope) value(name string, index syntax.ArithmExpr) value {
	if name == "@" || name == "*" {
		return value{known: sc.knowsArgs, array: true, list: sc.args}
	}
	if n, err := strconv.Atoi(name); err == nil {
		if n == 0 || !sc.knowsArgs {
			return value{}
		}
		if n > len(sc.args) {
			return known("")
		}
		return known(sc.args[n-1])
	}
	v := sc.vars[name]
	at := ""
	if w, ok := index.(*syntax.Word); ok {
		at = w.Lit()
	}
	switch {
	case !v.known || index == nil && !v.array:
		return v
	case at == "@" || at == "*":
		if !v.array {
			return value{known: true, array: true, list: []string{v.text}}
		}
		return v
	case index == nil || at == "0":
		if !v.array {
			return v
		}
		if len(v.list) == 0 {
			return known("")
		}
		return known(v.list[0])
	case v.array:
		if n, err := strconv.Atoi(at); err == nil && n > 0 && n < len(v.list) {
			return known(v.list[n])
		}
	}
	return value{}
}

// expansion applies an operator to a value.
func (r *reading) expansion(p *syntax.ParamExp, v value, sc *scope) (value, bool) {
	switch op := p.Exp.Op; op {
	case syntax.RemSmallSuffix, syntax.RemLargeSuffix, syntax.RemSmallPrefix, syntax.RemLargePrefix:
		pattern, ok := "", true
		if p.Exp.Word != nil {
			f := field{r: r, sc: sc, whole: true}
			f.parts(p.Exp.Word.Parts, false)
			pattern, ok = f.pattern.String(), !f.unknown
		}
		if !v.known || v.array || !ok {
			return value{}, false
		}
		small := op == syntax.RemSmallSuffix || op == syntax.RemSmallPrefix
		r.work += len(v.text) >> 5
		text, ok := trim(v.text, pattern, op == syntax.RemSmallSuffix || op == syntax.RemLargeSuffix, small)
		return known(text), ok
	case syntax.DefaultUnset, syntax.DefaultUnsetOrNull, syntax.AssignUnset, syntax.AssignUnsetOrNull, syntax.AlternateUnset, syntax.AlternateUnsetOrNull:
		other := r.one(p.Exp.Word, sc)
		assign := op == syntax.AssignUnset || op == syntax.AssignUnsetOrNull
		if !v.known || v.array || !other.known || strings.ContainsAny(other.text, blanks) {
			if assign {
				sc.set(p.Param.Value, value{})
			}
			return value{}, false
		}
		set := v.text != "" || op == syntax.DefaultUnset || op == syntax.AssignUnset || op == syntax.AlternateUnset
		switch {
		case op == syntax.AlternateUnset || op == syntax.AlternateUnsetOrNull:
			if !set {
				return known(""), true
			}
			return known(other.text), true
		case set:
			return v, true
		case assign:
			sc.set(p.Param.Value, known(other.text))
		}
		return known(other.text), true
	case syntax.ErrorUnset, syntax.ErrorUnsetOrNull:
		r.one(p.Exp.Word, sc)
		return v, v.known
	}
	r.effects(p, sc)
	return value{}, false
}

// trim removes what a pattern matches at the end, or the beginning, of a text: as little or as much as it can.
func trim(text, pattern string, end, small bool) (string, bool) {
	if len(text) > 1024 || len(pattern) > 256 || strings.Contains(pattern, "[:") {
		return "", false
	}
	best := -1
	for n := 0; n <= len(text); n++ {
		if n < len(text) && !utf8.RuneStart(text[n]) {
			continue
		}
		part := text[:n]
		if end {
			part = text[n:]
		}
		ok, fine := match(pattern, part)
		if !fine {
			return "", false
		}
		if ok && (best < 0 || small == end) {
			best = n
		}
		if ok && small != end {
			break
		}
	}
	switch {
	case best < 0:
		return text, true
	case end:
		return text[:best], true
	}
	return text[best:], true
}
