package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/peterbourgon/ff/v3/ffcli"

	"knoot.dev/knoot/daemon"
	"knoot.dev/knoot/gitlog"
)

func (c *console) roomCommand() *ffcli.Command {
	return group(manual{
		name: "room", short: "Make rooms that only some members can read, and say which",
		long: `A room is a group of members with a key of its own. Which paths are a room's is said by areas (` + "`knoot areas`" + `); all else
is in general, which holds every member. Admins are in every room.`,
		example: "knoot room add payments",
	}, c.roomAddCommand(), c.roomGrantCommand(), c.roomRevokeCommand(), c.roomListCommand(), c.roomRemoveCommand())
}

func (c *console) roomAddCommand() *ffcli.Command {
	return command(manual{
		name: "room add", usage: "ROOM [EMAIL]...", short: "Make a room of yourself, the admins and these members",
		long:    "Nothing is sealed to it before an area is its own. Needs a person.",
		example: "knoot room add payments sam@example.com",
	}, newFlags("room add"), func(ctx context.Context, args []string) error {
		if len(args) == 0 {
			return misusef("name the room: `knoot room add ROOM [EMAIL]...`")
		}
		answer, err := c.changeTeam(ctx, daemon.TeamRequest{Do: "make_room", Room: args[0], Addresses: args[1:]})
		if err != nil || answer == nil {
			return err
		}
		fmt.Fprintf(c.stdout, "There is a room %s now. Its paths stand in %s under [areas]; `knoot areas --apply` enters them.\n", plain(args[0]), gitlog.SettingsFile)
		return nil
	})
}

// roomAndMember reads the arguments ROOM EMAIL.
func roomAndMember(name string, args []string) (r daemon.TeamRequest, err error) {
	if len(args) != 2 {
		return r, misusef("name the room and the member: `knoot %s ROOM EMAIL`", name)
	}
	return daemon.TeamRequest{Room: args[0], Address: args[1]}, checkAddress(args[1])
}

func (c *console) roomGrantCommand() *ffcli.Command {
	return command(manual{
		name: "room grant", usage: "ROOM EMAIL", short: "Let a member into a room",
		long:    "They can read all history of the room, not only what comes. Needs a person.",
		example: "knoot room grant payments ash@example.com",
	}, newFlags("room grant"), func(ctx context.Context, args []string) error {
		r, err := roomAndMember("room grant", args)
		if err != nil {
			return err
		}
		r.Do = "grant"
		answer, err := c.changeTeam(ctx, r)
		if err != nil || answer == nil {
			return err
		}
		fmt.Fprintf(c.stdout, "%s is in the room %s now.\n%s\n", plain(answer.Member), plain(r.Room), c.wrapped(readsHistory))
		return nil
	})
}

func (c *console) roomRevokeCommand() *ffcli.Command {
	flags := newFlags("room revoke")
	since := flags.String("since", "", "nothing that they wrote there since this `TIME` counts (15:04, a date, or an age like 2h)")
	return command(manual{
		name: "room revoke", usage: "ROOM EMAIL [--since TIME]", short: "Take a member out of a room",
		long: `They can read nothing that is written there from then on by whoever has seen it. What
they could read before they can read for ever. Needs a person.`,
		example: "knoot room revoke payments sam@example.com",
	}, flags, func(ctx context.Context, args []string) error {
		r, err := roomAndMember("room revoke", args)
		if err != nil {
			return err
		}
		r.Do = "revoke"
		if r.Since, err = c.sinceFlag(*since); err != nil {
			return err
		}
		answer, err := c.changeTeam(ctx, r)
		if err != nil || answer == nil {
			return err
		}
		fmt.Fprintf(c.stdout, "%s is out of the room %s. What is written there from now on is closed to their keys.\n", plain(answer.Member), plain(r.Room))
		return nil
	})
}

func (c *console) roomRemoveCommand() *ffcli.Command {
	return command(manual{
		name: "room rm", usage: "ROOM", short: "Take a room's areas away, and everybody but the admins out of it",
		long:    "What was written there stays sealed to it. Its paths are in general from then on, or in a wider area's room. Needs a person.",
		example: "knoot room rm payments",
	}, newFlags("room rm"), func(ctx context.Context, args []string) error {
		if len(args) != 1 {
			return misusef("name one room: `knoot room rm ROOM`")
		}
		answer, err := c.changeTeam(ctx, daemon.TeamRequest{Do: "remove_room", Room: args[0]})
		if err != nil || answer == nil {
			return err
		}
		fmt.Fprintf(c.stdout, "Nothing goes into the room %s any more.\n", plain(args[0]))
		return nil
	})
}

// roomRow is one of what room ls --json prints.
type roomRow struct {
	Name    string   `json:"name"`
	Members []string `json:"members"` // addresses
	Areas   []string `json:"areas"`   // prefixes
	Epoch   uint64   `json:"epoch"`   // number of its current key
}

func (c *console) roomListCommand() *ffcli.Command {
	flags := newFlags("room ls")
	asJSON := jsonFlag(flags)
	return command(manual{
		name: "room ls", usage: "[--json]", short: "List the rooms, who is in them, and their areas",
		long:    "--json prints [{name, members, areas, epoch}].",
		example: "knoot room ls",
	}, flags, func(ctx context.Context, args []string) error {
		if err := noArguments("room ls", args); err != nil {
			return err
		}
		clone, roster, err := c.openTeam(ctx)
		if err != nil {
			return err
		}
		defer clone.Close()
		rows := roomRows(roster)
		if *asJSON {
			return c.printJSON(rows)
		}
		for _, row := range rows {
			fmt.Fprintf(c.stdout, "%s\n  members  %s\n", c.bold(plain(row.Name)), orNone(strings.Join(row.Members, ", ")))
			areas := strings.Join(row.Areas, ", ")
			if row.Name == generalRoom {
				areas = "all that is in no other room's"
			}
			fmt.Fprintf(c.stdout, "  areas    %s\n", orNone(areas))
		}
		return nil
	})
}

// generalRoom is the name that a team's first room is given.
const generalRoom = "general"

func roomRows(roster *gitlog.Roster) []roomRow {
	var rooms []*gitlog.Room
	for _, room := range roster.Rooms {
		rooms = append(rooms, room)
	}
	slices.SortFunc(rooms, func(a, b *gitlog.Room) int {
		if (a.ID == roster.General) != (b.ID == roster.General) {
			if a.ID == roster.General {
				return -1
			}
			return 1
		}
		if order := strings.Compare(a.Name, b.Name); order != 0 {
			return order
		}
		return bytes.Compare(a.ID[:], b.ID[:])
	})
	rows := []roomRow{}
	for _, room := range rooms {
		row := roomRow{Name: roomName(room), Members: []string{}, Areas: []string{}, Epoch: room.Current().Number}
		for id := range room.Members {
			if m := roster.Members[id]; m != nil {
				row.Members = append(row.Members, m.Address)
			}
		}
		for _, area := range roster.Areas {
			if area.Room == room.ID {
				row.Areas = append(row.Areas, area.Prefix)
			}
		}
		slices.Sort(row.Members)
		slices.Sort(row.Areas)
		rows = append(rows, row)
	}
	return rows
}

// roomName is a room's name, or its id where this device cannot read that.
func roomName(room *gitlog.Room) string {
	if room.Name == "" {
		return room.ID.String()
	}
	return room.Name
}
