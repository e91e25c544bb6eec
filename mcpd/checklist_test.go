package mcpd

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"knoot.dev/knoot/daemon"
)

// list reads the checklist as the agent gets it.
func (a *member) checklist() Checklist {
	a.m.t.Helper()
	var list Checklist
	a.call("get-checklist", nil, &list)
	return list
}

func (m *machine) fillIn(agent, id string, ticked bool, answer string) {
	m.t.Helper()
	if err := m.server.fillIn(agent, id, ticked, answer); err != nil {
		m.t.Fatal(err)
	}
}

func TestChecklistIsReadAsThePersonLeftIt(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	alice := m.members("alice")[0]
	alice.refused("get-checklist", nil, "show-checklist")
	alice.call("show-checklist", args{"title": "Before the release", "items": []args{
		{"id": "tests", "text": "are the tests green?"}, {"id": "name", "text": "what is it called?", "kind": "question"}, {"id": "docs", "text": "read the docs", "kind": "check"},
	}}, nil)
	want := Checklist{Title: "Before the release", Items: []Item{{ID: "tests", Text: "are the tests green?", Kind: "check"},
		{ID: "name", Text: "what is it called?", Kind: "question"}, {ID: "docs", Text: "read the docs", Kind: "check"}}}
	if got := alice.checklist(); !reflect.DeepEqual(got, want) {
		t.Errorf("shown: %+v, want %+v", got, want)
	}
	m.fillIn("alice", "tests", true, "")
	want.Items[0].Ticked = true
	if got := alice.checklist(); !reflect.DeepEqual(got, want) { // recorded as it is done
		t.Errorf("ticked: %+v, want %+v", got, want)
	}
	m.fillIn("alice", "name", true, "Aurora")
	want.Items[1].Answer = "Aurora"
	m.stop() // closing and opening loses nothing
	m.start()
	if got := alice.checklist(); !reflect.DeepEqual(got, want) {
		t.Errorf("answered: %+v, want %+v", got, want)
	}
	if err := m.server.fillIn("alice", "none", true, ""); err == nil {
		t.Error("an item that is not there is ticked")
	}
}

func TestSendDeliversTheWholeList(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	alice := m.members("alice")[0]
	alice.call("show-checklist", args{"title": "L", "items": []args{{"id": "a", "text": "x"}, {"id": "b", "text": "y"},
		{"id": "c", "text": "z", "kind": "question"}, {"id": "d", "text": "z", "kind": "question"}}}, nil)
	m.fillIn("alice", "a", true, "")
	m.fillIn("alice", "c", false, strings.Repeat("long ", 300))
	if err := m.server.sendChecklist(t.Context(), "alice"); err != nil {
		t.Fatal(err)
	}
	var got []daemon.Message
	alice.call("check-messages", nil, &got)
	want := "Checklist \"L\":\na: ticked\nb: not ticked\nc: " + strings.Repeat("long ", 300) + "\nd: not answered"
	if len(got) != 1 || got[0].Text != want || got[0].Kind != "person" {
		t.Errorf("alice reads %+v, want %q", got, want)
	}
	if !alice.checklist().Sent {
		t.Error("it does not say that it was sent")
	}
	m.fillIn("alice", "b", true, "")
	if alice.checklist().Sent {
		t.Error("it says that it was sent as it is now")
	}
}

