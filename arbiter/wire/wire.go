// Package wire is what a daemon and a relay say to each other, and how it travels.
//
// Messages are deterministic CBOR with integer keys; docs/formats/relay.cddl is their grammar. Keys that a reader does not
// know are ignored, and so old and new versions meet: a new key may be added wherever an old reader does right without
// it, a new kind of message only where the other side's version (Hello, Welcome) is known to take it.
//
// A [Conn] carries messages over streams, by QUIC or by TLS on TCP with the same behaviour. Both sides are known by
// their Ed25519 keys. The client's first stream carries Hello, and nothing counts as connected before Welcome has come
// back. Each request has a stream of its own: one message there, one back. A repository's events come on the stream on
// which it was opened.
//
// Nothing here holds a path, a name or a text: tokens and sealed bytes only. A relay has no key for either.
package wire

import (
	"errors"
	"fmt"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/gitlog"
)

const (
	// Version is that of the messages. It rises when an old reader could no longer do right by ignoring what is new.
	Version = 1
	// Protocol is the ALPN name.
	Protocol = "knoot/1"

	// MaxMessage bounds one message, in bytes.
	MaxMessage = 64 << 10
	// MaxBatch is the number of paths in one request. Over it the daemon's own arbiter decides.
	MaxBatch = 500
	// MaxDetail bounds the sealed payload of one path, one act or one event: a segment of 32 KiB and its wrapping.
	MaxDetail = 48 << 10

	// MaxToken bounds an operator's token, in bytes.
	MaxToken = 256

	maxAncestors = 256 // directories above a path
	maxSubagent  = 64
	maxSoftware  = 64
	maxFault     = 512
	maxGrant     = 1 << 10
	maxActs      = 500
	maxEvents    = 4096
)

// Message is anything that is sent as one frame.
type Message interface {
	kind() uint64
	encode(m *mapEncoder)
}

// Numbers of messages.
const (
	kindHello        = 1
	kindWelcome      = 2
	kindOpen         = 3
	kindRosterWanted = 4
	kindRosterPart   = 5
	kindOpened       = 6
	kindEvents       = 7
	kindSnapshotPart = 8
	kindGrant        = 9
	kindFarewell     = 10
	kindClaim        = 11
	kindRelease      = 12
	kindAppend       = 13
	kindAnswer       = 14
	kindRoster       = 15
	kindPing         = 16
	kindPong         = 17
	kindFault        = 18
)

// decoders make a message of its body.
var decoders = map[uint64]func(d *decoder) Message{
	kindHello:        decodeHello,
	kindWelcome:      decodeWelcome,
	kindOpen:         decodeOpen,
	kindRosterWanted: decodeRosterWanted,
	kindRosterPart:   decodeRosterPart,
	kindOpened:       decodeOpened,
	kindEvents:       decodeEvents,
	kindSnapshotPart: decodeSnapshotPart,
	kindGrant:        decodeGrant,
	kindFarewell:     decodeFarewell,
	kindClaim:        decodeClaim,
	kindRelease:      decodeRelease,
	kindAppend:       decodeAppend,
	kindAnswer:       decodeAnswer,
	kindRoster:       decodeRoster,
	kindPing:         func(d *decoder) Message { d.fields(0, nothing); return &Ping{} },
	kindPong:         decodePong,
	kindFault:        decodeFault,
}

func nothing(uint64) bool { return false }

// ErrUnknown is returned for a message of a kind that this version does not know. On a stream of events it is skipped;
// a request is answered with a fault.
var ErrUnknown = errors.New("is of a kind that this version does not know")

// Encode makes the bytes of a message. It panics for one over MaxMessage: whoever makes messages bounds them.
func Encode(m Message) []byte {
	e := &encoder{b: make([]byte, 0, 256)}
	e.array(2)
	e.uint(m.kind())
	e.mapOf(m.encode)
	if len(e.b) > MaxMessage {
		panic(fmt.Sprintf("wire: a message of kind %d has %d bytes", m.kind(), len(e.b)))
	}
	return e.b
}

