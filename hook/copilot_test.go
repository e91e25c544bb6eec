package hook

import "testing"

// To Copilot CLI a subagent is a session. Here it is part of the one that it works for, which would be refused what it holds.
func TestCopilotSubagentsBelongToTheirSession(t *testing.T) {
	sub := map[string]any{"session_id": "sub", "agent_id": "sub", "parent_agent_id": "main"}
	for event, want := range map[string]string{"UserPromptSubmit": "SubagentStart", "PreToolUse": "PreToolUse", "Stop": "SubagentStop"} {
		w := newWorld(t)
		extra := map[string]any{"prompt": "look", "tool_name": "Write", "tool_input": map[string]any{"path": "x.go"}}
		for key, v := range sub {
			extra[key] = v
		}
		h := w.askedBy("copilot", w.payload(event, extra))
		if h == nil || h.Event != want || h.Session != "main" || h.Subagent != "sub" || h.Prompt != "" {
			t.Errorf("%s: %+v", event, h)
		}
	}
}

func TestCopilotCallsHaveAnIdentity(t *testing.T) {
	hasCallIdentity(t, "copilot", "PreToolUse", "PostToolUse", "Edit", "Bash")
}

func TestCopilotGroups(t *testing.T) { groupsAre(t, &copilot, CopilotGroups(), CopilotCommand) }

// Cursor and Copilot CLI run Claude Code's hooks of a repository, too. Their own hooks answer for them.
func TestClaudesHookLeavesOtherAgentsAlone(t *testing.T) {
	for _, other := range []string{"copilot", "cursor"} {
		for _, line := range lines(t, other+".jsonl") {
			w := newWorld(t)
			if h := w.asked(line); h != nil {
				t.Errorf("%s: it was asked: %+v", line, h)
			}
			if codes := w.failures(); codes != "" {
				t.Errorf("%s: failures %s", line, codes)
			}
		}
	}
	// Its SubagentStart names no event.
	w := newWorld(t)
	if h := w.asked(`{"sessionId":"s","timestamp":1796068381876,"cwd":"` + w.repo + `","agentName":"general-purpose"}`); h != nil || w.failures() != "" {
		t.Errorf("%+v", h)
	}
	// A Claude Code that says the time is still Claude Code.
	if h := w.asked(w.payload("Stop", map[string]any{"timestamp": "2026-11-30T19:53:01.545Z"})); h == nil {
		t.Error("a payload of Claude Code's with a time is left alone")
	}
}

func FuzzCopilotPayload(f *testing.F) { fuzzPayload(f, "copilot") }
