package gitlog

import (
	"maps"
	"strings"
	"testing"
)

func TestAreasInSettings(t *testing.T) {
	head := "team = \"" + strings.Repeat("0", 64) + "\"\nrepository = \"" + strings.Repeat("0", 32) + "\"\n"
	for text, want := range map[string]map[string]string{
		"":          nil,
		"[areas]\n": {},
		"[areas]\n\"src/pay\" = \"payments\"\ndocs = \"docs\"\n": {"src/pay": "payments", "docs": "docs"},
		"[areas]\n\"/src/pay/\" = \"payments\"\n":                {"src/pay": "payments"}, // as people write a folder
		"[areas]\n\"u\u0308\" = \"x\"\n":                         {"\u00fc": "x"},         // NFC
	} {
		s, err := ParseSettings([]byte(head + text))
		if err != nil || !maps.Equal(s.Areas, want) || (s.Areas == nil) != (want == nil) {
			t.Errorf("%q: %v, %v, want %v", text, s, err, want)
		}
	}
	for text, words := range map[string]string{
		"[areas]\n\"/\" = \"x\"\n":             "whole repository",
		"[areas]\n\"a/../b\" = \"x\"\n":        "component",
		"[areas]\na = \" \"\n":                 "names no room",
		"[areas]\na = 1\n":                     "does not parse",
		"[areas]\na = \"x\"\n\"a/\" = \"y\"\n": "twice",
	} {
		if _, err := ParseSettings([]byte(head + text)); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%q: %v, want a sentence with %q", text, err, words)
		}
	}
}
