package hook

import "path/filepath"

// claude is Claude Code, measured at version 2.1.332. Older versions have MultiEdit.
var claude = agent{
	pid:    "CLAUDE_PID",
	form:   claudeForm,
	settle: refuseForeign,
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
		"Notification":       {},
		"PermissionRequest":  {},
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

// claudeForm is that of Codex, too, which takes it more strictly.
var claudeForm = form{
	deny:    span{`{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":`, `}}`},
	also:    `,"additionalContext":`,
	person:  span{`},"systemMessage":`, `}`},
	event:   `{"hookSpecificOutput":{"hookEventName":"`,
	context: span{`","additionalContext":`, `}}`},
	hold:    span{`{"decision":"block","reason":`, `}`},
}

// refuseForeign refuses the payload of another agent: Cursor and Copilot CLI run what stands in .claude/settings.json, too, with
// payloads of their own. Answered as Claude's it would be a second session at work on the same files, which is refused what the
// first one holds.
func refuseForeign(p *payload) error {
	a := &p.aside
	if a.cursor || a.camel || a.stamped && (a.transcript == "" || filepath.Base(a.transcript) == "events.jsonl") {
		return errForeign
	}
	return nil
}

// ClaudeCommand is the text of the hook that is installed for Claude Code. It never changes: Claude runs equal commands once,
// so that hooks installed for a repository and for a person are one. Without knoot on the machine it does nothing, silently.
const ClaudeCommand = `k=${KNOOT_BIN:-knoot}; [ "$KNOOT" = off ] || ! command -v "$k" >/dev/null 2>&1 || "$k" hook claude 2>/dev/null; exit 0`

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
		{"Notification", "permission_prompt|elicitation_dialog"},
		{"PermissionRequest", ""},
	} {
		groups = append(groups, Group{Event: g.event, Matcher: g.matcher, Command: ClaudeCommand, Timeout: hookTimeout})
	}
	return groups
}
