package daemon

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"slices"
	"time"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/gitlog"
)

// eventInterrupt ends a turn like Stop: the person broke it off.
const (
	eventInterrupt   = "Interrupt"
	eventToolFailure = "PostToolUseFailure"
)

const (
	// callTime is how long an open tool call keeps its claims at most without another hook.
	callTime = gitlog.Millis(30 * 60 * 1000)
	// halfLease is when a lease is renewed: a hook in its first half changes nothing.
	halfLease = arbiter.Lease / 2
)

// site is a worktree that a hook touches, as claims see it.
type site struct {
	tree  *worktree
	by    party
	mode  gitlog.ClaimMode
	place *socket.Place
	// ordinary are the paths that the call writes and that are claimed, noted those that never are. What git ignores is in
	// neither.
	ordinary, noted []string
	head            string         // the commit that is checked out, where an opaque line is about to run
	who             arbiter.Who    // once the arbiter is locked
	wants           []arbiter.Want // of ordinary
}

// arbitrate tells the arbiters of a hook, and asks them for what it is about to write. It returns what to say where that is
// refused. Whatever goes wrong, the write is allowed.
func (c *hookCall) arbitrate(ctx context.Context) (refused *denial) {
	c.d.guard("claims", func() { refused = c.askArbiters(ctx) })
	if refused == nil && len(c.asks) > 0 {
		c.d.guard("relay", func() { refused = c.askRelays(ctx) })
	}
	if refused != nil && !c.repeated {
		c.d.guard("refused", c.watchRefused)
	}
	return refused
}

func (c *hookCall) askArbiters(ctx context.Context) *denial {
	sites := c.sites(ctx)
	c.worktrees = sites
	arbiters := c.arbiters(sites)
	for _, a := range arbiters {
		a.mu.Lock()
		defer a.finish()
		a.begin()
	}
	if ctx.Err() != nil && c.h.Event == EventPreTool {
		// Nobody waits for the answer any more; what has happened counts all the same, and what a line changes is looked for.
		for _, s := range sites {
			if (c.h.Opaque || c.h.Background) && !c.repeated {
				a := s.tree.clone.arbiter
				a.openCall(c.key, c.callIn(s.tree.root), &openCall{began: a.now(), opaque: c.now, head: s.head})
			}
		}
		return nil
	}
	for _, s := range sites {
		a := s.tree.clone.arbiter
		s.who = a.who(s.by)
		for _, path := range s.ordinary {
			w := a.want(path, s.tree.clone.isHub(path))
			if slices.Contains(s.place.Trees, path) {
				w.Class, w.Hub = arbiter.Tree, false
			}
			s.wants = append(s.wants, w)
		}
	}
	c.weighed = true
	if c.repeated {
		return c.weigh(sites)
	}
	for _, a := range arbiters {
		c.meet(a, sites)
	}
	own := func(key callKey) bool { return key.Subagent == c.h.Subagent }
	switch c.h.Event {
	case EventPreTool, EventPostTool, eventToolFailure:
		own = func(key callKey) bool { return key.Subagent == c.h.Subagent && key.ToolUse != c.h.ToolUse }
	case eventSessionEnd:
		own = func(callKey) bool { return true }
	}
	for _, a := range arbiters {
		c.withoutEnd(a, own)
	}
	switch c.h.Event {
	case EventPreTool:
		if refused := c.weigh(sites); refused != nil {
			return refused
		}
		c.claim(sites)
	case EventPostTool:
		if !c.h.Background { // it runs still; what it changes is looked for at the end of the turn
			c.confirm(sites, arbiter.CallEnded)
		}
	case eventToolFailure:
		c.confirm(sites, arbiter.Failed)
	case EventPrompt, eventSubagentStop:
		for _, a := range arbiters {
			a.closeCalls(c.key, c.h.Subagent)
		}
	case eventStop, eventInterrupt:
		for _, a := range arbiters {
			a.closeCalls(c.key, c.h.Subagent)
			a.stop(c.key, c.h.Tasks)
		}
	case eventSessionEnd:
		for _, a := range arbiters {
			a.end(c.key, arbiter.EndOfLife)
		}
	}
	return nil
}