// Decode reads a message. What it returns may share memory with data.
func Decode(data []byte) (Message, error) {
	if len(data) > MaxMessage {
		return nil, fmt.Errorf("a message of %d bytes %w", len(data), errTooLarge)
	}
	d := &decoder{data: data}
	d.tuple(2)
	kind := d.uint()
	decode := decoders[kind]
	if decode == nil {
		d.skip()
		if err := d.end("a message"); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("message %d %w", kind, ErrUnknown)
	}
	m := decode(d)
	if err := d.end(fmt.Sprintf("a message of kind %d", kind)); err != nil {
		return nil, err
	}
	return m, nil
}

// Hello is the client's first message.
type Hello struct {
	Version  uint64
	Software string // for the log: "knoot 0.1.0"
}

func (*Hello) kind() uint64 { return kindHello }
func (h *Hello) encode(m *mapEncoder) {
	m.key(1).uint(h.Version)
	m.text(2, h.Software)
}

func decodeHello(d *decoder) Message {
	h := &Hello{}
	d.fields(keys(1), func(key uint64) bool {
		switch key {
		case 1:
			h.Version = d.some()
		case 2:
			h.Software = d.someText(maxSoftware)
		default:
			return false
		}
		return true
	})
	return h
}

// Welcome answers Hello.
type Welcome struct {
	Version  uint64
	Software string
	Key      [32]byte      // the relay's Ed25519 key, also where its certificate is another's
	Now      gitlog.Millis // by the relay's clock
}

func (*Welcome) kind() uint64 { return kindWelcome }
func (w *Welcome) encode(m *mapEncoder) {
	m.key(1).uint(w.Version)
	m.text(2, w.Software)
	m.key(3).bytes(w.Key[:])
	m.key(4).uint(uint64(w.Now))
}

func decodeWelcome(d *decoder) Message {
	w := &Welcome{}
	d.fields(keys(1, 3, 4), func(key uint64) bool {
		switch key {
		case 1:
			w.Version = d.some()
		case 2:
			w.Software = d.someText(maxSoftware)
		case 3:
			d.fixed(w.Key[:])
		case 4:
			w.Now = d.millis()
		default:
			return false
		}
		return true
	})
	return w
}

// Open opens a repository, or opens it again after an absence.
type Open struct {
	Team       gitlog.TeamID
	Repository gitlog.RepositoryID
	Head       gitlog.RosterHead // of the roster that the client knows
	Position   arbiter.Order     // of the last event that the client has; zero: none
	Token      string            // the operator's, if the client has one
}

func (*Open) kind() uint64 { return kindOpen }
func (o *Open) encode(m *mapEncoder) {
	m.key(1).bytes(o.Team[:])
	m.key(2).bytes(o.Repository[:])
	m.key(3).rosterHead(o.Head)
	if o.Position != (arbiter.Order{}) {
		m.key(4).order(o.Position)
	}
	m.text(5, o.Token)
}

func decodeOpen(d *decoder) Message {
	o := &Open{}
	d.fields(keys(1, 2, 3), func(key uint64) bool {
		switch key {
		case 1:
			d.fixed(o.Team[:])
		case 2:
			d.fixed(o.Repository[:])
		case 3:
			o.Head = d.rosterHead()
		case 4:
			o.Position = d.order()
		case 5:
			o.Token = d.someText(MaxToken)
		default:
			return false
		}
		return true
	})
	return o
}

// Opened says that the repository is open. Events after Position follow; if Snapshot is not zero, first the snapshot
// that Position belongs to, in parts, of so many bytes.
type Opened struct {
	Position arbiter.Order
	Head     gitlog.RosterHead // of the relay's chain
	Now      gitlog.Millis
	Snapshot uint64
	Grace    gitlog.Millis // how long claims are granted only with a grant; zero: no grace
}

func (*Opened) kind() uint64 { return kindOpened }
func (o *Opened) encode(m *mapEncoder) {
	m.key(1).order(o.Position)
	m.key(2).rosterHead(o.Head)
	m.key(3).uint(uint64(o.Now))
	m.uint(4, o.Snapshot)
	m.uint(5, uint64(o.Grace))
}

