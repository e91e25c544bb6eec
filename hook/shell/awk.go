package shell

import "strings"

// awk reads its operands; its program can write files and run commands.
func (c *call) awk() {
	spec := options{short: "bcCe:E:f:F:ghi:I:l:L::nNo::OPrsStTv:d::D::kW:", strict: true, long: "field-separator= assign= characters-as-bytes traditional " +
		"re-interval posix sandbox optimize no-optimize lint? csv version help"}
	p := c.parse(spec)
	operands := p.operands
	program := word{}
	switch {
	case p.is("f"):
		for _, o := range p.given {
			if o.name == "f" {
				c.readAll([]word{o.value})
			}
		}
		c.r.opaque = true
	case p.is("e", "E", "i", "l", "o", "d", "D", "W", "I"):
		c.r.opaque = true
		if p.is("e", "E") {
			break
		}
		fallthrough
	default:
		if len(operands) == 0 {
			return
		}
		program, operands = operands[0], operands[1:]
		if !program.known || awkWrites(program.text) {
			c.r.opaque = true
		}
	}
	for _, w := range operands {
		if name, _, assigns := strings.Cut(w.text, "="); assigns && name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") == "" {
			continue
		}
		c.readAll([]word{w})
	}
}

// awkWrites reports whether a program redirects its output, has a pipe, or calls system. It is true of what it does not follow.
func awkWrites(program string) bool {
	prints, depth := false, 0 // within a print, outside of its parentheses
	operand := false          // what came last is a value, so that a slash divides
	for i := 0; i < len(program); {
		switch c := program[i]; {
		case c == '"' || c == '/' && !operand:
			end := i + 1
			set := false
			for ; end < len(program) && (program[end] != c || set); end++ {
				switch program[end] {
				case '\\':
					end++
				case '\n':
					return true
				case '[':
					set = c == '/'
				case ']':
					set = false
				}
			}
			if end >= len(program) {
				return true
			}
			i, operand = end+1, true
			continue
		case c == '#':
			for i < len(program) && program[i] != '\n' {
				i++
			}
			continue
		case letter(c):
			end := i
			for end < len(program) && (letter(program[end]) || '0' <= program[end] && program[end] <= '9') {
				end++
			}
			switch program[i:end] {
			case "system":
				return true
			case "print", "printf":
				prints, depth = true, 0
				operand = false
			case "in", "return", "delete", "case", "do", "else", "exit":
				operand = false
			default:
				operand = true
			}
			i = end
			continue
		case c == '|':
			if i+1 >= len(program) || program[i+1] != '|' {
				return true
			}
			i++
			operand = false
		case c == '@':
			return true
		case c == '>' && prints && depth == 0:
			return true
		case c == '(' || c == '[':
			depth++
			operand = false
		case c == ')' || c == ']':
			depth--
			operand = true
		case c == ';' || c == '}' || c == '\n' || c == '{':
			prints, operand = false, false
		case c == ' ' || c == '\t':
		default:
			operand = '0' <= c && c <= '9' || c == '.' || c == '$'
			if c == '$' {
				operand = false
			}
		}
		i++
	}
	return false
}

func letter(c byte) bool { return c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }
