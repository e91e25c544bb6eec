package daemon

import (
	"cmp"
	"path"
	"strings"
)

// How near a path is to what the session does; a greater one ranks first.
type nearness int

const (
	unrelated   nearness = iota
	inPrompt             // the prompt names it
	thisSession          // the session read or wrote it
	thisTurn             // in this turn, or in this tool call
)

// vicinity is what a session touched and named, to be asked which facts belong to it.
type vicinity struct {
	fold  bool
	exact map[string]nearness // the paths themselves
	above map[string]nearness // the directories that contain one of them; "" is the root
	// dirs is what within found: many facts are about files of few directories.
	dirs map[string]nearness
	// named are path-like words of the prompt by their last component: they may leave out leading directories.
	named map[string][]string
	bare  map[string]struct{} // words of the prompt that are a file's whole name
	text  string              // the prompt, for paths with white space
	words *wordSet            // its words
}

func newVicinity(fold bool) *vicinity {
	return &vicinity{fold: fold, exact: map[string]nearness{}, above: map[string]nearness{}, dirs: map[string]nearness{}}
}

func (v *vicinity) spell(p string) string {
	if v.fold {
		return strings.ToLower(p)
	}
	return p
}

// touch adds a path. The root itself is not "a path that was read": everything would belong to it.
func (v *vicinity) touch(p string, how nearness) {
	p = v.spell(strings.TrimSuffix(p, "/"))
	if p == "" || v.exact[p] >= how {
		return
	}
	v.exact[p] = how
	for p != "" {
		p = parent(p)
		if v.above[p] >= how {
			return // and so are all above it
		}
		v.above[p] = how
	}
}

// name adds what a prompt names.
func (v *vicinity) name(p *prompt) {
	v.named, v.bare = make(map[string][]string, len(p.paths)), make(map[string]struct{}, len(p.bare))
	for _, token := range p.paths {
		token = v.spell(strings.TrimSuffix(token, "/"))
		if token == "" {
			continue
		}
		if strings.Contains(token, "/") {
			v.touch(token, inPrompt)
		}
		base := path.Base(token)
		v.named[base] = append(v.named[base], token)
	}
	for _, token := range p.bare {
		v.bare[v.spell(token)] = struct{}{}
	}
	v.text, v.words = v.spell(p.text), &p.words
}

// maxPathLength is the length of the longest path that systems take; a fact's path can be anything.
const maxPathLength = 4096

// near says how near a fact's path is, and whether it is one of the session's paths itself.
func (v *vicinity) near(p string) (how nearness, exact bool) {
	if len(p) > maxPathLength {
		return unrelated, false
	}
	p = v.spell(p)
	how = v.exact[p]
	exact = how > unrelated
	how = max(how, v.above[p])
	if p == "" {
		return how, exact
	}
	how = max(how, v.within(parent(p)))
	if how > unrelated || v.named == nil {
		return how, exact
	}
	return v.nameOf(p)
}

// within says how near what is in a directory is because the session touched the directory itself. Nothing is touched any more
// once it was asked.
func (v *vicinity) within(dir string) nearness {
	if dir == "" {
		return unrelated
	}
	how, known := v.dirs[dir]
	if !known {
		how = max(v.exact[dir], v.within(parent(dir)))
		v.dirs[dir] = how
	}
	return how
}

// nameOf says whether the prompt names p, or a directory of p, by its last components.
func (v *vicinity) nameOf(p string) (nearness, bool) {
	base := path.Base(p)
	if _, named := v.bare[base]; named {
		return inPrompt, true
	}
	if strings.Contains(base, " ") {
		known := true
		eachWord(base, func(word uint64) { known = known && v.words.has(word) })
		if known && strings.Contains(v.text, base) {
			return inPrompt, true
		}
	}
	for up := p; up != ""; up = parent(up) {
		for _, token := range v.named[path.Base(up)] {
			if up == token || strings.HasSuffix(up, "/"+token) {
				return inPrompt, up == p
			}
		}
	}
	return unrelated, false
}

