package daemon

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"knoot.dev/knoot/daemon/socket"
)

// order has an operation done for a caller in a repository, and reads the answer into answer. It returns the error's code and
// sentence, "" for none.
func (r *repository) order(op string, caller *socket.Caller, body, answer any) (code, sentence string) {
	r.m.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		r.m.t.Fatal(err)
	}
	resp, err := r.m.ask(&socket.Request{Op: op, Dir: r.root, Caller: caller, Body: text})
	if err != nil {
		r.m.t.Fatalf("%s: %v", op, err)
	}
	if resp.Error == "" && answer != nil {
		if err := json.Unmarshal(resp.Body, answer); err != nil {
			r.m.t.Fatalf("%s: %v", op, err)
		}
	}
	return resp.Code, resp.Error
}

// inbox is what a caller reads there: "from: text" each.
func (r *repository) inbox(caller *socket.Caller, peek bool) []string {
	r.m.t.Helper()
	var messages []Message
	if _, sentence := r.order("inbox", caller, InboxRequest{Peek: peek}, &messages); sentence != "" {
		r.m.t.Fatal(sentence)
	}
	var out []string
	for _, m := range messages {
		out = append(out, m.From+": "+m.Text)
	}
	return out
}

func (r *repository) send(caller *socket.Caller, to, text string) {
	r.m.t.Helper()
	if _, sentence := r.order("msg", caller, MessageRequest{To: to, Text: text}, nil); sentence != "" {
		r.m.t.Fatalf("to %s: %s", to, sentence)
	}
}

// The people and sessions of the tests below.
var (
	anAgent  = &socket.Caller{Session: "alpha-1-session"}
	another  = &socket.Caller{Session: "beta-12-session"}
	aPerson  = &socket.Caller{Terminal: true}
	samsTerm = &socket.Caller{Terminal: true, User: "sam@example.com"}
)

// meeting is a repository where two sessions are, one called reviewer, and one of another person's.
func meeting(t *testing.T, o Options) (*machine, *repository, *daemon) {
	m := newMachine(t)
	r := m.repository("shop")
	d := m.start(o)
	for id, name := range map[string]string{"alpha-1-session": "", "beta-12-session": "reviewer", "beta-34-session": ""} {
		a := &agent{r: r, session: id}
		a.hook(EventSessionStart, func(h *socket.Hook) {
			h.Source, h.Name = "startup", name
			if id == "beta-34-session" {
				h.User = "Sam@example.com"
			}
		})
	}
	return m, r, d
}

func TestMessageReachesWhoeverItNames(t *testing.T) {
	_, r, _ := meeting(t, Options{})
	for to, reader := range map[string]*socket.Caller{
		"reviewer":        another,
		"Reviewer":        another,
		"claude-beta-12-": another,
		"beta-12":         another,
		"ash@example.com": aPerson,
		"ASH":             aPerson,
		"sam@example.com": samsTerm,
	} {
		r.send(anAgent, to, "look at the "+to)
		if got, want := r.inbox(reader, false), []string{"claude-alpha-1-: look at the " + to}; !slices.Equal(got, want) {
			t.Errorf("to %s: %q, want %q", to, got, want)
		}
		if got := r.inbox(reader, false); len(got) > 0 {
			t.Errorf("to %s: %q is there after it was read", to, got)
		}
	}
}

func TestMessageToAllIsReadByEachForItself(t *testing.T) {
	_, r, _ := meeting(t, Options{})
	r.send(another, "all", "main is red")
	for who, reader := range map[string]*socket.Caller{"an agent": anAgent, "the person": aPerson, "another person": samsTerm} {
		if got, want := r.inbox(reader, false), []string{"reviewer: main is red"}; !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", who, got, want)
		}
	}
	if got := r.inbox(another, false); len(got) > 0 {
		t.Errorf("the sender reads %q", got)
	}
}

