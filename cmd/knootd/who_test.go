package main

import (
	"strings"
	"testing"
)

func TestWhoIsReadAtAGlance(t *testing.T) {
	t.Parallel()
	w, now := busy()
	w.Standing.Sessions[2].Worktree = "/home/priya/" + strings.Repeat("a long path/", 6)
	w.Standing.Sessions[2].Member = "sam@example.com"
	c, stdout, _ := testConsole(t)
	c.getenv = func(name string) string { return map[string]string{"HOME": "/home/priya"}[name] }
	c.printStanding(w.Standing, now)
	want := `reviewer  on main
  in        ~/shop
  doing     rewrite the tax rounding
  plans     rewriting tax rounding
  decided   half-even
  decided   at the invoice total
  holds     src/billing.js (8 min left), package.json (hub, 40 s left)

claude-5e6f7a8b  on main
  in        ~/shop
  doing     add decimals to the cart, and tests for them
  waits for src/billing.js (held by reviewer)

claude-9c0d1e2f  sam@example.com, on cart-decimals
  in        ~/a long path/a long path/a long path/a long path/a long path/a long
            path
  holds     src/cart.js (10 min left), src/billing.js (9 min left)

priya@example.com  a person, on main
  in        ~/shop
  holds     src/styles/app.css (3 min left)
`
	if got := stdout.String(); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
