package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/peterbourgon/ff/v3/ffcli"
)

func (c *console) demoCommand() *ffcli.Command {
	return command(manual{
		name: "demo", short: "Show what knoot does, with two agents in a throw-away folder",
		long: `It makes a host repository and two clones, plays the hooks of two agents through the
real executables, and checks all that it shows: it exits 1 if anything is not so.
Nothing of yours is read or changed.`,
		example: "knoot demo",
	}, newFlags("demo"), func(ctx context.Context, args []string) error {
		if err := noArguments("demo", args); err != nil {
			return err
		}
		return c.demo(ctx)
	})
}

// The demo's fact. Neither name nor text nor path may occur on the host; the files' contents do not hold them.
const (
	demoFact = "integer-cents"
	demoText = "amounts are integer cents everywhere, never floats"
	demoPath = "src/billing.js"
)

// demoTime bounds the whole demo, which takes a few seconds, and demoPatience one brief.
const (
	demoTime     = 3 * time.Minute
	demoPatience = 20 * time.Second
)

func (c *console) demo(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, demoTime)
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot tell where knoot is: %w", err)
	}
	bin := filepath.Dir(self)
	if _, err := os.Stat(filepath.Join(bin, "knoot")); err != nil {
		return fmt.Errorf("there is no knoot beside %s, and the demo plays hooks through it: install both", self)
	}
	if err := c.checkGit(ctx); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "knoot-demo-")
	if err != nil {
		return fmt.Errorf("the demo needs a throw-away folder: %w", err)
	}
	defer os.RemoveAll(dir)
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return err
	}
	s := &theatre{console: c, dir: dir, bin: bin}
	defer func() {
		if serr := s.stopDaemon(); err == nil {
			err = serr
		}
	}()
	for i, scene := range []struct {
		title string
		play  func(context.Context) error
	}{
		{"Two people share a repository. Each runs `knoot init` once.", s.setUp},
		{"Priya's agent learns something, and leaves it as a fact.", s.publish},
		{"What is on the git host: sealed bytes.", s.lookAtHost},
		{"Sam's agent opens the same file, in another clone. Nobody asks knoot.", s.briefSam},
		{"Sam changes the file, without any agent, and pushes.", s.change},
		{"Priya's next agent is told the fact, that it may be stale, and who changed the file.", s.briefPriya},
	} {
		fmt.Fprintf(c.stdout, "%s\n\n", c.bold(fmt.Sprintf("%d. %s", i+1, scene.title)))
		if err := scene.play(ctx); err != nil {
			return fmt.Errorf("the demo stopped at step %d: %w", i+1, err)
		}
		fmt.Fprintln(c.stdout)
	}
	fmt.Fprintln(c.stdout, "All of this was checked as it ran; the folder is gone.\n`knoot init` sets knoot up in a repository of yours.")
	return nil
}

// theatre is the throw-away folder with all that plays in it.
type theatre struct {
	*console
	dir, bin string
	daemon   *exec.Cmd
	commit   string // of sam's change
}

func (s *theatre) clone(person string) string { return filepath.Join(s.dir, person) }

