package hook

import (
	"strings"
	"testing"
)

// What was said at the session's start comes back in front of the prompt when Gemini CLI runs without a terminal. It is nobody's
// intent.
func TestGeminiPromptIsWhatThePersonTyped(t *testing.T) {
	for sent, want := range map[string]string{
		"hello": "hello",
		"<hook_context>notes &lt;1&gt;</hook_context>\n\nhello":                            "hello",
		"<hook_context>notes</hook_context>\n\n<hook_context>more</hook_context>\n\nhello": "hello",
		"why is there <hook_context>x</hook_context> in it?":                               "why is there <hook_context>x</hook_context> in it?",
		"<hook_context>cut off": "",
	} {
		w := newWorld(t)
		h := w.askedBy("gemini", w.payload("BeforeAgent", map[string]any{"prompt": sent}))
		if h == nil || h.Event != "UserPromptSubmit" || h.Prompt != want || h.Machine {
			t.Errorf("%q: %+v", sent, h)
		}
	}
}

func TestGeminiCallsHaveAnIdentity(t *testing.T) {
	hasCallIdentity(t, "gemini", "BeforeTool", "AfterTool", "replace", "run_shell_command")
}

// hasCallIdentity holds that the calls of an agent that gives them no id are the same before and after, and no two are.
func hasCallIdentity(t *testing.T, agent, before, after, write, shell string) {
	t.Helper()
	w := newWorld(t)
	id := func(event, tool string, input map[string]any) string {
		h := w.askedBy(agent, w.payload(event, map[string]any{"tool_name": tool, "tool_input": input}))
		if h == nil || h.ToolUse == "" {
			t.Fatalf("%s of %s: %+v", event, tool, h)
		}
		return h.ToolUse
	}
	seen := map[string]string{}
	for _, c := range []struct {
		tool  string
		input map[string]any
	}{
		{write, map[string]any{"path": "a.go"}}, {write, map[string]any{"path": "b.go"}}, {write, map[string]any{}},
		{shell, map[string]any{"command": "touch a.go"}}, {shell, map[string]any{"command": "touch b.go"}},
	} {
		first := id(before, c.tool, c.input)
		if second := id(after, c.tool, c.input); second != first {
			t.Errorf("%s %v: %s and then %s", c.tool, c.input, first, second)
		}
		if other := seen[first]; other != "" {
			t.Errorf("%s %v is %s", c.tool, c.input, other)
		}
		seen[first] = c.tool
	}
}

func TestGeminiGroups(t *testing.T) {
	for _, g := range GeminiGroups() {
		if g.Command != GeminiCommand || g.Timeout != 5000 {
			t.Errorf("%+v", g)
		}
		if gemini.events[g.Event].tool != (g.Matcher != "") {
			t.Errorf("%s matches %q", g.Event, g.Matcher)
		}
		if g.Matcher != "" && len(strings.Split(g.Matcher, "|")) != len(gemini.tools) {
			t.Errorf("%s matches %q", g.Event, g.Matcher)
		}
		for name := range strings.SplitSeq(g.Matcher, "|") {
			if _, known := gemini.tools[name]; name != "" && !known {
				t.Errorf("%s matches %s, which is not answered", g.Event, name)
			}
		}
	}
}

func FuzzGeminiPayload(f *testing.F) { fuzzPayload(f, "gemini") }
