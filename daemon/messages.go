package daemon

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/gitlog"
)

const (
	// maxMessage is what one message may weigh, in bytes of UTF-8; a brief shows 500 of them.
	maxMessage = 4000
	// maxUnread is how many messages wait for one reader; more are refused until some are read.
	maxUnread = 200
	// maxRead is how many messages that were read a mailbox keeps; the oldest of them goes for one more.
	maxRead = 100
	// messageKept is how long a message waits to be read, and is kept at most.
	messageKept = gitlog.Millis(7 * 24 * 60 * 60 * 1000)
	// urgentEvery and urgentMost bound urgent messages: so many from one sender to one reader in that time, since each holds a
	// turn open. More of them are ordinary.
	urgentEvery = gitlog.Millis(60 * 60 * 1000)
	urgentMost  = 3
	// mailRewrite is the least size at which the file of messages is written anew.
	mailRewrite = 1 << 20
)

// Message is a message as whoever it was sent to reads it: an element of `inbox --json`.
type Message struct {
	ID     string `json:"id"`
	From   string `json:"from"` // whom an answer is sent to
	Kind   string `json:"kind"` // of the sender: agent or person
	To     string `json:"to"`   // as the sender named it
	At     string `json:"at"`   // RFC 3339
	Urgent bool   `json:"urgent"`
	Text   string `json:"text"`
	// Own says that it waits in the mailbox of the agent or session, and not of its person.
	Own bool `json:"-"`
}

// KeptMessage is an element of `inbox --all --json`.
type KeptMessage struct {
	Message
	Read bool `json:"read"` // before it was asked for
}

// MessageRequest is the body of the operation msg.
type MessageRequest struct {
	To     string `json:"to"`
	Text   string `json:"text"`
	Urgent bool   `json:"urgent,omitempty"`
}

// MessageAnswer is the answer to msg.
type MessageAnswer struct {
	ID string   `json:"id"`
	To []string `json:"to"` // who will hear it
	// Urgent says that it holds a turn open; a fourth urgent one within an hour does not.
	Urgent bool `json:"urgent"`
}

// InboxRequest is the body of the operation inbox, whose answer is an array of Message, with All of KeptMessage, oldest first.
type InboxRequest struct {
	Peek bool `json:"peek,omitempty"` // they stay unread
	All  bool `json:"all,omitempty"`  // with those that were read and are kept
}

// mailbox is what messages are in: a session's, "<agent>:<session id>", that of an agent with a name of its own, "#<id>",
// or a person's, "@<address>".
type mailbox string

// reader is who reads messages.
type reader struct {
	session mailbox // "" for a person outside of a session
	agent   mailbox // that the session is; "": none with a name of its own
	person  mailbox
}

// in returns the mailbox in which a message waits for a reader, "" where it does not.
func (r reader) in(msg *message) mailbox {
	return r.which(msg, func(box mailbox) bool { return slices.Contains(msg.Unread, box) })
}

// which returns the mailbox, of those that have a message, in which a reader finds it; "": in none. A session reads its person's mail,
// but for what went to all, which it has itself. Nobody reads what they sent.
func (r reader) which(msg *message, has func(mailbox) bool) mailbox {
	switch {
	case msg.Sender != "" && (msg.Sender == r.session || msg.Sender == r.agent):
	case msg.Sender == r.person && msg.To == toAll: // whose person sent it knows
	case r.session != "" && has(r.session):
		return r.session
	case r.agent != "" && has(r.agent):
		return r.agent
	case msg.Sender != r.person && (r.session == "" || msg.To != toAll) && has(r.person):
		return r.person
	}
	return ""
}

// message is a message that somebody has not read yet, or has read and keeps.
type message struct {
	ID         string        `json:"id"`
	Repository string        `json:"repository"` // see repositoryOf
	At         gitlog.Millis `json:"at"`
	From       string        `json:"from"`
	Sender     mailbox       `json:"sender,omitempty"` // "": an agent that nobody knows
	Kind       string        `json:"kind"`
	To         string        `json:"to"`
	Urgent     bool          `json:"urgent,omitempty"`
	Text       string        `json:"text"`
	Unread     []mailbox     `json:"unread"` // by whom

	name    string // KNOOT_AGENT of the sender, while it is sent
	spooled bool   // it was left to be sent, with this id; likewise
	nth     uint64 // orders those that are here by when they came
}

