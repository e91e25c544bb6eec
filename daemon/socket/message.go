// Package socket is how hooks and commands speak to the daemon: the messages, one line of JSON each way; where the socket
// is; and the client. Both sides ignore keys they do not know, so that an old shim and a new daemon understand each other
// until the newer one has taken over.
//
// It imports the standard library only, and of that nothing that is slow to start: every tool call of an agent pays for it.
package socket

import "encoding/json"

// Nudge is what is typed to an idle agent that has mail. It says nothing of what is in it, and it is no prompt of a person's.
const Nudge = "You have mail: read it with knoot's check-messages tool. If there is none, go on with your work."

// Request is one question to the daemon: a line of JSON on the socket, answered by one line of JSON.
type Request struct {
	Op      string          `json:"op"`             // hook, hello, remember, cache, plan, confirm, forget, sync, team, accept, msg, inbox, stop, handover
	Version string          `json:"version"`        // of the asking executable; Ask fills it in
	Dir     string          `json:"dir,omitempty"`  // absolute working directory of a command
	Hook    *Hook           `json:"hook,omitempty"` // for hook
	Caller  *Caller         `json:"caller,omitempty"`
	Body    json.RawMessage `json:"body,omitempty"` // for the other operations: the request struct of that operation
}

// Hook is what the shim took from one payload. Absent parts are zero; no content of a file is in it, unless an agent quotes one in Said.
type Hook struct {
	Agent      string  `json:"agent"`                // claude
	Event      string  `json:"event"`                // hook_event_name as the agent sent it
	Session    string  `json:"session"`              // session_id
	Subagent   string  `json:"subagent,omitempty"`   // agent_id, "" outside a subagent
	Cwd        string  `json:"cwd"`                  // payload's cwd, symlinks resolved where it exists
	Places     []Place `json:"places,omitempty"`     // one a worktree touched; the first is that of Cwd, perhaps without paths
	Shell      bool    `json:"shell,omitempty"`      // a command line, which may write less than Places say
	Opaque     bool    `json:"opaque,omitempty"`     // files that Places do not name may change
	Background bool    `json:"background,omitempty"` // it goes on in the background after its tool call has ended
	Tool       string  `json:"tool,omitempty"`
	ToolUse    string  `json:"tool_use,omitempty"`
	PromptID   string  `json:"prompt_id,omitempty"`
	Prompt     string  `json:"prompt,omitempty"`  // cut to 64 KiB, on a rune boundary
	Machine    bool    `json:"machine,omitempty"` // the turn was not typed by a person
	Source     string  `json:"source,omitempty"`  // SessionStart's
	Reason     string  `json:"reason,omitempty"`  // SessionEnd's, or the type of a Notification
	StopHook   bool    `json:"stop_hook_active,omitempty"`
	Tasks      []Task  `json:"tasks,omitempty"`   // background tasks at Stop
	Said       string  `json:"said,omitempty"`    // what an agent with a name said last in the turn that Stop ends, whole; never kept
	Payload    string  `json:"payload"`           // SHA-256 of the payload, hex: the record is made once
	Process    int     `json:"process,omitempty"` // CLAUDE_PID
	Ancestors  []int   `json:"ancestors,omitempty"`
	Name       string  `json:"name,omitempty"`     // KNOOT_AGENT
	User       string  `json:"user,omitempty"`     // KNOOT_USER
	Private    bool    `json:"private,omitempty"`  // KNOOT_PRIVATE=1: claims only, no intent, no brief shared
	Silent     bool    `json:"silent,omitempty"`   // the agent reads nothing that is said to this event, but for a denial
	Repaired   bool    `json:"repaired,omitempty"` // the payload had a byte order mark or invalid UTF-8: record, say nothing
}

// Place is what a payload touches in one worktree.
type Place struct {
	Root   string   `json:"root"`            // real absolute path of the worktree
	Reads  []string `json:"reads,omitempty"` // relative to Root, slashes, sorted
	Writes []string `json:"writes,omitempty"`
	Trees  []string `json:"trees,omitempty"` // those of Writes that cover all below: a directory is removed or moved
	// Sweeps are git commands of the line that reach what it does not name.
	Sweeps []Sweep `json:"sweeps,omitempty"`
}

// Sweep is a git command that is about all of a worktree, or all below some of its directories.
type Sweep struct {
	Command   string   `json:"command"`          // in words that say it short, of the hook's own: "git reset --hard"
	Paths     []string `json:"paths,omitempty"`  // below which it reaches, or files, relative to Root; none: it reaches all
	Suffix    string   `json:"suffix,omitempty"` // of all paths that it reaches
	Tracked   bool     `json:"tracked,omitempty"`
	Untracked bool     `json:"untracked,omitempty"`
	Takes     bool     `json:"takes,omitempty"` // what it reaches is staged or committed; else the changes are undone, the files removed
	Stash     bool     `json:"stash,omitempty"` // it uses the stash of the clone
}

// Task is a background task that runs at Stop.
type Task struct {
	ID     string `json:"id"`
	Type   string `json:"type,omitempty"`
	Status string `json:"status,omitempty"`
}

// Caller says who runs a command, for "person or agent" and for the session a fact belongs to.
type Caller struct {
	Session      string `json:"session,omitempty"`       // CLAUDE_CODE_SESSION_ID, CODEX_SESSION_ID
	SessionAgent string `json:"session_agent,omitempty"` // whose the session is; "": Claude Code's
	Name         string `json:"name,omitempty"`          // KNOOT_AGENT
	User         string `json:"user,omitempty"`          // KNOOT_USER
	Agent        bool   `json:"agent,omitempty"`         // a marker of an agent is in the environment
	Terminal     bool   `json:"terminal,omitempty"`      // stdin or stderr is a terminal
	Ancestors    []int  `json:"ancestors,omitempty"`     // process ids, nearest first
}

// Response answers a Request. Error is one sentence for a person, with the remedy; Code is for programs.
type Response struct {
	Version string          `json:"version"` // of the daemon
	Error   string          `json:"error,omitempty"`
	Code    string          `json:"code,omitempty"`   // misuse, refused, failed
	Answer  *Answer         `json:"answer,omitempty"` // to hook
	Body    json.RawMessage `json:"body,omitempty"`   // to the others
}

// Answer is what a hook has to say; the zero value is silence. The hook puts it in its agent's words.
type Answer struct {
	Context string `json:"context,omitempty"` // the brief
	Deny    string `json:"deny,omitempty"`    // a denial's reason
	Person  string `json:"person,omitempty"`  // one line for the person (systemMessage)
	Hold    string `json:"hold,omitempty"`    // Stop: why the turn stays open
	// Late says that nobody was asked in time whether the call may write what it is about to write, so that it may.
	Late bool `json:"late,omitempty"`
}
