package mcpd

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"knoot.dev/knoot/daemon"
	"knoot.dev/knoot/daemon/socket"
)

// recalled are the names of facts that a tool finds.
func (a *member) recalled(arguments args) (names []string) {
	a.m.t.Helper()
	var found []struct{ Name, Kind, Text string }
	a.call("recall", arguments, &found)
	for _, f := range found {
		if f.Kind == "fact" {
			names = append(names, f.Name+": "+f.Text)
		}
	}
	return names
}

func TestWhatATokenlessAgentRemembersACommandFinds(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	alice := m.agent("alice", "cursor", m.repo)
	alice.call("remember", args{"name": "money", "text": "all money is integer cents", "paths": "src/billing.js"}, nil)
	if out := m.Knoot(m.repo, "recall", "money"); !strings.Contains(out, "all money is integer cents") || !strings.Contains(out, "src/billing.js") {
		t.Errorf("recall prints %q", out)
	}
	m.Knoot(m.repo, "remember", "--name", "rounding", "half-even everywhere")
	want := []string{"money: all money is integer cents", "rounding: half-even everywhere"}
	got := alice.recalled(nil)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("recall finds %q, want %q", got, want)
	}
	if got := alice.recalled(args{"query": "rounding"}); !slices.Equal(got, want[1:]) {
		t.Errorf("by a word it finds %q", got)
	}
	if got := alice.recalled(args{"path": m.repo + "/src"}); !slices.Equal(got, want[:1]) {
		t.Errorf("by a path it finds %q", got)
	}
	if text := alice.call("recall", args{"query": "nothing of the kind"}, nil); text != "[]" {
		t.Errorf("what is not there is %s", text)
	}
	if text := alice.call("why", args{"path": "src/billing.js"}, nil); !strings.Contains(text, "integer cents") || !strings.Contains(text, `"subject":"start"`) {
		t.Errorf("why: %s", text)
	}
	alice.refused("remember", args{"name": "key", "text": "use ghp_" + "Zk3Jq8Xw1Vb6Nf4Ty9Rd2Lc7Ms5Hg0PaUeOi"}, "credential")
	alice.refused("recall", args{"path": "/etc/passwd"}, "outside of this repository")
}

func TestPlansAreSeenByOthers(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	alice := m.agent("alice", "cursor", m.repo)
	alice.call("claim", args{"paths": []string{"src/billing.js"}}, nil) // who is at work is known by claims
	alice.call("plan", args{"text": "rewriting the rounding of invoices", "decided": `["half-even"]`}, nil)
	var answer daemon.WhoAnswer
	alice.call("who", nil, &answer)
	if len(answer.Sessions) != 1 {
		t.Fatalf("who: %+v", answer)
	}
	s := answer.Sessions[0]
	if s.Session != "alice" || s.Agent != "cursor" || s.Plan != "rewriting the rounding of invoices" || !slices.Equal(s.Decided, []string{"half-even"}) ||
		len(s.Claims) != 1 || s.Claims[0].Path != "src/billing.js" {
		t.Errorf("who: %+v", s)
	}
	if out := m.Knoot(m.repo, "who"); !strings.Contains(out, "rewriting the rounding") {
		t.Errorf("knoot who: %q", out)
	}
	if got := alice.call("plan", nil, nil); got != "The plan is cleared." {
		t.Errorf("an empty plan: %q", got)
	}
	alice.call("who", nil, &answer)
	if answer.Sessions[0].Plan != "" {
		t.Errorf("cleared, the plan is %q", answer.Sessions[0].Plan)
	}
}

func TestClaimIsAllOrNone(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	began := time.Now()
	var passed atomic.Int64
	pass := func(d time.Duration) { passed.Add(int64(d)) }
	m.stop()
	m.clock = func() time.Time { return began.Add(time.Duration(passed.Load())) }
	m.start()
	alice, bob := m.agent("alice", "cursor", m.repo), m.agent("bob", "gemini", m.repo)
	var answer daemon.ClaimAnswer
	alice.call("claim", args{"paths": []string{"src/billing.js", "src/tax.js"}}, &answer)
	until, err := time.Parse(time.RFC3339, answer.Until)
	if !answer.Granted || err != nil || until.Sub(began).Round(time.Second) != 10*time.Minute || len(answer.Denied) != 0 {
		t.Fatalf("alice is answered %+v", answer)
	}
	bob.call("claim", args{"paths": []string{"src/free.js", "src/tax.js"}}, &answer)
	if answer.Granted || len(answer.Denied) != 1 || answer.Denied[0].Path != "src/tax.js" || answer.Denied[0].Left != 600 || !strings.Contains(answer.Denied[0].Holder, "alice") {
		t.Errorf("bob is answered %+v", answer)
	}
	var who daemon.WhoAnswer
	bob.call("who", nil, &who)
	for _, s := range who.Sessions {
		if s.Session == "bob" && len(s.Claims) > 0 {
			t.Errorf("refused, bob holds %+v", s.Claims)
		}
	}
	// Any call renews: after 16 minutes alice's lease lives by the call after 8.
	pass(8 * time.Minute)
	alice.call("list-agents", nil, nil)
	pass(8 * time.Minute)
	bob.call("claim", args{"paths": []string{"src/tax.js"}}, &answer)
	if answer.Granted {
		t.Error("a call does not renew what its agent holds")
	}
	bob.refused("release", args{"paths": []string{"src/tax.js"}}, "alice", "needs a person")
	var freed released
	alice.call("release", args{"paths": []string{"src/tax.js"}}, &freed)
	if !slices.Equal(freed.Released, []string{"src/tax.js"}) {
		t.Errorf("released %+v", freed)
	}
	bob.call("claim", args{"paths": []string{"src/tax.js"}}, &answer)
	if !answer.Granted {
		t.Errorf("released, bob is answered %+v", answer)
	}
	pass(11 * time.Minute)
	bob.call("claim", args{"paths": []string{"src/billing.js"}}, &answer) // nobody was heard of
	if !answer.Granted {
		t.Errorf("after its lease bob is answered %+v", answer)
	}
	alice.refused("claim", args{"paths": []string{"../out.js"}}, "no file of this repository")
	alice.refused("claim", args{"paths": "[]"}, `missing required argument "paths"`)
}

// A hook's session is refused what an agent without hooks has claimed, and the other way round.
func TestClaimsOfToolsAndOfHooksAreOne(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	alice := m.agent("alice", "cursor", m.repo)
	alice.call("claim", args{"paths": []string{"src/tax.js"}}, nil)
	write := func(path string) *socket.Answer {
		return m.hook(socket.Hook{Session: "one-with-hooks", Event: "PreToolUse", ToolUse: "call-" + path, Places: []socket.Place{{Root: m.repo, Writes: []string{path}}}})
	}
	if answer := write("src/tax.js"); !strings.Contains(answer.Deny, "src/tax.js") || !strings.Contains(answer.Deny, "alice") {
		t.Errorf("a hook is answered %+v", answer)
	}
	if answer := write("src/billing.js"); answer.Deny != "" {
		t.Fatalf("a hook is answered %+v", answer)
	}
	var answer daemon.ClaimAnswer
	alice.call("claim", args{"paths": []string{"src/billing.js"}}, &answer)
	if answer.Granted || len(answer.Denied) != 1 {
		t.Errorf("alice is answered %+v", answer)
	}
}
