package hook

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"knoot.dev/knoot/daemon/socket"
)

// lines are those of a file in testdata. NAME.jsonl has payloads in the shapes that an agent sends (Claude Code 2.1.332, Codex
// 0.171.0); NAME.explain.jsonl says, line for line, what they mean where no file exists.
func lines(t testing.TB, file string) []string {
	t.Helper()
	data, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
}

func TestExplain(t *testing.T) {
	w := newWorld(t)
	for name := range agents {
		payloads, want := lines(t, name+".jsonl"), lines(t, name+".explain.jsonl")
		if len(payloads) != len(want) {
			t.Fatalf("%s: %d payloads, %d explanations", name, len(payloads), len(want))
		}
		for i := range payloads {
			if got := w.run(payloads[i], name, "--explain"); got != want[i]+"\n" {
				t.Errorf("%s\n got %s\nwant %s", payloads[i], got, want[i])
			}
		}
	}
}

func TestDecodeEachKind(t *testing.T) {
	for name, a := range agents {
		seen := map[string]bool{}
		for _, line := range lines(t, name+".jsonl") {
			p, err := a.decode(strings.NewReader(line))
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			h := p.hook
			sum := sha256.Sum256([]byte(line))
			if h.Payload != hex.EncodeToString(sum[:]) {
				t.Errorf("%s: digest %s", line, h.Payload)
			}
			seen[p.event] = true
			switch h.Event {
			case "SessionStart":
				if h.Source != "startup" && h.Source != "resume" {
					t.Errorf("source %q", h.Source)
				}
			case "UserPromptSubmit":
				typed := strings.HasPrefix(h.Prompt, "round the totals at the till, please — €")
				turn := name == "claude" || name == "codex" || name == "cursor" // the others number none
				if h.Prompt == "" || h.Machine == typed || turn != (h.PromptID != "") || h.Source != "" {
					t.Errorf("%+v", h)
				}
			case "Stop":
				want := []socket.Task{{ID: "a41c0de77b6d2f9e1", Type: "subagent", Status: "running"}}
				if h.StopHook || name != "claude" {
					want = nil
				}
				if said := name == "claude" || name == "codex" && !h.StopHook; said != (h.Said != "") {
					t.Errorf("%s said %q", name, h.Said)
				}
				if !reflect.DeepEqual(h.Tasks, want) {
					t.Errorf("tasks %+v", h.Tasks)
				}
			case "SessionEnd":
				if !slices.Contains([]string{"prompt_input_exit", "other", "exit", "complete", "user_close"}, h.Reason) {
					t.Errorf("reason %q", h.Reason)
				}
			case "PreToolUse", "PostToolUse", "PostToolUseFailure":
				if h.Tool == "" || h.ToolUse == "" {
					t.Errorf("%+v", h)
				}
			}
		}
		for event := range a.events {
			if !seen[event] {
				t.Errorf("no payload of %s", event)
			}
		}
	}
}

