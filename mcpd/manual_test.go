package mcpd

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// example is a call that the manual shows.
var example = regexp.MustCompile("(?m)^(\\w+): `([a-z-]+)`\n\n```json\n([^`]*?)```\n\n```(json|)\n([^`]*?)```\n")

// varies is what differs from one time to the next: ids of entries, messages and commits, and times.
var varies = regexp.MustCompile(`\b[0-9a-f]{40}\b|\b[0-9a-f]{32}\b|\b20\d\d-\d\d-\d\dT[0-9:.]+(Z|\+00:00)|\b(600|5\d\d)\b`)

// plain is an answer without what varies.
func (m *machine) plain(t *testing.T, text, home string) any {
	t.Helper()
	text = varies.ReplaceAllStringFunc(strings.ReplaceAll(strings.TrimSpace(text), home, "/home/ash"), func(s string) string {
		if len(s) == 3 {
			return "600"
		}
		return strings.Repeat("0", min(len(s), 24))
	})
	var v any
	if json.Unmarshal([]byte(text), &v) != nil {
		return text
	}
	return v
}

func TestExamplesOfTheManual(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "docs", "coordination.md"))
	if err != nil {
		t.Fatal(err)
	}
	m := newMachine(t)
	m.stop()
	m.Write(filepath.Join(m.KnootHome, "config.toml"), "[mcp]\nport = 0\n[source]\nfolder = \"~/src\"\n[templates.reviewer]\ntype = \"claude\"\ndescription = \"reviews Go\"\ntags = [\"go\", \"review\"]\ncost = \"low\"\n")
	m.repo = m.repository("src/shop")
	m.Commit(m.repo, "README.md", "a shop\n", "Say what it is")
	m.start()
	as := map[string]*member{"alice": m.agent("alice", "claude", m.repo), "bob": m.agent("bob", "codex", m.repo)}
	shown := map[string]bool{}
	examples := example.FindAllStringSubmatch(string(text), -1)
	for _, e := range examples {
		caller, tool, request, kind, want := e[1], e[2], e[3], e[4], e[5]
		shown[tool] = true
		got, err := as[caller].raw(tool, strings.ReplaceAll(request, "\n", " "))
		if err != nil {
			t.Fatalf("%s by %s: %v", tool, caller, err)
		}
		if !reflect.DeepEqual(m.plain(t, got.Text, m.Home), m.plain(t, want, m.Home)) || kind == "json" && got.Error {
			t.Errorf("%s by %s answers (error %v)\n%s\nand the manual says\n%s", tool, caller, got.Error, strings.ReplaceAll(got.Text, m.Home, "/home/ash"), want)
		}
	}
	for _, tool := range allTools() {
		if !shown[tool.name] {
			t.Errorf("the manual has no example of %s", tool.name)
		}
	}
	if strings.Count(string(text), "\n```json\n") != strings.Count(string(text), "```json\n") || len(examples) < len(allTools()) {
		t.Errorf("%d examples are read", len(examples))
	}
}
