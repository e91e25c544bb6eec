package gitlog

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"

	"github.com/veraison/go-cose"
)

// What is signed is a COSE_Sign1 object (RFC 9052): tag 18, an empty unprotected map, Ed25519. The context is its
// external_aad and keeps the signatures of one key apart.
type signingContext string

const (
	segmentContext signingContext = "knoot/segment/1"
	rosterContext  signingContext = "knoot/roster/1"
	liveContext    signingContext = "knoot/live/1"
	grantContext   signingContext = "knoot/grant/1"
)

// Labels of the protected header.
const (
	labelAlgorithm   = 1
	labelContentType = 3
	labelKeyID       = 4
	algorithmEdDSA   = -8
)

var (
	errSignature = errors.New("its signature does not verify")
	errKeyID     = errors.New("is not signed by whom it names")
)

// signed is a COSE_Sign1 object taken apart. The slices are parts of the file.
type signed struct {
	protected []byte // the complete protected header
	payload   []byte
	signature []byte
}

// sign makes the object around an encoded protected header.
func sign(key ed25519.PrivateKey, context signingContext, protected, payload []byte) ([]byte, error) {
	signer, err := cose.NewSigner(cose.AlgorithmEdDSA, key)
	if err != nil {
		return nil, err
	}
	m := coseMessage(protected, payload)
	if err := m.Sign(nil, []byte(context), signer); err != nil {
		return nil, err
	}
	return m.MarshalCBOR()
}

// parseSigned takes an object apart and checks its own encoding, not yet what the two byte strings hold.
func parseSigned(data []byte) (*signed, error) {
	rest, ok := bytes.CutPrefix(data, []byte{0xc0 | cose.CBORTagSign1Message})
	if !ok {
		return nil, fmt.Errorf("no COSE_Sign1 object: %w", errTag)
	}
	v, err := decodeStrict(rest)
	if err != nil {
		return nil, err
	}
	parts, ok := v.([]any)
	if !ok || len(parts) != 4 {
		return nil, fmt.Errorf("a COSE_Sign1 object has four parts: %w", errType)
	}
	s := &signed{}
	var isProtected, isPayload, isSignature bool
	s.protected, isProtected = parts[0].([]byte)
	unprotected, isMap := parts[1].(map[any]any)
	s.payload, isPayload = parts[2].([]byte)
	s.signature, isSignature = parts[3].([]byte)
	if !isProtected || !isMap || !isPayload || !isSignature || len(s.signature) != ed25519.SignatureSize {
		return nil, fmt.Errorf("a part of the COSE_Sign1 object: %w", errType)
	}
	if len(unprotected) != 0 {
		return nil, fmt.Errorf("the unprotected header is not empty: %w", errValue)
	}
	return s, nil
}

// verify checks the signature. The caller has compared the key with the kid.
func (s *signed) verify(key ed25519.PublicKey, context signingContext) error {
	if len(key) != ed25519.PublicKeySize {
		return errSignature
	}
	verifier, err := cose.NewVerifier(cose.AlgorithmEdDSA, key)
	if err != nil {
		return fmt.Errorf("%w (%v)", errSignature, err)
	}
	m := coseMessage(s.protected, s.payload)
	m.Signature = s.signature
	if err := m.Verify([]byte(context), verifier); err != nil {
		return fmt.Errorf("%w (%v)", errSignature, err)
	}
	return nil
}

// coseMessage hands the protected header over as the bytes that were encoded and checked here: the library's own
// encoder never sees it.
func coseMessage(protected, payload []byte) *cose.Sign1Message {
	return &cose.Sign1Message{
		Headers: cose.Headers{
			RawProtected: encodeCBOR(protected),
			Protected:    cose.ProtectedHeader{cose.HeaderLabelAlgorithm: cose.AlgorithmEdDSA},
			Unprotected:  cose.UnprotectedHeader{},
		},
		Payload: payload,
	}
}

// readSigner reads the labels that every protected header has. Another algorithm means a newer version, whose
// signature this one cannot check: such an object is worth nothing here, so the error is final.
func readSigner(f *fields) (DeviceID, error) {
	var kid DeviceID
	alg, ok := f.need(labelAlgorithm)
	if ok && alg != int64(algorithmEdDSA) {
		if _, integer := alg.(int64); integer {
			return kid, fmt.Errorf("%s: signed with algorithm %d: %w", f.what, alg, ErrNewer)
		}
		f.fail(labelAlgorithm, errType)
	}
	f.fixed(labelKeyID, kid[:])
	return kid, f.odd
}
