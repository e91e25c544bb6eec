package daemon

import (
	"slices"
	"strings"
	"time"
	"unicode"

	"knoot.dev/knoot/gitlog"
)

// sessionKey names a session: ids are an agent's own, so two agents may use the same.
type sessionKey struct {
	Agent string `json:"agent"`
	ID    string `json:"id"`
}

// String is how a session is written in entries: "<agent>:<session id>".
func (k sessionKey) String() string { return k.Agent + ":" + k.ID }

// session is one run of an agent, its subagents included. state.mu guards it.
type session struct {
	key      sessionKey
	started  gitlog.Millis
	seen     gitlog.Millis // its last hook
	ended    gitlog.Millis // 0 while it lives
	home     string        // root of the worktree that it was first seen in; "" outside of repositories
	process  int           // 0 unknown
	birth    uint64        // of the process, so that a process id that is used again is not taken for it; 0 unknown
	person   string        // KNOOT_USER
	name     string        // KNOOT_AGENT
	private  bool
	intent   string        // what the session said that it is doing; "" not yet
	intended gitlog.Millis // when it said so
	invited  bool          // the line that says how to leave a fact was told
	// introduced says that it was told who it is.
	introduced bool
	contexts   map[string]*sessionContext
	// announced are the clones (by common directory) whose audit log has this session's start.
	announced map[string]bool
	// asked are the sessions of which it was asked whether they do the same.
	asked map[sessionKey]bool
	// owed is what has happened and is in no log yet.
	owed []happening
}

// happening is something that a clone's audit log is to say, as long as it does not: for a moment after the hook was
// answered, while the clone is being opened, or while another process has its lock.
type happening struct {
	ID       uint64           `json:"id"`   // random
	Root     string           `json:"root"` // of the worktree
	At       gitlog.Millis    `json:"at"`
	Kind     gitlog.EntryKind `json:"kind"`
	Subagent string           `json:"subagent,omitempty"`
	Written  []string         `json:"written,omitempty"` // paths, also of files that are gone
	Text     string           `json:"text,omitempty"`
}

// maxOwed bounds what is owed of one session; the oldest goes first.
const maxOwed = 1000

// sessionContext is a session itself (subagent ""), or one of its subagents: what is read and shown belongs to it.
type sessionContext struct {
	subagent string
	// turn grows with each prompt, and for a subagent with each start.
	turn  int
	began gitlog.Millis // when this turn did
	// touched is what it read and wrote, by root of the worktree and path.
	touched map[string]map[string]*touch
	told    Told
	// delivered are the facts that it was told, by id.
	delivered map[string]DeliveredFact
	spent     int // bytes told since the turn began
	// emptied is when what it knew was lost: reads before count for nothing.
	emptied gitlog.Millis
	// news is what it is told at its next hook, and what it was told in this turn.
	news []News
	held int // the turn that was held open last
	// stopped says that it is a subagent which has ended. One that goes on hears of what came meanwhile, once a file.
	stopped bool
	// refused counts the denials of this turn, by root of the worktree, a zero byte and path.
	refused map[string]int
}

// touch is what a context did with a path. Turns are 0 where it did not.
type touch struct {
	Root  string        `json:"root"`
	Path  string        `json:"path"`
	Read  int           `json:"read,omitempty"`  // the turn of the last read
	Wrote int           `json:"wrote,omitempty"` // the turn of the last write
	At    gitlog.Millis `json:"at"`
	// Made says that it was not there before the context wrote it.
	Made bool `json:"made,omitempty"`
	// Outdated says that somebody else changed it since, and that there is news of that.
	Outdated bool  `json:"outdated,omitempty"`
	Stamp    stamp `json:"stamp"` // of the file then
	// Blob is of the file then; nil: not known (yet), or gone.
	Blob []byte `json:"blob,omitempty"`
}

// maxTouched bounds the paths kept for a context in one worktree; the oldest go first.
const maxTouched = 4096

