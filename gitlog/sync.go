package gitlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// SyncOptions says what one exchange with the remote does.
type SyncOptions struct {
	Fetch, Push bool
	Audit       bool              // fetch what happened too, not only memory
	Heal        bool              // push what was kept of others and the host has lost; wait a random while before
	Ask         bool              // a person is at the terminal, whom git may ask for a password
	Progress    func(line string) // may be nil
}

// SyncReport says what one exchange did.
type SyncReport struct {
	Remote          string    `json:"remote"`
	Address         string    `json:"address"`
	FetchedSegments int       `json:"fetched"`
	PushedSegments  int       `json:"pushed"`
	Confirmed       time.Time `json:"confirmed"` // when the host confirmed it; zero where it did not
	Lacking         int       `json:"lacking"`   // logs of others that were kept here and that the host has lost
	Problems        []Problem `json:"problems"`  // what was fetched and refused
}

// Sync takes over what the remote has and brings it what it lacks. The lock must be held. What was accepted stays
// accepted, and what could not be pushed stays here, whatever error comes back.
func (c *Clone) Sync(ctx context.Context, how SyncOptions) (*SyncReport, error) {
	c.syncing.Lock()
	defer c.syncing.Unlock()
	c.writing.Lock()
	defer c.writing.Unlock()
	switch {
	case c.lock == nil:
		return nil, errors.New("this process does not hold the clone's lock")
	case c.remote == nil:
		return nil, ErrNoRemote
	}
	changes, err := c.PinChanges(ctx)
	if err != nil {
		return nil, err
	}
	if len(changes) > 0 {
		return nil, &ErrPinned{changes}
	}
	report := &SyncReport{Remote: c.remote.String(), Problems: []Problem{}}
	if report.Address, err = c.Address(ctx); err != nil {
		return nil, err
	}
	say := how.Progress
	if say == nil {
		say = func(string) {}
	}
	mode := gitBackground
	if how.Ask {
		mode = gitForeground
	}
	if err := c.remote.mendFetchLines(ctx, c.Repo); err != nil {
		return report, err
	}
	if how.Fetch {
		say(fmt.Sprintf("Fetching from %s (%s)", report.Remote, report.Address))
		objects, err := c.store(ctx)
		if err != nil {
			return report, err
		}
		if err := c.fetchAll(ctx, objects, mode, how.Audit, report); err != nil {
			return report, err
		}
	}
	if how.Fetch && c.isCrowded() {
		report.Problems = append(report.Problems, Problem{Ref: c.remote.inbox + "team/request", What: fmt.Sprintf("more than %d requests to join are on the host, and none was fetched: "+
			"delete there what nobody made (refs/knoot/team/request/*), or let people in by an invitation, `knoot member add EMAIL`", maxRequestsFetched)})
	}
	if how.Push {
		if !how.Fetch {
			if err := c.lookAtRosterBeforePush(ctx, mode, report); err != nil {
				return report, err
			}
		}
		if err := c.sealAgain(ctx, mode, report); err != nil {
			return report, err
		}
		if err := c.push(ctx, mode, how, say, report); err != nil {
			return report, err
		}
	}
	report.Confirmed = c.now()
	return report, nil
}

// onNetwork runs f without writing, which is held, so that nobody who publishes a fact waits for a host. syncing stays held.
func (c *Clone) onNetwork(f func()) {
	c.writing.Unlock()
	defer c.writing.Lock()
	f()
}

// fetchAll fetches the team and its logs, and takes over what is right of them. writing is held.
func (c *Clone) fetchAll(ctx context.Context, objects *objectStore, mode gitMode, audit bool, report *SyncReport) error {
	for devices := -1; devices < c.devicesKnown(); { // again where the roster names new ones
		devices = c.devicesKnown()
		if err := c.fetchLogs(ctx, objects, mode, audit); err != nil {
			return err
		}
		if err := c.fetchRoster(ctx, objects, mode); err != nil {
			return err
		}
		if err := c.accept(ctx, report); err != nil {
			return err
		}
	}
	return nil
}

// devicesKnown counts the devices that are or were in the team.
func (c *Clone) devicesKnown() int {
	if c.roster == nil {
		return 0
	}
	return len(c.roster.Devices) + len(c.roster.former)
}

