package daemon

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/arbiter/wire"
	"knoot.dev/knoot/gitlog"
)

// away is the repository at its relay for a site; nil: there is none.
func (s *site) away() *relayRepository { return s.tree.clone.arbiter.away.Load() }

// heldAway says which session of another machine has a path, as far as is known here; nil: none. sure: what goes on at the relay is
// followed, and it was heard lately, so that it is so.
func (s *site) heldAway(w arbiter.Want, path string) (held *heldFile, sure bool) {
	r := s.away()
	if r == nil {
		return nil, false
	}
	held = r.heldBy(s.by, s.tree.repo.GitDir, path, w.Class, w.Hub)
	return held, held != nil && r.follows()
}

// heldBy is what of another machine blocks a party's write of a path; nil: nothing.
func (r *relayRepository) heldBy(by party, gitDir, path string, class arbiter.Class, hub bool) *heldFile {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.names.blinding == nil {
		return nil
	}
	p, ok := r.names.path(path)
	if !ok {
		return nil
	}
	who, want := r.names.who(by, gitDir), arbiter.Want{Path: p, Class: class, Hub: hub}
	h, blocked := r.view.Blocks(who, want, r.clock.now())
	if !blocked || h.Device == r.names.device {
		return nil
	}
	return r.held(h, who, want, path, by.Root)
}

// held describes what blocks a path. mu is held.
func (r *relayRepository) held(h arbiter.Hold, who arbiter.Who, w arbiter.Want, path, root string) *heldFile {
	now := r.clock.now()
	f := &heldFile{Path: path, Root: root, Away: true, Holder: r.peer(&h.Who), Branch: r.names.ofBranch[h.Branch], Turn: h.Claim == arbiter.ClaimID{},
		Since: r.clock.local(h.Since), Written: r.clock.local(h.Written), Until: r.clock.local(h.Until), Intent: r.intent(h.Session)}
	if d, ok := r.names.open(gitlog.ClaimAcquired, h.Session, h.Detail); ok {
		spelled := string(d.Path)
		switch {
		case w.Class == arbiter.Tree && spelled != "":
			f.Path = spelled // what is held may be one file below
		case h.Class != arbiter.Tree && spelled != path && gitlog.FoldPath(spelled) == gitlog.FoldPath(path):
			f.Spelled = spelled
		}
		if d.Branch != "" {
			f.Branch = d.Branch
		}
	}
	for _, each := range r.view.Queue(who, w, now).Waits {
		if each.Session == who.Session {
			f.Place = each.Place
		}
	}
	return f
}

// peer is who a session of another machine is. Its person is the member whose device it runs on: that is proved. mu is held.
func (r *relayRepository) peer(who *arbiter.Who) Peer {
	p := Peer{Agent: r.names.sessions[who.Session].Name, Person: who.Person}
	if r.names.blinding != nil {
		if m := r.names.blinding.Roster.MemberOf(who.Device); m != nil {
			p.Member = m.Name
		}
	}
	return p
}

// intent is what a session of another machine says that it does; "": nothing that it shares. mu is held.
func (r *relayRepository) intent(session arbiter.Token) string {
	s, _ := r.view.Session(session, r.clock.now())
	d, _ := r.names.open(gitlog.IntentDeclared, session, s.Intent)
	return d.Text
}

// relayAsk is what a hook took from its own arbiter, and asks a relay for.
type relayAsk struct {
	site *site
	r    *relayRepository
	took []occurrence // ClaimAcquired

	settled atomic.Bool       // answered in time, or given up: whoever sets it decides
	answers chan *wire.Answer // nil: nobody waits for one
}

