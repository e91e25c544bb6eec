package mcpd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"knoot.dev/knoot/daemon"
	"knoot.dev/knoot/daemon/socket"
)

const (
	// maxRunning is how many terminal agents run at one time, maxStarts how many are started in startsIn.
	maxRunning = 32
	maxStarts  = 8
	startsIn   = time.Minute
	// maxDepth is how far from a person an agent may be that agents made: one that a person made is 0.
	maxDepth = 3
	// typedAgain is after how long something typed that nothing came of hinders the next no more.
	typedAgain = 30 * time.Second
	// shownAgain is after how long it is looked again whether a program shows what was typed.
	shownAgain = 500 * time.Millisecond
	// firstPrompt is how long a program that has just begun has to look at its terminal.
	firstPrompt = time.Second
	// Environment of a terminal agent, beside KNOOT_AGENT.
	secretVariable = "KNOOT_MCP_TOKEN"
	configVariable = "KNOOT_MCP_CONFIG"
)

// skipping are what stands in flags with which an agent asks its person for nothing, wherever in a word: a word may be a line for a shell,
// or settings. Knoot starts no agent with one.
var skipping = []string{"--dangerously-skip-permissions", "--allow-dangerously-skip-permissions", "bypassPermissions", "--dangerously-bypass-approvals-and-sandbox",
	"--dangerously-bypass-hook-trust", "danger-full-access", "--yolo", "mode=yolo", "mode yolo", "--allow-all"}

// running is a terminal in which an agent runs. Server.mu guards what is not the terminal's own.
type running struct {
	*terminal
	stopped bool      // somebody ended it
	resumed bool      // the agent was to go on with the session that it had
	since   time.Time // when it was first idle; zero: it was not yet
	// presumed says that it counts as idle because it has connected, and that nothing was heard of it.
	presumed bool
	// marks says that its program asks for marks around what is pasted once it reads keys.
	marks     bool
	typed     time.Time // when something was typed that nothing has come of yet; zero: nothing
	own       bool      // the next prompt of which its hooks tell is what was typed here
	ending    *turnEnd  // of its last turn; nil: it works, or something was typed since
	row       int       // how often it was told to continue since it was last done, or its person prompted it
	continued time.Time // when that was last
}

// commandOf is the command line of a type of agent: the person's, else what is built in.
func (s *Server) commandOf(kind string) ([]string, error) {
	command := s.host.Config().Agents[kind].Command
	if len(command) == 0 {
		switch kind {
		case "claude", "codex":
			command = []string{kind}
		case "shell":
			command = []string{cmp.Or(s.host.Getenv("SHELL"), "/bin/sh")}
		default:
			return nil, refusef("there is no command for agents of type %s: set [agents.%[1]s] command in config.toml", daemon.Clean(kind, maxTag))
		}
	}
	line := strings.Join(command, " ")
	for _, flag := range skipping {
		if strings.Contains(line, flag) {
			return nil, refusef("[agents.%s] command in config.toml has %s, with which nobody is asked for anything: knoot starts no agent so; take it out", kind, flag)
		}
	}
	return slices.Clone(command), nil
}

// isHooked says whether knoot knows what a type calls its sessions.
func isHooked(kind string) bool { return kind == "claude" || kind == "codex" }

