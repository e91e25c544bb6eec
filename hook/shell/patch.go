package shell

import "knoot.dev/knoot/hook/patch"

// applyPatch names the files of a patch, which Codex applies itself where it finds the command in a line.
func (c *call) applyPatch() {
	text := c.in.text
	if len(c.args) == 1 {
		text = c.args[0]
	}
	if !text.known {
		c.r.opaque = true
		return
	}
	operations, ok := patch.Read(text.text)
	if !ok {
		c.r.opaque = true
	}
	for _, o := range operations {
		for _, path := range o.Paths() {
			c.r.write(c.sc, literal(path), Write{})
		}
	}
}
