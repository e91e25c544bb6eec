package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/gitlog"
)

// State is what a running daemon says of itself: the answer to the operation state.
type State struct {
	Version string `json:"version"`
	Process int    `json:"process"`
	Auto    bool   `json:"auto"` // a hook started it
	Started string `json:"started"`
	Home    string `json:"home"`
	// Keys says that this machine has keys, so that what sessions were told survives a restart.
	Keys bool `json:"keys"`
	// LastHook is when an agent's last hook came, by the agent's name, in RFC 3339.
	LastHook map[string]string `json:"last_hook"`
	Sessions []SessionState    `json:"sessions"`
	Clones   []CloneState      `json:"clones"`
	// Warnings are sentences about config.toml.
	Warnings []string `json:"warnings"`
	// Uncoordinated says why agents cannot coordinate although they should; absent: they can, or should not.
	Uncoordinated string `json:"uncoordinated,omitempty"`
	// Unpiloted says why autopilot does nothing for some agents although it is on; absent: it does, or is off.
	Unpiloted string `json:"unpiloted,omitempty"`
}

// SessionState is a session that is known.
type SessionState struct {
	Agent     string `json:"agent"`
	Session   string `json:"session"`
	Root      string `json:"root,omitempty"`
	Started   string `json:"started"`
	Seen      string `json:"seen"`
	Live      bool   `json:"live"`
	Intent    string `json:"intent,omitempty"`
	Subagents int    `json:"subagents"`
}

// CloneState is a clone that is open.
type CloneState struct {
	Common   string     `json:"common"`
	Roots    []string   `json:"roots"`
	ReadOnly string     `json:"read_only,omitempty"` // why this daemon does not write its log; "": it does
	Paused   bool       `json:"paused"`
	Facts    int        `json:"facts"`  // facts, cached answers and plans that count now
	Drafts   int        `json:"drafts"` // facts of agents that wait for their person ([memory] agent_facts = review)
	Problems []string   `json:"problems"`
	Sync     SyncStatus `json:"sync"`
	// Relay is how the clone stands with its relay; absent: none is used.
	Relay *RelayStatus `json:"relay,omitempty"`
}

// Status asks the daemon that the environment leads to for its state. The errors are those of socket.Location.Ask.
func Status(ctx context.Context, getenv func(string) string) (*State, error) {
	loc, err := socket.Locate(getenv)
	if err != nil {
		return nil, err
	}
	resp, err := loc.Ask(ctx, &socket.Request{Op: "state"})
	if err != nil {
		return nil, err
	}
	if resp.Error != "" {
		return nil, errors.New(resp.Error)
	}
	state := new(State)
	if err := json.Unmarshal(resp.Body, state); err != nil {
		return nil, fmt.Errorf("the daemon's answer is not one: %w", err)
	}
	return state, nil
}

// maxSessionStates bounds the sessions in a State: the newest.
const maxSessionStates = 200

func (d *daemon) report() *State {
	now := d.now()
	s := &State{Version: socket.Version, Process: os.Getpid(), Auto: d.options.Auto, Started: gitlog.TimeText(gitlog.MillisOf(d.started)),
		Home: d.loc.Home, LastHook: map[string]string{}, Sessions: []SessionState{}, Clones: []CloneState{}, Warnings: d.config.warnings()}
	if d.coordinator != nil {
		s.Uncoordinated, s.Unpiloted = d.coordinator.Problem(), d.coordinator.Unpiloted()
	}
	d.state.mu.Lock()
	s.Keys = d.state.file != nil
	for agent, at := range d.state.lastHook {
		s.LastHook[agent] = gitlog.TimeText(at)
	}
	for _, each := range d.state.sessions {
		s.Sessions = append(s.Sessions, SessionState{Agent: each.key.Agent, Session: each.key.ID, Root: each.home, Started: gitlog.TimeText(each.started),
			Seen: gitlog.TimeText(each.seen), Live: each.live(now), Intent: each.intent, Subagents: max(0, len(each.contexts)-1)})
	}
	d.state.mu.Unlock()
	slices.SortFunc(s.Sessions, func(a, b SessionState) int {
		if c := strings.Compare(b.Seen, a.Seen); c != 0 {
			return c
		}
		return strings.Compare(a.Session, b.Session)
	})
	s.Sessions = s.Sessions[:min(len(s.Sessions), maxSessionStates)]
	for _, oc := range d.clones.all() {
		s.Clones = append(s.Clones, oc.report(now))
	}
	slices.SortFunc(s.Clones, func(a, b CloneState) int { return strings.Compare(a.Common, b.Common) })
	return s
}

func (oc *openClone) report(now gitlog.Millis) CloneState {
	c := CloneState{Common: oc.common, Roots: []string{}, Problems: []string{}, Paused: oc.paused(now),
		Facts: len(oc.clone.Memory().Current(now)), Sync: oc.sync.report()}
	if oc.relay != nil {
		c.Relay = oc.relay.status()
	}
	if err := oc.writes(); err != nil {
		c.ReadOnly = err.Error()
	}
	for _, wt := range oc.worktrees() {
		c.Roots = append(c.Roots, wt.root)
	}
	if drafts, err := (Workplace{Home: oc.d.home, Clone: oc.clone}).Drafts(); err != nil {
		c.Problems = append(c.Problems, err.Error())
	} else {
		c.Drafts = len(drafts)
	}
	for _, p := range oc.clone.Problems() {
		c.Problems = append(c.Problems, p.Ref+": "+p.What)
	}
	return c
}