// late says whether the call is about to write what nobody was asked about: its worktree is still being opened, or the arbiters
// answered nobody in time. It may, and counts as one that failed.
func (c *hookCall) late() bool {
	return c.h.Event == EventPreTool && slices.ContainsFunc(c.places, func(p hookPlace) bool { return len(p.Writes) > 0 && (p.tree == nil || !c.weighed) })
}

// sites are the worktrees of a hook that are open, with what the call writes there.
func (c *hookCall) sites(ctx context.Context) []*site {
	var out []*site
	for i := range c.places {
		p := &c.places[i]
		if p.tree == nil {
			continue
		}
		s := &site{tree: p.tree, by: p.tree.party(ctx, c.key, c.h.Subagent, c.h.User), mode: c.d.claimMode(p.tree.clone), place: &p.Place}
		if len(p.Writes) > 0 {
			for j, kind := range p.tree.kinds(ctx, p.Writes) {
				switch kind {
				case gitlog.FileOrdinary:
					s.ordinary = append(s.ordinary, p.Writes[j])
				case gitlog.FileNoted:
					s.noted = append(s.noted, p.Writes[j])
				}
			}
		}
		if (c.h.Opaque || c.h.Background) && c.h.Event == EventPreTool {
			_, s.head, _ = p.tree.tree.Head(ctx) // "": what a move of it brings is not told from what the line writes
		}
		out = append(out, s)
	}
	return out
}

