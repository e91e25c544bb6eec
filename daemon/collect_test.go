package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/gitlog"
)

// leave is what a command in a sandbox does; it returns the file.
func (r *repository) leave(op string, caller *socket.Caller, body any) string {
	r.m.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		r.m.t.Fatal(err)
	}
	before, _ := filepath.Glob(filepath.Join(r.root, spoolFolder, "*"))
	if err := Spool(r.root, &Spooled{Op: op, Caller: caller, Body: text}, gitlog.MillisOf(time.Now())); err != nil {
		r.m.t.Fatal(err)
	}
	after, _ := filepath.Glob(filepath.Join(r.root, spoolFolder, "*"))
	for _, file := range after {
		if !slices.Contains(before, file) {
			return file
		}
	}
	r.m.t.Fatal("nothing was left")
	return ""
}

// post puts a text into the outbox, which nobody has touched for a while.
func (r *repository) post(name, text string) string {
	r.m.t.Helper()
	file := filepath.Join(r.root, outboxFolder, name)
	writeFile(r.m.t, file, text)
	rested := time.Now().Add(-time.Minute)
	if err := os.Chtimes(file, rested, rested); err != nil {
		r.m.t.Fatal(err)
	}
	return file
}

// collected has what waits sent after a hook of a session, and returns what waits still and what was refused.
func (r *repository) collected(d *daemon, session string) *Spooling {
	r.m.t.Helper()
	wt, err := d.clones.find(r.m.t.Context(), r.root)
	if err != nil {
		r.m.t.Fatal(err)
	}
	done := make(chan struct{})
	wt.clone.later(func(ctx context.Context) { // behind what a hook that was answered before has still to do
		defer close(done)
		d.collect(ctx, wt, sessionKey{Agent: "claude", ID: session})
	})
	<-done
	found, err := ReadSpooling(r.root)
	if err != nil {
		r.m.t.Fatal(err)
	}
	return found
}

// current are the facts of a repository: "name: text" each.
func (r *repository) current(d *daemon) (facts []string) {
	r.m.t.Helper()
	wt, err := d.clones.find(r.m.t.Context(), r.root)
	if err != nil {
		r.m.t.Fatal(err)
	}
	for _, item := range wt.clone.clone.Memory().All(d.now()) {
		if item.Fact != nil {
			facts = append(facts, item.Fact.Name+": "+item.Fact.Text)
		}
	}
	slices.Sort(facts)
	return facts
}

func TestTheNextHookSendsWhatWasLeft(t *testing.T) {
	_, r, d := meeting(t, Options{})
	r.leave("msg", anAgent, MessageRequest{To: "reviewer", Text: "look at the till"})
	r.leave("remember", anAgent, gitlog.RememberRequest{Name: "money", Text: "all money is integer cents", Paths: []string{"src/billing.js"}})
	r.leave("plan", anAgent, gitlog.PlanRequest{Text: "rewriting the rounding"})
	r.post("reviewer", "and at the cart\n")
	(&agent{r: r, session: "alpha-1-session"}).hook(EventPostTool, nil)
	waitFor(t, "what was left is sent", func() bool {
		found, err := ReadSpooling(r.root)
		return err == nil && found.Waiting == 0
	})
	if got, want := r.inbox(another, false), []string{"claude-alpha-1-: look at the till", "claude-beta-12-: and at the cart"}; len(got) != 2 || got[0] != want[0] {
		t.Errorf("%q, want %q", got, want)
	}
	if got := r.current(d); !slices.Equal(got, []string{"money: all money is integer cents"}) {
		t.Errorf("facts %q", got)
	}
	if found := r.collected(d, "alpha-1-session"); found.Waiting != 0 || len(found.Refused) > 0 {
		t.Errorf("%+v", found)
	}
}

