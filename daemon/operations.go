package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"

	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/gitlog"
)

// Workplace is where an operation of a command is done: a clone whose lock is held, one of its worktrees, and this
// person's settings. The daemon and a command that works without it do the same with it.
type Workplace struct {
	Home   *gitlog.Home
	Clone  *gitlog.Clone
	Tree   *gitlog.Tree
	Config Config
	// Host says how the host is asked where an operation needs it: Ask and Progress count.
	Host gitlog.SyncOptions
}

// Drafted is the answer to an operation whose fact stays on this machine until its person confirms it.
type Drafted struct {
	Draft bool   `json:"draft"` // true
	Name  string `json:"name"`
}

// Written is the answer to remember, cache, plan and confirm.
type Written struct {
	ID    gitlog.EntryID `json:"id"`
	Name  string         `json:"name,omitempty"`
	Paths []string       `json:"paths,omitempty"` // of remember and cache: as they were asked, relative to the root
}

// Forgotten is the answer to forget.
type Forgotten struct {
	IDs []gitlog.EntryID `json:"ids"`
}

// MisuseError is a request that makes no sense; a command exits 2.
type MisuseError struct{ Sentence string }

func (e *MisuseError) Error() string { return e.Sentence }

// Perform does an operation that writes: remember, cache, plan, confirm, forget or team. body is the JSON of gitlog's request
// of that operation, or a TeamRequest; its author is replaced by author, and its paths may be absolute, too, since only git says
// where the root is, and a command is spared asking. The answer is *Written, *Forgotten, *Drafted or
// *TeamAnswer. Errors are a *gitlog.Refusal (nothing was done, and why), a *MisuseError, or what failed.
func Perform(ctx context.Context, w Workplace, op string, body json.RawMessage, author gitlog.Author) (any, error) {
	switch op {
	case "remember", "cache":
		var r gitlog.RememberRequest
		if err := readBody(op, body, &r); err != nil {
			return nil, err
		}
		r.Author, r.Kind = author, gitlog.KindFact
		if op == "cache" {
			r.Kind = gitlog.KindCache
		}
		var err error
		if r.Paths, err = w.inTree(r.Paths); err != nil {
			return nil, err
		}
		if author.By != gitlog.ByPerson && w.Config.Memory.AgentFacts == "review" {
			return w.draft(r)
		}
		s, err := w.Clone.Remember(ctx, w.Tree, r)
		if err != nil {
			return nil, err
		}
		return &Written{ID: s.ID(), Name: s.Fact.Name, Paths: r.Paths}, nil
	case "plan":
		var r gitlog.PlanRequest
		if err := readBody(op, body, &r); err != nil {
			return nil, err
		}
		r.Author = author
		var err error
		if r.Paths, err = w.inTree(r.Paths); err != nil {
			return nil, err
		}
		return written(w.Clone.SetPlan(ctx, w.Tree, r))
	case "confirm":
		var r gitlog.ConfirmRequest
		if err := readBody(op, body, &r); err != nil {
			return nil, err
		}
		r.Author = author
		if answer, found, err := w.confirmDraft(ctx, r); found || err != nil {
			return answer, err
		}
		return written(w.Clone.Confirm(ctx, w.Tree, r))
	case "forget":
		var r gitlog.ForgetRequest
		if err := readBody(op, body, &r); err != nil {
			return nil, err
		}
		r.Author = author
		if found, err := w.forgetDraft(r); found || err != nil {
			return &Forgotten{IDs: []gitlog.EntryID{}}, err
		}
		ids, err := w.Clone.Forget(ctx, w.Tree, r)
		if err != nil {
			return nil, err
		}
		return &Forgotten{IDs: ids}, nil
	case "team":
		var r TeamRequest
		if err := readBody(op, body, &r); err != nil {
			return nil, err
		}
		return changeTeam(ctx, w.Clone, r, w.Host)
	}
	return nil, &MisuseError{Sentence: fmt.Sprintf("there is no operation %q", op)}
}

