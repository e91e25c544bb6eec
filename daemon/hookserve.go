package daemon

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/gitlog"
)

const (
	// hookTime is how long a hook's answer may take here. The shim gives up 300 ms after it has read its payload; what
	// comes later is told to nobody, so it is not composed.
	hookTime = 240 * time.Millisecond
	// refreshTime is how long a prompt waits for what a plain `git fetch` brought.
	refreshTime = 80 * time.Millisecond
	// withheldWindow is how much of a prompt is looked at for credentials: an intent is its beginning, and a secret that
	// begins there has to be recognised whole.
	withheldWindow = 4096
	// recentTurns is of how many turns a context that began anew is still told facts.
	recentTurns = 10
)

// The other events that matter here, named alike for every agent.
const (
	eventSubagentStop = "SubagentStop"
	eventStop         = "Stop"
	eventSessionEnd   = "SessionEnd"
)

// hook answers a hook. Whatever goes wrong is an empty answer.
func (d *daemon) hook(ctx context.Context, h *socket.Hook) *reply {
	d.lastUse.Store(d.options.Now().UnixMilli())
	silent := &reply{Response: &socket.Response{Answer: &socket.Answer{}}}
	now := d.now()
	if h.Agent == "" || h.Session == "" || h.Event == "" || paused(filepath.Join(d.home.Dir, "off"), now) {
		return silent
	}
	ctx, cancel := context.WithTimeout(ctx, d.options.HookTime)
	defer cancel()
	d.presences.hear(h, now)
	places := d.placesOf(ctx, h, now)
	said := &hookCall{d: d, h: h, now: now, places: places, key: sessionKey{Agent: h.Agent, ID: h.Session}}
	if len(places) == 0 {
		said.arbitrate(ctx) // a turn may end elsewhere than where its claims are
		silent.after = said.after
		return silent
	}
	said.narrow()
	said.register()
	if h.Event != eventStop {
		said.hear()
	}
	r := &reply{Response: &socket.Response{Answer: &socket.Answer{}}}
	if !said.repeated {
		r.after = said.after
	}
	if h.Event == eventStop && !said.repeated && !h.Repaired && !h.Silent {
		// First: a turn that is held open keeps its claims.
		if shown := said.brief(ctx); shown != nil {
			r.Answer.Hold = shown.Text
			r.unwritten = func() {
				said.takeBack()
				said.arbitrate(d.work)
				said.hear()
			}
			return r
		}
	}
	if h.Event == eventStop { // not one that is held open: its turn goes on
		said.hear()
	}
	if !h.Repaired && said.refuseSweep(ctx, r.Answer) {
		if !said.repeated {
			r.unwritten = said.takeBack
		}
		return r
	}
	refused := said.arbitrate(ctx)
	r.Answer.Late = said.late()
	if h.Repaired {
		return r
	}
	if refused != nil {
		said.refuse(refused, r.Answer)
		if !said.repeated {
			r.unwritten = said.takeBack
		}
		return r
	}
	if said.repeated || h.Event == eventStop || h.Silent {
		return r
	}
	if shown := said.brief(ctx); shown != nil {
		r.Answer.Context = shown.Text
		r.unwritten = said.takeBack
	}
	return r
}

// hookPlace is a worktree that a hook touches and in which knoot is on.
type hookPlace struct {
	socket.Place
	tree *worktree // nil: it is still being opened
}

// placesOf opens the worktrees of a hook. Repositories without knoot are left out.
func (d *daemon) placesOf(ctx context.Context, h *socket.Hook, now gitlog.Millis) []hookPlace {
	var out []hookPlace
	for _, p := range h.Places {
		if !filepath.IsAbs(p.Root) {
			continue
		}
		p = canonicalPlace(p)
		wt, err := d.clones.find(ctx, p.Root)
		switch {
		case err == nil:
			if wt.clone.paused(now) {
				continue
			}
			wt.clone.use()
			out = append(out, hookPlace{Place: p, tree: wt})
		case errors.Is(err, context.DeadlineExceeded):
			out = append(out, hookPlace{Place: p})
		}
	}
	return out
}

