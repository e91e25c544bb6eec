package main

import (
	"slices"
	"strings"
	"time"
)

const (
	// savesSettle is how long a change waits until it is told: by then a hook has said whether it was a session's.
	savesSettle = 2 * time.Second
	// savesAtOnce is how many files a person changes within a second at most. More are the work of a tool.
	savesAtOnce = 20
)

// saves tells what a person saves from what tools write, by how much changes at once. It has no clock.
type saves struct {
	waiting map[string]time.Time // when each path changed first that is not told yet
	recent  []save               // within the last second, oldest first
	tool    bool                 // more than savesAtOnce files changed within the last second
}

type save struct {
	path string
	at   time.Time
}

// add takes in a change. It reports whether with it the work of a tool begins.
func (s *saves) add(path string, at time.Time) (begins bool) {
	if isScratch(path) {
		return false
	}
	s.recent = append(s.recent, save{path, at})
	s.recent = slices.DeleteFunc(s.recent, func(each save) bool { return at.Sub(each.at) > time.Second })
	files := map[string]bool{}
	for _, each := range s.recent {
		files[each.path] = true
	}
	if s.waiting == nil {
		s.waiting = map[string]time.Time{}
	}
	if len(files) <= savesAtOnce {
		s.tool = false
		if _, waits := s.waiting[path]; !waits {
			s.waiting[path] = at
		}
		return false
	}
	begins, s.tool = !s.tool, true
	for file := range files {
		delete(s.waiting, file)
	}
	return begins
}

// due takes out the changes that are to be told at now, by path.
func (s *saves) due(now time.Time) (out []save) {
	for path, at := range s.waiting {
		if now.Sub(at) >= savesSettle {
			out = append(out, save{path, at})
			delete(s.waiting, path)
		}
	}
	slices.SortFunc(out, func(a, b save) int { return strings.Compare(a.path, b.path) })
	return out
}

// dueAt is when the next change is to be told; false: none waits.
func (s *saves) dueAt() (first time.Time, waits bool) {
	for _, at := range s.waiting {
		if at = at.Add(savesSettle); !waits || at.Before(first) {
			first, waits = at, true
		}
	}
	return first, waits
}

// isScratch says whether a file is one that editors make beside the file that they edit: backups, swap files, locks, tests of
// whether a folder can be written.
func isScratch(path string) bool {
	name := path[strings.LastIndexByte(path, '/')+1:]
	for _, ending := range []string{"~", ".swp", ".swo", ".swx", "___jb_tmp___", "___jb_old___"} {
		if strings.HasSuffix(name, ending) {
			return true
		}
	}
	return name == "4913" || strings.HasPrefix(name, ".#") || strings.HasPrefix(name, ".goutputstream-") ||
		len(name) > 2 && name[0] == '#' && name[len(name)-1] == '#'
}
