package daemon

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/gitlog"
)

// pastEvents are audit events of one sequencer, a line each: seconds, session, event, and what belongs to it.
func pastEvents(t *testing.T, text string) (out []*gitlog.Stored) {
	t.Helper()
	kinds := map[string]gitlog.EntryKind{"starts": gitlog.SessionStarted, "intends": gitlog.IntentDeclared, "plans": gitlog.PlanDeclared,
		"claims": gitlog.ClaimAcquired, "ends": gitlog.SessionEnded, "releases": gitlog.ClaimReleased, "denied": gitlog.ClaimDenied,
		"freed": gitlog.PathFreed, "writes": gitlog.FileWritten, "moves": gitlog.BranchMoved}
	for n, line := range strings.Split(strings.TrimSpace(text), "\n") {
		var seconds, until uint64
		var session, verb, rest string
		fields := strings.Fields(line)
		if _, err := fmt.Sscan(fields[0], &seconds); err != nil {
			t.Fatal(err)
		}
		session, verb, rest = fields[1], fields[2], strings.Join(fields[3:], " ")
		e := &gitlog.Event{Order: &gitlog.Order{Term: 1, Seq: uint64(n)}, Agent: "claude", Session: session, Branch: "refs/heads/main"}
		switch verb {
		case "intends", "plans":
			e.Text = rest
		case "moves":
			e.OldBranch, e.Branch = e.Branch, "refs/heads/"+rest
		case "claims", "releases", "writes":
			path, end, _ := strings.Cut(rest, " until ")
			e.Paths, e.Claim, e.Class = []gitlog.EventPath{{Path: path}}, []byte("claim of "+session+path), uint64(arbiter.File)
			if end != "" {
				if _, err := fmt.Sscan(end, &until); err != nil {
					t.Fatal(err)
				}
				e.Until = gitlog.Millis(until * 1000)
			}
		case "denied", "freed":
			e.Paths = []gitlog.EventPath{{Path: rest}}
		}
		entry := &gitlog.Entry{Kind: kinds[verb], Time: gitlog.Millis(seconds * 1000), Nonce: [8]byte{byte(n)}, Event: e}
		out = append(out, &gitlog.Stored{Entry: entry})
	}
	return out
}

// outline writes a standing on a line a session.
func outline(s *Standing) string {
	var lines []string
	for _, each := range s.Sessions {
		line := each.Session + " on " + strings.TrimPrefix(each.Branch, "refs/heads/")
		if each.Intent != "" {
			line += ", doing " + each.Intent
		}
		if each.Plan != "" {
			line += ", planning " + each.Plan
		}
		for _, c := range each.Claims {
			line += fmt.Sprintf(", holds %s until %d", c.Path, c.Until/1000)
		}
		if len(each.Waiting) > 0 {
			line += ", waits for " + strings.Join(each.Waiting, " ")
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func TestStandingAtATimeOfThePast(t *testing.T) {
	events := pastEvents(t, `
		10 one starts
		11 one intends rewrite the rounding
		20 one claims tax.js until 620
		30 two starts
		40 two denied tax.js
		500 one writes tax.js until 1100
		900 one plans half-even
		1500 one releases tax.js
		1500 two freed tax.js
		1600 two claims tax.js until 2200
		1700 two moves side
		3000 two ends`)
	for seconds, want := range map[uint64]string{
		5:  "",
		15: "one on main, doing rewrite the rounding",
		25: "one on main, doing rewrite the rounding, holds tax.js until 620",
		// Hooks renewed the lease, which no log says; that it was released at 1500 does.
		1400: "one on main, doing rewrite the rounding, planning half-even, holds tax.js until 1500\ntwo on main, waits for tax.js",
		1550: "one on main, doing rewrite the rounding, planning half-even\ntwo on main",
		1650: "one on main, doing rewrite the rounding, planning half-even\ntwo on main, holds tax.js until 2200",
		1750: "one on main, doing rewrite the rounding, planning half-even\ntwo on side, holds tax.js until 2200",
		// Nothing says that it was renewed, nor that it ended: its lease counts.
		2500: "one on main, doing rewrite the rounding, planning half-even\ntwo on side",
		3500: "one on main, doing rewrite the rounding, planning half-even",
		// Nothing was heard of it for 12 hours.
		50000: "",
	} {
		reversed := slices.Clone(events)
		slices.Reverse(reversed)
		for _, each := range [][]*gitlog.Stored{events, reversed} {
			got := StandingAt(each, gitlog.Millis(seconds*1000), func(gitlog.DeviceID) string { return "" }, func(gitlog.DeviceID, []byte) string { return "" })
			if outline(got) != want {
				t.Errorf("at %d:\n%s\nwant\n%s", seconds, outline(got), want)
			}
		}
	}
}

func TestStandingJoinsTheRoomsOfAnEvent(t *testing.T) {
	events := pastEvents(t, "10 one denied tax.js\n10 one denied bills/pay.js")
	events[1].Nonce = events[0].Nonce
	got := StandingAt(events, 20_000, func(gitlog.DeviceID) string { return "ash@example.com" }, func(gitlog.DeviceID, []byte) string { return "/shop" })
	if want := "one on main, waits for tax.js bills/pay.js"; outline(got) != want {
		t.Errorf("%s, want %s", outline(got), want)
	}
	if s := got.Sessions[0]; s.Member != "ash@example.com" || s.Worktree != "/shop" || s.Began != 10_000 {
		t.Errorf("%+v", s)
	}
}
