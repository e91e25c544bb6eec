package daemon

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Instructions is the text of the instruction files that an agent reads by itself, prepared for finding facts in it. The
// zero value has no text. It may be kept and shared; make it anew when a file changes.
type Instructions struct {
	text string // words with one space between them
	// starts are the places in text where a line or a sentence begins, by the first word there: a fact stands there only
	// as a whole ("use tabs" is not said by "never use tabs").
	starts map[string][]int
}

// NewInstructions prepares the texts of instruction files.
func NewInstructions(texts ...string) Instructions {
	in := Instructions{starts: map[string][]int{}}
	var b strings.Builder
	for _, text := range texts {
		for line := range strings.Lines(text) {
			start := true
			for word := range strings.FieldsSeq(line) {
				if b.Len() > 0 {
					b.WriteByte(' ')
				}
				if start {
					in.starts[word] = append(in.starts[word], b.Len())
				}
				b.WriteString(word)
				last, _ := utf8.DecodeLastRuneInString(word)
				// A bullet, a number with a point or a heading's marks come before a start; so does a sentence's end.
				start = start && !strings.ContainsFunc(word, unicode.IsLetter) || strings.ContainsRune(".:;!?", last)
			}
		}
	}
	in.text = b.String()
	return in
}

// says reports whether text stands in the instructions, white space and a final stop aside.
func (in *Instructions) says(text string) bool {
	if in.text == "" {
		return false
	}
	for first := range strings.FieldsSeq(text) {
		if in.starts[first] == nil && in.starts[strings.TrimRight(first, ".")] == nil && in.starts[first+"."] == nil {
			return false // as for most facts, at little cost
		}
		break
	}
	text = strings.TrimRight(strings.Join(strings.Fields(text), " "), ".")
	if text == "" {
		return false
	}
	first, _, more := strings.Cut(text, " ")
	if in.standsAt(in.starts[first], text) {
		return true
	}
	// The stop behind a fact of one word is part of the word there.
	return !more && in.standsAt(in.starts[text+"."], text)
}

func (in *Instructions) standsAt(starts []int, text string) bool {
	for _, at := range starts {
		rest, found := strings.CutPrefix(in.text[at:], text)
		if !found {
			continue
		}
		next, _ := utf8.DecodeRuneInString(rest)
		if rest == "" || next == ' ' || strings.ContainsRune(".;!?", next) {
			return true
		}
	}
	return false
}
