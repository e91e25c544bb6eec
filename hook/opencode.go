package hook

import _ "embed"

// opencode is opencode, measured at version 1.18.33. It has no hooks but plugins: OpencodePlugin is one, and both payloads and
// answers are its own. A turn that ends cannot be held open.
var opencode = agent{
	pid: "OPENCODE_PID",
	events: map[string]reply{
		"SessionStart":     {context: true, start: true},
		"UserPromptSubmit": {context: true, start: true},
		"PreToolUse":       {context: true, deny: true, tool: true},
		"PostToolUse":      {context: true, tool: true},
		"SubagentStart":    {context: true},
		"SubagentStop":     {},
		"Stop":             {},
		"SessionEnd":       {},
	},
	tools: map[string]tool{
		"read":        {path: anyPath},
		"write":       {path: anyPath, writes: true},
		"edit":        {path: anyPath, writes: true},
		"multiedit":   {path: anyPath, writes: true},
		"apply_patch": {patch: true},
		"patch":       {patch: true},
		"bash":        {shell: true},
	},
	form: form{
		deny:    span{`{"deny":`, `}`},
		also:    `,"context":`,
		context: span{`{"context":`, `}`},
	},
}

// OpencodePlugin is the file that installing puts beside opencode's other plugins.
//
//go:embed opencode_plugin.ts
var OpencodePlugin string
