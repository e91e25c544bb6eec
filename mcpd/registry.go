package mcpd

import (
	"cmp"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"knoot.dev/knoot/daemon"
)

const (
	// maxAgents bounds the agents with a name of their own on this machine.
	maxAgents = 1000
	// maxStatus, maxDescription and maxTag bound what an agent says of itself, in bytes; maxTags how many tags it has.
	maxStatus      = 160
	maxDescription = 500
	maxTag         = 40
	maxTags        = 20
	// minSession is how much of a session's id names it.
	minSession = 6
)

// refusal is why something was not done, in a sentence.
type refusal string

func (r refusal) Error() string { return string(r) }

func refusef(format string, args ...any) error { return refusal(fmt.Sprintf(format, args...)) }

// maxName bounds an agent's name, in bytes.
const maxName = 40

// checkName says what is wrong with a name: it stands in addresses, headers and commands.
func checkName(name string) error {
	plain := func(r rune) bool { return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' }
	odd := func(r rune) bool { return !plain(r) && !strings.ContainsRune("._-", r) }
	if name == "" || len(name) > maxName || strings.ContainsFunc(name, odd) || !plain(rune(name[0])) || strings.EqualFold(name, "all") {
		return refusef("%q is no name for an agent: it has up to %d letters, digits, dots, dashes and underscores, and is not all", daemon.Clean(name, maxName), maxName)
	}
	return nil
}

// secretLength is how long a secret is, in hexadecimal digits.
const secretLength = 64

func newSecret() string {
	secret := make([]byte, secretLength/2)
	_, _ = rand.Read(secret)
	return hex.EncodeToString(secret)
}

// Hear is told of every event of a session.
func (s *Server) Hear(e daemon.SessionEvent) {
	state := stateAfter(e)
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.agents[e.Name]; a != nil && e.Name != "" && a.Workspace == e.Repository && s.bound[e.Session] != a.ID && state != deactivated && a.mayBe(e.Session) {
		s.bind(a, e.Session)
	}
	if a := s.agents[s.bound[e.Session]]; a != nil {
		if state == deactivated && s.terminals[a.ID] != nil {
			return // its program runs: this is late, and of the one before, or another session is to begin in it
		}
		if state != "" && a.State != state {
			a.State, a.changed = state, true
			if state == awaitingInput {
				s.waits(a, "")
			}
		}
		if state == deactivated {
			a.Registered, a.changed = false, true
		}
		s.turned(a, e)
		s.stirred(a)
		return
	}
	v := s.visits[e.Session]
	switch {
	case state == deactivated:
		delete(s.visits, e.Session)
		return
	case e.Repository == "":
		return
	case v == nil:
		v = &visit{}
		s.visits[e.Session] = v
		v.workspace, v.folder = e.Repository, e.Root
	}
	v.name = cmp.Or(e.Name, v.name)
	v.state = cmp.Or(state, v.state)
}

// stateAfter is an agent's state after an event; "": it is what it was. A subagent's end and beginning do not change it.
func stateAfter(e daemon.SessionEvent) string {
	switch e.Event {
	case "UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolUseFailure":
		return working
	case "SessionStart", "Stop", "Interrupt":
		return idle
	case "PermissionRequest":
		return awaitingInput
	case "Notification":
		if e.Reason == "permission_prompt" || e.Reason == "elicitation_dialog" {
			return awaitingInput
		}
	case "SessionEnd", daemon.GoneEvent:
		return deactivated
	}
	return ""
}

// mayBe says whether a session that has the agent's name may be the agent: another agent that a terminal agent runs has it, too.
func (a *agent) mayBe(key daemon.SessionKey) bool {
	return !a.Terminal || !isHooked(a.Type) || a.Type == key.Agent
}

// mayBind says whether an agent may say that a session is it: not one that is another agent. mu is held.
func (s *Server) mayBind(a *agent, key daemon.SessionKey) bool {
	of := s.bound[key]
	return of == "" || of == a.ID
}

// unbind takes an agent's session from it, where it is the agent's. mu is held.
func (s *Server) unbind(a *agent) {
	if s.bound[a.Session] == a.ID {
		delete(s.bound, a.Session)
	}
}

// bind makes a session and an agent one. Another agent that was the session is so no more. mu is held.
func (s *Server) bind(a *agent, key daemon.SessionKey) {
	if old := s.agents[s.bound[key]]; old != nil && old != a {
		old.Session, old.changed = daemon.SessionKey{}, true
		if old.State != deactivated {
			old.State = "" // what its hooks say is the other's now
		}
	}
	if a.Session != key {
		s.unbind(a)
		a.Session, a.State, a.changed = key, "", true
	}
	if v := s.visits[key]; v != nil {
		a.State = v.state
		delete(s.visits, key)
	}
	s.bound[key] = a.ID
}

// Agents returns the agents of a repository that have a name of their own.
func (s *Server) Agents(repository string) []daemon.Agent {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []daemon.Agent
	for _, a := range s.agents {
		if a.Workspace == repository {
			out = append(out, a.mail())
		}
	}
	slices.SortFunc(out, func(a, b daemon.Agent) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// AgentOf returns which agent a session is.
func (s *Server) AgentOf(key daemon.SessionKey) (daemon.Agent, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.agents[s.bound[key]]; a != nil {
		return a.mail(), true
	}
	return daemon.Agent{}, false
}

func (a *agent) mail() daemon.Agent {
	return daemon.Agent{ID: a.ID, Session: a.Session, Owner: a.Owner, Deaf: a.Type == "shell", Registered: a.Registered}
}

// authentic reports whether this is an agent's secret.
func (s *Server) authentic(id, secret string) bool {
	s.mu.Lock()
	known := ""
	if a := s.agents[id]; a != nil {
		known = a.Secret
	}
	s.mu.Unlock()
	return same(secret, known)
}

// isPerson reports whether this is the person's secret.
func (s *Server) isPerson(secret string) bool {
	s.mu.Lock()
	known := s.person
	s.mu.Unlock()
	return same(secret, known)
}

// agentWith returns the id of the agent whose secret this is; "": nobody's.
func (s *Server) agentWith(secret string) (id string) {
	if len(secret) != secretLength {
		return "" // without mu, for which hooks wait, as anybody may ask this
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.agents {
		if subtle.ConstantTimeCompare([]byte(secret), []byte(a.Secret)) == 1 {
			id = a.ID
		}
	}
	return id
}

// connected takes note that an agent made a request: that registers it.
func (s *Server) connected(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.agents[id]; a != nil && !a.Registered {
		a.Registered, a.changed = true, true
		s.arrived(a)
	}
}

// find returns a copy of an agent; false: there is none with that id.
func (s *Server) find(id string) (agent, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.agents[id]; a != nil {
		out := *a
		out.Metadata, out.Subagents = maps.Clone(a.Metadata), maps.Clone(a.Subagents) // which change in their place
		return out, true
	}
	return agent{}, false
}

// visible returns the agents that an agent may see, itself included, by id.
func (s *Server) visible(to *agent) []Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []Status{}
	for _, a := range s.agents {
		if a.Workspace == to.Workspace && to.sees(a.Owner, a.ID) {
			out = append(out, a.status())
		}
	}
	for key, v := range s.visits {
		if v.workspace == to.Workspace && to.sees("", visitID(key)) {
			out = append(out, v.status(key))
		}
	}
	slices.SortFunc(out, func(a, b Status) int {
		return cmp.Or(strings.Compare(a.ID, b.ID), strings.Compare(a.SessionID, b.SessionID))
	})
	return out
}

// everybody returns all agents on this machine, by id.
func (s *Server) everybody() []Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []Status{}
	for _, a := range s.agents {
		out = append(out, a.status())
	}
	for key, v := range s.visits {
		out = append(out, v.status(key))
	}
	slices.SortFunc(out, func(a, b Status) int {
		return cmp.Or(strings.Compare(a.ID, b.ID), strings.Compare(a.SessionID, b.SessionID))
	})
	return out
}

// described returns the entries that carry all wanted tags, ranked: agents that the asking one may see, and templates.
func (s *Server) described(to *agent, wanted []string) []Status {
	out := s.visible(to)
	for name, t := range s.host.Config().Templates {
		out = append(out, Status{ID: name, Name: name, Folder: t.Folder, State: isTemplate, Type: t.Type, Description: daemon.Clean(t.Description, maxDescription),
			Tags: t.Tags, Cost: cmp.Or(t.Cost, "medium")})
	}
	out = slices.DeleteFunc(out, func(e Status) bool { return !carries(e.Tags, wanted) })
	groups := s.tools.Load().groups
	for i := range out {
		if out[i].Type != "shell" {
			out[i].Tools = groups
		}
	}
	ranked(out)
	return out
}

// bindSession makes a session and an agent one, by as much of the session's id as names it.
func (s *Server) bindSession(a *agent, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.agents[a.ID]
	if of == nil {
		return refusef("there is no agent %s any more", a.ID)
	}
	var found []daemon.SessionKey
	for key, v := range s.visits {
		if v.workspace == of.Workspace && (key.ID == id || len(id) >= minSession && strings.HasPrefix(key.ID, id)) {
			found = append(found, key)
		}
	}
	switch {
	case len(found) > 1:
		return refusef("%q begins the ids of several sessions: give the whole id", daemon.Clean(id, 80))
	case len(found) == 1:
		s.bind(of, found[0])
		return nil
	}
	key := daemon.SessionKey{Agent: of.Type, ID: id} // its hooks are still to come, or it has none
	if !s.mayBind(of, key) {
		return refusef("that session is %s", s.bound[key])
	}
	s.bind(of, key)
	return nil
}

// change changes what is kept of an agent, or makes it: then the entry is zero. It is on the disk when it returns.
func (s *Server) change(id string, f func(*entry) error) (entry, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	now := entry{}
	if a := s.agents[id]; a != nil {
		now = a.entry
	}
	full := len(s.agents) >= maxAgents
	s.mu.Unlock()
	if now.ID == "" && full {
		return now, refusef("there are %d agents on this machine, and there may be no more", maxAgents)
	}
	if err := f(&now); err != nil {
		return now, err
	}
	if now.ID == "" {
		return now, errors.New("there is no such agent any more")
	}
	if err := s.keep(&record{Agent: &now}); err != nil {
		return now, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.apply(&record{Agent: &now})
	return now, nil
}

// apply makes the change that a record tells of. mu is held.
func (s *Server) apply(r *record) {
	if r.Agent != nil {
		if s.agents[r.Agent.ID] == nil {
			s.agents[r.Agent.ID] = &agent{}
		}
		s.agents[r.Agent.ID].entry = *r.Agent
	}
	if r.Seen != nil {
		if a := s.agents[r.Seen.ID]; a != nil {
			s.unbind(a)
			a.seen = r.Seen.seen
			if a.Session != (daemon.SessionKey{}) {
				s.bound[a.Session] = a.ID
			}
		}
	}
	if r.Graph != nil {
		s.graphs[r.Graph.Owner] = &graph{tasks: r.Graph.Tasks}
	}
	if r.Board != nil {
		s.boards[r.Board.Agent] = r.Board
	}
	for _, id := range r.Closed {
		if a := s.agents[id]; a != nil {
			s.unbind(a)
		}
		delete(s.agents, id)
		delete(s.graphs, id)
		delete(s.boards, id)
		delete(s.environs, id)
	}
}

// seenRecords are what is kept of what was seen, where that changed or all is true. mu is held.
func (s *Server) seenRecords(all bool) (records []*record) {
	for _, id := range slices.Sorted(maps.Keys(s.agents)) {
		a := s.agents[id]
		if a.changed || all {
			copied := a.seen
			copied.Metadata, copied.Subagents = maps.Clone(a.Metadata), maps.Clone(a.Subagents)
			records = append(records, &record{Seen: &seenRecord{ID: id, seen: copied}})
			a.changed = false
		}
	}
	return records
}
