package daemon

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	"knoot.dev/knoot/daemon/socket"
)

// processEvery is how often the daemon looks whether the agents' processes still run.
const processEvery = 5 * time.Second

// agentPrograms are programs that run an agent's sessions. What starts hooks has one of them among its ancestors.
var agentPrograms = []string{"claude", "codex", "cursor-agent", "gemini", "opencode", "amp", "aider", "goose", "copilot", "crush", "qwen"}

// agentPackages are folders of packages whose scripts are agents, where the script's own name does not say so.
var agentPackages = []string{"node_modules/@anthropic-ai/claude-code/", "node_modules/@openai/codex/", "node_modules/@google/gemini-cli/"}

// interpreters run a script that their arguments name.
var interpreters = []string{"node", "bun", "deno", "python", "python3", "ruby"}

// isAgentProgram says whether a process with this command line runs an agent.
func isAgentProgram(args []string) bool {
	if len(args) == 0 {
		return false
	}
	name := filepath.Base(args[0])
	if slices.Contains(agentPrograms, name) {
		return true
	}
	if !slices.Contains(interpreters, name) {
		return false
	}
	for _, arg := range args[1:] {
		if strings.HasPrefix(arg, "-") {
			continue
		}
		script := filepath.Base(arg)
		return slices.Contains(agentPrograms, strings.TrimSuffix(script, filepath.Ext(script))) ||
			slices.ContainsFunc(agentPackages, func(dir string) bool { return strings.Contains(arg, dir) })
	}
	return false
}

// agentProcess is the process that a hook's session runs in: the one that the agent names itself, else the nearest ancestor
// that is known to be an agent; 0 where neither is. Then nobody knows when it ends, and leases alone count.
func agentProcess(h *socket.Hook) int {
	if h.Process != 0 {
		return h.Process
	}
	for _, process := range h.Ancestors {
		if process > 1 && isAgentProgram(commandLineOf(process)) {
			return process
		}
	}
	return 0
}

// processWatch tells when the process of a session has ended without a word. Sessions whose process is not known are not
// watched.
type processWatch struct {
	live func() []LiveSession // sessions that run, as far as is known
	gone func(key sessionKey) // called once for each process that is gone
	told map[LiveSession]bool // of which gone was called; only look uses it
	born func(pid int) uint64 // birthOf
}

func newProcessWatch(live func() []LiveSession, gone func(sessionKey)) *processWatch {
	return &processWatch{live: live, gone: gone, told: map[LiveSession]bool{}, born: birthOf}
}

// run looks every few seconds until end is closed.
func (w *processWatch) run(end <-chan struct{}) {
	ticker := time.NewTicker(processEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			w.look()
		case <-end:
			return
		}
	}
}

// look tells of what has gone since the last look. A process whose start is not known is as good as unknown: its id may be
// another's by now.
func (w *processWatch) look() {
	still := map[LiveSession]bool{}
	for _, s := range w.live() {
		if s.Process == 0 || s.birth == 0 || w.born(s.Process) == s.birth {
			continue
		}
		still[s] = true
		if !w.told[s] {
			w.gone(sessionKey{Agent: s.Agent, ID: s.ID})
		}
	}
	w.told = still
}

func (d *daemon) liveSessions() []LiveSession {
	d.state.mu.Lock()
	defer d.state.mu.Unlock()
	return d.state.sessions.live(d.now())
}

// processGone ends what a session claimed whose process ended without a word. The session itself may be resumed.
func (d *daemon) processGone(key sessionKey) {
	d.guard("process gone", func() {
		d.log.Info("the process of a session is gone", "session", key)
		for _, a := range d.arbitrations.all() {
			a.gone(key)
		}
		if d.coordinator != nil {
			d.coordinator.Hear(SessionEvent{Session: key, Event: GoneEvent})
		}
	})
}