// The person sees what an agent shows, and fills its checklist in, by commands.
func TestTheCommandsOfABoard(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	alice := m.members("alice")[0]
	m.Write(m.repo+"/plan.md", "# Plan\n")
	alice.call("display-markdown", args{"path": "plan.md"}, nil)
	alice.call("plan-tasks", args{"tasks": []args{{"id": "a", "goal": "go"}}}, nil)
	alice.call("show-checklist", args{"title": "L", "items": []args{{"id": "a", "text": "x"}, {"id": "b", "text": "y", "kind": "question"}}}, nil)
	shown := m.must(AgentRequest{Do: "show", Agent: "alice"}).Shown
	var kinds []string
	for _, a := range shown.Artifacts {
		kinds = append(kinds, a.Kind)
	}
	if !slices.Equal(kinds, []string{MarkdownArtifact, TasksArtifact, ChecklistArtifact}) || len(shown.Tasks) != 1 || shown.Tasks[0].State != "ready" {
		t.Errorf("shown are %q and the tasks %+v", kinds, shown.Tasks)
	}
	m.must(AgentRequest{Do: "fill", Agent: "alice", Item: "a", Ticked: true})
	filled := m.must(AgentRequest{Do: "fill", Agent: "alice", Item: "b", Ticked: true, Answer: "so", Send: true}).Shown.Checklist
	if items := alice.checklist().Items; !items[0].Ticked || items[1].Answer != "so" || !filled.Sent {
		t.Errorf("alice has %+v, the person %+v", items, filled)
	}
	var got []daemon.Message
	if alice.call("check-messages", nil, &got); len(got) != 1 || got[0].Text != "Checklist \"L\":\na: ticked\nb: so" {
		t.Errorf("alice reads %+v", got)
	}
	m.must(AgentRequest{Do: "fill", Agent: "alice", Item: "a"})
	m.must(AgentRequest{Do: "fill", Agent: "alice", Item: "b"})
	if items := alice.checklist().Items; items[0].Ticked || items[1].Answer != "" {
		t.Errorf("taken back: %+v", items)
	}
	for want, r := range map[string]AgentRequest{
		"is a question: say the answer": {Item: "b", Ticked: true}, "is no question": {Item: "a", Ticked: true, Answer: "so"}, `no item "c"`: {Item: "c", Ticked: true},
		"may have 2000": {Item: "b", Ticked: true, Answer: strings.Repeat("x", 2001)},
	} {
		r.Do, r.Agent = "fill", "alice"
		if _, err := m.do(r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", r, err, want)
		}
	}
}

func TestShownAgainAChecklistKeepsItsAnswers(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	alice := m.members("alice")[0]
	show := func(items ...args) { alice.call("show-checklist", args{"title": "L", "items": items}, nil) }
	show(args{"id": "a", "text": "x"}, args{"id": "b", "text": "y"}, args{"id": "c", "text": "z", "kind": "question"})
	m.fillIn("alice", "a", true, "")
	m.fillIn("alice", "b", true, "")
	m.fillIn("alice", "c", false, "so")
	show(args{"id": "c", "text": "asked in other words", "kind": "question"}, args{"id": "b", "text": "y", "kind": "question"}, args{"id": "a", "text": "x"}, args{"id": "new", "text": "n"})
	want := []Item{{ID: "c", Text: "asked in other words", Kind: "question", Answer: "so"}, {ID: "b", Text: "y", Kind: "question"},
		{ID: "a", Text: "x", Kind: "check", Ticked: true}, {ID: "new", Text: "n", Kind: "check"}}
	if got := alice.checklist().Items; !reflect.DeepEqual(got, want) {
		t.Errorf("shown again: %+v, want %+v", got, want)
	}
}

func TestChecklistsThatAreNone(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	alice := m.members("alice")[0]
	for want, items := range map[string]any{
		`missing required argument "items"`: nil, "1 to 100 items": []args{}, `missing required argument "id" in one of "items"`: []args{{"text": "x"}},
		`missing required argument "text" in one of "items"`: []args{{"id": "x"}}, `"check" or "question"`: []args{{"id": "x", "text": "x", "kind": "radio"}},
		`two items are called "x"`: []args{{"id": "x", "text": "x"}, {"id": "x", "text": "y"}}, "list of objects": 7,
	} {
		alice.refused("show-checklist", args{"title": "L", "items": items}, want)
	}
}

func TestBoard(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	alice := m.members("alice")[0]
	m.Write(m.repo+"/plan.md", "# Plan\n")
	alice.call("display-markdown", args{"path": "plan.md"}, nil)
	alice.call("view-mermaid", args{"diagram": "graph TD; a-->b", "title": "flow"}, nil)
	alice.call("view-mermaid", args{"diagram": "graph TD; a-->c", "title": "flow"}, nil) // in the place of the one before
	alice.call("display-markdown", args{"path": m.repo + "/plan.md", "expanded": true}, nil)
	alice.refused("display-markdown", args{"path": "none.md"}, "none.md")
	alice.refused("display-markdown", args{"path": "src"}, "is no file")
	alice.refused("view-mermaid", args{"diagram": strings.Repeat("x", 70_000)}, "70000 bytes")
	m.stop()
	m.start()
	m.address()
	want := []Artifact{{Kind: "mermaid", Title: "flow", Diagram: "graph TD; a-->c"}, {Kind: "markdown", Title: "plan.md", Path: m.repo + "/plan.md", Expanded: true}}
	if got := m.server.boardOf("alice").Artifacts; !reflect.DeepEqual(got, want) {
		t.Errorf("alice shows %+v, want %+v", got, want)
	}
}
