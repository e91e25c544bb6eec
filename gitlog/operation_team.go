package gitlog

import "fmt"

// What concerns the team as a whole: its repositories, logs of those who left, which versions may seal.

func applyRepositoryAdded(r *Roster, _ *entryWork, f *fields) error {
	var id RepositoryID
	f.fixed(opRepository, id[:])
	if err := f.finish(); err != nil {
		return err
	}
	if r.Repositories[id] {
		return fmt.Errorf("repository %s is in the team: %w", id, errState)
	}
	r.Repositories[id] = true
	return nil
}

// applyLogRetired lets everybody delete a departed writer's log. That it holds no live entry is for its signer to see: an entry
// of the roster knows nothing of logs.
func applyLogRetired(r *Roster, _ *entryWork, f *fields) error {
	var id WriterID
	f.fixed(opWriter, id[:])
	if err := f.finish(); err != nil {
		return err
	}
	if r.former[id.Device()] == nil || r.Retired[id] {
		return fmt.Errorf("writer %s is no departed device's, or is retired: %w", id, errState)
	}
	r.Retired[id] = true
	return nil
}

// formatVersion is the version of all the formats together that this program writes: what a team's minimum is compared with.
const formatVersion = 1

func applyMinimumVersion(r *Roster, _ *entryWork, f *fields) error {
	version := f.uint(opVersion, 1)
	if err := f.finish(); err != nil {
		return err
	}
	if version <= r.MinVersion {
		return fmt.Errorf("minimum version %d after %d: %w", version, r.MinVersion, errState)
	}
	if version > formatVersion {
		return fmt.Errorf("the team's minimum version is %d, this is %d: %w", version, formatVersion, ErrNewer)
	}
	r.MinVersion = version
	return nil
}
