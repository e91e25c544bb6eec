package daemon

import (
	"context"
	"slices"

	"knoot.dev/knoot/gitlog"
)

// claimSettings are what a repository's settings say about claims now. They are followed while the clone is open, other
// settings are read once.
type claimSettings struct {
	gitlog.ClaimSettings
	stamps []stamp // of the files that they hang on, when they were read
}

// claims returns the repository's settings about claims.
func (oc *openClone) claims() gitlog.ClaimSettings {
	if s := oc.followed.Load(); s != nil {
		return s.ClaimSettings
	}
	return oc.clone.Settings().Claims
}

// followSettings reads the settings again if they may have changed. It is not for hooks.
func (oc *openClone) followSettings(ctx context.Context) {
	var stamps []stamp
	for _, file := range oc.clone.SettingsFiles() {
		stamps = append(stamps, stampOfFile(file))
	}
	if was := oc.followed.Load(); was != nil && slices.Equal(was.stamps, stamps) {
		return
	}
	now := &claimSettings{ClaimSettings: oc.claims(), stamps: stamps}
	// What cannot be read now changes nothing: status says what is wrong with it.
	if read, err := oc.clone.ReadSettings(ctx); err == nil {
		now.ClaimSettings = read.Claims
		if as := oc.clone.Settings(); read.Relay != as.Relay || read.RelayKey != as.RelayKey {
			oc.outdated.Store(true)
		}
	}
	oc.followed.Store(now)
}

// claimMode is what becomes of this person's writes in the repository: what its settings say, or less.
func (d *daemon) claimMode(oc *openClone) gitlog.ClaimMode {
	return oc.claims().Mode.Lowered(d.config.now().Claims.Mode)
}

// kinds says of each path of the worktree what claims make of it; in 20 ms, or it is ordinary.
func (wt *worktree) kinds(ctx context.Context, paths []string) []gitlog.FileKind {
	return wt.rules.Kinds(ctx, paths, wt.clone.claims().Note)
}

// isHub says whether the repository's settings name a path as a hub.
func (oc *openClone) isHub(path string) bool { return oc.claims().Hubs.Match(path) }
