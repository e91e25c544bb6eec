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
	roster, relay, relayKey, agent                             *string
}

func (c *console) initCommand() *ffcli.Command {
	flags := newFlags("init")
	f := initFlags{
		user:       flags.Bool("user", false, "put the hooks into your own settings (such as ~/.claude), for all your repositories"),
		private:    flags.Bool("private", false, "leave the work tree untouched: nothing to commit, nobody else is concerned"),
		local:      flags.Bool("local", false, "never push: what is remembered stays in this clone"),
		allow:      flags.Bool("allow", false, "let Claude Code run knoot's own commands (remember, recall, ...) without asking"),
		uninstall:  flags.Bool("uninstall", false, "take everything out of this clone again; needs a person"),
		roster:     flags.String("roster", "", "make this repository one of a team whose roster is in another, at this `URL`; for admins"),
		noRecovery: flags.Bool("no-recovery", false, "a new team: make no recovery key"),
		relay:      flags.String("relay", "", "use the relay at this `address`, HOST:PORT: it gives the team's machines one order of claims"),
		relayKey:   flags.String("relay-key", "", "the relay's `key`, sha256:..., as it prints it; without one it needs a public authority's certificate"),
		agent:      flags.String("agent", "", "set up the agent `NAME`: "+strings.Join(agentNames(), ", ")+", or all"),
		remote:     flags.Bool("remote", false, "with --uninstall: delete what this clone wrote on the remote, too"),
	}
	return command(manual{
		name: "init", usage: "[--agent NAME] [--user|--private] [--local] [--allow] [--no-recovery] [--roster URL] [--relay ADDRESS [--relay-key KEY]] | --uninstall [--remote]",
		short: "Set knoot up in this repository, or in another clone of it",
		long: `It writes .knoot.toml and adds hooks to the settings of agents, to be committed; all
else in those files stays as it is. They are those of Claude Code (.claude/settings.json)
and, where their program is on PATH or their folder in the repository, of Codex
(.codex/hooks.json), Gemini CLI (.gemini/settings.json), Cursor (.cursor/hooks.json),
GitHub Copilot CLI (.github/hooks/knoot.json) and opencode (.opencode/plugins/knoot.ts).
--agent NAME sets up that one alone, --agent all each of them. It may be run again at any
time. It syncs with the remote that git's configuration names as knoot.remote, else
upstream, else that of the default branch.

Where nobody has begun a team yet, you begin one, and are shown a recovery key, once:
with it "knoot join KEY" lets you back in when all your devices are lost. A device that
is not in the team that is there is let in by "knoot join".

Claude Code reads a repository's hooks only when it is started at its root. Whoever
starts it in folders below uses --user. Codex runs a hook once you have trusted it,
with /hooks, and in linked worktrees has those of the main checkout.`,
		example: "knoot init\nknoot init --agent codex\nknoot init --private --allow\nknoot init --uninstall",
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
		case *f.agent != "" && *f.agent != "all" && !slices.Contains(agentNames(), *f.agent):
			return misusef("%q is no agent that this version knows: say all, %s", *f.agent, strings.Join(agentNames(), ", "))
		case *f.allow && *f.agent != "" && !slices.ContainsFunc(installations, func(a *installation) bool { return a.allows && (a.name == *f.agent || *f.agent == "all") }):
			return misusef("--allow is for Claude Code, whose settings list what it may run without asking")
		case *f.uninstall && (*f.private || *f.local || *f.allow || *f.noRecovery || *f.roster != "" || *f.agent != ""):
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
	agents := c.chosen(*f.agent, repo)
	wrote, herr := c.addHooks(ctx, repo, f, agents, report.Wrote)
	fmt.Fprintf(c.stdout, "knoot is set up in %s.\n", repo.Root)
	section(c, "Wrote", wrote, "nothing: all was there")
	section(c, "Shared", c.shared(report), "")
	c.toMend(report.Warnings)
	if report.Recovery != "" {
		fmt.Fprintln(c.stdout)
		c.printRecoveryKey(report.Recovery)
	}
	next := append(c.toCommit(ctx, repo, f, agents), toStart(repo, agents)...)
	c.next(next)
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

// toMend prints what did not work, where anything did not.
func (c *console) toMend(warnings []string) {
	if len(warnings) > 0 {
		section(c, "To mend", warnings, "")
	}
}

// next prints what to do now. Commands are not wrapped: they are copied.
func (c *console) next(lines []string) {
	fmt.Fprintf(c.stdout, "\n%s\n  %s\n", c.bold("Next"), strings.Join(lines, "\n  "))
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
	known, err := home.Known()
	if err != nil {
		return err
	}
	hooks, stay := c.removeHooks(ctx, repo, len(known.Clones), user)
	removed, left = append(removed, hooks...), append(left, stay...)
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