func decodeOpened(d *decoder) Message {
	o := &Opened{}
	d.fields(keys(1, 2, 3), func(key uint64) bool {
		switch key {
		case 1:
			o.Position = d.order()
		case 2:
			o.Head = d.rosterHead()
		case 3:
			o.Now = d.millis()
		case 4:
			o.Snapshot = d.some()
		case 5:
			o.Grace = d.someMillis()
		default:
			return false
		}
		return true
	})
	return o
}

// SnapshotPart is a part of a snapshot (EncodeSnapshot), in order.
type SnapshotPart struct{ Bytes []byte }

func (*SnapshotPart) kind() uint64           { return kindSnapshotPart }
func (p *SnapshotPart) encode(m *mapEncoder) { m.key(1).bytes(p.Bytes) }

func decodeSnapshotPart(d *decoder) Message {
	p := &SnapshotPart{}
	d.fields(keys(1), func(key uint64) bool {
		if key != 1 {
			return false
		}
		p.Bytes = d.someBytes(MaxMessage)
		return true
	})
	return p
}

// Farewell is the last message on a stream of events: the relay ends.
type Farewell struct {
	After gitlog.Millis // come back after so long
}

func (*Farewell) kind() uint64           { return kindFarewell }
func (f *Farewell) encode(m *mapEncoder) { m.key(1).uint(uint64(f.After)) }

func decodeFarewell(d *decoder) Message {
	f := &Farewell{}
	d.fields(keys(1), func(key uint64) bool {
		if key != 1 {
			return false
		}
		f.After = d.millis()
		return true
	})
	return f
}

// GrantIssued carries a relay's signed word for a claim of this device (gitlog.ReadGrant).
type GrantIssued struct {
	Claim arbiter.ClaimID
	Grant []byte
}

func (*GrantIssued) kind() uint64 { return kindGrant }
func (g *GrantIssued) encode(m *mapEncoder) {
	m.key(1).bytes(g.Claim[:])
	m.key(2).bytes(g.Grant)
}

func decodeGrant(d *decoder) Message {
	g := &GrantIssued{}
	d.fields(keys(1, 2), func(key uint64) bool {
		switch key {
		case 1:
			g.Claim = d.id()
		case 2:
			g.Grant = d.someBytes(maxGrant)
		default:
			return false
		}
		return true
	})
	return g
}

// Ping asks for a sign of life.
type Ping struct{}

func (*Ping) kind() uint64       { return kindPing }
func (*Ping) encode(*mapEncoder) {}

// Pong answers Ping.
type Pong struct{ Now gitlog.Millis }

func (*Pong) kind() uint64           { return kindPong }
func (p *Pong) encode(m *mapEncoder) { m.key(1).uint(uint64(p.Now)) }

func decodePong(d *decoder) Message {
	p := &Pong{}
	d.fields(keys(1), func(key uint64) bool {
		if key != 1 {
			return false
		}
		p.Now = d.millis()
		return true
	})
	return p
}

// maxMillis is the last millisecond of the year 9999.
const maxMillis = 253_402_300_799_999

func (d *decoder) millis() gitlog.Millis {
	n := d.uint()
	if n > maxMillis {
		d.fail(errValue)
		return 0
	}
	return gitlog.Millis(n)
}

func (d *decoder) someMillis() gitlog.Millis {
	n := d.millis()
	if d.err == nil && n == 0 {
		d.fail(errValue)
	}
	return n
}

func (e *encoder) order(o arbiter.Order) {
	e.array(2)
	e.uint(o.Term)
	e.uint(o.Seq)
}

func (d *decoder) order() (o arbiter.Order) {
	d.tuple(2)
	o.Term = d.uint()
	o.Seq = d.uint()
	return o
}

func (e *encoder) rosterHead(h gitlog.RosterHead) {
	e.array(2)
	e.uint(h.Seq)
	e.bytes(h.Hash[:])
}

func (d *decoder) rosterHead() (h gitlog.RosterHead) {
	d.tuple(2)
	h.Seq = d.uint()
	d.fixed(h.Hash[:])
	return h
}
