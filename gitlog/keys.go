package gitlog

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"filippo.io/age"
)

// RoomEpoch names one epoch of a room's key, from 1.
type RoomEpoch struct {
	Room   RoomID
	Number uint64
}

// EpochKey is the private half of a room's epoch: it opens what was sealed to the room in that time.
type EpochKey struct {
	RoomEpoch
	text string // the identity as age writes it
	read atomic.Pointer[age.HybridIdentity]
}

func newEpochKey(epoch RoomEpoch, identity *age.HybridIdentity) *EpochKey {
	k := &EpochKey{RoomEpoch: epoch, text: identity.String()}
	k.read.Store(identity)
	return k
}

// identity reads the key at its first need, since that takes a sixth of a millisecond, and most epochs of a long roster are never
// asked for.
func (k *EpochKey) identity() (*age.HybridIdentity, error) {
	if identity := k.read.Load(); identity != nil {
		return identity, nil
	}
	// The error of age could repeat a part of the key.
	identity, err := age.ParseHybridIdentity(k.text)
	if err != nil {
		return nil, fmt.Errorf("the key of room %s, epoch %d: no identity: %w", k.Room, k.Number, errValue)
	}
	k.read.Store(identity)
	return identity, nil
}

// open opens what was sealed to the epoch.
func (k *EpochKey) open(sealed []byte) (v any, item []byte, err error) {
	identity, err := k.identity()
	if err != nil {
		return nil, nil, err
	}
	return open(identity, sealed)
}

// Keyring holds the epochs that a device can open.
type Keyring map[RoomEpoch]*EpochKey

const (
	tokenLabel = "knoot/v1/token"
	liveLabel  = "knoot/v1/live"
)

// TokenKey is the key of the tokens for what belongs to the room.
func (k *EpochKey) TokenKey(team TeamID) (TokenKey, error) {
	key, err := k.derive(tokenLabel, team)
	return TokenKey(key), err
}

// LiveKey is the key that seals live events of the room.
func (k *EpochKey) LiveKey(team TeamID) ([32]byte, error) { return k.derive(liveLabel, team) }

// derive is HKDF-SHA-256 over the identity's text, with the team as salt.
func (k *EpochKey) derive(label string, team TeamID) (key [32]byte, err error) {
	info := append([]byte(label), 0)
	info = append(info, k.Room[:]...)
	if k.Number > 1<<32-1 {
		return key, fmt.Errorf("epoch %d of room %s: %w", k.Number, k.Room, errValue)
	}
	info = binary.BigEndian.AppendUint32(info, uint32(k.Number))
	raw, err := hkdf.Key(sha256.New, []byte(k.text), team[:], string(info), len(key))
	copy(key[:], raw)
	return key, err
}

// TokenKey makes tokens: names for paths, branches, worktrees and sessions that say nothing to whoever lacks the
// key, such as the relay.
type TokenKey [32]byte

// Token is HMAC-SHA-256(key, CBOR [type, repository, value])[:16].
type Token [16]byte

const (
	tokenPath     = 1
	tokenBranch   = 2
	tokenWorktree = 3
	tokenSession  = 4
)

// Path is the token of a canonical path; it folds A–Z.
func (k TokenKey) Path(repository RepositoryID, path string) Token {
	return k.token(tokenPath, repository, []byte(FoldPath(path)))
}

// Branch is the token of a full ref name.
func (k TokenKey) Branch(repository RepositoryID, ref string) Token {
	return k.token(tokenBranch, repository, []byte(ref))
}

// Detached is the token that stands for the branch of a worktree whose HEAD is detached.
func (k TokenKey) Detached(repository RepositoryID, device DeviceID, gitDir string) Token {
	return k.token(tokenBranch, repository, worktreeValue(device, gitDir))
}

// Worktree is the token of a worktree; gitDir is the real path of its git directory.
func (k TokenKey) Worktree(repository RepositoryID, device DeviceID, gitDir string) Token {
	return k.token(tokenWorktree, repository, worktreeValue(device, gitDir))
}

// Session is the token of an agent's session.
func (k TokenKey) Session(repository RepositoryID, device DeviceID, agent, session string) Token {
	value := append(device[:], agent...)
	value = append(value, 0)
	return k.token(tokenSession, repository, append(value, session...))
}

func worktreeValue(device DeviceID, gitDir string) []byte {
	sum := sha256.Sum256([]byte(gitDir))
	return append(device[:], sum[:16]...)
}

func (k TokenKey) token(kind uint64, repository RepositoryID, value []byte) Token {
	mac := hmac.New(sha256.New, k[:])
	mac.Write(encodeCBOR([]any{kind, repository[:], value}))
	return Token(mac.Sum(nil)[:len(Token{})])
}
