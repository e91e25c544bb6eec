package relay

import (
	"crypto/ed25519"
	"encoding/binary"
	"sync"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/arbiter/wire"
	"knoot.dev/knoot/gitlog"
)

// relayKey is who the relay is.
type relayKey struct {
	public  ed25519.PublicKey
	private ed25519.PrivateKey
}

// repository orders the events of one repository. What it decides it applies at once, and nobody hears of it before it
// is on the disk: whoever waits behind an event waits for the same sync or a later one.
type repository struct {
	core   *core
	key    repositoryKey
	number uint64 // in the log
	tail   *tail

	mu        sync.Mutex // taken with core.world held for reading
	seq       arbiter.Sequencer
	listeners map[*listener]struct{}
	claims    map[gitlog.DeviceID]int        // live claims of each device, at most
	granted   map[arbiter.ClaimID]grantState // every live claim
	weight    weight
	unsigned  []unsignedGrant                   // in the order in which they are due
	shown     map[arbiter.ClaimID]arbiter.Order // in grace: what claims were granted for before the state was lost
}

// grantState is what a claim was last signed for, or is about to be.
type grantState struct {
	device gitlog.DeviceID
	until  gitlog.Millis // of the lease that the last signature names; zero: none yet
	queued bool
}

type unsignedGrant struct {
	claim arbiter.ClaimID
	due   gitlog.Millis
}

// A claim that lives so long is worth a signature. Most are released before.
const grantAfter gitlog.Millis = 5_000

// caller is a device that asks, as the roster has it.
type caller struct {
	device gitlog.DeviceID
	member gitlog.MemberID
}

// publish is called by the log.
func (r *repository) publish(place uint64) { r.tail.publish(place, r.core.mono()) }

// carry does a request: its events are decided, applied, and appended to the log. It returns those of the request itself
// and the batch to wait for. mu and the world are held.
func (r *repository) carry(request arbiter.Request, now gitlog.Millis) (own []arbiter.Event, b *batch) {
	events, from, to := r.seq.Do(request, now)
	return events[from:to], r.append(events)
}

// append puts events into the log and the tail. mu and the world are held.
func (r *repository) append(events []arbiter.Event) *batch {
	if len(events) == 0 {
		return nil
	}
	r.core.events.Add(uint64(len(events)))
	head := binary.AppendUvarint([]byte{recordEvent}, r.number)
	var records []byte
	place := uint64(0)
	for i := range events {
		bytes := wire.EncodeEvent(&events[i])
		records = appendRecord(records, head, bytes)
		place = r.tail.add(tailEvent{order: events[i].Order, file: r.core.file, bytes: bytes})
		r.note(&events[i], len(bytes))
	}
	return r.core.log.append(records, r, place)
}

// note keeps what is counted beside the View. size is the event's, in bytes.
func (r *repository) note(e *arbiter.Event, size int) {
	r.weight.since += int64(size)
	switch e.Kind {
	case gitlog.ClaimAcquired:
		r.claims[e.Device]++
		r.queueGrant(e.Claim, e.Device, e.Time, e.Until)
	case gitlog.ClaimReleased, gitlog.ClaimLeft:
		r.forgetEnded(e.Claim, e.Time)
	case gitlog.RosterChanged:
		for id, state := range r.granted {
			if state.device == e.Device {
				r.forgetEnded(id, e.Time)
			}
		}
	case gitlog.ClaimRenewed, gitlog.FileWritten, gitlog.PathRemoved:
		if e.Claim != (arbiter.ClaimID{}) {
			r.queueGrant(e.Claim, e.Device, e.Time, e.Until)
		} else if e.Kind == gitlog.ClaimRenewed {
			for _, hold := range r.seq.Claims(e.Session, e.Time) {
				r.queueGrant(hold.Claim, e.Device, e.Time, hold.Until)
			}
		}
	}
}

// forgetEnded drops what is counted of a claim, if it was one and is over: an event may name any id.
func (r *repository) forgetEnded(claim arbiter.ClaimID, now gitlog.Millis) {
	state, counted := r.granted[claim]
	if _, live := r.seq.Claim(claim, now); live || !counted {
		return
	}
	delete(r.granted, claim)
	delete(r.shown, claim)
	if r.claims[state.device]--; r.claims[state.device] <= 0 {
		delete(r.claims, state.device)
	}
}

