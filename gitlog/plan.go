package gitlog

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"
)

// PlanRequest sets or clears a session's plan.
type PlanRequest struct {
	Text    string   `json:"text"`
	Decided []string `json:"decided,omitempty"`
	Paths   []string `json:"paths,omitempty"`
	Clear   bool     `json:"clear,omitempty"`
	Author  Author   `json:"author"`
}

// withheld stands for a text that looks like it holds a credential.
const withheldText = "withheld"

// SetPlan publishes what a session means to do, in place of what it meant before; with Clear it takes that back, and
// returns the tombstone, nil where there was no plan. Texts that look like they hold a credential become "withheld". Errors: a
// *Refusal, and what Append returns.
func (c *Clone) SetPlan(ctx context.Context, t *Tree, r PlanRequest) (*Stored, error) {
	c.remembering.Lock()
	defer c.remembering.Unlock()
	if r.Clear {
		return c.clearPlan(ctx, r)
	}
	e := c.NewEntry(KindPlan)
	p := &Plan{Session: r.Author.Session}
	e.Plan = p
	text, err := plannedText(r.Text)
	if err != nil {
		return nil, err
	}
	p.Text = text
	for _, each := range r.Decided {
		decided, err := plannedText(each)
		if err != nil {
			return nil, err
		}
		if decided != "" {
			p.Decided = append(p.Decided, decided)
		}
	}
	if p.Text == "" && len(p.Decided) == 0 {
		return nil, refuse("a plan needs a text or something decided: knoot plan TEXT, or --decided D; --clear takes it back")
	}
	if p.Paths, err = t.paths(ctx, r.Paths); err != nil {
		return nil, err
	}
	room, err := c.roomOfPaths("", p.Paths)
	if err != nil {
		return nil, err
	}
	if err := c.encode(e); err != nil {
		return nil, err
	}
	// Who is not in the new plan's room would go on seeing the one before.
	rooms := c.endPlans(p.Session, func(old RoomID) bool { return old != room })
	rooms[room] = []*Entry{e}
	if err := c.appendTo(ctx, rooms); err != nil {
		return nil, err
	}
	return c.publishedPlan(e)
}

// endPlans makes a tombstone for the plans of a session in each room that is meant.
func (c *Clone) endPlans(session string, in func(RoomID) bool) map[RoomID][]*Entry {
	ended := map[RoomID]*Entry{}
	rooms := map[RoomID][]*Entry{}
	for _, s := range c.Memory().heads(scope{kind: KindPlan, name: session, device: c.Device().ID}) {
		if !in(s.Room) || !c.mayWriteRoom(s.Room) {
			continue
		}
		if ended[s.Room] == nil {
			ended[s.Room] = c.NewEntry(KindTombstone)
			ended[s.Room].Tombstone = &Tombstone{}
			rooms[s.Room] = []*Entry{ended[s.Room]}
		}
		ended[s.Room].Tombstone.Targets = append(ended[s.Room].Tombstone.Targets, s.ID())
	}
	return rooms
}

func (c *Clone) mayWriteRoom(id RoomID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mayWrite() == nil && c.inRoom(id)
}

func (c *Clone) publishedPlan(e *Entry) (*Stored, error) {
	s, ok := c.Memory().entry(e.ID())
	if !ok {
		return nil, fmt.Errorf("entry %s was written and is not in memory", e.ID())
	}
	return s, nil
}

func plannedText(text string) (string, error) {
	if !utf8.ValidString(text) {
		return "", refuse("the plan is no UTF-8")
	}
	if text = strings.TrimSpace(text); Withheld(text) {
		text = withheldText
	}
	return text, nil
}

// clearPlan returns one of the tombstones: there is one for each room that had a plan of the session.
func (c *Clone) clearPlan(ctx context.Context, r PlanRequest) (*Stored, error) {
	rooms := c.endPlans(r.Author.Session, func(RoomID) bool { return true })
	for _, entries := range rooms {
		if err := c.appendTo(ctx, rooms); err != nil {
			return nil, err
		}
		return c.publishedPlan(entries[0])
	}
	return nil, nil
}
