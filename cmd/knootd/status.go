package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/peterbourgon/ff/v3/ffcli"

	"knoot.dev/knoot/arbiter/wire"
	"knoot.dev/knoot/daemon"
	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/gitlog"
)

// check is one thing that status looks at. Its keys are stable.
type check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	Fix    string `json:"fix"` // what to do, "" when OK

	needed bool // knoot is not on without it
}

// statusReport is what status --json prints.
type statusReport struct {
	On     bool    `json:"on"`
	Checks []check `json:"checks"`
}

func (c *console) statusCommand() *ffcli.Command {
	flags := newFlags("status")
	asJSON := jsonFlag(flags)
	return command(manual{
		name: "status", usage: "[--json]",
		short: "Say whether knoot works here, and how to mend what does not",
		long: `The verdict is the first line. A hook counts as working once it ran. Exits 1 when
knoot is not on.

--json prints {on, checks: [{name, ok, detail, fix}]}.`,
		example: "knoot status",
	}, flags, func(ctx context.Context, args []string) error {
		if err := noArguments("status", args); err != nil {
			return err
		}
		report := c.examine(ctx)
		if *asJSON {
			if err := c.printJSON(report); err != nil {
				return err
			}
		} else {
			c.printStatus(report)
		}
		if !report.On {
			return errSaid
		}
		return nil
	})
}

func (c *console) printStatus(r statusReport) {
	var missing, bad []check
	width := 0
	for _, k := range r.Checks {
		width = max(width, len(k.Name))
		switch {
		case k.OK:
		case k.needed:
			missing = append(missing, k)
		default:
			bad = append(bad, k)
		}
	}
	switch {
	case r.On && len(bad) == 0:
		fmt.Fprintln(c.stdout, c.bold("knoot is on."))
	case r.On:
		fmt.Fprintln(c.stdout, c.bold(fmt.Sprintf("knoot is on, with %s to look at.", plural(len(bad), "thing"))))
	default:
		fmt.Fprintln(c.stdout, c.bold("knoot is not on: "+plain(missing[0].Detail)+"."))
	}
	fmt.Fprintln(c.stdout)
	for _, k := range r.Checks {
		mark := "ok"
		if !k.OK {
			mark = "!!"
		}
		lines := wrap(plain(k.Detail), helpWidth-width-8)
		fmt.Fprintf(c.stdout, "  %s  %-*s  %s\n", mark, width, k.Name, strings.Join(lines, "\n"+strings.Repeat(" ", width+8)))
		if !k.OK && k.Fix != "" {
			fmt.Fprintf(c.stdout, "%s→ %s\n", strings.Repeat(" ", width+8), strings.Join(wrap(plain(k.Fix), helpWidth-width-10), "\n"+strings.Repeat(" ", width+10)))
		}
	}
}

// examination gathers checks.
type examination struct {
	*console
	checks []check
}

func (e *examination) good(name, format string, args ...any) {
	e.checks = append(e.checks, check{Name: name, OK: true, Detail: fmt.Sprintf(format, args...)})
}

// missing is a failure without which knoot is not on.
func (e *examination) missing(name, fix, format string, args ...any) {
	e.checks = append(e.checks, check{Name: name, Detail: fmt.Sprintf(format, args...), Fix: fix, needed: true})
}

// bad is a failure that knoot works with.
func (e *examination) bad(name, fix, format string, args ...any) {
	e.checks = append(e.checks, check{Name: name, Detail: fmt.Sprintf(format, args...), Fix: fix})
}

func (c *console) examine(ctx context.Context) statusReport {
	e := &examination{console: c}
	e.look(ctx)
	report := statusReport{On: true, Checks: e.checks}
	for _, k := range e.checks {
		if k.needed {
			report.On = false
		}
	}
	return report
}

