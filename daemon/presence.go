package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/gitlog"
)

// PresentRequest is the body of the operation present: a person works in a worktree for as long as the request waits.
type PresentRequest struct {
	Doing string `json:"doing,omitempty"` // what they say that they do
}

// PresentAnswer is the answer to present, which comes when the daemon ends, or another takes over: the request is to be made
// again. The person is present until then; when the client leaves instead, what they held is free.
type PresentAnswer struct {
	Again bool `json:"again"`
}

// TouchedRequest is the body of the operation touched: files that changed while a person is present.
type TouchedRequest struct {
	Files []TouchedFile `json:"files"`
}

// TouchedFile is a file that changed, or went.
type TouchedFile struct {
	Path string        `json:"path"` // relative to the worktree's root
	At   gitlog.Millis `json:"at"`
}

// TouchedAnswer is the answer to touched. Files that are not the person's are in neither list.
type TouchedAnswer struct {
	Yours []TouchedClaim `json:"yours"` // claimed or renewed for the person
	Held  []TouchedClaim `json:"held"`  // another holds them, and hears that the person changed them
}

// TouchedClaim is a file and its claim.
type TouchedClaim struct {
	Path  string        `json:"path"`
	Until gitlog.Millis `json:"until,omitempty"`
	New   bool          `json:"new,omitempty"` // of Yours: it was not the person's before
	By    string        `json:"by,omitempty"`  // of Held: who holds it
}

const (
	// presentLimit bounds a present request: longer than any day's work.
	presentLimit = 30 * 24 * time.Hour
	// hookWindow is how near a hook of a session has to be to a change for the change to be the session's.
	hookWindow = gitlog.Millis(2000)
	// hooksKept is how long it is known what hooks said: a change is asked about some seconds after it was made.
	hooksKept = gitlog.Millis(60_000)
	// maxTouched bounds the files of one request.
	maxTouchedFiles = 1000
)

// presences are the people that `knoot present` says are at work, and what has to be known to tell their changes from those of
// sessions. It remembers nothing while nobody is present.
type presences struct {
	d *daemon

	mu     sync.Mutex
	people map[sessionKey]*presence    // guarded by mu
	heard  map[heardPath]gitlog.Millis // guarded by mu: when a hook last named a path as written
	shells map[shellCall]*shellTime    // guarded by mu: calls that can write files which they do not name
}

// presence is a person in a worktree.
type presence struct {
	by    party
	user  string
	doing string
	count int // requests that wait for it
}

type heardPath struct{ root, path string }

// shellCall is such a call in a worktree.
type shellCall struct {
	session sessionKey
	callKey
}

type shellTime struct{ began, ended gitlog.Millis } // ended 0: not yet

func newPresences(d *daemon) *presences {
	return &presences{d: d, people: map[sessionKey]*presence{}, heard: map[heardPath]gitlog.Millis{}, shells: map[shellCall]*shellTime{}}
}

// hear takes note of what a hook says about files.
func (p *presences) hear(h *socket.Hook, now gitlog.Millis) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.people) == 0 {
		return
	}
	for _, place := range h.Places {
		for _, path := range place.Writes {
			if canonical, err := gitlog.CanonicalPath(path); err == nil {
				p.heard[heardPath{place.Root, canonical}] = now
			}
		}
		if !h.Shell {
			continue
		}
		call := shellCall{sessionKey{h.Agent, h.Session}, callKey{Root: place.Root, Subagent: h.Subagent, ToolUse: h.ToolUse}}
		if h.Event == EventPreTool {
			p.shells[call] = &shellTime{began: now}
		} else if at := p.shells[call]; at != nil {
			at.ended = now
		}
	}
	switch h.Event {
	case EventPrompt, eventStop, eventSubagentStop, eventSessionEnd:
		// Whatever call had no end of its own has ended.
		for call, at := range p.shells {
			if call.session == (sessionKey{h.Agent, h.Session}) && at.ended == 0 && (h.Event == eventSessionEnd || call.Subagent == h.Subagent) {
				at.ended = now
			}
		}
	}
	if len(p.heard)+len(p.shells) > maxTouchedFiles {
		p.forget(now)
	}
}

