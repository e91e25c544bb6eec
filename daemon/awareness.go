package daemon

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/gitlog"
)

// notice makes news of what happened in a repository, for the sessions that it concerns. The arbitration is locked.
func (d *daemon) notice(a *arbitration, happened []occurrence) {
	n := noticing{d: d, a: a}
	d.state.mu.Lock()
	for i := range happened {
		n.notice(&happened[i])
	}
	d.state.mu.Unlock()
	if len(n.found) > 0 {
		d.loops.Go(func() { d.guard("notice", func() { d.declareFound(a, n.found) }) })
	}
}

// noticing is one pass over what happened.
type noticing struct {
	d     *daemon
	a     *arbitration
	clone *gitlog.Clone // of the repository, for the names of its members; nil: not looked for yet
	found []found
}

// found is an event that this daemon found out, for the audit log of the session that it happened to.
type found struct {
	by    party
	kind  gitlog.EntryKind
	path  string
	other sessionKey
}

// declareFound has what was found sequenced.
func (d *daemon) declareFound(a *arbitration, all []found) {
	for _, f := range all {
		a.declare(f.by, f.kind, "", f.path, f.other)
	}
}

// notice makes news of one event. The arbitration and the state are locked.
func (n *noticing) notice(o *occurrence) {
	switch o.Kind {
	case gitlog.FileWritten, gitlog.PathRemoved:
		n.changed(o)
		n.collides(o)
	case gitlog.UngatedWrite:
		n.changed(o)
		// The writer hears of it where it meant to write: a person's save is told to the holder alone.
		n.tell(o.OtherKey, "", n.news(o, NewsUngated, o.Root, o.Key))
		crossed := n.news(o, NewsCrossed, o.Root, o.OtherKey)
		crossed.Text = n.doing(o.OtherKey)
		n.tell(o.Key, o.Subagent, crossed)
	case gitlog.ClaimDenied:
		free := n.news(o, NewsFreed, o.Root, o.OtherKey)
		if s := n.d.state.sessions[o.Key]; s != nil {
			free.Turn = s.context(o.Subagent).turn
		}
		n.tell(o.Key, o.Subagent, free)
	case gitlog.ClaimReleased:
		switch o.Reason {
		case arbiter.Taken:
			n.tell(o.Key, "", n.news(o, NewsTaken, o.Root, o.OtherKey))
		case arbiter.Moved:
			n.tell(o.Key, "", n.news(o, NewsMoved, o.Root, o.OtherKey))
			n.tell(o.OtherKey, "", n.news(o, NewsJoined, "", o.Key))
		}
	}
}

// news is news of an event, for whoever has its path in root.
func (n *noticing) news(o *occurrence, kind NewsKind, root string, by sessionKey) News {
	return News{Key: string(kind) + " " + strconv.FormatUint(o.Order.Term, 36) + "." + strconv.FormatUint(o.Order.Seq, 36), Kind: kind, At: o.Time,
		Root: root, Path: o.Path, By: n.peer(by), Unsure: o.Unsure, Denied: o.Denied}
}

// tell keeps news for a context, if that is known here: a person's presence is none.
func (n *noticing) tell(key sessionKey, subagent string, news News) {
	if s := n.d.state.sessions[key]; s != nil {
		n.d.state.commit(&stateRecord{At: news.At, Session: key, Subagent: subagent, Aside: true, News: []News{news}})
	}
}

// peer is who a session's agent, or a person, is for others.
func (n *noticing) peer(key sessionKey) Peer {
	if key == (sessionKey{}) {
		return Peer{}
	}
	if n.clone == nil {
		n.clone = n.d.clones.anyOf(n.a)
	}
	session, _ := n.a.sequencer.Session(n.a.sessionToken(key), n.a.sequencer.Time())
	return peerOf(n.clone, session, key)
}

// peerOf is who a session is for others. clone may be nil.
func peerOf(clone *gitlog.Clone, session arbiter.Session, key sessionKey) Peer {
	detail := decodeSessionDetail(session.Detail)
	return Peer{Member: nameAt(clone, detail.Owner), Agent: detail.Name, Person: session.Person || key.Agent == personAgent}
}