// queueGrant has a claim signed, unless it was for about that long.
func (r *repository) queueGrant(claim arbiter.ClaimID, device gitlog.DeviceID, now, until gitlog.Millis) {
	state := r.granted[claim]
	state.device = device
	if state.queued || state.until != 0 && until < state.until+arbiter.Lease/4 {
		return
	}
	state.queued = true
	r.granted[claim] = state
	r.unsigned = append(r.unsigned, unsignedGrant{claim, now + grantAfter})
}

// tick does what time brings in this repository.
func (r *repository) tick(now gitlog.Millis) {
	r.core.world.RLock()
	r.mu.Lock()
	if at, ok := r.seq.DueAt(); ok && at <= now {
		r.append(r.seq.Tick(now))
	}
	grants, to := r.dueGrants(now)
	r.mu.Unlock()
	r.core.world.RUnlock()
	for i, g := range grants { // signing takes its time, and nobody waits for it
		signed, err := g.Sign(r.core.key.private)
		if err == nil {
			for _, l := range to[i] {
				l.offer(&wire.GrantIssued{Claim: g.Claim, Grant: signed})
			}
		}
	}
}

// dueGrants takes the claims that have lived long enough, with the listeners of their device. mu is held.
func (r *repository) dueGrants(now gitlog.Millis) (grants []*gitlog.Grant, to [][]*listener) {
	for len(r.unsigned) > 0 && r.unsigned[0].due <= now {
		id := r.unsigned[0].claim
		r.unsigned = r.unsigned[1:]
		hold, live := r.seq.Claim(id, now)
		if !live {
			continue
		}
		r.granted[id] = grantState{device: hold.Device, until: hold.Until}
		var listeners []*listener
		for l := range r.listeners {
			if l.device == hold.Device {
				listeners = append(listeners, l)
			}
		}
		grants = append(grants, &gitlog.Grant{
			Team: r.key.team, Repository: r.key.id, Claim: id, Device: hold.Device, Session: gitlog.Token(hold.Session),
			Path: gitlog.Token(hold.Path.Own), Branch: gitlog.Token(hold.Branch), Worktree: gitlog.Token(hold.Worktree),
			Class: uint64(hold.Class), Term: hold.Order.Term, Seq: hold.Order.Seq, Until: hold.Until,
		})
		to = append(to, listeners)
	}
	return grants, to
}

// hold runs f while this repository stands still, and waits until everything that f saw or did is on the disk.
func (r *repository) hold(f func(now gitlog.Millis) *batch) error {
	r.core.world.RLock()
	r.mu.Lock()
	b := f(r.core.clock.now())
	if b == nil {
		b = r.core.log.barrier()
	}
	r.mu.Unlock()
	r.core.world.RUnlock()
	if b == nil {
		return nil
	}
	<-b.done
	return b.err
}

// unavailable is what a log that cannot be written answers.
func unavailable() *wire.Fault {
	return &wire.Fault{Code: wire.Unavailable, Text: "the relay cannot write its log"}
}

// fill puts in what the relay knows better than the client: whose session it is. A session of another device is refused.
// mu is held.
func (r *repository) fill(who *arbiter.Who, by caller, now gitlog.Millis) *wire.Fault {
	who.Device, who.Owner = by.device, by.member
	if s, live := r.seq.Session(who.Session, now); live && s.Device != by.device && s.Device != (gitlog.DeviceID{}) {
		return &wire.Fault{Code: wire.NotYours, Text: "the session is another device's"}
	}
	return nil
}

// claim answers a claim. maxHeld is how many claims the device may hold.
func (r *repository) claim(c *wire.Claim, by caller) (answer *wire.Answer, fault *wire.Fault) {
	if total := len(c.Wants) * len(c.Detail); total > r.core.limits.ClaimBytes {
		return nil, &wire.Fault{Code: wire.TooLarge, Text: "the claim's paths and details are too many"}
	}
	for i := range c.Wants {
		if c.Wants[i].Detail == nil {
			c.Wants[i].Detail = c.Detail
		}
	}
	err := r.hold(func(now gitlog.Millis) (b *batch) {
		if fault = r.fill(&c.Who, by, now); fault != nil {
			return nil
		}
		if fault = r.full(); fault != nil {
			return nil
		}
		if fault = r.roomFor(len(c.Wants), by.device, now); fault != nil {
			return nil
		}
		if r.core.graceLeft(now) > 0 {
			if b, fault = r.inGrace(c, by, now); fault != nil {
				return b
			}
		}
		events, done := r.carry(c.Claim, now)
		answer, fault = r.answerClaim(c, events, now)
		if done != nil {
			b = done
		}
		return b
	})
	if err != nil {
		return nil, unavailable()
	}
	return answer, fault
}

