package hook

import (
	"strings"
	"unicode/utf8"

	"knoot.dev/knoot/daemon/socket"
)

// maxOutput bounds what a hook prints, in bytes. Claude Code replaces a context of more than 10,000 UTF-16 units by a
// preview. The daemon's budgets are far below; this holds if they fail.
const maxOutput = 9000

// form is how an agent spells an answer: what stands before and after each text.
type form struct {
	deny    span   // around the reason of a denial
	also    string // before what is to be read with a denial; "": nothing is
	person  span   // around a denial's line for the person, in the place of what closed it; zero: they get none
	event   string // before the event's name, which is before context; "": it is not named
	context span   // around what is to be read
	hold    span   // around why the turn goes on
}

// span is what stands around a text. An empty end leaves what closes the output as it is.
type span struct{ start, end string }

// encode puts an answer to an event into the agent's words: JSON on one line, or nothing. Only keys that the event knows are in
// it. A denial is first, so that nothing can cut it.
func (a *agent) encode(event string, h *socket.Hook, answer *socket.Answer) []byte {
	if answer == nil || h.Repaired {
		return nil
	}
	r, f := a.events[event], &a.form
	said := func(allowed bool, text string) string {
		if !allowed || strings.TrimSpace(text) == "" {
			return ""
		}
		return text
	}
	deny, context, hold := said(r.deny, answer.Deny), said(r.context, answer.Context), said(r.hold, answer.Hold)
	person := said(r.deny && deny != "", answer.Person)
	if h.StopHook || background(h) {
		hold = "" // the turn was held open before, or something else will prompt
	}
	w := writer{}
	switch {
	case hold != "":
		w.open(f.hold)
		w.text(hold)
	case deny != "":
		w.open(f.deny)
		w.text(deny)
		if context != "" && f.also != "" && w.room() > len(f.also)+2 {
			w.raw(f.also)
			w.text(context)
		}
		if person != "" && f.person.start != "" && w.room() > len(f.person.start)+2 {
			if f.person.end != "" {
				w.end = f.person.end
			}
			w.raw(f.person.start)
			w.text(person)
		}
	case context != "":
		if f.event != "" {
			w.raw(f.event + event)
		}
		w.open(f.context)
		w.text(context)
	}
	return append(w.out, w.end...)
}

// writer builds output of at most maxOutput bytes.
type writer struct {
	out []byte
	end string // what closes it
}

func (w *writer) room() int { return maxOutput - len(w.out) - len(w.end) }

func (w *writer) raw(text string) { w.out = append(w.out, text...) }

// open writes what stands before a text, and keeps what closes it.
func (w *writer) open(s span) {
	w.raw(s.start)
	w.end = s.end
}

// text writes a string, as much of it as there is room for, cut between characters. It is valid UTF-8 whatever s is: what is
// not becomes U+FFFD, and what breaks some reader of JSON or lines is escaped.
func (w *writer) text(s string) {
	const hex = "0123456789abcdef"
	w.out = append(w.out, '"')
	var buf [6]byte
	for i, r := range s {
		c := buf[:0]
		switch {
		case r == '"' || r == '\\':
			c = append(c, '\\', byte(r))
		case r == '\n':
			c = append(c, `\n`...)
		case r == '\r':
			c = append(c, `\r`...)
		case r == '\t':
			c = append(c, `\t`...)
		case r < 0x20, 0x7f <= r && r < 0xa0, r == 0x2028, r == 0x2029, r == 0xfeff, r == utf8.RuneError, 0xfffe <= r && r <= 0xffff:
			c = append(c, '\\', 'u', hex[r>>12], hex[r>>8&15], hex[r>>4&15], hex[r&15])
		default:
			c = append(c, s[i:i+utf8.RuneLen(r)]...)
		}
		if w.room() < len(c)+1 {
			break
		}
		w.out = append(w.out, c...)
	}
	w.out = append(w.out, '"')
}
