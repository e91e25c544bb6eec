package gitlog

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// InitOptions says how a repository is set up.
type InitOptions struct {
	Local    bool              // never sync; nothing is asked of a remote
	Private  bool              // leave the work tree untouched
	Name     string            // the person's name and address, for a new team
	Address  string            //
	Label    string            // the device's, such as its host's name
	Recovery bool              // of a new team: make a recovery key
	Roster   string            // address of the repository with the roster of a team that this repository enters; "" for none
	Relay    string            // address of the team's relay, to be written into the settings; "" changes nothing
	RelayKey string            // its key, as `knoot relay --print-key` prints it; "": it has a public authority's certificate
	Progress func(line string) // what is about to happen, for a person; may be nil
}

// InitReport says what was set up.
type InitReport struct {
	Team       TeamID
	Repository RepositoryID
	Started    bool     // a team was started; else the one that was there
	Remote     string   // its name; "" without one or with Local
	Address    string   // the remote's
	OnHost     bool     // the host has the team
	Member     string   // name of the member whose device this is
	Recovery   string   // the recovery key of a new team, a secret to be shown once; "" without
	Wrote      []string // a line for each file, ref and setting
	Warnings   []string // what did not work, each with what to do
}

func (r *InitReport) wrote(format string, args ...any) {
	r.Wrote = append(r.Wrote, fmt.Sprintf(format, args...))
}

func (r *InitReport) warn(format string, args ...any) {
	r.Warnings = append(r.Warnings, fmt.Sprintf(format, args...))
}

// setup is one run of Init.
type setup struct {
	InitOptions
	repo    *Repository
	home    *Home
	device  *Device
	objects *objectStore
	remote  *remote       // nil with Local, and where there is none
	roster  *remote       // where the roster is: remote, or another repository
	key     *Invitation   // of whoever joins with one
	joining bool          // the device may be one that the team does not know yet
	enters  *RepositoryID // this repository, if it is to enter a team that is elsewhere
	report  *InitReport
}