func TestAPersonsMailIsReadInTheirSessionsToo(t *testing.T) {
	_, r, _ := meeting(t, Options{})
	r.send(another, "ash@example.com", "may I use decimals?")
	if got := r.inbox(another, true); len(got) > 0 {
		t.Errorf("the session that wrote to its person reads %q", got)
	}
	want := []string{"reviewer: may I use decimals?"}
	for _, peek := range []bool{true, false} {
		if got := r.inbox(anAgent, peek); !slices.Equal(got, want) {
			t.Errorf("peek %v: %q, want %q", peek, got, want)
		}
	}
	if got := r.inbox(aPerson, false); len(got) > 0 {
		t.Errorf("%q is there after a session has read it", got)
	}
}

// A member's message is told once in each of the member's sessions that live, and is unread until one of them, or the member, reads it.
func TestAMembersMessageIsToldInEachOfTheirSessions(t *testing.T) {
	_, r, _ := meeting(t, Options{})
	sessions := []*agent{{r: r, session: "alpha-1-session"}, {r: r, session: "beta-12-session"}}
	r.send(samsTerm, "ash@example.com", "may I use decimals?")
	for _, a := range sessions {
		wantText(t, a.session, a.prompt("go on"), `- message from sam@example.com, just now: "may I use decimals?"`)
		wantText(t, a.session+", again,", a.prompt("go on"))
	}
	if got := r.inbox(aPerson, true); !slices.Equal(got, []string{"sam@example.com: may I use decimals?"}) {
		t.Errorf("told, the member's unread are %q", got)
	}
	late := &agent{r: r, session: "late-session"}
	wantText(t, "a session that begins later", late.start("startup")+late.prompt("go on"), `"may I use decimals?"`)
	r.inbox(anAgent, false)
	if got := r.inbox(aPerson, true); len(got) > 0 {
		t.Errorf("read in a session, the member's unread are %q", got)
	}
	last := &agent{r: r, session: "last-session"}
	if text := last.start("startup") + last.prompt("go on"); strings.Contains(text, "decimals") {
		t.Errorf("after it was read a session is told %q", text)
	}
}

func TestMessagesThatAreNotSent(t *testing.T) {
	_, r, _ := meeting(t, Options{})
	for name, each := range map[string]struct {
		to, text string
		urgent   bool
		code     string
		says     string
	}{
		"nobody":        {"bob", "x", false, codeRefused, "here: claude-beta-34-, reviewer (claude-beta-12-), ash@example.com (ash), sam@example.com"},
		"too short":     {"beta", "x", false, codeRefused, "nobody here"},
		"the sender":    {"alpha-1", "x", false, codeRefused, "that is you"},
		"no text":       {"reviewer", " \n", false, codeMisuse, "knoot msg TO TEXT"},
		"to nobody":     {"", "x", false, codeMisuse, "knoot msg TO TEXT"},
		"urgent to all": {"all", "x", true, codeMisuse, "cannot be urgent"},
		"long":          {"reviewer", strings.Repeat("x", maxMessage+1), false, codeRefused, "4001 bytes"},
		"a credential":  {"reviewer", "use ghp_" + "Zk3Jq8Xw1Vb6Nf4Ty9Rd2Lc7Ms5Hg0PaUeOi", false, codeRefused, "credential"},
	} {
		code, sentence := r.order("msg", anAgent, MessageRequest{To: each.to, Text: each.text, Urgent: each.urgent}, nil)
		if code != each.code || !strings.Contains(sentence, each.says) {
			t.Errorf("%s: %s %q, want %s and %q", name, code, sentence, each.code, each.says)
		}
	}
	(&agent{r: r, session: "beta-12-other"}).start("startup")
	if code, sentence := r.order("msg", anAgent, MessageRequest{To: "beta-12", Text: "x"}, nil); code != codeRefused ||
		!strings.Contains(sentence, "several") || !strings.Contains(sentence, "reviewer") {
		t.Errorf("ambiguous: %s %q", code, sentence)
	}
}

