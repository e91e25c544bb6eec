// Package agents runs real coding agents offline against a scripted model, so that a test can look at what the model was
// shown and at what the agent's tools did.
//
// The agents are other people's programs. They are fetched into a folder outside the repository (fetch.sh) and run in a
// network namespace of their own, with a throw-away home and no key, so they reach the scripted model and nothing else.
package agents

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
)

// Script is what the model says, a turn after the other; the last turn repeats.
type Script [][]Item

// Item is a part of a turn: text, or the call of a tool.
type Item struct {
	Text      string // said, where Tool is empty
	Tool      string // name of the tool to call
	Namespace string // of the tool; "" for most
	Input     any    // the tool's input, as JSON; a string is the input of a tool that takes text
	// After is closed when the model may answer with this item's turn; nil: at once.
	After <-chan struct{}
}

// Request is one request that the model received.
type Request struct {
	Path string
	Body []byte
}

// Count says how often text stands in the strings of the request's body, JSON escapes undone.
func (r Request) Count(text string) int {
	var body any
	if err := json.Unmarshal(r.Body, &body); err != nil {
		return strings.Count(string(r.Body), text)
	}
	return count(body, text)
}

func count(value any, text string) int {
	n := 0
	switch value := value.(type) {
	case string:
		n = strings.Count(value, text)
	case []any:
		for _, element := range value {
			n += count(element, text)
		}
	case map[string]any:
		for _, element := range value {
			n += count(element, text)
		}
	}
	return n
}

// subagentPrompt is what a subagent is asked for, by which its requests are told from those of its session.
const subagentPrompt = "SUBTASK: do your part"

// Model stands in for a model provider on a loopback port: Anthropic's Messages API and OpenAI's Responses API, streamed. It
// answers requests for a turn from its script, and others (an agent asks for a title, or counts tokens) with a constant.
type Model struct {
	listener net.Listener
	server   *http.Server
	done     chan struct{}

	mu             sync.Mutex
	asked          func(turn int) // guarded by mu, as all here
	main, subagent side
}

// side is what is said to whom: to sessions, or to their subagents.
type side struct {
	script   Script
	requests []Request
}

// NewModel starts a model that follows script. Close ends it.
func NewModel(script Script) (*Model, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m := &Model{listener: listener, done: make(chan struct{}), main: side{script: script}}
	m.server = &http.Server{Handler: m}
	go func() {
		defer close(m.done)
		_ = m.server.Serve(listener) // ends by Close, with ErrServerClosed
	}()
	return m, nil
}

// URL is the address to give to an agent as its provider's.
func (m *Model) URL() string { return "http://" + m.listener.Addr().String() }

// Close ends the model and the connections to it.
func (m *Model) Close() error {
	err := m.server.Close()
	<-m.done
	return err
}

// Asked has f told of each request that the script answers, counted from 1, before it is answered; those of subagents are counted
// from 1001. f may ask for Turns.
func (m *Model) Asked(f func(turn int)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = f
}

// Subagent gives subagents a script of their own.
func (m *Model) Subagent(script Script) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.subagent.script = script
}

// SubagentTurns are the Turns of subagents.
func (m *Model) SubagentTurns() []Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]Request(nil), m.subagent.requests...)
}

// Turns returns the requests that the script answered, in their order: what the agent sent at each of its steps.
func (m *Model) Turns() []Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]Request(nil), m.main.requests...)
}

// ServeHTTP answers one request of an agent.
func (m *Model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var asked struct {
		Model    string            `json:"model"`
		Tools    []json.RawMessage `json:"tools"`
		Messages []json.RawMessage `json:"messages"`
	}
	_ = json.Unmarshal(body, &asked) // what has no tools is answered with a constant
	request := Request{Path: r.URL.Path, Body: body}
	stream := message
	subagent := len(asked.Messages) > 0 && bytes.Contains(asked.Messages[0], []byte(subagentPrompt))
	switch {
	case r.Method != http.MethodPost:
		reply(w, "application/json", []byte(`{"data":[],"models":[]}`))
		return
	case strings.HasSuffix(r.URL.Path, "/responses"):
		stream = response
		subagent = strings.Contains(r.Header.Get("X-OpenAI-Subagent"), "collab")
	case !strings.HasSuffix(r.URL.Path, "/messages"):
		reply(w, "application/json", []byte(`{"input_tokens":10}`))
		return
	case len(asked.Tools) == 0:
		reply(w, "text/event-stream", message(asked.Model, 0, []Item{{Text: `{"title":"a title"}`}}))
		return
	}
	turn, items := m.next(request, subagent)
	for _, item := range items {
		if item.After != nil {
			select {
			case <-item.After:
			case <-r.Context().Done():
				return // the agent went away
			}
		}
	}
	reply(w, "text/event-stream", stream(asked.Model, turn, items))
}