// nameAt is the name of the member with an address, in lower case; else what of the address names them.
func nameAt(clone *gitlog.Clone, address string) string {
	if clone != nil {
		if address == "" {
			return clone.MemberName(clone.Device().ID)
		}
		if roster := clone.Roster(); roster != nil {
			for _, m := range roster.Members {
				if strings.ToLower(m.Address) == address && m.Name != "" {
					return m.Name
				}
			}
		}
	}
	name, _, _ := strings.Cut(address, "@")
	return name
}

// doing is what a session says that it does; "": nothing that it shares.
func (n *noticing) doing(key sessionKey) string {
	s := n.d.state.sessions[key]
	if s == nil || s.private {
		return ""
	}
	return s.intent
}

// changed tells those who have read, or written, a file that another session changed. Who is at work on another branch has
// another file.
func (n *noticing) changed(o *occurrence) {
	kind := NewsChanged
	if o.Kind == gitlog.PathRemoved {
		kind = NewsRemoved
		// What was removed and made again, or moved back, is there.
		if there(o.Root, o.Path) {
			return
		}
	}
	for key, s := range n.d.state.sessions {
		if key == o.Key || o.Kind == gitlog.UngatedWrite && key == o.OtherKey || !s.live(o.Time) {
			continue
		}
		for _, c := range s.contexts {
			for root, paths := range c.touched {
				t := paths[o.Path]
				if t == nil || t.Read == 0 && t.Wrote == 0 || t.At < c.emptied || root != o.Root && !n.onBranch(key, root, o) {
					continue
				}
				if t.Outdated && kind == NewsChanged && (c.stopped || !c.awaits(root, o.Path)) {
					continue // it was told to read it again, and did not yet, or is if it ever goes on
				}
				news := n.news(o, kind, root, o.Key)
				if news.Branch = o.OnBranch; root != o.Root {
					news.Place, news.From = Elsewhere, o.Root
				}
				n.tell(key, c.subagent, news)
				if !t.Outdated && kind == NewsChanged && !c.stopped {
					n.found = append(n.found, found{n.party(key, c.subagent, root, o), gitlog.StaleRead, o.Path, o.Key})
				}
			}
		}
	}
}

// followNews looks again at what is to be told of changes in other worktrees on this one's branch: whether they were pushed
// meanwhile, or brought here. That is off the hooks' time.
func (d *daemon) followNews(ctx context.Context, wt *worktree) {
	type pending struct {
		key      sessionKey
		subagent string
		news     News
	}
	var all []pending
	d.state.mu.Lock()
	for key, s := range d.state.sessions {
		for _, c := range s.contexts {
			for _, n := range c.news {
				if n.Root == wt.root && n.Place == Elsewhere && !c.told.has(n.digest()) {
					all = append(all, pending{key, c.subagent, n})
				}
			}
		}
	}
	d.state.mu.Unlock()
	for _, p := range all {
		from := d.clones.opened(p.news.From)
		if from == nil {
			continue
		}
		theirs, err := from.tree.Blob(ctx, p.news.Path)
		if err != nil {
			continue
		}
		mine, err := wt.tree.Blob(ctx, p.news.Path)
		if err != nil {
			continue
		}
		r := &stateRecord{At: p.news.At, Session: p.key, Subagent: p.subagent, Aside: true, Moot: []string{p.news.Key}}
		if !bytes.Equal(mine, theirs) {
			commit, err := wt.tree.Pushed(ctx, p.news.Branch, p.news.Path, theirs)
			if err != nil || commit == "" {
				continue
			}
			news := p.news
			news.Key, news.Place, news.Commit = news.Key+" pushed", Pushed, commit
			r.Moot, r.News = nil, []News{news}
		}
		d.state.mu.Lock()
		d.state.commit(r)
		d.state.mu.Unlock()
	}
}

