package mcpd

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"knoot.dev/knoot/daemon"
)

// ConfigRequest is the body of the operation mcp: what an agent's configuration needs.
type ConfigRequest struct {
	Agent string `json:"agent"`          // made if it is not there
	Type  string `json:"type,omitempty"` // claude, codex or another; "": what it was
}

// ConfigAnswer is the answer to mcp.
type ConfigAnswer struct {
	URL    string `json:"url"`
	Secret string `json:"secret"`
	Made   bool   `json:"made"` // the agent was not there before
}

// AgentRequest is the body of the operation agent.
type AgentRequest struct {
	Do    string `json:"do"` // add, start, ls, stop, rm, attach, show or fill
	Agent string `json:"agent,omitempty"`
	// Of add.
	Type        string   `json:"type,omitempty"`
	Folder      string   `json:"folder,omitempty"` // absolute, or relative to where the command was typed
	Description string   `json:"description,omitempty"`
	Tags        []string `json:"tags,omitempty"`
	Cost        string   `json:"cost,omitempty"`
	// Environ is that of the person who starts an agent, which it gets.
	Environ []string `json:"environ,omitempty"`
	// Of fill: what the person says to an item of its checklist, "" for none, and whether the list is sent to it then.
	Item   string `json:"item,omitempty"`
	Ticked bool   `json:"ticked,omitempty"`
	Answer string `json:"answer,omitempty"`
	Send   bool   `json:"send,omitempty"`
}

// AgentAnswer is the answer to agent, but for ls, which has an array of Status.
type AgentAnswer struct {
	Status *Status `json:"status,omitempty"` // the agent, but for rm
	Did    bool    `json:"did"`              // of add: it was not there; of stop: a program ran
	// URL and Token are where a terminal is shown, and the person's secret; of attach.
	URL   string `json:"url,omitempty"`
	Token string `json:"token,omitempty"`
	Shown *Shown `json:"shown,omitempty"` // of show and fill
}

// Do does the operations mcp and agent.
func (s *Server) Do(ctx context.Context, op, dir string, body json.RawMessage) (any, error) {
	misread := func(err error) error {
		return &daemon.MisuseError{Sentence: fmt.Sprintf("the request of %s is not one: %v", op, err)}
	}
	if op == "mcp" {
		var r ConfigRequest
		if err := json.Unmarshal(body, &r); err != nil {
			return nil, misread(err)
		}
		return s.configure(ctx, dir, r)
	}
	var r AgentRequest
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, misread(err)
	}
	place, err := s.host.Place(ctx, dir)
	if err != nil {
		return nil, err
	}
	if s.Address(ctx) == "" && s.opened() == nil {
		return nil, errClosed
	}
	if r.Do == "ls" {
		return s.workspace(place.Repository), nil
	}
	if r.Do == "add" {
		return s.add(ctx, dir, place, r)
	}
	if of, known := s.find(r.Agent); !known || of.Workspace != place.Repository {
		return nil, refusef("there is no agent %s in this repository: `knoot agent ls` lists them", daemon.Clean(r.Agent, 40))
	}
	answer := &AgentAnswer{}
	switch r.Do {
	case "start":
		if _, err := s.change(r.Agent, func(e *entry) error {
			e.Allowed = e.Terminal
			return nil
		}); err != nil {
			return nil, err
		}
		err = s.run(r.Agent, r.Environ, false)
	case "stop":
		answer.Did = s.stop(r.Agent)
	case "rm":
		_, err := s.remove(r.Agent)
		return &AgentAnswer{Did: err == nil}, err
	case "show":
		answer.Shown = s.shown(r.Agent)
	case "fill":
		if r.Item != "" {
			err = s.fillIn(r.Agent, r.Item, r.Ticked, r.Answer)
		}
		if err == nil && r.Send {
			err = s.sendChecklist(ctx, r.Agent)
		}
		answer.Shown = s.shown(r.Agent)
	case "attach":
		if _, runs := s.terminalOf(r.Agent); !runs {
			return nil, refusef("%s does not run in a terminal of knoot's: `knoot agent start %[1]s` starts it", r.Agent)
		}
		address := s.serves()
		if address == "" {
			return nil, refusal(cmp.Or(s.Problem(), "the coordination server is off ([mcp] enabled in config.toml), and terminals are shown through it"))
		}
		s.mu.Lock()
		answer.URL, answer.Token = "http://"+address+"/api/v1/agent/terminal", s.person
		s.mu.Unlock()
	default:
		err = misread(fmt.Errorf("there is nothing to do that is called %q", r.Do))
	}
	if err != nil {
		return nil, err
	}
	if of, known := s.find(r.Agent); known {
		status := of.status()
		answer.Status = &status
	}
	return answer, nil
}

// opened is of what goes on while it is open; nil: it is not.
func (s *Server) opened() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.alive
}