// fetchLogs fetches the logs of the team's devices, those of former ones too; of all that call themselves logs while the team is
// not here. writing is held.
func (c *Clone) fetchLogs(ctx context.Context, objects *objectStore, mode gitMode, audit bool) (err error) {
	if c.roster == nil {
		c.onNetwork(func() { err = openHost(c.Repo, c.remote, mode).fetch(ctx, objects, audit) })
		return err
	}
	devices := make([]DeviceID, 0, c.devicesKnown())
	for _, known := range []map[DeviceID]*RosterDevice{c.roster.Devices, c.roster.former} {
		for id := range known {
			devices = append(devices, id)
		}
	}
	return c.fetchTeam(ctx, objects, c.remote, mode, devices, audit)
}

// fetchTeam fetches the roster from a host, the requests to join unless they crowd it, and the logs of these devices. writing is
// held.
func (c *Clone) fetchTeam(ctx context.Context, objects *objectStore, at *remote, mode gitMode, devices []DeviceID, audit bool) (err error) {
	h := openHost(c.Repo, at, mode)
	requests := !c.isCrowded()
	c.onNetwork(func() { err = h.fetchLogsOf(ctx, objects, devices, audit, requests) })
	if *h.crowded {
		c.crowded = c.now()
	}
	return err
}

// crowdedAgain is how long a host that is crowded with requests to join is not asked for them: it lists all before we can tell.
const crowdedAgain = 5 * time.Minute

func (c *Clone) isCrowded() bool {
	past := c.now().Sub(c.crowded)
	return past >= 0 && past < crowdedAgain
}

// Accept takes over what lies in the inbox, checked: the person's own `git fetch` brings it too.
func (c *Clone) Accept(ctx context.Context) (*SyncReport, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	report := &SyncReport{Problems: []Problem{}}
	if c.lock == nil || c.remote == nil {
		return report, nil
	}
	report.Remote = c.remote.String()
	changes, err := c.PinChanges(ctx)
	if err != nil || len(changes) > 0 {
		return report, err
	}
	objects, err := c.store(ctx)
	if err != nil {
		return report, err
	}
	if _, err := openRefs(c.Repo).removeJunk(ctx, objects, c.remote.inbox); err != nil {
		return report, err
	}
	return report, c.accept(ctx, report)
}

func (c *Clone) accept(ctx context.Context, report *SyncReport) error {
	refs := openRefs(c.Repo)
	inbox := c.remote.inbox
	roster, err := c.rosterRemote()
	if err != nil {
		return err
	}
	found, unreadable, err := refs.list(ctx, inbox, roster.inbox+"team/roster", ownRefs, keptRefs)
	if err != nil {
		return err
	}
	if !c.cleaned {
		// Once a run: nothing of ours puts junk there, and a name in the place of a folder would keep a log out for ever.
		objects, err := c.store(ctx)
		if err != nil {
			return err
		}
		removed, err := refs.removeJunkOf(ctx, objects, keptRefs, found, unreadable)
		if err != nil {
			return err
		}
		found = slices.DeleteFunc(found, func(r ref) bool { return slices.Contains(removed, r.Name) })
		c.cleaned = true
	}
	at := map[string]Hash{}
	for _, r := range found {
		at[r.Name] = r.Hash
	}
	adopted, err := c.acceptRoster(ctx, roster, at[roster.inbox+"team/roster"], at[rosterRef], found, report)
	if err != nil {
		return err
	}
	if !adopted { // which reads everything again
		if err := c.refreshTo(ctx, found); err != nil {
			return err
		}
	}
	for _, log := range sortLogs(inNamespace(found, inbox, keptRefs)) {
		if err := c.acceptLog(ctx, log, at, report); err != nil {
			return err
		}
	}
	return nil
}

// inNamespace picks the refs of one namespace and names them as they would be in another.
func inNamespace(refs []ref, from, to string) []ref {
	var moved []ref
	for _, r := range refs {
		if tail, ok := strings.CutPrefix(r.Name, from); ok {
			moved = append(moved, ref{Name: to + tail, Hash: r.Hash, Symref: r.Symref})
		}
	}
	return moved
}

