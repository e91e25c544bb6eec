package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"knoot.dev/knoot/gitlog"
)

// state is what the daemon knows of sessions, in memory and in its file. Its methods may be called from several
// goroutines, those that say so with mu held.
type state struct {
	home *gitlog.Home
	name string // of the file
	log  *slog.Logger

	grows     int64      // stateRewrite
	rewriting sync.Mutex // one at a time writes the file anew; it is taken before mu

	mu       sync.Mutex
	sessions sessions                 // guarded by mu
	file     *stateFile[stateRecord]  // guarded by mu; nil while this device has no keys
	based    int64                    // guarded by mu: the file's size when it was last written anew; 0: by an earlier daemon
	renewing bool                     // guarded by mu: the file is being written anew
	since    []*stateRecord           // guarded by mu: what was appended meanwhile
	syncing  *time.Timer              // guarded by mu: syncs the file; nil: nothing is to be synced
	failed   bool                     // guarded by mu: the last write failed, and that was logged
	seen     map[onceKey]time.Time    // guarded by mu: hooks of the last seconds
	lastHook map[string]gitlog.Millis // guarded by mu: by agent
}

func newState(home *gitlog.Home, name string, log *slog.Logger) *state {
	return &state{home: home, name: name, log: log, grows: stateRewrite, sessions: sessions{}, seen: map[onceKey]time.Time{},
		lastHook: map[string]gitlog.Millis{}}
}

// load opens the file and reads what an earlier daemon knew. Without keys there is no file yet; see ready.
func (st *state) load(now gitlog.Millis) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.open(now)
}

// open is load with mu held.
func (st *state) open(now gitlog.Millis) error {
	if st.file != nil {
		return nil
	}
	device, err := st.home.Device()
	if errors.Is(err, gitlog.ErrNoDevice) {
		return nil
	}
	if err != nil {
		return err
	}
	dir := filepath.Join(st.home.Dir, "state")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("cannot make the daemon's state: %w", err)
	}
	file, damaged, err := openStateFile(filepath.Join(dir, st.name), device.Local, func(r *stateRecord) {
		st.sessions.apply(r)
		st.lastHook[r.Session.Agent] = max(st.lastHook[r.Session.Agent], r.At)
	})
	if err != nil {
		return err
	}
	if damaged > 0 {
		st.log.Warn("some of the state does not open and is left out", "records", damaged)
	}
	st.file = file
	st.forget(now)
	return nil
}

// ready makes sure that there is a file once there are keys. mu is held.
func (st *state) ready(now gitlog.Millis) {
	if st.file == nil {
		if err := st.open(now); err != nil {
			st.fail(err)
		}
	}
}

// commit makes changes, in memory and in the file. A file that cannot be written costs what would be known after a
// restart, not the answer. mu is held.
func (st *state) commit(records ...*stateRecord) {
	for _, r := range records {
		st.sessions.apply(r)
	}
	if st.file == nil {
		return
	}
	if st.renewing {
		st.since = append(st.since, records...)
	}
	if err := st.file.append(records...); err != nil {
		st.fail(err)
		return
	}
	st.failed = false
	st.syncSoon()
}

// syncAfter is how long records gather before they are made to survive the machine: a hook's answer does not wait for the disk.
const syncAfter = 100 * time.Millisecond

// syncSoon has what was written made to survive the machine. mu is held.
func (st *state) syncSoon() {
	if st.syncing == nil && st.file.unsynced {
		st.syncing = time.AfterFunc(syncAfter, st.sync)
	}
}

// sync makes the file survive the machine. Nobody waits for the disk with mu held.
func (st *state) sync() {
	st.mu.Lock()
	st.syncing = nil
	written := st.file
	if written == nil {
		st.mu.Unlock()
		return
	}
	file := written.file
	written.unsynced = false
	st.mu.Unlock()
	if err := file.Sync(); err != nil {
		st.mu.Lock()
		defer st.mu.Unlock()
		if st.file == written { // else it was closed meanwhile, and synced then
			written.unsynced = true
			st.fail(err)
		}
	}
}

func (st *state) fail(err error) {
	if !st.failed {
		st.failed = true
		st.log.Error("the state of sessions is not kept", "error", err)
	}
}

// isRepeated reports whether the hook with this key came within onceFor already, and remembers it. mu is held.
func (st *state) isRepeated(key onceKey, now time.Time) bool {
	at, was := st.seen[key]
	was = was && now.Sub(at) < onceFor
	if !was {
		if len(st.seen) > 1024 {
			for k, at := range st.seen {
				if now.Sub(at) >= onceFor {
					delete(st.seen, k)
				}
			}
		}
		st.seen[key] = now
	}
	return was
}

// forget drops sessions of which nothing was heard for long. mu is held.
func (st *state) forget(now gitlog.Millis) {
	for key, s := range st.sessions {
		if s.seen+stateKept < now {
			delete(st.sessions, key)
		}
	}
}

// tick forgets sessions, and shrinks the file when it has grown.
func (st *state) tick(now gitlog.Millis) {
	st.mu.Lock()
	st.forget(now)
	grown := st.file != nil && st.file.size-st.based >= st.grows
	st.mu.Unlock()
	if grown {
		st.compact(now)
	}
}

