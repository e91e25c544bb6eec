package gitlog

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"

	"filippo.io/age"
)

func hmacSHA256(key []byte, parts ...[]byte) []byte {
	h := hmac.New(sha256.New, key)
	for _, p := range parts {
		h.Write(p)
	}
	return h.Sum(nil)
}

// The derivations, written out again from RFC 5869 and the format's own words.
func TestKeysByHand(t *testing.T) {
	identity, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}
	team := TeamID(bytes.Repeat([]byte{7}, 32))
	room := RoomID{1, 2, 3, 4, 5, 6, 7, 8}
	key := newEpochKey(RoomEpoch{room, 258}, identity)

	extracted := hmacSHA256(team[:], []byte(identity.String()))
	info := "\x00\x01\x02\x03\x04\x05\x06\x07\x08\x00\x00\x01\x02"
	token, err := key.TokenKey(team)
	if want := hmacSHA256(extracted, []byte("knoot/v1/token"+info), []byte{1}); err != nil || !bytes.Equal(token[:], want) {
		t.Errorf("token key %x (%v), want %x", token, err, want)
	}
	live, err := key.LiveKey(team)
	if want := hmacSHA256(extracted, []byte("knoot/v1/live"+info), []byte{1}); err != nil || !bytes.Equal(live[:], want) {
		t.Errorf("live key %x (%v), want %x", live, err, want)
	}

	repository := RepositoryID(bytes.Repeat([]byte{9}, 16))
	device := DeviceID(bytes.Repeat([]byte{3}, 16))
	input := func(kind byte, value string) []byte { // CBOR: array of 3, the type, 16 bytes, a short byte string
		b := append([]byte{0x83, kind, 0x50}, repository[:]...)
		if n := len(value); n < 24 {
			b = append(b, 0x40|byte(n))
		} else {
			b = append(b, 0x58, byte(n))
		}
		return append(b, value...)
	}
	gitDir := sha256.Sum256([]byte("/src/app/.git"))
	worktree := string(device[:]) + string(gitDir[:16])
	for _, c := range []struct {
		name string
		got  Token
		want []byte
	}{
		{"path", token.Path(repository, "src/Makefile"), input(1, "src/makefile")},
		{"root", token.Path(repository, ""), input(1, "")},
		{"branch", token.Branch(repository, "refs/heads/Main"), input(2, "refs/heads/Main")},
		{"detached", token.Detached(repository, device, "/src/app/.git"), input(2, worktree)},
		{"worktree", token.Worktree(repository, device, "/src/app/.git"), input(3, worktree)},
		{"session", token.Session(repository, device, "claude", "s1"), input(4, string(device[:])+"claude\x00s1")},
	} {
		if want := hmacSHA256(token[:], c.want)[:16]; !bytes.Equal(c.got[:], want) {
			t.Errorf("%s: %x, want %x", c.name, c.got, want)
		}
	}
}

// A recipient has one spelling, so that two devices cannot have one key under two.
func TestARecipientHasOneSpelling(t *testing.T) {
	t.Parallel()
	identity, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}
	text := identity.Recipient().String()
	if r, err := parseRecipient(text); err != nil || r.String() != text {
		t.Fatalf("as age writes it: %v", err)
	}
	const alphabet = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
	spellings := map[string]string{"upper case": strings.ToUpper(text), "upper case behind the prefix": text[:7] + strings.ToUpper(text[7:]),
		"a space": text[:len(text)-1] + " ", "a newline": text + "\n"}
	for i := range text {
		if upper := strings.ToUpper(text[i : i+1]); upper != text[i:i+1] {
			spellings[fmt.Sprint("upper case at ", i)] = text[:i] + upper + text[i+1:]
		}
	}
	// Five bits a letter are more than the bytes have; what is left over could be anything.
	values := make([]byte, 0, len(text))
	for _, c := range text[7 : len(text)-6] {
		values = append(values, byte(strings.IndexRune(alphabet, c)))
	}
	spare := len(values) * 5 % 8
	if spare == 0 {
		t.Fatal("nothing is left over")
	}
	for left := byte(1); left < 1<<spare; left++ {
		other := slices.Clone(values)
		other[len(other)-1] |= left
		spellings[fmt.Sprint("left over ", left)] = "age1pq1" + bech32Letters(alphabet, other) + bech32Letters(alphabet, bech32Checksum("age1pq", other))
	}
	if got := "age1pq1" + bech32Letters(alphabet, values) + bech32Letters(alphabet, bech32Checksum("age1pq", values)); got != text {
		t.Fatal("the test's own checksum is not Bech32's")
	}
	for name, other := range spellings {
		if _, err := parseRecipient(other); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

func bech32Letters(alphabet string, values []byte) string {
	letters := make([]byte, len(values))
	for i, v := range values {
		letters[i] = alphabet[v]
	}
	return string(letters)
}

// bech32Checksum is that of BIP 173.
func bech32Checksum(prefix string, values []byte) []byte {
	var all []byte
	for _, c := range []byte(prefix) {
		all = append(all, c>>5)
	}
	all = append(all, 0)
	for _, c := range []byte(prefix) {
		all = append(all, c&31)
	}
	sum := uint32(1)
	for _, v := range append(append(all, values...), make([]byte, 6)...) {
		top := sum >> 25
		sum = sum&0x1ffffff<<5 ^ uint32(v)
		for i, generator := range []uint32{0x3b6a57b2, 0x26508e6d, 0x1ea119fa, 0x3d4233dd, 0x2a1462b3} {
			if top>>i&1 == 1 {
				sum ^= generator
			}
		}
	}
	sum ^= 1
	checksum := make([]byte, 6)
	for i := range checksum {
		checksum[i] = byte(sum>>(5*(5-i))) & 31
	}
	return checksum
}