// mailRecord is one change of the messages.
type mailRecord struct {
	Sent *message `json:"sent,omitempty"`
	// Read are the ids of messages that Reader has read.
	Read   []string `json:"read,omitempty"`
	Reader mailbox  `json:"reader,omitempty"`
	// Gone is a mailbox that is no more, with all that was in it.
	Gone mailbox `json:"gone,omitempty"`
	// Spooled is the id of a request in a spool that is done, and At when it was.
	Spooled string        `json:"spooled,omitempty"`
	At      gitlog.Millis `json:"at,omitempty"`
}

// mail is what is unread on this machine, and what was read lately, in memory and in a file in ~/.knoot.
type mail struct {
	home *gitlog.Home
	name string // of the file
	log  *slog.Logger
	sent func(to []mailbox, direct bool) // is told where each message waits that was stored, with no lock held

	// writing is held by whoever changes something, from what the change follows from until it is on the disk; it is taken
	// before mu. Whoever only reads, as every brief does, waits for no disk.
	writing sync.Mutex
	urgent  map[[2]mailbox][]gitlog.Millis // guarded by writing: when urgent ones were sent, by sender and reader
	done    map[string]gitlog.Millis       // guarded by writing: ids of requests in spools that are done, and when they were

	mu       sync.Mutex
	messages []*message             // unread by somebody, oldest first; read with writing or mu, changed with both
	kept     map[mailbox][]*message // read, by whose mailbox they are in, oldest first; likewise
	came     uint64                 // guarded by writing and mu: how many came
	file     *stateFile[mailRecord] // nil while this device has no keys; as messages. What is in it is guarded by writing
	shrunk   int64                  // guarded by writing: the file's size when it was written anew last, in bytes
}

func newMail(home *gitlog.Home, name string, log *slog.Logger, sent func([]mailbox, bool)) *mail {
	return &mail{home: home, name: name, log: log, sent: sent, urgent: map[[2]mailbox][]gitlog.Millis{}, done: map[string]gitlog.Millis{},
		kept: map[mailbox][]*message{}}
}

// open reads the file, and writes it anew without what nobody needs. writing is held.
func (m *mail) open(now gitlog.Millis) error {
	if m.file != nil {
		return nil
	}
	device, err := m.home.Device()
	if errors.Is(err, gitlog.ErrNoDevice) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := m.move(); err != nil {
		return err
	}
	if err := m.read(m.path(), device.Local); err != nil {
		return err
	}
	return m.rewrite(now)
}

func (m *mail) path() string { return filepath.Join(m.home.Dir, m.name) }