// nearGlob is near for a glob: it belongs to the paths that it matches, and to the directories that contain what it can match.
func (v *vicinity) nearGlob(glob string) (how nearness, exact bool) {
	if len(glob) > maxPathLength {
		return unrelated, false
	}
	glob = v.spell(glob)
	fixed := glob // what each match begins with
	if at := strings.IndexAny(glob, "*?[\\"); at >= 0 {
		fixed = glob[:at]
	}
	how = v.within(parent(fixed + "x"))
	for p, h := range v.exact {
		if h > how && strings.HasPrefix(p, fixed) && matchGlob(glob, p) {
			how = h
		}
	}
	if how == unrelated {
		for _, tokens := range v.named {
			for _, token := range tokens {
				if matchGlob(glob, token) || !strings.Contains(token, "/") && matchGlob(path.Base(glob), token) {
					return inPrompt, false
				}
			}
		}
	}
	return how, false
}

// matchGlob says whether a glob matches a path or one of the directories above it: * and ? stay within a component, ** stands for
// any number of components.
func matchGlob(glob, p string) bool {
	globs, parts := append(strings.Split(glob, "/"), "**"), strings.Split(p, "/")
	// Going back to the last ** alone is enough, and takes no more than their product (a glob is somebody else's).
	g, i, star, from := 0, 0, -1, 0
	for i < len(parts) {
		if g < len(globs) && globs[g] == "**" {
			star, from = g, i
			g++
			continue
		}
		if g < len(globs) {
			if ok, err := path.Match(globs[g], parts[i]); err == nil && ok {
				g, i = g+1, i+1
				continue
			}
		}
		if star < 0 {
			return false
		}
		from++
		g, i = star+1, from
	}
	for g < len(globs) && globs[g] == "**" {
		g++
	}
	return g == len(globs)
}

// parent is the directory of a path, "" for one in the root.
func parent(p string) string {
	at := strings.LastIndexByte(p, '/')
	if at < 0 {
		return ""
	}
	return p[:at]
}

// candidate is a fact that belongs into a brief, if it fits.
type candidate struct {
	fact *BriefFact
	place
	words int // of the prompt in its name and text
	nth   int // for which time it is said that it is in doubt, or stands again; 0: that is not said
	line  LineDigest
}

// place is where a fact touches what the session does.
type place struct {
	path  string // the nearest of the fact's paths
	how   nearness
	exact bool // path is one of the session's own
}

// place finds the nearest of a fact's paths.
func (v *vicinity) place(f *BriefFact) (at place) {
	better := func(p string, how nearness, exact bool) {
		if how > at.how || how == at.how && exact && !at.exact {
			at = place{p, how, exact}
		}
	}
	for _, p := range f.Paths {
		how, exact := v.near(p)
		better(p, how, exact)
	}
	for _, g := range f.Globs {
		how, exact := v.nearGlob(g)
		better(g, how, exact)
	}
	return at
}

// byRank orders facts about paths: a stale one below a fresh one; then what was touched this turn, this session, named; then the
// prompt's words; then the file itself before its directory, pinned ones, and the newest.
func byRank(a, b *candidate) int {
	switch {
	case a.fact.Stale != b.fact.Stale:
		return compareBool(a.fact.Stale, b.fact.Stale)
	case a.how != b.how:
		return cmp.Compare(b.how, a.how)
	case a.words != b.words:
		return cmp.Compare(b.words, a.words)
	case a.exact != b.exact:
		return compareBool(b.exact, a.exact)
	}
	return byPinAndAge(a, b)
}

// byPinAndAge orders facts without a path: pinned ones first, then the newest.
func byPinAndAge(a, b *candidate) int {
	return cmp.Or(
		compareBool(b.fact.Pinned, a.fact.Pinned),
		b.fact.At.Compare(a.fact.At),
		strings.Compare(a.fact.ID, b.fact.ID),
	)
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
