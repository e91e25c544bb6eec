package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/mcpd"
)

// What the two agents that knoot runs share out: a plan of two tasks, of which the second waits for the first.
const (
	demoType    = "stand-in" // of both; [agents.stand-in] in config.toml says how one is started
	demoTag     = "js"       // that the first task is for
	demoWish    = "receipts are to show the discount; share that out"
	demoTask    = "receipt"
	demoGoal    = "Write " + demoReceipt + ": it prints the discount on a line of its own."
	demoReceipt = "src/receipt.js"
	demoRest    = "changes"
)

// shareOut plays two agents that the daemon runs in terminals. Whatever they are told to do comes by what is typed to them.
func (s *theatre) shareOut(ctx context.Context) (err error) {
	clone := s.clone("priya")
	fmt.Fprintf(s.stdout, "   %s\n", s.dim("They are stand-ins: programs with hooks and knoot's tools, and with no model."))
	home := []string{"HOME=" + s.dir} // so that folders look as they do in a home
	for _, args := range [][]string{
		{"agent", "add", "alice", "--type", demoType, "--description", "plans"},
		{"agent", "add", "bob", "--type", demoType, "--description", "writes", "--tags", demoTag},
	} {
		out, err := s.run(ctx, clone, nil, home, "knoot", args...)
		if err != nil {
			return err
		}
		s.show("priya", "knoot "+strings.Join(args, " "), out)
	}
	screens := map[string]*screen{}
	for _, agent := range []string{"alice", "bob"} {
		// While its daemon runs: a hook of an agent that finds none starts one.
		defer func() {
			if _, serr := s.run(context.WithoutCancel(ctx), clone, nil, nil, "knoot", "agent", "stop", agent); err == nil {
				err = serr
			}
		}()
		if _, err := s.run(ctx, clone, nil, nil, "knoot", "agent", "start", agent); err != nil {
			return err
		}
		shown, err := s.attach(ctx, "priya", agent)
		if err != nil {
			return err
		}
		defer shown.leave()
		screens[agent] = shown
	}
	s.show("priya", "knoot agent start alice && knoot agent start bob", "")
	bothIdle := func() error {
		if err := s.areIdle(ctx, clone, "alice", "bob"); err != nil {
			return err
		}
		out, err := s.run(ctx, clone, nil, home, "knoot", "agent", "ls")
		if err == nil {
			s.show("priya", "knoot agent ls", out)
		}
		return err
	}
	if err := bothIdle(); err != nil {
		return err
	}
	out, err := s.run(ctx, clone, nil, nil, "knoot", "msg", "alice", demoWish)
	if err != nil {
		return err
	}
	s.show("priya", fmt.Sprintf("knoot msg alice %q", demoWish), out)

	for _, each := range []struct {
		agent, heading string
		wanted         []string
	}{
		{"alice", "alice is idle and has mail, so knoot types a line into its terminal:", []string{
			"check-messages: from priya@example.com: " + demoWish,
			"plan-tasks: receipt (tags js) is ready; changes (after receipt) is pending",
			"dispatch-task: receipt is dispatched to bob"}},
		{"bob", "bob is idle and has the tag, and now mail:", []string{
			`check-messages: from alice: Task "receipt" of alice's plan: ` + demoGoal,
			"writes " + demoReceipt,
			"send-message: to alice: "}},
		{"alice", "alice has mail again:", []string{
			"check-messages: from bob: ",
			"complete-task: receipt is done; ready now: changes",
			"task-status: receipt (tags js) is done; changes (after receipt) is ready"}},
	} {
		turn, err := screens[each.agent].turn(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintf(s.stdout, "\n   %s\n%s\n", s.dim(each.heading), quoted(standInPrompt(each.agent)+turn))
		typed, _, _ := strings.Cut(turn, "\n")
		if typed != socket.Nudge {
			return fmt.Errorf("to %s was typed %q", each.agent, typed)
		}
		if want := lacking(turn, each.wanted); want != "" {
			return fmt.Errorf("%s's terminal does not show %q, but %q", each.agent, want, turn)
		}
	}
	fmt.Fprintln(s.stdout)
	if err := bothIdle(); err != nil {
		return err
	}
	shown, err := s.run(ctx, clone, nil, nil, "knoot", "agent", "show", "alice")
	if err != nil {
		return err
	}
	s.show("priya", "knoot agent show alice", shown)
	for _, state := range []string{"done", "ready"} {
		if !slices.ContainsFunc(strings.Split(shown, "\n"), func(line string) bool { return strings.HasPrefix(line, state+" ") }) {
			return fmt.Errorf("`knoot agent show alice` shows no task that is %s, but %q", state, shown)
		}
	}
	for _, agent := range []string{"alice", "bob"} {
		if more := strings.Join(screens[agent].rest(), ""); more != "" {
			return fmt.Errorf("there was no more mail, and yet %s's terminal shows %q", agent, more)
		}
	}
	if _, err := os.Stat(filepath.Join(clone, filepath.FromSlash(demoReceipt))); err != nil {
		return fmt.Errorf("bob says that the receipt is written, and it is not there: %w", err)
	}
	s.checked("an idle agent was typed to, once a message and not a word of what is in it; bob held the file that it wrote; its task is done, and what waited for that is ready.")
	return s.all(ctx, clone, []string{"add", "-A"}, []string{"commit", "-qm", "Show the discount on receipts"}, []string{"push", "-q"})
}

// areIdle waits until the agents are idle and no others are here: sessions of earlier days end.
func (s *theatre) areIdle(ctx context.Context, clone string, agents ...string) error {
	patience, cancel := context.WithTimeout(ctx, demoPatience)
	defer cancel()
	return s.until(patience, strings.Join(agents, " and ")+" do not become idle", func() (bool, error) {
		out, err := s.run(ctx, clone, nil, nil, "knoot", "agent", "ls", "--json")
		if err != nil {
			return false, err
		}
		var here []mcpd.Status
		if err := json.Unmarshal([]byte(out), &here); err != nil {
			return false, fmt.Errorf("`knoot agent ls --json` printed %q: %w", out, err)
		}
		idle := len(here) == len(agents)
		for _, a := range here {
			if slices.Contains(agents, a.ID) {
				idle = idle && a.State == "idle"
			} else if _, err := s.hook(ctx, clone, a.SessionID, payload{"hook_event_name": "SessionEnd", "reason": "other"}); err != nil {
				return false, err
			}
		}
		return idle, nil
	})
}

// screen is what an agent's terminal shows, as `knoot agent attach` does.
type screen struct {
	agent string
	more  chan struct{} // has one while there may be more than was looked at
	ended chan struct{} // closed once nothing more will be shown
	leave func()        // ends the looking

	looked int // turns that were looked at; whoever waits for them counts

	mu   sync.Mutex
	text []byte // guarded by mu: all that it showed
}

// attach looks at the terminal of an agent of one of the people until it is left.
func (s *theatre) attach(ctx context.Context, person, agent string) (*screen, error) {
	variables := map[string]string{}
	for _, pair := range s.environment(person) {
		name, value, _ := strings.Cut(pair, "=")
		variables[name] = value
	}
	shown := &screen{agent: agent, more: make(chan struct{}, 1), ended: make(chan struct{})}
	theirs := &console{stdin: strings.NewReader(""), stdout: shown, stderr: shown, dir: s.clone(person), now: s.now,
		getenv: func(name string) string { return variables[name] }}
	var answer mcpd.AgentAnswer
	if err := theirs.askAgent(ctx, mcpd.AgentRequest{Do: "attach", Agent: agent}, &answer); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	shown.leave = func() {
		cancel()
		<-shown.ended
	}
	go func() {
		defer close(shown.ended)
		if err := (&attached{c: theirs, agent: agent, url: answer.URL, token: answer.Token}).show(ctx); err != nil {
			fmt.Fprintln(shown, err)
		}
	}()
	return shown, nil
}

// Write adds what the terminal shows.
func (t *screen) Write(text []byte) (int, error) {
	t.mu.Lock()
	t.text = append(t.text, text...)
	t.mu.Unlock()
	select {
	case t.more <- struct{}{}:
	default:
	}
	return len(text), nil
}

// rest is what was not looked at yet: a string a turn, of which the last one is not over.
func (t *screen) rest() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	shown := strings.Split(strings.ReplaceAll(string(t.text), "\r\n", "\n"), standInPrompt(t.agent))
	return shown[min(1+t.looked, len(shown)):] // before the first prompt is nothing
}

// turn waits for the end of the next turn, and returns it: the line that was typed, and what came of it.
func (t *screen) turn(ctx context.Context) (string, error) {
	patience, cancel := context.WithTimeout(ctx, demoPatience)
	defer cancel()
	for {
		rest := t.rest()
		if len(rest) > 1 {
			t.looked++
			return strings.TrimSpace(rest[0]), nil
		}
		what := ""
		select {
		case <-t.more:
			continue
		case <-t.ended:
			what = "has ended"
		case <-patience.Done():
			what = "does not end its turn"
		}
		return "", fmt.Errorf("%s %s; its terminal shows %q", t.agent, what, oneLine(strings.Join(t.rest(), "")))
	}
}
