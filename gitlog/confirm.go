package gitlog

import (
	"bytes"
	"context"
	"errors"
	"slices"
)

// ConfirmRequest says that somebody looked, and a fact is still true.
type ConfirmRequest struct {
	Name   string `json:"name"`
	Room   string `json:"room,omitempty"`
	Author Author `json:"author"`
}

// Confirm renews a fact: its lifetime starts again, and it is about its files as they are now, where they are now.
// An expired fact can be confirmed, a forgotten one can not. Errors: a *Refusal, and what Append returns.
func (c *Clone) Confirm(ctx context.Context, t *Tree, r ConfirmRequest) (*Stored, error) {
	c.remembering.Lock()
	defer c.remembering.Unlock()
	name, err := checkedName(r.Name)
	if err != nil {
		return nil, err
	}
	rooms, err := c.rooms(r.Room, name, KindFact)
	if err != nil {
		return nil, err
	}
	if len(rooms) == 0 {
		if len(c.Memory().roomsOf(name, KindCache)) > 0 {
			return nil, refuse("%q is a cached answer, which is not confirmed: keep a new answer with `knoot cache`", name)
		}
		return nil, refuse("there is no fact %q to confirm: see `knoot recall`", name)
	}
	fact := c.Memory().heads(scope{room: rooms[0], kind: KindFact, name: name})[0]
	return c.confirm(ctx, t, fact, r.Author)
}

// confirm publishes a confirmation of a fact.
func (c *Clone) confirm(ctx context.Context, t *Tree, fact *Stored, by Author) (*Stored, error) {
	e := c.NewEntry(KindConfirmation)
	id := fact.ID()
	f := *fact.Fact
	f.By, f.Session, f.Confirms = by.By, by.Session, &id
	f.supersede([]*Stored{fact})
	e.Fact = &f
	var err error
	if f.Paths, err = c.pathsNow(ctx, t, fact, e.Time); err != nil {
		return nil, err
	}
	if err := f.place(ctx, t); err != nil {
		return nil, err
	}
	if err := c.refuseMoved(fact, f.Paths); err != nil {
		return nil, err
	}
	if err := c.encode(e); err != nil {
		return nil, err
	}
	return c.publish(ctx, fact.Room, e)
}

// refuseMoved refuses to name in a fact's room a path of another room, into which a file was renamed.
func (c *Clone) refuseMoved(fact *Stored, now []FactPath) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.mayWrite(); err != nil {
		return err
	}
	for _, p := range now {
		had := slices.ContainsFunc(fact.Fact.Paths, func(old FactPath) bool { return old.Path == p.Path })
		if room := c.roster.RoomOf(p.Path); !had && room != fact.Room && room != c.roster.General {
			return refuse("a file that %q is about is in the room %s now, and the fact is not: forget it, and remember it again with the new path", fact.Fact.Name, c.roster.roomName(room))
		}
	}
	return nil
}

// pathsNow records a fact's paths as they are now, renames followed. What is gone is left out, unless nothing else is left:
// then it stays, without a blob.
func (c *Clone) pathsNow(ctx context.Context, t *Tree, fact *Stored, now Millis) ([]FactPath, error) {
	var out, gone []FactPath
	for _, p := range fact.Fact.Paths {
		if p.Glob || p.Blob == nil {
			out = append(out, p)
			continue
		}
		alone := *fact.Entry
		body := *fact.Fact
		body.Paths = []FactPath{p}
		alone.Fact = &body
		j, err := t.judge(ctx, c, &Item{Stored: &Stored{Entry: &alone, Writer: fact.Writer, Room: fact.Room}})
		if err != nil {
			return nil, err
		}
		if j.gone {
			gone = append(gone, FactPath{Path: p.Path})
			continue
		}
		r, err := t.look(ctx, j.paths[0])
		if err != nil {
			return nil, err
		}
		fresh, err := t.recordPath(ctx, argument{path: j.paths[0]}, r)
		if err != nil {
			return nil, err
		}
		if p.Lines != nil {
			if fresh.Lines, err = t.linesNow(ctx, r, p.Lines); err != nil {
				return nil, err
			}
		}
		if fresh.Path, err = CanonicalPath(fresh.Path); err != nil {
			return nil, err
		}
		out = append(out, fresh)
	}
	if len(out) == 0 {
		out = gone
	}
	slices.SortFunc(out, comparePaths)
	return slices.CompactFunc(out, func(a, b FactPath) bool { return comparePaths(a, b) == 0 }), nil
}

// linesNow anchors again: to the same text where that still stands, else to the lines that are in its place; nil where the
// file has become too short for them.
func (t *Tree) linesNow(ctx context.Context, r blobRecord, anchor *LineAnchor) (*LineAnchor, error) {
	content, err := t.stored(ctx, r.name, r.blob)
	if err != nil {
		return nil, err
	}
	if first := findLines(content, anchor); first > 0 {
		return &LineAnchor{First: first, Last: first + anchor.Last - anchor.First, Digest: anchor.Digest}, nil
	}
	digest, ok := linesDigest(content, anchor.First, anchor.Last)
	if !ok {
		return nil, nil
	}
	return &LineAnchor{First: anchor.First, Last: anchor.Last, Digest: digest}, nil
}

// Rerecord takes note, at the end of a turn, of what a session made of files after it had written facts about them: facts
// of that session from since on (when the turn began) are confirmed with what is there now. changed are the paths that the
// session wrote in that turn. A file that somebody else wrote last is left alone.
func (c *Clone) Rerecord(ctx context.Context, t *Tree, session string, since Millis, changed []string) error {
	if session == "" || len(changed) == 0 {
		return nil
	}
	c.remembering.Lock()
	defer c.remembering.Unlock()
	now := c.NewEntry(KindConfirmation).Time
	for _, item := range c.Memory().Current(now) {
		if item.Kind != KindFact && item.Kind != KindConfirmation || item.Fact.Session != session || item.Author != c.Device().ID || item.Origin.Time < since {
			continue
		}
		moved := false
		for _, p := range item.Fact.Paths {
			if p.Blob == nil || !slices.Contains(changed, p.Path) || !c.lastWrittenBy(session, p.Path, item.Time) {
				continue
			}
			blob, err := t.Blob(ctx, p.Path)
			if err != nil {
				return err
			}
			moved = moved || blob != nil && !bytes.Equal(blob, p.Blob)
		}
		if !moved {
			continue
		}
		_, err := c.confirm(ctx, t, item.Stored, Author{By: item.Fact.By, Session: session})
		var refused *Refusal
		if err != nil && !errors.As(err, &refused) { // refused: a credential came into the file, say; the fact stays as it was
			return err
		}
	}
	return nil
}

// lastWrittenBy says whether nobody but the session wrote a path since then, as far as events tell.
func (c *Clone) lastWrittenBy(session, path string, since Millis) bool {
	for _, s := range c.Writes(path) {
		if s.Time >= since && (s.Author != c.Device().ID || s.Event.Agent+":"+s.Event.Session != session) {
			return false
		}
	}
	return true
}
