package hook

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"knoot.dev/knoot/daemon/socket"
)

// golden are the rows of testdata/answers.tsv: what an agent is told, byte for byte, for each of its events and each thing that a
// daemon may have to say.
type golden struct{ agent, event, what, want string }

func goldenAnswers(t *testing.T) (rows []golden) {
	t.Helper()
	for _, line := range lines(t, "answers.tsv") {
		cells := strings.Split(line, "\t")
		if len(cells) != 4 {
			t.Fatalf("%q", line)
		}
		rows = append(rows, golden{cells[0], cells[1], cells[2], cells[3]})
	}
	return rows
}

// Agents ignore a denial that has anything around it, or no hookEventName.
func TestAnswers(t *testing.T) {
	said := map[string]socket.Answer{
		"context": {Context: "note \"é\"\n<2> \u2028"}, "deny": {Deny: "sam's agent holds till.go\nuse \\"}, "person": {Person: "told"},
		"hold": {Hold: "it is free"}, "nothing": {},
	}
	rows := map[string]int{}
	w := newWorld(t)
	var answer socket.Answer
	w.daemon(func(*socket.Request) *socket.Response { return &socket.Response{Answer: &answer} })
	for _, c := range goldenAnswers(t) {
		rows[c.agent+" "+c.event]++
		answer = socket.Answer{}
		for what := range strings.FieldsSeq(c.what) {
			part, known := said[what]
			if !known {
				t.Fatalf("%+v", c)
			}
			answer.Context += part.Context
			answer.Deny += part.Deny
			answer.Person += part.Person
			answer.Hold += part.Hold
		}
		if got := w.run(w.tool(c.event, shellOf(c.agent), "x.go"), c.agent); got != c.want {
			t.Errorf("%s, %s: %s\n got %s\nwant %s", c.agent, c.event, c.what, got, c.want)
		}
	}
	if codes := w.failures(); codes != "" {
		t.Errorf("failures %s", codes)
	}
	for name, a := range agents {
		for event := range a.events {
			if rows[name+" "+event] != 9 {
				t.Errorf("%s, %s: %d answers, want 9", name, event, rows[name+" "+event])
			}
		}
	}
}

// shellOf is an agent's name of the tool that runs command lines.
func shellOf(agent string) string {
	var names []string
	for name, t := range agents[agent].tools {
		if t.shell {
			names = append(names, name)
		}
	}
	return slices.Min(names)
}

func TestReportClaudeMem1288BlankAnswersAreNone(t *testing.T) {
	w := newWorld(t)
	w.daemon(func(*socket.Request) *socket.Response {
		return &socket.Response{Answer: &socket.Answer{Context: "\n", Deny: " \n", Person: " ", Hold: " "}}
	})
	for name, a := range agents {
		for event := range a.events {
			if got := w.run(w.tool(event, shellOf(name), "x.go"), name); got != "" {
				t.Errorf("%s, %s: %s", name, event, got)
			}
		}
	}
}

func TestReportClaudeCode2956ATurnIsNotHeldTwice(t *testing.T) {
	hold := &socket.Answer{Hold: "wait"}
	for name, a := range agents {
		for event, r := range a.events {
			if got := a.encode(event, &socket.Hook{Event: event}, hold); r.hold != (len(got) > 0) {
				t.Errorf("%s, %s: %q", name, event, got)
			}
			for _, h := range []*socket.Hook{{Event: event, StopHook: true}, {Event: event, Tasks: []socket.Task{{ID: "1"}}}, {Event: event, Repaired: true}} {
				if got := a.encode(event, h, hold); len(got) > 0 {
					t.Errorf("%s, %+v: %s", name, h, got)
				}
			}
			if got := a.encode(event, &socket.Hook{Event: event}, nil); len(got) > 0 {
				t.Errorf("%s, %s, no answer: %s", name, event, got)
			}
		}
	}
}

// Whatever the daemon says, what is printed is short, JSON, valid UTF-8 and without a surrogate, and says no more than that.
func TestReportClaudeCode40303AnswersAreShortAndValid(t *testing.T) {
	text := rapid.OneOf(
		rapid.String(), rapid.Just(""),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 300), func(b []byte) string { return string(b) }),
		rapid.Custom(func(t *rapid.T) string {
			return strings.Repeat(rapid.SampledFrom([]string{"x", "\"", "é", "😀", "\xff", "\x00", "line\n"}).Draw(t, "unit"), rapid.IntRange(0, 12000).Draw(t, "times"))
		}))
	rapid.Check(t, func(t *rapid.T) {
		answer := socket.Answer{Context: text.Draw(t, "context"), Deny: text.Draw(t, "deny"), Person: text.Draw(t, "person"), Hold: text.Draw(t, "hold")}
		for event := range claude.events {
			out := claude.encode(event, &socket.Hook{Event: event}, &answer)
			if len(out) == 0 {
				continue
			}
			var got struct {
				Decision, Reason, SystemMessage string
				HookSpecificOutput              struct {
					HookEventName, PermissionDecision, PermissionDecisionReason, AdditionalContext string
				}
			}
			if err := json.Unmarshal(out, &got); err != nil || len(out) > maxOutput || !utf8.Valid(out) {
				t.Fatalf("%s: %v, %d bytes: %q", event, err, len(out), out)
			}
			inner := got.HookSpecificOutput
			for said, whole := range map[string]string{
				inner.AdditionalContext: answer.Context, inner.PermissionDecisionReason: answer.Deny, got.SystemMessage: answer.Person, got.Reason: answer.Hold,
			} {
				if !strings.HasPrefix(replaceInvalid([]byte(whole)), said) {
					t.Fatalf("%s: %q is not of %q", event, said, whole)
				}
			}
			if deny := inner.PermissionDecisionReason; (inner.PermissionDecision == "deny") != (deny != "") {
				t.Fatalf("%s: %q", event, out)
			}
		}
	})
}

func TestALongDenialIsADenial(t *testing.T) {
	out := claude.encode("PreToolUse", &socket.Hook{Event: "PreToolUse"}, &socket.Answer{Deny: strings.Repeat("é", maxOutput), Context: "note", Person: "told"})
	if !strings.HasPrefix(string(out), `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"éé`) ||
		!strings.HasSuffix(string(out), `é"}}`) || len(out) > maxOutput || len(out) < maxOutput-4 {
		t.Errorf("%d bytes", len(out))
	}
}
