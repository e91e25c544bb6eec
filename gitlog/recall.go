package gitlog

import (
	"cmp"
	"context"
	"slices"
	"strings"
)

// Recalled is one row of `recall --json`, in the stable keys of that command.
type Recalled struct {
	ID           string   `json:"id"`
	Name         string   `json:"name"` // "" for a plan
	Kind         string   `json:"kind"` // fact, cache or plan
	Text         string   `json:"text"`
	Paths        []string `json:"paths"`  // where they are now
	Author       string   `json:"author"` // the member whose words they are; "" when not known
	At           string   `json:"at"`     // when it was said or confirmed
	Stale        bool     `json:"stale"`
	StaleReason  string   `json:"stale_reason"`
	SupersededBy *string  `json:"superseded_by"`

	Former    bool          `json:"-"` // the author has left the team
	Said      Millis        `json:"-"` // when the words were said, and confirmed since, perhaps
	Confirmed *Confirmation `json:"-"` // nil: nobody did
	Item      *Item         `json:"-"`
	Verdict   Verdict       `json:"-"`
}

// Confirmation is who last said that a fact is still true. What a session recorded again of its own fact is none.
type Confirmation struct {
	By     string // the member's name; "" when not known
	Agent  bool
	Former bool // they have left the team
	At     Millis
}

// RecallQuery says what to recall; all conditions have to hold.
type RecallQuery struct {
	Words []string // a name, or words of names and texts: all of them, or if nothing has all then any
	Path  string   // relative to the root: what is about it, about something in it, or about what contains it
	All   bool     // superseded, expired and forgotten entries and outdated cached answers too
}

// Recall returns what memory holds, newest first, with how each stands in the tree; the name that was asked for, and what
// has more of the words, comes first. Where current entries of one name disagree, each is a row. It needs no lock.
func (c *Clone) Recall(ctx context.Context, t *Tree, q RecallQuery, now Millis) ([]Recalled, error) {
	var items []*Item
	if q.All {
		items = renewed(c.Memory().All(now))
	} else {
		for _, item := range c.Memory().Current(now) {
			items = append(append(items, item), item.Disagrees...)
		}
	}
	items, ranks := matchWords(items, q.Words)
	if err := t.warm(ctx, items); err != nil {
		return nil, err
	}
	found := []Recalled{}
	kept := make(map[string]int) // ranks, by id
	for _, item := range items {
		if q.Path != "" && len(pathsOf(item)) == 0 {
			continue
		}
		verdict, err := t.Judge(ctx, c, item, now)
		if err != nil {
			return nil, err
		}
		if q.Path != "" && !touches(item, verdict, q.Path, t.ignoreCase()) {
			continue
		}
		if item.Kind == KindCache && !verdict.Fresh() && !q.All {
			continue
		}
		r := c.recalled(item, verdict)
		found = append(found, r)
		kept[r.ID] = ranks[item]
	}
	slices.SortStableFunc(found, func(a, b Recalled) int { return cmp.Compare(kept[b.ID], kept[a.ID]) })
	return found, nil
}

// renewed keeps one of a fact and its confirmations, which renew it: the one that counts, with whether it is current, superseded or
// forgotten. The order stays.
func renewed(items []*Item) []*Item {
	latest := make(map[EntryID]*Item, len(items))
	for _, item := range items {
		id := item.Origin.ID()
		if had := latest[id]; had == nil || !had.Current && (item.Current || compareRank(item.Stored, had.Stored) > 0) {
			latest[id] = item
		}
	}
	return slices.DeleteFunc(slices.Clone(items), func(item *Item) bool { return latest[item.Origin.ID()] != item })
}

// matchWords keeps the items that have the words, and ranks them.
func matchWords(items []*Item, words []string) ([]*Item, map[*Item]int) {
	ranks := make(map[*Item]int, len(items))
	if len(words) == 0 {
		return items, ranks
	}
	name := strings.Join(words, " ")
	best := 0
	for _, item := range items {
		text := strings.ToLower(textOf(item))
		if item.Fact != nil {
			text += "\n" + strings.ToLower(item.Fact.Name)
		}
		for _, word := range words {
			if strings.Contains(text, strings.ToLower(word)) {
				ranks[item]++
			}
		}
		best = max(best, ranks[item])
		if item.Fact != nil && item.Fact.Name == name {
			ranks[item] = len(words) + 1
		}
	}
	least := 1
	if best == len(words) {
		least = best
	}
	return slices.DeleteFunc(slices.Clone(items), func(item *Item) bool { return ranks[item] < least }), ranks
}

func textOf(item *Item) string {
	if item.Plan == nil {
		return item.Fact.Text
	}
	text := item.Plan.Text
	for _, decided := range item.Plan.Decided {
		if text != "" {
			text += "; "
		}
		text += "decided: " + decided
	}
	return text
}

// warm has git look at all files of these items at once.
func (t *Tree) warm(ctx context.Context, items []*Item) error {
	var names []string
	for _, item := range items {
		for _, p := range pathsOf(item) {
			if !p.Glob {
				names = append(names, p.Path)
			}
		}
	}
	if _, err := t.lookAll(ctx, names); err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return nil // what git cannot read counts as unchanged: see Judge
}

// touches says whether an item is about a path, by where its paths were or are.
func touches(item *Item, verdict Verdict, path string, fold bool) bool {
	for _, p := range pathsOf(item) {
		if p.Touches(path, fold) {
			return true
		}
	}
	for _, p := range verdict.Paths {
		if (FactPath{Path: p}).Touches(path, fold) {
			return true
		}
	}
	return false
}

func (c *Clone) recalled(item *Item, verdict Verdict) Recalled {
	r := Recalled{
		ID: item.ID().String(), Kind: scopeOf(item.Stored).kind.String(), Text: textOf(item), Paths: verdict.Paths,
		Author: c.MemberName(item.Origin.Author), At: TimeText(item.At), Stale: verdict.Stale, StaleReason: verdict.Reason,
		Former: c.Former(item.Origin.Author), Said: item.At, Item: item, Verdict: verdict,
	}
	if said := item.Origin; said != item.Stored {
		r.Said = min(said.Time, item.At)
		if item.Fact.Session == "" || item.Fact.Session != said.Fact.Session {
			r.Confirmed = &Confirmation{By: c.MemberName(item.Author), Agent: item.Fact.By != ByPerson, Former: c.Former(item.Author), At: item.At}
		}
	}
	if item.Fact != nil {
		r.Name = item.Fact.Name
	}
	if r.Paths == nil {
		r.Paths = []string{}
	}
	if item.SupersededBy != nil {
		id := item.SupersededBy.String()
		r.SupersededBy = &id
	}
	return r
}
