package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/peterbourgon/ff/v3/ffcli"

	"knoot.dev/knoot/arbiter/wire"
	"knoot.dev/knoot/daemon"
	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/gitlog"
	"knoot.dev/knoot/hook"
)

// allowed are knoot's commands that an agent may run without asking, with --allow.
var allowed = []string{"remember", "recall", "why", "who", "plan", "cache", "confirm", "wait", "msg", "inbox", "status"}

// claudeSettings is what knoot adds to Claude Code's settings.
func claudeSettings(allow bool) agentSettings {
	s := agentSettings{groups: hook.ClaudeGroups()}
	if allow {
		s.allow = allowRules()
	}
	return s
}

func allowRules() []string {
	var rules []string
	for _, name := range allowed {
		rules = append(rules, "Bash(knoot "+name+":*)")
	}
	return rules
}

type initFlags struct {
	user, private, local, allow, uninstall, remote, noRecovery *bool
	roster, relay, relayKey                                    *string
}

func (c *console) initCommand() *ffcli.Command {
	flags := newFlags("init")
	f := initFlags{
		user:       flags.Bool("user", false, "put the hooks into your own settings (~/.claude), for all your repositories"),
		private:    flags.Bool("private", false, "leave the work tree untouched: nothing to commit, nobody else is concerned"),
		local:      flags.Bool("local", false, "never push: what is remembered stays in this clone"),
		allow:      flags.Bool("allow", false, "let Claude Code run knoot's own commands (remember, recall, ...) without asking"),
		uninstall:  flags.Bool("uninstall", false, "take everything out of this clone again; needs a person"),
		roster:     flags.String("roster", "", "make this repository one of a team whose roster is in another, at this `URL`; for admins"),
		noRecovery: flags.Bool("no-recovery", false, "a new team: make no recovery key"),
		relay:      flags.String("relay", "", "use the relay at this `address`, HOST:PORT: it gives the team's machines one order of claims"),
		relayKey:   flags.String("relay-key", "", "the relay's `key`, sha256:..., as it prints it; without one it needs a public authority's certificate"),
		remote:     flags.Bool("remote", false, "with --uninstall: delete what this clone wrote on the remote, too"),
	}
	return command(manual{
		name: "init", usage: "[--user|--private] [--local] [--allow] [--no-recovery] [--roster URL] [--relay ADDRESS [--relay-key KEY]] | --uninstall [--remote]",
		short: "Set knoot up in this repository, or in another clone of it",
		long: `It writes .knoot.toml and adds hooks to .claude/settings.json, both to be committed;
all else in that file stays as it is. It may be run again at any time. It syncs with
the remote that git's configuration names as knoot.remote, else upstream, else that
of the default branch.

Where nobody has begun a team yet, you begin one, and are shown a recovery key, once:
with it "knoot join KEY" lets you back in when all your devices are lost. A device that
is not in the team that is there is let in by "knoot join".

Claude Code reads a repository's hooks only when it is started at its root. Whoever
starts it in folders below uses --user.`,
		example: "knoot init\nknoot init --private --allow\nknoot init --uninstall",
	}, flags, func(ctx context.Context, args []string) error {
		switch {
		case len(args) > 0:
			return misusef("`knoot init` takes no argument: change to the repository first")
		case *f.remote && !*f.uninstall:
			return misusef("--remote goes with --uninstall; the remote to sync with is set by `git config knoot.remote NAME`")
		case *f.local && *f.roster != "":
			return misusef("--roster names a team elsewhere, and --local never asks anybody: one or the other")
		case *f.relayKey != "" && *f.relay == "":
			return misusef("--relay-key goes with --relay, the relay's address")
		case *f.relay != "" && *f.uninstall:
			return misusef("--uninstall takes everything out, and names no relay")
		case *f.uninstall && (*f.private || *f.local || *f.allow || *f.noRecovery || *f.roster != ""):
			return misusef("--uninstall takes everything out, however it was put in; only --remote and --user go with it")
		}
		if err := checkRelay(*f.relay, *f.relayKey); err != nil {
			return err
		}
		if c.idle() {
			return nil
		}
		if err := c.checkGit(ctx); err != nil {
			return err
		}
		repo, err := c.repository(ctx)
		if err != nil {
			return err
		}
		if repo.Root == "" {
			return errors.New("this is a bare repository, where nobody works: run `knoot init` in a clone of it")
		}
		home, err := gitlog.OpenHome(c.getenv)
		if err != nil {
			return err
		}
		if *f.uninstall {
			return c.uninstall(ctx, repo, home, *f.user, *f.remote)
		}
		if c.ephemeral() {
			return errors.New("this clone is thrown away soon (KNOOT_EPHEMERAL, or CI), so nothing is set up in it: run `knoot init` in a clone that lasts, and commit .knoot.toml")
		}
		return c.setUp(ctx, repo, home, f)
	})
}

// checkRelay refuses what cannot be a relay's address and key.
func checkRelay(address, key string) error {
	if address == "" {
		return nil
	}
	if host, port, err := net.SplitHostPort(address); err != nil || host == "" || port == "" {
		return misusef("%q is no relay's address: write HOST:PORT, such as relay.example.com:7420", address)
	}
	if key == "" {
		return nil
	}
	if _, err := wire.ParsePin(key); err != nil {
		return misusef("%v", err)
	}
	return nil
}

