package gitlog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// Clone is a clone's knoot: its logs, roster, journal and index. Its methods may be called from several goroutines.
//
// A reader needs no lock: it takes the index as it is, replays in memory what that lacks, and leaves the journal alone.
// Append, Record, Flush and Sync want the lock (Lock).
type Clone struct {
	Repo *Repository

	home     *Home
	device   *Device
	settings *Settings
	found    *Settings // as read; settings has the team and the repository that were pinned, where these are others
	guessed  string    // the remote whose default branch has the settings that count; "": none
	differs  bool      // the work tree has other settings than those that count
	remote   *remote   // what it syncs with; nil: nothing
	now      func() time.Time

	syncing     sync.Mutex // held during an exchange with the remote; taken before all others
	remembering sync.Mutex // held from looking at what is current to replacing it; taken before writing

	// writing is held while refs, index or journal move, so that seq and prev have one owner. What stands under mu is
	// changed with both held and may be read with either, so that no hook waits for git.
	writing sync.Mutex
	objects *objectStore // opened at the first need; under writing
	crowded time.Time    // when the host was last seen to hold more requests to join than a fetch takes; under writing
	cleaned bool         // junk among the kept refs was looked for; under writing

	keeping sync.Mutex // held while the journal is made to outlast the machine; taken after writing, before mu

	mu      sync.Mutex
	lock    *cloneLock // nil: a reader
	writer  WriterID
	moved   bool // the writer file came with a copy of another clone: draw another before writing
	journal *journal
	heard   []*heardSegment // what came through a relay, and not yet from the host
	replayed
}

// replayed is what reading the roster, the logs and the journal gave.
type replayed struct {
	roster *Roster
	keys   Keyring
	// rosterTip is the commit of the roster's head; "" while the chain goes on from it with what is wrong or newer.
	rosterTip Hash
	// keptRoster is how many entries the roster's index spares the next start.
	keptRoster uint64
	behind     bool                // another clone of this home has seen more of the roster
	refs       map[string]indexTip // how far each ref was read
	logs       map[logKey]logTip
	seen       map[Tip]bool // tips that own segments have named
	entries    map[EntryID]*Stored
	events     []*Stored            // by time, then id
	writes     map[string][]*Stored // FileWritten, PathRemoved and UngatedWrite by path, in the order of events
	memory     *Memory
	problems   map[string]Problem // by ref
	withheld   map[string]bool    // refs with a segment whose roster head is not in our chain: nothing is sealed
	refused    map[string]Hash    // kept refs by what the inbox had when it was refused
	unkept     int                // segments read since the index was written
}

// logKey is a log as one namespace has it.
type logKey struct {
	namespace string
	writer    WriterID
	kind      LogKind
}

// logTip is the last segment of a log over all its generations.
type logTip struct {
	generation, seq uint64
	digest          Digest
	roster          uint64 // seq of the roster head it went by
}

// Problem is something wrong with stored data, for status and verify.
type Problem struct {
	Ref  string `json:"ref"`
	Seq  uint64 `json:"seq"`
	What string `json:"problem"`
}

// OpenClone opens a repository's knoot for reading. Errors: ErrNotInitialised, ErrNoDevice, and sentences.
func OpenClone(ctx context.Context, repo *Repository, home *Home) (*Clone, error) {
	c := &Clone{Repo: repo, home: home, now: time.Now}
	// git lists the refs while it says what the settings are: somebody waits for both.
	var found []ref
	var unlisted error
	var listing sync.WaitGroup
	listing.Go(func() { found, _, unlisted = openRefs(repo).list(ctx, ownRefs, keptRefs) })
	defer listing.Wait()
	var err error
	if c.device, err = home.Device(); err != nil {
		return nil, err
	}
	if err := c.readSettings(ctx); err != nil {
		return nil, err
	}
	c.writer, c.moved, err = readWriter(repo.CommonDir, c.device.ID)
	if err != nil && !errors.Is(err, errNoWriter) {
		return nil, err
	}
	if listing.Wait(); unlisted != nil {
		return nil, unlisted
	}
	if err := c.load(ctx, found); err != nil {
		return nil, err
	}
	return c, nil
}

// readSettings finds the settings that count and compares them with what was pinned.
func (c *Clone) readSettings(ctx context.Context) error {
	// The remote's name may stand in the settings, and the branch whose settings count depends on the remote: the first
	// look goes by git's own configuration.
	var err error
	if c.settings, c.differs, c.remote, err = findSettings(ctx, c.Repo); err != nil {
		return err
	}
	c.guessed = ""
	if c.remote != nil {
		c.guessed = c.remote.name
	}
	if c.settings.Remote != "" {
		if c.remote, err = findRemote(ctx, c.Repo, c.settings.Remote); err != nil {
			return err
		}
	}
	return c.keepPinned()
}

