package main

import (
	"testing"
	"time"
)

func TestParseWhen(t *testing.T) {
	zone := time.FixedZone("", 2*60*60)
	now := time.Date(2026, 3, 31, 14, 30, 0, 0, zone)
	for text, want := range map[string]time.Time{
		"2026-03-30T12:00:00Z": time.Date(2026, 3, 30, 12, 0, 0, 0, time.UTC),
		"2026-03-30":           time.Date(2026, 3, 30, 0, 0, 0, 0, zone),
		"14:00":                time.Date(2026, 3, 31, 14, 0, 0, 0, zone),
		"15:00":                time.Date(2026, 3, 30, 15, 0, 0, 0, zone),
		"90s":                  now.Add(-90 * time.Second),
		"1h30m":                now.Add(-90 * time.Minute),
		"7d":                   now.Add(-7 * 24 * time.Hour),
		"2w":                   now.Add(-14 * 24 * time.Hour),
	} {
		if got, err := parseWhen(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%s is %v (%v), want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "yesterday", "d", "-2h", "25:00", "99999999d"} {
		if got, err := parseWhen(text, now); err == nil {
			t.Errorf("%q is %v, want an error", text, got)
		}
	}
}

func TestAgo(t *testing.T) {
	now := time.Date(2026, 3, 31, 14, 30, 0, 0, time.UTC)
	c := &console{now: func() time.Time { return now }}
	for d, want := range map[time.Duration][2]string{
		-time.Second:     {"just now", "0 s ago"},
		12 * time.Second: {"just now", "12 s ago"},
		time.Minute:      {"1 minute ago", "1 minute ago"},
		5 * time.Hour:    {"5 hours ago", "5 hours ago"},
		50 * time.Hour:   {"2 days ago", "2 days ago"},
	} {
		if got := [2]string{c.ago(now.Add(-d)), c.secondsAgo(now.Add(-d))}; got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}
