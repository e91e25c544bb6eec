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
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/peterbourgon/ff/v3/ffcli"
)

func (c *console) demoCommand() *ffcli.Command {
	flags := newFlags("demo")
	withRelay := flags.Bool("relay", false, "two machines and a relay, which is killed in the middle")
	return command(manual{
		name: "demo", usage: "[--relay]", short: "Show what knoot does, with three people in a throw-away folder",
		long: `It makes a host repository and three clones, each of a person with keys of their own,
plays the hooks of agents through the real executables, has knoot run two stand-ins for agents, and checks all that it shows:
it exits 1 if anything is not so. Nothing of yours is read or changed.`,
		example: "knoot demo\nknoot demo --relay",
	}, flags, func(ctx context.Context, args []string) error {
		if config := c.getenv("KNOOT_MCP_CONFIG"); config != "" && slices.Equal(args, []string{standInWord}) {
			return c.standIn(ctx, config)
		}
		if err := noArguments("demo", args); err != nil {
			return err
		}
		return c.demo(ctx, *withRelay)
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
	demoTime     = 4 * time.Minute
	demoPatience = 20 * time.Second
)

// scene is a part of the demo.
type scene struct {
	title string
	play  func(context.Context) error
}

func (c *console) demo(ctx context.Context, withRelay bool) (err error) {
	ctx, cancel := context.WithTimeout(ctx, demoTime)
	defer cancel()
	ctx, unheard := signal.NotifyContext(ctx, syscall.SIGHUP) // the terminal is closed
	defer unheard()
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
		if serr := s.stop(); err == nil {
			err = serr
		}
	}()
	scenes, next := s.scenes(), "`knoot init` sets knoot up in a repository of yours."
	if withRelay {
		scenes, next = s.relayScenes(), "docs/self-hosting.md is the walk-through for a relay of your own."
	}
	for i, scene := range scenes {
		fmt.Fprintf(c.stdout, "%s\n\n", c.bold(strings.Join(wrap(fmt.Sprintf("%d. %s", i+1, scene.title), helpWidth), "\n   ")))
		if err := scene.play(ctx); err != nil {
			if errors.Is(ctx.Err(), context.Canceled) {
				err = errors.New("it was interrupted, and what ran has ended") // whatever did not come because of that
			}
			return fmt.Errorf("the demo stopped at step %d: %w", i+1, err)
		}
		fmt.Fprintln(c.stdout)
	}
	fmt.Fprintf(c.stdout, "All of this was checked as it ran; the folder is gone.\n%s\n", next)
	return nil
}

// scenes are those of a team that has git alone.
func (s *theatre) scenes() []scene {
	return []scene{
		{"Priya begins a team with `knoot init`. Sam, on another machine, asks to join it.", s.setUp},
		{"Priya's agent learns something, and leaves it as a fact.", s.publish},
		{"What is on the git host: sealed bytes.", s.lookAtHost},
		{"Sam's agent opens the same file, in another clone. Nobody asks knoot.", s.briefSam},
		{"Sam changes the file, without any agent, and pushes.", s.change},
		{"Priya's next agent is told the fact, that it may be stale, and who changed the file.", s.briefPriya},
		{"Two of Priya's agents are about to change one file. The second is refused, and told when it is free.", s.contend},
		{"Two agents that knoot runs share work out: a plan, a nudge, a message.", s.shareOut},
		{"Ash joins by a key, reads, and leaves. What is written after stays closed to Ash's keys.", s.leave},
	}
}

// theatre is the throw-away folder with all that plays in it.
type theatre struct {
	*console
	dir, bin string
	daemons  []*exec.Cmd
	commit   string      // of sam's change
	relay    *stageRelay // nil: there is none
	calls    int         // of tools, so far
	agent    string      // whose hooks are played, where it has a name of its own
	process  int         // in which sessions run, as far as hooks say: else it were the agent that plays the demo, whose commands are no person's
}

func (s *theatre) clone(person string) string { return filepath.Join(s.dir, person) }

// environment is what the programs of one of the demo's people see: keys of their own, and nothing of the person who runs it but
// PATH and what every program needs.
func (s *theatre) environment(person string, more ...string) []string {
	env := []string{
		"PATH=" + s.bin + string(os.PathListSeparator) + s.getenv("PATH"),
		"HOME=" + filepath.Join(s.dir, "home"), "KNOOT_HOME=" + filepath.Join(s.dir, "keys", person),
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_TERMINAL_PROMPT=0",
	}
	for _, name := range []string{"TMPDIR", "LANG", "LC_ALL", "SystemRoot"} {
		if value := s.getenv(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	return append(env, more...)
}

// run runs a program in a folder, which is named after whose it is, and returns what it printed.
func (s *theatre) run(ctx context.Context, dir string, stdin []byte, env []string, name string, args ...string) (string, error) {
	out, err := s.tryRun(ctx, dir, stdin, env, name, args...)
	if err != nil {
		return "", err
	}
	return out, nil
}

// tryRun is run for a program that may fail: what it printed counts all the same.
func (s *theatre) tryRun(ctx context.Context, dir string, stdin []byte, env []string, name string, args ...string) (string, error) {
	if name == "knoot" {
		name = filepath.Join(s.bin, name)
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env, cmd.Stdin = dir, s.environment(filepath.Base(dir), env...), bytes.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("`%s %s` failed: %s (%w)", filepath.Base(name), strings.Join(args, " "), oneLine(stderr.String()), err)
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
	priya, sam := s.clone("priya"), s.clone("sam")
	if err := s.startDaemon(ctx, "priya"); err != nil {
		return err
	}
	if err := s.identity(ctx, priya, "priya"); err != nil {
		return err
	}
	if err := s.write(priya, "function total(items) {\n  return items.reduce((sum, item) => sum + item.price, 0);\n}\n"); err != nil {
		return err
	}
	if err := s.initKnoot(ctx, "priya"); err != nil {
		return err
	}
	if err := s.all(ctx, priya, []string{"add", "-A"}, []string{"commit", "-qm", "Billing"}, []string{"push", "-q", "-u", "origin", "HEAD:main"}); err != nil {
		return err
	}
	if err := s.comes(ctx, "sam"); err != nil {
		return err
	}
	asked, err := s.run(ctx, sam, nil, nil, "knoot", "join", "--no-wait")
	if err != nil {
		return err
	}
	var words, id string
	for line := range strings.Lines(asked) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == "words" {
			words = fields[1]
		}
		if _, request, ok := strings.Cut(line, "--request "); ok {
			id = strings.TrimSpace(request)
		}
	}
	if words == "" || id == "" {
		return fmt.Errorf("`knoot join` printed no words to compare: %q", asked)
	}
	s.show("sam", "knoot join", "You ask to be let into the team.\n  words   "+words)
	if _, err := s.run(ctx, priya, nil, nil, "knoot", "sync"); err != nil {
		return err
	}
	// Status exits 1 as long as no hook ran; the words are what counts.
	status, _ := s.tryRun(ctx, priya, nil, nil, "knoot", "status", "--json")
	if !strings.Contains(status, words) {
		return fmt.Errorf("priya's `knoot status` does not show the words %s", words)
	}
	out, err := s.run(ctx, priya, nil, nil, "knoot", "member", "add", "sam@example.com", "--request", id)
	if err != nil {
		return err
	}
	s.show("priya", "knoot member add sam@example.com --request "+id+"    # same words", out)
	if _, err := s.run(ctx, sam, nil, nil, "knoot", "join"); err != nil {
		return err
	}
	return s.startDaemon(ctx, "sam")
}

func (s *theatre) initKnoot(ctx context.Context, person string) error {
	args := []string{"init"}
	if s.relay != nil {
		args = append(args, "--relay", s.relay.address, "--relay-key", s.relay.key)
	}
	out, err := s.run(ctx, s.clone(person), nil, nil, "knoot", args...)
	if err != nil {
		return err
	}
	verdict, _, _ := strings.Cut(out, "\n")
	s.show(person, "knoot "+strings.Join(args, " "), verdict)
	return nil
}

// comes makes the clone of another person.
func (s *theatre) comes(ctx context.Context, person string) error {
	if err := s.all(ctx, s.dir, []string{"clone", "-q", filepath.Join(s.dir, "host.git"), person}); err != nil {
		return err
	}
	return s.identity(ctx, s.clone(person), person)
}

// What is written once ash has left.
const (
	demoLater     = "price-list"
	demoLaterText = "the new price list counts from the first of May"
)

func (s *theatre) leave(ctx context.Context) error {
	priya, ash := s.clone("priya"), s.clone("ash")
	if err := s.comes(ctx, "ash"); err != nil {
		return err
	}
	out, err := s.run(ctx, priya, nil, nil, "knoot", "member", "add", "ash@example.com", "--json")
	if err != nil {
		return err
	}
	var invitation keyAnswer
	if err := json.Unmarshal([]byte(out), &invitation); err != nil {
		return fmt.Errorf("`knoot member add --json` printed %q: %w", out, err)
	}
	s.show("priya", "knoot member add ash@example.com", invitation.Key[:min(len(invitation.Key), 40)]+"...")
	if _, err := s.run(ctx, ash, nil, nil, "knoot", "join", invitation.Key); err != nil {
		return err
	}
	s.show("ash", "knoot join "+invitation.Key[:min(len(invitation.Key), 20)]+"...", "")
	if out, err = s.run(ctx, ash, nil, nil, "knoot", "recall"); err != nil {
		return err
	}
	s.show("ash", "knoot recall", out)
	if !strings.Contains(oneLine(out), demoText) {
		return fmt.Errorf("ash has joined and cannot read the history: %q", out)
	}
	if out, err = s.run(ctx, priya, nil, nil, "knoot", "member", "rm", "ash@example.com"); err != nil {
		return err
	}
	s.show("priya", "knoot member rm ash@example.com", out)
	if _, err := s.run(ctx, priya, nil, nil, "knoot", "remember", "--name", demoLater, "--path", demoPath, demoLaterText); err != nil {
		return err
	}
	s.show("priya", fmt.Sprintf("knoot remember --name %s --path %s \\\n       %q", demoLater, demoPath, demoLaterText), "")
	if _, err := s.run(ctx, priya, nil, nil, "knoot", "sync"); err != nil {
		return err
	}

	// Ash takes a copy of all that the host has.
	if err := s.all(ctx, s.dir, []string{"clone", "-q", "--mirror", filepath.Join(s.dir, "host.git"), "copy.git"}); err != nil {
		return err
	}
	if err := s.all(ctx, ash, []string{"remote", "set-url", "origin", filepath.Join(s.dir, "copy.git")}); err != nil {
		return err
	}
	if _, err := s.run(ctx, ash, nil, nil, "knoot", "trust"); err != nil {
		return err
	}
	_, _ = s.tryRun(ctx, ash, nil, nil, "knoot", "sync") // it fetches, and says that nothing is written any more
	later, err := s.run(ctx, s.dir, nil, nil, "git", "-C", priya, "for-each-ref", "--format=%(objectname)", "refs/knoot/memory")
	if err != nil {
		return err
	}
	for tip := range strings.Lines(later) {
		if _, err := s.run(ctx, ash, nil, nil, "git", "cat-file", "-e", strings.TrimSpace(tip)); err != nil {
			return fmt.Errorf("ash's copy lacks what priya wrote last, so that nothing would be shown: %w", err)
		}
	}
	for _, command := range []string{"recall", "export"} {
		if out, err = s.run(ctx, ash, nil, nil, "knoot", command); err != nil {
			return err
		}
		out = oneLine(out)
		if !strings.Contains(out, demoText) {
			return fmt.Errorf("what ash could read before is gone: %q", out)
		}
		if strings.Contains(out, demoLater) || strings.Contains(out, demoLaterText) {
			return errors.New("ash's old keys opened what was written after the removal")
		}
	}
	s.checked("with ash's keys and a full copy of the host the later fact does not open; the earlier one does.")
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
	fmt.Fprintf(s.stdout, "  ...\n%s\n  ... %d bytes\n", indent(dump, "  "), len(sealed)) // as wide as a terminal
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

// begins plays the start of a session and its first prompt.
func (s *theatre) begins(ctx context.Context, clone, session, prompt string) error {
	for _, p := range []payload{
		{"hook_event_name": "SessionStart", "source": "startup"},
		{"hook_event_name": "UserPromptSubmit", "prompt": prompt},
	} {
		if _, err := s.hook(ctx, clone, session, p); err != nil {
			return err
		}
	}
	return nil
}

// heard is what a hook's output tells the model, and the person.
type heard struct {
	Context string // what is added to the model's context
	Denial  string // why the call is refused
	Person  string // the line that the person sees
}

// hook plays one payload through the installed executable, and returns the context that the agent's model would get.
func (s *theatre) hook(ctx context.Context, clone, session string, p payload) (string, error) {
	h, err := s.answerOf(ctx, clone, session, p)
	return h.Context, err
}

func (s *theatre) answerOf(ctx context.Context, clone, session string, p payload) (h heard, err error) {
	p["session_id"], p["cwd"] = session, clone
	p["transcript_path"] = filepath.Join(s.dir, "home", session+".jsonl")
	text, err := json.Marshal(p)
	if err != nil {
		return h, err
	}
	env := []string{"CLAUDECODE=1", "CLAUDE_CODE_SESSION_ID=" + session, fmt.Sprintf("CLAUDE_PID=%d", s.process)}
	if s.agent != "" {
		env = append(env, "KNOOT_AGENT="+s.agent)
	}
	out, err := s.run(ctx, clone, append(text, '\n'), env, "knoot", "hook", "claude")
	if err != nil || out == "" {
		return h, err
	}
	var answer struct {
		SystemMessage      string `json:"systemMessage"`
		HookSpecificOutput struct {
			AdditionalContext        string `json:"additionalContext"`
			PermissionDecision       string `json:"permissionDecision"`
			PermissionDecisionReason string `json:"permissionDecisionReason"`
		} `json:"hookSpecificOutput"`
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		return h, fmt.Errorf("the hook printed %q, which no agent understands (%w)", out, err)
	}
	specific := answer.HookSpecificOutput
	h = heard{Context: specific.AdditionalContext, Person: answer.SystemMessage}
	if specific.PermissionDecision == "deny" {
		h.Denial = specific.PermissionDecisionReason
	}
	return h, nil
}

// startDaemon starts a daemon of one of the people, and waits until it listens.
func (s *theatre) startDaemon(ctx context.Context, person string) error {
	// The port that agents are told of is that of whoever plays the demo. Hooks start no daemon that nobody would end.
	config := fmt.Sprintf("[daemon]\nautostart = false\n[mcp]\nport = 0\n[agents.%s]\ncommand = [%q, \"demo\", %q]\n", demoType, filepath.Join(s.bin, "knoot"), standInWord)
	keys := filepath.Join(s.dir, "keys", person)
	if err := errors.Join(os.MkdirAll(keys, 0o700), os.WriteFile(filepath.Join(keys, "config.toml"), []byte(config), 0o600)); err != nil {
		return err
	}
	daemon := exec.Command(filepath.Join(s.bin, "knoot"), "daemon")
	daemon.Dir, daemon.Env = s.dir, s.environment(person)
	daemon.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C ends it last, by stop
	var stderr bytes.Buffer
	daemon.Stderr = &stderr
	out, err := daemon.StdoutPipe()
	if err != nil {
		return err
	}
	if err := daemon.Start(); err != nil {
		return fmt.Errorf("the daemon does not start: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = daemon.Process.Kill() })
	defer stop()
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		_ = daemon.Wait()
		return fmt.Errorf("the daemon does not start: %s", oneLine(stderr.String()))
	}
	s.daemons, s.process = append(s.daemons, daemon), daemon.Process.Pid
	return nil
}

// stop ends what runs, and says what did not end well.
func (s *theatre) stop() (err error) {
	for _, daemon := range s.daemons {
		if serr := daemon.Process.Signal(syscall.SIGTERM); serr != nil && !errors.Is(serr, os.ErrProcessDone) && err == nil {
			err = serr
		}
	}
	for _, daemon := range s.daemons {
		if werr := daemon.Wait(); werr != nil && err == nil {
			err = fmt.Errorf("a daemon did not end well: %w", werr)
		}
	}
	if s.relay != nil {
		if rerr := s.relay.end(syscall.SIGTERM); err == nil {
			err = rerr
		}
	}
	return err
}