// move takes the file over from where it was in the first versions, the state folder.
func (m *mail) move() error {
	if _, err := os.Lstat(m.path()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(filepath.Join(m.home.Dir, "state", m.name), m.path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot move the file of messages: %w", err)
	}
	return nil
}

// read is open without the writing anew.
func (m *mail) read(path string, key [32]byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.messages, m.kept, m.done = nil, map[mailbox][]*message{}, map[string]gitlog.Millis{}
	file, damaged, err := openStateFile(path, key, m.apply)
	if err != nil {
		return err
	}
	if damaged > 0 {
		m.log.Warn("some messages do not open and are left out", "records", damaged)
	}
	m.file = file
	return nil
}

// load opens the file, so that the first hook does not wait for it.
func (m *mail) load(now gitlog.Millis) error {
	m.writing.Lock()
	defer m.writing.Unlock()
	return m.open(now)
}

// close ends writing. The file is opened again by whatever is done next.
func (m *mail) close() {
	m.writing.Lock()
	defer m.writing.Unlock()
	if m.file == nil {
		return
	}
	if err := m.file.close(); err != nil {
		m.log.Error("messages are not kept", "error", err)
	}
	m.mu.Lock()
	m.file = nil
	m.mu.Unlock()
}

// apply makes a change in memory. writing and mu are held.
func (m *mail) apply(r *mailRecord) {
	if r.Sent != nil {
		m.came++
		r.Sent.nth = m.came
		m.messages = append(m.messages, r.Sent)
	}
	if r.Spooled != "" {
		m.done[r.Spooled] = r.At
	}
	if r.Reader != "" {
		m.takeOut(r.Reader, func(msg *message) bool {
			read := slices.Contains(r.Read, msg.ID)
			if read {
				m.keep(r.Reader, msg)
			}
			return read
		})
	}
	if r.Gone != "" {
		m.takeOut(r.Gone, func(*message) bool { return true })
		delete(m.kept, r.Gone)
	}
}

// takeOut has messages wait in a mailbox no more. writing and mu are held.
func (m *mail) takeOut(box mailbox, which func(*message) bool) {
	m.messages = slices.DeleteFunc(m.messages, func(msg *message) bool {
		if slices.Contains(msg.Unread, box) && which(msg) {
			msg.Unread = slices.DeleteFunc(msg.Unread, func(b mailbox) bool { return b == box })
		}
		return len(msg.Unread) == 0
	})
}

// keep has a message that was read stay in a mailbox. writing and mu are held.
func (m *mail) keep(box mailbox, msg *message) {
	kept := append(m.kept[box], msg)
	m.kept[box] = slices.Delete(kept, 0, max(0, len(kept)-maxRead))
}

// commit makes a change, in the file, which is synced, and in memory. writing is held, mu is not, and the file is open, or there
// are no keys.
func (m *mail) commit(now gitlog.Millis, records ...*mailRecord) error {
	if m.file != nil {
		if err := m.file.append(records...); err != nil {
			return err
		}
		if err := m.file.sync(); err != nil {
			return err
		}
	}
	m.mu.Lock()
	for _, r := range records {
		m.apply(r)
	}
	m.mu.Unlock()
	if m.file != nil && m.file.size >= max(mailRewrite, 2*m.shrunk) {
		return m.rewrite(now)
	}
	return nil
}

// rewrite puts what is there, and not too old, in the place of the file. writing is held, mu is not.
func (m *mail) rewrite(now gitlog.Millis) error {
	old := func(msg *message) bool { return msg.At+messageKept < now }
	m.mu.Lock()
	m.messages = slices.DeleteFunc(m.messages, old)
	for box, kept := range m.kept {
		if m.kept[box] = slices.DeleteFunc(kept, old); len(m.kept[box]) == 0 {
			delete(m.kept, box)
		}
	}
	m.mu.Unlock()
	records := m.records()
	for id, at := range m.done {
		if at+messageKept < now {
			delete(m.done, id) // a request that has waited for longer is not done any more
			continue
		}
		records = append(records, &mailRecord{Spooled: id, At: at})
	}
	file, err := rewriteState(m.path(), m.file.key, records)
	if err != nil {
		return err
	}
	_ = m.file.close() // it is no longer at its path
	m.mu.Lock()
	m.file, m.shrunk = file, file.size
	m.mu.Unlock()
	return nil
}

// records are those from which apply makes what is there: each message as it came, then who has read which. writing is held.
func (m *mail) records() (records []*mailRecord) {
	in := map[*message][]mailbox{}
	for _, msg := range m.messages {
		in[msg] = slices.Clone(msg.Unread)
	}
	readers := slices.Sorted(maps.Keys(m.kept))
	for _, box := range readers {
		for _, msg := range m.kept[box] {
			in[msg] = append(in[msg], box)
		}
	}
	for _, msg := range slices.SortedFunc(maps.Keys(in), func(a, b *message) int { return cmp.Compare(a.nth, b.nth) }) {
		came := *msg
		came.Unread = in[msg]
		records = append(records, &mailRecord{Sent: &came})
	}
	for _, box := range readers {
		read := &mailRecord{Reader: box}
		for _, msg := range m.kept[box] {
			read.Read = append(read.Read, msg.ID)
		}
		records = append(records, read)
	}
	return records
}

// unread returns what waits for a reader in a repository, oldest first.
func (m *mail) unread(repository string, r reader, now gitlog.Millis) ([]Message, error) {
	m.mu.Lock()
	if m.file != nil {
		defer m.mu.Unlock()
		out, _ := m.waiting(repository, r, now)
		return out, nil
	}
	m.mu.Unlock()
	m.writing.Lock()
	defer m.writing.Unlock()
	if err := m.open(now); err != nil {
		return nil, err
	}
	out, _ := m.waiting(repository, r, now)
	return out, nil
}

// take is unread, and from now on that waits no more.
func (m *mail) take(repository string, r reader, now gitlog.Millis) ([]Message, error) {
	m.writing.Lock()
	defer m.writing.Unlock()
	if err := m.open(now); err != nil {
		return nil, err
	}
	out, ids := m.waiting(repository, r, now)
	if len(out) == 0 {
		return out, nil
	}
	return out, m.commit(now, readBy(ids)...)
}

// readBy are the records of messages that were read, whose ids are given by mailbox.
func readBy(ids map[mailbox][]string) (records []*mailRecord) {
	for box, read := range ids {
		records = append(records, &mailRecord{Read: read, Reader: box})
	}
	return records
}

// waiting returns what waits for a reader, and its ids by mailbox. writing or mu is held.
func (m *mail) waiting(repository string, r reader, now gitlog.Millis) ([]Message, map[mailbox][]string) {
	out := []Message{}
	ids := map[mailbox][]string{}
	for _, msg := range m.messages {
		if box := r.in(msg); box != "" && msg.isIn(repository, now) {
			out = append(out, msg.shown(box != r.person))
			ids[box] = append(ids[box], msg.ID)
		}
	}
	return out, ids
}

// isIn says whether a message is of a repository, and not too old.
func (msg *message) isIn(repository string, now gitlog.Millis) bool {
	return msg.Repository == repository && msg.At+messageKept >= now
}

func (msg *message) shown(own bool) Message {
	return Message{ID: msg.ID, From: msg.From, Kind: msg.Kind, To: msg.To, At: gitlog.TimeText(msg.At), Urgent: msg.Urgent, Text: msg.Text, Own: own}
}

// all returns what a reader has in a repository, read or not, oldest first; with read what waits does so no more.
func (m *mail) all(repository string, r reader, now gitlog.Millis, read bool) ([]KeptMessage, error) {
	m.writing.Lock()
	defer m.writing.Unlock()
	if err := m.open(now); err != nil {
		return nil, err
	}
	found := map[*message]KeptMessage{}
	for _, box := range []mailbox{r.session, r.agent, r.person} {
		for _, msg := range m.kept[box] {
			if r.which(msg, func(of mailbox) bool { return slices.Contains(m.kept[of], msg) }) == box && msg.isIn(repository, now) {
				found[msg] = KeptMessage{Message: msg.shown(box != r.person), Read: true}
			}
		}
	}
	for _, msg := range m.messages {
		if box := r.in(msg); box != "" && msg.isIn(repository, now) {
			found[msg] = KeptMessage{Message: msg.shown(box != r.person)}
		}
	}
	out := []KeptMessage{}
	for _, msg := range slices.SortedFunc(maps.Keys(found), func(a, b *message) int { return cmp.Compare(a.nth, b.nth) }) {
		out = append(out, found[msg])
	}
	if _, ids := m.waiting(repository, r, now); read && len(ids) > 0 {
		return out, m.commit(now, readBy(ids)...)
	}
	return out, nil
}

// send puts a message into the mailboxes in msg.Unread. A *gitlog.Refusal says that one of them is full. An urgent message
// becomes an ordinary one where its sender sent too many of them.
func (m *mail) send(msg *message) error {
	to, direct := slices.Clone(msg.Unread), len(msg.Unread) == 1 && msg.To != toAll
	if err := m.store(msg); err != nil {
		return err
	}
	m.sent(to, direct)
	return nil
}

func (m *mail) store(msg *message) error {
	m.writing.Lock()
	defer m.writing.Unlock()
	if err := m.open(msg.At); err != nil {
		return err
	}
	if _, done := m.done[msg.ID]; done || m.has(msg) {
		return nil
	}
	for _, box := range msg.Unread {
		if waiting := m.count(box, msg.At); waiting >= maxUnread {
			return &gitlog.Refusal{Sentence: fmt.Sprintf("%s has %d unread messages already; wait until some are read", msg.To, waiting)}
		}
	}
	if msg.Urgent {
		between := [2]mailbox{msg.Sender, msg.Unread[0]}
		sent := slices.DeleteFunc(m.urgent[between], func(at gitlog.Millis) bool { return at+urgentEvery <= msg.At })
		if msg.Urgent = len(sent) < urgentMost; msg.Urgent {
			sent = append(sent, msg.At)
		}
		m.urgent[between] = sent
	}
	sent := &mailRecord{Sent: msg}
	if msg.spooled {
		sent.Spooled, sent.At = msg.ID, msg.At
	}
	return m.commit(msg.At, sent)
}

// has says whether a message is here already. writing is held.
func (m *mail) has(msg *message) bool {
	same := func(other *message) bool { return other.ID == msg.ID }
	return slices.ContainsFunc(m.messages, same) || slices.ContainsFunc(msg.Unread, func(box mailbox) bool { return slices.ContainsFunc(m.kept[box], same) })
}

// spooled reports whether a request in a spool is done.
func (m *mail) spooled(id string, now gitlog.Millis) (bool, error) {
	m.writing.Lock()
	defer m.writing.Unlock()
	if err := m.open(now); err != nil {
		return false, err
	}
	_, done := m.done[id]
	return done, nil
}

// note keeps that a request in a spool is done.
func (m *mail) note(id string, now gitlog.Millis) error {
	m.writing.Lock()
	defer m.writing.Unlock()
	if err := m.open(now); err != nil {
		return err
	}
	if _, done := m.done[id]; done {
		return nil
	}
	return m.commit(now, &mailRecord{Spooled: id, At: now})
}

// count is how many messages wait in a mailbox. writing or mu is held.
func (m *mail) count(box mailbox, now gitlog.Millis) (waiting int) {
	for _, msg := range m.messages {
		if slices.Contains(msg.Unread, box) && msg.At+messageKept >= now {
			waiting++
		}
	}
	return waiting
}

// isFull says whether a mailbox takes no more messages.
func (m *mail) isFull(box mailbox, now gitlog.Millis) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.count(box, now) >= maxUnread
}