func TestMachineTurns(t *testing.T) {
	for _, c := range []struct {
		prompt, source string
		want           bool
	}{
		{"hello", "", false}, {"hello", "user", false}, {"hello", "sdk", false},
		{"hello", "system", true}, {"hello", "loop_wakeup", true}, {"hello", "of a later version", true},
		{"<task-notification>\n", "", true}, {"<task-notification>\n", "user", true},
		{"what is <task-notification>?", "", false}, {"", "", false},
		{socket.Nudge, "", true}, {socket.Nudge + "\n", "user", true}, {"what is this: " + socket.Nudge, "", false},
	} {
		if got := machineTurn(c.prompt, c.source); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestDecodeTakesAnyOrderAndTheLastOfEqualKeys(t *testing.T) {
	p, err := claude.decode(strings.NewReader(`{"tool_input":{"file_path":"/old"},"tool_input":{"content":{"file_path":"/inner"},"file_path":"/a\u0020b"},
		"cwd":7,"hook_event_name":"Stop","cwd":"/r","tool_name":"Edit","session_id":"s","agent_id":null,"stop_hook_active":"yes",
		"hook_event_name":"PreToolUse","prompt":"not of this event","reason":"nor this","background_tasks":{"id":"x"}}`))
	if err != nil {
		t.Fatal(err)
	}
	want := socket.Hook{Event: "PreToolUse", Session: "s", Cwd: "/r", Tool: "Edit", Payload: p.hook.Payload}
	if !reflect.DeepEqual(p.hook, want) || p.name(claude.tools["Edit"]) != "/a b" || p.name(claude.tools["NotebookEdit"]) != "" {
		t.Errorf("%+v %q %+v", p.hook, p.files, p.aside)
	}
}

func TestDecodeCuts(t *testing.T) {
	long := strings.Repeat("€", maxPrompt) // three bytes each
	data, err := json.Marshal(map[string]any{"hook_event_name": "UserPromptSubmit", "session_id": "s", "cwd": "/r", "prompt": long,
		"tool_input": map[string]string{"file_path": "/" + long}, "agent_id": long})
	if err != nil {
		t.Fatal(err)
	}
	p, err := claude.decode(strings.NewReader(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Repeat("€", maxPrompt/3); p.hook.Prompt != want {
		t.Errorf("prompt of %d bytes", len(p.hook.Prompt))
	}
	if p.name(claude.tools["Edit"]) != "" || p.hook.Subagent != "" {
		t.Error("a name that is cut is another name")
	}
}

// Of what an agent said last all is told, at its turn's end, or nothing.
func TestDecodeLastMessage(t *testing.T) {
	long := strings.Repeat("€", maxSaid/3)
	for _, c := range []struct{ event, value, want string }{
		{"Stop", `"it is done:\n\"yes\""`, "it is done:\n\"yes\""}, {"Stop", `"` + long + `"`, long}, {"Stop", `"` + long + `€"`, ""},
		{"Stop", "null", ""}, {"Stop", `["x"]`, ""}, {"SubagentStop", `"x"`, ""}, {"PostToolUse", `"x"`, ""},
	} {
		for _, a := range []*agent{&claude, &codex} {
			p, err := a.decode(strings.NewReader(`{"hook_event_name":"` + c.event + `","session_id":"s","cwd":"/r","last_assistant_message":` + c.value + `}`))
			if err != nil || p.hook.Said != c.want {
				t.Errorf("%s with %.20s: %d bytes, %v", c.event, c.value, len(p.hook.Said), err)
			}
		}
	}
}

// big yields a PostToolUse whose strings have n bytes, with escapes and characters of all lengths.
func big(n int) io.Reader {
	const chunk = `line of é € 😀\n\t\"quoted\" \ud83d\ude00 and so on, as files are. `
	text := strings.Repeat(chunk, n/len(chunk))
	pad := func() io.Reader { return strings.NewReader(text) }
	return io.MultiReader(
		strings.NewReader(`{"tool_response":{"originalFile":"`), pad(),
		strings.NewReader(`"},"tool_input":{"content":"`), pad(),
		strings.NewReader(`","file_path":"/r/x.go"},"session_id":"s","cwd":"/r","hook_event_name":"PostToolUse","tool_name":"Write"}`))
}

func TestDecodeKeepsNothingOfContents(t *testing.T) {
	in := big(4 << 20)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	p, err := claude.decode(in)
	runtime.ReadMemStats(&after)
	if err != nil || p.name(claude.tools["Write"]) != "/r/x.go" {
		t.Fatalf("%+v, %v", p, err)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > 256<<10 {
		t.Errorf("decoding 8 MB allocated %d bytes", got)
	}
}

// Budget: 8 MB in 40 ms, so that the largest payload leaves most of the agent's time to it.
func BenchmarkDecode(b *testing.B) {
	data, err := io.ReadAll(big(4 << 20))
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := claude.decode(bytes.NewReader(data)); err != nil {
			b.Fatal(err)
		}
	}
}

func FuzzClaudePayload(f *testing.F) {
	f.Add([]byte(`{"hook_event_name":"PreToolUse","session_id":"s","cwd":"/..//./","tool_name":"Edit","tool_input":{"file_path":"../\u0000/../.git"}}`))
	fuzzPayload(f, "claude")
}

// fuzzPayload holds that a payload of an agent, whatever it is, is answered with silence where no daemon is, and never ends in a
// panic.
func fuzzPayload(f *testing.F, agent string) {
	for _, line := range lines(f, agent+".jsonl") {
		f.Add([]byte(line))
	}
	for _, text := range texts {
		f.Add([]byte(text))
	}
	w := newWorld(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		w := *w
		w.t = t
		if out := w.run(string(data), agent); out != "" {
			t.Errorf("%q: said %q", data, out)
		}
		if codes := w.failures(); strings.Contains(codes, failPanic) || strings.Contains(codes, " ") {
			t.Errorf("%q: failures %q", data, codes)
		}
		status, out, _ := w.try(string(data), agent, "--explain")
		var e explanation
		if status == 0 && (json.Unmarshal([]byte(out), &e) != nil || e.Reads == nil || e.Writes == nil) {
			t.Errorf("%q: explained %q", data, out)
		}
	})
}
