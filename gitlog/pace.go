package gitlog

import "time"

// The pace of background pushes. Hosts ask for at most six a minute a repository: two at once and one more each 15 s are six in
// any minute, and let nobody wait longer than 15 s for the next.
const (
	paceBurst  = 2
	paceRefill = 15 * time.Second

	// What gathers before a push: a fact waits for what the same command or turn says next, audit for the turn.
	factDelay  = time.Second
	auditDelay = 30 * time.Second

	// A failed push is tried again after 10 s, 20 s, 40 s, …, 15 min, each made up to half longer or shorter by chance, so
	// that a team does not come back to a mended host in one moment.
	backoffFirst = 10 * time.Second
	backoffMost  = 15 * time.Minute
)

// Pace says when a repository's entries are pushed in the background. It reads no clock and starts nothing: its owner tells it
// what happened, asks Due, and pushes. The zero value is ready. It is not safe for several goroutines.
type Pace struct {
	wanted   time.Time // when what gathered should go; zero: nothing gathered
	during   time.Time // the same for what gathered while a push ran
	running  bool
	tokens   float64 // pushes that may start at once, as of counted
	counted  time.Time
	failures int
	notUntil time.Time // after a failure
}

// Fact says that a memory segment waits to be pushed, Audit that one of audit does.
func (p *Pace) Fact(now time.Time)  { p.want(now.Add(factDelay)) }
func (p *Pace) Audit(now time.Time) { p.want(now.Add(auditDelay)) }

// UserPushed says that the person pushed work of their own: what is said about it should be there soon, and the host is back if it
// was gone.
func (p *Pace) UserPushed(now time.Time) {
	p.Reached()
	p.want(now.Add(factDelay))
}

// Reached says that the host answered to something else, such as a fetch: no more waiting for it.
func (p *Pace) Reached() { p.failures, p.notUntil = 0, time.Time{} }

func (p *Pace) want(at time.Time) {
	wanted := &p.wanted
	if p.running {
		wanted = &p.during // the running push may have read the refs already
	}
	if wanted.IsZero() || at.Before(*wanted) {
		*wanted = at
	}
}

// Due returns when the next push should start, maybe in the past; false if nothing waits or one is running.
func (p *Pace) Due() (time.Time, bool) {
	if p.wanted.IsZero() || p.running {
		return time.Time{}, false
	}
	due := p.wanted
	if p.notUntil.After(due) {
		due = p.notUntil
	}
	if !p.counted.IsZero() && p.tokens < 1 {
		free := p.counted.Add(time.Duration((1 - p.tokens) * float64(paceRefill)))
		if free.After(due) {
			due = free
		}
	}
	return due, true
}

// Started says that a push of all that gathered starts; one that somebody asked for (`knoot sync`) counts too, and need not be due.
func (p *Pace) Started(now time.Time) {
	if p.counted.IsZero() {
		p.tokens = paceBurst
	} else {
		p.tokens = min(paceBurst, p.tokens+float64(now.Sub(p.counted))/float64(paceRefill))
	}
	p.tokens = max(0, p.tokens-1)
	p.counted = now
	p.wanted, p.running = time.Time{}, true
}

// Ended says how the push went. After a failure everything still waits; chance, from 0 up to 1, is the part of luck in when it
// is tried again.
func (p *Pace) Ended(now time.Time, failed bool, chance float64) {
	p.running = false
	p.wanted, p.during = p.during, time.Time{}
	if !failed {
		p.Reached()
		return
	}
	p.failures++
	wait := backoffMost
	if p.failures < 16 { // above, the shift would overflow, and the longest wait is long reached
		wait = min(backoffMost, backoffFirst<<(p.failures-1))
	}
	p.notUntil = now.Add(time.Duration((0.5 + chance) * float64(wait)))
	p.want(now)
}