// inTree makes the paths of a request relative to the root, with slashes.
func (w Workplace) inTree(paths []string) ([]string, error) {
	root := w.Tree.Root()
	if root == "" {
		return paths, nil // none can be named in a bare repository, which is said where they are looked at
	}
	out := make([]string, len(paths))
	for i, path := range paths {
		if out[i] = path; !filepath.IsAbs(path) {
			continue
		}
		rel, err := filepath.Rel(root, path)
		if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
			return nil, &MisuseError{Sentence: fmt.Sprintf("%s is outside of this repository (%s)", path, root)}
		}
		out[i] = filepath.ToSlash(rel)
	}
	return out, nil
}

func readBody(op string, body json.RawMessage, into any) error {
	if err := json.Unmarshal(body, into); err != nil {
		return &MisuseError{Sentence: fmt.Sprintf("the request of %s is not one: %v", op, err)}
	}
	return nil
}

func written(s *gitlog.Stored, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	if s == nil { // there was no plan to clear
		return &Written{}, nil
	}
	w := &Written{ID: s.ID()}
	if s.Fact != nil {
		w.Name = s.Fact.Name
	}
	return w, nil
}

// LiveSession is a session that runs, as far as is known: for whom a command speaks.
type LiveSession struct {
	Agent, ID string
	Name      string // KNOOT_AGENT
	Process   int    // 0 unknown
	birth     uint64 // of the process
}

// AuthorOf says for whom a command works: the session named in its environment, else the live session whose process is
// its nearest ancestor, else the only one that has the name in its environment, else a person at a terminal, else an agent
// that nobody knows.
func AuthorOf(caller *socket.Caller, live []LiveSession) gitlog.Author {
	if caller == nil {
		return gitlog.Author{By: gitlog.ByAgent}
	}
	if caller.Session != "" {
		agent := caller.SessionAgent
		if agent == "" {
			// The variable is Claude Code's. Where a live session has that id it says whose it is.
			agent = "claude"
			for _, s := range live {
				if s.ID == caller.Session {
					agent = s.Agent
				}
			}
		}
		return gitlog.Author{By: gitlog.ByAgent, Session: agent + ":" + caller.Session}
	}
	for _, process := range caller.Ancestors {
		for _, s := range live {
			if process != 0 && s.Process == process && (s.birth == 0 || s.birth == birthOf(process)) {
				return gitlog.Author{By: gitlog.ByAgent, Session: s.Agent + ":" + s.ID}
			}
		}
	}
	if caller.Name != "" {
		var named []LiveSession
		for _, s := range live {
			if s.Name == caller.Name {
				named = append(named, s)
			}
		}
		if len(named) == 1 {
			return gitlog.Author{By: gitlog.ByAgent, Session: named[0].Agent + ":" + named[0].ID}
		}
	}
	if !caller.Agent && caller.Terminal {
		return gitlog.Author{By: gitlog.ByPerson}
	}
	return gitlog.Author{By: gitlog.ByAgent}
}

// LiveSessions reads which sessions run from the state in a home directory; a daemon may be running or not. Without keys,
// or without a state, there are none.
func LiveSessions(home *gitlog.Home, now gitlog.Millis) ([]LiveSession, error) {
	device, err := home.Device()
	if errors.Is(err, gitlog.ErrNoDevice) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	all := sessions{}
	if err := readStates(home.Dir, &device.Local, all.apply); err != nil {
		return nil, err
	}
	return all.live(now), nil
}

func (all sessions) live(now gitlog.Millis) []LiveSession {
	var out []LiveSession
	for _, s := range all {
		if s.live(now) {
			out = append(out, LiveSession{Agent: s.key.Agent, ID: s.key.ID, Name: s.name, Process: s.process, birth: s.birth})
		}
	}
	return out
}

// operate answers the request of a command.
func (d *daemon) operate(ctx context.Context, req *socket.Request, conn *net.UnixConn) *socket.Response {
	body, err := d.operation(ctx, req, conn)
	if err == nil {
		return bodyOf(body)
	}
	var misuse *MisuseError
	var refusal *gitlog.Refusal
	switch {
	case errors.As(err, &misuse):
		return failure(codeMisuse, misuse.Error())
	case errors.As(err, &refusal):
		return failure(codeRefused, refusal.Error())
	}
	return failure(codeFailed, err.Error())
}

