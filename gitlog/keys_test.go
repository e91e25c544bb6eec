package gitlog

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
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
	key := &EpochKey{RoomEpoch{room, 258}, identity}

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
