package daemon

import (
	"maps"
	"slices"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/gitlog"
)

// callKey names a tool call within a session, in one of the worktrees that it is about.
type callKey struct {
	Root     string `json:"root,omitempty"`
	Subagent string `json:"subagent,omitempty"`
	ToolUse  string `json:"tool_use,omitempty"`
}

// callIn is this call in a worktree.
func (c *hookCall) callIn(root string) callKey {
	return callKey{Root: root, Subagent: c.h.Subagent, ToolUse: c.h.ToolUse}
}

// openCall is a tool call that has begun and of whose end nothing is known.
type openCall struct {
	began   gitlog.Millis
	renewed gitlog.Millis
	took    []arbiter.ClaimID // claims that it took
	claims  []arbiter.ClaimID // those that its writes are under
	// stamps are of the files that it names as written, when it began or when they were last looked at; nil: not known. The map is
	// replaced, and not written to. ignored are those of them that git ignores.
	stamps  map[string]stamp
	ignored []string
	opaque  gitlog.Millis // since when files that it does not name may have changed and were not looked for; 0: it names all
	head    string        // the commit that was checked out when it began
	refused bool          // it was denied, and should not have run
	looked  bool          // a later hook came before its end, and what it had written until then is known
}

// callRecord says that a call began, or ended.
type callRecord struct {
	Session sessionKey `json:"session"`
	callKey
	Began   gitlog.Millis    `json:"began,omitempty"`
	Took    [][]byte         `json:"took,omitempty"`
	Claims  [][]byte         `json:"claims,omitempty"`
	Stamps  map[string]stamp `json:"stamps,omitempty"`
	Ignored []string         `json:"ignored,omitempty"`
	Opaque  gitlog.Millis    `json:"opaque,omitempty"`
	Head    string           `json:"head,omitempty"`
	Refused bool             `json:"refused,omitempty"`
	Looked  bool             `json:"looked,omitempty"`
	Ended   bool             `json:"ended,omitempty"`
}

func (l *lodger) apply(r callRecord) {
	if r.Ended {
		delete(l.calls, r.callKey)
		return
	}
	l.calls[r.callKey] = &openCall{began: r.Began, took: claimsOf(r.Took), claims: claimsOf(r.Claims), stamps: r.Stamps, ignored: r.Ignored,
		opaque: r.Opaque, head: r.Head, refused: r.Refused, looked: r.Looked}
}

func (l *lodger) records(key sessionKey) (out []callRecord) {
	for k, c := range l.calls {
		out = append(out, c.record(key, k))
	}
	return out
}

func (c *openCall) record(session sessionKey, key callKey) callRecord {
	r := callRecord{Session: session, callKey: key, Began: c.began, Stamps: c.stamps, Ignored: c.ignored, Opaque: c.opaque, Head: c.head,
		Refused: c.refused, Looked: c.looked}
	for i := range c.took {
		r.Took = append(r.Took, c.took[i][:])
	}
	for i := range c.claims {
		r.Claims = append(r.Claims, c.claims[i][:])
	}
	return r
}

func claimsOf(ids [][]byte) (out []arbiter.ClaimID) {
	for _, id := range ids {
		if len(id) == len(arbiter.ClaimID{}) {
			out = append(out, arbiter.ClaimID(id))
		}
	}
	return out
}

// openCall keeps that a call has begun, or what else became known of it. mu is held.
func (a *arbitration) openCall(session sessionKey, key callKey, call *openCall) {
	a.lodger(session).calls[key] = call
	a.append(&arbiterRecord{Calls: []callRecord{call.record(session, key)}})
}

// closeCall keeps that a call has ended. mu is held.
func (a *arbitration) closeCall(session sessionKey, key callKey) *openCall {
	l := a.lodger(session)
	call := l.calls[key]
	if call != nil {
		delete(l.calls, key)
		a.append(&arbiterRecord{Calls: []callRecord{{Session: session, callKey: key, Ended: true}}})
	}
	return call
}

// closeCalls closes the calls of a context of whose end nothing was heard: they were denied by somebody else, broken off, or
// failed without a word. What they took and nobody confirmed ends. mu is held.
func (a *arbitration) closeCalls(session sessionKey, subagent string) {
	l := a.lodgers[session]
	if l == nil {
		return
	}
	var took []arbiter.ClaimID
	for key := range l.calls {
		if key.Subagent == subagent {
			took = append(took, a.closeCall(session, key).took...)
		}
	}
	known, here := a.sequencer.Session(a.sessionToken(session), a.now())
	if len(took) > 0 && here {
		a.do(arbiter.Release{Who: known.Who, Claims: took, Reason: arbiter.CallEnded})
	}
}

// names are the paths that the call is to be asked about, in their order: git does not ignore them.
func (c *openCall) names() []string {
	paths := slices.Sorted(maps.Keys(c.stamps))
	return slices.DeleteFunc(paths, func(path string) bool { return slices.Contains(c.ignored, path) })
}

