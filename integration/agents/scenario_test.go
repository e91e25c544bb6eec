package agents

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"knoot.dev/knoot/integration/stage"
)

const (
	factPath = "src/billing.js"
	factLine = "export const total = lines => lines.reduce((a, b) => a + b, 0)"
	factText = "all money is integer cents, never floats"
	areaText = "the till is the only one that prints"
	heldPath = "src/tax.js"
	heldLine = "export const rate = 19"
	refusal  = "knoot refused this edit"
)

// scene is a repository in which knoot is set up for an agent, and that agent.
type scene struct {
	*testing.T
	agent  Agent
	person *stage.Person
	dir    string
	daemon *stage.Daemon
	home   string // of the agent

	ownTrust bool // see Job
}

// scenarios are what has to hold with each real agent. One that an agent has no means for says so, with t.Skip.
var scenarios = []struct {
	name string
	play func(*scene)
}{
	{"a brief arrives", aBriefArrives},
	{"an edit of a held file does not happen", anEditIsRefused},
	{"a patch of three files, one held, does not happen", aPatchIsRefused},
	{"a patch in a here-document, one held, does not happen", aPatchInAHereDocumentIsRefused},
	{"a patch in a here-document, none held, is known to others", aPatchInAHereDocumentIsKnown},
	{"of two edits at once, one of a held file, one happens", oneOfTwoHappens},
	{"sed -i of a held file does not happen", sedIsRefused},
	{"python -c on a held file happens, both are told", aScriptIsTold},
	{"a subagent's edit of a held file does not happen", aSubagentIsRefused},
	{"the file is free: told at the next tool call", isToldAtTheNextCall},
	{"the file is free: told when the turn would end", isToldWhenTheTurnWouldEnd},
	{"a run that is broken off holds nothing", brokenOffHoldsNothing},
	{"what it says by commands is its session's", commandsAreTheSessions},
	{"hooks in a linked worktree", inALinkedWorktree},
	{"status knows whether its hooks are trusted", statusKnowsTrust},
	{"knoot's tools, over a restart and a newer connection", usesTheTools},
	{"in a terminal: nudged when idle, not while it asks", isNudgedWhenIdle},
	{"in a terminal: a message resumes its session", isResumedByAMessage},
	{"two in terminals carry a task from plan to end", carriesATask},
	{"daemon dead: all happens, nothing is said", withADeadDaemon},
	{"daemon hung: all happens, nothing is said", withAHungDaemon},
	{"daemon talks garbage: all happens, nothing is said", withGarbage},
}

func TestScenarios(t *testing.T) {
	finds := []func() (Agent, error){FindClaude, FindCodex, FindCodexInCodeMode}
	for _, find := range []func() (Agent, error){FindCopilot, FindOpencode} {
		if _, err := find(); err == nil { // fetched by those who want them: they are large
			finds = append(finds, find)
		}
	}
	for _, find := range finds {
		agent, err := find()
		for _, scenario := range scenarios {
			t.Run(agent.Name()+"/"+scenario.name, func(t *testing.T) {
				t.Parallel()
				t.Cleanup(func() { results.add(t, agent, scenario.name) })
				able(t, err)
				scenario.play(newScene(t, agent))
			})
		}
	}
}

// able skips the test where real agents cannot be run, or this one is not there (found is why), and says why.
func able(t *testing.T, found error) {
	t.Helper()
	if testing.Short() {
		t.Skip("a run of the real agent takes seconds; -short leaves it out")
	}
	if notIsolated != nil {
		t.Skipf("the real agent runs without a network only: %v", notIsolated)
	}
	if found != nil {
		t.Skip(found)
	}
}

func newScene(t *testing.T, agent Agent) *scene {
	s := &scene{T: t, agent: agent, person: stage.NewPerson(t, "priya"), home: t.TempDir()}
	s.dir = s.person.Clone(stage.Host(t), "my shop")
	s.person.Commit(s.dir, factPath, factLine+"\n", "Add billing")
	s.person.Commit(s.dir, heldPath, heldLine+"\n", "Add taxes")
	s.person.Knoot(s.dir, "init", "--agent", agent.Hooks())
	s.daemon = s.person.StartDaemon()
	return s
}

