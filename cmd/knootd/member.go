package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/peterbourgon/ff/v3/ffcli"

	"knoot.dev/knoot/daemon"
	"knoot.dev/knoot/gitlog"
)

// readsHistory is what whoever lets somebody in has to know.
const readsHistory = "They can read all that was ever written there, not only what comes; for less, make a new room (`knoot room add`)."

func (c *console) memberCommand() *ffcli.Command {
	return group(manual{
		name: "member", short: "Let people and devices into the team, list them, take them out",
		example: "knoot member ls",
	}, c.memberAddCommand(), c.memberListCommand(), c.memberRemoveCommand())
}

func (c *console) memberAddCommand() *ffcli.Command {
	flags := newFlags("member add")
	r := daemon.TeamRequest{Do: "invite"}
	flags.StringVar(&r.Name, "name", "", "the `NAME` under which the team sees a new member; else the request's, or the address")
	flags.StringVar(&r.Label, "label", "", "a `LABEL` for the device that the key is for, such as \"work laptop\"")
	flags.StringVar(&r.Request, "request", "", "answer the request of the device with this `ID`, which `knoot status` shows")
	flags.BoolVar(&r.Admin, "admin", false, "let them change the team, too; of a member who is here already, only that")
	recovery := flags.Bool("recovery", false, "make a recovery key for yourself, to be kept on paper")
	asJSON := jsonFlag(flags)
	return command(manual{
		name: "member add", usage: "EMAIL [--request ID] [--name NAME] [--label LABEL] [--admin] | --recovery",
		short: "Let somebody into the team, or another device of theirs",
		long: `The best way is a request: they run "knoot join" in their clone, you compare the words
that it prints with those of "knoot status", and let them in with --request. No secret
is in flight.

Without --request it prints an invitation key, once, for "knoot join KEY". It holds for
7 days. Until it is used, whoever has it and a clone can read what is in the team's
rooms for everybody: send it on a way that you trust. Whoever is let in reads all history
of these rooms.

--recovery prints a key of your own, which lets you back in when all your devices are
lost. It does not end; "knoot member rm --device" ends it.

Needs a person. --json prints {key, expires}.`,
		example: "knoot member add sam@example.com --label \"work laptop\"",
	}, flags, func(ctx context.Context, args []string) error {
		switch {
		case *recovery && (len(args) > 0 || r.Request != "" || r.Name != "" || r.Label != "" || r.Admin):
			return misusef("--recovery makes a key of your own, and takes nothing but --json")
		case *recovery:
			r.Do = "recovery"
		case len(args) != 1:
			return misusef("name one person by their address: `knoot member add EMAIL`")
		default:
			if err := checkAddress(args[0]); err != nil {
				return err
			}
			r.Address = args[0]
		}
		if r.Request != "" {
			r.Do = "admit"
		}
		member, err := c.memberNow(ctx, r.Address)
		if err != nil {
			return err
		}
		if r.Do == "invite" && r.Admin && member != nil {
			r.Do = "name_admin"
		}
		if r.Name != "" && member != nil {
			return misusef("%s is in the team already, as %s: leave --name out to let another device of theirs in", member.Address, plain(member.Name))
		}
		answer, err := c.changeTeam(ctx, r)
		if err != nil || answer == nil {
			return err
		}
		if *asJSON {
			return c.printJSON(keyAnswer{answer.Key, jsonTime(answer.Expires)})
		}
		switch r.Do {
		case "recovery":
			c.printRecoveryKey(answer.Key)
			return nil
		case "name_admin":
			fmt.Fprintf(c.stdout, "%s may change the team now, and is in every room.\n%s\n", plain(answer.Member), c.wrapped(readsHistory))
			return nil
		case "admit":
			fmt.Fprintf(c.stdout, "%s is in the team now, with the device %.8s.\n%s\n", plain(answer.Member), answer.Device, c.wrapped(readsHistory))
			return nil
		}
		fmt.Fprintf(c.stdout, "An invitation for %s, until %s. It is shown this once:\n\n%s\n\n", plain(answer.Member), day(answer.Expires), answer.Key)
		fmt.Fprintln(c.stdout, c.wrapped("They run `knoot join` with it in a clone of this repository."))
		fmt.Fprintln(c.stdout, c.wrapped(readsHistory))
		fmt.Fprintln(c.stdout, c.wrapped("Until then whoever has the key and a clone can read that, too: send it on a way that you trust. `knoot member rm --device "+fmt.Sprintf("%.8s", answer.Device)+"` takes it back."))
		return nil
	})
}

