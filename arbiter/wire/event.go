package wire

import (
	"fmt"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/gitlog"
)

// Events are what was sequenced, in order and without a gap.
type Events struct {
	Now    gitlog.Millis // by the relay's clock, as it sent them
	Events []arbiter.Event
}

func (*Events) kind() uint64 { return kindEvents }
func (v *Events) encode(m *mapEncoder) {
	m.key(1).uint(uint64(v.Now))
	e := m.key(2)
	e.array(len(v.Events))
	for i := range v.Events {
		e.event(&v.Events[i])
	}
}

func decodeEvents(d *decoder) Message {
	v := &Events{}
	d.fields(keys(1, 2), func(key uint64) bool {
		switch key {
		case 1:
			v.Now = d.millis()
		case 2:
			v.Events = decodeList(d, maxEvents, (*decoder).event)
		default:
			return false
		}
		return true
	})
	return v
}

// EventsOf makes an Events message of events that are encoded already (EncodeEvent), as many of them as a message may
// hold, at least one, and returns their number.
func EventsOf(now gitlog.Millis, events [][]byte) (message []byte, n int) {
	size := 32
	for n < len(events) && n < maxEvents && (n == 0 || size+len(events[n]) <= MaxMessage) {
		size += len(events[n])
		n++
	}
	e := &encoder{b: make([]byte, 0, size)}
	e.array(2)
	e.uint(kindEvents)
	e.mapOf(func(m *mapEncoder) {
		m.key(1).uint(uint64(now))
		m.key(2).array(n)
		for _, event := range events[:n] {
			e.b = append(e.b, event...)
		}
	})
	return e.b, n
}

// EncodeEvent makes the bytes of one event, as they stand in a message.
func EncodeEvent(event *arbiter.Event) []byte {
	e := &encoder{b: make([]byte, 0, 192+len(event.Detail))}
	e.event(event)
	return e.b
}

// DecodeEvent reads what EncodeEvent made.
func DecodeEvent(data []byte) (arbiter.Event, error) {
	d := &decoder{data: data}
	event := d.event()
	return event, d.end("an event")
}

// event writes Until as time left from the event's own time: a lease, not a moment.
func (e *encoder) event(v *arbiter.Event) {
	e.mapOf(func(m *mapEncoder) {
		m.key(1).uint(uint64(v.Kind))
		m.key(2).order(v.Order)
		m.key(3).uint(uint64(v.Time))
		m.key(4).who(&v.Who)
		m.flag(5, v.Late)
		m.id(6, v.OldBranch)
		if len(v.Paths) > 0 {
			e := m.key(7)
			e.array(len(v.Paths))
			for i := range v.Paths {
				e.path(&v.Paths[i])
			}
		}
		m.uint(8, uint64(v.Class))
		m.id(9, v.Claim)
		if v.Until != 0 {
			m.key(10).int(int64(v.Until) - int64(v.Time))
		}
		m.uint(11, uint64(v.Reason))
		m.id(12, v.Other)
		m.bytes(13, v.Detail)
	})
}

func (d *decoder) event() (v arbiter.Event) {
	d.fields(keys(1, 2, 3, 4), func(key uint64) bool {
		switch key {
		case 1:
			v.Kind = gitlog.EntryKind(d.some())
		case 2:
			v.Order = d.order()
		case 3:
			v.Time = d.millis()
		case 4:
			v.Who = d.who()
		case 5:
			v.Late = d.flag()
		case 6:
			v.OldBranch = d.id()
		case 7:
			v.Paths = decodeList(d, MaxBatch, (*decoder).path)
		case 8:
			v.Class = arbiter.Class(d.some())
		case 9:
			v.Claim = d.id()
		case 10:
			v.Until = d.until(v.Time)
		case 11:
			v.Reason = arbiter.Reason(d.some())
		case 12:
			v.Other = d.id()
		case 13:
			v.Detail = d.someBytes(MaxDetail)
		default:
			return false
		}
		return true
	})
	return v
}

// until reads time left from a moment; the moment it gives is not before 1.
func (d *decoder) until(from gitlog.Millis) gitlog.Millis {
	left := d.int()
	if d.err == nil && (left > maxMillis || left < -maxMillis || int64(from)+left < 1 || int64(from)+left > maxMillis) {
		d.fail(errValue)
	}
	if d.err != nil {
		return 0
	}
	return gitlog.Millis(int64(from) + left)
}

func (e *encoder) who(w *arbiter.Who) {
	e.mapOf(func(m *mapEncoder) {
		m.id(1, w.Session)
		m.bytes(2, []byte(w.Subagent))
		m.id(3, w.Device)
		m.id(4, w.Owner)
		m.flag(5, w.Person)
		m.id(6, w.Branch)
		m.id(7, w.Worktree)
		m.id(8, w.WasBranch)
		m.id(9, w.WasWorktree)
	})
}

func (d *decoder) who() (w arbiter.Who) {
	d.fields(0, func(key uint64) bool {
		switch key {
		case 1:
			w.Session = d.id()
		case 2:
			w.Subagent = string(d.someBytes(maxSubagent))
		case 3:
			w.Device = d.id()
		case 4:
			w.Owner = d.id()
		case 5:
			w.Person = d.flag()
		case 6:
			w.Branch = d.id()
		case 7:
			w.Worktree = d.id()
		case 8:
			w.WasBranch = d.id()
		case 9:
			w.WasWorktree = d.id()
		default:
			return false
		}
		return true
	})
	return w
}

// path writes [own, ancestors] or [own, ancestors, own before, ancestors before], ancestors end to end.
func (e *encoder) path(p *arbiter.Path) {
	parts := []*arbiter.Path{p}
	if p.Was != nil {
		parts = append(parts, p.Was)
	}
	e.array(2 * len(parts))
	for _, part := range parts {
		e.bytes(part.Own[:])
		e.head(majorBytes, uint64(16*len(part.Ancestors)))
		for i := range part.Ancestors {
			e.b = append(e.b, part.Ancestors[i][:]...)
		}
	}
}

func (d *decoder) path() (p arbiter.Path) {
	n := d.want(majorArray)
	if d.err == nil && n != 2 && n != 4 {
		d.fail(errType)
	}
	p = d.pathPart()
	if n == 4 && d.err == nil {
		was := d.pathPart()
		p.Was = &was
	}
	return p
}

func (d *decoder) pathPart() (p arbiter.Path) {
	p.Own = d.id()
	p.Ancestors = d.tokens(maxAncestors)
	return p
}

// tokens reads 16-byte tokens that stand end to end in one byte string; nil where there is none.
func (d *decoder) tokens(limit int) []arbiter.Token {
	b := d.bytes(16 * limit)
	if len(b)%16 != 0 {
		d.fail(fmt.Errorf("%w: tokens have 16 bytes", errType))
	}
	if d.err != nil || len(b) == 0 {
		return nil
	}
	tokens := make([]arbiter.Token, len(b)/16)
	for i := range tokens {
		tokens[i] = arbiter.Token(b[16*i:])
	}
	return tokens
}
