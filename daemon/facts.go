package daemon

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"knoot.dev/knoot/gitlog"
)

const (
	// judgeTime is how long a hook waits for verdicts that are not made yet. A fact without one is told without.
	judgeTime = 150 * time.Millisecond
	// glanceTime is how long it then waits for the ids of the files of those.
	glanceTime = 30 * time.Millisecond
	// viewAge is how long a view is used though nothing changed: facts run out with time.
	viewAge = gitlog.Millis(60_000)
)

// factView is what the facts of a clone are in one worktree: those that count now, as a brief takes them, with an index
// by path and what is known of their staleness.
type factView struct {
	wt *worktree

	mu       sync.Mutex
	version  uint64        // guarded by mu: of the memory that it was made from
	built    gitlog.Millis // guarded by mu: 0 not yet
	items    []*gitlog.Item
	facts    []BriefFact
	planned  map[string]*gitlog.Plan // by session
	byID     map[string]int
	index    pathIndex
	verdicts map[gitlog.EntryID]gitlog.Verdict // guarded by mu: the last ones, not necessarily those of now
	head     stamp                             // guarded by mu: of HEAD when facts were last judged
}

func newFactView(wt *worktree) *factView {
	return &factView{wt: wt, verdicts: map[gitlog.EntryID]gitlog.Verdict{}}
}

// fresh makes the view anew if the memory changed. mu is held.
func (v *factView) fresh(now gitlog.Millis) {
	memory := v.wt.clone.clone.Memory()
	version := memory.Version()
	if v.built != 0 && version == v.version && now-v.built < viewAge {
		return
	}
	v.version, v.built = version, now
	v.items, v.planned = v.items[:0:0], map[string]*gitlog.Plan{}
	for _, item := range memory.Current(now) {
		switch {
		case item.Fact != nil:
			v.items = append(v.items, item)
		case item.Plan != nil && v.planned[item.Plan.Session] == nil:
			v.planned[item.Plan.Session] = item.Plan
		}
	}
	v.facts = make([]BriefFact, len(v.items))
	v.byID = make(map[string]int, len(v.items))
	v.index = newPathIndex()
	kept := make(map[gitlog.EntryID]gitlog.Verdict, len(v.items))
	for i, item := range v.items {
		v.facts[i] = v.factOf(item)
		v.byID[v.facts[i].ID] = i
		for _, p := range v.facts[i].Paths {
			v.index.add(p, i)
		}
		for range v.facts[i].Globs {
			v.index.globs = append(v.index.globs, i)
		}
		if verdict, ok := v.verdicts[item.ID()]; ok {
			kept[item.ID()] = verdict
			v.mark(i, verdict)
		}
	}
	v.verdicts = kept
}

// factOf is an item as a brief takes it, not judged yet.
func (v *factView) factOf(item *gitlog.Item) BriefFact {
	c := v.wt.clone.clone
	said := item.Stored
	if item.Origin != nil {
		said = item.Origin // whoever confirmed it did not write it
	}
	f := BriefFact{ID: item.ID().String(), Name: item.Fact.Name, Text: item.Fact.Text, Cache: item.Kind == gitlog.KindCache,
		Author: c.MemberName(said.Author), Agent: said.Fact.By != gitlog.ByPerson, At: item.Since.Time(), Room: item.Room.String(), Pinned: item.Fact.Pinned,
		Former: c.Former(said.Author)}
	for _, p := range item.Fact.Paths {
		if p.Glob {
			f.Globs = append(f.Globs, p.Path)
		} else {
			f.Paths = append(f.Paths, p.Path)
		}
	}
	for _, other := range item.Disagrees {
		if other.Fact != nil {
			f.Disagrees = append(f.Disagrees, BriefAuthor{Name: c.MemberName(other.Author), Agent: other.Fact.By != gitlog.ByPerson})
		}
	}
	return f
}

// mark puts a verdict into the fact at i. mu is held.
func (v *factView) mark(i int, verdict gitlog.Verdict) {
	f := &v.facts[i]
	f.Stale, f.Reason = verdict.Stale, verdict.Reason
	if len(f.Globs) == 0 && len(verdict.Paths) > 0 && !slices.Equal(verdict.Paths, f.Paths) {
		// A rename carries the fact along; its old path still leads to it.
		for _, p := range verdict.Paths {
			if !slices.Contains(f.Paths, p) {
				v.index.add(p, i)
			}
		}
		f.Paths = slices.Clone(verdict.Paths)
	}
}

// all returns the facts that count now. The caller may change the slice, not what its elements point to.
func (v *factView) all(now gitlog.Millis) []BriefFact {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.fresh(now)
	return slices.Clone(v.facts)
}

// plans returns the plans that count now, by session. The caller must not change it.
func (v *factView) plans(now gitlog.Millis) map[string]*gitlog.Plan {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.fresh(now)
	return v.planned
}

// about returns the facts that are about one of these paths, or about what contains or is in one.
func (v *factView) about(paths []string, now gitlog.Millis) []BriefFact {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.fresh(now)
	found := map[int]bool{}
	for _, i := range v.index.globs {
		found[i] = true // there are few, and whether one matches is the brief's to say
	}
	for _, p := range paths {
		v.index.find(p, found)
	}
	out := make([]BriefFact, 0, len(found))
	for i := range found {
		out = append(out, v.facts[i])
	}
	return out
}

