package gitlog

import (
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"

	"golang.org/x/crypto/chacha20poly1305"
)

// LocalOverhead is what sealing under the local key adds to a record, in bytes: the nonce and the tag.
const LocalOverhead = chacha20poly1305.NonceSizeX + chacha20poly1305.Overhead

// ErrLocal is returned for a record that the local key does not open: changed, moved, or another machine's.
var ErrLocal = errors.New("the record does not open under this device's local key")

// SealRecord seals one record of a file that stays on this machine (journal, index, state) with XChaCha20-Poly1305.
// context says which file of which writer it belongs to, number is its place there; both are authenticated, so a
// container that gets the repository can neither read the records nor put them elsewhere.
func SealRecord(key *[32]byte, context string, number uint64, plaintext []byte) []byte {
	nonce := make([]byte, chacha20poly1305.NonceSizeX, len(plaintext)+LocalOverhead)
	_, _ = rand.Read(nonce)
	return localCipher(key).Seal(nonce, nonce, plaintext, localContext(context, number))
}

// OpenRecord opens what SealRecord made; ErrLocal otherwise.
func OpenRecord(key *[32]byte, context string, number uint64, sealed []byte) ([]byte, error) {
	if len(sealed) < LocalOverhead {
		return nil, ErrLocal
	}
	nonce, text := sealed[:chacha20poly1305.NonceSizeX], sealed[chacha20poly1305.NonceSizeX:]
	plain, err := localCipher(key).Open(nil, nonce, text, localContext(context, number))
	if err != nil {
		return nil, ErrLocal
	}
	return plain, nil
}

func localCipher(key *[32]byte) cipher.AEAD {
	aead, err := chacha20poly1305.NewX(key[:])
	if err != nil {
		panic(err) // the key's length is fixed by its type
	}
	return aead
}

func localContext(context string, number uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte(context+"\x00"), number)
}
