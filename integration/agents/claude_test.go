package agents

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"knoot.dev/knoot/integration/stage"
)

// notIsolated says why agents cannot be run here; they are never run with a network.
var notIsolated error

func TestMain(m *testing.M) {
	notIsolated = inNamespace(m)
	os.Exit(stage.Run(m))
}

// claude returns the executable, or skips the test and says why.
func claude(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("a run of the real agent takes seconds; -short leaves it out")
	}
	if notIsolated != nil {
		t.Skipf("the real agent runs without a network only: %v", notIsolated)
	}
	executable, err := FindClaude()
	if err != nil {
		t.Skip(err)
	}
	return executable
}

func model(t *testing.T, script Script) *Model {
	t.Helper()
	m, err := NewModel(script)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// What knoot builds on, asked of the real program: a hook's context on the Read of a file is in the model's next request,
// and the payloads have the fields that the shim reads.
func TestClaudeShowsItsModelWhatAHookSays(t *testing.T) {
	executable := claude(t)
	dir, home := t.TempDir(), t.TempDir()
	file := filepath.Join(dir, "src", "billing.js")
	write(t, file, "export const cents = 1\n")
	payloads := filepath.Join(t.TempDir(), "payloads")
	hook := filepath.Join(t.TempDir(), "hook.sh")
	write(t, hook, `cat >> "$PAYLOADS"
case $1 in PreToolUse)
  echo '{"hookSpecificOutput":{"hookEventName":"PreToolUse","additionalContext":"a note on this very file"}}' ;;
esac
`)
	hooks := map[string]any{}
	for _, event := range []string{"SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SessionEnd"} {
		hooks[event] = []any{map[string]any{"hooks": []any{map[string]any{
			"type": "command", "command": "sh " + hook + " " + event, "timeout": 5,
		}}}}
	}
	settings, err := json.Marshal(map[string]any{"hooks": hooks})
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, ".claude", "settings.json"), string(settings))
	m := model(t, Script{
		{{Tool: "Read", Input: map[string]any{"file_path": file}}},
		{{Text: "read"}},
	})

	run := Claude{Executable: executable, Model: m, Home: home, Dir: dir, Env: []string{"PAYLOADS=" + payloads}}
	if _, err := run.Run(deadline(t), "read src/billing.js and say what it holds"); err != nil {
		t.Fatal(err)
	}

	turns := m.Turns()
	if len(turns) != 2 {
		t.Fatalf("the model was asked %d times, expected 2", len(turns))
	}
	const note = "a note on this very file"
	if n := turns[0].Count(note); n != 0 {
		t.Errorf("the note was in the first request %d times", n)
	}
	if n := turns[1].Count(note); n != 1 {
		t.Errorf("the note was in the second request %d times, expected once", n)
	}

	seen := map[string]map[string]json.RawMessage{}
	data, err := os.ReadFile(payloads)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		var payload map[string]json.RawMessage
		if err := json.Unmarshal([]byte(line), &payload); err != nil {
			t.Fatalf("a payload is no line of JSON: %v\n%s", err, line)
		}
		var event string
		if err := json.Unmarshal(payload["hook_event_name"], &event); err != nil {
			t.Fatalf("no hook_event_name in %s", line)
		}
		seen[event] = payload
	}
	for event, keys := range map[string][]string{
		"SessionStart":     {"session_id", "cwd", "source"},
		"UserPromptSubmit": {"session_id", "cwd", "prompt_id", "prompt"},
		"PreToolUse":       {"session_id", "cwd", "prompt_id", "tool_name", "tool_input", "tool_use_id"},
		"PostToolUse":      {"session_id", "cwd", "prompt_id", "tool_name", "tool_input", "tool_use_id", "tool_response"},
		"Stop":             {"session_id", "cwd", "prompt_id", "stop_hook_active", "background_tasks"},
		"SessionEnd":       {"session_id", "cwd", "reason"},
	} {
		payload, ok := seen[event]
		if !ok {
			t.Errorf("no hook ran for %s", event)
			continue
		}
		for _, key := range keys {
			if _, ok := payload[key]; !ok {
				t.Errorf("the payload of %s has no %s", event, key)
			}
		}
	}
}
