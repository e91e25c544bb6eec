package hook

import "knoot.dev/knoot/daemon/socket"

// agent is what differs between the programs whose hooks this package answers. What they send has one shape.
type agent struct {
	pid    string // environment variable with the agent's process; "": there is none
	events map[string]reply
	tools  map[string]tool
}

// reply says what an event's answer may hold. All else is left out: what an agent does not expect makes it ignore a denial.
type reply struct {
	context bool // hookSpecificOutput.additionalContext
	deny    bool // hookSpecificOutput.permissionDecision and its reason, and systemMessage
	hold    bool // decision and reason: the turn goes on
	start   bool // a missing daemon is started: now there is time
	tool    bool // the event is about one tool call; calls of unknown tools are none of ours
}

// tool says where a tool's input names a file.
type tool struct {
	path   string // key in tool_input
	writes bool
	shell  bool // its input is a command line
	patch  bool // its input is a patch in the format of apply_patch
}

// agents are by the name in the installed command, `knoot hook NAME`.
var agents = map[string]*agent{"claude": &claude, "codex": &codex}

// background reports whether tasks go on after the turn: it is not held open then.
func background(h *socket.Hook) bool { return len(h.Tasks) > 0 }
