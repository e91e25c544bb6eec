package gitlog

import (
	"context"
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
	if err := c.encode(e); err != nil {
		return nil, err
	}
	return c.publish(ctx, e)
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

func (c *Clone) clearPlan(ctx context.Context, r PlanRequest) (*Stored, error) {
	e := c.NewEntry(KindTombstone)
	e.Tombstone = &Tombstone{}
	for _, s := range c.Memory().heads(scope{kind: KindPlan, name: r.Author.Session, device: c.Device().ID}) {
		e.Tombstone.Targets = append(e.Tombstone.Targets, s.ID())
	}
	if len(e.Tombstone.Targets) == 0 {
		return nil, nil
	}
	return c.publish(ctx, e)
}
