package hook

import "knoot.dev/knoot/daemon/socket"

// agent is what differs between the programs whose hooks this package answers. What they send has nearly one shape.
type agent struct {
	pid    string           // environment variable with the agent's process; "": there is none
	events map[string]reply // by the agent's names
	tools  map[string]tool
	form   form
	// settle puts what this agent says differently where others say it, and refuses what is another agent's; nil: there is nothing.
	settle func(*payload) error
}

// reply says what an event's answer may hold. All else is left out: what an agent does not expect makes it ignore a denial.
type reply struct {
	as      string // the event's name here; "": the agent's own
	context bool   // something for the model to read
	deny    bool   // that the call is refused, why, and a line for the person
	hold    bool   // why the turn goes on
	start   bool   // a missing daemon is started: now there is time
	tool    bool   // the event is about one tool call; calls of unknown tools are none of ours
}

// tool says where a tool's input names a file.
type tool struct {
	path   string // key in tool_input, or anyPath
	writes bool
	shell  bool // its input is a command line
	patch  bool // its input is a patch in the format of apply_patch
}

// anyPath is the path of a tool that may name its file by any of fileKeys: documents and versions differ.
const anyPath = "*"

// agents are by the name in the installed command, `knoot hook NAME`.
var agents = map[string]*agent{
	"claude": &claude, "codex": &codex, "copilot": &copilot, "cursor": &cursor, "gemini": &gemini, "opencode": &opencode,
}

// background reports whether tasks go on after the turn: it is not held open then.
func background(h *socket.Hook) bool { return len(h.Tasks) > 0 }
