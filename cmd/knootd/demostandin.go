package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"knoot.dev/knoot/daemon"
	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/mcpd"
)

// standInWord behind `knoot demo` makes it a stand-in, in a terminal of knoot's.
const standInWord = "stand-in"

// standInPrompt is what a stand-in prints when it waits for a line.
func standInPrompt(agent string) string { return agent + "> " }

// standIn is in the place of an agent, whose model costs money and does what it likes. It has hooks as Claude Code has, and knoot's
// tools by its configuration; at each line that is typed to it it reads its mail, and does what it was written to do about that.
type standIn struct {
	*theatre
	clone   string
	session string
	tools   *mcp.ClientSession
	turns   int
}

// standIn is the program of an agent of the demo's, whose clone is the working directory, until its terminal ends.
func (c *console) standIn(ctx context.Context, config string) error {
	text, err := os.ReadFile(config)
	if err != nil {
		return fmt.Errorf("the agent's configuration cannot be read: %w", err)
	}
	var servers struct {
		Servers map[string]claudeServer `json:"mcpServers"`
	}
	if err := json.Unmarshal(text, &servers); err != nil {
		return fmt.Errorf("%s is no configuration: %w", config, err)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot tell where knoot is: %w", err)
	}
	server := servers.Servers["knoot"]
	tools, err := mcp.NewClient(&mcp.Implementation{Name: "knoot demo", Version: socket.Version}, nil).Connect(ctx,
		&mcp.StreamableClientTransport{Endpoint: server.URL, HTTPClient: &http.Client{Transport: headed(server.Headers)}}, nil)
	if err != nil {
		return fmt.Errorf("the agent does not reach knoot's tools: %w", err)
	}
	defer tools.Close()
	name := c.getenv("KNOOT_AGENT")
	a := &standIn{theatre: &theatre{console: c, dir: filepath.Dir(c.dir), bin: filepath.Dir(self), agent: name, process: os.Getpid()}, clone: c.dir, session: name + "-friday", tools: tools}
	if err := a.rests(ctx, payload{"hook_event_name": "SessionStart", "source": "startup"}); err != nil {
		return err
	}
	lines := bufio.NewScanner(c.stdin)
	for lines.Scan() {
		if err := a.turn(ctx, lines.Text()); err != nil {
			return err
		}
	}
	return lines.Err()
}

// headed sends headers with each request, to this machine.
type headed map[string]string

func (h headed) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	for name, value := range h {
		req.Header.Set(name, value)
	}
	return direct.RoundTrip(req)
}

// turn does what follows from a line that was typed.
func (a *standIn) turn(ctx context.Context, line string) error {
	a.turns++
	id := fmt.Sprintf("prompt_%d", a.turns)
	if err := a.becomes(ctx, "working", payload{"hook_event_name": "UserPromptSubmit", "prompt_id": id, "prompt": line}); err != nil {
		return err
	}
	var mail []daemon.Message
	if err := a.call(ctx, "check-messages", nil, &mail); err != nil {
		return err
	}
	for _, m := range mail {
		a.says("check-messages: from %s: %s", m.From, oneLine(m.Text))
		if err := a.heed(ctx, m); err != nil {
			return err
		}
	}
	return a.rests(ctx, payload{"hook_event_name": "Stop", "prompt_id": id, "stop_hook_active": false, "background_tasks": []any{}})
}

// heed does what a message asks for: a task that is given is done, one that is done is completed, and anything else is planned.
func (a *standIn) heed(ctx context.Context, m daemon.Message) error {
	var task, owner string
	if _, err := fmt.Sscanf(m.Text, "Task %q of %s plan:", &task, &owner); err == nil {
		return a.work(ctx, task, m.From)
	}
	if _, err := fmt.Sscanf(m.Text, "Task %q is done", &task); err == nil {
		return a.complete(ctx, task)
	}
	return a.plan(ctx)
}

