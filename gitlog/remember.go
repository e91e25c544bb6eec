package gitlog

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Author says who writes: a person or an agent, and in which session.
type Author struct {
	By      WrittenBy `json:"by"`
	Session string    `json:"session,omitempty"` // "<agent>:<session id>"
}

// RememberRequest asks for a fact or a cached answer.
type RememberRequest struct {
	Kind   EntryKind `json:"kind"` // KindFact or KindCache
	Name   string    `json:"name"`
	Text   string    `json:"text"`
	Paths  []string  `json:"paths,omitempty"` // relative to the root, maybe with :A-B, maybe a directory or a glob
	Room   string    `json:"room,omitempty"`
	Pinned bool      `json:"pinned,omitempty"`
	Yes    bool      `json:"yes,omitempty"` // in spite of a near-duplicate, and of the session's limit
	Author Author    `json:"author"`
}

const (
	// maxSessionFacts is how many facts one session publishes unasked: an agent that writes more is filling, not teaching.
	maxSessionFacts = 20

	// An area holds this much that lives. What is over it nobody would read.
	maxAreaEntries = 2000
	maxAreaBytes   = 16 << 20

	// nearDuplicate is the share of word 3-grams in common, of the longer text's, from which two facts say the same.
	nearDuplicate = 0.8
)

// Remember publishes a fact or a cached answer: durable on return. It supersedes all that is current under that name.
// Errors: a *Refusal, which says what to do, and what Append returns.
func (c *Clone) Remember(ctx context.Context, t *Tree, r RememberRequest) (*Stored, error) {
	c.remembering.Lock()
	defer c.remembering.Unlock()
	e := c.NewEntry(r.Kind)
	name, err := checkedName(r.Name)
	if err != nil {
		return nil, err
	}
	text, err := checkedText(r.Text)
	if err != nil {
		return nil, err
	}
	if rule := credentialRule("", name+"\n"+text); rule != "" {
		return nil, refuse("the text looks like it holds a credential (gitleaks' rule %s), so nothing was remembered: say where the secret is kept, not what it is", rule)
	}
	f := &Fact{Name: name, Text: text, By: r.Author.By, Session: r.Author.Session, Pinned: r.Pinned}
	e.Fact = f
	if f.Paths, err = t.paths(ctx, r.Paths); err != nil {
		return nil, err
	}
	if r.Kind == KindCache && len(f.Paths) == 0 {
		return nil, refuse("a cached answer is gone when a file it names changes, so it has to name one: add --path P")
	}
	room, err := c.roomOfPaths(r.Room, f.Paths)
	if err != nil {
		return nil, err
	}
	if err := c.refuseElsewhere(r, f); err != nil {
		return nil, err
	}
	if err := f.place(ctx, t); err != nil {
		return nil, err
	}
	heads := c.Memory().heads(scope{room: room, kind: r.Kind, name: name})
	f.supersede(heads)
	if !r.Yes && r.Kind == KindFact {
		if err := c.refuseDuplicate(room, f, e.Time); err != nil {
			return nil, err
		}
		if err := c.refuseFlood(f, e.Time); err != nil {
			return nil, err
		}
	}
	if err := c.encode(e); err != nil {
		return nil, err
	}
	if err := c.refuseFull(t, room, e, heads); err != nil {
		return nil, err
	}
	return c.publish(ctx, room, e)
}

// refuseElsewhere refuses a name without paths that only rooms of fewer members know: what replaces a fact of theirs is not told
// to everybody by mistake.
func (c *Clone) refuseElsewhere(r RememberRequest, f *Fact) error {
	if r.Room != "" || len(f.Paths) > 0 {
		return nil
	}
	rooms := c.Memory().roomsOf(f.Name, r.Kind)
	if len(rooms) == 0 || slices.Contains(rooms, c.General()) {
		return nil
	}
	return refuse("%q is in the room %s: say --room %s to replace it there, or --room %s to tell it to all members", f.Name, c.RoomName(rooms[0]),
		shellWord(c.RoomName(rooms[0])), shellWord(c.RoomName(c.General())))
}

// publish appends an entry to a room and returns it as memory has it then.
func (c *Clone) publish(ctx context.Context, room RoomID, e *Entry) (*Stored, error) {
	if err := c.appendTo(ctx, map[RoomID][]*Entry{room: {e}}); err != nil {
		return nil, err
	}
	s, ok := c.Memory().entry(e.ID())
	if !ok {
		return nil, fmt.Errorf("entry %s was written and is not in memory", e.ID())
	}
	return s, nil
}

// ids returns what ids are derived from.
func (c *Clone) ids() (TeamID, RepositoryID, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.mayWrite(); err != nil {
		return TeamID{}, RepositoryID{}, err
	}
	return c.roster.Team, c.settings.Repository, nil
}

// encode fixes the entry's bytes, and refuses what is too large for one.
func (c *Clone) encode(e *Entry) error {
	team, repository, err := c.ids()
	if err != nil {
		return err
	}
	if err := e.encode(team, repository); errors.Is(err, errTooLarge) {
		return refuse("the text is too long: text, name and paths together may have %d KiB", maxEntry>>10)
	} else if err != nil {
		return err
	}
	return nil
}

// checkedName brings a name to the one spelling in which it is stored.
func checkedName(name string) (string, error) {
	canonical, err := CanonicalName(name)
	switch {
	case err == nil && strings.ContainsFunc(canonical, unicode.IsControl):
		return "", refuse("the name %q is more than one line: choose a short one", canonical)
	case err == nil:
		return canonical, nil
	case !utf8.ValidString(name):
		return "", refuse("the name is no UTF-8")
	case strings.TrimSpace(name) == "":
		return "", refuse("a name is needed, by which others find, confirm and replace it: add --name N")
	}
	return "", refuse("the name has %d bytes, and at most %d fit: choose a shorter one", len(name), maxName)
}