// keyAnswer is what member add --json prints.
type keyAnswer struct {
	Key     string  `json:"key"`     // "" with --request
	Expires *string `json:"expires"` // RFC 3339; null where it does not
}

func jsonTime(at gitlog.Millis) *string {
	if at == 0 {
		return nil
	}
	text := at.Time().UTC().Format(time.RFC3339)
	return &text
}

func day(at gitlog.Millis) string { return at.Time().Local().Format("2 January 2006, 15:04") }

func (c *console) wrapped(text string) string { return strings.Join(wrap(text, helpWidth), "\n") }

func (c *console) printRecoveryKey(key string) {
	fmt.Fprintf(c.stdout, "Your recovery key. It is shown this once; keep it on paper, or where you keep passwords:\n\n%s\n\n", key)
	fmt.Fprintln(c.stdout, c.wrapped("When your devices are lost, `knoot join` with it in a clone makes a new one yours. Whoever else has it and a clone can read all that you can, and change the team."))
}

// checkAddress refuses what was meant as something else than a mail address.
func checkAddress(address string) error {
	at := strings.IndexByte(address, '@')
	if at < 1 || at == len(address)-1 || strings.ContainsAny(address, " \t\n<>") {
		return misusef("%q is no mail address: a member is named by one, like sam@example.com", address)
	}
	return nil
}

// memberNow returns the member with an address as this clone knows the team, nil where there is none.
func (c *console) memberNow(ctx context.Context, address string) (*gitlog.Member, error) {
	if c.ciWithoutKnoot() {
		return nil, nil
	}
	if err := c.needPerson(); err != nil {
		return nil, err
	}
	clone, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	defer clone.Close()
	if clone.Roster() == nil {
		return nil, nil
	}
	return clone.Roster().FindMember(address), nil
}

// changeTeam has the team changed, by a person. nil: nothing was done, which was said.
func (c *console) changeTeam(ctx context.Context, r daemon.TeamRequest) (*daemon.TeamAnswer, error) {
	if idle, err := c.keeps(); idle || err != nil {
		return nil, err
	}
	if err := c.needPerson(); err != nil {
		return nil, err
	}
	answer := &daemon.TeamAnswer{}
	if err := c.perform(ctx, "team", r, answer); err != nil {
		return nil, err
	}
	return answer, nil
}

// memberRow is one of what member ls --json prints.
type memberRow struct {
	Email   string      `json:"email"`
	Name    string      `json:"name"`
	Admin   bool        `json:"admin"`
	Devices []deviceRow `json:"devices"`
}

// deviceRow is a device of a member. State is active, invited (the key of an invitation), expired (one that was not used in
// time) or recovery.
type deviceRow struct {
	ID       string  `json:"id"`
	Label    string  `json:"label"`
	State    string  `json:"state"`
	LastSeen *string `json:"last_seen"` // RFC 3339; null: nothing by it is held here
}

func (c *console) memberListCommand() *ffcli.Command {
	flags := newFlags("member ls")
	asJSON := jsonFlag(flags)
	return command(manual{
		name: "member ls", usage: "[--json]", short: "List who is in the team, with which devices",
		long: `A device was last seen when it wrote the newest thing that this clone has of it.

--json prints [{email, name, admin, devices: [{id, label, state, last_seen}]}], where
state is active, invited, expired or recovery.`,
		example: "knoot member ls",
	}, flags, func(ctx context.Context, args []string) error {
		if err := noArguments("member ls", args); err != nil {
			return err
		}
		clone, roster, err := c.openTeam(ctx)
		if err != nil {
			return err
		}
		defer clone.Close()
		rows := c.memberRows(clone, roster)
		if *asJSON {
			return c.printJSON(rows)
		}
		for _, m := range rows {
			admin := ""
			if m.Admin {
				admin = ", admin"
			}
			fmt.Fprintf(c.stdout, "%s <%s>%s\n", c.bold(plain(m.Name)), plain(m.Email), admin)
			for _, d := range m.Devices {
				fmt.Fprintf(c.stdout, "  %.8s  %-9s %s%s\n", d.ID, d.State, plain(d.Label), c.seen(d))
			}
		}
		return nil
	})
}

func (c *console) seen(d deviceRow) string {
	if d.LastSeen == nil {
		return ""
	}
	at, err := time.Parse(time.RFC3339, *d.LastSeen)
	if err != nil {
		return ""
	}
	return c.dim("  last seen " + c.ago(at))
}

