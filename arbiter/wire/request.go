package wire

import (
	"fmt"
	"slices"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/gitlog"
)

// Claim asks for the paths of one write (arbiter.Claim). It is answered by Answer or Fault.
type Claim struct {
	Repository gitlog.RepositoryID
	Head       gitlog.RosterHead // that the tokens go by
	arbiter.Claim
	// Detail is that of every want which has none of its own: one sealed text for the whole write.
	Detail []byte
	Grants [][]byte // grants for wants, after a gap or in a relay's grace; in any order
}

func (*Claim) kind() uint64 { return kindClaim }
func (c *Claim) encode(m *mapEncoder) {
	m.key(1).bytes(c.Repository[:])
	m.key(2).rosterHead(c.Head)
	m.key(3).who(&c.Who)
	encodeWants(m, 4, 5, c.Wants)
	m.flag(6, c.Note)
	m.flag(7, c.Late)
	m.bytes(8, c.Detail)
	if len(c.Grants) > 0 {
		e := m.key(9)
		e.array(len(c.Grants))
		for _, g := range c.Grants {
			e.bytes(g)
		}
	}
}

func decodeClaim(d *decoder) Message {
	c := &Claim{}
	var table []arbiter.Token
	d.fields(keys(1, 2, 3, 4, 5), func(key uint64) bool {
		switch key {
		case 1:
			d.fixed(c.Repository[:])
		case 2:
			c.Head = d.rosterHead()
		case 3:
			c.Who = d.who()
		case 4:
			table = d.tokens(MaxMessage / 16)
		case 5:
			c.Wants = d.wants(table)
		case 6:
			c.Note = d.flag()
		case 7:
			c.Late = d.flag()
		case 8:
			c.Detail = d.someBytes(MaxDetail)
		case 9:
			c.Grants = decodeList(d, MaxBatch, func(d *decoder) []byte { return d.someBytes(maxGrant) })
		default:
			return false
		}
		return true
	})
	if d.err == nil && len(c.Wants) == 0 {
		d.fail(fmt.Errorf("%w: no path", errValue))
	}
	return c
}

// encodeWants writes the table of tokens, each once, and the wants, which index it.
func encodeWants(m *mapEncoder, tableKey, wantsKey uint64, wants []arbiter.Want) {
	index := map[arbiter.Token]int{}
	var table []byte
	at := func(t arbiter.Token) uint64 {
		i, ok := index[t]
		if !ok {
			i = len(index)
			index[t] = i
			table = append(table, t[:]...)
		}
		return uint64(i)
	}
	list := &encoder{}
	list.array(len(wants))
	for i := range wants {
		list.want(&wants[i], at)
	}
	m.key(tableKey).bytes(table)
	e := m.key(wantsKey)
	e.b = append(e.b, list.b...)
}

func (e *encoder) want(w *arbiter.Want, at func(arbiter.Token) uint64) {
	e.mapOf(func(m *mapEncoder) {
		m.id(1, w.ID)
		encodeIndexed(m.key(2), &w.Path, at)
		if w.Class == arbiter.Tree {
			m.key(3).uint(uint64(w.Class))
		}
		m.flag(4, w.Hub)
		m.flag(5, w.Removed)
		m.bytes(6, w.Detail)
		if w.Path.Was != nil {
			encodeIndexed(m.key(7), w.Path.Was, at)
		}
	})
}

// encodeIndexed writes a path as indexes: its own, then its ancestors'.
func encodeIndexed(e *encoder, p *arbiter.Path, at func(arbiter.Token) uint64) {
	e.array(1 + len(p.Ancestors))
	e.uint(at(p.Own))
	for _, a := range p.Ancestors {
		e.uint(at(a))
	}
}

func (d *decoder) wants(table []arbiter.Token) []arbiter.Want {
	return decodeList(d, MaxBatch, func(d *decoder) arbiter.Want { return d.want1(table) })
}