func (e *examination) look(ctx context.Context) {
	if e.ciWithoutKnoot() {
		e.missing("CI", "set KNOOT=on where it should work in CI", "CI is set, where knoot does nothing")
	}
	if e.getenv("KNOOT") == "off" {
		e.missing("KNOOT", "unset it", "KNOOT=off is set")
	}
	if version, err := gitlog.GitVersion(ctx); err != nil {
		e.missing("git", "install git 2.34 or newer", "%v", err)
		return
	} else if err := e.checkGit(ctx); err != nil {
		e.missing("git", "update git", "%v", err)
	} else {
		e.good("git", "%s", version)
	}
	home, err := gitlog.OpenHome(e.getenv)
	if err != nil {
		e.missing("home", "set HOME, or KNOOT_HOME to a folder of your own", "%v", err)
		return
	}
	e.lookAtConfig(home)
	state := e.lookAtDaemon(ctx, home)
	repo, err := e.repository(ctx)
	if err != nil {
		e.missing("repository", "change into a repository where knoot is set up", "%v", err)
		return
	}
	e.lookAtPause(ctx)
	clone := e.lookAtClone(ctx, repo, home)
	e.lookAtHooks(ctx, repo, home)
	e.lookAtSpool(ctx, repo)
	if clone != nil {
		e.lookAtSync(ctx, clone, state)
		e.lookAtRelay(clone, state)
		e.lookAtDrafts(clone, home)
		_ = clone.Close()
	}
	e.lookAtFailures(home)
}

func (e *examination) lookAtConfig(home *gitlog.Home) {
	path := filepath.Join(home.Dir, "config.toml")
	config, err := daemon.LoadConfig(home.Dir)
	switch {
	case err != nil:
		e.bad("config.toml", "mend the file: until then the defaults count, and hooks start no daemon", "%v", err)
	case len(config.Unknown) > 0:
		e.bad("config.toml", "remove the keys from "+path+", or update knoot", "keys that this version does not know: %s", strings.Join(config.Unknown, ", "))
	}
}

// lookAtDaemon returns what the daemon says of itself, where one runs.
func (e *examination) lookAtDaemon(ctx context.Context, home *gitlog.Home) *daemon.State {
	asking, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	state, err := daemon.Status(asking, e.getenv)
	config, cerr := daemon.LoadConfig(home.Dir)
	switch {
	case err == nil && state.Version != socket.Version:
		e.good("daemon", "runs (process %d), as version %s; this is %s", state.Process, state.Version, socket.Version)
	case err == nil:
		e.good("daemon", "runs (process %d), version %s", state.Process, state.Version)
	case !errors.Is(err, socket.ErrAbsent):
		e.missing("daemon", "`knoot daemon --stop`, then start it again", "%v", err)
	case cerr == nil && config.Daemon.Autostart:
		e.good("daemon", "does not run; the first hook of a session starts it")
	default:
		e.missing("daemon", "`knoot daemon --install`, or `knoot daemon` in a terminal", "no daemon runs, and hooks may not start one")
	}
	if state != nil && state.Uncoordinated != "" {
		e.bad("agents", "hooks and claims work all the same; nothing else to do if no agent uses knoot's tools", "%s", state.Uncoordinated)
	}
	if state != nil && cerr == nil && config.Autopilot.Enabled {
		if state.Unpiloted != "" {
			e.bad("autopilot", "set KNOOT_AUTOPILOT_KEY in a terminal and start the agents there with `knoot agent start`, or set [autopilot] enabled = false", "%s", state.Unpiloted)
		} else {
			e.good("autopilot", "is on: what agents in terminals say last in a turn goes to %s", config.Autopilot.Endpoint)
		}
	}
	return state
}

func (e *examination) lookAtPause(ctx context.Context) {
	for _, all := range []bool{false, true} {
		path, where, err := e.pausePlace(ctx, all)
		if err != nil {
			continue // said by the other checks
		}
		if paused, until := readPause(path, e.now()); paused {
			fix, end := "`knoot on`", ""
			if all {
				fix = "`knoot on --all`"
			}
			if !until.IsZero() {
				end = " until " + clock(until, e.now())
			}
			e.missing("pause", fix, "it is paused in %s%s", where, end)
		}
	}
}

