package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/gitlog"
)

// Coordinator is the server through which agents find, write to and plan with each other (package mcpd), as the daemon sees it.
// Its methods may be called from several goroutines; Hear, Mailed, Agents, AgentOf and Introduction call nothing of the Host's, since the daemon
// is in the middle of something then.
type Coordinator interface {
	// Open begins to serve. It may be called again after Close.
	Open()
	// Close ends serving, and whatever is under way.
	Close()
	// Tick comes every few seconds.
	Tick()
	// Hear is told of every event of a session. Hooks wait for it.
	Hear(SessionEvent)
	// Agents returns the agents of a repository, as Place names it, by id.
	Agents(repository string) []Agent
	// AgentOf returns which agent a session is; false: none that has a name of its own.
	AgentOf(SessionKey) (Agent, bool)
	// Introduction is what a session is told once, in a line of at most 300 bytes, of which agent it is and what it can do; "": nothing.
	Introduction(SessionKey) string
	// Mailed is told that a message waits for an agent, by id; direct: it is for that one alone.
	Mailed(agent string, direct bool)
	// Do does an operation of a command: mcp or agent. The answer is encoded as JSON.
	Do(ctx context.Context, op, dir string, body json.RawMessage) (any, error)
	// Problem says in a sentence why it does not serve although it should; "" where it does, or should not.
	Problem() string
	// Unpiloted says in a sentence why autopilot does nothing for some agents although it is on; "": it does, or is off.
	Unpiloted() string
}

// SessionKey names a session.
type SessionKey = sessionKey

// Agent is an agent that has a name of its own, as far as messages are concerned.
type Agent struct {
	ID      string
	Session SessionKey // that it is now, or was last; zero: none
	Owner   string     // of a companion: the id of the agent that it talks to, and to no other
	Deaf    bool       // it gets no messages: a shell
	// Registered says that it has a connection, or had one and was not seen to end.
	Registered bool
}

// SessionEvent is a hook's event, or GoneEvent.
type SessionEvent struct {
	Session    SessionKey
	Subagent   string // "": the session itself
	Event      string // hook_event_name as the agent sent it
	Reason     string // of a Notification: its type
	Name       string // KNOOT_AGENT
	Person     string // KNOOT_USER
	Root       string // of the worktree
	Repository string // see Place
	// Prompted says that something prompts the session itself which is no machine's doing, as far as its agent tells.
	Prompted bool
	// Ended says that the session's turn ends, and nothing of it goes on in the background; Said is what the agent said last in it,
	// where that is known.
	Ended bool
	Said  string
}

// GoneEvent is the event of a session whose process has ended without a word.
const GoneEvent = "ProcessGone"

// Place is a worktree in which knoot is on.
type Place struct {
	Root       string
	Repository string // clones of one repository say the same
}

// Speaker is an agent for which a Host does something.
type Speaker struct {
	ID      string     // of the agent
	Type    string     // claude, codex or another
	Session SessionKey // that it is; zero: it has no hooks
	Root    string     // of the worktree that it works in
}

// key is the session that acts for the agent. One without hooks is a session of its own.
func (s Speaker) key() sessionKey {
	if s.Session != (sessionKey{}) {
		return s.Session
	}
	return sessionKey{Agent: s.Type, ID: s.ID}
}

func (s Speaker) caller() *socket.Caller {
	key := s.key()
	return &socket.Caller{Session: key.ID, SessionAgent: key.Agent, Name: s.ID, Agent: true}
}

// Host is what the daemon does for its Coordinator. Errors that are a *MisuseError or IsRefusal say what to do.
type Host struct{ d *daemon }

// Now is the daemon's time.
func (h *Host) Now() time.Time { return h.d.options.Now() }

// Log is the daemon's log.
func (h *Host) Log() *slog.Logger { return h.d.log }

// Home is the folder of this person's knoot, ~/.knoot.
func (h *Host) Home() string { return h.d.loc.Home }

// Getenv is the daemon's environment.
func (h *Host) Getenv(name string) string { return h.d.options.Getenv(name) }

// Config is the person's settings as they are now.
func (h *Host) Config() Config { return h.d.config.now() }

// IsRefusal reports whether an error says that something was understood and not done, and why.
func IsRefusal(err error) bool {
	var refusal *gitlog.Refusal
	return errors.As(err, &refusal)
}

// Place returns the worktree that dir is in.
func (h *Host) Place(ctx context.Context, dir string) (Place, error) {
	wt, err := h.d.worktreeOf(ctx, dir)
	if err != nil {
		return Place{}, err
	}
	return Place{Root: wt.root, Repository: repositoryOf(wt.clone.clone)}, nil
}

