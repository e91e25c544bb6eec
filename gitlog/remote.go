package gitlog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// ErrNoRemote: nothing says where the log goes, so that it stays on this machine.
var ErrNoRemote = errors.New("this repository has no remote, so nothing leaves this machine: `git remote add origin ADDRESS`, then `knoot init`")

// remote is the one place that a clone's log is synced with.
type remote struct {
	name   string // of the git remote; "" where an address stands in its place
	target string // what git is given: the name or the address
	inbox  string // the namespace it is fetched into, with a slash at its end
}

// chooseRemote finds the remote: `knoot.remote` of git's configuration, else configured (`remote` of .knoot.toml, "" if none),
// else `upstream`, else the default branch's. The first two may be an address too. ErrNoRemote if there is none, and
// sentences for a name that this clone has not and for a choice that nothing decides.
func chooseRemote(ctx context.Context, repo *Repository, configured string) (*remote, error) {
	config, err := readRemoteConfig(ctx, repo)
	if err != nil {
		return nil, err
	}
	if config.local {
		return nil, ErrNoRemote
	}
	if chosen := config.knootRemote; chosen != "" {
		if r := config.named(chosen); r != nil {
			return r, nil
		}
		return nil, fmt.Errorf("git's setting knoot.remote is %q, and this clone has no such remote: `git remote add %[1]s ADDRESS`, or `git config --unset knoot.remote`", chosen)
	}
	if configured != "" {
		// A commit wrote this: it must not get git to run a remote helper, which can be any program.
		if strings.Contains(configured, "::") || strings.HasPrefix(configured, "-") {
			return nil, fmt.Errorf(".knoot.toml names the remote %q, which knoot does not follow: name a remote or a plain address", configured)
		}
		if r := config.named(configured); r != nil {
			return r, nil
		}
		return nil, fmt.Errorf(".knoot.toml names the remote %q, which this clone has not: `git remote add %[1]s ADDRESS`, or choose another for this clone with `git config knoot.remote NAME`", configured)
	}
	switch {
	case len(config.remotes) == 0:
		return nil, ErrNoRemote
	case slices.Contains(config.remotes, "upstream"):
		return config.named("upstream"), nil
	case len(config.remotes) == 1:
		return config.named(config.remotes[0]), nil
	}
	for _, branch := range defaultBranches(ctx, repo) {
		if r := config.branchRemotes[branch]; slices.Contains(config.remotes, r) {
			return config.named(r), nil
		}
	}
	if slices.Contains(config.remotes, "origin") {
		return config.named("origin"), nil
	}
	return nil, fmt.Errorf("nothing says which of the remotes %s the log goes to: `git config knoot.remote NAME`", strings.Join(config.remotes, ", "))
}

// defaultBranches guesses the repository's default branch, best first.
func defaultBranches(ctx context.Context, repo *Repository) []string {
	var branches []string
	g := git{dir: repo.GitDir, gitDir: repo.GitDir}
	if head, err := g.output(ctx, "symbolic-ref", "--quiet", "refs/remotes/origin/HEAD"); err == nil {
		branches = append(branches, strings.TrimPrefix(head, "refs/remotes/origin/"))
	}
	branches = append(branches, "main", "master")
	if head, err := g.output(ctx, "symbolic-ref", "--quiet", "HEAD"); err == nil {
		branches = append(branches, strings.TrimPrefix(head, "refs/heads/"))
	}
	return branches
}

// remoteConfig is what git's configuration says about remotes.
type remoteConfig struct {
	remotes       []string            // names, in the order of the configuration
	fetch         map[string][]string // a remote's fetch lines
	branchRemotes map[string]string   // a branch's remote
	knootRemote   string
	local         bool // init was told to use no remote
}