func (d *decoder) want1(table []arbiter.Token) (w arbiter.Want) {
	w.Class = arbiter.File
	d.fields(keys(2), func(key uint64) bool {
		switch key {
		case 1:
			w.ID = d.id()
		case 2:
			was := w.Path.Was
			w.Path = d.indexed(table)
			w.Path.Was = was
		case 3:
			if w.Class = arbiter.Class(d.some()); d.err == nil && w.Class != arbiter.Tree {
				d.fail(errValue)
			}
		case 4:
			w.Hub = d.flag()
		case 5:
			w.Removed = d.flag()
		case 6:
			w.Detail = d.someBytes(MaxDetail)
		case 7:
			was := d.indexed(table)
			w.Path.Was = &was
		default:
			return false
		}
		return true
	})
	return w
}

func (d *decoder) indexed(table []arbiter.Token) (p arbiter.Path) {
	n := d.array(1 + maxAncestors)
	if d.err == nil && n == 0 {
		d.fail(errType)
	}
	if n > 1 {
		p.Ancestors = make([]arbiter.Token, 0, n-1)
	}
	for i := 0; i < n && d.err == nil; i++ {
		at := d.uint()
		if d.err == nil && (at >= uint64(len(table)) || table[at] == arbiter.Token{}) {
			d.fail(fmt.Errorf("%w: no such token in the table", errValue))
		}
		switch {
		case d.err != nil:
		case i == 0:
			p.Own = table[at]
		default:
			p.Ancestors = append(p.Ancestors, table[at])
		}
	}
	return p
}

// Release ends claims of the session itself (arbiter.Release). It is answered by Answer or Fault.
type Release struct {
	Repository gitlog.RepositoryID
	arbiter.Release
}

func (*Release) kind() uint64 { return kindRelease }
func (r *Release) encode(m *mapEncoder) {
	m.key(1).bytes(r.Repository[:])
	m.key(2).who(&r.Who)
	m.key(3).claims(r.Claims)
	m.key(4).uint(uint64(r.Reason))
}

func decodeRelease(d *decoder) Message {
	r := &Release{}
	d.fields(keys(1, 2, 3, 4), func(key uint64) bool {
		switch key {
		case 1:
			d.fixed(r.Repository[:])
		case 2:
			r.Who = d.who()
		case 3:
			r.Claims = d.claims()
		case 4:
			r.Reason = d.reason()
		default:
			return false
		}
		return true
	})
	return r
}

func (e *encoder) claims(ids []arbiter.ClaimID) {
	e.head(majorBytes, uint64(16*len(ids)))
	for i := range ids {
		e.b = append(e.b, ids[i][:]...)
	}
}

func (d *decoder) claims() []arbiter.ClaimID {
	var ids []arbiter.ClaimID
	for _, t := range d.tokens(MaxMessage / 16) {
		ids = append(ids, arbiter.ClaimID(t))
	}
	return ids
}

func (d *decoder) reason() arbiter.Reason {
	r := arbiter.Reason(d.some())
	if d.err == nil && r > arbiter.CallEnded {
		d.fail(errValue)
	}
	return r
}

// Append says what sessions did and said, in order. It is answered by Answer or Fault.
type Append struct {
	Repository gitlog.RepositoryID
	Head       gitlog.RosterHead // that the tokens go by
	Acts       []arbiter.Request // Renew, Write, Stop, Idle, Leave, Clean, End, Move, Take or Declare
}

// Numbers of acts.
const (
	actRenew = 1 + iota
	actWrite
	actStop
	actIdle
	actLeave
	actClean
	actEnd
	actMove
	actTake
	actDeclare
)

// act is any of an Append's requests, flat.
type act struct {
	number uint64
	arbiter.Who
	wants   []arbiter.Want
	claims  []arbiter.ClaimID
	reason  arbiter.Reason
	kind    gitlog.EntryKind
	late    bool
	detail  []byte
	crosses arbiter.Token
}

