package mcpd

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"knoot.dev/knoot/daemon"
)

// maxDepth is how many agents may stand in a row of which each made the next.
const maxDepth = 3

func creationTools() []*tool {
	return []*tool{
		{group: coordination, name: "create-agent", about: "Make an agent for this repository, from a template that describe-agents lists or from name, folder and type. It works once your user starts it.",
			takes: []argument{{name: "template?"}, {name: "name?"}, {name: "folder?"}, {name: "type?", about: "claude, codex or another"}, {name: "description?"},
				{name: "tags?", schema: textsSchema}, {name: "cost?", schema: `"type":"string","enum":["low","medium","high"]`},
				{name: "companion?", schema: truthSchema, about: "it talks to you and to nobody else"}}, do: createAgent},
		{group: coordination, name: "close-agent", about: "Close an agent that you made, with its mail, its tasks and its companions.", hints: hints{destroys: true}, takes: []argument{{name: "target"}}, do: closeAgent},
	}
}

// creation is the answer to create-agent.
type creation struct {
	Agent Status `json:"agent"`
	Next  string `json:"next"` // what the person has to do
}

func createAgent(ctx context.Context, c *call) (any, error) {
	e, err := c.readEntry()
	if err != nil {
		return nil, err
	}
	// Wherever a link leads: to a worktree of this repository.
	real, err := filepath.EvalSymlinks(e.Folder)
	if err != nil {
		return nil, refusef("the folder cannot be used: %v", err)
	}
	place, err := c.host.Place(ctx, real)
	if err != nil || place.Repository != c.agent.Workspace {
		return nil, refusef("%s is in no worktree of this repository", daemon.Clean(e.Folder, 200))
	}
	e.Folder, e.Workspace = place.Root, place.Repository
	if _, err := c.change(e.ID, func(now *entry) error {
		if now.ID != "" {
			return refusef("an agent is called %s already, and names are unique on a machine: choose another", e.ID)
		}
		*now = e
		return nil
	}); err != nil {
		return nil, err
	}
	made, _ := c.find(e.ID)
	return creation{Agent: made.status(), Next: fmt.Sprintf("ask your user to connect it: knoot mcp config %s --agent %s, in %s", configFor(e.Type), e.ID, e.Folder)}, nil
}

// configFor is the client of `knoot mcp config` for a type of agents.
func configFor(kind string) string {
	if kind == "claude" || kind == "codex" {
		return kind
	}
	return "json"
}

// readEntry reads what an agent is to be: the arguments, and what they leave out from a template.
func (c *call) readEntry() (entry, error) {
	said := map[string]string{}
	for _, name := range []string{"template", "name", "folder", "type", "description", "cost"} {
		text, err := c.args.text(name)
		if err != nil {
			return entry{}, err
		}
		said[name] = strings.TrimSpace(text)
	}
	tags, err := c.args.texts("tags")
	if err != nil {
		return entry{}, err
	}
	companion, err := c.args.truth("companion")
	if err != nil {
		return entry{}, err
	}
	template := daemon.Template{}
	if name := said["template"]; name != "" {
		known := false
		if template, known = c.host.Config().Templates[name]; !known {
			return entry{}, refusef("there is no template %q: describe-agents lists them", daemon.Clean(name, maxName))
		}
		said["name"] = cmp.Or(said["name"], name)
		template.Folder = cmp.Or(template.Folder, c.agent.Folder)
		if rest, home := strings.CutPrefix(template.Folder, "~/"); home {
			template.Folder = filepath.Join(c.host.Getenv("HOME"), rest)
		}
		if !c.args.has("tags") {
			tags = template.Tags
		}
	}
	e := entry{ID: said["name"], Name: said["name"], Folder: cmp.Or(said["folder"], template.Folder), Type: cmp.Or(said["type"], template.Type), Secret: newSecret(),
		CreatedBy: c.agent.ID, Description: daemon.Clean(cmp.Or(said["description"], template.Description), maxDescription), Cost: cmp.Or(said["cost"], template.Cost)}
	for _, tag := range tags {
		e.Tags = append(e.Tags, daemon.Clean(tag, maxTag))
	}
	if companion {
		e.Owner = c.agent.ID
	}
	if !filepath.IsAbs(e.Folder) && e.Folder != "" {
		e.Folder = filepath.Join(c.agent.Folder, e.Folder)
	}
	return e, c.checkEntry(&e)
}

func (c *call) checkEntry(e *entry) error {
	for _, each := range []struct{ name, value string }{{"name", e.ID}, {"folder", e.Folder}, {"type", e.Type}} {
		if each.value == "" {
			return refusef("missing required argument %q", each.name)
		}
	}
	if err := checkName(e.ID); err != nil {
		return err
	}
	switch {
	case checkName(e.Type) != nil:
		return refusef("%q is no type of agents", daemon.Clean(e.Type, maxName))
	case e.Type == "shell":
		return refusal("an agent makes no shells: your user does")
	case e.Cost != "" && !slices.Contains(costs, e.Cost):
		return refusef("cost is to be one of %s", strings.Join(costs, ", "))
	case len(e.Tags) > maxTags:
		return refusef("there are %d tags and may be %d", len(e.Tags), maxTags)
	case c.agent.Owner != "":
		return refusal("a companion makes no agents: it talks to its owner alone")
	}
	depth := 1
	for maker, known := c.find(c.agent.CreatedBy); known && depth <= maxDepth; maker, known = c.find(maker.CreatedBy) {
		depth++
	}
	if depth > maxDepth {
		return refusef("you were made by an agent that was made by others, and %d in a row are the most", maxDepth)
	}
	return nil
}

func closeAgent(_ context.Context, c *call) (any, error) {
	id, err := c.args.text("target")
	if err != nil {
		return nil, err
	}
	target, known := c.find(strings.TrimSpace(id))
	switch {
	case !known || target.Workspace != c.agent.Workspace || !c.agent.sees(target.Owner, target.ID):
		return nil, refusef("there is no agent %q here", daemon.Clean(id, maxName))
	case target.CreatedBy != c.agent.ID:
		return nil, refusef("you did not make %s, so it is not yours to close", target.ID)
	}
	closed, err := c.close(target.ID)
	if err != nil {
		return nil, err
	}
	return "Closed " + strings.Join(closed, ", ") + ".", nil
}

// close takes an agent out, with its companions, and with all that was theirs. It returns their ids.
func (s *Server) close(id string) ([]string, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	closed := &record{Closed: []string{id}}
	s.mu.Lock()
	for _, a := range s.agents {
		if a.Owner == id {
			closed.Closed = append(closed.Closed, a.ID)
		}
	}
	s.mu.Unlock()
	slices.Sort(closed.Closed[1:])
	if err := s.keep(closed); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.apply(closed)
	s.mu.Unlock()
	for _, each := range closed.Closed {
		s.connections.forget(each)
		s.host.Forget(each)
	}
	return closed.Closed, nil
}
