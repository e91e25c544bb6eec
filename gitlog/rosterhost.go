package gitlog

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// The roster between this clone and the host: which host has it, what is accepted of it, how it is changed.

// rosterRemote is where the team's roster and the requests to join are: the clone's remote, or the address that the settings
// name where many repositories share one team. nil without a remote.
func (c *Clone) rosterRemote() (*remote, error) {
	return rosterRemoteOf(c.remote, c.settings)
}

func rosterRemoteOf(r *remote, s *Settings) (*remote, error) {
	if r == nil || s == nil || s.Roster == "" {
		return r, nil
	}
	// A commit wrote this: it must not get git to run a remote helper, which can be any program.
	elsewhere := (&remoteConfig{}).named(s.Roster)
	if elsewhere == nil || strings.Contains(s.Roster, "::") || strings.HasPrefix(s.Roster, "-") {
		return nil, fmt.Errorf("%s names the roster %q, which is no plain address of a repository", SettingsFile, s.Roster)
	}
	return elsewhere, nil
}

// fetchRoster fetches the roster where it is in another repository; where it is in this one the clone's fetch brought it.
func (c *Clone) fetchRoster(ctx context.Context, objects *objectStore, mode gitMode) error {
	at, err := c.rosterRemote()
	if err != nil || at.inbox == c.remote.inbox {
		return err
	}
	return c.fetchTeam(ctx, objects, at, mode, nil, false)
}

// acceptRoster moves the accepted head forward to what the host has. A chain that does not go on from it, or from the highest
// head that any clone of this person has seen, is refused. found are the clone's refs. adopted: it moved, and all was read again.
func (c *Clone) acceptRoster(ctx context.Context, from *remote, hosted, own Hash, found []ref, report *SyncReport) (adopted bool, err error) {
	roster, refused, err := c.judgeRoster(ctx, from, hosted, own)
	if err != nil {
		return false, err
	}
	if refused != nil {
		report.Problems = append(report.Problems, *refused)
	}
	if roster == nil {
		return false, nil
	}
	return true, c.adoptRoster(ctx, own, hosted, roster, found)
}

// judgeRoster says whether what the host has is to be adopted: nil without a refusal where there is nothing new. A refusal
// is one of the clone's problems from then on.
func (c *Clone) judgeRoster(ctx context.Context, from *remote, hosted, own Hash) (roster *Roster, refused *Problem, err error) {
	if hosted == "" || hosted == own {
		return nil, nil, nil
	}
	objects, err := c.store(ctx)
	if err != nil {
		return nil, nil, err
	}
	refuse := func(format string, args ...any) (*Roster, *Problem, error) {
		problem := Problem{Ref: from.inbox + "team/roster", What: fmt.Sprintf(format, args...)}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.problems[problem.Ref] = problem
		return nil, &problem, nil
	}
	later, forward, unread := objects.readChain(ctx, hosted, own, maxRosterSeq)
	if unread == nil && forward && own != "" && own == c.rosterTip {
		roster, err = resumeHostedRoster(ctx, objects, c.roster, later)
	} else {
		roster, err = readHostedRoster(ctx, objects, hosted, c.settings.Team)
	}
	if err != nil {
		return refuse("the roster of %s is refused: %v", from, err)
	}
	if unread != nil {
		return nil, nil, unread
	}
	known, err := c.home.Known()
	if err != nil {
		return nil, nil, err
	}
	pin := known.Teams[c.settings.Team.String()]
	if !forward {
		if _, behind, err := objects.readChain(ctx, own, hosted, maxRosterSeq); err == nil && behind {
			return nil, nil, nil // ours goes on from theirs; the push brings it
		}
		return refuse("%s", notForward(from, roster, pin))
	}
	if pin.Head != "" && !roster.Has(pin.HeadSeq, pin.Head) {
		return refuse("%s", notForward(from, roster, pin))
	}
	return roster, nil, nil
}

// LookAtHost adds to the clone's problems a roster that was fetched and must be refused. It changes nothing and needs no lock.
func (c *Clone) LookAtHost(ctx context.Context) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.remote == nil {
		return nil
	}
	from, err := c.rosterRemote()
	if err != nil {
		return err
	}
	found, _, err := openRefs(c.Repo).list(ctx, from.inbox+"team/roster", rosterRef)
	if err != nil {
		return err
	}
	at := map[string]Hash{}
	for _, r := range found {
		at[r.Name] = r.Hash
	}
	_, _, err = c.judgeRoster(ctx, from, at[from.inbox+"team/roster"], at[rosterRef])
	return err
}