// askRelays asks for what the hook took: a relay's denial drops it, no answer keeps it. No arbiter is locked.
func (c *hookCall) askRelays(ctx context.Context) *denial {
	if len(c.asks) == 0 {
		return nil
	}
	timer := time.NewTimer(claimTime)
	defer timer.Stop()
	for _, ask := range c.asks {
		conn := ask.r.connection()
		if conn == nil {
			continue // what is held then is asked for when the repository is opened
		}
		if ask.r.prompt() {
			ask.answers = make(chan *wire.Answer, 1)
		} else {
			ask.settled.Store(true)
		}
		if !ask.r.link.work(func() { ask.send(conn) }) {
			ask.answers = nil
		}
	}
	var refused *denial
	for _, ask := range c.asks {
		if ask.answers == nil {
			continue
		}
		var answer *wire.Answer
		select {
		case answer = <-ask.answers:
		case <-timer.C:
			timer.Reset(0) // nor does anybody wait for the others
		case <-ctx.Done():
		}
		if answer == nil && !ask.settled.CompareAndSwap(false, true) {
			select {
			case answer = <-ask.answers: // it came just now
			default:
			}
		}
		if answer == nil || answer.Outcome == wire.Granted {
			continue
		}
		refused = c.refusedBy(ask, answer, refused)
	}
	if refused == nil {
		return nil
	}
	c.beside = nil
	for _, s := range c.worktrees {
		a := s.tree.clone.arbiter
		a.mu.Lock()
		if call := a.closeCall(c.key, c.callIn(s.tree.root)); call != nil && len(call.took) > 0 {
			a.do(arbiter.Release{Who: s.who, Claims: call.took, Reason: arbiter.RelaysOrder})
		}
		a.mu.Unlock()
		for _, path := range slices.Concat(s.ordinary, s.noted) {
			if !slices.ContainsFunc(refused.Held, func(h heldFile) bool { return h.Root == s.tree.root && h.Path == path }) {
				refused.Free = append(refused.Free, path)
			}
		}
	}
	c.awaitFree(refused.Held)
	return refused
}

// refusedBy adds what a relay's answer says to a denial; a note where the person's mode says so.
func (c *hookCall) refusedBy(ask *relayAsk, answer *wire.Answer, refused *denial) *denial {
	var lost []arbiter.ClaimID
	for _, b := range answer.Blocks {
		at := slices.IndexFunc(ask.took, func(o occurrence) bool { return o.Claim == b.Claim })
		if at < 0 || b.Holder.Device == ask.r.names.device {
			continue // between the sessions of this machine its own arbiter decides
		}
		held := ask.r.blockedBy(b, ask.site, ask.took[at].Path, ask.took[at].Class)
		if answer.Outcome == wire.Refused {
			lost = append(lost, b.Claim)
			c.noteAway(ask.site, held)
			continue
		}
		if refused == nil {
			refused = &denial{Now: time.Now()}
		}
		refused.Held = append(refused.Held, *held)
	}
	if len(lost) > 0 {
		ask.r.a.mu.Lock()
		ask.r.a.do(arbiter.Release{Who: ask.site.who, Claims: lost, Reason: arbiter.RelaysOrder})
		ask.r.a.mu.Unlock()
	}
	return refused
}

// blockedBy describes a block of an answer.
func (r *relayRepository) blockedBy(b wire.Block, s *site, path string, class arbiter.Class) *heldFile {
	if held := r.heldBy(s.by, s.tree.repo.GitDir, path, class, false); held != nil {
		held.Place = max(held.Place, int(b.Place))
		return held
	}
	// The event has not come yet.
	r.mu.Lock()
	defer r.mu.Unlock()
	h := arbiter.Hold{Who: b.Holder, Class: b.Class, Claim: arbiter.ClaimID{1}, Detail: b.Detail, Since: r.clock.now()}
	if b.Holder.Session == (arbiter.Token{}) {
		h.Claim = arbiter.ClaimID{}
	}
	if b.Left > 0 {
		h.Until = r.clock.now() + b.Left
	}
	held := r.held(h, arbiter.Who{}, arbiter.Want{Class: class}, path, s.tree.root)
	held.Place = int(b.Place)
	return held
}

// noteAway has the write told of who of another machine is at its file.
func (c *hookCall) noteAway(s *site, held *heldFile) {
	n := News{Key: "held away " + held.Holder.Member + " " + held.Path + " " + held.Since.Truncate(time.Minute).String(), Kind: NewsHeld,
		At: gitlog.MillisOf(held.Since), Root: s.tree.root, Path: held.Path, By: held.Holder, Branch: held.Branch, Text: held.Intent}
	c.beside = append(c.beside, n)
}

// awaitFree has the session told when files of which another machine's session refused it are free.
func (c *hookCall) awaitFree(held []heldFile) {
	st := c.d.state
	st.mu.Lock()
	defer st.mu.Unlock()
	s := st.sessions[c.key]
	if s == nil {
		return
	}
	for _, h := range held {
		st.commit(&stateRecord{At: c.now, Session: c.key, Subagent: c.h.Subagent, Aside: true, News: []News{{
			Key: "freed away " + h.Path + " " + gitlog.TimeText(c.now), Kind: NewsFreed, At: c.now, Root: h.Root, Path: h.Path, By: h.Holder,
			Turn: s.context(c.h.Subagent).turn}}})
	}
}