// Wherever the daemon ends between sending and removing, what was left is sent once.
func TestWhatWasLeftIsSentOnce(t *testing.T) {
	m, r, d := meeting(t, Options{})
	files := map[string]string{}
	for _, file := range []string{
		r.leave("msg", anAgent, MessageRequest{To: "reviewer", Text: "look at the till"}),
		r.leave("remember", anAgent, gitlog.RememberRequest{Name: "money", Text: "all money is integer cents", Paths: []string{"src/billing.js"}}),
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		files[file] = string(text)
	}
	if found := r.collected(d, "alpha-1-session"); found.Waiting > 0 || len(found.Refused) > 0 {
		t.Fatalf("%+v", found)
	}
	root, err := os.OpenRoot(r.root)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	r.post("reviewer", "and at the cart")
	l, err := readLetter(root, outboxFolder+"/reviewer")
	if err != nil {
		t.Fatal(err)
	}
	send := func() {
		t.Helper()
		wt, err := d.clones.find(t.Context(), r.root)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.sendLetter(t.Context(), wt, l, sessionKey{Agent: "claude", ID: "alpha-1-session"}); err != nil {
			t.Fatal(err)
		}
	}
	send()
	if got := len(r.inbox(another, false)); got != 2 {
		t.Fatalf("%d messages, want 2", got)
	}
	for _, restart := range []bool{false, true} {
		if restart {
			m.stop(d)
			d = m.start(Options{})
		}
		for file, text := range files {
			writeFile(t, file, text)
		}
		send()
		if found := r.collected(d, "alpha-1-session"); found.Waiting > 0 || len(found.Refused) > 0 {
			t.Errorf("restarted %v: %+v", restart, found)
		}
		if got := r.inbox(another, false); len(got) > 0 {
			t.Errorf("restarted %v: sent again: %q", restart, got)
		}
		if got := r.current(d); len(got) != 1 {
			t.Errorf("restarted %v: facts %q", restart, got)
		}
	}
}

// The daemon may end after a fact is remembered and before that is noted.
func TestAFactThatWasRememberedIsNotRememberedAgain(t *testing.T) {
	_, r, d := meeting(t, Options{})
	ask := gitlog.RememberRequest{Name: "money", Text: "all money is integer cents", Paths: []string{"src/billing.js"}}
	r.leave("remember", anAgent, ask)
	if _, sentence := r.order("remember", anAgent, ask, nil); sentence != "" {
		t.Fatal(sentence)
	}
	if found := r.collected(d, "alpha-1-session"); found.Waiting > 0 || len(found.Refused) > 0 {
		t.Errorf("%+v", found)
	}
	if got := r.current(d); len(got) != 1 {
		t.Errorf("facts %q", got)
	}
	// A later one of the same name supersedes it.
	r.leave("remember", anAgent, gitlog.RememberRequest{Name: "money", Text: "money is a decimal since the ledger's rewrite", Paths: []string{"src/billing.js"}})
	if found := r.collected(d, "alpha-1-session"); found.Waiting > 0 || len(found.Refused) > 0 {
		t.Errorf("%+v", found)
	}
	if got := r.current(d); len(got) != 2 {
		t.Errorf("facts %q", got)
	}
}