// lookAtClone examines what init set up. It returns the clone where it opens.
func (e *examination) lookAtClone(ctx context.Context, repo *gitlog.Repository, home *gitlog.Home) *gitlog.Clone {
	clone, err := gitlog.OpenClone(ctx, repo, home) // without its lock, which the daemon may be about to take
	switch {
	case errors.Is(err, gitlog.ErrNotInitialised):
		e.missing("set up", "`knoot init`", "this repository is not set up for knoot")
		return nil
	case errors.Is(err, gitlog.ErrNoDevice):
		e.missing("keys", "`knoot init`", "this machine has no keys yet")
		return nil
	case err != nil:
		e.missing("set up", "see the sentence", "%v", err)
		return nil
	}
	settings := clone.Settings()
	e.good("set up", "team %.8s, by %s", settings.Team, plain(settings.Source))
	e.good("keys", "device %.8s in %s", clone.Device().ID, home.Dir)
	e.lookAtTeam(ctx, clone)
	if clone.SettingsDiffer() {
		e.bad("checkout", "nothing to do, unless the change is yours: it counts once it is on the default branch",
			"%s of this checkout is not that of the default branch, and is ignored", gitlog.SettingsFile)
	}
	if len(settings.Unknown) > 0 {
		e.bad("settings", "remove them from "+gitlog.SettingsFile+", or update knoot", "keys that this version does not know: %s", strings.Join(settings.Unknown, ", "))
	}
	for _, problem := range settings.Problems {
		e.bad("settings", "mend it in "+gitlog.SettingsFile, "%s", problem)
	}
	changes, err := clone.PinChanges(ctx)
	if err != nil {
		e.missing("trust", "see the sentence", "%v", err)
	}
	for _, change := range changes {
		e.missing("trust", "if that is right: `knoot trust`", "%s: sync is off", change)
	}
	if err := clone.LookAtHost(ctx); err != nil {
		e.bad("roster", "`knoot sync` says more", "what was fetched of the team cannot be read: %v", err)
	}
	for _, p := range clone.Problems() {
		what := fmt.Sprintf("%s: %s", p.Ref, p.What)
		if p.Seq != 0 {
			what = fmt.Sprintf("%s, segment %d: %s", p.Ref, p.Seq, p.What)
		}
		if strings.Contains(p.Ref, "/team/") {
			e.missing("roster", "ask a colleague which head `knoot status` shows them, and whoever runs the remote what happened to it; if that state is right: `knoot trust --roster HASH`", "%s", what)
		} else {
			e.bad("log", "what is whole still counts; `knoot sync` may bring a sound copy", "%s", what)
		}
	}
	return clone
}

// lookAtTeam tells who this device is in the team, and what an admin has to answer.
func (e *examination) lookAtTeam(ctx context.Context, clone *gitlog.Clone) {
	roster, device := clone.Roster(), clone.Device().ID
	switch {
	case roster == nil:
		e.missing("team", "`knoot sync`", "the team is not in this clone")
		return
	case roster.Devices[device] == nil && roster.DeviceKey(device) != nil:
		e.missing("team", "to come back, move device.key, device.age and device.local away from "+e.keysFolder()+" and run `knoot join`", "this device was removed from the team")
		return
	case roster.Devices[device] == nil:
		waiting, err := clone.Waiting(ctx)
		switch {
		case err != nil:
			e.missing("team", "see the sentence", "%v", err)
		case waiting != nil:
			e.missing("team", fmt.Sprintf("ask an admin to read the words with you, and then: `knoot member add EMAIL --request %.8s`; `knoot sync` brings the answer", device),
				"this device waits for an admin of the team to let it in, by the words %s", waiting.Fingerprint())
		default:
			e.missing("team", "`knoot join`", "this device is not in the team")
		}
		return
	}
	e.good("team", "you are %s, %s of %s; roster entry %d, %s", plain(clone.Member()), roleOf(roster, device), plural(len(roster.Members), "member"), roster.Head.Seq, roster.Head.Hash)
	if roster.Newer != nil {
		e.missing("roster", "update knoot", "%v", roster.Newer)
	}
	if roleOf(roster, device) != "admin" {
		return
	}
	requests, dropped, err := clone.Requests(ctx)
	if err != nil {
		e.bad("requests", "see the sentence", "%v", err)
	}
	for _, q := range requests {
		who, address := "somebody", "EMAIL"
		if q.Name != "" {
			who = q.Name
		}
		if q.Address != "" {
			who, address = who+" <"+q.Address+">", q.Address
		}
		e.bad("request", fmt.Sprintf("if the words are the same there: `knoot member add %s --request %.8s`", address, q.Device),
			"%s asks to join with the device %.8s %s, until %s, words %s", who, q.Device, q.Label, day(q.Expires()), q.Fingerprint())
	}
	if dropped > 0 {
		e.bad("requests", "answer those that are shown", "%d more ask to join", dropped)
	}
	now := gitlog.MillisOf(e.now())
	for _, m := range sortedMembers(roster) {
		for _, d := range roster.DevicesOf(m.ID) {
			switch stateOf(d, now) {
			case "invited":
				e.good("invitation", "%s <%s> has not used the key yet, which holds until %s", m.Name, m.Address, day(d.Expires))
			case "expired":
				e.bad("invitation", fmt.Sprintf("`knoot member rm --device %.8s`, and `knoot member add %s` for a new one", d.ID, m.Address), "%s <%s> did not use the key in time", m.Name, m.Address)
			}
		}
	}
	if differences := areaDifferences(clone.Settings().Areas, roster); len(differences) > 0 {
		e.bad("areas", "`knoot areas` shows them, `knoot areas --apply` enters them", "%s proposes other areas than count", gitlog.SettingsFile)
	}
}

