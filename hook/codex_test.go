package hook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"knoot.dev/knoot/daemon/socket"
)

// The command is constant text: a person trusts it once, and a change would need that again.
func TestCodexCommandIsConstant(t *testing.T) {
	const want = `sh -c 'k=${KNOOT_BIN:-knoot}; [ "$KNOOT" = off ] || ! command -v "$k" >/dev/null 2>&1 || "$k" hook codex 2>/dev/null; exit 0'`
	if CodexCommand != want {
		t.Error(CodexCommand)
	}
}

// So are matchers and timeouts.
func TestReportCodex16732CodexGroups(t *testing.T) {
	want := map[string]string{"PreToolUse": "apply_patch|Edit|Write|Bash", "PostToolUse": "apply_patch|Edit|Write|Bash"}
	var events []string
	for _, g := range CodexGroups() {
		events = append(events, g.Event)
		timeout := 5
		if g.Event == "SessionEnd" || g.Event == "Interrupt" {
			timeout = 3
		}
		if g.Matcher != want[g.Event] || g.Command != CodexCommand || g.Timeout != timeout {
			t.Errorf("%+v", g)
		}
		if _, known := codex.events[g.Event]; !known {
			t.Errorf("%s is not answered", g.Event)
		}
		if codex.events[g.Event].tool != (g.Matcher != "") {
			t.Errorf("%s matches %q", g.Event, g.Matcher)
		}
	}
	if !slices.Equal(events, []string{"SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "SubagentStart", "SubagentStop",
		"PreCompact", "Stop", "Interrupt", "SessionEnd", "PermissionRequest"}) {
		t.Error(events)
	}
}

// codexRefuses says why Codex takes an event's output for a failed hook, and lets the call go on; nil: it does not. It parses
// strictly: one key that it does not know makes all of it invalid.
func codexRefuses(event string, output []byte) error {
	if len(output) == 0 {
		return nil
	}
	const text = "text"
	block := map[string]any{"decision": "block", "reason": text, "systemMessage": text}
	allowed := map[string]map[string]any{
		"SessionStart":     {"systemMessage": text, "hookSpecificOutput": map[string]any{"additionalContext": text}},
		"UserPromptSubmit": {"decision": "block", "reason": text, "systemMessage": text, "hookSpecificOutput": map[string]any{"additionalContext": text}},
		"PreToolUse": {"decision": "block", "reason": text, "systemMessage": text, "hookSpecificOutput": map[string]any{
			"permissionDecision": "deny", "permissionDecisionReason": text, "additionalContext": text}},
		"PostToolUse":       {"decision": "block", "reason": text, "systemMessage": text, "hookSpecificOutput": map[string]any{"additionalContext": text}},
		"SubagentStart":     {"systemMessage": text, "hookSpecificOutput": map[string]any{"additionalContext": text}},
		"SubagentStop":      block,
		"Stop":              block,
		"PreCompact":        {"systemMessage": text},
		"PostCompact":       {"systemMessage": text},
		"Interrupt":         {"systemMessage": text},
		"PermissionRequest": {},
	}[event]
	var said map[string]any
	if err := json.Unmarshal(output, &said); err != nil {
		return err
	}
	var walk func(said, allowed map[string]any) error
	walk = func(said, allowed map[string]any) error {
		for key, value := range said {
			want, known := allowed[key]
			if !known {
				return fmt.Errorf("it has %q", key)
			}
			switch want := want.(type) {
			case map[string]any:
				inner, ok := value.(map[string]any)
				if !ok {
					return fmt.Errorf("%q is %v", key, value)
				}
				if inner["hookEventName"] != event {
					return fmt.Errorf("it is of %v", inner["hookEventName"])
				}
				delete(inner, "hookEventName")
				if err := walk(inner, want); err != nil {
					return err
				}
			case string:
				given, ok := value.(string)
				if !ok || strings.TrimSpace(given) == "" || want != text && given != want {
					return fmt.Errorf("%q is %v", key, value)
				}
			}
		}
		for decision, reason := range map[string]string{"decision": "reason", "permissionDecision": "permissionDecisionReason"} {
			if (said[decision] != nil) != (said[reason] != nil) {
				return fmt.Errorf("%q without %q", decision, reason)
			}
		}
		return nil
	}
	return walk(said, allowed)
}