// Init makes the clone a writer of the team that the repository or its remote names, or starts a team where neither does.
// It may be run again: what is right already stays.
func Init(ctx context.Context, repo *Repository, home *Home, o InitOptions) (*InitReport, error) {
	if repo.Root == "" {
		return nil, errors.New("this is a bare repository, where nobody works: run `knoot init` in a clone of it")
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	s := &setup{InitOptions: o, repo: repo, home: home, report: &InitReport{}}
	if err := s.run(ctx); err != nil {
		return nil, err
	}
	if s.enters != nil {
		if err := s.enterTeam(ctx); err != nil {
			return nil, err
		}
	}
	return s.report, nil
}

// run makes the clone one of the team's.
func (s *setup) run(ctx context.Context) error {
	var err error
	if s.device, err = s.home.MakeDevice(); err != nil {
		return err
	}
	if s.objects, err = openObjects(ctx, s.repo, false); err != nil {
		return err
	}
	defer s.objects.close()
	settings, err := s.chooseRemote(ctx)
	if err != nil {
		return err
	}
	reached := s.lookAtRemote(ctx)
	roster, err := s.findTeam(ctx, settings, reached)
	if refused := refusedRoster(""); errors.As(err, &refused) {
		// `knoot trust --roster`, which the sentence names, takes the clone's lock, as only a writer can.
		if werr := s.writer(); werr != nil {
			return werr
		}
	}
	if err != nil {
		return err
	}
	if settings == nil {
		settings = &Settings{Team: roster.Team, Repository: s.report.Repository, Roster: s.Roster, Relay: s.Relay, RelayKey: s.RelayKey}
		if err := s.writeSettings(settings); err != nil {
			return err
		}
	}
	s.report.Team, s.report.Repository = settings.Team, settings.Repository
	if s.Relay != "" && (settings.Relay != s.Relay || settings.RelayKey != s.RelayKey) {
		if err := s.nameRelay(settings.Team); err != nil {
			return err
		}
	}
	known, err := s.home.Known()
	if err != nil {
		return err
	}
	// Only a person may let a commit lead elsewhere: Init does not adopt what was changed.
	changes := slices.DeleteFunc(pinsOf(known, s.repo.CommonDir, settings, s.report.Address), func(p PinChange) bool {
		return p.Setting == "remote" && s.Local
	})
	if len(changes) > 0 {
		return &ErrPinned{changes}
	}
	if err := s.home.pin(s.repo.CommonDir, settings, s.report.Address); err != nil {
		return err
	}
	if err := s.home.rememberHead(settings.Team, roster); err != nil {
		return err
	}
	if err := s.writer(); err != nil {
		return err
	}
	if err := s.exclude(); err != nil {
		return err
	}
	return s.configure(ctx)
}

// enterTeam makes the repository one of a team that is elsewhere, which an admin does.
func (s *setup) enterTeam(ctx context.Context) error {
	c, err := OpenClone(ctx, s.repo, s.home)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Lock(ctx); err != nil {
		return err
	}
	id := *s.enters
	_, err = c.ChangeRoster(ctx, SyncOptions{Ask: true}, func(change *RosterChange) error {
		if change.Before().Repositories[id] {
			return nil
		}
		return change.AddRepository(id)
	})
	if err != nil {
		return fmt.Errorf("%s is written, and this repository is not in the team yet, so nothing is shared: %w", SettingsFile, err)
	}
	s.report.wrote("the roster at %s: this repository", redact(s.Roster))
	return nil
}

// chooseRemote returns the settings that count, nil where there are none yet.
func (s *setup) chooseRemote(ctx context.Context) (*Settings, error) {
	if s.Local {
		if err := setLocalOnly(ctx, s.repo); err != nil {
			return nil, err
		}
		s.report.wrote("git configuration: %s = true, so nothing is ever pushed or fetched here", localOnlyKey)
	}
	settings, _, remote, err := findSettings(ctx, s.repo)
	s.remote = remote
	if errors.Is(err, ErrNotInitialised) {
		settings, err = nil, nil
	}
	if err == nil && settings != nil && settings.Remote != "" {
		s.remote, err = findRemote(ctx, s.repo, settings.Remote)
	}
	if err == nil && s.remote != nil {
		s.report.Remote = s.remote.String()
		s.report.Address, err = s.remote.address(ctx, s.repo)
	}
	if err != nil {
		return nil, err
	}
	named := &Settings{Roster: s.Roster}
	if settings != nil {
		named = settings
	}
	s.roster, err = rosterRemoteOf(s.remote, named)
	return settings, err
}

// lookAtRemote fetches what the remote has of a team, before one is started here. It says whether it was reached.
func (s *setup) lookAtRemote(ctx context.Context) bool {
	if s.remote == nil {
		return false
	}
	s.Progress(fmt.Sprintf("Looking for a team at %s (%s). Written there, all of it sealed: refs/knoot/team, refs/knoot/memory, refs/knoot/audit.", s.remote, s.report.Address))
	if err := openHost(s.repo, s.remote, gitForeground).fetch(ctx, s.objects, false); err != nil {
		s.report.warn("What is written stays here for now: %v", err)
		return false
	}
	if s.roster.inbox != s.remote.inbox {
		s.Progress(fmt.Sprintf("Looking for the team's roster at %s.", s.roster))
		if err := openHost(s.repo, s.roster, gitForeground).fetchFolders(ctx, s.objects, "team"); err != nil {
			s.report.warn("What is written stays here for now: %v", err)
			return false
		}
	}
	return true
}

// findTeam returns the roster of the team that this clone belongs to from now on, accepted under refs/knoot.
func (s *setup) findTeam(ctx context.Context, settings *Settings, reached bool) (*Roster, error) {
	refs := openRefs(s.repo)
	tip, err := refs.read(ctx, rosterRef)
	if err != nil {
		return nil, err
	}
	hosted := Hash("")
	if reached {
		if hosted, err = refs.read(ctx, s.roster.inbox+"team/roster"); err != nil {
			return nil, err
		}
		s.report.OnHost = hosted != ""
	}
	if s.key != nil && hosted != "" { // before anything that this host shows is taken over
		roster, err := s.readTeam(ctx, hosted, settings)
		if err != nil {
			return nil, fmt.Errorf("the team at %s cannot be joined: %w", s.roster, err)
		}
		if err := s.key.usable(roster, Now()); err != nil && roster.Devices[s.device.ID] == nil {
			return nil, err
		}
	}
	switch {
	case tip == "" && hosted != "":
		roster, err := s.readTeam(ctx, hosted, settings)
		if err != nil {
			return nil, fmt.Errorf("the team at %s cannot be joined: %w", s.roster, err)
		}
		if roster.Devices[s.device.ID] == nil && !s.joining {
			return nil, fmt.Errorf("%s has the team %s, and this device is not in it: run `knoot join`, or `knoot join KEY` with a key that an admin made for you", s.roster, roster.Team)
		}
		if err := refs.create(ctx, rosterRef, hosted); err != nil {
			return nil, err
		}
		s.report.wrote("%s: the team, as %s has it", rosterRef, s.roster)
		if !s.joining { // then asking the team tells
			s.probe(ctx)
		}
		return s.joined(roster, settings)
	case tip != "":
		roster, err := s.readTeam(ctx, tip, settings)
		if err != nil {
			return nil, err
		}
		if err := s.offer(ctx, tip, hosted, reached); err != nil {
			return nil, err
		}
		return s.joined(roster, settings)
	case settings != nil && !reached:
		where := "there is no remote to ask"
		if s.remote != nil {
			where = fmt.Sprintf("the remote %s (%s) was not reached", s.remote, s.report.Address)
		}
		return nil, fmt.Errorf("%s names the team %s, which is not in this clone, and %s: run `knoot init` again when it is", SettingsFile, settings.Team, where)
	case settings != nil:
		return nil, fmt.Errorf("%s names the team %s, which the remote %s (%s) does not have: it is where that team was started, so ask whoever added the file to run `knoot sync` there, or name the right remote with `git config knoot.remote NAME`", SettingsFile, settings.Team, s.remote, s.report.Address)
	}
	if s.joining || s.Roster != "" {
		where := "there is no remote to ask"
		if s.remote != nil {
			where = fmt.Sprintf("%s has none", s.roster)
		}
		return nil, fmt.Errorf("there is no team here to join: %s names none, and %s", SettingsFile, where)
	}
	return s.start(ctx, reached)
}

func (s *setup) readTeam(ctx context.Context, tip Hash, settings *Settings) (*Roster, error) {
	chain, err := readRosterChain(ctx, s.objects, tip)
	if err != nil {
		return nil, err
	}
	if len(chain) == 0 {
		return nil, errChain
	}
	team := teamOf(chain[0])
	if s.key != nil && s.key.Team != team {
		return nil, s.key.otherTeam(team)
	}
	if settings != nil && settings.Team != team {
		return nil, fmt.Errorf("%s names the team %s, and the roster is that of %s", SettingsFile, settings.Team, team)
	}
	roster, err := VerifyRoster(team, chain)
	if err != nil {
		return nil, err
	}
	known, err := s.home.Known()
	if err != nil {
		return nil, err
	}
	if pin := known.Teams[team.String()]; pin.Head != "" && !roster.Has(pin.HeadSeq, pin.Head) {
		return nil, refusedRoster(notForward(s.roster, roster, pin))
	}
	return roster, nil
}

// refusedRoster says that the host's roster does not go on from the one that this machine remembers.
type refusedRoster string

func (r refusedRoster) Error() string { return string(r) }

// probe tells a person early that this host, or their right to write to it, keeps their entries here. Starting a team needs
// none: the team itself is what the host takes or refuses.
func (s *setup) probe(ctx context.Context) {
	left, err := openHost(s.repo, s.remote, gitForeground).probe(ctx, s.objects)
	switch {
	case err != nil:
		s.report.warn("What is written stays here for now: %v", err)
	case left != "":
		s.report.warn("%s lets nobody delete refs, so %s stays there from trying; it is empty", s.remote, left)
	}
}

// joined fills in what the roster says of the repository and of this device's member.
func (s *setup) joined(roster *Roster, settings *Settings) (*Roster, error) {
	switch {
	case settings == nil && s.Roster != "":
		s.enters = &RepositoryID{}
		drawRandom(s.enters[:])
		s.report.Repository = *s.enters
	case settings == nil:
		if len(roster.Repositories) != 1 {
			return nil, fmt.Errorf("the team %s has %d repositories, and %s does not say which this is: get that file from a colleague", roster.Team, len(roster.Repositories), SettingsFile)
		}
		for id := range roster.Repositories {
			s.report.Repository = id
		}
	}
	device := roster.Devices[s.device.ID]
	if device == nil {
		return roster, nil // it opens nothing yet
	}
	keys, err := roster.OpenEpochs(s.device)
	if err == nil {
		err = roster.ReadNames(keys)
	}
	if err != nil {
		return nil, err
	}
	s.report.Member = roster.Members[device.Member].Name
	return roster, nil
}

// start makes a team of this person and this device, and offers it to the remote. Of two first inits at once the remote
// takes one; the other joins that.
func (s *setup) start(ctx context.Context, reached bool) (*Roster, error) {
	founding := Founding{Name: s.Name, Address: s.Address, Label: s.Label, Now: Now(), Random: rand.Reader}
	drawRandom(founding.Repository[:])
	team, commit, err := Found(s.device, founding)
	if err != nil {
		return nil, err
	}
	roster, err := VerifyRoster(team, []RosterCommit{commit})
	if err != nil {
		return nil, err
	}
	tip, err := writeRosterCommit(ctx, s.objects, "", commit, founding.Now)
	if err != nil {
		return nil, err
	}
	var recovery *Invitation
	if s.InitOptions.Recovery {
		if recovery, roster, tip, err = s.addRecovery(ctx, roster, tip); err != nil {
			return nil, err
		}
	}
	refs := openRefs(s.repo)
	if reached {
		err := s.pushRoster(ctx, tip)
		var refused *SyncFailure
		switch {
		case errors.As(err, &refused) && refused.Kind == SyncBehind:
			if !s.lookAtRemote(ctx) {
				return nil, err
			}
			return s.findTeam(ctx, nil, true)
		case err != nil:
			s.report.warn("The team is not on %s yet: %v", s.remote, err)
		default:
			s.report.OnHost = true
		}
	}
	if err := refs.create(ctx, rosterRef, tip); err != nil {
		return nil, err
	}
	s.report.Started = true
	s.report.Repository = founding.Repository
	s.report.wrote("%s: the team %s, with you and this device in it", rosterRef, team)
	if recovery != nil {
		s.report.Recovery = recovery.Key()
	}
	return s.joined(roster, &Settings{})
}

// addRecovery puts the roster's second entry on genesis: a second device of the founder's, whose keys are kept on paper, since the
// founder's lost laptop would else be the end of the team.
func (s *setup) addRecovery(ctx context.Context, genesis *Roster, tip Hash) (*Invitation, *Roster, Hash, error) {
	change, err := newRosterChange(genesis, s.device, genesis.Time, nil)
	if err != nil {
		return nil, nil, "", err
	}
	recovery, err := change.AddRecovery()
	if err != nil {
		return nil, nil, "", err
	}
	commit, after, err := change.build()
	if err != nil {
		return nil, nil, "", err
	}
	tip, err = writeRosterCommit(ctx, s.objects, tip, *commit, after.Time)
	return recovery, after, tip, err
}

// writeSettings writes .knoot.toml, or its private form.
func (s *setup) writeSettings(settings *Settings) error {
	path := filepath.Join(s.repo.Root, SettingsFile)
	mode := os.FileMode(0o644)
	if s.Private {
		path, mode = filepath.Join(s.repo.CommonDir, "knoot", privateSettings), 0o600
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return fmt.Errorf("cannot write the settings: %w", err)
		}
	}
	if err := createFile(path, settings.Text(), mode); err != nil {
		return fmt.Errorf("cannot write the settings: %w", err)
	}
	s.report.wrote("%s: which team and repository this is", path)
	return nil
}

