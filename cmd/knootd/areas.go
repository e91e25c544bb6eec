package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/peterbourgon/ff/v3/ffcli"

	"knoot.dev/knoot/daemon"
	"knoot.dev/knoot/gitlog"
)

// areaRow is one of what areas --json prints.
type areaRow struct {
	Prefix  string   `json:"prefix"`
	Room    string   `json:"room"`
	Members []string `json:"members"` // addresses of who can read it
}

func (c *console) areasCommand() *ffcli.Command {
	flags := newFlags("areas")
	apply := flags.Bool("apply", false, "enter what .knoot.toml proposes in the roster: from then on it counts; for admins, needs a person")
	codeowners := flags.Bool("import-codeowners", false, "make a proposal of the CODEOWNERS file, and say what it could not express")
	write := flags.Bool("write", false, "with --import-codeowners: write the proposal to .knoot.toml")
	asJSON := jsonFlag(flags)
	return command(manual{
		name: "areas", usage: "[--json] | --import-codeowners [--write] | --apply",
		short: "Show which paths belong to which room, or change that",
		long: `An area is a path prefix, and what is said about paths in it can be read by the members
of its room alone. The longest prefix wins; what is in no area is in general, which
holds every member. Areas are proposed in .knoot.toml,

[areas] "src/payments" = "payments"

and count once an admin has entered them with --apply, since a commit must not decide
who can read what. What was written before stays in the room that it was written to.

--json prints [{prefix, room, members}].`,
		example: "knoot areas\nknoot areas --json",
	}, flags, func(ctx context.Context, args []string) error {
		if err := noArguments("areas", args); err != nil {
			return err
		}
		switch {
		case *write && !*codeowners:
			return misusef("--write goes with --import-codeowners")
		case *apply && (*codeowners || *asJSON), *codeowners && *asJSON:
			return misusef("--apply, --import-codeowners and --json are one or the other")
		case *codeowners:
			return c.importCodeowners(ctx, *write)
		case *apply:
			return c.applyAreas(ctx)
		}
		clone, roster, err := c.openTeam(ctx)
		if err != nil {
			return err
		}
		defer clone.Close()
		rows := areaRows(roster)
		if *asJSON {
			return c.printJSON(rows)
		}
		width := len(generalRoom)
		for _, row := range rows {
			width = max(width, len(row.Prefix))
		}
		for _, row := range rows {
			fmt.Fprintf(c.stdout, "%-*s  %s (%s)\n", width, plain(row.Prefix), c.bold(plain(row.Room)), plain(strings.Join(row.Members, ", ")))
		}
		fmt.Fprintf(c.stdout, "%-*s  %s (every member)\n", width, "all else", c.bold(generalRoom))
		if differences := areaDifferences(clone.Settings().Areas, roster); len(differences) > 0 {
			fmt.Fprintf(c.stdout, "\n%s proposes, which counts after `knoot areas --apply`:\n  %s\n", gitlog.SettingsFile, strings.Join(differences, "\n  "))
		}
		return nil
	})
}

func areaRows(roster *gitlog.Roster) []areaRow {
	rows := []areaRow{}
	for _, room := range roomRows(roster) {
		for _, prefix := range room.Areas {
			rows = append(rows, areaRow{Prefix: prefix, Room: room.Name, Members: room.Members})
		}
	}
	slices.SortFunc(rows, func(a, b areaRow) int { return strings.Compare(a.Prefix, b.Prefix) })
	return rows
}

// areaDifferences says what entering a proposal would change. One that is not there changes nothing.
func areaDifferences(proposed map[string]string, roster *gitlog.Roster) []string {
	if proposed == nil {
		return nil
	}
	now := map[string]string{}
	for _, row := range areaRows(roster) {
		now[gitlog.FoldPath(row.Prefix)] = row.Room
	}
	var lines []string
	for _, prefix := range sortedKeys(proposed) {
		room := proposed[prefix]
		was, there := now[gitlog.FoldPath(prefix)]
		delete(now, gitlog.FoldPath(prefix))
		switch {
		case !there:
			lines = append(lines, fmt.Sprintf("+ %s is %s", plain(prefix), ofRoom(room)))
		case was != room:
			lines = append(lines, fmt.Sprintf("~ %s is %s, no more %s", plain(prefix), ofRoom(room), ofRoom(was)))
		}
	}
	for _, prefix := range sortedKeys(now) {
		lines = append(lines, fmt.Sprintf("- %s is no more %s", plain(prefix), ofRoom(now[prefix])))
	}
	return lines
}

