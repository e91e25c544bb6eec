package agents

import (
	"context"
	"path/filepath"
)

// Claude is Claude Code.
type Claude struct{ executable string }

// FindClaude returns Claude Code from the folder that fetch.sh fills, or ErrNotFetched. The package's version is 0.3.332; the
// program calls itself 2.1.332.
func FindClaude() (Agent, error) {
	executable, err := find("claude-0.3.332", "claude")
	return Claude{executable}, err
}

// Name is as Agent says, and so are the other methods.
func (Claude) Name() string { return "Claude Code" }

func (Claude) Hooks() string { return "claude" }

func (c Claude) Version(ctx context.Context) (string, error) {
	return version(ctx, c.executable, " (Claude Code)")
}

func (c Claude) Run(ctx context.Context, job Job) (Output, error) {
	env := []string{
		"CLAUDE_CODE_TMPDIR=" + filepath.Join(job.Home, "tmp"),
		"IS_SANDBOX=1", // it runs as root in a namespace of its own
		"ANTHROPIC_BASE_URL=" + job.Model.URL(),
		"ANTHROPIC_API_KEY=sk-ant-none",
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
		"DISABLE_AUTOUPDATER=1",
	}
	return start(ctx, job, c.executable, env, "-p", job.Prompt, "--permission-mode", "acceptEdits", "--allowedTools", "Bash")
}

// Program is its executable.
func (c Claude) Program() string { return c.executable }

func (Claude) Read(path string) Item {
	return Item{Tool: "Read", Input: map[string]any{"file_path": path}}
}

func (Claude) Edit(path, line, by string) Item {
	return Item{Tool: "Edit", Input: map[string]any{"file_path": path, "old_string": line, "new_string": by}}
}

func (Claude) Shell(line string) Item {
	return Item{Tool: "Bash", Input: map[string]any{"command": line, "description": "a command"}}
}

func (Claude) Patch(string) (Item, bool) { return Item{}, false }

func (Claude) Together(calls ...Item) []Item { return calls }

func (Claude) Delegate() (Item, bool) {
	return Item{Tool: "Agent", Input: map[string]any{"description": "a part", "prompt": subagentPrompt, "subagent_type": "general-purpose"}}, true
}
