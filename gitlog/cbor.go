package gitlog

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/fxamacker/cbor/v2"
)

// Everything stored is CBOR in the Core Deterministic Encoding of RFC 8949 §4.2, so that one value has one
// spelling and a digest of the bytes is a digest of the value.

const (
	maxDepth = 8      // nested arrays and maps
	maxItems = 16_384 // elements of one array, pairs of one map
)

// Ways in which stored bytes can be wrong. Every decoder of this package wraps one of these, so that a test vector
// can name the failure it stands for; the text around it says where.
var (
	// ErrNewer marks what a newer version of knoot wrote: an unknown critical key (below 64), kind, version or
	// operation. What carries it is kept and chained as far as its frame is understood, and never guessed at.
	ErrNewer = errors.New("needs a newer knoot: update it")

	errSyntax           = errors.New("is not well-formed CBOR")
	errNotDeterministic = errors.New("is not in deterministic encoding")
	errDuplicateKey     = errors.New("repeats a key")
	errIndefinite       = errors.New("uses an indefinite length")
	errNull             = errors.New("holds a null")
	errTag              = errors.New("holds a tag that does not belong there")
	errDepth            = errors.New("is nested too deeply")
	errUTF8             = errors.New("holds text that is not UTF-8")
	errTrailing         = errors.New("is followed by other bytes")
	errTooLarge         = errors.New("is over its size limit")
	errMissing          = errors.New("lacks a key")
	errType             = errors.New("has a value of the wrong type or length")
	errValue            = errors.New("has a value outside its range")
	errUnsorted         = errors.New("is not sorted")
)

var (
	cborEncoding = must(cbor.EncOptions{
		Sort:          cbor.SortCoreDeterministic,
		ShortestFloat: cbor.ShortestFloat16,
		NaNConvert:    cbor.NaNConvert7e00,
		InfConvert:    cbor.InfConvertFloat16,
		IndefLength:   cbor.IndefLengthForbidden,
	}.EncMode())
	cborDecoding = must(cbor.DecOptions{
		DupMapKey:        cbor.DupMapKeyEnforcedAPF,
		IndefLength:      cbor.IndefLengthForbidden,
		TagsMd:           cbor.TagsForbidden, // the 18 of COSE_Sign1 is taken off before (cose.go)
		MaxNestedLevels:  maxDepth,
		MaxArrayElements: maxItems,
		MaxMapPairs:      maxItems,
	}.DecMode())
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err) // options are constants of this file
	}
	return v
}

// encodeCBOR encodes a value made by this package of maps, slices, bytes, text, integers and booleans.
func encodeCBOR(v any) []byte {
	b, err := cborEncoding.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("gitlog: encoding %T: %v", v, err))
	}
	return b
}

// decodeStrict decodes exactly one item: unsigned integers to uint64, negative ones to int64 (or big.Int), bytes to
// []byte, text to string, arrays to []any, maps to map[any]any. The decoder alone would take non-shortest integers
// and unsorted maps, so the value is encoded again and compared.
func decodeStrict(data []byte) (any, error) {
	var v any
	if err := cborDecoding.Unmarshal(data, &v); err != nil {
		return nil, cborError(err)
	}
	if err := checkValue(v); err != nil {
		return nil, err
	}
	again, err := cborEncoding.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("%w (%v)", errSyntax, err)
	}
	if !bytes.Equal(again, data) {
		return nil, errNotDeterministic
	}
	return v, nil
}

// decodePrefix decodes the item that data begins with, as strictly as decodeStrict, and returns what follows.
func decodePrefix(data []byte) (v any, item, rest []byte, err error) {
	var raw cbor.RawMessage
	rest, err = cborDecoding.UnmarshalFirst(data, &raw)
	if err != nil {
		return nil, nil, nil, cborError(err)
	}
	item = data[:len(data)-len(rest)]
	v, err = decodeStrict(item)
	return v, item, rest, err
}

// checkValue refuses what the encoding could carry and the formats have no use for.
func checkValue(v any) error {
	switch v := v.(type) {
	case nil: // null, or undefined
		return errNull
	case []any:
		for _, e := range v {
			if err := checkValue(e); err != nil {
				return err
			}
		}
	case map[any]any:
		for k, e := range v {
			switch k.(type) {
			case uint64, int64, string, cbor.ByteString:
			default:
				return fmt.Errorf("%w: a map's key is no integer, text or bytes", errType)
			}
			if err := checkValue(e); err != nil {
				return err
			}
		}
	case cbor.SimpleValue:
		return fmt.Errorf("%w: simple value %d", errType, v)
	}
	return nil
}

