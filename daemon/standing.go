package daemon

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/gitlog"
)

// Standing is who is at work in a repository and who holds what.
type Standing struct {
	Sessions []StandingSession `json:"sessions"` // by start

	You string `json:"you,omitempty"` // the address of this device's member
}

// StandingSession is a session, or a person at work. Its strings are as somebody chose them: clean them before they are shown.
type StandingSession struct {
	Session  string   `json:"session"`
	Agent    string   `json:"agent"`  // "" for a person
	Member   string   `json:"member"` // the address of its person
	Person   bool     `json:"person"`
	Branch   string   `json:"branch"`            // full ref name; "" detached
	Worktree string   `json:"worktree"`          // absolute path; "" on another machine
	Machine  string   `json:"machine,omitempty"` // what the other machine is called
	Intent   string   `json:"intent"`
	Plan     string   `json:"plan"`
	Decided  []string `json:"decided"`

	Claims  []StandingClaim `json:"claims"`  // oldest first
	Waiting []string        `json:"waiting"` // paths, first come first

	Name  string        `json:"name,omitempty"` // that the agent was given (KNOOT_AGENT)
	Began gitlog.Millis `json:"began"`
	Seen  gitlog.Millis `json:"seen"` // its last sign of life
}

// StandingClaim is a claim that is live.
type StandingClaim struct {
	Path  string        `json:"path"`
	Until gitlog.Millis `json:"until"`
	Hub   bool          `json:"hub"`

	Branch  string        `json:"branch"` // full ref name
	Since   gitlog.Millis `json:"since"`
	Written gitlog.Millis `json:"written"` // its holder's last write; 0: none yet
}

// HubStanding is a hub with its holder and its queue.
type HubStanding struct {
	Path, Branch string
	Holder       sessionKey    // zero: it is free
	Until        gitlog.Millis // of the holder's lease, or of the turn of the first in line
	Queue        []sessionKey  // the first in line first
}

// standing says who is at work and who holds what.
func (a *arbitration) standing() *Standing {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := &Standing{Sessions: []StandingSession{}}
	now := a.now()
	for _, s := range a.sequencer.Sessions(now) {
		key, detail := a.sessionOf(s.Session), decodeSessionDetail(s.Detail)
		each := StandingSession{Session: key.ID, Agent: key.Agent, Member: detail.Owner, Person: s.Person, Branch: a.branchOf(s.Branch),
			Worktree: a.names.name(worktreeType, s.Worktree), Intent: string(s.Intent), Plan: string(s.Plan), Decided: []string{},
			Claims: []StandingClaim{}, Waiting: []string{}, Name: detail.Name, Began: s.Started, Seen: s.Seen}
		if s.Person {
			each.Agent = ""
		}
		for _, h := range a.sequencer.Claims(s.Session, now) {
			each.Claims = append(each.Claims, StandingClaim{Path: a.heldPath(h), Until: h.Until, Hub: h.Class == arbiter.Hub,
				Branch: a.branchOf(h.Branch), Since: h.Since, Written: h.Written})
		}
		for _, w := range a.sequencer.Waits(s.Session, now) {
			each.Waiting = append(each.Waiting, a.pathOf(w.Path))
		}
		out.Sessions = append(out.Sessions, each)
	}
	if r := a.away.Load(); r != nil {
		waiting := r.waiting()
		for i := range out.Sessions {
			each := &out.Sessions[i]
			for _, path := range waiting[sessionKey{Agent: each.Agent, ID: each.Session}] {
				if !slices.Contains(each.Waiting, path) {
					each.Waiting = append(each.Waiting, path)
				}
			}
		}
		out.Sessions = append(out.Sessions, r.standing()...)
	}
	return out
}

// WhoAnswer is what `who --json` prints, with the keys that it promises.
type WhoAnswer struct {
	Sessions []WhoSession `json:"sessions"`
}

// WhoSession is a session in a WhoAnswer, or a person at work.
type WhoSession struct {
	Session  string     `json:"session"`
	Agent    string     `json:"agent"`
	Member   string     `json:"member"`
	Person   bool       `json:"person"`
	Branch   string     `json:"branch"`
	Worktree string     `json:"worktree"`
	Intent   string     `json:"intent"`
	Plan     string     `json:"plan"`
	Decided  []string   `json:"decided"`
	Claims   []WhoClaim `json:"claims"`
	Waiting  []string   `json:"waiting"`
}

// WhoClaim is a claim in a WhoAnswer.
type WhoClaim struct {
	Path  string `json:"path"`
	Until string `json:"until"` // RFC 3339
	Hub   bool   `json:"hub"`
}

// Answer is the standing as programs read it.
func (s *Standing) Answer() *WhoAnswer {
	out := &WhoAnswer{Sessions: []WhoSession{}}
	for _, each := range s.Sessions {
		w := WhoSession{Session: each.Session, Agent: each.Agent, Member: each.Member, Person: each.Person, Branch: each.Branch,
			Worktree: each.Worktree, Intent: each.Intent, Plan: each.Plan, Decided: append([]string{}, each.Decided...),
			Claims: []WhoClaim{}, Waiting: append([]string{}, each.Waiting...)}
		for _, k := range each.Claims {
			w.Claims = append(w.Claims, WhoClaim{Path: k.Path, Until: gitlog.TimeText(k.Until), Hub: k.Hub})
		}
		out.Sessions = append(out.Sessions, w)
	}
	return out
}

