package mcpd

import (
	"context"
	"strings"

	"knoot.dev/knoot/daemon"
)

func registryTools() []*tool {
	return []*tool{
		{group: coordination, name: "register-agent", about: "Register yourself. Returns how much mail you have and who else is here.", hints: hints{again: true},
			takes: []argument{{name: "sessionId?", about: "your session's id, if you know it"}}, do: registerAgent},
		{group: coordination, name: "list-agents", about: "List the agents of this repository that you may see: folder, state, status and what they are for.", hints: hints{reads: true}, do: listAgents},
		{group: coordination, name: "describe-agents", about: "List the agents that carry every one of these tags, whom to ask first first; templates are agents that could be made.", hints: hints{reads: true},
			takes: []argument{{name: "tags?", schema: textsSchema}}, do: describeAgents},
		{group: coordination, name: "set-status", about: "Say in a few words what you are doing; an empty text clears it.", hints: hints{again: true},
			takes: []argument{{name: "status", mayBeEmpty: true}}, do: setStatus},
	}
}

// registration is the answer to register-agent, and to the route of that name.
type registration struct {
	Unread  int      `json:"unread"`
	Newest  string   `json:"newest"` // id of the newest unread message; "": there is none
	Members []Status `json:"members"`
}

func registerAgent(ctx context.Context, c *call) (any, error) {
	session, err := c.args.text("sessionId")
	if err != nil {
		return nil, err
	}
	if session = strings.TrimSpace(session); session != "" {
		if err := c.bindSession(&c.agent, session); err != nil {
			return nil, err
		}
		c.flush()
	}
	return c.registration(ctx, c.agent.ID)
}

// registration says what an agent is told that registers.
func (s *Server) registration(ctx context.Context, id string) (*registration, error) {
	of, known := s.find(id)
	if !known {
		return nil, refusef("there is no agent %s any more", id)
	}
	unread, err := s.host.Unread(ctx, of.speaker(), false)
	if err != nil {
		return nil, err
	}
	out := &registration{Unread: len(unread), Members: s.visible(&of)}
	if n := len(unread); n > 0 {
		out.Newest = unread[n-1].ID
	}
	return out, nil
}

func listAgents(_ context.Context, c *call) (any, error) { return c.visible(&c.agent), nil }

func describeAgents(_ context.Context, c *call) (any, error) {
	tags, err := c.args.texts("tags")
	if err != nil {
		return nil, err
	}
	return c.described(&c.agent, tags), nil
}

func setStatus(_ context.Context, c *call) (any, error) {
	status, err := c.args.text("status")
	if err != nil {
		return nil, err
	}
	status = daemon.Clean(status, maxStatus)
	if _, err := c.change(c.agent.ID, func(e *entry) error {
		e.Status = status
		return nil
	}); err != nil {
		return nil, err
	}
	if status == "" {
		return "Your status is cleared.", nil
	}
	return "Your status is: " + status, nil
}
