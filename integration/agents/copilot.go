package agents

import (
	"context"
	"path/filepath"
)

// Copilot is GitHub Copilot CLI.
type Copilot struct{ executable string }

// FindCopilot returns Copilot CLI from the folder that `fetch.sh others` fills, or ErrNotFetched.
func FindCopilot() (Agent, error) {
	executable, err := find("copilot-1.0.102", "copilot")
	return Copilot{executable}, err
}

// Name is as Agent says, and so are the other methods.
func (Copilot) Name() string { return "Copilot CLI" }

func (Copilot) Hooks() string { return "copilot" }

func (c Copilot) Version(ctx context.Context) (string, error) {
	return version(ctx, c.executable, "GitHub Copilot CLI ")
}

func (c Copilot) Run(ctx context.Context, job Job) (Output, error) {
	env := []string{
		"XDG_CACHE_HOME=" + filepath.Join(filepath.Dir(c.executable), "cache"), // it unpacks itself there, once
		"COPILOT_PROVIDER_BASE_URL=" + job.Model.URL(),
		"COPILOT_PROVIDER_TYPE=anthropic",
		"COPILOT_PROVIDER_API_KEY=none",
		"COPILOT_MODEL=claude-sonnet-4",
		"COPILOT_OFFLINE=true",
		"GITHUB_COPILOT_PROMPT_MODE_REPO_HOOKS=true", // nobody is there who would trust the folder
	}
	return start(ctx, job, c.executable, env, "-p", job.Prompt, "--allow-all-tools", "--add-dir", job.Dir)
}

func (Copilot) Read(path string) Item {
	return Item{Tool: "view", Input: map[string]any{"path": path}}
}

func (Copilot) Edit(path, line, by string) Item {
	return Item{Tool: "edit", Input: map[string]any{"path": path, "old_str": line, "new_str": by}}
}

func (Copilot) Shell(line string) Item {
	return Item{Tool: "bash", Input: map[string]any{"command": line, "description": "a command"}}
}

func (Copilot) Patch(string) (Item, bool) { return Item{}, false }

func (Copilot) Together(calls ...Item) []Item { return calls }

func (Copilot) Delegate() (Item, bool) {
	return Item{Tool: "task", Input: map[string]any{"description": "a part", "prompt": subagentPrompt, "agent_type": "general-purpose",
		"name": "part", "mode": "sync"}}, true
}
