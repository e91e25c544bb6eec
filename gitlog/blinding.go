package gitlog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Blinding makes what a relay may see of a repository, by one state of the team: tokens of names, and sealed texts. It does not
// change: a new epoch, or another area, makes another one.
type Blinding struct {
	Roster *Roster
	Member MemberID // whose device this is

	repository RepositoryID
	device     *Device
	ring       Keyring
	tokens     map[RoomID]TokenKey // of the current epochs of the rooms that this device is in
}

// Blinding returns what tokens and sealed texts are made with now. An error says why there is none: the team is not here, or this
// device is not in it.
func (c *Clone) Blinding() (*Blinding, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.roster == nil {
		return nil, c.noTeam()
	}
	if err := c.roster.Sealable(); err != nil {
		return nil, err
	}
	self := c.roster.Devices[c.device.ID]
	if self == nil || !c.inRoom(c.roster.General) {
		return nil, errors.New("this device is not in the team")
	}
	b := &Blinding{Roster: c.roster, Member: self.Member, repository: c.settings.Repository, device: c.device, ring: c.keys}
	return b, b.readTokens()
}

// readTokens finds the keys of tokens by the roster.
func (b *Blinding) readTokens() error {
	b.tokens = map[RoomID]TokenKey{}
	for id, room := range b.Roster.Rooms {
		if len(room.Epochs) == 0 {
			continue
		}
		epoch := b.ring[room.Current().RoomEpoch]
		if epoch == nil {
			continue
		}
		key, err := epoch.TokenKey(b.Roster.Team)
		if err != nil {
			return err
		}
		b.tokens[id] = key
	}
	return nil
}

// BlindingBefore returns what tokens were made with before they changed last; nil where they never did, or where the roster was
// not changed after since. Its tokens alone are of use: nothing is sealed by it.
func (c *Clone) BlindingBefore(ctx context.Context, b *Blinding, since Millis) (*Blinding, error) {
	if b.Roster.Time <= since {
		return nil, nil
	}
	commits, err := c.rosterCommits(ctx, b.Roster.Head)
	if err != nil {
		return nil, err
	}
	entries := rosterEntries(commits)
	chain, err := BeginChain(b.Roster.Team, entries[0])
	if err != nil {
		return nil, err
	}
	if chain, _, err = chain.Extend(entries[1:]); err != nil {
		return nil, err
	}
	rotated := chain.Rotated()
	if rotated == 0 {
		return nil, nil
	}
	roster, err := VerifyRoster(b.Roster.Team, commits[:rotated])
	if err != nil {
		return nil, err
	}
	if err := roster.ReadNames(b.ring); err != nil {
		return nil, err
	}
	before := &Blinding{Roster: roster, Member: b.Member, repository: b.repository, device: b.device, ring: b.ring}
	return before, before.readTokens()
}

// Device is the id of this device.
func (b *Blinding) Device() DeviceID { return b.device.ID }

// SameTokens says whether both make the same tokens of all names.
func (b *Blinding) SameTokens(other *Blinding) bool {
	return b.repository == other.repository && maps.Equal(b.tokens, other.tokens) && slices.Equal(b.prefixes(), other.prefixes())
}

// prefixes are the areas, as texts.
func (b *Blinding) prefixes() (all []string) {
	for _, a := range b.Roster.Areas {
		all = append(all, FoldPath(a.Prefix)+"\x00"+a.Room.String())
	}
	slices.Sort(all)
	return all
}

// Path returns the token of a canonical path and those of the directories above it, the nearest first; false where this device
// lacks the key of the path's room. A directory of which it lacks the key is left out.
func (b *Blinding) Path(path string) (own Token, above []Token, ok bool) {
	key, ok := b.tokens[b.Roster.RoomOf(path)]
	if !ok {
		return own, nil, false
	}
	own = key.Path(b.repository, path)
	for dir := path; dir != ""; {
		dir = parentPath(dir)
		if key, ok := b.tokens[b.Roster.RoomOf(dir)]; ok {
			above = append(above, key.Path(b.repository, dir))
		}
	}
	return own, above, true
}