// next is what the script says next, and the number of that turn; turns of subagents are counted from 1001.
func (m *Model) next(request Request, subagent bool) (int, []Item) {
	m.mu.Lock()
	side, first := &m.main, 0
	if subagent {
		side, first = &m.subagent, 1000
	}
	side.requests = append(side.requests, request)
	turn, items, asked := len(side.requests), turnOf(side.script, len(side.requests)), m.asked
	m.mu.Unlock()
	if asked != nil {
		asked(first + turn)
	}
	return first + turn, items
}

// turnOf is a script's turn, counted from 1.
func turnOf(script Script, turn int) []Item {
	if len(script) == 0 {
		return []Item{{Text: "done"}}
	}
	return script[min(turn, len(script))-1]
}

func reply(w http.ResponseWriter, kind string, body []byte) {
	w.Header().Set("Content-Type", kind)
	_, _ = w.Write(body) // an agent that went away has ended its test
}

type object = map[string]any

// encode is a value as JSON on one line, as people write it.
func encode(value any) string {
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic(fmt.Sprintf("the script's input is no JSON: %v", err))
	}
	return strings.TrimSuffix(text.String(), "\n")
}

// events is a stream of server-sent events.
type events struct{ bytes.Buffer }

func (e *events) add(name string, fields object) {
	fields["type"] = name
	fmt.Fprintf(e, "event: %s\ndata: %s\n\n", name, encode(fields))
}

// message is one assistant message as the stream of events in which the Messages API sends it.
func message(model string, turn int, items []Item) []byte {
	var stream events
	stream.add("message_start", object{"message": object{
		"id": fmt.Sprintf("msg_%d", turn), "type": "message", "role": "assistant", "model": model, "content": []any{},
		"stop_reason": nil, "stop_sequence": nil,
		"usage": object{"input_tokens": 10, "output_tokens": 1, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0},
	}})
	stop := "end_turn"
	for i, item := range items {
		block, delta := object{"type": "text", "text": ""}, object{"type": "text_delta", "text": item.Text}
		if item.Tool != "" {
			stop = "tool_use"
			block = object{"type": "tool_use", "id": fmt.Sprintf("toolu_%d_%d", turn, i), "name": item.Tool, "input": object{}}
			delta = object{"type": "input_json_delta", "partial_json": encode(item.Input)}
		}
		stream.add("content_block_start", object{"index": i, "content_block": block})
		stream.add("content_block_delta", object{"index": i, "delta": delta})
		stream.add("content_block_stop", object{"index": i})
	}
	stream.add("message_delta", object{"delta": object{"stop_reason": stop, "stop_sequence": nil}, "usage": object{"output_tokens": 5}})
	stream.add("message_stop", object{})
	return stream.Bytes()
}

// response is one assistant message as the stream of events in which the Responses API sends it.
func response(_ string, turn int, items []Item) []byte {
	var stream events
	id := fmt.Sprintf("resp_%d", turn)
	stream.add("response.created", object{"response": object{"id": id}})
	for i, item := range items {
		call := fmt.Sprintf("call_%d_%d", turn, i)
		said := object{"type": "message", "role": "assistant", "id": "msg_" + call, "content": []any{object{"type": "output_text", "text": item.Text}}}
		if text, ok := item.Input.(string); ok {
			said = object{"type": "custom_tool_call", "id": "ctc_" + call, "call_id": call, "name": item.Tool, "input": text}
		} else if item.Tool == "tool_search" { // Codex's own, for tools that it does not show at once
			said = object{"type": "tool_search_call", "id": "tsc_" + call, "call_id": call, "execution": "client", "arguments": item.Input}
		} else if item.Tool != "" {
			said = object{"type": "function_call", "id": "fc_" + call, "call_id": call, "name": item.Tool, "arguments": encode(item.Input)}
			if item.Namespace != "" {
				said["namespace"] = item.Namespace
			}
		}
		stream.add("response.output_item.done", object{"output_index": i, "item": said})
	}
	stream.add("response.completed", object{"response": object{"id": id, "usage": object{"input_tokens": 10, "input_tokens_details": nil,
		"output_tokens": 5, "output_tokens_details": nil, "total_tokens": 15}}})
	return stream.Bytes()
}
