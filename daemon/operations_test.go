package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/gitlog"
)

func TestAuthorOf(t *testing.T) {
	self, parent := os.Getpid(), os.Getppid()
	live := []LiveSession{
		{Agent: "codex", ID: "far", Process: parent, birth: birthOf(parent)},
		{Agent: "claude", ID: "near", Process: self, birth: birthOf(self)},
		{Agent: "claude", ID: "gone", Process: 4_000_000, birth: 7},
	}
	for name, each := range map[string]struct {
		caller *socket.Caller
		want   gitlog.Author
	}{
		"unknown":                     {nil, gitlog.Author{By: gitlog.ByAgent}},
		"a terminal":                  {&socket.Caller{Terminal: true}, gitlog.Author{By: gitlog.ByPerson}},
		"no terminal":                 {&socket.Caller{}, gitlog.Author{By: gitlog.ByAgent}},
		"a terminal, marked":          {&socket.Caller{Terminal: true, Agent: true}, gitlog.Author{By: gitlog.ByAgent}},
		"a session's variable":        {&socket.Caller{Terminal: true, Session: "x"}, gitlog.Author{By: gitlog.ByAgent, Session: "claude:x"}},
		"a live session's variable":   {&socket.Caller{Session: "far"}, gitlog.Author{By: gitlog.ByAgent, Session: "codex:far"}},
		"the nearest ancestor":        {&socket.Caller{Terminal: true, Ancestors: []int{1, self, parent}}, gitlog.Author{By: gitlog.ByAgent, Session: "claude:near"}},
		"a process id used again":     {&socket.Caller{Terminal: true, Ancestors: []int{4_000_000}}, gitlog.Author{By: gitlog.ByPerson}},
		"ancestors that are nobody's": {&socket.Caller{Terminal: true, Ancestors: []int{0, 1}}, gitlog.Author{By: gitlog.ByPerson}},
	} {
		if got := AuthorOf(each.caller, live); got != each.want {
			t.Errorf("%s: %+v, want %+v", name, got, each.want)
		}
	}
}

func TestOperationsAnswerWithSentences(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	m.start(Options{})
	for name, each := range map[string]struct {
		req  socket.Request
		code string
	}{
		"no body":        {socket.Request{Op: "remember", Dir: r.root}, codeMisuse},
		"a wrong body":   {socket.Request{Op: "forget", Dir: r.root, Body: json.RawMessage(`[]`)}, codeMisuse},
		"no directory":   {socket.Request{Op: "remember", Dir: r.root + "/none", Body: json.RawMessage(`{}`)}, codeFailed},
		"no repository":  {socket.Request{Op: "remember", Dir: m.vars["HOME"], Body: json.RawMessage(`{}`)}, codeFailed},
		"no change":      {socket.Request{Op: "team", Dir: r.root, Body: json.RawMessage(`{"do":"dance"}`)}, codeMisuse},
		"no such device": {socket.Request{Op: "team", Dir: r.root, Body: json.RawMessage(`{"do":"remove_device","device":"abc"}`)}, codeMisuse},
		"nobody":         {socket.Request{Op: "team", Dir: r.root, Body: json.RawMessage(`{"do":"remove_member","address":"x@y"}`)}, codeFailed},
		"no head":        {socket.Request{Op: "team", Dir: r.root, Body: json.RawMessage(`{"do":"trust","head":"12"}`)}, codeMisuse},
		"no operation":   {socket.Request{Op: "claim", Dir: r.root}, codeMisuse},
	} {
		resp, err := m.ask(&each.req)
		if err != nil || resp.Code != each.code || resp.Error == "" || strings.Contains(resp.Error, "\n") {
			t.Errorf("%s: %+v, %v", name, resp, err)
		}
	}
}

// That a session was refused something is in the audit log; what it was is not.
func TestWhatIsRefusedToBeRememberedIsTakenNoteOf(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	d := m.start(Options{})
	r.isOpen()
	begin(r, "one")
	caller := &socket.Caller{Session: "one"}
	secret := "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a"
	if code, sentence := r.order("remember", caller, gitlog.RememberRequest{Name: "token", Text: "the token is " + secret}, nil); code != codeRefused || strings.Contains(sentence, secret) {
		t.Errorf("a credential: %s %q", code, sentence)
	}
	if code, _ := r.order("remember", aPerson, gitlog.RememberRequest{Name: "token", Text: "the token is " + secret}, nil); code != codeRefused {
		t.Errorf("a person's: %s", code) // who is no session has no events
	}
	settled(t, d, gitlog.MemoryRefused, 1)
	var refused []*gitlog.Stored
	for _, e := range r.worktreeOf(d).clone.clone.Events() {
		if e.Kind == gitlog.MemoryRefused {
			refused = append(refused, e)
		}
	}
	if len(refused) != 1 || refused[0].Event.Session != "one" || refused[0].Event.Text != "" || len(refused[0].Event.Paths) != 0 {
		t.Errorf("the audit log has %+v", refused)
	}
}

