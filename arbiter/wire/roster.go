package wire

import (
	"errors"

	"knoot.dev/knoot/gitlog"
)

// RosterWanted asks for the roster's entries from a seq on, without key files. The relay says it where it lacks them.
type RosterWanted struct{ From uint64 }

func (*RosterWanted) kind() uint64           { return kindRosterWanted }
func (r *RosterWanted) encode(m *mapEncoder) { m.key(1).uint(r.From) }

func decodeRosterWanted(d *decoder) Message {
	r := &RosterWanted{}
	d.fields(keys(1), func(key uint64) bool {
		if key != 1 {
			return false
		}
		r.From = d.uint()
		return true
	})
	return r
}

// Roster tells the relay of a newer roster, or asks for what the client lacks. The relay goes on as after Open, with
// RosterWanted or RosterParts, and answers at last with Opened without a position.
type Roster struct {
	Repository gitlog.RepositoryID // an open one; the roster is that of its team
	Head       gitlog.RosterHead   // that the client knows
}

func (*Roster) kind() uint64 { return kindRoster }
func (r *Roster) encode(m *mapEncoder) {
	m.key(1).bytes(r.Repository[:])
	m.key(2).rosterHead(r.Head)
}

func decodeRoster(d *decoder) Message {
	r := &Roster{}
	d.fields(keys(1, 2), func(key uint64) bool {
		switch key {
		case 1:
			d.fixed(r.Repository[:])
		case 2:
			r.Head = d.rosterHead()
		default:
			return false
		}
		return true
	})
	return r
}

// RosterPart carries entries of a roster, or pieces of one: an entry may be larger than a message.
type RosterPart struct {
	Pieces []RosterPiece
	Last   bool // nothing follows
}

// RosterPiece is Bytes of the entry Seq, which has Size bytes, from Offset on. Pieces come in order.
type RosterPiece struct {
	Seq, Size, Offset uint64
	Bytes             []byte
}

// MaxRosterEntry bounds one entry of a roster, in bytes.
const MaxRosterEntry = 256 << 10

// roomForPieces is what a part may hold, pieces' own 24 bytes each included.
const roomForPieces = MaxMessage - 64

func (*RosterPart) kind() uint64 { return kindRosterPart }
func (r *RosterPart) encode(m *mapEncoder) {
	e := m.key(1)
	e.array(len(r.Pieces))
	for _, p := range r.Pieces {
		e.array(4)
		e.uint(p.Seq)
		e.uint(p.Size)
		e.uint(p.Offset)
		e.bytes(p.Bytes)
	}
	m.flag(2, r.Last)
}

func decodeRosterPart(d *decoder) Message {
	r := &RosterPart{}
	d.fields(keys(1), func(key uint64) bool {
		switch key {
		case 1:
			r.Pieces = decodeList(d, MaxMessage, (*decoder).rosterPiece)
		case 2:
			r.Last = d.flag()
		default:
			return false
		}
		return true
	})
	return r
}

func (d *decoder) rosterPiece() (p RosterPiece) {
	d.tuple(4)
	p.Seq, p.Size, p.Offset = d.uint(), d.uint(), d.uint()
	p.Bytes = d.someBytes(MaxMessage)
	if d.err == nil && (p.Size > MaxRosterEntry || p.Offset >= p.Size || uint64(len(p.Bytes)) > p.Size-p.Offset) {
		d.fail(errValue)
	}
	return p
}

// SendRoster sends the entries first, first+1, … as parts, the last of them marked. read returns an entry; there are n.
func SendRoster(send func(Message) error, first, n uint64, read func(seq uint64) ([]byte, error)) error {
	part, room := &RosterPart{}, roomForPieces
	for seq := first; seq < first+n; seq++ {
		entry, err := read(seq)
		if err != nil {
			return err
		}
		for offset := 0; offset < len(entry); {
			if room < 64 {
				if err := send(part); err != nil {
					return err
				}
				part, room = &RosterPart{}, roomForPieces
			}
			size := min(len(entry)-offset, room-24)
			part.Pieces = append(part.Pieces, RosterPiece{Seq: seq, Size: uint64(len(entry)), Offset: uint64(offset), Bytes: entry[offset : offset+size]})
			offset, room = offset+size, room-24-size
		}
	}
	part.Last = true
	return send(part)
}

var errPieces = errors.New("the pieces of a roster are not in order")

// RosterReader joins pieces to entries.
type RosterReader struct {
	next  uint64 // seq
	entry []byte // of next, so far
}

// NewRosterReader expects the entry first, and those after it.
func NewRosterReader(first uint64) *RosterReader { return &RosterReader{next: first} }

// Take returns the entries that a part completes, in order.
func (r *RosterReader) Take(part *RosterPart) (entries [][]byte, err error) {
	for _, p := range part.Pieces {
		if p.Seq != r.next || p.Offset != uint64(len(r.entry)) {
			return entries, errPieces
		}
		if r.entry = append(r.entry, p.Bytes...); uint64(len(r.entry)) == p.Size {
			entries = append(entries, r.entry)
			r.entry = nil
			r.next++
		}
	}
	if part.Last && len(r.entry) > 0 {
		return entries, errPieces
	}
	return entries, nil
}