// send asks the relay. What it answers after nobody waits any more is settled here.
func (ask *relayAsk) send(conn wire.Conn) {
	ctx, cancel := context.WithTimeout(ask.r.ctx, relayRequest)
	defer cancel()
	answer, err := ask.r.claim(ctx, conn, ask.site, ask.took)
	if err != nil {
		ask.r.refused(err)
		answer = nil
	}
	if ask.answers != nil {
		ask.answers <- answer
	}
	if !ask.settled.CompareAndSwap(false, true) && answer != nil {
		ask.r.settle(ask.took, answer)
	}
}

// settle is what follows from an answer that nobody waited for: a grant of what is held no more is given back, a denial ends the
// claim, and the next write is denied.
func (r *relayRepository) settle(took []occurrence, answer *wire.Answer) {
	var gone []occurrence
	r.a.mu.Lock()
	now := r.a.now()
	for i := range took {
		h, holds := r.a.sequencer.Claim(took[i].Claim, now)
		switch {
		case !holds:
			gone = append(gone, took[i])
		case answer.Outcome == wire.Denied || answer.Outcome == wire.Refused:
			if blockedAway(answer, took[i].Claim, r.names.device) {
				r.a.do(arbiter.Release{Who: h.Who, Claims: []arbiter.ClaimID{h.Claim}, Reason: arbiter.RelaysOrder})
			}
		}
	}
	r.a.mu.Unlock()
	if answer.Outcome == wire.Granted {
		for i := range gone {
			released := gone[i]
			released.Kind, released.Reason = gitlog.ClaimReleased, arbiter.Failed
			r.tellOf(released)
		}
	}
}

func blockedAway(answer *wire.Answer, claim arbiter.ClaimID, device gitlog.DeviceID) bool {
	return slices.ContainsFunc(answer.Blocks, func(b wire.Block) bool { return b.Claim == claim && b.Holder.Device != device })
}

// tellOf has the relay told of an event.
func (r *relayRepository) tellOf(o occurrence) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn != nil {
		r.outbox = append(r.outbox, relayTold{happened: &o})
		r.tellMore()
	}
}

var errNothingToAsk = errors.New("none of these paths has a token")

// claim asks for claims of one session, once all that happened before is told.
func (r *relayRepository) claim(ctx context.Context, conn wire.Conn, s *site, took []occurrence) (*wire.Answer, error) {
	r.flushed(ctx)
	r.mu.Lock()
	m := &wire.Claim{Repository: r.a.id.repository, Head: r.names.blinding.Roster.Head}
	m.Who = r.names.who(s.by, s.tree.repo.GitDir)
	m.Note = s.mode == gitlog.ClaimsNote
	for i := range took {
		if w, ok := r.want(&took[i], m.Session, s.by.Branch, s.tree.clone.isHub(took[i].Path), len(took)); ok {
			m.Wants = append(m.Wants, w)
		}
	}
	r.mu.Unlock()
	return r.askClaim(ctx, conn, m)
}

// maxSealedWants is how many paths of one request come with their names sealed: more would not fit into it.
const maxSealedWants = 64

// want is a claim of the own arbiter as the relay is asked for it; false where its path has no token. mu is held.
func (r *relayRepository) want(o *occurrence, session arbiter.Token, branch string, hub bool, together int) (w arbiter.Want, ok bool) {
	w = arbiter.Want{ID: o.Claim, Class: o.Class, Hub: hub}
	if o.Class == arbiter.Hub {
		w.Class = arbiter.File
	}
	if w.Path, ok = r.names.path(o.Path); ok && together <= maxSealedWants {
		w.Detail = r.names.seal(gitlog.ClaimAcquired, session, r.clock.now(), relayDetail{Path: []byte(o.Path), Branch: branch})
	}
	return w, ok
}

func (r *relayRepository) askClaim(ctx context.Context, conn wire.Conn, m *wire.Claim) (*wire.Answer, error) {
	if len(m.Wants) == 0 || len(m.Wants) > wire.MaxBatch || !fits(m) {
		return nil, errNothingToAsk // the own arbiter decides whole
	}
	answer, err := r.link.ask(ctx, conn, m)
	if err != nil {
		return nil, err
	}
	r.reach(answer)
	a, ok := answer.(*wire.Answer)
	if !ok {
		return nil, errors.New("the relay answers a claim with something else")
	}
	return a, nil
}

