package mcpd

import (
	"slices"
	"testing"
)

func TestAgentsMakeOneAnotherThreeDeep(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	maker := m.members("root")[0]
	for _, name := range []string{"one", "two", "three"} {
		maker.call("create-agent", args{"name": name, "folder": m.repo, "type": "claude"}, nil)
		maker = m.agent(name, "", m.repo)
	}
	maker.refused("create-agent", args{"name": "four", "folder": m.repo, "type": "claude"}, "3 of them in a row")
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
	bob.refused("close-agent", args{"target": "carol"}, "not created by you")
	alice.refused("close-agent", args{"target": "pet"}, "no agent pet") // a companion is its owner's alone
	alice.refused("close-agent", args{"target": "alice"}, "not created by you")
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