// keepPinned goes on reading as the team and the repository that were seen here first: a commit that names others must not
// take the memory away.
func (c *Clone) keepPinned() error {
	c.found = c.settings
	known, err := c.home.Known()
	if err != nil {
		return err
	}
	pin, ok := known.Clones[c.Repo.CommonDir]
	if !ok {
		return nil
	}
	team, terr := ParseTeamID(pin.Team)
	repository, rerr := ParseRepositoryID(pin.Repository)
	if err := errors.Join(terr, rerr); err != nil {
		return fmt.Errorf("%s is damaged: %w", c.home.Path(knownFile), err)
	}
	if team != c.settings.Team || repository != c.settings.Repository {
		pinned := *c.settings
		pinned.Team, pinned.Repository = team, repository
		c.settings = &pinned
	}
	return nil
}

// Close ends the processes that read for the clone, and frees the lock, having kept the index and synced the journal.
func (c *Clone) Close() error {
	c.syncing.Lock()
	defer c.syncing.Unlock()
	c.writing.Lock()
	defer c.writing.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	var err error
	if c.objects != nil {
		err = c.objects.close()
		c.objects = nil
	}
	if c.lock == nil {
		return err
	}
	if ierr := c.keepIndex(); err == nil {
		err = ierr
	}
	if rerr := c.keepRosterIndex(); err == nil {
		err = rerr
	}
	if jerr := c.journal.close(); err == nil {
		err = jerr
	}
	if lerr := c.lock.unlock(); err == nil {
		err = lerr
	}
	c.lock = nil
	return err
}

// Lock makes this process the one that writes the clone's logs; ErrLocked, naming the process, where another does. It
// is held until Close.
func (c *Clone) Lock(ctx context.Context) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lock != nil {
		return nil
	}
	lock, err := lockClone(c.Repo, c.home.Dir)
	if err != nil {
		return err
	}
	if err := c.startWriting(); err != nil {
		return errors.Join(err, lock.unlock())
	}
	c.lock = lock
	return nil
}

// startWriting makes the journal writable. What another process wrote since this clone was opened is found when a ref is not
// where it was last seen.
func (c *Clone) startWriting() error {
	if c.writer == (WriterID{}) {
		return errNoWriter
	}
	if c.moved {
		id, err := drawWriter(c.Repo.CommonDir, c.device.ID)
		if err != nil {
			return err
		}
		// The journal stays: if it came with a copy, both clones publish its entries, and readers count them by their ids.
		c.writer, c.moved = id, false
	}
	j := c.newJournal()
	if err := j.open(); err != nil {
		return err
	}
	c.journal = j
	if err := c.addJournal(j); err != nil {
		return err
	}
	// Another process may have heard more since this clone was opened.
	if err := c.readHeard(); err != nil {
		return err
	}
	c.addHeard()
	c.sweepHeard()
	return nil
}

// Writable says whether this process holds the lock.
func (c *Clone) Writable() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lock != nil
}

// Device returns this machine's keys.
func (c *Clone) Device() *Device { return c.device }

// Writer returns the writer that this clone is.
func (c *Clone) Writer() WriterID {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writer
}

// Settings returns .knoot.toml as it counts here.
func (c *Clone) Settings() *Settings { return c.settings }

// ReadSettings reads .knoot.toml again. What the clone itself goes by does not change: see Settings.
func (c *Clone) ReadSettings(ctx context.Context) (*Settings, error) {
	s, _, err := readSettings(ctx, c.Repo, func() string { return c.guessed })
	return s, err
}

// SettingsFiles are the files that ReadSettings hangs on: while none of them changes, nor does its answer. Some may not be
// there.
func (c *Clone) SettingsFiles() []string {
	common := c.Repo.CommonDir + "/"
	files := []string{common + "knoot/" + privateSettings, common + "HEAD", common + "packed-refs", common + "reftable/tables.list"}
	if c.Repo.Root != "" {
		files = append(files, c.Repo.Root+"/"+SettingsFile)
	}
	for _, ref := range settingsRefs(c.guessed) {
		files = append(files, common+ref)
	}
	if text, err := os.ReadFile(common + "HEAD"); err == nil {
		if ref, ok := strings.CutPrefix(strings.TrimSpace(string(text)), "ref: refs/heads/"); ok {
			files = append(files, common+"refs/heads/"+ref)
		}
	}
	return files
}

// SettingsDiffer says that the checkout has another .knoot.toml than the one that counts; it is ignored.
func (c *Clone) SettingsDiffer() bool { return c.differs }

// Remote names the remote that the clone syncs with; "" where there is none, or init was told to use none.
func (c *Clone) Remote() string {
	if c.remote == nil {
		return ""
	}
	return c.remote.String()
}

