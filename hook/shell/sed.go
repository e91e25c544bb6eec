package shell

import "strings"

// sed reads its operands, or edits them in place.
func (c *call) sed() {
	spec := options{short: "nbe:f:El:i::rsuz", long: "quiet silent debug expression= file= follow-symlinks in-place? line-length= null-data posix " +
		"regexp-extended sandbox separate unbuffered zero-terminated binary help version"}
	p := c.parse(spec)
	files := p.operands
	edit, inPlace := p.get("i", "in-place")
	var scripts []word
	for _, o := range p.given {
		switch o.name {
		case "e", "expression":
			scripts = append(scripts, o.value)
		case "f", "file":
			scripts = append(scripts, word{})
			c.readAll([]word{o.value})
		}
	}
	if inPlace && !edit.has && len(files) > 0 && files[0].known && files[0].text == "" {
		files = files[1:] // sed -i '' SCRIPT FILE, as on macOS
	}
	if len(scripts) == 0 && len(files) > 0 {
		scripts, files = files[:1], files[1:]
	}
	for _, s := range scripts {
		if !s.known || s.many || sedWrites(s.text) {
			c.r.opaque = true
		}
	}
	if !inPlace {
		c.readAll(files)
		return
	}
	for _, f := range files {
		c.r.write(c.sc, f, Write{Entry: !p.is("follow-symlinks")})
		c.backup(f, edit)
	}
}

// sedWrites reports whether a script writes a file or runs a command: w, W, e, or the flags w and e of s. It is true of what
// it does not follow.
func sedWrites(script string) bool {
	s := sedScript{rest: script}
	for s.rest != "" && !s.writes {
		s.command()
	}
	return s.writes
}

type sedScript struct {
	rest   string
	writes bool
}

func (s *sedScript) skip(chars string) { s.rest = strings.TrimLeft(s.rest, chars) }

// command goes past one command.
func (s *sedScript) command() {
	s.skip(" \t\n;")
	for s.address() {
		s.skip(" \t")
		if strings.HasPrefix(s.rest, ",") {
			s.rest = s.rest[1:]
			s.skip(" \t+~")
		}
	}
	s.skip(" \t!")
	if s.rest == "" {
		return
	}
	c := s.rest[0]
	s.rest = s.rest[1:]
	switch c {
	case '{', '}', '=', 'd', 'D', 'F', 'g', 'G', 'h', 'H', 'n', 'N', 'p', 'P', 'x', 'z':
	case 'l', 'L', 'q', 'Q':
		s.skip(" \t0123456789")
	case '#':
		s.line("\n")
	case ':':
		s.line("\n")
	case 'b', 't', 'T':
		s.line("\n;}")
	case 'r', 'R':
		s.line("\n")
	case 'a', 'i', 'c':
		for {
			text := s.line("\n")
			if !strings.HasSuffix(text, `\`) || s.rest == "" {
				break
			}
		}
	case 's':
		if s.delimited(2) {
			s.flags()
		}
	case 'y':
		s.delimited(2)
	default: // w, W, e, and what is no command
		s.writes = true
	}
}

// line goes past all until one of the characters, and returns it.
func (s *sedScript) line(until string) string {
	i := strings.IndexAny(s.rest, until)
	if i < 0 {
		i = len(s.rest)
	}
	text := s.rest[:i]
	s.rest = s.rest[i:]
	s.rest = strings.TrimPrefix(s.rest, "\n")
	return text
}

// address goes past an address, if there is one.
func (s *sedScript) address() bool {
	if s.rest == "" {
		return false
	}
	switch c := s.rest[0]; {
	case c == '$':
		s.rest = s.rest[1:]
	case '0' <= c && c <= '9':
		s.skip("0123456789~")
	case c == '/':
		s.delimited(1)
		s.skip("IM")
	case c == '\\' && len(s.rest) > 1:
		s.rest = s.rest[1:]
		s.delimited(1)
		s.skip("IM")
	default:
		return false
	}
	return true
}

// delimited goes past the parts that the next character delimits.
func (s *sedScript) delimited(parts int) bool {
	if s.rest == "" || s.rest[0] == '\n' || s.rest[0] == '\\' || s.rest[0] >= 0x80 {
		return s.giveUp()
	}
	end := s.rest[0]
	i := 1
	for ; parts > 0; i++ {
		switch {
		case i >= len(s.rest):
			return s.giveUp()
		case s.rest[i] == '\\':
			i++
		case s.rest[i] == '[' && end != '[':
			// A delimiter within brackets is one for some seds and none for others.
			if close := strings.IndexByte(s.rest[i:], ']'); close > 0 && strings.IndexByte(s.rest[i:i+close], end) > 0 {
				return s.giveUp()
			}
		case s.rest[i] == end:
			parts--
		}
	}
	s.rest = s.rest[min(i, len(s.rest)):]
	return true
}

// giveUp ends a script that is not followed.
func (s *sedScript) giveUp() bool {
	s.rest, s.writes = "", true
	return false
}

// flags goes past the flags of s.
func (s *sedScript) flags() {
	for s.rest != "" {
		switch c := s.rest[0]; {
		case strings.IndexByte("gpiImM0123456789", c) >= 0:
			s.rest = s.rest[1:]
		case c == 'w' || c == 'e':
			s.writes = true
			return
		default:
			return
		}
	}
}