// roomFor bounds the claims of one device. mu is held.
func (r *repository) roomFor(n int, device gitlog.DeviceID, now gitlog.Millis) *wire.Fault {
	limit := r.core.limits.Claims
	if r.claims[device]+n <= limit {
		return nil
	}
	held := 0 // the count may be too high, never too low
	for _, hold := range r.seq.Claims(arbiter.Token{}, now) {
		if hold.Device == device {
			held++
		}
	}
	if r.claims[device] = held; held+n <= limit {
		return nil
	}
	return &wire.Fault{Code: wire.TooManyClaims, Text: "the device holds as many claims as one may"}
}

// answerClaim says what became of a claim. mu is held.
func (r *repository) answerClaim(c *wire.Claim, events []arbiter.Event, now gitlog.Millis) (*wire.Answer, *wire.Fault) {
	answer := &wire.Answer{Now: now, Outcome: wire.Granted, Position: positionOf(events)}
	room := wire.MaxMessage - 4<<10
	for i := range c.Wants {
		w := &c.Wants[i]
		if _, held := r.seq.Holding(c.Who, *w, now); held {
			continue
		}
		if c.Late {
			answer.Outcome = wire.Lost
			answer.Lost = append(answer.Lost, w.ID)
			continue
		}
		hold, blocked := r.seq.Blocks(c.Who, *w, now)
		if !blocked {
			continue // free, but another path of the batch is not
		}
		answer.Outcome = wire.Denied
		if c.Note {
			answer.Outcome = wire.Refused
		}
		block := wire.Block{Claim: w.ID, Holder: hold.Who, Class: hold.Class}
		if hold.Until > now {
			block.Left = hold.Until - now
		}
		for _, wait := range r.seq.Queue(c.Who, *w, now).Waits {
			if wait.Session == c.Session {
				block.Place = uint64(wait.Place)
			}
		}
		const blockSize = 256
		if room -= blockSize; room < 0 {
			break
		}
		if len(hold.Detail) <= room {
			block.Detail = hold.Detail
			room -= len(hold.Detail)
		}
		answer.Blocks = append(answer.Blocks, block)
	}
	if answer.Outcome == wire.Granted && !r.holdsAll(c, now) {
		return nil, &wire.Fault{Code: wire.NotYours, Text: "a claim's id is in use for another, or a token is missing"}
	}
	return answer, nil
}

func (r *repository) holdsAll(c *wire.Claim, now gitlog.Millis) bool {
	for i := range c.Wants {
		if _, held := r.seq.Holding(c.Who, c.Wants[i], now); !held {
			return false
		}
	}
	return true
}

func positionOf(events []arbiter.Event) arbiter.Order {
	if len(events) == 0 {
		return arbiter.Order{}
	}
	return events[len(events)-1].Order
}

// inGrace lets a claim pass that was granted before the state was lost: each of its paths comes with a grant of this
// relay. Of two for one path the later one holds. mu is held.
func (r *repository) inGrace(c *wire.Claim, by caller, now gitlog.Millis) (b *batch, fault *wire.Fault) {
	fault = &wire.Fault{
		Code: wire.Grace, Text: "the relay lost its state, and grants what it had granted before only", After: r.core.graceLeft(now),
	}
	if len(c.Grants) > len(c.Wants) {
		return nil, fault
	}
	grants := map[arbiter.ClaimID]*gitlog.Grant{}
	for _, signed := range c.Grants {
		if g, err := gitlog.ReadGrant(signed, r.core.key.public); err == nil {
			grants[g.Claim] = g
		}
	}
	orders := make([]arbiter.Order, len(c.Wants))
	for i := range c.Wants {
		w := &c.Wants[i]
		if _, held := r.seq.Holding(c.Who, *w, now); held {
			continue
		}
		g := grants[w.ID]
		if g == nil || g.Team != r.key.team || g.Repository != r.key.id || g.Device != by.device || arbiter.Token(g.Session) != c.Session || g.Until <= now {
			return nil, fault
		}
		// It may have been signed under the keys before.
		was := w.Path.Was != nil && arbiter.Token(g.Path) == w.Path.Was.Own
		if arbiter.Token(g.Path) != w.Path.Own && !was || arbiter.Token(g.Branch) != c.Branch && arbiter.Token(g.Branch) != c.WasBranch ||
			arbiter.Token(g.Worktree) != c.Worktree && arbiter.Token(g.Worktree) != c.WasWorktree {
			return nil, fault
		}
		orders[i] = arbiter.Order{Term: g.Term, Seq: g.Seq}
	}
	for i := range c.Wants {
		for {
			hold, blocked := r.seq.Blocks(c.Who, c.Wants[i], now)
			if !blocked || hold.Claim == (arbiter.ClaimID{}) || r.shown[hold.Claim].Compare(orders[i]) >= 0 {
				break // the claim is denied by the ordinary rules
			}
			if events, done := r.carry(arbiter.Release{Who: hold.Who, Claims: []arbiter.ClaimID{hold.Claim}, Reason: arbiter.RelaysOrder}, now); len(events) > 0 {
				b = done
			} else {
				break
			}
		}
		r.shown[c.Wants[i].ID] = orders[i]
	}
	return b, nil
}

