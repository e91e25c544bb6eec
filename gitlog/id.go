package gitlog

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"
)

// The ids of formats.md (Common). Binary in CBOR, lower-case hex in refs, trees and JSON.
type (
	// DeviceID is SHA-256(Ed25519 public key)[:16].
	DeviceID [16]byte
	// WriterID is a device id followed by 8 random bytes: one clone on one device.
	WriterID [24]byte
	// TeamID is the SHA-256 of the roster's genesis entry.
	TeamID [32]byte
	// RepositoryID is 16 random bytes, drawn when a repository enters a team.
	RepositoryID [16]byte
	// MemberID is 16 random bytes.
	MemberID [16]byte
	// RoomID is 8 random bytes.
	RoomID [8]byte
	// AreaID is 8 random bytes.
	AreaID [8]byte
	// EntryID is derived from an entry's content (formats.md, Entry).
	EntryID [16]byte
	// Digest is a SHA-256.
	Digest [32]byte
)

func (id DeviceID) String() string     { return hex.EncodeToString(id[:]) }
func (id WriterID) String() string     { return hex.EncodeToString(id[:]) }
func (id TeamID) String() string       { return hex.EncodeToString(id[:]) }
func (id RepositoryID) String() string { return hex.EncodeToString(id[:]) }
func (id MemberID) String() string     { return hex.EncodeToString(id[:]) }
func (id RoomID) String() string       { return hex.EncodeToString(id[:]) }
func (id AreaID) String() string       { return hex.EncodeToString(id[:]) }
func (id EntryID) String() string      { return hex.EncodeToString(id[:]) }
func (d Digest) String() string        { return hex.EncodeToString(d[:]) }

func (id EntryID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// Device returns the device whose clone the writer is.
func (id WriterID) Device() DeviceID { return DeviceID(id[:16]) }

// DeviceIDOf derives a device's id from its public key.
func DeviceIDOf(key ed25519.PublicKey) DeviceID {
	sum := sha256.Sum256(key)
	return DeviceID(sum[:16])
}

// parseHex decodes text into dst; it wants exactly len(dst) bytes of lower-case hex.
func parseHex(dst []byte, text, what string) error {
	if len(text) != 2*len(dst) {
		return fmt.Errorf("%s %q: want %d hex digits, have %d", what, text, 2*len(dst), len(text))
	}
	raw, err := hex.DecodeString(text)
	if err != nil || hex.EncodeToString(raw) != text {
		return fmt.Errorf("%s %q: want lower-case hex", what, text)
	}
	copy(dst, raw)
	return nil
}

func ParseDeviceID(s string) (id DeviceID, err error) { err = parseHex(id[:], s, "device id"); return }
func ParseWriterID(s string) (id WriterID, err error) { err = parseHex(id[:], s, "writer id"); return }
func ParseTeamID(s string) (id TeamID, err error)     { err = parseHex(id[:], s, "team id"); return }
func ParseRepositoryID(s string) (id RepositoryID, err error) {
	err = parseHex(id[:], s, "repository id")
	return
}
func ParseRoomID(s string) (id RoomID, err error)   { err = parseHex(id[:], s, "room id"); return }
func ParseEntryID(s string) (id EntryID, err error) { err = parseHex(id[:], s, "entry id"); return }

// Millis is a time in milliseconds since 1970, as every stored time is.
type Millis uint64

// MillisOf converts a time; times before 1970 become 0.
func MillisOf(t time.Time) Millis {
	if ms := t.UnixMilli(); ms > 0 {
		return Millis(ms)
	}
	return 0
}

// Time returns the moment in UTC.
func (m Millis) Time() time.Time { return time.UnixMilli(int64(m)).UTC() }

// TimeText is a moment as all JSON of knoot's has it: RFC 3339, UTC, with milliseconds.
func TimeText(m Millis) string { return m.Time().Format("2006-01-02T15:04:05.000Z07:00") }

// drawRandom fills b from the system's source, which never fails on the systems we run on.
func drawRandom(b []byte) { _, _ = rand.Read(b) }

// Now is the wall clock's time.
func Now() Millis { return MillisOf(time.Now()) }
