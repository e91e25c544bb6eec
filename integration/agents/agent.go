package agents

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// ErrNotFetched says that an agent is not on this machine. Tests skip with it.
var ErrNotFetched = errors.New("the real agent is not here: run integration/agents/fetch.sh")

// Agent is a real agent, in one of the ways in which it works.
type Agent interface {
	// Name is what people call it, and how it works where it has several ways.
	Name() string
	// Hooks is its name for `knoot init --agent` and `knoot hook`.
	Hooks() string
	// Version asks the program.
	Version(ctx context.Context) (string, error)
	// Run gives it one prompt and waits for the end of its turn. Of this process's environment it gets PATH only. The end of ctx
	// breaks it off, as Ctrl-C does. The error holds what it printed.
	Run(ctx context.Context, job Job) (Output, error)

	// What follows are calls of its tools, for a Script.

	// Read shows a file to the model.
	Read(path string) Item
	// Edit replaces the only line of a file that was read.
	Edit(path, line, by string) Item
	// Shell runs a command line.
	Shell(line string) Item
	// Patch applies a patch in the format of apply_patch; false: it has no such tool.
	Patch(text string) (Item, bool)
	// Together makes several calls at once.
	Together(calls ...Item) []Item
	// Delegate has a subagent do what the model's Subagent script says; false: it has no subagents.
	Delegate() (Item, bool)
}

// Job is what an agent is to do, and where.
type Job struct {
	Model  *Model
	Home   string // a throw-away home
	Dir    string // the directory to start in
	Prompt string
	Env    []string // beside what Run sets
	// OwnTrust leaves it to the home whether hooks are trusted, where an agent has that. Else they are.
	OwnTrust bool
}

// Output is what a run printed.
type Output struct {
	Stdout, Stderr string
}

// find returns an executable in the folder that fetch.sh fills, or ErrNotFetched.
func find(path ...string) (string, error) {
	cache := os.Getenv("KNOOT_AGENTS_CACHE")
	if cache == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", ErrNotFetched
		}
		cache = filepath.Join(home, ".cache", "knoot-agents")
	}
	executable := filepath.Join(append([]string{cache}, path...)...)
	if _, err := os.Stat(executable); err != nil {
		return "", ErrNotFetched
	}
	return executable, nil
}

// version is the word in front of which, or behind which, a program prints its name.
func version(ctx context.Context, executable, name string) (string, error) {
	home, err := os.MkdirTemp("", "agent")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(home)
	command := exec.CommandContext(ctx, executable, "--version")
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home}
	out, err := command.Output()
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(strings.Replace(string(out), name, "", 1)), nil
}

// start runs a program to its end, with a home's own folder for temporary files.
func start(ctx context.Context, job Job, executable string, env []string, args ...string) (Output, error) {
	temporary := filepath.Join(job.Home, "tmp")
	if err := os.MkdirAll(temporary, 0o700); err != nil {
		return Output{}, err
	}
	command := exec.CommandContext(ctx, executable, args...)
	command.Dir = job.Dir
	command.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + job.Home, "TMPDIR=" + temporary, "SHELL=/bin/sh", "TERM=dumb"}, env...)
	command.Env = append(command.Env, job.Env...)
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = 20 * time.Second
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	err := command.Run()
	output := Output{Stdout: stdout.String(), Stderr: stderr.String()}
	if err != nil {
		return output, fmt.Errorf("%s: %w\n%s%s", filepath.Base(executable), err, output.Stdout, output.Stderr)
	}
	return output, nil
}
