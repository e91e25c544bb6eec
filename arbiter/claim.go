package arbiter

import (
	"cmp"
	"container/heap"
	"slices"

	"knoot.dev/knoot/gitlog"
)

// Hold is a live claim, or the turn of a queue's head (then Claim is zero).
type Hold struct {
	Who             // the holder; Subagent is the one that took it
	Claim   ClaimID // zero: nobody holds it, it is reserved for the head of its queue
	Path    Path
	Class   Class
	Since   gitlog.Millis // when it was taken
	Until   gitlog.Millis // when it ends unless it is renewed; zero for a turn that PathFreed has not opened yet
	Written gitlog.Millis // the holder's last write under this claim, zero: none confirmed it yet
	Order   Order         // of the ClaimAcquired
	Detail  []byte        // of the ClaimAcquired
}

// claim is a Hold with its places in the indexes.
type claim struct {
	Hold
	holder *session
	own    []int // its place in the node of each of the path's own tokens
	under  []int // its place in the node of each ancestor's token
	ending int   // its place among View.ending
	listed int   // its place among the holder's claims
	waits  []*wait
}

// node is what is known about one token: as a path of its own, and as a directory above others.
type node struct {
	claims []spot // whose own token it is, mostly one, which then lies in first: a check comes by here
	first  [1]spot
	below  []spot // who list it as an ancestor
	waits  []*wait
	writes []*write
	left   []*left
}

// spot is a claim in a node. i says which of the claim's tokens put it there, so that it can be taken out at once.
type spot struct {
	*claim
	i int
}

func (n *node) empty() bool {
	return len(n.claims)+len(n.below)+len(n.waits)+len(n.writes)+len(n.left) == 0
}

func (v *View) node(t Token) *node {
	n := v.nodes[t]
	if n == nil {
		n = &node{}
		n.claims = n.first[:0]
		v.nodes[t] = n
	}
	return n
}

func (v *View) tidy(t Token) {
	if n := v.nodes[t]; n != nil && n.empty() {
		delete(v.nodes, t)
	}
}

// both is the path under the keys of now and, unless nil, those before.
func (p *Path) both() [2]*Path {
	if p.Was == nil || p.Was.Own == p.Own || p.Was.Own == (Token{}) {
		return [2]*Path{p}
	}
	return [2]*Path{p, p.Was}
}

// own and ancestors are a path's tokens under the keys of now, then under those before.
func (p *Path) own() []Token {
	if p.both()[1] == nil {
		return []Token{p.Own}
	}
	return []Token{p.Own, p.Was.Own}
}

func (p *Path) ancestors() []Token {
	if p.both()[1] == nil {
		return p.Ancestors
	}
	return slices.Concat(p.Ancestors, p.Was.Ancestors)
}

// shares says whether two things have a token in common, each under the keys of now and those before. An absent token
// is none.
func shares(a, wasA, b, wasB Token) bool {
	return a != Token{} && (a == b || a == wasB) || wasA != Token{} && (wasA == b || wasA == wasB)
}

// equal says so, too, where both are absent.
func equal(a, wasA, b, wasB Token) bool { return a == b || shares(a, wasA, b, wasB) }

// meets says whether one path is the same file for both: in one worktree it is the same on disk, on one branch the
// work will collide.
func (a *Who) meets(b *Who) bool {
	return shares(a.Worktree, a.WasWorktree, b.Worktree, b.WasWorktree) || shares(a.Branch, a.WasBranch, b.Branch, b.WasBranch)
}

// Meets says whether one path is the same file for both, so that work on it collides.
func (a Who) Meets(b Who) bool { return a.meets(&b) }

// stands says whether both are the same session at the same place.
func (a *Who) stands(b *Who) bool {
	return a.Session == b.Session && equal(a.Worktree, a.WasWorktree, b.Worktree, b.WasWorktree) &&
		equal(a.Branch, a.WasBranch, b.Branch, b.WasBranch)
}

// ownPerson says whether the claim is the presence of the session's own person, which never denies it.
func (c *claim) ownPerson(who *Who) bool {
	return c.Person && c.Owner == who.Owner && c.Owner != gitlog.MemberID{}
}

func (c *claim) blocks(who *Who) bool {
	return c.Session != who.Session && c.meets(who) && !c.ownPerson(who)
}

// related calls f with each claim whose path has to do with p: the same, a tree that covers it and, when p is a tree,
// all below. A claim can come twice while keys change.
func (v *View) related(p *Path, tree bool, f func(*claim)) {
	for _, p := range p.both() {
		if p == nil {
			break
		}
		if n := v.nodes[p.Own]; n != nil {
			for _, s := range n.claims {
				f(s.claim)
			}
			if tree {
				for _, s := range n.below {
					f(s.claim)
				}
			}
		}
		if v.trees > 0 {
			for _, a := range p.Ancestors {
				if n := v.nodes[a]; n != nil {
					for _, s := range n.claims {
						if s.Class == Tree {
							f(s.claim)
						}
					}
				}
			}
		}
	}
}

