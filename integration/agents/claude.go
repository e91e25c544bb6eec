package agents

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// claudePackage is the folder that fetch.sh fills; the program calls itself 2.1.332.
const claudePackage = "claude-0.3.332"

// ErrNotFetched says that an agent is not on this machine. Tests skip with it.
var ErrNotFetched = errors.New("the real agent is not here: run integration/agents/fetch.sh")

// FindClaude returns Claude Code's executable in the folder that fetch.sh fills, or ErrNotFetched.
func FindClaude() (string, error) {
	cache := os.Getenv("KNOOT_AGENTS_CACHE")
	if cache == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", ErrNotFetched
		}
		cache = filepath.Join(home, ".cache", "knoot-agents")
	}
	executable := filepath.Join(cache, claudePackage, "claude")
	if _, err := os.Stat(executable); err != nil {
		return "", ErrNotFetched
	}
	return executable, nil
}

// Claude is one run of Claude Code.
type Claude struct {
	Executable string
	Model      *Model
	Home       string   // a throw-away home
	Dir        string   // the directory to start in
	Env        []string // beside what Run sets
	Shell      bool     // it may run commands without asking
}

// Output is what a run printed.
type Output struct {
	Stdout, Stderr string
}

// Run gives Claude Code one prompt and waits for the end of its turn. Of this process's environment it gets PATH only.
func (c Claude) Run(ctx context.Context, prompt string) (Output, error) {
	temporary := filepath.Join(c.Home, "tmp")
	if err := os.MkdirAll(temporary, 0o700); err != nil {
		return Output{}, err
	}
	args := []string{"-p", prompt, "--permission-mode", "acceptEdits"}
	if c.Shell {
		args = append(args, "--allowedTools", "Bash")
	}
	command := exec.CommandContext(ctx, c.Executable, args...)
	command.Dir = c.Dir
	command.Env = append([]string{
		"PATH=" + os.Getenv("PATH"),
		"HOME=" + c.Home,
		"TMPDIR=" + temporary,
		"CLAUDE_CODE_TMPDIR=" + temporary,
		"SHELL=/bin/sh",
		"TERM=dumb",
		"IS_SANDBOX=1", // it runs as root in a namespace of its own
		"ANTHROPIC_BASE_URL=" + c.Model.URL(),
		"ANTHROPIC_API_KEY=sk-ant-none",
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
		"DISABLE_AUTOUPDATER=1",
	}, c.Env...)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	err := command.Run()
	output := Output{Stdout: stdout.String(), Stderr: stderr.String()}
	if err != nil {
		return output, fmt.Errorf("claude: %w\n%s%s", err, output.Stdout, output.Stderr)
	}
	return output, nil
}