// party is a session as the finder of an event in a worktree: on the branch that it was last seen on there.
func (n *noticing) party(key sessionKey, subagent, root string, o *occurrence) party {
	session, known := n.a.sequencer.Session(n.a.sessionToken(key), o.Time)
	by := party{Key: key, Subagent: subagent, Root: root, Owner: decodeSessionDetail(session.Detail).Owner}
	switch {
	case known && n.a.names.name(worktreeType, session.Worktree) == root:
		by.Branch = n.a.branchOf(session.Branch)
	case root == o.Root:
		by.Branch = o.OnBranch
	}
	return by
}

// onBranch says whether a session works in root, another worktree than o's, on o's branch.
func (n *noticing) onBranch(key sessionKey, root string, o *occurrence) bool {
	session, known := n.a.sequencer.Session(n.a.sessionToken(key), o.Time)
	return known && o.OnBranch != "" && session.Branch == o.Branch && n.a.names.name(worktreeType, session.Worktree) == root
}

// collides tells two sessions that both created a file, in two worktrees.
func (n *noticing) collides(o *occurrence) {
	mine := n.made(o.Key, o.Root, o.Path)
	if o.Kind != gitlog.FileWritten || mine == nil {
		return
	}
	for key, s := range n.d.state.sessions {
		if key == o.Key || s.seen+arbiter.StaleAfter < o.Time {
			continue
		}
		session, known := n.a.sequencer.Session(n.a.sessionToken(key), o.Time)
		if !known {
			continue
		}
		root := n.a.names.name(worktreeType, session.Worktree)
		theirs := n.made(key, root, o.Path)
		if root == o.Root || theirs == nil || !there(root, o.Path) {
			continue
		}
		pair := []string{o.Key.String(), key.String()}
		slices.Sort(pair)
		name := "collision " + strings.Join(pair, " ") + " " + o.Path
		if theirs.heard(name) || mine.heard(name) {
			continue
		}
		news := n.news(o, NewsCollision, root, o.Key)
		news.Key, news.Branch = name, o.OnBranch
		n.tell(key, theirs.subagent, news)
		news = n.news(o, NewsCollision, o.Root, key)
		news.Key, news.Branch = name, n.a.branchOf(session.Branch)
		if t := theirs.touched[root][o.Path]; t != nil {
			news.At = t.At
		}
		n.tell(o.Key, mine.subagent, news)
		n.found = append(n.found, found{n.party(o.Key, mine.subagent, o.Root, o), gitlog.CreateCollision, o.Path, key})
	}
}

// made is the context of a session that created a file; nil: none did.
func (n *noticing) made(key sessionKey, root, path string) *sessionContext {
	if s := n.d.state.sessions[key]; s != nil {
		for _, c := range s.contexts {
			if t := c.touched[root][path]; t != nil && t.Made && t.Wrote != 0 {
				return c
			}
		}
	}
	return nil
}

// there says whether something is at a path of a worktree.
func there(root, path string) bool {
	_, err := lookAt(root, path)
	return !errors.Is(err, fs.ErrNotExist)
}

// surroundings is what a hook's brief may tell of others, as it is now.
type surroundings struct {
	peers  []BriefPeer
	queues []BriefQueue
	// news is what is not kept for the context: mail, and notes on what is about to be written.
	news []News
	// held are the files that the context was denied and that it would be denied still, turns those that are kept for it.
	held  map[string]bool
	turns map[string]gitlog.Millis
	doing string
}

