package daemon

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/gitlog"
)

// twoWorktrees are of one repository, on main and on other; both have src/tax.js, with 30 lines.
func twoWorktrees(t *testing.T) (r, other *repository, changed func(line int, to string) string) {
	m := newMachine(t)
	r = m.repository("shop")
	var content strings.Builder
	for i := range 30 {
		fmt.Fprintf(&content, "line %d\n", i+1)
	}
	r.write("src/tax.js", content.String())
	m.git(r.root, "add", "-A")
	m.git(r.root, "commit", "-qm", "settings")
	root := filepath.Join(m.vars["HOME"], "other")
	m.git(r.root, "worktree", "add", "-q", "-b", "other", root)
	return r, &repository{m: m, root: root}, func(line int, to string) string {
		return strings.Replace(content.String(), fmt.Sprintf("line %d\n", line), to+"\n", 1)
	}
}

func TestOverlapsAreFound(t *testing.T) {
	r, other, changed := twoWorktrees(t)
	root := other.root
	d := r.m.start(Options{})
	a := r.worktreeOf(d).clone.arbiter
	other.worktreeOf(d)
	one := party{Key: sessionKey{"claude", "one"}, Root: r.root, Branch: "refs/heads/main"}
	two := party{Key: sessionKey{"claude", "two"}, Root: root, Branch: "refs/heads/other"}
	want := func(when, mine, theirs string) {
		t.Helper()
		waitFor(t, when, func() bool {
			return d.overlaps.between(r.root, root, "src/tax.js") == mine && d.overlaps.between(root, r.root, "src/tax.js") == theirs
		})
	}
	want("before anything is claimed", OverlapUnknown, OverlapUnknown)
	a.claimFor(t, one, "src/tax.js")
	r.write("src/tax.js", changed(3, "three"))
	a.claimFor(t, two, "src/tax.js")
	want("one has changed it", OverlapMerges, OverlapMerges)
	other.write("src/tax.js", "first\n"+changed(3, "drei\nvier"))
	a.wrote(two, []string{"src/tax.js"}, nil)
	want("both have changed a line", OverlapConflicts+" in line 3", OverlapConflicts+" in lines 4-5")
	r.write("src/tax.js", changed(20, "twenty"))
	a.wrote(one, []string{"src/tax.js"}, nil)
	want("they are apart", OverlapMerges, OverlapMerges)
}

func TestHooksTellHowBranchesGoTogether(t *testing.T) {
	r, other, changed := twoWorktrees(t)
	d := r.m.start(Options{})
	one, two := &agent{r: r, session: "one"}, &agent{r: other, session: "two"}
	write := func(a *agent, event string, call int) string {
		return a.hook(event, func(h *socket.Hook) {
			h.Tool, h.ToolUse, h.Places[0].Writes = "Write", fmt.Sprint(call), []string{"src/tax.js"}
		}).Context
	}
	write(one, EventPreTool, 1)
	r.write("src/tax.js", changed(3, "three"))
	write(one, EventPostTool, 1)
	// git may have looked by then, or not.
	if told := write(two, EventPreTool, 1); !strings.Contains(told, "they may conflict") && !strings.Contains(told, "both merge") {
		t.Errorf("at the first write: %q", told)
	}
	other.write("src/tax.js", changed(3, "drei"))
	write(two, EventPostTool, 1)
	waitFor(t, "the conflict is known", func() bool {
		return strings.HasPrefix(d.overlaps.between(other.root, r.root, "src/tax.js"), OverlapConflicts)
	})
	if told := write(two, EventPreTool, 2); !strings.Contains(told, "they conflict in line 3") {
		t.Errorf("at the second write: %q", told)
	}
	write(two, EventPostTool, 2)
	if told := write(two, EventPreTool, 3); strings.Contains(told, "conflict") {
		t.Errorf("told twice: %q", told)
	}
}

func TestLineWords(t *testing.T) {
	for want, ranges := range map[string][]gitlog.LineRange{
		"":                                nil,
		" in line 4":                      {{First: 4, Last: 4}},
		" in lines 4-9":                   {{First: 4, Last: 9}},
		" in lines 4-9 and 20":            {{First: 4, Last: 9}, {First: 20, Last: 20}},
		" in lines 1, 2, 3, 4-5 and more": {{First: 1, Last: 1}, {First: 2, Last: 2}, {First: 3, Last: 3}, {First: 4, Last: 5}, {First: 9, Last: 9}},
	} {
		if got := lineWords(ranges); got != want {
			t.Errorf("%v: %q, want %q", ranges, got, want)
		}
	}
}
