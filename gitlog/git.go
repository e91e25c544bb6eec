package gitlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ErrNoGit is returned where no git can be run.
var ErrNoGit = errors.New("git was not found on PATH: install git 2.34 or newer")

// Older gits lack `fetch --stdin` beside negative refspecs, `rev-parse --path-format` or transactions in update-ref that work.
const minGitMajor, minGitMinor = 2, 34

// GitVersion returns the version of the person's git, such as "2.39.5". The error is ErrNoGit where there is none, and a
// sentence naming both versions where it is older than 2.34.
func GitVersion(ctx context.Context) (string, error) {
	out, err := git{}.output(ctx, "version")
	if err != nil {
		return "", err
	}
	return parseGitVersion(out)
}

func parseGitVersion(out string) (string, error) {
	fields := strings.Fields(out)
	if len(fields) < 3 || fields[0] != "git" {
		return "", fmt.Errorf("`git version` answered %q, which names no version: install git %d.%d or newer", out, minGitMajor, minGitMinor)
	}
	version := fields[2]
	parts := strings.SplitN(version, ".", 3)
	var number [2]int
	for i := range number {
		if i >= len(parts) {
			break
		}
		n, err := strconv.Atoi(parts[i])
		if err != nil {
			return "", fmt.Errorf("`git version` answered %q, which names no version: install git %d.%d or newer", out, minGitMajor, minGitMinor)
		}
		number[i] = n
	}
	if number[0] < minGitMajor || number[0] == minGitMajor && number[1] < minGitMinor {
		return version, fmt.Errorf("git %s is too old: install git %d.%d or newer", version, minGitMajor, minGitMinor)
	}
	return version, nil
}

// gitMode says whom a git command may talk to.
type gitMode int

const (
	gitLocal      gitMode = iota // nobody: no network, not even to complete a partial clone
	gitBackground                // the host, but no person: whatever would ask fails instead
	gitForeground                // the host, and the person at the terminal
)

// git runs the person's own git: their credential helpers, ssh configuration, proxies and insteadOf count, their hooks do not
// (a reference-transaction or pre-push hook is about their work, not about knoot's refs).
type git struct {
	dir    string // where it runs; "": here
	gitDir string // given to git as GIT_DIR; "": git looks for the repository from dir upwards
	mode   gitMode
	config []string // further "key=value", for this command alone
	trace  *os.File // gets git's trace of the packets that it exchanges with the host; nil: nobody does
}

// git is for refs, objects, configuration and the network of the whole clone.
func (r *Repository) git() git { return git{dir: r.CommonDir, gitDir: r.CommonDir} }

func (g git) with(mode gitMode) git {
	g.mode = mode
	return g
}

// networkTimeout ends a network command that got stuck where nobody is there to interrupt it.
const networkTimeout = 2 * time.Minute