func TestMessagesStayInTheirRepository(t *testing.T) {
	m, r, _ := meeting(t, Options{})
	other := m.repository("bakery")
	(&agent{r: other, session: "baker-1-session"}).start("startup")
	if code, sentence := r.order("msg", anAgent, MessageRequest{To: "baker-1", Text: "x"}, nil); code != codeRefused {
		t.Errorf("to a session elsewhere: %s %q", code, sentence)
	}
	r.send(anAgent, "ash@example.com", "for the shop")
	if got := other.inbox(aPerson, true); len(got) > 0 {
		t.Errorf("%q is read in another repository", got)
	}
}

func TestMessagesSurviveARestartSealed(t *testing.T) {
	m, r, d := meeting(t, Options{})
	r.send(anAgent, "reviewer", "the tax table is mine")
	r.send(anAgent, "all", "good morning")
	if got := len(r.inbox(aPerson, false)); got != 1 {
		t.Fatalf("%d messages", got)
	}
	m.mustAsk(&socket.Request{Op: "stop"})
	<-d.server.done
	file, err := os.ReadFile(filepath.Join(m.loc.Home, "mail"))
	if err != nil || bytes.Contains(file, []byte("tax")) || bytes.Contains(file, []byte("reviewer")) {
		t.Errorf("the file of messages can be read: %v", err)
	}
	m.start(Options{})
	if got, want := r.inbox(another, false), []string{"claude-alpha-1-: the tax table is mine", "claude-alpha-1-: good morning"}; !slices.Equal(got, want) {
		t.Errorf("after a restart: %q, want %q", got, want)
	}
	if got := r.inbox(aPerson, false); len(got) > 0 {
		t.Errorf("%q was read before the restart", got)
	}
}

// A brief, and who only looks, has what is unread while somebody else's message is on its way to the disk.
func TestNobodyWaitsForAMessageToBeKept(t *testing.T) {
	_, r, d := meeting(t, Options{})
	r.send(another, "claude-alpha-1-", "main is red")
	d.mail.writing.Lock() // as whoever waits for the disk
	told := make(chan string, 2)
	go func() {
		told <- (&agent{r: r, session: "alpha-1-session"}).prompt("what is new here")
		told <- strings.Join(r.inbox(anAgent, true), " ")
	}()
	for range 2 {
		select {
		case text := <-told:
			wantText(t, "while a message is kept", text, "main is red")
		case <-time.After(10 * time.Second):
			d.mail.writing.Unlock()
			t.Fatal("it waits for the disk")
		}
	}
	d.mail.writing.Unlock()
	if got := r.inbox(anAgent, false); len(got) != 1 {
		t.Errorf("afterwards: %q", got)
	}
}

// all is all that a caller has there, as `inbox --all` shows it: "read text" or "unread text" each.
func (r *repository) all(caller *socket.Caller, peek bool) (out []string) {
	r.m.t.Helper()
	var messages []KeptMessage
	if _, sentence := r.order("inbox", caller, InboxRequest{Peek: peek, All: true}, &messages); sentence != "" {
		r.m.t.Fatal(sentence)
	}
	for _, m := range messages {
		out = append(out, map[bool]string{true: "read ", false: "unread "}[m.Read]+m.Text)
	}
	return out
}

