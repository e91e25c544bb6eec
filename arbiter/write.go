package arbiter

import (
	"container/list"
	"slices"

	"knoot.dev/knoot/gitlog"
)

// Written is the last write of one session to one path.
type Written struct {
	Who
	Path    Path
	Order   Order
	Time    gitlog.Millis
	Gated   bool // under a claim
	Removed bool // the path was deleted
	Detail  []byte
}

// write is a Written with what makes hubs.
type write struct {
	Written
	gated gitlog.Millis // its last write under a claim, zero: none
	place *list.Element // in View.writes
}

// Left is a file that a session left with uncommitted changes. It denies nobody.
type Left struct {
	Who
	Path   Path
	Claim  ClaimID // the claim that it was, by which Clean names it
	Time   gitlog.Millis
	Order  Order
	Detail []byte
}

type left struct {
	Left
	place *list.Element // in View.left
}

// record takes a write in, in place of the session's last one to this path in this place.
func (v *View) record(x Written, gated gitlog.Millis) {
	if x.Session == (Token{}) || x.Path.Own == (Token{}) {
		return
	}
	n := v.node(x.Path.Own)
	i := slices.IndexFunc(n.writes, func(y *write) bool {
		return y.Session == x.Session && y.Branch == x.Branch && y.Worktree == x.Worktree
	})
	if i < 0 {
		w := &write{Written: x, gated: gated}
		w.place = v.writes.PushBack(w)
		n.writes = append(n.writes, w)
		return
	}
	w := n.writes[i]
	w.Written, w.gated = x, max(w.gated, gated)
	v.writes.MoveToBack(w.place)
}

func (v *View) forgetWrite(w *write) {
	n := v.nodes[w.Path.Own]
	n.writes = without(n.writes, w)
	v.writes.Remove(w.place)
	v.tidy(w.Path.Own)
}

// abandon records what a session left, in place of what it left there before.
func (v *View) abandon(l Left) {
	if l.Session == (Token{}) || l.Claim == (ClaimID{}) || l.Path.Own == (Token{}) {
		return
	}
	if there := v.leftBy[l.Claim]; there != nil {
		if there.Session != l.Session {
			return
		}
		v.forgetLeft(there)
	}
	v.tookUp(&l.Who, &l.Path)
	x := &left{Left: l}
	x.place = v.left.PushBack(x)
	v.leftBy[l.Claim] = x
	n := v.node(l.Path.Own)
	n.left = append(n.left, x)
}

// tookUp forgets what a session left at p: it writes it again.
func (v *View) tookUp(who *Who, p *Path) {
	for _, t := range p.own() {
		n := v.nodes[t]
		if n == nil {
			continue
		}
		for _, x := range slices.Clone(n.left) {
			if x.Session == who.Session && equal(x.Worktree, x.WasWorktree, who.Worktree, who.WasWorktree) {
				v.forgetLeft(x)
			}
		}
	}
}

func (v *View) forgetLeft(x *left) {
	n := v.nodes[x.Path.Own]
	n.left = without(n.left, x)
	delete(v.leftBy, x.Claim)
	v.left.Remove(x.place)
	v.tidy(x.Path.Own)
}

// Writes returns what other sessions wrote after since, each session's last write to a path, oldest first: of the
// paths given, or of all when none is. Only the last WriteWindow is known.
func (v *View) Writes(session Token, since Order, now gitlog.Millis, paths ...Path) []Written {
	now = max(now, v.time)
	var found []Written
	take := func(w *write) {
		if w.Session != session && w.Order.Compare(since) > 0 && after(w.Time, WriteWindow) > now {
			found = append(found, w.Written)
		}
	}
	if len(paths) == 0 {
		for e := v.writes.Back(); e != nil && e.Value.(*write).Order.Compare(since) > 0; e = e.Prev() {
			take(e.Value.(*write))
		}
	}
	for i := range paths {
		for _, t := range paths[i].own() {
			if n := v.nodes[t]; n != nil {
				for _, w := range n.writes {
					take(w)
				}
			}
		}
	}
	slices.SortFunc(found, func(a, b Written) int { return a.Order.Compare(b.Order) })
	return slices.CompactFunc(found, func(a, b Written) bool { return a.Order == b.Order })
}

// Lefts returns what other sessions left uncommitted at this path on who's branch or in its worktree, oldest first.
func (v *View) Lefts(who Who, p Path, now gitlog.Millis) []Left {
	var found []Left
	for _, t := range p.own() {
		if n := v.nodes[t]; n != nil {
			for _, x := range n.left {
				if x.Session != who.Session && x.meets(&who) && after(x.Time, StaleAfter) > max(now, v.time) {
					found = append(found, x.Left)
				}
			}
		}
	}
	slices.SortFunc(found, func(a, b Left) int { return a.Order.Compare(b.Order) })
	return found
}