func (s *scene) path(file string) string { return filepath.Join(s.dir, file) }

// text is what a file holds; "" where there is none.
func (s *scene) text(file string) string {
	s.Helper()
	data, err := os.ReadFile(s.path(file))
	if err != nil && !os.IsNotExist(err) {
		s.Fatal(err)
	}
	return string(data)
}

// model is one that follows a script until the test ends.
func (s *scene) model(script Script) *Model {
	s.Helper()
	return model(s.T, script)
}

// run has the agent take a prompt in dir, and returns what the model was asked.
func (s *scene) run(m *Model, prompt string) ([]Request, Output) {
	s.Helper()
	output, err := s.agent.Run(deadline(s.T), s.job(m, prompt))
	if err != nil {
		s.Fatal(err)
	}
	return m.Turns(), output
}

func (s *scene) job(m *Model, prompt string) Job {
	return Job{Model: m, Home: s.home, Dir: s.dir, Prompt: prompt, OwnTrust: s.ownTrust,
		Env: []string{"KNOOT_HOME=" + s.person.KnootHome, "KNOOT_BIN=" + filepath.Join(s.person.Bin, "knoot")}}
}

// held has another session hold a file, which it has written.
func (s *scene) held() stage.Session {
	s.Helper()
	holder := stage.Session{Person: s.person, ID: "holder", Dir: s.dir}
	holder.Start()
	holder.Prompt("rewrite the tax rounding to half even")
	holder.Write(heldPath, heldLine+"\n")
	return holder
}

// counts demands how often a text stands in each request.
func (s *scene) counts(requests []Request, text string, want ...int) {
	s.Helper()
	if len(requests) != len(want) {
		s.Fatalf("the model was asked %d times, expected %d", len(requests), len(want))
	}
	for i, request := range requests {
		if n := request.Count(text); n != want[i] {
			s.Errorf("request %d holds %q %d times, expected %d", i+1, text, n, want[i])
		}
	}
}

// refused demands that the model reads of the refusal in the last of its requests, once, and that the held file is as it was.
func (s *scene) refused(requests []Request) {
	s.Helper()
	if len(requests) == 0 {
		s.Fatal("the model was asked nothing")
	}
	want := make([]int, len(requests))
	want[len(want)-1] = 1
	for _, words := range []string{refusal, "priya's agent", "rewrite the tax rounding to half even", "its lease has", "Nothing was written."} {
		s.counts(requests, words, want...)
	}
	if text := s.text(heldPath); text != heldLine+"\n" {
		s.Errorf("the held file is %q", text)
	}
	if shown := s.person.Knoot(s.dir, "shown"); strings.Count(shown, refusal) != 1 {
		s.Errorf("knoot shown does not say so once:\n%s", shown)
	}
}

func aBriefArrives(s *scene) {
	s.person.Knoot(s.dir, "remember", "--name", "money", "--path", factPath, factText)
	s.person.Knoot(s.dir, "remember", "--name", "printing", areaText)
	requests, output := s.run(s.model(Script{{s.agent.Read(s.path(factPath))}, {{Text: "It sums the lines."}}}), "what does the billing code do?")
	s.counts(requests, areaText, 1, 1)
	s.counts(requests, factText, 0, 1)
	if requests[1].Count("lines.reduce") == 0 {
		s.Error("the file's text is not in the second request: it was not read")
	}
	if !strings.Contains(output.Stdout, "It sums the lines.") {
		s.Errorf("the agent's answer is %q", output.Stdout)
	}
	if shown := s.person.Knoot(s.dir, "shown"); strings.Count(shown, factText) != 1 || strings.Count(shown, areaText) != 1 {
		s.Errorf("knoot shown does not say so:\n%s", shown)
	}
}

