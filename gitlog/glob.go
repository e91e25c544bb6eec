package gitlog

import (
	"path"
	"strings"
)

// isPattern says whether a path argument is a glob as git's `:(glob)` understands it.
func isPattern(p string) bool { return strings.ContainsAny(p, "*?[") }

// matchPattern says whether a glob matches a path: * and ? and [...] stay inside one component, ** stands for any
// number of them.
func matchPattern(pattern, name string) bool {
	parts := strings.Split(name, "/")
	// reached[n]: what came of the pattern so far can match the first n components. A pattern is somebody else's word, so
	// the work must not explode with it.
	reached := make([]bool, len(parts)+1)
	reached[0] = true
	patterns := strings.Split(pattern, "/")
	for i, each := range patterns {
		next := make([]bool, len(parts)+1)
		if each == "**" {
			some := false
			for n := range next {
				if i == len(patterns)-1 { // at the end it stands for what is inside, not for the directory itself
					next[n] = some
				}
				if some = some || reached[n]; i < len(patterns)-1 {
					next[n] = some
				}
			}
		} else {
			each = strings.ReplaceAll(each, "[!", "[^")
			for n, part := range parts {
				if reached[n] {
					ok, err := path.Match(each, part)
					next[n+1] = ok && err == nil
				}
			}
		}
		reached = next
	}
	return reached[len(parts)]
}

// Touches says whether a fact's path equals a path, contains it or is contained by it; a glob also where it matches
// it. With fold A–Z are the same in either case, for repositories where core.ignorecase is true.
func (p FactPath) Touches(other string, fold bool) bool {
	own := p.Path
	if fold {
		own, other = FoldPath(own), FoldPath(other)
	}
	if p.Glob {
		root := globRoot(own)
		return matchPattern(own, other) || root == other || within(root, other)
	}
	return own == other || within(own, other) || within(other, own)
}

// within says whether a path is below a directory; everything else is below the root, "".
func within(p, dir string) bool {
	if dir == "" {
		return p != ""
	}
	return len(p) > len(dir) && p[len(dir)] == '/' && p[:len(dir)] == dir
}
