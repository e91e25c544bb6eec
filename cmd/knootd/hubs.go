package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/peterbourgon/ff/v3/ffcli"

	"knoot.dev/knoot/daemon"
	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/gitlog"
)

func (c *console) hubsCommand() *ffcli.Command {
	flags := newFlags("hubs")
	asJSON := jsonFlag(flags)
	return command(manual{
		name: "hubs", usage: "[--json]",
		short: "List the files that many sessions write, and who waits for them",
		long: `A hub is a file that three sessions wrote within 30 minutes, or that .knoot.toml
names under hubs. It is held for 2 minutes after each write, and whoever is refused
it stands in a queue.

--json prints [{path, branch, listed, holder, until, queue}]; holder is "" where it
is free.`,
		example: "knoot hubs",
	}, flags, func(ctx context.Context, args []string) error {
		if err := noArguments("hubs", args); err != nil {
			return err
		}
		hubs := []daemon.Hub{}
		err := c.ask(ctx, "hubs", nil, &hubs, askTime)
		if err != nil && !errors.Is(err, socket.ErrAbsent) {
			return err
		}
		if *asJSON {
			return c.printJSON(hubsJSON(hubs))
		}
		if len(hubs) == 0 {
			fmt.Fprintln(c.stdout, "No file is a hub now.")
		}
		for _, h := range hubs {
			fmt.Fprintln(c.stdout, c.bold(plain(h.Path))+c.dim("  on "+plain(shortBranch(h.Branch))))
			text := "free"
			switch {
			case h.Holder != "":
				text = "held by " + plain(h.Holder) + ", " + lease(h.Until, c.now()) + " left"
			case len(h.Queue) > 0:
				text = "reserved for " + plain(h.Queue[0]) + ", " + lease(h.Until, c.now()) + " left"
			}
			if len(h.Queue) > 0 {
				text += "; in line: " + plain(strings.Join(h.Queue, ", "))
			}
			for _, line := range wrap(text, helpWidth-2) {
				fmt.Fprintln(c.stdout, "  "+line)
			}
		}
		return nil
	})
}

func hubsJSON(hubs []daemon.Hub) any {
	type hub struct {
		Path   string   `json:"path"`
		Branch string   `json:"branch"`
		Listed bool     `json:"listed"`
		Holder string   `json:"holder"`
		Until  string   `json:"until"` // "" where it is free and nobody waits
		Queue  []string `json:"queue"`
	}
	out := []hub{}
	for _, h := range hubs {
		until := ""
		if h.Until != 0 {
			until = gitlog.TimeText(h.Until)
		}
		out = append(out, hub{h.Path, h.Branch, h.Listed, h.Holder, until, append([]string{}, h.Queue...)})
	}
	return out
}
