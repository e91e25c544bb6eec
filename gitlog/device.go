package gitlog

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"filippo.io/age"
)

// Device is this machine's keys: Sign is its identity, Age opens what is sealed to it, Local seals what stays here.
type Device struct {
	ID    DeviceID
	Sign  ed25519.PrivateKey
	Age   *age.HybridIdentity
	Local [32]byte
}

// ErrNoDevice is returned where the home folder has no keys yet.
var ErrNoDevice = errors.New("this machine has no knoot keys yet: run `knoot init` in a repository")

const (
	signFile  = "device.key"   // Ed25519, PKCS #8 in PEM
	ageFile   = "device.age"   // an age identity file
	localFile = "device.local" // 64 hex digits
)

// Device loads the keys; ErrNoDevice where there are none, a sentence where they are damaged or open to others.
func (h *Home) Device() (*Device, error) {
	d := &Device{}
	text, err := h.readKey(signFile)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, h.damaged(signFile, errors.New("not PEM"))
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, h.damaged(signFile, err)
	}
	sign, ok := key.(ed25519.PrivateKey)
	if !ok {
		return nil, h.damaged(signFile, fmt.Errorf("a %T, not an Ed25519 key", key))
	}
	d.Sign, d.ID = sign, DeviceIDOf(sign.Public().(ed25519.PublicKey))

	if text, err = h.readKey(ageFile); err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			if d.Age, err = age.ParseHybridIdentity(line); err != nil {
				// age's error would repeat the secret.
				return nil, h.damaged(ageFile, errors.New("not a hybrid age identity"))
			}
		}
	}
	if d.Age == nil {
		return nil, h.damaged(ageFile, errors.New("no identity in it"))
	}

	if text, err = h.readKey(localFile); err != nil {
		return nil, err
	}
	raw, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(raw) != len(d.Local) {
		return nil, h.damaged(localFile, errors.New("want 64 hex digits"))
	}
	copy(d.Local[:], raw)
	return d, nil
}

func (h *Home) damaged(name string, err error) error {
	return fmt.Errorf("%s is damaged (%w): restore it from a backup", h.Path(name), err)
}

func (h *Home) readKey(name string) ([]byte, error) {
	path := h.Path(name)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		// device.key is made last: without it there is no device, with it the others must be there.
		if name == signFile {
			return nil, ErrNoDevice
		}
		return nil, fmt.Errorf("%s is missing beside %s: restore it from a backup", path, signFile)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read this device's keys: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s can be read by others: run `chmod 600 %s`", path, path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read this device's keys: %w", err)
	}
	return text, nil
}

// MakeDevice loads the keys or, where there are none, draws them. Two at once end with the same keys.
func (h *Home) MakeDevice() (*Device, error) {
	d, err := h.Device()
	if !errors.Is(err, ErrNoDevice) {
		return d, err
	}
	if err := h.Make(); err != nil {
		return nil, err
	}
	unlock, err := lockFile(h.Path("device.lock"))
	if err != nil {
		return nil, fmt.Errorf("cannot lock %s: %w", h.Dir, err)
	}
	defer unlock()
	if d, err = h.Device(); !errors.Is(err, ErrNoDevice) {
		return d, err
	}
	identity, err := age.GenerateHybridIdentity()
	if err != nil {
		return nil, err
	}
	_, sign, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(sign)
	if err != nil {
		return nil, err
	}
	var local [32]byte
	drawRandom(local[:])
	for _, f := range []struct {
		name, content string
	}{
		{localFile, hex.EncodeToString(local[:]) + "\n"},
		{ageFile, "# public key: " + identity.Recipient().String() + "\n" + identity.String() + "\n"},
		{signFile, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))},
	} {
		// Halves of a first start that was cut short are replaced: nothing was ever sealed to them.
		if err := ReplaceFile(h.Path(f.name), []byte(f.content), 0o600); err != nil {
			return nil, fmt.Errorf("cannot keep this device's keys in %s: %w", h.Dir, err)
		}
	}
	return h.Device()
}
