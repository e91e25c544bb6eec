package daemon

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"knoot.dev/knoot/gitlog"
)

// before is a moment, so long before the tests' now.
func before(d time.Duration) gitlog.Millis { return gitlog.MillisOf(now.Add(-d)) }

var sam = Peer{Member: "sam"}

// happened is news of sam's agent's, 2 minutes old, with a key of its own.
func happened(kind NewsKind, path string) News {
	return News{Key: string(kind) + " " + path, Kind: kind, Path: path, By: sam, At: before(2 * time.Minute)}
}

func TestWhatIsSaidOfNews(t *testing.T) {
	for _, c := range []struct {
		name   string
		kind   NewsKind
		change func(*News)
		want   string
	}{
		{"a denied file is free", NewsFreed, nil,
			`- a.js, which you were denied, is free now: sam's agent is done with it; read it before you write it`},
		{"free, and nobody knows after whom", NewsFreed, func(n *News) { n.By = Peer{} }, `- a.js, which you were denied, is free now`},
		{"a turn in a queue", NewsTurn, func(n *News) { n.Until = before(-90 * time.Second) },
			`- a.js, which you were denied, is kept for you for 90 seconds: it is your turn in its queue`},
		{"a person took it", NewsTaken, nil, `- a.js, which you held, was taken by sam, a person, 2 minutes ago: your claim on it has ended`},
		{"changed in this tree", NewsChanged, nil,
			`- a.js, which you read, was changed by sam's agent 2 minutes ago: in your files now, read it again before you rely on it`},
		{"changed and pushed", NewsChanged, func(n *News) { n.Place, n.Commit = Pushed, "4be1c2d9e8f7" },
			`- a.js, which you read, was changed by sam's agent 2 minutes ago: pushed, and not in your files yet (commit 4be1c2d)`},
		{"changed in another worktree", NewsChanged, func(n *News) { n.Place, n.Branch = Elsewhere, "refs/heads/tax" },
			`- a.js, which you read, was changed by sam's agent 2 minutes ago: only in another worktree so far (branch tax)`},
		{"by a person", NewsChanged, func(n *News) { n.By = Peer{Member: "sam", Person: true} },
			`- a.js, which you read, was changed by sam 2 minutes ago: in your files now, read it again before you rely on it`},
		{"by an agent with a name", NewsChanged, func(n *News) { n.By.Agent = "reviewer" },
			`- a.js, which you read, was changed by sam's agent "reviewer" 2 minutes ago: in your files now, read it again before you rely on it`},
		{"removed", NewsRemoved, nil, `- a.js, which you read, was removed by sam's agent 2 minutes ago: in your files now, it is gone`},
		{"created twice", NewsCollision, func(n *News) { n.Branch = "refs/heads/tax" },
			`- a.js, which you created, was created by sam's agent too, 2 minutes ago (branch tax): a merge will bring both`},
		{"written without asking", NewsUngated, nil,
			`- a.js, which you hold, was written by sam's agent 2 minutes ago without asking: check what it holds before you go on`},
		{"wrote what another holds", NewsCrossed, func(n *News) { n.Text = "rewriting tax" },
			`- a.js, which you wrote 2 minutes ago, is held by sam's agent ("rewriting tax"): both changes are in it now`},
		{"changed while a command ran", NewsChanged, func(n *News) { n.Unsure = true },
			`- a.js, which you read, was changed while a command of sam's agent ran, 2 minutes ago: in your files now, read it again before you rely on it`},
		{"removed while one ran", NewsRemoved, func(n *News) { n.Unsure = true },
			`- a.js, which you read, was removed while a command of sam's agent ran, 2 minutes ago: in your files now, it is gone`},
		{"a held file changed while one ran", NewsUngated, func(n *News) { n.Unsure = true },
			`- a.js, which you hold, was changed while a command of sam's agent ran, 2 minutes ago: check what it holds before you go on`},
		{"another's while one's own ran", NewsCrossed, func(n *News) { n.Unsure, n.Text = true, "rewriting tax" },
			`- a.js was changed while your command ran, 2 minutes ago, and is held by sam's agent ("rewriting tax"): both changes may be in it now`},
		{"a held file changed though it was refused", NewsUngated, func(n *News) { n.Denied = true },
			`- a.js, which you hold, was changed after knoot refused that to sam's agent, 2 minutes ago: check what it holds before you go on`},
		{"another's though one's own was refused", NewsCrossed, func(n *News) { n.Denied, n.Text = true, "rewriting tax" },
			`- a.js was changed though your write of it was refused, 2 minutes ago, and is held by sam's agent ("rewriting tax"): both changes may be in it now`},
		{"a claim ended with the branch", NewsMoved, nil,
			`- a.js is held by sam's agent on the branch that you moved to: your claim on it ended 2 minutes ago`},
		{"who moved to the branch", NewsJoined, nil,
			`- a.js, which you hold, was being changed by sam's agent, who moved to your branch 2 minutes ago: it is yours, and their changes may be in the way`},
		{"one task twice", NewsDuplicate, func(n *News) { n.Path, n.Text = "", "rewrite the tax rounding" },
			`- sam's agent began on "rewrite the tax rounding" 2 minutes ago: is that the task that you are at?`},
		{"mail", NewsMail, func(n *News) { n.Path, n.Text = "", "done\nwith tax" }, `- message from sam (an agent), 2 minutes ago: "done with tax"`},
		{"urgent mail, long", NewsMail, func(n *News) { n.Path, n.Text, n.Urgent = "", strings.Repeat("x", 600), true },
			`- urgent message from sam (an agent), 2 minutes ago: "` + strings.Repeat("x", 497) + `…" (the rest: knoot inbox)`},
		{"stash", NewsStash, nil,
			"- the stash belongs to the clone, and others are at work in other worktrees of it: what you stash they can pop, and what you pop may be theirs " +
				"(git stash list says whose branch it is from)"},
		{"swept", NewsSwept, func(n *News) { n.Text = "git reset --hard" },
			`- your "git reset --hard" reaches a.js, which sam's agent changed 2 minutes ago and did not commit; it goes on`},
		{"left", NewsLeft, nil, `- a.js: sam's agent left uncommitted changes here 2 minutes ago`},
		{"overlap", NewsOverlap, func(n *News) { n.Branch, n.Text = "refs/heads/tax", OverlapConflicts },
			`- a.js is being changed by sam's agent on branch tax, too: as they are now, they conflict`},
		{"noted", NewsNoted, nil, `- a.js was written by sam's agent 2 minutes ago`},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := happened(c.kind, "a.js")
			if c.change != nil {
				c.change(&n)
			}
			in := input(EventPreTool)
			in.Call, in.Writes, in.News = []string{"a.js"}, []string{"a.js"}, []News{n}
			b := tell(in)
			wantLines(t, b, c.want)
			if b.News[c.kind] != 1 || len(b.News) != 1 {
				t.Errorf("counted %v", b.News)
			}
			if b := tell(in); b.Text != "" {
				t.Errorf("told again: %s", b.Text)
			}
		})
	}
}

