package daemon

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/gitlog"
)

// claimFor has a party claim files; all of them are free.
func (a *arbitration) claimFor(t *testing.T, by party, paths ...string) {
	t.Helper()
	happened := a.request(by, func(who arbiter.Who) arbiter.Request {
		r := arbiter.Claim{Who: who}
		for _, path := range paths {
			r.Wants = append(r.Wants, a.want(path, false))
		}
		return r
	})
	for _, o := range happened {
		if o.Kind == gitlog.ClaimDenied {
			t.Fatalf("%s is denied", o.Path)
		}
	}
}

// wroteFor has a session report that it wrote files, as a hook does.
func (a *arbitration) wroteFor(by party, paths ...string) {
	a.wrote(by, paths, nil)
	r := &stateRecord{At: a.d.now(), Session: by.Key, Aside: true}
	for _, path := range paths {
		r.Touched = append(r.Touched, &touch{Root: by.Root, Path: path, Wrote: 1, At: r.At})
	}
	a.d.state.mu.Lock()
	defer a.d.state.mu.Unlock()
	a.d.state.commit(r)
}

func (a *arbitration) stopFor(by party) {
	a.request(by, func(who arbiter.Who) arbiter.Request { return arbiter.Stop{Who: who} })
}

// leftTo are those of paths that are left as somebody else in the worktree sees it.
func (a *arbitration) leftTo(other party, paths ...string) (left []string) {
	a.look(func(v *arbiter.View, now gitlog.Millis) {
		who := a.who(other)
		for _, path := range paths {
			if len(v.Lefts(who, a.pathToken(path), now)) > 0 {
				left = append(left, path)
			}
		}
	})
	return left
}

func TestFilesThatAreLeft(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	now := newClock()
	d := m.start(Options{Now: now.now})
	wt := r.worktreeOf(d)
	a, ctx := wt.clone.arbiter, context.Background()
	one := party{Key: sessionKey{"claude", "one"}, Root: r.root, Branch: "refs/heads/main"}
	two := party{Key: sessionKey{"claude", "two"}, Root: r.root, Branch: "refs/heads/main"}
	all := []string{"src/billing.js", "src/new.js", "src/same.js"}
	claimed := append(slices.Clone(all), "src/others.js")

	a.claimFor(t, one, claimed...)
	r.write("src/billing.js", "floats\n")
	r.write("src/new.js", "new\n")
	r.write("src/others.js", "somebody else's\n") // claimed, and never written by the session
	a.wroteFor(one, all...)
	if left := a.leftTo(two, claimed...); len(left) > 0 {
		t.Fatalf("%q are left before the session stopped", left)
	}
	a.stopFor(one)
	waitFor(t, "what the session changed is left", func() bool { return slices.Equal(a.leftTo(two, claimed...), all[:2]) })

	d.left.tick(ctx)
	if left := a.leftTo(two, claimed...); !slices.Equal(left, all[:2]) {
		t.Errorf("nothing changed, and left are %q", left)
	}
	m.git(r.root, "checkout", "-q", "src/billing.js")
	d.left.tick(ctx)
	if left := a.leftTo(two, claimed...); !slices.Equal(left, all[1:2]) {
		t.Errorf("one was put back, and left are %q", left)
	}
	m.git(r.root, "add", "src/new.js")
	d.left.tick(ctx)
	if left := a.leftTo(two, claimed...); !slices.Equal(left, all[1:2]) {
		t.Errorf("one was staged, and left are %q", left)
	}
	m.git(r.root, "commit", "-qm", "new")
	d.left.tick(ctx)
	if left := a.leftTo(two, claimed...); len(left) > 0 {
		t.Errorf("all was committed, and left are %q", left)
	}
}