// stateRecord is what one event changed in the state. Only the parts that changed are set.
type stateRecord struct {
	At       gitlog.Millis `json:"at"`
	Session  sessionKey    `json:"session"`
	Subagent string        `json:"subagent,omitempty"`

	Start     *sessionStart `json:"start,omitempty"`
	Intent    *string       `json:"intent,omitempty"`
	Announced string        `json:"announced,omitempty"`
	Invited   bool          `json:"invited,omitempty"`
	// Introduced is 1 where the session was told who it is; -1: it was not, after all.
	Introduced int      `json:"introduced,omitempty"`
	Ended      bool     `json:"ended,omitempty"`
	Turn       int      `json:"turn,omitempty"`
	Cleared    bool     `json:"cleared,omitempty"` // what was told counts as not told: the context was emptied
	Touched    []*touch `json:"touched,omitempty"`
	// Told is what counts as told from now on, Delivered the facts that it named, Spent the bytes that it took of the
	// turn's budget; Shown is the text, which is kept for less long than these are.
	Told      []LineDigest    `json:"told,omitempty"`
	Delivered []DeliveredFact `json:"delivered,omitempty"`
	Spent     int             `json:"spent,omitempty"`
	Shown     *Shown          `json:"shown,omitempty"`
	// Untold counts as not told after all, and the text shown at Unshown was not: nobody took the answer.
	Untold  []LineDigest `json:"untold,omitempty"`
	Unshown time.Time    `json:"unshown,omitzero"`
	// News is what happened to the context, Moot the keys of news that is none any more.
	News  []News      `json:"news,omitempty"`
	Moot  []string    `json:"moot,omitempty"`
	Asked *sessionKey `json:"asked,omitempty"` // whether it does what this one does
	// Stopped says that the context is a subagent's, which has ended.
	Stopped bool `json:"stopped,omitempty"`
	// Held is a turn that was held open; -1: it was not, after all.
	Held int `json:"held,omitempty"`
	// Emptied is when the context last began anew, where that was not now.
	Emptied gitlog.Millis `json:"emptied,omitempty"`
	// Refused are files whose write was refused, once more each; Unrefused those of a denial that nobody took.
	Refused   []string `json:"refused,omitempty"`
	Unrefused []string `json:"unrefused,omitempty"`
	// Owed is what has happened and is in no log, Settled are the ids of what is owed no more.
	Owed    []happening `json:"owed,omitempty"`
	Settled []uint64    `json:"settled,omitempty"`
	// Aside says that the daemon found this out later, and not by a hook: it is no sign of life.
	Aside bool `json:"aside,omitempty"`
}

// sessionStart is what is known of a session from any of its hooks.
type sessionStart struct {
	Home    string `json:"home,omitempty"`
	Process int    `json:"process,omitempty"`
	Birth   uint64 `json:"birth,omitempty"`
	Person  string `json:"person,omitempty"`
	Name    string `json:"name,omitempty"`
	Private bool   `json:"private,omitempty"`
}

// sessions are all that is known. It changes by apply alone, live and when the file is read.
type sessions map[sessionKey]*session

// apply makes the change that a record tells of.
func (all sessions) apply(r *stateRecord) {
	s := all[r.Session]
	if s == nil {
		s = &session{key: r.Session, started: r.At, seen: r.At, contexts: map[string]*sessionContext{}, announced: map[string]bool{}, asked: map[sessionKey]bool{}}
		s.context("")
		all[r.Session] = s
	}
	if !r.Aside {
		s.seen = max(s.seen, r.At)
		s.ended = 0 // whoever ended and is heard of again was resumed
		if r.Ended {
			s.ended = r.At
		}
	}
	if st := r.Start; st != nil {
		if st.Home != "" && s.home == "" {
			s.home = st.Home
		}
		if st.Process != 0 {
			s.process, s.birth = st.Process, st.Birth
		}
		s.person, s.name, s.private = st.Person, st.Name, st.Private
	}
	if r.Intent != nil {
		s.intent, s.intended = *r.Intent, r.At
	}
	if r.Announced != "" {
		s.announced[r.Announced] = true
	}
	s.invited = s.invited || r.Invited
	if r.Introduced != 0 {
		s.introduced = r.Introduced > 0
	}
	if r.Asked != nil {
		s.asked[*r.Asked] = true
	}
	if len(r.Settled) > 0 {
		s.owed = slices.DeleteFunc(slices.Clone(s.owed), func(h happening) bool { return slices.Contains(r.Settled, h.ID) })
	}
	s.owed = append(s.owed[:len(s.owed):len(s.owed)], r.Owed...)
	s.owed = s.owed[max(0, len(s.owed)-maxOwed):]
	c := s.context(r.Subagent)
	if !r.Aside {
		c.stopped = r.Stopped
	}
	if r.Turn > c.turn {
		c.turn, c.began, c.spent, c.refused = r.Turn, r.At, 0, nil
		c.forgetTold()
	}
	for _, file := range r.Refused {
		if c.refused == nil {
			c.refused = map[string]int{}
		}
		c.refused[file]++
	}
	for _, file := range r.Unrefused {
		if c.refused[file]--; c.refused[file] <= 0 {
			delete(c.refused, file)
		}
	}
	if r.Cleared {
		c.forget(r.At)
		c.told, c.delivered = Told{}, map[string]DeliveredFact{}
	}
	c.emptied = max(c.emptied, r.Emptied)
	for _, t := range r.Touched {
		c.touch(t)
		c.knows(t)
	}
	for _, n := range r.News {
		c.hear(n)
	}
	for _, key := range r.Moot {
		c.drop(func(n *News) bool { return n.Key == key })
	}
	switch {
	case r.Held > 0:
		c.held = r.Held
	case r.Held < 0:
		c.held = 0
	}
	c.told.Add(r.Told...)
	for _, f := range r.Delivered {
		c.delivered[f.ID] = f
	}
	c.spent += r.Spent
	for _, digest := range r.Untold {
		delete(c.told, digest)
	}
}

