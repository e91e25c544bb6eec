package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"knoot.dev/knoot/mcpd"
)

// What an agent shows is printed as it is now, and nothing of it reaches the terminal but text.
func TestWhatAnAgentShowsIsPrinted(t *testing.T) {
	t.Parallel()
	c, stdout, _ := testConsole(t)
	dir := t.TempDir()
	there, pipe := filepath.Join(dir, "plan.md"), filepath.Join(dir, "pipe.md")
	if err := os.WriteFile(there, []byte("# Plan\r\n\n\x1b[2Jcleared\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	shown := &mcpd.Shown{
		Artifacts: []mcpd.Artifact{{Kind: mcpd.MarkdownArtifact, Path: there}, {Kind: mcpd.MarkdownArtifact, Path: pipe},
			{Kind: mcpd.MarkdownArtifact, Path: filepath.Join(dir, "gone.md")}, {Kind: mcpd.MermaidArtifact, Title: "flow", Diagram: "graph TD\na-->b"},
			{Kind: mcpd.TasksArtifact}, {Kind: mcpd.ChecklistArtifact}},
		Checklist: &mcpd.Checklist{Title: "Release", Items: []mcpd.Item{{ID: "tests", Text: "green?", Kind: "check", Ticked: true}, {ID: "docs", Text: "read?", Kind: "check"},
			{ID: "name", Text: "what name?", Kind: mcpd.QuestionItem, Answer: "Aurora\nB"}, {ID: "day", Text: "which day?", Kind: mcpd.QuestionItem}}},
		Tasks: []mcpd.Task{{ID: "parse", Goal: "parse dates", State: "done", SentTo: "bob"}, {ID: "say", Goal: "say so", State: "ready", DependsOn: []string{"parse"}}},
	}
	if err := c.printShown("alice", shown); err != nil {
		t.Fatal(err)
	}
	got := stdout.String()
	for _, want := range []string{"== " + there + "\n# Plan\n\n�[2Jcleared\n", "== " + pipe + "\nIt is no file any more.\n", "gone.md\nIt cannot be read any more: ",
		"== flow, a diagram\ngraph TD\na-->b\n", "== its tasks\ndone   parse  bob               parse dates\nready  say         after parse  say so\n",
		"== Release, a checklist (not sent)\n[x]  tests  green?\n[ ]  docs   read?\n[x]  name   what name? — Aurora�B\n ?   day    which day?\nTry: knoot agent fill alice ITEM"} {
		if !strings.Contains(got, want) {
			t.Errorf("it lacks %q:\n%s", want, got)
		}
	}
}
