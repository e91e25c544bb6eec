package daemon

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/gitlog"
)

// claim has a session claim files in a repository, and returns what happened.
func (r *repository) claim(d *daemon, session string, paths ...string) []occurrence {
	r.m.t.Helper()
	wt, err := d.clones.find(context.Background(), r.root)
	if err != nil {
		r.m.t.Fatal(err)
	}
	by := wt.party(context.Background(), sessionKey{"claude", session}, "", "")
	return wt.clone.arbiter.request(by, func(who arbiter.Who) arbiter.Request {
		claim := arbiter.Claim{Who: who}
		for _, path := range paths {
			claim.Wants = append(claim.Wants, wt.clone.arbiter.want(path, wt.clone.isHub(path)))
		}
		return claim
	})
}

// holds are the files that sessions hold, "session path" each.
func (r *repository) holds() (out []string) {
	r.m.t.Helper()
	var s Standing
	if _, sentence := r.order("who", aPerson, nil, &s); sentence != "" {
		r.m.t.Fatal(sentence)
	}
	for _, each := range s.Sessions {
		for _, c := range each.Claims {
			out = append(out, each.Session+" "+c.Path)
		}
	}
	slices.Sort(out)
	return out
}

func TestWhoSaysWhoHoldsWhat(t *testing.T) {
	_, r, d := meeting(t, Options{})
	r.claim(d, "alpha-1-session", "src/billing.js")
	r.claim(d, "beta-12-session", "src/billing.js")
	if _, sentence := r.order("plan", anAgent, gitlog.PlanRequest{Text: "half-even everywhere", Decided: []string{"half-even", "at the total"}}, nil); sentence != "" {
		t.Fatal(sentence)
	}
	var s Standing
	r.order("who", aPerson, nil, &s)
	byID := map[string]StandingSession{}
	for _, each := range s.Sessions {
		byID[each.Session] = each
	}
	one, two := byID["alpha-1-session"], byID["beta-12-session"]
	if one.Agent != "claude" || one.Branch != "refs/heads/main" || one.Worktree != r.root || one.Plan != "half-even everywhere" ||
		!slices.Equal(one.Decided, []string{"half-even", "at the total"}) || len(one.Claims) != 1 || one.Claims[0].Path != "src/billing.js" {
		t.Errorf("the holder: %+v", one)
	}
	if len(two.Claims) != 0 || !slices.Equal(two.Waiting, []string{"src/billing.js"}) {
		t.Errorf("who waits: %+v", two)
	}
	if s.You != "ash@example.com" {
		t.Errorf("you are %q", s.You)
	}
	r.order("plan", anAgent, gitlog.PlanRequest{Clear: true}, nil)
	s = Standing{}
	r.order("who", aPerson, nil, &s)
	for _, each := range s.Sessions {
		if each.Plan != "" || len(each.Decided) > 0 {
			t.Errorf("a plan that was cleared: %+v", each)
		}
	}
}

func TestPrivateSessionSharesNoPlan(t *testing.T) {
	_, r, _ := meeting(t, Options{})
	(&agent{r: r, session: "quiet-session"}).hook(EventSessionStart, func(h *socket.Hook) { h.Source, h.Private = "startup", true })
	code, sentence := r.order("plan", &socket.Caller{Session: "quiet-session"}, gitlog.PlanRequest{Text: "a secret plan"}, nil)
	if code != codeRefused || !strings.Contains(sentence, "KNOOT_PRIVATE") {
		t.Errorf("%s %q", code, sentence)
	}
}

