package relay

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"knoot.dev/knoot/arbiter/wire"
	"knoot.dev/knoot/gitlog"
)

// keyName is the key's file in the state folder, unless it is kept elsewhere.
const keyName = "relay.key"

// KeyPath is where the key is: path, or in the state folder.
func KeyPath(state, path string) string {
	if path != "" {
		return path
	}
	return filepath.Join(state, keyName)
}

// PinOf is a relay's key as machines pin it.
func PinOf(key ed25519.PrivateKey) wire.Pin { return wire.PinOf(key.Public().(ed25519.PublicKey)) }

// LoadKey reads the relay's key (Ed25519, PKCS #8 in PEM), or draws it where there is none. fresh says that it was drawn
// now: then there never was a state to lose.
func LoadKey(path string) (key ed25519.PrivateKey, fresh bool, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		key, err = makeKey(path)
		return key, true, err
	}
	if err != nil {
		return nil, false, fmt.Errorf("cannot read the relay's key: %w", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, false, fmt.Errorf("cannot read the relay's key: %w", err)
	}
	if info.Mode().Perm()&0o007 != 0 { // a group may be given the right, as systemd and container volumes do
		return nil, false, fmt.Errorf("%s can be read by everybody: run `chmod 600 %s`", path, path)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, false, fmt.Errorf("%s holds no key in PEM: restore it from a backup", path)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, false, fmt.Errorf("%s holds no key (%w): restore it from a backup", path, err)
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, false, fmt.Errorf("%s holds a %T: a relay's key is an Ed25519 key", path, parsed)
	}
	return key, false, nil
}

func makeKey(path string) (ed25519.PrivateKey, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("cannot keep the relay's key: %w", err)
	}
	if err := gitlog.ReplaceFile(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		return nil, fmt.Errorf("cannot keep the relay's key: %w", err)
	}
	return key, nil
}

// bornName is a file of the state folder that says: this is the state of that key. With the key and without it the state
// was lost, and leases may be out that nobody here knows of.
const bornName = "born"

// born says whether the state folder is that of this key.
func born(state string, key ed25519.PublicKey) (bool, error) {
	text, err := os.ReadFile(filepath.Join(state, bornName))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return string(text) == bornText(key), err
}

func bear(state string, key ed25519.PublicKey) error {
	return gitlog.ReplaceFile(filepath.Join(state, bornName), []byte(bornText(key)), 0o600)
}

func bornText(key ed25519.PublicKey) string { return fmt.Sprintf("%x\n", sha256.Sum256(key)) }

// resetKey makes QUIC's stateless resets the same for every run, so that a restarted relay resets old connections at
// their first packet.
func resetKey(key ed25519.PrivateKey) ([32]byte, error) {
	raw, err := hkdf.Key(sha256.New, key.Seed(), nil, "knoot/v1/reset", 32)
	if err != nil {
		return [32]byte{}, err
	}
	return [32]byte(raw), nil
}