func TestWhichHooksCarryNews(t *testing.T) {
	for event, want := range map[string]bool{EventSessionStart: true, EventSubagentStart: true, EventPrompt: true, EventPreTool: true,
		EventPostTool: true, "Stop": false, "SessionEnd": false} {
		in := input(event)
		in.Budget.Invite, in.Source = false, "resume"
		in.News = []News{happened(NewsChanged, "a.js")}
		if got := Compose(in).Text != ""; got != want {
			t.Errorf("%s: told %v, want %v", event, got, want)
		}
	}
}

// Notes on a file come before a write of that file.
func TestNotesComeBeforeAWriteOfTheirFile(t *testing.T) {
	for _, kind := range []NewsKind{NewsLeft, NewsOverlap, NewsNoted} {
		in := input(EventPreTool)
		in.News = []News{happened(kind, "a.js")}
		in.Call = []string{"a.js"}
		if b := Compose(in); b.Text != "" {
			t.Errorf("%s before a read: %s", kind, b.Text)
		}
		in.Writes = []string{"b.js"}
		if b := Compose(in); b.Text != "" {
			t.Errorf("%s before another write: %s", kind, b.Text)
		}
		in.Writes = []string{"a.js"}
		for _, event := range []string{EventPrompt, EventPostTool, EventSessionStart} {
			in.Event, in.Source = event, "resume"
			if b := Compose(in); b.Text != "" {
				t.Errorf("%s at %s: %s", kind, event, b.Text)
			}
		}
		in.Event = EventPreTool
		if b := Compose(in); b.Text == "" {
			t.Errorf("%s is not told before the write", kind)
		}
	}
}