// withoutEnd looks at calls of this session of whose end nothing was heard though a later hook of theirs came. Some agents say
// nothing of it, and some run what they were denied. What such a call named counts as written where it is not as it was, and what else it
// may have changed is looked for after the answer. The arbiter is locked.
func (c *hookCall) withoutEnd(a *arbitration, which func(callKey) bool) {
	l := a.lodgers[c.key]
	if l == nil {
		return
	}
	ends := slices.Contains([]string{EventPrompt, eventSubagentStop, eventStop, eventInterrupt, eventSessionEnd}, c.h.Event)
	for key, call := range l.calls {
		if !which(key) || call.looked && !ends { // it goes on, in the background or beside others
			continue
		}
		wt := c.d.clones.opened(key.Root)
		if wt == nil {
			continue
		}
		// Where the session last was there: to ask git now would have everybody wait who wants to know of this repository.
		by := party{Key: c.key, Subagent: key.Subagent, Owner: wt.clone.person(c.h.User), Root: wt.root, Branch: l.at[key.Root]}
		c.wroteWithoutEnd(a, l, wt, by, call)
		if call.opaque != 0 {
			c.opaque = append(c.opaque, opaqueCall{tree: wt, by: by, from: call.opaque, until: c.now, head: call.head, reported: call.names()})
			call.opaque = c.now
		}
		if call.refused {
			a.closeCall(c.key, key) // what changes from now on has other reasons
			continue
		}
		call.looked = true
		a.openCall(c.key, key, call)
	}
}

// wroteWithoutEnd has those files sequenced as written which a call named and which are not as they were. The arbiter is locked.
func (c *hookCall) wroteWithoutEnd(a *arbitration, l *lodger, wt *worktree, by party, call *openCall) {
	var written, removed []string
	var touched []*touch
	stamps := maps.Clone(call.stamps)
	who := a.who(by)
	for _, path := range call.names() {
		now := stampOf(wt.root, path)
		if now == stamps[path] || now.Dir || call.refused && a.othersWrite(who, c.key, wt.root, path, call.began) {
			continue
		}
		stamps[path] = now
		if now == (stamp{}) {
			removed = append(removed, path)
		} else {
			written = append(written, path)
		}
		touched = append(touched, &touch{Root: wt.root, Path: path, At: c.now, Stamp: now})
	}
	if len(touched) == 0 {
		return
	}
	call.stamps = stamps
	if !call.refused { // else nobody knows who did it
		c.d.state.mu.Lock()
		if s := c.d.state.sessions[c.key]; s != nil {
			for _, t := range touched {
				t.Wrote = s.context(by.Subagent).turn
			}
			c.d.state.commit(&stateRecord{At: c.now, Session: c.key, Subagent: by.Subagent, Aside: true, Touched: touched})
		}
		c.d.state.mu.Unlock()
	}
	a.denied = call.refused
	defer func() { a.denied = false }()
	for _, o := range a.do(a.writing(by, written, removed)) {
		if o.Claim != (arbiter.ClaimID{}) && o.Session == who.Session && (o.Kind == gitlog.FileWritten || o.Kind == gitlog.PathRemoved) {
			l.users[o.Claim] = by.Subagent
		}
	}
}

// othersWrite says whether another session, or a person, wrote a file in a worktree since a time, or is about to. mu is held.
func (a *arbitration) othersWrite(who arbiter.Who, key sessionKey, root, path string, since gitlog.Millis) bool {
	for _, w := range a.sequencer.Writes(who.Session, arbiter.Order{}, a.now(), a.pathToken(path)) {
		if w.Worktree == who.Worktree && w.Time >= since {
			return true
		}
	}
	for other, l := range a.lodgers {
		for k, call := range l.calls {
			if _, names := call.stamps[path]; names && other != key && k.Root == root && !call.refused {
				return true
			}
		}
	}
	return false
}

// watchRefused keeps how files are whose write was refused: should it happen all the same, that is found with the next hook.
func (c *hookCall) watchRefused() {
	for _, s := range c.worktrees {
		if paths := slices.Concat(s.ordinary, s.noted); len(paths) > 0 {
			c.watch(s.tree, paths)
		}
	}
}

// watch is watchRefused for files of one worktree.
func (c *hookCall) watch(wt *worktree, paths []string) {
	call := &openCall{stamps: map[string]stamp{}, refused: true}
	for _, path := range paths {
		call.stamps[path] = stampOf(wt.root, path)
	}
	a := wt.clone.arbiter
	a.mu.Lock()
	defer a.mu.Unlock()
	call.began = a.now()
	a.openCall(c.key, c.callIn(wt.root), call)
}

// endOpaque takes note of an opaque call that has ended: what it changed is looked for after the answer. nil is a call of whose beginning
// nothing is known here, since the worktree was being opened still, say; then it is the session's hook before this one. The arbiter
// is locked.
func (c *hookCall) endOpaque(s *site, call *openCall) {
	o := opaqueCall{tree: s.tree, by: s.by, until: c.now, reported: slices.Concat(s.ordinary, s.noted)}
	switch {
	case call != nil:
		o.from, o.head = call.opaque, call.head
	case c.h.Opaque && c.last+openCallKept >= c.now:
		o.from = c.last
	}
	if o.from != 0 {
		c.opaque = append(c.opaque, o)
	}
}