// openTeam opens this clone to read what is in the team's roster.
func (c *console) openTeam(ctx context.Context) (*gitlog.Clone, *gitlog.Roster, error) {
	clone, err := c.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	roster := clone.Roster()
	if roster == nil {
		err := errors.New("the team is not in this clone yet: run `knoot sync`")
		for _, p := range clone.Problems() {
			if strings.Contains(p.Ref, "/team/") {
				err = fmt.Errorf("%s: %s", p.Ref, p.What)
			}
		}
		return nil, nil, errors.Join(err, clone.Close())
	}
	return clone, roster, nil
}

func (c *console) memberRows(clone *gitlog.Clone, roster *gitlog.Roster) []memberRow {
	seen, now := clone.LastSeen(), gitlog.MillisOf(c.now())
	rows := []memberRow{}
	for _, m := range sortedMembers(roster) {
		row := memberRow{Email: m.Address, Name: m.Name, Admin: m.Admin, Devices: []deviceRow{}}
		for _, d := range roster.DevicesOf(m.ID) {
			row.Devices = append(row.Devices, deviceRow{ID: d.ID.String(), Label: d.Label, State: stateOf(d, now), LastSeen: jsonTime(seen[d.ID])})
		}
		rows = append(rows, row)
	}
	return rows
}

func sortedMembers(roster *gitlog.Roster) []*gitlog.Member {
	var members []*gitlog.Member
	for _, m := range roster.Members {
		members = append(members, m)
	}
	slices.SortFunc(members, func(a, b *gitlog.Member) int {
		if order := strings.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name)); order != 0 {
			return order
		}
		return bytes.Compare(a.ID[:], b.ID[:])
	})
	return members
}

func stateOf(d *gitlog.RosterDevice, now gitlog.Millis) string {
	switch {
	case d.Pending && now >= d.Expires:
		return "expired"
	case d.Pending:
		return "invited"
	case d.Label == gitlog.RecoveryLabel:
		return "recovery"
	}
	return "active"
}

func (c *console) memberRemoveCommand() *ffcli.Command {
	flags := newFlags("member rm")
	device := flags.String("device", "", "take only the device with this `ID` out, which `knoot member ls` shows; also an invitation")
	since := flags.String("since", "", "after a theft: nothing that was written since this `TIME` counts (15:04, a date, or an age like 2h)")
	admin := flags.Bool("admin", false, "only take back that they may change the team")
	return command(manual{
		name: "member rm", usage: "EMAIL [--since TIME] | EMAIL --admin | --device ID [--since TIME]",
		short: "Take a member or a device out of the team",
		long: `From then on they can read nothing that is written by whoever has seen the removal,
and nothing more that they write counts, whatever time it claims. What they wrote
before stays; what they could read before they can read for ever, since they may have
copied it. A removed device's keys never come back: to return, it makes new ones.

The last device that can change the team cannot be removed. Needs a person.`,
		example: "knoot member rm sam@example.com",
	}, flags, func(ctx context.Context, args []string) error {
		r := daemon.TeamRequest{Do: "remove_member", Device: *device}
		switch {
		case len(args) > 1, (len(args) == 1) == (*device != ""):
			return misusef("say either whom or which device: EMAIL or --device ID")
		case *admin && (*device != "" || *since != ""):
			return misusef("--admin goes with EMAIL alone")
		case *admin:
			r.Do, r.Address = "dismiss_admin", args[0]
		case *device != "":
			r.Do = "remove_device"
		default:
			r.Address = args[0]
		}
		var err error
		if r.Since, err = c.sinceFlag(*since); err != nil {
			return err
		}
		answer, err := c.changeTeam(ctx, r)
		if err != nil || answer == nil {
			return err
		}
		switch {
		case *admin:
			fmt.Fprintf(c.stdout, "%s cannot change the team any more. The rooms that they are in stay theirs: `knoot room revoke` takes them out.\n", plain(answer.Member))
		case *device != "":
			fmt.Fprintf(c.stdout, "The device %.8s of %s is out of the team. ", answer.Device, plain(answer.Member))
			fmt.Fprintln(c.stdout, "What is written from now on is closed to its keys.")
		default:
			fmt.Fprintf(c.stdout, "%s is out of the team. What is written from now on is closed to their keys.\n", plain(answer.Member))
		}
		return nil
	})
}

// sinceFlag reads a time as typed; 0 where none was.
func (c *console) sinceFlag(text string) (gitlog.Millis, error) {
	if text == "" {
		return 0, nil
	}
	at, err := parseWhen(text, c.now())
	if err != nil {
		return 0, misuse{err.Error()}
	}
	return gitlog.MillisOf(at), nil
}
