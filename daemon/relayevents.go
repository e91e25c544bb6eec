package daemon

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"time"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/arbiter/wire"
	"knoot.dev/knoot/gitlog"
)

// relayMail is a message from another machine.
type relayMail struct {
	event  arbiter.Event
	detail relayDetail
}

// take takes in what was sequenced.
func (r *relayRepository) take(m *wire.Events) {
	_ = r.look() // the team may be another since; without a new one the one before is good
	b := r.blinding()
	opened, sums := make([]*openedDetail, len(m.Events)), make([][32]byte, len(m.Events))
	for i := range m.Events {
		opened[i] = openDetail(b, m.Events[i].Detail)
		if askedAbout(m.Events[i].Kind) {
			sums[i] = sha256.Sum256(m.Events[i].Detail)
		}
	}
	r.mu.Lock()
	if r.names.blinding != b { // the team changed just now
		for i := range m.Events {
			opened[i] = openDetail(r.names.blinding, m.Events[i].Detail)
		}
	}
	r.clock = relayClock{m.Now, time.Now()}
	var theirs []occurrence
	var by []Peer
	var applied, ours, unopened []arbiter.Event
	var mail []relayMail
	var memory []relaySegment
	for i := range m.Events {
		e := m.Events[i]
		if e.Order.Compare(r.view.Position()) <= 0 {
			continue
		}
		r.view.Apply(e)
		applied = append(applied, e)
		if opened[i].with(&e) == nil && (e.Kind == gitlog.MemoryPublished || e.Kind == gitlog.Message && e.Device != r.names.device) {
			unopened = append(unopened, e) // its key, or its device, may be of a state of the team that is still to come
			continue
		}
		d, fresh := r.names.take(&e, opened[i], sums[i])
		if e.Kind == gitlog.MemoryPublished {
			if fresh {
				memory = append(memory, relaySegment{e, d.Segment})
			}
			continue
		}
		switch {
		case e.Kind == gitlog.RosterChanged:
			ours = append(ours, e)
		case e.Device == r.names.device:
			ours = append(ours, e)
		default:
			if e.Kind == gitlog.SessionStarted && d.Session != "" {
				r.names.sessions[e.Session] = d
			}
			if e.Kind == gitlog.Message {
				mail = append(mail, relayMail{e, d})
				continue
			}
			theirs = append(theirs, r.named(e, d))
			by = append(by, r.peer(&e.Who))
		}
	}
	if len(applied) > 0 {
		close(r.changed)
		r.changed = make(chan struct{})
	}
	r.mu.Unlock()
	for i := range ours {
		r.takeOurs(&ours[i])
	}
	if len(mail) > 0 {
		r.link.work(func() { // it looks for who is here
			for i := range mail {
				r.deliver(&mail[i].event, mail[i].detail)
			}
		})
	}
	r.await(unopened)
	if len(memory) > 0 {
		r.link.work(func() { r.hearMemory(memory) }) // it opens seals, and writes them down
	}
	if len(theirs) > 0 {
		r.d.feed.observe(r.a, theirs)
		r.notice(theirs, by)
	}
	// Last: a daemon that ends before hears all of it again.
	r.mu.Lock()
	r.keepEvents(applied)
	r.mu.Unlock()
}

// named adds the names to an event of another machine. mu is held.
func (r *relayRepository) named(e arbiter.Event, d relayDetail) occurrence {
	o := occurrence{Event: e, Key: r.sessionOf(e.Session), OnBranch: r.names.ofBranch[e.Branch], WasBranch: r.names.ofBranch[e.OldBranch]}
	if e.Other != (arbiter.Token{}) {
		o.OtherKey = r.sessionOf(e.Other)
	}
	if len(e.Paths) > 0 {
		if o.Path = string(d.Path); o.Path == "" {
			o.Path = r.names.ofPath[e.Paths[0].Own]
		}
	}
	switch e.Kind {
	case gitlog.IntentDeclared, gitlog.PlanDeclared:
		o.Text = d.Text
	}
	return o
}

// sessionOf is the session that a token stands for; one whose name is not known is named by its token. mu is held.
func (r *relayRepository) sessionOf(t arbiter.Token) sessionKey {
	if t == (arbiter.Token{}) {
		return sessionKey{}
	}
	if d := r.names.sessions[t]; d.Session != "" {
		return sessionKey{Agent: d.Agent, ID: d.Session}
	}
	return sessionKey{Agent: "agent", ID: hex.EncodeToString(t[:4])}
}