func TestReviewKeepsAnAgentsFactUntilItsPersonConfirms(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	writeFile(t, m.loc.Home+"/config.toml", "[memory]\nagent_facts = \"review\"\n")
	d := m.start(Options{})
	agent, person := &socket.Caller{Session: "one"}, &socket.Caller{Terminal: true}
	ask := func(op string, caller *socket.Caller, body any) *socket.Response {
		t.Helper()
		text, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := m.ask(&socket.Request{Op: op, Dir: r.root, Caller: caller, Body: text})
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	facts := func() int {
		wt, err := d.clones.find(context.Background(), r.root)
		if err != nil {
			t.Fatal(err)
		}
		return len(wt.clone.clone.Memory().Current(d.now()))
	}
	if resp := ask("remember", agent, gitlog.RememberRequest{Name: "money", Text: "cents", Paths: []string{"src/billing.js"}}); !strings.Contains(string(resp.Body), `"draft":true`) {
		t.Fatalf("an agent's fact: %+v", resp)
	}
	if n := facts(); n != 0 {
		t.Fatalf("%d facts before it was confirmed", n)
	}
	if state, err := Status(t.Context(), m.getenv); err != nil || len(state.Clones) != 1 || state.Clones[0].Drafts != 1 {
		t.Errorf("state %+v, %v", state, err)
	}
	if resp := ask("confirm", agent, gitlog.ConfirmRequest{Name: "money"}); resp.Code != codeRefused {
		t.Errorf("an agent confirms its own draft: %+v", resp)
	}
	if resp := ask("confirm", person, gitlog.ConfirmRequest{Name: "money"}); resp.Error != "" {
		t.Errorf("its person confirms: %+v", resp)
	}
	if n := facts(); n != 1 {
		t.Errorf("%d facts after it was confirmed, want 1", n)
	}
	ask("remember", agent, gitlog.RememberRequest{Name: "rounding", Text: "once", Paths: []string{"src/billing.js"}})
	if resp := ask("forget", agent, gitlog.ForgetRequest{Last: true}); resp.Error != "" {
		t.Errorf("forget --last of a draft: %+v", resp)
	}
	if resp := ask("confirm", person, gitlog.ConfirmRequest{Name: "rounding"}); resp.Error == "" {
		t.Errorf("a forgotten draft was confirmed: %+v", resp)
	}
	if resp := ask("remember", person, gitlog.RememberRequest{Name: "mine", Text: "a person's fact", Paths: []string{"src/billing.js"}}); strings.Contains(string(resp.Body), "draft") || resp.Error != "" {
		t.Errorf("a person's fact: %+v", resp)
	}
}

func TestPerformRefusesWhatItDoesNotKnow(t *testing.T) {
	var misuse *MisuseError
	if _, err := Perform(context.Background(), Workplace{}, "dance", nil, gitlog.Author{}); !errors.As(err, &misuse) {
		t.Error(err)
	}
}

// The daemon goes without git's word about a folder only where that word is certain.
func TestRootOf(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	d := m.start(Options{})
	if err := os.MkdirAll(r.root+"/src/deep", 0o755); err != nil {
		t.Fatal(err)
	}
	if got := d.clones.rootOf(r.root); got != "" {
		t.Errorf("before it was opened: %q", got)
	}
	if _, err := d.clones.find(t.Context(), r.root); err != nil {
		t.Fatal(err)
	}
	link := m.vars["HOME"] + "/link"
	if err := os.Symlink(r.root+"/src", link); err != nil {
		t.Fatal(err)
	}
	m.git(r.root, "init", "--quiet", "--bare", "src/bare.git")
	m.git(r.root, "init", "--quiet", "src/inner")
	for dir, want := range map[string]string{
		r.root: r.root, r.root + "/src/deep": r.root, link: r.root, link + "/deep": r.root,
		r.root + "/src/bare.git": "", r.root + "/src/bare.git/refs": "", r.root + "/src/inner": "", r.root + "/.git": "", r.root + "/.git/refs": "",
		r.root + "/none": "", m.vars["HOME"]: "",
	} {
		if got := d.clones.rootOf(dir); got != want {
			t.Errorf("%s: %q, want %q", dir, got, want)
		}
	}
}