// compact puts what is still of use in the place of the file: once when a daemon has just taken its seat, and when the file has
// grown. Hooks go on meanwhile.
func (st *state) compact(now gitlog.Millis) {
	st.rewriting.Lock()
	defer st.rewriting.Unlock()
	st.mu.Lock()
	if st.file == nil {
		st.mu.Unlock()
		return
	}
	st.renewing, st.since = true, nil
	st.forget(now)
	path, key, size := filepath.Join(st.home.Dir, "state", st.name), st.file.key, st.file.size
	var known []*stateRecord
	for _, s := range st.sessions {
		known = append(known, s.records()...)
	}
	st.mu.Unlock()

	file, err := func() (*stateFile[stateRecord], error) {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("cannot read the daemon's state: %w", err)
		}
		text = text[:min(int64(len(text)), size)] // what follows is in since
		return writeState(path, key, append(shownIn(text, &key, st.name, now), known...))
	}()

	st.mu.Lock()
	defer st.mu.Unlock()
	since := st.since
	st.renewing, st.since = false, nil
	if err == nil {
		err = file.replace(st.file, since)
	}
	if err != nil {
		st.fail(err)
		return
	}
	st.file, st.based = file, file.size
	st.syncSoon()
}

// shownIn are the records of a state file's bytes that say what was shown, of the last 7 days, but for what was taken back.
func shownIn(text []byte, key *[32]byte, name string, now gitlog.Millis) (out []*stateRecord) {
	scanState(text, key, name, func(r *stateRecord) {
		if r.Shown != nil && r.At+stateKept >= now {
			out = append(out, &stateRecord{At: r.At, Session: r.Session, Subagent: r.Subagent, Shown: r.Shown})
		}
		if !r.Unshown.IsZero() {
			out = slices.DeleteFunc(out, func(kept *stateRecord) bool { return r.takesBack(kept.Shown) })
		}
	})
	return out
}

// takesBack says whether a record says of something shown that nobody took it.
func (r *stateRecord) takesBack(s *Shown) bool {
	return s.At.Equal(r.Unshown) && s.Agent == r.Session.Agent && s.Session == r.Session.ID && s.Subagent == r.Subagent
}

// close ends writing. load opens the file again.
func (st *state) close() {
	st.rewriting.Lock() // whoever opens the file next may write it anew, too
	defer st.rewriting.Unlock()
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.file != nil {
		if err := st.file.close(); err != nil {
			st.fail(err)
		}
		st.file = nil
	}
}

// isAnnounced reports whether a clone's log has a session's start.
func (st *state) isAnnounced(key sessionKey, common string) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	s := st.sessions[key]
	return s != nil && s.announced[common]
}

// wrote reports whether a session wrote a file, itself or by a subagent.
func (st *state) wrote(key sessionKey, root, path string) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	s := st.sessions[key]
	if s == nil {
		return false
	}
	for _, c := range s.contexts {
		if t := c.touched[root][path]; t != nil && t.Wrote != 0 {
			return true
		}
	}
	return false
}

// forgive takes note that these are owed no more.
func (st *state) forgive(key sessionKey, owed []happening) {
	r := &stateRecord{At: owed[0].At, Session: key, Aside: true}
	for _, h := range owed {
		r.Settled = append(r.Settled, h.ID)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.commit(r)
}

// owedIn returns what is owed of a worktree, by session.
func (st *state) owedIn(root string) map[sessionKey][]happening {
	st.mu.Lock()
	defer st.mu.Unlock()
	owed := map[sessionKey][]happening{}
	for key, s := range st.sessions {
		for _, h := range s.owed {
			if h.Root == root {
				owed[key] = append(owed[key], h)
			}
		}
	}
	return owed
}

// records are what makes a session again, in the order of apply. They stay as they are when the session changes.
func (s *session) records() []*stateRecord {
	introduced := 0
	if s.introduced {
		introduced = 1
	}
	first := &stateRecord{At: s.started, Session: s.key, Invited: s.invited, Introduced: introduced, Owed: s.owed, Start: &sessionStart{Home: s.home,
		Process: s.process, Birth: s.birth, Person: s.person, Name: s.name, Private: s.private}}
	out := []*stateRecord{first}
	if intent := s.intent; intent != "" {
		out = append(out, &stateRecord{At: s.intended, Session: s.key, Intent: &intent})
	}
	for other := range s.asked {
		out = append(out, &stateRecord{At: s.started, Session: s.key, Asked: &other})
	}
	for common := range s.announced {
		out = append(out, &stateRecord{At: s.started, Session: s.key, Announced: common})
	}
	for _, c := range s.contexts {
		r := &stateRecord{At: max(c.began, s.started), Session: s.key, Subagent: c.subagent, Turn: c.turn, Spent: c.spent, Cleared: true}
		for digest := range c.told {
			r.Told = append(r.Told, digest)
		}
		for file, n := range c.refused {
			for range n {
				r.Refused = append(r.Refused, file)
			}
		}
		for _, f := range c.delivered {
			r.Delivered = append(r.Delivered, f)
		}
		for _, paths := range c.touched {
			for _, t := range paths {
				r.Touched = append(r.Touched, t)
			}
		}
		r.News, r.Held, r.Emptied, r.Stopped = c.news, c.held, c.emptied, c.stopped
		out = append(out, r)
	}
	return append(out, &stateRecord{At: s.seen, Session: s.key, Ended: s.ended != 0})
}