func (d *daemon) operation(ctx context.Context, req *socket.Request, conn *net.UnixConn) (any, error) {
	live := false // it is about who is at work now, and writes no log
	switch req.Op {
	case "remember", "cache", "plan", "confirm", "forget", "sync", "team", "accept":
	case "who", "hubs", "wait", "release", "take", "msg", "inbox", "watch", "present", "touched":
		live = true
	case "mcp", "agent":
		if d.coordinator != nil {
			return d.coordinator.Do(ctx, req.Op, req.Dir, req.Body)
		}
		fallthrough
	default:
		return nil, &MisuseError{Sentence: fmt.Sprintf("this daemon (version %s) does not know the operation %q", socket.Version, req.Op)}
	}
	wt, err := d.worktreeOf(ctx, req.Dir)
	if err != nil {
		return nil, err
	}
	oc := wt.clone
	oc.use()
	now := d.now()
	off := oc.paused(now) || paused(d.home.Dir+"/off", now)
	if live {
		if off && req.Op != "inbox" {
			return nil, errPaused
		}
		return d.here(ctx, wt, req, conn)
	}
	if req.Op == "accept" { // what a plain fetch brought, before somebody reads
		if moved := oc.refreshIfMoved(); moved != nil {
			select {
			case <-moved:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		return struct{}{}, nil
	}
	if err := oc.writes(); err != nil {
		if oc.lock(); oc.writes() != nil {
			return nil, err
		}
	}
	if req.Op == "sync" {
		return d.syncNow(ctx, oc, req.Body)
	}
	if off {
		return nil, errPaused
	}
	author := d.authorOf(req.Caller)
	session, inSession := parseSession(author.Session)
	if req.Op == "plan" && inSession && d.isPrivate(session) {
		return nil, &gitlog.Refusal{Sentence: "this session is private (KNOOT_PRIVATE=1), so its plan is not shared; nothing was written"}
	}
	w := Workplace{Home: d.home, Clone: oc.clone, Tree: wt.tree, Config: d.config.now()}
	answer, err := Perform(ctx, w, req.Op, req.Body, author)
	var refusal *gitlog.Refusal
	if errors.As(err, &refusal) && inSession && (req.Op == "remember" || req.Op == "cache") {
		d.refusedMemory(ctx, wt, session)
	}
	if err != nil {
		return nil, err
	}
	if _, draft := answer.(*Drafted); !draft {
		oc.sync.changed(true)
		oc.later(wt.facts.warm)
	}
	if req.Op == "team" && oc.relay != nil {
		oc.relay.tick() // whoever was removed is cut off now
	}
	if req.Op == "plan" && inSession {
		d.planned(ctx, wt, session)
	}
	return answer, nil
}

// refusedMemory takes note, for the audit log, that a session was refused something to remember. What it was is nobody's business.
func (d *daemon) refusedMemory(ctx context.Context, wt *worktree, key sessionKey) {
	d.state.mu.Lock()
	s := d.state.sessions[key]
	person := ""
	if s != nil {
		person = s.person
	}
	d.state.mu.Unlock()
	if s != nil {
		wt.clone.arbiter.declare(wt.party(ctx, key, "", person), gitlog.MemoryRefused, "", "", sessionKey{})
	}
}

// worktreeOf returns the worktree that a directory is in, open.
func (d *daemon) worktreeOf(ctx context.Context, dir string) (*worktree, error) {
	root := d.clones.rootOf(dir)
	if root == "" {
		repo, err := gitlog.FindRepository(ctx, dir)
		if err != nil {
			return nil, err
		}
		if root = repo.Root; root == "" {
			root = repo.CommonDir
		}
	}
	return d.clones.find(ctx, root)
}

// isPrivate says whether a session shares no words.
func (d *daemon) isPrivate(key sessionKey) bool {
	d.state.mu.Lock()
	defer d.state.mu.Unlock()
	s := d.state.sessions[key]
	return s != nil && s.private
}

// SyncRequest is the body of the operation sync; the zero value fetches and pushes everything.
type SyncRequest struct {
	FetchOnly bool `json:"fetch_only,omitempty"`
}

func (d *daemon) syncNow(ctx context.Context, oc *openClone, body json.RawMessage) (any, error) {
	var r SyncRequest
	if len(body) > 0 {
		if err := readBody("sync", body, &r); err != nil {
			return nil, err
		}
	}
	oc.flush(ctx)
	return oc.sync.sync(ctx, gitlog.SyncOptions{Fetch: true, Push: !r.FetchOnly, Audit: true})
}
