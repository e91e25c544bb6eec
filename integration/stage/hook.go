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
	return p.Context(p.output(dir, payload))
}

func (p *Person) output(dir, payload string) string {
	p.t.Helper()
	result := p.Try(dir, payload, "knoot", "hook", "claude")
	if result.Code != 0 || result.Stderr != "" {
		p.t.Fatalf("a hook ended with exit %d and said %q", result.Code, result.Stderr)
	}
	return result.Stdout
}

// Context is what a hook's output tells the model.
func (p *Person) Context(output string) string {
	p.t.Helper()
	return p.answer(output).HookSpecificOutput.AdditionalContext
}

// Denial is why a hook's output refuses the call; "" where it does not.
func (p *Person) Denial(output string) string {
	p.t.Helper()
	answer := p.answer(output).HookSpecificOutput
	if answer.PermissionDecision != "" && answer.PermissionDecision != "deny" {
		p.t.Fatalf("a hook decides nothing but denials, this said %q", answer.PermissionDecision)
	}
	return answer.PermissionDecisionReason
}

// Held is why a Stop hook's output keeps the turn open; "" where it does not.
func (p *Person) Held(output string) string {
	p.t.Helper()
	answer := p.answer(output)
	if answer.Decision != "" && answer.Decision != "block" {
		p.t.Fatalf("a hook's decision is block or none, this said %q", answer.Decision)
	}
	return answer.Reason
}

// answer is a hook's output in Claude Code's words.
type answer struct {
	Decision           string `json:"decision"`
	Reason             string `json:"reason"`
	HookSpecificOutput struct {
		HookEventName            string `json:"hookEventName"`
		AdditionalContext        string `json:"additionalContext"`
		PermissionDecision       string `json:"permissionDecision"`
		PermissionDecisionReason string `json:"permissionDecisionReason"`
	} `json:"hookSpecificOutput"`
}

func (p *Person) answer(output string) (a answer) {
	p.t.Helper()
	if output == "" {
		return a
	}
	if err := json.Unmarshal([]byte(output), &a); err != nil {
		p.t.Fatalf("a hook printed what is no JSON: %v\n%s", err, output)
	}
	if a.HookSpecificOutput.HookEventName == "" && a.Decision == "" {
		p.t.Fatalf("a hook's output neither names its event nor decides: %s", output)
	}
	return a
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

// Asks is the hook before a Write of a file: why it is refused, "" where it is not. Nothing is written.
func (s Session) Asks(file string) string {
	s.Person.t.Helper()
	return s.Person.Denial(s.Person.output(s.Dir, s.BeforeWrite(file)))
}

// BeforeWrite is the payload before a Write of a file.
func (s Session) BeforeWrite(file string) string {
	s.Person.t.Helper()
	return s.Payload("PreToolUse", s.writes(file))
}

func (s Session) writes(file string) map[string]any {
	return map[string]any{"tool_name": "Write", "tool_use_id": s.use("toolu"),
		"tool_input": map[string]any{"file_path": filepath.Join(s.Dir, file), "content": "text\n"}}
}

// Waits ends the session's turn, and returns why knoot keeps it open; "" where it does not.
func (s Session) Waits() string {
	s.Person.t.Helper()
	return s.Person.Held(s.Person.output(s.Dir, s.Payload("Stop", s.TurnEnds())))
}

// TurnEnds is what a Stop says beside what every event does.
func (s Session) TurnEnds() map[string]any {
	return map[string]any{"prompt_id": s.use("prompt"), "stop_hook_active": false, "background_tasks": []any{}, "session_crons": []any{}}
}

// Stop ends the session's turn.
func (s Session) Stop() string {
	s.Person.t.Helper()
	return s.Hook("Stop", s.TurnEnds())
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