// release answers a release.
func (r *repository) release(q *wire.Release, by caller) (answer *wire.Answer, fault *wire.Fault) {
	err := r.hold(func(now gitlog.Millis) (b *batch) {
		if fault = r.fill(&q.Who, by, now); fault != nil {
			return nil
		}
		events, b := r.carry(q.Release, now)
		answer = &wire.Answer{Now: now, Position: positionOf(events)}
		return b
	})
	if err != nil {
		return nil, unavailable()
	}
	return answer, fault
}

// appendActs carries out what sessions did, in order. A wrong one ends it: what came before stands.
func (r *repository) appendActs(q *wire.Append, by caller) (answer *wire.Answer, fault *wire.Fault) {
	err := r.hold(func(now gitlog.Millis) (b *batch) {
		answer = &wire.Answer{Now: now}
		for _, act := range q.Acts {
			act = wire.WithWho(act, func(who *arbiter.Who) { fault = r.fill(who, by, now) })
			if take, ok := act.(arbiter.Take); ok && fault == nil {
				fault = r.roomFor(len(take.Wants), by.device, now)
			}
			if fault != nil {
				return b
			}
			if grows(act) {
				if fault = r.full(); fault != nil {
					return b
				}
			}
			events, done := r.carry(act, now)
			if done != nil {
				b = done
			}
			if len(events) > 0 {
				answer.Position = positionOf(events)
			}
		}
		return b
	})
	if err != nil {
		return nil, unavailable()
	}
	return answer, fault
}

// rosterChanged sequences a change of the team, after which the claims of removed devices are over.
func (r *repository) rosterChanged(removed []gitlog.DeviceID) error {
	return r.hold(func(now gitlog.Millis) *batch {
		_, b := r.carry(arbiter.Roster{Removed: removed}, now)
		return b
	})
}

// opening is what a client that opens the repository gets.
type opening struct {
	position arbiter.Order
	snapshot []byte // nil: the events after position are in the tail
	place    uint64 // of the first event to send
	now      gitlog.Millis
	grace    gitlog.Millis
}

// maxTerm bounds what a client may say it saw: terms count seconds, and grow by one a start.
const maxTerm = 1 << 53

// open finds where a client goes on, and begins to listen for it.
func (r *repository) open(seen arbiter.Order, l *listener) (o opening, fault *wire.Fault) {
	if seen.Term >= maxTerm {
		return o, &wire.Fault{Code: wire.Malformed, Text: "there is no such term"}
	}
	var snapshot *arbiter.Snapshot
	err := r.hold(func(now gitlog.Millis) (b *batch) {
		if seen.Term > r.seq.Term { // a client remembers what this relay forgot
			r.seq.Term = r.core.newTerm(seen.Term)
			record := binary.AppendUvarint(binary.AppendUvarint([]byte{recordTerm}, r.number), r.seq.Term)
			b = r.core.log.append(appendRecord(nil, record), r, r.tail.end())
		}
		o.now, o.grace = now, r.core.graceLeft(now)
		if place, ok := r.tail.find(seen); ok {
			o.place, o.position = place, seen
		} else {
			s := r.seq.Snapshot()
			snapshot = &s
			o.position, o.place = s.Order, r.tail.end()
		}
		r.listeners[l] = struct{}{}
		return b
	})
	if err != nil {
		r.closeListener(l)
		return o, unavailable()
	}
	if snapshot != nil {
		o.snapshot = wire.EncodeSnapshot(snapshot)
	}
	return o, nil
}

func (r *repository) closeListener(l *listener) {
	r.mu.Lock()
	delete(r.listeners, l)
	r.mu.Unlock()
}