func TestOrderOfNews(t *testing.T) {
	in := input(EventPrompt, money)
	in.Turn = money.Paths
	mail, gone := happened(NewsMail, ""), happened(NewsRemoved, "gone.js")
	mail.Text, mail.At = "hello", before(time.Hour)
	older := happened(NewsChanged, "older.js")
	older.At = before(time.Hour)
	in.News = []News{mail, gone, happened(NewsChanged, "new.js"), older, happened(NewsFreed, "free.js")}
	in.Peers = []BriefPeer{{Key: "s", Peer: sam, SameBranch: true, Files: []string{"src/tax.js"}, Plan: "tax"}}
	var got []string
	for _, line := range lines(Compose(in)) {
		got = append(got, strings.Join(strings.Fields(strings.Trim(line, "- "))[:2], " "))
	}
	want := []string{"free.js, which", "older.js, which", "new.js, which", "gone.js, which", "message from", "sam's agent", "src/billing.js: \"all"}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("order %q, want %q", got, want)
	}
}

func TestManyNewsBecomeOneLine(t *testing.T) {
	in := input(EventPostTool)
	for i := range 4 {
		in.News = append(in.News, happened(NewsChanged, fmt.Sprintf("%d.js", i)))
	}
	mail := happened(NewsMail, "")
	mail.Text = "hello"
	in.News = append(in.News, happened(NewsFreed, "free.js"))
	if got := len(lines(Compose(in))); got != 5 {
		t.Errorf("five pieces of news in %d lines", got)
	}
	in.News = append(in.News, mail)
	b := tell(in)
	wantLines(t, b, `- news: 1 file that you were denied is free now (free.js); 4 files that you read were changed (0.js, 1.js, 2.js, 1 more); 1 message (knoot inbox)`)
	if b.News[NewsChanged] != 4 || b.News[NewsMail] != 1 {
		t.Errorf("counted %v", b.News)
	}
	if b := tell(in); b.Text != "" {
		t.Errorf("told again: %s", b.Text)
	}
}

// A second change is news, and its line another one.
func TestTheSameHappensAgain(t *testing.T) {
	in := input(EventPostTool)
	in.News = []News{happened(NewsChanged, "a.js")}
	tell(in)
	for i, want := range []string{"(again)", "(the 3rd time)", "(the 4th time)"} {
		next := happened(NewsChanged, "a.js")
		next.Key += fmt.Sprint(i)
		in.News, in.Now = []News{next}, in.Now.Add(time.Minute)
		if b := tell(in); !strings.Contains(b.Text, want) {
			t.Errorf("told %q, want it with %s", b.Text, want)
		}
	}
	in.Event, in.Source, in.News = EventSessionStart, "compact", nil
	tell(in)
	in.Event, in.News = EventPostTool, []News{happened(NewsChanged, "a.js")}
	if b := tell(in); strings.Contains(b.Text, "again)") || b.Text == "" {
		t.Errorf("a context that knows nothing is told %q", b.Text)
	}
}