func TestWhatWasReadIsKept(t *testing.T) {
	m, r, d := meeting(t, Options{})
	want := func(when string, caller *socket.Caller, want ...string) {
		t.Helper()
		if got := r.all(caller, true); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	r.send(anAgent, "reviewer", "one")
	r.send(aPerson, "all", "two")
	r.send(anAgent, "reviewer", "three")
	r.inbox(another, false)
	r.send(anAgent, "reviewer", "four")
	want("some read", another, "read one", "read three", "unread four") // and what its person sent it knows
	if got := r.inbox(another, true); !slices.Equal(got, []string{"claude-alpha-1-: four"}) {
		t.Errorf("unread is %q", got)
	}
	want("somebody else", samsTerm, "unread two")
	r.all(samsTerm, false)
	want("somebody else, who looked at all", samsTerm, "read two")
	m.mustAsk(&socket.Request{Op: "stop"})
	<-d.server.done
	if file, err := os.ReadFile(filepath.Join(m.loc.Home, "mail")); err != nil || bytes.Contains(file, []byte("three")) {
		t.Errorf("what was read can be read in the file: %v", err)
	}
	d = m.start(Options{})
	want("after a restart", another, "read one", "read three", "unread four")
	want("after a restart, somebody else", samsTerm, "read two")
	// What came once does not come again, read or not: by the relay and by a spool it may.
	box := boxOf(sessionKey{"claude", "beta-12-session"})
	d.mail.mu.Lock()
	again := *d.mail.kept[box][0]
	d.mail.mu.Unlock()
	again.Unread = []mailbox{box}
	if err := d.mail.send(&again); err != nil {
		t.Fatal(err)
	}
	want("sent again", another, "read one", "read three", "unread four")
	if err := d.mail.drop(box, d.now()); err != nil {
		t.Fatal(err)
	}
	want("a mailbox that is gone", another)
	want("the mailbox of another", samsTerm, "read two")
}

// A hundred that were read stay, the oldest of them go, and none goes that is unread.
func TestKeptMessagesAreBounded(t *testing.T) {
	clock := newClock()
	m, r, d := meeting(t, Options{Now: clock.now})
	r.send(another, "alpha-1", "for another mailbox")
	r.inbox(anAgent, false)
	var want []string
	for n := range 2 * maxRead {
		r.send(anAgent, "reviewer", fmt.Sprint(n))
		if n%2 == 1 { // not all at once
			r.inbox(another, false)
		}
		if n >= maxRead {
			want = append(want, fmt.Sprintf("read %d", n))
		}
	}
	for n := range maxUnread {
		r.send(anAgent, "reviewer", fmt.Sprint("new ", n))
		want = append(want, fmt.Sprint("unread new ", n))
	}
	for _, when := range []string{"at once", "after a restart"} {
		if got := r.all(another, true); !slices.Equal(got, want) {
			t.Errorf("%s there are %d messages, want %d: %q", when, len(got), len(want), got)
		}
		if got := r.all(anAgent, true); !slices.Equal(got, []string{"read for another mailbox"}) {
			t.Errorf("%s the other one has %q", when, got)
		}
		m.mustAsk(&socket.Request{Op: "stop"})
		<-d.server.done
		d = m.start(Options{Now: clock.now})
	}
	clock.pass(7*24*time.Hour + time.Second)
	if got := append(r.all(another, true), r.all(anAgent, true)...); len(got) > 0 {
		t.Errorf("after 7 days there are %d", len(got))
	}
}

// What an older version left in the state folder is taken over.
func TestMessagesWhereTheyWere(t *testing.T) {
	m, r, d := meeting(t, Options{})
	r.send(anAgent, "reviewer", "sent before")
	m.mustAsk(&socket.Request{Op: "stop"})
	<-d.server.done
	if err := os.Rename(filepath.Join(m.loc.Home, "mail"), filepath.Join(m.loc.Home, "state", "mail")); err != nil {
		t.Fatal(err)
	}
	m.start(Options{})
	if got := r.inbox(another, true); !slices.Equal(got, []string{"claude-alpha-1-: sent before"}) {
		t.Errorf("it reads %q", got)
	}
}

// Kept messages may be many: a file of which most lives is not written anew at each one.
func TestTheFileOfMessagesIsWrittenAnewWhenItHasDoubled(t *testing.T) {
	m := newMachine(t)
	m.repository("shop")
	d := m.start(Options{})
	d.mail.writing.Lock()
	defer d.mail.writing.Unlock()
	note := func(n int) int64 {
		t.Helper()
		if err := d.mail.commit(d.now(), &mailRecord{Spooled: fmt.Sprint(n, strings.Repeat("x", 64<<10)), At: d.now()}); err != nil {
			t.Fatal(err)
		}
		return d.mail.file.size
	}
	n := 0
	for note(n) < mailRewrite {
		n++
	}
	full := d.mail.file.size
	last := full
	for size := note(n); size > last; size = note(n) { // of what it says again nothing is kept
		last = size
	}
	if last < full*3/2 || d.mail.file.size > full {
		t.Errorf("it had %d bytes, was written anew at %d, and has %d", full, last, d.mail.file.size)
	}
}

func TestMessagesAreBounded(t *testing.T) {
	clock := newClock()
	m, r, d := meeting(t, Options{Now: clock.now})
	for range maxUnread {
		r.send(anAgent, "reviewer", "x")
	}
	if code, sentence := r.order("msg", anAgent, MessageRequest{To: "reviewer", Text: "one too many"}, nil); code != codeRefused || !strings.Contains(sentence, "unread") {
		t.Errorf("%s %q", code, sentence)
	}
	clock.pass(7*24*time.Hour + time.Second)
	if got := r.inbox(another, true); len(got) > 0 {
		t.Errorf("%d messages are there after 7 days", len(got))
	}
	d.mail.close()
	if got := r.inbox(another, true); len(got) > 0 {
		t.Errorf("%d messages are there again", len(got))
	}
	if info, err := os.Stat(filepath.Join(m.loc.Home, "mail")); err != nil || info.Size() != int64(len(stateHeader)) {
		t.Errorf("the file holds what is too old: %v, %v", info, err)
	}
}

func TestAFourthUrgentMessageAnHourIsOrdinary(t *testing.T) {
	clock := newClock()
	_, r, _ := meeting(t, Options{Now: clock.now})
	urgent := func(from *socket.Caller, to string) bool {
		var answer MessageAnswer
		if _, sentence := r.order("msg", from, MessageRequest{To: to, Text: "now", Urgent: true}, &answer); sentence != "" {
			t.Fatal(sentence)
		}
		return answer.Urgent
	}
	for i, want := range []bool{true, true, true, false} {
		if got := urgent(anAgent, "reviewer"); got != want {
			t.Errorf("number %d: urgent %v", i+1, got)
		}
	}
	if !urgent(anAgent, "ash@example.com") || !urgent(aPerson, "reviewer") {
		t.Error("another sender or reader is bound by it")
	}
	clock.pass(time.Hour)
	if !urgent(anAgent, "reviewer") {
		t.Error("an hour later it is ordinary")
	}
}

func TestASessionHasTheMailOfItsPerson(t *testing.T) {
	_, r, d := meeting(t, Options{})
	r.send(anAgent, "sam@example.com", "for sam")
	r.send(anAgent, "reviewer", "for the reviewer")
	texts := func(id string) (out []string) {
		for _, m := range d.unreadOf(sessionKey{"claude", id}, d.clones.all()[0], d.now()) {
			out = append(out, m.Text)
		}
		return out
	}
	for id, want := range map[string][]string{"beta-34-session": {"for sam"}, "beta-12-session": {"for the reviewer"}, "alpha-1-session": nil} {
		if got := texts(id); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", id, got, want)
		}
	}
}

// What a person sends to their own session it reads.
func TestAPersonWritesToTheirOwnSession(t *testing.T) {
	_, r, _ := meeting(t, Options{})
	r.send(aPerson, "reviewer", "look at the tax first")
	if got, want := r.inbox(another, false), []string{"ash@example.com: look at the tax first"}; !slices.Equal(got, want) {
		t.Errorf("it reads %q, want %q", got, want)
	}
	r.send(aPerson, "all", "main is red")
	if got := r.inbox(another, false); len(got) > 0 {
		t.Errorf("whose person sent it reads %q", got)
	}
}