// Event of a session that lives: its last one is not known any more.
const resumedEvent = "Resumed"

// Sessions returns the sessions that live, as events of which only where and who is known; for a coordinator that begins.
func (h *Host) Sessions(ctx context.Context) []SessionEvent {
	now := h.d.now()
	h.d.state.mu.Lock()
	var out []SessionEvent
	for key, s := range h.d.state.sessions {
		if s.live(now) && s.home != "" {
			out = append(out, SessionEvent{Session: key, Event: resumedEvent, Name: s.name, Person: s.person, Root: s.home})
		}
	}
	h.d.state.mu.Unlock()
	out = slices.DeleteFunc(out, func(e SessionEvent) bool { return !filepath.IsAbs(e.Root) })
	for i := range out {
		if wt, err := h.d.clones.find(ctx, out[i].Root); err == nil {
			out[i].Repository = repositoryOf(wt.clone.clone)
		}
	}
	return slices.DeleteFunc(out, func(e SessionEvent) bool { return e.Repository == "" })
}

// coordinate has the coordinator serve.
func (d *daemon) coordinate() {
	if d.coordinator != nil {
		d.guard("coordinator", d.coordinator.Open)
	}
}

func (d *daemon) uncoordinate() {
	if d.coordinator != nil {
		d.guard("coordinator", d.coordinator.Close)
	}
}

// hear tells the coordinator of the hook.
func (c *hookCall) hear() {
	d, h, wt := c.d, c.h, c.places[0].tree
	if d.coordinator == nil || wt == nil {
		return
	}
	e := SessionEvent{Session: c.key, Subagent: h.Subagent, Event: h.Event, Reason: h.Reason, Name: h.Name, Person: h.User, Root: wt.root,
		Repository: repositoryOf(wt.clone.clone)}
	if h.Subagent == "" && !c.repeated {
		e.Prompted = h.Event == EventPrompt && !h.Machine
		e.Ended = h.Event == eventStop && len(h.Tasks) == 0
	}
	if e.Ended && !h.Repaired && !h.Private && d.config.now().Autopilot.Enabled {
		e.Said = h.Said
	}
	d.guard("coordinator", func() { d.coordinator.Hear(e) })
}

// agentOf returns which agent a session is.
func (d *daemon) agentOf(key sessionKey) (Agent, bool) {
	if d.coordinator == nil {
		return Agent{}, false
	}
	return d.coordinator.AgentOf(key)
}

// introduction is what a session is told once of who it is.
func (d *daemon) introduction(key sessionKey) (text string) {
	if d.coordinator != nil {
		d.guard("coordinator", func() { text = d.coordinator.Introduction(key) })
	}
	return text
}

// mailed tells the coordinator where a message waits; direct: for one reader alone.
func (d *daemon) mailed(to []mailbox, direct bool) {
	if d.coordinator == nil {
		return
	}
	for _, box := range to {
		if id, is := strings.CutPrefix(string(box), "#"); is {
			d.guard("coordinator", func() { d.coordinator.Mailed(id, direct) })
		}
	}
}

func agentBox(id string) mailbox { return mailbox("#" + id) }

