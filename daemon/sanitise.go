package daemon

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Whatever somebody else chose (names, texts, paths, branches, authors) is a possible injection: an agent takes the text of a
// hook for its user's standing instruction. Such a string is put into a block by one of the functions of this file and
// no other way:
//
//   - quoteText, for sentences: always between double quotes that the string cannot end;
//   - quoteName, for names of people, facts and branches: bare where it is up to three plain words, else as quoteText;
//   - quotePath, for paths: bare where it has nothing but letters, digits and the usual marks, else escaped in quotes.
//
// What they return is valid UTF-8 on one line, without a control, format or otherwise invisible character, and of at most
// the given number of bytes between the quotes (a quoted path: quotes included).

// The bytes that a foreign string may take in a line; the rest is `knoot recall NAME`.
const (
	maxFactBytes   = 280
	maxPathBytes   = 200
	maxNameBytes   = 40
	maxBranchBytes = 80
	maxReasonBytes = 280
)

// ellipsis ends what was cut.
const ellipsis = "…"

// cleaner gathers at most max bytes of runes that are fit to be shown.
type cleaner struct {
	out   []byte
	max   int
	cut   int  // where to cut so that the ellipsis fits
	over  bool // max was reached
	space bool // white space is due before the next rune
}

// add appends text that is one unit, never cut inside; it says whether there is room for more.
func (c *cleaner) add(unit string) bool {
	n := len(unit)
	if c.space && len(c.out) > 0 {
		n++
	}
	if len(c.out)+n > c.max {
		c.over = true
		return false
	}
	if c.space && len(c.out) > 0 {
		c.out = append(c.out, ' ')
	}
	c.space = false
	c.out = append(c.out, unit...)
	if len(c.out)+len(ellipsis) <= c.max {
		c.cut = len(c.out)
	}
	return true
}

func (c *cleaner) String() string {
	if !c.over {
		return string(c.out)
	}
	if c.max < len(ellipsis) {
		return ""
	}
	return string(c.out[:c.cut]) + ellipsis
}

// cleanText makes s one line of at most max bytes. Invisible characters are dropped, each run of white space (line feeds
// included) becomes one space, and a byte that is no UTF-8 becomes U+FFFD. Double quotes of any alphabet become single ones, so
// that the result cannot end quotes put around it. What looks like a tag loses its bracket, so that it cannot end an
// envelope such as <system-reminder>.
func cleanText(s string, max int) string {
	c := cleaner{max: max, out: make([]byte, 0, min(len(s), max))}
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		unit := s[i : i+n]
		i += n
		switch {
		case r == utf8.RuneError && n == 1:
			unit = "\uFFFD"
		case unicode.IsSpace(r) || unicode.Is(unicode.Z, r):
			c.space = true
			continue
		case !visible(r):
			continue
		case len(c.out) == 0 && unicode.Is(unicode.M, r):
			continue // it would sit on our quote
		case doubleQuote(r):
			unit = "'"
		case r == '<' && tagLike(c.out, c.space, s[i:]):
			unit = "‹"
		}
		if !c.add(unit) {
			break
		}
	}
	return c.String()
}

// tagLike says whether a "<" after out and before rest could begin a tag. Type parameters (Vec<T>) and comparisons are none.
func tagLike(out []byte, space bool, rest string) bool {
	// What is dropped from the text is dropped here: "<\u200b/x" is shown as "</x".
	at := strings.IndexFunc(rest, func(r rune) bool { return visible(r) || unicode.IsSpace(r) })
	if at < 0 {
		return false
	}
	next, _ := utf8.DecodeRuneInString(rest[at:])
	switch {
	case strings.ContainsRune("/|!?", next):
		return true
	case !unicode.IsLetter(next):
		return false
	case space || len(out) == 0 || !wordByte(out[len(out)-1]):
		return true
	}
	// Behind a word only what has a name as no type has: x<system-reminder>.
	dashed := false
	for _, r := range rest[at:] {
		switch {
		case r == '-' || r == '_' || !visible(r):
			dashed = true
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			return dashed && r == '>'
		}
	}
	return false
}

