package hook

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"path/filepath"
	"strings"

	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/hook/patch"
)

const (
	maxPayload = 16 << 20
	maxPrompt  = 64 << 10  // of a prompt this much is told to the daemon
	maxName    = 4 << 10   // of a path, an identifier or a name; what is longer is none
	maxCommand = 256 << 10 // of a command line; a longer one is opaque
	maxTasks   = 64
)

// errShape is returned for JSON that is no event: without a name, a session or an absolute working directory.
var errShape = errors.New("not an event of this agent")

// payload is what one event of an agent says, as far as it is of use.
type payload struct {
	hook   socket.Hook   // all but Agent, Cwd resolved and Places
	file   string        // tool_input.file_path
	book   string        // tool_input.notebook_path
	line   string        // tool_input.command, "" where it is cut
	cut    bool          // it is longer than maxCommand
	patch  patch.Scanner // of the same, all of it
	marked bool          // a byte order mark was in front
	broken bool          // some of it was not UTF-8
}

// decode reads a payload to its end. Order of keys does not matter, of equal keys the last counts, and a key whose value is
// of another kind than expected counts as absent.
func decode(src io.Reader) (*payload, error) {
	digest := sha256.New()
	s := newScanner(src, maxPayload, func(b []byte) { _, _ = digest.Write(b) })
	p := new(payload)
	h := &p.hook
	var source string
	name := func(to *string) error {
		text, cut, err := s.text(maxName)
		if *to = text; cut {
			*to = ""
		}
		return err
	}
	err := s.value(func() error {
		c, err := s.peek()
		if err != nil {
			return err
		}
		object := c == '{'
		err = s.object(func(key string) (err error) {
			switch key {
			case "hook_event_name":
				return name(&h.Event)
			case "session_id":
				return name(&h.Session)
			case "agent_id":
				return name(&h.Subagent)
			case "cwd":
				return name(&h.Cwd)
			case "prompt_id", "turn_id":
				return name(&h.PromptID)
			case "tool_name":
				return name(&h.Tool)
			case "tool_use_id":
				return name(&h.ToolUse)
			case "source":
				return name(&source)
			case "reason":
				return name(&h.Reason)
			case "prompt":
				h.Prompt, _, err = s.text(maxPrompt)
				return err
			case "stop_hook_active":
				h.StopHook, err = s.truth()
				return err
			case "background_tasks":
				h.Tasks, err = tasks(s, name)
				return err
			case "tool_input":
				p.file, p.book, p.line, p.cut, p.patch, h.Background = "", "", "", false, patch.Scanner{}, false
				return s.object(func(key string) error {
					switch key {
					case "file_path":
						return name(&p.file)
					case "notebook_path":
						return name(&p.book)
					case "command":
						p.patch = patch.Scanner{}
						if p.line, p.cut, err = s.textTo(maxCommand, &p.patch); p.cut {
							p.line = ""
						}
						return err
					case "run_in_background":
						h.Background, err = s.truth()
						return err
					}
					return s.skip()
				})
			}
			return s.skip()
		})
		if err == nil && !object {
			err = errShape
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if h.Event == "" || h.Session == "" || !filepath.IsAbs(h.Cwd) || strings.ContainsRune(h.Cwd, 0) {
		return nil, errShape
	}
	h.Payload = hex.EncodeToString(digest.Sum(nil))
	p.marked, p.broken = s.marks, !s.utf8.valid()
	h.Repaired = p.marked || p.broken
	p.settle(source)
	return p, nil
}

// settle keeps to each event what belongs to it.
func (p *payload) settle(source string) {
	h := &p.hook
	switch h.Event {
	case "SessionStart":
		h.Source = source
	case "UserPromptSubmit":
		h.Machine = machineTurn(h.Prompt, source) || h.Subagent != "" // a subagent is prompted by its session
	}
	if h.Event != "UserPromptSubmit" {
		h.Prompt = ""
	}
	if h.Event != "SessionEnd" {
		h.Reason = ""
	}
}

// machineTurn reports whether nobody typed the prompt: an agent is also prompted by its own schedule, and when a subagent
// of the background has ended, which only the text shows.
func machineTurn(prompt, source string) bool {
	return strings.HasPrefix(prompt, "<task-notification>") || source != "" && source != "user" && source != "sdk"
}

func tasks(s *scanner, name func(*string) error) ([]socket.Task, error) {
	var list []socket.Task
	err := s.array(func() error {
		var t socket.Task
		err := s.object(func(key string) error {
			switch key {
			case "id":
				return name(&t.ID)
			case "type":
				return name(&t.Type)
			case "status":
				return name(&t.Status)
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