func (e *examination) keysFolder() string {
	home, err := gitlog.OpenHome(e.getenv)
	if err != nil {
		return "~/.knoot"
	}
	return home.Dir
}

func roleOf(roster *gitlog.Roster, device gitlog.DeviceID) string {
	if m := roster.MemberOf(device); m != nil && m.Admin {
		return "admin"
	}
	return "one"
}

// lookAtHooks says for each agent where its hooks are, and whether they run.
func (e *examination) lookAtHooks(ctx context.Context, repo *gitlog.Repository, home *gitlog.Home) {
	var agents []*installation
	for _, a := range installations {
		if places := e.places(ctx, repo, a); len(places) > 0 {
			agents = append(agents, a)
			e.good("hooks", "%s: in %s", a.title, strings.Join(places, " and "))
		}
	}
	if len(agents) == 0 {
		e.missing("hooks", "`knoot init`", "no hooks are installed for any agent")
		return
	}
	history, err := daemon.ReadHistory(home, e.now())
	if err != nil {
		e.missing("hook ran", "`knoot daemon --stop`; the next hook starts a daemon anew", "%v", err)
		return
	}
	last := func(a *installation) time.Time {
		return history.LastHook[daemon.HookPlace{Agent: a.name, Root: repo.Root}]
	}
	ran := func(a *installation) bool { return !last(a).IsZero() }
	if !slices.ContainsFunc(agents, ran) {
		var titles []string
		for _, a := range agents {
			titles = append(titles, a.title)
		}
		e.missing("hook ran", "start "+orList(titles)+" in "+repo.Root+" and say something to it", "no hook has run here yet")
	}
	for _, a := range agents {
		if ran(a) {
			e.good("hook ran", "last hook %s (%s)", e.secondsAgo(last(a)), a.name)
		}
	}
	for _, a := range agents {
		if a.examine != nil {
			a.examine(e, ctx, repo, a, ran(a))
		}
	}
}

// spoolPatience is for how long something may wait for a hook without a word: agents think.
const spoolPatience = 15 * time.Minute

// lookAtSpool tells what agents in a sandbox left to be sent, and what of it could not be.
func (e *examination) lookAtSpool(ctx context.Context, repo *gitlog.Repository) {
	if repo.Root == "" {
		return
	}
	found, err := daemon.ReadSpooling(repo.Root)
	if err != nil {
		e.bad("spool", "see the sentence", "what agents left in .knoot to be sent cannot be read: %v", err)
		return
	}
	if found.Waiting > 0 {
		if tracked, err := git(ctx, repo, "ls-files", "--", ":(top,icase).knoot"); err == nil && tracked != "" {
			e.bad("spool", "`git rm -r --cached .knoot`", "files in .knoot are in git's index, so that they are not taken for what agents here left to be sent")
		}
		age := e.now().Sub(found.Oldest.Time())
		if age > spoolPatience {
			e.bad("spool", "start an agent here, or say something to one: its hooks send it", "%s wait in .knoot to be sent, the oldest since %s", plural(found.Waiting, "request"), e.secondsAgo(found.Oldest.Time()))
		} else {
			e.good("spool", "%s in .knoot wait for the next hook to be sent", plural(found.Waiting, "request"))
		}
	}
	if n := len(found.Refused); n > 0 {
		e.bad("spool", "read it and remove it: .knoot/refused", "%s of agents could not be sent: %s", plural(n, "request"), found.Refused[n-1])
	}
}

// openAt is how the daemon has a clone open; nil where it has not.
func openAt(clone *gitlog.Clone, state *daemon.State) *daemon.CloneState {
	if state == nil {
		return nil
	}
	for i := range state.Clones {
		if state.Clones[i].Common == clone.Repo.CommonDir {
			return &state.Clones[i]
		}
	}
	return nil
}