// environment is what the demo's programs see: nothing of the person who runs it but PATH and what every program needs.
func (s *theatre) environment(more ...string) []string {
	env := []string{
		"PATH=" + s.bin + string(os.PathListSeparator) + s.getenv("PATH"),
		"HOME=" + filepath.Join(s.dir, "home"), "KNOOT_HOME=" + filepath.Join(s.dir, "keys"),
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_TERMINAL_PROMPT=0",
	}
	for _, name := range []string{"TMPDIR", "LANG", "LC_ALL", "SystemRoot"} {
		if value := s.getenv(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	return append(env, more...)
}

// run runs a program in a folder and returns what it printed.
func (s *theatre) run(ctx context.Context, dir string, stdin []byte, env []string, name string, args ...string) (string, error) {
	if name == "knoot" {
		name = filepath.Join(s.bin, name)
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env, cmd.Stdin = dir, s.environment(env...), bytes.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("`%s %s` failed: %s (%w)", filepath.Base(name), strings.Join(args, " "), oneLine(stderr.String()), err)
	}
	return string(out), nil
}

// all runs git commands in a folder, one after the other.
func (s *theatre) all(ctx context.Context, dir string, commands ...[]string) error {
	for _, args := range commands {
		if _, err := s.run(ctx, dir, nil, nil, "git", args...); err != nil {
			return err
		}
	}
	return nil
}

// show prints a command as typed, and what it answered.
func (s *theatre) show(prompt, command, answer string) {
	fmt.Fprintf(s.stdout, "   %s$ %s\n", s.dim(prompt), command)
	if answer = strings.TrimRight(answer, "\n"); answer != "" {
		fmt.Fprintln(s.stdout, indent(answer, "   "))
	}
}

func (s *theatre) checked(what string) {
	fmt.Fprintf(s.stdout, "\n%s\n", indent(strings.Join(wrap("Checked: "+what, helpWidth-3), "\n"), "   "))
}

func (s *theatre) setUp(ctx context.Context) error {
	host := filepath.Join(s.dir, "host.git")
	if err := os.Mkdir(filepath.Join(s.dir, "home"), 0o700); err != nil {
		return err
	}
	if err := s.all(ctx, s.dir, []string{"init", "-q", "--bare", "-b", "main", host}, []string{"clone", "-q", host, "priya"}); err != nil {
		return err
	}
	if err := s.startDaemon(ctx); err != nil {
		return err
	}
	priya, sam := s.clone("priya"), s.clone("sam")
	if err := s.identity(ctx, priya, "priya"); err != nil {
		return err
	}
	if err := s.write(priya, "function total(items) {\n  return items.reduce((sum, item) => sum + item.price, 0);\n}\n"); err != nil {
		return err
	}
	if err := s.initKnoot(ctx, "priya"); err != nil {
		return err
	}
	if err := s.all(ctx, priya, []string{"add", "-A"}, []string{"commit", "-qm", "Billing"}, []string{"push", "-q", "-u", "origin", "HEAD:main"},
		[]string{"clone", "-q", host, sam}); err != nil {
		return err
	}
	if err := s.identity(ctx, sam, "sam"); err != nil {
		return err
	}
	if err := s.initKnoot(ctx, "sam"); err != nil {
		return err
	}
	return nil
}

func (s *theatre) initKnoot(ctx context.Context, person string) error {
	out, err := s.run(ctx, s.clone(person), nil, nil, "knoot", "init")
	if err != nil {
		return err
	}
	verdict, _, _ := strings.Cut(out, "\n")
	s.show(person, "knoot init", verdict)
	return nil
}

func (s *theatre) identity(ctx context.Context, dir, name string) error {
	return s.all(ctx, dir, []string{"config", "user.name", name}, []string{"config", "user.email", name + "@example.com"})
}

func (s *theatre) write(clone, text string) error {
	path := filepath.Join(clone, filepath.FromSlash(demoPath))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

func (s *theatre) publish(ctx context.Context) error {
	clone, session := s.clone("priya"), "priya-monday"
	for _, p := range []payload{
		{"hook_event_name": "SessionStart", "source": "startup"},
		{"hook_event_name": "UserPromptSubmit", "prompt": "add a discount to the invoice total"},
		readOf(clone, "PreToolUse"),
	} {
		if _, err := s.hook(ctx, clone, session, p); err != nil {
			return err
		}
	}
	out, err := s.run(ctx, clone, nil, []string{"CLAUDECODE=1", "CLAUDE_CODE_SESSION_ID=" + session},
		"knoot", "remember", "--name", demoFact, "--path", demoPath, demoText)
	if err != nil {
		return err
	}
	s.show("priya's agent", fmt.Sprintf("knoot remember --name %s --path %s \\\n       %q", demoFact, demoPath, demoText), out)
	out, err = s.run(ctx, clone, nil, nil, "knoot", "sync")
	if err != nil {
		return err
	}
	s.show("priya", "knoot sync    # the daemon does this by itself, a little later", out)
	return nil
}

func (s *theatre) lookAtHost(ctx context.Context) error {
	host := filepath.Join(s.dir, "host.git")
	refs, err := s.run(ctx, host, nil, nil, "git", "for-each-ref", "--format=%(refname)", "refs/knoot/memory")
	if err != nil {
		return err
	}
	ref, _, _ := strings.Cut(refs, "\n")
	if ref == "" {
		return errors.New("the host has no memory of priya's, though `knoot sync` said so")
	}
	files, err := s.run(ctx, host, nil, nil, "git", "ls-tree", "-r", "--format=%(objectname)", ref)
	if err != nil {
		return err
	}
	object, _, _ := strings.Cut(files, "\n")
	sealed, err := s.run(ctx, host, nil, nil, "git", "cat-file", "blob", object)
	if err != nil {
		return err
	}
	s.show("host", fmt.Sprintf("git cat-file blob %s    # the fact, in the newest segment", object[:min(len(object), 12)]), "")
	middle := []byte(sealed)[len(sealed)/2:]
	dump := strings.TrimRight(hex.Dump(middle[:min(len(middle), 64)]), "\n")
	fmt.Fprintf(s.stdout, "   ...\n%s\n   ... %d bytes\n", indent(dump, "   "), len(sealed))
	objects, err := s.run(ctx, host, nil, nil, "git", "cat-file", "--batch-all-objects", "--batch")
	if err != nil {
		return err
	}
	for what, secret := range map[string]string{"text": demoText, "name": demoFact, "path": demoPath} {
		if strings.Contains(objects, secret) {
			return fmt.Errorf("the host holds the fact's %s (%q) in the clear", what, secret)
		}
	}
	s.checked("neither the fact's text nor its name nor its path is in any object there.")
	return nil
}

func (s *theatre) briefSam(ctx context.Context) error {
	clone, session := s.clone("sam"), "sam-monday"
	if _, err := s.run(ctx, clone, nil, nil, "knoot", "sync"); err != nil {
		return err
	}
	if _, err := s.opens(ctx, "sam", clone, session, demoText, demoFact, "priya's agent"); err != nil {
		return err
	}
	again, err := s.hook(ctx, clone, session, readOf(clone, "PreToolUse"))
	if err != nil {
		return err
	}
	if strings.Contains(again, demoText) {
		return errors.New("the same agent was told the fact twice")
	}
	s.checked("it came with the call that opens the file, once; the second time says nothing.")
	return nil
}

func (s *theatre) change(ctx context.Context) error {
	clone := s.clone("sam")
	if err := s.write(clone, "function total(items, currency) {\n  return items.reduce((sum, item) => sum + item.price[currency], 0);\n}\n"); err != nil {
		return err
	}
	if err := s.all(ctx, clone, []string{"commit", "-qam", "Prices in several currencies"}, []string{"push", "-q"}); err != nil {
		return err
	}
	out, err := s.run(ctx, clone, nil, nil, "git", "log", "-1", "--format=%h %an: %s")
	if err != nil {
		return err
	}
	s.show("sam", "git commit -am \"Prices in several currencies\" && git push", out)
	s.commit, _, _ = strings.Cut(out, " ")
	clone = s.clone("priya")
	if err := s.all(ctx, clone, []string{"pull", "-q"}); err != nil {
		return err
	}
	s.show("priya", "git pull", "")
	return nil
}

func (s *theatre) briefPriya(ctx context.Context) error {
	_, err := s.opens(ctx, "priya", s.clone("priya"), "priya-tuesday",
		demoText, "possibly stale", "sam changed "+demoPath, s.commit[:min(len(s.commit), 7)])
	return err
}

// opens plays a new session whose agent opens the file, and returns what it was told. A hook says nothing rather than make
// its agent wait, so on a busy machine the agent may have to read the file again before it has been told all of wanted.
func (s *theatre) opens(ctx context.Context, person, clone, session string, wanted ...string) (string, error) {
	told := ""
	play := func(p payload) error {
		text, err := s.hook(ctx, clone, session, p)
		if err == nil && text != "" {
			fmt.Fprintf(s.stdout, "   %s\n%s\n", s.dim(fmt.Sprintf("%s's agent, at %s, reads:", person, p["hook_event_name"])), quoted(text))
			told += text + "\n"
		}
		return err
	}
	for _, p := range []payload{
		{"hook_event_name": "SessionStart", "source": "startup"},
		{"hook_event_name": "UserPromptSubmit", "prompt": "make the invoice total right"},
		readOf(clone, "PreToolUse"),
	} {
		if err := play(p); err != nil {
			return "", err
		}
	}
	patience, cancel := context.WithTimeout(ctx, demoPatience)
	defer cancel()
	for lacking(told, wanted) != "" {
		select {
		case <-patience.Done():
			return "", fmt.Errorf("the agent was not told %q, but %q", lacking(told, wanted), told)
		case <-time.After(200 * time.Millisecond):
		}
		if err := play(readOf(clone, "PostToolUse")); err != nil {
			return "", err
		}
	}
	return told, nil
}

// quoted sets a text off from the demo's own, in lines that fit.
func quoted(text string) string {
	var lines []string
	for _, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		hang := strings.Repeat(" ", len(line)-len(strings.TrimLeft(line, " -")))
		parts := wrap(line, helpWidth-5-len(hang))
		for i := range parts {
			if i > 0 || strings.HasPrefix(line, " ") {
				parts[i] = hang + parts[i]
			}
		}
		lines = append(lines, parts...)
	}
	return indent(strings.Join(lines, "\n"), "   | ")
}

// lacking returns the first wanted text that is not in told, "" where all are.
func lacking(told string, wanted []string) string {
	for _, want := range wanted {
		if !strings.Contains(told, want) {
			return want
		}
	}
	return ""
}

// payload is what an agent gives to a hook, as Claude Code does.
type payload map[string]any

func readOf(clone, event string) payload {
	return payload{
		"hook_event_name": event, "tool_name": "Read", "tool_use_id": "toolu_01",
		"tool_input": map[string]string{"file_path": filepath.Join(clone, filepath.FromSlash(demoPath))},
	}
}

// hook plays one payload through the installed executable, and returns the context that the agent's model would get.
func (s *theatre) hook(ctx context.Context, clone, session string, p payload) (string, error) {
	p["session_id"], p["cwd"] = session, clone
	p["transcript_path"] = filepath.Join(s.dir, "home", session+".jsonl")
	text, err := json.Marshal(p)
	if err != nil {
		return "", err
	}
	out, err := s.run(ctx, clone, append(text, '\n'), []string{"CLAUDECODE=1", "CLAUDE_CODE_SESSION_ID=" + session}, "knoot", "hook", "claude")
	if err != nil || out == "" {
		return "", err
	}
	var answer struct {
		HookSpecificOutput struct {
			AdditionalContext string `json:"additionalContext"`
		} `json:"hookSpecificOutput"`
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		return "", fmt.Errorf("the hook printed %q, which no agent understands (%w)", out, err)
	}
	return answer.HookSpecificOutput.AdditionalContext, nil
}

// startDaemon starts a daemon of the stage's own, and waits until it listens.
func (s *theatre) startDaemon(ctx context.Context) error {
	s.daemon = exec.Command(filepath.Join(s.bin, "knoot"), "daemon")
	s.daemon.Dir, s.daemon.Env = s.dir, s.environment()
	var stderr bytes.Buffer
	s.daemon.Stderr = &stderr
	out, err := s.daemon.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.daemon.Start(); err != nil {
		s.daemon = nil
		return fmt.Errorf("the daemon does not start: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = s.daemon.Process.Kill() })
	defer stop()
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		_ = s.daemon.Wait()
		s.daemon = nil
		return fmt.Errorf("the daemon does not start: %s", oneLine(stderr.String()))
	}
	return nil
}

func (s *theatre) stopDaemon() error {
	if s.daemon == nil {
		return nil
	}
	if err := s.daemon.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	if err := s.daemon.Wait(); err != nil {
		return fmt.Errorf("the daemon did not end well: %w", err)
	}
	return nil
}
