package arbiter

import (
	"container/list"
	"slices"

	"knoot.dev/knoot/gitlog"
)

// Wait is a session's wait for a path that it was denied.
type Wait struct {
	Who
	Path  Path
	Class Class         // Hub: in the queue, else told once the path is free
	Since gitlog.Millis // of its first denial
	Place int           // in the queue, from 1; 0 for other waits
}

// wait is a Wait with its state. One is in line in queue, or queue is nil. Whoever could go on if nothing held the path
// (not one in the middle of a queue) is either blocked by one thing, or in View.free, or the head of an open queue.
type wait struct {
	Wait
	order   Order // of the denial
	passed  bool  // it let a turn pass
	queue   *queue
	blocked *claim        // one claim that denies it
	behind  *queue        // one queue that denies it: the path is reserved for another
	place   *list.Element // in View.waits
	holder  *session
}

// queue is a hub's line on one branch.
type queue struct {
	key   queueKey
	waits []*wait
	until gitlog.Millis // when the head's turn ends; zero: the path is held, or PathFreed has not come yet
	after []*wait       // who is not in line and waits until there is none
}

type queueKey struct{ path, branch Token }

// Queue is what is to know about a path on a branch.
type Queue struct {
	Hub   bool
	Lease gitlog.Millis // of a claim taken now: Lease or HubLease
	Waits []Wait        // in line, the head first
	Turn  Token         // whose turn it is: the head's session while nobody holds the path, else zero
	Until gitlog.Millis // when that turn ends; zero: not opened yet by PathFreed
}

// line returns the queue of a path on a branch, nil for none.
func (v *View) line(who *Who, p *Path) *queue {
	if q := v.queues[queueKey{p.Own, who.Branch}]; q != nil || p.Was == nil && who.WasBranch == (Token{}) {
		return q
	}
	was, branch := p.Own, who.Branch
	if before := p.both()[1]; before != nil {
		was = before.Own
	}
	if who.WasBranch != (Token{}) {
		branch = who.WasBranch
	}
	return v.queues[queueKey{was, branch}]
}

// reserved returns the queue that denies p to an agent who is not its head, nil for none. A tree is denied by any below.
func (v *View) reserved(who *Who, p *Path, tree bool, now gitlog.Millis) *queue {
	if who.Person || len(v.queues) == 0 {
		return nil
	}
	if q := v.line(who, p); q != nil && q.waits[0].Session != who.Session {
		return q
	}
	if !tree {
		return nil
	}
	var first *queue
	for _, q := range v.queues {
		head := q.waits[0]
		below := slices.ContainsFunc(p.own(), func(t Token) bool { return slices.Contains(head.Path.ancestors(), t) })
		if below && head.Session != who.Session && head.meets(who) && (first == nil || head.order.Compare(first.waits[0].order) < 0) {
			first = q
		}
	}
	return first
}

// hub says whether p is a hub on who's branch: listed, with a queue, or written under claims by enough sessions; with
// writes under way, as if who had just written it.
func (v *View) hub(who *Who, w *Want, now gitlog.Millis, writes bool) bool {
	if w.Hub || v.line(who, &w.Path) != nil {
		return true
	}
	sessions := make([]Token, 0, HubSessions)
	if writes {
		sessions = append(sessions, who.Session)
	}
	for _, t := range w.Path.own() {
		n := v.nodes[t]
		if n == nil {
			continue
		}
		for _, x := range n.writes {
			if x.gated != 0 && after(x.gated, HubWindow) > now &&
				shares(x.Branch, x.WasBranch, who.Branch, who.WasBranch) && !slices.Contains(sessions, x.Session) {
				if sessions = append(sessions, x.Session); len(sessions) == HubSessions {
					return true
				}
			}
		}
	}
	return len(sessions) >= HubSessions
}

// class returns what a claim on w taken now would be, and when it would end.
func (v *View) class(who *Who, w *Want, now gitlog.Millis, writes bool) (Class, gitlog.Millis) {
	switch {
	case w.Class == Tree:
		return Tree, after(now, Lease)
	case v.hub(who, w, now, writes):
		return Hub, after(now, HubLease)
	}
	return File, after(now, Lease)
}

