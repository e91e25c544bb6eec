package gitlog

import "testing"

func TestSetKeyLeavesAllElseAsItIs(t *testing.T) {
	for what, c := range map[string]struct{ text, want string }{
		"where there is none":    {"team = \"a\"\n", "team = \"a\"\nrelay = \"x:1\"\n"},
		"before the first table": {"# ours\nteam = \"a\"\n\n[claims]\nmode = \"note\"\n", "# ours\nteam = \"a\"\n\nrelay = \"x:1\"\n[claims]\nmode = \"note\"\n"},
		"in its line":            {"relay = \"old:1\" # old\nrelay_key = \"k\"\n", "relay = \"x:1\"\nrelay_key = \"k\"\n"},
		"not in a table":         {"[claims]\nrelay = 1\n", "relay = \"x:1\"\n[claims]\nrelay = 1\n"},
		"no last newline":        {"team = \"a\"", "team = \"a\"\nrelay = \"x:1\"\n"},
	} {
		if got := string(setKey([]byte(c.text), "relay", "x:1")); got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
	if got := string(setKey([]byte("relay = \"x:1\"\nteam = \"a\"\n"), "relay", "")); got != "team = \"a\"\n" {
		t.Errorf("taken out: %q", got)
	}
}