// command is how an agent is started: with its session, where it goes on with one, and with what it needs to reach this server.
func (s *Server) command(of *agent, environ []string, resume bool, address string) (*exec.Cmd, error) {
	words, err := s.commandOf(of.Type)
	if err != nil {
		return nil, err
	}
	if resume && of.Type == "codex" {
		words = append(words, "resume", of.Session.ID)
	}
	if environ == nil {
		environ = os.Environ()
	}
	environ = slices.DeleteFunc(slices.Clone(environ), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return strings.HasPrefix(name, "GIT_") || strings.HasPrefix(name, "KNOOT_MCP_") || slices.Contains([]string{"KNOOT_AGENT", keyVariable, "PWD", "OLDPWD", "TERM", "LINES", "COLUMNS", "CI"}, name)
	})
	if home := s.host.Getenv("KNOOT_HOME"); home != "" {
		environ = append(environ, "KNOOT_HOME="+home) // its hooks are to reach this daemon
	}
	environ = append(environ, "KNOOT_AGENT="+of.ID, "TERM=xterm-256color", "PWD="+of.Folder)
	if address != "" && of.Type != "shell" {
		at := mcpURL(address, of.ID)
		path, err := s.writeConfig(of, at)
		if err != nil {
			return nil, err
		}
		environ = append(environ, configVariable+"="+path)
		switch of.Type {
		case "claude":
			words = append(words, "--mcp-config", path, "--strict-mcp-config", "--allowedTools=mcp__knoot") // it would ask for each of them
		case "codex":
			environ = append(environ, secretVariable+"="+of.Secret)
			words = append(words, "-c", fmt.Sprintf("mcp_servers.knoot.url=%q", at), "-c", fmt.Sprintf("mcp_servers.knoot.bearer_token_env_var=%q", secretVariable),
				"-c", `mcp_servers.knoot.default_tools_approval_mode="approve"`)
		}
	}
	if resume && of.Type == "claude" {
		words = append(words, "--resume", of.Session.ID)
	}
	program, err := lookPath(words[0], of.Folder, environ)
	if err != nil {
		return nil, err
	}
	return &exec.Cmd{Path: program, Args: words, Env: environ, Dir: of.Folder}, nil
}

// lookPath finds a program on the PATH of an environment. Relative entries do not count: they would be looked up in a repository.
func lookPath(name, folder string, environ []string) (string, error) {
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(folder, name)
		}
		return name, nil
	}
	path := ""
	for _, v := range environ {
		if value, is := strings.CutPrefix(v, "PATH="); is {
			path = value
		}
	}
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue
		}
		if found, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return found, nil
		}
	}
	return "", refusef("there is no program %s on the PATH: install it, or set the command of its type in config.toml", daemon.Clean(name, 80))
}

func mcpURL(address, id string) string {
	return "http://" + address + "/mcp?agent=" + url.QueryEscape(id)
}

// configPath is the file of an agent's configuration, which nobody else may read.
func (s *Server) configPath(id string) string {
	return filepath.Join(s.host.Home(), "agents", id+".json")
}

// writeConfig writes what an agent needs to reach this server, in the form that most clients read.
func (s *Server) writeConfig(of *agent, at string) (path string, err error) {
	path = s.configPath(of.ID)
	text, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"knoot": map[string]any{
		"type": "http", "url": at, "headers": map[string]string{"Authorization": "Bearer " + of.Secret}}}})
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", fmt.Errorf("cannot make the folder of agents' configurations: %w", err)
	}
	return path, writeSecret(path, string(text)+"\n")
}

func (s *Server) removeConfig(id string) {
	if err := os.Remove(s.configPath(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.host.Log().Warn("an agent's configuration is still there", "error", err)
	}
}

// run starts an agent in a terminal. environ is the environment that it gets; nil: the one that it had last, else the daemon's.
// fresh: it begins a new session even where it had one.
func (s *Server) run(id string, environ []string, fresh bool) error {
	s.starting.Lock()
	defer s.starting.Unlock()
	of, known := s.find(id)
	address := s.serves()
	s.mu.Lock()
	ctx := s.alive
	now := time.Now()
	s.starts = slices.DeleteFunc(s.starts, func(at time.Time) bool { return now.Sub(at) >= startsIn })
	there, starts := len(s.terminals), len(s.starts)
	runs := s.terminals[id] != nil
	if environ == nil {
		environ = s.environs[id]
	}
	s.mu.Unlock()
	switch {
	case ctx == nil:
		return errClosed
	case !known:
		return refusef("there is no agent %s", daemon.Clean(id, 40))
	case !of.Terminal:
		return refusef("%s is an agent that its person starts; knoot starts those that `knoot agent add` made", id)
	case !of.Allowed:
		return refusef("%s waits for its person: `knoot agent start %[1]s` allows it", id)
	case runs:
		return refusef("%s runs already", id)
	case there >= maxRunning:
		return refusef("%d agents run, and there may be no more: stop one first", maxRunning)
	case starts >= maxStarts:
		return refusef("%d agents were started within a minute, and there may be no more: wait a moment", maxStarts)
	}
	resume := !fresh && isHooked(of.Type) && of.Session.Agent == of.Type && of.Session.ID != ""
	command, err := s.command(&of, environ, resume, address)
	if err != nil {
		return err
	}
	var before seen
	s.mu.Lock()
	a := s.agents[id]
	if a != nil { // first: what it says of itself once it runs is to stand
		before = a.seen
		a.State, a.Registered, a.changed = "", false, true
	}
	s.mu.Unlock()
	t, err := startTerminal(command) // without mu, for which hooks wait
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if a != nil && a.State == "" && !a.Registered {
			a.State, a.Registered = before.State, before.Registered
		}
		return refusef("%s cannot be started: %v", id, err)
	}
	s.mu.Lock()
	if s.alive != ctx || a == nil || s.agents[id] != a { // what was so when it began is not so any more
		closed := s.alive != ctx
		s.mu.Unlock()
		t.end()
		if closed {
			return errClosed
		}
		return refusef("there is no agent %s any more", id)
	}
	defer s.mu.Unlock()
	r := &running{terminal: t, resumed: resume, marks: isHooked(of.Type) && filepath.Base(command.Path) == of.Type}
	s.terminals[id], s.environs[id], s.starts = r, environ, append(s.starts, now)
	s.stirred(a)
	if a.Registered { // by now
		s.arrived(a)
	}
	s.loops.Go(func() { s.attend(ctx, id, r) })
	s.host.Log().Info("an agent begins", "agent", id, "type", of.Type, "resumed", resume)
	return nil
}

