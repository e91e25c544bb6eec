package mcpd

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"knoot.dev/knoot/daemon/socket"
)

// states are a graph's, by task.
func (g *graph) states() map[string]string {
	out := map[string]string{}
	for _, t := range g.tasks {
		out[t.ID] = t.State
	}
	return out
}

// drawPlan draws tasks with any dependencies, cycles and missing ones included.
func drawPlan(t *rapid.T) []Task {
	ids := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-f]`), 0, 6, rapid.ID[string]).Draw(t, "ids")
	var plan []Task
	for _, id := range ids {
		task := Task{ID: id, Goal: "do " + id, DependsOn: rapid.SliceOfN(rapid.SampledFrom(append([]string{"a", "b", "g"}, ids...)), 0, 3).Draw(t, "dependencies of "+id)}
		if rapid.Bool().Draw(t, "assigned") {
			task.Assignee = &Assignee{Agent: "bob"}
		}
		plan = append(plan, task)
	}
	return plan
}

// hasOrder reports whether tasks can be done one after the other: those that can be done are taken out until none is left.
func hasOrder(plan []Task) bool {
	left := map[string][]string{}
	for _, t := range plan {
		left[t.ID] = t.DependsOn
	}
	for progress := true; progress; {
		progress = false
		for id, before := range left {
			if !slices.ContainsFunc(before, func(other string) bool { _, waits := left[other]; return waits }) {
				delete(left, id)
				progress = true
			}
		}
	}
	return len(left) == 0
}

// wantTable checks every state against the rule that it follows from.
func wantTable(t *rapid.T, g *graph) {
	states := g.states()
	for _, task := range g.tasks {
		all, broken := true, false
		for _, id := range task.DependsOn {
			all = all && states[id] == done
			broken = broken || states[id] == failed || states[id] == blocked
		}
		switch want := map[bool]string{true: ready, false: pending}[all]; {
		case task.State == dispatched || task.State == done || task.State == failed:
		case broken && task.State != blocked, !broken && task.State != want:
			t.Fatalf("%q is %s, and what it depends on: %v", task.ID, task.State, states)
		}
	}
}

func TestGraphByProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := &graph{}
		delivered := map[string]int{} // how often, since it was last out of the graph and finished
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) { wantTable(t, g) },
			"commit": func(t *rapid.T) {
				plan := drawPlan(t)
				before := g.states()
				copied, _ := json.Marshal(g.listed())
				now, err := g.commit(plan)
				if again, _ := json.Marshal(g.listed()); string(again) != string(copied) {
					t.Fatalf("a commit changed the graph before it: %s, was %s", again, copied)
				}
				if err != nil {
					return
				}
				ids := map[string]bool{}
				for _, task := range now.tasks {
					ids[task.ID] = true
				}
				for _, task := range now.tasks {
					for _, id := range task.DependsOn {
						if !ids[id] {
							t.Fatalf("%q depends on %q, which is not there", task.ID, id)
						}
					}
				}
				if !hasOrder(now.tasks) {
					t.Fatalf("a cycle is accepted: %+v", now.tasks)
				}
				after := now.states()
				for id, state := range before {
					in := slices.ContainsFunc(plan, func(task Task) bool { return task.ID == id })
					finished := state == done || state == failed
					if (state == dispatched || in && finished) && after[id] != state {
						t.Fatalf("%q was %s and is %q", id, state, after[id])
					}
					if !in && finished {
						delete(delivered, id) // one of that name later is another task
					}
				}
				g = now
			},
			"dispatch": func(t *rapid.T) {
				id := rapid.StringMatching(`[a-g]`).Draw(t, "task")
				task, err := g.dispatchable(id)
				if err != nil {
					return
				}
				if task.State != ready {
					t.Fatalf("%q is %s and may be dispatched", id, task.State)
				}
				if delivered[id]++; delivered[id] > 1 {
					t.Fatalf("%q is delivered again", id)
				}
				g = g.with(id, func(task *Task) { task.State = dispatched })
			},
			"complete": func(t *rapid.T) {
				id := rapid.StringMatching(`[a-g]`).Draw(t, "task")
				outcome := rapid.SampledFrom([]string{done, failed}).Draw(t, "outcome")
				before := g.states()
				now, freed, stuck, err := g.completed(id, outcome, "")
				if err != nil {
					return
				}
				if before[id] != dispatched && (before[id] != ready || g.task(id).Assignee != nil) {
					t.Fatalf("%q was %s and is completed", id, before[id])
				}
				after := now.states()
				for other, state := range after {
					became := state != before[other]
					if slices.Contains(freed, other) != (became && state == ready) || slices.Contains(stuck, other) != (became && state == blocked) {
						t.Fatalf("%q was %s and is %s; ready are %q, blocked %q", other, before[other], state, freed, stuck)
					}
					if became && other != id && (before[other] == done || before[other] == failed || before[other] == dispatched) {
						t.Fatalf("%q was %s and is %s", other, before[other], state)
					}
				}
				g = now
			},
		})
	})
}

// Whatever can be ordered is accepted.
func TestPlansThatCanBeOrderedAreAccepted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		plan := drawPlan(t)
		ids := map[string]bool{}
		for _, task := range plan {
			ids[task.ID] = true
		}
		known := !slices.ContainsFunc(plan, func(task Task) bool {
			return slices.ContainsFunc(task.DependsOn, func(id string) bool { return !ids[id] })
		})
		_, err := (&graph{}).commit(plan)
		if accepted, want := err == nil, known && hasOrder(plan); accepted != want {
			t.Fatalf("accepted %v (%v), want %v: %+v", accepted, err, want, plan)
		}
	})
}

func TestRefusalsOfAPlan(t *testing.T) {
	t.Parallel()
	task := func(id string, before ...string) Task { return Task{ID: id, Goal: id, DependsOn: before} }
	var many []Task
	for i := range 201 {
		many = append(many, task(fmt.Sprint(i)))
	}
	for name, c := range map[string]struct {
		plan []Task
		want []string
	}{
		"missing": {[]Task{task("a", "x"), task("b", "y")}, []string{`"a" depends on "x"`, `"b" depends on "y"`}},
		"itself":  {[]Task{task("a", "a")}, []string{`"a" depends on itself`}},
		"cycle":   {[]Task{task("z"), task("a", "z", "b"), task("b", "c"), task("c", "a")}, []string{"a → b → c → a"}},
		"many":    {many, []string{"201 tasks", "200"}},
		"twice":   {[]Task{task("a"), task("a")}, []string{`two tasks are called "a"`}},
	} {
		g, err := (&graph{}).commit(many[:2])
		if err != nil {
			t.Fatal(err)
		}
		_, err = g.commit(c.plan)
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		}
	}
	if _, err := (&graph{}).commit(many[:200]); err != nil {
		t.Errorf("200 tasks: %v", err)
	}
}

// plan commits tasks "id" or "id<before,before", for bob, and returns their states.
func (a *member) plan(tasks ...string) map[string]string {
	a.m.t.Helper()
	var listed []Task
	a.call("plan-tasks", args{"tasks": planOf(tasks...)}, &listed)
	return (&graph{listed}).states()
}

func planOf(tasks ...string) []args {
	out := []args{}
	for _, text := range tasks {
		id, before, _ := strings.Cut(text, "<")
		task := args{"id": id, "goal": "do " + id, "assignee": "bob"}
		if before != "" {
			task["dependsOn"] = strings.Split(before, ",")
		}
		out = append(out, task)
	}
	return out
}

func (a *member) tasks() map[string]string {
	a.m.t.Helper()
	var listed []Task
	a.call("task-status", nil, &listed)
	return (&graph{listed}).states()
}

func TestAPlanFromCommitToCompletion(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	both := m.members("alice", "bob")
	alice, bob := both[0], both[1]
	if text := alice.call("task-status", nil, nil); text != "[]" {
		t.Errorf("before any plan: %s", text)
	}
	alice.refused("dispatch-task", args{"taskId": "a"}, "no plan")
	if got, want := alice.plan("a", "b<a", "c<b", "d"), (map[string]string{"a": ready, "b": pending, "c": pending, "d": ready}); !maps.Equal(got, want) {
		t.Errorf("committed: %v, want %v", got, want)
	}
	alice.refused("dispatch-task", args{"taskId": "c"}, `"c" is pending`, "b (pending)")
	alice.refused("dispatch-task", args{"taskId": "x"}, `no task "x"`)
	alice.call("dispatch-task", args{"taskId": "a"}, nil)
	alice.refused("dispatch-task", args{"taskId": "a"}, "dispatched already")
	got := bob.inbox(false)
	if len(got) != 1 || !strings.Contains(got[0], "do a") || !strings.Contains(got[0], `Task "a" of alice's plan`) {
		t.Errorf("bob reads %q", got)
	}
	if text := bob.call("task-status", nil, nil); text != "[]" {
		t.Errorf("bob has a graph: %s", text)
	}
	bob.refused("complete-task", args{"taskId": "a", "outcome": "done"}, "no task") // only the owner completes it
	var became completion
	alice.call("complete-task", args{"taskId": "a", "outcome": "done", "note": "merged"}, &became)
	if !reflect.DeepEqual(became, completion{Ready: []string{"b"}, Blocked: []string{}}) {
		t.Errorf("became %+v", became)
	}
	alice.call("dispatch-task", args{"taskId": "b"}, nil)
	alice.call("complete-task", args{"taskId": "b", "outcome": "failed"}, &became)
	if !reflect.DeepEqual(became, completion{Ready: []string{}, Blocked: []string{"c"}}) {
		t.Errorf("became %+v", became)
	}
	alice.refused("dispatch-task", args{"taskId": "c"}, `"c" is blocked by`, "b (failed)")
	m.stop()
	m.start()
	var listed []Task
	alice.call("task-status", nil, &listed)
	want := map[string]string{"a": done, "b": failed, "c": blocked, "d": ready}
	if got := (&graph{listed}).states(); !maps.Equal(got, want) || listed[0].Note != "merged" || listed[0].SentTo != "bob" {
		t.Errorf("after a restart: %+v", listed)
	}
	// A blocked one stays so until a new plan changes what it depends on.
	if got := alice.plan("a", "b<a", "c<b", "d"); !maps.Equal(got, want) {
		t.Errorf("committed again: %v, want %v", got, want)
	}
	want["c"] = ready
	if got := alice.plan("a", "b<a", "c<a", "d"); !maps.Equal(got, want) {
		t.Errorf("with another dependency: %v, want %v", got, want)
	}
	alice.refused("complete-task", args{"taskId": "a", "outcome": "done"}, "done already")
	alice.refused("complete-task", args{"taskId": "c", "outcome": "done"}, "was not dispatched")
	alice.refused("complete-task", args{"taskId": "c", "outcome": "maybe"}, `"done" or "failed"`)
}

