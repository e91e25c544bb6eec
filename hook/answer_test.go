package hook

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"knoot.dev/knoot/daemon/socket"
)

// What Claude Code takes for a denial, a context and a held turn, byte for byte: it ignores a denial that has anything around
// it, or no hookEventName.
func TestAnswers(t *testing.T) {
	all := socket.Answer{Context: "note", Deny: "no", Person: "told", Hold: "wait"}
	for _, c := range []struct {
		event  string
		answer socket.Answer
		want   string
	}{
		{"PreToolUse", socket.Answer{Deny: "sam's agent holds \"x\"\nuse y"},
			`{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"sam's agent holds \"x\"\nuse y"}}`},
		{"PreToolUse", socket.Answer{Deny: "no", Context: "note"},
			`{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"no","additionalContext":"note"}}`},
		{"PreToolUse", all,
			`{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"no","additionalContext":"note"},"systemMessage":"told"}`},
		{"PreToolUse", socket.Answer{Context: "<b> & é 😀 \u2028"},
			`{"hookSpecificOutput":{"hookEventName":"PreToolUse","additionalContext":"<b> & é 😀 \u2028"}}`},
		{"PreToolUse", socket.Answer{Person: "told"}, ``},
		{"PreToolUse", socket.Answer{Deny: " \n"}, ``},
		{"SessionStart", all, `{"hookSpecificOutput":{"hookEventName":"SessionStart","additionalContext":"note"}}`},
		{"UserPromptSubmit", all, `{"hookSpecificOutput":{"hookEventName":"UserPromptSubmit","additionalContext":"note"}}`},
		{"PostToolUse", all, `{"hookSpecificOutput":{"hookEventName":"PostToolUse","additionalContext":"note"}}`},
		{"PostToolUseFailure", all, `{"hookSpecificOutput":{"hookEventName":"PostToolUseFailure","additionalContext":"note"}}`},
		{"SubagentStart", all, `{"hookSpecificOutput":{"hookEventName":"SubagentStart","additionalContext":"note"}}`},
		{"Stop", all, `{"decision":"block","reason":"wait"}`},
		{"SubagentStop", all, ``},
		{"PreCompact", all, ``},
		{"SessionEnd", all, ``},
		{"SessionStart", socket.Answer{}, ``},
		{"SessionStart", socket.Answer{Deny: "no", Hold: "wait"}, ``},
		{"Stop", socket.Answer{Context: "note"}, ``},
	} {
		w := newWorld(t)
		stop := w.daemon(func(*socket.Request) *socket.Response { return &socket.Response{Answer: &c.answer} })
		want := strings.ReplaceAll(c.want, "\u2028", `\u2028`)
		if got := w.hook(w.tool(c.event, "Write", "x.go")); got != want {
			t.Errorf("%s %+v\n got %s\nwant %s", c.event, c.answer, got, want)
		}
		stop()
		if codes := w.failures(); codes != "" {
			t.Errorf("%s: failures %s", c.event, codes)
		}
	}
}

func TestATurnIsNotHeldTwice(t *testing.T) {
	hold := &socket.Answer{Hold: "wait"}
	for _, h := range []*socket.Hook{
		{Event: "Stop", StopHook: true}, {Event: "Stop", Tasks: []socket.Task{{ID: "1"}}}, {Event: "Stop", Repaired: true}, {Event: "SubagentStop"},
	} {
		if got := claude.encode(h, hold); len(got) > 0 {
			t.Errorf("%+v: %s", h, got)
		}
	}
	if got := claude.encode(&socket.Hook{Event: "Stop"}, nil); len(got) > 0 {
		t.Errorf("no answer: %s", got)
	}
}

// Whatever the daemon says, what is printed is short, JSON, valid UTF-8 and without a surrogate, and says no more than that.
func TestAnswersAreShortAndValid(t *testing.T) {
	text := rapid.OneOf(
		rapid.String(), rapid.Just(""),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 300), func(b []byte) string { return string(b) }),
		rapid.Custom(func(t *rapid.T) string {
			return strings.Repeat(rapid.SampledFrom([]string{"x", "\"", "é", "😀", "\xff", "\x00", "line\n"}).Draw(t, "unit"), rapid.IntRange(0, 12000).Draw(t, "times"))
		}))
	rapid.Check(t, func(t *rapid.T) {
		answer := socket.Answer{Context: text.Draw(t, "context"), Deny: text.Draw(t, "deny"), Person: text.Draw(t, "person"), Hold: text.Draw(t, "hold")}
		for event := range claude.events {
			out := claude.encode(&socket.Hook{Event: event}, &answer)
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
	out := claude.encode(&socket.Hook{Event: "PreToolUse"}, &socket.Answer{Deny: strings.Repeat("é", maxOutput), Context: "note", Person: "told"})
	if !strings.HasPrefix(string(out), `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"éé`) ||
		!strings.HasSuffix(string(out), `é"}}`) || len(out) > maxOutput || len(out) < maxOutput-4 {
		t.Errorf("%d bytes", len(out))
	}
}
