package mcpd

import (
	"encoding/json"
	"slices"
	"strings"

	"knoot.dev/knoot/daemon"
)

const (
	// maxTasks bounds a graph; maxGoal and maxNote a task's texts, in bytes: a goal has to fit into a message.
	maxTasks = 200
	maxGoal  = 3000
	maxNote  = 500
	maxID    = 80
)

// States of a task.
//
//	pending     waits for what it depends on
//	ready       may be dispatched
//	dispatched  delivered; only the owner completes it
//	done, failed
//	blocked     something that it depends on failed, or is blocked; it stays so until a new plan changes that
const (
	pending    = "pending"
	ready      = "ready"
	dispatched = "dispatched"
	done       = "done"
	failed     = "failed"
	blocked    = "blocked"
)

// Task is a task of a graph, as the tools show it.
type Task struct {
	ID        string    `json:"id"`
	Goal      string    `json:"goal"`
	State     string    `json:"state"`
	Assignee  *Assignee `json:"assignee"` // nil: nobody, so the owner does it
	DependsOn []string  `json:"dependsOn"`
	Note      string    `json:"note"`             // said when it was completed
	SentTo    string    `json:"sentTo,omitempty"` // whom it was dispatched to
}

// Assignee is an agent, or tags of which an agent that carries them all is chosen when the task is dispatched.
type Assignee struct {
	Agent string
	Tags  []string
}

type tagsAssignee struct {
	Tags []string `json:"tags"`
}

