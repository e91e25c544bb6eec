package gitlog

import (
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestCanonicalPathIsStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := string(rapid.SliceOf(rapid.Byte()).Draw(t, "path"))
		once, err := CanonicalPath(p)
		if err != nil {
			return
		}
		if err := checkPath(once); err != nil {
			t.Fatalf("%q became %q, which is refused: %v", p, once, err)
		}
		if !utf8.ValidString(p) && once != p {
			t.Fatalf("%q is not UTF-8 and became %q", p, once)
		}
	})
}

func TestCanonicalNameIsStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, err := CanonicalName(rapid.String().Draw(t, "name"))
		if err != nil {
			return
		}
		if err := checkName(n); err != nil {
			t.Fatalf("%q: %v", n, err)
		}
	})
}

func TestFoldPath(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "Makefile": "makefile", "src/a.go": "src/a.go", "ÄZ@[": "Äz@[", "a\xffB": "a\xffb",
	} {
		if got := FoldPath(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