// arbiters are those of the sites and those that know the session, in the order in which they are locked.
func (c *hookCall) arbiters(sites []*site) []*arbitration {
	var out []*arbitration
	for _, s := range sites {
		out = append(out, s.tree.clone.arbiter)
	}
	for _, a := range c.d.arbitrations.all() {
		if a.knows(c.key) {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(a, b *arbitration) int {
		if order := bytes.Compare(a.id.team[:], b.id.team[:]); order != 0 {
			return order
		}
		return bytes.Compare(a.id.repository[:], b.id.repository[:])
	})
	return slices.Compact(out)
}

// meet makes the session known to an arbiter, moves its claims along with HEAD, and renews them in the second half of their
// lease. The arbiter is locked.
func (c *hookCall) meet(a *arbitration, sites []*site) {
	if c.h.Event == eventSessionEnd {
		return
	}
	l := a.lodger(c.key)
	if c.h.Event != eventSubagentStop {
		l.stopped = false
	}
	if c.process != 0 {
		l.process, l.birth = c.process, c.birth
	}
	token, now := a.sessionToken(c.key), a.now()
	session, known := a.sequencer.Session(token, now)
	var requests []arbiter.Request
	for _, s := range sites {
		if s.tree.clone.arbiter != a {
			continue
		}
		detail := sessionDetail{Owner: s.by.Owner, Name: c.h.Name, Private: c.h.Private}.encode()
		if len(requests) == 0 && (!known || !bytes.Equal(session.Detail, detail)) {
			requests = append(requests, declare(s.who, gitlog.SessionStarted, detail))
			if !known {
				c.met = append(c.met, s.tree)
			}
		}
		if l.moved(s) && a.holdsElsewhere(s, now) {
			requests = append(requests, arbiter.Move{Who: s.who})
		}
	}
	ends := c.h.Event == eventStop || c.h.Event == eventInterrupt
	if !ends && known && now-min(l.renewed, now) >= halfLease {
		l.renewed = now
		if len(a.sequencer.Claims(token, now)) > 0 {
			requests = append(requests, arbiter.Renew{Who: session.Who})
		}
	}
	a.do(requests...)
}

// moved reports whether the session was last seen on another branch in the site's worktree, or is there for the first time
// since the daemon began.
func (l *lodger) moved(s *site) bool {
	was, seen := l.at[s.tree.root]
	if l.at == nil {
		l.at = map[string]string{}
	}
	l.at[s.tree.root] = s.by.Branch
	return !seen || was != s.by.Branch
}

// holdsElsewhere reports whether the session holds a claim in the site's worktree on another branch than is checked out there
// now. mu is held.
func (a *arbitration) holdsElsewhere(s *site, now gitlog.Millis) bool {
	return slices.ContainsFunc(a.sequencer.Claims(s.who.Session, now), func(h arbiter.Hold) bool {
		return h.Worktree == s.who.Worktree && h.Branch != s.who.Branch
	})
}

// weigh says what refuses the call's writes; nil: nothing does. It is computed afresh each time, so that whoever asks twice for
// one call hears the same. The arbiters are locked.
func (c *hookCall) weigh(sites []*site) *denial {
	if c.h.Event != EventPreTool {
		return nil
	}
	refused := &denial{}
	var denied []weighed
	away := map[*site][]string{} // what another machine's session holds
	for _, s := range sites {
		a := s.tree.clone.arbiter
		now := a.now()
		refused.Now = now.Time()
		for i, w := range s.wants {
			if s.mode == gitlog.ClaimsOff {
				break
			}
			h, blocked := a.sequencer.Blocks(s.who, w, now)
			if held, sure := s.heldAway(w, s.ordinary[i]); !blocked && held != nil {
				if !sure || s.mode == gitlog.ClaimsNote {
					c.noteAway(s, held)
					refused.Free = append(refused.Free, s.ordinary[i])
					continue
				}
				refused.Held = append(refused.Held, *held)
				away[s] = append(away[s], s.ordinary[i])
				continue
			}
			if !blocked {
				if h, own := a.sequencer.Presence(s.who, w, now); own {
					c.note(s, h, a.heldBy(h, s, w, s.ordinary[i]))
				}
				refused.Free = append(refused.Free, s.ordinary[i])
				continue
			}
			if s.mode == gitlog.ClaimsNote {
				c.note(s, h, a.heldBy(h, s, w, s.ordinary[i]))
				continue
			}
			denied = append(denied, weighed{s, w, len(refused.Held)})
			refused.Held = append(refused.Held, a.heldBy(h, s, w, s.ordinary[i]))
		}
		refused.Free = append(refused.Free, s.noted...)
	}
	if len(refused.Held) == 0 {
		return nil
	}
	c.beside = nil // they belong to a write
	if c.repeated {
		return refused
	}
	asked := map[*site]bool{}
	for _, each := range denied {
		s := each.site
		if !asked[s] {
			asked[s] = true
			s.tree.clone.arbiter.do(arbiter.Claim{Who: s.who, Wants: s.wants})
		}
		refused.Held[each.at].Place = s.tree.clone.arbiter.placeOf(s, each.want)
	}
	if len(away) > 0 {
		c.awaitFree(slices.DeleteFunc(slices.Clone(refused.Held), func(h heldFile) bool { return !h.Away }))
	}
	for s, paths := range away {
		s.away().register(s, paths)
	}
	return refused
}

// weighed is a path that something here blocks.
type weighed struct {
	site *site
	want arbiter.Want
	at   int // in denial.Held
}

// note has the write told of who else is at its file. Nothing is refused for it.
func (c *hookCall) note(s *site, h arbiter.Hold, f heldFile) {
	n := News{Key: "held " + hex.EncodeToString(h.Claim[:]) + " " + f.Path, Kind: NewsHeld, At: gitlog.MillisOf(f.Since), Root: s.tree.root, Path: f.Path,
		By: f.Holder, Branch: f.Branch, Text: f.Intent}
	if !f.Written.IsZero() {
		n.At = gitlog.MillisOf(f.Written)
	}
	c.beside = append(c.beside, n)
}

// placeOf is the place of a session in a hub's queue; 0: it is in none. mu is held.
func (a *arbitration) placeOf(s *site, w arbiter.Want) int {
	for _, each := range a.sequencer.Queue(s.who, w, a.now()).Waits {
		if each.Session == s.who.Session {
			return each.Place
		}
	}
	return 0
}

// heldBy describes what blocks a path. mu is held.
func (a *arbitration) heldBy(h arbiter.Hold, s *site, w arbiter.Want, path string) heldFile {
	session, _ := a.sequencer.Session(h.Session, a.now())
	f := heldFile{Path: path, Root: s.tree.root, Holder: peerOf(s.tree.clone.clone, session, a.sessionOf(h.Session)), Branch: a.branchOf(h.Branch),
		Turn: h.Claim == arbiter.ClaimID{}, Place: a.placeOf(s, w)}
	if !decodeSessionDetail(session.Detail).Private {
		f.Intent = string(session.Intent)
	}
	switch spelled := a.heldPath(h); {
	case w.Class == arbiter.Tree:
		f.Path = spelled // what is held may be one file below
	case h.Class != arbiter.Tree && spelled != path:
		f.Spelled = spelled
	}
	for _, each := range []struct {
		at   gitlog.Millis
		into *time.Time
	}{{h.Since, &f.Since}, {h.Written, &f.Written}, {h.Until, &f.Until}} {
		if each.at != 0 {
			*each.into = each.at.Time()
		}
	}
	return f
}

// claim takes what the call is about to write: nothing blocks it. The arbiters are locked.
func (c *hookCall) claim(sites []*site) {
	for _, s := range sites {
		a := s.tree.clone.arbiter
		call := &openCall{began: a.now(), stamps: map[string]stamp{}, head: s.head}
		if c.h.Opaque || c.h.Background {
			call.opaque = c.now
		}
		for _, path := range s.place.Writes {
			call.stamps[path] = stampOf(s.tree.root, path)
			if !slices.Contains(s.ordinary, path) && !slices.Contains(s.noted, path) {
				call.ignored = append(call.ignored, path)
			}
		}
		if len(s.wants) > 0 && s.mode != gitlog.ClaimsOff {
			var took []occurrence
			for _, o := range a.do(arbiter.Claim{Who: s.who, Wants: s.wants, Note: s.mode == gitlog.ClaimsNote}) {
				if o.Kind == gitlog.ClaimAcquired && o.Session == s.who.Session {
					call.took = append(call.took, o.Claim)
					took = append(took, o)
				}
			}
			if r := s.away(); r != nil && len(took) > 0 {
				c.asks = append(c.asks, &relayAsk{site: s, r: r, took: took})
			}
			now := a.now()
			for _, w := range s.wants {
				if h, holds := a.sequencer.Holding(s.who, w, now); holds {
					call.claims = append(call.claims, h.Claim)
					a.lodger(c.key).users[h.Claim] = c.h.Subagent
				}
			}
		}
		if len(s.place.Writes) > 0 || c.h.Opaque || c.h.Background {
			a.openCall(c.key, c.callIn(s.tree.root), call)
		}
	}
}

// confirm says what a call wrote, and closes it: what it took and did not write is let go. The arbiters are locked.
func (c *hookCall) confirm(sites []*site, reason arbiter.Reason) {
	for _, s := range sites {
		a := s.tree.clone.arbiter
		l := a.lodger(c.key)
		key := c.callIn(s.tree.root)
		call := l.calls[key]
		c.endOpaque(s, call)
		var written, removed []string
		for _, path := range slices.Concat(s.ordinary, s.noted) {
			now := stampOf(s.tree.root, path)
			if call != nil && (c.h.Shell || reason == arbiter.Failed || call.looked) && call.stamps != nil && call.stamps[path] == now {
				continue // a shell names what it may write, and it did not, or failed before; or it is known already
			}
			if reason == arbiter.Failed && (call == nil || !c.h.Shell && !call.refused) {
				continue
			}
			if now == (stamp{}) {
				removed = append(removed, path)
			} else {
				written = append(written, path)
			}
		}
		var requests []arbiter.Request
		if len(written)+len(removed) > 0 {
			requests = append(requests, a.writing(s.by, written, removed))
		}
		if call != nil && len(call.took) > 0 {
			requests = append(requests, arbiter.Release{Who: s.who, Claims: call.took, Reason: reason})
		}
		a.closeCall(c.key, key)
		for _, o := range a.do(requests...) {
			if o.Claim != (arbiter.ClaimID{}) && o.Session == s.who.Session && (o.Kind == gitlog.FileWritten || o.Kind == gitlog.PathRemoved) {
				l.users[o.Claim] = c.h.Subagent
			}
		}
	}
}

// lodger is what an arbitration has to know of a session beside its claims. The arbitration's lock guards it.
type lodger struct {
	calls   map[callKey]*openCall
	stopped bool                       // its turn has ended
	renewed gitlog.Millis              // when its claims were
	at      map[string]string          // the branch that it was last seen on, by worktree
	users   map[arbiter.ClaimID]string // the subagent that used a claim last
	process int                        // of its agent; 0: not known
	birth   uint64
}

// begin makes time stand still until finish, so that what is found is what is decided about. mu is held.
func (a *arbitration) begin() {
	a.frozen = a.now()
	a.passOn(a.happened(a.sequencer.Tick(a.frozen)))
}

// finish unlocks.
func (a *arbitration) finish() {
	a.frozen = 0
	a.mu.Unlock()
}

// knows reports whether a session was here and has not ended.
func (a *arbitration) knows(key sessionKey) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, known := a.sequencer.Session(a.sessionToken(key), a.now())
	return known
}

