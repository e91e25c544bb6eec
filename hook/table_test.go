package hook

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// titles are the agents in the order of the tables in docs/agents.md.
var titles = []struct{ name, title string }{
	{"claude", "Claude Code"}, {"codex", "Codex"}, {"gemini", "Gemini CLI"}, {"cursor", "Cursor"}, {"copilot", "Copilot CLI"}, {"opencode", "opencode"},
}

func agentsPage(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../docs/agents.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// The page's table of events is that of the code: by which event of an agent's knoot hears of what, and what it can say then.
func TestThePageOnAgentsHasTheirEvents(t *testing.T) {
	page := agentsPage(t)
	events := []string{"SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolUseFailure", "SubagentStart", "SubagentStop",
		"PreCompact", "Stop", "Interrupt", "SessionEnd", "Notification", "PermissionRequest"}
	in := 0
	for _, event := range events {
		row := "| " + event + " |"
		for _, each := range titles {
			cell := "–"
			for own, r := range agents[each.name].events {
				if r.as != event && (r.as != "" || own != event) {
					continue
				}
				in++
				var can []string
				for what, is := range map[string]bool{"refuse": r.deny, "tell": r.context, "hold": r.hold} {
					if is {
						can = append(can, what)
					}
				}
				slices.Sort(can)
				if cell = strings.Join(can, ", "); cell == "" {
					cell = "hear"
				}
				if own != event {
					cell = "`" + own + "`: " + cell
				}
			}
			row += " " + cell + " |"
		}
		if !strings.Contains(page, row+"\n") {
			t.Errorf("docs/agents.md lacks the row\n%s", row)
		}
	}
	for _, a := range agents {
		in -= len(a.events)
	}
	if in != 0 || len(titles) != len(agents) {
		t.Error("there are events, or agents, that the table has no place for")
	}
}

// So is the table of tools.
func TestThePageOnAgentsHasTheirTools(t *testing.T) {
	page := agentsPage(t)
	for _, each := range titles {
		var reads, writes, lines []string
		for _, name := range slices.Sorted(maps.Keys(agents[each.name].tools)) {
			switch tool := agents[each.name].tools[name]; {
			case tool.shell:
				lines = append(lines, "`"+name+"`")
			case tool.writes || tool.patch:
				writes = append(writes, "`"+name+"`")
			default:
				reads = append(reads, "`"+name+"`")
			}
		}
		row := "| " + each.title + " | " + strings.Join(reads, ", ") + " | " + strings.Join(writes, ", ") + " | " + strings.Join(lines, ", ") + " |"
		if row = strings.ReplaceAll(row, "|  |", "| – |"); !strings.Contains(page, row+"\n") {
			t.Errorf("docs/agents.md lacks the row\n%s", row)
		}
	}
}

// What is installed for an agent is what is answered.
func TestAllEventsAreInstalled(t *testing.T) {
	installed := map[string][]Group{"claude": ClaudeGroups(), "codex": CodexGroups(), "gemini": GeminiGroups(), "cursor": CursorGroups(), "copilot": CopilotGroups()}
	for name, a := range agents {
		var events []string
		for _, g := range installed[name] {
			events = append(events, g.Event)
		}
		if name == "opencode" {
			for event := range a.events {
				if strings.Contains(OpencodePlugin, `"`+event+`"`) {
					events = append(events, event)
				}
			}
		}
		slices.Sort(events)
		if want := slices.Sorted(maps.Keys(a.events)); !slices.Equal(events, want) {
			t.Errorf("%s: %v are installed, %v are answered", name, events, want)
		}
	}
}

// Each public report that the page lists has a test that is named after it, or a sentence that says why not.
func TestEachReportHasATest(t *testing.T) {
	_, list, found := strings.Cut(agentsPage(t), "\n## Reports\n")
	if !found {
		t.Fatal("docs/agents.md lists no reports")
	}
	report := regexp.MustCompile(`^\| (\d+) \| [\w-]+/([\w-]+)#(\d+)`)
	rows := 0
	for line := range strings.SplitSeq(list, "\n") {
		match := report.FindStringSubmatch(line)
		if match == nil {
			continue
		}
		rows++
		cells := strings.Split(strings.TrimSuffix(line, " |"), " | ")
		last := cells[len(cells)-1]
		name := "TestReport"
		for part := range strings.SplitSeq(match[2], "-") {
			name += strings.ToUpper(part[:1]) + part[1:]
		}
		if name += match[3]; !strings.HasPrefix(last, "`"+name) && (!strings.HasPrefix(last, "No test of its own: ") || len(last) < 60) {
			t.Errorf("report %s has neither a test %s... nor a reason: %s", match[1], name, last)
		}
	}
	if rows != 34 {
		t.Errorf("%d reports", rows)
	}
}
