package mcpd

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"knoot.dev/knoot/daemon"
	"knoot.dev/knoot/daemon/socket"
)

// wantInbox checks what an agent has unread, and reads it.
func (a *member) wantInbox(want ...string) {
	a.m.t.Helper()
	if got := a.inbox(false); !slices.Equal(got, want) {
		a.m.t.Errorf("%s reads %q, want %q", a.id, got, want)
	}
}

func (a *member) send(to, text string) {
	a.m.t.Helper()
	a.call("send-message", args{"to": to, "message": text}, nil)
}

func TestAMessageIsUnreadUntilItIsRead(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	both := m.members("alice", "bob")
	alice, bob := both[0], both[1]
	var answer sent
	alice.call("send-message", args{"to": "bob", "message": "is the parser yours?"}, &answer)
	var messages []daemon.Message
	bob.call("check-messages", args{"peek": true}, &messages)
	if len(messages) != 1 || messages[0].ID != answer.ID || messages[0].From != "alice" || messages[0].Kind != "agent" || messages[0].To != "bob" ||
		messages[0].Urgent || messages[0].Text != "is the parser yours?" {
		t.Fatalf("bob reads %+v, and the message is %q", messages, answer.ID)
	}
	if at, err := time.Parse(time.RFC3339, messages[0].At); err != nil || time.Since(at) > time.Hour {
		t.Errorf("it was sent at %q", messages[0].At)
	}
	bob.wantInbox("alice: is the parser yours?") // a peek leaves it unread
	bob.wantInbox()
	alice.wantInbox()
}

func TestTheUnreadQuery(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	both := m.members("alice", "bob")
	var before, after registration
	both[1].call("register-agent", nil, &before)
	both[0].send("bob", "one")
	var last sent
	both[0].call("send-message", args{"to": "bob", "message": "two"}, &last)
	both[1].call("register-agent", nil, &after)
	if before.Unread != 0 || before.Newest != "" || after.Unread != 2 || after.Newest != last.ID {
		t.Errorf("before %+v, after %+v, the newest is %q", before, after, last.ID)
	}
	both[1].wantInbox("alice: one", "alice: two")
}

func TestRecipientsOutsideTheWorkspaceAreNotFound(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	elsewhere := m.repository("ledger")
	alice, bob := m.members("alice")[0], m.agent("bob", "claude", elsewhere)
	bob.call("register-agent", nil, nil)
	alice.refused("send-message", args{"to": "bob", "message": "x"}, "nobody here is called", `"bob"`)
	if text := alice.call("list-agents", nil, nil); strings.Contains(text, "bob") {
		t.Errorf("alice sees %s", text)
	}
	var count heard
	if alice.call("broadcast-message", args{"message": "x"}, &count); count.Count != 0 {
		t.Errorf("a broadcast reached %d", count.Count)
	}
	bob.wantInbox()
	alice.refused("send-message", args{"to": "all", "message": "x"}, "broadcast-message")
	alice.refused("describe-agents", args{"agentId": "bob"}, "alice's")
	alice.refused("close-agent", args{"target": "bob"}, "no agent bob")
	alice.refused("send-message", args{"to": "alice", "message": "x"}, "that is you")
}

func TestWhomAMessageIsTo(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	alice := m.members("alice")[0]
	for _, id := range []string{"5d41402abc4b2a76b9719d911017c592", "5d41402fff"} {
		m.hook(socket.Hook{Session: id, Event: "SessionStart", Source: "startup", User: "sam@example.org"})
	}
	alice.send("claude-5d41402a", "by its id")
	alice.send("5d41402abc", "by its session")
	alice.refused("send-message", args{"to": "5d4140", "message": "x"}, "several", "claude-5d41402a", "claude-5d41402f")
	alice.refused("send-message", args{"to": "5d41", "message": "x"}, "nobody here is called")
	alice.send("Ash@example.org", "to a member")
	text := m.hook(socket.Hook{Session: "5d41402abc4b2a76b9719d911017c592", Event: "UserPromptSubmit", Prompt: "go"}).Context
	if !strings.Contains(text, "by its id") || !strings.Contains(text, "by its session") || strings.Contains(text, "to a member") {
		t.Errorf("the session is told %q", text)
	}
	if out := m.Knoot(m.repo, "inbox", "--json"); !strings.Contains(out, "to a member") || !strings.Contains(out, `"from": "alice"`) && !strings.Contains(out, `"from":"alice"`) {
		t.Errorf("the member reads %s", out)
	}
}