func flatten(r arbiter.Request) act {
	switch r := r.(type) {
	case arbiter.Renew:
		return act{number: actRenew, Who: r.Who, claims: r.Claims}
	case arbiter.Write:
		return act{number: actWrite, Who: r.Who, wants: r.Wants, late: r.Late, crosses: r.Crosses}
	case arbiter.Stop:
		return act{number: actStop, Who: r.Who, claims: r.Keep}
	case arbiter.Idle:
		return act{number: actIdle, Who: r.Who}
	case arbiter.Leave:
		return act{number: actLeave, Who: r.Who, wants: r.Wants, late: r.Late}
	case arbiter.Clean:
		return act{number: actClean, Who: r.Who, claims: r.Claims}
	case arbiter.End:
		return act{number: actEnd, Who: r.Who, reason: r.Reason, late: r.Late}
	case arbiter.Move:
		return act{number: actMove, Who: r.Who}
	case arbiter.Take:
		return act{number: actTake, Who: r.Who, wants: r.Wants}
	case arbiter.Declare:
		return act{number: actDeclare, Who: r.Who, kind: r.Kind, late: r.Late, detail: r.Detail}
	}
	panic(fmt.Sprintf("wire: %T is not appended", r))
}

// WithWho returns one of an Append's requests with another Who, which change makes of its own.
func WithWho(r arbiter.Request, change func(*arbiter.Who)) arbiter.Request {
	a := flatten(r)
	change(&a.Who)
	return a.request()
}

// request is what flatten made flat; nil where the number is of a newer version.
func (a *act) request() arbiter.Request {
	switch a.number {
	case actRenew:
		return arbiter.Renew{Who: a.Who, Claims: a.claims}
	case actWrite:
		return arbiter.Write{Who: a.Who, Wants: a.wants, Late: a.late, Crosses: a.crosses}
	case actStop:
		return arbiter.Stop{Who: a.Who, Keep: a.claims}
	case actIdle:
		return arbiter.Idle{Who: a.Who}
	case actLeave:
		return arbiter.Leave{Who: a.Who, Wants: a.wants, Late: a.late}
	case actClean:
		return arbiter.Clean{Who: a.Who, Claims: a.claims}
	case actEnd:
		return arbiter.End{Who: a.Who, Reason: a.reason, Late: a.late}
	case actMove:
		return arbiter.Move{Who: a.Who}
	case actTake:
		return arbiter.Take{Who: a.Who, Wants: a.wants}
	case actDeclare:
		return arbiter.Declare{Event: arbiter.Event{Who: a.Who, Kind: a.kind, Late: a.late, Detail: a.detail}}
	}
	return nil
}

func (*Append) kind() uint64 { return kindAppend }
func (a *Append) encode(m *mapEncoder) {
	m.key(1).bytes(a.Repository[:])
	m.key(2).rosterHead(a.Head)
	e := m.key(3)
	e.array(len(a.Acts))
	for _, r := range a.Acts {
		flat := flatten(r)
		e.mapOf(func(m *mapEncoder) {
			m.key(1).uint(flat.number)
			m.key(2).who(&flat.Who)
			if len(flat.wants) > 0 {
				encodeWants(m, 3, 4, flat.wants)
			}
			if len(flat.claims) > 0 {
				m.key(5).claims(flat.claims)
			}
			m.uint(6, uint64(flat.reason))
			m.uint(7, uint64(flat.kind))
			m.flag(8, flat.late)
			m.bytes(9, flat.detail)
			m.id(10, flat.crosses)
		})
	}
}

func decodeAppend(d *decoder) Message {
	a := &Append{}
	d.fields(keys(1, 2, 3), func(key uint64) bool {
		switch key {
		case 1:
			d.fixed(a.Repository[:])
		case 2:
			a.Head = d.rosterHead()
		case 3:
			a.Acts = slices.DeleteFunc(decodeList(d, maxActs, (*decoder).act), func(r arbiter.Request) bool { return r == nil })
		default:
			return false
		}
		return true
	})
	return a
}