func (s *setup) writer() error {
	_, moved, err := readWriter(s.repo.CommonDir, s.device.ID)
	if err == nil && !moved {
		return nil
	}
	if err != nil && !errors.Is(err, errNoWriter) {
		return err
	}
	id, err := drawWriter(s.repo.CommonDir, s.device.ID)
	if err != nil {
		return err
	}
	s.report.wrote("%s: this clone writes as %s", writerPath(s.repo.CommonDir), id)
	return nil
}

const excludeLine = "/.knoot/"

// exclude keeps the folder of sandboxed agents' drafts out of the person's `git status`.
func (s *setup) exclude() error {
	path := filepath.Join(s.repo.CommonDir, "info", "exclude")
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot read %s: %w", path, err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.TrimSpace(line) == excludeLine {
			return nil
		}
	}
	if len(text) > 0 && !bytes.HasSuffix(text, []byte("\n")) {
		text = append(text, '\n')
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	if err := ReplaceFile(path, append(text, excludeLine+"\n"...), 0o644); err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	s.report.wrote("%s: %s is ignored", path, excludeLine)
	return nil
}

// offer brings the team to a remote that lacks it, or takes over what the remote has more of.
func (s *setup) offer(ctx context.Context, tip, hosted Hash, reached bool) error {
	if !reached || hosted != "" {
		return nil // the daemon and `knoot sync` take over what is newer there
	}
	if err := s.pushRoster(ctx, tip); err != nil {
		s.report.warn("The team is not on %s yet: %v", s.remote, err)
		return nil
	}
	s.report.OnHost = true
	return nil
}