// canonicalPlace has each path in the one spelling in which paths are known here, whichever form of a letter with an accent a file
// system or an agent prefers. What no path in git looks like is left out.
func canonicalPlace(p socket.Place) socket.Place {
	p.Reads, p.Writes, p.Trees = canonicalPaths(p.Reads), canonicalPaths(p.Writes), canonicalPaths(p.Trees)
	p.Sweeps = slices.Clone(p.Sweeps)
	for i := range p.Sweeps {
		s := &p.Sweeps[i]
		if reached := canonicalPaths(s.Paths); len(reached) > 0 || len(s.Paths) == 0 {
			s.Paths = reached
		}
	}
	return p
}

func canonicalPaths(paths []string) []string {
	var out []string
	for _, path := range paths {
		if path, err := gitlog.CanonicalPath(path); err == nil && path != "" {
			out = append(out, path)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// hookCall is one hook on its way through the daemon.
type hookCall struct {
	d      *daemon
	h      *socket.Hook
	now    gitlog.Millis
	places []hookPlace
	key    sessionKey
	prompt string        // a prompt that a person typed, for an intent; else ""
	last   gitlog.Millis // the session's hook before this one; 0: there was none
	told   *stateRecord  // of what was told; nil: nothing was

	process int    // of the session's agent; 0: not known
	birth   uint64 // of the process

	// repeated says that this hook came before: with hooks installed twice (in the repository and for the person) an agent
	// runs both at once and merges what they say. The second is recorded no second time. What there is to tell was told
	// through the first, so its answer is empty but for a denial, which both give.
	repeated  bool
	weighed   bool        // the arbiters were asked in time
	worktrees []*site     // once they were
	asks      []*relayAsk // what is to be asked of relays
	met       []*worktree // whose repository's arbiter did not know the session
	beside    []News      // who else is at the files that are about to be written

	opaque []opaqueCall // that have ended
}

// register makes the session known, whichever event comes first, and what its context read and wrote.
func (c *hookCall) register() {
	h, st := c.h, c.d.state
	call := h.ToolUse
	if call == "" {
		call = h.PromptID
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.ready(c.now)
	if h.Payload != "" && st.isRepeated(onceKey{h.Agent, h.Session, h.Subagent, h.Event, call, h.Payload}, c.d.options.Now()) {
		c.repeated = true
		return
	}
	st.lastHook[h.Agent] = c.now
	s := st.sessions[c.key]
	r := &stateRecord{At: c.now, Session: c.key, Subagent: h.Subagent, Ended: h.Event == eventSessionEnd,
		Stopped: h.Event == eventSubagentStop && h.Subagent != ""}
	process := h.Process
	if process == 0 && (s == nil || s.process == 0 && (h.Event == EventSessionStart || h.Event == EventPrompt)) {
		process = agentProcess(h)
	}
	if s == nil || s.home == "" || s.process != process && process != 0 || s.private != h.Private {
		r.Start = &sessionStart{Home: c.places[0].Root, Process: process, Person: h.User, Name: h.Name, Private: h.Private}
		if process != 0 {
			r.Start.Birth = birthOf(process)
		}
	}
	turn := 1
	if s != nil {
		turn, c.last = s.context(h.Subagent).turn, s.seen
	}
	switch h.Event {
	case EventPrompt, EventSubagentStart:
		turn++
		r.Turn = turn
	case EventSessionStart:
		r.Cleared = h.Source != "resume" && h.Source != "fork"
	}
	for _, p := range c.places {
		r.Touched = append(r.Touched, c.touches(p.Place, turn)...)
	}
	if h.Event == eventSubagentStop && s != nil {
		// What it waits for its session waits for.
		if news := s.context(h.Subagent).waiting(); len(news) > 0 {
			st.commit(&stateRecord{At: c.now, Session: c.key, Aside: true, News: news})
		}
	}
	if h.Event == EventPrompt && !h.Private && !h.Repaired && c.d.config.now().Share.Intent == "text" {
		had := ""
		if s != nil {
			had = s.intent
		}
		if intent := intentOf(h.Prompt, h.Machine, had); intent != "" && intent != had {
			r.Intent, c.prompt = &intent, h.Prompt
		}
	}
	r.Owed = c.happened()
	st.commit(r)
	s = st.sessions[c.key]
	c.process, c.birth = s.process, s.birth
}

// touches are what a call has read and written in a place. A write counts once it happened; a denied or failed one left
// the file as it was, but for a command line, which may fail after it.
func (c *hookCall) touches(p socket.Place, turn int) []*touch {
	var out []*touch
	switch c.h.Event {
	case EventPreTool, EventPostTool:
		for _, path := range p.Reads {
			out = append(out, &touch{Root: p.Root, Path: path, Read: turn, At: c.now, Stamp: stampOf(p.Root, path)})
		}
	}
	if c.h.Event == EventPreTool {
		for _, path := range p.Writes {
			if !there(p.Root, path) {
				out = append(out, &touch{Root: p.Root, Path: path, At: c.now}) // if it is written, it is made
			}
		}
	}
	if c.h.Event == EventPostTool || c.h.Event == eventToolFailure && c.h.Shell {
		for _, path := range p.Writes {
			out = append(out, &touch{Root: p.Root, Path: path, Wrote: turn, At: c.now, Stamp: stampOf(p.Root, path)})
		}
	}
	return out
}

// happened is what audit logs are to say of this hook where no arbiter could be told: the worktree is still being opened. It
// is owed to them until after the answer.
func (c *hookCall) happened() (owed []happening) {
	note := func(root string, kind gitlog.EntryKind) *happening {
		owed = append(owed, happening{ID: rand.Uint64(), Root: root, At: c.now, Kind: kind, Subagent: c.h.Subagent})
		return &owed[len(owed)-1]
	}
	for i, p := range c.places {
		if p.tree != nil {
			continue
		}
		if i == 0 && c.h.Event == EventSessionStart {
			note(p.Root, gitlog.SessionStarted)
		}
		if c.h.Event == EventPostTool && len(p.Writes) > 0 {
			note(p.Root, gitlog.FileWritten).Written = p.Writes
		}
	}
	return owed
}

// brief composes what the context is told, and records that it was told before anybody is.
func (c *hookCall) brief(ctx context.Context) *Shown {
	switch c.h.Event {
	case EventSessionStart, EventSubagentStart, EventPrompt:
		if p := c.places[0]; p.tree != nil {
			if moved := p.tree.clone.refreshIfMoved(); moved != nil {
				select {
				case <-moved:
				case <-time.After(refreshTime):
				case <-ctx.Done():
				}
			}
			if c.prompt != "" {
				c.d.likeTasks(p.tree, c.key, c.now)
			}
			return c.briefIn(ctx, p)
		}
	case EventPreTool, EventPostTool:
		// A call that touches several repositories is told about the first that has something to say; the others'
		// facts wait for a call of their own. News comes with any call.
		for i, p := range c.places {
			if p.tree != nil && (i == 0 || len(p.Reads)+len(p.Writes) > 0) {
				if len(p.Reads)+len(p.Writes) > 0 {
					p.tree.clone.refreshIfMoved()
				}
				if shown := c.briefIn(ctx, p); shown != nil {
					return shown
				}
			}
		}
	case eventStop:
		if p := c.places[0]; p.tree != nil && c.mayHold() {
			return c.briefIn(ctx, p)
		}
	}
	return nil
}

// mayHold says whether the turn that ends may be held open, if there is a reason: once, and not while something else will prompt.
func (c *hookCall) mayHold() bool {
	if c.h.StopHook || c.h.Subagent != "" || len(c.h.Tasks) > 0 || !c.d.config.now().Brief.HoldStop {
		return false
	}
	c.d.state.mu.Lock()
	defer c.d.state.mu.Unlock()
	s := c.d.state.sessions[c.key]
	mine := s.context("")
	return mine.held != mine.turn
}

func (c *hookCall) briefIn(ctx context.Context, p hookPlace) *Shown {
	wt, config := p.tree, c.d.config.now()
	in := &BriefInput{Event: c.h.Event, Source: c.h.Source, Subagent: c.h.Subagent != "", Now: c.now.Time(),
		Budget: BriefBudget{Turn: config.Brief.Turn, Start: config.Brief.Start, Resume: config.Brief.Resume, Invite: config.Brief.Invite},
		Prompt: c.h.Prompt, Root: wt.root, FoldCase: wt.folds}
	opens := c.h.Event == EventSessionStart || c.h.Event == EventSubagentStart || c.h.Event == EventPrompt
	around := c.surroundings(ctx, p, opens)
	around.news = append(around.news, c.beside...)
	in.Peers, in.Queues, in.Doing = around.peers, around.queues, around.doing
	if c.h.Event == eventStop {
		shown, _ := c.compose(in, around, nil)
		return shown
	}
	if c.h.Event == EventPreTool {
		in.Writes = p.Writes
	}
	if c.h.Event == EventPreTool || c.h.Event == EventPostTool {
		in.Call = append(slices.Clone(p.Reads), p.Writes...)
		in.Facts = wt.facts.about(in.Call, c.now)
	} else {
		in.Facts = wt.facts.all(c.now)
	}
	if c.h.Event == EventSessionStart && (c.h.Source == "resume" || c.h.Source == "fork") {
		in.Since = c.since(ctx, p)
	}
	in.Introduction = c.introduction()
	if len(in.Facts)+len(in.Peers)+len(in.Queues)+len(around.news) == 0 && in.Since == nil && c.h.Event != EventSessionStart && in.Introduction == "" && !c.hasNews() {
		return nil
	}
	in.Instructions = wt.instructions(c.h.Cwd)

	// Which facts are told depends on whether they are stale, and only for those that are told it is worth to know: so
	// it is composed, those are judged, and it is composed again if that changed anything.
	judging, cancel := context.WithTimeout(ctx, judgeTime)
	defer cancel()
	judged := map[string]bool{}
	for range 4 {
		shown, fresh := c.compose(in, around, judged)
		if len(fresh) == 0 {
			return shown
		}
		wt.facts.judge(judging, in.Facts, fresh, c.now)
	}
	shown, _ := c.compose(in, around, nil)
	return shown
}

// introduction is what the session is still to be told of who it is. Its start may have been missed, or nobody took that answer: then its
// next prompt tells.
func (c *hookCall) introduction() string {
	if c.h.Event != EventSessionStart && c.h.Event != EventPrompt || c.h.Subagent != "" {
		return ""
	}
	c.d.state.mu.Lock()
	told := c.d.state.sessions[c.key].introduced
	c.d.state.mu.Unlock()
	if told {
		return ""
	}
	return c.d.introduction(c.key)
}

// compose tells the context what there is to tell, unless that holds facts that are not judged: then it says which, marks
// them in judged, and nothing is told yet. nil for judged: whatever is told is told.
func (c *hookCall) compose(in *BriefInput, around *surroundings, judged map[string]bool) (shown *Shown, fresh map[string]bool) {
	c.d.state.mu.Lock()
	defer c.d.state.mu.Unlock()
	c.fill(in, around)
	b := Compose(in)
	if judged != nil {
		fresh = map[string]bool{}
		for _, f := range b.Facts {
			if !judged[f.ID] {
				fresh[f.ID], judged[f.ID] = true, true
			}
		}
		if len(fresh) > 0 {
			return nil, fresh
		}
	}
	return c.tell(in, &b), nil
}

// fill puts what depends on the session into in. state.mu is held, and stays so until Compose has run.
func (c *hookCall) fill(in *BriefInput, around *surroundings) {
	s := c.d.state.sessions[c.key]
	ctx := s.context(c.h.Subagent)
	in.Told, in.Spent, in.Invited = ctx.told, ctx.spent, s.invited
	if s.introduced {
		in.Introduction = ""
	}
	in.TurnNumber, in.Waits, in.News = ctx.turn, ctx.waitsIn(ctx.turn), ctx.newsFor(in, around)
	in.Turn, in.Session, in.Own = in.Turn[:0], in.Session[:0], in.Own[:0]
	for i := range in.Facts {
		if f := &in.Facts[i]; f.Stale {
			for _, path := range f.Paths {
				if t := ctx.touched[in.Root][path]; t != nil && t.Wrote != 0 && t.Stamp == stampOf(in.Root, path) {
					in.Own = append(in.Own, path)
				}
			}
		}
	}
	if in.Event == EventPreTool || in.Event == EventPostTool {
		return
	}
	// A prompt begins a turn; what the last one touched is what the session is at.
	last := ctx.turn - 1
	for path, t := range ctx.touched[in.Root] {
		if t.Read == 0 && t.Wrote == 0 {
			continue // it was looked at before a write, and that did not come
		}
		// After compaction it is at what it did last, and not at all that it did before.
		if t.At >= ctx.emptied || max(t.Read, t.Wrote)+recentTurns > ctx.turn {
			in.Session = append(in.Session, path)
		}
		if max(t.Read, t.Wrote) >= last {
			in.Turn = append(in.Turn, path)
		}
	}
	slices.Sort(in.Session)
	slices.Sort(in.Turn)
}

// tell records that a context is told b; nil where there is nothing to tell. state.mu is held.
func (c *hookCall) tell(in *BriefInput, b *Brief) *Shown {
	if b.Text == "" && !b.Clear {
		return nil
	}
	shown := b.Record(in, c.h.Agent, c.h.Session, c.h.Subagent)
	r := &stateRecord{At: c.now, Session: c.key, Subagent: c.h.Subagent, Cleared: b.Clear, Told: b.Told, Delivered: b.Facts,
		Invited: b.Invited, Shown: &shown}
	if in.Event != EventSessionStart {
		r.Spent = b.Bytes
	}
	if in.Event == eventStop {
		r.Held = in.TurnNumber
	}
	if b.Introduced {
		r.Introduced = 1
	}
	c.d.state.commit(r)
	if b.Text == "" {
		return nil
	}
	c.told = r
	return &shown
}

// refuse puts a denial into the answer, and keeps that the context was refused these files in this turn.
func (c *hookCall) refuse(refused *denial, answer *socket.Answer) {
	st := c.d.state
	st.mu.Lock()
	defer st.mu.Unlock()
	ctx := st.sessions[c.key].context(c.h.Subagent)
	var files []string
	var denied []DeniedFile
	for i, h := range refused.Held {
		denied = append(denied, DeniedFile{Root: h.Root, Path: h.Path})
		file := h.Root + "\x00" + h.Path
		if n := ctx.refused[file]; i == 0 || n < refused.Nth {
			refused.Nth = n
		}
		files = append(files, file)
	}
	if c.repeated { // it is kept, and the person was told, by the first
		refused.Nth = max(refused.Nth, 1)
		answer.Deny = refused.text(c.d.config.now().Brief.Denial)
		return
	}
	refused.Nth++
	answer.Deny = refused.text(c.d.config.now().Brief.Denial)
	if len(ctx.refused) == 0 {
		answer.Person = refused.person()
	}
	c.told = &stateRecord{At: c.now, Session: c.key, Subagent: c.h.Subagent, Aside: true, Refused: files,
		Shown: &Shown{Agent: c.h.Agent, Session: c.h.Session, Subagent: c.h.Subagent, At: c.now.Time(), Event: c.h.Event, Cause: deniedCause(denied),
			Denied: denied, Bytes: len(answer.Deny), Text: answer.Deny}}
	st.commit(c.told)
}

// takeBack undoes tell, or refuse, for an answer that nobody took: the shim had given up.
func (c *hookCall) takeBack() {
	st := c.d.state
	st.mu.Lock()
	defer st.mu.Unlock()
	r := &stateRecord{At: c.now, Session: c.key, Subagent: c.h.Subagent, Aside: true, Untold: c.told.Told, Spent: -c.told.Spent,
		Unshown: c.told.Shown.At, Unrefused: c.told.Refused}
	if c.told.Held != 0 {
		r.Held = -1
	}
	r.Introduced = -c.told.Introduced
	st.commit(r)
}

// hasNews says whether something waits to be told to the context.
func (c *hookCall) hasNews() bool {
	c.d.state.mu.Lock()
	defer c.d.state.mu.Unlock()
	mine := c.d.state.sessions[c.key].context(c.h.Subagent)
	return slices.ContainsFunc(mine.news, func(n News) bool { return !mine.told.has(n.digest()) })
}

// since finds what changed while a session that goes on was not here.
func (c *hookCall) since(ctx context.Context, p hookPlace) *SinceLast {
	st := c.d.state
	st.mu.Lock()
	s := st.sessions[c.key]
	was := s.context(c.h.Subagent)
	if c.last == 0 {
		st.mu.Unlock()
		return nil
	}
	out := &SinceLast{Last: c.last.Time()}
	var read []*touch
	for _, t := range was.touched[p.Root] {
		if t.Read != 0 {
			read = append(read, t)
		}
	}
	delivered := make([]DeliveredFact, 0, len(was.delivered))
	for _, f := range was.delivered {
		delivered = append(delivered, f)
	}
	st.mu.Unlock()
	out.Files = c.changedFiles(ctx, p, read)
	out.Ended = endedFacts(p.tree, delivered, c.now)
	return out
}

// changedFiles are those of the files read that are not what they were then.
func (c *hookCall) changedFiles(ctx context.Context, p hookPlace, read []*touch) []ChangedFile {
	ctx, cancel := context.WithTimeout(ctx, judgeTime)
	defer cancel()
	slices.SortFunc(read, func(a, b *touch) int { return strings.Compare(a.Path, b.Path) })
	var out []ChangedFile
	for _, t := range read {
		now := stampOf(p.Root, t.Path)
		if now == t.Stamp || t.Stamp.Dir {
			continue
		}
		changed := ChangedFile{Path: t.Path, Gone: now == stamp{}}
		var blob []byte
		if !changed.Gone {
			var err error
			if blob, err = p.tree.tree.Blob(ctx, t.Path); t.Blob != nil && (err != nil || bytes.Equal(blob, t.Blob)) {
				continue // the same bytes, or nobody knows
			}
		}
		if changed.Gone || blob != nil {
			// That it changed is said all the same where nobody knows who did it, or not in time.
			if last, err := p.tree.tree.LastChange(ctx, p.tree.clone.clone, t.Path, blob, t.At); err == nil && last != nil {
				changed.By, changed.At, changed.Commit = last.By, last.At.Time(), last.Commit
			}
		}
		out = append(out, changed)
	}
	return out
}

// endedFacts are the facts delivered that were taken back or ran out.
func endedFacts(wt *worktree, delivered []DeliveredFact, now gitlog.Millis) []EndedFact {
	if len(delivered) == 0 {
		return nil
	}
	byID := make(map[gitlog.EntryID]DeliveredFact, len(delivered))
	for _, f := range delivered {
		if id, err := gitlog.ParseEntryID(f.ID); err == nil {
			byID[id] = f
		}
	}
	var out []EndedFact
	for _, item := range wt.clone.clone.Memory().All(now) {
		if !item.Forgotten && !item.Expired {
			continue
		}
		f, ok := byID[item.ID()]
		if !ok {
			continue
		}
		out = append(out, EndedFact{ID: f.ID, Name: f.Name, At: now.Time()})
	}
	return out
}

// after is what is done once the answer is on its way.
func (c *hookCall) after() {
	if c.prompt != "" || len(c.met) > 0 {
		c.declareIntent()
	}
	for _, o := range c.opaque {
		o.tree.clone.lookLater(o)
	}
	for _, p := range c.places {
		if p.tree == nil {
			continue
		}
		oc := p.tree.clone
		c.d.collectLater(p.tree, c.key) // first: what the turn left is in its segment
		switch c.h.Event {
		case EventSessionStart, EventPrompt, EventPreTool, EventPostTool, eventToolFailure, eventSubagentStop, eventStop, eventInterrupt, eventSessionEnd:
			oc.later(func(ctx context.Context) { c.d.settle(ctx, p.tree) })
		}
		switch c.h.Event {
		case EventSessionStart:
			oc.sync.fetchSoon()
		case EventPreTool, EventPostTool, eventToolFailure:
			c.identify(p)
		case eventStop, eventSubagentStop, eventSessionEnd:
			oc.later(func(ctx context.Context) {
				c.rerecord(ctx, p.tree)
				oc.flush(ctx)
			})
		}
		if p.tree.facts.old() {
			oc.later(p.tree.facts.warm)
		}
	}
}

// declareIntent says the session's intent in the repository of its directory, and in no other: when it is new, and when the
// arbiter there has not heard of the session for long.
func (c *hookCall) declareIntent() {
	st := c.d.state
	st.mu.Lock()
	var home, intent string
	if s := st.sessions[c.key]; s != nil && !s.private {
		home, intent = s.home, s.intent
	}
	st.mu.Unlock()
	for _, p := range c.places {
		if p.tree == nil || p.Root != home || intent == "" || c.prompt == "" && !slices.Contains(c.met, p.tree) {
			continue
		}
		p.tree.clone.later(func(ctx context.Context) {
			if gitlog.Withheld(cutText(cmp.Or(c.prompt, intent), withheldWindow)) {
				intent = "withheld"
			}
			by := p.tree.party(ctx, c.key, c.h.Subagent, c.h.User)
			p.tree.clone.arbiter.declare(by, gitlog.IntentDeclared, intent, "", sessionKey{})
			c.d.settle(ctx, p.tree)
		})
		return
	}
}

// cutText cuts a text to at most n bytes, between two characters.
func cutText(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "")
}

// identify finds out what the files hold that were read, or written, so that it is known later whether they changed.
func (c *hookCall) identify(p hookPlace) {
	paths := slices.Clone(p.Reads)
	if c.h.Event != EventPreTool {
		paths = append(paths, p.Writes...)
	}
	was := map[string]stamp{}
	for _, path := range paths {
		if s := stampOf(p.Root, path); !s.Dir && s != (stamp{}) {
			was[path] = s
		}
	}
	if len(was) == 0 {
		return
	}
	p.tree.clone.later(func(ctx context.Context) {
		var found []*touch
		for path, before := range was {
			if blob, err := p.tree.tree.Blob(ctx, path); err == nil && blob != nil && before == stampOf(p.Root, path) {
				found = append(found, &touch{Root: p.Root, Path: path, At: c.now, Stamp: before, Blob: blob})
			}
		}
		st := c.d.state
		st.mu.Lock()
		defer st.mu.Unlock()
		if s := st.sessions[c.key]; s != nil { // what changed since is somebody else's, or the next call's
			touched := s.context(c.h.Subagent).touched[p.Root]
			found = slices.DeleteFunc(found, func(t *touch) bool { return touched[t.Path] == nil || touched[t.Path].Stamp != t.Stamp })
		}
		if len(found) == 0 {
			return
		}
		st.commit(&stateRecord{At: c.now, Session: c.key, Subagent: c.h.Subagent, Aside: true, Touched: found})
	})
}

// rerecord takes what a session's turn made of the files of its own facts as what those facts are about.
func (c *hookCall) rerecord(ctx context.Context, wt *worktree) {
	st := c.d.state
	st.mu.Lock()
	var changed []string
	var since gitlog.Millis
	if s := st.sessions[c.key]; s != nil {
		if main := s.contexts[""]; main != nil {
			since = main.began
		}
		for _, each := range s.contexts {
			for path, t := range each.touched[wt.root] {
				if t.Wrote != 0 && t.At >= since {
					changed = append(changed, path)
				}
			}
		}
	}
	st.mu.Unlock()
	if len(changed) == 0 || wt.clone.writes() != nil {
		return
	}
	slices.Sort(changed)
	if err := wt.clone.clone.Rerecord(ctx, wt.tree, c.key.String(), since, slices.Compact(changed)); err != nil {
		c.d.log.Warn("cannot record the files of a turn's facts again", "repository", wt.clone.common, "error", err)
	}
	if wt.clone.relay != nil {
		wt.clone.relay.remembered()
	}
}

// instructionFiles are what agents read by themselves, in a directory.
var instructionFiles = []string{"CLAUDE.md", "CLAUDE.local.md", filepath.Join(".claude", "CLAUDE.md"), "AGENTS.md"}

// maxInstructions bounds the text of one instruction file that is looked at.
const maxInstructions = 256 << 10

// instructionCache keeps the instruction files of a worktree, by the directory that a session is in.
type instructionCache struct {
	mu    sync.Mutex
	byDir map[string]cachedInstructions // guarded by mu
}

type cachedInstructions struct {
	stamps []stamp
	text   Instructions
}

// instructions are those that an agent in cwd reads: of that directory and those above it, up to the worktree's root.
func (wt *worktree) instructions(cwd string) Instructions {
	var files []string
	dir := cwd
	if rel, err := filepath.Rel(wt.root, cwd); err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		dir = wt.root
	}
	for {
		for _, name := range instructionFiles {
			files = append(files, filepath.Join(dir, name))
		}
		if dir == wt.root || len(files) > 200 {
			break
		}
		dir = filepath.Dir(dir)
	}
	stamps := make([]stamp, len(files))
	for i, f := range files {
		if info, err := os.Stat(f); err == nil { // a link to another one is common
			stamps[i] = stampOfInfo(info)
		}
	}
	c := &wt.instructionFiles
	c.mu.Lock()
	defer c.mu.Unlock()
	if have, ok := c.byDir[cwd]; ok && slices.Equal(have.stamps, stamps) {
		return have.text
	}
	var texts []string
	for i, f := range files {
		if stamps[i] == (stamp{}) || stamps[i].Dir || stamps[i].Size > maxInstructions {
			continue
		}
		if text, err := os.ReadFile(f); err == nil {
			texts = append(texts, string(text))
		}
	}
	if c.byDir == nil || len(c.byDir) > 64 {
		c.byDir = map[string]cachedInstructions{}
	}
	found := cachedInstructions{stamps: stamps, text: NewInstructions(texts...)}
	c.byDir[cwd] = found
	return found.text
}