// surroundings looks around. opens: with peers and queues.
func (c *hookCall) surroundings(ctx context.Context, p hookPlace, opens bool) *surroundings {
	d, oc := c.d, p.tree.clone
	out := &surroundings{held: map[string]bool{}, turns: map[string]gitlog.Millis{}}
	if c.h.Subagent == "" {
		for _, m := range d.unreadOf(c.key, oc, c.now) {
			out.news = append(out.news, m.news())
		}
	}
	d.state.mu.Lock()
	user := ""
	var waits []string
	touched := map[string]bool{}
	if s := d.state.sessions[c.key]; s != nil {
		user = s.person
		mine := s.context(c.h.Subagent)
		for i := range mine.news {
			if n := &mine.news[i]; n.Kind == NewsFreed && n.Root == p.Root && !mine.told.has(n.digest()) {
				waits = append(waits, n.Path)
			}
		}
		for path, t := range mine.touched[p.Root] {
			if opens && max(t.Read, t.Wrote) >= mine.turn-1 {
				touched[path] = true
			}
		}
	}
	intents := map[sessionKey]string{}
	if opens {
		for key, s := range d.state.sessions {
			if !s.private {
				intents[key] = s.intent
			}
		}
	}
	d.state.mu.Unlock()
	if c.h.Event != EventPreTool && !opens && len(waits) == 0 {
		return out
	}
	var plans map[string]*gitlog.Plan
	if opens {
		plans = p.tree.facts.plans(c.now)
		out.doing = doingOf(c.key, plans, intents)
	}
	by := p.tree.party(ctx, c.key, c.h.Subagent, user)
	a := oc.arbiter
	// The relay's mirror is asked before and after: what goes on there is nothing to wait for with the arbitration locked.
	away := map[string]bool{}
	for _, path := range waits {
		away[path] = heldAway(oc, by, p.tree, path)
	}
	a.look(func(v *arbiter.View, now gitlog.Millis) {
		who := a.who(by)
		for _, path := range waits {
			want := a.want(path, oc.isHub(path))
			if _, blocked := v.Blocks(who, want, now); blocked || away[path] {
				out.held[path] = true
			} else if q := v.Queue(who, want, now); q.Turn == who.Session {
				out.turns[path] = q.Until
			}
		}
		if c.h.Event == EventPreTool {
			out.news = append(out.news, c.notes(p, a, v, who, now)...)
		}
		if opens {
			out.peers = peersOf(a, v, oc.clone, who, c.key, now, plans, intents)
			for path := range touched {
				out.queue(a, v, who, a.pathToken(path), path, now)
			}
			for _, w := range v.Waits(who.Session, now) {
				if path := a.pathOf(w.Path); w.Class == arbiter.Hub && !touched[path] {
					out.queue(a, v, who, w.Path, path, now)
				}
			}
		}
	})
	if opens && oc.relay != nil {
		out.peers = append(out.peers, oc.relay.peers(by.Branch)...)
		out.queuesAway(oc.relay.queues(by, p.tree.repo.GitDir, touched))
	}
	out.news = slices.DeleteFunc(out.news, func(n News) bool {
		if n.Kind != NewsNoted {
			return false
		}
		kinds := p.tree.kinds(ctx, []string{n.Path})
		return len(kinds) != 1 || kinds[0] != gitlog.FileNoted
	})
	slices.SortFunc(out.queues, func(a, b BriefQueue) int { return strings.Compare(a.Path, b.Path) })
	return out
}

// queue adds the queue of a hub, if there is one.
func (s *surroundings) queue(a *arbitration, v *arbiter.View, who arbiter.Who, path arbiter.Path, name string, now gitlog.Millis) {
	q := v.Queue(who, arbiter.Want{Path: path, Class: arbiter.File}, now)
	if len(q.Waits) == 0 {
		return
	}
	each := BriefQueue{Path: name, Waiting: len(q.Waits)}
	for i, w := range q.Waits {
		if w.Session == who.Session {
			each.Place = i + 1
		}
	}
	s.queues = append(s.queues, each)
}

// queuesAway adds the queues of all machines, whose order counts.
func (s *surroundings) queuesAway(queues []BriefQueue) {
	for _, q := range queues {
		i := slices.IndexFunc(s.queues, func(own BriefQueue) bool { return own.Path == q.Path })
		if i < 0 {
			s.queues = append(s.queues, q)
			continue
		}
		own := &s.queues[i]
		if own.Waiting = max(own.Waiting, q.Waiting); q.Place > 0 {
			own.Place = q.Place
		}
	}
}

// notedFor is how long after a write of a file that is never claimed the next writer is told of it.
const notedFor = 10 * 60 * 1000 * gitlog.Millis(1)

