package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"knoot.dev/knoot/daemon"
	"knoot.dev/knoot/gitlog"
)

// busy is a repository with much to see, at noon.
func busy() (*daemon.Watch, time.Time) {
	now := time.Date(2026, 3, 31, 12, 0, 0, 0, time.UTC)
	at := func(before time.Duration) gitlog.Millis { return gitlog.MillisOf(now.Add(-before)) }
	const main, side = "refs/heads/main", "refs/heads/cart-decimals"
	w := &daemon.Watch{Number: 9, Memory: 3, All: 12, Standing: &daemon.Standing{You: "priya@example.com", Sessions: []daemon.StandingSession{
		{Session: "1a2b3c4d-0000", Agent: "claude", Name: "reviewer", Branch: main, Worktree: "/home/priya/shop",
			Intent: "rewrite the tax rounding", Plan: "rewriting tax rounding", Decided: []string{"half-even", "at the invoice total"},
			Claims: []daemon.StandingClaim{{Path: "src/billing.js", Branch: main, Until: at(-8 * time.Minute)}, {Path: "package.json", Branch: main, Until: at(-40 * time.Second), Hub: true}}},
		{Session: "5e6f7a8b-0000", Agent: "claude", Branch: main, Worktree: "/home/priya/shop", Intent: "add decimals to the cart, and tests for them",
			Waiting: []string{"src/billing.js"}, Claims: []daemon.StandingClaim{}},
		{Session: "9c0d1e2f-0000", Agent: "claude", Branch: side, Worktree: "/home/priya/shop-cart",
			Claims: []daemon.StandingClaim{{Path: "src/cart.js", Branch: side, Until: at(-9*time.Minute - 50*time.Second)},
				{Path: "src/billing.js", Branch: side, Until: at(-9 * time.Minute)}}},
		{Session: "priya@example.com in /home/priya/shop", Member: "priya@example.com", Person: true, Branch: main, Worktree: "/home/priya/shop",
			Claims: []daemon.StandingClaim{{Path: "src/styles/app.css", Branch: main, Until: at(-3 * time.Minute)}}},
	}}, Hubs: []daemon.Hub{{Path: "src/routes.js", Branch: main, Until: at(-90 * time.Second), Queue: []string{"claude-9c0d1e2f"}}}}
	w.Events = append(w.Events,
		daemon.WatchEvent{At: at(26 * time.Hour), Kind: "SessionStarted", Who: "reviewer", Branch: main},
		daemon.WatchEvent{At: at(4 * time.Minute), Kind: "IntentDeclared", Who: "claude-5e6f7a8b", Text: "add decimals to the cart, and tests for them"},
		daemon.WatchEvent{At: at(3 * time.Minute), Kind: "PlanDeclared", Who: "reviewer", Text: "rewriting tax rounding"},
		daemon.WatchEvent{At: at(2 * time.Minute), Kind: "ClaimAcquired", Who: "reviewer", Path: "src/billing.js"},
		daemon.WatchEvent{At: at(110 * time.Second), Kind: "FileWritten", Who: "reviewer", Path: "src/billing.js"},
		daemon.WatchEvent{At: at(70 * time.Second), Kind: "ClaimDenied", Who: "claude-5e6f7a8b", Path: "src/billing.js", Other: "reviewer"},
		daemon.WatchEvent{At: at(30 * time.Second), Kind: "UngatedWrite", Who: "priya@example.com", Path: "src/cart.js", Other: "claude-9c0d1e2f"},
		daemon.WatchEvent{At: at(10 * time.Second), Kind: "ClaimReleased", Who: "reviewer", Path: "src/tax.js", Reason: 3},
		daemon.WatchEvent{At: at(9 * time.Second), Kind: "PathFreed", Who: "claude-5e6f7a8b", Path: "src/tax.js"},
	)
	for n, text := range []string{"all money is integer cents, never floats", "rounding happens once, at the invoice total", "the e2e tests take 9 minutes; alone: npm run e2e"} {
		w.Facts = append(w.Facts, daemon.WatchFact{Name: []string{"money", "rounding", "slow-tests"}[n], Text: text, Author: []string{"priya", "sam", "ash"}[n], Agent: n == 2,
			At: at(time.Duration(n*n*40+3) * time.Hour), Stale: n == 1})
	}
	return w, now
}

func screenOf(w *daemon.Watch, width, height int) *watchScreen {
	s := &watchScreen{title: "shop", width: width, height: height}
	s.take(w, true)
	return s
}

// TestWatchScreens holds the screens against pictures of them, which somebody looked at.
func TestWatchScreens(t *testing.T) {
	t.Parallel()
	w, now := busy()
	for _, size := range [][2]int{{80, 24}, {120, 40}, {180, 30}, {40, 12}} {
		name := fmt.Sprintf("watch_%dx%d.txt", size[0], size[1])
		got := screenOf(w, size[0], size[1]).draw(now)
		lines := strings.Split(got, "\n")
		if len(lines) != size[1] {
			t.Errorf("%s has %d lines", name, len(lines))
		}
		for _, line := range lines {
			if n := ansi.StringWidth(line); n > size[0] {
				t.Errorf("%s: %d columns: %s", name, n, line)
			}
		}
		got = regexp.MustCompile(` +\n`).ReplaceAllString(got+"\n", "\n")
		path := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s is drawn otherwise now; after a look at it, `go test ./cmd/knootd -run WatchScreens -update`:\n%s", name, got)
		}
	}
}