// serves is where it listens; "": nowhere.
func (s *Server) serves() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.serving == nil {
		return ""
	}
	return s.serving.address
}

// attend types to an agent when there is something to type, until its program has ended.
func (s *Server) attend(ctx context.Context, id string, r *running) {
	for {
		var timer <-chan time.Time
		s.consult(id, r)
		if wait := s.prompt(ctx, id, r); wait > 0 {
			timer = time.After(wait)
		}
		select {
		case <-r.wake:
		case <-timer:
		case <-r.ended:
			s.left(id, r)
			return
		}
	}
}

// left takes note that an agent's program has ended. One that was to go on with a session and ended before anything was heard of it
// has no such session any more: it begins anew.
func (s *Server) left(id string, r *running) {
	s.mu.Lock()
	again := false
	r.over()
	if s.terminals[id] == r {
		delete(s.terminals, id)
		if a := s.agents[id]; a != nil {
			again = r.resumed && a.State == "" && s.alive != nil && !r.stopped
			a.State, a.Registered, a.changed = deactivated, false, true
		}
	}
	s.mu.Unlock()
	if again {
		if err := s.run(id, nil, true); err != nil {
			s.host.Log().Warn("an agent cannot be started", "agent", id, "error", err)
		}
	}
}

// prompt types what there is to type to an idle agent, once each time that it is idle: that it has mail, once a message, else that it
// is to continue. It returns after how long to look again; 0: once something has happened.
func (s *Server) prompt(ctx context.Context, id string, r *running) time.Duration {
	on := s.host.Config().Autopilot.Enabled
	s.mu.Lock()
	a := s.agents[id]
	ready := a != nil && s.terminals[id] == r && a.State == idle && (!r.presumed || r.untouched())
	wait := max(time.Until(r.since.Add(firstPrompt)), time.Until(r.typed.Add(typedAgain)))
	typed, end := r.typed, r.ending
	goesOn := on && end != nil && end.goesOn
	var of agent
	if ready {
		of = *a
	}
	s.mu.Unlock()
	if !ready {
		return 0
	}
	unread, err := s.host.Unread(ctx, of.speaker(), false)
	if err != nil {
		if ctx.Err() == nil {
			s.host.Log().Warn("an agent's mail cannot be read", "agent", id, "error", err)
		}
		return 0
	}
	var waiting []string
	news := false
	for _, m := range unread {
		if m.Own {
			waiting = append(waiting, m.ID)
			news = news || !slices.Contains(of.Nudged, m.ID)
		}
	}
	text := socket.Nudge // which says to go on, too
	switch {
	case news:
	case goesOn:
		text = continueText
	default:
		return 0
	}
	if wait > 0 {
		return wait
	}
	if wait, forever := r.quiet(); wait > 0 || forever {
		return wait
	}
	if r.marks && !r.wantsMarks() {
		return 0 // it reads no keys yet
	}
	var entered time.Time
	said, err := r.say(ctx, text, func(stands string) bool {
		_, begun := r.quiet()
		s.mu.Lock()
		defer s.mu.Unlock()
		may := !begun && s.terminals[id] == r && a.State == idle && r.typed.Equal(typed) && (!r.presumed || r.untouched()) &&
			(text != continueText || r.ending == end)
		if may && stands != "" { // before it is typed: what comes of it may be heard at once
			entered = time.Now()
			r.typed, r.own = entered, stands == continueText
			r.over()
		}
		return may
	})
	s.mu.Lock()
	switch {
	case said == socket.Nudge:
		a.Nudged, a.changed = waiting, true
	case said == continueText:
		r.row++
		r.continued = entered
	case !entered.IsZero(): // Enter could not be typed
		r.typed, r.own = time.Time{}, false
	}
	if said != "" && r.presumed { // with no hooks it stays so, and nothing more is typed
		a.State, r.presumed = working, false
	}
	s.mu.Unlock()
	if err == nil && said == socket.Nudge {
		s.flush()
	}
	if err == nil && said == "" && r.stands() {
		return shownAgain
	}
	return 0 // where nothing was said it has ended, or works, or waits for its person: then it is looked again
}

