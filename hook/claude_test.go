package hook

import (
	"encoding/json"
	"strings"
	"testing"
)

// The command is constant text: Claude runs equal commands once, and a change would leave an old one in people's settings.
func TestClaudeCommandIsConstant(t *testing.T) {
	const want = `k=${KNOOT_BIN:-knoot}; [ "$KNOOT" = off ] || ! command -v "$k" >/dev/null 2>&1 || "$k" hook claude 2>/dev/null; exit 0`
	if ClaudeCommand != want {
		t.Error(ClaudeCommand)
	}
}

func TestClaudeGroups(t *testing.T) {
	seen := map[string]bool{}
	for _, g := range ClaudeGroups() {
		reply, known := claude.events[g.Event]
		if !known || seen[g.Event] {
			t.Errorf("%s is not answered, or twice", g.Event)
		}
		seen[g.Event] = true
		if matches := reply.tool || g.Event == "Notification"; matches != (g.Matcher != "") {
			t.Errorf("%s matches %q", g.Event, g.Matcher)
		}
		if reply.tool {
			for _, name := range strings.Split(g.Matcher, "|") {
				if _, ok := claude.tools[name]; !ok {
					t.Errorf("%s matches %s, which is not answered", g.Event, name)
				}
			}
			if n := strings.Count(g.Matcher, "|") + 1; n != len(claude.tools) {
				t.Errorf("%s matches %d tools of %d", g.Event, n, len(claude.tools))
			}
		}
		var settings struct {
			Matcher *string
			Hooks   []struct {
				Type, Command string
				Timeout       float64
			}
		}
		if err := json.Unmarshal(g.JSON(), &settings); err != nil {
			t.Fatal(err)
		}
		if len(settings.Hooks) != 1 || settings.Hooks[0].Type != "command" || settings.Hooks[0].Command != ClaudeCommand || settings.Hooks[0].Timeout != 5 {
			t.Errorf("%s", g.JSON())
		}
		if (settings.Matcher != nil) != (g.Matcher != "") || settings.Matcher != nil && *settings.Matcher != g.Matcher {
			t.Errorf("%s", g.JSON())
		}
	}
	if len(seen) != len(claude.events) {
		t.Errorf("%d events of %d", len(seen), len(claude.events))
	}
	const want = `{"matcher":"Read|Write|Edit|MultiEdit|NotebookEdit|Bash","hooks":[{"type":"command","command":"k=${KNOOT_BIN:-knoot}; [ \"$KNOOT\" = off ] || ! command -v \"$k\" >/dev/null 2>&1 || \"$k\" hook claude 2>/dev/null; exit 0","timeout":5}]}`
	if got := string(ClaudeGroups()[2].JSON()); got != want {
		t.Errorf("%s", got)
	}
}
