package daemon

import (
	"errors"
	"slices"
	"time"

	"knoot.dev/knoot/gitlog"
)

// History is what the state in a home directory holds for a person to read.
type History struct {
	// Shown is what was told, oldest first, of the last 7 days.
	Shown []Shown
	// LastHook is when the newest hook of an agent ran in sessions that began in a worktree.
	LastHook map[HookPlace]time.Time
}

// HookPlace is an agent and the worktree that its sessions began in.
type HookPlace struct {
	Agent string // as in `knoot hook NAME`
	Root  string // real absolute path; "" outside of repositories
}

// ReadHistory reads the state in a home directory; a daemon may be running or not. Without keys, or without a state, it
// is empty.
func ReadHistory(home *gitlog.Home, now time.Time) (*History, error) {
	h := &History{LastHook: map[HookPlace]time.Time{}}
	device, err := home.Device()
	if errors.Is(err, gitlog.ErrNoDevice) {
		return h, nil
	}
	if err != nil {
		return nil, err
	}
	all := sessions{}
	oldest := gitlog.MillisOf(now) - min(stateKept, gitlog.MillisOf(now))
	err = readStates(home.Dir, &device.Local, func(r *stateRecord) {
		all.apply(r)
		if r.Shown != nil && r.At >= oldest {
			h.Shown = append(h.Shown, *r.Shown)
		}
		if !r.Unshown.IsZero() {
			h.Shown = slices.DeleteFunc(h.Shown, func(s Shown) bool { return r.takesBack(&s) })
		}
	})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(h.Shown, func(a, b Shown) int { return a.At.Compare(b.At) })
	for i := range h.Shown {
		r := &h.Shown[i]
		if s := all[sessionKey{r.Agent, r.Session}]; s != nil && len(r.Denied) > 0 {
			r.Written = !slices.ContainsFunc(r.Denied, func(f DeniedFile) bool { return !s.wroteSince(f, gitlog.MillisOf(r.At)) })
		}
	}
	for key, s := range all {
		place := HookPlace{Agent: key.Agent, Root: s.home}
		if at := s.seen.Time(); at.After(h.LastHook[place]) {
			h.LastHook[place] = at
		}
	}
	return h, nil
}

// wroteSince says whether a session, or one of its subagents, wrote a file after at.
func (s *session) wroteSince(f DeniedFile, at gitlog.Millis) bool {
	for _, c := range s.contexts {
		if t := c.touched[f.Root][f.Path]; t != nil && t.Wrote != 0 && t.At > at {
			return true
		}
	}
	return false
}