func TestWhoLeftItSaysIt(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	d := m.start(Options{})
	(&agent{r: r, session: "alpha-1-session"}).start("startup")
	// The only session here.
	r.leave("msg", nil, MessageRequest{To: "ash@example.com", Text: "one"})
	r.collected(d, "alpha-1-session")
	(&agent{r: r, session: "beta-12-session"}).start("startup")
	// One of two, whose hook happens to come next.
	r.leave("msg", nil, MessageRequest{To: "ash@example.com", Text: "two"})
	// One that says who it is, whose process is none here.
	r.leave("msg", &socket.Caller{Session: "beta-12-session", Ancestors: []int{os.Getpid()}, Terminal: true}, MessageRequest{To: "ash@example.com", Text: "three"})
	r.leave("msg", &socket.Caller{Session: "gamma-56-session", SessionAgent: "codex"}, MessageRequest{To: "ash@example.com", Text: "four"})
	r.collected(d, "alpha-1-session")
	var messages []Message
	if _, sentence := r.order("inbox", aPerson, InboxRequest{}, &messages); sentence != "" {
		t.Fatal(sentence)
	}
	var got []string
	for _, m := range messages {
		got = append(got, fmt.Sprintf("%s (%s): %s", m.From, m.Kind, m.Text))
	}
	slices.Sort(got) // two of one millisecond have no order
	want := []string{"ash@example.com (agent): two", "claude-alpha-1- (agent): one", "claude-beta-12- (agent): three", "codex-gamma-56 (agent): four"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// What an agent in a sandbox, or a repository that somebody checks out, may put there.
func TestWhatCannotBeSentIsPutAside(t *testing.T) {
	_, r, d := meeting(t, Options{})
	id := "00112233445566778899aabbccddeeff"
	request := func(op, body string) string {
		return fmt.Sprintf(`{"id":%q,"op":%q,"at":%d,"caller":{"terminal":true},"body":%s}`, id, op, time.Now().UnixMilli(), body)
	}
	secret := filepath.Join(r.m.vars["HOME"], "secret")
	writeFile(t, secret, "not to be sent")
	spool := func(text string) func() { return func() { r.write(spoolFolder+"/x.json", text) } }
	for name, c := range map[string]struct {
		put func()
		why string // "": it stays
	}{
		"no JSON":             {spool("{"), "no request"},
		"another's JSON":      {spool(`{"op":"msg"}`), "no request"},
		"no id":               {spool(`{"id":"../../x","op":"msg","body":{}}`), "no request"},
		"an operation":        {spool(request("forget", `{"name":"money"}`)), "only remember, cache, plan and msg"},
		"take":                {spool(request("take", `{}`)), "only remember, cache, plan and msg"},
		"a body":              {spool(request("msg", `7`)), "not one"},
		"nobody":              {spool(request("msg", `{"to":"nobody","text":"x"}`)), "nobody here is called"},
		"a credential":        {spool(request("msg", `{"to":"reviewer","text":"ghp_16C7e42F292c6912E7710c838347Ae178B4a"}`)), "credential"},
		"a fact's credential": {spool(request("remember", `{"name":"x","text":"token ghp_16C7e42F292c6912E7710c838347Ae178B4a"}`)), "credential"},
		"a path outside":      {spool(request("remember", `{"name":"x","text":"a text of some length","paths":["../x"]}`)), "outside"},
		"an absolute path":    {spool(request("remember", `{"name":"x","text":"a text of some length","paths":["/etc/passwd"]}`)), "outside"},
		"too old":             {spool(`{"id":"` + id + `","op":"msg","at":1,"body":{"to":"reviewer","text":"x"}}`), "7 days"},
		"too large":           {spool(strings.Repeat("x", maxSpooled+1)), "bytes"},
		"a link": {func() {
			r.write(spoolFolder+"/y", "")
			_ = os.Remove(r.root + "/" + spoolFolder + "/y")
			_ = os.Symlink(secret, r.root+"/"+spoolFolder+"/x.json")
		}, "not a plain file"},
		"a link in the outbox": {func() {
			r.write(outboxFolder+"/y", "")
			_ = os.Remove(r.root + "/" + outboxFolder + "/y")
			_ = os.Symlink(secret, r.root+"/"+outboxFolder+"/reviewer")
		}, "not a plain file"},
		"another name of a file": {func() {
			r.write(outboxFolder+"/y", "")
			_ = os.Remove(r.root + "/" + outboxFolder + "/y")
			_ = os.Link(secret, r.root+"/"+outboxFolder+"/reviewer")
		}, "hard links"},
		"a pipe":         {func() { r.write(spoolFolder+"/.y", ""); _ = syscall.Mkfifo(r.root+"/"+spoolFolder+"/x.json", 0o600) }, "not a plain file"},
		"a long message": {func() { r.post("reviewer", strings.Repeat("x", maxMessage+1)) }, "4000"},
		"no text":        {func() { r.post("reviewer", "\xff\xfe\x00") }, "UTF-8"},
		"to nobody":      {func() { r.post("nobody/x.txt", "x") }, "nobody here is called"},
		"a link to a folder": {func() {
			r.write(outboxFolder+"/.y", "")
			_ = os.Symlink(r.m.vars["HOME"], r.root+"/"+outboxFolder+"/reviewer")
		}, "not a plain file"},
		"half written":      {func() { r.write(outboxFolder+"/reviewer", "half") }, ""},
		"empty":             {func() { r.post("reviewer", "") }, ""},
		"a spool of a link": {func() { r.write(".knoot/y", ""); _ = os.Symlink(filepath.Dir(secret), r.root+"/"+spoolFolder) }, "nothing"},
		"all of it a link":  {func() { _ = os.RemoveAll(r.root + "/.knoot"); _ = os.Symlink(filepath.Dir(secret), r.root+"/.knoot") }, "nothing"},
		"committed": {func() {
			r.write(outboxFolder+"/reviewer", "in your name")
			r.m.git(r.root, "add", "-f", ".knoot")
			r.post("reviewer", "in your name")
		}, ""},
		// The name has its accent as a letter of its own, in the index and on the disk.
		"committed, in other letters": {func() {
			r.post("reviewer/re\u0301sume\u0301", "in your name")
			r.m.git(r.root, "add", "-f", ".knoot")
		}, ""},
		"another of it committed": {func() {
			r.write(".knoot/refused/x", "x")
			r.m.git(r.root, "add", "-f", ".knoot")
			_ = os.Remove(r.root + "/.knoot/refused/x")
			r.post("reviewer", "in your name")
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r.inbox(anAgent, false)
			c.put()
			found := r.collected(d, "alpha-1-session")
			switch {
			case c.why == "nothing":
				if found.Waiting > 0 || len(found.Refused) > 0 {
					t.Errorf("%+v", found)
				}
			case c.why == "":
				if found.Waiting != 1 || len(found.Refused) > 0 {
					t.Errorf("%+v, want it to stay", found)
				}
			default:
				if found.Waiting > 0 || len(found.Refused) != 1 || !strings.Contains(found.Refused[0], c.why) {
					t.Errorf("%+v, want it refused for %q", found, c.why)
				}
			}
			if got := r.inbox(another, false); len(got) > 0 {
				t.Errorf("sent: %q", got)
			}
			if got := r.current(d); len(got) > 0 {
				t.Errorf("facts %q", got)
			}
			if text, err := os.ReadFile(secret); err != nil || string(text) != "not to be sent" {
				t.Errorf("outside of the repository: %q, %v", text, err)
			}
			_ = os.RemoveAll(filepath.Join(r.root, ".knoot"))
			r.m.git(r.root, "reset", "-q")
		})
	}
}

// The session that wrote it hears why it was not sent, where no other could have.
func TestWhoeverLeftItHearsThatItWasNotSent(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	d := m.start(Options{})
	a := &agent{r: r, session: "alpha-1-session"}
	a.start("startup")
	r.post("nobody", "hello")
	r.collected(d, "alpha-1-session")
	if got := a.prompt("go on with the work on the till"); !strings.Contains(got, "was not sent") || !strings.Contains(got, "nobody here is called") {
		t.Errorf("%q", got)
	}
	if got := r.inbox(anAgent, false); len(got) != 1 || !strings.HasPrefix(got[0], "knoot: .knoot/outbox/nobody was not sent") {
		t.Errorf("%q", got)
	}
}

// A file in the outbox is taken once nobody has written to it for a moment, even if no further hook comes.
func TestALetterIsSentOnceItIsWritten(t *testing.T) {
	_, r, _ := meeting(t, Options{})
	r.write(outboxFolder+"/reviewer", "hello")
	(&agent{r: r, session: "alpha-1-session"}).hook(EventPostTool, nil)
	waitFor(t, "the letter is sent", func() bool { return len(r.inbox(another, true)) == 1 })
	// The same text, written again, is another message.
	waitFor(t, "the letter is removed", func() bool {
		_, err := os.Lstat(filepath.Join(r.root, outboxFolder, "reviewer"))
		return os.IsNotExist(err)
	})
	r.post("reviewer", "hello")
	(&agent{r: r, session: "alpha-1-session", calls: 1}).hook(EventPostTool, nil)
	waitFor(t, "the second letter is sent", func() bool { return len(r.inbox(another, true)) == 2 })
}

func TestTheSpoolHasAnEnd(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	body := json.RawMessage(`{"to":"all","text":"x"}`)
	for i := range maxLeft + 1 {
		err := Spool(r.root, &Spooled{Op: "msg", Body: body}, gitlog.Millis(i))
		if (err != nil) != (i == maxLeft) {
			t.Fatalf("%d: %v", i, err)
		}
	}
	if err := Spool(r.root, &Spooled{Op: "msg", Body: json.RawMessage(`"` + strings.Repeat("x", maxSpooled) + `"`)}, 0); err == nil {
		t.Error("a request that is too large is left")
	}
}