// One mailbox, two doors.
func TestKnootMsgAndTheToolsShareTheMailbox(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	alice := m.members("alice")[0]
	out := m.Try(m.repo, "", "knoot", "msg", "alice", "from a command").Stdout
	if !strings.Contains(out, "Sent to alice") {
		t.Fatalf("knoot msg says %q", out)
	}
	got := alice.inbox(false)
	if len(got) != 1 || !strings.HasSuffix(got[0], ": from a command") {
		t.Errorf("alice reads %q", got)
	}
	alice.call("send-message", args{"to": "ash", "message": "from a tool"}, nil)
	if out := m.Knoot(m.repo, "inbox", "--json"); !strings.Contains(out, "from a tool") {
		t.Errorf("her person reads %s", out)
	}
}

// A session and an agent with a name are one, once they are bound.
func TestASessionReadsItsAgentsMail(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	all := m.members("alice", "bob", "carol")
	alice, bob, carol := all[0], all[1], all[2]
	m.hook(socket.Hook{Session: "by-environment", Event: "SessionStart", Source: "startup", Name: "alice"})
	m.hook(socket.Hook{Session: "by-the-tool", Event: "SessionStart", Source: "startup"})
	bob.call("register-agent", args{"sessionId": "by-the-tool"}, nil)
	carol.send("alice", "to alice")
	carol.send("by-the-tool", "to the session")
	if text := m.hook(socket.Hook{Session: "by-environment", Event: "UserPromptSubmit", Prompt: "go"}).Context; !strings.Contains(text, `"to alice"`) {
		t.Errorf("alice's session is told %q", text)
	}
	bob.wantInbox("carol: to the session")
	alice.wantInbox("carol: to alice")
	if text := carol.call("list-agents", nil, nil); strings.Contains(text, "claude-") {
		t.Errorf("a session is an agent of its own beside the one that it is: %s", text)
	}
	// What the session sends by a command is the agent's.
	env := []string{"CLAUDE_CODE_SESSION_ID=by-the-tool", "CLAUDECODE=1"}
	sender := m.In(t)
	sender.Extra = env
	sender.Knoot(m.repo, "msg", "carol", "from the session")
	carol.wantInbox("bob: from the session")
}

func TestShellsReceiveNothing(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	alice, shell := m.members("alice")[0], m.agent("sh", "shell", m.repo)
	shell.call("register-agent", nil, nil)
	alice.refused("send-message", args{"to": "sh", "message": "x"}, "is a shell")
	var count heard
	if alice.call("broadcast-message", args{"message": "x"}, &count); count.Count != 0 {
		t.Errorf("a broadcast reached %d", count.Count)
	}
	shell.wantInbox()
}

func TestBroadcastIsForRegisteredOthers(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	all := m.members("alice", "bob", "carol", "dave")
	for _, a := range all[:3] {
		a.call("list-agents", nil, nil) // any request registers
	}
	m.hook(socket.Hook{Session: "by-hooks-alone", Event: "SessionStart", Source: "startup"})
	var count heard
	all[0].call("broadcast-message", args{"message": "the tests are red"}, &count)
	if count.Count != 2 {
		t.Errorf("it reached %d, want 2", count.Count)
	}
	all[0].wantInbox()
	all[1].wantInbox("alice: the tests are red")
	all[2].wantInbox("alice: the tests are red")
	all[3].wantInbox()
	all[0].refused("broadcast-message", args{"message": " "}, `missing required argument "message"`)
}

// makeCompanion makes one agent another's companion.
func (m *machine) makeCompanion(id, owner string) *member {
	m.t.Helper()
	a := m.agent(id, "claude", m.repo)
	if _, err := m.server.change(id, func(e *entry) error { e.Owner = owner; return nil }); err != nil {
		m.t.Fatal(err)
	}
	a.call("register-agent", nil, nil)
	return a
}

func TestACompanionAndItsOwnerTalkOnlyToEachOther(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	both := m.members("alice", "bob")
	alice, bob := both[0], both[1]
	for _, a := range both {
		a.call("register-agent", nil, nil)
	}
	pet := m.makeCompanion("pet", "alice")
	alice.send("pet", "hello")
	pet.send("alice", "here I am")
	pet.refused("send-message", args{"to": "bob", "message": "x"}, "nobody here is called")
	bob.refused("send-message", args{"to": "pet", "message": "x"}, "nobody here is called")
	if text := bob.call("list-agents", nil, nil); strings.Contains(text, `"pet"`) {
		t.Errorf("bob sees %s", text)
	}
	if text := pet.call("list-agents", nil, nil); strings.Contains(text, `"bob"`) || !strings.Contains(text, `"alice"`) {
		t.Errorf("pet sees %s", text)
	}
	for sender, want := range map[*member]int{alice: 2, bob: 1, pet: 1} {
		var count heard
		if sender.call("broadcast-message", args{"message": "from " + sender.id}, &count); count.Count != want {
			t.Errorf("%s's broadcast reached %d, want %d", sender.id, count.Count, want)
		}
	}
	got := alice.inbox(false)
	slices.Sort(got)
	if want := []string{"bob: from bob", "pet: from pet", "pet: here I am"}; !slices.Equal(got, want) {
		t.Errorf("alice reads %q, want %q", got, want)
	}
	pet.wantInbox("alice: hello", "alice: from alice")
	bob.wantInbox("alice: from alice")
}

