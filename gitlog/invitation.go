package gitlog

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"filippo.io/age"
)

// invitationDays is how long an invitation and a request hold.
const invitationDays = 7

// Invitation is the key of an invitation, or a recovery key: a device whose secrets travel as text.
type Invitation struct {
	Team     TeamID
	Head     RosterHead // of the roster with it; a host that shows less is refused
	Expires  Millis     // 0 for a recovery key
	Recovery bool

	device *Device
}

// What a key's text begins with.
const (
	invitationPrefix = "knoot-join-"
	recoveryPrefix   = "knoot-recovery-"
)

var (
	errKeyChecksum       = errors.New("has another checksum than its own")
	errInvitationExpired = fmt.Errorf("this invitation is more than %d days old: ask for a new one (`knoot member add`)", invitationDays)
)

// keyTextError is what is wrong with a key's text. It never repeats it: the cause is for errors.Is alone.
type keyTextError struct{ cause error }

func (e *keyTextError) Error() string {
	return "that is no whole invitation or recovery key: copy it again, from knoot-join- or knoot-recovery- to its end"
}

func (e *keyTextError) Unwrap() error { return e.cause }

// Device returns the id of the device that the key is.
func (i *Invitation) Device() DeviceID { return i.device.ID }

// Key is the text, a secret: whoever has it and a clone can read what the member may read. It is shown once.
func (i *Invitation) Key() string {
	m := intMap{1: i.Team[:], 2: []any{i.Head.Seq, i.Head.Hash[:]}, 3: []byte(i.device.Sign.Seed()), 4: i.device.Age.String()}
	m.set(5, uint64(i.Expires))
	body := encodeCBOR(m)
	prefix := invitationPrefix
	if i.Recovery {
		prefix = recoveryPrefix
	}
	return prefix + base64.RawURLEncoding.EncodeToString(append(body, keyChecksum(prefix, body)...))
}

// keyChecksum finds what was lost in copying.
func keyChecksum(prefix string, body []byte) []byte {
	sum := sha256.Sum256(append([]byte(prefix), body...))
	return sum[:4]
}

// ParseInvitation reads a key's text. Its errors never repeat it.
func ParseInvitation(text string) (*Invitation, error) {
	text = strings.Join(strings.Fields(text), "") // mail and terminals break long lines
	i := &Invitation{device: &Device{}}
	prefix := invitationPrefix
	if strings.HasPrefix(text, recoveryPrefix) {
		prefix, i.Recovery = recoveryPrefix, true
	}
	encoded, ok := strings.CutPrefix(text, prefix)
	raw, err := base64.RawURLEncoding.Strict().DecodeString(encoded)
	if !ok || err != nil || len(raw) < 4 || len(raw) > 1<<10 {
		return nil, &keyTextError{errSyntax}
	}
	body, sum := raw[:len(raw)-4], raw[len(raw)-4:]
	if !bytes.Equal(sum, keyChecksum(prefix, body)) {
		return nil, &keyTextError{errKeyChecksum}
	}
	v, err := decodeStrict(body)
	if err != nil {
		return nil, &keyTextError{err}
	}
	f, err := openFields(v, "key")
	if err != nil {
		return nil, &keyTextError{err}
	}
	seed := make([]byte, ed25519.SeedSize)
	f.fixed(1, i.Team[:])
	if head, _ := f.need(2); head != nil {
		if l := f.tuple(2, head, 2); l != nil {
			i.Head.Seq = f.asUint(2, l[0], 0)
			f.asFixed(2, l[1], i.Head.Hash[:])
		}
	}
	f.fixed(3, seed)
	identity := f.text(4)
	i.Expires = f.millisOr0(5)
	if err := f.finish(); errors.Is(err, ErrNewer) {
		return nil, fmt.Errorf("this key %w", ErrNewer)
	} else if err != nil {
		return nil, &keyTextError{err}
	}
	if i.Recovery != (i.Expires == 0) {
		return nil, &keyTextError{errValue}
	}
	// The error of age could repeat a part of the key.
	if i.device.Age, err = age.ParseHybridIdentity(identity); err != nil || i.device.Age.String() != identity {
		return nil, &keyTextError{errValue}
	}
	i.device.Sign = ed25519.NewKeyFromSeed(seed)
	i.device.ID = DeviceIDOf(i.device.Sign.Public().(ed25519.PublicKey))
	return i, nil
}

func (i *Invitation) otherTeam(here TeamID) error {
	return fmt.Errorf("this key is for the team %s, and this repository's team is %s: use it in a clone of the other team's repository", i.Team, here)
}

// usable returns nil, or a sentence that says why the key opens nothing in this state of the team.
func (i *Invitation) usable(r *Roster, now Millis) error {
	if i.Team != r.Team {
		return i.otherTeam(r.Team)
	}
	if !r.Has(i.Head.Seq, i.Head.Hash.String()) {
		return fmt.Errorf("the host shows the team's roster up to entry %d, and this key was made at entry %d, %s: it holds entries back or shows another roster, so it is not followed; ask whoever made the key", r.Head.Seq, i.Head.Seq, i.Head.Hash)
	}
	if r.Devices[i.device.ID] != nil {
		if !i.Recovery && now >= i.Expires {
			return errInvitationExpired
		}
		return nil
	}
	d := r.former[i.device.ID]
	switch {
	case d == nil:
		return errors.New("the team's roster has no such key: ask whoever made it")
	case d.end == endJoined:
		return errors.New("this invitation was used already: if it was not you, tell an admin of the team at once; else ask for a new one")
	case i.Recovery:
		return fmt.Errorf("this recovery key was removed from the team by entry %d of the roster", d.until)
	}
	return errors.New("this invitation was taken back: ask for a new one")
}

// drawDevice draws the keys of a device that is no machine's.
func drawDevice() (*Device, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	identity, err := age.GenerateHybridIdentity()
	if err != nil {
		return nil, err
	}
	return &Device{ID: DeviceIDOf(public), Sign: private, Age: identity}, nil
}