// blocker returns the oldest live claim that denies p, nil for none.
func (v *View) blocker(who *Who, p *Path, tree bool, now gitlog.Millis) *claim {
	var oldest *claim
	v.related(p, tree, func(c *claim) {
		if c.Until > now && c.blocks(who) && (oldest == nil || c.Order.Compare(oldest.Order) < 0) {
			oldest = c
		}
	})
	return oldest
}

// choose returns the live claims related to p that f wants, oldest first, each once.
func (v *View) choose(p *Path, tree bool, now gitlog.Millis, f func(*claim) bool) []*claim {
	var found []*claim
	v.related(p, tree, func(c *claim) {
		if c.Until > now && f(c) {
			found = append(found, c)
		}
	})
	slices.SortFunc(found, byAge)
	return slices.Compact(found)
}

func byAge(a, b *claim) int { return a.Order.Compare(b.Order) }

// holding returns the session's own live claim on exactly p.
func (v *View) holding(who *Who, p *Path, tree bool, now gitlog.Millis) *claim {
	for _, t := range p.own() {
		if n := v.nodes[t]; n != nil {
			for _, s := range n.claims {
				if s.Until > now && (s.Class == Tree) == tree && s.stands(who) {
					return s.claim
				}
			}
		}
	}
	return nil
}

// covering returns the session's own live claim that a write to p is made under: on p, else on a tree above.
func (v *View) covering(who *Who, p *Path, now gitlog.Millis) *claim {
	if c := v.holding(who, p, false, now); c != nil {
		return c
	}
	if own := v.choose(p, false, now, func(c *claim) bool { return c.Class == Tree && c.stands(who) }); len(own) > 0 {
		return own[0]
	}
	return nil
}

// elsewhere returns the claims of others that hold p on another branch in another worktree, oldest first.
func (v *View) elsewhere(who *Who, p *Path, tree bool, now gitlog.Millis) []*claim {
	return v.choose(p, tree, now, func(c *claim) bool {
		return c.Session != who.Session && !c.meets(who) && !c.ownPerson(who)
	})
}

// add takes in a claim that nothing blocks; false where it is malformed, over, or there.
func (v *View) add(h Hold) bool {
	c := &claim{Hold: h, holder: v.sessions[h.Session]}
	if c.holder == nil || h.Claim == (ClaimID{}) || h.Path.Own == (Token{}) || h.Class < File || h.Class > Hub || h.Until <= v.time || v.claims[h.Claim] != nil {
		return false
	}
	v.index(c)
	c.listed = len(c.holder.claims)
	c.holder.claims = append(c.holder.claims, c)
	v.claims[c.Claim] = c
	heap.Push(&v.ending, c)
	if c.Class == Tree {
		v.trees++
	}
	return true
}

// index puts a claim into the nodes of its tokens.
func (v *View) index(c *claim) {
	own, under := c.Path.own(), c.Path.ancestors()
	c.own, c.under = make([]int, len(own)), make([]int, len(under))
	for i, t := range own {
		n := v.node(t)
		c.own[i] = len(n.claims)
		n.claims = append(n.claims, spot{c, i})
	}
	for i, t := range under {
		n := v.node(t)
		c.under[i] = len(n.below)
		n.below = append(n.below, spot{c, i})
	}
}

// unindex takes a claim out of them.
func (v *View) unindex(c *claim) {
	for i, t := range c.Path.own() {
		n := v.nodes[t]
		last := len(n.claims) - 1
		moved := n.claims[last]
		n.claims[c.own[i]] = moved
		moved.own[moved.i] = c.own[i]
		n.claims[last] = spot{}
		n.claims = n.claims[:last]
		v.tidy(t)
	}
	for i, t := range c.Path.ancestors() {
		n := v.nodes[t]
		last := len(n.below) - 1
		moved := n.below[last]
		n.below[c.under[i]] = moved
		moved.under[moved.i] = c.under[i]
		n.below[last] = spot{}
		n.below = n.below[:last]
		v.tidy(t)
	}
}

// rekey puts a claim under the tokens that its holder has for the same path and place now.
func (v *View) rekey(c *claim, who *Who, p Path) {
	h := Hold{Who: *who, Path: p}
	h.Subagent, h.Device, h.Owner, h.Person = c.Subagent, c.Device, c.Owner, c.Person
	if p.Own == (Token{}) || !c.stands(who) || !c.same(&p) || v.blocker(&h.Who, &p, c.Class == Tree, v.time) != nil {
		return
	}
	v.unindex(c)
	c.Who, c.Path = h.Who, p
	v.index(c)
	v.judgeFree()
}

