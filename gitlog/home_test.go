package gitlog

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestWhereTheHomeIs(t *testing.T) {
	env := func(pairs map[string]string) func(string) string { return func(k string) string { return pairs[k] } }
	if h, err := OpenHome(env(map[string]string{"HOME": "/h"})); err != nil || h.Dir != "/h/.knoot" {
		t.Errorf("by HOME: %v, %v", h, err)
	}
	if h, err := OpenHome(env(map[string]string{"HOME": "/h", "KNOOT_HOME": "/k"})); err != nil || h.Dir != "/k" {
		t.Errorf("by KNOOT_HOME: %v, %v", h, err)
	}
	if _, err := OpenHome(env(nil)); !errors.Is(err, ErrNoHome) {
		t.Errorf("without either: %v", err)
	}
}

// Two first inits at once must not end with the keys of one beside those of the other.
func TestKeysAreDrawnOnce(t *testing.T) {
	h := &Home{Dir: filepath.Join(t.TempDir(), "home")}
	if _, err := h.Device(); !errors.Is(err, ErrNoDevice) {
		t.Errorf("before: %v", err)
	}
	devices := make([]*Device, 8)
	var wait sync.WaitGroup
	for i := range devices {
		wait.Go(func() {
			d, err := h.MakeDevice()
			if err != nil {
				t.Error(err)
			}
			devices[i] = d
		})
	}
	wait.Wait()
	for _, d := range devices {
		if d == nil || d.ID != devices[0].ID || d.Age.String() != devices[0].Age.String() || d.Local != devices[0].Local {
			t.Fatal("two processes have different keys")
		}
	}
	for _, name := range []string{signFile, ageFile, localFile} {
		if info, err := os.Stat(h.Path(name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if info, err := os.Stat(h.Dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder: %v, %v", info, err)
	}
}

func TestKeysThatCannotBeUsedSayWhatToDo(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(h *Home) error
		says  string
	}{
		"open to others":     {func(h *Home) error { return os.Chmod(h.Path(signFile), 0o644) }, "chmod 600"},
		"cut short":          {func(h *Home) error { return os.Truncate(h.Path(signFile), 10) }, "backup"},
		"another identity":   {func(h *Home) error { return os.WriteFile(h.Path(ageFile), []byte("AGE-SECRET-KEY-1SECRET\n"), 0o600) }, "backup"},
		"without identity":   {func(h *Home) error { return os.WriteFile(h.Path(ageFile), []byte("# none\n"), 0o600) }, "backup"},
		"local key missing":  {func(h *Home) error { return os.Remove(h.Path(localFile)) }, "backup"},
		"local key of words": {func(h *Home) error { return os.WriteFile(h.Path(localFile), []byte("words\n"), 0o600) }, "backup"},
	} {
		t.Run(name, func(t *testing.T) {
			h := &Home{Dir: filepath.Join(t.TempDir(), "home")}
			if _, err := h.MakeDevice(); err != nil {
				t.Fatal(err)
			}
			if err := c.spoil(h); err != nil {
				t.Fatal(err)
			}
			_, err := h.MakeDevice()
			if err == nil || errors.Is(err, ErrNoDevice) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), h.Dir) {
				t.Errorf("it says %v", err)
			}
			if err != nil && strings.Contains(err.Error(), "SECRET") {
				t.Error("the error repeats the key")
			}
		})
	}
}

func TestKnownKeepsWhatItDoesNotKnow(t *testing.T) {
	h := &Home{Dir: t.TempDir()}
	write(t, h.Path(knownFile), "later = \"kept\"\n\n[other]\nx = 1\n\n[team.ab]\nhead_seq = 3\nhead = \"cd\"\n")
	if err := h.UpdateKnown(func(k *Known) error {
		k.Clones["/a b/.git"] = KnownClone{Team: "ab", Repository: "cd"}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	k, err := h.Known()
	if err != nil {
		t.Fatal(err)
	}
	if k.Teams["ab"].HeadSeq != 3 || k.Clones["/a b/.git"].Repository != "cd" || k.rest["later"] != "kept" || k.rest["other"] == nil {
		t.Errorf("it holds %+v", k)
	}
	failed := errors.New("no")
	if err := h.UpdateKnown(func(k *Known) error { k.Clones = nil; return failed }); !errors.Is(err, failed) {
		t.Errorf("a change that fails: %v", err)
	}
	if k, err := h.Known(); err != nil || len(k.Clones) != 1 {
		t.Errorf("after a change that failed: %+v, %v", k, err)
	}
	write(t, h.Path(knownFile), "not = [toml")
	if _, err := h.Known(); err == nil || !strings.Contains(err.Error(), "knoot trust") {
		t.Errorf("a damaged file: %v", err)
	}
}

func TestKnownTakesChangesOfManyAtOnce(t *testing.T) {
	h := &Home{Dir: t.TempDir()}
	var wait sync.WaitGroup
	for i := range 16 {
		wait.Go(func() {
			if err := h.UpdateKnown(func(k *Known) error {
				k.Clones[string(rune('a'+i))] = KnownClone{Team: "t"}
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if k, err := h.Known(); err != nil || len(k.Clones) != 16 {
		t.Errorf("%d clones, %v", len(k.Clones), err)
	}
}