func readRemoteConfig(ctx context.Context, repo *Repository) (*remoteConfig, error) {
	c := &remoteConfig{fetch: map[string][]string{}, branchRemotes: map[string]string{}}
	out, err := repo.git().output(ctx, "config", "-z", "--get-regexp", `^(remote\..*\.(url|fetch)|branch\..*\.remote|knoot\.remote|knoot\.local)$`)
	var failed *gitError
	if errors.As(err, &failed) && failed.exit == 1 {
		return c, nil // none is set
	}
	if err != nil {
		return nil, err
	}
	for record := range strings.SplitSeq(out, "\x00") {
		key, value, _ := strings.Cut(record, "\n")
		section, rest, _ := strings.Cut(key, ".")
		dot := strings.LastIndex(rest, ".")
		switch {
		case key == "knoot.remote":
			c.knootRemote = value
		case key == localOnlyKey:
			c.local = value == "true"
		case dot < 0:
		case section == "branch":
			c.branchRemotes[rest[:dot]] = value
		case rest[dot:] == ".fetch":
			c.fetch[rest[:dot]] = append(c.fetch[rest[:dot]], value)
		case rest[dot:] == ".url" && !slices.Contains(c.remotes, rest[:dot]):
			c.remotes = append(c.remotes, rest[:dot])
		}
	}
	return c, nil
}

// named returns the remote for a name or an address; nil for a name that there is none of.
func (c *remoteConfig) named(chosen string) *remote {
	if slices.Contains(c.remotes, chosen) {
		return &remote{name: chosen, target: chosen, inbox: inboxOf(chosen)}
	}
	if !strings.ContainsAny(chosen, ":/") {
		return nil
	}
	sum := sha256.Sum256([]byte(chosen))
	return &remote{target: chosen, inbox: inboxOf("address-" + hex.EncodeToString(sum[:8]))}
}

// String names the remote for people.
func (r *remote) String() string {
	if r.name != "" {
		return r.name
	}
	return redact(r.target)
}

// address is where git goes for the remote, insteadOf applied, without a password.
func (r *remote) address(ctx context.Context, repo *Repository) (string, error) {
	out, err := repo.git().output(ctx, "ls-remote", "--get-url", "--", r.target)
	return redact(out), err
}

// fetchLines are what `knoot init` adds to the remote, so that a plain `git fetch` brings the team's memory. Their targets are
// the inbox: nothing that a fetch does with it, pruning and rewinding included, touches what this device wrote or accepted.
func (r *remote) fetchLines() []string {
	return []string{
		"+" + ownRefs + "team/*:" + r.inbox + "team/*",
		"+" + ownRefs + "memory/*:" + r.inbox + "memory/*",
	}
}

// Every fetch line of ours, whatever remote it was written for.
var ourFetchLine = regexp.MustCompile(`^\+refs/knoot/(team|memory)/\*:refs/knoot-remote/.+/(team|memory)/\*$`)

// ensureFetchLines adds the two lines to the remote's configuration, and mends what `git remote rename` left: the lines come
// along, their targets do not, and neither does what was fetched. Doing it again changes nothing. warning is a sentence about
// a line of the person's own that endangers unpushed entries; "" is the rule. A remote without any fetch line gets none,
// since `git fetch` would then bring nothing but ours.
func (r *remote) ensureFetchLines(ctx context.Context, repo *Repository) (changed bool, warning string, err error) {
	if r.name == "" {
		return false, "", nil
	}
	config, err := readRemoteConfig(ctx, repo)
	if err != nil {
		return false, "", err
	}
	have, want := config.fetch[r.name], r.fetchLines()
	others := 0
	for _, line := range have {
		if !ourFetchLine.MatchString(line) {
			others++
			if fetchesIntoOurs(line) {
				warning = fmt.Sprintf("the fetch line %q of the remote %s overwrites and prunes entries that were not pushed yet: take it out with `git config --fixed-value --unset-all remote.%[2]s.fetch %[1]q`", line, r.name)
			}
			continue
		}
		if slices.Contains(want, line) {
			continue
		}
		if err := r.unsetLine(ctx, repo, line); err != nil {
			return changed, warning, err
		}
		changed = true
		_, target, _ := strings.Cut(line, ":")
		if err := dropForsakenInbox(ctx, repo, config, target); err != nil {
			return changed, warning, err
		}
	}
	if others == 0 {
		return changed, warning, nil
	}
	for _, line := range want {
		if slices.Contains(have, line) {
			continue
		}
		if _, err := repo.git().output(ctx, "config", "--local", "--add", "remote."+r.name+".fetch", line); err != nil {
			return changed, warning, err
		}
		changed = true
	}
	return changed, warning, nil
}

