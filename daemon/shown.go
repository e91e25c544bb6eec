package daemon

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Shown is the record of what one hook told one context, verbatim; also of a context that began anew without a word
// (Cleared, no text). It is kept on this machine, sealed, for 7 days, and never synced.
type Shown struct {
	Agent    string    `json:"agent"`              // claude
	Session  string    `json:"session"`            // the agent's session id
	Subagent string    `json:"subagent,omitempty"` // its subagent's id
	At       time.Time `json:"at"`
	Event    string    `json:"event"`            // UserPromptSubmit, …
	Source   string    `json:"source,omitempty"` // SessionStart's
	Cause    string    `json:"cause"`            // Brief.Cause
	Bytes    int       `json:"bytes"`
	Text     string    `json:"text"`
	// Cleared says that the context began anew here, so that earlier lines may be said again.
	Cleared bool `json:"cleared,omitempty"`
	// Denied are the files of a write that was refused; Text is the reason then. Written says that the session wrote them all
	// later; ReadHistory knows.
	Denied  []DeniedFile `json:"denied,omitempty"`
	Written bool         `json:"-"`
	// News counts what was told of what happened, by kind.
	News  map[NewsKind]int `json:"news,omitempty"`
	Lines []LineDigest     `json:"lines"` // Brief.Told
	Facts []DeliveredFact  `json:"facts"`
}

// DeliveredFact is a fact or a cached answer that a brief carried. Its strings are as stored: clean them before they are
// printed.
type DeliveredFact struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Author string `json:"author"` // the member's name
	Agent  bool   `json:"by_agent,omitempty"`
	Stale  bool   `json:"stale,omitempty"`
}

// DeniedFile is a file that somebody else held.
type DeniedFile struct {
	Root string `json:"root"` // of the worktree
	Path string `json:"path"` // relative to it
}

// Record makes the record of a brief that was told.
func (b *Brief) Record(in *BriefInput, agent, session, subagent string) Shown {
	return Shown{Agent: agent, Session: session, Subagent: subagent, At: in.Now, Event: in.Event, Source: in.Source, Cause: b.Cause,
		Bytes: b.Bytes, Text: b.Text, Cleared: b.Clear, Lines: b.Told, Facts: b.Facts, News: b.News}
}

// PrintShown prints what was told, oldest first: a line with time, session, event, bytes and cause, then the text as the model
// got it. Records without text are left out.
func PrintShown(w io.Writer, records []Shown, now time.Time) error {
	var b strings.Builder
	for _, r := range inOrder(records) {
		who := quoteName(r.Agent, maxNameBytes) + " " + quoteName(r.Session, maxNameBytes)
		if r.Subagent != "" {
			who += ", subagent " + quoteName(r.Subagent, maxNameBytes)
		}
		fmt.Fprintf(&b, "%s (%s)  %s  %s, %d bytes, cause: %s\n%s\n\n", r.At.In(now.Location()).Format(time.DateTime), ago(now, r.At), who,
			quoteName(r.Event, maxNameBytes), r.Bytes, cleanText(r.Cause, 2*maxPathBytes), r.Text)
	}
	text := strings.TrimSuffix(b.String(), "\n")
	if text == "" {
		text = "Nothing was told to an agent in the last 7 days.\n"
	}
	_, err := io.WriteString(w, text)
	return err
}

// PrintShownJSON prints the same records as a JSON array; `at` is RFC 3339 in UTC, with milliseconds.
func PrintShownJSON(w io.Writer, records []Shown) error {
	type row struct {
		Shown
		At    string          `json:"at"`
		Facts []DeliveredFact `json:"facts"`
		Lines any             `json:"lines,omitempty"` // digests mean nothing outside this machine
	}
	rows := []row{}
	for _, r := range inOrder(records) {
		rows = append(rows, row{Shown: r, At: r.At.UTC().Format(stampFormat), Facts: append([]DeliveredFact{}, r.Facts...)})
	}
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	return out.Encode(rows)
}

// stampFormat is RFC 3339 with milliseconds, for a time in UTC.
const stampFormat = "2006-01-02T15:04:05.000Z"

// inOrder returns the records that hold text, oldest first.
func inOrder(records []Shown) []Shown {
	told := slices.DeleteFunc(slices.Clone(records), func(r Shown) bool { return r.Text == "" })
	slices.SortStableFunc(told, func(a, b Shown) int { return a.At.Compare(b.At) })
	return told
}

// ShownOf returns the records of a session, named by its id or by the first characters of it (at least 4), also with the
// agent's name and a colon before it; of all sessions for "". An error is a sentence: no such session, or several.
func ShownOf(records []Shown, session string) ([]Shown, error) {
	if session == "" {
		return records, nil
	}
	found := map[string]bool{}
	whole := false
	for _, r := range records {
		for _, id := range []string{r.Session, r.Agent + ":" + r.Session} {
			if id == session && !whole {
				clear(found)
				whole = true
			}
			if id == session || !whole && len(session) >= 4 && strings.HasPrefix(id, session) {
				found[r.Agent+":"+r.Session] = true
			}
		}
	}
	switch {
	case len(found) == 0:
		return nil, fmt.Errorf("no session %s was told anything in the last 7 days: `knoot shown` lists all that were", quoteName(session, maxPathBytes))
	case len(found) > 1:
		return nil, fmt.Errorf("%d sessions begin with %s: write more of the id", len(found), quoteName(session, maxPathBytes))
	}
	return slices.DeleteFunc(slices.Clone(records), func(r Shown) bool { return !found[r.Agent+":"+r.Session] }), nil
}
