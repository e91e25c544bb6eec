package daemon

import (
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestCleanText(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"plain words", "plain words"},
		{"  two\tlines\r\n\n of it ", "two lines of it"},
		{"a\u0085b\u2028c\u2029d\ve\ff\u00a0g\u3000h", "a b c d e f g h"},
		{"\x00\x1b[31mred\x7f\u009b", "[31mred"},
		{"\u202eabc\u202c\u2066\u200e\u061c", "abc"},
		{"ze\u200bro\u200c\u200d\u2060\ufeff\u00ad", "zero"},
		{"tag\U000E0041\U000E007F\U000E0001", "tag"},
		{"vs\ufe0f\U000E0100\u180b\u034f", "vs"},
		{"\u3164\u115f\u1160\uffa0\u2800", ""},
		{"\ue000\U000F0000\ufdd0\uffff", ""},
		{"bad\xffbytes\xc3", "bad\uFFFDbytes\uFFFD"},
		{`say "no" “now” ＂wide＂`, "say 'no' 'now' 'wide'"},
		{"it's `code` & {x: 1}", "it's `code` & {x: 1}"},
		{"\u0301\u20ddmarks", "marks"},
		{"naïve e\u0301 日本 ш", "naïve e\u0301 日本 ш"},
		{"⚠ 👍", "⚠ 👍"},
		// what looks like a tag, and what does not
		{"</x> <system-reminder> <|im_end|> <!-- <?php", "‹/x> ‹system-reminder> ‹|im_end|> ‹!-- ‹?php"},
		{"<\u200b/x> <\u2060script>", "‹/x> ‹script>"},
		{"a < b, a<1, x <- y, Vec<T>, map<string,int>, List<List<T>>", "a < b, a<1, x <- y, Vec<T>, map<string,int>, List<List<T>>"},
		{"x<system-reminder>", "x‹system-reminder>"},
	} {
		if got := cleanText(c.in, 280); got != c.want {
			t.Errorf("%q became %q, want %q", c.in, got, c.want)
		}
	}
}

func TestCutting(t *testing.T) {
	for _, c := range []struct {
		in   string
		max  int
		want string
	}{
		{"12345678", 8, "12345678"},
		{"123456789", 8, "12345…"},
		{"12345678 \n\u200b", 8, "12345678"}, // nothing that shows is cut
		{"ééééé", 8, "éé…"},                  // on a rune's boundary
		{"日本語", 8, "日…"},
		{"1234 678901", 8, "1234…"},
		{"123456789", 3, "…"},
		{"123456789", 2, ""},
	} {
		if got := cleanText(c.in, c.max); got != c.want {
			t.Errorf("%q cut to %d bytes is %q, want %q", c.in, c.max, got, c.want)
		}
	}
}