// configure lets a plain `git fetch` bring the team's memory, and keeps knoot's refs out of `git log --decorate`.
func (s *setup) configure(ctx context.Context) error {
	if s.remote != nil {
		changed, warning, err := s.remote.ensureFetchLines(ctx, s.repo)
		if err != nil {
			return err
		}
		if warning != "" {
			s.report.warn("%s", warning)
		}
		if changed {
			for _, line := range s.remote.fetchLines() {
				s.report.wrote("git configuration: remote.%s.fetch = %s", s.remote, line)
			}
		}
	}
	hidden, err := hideDecoration(ctx, s.repo, rosterRef)
	if err != nil {
		return err
	}
	if hidden {
		s.report.wrote("git configuration: log.excludeDecoration, so that `git log --decorate` does not show knoot's refs")
	}
	return nil
}

// pushRoster offers genesis to the remote, which takes it only if it has no roster: SyncBehind where it has.
func (s *setup) pushRoster(ctx context.Context, tip Hash) error {
	results, err := openHost(s.repo, s.roster, gitForeground).push(ctx, refPush{Name: rosterRef, Tip: tip, CreateOnly: true})
	if err != nil {
		return err
	}
	if results[0].Failure != nil {
		return results[0].Failure
	}
	return confirm(ctx, openRefs(s.repo), s.roster.inbox+"team/roster", tip)
}

// localOnlyKey is the clone's git setting after `init --local`.
const localOnlyKey = "knoot.local"

// findRemote is chooseRemote for a clone that may be told to use none; nil where there is none.
func findRemote(ctx context.Context, repo *Repository, configured string) (*remote, error) {
	r, err := chooseRemote(ctx, repo, configured)
	if errors.Is(err, ErrNoRemote) {
		return nil, nil
	}
	return r, err
}

func setLocalOnly(ctx context.Context, repo *Repository) error {
	_, err := repo.git().output(ctx, "config", "--local", localOnlyKey, "true")
	return err
}

func unsetLocalOnly(ctx context.Context, repo *Repository) error {
	_, err := repo.git().output(ctx, "config", "--local", "--unset-all", localOnlyKey)
	var failed *gitError
	if errors.As(err, &failed) && failed.exit == 5 {
		return nil // it was not set
	}
	return err
}
