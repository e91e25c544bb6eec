package daemon

import (
	"slices"
	"sync"
	"time"

	"knoot.dev/knoot/gitlog"
)

// maxFeed is how many events of a repository are kept for whoever watches.
const maxFeed = 200

// feed keeps what happened last in each repository, for whoever watches. Its numbers begin with the daemon's start, so that
// those of an earlier daemon are all lower.
type feed struct {
	began uint64

	mu   sync.Mutex
	byID map[repositoryID]*repositoryFeed // guarded by mu
}

// repositoryFeed is what happened last in one repository. The feed's lock guards it.
type repositoryFeed struct {
	number  uint64 // of the last change, shown or not
	events  []feedEvent
	changed chan struct{} // closed at the next change
}

// feedEvent is an event that is shown.
type feedEvent struct {
	number uint64
	occurrence
}

func newFeed(now time.Time) *feed {
	return &feed{began: uint64(max(now.UnixMilli(), 1)), byID: map[repositoryID]*repositoryFeed{}}
}

// of returns a repository's feed. mu is held.
func (f *feed) of(id repositoryID) *repositoryFeed {
	r := f.byID[id]
	if r == nil {
		r = &repositoryFeed{number: f.began, changed: make(chan struct{})}
		f.byID[id] = r
	}
	return r
}

// observe takes in what an arbiter says has happened.
func (f *feed) observe(a *arbitration, happened []occurrence) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.of(a.id)
	for _, o := range happened {
		r.number++
		// A lease that was renewed shows in the claims alone; so does that there is nobody left in a queue.
		if o.Kind != gitlog.ClaimRenewed && (o.Kind != gitlog.HubTurn || o.Key != (sessionKey{})) {
			r.events = append(r.events, feedEvent{r.number, o})
		}
	}
	if over := len(r.events) - maxFeed; over > 0 {
		r.events = slices.Delete(r.events, 0, over)
	}
	close(r.changed)
	r.changed = make(chan struct{})
}

// after returns the events after a number, the number of the last change, and a channel that is closed at the next one.
func (f *feed) after(id repositoryID, number uint64) ([]feedEvent, uint64, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.of(id)
	var out []feedEvent
	for _, e := range r.events {
		if e.number > number {
			out = append(out, e)
		}
	}
	return out, r.number, r.changed
}
