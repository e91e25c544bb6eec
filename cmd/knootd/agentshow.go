package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/peterbourgon/ff/v3/ffcli"

	"knoot.dev/knoot/mcpd"
)

func (c *console) agentShowCommand() *ffcli.Command {
	flags := newFlags("agent show")
	asJSON := jsonFlag(flags)
	return command(manual{
		name: "agent show", usage: "NAME [--json]",
		short: "Print what an agent shows you: files, diagrams, its checklist, its tasks",
		long: `The newest comes last. A diagram is printed as its source, in Mermaid. "knoot agent fill"
ticks and answers what is on the checklist.

--json prints {artifacts: [{kind, title, path, diagram}], checklist, tasks}.`,
		example: "knoot agent show bob",
	}, flags, func(ctx context.Context, args []string) error {
		if len(args) != 1 {
			return misusef("say which agent: `knoot agent show NAME`; `knoot agent ls` lists them")
		}
		if c.idle() {
			return nil
		}
		var answer mcpd.AgentAnswer
		if err := c.askAgent(ctx, mcpd.AgentRequest{Do: "show", Agent: args[0]}, &answer); err != nil {
			return err
		}
		if *asJSON {
			return c.printJSON(answer.Shown)
		}
		return c.printShown(args[0], answer.Shown)
	})
}

func (c *console) agentFillCommand() *ffcli.Command {
	flags := newFlags("agent fill")
	r := mcpd.AgentRequest{Do: "fill"}
	undo := flags.Bool("undo", false, "take the tick or the answer back")
	flags.BoolVar(&r.Send, "send", false, "send the whole list to the agent then, as one message")
	return command(manual{
		name: "agent fill", usage: "NAME [ITEM [ANSWER]] [--undo] [--send]",
		short: "Tick an item of an agent's checklist, or answer a question on it",
		long: `What you say is kept at once, and stays when the agent shows the list again. It reads it
when it looks, or when you send it. Prints the list. Needs a person.`,
		example: "knoot agent fill bob tests\nknoot agent fill bob name \"Aurora\" --send",
	}, flags, func(ctx context.Context, args []string) error {
		switch {
		case len(args) == 0 || len(args) > 3:
			return misusef("say which agent and which item: `knoot agent fill NAME ITEM [ANSWER]`")
		case len(args) == 1 && !r.Send:
			return misusef("say which item, or --send: `knoot agent show %s` prints the list", plain(args[0]))
		case *undo && len(args) != 2:
			return misusef("--undo is about one item, without an answer: `knoot agent fill NAME ITEM --undo`")
		case len(args) > 1 && args[1] == "":
			return misusef("an item has an id: `knoot agent show %s` prints the list", plain(args[0]))
		}
		r.Agent, r.Ticked = args[0], !*undo
		if len(args) > 1 {
			r.Item = args[1]
		}
		if len(args) > 2 {
			r.Answer = args[2]
		}
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
		return c.printChecklist(r.Agent, answer.Shown.Checklist)
	})
}

// printShown prints what an agent shows, a heading each.
func (c *console) printShown(agent string, shown *mcpd.Shown) error {
	if len(shown.Artifacts) == 0 {
		fmt.Fprintf(c.stdout, "%s shows nothing.\n", plain(agent))
		return nil
	}
	for i, a := range shown.Artifacts {
		if i > 0 {
			fmt.Fprintln(c.stdout)
		}
		switch a.Kind {
		case mcpd.MarkdownArtifact:
			fmt.Fprintf(c.stdout, "== %s\n", c.homely(plain(a.Path)))
			c.printFile(a.Path)
		case mcpd.MermaidArtifact:
			title := "a diagram"
			if a.Title != "" {
				title = plain(a.Title) + ", a diagram"
			}
			fmt.Fprintf(c.stdout, "== %s\n", title)
			c.printLines(a.Diagram)
		case mcpd.ChecklistArtifact:
			if err := c.printChecklist(agent, shown.Checklist); err != nil {
				return err
			}
		case mcpd.TasksArtifact:
			fmt.Fprintln(c.stdout, "== its tasks")
			w := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
			for _, t := range shown.Tasks {
				after := ""
				if len(t.DependsOn) > 0 {
					after = "after " + plain(strings.Join(t.DependsOn, ", "))
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", plain(t.State), plain(t.ID), plain(t.SentTo), after, plain(t.Goal))
			}
			if err := w.Flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// printFile prints a text file that an agent shows, as it is now.
func (c *console) printFile(path string) {
	info, err := os.Stat(path) // first: opening a pipe would wait
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		fmt.Fprintln(c.stdout, "It is no file any more.")
		return
	case info.Size() > mcpd.MaxMarkdown:
		fmt.Fprintf(c.stdout, "It has grown to %d bytes, and is not printed.\n", info.Size())
		return
	}
	text, err := os.ReadFile(path)
	if err != nil {
		fmt.Fprintf(c.stdout, "It cannot be read any more: %v\n", err)
		return
	}
	c.printLines(string(text))
}

// printLines prints a text of somebody else's that has lines.
func (c *console) printLines(text string) {
	for line := range strings.Lines(text) {
		fmt.Fprintln(c.stdout, plain(strings.TrimRight(line, "\r\n")))
	}
}

func (c *console) printChecklist(agent string, list *mcpd.Checklist) error {
	sent := "not sent"
	if list.Sent {
		sent = "sent"
	}
	fmt.Fprintf(c.stdout, "== %s, a checklist (%s)\n", plain(list.Title), sent)
	w := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	for _, item := range list.Items {
		mark, said := "[ ]", ""
		switch {
		case item.Kind == mcpd.QuestionItem && item.Answer == "":
			mark = " ?"
		case item.Kind == mcpd.QuestionItem:
			mark, said = "[x]", " — "+plain(item.Answer)
		case item.Ticked:
			mark = "[x]"
		}
		fmt.Fprintf(w, "%s\t%s\t%s%s\n", mark, plain(item.ID), plain(item.Text), said)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if !list.Sent {
		fmt.Fprintf(c.stdout, "Try: knoot agent fill %s ITEM [ANSWER], and once you are done: knoot agent fill %[1]s --send\n", plain(agent))
	}
	return nil
}
