package gitlog

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"math/rand/v2"
	"testing"

	"golang.org/x/crypto/chacha20poly1305"
)

// forgeLive signs a live payload whose header is as given, for tests of what must be refused. outer changes the protected
// header around it.
func forgeLive(t testing.TB, device *Device, header intMap, outer func(map[any]any)) []byte {
	t.Helper()
	protected := map[any]any{labelAlgorithm: algorithmEdDSA, labelKeyID: device.ID[:], labelLive: header}
	if outer != nil {
		outer(protected)
	}
	data, err := sign(device.Sign, liveContext, encodeCBOR(protected), make([]byte, 64))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func forgeGrant(t testing.TB, key ed25519.PrivateKey, context signingContext, payload intMap) []byte {
	t.Helper()
	kid := DeviceIDOf(key.Public().(ed25519.PublicKey))
	data, err := sign(key, context, encodeCBOR(map[any]any{labelAlgorithm: algorithmEdDSA, labelKeyID: kid[:]}), encodeCBOR(payload))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func liveHeader(x *fixture) LiveHeader {
	return LiveHeader{Team: x.team, Repository: x.repository, Session: Token{5}, Kind: Message, Counter: 1, Time: 1_700_000_000_000}
}

func TestLivePayloads(t *testing.T) {
	x := newFixture(t)
	general := RoomEpoch{x.roster.General, 1}
	key := x.ring[general]
	text := []byte("src/auth.js is mine for a while")
	sealed, err := SealLive(x.device, key, liveHeader(x), text)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(sealed, text[:8]) {
		t.Error("the text is in the payload as it stands")
	}
	l, err := ParseLive(sealed)
	if err != nil {
		t.Fatal(err)
	}
	want := liveHeader(x)
	want.Device, want.RoomEpoch = x.device.ID, general
	if l.LiveHeader != want {
		t.Errorf("the header is %+v, want %+v", l.LiveHeader, want)
	}
	if got, err := l.Open(publicKey(x.device), key); err != nil || !bytes.Equal(got, text) {
		t.Errorf("opens to %q (%v)", got, err)
	}
	if again, err := SealLive(x.device, key, liveHeader(x), text); err != nil || bytes.Equal(again, sealed) {
		t.Error("one text sealed twice is twice the same")
	}

	other := newDevice(t)
	another := newEpochKey(general, other.Age)
	for what, c := range map[string]struct {
		signer ed25519.PublicKey
		key    *EpochKey
		want   error
	}{
		"another device's key":  {publicKey(other), key, errKeyID},
		"another epoch's":       {publicKey(x.device), newEpochKey(RoomEpoch{x.roster.General, 2}, key.read.Load()), errEpoch},
		"a key of another room": {publicKey(x.device), newEpochKey(RoomEpoch{RoomID{9}, 1}, key.read.Load()), errEpoch},
		"another key":           {publicKey(x.device), another, errLiveSeal},
	} {
		if _, err := l.Open(c.signer, c.key); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
	}
	// Whatever byte is changed, it does not open.
	for i := range sealed {
		bad := bytes.Clone(sealed)
		bad[i] ^= 1
		l, err := ParseLive(bad)
		if err == nil {
			_, err = l.Open(publicKey(x.device), key)
		}
		if err == nil {
			t.Fatalf("byte %d is changed, and it opens", i)
		}
	}
	// Whoever signs another's ciphertext again, for another place, is caught by the header inside the seal.
	moved := liveHeader(x)
	moved.Repository, moved.RoomEpoch, moved.Device = RepositoryID{7}, general, other.ID
	resigned, err := sign(other.Sign, liveContext, moved.encode(), l.signed.payload)
	if err != nil {
		t.Fatal(err)
	}
	if l, err = ParseLive(resigned); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Open(publicKey(other), key); !errors.Is(err, errLiveSeal) {
		t.Errorf("another's ciphertext in another place: %v", err)
	}
	if _, err := SealLive(x.device, key, liveHeader(x), make([]byte, maxLive)); !errors.Is(err, errTooLarge) {
		t.Errorf("a text that is too large: %v", err)
	}
	if _, err := ParseLive(make([]byte, maxLive+1)); !errors.Is(err, errTooLarge) {
		t.Errorf("a payload that is too large: %v", err)
	}
}

func TestLivePayloadsThatAreRefused(t *testing.T) {
	x := newFixture(t)
	full := intMap{1: uint64(1), 2: x.team[:], 3: x.repository[:], 4: x.roster.General[:], 5: uint64(1), 6: make([]byte, 16), 7: uint64(Message), 8: uint64(1), 9: uint64(1)}
	short, err := sign(x.device.Sign, liveContext, encodeCBOR(map[any]any{1: algorithmEdDSA, 4: x.device.ID[:], labelLive: full}),
		make([]byte, chacha20poly1305.NonceSizeX+chacha20poly1305.Overhead-1))
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		data []byte
		want error
	}{
		"no header":            {forgeLive(t, x.device, full, func(m map[any]any) { delete(m, labelLive) }), errMissing},
		"a newer version":      {forgeLive(t, x.device, with(full, 1, uint64(2)), nil), ErrNewer},
		"a newer key":          {forgeLive(t, x.device, with(full, 10, uint64(1)), nil), ErrNewer},
		"a newer key outside":  {forgeLive(t, x.device, full, func(m map[any]any) { m[5] = uint64(1) }), ErrNewer},
		"a counter of nothing": {forgeLive(t, x.device, with(full, 8, uint64(0)), nil), errValue},
		"no ciphertext":        {short, errType},
		"no COSE":              {[]byte{0x80}, errTag},
	} {
		if _, err := ParseLive(c.data); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
	}
	if _, err := ParseLive(forgeLive(t, x.device, with(full, 64, uint64(1)), nil)); err != nil {
		t.Errorf("a key that may be ignored: %v", err)
	}
}

func TestLiveCounters(t *testing.T) {
	c := LiveCounters{}
	one, two, three := Token{1}, Token{2}, Token{3}
	c.Resume(three, 10)
	for i, step := range []struct {
		session Token
		counter uint64
		taken   bool
	}{{one, 0, false}, {one, 1, true}, {one, 1, false}, {one, 5, true}, {one, 4, true}, {one, 4, false}, {one, 5, false}, {two, 4, true}, {one, 6, true},
		{three, 9, false}, {three, 10, false}, {three, 12, true}, {three, 11, true}, {three, 11, false}} {
		err := c.Take(LiveHeader{Session: step.session, Counter: step.counter})
		if (err == nil) != step.taken || err != nil && !errors.Is(err, ErrLiveRepeated) {
			t.Errorf("step %d: %v", i, err)
		}
	}
	// Any order of as many as are under way at once, each once; and nothing from before them.
	late, last := LiveCounters{}, uint64(0)
	for n := uint64(1_000); n < 2_000; n += liveWindow {
		for _, i := range rand.Perm(liveWindow) {
			if err := late.Take(LiveHeader{Session: one, Counter: n + uint64(i)}); err != nil {
				t.Fatal(err)
			}
			last = max(last, n+uint64(i))
		}
	}
	if got := late.Last(one); got != last {
		t.Errorf("the last is %d, want %d", got, last)
	}
	for n := uint64(0); n <= last; n++ {
		if late.Take(LiveHeader{Session: one, Counter: n}) == nil {
			t.Fatalf("%d is taken again", n)
		}
	}
	if size := len(late[one]); size > 1+liveWindow {
		t.Errorf("%d counters are kept", size)
	}
}

func TestGrants(t *testing.T) {
	relay, other := newDevice(t), newDevice(t)
	g := &Grant{
		Team: TeamID{1}, Repository: RepositoryID{2}, Claim: [16]byte{3}, Device: DeviceID{4}, Session: Token{5}, Path: Token{6}, Branch: Token{7},
		Worktree: Token{8}, Class: 3, Term: 9, Seq: 10, Until: 11,
	}
	signed, err := g.Sign(relay.Sign)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ReadGrant(signed, publicKey(relay)); err != nil || *got != *g {
		t.Errorf("read %+v (%v)", got, err)
	}
	payload := intMap{1: uint64(1), 2: g.Team[:], 3: g.Repository[:], 4: g.Claim[:], 5: g.Device[:], 6: g.Session[:], 7: g.Path[:], 8: g.Branch[:],
		9: g.Worktree[:], 10: g.Class, 11: g.Term, 12: g.Seq, 13: uint64(g.Until)}
	for what, c := range map[string]struct {
		data  []byte
		relay *Device
		want  error
	}{
		"another relay's":           {signed, other, errKeyID},
		"signed for something else": {forgeGrant(t, relay.Sign, rosterContext, payload), relay, errSignature},
		"a newer version":           {forgeGrant(t, relay.Sign, grantContext, with(payload, 1, uint64(2))), relay, ErrNewer},
		"a newer class":             {forgeGrant(t, relay.Sign, grantContext, with(payload, 10, uint64(4))), relay, ErrNewer},
		"no claim":                  {forgeGrant(t, relay.Sign, grantContext, without(payload, 4)), relay, errMissing},
		"too large":                 {make([]byte, maxGrant+1), relay, errTooLarge},
	} {
		if _, err := ReadGrant(c.data, publicKey(c.relay)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
	}
	for i := range signed {
		bad := bytes.Clone(signed)
		bad[i] ^= 1
		if _, err := ReadGrant(bad, publicKey(relay)); err == nil {
			t.Fatalf("byte %d is changed, and it is taken", i)
		}
	}
}

func FuzzParseLive(f *testing.F) {
	device := newDevice(f)
	f.Add(forgeLive(f, device, intMap{1: uint64(1), 2: make([]byte, 32), 3: make([]byte, 16), 4: make([]byte, 8), 5: uint64(1), 6: make([]byte, 16), 7: uint64(50), 8: uint64(1), 9: uint64(1)}, nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		if l, err := ParseLive(data); err == nil {
			if _, err := l.Open(publicKey(device), newEpochKey(l.RoomEpoch, device.Age)); err == nil {
				t.Error("made-up bytes open")
			}
		}
	})
}

func FuzzReadGrant(f *testing.F) {
	relay := newDevice(f)
	signed, err := (&Grant{Class: 1, Term: 1, Seq: 1, Until: 1}).Sign(relay.Sign)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(signed)
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := ReadGrant(data, publicKey(relay)); err == nil && !bytes.Equal(data, signed) {
			t.Error("made-up bytes are a grant")
		}
	})
}
