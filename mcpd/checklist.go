package mcpd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"knoot.dev/knoot/daemon"
)

// Kinds of an item of a checklist.
const (
	checkItem    = "check" // the person ticks it
	QuestionItem = "question"
)

const (
	// maxItems bounds a checklist; maxItem an item's text, and maxAnswer what the person answers, in bytes.
	maxItems  = 100
	maxItem   = 500
	maxAnswer = 2000
)

// Checklist is a list that an agent has the person go through, as the person left it. It is never changed, but replaced as a whole.
type Checklist struct {
	Title string `json:"title"`
	Items []Item `json:"items"`
	Sent  bool   `json:"sent"` // as it is, to the agent
}

// Item is an item of a checklist.
type Item struct {
	ID     string `json:"id"`
	Text   string `json:"text"`
	Kind   string `json:"kind"`             // check or question
	Ticked bool   `json:"ticked"`           // a check
	Answer string `json:"answer,omitempty"` // to a question
}

func checklistTools() []*tool {
	return []*tool{
		{group: display, name: "show-checklist", about: "Have your user go through a checklist: tick items, answer questions, and send it to you.", hints: hints{again: true},
			takes: []argument{{name: "title"}, {name: "items", schema: `"type":"array","items":{"type":"object","properties":{"id":{"type":"string"},"text":{"type":"string"},` +
				`"kind":{"type":"string","enum":["check","question"]}},"required":["id","text"]}`}}, do: showChecklist},
		{group: display, name: "get-checklist", about: "Read your checklist as your user left it: ticks, answers, and whether it was sent.", hints: hints{reads: true}, do: getChecklist},
	}
}

func showChecklist(_ context.Context, c *call) (any, error) {
	title, err := c.args.text("title")
	if err != nil {
		return nil, err
	}
	objects, err := c.args.objects("items")
	if err != nil {
		return nil, err
	}
	list, err := readChecklist(title, objects)
	if err != nil {
		return nil, err
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	b := c.boardOf(c.agent.ID)
	b.Checklist = list.after(b.Checklist)
	if err := c.keepBoard(b); err != nil {
		return nil, err
	}
	if err := c.show(c.agent.ID, Artifact{Kind: ChecklistArtifact}); err != nil {
		return nil, err
	}
	return b.Checklist, nil
}

func readChecklist(title string, objects []arguments) (*Checklist, error) {
	list := &Checklist{Title: daemon.Clean(title, maxTitle), Items: []Item{}}
	if len(objects) == 0 || len(objects) > maxItems {
		return nil, refusef("a checklist has 1 to %d items, and this one %d", maxItems, len(objects))
	}
	for _, o := range objects {
		item := Item{}
		var err error
		if item.ID, err = o.required("items", "id"); err != nil {
			return nil, err
		}
		if item.Text, err = o.required("items", "text"); err != nil {
			return nil, err
		}
		if item.Kind, err = o.text("kind"); err != nil {
			return nil, err
		}
		switch {
		case len(item.ID) > maxID || item.ID != daemon.Clean(item.ID, maxID):
			return nil, refusef("%q is no id for an item: it is one line of up to %d bytes", daemon.Clean(item.ID, maxID), maxID)
		case len(item.Text) > maxItem:
			return nil, refusef("item %q has %d bytes and may have %d", item.ID, len(item.Text), maxItem)
		case list.item(item.ID) != nil:
			return nil, refusef("two items are called %q", item.ID)
		case item.Kind == "":
			item.Kind = checkItem
		case item.Kind != checkItem && item.Kind != QuestionItem:
			return nil, refusef("the kind of item %q is to be %q or %q", item.ID, checkItem, QuestionItem)
		}
		list.Items = append(list.Items, item)
	}
	return list, nil
}

func (l *Checklist) item(id string) *Item {
	for i := range l.Items {
		if l.Items[i].ID == id {
			return &l.Items[i]
		}
	}
	return nil
}

// after is the list with what the person said in one before: to items of the same id and kind.
func (l *Checklist) after(before *Checklist) *Checklist {
	if before == nil {
		return l
	}
	for i := range l.Items {
		now := &l.Items[i]
		if was := before.item(now.ID); was != nil && was.Kind == now.Kind {
			now.Ticked, now.Answer = was.Ticked, was.Answer
		}
	}
	return l
}

func getChecklist(_ context.Context, c *call) (any, error) {
	b := c.boardOf(c.agent.ID)
	if b.Checklist == nil {
		return nil, refusal("you have shown no checklist: show-checklist does")
	}
	return b.Checklist, nil
}

// fillIn records what the person says to an item of an agent's checklist: a tick, or none, or an answer, or "" for none.
func (s *Server) fillIn(agent, id string, ticked bool, answer string) error {
	switch {
	case len(answer) > maxAnswer:
		return refusef("the answer has %d bytes and may have %d", len(answer), maxAnswer)
	case !utf8.ValidString(answer):
		return refusal("the answer is no UTF-8")
	}
	return s.changeChecklist(agent, func(l *Checklist) error {
		item := l.item(id)
		if item == nil {
			return refusef("the checklist has no item %q", daemon.Clean(id, maxID))
		}
		switch {
		case item.Kind == QuestionItem && ticked && answer == "":
			return refusef("item %q is a question: say the answer", id)
		case item.Kind == QuestionItem:
			item.Answer = answer
		case answer != "":
			return refusef("item %q is no question: it is ticked, without an answer", id)
		default:
			item.Ticked = ticked
		}
		l.Sent = false
		return nil
	})
}

// sendChecklist delivers an agent's checklist to it as it is, in one message of the person's.
func (s *Server) sendChecklist(ctx context.Context, agent string) error {
	of, known := s.find(agent)
	list := s.boardOf(agent).Checklist
	if !known || list == nil {
		return refusef("%s has shown no checklist", daemon.Clean(agent, 40))
	}
	if err := s.host.SendAsPerson(ctx, of.Folder, agent, list.message()); err != nil {
		return err
	}
	return s.changeChecklist(agent, func(l *Checklist) error {
		l.Sent = true
		return nil
	})
}

// message is the list with what the person said, a line an item.
func (l *Checklist) message() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Checklist %q:", l.Title)
	for _, item := range l.Items {
		said := "not ticked"
		switch {
		case item.Kind == QuestionItem && item.Answer == "":
			said = "not answered"
		case item.Kind == QuestionItem:
			said = item.Answer
		case item.Ticked:
			said = "ticked"
		}
		fmt.Fprintf(&b, "\n%s: %s", item.ID, said)
	}
	return b.String()
}

func (s *Server) changeChecklist(agent string, change func(*Checklist) error) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	b := s.boardOf(agent)
	if b.Checklist == nil {
		return refusef("%s has shown no checklist", daemon.Clean(agent, 40))
	}
	now := *b.Checklist
	now.Items = slices.Clone(now.Items)
	if err := change(&now); err != nil {
		return err
	}
	b.Checklist = &now
	return s.keepBoard(b)
}
