package gitlog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
)

// With an index a start reads no segment again; without it, or with one that does not fit, everything is there all the same.
func TestAnIndexIsUsedOrBuiltAgain(t *testing.T) {
	ctx := context.Background()
	s := newStage(t)
	repo := s.repository("app")
	s.init(repo)
	c := s.open(repo, true)
	for i := range indexEvery {
		if err := c.Append(ctx, factOf(c, fmt.Sprint("fact ", i), "text")); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(indexPath(repo.CommonDir))
	if err != nil {
		t.Fatal(err)
	}
	reread := func() (entries, segments int) {
		r := s.open(repo, false)
		return len(r.entries), r.unkept
	}
	if entries, segments := reread(); entries != indexEvery || segments != 0 {
		t.Errorf("with the index: %d entries, %d segments read again", entries, segments)
	}
	for name, damage := range map[string][]byte{
		"cut":     content[:len(content)/2],
		"flipped": append(append([]byte{}, content[:len(content)-1]...), content[len(content)-1]^1),
		"empty":   {},
		"foreign": []byte("something else"),
	} {
		if err := os.WriteFile(indexPath(repo.CommonDir), damage, 0o600); err != nil {
			t.Fatal(err)
		}
		if entries, segments := reread(); entries != indexEvery || segments != indexEvery {
			t.Errorf("with a %s index: %d entries, %d segments read again", name, entries, segments)
		}
	}
	// An index of a tip that the ref no longer has is void.
	if err := os.WriteFile(indexPath(repo.CommonDir), content, 0o600); err != nil {
		t.Fatal(err)
	}
	ref := ownRefs + "memory/" + c.Writer().String() + "/1"
	s.git("app", "update-ref", ref, s.git("app", "rev-parse", ref+"~1")[:40])
	if entries, segments := reread(); entries != indexEvery-1 || segments != indexEvery-1 {
		t.Errorf("with a ref that went back: %d entries, %d segments read again", entries, segments)
	}
	var other [32]byte
	if _, _, err := readIndex(repo.CommonDir, &other, c.Writer()); !errors.Is(err, errIndex) {
		t.Errorf("under another key: %v", err)
	}
}
