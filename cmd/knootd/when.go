package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"knoot.dev/knoot/gitlog"
)

// parseAge reads a length of time as people write it: 90s, 15m, 2h, 7d, 2w, or 1h30m.
func parseAge(text string) (time.Duration, error) {
	for unit, length := range map[string]time.Duration{"d": 24 * time.Hour, "w": 7 * 24 * time.Hour} {
		if number, ok := strings.CutSuffix(text, unit); ok {
			if n, err := strconv.ParseUint(number, 10, 16); err == nil {
				return time.Duration(n) * length, nil
			}
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is no length of time: write it like 90s, 15m, 2h or 7d", text)
	}
	return d, nil
}

// parseWhen reads a moment: RFC 3339, a date, an hour of the last day (15:04), or an age (2h).
func parseWhen(text string, now time.Time) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	if t, err := time.ParseInLocation(time.DateOnly, text, now.Location()); err == nil {
		return t, nil
	}
	if t, err := time.ParseInLocation("15:04", text, now.Location()); err == nil {
		at := time.Date(now.Year(), now.Month(), now.Day(), t.Hour(), t.Minute(), 0, 0, now.Location())
		if at.After(now) {
			at = at.AddDate(0, 0, -1)
		}
		return at, nil
	}
	if d, err := parseAge(text); err == nil {
		return now.Add(-d), nil
	}
	return time.Time{}, fmt.Errorf("%q is no time: write it like 2026-03-31T14:00:00Z, 2026-03-31, 14:00 or 2h (ago)", text)
}

// ago says how long before now something was, in the words of briefs ("just now", "5 minutes ago").
func (c *console) ago(at time.Time) string {
	return gitlog.Age(gitlog.MillisOf(at), gitlog.MillisOf(c.now()))
}

// since is ago for a time in the stable keys.
func (c *console) since(at string) string {
	t, err := time.Parse(time.RFC3339, at)
	if err != nil {
		return plain(at)
	}
	return c.ago(t)
}

// secondsAgo is ago for `status`, where a minute matters: "12 s ago".
func (c *console) secondsAgo(at time.Time) string {
	if d := max(c.now().Sub(at), 0); d < time.Minute {
		return fmt.Sprintf("%d s ago", int(d/time.Second))
	}
	return c.ago(at)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