// Send sends a message from an agent to somebody on this machine. The answer's Urgent says whether it holds a turn open.
func (h *Host) Send(ctx context.Context, as Speaker, r MessageRequest) (*MessageAnswer, error) {
	wt, here, from, err := h.sender(ctx, as)
	if err != nil {
		return nil, err
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	if r.To == toAll {
		return nil, &MisuseError{Sentence: `a message goes to one: "all" is what broadcast-message is for`}
	}
	to, err := here.find(r.To, from)
	if err != nil {
		return nil, err
	}
	msg := newMessage(wt.clone, from, r, to, h.d.now())
	if err := h.d.mail.send(msg); err != nil {
		return nil, err
	}
	return msg.answer(to), nil
}

// Broadcast sends a message from an agent to each other agent here that is registered and has ears, and returns how many these
// are. One whose mailbox is full is left out.
func (h *Host) Broadcast(ctx context.Context, as Speaker, text string) (int, error) {
	wt, here, from, err := h.sender(ctx, as)
	if err != nil {
		return 0, err
	}
	r := MessageRequest{To: toAll, Text: text}
	if err := r.check(); err != nil {
		return 0, err
	}
	now := h.d.now()
	var to []addressee
	for _, a := range here.here {
		if a.registered && a.box != from.box && !a.deaf && from.reaches(&a) && !h.d.mail.isFull(a.box, now) {
			to = append(to, a)
		}
	}
	if len(to) == 0 {
		return 0, nil
	}
	return len(to), h.d.mail.send(newMessage(wt.clone, from, r, to, now))
}

// SendAsPerson sends a message from the person at this machine to an agent. It may be long, since the person asked for it.
func (h *Host) SendAsPerson(ctx context.Context, dir, to, text string) error {
	wt, err := h.d.worktreeOf(ctx, dir)
	if err != nil {
		return err
	}
	here := h.d.present(ctx, wt.clone)
	from := h.d.sender(&socket.Caller{Terminal: true}, wt.clone, here)
	found, err := here.find(to, &from)
	if err != nil {
		return err
	}
	return h.d.mail.send(newMessage(wt.clone, &from, MessageRequest{To: to, Text: text}, found, h.d.now()))
}

// sender finds an agent among those that are here.
func (h *Host) sender(ctx context.Context, as Speaker) (*worktree, *addressees, *addressee, error) {
	wt, err := h.d.worktreeOf(ctx, as.Root)
	if err != nil {
		return nil, nil, nil, err
	}
	here := h.d.present(ctx, wt.clone)
	for i := range here.here {
		if here.here[i].box == agentBox(as.ID) {
			return wt, here, &here.here[i], nil
		}
	}
	return nil, nil, nil, &gitlog.Refusal{Sentence: "there is no agent " + quoteText(as.ID, maxNameBytes) + " in this repository"}
}

// Unread returns what an agent has not read, oldest first; with read it waits no more.
func (h *Host) Unread(ctx context.Context, as Speaker, read bool) ([]Message, error) {
	wt, err := h.d.worktreeOf(ctx, as.Root)
	if err != nil {
		return nil, err
	}
	look := h.d.mail.unread
	if read {
		look = h.d.mail.take
	}
	return look(repositoryOf(wt.clone.clone), h.d.readerOf(wt.clone, as.key(), agentBox(as.ID)), h.d.now())
}

// Forget drops what is in the mailbox of an agent that is no more.
func (h *Host) Forget(id string) {
	if err := h.d.mail.drop(agentBox(id), h.d.now()); err != nil {
		h.d.log.Error("messages cannot be dropped", "error", err)
	}
}

// Remember publishes a fact of an agent's; the paths are relative to the root of its worktree, or absolute.
func (h *Host) Remember(ctx context.Context, as Speaker, name, text string, paths []string) (any, error) {
	return h.operate(ctx, as, "remember", gitlog.RememberRequest{Name: name, Text: text, Paths: paths})
}

// Plan says what an agent means to do and what it decided; nothing of either: its plan is done.
func (h *Host) Plan(ctx context.Context, as Speaker, text string, decided []string) (any, error) {
	return h.operate(ctx, as, "plan", gitlog.PlanRequest{Text: text, Decided: decided, Clear: strings.TrimSpace(text) == "" && len(decided) == 0})
}

// Who says who is at work where an agent is.
func (h *Host) Who(ctx context.Context, as Speaker) (*WhoAnswer, error) {
	standing, err := h.operate(ctx, as, "who", nil)
	if err != nil {
		return nil, err
	}
	return standing.(*Standing).Answer(), nil
}

// Release ends an agent's own claims on paths. One that it does not hold is an error; those before it were released.
func (h *Host) Release(ctx context.Context, as Speaker, paths []string) ([]string, error) {
	paths, err := h.relative(ctx, as, paths)
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		if _, err := h.operate(ctx, as, "release", PathRequest{Path: path}); err != nil {
			return nil, err
		}
	}
	return paths, nil
}

// operate does the operation of a command, for an agent.
func (h *Host) operate(ctx context.Context, as Speaker, op string, body any) (any, error) {
	if err := h.meet(ctx, as); err != nil {
		return nil, err
	}
	text, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	return h.d.operation(ctx, &socket.Request{Op: op, Dir: as.Root, Caller: as.caller(), Body: text}, nil)
}

// meet makes an agent without hooks known as a session, as its hooks would have.
func (h *Host) meet(ctx context.Context, as Speaker) error {
	if as.Session != (sessionKey{}) {
		return nil
	}
	wt, err := h.d.worktreeOf(ctx, as.Root)
	if err != nil {
		return err
	}
	st := h.d.state
	st.mu.Lock()
	defer st.mu.Unlock()
	now := h.d.now()
	st.ready(now)
	st.commit(&stateRecord{At: now, Session: as.key(), Start: &sessionStart{Home: wt.root, Name: as.ID}})
	return nil
}