// MarshalJSON writes an agent's id as a text, and tags as {"tags": […]}.
func (a *Assignee) MarshalJSON() ([]byte, error) {
	if a.Agent != "" {
		return json.Marshal(a.Agent)
	}
	return json.Marshal(tagsAssignee{a.Tags})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (a *Assignee) UnmarshalJSON(text []byte) error {
	if json.Unmarshal(text, &a.Agent) == nil {
		return nil
	}
	var tags tagsAssignee
	err := json.Unmarshal(text, &tags)
	a.Tags = tags.Tags
	return err
}

// graph is an agent's tasks in the order of its plan. It is never changed, but replaced as a whole.
type graph struct{ tasks []Task }

// commit returns the graph after a plan: tasks that were there keep their state, and what was dispatched stays, whether the plan has
// it or not. A refusal names the tasks that it is for.
func (g *graph) commit(plan []Task) (*graph, error) {
	now := &graph{}
	at := map[string]int{}
	for _, t := range plan {
		if _, twice := at[t.ID]; twice {
			return nil, refusef("two tasks are called %q", t.ID)
		}
		at[t.ID] = len(now.tasks)
		t.State, t.Note, t.SentTo = pending, "", ""
		if was := g.task(t.ID); was != nil && (was.State == dispatched || was.State == done || was.State == failed) {
			t.State, t.Note, t.SentTo = was.State, was.Note, was.SentTo
		}
		now.tasks = append(now.tasks, t)
	}
	for i := range g.tasks {
		if was := g.tasks[i]; was.State == dispatched && now.task(was.ID) == nil {
			// What it depended on is done, and may be in the plan no more.
			was.DependsOn = slices.DeleteFunc(slices.Clone(was.DependsOn), func(id string) bool { _, there := at[id]; return !there })
			at[was.ID] = len(now.tasks)
			now.tasks = append(now.tasks, was)
		}
	}
	if len(now.tasks) > maxTasks {
		return nil, refusef("the plan has %d tasks and may have %d", len(now.tasks), maxTasks)
	}
	var missing []string
	for _, t := range now.tasks {
		for _, id := range t.DependsOn {
			switch _, there := at[id]; {
			case id == t.ID:
				return nil, refusef("task %q depends on itself", t.ID)
			case !there:
				missing = append(missing, refusef("task %q depends on %q, which is not in the plan", t.ID, id).Error())
			}
		}
	}
	if len(missing) > 0 {
		return nil, refusal(strings.Join(missing[:min(len(missing), 5)], "; "))
	}
	if cycle := now.cycle(); cycle != nil {
		return nil, refusef("the tasks wait for one another: %s", strings.Join(cycle, " → "))
	}
	now.settle()
	return now, nil
}

// task returns a task; nil: there is none with that id.
func (g *graph) task(id string) *Task {
	for i := range g.tasks {
		if g.tasks[i].ID == id {
			return &g.tasks[i]
		}
	}
	return nil
}

// cycle returns the ids of tasks of which each depends on the next, the first and the last the same; nil: there are none.
func (g *graph) cycle() []string {
	const open, closed = 1, 2
	at := map[string]int{}
	for i, t := range g.tasks {
		at[t.ID] = i
	}
	mark := make([]int, len(g.tasks))
	var path []string
	var visit func(i int) []string
	visit = func(i int) []string {
		mark[i] = open
		path = append(path, g.tasks[i].ID)
		for _, id := range g.tasks[i].DependsOn {
			switch j := at[id]; mark[j] {
			case open:
				return append(slices.Clone(path[slices.Index(path, id):]), id)
			case closed:
			default:
				if found := visit(j); found != nil {
					return found
				}
			}
		}
		path = path[:len(path)-1]
		mark[i] = closed
		return nil
	}
	for i := range g.tasks {
		if mark[i] == 0 {
			if found := visit(i); found != nil {
				return found
			}
		}
	}
	return nil
}

// settle sets the states that follow from others: pending, ready and blocked. There is no cycle.
func (g *graph) settle() {
	settled := map[string]string{}
	var state func(t *Task) string
	state = func(t *Task) string {
		if known, ok := settled[t.ID]; ok {
			return known
		}
		switch t.State {
		case dispatched, done, failed:
		default:
			t.State = ready
			for _, id := range t.DependsOn {
				switch state(g.task(id)) {
				case done:
				case failed, blocked:
					t.State = blocked
				default:
					if t.State == ready {
						t.State = pending
					}
				}
			}
		}
		settled[t.ID] = t.State
		return t.State
	}
	for i := range g.tasks {
		state(&g.tasks[i])
	}
}

// with returns the graph with one task in another state, and what follows from that.
func (g *graph) with(id string, change func(*Task)) *graph {
	now := &graph{tasks: slices.Clone(g.tasks)}
	change(now.task(id))
	now.settle()
	return now
}

// waitsFor are the tasks that a task waits for, with their states.
func (g *graph) waitsFor(t *Task) string {
	var names []string
	for _, id := range t.DependsOn {
		if before := g.task(id); before.State != done {
			names = append(names, id+" ("+before.State+")")
		}
	}
	return strings.Join(names, ", ")
}

// dispatchable returns a task that may be dispatched.
func (g *graph) dispatchable(id string) (*Task, error) {
	t := g.task(id)
	switch {
	case len(g.tasks) == 0:
		return nil, refusal("you have no plan: commit one with plan-tasks")
	case t == nil:
		return nil, refusef("there is no task %q in your plan", daemon.Clean(id, maxID))
	case t.State == pending:
		return nil, refusef("task %q is pending: it waits for %s", t.ID, g.waitsFor(t))
	case t.State == blocked:
		return nil, refusef("task %q is blocked by %s: change what it depends on with plan-tasks", t.ID, g.waitsFor(t))
	case t.State != ready:
		return nil, refusef("task %q is %s already", t.ID, t.State)
	case t.Assignee == nil:
		return nil, refusef("task %q has no assignee: do it yourself and complete it, or name one with plan-tasks", t.ID)
	}
	return t, nil
}

// completed returns the graph after a task was done or failed, with the ids of what became ready and blocked by that.
func (g *graph) completed(id, outcome, note string) (now *graph, freed, stuck []string, err error) {
	t := g.task(id)
	switch {
	case outcome != done && outcome != failed:
		return nil, nil, nil, refusef("outcome is to be %q or %q", done, failed)
	case t == nil:
		return nil, nil, nil, refusef("there is no task %q in your plan", daemon.Clean(id, maxID))
	case t.State == dispatched, t.State == ready && t.Assignee == nil: // the second the owner does itself
	case t.State == ready:
		return nil, nil, nil, refusef("task %q was not dispatched", t.ID)
	case t.State == pending || t.State == blocked:
		return nil, nil, nil, refusef("task %q is %s: it waits for %s", t.ID, t.State, g.waitsFor(t))
	default:
		return nil, nil, nil, refusef("task %q is %s already", t.ID, t.State)
	}
	now = g.with(id, func(t *Task) { t.State, t.Note = outcome, note })
	freed, stuck = []string{}, []string{}
	for i, t := range now.tasks {
		switch was := g.tasks[i].State; {
		case t.State == ready && was != ready:
			freed = append(freed, t.ID)
		case t.State == blocked && was != blocked:
			stuck = append(stuck, t.ID)
		}
	}
	return now, freed, stuck, nil
}