// lodger returns what is known of a session here. mu is held.
func (a *arbitration) lodger(key sessionKey) *lodger {
	l := a.lodgers[key]
	if l == nil {
		l = &lodger{calls: map[callKey]*openCall{}, users: map[arbiter.ClaimID]string{}}
		a.lodgers[key] = l
	}
	return l
}

// stop ends the claims of a session whose turn has ended, but for those that subagents use which go on in the background. mu
// is held.
func (a *arbitration) stop(session sessionKey, tasks []socket.Task) {
	l := a.lodgers[session]
	now := a.now()
	known, here := a.sequencer.Session(a.sessionToken(session), now)
	if l == nil || !here {
		return
	}
	var running []string
	for _, t := range tasks {
		if t.Type == "subagent" && t.Status == "running" {
			running = append(running, t.ID)
		}
	}
	r := arbiter.Stop{Who: known.Who}
	if len(running) > 0 {
		for _, h := range a.sequencer.Claims(known.Session, now) {
			user, used := l.users[h.Claim]
			if used && slices.Contains(running, user) || slices.Contains(running, h.Subagent) {
				r.Keep = append(r.Keep, h.Claim)
			}
		}
	}
	l.stopped = true
	if len(r.Keep) == 0 {
		clear(l.users)
	}
	a.do(r)
}