func TestCodexRefusesWhatItShould(t *testing.T) {
	const specific = `{"hookSpecificOutput":{"hookEventName":"PreToolUse",`
	for output, refused := range map[string]bool{
		``:   false,
		`{}`: false,
		specific + `"permissionDecision":"deny","permissionDecisionReason":"no"}}`:                                    false,
		specific + `"additionalContext":"x"},"systemMessage":"y"}`:                                                    false,
		`{"decision":"block","reason":"no"}`:                                                                          false,
		specific + `"permissionDecision":"deny","permissionDecisionReason":"no","note":1}}`:                           true,
		specific + `"permissionDecision":"deny","permissionDecisionReason":"no"},"suppressOutput":true}`:              true,
		specific + `"permissionDecision":"deny","permissionDecisionReason":""}}`:                                      true,
		specific + `"permissionDecision":"deny"}}`:                                                                    true,
		specific + `"permissionDecision":"ask","permissionDecisionReason":"no"}}`:                                     true,
		specific + `"permissionDecision":"allow"}}`:                                                                   true,
		`{"hookSpecificOutput":{"permissionDecision":"deny","permissionDecisionReason":"no"}}`:                        true,
		`{"hookSpecificOutput":{"hookEventName":"Stop","permissionDecision":"deny","permissionDecisionReason":"no"}}`: true,
		`note {}`: true,
	} {
		if err := codexRefuses("PreToolUse", []byte(output)); (err != nil) != refused {
			t.Errorf("%s: %v", output, err)
		}
	}
}

// Whatever there is to say, Codex takes it.
func TestReportCodex45999CodexTakesEachAnswer(t *testing.T) {
	for _, c := range goldenAnswers(t) {
		if c.agent == "codex" {
			if err := codexRefuses(c.event, []byte(c.want)); err != nil {
				t.Errorf("%s: %s: %v", c.event, c.want, err)
			}
		}
	}
	text := rapid.OneOf(rapid.String(), rapid.Just(""), rapid.Just(" "), rapid.Just(strings.Repeat("x", maxOutput)))
	rapid.Check(t, func(t *rapid.T) {
		answer := socket.Answer{Context: text.Draw(t, "context"), Deny: text.Draw(t, "deny"), Person: text.Draw(t, "person"), Hold: text.Draw(t, "hold")}
		for event := range codex.events {
			out := codex.encode(event, &socket.Hook{Event: event}, &answer)
			if err := codexRefuses(event, out); err != nil || len(out) > maxOutput {
				t.Errorf("%s: %v, %d bytes: %s", event, err, len(out), out)
			}
		}
	})
}

// codexTool is a payload of a Codex tool, in whichever order its keys come; it ends without a newline.
func (w *world) codexTool(event, tool, command string) string {
	return strings.TrimSuffix(w.payload(event, map[string]any{"turn_id": "t1", "model": "m", "permission_mode": "default", "tool_name": tool,
		"tool_input": map[string]any{"command": command}, "tool_use_id": "exec-1"}), "\n")
}

