package gitlog

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

const rosterRef = ownRefs + "team/roster"

// maxRosterFiles bounds the files of one roster commit: field 7 costs 67 bytes a file, and an entry is at most 256 KiB.
const maxRosterFiles = 8_192

// maxRosterReaders is how many entries are read side by side at most: with more, readers wait for each other.
const maxRosterReaders = 4

// readRosterAt reads the accepted roster, checks it against what was pinned, and opens the epochs that this device can
// open. Where it is not here yet the clone has none.
func (c *Clone) readRosterAt(ctx context.Context, found []ref) error {
	at := slices.IndexFunc(found, func(r ref) bool { return r.Name == rosterRef })
	if at < 0 {
		return nil
	}
	tip := found[at].Hash
	objects, err := c.store(ctx)
	if err != nil {
		return err
	}
	roster, err := c.resumeRoster(ctx, objects, tip)
	if errors.Is(err, errRosterIndex) {
		c.keptRoster = 0
		chain, err := readRosterChain(ctx, objects, tip)
		if err != nil {
			c.problems[rosterRef] = Problem{Ref: rosterRef, What: err.Error()}
			return nil
		}
		roster, err = VerifyRoster(c.settings.Team, chain)
		return c.takeRoster(tip, roster, err)
	}
	return c.takeRoster(tip, roster, err)
}

// takeRoster makes what VerifyRoster said of the chain up to tip the clone's roster; a problem, and no roster, where it is not the team's or
// goes back behind what was seen before.
func (c *Clone) takeRoster(tip Hash, roster *Roster, err error) error {
	c.roster, c.rosterTip = nil, ""
	if err != nil && roster == nil {
		c.problems[rosterRef] = Problem{Ref: rosterRef, What: err.Error()}
		return nil
	}
	whole := err == nil && roster.Newer == nil
	if err != nil {
		c.problems[rosterRef] = Problem{Ref: rosterRef, Seq: roster.Head.Seq + 1, What: err.Error()}
	}
	known, err := c.home.Known()
	if err != nil {
		return err
	}
	pin := known.Teams[c.settings.Team.String()]
	if c.behind = pin.Head != "" && roster.Head.Seq < pin.HeadSeq; c.behind {
		// What was accepted here stays good for reading. Sealing has to wait: this device knows that more has happened.
		c.problems[rosterRef] = Problem{Ref: rosterRef, Seq: roster.Head.Seq,
			What: fmt.Sprintf("another clone on this machine has seen the team's roster up to entry %d, and this one has it up to %d: run `knoot sync`", pin.HeadSeq, roster.Head.Seq)}
	} else if pin.Head != "" && !roster.Has(pin.HeadSeq, pin.Head) {
		c.problems[rosterRef] = Problem{Ref: rosterRef, Seq: pin.HeadSeq,
			What: fmt.Sprintf("the roster does not go on from entry %d that was seen before (%s): the host has lost it, or shows another", pin.HeadSeq, pin.Head)}
		return nil
	}
	keys, err := roster.OpenEpochs(c.device)
	// Who is not in the team any more, or not yet, cannot read the names of what came since.
	if nerr := roster.ReadNames(keys); err == nil && roster.Devices[c.device.ID] != nil {
		err = nerr
	}
	if err != nil {
		c.problems[rosterRef] = Problem{Ref: rosterRef, Seq: roster.Head.Seq, What: err.Error()}
	}
	c.roster, c.keys = roster, keys
	if whole {
		c.rosterTip = tip
	}
	return nil
}

// readRosterChain reads the commits of a roster from genesis on.
func readRosterChain(ctx context.Context, objects *objectStore, tip Hash) ([]RosterCommit, error) {
	commits, _, err := objects.readChain(ctx, tip, "", maxRosterSeq)
	if err != nil {
		return nil, err
	}
	return readRosterCommits(ctx, objects, commits, 0)
}

// readRosterCommits reads commits that hold the entries from first on.
func readRosterCommits(ctx context.Context, objects *objectStore, commits []*logCommit, first uint64) ([]RosterCommit, error) {
	// Side by side: where no index of the roster is here, a program reads the whole chain, and each entry has a file for each device.
	chain := make([]RosterCommit, len(commits))
	failures := make([]error, len(commits))
	var next atomic.Int64
	var readers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), maxRosterReaders) {
		readers.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(commits); i = int(next.Add(1)) - 1 {
				if chain[i], failures[i] = readRosterCommit(ctx, objects, commits[i]); failures[i] != nil {
					failures[i] = fmt.Errorf("roster entry %d: %w", first+uint64(i), failures[i])
					next.Store(int64(len(commits))) // what comes after it counts for nothing
				}
			}
		})
	}
	readers.Wait()
	if at := slices.IndexFunc(failures, func(err error) bool { return err != nil }); at >= 0 {
		return nil, failures[at]
	}
	return chain, nil
}

func readRosterCommit(ctx context.Context, objects *objectStore, commit *logCommit) (RosterCommit, error) {
	files, err := objects.readFiles(ctx, commit.Tree, fileLimits{Files: maxRosterFiles, Bytes: maxRosterEntry})
	if err != nil {
		return RosterCommit{}, err
	}
	entry, ok := files["entry"]
	if !ok {
		return RosterCommit{}, errors.New("the commit has no file `entry`")
	}
	delete(files, "entry")
	return RosterCommit{Entry: entry, Files: files}, nil
}

// writeRosterCommit stores one entry on top of parent.
func writeRosterCommit(ctx context.Context, objects *objectStore, parent Hash, commit RosterCommit, at Millis) (Hash, error) {
	files := map[string][]byte{"entry": commit.Entry}
	for name, data := range commit.Files {
		files[name] = data
	}
	return objects.writeCommit(ctx, parent, files, at.Time())
}
