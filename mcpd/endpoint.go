package mcpd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
)

const (
	// agentHeader carries the agent's id from the endpoint to the tools. What a client sends in it is overwritten.
	agentHeader   = "Knoot-Agent"
	sessionHeader = "Mcp-Session-Id"
	versionHeader = "Mcp-Protocol-Version"
	// withoutSessions is the first version of the protocol that has none.
	withoutSessions = "2026-07-28"
)

// serveMCP is the endpoint of agents. It never answers 404, nor 401: clients give up a server that does, for as long as they run.
func (s *Server) serveMCP(w http.ResponseWriter, req *http.Request) {
	id := req.URL.Query().Get("agent")
	if id == "" {
		s.refuse(w, req, http.StatusBadRequest, "the address names no agent: /mcp?agent=NAME")
		return
	}
	if !s.authentic(id, bearer(req)) {
		s.refuse(w, req, http.StatusForbidden, "this is not the agent's secret; `knoot mcp config` says what its configuration needs")
		return
	}
	req.Header.Set(agentHeader, id)
	newer := req.Header.Get(versionHeader) >= withoutSessions
	switch {
	case req.Method == http.MethodPost:
		s.post(w, req, id, newer)
	case req.Method == http.MethodGet && !newer:
		s.get(w, req, id)
	case req.Method == http.MethodDelete && !newer:
		s.connections.finish(id, req.Header.Get(sessionHeader))
		w.WriteHeader(http.StatusNoContent)
	default:
		notAllowed(w)
	}
}

func notAllowed(w http.ResponseWriter) {
	w.Header().Set("Allow", "POST")
	http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
}

// peeked is what the endpoint looks at of a message.
type peeked struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
}

// peek reads what messages a body has; what cannot be read is for whoever reads it whole to refuse.
func peek(body []byte) (messages []peeked, batch bool) {
	if body = bytes.TrimLeft(body, " \t\r\n"); len(body) > 0 && body[0] == '[' {
		_ = json.Unmarshal(body, &messages)
		return messages, true
	}
	var one peeked
	if json.Unmarshal(body, &one) == nil {
		messages = append(messages, one)
	}
	return messages, false
}

func (s *Server) post(w http.ResponseWriter, req *http.Request, id string, newer bool) {
	body, err := io.ReadAll(req.Body) // that the guard has read
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	messages, batch := peek(body)
	begins := slices.ContainsFunc(messages, func(m peeked) bool { return m.Method == "initialize" })
	switch epoch := req.Header.Get(sessionHeader); {
	case newer:
	case begins:
		w.Header().Set(sessionHeader, s.connections.begin(id))
	case epoch != "" && !s.connections.adopt(id, epoch):
		answerReplaced(w, id, messages, batch)
		return
	}
	for _, m := range messages {
		if m.Method == "tools/call" {
			s.connections.called(id, req.Header.Get(sessionHeader))
		}
	}
	s.connected(id)
	req.Header.Set("Accept", "application/json, text/event-stream") // whoever takes one of them takes what comes here
	stream := newStreamWriter(w, s.keepAlive)
	defer stream.finish()
	if batch || len(messages) != 1 {
		s.tools.Load().handler.ServeHTTP(stream, req)
		return
	}
	misread := &misreadWriter{ResponseWriter: stream, message: messages[0], newer: newer}
	defer misread.finish()
	s.tools.Load().handler.ServeHTTP(misread, req)
}

// get is the stream on which a server speaks first. This one never does, but clients take one that is there for a sign of health.
func (s *Server) get(w http.ResponseWriter, req *http.Request, id string) {
	epoch := req.Header.Get(sessionHeader)
	if !strings.Contains(strings.Join(req.Header.Values("Accept"), ","), "text/event-stream") || epoch != "" && !s.connections.adopt(id, epoch) {
		notAllowed(w)
		return
	}
	s.connected(id)
	ctx, closed := s.connections.open(req.Context(), id)
	defer closed()
	stream := newStreamWriter(w, s.keepAlive)
	defer stream.finish()
	stream.Header().Set("Content-Type", "text/event-stream")
	stream.Header().Set("Connection", "close") // with the stream: one that was replaced leaves nothing behind
	stream.WriteHeader(http.StatusOK)
	if _, err := stream.Write(sign); err != nil {
		return
	}
	stream.Flush()
	<-ctx.Done()
}

// rpcAnswer is the answer to a message.
type rpcAnswer struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  any             `json:"result,omitempty"`
	Error   any             `json:"error,omitempty"`
}

// rpcError is what is wrong with a message, as the protocol has it.
type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// answerReplaced tells a connection that it is the agent's no more. It does so with 200: a client that is told anything else begins
// anew, and throws the other out in its turn.
func answerReplaced(w http.ResponseWriter, id string, messages []peeked, batch bool) {
	why := fmt.Sprintf("another connection works as %s now, so this one has ended; start this agent again to take its place", id)
	var answers []rpcAnswer
	for _, m := range messages {
		switch {
		case len(m.ID) == 0 || m.Method == "":
		case m.Method == "tools/call":
			answers = append(answers, rpcAnswer{Version: "2.0", ID: m.ID, Result: map[string]any{"isError": true, "content": []any{map[string]string{"type": "text", "text": why}}}})
		default:
			answers = append(answers, rpcAnswer{Version: "2.0", ID: m.ID, Error: rpcError{Code: -32000, Message: why}})
		}
	}
	switch {
	case len(answers) == 0:
		w.WriteHeader(http.StatusAccepted)
	case batch:
		writeJSON(w, answers)
	default:
		writeJSON(w, answers[0])
	}
}
