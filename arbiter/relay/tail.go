package relay

import (
	"slices"
	"sync"
	"time"

	"knoot.dev/knoot/arbiter"
)

// tail holds a repository's recent events as they are sent, for whoever listens or comes back. Readers keep a place in it
// and no queue of their own: one that falls behind what is kept is dropped.
type tail struct {
	mu      sync.Mutex
	events  []tailEvent
	first   uint64 // place of events[0]; places are counted from this run's start
	durable uint64 // the place behind the last event that is on the disk: readers stop there
	changed chan struct{}
	pace    rate // of events, measured as they become durable
	busy    bool // there were more than calmRate lately
}

type tailEvent struct {
	order arbiter.Order
	file  uint64 // of the log, in which it stands
	bytes []byte
}

// Above so many events a second a repository's are gathered, so that a reader is sent at most one message in trainTime.
const (
	calmRate  = 50
	trainTime = 20 * time.Millisecond
)

func newTail(now time.Duration) *tail {
	return &tail{changed: make(chan struct{}), pace: newRate(calmRate, calmRate, now)}
}

// add appends an event that is not yet durable, and returns the place behind it.
func (t *tail) add(event tailEvent) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.events = append(t.events, event)
	return t.first + uint64(len(t.events))
}

// end is the place behind the last event, durable or not.
func (t *tail) end() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.first + uint64(len(t.events))
}

// publish says that everything before a place is durable.
func (t *tail) publish(place uint64, now time.Duration) {
	t.mu.Lock()
	if place > t.durable {
		t.busy = t.pace.take(min(int(place-t.durable), calmRate), now) > 0
		t.durable = place
		t.wake()
	}
	t.mu.Unlock()
}

// wake calls readers. mu is held.
func (t *tail) wake() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// drop forgets the events of files before a number.
func (t *tail) drop(before uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, _ := slices.BinarySearchFunc(t.events, before, func(e tailEvent, number uint64) int {
		if e.file < number {
			return -1
		}
		return 1
	})
	t.events = slices.Clone(t.events[n:])
	t.first += uint64(n)
}

// find returns the place behind the event with this order; false where it is not kept, or not durable.
func (t *tail) find(order arbiter.Order) (uint64, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, ok := slices.BinarySearchFunc(t.events, order, func(e tailEvent, o arbiter.Order) int { return e.order.Compare(o) })
	place := t.first + uint64(n) + 1
	return place, ok && place <= t.durable
}

// reading is what a reader finds from its place on.
type reading struct {
	events  [][]byte        // durable ones, as many as a message holds
	end     uint64          // the place behind the last durable event
	changed <-chan struct{} // closed once there are more
	busy    bool            // many come
}

// read returns the durable events from a place on; false where they are no longer kept.
func (t *tail) read(place uint64, limit int) (reading, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if place < t.first {
		return reading{}, false
	}
	var events [][]byte
	size := 0
	for at := place; at < t.durable; at++ {
		bytes := t.events[at-t.first].bytes
		if size += len(bytes); size > limit && len(events) > 0 {
			break
		}
		events = append(events, bytes)
	}
	return reading{events, t.durable, t.changed, t.busy}, true
}
