package gitlog

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func openJournal(t interface{ Fatal(...any) }, common string, key *[32]byte) *journal {
	j := &journal{path: journalPath(common), key: key, writer: WriterID{7}}
	if err := j.open(); err != nil {
		t.Fatal(err)
	}
	return j
}

// A crash may cut the file anywhere: what is left is a beginning of what was written, and the journal goes on from there.
func TestAJournalCutAnywhereKeepsItsBeginning(t *testing.T) {
	key := [32]byte{1}
	rapid.Check(t, func(t *rapid.T) {
		common, err := os.MkdirTemp("", "journal")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(common)
		records := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 1, 60), 1, 8).Draw(t, "records")
		j := openJournal(t, common, &key)
		var ends []int64
		for _, r := range records {
			if err := j.append(RoomID{3}, r); err != nil {
				t.Fatal(err)
			}
			ends = append(ends, j.size)
		}
		cut := rapid.Int64Range(0, j.size).Draw(t, "cut")
		j.close()
		if err := os.Truncate(j.path, cut); err != nil {
			t.Fatal(err)
		}
		whole := 0
		for whole < len(ends) && ends[whole] <= cut {
			whole++
		}
		reader := &journal{path: journalPath(common), key: &key}
		if err := reader.read(); err != nil {
			t.Fatal(err)
		}
		if info, _ := os.Stat(j.path); info.Size() != cut {
			t.Fatal("a reader changed the file")
		}
		again := openJournal(t, common, &key)
		defer again.close()
		for _, got := range [][]journaled{reader.entries, again.entries} {
			if len(got) != whole {
				t.Fatalf("%d records of %d whole ones", len(got), whole)
			}
			for i, e := range got {
				if !bytes.Equal(e.raw, records[i]) || e.room != (RoomID{3}) {
					t.Fatalf("record %d is another", i)
				}
			}
		}
		if err := again.append(RoomID{4}, []byte("after")); err != nil {
			t.Fatal(err)
		}
		last := &journal{path: journalPath(common), key: &key}
		if err := last.read(); err != nil || len(last.entries) != whole+1 {
			t.Fatalf("after one more: %d records, %v", len(last.entries), err)
		}
	})
}

func TestDroppedRecordsAreGoneAndTheOthersStay(t *testing.T) {
	key := [32]byte{1}
	common := t.TempDir()
	j := openJournal(t, common, &key)
	for _, text := range []string{"a", "b", "c"} {
		if err := j.append(RoomID{}, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	next, err := j.shortened(j.entries[2:])
	if err != nil {
		t.Fatal(err)
	}
	if err := j.append(RoomID{}, []byte("d")); err != nil {
		t.Fatal(err)
	}
	if err := j.become(next, 2); err != nil {
		t.Fatal(err)
	}
	if !j.dirty {
		t.Error("what was recorded meanwhile counts as synced")
	}
	if err := j.append(RoomID{}, []byte("e")); err != nil {
		t.Fatal(err)
	}
	j.close()
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(j.path), ".journal.*")); len(left) > 0 {
		t.Errorf("left over: %q", left)
	}
	again := openJournal(t, common, &key)
	defer again.close()
	var texts []string
	for _, e := range again.entries {
		texts = append(texts, string(e.raw))
	}
	if got := strings.Join(texts, " "); got != "c d e" {
		t.Errorf("the records are %q", got)
	}
}

// Whoever can write the repository, but has not the local key, cannot put records into a journal or move them.
func TestAJournalTakesNoForeignRecords(t *testing.T) {
	key, other := [32]byte{1}, [32]byte{2}
	common := t.TempDir()
	j := openJournal(t, common, &key)
	for _, text := range []string{"first", "other"} { // of one length, so that they can be swapped
		if err := j.append(RoomID{}, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	j.close()
	content, err := os.ReadFile(j.path)
	if err != nil {
		t.Fatal(err)
	}
	record := (len(content) - journalHead) / 2
	swapped := append(append(bytes.Clone(content[:journalHead]), content[journalHead+record:]...), content[journalHead:journalHead+record]...)
	for name, text := range map[string][]byte{"swapped": swapped, "of another head": append(append([]byte(journalMagic), make([]byte, journalHead-len(journalMagic))...), content[journalHead:]...)} {
		dir := t.TempDir()
		write(t, journalPath(dir), string(text))
		r := &journal{path: journalPath(dir), key: &key}
		if err := r.read(); err != nil || len(r.entries) != 0 {
			t.Errorf("%s: %d records, %v", name, len(r.entries), err)
		}
	}
	r := &journal{path: filepath.Join(common, "knoot", "journal"), key: &other}
	if err := r.read(); err != nil || len(r.entries) != 0 {
		t.Errorf("under another key: %d records, %v", len(r.entries), err)
	}
}

func FuzzJournal(f *testing.F) {
	key := [32]byte{1}
	dir := f.TempDir()
	j := openJournal(f, dir, &key)
	if err := j.append(RoomID{1}, []byte("an entry")); err != nil {
		f.Fatal(err)
	}
	j.close()
	whole, err := os.ReadFile(j.path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(whole[:len(whole)-3])
	f.Add([]byte(journalMagic))
	f.Fuzz(func(t *testing.T, content []byte) {
		j := &journal{key: &key}
		if err := j.parse(content); err == nil && j.size > int64(len(content)) {
			t.Errorf("%d bytes of %d were read", j.size, len(content))
		}
	})
}