func TestARefusedPlanLeavesTheOneBefore(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	alice := m.members("alice")[0]
	before := alice.plan("a", "b<a")
	alice.refused("plan-tasks", args{"tasks": planOf("a<b", "b<a")}, "a → b → a")
	alice.refused("plan-tasks", args{"tasks": []args{{"id": "x"}}}, `missing required argument "goal" in one of "tasks"`)
	if got := alice.tasks(); !maps.Equal(got, before) {
		t.Errorf("the plan is %v, was %v", got, before)
	}
}

func TestCommittingAgainNeitherRecallsNorRepeats(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	both := m.members("alice", "bob")
	alice, bob := both[0], both[1]
	alice.plan("a", "b")
	alice.call("dispatch-task", args{"taskId": "a"}, nil)
	if got, want := alice.plan("b", "c"), (map[string]string{"a": dispatched, "b": ready, "c": ready}); !maps.Equal(got, want) {
		t.Errorf("left out of a plan, what was dispatched: %v, want %v", got, want)
	}
	alice.plan("a", "b")
	alice.refused("dispatch-task", args{"taskId": "a"}, "dispatched already")
	if got := bob.inbox(false); len(got) != 1 {
		t.Errorf("bob reads %q", got)
	}
}

func TestDispatchThatIsRefusedLeavesTheTaskReady(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	alice := m.members("alice", "bob")[0]
	m.agent("sh", "shell", m.repo)
	alice.call("plan-tasks", args{"tasks": []args{
		{"id": "tags", "goal": "g", "assignee": args{"tags": []string{"nobody's"}}},
		{"id": "nobody", "goal": "g", "assignee": "zoe"},
		{"id": "shell", "goal": "g", "assignee": "sh"},
		{"id": "secret", "goal": "use ghp_" + "Zk3Jq8Xw1Vb6Nf4Ty9Rd2Lc7Ms5Hg0PaUeOi", "assignee": "bob"},
		{"id": "own", "goal": "g"},
	}}, nil)
	for id, want := range map[string]string{"tags": "no agent here carries", "nobody": "nobody here is called", "shell": "is a shell", "secret": "credential", "own": "no assignee"} {
		alice.refused("dispatch-task", args{"taskId": id}, want)
	}
	for id, state := range alice.tasks() {
		if state != ready {
			t.Errorf("%q is %s", id, state)
		}
	}
	alice.call("complete-task", args{"taskId": "own", "outcome": "done"}, nil) // its owner did it
}

