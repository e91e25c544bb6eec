package main

import (
	"context"
	"fmt"

	"github.com/peterbourgon/ff/v3/ffcli"

	"knoot.dev/knoot/daemon"
	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/mcpd"
)

func (c *console) daemonCommand() *ffcli.Command {
	flags := newFlags("daemon")
	auto := flags.Bool("auto", false, "as a hook starts it: end in silence where it is not wanted, and after 8 hours without a session")
	install := flags.Bool("install", false, "make it a service of yours that starts when you log in (systemd, launchd)")
	uninstall := flags.Bool("uninstall", false, "take that service out again")
	stop := flags.Bool("stop", false, "end the daemon that runs")
	return command(manual{
		name: "daemon", usage: "[--install|--uninstall|--stop]",
		short: "Run the process that answers hooks and syncs in the background",
		long: `It stays in the foreground until it is interrupted. Most people need neither this nor
a service: the first hook of a session starts a daemon where none runs, unless
config.toml in ~/.knoot says [daemon] autostart = false.`,
		example: "knoot daemon --install\nknoot daemon --stop",
	}, flags, func(ctx context.Context, args []string) error {
		if err := noArguments("daemon", args); err != nil {
			return err
		}
		chosen := 0
		for _, f := range []bool{*auto, *install, *uninstall, *stop} {
			if f {
				chosen++
			}
		}
		if chosen > 1 {
			return misusef("--auto, --install, --uninstall and --stop are one or the other")
		}
		if *auto && c.ciWithoutKnoot() {
			return nil
		}
		if !*stop && c.idle() {
			return nil
		}
		switch {
		case *install:
			return c.installService(ctx)
		case *uninstall:
			return c.uninstallService(ctx)
		case *stop:
			stopped, err := daemon.Stop(ctx, c.getenv)
			if err != nil {
				return err
			}
			if stopped {
				fmt.Fprintln(c.stdout, "The daemon has ended.")
			} else {
				fmt.Fprintln(c.stdout, "No daemon runs.")
			}
			return nil
		}
		return daemon.Run(ctx, daemon.Options{Getenv: c.getenv, Auto: *auto,
			Coordinate: func(h *daemon.Host) daemon.Coordinator { return mcpd.New(h) },
			Listening: func(at socket.Location) {
				if !*auto {
					fmt.Fprintf(c.stdout, "knoot %s listens on %s. Ctrl-C ends it.\n", socket.Version, at.Socket())
				}
			}})
	})
}