// same says whether p is the claim's own path.
func (c *claim) same(p *Path) bool {
	for _, t := range c.Path.own() {
		if slices.Contains(p.own(), t) {
			return true
		}
	}
	return false
}

// end takes a claim out and looks again at who waited for it.
func (v *View) end(c *claim) {
	v.unindex(c)
	held := c.holder.claims
	last := held[len(held)-1]
	held[c.listed], last.listed = last, c.listed
	held[len(held)-1] = nil
	c.holder.claims = held[:len(held)-1]
	delete(v.claims, c.Claim)
	heap.Remove(&v.ending, c.ending)
	if c.Class == Tree {
		v.trees--
	}
	v.forgetEnded(c.holder)
	waits := c.waits
	c.waits = nil
	for _, w := range waits {
		w.blocked = nil
		v.judge(w)
	}
}

// extend moves a claim's end.
func (v *View) extend(c *claim, until gitlog.Millis) {
	c.Until = until
	heap.Fix(&v.ending, c.ending)
}

// endings is a heap of claims by their end.
type endings []*claim

func (h endings) Len() int           { return len(h) }
func (h endings) Less(i, j int) bool { return h[i].Until < h[j].Until }
func (h endings) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].ending, h[j].ending = i, j
}

func (h *endings) Push(x any) {
	c := x.(*claim)
	c.ending = len(*h)
	*h = append(*h, c)
}

func (h *endings) Pop() any {
	last := len(*h) - 1
	c := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return c
}

// by returns the claims that end at or before now, in the order of their ends.
func (h endings) by(now gitlog.Millis) []*claim {
	var found []*claim
	var look func(i int)
	look = func(i int) {
		if i < len(h) && h[i].Until <= now {
			found = append(found, h[i])
			look(2*i + 1)
			look(2*i + 2)
		}
	}
	look(0)
	slices.SortFunc(found, func(a, b *claim) int { return cmp.Or(cmp.Compare(a.Until, b.Until), byAge(a, b)) })
	return found
}

// Blocks returns what denies the path to this session: the oldest claim of another session that conflicts (a person's
// presence never blocks that person's own sessions), else the turn of another at the head of the hub's queue, which
// denies agents alone.
func (v *View) Blocks(who Who, w Want, now gitlog.Millis) (Hold, bool) {
	now = max(now, v.time)
	if c := v.blocker(&who, &w.Path, w.Class == Tree, now); c != nil {
		return c.Hold, true
	}
	if q := v.reserved(&who, &w.Path, w.Class == Tree, now); q != nil {
		head := q.waits[0]
		return Hold{Who: head.Who, Path: head.Path, Class: Hub, Since: head.Since, Until: q.until}, true
	}
	return Hold{}, false
}

// Presence returns the claim of the session's own person on this path, the oldest: worth a note, no denial.
func (v *View) Presence(who Who, w Want, now gitlog.Millis) (Hold, bool) {
	found := v.choose(&w.Path, w.Class == Tree, max(now, v.time), func(c *claim) bool {
		return c.Session != who.Session && c.ownPerson(&who) && c.meets(&who)
	})
	if len(found) == 0 {
		return Hold{}, false
	}
	return found[0].Hold, true
}

// Elsewhere returns who holds the path on another branch in another worktree, oldest first.
func (v *View) Elsewhere(who Who, w Want, now gitlog.Millis) []Hold {
	return holds(v.elsewhere(&who, &w.Path, w.Class == Tree, max(now, v.time)))
}

// Holding returns the session's own claim on exactly this path in this place.
func (v *View) Holding(who Who, w Want, now gitlog.Millis) (Hold, bool) {
	if c := v.holding(&who, &w.Path, w.Class == Tree, max(now, v.time)); c != nil {
		return c.Hold, true
	}
	return Hold{}, false
}

// Claim returns a live claim.
func (v *View) Claim(id ClaimID, now gitlog.Millis) (Hold, bool) {
	if c := v.claims[id]; c != nil && c.Until > max(now, v.time) {
		return c.Hold, true
	}
	return Hold{}, false
}

// Claims returns the live claims of a session, or of all sessions for the zero token, oldest first.
func (v *View) Claims(session Token, now gitlog.Millis) []Hold {
	if session == (Token{}) {
		return holds(v.live(v.ending, now))
	}
	if s := v.sessions[session]; s != nil {
		return holds(v.live(s.claims, now))
	}
	return nil
}

// live returns the claims of a list that live at now, oldest first.
func (v *View) live(claims []*claim, now gitlog.Millis) []*claim {
	var found []*claim
	for _, c := range claims {
		if c.Until > max(now, v.time) {
			found = append(found, c)
		}
	}
	slices.SortFunc(found, byAge)
	return found
}

func holds(claims []*claim) []Hold {
	var found []Hold
	for _, c := range claims {
		found = append(found, c.Hold)
	}
	return found
}
