package gitlog

import (
	"crypto/ed25519"
	"fmt"
)

// Grant is a relay's word for a claim that it granted, so that it can grant it again after it lost its state.
type Grant struct {
	Team       TeamID
	Repository RepositoryID
	Claim      [16]byte
	Device     DeviceID
	Session    Token
	Path       Token // the path's own
	Branch     Token
	Worktree   Token
	Class      uint64 // formats.md, Event, key 12
	Term, Seq  uint64 // of the ClaimAcquired
	Until      Millis // by the relay's clock
}

const (
	grantVersion = 1
	maxGrant     = 1 << 10
)

// Sign signs the grant with a relay's key.
func (g *Grant) Sign(key ed25519.PrivateKey) ([]byte, error) {
	kid := DeviceIDOf(key.Public().(ed25519.PublicKey))
	protected := encodeCBOR(map[any]any{labelAlgorithm: algorithmEdDSA, labelKeyID: kid[:]})
	return sign(key, grantContext, protected, encodeCBOR(intMap{
		1: uint64(grantVersion), 2: g.Team[:], 3: g.Repository[:], 4: g.Claim[:], 5: g.Device[:], 6: g.Session[:], 7: g.Path[:],
		8: g.Branch[:], 9: g.Worktree[:], 10: g.Class, 11: g.Term, 12: g.Seq, 13: uint64(g.Until),
	}))
}

// ReadGrant checks that a grant was signed by this relay, and reads it.
func ReadGrant(data []byte, relay ed25519.PublicKey) (*Grant, error) {
	if len(data) > maxGrant {
		return nil, fmt.Errorf("a grant of %d bytes: %w of %d", len(data), errTooLarge, maxGrant)
	}
	s, err := parseSigned(data)
	if err != nil {
		return nil, err
	}
	v, err := decodeStrict(s.protected)
	if err != nil {
		return nil, fmt.Errorf("protected header: %w", err)
	}
	f, err := openFields(v, "protected header")
	if err != nil {
		return nil, err
	}
	kid, err := readSigner(f)
	if err != nil {
		return nil, err
	}
	if err := f.finish(); err != nil {
		return nil, err
	}
	if kid != DeviceIDOf(relay) {
		return nil, fmt.Errorf("the grant %w", errKeyID)
	}
	if err := s.verify(relay, grantContext); err != nil {
		return nil, err
	}
	if v, err = decodeStrict(s.payload); err != nil {
		return nil, fmt.Errorf("payload: %w", err)
	}
	if f, err = openFields(v, "grant"); err != nil {
		return nil, err
	}
	g := &Grant{}
	if version := f.uint(1, 1); version > grantVersion {
		f.newer(1, version)
	}
	f.fixed(2, g.Team[:])
	f.fixed(3, g.Repository[:])
	f.fixed(4, g.Claim[:])
	f.fixed(5, g.Device[:])
	f.fixed(6, g.Session[:])
	f.fixed(7, g.Path[:])
	f.fixed(8, g.Branch[:])
	f.fixed(9, g.Worktree[:])
	if g.Class = f.uint(10, 1); g.Class > lastClass {
		f.newer(10, g.Class)
	}
	g.Term, g.Seq = f.uint(11, 1), f.uint(12, 1)
	g.Until = f.millis(13)
	return g, f.finish()
}
