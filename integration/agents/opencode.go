package agents

import (
	"context"
	"os"
	"path/filepath"
)

// Opencode is opencode.
type Opencode struct{ executable string }

// FindOpencode returns opencode from the folder that `fetch.sh others` fills, or ErrNotFetched.
func FindOpencode() (Agent, error) {
	executable, err := find("opencode-1.18.33", "bin", "opencode")
	return Opencode{executable}, err
}

// Name is as Agent says, and so are the other methods.
func (Opencode) Name() string { return "opencode" }

func (Opencode) Hooks() string { return "opencode" }

func (o Opencode) Version(ctx context.Context) (string, error) { return version(ctx, o.executable, "") }

func (o Opencode) Run(ctx context.Context, job Job) (Output, error) {
	const model = "scripted/model"
	config := encode(object{
		"autoupdate": false, "share": "disabled", "model": model, "small_model": model,
		"permission": object{"edit": "allow", "bash": "allow", "task": "allow"},
		"provider": object{"scripted": object{
			"npm": "@ai-sdk/anthropic", "name": "scripted", "options": object{"baseURL": job.Model.URL() + "/v1", "apiKey": "none"},
			"models": object{"model": object{"name": "model", "tool_call": true, "limit": object{"context": 200000, "output": 8000}}},
		}},
	})
	folder := filepath.Join(job.Home, ".config", "opencode")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return Output{}, err
	}
	if err := os.WriteFile(filepath.Join(folder, "opencode.json"), []byte(config), 0o600); err != nil {
		return Output{}, err
	}
	env := []string{
		"OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_DEFAULT_PLUGINS=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1",
		// A folder with plugins makes it ask the registry for a package of types, which without a network it does for a minute.
		"npm_config_offline=true", "npm_config_fetch_retries=0",
	}
	return start(ctx, job, o.executable, env, "run", job.Prompt)
}

func (Opencode) Read(path string) Item {
	return Item{Tool: "read", Input: map[string]any{"filePath": path}}
}

func (Opencode) Edit(path, line, by string) Item {
	return Item{Tool: "edit", Input: map[string]any{"filePath": path, "oldString": line, "newString": by}}
}

func (Opencode) Shell(line string) Item {
	return Item{Tool: "bash", Input: map[string]any{"command": line, "description": "a command"}}
}

func (Opencode) Patch(string) (Item, bool) { return Item{}, false }

func (Opencode) Together(calls ...Item) []Item { return calls }

func (Opencode) Delegate() (Item, bool) {
	return Item{Tool: "task", Input: map[string]any{"description": "a part", "prompt": subagentPrompt, "subagent_type": "general"}}, true
}