func cborError(err error) error {
	kind := errSyntax
	var (
		dup      *cbor.DupMapKeyError
		indef    *cbor.IndefiniteLengthError
		tag      *cbor.TagsMdError
		depth    *cbor.MaxNestedLevelError
		elements *cbor.MaxArrayElementsError
		pairs    *cbor.MaxMapPairsError
		semantic *cbor.SemanticError
		trailing *cbor.ExtraneousDataError
		keyType  *cbor.InvalidMapKeyTypeError
	)
	switch {
	case errors.As(err, &dup):
		kind = errDuplicateKey
	case errors.As(err, &indef):
		kind = errIndefinite
	case errors.As(err, &tag):
		kind = errTag
	case errors.As(err, &depth):
		kind = errDepth
	case errors.As(err, &elements), errors.As(err, &pairs):
		kind = errTooLarge
	case errors.As(err, &semantic):
		kind = errUTF8 // the decoder's only semantic complaint about untagged data
	case errors.As(err, &trailing):
		kind = errTrailing
	case errors.As(err, &keyType):
		kind = errType
	}
	return fmt.Errorf("%w (%v)", kind, err)
}

// intMap is a map to be encoded, by integer key.
type intMap map[uint64]any

// set adds a value unless it is absent: an empty text, byte string or list, false, zero.
func (m intMap) set(key uint64, v any) {
	switch v := v.(type) {
	case string:
		if v == "" {
			return
		}
	case []byte:
		if len(v) == 0 {
			return
		}
	case []any:
		if len(v) == 0 {
			return
		}
	case bool:
		if !v {
			return
		}
	case uint64:
		if v == 0 {
			return
		}
	}
	m[key] = v
}

// fields reads a decoded map with integer keys. Getters note the first thing that is wrong and then return zero
// values; finish reports it. Optional values are absent or meaningful: an empty text or list, false or zero that is
// present is wrong, so that one value keeps one spelling.
type fields struct {
	what string
	m    map[any]any
	seen uint64 // keys below 64 that were asked for
	odd  error  // first wrong thing
	up   error  // first thing from a newer version
}

func openFields(v any, what string) (*fields, error) {
	m, ok := v.(map[any]any)
	if !ok {
		return nil, fmt.Errorf("%s: %w: want a map", what, errType)
	}
	return &fields{what: what, m: m}, nil
}

func (f *fields) fail(key uint64, err error) {
	if f.odd == nil {
		f.odd = fmt.Errorf("%s, key %d: %w", f.what, key, err)
	}
}

// newer notes a value that only a newer version can mean.
func (f *fields) newer(key, value uint64) {
	if f.up == nil {
		f.up = fmt.Errorf("%s, key %d: value %d: %w", f.what, key, value, ErrNewer)
	}
}

// finish returns ErrNewer for a key below 64 that nobody asked for, else the first wrong thing. The newer version
// wins, since it may have changed the rest as well.
func (f *fields) finish() error {
	for k := range f.m {
		switch k := k.(type) {
		case uint64:
			if k < 64 && f.seen&(1<<k) == 0 && f.up == nil {
				f.up = fmt.Errorf("%s: key %d: %w", f.what, k, ErrNewer)
			}
		case int64:
			if f.up == nil {
				f.up = fmt.Errorf("%s: key %d: %w", f.what, k, ErrNewer)
			}
		default:
			if f.odd == nil {
				f.odd = fmt.Errorf("%s: %w: keys are integers", f.what, errType)
			}
		}
	}
	if f.up != nil {
		return f.up
	}
	return f.odd
}

func (f *fields) get(key uint64) (any, bool) {
	f.seen |= 1 << key
	v, ok := f.m[key]
	return v, ok
}

func (f *fields) need(key uint64) (any, bool) {
	v, ok := f.get(key)
	if !ok {
		f.fail(key, errMissing)
	}
	return v, ok
}

// uint reads a required number of at least least.
func (f *fields) uint(key, least uint64) uint64 {
	v, ok := f.need(key)
	if !ok {
		return 0
	}
	return f.asUint(key, v, least)
}

// uintOr0 reads an optional number, from 1.
func (f *fields) uintOr0(key uint64) uint64 {
	v, ok := f.get(key)
	if !ok {
		return 0
	}
	return f.asUint(key, v, 1)
}

