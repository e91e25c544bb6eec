package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/peterbourgon/ff/v3/ffcli"

	"knoot.dev/knoot/daemon"
	"knoot.dev/knoot/daemon/socket"
)

func (c *console) msgCommand() *ffcli.Command {
	flags := newFlags("msg")
	var r daemon.MessageRequest
	flags.BoolVar(&r.Urgent, "urgent", false, "do not let its turn end before it has heard it; three an hour")
	asJSON := jsonFlag(flags)
	return command(manual{
		name: "msg", usage: "[--urgent] [--json] TO TEXT|-",
		short: "Send a message to a session or a person",
		long: `TO is an agent's name (KNOOT_AGENT), how a session's id begins, a member's address or
name, or "all". An agent is told with its next hook, a person reads it with "knoot
inbox". Unread ones are kept for 7 days at most, and never hold a credential. Without a
relay they stay on this machine. With one they reach the team's other machines, sealed,
as far as those are connected, or come back within a day.

An agent in a sandbox may not speak to the daemon: then the message waits in .knoot/spool
for the next hook outside, as do remember, cache and plan. A text in a file
.knoot/outbox/TO, or in one in a folder .knoot/outbox/TO/, is sent by it, too.

--json prints {id, to, urgent}.`,
		example: `knoot msg all "the tests are red on main: I am on it"`,
	}, flags, func(ctx context.Context, args []string) error {
		if len(args) < 2 {
			return misusef("say to whom, and what: `knoot msg TO TEXT`")
		}
		var err error
		r.To = args[0]
		if r.Text, err = c.text(args[1:]); err != nil {
			return err
		}
		if c.idle() {
			return nil
		}
		var answer daemon.MessageAnswer
		err = c.ask(ctx, "msg", r, &answer, askTime)
		if errors.Is(err, socket.ErrShut) || errors.Is(err, socket.ErrAbsent) && c.sandboxed() {
			err = c.spool(ctx, "msg", r, err)
		}
		switch {
		case errors.Is(err, errSpooled) && *asJSON:
			return c.printJSON(daemon.MessageAnswer{To: []string{}})
		case errors.Is(err, errSpooled):
			c.saySpooled()
			return nil
		case errors.Is(err, socket.ErrAbsent):
			return errNobodyHere
		case err != nil:
			return err
		case *asJSON:
			return c.printJSON(answer)
		}
		fmt.Fprintf(c.stdout, "Sent to %s.\n", plain(strings.Join(answer.To, ", ")))
		if r.Urgent && !answer.Urgent {
			fmt.Fprintln(c.stdout, "Not as urgent: they had three urgent ones from you within the hour.")
		}
		return nil
	})
}