// register has the relay remember that a session waits for files that are known to be held, so that it hears when they are free.
func (r *relayRepository) register(s *site, paths []string) {
	conn := r.open()
	if conn == nil {
		return
	}
	r.link.work(func() {
		ctx, cancel := context.WithTimeout(r.ctx, relayRequest)
		defer cancel()
		var wanted []occurrence
		for _, path := range paths {
			r.a.mu.Lock()
			w := r.a.want(path, false)
			r.a.mu.Unlock()
			wanted = append(wanted, occurrence{Event: arbiter.Event{Who: s.who, Claim: w.ID, Class: arbiter.File}, Key: s.by.Key, Root: s.tree.root,
				OnBranch: s.by.Branch, Path: path})
		}
		answer, err := r.claim(ctx, conn, s, wanted)
		if err == nil && answer.Outcome == wire.Granted {
			r.settle(wanted, answer) // it is free by now; the session hears so, and asks itself
		}
	})
}

// holding is a claim of this machine.
type holding struct {
	occurrence
	written gitlog.Millis
}

// atWork is a session of this machine.
type atWork struct {
	party
	detail       []byte
	intent, plan string
}

// here are the sessions of this machine and what they hold, oldest first.
func (a *arbitration) here() (sessions []atWork, holdings []holding) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	for _, s := range a.sequencer.Sessions(now) {
		key := a.sessionOf(s.Session)
		at := atWork{party: party{Key: key, Person: s.Person, Root: a.names.name(worktreeType, s.Worktree), Branch: a.branchOf(s.Branch)},
			detail: s.Detail, intent: string(s.Intent), plan: string(s.Plan)}
		if key != (sessionKey{}) && at.Root != "" {
			sessions = append(sessions, at)
		}
	}
	for _, h := range a.sequencer.Claims(arbiter.Token{}, now) {
		o := occurrence{Event: arbiter.Event{Who: h.Who, Claim: h.Claim, Class: h.Class}, Key: a.sessionOf(h.Session),
			Root: a.names.name(worktreeType, h.Worktree), OnBranch: a.branchOf(h.Branch), Path: a.heldPath(h)}
		if o.Key != (sessionKey{}) && o.Root != "" {
			holdings = append(holdings, holding{o, h.Written})
		}
	}
	return sessions, holdings
}

