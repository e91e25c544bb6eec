package hook

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/hook/patch"
)

const (
	maxPayload = 16 << 20
	maxPrompt  = 64 << 10  // of a prompt this much is told to the daemon
	maxSaid    = 32 << 10  // of an agent's last message; a longer one is not told, since a part of it may hide a credential
	maxName    = 4 << 10   // of a path, an identifier or a name; what is longer is none
	maxCommand = 256 << 10 // of a command line; a longer one is opaque
	maxTasks   = 64
)

var (
	// errShape is returned for JSON that is no event: without a name, a session or an absolute working directory.
	errShape = errors.New("not an event of this agent")
	// errForeign is returned for an event of another agent, which runs this one's hooks beside its own.
	errForeign = errors.New("an event of another agent, which is answered by its own hook")
)

// fileKeys are the keys of tool_input by which agents name a file, in the order in which they count.
var fileKeys = [...]string{"file_path", "path", "filePath", "target_file", "notebook_path", "target_notebook"}

// payload is what one event of an agent says, as far as it is of use.
type payload struct {
	hook   socket.Hook // all but Agent, Cwd resolved and Places
	event  string      // hook_event_name; hook has our name of it
	files  [len(fileKeys)]string
	dir    string        // where a command line runs, if not in the working directory
	line   string        // tool_input.command, "" where it is cut
	cut    bool          // it is longer than maxCommand
	patch  patch.Scanner // of the same, all of it
	marked bool          // a byte order mark was in front
	broken bool          // some of it was not UTF-8
	aside  aside
}

// aside is what only some agents say, and what tells one agent from another.
type aside struct {
	source       string // of a session's start, or of a prompt
	conversation string // conversation_id, a session
	generation   string // generation_id, a turn
	parent       string // parent_agent_id, the session of a subagent
	root         string // the first of workspace_roots
	status       string // how a turn ended
	mode         string // tool_input.mode
	looped       bool   // loop_count is not 0
	failed       bool   // tool_response has an error
	cursor       bool   // cursor_version is there
	camel        bool   // sessionId is there
	stamped      bool   // timestamp is there
	transcript   string // transcript_path
	notification string // notification_type
}

// name is the file that the tool is about, "" where none is named.
func (p *payload) name(t tool) string {
	for i, key := range fileKeys {
		if name := p.files[i]; name != "" && (t.path == anyPath || t.path == key) {
			return name
		}
	}
	return ""
}

