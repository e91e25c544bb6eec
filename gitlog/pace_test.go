package gitlog

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

var startOfPacing = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func TestPace(t *testing.T) {
	at := func(d time.Duration) time.Time { return startOfPacing.Add(d) }
	due := func(t *testing.T, p *Pace, want time.Duration) {
		t.Helper()
		if got, ok := p.Due(); !ok || !got.Equal(at(want)) {
			t.Errorf("due %v %v, want %v", got.Sub(startOfPacing), ok, want)
		}
	}
	t.Run("nothing to push", func(t *testing.T) {
		var p Pace
		if _, ok := p.Due(); ok {
			t.Error("due")
		}
	})
	t.Run("a fact goes sooner than audit, and takes it along", func(t *testing.T) {
		var p Pace
		p.Audit(at(0))
		due(t, &p, 30*time.Second)
		p.Fact(at(2 * time.Second))
		due(t, &p, 3*time.Second)
		p.Started(at(3 * time.Second))
		p.Ended(at(4*time.Second), false, 0)
		if _, ok := p.Due(); ok {
			t.Error("something is left")
		}
	})
	t.Run("what comes during a push goes with the next", func(t *testing.T) {
		var p Pace
		p.Fact(at(0))
		p.Started(at(time.Second))
		p.Fact(at(2 * time.Second))
		if _, ok := p.Due(); ok {
			t.Error("two pushes at a time")
		}
		p.Ended(at(3*time.Second), false, 0)
		due(t, &p, 3*time.Second)
	})
	t.Run("the third in a row waits", func(t *testing.T) {
		var p Pace
		for i := range 2 {
			p.Fact(at(time.Duration(i) * time.Second))
			p.Started(at(time.Duration(i+1) * time.Second))
			p.Ended(at(time.Duration(i+1)*time.Second), false, 0)
		}
		p.Fact(at(2 * time.Second))
		due(t, &p, 16*time.Second)
	})
	t.Run("failures back off, and news of the host ends that", func(t *testing.T) {
		var p Pace
		p.Fact(at(0))
		now := time.Duration(0)
		for _, wait := range []time.Duration{10, 20, 40, 80, 160, 320, 640, 900, 900} {
			now += 1000 * time.Second
			p.Started(at(now))
			p.Ended(at(now), true, 0.5)
			due(t, &p, now+wait*time.Second)
		}
		for range 100 {
			p.Started(at(now))
			p.Ended(at(now), true, 0.5)
		}
		p.Reached()
		now += 1000 * time.Second
		p.Started(at(now))
		p.Ended(at(now), true, 0)
		due(t, &p, now+5*time.Second)
		p.UserPushed(at(now + time.Second))
		due(t, &p, now+0)
	})
}

// Whatever happens when: never more than six pushes in a minute, and while the host answers nothing waits for long.
func TestPaceProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p Pace
		now := startOfPacing
		var starts []time.Time
		factAt, auditAt := time.Time{}, time.Time{} // of the oldest that waits
		working := rapid.Bool().Draw(t, "the host works throughout")
		push := func() {
			starts = append(starts, now)
			p.Started(now)
			took := time.Duration(rapid.IntRange(0, 5000).Draw(t, "took")) * time.Millisecond
			if rapid.Bool().Draw(t, "fact meanwhile") {
				p.Fact(now.Add(took / 2))
			}
			now = now.Add(took)
			failed := !working && rapid.Bool().Draw(t, "failed")
			p.Ended(now, failed, rapid.Float64Range(0, 0.999).Draw(t, "chance"))
			if working {
				for what, limit := range map[*time.Time]time.Duration{&factAt: 17 * time.Second, &auditAt: 46 * time.Second} {
					if !what.IsZero() && starts[len(starts)-1].Sub(*what) > limit {
						t.Fatalf("something waited %v", starts[len(starts)-1].Sub(*what))
					}
					*what = time.Time{}
				}
			}
			if failed {
				if _, ok := p.Due(); !ok {
					t.Fatal("a failed push is forgotten")
				}
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				p.Fact(now)
				if factAt.IsZero() {
					factAt = now
				}
			case 1:
				p.Audit(now)
				if auditAt.IsZero() {
					auditAt = now
				}
			case 2:
				p.UserPushed(now)
			}
			step := time.Duration(rapid.IntRange(0, 30_000).Draw(t, "step")) * time.Millisecond
			until := now.Add(step)
			for {
				due, ok := p.Due()
				if !ok || due.After(until) {
					break
				}
				if due.After(now) {
					now = due
				}
				push()
			}
			if until.After(now) {
				now = until
			}
		}
		for i := 6; i < len(starts); i++ {
			if gap := starts[i].Sub(starts[i-6]); gap < time.Minute-time.Millisecond {
				t.Fatalf("seven pushes in %v", gap)
			}
		}
	})
}
