package daemon

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/gitlog"
)

// The commands as the hook finds them.
var (
	resetHard = socket.Sweep{Command: "git reset --hard", Tracked: true}
	cleanAll  = socket.Sweep{Command: "git clean", Untracked: true}
	stashAll  = socket.Sweep{Command: "git stash", Tracked: true, Stash: true}
	stashMore = socket.Sweep{Command: "git stash", Tracked: true, Untracked: true, Stash: true}
	addAll    = socket.Sweep{Command: "git add -A", Tracked: true, Untracked: true, Takes: true}
	commitAll = socket.Sweep{Command: "git commit -a", Tracked: true, Takes: true}
)

// git is what an agent hears before it runs git commands.
func (a *agent) git(sweeps ...socket.Sweep) *socket.Answer {
	a.r.m.t.Helper()
	return a.hook(EventPreTool, func(h *socket.Hook) {
		h.Tool, h.ToolUse, h.Shell, h.Opaque, h.Places[0].Sweeps = "Bash", "git", true, true, sweeps
	})
}

// wantRefused says that an answer refuses, and names all of the words.
func wantRefused(t *testing.T, what string, answer *socket.Answer, words ...string) {
	t.Helper()
	if answer.Deny == "" {
		t.Errorf("%s is allowed", what)
		return
	}
	for _, word := range words {
		if !strings.Contains(answer.Deny, word) {
			t.Errorf("%s is refused with %q, without %q", what, answer.Deny, word)
		}
	}
}

func wantAllowed(t *testing.T, what string, answer *socket.Answer) {
	t.Helper()
	if answer.Deny != "" {
		t.Errorf("%s is refused: %s", what, answer.Deny)
	}
}

func TestGitCommandsThatWouldUndoWhatOthersDid(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	d := m.start(Options{})
	r.isOpen()
	holder, other := &agent{r: r, session: "holder"}, &agent{r: r, session: "other"}
	wantAllowed(t, "a reset where nobody changed anything", other.git(resetHard, cleanAll, stashMore))
	holder.edit("src/billing.js")
	holder.edit("src/new.js")
	holder.about("docs/claimed.md") // and not written

	for what, c := range map[string]struct {
		sweep socket.Sweep
		names string // what it reaches
		safe  string
	}{
		"reset":                 {resetHard, "src/billing.js", "git restore -- PATH"},
		"checkout --force":      {socket.Sweep{Command: "git checkout --force", Tracked: true}, "src/billing.js", "git worktree add"},
		"restore of a folder":   {socket.Sweep{Command: "git restore DIRECTORY", Tracked: true, Paths: []string{"src"}}, "src/billing.js", "git restore -- PATH"},
		"checkout of a pattern": {socket.Sweep{Command: "git checkout PATTERN", Tracked: true, Suffix: ".js"}, "src/billing.js", "git restore -- PATH"},
		"clean":                 {cleanAll, "src/new.js", "rm PATH"},
		"stash":                 {stashAll, "src/billing.js", "git stash push -- PATH"},
		"stash -u":              {stashMore, "src/billing.js (ash's agent, just now), src/new.js (", "git worktree add"},
	} {
		answer := other.git(c.sweep)
		wantRefused(t, what, answer, `"`+c.sweep.Command+`"`, c.names, c.safe, "Nothing was run")
		for _, path := range []string{"src/billing.js", "src/new.js", "docs/claimed.md"} {
			if !strings.Contains(c.names, path) && strings.Contains(answer.Deny, path) {
				t.Errorf("%s names %s: %s", what, path, answer.Deny)
			}
		}
		wantRefused(t, what+" again", other.git(c.sweep), c.names)
	}
	for what, sweep := range map[string]socket.Sweep{
		"another pattern":           {Command: "git restore PATTERN", Tracked: true, Paths: []string{"src"}, Suffix: ".ts"},
		"another folder":            {Command: "git restore DIRECTORY", Tracked: true, Paths: []string{"docs", "src2", "sr"}},
		"a clean of another folder": {Command: "git clean", Untracked: true, Paths: []string{"src/billing.js"}},
		"a stash's use":             {Command: "git stash pop", Stash: true},
	} {
		wantAllowed(t, what, other.git(sweep))
	}
	wantAllowed(t, "one's own", holder.git(resetHard, cleanAll, stashMore))
	wantRefused(t, "one of two", other.git(socket.Sweep{Command: "git restore DIRECTORY", Tracked: true, Paths: []string{"docs"}}, cleanAll), `"git clean"`, "src/new.js")
	if claims := r.standingClaims(d); len(claims) != 3 {
		t.Errorf("a refused command claims: %q", claims)
	}

	// What a session left when its turn ended is its work all the same, until it is committed.
	holder.stop()
	waitFor(t, "it is left", func() bool { return len(d.left.in(r.worktreeOf(d).clone.arbiter, r.root)) == 2 })
	wantRefused(t, "what is left", other.git(stashMore), "src/billing.js", "src/new.js")
	m.git(r.root, "add", ".")
	wantRefused(t, "a new file that is staged", other.git(resetHard), "src/new.js")
	m.git(r.root, "commit", "-qm", "theirs")
	wantAllowed(t, "what is committed", other.git(resetHard, cleanAll, stashMore))

	// Two who changed one file: the other's change is in it still.
	holder.prompt("again")
	holder.edits("src/billing.js", "more\n")
	wantRefused(t, "another's later change", other.git(resetHard), "src/billing.js")
	holder.stop()
	m.git(r.root, "commit", "-qam", "theirs, too")
	d.left.tick(context.Background())
	other.edit("src/billing.js")
	wantAllowed(t, "one's own change after theirs was committed", other.git(resetHard))
	for _, paths := range [][]string{{"src/billing.js"}, {"src/billing.js", "src/new.js"}} {
		for range 2 {
			wantAllowed(t, strings.Join(paths, ", "), other.shell(EventPreTool, "named", paths...))
		}
	}
}