func TestReleaseEndsOnesOwnAndForAPersonAnybodys(t *testing.T) {
	_, r, d := meeting(t, Options{})
	body := PathRequest{Path: "src/billing.js"}
	r.claim(d, "alpha-1-session", "src/billing.js", "src/cart.js")
	for who, caller := range map[string]*socket.Caller{"another session": another, "an agent that nobody knows": {Agent: true}} {
		if code, sentence := r.order("release", caller, body, nil); code != codeRefused || !strings.Contains(sentence, "ask your user") {
			t.Errorf("%s: %s %q", who, code, sentence)
		}
	}
	if got := r.holds(); len(got) != 2 {
		t.Fatalf("%q", got)
	}
	var answer ReleaseAnswer
	if _, sentence := r.order("release", anAgent, body, &answer); sentence != "" || !slices.Equal(answer.Released, []string{"claude-alpha-1-"}) {
		t.Errorf("its own: %q, %v", sentence, answer)
	}
	if got := r.holds(); !slices.Equal(got, []string{"alpha-1-session src/cart.js"}) {
		t.Errorf("%q", got)
	}
	if _, sentence := r.order("release", aPerson, PathRequest{Path: "src/cart.js"}, &answer); sentence != "" {
		t.Error(sentence)
	}
	if got := r.holds(); len(got) != 0 {
		t.Errorf("%q", got)
	}
	if code, sentence := r.order("release", aPerson, body, nil); code != codeRefused || !strings.Contains(sentence, "nobody holds src/billing.js") {
		t.Errorf("free: %s %q", code, sentence)
	}
}

func TestTakeGivesAFileToAPerson(t *testing.T) {
	_, r, d := meeting(t, Options{})
	body := PathRequest{Path: "src/billing.js"}
	r.claim(d, "beta-12-session", "src/billing.js")
	for who, caller := range map[string]*socket.Caller{"a session": anAgent, "its holder": another, "a marker": {Agent: true, Terminal: true}} {
		if code, sentence := r.order("take", caller, body, nil); code != codeRefused || !strings.Contains(sentence, "ask your user") {
			t.Errorf("%s: %s %q", who, code, sentence)
		}
	}
	before := d.now()
	for range 2 {
		var answer TakeAnswer
		if _, sentence := r.order("take", aPerson, body, &answer); sentence != "" || answer.Until < before+arbiter.Lease {
			t.Errorf("%q, %+v", sentence, answer)
		}
	}
	var s Standing
	r.order("who", aPerson, nil, &s)
	if !slices.ContainsFunc(s.Sessions, func(each StandingSession) bool {
		return each.Person && each.Member == "ash@example.com" && len(each.Claims) == 1 && each.Claims[0].Path == "src/billing.js"
	}) || len(r.holds()) != 1 {
		t.Errorf("%+v", s)
	}
	var answer ReleaseAnswer
	if _, sentence := r.order("release", aPerson, body, &answer); sentence != "" || !slices.Equal(answer.Released, []string{"ash@example.com"}) {
		t.Errorf("released: %q, %+v", sentence, answer)
	}
}

// waits asks for wait in the background.
func (r *repository) waits(caller *socket.Caller, path string, limit time.Duration) <-chan WaitAnswer {
	answered := make(chan WaitAnswer, 1)
	go func() {
		var a WaitAnswer
		_, _ = r.order("wait", caller, PathRequest{Path: path, For: limit.Milliseconds()}, &a)
		answered <- a
	}()
	return answered
}

func TestWaitEndsWhenTheFileIsFree(t *testing.T) {
	_, r, d := meeting(t, Options{})
	if a := <-r.waits(another, "src/billing.js", time.Minute); !a.Free {
		t.Errorf("a file that nobody holds: %+v", a)
	}
	r.claim(d, "alpha-1-session", "src/billing.js")
	if a := <-r.waits(anAgent, "src/billing.js", time.Minute); !a.Free {
		t.Errorf("one's own file: %+v", a)
	}
	if a := <-r.waits(another, "src/billing.js", 10*time.Millisecond); a.Free || a.By != "claude-alpha-1-" || a.Until == 0 {
		t.Errorf("a file that is held: %+v", a)
	}
	waiting := r.waits(another, "src/billing.js", time.Minute)
	waitFor(t, "the request", func() bool { return d.waiters.Load() == 1 })
	r.order("release", anAgent, PathRequest{Path: "src/billing.js"}, nil)
	if a := <-waiting; !a.Free {
		t.Errorf("after its release: %+v", a)
	}
	if got := r.holds(); len(got) > 0 {
		t.Errorf("waiting claims: %q", got)
	}
}

