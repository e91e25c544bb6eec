package gitlog

import (
	"fmt"
	"path"
	"strings"
)

// PathSet is the paths that a list in settings names: a path means itself and all below it, a glob (see matchPattern)
// what it matches. A–Z count alike in either case, as everywhere where machines must agree. The zero value is empty.
type PathSet struct {
	paths map[string]bool
	globs []string
}

// NewPathSet makes a set of a list as people write it: a slash at either end of a path is let pass. What makes no
// sense is left out, with a sentence each.
func NewPathSet(list []string) (PathSet, []string) {
	var set PathSet
	var problems []string
	for _, written := range list {
		clean, err := CanonicalPath(strings.Trim(written, "/"))
		switch {
		case err != nil:
			problems = append(problems, err.Error())
			continue
		case clean == "":
			problems = append(problems, fmt.Sprintf("%q names the whole repository", written))
			continue
		case isPattern(clean):
			if part, err := badPattern(clean); err != nil {
				problems = append(problems, fmt.Sprintf("%q is no glob, since %q has a bracket that is not closed", written, part))
				continue
			}
			set.globs = append(set.globs, FoldPath(clean))
			continue
		}
		if set.paths == nil {
			set.paths = map[string]bool{}
		}
		set.paths[FoldPath(clean)] = true
	}
	return set, problems
}

// badPattern finds a component that no name can be compared with.
func badPattern(pattern string) (string, error) {
	for part := range strings.SplitSeq(pattern, "/") {
		if _, err := path.Match(strings.ReplaceAll(part, "[!", "[^"), ""); err != nil {
			return part, err
		}
	}
	return "", nil
}

// Match says whether a canonical path is in the set.
func (s PathSet) Match(path string) bool {
	if len(s.paths) == 0 && len(s.globs) == 0 {
		return false
	}
	path = FoldPath(path)
	for _, glob := range s.globs {
		if matchPattern(glob, path) {
			return true
		}
	}
	if len(s.paths) == 0 {
		return false
	}
	for i := range len(path) {
		if path[i] == '/' && s.paths[path[:i]] {
			return true
		}
	}
	return s.paths[path]
}
