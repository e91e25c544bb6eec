package hook

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"knoot.dev/knoot/daemon/socket"
)

// The tests that are called TestReport are named after a public report of what went wrong with somebody's hooks;
// docs/agents.md lists the reports. Here are those that no other test would hold.

// allCommands are the texts that are installed, by agent. opencode has a plugin.
var allCommands = map[string]string{"claude": ClaudeCommand, "codex": CodexCommand, "copilot": CopilotCommand, "cursor": CursorCommand, "gemini": GeminiCommand}

// Shells differ in how they expand the folder of a project, and some do not.
func TestReportClaudeCode24710NoCommandNamesAFolder(t *testing.T) {
	variable := regexp.MustCompile(`\$\{?(\w+)`)
	for name, command := range allCommands {
		for _, match := range variable.FindAllStringSubmatch(command, -1) {
			if match[1] != "KNOOT" && match[1] != "KNOOT_BIN" && match[1] != "k" {
				t.Errorf("%s: it needs the variable %s", name, match[1])
			}
		}
		if rest := strings.ReplaceAll(command, "/dev/null", ""); strings.Contains(rest, "/") {
			t.Errorf("%s: it names a path: %s", name, rest)
		}
	}
}

// What a person types arrives as they typed it, whatever the language of the machine is.
func TestReportClaudePluginsOfficial5334WordsOfAnyLanguage(t *testing.T) {
	const prompt = "レジの合計を丸めてください 한국어 العربية €"
	w := newWorld(t)
	w.env = append(w.env, "LANG=ja_JP.SJIS", "LC_ALL=C")
	for _, escaped := range []bool{false, true} {
		text := w.payload("UserPromptSubmit", map[string]any{"prompt": prompt})
		if escaped {
			text = strings.ReplaceAll(text, "レ", `\u30ec`)
		}
		if h := w.asked(text); h == nil || h.Prompt != prompt || h.Repaired {
			t.Errorf("escaped %v: %+v", escaped, h)
		}
	}
}

// Codex cuts what is longer than 2,500 of its tokens, unless a hook asks for more.
func TestReportClaudeToolbox153AnswersFitWithoutAsking(t *testing.T) {
	for event, r := range codex.events {
		if out := codex.encode(event, &socket.Hook{Event: event}, &socket.Answer{Context: strings.Repeat("é\n", maxOutput)}); r.context && (len(out) > 9000 || len(out) < 8900) {
			t.Errorf("%s: %d bytes", event, len(out))
		}
	}
	for _, g := range CodexGroups() {
		if strings.Contains(string(g.JSON()), "additionalContextLimit") {
			t.Errorf("%s asks for more", g.Event)
		}
	}
}

// Each agent takes a denial in one form, and lets the call go on when it is told in another.
func TestReportClaudeCode37210DenialsAreWrapped(t *testing.T) {
	begins := map[string]string{
		"claude":   `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"`,
		"codex":    `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"`,
		"copilot":  `{"permissionDecision":"deny","permissionDecisionReason":"`,
		"cursor":   `{"permission":"deny","agent_message":"`,
		"gemini":   `{"decision":"deny","reason":"`,
		"opencode": `{"deny":"`,
	}
	seen := map[string]bool{}
	for _, row := range goldenAnswers(t) {
		if agents[row.agent].events[row.event].deny && strings.Contains(row.what, "deny") {
			if seen[row.agent] = true; !strings.HasPrefix(row.want, begins[row.agent]) {
				t.Errorf("%+v", row)
			}
		}
	}
	if len(seen) != len(agents) {
		t.Errorf("denials of %v alone", seen)
	}
}

// A denial is JSON with exit 0, and "block" is no permission.
func TestReportClaudeCode43407DenialsEndWithZero(t *testing.T) {
	w := newWorld(t)
	w.daemon(func(*socket.Request) *socket.Response { return &socket.Response{Answer: &socket.Answer{Deny: "no"}} })
	for name, a := range agents {
		for event, r := range a.events {
			if !r.deny {
				continue
			}
			status, out, errs := w.try(w.tool(event, shellOf(name), "x.go"), name)
			if status != 0 || errs != "" || !json.Valid([]byte(out)) || strings.Contains(out, "block") {
				t.Errorf("%s: %d, %q, %q", name, status, out, errs)
			}
		}
	}
}

// An answer that allows takes a question from a person, or does not, by version. None ever does.
func TestReportClaudeCode52822NothingIsAllowed(t *testing.T) {
	for _, row := range goldenAnswers(t) {
		if strings.Contains(row.want, "allow") || strings.Contains(row.want, "approve") || strings.Contains(row.want, `"ask"`) {
			t.Errorf("%+v", row)
		}
	}
}

// The variable goes on naming the first folder of a session that has moved to another worktree.
func TestReportClaudeCode87890TheProjectIsWhereTheSessionIs(t *testing.T) {
	w := newWorld(t)
	first := realPath(t.TempDir())
	w.mkdir(first, ".git")
	w.env = append(w.env, "CLAUDE_PROJECT_DIR="+first)
	h := w.asked(w.tool("PreToolUse", "Write", "x.go"))
	if h == nil || len(h.Places) != 1 || h.Places[0].Root != w.repo || strings.Join(h.Places[0].Writes, " ") != "x.go" {
		t.Errorf("%+v", h)
	}
}

// Transcripts are stale, or not there. A pipe in the place of one would hold whoever opens it.
func TestReportClaudeCode75435TranscriptsAreNotRead(t *testing.T) {
	w := newWorld(t)
	pipe := filepath.Join(t.TempDir(), "transcript.jsonl")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []any{pipe, "/nowhere/x.jsonl", nil, 7} {
		if h := w.asked(w.payload("Stop", map[string]any{"transcript_path": path})); h == nil {
			t.Errorf("%v: nothing was asked", path)
		}
		if codes := w.failures(); codes != "" {
			t.Errorf("%v: failures %s", path, codes)
		}
	}
}

// A gate that knew one key for a file refused all writes of agents that use another. A tool that names no file that is understood
// is asked about without one, and allowed.
func TestReportAiAgents2610AMissingPathIsAllowed(t *testing.T) {
	for name, a := range agents {
		for event, r := range a.events {
			if !r.deny {
				continue
			}
			for tool := range a.tools {
				for _, input := range []any{nil, 7, "x", []any{}, map[string]any{}, map[string]any{"where": "x.go"}, map[string]any{"file_path": 7, "path": nil, "filePath": ""}} {
					w := newWorld(t)
					h := w.askedBy(name, w.payload(event, map[string]any{"tool_name": tool, "tool_use_id": "1", "tool_input": input}))
					if h == nil || len(h.Places) != 1 || len(h.Places[0].Writes) > 0 {
						t.Errorf("%s, %s of %v: %+v", name, tool, input, h)
					}
					want := ""
					if a.tools[tool].writes {
						want = failPath // status warns of it
					}
					if codes := w.failures(); codes != want {
						t.Errorf("%s, %s of %v: failures %q, want %q", name, tool, input, codes, want)
					}
				}
			}
		}
	}
}
