package daemon

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/gitlog"
)

// maxOverlaps bounds what is remembered of files that two branches change.
const maxOverlaps = 1000

// overlapWatch finds out how the changes of two branches to one file go together: once both are at it, and again when one of
// them writes it. git merges them for that, off the hooks' time; a hook says what is known then.
type overlapWatch struct {
	d    *daemon
	wake chan struct{} // something is due

	mu    sync.Mutex
	begun []begunOverlap             // guarded by mu: of which it is not known yet whose they are
	due   map[overlapPlace]bool      // guarded by mu
	found map[overlapPlace]overlapAt // guarded by mu
}

// begunOverlap is a claim of a file that somebody else has claimed on another branch.
type begunOverlap struct {
	arbitration *arbitration
	root, path  string
	claim       arbiter.ClaimID // theirs
}

// overlapPlace is a file in a worktree and in another, on another branch.
type overlapPlace struct{ root, other, path string }

func (p overlapPlace) turned() overlapPlace { return overlapPlace{p.other, p.root, p.path} }

// overlapAt is what was found, as News.Text of NewsOverlap has it.
type overlapAt struct {
	text   string
	branch string // the other side's, full ref name
}

func newOverlapWatch(d *daemon) *overlapWatch {
	return &overlapWatch{d: d, wake: make(chan struct{}, 1), due: map[overlapPlace]bool{}, found: map[overlapPlace]overlapAt{}}
}

// observe takes note of files that two branches change; see arbitrations.observe.
func (w *overlapWatch) observe(a *arbitration, happened []occurrence) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range happened {
		o := &happened[i]
		switch o.Kind {
		case gitlog.CrossBranchOverlap:
			if len(w.begun) < maxOverlaps {
				w.begun = append(w.begun, begunOverlap{a, o.Root, o.Path, o.Claim})
			}
		case gitlog.FileWritten, gitlog.PathRemoved, gitlog.UngatedWrite:
			for place := range w.found {
				if place.path == o.Path && (place.root == o.Root || place.other == o.Root) {
					w.due[place] = true
				}
			}
		}
	}
	if len(w.begun)+len(w.due) > 0 {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// between says how the changes to a file in two worktrees go together as far as is known, as News.Text of NewsOverlap.
func (w *overlapWatch) between(root, other, path string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if found := w.found[overlapPlace{root, other, path}]; found.text != "" {
		return found.text
	}
	return OverlapUnknown
}

// run looks at what is due until the daemon ends.
func (w *overlapWatch) run() {
	for {
		select {
		case <-w.wake:
			w.d.guard("overlap", func() { w.look(w.d.work) })
		case <-w.d.ended:
			return
		}
	}
}

func (w *overlapWatch) look(ctx context.Context) {
	w.mu.Lock()
	begun := w.begun
	w.begun = nil
	w.mu.Unlock()
	for _, b := range begun {
		b.arbitration.look(func(v *arbiter.View, now gitlog.Millis) {
			theirs, live := v.Claim(b.claim, now)
			if !live {
				return
			}
			other, branch := b.arbitration.names.name(worktreeType, theirs.Worktree), b.arbitration.branchOf(theirs.Branch)
			own := overlapPlace{b.root, other, b.path}
			w.mu.Lock()
			defer w.mu.Unlock()
			if len(w.found) >= maxOverlaps {
				clear(w.found)
			}
			w.found[own], w.due[own] = overlapAt{branch: branch}, true
			if other != "" {
				w.found[own.turned()], w.due[own.turned()] = overlapAt{}, true
			}
		})
	}
	w.mu.Lock()
	due := slices.Collect(maps.Keys(w.due))
	clear(w.due)
	w.mu.Unlock()
	for _, place := range due {
		if ctx.Err() != nil {
			return
		}
		w.mu.Lock()
		found, known := w.found[place]
		w.mu.Unlock()
		if !known {
			continue
		}
		found.text = w.overlap(ctx, place, found.branch)
		w.mu.Lock()
		w.found[place] = found
		w.mu.Unlock()
	}
}

// overlap asks git. Where the other worktree is not on this machine it goes by their branch as it was fetched.
func (w *overlapWatch) overlap(ctx context.Context, place overlapPlace, branch string) string {
	wt, err := w.d.clones.find(ctx, place.root)
	if err != nil {
		return OverlapUnknown
	}
	var other *worktree
	if place.other != "" {
		other, _ = w.d.clones.find(ctx, place.other)
	}
	var o gitlog.Overlap
	if other != nil {
		o, err = wt.tree.Overlap(ctx, place.path, other.tree)
	} else {
		o, err = wt.tree.OverlapWithTip(ctx, place.path, branch)
	}
	switch {
	case err != nil:
		w.d.log.Warn("it is not known whether two branches' changes conflict", "root", place.root, "error", err)
		return OverlapUnknown
	case o.Outcome == gitlog.WouldMerge:
		return OverlapMerges
	case o.Outcome == gitlog.WouldConflict:
		return OverlapConflicts + lineWords(o.Lines)
	}
	return OverlapUnknown
}

// overlapLines is how many ranges of lines are named.
const overlapLines = 4

// lineWords names ranges of lines, " in lines 4-9 and 20"; "" where there are none.
func lineWords(ranges []gitlog.LineRange) string {
	var each []string
	for _, r := range ranges[:min(len(ranges), overlapLines)] {
		if r.First == r.Last {
			each = append(each, fmt.Sprint(r.First))
		} else {
			each = append(each, fmt.Sprintf("%d-%d", r.First, r.Last))
		}
	}
	switch {
	case len(each) == 0:
		return ""
	case len(ranges) > overlapLines:
		each = append(each, "more")
	}
	word := " in lines "
	if len(ranges) == 1 && ranges[0].First == ranges[0].Last {
		word = " in line "
	}
	last := len(each) - 1
	if last == 0 {
		return word + each[0]
	}
	return word + strings.Join(each[:last], ", ") + " and " + each[last]
}
