package gitlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"

	"github.com/BurntSushi/toml"
)

// Settings is .knoot.toml: what a repository's members agreed on. It never holds a secret.
type Settings struct {
	Team       TeamID
	Repository RepositoryID
	Roster     string // address of the repository that holds the roster; "" for this one
	Remote     string // name of the remote to sync with; "" to choose
	Relay      string
	RelayKey   string
	Claims     ClaimSettings
	// Areas proposes the division of the repository's paths: by canonical prefix the name of a room. nil where no table [areas] is.
	// It counts once an admin has entered it in the roster.
	Areas map[string]string

	Unknown  []string // keys that this version does not know; status warns of them
	Problems []string // sentences about values of [claims] and hubs that make no sense, and what counts in their place
	Source   string   // where it was read: a path, or "<ref>:.knoot.toml"
}

// SettingsFile is the name of the settings in a work tree.
const SettingsFile = ".knoot.toml"

// privateSettings is where they are after `init --private`, in the common git directory.
const privateSettings = "knoot.toml"

// ErrNotInitialised is returned where a repository has no settings.
var ErrNotInitialised = errors.New("knoot is not set up in this repository: run `knoot init`")

// ParseSettings reads the text of a .knoot.toml.
func ParseSettings(text []byte) (*Settings, error) {
	var file struct {
		Team       string            `toml:"team"`
		Repository string            `toml:"repository"`
		Roster     string            `toml:"roster"`
		Remote     string            `toml:"remote"`
		Relay      string            `toml:"relay"`
		RelayKey   string            `toml:"relay_key"`
		Hubs       toml.Primitive    `toml:"hubs"`
		Areas      map[string]string `toml:"areas"`
		Claims     toml.Primitive    `toml:"claims"`
	}
	meta, err := toml.Decode(string(text), &file)
	if err != nil {
		return nil, fmt.Errorf("%s does not parse: %w", SettingsFile, err)
	}
	s := &Settings{
		Roster: file.Roster, Remote: file.Remote, Relay: file.Relay, RelayKey: file.RelayKey,
	}
	if s.Team, err = ParseTeamID(file.Team); err != nil {
		return nil, fmt.Errorf("%s: %w", SettingsFile, err)
	}
	if s.Repository, err = ParseRepositoryID(file.Repository); err != nil {
		return nil, fmt.Errorf("%s: %w", SettingsFile, err)
	}
	if s.Areas, err = parseAreas(file.Areas); err != nil {
		return nil, fmt.Errorf("%s: %w", SettingsFile, err)
	}
	s.Claims, s.Problems, s.Unknown = readClaims(&meta, file.Claims, file.Hubs)
	for _, key := range meta.Undecoded() {
		s.Unknown = append(s.Unknown, key.String())
	}
	sort.Strings(s.Unknown)
	return s, nil
}

// parseAreas brings prefixes to the spelling of paths. A slash at the end is how people write a folder.
func parseAreas(table map[string]string) (map[string]string, error) {
	if table == nil {
		return nil, nil
	}
	areas := map[string]string{}
	for written, room := range table {
		prefix, err := CanonicalPath(strings.Trim(written, "/"))
		if err != nil {
			return nil, fmt.Errorf("[areas]: %w", err)
		}
		if prefix == "" {
			return nil, fmt.Errorf("[areas] has %q: the whole repository is no area, since what is in none belongs to general", written)
		}
		if strings.TrimSpace(room) == "" {
			return nil, fmt.Errorf("[areas] names no room for %q", written)
		}
		if other, twice := areas[prefix]; twice && other != room {
			return nil, fmt.Errorf("[areas] has %q twice", prefix)
		}
		areas[prefix] = room
	}
	return areas, nil
}

// Text returns the settings as init writes them.
func (s *Settings) Text() []byte {
	var b bytes.Buffer
	b.WriteString("# knoot: what the coding agents of this repository know, shared through git. No secret is in here.\n")
	fmt.Fprintf(&b, "team = %q\nrepository = %q\n", s.Team, s.Repository)
	for _, kv := range [][2]string{{"roster", s.Roster}, {"remote", s.Remote}, {"relay", s.Relay}, {"relay_key", s.RelayKey}} {
		if kv[1] != "" {
			fmt.Fprintf(&b, "%s = %q\n", kv[0], kv[1])
		}
	}
	return b.Bytes()
}

