package daemon

import (
	"slices"
	"testing"

	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/gitlog"
)

// A file is known by one spelling, in which form of its letters an agent names it, and in which the file system has it.
func TestPathsAreKnownByOneSpelling(t *testing.T) {
	m := newMachine(t)
	r := m.repository("shop")
	d := m.start(Options{})
	r.isOpen()
	const composed, decomposed = "src/caf\u00e9.js", "src/cafe\u0301.js"
	one := &agent{r: r, session: "one"}
	one.edit(decomposed)
	one.edit(composed) // on Linux another file
	if err := one.shell(EventPreTool, "1", decomposed); err.Deny != "" {
		t.Error(err.Deny)
	}
	if got, want := r.audited(d, gitlog.FileWritten, gitlog.PathRemoved), []string{"FileWritten " + composed, "FileWritten " + composed}; !slices.Equal(got, want) {
		t.Errorf("the audit log has %q, want %q", got, want)
	}
	wantHolds(t, r, d, "one "+composed)

	odd := canonicalPlace(socket.Place{Root: "/x", Reads: []string{decomposed, composed, "b", "a//b", "../x", "a\x00"}, Writes: []string{"", "/abs", "a"},
		Sweeps: []socket.Sweep{{Paths: []string{decomposed}}, {}, {Paths: []string{"../x"}}}})
	if !slices.Equal(odd.Reads, []string{"b", composed}) || !slices.Equal(odd.Writes, []string{"a"}) || !slices.Equal(odd.Sweeps[0].Paths, []string{composed}) ||
		odd.Sweeps[1].Paths != nil || odd.Sweeps[2].Paths == nil {
		t.Errorf("%+v", odd)
	}
}