func parentPath(path string) string {
	for i := len(path) - 1; i >= 0; i-- {
		if path[i] == '/' {
			return path[:i]
		}
	}
	return ""
}

func (b *Blinding) general() TokenKey { return b.tokens[b.Roster.General] }

// Branch is the token of a full ref name; of a detached HEAD ("") that of the worktree, of this device, whose real git directory
// gitDir is.
func (b *Blinding) Branch(ref, gitDir string) Token {
	if ref == "" {
		return b.general().Detached(b.repository, b.device.ID, gitDir)
	}
	return b.general().Branch(b.repository, ref)
}

// Worktree is the token of a worktree of this device.
func (b *Blinding) Worktree(gitDir string) Token {
	return b.general().Worktree(b.repository, b.device.ID, gitDir)
}

// Session is the token of a session of this device.
func (b *Blinding) Session(agent, session string) Token {
	return b.general().Session(b.repository, b.device.ID, agent, session)
}

// Seal seals a text to the room of a path ("" for all members) as a live payload of a session.
func (b *Blinding) Seal(path string, kind EntryKind, session Token, counter uint64, at Millis, text []byte) ([]byte, error) {
	id := b.Roster.General
	if path != "" {
		id = b.Roster.RoomOf(path)
	}
	room := b.Roster.Rooms[id]
	if room == nil || b.ring[room.Current().RoomEpoch] == nil {
		return nil, fmt.Errorf("this device has no key of the room %s", id)
	}
	return SealLive(b.device, b.ring[room.Current().RoomEpoch], LiveHeader{Team: b.Roster.Team, Repository: b.repository, Session: session, Kind: kind,
		Counter: counter, Time: at}, text)
}

// Open opens a live payload of this team and repository, whose signer is in the team. Whether it belongs to the event that brought
// it the caller compares by the header.
func (b *Blinding) Open(data []byte) (LiveHeader, []byte, error) {
	l, err := ParseLive(data)
	if err != nil {
		return LiveHeader{}, nil, err
	}
	if l.Team != b.Roster.Team || l.Repository != b.repository {
		return l.LiveHeader, nil, errors.New("the payload belongs to another repository")
	}
	device, key := b.Roster.Devices[l.Device], b.ring[l.RoomEpoch]
	if device == nil || device.Pending {
		return l.LiveHeader, nil, fmt.Errorf("the payload is signed by %s, which is not in the team", l.Device)
	}
	if key == nil {
		return l.LiveHeader, nil, fmt.Errorf("this device has no key of the room %s, epoch %d", l.Room, l.Number)
	}
	text, err := l.Open(device.Key, key)
	return l.LiveHeader, text, err
}

// RosterEntries returns the entries of the accepted roster, without key files, from genesis up to a head: what admits this device to
// a relay.
func (c *Clone) RosterEntries(ctx context.Context, head RosterHead) ([][]byte, error) {
	commits, err := c.rosterCommits(ctx, head)
	if err != nil {
		return nil, err
	}
	return rosterEntries(commits), nil
}

func rosterEntries(commits []RosterCommit) [][]byte {
	entries := make([][]byte, len(commits))
	for i := range commits {
		entries[i] = commits[i].Entry
	}
	return entries
}

// rosterCommits returns the accepted roster from genesis up to a head.
func (c *Clone) rosterCommits(ctx context.Context, head RosterHead) ([]RosterCommit, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	tip, err := openRefs(c.Repo).read(ctx, rosterRef)
	if err != nil {
		return nil, err
	}
	if tip == "" {
		return nil, errors.New("the team's roster is not here yet")
	}
	objects, err := c.store(ctx)
	if err != nil {
		return nil, err
	}
	chain, err := readRosterChain(ctx, objects, tip)
	if err != nil {
		return nil, err
	}
	if uint64(len(chain)) <= head.Seq {
		return nil, fmt.Errorf("the roster here has %d entries, and goes up to %d", len(chain), head.Seq)
	}
	return chain[:head.Seq+1], nil
}
