package daemon

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/gitlog"
)

const (
	// letterRest is for how long a file in the outbox has to be as it is until it is taken for whole: whoever writes it may not
	// know how to put it there at once.
	letterRest = time.Second
	// maxLetters is how many letters one hook has sent; more wait for the next.
	maxLetters = 50
)

// collectLater has what agents in a sandbox left in a worktree sent, after the hook of a session there.
func (d *daemon) collectLater(wt *worktree, by sessionKey) {
	if _, err := os.Lstat(filepath.Join(wt.root, lettersFolder)); err != nil {
		return
	}
	wt.clone.later(func(ctx context.Context) {
		if young := d.collect(ctx, wt, by); young {
			// It is whole by then, and there may be no further hook for long.
			time.AfterFunc(letterRest, func() { wt.clone.later(func(ctx context.Context) { d.collect(ctx, wt, by) }) })
		}
	})
}

// collect sends what waits in a worktree's spool and outbox, each once. young says that something may still be being written.
func (d *daemon) collect(ctx context.Context, wt *worktree, by sessionKey) (young bool) {
	root, err := os.OpenRoot(wt.root)
	if err != nil {
		return false
	}
	defer root.Close()
	waiting, err := letters(root)
	if err != nil {
		d.log.Warn("what agents left to be sent cannot be read", "worktree", wt.root, "error", err)
	}
	if len(waiting) == 0 {
		return false
	}
	// A repository could bring letters of its own, to be sent in the name of whoever checks it out. The folder is asked about and
	// not its files: a name on the disk may be another in the index, by case or by how its letters are composed.
	brought, err := wt.tree.Brings(ctx, lettersFolder)
	if err != nil {
		d.log.Warn("it is not known whether what agents left to be sent is theirs", "worktree", wt.root, "error", err)
	}
	if err != nil || brought {
		return false // status says so
	}
	sent := 0
	for _, name := range waiting {
		if sent == maxLetters || ctx.Err() != nil {
			break
		}
		l, err := readLetter(root, name)
		if err == nil && strings.HasPrefix(name, outboxFolder) {
			if len(l.text) == 0 || d.options.Now().Sub(l.info.ModTime()).Abs() < letterRest {
				young = true
				continue
			}
		}
		if err == nil {
			sent++
			err = d.sendLetter(ctx, wt, l, by)
		}
		var refusal *gitlog.Refusal
		var misuse *MisuseError
		switch {
		case err == nil:
			err = l.remove(root)
		case errors.As(err, &refusal), errors.As(err, &misuse):
			// Told once it is put aside: one that stays where it is is refused again by the next hook.
			why := err.Error()
			if err = refuse(root, name, why); err == nil {
				d.refuseLetter(wt, by, name, why)
			}
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			d.log.Warn("what an agent left to be sent waits for the next hook", "file", name, "error", err)
		}
	}
	return young
}

// refuseLetter tells the session that probably wrote it, which believes that it was sent.
func (d *daemon) refuseLetter(wt *worktree, by sessionKey, name, why string) {
	if by.ID == "" || !d.alone(wt, by) {
		return
	}
	id := sha256.Sum256([]byte(name + "\x00" + why))
	msg := &message{ID: hex.EncodeToString(id[:16]), Repository: repositoryOf(wt.clone.clone), At: d.now(), From: "knoot", Kind: "agent", To: agentLabel(by),
		Text: fmt.Sprintf("%s was not sent: %s", name, why), Unread: []mailbox{boxOf(by)}}
	if err := d.mail.send(msg); err != nil {
		d.log.Warn("a session is not told that something was not sent", "error", err)
	}
}

// alone reports whether a session is the only live one in a worktree.
func (d *daemon) alone(wt *worktree, by sessionKey) bool {
	now := d.now()
	d.state.mu.Lock()
	defer d.state.mu.Unlock()
	for key, s := range d.state.sessions {
		if key != by && s.home == wt.root && s.live(now) {
			return false
		}
	}
	return true
}