// Recall finds what memory holds where an agent works, as `recall --json` has it: words and a path may be empty.
func (h *Host) Recall(ctx context.Context, as Speaker, words, path string) (any, error) {
	wt, err := h.reads(ctx, as)
	if err != nil {
		return nil, err
	}
	q := gitlog.RecallQuery{Words: strings.Fields(words)}
	if path != "" {
		paths, err := (Workplace{Tree: wt.tree}).inTree([]string{path})
		if err != nil {
			return nil, err
		}
		q.Path = paths[0]
	}
	found, err := wt.clone.clone.Recall(ctx, wt.tree, q, h.d.now())
	if found == nil {
		found = []gitlog.Recalled{}
	}
	return found, err
}

// Why tells a file's story, as `why --json` has it.
func (h *Host) Why(ctx context.Context, as Speaker, path string) (any, error) {
	wt, err := h.reads(ctx, as)
	if err != nil {
		return nil, err
	}
	paths, err := (Workplace{Tree: wt.tree}).inTree([]string{path})
	if err != nil {
		return nil, err
	}
	return wt.clone.clone.Why(ctx, wt.tree, paths[0], h.d.now())
}

// reads returns the worktree of an agent once what a plain fetch brought has been read.
func (h *Host) reads(ctx context.Context, as Speaker) (*worktree, error) {
	if _, err := h.d.operation(ctx, &socket.Request{Op: "accept", Dir: as.Root}, nil); err != nil {
		return nil, err
	}
	return h.d.worktreeOf(ctx, as.Root)
}

func (h *Host) relative(ctx context.Context, as Speaker, paths []string) ([]string, error) {
	wt, err := h.d.worktreeOf(ctx, as.Root)
	if err != nil {
		return nil, err
	}
	return (Workplace{Tree: wt.tree}).inTree(paths)
}

// Ledger is a file of records R in the daemon's state, each sealed under this device's key. Its owner has a lock around it. On a
// device without keys nothing is kept.
type Ledger[R any] struct {
	h     *Host
	name  string
	visit func(*R)
	file  *stateFile[R] // nil: it was not opened, or was closed
}

// OpenLedger opens a ledger, and gives its records to visit in their order; one that does not open is left out, and logged.
func OpenLedger[R any](h *Host, name string, visit func(*R)) (*Ledger[R], error) {
	l := &Ledger[R]{h: h, name: stateName(name, h.d.loc), visit: visit}
	return l, l.open()
}

func (l *Ledger[R]) open() error {
	if l.file != nil {
		return nil
	}
	device, err := l.h.d.home.Device()
	if errors.Is(err, gitlog.ErrNoDevice) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(l.path()), 0o700); err != nil {
		return fmt.Errorf("cannot make the daemon's state: %w", err)
	}
	file, damaged, err := openStateFile(l.path(), device.Local, l.visit)
	if damaged > 0 {
		l.h.d.log.Warn("some records do not open and are left out", "file", l.name, "records", damaged)
	}
	l.file = file
	return err
}

func (l *Ledger[R]) path() string { return filepath.Join(l.h.d.home.Dir, "state", l.name) }

// Append writes records, which survive this process and the machine from then on.
func (l *Ledger[R]) Append(records ...*R) error {
	if err := l.open(); err != nil || l.file == nil {
		return err
	}
	if err := l.file.append(records...); err != nil {
		return err
	}
	return l.file.sync()
}

// Size is how many bytes the file has.
func (l *Ledger[R]) Size() int64 {
	if l.file == nil {
		return 0
	}
	return l.file.size
}

// Rewrite puts records in the place of all that was written.
func (l *Ledger[R]) Rewrite(records []*R) error {
	if err := l.open(); err != nil || l.file == nil {
		return err
	}
	file, err := rewriteState(l.path(), l.file.key, records)
	if err != nil {
		return err
	}
	_ = l.file.close() // it is no longer at its path
	l.file = file
	return nil
}

// Close ends writing.
func (l *Ledger[R]) Close() error {
	if l.file == nil {
		return nil
	}
	defer func() { l.file = nil }()
	return l.file.close()
}

// HasCredential reports whether a text looks like it holds a credential.
func HasCredential(text string) bool { return gitlog.Withheld(text) }

// Clean is a text that somebody else chose as it may be shown to an agent: on one line, without a control, format or otherwise
// invisible character, cut to at most max bytes.
func Clean(text string, max int) string { return cleanText(text, max) }
