package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/peterbourgon/ff/v3/ffcli"

	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/mcpd"
)

func (c *console) mcpCommand() *ffcli.Command {
	return group(manual{
		name: "mcp", short: "Connect agents to knoot's tools",
		example: "knoot mcp config claude --agent alice --write",
	}, c.mcpConfigCommand())
}

// clientConfig is what any client needs: what `mcp config json` prints.
type clientConfig struct {
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers"`
}

func (c *console) mcpConfigCommand() *ffcli.Command {
	flags := newFlags("mcp config")
	agent := flags.String("agent", "", "the agent's `NAME`, by which others write to it; made if it is not there")
	write := flags.Bool("write", false, "put it where the agent finds it, instead of printing it")
	return command(manual{
		name: "mcp config", usage: "claude|codex|json --agent NAME [--write]",
		short: "Say what an agent's configuration needs to reach knoot's tools",
		long: `It holds a secret of the agent's, so nothing of it belongs into a file of the
repository. With --write Claude Code gets it by "claude mcp add-json --scope local",
which keeps it in your own settings, for this folder; Codex by [mcp_servers.knoot] in
config.toml of ~/.codex (or CODEX_HOME), which counts for all your repositories.

json prints {url, headers}, for any other client. Needs a person.`,
		example: "knoot mcp config claude --agent alice --write\nknoot mcp config json --agent alice",
	}, flags, func(ctx context.Context, args []string) error {
		switch {
		case len(args) != 1 || args[0] != "claude" && args[0] != "codex" && args[0] != "json":
			return misusef("say for which client: `knoot mcp config claude --agent NAME`, or codex, or json")
		case *agent == "":
			return misusef("say which agent it is: --agent NAME")
		case *write && args[0] == "json":
			return misusef("--write is for claude and codex, whose files are known; json prints what others need")
		}
		if c.idle() {
			return nil
		}
		if err := c.needPerson(); err != nil {
			return err
		}
		r := mcpd.ConfigRequest{Agent: *agent, Type: args[0]}
		if args[0] == "json" {
			r.Type = ""
		}
		var answer mcpd.ConfigAnswer
		err := c.ask(ctx, "mcp", r, &answer, askTime)
		if errors.Is(err, socket.ErrAbsent) {
			return errors.New("no daemon runs, so there is nothing to connect to; `knoot daemon` starts one, and so does a session's first hook")
		}
		if err != nil {
			return err
		}
		config := clientConfig{URL: answer.URL, Headers: map[string]string{"Authorization": "Bearer " + answer.Secret}}
		switch args[0] {
		case "claude":
			return c.configureClaude(ctx, *agent, config, *write)
		case "codex":
			return c.configureCodex(ctx, *agent, config, *write)
		}
		return c.printJSON(config)
	})
}

// claudeServer is a server as Claude Code's configuration has it.
type claudeServer struct {
	Type string `json:"type"`
	clientConfig
}

func (c *console) configureClaude(ctx context.Context, agent string, config clientConfig, write bool) error {
	text, err := json.Marshal(claudeServer{"http", config})
	if err != nil {
		return err
	}
	add := []string{"mcp", "add-json", "--scope", "local", "knoot", string(text)}
	if !write {
		fmt.Fprintf(c.stdout, "Run this here; it goes into your own settings, and holds a secret of %s's:\n\n  claude %s %s\n", agent, strings.Join(add[:len(add)-1], " "), quoteShell(string(text)))
		return nil
	}
	// One that is there already is not replaced by add-json. That none is there is no trouble.
	_, _ = c.output(ctx, "claude", "mcp", "remove", "--scope", "local", "knoot")
	if out, err := c.output(ctx, "claude", add...); err != nil {
		return fmt.Errorf("the claude command did not take it (%w): %s; without --write this prints what to run", err, oneLine(strings.ReplaceAll(out, config.Headers["Authorization"], "...")))
	}
	fmt.Fprintf(c.stdout, "Claude Code connects as %s when it is started here. Try: claude mcp list\n", agent)
	return nil
}

// output runs a program of another's in the working directory and returns all that it printed.
func (c *console) output(ctx context.Context, name string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, name, args...)
	command.Dir = c.dir
	out, err := command.CombinedOutput()
	return string(out), err
}

// quoteShell quotes a text for a shell.
func quoteShell(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
