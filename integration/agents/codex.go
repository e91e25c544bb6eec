package agents

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Codex is Codex CLI. Which tools it offers depends on the model.
type Codex struct {
	executable string
	codeMode   bool // the model gets one tool, which runs JavaScript, whose functions are the tools
}

// FindCodex returns Codex from the folder that fetch.sh fills, or ErrNotFetched.
func FindCodex() (Agent, error) { return findCodex(false) }

// FindCodexInCodeMode is FindCodex with a newer model.
func FindCodexInCodeMode() (Agent, error) { return findCodex(true) }

func findCodex(codeMode bool) (Agent, error) {
	executable, err := find("codex-0.171.0-linux-x64", "vendor", "x86_64-unknown-linux-musl", "bin", "codex")
	return Codex{executable, codeMode}, err
}

// Name is as Agent says, and so are the other methods.
func (c Codex) Name() string {
	if c.codeMode {
		return "Codex, code mode"
	}
	return "Codex"
}

func (Codex) Hooks() string { return "codex" }

func (c Codex) Version(ctx context.Context) (string, error) {
	return version(ctx, c.executable, "codex-cli ")
}

// Configure writes the configuration of a home in which the model is a scripted one, and the project at dir is trusted.
func (c Codex) Configure(home, model, dir string) error {
	config := fmt.Sprintf(`model_provider = "script"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.script]
name = "script"
base_url = %q
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
[projects.%q]
trust_level = "trusted"
`, model+"/v1", dir)
	if err := os.MkdirAll(filepath.Join(home, ".codex"), 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(home, ".codex", "config.toml"), []byte(config), 0o600)
}

func (c Codex) Run(ctx context.Context, job Job) (Output, error) {
	args := []string{"exec", "--dangerously-bypass-approvals-and-sandbox", "-m", "gpt-5.5"}
	if c.codeMode {
		args[len(args)-1] = "gpt-6.2-sol"
	}
	if !job.OwnTrust {
		if err := c.Configure(job.Home, job.Model.URL(), job.Dir); err != nil {
			return Output{}, err
		}
		args = append(args, "--dangerously-bypass-hook-trust")
	}
	return start(ctx, job, c.executable, []string{"CODEX_HOME=" + filepath.Join(job.Home, ".codex")}, append(args, job.Prompt)...)
}

func (c Codex) Read(path string) Item { return c.Shell("cat '" + path + "'") }

func (c Codex) Edit(path, line, by string) Item {
	item, _ := c.Patch("*** Begin Patch\n*** Update File: " + path + "\n@@\n-" + line + "\n+" + by + "\n*** End Patch\n")
	return item
}

func (c Codex) Shell(line string) Item {
	if c.codeMode {
		return c.script("exec_command", map[string]any{"cmd": line})
	}
	return Item{Tool: "exec_command", Input: map[string]any{"cmd": line}}
}

func (c Codex) Patch(text string) (Item, bool) {
	if c.codeMode {
		return c.script("apply_patch", text), true
	}
	return Item{Tool: "apply_patch", Input: text}, true
}

func (c Codex) Together(calls ...Item) []Item {
	if !c.codeMode {
		return calls
	}
	var scripts []string
	for _, call := range calls {
		scripts = append(scripts, fmt.Sprintf("(async () => { %s })()", call.Input))
	}
	return []Item{{Tool: "exec", Input: "await Promise.all([" + strings.Join(scripts, ", ") + "])"}}
}

// Delegate is what only newer models can.
func (c Codex) Delegate() (Item, bool) {
	return Item{Namespace: "collaboration", Tool: "spawn_agent", Input: map[string]any{"task_name": "part", "message": subagentPrompt, "fork_turns": "none"}}, c.codeMode
}

// script calls a tool from JavaScript, and shows the model what it returns or why it fails.
func (c Codex) script(tool string, argument any) Item {
	data, err := json.Marshal(argument)
	if err != nil {
		panic(err) // texts always encode
	}
	return Item{Tool: "exec", Input: fmt.Sprintf("try { text(await tools.%s(%s)) } catch (e) { text(String(e)) }", tool, data)}
}

// Program is its executable.
func (c Codex) Program() string { return c.executable }

// Trust does in a home what its person does with /hooks: it trusts all hooks that dir has.
func (c Codex) Trust(ctx context.Context, home, dir string) error {
	server := exec.CommandContext(ctx, c.executable, "app-server")
	server.Dir = dir
	server.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "CODEX_HOME=" + filepath.Join(home, ".codex")}
	in, err := server.StdinPipe()
	if err != nil {
		return err
	}
	out, err := server.StdoutPipe()
	if err != nil {
		return err
	}
	if err := server.Start(); err != nil {
		return err
	}
	for _, request := range []any{
		object{"id": 1, "method": "initialize", "params": object{"clientInfo": object{"name": "harness", "version": "1"}}},
		object{"method": "initialized"},
		object{"id": 2, "method": "hooks/list", "params": object{"cwds": []string{dir}}},
	} {
		if err := json.NewEncoder(in).Encode(request); err != nil {
			return err
		}
	}
	var answer struct {
		ID     int `json:"id"`
		Result struct {
			Data []struct {
				Hooks []struct{ Key, CurrentHash string } `json:"hooks"`
			} `json:"data"`
		} `json:"result"`
	}
	for answers := json.NewDecoder(out); answer.ID != 2; {
		if err := answers.Decode(&answer); err != nil {
			return err
		}
	}
	_ = in.Close() // which ends it
	if err := server.Wait(); err != nil {
		return err
	}
	config, err := os.OpenFile(filepath.Join(home, ".codex", "config.toml"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	for _, each := range answer.Result.Data {
		for _, hook := range each.Hooks {
			fmt.Fprintf(config, "[hooks.state.%q]\ntrusted_hash = %q\n", hook.Key, hook.CurrentHash)
		}
	}
	return config.Close()
}
