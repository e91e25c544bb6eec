package main

import (
	"context"
	"fmt"

	"github.com/peterbourgon/ff/v3/ffcli"

	"knoot.dev/knoot/daemon"
	"knoot.dev/knoot/gitlog"
)

func (c *console) loginCommand() *ffcli.Command {
	flags := newFlags("login")
	relay := flags.String("relay", "", "the relay's `address`, HOST:PORT, as it stands in .knoot.toml; needed")
	token := flags.String("token", "", "the operator's `token`, or @FILE; needed")
	return command(manual{
		name: "login", usage: "--relay ADDRESS --token TOKEN",
		short: "Keep an operator's token for a relay that wants one",
		long: `A relay with --token lets a team in whose first connection shows it; one machine of the
team that has it is enough. It is kept in your home folder, for you alone to read.
KNOOT_TOKEN in the daemon's environment counts before it.`,
		example: "knoot login --relay relay.example.com:7420 --token @token.txt",
	}, flags, func(ctx context.Context, args []string) error {
		if err := noArguments("login", args); err != nil {
			return err
		}
		if *relay == "" || *token == "" {
			return misusef("say which relay, and its token: `knoot login --relay HOST:PORT --token TOKEN`")
		}
		if err := checkRelay(*relay, ""); err != nil {
			return err
		}
		value, err := secretValue(*token)
		if err != nil {
			return err
		}
		home, err := gitlog.OpenHome(c.getenv)
		if err != nil {
			return err
		}
		if err := daemon.KeepOperatorToken(home, *relay, value); err != nil {
			return err
		}
		_, err = fmt.Fprintf(c.stdout, "The token for %s is kept; the daemon shows it when it connects next.\n", plain(*relay))
		return err
	})
}
