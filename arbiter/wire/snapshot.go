package wire

import (
	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/gitlog"
)

// A snapshot is one map, in parts of at most MaxMessage where it is sent. Moments at which something ends are written as
// time left from the snapshot's own time, as in events.

// EncodeSnapshot makes the bytes of a View's state.
func EncodeSnapshot(s *arbiter.Snapshot) []byte {
	e := &encoder{}
	e.mapOf(func(m *mapEncoder) {
		m.key(1).order(s.Order)
		m.key(2).uint(uint64(s.Time))
		encodeList(m, 3, s.Sessions, func(e *encoder, x *arbiter.SessionState) {
			e.mapOf(func(m *mapEncoder) {
				m.key(1).who(&x.Who)
				m.uint(2, uint64(x.Started))
				m.uint(3, uint64(x.Seen))
				m.bytes(4, x.Detail)
				m.bytes(5, x.Intent)
				m.bytes(6, x.Plan)
				m.uint(7, uint64(x.Intended))
				m.uint(8, uint64(x.Planned))
				m.flag(9, x.Ended)
			})
		})
		encodeList(m, 4, s.Claims, func(e *encoder, x *arbiter.Hold) {
			e.mapOf(func(m *mapEncoder) {
				m.key(1).who(&x.Who)
				m.id(2, x.Claim)
				m.key(3).path(&x.Path)
				m.uint(4, uint64(x.Class))
				m.uint(5, uint64(x.Since))
				m.left(6, x.Until, s.Time)
				m.uint(7, uint64(x.Written))
				m.key(8).order(x.Order)
				m.bytes(9, x.Detail)
			})
		})
		encodeList(m, 5, s.Writes, func(e *encoder, x *arbiter.WriteState) {
			e.mapOf(func(m *mapEncoder) {
				m.key(1).who(&x.Who)
				m.key(2).path(&x.Path)
				m.key(3).order(x.Order)
				m.uint(4, uint64(x.Time))
				m.flag(5, x.Gated)
				m.flag(6, x.Removed)
				m.bytes(7, x.Detail)
				m.uint(8, uint64(x.LastGated))
			})
		})
		encodeList(m, 6, s.Left, func(e *encoder, x *arbiter.Left) {
			e.mapOf(func(m *mapEncoder) {
				m.key(1).who(&x.Who)
				m.key(2).path(&x.Path)
				m.id(3, x.Claim)
				m.uint(4, uint64(x.Time))
				m.bytes(5, x.Detail)
			})
		})
		encodeList(m, 7, s.Waits, (*encoder).wait)
		encodeList(m, 8, s.Queues, func(e *encoder, x *arbiter.QueueState) {
			e.mapOf(func(m *mapEncoder) {
				m.id(1, x.Path)
				m.id(2, x.Branch)
				m.left(3, x.Until, s.Time)
				encodeList(m, 4, x.Waits, (*encoder).wait)
			})
		})
	})
	return e.b
}

func encodeList[T any](m *mapEncoder, key uint64, list []T, one func(e *encoder, x *T)) {
	if len(list) == 0 {
		return
	}
	e := m.key(key)
	e.array(len(list))
	for i := range list {
		one(e, &list[i])
	}
}

// left writes a moment as time left, and zero not at all.
func (m *mapEncoder) left(key uint64, until, from gitlog.Millis) {
	if until != 0 {
		m.key(key).int(int64(until) - int64(from))
	}
}

func (e *encoder) wait(x *arbiter.WaitState) {
	e.mapOf(func(m *mapEncoder) {
		m.key(1).who(&x.Who)
		m.key(2).path(&x.Path)
		m.uint(3, uint64(x.Class))
		m.uint(4, uint64(x.Since))
		m.uint(5, uint64(x.Place))
		m.key(6).order(x.Order)
		m.flag(7, x.Passed)
	})
}

