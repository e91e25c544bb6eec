package gitlog

import (
	"fmt"
	"strings"
)

// PinChange is a setting that is not what this machine saw first. While there is one, the clone neither syncs nor
// coordinates: a commit must not be able to redirect them.
type PinChange struct {
	Setting string `json:"setting"` // team, repository, remote, roster, relay, relay_key
	Old     string `json:"old"`
	New     string `json:"new"`
}

func (p PinChange) String() string {
	return fmt.Sprintf("%s was %s and is now %s", p.Setting, orNone(p.Old), orNone(p.New))
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// ErrPinned is returned for work that is off until the person has trusted what changed.
type ErrPinned struct{ Changes []PinChange }

func (e *ErrPinned) Error() string {
	var parts []string
	for _, c := range e.Changes {
		parts = append(parts, c.String())
	}
	return "sync is off, since this is not what was trusted here: " + strings.Join(parts, "; ") +
		". If that is right, run `knoot trust`"
}

// pinsOf compares what counts now with what was pinned. A clone or team that was never seen has no changes.
func pinsOf(k *Known, common string, s *Settings, address string) []PinChange {
	var changes []PinChange
	compare := func(setting, old, new string) {
		if old != new {
			changes = append(changes, PinChange{setting, old, new})
		}
	}
	if pin, ok := k.Clones[common]; ok {
		compare("team", pin.Team, s.Team.String())
		compare("repository", pin.Repository, s.Repository.String())
		// A clone that had no remote may get its first one.
		if pin.Remote != "" {
			compare("remote", pin.Remote, address)
		}
		compare("roster", pin.Roster, s.Roster)
	}
	if pin, ok := k.Teams[s.Team.String()]; ok {
		// The repository that has the roster names no address, so a team's repositories differ in that alone.
		if _, seen := k.Clones[common]; !seen && pin.Roster != "" && s.Roster != "" {
			compare("roster", pin.Roster, s.Roster)
		}
		if pin.NextRelay == "" || s.Relay != pin.NextRelay || s.RelayKey != pin.NextRelayKey {
			compare("relay", pin.Relay, s.Relay)
			compare("relay_key", pin.RelayKey, s.RelayKey)
		}
	}
	return changes
}

// pin remembers what counts now, over what was pinned before.
func (h *Home) pin(common string, s *Settings, address string) error {
	return h.UpdateKnown(func(k *Known) error {
		k.Clones[common] = KnownClone{Team: s.Team.String(), Repository: s.Repository.String(), Remote: address, Roster: s.Roster}
		team := k.Teams[s.Team.String()]
		if team.Relay, team.RelayKey = s.Relay, s.RelayKey; s.Relay == team.NextRelay {
			team.NextRelay, team.NextRelayKey = "", ""
		}
		if s.Roster != "" {
			team.Roster = s.Roster
		}
		k.Teams[s.Team.String()] = team
		return nil
	})
}
