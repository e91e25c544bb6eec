package main

import (
	"maps"
	"strings"
	"testing"

	"knoot.dev/knoot/gitlog"
)

func TestAreasOfCodeowners(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		areas map[string]string
		odd   []string // words of each sentence
	}{
		"a folder":             {"/src/pay/ @shop/payments", map[string]string{"src/pay": "payments"}, nil},
		"with stars":           {"/src/pay/** @shop/payments", map[string]string{"src/pay": "payments"}, nil},
		"a slash in it":        {"src/pay @sam", map[string]string{"src/pay": "sam"}, nil},
		"a file":               {"/build.js sam@example.com", map[string]string{"build.js": "sam@example.com"}, nil},
		"two owners":           {"/a/ @shop/web @shop/api # both", map[string]string{"a": "api+web"}, nil},
		"comments and nothing": {"# all\n\n", map[string]string{}, nil},
		"everything":           {"* @all", map[string]string{}, []string{"the whole repository"}},
		"a name anywhere":      {"docs/ @all", map[string]string{}, []string{"in every folder"}},
		"direct files alone":   {"/src/* @all", map[string]string{}, []string{"no path prefix"}},
		"no owners in it":      {"/a/ @x\n/a/open/", map[string]string{"a": "x", "a/open": "general"}, nil},
		"no owners":            {"/open/", map[string]string{}, nil},
		"the same below":       {"/a/ @x\n/a/b/ @x", map[string]string{"a": "x"}, nil},
		"a later wider rule":   {"/a/b/ @x\n/a/ @y", map[string]string{"a": "y"}, []string{"line 2 comes later"}},
		"a later rule for all": {"/a/b/ @x\n* @y", map[string]string{}, []string{"the whole repository", "line 2 comes later"}},
		"a later same rule":    {"/a/ @x\n/a/ @y", map[string]string{"a": "y"}, nil},
		"sections":             {"[Web][2] @x\n/a/ @y", map[string]string{"a": "y"}, []string{"line 1"}},
		"CRLF":                 {"/a/ @x\r\n/b/ @y\r\n", map[string]string{"a": "x", "b": "y"}, nil},
		"outside":              {"/../a/ @x", map[string]string{}, []string{"no path in a repository"}},
	} {
		t.Run(name, func(t *testing.T) {
			areas, odd := areasOf(c.text)
			if !maps.Equal(areas, c.areas) {
				t.Errorf("%v, want %v", areas, c.areas)
			}
			if len(odd) != len(c.odd) {
				t.Fatalf("%q, want %q", odd, c.odd)
			}
			for i, words := range c.odd {
				if !strings.Contains(odd[i], words) {
					t.Errorf("%q, want %q", odd[i], words)
				}
			}
		})
	}
}

func FuzzAreasOfCodeowners(f *testing.F) {
	f.Add("/src/ @shop/pay\n*.js @sam\n")
	f.Add("/a\\ b/ x@example.com # c\n[S]\n^[T][2]\n")
	f.Fuzz(func(t *testing.T, text string) {
		areas, _ := areasOf(text)
		settings := "team = \"" + strings.Repeat("0", 64) + "\"\nrepository = \"" + strings.Repeat("0", 32) + "\"\n"
		read, err := gitlog.ParseSettings([]byte(withAreas(settings, areas)))
		if err != nil || !maps.Equal(read.Areas, areas) {
			t.Errorf("%q: %v, %v, want %v", text, read, err, areas)
		}
	})
}

func TestSettingsKeepAllButTheirAreas(t *testing.T) {
	for before, after := range map[string]string{
		"team = 1\n":                                    "team = 1\n\n[areas]\n\"a\" = \"x\"\n",
		"team = 1\n\n[areas]\n\"b\" = \"y\"\n":          "team = 1\n\n[areas]\n\"a\" = \"x\"\n",
		"team = 1\n[areas] # ours\nb = 1\n[claims]\n#c": "team = 1\n\n[areas]\n\"a\" = \"x\"\n\n[claims]\n#c",
	} {
		got := withAreas(before, map[string]string{"a": "x"})
		if got != after {
			t.Errorf("%q became %q, want %q", before, got, after)
		}
		if again := withAreas(got, map[string]string{"a": "x"}); again != got {
			t.Errorf("twice: %q became %q", got, again)
		}
	}
}
