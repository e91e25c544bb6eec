package hook

// codex is Codex CLI, measured at version 0.171.0. Of its events PostCompact is left alone: what it says
// is known from others. A call that fails is no event of its own: of a patch there is none at all, of a command line the same
// as of one that succeeds.
var codex = agent{
	form: claudeForm,
	events: map[string]reply{
		"SessionStart":      {context: true, start: true},
		"UserPromptSubmit":  {context: true, start: true},
		"PreToolUse":        {context: true, deny: true, tool: true},
		"PostToolUse":       {context: true, tool: true},
		"SubagentStart":     {context: true},
		"SubagentStop":      {},
		"PreCompact":        {},
		"Stop":              {hold: true},
		"Interrupt":         {},
		"SessionEnd":        {},
		"PermissionRequest": {},
	},
	tools: map[string]tool{
		"apply_patch": {patch: true},
		"Bash":        {shell: true}, // exec_command and all its kin
	},
}

// CodexCommand is the text of the hook that is installed for Codex. It never changes: a person trusts a hook by its text. Codex
// runs it by the person's own shell, which may be one that reads no `k=$x`, so all of it is one argument of sh.
const CodexCommand = `sh -c 'k=${KNOOT_BIN:-knoot}; [ "$KNOOT" = off ] || ! command -v "$k" >/dev/null 2>&1 || "$k" hook codex 2>/dev/null; exit 0'`

// codexEndTimeout is the most that Codex gives to the hooks of Interrupt and SessionEnd, in seconds. It warns of more.
const codexEndTimeout = 3

// CodexGroups are the groups that installing adds to Codex's hooks.json, in the order in which they are written. A person trusts
// each as it is, timeout and matcher included: whatever is changed here has to be trusted anew.
func CodexGroups() []Group {
	// Edit and Write are other names of apply_patch; which of them a version matches by has changed.
	const files = "apply_patch|Edit|Write|Bash"
	return []Group{
		{Event: "SessionStart", Command: CodexCommand, Timeout: hookTimeout},
		{Event: "UserPromptSubmit", Command: CodexCommand, Timeout: hookTimeout},
		{Event: "PreToolUse", Matcher: files, Command: CodexCommand, Timeout: hookTimeout},
		{Event: "PostToolUse", Matcher: files, Command: CodexCommand, Timeout: hookTimeout},
		{Event: "SubagentStart", Command: CodexCommand, Timeout: hookTimeout},
		{Event: "SubagentStop", Command: CodexCommand, Timeout: hookTimeout},
		{Event: "PreCompact", Command: CodexCommand, Timeout: hookTimeout},
		{Event: "Stop", Command: CodexCommand, Timeout: hookTimeout},
		{Event: "Interrupt", Command: CodexCommand, Timeout: codexEndTimeout},
		{Event: "SessionEnd", Command: CodexCommand, Timeout: codexEndTimeout},
		{Event: "PermissionRequest", Command: CodexCommand, Timeout: hookTimeout}, // last: what was trusted before stands where it stood
	}
}
