package daemon

import (
	"errors"
	"path/filepath"
	"testing"

	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/gitlog"
)

// What happened is owed until the journal is on the disk, for which no hook waits; and what is tried again is there once.
func TestOwedUntilTheJournalIsSynced(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	asked, answer := make(chan struct{}), make(chan error)
	d := m.start(Options{syncJournal: func(c *gitlog.Clone) error {
		asked <- struct{}{}
		if err := <-answer; err != nil {
			return err
		}
		return c.SyncJournal()
	}})
	r.write("a.js", "a")
	r.write("b.js", "b")
	wrote := func(path string) {
		m.mustAsk(&socket.Request{Op: "hook", Hook: &socket.Hook{Agent: "claude", Event: EventPostTool, Session: "one", Cwd: r.root, Payload: path,
			Places: []socket.Place{{Root: r.root, Writes: []string{path}}}}})
	}
	owed := func() (n int) {
		for _, oc := range d.clones.all() {
			happened, _ := oc.arbiter.owedIn(r.root)
			for _, o := range happened {
				if o.Kind == gitlog.FileWritten {
					n++
				}
			}
		}
		return n
	}
	wrote("a.js")
	<-asked
	wrote("b.js") // a hook while the disk is busy
	if n := countEvents(d, gitlog.FileWritten); n != 1 || owed() != 2 {
		t.Errorf("before the journal is synced: %d recorded, %d owed; want 1 and 2", n, owed())
	}
	answer <- errors.New("the disk fails")
	<-asked // for the second hook
	if n := owed(); n != 2 {
		t.Errorf("after a sync that failed: %d owed, want 2", n)
	}
	answer <- nil
	waitFor(t, "it is settled", func() bool { return owed() == 0 })
	if n := countEvents(d, gitlog.FileWritten); n != 2 {
		t.Errorf("%d recorded, want 2", n)
	}
}

// Without a daemon's tick: what hooks reported is soon on the disk.
func TestStateIsSyncedSoon(t *testing.T) {
	m := newMachine(t)
	m.repository("shop") // with this device's keys
	home := m.gitlogHome()
	st := newState(home, "sessions", newLogger(t.Output()))
	if err := st.load(1); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(st.close)
	unsynced := func() bool {
		st.mu.Lock()
		defer st.mu.Unlock()
		return st.file.unsynced
	}
	for i := range 2 {
		st.mu.Lock()
		st.commit(&stateRecord{At: gitlog.Millis(i + 1), Session: sessionKey{"claude", "one"}})
		st.mu.Unlock()
		waitFor(t, "the state is synced", func() bool { return !unsynced() })
	}
}

// What came while an arbiter's file was written anew is in the new file, and that is synced though nothing more comes.
func TestArbitersFileThatWasWrittenAnewIsSynced(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	d := m.start(Options{})
	r.isOpen()
	a := r.worktreeOf(d).clone.arbiter
	synced := func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.syncing == nil && !a.file.unsynced
	}
	came := []*arbiterRecord{{Term: 1}}
	a.mu.Lock()
	a.append(came...)
	a.mu.Unlock()
	waitFor(t, "the old file is synced", synced)
	file, err := writeState(filepath.Join(d.home.Dir, "state", a.name), a.seal, []*arbiterRecord{{Origin: a.origin[:], Term: a.sequencer.Term}})
	if err != nil {
		t.Fatal(err)
	}
	a.mu.Lock()
	err = a.replaceFile(file, came)
	a.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the new file is synced", synced)
}
