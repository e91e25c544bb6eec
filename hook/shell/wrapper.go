package shell

import "strings"

// wrapper interprets a command that runs the one in its arguments; false: it is none.
func (c *call) wrapper() bool {
	switch c.name {
	case "sudo":
		p := c.parse(options{short: "AbEHnPSkKu:g:U:p:C:T:D:R:h:r:t:", strict: true, long: "non-interactive preserve-env? set-home user= group= stdin " +
			"askpass background prompt= host= chdir= chroot="})
		if p.is("D", "R", "chdir", "chroot") || p.strange {
			c.r.opaque = true
			return true
		}
		c.env(p.operands)
	case "env":
		p := c.parse(options{short: "i0u:C:S:v", strict: true, long: "ignore-environment null unset= chdir= split-string= debug"})
		if p.is("S", "split-string") || p.strange {
			c.r.opaque = true
			return true
		}
		if dir, ok := p.get("C", "chdir"); ok {
			inner := *c
			inner.sc = c.sc.clone()
			inner.sc.dir = ""
			if dir.value.known {
				inner.sc.dir = c.join(dir.value.text)
			}
			c.r.moved = true
			inner.env(p.operands)
			return true
		}
		c.env(p.operands)
	case "nohup":
		if len(c.args) > 0 && c.args[0].text == "--" {
			c.args = c.args[1:]
		}
		c.program(c.args)
	case "timeout":
		p := c.parse(options{short: "fvk:s:p", strict: true, long: "foreground verbose kill-after= signal= preserve-status"})
		if len(p.operands) > 1 && !p.strange {
			c.program(p.operands[1:])
		}
	case "nice":
		p := c.parse(options{short: "n:", long: "adjustment=", strict: true, digits: true})
		if !p.strange {
			c.program(p.operands)
		}
	case "stdbuf":
		p := c.parse(options{short: "i:o:e:", long: "input= output= error=", strict: true})
		if !p.strange {
			c.program(p.operands)
		}
	case "setsid":
		p := c.parse(options{short: "cfw", long: "ctty fork wait", strict: true})
		if !p.strange {
			c.program(p.operands)
		}
	case "time":
		p := c.parse(options{short: "apvqf:o:", long: "append portability verbose quiet format= output=", strict: true})
		if out, ok := p.get("o", "output"); ok {
			c.r.write(c.sc, out.value, Write{})
		}
		if !p.strange {
			c.program(p.operands)
		}
	case "exec":
		p := c.parse(options{short: "cla:", strict: true})
		if !p.strange {
			c.program(p.operands)
		}
	case "command":
		p := c.parse(options{short: "pvV", strict: true})
		if !p.strange && !p.is("v", "V") {
			c.inside(p.operands)
		}
	case "builtin":
		c.inside(c.args)
	default:
		return false
	}
	return true
}

// env runs what follows assignments.
func (c *call) env(words []word) {
	for len(words) > 0 && strings.Contains(words[0].text, "=") {
		name, _, _ := strings.Cut(words[0].text, "=")
		c.sets = append(c.sets, name)
		words = words[1:]
	}
	c.program(words)
}

// program runs words as a program: it is no function and nothing that the shell does itself, so the shell stays as it is.
func (c *call) program(words []word) {
	inner := *c
	inner.sc = c.sc.clone()
	inner.sc.funcs = nil
	for _, name := range c.sets {
		inner.sc.setVar(name, value{})
	}
	inner.run(words)
}

// inside runs words as what the shell itself does, or a program, but not a function of the same name.
func (c *call) inside(words []word) {
	inner := *c
	funcs := c.sc.funcs
	c.sc.funcs = nil
	inner.run(words)
	c.sc.funcs = funcs
}
