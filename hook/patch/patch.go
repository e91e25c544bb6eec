// Package patch finds out which files an apply_patch touches: the paths of its headers and what becomes of them. It looks at
// no line of their content beyond its first character.
//
// The grammar is that of the tool, with what its parser accepts besides: white space around markers, carriage returns at the
// ends of lines, a here-document around the patch, and a line that names an environment.
package patch

import "strings"

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

// Read returns the operations of a patch, in its order. It is whole if the patch follows the grammar: what does not is not
// applied, so its operations may be more than those that happen, and are never fewer.
func Read(text string) (operations []Operation, whole bool) {
	at, whole := before, true
	document := "" // the word that ends the here-document around the patch
	open := func(kind Kind, path string, next state) {
		if path == "" || strings.ContainsRune(path, 0) {
			whole, at = false, headers
			return
		}
		operations, at = append(operations, Operation{Kind: kind, Path: path}), next
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
		trimmed := strings.TrimSpace(line)
		// Within changes a space in front makes it a line of the file.
		header := trimmed
		if at == changed || at == renamed {
			header = strings.TrimRight(line, " \t")
		}
		switch {
		case at == before:
			switch {
			case trimmed == begin:
				at = headers
			case strings.HasPrefix(trimmed, "<<") && document == "":
				document = strings.Trim(strings.TrimPrefix(trimmed, "<<"), `'"`)
				whole = whole && document != ""
			case trimmed != "":
				whole = false
			}
		case at == after:
			whole = whole && (trimmed == "" || document != "" && trimmed == document)
		case header == end:
			at = after
		case at == renamed && strings.HasPrefix(line, moveTo):
			last := &operations[len(operations)-1]
			if to := line[len(moveTo):]; to == "" || strings.ContainsRune(to, 0) {
				whole = false
			} else {
				last.Kind, last.To = Move, to
			}
			at = changed
		case strings.HasPrefix(header, add):
			open(Add, header[len(add):], added)
		case strings.HasPrefix(header, remove):
			open(Delete, header[len(remove):], headers)
		case strings.HasPrefix(header, update):
			open(Update, header[len(update):], renamed)
		case at == headers:
			whole = whole && (trimmed == "" || strings.HasPrefix(trimmed, environment) && len(operations) == 0)
		case at == added:
			if !strings.HasPrefix(line, "+") {
				whole, at = false, headers
			}
		default:
			at = changed
			whole = whole && (line == "" || strings.IndexByte("+- @", line[0]) >= 0 || trimmed == endOfFile)
		}
	}
	return operations, whole && at == after
}
