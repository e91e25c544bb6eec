package hook

import (
	"bytes"
	"encoding/json"
)

// hookTimeout is when an agent gives the command up, in seconds. It ends itself within 2.3.
const hookTimeout = 5

// Group is one entry of the list that an agent's settings hold under hooks.EVENT.
type Group struct {
	Event   string
	Matcher string // of tool names; "" for events that are about no tool
	Command string
	Timeout int // seconds
}

// JSON is the group as settings hold it, on one line.
func (g Group) JSON() []byte {
	type handler struct {
		Type    string `json:"type"`
		Command string `json:"command"`
		Timeout int    `json:"timeout"`
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false) // people read their settings
	if err := enc.Encode(struct {
		Matcher string    `json:"matcher,omitempty"`
		Hooks   []handler `json:"hooks"`
	}{g.Matcher, []handler{{"command", g.Command, g.Timeout}}}); err != nil {
		panic(err) // strings and a number always encode
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}
