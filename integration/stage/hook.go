package stage

import (
	"encoding/json"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Session is one run of Claude Code, as far as its hooks tell.
type Session struct {
	Person   *Person
	ID       string
	Dir      string // where it works
	Subagent string // agent_id, "" outside a subagent
}

var toolUses atomic.Int64

// Hook runs the hook for one event and returns the context that the agent gets, "" for none. The hook must succeed, print
// nothing to stderr, and print nothing or one object in Claude Code's words.
func (s Session) Hook(event string, fields map[string]any) string {
	s.Person.t.Helper()
	return s.Person.Payload(s.Dir, s.Payload(event, fields))
}

// Payload is what Claude Code writes to a hook's stdin.
func (s Session) Payload(event string, fields map[string]any) string {
	s.Person.t.Helper()
	payload := map[string]any{
		"session_id": s.ID, "cwd": s.Dir, "hook_event_name": event, "permission_mode": "acceptEdits",
		"transcript_path": filepath.Join(s.Person.Home, ".claude", "projects", s.ID+".jsonl"),
	}
	if s.Subagent != "" {
		payload["agent_id"], payload["agent_type"] = s.Subagent, "general-purpose"
	}
	for key, value := range fields {
		payload[key] = value
	}
	data, err := json.Marshal(payload)
	check(s.Person.t, err)
	return string(data) + "\n"
}

// Payload gives a hook's stdin to knoot and returns the context that the agent gets.
func (p *Person) Payload(dir, payload string) string {
	p.t.Helper()
	result := p.Try(dir, payload, "knoot", "hook", "claude")
	if result.Code != 0 || result.Stderr != "" {
		p.t.Fatalf("a hook ended with exit %d and said %q", result.Code, result.Stderr)
	}
	return p.Context(result.Stdout)
}

// Context is what a hook's output tells the model.
func (p *Person) Context(output string) string {
	p.t.Helper()
	if output == "" {
		return ""
	}
	var answer struct {
		HookSpecificOutput struct {
			HookEventName     string `json:"hookEventName"`
			AdditionalContext string `json:"additionalContext"`
		} `json:"hookSpecificOutput"`
	}
	if err := json.Unmarshal([]byte(output), &answer); err != nil {
		p.t.Fatalf("a hook printed what is no JSON: %v\n%s", err, output)
	}
	if answer.HookSpecificOutput.HookEventName == "" {
		p.t.Fatalf("a hook's output does not name its event: %s", output)
	}
	return answer.HookSpecificOutput.AdditionalContext
}

// Start begins the session.
func (s Session) Start() string {
	s.Person.t.Helper()
	return s.Hook("SessionStart", map[string]any{"source": "startup"})
}

// Prompt is a prompt that a person typed.
func (s Session) Prompt(text string) string {
	s.Person.t.Helper()
	return s.Hook("UserPromptSubmit", map[string]any{"prompt": text, "prompt_id": s.use("prompt")})
}

// Read is the whole call of Read on a file: what the agent is told before and after it.
func (s Session) Read(file string) string {
	s.Person.t.Helper()
	return s.call("Read", map[string]any{"file_path": filepath.Join(s.Dir, file)})
}

// Hears reads a file until the agent is told this text, and returns all that it was told. A hook says what the daemon knows
// in time; on a busy machine the rest comes with the next.
func (s Session) Hears(file, text string) string {
	s.Person.t.Helper()
	told := ""
	for began := time.Now(); !strings.Contains(told, text) && time.Since(began) < 20*time.Second; {
		told += s.Read(file)
	}
	return told
}

// Write is the whole call of Write on a file, the file included.
func (s Session) Write(file, text string) string {
	s.Person.t.Helper()
	path := filepath.Join(s.Dir, file)
	fields := map[string]any{"tool_name": "Write", "tool_use_id": s.use("toolu"),
		"tool_input": map[string]any{"file_path": path, "content": text}}
	before := s.Hook("PreToolUse", fields)
	s.Person.Write(path, text)
	fields["tool_response"] = map[string]any{"type": "update", "filePath": path, "content": text}
	return before + s.Hook("PostToolUse", fields)
}

// Stop ends the session's turn.
func (s Session) Stop() string {
	s.Person.t.Helper()
	return s.Hook("Stop", map[string]any{"stop_hook_active": false, "background_tasks": []any{}, "session_crons": []any{}})
}

func (s Session) call(tool string, input map[string]any) string {
	s.Person.t.Helper()
	fields := map[string]any{"tool_name": tool, "tool_input": input, "tool_use_id": s.use("toolu")}
	before := s.Hook("PreToolUse", fields)
	fields["tool_response"] = map[string]any{}
	return before + s.Hook("PostToolUse", fields)
}

func (s Session) use(prefix string) string {
	return prefix + "_" + s.ID + "_" + strconv.FormatInt(toolUses.Add(1), 10)
}
