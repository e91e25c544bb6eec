package mcpd

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// maxKeys bounds what is typed with one request, in bytes.
const maxKeys = 64 << 10

// TerminalInput is the body of POST /api/v1/agent/terminal: what a person does at an agent's terminal.
type TerminalInput struct {
	AgentID string `json:"agent_id"`
	Keys    []byte `json:"keys,omitempty"` // base64
	Rows    int    `json:"rows,omitempty"` // its size, where that changed
	Columns int    `json:"columns,omitempty"`
}

// terminalFor returns the terminal that a person's request names; false: the answer is written.
func (s *Server) terminalFor(w http.ResponseWriter, req *http.Request, id string) (*terminal, bool) {
	t, runs := s.terminalOf(id)
	if !runs {
		s.refuse(w, req, http.StatusNotFound, "no agent of that name runs in a terminal")
	}
	return t, runs
}

// serveTerminal streams what an agent's terminal prints, from what is kept of it, until its program ends.
func (s *Server) serveTerminal(w http.ResponseWriter, req *http.Request) {
	if !s.isPerson(bearer(req)) {
		s.unknown(w, req)
		return
	}
	t, runs := s.terminalFor(w, req, req.URL.Query().Get("agent"))
	if !runs {
		return
	}
	from, _ := strconv.ParseInt(req.URL.Query().Get("after"), 10, 64)
	stream := newStreamWriter(w, s.keepAlive)
	defer stream.finish()
	stream.Header().Set("Content-Type", "application/octet-stream")
	stream.WriteHeader(http.StatusOK)
	stream.Flush()
	for {
		text, printed, more := t.since(from)
		if len(text) > 0 {
			if _, err := stream.Write(text); err != nil {
				return
			}
			stream.Flush()
		}
		from = printed
		select {
		case <-more:
		case <-req.Context().Done():
			return
		case <-t.ended:
			if _, now, _ := t.since(from); now == from {
				return
			}
		}
	}
}

// serveTerminalInput types keys, and follows the size of the person's own terminal.
func (s *Server) serveTerminalInput(w http.ResponseWriter, req *http.Request) {
	if !s.isPerson(bearer(req)) {
		s.unknown(w, req)
		return
	}
	var in TerminalInput
	if err := json.NewDecoder(req.Body).Decode(&in); err != nil || in.AgentID == "" || len(in.Keys) > maxKeys {
		s.refuse(w, req, http.StatusBadRequest, "the body is no input: JSON with agent_id, and keys or rows and columns")
		return
	}
	t, runs := s.terminalFor(w, req, in.AgentID)
	if !runs {
		return
	}
	var err error
	if in.Rows != 0 || in.Columns != 0 {
		err = t.resize(in.Rows, in.Columns)
	}
	if err == nil && len(in.Keys) > 0 {
		err = t.press(in.Keys)
	}
	if err != nil {
		s.refuse(w, req, http.StatusBadRequest, err.Error())
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
