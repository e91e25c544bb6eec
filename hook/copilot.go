package hook

import "strings"

// copilot is GitHub Copilot CLI, measured at version 1.0.102. Its events come under Claude Code's names, which make its payloads say
// which event they are; tools then have Claude's names, and their arguments Copilot's own. A subagent is a session to it: it begins
// with a prompt and ends with a Stop, both of which name the session that it belongs to.
var copilot = agent{
	events: map[string]reply{
		"SessionStart":       {context: true, start: true},
		"UserPromptSubmit":   {context: true, start: true},
		"PreToolUse":         {context: true, deny: true, tool: true},
		"PostToolUse":        {context: true, tool: true},
		"PostToolUseFailure": {context: true, tool: true},
		"PreCompact":         {},
		"Stop":               {hold: true},
		"SessionEnd":         {},
	},
	tools: map[string]tool{
		"Read":               {path: anyPath},
		"Write":              {path: anyPath, writes: true},
		"Edit":               {path: anyPath, writes: true},
		"Bash":               {shell: true},
		"view":               {path: anyPath},
		"create":             {path: anyPath, writes: true},
		"edit":               {path: anyPath, writes: true},
		"str_replace_editor": {path: anyPath, writes: true},
		"bash":               {shell: true},
		"apply_patch":        {patch: true},
	},
	form: form{
		deny:    span{`{"permissionDecision":"deny","permissionDecisionReason":`, `}`},
		also:    `,"additionalContext":`,
		context: span{`{"additionalContext":`, `}`},
		hold:    span{`{"decision":"block","reason":`, `}`},
	},
	settle: settleCopilot,
}

func settleCopilot(p *payload) error {
	h, a := &p.hook, &p.aside
	if a.source == "new" {
		a.source = "startup"
	}
	if a.parent != "" && h.Subagent != "" {
		h.Session = a.parent
		switch p.event {
		case "UserPromptSubmit":
			h.Event = "SubagentStart"
		case "Stop":
			h.Event = "SubagentStop"
		}
	}
	switch {
	case h.Tool == "str_replace_editor" && p.line == "view":
		h.Tool = "view"
	case h.Tool != "" && h.Tool != "Bash" && h.Tool != "bash" && strings.Contains(p.line, "*** Begin Patch"):
		h.Tool = "apply_patch" // its input is the patch, whatever it is called
	}
	if h.Tool != "" {
		h.ToolUse = p.call()
	}
	h.Background = h.Background || a.mode == "async"
	return nil
}

// CopilotCommand is the text of the hook that is installed for Copilot CLI. A hook that fails there denies the call, so it may not.
const CopilotCommand = `k=${KNOOT_BIN:-knoot}; [ "$KNOOT" = off ] || ! command -v "$k" >/dev/null 2>&1 || "$k" hook copilot 2>/dev/null; exit 0`

// CopilotGroups are the entries that installing adds to Copilot CLI's hooks.
func CopilotGroups() []Group {
	var groups []Group
	for _, event := range [...]string{
		"SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolUseFailure", "PreCompact", "Stop", "SessionEnd",
	} {
		groups = append(groups, Group{Event: event, Command: CopilotCommand, Timeout: hookTimeout, Flat: "bash"})
	}
	return groups
}
