package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLogIsRotatedBySize(t *testing.T) {
	path := filepath.Join(t.TempDir(), "knootd.log")
	l, err := openLogFile(path, 100)
	if err != nil {
		t.Fatal(err)
	}
	record := func(c string) []byte { return []byte(strings.Repeat(c, 59) + "\n") }
	for _, c := range []string{"a", "b", "c"} {
		if _, err := l.Write(record(c)); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{path: string(record("c")), path + ".1": string(record("b"))} {
		text, err := os.ReadFile(name)
		info, err2 := os.Stat(name)
		if err != nil || err2 != nil || string(text) != want || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %q, %v, %v", name, text, err, err2)
		}
	}
}

func TestLogHidesPasswords(t *testing.T) {
	var b strings.Builder
	newLogger(&b).Warn("sync failed", "error", errors.New("cannot reach https://ash:hunter2@host/repo.git"), "to", "ssh://git@host/x")
	if text := b.String(); strings.Contains(text, "hunter2") || strings.Contains(text, "git@") || !strings.Contains(text, "https://host/repo.git") {
		t.Error(text)
	}
}
