package shell

import (
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

// glob returns the files that a pattern matches, in the order of their names and as the pattern spells them: those of the
// tree and those that the line itself writes. It is false where they are not known or more than maxMatches.
func (r *reading) glob(sc *scope, pattern string) ([]string, bool) {
	if strings.Contains(pattern, "[:") || strings.Contains(pattern, "[=") || strings.Contains(pattern, "[.") {
		r.opaque = true
		return nil, false
	}
	found := []string{""}
	if strings.HasPrefix(pattern, "/") {
		found[0] = "/"
	} else if sc.dir == "" {
		return nil, false
	}
	parts := strings.Split(strings.TrimLeft(pattern, "/"), "/")
	for i, part := range parts {
		last := i == len(parts)-1
		var next []string
		for _, dir := range found {
			if part == "" { // the slash at the end
				next = append(next, dir)
				continue
			}
			names, ok := []string{unescape(part)}, true
			if hasMeta(part) {
				names, ok = r.list(sc, dir, part)
			}
			if !ok {
				r.opaque = true
				return nil, false
			}
			for _, name := range names {
				full := dir + name
				at, ok := r.path(sc, full)
				switch {
				case !ok:
					r.opaque = true
					return nil, false
				case !last && r.isDir(at):
					next = append(next, full+"/")
				case last && (hasMeta(part) || r.exists(at)):
					next = append(next, full)
				}
			}
			if len(next) > maxMatches && last || len(next) > maxWords {
				r.opaque = true
				return nil, false
			}
		}
		found = next
	}
	slices.Sort(found)
	return slices.Compact(found), true
}

// list returns the names in a directory that one part of a pattern matches.
func (r *reading) list(sc *scope, dir, part string) ([]string, bool) {
	at, ok := r.path(sc, dir)
	if dir == "" {
		at, ok = sc.dir, true
	}
	if !ok {
		return nil, false
	}
	var names []string
	add := func(name string) bool {
		if strings.HasPrefix(name, ".") && !strings.HasPrefix(strings.TrimPrefix(part, `\`), ".") {
			return true
		}
		matches, fine := match(part, name)
		if matches {
			names = append(names, name)
		}
		return fine && len(names) <= maxWords
	}
	there, ok := r.namesIn(at)
	if !ok {
		return nil, false
	}
	for _, name := range there {
		if !add(name) {
			return nil, false
		}
	}
	// What the line has made, or may have.
	inside := strings.TrimSuffix(at, "/") + "/"
	made := func(path string) bool {
		rest, below := strings.CutPrefix(path, inside)
		name, _, _ := strings.Cut(rest, "/")
		return !below || slices.Contains(names, name) || add(name)
	}
	for path := range r.made {
		if !made(path) {
			return nil, false
		}
	}
	for path := range r.writes {
		if !made(path) {
			return nil, false
		}
	}
	return names, true
}

// namesIn returns the names in a directory of the tree; false: they are too many, or nobody can tell.
func (r *reading) namesIn(abs string) ([]string, bool) {
	if names, listed := r.names[abs]; listed {
		return names, true
	}
	if r.env.Tree == nil {
		return nil, true
	}
	var names []string
	f, err := r.env.Tree.Open(inTree(abs))
	if err == nil {
		defer f.Close()
		d, isDir := f.(fs.ReadDirFile)
		for isDir {
			entries, err := d.ReadDir(512)
			for _, e := range entries {
				names = append(names, e.Name())
			}
			if r.listed += len(entries); r.listed > maxListed {
				return nil, false
			}
			if err == io.EOF || err == nil && len(entries) == 0 {
				break
			}
			if err != nil {
				return nil, false
			}
		}
	}
	r.names[abs] = names
	return names, true
}

func inTree(abs string) string {
	if abs = strings.TrimPrefix(abs, "/"); abs != "" {
		return abs
	}
	return "."
}

func hasMeta(pattern string) bool {
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case '\\':
			i++
		case '*', '?', '[':
			return true
		}
	}
	return false
}

func unescape(pattern string) string {
	if strings.IndexByte(pattern, '\\') < 0 {
		return pattern
	}
	var out strings.Builder
	for i := 0; i < len(pattern); i++ {
		if pattern[i] == '\\' && i+1 < len(pattern) {
			i++
		}
		out.WriteByte(pattern[i])
	}
	return out.String()
}

// match reports whether a pattern matches a name as a whole. It goes back to the last * only, so that it ends soon whatever
// the pattern. fine is false for a class in brackets that is not followed here.
func match(pattern, name string) (ok, fine bool) {
	star, from := -1, 0 // of the last *: what follows it, and where in name that was tried
	i, j := 0, 0
	for j < len(name) || i < len(pattern) {
		if i < len(pattern) {
			switch c := pattern[i]; c {
			case '*':
				i++
				star, from = i, j
				continue
			default:
				if j < len(name) {
					hit, width, n, fine := matchOne(pattern[i:], name[j:])
					if !fine {
						return false, false
					}
					if hit {
						i += width
						j += n
						continue
					}
				}
			}
		}
		if star < 0 || from >= len(name) {
			return false, true
		}
		_, n := utf8.DecodeRuneInString(name[from:])
		from += n
		i, j = star, from
	}
	return true, true
}

// matchOne matches the first character of a name: width is that of its part of the pattern, n that of the character.
func matchOne(pattern, name string) (hit bool, width, n int, fine bool) {
	c, n := utf8.DecodeRuneInString(name)
	switch pattern[0] {
	case '?':
		return true, 1, n, true
	case '\\':
		if len(pattern) > 1 {
			p, width := utf8.DecodeRuneInString(pattern[1:])
			return p == c, width + 1, n, true
		}
	case '[':
		set := pattern[1:]
		not := set != "" && (set[0] == '!' || set[0] == '^')
		if not {
			set = set[1:]
		}
		for first := true; set != ""; first = false {
			if set[0] == ']' && !first {
				return hit != not, len(pattern) - len(set) + 1, n, true
			}
			low, rest := setRune(set)
			high := low
			if len(rest) > 1 && rest[0] == '-' && rest[1] != ']' {
				high, rest = setRune(rest[1:])
				if low > 127 || high > 127 || !sameKind(low, high) {
					return false, 0, 0, false // as the locale has it
				}
			}
			hit = hit || low <= c && c <= high
			set = rest
		}
	}
	p, width := utf8.DecodeRuneInString(pattern)
	return p == c && pattern[:width] == name[:n], width, n, true
}

// sameKind says that two characters are both digits, or letters of one case: ranges of others depend on the locale.
func sameKind(a, b rune) bool {
	for _, kind := range [...]string{"09", "az", "AZ"} {
		low, high := rune(kind[0]), rune(kind[1])
		if low <= a && a <= high && low <= b && b <= high {
			return true
		}
	}
	return false
}

func setRune(set string) (rune, string) {
	if set[0] == '\\' && len(set) > 1 {
		set = set[1:]
	}
	c, n := utf8.DecodeRuneInString(set)
	return c, set[n:]
}

// path makes a name absolute. It is false where the directory that it is relative to is not known, or where it goes up from
// a link, whose parent is not the one that its name shows.
func (r *reading) path(sc *scope, name string) (string, bool) {
	dir := sc.dir
	if strings.HasPrefix(name, "/") {
		dir = ""
	} else if dir == "" {
		return "", false
	}
	if last := &r.last; last.name == name && last.dir == dir {
		return last.path, true
	}
	full := name
	if dir != "" {
		full = dir + "/" + name
	}
	if strings.IndexByte(full, 0) >= 0 {
		return "", false
	}
	up := strings.Contains(full, "..")
	if up {
		dir := "/"
		for part := range strings.SplitSeq(full, "/") {
			if part == ".." && r.isLink(dir) {
				return "", false
			}
			dir = path.Join(dir, part)
		}
	}
	clean := full
	if strings.HasSuffix(full, "/") || strings.Contains(full, "//") || strings.Contains(full, "/.") { // few have anything to clean
		clean = path.Clean(full)
	}
	if !up { // a link that the line makes changes nothing of it
		r.last.dir, r.last.name, r.last.path = dir, name, clean
	}
	return clean, true
}

// entry is what is at a path of the tree, before the line runs.
type entry struct {
	there bool
	link  bool // a symbolic link
	dir   bool // a directory, or a link to one
	file  bool // there, or where the link leads to, is something that is none
}

// at looks a path up, once: lines name the same paths again and again.
func (r *reading) at(abs string) entry {
	e, looked := r.entries[abs]
	if looked || r.env.Tree == nil {
		return e
	}
	name := inTree(abs)
	info, err := fs.Lstat(r.env.Tree, name)
	if e.there = err == nil; e.there {
		if e.link = info.Mode().Type() == fs.ModeSymlink; e.link {
			info, err = fs.Stat(r.env.Tree, name)
		}
		if err == nil {
			e.dir, e.file = info.IsDir(), !info.IsDir()
		}
	}
	r.entries[abs] = e
	return e
}

// isLink reports whether a path is a symbolic link, or one that the line makes.
func (r *reading) isLink(abs string) bool { return r.links[abs] || r.at(abs).link }

// isDir reports whether a path is a directory, or a link to one, or one that the line makes or may make.
func (r *reading) isDir(abs string) bool {
	_, made := r.made[abs]
	return made || abs == "/" || r.at(abs).dir
}

// isFile reports whether something is there that is no directory.
func (r *reading) isFile(abs string) bool { return r.at(abs).file }

// touched reports whether the line makes, changes or removes a path.
func (r *reading) touched(abs string) bool {
	_, written := r.writes[abs]
	_, made := r.made[abs]
	return written || made
}

// exists reports whether something is there, or the line has put it there.
func (r *reading) exists(abs string) bool { return r.touched(abs) || r.at(abs).there }