// acceptLog checks what the inbox has of one log beyond what was kept, and moves the kept ref to the last good segment.
func (c *Clone) acceptLog(ctx context.Context, log logRef, at map[string]Hash, report *SyncReport) (err error) {
	own := ownRefs + log.place.String()
	wasOwn := log.place.Writer
	if tip := at[own]; wasOwn == c.writer || wasOwn.Device() == c.device.ID && tip != "" {
		parted, err := c.recoverOwn(ctx, log, own, tip)
		if err != nil || !parted {
			return err
		}
		if wasOwn == c.writer {
			if err := c.becomeAnother(ctx); err != nil {
				return err
			}
			defer func() {
				if err == nil {
					err = c.republish(ctx, log, own, tip)
				}
			}()
		}
	}
	old := c.refs[log.Name]
	if log.Hash == Hash(old.Commit) || c.refused[log.Name] == log.Hash {
		return nil
	}
	reading, err := c.readLog(ctx, log, old, c.logs[log.key()])
	if errors.Is(err, errNotForward) {
		objects, serr := c.store(ctx)
		if serr != nil {
			return serr
		}
		if _, behind, berr := objects.readChain(ctx, Hash(old.Commit), log.Hash, maxChain); berr == nil && behind {
			return nil // the host shows less than it did; what was kept stays, and is pushed again
		}
		reading = &logReading{ref: log, at: old, problem: &Problem{Ref: log.Name, Seq: old.Seq, What: "the host shows another history of this log than the one kept here"}}
	} else if err != nil {
		return err
	}
	if reading.at.Commit != old.Commit {
		if err := openRefs(c.Repo).change(ctx, refChange{Name: log.Name, Old: Hash(old.Commit), New: Hash(reading.at.Commit)}); err != nil {
			return err
		}
	}
	report.FetchedSegments += reading.segments
	if reading.problem != nil {
		report.Problems = append(report.Problems, *reading.problem)
		c.refused[log.Name] = log.Hash
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.merge([]*logReading{reading})
	return nil
}

// recoverOwn brings back what a log of this clone lost, from the host, as far as it is good: whoever can push to the host can
// go on with it. parted: the two went different ways, in a copied or restored clone, or the host's goes on with what is
// wrong; the host's stands, as far as it is good.
func (c *Clone) recoverOwn(ctx context.Context, log logRef, own string, tip Hash) (parted bool, err error) {
	if tip == log.Hash || c.roster == nil { // without a roster nothing says what is good
		return false, nil
	}
	objects, err := c.store(ctx)
	if err != nil {
		return false, err
	}
	if tip != "" {
		if _, ahead, err := objects.readChain(ctx, tip, log.Hash, maxChain); err == nil && ahead {
			return false, nil
		}
		if _, behind, err := objects.readChain(ctx, log.Hash, tip, maxChain); ctx.Err() != nil {
			return false, ctx.Err()
		} else if err != nil || !behind {
			return true, nil
		}
	}
	old := c.refs[own]
	log = logRef{ref{Name: own, Hash: log.Hash}, ownRefs, log.place}
	reading, err := c.readLog(ctx, log, old, c.logs[log.key()])
	if err != nil {
		return false, err
	}
	if reading.at.Commit != old.Commit {
		if err := openRefs(c.Repo).change(ctx, refChange{Name: own, Old: tip, New: Hash(reading.at.Commit)}); err != nil {
			return false, err
		}
		if err := c.refresh(ctx); err != nil {
			return false, err
		}
	}
	return reading.problem != nil, nil
}

// republish brings under the new writer what the old one had written here and the host's history of it lacks. The entries
// keep their bytes, and so their ids.
func (c *Clone) republish(ctx context.Context, log logRef, own string, tip Hash) error {
	here, err := c.readLog(ctx, logRef{ref{Name: own, Hash: tip}, ownRefs, log.place}, indexTip{}, logTip{})
	if err != nil {
		return err
	}
	there, err := c.readLog(ctx, log, indexTip{}, logTip{})
	if err != nil {
		return err
	}
	stands := map[EntryID]bool{}
	for _, s := range there.entries {
		stands[s.ID()] = true
	}
	rooms, count := map[RoomID][]*Entry{}, 0
	for _, s := range here.entries {
		if stands[s.ID()] || !c.inRoom(s.Room) {
			continue
		}
		rooms[s.Room] = append(rooms[s.Room], s.Entry)
		if count++; count == flushEntries {
			if err := c.appendSegment(ctx, log.place.Log, rooms); err != nil {
				return err
			}
			rooms, count = map[RoomID][]*Entry{}, 0
		}
	}
	if count == 0 {
		return nil
	}
	return c.appendSegment(ctx, log.place.Log, rooms)
}

// becomeAnother makes the clone a new writer. Its journal goes along.
func (c *Clone) becomeAnother(ctx context.Context) error {
	id, err := drawWriter(c.Repo.CommonDir, c.device.ID)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.writer = id
	c.mu.Unlock()
	return c.reload(ctx)
}

// push brings the remote what it lacks of the roster, of this writer's logs, and of what was kept of others.
func (c *Clone) push(ctx context.Context, mode gitMode, how SyncOptions, say func(string), report *SyncReport) error {
	if c.roster == nil {
		return fmt.Errorf("the team %s is not here yet, and the remote does not have it", c.settings.Team)
	}
	roster, err := c.rosterRemote()
	if err != nil {
		return err
	}
	elsewhere := roster.inbox != c.remote.inbox // its own push is ChangeRoster's
	refs := openRefs(c.Repo)
	inbox := c.remote.inbox
	found, _, err := refs.list(ctx, inbox, ownRefs, keptRefs)
	if err != nil {
		return err
	}
	hosted, taken := map[string]Hash{}, map[string]bool{}
	for _, r := range found {
		if tail, ok := strings.CutPrefix(r.Name, inbox); ok {
			hosted[tail] = r.Hash
		} else if tail, ok := strings.CutPrefix(r.Name, keptRefs); ok {
			taken[tail] = true
		}
	}
	objects, err := c.store(ctx)
	if err != nil {
		return err
	}
	var out []refPush
	for _, r := range found {
		tail, own := strings.CutPrefix(r.Name, ownRefs)
		kept := false
		if !own {
			tail, kept = strings.CutPrefix(r.Name, keptRefs)
		}
		place, ok := parseRefPlace(tail)
		if !ok || !own && !kept || hosted[tail] == r.Hash {
			continue
		}
		switch {
		case place.Roster && elsewhere:
			continue
		case own && (place.Roster || place.Log != 0 && place.Writer.Device() == c.device.ID):
			if hosted[tail] == "" && taken[tail] {
				continue // the two had parted: what the host had of it is what comes back
			}
			if hosted[tail] == "" {
				break
			}
			// A writer that this clone was once may have gone another way on the host, which then stands.
			if _, ahead, err := objects.readChain(ctx, r.Hash, hosted[tail], maxChain); err != nil || !ahead {
				continue
			}
		case kept && how.Fetch && hosted[tail] == "" && !hasLater(hosted, place) && (place.Log != AuditLog || how.Audit):
			report.Lacking++
			if !how.Heal {
				continue
			}
		default:
			continue
		}
		out = append(out, refPush{Name: ownRefs + tail, Tip: r.Hash, CreateOnly: kept})
	}
	if len(out) == 0 {
		return nil
	}
	refsWord := "refs"
	if len(out) == 1 {
		refsWord = "ref"
	}
	say(fmt.Sprintf("Pushing %d %s to %s (%s)", len(out), refsWord, report.Remote, report.Address))
	var results []pushResult
	c.onNetwork(func() { results, err = openHost(c.Repo, c.remote, mode).push(ctx, out...) })
	for _, result := range results {
		if result.Failure != nil {
			// One that another clone brought meanwhile is there, which is all that healing wants.
			if err == nil && !(result.CreateOnly && result.Failure.Kind == SyncBehind) {
				err = result.Failure
			}
			continue
		}
		tail := strings.TrimPrefix(result.Name, ownRefs)
		place, _ := parseRefPlace(tail)
		report.PushedSegments += c.segmentsBetween(ctx, objects, place, result.Tip, hosted[tail])
		// What the host confirmed is what the inbox would say after a fetch. git moves it too where a fetch line covers it.
		if cerr := confirm(ctx, refs, inbox+tail, result.Tip); err == nil {
			err = cerr
		}
	}
	return err
}

// confirm moves an inbox ref to what the host has said that it has.
func confirm(ctx context.Context, refs refStore, name string, tip Hash) error {
	at, err := refs.read(ctx, name)
	if err != nil {
		return err
	}
	return confirmFrom(ctx, refs, name, at, tip)
}

// confirmFrom is confirm for a ref that was read already.
func confirmFrom(ctx context.Context, refs refStore, name string, at, tip Hash) error {
	if at == tip {
		return nil
	}
	return refs.change(ctx, refChange{Name: name, Old: at, New: tip})
}

// segmentsBetween counts what a push brings of a log.
func (c *Clone) segmentsBetween(ctx context.Context, objects *objectStore, place refPlace, tip, from Hash) int {
	if place.Log == 0 {
		return 0
	}
	commits, _, err := objects.readChain(ctx, tip, from, maxChain)
	if err != nil {
		return 0
	}
	return len(commits)
}

// hasLater says whether the host has a later generation of a log, which authorises the deletion of those before it.
func hasLater(hosted map[string]Hash, place refPlace) bool {
	for tail := range hosted {
		if other, ok := parseRefPlace(tail); ok && other.Log == place.Log && other.Writer == place.Writer && other.Generation > place.Generation {
			return true
		}
	}
	return false
}
