package daemon

import (
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"time"

	"knoot.dev/knoot/gitlog"
)

const (
	// fetchAgain is how long a fetch counts as recent, so that ten sessions that start together fetch once.
	fetchAgain = 10 * time.Second
	// syncTime bounds one fetch and push: a host that hangs must not hold up the next try for ever.
	syncTime = 2 * time.Minute
	// workedIn is how long after a hook a clone is fetched regularly.
	workedIn = 30 * time.Minute
	// healWithin is how long, at most, a log that the host has lost waits for whoever pushes it again: chance decides
	// who is first of all that noticed.
	healWithin = 10 * time.Minute
)

// syncLoop fetches and pushes one clone's refs in the background, at the pace that gitlog.Pace sets. No hook ever waits for
// it.
type syncLoop struct {
	oc   *openClone
	wake chan struct{} // a word that a due time came nearer

	running sync.Mutex // held by whoever syncs

	mu       sync.Mutex
	pace     gitlog.Pace // guarded by mu: of pushes
	fetchAt  time.Time   // guarded by mu: when the next fetch is due; zero: none is
	healAt   time.Time   // guarded by mu: when logs that the host has lost are pushed again; zero: it has all
	fetched  time.Time   // guarded by mu: the last fetch
	status   SyncStatus  // guarded by mu
	tracking refState    // guarded by mu: of the user's remote-tracking refs
}

// SyncStatus is how a clone stands with its remote.
type SyncStatus struct {
	Remote string `json:"remote,omitempty"` // its name; "": there is none
	// Confirmed is when the host last confirmed a sync; "": not since the daemon has had the clone open.
	Confirmed string `json:"confirmed,omitempty"`
	// Waiting says that there is something to push.
	Waiting bool `json:"waiting"`
	// Problem is why the last sync failed, a sentence with the remedy; "": it did not.
	Problem string `json:"problem,omitempty"`
}

func newSyncLoop(oc *openClone) *syncLoop {
	s := &syncLoop{oc: oc, wake: make(chan struct{}, 1), tracking: lookAtTracking(oc.common)}
	// What an earlier daemon, or a command, could not push any more.
	s.pace.Audit(oc.d.options.Now())
	return s
}

// changed says that there is something to push: a fact, or what happened.
func (s *syncLoop) changed(fact bool) {
	now := s.oc.d.options.Now()
	s.mu.Lock()
	s.status.Waiting = true
	if fact {
		s.pace.Fact(now)
	} else {
		s.pace.Audit(now)
	}
	s.mu.Unlock()
	s.nudge()
	if fact && s.oc.relay != nil {
		s.oc.relay.remembered()
	}
}

// fetchNow fetches: there is something new.
func (s *syncLoop) fetchNow() {
	s.mu.Lock()
	sooner(&s.fetchAt, s.oc.d.options.Now())
	s.mu.Unlock()
	s.nudge()
}

// fetchSoon fetches, unless that was just done.
func (s *syncLoop) fetchSoon() {
	now := s.oc.d.options.Now()
	s.mu.Lock()
	if now.Sub(s.fetched) >= fetchAgain {
		sooner(&s.fetchAt, now)
	}
	s.mu.Unlock()
	s.nudge()
}

// tick notices a push of the user's own, and that a fetch is due.
func (s *syncLoop) tick() {
	tracking := lookAtTracking(s.oc.common)
	now := s.oc.d.options.Now()
	s.mu.Lock()
	if tracking != s.tracking {
		s.tracking = tracking
		s.pace.UserPushed(now)
	}
	if now.Sub(s.oc.lastUse()) < workedIn && now.Sub(s.fetched) >= s.oc.d.config.now().Sync.Every.Duration {
		sooner(&s.fetchAt, now)
	}
	s.mu.Unlock()
	s.nudge()
}

func sooner(at *time.Time, t time.Time) {
	if at.IsZero() || t.Before(*at) {
		*at = t
	}
}

func (s *syncLoop) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run syncs when that is due, until the clone is closed.
func (s *syncLoop) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-s.oc.ctx.Done():
			return
		case <-timer.C:
		case <-s.wake:
		}
		how, wait := s.due()
		if how.Fetch || how.Push {
			ctx, cancel := context.WithTimeout(s.oc.ctx, syncTime)
			_, _ = s.sync(ctx, how)
			cancel()
			_, wait = s.due()
		}
		timer.Reset(wait)
	}
}

