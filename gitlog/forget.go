package gitlog

import (
	"cmp"
	"context"
	"slices"
	"strings"
)

// ForgetRequest ends a fact or a cached answer.
type ForgetRequest struct {
	Name   string `json:"name,omitempty"`
	Last   bool   `json:"last,omitempty"` // the last one that this session, or without a session this device, wrote
	Reason string `json:"reason,omitempty"`
	Room   string `json:"room,omitempty"`
	Author Author `json:"author"`
}

// Forget ends everything that is current under a name, facts and cached answers, and returns what that was. What those
// had superseded does not come back. The entries stay in the chain: forgotten is not erased. Errors: a *Refusal, and what
// Append returns.
func (c *Clone) Forget(ctx context.Context, t *Tree, r ForgetRequest) ([]EntryID, error) {
	c.remembering.Lock()
	defer c.remembering.Unlock()
	e := c.NewEntry(KindTombstone)
	if Withheld(r.Reason) {
		return nil, refuse("the reason looks like it holds a credential, so nothing was written: leave it out")
	}
	name := r.Name
	kinds := []EntryKind{KindFact, KindCache}
	if r.Last {
		last, err := c.last(r.Author, e.Time)
		if err != nil {
			return nil, err
		}
		name = last.Fact.Name
		kinds = []EntryKind{scopeOf(last).kind}
		if r.Room == "" {
			r.Room = last.Room.String()
		}
	}
	name, err := checkedName(name)
	if err != nil {
		return nil, err
	}
	rooms, err := c.rooms(r.Room, name, kinds...)
	if err != nil {
		return nil, err
	}
	if len(rooms) == 0 {
		return nil, refuse("there is no %q to forget: see `knoot recall`", name)
	}
	e.Tombstone = &Tombstone{Name: name, Reason: strings.TrimSpace(r.Reason)}
	for _, kind := range kinds {
		for _, s := range c.Memory().heads(scope{room: rooms[0], kind: kind, name: name}) {
			e.Tombstone.Targets = append(e.Tombstone.Targets, s.ID())
		}
	}
	if err := c.encode(e); err != nil {
		return nil, err
	}
	if _, err := c.publish(ctx, rooms[0], e); err != nil {
		return nil, err
	}
	return e.Tombstone.Targets, nil
}

// last finds the newest entry of a session, or of this device where there is no session.
func (c *Clone) last(by Author, now Millis) (*Stored, error) {
	var last *Stored
	for _, item := range c.Memory().All(now) {
		if item.Fact == nil || item.Author != c.Device().ID || item.Forgotten || item.SupersededBy != nil || by.Session != "" && item.Fact.Session != by.Session {
			continue
		}
		if last == nil || cmp.Or(cmp.Compare(item.Time, last.Time), cmp.Compare(item.Seq, last.Seq)) > 0 {
			last = item.Stored
		}
	}
	if last == nil {
		return nil, refuse("there is nothing of this session to take back: name it, as in `knoot forget NAME`")
	}
	return last, nil
}

// rooms returns the rooms that have something current, or expired, under a name. More than one is refused unless room
// names one of them.
func (c *Clone) rooms(room, name string, kinds ...EntryKind) ([]RoomID, error) {
	found := c.Memory().roomsOf(name, kinds...)
	if room != "" {
		id, err := c.room(room)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(found, id) {
			return nil, nil
		}
		return []RoomID{id}, nil
	}
	if len(found) > 1 {
		return nil, refuse("%q is in several rooms (%s): say which with --room", name, c.namesOf(found))
	}
	return found, nil
}

func (c *Clone) namesOf(rooms []RoomID) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.roster.roomNames(rooms)
}