// assert tells the relay which sessions are at work here and asks for what they hold, oldest first, as far as it does not know.
// What it knows beyond that is over. all: also for what it knows, since tokens changed; else what it does not know is late. It returns
// the writes under claims that the relay gave to others.
func (r *relayRepository) assert(ctx context.Context, conn wire.Conn, all bool) (lost []occurrence) {
	sessions, holdings := r.a.here()
	var roots []string
	for _, s := range sessions {
		roots = append(roots, s.Root)
	}
	for _, h := range holdings {
		roots = append(roots, h.Root)
	}
	r.mu.Lock()
	missed := r.missed
	r.mu.Unlock()
	for _, o := range missed {
		roots = append(roots, o.Root)
	}
	r.locate(ctx, roots...)
	var tell []arbiter.Request
	var ask []*wire.Claim
	var late []holding
	r.mu.Lock()
	now := r.clock.now()
	live := map[arbiter.Token]bool{} // of these it is not told that they are over
	for _, o := range missed {
		if o.Kind == gitlog.SessionEnded && r.dirs[o.Root] != "" {
			live[r.names.session(o.Key)] = true // that is told after what they did
		}
	}
	for _, s := range sessions {
		dir := r.dirs[s.Root]
		if dir == "" {
			continue
		}
		who := r.names.who(s.party, dir)
		live[who.Session] = true
		known, there := r.view.Session(who.Session, now)
		if there && known.Device == r.names.device && len(known.Detail) > 0 && !all {
			if known.Worktree == who.Worktree && known.Branch != who.Branch && known.Branch != who.WasBranch {
				tell = append(tell, arbiter.Move{Who: who})
			}
			continue
		}
		say := func(d arbiter.Declare) {
			d.Late = !all
			tell = append(tell, d)
		}
		say(r.started(who, s.Key, s.detail, s.Branch))
		if s.intent != "" {
			say(declare(who, gitlog.IntentDeclared, r.sealText(gitlog.IntentDeclared, who.Session, s.intent)))
		}
		if s.plan != "" {
			say(declare(who, gitlog.PlanDeclared, r.sealText(gitlog.PlanDeclared, who.Session, s.plan)))
		}
	}
	for _, h := range holdings {
		if _, there := r.view.Claim(h.Claim, now); there && !all {
			continue
		}
		dir := r.dirs[h.Root]
		if dir == "" {
			continue
		}
		who := r.names.who(party{Key: h.Key, Subagent: h.Subagent, Person: h.Person, Root: h.Root, Branch: h.OnBranch}, dir)
		w, ok := r.want(&h.occurrence, who.Session, h.OnBranch, h.Class == arbiter.Hub, 1)
		if !ok {
			continue
		}
		// One by one: a request is granted whole or not at all.
		m := &wire.Claim{Repository: r.a.id.repository, Head: r.names.blinding.Roster.Head,
			Claim: arbiter.Claim{Who: who, Wants: []arbiter.Want{w}, Late: true}}
		if g := r.grants[h.Claim]; g != nil {
			m.Grants = [][]byte{g}
		}
		ask, late = append(ask, m), append(late, h)
	}
	over := r.view.Claims(arbiter.Token{}, now)
	gone := r.view.Sessions(now)
	r.mu.Unlock()
	// What was taken just now is among the own arbiter's claims before it can be among the relay's.
	r.a.mu.Lock()
	for _, h := range over {
		if _, holds := r.a.sequencer.Claim(h.Claim, r.a.now()); h.Device == r.names.device && !holds {
			tell = append(tell, arbiter.Release{Who: h.Who, Claims: []arbiter.ClaimID{h.Claim}, Reason: arbiter.Released})
		}
	}
	r.a.mu.Unlock()
	for _, s := range gone {
		if s.Device == r.names.device && !live[s.Session] && !r.beganAgain(s.Session) {
			tell = append(tell, arbiter.End{Who: s.Who, Reason: arbiter.EndOfLife, Late: !all})
		}
	}
	told := make([]relayTold, len(tell))
	for i, q := range tell {
		told[i].request = q
	}
	r.tellAll(ctx, conn, told)
	for i, m := range ask {
		asking, cancel := context.WithTimeout(ctx, relayRequest)
		answer, err := r.askClaim(asking, conn, m)
		cancel()
		if err != nil {
			r.refused(err)
			continue
		}
		if len(answer.Lost) > 0 && r.lose(&late[i]) {
			lost = append(lost, late[i].occurrence)
		}
	}
	return lost
}

// lose ends a claim that the relay gave to another while it could not be reached. true: the file was written under it.
func (r *relayRepository) lose(h *holding) bool {
	r.a.mu.Lock()
	defer r.a.mu.Unlock()
	if live, holds := r.a.sequencer.Claim(h.Claim, r.a.now()); holds {
		r.a.do(arbiter.Release{Who: live.Who, Claims: []arbiter.ClaimID{h.Claim}, Reason: arbiter.RelaysOrder})
	}
	return h.written != 0
}

// beganAgain says whether a session of this machine that was not at work a moment ago is now.
func (r *relayRepository) beganAgain(session arbiter.Token) bool {
	r.mu.Lock()
	d := r.names.sessions[session]
	r.mu.Unlock()
	return d.Session != "" && r.a.knows(sessionKey{Agent: d.Agent, ID: d.Session})
}

// heldAway says whether a session of another machine has a path, as far as is known.
func heldAway(oc *openClone, by party, wt *worktree, path string) bool {
	return oc.relay != nil && oc.relay.heldBy(by, wt.repo.GitDir, path, arbiter.File, oc.isHub(path)) != nil
}

// takeFrom gives a file that a person took here to them on all machines.
func (r *relayRepository) takeFrom(by party, gitDir string, taken *occurrence) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn == nil {
		return
	}
	who := r.names.who(by, gitDir)
	if w, ok := r.want(taken, who.Session, by.Branch, false, 1); ok {
		r.outbox = append(r.outbox, relayTold{request: arbiter.Take{Who: who, Wants: []arbiter.Want{w}}})
		r.tellMore()
	}
}

// change is closed at the next change of what other machines do.
func (r *relayRepository) change() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}