// lookAtRelay tells how the clone stands with its relay, where it names one.
func (e *examination) lookAtRelay(clone *gitlog.Clone, state *daemon.State) {
	address := clone.Settings().Relay
	if address == "" {
		return
	}
	open := openAt(clone, state)
	switch {
	case open == nil:
		e.good("relay", "%s, once the daemon has this clone open", address)
	case open.Relay == nil:
		e.bad("relay", "`knoot trust` shows what changed and takes it over; the daemon's log says what else is wrong", "%s is not used: it is not what was trusted here, or its key is none", address)
	case open.Relay.Open:
		e.good("relay", "%s, by %s", address, open.Relay.Transport)
	case open.Relay.Problem != "":
		e.bad("relay", relayRemedy(address, open.Relay.Code), "%s is not connected, so that each machine decides for itself: %s", address, open.Relay.Problem)
	default:
		e.bad("relay", "look again in a moment", "%s is not connected yet", address)
	}
}

// relayRemedy is what helps where a relay lets nobody in.
func relayRemedy(address, code string) string {
	switch code {
	case wire.OperatorToken.String():
		return fmt.Sprintf("`knoot login --relay %s --token TOKEN` with the token of whoever runs the relay; it is asked for once a team", address)
	case wire.TeamNotServed.String():
		return "whoever runs the relay names the teams that it serves, with --team and the `team` of .knoot.toml"
	case wire.NotAdmitted.String(), wire.Removed.String():
		return "`knoot sync` says whether this device is in the team, and `knoot join` asks to be let in"
	}
	return "it is tried again by itself"
}

// lookAtSync tells how the clone stands with its remote, as far as the daemon knows.
func (e *examination) lookAtSync(ctx context.Context, clone *gitlog.Clone, state *daemon.State) {
	remote := clone.Remote()
	if remote == "" {
		e.good("sync", "no remote: what is remembered stays in this clone")
		return
	}
	open := openAt(clone, state)
	with := "with " + remote
	if address, err := clone.Address(ctx); err == nil {
		with += " (" + address + ")"
	}
	switch {
	case open == nil && e.locked(ctx, clone) != nil:
		e.bad("lock", "end that process, or work with its KNOOT_HOME: what is said here cannot be kept meanwhile", "%v", e.locked(ctx, clone))
	case open == nil:
		e.good("sync", "%s, once the daemon has this clone open, or by `knoot sync`", with)
	case open.ReadOnly != "":
		e.bad("lock", "end that process, or work with its KNOOT_HOME: what is said here cannot be kept meanwhile", "%s", open.ReadOnly)
	case open.Sync.Problem != "":
		e.bad("sync", "`knoot sync` tries again and says more", "%s: %s", with, open.Sync.Problem)
	default:
		last := "nothing confirmed since the daemon has it open"
		if at, err := time.Parse(time.RFC3339, open.Sync.Confirmed); err == nil {
			last = "confirmed " + e.secondsAgo(at)
		}
		if open.Sync.Waiting {
			last += ", with more to push"
		}
		e.good("sync", "%s, %s", with, last)
	}
}

// locked says which other process writes the clone, where no daemon of ours does.
func (e *examination) locked(ctx context.Context, clone *gitlog.Clone) error {
	if err := clone.Lock(ctx); errors.Is(err, gitlog.ErrLocked) {
		return err
	}
	return nil
}

// lookAtDrafts counts the facts of agents that wait for their person.
func (e *examination) lookAtDrafts(clone *gitlog.Clone, home *gitlog.Home) {
	drafts, err := daemon.Workplace{Home: home, Clone: clone}.Drafts()
	switch {
	case err != nil:
		e.bad("review", "see the sentence", "%v", err)
	case len(drafts) > 0:
		e.good("review", "%s of agents for you to look at: `knoot recall` shows, `knoot confirm NAME` shares, `knoot forget NAME` drops", plural(len(drafts), "fact"))
	}
}

// lookAtFailures counts the hooks that failed open in the last day.
func (e *examination) lookAtFailures(home *gitlog.Home) {
	failures, err := readFailures(home)
	if err != nil {
		e.bad("failures", "see the sentence", "%v", err)
		return
	}
	n := 0
	var last daemon.Failure
	for _, f := range failures {
		if e.now().Sub(f.At) < 24*time.Hour && f.Code != "daemon-started" {
			n++
			last = f
		}
	}
	if n > 0 {
		e.bad("failures", "`knoot stats` counts them by reason", "%s failed open within a day, the last one %s (%s); agents noticed nothing", plural(n, "hook"), e.secondsAgo(last.At), last.Code)
	}
}
