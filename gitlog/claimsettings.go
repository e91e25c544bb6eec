package gitlog

import (
	"fmt"
	"sort"

	"github.com/BurntSushi/toml"
)

// ClaimMode is what becomes of a write to a file that another session has claimed.
type ClaimMode string

// The modes, from the weakest up.
const (
	ClaimsOff  ClaimMode = "off"  // claims are neither made nor told of
	ClaimsNote ClaimMode = "note" // the write goes on, and both sides hear of it
	ClaimsDeny ClaimMode = "deny" // the write is refused; what counts where nothing is said
)

// ParseClaimMode reads a mode as settings have it.
func ParseClaimMode(text string) (ClaimMode, error) {
	switch m := ClaimMode(text); m {
	case ClaimsOff, ClaimsNote, ClaimsDeny:
		return m, nil
	}
	return ClaimsDeny, fmt.Errorf("mode = %q: want deny, note or off", text)
}

// Lowered returns the weaker of two modes: a person can ask for less than their repository, never for more. "" asks
// for nothing.
func (m ClaimMode) Lowered(by ClaimMode) ClaimMode {
	if by == ClaimsOff || by == ClaimsNote && m == ClaimsDeny {
		return by
	}
	return m
}

// ClaimSettings is [claims] of .knoot.toml, and hubs.
type ClaimSettings struct {
	Mode ClaimMode
	Note PathSet // files that are never claimed: whoever writes next gets a note
	Hubs PathSet // files that are hubs though nobody has measured it
}

// readClaims reads [claims] and hubs. What makes no sense there changes nothing and is told in a sentence each, since a
// typing error of one person must not take the memory of all away.
func readClaims(meta *toml.MetaData, table, hubs toml.Primitive) (c ClaimSettings, problems, unknown []string) {
	c.Mode = ClaimsDeny
	var keys map[string]toml.Primitive
	if meta.IsDefined("claims") {
		if err := meta.PrimitiveDecode(table, &keys); err != nil || meta.Type("claims") != "Hash" {
			problems = append(problems, "claims is no table: write [claims], and its keys below")
		}
	}
	if mode, ok := keys["mode"]; ok {
		var text string
		err := meta.PrimitiveDecode(mode, &text)
		if err != nil {
			err = fmt.Errorf("mode is no text: want deny, note or off")
		} else {
			c.Mode, err = ParseClaimMode(text)
		}
		if err != nil {
			problems = append(problems, fmt.Sprintf("[claims] %v; until then it is deny", err))
		}
	}
	list := func(name string, value toml.Primitive) PathSet {
		var written []string
		if err := meta.PrimitiveDecode(value, &written); err != nil {
			problems = append(problems, name+" is no list of paths and globs; it is left out")
			return PathSet{}
		}
		set, bad := NewPathSet(written)
		for _, sentence := range bad {
			problems = append(problems, name+": "+sentence+"; it is left out")
		}
		return set
	}
	if note, ok := keys["note"]; ok {
		c.Note = list("[claims] note", note)
	}
	if meta.IsDefined("hubs") {
		c.Hubs = list("hubs", hubs)
	}
	for key := range keys {
		if key != "mode" && key != "note" {
			unknown = append(unknown, "claims."+key)
		}
	}
	sort.Strings(problems)
	return c, problems, unknown
}
