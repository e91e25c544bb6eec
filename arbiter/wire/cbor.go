package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"unicode/utf8"
)

// Messages are CBOR in the Core Deterministic Encoding of RFC 8949 §4.2: maps with integer keys, arrays, bytes, text,
// integers and true. This codec reads and writes that and nothing else, in one pass and without reflection, for a relay
// decodes thousands a second; and unlike a decoder into structs it refuses what is not deterministic even in the parts
// that it skips because a newer version wrote them. The tests hold it to fxamacker/cbor.

// Ways in which a message can be wrong. Vectors name them.
var (
	errSyntax           = errors.New("is not well-formed CBOR of a kind that messages use")
	errNotDeterministic = errors.New("is not in deterministic encoding")
	errDepth            = errors.New("is nested too deeply")
	errUTF8             = errors.New("holds text that is not UTF-8")
	errTrailing         = errors.New("is followed by other bytes")
	errTooLarge         = errors.New("is over its size limit")
	errMissing          = errors.New("lacks a key")
	errType             = errors.New("has a value of the wrong type or length")
	errValue            = errors.New("has a value outside its range")
)

const (
	majorUint  = 0
	majorInt   = 1
	majorBytes = 2
	majorText  = 3
	majorArray = 4
	majorMap   = 5
	majorTag   = 6
	majorOther = 7

	maxDepth = 8
	cborTrue = majorOther<<5 | 21
)

// encoder appends to a message.
type encoder struct{ b []byte }

func (e *encoder) head(major byte, n uint64) {
	switch {
	case n < 24:
		e.b = append(e.b, major<<5|byte(n))
	case n < 1<<8:
		e.b = append(e.b, major<<5|24, byte(n))
	case n < 1<<16:
		e.b = binary.BigEndian.AppendUint16(append(e.b, major<<5|25), uint16(n))
	case n < 1<<32:
		e.b = binary.BigEndian.AppendUint32(append(e.b, major<<5|26), uint32(n))
	default:
		e.b = binary.BigEndian.AppendUint64(append(e.b, major<<5|27), n)
	}
}

func (e *encoder) uint(n uint64) { e.head(majorUint, n) }

func (e *encoder) int(n int64) {
	if n < 0 {
		e.head(majorInt, uint64(-(n + 1)))
	} else {
		e.head(majorUint, uint64(n))
	}
}

func (e *encoder) bytes(b []byte) { e.head(majorBytes, uint64(len(b))); e.b = append(e.b, b...) }
func (e *encoder) text(s string)  { e.head(majorText, uint64(len(s))); e.b = append(e.b, s...) }
func (e *encoder) array(n int)    { e.head(majorArray, uint64(n)) }
func (e *encoder) true()          { e.b = append(e.b, cborTrue) }

// mapOf writes a map with fewer than 24 keys, all below 24: one byte counts them and one names each. write adds them in
// rising order, by key.
func (e *encoder) mapOf(write func(m *mapEncoder)) {
	at := len(e.b)
	e.b = append(e.b, majorMap<<5)
	m := mapEncoder{e: e}
	write(&m)
	e.b[at] |= m.n
}

type mapEncoder struct {
	e *encoder
	n byte
}

// key begins a value, which the caller writes.
func (m *mapEncoder) key(k uint64) *encoder {
	m.n++
	m.e.uint(k)
	return m.e
}

// The following write a key unless its value is absent: zero, empty, false.

func (m *mapEncoder) uint(k, n uint64) {
	if n != 0 {
		m.key(k).uint(n)
	}
}

func (m *mapEncoder) bytes(k uint64, b []byte) {
	if len(b) > 0 {
		m.key(k).bytes(b)
	}
}

func (m *mapEncoder) text(k uint64, s string) {
	if s != "" {
		m.key(k).text(s)
	}
}

func (m *mapEncoder) flag(k uint64, v bool) {
	if v {
		m.key(k).true()
	}
}

// id writes 16 bytes unless they are all zero.
func (m *mapEncoder) id(k uint64, id [16]byte) {
	if id != [16]byte{} {
		m.key(k).bytes(id[:])
	}
}

// decoder walks a message. The first thing that is wrong stays; from then on everything read is zero.
type decoder struct {
	data  []byte
	at    int
	depth int
	err   error
}

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
		d.at = len(d.data)
	}
}

// head reads the beginning of an item.
func (d *decoder) head() (major byte, n uint64) {
	if d.err != nil || d.at >= len(d.data) {
		d.fail(errSyntax)
		return 0, 0
	}
	first := d.data[d.at]
	d.at++
	major, n = first>>5, uint64(first&31)
	if n < 24 {
		return major, n
	}
	if n > 27 { // 31 is an indefinite length, the others are reserved
		d.fail(errSyntax)
		return 0, 0
	}
	size := 1 << (n - 24)
	if len(d.data)-d.at < size {
		d.fail(errSyntax)
		return 0, 0
	}
	n = 0
	for _, b := range d.data[d.at : d.at+size] {
		n = n<<8 | uint64(b)
	}
	d.at += size
	if size == 1 && n < 24 || size > 1 && bits.Len64(n) <= size*4 {
		d.fail(errNotDeterministic)
	}
	return major, n
}

// want reads the beginning of an item of this kind.
func (d *decoder) want(major byte) uint64 {
	got, n := d.head()
	if d.err == nil && got != major {
		d.fail(errType)
	}
	if d.err != nil {
		return 0
	}
	return n
}

func (d *decoder) uint() uint64 { return d.want(majorUint) }

func (d *decoder) int() int64 {
	major, n := d.head()
	switch {
	case d.err != nil:
		return 0
	case major > majorInt:
		d.fail(errType)
	case n > 1<<63-1:
		d.fail(errValue)
	case major == majorInt:
		return -int64(n) - 1
	default:
		return int64(n)
	}
	return 0
}