func (a *standIn) plan(ctx context.Context) error {
	var tasks []mcpd.Task
	if err := a.call(ctx, "plan-tasks", map[string]any{"tasks": []any{
		map[string]any{"id": demoTask, "goal": demoGoal, "assignee": map[string]any{"tags": []string{demoTag}}},
		map[string]any{"id": demoRest, "goal": "Say so in CHANGES.md.", "dependsOn": []string{demoTask}},
	}}, &tasks); err != nil {
		return err
	}
	a.says("plan-tasks: %s", listed(tasks))
	if err := a.call(ctx, "dispatch-task", map[string]any{"taskId": demoTask}, &tasks); err != nil {
		return err
	}
	for _, t := range tasks {
		if t.SentTo != "" {
			a.says("dispatch-task: %s is %s to %s", t.ID, t.State, t.SentTo)
		}
	}
	return nil
}

// work does a task, and tells whose it is.
func (a *standIn) work(ctx context.Context, task, owner string) error {
	if err := a.writes(ctx, filepath.Base(a.clone), a.session, demoReceipt, "toolu_"+task); err != nil {
		return err
	}
	a.says("writes %s, which knoot's hook has claimed for it", demoReceipt)
	done := fmt.Sprintf("Task %q is done: see %s.", task, demoReceipt)
	if err := a.call(ctx, "send-message", map[string]any{"to": owner, "message": done}, nil); err != nil {
		return err
	}
	a.says("send-message: to %s: %s", owner, done)
	return a.call(ctx, "set-status", map[string]any{"status": task + " is done"}, nil)
}

func (a *standIn) complete(ctx context.Context, task string) error {
	var now struct{ Ready []string }
	if err := a.call(ctx, "complete-task", map[string]any{"taskId": task, "outcome": "done"}, &now); err != nil {
		return err
	}
	a.says("complete-task: %s is done; ready now: %s", task, strings.Join(now.Ready, ", "))
	var tasks []mcpd.Task
	if err := a.call(ctx, "task-status", nil, &tasks); err != nil {
		return err
	}
	a.says("task-status: %s", listed(tasks))
	return a.call(ctx, "set-status", map[string]any{"status": "next: " + strings.Join(now.Ready, ", ")}, nil)
}

// listed says of tasks whom they are for, what they wait for, and in which state they are.
func listed(tasks []mcpd.Task) string {
	var each []string
	for _, t := range tasks {
		about := "after " + strings.Join(t.DependsOn, ", ")
		if t.Assignee != nil {
			about = "tags " + strings.Join(t.Assignee.Tags, ", ")
		}
		each = append(each, fmt.Sprintf("%s (%s) is %s", t.ID, about, t.State))
	}
	return strings.Join(each, "; ")
}

func (a *standIn) says(format string, args ...any) { fmt.Fprintf(a.stdout, "- "+format+"\n", args...) }

// rests waits for the next line. The prompt comes first: once knoot knows that the agent is idle it may type.
func (a *standIn) rests(ctx context.Context, p payload) error {
	fmt.Fprint(a.stdout, standInPrompt(a.agent))
	return a.becomes(ctx, "idle", p)
}

// becomes plays a hook until knoot knows by it in which state the agent is: on a busy machine a hook gives up rather than make its
// agent wait.
func (a *standIn) becomes(ctx context.Context, state string, p payload) error {
	patience, cancel := context.WithTimeout(ctx, demoPatience)
	defer cancel()
	return a.until(patience, fmt.Sprintf("%s does not become %s", a.agent, state), func() (bool, error) {
		if _, err := a.hook(ctx, a.clone, a.session, p); err != nil {
			return false, err
		}
		var here []mcpd.Status
		err := a.call(ctx, "list-agents", nil, &here)
		return slices.ContainsFunc(here, func(s mcpd.Status) bool { return s.ID == a.agent && s.State == state }), err
	})
}

// call calls one of knoot's tools, and reads what it answers into answer unless that is nil.
func (a *standIn) call(ctx context.Context, tool string, arguments map[string]any, answer any) error {
	all := map[string]any{"agentId": a.agent}
	maps.Copy(all, arguments)
	result, err := a.tools.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: all})
	if err != nil {
		return fmt.Errorf("%s failed: %w", tool, err)
	}
	text := ""
	if len(result.Content) == 1 {
		if content, is := result.Content[0].(*mcp.TextContent); is {
			text = content.Text
		}
	}
	if result.IsError {
		return fmt.Errorf("%s failed: %s", tool, text)
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal([]byte(text), answer); err != nil {
		return fmt.Errorf("%s answers %q: %w", tool, text, err)
	}
	return nil
}
