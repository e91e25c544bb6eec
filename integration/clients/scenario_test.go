package clients

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// scene is a scenario that is played with a client.
type scene struct {
	*testing.T
	client client
	world  *world
	ctx    context.Context
}

// scenarios are what has to hold with each client. One that a client has no means for says so, with t.Skip.
var scenarios = []struct {
	short, name string
	play        func(*scene)
}{
	{"lists", "it connects, and lists the tools, all of them", listsTheTools},
	{"calls", "it registers, writes to another agent and reads the answer, and plans tasks", callsTools},
	{"lenient", "arguments as models send them are taken: a number for a text, a text for a truth or a list, null for what is left out", isLenient},
	{"missing", "a required argument that is missing is named", namesWhatIsMissing},
	{"refusal", "a refusal is a result, no failure of the protocol, which an unknown tool is; the connection goes on", refusalsAreResults},
	{"restart", "the daemon is killed and started again in the middle: the next call works, in the same session", survivesARestart},
	{"newer", "a newer connection takes the agent over, and the older is told; one without sessions goes on", isTakenOver},
	{"secret", "with a wrong secret it is told no, and gets nothing", isKeptOut},
	{"stream", "its stream opens and is there until it leaves; one that asks for news of tools hears at once that there will be none", keepsItsStream},
}

func TestScenarios(t *testing.T) {
	for _, c := range clients(t) {
		t.Run(c.title(), func(t *testing.T) {
			results.begin(c)
			t.Parallel()
			if err := able(c); err != nil {
				results.skip(c, err.Error())
				t.Skip(err)
			}
			w := newWorld(t)
			for _, scenario := range scenarios {
				t.Run(scenario.short, func(t *testing.T) {
					t.Cleanup(func() { results.add(t, c, scenario.name) })
					scenario.play(&scene{T: t, client: c, world: w, ctx: deadline(t)})
				})
			}
		})
	}
}

// able says why a client cannot be tried.
func able(c client) error {
	switch {
	case c.missing != nil:
		return c.missing
	case c.name != "go-sdk" && testing.Short():
		return errors.New("programs of others take seconds; -short leaves them out")
	case c.name != "go-sdk" && notIsolated != nil:
		return errors.New("programs of others run without a network only: " + notIsolated.Error())
	}
	return nil
}

// open connects the scene's client, until the test ends.
func (s *scene) open(e *endpoint) session {
	s.Helper()
	opened, err := s.client.open(s.ctx, e)
	if err != nil {
		s.Fatalf("it cannot connect: %v", err)
	}
	s.Cleanup(func() { opened.close() })
	return opened
}

// calls calls a tool, and returns its text; it may not fail.
func (s *scene) calls(by session, tool, arguments string) string {
	s.Helper()
	got, err := by.call(tool, arguments)
	if err != nil || got.failed {
		s.Fatalf("%s %s: %v, %+v", tool, arguments, err, got)
	}
	return got.text
}

// refused calls a tool that refuses, with a text that holds why.
func (s *scene) refused(by session, tool, arguments, why string) {
	s.Helper()
	got, err := by.call(tool, arguments)
	if err != nil || !got.failed && !s.client.unmarked || !strings.Contains(got.text, why) {
		s.Errorf("%s %s: %v, %+v; it should be refused with %q", tool, arguments, err, got, why)
	}
}

// other connects a client that works, as somebody whom the client under test meets: the SDK's for Go, in the protocol with sessions.
func (s *scene) other(e *endpoint) session {
	s.Helper()
	opened, err := openGoSDK("2025-11-25")(s.ctx, e)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { opened.close() })
	return opened
}

// named is arguments with the caller's id.
func (e *endpoint) named(arguments string) string {
	return `{"agentId":"` + e.Agent + `"` + arguments + `}`
}

// allTools are the tools of the manual.
var allTools = []string{"register-agent", "list-agents", "describe-agents", "list-repos", "list-worktrees", "send-message", "check-messages",
	"broadcast-message", "create-agent", "close-agent", "create-worktree", "set-status", "display-markdown", "view-mermaid", "show-checklist",
	"get-checklist", "plan-tasks", "dispatch-task", "complete-task", "task-status", "remember", "recall", "why", "who", "plan", "claim", "release"}

func listsTheTools(s *scene) {
	got, err := s.open(s.world.agent(s.T, "alice")).tools()
	if err != nil {
		s.Fatal(err)
	}
	slices.Sort(got)
	if want := slices.Sorted(slices.Values(allTools)); !slices.Equal(got, want) {
		s.Errorf("it sees the tools %q\nthere are         %q", got, want)
	}
}