func notForward(from *remote, r *Roster, pin KnownTeam) string {
	return fmt.Sprintf("the roster of %s (entry %d, %s) does not go on from the one accepted here (entry %d, %s): the host lost entries, or somebody shows another team state. "+
		"Ask your colleagues which head they have (`knoot status`); if it is the host's, run `knoot trust --roster %[3]s`", from, r.Head.Seq, r.Head.Hash, pin.HeadSeq, pin.Head)
}

// readHostedRoster reads and verifies a chain. One that is wrong somewhere is refused whole: no host is asked to show half a chain.
func readHostedRoster(ctx context.Context, objects *objectStore, tip Hash, team TeamID) (*Roster, error) {
	chain, err := readRosterChain(ctx, objects, tip)
	if err != nil {
		return nil, err
	}
	return VerifyRoster(team, chain)
}

// resumeHostedRoster is readHostedRoster where the chain goes on from the accepted state by these commits.
func resumeHostedRoster(ctx context.Context, objects *objectStore, accepted *Roster, later []*logCommit) (*Roster, error) {
	chain, err := readRosterCommits(ctx, objects, later, accepted.Head.Seq+1)
	if err != nil {
		return nil, err
	}
	return accepted.resume(chain)
}

// adoptRoster makes a verified chain the accepted one, and reads everything again by it: what could not be opened may open
// now, and what comes after a cut counts no more. found are the clone's refs, listed before.
func (c *Clone) adoptRoster(ctx context.Context, own, tip Hash, roster *Roster, found []ref) error {
	if err := openRefs(c.Repo).change(ctx, refChange{Name: rosterRef, Old: own, New: tip}); err != nil {
		return err
	}
	if err := c.home.rememberHead(c.settings.Team, roster); err != nil {
		return err
	}
	// Whoever has the verified one is to see it as it is.
	return c.reloadBy(ctx, found, func(next *Clone) error { return next.takeRoster(tip, roster.clone(), nil) })
}

// TrustRoster takes over the roster that the host shows, though it does not go on from the accepted one: its chain must hold the
// entry with that hash. What the person's machine remembered of the team's head is forgotten.
func (c *Clone) TrustRoster(ctx context.Context, entry Digest) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.lock == nil {
		return errors.New("this process does not hold the clone's lock")
	}
	from, err := c.rosterRemote()
	if err != nil {
		return err
	}
	if from == nil {
		return ErrNoRemote
	}
	refs := openRefs(c.Repo)
	hosted, err := refs.read(ctx, from.inbox+"team/roster")
	if err != nil {
		return err
	}
	if hosted == "" {
		return fmt.Errorf("nothing of a roster was fetched from %s: run `knoot sync` first", from)
	}
	objects, err := c.store(ctx)
	if err != nil {
		return err
	}
	roster, err := readHostedRoster(ctx, objects, hosted, c.settings.Team)
	if err != nil {
		return fmt.Errorf("the roster of %s cannot be trusted: %w", from, err)
	}
	held := false
	for _, hash := range roster.hashes {
		held = held || hash == entry
	}
	if !held {
		return fmt.Errorf("the roster of %s, up to entry %d, %s, has no entry %s: look again at `knoot status`", from, roster.Head.Seq, roster.Head.Hash, entry)
	}
	found, _, err := refs.list(ctx, ownRefs, keptRefs)
	if err != nil {
		return err
	}
	if err := c.home.forgetHead(c.settings.Team); err != nil {
		return err
	}
	return c.adoptRoster(ctx, hashOf(found, rosterRef), hosted, roster, found)
}

// rememberHead keeps the highest roster head seen of a team.
func (h *Home) rememberHead(team TeamID, roster *Roster) error {
	if roster == nil {
		return nil
	}
	return h.UpdateKnown(func(k *Known) error {
		pin := k.Teams[team.String()]
		if pin.Head == "" || pin.HeadSeq < roster.Head.Seq {
			pin.HeadSeq, pin.Head = roster.Head.Seq, roster.Head.Hash.String()
			k.Teams[team.String()] = pin
		}
		return nil
	})
}

func (h *Home) forgetHead(team TeamID) error {
	return h.UpdateKnown(func(k *Known) error {
		pin := k.Teams[team.String()]
		pin.HeadSeq, pin.Head = 0, ""
		k.Teams[team.String()] = pin
		return nil
	})
}