// notes are what to know before a write: what others left there, who changes the file on another branch, and who wrote it lately
// (which matters where nobody claims it).
func (c *hookCall) notes(p hookPlace, a *arbitration, v *arbiter.View, who arbiter.Who, now gitlog.Millis) (notes []News) {
	clone := p.tree.clone.clone
	peer := func(session arbiter.Token) (Peer, sessionKey) {
		key := a.sessionOf(session)
		known, _ := v.Session(session, now)
		return peerOf(clone, known, key), key
	}
	for _, path := range p.Writes {
		want := a.want(path, false)
		for _, l := range slices.Backward(v.Lefts(who, want.Path, now)) {
			by, key := peer(l.Session)
			notes = append(notes, News{Key: "left " + key.String() + " " + path, Kind: NewsLeft, At: l.Time,
				Root: p.Root, Path: path, By: by})
			break // whoever left it before, it is one file with changes
		}
		for _, h := range v.Elsewhere(who, want, now) {
			by, key := peer(h.Session)
			how := c.d.overlaps.between(p.Root, a.names.name(worktreeType, h.Worktree), path)
			outcome, _, _ := strings.Cut(how, " ") // other lines are no news
			notes = append(notes, News{Key: "overlap " + key.String() + " " + path + " " + outcome, Kind: NewsOverlap, At: h.Since,
				Root: p.Root, Path: path, By: by, Branch: a.branchOf(h.Branch), Text: how})
		}
		written := v.Writes(who.Session, arbiter.Order{}, now, want.Path)
		for _, w := range slices.Backward(written) {
			if w.Time+notedFor < now || w.Worktree != who.Worktree && w.Branch != who.Branch {
				continue
			}
			by, key := peer(w.Session)
			notes = append(notes, News{Key: "noted " + key.String() + " " + path + " " + strconv.FormatUint(uint64(w.Time), 36), Kind: NewsNoted, At: w.Time,
				Root: p.Root, Path: path, By: by})
			break // the last one is enough
		}
	}
	return notes
}

// presentFor is how long after its last hook a session counts as at work.
const presentFor = gitlog.Millis(30 * 60 * 1000)

// nearFor is how long after it wrote a file a session counts as at work in it; while it holds the file it does anyway.
const nearFor = gitlog.Millis(10 * 60 * 1000)

// peersOf are the other sessions that are at work in a repository. The arbitration is locked.
func peersOf(a *arbitration, v *arbiter.View, clone *gitlog.Clone, me arbiter.Who, self sessionKey, now gitlog.Millis, plans map[string]*gitlog.Plan,
	intents map[sessionKey]string) []BriefPeer {
	files := map[arbiter.Token][]string{}
	add := func(session arbiter.Token, path string) {
		if path != "" && !slices.Contains(files[session], path) {
			files[session] = append(files[session], path)
		}
	}
	for _, w := range slices.Backward(v.Writes(me.Session, arbiter.Order{}, now)) {
		if !w.Removed && w.Time+nearFor >= now {
			add(w.Session, a.pathOf(w.Path))
		}
	}
	for _, h := range slices.Backward(v.Claims(arbiter.Token{}, now)) {
		add(h.Session, a.heldPath(h))
	}
	var out []BriefPeer
	for _, s := range v.Sessions(now) {
		key := a.sessionOf(s.Session)
		if key == self || s.Seen+presentFor < now {
			continue
		}
		p := BriefPeer{Peer: peerOf(clone, s, key), Key: key.String(), Here: s.Worktree == me.Worktree, Branch: a.branchOf(s.Branch),
			SameBranch: s.Branch == me.Branch, Files: files[s.Session], At: s.Seen}
		if !decodeSessionDetail(s.Detail).Private {
			p.Plan, p.Decided, p.Derived = planOf(key, plans, intents)
			if p.Plan == "" && len(s.Intent) > 0 {
				p.Plan, p.Derived = string(s.Intent), !p.Person
			}
		}
		out = append(out, p)
	}
	return out
}