// decode reads a payload to its end. Order of keys does not matter, of equal keys the last counts, and a key whose value is
// of another kind than expected counts as absent.
func (a *agent) decode(src io.Reader) (*payload, error) {
	digest := sha256.New()
	s := newScanner(src, maxPayload, func(b []byte) { _, _ = digest.Write(b) })
	p := new(payload)
	h := &p.hook
	err := s.value(func() error {
		c, err := s.peek()
		if err != nil {
			return err
		}
		object := c == '{'
		err = s.object(func(key string) (err error) {
			switch key {
			case "hook_event_name":
				return s.name(&h.Event)
			case "session_id":
				return s.name(&h.Session)
			case "agent_id":
				return s.name(&h.Subagent)
			case "cwd":
				return s.name(&h.Cwd)
			case "prompt_id", "turn_id":
				return s.name(&h.PromptID)
			case "tool_name":
				return s.name(&h.Tool)
			case "tool_use_id":
				return s.name(&h.ToolUse)
			case "source":
				return s.name(&p.aside.source)
			case "reason":
				return s.name(&h.Reason)
			case "prompt":
				h.Prompt, _, err = s.text(maxPrompt)
				return err
			case "stop_hook_active":
				h.StopHook, err = s.truth()
				return err
			case "background_tasks":
				h.Tasks, err = tasks(s)
				return err
			case "last_assistant_message":
				var cut bool
				if h.Said, cut, err = s.text(maxSaid); cut {
					h.Said = ""
				}
				return err
			case "tool_input":
				p.files, p.dir, p.line, p.cut, p.patch, h.Background, p.aside.mode = [len(fileKeys)]string{}, "", "", false, patch.Scanner{}, false, ""
				return p.input(s)
			}
			return p.aside.read(s, key)
		})
		if err == nil && !object {
			err = errShape
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	p.event = h.Event
	if as := a.events[p.event].as; as != "" {
		h.Event = as
	}
	if a.settle != nil {
		if err := a.settle(p); err != nil {
			return nil, err
		}
	}
	if h.Event == "" || h.Session == "" || !filepath.IsAbs(h.Cwd) || strings.ContainsRune(h.Cwd, 0) {
		return nil, errShape
	}
	h.Payload = hex.EncodeToString(digest.Sum(nil))
	p.marked, p.broken = s.marks, !s.utf8.valid()
	h.Repaired = p.marked || p.broken
	p.keep()
	return p, nil
}

// input reads tool_input: an object, a patch, or an object that an agent has put into a string.
func (p *payload) input(s *scanner) error {
	c, err := s.peek()
	if err != nil || c != '"' {
		if err == nil {
			err = s.object(func(key string) error { return p.argument(s, key) })
		}
		return err
	}
	text, cut, err := s.textTo(maxCommand, &p.patch)
	p.line = text
	if err != nil || !strings.HasPrefix(strings.TrimLeft(text, " \t\r\n"), "{") {
		return err
	}
	p.patch, p.line, p.cut = patch.Scanner{}, "", cut
	inner := newScanner(strings.NewReader(text), len(text), func([]byte) {})
	// What is named before the text breaks off, or is no JSON after all, is named.
	_ = inner.object(func(key string) error { return p.argument(inner, key) })
	return nil
}

// argument reads one member of tool_input.
func (p *payload) argument(s *scanner, key string) (err error) {
	for i := range fileKeys {
		if key == fileKeys[i] {
			return s.name(&p.files[i])
		}
	}
	switch key {
	case "command", "patchText":
		p.patch = patch.Scanner{}
		if p.line, p.cut, err = s.textTo(maxCommand, &p.patch); p.cut {
			p.line = ""
		}
		return err
	case "run_in_background", "is_background":
		p.hook.Background, err = s.truth()
		return err
	case "working_directory", "dir_path", "workdir":
		return s.name(&p.dir)
	case "mode":
		return s.name(&p.aside.mode)
	}
	return s.skip()
}

// read reads one member of a payload.
func (a *aside) read(s *scanner, key string) (err error) {
	switch key {
	case "conversation_id":
		return s.name(&a.conversation)
	case "generation_id":
		return s.name(&a.generation)
	case "parent_agent_id":
		return s.name(&a.parent)
	case "status":
		return s.name(&a.status)
	case "notification_type":
		return s.name(&a.notification)
	case "transcript_path":
		return s.name(&a.transcript)
	case "workspace_roots":
		a.root = ""
		first := true
		return s.array(func() error {
			if first {
				first = false
				return s.name(&a.root)
			}
			return s.skip()
		})
	case "loop_count":
		c, err := s.peek()
		if err != nil {
			return err
		}
		a.looped = '1' <= c && c <= '9'
		return s.skip()
	case "tool_response":
		a.failed = false
		return s.object(func(key string) error {
			c, err := s.peek()
			if err != nil {
				return err
			}
			a.failed = a.failed || key == "error" && c != 'n'
			return s.skip()
		})
	case "cursor_version":
		a.cursor = true
	case "sessionId":
		a.camel = true
	case "timestamp":
		a.stamped = true
	}
	return s.skip()
}

// call identifies a tool call for agents that do not: the same before and after it.
func (p *payload) call() string {
	digest := sha256.New()
	for _, part := range append([]string{p.hook.Tool, p.dir, p.line}, p.files[:]...) {
		fmt.Fprintf(digest, "%d:%s", len(part), part)
	}
	return hex.EncodeToString(digest.Sum(nil)[:16])
}

// keep keeps to each event what belongs to it.
func (p *payload) keep() {
	h, source := &p.hook, p.aside.source
	switch h.Event {
	case "SessionStart":
		h.Source = source
	case "UserPromptSubmit":
		h.Machine = machineTurn(h.Prompt, source) || h.Subagent != "" // a subagent is prompted by its session
	}
	if h.Event != "UserPromptSubmit" {
		h.Prompt = ""
	}
	if h.Event != "Stop" {
		h.Said = ""
	}
	switch h.Event {
	case "SessionEnd":
	case "Notification":
		h.Reason = p.aside.notification
	default:
		h.Reason = ""
	}
	if h.Event == "PermissionRequest" { // the call that it is about is not made, and has events of its own
		h.Tool, h.ToolUse = "", ""
	}
}

// machineTurn reports whether nobody typed the prompt: an agent is also prompted by its own schedule, when a subagent of the
// background has ended, and when it has mail, which only the text shows.
func machineTurn(prompt, source string) bool {
	return strings.HasPrefix(prompt, "<task-notification>") || strings.TrimSpace(prompt) == socket.Nudge || source != "" && source != "user" && source != "sdk"
}

func tasks(s *scanner) ([]socket.Task, error) {
	var list []socket.Task
	err := s.array(func() error {
		var t socket.Task
		err := s.object(func(key string) error {
			switch key {
			case "id":
				return s.name(&t.ID)
			case "type":
				return s.name(&t.Type)
			case "status":
				return s.name(&t.Status)
			}
			return s.skip()
		})
		if len(list) < maxTasks {
			list = append(list, t)
		}
		return err
	})
	return list, err
}