// takeOurs follows what the relay decided about sessions of this machine, and a change of the team.
func (r *relayRepository) takeOurs(e *arbiter.Event) {
	switch e.Kind {
	case gitlog.RosterChanged:
		r.behind()
	case gitlog.ClaimReleased:
		// The own arbiter has ended what it ended already. Another machine's person may have taken the file.
		if e.Reason == arbiter.Taken || e.Reason == arbiter.RelaysOrder || e.Reason == arbiter.Moved {
			r.end(e)
		}
	case gitlog.ClaimAcquired:
		r.giveBack(e)
	case gitlog.PathFreed:
		if e.Class == arbiter.Hub {
			r.passOn(e)
		}
	case gitlog.UngatedWrite:
		if e.Late {
			return // the other side says whether it matters there
		}
		r.mu.Lock()
		other, known := r.view.Session(e.Other, r.clock.now())
		o := r.named(*e, relayDetail{})
		by, doing := r.peer(&other.Who), r.intent(e.Other)
		r.mu.Unlock()
		if !known || other.Device == r.names.device {
			return // the own arbiter has told so
		}
		news := awayNews(NewsCrossed, &o, by)
		news.Text, news.Place = doing, OtherMachine
		r.tellSession(o.Key, e.Subagent, news)
	}
}

// giveBack has the relay end a claim that is not held here any more: it was asked for, and what was to be said of its end, or the
// answer, was lost with a connection. The own arbiter has a claim before the relay is asked.
func (r *relayRepository) giveBack(e *arbiter.Event) {
	r.a.mu.Lock()
	_, holds := r.a.sequencer.Claim(e.Claim, r.a.now())
	r.a.mu.Unlock()
	if !holds {
		r.request(arbiter.Release{Who: e.Who, Claims: []arbiter.ClaimID{e.Claim}, Reason: arbiter.Released})
	}
}

// end ends a claim here that ended at the relay.
func (r *relayRepository) end(e *arbiter.Event) {
	r.mu.Lock()
	other, _ := r.view.Session(e.Other, r.clock.now())
	o := r.named(*e, relayDetail{})
	by := r.peer(&other.Who)
	r.dropGrant(e.Claim)
	r.mu.Unlock()
	r.a.mu.Lock()
	h, holds := r.a.sequencer.Claim(e.Claim, r.a.now())
	if holds {
		r.a.do(arbiter.Release{Who: h.Who, Claims: []arbiter.ClaimID{e.Claim}, Reason: arbiter.RelaysOrder})
	}
	r.a.mu.Unlock()
	if !holds || other.Device == r.names.device {
		return
	}
	kind := NewsMoved
	if e.Reason == arbiter.Taken {
		kind = NewsTaken
	}
	if e.Reason != arbiter.RelaysOrder {
		r.tellSession(o.Key, "", awayNews(kind, &o, by))
	}
}

// passOn offers the turn of a session that sits idle to the next one.
func (r *relayRepository) passOn(e *arbiter.Event) {
	r.mu.Lock()
	key := r.sessionOf(e.Session)
	r.mu.Unlock()
	r.a.mu.Lock()
	l := r.a.lodgers[key]
	idle := l != nil && l.stopped && len(l.calls) == 0
	r.a.mu.Unlock()
	if idle {
		r.request(arbiter.Idle{Who: e.Who})
	}
}

// awayNews is news of another machine's event. It is told in whichever worktree the session is.
func awayNews(kind NewsKind, o *occurrence, by Peer) News {
	return News{Key: string(kind) + " away " + strconv.FormatUint(o.Order.Term, 36) + "." + strconv.FormatUint(o.Order.Seq, 36), Kind: kind, At: o.Time, Path: o.Path, By: by}
}

// tellSession keeps news for a context, if that is known here.
func (r *relayRepository) tellSession(key sessionKey, subagent string, news News) {
	r.d.state.mu.Lock()
	defer r.d.state.mu.Unlock()
	if s := r.d.state.sessions[key]; s != nil {
		r.d.state.commit(&stateRecord{At: news.At, Session: key, Subagent: subagent, Aside: true, News: []News{news}})
	}
}