// decoded is a tool's answer in JSON.
func decoded[T any](s *scene, text string) (v T) {
	s.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		s.Fatalf("%v: %s", err, text)
	}
	return v
}

func callsTools(s *scene) {
	alice, bob := s.world.agent(s.T, "alice"), s.world.agent(s.T, "bob")
	hers, his := s.open(alice), s.other(bob)
	registered := decoded[struct{ Members []struct{ ID string } }](s, s.calls(hers, "register-agent", alice.named("")))
	if !slices.ContainsFunc(registered.Members, func(m struct{ ID string }) bool { return m.ID == bob.Agent }) {
		s.Errorf("register-agent: alice sees %+v", registered)
	}
	if sent := decoded[struct{ ID string }](s, s.calls(hers, "send-message", alice.named(`,"to":"`+bob.Agent+`","message":"is the \"parser\" yours? ☂"`))); sent.ID == "" {
		s.Error("send-message: no id")
	}
	type message struct{ From, Text string }
	if got := decoded[[]message](s, s.calls(his, "check-messages", bob.named(""))); !slices.Equal(got, []message{{alice.Agent, `is the "parser" yours? ☂`}}) {
		s.Errorf("bob reads %+v", got)
	}
	s.calls(his, "send-message", bob.named(`,"to":"`+alice.Agent+`","message":"it is"`))
	if got := decoded[[]message](s, s.calls(hers, "check-messages", alice.named(""))); !slices.Equal(got, []message{{bob.Agent, "it is"}}) {
		s.Errorf("alice reads %+v", got)
	}
	planned := s.calls(hers, "plan-tasks", alice.named(`,"tasks":[{"id":"parse","goal":"parse dates","assignee":"`+bob.Agent+`"},{"id":"docs","goal":"say so","dependsOn":["parse"]}]`))
	type task struct{ ID, State string }
	if got := decoded[[]task](s, planned); !slices.Equal(got, []task{{"parse", "ready"}, {"docs", "pending"}}) {
		s.Errorf("plan-tasks: %+v", got)
	}
}

func isLenient(s *scene) {
	alice, bob := s.world.agent(s.T, "alice"), s.world.agent(s.T, "bob")
	hers, his := s.open(alice), s.other(bob)
	s.calls(hers, "register-agent", alice.named(`,"sessionId":null`))
	s.calls(hers, "send-message", alice.named(`,"to":"`+bob.Agent+`","message":5,"urgent":"false"`))
	if got := decoded[[]struct{ Text string }](s, s.calls(his, "check-messages", bob.named(""))); len(got) != 1 || got[0].Text != "5" {
		s.Errorf("bob reads %+v", got)
	}
	s.calls(his, "send-message", bob.named(`,"to":"`+alice.Agent+`","message":"6"`))
	for _, peek := range []string{`"true"`, `null`} { // the first leaves it unread
		if got := decoded[[]any](s, s.calls(hers, "check-messages", alice.named(`,"peek":`+peek))); len(got) != 1 {
			s.Errorf("with peek %s alice reads %+v", peek, got)
		}
	}
	if got := decoded[[]any](s, s.calls(hers, "plan-tasks", alice.named(`,"tasks":"[{\"id\":\"one\",\"goal\":\"a list that is a text\"}]"`))); len(got) != 1 {
		s.Errorf("plan-tasks: %+v", got)
	}
}

func namesWhatIsMissing(s *scene) {
	alice := s.world.agent(s.T, "alice")
	hers := s.open(alice)
	s.refused(hers, "send-message", alice.named(`,"message":"hello"`), `missing required argument "to"`)
	s.refused(hers, "plan-tasks", alice.named(""), `missing required argument "tasks"`)
	s.refused(hers, "set-status", `{"status":"hello"}`, `missing required argument "agentId"`)
}

func refusalsAreResults(s *scene) {
	alice := s.world.agent(s.T, "alice")
	hers := s.open(alice)
	s.calls(hers, "register-agent", alice.named(""))
	s.refused(hers, "send-message", alice.named(`,"to":"nobody","message":"hello"`), "nobody")
	s.refused(hers, "set-status", `{"agentId":"somebody-else","status":"hello"}`, "this connection is "+alice.Agent+"'s")
	if got, err := hers.call("no-such-tool", alice.named("")); err == nil && !s.client.stays {
		s.Errorf("a tool that is not there: %+v", got)
	}
	s.calls(hers, "set-status", alice.named(`,"status":"goes on"`))
}

