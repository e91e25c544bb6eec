package mcpd

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestCreateAgent(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.stop()
	m.Write(filepath.Join(m.KnootHome, "config.toml"), "[mcp]\nport = 0\n[templates.reviewer]\ntype = \"codex\"\ndescription = \"reviews\"\ntags = [\"go\"]\ncost = \"low\"\n")
	m.start()
	alice := m.members("alice", "bob")[0]
	elsewhere := m.repository("ledger")
	var made creation
	alice.call("create-agent", args{"name": "carol", "folder": "src", "type": "claude", "tags": "docs", "cost": "high", "description": "writes\nmanuals"}, &made)
	if e := made.Agent; e.ID != "carol" || e.Folder != m.repo || e.Type != "claude" || e.CreatedBy != "alice" || e.Owner != "" || e.Cost != "high" || e.Description != "writes manuals" ||
		!slices.Equal(e.Tags, []string{"docs"}) || e.Registered || !strings.Contains(made.Next, "knoot mcp config claude --agent carol") {
		t.Errorf("made %+v", made)
	}
	made = creation{}
	alice.call("create-agent", args{"template": "reviewer"}, &made)
	if e := made.Agent; e.ID != "reviewer" || e.Type != "codex" || e.Cost != "low" || e.Description != "reviews" || !slices.Equal(e.Tags, []string{"go"}) || e.Folder != m.repo {
		t.Errorf("from a template %+v", e)
	}
	link := filepath.Join(m.repo, "link")
	if err := os.Symlink(elsewhere, link); err != nil {
		t.Fatal(err)
	}
	full := func(name string, more args) args {
		out := args{"name": name, "folder": m.repo, "type": "claude"}
		for k, v := range more {
			out[k] = v
		}
		return out
	}
	for want, arguments := range map[string]args{
		`missing required argument "name"`:   {"folder": "src", "type": "claude"},
		`missing required argument "folder"`: {"name": "dora", "type": "claude"},
		`missing required argument "type"`:   {"name": "dora", "folder": "src"},
		"is called carol already":            full("carol", nil),
		"is called bob already":              full("bob", nil),
		"no name for an agent":               full("a b", nil),
		"in no worktree of this repository":  full("dora", args{"folder": elsewhere}),
		"is in no worktree":                  full("dora", args{"folder": link}),
		"cannot be used":                     full("dora", args{"folder": "nowhere"}),
		"makes no shells":                    full("dora", args{"type": "shell"}),
		"no type of agents":                  full("dora", args{"type": "claude --dangerous"}),
		"one of low, medium, high":           full("dora", args{"cost": "free"}),
		`no template "nobody"`:               {"template": "nobody"},
	} {
		alice.refused("create-agent", arguments, want)
	}
	m.stop()
	m.start()
	if ids, _ := alice.list("list-agents", nil); !slices.Equal(ids, []string{"alice", "bob", "carol", "reviewer"}) {
		t.Errorf("after a restart there are %q", ids)
	}
}

func TestAgentsMakeOneAnotherThreeDeep(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	maker := m.members("root")[0]
	for _, name := range []string{"one", "two", "three"} {
		maker.call("create-agent", args{"name": name, "folder": m.repo, "type": "claude"}, nil)
		maker = m.agent(name, "", m.repo)
	}
	maker.refused("create-agent", args{"name": "four", "folder": m.repo, "type": "claude"}, "3 in a row")
}

// Only who made an agent closes it; its graph and its mail go with it.
func TestCloseAgent(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	both := m.members("alice", "bob")
	alice, bob := both[0], both[1]
	alice.call("create-agent", args{"name": "carol", "folder": m.repo, "type": "claude"}, nil)
	carol := m.agent("carol", "", m.repo)
	carol.call("create-agent", args{"name": "pet", "folder": m.repo, "type": "claude", "companion": "yes"}, nil)
	pet := m.agent("pet", "", m.repo)
	pet.refused("create-agent", args{"name": "flea", "folder": m.repo, "type": "claude"}, "a companion makes no agents")
	carol.plan("a")
	bob.send("carol", "hello")
	bob.refused("close-agent", args{"target": "carol"}, "did not make carol")
	alice.refused("close-agent", args{"target": "pet"}, `no agent "pet" here`) // a companion is its owner's alone
	alice.refused("close-agent", args{"target": "alice"}, "did not make alice")
	if text := alice.call("close-agent", args{"target": "carol"}, nil); text != "Closed carol, pet." {
		t.Errorf("closing says %q", text)
	}
	if answer := carol.post(ping); answer.status != 403 {
		t.Errorf("a closed agent is answered %+v", answer)
	}
	bob.refused("send-message", args{"to": "carol", "message": "x"}, "nobody here is called")
	m.stop()
	m.start()
	if ids, _ := alice.list("list-agents", nil); !slices.Equal(ids, []string{"alice", "bob"}) {
		t.Errorf("after a restart there are %q", ids)
	}
	again := m.agent("carol", "claude", m.repo) // another one of that name
	again.wantInbox()
	if len(again.tasks()) != 0 || again.secret == carol.secret {
		t.Error("it has what the one before had")
	}
}
