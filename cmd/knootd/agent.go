package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/peterbourgon/ff/v3/ffcli"

	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/mcpd"
)

func (c *console) agentCommand() *ffcli.Command {
	return group(manual{
		name: "agent", short: "Name the agents of this repository, list them, take them out",
		example: "knoot agent ls",
	}, c.agentAddCommand(), c.agentListCommand(), c.agentRemoveCommand())
}

// askAgents has the daemon do something with agents.
func (c *console) askAgents(ctx context.Context, r mcpd.AgentRequest) (*mcpd.AgentAnswer, error) {
	answer := &mcpd.AgentAnswer{}
	err := c.ask(ctx, "agent", r, answer, askTime)
	if errors.Is(err, socket.ErrAbsent) {
		return nil, errors.New("no daemon runs, which knows the agents; `knoot daemon` starts one, and so does a session's first hook")
	}
	return answer, err
}

func (c *console) agentAddCommand() *ffcli.Command {
	flags := newFlags("agent add")
	r := mcpd.AgentRequest{Do: "add"}
	flags.StringVar(&r.Type, "type", "", "what it is: claude, codex, or another `TYPE`")
	flags.StringVar(&r.Description, "description", "", "what it is for, in a `SENTENCE` that other agents read")
	tags := flags.String("tags", "", "`TAGS` by which others find it, with commas between them")
	flags.StringVar(&r.Cost, "cost", "", "low, medium or high: of several, the cheap are asked first")
	return command(manual{
		name: "agent add", usage: "NAME [--type TYPE] [--description SENTENCE] [--tags TAGS] [--cost COST]",
		short: "Give an agent of this repository a name, and say what it is for",
		long: `Other agents find it by its tags (describe-agents). Of one that is there, what is said
is changed and the rest stays. "knoot mcp config" connects it.`,
		example: "knoot agent add reviewer --type codex --tags go,review --cost low",
	}, flags, func(ctx context.Context, args []string) error {
		if len(args) != 1 {
			return misusef("name it: `knoot agent add NAME`")
		}
		if c.idle() {
			return nil
		}
		r.Agent = args[0]
		for _, tag := range strings.Split(*tags, ",") {
			if tag = strings.TrimSpace(tag); tag != "" {
				r.Tags = append(r.Tags, tag)
			}
		}
		answer, err := c.askAgents(ctx, r)
		if err != nil {
			return err
		}
		for _, a := range answer.Agents {
			fmt.Fprintf(c.stdout, "%s is an agent of this repository (%s). Connect it: knoot mcp config claude --agent %[1]s --write, or codex, or json.\n", plain(a.ID), plain(a.Type))
		}
		return nil
	})
}

func (c *console) agentListCommand() *ffcli.Command {
	flags := newFlags("agent ls")
	asJSON := jsonFlag(flags)
	return command(manual{
		name: "agent ls", usage: "[--json]",
		short: "List the agents of this repository on this machine",
		long: `Those that have a name of their own, and sessions that are known by their hooks.

--json prints [{id, name, folder, state, status, registered, type, session_id,
metadata, description, tags, cost, owner, created_by}].`,
		example: "knoot agent ls --json",
	}, flags, func(ctx context.Context, args []string) error {
		if err := noArguments("agent ls", args); err != nil {
			return err
		}
		answer, err := c.askAgents(ctx, mcpd.AgentRequest{Do: "ls"})
		switch {
		case err != nil:
			return err
		case *asJSON:
			return c.printJSON(answer.Agents)
		case len(answer.Agents) == 0:
			fmt.Fprintln(c.stdout, "No agent is here. `knoot agent add NAME` gives one a name.")
		}
		for _, a := range answer.Agents {
			about := []string{plain(a.Type)}
			for _, each := range []string{a.State, a.Description, a.Status} {
				if each != "" {
					about = append(about, plain(each))
				}
			}
			if len(a.Tags) > 0 {
				about = append(about, plain(strings.Join(a.Tags, ", ")))
			}
			fmt.Fprintln(c.stdout, c.bold(plain(a.ID)))
			for _, line := range wrap(strings.Join(about, "; "), helpWidth-2) {
				fmt.Fprintln(c.stdout, "  "+line)
			}
		}
		return nil
	})
}

func (c *console) agentRemoveCommand() *ffcli.Command {
	flags := newFlags("agent rm")
	return command(manual{
		name: "agent rm", usage: "NAME",
		short: "Take an agent out, with its mail, its tasks and its companions",
		long: `Its secret ends with it. What it published stays. An agent closes those that it made
by close-agent. Needs a person.`,
		example: "knoot agent rm reviewer",
	}, flags, func(ctx context.Context, args []string) error {
		if len(args) != 1 {
			return misusef("name it: `knoot agent rm NAME`")
		}
		if c.idle() {
			return nil
		}
		if err := c.needPerson(); err != nil {
			return err
		}
		answer, err := c.askAgents(ctx, mcpd.AgentRequest{Do: "rm", Agent: args[0]})
		if err != nil {
			return err
		}
		fmt.Fprintf(c.stdout, "Taken out: %s.\n", plain(strings.Join(answer.Closed, ", ")))
		return nil
	})
}