func (g git) command(ctx context.Context, args ...string) *exec.Cmd {
	base := []string{"-c", "core.hooksPath=/dev/null", "-c", "core.logAllRefUpdates=false", "-c", "core.fsync=reference"}
	for _, setting := range g.config {
		base = append(base, "-c", setting)
	}
	cmd := exec.CommandContext(ctx, "git", append(base, args...)...)
	cmd.Dir = g.dir
	cmd.Env = g.environment(os.Environ())
	cmd.WaitDelay = 2 * time.Second
	if g.trace != nil {
		cmd.ExtraFiles = []*os.File{g.trace} // descriptor 3
		cmd.Env = append(cmd.Env, "GIT_TRACE_PACKET=3")
	}
	if g.mode == gitBackground {
		// Without a controlling terminal neither git nor ssh can ask on /dev/tty, and the session's id is a process group
		// that ends git's ssh and helpers with it.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	}
	return cmd
}

// droppedVariables point git at another repository, index or object directory than the one we mean (git sets them for its
// hooks, and we may be run by one), or put other text than errors on stderr. GIT_CONFIG_COUNT stays: people give credentials in it.
var droppedVariables = map[string]bool{
	"GIT_DIR": true, "GIT_WORK_TREE": true, "GIT_IMPLICIT_WORK_TREE": true, "GIT_COMMON_DIR": true, "GIT_INDEX_FILE": true,
	"GIT_OBJECT_DIRECTORY": true, "GIT_ALTERNATE_OBJECT_DIRECTORIES": true, "GIT_QUARANTINE_PATH": true, "GIT_NAMESPACE": true,
	"GIT_PREFIX": true, "GIT_GRAFT_FILE": true, "GIT_SHALLOW_FILE": true, "GIT_REPLACE_REF_BASE": true, "GIT_CONFIG": true,
	"GIT_CONFIG_PARAMETERS": true, "GIT_INTERNAL_SUPER_PREFIX": true, "GIT_DEFAULT_HASH": true, "GIT_LITERAL_PATHSPECS": true,
	"GIT_GLOB_PATHSPECS": true, "GIT_NOGLOB_PATHSPECS": true, "GIT_ICASE_PATHSPECS": true, "GIT_CURL_VERBOSE": true,
	"GIT_REDIRECT_STDERR": true, "GIT_REDIRECT_STDOUT": true, "GIT_REDIRECT_STDIN": true, "LANGUAGE": true,
}

func (g git) environment(own []string) []string {
	env := make([]string, 0, len(own)+10)
	for _, pair := range own {
		name, _, _ := strings.Cut(pair, "=")
		if droppedVariables[name] || strings.HasPrefix(name, "GIT_TRACE") {
			continue
		}
		env = append(env, pair)
	}
	env = append(env, "LC_ALL=C", "GIT_NO_REPLACE_OBJECTS=1", "GIT_OPTIONAL_LOCKS=0")
	if g.gitDir != "" {
		env = append(env, "GIT_DIR="+g.gitDir)
	}
	switch g.mode {
	case gitLocal:
		// The second is for gits before 2.45, which know no other way to keep a missing object from being fetched.
		env = append(env, "GIT_NO_LAZY_FETCH=1", "GIT_ALLOW_PROTOCOL=none", "GIT_TERMINAL_PROMPT=0")
	case gitBackground:
		// An empty GIT_ASKPASS ends git's search for a program that asks.
		env = append(env, "GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=", "SSH_ASKPASS=", "SSH_ASKPASS_REQUIRE=never", "GCM_INTERACTIVE=never")
	}
	return env
}

// output runs git and returns what it printed, without the last line's end.
func (g git) output(ctx context.Context, args ...string) (string, error) {
	return g.runText(ctx, nil, args...)
}

// runText is output with input on git's stdin.
func (g git) runText(ctx context.Context, input []byte, args ...string) (string, error) {
	out, _, err := g.run(ctx, input, args...)
	return strings.TrimSuffix(string(out), "\n"), err
}

// run runs git with input on its stdin. What it printed is returned beside an error too: some commands say on stdout what
// they did before they failed. The error is a *gitError where git ran and failed.
func (g git) run(ctx context.Context, input []byte, args ...string) (stdout []byte, stderr string, err error) {
	if input == nil {
		return g.runFrom(ctx, nil, args...)
	}
	return g.runFrom(ctx, bytes.NewReader(input), args...)
}

// runFrom is run with an input that need not be known when git starts; nil: none.
func (g git) runFrom(ctx context.Context, input io.Reader, args ...string) (stdout []byte, stderr string, err error) {
	cmd := g.command(ctx, args...)
	var out bytes.Buffer
	complaint := &cappedBuffer{max: 64 << 10}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = input, &out, complaint
	if err = cmd.Run(); errors.Is(err, exec.ErrWaitDelay) && ctx.Err() == nil {
		// git ended well, and what it said was read. What it started goes on with its stderr: ssh with a shared connection
		// (ControlPersist), a cache of credentials.
		err = nil
	}
	stderr = redact(complaint.String())
	return out.Bytes(), stderr, explainRun(ctx, args, stderr, err)
}

func explainRun(ctx context.Context, args []string, stderr string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, exec.ErrNotFound) {
		return ErrNoGit
	}
	if ctx.Err() != nil {
		return fmt.Errorf("git %s was stopped: %w", commandName(args), context.Cause(ctx))
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return &gitError{command: commandName(args), exit: exit.ExitCode(), stderr: stderr}
	}
	return fmt.Errorf("git %s could not be run: %w", commandName(args), err)
}

// commandName finds the subcommand behind options such as `-c key=value`.
func commandName(args []string) string {
	for i := 0; i < len(args); i++ {
		if args[i] == "-c" || args[i] == "-C" {
			i++
			continue
		}
		if !strings.HasPrefix(args[i], "-") {
			return args[i]
		}
	}
	return strings.Join(args, " ")
}

// gitError is a git command that ran and failed.
type gitError struct {
	command string
	exit    int
	stderr  string
}

func (e *gitError) Error() string {
	return fmt.Sprintf("git %s failed: %s", e.command, complaint(e.stderr, e.exit))
}

// complaint picks the line of stderr that says what is wrong: the last fatal one, else the first error, else the last line.
func complaint(stderr string, exit int) string {
	var fatal, first, last string
	for line := range strings.SplitSeq(stderr, "\n") {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "hint:") || strings.HasPrefix(line, "warning:"):
		case strings.HasPrefix(line, "fatal: "):
			fatal = strings.TrimPrefix(line, "fatal: ")
		case strings.HasSuffix(fatal, ":"):
			fatal += " " + line // what the sentence was about
		case strings.HasPrefix(line, "error: "):
			if first == "" {
				first = strings.TrimPrefix(line, "error: ")
			}
		default:
			last = line
		}
	}
	for _, text := range []string{fatal, first, last} {
		if text != "" {
			return text
		}
	}
	return "exit status " + strconv.Itoa(exit)
}

// A password in a remote's address must reach neither a log nor a screen.
var credentialInURL = regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://)([^/@\s:']*)(:[^/@\s']*)?@`)

func redact(text string) string {
	return credentialInURL.ReplaceAllStringFunc(text, func(found string) string {
		part := credentialInURL.FindStringSubmatch(found)
		if strings.HasPrefix(part[1], "http") {
			return part[1] // a token may stand where the name does
		}
		return part[1] + part[2] + "@"
	})
}

// laterText is a text that is made when it is first read.
type laterText struct {
	text func() string
	made *strings.Reader
}

func (l *laterText) Read(p []byte) (int, error) {
	if l.made == nil {
		l.made = strings.NewReader(l.text())
	}
	return l.made.Read(p)
}

// cappedBuffer keeps the first max bytes and swallows the rest, so that a babbling host cannot fill the memory.
type cappedBuffer struct {
	bytes.Buffer
	max int
}

func (b *cappedBuffer) Write(p []byte) (int, error) {
	if room := b.max - b.Len(); room > 0 {
		b.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

var _ io.Writer = (*cappedBuffer)(nil)
