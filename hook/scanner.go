package hook

import (
	"errors"
	"io"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth is how deep a value may be nested: the limit of encoding/json.
const maxDepth = 10000

var (
	errEmpty    = errors.New("nothing was sent")
	errSyntax   = errors.New("not JSON")
	errTooLarge = errors.New("larger than a hook reads")
)

// scanner reads one JSON value of any size through a small buffer. It is pulled: whoever meets a value decides whether to
// take it apart or to skip it, and what is skipped is checked but not kept. It accepts exactly what encoding/json accepts,
// except for a byte order mark in front, which it drops; invalid UTF-8 in strings becomes U+FFFD. Both are reported.
//
// Every method fails with errSyntax, errTooLarge, io.ErrUnexpectedEOF or the reader's own error; after one, the scanner is
// of no more use.
type scanner struct {
	src   io.Reader
	seen  func([]byte) // given every byte that was read, in order
	left  int          // bytes that may still be read
	buf   []byte
	pos   int
	end   int
	err   error // that ended reading; it stays
	depth int
	marks bool // a byte order mark was dropped
	utf8  utf8Check
	stack []byte            // of skip, kept to be used again
	char  [utf8.UTFMax]byte // of an escape
}

func newScanner(src io.Reader, limit int, seen func([]byte)) *scanner {
	return &scanner{src: src, seen: seen, left: limit, buf: make([]byte, 32<<10)}
}

// fill reads on once the buffer is used up.
func (s *scanner) fill() error {
	for tries := 0; s.err == nil; tries++ {
		var n int
		n, s.err = s.src.Read(s.buf)
		if n > 0 {
			s.seen(s.buf[:n])
			if s.left -= n; s.left < 0 {
				s.err = errTooLarge
				break
			}
			s.utf8.write(s.buf[:n])
			s.pos, s.end = 0, n
			return nil
		}
		if s.err == nil && tries == 100 { // a reader that again and again returns nothing is broken
			s.err = io.ErrNoProgress
		}
	}
	return s.err
}

// next returns the next byte and goes past it.
func (s *scanner) next() (byte, error) {
	if s.pos == s.end {
		if err := s.fill(); err != nil {
			return 0, unexpected(err)
		}
	}
	c := s.buf[s.pos]
	s.pos++
	return c, nil
}

// peek returns the next byte that is not white space and stays before it.
func (s *scanner) peek() (byte, error) {
	for {
		for s.pos < s.end {
			switch c := s.buf[s.pos]; c {
			case ' ', '\t', '\r', '\n':
				s.pos++
			default:
				return c, nil
			}
		}
		if err := s.fill(); err != nil {
			return 0, unexpected(err)
		}
	}
}

func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// value reads the one value of the input by calling f, with nothing but white space around it.
func (s *scanner) value(f func() error) error {
	if err := s.mark(); err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	switch _, err := s.peek(); err {
	case nil:
		return errSyntax
	case io.ErrUnexpectedEOF:
		return nil
	default:
		return err
	}
}

// mark drops a byte order mark. Input without any value is errEmpty.
func (s *scanner) mark() error {
	const bom = "\xef\xbb\xbf"
	for i := range len(bom) {
		if s.pos == s.end {
			if err := s.fill(); err == io.EOF && i == 0 {
				return errEmpty
			} else if err != nil {
				return unexpected(err)
			}
		}
		if s.buf[s.pos] != bom[i] {
			if i > 0 {
				return errSyntax
			}
			break
		}
		s.pos++
		s.marks = i == len(bom)-1
	}
	if _, err := s.peek(); err == io.ErrUnexpectedEOF {
		return errEmpty
	} else if err != nil {
		return err
	}
	return nil
}

func (s *scanner) enter() error {
	if s.depth++; s.depth > maxDepth {
		return errSyntax
	}
	s.pos++ // over the bracket that peek has seen
	return nil
}

// object calls member for each member of an object, before its value, which member must read or skip. A value that is no
// object is skipped.
func (s *scanner) object(member func(key string) error) error {
	c, err := s.peek()
	if err != nil {
		return err
	}
	if c != '{' {
		return s.skip()
	}
	if err := s.enter(); err != nil {
		return err
	}
	if c, err = s.peek(); err != nil {
		return err
	}
	if c == '}' {
		s.pos++
		s.depth--
		return nil
	}
	for {
		if c, err = s.peek(); err != nil {
			return err
		}
		if c != '"' {
			return errSyntax
		}
		key, _, err := s.quoted(maxKey, nil)
		if err != nil {
			return err
		}
		if err := s.colon(); err != nil {
			return err
		}
		if err := member(key); err != nil {
			return err
		}
		if done, err := s.comma('}'); done || err != nil {
			return err
		}
	}
}

// array calls element before each value of an array, which element must read or skip. A value that is no array is skipped.
func (s *scanner) array(element func() error) error {
	c, err := s.peek()
	if err != nil {
		return err
	}
	if c != '[' {
		return s.skip()
	}
	if err := s.enter(); err != nil {
		return err
	}
	if c, err = s.peek(); err != nil {
		return err
	}
	if c == ']' {
		s.pos++
		s.depth--
		return nil
	}
	for {
		if err := element(); err != nil {
			return err
		}
		if done, err := s.comma(']'); done || err != nil {
			return err
		}
	}
}

func (s *scanner) colon() error {
	c, err := s.peek()
	if err != nil {
		return err
	}
	if c != ':' {
		return errSyntax
	}
	s.pos++
	return nil
}

// comma goes past a comma, or past the bracket that closes the value, and says which it was.
func (s *scanner) comma(closing byte) (closed bool, err error) {
	c, err := s.peek()
	if err != nil {
		return false, err
	}
	if c != ',' && c != closing {
		return false, errSyntax
	}
	s.pos++
	if c == closing {
		s.depth--
	}
	return c == closing, nil
}

// maxKey is more than any key that means something here; a longer one is cut and matches nothing.
const maxKey = 64

// text reads a string and keeps its first max bytes, cut between characters; cut says that there were more. A value that is
// no string is skipped, and is "".
func (s *scanner) text(max int) (text string, cut bool, err error) { return s.textTo(max, nil) }

// textTo is text for a string of which all is of use, though not all at once: whole gets it piece by piece. What is not UTF-8
// in it is still there.
func (s *scanner) textTo(max int, whole io.Writer) (text string, cut bool, err error) {
	c, err := s.peek()
	if err != nil {
		return "", false, err
	}
	if c != '"' {
		return "", false, s.skip()
	}
	return s.quoted(max, whole)
}

// name reads a string that is of use only whole: a longer one than maxName is "".
func (s *scanner) name(to *string) error {
	text, cut, err := s.text(maxName)
	if *to = text; cut {
		*to = ""
	}
	return err
}

// truth reads a boolean. Any other value is skipped, and is false.
func (s *scanner) truth() (bool, error) {
	c, err := s.peek()
	if err != nil {
		return false, err
	}
	return c == 't', s.skip()
}

// plain marks the bytes that a string may hold as they are and that end nothing.
var plain = func() (t [256]bool) {
	for c := 0x20; c < 256; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// quoted reads the string that begins at the next byte. With max below zero nothing is kept. whole may be nil.
func (s *scanner) quoted(max int, whole io.Writer) (text string, cut bool, err error) {
	s.pos++
	var kept []byte
	room := max + utf8.UTFMax // enough to see whether a character crosses the limit
	keep := func(b ...byte) {
		if whole != nil {
			_, _ = whole.Write(b) // none of ours fails
		}
		if len(kept)+len(b) <= room {
			kept = append(kept, b...)
		} else if max >= 0 {
			kept = append(kept, b[:room-len(kept)]...)
			cut = true
		}
	}
	for {
		if s.pos == s.end {
			if err := s.fill(); err != nil {
				return "", false, unexpected(err)
			}
		}
		from := s.pos
		for s.pos < s.end && plain[s.buf[s.pos]] {
			s.pos++
		}
		if max >= 0 {
			keep(s.buf[from:s.pos]...)
		}
		if s.pos == s.end {
			continue
		}
		c := s.buf[s.pos]
		s.pos++
		switch {
		case c == '"':
			if max < 0 {
				return "", false, nil
			}
			valid := replaceInvalid(kept)
			if len(valid) > max {
				return cutText(valid, max), true, nil
			}
			return valid, cut, nil
		case c == '\\':
			n, err := s.escape(&s.char)
			if err != nil {
				return "", false, err
			}
			if max >= 0 {
				keep(s.char[:n]...)
			}
		default:
			return "", false, errSyntax // a control character
		}
	}
}

// escape reads what follows a backslash. A surrogate without its other half is U+FFFD.
func (s *scanner) escape(out *[utf8.UTFMax]byte) (n int, err error) {
	c, err := s.next()
	if err != nil {
		return 0, err
	}
	switch c {
	case '"', '\\', '/':
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'u':
		r, err := s.hex4()
		if err != nil {
			return 0, err
		}
		return s.surrogate(r, out)
	default:
		return 0, errSyntax
	}
	out[0] = c
	return 1, nil
}

// surrogate encodes r. If r is the first half of a pair it looks for the second, which may be any escape, or none.
func (s *scanner) surrogate(r rune, out *[utf8.UTFMax]byte) (int, error) {
	if !utf16.IsSurrogate(r) {
		return utf8.EncodeRune(out[:], r), nil
	}
	if r >= 0xdc00 || !s.ahead("\\u") {
		return utf8.EncodeRune(out[:], utf8.RuneError), nil
	}
	// The hexadecimal digits are looked at but left, because what is no second half is a character of its own.
	var second rune
	for i := range 4 {
		c, ok := s.at(2 + i)
		d, isHex := hexDigit(c)
		if !ok || !isHex {
			return utf8.EncodeRune(out[:], utf8.RuneError), nil // the next turn of the loop finds what is wrong
		}
		second = second<<4 | d
	}
	if pair := utf16.DecodeRune(r, second); pair != utf8.RuneError {
		s.pos += 6
		return utf8.EncodeRune(out[:], pair), nil
	}
	return utf8.EncodeRune(out[:], utf8.RuneError), nil
}

// ahead reports whether the input goes on with text.
func (s *scanner) ahead(text string) bool {
	for i := range len(text) {
		if c, ok := s.at(i); !ok || c != text[i] {
			return false
		}
	}
	return true
}

// at returns the byte i places ahead, reading on behind what is unread. It is false at the end of the input, and on an error,
// which comes again.
func (s *scanner) at(i int) (byte, bool) {
	for s.pos+i >= s.end {
		rest := copy(s.buf, s.buf[s.pos:s.end])
		s.pos, s.end = 0, rest
		whole := s.buf
		s.buf = s.buf[rest:]
		err := s.fill()
		s.buf = whole
		if err != nil {
			s.pos, s.end = 0, rest
			return 0, false
		}
		s.pos, s.end = 0, rest+s.end
	}
	return s.buf[s.pos+i], true
}

func (s *scanner) hex4() (rune, error) {
	var r rune
	for range 4 {
		c, err := s.next()
		if err != nil {
			return 0, err
		}
		d, ok := hexDigit(c)
		if !ok {
			return 0, errSyntax
		}
		r = r<<4 | d
	}
	return r, nil
}

func hexDigit(c byte) (rune, bool) {
	switch {
	case '0' <= c && c <= '9':
		return rune(c - '0'), true
	case 'a' <= c && c <= 'f':
		return rune(c-'a') + 10, true
	case 'A' <= c && c <= 'F':
		return rune(c-'A') + 10, true
	}
	return 0, false
}

// skip goes past one value of any kind. It keeps a byte a level and nothing else.
func (s *scanner) skip() error {
	s.stack = s.stack[:0]
	for {
		c, err := s.peek()
		if err != nil {
			return err
		}
		switch c {
		case '{', '[':
			if err := s.enter(); err != nil {
				return err
			}
			first, err := s.peek()
			if err != nil {
				return err
			}
			if first == c+2 { // '{'+2 is '}', '['+2 is ']'
				s.pos++
				s.depth--
				break
			}
			s.stack = append(s.stack, c)
			if c == '{' {
				if err := s.skipKey(); err != nil {
					return err
				}
			}
			continue
		case '"':
			if _, _, err := s.quoted(-1, nil); err != nil {
				return err
			}
		case 't':
			err = s.literal("true")
		case 'f':
			err = s.literal("false")
		case 'n':
			err = s.literal("null")
		default:
			err = s.number()
		}
		if err != nil {
			return err
		}
		// A value is read: go on in what encloses it.
		for {
			if len(s.stack) == 0 {
				return nil
			}
			open := s.stack[len(s.stack)-1]
			closed, err := s.comma(open + 2)
			if err != nil {
				return err
			}
			if closed {
				s.stack = s.stack[:len(s.stack)-1]
				continue
			}
			if open == '{' {
				if err := s.skipKey(); err != nil {
					return err
				}
			}
			break
		}
	}
}

func (s *scanner) skipKey() error {
	c, err := s.peek()
	if err != nil {
		return err
	}
	if c != '"' {
		return errSyntax
	}
	if _, _, err := s.quoted(-1, nil); err != nil {
		return err
	}
	return s.colon()
}

func (s *scanner) literal(word string) error {
	for i := range len(word) {
		c, err := s.next()
		if err != nil {
			return err
		}
		if c != word[i] {
			return errSyntax
		}
	}
	return nil
}

// number goes past a number. Only one at the very end of the input has no byte after it.
func (s *scanner) number() error {
	digits := func() (n int) {
		for {
			c, ok := s.at(0)
			if !ok || c < '0' || c > '9' {
				return n
			}
			s.pos++
			n++
		}
	}
	if c, ok := s.at(0); ok && c == '-' {
		s.pos++
	}
	if c, ok := s.at(0); ok && c == '0' {
		s.pos++
	} else if digits() == 0 {
		return s.wrong()
	}
	if c, ok := s.at(0); ok && c == '.' {
		s.pos++
		if digits() == 0 {
			return s.wrong()
		}
	}
	if c, ok := s.at(0); ok && (c == 'e' || c == 'E') {
		s.pos++
		if c, ok := s.at(0); ok && (c == '+' || c == '-') {
			s.pos++
		}
		if digits() == 0 {
			return s.wrong()
		}
	}
	return nil
}

// wrong says why the next byte is not the one that is needed: it is another, or there is none.
func (s *scanner) wrong() error {
	if _, err := s.next(); err != nil {
		return err
	}
	return errSyntax
}

// replaceInvalid does what encoding/json does to invalid UTF-8: each byte of it becomes U+FFFD.
func replaceInvalid(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	out := make([]byte, 0, len(b)+16)
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		out = utf8.AppendRune(out, r)
		b = b[n:]
	}
	return string(out)
}

// cutText cuts valid UTF-8 to at most max bytes, between characters.
func cutText(s string, max int) string {
	if len(s) <= max {
		return s
	}
	for max > 0 && !utf8.RuneStart(s[max]) {
		max--
	}
	return s[:max]
}

// utf8Check finds out whether a stream of bytes is valid UTF-8.
type utf8Check struct {
	bad  bool
	part [utf8.UTFMax]byte // the beginning of a character that the next bytes end
	n    int
}

func (u *utf8Check) write(p []byte) {
	for u.n > 0 && len(p) > 0 {
		u.part[u.n] = p[0]
		u.n++
		p = p[1:]
		if utf8.FullRune(u.part[:u.n]) {
			u.bad = u.bad || !utf8.Valid(u.part[:u.n])
			u.n = 0
		}
	}
	for back := 1; back < utf8.UTFMax && back <= len(p); back++ {
		if tail := p[len(p)-back:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				u.n = copy(u.part[:], tail)
				p = p[:len(p)-back]
			}
			break
		}
	}
	u.bad = u.bad || !utf8.Valid(p)
}

// valid reports on all that was written, with nothing more to come.
func (u *utf8Check) valid() bool { return !u.bad && u.n == 0 }
