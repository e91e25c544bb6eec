package daemon

import (
	"fmt"
	"testing"

	"knoot.dev/knoot/gitlog"
)

// Names that events used count for no bound, and what is asked about last stays until its event has come.
func TestNamesThatAreAskedAboutStayForTheirEvents(t *testing.T) {
	t.Parallel()
	a := &arbitration{names: newArbiterNames(gitlog.DeviceID{})}
	known := func(path string) bool {
		p := a.pathToken(path)
		for i, dir := 0, path; dir != ""; i++ {
			dir = parent(dir)
			if a.names.name(pathType, p.Ancestors[i]) != dir {
				return false
			}
		}
		return a.pathOf(p) == path
	}
	for i := range maxUnused + 1 {
		a.names.touch(1, a.names.token(a, branchType, fmt.Sprint("used ", i)))
	}
	if !known("src/billing/tax.js") {
		t.Error("beside many used names what was asked about is gone at once")
	}
	for i := range 2 * maxUnused {
		if path := fmt.Sprintf("src/%d.js", i); a.pathOf(a.pathToken(path)) != path {
			t.Fatalf("of many unused names the one of %s is gone at once", path)
		}
	}
	if n := len(a.names.byToken) - (maxUnused + 1); n > maxUnused+10 || n != a.names.unused {
		t.Errorf("%d unused names are kept, and %d counted", n, a.names.unused)
	}
	if _, there := a.names.byName[branchType]["used 0"]; !there {
		t.Error("a used name is gone")
	}
}