func anEditIsRefused(s *scene) {
	s.held()
	requests, _ := s.run(s.model(Script{
		{s.agent.Read(s.path(heldPath))}, {s.agent.Edit(s.path(heldPath), heldLine, "export const rate = 7")}, {{Text: "I wait."}},
	}), "add the reduced rate for books")
	s.refused(requests)
}

// threeFiles is a patch of the held file between two new ones.
const threeFiles = "*** Begin Patch\n*** Add File: src/cart.js\n+export const cart = []\n*** Update File: " + heldPath + "\n@@\n-" + heldLine +
	"\n+export const rate = 7\n*** Add File: docs/the cart.md\n+# The cart\n*** End Patch\n"

// nothingOfThePatch demands that the patch was refused as a whole, and that the others are said to be free.
func (s *scene) nothingOfThePatch(requests []Request) {
	s.Helper()
	s.refused(requests)
	s.counts(requests[len(requests)-1:], `Free in this patch: "docs/the cart.md", src/cart.js.`, 1)
	if text := s.text("src/cart.js") + s.text("docs/the cart.md"); text != "" {
		s.Errorf("of the refused patch there is %q", text)
	}
}

func aPatchIsRefused(s *scene) {
	all, able := s.agent.Patch(threeFiles)
	if !able {
		s.Skip("it has no tool for patches")
	}
	free, _ := s.agent.Patch("*** Begin Patch\n*** Add File: src/cart.js\n+export const cart = []\n*** Add File: docs/the cart.md\n+# The cart\n*** End Patch\n")
	s.held()
	m := s.model(Script{{all}, {free}, {{Text: "The rest is in."}}})
	m.Asked(func(turn int) {
		if turn == 2 {
			s.nothingOfThePatch(m.Turns())
		}
	})
	requests, _ := s.run(m, "add the reduced rate for books")
	s.counts(requests, refusal, 0, 1, 1)
	if s.text("src/cart.js") != "export const cart = []\n" || s.text("docs/the cart.md") != "# The cart\n" {
		s.Error("what was free in the patch is not there after it was sent again")
	}
}

func aPatchInAHereDocumentIsRefused(s *scene) {
	if _, able := s.agent.Patch(threeFiles); !able {
		s.Skip("it has no tool for patches")
	}
	s.held()
	requests, _ := s.run(s.model(Script{{s.agent.Shell("apply_patch <<'EOF'\n" + threeFiles + "EOF")}, {{Text: "I wait."}}}), "add the reduced rate for books")
	s.nothingOfThePatch(requests)
}

// Of such a patch Codex says that it begins, and not that it has ended.
func aPatchInAHereDocumentIsKnown(s *scene) {
	patch := "*** Begin Patch\n*** Update File: " + heldPath + "\n@@\n-" + heldLine + "\n+export const rate = 7\n*** End Patch\n"
	if _, able := s.agent.Patch(patch); !able {
		s.Skip("it has no tool for patches")
	}
	other := stage.Session{Person: s.person, ID: "other", Dir: s.dir}
	other.Start()
	m := s.model(Script{{s.agent.Shell("apply_patch <<'EOF'\n" + patch + "EOF")}, {s.agent.Shell("cat README.md")}, {{Text: "The rate is 7."}}})
	m.Asked(func(turn int) {
		if turn < 3 {
			return
		}
		if denied := other.Asks(heldPath); !strings.Contains(denied, refusal) || !strings.Contains(denied, "last write") {
			s.Errorf("after the patch another session hears %q", denied)
		}
	})
	s.run(m, "add the reduced rate for books")
	if text := s.text(heldPath); text != "export const rate = 7\n" {
		s.Errorf("after the patch the file is %q", text)
	}
}

func oneOfTwoHappens(s *scene) {
	s.held()
	requests, _ := s.run(s.model(Script{
		s.agent.Together(s.agent.Read(s.path(heldPath)), s.agent.Read(s.path(factPath))),
		s.agent.Together(s.agent.Edit(s.path(heldPath), heldLine, "export const rate = 7"), s.agent.Edit(s.path(factPath), factLine, "export const total = 7")),
		{{Text: "One is in."}},
	}), "add the reduced rate for books")
	s.refused(requests)
	if text := s.text(factPath); text != "export const total = 7\n" {
		s.Errorf("the file that nobody holds is %q", text)
	}
}