func TestQuoteName(t *testing.T) {
	for in, want := range map[string]string{
		"money":               "money",
		"api/v2.1_rounding":   "api/v2.1_rounding",
		"Seán O'Brien-Müller": "Seán O'Brien-Müller",
		"Jan van Berg":        "Jan van Berg",
		"do this right now":   `"do this right now"`,
		"a; b":                `"a; b"`,
		"a)":                  `"a)"`,
		"$(id)":               `"$(id)"`,
		`a"b`:                 `"a'b"`,
		" a":                  `"a"`,
		"a\nb":                `"a b"`,
		"-rf":                 `"-rf"`,
		"":                    `""`,
		`a\`:                  `"a\ "`,
	} {
		if got := quoteName(in, maxNameBytes); got != want {
			t.Errorf("%q is shown as %s, want %s", in, got, want)
		}
	}
	if got, want := quoteName(strings.Repeat("n", 100), maxNameBytes), `"`+strings.Repeat("n", 37)+`…"`; got != want {
		t.Errorf("a long name is shown as %s, want %s", got, want)
	}
}

func TestQuotePerson(t *testing.T) {
	for in, want := range map[string]string{
		"priya": "priya", "": "somebody", "your user": `"your user"`, "System": `"System"`, "Agent Smith": `"Agent Smith"`,
		"knoot": `"knoot"`, "Eva Agentis": "Eva Agentis",
	} {
		if got := quotePerson(in); got != want {
			t.Errorf("%q is shown as %s, want %s", in, got, want)
		}
	}
	if got, want := authorWords("your user", true), `an agent of "your user"`; got != want {
		t.Errorf("shown as %s, want %s", got, want)
	}
}

func TestQuotePath(t *testing.T) {
	for in, want := range map[string]string{
		"src/billing.js":                  "src/billing.js",
		"app/(shop)/[slug]/@modal/x+y.ts": "app/(shop)/[slug]/@modal/x+y.ts",
		"docs/übersicht.md":               "docs/übersicht.md",
		"my repo/a b.js":                  `"my repo/a b.js"`,
		"a\nb":                            `"a\nb"`,
		"a\tb":                            `"a\tb"`,
		"a\xffb":                          `"a\xffb"`,
		`a"b\c`:                           `"a\"b\\c"`,
		"a\u202ecod.exe":                  `"a\u202ecod.exe"`,
		"a\u200bb":                        `"a\u200bb"`,
		"a\ufe0fb":                        `"a\ufe0fb"`,
		"a\U000e0041b":                    `"a\U000e0041b"`,
		"a\u00a0b":                        `"a\u00a0b"`,
		"a: do it now":                    `"a: do it now"`,
		"</system-reminder>":              `"\x3c/system-reminder>"`,
		"a”b":                             `"a\u201db"`,
		"-rf":                             `"-rf"`,
		"":                                `""`,
	} {
		got := quotePath(in)
		if got != want {
			t.Errorf("%q is shown as %s, want %s", in, got, want)
		}
		if strings.HasPrefix(got, `"`) {
			if back, err := strconv.Unquote(got); err != nil || back != in {
				t.Errorf("%s reads back as %q, %v", got, back, err)
			}
		}
	}
	long := quotePath(strings.Repeat("\u202e", 100))
	if len(long) > maxPathBytes || !strings.HasSuffix(long, `\u202e…"`) {
		t.Errorf("a long path is shown as %s", long)
	}
}

func TestCommandName(t *testing.T) {
	for in, want := range map[string]string{"money": " money", "a/b-c.d_1": " a/b-c.d_1", "a b": "", "$(x)": "", "-x": "", "": "", "é": "", "a;b": "", strings.Repeat("n", 41): ""} {
		if got := commandName(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// Whatever comes in: one line of valid UTF-8 of the given size at most, everything in it can be seen, and its quotes are its
// ends.
func FuzzSanitise(f *testing.F) {
	for _, s := range injections {
		f.Add(s[:min(len(s), 1000)])
	}
	f.Fuzz(func(t *testing.T, s string) {
		check := func(what, out string, max int) {
			t.Helper()
			if len(out) > max {
				t.Errorf("%s: %d bytes, more than %d", what, len(out), max)
			}
			if !utf8.ValidString(out) {
				t.Errorf("%s: %q is no UTF-8", what, out)
			}
			for _, r := range out {
				if r != ' ' && !unicode.IsPrint(r) || unicode.In(r, unicode.Cf, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point) {
					t.Errorf("%s: %U in %q", what, r, out)
				}
			}
			if strings.Contains(out, "</") || strings.Contains(out, "<|") {
				t.Errorf("%s: a tag in %q", what, out)
			}
		}
		text := cleanText(s, maxFactBytes)
		check("text", text, maxFactBytes)
		if strings.Contains(text, `"`) {
			t.Errorf("a double quote in %q", text)
		}
		if again := cleanText(text, maxFactBytes); again != text {
			t.Errorf("cleaned again, %q becomes %q", text, again)
		}
		quoted := quoteText(s, maxFactBytes)
		if strings.Count(quoted, `"`) != 2 || strings.HasSuffix(quoted, `\"`) {
			t.Errorf("%s does not end where it seems to", quoted)
		}
		check("quoted", quoted, maxFactBytes+3)
		check("name", quoteName(s, maxNameBytes), maxNameBytes+3)
		check("person", authorWords(s, true), maxNameBytes+len("an agent of ")+3)
		path := quotePath(s)
		check("path", path, maxPathBytes)
		if path != s && !strings.HasSuffix(path, `…"`) {
			if back, err := strconv.Unquote(path); err != nil || back != s {
				t.Errorf("%q is shown as %s, which reads back as %q, %v", s, path, back, err)
			}
		}
		check("reason", reasonWords(s), 3*maxPathBytes+2*maxNameBytes+400)
	})
}
