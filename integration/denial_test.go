package integration

import (
	"path/filepath"
	"strings"
	"testing"

	"knoot.dev/knoot/integration/stage"
)

// The denial, byte by byte as Claude Code gets it, and what follows it: the holder stops, and the write is allowed.
func TestADenialByteByByte(t *testing.T) {
	s := newShop(t)
	s.priya.StartDaemon()
	one := stage.Session{Person: s.priya, ID: "one", Dir: s.hers}
	two := stage.Session{Person: s.priya, ID: "two", Dir: s.hers}
	one.Start()
	one.Write("src/tax.js", "half-even\n")
	ask := two.Payload("PreToolUse", map[string]any{"tool_name": "Edit", "tool_use_id": "toolu_denied",
		"tool_input": map[string]any{"file_path": filepath.Join(s.hers, "src/tax.js"), "old_string": "half-even", "new_string": "up"}})
	const golden = `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"` +
		`knoot refused this edit; your tools are working. src/tax.js has unfinished changes by priya's agent ` +
		`(branch main, last write just now; its lease has 10 minutes, more if they go on).\nNothing was written.\n` +
		`Do not make this change another way (shell, script, copy, second file, hook settings): it would collide with theirs.\n` +
		`Go on with work that does not need this file. If none is left, end your turn and tell your user that it waits for priya, ` +
		"or run `knoot wait src/tax.js`. You hear that it is free at your next tool call or prompt.\"}," +
		`"systemMessage":"knoot: an edit of src/tax.js was refused, since priya's agent holds it; your agent was told to go on with other work"}`
	if denied := s.priya.Try(s.hers, ask, "knoot", "hook", "claude"); denied.Stdout != golden || denied.Code != 0 || denied.Stderr != "" {
		t.Errorf("exit %d, printed\n%s\nwant\n%s", denied.Code, denied.Stdout, golden)
	}
	one.Stop()
	if told := two.Write("src/tax.js", "up\n"); !strings.Contains(told, "src/tax.js, which you were denied, is free now") {
		t.Errorf("once it is free: %q", told)
	}
}