// forget drops what nobody asks about any more. mu is held.
func (p *presences) forget(now gitlog.Millis) {
	for path, at := range p.heard {
		if at+hooksKept < now {
			delete(p.heard, path)
		}
	}
	for call, at := range p.shells {
		if at.ended != 0 && at.ended+hooksKept < now || at.began+openCallKept < now {
			delete(p.shells, call)
		}
	}
}

// openCallKept is how long a call without an end is believed to run.
const openCallKept = gitlog.Millis(30 * 60 * 1000)

// bySession says whether a change was a session's: one of its hooks named the file. perhaps says that a call ran that can write
// files without naming them.
func (p *presences) bySession(root string, f TouchedFile) (is, perhaps bool) {
	near := func(at gitlog.Millis) bool { return at <= f.At+hookWindow && f.At <= at+hookWindow }
	p.mu.Lock()
	defer p.mu.Unlock()
	if at, ok := p.heard[heardPath{root, f.Path}]; ok && near(at) {
		return true, true
	}
	for call, at := range p.shells {
		if call.Root == root && at.began <= f.At && (at.ended == 0 || f.At <= at.ended+hookWindow) {
			perhaps = true
		}
	}
	return false, perhaps
}

// enter makes a person present; leave undoes it, and the last to leave frees what they hold.
func (p *presences) enter(wt *worktree, by party, user, doing string) {
	p.mu.Lock()
	who := p.people[by.Key]
	if who == nil {
		who = &presence{}
		p.people[by.Key] = who
	}
	who.by, who.user, who.doing = by, user, doing
	who.count++
	p.mu.Unlock()
	wt.clone.arbiter.present(by, doing)
}

func (p *presences) leave(by party, a *arbitration, left bool) {
	p.mu.Lock()
	who := p.people[by.Key]
	who.count--
	last := who.count == 0
	if last {
		delete(p.people, by.Key)
	}
	if len(p.people) == 0 {
		clear(p.heard)
		clear(p.shells)
	}
	p.mu.Unlock()
	if last && left {
		a.mu.Lock()
		a.end(by.Key, arbiter.EndOfLife)
		a.mu.Unlock()
	}
}

// tick keeps those who are present known, and has their claims follow HEAD.
func (p *presences) tick(ctx context.Context) {
	p.mu.Lock()
	p.forget(p.d.now())
	people := make([]presence, 0, len(p.people))
	for _, who := range p.people {
		people = append(people, *who)
	}
	p.mu.Unlock()
	if len(people) > 0 {
		p.d.lastUse.Store(p.d.options.Now().UnixMilli()) // a daemon is of use without sessions, too
	}
	for _, who := range people {
		wt := p.d.clones.opened(who.by.Root)
		if wt == nil {
			continue
		}
		wt.clone.use()
		by := p.follow(ctx, wt, who.user)
		a := wt.clone.arbiter
		known := false
		a.look(func(v *arbiter.View, now gitlog.Millis) { _, known = v.Session(a.who(by).Session, now) })
		if !known { // nothing was heard of them for hours
			a.present(by, who.doing)
		}
	}
}

// follow returns where the person is now, and takes their claims along if HEAD moved.
func (p *presences) follow(ctx context.Context, wt *worktree, user string) party {
	by := wt.presence(ctx, user)
	p.mu.Lock()
	who := p.people[by.Key]
	moved := who != nil && who.by.Branch != by.Branch
	if who != nil {
		who.by = by
	}
	p.mu.Unlock()
	if moved {
		wt.clone.arbiter.request(by, func(who arbiter.Who) arbiter.Request { return arbiter.Move{Who: who} })
	}
	return by
}

