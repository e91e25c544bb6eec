package gitlog

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// settingsPath is where the settings of this clone are written.
func settingsPath(repo *Repository) string {
	private := filepath.Join(repo.CommonDir, "knoot", privateSettings)
	if _, err := os.Stat(private); err == nil {
		return private
	}
	return filepath.Join(repo.Root, SettingsFile)
}

// nameRelay writes the relay into settings that are there, and remembers that this person chose it: it is used once those settings
// count, which may be after they are merged.
func (s *setup) nameRelay(team TeamID) error {
	path := settingsPath(s.repo)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is not in this checkout: change to a branch that has it, and run `knoot init --relay` there", SettingsFile)
	}
	if err != nil {
		return fmt.Errorf("cannot read the settings: %w", err)
	}
	changed := setKey(setKey(text, "relay", s.Relay), "relay_key", s.RelayKey)
	if _, err := ParseSettings(changed); err != nil {
		return err
	}
	if !bytes.Equal(text, changed) {
		info, err := os.Stat(path)
		if err != nil {
			return fmt.Errorf("cannot write the settings: %w", err)
		}
		if err := ReplaceFile(path, changed, info.Mode().Perm()); err != nil {
			return fmt.Errorf("cannot write the settings: %w", err)
		}
		s.report.wrote("%s: the relay %s", path, s.Relay)
	}
	return s.home.UpdateKnown(func(k *Known) error {
		pin := k.Teams[team.String()]
		pin.NextRelay, pin.NextRelayKey = s.Relay, s.RelayKey
		k.Teams[team.String()] = pin
		return nil
	})
}

// setKey sets a text of a TOML file's top level, in the line where it is, else before the first table; "" takes it out. Comments and
// all else stay.
func setKey(text []byte, key, value string) []byte {
	line := ""
	if value != "" {
		line = fmt.Sprintf("%s = %q\n", key, value)
	}
	var out strings.Builder
	done, tables := false, false
	for each := range strings.Lines(string(text)) {
		trimmed := strings.TrimSpace(each)
		if strings.HasPrefix(trimmed, "[") && !tables {
			tables = true
			if !done {
				out.WriteString(line)
				done = true
			}
		}
		name, _, assigned := strings.Cut(trimmed, "=")
		if !tables && assigned && strings.TrimSpace(name) == key {
			if !done {
				out.WriteString(line)
				done = true
			}
			continue
		}
		out.WriteString(each)
	}
	if !done {
		if out.Len() > 0 && !strings.HasSuffix(out.String(), "\n") {
			out.WriteString("\n")
		}
		out.WriteString(line)
	}
	return []byte(out.String())
}