// take returns the next n bytes, part of the message.
func (d *decoder) take(n uint64) []byte {
	if d.err != nil {
		return nil
	}
	if n > uint64(len(d.data)-d.at) {
		d.fail(errSyntax)
		return nil
	}
	b := d.data[d.at : d.at+int(n) : d.at+int(n)]
	d.at += int(n)
	return b
}

// bytes reads a byte string of at most limit bytes. It is a part of the message, not a copy.
func (d *decoder) bytes(limit int) []byte {
	n := d.want(majorBytes)
	if n > uint64(limit) {
		d.fail(errTooLarge)
	}
	return d.take(n)
}

// someBytes reads a byte string that is not empty.
func (d *decoder) someBytes(limit int) []byte {
	b := d.bytes(limit)
	if d.err == nil && len(b) == 0 {
		d.fail(errType)
	}
	return b
}

// fixed fills dst with a byte string of exactly that length.
func (d *decoder) fixed(dst []byte) {
	if n := d.want(majorBytes); d.err == nil && n != uint64(len(dst)) {
		d.fail(errType)
		return
	}
	copy(dst, d.take(uint64(len(dst))))
}

// id reads 16 bytes, not all of them zero.
func (d *decoder) id() (id [16]byte) {
	d.fixed(id[:])
	if d.err == nil && id == [16]byte{} {
		d.fail(errValue)
	}
	return id
}

func (d *decoder) text(limit int) string {
	n := d.want(majorText)
	if n > uint64(limit) {
		d.fail(errTooLarge)
	}
	b := d.take(n)
	if !utf8.Valid(b) {
		d.fail(errUTF8)
		return ""
	}
	return string(b)
}

// someText reads a text that is not empty.
func (d *decoder) someText(limit int) string {
	s := d.text(limit)
	if d.err == nil && s == "" {
		d.fail(errType)
	}
	return s
}

// flag reads true: a key that is not true is absent.
func (d *decoder) flag() bool {
	major, n := d.head()
	if d.err == nil && (major != majorOther || n != 21) {
		d.fail(errType)
	}
	return d.err == nil
}

// some reads a number of at least 1.
func (d *decoder) some() uint64 {
	n := d.uint()
	if d.err == nil && n == 0 {
		d.fail(errValue)
	}
	return n
}

// array reads the beginning of an array and returns its length, at most limit.
func (d *decoder) array(limit int) int {
	n := d.want(majorArray)
	if n > uint64(limit) {
		d.fail(errTooLarge)
		return 0
	}
	if n > uint64(len(d.data)-d.at) { // an element has a byte at least
		d.fail(errSyntax)
		return 0
	}
	return int(n)
}

// decodeList reads an array of at most so many.
func decodeList[T any](d *decoder, most int, one func(d *decoder) T) (list []T) {
	n := d.array(most)
	for ; n > 0 && d.err == nil; n-- {
		list = append(list, one(d))
	}
	return list
}

// tuple reads the beginning of an array of n elements.
func (d *decoder) tuple(n int) {
	if got := d.want(majorArray); d.err == nil && got != uint64(n) {
		d.fail(errType)
	}
}

// fields reads a map with integer keys. read takes the value of a key that it knows and says so; others are skipped.
// Each key of need must have been there.
func (d *decoder) fields(need uint64, read func(key uint64) bool) {
	n := d.want(majorMap)
	if d.depth++; d.depth > maxDepth {
		d.fail(errDepth)
	}
	seen := uint64(0)
	for i, last := uint64(0), uint64(0); i < n && d.err == nil; i++ {
		key := d.uint()
		if d.err == nil && i > 0 && key <= last {
			d.fail(errNotDeterministic)
		}
		if d.err != nil {
			break
		}
		if last = key; read(key) {
			seen |= 1 << key
		} else {
			d.skip()
		}
	}
	d.depth--
	if d.err == nil && need&^seen != 0 {
		d.fail(fmt.Errorf("%w (%d)", errMissing, bits.TrailingZeros64(need&^seen)))
	}
}

// skip passes over one item of any kind that messages may hold, now or later.
func (d *decoder) skip() {
	major, n := d.head()
	if d.err != nil {
		return
	}
	switch major {
	case majorUint, majorInt:
	case majorBytes:
		d.take(n)
	case majorText:
		if b := d.take(n); !utf8.Valid(b) {
			d.fail(errUTF8)
		}
	case majorArray, majorMap:
		if d.depth++; d.depth > maxDepth {
			d.fail(errDepth)
			return
		}
		if n > uint64(len(d.data)-d.at) {
			d.fail(errSyntax)
			return
		}
		var last []byte
		for i := uint64(0); i < n && d.err == nil; i++ {
			start := d.at
			d.skip()
			if major == majorArray || d.err != nil {
				continue
			}
			key := d.data[start:d.at]
			if i > 0 && string(key) <= string(last) {
				d.fail(errNotDeterministic)
			}
			last = key
			d.skip()
		}
		d.depth--
	case majorOther:
		if n != 20 && n != 21 { // false, true
			d.fail(errSyntax)
		}
	default:
		d.fail(errSyntax)
	}
}

// end says what was wrong with the message, or that it goes on after its end.
func (d *decoder) end(what string) error {
	if d.err == nil && d.at != len(d.data) {
		d.err = errTrailing
	}
	if d.err != nil {
		return fmt.Errorf("%s %w", what, d.err)
	}
	return nil
}

func keys(ks ...uint64) (mask uint64) {
	for _, k := range ks {
		mask |= 1 << k
	}
	return mask
}