// configure says what an agent's configuration needs, and makes the agent if it is not there.
func (s *Server) configure(ctx context.Context, dir string, r ConfigRequest) (*ConfigAnswer, error) {
	if err := checkName(r.Agent); err != nil {
		return nil, err
	}
	place, err := s.host.Place(ctx, dir)
	if err != nil {
		return nil, err
	}
	address := s.Address(ctx)
	if address == "" {
		return nil, refusal(cmp.Or(s.Problem(), "the coordination server is off ([mcp] enabled in config.toml), so there is nothing to connect to"))
	}
	made := false
	kept, err := s.change(r.Agent, func(e *entry) error {
		if made = e.ID == ""; made {
			*e = entry{ID: r.Agent, Name: r.Agent, Workspace: place.Repository, Type: "agent", Secret: newSecret()}
		}
		if e.Workspace != place.Repository {
			return errElsewhere(r.Agent)
		}
		e.Folder, e.Type = place.Root, cmp.Or(r.Type, e.Type)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &ConfigAnswer{URL: mcpURL(address, r.Agent), Secret: kept.Secret, Made: made}, nil
}

func errElsewhere(name string) error {
	return refusef("an agent of another repository is called %s, and names are unique on a machine: choose another", name)
}

// workspace returns the agents of a repository, by id.
func (s *Server) workspace(repository string) []Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []Status{}
	for _, a := range s.agents {
		if a.Workspace == repository {
			out = append(out, a.status())
		}
	}
	for key, v := range s.visits {
		if v.workspace == repository {
			out = append(out, v.status(key))
		}
	}
	slices.SortFunc(out, func(a, b Status) int {
		return cmp.Or(strings.Compare(a.ID, b.ID), strings.Compare(a.SessionID, b.SessionID))
	})
	return out
}

// add makes a terminal agent for the person, or says more of an agent that is there.
func (s *Server) add(ctx context.Context, dir string, place daemon.Place, r AgentRequest) (*AgentAnswer, error) {
	made := entry{ID: r.Agent, Type: r.Type, Description: r.Description, Tags: r.Tags, Cost: r.Cost, Allowed: true}
	of, there := s.find(r.Agent)
	if there && of.Workspace == place.Repository {
		made.Type = cmp.Or(made.Type, of.Type)
		if made.Type != of.Type {
			return nil, refusef("%s is of type %s, and stays so: take it away with `knoot agent rm %[1]s` first", of.ID, of.Type)
		}
		if err := made.clean(); err != nil {
			return nil, err
		}
		if _, err := s.change(r.Agent, func(now *entry) error {
			now.Description, now.Cost = cmp.Or(made.Description, now.Description), cmp.Or(made.Cost, now.Cost)
			if len(made.Tags) > 0 {
				now.Tags = made.Tags
			}
			return nil
		}); err != nil {
			return nil, err
		}
	} else {
		if err := s.folder(ctx, &made, place.Repository, dir, r.Folder); err != nil {
			return nil, err
		}
		if err := s.register(&made, place.Repository); err != nil {
			return nil, err
		}
	}
	of, _ = s.find(r.Agent)
	status := of.status()
	return &AgentAnswer{Status: &status, Did: !there}, nil
}

// folder makes an agent's folder the worktree of a repository that folder is in, which is relative to dir, or absolute; "": dir.
func (s *Server) folder(ctx context.Context, e *entry, repository, dir, folder string) error {
	if !filepath.IsAbs(folder) {
		folder = filepath.Join(dir, folder)
	}
	real, err := filepath.EvalSymlinks(folder)
	if err != nil {
		return refusef("there is no folder %s", daemon.Clean(folder, 200))
	}
	place, err := s.host.Place(ctx, real)
	if err != nil || place.Repository != repository {
		return refusef("%s is in no worktree of this repository in which knoot is on, and agents work in those alone", daemon.Clean(folder, 200))
	}
	e.Folder = place.Root
	return nil
}

// clean checks what is said of an agent, and has it as it may be shown to others.
func (e *entry) clean() error {
	if e.Cost != "" && !slices.Contains(costs, e.Cost) {
		return refusef("cost is to be one of %s", strings.Join(costs, ", "))
	}
	if len(e.Tags) > maxTags {
		return refusef("it has %d tags and may have %d", len(e.Tags), maxTags)
	}
	for i, tag := range e.Tags {
		if e.Tags[i] = daemon.Clean(tag, maxTag); e.Tags[i] == "" {
			return refusal("a tag is empty")
		}
	}
	e.Description = daemon.Clean(e.Description, maxDescription)
	return nil
}

// register keeps a new terminal agent. What is said of it may come from an agent.
func (s *Server) register(e *entry, repository string) error {
	if err := checkName(e.ID); err != nil {
		return err
	}
	if e.Type = strings.TrimSpace(e.Type); e.Type == "" {
		return refusal("say of which type it is: claude, codex, or another that config.toml has a command for")
	}
	if _, err := s.commandOf(e.Type); err != nil {
		return err
	}
	if err := e.clean(); err != nil {
		return err
	}
	made := *e
	_, err := s.change(e.ID, func(now *entry) error {
		switch {
		case now.ID != "" && now.Workspace != repository:
			return errElsewhere(e.ID)
		case now.ID != "":
			return refusef("there is an agent %s already: choose another name, or take that one away with `knoot agent rm`", e.ID)
		}
		*now = made
		now.Name, now.Workspace, now.Terminal, now.Secret = e.ID, repository, true, newSecret()
		return nil
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.agents[e.ID]; a != nil {
		a.State, a.changed = deactivated, true
	}
	return nil
}

// remove ends agents and forgets all of them: one, and its companions. It returns who that was.
func (s *Server) remove(id string) ([]string, error) {
	s.mu.Lock()
	gone := []string{id}
	for _, a := range s.agents {
		if a.Owner == id {
			gone = append(gone, a.ID)
		}
	}
	s.mu.Unlock()
	slices.Sort(gone[1:])
	for _, each := range gone {
		s.stop(each)
	}
	if err := s.forget(gone); err != nil {
		return nil, err
	}
	for _, each := range gone {
		s.stop(each) // one that was started until it was forgotten
		s.connections.forget(each)
		s.host.Forget(each)
		s.removeConfig(each)
	}
	return gone, nil
}

// forget drops what is kept of agents.
func (s *Server) forget(ids []string) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	closed := &record{Closed: ids}
	if err := s.keep(closed); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.apply(closed)
	return nil
}