// What does not fit is told at the next hook, and is not counted as something to recall.
func TestNewsWaitsForRoom(t *testing.T) {
	in := input(EventPostTool)
	mail := happened(NewsMail, "")
	mail.Text = strings.Repeat("x", 500)
	in.News, in.Spent = []News{mail}, 1700
	if b := tell(in); b.Text != "" {
		t.Errorf("told: %s", b.Text)
	}
	in.Event, in.Spent = EventPrompt, 0
	if b := tell(in); b.Text == "" {
		t.Error("not told when there is room")
	}
}

func TestHold(t *testing.T) {
	in := input(eventStop, money)
	in.Turn, in.TurnNumber = money.Paths, 3
	early, urgent, mail := happened(NewsFreed, "early.js"), happened(NewsMail, ""), happened(NewsMail, "")
	early.Turn = 2
	urgent.Key, urgent.Urgent, urgent.Text, mail.Text = "urgent", true, "stop", "later"
	in.News = []News{early, mail, happened(NewsChanged, "a.js")}
	if b := Compose(in); b.Text != "" {
		t.Errorf("held for nothing: %s", b.Text)
	}
	free := happened(NewsFreed, "free.js")
	free.Turn = 3
	in.News = append(in.News, free, urgent)
	b := tell(in)
	want := holdHeading + `
- free.js, which you were denied, is free now: sam's agent is done with it; read it before you write it
- urgent message from sam (an agent), 2 minutes ago: "stop"`
	if b.Text != want || b.Cause != "end of the turn" || b.Bytes != len(want) {
		t.Errorf("held with\n%s\nfor %q, want\n%s", b.Text, b.Cause, want)
	}
	if b := tell(in); b.Text != "" {
		t.Errorf("held again: %s", b.Text)
	}
}

// However much a turn was told, that a file is free fits at its end.
func TestRoomIsKeptForTheHold(t *testing.T) {
	in := input(EventPostTool)
	in.Waits = true
	for i := range 100 {
		mail := happened(NewsMail, "")
		mail.Key, mail.Text = fmt.Sprint(i), strings.Repeat("x", 10*i)
		in.News = []News{mail}
		in.Spent += tell(in).Bytes
	}
	in.Event, in.TurnNumber = eventStop, 1
	free := happened(NewsFreed, strings.Repeat("long/", 39)+"a.js")
	free.Turn = 1
	in.News = []News{free}
	b := tell(in)
	if b.Text == "" || in.Spent+b.Bytes > 2000 {
		t.Errorf("%d bytes told, then %d", in.Spent, b.Bytes)
	}
}

func TestOrdinal(t *testing.T) {
	for n, want := range map[int]string{1: "1st", 2: "2nd", 3: "3rd", 4: "4th", 11: "11th", 12: "12th", 13: "13th", 21: "21st", 111: "111th", 102: "102nd"} {
		if got := ordinal(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

func TestLeft(t *testing.T) {
	for d, want := range map[time.Duration]string{-time.Minute: "a moment", time.Second: "1 second", 119 * time.Second: "119 seconds",
		2 * time.Minute: "2 minutes", 8*time.Minute + 20*time.Second: "8 minutes"} {
		if got := left(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

// Many pieces of news of any kind are counted in words.
func TestManyNewsOfAnyKind(t *testing.T) {
	t.Parallel()
	for _, kind := range newsOrder {
		for n := 1; n <= 2; n++ {
			var all []*News
			for range n {
				all = append(all, &News{Kind: kind, Path: "a.js"})
			}
			noun := newsNouns[kind][n-1]
			if line := manyNewsLine(all, 1); noun == "" || !strings.Contains(line, noun) {
				t.Errorf("%d of %s: %q", n, kind, line)
			}
		}
	}
}
