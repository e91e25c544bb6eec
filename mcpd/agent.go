package mcpd

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"knoot.dev/knoot/daemon"
)

// States of an agent, which follow from what its hooks say. One of which no hook was seen has none.
const (
	idle          = "idle"
	working       = "working"
	awaitingInput = "awaiting-input"
	deactivated   = "deactivated"
	isTemplate    = "template" // in the place of a state
)

// Costs of an agent; one that says nothing is medium.
var costs = []string{"low", "medium", "high"}

// entry is what is kept of an agent.
type entry struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	Workspace   string   `json:"workspace"` // the repository; see daemon.Place
	Folder      string   `json:"folder"`    // root of its worktree
	Type        string   `json:"type"`      // claude, codex, shell or another
	Secret      string   `json:"secret"`
	Status      string   `json:"status,omitempty"`
	Owner       string   `json:"owner,omitempty"` // of a companion
	CreatedBy   string   `json:"created_by,omitempty"`
	Terminal    bool     `json:"terminal,omitempty"` // the daemon runs it in a pseudo-terminal
	Allowed     bool     `json:"allowed,omitempty"`  // of a terminal agent: its person lets it be started
	Description string   `json:"description,omitempty"`
	Tags        []string `json:"tags,omitempty"`
	Cost        string   `json:"cost,omitempty"`
}

// seen is what was seen of an agent, and is kept from time to time.
type seen struct {
	State      string             `json:"state,omitempty"`
	Session    daemon.SessionKey  `json:"session,omitzero"`
	Registered bool               `json:"registered,omitempty"`
	Metadata   map[string]string  `json:"metadata,omitempty"`
	Subagents  map[string]subwork `json:"subagents,omitempty"` // by id
	Nudged     []string           `json:"nudged,omitempty"`    // ids of the unread messages of which it was told by its terminal
}

// subwork is a subagent's work.
type subwork struct {
	Task  string `json:"task"`
	Kind  string `json:"kind,omitempty"`
	State string `json:"state"`            // running, finished or failed
	Why   string `json:"reason,omitempty"` // of failed
}

// agent is an agent with a name of its own. Server.mu guards it; its entry is replaced as a whole.
type agent struct {
	entry
	seen
	changed bool // seen is not kept as it is
}

// visit is a session that lives and is no agent with a name of its own: an agent that is known by its hooks alone.
type visit struct {
	workspace string
	folder    string
	name      string // KNOOT_AGENT
	state     string
}

// Status is an agent as others see it: an element of GET /api/v1/agent/status, list-agents and describe-agents. The keys up to
// Metadata come first, in this order.
type Status struct {
	ID         string            `json:"id"`
	Name       string            `json:"name"`
	Folder     string            `json:"folder"`
	State      string            `json:"state"`
	Status     string            `json:"status"`
	Registered bool              `json:"registered"`
	Type       string            `json:"type"`
	SessionID  string            `json:"session_id,omitempty"`
	Metadata   map[string]string `json:"metadata,omitempty"`

	Description string   `json:"description,omitempty"`
	Tags        []string `json:"tags,omitempty"`
	Cost        string   `json:"cost,omitempty"`
	Owner       string   `json:"owner,omitempty"`
	CreatedBy   string   `json:"created_by,omitempty"`
	// Tools are the groups of tools that it can reach; only describe-agents says so.
	Tools []string `json:"tools,omitempty"`
}

func (a *agent) status() Status {
	return Status{ID: a.ID, Name: a.Name, Folder: a.Folder, State: a.State, Status: a.entry.Status, Registered: a.Registered, Type: a.Type,
		SessionID: a.Session.ID, Metadata: maps.Clone(a.Metadata), Description: a.Description, Tags: slices.Clone(a.Tags),
		Cost: cmp.Or(a.Cost, "medium"), Owner: a.Owner, CreatedBy: a.CreatedBy}
}

func (v *visit) status(key daemon.SessionKey) Status {
	return Status{ID: visitID(key), Name: cmp.Or(v.name, visitID(key)), Folder: v.folder, State: v.state, Type: key.Agent, SessionID: key.ID, Cost: "medium"}
}

// visitID is what a session without a name of its own is called: its agent and the first 8 of its id.
func visitID(key daemon.SessionKey) string {
	id := []rune(key.ID)
	return key.Agent + "-" + string(id[:min(len(id), 8)])
}

// speaker is an agent for which the daemon does something.
func (a *agent) speaker() daemon.Speaker {
	return daemon.Speaker{ID: a.ID, Type: a.Type, Session: a.Session, Root: a.Folder}
}

// sees reports whether an agent may know of another in its workspace: a companion of its owner, and nobody but the owner of a
// companion.
func (a *agent) sees(owner, id string) bool {
	if a.Owner != "" {
		return id == a.Owner || id == a.ID
	}
	return owner == "" || owner == a.ID
}

// ranked orders entries as they are recommended: whoever lives and is idle, then whoever lives, then templates; the cheap first, then
// by name.
func ranked(of []Status) {
	group := func(s *Status) int {
		switch s.State {
		case idle:
			return 0
		case isTemplate:
			return 2
		}
		return 1
	}
	slices.SortStableFunc(of, func(a, b Status) int {
		return cmp.Or(group(&a)-group(&b), slices.Index(costs, a.Cost)-slices.Index(costs, b.Cost), strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID))
	})
}

// carries reports whether tags include all that are wanted. A tag is a text that is equal to another without regard to case, and
// nothing more.
func carries(tags, wanted []string) bool {
	for _, w := range wanted {
		if !slices.ContainsFunc(tags, func(tag string) bool { return strings.EqualFold(tag, w) }) {
			return false
		}
	}
	return true
}
