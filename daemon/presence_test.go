package daemon

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/gitlog"
)

// person is somebody who runs `knoot present` in a repository.
type person struct {
	r     *repository
	d     *daemon
	clock *clock
	stop  context.CancelFunc
	ended chan *socket.Response // the answer to present; nil: none came
}

// arrive makes a person present.
func (r *repository) arrive(d *daemon, clock *clock, doing string) *person {
	t := r.m.t
	t.Helper()
	p := &person{r: r, d: d, clock: clock, ended: make(chan *socket.Response, 1)}
	var ctx context.Context
	ctx, p.stop = context.WithCancel(context.Background())
	t.Cleanup(p.stop)
	body, err := json.Marshal(PresentRequest{Doing: doing})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		answer, _ := r.m.loc.Ask(ctx, &socket.Request{Op: "present", Dir: r.root, Caller: &socket.Caller{Terminal: true}, Body: body})
		p.ended <- answer
	}()
	waitFor(t, "the person is present", func() bool { return p.standing() != nil })
	return p
}

// standing is the person as who has them; nil: they are not there.
func (p *person) standing() *StandingSession {
	s := p.r.worktreeOf(p.d).clone.arbiter.standing()
	for i := range s.Sessions {
		if s.Sessions[i].Person && s.Sessions[i].Worktree == p.r.root {
			return &s.Sessions[i]
		}
	}
	return nil
}

func (p *person) holds() (paths []string) {
	if s := p.standing(); s != nil {
		for _, c := range s.Claims {
			paths = append(paths, c.Path)
		}
	}
	slices.Sort(paths)
	return paths
}

func (p *person) touch(paths ...string) *TouchedAnswer {
	p.r.m.t.Helper()
	var r TouchedRequest
	for _, path := range paths {
		r.Files = append(r.Files, TouchedFile{Path: path, At: gitlog.MillisOf(p.clock.now())})
	}
	body, err := json.Marshal(r)
	if err != nil {
		p.r.m.t.Fatal(err)
	}
	var answer TouchedAnswer
	resp := p.r.m.mustAsk(&socket.Request{Op: "touched", Dir: p.r.root, Caller: &socket.Caller{Terminal: true}, Body: body})
	if err := json.Unmarshal(resp.Body, &answer); err != nil {
		p.r.m.t.Fatal(err)
	}
	return &answer
}

func inShop(t *testing.T) (*repository, *daemon, *clock) {
	m := newMachine(t)
	r := m.repository("shop")
	r.write("src/tax.js", "tax\n")
	r.write(".gitignore", "*.log\n")
	m.git(r.root, "add", "-A")
	m.git(r.root, "commit", "-qm", "settings")
	clock := newClock()
	return r, m.start(Options{Now: clock.now}), clock
}

func TestPresenceClaimsWhatAPersonChanges(t *testing.T) {
	r, d, clock := inShop(t)
	p := r.arrive(d, clock, "rounding\n by hand")
	if s := p.standing(); s.Intent != "rounding by hand" || s.Member != "ash@example.com" || s.Branch != "refs/heads/main" || len(s.Claims) != 0 {
		t.Errorf("at the start: %+v", s)
	}
	r.write("src/billing.js", "floats\n")
	r.write("src/new.js", "new\n")
	r.write("debug.log", "x\n")
	r.write("go.sum", "x\n")
	answer := p.touch("src/billing.js", "src/new.js", "src/tax.js", "debug.log", "go.sum", ".git/index", "gone.js")
	if len(answer.Yours) != 2 || !answer.Yours[0].New || len(answer.Held) != 0 {
		t.Errorf("answered %+v", answer)
	}
	if got := p.holds(); !slices.Equal(got, []string{"src/billing.js", "src/new.js"}) {
		t.Errorf("the person holds %q", got)
	}

	// Each save renews, and nothing else does.
	until := p.standing().Claims[0].Until
	clock.pass(4 * time.Minute)
	d.presences.tick(context.Background())
	if got := p.standing().Claims[0].Until; got != until {
		t.Errorf("time alone moved the lease by %d ms", got-until)
	}
	r.write("src/billing.js", "more floats\n")
	if answer := p.touch("src/billing.js"); len(answer.Yours) != 1 || answer.Yours[0].New || answer.Yours[0].Until <= until {
		t.Errorf("a save: %+v, before %d", answer, until)
	}

	// Another person's session is refused, the person's own is not.
	a := r.worktreeOf(d).clone.arbiter
	blocks := func(owner string) (blocked bool) {
		by := party{Key: sessionKey{"claude", "one"}, Owner: owner, Root: r.root, Branch: "refs/heads/main"}
		a.look(func(v *arbiter.View, now gitlog.Millis) {
			_, blocked = v.Blocks(a.who(by), a.want("src/billing.js", false), now)
		})
		return blocked
	}
	if !blocks("sam@example.com") || blocks("ash@example.com") {
		t.Errorf("refused are sam's session %v, ash's %v", blocks("sam@example.com"), blocks("ash@example.com"))
	}

	p.stop()
	waitFor(t, "the person has left", func() bool { return p.standing() == nil })
	if blocks("sam@example.com") {
		t.Error("the claim outlived the presence")
	}
}