// Address is where the remote is, without a password; "" without a remote.
func (c *Clone) Address(ctx context.Context) (string, error) {
	if c.remote == nil {
		return "", nil
	}
	return c.remote.address(ctx, c.Repo)
}

// PinChanges returns what is not as it was first seen here. Sync is off while there is any.
func (c *Clone) PinChanges(ctx context.Context) ([]PinChange, error) {
	known, err := c.home.Known()
	if err != nil {
		return nil, err
	}
	address, err := c.Address(ctx)
	if err != nil {
		return nil, err
	}
	return pinsOf(known, c.Repo.CommonDir, c.found, address), nil
}

// Trust pins what counts now, and returns what it changed. The clone goes by it when it is opened again.
func (c *Clone) Trust(ctx context.Context) ([]PinChange, error) {
	changes, err := c.PinChanges(ctx)
	if err != nil {
		return nil, err
	}
	address, err := c.Address(ctx)
	if err != nil {
		return nil, err
	}
	return changes, c.home.pin(c.Repo.CommonDir, c.found, address)
}

// SessionToken returns the token of a session of this device under the key of the room of all members; false where that key is
// not here.
func (c *Clone) SessionToken(agent, session string) (Token, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.roster == nil || !c.inRoom(c.roster.General) {
		return Token{}, false
	}
	key, err := c.keys[c.roster.Rooms[c.roster.General].Current().RoomEpoch].TokenKey(c.roster.Team)
	if err != nil {
		return Token{}, false
	}
	return key.Session(c.settings.Repository, c.device.ID, agent, session), true
}

// General returns the room that holds every member; zero while the team's roster is not here.
func (c *Clone) General() RoomID {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.roster == nil {
		return RoomID{}
	}
	return c.roster.General
}

// MemberName returns the name of the member whose device it is or was, "" when it is not known.
func (c *Clone) MemberName(device DeviceID) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.roster == nil {
		return ""
	}
	if m := c.roster.MemberOf(device); m != nil {
		return m.Name
	}
	return ""
}

// Former says that the device's member has left the team: what they wrote before stays valid, and anybody in the room may
// confirm, supersede or forget it.
func (c *Clone) Former(device DeviceID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.roster != nil && c.roster.Former(device)
}

// Roster returns the accepted state of the team, nil while it is not here. It must not be changed.
func (c *Clone) Roster() *Roster {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.roster
}

// Member returns the name of this device's member, "" when it is not known.
func (c *Clone) Member() string { return c.MemberName(c.device.ID) }

// Memory returns the live view of facts, cached answers and plans; it has a lock of its own.
func (c *Clone) Memory() *Memory {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.memory
}

// Events returns all events held, oldest first.
func (c *Clone) Events() []*Stored {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*Stored(nil), c.events...)
}

// Writes returns the events that say a path was written or removed, oldest first.
func (c *Clone) Writes(path string) []*Stored {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*Stored(nil), c.writes[path]...)
}

// Problems returns what is wrong with the stored data, by ref.
func (c *Clone) Problems() []Problem {
	c.mu.Lock()
	defer c.mu.Unlock()
	return sortedProblems(c.problems)
}

// NewEntry returns an entry of this device, now; the caller fills the body.
func (c *Clone) NewEntry(kind EntryKind) *Entry {
	e := &Entry{Kind: kind, Time: MillisOf(c.now()), Author: c.device.ID}
	drawRandom(e.Nonce[:])
	return e
}

// noTeam says why the team is not here: what the host shows was refused, or nothing was fetched yet.
func (c *Clone) noTeam() error {
	for ref, p := range c.problems {
		if strings.HasSuffix(ref, "/team/roster") {
			return errors.New(p.What)
		}
	}
	return fmt.Errorf("the team %s is not here yet: run `knoot sync`", c.settings.Team)
}

// mayWrite says why nothing can be written now, nil where it can.
func (c *Clone) mayWrite() error {
	if c.lock == nil {
		return errors.New("this process does not hold the clone's lock")
	}
	if c.roster == nil {
		return c.noTeam()
	}
	if err := c.roster.Sealable(); err != nil {
		return fmt.Errorf("nothing is written: the team's %w", err)
	}
	if d := c.roster.former[c.device.ID]; d != nil {
		return fmt.Errorf("this device was removed from the team by entry %d of its roster: nothing is written", d.until)
	}
	if c.roster.Devices[c.device.ID] == nil {
		return fmt.Errorf("this device is not in the team %s yet: nothing is written (`knoot join` asks to be let in, and `knoot status` shows what is waited for)", c.roster.Team)
	}
	if c.behind {
		return errors.New(c.problems[rosterRef].What)
	}
	for ref := range c.withheld {
		return fmt.Errorf("%s names a state of the team that the host does not show: nothing is written until it does (run `knoot sync`)", ref)
	}
	return nil
}