// The fourth urgent one within the hour is ordinary.
func TestUrgentMessages(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	both := m.members("alice", "bob")
	for range 4 {
		both[0].call("send-message", args{"to": "bob", "message": "now", "urgent": "true"}, nil)
	}
	var messages []daemon.Message
	both[1].call("check-messages", nil, &messages)
	var urgent []bool
	for _, msg := range messages {
		urgent = append(urgent, msg.Urgent)
	}
	if want := []bool{true, true, true, false}; !slices.Equal(urgent, want) {
		t.Errorf("urgent are %v, want %v", urgent, want)
	}
}

// Only an urgent message to it alone holds an external agent's turn open, once a turn, and three an hour from one sender.
func TestUrgentMailHoldsAnExternalAgentsStop(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	all := m.members("alice", "bob", "carol")
	alice, bob, carol := all[0], all[1], all[2]
	m.hook(socket.Hook{Session: "bobs-session", Event: "SessionStart", Source: "startup", Name: "bob"})
	bob.call("register-agent", nil, nil)
	turn := func(n int) func(event string) *socket.Answer {
		id := fmt.Sprint("prompt-", n)
		say := func(event string) *socket.Answer {
			return m.hook(socket.Hook{Session: "bobs-session", Event: event, Prompt: "go on", PromptID: id, Name: "bob"})
		}
		say("UserPromptSubmit")
		return say
	}
	urgent := func(from *member, text string) {
		t.Helper()
		from.call("send-message", args{"to": "bob", "message": text, "urgent": true}, nil)
	}
	// holds ends the turn until it is held open: on a machine that is busy a hook may be answered too late to say anything.
	holds := func(say func(string) *socket.Answer, text string) {
		t.Helper()
		hold := ""
		m.await(fmt.Sprintf("%q holds the turn", text), func() bool {
			hold = say("Stop").Hold
			return hold != ""
		})
		if !strings.Contains(hold, `urgent message from alice`) || !strings.Contains(hold, `"`+text+`"`) {
			t.Errorf("the turn is held by %q, want %q", hold, text)
		}
	}
	letsGo := func(say func(string) *socket.Answer, what string) {
		t.Helper()
		if hold := say("Stop").Hold; hold != "" {
			t.Errorf("%s holds the turn: %q", what, hold)
		}
	}
	say := turn(1)
	alice.send("bob", "no hurry")
	carol.call("broadcast-message", args{"message": "the tests are red"}, nil)
	letsGo(say, "other mail")
	say = turn(2)
	urgent(alice, "one")
	holds(say, "one")
	urgent(alice, "two")
	letsGo(say, "a second message in one turn")
	say = turn(3) // which is told of the second
	urgent(alice, "three")
	holds(say, "three")
	say = turn(4)
	urgent(alice, "four")
	letsGo(say, "a fourth within the hour")
	bob.wantInbox("alice: no hurry", "carol: the tests are red", "alice: one", "alice: two", "alice: three", "alice: four") // told is not read
}

// What is sent to an agent's person the agent reads, too; then it is read for both.
func TestAnAgentReadsItsPersonsMail(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	both := m.members("alice", "bob")
	both[0].send("ash", "may I use decimals?")
	both[1].wantInbox("alice: may I use decimals?")
	both[1].wantInbox()
	if out := m.Knoot(m.repo, "inbox", "--json"); strings.TrimSpace(out) != "[]" {
		t.Errorf("their person's unread are %s", out)
	}
	if out := m.Knoot(m.repo, "inbox", "--all", "--json"); !strings.Contains(out, "may I use decimals?") || !strings.Contains(out, `"read": true`) {
		t.Errorf("their person has %s", out)
	}
}

