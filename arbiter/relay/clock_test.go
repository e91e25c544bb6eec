package relay

import (
	"sync/atomic"
	"testing"
	"time"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/arbiter/wire"
	"knoot.dev/knoot/gitlog"
)

// The machine's clock jumps by an hour, also while the relay is not running: a jump back ends no lease and lengthens none, one forward
// ends those that there are, and no event is earlier than the one before it.
func TestClockJumpsOfAnHour(t *testing.T) {
	t.Parallel()
	const hour = int64(time.Hour / time.Millisecond)
	var jumped atomic.Int64
	h := newHost(t, func(o *Options) {
		o.wall = func() gitlog.Millis { return gitlog.Millis(int64(gitlog.Now()) + jumped.Load()) }
	})
	c := newCrew(t, 1)
	a, b := newLink(t, h, c, c.devices[0]), newLink(t, h, c, c.devices[1])
	ordered := func(when string, l *link) {
		t.Helper()
		l.mu.Lock()
		defer l.mu.Unlock()
		last := gitlog.Millis(0)
		for _, e := range l.events {
			if e.Time < last {
				t.Errorf("%s an event is %d ms earlier than the one before it", when, last-e.Time)
			}
			last = e.Time
		}
	}
	denied := func(when string, l *link) {
		t.Helper()
		got := l.claim("s", "auth.js")
		if got.Outcome != wire.Denied || len(got.Blocks) != 1 || got.Blocks[0].Left == 0 || got.Blocks[0].Left > arbiter.Lease {
			t.Errorf("%s a claim of what is held is answered %+v", when, got)
		}
		l.reach(got.Position)
		ordered(when, l)
	}
	restart := func() {
		t.Helper()
		h.restart()
		a, b = newLink(t, h, c, c.devices[0]), newLink(t, h, c, c.devices[1])
	}
	if got := a.claim("s", "auth.js"); got.Outcome != wire.Granted {
		t.Fatalf("%+v", got)
	}
	denied("at first", b)
	jumped.Store(-hour)
	denied("an hour back", b)
	restart()
	denied("an hour back, and restarted", b)
	jumped.Store(hour)
	got := b.claim("s", "auth.js")
	if got.Outcome != wire.Granted {
		t.Errorf("an hour ahead a lease of ten minutes holds still: %+v", got)
	}
	b.reach(got.Position)
	ordered("an hour ahead", b)
	b.mu.Lock()
	if hold, ok := b.view.Claim(b.view.Claims(arbiter.Token{}, b.view.Time())[0].Claim, b.view.Time()); !ok || hold.Until > b.view.Time()+arbiter.Lease {
		t.Errorf("the new lease lasts until %d, and it is %d", hold.Until, b.view.Time())
	}
	b.mu.Unlock()
	jumped.Store(-hour)
	denied("two hours back", a)
	restart()
	denied("two hours back, and restarted", a)
}