// drop forgets what is in a mailbox.
func (m *mail) drop(box mailbox, now gitlog.Millis) error {
	m.writing.Lock()
	defer m.writing.Unlock()
	if err := m.open(now); err != nil {
		return err
	}
	if len(m.kept[box]) == 0 && !slices.ContainsFunc(m.messages, func(msg *message) bool { return slices.Contains(msg.Unread, box) }) {
		return nil
	}
	return m.commit(now, &mailRecord{Gone: box})
}

// unreadOf returns the messages that a session has not read: its own, and those to its person. state.mu is not held.
func (d *daemon) unreadOf(key sessionKey, oc *openClone, now gitlog.Millis) []Message {
	d.state.mu.Lock()
	person := ""
	if s := d.state.sessions[key]; s != nil {
		person = s.person
	}
	d.state.mu.Unlock()
	r := reader{session: boxOf(key), person: personalBox(oc.clone, person)}
	if agent, ok := d.agentOf(key); ok {
		r.agent = agentBox(agent.ID)
	}
	found, err := d.mail.unread(repositoryOf(oc.clone), r, now)
	if err != nil {
		d.log.Error("messages cannot be read", "error", err)
	}
	return found
}

// check says what is wrong with a message, whoever it is from and to.
func (r *MessageRequest) check() error {
	r.To, r.Text = strings.TrimSpace(r.To), strings.TrimSpace(r.Text)
	switch {
	case r.To == "" || r.Text == "":
		return &MisuseError{Sentence: "a message needs somebody to send it to, and a text: `knoot msg TO TEXT`"}
	case !utf8.ValidString(r.Text):
		return &gitlog.Refusal{Sentence: "the message is no UTF-8"}
	case len(r.Text) > maxMessage:
		return &gitlog.Refusal{Sentence: fmt.Sprintf("the message has %d bytes and may have %d: say where the rest is", len(r.Text), maxMessage)}
	case gitlog.Withheld(r.Text):
		return &gitlog.Refusal{Sentence: "the message looks like it holds a credential, so it was not sent: say where the secret is kept, not what it is"}
	case r.Urgent && r.To == toAll:
		return &MisuseError{Sentence: "a message to all cannot be urgent: send it to one, or without --urgent"}
	}
	return nil
}

