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
	Timeout int // in the agent's units: seconds, but for Gemini CLI
	// Flat is the key of the command in an entry that is itself the handler; "": handlers stand in a list in it.
	Flat string
}

// JSON is the group as settings hold it, on one line.
func (g Group) JSON() []byte {
	type handler struct {
		Type    string `json:"type,omitempty"`
		Command string `json:"command,omitempty"`
		Bash    string `json:"bash,omitempty"`
		Timeout int    `json:"timeout,omitempty"`
		Seconds int    `json:"timeoutSec,omitempty"`
	}
	var entry any
	switch g.Flat {
	case "":
		entry = struct {
			Matcher string    `json:"matcher,omitempty"`
			Hooks   []handler `json:"hooks"`
		}{g.Matcher, []handler{{Type: "command", Command: g.Command, Timeout: g.Timeout}}}
	case "bash":
		entry = handler{Type: "command", Bash: g.Command, Seconds: g.Timeout}
	default:
		entry = handler{Command: g.Command, Timeout: g.Timeout}
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false) // people read their settings
	if err := enc.Encode(entry); err != nil {
		panic(err) // strings and a number always encode
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}