// ErrTeamMoved marks a change that was right when it was begun and is not any more, since somebody else's came first.
var ErrTeamMoved = errors.New("somebody changed the team at the same moment, and now this cannot be done")

// changeAttempts bounds how often a change is built again: each time somebody else's came first.
const changeAttempts = 30

// ChangeRoster changes the team. change says what is wanted, against the state that it is given; with a remote that state is the
// host's, fetched first, and where another admin's entry reaches the host before, change is called again with the state after
// it. An error of change is returned, as is a host that cannot be reached: nothing has changed then. With no remote the change
// is local. The lock must be held. Of how, Ask and Progress count.
func (c *Clone) ChangeRoster(ctx context.Context, how SyncOptions, change func(*RosterChange) error) (*Roster, error) {
	return c.changeRosterAs(ctx, c.device, nil, how, change)
}

// changeRosterAs is ChangeRoster signed by any device; may, unless it is nil, says for each state whether it still can.
func (c *Clone) changeRosterAs(ctx context.Context, signer *Device, may func(*Roster) error, how SyncOptions, change func(*RosterChange) error) (*Roster, error) {
	c.syncing.Lock()
	defer c.syncing.Unlock()
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.lock == nil {
		return nil, errors.New("this process does not hold the clone's lock")
	}
	if changes, err := c.PinChanges(ctx); err != nil {
		return nil, err
	} else if len(changes) > 0 {
		return nil, &ErrPinned{changes}
	}
	at, err := c.rosterRemote()
	if err != nil {
		return nil, err
	}
	mode := gitBackground
	if how.Ask {
		mode = gitForeground
	}
	for attempt := 1; ; attempt++ {
		if at != nil {
			if err := c.fetchForChange(ctx, at, mode, attempt == 1, how.Progress); err != nil {
				return nil, err
			}
		}
		after, err := c.tryChange(ctx, at, signer, may, mode, change)
		var refused *SyncFailure
		if errors.As(err, &refused) && refused.Kind == SyncBehind && attempt < changeAttempts {
			continue
		}
		if err != nil && attempt > 1 && !errors.As(err, &refused) {
			err = fmt.Errorf("%w: %w", ErrTeamMoved, err)
		}
		return after, err
	}
}

// fetchForChange brings the host's roster, and at first all logs too: a cut names the last segments of who is shut out.
func (c *Clone) fetchForChange(ctx context.Context, at *remote, mode gitMode, logs bool, say func(string)) error {
	objects, err := c.store(ctx)
	if err != nil {
		return err
	}
	report := &SyncReport{}
	if logs {
		if say != nil {
			say(fmt.Sprintf("Fetching from %s", c.remote))
		}
		err = c.fetchAll(ctx, objects, mode, true, report)
	} else if err = c.fetchTeam(ctx, objects, at, mode, nil, false); err == nil {
		err = c.accept(ctx, report)
	}
	var unreached *SyncFailure
	if errors.As(err, &unreached) {
		return fmt.Errorf("the team is changed on the host, which was not reached: %w", err)
	}
	if err != nil {
		return err
	}
	for _, p := range report.Problems {
		if p.Ref == at.inbox+"team/roster" {
			return errors.New(p.What)
		}
	}
	return nil
}

// tryChange builds the entry from the accepted state and offers it to the host. SyncBehind: somebody else's came first.
func (c *Clone) tryChange(ctx context.Context, at *remote, signer *Device, may func(*Roster) error, mode gitMode, change func(*RosterChange) error) (*Roster, error) {
	if c.roster == nil {
		return nil, c.noTeam()
	}
	if c.behind {
		return nil, errors.New(c.problems[rosterRef].What)
	}
	if c.rosterTip == "" && c.roster.Newer == nil {
		return nil, fmt.Errorf("the team cannot be changed: its roster goes on with what is wrong (%s)", c.problems[rosterRef].What)
	}
	if may != nil {
		if err := may(c.roster); err != nil {
			return nil, err
		}
	}
	entry, err := newRosterChange(c.roster.clone(), signer, MillisOf(c.now()), func(device DeviceID, since Millis) ([]Tip, error) {
		return c.tipsOf(ctx, device, since)
	})
	if err != nil {
		return nil, err
	}
	if err := change(entry); err != nil {
		return nil, err
	}
	commit, after, err := entry.build()
	if err != nil || commit == nil {
		return after, err
	}
	refs := openRefs(c.Repo)
	own := c.rosterTip // the commit of the state that the entry was built from
	objects, err := c.store(ctx)
	if err != nil {
		return nil, err
	}
	tip, err := writeRosterCommit(ctx, objects, own, *commit, after.Time)
	if err != nil {
		return nil, err
	}
	if at != nil {
		if err := c.offerEntry(ctx, at, mode, tip); err != nil {
			return nil, err
		}
	}
	wanted := []string{ownRefs, keptRefs}
	if at != nil {
		wanted = append(wanted, at.inbox+"team/roster")
	}
	found, _, err := refs.list(ctx, wanted...)
	if err != nil {
		return nil, err
	}
	if at != nil {
		if err := confirmFrom(ctx, refs, at.inbox+"team/roster", hashOf(found, at.inbox+"team/roster"), tip); err != nil {
			return nil, err
		}
		// While the host was asked, the person's own fetch may have brought the entry, and Accept taken it.
		if hashOf(found, rosterRef) != own {
			return after, nil
		}
	}
	return after, c.adoptRoster(ctx, own, tip, after, found)
}