func newID() string {
	id := make([]byte, 16)
	_, _ = rand.Read(id)
	return hex.EncodeToString(id)
}

// newMessage is a message that waits for those whom it is to.
func newMessage(oc *openClone, from *addressee, r MessageRequest, to []addressee, now gitlog.Millis) *message {
	msg := &message{ID: newID(), Repository: repositoryOf(oc.clone), At: now, From: from.label, Sender: from.box, Kind: from.kind,
		To: r.To, Urgent: r.Urgent, Text: r.Text}
	for _, each := range to {
		msg.Unread = append(msg.Unread, each.box)
	}
	return msg
}

func (msg *message) answer(to []addressee) *MessageAnswer {
	answer := &MessageAnswer{ID: msg.ID, To: []string{}, Urgent: msg.Urgent}
	for _, each := range to {
		answer.To = append(answer.To, each.label)
	}
	return answer
}

// sendMessage is the operation msg.
func (d *daemon) sendMessage(ctx context.Context, wt *worktree, caller *socket.Caller, body json.RawMessage) (*MessageAnswer, error) {
	var r MessageRequest
	if err := readBody("msg", body, &r); err != nil {
		return nil, err
	}
	return d.post(ctx, wt, caller, r, newID(), false)
}

// post sends a message with an id, by which the same one is not sent twice; spooled: that is kept for as long as it may come again.
func (d *daemon) post(ctx context.Context, wt *worktree, caller *socket.Caller, r MessageRequest, id string, spooled bool) (*MessageAnswer, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	here := d.present(ctx, wt.clone)
	from := d.sender(caller, wt.clone, here)
	to, err := here.find(r.To, &from)
	var away []string
	if relay := wt.clone.relay; relay != nil && from.owner == "" {
		away = relay.elsewhere(r.To)
	}
	if err != nil && len(away) == 0 {
		return nil, err
	}
	msg := newMessage(wt.clone, &from, r, to, d.now())
	msg.ID, msg.spooled = id, spooled
	if len(to) > 0 {
		if err := d.mail.send(msg); err != nil {
			return nil, err
		}
	}
	answer := msg.answer(to)
	if len(away) > 0 {
		by, session := d.asking(ctx, wt, caller)
		if session && from.label != agentLabel(by.Key) {
			msg.name = from.label
		}
		if err := wt.clone.relay.message(ctx, by, wt.repo.GitDir, msg); err != nil && len(to) == 0 {
			return nil, err
		} else if err == nil {
			answer.To = append(answer.To, away...)
		}
	}
	if spooled {
		return answer, d.mail.note(id, msg.At)
	}
	return answer, nil
}

// inbox is the operation inbox.
func (d *daemon) inbox(wt *worktree, caller *socket.Caller, body json.RawMessage) (any, error) {
	var r InboxRequest
	if len(body) > 0 {
		if err := readBody("inbox", body, &r); err != nil {
			return nil, err
		}
	}
	repository, of := repositoryOf(wt.clone.clone), d.reader(caller, wt.clone)
	switch {
	case r.All:
		return d.mail.all(repository, of, d.now(), !r.Peek)
	case r.Peek:
		return d.mail.unread(repository, of, d.now())
	}
	return d.mail.take(repository, of, d.now())
}