// waiting returns a session's wait for a path where it stands, nil for none.
func (v *View) waiting(who *Who, p *Path, tree bool) *wait {
	for _, t := range p.own() {
		if n := v.nodes[t]; n != nil {
			for _, w := range n.waits {
				if w.Session == who.Session && (w.Class == Tree) == tree && equal(w.Worktree, w.WasWorktree, who.Worktree, who.WasWorktree) {
					return w
				}
			}
		}
	}
	return nil
}

// await takes a denial in. Whoever waits already keeps their place; a wait for what has become a hub enters its queue.
func (v *View) await(w *wait) {
	if there := v.waiting(&w.Who, &w.Path, w.Class == Tree); there != nil && w.Class == Hub && there.Class != Hub {
		v.dismiss(there)
	}
	if !v.admit(w) {
		return
	}
	if w.Class == Hub {
		q := v.line(&w.Who, &w.Path)
		if q == nil {
			q = &queue{key: queueKey{w.Path.Own, w.Branch}}
		}
		v.enter(q, w)
	}
	v.judge(w)
}

// admit puts a wait into the indexes; false where it is not possible, or there already.
func (v *View) admit(w *wait) bool {
	w.holder = v.sessions[w.Session]
	if w.holder == nil || w.Path.Own == (Token{}) || w.Class < File || w.Class > Hub || v.waiting(&w.Who, &w.Path, w.Class == Tree) != nil {
		return false
	}
	w.holder.waits = append(w.holder.waits, w)
	w.place = v.waits.PushBack(w)
	n := v.node(w.Path.Own)
	n.waits = append(n.waits, w)
	return true
}

// enter puts a wait at the end of a line.
func (v *View) enter(q *queue, w *wait) {
	v.queues[q.key] = q
	q.waits = append(q.waits, w)
	w.queue = q
}

// without takes one element out of a list that holds it, in place.
func without[T comparable](list []T, x T) []T {
	i := slices.Index(list, x)
	return slices.Delete(list, i, i+1)
}

// dismiss ends a wait.
func (v *View) dismiss(w *wait) {
	v.release(w)
	n := v.nodes[w.Path.Own]
	n.waits = without(n.waits, w)
	v.tidy(w.Path.Own)
	w.holder.waits = without(w.holder.waits, w)
	v.waits.Remove(w.place)
	v.unqueue(w)
}

// unqueue takes a wait out of its line. The next one's turn is opened by a PathFreed of its own.
func (v *View) unqueue(w *wait) {
	q := w.queue
	if q == nil {
		return
	}
	w.queue = nil
	head := q.waits[0] == w
	q.waits = without(q.waits, w)
	if head {
		v.close(q)
	}
	if len(q.waits) == 0 {
		delete(v.queues, q.key)
	} else if head {
		v.judge(q.waits[0])
	}
	v.judgeAfter(q)
}

// judgeAfter looks again at who is not in line and was denied by the line.
func (v *View) judgeAfter(q *queue) {
	waits := q.after
	q.after = nil
	for _, w := range waits {
		w.behind = nil
		v.judge(w)
	}
}

// close ends the turn of the head.
func (v *View) close(q *queue) {
	q.until = 0
	delete(v.open, q)
}

// release takes a wait from where judge put it.
func (v *View) release(w *wait) {
	if c := w.blocked; c != nil {
		c.waits = without(c.waits, w)
		w.blocked = nil
	}
	if q := w.behind; q != nil {
		q.after = without(q.after, w)
		w.behind = nil
	}
	delete(v.free, w)
}