// arrived takes note that an agent has connected. Codex tells its hooks nothing before its first prompt, and connects once it has
// asked its person whatever it has to ask before that: so it is idle, for as long as nobody types to it. mu is held.
func (s *Server) arrived(a *agent) {
	if r := s.terminals[a.ID]; r != nil && a.Type == "codex" && a.State == "" && r.untouched() {
		a.State, a.changed = idle, true
		s.stirred(a)
		r.presumed = true
	}
}

// stirred takes note that something was heard of an agent. mu is held.
func (s *Server) stirred(a *agent) {
	r := s.terminals[a.ID]
	if r == nil {
		return
	}
	r.typed, r.presumed = time.Time{}, false
	switch {
	case a.State != idle:
		r.over()
	case r.since.IsZero():
		r.since = time.Now()
	}
	r.poke()
}

// introduction is what an agent that knoot starts is told once a session, with its id.
const introduction = "knoot started you as the agent %[1]s. With its MCP tools (agentId %[1]s) you can register (register-agent) and look for your teammates " +
	"(list-agents, describe-agents); what they send you is in check-messages."

// Introduction tells a session in a terminal who it is. With nothing to register at it says nothing.
func (s *Server) Introduction(key daemon.SessionKey) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.agents[s.bound[key]]
	if a == nil || s.terminals[a.ID] == nil || s.serving == nil || !slices.Contains(s.tools.Load().groups, coordination) {
		return ""
	}
	return fmt.Sprintf(introduction, a.ID)
}

// Mailed is told that a message waits for an agent; direct: it is for that one alone, and starts an agent that knoot can start.
func (s *Server) Mailed(id string, direct bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.agents[id]
	switch {
	case a == nil || s.alive == nil:
	case s.terminals[id] != nil:
		s.terminals[id].poke()
	case direct && a.Terminal && a.Allowed && a.Type != "shell":
		s.loops.Go(func() {
			if err := s.run(id, nil, false); err != nil {
				s.host.Log().Warn("mail cannot start an agent", "agent", id, "error", err)
			}
		})
	}
}

// stop ends an agent's program. false: none ran.
func (s *Server) stop(id string) bool {
	s.mu.Lock()
	r := s.terminals[id]
	if r != nil {
		r.stopped = true
	}
	s.mu.Unlock()
	if r == nil {
		return false
	}
	r.end()
	s.left(id, r)
	return true
}

// stopAll ends all programs.
func (s *Server) stopAll() {
	s.mu.Lock()
	s.alive = nil
	all := s.terminals
	s.terminals = map[string]*running{}
	for id := range all {
		if a := s.agents[id]; a != nil {
			a.State, a.Registered, a.changed = deactivated, false, true
		}
	}
	s.mu.Unlock()
	done := make(chan struct{})
	for _, r := range all {
		go func() {
			r.end()
			done <- struct{}{}
		}()
	}
	for range all {
		<-done
	}
	s.starting.Lock() // whoever is starting one sees that it closes, and ends it
	defer s.starting.Unlock()
}

// terminalOf returns the terminal in which an agent runs.
func (s *Server) terminalOf(id string) (*terminal, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.terminals[id]; r != nil {
		return r.terminal, true
	}
	return nil, false
}
