package daemon

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func someRecords() []Shown {
	return []Shown{
		{Agent: "claude", Session: "5b0c1111", At: now.Add(-2 * time.Hour), Event: EventSessionStart, Source: "startup", Cleared: true},
		{Agent: "claude", Session: "5b0c1111", Subagent: "a903", At: now.Add(-time.Minute), Event: EventPreTool, Cause: "before a tool call on a.js", Bytes: 7,
			Text: "line\n- x", Facts: []DeliveredFact{{ID: "f2", Name: "rounding", Author: "sam", Agent: true, Stale: true}}},
		{Agent: "claude", Session: "5b0c1111", At: now.Add(-time.Hour), Event: EventPrompt, Cause: "prompt", Bytes: 4, Text: "text",
			Facts: []DeliveredFact{{ID: "f1", Name: "money", Author: "priya"}}},
		{Agent: "claude", Session: "5b0c2222", At: now.Add(-3 * time.Hour), Event: EventPrompt, Cause: "prompt", Bytes: 3, Text: "old"},
	}
}

func TestPrintShown(t *testing.T) {
	var b strings.Builder
	if err := PrintShown(&b, someRecords(), now); err != nil {
		t.Fatal(err)
	}
	want := `2026-11-30 09:00:00 (3 hours ago)  claude 5b0c2222  UserPromptSubmit, 3 bytes, cause: prompt
old

2026-11-30 11:00:00 (1 hour ago)  claude 5b0c1111  UserPromptSubmit, 4 bytes, cause: prompt
text

2026-11-30 11:59:00 (1 minute ago)  claude 5b0c1111, subagent a903  PreToolUse, 7 bytes, cause: before a tool call on a.js
line
- x
`
	if b.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", b.String(), want)
	}
	b.Reset()
	if err := PrintShown(&b, nil, now); err != nil || b.String() != "Nothing was told to an agent in the last 7 days.\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
}

func TestPrintShownJSON(t *testing.T) {
	var b strings.Builder
	if err := PrintShownJSON(&b, someRecords()); err != nil {
		t.Fatal(err)
	}
	var rows []map[string]any
	if err := json.Unmarshal([]byte(b.String()), &rows); err != nil {
		t.Fatal(err)
	}
	if len(rows) != 3 {
		t.Fatalf("%d rows, want 3", len(rows))
	}
	last := rows[2]
	for key, want := range map[string]any{"agent": "claude", "session": "5b0c1111", "subagent": "a903", "at": "2026-11-30T11:59:00.000Z",
		"event": "PreToolUse", "cause": "before a tool call on a.js", "bytes": 7.0, "text": "line\n- x"} {
		if last[key] != want {
			t.Errorf("%s: %v, want %v", key, last[key], want)
		}
	}
	fact := last["facts"].([]any)[0].(map[string]any)
	if fact["name"] != "rounding" || fact["author"] != "sam" || fact["by_agent"] != true || fact["stale"] != true || fact["id"] != "f2" {
		t.Errorf("fact: %v", fact)
	}
	if facts, ok := rows[0]["facts"].([]any); !ok || len(facts) != 0 {
		t.Errorf("no facts: %v, want []", rows[0]["facts"])
	}
	b.Reset()
	if err := PrintShownJSON(&b, nil); err != nil || strings.TrimSpace(b.String()) != "[]" {
		t.Errorf("nothing: %q, %v", b.String(), err)
	}
}

func TestShownOf(t *testing.T) {
	records := someRecords()
	for session, want := range map[string]int{"": 4, "5b0c1111": 3, "5b0c1": 3, "claude:5b0c2222": 1, "claude:5b0c2": 1} {
		if got, err := ShownOf(records, session); err != nil || len(got) != want {
			t.Errorf("%q: %d records, %v; want %d", session, len(got), err, want)
		}
	}
	for session, want := range map[string]string{
		"5b0c": "2 sessions begin with 5b0c: write more of the id",
		"5b":   "no session 5b was told anything in the last 7 days: `knoot shown` lists all that were",
		"ffff": "no session ffff was told anything in the last 7 days: `knoot shown` lists all that were",
	} {
		if _, err := ShownOf(records, session); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %q", session, err, want)
		}
	}
	records = append(records, Shown{Agent: "claude", Session: "5b0c11112", Text: "x"})
	if got, err := ShownOf(records, "5b0c1111"); err != nil || len(got) != 3 {
		t.Errorf("an id that begins another: %d, %v", len(got), err)
	}
}

func TestRecord(t *testing.T) {
	in := input(EventPreTool, money)
	in.Call = money.Paths
	b := Compose(in)
	r := b.Record(in, "claude", "s", "sub")
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back Shown
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if back.Text != b.Text || back.Bytes != b.Bytes || back.Cause != b.Cause || back.Event != EventPreTool || back.Session != "s" || back.Subagent != "sub" ||
		len(back.Lines) != len(b.Told) || len(back.Facts) != 1 || !back.At.Equal(now) {
		t.Errorf("record: %+v", back)
	}
}