// quoteText shows a sentence that somebody else wrote, at most max bytes of it.
func quoteText(s string, max int) string {
	s = cleanText(s, max)
	if strings.HasSuffix(s, `\`) {
		s += " " // else it would seem to escape our quote
	}
	return `"` + s + `"`
}

// quoteName shows the name of a fact, a branch or the like.
func quoteName(s string, max int) string {
	clean := cleanText(s, max)
	if clean != s || clean == "" || strings.Count(clean, " ") > 2 || clean[0] == '-' {
		return quoteText(s, max)
	}
	for _, r := range clean {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.Is(unicode.M, r) && !strings.ContainsRune(" ._-/+@#'’", r) {
			return quoteText(s, max)
		}
	}
	return clean
}

// quotePerson shows the name of a person. One that could be read as somebody with authority over the agent, or as an agent,
// is quoted, however plain it is.
func quotePerson(s string) string {
	if s == "" {
		return "somebody"
	}
	name := quoteName(s, maxNameBytes)
	if name[0] == '"' {
		return name
	}
	for word := range strings.FieldsFuncSeq(strings.ToLower(name), func(r rune) bool { return !unicode.IsLetter(r) }) {
		switch word {
		case "agent", "agents", "you", "your", "user", "system", "knoot", "human", "assistant", "developer", "admin", "instruction", "instructions":
			return quoteText(s, maxNameBytes)
		}
	}
	return name
}

// quotePath shows a path, at most 200 bytes.
func quotePath(p string) string {
	plain := p != "" && p[0] != '-' && len(p) <= maxPathBytes && utf8.ValidString(p)
	for i, r := range p {
		if !plain {
			break
		}
		mark := i > 0 && unicode.Is(unicode.M, r)
		plain = visible(r) && (mark || unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("/._-+@=~#%$[](){}&!^*?", r))
	}
	if plain {
		return p
	}
	c := cleaner{max: maxPathBytes - 2}
	for i := 0; i < len(p); {
		r, n := utf8.DecodeRuneInString(p[i:])
		unit := p[i : i+n]
		switch {
		case r == utf8.RuneError && n == 1:
			unit = strings.Trim(strconv.Quote(unit), `"`)
		case r == '"' || r == '\\':
			unit = `\` + unit
		case r == ' ':
		case !visible(r) || doubleQuote(r) || r == '<' || unicode.IsSpace(r) || i == 0 && unicode.Is(unicode.M, r):
			unit = strings.Trim(strconv.QuoteToASCII(unit), `"`)
			if unit == "<" {
				unit = `\x3c`
			}
		}
		i += n
		if !c.add(unit) {
			break
		}
	}
	return `"` + c.String() + `"`
}

// commandName returns a fact's name as it may stand behind `knoot recall`, with a space before it; "" for one that a shell
// could take for anything but one word.
func commandName(name string) string {
	if name == "" || len(name) > maxNameBytes || name[0] == '-' {
		return ""
	}
	for i := range len(name) {
		if c := name[i]; c >= utf8.RuneSelf || !wordByte(c) && c != '.' && c != '-' && c != '/' {
			return ""
		}
	}
	return " " + name
}

// wordByte says whether c is part of a word in most languages and programs.
func wordByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c >= utf8.RuneSelf
}

// visible says whether a reader sees r. A space is not: it is the caller's. The Go tables call control, format (bidirectional,
// zero-width, tags), private and unassigned characters not printable; the rest of what Unicode lets a renderer ignore, and
// the blanks that count as letters, are listed here. Variation selectors are among them: they can smuggle whole texts.
func visible(r rune) bool {
	if r < utf8.RuneSelf {
		return r > ' ' && r < 0x7f
	}
	return unicode.IsPrint(r) && !unicode.Is(invisible, r)
}

var invisible = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x034f, Hi: 0x034f, Stride: 1}, // combining grapheme joiner
		{Lo: 0x115f, Hi: 0x1160, Stride: 1}, // Hangul fillers
		{Lo: 0x17b4, Hi: 0x17b5, Stride: 1}, // Khmer inherent vowels
		{Lo: 0x180b, Hi: 0x180f, Stride: 1}, // Mongolian variation selectors
		{Lo: 0x2800, Hi: 0x2800, Stride: 1}, // blank Braille pattern
		{Lo: 0x3164, Hi: 0x3164, Stride: 1}, // Hangul filler
		{Lo: 0xfe00, Hi: 0xfe0f, Stride: 1}, // variation selectors
		{Lo: 0xffa0, Hi: 0xffa0, Stride: 1}, // half-width Hangul filler
	},
	R32: []unicode.Range32{
		{Lo: 0x16fe4, Hi: 0x16fe4, Stride: 1}, // Khitan filler
		{Lo: 0x1d159, Hi: 0x1d159, Stride: 1}, // musical null notehead
		{Lo: 0xe0000, Hi: 0xe0fff, Stride: 1}, // tags, more variation selectors
	},
}

// doubleQuote says whether r could be read as the end of a string in double quotes.
func doubleQuote(r rune) bool {
	switch r {
	case '"', '“', '”', '„', '‟', '″', '‶', '〃', '〝', '〞', '〟', '＂', 'ʺ', '˝', '״', '❝', '❞':
		return true
	}
	return false
}
