package main

import (
	"context"
	"fmt"

	"github.com/peterbourgon/ff/v3/ffcli"

	"knoot.dev/knoot/daemon/socket"
)

func (c *console) versionCommand() *ffcli.Command {
	return command(manual{
		name: "version", short: "Print knoot's version",
		example: "knoot version",
	}, newFlags("version"), func(_ context.Context, args []string) error {
		if err := noArguments("version", args); err != nil {
			return err
		}
		_, err := fmt.Fprintln(c.stdout, "knoot "+socket.Version)
		return err
	})
}