// keepPresent keeps a person present until the client leaves.
func (d *daemon) keepPresent(ctx context.Context, wt *worktree, caller *socket.Caller, r PresentRequest, conn *net.UnixConn) (*PresentAnswer, error) {
	if err := d.mayPresent(wt, caller); err != nil {
		return nil, err
	}
	doing := []rune(strings.Join(strings.Fields(r.Doing), " "))
	doing = doing[:min(len(doing), intentLength)]
	if gitlog.Withheld(string(doing)) {
		return nil, &gitlog.Refusal{Sentence: "what you say that you do looks like a credential: say it in other words"}
	}
	waiting, end, err := d.patient(ctx, conn, presentLimit)
	if err != nil {
		return nil, err
	}
	defer end()
	by := wt.presence(ctx, caller.User)
	d.presences.enter(wt, by, caller.User, string(doing))
	<-waiting.Done()
	parting := errors.Is(context.Cause(waiting), errParting) || ctx.Err() != nil
	d.presences.leave(by, wt.clone.arbiter, !parting)
	return &PresentAnswer{Again: true}, nil
}

func (d *daemon) mayPresent(wt *worktree, caller *socket.Caller) error {
	switch {
	case !d.byPerson(caller):
		return &gitlog.Refusal{Sentence: "this needs a person: ask your user to run it"}
	case wt.repo.Root == "":
		return &gitlog.Refusal{Sentence: "this repository is bare, so there are no files to work on: go to a worktree"}
	case d.claimMode(wt.clone) == gitlog.ClaimsOff:
		return &gitlog.Refusal{Sentence: "claims are off here ([claims] mode), so nobody is told what you work on"}
	}
	return nil
}

// touched claims what a person changed: not what a session changed, what is as HEAD has it, what is never claimed, nor what
// another holds.
func (d *daemon) touched(ctx context.Context, wt *worktree, caller *socket.Caller, r TouchedRequest) (*TouchedAnswer, error) {
	if err := d.mayPresent(wt, caller); err != nil {
		return nil, err
	}
	by := d.presences.follow(ctx, wt, caller.User)
	a := wt.clone.arbiter
	out := &TouchedAnswer{Yours: []TouchedClaim{}, Held: []TouchedClaim{}}
	at := map[string]TouchedFile{}
	var paths []string
	for _, f := range r.Files[:min(len(r.Files), maxTouchedFiles)] {
		path, err := gitlog.CanonicalPath(f.Path)
		if err != nil || path == "" {
			return nil, &MisuseError{Sentence: fmt.Sprintf("%s is no file of this repository", quotePath(f.Path))}
		}
		f.Path = path
		at[path] = f
		paths = append(paths, path)
	}
	slices.Sort(paths)
	kinds := wt.rules.KindsUntil(ctx, paths, wt.clone.claims().Note)
	held := d.heldBy(a, by, paths)
	var candidates []string
	for i, path := range paths {
		is, perhaps := d.presences.bySession(wt.root, at[path])
		if kinds[i] == gitlog.FileOrdinary && !is && (!perhaps || held[path]) {
			candidates = append(candidates, path)
		}
	}
	changed, err := wt.tree.Uncommitted(ctx, candidates)
	if err != nil {
		return nil, err
	}
	var written, removed []string
	for _, path := range changed {
		if info, err := os.Lstat(filepath.Join(wt.root, filepath.FromSlash(path))); err != nil {
			removed = append(removed, path)
		} else if !info.IsDir() {
			written = append(written, path)
		}
	}
	label := labels(a.standing())
	for _, o := range a.wrote(by, written, removed) {
		switch {
		case o.Key == by.Key && o.Kind == gitlog.UngatedWrite:
			out.Held = append(out.Held, TouchedClaim{Path: o.Path, By: label(o.OtherKey)})
		case o.Key == by.Key && o.Kind == gitlog.FileWritten, o.Key == by.Key && o.Kind == gitlog.PathRemoved:
			out.Yours = append(out.Yours, TouchedClaim{Path: o.Path, Until: o.Until, New: !held[o.Path]})
		}
	}
	return out, nil
}

// heldBy says which of paths a party holds.
func (d *daemon) heldBy(a *arbitration, by party, paths []string) map[string]bool {
	held := map[string]bool{}
	a.look(func(v *arbiter.View, now gitlog.Millis) {
		who := a.who(by)
		for _, path := range paths {
			if _, ok := v.Holding(who, a.want(path, false), now); ok {
				held[path] = true
			}
		}
	})
	return held
}
