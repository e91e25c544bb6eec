package main

import (
	"errors"

	"knoot.dev/knoot/daemon"
	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/gitlog"
)

// agentMarkers are variables that agents set for what they run. One of them says that no person typed the command.
var agentMarkers = []string{
	"CLAUDECODE", "CLAUDE_CODE_SESSION_ID", "KNOOT_AGENT", "AI_AGENT",
	"CODEX_SANDBOX", "CODEX_SANDBOX_NETWORK_DISABLED", "CODEX_THREAD_ID", "CODEX_SESSION_ID",
	"CURSOR_AGENT", "GEMINI_CLI", "OPENCODE", "COPILOT_CLI",
}

// caller says who runs the command.
func (c *console) caller() *socket.Caller {
	caller := &socket.Caller{
		Name:      c.getenv("KNOOT_AGENT"),
		User:      c.getenv("KNOOT_USER"),
		Terminal:  onTerminal(c.stdin) || onTerminal(c.stderr),
		Ancestors: socket.Ancestors(),
	}
	for _, marker := range agentMarkers {
		if c.getenv(marker) != "" {
			caller.Agent = true
		}
	}
	// Where one agent runs the other both are set, and their processes say who is nearer.
	switch claude, codex := c.getenv("CLAUDE_CODE_SESSION_ID"), c.getenv("CODEX_SESSION_ID"); {
	case claude != "" && codex == "":
		caller.Session = claude
	case codex != "" && claude == "":
		caller.Session, caller.SessionAgent = codex, "codex"
	}
	return caller
}

// errNeedsPerson refuses what an agent could use to get around its own denial. It is no security boundary.
var errNeedsPerson = errors.New("this needs a person: ask your user to run it")

// needPerson refuses an agent: a marker of one is in the environment, or a live session's process is an ancestor.
func (c *console) needPerson() error {
	caller := c.caller()
	if caller.Agent {
		return errNeedsPerson
	}
	home, err := gitlog.OpenHome(c.getenv)
	if err != nil {
		return nil // no home, so no sessions; what is done next says so
	}
	live, err := daemon.LiveSessions(home, gitlog.MillisOf(c.now()))
	if err != nil {
		return err
	}
	if daemon.AuthorOf(caller, live).Session != "" {
		return errNeedsPerson
	}
	return nil
}
