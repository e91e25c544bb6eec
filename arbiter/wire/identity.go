package wire

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"
)

// Pin is the SHA-256 of a relay's raw Ed25519 public key, written sha256:<64 hex>.
type Pin [32]byte

// PinOf returns the pin of a key.
func PinOf(key ed25519.PublicKey) Pin { return sha256.Sum256(key) }

const pinPrefix = "sha256:"

func (p Pin) String() string { return pinPrefix + hex.EncodeToString(p[:]) }

// ParsePin reads what String wrote.
func ParsePin(text string) (p Pin, err error) {
	digits, ok := strings.CutPrefix(text, pinPrefix)
	raw, herr := hex.DecodeString(digits)
	if !ok || herr != nil || len(raw) != len(p) {
		return p, fmt.Errorf("%q is no relay's key: want %s and 64 hex digits, as `knoot relay --print-key` prints it", text, pinPrefix)
	}
	copy(p[:], raw)
	return p, nil
}

// Certificate makes the self-signed certificate by which a device or a relay shows its key. Names and times in it mean
// nothing: the key is what is known.
func Certificate(key ed25519.PrivateKey) (tls.Certificate, error) {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "knoot"},
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), // RFC 5280: no end
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// peerKey is the Ed25519 key of the other side's certificate, nil where it is of another kind.
func peerKey(state tls.ConnectionState) ed25519.PublicKey {
	if len(state.PeerCertificates) == 0 {
		return nil
	}
	key, _ := state.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
	return key
}

func checkProtocol(state tls.ConnectionState) error {
	if state.NegotiatedProtocol != Protocol {
		return fmt.Errorf("the other side does not speak %s", Protocol)
	}
	return nil
}

// ServerTLS is a relay's side. Every client shows a certificate over an Ed25519 key; which keys may do what is not
// decided here, since the roster comes later.
func ServerTLS(certificate tls.Certificate) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{Protocol}, Certificates: []tls.Certificate{certificate},
		ClientAuth:             tls.RequireAnyClientCert,
		SessionTicketsDisabled: true, // no resumption, so no 0-RTT: early data can be sent twice
		VerifyConnection: func(state tls.ConnectionState) error {
			if peerKey(state) == nil {
				return errors.New("a client shows an Ed25519 key")
			}
			return checkProtocol(state)
		},
	}
}

// ClientTLS is a daemon's side. With a pin the relay is whoever holds that key; without one (nil) the relay's name must be
// certified by a public authority.
func ClientTLS(certificate tls.Certificate, pin *Pin, name string) *tls.Config {
	config := &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{Protocol}, Certificates: []tls.Certificate{certificate},
		ServerName: name, VerifyConnection: checkProtocol,
	}
	if pin != nil {
		config.InsecureSkipVerify = true // by name and authority; the key is compared below
		config.VerifyConnection = func(state tls.ConnectionState) error {
			if err := checkProtocol(state); err != nil {
				return err
			}
			key := peerKey(state)
			if key == nil {
				return fmt.Errorf("the relay's certificate is over no Ed25519 key, and %s is pinned", pin)
			}
			if got := PinOf(key); got != *pin {
				return fmt.Errorf("the relay has the key %s, and %s is pinned: if the relay was set up anew, pin its new key (`knoot init --relay HOST:PORT --relay-key KEY`)", got, pin)
			}
			return nil
		}
	}
	return config
}
