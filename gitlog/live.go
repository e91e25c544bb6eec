package gitlog

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/crypto/chacha20poly1305"
)

// LiveHeader says what a live payload is and where it belongs. A relay can read it, and so it names nothing but ids and
// tokens.
type LiveHeader struct {
	Device     DeviceID // who signed it
	Team       TeamID
	Repository RepositoryID
	RoomEpoch
	Session Token
	Kind    EntryKind // of the event that carries it
	Counter uint64    // rises with every payload of the session, from 1
	Time    Millis
}

const (
	liveVersion = 1
	maxLive     = 48 << 10 // a segment of 32 KiB and what is around it

	labelLive = "knoot"
)

var errLiveSeal = errors.New("does not open with this room's live key")

// encode is the complete protected header.
func (h *LiveHeader) encode() []byte {
	return encodeCBOR(map[any]any{labelAlgorithm: algorithmEdDSA, labelKeyID: h.Device[:], labelLive: intMap{
		1: uint64(liveVersion), 2: h.Team[:], 3: h.Repository[:], 4: h.Room[:], 5: h.Number, 6: h.Session[:], 7: uint64(h.Kind),
		8: h.Counter, 9: uint64(h.Time),
	}})
}

// SealLive seals text for the members of the header's room and signs it. It sets the header's Device.
func SealLive(device *Device, key *EpochKey, h LiveHeader, text []byte) ([]byte, error) {
	live, err := key.LiveKey(h.Team)
	if err != nil {
		return nil, err
	}
	aead, err := chacha20poly1305.NewX(live[:])
	if err != nil {
		return nil, err
	}
	h.Device, h.RoomEpoch = device.ID, key.RoomEpoch
	protected := h.encode()
	nonce := make([]byte, chacha20poly1305.NonceSizeX, chacha20poly1305.NonceSizeX+len(text)+chacha20poly1305.Overhead)
	drawRandom(nonce)
	data, err := sign(device.Sign, liveContext, protected, aead.Seal(nonce, nonce, text, protected))
	if err == nil && len(data) > maxLive {
		err = fmt.Errorf("a live payload of %d bytes: %w of %d", len(data), errTooLarge, maxLive)
	}
	return data, err
}

// Live is a live payload taken apart, not yet verified nor opened.
type Live struct {
	LiveHeader
	signed *signed
}

// ParseLive reads a payload's frame. One of a newer version wraps ErrNewer.
func ParseLive(data []byte) (*Live, error) {
	if len(data) > maxLive {
		return nil, fmt.Errorf("a live payload of %d bytes: %w of %d", len(data), errTooLarge, maxLive)
	}
	s, err := parseSigned(data)
	if err != nil {
		return nil, err
	}
	l := &Live{signed: s}
	v, err := decodeStrict(s.protected)
	if err != nil {
		return nil, fmt.Errorf("protected header: %w", err)
	}
	m, ok := v.(map[any]any)
	if !ok {
		return nil, fmt.Errorf("protected header: %w: want a map", errType)
	}
	inner, there := m[labelLive]
	if !there {
		return nil, fmt.Errorf("protected header, key %q: %w", labelLive, errMissing)
	}
	delete(m, labelLive)
	outer := &fields{what: "protected header", m: m}
	if l.Device, err = readSigner(outer); err != nil {
		return nil, err
	}
	if err := outer.finish(); err != nil {
		return nil, err
	}
	f, err := openFields(inner, "live header")
	if err != nil {
		return nil, err
	}
	if version := f.uint(1, 1); version > liveVersion {
		f.newer(1, version)
	}
	f.fixed(2, l.Team[:])
	f.fixed(3, l.Repository[:])
	f.fixed(4, l.Room[:])
	l.Number = f.uint(5, 1)
	f.fixed(6, l.Session[:])
	l.Kind = EntryKind(f.uint(7, 1))
	l.Counter = f.uint(8, 1)
	l.Time = f.millis(9)
	if len(s.payload) < chacha20poly1305.NonceSizeX+chacha20poly1305.Overhead && f.odd == nil {
		f.odd = fmt.Errorf("a sealed text of %d bytes: %w", len(s.payload), errType)
	}
	return l, f.finish()
}

// Open checks the signature by the key of the device that the header names, which the caller took from the roster, and
// opens the text.
func (l *Live) Open(signer ed25519.PublicKey, key *EpochKey) ([]byte, error) {
	if DeviceIDOf(signer) != l.Device {
		return nil, fmt.Errorf("the payload %w", errKeyID)
	}
	if err := l.signed.verify(signer, liveContext); err != nil {
		return nil, err
	}
	if key.RoomEpoch != l.RoomEpoch {
		return nil, fmt.Errorf("it is sealed for room %s, epoch %d: %w", l.Room, l.Number, errEpoch)
	}
	live, err := key.LiveKey(l.Team)
	if err != nil {
		return nil, err
	}
	aead, err := chacha20poly1305.NewX(live[:])
	if err != nil {
		return nil, err
	}
	nonce, sealed := l.signed.payload[:chacha20poly1305.NonceSizeX], l.signed.payload[chacha20poly1305.NonceSizeX:]
	text, err := aead.Open(nil, nonce, sealed, l.signed.protected)
	if err != nil {
		return nil, errLiveSeal
	}
	return text, nil
}

// LiveCounters holds the counters of each session that were taken, so that nothing is taken twice: the first is the floor, at and
// below which nothing is, then come the last liveWindow at most, ascending. Requests of one session overtake each other on their way
// to the relay, and what comes late is taken all the same.
type LiveCounters map[Token][]uint64

// liveWindow is how many requests of a device may be under way at once.
const liveWindow = 64

// ErrLiveRepeated is returned for a payload whose counter was taken, or is far below the last one of its session.
var ErrLiveRepeated = errors.New("repeats a live payload, or comes long after later ones")

// Take notes a payload's counter, or returns ErrLiveRepeated. The payload has been opened: a counter that nobody signed
// must not shut out those that follow.
func (c LiveCounters) Take(h LiveHeader) error {
	taken := c[h.Session]
	if len(taken) == 0 {
		taken = []uint64{0}
	}
	at, found := slices.BinarySearch(taken, h.Counter)
	if found || at == 0 {
		return fmt.Errorf("counter %d of a session that is at %d %w", h.Counter, c.Last(h.Session), ErrLiveRepeated)
	}
	taken = slices.Insert(taken, at, h.Counter)
	if len(taken) > 1+liveWindow {
		taken = slices.Delete(taken, 0, 1)
	}
	c[h.Session] = taken
	return nil
}

// Last is the highest counter of a session that was taken; 0: none was.
func (c LiveCounters) Last(session Token) uint64 {
	taken := c[session]
	if len(taken) == 0 {
		return 0
	}
	return taken[len(taken)-1]
}

// Resume has a session begin after a counter that was the last one earlier.
func (c LiveCounters) Resume(session Token, last uint64) { c[session] = []uint64{last} }
