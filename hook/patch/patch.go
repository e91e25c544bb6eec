// Package patch finds out which files an apply_patch touches: the paths of its headers and what becomes of them. It looks at
// no line of their content beyond its first character.
//
// The grammar is that of the tool, with what its parser accepts besides: white space around markers, carriage returns at the
// ends of lines, a here-document around the patch, and a line that names an environment.
package patch

import (
	"bytes"
	"strings"
)

// Kind is what becomes of a file.
type Kind string

const (
	Add    Kind = "add" // written anew, whatever was there
	Update Kind = "update"
	Delete Kind = "delete"
	Move   Kind = "move" // updated, and put elsewhere
)

// Operation is what a patch does to one file. Paths are as the patch spells them: absolute, or relative to the directory in
// which it is applied, perhaps with "..".
type Operation struct {
	Kind Kind
	Path string
	To   string // of a Move
}

// Paths are those that are made, changed or removed: both of a Move.
func (o Operation) Paths() []string {
	if o.Kind == Move {
		return []string{o.Path, o.To}
	}
	return []string{o.Path}
}

const (
	begin       = "*** Begin Patch"
	end         = "*** End Patch"
	add         = "*** Add File: "
	update      = "*** Update File: "
	remove      = "*** Delete File: "
	moveTo      = "*** Move to: "
	endOfFile   = "*** End of File"
	environment = "*** Environment ID:"
)

// state is where in a patch a line is.
type state int

const (
	before  state = iota
	headers       // a header comes next
	added         // the lines of a new file
	renamed       // directly after an update's header, where it may move
	changed       // the changes of an update
	after
)

const (
	maxLine       = 8 << 10 // of a header this much is kept: more than any path that a file can have
	maxOperations = 5000
)

// Scanner reads a patch that comes in pieces, of any size: of lines of content it keeps nothing. The zero value is ready.
type Scanner struct {
	at         state
	operations []Operation
	broken     bool   // it does not follow the grammar
	document   string // the word that ends the here-document around the patch
	line       []byte // the line that has begun, unless it is skipped
	begun      bool   // a line has
	skip       bool   // it is content
	ends       bool   // the last line that is not blank is a line of a file that would end the patch but for its white space
}

// Write takes the next piece. It never fails.
func (s *Scanner) Write(piece []byte) (int, error) {
	n := len(piece)
	for len(piece) > 0 {
		if !s.begun {
			s.begun, s.skip = true, s.content(piece[0])
			if s.skip && s.at == renamed {
				s.at = changed
			}
		}
		end := bytes.IndexByte(piece, '\n')
		rest := piece
		if end >= 0 {
			rest = piece[:end]
		}
		if !s.skip {
			s.line = append(s.line, rest[:min(len(rest), maxLine-len(s.line))]...)
		}
		if end < 0 {
			break
		}
		s.endLine()
		piece = piece[end+1:]
	}
	return n, nil
}

// content reports whether a line that begins with first is one of a file, whatever follows.
func (s *Scanner) content(first byte) bool {
	switch s.at {
	case added:
		return first == '+'
	case renamed, changed:
		return first == '+' || first == '-' || first == '@'
	}
	return false
}

func (s *Scanner) endLine() {
	if s.skip {
		s.ends = false
	} else {
		s.take(strings.TrimSuffix(string(s.line), "\r"))
	}
	s.line, s.begun, s.skip = s.line[:0], false, false
}

// End returns the operations, in the patch's order. The patch is whole if it follows the grammar: what does not is not applied,
// so its operations may be more than those that happen. They are fewer only where there are more than 5,000; then it is not
// whole either.
func (s *Scanner) End() (operations []Operation, whole bool) {
	if s.begun {
		s.endLine()
	}
	return s.operations, (s.at == after || s.ends) && !s.broken
}

// open begins an operation.
func (s *Scanner) open(kind Kind, path string, next state) {
	if path == "" || strings.ContainsRune(path, 0) || len(s.operations) == maxOperations {
		s.broken, s.at = true, headers
		return
	}
	s.operations, s.at = append(s.operations, Operation{Kind: kind, Path: strings.ToValidUTF8(path, "\uFFFD")}), next
}

// take reads a line that is no content.
func (s *Scanner) take(line string) {
	trimmed := strings.TrimSpace(line)
	// Within changes a space in front makes it a line of the file.
	header := trimmed
	if s.at == changed || s.at == renamed {
		header = strings.TrimRight(line, " \t")
	}
	hold := func(follows bool) { s.broken = s.broken || !follows }
	if trimmed != "" && !(s.ends && trimmed == s.document) {
		s.ends = (s.at == changed || s.at == renamed) && trimmed == end
	}
	switch {
	case s.at == before:
		switch {
		case trimmed == begin:
			s.at = headers
		case strings.HasPrefix(trimmed, "<<") && s.document == "":
			s.document = strings.Trim(strings.TrimPrefix(trimmed, "<<"), `'"`)
			hold(s.document != "")
		default:
			hold(trimmed == "")
		}
	case s.at == after:
		hold(trimmed == "" || trimmed == end || s.document != "" && trimmed == s.document)
	case header == end:
		s.at = after
	case s.at == renamed && strings.HasPrefix(line, moveTo):
		last := &s.operations[len(s.operations)-1]
		if to := line[len(moveTo):]; to == "" || strings.ContainsRune(to, 0) {
			s.broken = true
		} else {
			last.Kind, last.To = Move, strings.ToValidUTF8(to, "\uFFFD")
		}
		s.at = changed
	case strings.HasPrefix(header, add):
		s.open(Add, header[len(add):], added)
	case strings.HasPrefix(header, remove):
		s.open(Delete, header[len(remove):], headers)
	case strings.HasPrefix(header, update):
		s.open(Update, header[len(update):], renamed)
	case s.at == headers:
		hold(trimmed == "" || strings.HasPrefix(trimmed, environment) && len(s.operations) == 0)
	case s.at == added:
		s.broken, s.at = true, headers
	default:
		s.at = changed
		hold(strings.HasPrefix(line, " ") || trimmed == "" || trimmed == endOfFile || s.ends)
	}
}

// Read is a Scanner's result for a patch that is there as a whole.
func Read(text string) (operations []Operation, whole bool) {
	var s Scanner
	_, _ = s.Write([]byte(text)) // it never fails
	return s.End()
}
