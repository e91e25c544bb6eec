package hook

import "testing"

// Cursor says a conversation's id in all its events, a session's in some, and a working directory in few.
func TestCursorSessionsAreConversations(t *testing.T) {
	w := newWorld(t)
	h := w.askedBy("cursor", w.payload("preToolUse", map[string]any{"conversation_id": "c1", "session_id": nil, "generation_id": "g1", "cwd": "",
		"workspace_roots": []any{w.repo, "/elsewhere"}, "tool_name": "Write", "tool_input": map[string]any{"path": "x.go"}}))
	if h == nil || h.Session != "c1" || h.PromptID != "g1" || h.Cwd != w.repo || len(h.Places) != 1 || len(h.Places[0].Writes) != 1 {
		t.Errorf("%+v", h)
	}
	if h := w.askedBy("cursor", w.payload("stop", map[string]any{"conversation_id": "c1", "cwd": "", "workspace_roots": "none"})); h != nil {
		t.Errorf("a workspace without a folder: %+v", h)
	}
}

// A turn that a person broke off, or that was sent on before, is not sent on.
func TestCursorTurnsThatAreNotSentOn(t *testing.T) {
	for _, c := range []struct {
		status any
		loops  any
		held   bool
	}{{"completed", 0, true}, {nil, nil, true}, {"completed", 1, false}, {"completed", 12, false}, {"aborted", 0, false}, {"error", 0, false}} {
		w := newWorld(t)
		h := w.askedBy("cursor", w.payload("stop", map[string]any{"conversation_id": "c1", "status": c.status, "loop_count": c.loops}))
		if h == nil || h.StopHook == c.held {
			t.Errorf("%+v: %+v", c, h)
		}
	}
}

func TestCursorGroups(t *testing.T) { groupsAre(t, &cursor, CursorGroups(), CursorCommand) }

// groupsAre holds that the groups of an agent without matchers are one for each event that it has.
func groupsAre(t *testing.T, a *agent, groups []Group, command string) {
	t.Helper()
	seen := map[string]bool{}
	for _, g := range groups {
		if _, known := a.events[g.Event]; !known || seen[g.Event] || g.Matcher != "" || g.Command != command || g.Timeout != 5 {
			t.Errorf("%+v", g)
		}
		seen[g.Event] = true
	}
	if len(seen) != len(a.events) {
		t.Errorf("%d events of %d", len(seen), len(a.events))
	}
}

func FuzzCursorPayload(f *testing.F) { fuzzPayload(f, "cursor") }