// notice makes news of what happened on other machines, for the sessions here that it concerns.
func (r *relayRepository) notice(happened []occurrence, by []Peer) {
	r.a.mu.Lock()
	defer r.a.mu.Unlock()
	r.d.state.mu.Lock()
	defer r.d.state.mu.Unlock()
	for i := range happened {
		o := &happened[i]
		switch o.Kind {
		case gitlog.UngatedWrite:
			if o.Late { // that it was written is told apart
				r.link.work(func() { r.overlap(*o, by[i]) })
				continue
			}
			n := noticing{d: r.d, a: r.a}
			news := awayNews(NewsUngated, o, by[i])
			news.Place = OtherMachine
			n.tell(o.OtherKey, "", news)
			r.changedAway(o, by[i])
		case gitlog.FileWritten, gitlog.PathRemoved:
			r.changedAway(o, by[i])
		case gitlog.ClaimReleased:
			if o.Reason == arbiter.Moved {
				n := noticing{d: r.d, a: r.a}
				n.tell(o.OtherKey, "", awayNews(NewsJoined, o, by[i]))
			}
		}
	}
}

// changedAway tells those who have read, or written, a file on the branch on which a session of another machine changed it. The
// arbitration and the state are locked.
func (r *relayRepository) changedAway(o *occurrence, by Peer) {
	if o.Path == "" || o.OnBranch == "" {
		return
	}
	kind := NewsChanged
	if o.Kind == gitlog.PathRemoved {
		kind = NewsRemoved
	}
	n := noticing{d: r.d, a: r.a}
	for key, s := range r.d.state.sessions {
		if o.Kind == gitlog.UngatedWrite && key == o.OtherKey || !s.live(o.Time) {
			continue
		}
		session, known := r.a.sequencer.Session(r.a.sessionToken(key), r.a.now())
		if !known || r.a.branchOf(session.Branch) != o.OnBranch {
			continue
		}
		root := r.a.names.name(worktreeType, session.Worktree)
		for _, c := range s.contexts {
			t := c.touched[root][o.Path]
			if t == nil || t.Read == 0 && t.Wrote == 0 || t.At < c.emptied || t.Outdated && (c.stopped || !c.awaits(root, o.Path)) {
				continue
			}
			news := awayNews(kind, o, by)
			news.Root, news.Branch, news.Place = root, o.OnBranch, OtherMachine
			n.tell(key, c.subagent, news)
		}
	}
}

// standing are the sessions of other machines.
func (r *relayRepository) standing() []StandingSession {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.names.blinding == nil {
		return nil
	}
	var out []StandingSession
	now := r.clock.now()
	for _, s := range r.view.Sessions(now) {
		if s.Device == r.names.device {
			continue
		}
		key := r.sessionOf(s.Session)
		plan, _ := r.names.open(gitlog.PlanDeclared, s.Session, s.Plan)
		each := StandingSession{Session: key.ID, Agent: key.Agent, Member: r.address(s.Device), Person: s.Person, Branch: r.names.ofBranch[s.Branch],
			Machine: r.label(s.Device), Intent: r.intent(s.Session), Plan: plan.Text, Decided: []string{}, Claims: []StandingClaim{}, Waiting: []string{},
			Name: r.names.sessions[s.Session].Name, Began: r.local(s.Started), Seen: r.local(s.Seen)}
		if s.Person {
			each.Agent = ""
		}
		for _, h := range r.view.Claims(s.Session, now) {
			if path := r.names.ofPath[h.Path.Own]; path != "" {
				each.Claims = append(each.Claims, StandingClaim{Path: path, Until: r.local(h.Until), Hub: h.Class == arbiter.Hub, Branch: r.names.ofBranch[h.Branch],
					Since: r.local(h.Since), Written: r.local(h.Written)})
			}
		}
		for _, w := range r.view.Waits(s.Session, now) {
			if path := r.names.ofPath[w.Path.Own]; path != "" {
				each.Waiting = append(each.Waiting, path)
			}
		}
		out = append(out, each)
	}
	return out
}

// hubs are the hubs of all machines.
func (r *relayRepository) hubs() []HubStanding {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.names.blinding == nil {
		return nil
	}
	out := hubsOf(r.view, r.clock.now(), awayNaming{r})
	for i := range out {
		out[i].Until = r.local(out[i].Until)
	}
	return out
}

// awayNaming is the naming of the tokens that a relay sees. The repository's mu is held.
type awayNaming struct{ r *relayRepository }

