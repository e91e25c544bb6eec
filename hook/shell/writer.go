package shell

import (
	"path"
	"strings"
)

// writer interprets a command that writes its operands; false: it is none.
func (c *call) writer() bool {
	switch c.name {
	case "tee":
		c.writeAll(c.parse(options{short: "aip", long: "append ignore-interrupts output-error?"}).operands, Write{})
	case "touch":
		p := c.parse(options{short: "acd:fhmr:t:", long: "no-create date= no-dereference reference= time="})
		c.writeAll(p.operands, Write{Entry: p.is("h", "no-dereference")})
	case "truncate":
		c.writeAll(c.parse(options{short: "cor:s:", long: "no-create io-blocks reference= size="}).operands, Write{})
	case "unlink":
		c.writeAll(c.parse(options{}).operands, Write{Entry: true})
	case "rm":
		c.remove()
	case "chmod", "chown", "chgrp":
		c.change()
	case "mv", "cp", "install", "ln":
		c.copy()
	case "dd":
		c.dd()
	default:
		return false
	}
	return true
}

func (c *call) writeAll(operands []word, how Write) {
	for _, w := range operands {
		if w.text != "-" || c.name != "tee" && c.name != "touch" { // to those it is no file
			c.r.write(c.sc, w, how)
		}
	}
}

func (c *call) remove() {
	p := c.parse(options{short: "dfiIrRvWPx", long: "force interactive? one-file-system no-preserve-root preserve-root? recursive dir verbose"})
	recursive := p.is("r", "R", "recursive")
	for _, w := range p.operands {
		how := Write{Entry: true}
		if recursive && w.known {
			at, ok := c.r.path(c.sc, w.text)
			how.Tree = ok && !c.r.isFile(at) && (!c.r.isLink(at) || strings.HasSuffix(w.text, "/"))
		}
		c.r.write(c.sc, w, how)
	}
}

// change is chmod and chown: the first operand says to what.
func (c *call) change() {
	args := c.args
	spec := options{short: "cfhHLPRv", long: "changes silent quiet verbose dereference no-dereference from= preserve-root no-preserve-root reference= recursive"}
	mode := false
	if c.name == "chmod" {
		// -x is a mode, though it looks like an option.
		for i, w := range args {
			if w.known && len(w.text) > 1 && w.text[0] == '-' && strings.Trim(w.text[1:], "rwxXstugoa,+-=") == "" && !strings.HasPrefix(w.text, "--") {
				args = append(append([]word{}, args[:i]...), args[i+1:]...)
				mode = true
				break
			}
		}
	}
	p := spec.parse(args)
	if p.strange || p.is("R", "recursive") {
		c.r.opaque = true
	}
	files := p.operands
	if !mode && !p.is("reference") && len(files) > 0 {
		if files[0].many {
			c.r.opaque = true
		}
		files = files[1:]
	}
	if p.is("R", "recursive") {
		return
	}
	c.writeAll(files, Write{Entry: p.is("h", "no-dereference")})
}

// dd names its files by key=value.
func (c *call) dd() {
	for _, w := range c.args {
		key, value, ok := strings.Cut(w.text, "=")
		to := word{text: value, known: w.known}
		switch {
		case !ok:
			c.r.opaque = c.r.opaque || !strings.HasPrefix(w.text, "--")
		case key == "of":
			c.r.write(c.sc, to, Write{})
		case key == "if":
			c.r.read(c.sc, to)
		}
	}
}