// planOf is what a session means to do and what it decided: the plan that it set, else what its intent says (derived).
func planOf(key sessionKey, plans map[string]*gitlog.Plan, intents map[sessionKey]string) (text string, decided []string, derived bool) {
	text = intents[key]
	if plan := plans[key.String()]; plan != nil {
		decided = plan.Decided
		if plan.Text != "" {
			return plan.Text, decided, plan.Derived
		}
	}
	return text, decided, text != ""
}

// doingOf is what a session's task is compared by.
func doingOf(key sessionKey, plans map[string]*gitlog.Plan, intents map[sessionKey]string) string {
	text, _, _ := planOf(key, plans, intents)
	return text
}

// likeTasks asks a session whether it does what another one does: what it said of its task, just now, is like what others said
// in the last hours.
func (d *daemon) likeTasks(wt *worktree, key sessionKey, now gitlog.Millis) {
	a, plans := wt.clone.arbiter, wt.facts.plans(now)
	type other struct {
		key  sessionKey
		text string
		at   gitlog.Millis
		home string
	}
	var like []other
	d.state.mu.Lock()
	me := d.state.sessions[key]
	if me == nil || me.private {
		d.state.mu.Unlock()
		return
	}
	person, home := me.person, me.home
	doing, intended := doingOf(key, plans, map[sessionKey]string{key: me.intent}), me.intent
	for each, s := range d.state.sessions {
		// Whoever cleared a session and began another with the same words goes on, and does nothing twice.
		if each == key || s.private || s.seen+gitlog.Millis(sharedWithin.Milliseconds()) < now || s.ended != 0 && s.process != 0 && s.process == me.process {
			continue
		}
		intents := map[sessionKey]string{each: s.intent}
		text := doingOf(each, plans, intents)
		if likeTask(doing, text) || likeTask(doing, s.intent) || likeTask(intended, text) || likeTask(intended, s.intent) {
			like = append(like, other{each, text, s.intended, s.home})
		}
	}
	d.state.mu.Unlock()
	slices.SortFunc(like, func(a, b other) int { return strings.Compare(a.key.String(), b.key.String()) })
	for _, o := range like {
		if tree := d.clones.opened(o.home); tree == nil || tree.clone.arbiter != a {
			continue
		}
		news := News{Key: "duplicate " + o.key.String(), Kind: NewsDuplicate, At: o.at, Text: o.text}
		a.look(func(v *arbiter.View, now gitlog.Millis) {
			session, _ := v.Session(a.sessionToken(o.key), now)
			news.By = peerOf(wt.clone.clone, session, o.key)
		})
		d.state.mu.Lock()
		asked := me.context("").heard(news.Key) || me.asked[o.key]
		if !asked {
			d.state.commit(&stateRecord{At: now, Session: key, Aside: true, News: []News{news}, Asked: &o.key})
		}
		d.state.mu.Unlock()
		if !asked {
			d.loops.Go(func() {
				d.guard("notice", func() {
					by := wt.party(d.work, key, "", person)
					if by.Root == home {
						a.declare(by, gitlog.DuplicateIntent, "", "", o.key)
					}
				})
			})
		}
	}
}

// planned is what follows a session's setting or taking back its plan.
func (d *daemon) planned(ctx context.Context, wt *worktree, key sessionKey) {
	now := d.now()
	text := ""
	if plan := wt.facts.plans(now)[key.String()]; plan != nil {
		text = plan.Text
	}
	d.state.mu.Lock()
	s := d.state.sessions[key]
	known := s != nil && !s.private
	person := ""
	if known {
		person = s.person
	}
	d.state.mu.Unlock()
	if !known {
		return
	}
	wt.clone.arbiter.declare(wt.party(ctx, key, "", person), gitlog.PlanDeclared, text, "", sessionKey{})
	d.likeTasks(wt, key, now)
}

// news is a message as a brief tells it.
func (m *Message) news() News {
	at, _ := time.Parse(time.RFC3339, m.At)
	return News{Key: "mail " + m.ID, Kind: NewsMail, At: gitlog.MillisOf(at), By: Peer{Member: m.From, Person: m.Kind == "person"}, Text: m.Text, Urgent: m.Urgent}
}
