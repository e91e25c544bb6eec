package gitlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fxamacker/cbor/v2"
)

// The index holds what was read from the logs, decoded, so that a start need not verify and open every segment again.
// It is sealed under the local key:
//
//	"knooti1\n", then records: uint32 big-endian length, sealed record
//
// Record 0 is an indexHead; the others are lists of indexEntry. It names the tips and the roster head that it was made
// from; whatever does not fit makes it void, and it is built again from the logs.
const (
	indexMagic = "knooti1\n"
	indexChunk = 512 // entries a record
)

func indexPath(common string) string { return filepath.Join(common, "knoot", "index") }

type indexHead struct {
	Records    uint64     `cbor:"1,keyasint"` // that follow
	RosterSeq  uint64     `cbor:"2,keyasint"`
	RosterHash Digest     `cbor:"3,keyasint"`
	Tips       []indexTip `cbor:"4,keyasint"`
	Seen       []Tip      `cbor:"5,keyasint"` // tips that own segments have named
}

// indexTip is how far one ref was read.
type indexTip struct {
	_          struct{} `cbor:",toarray"`
	Ref        string
	Commit     string
	Generation uint64
	Seq        uint64
	Digest     Digest
	RosterSeq  uint64
	Segments   uint64 // in this ref
	Unopened   uint64 // of these, kept but not opened
	Why        string // why the last unopened one was not
}

type indexEntry struct {
	_          struct{} `cbor:",toarray"`
	Room       RoomID
	Epoch      uint64
	Writer     WriterID
	Log        LogKind
	Generation uint64
	Seq        uint64
	FirstSeen  Millis
	Raw        []byte
}

// errIndex marks an index that cannot be used and is built again.
var errIndex = errors.New("the index does not fit")

// readIndex returns errIndex for one that is absent, damaged, another machine's or from another version.
func readIndex(common string, key *[32]byte, writer WriterID) (*indexHead, []indexEntry, error) {
	content, err := os.ReadFile(indexPath(common))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, errIndex
	}
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read the index: %w", err)
	}
	if len(content) < len(indexMagic) || string(content[:len(indexMagic)]) != indexMagic {
		return nil, nil, errIndex
	}
	rest := content[len(indexMagic):]
	next := func(number uint64, into any) error {
		if len(rest) < 4 {
			return errIndex
		}
		n := int(binary.BigEndian.Uint32(rest))
		if n > len(rest)-4 {
			return errIndex
		}
		plain, err := OpenRecord(key, writer.String()+"/index", number, rest[4:4+n])
		if err != nil {
			return errIndex
		}
		rest = rest[4+n:]
		if cbor.Unmarshal(plain, into) != nil {
			return errIndex
		}
		return nil
	}
	head := &indexHead{}
	if err := next(0, head); err != nil {
		return nil, nil, err
	}
	var entries []indexEntry
	for number := uint64(1); number <= head.Records; number++ {
		var chunk []indexEntry
		if err := next(number, &chunk); err != nil {
			return nil, nil, err
		}
		entries = append(entries, chunk...)
	}
	return head, entries, nil
}

// writeIndex replaces the index.
func writeIndex(common string, key *[32]byte, writer WriterID, head *indexHead, entries []indexEntry) error {
	head.Records = uint64((len(entries) + indexChunk - 1) / indexChunk)
	content := []byte(indexMagic)
	add := func(number uint64, value any) error {
		plain, err := cbor.Marshal(value)
		if err != nil {
			return err
		}
		sealed := SealRecord(key, writer.String()+"/index", number, plain)
		content = binary.BigEndian.AppendUint32(content, uint32(len(sealed)))
		content = append(content, sealed...)
		return nil
	}
	err := add(0, head)
	for number := uint64(1); err == nil && number <= head.Records; number++ {
		first := (number - 1) * indexChunk
		err = add(number, entries[first:min(first+indexChunk, uint64(len(entries)))])
	}
	if err == nil {
		err = ReplaceFile(indexPath(common), content, 0o600)
	}
	if err != nil {
		return fmt.Errorf("cannot keep the index: %w", err)
	}
	return nil
}
