package agents

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"knoot.dev/knoot/integration/stage"
)

// recordings is the file of the payloads that an agent sends to knoot's hooks, one a line, in the order of their text.
func recordings(name string) string { return filepath.Join("testdata", name+".jsonl") }

// The payloads of the real agents look as those in testdata do: which events there are, and their keys. A new version of an agent
// is `make record`, and a diff to read.
func TestPayloadsLookAsRecorded(t *testing.T) {
	for name, find := range map[string]func() (Agent, error){"claude": FindClaude, "codex": FindCodex, "codex-code-mode": FindCodexInCodeMode} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			agent, err := find()
			able(t, err)
			sent := record(newScene(t, agent))
			if os.Getenv("KNOOT_RECORD") != "" {
				if err := os.WriteFile(recordings(name), []byte(strings.Join(sent, "\n")+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			got, want := looks(t, sent), looks(t, lines(t, recordings(name)))
			for look := range got {
				if !want[look] {
					t.Errorf("not recorded: %s", look)
				}
			}
			for look := range want {
				if !got[look] {
					t.Errorf("not sent: %s", look)
				}
			}
		})
	}
}

// looks are payloads without values: their event, their tool, and their keys, with those of the tool's input.
func looks(t *testing.T, payloads []string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, line := range payloads {
		var payload map[string]any
		if err := json.Unmarshal([]byte(line), &payload); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		keys := slices.Sorted(maps.Keys(payload))
		if input, ok := payload["tool_input"].(map[string]any); ok {
			for _, key := range slices.Sorted(maps.Keys(input)) {
				keys = append(keys, "tool_input."+key)
			}
		}
		all[fmt.Sprint(payload["hook_event_name"], " ", payload["tool_name"], " ", keys)] = true
	}
	return all
}

// Each recorded payload can be explained, and means something.
func TestRecordedPayloadsAreExplained(t *testing.T) {
	t.Parallel()
	p := stage.NewPerson(t, "priya")
	for _, name := range []string{"claude", "codex", "codex-code-mode"} {
		agent, _, _ := strings.Cut(name, "-")
		touched := 0
		for _, line := range lines(t, recordings(name)) {
			result := p.Try(p.Home, line, "knoot", "hook", agent, "--explain")
			var payload struct {
				Event string `json:"hook_event_name"`
			}
			var explained struct {
				Event, Agent  string
				Reads, Writes []string
			}
			if err := json.Unmarshal([]byte(line), &payload); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			if err := json.Unmarshal([]byte(result.Stdout), &explained); err != nil || result.Code != 0 || explained.Event != payload.Event || explained.Agent != agent {
				t.Errorf("%s: %+v, %v", line, result, err)
			}
			touched += len(explained.Reads) + len(explained.Writes)
		}
		if touched == 0 {
			t.Errorf("no payload of %s names a file", name)
		}
	}
}

// record runs an agent through calls of each kind, and returns what its hooks were sent.
func record(s *scene) (payloads []string) {
	s.Helper()
	into := s.TempDir()
	// In place of knoot: it keeps what it is sent, and says nothing.
	keeper := filepath.Join(s.TempDir(), "keeper")
	if err := os.WriteFile(keeper, []byte("#!/bin/sh\ncat > \"$(mktemp "+into+"/XXXXXXXX)\"\n"), 0o755); err != nil {
		s.Fatal(err)
	}
	script := Script{
		{s.agent.Read(s.path(factPath))},
		{s.agent.Edit(s.path(factPath), factLine, "export const total = 7")},
		{s.agent.Shell("cat README.md && echo done")},
		{s.agent.Shell("false")},
	}
	if patch, able := s.agent.Patch("*** Begin Patch\n*** Add File: docs/the cart.md\n+# The cart\n*** Update File: " + heldPath + "\n*** Move to: src/rate.js\n@@\n-" +
		heldLine + "\n+export const rate = 7\n*** End Patch\n"); able {
		script = append(script, []Item{patch}, []Item{s.agent.Shell("apply_patch <<'EOF'\n*** Begin Patch\n*** Delete File: src/rate.js\n*** End Patch\nEOF")})
	}
	done := make(chan struct{})
	if delegate, able := s.agent.Delegate(); able {
		script = append(script, []Item{delegate})
	} else {
		close(done)
	}
	script = append(script, []Item{{Text: "It is done.", After: done}})
	m := s.model(script)
	m.Subagent(Script{{s.agent.Shell("ls")}, {{Text: "The part is done."}}})
	m.Asked(func(turn int) {
		if turn == 1002 {
			close(done)
		}
	})
	job := Job{Model: m, Home: s.home, Dir: s.dir, Prompt: "round the totals at the till", Env: []string{"KNOOT_BIN=" + keeper}}
	if _, err := s.agent.Run(deadline(s.T), job); err != nil {
		s.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(into, "*"))
	if err != nil {
		s.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			s.Fatal(err)
		}
		var payload any
		if err := json.Unmarshal(text, &payload); err != nil {
			s.Fatalf("%v: %s", err, text)
		}
		payloads = append(payloads, encode(s.inWords("", payload)))
	}
	slices.Sort(payloads)
	return slices.Compact(payloads)
}

// names are keys whose values differ from run to run.
var names = map[string]string{
	"session_id": "SESSION", "turn_id": "TURN", "prompt_id": "PROMPT", "agent_id": "SUBAGENT", "id": "SUBAGENT",
}

var (
	uuid    = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	moment  = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.-]+\d|\d{4}/\d\d/\d\d`)
	seconds = regexp.MustCompile(`Wall time: [0-9.]+ seconds`)
	helper  = regexp.MustCompile(`agent-[0-9a-f]{17}`)
	folders = regexp.MustCompile(`/projects/[^/]+/`)
)

// inWords puts what differs from run to run into words.
func (s *scene) inWords(key string, value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			value[key] = s.inWords(key, inner)
		}
	case []any:
		for i, inner := range value {
			value[i] = s.inWords(key, inner)
		}
	case float64:
		if strings.HasSuffix(key, "_ms") || strings.HasSuffix(key, "Ms") {
			return 0
		}
	case string:
		if name, varies := names[key]; varies {
			return name
		}
		if strings.HasPrefix(value, "<task-notification>") {
			return "<task-notification>" // times and costs follow
		}
		text := strings.ReplaceAll(value, s.dir, "/home/mira/my shop")
		text = strings.ReplaceAll(text, s.home, "/home/mira")
		text = uuid.ReplaceAllString(text, "ID")
		text = moment.ReplaceAllString(text, "WHEN")
		text = helper.ReplaceAllString(text, "agent-SUBAGENT")
		text = seconds.ReplaceAllString(text, "Wall time: 0 seconds")
		return folders.ReplaceAllString(text, "/projects/shop/")
	}
	return value
}
