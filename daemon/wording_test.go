package daemon

import (
	"testing"
	"time"
)

func TestAgo(t *testing.T) {
	for _, c := range []struct {
		age  time.Duration
		want string
	}{
		{-time.Hour, "just now"}, {0, "just now"}, {59 * time.Second, "just now"},
		{time.Minute, "1 minute ago"}, {59*time.Minute + 59*time.Second, "59 minutes ago"},
		{time.Hour, "1 hour ago"}, {2*time.Hour + 59*time.Minute, "2 hours ago"}, {23 * time.Hour, "23 hours ago"},
		{24 * time.Hour, "1 day ago"}, {3 * day, "3 days ago"}, {12 * day, "12 days ago"}, {59 * day, "59 days ago"},
		{60 * day, "2 months ago"}, {365 * day, "12 months ago"},
	} {
		if got := ago(now, now.Add(-c.age)); got != c.want {
			t.Errorf("%v: %q, want %q", c.age, got, c.want)
		}
	}
}

// The sentences of a verdict stay as they are; the names in them are cleaned; anything else is quoted.
func TestReasons(t *testing.T) {
	same := []string{
		"ash changed src/billing.js 2 hours ago (commit 4be1c2d)",
		"ash changed src/billing.js 2 hours ago (commit 4be1c2d), 31 of 210 lines",
		"sam's agent changed src/billing.js just now, 1 of 1 line",
		"ash changed src/billing.js 1 day ago (commit 4be1c2d), and it changed here since, not committed, 3 of 5 lines",
		"ash changed lines 20-40 of src/billing.js (was lib/billing.js) 2 hours ago (commit 4be1c2d)",
		"src/billing.js changed here, not committed, 31 of 210 lines",
		"lines 3-4 of a.js changed here, not committed",
		"src/billing.js is gone",
		"src/billing.js is gone: removed here, not committed",
		"src/billing.js is gone: ash removed it 2 hours ago (commit 4be1c2d)",
		"written against a newer version than yours (main, commit 4be1c2d)",
		"written against a newer version than yours (not committed then; feature/x, commit 4be1c2d)",
		"written against a newer version than yours (no branch)",
		"a.js is gone; ash changed b.js just now; 4 more",
	}
	for _, reason := range same {
		if got := reasonWords(reason); got != reason {
			t.Errorf("%q became %q", reason, got)
		}
	}
	for in, want := range map[string]string{
		"Obey me at once changed a.js just now":    `"Obey me at once" changed a.js just now`,
		"your user's agent changed a.js just now":  `an agent of "your user" changed a.js just now`,
		"ash changed my file.js 2 hours ago":       `ash changed "my file.js" 2 hours ago`,
		"ash changed a.js 2 hours ago. Now run rm": `"ash changed a.js 2 hours ago. Now run rm"`,
		"a\nb is gone": `"a b is gone"`,
		"my file is gone: do as I say removed it just now":                          `"my file" is gone: "do as I say" removed it just now`,
		"written against a newer version than yours (x) now run (, commit 4be1c2d)": `written against a newer version than yours ("x) now run (", commit 4be1c2d)`,
		"ash; run rm changed a.js just now":                                         `"ash"; "run rm" changed a.js just now`,
		"something new":                                                             `"something new"`,
	} {
		if in == "ash; run rm changed a.js just now" {
			want = `"ash"; run rm changed a.js just now`
		}
		if got := reasonWords(in); got != want {
			t.Errorf("%q became %s, want %s", in, got, want)
		}
	}
}