func checkedText(text string) (string, error) {
	if !utf8.ValidString(text) {
		return "", refuse("the text is no UTF-8")
	}
	if text = strings.TrimSpace(text); text == "" {
		return "", refuse("there is nothing to remember: the text is empty")
	}
	if len(text) > maxEntry {
		return "", refuse("the text is too long: text, name and paths together may have %d KiB", maxEntry>>10)
	}
	return text, nil
}

// place notes where HEAD is.
func (f *Fact) place(ctx context.Context, t *Tree) error {
	ref, head, err := t.Head(ctx)
	if err != nil {
		return err
	}
	f.Branch = ref
	f.Commit, err = hex.DecodeString(head)
	if len(f.Commit) == 0 {
		f.Commit = nil
	}
	return err
}

// supersede lists what the fact replaces.
func (f *Fact) supersede(heads []*Stored) {
	f.Depth, f.Supersedes = 1, nil
	for _, s := range heads {
		f.Supersedes = append(f.Supersedes, s.ID())
		f.Depth = max(f.Depth, s.Fact.Depth+1)
	}
	slices.SortFunc(f.Supersedes, func(a, b EntryID) int { return slices.Compare(a[:], b[:]) })
}

// refuseDuplicate refuses a fact that says what another one says under another name.
func (c *Clone) refuseDuplicate(room RoomID, f *Fact, now Millis) error {
	own := trigrams(f.Text)
	for _, item := range c.Memory().Current(now) {
		if item.Fact == nil || item.Kind == KindCache || item.Room != room || item.Fact.Name == f.Name || !sharePath(item.Fact, f) {
			continue
		}
		if common(own, trigrams(item.Fact.Text)) >= nearDuplicate {
			return refuse("this is nearly what %q says already: replace that with --name %s, or add --yes if both are needed", item.Fact.Name, shellWord(item.Fact.Name))
		}
	}
	return nil
}

// shellWord quotes a name for a command that is to be typed.
func shellWord(s string) string {
	if strings.IndexFunc(s, func(r rune) bool {
		return !(unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_./", r))
	}) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// sharePath says whether two facts are about one path; facts without any are both about their area.
func sharePath(a, b *Fact) bool {
	if len(a.Paths) == 0 && len(b.Paths) == 0 {
		return a.Area == b.Area || a.Area != nil && b.Area != nil && *a.Area == *b.Area
	}
	return slices.ContainsFunc(a.Paths, func(p FactPath) bool {
		return slices.ContainsFunc(b.Paths, func(q FactPath) bool { return p.Path == q.Path })
	})
}

// trigrams are a text's runs of three words; a text of fewer is one run. Case and punctuation do not count.
func trigrams(text string) map[string]bool {
	words := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	grams := make(map[string]bool)
	if len(words) < 3 {
		grams[strings.Join(words, " ")] = true
	}
	for i := 0; i+3 <= len(words); i++ {
		grams[strings.Join(words[i:i+3], " ")] = true
	}
	return grams
}

// common is the share of the larger set that both have.
func common(a, b map[string]bool) float64 {
	both := 0
	for gram := range a {
		if b[gram] {
			both++
		}
	}
	return float64(both) / float64(max(len(a), len(b)))
}

// refuseFlood refuses a session's twenty-first fact.
func (c *Clone) refuseFlood(f *Fact, now Millis) error {
	if f.Session == "" {
		return nil
	}
	n := 0
	for _, item := range c.Memory().All(now) {
		if item.Kind == KindFact && item.Author == c.Device().ID && item.Fact.Session == f.Session && !item.Forgotten {
			n++
		}
	}
	if n >= maxSessionFacts {
		return refuse("this session has published %d facts, which is as many as others will read: keep the best (knoot forget NAME), or add --yes", n)
	}
	return nil
}

// refuseFull refuses an entry for which its area has no room, and says what could go.
func (c *Clone) refuseFull(t *Tree, room RoomID, e *Entry, replaced []*Stored) error {
	entries, size := 1, len(e.raw)
	var live []*Item
	for _, item := range c.Memory().Current(e.Time) {
		if item.Fact == nil || item.Room != room || slices.ContainsFunc(replaced, func(s *Stored) bool { return s.ID() == item.ID() }) {
			continue
		}
		entries++
		size += len(item.raw)
		live = append(live, item)
	}
	if entries <= maxAreaEntries && size <= maxAreaBytes {
		return nil
	}
	stale := func(item *Item) int {
		if v, ok := t.Judged(item, e.Time); ok && !v.Fresh() {
			return 0
		}
		return 1
	}
	slices.SortFunc(live, func(a, b *Item) int { return cmp.Or(stale(a)-stale(b), cmp.Compare(a.Since, b.Since)) })
	var could []string
	for _, item := range live[:min(len(live), 5)] {
		could = append(could, fmt.Sprintf("%s (%s)", shellWord(item.Fact.Name), Age(item.Since, e.Time)))
	}
	what := fmt.Sprintf("%d entries", maxAreaEntries)
	if size > maxAreaBytes {
		what = fmt.Sprintf("%d MiB", maxAreaBytes>>20)
	}
	return refuse("the repository's memory is full (%s): `knoot forget` what nobody needs first, such as %s", what, strings.Join(could, ", "))
}
