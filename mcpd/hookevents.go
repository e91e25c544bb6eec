package mcpd

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"

	"knoot.dev/knoot/daemon"
)

// maxMetadata bounds a value of an agent's metadata, in bytes; maxSubagents how many subagents of one are known.
const (
	maxMetadata  = 1000
	maxSubagents = 100
)

// hookEvent is the body of POST /api/v1/agent/register and /api/v1/agent/status: what a hook of an agent says.
type hookEvent struct {
	AgentID   string         `json:"agent_id"`
	Agent     string         `json:"agent"` // claude or codex; "": claude
	SessionID string         `json:"session_id"`
	Source    string         `json:"source"` // of register: startup or resume
	Hook      string         `json:"hook"`   // SubagentStart or SubagentStop, where it is about a subagent
	Status    string         `json:"status"` // of claude: running, idle or input
	Payload   map[string]any `json:"payload"`
}

// text is a field of the payload; "" where it is no text.
func (e *hookEvent) text(name string) string {
	text, _ := e.Payload[name].(string)
	return daemon.Clean(text, maxMetadata)
}

// known are the fields of the payload that an agent's metadata take, by agent.
var known = map[string][]string{
	"claude": {"transcript_path", "cwd", "model", "session_id"},
	"codex":  {"cwd", "thread-id", "turn-id"},
}

// serveStatus lists the agents: for an agent those that it may see, for the person all.
func (s *Server) serveStatus(w http.ResponseWriter, req *http.Request) {
	secret := bearer(req)
	if s.isPerson(secret) {
		writeJSON(w, s.everybody())
		return
	}
	of, known := s.find(s.agentWith(secret))
	if !known {
		s.unknown(w, req)
		return
	}
	writeJSON(w, s.visible(&of))
}

func (s *Server) unknown(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("WWW-Authenticate", "Bearer")
	s.refuse(w, req, http.StatusUnauthorized, "this takes an agent's secret, or yours from ~/.knoot/mcp.token, as Authorization: Bearer")
}

// readEvent reads a hook's event and whose it is; false: the answer is written.
func (s *Server) readEvent(w http.ResponseWriter, req *http.Request) (*hookEvent, bool) {
	secret := bearer(req)
	mine := s.agentWith(secret)
	if mine == "" && !s.isPerson(secret) {
		s.unknown(w, req)
		return nil, false
	}
	e := &hookEvent{}
	if err := json.NewDecoder(req.Body).Decode(e); err != nil {
		s.refuse(w, req, http.StatusBadRequest, "the body is no event: JSON with agent_id")
		return nil, false
	}
	e.Agent = cmp.Or(e.Agent, "claude")
	_, there := s.find(e.AgentID)
	switch {
	case e.AgentID == "":
		s.refuse(w, req, http.StatusBadRequest, "the body names no agent_id")
	case mine != "" && mine != e.AgentID:
		s.refuse(w, req, http.StatusUnauthorized, "this secret is another agent's")
	case !there:
		s.refuse(w, req, http.StatusBadRequest, "there is no such agent")
	case known[e.Agent] == nil:
		s.refuse(w, req, http.StatusBadRequest, "agent is to be claude or codex")
	default:
		return e, true
	}
	return nil, false
}

// serveRegisterEvent takes the event of a session's start. Claude Code has it alone.
func (s *Server) serveRegisterEvent(w http.ResponseWriter, req *http.Request) {
	e, ok := s.readEvent(w, req)
	switch {
	case !ok:
		return
	case e.Agent != "claude":
		s.refuse(w, req, http.StatusBadRequest, "only claude has this route")
		return
	case e.Source != "startup" && e.Source != "resume":
		s.refuse(w, req, http.StatusBadRequest, "source is to be startup or resume")
		return
	}
	s.mu.Lock()
	if a := s.agents[e.AgentID]; a != nil {
		s.claim(a, daemon.SessionKey{Agent: e.Agent, ID: cmp.Or(e.SessionID, e.text("session_id"))})
		a.Registered, a.State, a.changed = true, idle, true
		a.tell(e)
		s.stirred(a)
	}
	s.mu.Unlock()
	s.flush()
	answer, err := s.registration(req.Context(), e.AgentID)
	if err != nil {
		s.host.Log().Warn("an agent cannot be registered", "error", err)
		http.Error(w, "the agent's mailbox cannot be read", http.StatusInternalServerError)
		return
	}
	writeJSON(w, answer)
}

// serveStatusEvent takes an event of a session that goes on.
func (s *Server) serveStatusEvent(w http.ResponseWriter, req *http.Request) {
	e, ok := s.readEvent(w, req)
	if !ok {
		return
	}
	state, session := "", ""
	var about subwork
	switch {
	case e.Agent == "claude" && (e.Hook == "SubagentStart" || e.Hook == "SubagentStop"):
		id := e.text("agent_id")
		if id == "" {
			s.refuse(w, req, http.StatusBadRequest, "payload.agent_id is missing: a subagent has an id")
			return
		}
		about = subwork{Task: e.text("task"), Kind: e.text("agent_type"), State: "running"}
	case e.Agent == "claude":
		state = map[string]string{"running": working, "idle": idle, "input": awaitingInput}[e.Status]
		session = cmp.Or(e.SessionID, e.text("session_id"))
		if state == "" {
			s.refuse(w, req, http.StatusBadRequest, "status is to be running, idle or input")
			return
		}
	case e.text("type") == "agent-turn-complete":
		state, session = idle, e.text("thread-id")
	default:
		s.refuse(w, req, http.StatusBadRequest, "payload.type is to be agent-turn-complete")
		return
	}
	s.mu.Lock()
	if a := s.agents[e.AgentID]; a != nil {
		s.claim(a, daemon.SessionKey{Agent: e.Agent, ID: session})
		switch {
		case state != "":
			if state == awaitingInput && a.State != state {
				s.waits(a, e.text("message"))
			}
			a.State = state
		case e.Hook == "SubagentStart":
			a.dispatched(e.text("agent_id"), about)
		default:
			a.finished(e.text("agent_id"), e.text("error"))
		}
		a.tell(e)
		a.changed = true
		s.stirred(a)
	}
	s.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

// claim makes a session, which an event names, and an agent one; one that is another agent's stays so. mu is held.
func (s *Server) claim(a *agent, key daemon.SessionKey) {
	if key.ID != "" && s.mayBind(a, key) {
		s.bind(a, key)
	}
}

// tell puts what an event says into the agent's metadata. mu is held.
func (a *agent) tell(e *hookEvent) {
	for _, field := range known[e.Agent] {
		if value := e.text(field); value != "" {
			if a.Metadata == nil {
				a.Metadata = map[string]string{}
			}
			a.Metadata[field] = value
		}
	}
}

// dispatched takes note of a subagent that runs. mu is held.
func (a *agent) dispatched(id string, work subwork) {
	if a.Subagents == nil {
		a.Subagents = map[string]subwork{}
	}
	if len(a.Subagents) >= maxSubagents {
		maps.DeleteFunc(a.Subagents, func(_ string, w subwork) bool { return w.State != "running" })
	}
	if _, there := a.Subagents[id]; there || len(a.Subagents) < maxSubagents {
		a.Subagents[id] = work
	}
}

// finished takes note that a subagent has ended, with why where it failed. One that is not known is none of ours. mu is held.
func (a *agent) finished(id, why string) {
	work, there := a.Subagents[id]
	if !there {
		return
	}
	work.State, work.Why = "finished", why
	if why != "" {
		work.State = "failed"
	}
	a.Subagents[id] = work
}
