package main

import (
	"strings"
	"unicode"
)

// plain makes a text that somebody else chose safe to print: what could move the cursor, recolour the terminal, hide or
// reorder letters becomes a visible mark.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case unicode.IsControl(r), unicode.Is(unicode.Cf, r), r == unicode.ReplacementChar, unicode.Is(unicode.Zl, r), unicode.Is(unicode.Zp, r):
			return '�'
		}
		return r
	}, text)
}

// colour reports whether standard output may be coloured.
func (c *console) colour() bool {
	return c.getenv("NO_COLOR") == "" && c.getenv("TERM") != "dumb" && onTerminal(c.stdout)
}

func (c *console) bold(text string) string { return c.styled("1", text) }
func (c *console) dim(text string) string  { return c.styled("2", text) }

func (c *console) styled(style, text string) string {
	if !c.colour() {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}