// checkGit refuses a git that is too old for what knoot asks of it.
func (c *console) checkGit(ctx context.Context) error {
	version, err := gitlog.GitVersion(ctx)
	if err != nil {
		return err
	}
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err == nil && (major < 2 || major == 2 && minor < 34) {
		return fmt.Errorf("git is %s here, and knoot needs 2.34 or newer: update git", version)
	}
	return nil
}

func (c *console) setUp(ctx context.Context, repo *gitlog.Repository, home *gitlog.Home, f initFlags) error {
	who, err := c.whoAmI(ctx, repo)
	if err != nil {
		return err
	}
	report, err := gitlog.Init(ctx, repo, home, gitlog.InitOptions{
		Local: *f.local, Private: *f.private, Name: who.name, Address: who.address, Label: who.label,
		Recovery: !*f.noRecovery, Roster: *f.roster, Relay: *f.relay, RelayKey: *f.relayKey,
		Progress: func(line string) { fmt.Fprintln(c.stderr, line) },
	})
	if err != nil {
		return err
	}
	if report.OnHost && !report.Started {
		// What the team knows is there from the start, not after some minutes.
		if err := c.perform(ctx, "sync", daemon.SyncRequest{FetchOnly: true}, nil); err != nil {
			report.Warnings = append(report.Warnings, fmt.Sprintf("What the team knows could not be fetched: %v.", err))
		}
	}
	wrote, herr := c.addHooks(repo, f, report.Wrote)
	fmt.Fprintf(c.stdout, "knoot is set up in %s.\n", repo.Root)
	section(c, "Wrote", wrote, "nothing: all was there")
	section(c, "Shared", c.shared(report), "")
	c.toMend(report.Warnings)
	if report.Recovery != "" {
		fmt.Fprintln(c.stdout)
		c.printRecoveryKey(report.Recovery)
	}
	var next []string
	if toCommit := c.toCommit(ctx, repo, *f.user || *f.private, *f.private); len(toCommit) > 0 {
		next = append(next, fmt.Sprintf("git add %s && git commit -m \"Share what agents learn\"", strings.Join(toCommit, " ")))
	}
	next = append(next, "start Claude Code in "+repo.Root+", then `knoot status`")
	fmt.Fprintf(c.stdout, "\n%s\n  %s\n", c.bold("Next"), strings.Join(next, "\n  "))
	fmt.Fprintln(c.stdout, "\nPause with `knoot off`. Undo with `knoot init --uninstall`.")
	return herr
}

// person is who works in a clone, by git's configuration, and on which machine.
type person struct{ name, address, label string }

func (c *console) whoAmI(ctx context.Context, repo *gitlog.Repository) (p person, err error) {
	if p.name, err = gitConfig(ctx, repo, "user.name"); err != nil {
		return p, err
	}
	if p.name == "" {
		return p, errors.New("git does not know your name, under which your team sees what you say: run `git config --global user.name \"Your Name\"`")
	}
	if p.address, err = gitConfig(ctx, repo, "user.email"); err != nil {
		return p, err
	}
	p.label, _ = os.Hostname() // a name for people; without one the device has its id
	return p, nil
}

// addHooks adds the hooks of Claude Code, and returns what was written with a line for that. An error is for the end: all else is
// done.
func (c *console) addHooks(repo *gitlog.Repository, f initFlags, wrote []string) (_ []string, err error) {
	ours := *f.user || *f.private
	path := filepath.Join(repo.Root, ".claude", "settings.json")
	if ours {
		if path, err = c.claudeUserSettings(); err != nil {
			return wrote, err
		}
	}
	settings := claudeSettings(*f.allow)
	changed, herr := changeFile(path, settings.add)
	if changed {
		what := "hooks for Claude Code"
		if *f.allow {
			what += ", and leave to run knoot's commands"
		}
		wrote = append(wrote, c.short(repo, path)+": "+what)
	}

	for i := range wrote {
		wrote[i] = strings.ReplaceAll(wrote[i], repo.Root+string(filepath.Separator), "")
	}
	return wrote, herr
}

// toMend prints what did not work, where anything did not.
func (c *console) toMend(warnings []string) {
	if len(warnings) > 0 {
		section(c, "To mend", warnings, "")
	}
}

// section prints a heading and its lines, wrapped.
func section(c *console, heading string, lines []string, none string) {
	if len(lines) == 0 {
		lines = []string{none}
	}
	fmt.Fprintf(c.stdout, "\n%s\n", c.bold(heading))
	for _, line := range lines {
		fmt.Fprintln(c.stdout, "  "+strings.Join(wrap(line, helpWidth-4), "\n    "))
	}
}

