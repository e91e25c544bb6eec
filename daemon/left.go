package daemon

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/gitlog"
)

// leftAgain is how often git is asked about a file that is left though nothing that would show a change has moved.
const leftAgain = gitlog.Millis(10 * 60 * 1000)

// leftWatch finds out which files sessions left with uncommitted changes when their claims ended, and when these are clean
// again. git says so, off the hooks' time.
type leftWatch struct {
	d    *daemon
	wake chan struct{} // claims ended

	mu    sync.Mutex
	ended map[leftPlace][]string                         // guarded by mu: paths whose claims ended, not looked at yet
	files map[*arbitration]map[arbiter.ClaimID]*leftFile // guarded by mu
	read  map[*arbitration]bool                          // guarded by mu: what was left before this daemon began is in files
}

// leftPlace is a session in a worktree.
type leftPlace struct {
	arbitration *arbitration
	by          party
}

// leftFile is a file that a session left, by the claim that says so.
type leftFile struct {
	by     party
	path   string
	since  gitlog.Millis
	looked leftLook
}

// leftLook is what would show that a file may have been committed or put back since git was asked.
type leftLook struct {
	file, index stamp
	commit      string
	at          gitlog.Millis
}

func newLeftWatch(d *daemon) *leftWatch {
	return &leftWatch{d: d, wake: make(chan struct{}, 1), ended: map[leftPlace][]string{},
		files: map[*arbitration]map[arbiter.ClaimID]*leftFile{}, read: map[*arbitration]bool{}}
}

