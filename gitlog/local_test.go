package gitlog

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"
)

func TestRecordOpensOnlyWhereItWasSealed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var key [32]byte
		copy(key[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "key"))
		context := rapid.String().Draw(t, "context")
		number := rapid.Uint64().Draw(t, "number")
		plaintext := rapid.SliceOf(rapid.Byte()).Draw(t, "plaintext")
		sealed := SealRecord(&key, context, number, plaintext)

		got, err := OpenRecord(&key, context, number, sealed)
		if err != nil || !bytes.Equal(got, plaintext) {
			t.Fatalf("opened %x, %v; want %x", got, err, plaintext)
		}
		refuse := func(what string, key [32]byte, context string, number uint64, sealed []byte) {
			if _, err := OpenRecord(&key, context, number, sealed); !errors.Is(err, ErrLocal) {
				t.Fatalf("%s: %v, want ErrLocal", what, err)
			}
		}
		other := key
		other[rapid.IntRange(0, 31).Draw(t, "key byte")] ^= 1
		refuse("another key", other, context, number, sealed)
		refuse("another file", key, context+"x", number, sealed)
		refuse("another place", key, context, number+1, sealed)
		refuse("cut", key, context, number, sealed[:rapid.IntRange(0, len(sealed)-1).Draw(t, "cut")])
		flipped := bytes.Clone(sealed)
		flipped[rapid.IntRange(0, len(sealed)-1).Draw(t, "byte")] ^= 1
		refuse("a flipped bit", key, context, number, flipped)
	})
}

func FuzzOpenRecord(f *testing.F) {
	var key [32]byte
	f.Add([]byte(nil))
	f.Add(SealRecord(&key, "index", 1, []byte("text")))
	f.Fuzz(func(t *testing.T, sealed []byte) {
		_, _ = OpenRecord(&key, "index", 2, sealed)
	})
}