// due says what is due now, else how long to wait.
func (s *syncLoop) due() (how gitlog.SyncOptions, wait time.Duration) {
	now := s.oc.d.options.Now()
	wait = time.Hour
	s.mu.Lock()
	defer s.mu.Unlock()
	is := func(at time.Time, any bool) bool {
		if !any || at.IsZero() {
			return false
		}
		if at.After(now) {
			wait = min(wait, at.Sub(now))
			return false
		}
		return true
	}
	how.Push = is(s.pace.Due())
	how.Heal = is(s.healAt, true)
	how.Fetch = is(s.fetchAt, true) || how.Heal
	how.Push = how.Push || how.Heal
	how.Audit = how.Fetch
	return how, wait
}

// sync syncs now. The report and the error are those of Clone.Sync.
func (s *syncLoop) sync(ctx context.Context, how gitlog.SyncOptions) (*gitlog.SyncReport, error) {
	s.running.Lock()
	defer s.running.Unlock()
	oc := s.oc
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(oc.ctx, cancel)() // closing the clone does not wait for a host either
	if how.Push {
		s.mu.Lock()
		s.pace.Started(oc.d.options.Now())
		s.mu.Unlock()
	}
	if now := oc.d.now(); oc.paused(now) || paused(filepath.Join(oc.d.home.Dir, "off"), now) {
		s.settle(how, nil, errPaused)
		return nil, errPaused
	}
	if err := oc.writes(); err != nil {
		s.settle(how, nil, err)
		return nil, err
	}
	var report *gitlog.SyncReport
	err := errPanicked
	oc.d.guard("sync", func() { report, err = oc.clone.Sync(ctx, how) })
	s.settle(how, report, err)
	if err != nil {
		if oc.ctx.Err() == nil && !errors.Is(err, gitlog.ErrNoRemote) {
			oc.d.log.Warn("sync failed", "repository", oc.common, "error", err)
		}
		return report, err
	}
	if how.Fetch {
		// Whoever has an invitation's key and a clone could read the rooms: one that ended unused is closed by an admin's daemon.
		oc.d.guard("invitations", func() {
			if cancelled, err := oc.clone.CancelExpired(ctx); err != nil {
				oc.d.log.Warn("cannot take back invitations that ended", "repository", oc.common, "error", err)
			} else if cancelled > 0 {
				oc.d.log.Info("took back invitations that ended", "repository", oc.common, "number", cancelled)
			}
		})
	}
	oc.refreshIfMoved()
	oc.warm()
	if oc.relay != nil {
		oc.relay.tick() // the team may be another
	}
	return report, nil
}

var errPaused = errors.New("knoot is off here; `knoot on` turns it on again")

// settle takes note of how a sync went, and sets what is due next.
func (s *syncLoop) settle(how gitlog.SyncOptions, report *gitlog.SyncReport, err error) {
	remote := s.oc.clone.Remote()
	now := s.oc.d.options.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.Remote = remote
	if how.Push {
		s.pace.Ended(now, err != nil, rand.Float64())
	}
	if how.Fetch {
		// One that failed is tried again when the next is due, or when something is to be pushed.
		s.fetched, s.fetchAt = now, time.Time{}
	}
	if how.Heal {
		s.healAt = time.Time{}
	}
	if err != nil {
		s.status.Problem = withoutPasswords(err.Error())
		return
	}
	s.status.Problem = ""
	if how.Push {
		_, s.status.Waiting = s.pace.Due()
	} else {
		s.pace.Reached()
	}
	if report.Lacking > 0 && !how.Heal && s.healAt.IsZero() {
		s.healAt = now.Add(time.Duration(rand.Int64N(int64(healWithin))))
	}
	if !report.Confirmed.IsZero() {
		s.status.Confirmed = gitlog.TimeText(gitlog.MillisOf(report.Confirmed))
	}
}

// finish pushes what waits, once, as far as ctx allows.
func (s *syncLoop) finish(ctx context.Context) {
	s.mu.Lock()
	waiting := s.status.Waiting && s.status.Problem == ""
	s.mu.Unlock()
	if waiting {
		_, _ = s.sync(ctx, gitlog.SyncOptions{Push: true})
	}
}

func (s *syncLoop) report() SyncStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// lookAtTracking sums up the user's remote-tracking refs, which a push of theirs moves.
func lookAtTracking(common string) refState {
	var s refState
	s.walk(filepath.Join(common, "refs", "remotes"))
	s.add("reftable", stampOfFile(filepath.Join(common, "reftable", "tables.list")))
	return s
}