func sedIsRefused(s *scene) {
	s.held()
	requests, _ := s.run(s.model(Script{{s.agent.Shell("cd src && sed -i 's/19/7/' tax.js")}, {{Text: "I wait."}}}), "add the reduced rate for books")
	s.refused(requests)
}

func aScriptIsTold(s *scene) {
	if _, err := exec.LookPath("python3"); err != nil {
		s.Skip("there is no python3 on this machine")
	}
	holder := s.held()
	m := s.model(Script{
		{s.agent.Shell(`python3 -c 'open("src/tax.js", "w").write("export const rate = 7\n")'`)},
		{s.agent.Shell("cat README.md")}, {s.agent.Shell("cat README.md && echo again")}, {{Text: "The rate is 7."}},
	})
	const told = heldPath + ", which you hold, was changed while a command of priya's agent ran"
	m.Asked(func(turn int) {
		if turn != 3 {
			return
		}
		// What the script did is found out after its call has ended. Once it is, the next call of either is told.
		if heard := holder.Hears("README.md", told); strings.Count(heard, told) != 1 {
			s.Errorf("the model that holds the file is told %q", heard)
		}
	})
	requests, _ := s.run(m, "add the reduced rate for books")
	if text := s.text(heldPath); text != "export const rate = 7\n" {
		s.Errorf("after the script the file is %q", text)
	}
	s.counts(requests[len(requests)-1:], heldPath+" was changed while your command ran", 1)
}

func aSubagentIsRefused(s *scene) {
	delegate, able := s.agent.Delegate()
	if !able {
		s.Skip("it has no subagents")
	}
	s.held()
	done := make(chan struct{})
	m := s.model(Script{{delegate}, {{Text: "It waits.", After: done}}})
	m.Subagent(Script{{s.agent.Read(s.path(heldPath))}, {s.agent.Edit(s.path(heldPath), heldLine, "export const rate = 7")}, {{Text: "I wait."}}})
	m.Asked(func(turn int) {
		if turn == 1003 {
			close(done)
		}
	})
	s.run(m, "add the reduced rate for books")
	s.refused(m.SubagentTurns())
}

// isTold has the agent ask for a held file, which is free from its next turn on, and demands that it gets it once it has gone on. It
// returns what the model was asked from then on.
func (s *scene) isTold(goesOn ...Item) (requests []Request) {
	holder := s.held()
	script := Script{{s.agent.Read(s.path(heldPath))}, {s.agent.Edit(s.path(heldPath), heldLine, "export const rate = 7")}}
	for _, item := range goesOn {
		script = append(script, []Item{item})
	}
	m := s.model(append(script, []Item{s.agent.Edit(s.path(heldPath), heldLine, "export const rate = 7")}, []Item{{Text: "It is in."}}))
	m.Asked(func(turn int) {
		if turn == 3 {
			holder.Stop()
		}
	})
	requests, _ = s.run(m, "add the reduced rate for books")
	if len(requests) != 4+len(goesOn) {
		s.Fatalf("the model was asked %d times, expected %d", len(requests), 4+len(goesOn))
	}
	if text := s.text(heldPath); text != "export const rate = 7\n" {
		s.Errorf("the file that was free is %q", text)
	}
	return requests[2:]
}

const isFree = heldPath + ", which you were denied, is free now"

func isToldAtTheNextCall(s *scene) {
	// Two calls: a hook says what the daemon knows in time, and on a busy machine the one after says it.
	requests := s.isTold(s.agent.Read(s.path("README.md")), s.agent.Read(s.path(factPath)))
	s.counts([]Request{requests[0], requests[2], requests[3]}, isFree, 0, 1, 1)
}

