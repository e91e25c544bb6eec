package daemon

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestParseFailures(t *testing.T) {
	text := "5Z daemon-absent\n2026-11-30T11:00:00.000Z daemon-absent\n2026-11-30T11:30:00.000Z slow more words\n\nrubbish\n2026-11-30T11:40:00.000Z \n" +
		"2026-11-30T11:41:00.000Z Bad\x1b[0m\n2026-11-30T11:50:00.000Z payload-n"
	want := []Failure{{now.Add(-time.Hour), "daemon-absent"}, {now.Add(-30 * time.Minute), "slow"}, {now.Add(-10 * time.Minute), "payload-n"}}
	if got := ParseFailures([]byte(text)); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func FuzzParseFailures(f *testing.F) {
	f.Add([]byte("2026-11-30T11:00:00.000Z daemon-absent\n"))
	f.Add([]byte(" \n\n 2026-11-30T11:00:00.000Z\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, one := range ParseFailures(text) {
			if one.At.IsZero() && one.Code == "" {
				t.Error("an empty failure")
			}
			if strings.ContainsAny(one.Code, "\x1b\n ") {
				t.Errorf("code %q", one.Code)
			}
		}
	})
}

func TestStats(t *testing.T) {
	in := input(EventPrompt, money, fact("rounding", "src/tax.js", "half-even"), fact("old", "src/old.js", "t"))
	in.Facts[1].Author, in.Facts[1].Agent, in.Facts[1].Stale = "sam", true, true
	var records []Shown
	hook := func(event, source, session string, age time.Duration, paths ...string) {
		in.Event, in.Source, in.Now, in.Turn, in.Call, in.Told = event, source, now.Add(-age), paths, paths, Told{}
		b := Compose(in)
		records = append(records, b.Record(in, "claude", session, ""))
	}
	hook(EventPrompt, "", "a", 8*day, "src/billing.js") // before the time that is asked for
	hook(EventPrompt, "", "a", 2*day, "src/tax.js")
	hook(EventSessionStart, "compact", "a", day, "src/billing.js", "src/tax.js") // the context began anew: not said twice
	hook(EventPreTool, "", "b", time.Hour, "src/old.js")
	hook(EventPreTool, "", "b", time.Minute, "src/cart.js") // nothing said
	bytes := 0
	for _, r := range records[1:] {
		bytes += r.Bytes
	}
	failures := []Failure{{now.Add(-8 * day), "slow"}, {now.Add(-day), "slow"}, {now.Add(-2 * time.Hour), "daemon-absent"}, {now.Add(-time.Hour), "daemon-absent"}}

	s := ComputeStats(records, failures, now.Add(-7*day))
	want := Stats{Since: "2026-11-23T12:00:00.000Z", Sessions: 2, Briefs: 3, Bytes: bytes, Facts: 4, Stale: 2,
		Authors:  []AuthorCount{{"priya", false, 2}, {"sam", true, 2}},
		News:     map[NewsKind]int{},
		Failures: []FailureCount{{"daemon-absent", 2, "2026-11-30T11:00:00.000Z"}, {"slow", 1, "2026-11-29T12:00:00.000Z"}}}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("%+v\nwant %+v", s, want)
	}

	// Said twice to one context: though a day older, and though the first time lies before the time asked for.
	hook(EventPrompt, "", "b", 0, "src/old.js")
	s = ComputeStats(records, nil, now.Add(-time.Second))
	if line := `- src/old.js: "t" (old; priya, 3 days ago)`; s.RepeatedLines != 1 || s.RepeatedBytes != len(line) {
		t.Errorf("%d lines, %d bytes said twice; want 1, %d", s.RepeatedLines, s.RepeatedBytes, len(line))
	}
}

func TestStatsPrinted(t *testing.T) {
	s := Stats{Since: "2026-11-23T12:00:00.000Z", Sessions: 1, Briefs: 2, Bytes: 500, Facts: 3, Stale: 1, RepeatedLines: 1, RepeatedBytes: 40,
		Authors:  []AuthorCount{{"priya", false, 2}, {"sam\n", true, 1}},
		News:     map[NewsKind]int{},
		Failures: []FailureCount{{"daemon-absent", 2, "2026-11-30T11:00:00.000Z"}}}
	var b strings.Builder
	if err := s.Print(&b, now); err != nil {
		t.Fatal(err)
	}
	want := `Since 2026-11-23 12:00:00:
  2 briefs to 1 session, 500 bytes (250 on average)
  3 facts delivered, 33% of them marked possibly stale
    2 of priya
    1 of an agent of "sam"
  1 line (40 bytes) told twice to one context: a mistake of knoot, please report it
  2 hooks failed open (daemon-absent), the last one 1 hour ago; agents noticed nothing
`
	if b.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", b.String(), want)
	}
	b.Reset()
	empty := ComputeStats(nil, nil, now)
	if err := empty.Print(&b, now); err != nil || b.String() != "Since 2026-11-30 12:00:00:\n  no agent was told anything\n  every hook answered\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
	text, err := json.Marshal(empty)
	if want := `{"since":"2026-11-30T12:00:00.000Z","sessions":0,"briefs":0,"bytes":0,"facts":0,"authors":[],"stale":0,"news":{},"denials":0,"denials_freed":0,"denials_written":0,"holds":0,"ungated_writes":0,"repeated_lines":0,"repeated_bytes":0,"failures":[]}`; err != nil || string(text) != want {
		t.Errorf("%s, %v\nwant %s", text, err, want)
	}
}

func TestStatsOfDenials(t *testing.T) {
	denied := []DeniedFile{{Root: "/shop", Path: "a.js"}}
	refusal := Shown{Agent: "claude", Session: "a", At: now, Event: EventPreTool, Bytes: 7, Text: "refused", Denied: denied, Written: true}
	again := refusal
	again.At, again.Written = now.Add(time.Minute), false
	free := Shown{Agent: "claude", Session: "a", At: now.Add(2 * time.Minute), Event: eventStop, Bytes: 4, Text: "free", News: map[NewsKind]int{NewsFreed: 1}}
	late := again
	late.At = now.Add(3 * time.Minute)
	other := Shown{Agent: "claude", Session: "b", At: now, Event: EventPrompt, Bytes: 4, Text: "news", News: map[NewsKind]int{NewsUngated: 2, NewsChanged: 1}}
	s := ComputeStats([]Shown{refusal, again, free, late, other}, nil, now)
	if s.Denials != 3 || s.DenialsFreed != 2 || s.DenialsWritten != 1 || s.Holds != 1 || s.UngatedWrites != 2 || s.Briefs != 2 || s.Bytes != 8 || s.RepeatedLines != 0 || s.News[NewsChanged] != 1 {
		t.Errorf("%+v", s)
	}
	var b strings.Builder
	if err := s.Print(&b, now); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"  3 denials: 2 followed by word that the file is free, 1 by a write of that session; 1 turn held open\n", "  2 writes of a file that somebody else held\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("printed\n%swant in it\n%s", b.String(), want)
		}
	}
}
