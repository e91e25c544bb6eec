package main

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/peterbourgon/ff/v3/ffcli"

	"knoot.dev/knoot/arbiter/relay"
	"knoot.dev/knoot/arbiter/wire"
	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/gitlog"
)

// each calls f for every value of a flag that may be given several times.
type each func(value string) error

func (each) String() string           { return "" }
func (f each) Set(value string) error { return f(value) }

func (c *console) relayCommand() *ffcli.Command {
	flags := newFlags("relay")
	options := relay.Options{Limits: relay.DefaultLimits(), Software: "knoot " + socket.Version}
	listen := flags.String("listen", ":7420", "`address` for machines: this port, UDP and TCP")
	state := flags.String("state", "", "`folder` for the relay's log and the teams' rosters; needed")
	keyFile := flags.String("key", "", "`file` of the relay's key, made where there is none (default relay.key in the state folder)")
	admin := flags.String("admin", "", "`address` of /health, /status and /metrics over HTTP, such as 127.0.0.1:7421")
	flags.Func("token", "operator's `token` that a team's first connection needs, or @FILE", func(value string) (err error) {
		options.Token, err = secretValue(value)
		return err
	})
	flags.Var(each(func(value string) error {
		old, err := oldToken(value)
		options.OldTokens = append(options.OldTokens, old)
		return err
	}), "old-token", "a `token` that still works beside --token, or @FILE; TOKEN,2026-04-30 works until that day. Its uses are logged. May be repeated")
	flags.Var(each(func(value string) error {
		rule, err := teamRule(value)
		options.Teams = append(options.Teams, rule)
		return err
	}), "team", "serve this `team` alone, by its id; ID@HASH: where its roster is forked, the branch with that entry. May be repeated")
	printKey := flags.Bool("print-key", false, "print the relay's key and end")
	certificate := flags.String("tls-cert", "", "`file` with a public authority's certificate, PEM, for clients that pin no key")
	certificateKey := flags.String("tls-key", "", "`file` with that certificate's key, PEM")
	format := flags.String("log", "text", "`format` of the log on standard error: text or json")
	options.Limits.Flags(flags)
	return command(manual{
		name: "relay", usage: "--state DIR [--listen ADDRESS] [FLAGS]",
		short: "Run the server that gives a team's machines one order of claims",
		long: `It decides which machine's claim came first and passes news on. It cannot read either:
paths, branches, intents and messages are sealed by the machine that wrote them, and
what it compares are tokens. It keeps no history; that is in git. When it is gone,
work goes on, and another one can take its place.

Machines know it by its key, which it prints at start. docs/self-hosting.md is a
walk-through.`,
		example: "knoot relay --state /var/lib/knoot-relay --admin 127.0.0.1:7421\nknoot relay --state /var/lib/knoot-relay --print-key",
	}, flags, func(ctx context.Context, args []string) error {
		if err := noArguments("relay", args); err != nil {
			return err
		}
		if *state == "" {
			return misusef("--state names the folder in which the relay keeps its log, such as /var/lib/knoot-relay")
		}
		if len(options.OldTokens) > 0 && options.Token == "" {
			return misusef("--old-token stands beside --token, which is the new one")
		}
		if (*certificate == "") != (*certificateKey == "") {
			return misusef("--tls-cert and --tls-key belong together")
		}
		var err error
		if options.Key, options.Fresh, err = relay.LoadKey(relay.KeyPath(*state, *keyFile)); err != nil {
			return err
		}
		if *printKey {
			_, err := fmt.Fprintln(c.stdout, relay.PinOf(options.Key))
			return err
		}
		if *certificate != "" {
			pair, err := tls.LoadX509KeyPair(*certificate, *certificateKey)
			if err != nil {
				return fmt.Errorf("cannot use the certificate: %w", err)
			}
			options.Certificate = &pair
		}
		if options.Log, err = c.relayLog(*format); err != nil {
			return err
		}
		options.State = *state
		return c.runRelay(ctx, options, *listen, *admin)
	})
}

func (c *console) relayLog(format string) (*slog.Logger, error) {
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(c.stderr, nil)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(c.stderr, nil)), nil
	}
	return nil, misusef("--log is text or json")
}

func (c *console) runRelay(ctx context.Context, options relay.Options, listen, admin string) error {
	sockets, err := relay.Listen(listen)
	if err != nil {
		return err
	}
	var page net.Listener
	if admin != "" {
		if page, err = net.Listen("tcp", admin); err != nil {
			sockets.Close()
			return fmt.Errorf("cannot listen on %s: %w", admin, err)
		}
	}
	server, err := relay.New(options)
	if err != nil {
		sockets.Close()
		if page != nil {
			_ = page.Close()
		}
		return err
	}
	fmt.Fprintf(c.stdout, "relay key %s\n", server.Pin())
	options.Log.Info("listening", "address", sockets.TCP.Addr().String(), "version", socket.Version)
	if len(options.Teams) == 0 && options.Token == "" {
		options.Log.Info("any team may use this relay: --team or --token restrict it")
	}
	ended := make(chan error, 1)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if page != nil {
		options.Log.Info("admin", "address", page.Addr().String())
		// The page outlives the context, so that /health says that the relay drains.
		pages, stopPages := context.WithCancel(context.WithoutCancel(ctx))
		defer stopPages()
		go func() {
			err := server.Admin(pages, page)
			if err != nil {
				stop()
			}
			ended <- err
		}()
		err = server.Serve(ctx, sockets)
		stopPages()
		if perr := <-ended; err == nil {
			err = perr
		}
		return err
	}
	return server.Serve(ctx, sockets)
}

// secretValue is a flag's value, or what is in the file that it names with an @: arguments can be read by everybody on a
// machine.
func secretValue(value string) (string, error) {
	if path, ok := strings.CutPrefix(value, "@"); ok {
		text, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		value = strings.TrimSpace(string(text))
	}
	if value == "" || len(value) > wire.MaxToken {
		return "", fmt.Errorf("a token has 1 to %d characters", wire.MaxToken)
	}
	return value, nil
}

// oldToken reads TOKEN or TOKEN,DAY; the day is the last one.
func oldToken(value string) (old relay.OldToken, err error) {
	if rest, day, ok := cutLast(value, ","); ok {
		last, err := time.ParseInLocation(time.DateOnly, day, time.Local)
		if err != nil {
			return old, fmt.Errorf("%q is no day: write TOKEN,2026-04-30", day)
		}
		old.Until, value = last.AddDate(0, 0, 1), rest
	}
	old.Token, err = secretValue(value)
	return old, err
}

func cutLast(s, separator string) (before, after string, found bool) {
	if i := strings.LastIndex(s, separator); i >= 0 {
		return s[:i], s[i+len(separator):], true
	}
	return s, "", false
}

// teamRule reads ID or ID@HASH.
func teamRule(value string) (rule relay.TeamRule, err error) {
	id, hash, forked := strings.Cut(value, "@")
	if rule.Team, err = gitlog.ParseTeamID(id); err != nil {
		return rule, err
	}
	if forked {
		raw, err := hex.DecodeString(hash)
		if err != nil || len(raw) != len(gitlog.Digest{}) {
			return rule, fmt.Errorf("%q is no hash of a roster's entry: want 64 hex digits", hash)
		}
		rule.Entry = (*gitlog.Digest)(raw)
	}
	return rule, nil
}