// What others changed is staged or committed by who insists: the same command comes through the second time.
func TestGitCommandsThatWouldTakeAlongWhatOthersDid(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	m.start(Options{})
	r.isOpen()
	holder, other := &agent{r: r, session: "holder"}, &agent{r: r, session: "other"}
	other.edit("mine.js")
	wantAllowed(t, "one's own", other.git(addAll))
	holder.edit("src/billing.js")
	holder.edit("new.js")
	wantRefused(t, "add -A", other.git(addAll), `"git add -A"`, "src/billing.js", "new.js", "git add -- PATH", "the same command again")
	wantAllowed(t, "the same again", other.git(addAll))
	wantAllowed(t, "and again", other.git(addAll))
	wantRefused(t, "another command", other.git(commitAll), `"git commit -a"`, "src/billing.js", "git commit -- PATH")
	wantAllowed(t, "the same again", other.git(commitAll))
	holder.edit("more.js")
	wantRefused(t, "add -A with another file of theirs", other.git(addAll), "more.js")
	wantAllowed(t, "the same again", other.git(addAll))
	wantRefused(t, "a subagent, who was told nothing", (&agent{r: r, session: "other", subagent: "helper"}).git(addAll), "src/billing.js")
	wantAllowed(t, "another folder", other.git(socket.Sweep{Command: "git add DIRECTORY", Tracked: true, Untracked: true, Takes: true, Paths: []string{"docs"}}))

	// Both of two copies of a hook say the same, and count once.
	both := func(sweep socket.Sweep, payload string) (deny [2]string) {
		for i := range deny {
			deny[i] = other.hook(EventPreTool, func(h *socket.Hook) {
				h.Tool, h.ToolUse, h.Shell, h.Places[0].Sweeps, h.Payload = "Bash", payload, true, []socket.Sweep{sweep}, payload
			}).Deny
		}
		return deny
	}
	update := socket.Sweep{Command: "git add -u", Tracked: true, Takes: true}
	if deny := both(update, "first"); deny[0] == "" || deny[0] != deny[1] {
		t.Errorf("two copies: %q", deny)
	}
	if deny := both(update, "second"); deny != [2]string{} {
		t.Errorf("two copies of the same again: %q", deny)
	}
	if deny := both(resetHard, "third"); deny[0] == "" || deny[0] != deny[1] {
		t.Errorf("two copies of a reset: %q", deny)
	}
	history, err := ReadHistory(m.gitlogHome(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, s := range history.Shown {
		if strings.HasPrefix(s.Cause, "denial of git add -u, which reaches ") && len(s.Denied) == 1 && s.Denied[0].Path == "src/billing.js" {
			n++
		}
	}
	if n != 1 {
		t.Errorf("what was shown has %d of these denials", n)
	}
}

func TestTheStashIsTheClones(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	m.start(Options{})
	r.isOpen()
	one := &agent{r: r, session: "one"}
	pop := socket.Sweep{Command: "git stash pop", Stash: true}
	if text := one.git(pop).Context; text != "" {
		t.Errorf("alone: %q", text)
	}
	(&agent{r: r, session: "here"}).start("startup")
	if text := one.git(pop).Context; text != "" {
		t.Errorf("somebody in the same worktree: %q", text)
	}
	two := &agent{r: r.worktree("tax"), session: "two"}
	two.start("startup")
	if text := one.git(pop).Context; !strings.Contains(text, "the stash belongs to the clone") {
		t.Errorf("with another worktree: %q", text)
	}
	if text := one.git(pop).Context; text != "" {
		t.Errorf("again: %q", text)
	}
	if text := two.git(stashAll).Context; !strings.Contains(text, "the stash belongs to the clone") {
		t.Errorf("the other: %q", text)
	}
}

// Who lowered the setting for themself is told, or hears nothing.
func TestGitCommandsWhereClaimsAreNotes(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	m.start(Options{})
	r.isOpen()
	holder, other := &agent{r: r, session: "holder"}, &agent{r: r, session: "other"}
	holder.edit("src/billing.js")
	writeFile(t, filepath.Join(m.loc.Home, "config.toml"), "[claims]\nmode = \"note\"\n")
	waitFor(t, "the setting is read", func() bool {
		answer := other.git(resetHard)
		return answer.Deny == "" && strings.Contains(answer.Context, `your "git reset --hard" reaches src/billing.js, which ash's agent changed just now`)
	})
	writeFile(t, filepath.Join(m.loc.Home, "config.toml"), "[claims]\nmode = \"off\"\n")
	third := &agent{r: r, session: "third"}
	waitFor(t, "the setting is read again", func() bool {
		answer := third.git(resetHard)
		return answer.Deny == "" && answer.Context == ""
	})
}

func TestWordsOfARefusedSweep(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	d := &sweepDenial{Now: now, Command: "git clean", Removes: true}
	for i := range 40 {
		d.Files = append(d.Files, othersFile{Path: "a folder/" + strings.Repeat("x", 20) + string(rune('a'+i%26)), By: Peer{Member: "sam"}, At: gitlog.MillisOf(now.Add(-time.Hour))})
	}
	for _, budget := range []int{1200, 600, 400, 200, minDenial, 0} {
		text := d.text(budget)
		if len(text) > max(budget, minDenial) || !strings.Contains(text, `"git clean"`) || !strings.Contains(text, "Nothing was run") {
			t.Errorf("in %d bytes: %q", budget, text)
		}
	}
	if text := d.text(1200); !strings.Contains(text, "and ") || !strings.Contains(text, " more.") || !strings.Contains(text, `"a folder/`) {
		t.Errorf("of many: %q", text)
	}
	if line := d.person(); !strings.Contains(line, `"git clean" was refused`) || !strings.Contains(line, "39 more files") {
		t.Errorf("the person reads %q", line)
	}
}
