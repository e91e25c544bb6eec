package daemon

import (
	"context"
	"errors"
	"slices"
	"time"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/arbiter/wire"
	"knoot.dev/knoot/gitlog"
)

const (
	// memoryAgain is after how long a relay that did not take a segment is told it again.
	memoryAgain = 5 * time.Second
	// maxUnopened bounds what waits for a newer state of the team; the oldest goes first. A segment then comes by git.
	maxUnopened = 64
)

// relaySegment is a segment of a memory log as it came with an event.
type relaySegment struct {
	event arbiter.Event
	files [][]byte
}

// remembered has the relay told what is new in the memory of this machine's clones.
func (r *relayRepository) remembered() {
	select {
	case r.memory <- struct{}{}:
	default:
	}
}

// tellMemory tells the relay, until ctx ends, the segments of own memory that the host has not confirmed: those that stand already,
// and each new one at once. It is told each once in this daemon's life; machines that have one pass over it.
func (r *relayRepository) tellMemory(ctx context.Context, conn wire.Conn) {
	for {
		r.hearUnopened()
		var again <-chan time.Time
		if !r.tellNewMemory(ctx, conn) {
			again = time.After(memoryAgain)
		}
		select {
		case <-r.memory:
		case <-again:
		case <-ctx.Done():
			return
		case <-conn.Done():
			return
		}
	}
}

// tellNewMemory tells what was not told yet; false where something has to be told again.
func (r *relayRepository) tellNewMemory(ctx context.Context, conn wire.Conn) bool {
	for _, oc := range r.all() {
		writer := oc.clone.Writer()
		segments, last, err := oc.clone.Unconfirmed(ctx, r.toldMemory[writer])
		if err != nil {
			if ctx.Err() == nil {
				r.d.log.Warn("what is remembered cannot be told to the relay", "repository", oc.common, "error", err)
			}
			return false
		}
		for _, s := range segments {
			if err := r.tellSegment(ctx, conn, s.Files); err != nil {
				r.refused(err)
				return false
			}
			r.toldMemory[writer] = s.Seq
		}
		r.toldMemory[writer] = last
	}
	return true
}

// all are the clones that are open.
func (r *relayRepository) all() []*openClone {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.clones)
}

// tellSegment tells a segment, sealed once more for all members: a relay is not told whose log it is, nor which rooms.
func (r *relayRepository) tellSegment(ctx context.Context, conn wire.Conn, files [][]byte) error {
	ctx, cancel := context.WithTimeout(ctx, relayRequest)
	defer cancel()
	r.mu.Lock()
	// It belongs to no session; a device's own id stands for that.
	sealed := r.names.seal(gitlog.MemoryPublished, arbiter.Token(r.names.device), r.clock.now(), relayDetail{Segment: files})
	m := &wire.Append{Repository: r.a.id.repository, Head: r.names.blinding.Roster.Head, Acts: []arbiter.Request{declare(arbiter.Who{}, gitlog.MemoryPublished, sealed)}}
	r.mu.Unlock()
	if sealed == nil || !fits(m) {
		return nil // it goes by git
	}
	_, err := r.link.ask(ctx, conn, m)
	var fault *wire.Fault
	if errors.As(err, &fault) && (fault.Code == wire.TooLarge || fault.Code == wire.UnknownRequest) {
		r.d.log.Debug("the relay does not carry what is remembered", "code", fault.Code.String(), "error", fault.Text)
		return nil // nor will it the next time
	}
	return err
}

// hearMemory takes in segments that came through the relay. Those by a newer state of the team wait for that.
func (r *relayRepository) hearMemory(segments []relaySegment) {
	var behind []arbiter.Event
	for i := range segments {
		if s := &segments[i]; !r.hearSegment(s.event.Device, s.files) {
			behind = append(behind, s.event)
		}
	}
	r.await(behind)
}

// hearSegment gives a segment to the clones here; false where one of them lacks the state of the team that it goes by.
func (r *relayRepository) hearSegment(device gitlog.DeviceID, files [][]byte) (judged bool) {
	judged = true
	for _, oc := range r.all() {
		news, err := oc.clone.Hear(device, files)
		switch {
		case errors.Is(err, gitlog.ErrRosterBehind):
			judged = false
		case errors.Is(err, gitlog.ErrNewer): // it comes by git, where it is counted
		case err != nil:
			r.d.log.Warn("what another machine remembered is refused", "repository", oc.common, "device", device.String(), "error", err)
		case news:
			oc.warm()
		}
	}
	return judged
}

// await keeps what came for a state of the team that is not here yet, and fetches that: once, since nobody knows whether any state opens
// it. That the relay has a newer one it says itself.
func (r *relayRepository) await(events []arbiter.Event) {
	if len(events) == 0 {
		return
	}
	r.mu.Lock()
	first := len(r.unopened) == 0
	r.unopened = append(r.unopened, events...)
	r.unopened = slices.Delete(r.unopened, 0, max(0, len(r.unopened)-maxUnopened))
	r.mu.Unlock()
	oc := r.clone()
	switch {
	case oc == nil:
	case first:
		oc.sync.fetchNow()
	default:
		oc.sync.fetchSoon()
	}
}

// hearUnopened looks again at what waits for another state of the team, which may be here now.
func (r *relayRepository) hearUnopened() {
	r.mu.Lock()
	waiting, b := r.unopened, r.names.blinding
	r.unopened = nil
	r.mu.Unlock()
	var still []arbiter.Event
	for i := range waiting {
		e := &waiting[i]
		switch opened := openDetail(b, e.Detail).with(e); {
		case opened == nil:
			still = append(still, *e)
		case e.Kind == gitlog.Message:
			r.deliver(e, opened.detail)
		case !r.hearSegment(e.Device, opened.detail.Segment):
			still = append(still, *e)
		}
	}
	r.mu.Lock()
	r.unopened = append(still, r.unopened...)
	r.mu.Unlock()
}