// findSettings finds the settings that count, and the remote by git's own configuration (nil: none), on whose default branch they
// may be. What remote the settings name is not looked at. differs says that the work tree has other settings. An error of the
// settings, ErrNotInitialised for one, comes with the remote.
func findSettings(ctx context.Context, repo *Repository) (s *Settings, differs bool, r *remote, err error) {
	find := sync.OnceValues(func() (*remote, error) { return findRemote(ctx, repo, "") })
	s, differs, err = readSettings(ctx, repo, func() string {
		if r, err := find(); err == nil && r != nil {
			return r.name
		}
		return ""
	})
	r, missing := find()
	if missing != nil {
		return nil, false, nil, missing
	}
	return s, differs, r, err
}

// readSettings finds the settings that count: the private ones, else those of the default branch, since a checkout of
// somebody's pull request must not decide; else the work tree's. differs says that the work tree has others. remote says whose
// default branch, "" for this repository's own; it is asked while git starts.
func readSettings(ctx context.Context, repo *Repository, remote func() string) (s *Settings, differs bool, err error) {
	if text, err := os.ReadFile(filepath.Join(repo.CommonDir, "knoot", privateSettings)); err == nil {
		s, err = ParseSettings(text)
		if s != nil {
			s.Source = filepath.Join(repo.CommonDir, "knoot", privateSettings)
		}
		return s, false, err
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, false, fmt.Errorf("cannot read the settings: %w", err)
	}
	var inTree []byte
	if repo.Root != "" {
		path := filepath.Join(repo.Root, SettingsFile)
		if inTree, err = os.ReadFile(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, false, fmt.Errorf("cannot read the settings: %w", err)
		}
	}
	ref, text, err := defaultBranchFile(ctx, repo, remote, SettingsFile)
	if err != nil {
		return nil, false, err
	}
	switch {
	case text != nil:
		if s, err = ParseSettings(text); err != nil {
			return nil, false, fmt.Errorf("on %s, %w", ref, err)
		}
		s.Source = ref + ":" + SettingsFile
		return s, inTree != nil && !bytes.Equal(text, inTree), nil
	case inTree != nil:
		if s, err = ParseSettings(inTree); err != nil {
			return nil, false, err
		}
		s.Source = filepath.Join(repo.Root, SettingsFile)
		return s, false, nil
	}
	return nil, false, ErrNotInitialised
}

// settingsRefs are the refs of a remote that may be its default branch, the best first.
func settingsRefs(remote string) (refs []string) {
	if remote != "" {
		for _, branch := range []string{"HEAD", "main", "master"} {
			refs = append(refs, "refs/remotes/"+remote+"/"+branch)
		}
	}
	return refs
}

// defaultBranchFile returns a file of the default branch: <remote>/HEAD, else its main or master, else HEAD. A nil
// text: none of these has it.
func defaultBranchFile(ctx context.Context, repo *Repository, remote func() string, name string) (ref string, text []byte, err error) {
	var refs []string
	questions := &laterText{text: func() string {
		refs = append(settingsRefs(remote()), "HEAD")
		var ask strings.Builder
		for _, ref := range refs {
			fmt.Fprintf(&ask, "%s:%s\n", ref, name)
		}
		return ask.String()
	}}
	out, _, err := repo.git().runFrom(ctx, questions, "cat-file", "--batch")
	if err != nil {
		return "", nil, err
	}
	// The answers stand in the order of the questions, present ones with their size and bytes.
	for _, ref := range refs {
		line, rest, _ := bytes.Cut(out, []byte("\n"))
		fields := strings.Fields(string(line))
		if len(fields) != 3 || fields[1] != "blob" {
			out = rest
			continue
		}
		var size int
		if _, err := fmt.Sscan(fields[2], &size); err != nil || size > len(rest) {
			return "", nil, fmt.Errorf("git cat-file answered %q", line)
		}
		return ref, rest[:size], nil
	}
	return "", nil, nil
}
