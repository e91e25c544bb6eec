package shell

import (
	"path"
	"strings"
)

// read records a file that is read. One that is not known is left out, and so is a directory.
func (r *reading) read(sc *scope, w word) {
	if !w.known || w.text == "" || strings.HasSuffix(w.text, "/") {
		return
	}
	at, ok := r.path(sc, w.text)
	if !ok || r.reads[at] || r.isDir(at) || !r.room(at) {
		return
	}
	r.reads[at] = true
}

// write records a file that is written; how says in which way, without its path. One that is not known makes the line opaque.
func (r *reading) write(sc *scope, w word, how Write) {
	if !w.known {
		r.opaque = true
		return
	}
	if w.text == "" {
		return // an error of the command
	}
	at, ok := r.path(sc, w.text)
	if !ok {
		r.opaque = true
		return
	}
	r.writeAt(at, how)
}

// writeAt is write for an absolute path.
func (r *reading) writeAt(at string, how Write) {
	for link := range r.links {
		if at == link && !how.Entry || under(at, link) {
			r.opaque = true // it goes where the link points to
			return
		}
	}
	if how.Tree && (r.env.Root == at || at == "/" || under(r.env.Root, at)) {
		r.opaque = true
		return
	}
	w, again := r.writes[at]
	if !again && !r.room(at) {
		return
	}
	w.tree = w.tree || how.Tree
	w.entry = w.entry || how.Entry
	w.through = w.through || !how.Entry
	r.writes[at] = w
}

// under reports whether a path is below a directory, which is not the root.
func under(at, dir string) bool {
	return len(at) > len(dir) && at[len(dir)] == '/' && strings.HasPrefix(at, dir)
}

// room counts the bytes of a path, and says whether it may still be named.
func (r *reading) room(at string) bool {
	if r.named += len(at); r.named > maxNamed {
		r.opaque = true
		return false
	}
	return true
}

// make records a directory that the line makes. Where a file is in the way it may fail.
func (r *reading) make(sc *scope, w word) {
	at, ok := r.path(sc, w.text)
	if !ok || !w.known {
		return
	}
	for ; !r.isDir(at); at = path.Dir(at) {
		_, touched := r.writes[at]
		r.made[at] = r.maybe == 0 && !touched && !r.isFile(at)
	}
	if sure, mine := r.made[at]; mine && !sure && r.maybe == 0 && !r.isFile(at) {
		r.made[at] = true
	}
}

// surelyDir reports whether a directory is there for sure once the line comes by.
func (r *reading) surelyDir(at string) bool {
	if sure, mine := r.made[at]; mine {
		return sure
	}
	_, written := r.writes[at]
	return r.isDir(at) && !written
}
