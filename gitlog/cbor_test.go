package gitlog

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func FuzzDecodeStrict(f *testing.F) {
	for _, s := range []string{"a10102", "a2010203f5", "8118ff", "6161", "a0", "f6", "1817", "9f01ff", "a201020103", "c101", "61ff", "fb3ff8000000000000", "3bffffffffffffffff", "a14101f5"} {
		f.Add(unhex(f, s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := decodeStrict(data)
		if err != nil {
			return
		}
		if again := encodeCBOR(v); !bytes.Equal(again, data) {
			t.Errorf("%x decodes to %v, which encodes to %x", data, v, again)
		}
	})
}

// Getters must not take a value of the wrong type, an empty optional one, or one out of range for a right one.
func TestFields(t *testing.T) {
	for _, c := range []struct {
		name string
		v    any
		read func(f *fields)
		want error
	}{
		{"missing", nil, func(f *fields) { f.uint(1, 0) }, errMissing},
		{"number as text", "1", func(f *fields) { f.uint(1, 0) }, errType},
		{"number too small", uint64(0), func(f *fields) { f.uint(1, 1) }, errValue},
		{"optional zero", uint64(0), func(f *fields) { f.uintOr0(1) }, errValue},
		{"year 10000", uint64(maxMillis + 1), func(f *fields) { f.millis(1) }, errValue},
		{"short bytes", []byte{1}, func(f *fields) { f.fixed(1, make([]byte, 2)) }, errType},
		{"optional empty bytes", []byte{}, func(f *fields) { f.bytesIf(1) }, errType},
		{"bytes of another length", []byte{1}, func(f *fields) { f.bytesIf(1, 20, 32) }, errType},
		{"optional empty text", "", func(f *fields) { f.textIf(1) }, errType},
		{"false", false, func(f *fields) { f.flag(1) }, errType},
		{"optional empty list", []any{}, func(f *fields) { f.listIf(1) }, errType},
		{"short tuple", []any{uint64(1)}, func(f *fields) { f.tuple(1, f.list(1), 2) }, errType},
		{"not a session", "claude", func(f *fields) { f.session(1) }, errValue},
		{"not a path", []byte("/a"), func(f *fields) { f.path(1) }, errValue},
		{"empty text that is required", "", func(f *fields) { f.text(1) }, nil},
		{"empty list that is required", []any{}, func(f *fields) { f.list(1) }, nil},
		{"nobody asked", uint64(1), func(f *fields) {}, ErrNewer},
	} {
		m := map[any]any{uint64(64): "ignored"}
		if c.v != nil {
			m[uint64(1)] = c.v
		}
		f, err := openFields(m, "test")
		if err != nil {
			t.Fatal(err)
		}
		c.read(f)
		if err := f.finish(); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

// A newer version may have changed the rest as well: its mark wins over what looks wrong.
func TestNewerWins(t *testing.T) {
	f, _ := openFields(map[any]any{uint64(63): true}, "test")
	f.uint(1, 0)
	if err := f.finish(); !errors.Is(err, ErrNewer) {
		t.Errorf("%v, want ErrNewer", err)
	}
	f, _ = openFields(map[any]any{int64(-1): true}, "test")
	if err := f.finish(); !errors.Is(err, ErrNewer) {
		t.Errorf("negative key: %v, want ErrNewer", err)
	}
}