func TestChangesThatAreNotThePersons(t *testing.T) {
	r, d, clock := inShop(t)
	p := r.arrive(d, clock, "")
	one := &agent{r: r, session: "one"}
	call := func(event, tool, use string, shell bool, writes ...string) {
		one.hook(event, func(h *socket.Hook) {
			h.Tool, h.ToolUse, h.Shell = tool, use, shell
			h.Places[0].Writes = writes
		})
	}
	none := func(when string, paths ...string) {
		t.Helper()
		if answer := p.touch(paths...); len(answer.Yours)+len(answer.Held) != 0 {
			t.Errorf("%s: %+v", when, answer)
		}
	}
	r.write("src/billing.js", "an agent's\n")
	call(EventPostTool, "Write", "1", false, "src/billing.js")
	clock.pass(1500 * time.Millisecond)
	none("a hook reported it within 2 s", "src/billing.js")

	r.write("src/shell.js", "a shell's\n")
	call(EventPreTool, "Bash", "2", true)
	clock.pass(time.Minute)
	none("a shell command runs", "src/shell.js")
	call(EventPostTool, "Bash", "2", true)
	clock.pass(time.Second)
	none("a shell command has just ended", "src/shell.js")
	one.hook(eventStop, nil)
	clock.pass(3 * time.Second)
	if answer := p.touch("src/shell.js"); len(answer.Yours) != 1 {
		t.Errorf("long after it: %+v", answer)
	}

	call(EventPreTool, "Bash", "3", true)
	if answer := p.touch("src/shell.js"); len(answer.Yours) != 1 || answer.Yours[0].New {
		t.Errorf("the person's file, while a shell command runs: %+v", answer)
	}
	one.hook(eventStop, nil)
	clock.pass(3 * time.Second)
	if answer := p.touch("src/shell.js"); len(answer.Yours) != 1 {
		t.Errorf("a call whose end nobody told: %+v", answer)
	}

	// What a pull brings is as HEAD has it.
	r.write("src/pulled.js", "pulled\n")
	r.m.git(r.root, "add", "src/pulled.js")
	r.m.git(r.root, "commit", "-qm", "pulled")
	none("HEAD moved", "src/pulled.js")
}

func TestPersonChangesWhatAnAgentHolds(t *testing.T) {
	r, d, clock := inShop(t)
	p := r.arrive(d, clock, "")
	a := r.worktreeOf(d).clone.arbiter
	one := party{Key: sessionKey{"claude", "one"}, Owner: "sam@example.com", Root: r.root, Branch: "refs/heads/main"}
	a.claimFor(t, one, "src/billing.js")
	r.write("src/billing.js", "mine\n")
	answer := p.touch("src/billing.js")
	if len(answer.Yours) != 0 || len(answer.Held) != 1 || answer.Held[0].By != "claude-one" {
		t.Errorf("answered %+v", answer)
	}
	if got := p.holds(); len(got) != 0 {
		t.Errorf("the person took %q", got)
	}
}

func TestPresenceFollowsHead(t *testing.T) {
	r, d, clock := inShop(t)
	p := r.arrive(d, clock, "")
	r.write("src/billing.js", "floats\n")
	p.touch("src/billing.js")
	r.m.git(r.root, "switch", "-q", "-c", "topic")
	d.presences.tick(context.Background())
	s := p.standing()
	if s.Branch != "refs/heads/topic" || len(s.Claims) != 1 || s.Claims[0].Branch != "refs/heads/topic" {
		t.Errorf("after a switch: %+v", s)
	}
}

// A daemon that ends leaves people present: their command finds the next one.
func TestPresenceSurvivesTheDaemon(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	var p *person
	t.Run("before", func(t *testing.T) {
		m := &machine{t: t, loc: m.loc, vars: m.vars}
		clock := newClock()
		r := &repository{m: m, root: r.root}
		p = r.arrive(m.start(Options{Now: clock.now}), clock, "rounding")
		r.write("src/billing.js", "floats\n")
		p.touch("src/billing.js")
		p.d.end(errHandedOver)
		answer := <-p.ended
		var body PresentAnswer
		if answer == nil || json.Unmarshal(answer.Body, &body) != nil || !body.Again {
			t.Errorf("the daemon ended with %+v", answer)
		}
	})
	p.d, p.r = m.start(Options{}), &repository{m: m, root: r.root}
	if s := p.standing(); s == nil || s.Intent != "rounding" || len(s.Claims) != 1 {
		t.Errorf("in the next daemon: %+v", s)
	}
}

func TestWhoCannotBePresent(t *testing.T) {
	r, _, _ := inShop(t)
	ask := func(caller *socket.Caller) string {
		resp, err := r.m.ask(&socket.Request{Op: "present", Dir: r.root, Caller: caller, Body: json.RawMessage(`{}`)})
		if err != nil {
			t.Fatal(err)
		}
		return resp.Code
	}
	if code := ask(&socket.Caller{Agent: true}); code != codeRefused {
		t.Errorf("an agent is answered %q", code)
	}
}
