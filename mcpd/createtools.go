package mcpd

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"knoot.dev/knoot/daemon"
)

// createTools make and close agents.
func createTools() []*tool {
	return []*tool{
		{group: coordination, name: "create-agent", about: "Make an agent and start it, from a template of describe-agents or of name, folder and type. Your user may have to confirm it.",
			takes: []argument{{name: "template?"}, {name: "name?"}, {name: "folder?", about: "in a worktree of this repository"}, {name: "type?", about: "claude, codex, ..."},
				{name: "description?"}, {name: "tags?", schema: textsSchema}, {name: "cost?", schema: `"type":"string","enum":["low","medium","high"]`},
				{name: "companion?", schema: truthSchema, about: "it talks to you alone"}}, do: createAgent},
		{group: coordination, name: "close-agent", about: "End an agent that you created, for good.", hints: hints{destroys: true}, takes: []argument{{name: "target"}}, do: closeAgent},
	}
}

// creation is the answer to create-agent.
type creation struct {
	ID      string `json:"id"`
	Started bool   `json:"started"`
	Note    string `json:"note,omitempty"` // why it was not
}

func createAgent(ctx context.Context, c *call) (any, error) {
	may := c.host.Config().MCP.AgentsMayStart
	if may == "no" {
		return nil, refusal("agents may start no agents here ([mcp] agents_may_start = \"no\" in your user's config.toml): ask your user to")
	}
	var folder string
	made := entry{CreatedBy: c.agent.ID, Allowed: may == "yes"}
	if err := c.describeNew(&made, &folder); err != nil {
		return nil, err
	}
	if made.Type == "shell" {
		return nil, refusal("a shell is made by a person alone: `knoot agent add`")
	}
	if c.agent.Owner != "" {
		return nil, refusal("a companion makes no agents: it talks to its owner alone")
	}
	if depth := c.depth(c.agent.ID); depth >= maxDepth {
		return nil, refusef("you were made by an agent that was made by an agent: there may be %d of them in a row, and you are the last", maxDepth)
	}
	companion, err := c.args.truth("companion")
	if err != nil {
		return nil, err
	}
	if companion {
		made.Owner = c.agent.ID
	}
	if err := c.folder(ctx, &made, c.agent.Workspace, c.agent.Folder, folder); err != nil {
		return nil, err
	}
	if err := c.register(&made, c.agent.Workspace); err != nil {
		return nil, err
	}
	answer := &creation{ID: made.ID}
	if !made.Allowed {
		answer.Note = fmt.Sprintf("it begins once your user allows it: ask them to run: knoot agent start %s", made.ID)
		c.host.Log().Info("an agent waits for its person", "agent", made.ID, "made by", c.agent.ID)
		return answer, nil
	}
	if err := c.run(made.ID, nil, false); err != nil {
		// What cannot be started was not made.
		if _, ferr := c.remove(made.ID); ferr != nil {
			c.host.Log().Warn("an agent that cannot be started is still there", "agent", made.ID, "error", ferr)
		}
		return nil, err
	}
	answer.Started = true
	return answer, nil
}

// describeNew reads what an agent is to be: its template's, where one is named, under what is said beside it.
func (c *call) describeNew(made *entry, folder *string) (err error) {
	texts := map[string]string{}
	for _, name := range []string{"template", "name", "folder", "type", "description", "cost"} {
		if texts[name], err = c.args.text(name); err != nil {
			return err
		}
		texts[name] = strings.TrimSpace(texts[name])
	}
	tags, err := c.args.texts("tags")
	if err != nil {
		return err
	}
	var t daemon.Template
	if name := texts["template"]; name != "" {
		known := false
		if t, known = c.host.Config().Templates[name]; !known {
			return refusef("there is no template %s: describe-agents lists them", daemon.Clean(name, 40))
		}
		if texts["name"] == "" {
			texts["name"] = c.freeName(name)
		}
	} else {
		for _, name := range []string{"name", "folder", "type"} {
			if texts[name] == "" {
				return refusef("missing required argument %q: without a template it needs name, folder and type", name)
			}
		}
	}
	made.ID, made.Type, *folder = texts["name"], cmp.Or(texts["type"], t.Type), cmp.Or(texts["folder"], t.Folder)
	made.Description, made.Cost = cmp.Or(texts["description"], t.Description), cmp.Or(texts["cost"], t.Cost)
	if made.Tags = tags; len(tags) == 0 {
		made.Tags = append([]string(nil), t.Tags...)
	}
	return nil
}

// freeName is a name like that of a template which no agent has.
func (s *Server) freeName(template string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := template
	for n := 2; s.agents[name] != nil; n++ {
		name = fmt.Sprintf("%s-%d", template, n)
	}
	return name
}

// depth is how many agents made one another until this one was made.
func (s *Server) depth(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	depth := 0
	for a := s.agents[id]; a != nil && a.CreatedBy != "" && depth <= maxDepth; a = s.agents[a.CreatedBy] {
		depth++
	}
	return depth
}

func closeAgent(_ context.Context, c *call) (any, error) {
	target, err := c.args.text("target")
	if err != nil {
		return nil, err
	}
	target = strings.TrimSpace(target)
	of, known := c.find(target)
	switch {
	case !known || of.Workspace != c.agent.Workspace || !c.agent.sees(of.Owner, of.ID):
		return nil, refusef("there is no agent %s in this repository: list-agents names them", daemon.Clean(target, 40))
	case of.CreatedBy != c.agent.ID:
		return nil, refusef("%s was not created by you, so you cannot close it", of.ID)
	}
	closed, err := c.remove(target)
	if err != nil {
		return nil, err
	}
	return "Closed " + strings.Join(closed, ", ") + ".", nil
}
