package gitlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"filippo.io/age"
)

// Sealed bytes are an age file for exactly one recipient of the hybrid kind (ML-KEM-768 with X25519): they stay on
// git hosts for years. age says neither who wrote a file nor what it belongs to; the signature around it and the
// digest inside it do (segment.go, roster.go).

const (
	recipientLen = 1_959 // characters of a hybrid recipient as age prints it

	ageIntro   = "age-encryption.org/v1\n"
	stanzaType = "mlkem768x25519"
	// A stanza of that type has one argument, the 1,120 bytes of the key encapsulation, and a body of 32 bytes; the
	// MAC has 32. All in base64 without padding.
	stanzaArgLen  = 1_494
	stanzaBodyLen = 43
	ageMACLen     = 43

	padTo = 256 // plaintexts are padded with zeros to a multiple of this, so that sizes tell little
)

var (
	errRecipient = errors.New("is no recipient of the kind knoot seals to")
	errStanza    = errors.New("is not sealed to exactly one recipient of the kind knoot seals to")
	errIdentity  = errors.New("does not open with this key")
	errPadding   = errors.New("is not padded as it must be")
)

// parseRecipient reads an age recipient and insists on the hybrid kind.
func parseRecipient(text string) (*age.HybridRecipient, error) {
	if len(text) != recipientLen || !strings.HasPrefix(text, "age1pq1") {
		return nil, fmt.Errorf("a text of %d characters: %w", len(text), errRecipient)
	}
	// A key has one spelling: age takes neither mixed case nor bits left over at the end. (To write the key again and compare takes
	// as long as all else that is checked of it, and a roster has hundreds.)
	r, err := age.ParseHybridRecipient(text)
	if err != nil {
		return nil, errRecipient // age's own error repeats the 2 kB
	}
	return r, nil
}

// seal pads an encoded item and seals it.
func seal(to *age.HybridRecipient, item []byte) ([]byte, error) {
	var sealed bytes.Buffer
	w, err := age.Encrypt(&sealed, to)
	if err != nil {
		return nil, err
	}
	padded := make([]byte, (len(item)+padTo-1)/padTo*padTo)
	copy(padded, item)
	if _, err := w.Write(padded); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return sealed.Bytes(), nil
}

// open opens sealed bytes and returns the item with its padding checked and cut. What it costs is bounded by the
// length of the sealed bytes, which the caller has capped.
func open(with *age.HybridIdentity, sealed []byte) (v any, item []byte, err error) {
	if err := checkStanza(sealed); err != nil {
		return nil, nil, err
	}
	r, err := age.Decrypt(bytes.NewReader(sealed), with)
	if err != nil {
		return nil, nil, fmt.Errorf("%w (%v)", errIdentity, err)
	}
	padded, err := io.ReadAll(r)
	if err != nil {
		return nil, nil, fmt.Errorf("%w (%v)", errIdentity, err)
	}
	v, item, padding, err := decodePrefix(padded)
	if err != nil {
		return nil, nil, err
	}
	if len(padded)%padTo != 0 || len(padding) >= padTo || len(bytes.Trim(padding, "\x00")) != 0 {
		return nil, nil, errPadding
	}
	return v, item, nil
}

// checkStanza looks at an age file's header before age does: age would accept any number of stanzas of any kind, and
// tries each. With one of known lengths there is one spelling.
func checkStanza(sealed []byte) error {
	rest, ok := bytes.CutPrefix(sealed, []byte(ageIntro+"-> "+stanzaType+" "))
	if !ok {
		return errStanza
	}
	for _, part := range []struct {
		length int
		then   string
	}{{stanzaArgLen, "\n"}, {stanzaBodyLen, "\n--- "}, {ageMACLen, "\n"}} {
		if len(rest) < part.length {
			return errStanza
		}
		for _, c := range rest[:part.length] {
			if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '+' || c == '/') {
				return errStanza
			}
		}
		if rest, ok = bytes.CutPrefix(rest[part.length:], []byte(part.then)); !ok {
			return errStanza
		}
	}
	return nil
}
