package daemon

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Failure is a hook that failed open: a line of ~/.knoot/failures.
type Failure struct {
	At   time.Time
	Code string // of lower-case letters, digits and dashes
}

// ParseFailures reads the lines of ~/.knoot/failures: each a time in RFC 3339, a space, and a code; what follows is not used. A
// line that is none of this (cut, or damaged) is left out.
func ParseFailures(text []byte) []Failure {
	var all []Failure
	for line := range strings.Lines(string(text)) {
		stamp, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		code, _, _ := strings.Cut(rest, " ")
		at, err := time.Parse(time.RFC3339, stamp)
		if err != nil || code == "" || strings.Trim(code, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			continue
		}
		all = append(all, Failure{At: at, Code: code})
	}
	return all
}

// Stats is what briefs were worth over a time. The JSON keys are stable.
type Stats struct {
	Since    string        `json:"since"`    // RFC 3339, UTC, with milliseconds
	Sessions int           `json:"sessions"` // that were told something
	Briefs   int           `json:"briefs"`   // hooks that told something
	Bytes    int           `json:"bytes"`    // said in all
	Facts    int           `json:"facts"`    // facts and cached answers delivered
	Authors  []AuthorCount `json:"authors"`  // whose, the most first; never null
	Stale    int           `json:"stale"`    // of Facts, those marked possibly stale
	// News counts what was told of what happened, by kind. Never null.
	News map[NewsKind]int `json:"news"`
	// Denials are writes that were refused: of them DenialsFreed were followed by word that the file is free, and
	// DenialsWritten by a write of that session. Holds are turns that were held open.
	Denials        int `json:"denials"`
	DenialsFreed   int `json:"denials_freed"`
	DenialsWritten int `json:"denials_written"`
	Holds          int `json:"holds"`
	// UngatedWrites are writes of a file by somebody who did not hold it, as far as its holder or its writer was told.
	UngatedWrites int            `json:"ungated_writes"`
	RepeatedLines int            `json:"repeated_lines"`
	RepeatedBytes int            `json:"repeated_bytes"` // told twice to one context; must be 0
	Failures      []FailureCount `json:"failures"`       // hooks that failed open, by code, the most first; never null
}

// AuthorCount is how many of an author's facts were delivered.
type AuthorCount struct {
	Author string `json:"author"`
	Agent  bool   `json:"by_agent"`
	Facts  int    `json:"facts"`
}

// FailureCount is how many hooks failed open for one reason.
type FailureCount struct {
	Code  string `json:"code"`
	Count int    `json:"count"`
	Last  string `json:"last"` // RFC 3339, UTC, with milliseconds
}

// ComputeStats counts the records and failures from since on.
func ComputeStats(records []Shown, failures []Failure, since time.Time) Stats {
	s := Stats{Since: since.UTC().Format(stampFormat), Authors: []AuthorCount{}, Failures: []FailureCount{}, News: map[NewsKind]int{}}
	denied := map[[2]string]int{} // denials of a session after which nothing was heard yet
	sessions := map[[2]string]bool{}
	authors := map[BriefAuthor]int{}
	said := map[[3]string]map[string]bool{}

	records = slices.Clone(records)
	slices.SortStableFunc(records, func(a, b Shown) int { return a.At.Compare(b.At) })
	for _, r := range records {
		context := [3]string{r.Agent, r.Session, r.Subagent}
		if r.Cleared || said[context] == nil {
			said[context] = map[string]bool{}
		}
		counts := !r.At.Before(since)
		lines := blockItems(r.Text)
		if len(r.Denied) > 0 {
			lines = nil // a refusal is said as often as there is one
		}
		for _, line := range lines {
			key := string(appendLasting(nil, line)) // told yesterday and today it is the same line
			if said[context][key] && counts {
				s.RepeatedLines++
				s.RepeatedBytes += len(line)
			}
			said[context][key] = true
		}
		if r.Text == "" || !counts {
			continue
		}
		session := [2]string{r.Agent, r.Session}
		sessions[session] = true
		for kind, n := range r.News {
			s.News[kind] += n
		}
		if len(r.Denied) > 0 {
			s.Denials++
			denied[session]++
			if r.Written {
				s.DenialsWritten++
			}
			continue
		}
		if r.News[NewsFreed]+r.News[NewsTurn] > 0 {
			s.DenialsFreed += denied[session]
			denied[session] = 0
		}
		if r.Event == eventStop {
			s.Holds++
		}
		s.Briefs++
		s.Bytes += r.Bytes
		s.Facts += len(r.Facts)
		for _, f := range r.Facts {
			authors[BriefAuthor{f.Author, f.Agent}]++
			if f.Stale {
				s.Stale++
			}
		}
	}
	s.Sessions, s.UngatedWrites = len(sessions), max(s.News[NewsUngated], s.News[NewsCrossed])
	for who, n := range authors {
		s.Authors = append(s.Authors, AuthorCount{Author: who.Name, Agent: who.Agent, Facts: n})
	}
	slices.SortFunc(s.Authors, func(a, b AuthorCount) int {
		return cmp.Or(cmp.Compare(b.Facts, a.Facts), strings.Compare(a.Author, b.Author), compareBool(a.Agent, b.Agent))
	})

	count, last := map[string]int{}, map[string]time.Time{}
	for _, f := range failures {
		if f.At.Before(since) {
			continue
		}
		count[f.Code]++
		if f.At.After(last[f.Code]) {
			last[f.Code] = f.At
		}
	}
	for code, n := range count {
		s.Failures = append(s.Failures, FailureCount{Code: code, Count: n, Last: last[code].UTC().Format(stampFormat)})
	}
	slices.SortFunc(s.Failures, func(a, b FailureCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Code, b.Code))
	})
	return s
}