// Tags are resolved when a task is dispatched: by the order in which describe-agents recommends.
func TestTagsAreResolvedAtDispatch(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	all := m.members("alice", "dear", "cheap")
	all[0].call("plan-tasks", args{"tasks": []args{{"id": "t", "goal": "review", "assignee": args{"tags": []string{"Review"}}}}}, nil)
	m.describe("alice", "low", "review") // never the caller
	m.describe("dear", "high", "review", "go")
	m.describe("cheap", "low", "REVIEW")
	var listed []Task
	all[0].call("dispatch-task", args{"taskId": "t"}, &listed)
	if listed[0].SentTo != "cheap" || listed[0].Assignee.Agent != "" || len(all[2].inbox(true)) != 1 || len(all[1].inbox(true)) != 0 {
		t.Errorf("dispatched %+v", listed[0])
	}
}

// Whoever works is asked before whoever has to be started for it, and who cannot be started is not asked.
func TestTagsOfAgentsThatDoNotRun(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.withStandIns("")
	alice := m.members("alice", "gone")[0]
	m.hook(socket.Hook{Session: "session-gone", Event: "SessionStart", Source: "startup", Name: "gone"})
	m.hook(socket.Hook{Session: "session-gone", Event: "SessionEnd", Name: "gone"})
	m.describe("gone", "low", "review")
	alice.call("create-agent", args{"name": "asked", "folder": ".", "type": "claude", "tags": "review", "cost": "low"}, nil) // its person has not allowed it
	dispatch := func(want string) {
		t.Helper()
		alice.call("plan-tasks", args{"tasks": []args{{"id": "for-" + want, "goal": "g", "assignee": args{"tags": []string{"review"}}}}}, nil)
		if want == "" {
			alice.refused("dispatch-task", args{"taskId": "for-"}, "no agent here carries")
			return
		}
		var listed []Task
		alice.call("dispatch-task", args{"taskId": "for-" + want}, &listed)
		if listed[0].SentTo != want {
			t.Errorf("it is sent to %q, want %q", listed[0].SentTo, want)
		}
	}
	dispatch("")
	m.must(AgentRequest{Do: "add", Agent: "rests", Type: "claude", Tags: []string{"review"}, Cost: "low"})
	works := m.agent("works", "claude", m.repo)
	m.describe("works", "high", "review")
	works.call("register-agent", nil, nil)
	dispatch("works")
	m.must(AgentRequest{Do: "rm", Agent: "works"})
	dispatch("rests")
	m.shows("rests", heardNudge, 1)
}

// Of two calls at one time that dispatch a task one delivers it.
func TestATaskIsDeliveredOnce(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	both := m.members("alice", "bob")
	both[0].plan("a", "b", "c")
	var calls sync.WaitGroup
	var did atomic.Int32
	for n := range 12 {
		calls.Go(func() {
			got, err := both[0].try("dispatch-task", args{"taskId": string(rune('a' + n%3))})
			if err != nil {
				t.Error(err)
			}
			if !got.Error {
				did.Add(1)
			}
		})
	}
	calls.Wait()
	if got := both[1].inbox(false); did.Load() != 3 || len(got) != 3 {
		t.Errorf("%d calls dispatched, and bob reads %q", did.Load(), got)
	}
}

// A commit is shown to the person.
func TestACommitShowsTheGraph(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	alice := m.members("alice")[0]
	alice.plan("a")
	alice.plan("a", "b")
	if got := m.server.boardOf("alice").Artifacts; !slices.Equal(got, []Artifact{{Kind: TasksArtifact}}) {
		t.Errorf("alice shows %+v", got)
	}
}