// shared says what leaves the machine, and who can read it.
func (c *console) shared(r *gitlog.InitReport) []string {
	owner := plain(r.Member)
	if r.Remote == "" {
		return []string{"Nothing leaves this clone: there is no remote to sync with, or --local was said."}
	}
	team := "the team that was there"
	if r.Started {
		team = "a new team, of which you are the owner"
	}
	return []string{
		fmt.Sprintf("With the members of %s (you are %s), through %s (%s), under refs/knoot/.", team, owner, plain(r.Remote), plain(r.Address)),
		"Facts, cached answers and plans; what sessions did: paths, branches, the first words of what they were asked. Never the content of files.",
		"All of it sealed: the git host sees sizes and times, and can read nothing.",
	}
}

// toCommit lists what init left in the work tree to be committed.
func (c *console) toCommit(ctx context.Context, repo *gitlog.Repository, ours, private bool) []string {
	var files []string
	if !private {
		files = append(files, gitlog.SettingsFile)
	}
	if !ours {
		files = append(files, ".claude/settings.json")
	}
	return slices.DeleteFunc(files, func(file string) bool {
		out, err := git(ctx, repo, "status", "--porcelain", "--", file)
		return err != nil || out == ""
	})
}

// short writes a path as people would: from the worktree's root, or with ~.
func (c *console) short(repo *gitlog.Repository, path string) string {
	if rel, err := filepath.Rel(repo.Root, path); err == nil && !strings.HasPrefix(rel, "..") {
		return rel
	}
	if rel, err := filepath.Rel(c.getenv("HOME"), path); err == nil && !strings.HasPrefix(rel, "..") {
		return "~/" + rel
	}
	return path
}

// claudeUserSettings is the person's own settings file of Claude Code.
func (c *console) claudeUserSettings() (string, error) {
	if dir := c.getenv("CLAUDE_CONFIG_DIR"); dir != "" {
		return filepath.Join(dir, "settings.json"), nil
	}
	home := c.getenv("HOME")
	if home == "" {
		return "", errors.New("there is no home directory that holds Claude Code's settings: set HOME or CLAUDE_CONFIG_DIR")
	}
	return filepath.Join(home, ".claude", "settings.json"), nil
}

// uninstall takes out of a clone what init put there.
func (c *console) uninstall(ctx context.Context, repo *gitlog.Repository, home *gitlog.Home, user, remote bool) error {
	if err := c.needPerson(); err != nil {
		return err
	}
	if err := c.freeClone(ctx, repo); err != nil {
		return err
	}
	report := &gitlog.UninstallReport{}
	if _, err := os.Stat(filepath.Join(repo.CommonDir, "knoot")); err == nil {
		if report, err = gitlog.Uninstall(ctx, repo, home, remote); err != nil {
			return err
		}
	}
	removed, left := report.Removed, report.Left
	settings := claudeSettings(false)
	takeOut := func(path string) {
		changed, err := changeFile(path, func(doc []byte) ([]byte, error) { return settings.remove(doc, allowRules()) })
		if err != nil {
			left = append(left, err.Error())
		}
		if changed {
			removed = append(removed, c.short(repo, path)+": knoot's hooks and permissions")
			_ = os.Remove(filepath.Dir(path)) // goes only when nothing else is in it
		}
	}
	takeOut(filepath.Join(repo.Root, ".claude", "settings.json"))
	if mine, err := c.claudeUserSettings(); err == nil {
		known, err := home.Known()
		if err != nil {
			return err
		}
		text, _ := os.ReadFile(mine) // absent or not, takeOut says what is wrong
		others := len(known.Clones)
		if others == 0 || user {
			takeOut(mine)
		} else if strings.Contains(string(text), quoteJSON(hook.ClaudeCommand)) {
			left = append(left, fmt.Sprintf("The hooks in %s serve your other clones, of which there are %d; `knoot init --uninstall --user` takes them out.", c.short(repo, mine), others))
		}
	}
	for i := range removed {
		removed[i] = strings.ReplaceAll(removed[i], repo.Root+string(filepath.Separator), "")
	}
	section(c, "Removed", removed, "nothing: knoot was not set up here")
	if report.Bundle != "" {
		section(c, "Kept", []string{report.Bundle + " has what was nowhere else, sealed."}, "")
	}
	if len(left) > 0 {
		section(c, "Left", left, "")
	}
	return nil
}

// freeClone ends the daemon where it has the clone open. The next session's hook starts it again.
func (c *console) freeClone(ctx context.Context, repo *gitlog.Repository) error {
	state, err := daemon.Status(ctx, c.getenv)
	if errors.Is(err, socket.ErrAbsent) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, clone := range state.Clones {
		if clone.Common == repo.CommonDir {
			_, err := daemon.Stop(ctx, c.getenv)
			return err
		}
	}
	return nil
}

// git runs a reading git command in a worktree and returns what it prints, without the last newline.
func git(ctx context.Context, repo *gitlog.Repository, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", append([]string{"-C", repo.Root}, args...)...).Output()
	return strings.TrimSuffix(string(out), "\n"), err
}

// gitConfig returns a value of git's configuration, "" where it is not set.
func gitConfig(ctx context.Context, repo *gitlog.Repository, key string) (string, error) {
	out, err := git(ctx, repo, "config", "--get", key)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("cannot read git's configuration (%s): %w", key, err)
	}
	return out, nil
}