// mendFetchLines mends what `git remote rename` left, and adds nothing where the person took the lines out.
func (r *remote) mendFetchLines(ctx context.Context, repo *Repository) error {
	config, err := readRemoteConfig(ctx, repo)
	if err != nil {
		return err
	}
	want := r.fetchLines()
	for _, line := range config.fetch[r.name] {
		if ourFetchLine.MatchString(line) && !slices.Contains(want, line) {
			_, _, err := r.ensureFetchLines(ctx, repo)
			return err
		}
	}
	return nil
}

// removeFetchLines takes our lines out of every remote, whatever their targets.
func removeFetchLines(ctx context.Context, repo *Repository) error {
	config, err := readRemoteConfig(ctx, repo)
	if err != nil {
		return err
	}
	for name, lines := range config.fetch {
		for _, line := range lines {
			if !ourFetchLine.MatchString(line) {
				continue
			}
			if err := (&remote{name: name}).unsetLine(ctx, repo, line); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *remote) unsetLine(ctx context.Context, repo *Repository, line string) error {
	_, err := repo.git().output(ctx, "config", "--local", "--fixed-value", "--unset-all", "remote."+r.name+".fetch", line)
	var failed *gitError
	if errors.As(err, &failed) && failed.exit == 5 {
		return nil // it is gone already, or it is in a file that is not this clone's
	}
	return err
}

// dropForsakenInbox deletes what was fetched for a remote that goes by another name now. It is fetched again under that name.
func dropForsakenInbox(ctx context.Context, repo *Repository, config *remoteConfig, target string) error {
	name := strings.TrimPrefix(target, inboxRefs)
	name = name[:strings.LastIndex(strings.TrimSuffix(name, "/*"), "/")]
	if slices.Contains(config.remotes, name) {
		return nil
	}
	refs := openRefs(repo)
	found, _, err := refs.list(ctx, inboxOf(name))
	if err != nil {
		return err
	}
	for _, f := range found {
		// Another remote's name may begin with the forsaken one's.
		if _, ours := parseRefPlace(strings.TrimPrefix(f.Name, inboxOf(name))); ours {
			if err := refs.remove(ctx, f.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// fetchesIntoOurs says whether a fetch line writes into a namespace that this device writes.
func fetchesIntoOurs(line string) bool {
	_, target, ok := strings.Cut(line, ":")
	if !ok || strings.HasPrefix(line, "^") {
		return false
	}
	before, _, glob := strings.Cut(target, "*")
	for _, ours := range []string{ownRefs, keptRefs} {
		if strings.HasPrefix(target, ours) || glob && strings.HasPrefix(ours, before) {
			return true
		}
	}
	return false
}

// decorated are the namespaces that `git log --decorate` must not show.
var decorated = []string{"refs/knoot", "refs/knoot-kept", "refs/knoot-remote"}

// hideDecoration sets log.excludeDecoration, if `git log --decorate` shows the given ref without it. Where git's own filter
// hides it nothing is set, as the setting would switch that filter off and bring refs/pull and others into the person's log.
func hideDecoration(ctx context.Context, repo *Repository, shown string) (changed bool, err error) {
	out, err := repo.git().output(ctx, "log", "-1", "--no-walk", "--decorate=full", "--format=%D", shown)
	if err != nil || !slices.Contains(strings.Split(out, ", "), shown) {
		return false, err
	}
	for _, namespace := range decorated {
		if _, err := repo.git().output(ctx, "config", "--local", "--add", "log.excludeDecoration", namespace); err != nil {
			return false, err
		}
	}
	return true, nil
}

// showDecoration takes out what hideDecoration set.
func showDecoration(ctx context.Context, repo *Repository) error {
	for _, namespace := range decorated {
		_, err := repo.git().output(ctx, "config", "--local", "--fixed-value", "--unset-all", "log.excludeDecoration", namespace)
		var failed *gitError
		if err != nil && (!errors.As(err, &failed) || failed.exit != 5) { // 5: it was not set
			return err
		}
	}
	return nil
}