// DecodeSnapshot reads what EncodeSnapshot made; arbiter.Restore makes a View of it. It may share memory with data.
func DecodeSnapshot(data []byte) (*arbiter.Snapshot, error) {
	d := &decoder{data: data}
	s := &arbiter.Snapshot{}
	d.fields(keys(1, 2), func(key uint64) bool {
		switch key {
		case 1:
			s.Order = d.order()
		case 2:
			s.Time = d.millis()
		case 3:
			s.Sessions = decodeList(d, len(d.data), (*decoder).session)
		case 4:
			s.Claims = decodeList(d, len(d.data), func(d *decoder) arbiter.Hold { return d.hold(s.Time) })
		case 5:
			s.Writes = decodeList(d, len(d.data), (*decoder).written)
		case 6:
			s.Left = decodeList(d, len(d.data), (*decoder).abandoned)
		case 7:
			s.Waits = decodeList(d, len(d.data), (*decoder).wait)
		case 8:
			s.Queues = decodeList(d, len(d.data), func(d *decoder) arbiter.QueueState { return d.queue(s.Time) })
		default:
			return false
		}
		return true
	})
	return s, d.end("a snapshot")
}

func (d *decoder) session() (x arbiter.SessionState) {
	d.fields(keys(1), func(key uint64) bool {
		switch key {
		case 1:
			x.Who = d.who()
		case 2:
			x.Started = d.someMillis()
		case 3:
			x.Seen = d.someMillis()
		case 4:
			x.Detail = d.someBytes(MaxDetail)
		case 5:
			x.Intent = d.someBytes(MaxDetail)
		case 6:
			x.Plan = d.someBytes(MaxDetail)
		case 7:
			x.Intended = d.someMillis()
		case 8:
			x.Planned = d.someMillis()
		case 9:
			x.Ended = d.flag()
		default:
			return false
		}
		return true
	})
	return x
}

func (d *decoder) hold(from gitlog.Millis) (x arbiter.Hold) {
	d.fields(keys(1, 3, 8), func(key uint64) bool {
		switch key {
		case 1:
			x.Who = d.who()
		case 2:
			x.Claim = d.id()
		case 3:
			x.Path = d.path()
		case 4:
			x.Class = arbiter.Class(d.some())
		case 5:
			x.Since = d.someMillis()
		case 6:
			x.Until = d.until(from)
		case 7:
			x.Written = d.someMillis()
		case 8:
			x.Order = d.order()
		case 9:
			x.Detail = d.someBytes(MaxDetail)
		default:
			return false
		}
		return true
	})
	return x
}

func (d *decoder) written() (x arbiter.WriteState) {
	d.fields(keys(1, 2, 3), func(key uint64) bool {
		switch key {
		case 1:
			x.Who = d.who()
		case 2:
			x.Path = d.path()
		case 3:
			x.Order = d.order()
		case 4:
			x.Time = d.someMillis()
		case 5:
			x.Gated = d.flag()
		case 6:
			x.Removed = d.flag()
		case 7:
			x.Detail = d.someBytes(MaxDetail)
		case 8:
			x.LastGated = d.someMillis()
		default:
			return false
		}
		return true
	})
	return x
}

func (d *decoder) abandoned() (x arbiter.Left) {
	d.fields(keys(1, 2), func(key uint64) bool {
		switch key {
		case 1:
			x.Who = d.who()
		case 2:
			x.Path = d.path()
		case 3:
			x.Claim = d.id()
		case 4:
			x.Time = d.someMillis()
		case 5:
			x.Detail = d.someBytes(MaxDetail)
		default:
			return false
		}
		return true
	})
	return x
}

func (d *decoder) wait() (x arbiter.WaitState) {
	d.fields(keys(1, 2, 6), func(key uint64) bool {
		switch key {
		case 1:
			x.Who = d.who()
		case 2:
			x.Path = d.path()
		case 3:
			x.Class = arbiter.Class(d.some())
		case 4:
			x.Since = d.someMillis()
		case 5:
			x.Place = int(d.count())
		case 6:
			x.Order = d.order()
		case 7:
			x.Passed = d.flag()
		default:
			return false
		}
		return true
	})
	return x
}

// count reads a number that fits an int.
func (d *decoder) count() uint64 {
	n := d.some()
	if n > 1<<31 {
		d.fail(errValue)
		return 0
	}
	return n
}

func (d *decoder) queue(from gitlog.Millis) (x arbiter.QueueState) {
	d.fields(0, func(key uint64) bool {
		switch key {
		case 1:
			x.Path = d.id()
		case 2:
			x.Branch = d.id()
		case 3:
			x.Until = d.until(from)
		case 4:
			x.Waits = decodeList(d, len(d.data), (*decoder).wait)
		default:
			return false
		}
		return true
	})
	return x
}