// judge brings the verdicts of these facts up to date, as far as ctx allows, and reports whether any of them changed.
// facts are changed in place.
func (v *factView) judge(ctx context.Context, facts []BriefFact, ids map[string]bool, now gitlog.Millis) (changed bool) {
	var glancing context.Context // once ctx has ended
	for n := range facts {
		f := &facts[n]
		if !ids[f.ID] {
			continue
		}
		v.mu.Lock()
		i, ok := v.byID[f.ID]
		var item *gitlog.Item
		if ok {
			item = v.items[i]
		}
		v.mu.Unlock()
		if item == nil {
			continue
		}
		verdict, ok := v.wt.tree.Judged(item, now)
		if !ok {
			var err error
			if verdict, err = v.wt.tree.Judge(ctx, v.wt.clone.clone, item, now); err != nil {
				if glancing == nil {
					var cancel context.CancelFunc
					glancing, cancel = context.WithTimeout(context.WithoutCancel(ctx), glanceTime)
					defer cancel()
				}
				v.missed()
				if verdict, ok = v.glance(glancing, item); !ok {
					continue
				}
			}
		}
		v.mu.Lock()
		v.verdicts[item.ID()] = verdict
		if i, ok := v.byID[f.ID]; ok {
			v.mark(i, verdict)
			marked := v.facts[i]
			if marked.Stale != f.Stale || marked.Reason != f.Reason || !slices.Equal(marked.Paths, f.Paths) {
				changed = true
				*f = marked
			}
		}
		v.mu.Unlock()
	}
	return changed
}

// changedSince follows the path of a file of which nothing more could be told in time.
const changedSince = " changed since"

// glance says of a fact that could not be judged in time at least that one of its files is not what it was, when that can
// be told at once. Who changed it, and how much, is told when it was judged.
func (v *factView) glance(ctx context.Context, item *gitlog.Item) (gitlog.Verdict, bool) {
	for _, p := range item.Fact.Paths {
		if p.Blob == nil || p.Lines != nil {
			continue
		}
		if blob, err := v.wt.tree.Blob(ctx, p.Path); err == nil && blob != nil && !bytes.Equal(blob, p.Blob) {
			return gitlog.Verdict{Stale: true, Reason: p.Path + changedSince}, true
		}
	}
	return gitlog.Verdict{}, false
}

// old reports whether verdicts may be missing: the memory, or what is checked out, changed since facts were judged.
func (v *factView) old() bool {
	head := stampOfFile(v.wt.repo.GitDir + "/HEAD")
	index := stampOfFile(v.wt.repo.GitDir + "/index")
	head.Mtime += index.Mtime
	head.Size += index.Size
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.built != 0 && head == v.head && v.version == v.wt.clone.clone.Memory().Version() {
		return false
	}
	v.head = head
	return true
}

// missed makes old true: there is a verdict to be made.
func (v *factView) missed() {
	v.mu.Lock()
	v.head = stamp{}
	v.mu.Unlock()
}

// warm judges all facts with paths that have no verdict.
func (v *factView) warm(ctx context.Context) {
	now := v.wt.clone.d.now()
	all := v.all(now)
	var paths []string
	for i := range all {
		paths = append(paths, all[i].Paths...)
	}
	// One git process for all files that changed, instead of one each; what it cannot read the verdicts see to.
	_, _ = v.wt.tree.Blobs(ctx, paths)
	for i := range all {
		if ctx.Err() != nil {
			return
		}
		if len(all[i].Paths)+len(all[i].Globs) > 0 {
			v.judge(ctx, all[i:i+1], map[string]bool{all[i].ID: true}, now)
		}
	}
}

// pathIndex finds facts by path: those about the path itself, about a directory that it is in, or about something in it.
type pathIndex struct {
	exact  map[string][]int
	sorted []string // the keys of exact; nil: to be made
	globs  []int
}

func newPathIndex() pathIndex { return pathIndex{exact: map[string][]int{}} }

func (x *pathIndex) add(path string, i int) {
	path = strings.ToLower(path) // whether case counts is the brief's to say
	if slices.Contains(x.exact[path], i) {
		return
	}
	if len(x.exact[path]) == 0 {
		x.sorted = nil
	}
	x.exact[path] = append(x.exact[path], i)
}

func (x *pathIndex) find(path string, found map[int]bool) {
	path = strings.ToLower(path)
	take := func(p string) {
		for _, i := range x.exact[p] {
			found[i] = true
		}
	}
	take(path)
	for p := path; p != ""; {
		cut := strings.LastIndexByte(p, '/')
		if cut < 0 {
			cut = 0
		}
		p = p[:cut]
		take(p) // the root last, whose path is empty
	}
	if x.sorted == nil {
		x.sorted = make([]string, 0, len(x.exact))
		for p := range x.exact {
			x.sorted = append(x.sorted, p)
		}
		slices.Sort(x.sorted)
	}
	below := path + "/"
	if path == "" {
		below = ""
	}
	from, _ := slices.BinarySearch(x.sorted, below)
	for _, p := range x.sorted[from:] {
		if !strings.HasPrefix(p, below) {
			break
		}
		take(p)
	}
}
