package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/BurntSushi/toml"
	"github.com/peterbourgon/ff/v3/ffcli"

	"knoot.dev/knoot/daemon"
	"knoot.dev/knoot/gitlog"
	"knoot.dev/knoot/mcpd"
)

func (c *console) agentTemplateCommand() *ffcli.Command {
	return group(manual{
		name: "agent template", short: "Say which agents could be made, for those that are here to choose from",
		example: "knoot agent template ls",
	}, c.agentTemplateListCommand(), c.agentTemplateAddCommand())
}

// templateName is what a template may be called: agents that are made of it have the same name, or that and a number.
var templateName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,29}$`)

func (c *console) agentTemplateAddCommand() *ffcli.Command {
	flags := newFlags("agent template add")
	var r mcpd.AgentRequest
	tags := describesAgent(flags, &r)
	return command(manual{
		name: "agent template add", usage: "NAME --type T [--folder DIR] [--description TEXT] [--tags A,B] [--cost COST]",
		short: "Add an agent that could be made",
		long: `It is written behind what stands in config.toml in ~/.knoot, as [templates.NAME]; change
it or take it out there. Agents find it by describe-agents and make it by create-agent.
Without --folder it works where whoever makes it does. Needs a person.`,
		example: "knoot agent template add reviewer --type claude --description \"reviews Go\" --tags go,review --cost low",
	}, flags, func(ctx context.Context, args []string) error {
		switch {
		case len(args) != 1 || !templateName.MatchString(args[0]):
			return misusef("say what it is called, in up to 30 letters, digits, dashes and underscores: `knoot agent template add NAME --type T`")
		case r.Type == "":
			return misusef("say what runs it: --type claude, codex, or one that config.toml has a command for")
		}
		if c.idle() {
			return nil
		}
		if err := c.needPerson(); err != nil {
			return err
		}
		home, err := gitlog.OpenHome(c.getenv)
		if err != nil {
			return err
		}
		if err := home.Make(); err != nil {
			return err
		}
		template := daemon.Template{Type: r.Type, Folder: r.Folder, Description: r.Description, Tags: splitTags(*tags), Cost: r.Cost}
		path, err := addTemplate(home.Dir, args[0], template)
		if err != nil {
			return err
		}
		fmt.Fprintf(c.stdout, "%s is in %s.\n", args[0], c.homely(path))
		return nil
	})
}

// addTemplate writes a template behind what stands in the person's configuration, if that is one then.
func addTemplate(home, name string, t daemon.Template) (path string, err error) {
	path = filepath.Join(home, "config.toml")
	config, err := daemon.LoadConfig(home)
	if err != nil {
		return path, err
	}
	if _, there := config.Templates[name]; there {
		return path, fmt.Errorf("there is a template %s in %s already: change it there", name, path)
	}
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return path, fmt.Errorf("cannot read %s: %w", path, err)
	}
	table, err := toml.Marshal(t)
	if err != nil {
		return path, err
	}
	fresh := strings.TrimRight(string(text), "\n")
	if fresh != "" {
		fresh += "\n\n"
	}
	fresh += "[templates." + name + "]\n" + string(table)
	if _, err := daemon.ParseConfig(fresh); err != nil {
		return path, fmt.Errorf("with this template the configuration does not hold (%w), so nothing was written", err)
	}
	target, err := throughLink(path)
	if err != nil {
		return path, err
	}
	return path, gitlog.ReplaceFile(target, []byte(fresh), 0o600)
}

func (c *console) agentTemplateListCommand() *ffcli.Command {
	flags := newFlags("agent template ls")
	asJSON := jsonFlag(flags)
	return command(manual{
		name: "agent template ls", usage: "[--json]",
		short:   "List the agents that could be made",
		long:    `--json prints an array of {name, type, folder, description, tags, cost}.`,
		example: "knoot agent template ls",
	}, flags, func(_ context.Context, args []string) error {
		if err := noArguments("agent template ls", args); err != nil {
			return err
		}
		home, err := gitlog.OpenHome(c.getenv)
		if err != nil {
			return err
		}
		config, err := daemon.LoadConfig(home.Dir)
		if err != nil {
			return err
		}
		all := []namedTemplate{}
		for _, name := range slices.Sorted(maps.Keys(config.Templates)) {
			t := config.Templates[name]
			all = append(all, namedTemplate{name, t.Type, t.Folder, t.Description, append([]string{}, t.Tags...), cmp.Or(t.Cost, "medium")})
		}
		if *asJSON {
			return c.printJSON(all)
		}
		if len(all) == 0 {
			fmt.Fprintln(c.stdout, "There is no template. Try: knoot agent template add NAME --type claude")
			return nil
		}
		w := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
		for _, t := range all {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", plain(t.Name), plain(t.Type), t.Cost, plain(strings.Join(t.Tags, ",")), plain(t.Description))
		}
		return w.Flush()
	})
}

// namedTemplate is an element of what agent template ls --json prints.
type namedTemplate struct {
	Name        string   `json:"name"`
	Type        string   `json:"type"`
	Folder      string   `json:"folder"`
	Description string   `json:"description"`
	Tags        []string `json:"tags"`
	Cost        string   `json:"cost"`
}
