package daemon

import (
	"strings"
	"testing"
)

func TestPromptNamesPaths(t *testing.T) {
	const root = "/home/dev/app"
	for _, c := range []struct {
		prompt, path string
		named        bool
	}{
		{"fix src/billing.js please", "src/billing.js", true},
		{"fix src/billing.js.", "src/billing.js", true},
		{"fix `src/billing.js`, then stop", "src/billing.js", true},
		{`fix "src/billing.js"`, "src/billing.js", true},
		{"fix @src/billing.js", "src/billing.js", true},
		{"fix ./src/billing.js", "src/billing.js", true},
		{"see src/billing.js:12:5", "src/billing.js", true},
		{"see src/billing.js:10-20", "src/billing.js", true},
		{"see src/billing.js#L10-L20", "src/billing.js", true},
		{"see [the code](src/billing.js)", "src/billing.js", true},
		{"see (src/billing.js)", "src/billing.js", true},
		{"see app/[slug]/page.tsx", "app/[slug]/page.tsx", true},
		{"see " + root + "/src/billing.js", "src/billing.js", true},
		{"--- a/src/billing.js\n+++ b/src/billing.js", "src/billing.js", true},
		{"fix billing.js", "src/billing.js", true},            // a bare file name
		{"fix pay/billing.js", "src/pay/billing.js", true},    // leading directories left out
		{"look at the Makefile", "tools/Makefile", true},      // a name without a dot
		{"look at Makefile.", "Makefile", true},               //
		{"everything in src/pay", "src/pay/deep/a.js", true},  // contained
		{"everything in src/pay/", "src/pay/deep/a.js", true}, //
		{"everything in pay/", "src/pay/deep/a.js", true},     //
		{"fix src/pay/deep/a.js", "src/pay", true},            // contains
		{"fix my file.js now", "docs/my file.js", true},       // white space in a name
		{"fix My Documents now", "home/My Documents", true},   //
		{"fix billing", "src/billing.js", false},              // no path
		{"the src is bad", "src/billing.js", false},           //
		{"fix src/bill", "src/billing.js", false},             //
		{"fix lib/billing.js", "src/billing.js", false},       //
		{"fix illing.js", "src/billing.js", false},            //
		{"https://example.com/src/billing.js", "src/billing.js", false},
		{"my other file.js", "docs/my file.js", false},
		{"", "src/billing.js", false},
		{"/ . .. ./ // @ : #", "", false},
	} {
		in := input(EventPrompt, fact("n", "-", "t"))
		in.Facts[0].Paths = []string{c.path}
		in.Prompt, in.Root = c.prompt, root
		if got := Compose(in).Text != ""; got != c.named {
			t.Errorf("%q names %q: %v, want %v", c.prompt, c.path, got, c.named)
		}
	}
	in := input(EventPrompt, fact("n", "src/Billing.js", "t"))
	in.Prompt, in.FoldCase = "fix billing.JS", true
	if Compose(in).Text == "" {
		t.Error("case counts where the file system ignores it")
	}
	in = input(EventPrompt, BriefFact{Name: "n", Text: "t", Globs: []string{"src/*.js"}})
	for prompt, named := range map[string]bool{"fix src/a.js": true, "fix a.js": true, "fix a.ts": false} {
		in.Prompt = prompt
		if got := Compose(in).Text != ""; got != named {
			t.Errorf("%q names src/*.js: %v", prompt, got)
		}
	}
}

func TestOnlyAPromptIsReadForNames(t *testing.T) {
	for _, event := range []string{EventSessionStart, EventSubagentStart, EventPreTool, EventPostTool} {
		in := input(event, money)
		in.Prompt, in.Budget.Invite = "fix src/billing.js", false
		if b := Compose(in); b.Text != "" {
			t.Errorf("%s: %s", event, b.Text)
		}
	}
}

func TestPromptsWords(t *testing.T) {
	p := readPrompt("Please make the ROUNDING of the invoice's total half-even, and the tax too.", "")
	for _, c := range []struct {
		name, text string
		want       int
	}{
		{"rounding", "", 2},
		{"other", "rounding happens once, at the invoice total", 3},
		{"tax", "tax tax tax", 2}, // each word once, by the name
		{"other", "the and of", 0},
		{"other", "", 0},
	} {
		if got := p.match(c.name, c.text); got != c.want {
			t.Errorf("%q %q: %d words in common, want %d", c.name, c.text, got, c.want)
		}
	}
	if got := (&prompt{}).match("a", "b"); got != 0 {
		t.Errorf("no prompt: %d", got)
	}
}

func TestWordSetIsNeverFull(t *testing.T) {
	s := newWordSet(1)
	for i := range uint64(1000) {
		s.add(i * 7919)
	}
	if s.has(1 << 60) {
		t.Error("has what was not added")
	}
	if s.n == 0 || 2*s.n > len(s.slots) {
		t.Errorf("%d words in %d slots", s.n, len(s.slots))
	}
}

func FuzzReadPrompt(f *testing.F) {
	f.Add("fix src/a.js:1:2 (b/[c].d) @e/f", "/home/dev")
	f.Add(strings.Repeat("(", 100)+"a/b"+strings.Repeat("]", 100), "")
	f.Add(".../..:1#L", "/")
	f.Fuzz(func(t *testing.T, text, root string) {
		p := readPrompt(text, root)
		if len(p.paths)+len(p.bare) > maxNamedPaths {
			t.Errorf("%d names", len(p.paths)+len(p.bare))
		}
		for _, name := range append(p.paths, p.bare...) {
			if !strings.Contains(text, name) {
				t.Errorf("%q is not in the prompt", name)
			}
		}
		v := newVicinity(false)
		v.name(&p)
		v.near("src/a b.js")
		v.nearGlob("src/*")
	})
}
