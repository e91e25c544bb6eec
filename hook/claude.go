package hook

import (
	"bytes"
	"encoding/json"
)

// claude is Claude Code, measured at version 2.1.332. Older versions have MultiEdit.
var claude = agent{
	pid: "CLAUDE_PID",
	events: map[string]reply{
		"SessionStart":       {context: true, start: true},
		"UserPromptSubmit":   {context: true, start: true},
		"PreToolUse":         {context: true, deny: true, tool: true},
		"PostToolUse":        {context: true, tool: true},
		"PostToolUseFailure": {context: true, tool: true},
		"SubagentStart":      {context: true},
		"SubagentStop":       {},
		"PreCompact":         {},
		"Stop":               {hold: true},
		"SessionEnd":         {},
	},
	tools: map[string]tool{
		"Read":         {path: "file_path"},
		"Write":        {path: "file_path", writes: true},
		"Edit":         {path: "file_path", writes: true},
		"MultiEdit":    {path: "file_path", writes: true},
		"NotebookEdit": {path: "notebook_path", writes: true},
		"Bash":         {shell: true},
	},
}

// ClaudeCommand is the text of the hook that is installed for Claude Code. It never changes: Claude runs equal commands once,
// so that hooks installed for a repository and for a person are one. Without knoot on the machine it does nothing, silently.
const ClaudeCommand = `k=${KNOOT_BIN:-knoot}; [ "$KNOOT" = off ] || ! command -v "$k" >/dev/null 2>&1 || "$k" hook claude 2>/dev/null; exit 0`

// claudeTimeout is when Claude gives the command up, in seconds. It ends itself within 2.3.
const claudeTimeout = 5

// Group is one entry of the list that an agent's settings hold under hooks.EVENT.
type Group struct {
	Event   string
	Matcher string // of tool names; "" for events that are about no tool
	Command string
	Timeout int // seconds
}

// ClaudeGroups are the groups that installing adds to Claude Code's settings, in the order in which they are written.
func ClaudeGroups() []Group {
	const files = "Read|Write|Edit|MultiEdit|NotebookEdit|Bash"
	var groups []Group
	for _, g := range [...]struct{ event, matcher string }{
		{"SessionStart", ""},
		{"UserPromptSubmit", ""},
		{"PreToolUse", files},
		{"PostToolUse", files},
		{"PostToolUseFailure", files},
		{"SubagentStart", ""},
		{"SubagentStop", ""},
		{"PreCompact", ""},
		{"Stop", ""},
		{"SessionEnd", ""},
	} {
		groups = append(groups, Group{Event: g.event, Matcher: g.matcher, Command: ClaudeCommand, Timeout: claudeTimeout})
	}
	return groups
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