// passOn offers on the turns that were just offered to sessions which sit idle. mu is held.
func (a *arbitration) passOn(happened []occurrence) (more []occurrence) {
	for _, o := range happened {
		offered := o.Kind == gitlog.HubTurn || o.Kind == gitlog.PathFreed && o.Class == arbiter.Hub
		if l := a.lodgers[o.Key]; offered && l != nil && l.stopped && len(l.calls) == 0 {
			if session, known := a.sequencer.Session(o.Session, a.now()); known {
				more = append(more, a.do(arbiter.Idle{Who: session.Who})...)
			}
		}
	}
	return more
}

// renewCalls renews what open calls hold, as long as the agent's process lives, and forgets sessions that are long gone.
func (a *arbitration) renewCalls() {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	for key, l := range a.lodgers {
		session, known := a.sequencer.Session(a.sessionToken(key), now)
		if !known {
			delete(a.lodgers, key)
			continue
		}
		if l.process == 0 || birthOf(l.process) != l.birth {
			continue
		}
		for _, call := range l.calls {
			if len(call.claims) > 0 && now-call.began < callTime && now-max(call.renewed, call.began) >= halfLease {
				call.renewed = now
				a.do(arbiter.Renew{Who: session.Who, Claims: call.claims})
			}
		}
	}
}

// audited says whether an audit log has events of a kind. The others are of the moment.
func audited(kind gitlog.EntryKind) bool {
	switch kind {
	case gitlog.ClaimRenewed, gitlog.Message, gitlog.MemoryPublished:
		return false
	}
	return true
}

// sessionDetail is what an arbiter's SessionStarted says of a session beside its tokens.
type sessionDetail struct {
	Owner   string `json:"owner,omitempty"` // the address of its person
	Name    string `json:"name,omitempty"`  // of the agent (KNOOT_AGENT)
	Private bool   `json:"private,omitempty"`
}

func (s sessionDetail) encode() []byte {
	text, err := json.Marshal(s)
	if err != nil {
		return nil // texts and a truth always encode
	}
	return text
}

func decodeSessionDetail(text []byte) (s sessionDetail) {
	_ = json.Unmarshal(text, &s) // one that says nothing is that of a session of which nothing is known
	return s
}