// offerEntry pushes the roster. Where the answer got lost it asks again, since the host may have taken the entry.
func (c *Clone) offerEntry(ctx context.Context, at *remote, mode gitMode, tip Hash) error {
	h := openHost(c.Repo, at, mode)
	var (
		results []pushResult
		err     error
	)
	c.onNetwork(func() { results, err = h.push(ctx, refPush{Name: rosterRef, Tip: tip}) })
	if err == nil && results[0].Failure != nil {
		err = results[0].Failure
	}
	refs := openRefs(c.Repo)
	if err != nil {
		var refused *SyncFailure
		if errors.As(err, &refused) && refused.Kind == SyncBehind {
			return err
		}
		objects, oerr := c.store(ctx)
		if oerr != nil {
			return err
		}
		if ferr := c.fetchTeam(ctx, objects, at, mode, nil, false); ferr != nil {
			return err
		}
		if hosted, rerr := refs.read(ctx, at.inbox+"team/roster"); rerr != nil || hosted != tip {
			return err
		}
	}
	return nil
}

// tipsOf returns the last accepted segments of a device's logs; with since, those before the first segment made then.
func (c *Clone) tipsOf(ctx context.Context, device DeviceID, since Millis) ([]Tip, error) {
	best := map[logName]Tip{}
	for key, at := range c.logs {
		name := logName{key.writer, key.kind}
		if key.writer.Device() == device && at.seq > best[name].Seq {
			best[name] = Tip{Writer: key.writer, Kind: key.kind, Generation: at.generation, Seq: at.seq, Segment: at.digest}
		}
	}
	var tips []Tip
	for name, tip := range best {
		if since > 0 {
			var err error
			if tip, err = c.tipBefore(ctx, name, since); err != nil {
				return nil, err
			}
		}
		if tip.Seq > 0 {
			tips = append(tips, tip)
		}
	}
	return tips, nil
}

// tipBefore finds the last segment of a log before the first that says it was made at since or later.
func (c *Clone) tipBefore(ctx context.Context, name logName, since Millis) (Tip, error) {
	objects, err := c.store(ctx)
	if err != nil {
		return Tip{}, err
	}
	var last Tip
	found, _, err := openRefs(c.Repo).list(ctx, ownRefs, keptRefs)
	if err != nil {
		return Tip{}, err
	}
	for _, log := range sortLogs(found) {
		if log.place.Writer != name.writer || log.place.Log != name.kind {
			continue
		}
		commits, _, err := objects.readChain(ctx, log.Hash, "", maxChain)
		if err != nil {
			return Tip{}, err
		}
		before := indexTip{Generation: last.Generation, Seq: last.Seq, Digest: last.Segment}
		for _, commit := range commits {
			files, err := objects.readFiles(ctx, commit.Tree, fileLimits{Files: maxRooms, Bytes: maxSegmentFile})
			if err != nil {
				return Tip{}, err
			}
			segment, err := c.checkSegment(log.place, before, files)
			if segment == nil {
				return last, nil // what is not accepted is no place to cut at
			}
			h := segment.Header()
			if err == nil && h.Created >= since {
				return last, nil
			}
			last = Tip{Writer: h.Writer, Kind: h.Kind, Generation: h.Generation, Seq: h.Seq, Segment: segment.Digest}
			before = indexTip{Generation: h.Generation, Seq: h.Seq, Digest: segment.Digest, RosterSeq: h.Roster.Seq}
		}
	}
	return last, nil
}
