package mcpd

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"knoot.dev/knoot/daemon"
)

func taskTools() []*tool {
	return []*tool{
		{group: tasks, name: "plan-tasks", about: "Commit your graph of tasks, in place of the one before; tasks that are in both keep their state. Returns each task's state.",
			takes: []argument{{name: "tasks", schema: `"type":"array","items":{"type":"object","properties":{"id":{"type":"string"},"goal":{"type":"string"},` +
				`"assignee":{"description":"an agent's id, or {tags: [...]}: chosen when it is dispatched","anyOf":[{"type":"string"},{"type":"object","properties":{"tags":{"type":"array","items":{"type":"string"}}}}]},` +
				`"dependsOn":{"type":"array","items":{"type":"string"}}},"required":["id","goal"]}`}}, do: planTasks},
		{group: tasks, name: "dispatch-task", about: "Send a ready task's goal to its assignee.", takes: []argument{{name: "taskId"}}, do: dispatchTask},
		{group: tasks, name: "complete-task", about: "Say that a task of yours is done or failed. Returns what became ready and blocked by that.",
			takes: []argument{{name: "taskId"}, {name: "outcome", schema: `"type":"string","enum":["done","failed"]`}, {name: "note?"}}, do: completeTask},
		{group: tasks, name: "task-status", about: "List the tasks of your graph with their states.", hints: hints{reads: true}, do: taskStatus},
	}
}

// graphOf returns an agent's graph; an empty one before any plan.
func (s *Server) graphOf(id string) *graph {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.graphs[id]; g != nil {
		return g
	}
	return &graph{}
}

// keepGraph makes a graph the agent's. writing is held.
func (s *Server) keepGraph(id string, g *graph) error {
	if err := s.keep(&record{Graph: &graphRecord{Owner: id, Tasks: g.tasks}}); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.graphs[id] = g
	return nil
}

// listed are the tasks as the tools show them.
func (g *graph) listed() []Task {
	out := make([]Task, len(g.tasks))
	for i, t := range g.tasks {
		if t.DependsOn == nil {
			t.DependsOn = []string{}
		}
		out[i] = t
	}
	return out
}

func planTasks(_ context.Context, c *call) (any, error) {
	objects, err := c.args.objects("tasks")
	if err != nil {
		return nil, err
	}
	var plan []Task
	for _, o := range objects {
		t, err := readTask(o)
		if err != nil {
			return nil, err
		}
		plan = append(plan, t)
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	now, err := c.graphOf(c.agent.ID).commit(plan)
	if err != nil {
		return nil, err
	}
	if err := c.keepGraph(c.agent.ID, now); err != nil {
		return nil, err
	}
	if err := c.show(c.agent.ID, Artifact{Kind: TasksArtifact}); err != nil {
		return nil, err
	}
	return now.listed(), nil
}

// readTask reads a task of a plan.
func readTask(o arguments) (t Task, err error) {
	if t.ID, err = o.required("tasks", "id"); err != nil {
		return t, err
	}
	if t.Goal, err = o.required("tasks", "goal"); err != nil {
		return t, err
	}
	switch {
	case len(t.ID) > maxID || t.ID != daemon.Clean(t.ID, maxID):
		return t, refusef("%q is no id for a task: it is one line of up to %d bytes", daemon.Clean(t.ID, maxID), maxID)
	case len(t.Goal) > maxGoal:
		return t, refusef("the goal of task %q has %d bytes and may have %d", t.ID, len(t.Goal), maxGoal)
	}
	if t.DependsOn, err = o.texts("dependsOn"); err != nil || !o.has("assignee") {
		return t, err
	}
	raw := unwrapped(o["assignee"])
	tags := arguments{}
	if json.Unmarshal(raw, &tags) == nil {
		list, err := tags.texts("tags")
		if err != nil || len(list) == 0 {
			return t, refusef("the assignee of task %q is to be an agent's id, or {\"tags\": [...]}", t.ID)
		}
		t.Assignee = &Assignee{Tags: list}
		return t, nil
	}
	id, err := textOf("assignee", raw)
	if err != nil {
		return t, err
	}
	if id = strings.TrimSpace(id); id != "" {
		t.Assignee = &Assignee{Agent: id}
	}
	return t, nil
}

func dispatchTask(ctx context.Context, c *call) (any, error) {
	id, err := c.args.text("taskId")
	if err != nil {
		return nil, err
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	before := c.graphOf(c.agent.ID)
	t, err := before.dispatchable(id)
	if err != nil {
		return nil, err
	}
	to := t.Assignee.Agent
	if to == "" {
		if to = c.candidate(t.Assignee.Tags); to == "" {
			return nil, refusef("no agent here carries the tags of task %q (%s)", t.ID, daemon.Clean(strings.Join(t.Assignee.Tags, ", "), 200))
		}
	}
	// Kept first: whatever ends the daemon now, the task is never delivered a second time.
	after := before.with(t.ID, func(t *Task) { t.State, t.SentTo = dispatched, to })
	if err := c.keepGraph(c.agent.ID, after); err != nil {
		return nil, err
	}
	text := fmt.Sprintf("Task %q of %s's plan:\n%s\n\nTell %[2]s with send-message when it is done, or that it failed and why.", t.ID, c.agent.ID, t.Goal)
	if _, err := c.host.Send(ctx, c.speaker(), daemon.MessageRequest{To: to, Text: text}); err != nil {
		if kerr := c.keepGraph(c.agent.ID, before); kerr != nil {
			return nil, kerr
		}
		return nil, err
	}
	return after.listed(), nil
}

// candidate is the agent that comes first among those that live, carry all tags and are not the caller; where none lives, among those
// that a message starts. "": there is none.
func (c *call) candidate(tags []string) (startable string) {
	for _, e := range c.described(&c.agent, tags) {
		if e.ID == c.agent.ID || e.Type == "shell" || e.State == isTemplate {
			continue
		}
		if e.State != deactivated {
			return e.ID
		}
		if of, known := c.find(e.ID); known && startable == "" && of.Terminal && of.Allowed {
			startable = e.ID
		}
	}
	return startable
}

// completion is the answer to complete-task: ids of tasks.
type completion struct {
	Ready   []string `json:"ready"`
	Blocked []string `json:"blocked"`
}

func completeTask(_ context.Context, c *call) (any, error) {
	id, err := c.args.text("taskId")
	if err != nil {
		return nil, err
	}
	outcome, err := c.args.text("outcome")
	if err != nil {
		return nil, err
	}
	note, err := c.args.text("note")
	if err != nil {
		return nil, err
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	now, freed, stuck, err := c.graphOf(c.agent.ID).completed(id, outcome, daemon.Clean(note, maxNote))
	if err != nil {
		return nil, err
	}
	if err := c.keepGraph(c.agent.ID, now); err != nil {
		return nil, err
	}
	return completion{Ready: freed, Blocked: stuck}, nil
}

func taskStatus(_ context.Context, c *call) (any, error) { return c.graphOf(c.agent.ID).listed(), nil }
