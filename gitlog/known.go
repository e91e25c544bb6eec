package gitlog

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/BurntSushi/toml"
)

// Known is known.toml: what this person's machine saw first, so that a commit cannot redirect it. Keys that a newer
// version wrote are kept.
type Known struct {
	Teams  map[string]KnownTeam  // by team id in hex
	Clones map[string]KnownClone // by the absolute path of the common git directory

	rest map[string]any
}

// KnownTeam pins where a team's roster and relay are and the highest roster head seen.
type KnownTeam struct {
	Roster   string `toml:"roster,omitempty"` // address that repositories name whose team's roster is elsewhere
	Relay    string `toml:"relay,omitempty"`
	RelayKey string `toml:"relay_key,omitempty"`
	// NextRelay and NextRelayKey are what this person chose with `knoot init --relay`: they are right, too, since the settings that
	// count name them only once they are merged.
	NextRelay    string `toml:"next_relay,omitempty"`
	NextRelayKey string `toml:"next_relay_key,omitempty"`
	HeadSeq      uint64 `toml:"head_seq"`
	Head         string `toml:"head,omitempty"` // hash of the roster entry, hex
}

// KnownClone pins what a clone belongs to and where it syncs.
type KnownClone struct {
	Team       string `toml:"team"`
	Repository string `toml:"repository"`
	Remote     string `toml:"remote,omitempty"` // the remote's address; empty until there is one
	Roster     string `toml:"roster,omitempty"` // where the roster is; empty where it is at the remote
}

const knownFile = "known.toml"

// Known reads the file; an absent one is empty.
func (h *Home) Known() (*Known, error) {
	k := &Known{Teams: map[string]KnownTeam{}, Clones: map[string]KnownClone{}, rest: map[string]any{}}
	text, err := os.ReadFile(h.Path(knownFile))
	if errors.Is(err, fs.ErrNotExist) {
		return k, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read what was trusted before: %w", err)
	}
	var file struct {
		Team  map[string]KnownTeam  `toml:"team"`
		Clone map[string]KnownClone `toml:"clone"`
	}
	_, err = toml.Decode(string(text), &file)
	if err == nil {
		_, err = toml.Decode(string(text), &k.rest)
	}
	if err != nil {
		return nil, fmt.Errorf("%s does not parse (%w): mend it, or move it away and run `knoot trust` in each clone", h.Path(knownFile), err)
	}
	delete(k.rest, "team")
	delete(k.rest, "clone")
	if file.Team != nil {
		k.Teams = file.Team
	}
	if file.Clone != nil {
		k.Clones = file.Clone
	}
	return k, nil
}

// UpdateKnown changes the file under a lock, by rename. An error of change leaves it as it was.
func (h *Home) UpdateKnown(change func(*Known) error) error {
	if err := h.Make(); err != nil {
		return err
	}
	unlock, err := lockFile(h.Path(knownFile + ".lock"))
	if err != nil {
		return fmt.Errorf("cannot lock %s: %w", h.Path(knownFile), err)
	}
	defer unlock()
	k, err := h.Known()
	if err != nil {
		return err
	}
	before, err := k.encode()
	if err != nil {
		return err
	}
	if err := change(k); err != nil {
		return err
	}
	after, err := k.encode()
	if err != nil || bytes.Equal(before, after) {
		return err
	}
	if err := ReplaceFile(h.Path(knownFile), after, 0o600); err != nil {
		return fmt.Errorf("cannot remember what is trusted: %w", err)
	}
	return nil
}

func (k *Known) encode() ([]byte, error) {
	whole := map[string]any{}
	for key, value := range k.rest {
		whole[key] = value
	}
	if len(k.Teams) > 0 {
		whole["team"] = k.Teams
	}
	if len(k.Clones) > 0 {
		whole["clone"] = k.Clones
	}
	var b bytes.Buffer
	if err := toml.NewEncoder(&b).Encode(whole); err != nil {
		return nil, fmt.Errorf("known.toml: %w", err)
	}
	return b.Bytes(), nil
}