// context returns a session's context, and makes it if it is new.
func (s *session) context(subagent string) *sessionContext {
	c := s.contexts[subagent]
	if c == nil {
		c = &sessionContext{subagent: subagent, turn: 1, touched: map[string]map[string]*touch{},
			told: Told{}, delivered: map[string]DeliveredFact{}}
		s.contexts[subagent] = c
	}
	return c
}

// touch adds a read or a write to what is known of that path.
func (c *sessionContext) touch(t *touch) {
	paths := c.touched[t.Root]
	if paths == nil {
		paths = map[string]*touch{}
		c.touched[t.Root] = paths
	}
	was := paths[t.Path]
	if was == nil {
		if len(paths) >= maxTouched {
			var oldest *touch
			for _, p := range paths {
				if oldest == nil || p.At < oldest.At {
					oldest = p
				}
			}
			delete(paths, oldest.Path)
		}
		copied := *t
		paths[t.Path] = &copied
		return
	}
	if t.At < was.At {
		return
	}
	merged := *t
	merged.Read, merged.Wrote = max(t.Read, was.Read), max(t.Wrote, was.Wrote)
	if t.Read == 0 && t.Wrote == 0 {
		merged.Outdated = merged.Outdated || was.Outdated
	}
	merged.Made = t.Made || was.Made || t.Wrote != 0 && was.Wrote == 0 && was.Read == 0 && was.Stamp == (stamp{}) && t.Stamp != (stamp{})
	if merged.Blob == nil && merged.Stamp == was.Stamp {
		merged.Blob = was.Blob
	}
	paths[t.Path] = &merged
}

// live reports whether a session is running as far as is known at now.
func (s *session) live(now gitlog.Millis) bool {
	return s.ended == 0 && now-min(s.seen, now) < gitlog.Millis(idleEnd.Milliseconds())
}

// Limits of an intent (see intentOf).
const (
	intentWords      = 4
	intentWordsAgain = 8
	intentLength     = 160
)

// intentOf is what a prompt says about what a session does: the first prompt that a person typed with at least four
// words, or a later one of eight or more; its first 160 characters, on one line. Not a slash command, and not a turn
// that a machine wrote. had is the intent so far; "" says that there is none and none to be had from this prompt.
func intentOf(prompt string, machine bool, had string) string {
	prompt = strings.TrimSpace(prompt)
	if machine || strings.HasPrefix(prompt, "/") {
		return ""
	}
	words := strings.FieldsFunc(prompt, unicode.IsSpace)
	if len(words) < intentWords || had != "" && len(words) < intentWordsAgain {
		return ""
	}
	runes := []rune(strings.Join(words, " "))
	return strings.TrimSpace(string(runes[:min(len(runes), intentLength)]))
}

// onceFor is how long a hook that comes again, because it is installed twice, is known to be the same one.
const onceFor = 2 * time.Second

// onceKey is what makes two hooks the same: they come from one event, through two installations.
type onceKey struct {
	agent, session, subagent, event, call, payload string
}
