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
	Text  string // said, where Tool is empty
	Tool  string // name of the tool to call
	Input any    // the tool's input, as JSON
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

// Model stands in for a model provider on a loopback port: Anthropic's Messages API, streamed. It answers requests that
// offer tools from its script, and others (an agent asks for a title, or counts tokens) with a constant.
type Model struct {
	script   Script
	listener net.Listener
	server   *http.Server
	done     chan struct{}

	mu       sync.Mutex
	asked    func(turn int)
	turn     int
	requests []Request
}

// NewModel starts a model that follows script. Close ends it.
func NewModel(script Script) (*Model, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m := &Model{script: script, listener: listener, done: make(chan struct{})}
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

// Asked has f told of each request that the script answers, counted from 1, before it is answered. f must not ask the model.
func (m *Model) Asked(f func(turn int)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = f
}

// Turns returns the requests that the script answered, in their order: what the agent sent at each of its steps.
func (m *Model) Turns() []Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]Request(nil), m.requests...)
}

// ServeHTTP answers one request of an agent.
func (m *Model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var asked struct {
		Model string            `json:"model"`
		Tools []json.RawMessage `json:"tools"`
	}
	_ = json.Unmarshal(body, &asked) // what has no tools is answered with a constant
	switch {
	case r.Method != http.MethodPost:
		reply(w, "application/json", []byte(`{"data":[]}`))
	case !strings.HasSuffix(r.URL.Path, "/messages"):
		reply(w, "application/json", []byte(`{"input_tokens":10}`))
	case len(asked.Tools) == 0:
		reply(w, "text/event-stream", message(asked.Model, 0, []Item{{Text: `{"title":"a title"}`}}))
	default:
		turn, items := m.next(Request{Path: r.URL.Path, Body: body})
		for _, item := range items {
			if item.After != nil {
				select {
				case <-item.After:
				case <-r.Context().Done():
					return // the agent went away
				}
			}
		}
		reply(w, "text/event-stream", message(asked.Model, turn, items))
	}
}

func (m *Model) next(request Request) (int, []Item) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests = append(m.requests, request)
	if m.asked != nil {
		m.asked(len(m.requests))
	}
	if len(m.script) == 0 {
		return len(m.requests), []Item{{Text: "done"}}
	}
	items := m.script[min(m.turn, len(m.script)-1)]
	m.turn++
	return m.turn, items
}

func reply(w http.ResponseWriter, kind string, body []byte) {
	w.Header().Set("Content-Type", kind)
	_, _ = w.Write(body) // an agent that went away has ended its test
}

// message is one assistant message as the stream of events in which the Messages API sends it.
func message(model string, turn int, items []Item) []byte {
	var stream bytes.Buffer
	event := func(name string, fields map[string]any) {
		fields["type"] = name
		data, err := json.Marshal(fields)
		if err != nil {
			panic(fmt.Sprintf("the script's input is no JSON: %v", err))
		}
		fmt.Fprintf(&stream, "event: %s\ndata: %s\n\n", name, data)
	}
	type object = map[string]any

	event("message_start", object{"message": object{
		"id": fmt.Sprintf("msg_%d", turn), "type": "message", "role": "assistant", "model": model, "content": []any{},
		"stop_reason": nil, "stop_sequence": nil,
		"usage": object{"input_tokens": 10, "output_tokens": 1, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0},
	}})
	stop := "end_turn"
	for i, item := range items {
		block, delta := object{"type": "text", "text": ""}, object{"type": "text_delta", "text": item.Text}
		if item.Tool != "" {
			stop = "tool_use"
			input, err := json.Marshal(item.Input)
			if err != nil {
				panic(fmt.Sprintf("the script's input is no JSON: %v", err))
			}
			block = object{"type": "tool_use", "id": fmt.Sprintf("toolu_%d_%d", turn, i), "name": item.Tool, "input": object{}}
			delta = object{"type": "input_json_delta", "partial_json": string(input)}
		}
		event("content_block_start", object{"index": i, "content_block": block})
		event("content_block_delta", object{"index": i, "delta": delta})
		event("content_block_stop", object{"index": i})
	}
	event("message_delta", object{"delta": object{"stop_reason": stop, "stop_sequence": nil}, "usage": object{"output_tokens": 5}})
	event("message_stop", object{})
	return stream.Bytes()
}