// heldPath is the path of a claim as its holder spells it. mu is held.
func (a *arbitration) heldPath(h arbiter.Hold) string {
	if len(h.Detail) > 0 {
		return string(h.Detail)
	}
	return a.pathOf(h.Path)
}

// hubs returns the files that are hubs now, since somebody holds them or waits for them as one, or since enough sessions wrote
// them lately; by path. With a relay they are those of all machines.
func (a *arbitration) hubs() []HubStanding {
	var away []HubStanding
	if r := a.away.Load(); r != nil {
		away = r.hubs()
	}
	a.mu.Lock()
	here := hubsOf(a.sequencer.View, a.now(), a)
	a.mu.Unlock()
	out := away
	for _, h := range here {
		i := slices.IndexFunc(away, func(o HubStanding) bool {
			return o.Branch == h.Branch && gitlog.FoldPath(o.Path) == gitlog.FoldPath(h.Path)
		})
		if i < 0 {
			out = append(out, h)
			continue
		}
		// The relay's order counts. Whoever was refused by this machine alone comes after.
		for _, key := range h.Queue {
			if key != out[i].Holder && !slices.Contains(out[i].Queue, key) {
				out[i].Queue = append(out[i].Queue, key)
			}
		}
	}
	slices.SortFunc(out, func(a, b HubStanding) int { return strings.Compare(a.Path+"\x00"+a.Branch, b.Path+"\x00"+b.Branch) })
	return out
}

// naming says what tokens stand for; "" or zero where that is not known.
type naming interface {
	pathOf(arbiter.Path) string
	branchOf(arbiter.Token) string
	sessionOf(arbiter.Token) sessionKey
}

// hubsOf are the hubs of a view whose paths have a name.
func hubsOf(v *arbiter.View, now gitlog.Millis, names naming) []HubStanding {
	type place struct{ path, branch arbiter.Token }
	found := map[place]*HubStanding{}
	hub := func(who arbiter.Who, path arbiter.Path) *HubStanding {
		at := place{path.Own, who.Branch}
		h := found[at]
		if h == nil {
			h = &HubStanding{Path: names.pathOf(path), Branch: names.branchOf(who.Branch)}
			found[at] = h
			q := v.Queue(who, arbiter.Want{Path: path}, now)
			for _, w := range q.Waits {
				h.Queue = append(h.Queue, names.sessionOf(w.Session))
			}
			h.Until = q.Until
		}
		return h
	}
	for _, h := range v.Claims(arbiter.Token{}, now) {
		if h.Class == arbiter.Hub {
			each := hub(h.Who, h.Path)
			each.Holder, each.Until = names.sessionOf(h.Session), h.Until
		}
	}
	for _, s := range v.Sessions(now) {
		for _, w := range v.Waits(s.Session, now) {
			if w.Class == arbiter.Hub {
				hub(w.Who, w.Path)
			}
		}
	}
	for _, w := range v.Writes(arbiter.Token{}, arbiter.Order{}, now) {
		if _, known := found[place{w.Path.Own, w.Branch}]; !known && v.Queue(w.Who, arbiter.Want{Path: w.Path}, now).Hub {
			hub(w.Who, w.Path)
		}
	}
	out := make([]HubStanding, 0, len(found))
	for _, h := range found {
		if h.Path != "" {
			out = append(out, *h)
		}
	}
	return out
}

// party is a session, or one of its subagents, as it stands in a worktree now. The branch is read from files.
func (wt *worktree) party(ctx context.Context, key sessionKey, subagent, user string) party {
	branch, _, _ := wt.tree.Branch(ctx) // "" where it cannot be told: that of the worktree alone
	return party{Key: key, Subagent: subagent, Owner: wt.clone.person(user), Root: wt.root, Branch: branch}
}

// person is the address of a session's person (personOf). A hook does not wait for it while the clone is busy: what was so at the
// last tick counts.
func (oc *openClone) person(user string) string {
	if address, known := oc.people.Load(user); known {
		return address.(string)
	}
	address := personOf(oc.clone, user)
	oc.people.Store(user, address)
	return address
}

// knowPeople looks again who the persons of sessions are: the team may have changed.
func (oc *openClone) knowPeople() {
	oc.people.Range(func(user, _ any) bool {
		oc.people.Store(user, personOf(oc.clone, user.(string)))
		return true
	})
}

// presence is the person themself at work in a worktree: the one that KNOOT_USER names, or this device's member. present and
// take of one person in one worktree are one presence.
func (wt *worktree) presence(ctx context.Context, user string) party {
	by := wt.party(ctx, sessionKey{}, "", user)
	id := sha256.Sum256([]byte(by.Owner + "\x00" + wt.root))
	by.Key, by.Person = sessionKey{Agent: personAgent, ID: hex.EncodeToString(id[:8])}, true
	return by
}

// personAgent stands for the agent's name in the key of a person's presence.
const personAgent = "person"
