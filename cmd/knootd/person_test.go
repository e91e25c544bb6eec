package main

import "testing"

func TestCallerIsTheSessionThatTheEnvironmentNames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		claude, codex         string
		session, agent, label string
	}{
		{claude: "monday", session: "monday", label: "Claude Code's"},
		{codex: "tuesday", session: "tuesday", agent: "codex", label: "Codex's"},
		{claude: "monday", codex: "tuesday", label: "one within the other"},
	} {
		console, _, _ := testConsole(t)
		env := map[string]string{"CLAUDE_CODE_SESSION_ID": c.claude, "CODEX_SESSION_ID": c.codex}
		console.getenv = func(key string) string { return env[key] }
		if got := console.caller(); got.Session != c.session || got.SessionAgent != c.agent || !got.Agent {
			t.Errorf("%s: %+v", c.label, got)
		}
	}
}
