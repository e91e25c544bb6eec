package gitlog

import (
	"slices"
	"strings"
	"testing"
)

func TestClaimsInSettings(t *testing.T) {
	head := "team = \"" + strings.Repeat("0", 64) + "\"\nrepository = \"" + strings.Repeat("0", 32) + "\"\n"
	for text, want := range map[string]struct {
		mode     ClaimMode
		problems []string // a word of each
		unknown  []string
		note     string // a path that is noted
		hub      string // a path that is a hub
	}{
		"":                            {mode: ClaimsDeny},
		"[claims]\n":                  {mode: ClaimsDeny},
		"[claims]\nmode = \"note\"\n": {mode: ClaimsNote},
		"[claims]\nmode = \"off\"\nnote = [\"**/*.pb\"]\n": {mode: ClaimsOff, note: "a/b.pb"},
		"[claims]\nmode = \"loud\"\n":                      {mode: ClaimsDeny, problems: []string{`"loud"`}},
		"[claims]\nmode = 3\nnote = [\"x\"]\n":             {mode: ClaimsDeny, problems: []string{"mode is no text"}, note: "x/y"},
		"[claims]\nnote = \"x\"\n":                         {mode: ClaimsDeny, problems: []string{"note is no list"}},
		"[claims]\nnote = [\"a[\", \"b\"]\n":               {mode: ClaimsDeny, problems: []string{"bracket"}, note: "b"},
		"[claims]\nnote = [\"/\", \"../x\"]\n":             {mode: ClaimsDeny, problems: []string{"whole", "component"}},
		"[claims]\nmodes = \"off\"\nnote = [\"x\"]\n":      {mode: ClaimsDeny, unknown: []string{"claims.modes"}, note: "x"},
		"claims = 3\n": {mode: ClaimsDeny, problems: []string{"no table"}},
		"hubs = [\"src/routes.js\", \"**/schema.sql\"]\n":       {mode: ClaimsDeny, hub: "db/Schema.sql"},
		"hubs = [\"src/routes.js/\", 3]\n":                      {mode: ClaimsDeny, problems: []string{"hubs is no list"}},
		"hubs = 3\n[claims]\nmode = \"note\"\n[later]\nx = 1\n": {mode: ClaimsNote, problems: []string{"hubs"}, unknown: []string{"later", "later.x"}},
	} {
		s, err := ParseSettings([]byte(head + text))
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if s.Claims.Mode != want.mode || !slices.Equal(s.Unknown, want.unknown) || len(s.Problems) != len(want.problems) {
			t.Errorf("%q: mode %s, unknown %q, problems %q", text, s.Claims.Mode, s.Unknown, s.Problems)
			continue
		}
		for i, word := range want.problems {
			if !slices.ContainsFunc(s.Problems, func(p string) bool { return strings.Contains(p, word) }) {
				t.Errorf("%q: problem %d is not in %q", text, i, s.Problems)
			}
		}
		if want.note != "" && !s.Claims.Note.Match(want.note) {
			t.Errorf("%q does not note %s", text, want.note)
		}
		if want.hub != "" && !s.Claims.Hubs.Match(want.hub) {
			t.Errorf("%q makes %s no hub", text, want.hub)
		}
	}
}

func TestPathSet(t *testing.T) {
	set, problems := NewPathSet([]string{"src/pay", "/docs/", "*.md", "a/**/z", "u\u0308", "Makefile"})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	for path, want := range map[string]bool{
		"src/pay": true, "src/pay/x/y": true, "SRC/Pay": true, "src/payment": false, "src": false, "docs/x": true, "x/docs": false,
		"x.md": true, "a/x.md": false, "a/z": true, "a/b/c/z": true, "\u00fc": true, "makefile": true, "": false,
	} {
		if set.Match(path) != want {
			t.Errorf("%q: %v, want %v", path, !want, want)
		}
	}
	if (PathSet{}).Match("x") {
		t.Error("the empty set has a path")
	}
}

func TestLoweredMode(t *testing.T) {
	for _, c := range [][3]ClaimMode{
		{ClaimsDeny, "", ClaimsDeny}, {ClaimsDeny, ClaimsNote, ClaimsNote}, {ClaimsDeny, ClaimsOff, ClaimsOff},
		{ClaimsNote, ClaimsDeny, ClaimsNote}, {ClaimsNote, ClaimsOff, ClaimsOff}, {ClaimsOff, ClaimsDeny, ClaimsOff}, {ClaimsOff, ClaimsNote, ClaimsOff},
	} {
		if got := c[0].Lowered(c[1]); got != c[2] {
			t.Errorf("%s lowered by %q is %s, want %s", c[0], c[1], got, c[2])
		}
	}
}
