package hook

// cursor is Cursor, after its documentation of 2026-08: it could not be run here. It can be told something when a conversation begins
// and after a tool call, refused before one, and sent on at the end of a turn; with a prompt it can be told nothing. Its subagents
// are not told apart: what begins and ends them names no conversation, and their calls name no subagent.
var cursor = agent{
	events: map[string]reply{
		"sessionStart":       {as: "SessionStart", context: true, start: true},
		"beforeSubmitPrompt": {as: "UserPromptSubmit", start: true},
		"preToolUse":         {as: "PreToolUse", deny: true, tool: true},
		"postToolUse":        {as: "PostToolUse", context: true, tool: true},
		"postToolUseFailure": {as: "PostToolUseFailure", tool: true},
		"preCompact":         {as: "PreCompact"},
		"stop":               {as: "Stop", hold: true},
		"sessionEnd":         {as: "SessionEnd"},
	},
	// All changes of files are the tool Write to a matcher; what a payload calls them has changed with the versions.
	tools: map[string]tool{
		"Read":         {path: anyPath},
		"Write":        {path: anyPath, writes: true},
		"Edit":         {path: anyPath, writes: true},
		"MultiEdit":    {path: anyPath, writes: true},
		"StrReplace":   {path: anyPath, writes: true},
		"EditNotebook": {path: anyPath, writes: true},
		"Delete":       {path: anyPath, writes: true},
		"Shell":        {shell: true},
	},
	form: form{
		deny:    span{`{"permission":"deny","agent_message":`, `}`},
		person:  span{start: `,"user_message":`},
		context: span{`{"additional_context":`, `}`},
		hold:    span{`{"followup_message":`, `}`},
	},
	settle: settleCursor,
}

// settleCursor: a session is a conversation, its directory often only the workspace's, and a turn that was broken off is not sent on.
func settleCursor(p *payload) error {
	h, a := &p.hook, &p.aside
	if a.conversation != "" {
		h.Session = a.conversation
	}
	if h.PromptID == "" {
		h.PromptID = a.generation
	}
	if h.Cwd == "" {
		h.Cwd = a.root
	}
	a.source = ""
	if p.event == "sessionStart" {
		a.source = "startup" // it tells of new conversations alone
	}
	h.StopHook = h.StopHook || a.looped || a.status != "" && a.status != "completed"
	return nil
}

// CursorCommand is the text of the hook that is installed for Cursor, whatever shell it is run by.
const CursorCommand = `sh -c 'k=${KNOOT_BIN:-knoot}; [ "$KNOOT" = off ] || ! command -v "$k" >/dev/null 2>&1 || "$k" hook cursor 2>/dev/null; exit 0'`

// CursorGroups are the entries that installing adds to Cursor's hooks.json. They have no matcher: an unknown name in one would
// leave the tool without a hook.
func CursorGroups() []Group {
	var groups []Group
	for _, event := range [...]string{
		"sessionStart", "beforeSubmitPrompt", "preToolUse", "postToolUse", "postToolUseFailure", "preCompact", "stop", "sessionEnd",
	} {
		groups = append(groups, Group{Event: event, Command: CursorCommand, Timeout: hookTimeout, Flat: "command"})
	}
	return groups
}