func TestWaitEndsWithTheDaemonAndWithItsClient(t *testing.T) {
	m, r, d := meeting(t, Options{})
	r.claim(d, "alpha-1-session", "src/billing.js")
	ctx, cancel := context.WithCancel(context.Background())
	asked := make(chan error, 1)
	go func() {
		_, err := m.loc.Ask(ctx, &socket.Request{Op: "wait", Dir: r.root, Caller: another, Body: []byte(`{"path":"src/billing.js","for":60000}`)})
		asked <- err
	}()
	waitFor(t, "the request", func() bool { return d.waiters.Load() == 1 })
	cancel()
	<-asked
	waitFor(t, "its end", func() bool { return d.waiters.Load() == 0 })
	waiting := r.waits(another, "src/billing.js", time.Minute)
	waitFor(t, "the request", func() bool { return d.waiters.Load() == 1 })
	began := time.Now()
	m.mustAsk(&socket.Request{Op: "stop"})
	if a := <-waiting; !a.Again {
		t.Errorf("%+v", a)
	}
	<-d.server.done
	if took := time.Since(began); took > drainTime/2 {
		t.Errorf("the daemon took %v to end", took)
	}
}

func TestHubsAreListedWithTheirQueue(t *testing.T) {
	_, r, d := meeting(t, Options{})
	settings, err := os.ReadFile(r.root + "/.knoot.toml")
	if err != nil {
		t.Fatal(err)
	}
	r.write(".knoot.toml", "hubs = [\"src/billing.js\"]\n"+string(settings))
	wt, err := d.clones.find(context.Background(), r.root)
	if err != nil {
		t.Fatal(err)
	}
	wt.clone.followSettings(context.Background())
	r.claim(d, "alpha-1-session", "src/billing.js")
	r.claim(d, "beta-34-session", "src/billing.js")
	r.claim(d, "gamma-5-session", "src/billing.js")
	var hubs []Hub
	if _, sentence := r.order("hubs", aPerson, nil, &hubs); sentence != "" {
		t.Fatal(sentence)
	}
	if len(hubs) != 1 || hubs[0].Path != "src/billing.js" || !hubs[0].Listed || hubs[0].Branch != "refs/heads/main" ||
		!slices.Equal(hubs[0].Queue, []string{"claude-beta-34-", "claude-gamma-5-"}) || hubs[0].Holder != "claude-alpha-1-" || hubs[0].Until == 0 {
		t.Errorf("%+v", hubs)
	}
}

func TestAFileThatManyWroteIsAHub(t *testing.T) {
	_, r, _ := meeting(t, Options{})
	for _, id := range []string{"alpha-1-session", "beta-12-session", "beta-34-session"} {
		var hubs []Hub
		if r.order("hubs", aPerson, nil, &hubs); len(hubs) != 0 {
			t.Errorf("before %s wrote: %+v", id, hubs)
		}
		a := &agent{r: r, session: id}
		a.hook(EventPreTool, func(h *socket.Hook) {
			h.Tool, h.ToolUse, h.Places[0].Writes = "Write", "call of "+id, []string{"src/billing.js"}
		})
		r.write("src/billing.js", "by "+id+"\n")
		a.hook(EventPostTool, func(h *socket.Hook) {
			h.Tool, h.ToolUse, h.Places[0].Writes = "Write", "call of "+id, []string{"src/billing.js"}
		})
		r.order("release", &socket.Caller{Session: id}, PathRequest{Path: "src/billing.js"}, nil)
	}
	var hubs []Hub
	r.order("hubs", aPerson, nil, &hubs)
	if len(hubs) != 1 || hubs[0].Path != "src/billing.js" || hubs[0].Listed || hubs[0].Holder != "" || hubs[0].Until != 0 || len(hubs[0].Queue) != 0 {
		t.Errorf("%+v", hubs)
	}
}