// copy is cp, mv, install and ln: from some paths to one, or into a directory.
func (c *call) copy() {
	var spec options
	switch c.name {
	case "mv":
		spec = options{short: "bfhiknS:t:TuvZ", long: "backup? force interactive no-clobber no-copy strip-trailing-slashes suffix= target-directory= " +
			"no-target-directory update? verbose context exchange debug"}
	case "cp":
		spec = options{short: "abcdfHiLlNnPpRrsS:t:TuvxXZ", long: "archive attributes-only backup? copy-contents debug force interactive link dereference no-clobber " +
			"no-dereference preserve? no-preserve= parents recursive reflink? remove-destination sparse= strip-trailing-slashes symbolic-link suffix= " +
			"target-directory= no-target-directory update? verbose keep-directory-symlink one-file-system context?"}
	case "install":
		spec = options{short: "bcCdDg:m:o:psS:t:TvZ", long: "backup? compare directory group= mode= owner= preserve-timestamps strip strip-program= suffix= " +
			"target-directory= no-target-directory verbose preserve-context context?"}
	case "ln":
		spec = options{short: "bdFfhinLPrsS:t:Tvw", long: "backup? directory force interactive logical no-dereference physical relative symbolic suffix= " +
			"target-directory= no-target-directory verbose"}
	}
	p := c.parse(spec)
	if p.strange {
		return
	}
	t := transfer{c: c, backup: p.is("b", "backup", "S", "suffix"), into: p.is("t", "target-directory")}
	t.recursive = c.name == "cp" && p.is("r", "R", "a", "recursive", "archive")
	t.links = c.name == "ln" || c.name == "cp" && p.is("l", "s", "link", "symbolic-link")
	t.entry = c.name != "cp" || t.links || p.is("remove-destination")
	t.keep = c.name == "mv" || c.name == "cp" && (t.recursive || p.is("d", "P", "no-dereference"))
	if c.name == "cp" && p.is("parents") || p.is("exchange") {
		c.r.opaque = true
		return
	}
	if c.name == "install" && p.is("d", "directory") {
		for _, w := range p.operands {
			c.r.make(c.sc, w)
		}
		return
	}
	from := p.operands
	var to word
	switch {
	case t.into:
		o, _ := p.get("t", "target-directory")
		to = o.value
		if c.name == "install" && p.is("D") {
			c.r.make(c.sc, to)
		}
	case c.name == "ln" && len(from) == 1:
		to, t.into = literal("."), true
	case len(from) < 2:
		return
	default:
		to, from = from[len(from)-1], from[:len(from)-1]
		if to.many || to.perhaps {
			c.r.opaque = true
			return
		}
	}
	name := p.is("T", "no-target-directory")
	follow := !p.is("n", "h", "no-dereference") || c.name != "ln"
	t.run(from, to, name, follow)
}

// transfer is one call of cp, mv, install or ln.
type transfer struct {
	c         *call
	backup    bool // what is in the way is kept under another name
	into      bool // the destination is a directory for sure
	recursive bool
	links     bool // links are made
	keep      bool // a link stays one
	entry     bool // what is in the way is replaced, not written to
}

// run carries it out. name says that the destination is a name and no directory to put things into; follow that a link to a
// directory is one.
func (t *transfer) run(from []word, to word, name, follow bool) {
	r, sc := t.c.r, t.c.sc
	many := len(from) > 1
	for _, w := range from {
		if w.many || w.perhaps {
			r.opaque = true // how many they are decides where they go
		}
	}
	if !to.known {
		for _, w := range from {
			t.source(w)
		}
		r.opaque = true
		return
	}
	at, ok := r.path(sc, to.text)
	if ok && follow && !name && r.links[at] {
		r.opaque = true // into what it points to, if that is a directory
	}
	isDir := ok && r.isDir(at) && (follow || !r.isLink(at))
	perhaps := ok && isDir && !r.surelyDir(at)
	inside := !name && (t.into || many || strings.HasSuffix(to.text, "/") || isDir)
	for _, w := range from {
		folder := t.source(w)
		if folder && t.c.name == "cp" {
			if t.recursive {
				r.opaque = true // all that is in there, and it is not listed
			}
			continue
		}
		if folder && !isDir && !t.into && !many {
			t.destination(to, folder, w) // a slash at the end makes no difference
			continue
		}
		if inside {
			if !w.known {
				r.opaque = true
				continue
			}
			base := path.Base(path.Clean(w.text))
			if base == "." || base == ".." || base == "/" {
				r.opaque = true
				continue
			}
			t.destination(literal(strings.TrimSuffix(to.text, "/")+"/"+base), folder, w)
		}
		if !inside || perhaps && !t.into && !many && !strings.HasSuffix(to.text, "/") {
			t.destination(to, folder, w)
		}
	}
}

// source reads, or removes, what is transferred, and says whether that is a directory.
func (t *transfer) source(w word) (folder bool) {
	r, sc := t.c.r, t.c.sc
	at, ok := r.path(sc, w.text)
	ok = ok && w.known
	folder = ok && r.isDir(at)
	switch t.c.name {
	case "mv":
		folder = folder && !r.isLink(at) || ok && strings.HasSuffix(w.text, "/")
		r.write(sc, w, Write{Entry: true, Tree: folder})
		return folder
	case "ln":
		return false
	case "cp":
		if t.recursive && !folder && !(ok && (r.isFile(at) || r.exists(at))) {
			return true // it may be one
		}
		if folder {
			return true
		}
	}
	r.read(sc, w)
	return false
}

// destination writes w, from a source that is a directory or not.
func (t *transfer) destination(w word, folder bool, from word) {
	r, sc := t.c.r, t.c.sc
	at, ok := r.path(sc, w.text)
	if !ok {
		r.opaque = true
		return
	}
	if t.backup && r.exists(at) {
		r.opaque = true
	}
	r.write(sc, w, Write{Entry: t.entry, Tree: folder})
	source, ok := r.path(sc, from.text)
	if t.links || t.keep && ok && from.known && r.isLink(source) {
		r.links[at] = true
	} else if folder {
		r.made[at] = r.maybe == 0
	}
}