// What an agent has read is kept in its mailbox, and check-messages returns what is unread.
func TestWhatAnAgentHasReadIsKept(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	both := m.members("alice", "bob")
	m.hook(socket.Hook{Session: "bobs-session", Event: "SessionStart", Source: "startup", Name: "bob"})
	both[0].send("bob", "old news")
	both[1].wantInbox("alice: old news")
	both[0].send("bob", "news")
	all := func() string {
		t.Helper()
		of := m.In(t)
		of.Extra = []string{"CLAUDE_CODE_SESSION_ID=bobs-session", "CLAUDECODE=1"}
		var kept []daemon.KeptMessage
		if err := json.Unmarshal([]byte(of.Knoot(m.repo, "inbox", "--all", "--peek", "--json")), &kept); err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, each := range kept {
			out = append(out, fmt.Sprint(each.Text, " ", each.Read))
		}
		return strings.Join(out, ", ")
	}
	if got, want := all(), "old news true, news false"; got != want {
		t.Errorf("bob has %q, want %q", got, want)
	}
	both[1].wantInbox("alice: news")
	m.must(AgentRequest{Do: "rm", Agent: "bob"})
	m.agent("bob", "claude", m.repo)
	m.hook(socket.Hook{Session: "bobs-session", Event: "UserPromptSubmit", Prompt: "x", Name: "bob"})
	if got := all(); got != "" {
		t.Errorf("another bob has %q", got)
	}
}

// An agent's unread mail survives the daemon, whatever the state of the agent.
func TestMailWaitsForAnAgentThatIsNotThere(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	both := m.members("alice", "bob")
	m.hook(socket.Hook{Session: "bobs-session", Event: "SessionStart", Source: "startup", Name: "bob"})
	m.hook(socket.Hook{Session: "bobs-session", Event: "SessionEnd", Name: "bob"})
	both[0].send("bob", "when you are back")
	m.stop()
	m.start()
	both[0].wantInbox() // the repository is open, for which a hook would not wait long
	text := m.hook(socket.Hook{Session: "bobs-session", Event: "SessionStart", Source: "resume", Name: "bob"}).Context
	if !strings.Contains(text, "when you are back") {
		t.Errorf("bob is told %q", text)
	}
	both[1].wantInbox("alice: when you are back")
}

func TestUnreadMessagesGoAfterSevenDaysAndNoSooner(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	both := m.members("alice", "bob")
	both[0].send("bob", "old")
	m.stop()
	m.clock = func() time.Time { return time.Now().Add(7*24*time.Hour - time.Minute) }
	m.start()
	if got := both[1].inbox(true); len(got) != 1 {
		t.Errorf("before seven days bob reads %q", got)
	}
	m.stop()
	m.clock = func() time.Time { return time.Now().Add(7*24*time.Hour + time.Minute) }
	m.start()
	both[1].wantInbox()
}

func TestAMailboxThatIsFullRefuses(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	all := m.members("alice", "bob", "carol")
	for _, a := range all {
		a.call("register-agent", nil, nil)
	}
	refused := 0
	for i := range 250 {
		got, err := all[0].try("send-message", args{"to": "bob", "message": i})
		if err != nil {
			t.Fatal(err)
		}
		if got.Error {
			refused++
		}
	}
	var waiting []daemon.Message
	all[1].call("check-messages", args{"peek": true}, &waiting)
	if len(waiting) != 200 || refused != 50 || waiting[0].Text != "0" { // an unread one never goes
		t.Errorf("%d wait, %d were refused, the first is %q", len(waiting), refused, waiting[0].Text)
	}
	var count heard
	if all[0].call("broadcast-message", args{"message": "x"}, &count); count.Count != 1 {
		t.Errorf("a broadcast reached %d", count.Count)
	}
}

// Whatever an agent wrote is whole in the inbox, and no more than a line in a brief.
func TestMessagesAreWholeInTheInbox(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	both := m.members("alice", "bob")
	m.hook(socket.Hook{Session: "bobs-session", Event: "SessionStart", Source: "startup", Name: "bob"})
	long := "line one\n" + strings.Repeat("y", 3000)
	both[0].send("bob", long)
	if text := m.hook(socket.Hook{Session: "bobs-session", Event: "UserPromptSubmit", Prompt: "go"}).Context; !strings.Contains(text, "line one") || len(text) > 2000 {
		t.Errorf("bob is told %d bytes", len(text))
	}
	both[1].wantInbox("alice: " + long)
	both[0].refused("send-message", args{"to": "bob", "message": strings.Repeat("z", 5000)}, "5000 bytes")
	encoded, _ := json.Marshal("use ghp_" + "Zk3Jq8Xw1Vb6Nf4Ty9Rd2Lc7Ms5Hg0PaUeOi")
	if got, err := both[0].raw("send-message", `{"agentId":"alice","to":"bob","message":`+string(encoded)+`}`); err != nil || !got.Error || !strings.Contains(got.Text, "credential") {
		t.Errorf("a message with a secret: %v, %+v", err, got)
	}
}