// judge finds out what denies a wait now, and puts it where it is looked at again when that changes.
func (v *View) judge(w *wait) {
	v.release(w)
	if w.queue != nil && w.queue.waits[0] != w {
		return
	}
	if c := v.blocker(&w.Who, &w.Path, w.Class == Tree, v.time); c != nil {
		w.blocked = c
		c.waits = append(c.waits, w)
		if w.queue != nil {
			v.close(w.queue)
		}
		return
	}
	if w.queue != nil {
		if w.queue.until == 0 {
			v.free[w] = struct{}{}
		}
		return
	}
	if q := v.reserved(&w.Who, &w.Path, w.Class == Tree, v.time); q != nil {
		w.behind = q
		q.after = append(q.after, w)
		return
	}
	v.free[w] = struct{}{}
}

// judgeFree looks again at all that nothing denied: something new may.
func (v *View) judgeFree() {
	if len(v.free)+len(v.open) == 0 {
		return
	}
	var waits []*wait
	for w := range v.free {
		waits = append(waits, w)
	}
	for q := range v.open {
		waits = append(waits, q.waits[0])
	}
	for _, w := range waits {
		v.judge(w)
	}
}

// offer opens the turn of the head.
func (v *View) offer(q *queue, until gitlog.Millis) {
	if until = min(until, after(v.time, TurnTime)); until == 0 {
		return
	}
	q.until = until
	v.open[q] = struct{}{}
	v.judge(q.waits[0])
}

// pass ends the turn of the head, which goes behind the next one, and the second time leaves.
func (v *View) pass(q *queue, until gitlog.Millis) {
	head := q.waits[0]
	if head.passed {
		v.dismiss(head)
	} else {
		head.passed = true
		v.close(q)
		if len(q.waits) > 1 {
			q.waits[0], q.waits[1] = q.waits[1], q.waits[0]
			v.judge(head)
		}
		v.judgeAfter(q)
	}
	if len(q.waits) > 0 {
		v.offer(q, until)
	}
}

// next returns whose turn it is once the head let it pass; zero: nobody's.
func (q *queue) next() Token {
	switch {
	case len(q.waits) > 1:
		return q.waits[1].Session
	case !q.waits[0].passed:
		return q.waits[0].Session
	}
	return Token{}
}

// show returns a wait as it is told, with its place in line.
func (w *wait) show() Wait {
	shown := w.Wait
	if w.queue != nil {
		shown.Place = 1 + slices.Index(w.queue.waits, w)
	}
	return shown
}

func (w *wait) lives(now gitlog.Millis) bool { return after(w.Since, StaleAfter) > now }

func shown(waits []*wait, now gitlog.Millis) []Wait {
	waits = slices.Clone(waits)
	slices.SortFunc(waits, func(a, b *wait) int { return a.order.Compare(b.order) })
	var found []Wait
	for _, w := range waits {
		if w.lives(now) {
			found = append(found, w.show())
		}
	}
	return found
}

// Queue says whether the path is a hub on who's branch, how long a lease is there, who waits in line, and whose turn
// it is.
func (v *View) Queue(who Who, w Want, now gitlog.Millis) Queue {
	now = max(now, v.time)
	found := Queue{Lease: Lease}
	if w.Class == Tree {
		return found
	}
	if found.Hub = v.hub(&who, &w, now, false); found.Hub {
		found.Lease = HubLease
	}
	q := v.line(&who, &w.Path)
	if q == nil {
		return found
	}
	for _, w := range q.waits {
		found.Waits = append(found.Waits, w.show())
	}
	if head := q.waits[0]; v.blocker(&head.Who, &head.Path, false, now) == nil {
		found.Turn, found.Until = head.Session, q.until
	}
	return found
}

// Waiting returns who waits for the path, in line or not, first come first.
func (v *View) Waiting(p Path, now gitlog.Millis) []Wait {
	var waits []*wait
	for _, t := range p.own() {
		if n := v.nodes[t]; n != nil {
			waits = append(waits, n.waits...)
		}
	}
	return shown(waits, max(now, v.time))
}

// Waits returns what a session waits for, first come first.
func (v *View) Waits(session Token, now gitlog.Millis) []Wait {
	if s := v.sessions[session]; s != nil {
		return shown(s.waits, max(now, v.time))
	}
	return nil
}
