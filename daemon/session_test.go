package daemon

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"knoot.dev/knoot/gitlog"
)

func TestIntent(t *testing.T) {
	long := strings.Repeat("wörter ", 60)
	for _, each := range []struct {
		prompt  string
		machine bool
		had     string
		want    string
	}{
		{prompt: "fix the failing tests", want: "fix the failing tests"},
		{prompt: "  fix\nthe \t failing tests ", want: "fix the failing tests"},
		{prompt: "fix the tests"},
		{prompt: "/review all of these files"},
		{prompt: "a background task has finished now", machine: true},
		{prompt: "and now fix these too", had: "fix the failing tests"},
		{prompt: "now write the guide for people who host it", had: "fix the failing tests", want: "now write the guide for people who host it"},
		{prompt: long, want: string([]rune(long)[:160])},
	} {
		if got := intentOf(each.prompt, each.machine, each.had); got != each.want {
			t.Errorf("%q after %q: %q, want %q", each.prompt, each.had, got, each.want)
		}
	}
}

func TestIntentIsOneShortLine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		prompt := rapid.String().Draw(t, "prompt")
		got := intentOf(prompt, false, "")
		if utf8.RuneCountInString(got) > intentLength || strings.ContainsAny(got, "\n\r\t") || got != strings.TrimSpace(got) {
			t.Fatalf("intent %q", got)
		}
	})
}

// drawRecord is any change of one of a few sessions.
func drawRecord(t *rapid.T, at gitlog.Millis) *stateRecord {
	r := &stateRecord{At: at, Session: sessionKey{Agent: "claude", ID: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "session")},
		Subagent: rapid.SampledFrom([]string{"", "sub"}).Draw(t, "subagent")}
	switch rapid.IntRange(0, 9).Draw(t, "change") {
	case 0:
		r.Start = &sessionStart{Home: "/r", Process: rapid.IntRange(0, 3).Draw(t, "process"), Name: "n"}
	case 1:
		intent := rapid.SampledFrom([]string{"x", "y"}).Draw(t, "intent")
		r.Intent = &intent
	case 2:
		r.Ended = true
	case 3:
		r.Cleared = true
	case 4:
		r.Turn = rapid.IntRange(1, 5).Draw(t, "turn")
	case 5:
		r.Touched = []*touch{{Root: "/r", Path: rapid.SampledFrom([]string{"p", "q"}).Draw(t, "path"), Read: 1, At: at, Stamp: stamp{Size: int64(at)}}}
	case 6:
		r.Told, r.Spent = []LineDigest{{rapid.Byte().Draw(t, "line")}}, 10
		r.Delivered = []DeliveredFact{{ID: "f", Name: "n"}}
		r.Shown = &Shown{Agent: "claude", Session: r.Session.ID, Subagent: r.Subagent, Text: "text"}
	case 8:
		r.Owed, r.Aside = []happening{{ID: rapid.Uint64Range(0, 3).Draw(t, "id"), Root: "/r", At: at, Kind: gitlog.FileWritten, Written: []string{"p"}}}, true
	case 9:
		r.Settled, r.Aside = []uint64{1, 2}, true
	case 7:
		r.Announced, r.Invited = "/r/.git", true
	}
	return r
}

func TestStateIsTheSameAfterItWasRewritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		live := sessions{}
		for i := range rapid.IntRange(0, 40).Draw(t, "changes") {
			live.apply(drawRecord(t, gitlog.Millis(i+1)))
		}
		again := sessions{}
		for _, s := range live {
			for _, r := range s.records() {
				again.apply(r)
			}
		}
		if got, want := dump(again), dump(live); got != want {
			t.Fatalf("rewritten:\n%s\nwant\n%s", got, want)
		}
	})
}
