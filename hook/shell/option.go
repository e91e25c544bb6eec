package shell

import "strings"

// options says which options a command has.
type options struct {
	short  string // letters; one with a colon has an argument, one with two an argument that is attached or absent
	long   string // names between spaces; one with = has an argument, one with ? an argument after = or none
	digits bool   // -20 is an option
	strict bool   // the first operand ends options, as for commands that run another
}

// parsed is a command's arguments, taken apart.
type parsed struct {
	given    []option
	operands []word
	strange  bool // there is an option that the command does not have, as far as is known
}

type option struct {
	name  string // a letter, or a name without dashes
	value word   // of its argument; known and empty without one
	has   bool   // it has an argument
}

// is says whether an option was given under one of its names.
func (p *parsed) is(names ...string) bool {
	_, ok := p.get(names...)
	return ok
}

// get returns the last option of one of these names.
func (p *parsed) get(names ...string) (last option, ok bool) {
	for _, o := range p.given {
		for _, name := range names {
			if o.name == name {
				last, ok = o, true
			}
		}
	}
	return last, ok
}

// parse takes arguments apart as getopt does.
func (spec options) parse(args []word) (p parsed) {
	for i := 0; i < len(args); i++ {
		w := args[i]
		switch {
		case !strings.HasPrefix(w.text, "-") || w.text == "-" && w.known:
			if p.operands == nil {
				p.operands = make([]word, 0, len(args)-i)
			}
			p.operands = append(p.operands, w)
			if spec.strict {
				p.operands = append(p.operands, args[i+1:]...)
				return p
			}
		case w.text == "--" && w.known:
			p.operands = append(p.operands, args[i+1:]...)
			return p
		case w.text == "-" || w.text == "--":
			p.strange = true
		case strings.HasPrefix(w.text, "--"):
			name, value, attached := strings.Cut(w.text[2:], "=")
			takes, ok := spec.longOption(name)
			switch {
			case !ok || !attached && !w.known || attached && takes == 0:
				p.strange = true
			case attached:
				p.given = append(p.given, option{name, word{text: value, known: w.known}, true})
			case takes == '=':
				i++
				if i == len(args) {
					p.strange = true
					return p
				}
				p.given = append(p.given, option{name, args[i], true})
			default:
				p.given = append(p.given, option{name: name, value: literal("")})
			}
		case spec.digits && strings.Trim(w.text[1:], "0123456789") == "":
			p.strange = p.strange || !w.known
		default:
			i += spec.cluster(&p, w, args[i+1:])
		}
	}
	return p
}

// cluster takes -abc apart and returns how many of the words after it are arguments.
func (spec options) cluster(p *parsed, w word, after []word) int {
	for letters := w.text[1:]; letters != ""; {
		name := letters[:1]
		letters = letters[1:]
		at := strings.Index(spec.short, name)
		if at < 0 || name == ":" {
			p.strange = true
			return 0
		}
		switch rest := spec.short[at+1:]; {
		case strings.HasPrefix(rest, "::"):
			p.given = append(p.given, option{name, word{text: letters, known: w.known}, letters != "" || !w.known})
			return 0
		case strings.HasPrefix(rest, ":"):
			switch {
			case letters != "" || !w.known:
				p.given = append(p.given, option{name, word{text: letters, known: w.known}, true})
			case len(after) == 0:
				p.strange = true
			default:
				p.given = append(p.given, option{name, after[0], true})
				return 1
			}
			return 0
		}
		p.given = append(p.given, option{name: name, value: literal("")})
	}
	p.strange = p.strange || !w.known
	return 0
}

// longOption says what a long option takes: '=', '?' or 0 for nothing.
func (spec options) longOption(name string) (takes byte, ok bool) {
	for rest := spec.long; rest != "" && name != ""; {
		var one string
		one, rest, _ = strings.Cut(rest, " ")
		switch strings.TrimPrefix(one, name) {
		case "":
			return 0, true
		case "=":
			return '=', true
		case "?":
			return '?', true
		}
	}
	return 0, false
}