// blockItems takes a block apart into what it says: each line with those below it that belong to it. The heading, and the
// lines that open a group, say nothing by themselves.
func blockItems(block string) (items []string) {
	for line := range strings.SplitSeq(block, "\n") {
		switch {
		case strings.HasPrefix(line, "  ") && len(items) > 0:
			items[len(items)-1] += "\n" + line
		case line == "" || line == heading || line == holdHeading || line == alsoLine || strings.HasPrefix(line, sincePrefix):
		default:
			items = append(items, line)
		}
	}
	return items
}

// Print writes the statistics for a person.
func (s *Stats) Print(w io.Writer, now time.Time) error {
	var b strings.Builder
	since, _ := time.Parse(time.RFC3339, s.Since)
	fmt.Fprintf(&b, "Since %s:\n", since.In(now.Location()).Format(time.DateTime))
	if s.Briefs == 0 {
		b.WriteString("  no agent was told anything\n")
	} else {
		fmt.Fprintf(&b, "  %s to %s, %s (%d on average)\n", count(s.Briefs, "brief"), count(s.Sessions, "session"), count(s.Bytes, "byte"), s.Bytes/s.Briefs)
		fmt.Fprintf(&b, "  %s delivered", count(s.Facts, "fact"))
		if s.Facts > 0 {
			fmt.Fprintf(&b, ", %d%% of them marked possibly stale", (100*s.Stale+s.Facts/2)/s.Facts)
		}
		b.WriteString("\n")
		for _, a := range s.Authors {
			fmt.Fprintf(&b, "    %d of %s\n", a.Facts, authorWords(a.Author, a.Agent))
		}
	}
	if s.Denials > 0 {
		fmt.Fprintf(&b, "  %s: %d followed by word that the file is free, %d by a write of that session; %s held open\n", count(s.Denials, "denial"), s.DenialsFreed,
			s.DenialsWritten, count(s.Holds, "turn"))
	}
	if s.UngatedWrites > 0 {
		fmt.Fprintf(&b, "  %s of a file that somebody else held\n", count(s.UngatedWrites, "write"))
	}
	if s.RepeatedLines > 0 {
		fmt.Fprintf(&b, "  %s (%s) told twice to one context: a mistake of knoot, please report it\n", count(s.RepeatedLines, "line"), count(s.RepeatedBytes, "byte"))
	}
	if len(s.Failures) == 0 {
		b.WriteString("  every hook answered\n")
	}
	for _, f := range s.Failures {
		last, _ := time.Parse(time.RFC3339, f.Last)
		fmt.Fprintf(&b, "  %s failed open (%s), the last one %s; agents noticed nothing\n", count(f.Count, "hook"), f.Code, ago(now, last))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