func TestAPatchNamesItsFiles(t *testing.T) {
	w := newWorld(t)
	w.repo = w.mkdir(realPath(t.TempDir()), "my repo")
	w.mkdir(w.repo, ".git")
	w.mkdir(w.repo, "src")
	other := w.mkdir(filepath.Dir(w.repo), "other")
	w.mkdir(other, ".git")
	w.write("x", w.repo, "src", "a.go")
	w.link("src/a.go", w.repo, "again.go")
	w.link("src", w.repo, "link")
	patch := func(lines ...string) string {
		return "*** Begin Patch\n" + strings.Join(lines, "\n") + "\n*** End Patch\n"
	}
	for _, c := range []struct{ cwd, patch, want string }{
		{".", patch("*** Add File: new dir/x y.go", "+x", "*** Update File: src/a.go", "*** Move to: src/b.go", "@@", "-x", "+y", "*** Delete File: old.go"),
			"my repo w:new dir/x y.go w:old.go w:src/a.go w:src/b.go"},
		{"src", patch("*** Update File: ../top.go", "@@", "+x", "*** Add File: a.go", "+x"), "my repo w:src/a.go w:top.go"},
		{".", patch("*** Add File: ../other/z.go", "+x", "*** Add File: "+w.repo+"/abs.go", "+x", "*** Delete File: /etc/motd"), "my repo w:abs.go | other w:z.go"},
		{".", patch("*** Update File: again.go", "@@", "+x"), "my repo w:src/a.go"},
		{".", patch("*** Delete File: again.go"), "my repo w:again.go"},
		{".", patch("*** Update File: again.go", "*** Move to: link/c.go", "@@", "+x"), "my repo w:again.go w:src/c.go"},
		{".", patch("*** Delete File: .git/config", "*** Delete File: loop\x00"), "my repo opaque"},
		{".", "*** Begin Patch\n*** Delete File: a\n", "my repo w:a opaque"},
		{".", "no patch", "my repo opaque"},
		{".", "", "my repo opaque"},
	} {
		for _, event := range []string{"PreToolUse", "PostToolUse"} {
			payload := strings.Replace(w.codexTool(event, "apply_patch", c.patch), `"cwd":"`+w.repo, `"cwd":"`+filepath.Join(w.repo, c.cwd), 1)
			h := w.askedBy("codex", payload)
			if h == nil {
				t.Fatalf("%q: nothing was asked", c.patch)
			}
			if got := summary(filepath.Dir(w.repo), h); got != c.want {
				t.Errorf("%s in %s: %q is %q, want %q", event, c.cwd, c.patch, got, c.want)
			}
			if h.Shell || h.Background || h.PromptID != "t1" || h.ToolUse != "exec-1" {
				t.Errorf("%+v", h)
			}
		}
	}
	if codes := w.failures(); codes != "" {
		t.Errorf("failures %s", codes)
	}
}

// summary is what a hook asked about, as ROOT r:PATH w:PATH t:PATH for each place, with the directory base left out.
func summary(base string, h *socket.Hook) string {
	var list []string
	for _, p := range h.Places {
		words := []string{strings.TrimPrefix(p.Root, base+"/")}
		for _, each := range []struct {
			kind  string
			paths []string
		}{{"r:", p.Reads}, {"w:", p.Writes}, {"t:", p.Trees}} {
			for _, path := range each.paths {
				words = append(words, each.kind+path)
			}
		}
		list = append(list, strings.Join(words, " "))
	}
	text := strings.Join(list, " | ")
	if h.Opaque {
		text += " opaque"
	}
	return text
}

func TestCodexAsksAboutItsOwnTools(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		event, tool string
		asked       bool
	}{
		{"PreToolUse", "apply_patch", true}, {"PostToolUse", "apply_patch", true}, {"PreToolUse", "Bash", true}, {"PreToolUse", "Edit", false},
		{"PreToolUse", "collaborationspawn_agent", false}, {"PostToolUse", "mcp__a__b", false}, {"PreToolUse", "", false},
		{"SessionStart", "", true}, {"UserPromptSubmit", "", true}, {"SubagentStart", "", true}, {"SubagentStop", "", true}, {"Stop", "", true},
		{"Interrupt", "", true}, {"SessionEnd", "", true}, {"PreCompact", "", true},
		{"PermissionRequest", "Bash", true}, {"PostCompact", "", false}, {"PostToolUseFailure", "Bash", false}, {"OfALaterVersion", "", false},
	} {
		if h := w.askedBy("codex", w.codexTool(c.event, c.tool, "true")); (h != nil) != c.asked {
			t.Errorf("%+v: %+v", c, h)
		} else if h != nil && (h.Agent != "codex" || h.Process != 0) {
			t.Errorf("%+v: %+v", c, h)
		}
	}
	if codes := w.failures(); codes != "" {
		t.Errorf("failures %s", codes)
	}
}

// A subagent is prompted by its session, not by a person.
func TestAPromptOfASubagentIsTheMachines(t *testing.T) {
	w := newWorld(t)
	for subagent, machine := range map[string]bool{"": false, "a1": true} {
		h := w.askedBy("codex", w.payload("UserPromptSubmit", map[string]any{"prompt": "write the manual of the till", "turn_id": "t1", "agent_id": subagent}))
		if h == nil || h.Machine != machine || h.Subagent != subagent || h.PromptID != "t1" {
			t.Errorf("%q: %+v", subagent, h)
		}
	}
}