func isToldWhenTheTurnWouldEnd(s *scene) {
	if s.agent.Hooks() == "opencode" {
		s.Skip("its turns cannot be held open")
	}
	times := 1
	if s.agent.Hooks() == "claude" {
		times = 2 // what keeps a turn open it shows its model twice, as feedback and as an error
	}
	s.counts(s.isTold(Item{Text: "I have nothing else to do."}), isFree, 0, times, times)
}

func brokenOffHoldsNothing(s *scene) {
	ctx, interrupt := context.WithCancel(deadline(s.T))
	defer interrupt()
	other := stage.Session{Person: s.person, ID: "other", Dir: s.dir}
	other.Start()
	m := s.model(Script{{s.agent.Read(s.path(heldPath))}, {s.agent.Edit(s.path(heldPath), heldLine, "export const rate = 7")}, {{Text: "never said", After: ctx.Done()}}})
	m.Asked(func(turn int) {
		if turn == 3 {
			if denied := other.Asks(heldPath); !strings.Contains(denied, refusal) {
				s.Errorf("while it is at the file another session hears %q", denied)
			}
			interrupt()
		}
	})
	_, _ = s.agent.Run(ctx, s.job(m, "add the reduced rate for books")) // it is an error, or none, to be broken off
	if len(m.Turns()) < 3 {
		s.Fatalf("the model was asked %d times", len(m.Turns()))
	}
	denied := other.Asks(heldPath)
	// opencode does not say that it was broken off; that its process is gone is seen a few seconds later.
	for begun := time.Now(); s.agent.Hooks() == "opencode" && denied != "" && time.Since(begun) < 20*time.Second; denied = other.Asks(heldPath) {
		time.Sleep(200 * time.Millisecond)
	}
	if denied != "" {
		s.Errorf("after it was broken off another session hears %q", denied)
	}
}

func commandsAreTheSessions(s *scene) {
	s.run(s.model(Script{{s.agent.Shell(`"$KNOOT_BIN" msg priya@example.org 'the rate is done'`)}, {{Text: "I said so."}}}), "tell me when the rate is done")
	inbox := s.person.Knoot(s.dir, "inbox")
	if from := "\n" + s.agent.Hooks() + "-"; !strings.Contains(inbox, from) || !strings.Contains(inbox, "the rate is done") {
		s.Errorf("the person reads %q, and not that it is from %s…", inbox, from)
	}
}

func inALinkedWorktree(s *scene) {
	if s.agent.Hooks() != "codex" {
		// Its hooks are committed, and each worktree has its own.
		s.person.Git(s.dir, "add", "-A")
		s.person.Git(s.dir, "commit", "-qm", "Share what agents learn")
	}
	s.person.Knoot(s.dir, "remember", "--name", "money", "--path", factPath, factText)
	side := filepath.Join(filepath.Dir(s.dir), "the side")
	s.person.Git(s.dir, "worktree", "add", "-q", "-b", "side", side)
	s.dir = side
	s.person.Knoot(s.dir, "init", "--agent", s.agent.Hooks())
	requests, _ := s.run(s.model(Script{{s.agent.Read(s.path(factPath))}, {{Text: "It sums the lines."}}}), "what does the billing code do?")
	s.counts(requests, factText, 0, 1)
}

