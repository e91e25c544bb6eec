package daemon

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// peer is an agent of sam's on the same branch, in another clone.
func peer(key string, files ...string) BriefPeer {
	return BriefPeer{Key: key, Peer: sam, Branch: "refs/heads/main", SameBranch: true, Files: files, At: before(time.Minute)}
}

func TestWhatIsSaidOfAPeer(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*BriefPeer)
		want   string
	}{
		{"as the design has it", func(p *BriefPeer) { p.Plan, p.Decided = "rewriting tax rounding", []string{"half-even"} },
			`- sam's agent is in src/tax.js on this branch: "rewriting tax rounding"; decided: half-even`},
		{"a derived plan", func(p *BriefPeer) { p.Plan, p.Derived, p.Here = "rewrite tax", true, true },
			`- sam's agent is in src/tax.js in your working tree: "rewrite tax" (derived)`},
		{"a private session", nil, `- sam's agent is in src/tax.js on this branch`},
		{"the same file, on another branch, and more", func(p *BriefPeer) {
			p.Files, p.SameBranch, p.Branch = []string{"x.js", "src/billing.js", "y.js"}, false, "refs/heads/tax/even"
		}, `- sam's agent is in src/billing.js and 2 more files on branch tax/even`},
		{"detached", func(p *BriefPeer) { p.SameBranch, p.Branch, p.Files = false, "", []string{"src/billing.js"} }, `- sam's agent is in src/billing.js on no branch`},
		{"beside it, on another branch", func(p *BriefPeer) { p.SameBranch, p.Branch = false, "refs/heads/tax" }, `- also at work here: an agent of sam on branch tax`},
		{"a person", func(p *BriefPeer) { p.Person, p.Plan = true, "tax" },
			`- sam (a person) is in src/tax.js on this branch: "tax"; agents neither wait for a person nor ask them to move`},
		{"many decisions, some of several words", func(p *BriefPeer) { p.Plan, p.Decided = "tax", []string{"run rm now", "b", "c", "d", "e"} },
			`- sam's agent is in src/tax.js on this branch: "tax"; decided: "run rm now", b, c; 2 more`},
		{"far away, at the same task", func(p *BriefPeer) {
			p.Files, p.Plan = []string{"lib/x.js"}, "please move all rounding of money to the invoice total"
		},
			`- sam's agent is at a similar task on this branch: "please move all rounding of money to the invoice total"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := peer("one", "src/tax.js")
			if c.change != nil {
				c.change(&p)
			}
			in := input(EventPrompt)
			in.Turn, in.Peers, in.Doing = []string{"src/billing.js"}, []BriefPeer{p}, "move the rounding of all money into the invoice total"
			wantLines(t, tell(in), c.want)
			in.Now = in.Now.Add(time.Hour)
			if b := tell(in); b.Text != "" {
				t.Errorf("told again: %s", b.Text)
			}
		})
	}
}

func TestWhichHooksCarryPeers(t *testing.T) {
	for event, want := range map[string]bool{EventSessionStart: true, EventSubagentStart: true, EventPrompt: true, EventPreTool: false, EventPostTool: false, "Stop": false} {
		in := input(event)
		in.Budget.Invite, in.Source = false, "resume"
		in.Turn, in.Call = []string{"a.js"}, []string{"a.js"}
		in.Peers = []BriefPeer{peer("one", "a.js"), peer("two", "lib/b.js")}
		in.Queues = []BriefQueue{{Path: "a.js", Waiting: 3, Place: 2}}
		b := Compose(in)
		if !want {
			if b.Text != "" {
				t.Errorf("%s: %s", event, b.Text)
			}
			continue
		}
		wantLines(t, b, "- sam's agent is in a.js on this branch", "- also at work here: an agent of sam on this branch",
			"- a.js is widely shared: 3 sessions in its queue, you are the 2nd")
	}
}

// A peer that goes through the files of a directory is told once; one that comes into the same file, or says something else, again.
func TestPeerIsToldAgainWhenItMatters(t *testing.T) {
	in := input(EventPrompt)
	in.Turn, in.Peers = []string{"src/billing.js"}, []BriefPeer{peer("one", "src/tax.js")}
	tell(in)
	step := func(want bool, change func(p *BriefPeer)) {
		t.Helper()
		change(&in.Peers[0])
		if b := tell(in); (b.Text != "") != want {
			t.Errorf("told %q, want something: %v", b.Text, want)
		}
	}
	step(false, func(p *BriefPeer) { p.Files = []string{"src/cart.js", "src/tax.js"} })
	step(true, func(p *BriefPeer) { p.Files = []string{"src/billing.js", "src/cart.js"} })
	step(false, func(p *BriefPeer) { p.Files = []string{"src/tax.js"} })
	step(true, func(p *BriefPeer) { p.Plan = "tax" })
	step(true, func(p *BriefPeer) { p.Decided = []string{"half-even"} })
	step(false, func(p *BriefPeer) { p.At = before(-time.Hour) })
	step(false, func(p *BriefPeer) { p.Files = []string{"lib/x.js"} })
}

func TestNearestPeersFirst(t *testing.T) {
	in := input(EventPrompt)
	in.Turn = []string{"src/billing.js"}
	far := peer("far", "lib/a.js")
	in.Peers = []BriefPeer{far, peer("dir", "src/tax.js"), peer("file", "src/billing.js")}
	in.Peers[1].Plan, in.Peers[2].Plan = "beside", "within"
	wantLines(t, Compose(in), `- sam's agent is in src/billing.js on this branch: "within"`, `- sam's agent is in src/tax.js on this branch: "beside"`,
		"- also at work here: an agent of sam on this branch")
	in.Peers = nil
	for i := range 8 {
		p := peer(fmt.Sprint(i), "src/billing.js")
		p.Plan = fmt.Sprint("plan ", i)
		in.Peers = append(in.Peers, p)
	}
	all := lines(Compose(in))
	if len(all) != maxPeers+1 || all[maxPeers] != "- also at work here: 3 agents of sam on this branch" {
		t.Errorf("told %q", all)
	}
}

func TestPresence(t *testing.T) {
	in := input(EventPrompt)
	elsewhere, person := peer("b"), peer("c")
	elsewhere.SameBranch, elsewhere.Branch = false, "refs/heads/tax"
	person.Peer = Peer{Member: "priya", Person: true}
	in.Peers = []BriefPeer{peer("a"), elsewhere, person, peer("d")}
	wantLines(t, tell(in), "- also at work here: priya (a person) on this branch, 2 agents of sam on this branch, an agent of sam on branch tax")
	if b := tell(in); b.Text != "" {
		t.Errorf("told again: %s", b.Text)
	}
	in.Peers = in.Peers[:3]
	if b := tell(in); b.Text != "" {
		t.Errorf("that somebody left is told: %s", b.Text)
	}
	in.Peers = append(in.Peers, peer("e"))
	if b := tell(in); b.Text != "" {
		t.Errorf("the same as before is told: %s", b.Text)
	}
	// One more among many is told along with something else.
	in.Peers = append(in.Peers, peer("f"))
	if b := tell(in); b.Text != "" {
		t.Errorf("told alone: %s", b.Text)
	}
	in.News = []News{happened(NewsChanged, "a.js")}
	if all := lines(tell(in)); len(all) != 2 || all[1] != "- also at work here: priya (a person) on this branch, 3 agents of sam on this branch, an agent of sam on branch tax" {
		t.Errorf("told %q", all)
	}
	in.Event, in.Source, in.News = EventSessionStart, "resume", nil
	for i := range 20 {
		p := peer(fmt.Sprint(i))
		p.Member = fmt.Sprint("m", i)
		in.Peers = append(in.Peers, p)
	}
	if b := tell(in); !strings.HasSuffix(b.Text, ", 17 more (knoot who)") {
		t.Errorf("told %s", b.Text)
	}
}

func TestQueues(t *testing.T) {
	in := input(EventPrompt)
	in.Turn = []string{"a.js"}
	in.Queues = []BriefQueue{{Path: "a.js", Waiting: 1}, {Path: "b.js", Waiting: 4}, {Path: "c.js", Waiting: 2, Place: 1}, {Path: "a.js"}}
	wantLines(t, tell(in), "- a.js is widely shared: 1 session in its queue", "- c.js is widely shared: 2 sessions in its queue, you are the 1st")
	if b := tell(in); b.Text != "" {
		t.Errorf("told again: %s", b.Text)
	}
}

func TestLikeTask(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"move the rounding of money into the invoice total", "Please move ROUNDING of all money to the invoice's total now", true},
		{"move rounding money invoice", "move rounding money invoice", false}, // four words
		{"fix the tests that are with you and should have been there", "fix the tests that are with you and should have been there", false},
		{"one1 two2 three3 four4 five5 six6 seven7 eight8 nine9", "one1 two2 three3 four4 five5 aaaa bbbb cccc dddd", false}, // 5 of 9
		{"one1 two2 three3 four4 five5 six6 seven7 eight8", "one1 two2 three3 four4 five5 aaaa bbbb cccc", true},             // 5 of 8
		{"", "", false},
	} {
		if got := likeTask(c.a, c.b); got != c.want {
			t.Errorf("%q and %q: %v", c.a, c.b, got)
		}
		if got := likeTask(c.b, c.a); got != c.want {
			t.Errorf("%q and %q: %v", c.b, c.a, got)
		}
	}
}