// bigPatch yields a call of apply_patch that adds a file of n bytes, with more operations around it.
func bigPatch(n int) io.Reader {
	const line = `+a line with \"quotes\", \ttabs and é 😀 \ud83d\ude00, as files are\n`
	return io.MultiReader(
		strings.NewReader(`{"tool_input":{"command":"*** Begin Patch\n*** Delete File: first\n*** Add File: big\n`),
		strings.NewReader(strings.Repeat(line, n/len(line))),
		strings.NewReader(`*** Update File: moved\n*** Move to: last\n@@\n+x\n*** End Patch\n"},"session_id":"s","cwd":"/r","hook_event_name":"PreToolUse","tool_name":"apply_patch"}`))
}

func TestABigPatchNamesAllItsFilesAndKeepsNothing(t *testing.T) {
	in := bigPatch(8 << 20)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	p, err := codex.decode(in)
	runtime.ReadMemStats(&after)
	if err != nil {
		t.Fatal(err)
	}
	touched, opaque := codex.touches(p, func(string) string { return "" })
	want := []touch{{path: "/r/first", writes: true}, {path: "/r/big", writes: true}, {path: "/r/moved", writes: true}, {path: "/r/last", writes: true}}
	if !reflect.DeepEqual(touched, want) || opaque {
		t.Errorf("%+v, opaque %v", touched, opaque)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > 2<<20 { // of which the first 256 KiB, in steps, are what a command line may have
		t.Errorf("decoding 8 MB allocated %d bytes", got)
	}
}

// However long the paths of a patch are, spelled or in the directory where it is applied, the request with them is one that is sent. What
// does not fit is not named, and the call is opaque.
func TestAPatchOfLongPathsIsToldAsFarAsItGoes(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, ".git"), 0o755); err != nil {
		t.Fatal(err)
	}
	root = realPath(root)
	for name, c := range map[string]struct {
		moves     int
		dir, path string
		opaque    bool
	}{
		"few":              {100, ".", strings.Repeat("p", 100), false},
		"long paths":       {5000, ".", strings.Repeat("p", 110), true},
		"a deep directory": {5000, strings.Repeat("deep/", 40), "p", true},
	} {
		var text strings.Builder
		text.WriteString("*** Begin Patch\n")
		for i := range c.moves {
			fmt.Fprintf(&text, "*** Update File: %d%s\n*** Move to: to%d%s\n@@\n-x\n+y\n", i, c.path, i, c.path)
		}
		text.WriteString("*** End Patch\n")
		cwd := filepath.Join(root, c.dir)
		payload, err := json.Marshal(map[string]any{"hook_event_name": "PreToolUse", "session_id": "s", "cwd": cwd, "tool_name": "apply_patch",
			"tool_input": map[string]string{"command": text.String()}})
		if err != nil {
			t.Fatal(err)
		}
		p, err := codex.decode(bytes.NewReader(payload))
		if err != nil {
			t.Fatal(err)
		}
		touched, opaque := codex.touches(p, func(string) string { return "" })
		if opaque != c.opaque || len(touched) == 0 || touched[0].path != filepath.Join(cwd, "0"+c.path) || !c.opaque && len(touched) != 2*c.moves {
			t.Errorf("%s: %d paths, opaque %v", name, len(touched), opaque)
			continue
		}
		p.hook.Places, p.hook.Opaque = places(cwd, touched), opaque
		line, err := json.Marshal(socket.Request{Hook: &p.hook})
		if err != nil || len(line) >= socket.MaxLine-64<<10 {
			t.Errorf("%s: the request has %d bytes, %v", name, len(line), err)
		}
	}
}

// Budget: 8 MB in 60 ms, so that the largest patch leaves most of the agent's time to it.
func BenchmarkDecodeABigPatch(b *testing.B) {
	data, err := io.ReadAll(bigPatch(8 << 20))
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := codex.decode(bytes.NewReader(data)); err != nil {
			b.Fatal(err)
		}
	}
}

func FuzzCodexPayload(f *testing.F) {
	f.Add([]byte(`{"tool_input":{"command":"*** Begin Patch\n*** Update File: ../\u0000\n*** Move to: /..\n"},"hook_event_name":"PreToolUse","session_id":"s","cwd":"/..//./","tool_name":"apply_patch"}`))
	fuzzPayload(f, "codex")
}