func (n awayNaming) pathOf(p arbiter.Path) string         { return n.r.names.ofPath[p.Own] }
func (n awayNaming) branchOf(t arbiter.Token) string      { return n.r.names.ofBranch[t] }
func (n awayNaming) sessionOf(t arbiter.Token) sessionKey { return n.r.sessionOf(t) }

// queues are the queues, of all machines, of the hubs among the files that a session touched, and of those that it waits for.
func (r *relayRepository) queues(by party, gitDir string, touched map[string]bool) (out []BriefQueue) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.names.blinding == nil {
		return nil
	}
	who, now := r.names.who(by, gitDir), r.clock.now()
	add := func(name string, path arbiter.Path) {
		q := r.view.Queue(who, arbiter.Want{Path: path, Class: arbiter.File}, now)
		if len(q.Waits) == 0 {
			return
		}
		each := BriefQueue{Path: name, Waiting: len(q.Waits)}
		each.Place = 1 + slices.IndexFunc(q.Waits, func(w arbiter.Wait) bool { return w.Session == who.Session })
		out = append(out, each)
	}
	for name := range touched {
		if path, ok := r.names.path(name); ok {
			add(name, path)
		}
	}
	for _, w := range r.view.Waits(who.Session, now) {
		if name := r.names.ofPath[w.Path.Own]; w.Class == arbiter.Hub && name != "" && !touched[name] {
			add(name, w.Path)
		}
	}
	return out
}

// waiting are the files that sessions of this machine wait for at the relay.
func (r *relayRepository) waiting() map[sessionKey][]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[sessionKey][]string{}
	now := r.clock.now()
	for _, s := range r.view.Sessions(now) {
		if s.Device != r.names.device {
			continue
		}
		for _, w := range r.view.Waits(s.Session, now) {
			if path := r.names.ofPath[w.Path.Own]; path != "" {
				key := r.sessionOf(s.Session)
				out[key] = append(out[key], path)
			}
		}
	}
	return out
}

// local is a moment of the relay's clock by this machine's. mu is held.
func (r *relayRepository) local(at gitlog.Millis) gitlog.Millis {
	if at == 0 {
		return 0
	}
	return gitlog.MillisOf(r.clock.local(at))
}

// address is that of a device's member. mu is held.
func (r *relayRepository) address(device gitlog.DeviceID) string {
	if m := r.names.blinding.Roster.MemberOf(device); m != nil {
		return strings.ToLower(m.Address)
	}
	return ""
}

// label is what a device is called; its id where it has no label. mu is held.
func (r *relayRepository) label(device gitlog.DeviceID) string {
	if d := r.names.blinding.Roster.Devices[device]; d != nil && d.Label != "" {
		return d.Label
	}
	return device.String()[:8]
}

// peers are the sessions of other machines that are at work, as a brief may name them. me is who is told, on a branch.
func (r *relayRepository) peers(branch string) (out []BriefPeer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.names.blinding == nil {
		return nil
	}
	now := r.clock.now()
	files := map[arbiter.Token][]string{}
	add := func(session arbiter.Token, path string) {
		if path != "" && !slices.Contains(files[session], path) {
			files[session] = append(files[session], path)
		}
	}
	for _, w := range slices.Backward(r.view.Writes(arbiter.Token{}, arbiter.Order{}, now)) {
		if !w.Removed && w.Time+nearFor >= now {
			add(w.Session, r.names.ofPath[w.Path.Own])
		}
	}
	for _, h := range slices.Backward(r.view.Claims(arbiter.Token{}, now)) {
		add(h.Session, r.names.ofPath[h.Path.Own])
	}
	for _, s := range r.view.Sessions(now) {
		if s.Device == r.names.device || s.Seen+presentFor < now {
			continue
		}
		p := BriefPeer{Peer: r.peer(&s.Who), Key: r.sessionOf(s.Session).String() + " " + s.Device.String(), Branch: r.names.ofBranch[s.Branch],
			Files: files[s.Session], At: r.local(s.Seen)}
		p.SameBranch = p.Branch == branch && branch != ""
		if plan, ok := r.names.open(gitlog.PlanDeclared, s.Session, s.Plan); ok && plan.Text != "" {
			p.Plan = plan.Text
		} else if p.Plan = r.intent(s.Session); p.Plan != "" {
			p.Derived = !p.Person
		}
		out = append(out, p)
	}
	return out
}