func ofRoom(room string) string { return plain(room) + "'s" }

func (c *console) applyAreas(ctx context.Context) error {
	if c.idle() {
		return nil
	}
	if err := c.needPerson(); err != nil {
		return err
	}
	clone, roster, err := c.openTeam(ctx)
	if err != nil {
		return err
	}
	settings, differs := clone.Settings(), clone.SettingsDiffer()
	differences := areaDifferences(settings.Areas, roster)
	if err := clone.Close(); err != nil {
		return err
	}
	if differs {
		fmt.Fprintln(c.stderr, c.wrapped(fmt.Sprintf("knoot: what counts is %s; this checkout's is another, and is ignored until it is there", plain(settings.Source))))
	}
	if settings.Areas == nil {
		return fmt.Errorf("%s proposes no areas: it has no table [areas]; an empty one takes all away", plain(settings.Source))
	}
	answer, err := c.changeTeam(ctx, daemon.TeamRequest{Do: "set_areas", Areas: settings.Areas})
	if err != nil || answer == nil {
		return err
	}
	if !answer.Changed {
		fmt.Fprintln(c.stdout, "Nothing to change: the roster has these areas.")
		return nil
	}
	fmt.Fprintln(c.stdout, "It counts from now on, in every clone that has synced:")
	for _, line := range differences {
		fmt.Fprintln(c.stdout, "  "+line)
	}
	fmt.Fprintln(c.stdout, "What was written before stays in the room that it was written to.")
	return nil
}

func (c *console) importCodeowners(ctx context.Context, write bool) error {
	repo, err := c.repository(ctx)
	if err != nil {
		return err
	}
	if repo.Root == "" {
		return errors.New("a bare repository has no files: run it in a clone")
	}
	text, place, err := readCodeowners(repo.Root)
	if err != nil {
		return err
	}
	areas, odd := areasOf(string(text))
	if write {
		if c.idle() {
			return nil
		}
		if err := c.writeAreas(ctx, repo, areas); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(c.stdout, "# %s would say, with --write:\n%s", gitlog.SettingsFile, strings.TrimLeft(withAreas("", areas), "\n"))
	}
	if len(odd) > 0 {
		fmt.Fprintf(c.stdout, "\nNot expressed, of %s:\n", place)
		for _, line := range odd {
			fmt.Fprintln(c.stdout, "  "+strings.Join(wrap(line, helpWidth-4), "\n    "))
		}
	}
	return nil
}

// writeAreas puts a division into the settings of the work tree, or into the private ones.
func (c *console) writeAreas(ctx context.Context, repo *gitlog.Repository, areas map[string]string) error {
	clone, roster, err := c.openTeam(ctx)
	if err != nil {
		return err
	}
	source := clone.Settings().Source
	lacking := map[string]bool{}
	for _, room := range areas {
		if room != generalRoom && roster.FindRoom(room) == nil {
			lacking[room] = true
		}
	}
	if err := clone.Close(); err != nil {
		return err
	}
	path := filepath.Join(repo.Root, gitlog.SettingsFile)
	if filepath.Dir(source) == filepath.Join(repo.CommonDir, "knoot") {
		path = source // of `init --private`
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("%s cannot be read in this checkout (%w): change to a branch that has it", gitlog.SettingsFile, err)
	}
	after := []byte(withAreas(string(text), areas))
	if settings, err := gitlog.ParseSettings(after); err != nil || len(settings.Areas) != len(areas) {
		return fmt.Errorf("%s has areas in another form than a table [areas]: take them out by hand, and try again", gitlog.SettingsFile)
	}
	changed, err := changeFile(path, func([]byte) ([]byte, error) { return after, nil })
	if err != nil {
		return err
	}
	if !changed {
		fmt.Fprintf(c.stdout, "%s says so already.\n", c.short(repo, path))
		return nil
	}
	fmt.Fprintf(c.stdout, "Wrote %s to %s.\n", plural(len(areas), "area"), c.short(repo, path))
	for _, room := range slices.Sorted(maps.Keys(lacking)) {
		fmt.Fprintf(c.stdout, "  knoot room add %s EMAIL...    # the team has no such room yet\n", plain(room))
	}
	fmt.Fprintln(c.stdout, "Look at it, commit it, and once it is on the default branch: `knoot areas --apply`.")
	return nil
}
