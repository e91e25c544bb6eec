package daemon

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/gitlog"
)

// ClaimAnswer says what became of an agent's asking for files.
type ClaimAnswer struct {
	Granted bool         `json:"granted"`
	Until   string       `json:"until"` // RFC 3339: when the first lease ends, unless the agent is heard of; "": nothing of it is claimed
	Denied  []DeniedPath `json:"denied"`
}

// DeniedPath is a file that somebody else holds.
type DeniedPath struct {
	Path   string `json:"path"`
	Holder string `json:"holder"` // in words
	Intent string `json:"intent"`
	Left   int    `json:"left"` // seconds of the holder's lease
}

// Claim claims files for an agent, all of them or none, as a hook before a write does; each for one lease, which Renew renews.
func (h *Host) Claim(ctx context.Context, as Speaker, paths []string) (*ClaimAnswer, error) {
	if err := h.meet(ctx, as); err != nil {
		return nil, err
	}
	d := h.d
	wt, err := d.worktreeOf(ctx, as.Root)
	if err != nil {
		return nil, err
	}
	if paths, err = h.relative(ctx, as, paths); err != nil {
		return nil, err
	}
	now := d.now()
	switch {
	case wt.clone.paused(now) || paused(d.home.Dir+"/off", now):
		return nil, errPaused
	case wt.repo.Root == "":
		return nil, &gitlog.Refusal{Sentence: "this repository is bare, so there are no files to claim"}
	case d.claimMode(wt.clone) == gitlog.ClaimsOff:
		return nil, &gitlog.Refusal{Sentence: "claims are off here ([claims] mode), so nothing was claimed"}
	}
	place := socket.Place{Root: wt.root}
	for _, path := range paths {
		canonical, err := gitlog.CanonicalPath(path)
		if err != nil || canonical == "" {
			return nil, &MisuseError{Sentence: fmt.Sprintf("%s is no file of this repository", quotePath(path))}
		}
		place.Writes = append(place.Writes, canonical)
	}
	slices.Sort(place.Writes)
	place.Writes = slices.Compact(place.Writes)
	wt.clone.use()
	key, user := as.key(), ""
	d.state.mu.Lock()
	if s := d.state.sessions[key]; s != nil {
		user = s.person
	}
	d.state.mu.Unlock()
	call := callKey{ToolUse: "claim " + strconv.FormatUint(d.claimed.Add(1), 10)}
	c := &hookCall{d: d, key: key, now: now, places: []hookPlace{{Place: place, tree: wt}}, h: &socket.Hook{Agent: key.Agent, Session: key.ID,
		Event: EventPreTool, Places: []socket.Place{place}, ToolUse: call.ToolUse, Name: as.ID, User: user}}
	refused := c.arbitrate(ctx)
	answer := &ClaimAnswer{Granted: refused == nil, Denied: []DeniedPath{}}
	if refused != nil {
		for _, held := range refused.Held {
			each := DeniedPath{Path: held.Path, Holder: held.Holder.words(), Intent: held.Intent}
			if !held.Until.IsZero() {
				each.Left = max(0, int(held.Until.Sub(now.Time()).Seconds()))
			}
			answer.Denied = append(answer.Denied, each)
		}
		return answer, nil
	}
	if len(c.worktrees) == 0 {
		return nil, errPanicked
	}
	a := wt.clone.arbiter
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closeCall(key, call) // it is no call whose end lets go of what was not written
	first := gitlog.Millis(0)
	for _, s := range c.worktrees {
		for _, w := range s.wants {
			if held, holds := a.sequencer.Holding(s.who, w, a.now()); holds && (first == 0 || held.Until < first) {
				first = held.Until
			}
		}
	}
	if first != 0 {
		answer.Until = gitlog.TimeText(first)
	}
	return answer, nil
}

// Renew renews what an agent holds, in the second half of its lease.
func (h *Host) Renew(as Speaker) {
	key := as.key()
	for _, a := range h.d.arbitrations.all() {
		a.mu.Lock()
		now := a.now()
		if session, known := a.sequencer.Session(a.sessionToken(key), now); known {
			if l := a.lodger(key); now-min(l.renewed, now) >= halfLease {
				l.renewed = now
				if len(a.sequencer.Claims(session.Session, now)) > 0 {
					a.do(arbiter.Renew{Who: session.Who})
				}
			}
		}
		a.mu.Unlock()
	}
}
