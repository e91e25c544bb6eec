package gitlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// A journal holds audit entries that are not in a segment yet. The file, sealed under the local key:
//
//	"knootj1\n", the writer, 24 bytes, 8 random bytes, then records: uint32 big-endian length, sealed record
//
// The head is part of what each record is sealed to. The writer is the one that began the file: a clone that becomes another
// writer keeps its journal.
//
// A record's plaintext is the room, 8 bytes, and the entry's bytes; its number is its place in the file. A record is
// written before the event is acknowledged, so a killed process loses nothing; a torn record at the end is what was
// never acknowledged. Only the lock's holder writes.
type journal struct {
	path   string
	key    *[32]byte
	writer WriterID // begins new files

	file    *os.File // open for appending; nil in a reader
	head    string   // without the magic
	entries []journaled
	size    int64 // bytes of whole records and the head
	number  uint64
	dirty   bool // written, not synced
}

type journaled struct {
	room RoomID
	raw  []byte
}

const (
	journalMagic = "knootj1\n"
	journalHead  = len(journalMagic) + len(WriterID{}) + 8

	// journalRecord bounds a record: an entry of 64 KiB, its room and the seal.
	journalRecord = 64<<10 + 8 + LocalOverhead

	// JournalFull is the size at which a journal becomes a segment without waiting for the end of a turn.
	JournalFull = 64 << 10
)

func journalPath(common string) string { return filepath.Join(common, "knoot", "journal") }

// read reads what is there; an absent file is an empty journal. It stops at an incomplete last record without cutting it:
// the writer may be in the middle of it.
func (j *journal) read() error {
	content, err := os.ReadFile(j.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot read the journal: %w", err)
	}
	return j.parse(content)
}

func (j *journal) parse(content []byte) error {
	if len(content) < journalHead {
		// Cut short while it was made: nothing was in it.
		return nil
	}
	if !bytes.HasPrefix(content, []byte(journalMagic)) {
		return fmt.Errorf("%s is not a journal that this version reads: move it away, and run `knoot status`", j.path)
	}
	j.head = string(content[len(journalMagic):journalHead])
	j.size = int64(journalHead)
	rest := content[journalHead:]
	for len(rest) >= 4 {
		n := int(binary.BigEndian.Uint32(rest))
		if n > journalRecord || n > len(rest)-4 {
			break
		}
		plain, err := OpenRecord(j.key, "journal/"+j.head, j.number, rest[4:4+n])
		if err != nil {
			break
		}
		if len(plain) < 8 {
			break
		}
		j.entries = append(j.entries, journaled{RoomID(plain[:8]), plain[8:]})
		j.number++
		j.size += int64(4 + n)
		rest = rest[4+n:]
	}
	return nil
}

// open makes the journal writable; a torn tail is cut.
func (j *journal) open() error {
	if err := os.MkdirAll(filepath.Dir(j.path), 0o700); err != nil {
		return fmt.Errorf("cannot open the journal: %w", err)
	}
	f, err := os.OpenFile(j.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("cannot open the journal: %w", err)
	}
	content, err := io.ReadAll(f)
	if err == nil {
		j.entries, j.number, j.size = nil, 0, 0
		err = j.parse(content)
	}
	if err == nil && j.size == 0 {
		if err = f.Truncate(0); err == nil {
			err = j.begin(f)
		}
	} else if err == nil && j.size < int64(len(content)) {
		err = f.Truncate(j.size)
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		f.Close()
		return fmt.Errorf("cannot open the journal: %w", err)
	}
	j.file = f
	return nil
}

// begin writes the head of a new file.
func (j *journal) begin(f *os.File) error {
	var drawn [8]byte
	drawRandom(drawn[:])
	j.head, j.size = string(j.writer[:])+string(drawn[:]), int64(journalHead)
	_, err := f.WriteAt([]byte(journalMagic+j.head), 0)
	return err
}

// append adds a record. When it returns, a killed process does not lose it; sync makes it outlast the machine too.
func (j *journal) append(room RoomID, raw []byte) error {
	sealed := SealRecord(j.key, "journal/"+j.head, j.number, append(room[:], raw...))
	record := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(sealed)), uint32(len(sealed)))
	record = append(record, sealed...)
	if _, err := j.file.WriteAt(record, j.size); err != nil {
		// A full disk may have taken a part of it: the next record overwrites that part.
		return fmt.Errorf("cannot write the journal: %w", err)
	}
	j.entries = append(j.entries, journaled{room, raw})
	j.number++
	j.size += int64(len(record))
	j.dirty = true
	return nil
}

func (j *journal) sync() error {
	if !j.dirty {
		return nil
	}
	if err := j.file.Sync(); err != nil {
		return fmt.Errorf("cannot sync the journal: %w", err)
	}
	j.dirty = false
	return nil
}

// shortened makes, beside the file, one that holds these of its records alone, synced. It only reads what does not change.
func (j *journal) shortened(rest []journaled) (next *journal, err error) {
	next = &journal{path: j.path, key: j.key, writer: j.writer}
	f, err := os.CreateTemp(filepath.Dir(j.path), ".journal.*")
	if err != nil {
		return nil, fmt.Errorf("cannot shorten the journal: %w", err)
	}
	next.file = f
	err = next.begin(f)
	for _, e := range rest {
		if err == nil {
			err = next.append(e.room, e.raw)
		}
	}
	if err == nil {
		err = next.sync()
	}
	if err != nil {
		return nil, next.discard(err)
	}
	return next, nil
}

// become drops the first n records, which are in a segment now: next, which shortened made of those after them, with what was
// recorded since, replaces the file. The directory is to be synced then.
func (j *journal) become(next *journal, n int) error {
	for _, e := range j.entries[n+len(next.entries):] {
		if err := next.append(e.room, e.raw); err != nil {
			return next.discard(err)
		}
	}
	if err := os.Rename(next.file.Name(), j.path); err != nil {
		return next.discard(err)
	}
	j.file.Close()
	*j = *next
	return nil
}

// discard ends a file that does not become the journal.
func (j *journal) discard(why error) error {
	j.file.Close()
	os.Remove(j.file.Name())
	return fmt.Errorf("cannot shorten the journal: %w", why)
}

func (j *journal) close() error {
	if j.file == nil {
		return nil
	}
	err := j.sync()
	if cerr := j.file.Close(); err == nil {
		err = cerr
	}
	j.file = nil
	return err
}
