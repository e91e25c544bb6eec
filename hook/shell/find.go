package shell

import (
	"slices"
	"strings"
)

// find lists, and can do much else.
func (c *call) find() {
	for i := 0; i < len(c.args); i++ {
		w := c.args[i]
		switch {
		case !w.known && (strings.HasPrefix(w.text, "-") || w.many):
			c.r.opaque = true
		case w.text == "-delete" || strings.HasPrefix(w.text, "-fprint") || w.text == "-fls":
			c.r.opaque = true
		case w.text == "-exec" || w.text == "-execdir" || w.text == "-ok" || w.text == "-okdir":
			end := slices.IndexFunc(c.args[i:], func(w word) bool { return w.text == ";" || w.text == "+" })
			if end < 0 {
				end = len(c.args) - i
			}
			var command []word
			for _, arg := range c.args[i+1 : i+end] {
				if strings.Contains(arg.text, "{}") {
					arg = word{}
				}
				command = append(command, arg)
			}
			if !c.onlyReads(command) {
				c.r.opaque = true
			}
			i += end
		}
	}
}

// xargs gives a command the names that it finds on its input.
func (c *call) xargs() {
	spec := options{short: "0prtxoa:d:E:I:L:n:P:s:e::i::l::J:R:S:", strict: true, long: "null no-run-if-empty verbose interactive exit open-tty " +
		"arg-file= delimiter= eof? replace? max-lines? max-args= max-procs= max-chars= process-slot-var= show-limits"}
	p := c.parse(spec)
	if p.strange || len(p.operands) == 0 {
		return
	}
	command := slices.Clone(p.operands)
	for i := range command {
		if o, ok := p.get("I", "i", "J", "replace"); ok {
			mark := o.value.text
			if mark == "" {
				mark = "{}"
			}
			if strings.Contains(command[i].text, mark) {
				command[i] = word{}
			}
		}
	}
	if !c.onlyReads(append(command, word{many: true})) {
		c.r.opaque = true
	}
}

// onlyReads reports whether a command is a reader, and changes no file, whatever the names that it is still to be given.
func (c *call) onlyReads(words []word) bool {
	if len(words) == 0 || !words[0].known {
		return false
	}
	other := newReading(c.r.env)
	other.level, other.entries, other.names = c.r.level, c.r.entries, c.r.names
	inner := &call{r: other, sc: c.sc.clone(), name: words[0].text, args: words[1:]}
	return inner.reader() && !other.opaque && len(other.writes) == 0
}
