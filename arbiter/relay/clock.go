package relay

import (
	"sync"
	"time"

	"knoot.dev/knoot/gitlog"
)

// clock gives events their time: the larger of the wall clock and the last time given plus the monotonic time since. A
// wall clock that jumps back changes nothing; one that jumps forward ends leases early.
type clock struct {
	wall func() gitlog.Millis
	mono func() time.Duration // from any moment on

	mu   sync.Mutex
	last gitlog.Millis
	at   time.Duration // when last was given
}

func newClock(wall func() gitlog.Millis, mono func() time.Duration) *clock {
	return &clock{wall: wall, mono: mono, at: mono()}
}

func (c *clock) now() gitlog.Millis {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.mono()
	if whole := (at - c.at).Truncate(time.Millisecond); whole > 0 {
		c.last += gitlog.Millis(whole.Milliseconds())
		c.at += whole
	}
	if wall := c.wall(); wall > c.last {
		c.last, c.at = wall, at
	}
	return c.last
}

// reach says that a time was given already, by an earlier run.
func (c *clock) reach(t gitlog.Millis) {
	c.mu.Lock()
	c.last = max(c.last, t)
	c.mu.Unlock()
}

// rate is a bucket of tokens: perSecond flow in, at most burst are there. Not safe for concurrent use.
type rate struct {
	perSecond, burst float64
	tokens           float64
	at               time.Duration
}

func newRate(perSecond, burst int, now time.Duration) rate {
	return rate{perSecond: float64(perSecond), burst: float64(burst), tokens: float64(burst), at: now}
}

func (r *rate) fill(now time.Duration) {
	if now > r.at {
		r.tokens = min(r.burst, r.tokens+r.perSecond*(now-r.at).Seconds())
		r.at = now
	}
}

// some takes as many of n tokens as are there.
func (r *rate) some(n int, now time.Duration) int {
	r.fill(now)
	n = min(n, int(r.tokens))
	r.tokens -= float64(n)
	return n
}

// take takes n tokens if they are there, else it says how long until they are.
func (r *rate) take(n int, now time.Duration) (wait time.Duration) {
	r.fill(now)
	if r.tokens >= float64(n) {
		r.tokens -= float64(n)
		return 0
	}
	return r.wait(n)
}

// wait says how long it is until n tokens are there.
func (r *rate) wait(n int) time.Duration {
	return max(time.Duration((float64(n)-r.tokens)/r.perSecond*float64(time.Second)), time.Millisecond)
}