// act reads one act; nil for one of a newer version, which is passed over.
func (d *decoder) act() arbiter.Request {
	a := act{}
	var table []arbiter.Token
	d.fields(keys(1, 2), func(key uint64) bool {
		switch key {
		case 1:
			a.number = d.some()
		case 2:
			a.Who = d.who()
		case 3:
			table = d.tokens(MaxMessage / 16)
		case 4:
			a.wants = d.wants(table)
		case 5:
			a.claims = d.claims()
		case 6:
			a.reason = d.reason()
		case 7:
			a.kind = gitlog.EntryKind(d.some())
		case 8:
			a.late = d.flag()
		case 9:
			a.detail = d.someBytes(MaxDetail)
		case 10:
			a.crosses = d.id()
		default:
			return false
		}
		return true
	})
	if a.number == actEnd && a.reason != arbiter.EndOfLife && a.reason != arbiter.ProcessGone {
		d.fail(errValue)
	}
	return a.request()
}

// Outcome is what became of a claim.
type Outcome uint64

const (
	Granted Outcome = 1 // every path
	Denied  Outcome = 2 // none; Answer.Blocks says by whom
	Refused Outcome = 3 // none, and the writer goes on: it asked with Note. Answer.Blocks says by whom
	Lost    Outcome = 4 // asked Late: those in Answer.Lost were granted to others meanwhile
)

// Answer says that a request was carried out, and is on the relay's disk.
type Answer struct {
	Now      gitlog.Millis
	Position arbiter.Order // of the last event that it caused; zero: none
	Outcome  Outcome       // of a Claim; else zero
	Blocks   []Block
	Lost     []arbiter.ClaimID
}

// Block is what stands in the way of one path.
type Block struct {
	Claim  arbiter.ClaimID // that was asked for
	Holder arbiter.Who     // Session is zero where the path is reserved for the head of a queue
	Left   gitlog.Millis   // of the holder's lease; zero: not known
	Class  arbiter.Class   // of the holder's claim
	Place  uint64          // of whoever asks, in the hub's queue, from 1; zero: there is none
	Detail []byte          // the holder's, sealed; left out where the answer would grow too large
}

func (*Answer) kind() uint64 { return kindAnswer }
func (a *Answer) encode(m *mapEncoder) {
	m.key(1).uint(uint64(a.Now))
	if a.Position != (arbiter.Order{}) {
		m.key(2).order(a.Position)
	}
	m.uint(3, uint64(a.Outcome))
	if len(a.Blocks) > 0 {
		e := m.key(4)
		e.array(len(a.Blocks))
		for i := range a.Blocks {
			b := &a.Blocks[i]
			e.mapOf(func(m *mapEncoder) {
				m.id(1, b.Claim)
				m.key(2).who(&b.Holder)
				m.uint(3, uint64(b.Left))
				m.uint(4, uint64(b.Class))
				m.uint(5, b.Place)
				m.bytes(6, b.Detail)
			})
		}
	}
	if len(a.Lost) > 0 {
		m.key(5).claims(a.Lost)
	}
}

func decodeAnswer(d *decoder) Message {
	a := &Answer{}
	d.fields(keys(1), func(key uint64) bool {
		switch key {
		case 1:
			a.Now = d.millis()
		case 2:
			a.Position = d.order()
		case 3:
			a.Outcome = Outcome(d.some())
		case 4:
			a.Blocks = decodeList(d, MaxBatch, (*decoder).block)
		case 5:
			a.Lost = d.claims()
		default:
			return false
		}
		return true
	})
	return a
}

func (d *decoder) block() (b Block) {
	d.fields(keys(2), func(key uint64) bool {
		switch key {
		case 1:
			b.Claim = d.id()
		case 2:
			b.Holder = d.who()
		case 3:
			b.Left = d.someMillis()
		case 4:
			b.Class = arbiter.Class(d.some())
		case 5:
			b.Place = d.some()
		case 6:
			b.Detail = d.someBytes(MaxDetail)
		default:
			return false
		}
		return true
	})
	return b
}