// observe takes note of claims that ended; see arbitrations.observe.
func (w *leftWatch) observe(a *arbitration, happened []occurrence) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range happened {
		o := &happened[i]
		by := party{Key: o.Key, Root: o.Root, Branch: o.OnBranch}
		switch o.Kind {
		case gitlog.ClaimReleased:
			delete(w.files[a], o.Claim)
			if o.Person || o.Root == "" || o.Path == "" {
				continue
			}
			switch o.Reason {
			case arbiter.Stopped, arbiter.EndOfLife, arbiter.ProcessGone, arbiter.Expired:
				place := leftPlace{a, by}
				w.ended[place] = append(w.ended[place], o.Path)
			}
		case gitlog.ClaimLeft:
			w.known(a)[o.Claim] = &leftFile{by: by, path: o.Path, since: o.Time}
		case gitlog.FileWritten, gitlog.PathRemoved:
			for id, f := range w.files[a] {
				if f.by.Key == o.Key && f.by.Root == o.Root && f.path == o.Path {
					delete(w.files[a], id)
				}
			}
		}
	}
	if len(w.ended) > 0 {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// known returns what is left in a repository. mu is held.
func (w *leftWatch) known(a *arbitration) map[arbiter.ClaimID]*leftFile {
	if w.files[a] == nil {
		w.files[a] = map[arbiter.ClaimID]*leftFile{}
	}
	return w.files[a]
}

// run looks whenever claims ended, and from time to time at what is left, until the daemon ends.
func (w *leftWatch) run() {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for {
		select {
		case <-w.wake:
			w.d.guard("left", func() { w.lookAtEnded(w.d.work) })
		case <-ticker.C:
			w.d.guard("left", func() { w.tick(w.d.work) })
		case <-w.d.ended:
			return
		}
	}
}

// lookAtEnded finds out which of the files whose claims ended have uncommitted changes. A file that its session holds again is
// not left.
func (w *leftWatch) lookAtEnded(ctx context.Context) {
	w.mu.Lock()
	ended := w.ended
	w.ended = map[leftPlace][]string{}
	w.mu.Unlock()
	for place, paths := range ended {
		wt, err := w.d.clones.find(ctx, place.by.Root)
		if err != nil {
			continue // the worktree is gone, and its files with it
		}
		slices.Sort(paths)
		// A claim is taken before the write; who was refused elsewhere, or changed its mind, left nothing.
		paths = slices.DeleteFunc(slices.Compact(paths), func(path string) bool { return !w.d.state.wrote(place.by.Key, wt.root, path) })
		if len(paths) == 0 {
			continue
		}
		dirty, err := wt.tree.Uncommitted(ctx, paths)
		if err != nil {
			w.d.log.Warn("it is not known what a session left uncommitted", "root", wt.root, "error", err)
			continue
		}
		a := place.arbitration
		a.look(func(v *arbiter.View, now gitlog.Millis) {
			who := a.who(place.by)
			dirty = slices.DeleteFunc(dirty, func(path string) bool {
				_, holds := v.Holding(who, a.want(path, false), now)
				return holds
			})
		})
		if len(dirty) > 0 {
			a.left(place.by, dirty)
		}
	}
}

// tick finds out which of the files that are left are clean again. A repository in which nothing is left costs nothing, a
// file that nobody touched three stats.
func (w *leftWatch) tick(ctx context.Context) {
	for _, a := range w.d.arbitrations.all() {
		w.remember(a)
	}
	now := w.d.now()
	for place, ids := range w.due(now) {
		if _, err := os.Lstat(place.by.Root); errors.Is(err, fs.ErrNotExist) {
			place.arbitration.clean(place.by, ids...)
			continue
		}
		wt := w.d.clones.opened(place.by.Root)
		if wt == nil {
			continue // nobody works there: it is looked at once somebody does
		}
		w.lookAgain(ctx, wt, place, ids, now)
	}
}

// remember takes over what was left before this daemon began.
func (w *leftWatch) remember(a *arbitration) {
	w.mu.Lock()
	known := w.read[a]
	w.mu.Unlock()
	if known {
		return
	}
	a.look(func(v *arbiter.View, now gitlog.Millis) {
		left := v.Snapshot().Left
		w.mu.Lock()
		defer w.mu.Unlock()
		files := w.known(a)
		w.read[a] = true
		for _, l := range left {
			by := party{Key: a.sessionOf(l.Session), Root: a.names.name(worktreeType, l.Worktree), Branch: a.branchOf(l.Branch)}
			if path := a.pathOf(l.Path); path != "" && by.Root != "" && files[l.Claim] == nil {
				files[l.Claim] = &leftFile{by: by, path: path, since: l.Time}
			}
		}
	})
}

// due returns the claims of what is left, by place, and forgets what the arbiter has forgotten.
func (w *leftWatch) due(now gitlog.Millis) map[leftPlace][]arbiter.ClaimID {
	open := w.d.arbitrations.all()
	w.mu.Lock()
	defer w.mu.Unlock()
	due := map[leftPlace][]arbiter.ClaimID{}
	maps.DeleteFunc(w.files, func(a *arbitration, _ map[arbiter.ClaimID]*leftFile) bool { return !slices.Contains(open, a) })
	maps.DeleteFunc(w.read, func(a *arbitration, _ bool) bool { return !slices.Contains(open, a) })
	for a, files := range w.files {
		for id, f := range files {
			if f.since+arbiter.StaleAfter < now {
				delete(files, id)
				continue
			}
			place := leftPlace{a, f.by}
			due[place] = append(due[place], id)
		}
	}
	return due
}

func (w *leftWatch) lookAgain(ctx context.Context, wt *worktree, place leftPlace, ids []arbiter.ClaimID, now gitlog.Millis) {
	_, commit, err := wt.tree.Head(ctx)
	if err != nil {
		return
	}
	index := stampOfFile(wt.repo.GitDir + "/index")
	left := map[arbiter.ClaimID]leftFile{}
	w.mu.Lock()
	for _, id := range ids {
		if f := w.files[place.arbitration][id]; f != nil {
			left[id] = *f
		}
	}
	w.mu.Unlock()
	asked := map[string][]arbiter.ClaimID{}
	looks := map[arbiter.ClaimID]leftLook{}
	var paths []string
	for id, f := range left {
		look := leftLook{file: stampOf(wt.root, f.path), index: index, commit: commit, at: f.looked.at}
		if look == f.looked && now-f.looked.at < leftAgain {
			continue
		}
		look.at = now
		looks[id] = look
		paths = append(paths, f.path)
		asked[f.path] = append(asked[f.path], id)
	}
	if len(paths) == 0 {
		return
	}
	slices.Sort(paths)
	paths = slices.Compact(paths)
	dirty, err := wt.tree.Uncommitted(ctx, paths)
	if err != nil {
		return // asked again at the next tick
	}
	var clean []arbiter.ClaimID
	for _, path := range paths {
		if !slices.Contains(dirty, path) {
			clean = append(clean, asked[path]...)
		}
	}
	w.mu.Lock()
	for id, look := range looks {
		if f := w.files[place.arbitration][id]; f != nil {
			f.looked = look
		}
	}
	w.mu.Unlock()
	if len(clean) > 0 {
		place.arbitration.clean(place.by, clean...)
		w.mu.Lock()
		for _, id := range clean {
			delete(w.files[place.arbitration], id)
		}
		w.mu.Unlock()
	}
}
