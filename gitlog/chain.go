package gitlog

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Chain is a roster as somebody sees it who holds the entries alone, without key files, links and names: a relay. It
// says who is in the team, and cannot open anything. A Chain does not change; Extend makes a new one.
type Chain struct {
	roster *Roster
	links  []ChainLink
}

// ChainLink is what one entry of a chain did, as far as it matters to whoever admits devices.
type ChainLink struct {
	Hash    Digest
	Signer  DeviceID
	Removed []DeviceID // sorted: devices that it took out of the team, or shut out with their member
	Rotates bool       // it begins a room's epoch, or moves an area: tokens change
}

// ErrOtherTeam is returned for a genesis that is not of the team asked for.
var ErrOtherTeam = errors.New("is the roster of another team")

// BeginChain checks genesis and makes the chain that it begins.
func BeginChain(team TeamID, genesis []byte) (*Chain, error) {
	if teamOf(RosterCommit{Entry: genesis}) != team {
		return nil, fmt.Errorf("the roster %w", ErrOtherTeam)
	}
	r := newRoster()
	r.bare = true
	c := &Chain{roster: r}
	if err := c.extend(genesis); err != nil {
		return nil, err
	}
	return c, nil
}

// Extend returns the chain with more entries, as many of them as are right, their number, and what is wrong with the
// next one. One that only a newer version can apply wraps ErrNewer.
func (c *Chain) Extend(entries [][]byte) (*Chain, int, error) {
	next := c.clone()
	for i, entry := range entries {
		if err := next.extend(entry); err != nil {
			// The entry may have been applied in part.
			next, _, _ = c.Extend(entries[:i])
			return next, i, err
		}
	}
	return next, len(entries), nil
}

func (c *Chain) clone() *Chain {
	return &Chain{roster: c.roster.clone(), links: slices.Clip(c.links)}
}

// extend applies one entry to c itself, which is worth nothing after an error.
func (c *Chain) extend(entry []byte) error {
	before := maps.Clone(c.roster.Devices)
	e, err := c.roster.verify(entry, uint64(len(c.links)))
	if err == nil {
		err = c.roster.apply(e, nil)
	}
	if err != nil {
		return fmt.Errorf("roster entry %d: %w", len(c.links), err)
	}
	link := ChainLink{Hash: e.hash, Signer: e.kid}
	for id, d := range before {
		if c.roster.Devices[id] == nil && !d.Pending {
			link.Removed = append(link.Removed, id)
		}
	}
	slices.SortFunc(link.Removed, compareDevices)
	for _, op := range e.operations {
		switch op.number {
		case opEpochBegun, opAreaSet, opAreaRemoved:
			link.Rotates = true
		}
	}
	c.links = append(c.links, link)
	return nil
}

func compareDevices(a, b DeviceID) int { return bytes.Compare(a[:], b[:]) }

// Team is the id of the team.
func (c *Chain) Team() TeamID { return c.roster.Team }

// Head is the last entry.
func (c *Chain) Head() RosterHead { return c.roster.Head }

// Len is the number of entries.
func (c *Chain) Len() int { return len(c.links) }

// Link returns what entry seq did; seq is below Len.
func (c *Chain) Link(seq uint64) ChainLink { return c.links[seq] }

// Has says whether an entry of the chain has this seq and hash.
func (c *Chain) Has(head RosterHead) bool {
	return head.Seq < uint64(len(c.links)) && c.links[head.Seq].Hash == head.Hash
}

// HasHash says whether an entry of the chain has this hash.
func (c *Chain) HasHash(hash Digest) bool {
	return slices.ContainsFunc(c.links, func(l ChainLink) bool { return l.Hash == hash })
}

// HashEntry is the hash of an entry.
func HashEntry(entry []byte) Digest { return sha256.Sum256(entry) }

// Devices lists the devices that are in the team now, without pending ones.
func (c *Chain) Devices() []DeviceID {
	var ids []DeviceID
	for id, d := range c.roster.Devices {
		if !d.Pending {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, compareDevices)
	return ids
}

// Live says whether a device is in the team now, and not pending.
func (c *Chain) Live(id DeviceID) bool {
	d := c.roster.Devices[id]
	return d != nil && !d.Pending
}

// Rotated is the seq of the last entry by which tokens changed.
func (c *Chain) Rotated() uint64 {
	for seq := len(c.links) - 1; seq >= 0; seq-- {
		if c.links[seq].Rotates {
			return uint64(seq)
		}
	}
	return 0
}

// Member returns whose device a key is, and false unless it is in the team now, with that key, and not pending.
func (c *Chain) Member(key ed25519.PublicKey) (MemberID, bool) {
	d := c.roster.Devices[DeviceIDOf(key)]
	if d == nil || d.Pending || !d.Key.Equal(key) {
		return MemberID{}, false
	}
	return d.Member, true
}

// Repository says whether the team has this repository.
func (c *Chain) Repository(id RepositoryID) bool { return c.roster.Repositories[id] }

// admitted is the seq of the entry that let a device in, also of one that is out again.
func (c *Chain) admitted(id DeviceID) uint64 {
	if d := c.roster.device(id); d != nil {
		return d.since
	}
	return uint64(len(c.links))
}

// Prefers decides a fork, between this chain and another of the same team that parts from it: true where this one is to
// be kept. The branch counts whose first entry after the fork removes the signer of the other's; if both do or neither,
// the one whose signer was let in first in the part that they share; else this one.
func (c *Chain) Prefers(other *Chain) bool {
	at := 0
	for at < len(c.links) && at < len(other.links) && c.links[at].Hash == other.links[at].Hash {
		at++
	}
	if at == len(other.links) {
		return true // it is a part of this one
	}
	if at == len(c.links) {
		return false // it goes on
	}
	mine, theirs := c.links[at], other.links[at]
	removes, removed := slices.Contains(mine.Removed, theirs.Signer), slices.Contains(theirs.Removed, mine.Signer)
	if removes != removed {
		return removes
	}
	// Both signers were in the team before the fork, so either chain knows since when.
	return c.admitted(mine.Signer) <= c.admitted(theirs.Signer)
}