func (f *fields) asUint(key uint64, v any, least uint64) uint64 {
	n, ok := v.(uint64)
	switch {
	case !ok:
		f.fail(key, errType)
	case n < least:
		f.fail(key, errValue)
	}
	return n
}

// maxMillis is the last millisecond of the year 9999, the last that RFC 3339 can spell.
const maxMillis = 253_402_300_799_999

func (f *fields) millis(key uint64) Millis    { return f.asMillis(key, f.uint(key, 0)) }
func (f *fields) millisOr0(key uint64) Millis { return f.asMillis(key, f.uintOr0(key)) }

func (f *fields) asMillis(key, n uint64) Millis {
	if n > maxMillis {
		f.fail(key, errValue)
		return 0
	}
	return Millis(n)
}

// fixed fills dst with a required byte string of exactly that length.
func (f *fields) fixed(key uint64, dst []byte) {
	if v, ok := f.need(key); ok {
		f.asFixed(key, v, dst)
	}
}

// fixedIf fills dst if the key is there, and says so.
func (f *fields) fixedIf(key uint64, dst []byte) bool {
	v, ok := f.get(key)
	return ok && f.asFixed(key, v, dst)
}

func (f *fields) asFixed(key uint64, v any, dst []byte) bool {
	b, ok := v.([]byte)
	if !ok || len(b) != len(dst) {
		f.fail(key, errType)
		return false
	}
	copy(dst, b)
	return true
}

// bytesIf reads an optional byte string; sizes, when given, are the lengths it may have.
func (f *fields) bytesIf(key uint64, sizes ...int) []byte {
	v, ok := f.get(key)
	if !ok {
		return nil
	}
	b, ok := v.([]byte)
	if !ok || len(b) == 0 || !oneOf(len(b), sizes) {
		f.fail(key, errType)
		return nil
	}
	return b
}

func oneOf(n int, sizes []int) bool {
	for _, s := range sizes {
		if n == s {
			return true
		}
	}
	return len(sizes) == 0
}

// bytes reads a required byte string, which may be empty.
func (f *fields) bytes(key uint64) []byte {
	v, ok := f.need(key)
	if !ok {
		return nil
	}
	b, ok := v.([]byte)
	if !ok {
		f.fail(key, errType)
	}
	return b
}

// text reads a required text, which may be empty.
func (f *fields) text(key uint64) string {
	v, ok := f.need(key)
	if !ok {
		return ""
	}
	s, ok := v.(string)
	if !ok {
		f.fail(key, errType)
	}
	return s
}

// textIf reads an optional text.
func (f *fields) textIf(key uint64) string {
	v, ok := f.get(key)
	if !ok {
		return ""
	}
	s, ok := v.(string)
	if !ok || s == "" {
		f.fail(key, errType)
	}
	return s
}

// flag reads a key that is true or absent.
func (f *fields) flag(key uint64) bool {
	v, ok := f.get(key)
	if !ok {
		return false
	}
	if v != true {
		f.fail(key, errType)
	}
	return v == true
}

// list reads a required array, which may be empty.
func (f *fields) list(key uint64) []any {
	v, ok := f.need(key)
	if !ok {
		return nil
	}
	l, ok := v.([]any)
	if !ok {
		f.fail(key, errType)
	}
	return l
}

// listIf reads an optional array; a present one is not empty.
func (f *fields) listIf(key uint64) []any {
	v, ok := f.get(key)
	if !ok {
		return nil
	}
	l, ok := v.([]any)
	if !ok || len(l) == 0 {
		f.fail(key, errType)
	}
	return l
}

// tuple checks an element of an array that is itself an array of n values.
func (f *fields) tuple(key uint64, v any, n int) []any {
	l, ok := v.([]any)
	if !ok || len(l) != n {
		f.fail(key, errType)
		return nil
	}
	return l
}

// sorted checks that encoded elements rise strictly, bytewise.
func (f *fields) sorted(key uint64, encoded [][]byte) {
	for i := 1; i < len(encoded); i++ {
		if bytes.Compare(encoded[i-1], encoded[i]) >= 0 {
			f.fail(key, errUnsorted)
			return
		}
	}
}

// within checks a nested decoder's error in: a newer part makes the whole newer.
func (f *fields) within(err error) {
	switch {
	case err == nil:
	case errors.Is(err, ErrNewer):
		if f.up == nil {
			f.up = fmt.Errorf("%s: %w", f.what, err)
		}
	case f.odd == nil:
		f.odd = fmt.Errorf("%s: %w", f.what, err)
	}
}