// What the agent says of its hooks is what it does: it skips those that nobody trusted, and knoot writes nothing that would need
// trust again.
func statusKnowsTrust(s *scene) {
	codex, able := s.agent.(Codex)
	if !able {
		s.Skip("it has no trust in single hooks")
	}
	s.person.Knoot(s.dir, "remember", "--name", "money", "--path", factPath, factText)
	bin := filepath.Join(s.home, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		s.Fatal(err)
	}
	if err := os.Symlink(codex.Program(), filepath.Join(bin, "codex")); err != nil {
		s.Fatal(err)
	}
	s.person.Extra = []string{"CODEX_HOME=" + filepath.Join(s.home, ".codex"), "PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH")}
	says := func(want string) {
		s.Helper()
		// Lines are wrapped for people.
		if text := strings.Join(strings.Fields(s.person.Try(s.dir, "", "knoot", "status").Stdout), " "); !strings.Contains(text, want) {
			s.Errorf("knoot status does not say %q:\n%s", want, text)
		}
	}
	// One model for all: its address is in the configuration.
	m := s.model(Script{
		{s.agent.Read(s.path(factPath))}, {{Text: "It sums the lines."}},
		{s.agent.Read(s.path(factPath))}, {{Text: "It sums the lines."}},
	})
	s.ownTrust = true
	if err := codex.Configure(s.home, m.URL(), filepath.Dir(s.dir)); err != nil {
		s.Fatal(err)
	}
	says("Codex 0.171.0 does not load knoot's hooks (.codex/hooks.json)")
	if err := codex.Configure(s.home, m.URL(), s.dir); err != nil {
		s.Fatal(err)
	}
	says("11 of knoot's 11 hooks are not trusted")
	s.run(m, "what does the billing code do?")
	if err := codex.Trust(deadline(s.T), s.home, s.dir); err != nil {
		s.Fatal(err)
	}
	s.person.Knoot(s.dir, "init", "--agent", "codex")
	says("Codex 0.171.0 trusts knoot's 11 hooks")
	requests, _ := s.run(m, "what does the billing code do?")
	s.counts(requests, factText, 0, 0, 0, 1)
}

// allHappens has the agent edit files in each way that would be refused, and demands that it can, and that nothing is said.
func (s *scene) allHappens() {
	s.Helper()
	requests, output := s.run(s.model(Script{
		{s.agent.Read(s.path(heldPath))}, {s.agent.Edit(s.path(heldPath), heldLine, "export const rate = 7")},
		{s.agent.Shell("sed -i 's/total/sum/' " + factPath)}, {{Text: "All is in."}},
	}), "add the reduced rate for books")
	if len(requests) != 4 || s.text(heldPath) != "export const rate = 7\n" || s.text(factPath) != strings.Replace(factLine, "total", "sum", 1)+"\n" {
		s.Errorf("the model was asked %d times; the files are %q and %q", len(requests), s.text(heldPath), s.text(factPath))
	}
	for i, request := range requests {
		// The repository's own files are called after knoot, and git tells agents of them; what hooks say is another matter.
		for _, trace := range []string{factText, areaText, refusal, "knoot:", "background notes", "hook additional context", "hook error"} {
			if n := request.Count(trace); n != 0 {
				s.Errorf("request %d holds %q %d times", i+1, trace, n)
			}
		}
	}
	for _, trace := range []string{"knoot:", "knoot hook", "Failed", "hook error"} {
		if strings.Contains(output.Stdout+output.Stderr, trace) {
			s.Errorf("the agent prints %q:\n%s\n%s", trace, output.Stdout, output.Stderr)
		}
	}
}

// toSay gives the daemon something to say of all that allHappens does.
func (s *scene) toSay() {
	s.Helper()
	s.person.Knoot(s.dir, "remember", "--name", "money", "--path", factPath, factText)
	s.person.Knoot(s.dir, "remember", "--name", "printing", areaText)
	s.held()
}

func withADeadDaemon(s *scene) {
	s.toSay()
	s.daemon.Kill()
	s.allHappens()
	if connection, err := net.Dial("unix", s.person.Socket()); err == nil {
		connection.Close()
		s.Error("a hook started a daemon although autostart is off")
	}
}

func withAHungDaemon(s *scene) {
	s.toSay()
	thaw := s.daemon.Frozen()
	s.Cleanup(thaw)
	s.allHappens()
}

func withGarbage(s *scene) {
	s.toSay()
	s.daemon.Kill()
	if err := os.Remove(s.person.Socket()); err != nil && !os.IsNotExist(err) {
		s.Fatal(err)
	}
	listener, err := net.Listen("unix", s.person.Socket())
	if err != nil {
		s.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			fmt.Fprintln(connection, `{"answer":{"deny":7,"context":["`+refusal+`"]}} knoot: garbage`)
			connection.Close()
		}
	})
	s.Cleanup(func() { listener.Close(); serving.Wait() })
	s.allHappens()
}
