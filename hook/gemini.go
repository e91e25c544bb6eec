package hook

import "strings"

// gemini is Gemini CLI, measured at version 0.61.0. What it is told before a tool call reaches nobody, so only a denial is said
// there, and what belongs to the call is said after it. Its PreCompress is left alone: it comes with every request to the model.
var gemini = agent{
	events: map[string]reply{
		"SessionStart": {context: true, start: true},
		"BeforeAgent":  {as: "UserPromptSubmit", context: true, start: true},
		"BeforeTool":   {as: "PreToolUse", deny: true, tool: true},
		"AfterTool":    {as: "PostToolUse", context: true, tool: true},
		"AfterAgent":   {as: "Stop", hold: true},
		"SessionEnd":   {},
	},
	tools: map[string]tool{
		"read_file":         {path: anyPath},
		"write_file":        {path: anyPath, writes: true},
		"replace":           {path: anyPath, writes: true},
		"run_shell_command": {shell: true},
	},
	form: form{
		deny:    span{`{"decision":"deny","reason":`, `}`},
		person:  span{start: `,"systemMessage":`},
		event:   `{"hookSpecificOutput":{"hookEventName":"`,
		context: span{`","additionalContext":`, `}}`},
		hold:    span{`{"decision":"deny","reason":`, `}`},
	},
	settle: settleGemini,
}

// settleGemini: AfterTool comes after a failure, too; calls have no id; and without a terminal what was said at the session's start
// comes back in front of the prompt, which a person did not type.
func settleGemini(p *payload) error {
	h := &p.hook
	const before, behind = "<hook_context>", "</hook_context>"
	for strings.HasPrefix(h.Prompt, before) {
		_, rest, closed := strings.Cut(h.Prompt, behind)
		if !closed {
			rest = ""
		}
		h.Prompt = strings.TrimLeft(rest, "\r\n")
	}
	if h.Tool != "" {
		h.ToolUse = p.call()
	}
	if p.event == "AfterTool" && p.aside.failed {
		h.Event = "PostToolUseFailure"
	}
	return nil
}

// GeminiCommand is the text of the hook that is installed for Gemini CLI.
const GeminiCommand = `k=${KNOOT_BIN:-knoot}; [ "$KNOOT" = off ] || ! command -v "$k" >/dev/null 2>&1 || "$k" hook gemini 2>/dev/null; exit 0`

// GeminiGroups are the groups that installing adds to Gemini CLI's settings. It counts timeouts in milliseconds.
func GeminiGroups() []Group {
	const tools = "read_file|write_file|replace|run_shell_command"
	var groups []Group
	for _, g := range [...]struct{ event, matcher string }{
		{"SessionStart", ""}, {"BeforeAgent", ""}, {"BeforeTool", tools}, {"AfterTool", tools}, {"AfterAgent", ""}, {"SessionEnd", ""},
	} {
		groups = append(groups, Group{Event: g.event, Matcher: g.matcher, Command: GeminiCommand, Timeout: hookTimeout * 1000})
	}
	return groups
}