func survivesARestart(s *scene) {
	alice := s.world.agent(s.T, "alice")
	hers := s.open(alice)
	s.calls(hers, "set-status", alice.named(`,"status":"before"`))
	before, err := hers.id()
	if err != nil {
		s.Fatal(err)
	}
	alice.restart()
	s.calls(hers, "set-status", alice.named(`,"status":"after"`))
	after, err := hers.id()
	if err != nil || after != before || (before == "") != (s.client.protocol == sessionless || s.client.calls || s.client.stays) {
		s.Errorf("its session was %q, and is %q: %v", before, after, err)
	}
	if text := s.calls(hers, "list-agents", alice.named("")); !strings.Contains(text, `"after"`) {
		s.Errorf("after the restart the agents are %s", text)
	}
}

func isTakenOver(s *scene) {
	alice := s.world.agent(s.T, "alice")
	older := s.open(alice)
	if s.client.calls {
		older = s.other(alice) // its own connections end with each call
	}
	s.calls(older, "set-status", alice.named(`,"status":"older"`))
	newer := s.open(alice)
	s.calls(newer, "set-status", alice.named(`,"status":"newer"`))
	if s.client.protocol == sessionless {
		s.calls(older, "set-status", alice.named(`,"status":"both"`))
	} else {
		s.refused(older, "set-status", alice.named(`,"status":"older again"`), "another connection works as "+alice.Agent+" now")
	}
	s.calls(newer, "set-status", alice.named(`,"status":"newer again"`))
}

func isKeptOut(s *scene) {
	const why = "this is not the agent's secret"
	alice := s.world.agent(s.T, "alice")
	wrong := alice.withSecret(strings.Repeat("0", 32))
	opened, err := s.client.open(s.ctx, wrong)
	if err == nil {
		defer opened.close()
		var tools []string
		if tools, err = opened.tools(); len(tools) > 0 {
			s.Fatalf("it sees %q", tools)
		}
	}
	switch {
	case s.client.stays: // its person is told by `claude mcp list` and the like; its model has no tools
	case err == nil:
		s.Error("it takes it that it is connected")
	case !strings.Contains(err.Error(), why) && !strings.Contains(err.Error(), "403") && !strings.Contains(err.Error(), "Forbidden"):
		s.Errorf("it says %v", err)
	}
	s.Logf("it says: %v", err)
	for !strings.Contains(s.world.log(), why) { // an agent's model may be asked before its program connects
		select {
		case <-s.ctx.Done():
			s.Fatalf("the daemon's log does not say so:\n%s", s.world.log())
		case <-time.After(20 * time.Millisecond):
		}
	}
	if log := s.world.log(); strings.Contains(log, wrong.Headers["Authorization"][len("Bearer "):]) {
		s.Errorf("the daemon's log has the secret:\n%s", log)
	}
}

func keepsItsStream(s *scene) {
	if s.client.silent {
		s.Skip("it opens none")
	}
	alice := s.world.agent(s.T, "alice")
	tap := newTap(s.T, alice, nil)
	hers := s.open(alice.through(tap.address()))
	if err := hers.listen(); err != nil {
		s.Fatal(err)
	}
	isStream := func(x exchange) bool {
		return x.stream && x.status == 200 && x.bytes > 0 && (x.method == "GET" || x.message == "subscriptions/listen")
	}
	ctx, cancel := context.WithTimeout(s.ctx, 30*time.Second)
	defer cancel()
	ends := s.client.protocol == sessionless
	if _, opened := tap.await(ctx, func(x exchange) bool { return isStream(x) && (x.ended || !ends) }); !opened {
		s.Fatalf("no stream was opened, or ended as it should: %+v", tap.all())
	}
	s.calls(hers, "register-agent", alice.named(""))
	open, called := 0, false
	for _, x := range tap.all() {
		if isStream(x) && !x.ended {
			open++
		}
		if x.message == "tools/call" {
			called = true
			if x.protocol != s.client.protocol {
				s.Errorf("it speaks %s", x.protocol)
			}
		}
	}
	if (open == 0) != ends || open > 1 || !called {
		s.Errorf("after a call %d streams are open: %+v", open, tap.all())
	}
	if err := hers.close(); err != nil {
		s.Fatal(err)
	}
	if _, ended := tap.await(ctx, func(x exchange) bool { return isStream(x) && x.ended }); !ended {
		s.Errorf("its stream does not end with it: %+v", tap.all())
	}
}