// sendLetter does what a letter asks for, unless that was done before. A *gitlog.Refusal or a *MisuseError says that it never can
// be done; any other error, that it may be later.
func (d *daemon) sendLetter(ctx context.Context, wt *worktree, l *letter, by sessionKey) error {
	s, err := readRequest(l)
	if err != nil {
		return err
	}
	now := d.now()
	if s.At+messageKept < now {
		return &gitlog.Refusal{Sentence: "it has waited for more than 7 days"}
	}
	done, err := d.mail.spooled(s.ID, now)
	if err != nil || done {
		return err
	}
	caller := &socket.Caller{Agent: true}
	if s.Caller != nil {
		caller.Session, caller.SessionAgent, caller.Name, caller.User = s.Caller.Session, s.Caller.SessionAgent, s.Caller.Name, s.Caller.User
	}
	if caller.Session == "" && caller.Name == "" && d.alone(wt, by) {
		caller.Session, caller.SessionAgent = by.ID, by.Agent
	}
	if s.Op == "msg" {
		var r MessageRequest
		if err := readBody(s.Op, s.Body, &r); err != nil {
			return err
		}
		_, err := d.post(ctx, wt, caller, r, s.ID, true)
		return err
	}
	author := d.authorOf(caller)
	session, inSession := parseSession(author.Session)
	if s.Op == "plan" && inSession && d.isPrivate(session) {
		return &gitlog.Refusal{Sentence: "this session is private (KNOOT_PRIVATE=1), so its plan is not shared"}
	}
	if err := wt.clone.writes(); err != nil {
		return fmt.Errorf("the clone cannot be written: %w", err)
	}
	w := Workplace{Home: d.home, Clone: wt.clone.clone, Tree: wt.tree, Config: d.config.now()}
	if s.Op == "plan" || !d.remembered(wt, s, author) {
		answer, err := Perform(ctx, w, s.Op, s.Body, author)
		if err != nil {
			return err
		}
		if _, draft := answer.(*Drafted); !draft {
			wt.clone.sync.changed(true)
			wt.clone.later(wt.facts.warm)
		}
		if s.Op == "plan" && inSession {
			d.planned(ctx, wt, session)
		}
	}
	return d.mail.note(s.ID, now)
}

// remembered reports whether a fact is there already as a request would leave it: the daemon ended after that and before it could
// note that it was done.
func (d *daemon) remembered(wt *worktree, s *Spooled, author gitlog.Author) bool {
	var r gitlog.RememberRequest
	if json.Unmarshal(s.Body, &r) != nil {
		return false // Perform says so
	}
	r.Kind = gitlog.KindFact
	if s.Op == "cache" {
		r.Kind = gitlog.KindCache
	}
	for _, item := range wt.clone.clone.Memory().All(d.now()) {
		f := item.Fact
		if f != nil && item.Kind == r.Kind && f.Name == strings.TrimSpace(r.Name) && f.Text == strings.TrimSpace(r.Text) && f.Session == author.Session && item.Time >= s.At &&
			!item.Forgotten && item.SupersededBy == nil {
			return true
		}
	}
	return false
}

// readRequest is what a letter asks for. One in the outbox is a message, whose identity is that of the file as it is: another text
// in its place, or the same written again, is another message.
func readRequest(l *letter) (*Spooled, error) {
	if rest, ok := strings.CutPrefix(l.name, outboxFolder+"/"); ok {
		if !utf8.Valid(l.text) {
			return nil, &gitlog.Refusal{Sentence: "the message is no UTF-8"}
		}
		to, _, _ := strings.Cut(rest, "/")
		st, _ := l.info.Sys().(*syscall.Stat_t)
		digest := sha256.New()
		fmt.Fprintf(digest, "%s\x00%d\x00%d\x00%d\x00", l.name, l.info.ModTime().UnixNano(), st.Dev, st.Ino)
		digest.Write(l.text)
		body, err := json.Marshal(MessageRequest{To: to, Text: strings.TrimSpace(string(l.text))})
		if err != nil {
			return nil, err
		}
		return &Spooled{ID: hex.EncodeToString(digest.Sum(nil)[:16]), Op: "msg", At: gitlog.MillisOf(l.info.ModTime()), Body: body}, nil
	}
	s := &Spooled{}
	err := json.Unmarshal(l.text, s)
	id, idErr := hex.DecodeString(s.ID)
	switch {
	case err != nil || idErr != nil || len(id) != 16 || path.Ext(l.name) != ".json":
		return nil, &gitlog.Refusal{Sentence: "it is no request that a command of knoot's has left"}
	case s.Op != "remember" && s.Op != "cache" && s.Op != "plan" && s.Op != "msg":
		return nil, &gitlog.Refusal{Sentence: "only remember, cache, plan and msg can be done for a process that may not speak to the daemon"}
	}
	return s, nil
}