// A session that holds the file again has not left it, and one that writes it again has it no longer left.
func TestLeftFilesThatAreTakenUpAgain(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	d := m.start(Options{})
	wt := r.worktreeOf(d)
	a, ctx := wt.clone.arbiter, context.Background()
	one := party{Key: sessionKey{"claude", "one"}, Root: r.root, Branch: "refs/heads/main"}
	two := party{Key: sessionKey{"claude", "two"}, Root: r.root, Branch: "refs/heads/main"}
	r.write("src/billing.js", "floats\n")
	a.claimFor(t, one, "src/billing.js")
	a.wroteFor(one, "src/billing.js")
	a.stopFor(one)
	waitFor(t, "the file is left", func() bool { return len(a.leftTo(two, "src/billing.js")) == 1 })
	a.claimFor(t, one, "src/billing.js")
	a.wrote(one, []string{"src/billing.js"}, nil)
	d.left.tick(ctx)
	if n := len(d.left.due(d.now())); n != 0 {
		t.Errorf("%d places are still looked at", n)
	}
	d.left.observe(a, []occurrence{{Event: arbiter.Event{Kind: gitlog.ClaimReleased, Reason: arbiter.Stopped}, Key: one.Key, Root: one.Root,
		OnBranch: one.Branch, Path: "src/billing.js"}})
	d.left.lookAtEnded(ctx)
	if left := a.leftTo(two, "src/billing.js"); len(left) > 0 {
		t.Error("a file that its session holds is left")
	}
}

// What was left is followed by the next daemon, too.
func TestLeftFilesSurviveTheDaemon(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	one := party{Key: sessionKey{"claude", "one"}, Root: r.root, Branch: "refs/heads/main"}
	two := party{Key: sessionKey{"claude", "two"}, Root: r.root, Branch: "refs/heads/main"}
	r.write("src/billing.js", "floats\n")
	t.Run("before", func(t *testing.T) {
		m := &machine{t: t, loc: m.loc, vars: m.vars}
		a := r.worktreeOf(m.start(Options{})).clone.arbiter
		a.claimFor(t, one, "src/billing.js")
		a.wroteFor(one, "src/billing.js")
		a.stopFor(one)
		waitFor(t, "the file is left", func() bool { return len(a.leftTo(two, "src/billing.js")) == 1 })
	})
	d := m.start(Options{})
	a := r.worktreeOf(d).clone.arbiter
	d.left.tick(context.Background())
	if len(a.leftTo(two, "src/billing.js")) != 1 {
		t.Fatal("the file is not left after a restart")
	}
	m.git(r.root, "checkout", "-q", "src/billing.js")
	d.left.tick(context.Background())
	if len(a.leftTo(two, "src/billing.js")) != 0 {
		t.Error("the file is clean, and still left")
	}
}

func TestLeftInAWorktreeThatIsGone(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	d := m.start(Options{})
	m.git(r.root, "add", "-A")
	m.git(r.root, "commit", "-qm", "settings")
	root := filepath.Join(m.vars["HOME"], "other")
	m.git(r.root, "worktree", "add", "-q", "-b", "other", root)
	wt := (&repository{m: m, root: root}).worktreeOf(d)
	a := wt.clone.arbiter
	one := party{Key: sessionKey{"claude", "one"}, Root: root, Branch: "refs/heads/other"}
	writeFile(t, filepath.Join(root, "src/billing.js"), "floats\n")
	a.claimFor(t, one, "src/billing.js")
	a.wroteFor(one, "src/billing.js")
	a.stopFor(one)
	two := party{Key: sessionKey{"claude", "two"}, Root: r.root, Branch: "refs/heads/other"}
	waitFor(t, "the file is left", func() bool { return len(a.leftTo(two, "src/billing.js")) == 1 })
	if err := os.RemoveAll(root); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the daemon notices", func() bool {
		d.clones.tick()
		d.left.tick(context.Background())
		return len(a.leftTo(two, "src/billing.js")) == 0
	})
}

func TestReportClaudeCode9188ProcessThatGoesEndsClaims(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	d := m.start(Options{})
	wt := r.worktreeOf(d)
	pid, stop := program(t, "claude")
	one := &agent{r: r, session: "one"}
	one.hook(EventSessionStart, func(h *socket.Hook) { h.Process = pid })
	a := wt.clone.arbiter
	by := party{Key: sessionKey{"claude", "one"}, Root: r.root, Branch: "refs/heads/main"}
	a.claimFor(t, by, "src/billing.js")
	held := func() (held bool) {
		a.look(func(v *arbiter.View, now gitlog.Millis) {
			_, held = v.Holding(a.who(by), a.want("src/billing.js", false), now)
		})
		return held
	}
	if d.processes.look(); !held() {
		t.Fatal("the claim ended while the process runs")
	}
	stop()
	if d.processes.look(); held() {
		t.Error("the process is gone, and the claim lives")
	}
}
