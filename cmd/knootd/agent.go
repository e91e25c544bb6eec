package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/peterbourgon/ff/v3/ffcli"

	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/mcpd"
)

func (c *console) agentCommand() *ffcli.Command {
	return group(manual{
		name: "agent", short: "Run agents in terminals that the daemon keeps",
		example: "knoot agent add bob --type claude\nknoot agent start bob\nknoot agent attach bob",
	}, c.agentAddCommand(), c.agentStartCommand(), c.agentListCommand(), c.agentShowCommand(), c.agentFillCommand(), c.agentAttachCommand(), c.agentStopCommand(), c.agentRemoveCommand(), c.agentTemplateCommand())
}

// describesAgent adds the flags that say what an agent is.
func describesAgent(flags *flag.FlagSet, r *mcpd.AgentRequest) (tags *string) {
	flags.StringVar(&r.Type, "type", "", "what runs it: `T` is claude, codex, shell, or one that [agents.T] command in config.toml says how to start")
	flags.StringVar(&r.Folder, "folder", "", "the worktree that it works in: `DIR` is in this repository; else this one")
	flags.StringVar(&r.Description, "description", "", "a `TEXT` that says what it is for")
	flags.StringVar(&r.Cost, "cost", "", "`COST` is low, medium or high; others are asked in this order")
	return flags.String("tags", "", "`TAGS`, with commas between them, by which others find it")
}

func splitTags(text string) (tags []string) {
	for tag := range strings.SplitSeq(text, ",") {
		if tag = strings.TrimSpace(tag); tag != "" {
			tags = append(tags, tag)
		}
	}
	return tags
}

// askAgent has the daemon do something with an agent.
func (c *console) askAgent(ctx context.Context, r mcpd.AgentRequest, answer any) error {
	err := c.ask(ctx, "agent", r, answer, askTime)
	if errors.Is(err, socket.ErrAbsent) {
		return errors.New("no daemon runs, and it is the daemon that runs agents; `knoot daemon` starts one, and so does a session's first hook")
	}
	return err
}

func (c *console) agentAddCommand() *ffcli.Command {
	flags := newFlags("agent add")
	r := mcpd.AgentRequest{Do: "add"}
	tags := describesAgent(flags, &r)
	asJSON := jsonFlag(flags)
	return command(manual{
		name: "agent add", usage: "NAME [--type T] [--folder DIR] [--description TEXT] [--tags A,B] [--cost COST] [--json]",
		short: "Make an agent that the daemon runs, or say more of one",
		long: `NAME is unique on this machine. It is not started yet: "knoot agent start" does that, and
so does a message to it alone. Of one that is there, what is said is changed. Needs a
person. --json prints it as "knoot agent ls" does.`,
		example: "knoot agent add bob --type claude --tags go,review",
	}, flags, func(ctx context.Context, args []string) error {
		switch {
		case len(args) != 1:
			return misusef("say what it is called: `knoot agent add NAME --type T`")
		}
		r.Agent, r.Tags = args[0], splitTags(*tags)
		if c.idle() {
			return nil
		}
		if err := c.needPerson(); err != nil {
			return err
		}
		var answer mcpd.AgentAnswer
		if err := c.askAgent(ctx, r, &answer); err != nil {
			return err
		}
		if *asJSON {
			return c.printJSON(answer.Status)
		}
		if !answer.Did {
			fmt.Fprintf(c.stdout, "%s was there already; what you said of it is changed.\n", r.Agent)
			return nil
		}
		fmt.Fprintf(c.stdout, "%s is there, and works in %s. Try: knoot agent start %[1]s\n", r.Agent, c.homely(answer.Status.Folder))
		return nil
	})
}

// onOneAgent is a command that does something with one agent, and says done; other, where it did nothing.
func (c *console) onOneAgent(m manual, do, done, other string) *ffcli.Command {
	flags := newFlags(m.name)
	m.usage = "NAME"
	return command(m, flags, func(ctx context.Context, args []string) error {
		if len(args) != 1 {
			return misusef("say which agent: `knoot %s NAME`; `knoot agent ls` lists them", m.name)
		}
		if c.idle() {
			return nil
		}
		if err := c.needPerson(); err != nil {
			return err
		}
		r := mcpd.AgentRequest{Do: do, Agent: args[0]}
		if do == "start" {
			r.Environ = os.Environ()
		}
		var answer mcpd.AgentAnswer
		if err := c.askAgent(ctx, r, &answer); err != nil {
			return err
		}
		if other != "" && !answer.Did {
			done = other
		}
		fmt.Fprintf(c.stdout, done+"\n", plain(args[0]))
		return nil
	})
}

func (c *console) agentStartCommand() *ffcli.Command {
	return c.onOneAgent(manual{
		name: "agent start", short: "Start an agent, with your environment as it is now",
		long: `An agent that another one made waits until you start it, unless config.toml says
[mcp] agents_may_start = "yes". Claude Code and Codex go on with the session that they
had. 32 agents run at a time, and 8 are started within a minute. Needs a person.`,
		example: "knoot agent start bob\nknoot agent attach bob",
	}, "start", "%s begins. Try: knoot agent attach %[1]s", "")
}

func (c *console) agentStopCommand() *ffcli.Command {
	return c.onOneAgent(manual{
		name: "agent stop", short: "End an agent's program, and all that it runs",
		long:    `A message to it alone starts it again; "knoot agent rm" takes it away. Needs a person.`,
		example: "knoot agent stop bob",
	}, "stop", "%s has ended.", "%s does not run.")
}

func (c *console) agentRemoveCommand() *ffcli.Command {
	return c.onOneAgent(manual{
		name: "agent rm", short: "Take an agent away for good, with its mail, tasks and companions",
		long:    `What it wrote stays where it is. Needs a person.`,
		example: "knoot agent rm bob",
	}, "rm", "%s is gone.", "")
}

func (c *console) agentListCommand() *ffcli.Command {
	flags := newFlags("agent ls")
	asJSON := jsonFlag(flags)
	return command(manual{
		name: "agent ls", usage: "[--json]",
		short: "List the agents of this repository",
		long: `Those that have a name, whoever runs them, and sessions that are known by their hooks
alone. One of which no hook was seen has no state.

--json prints an array of {id, name, folder, state, status, registered, type, session_id,
metadata, description, tags, cost, owner, created_by}.`,
		example: "knoot agent ls",
	}, flags, func(ctx context.Context, args []string) error {
		if err := noArguments("agent ls", args); err != nil {
			return err
		}
		if c.idle() {
			return nil
		}
		var all []mcpd.Status
		if err := c.askAgent(ctx, mcpd.AgentRequest{Do: "ls"}, &all); err != nil {
			return err
		}
		if *asJSON {
			return c.printJSON(all)
		}
		if len(all) == 0 {
			fmt.Fprintln(c.stdout, "No agent is here. Try: knoot agent add NAME --type claude")
			return nil
		}
		w := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
		for _, a := range all {
			about := cmp.Or(a.Status, a.Description)
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", plain(a.ID), plain(a.Type), cmp.Or(a.State, "-"), c.homely(plain(a.Folder)), plain(about))
		}
		return w.Flush()
	})
}
