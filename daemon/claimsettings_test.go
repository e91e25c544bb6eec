package daemon

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"knoot.dev/knoot/gitlog"
)

// worktreeOf opens a worktree in a running daemon.
func (r *repository) worktreeOf(d *daemon) *worktree {
	r.m.t.Helper()
	wt, err := d.clones.find(context.Background(), r.root)
	if err != nil {
		r.m.t.Fatal(err)
	}
	return wt
}

// Settings about claims count as soon as they are on the branch that counts; a checkout of somebody's branch decides nothing.
func TestClaimSettingsAreFollowed(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	m.git(r.root, "add", "-A")
	m.git(r.root, "commit", "-qm", "settings")
	d := m.start(Options{})
	wt := r.worktreeOf(d)
	oc, ctx := wt.clone, context.Background()
	oc.followSettings(ctx)
	if mode := d.claimMode(oc); mode != gitlog.ClaimsDeny {
		t.Fatalf("without settings the mode is %s", mode)
	}
	text, err := os.ReadFile(filepath.Join(r.root, gitlog.SettingsFile))
	if err != nil {
		t.Fatal(err)
	}
	r.write(gitlog.SettingsFile, "hubs = [\"src/routes.js\"]\n"+string(text)+"[claims]\nmode = \"note\"\nnote = [\"docs\"]\n")
	oc.followSettings(ctx)
	if mode := d.claimMode(oc); mode != gitlog.ClaimsDeny {
		t.Errorf("what is in the checkout alone counts: %s", mode)
	}
	m.git(r.root, "commit", "-qam", "claims")
	oc.followSettings(ctx)
	if mode := d.claimMode(oc); mode != gitlog.ClaimsNote || !oc.isHub("src/Routes.js") || oc.isHub("src/x.js") {
		t.Errorf("once committed: mode %s", mode)
	}
	if kind := wt.kinds(ctx, []string{"docs/a.md"})[0]; kind != gitlog.FileNoted {
		t.Errorf("docs/a.md is %v", kind)
	}
	r.write(gitlog.SettingsFile, "claims = [\n")
	m.git(r.root, "commit", "-qam", "broken")
	oc.followSettings(ctx)
	if mode := d.claimMode(oc); mode != gitlog.ClaimsNote {
		t.Errorf("settings that do not parse changed the mode to %s", mode)
	}
	writeFile(t, filepath.Join(m.loc.Home, "config.toml"), "[claims]\nmode = \"off\"\n")
	if _, err := d.config.reload(); err != nil {
		t.Fatal(err)
	}
	if mode := d.claimMode(oc); mode != gitlog.ClaimsOff {
		t.Errorf("the person lowered it to off: %s", mode)
	}
}
