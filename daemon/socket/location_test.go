package socket

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func env(pairs ...string) func(string) string {
	return func(key string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == key {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func TestLocate(t *testing.T) {
	for name, c := range map[string]struct {
		env       func(string) string
		home, dir string
	}{
		"home":                      {env("HOME", "/home/ada"), "/home/ada/.knoot", "/home/ada/.knoot"},
		"runtime directory":         {env("HOME", "/home/ada", "XDG_RUNTIME_DIR", "/run/user/7"), "/home/ada/.knoot", "/run/user/7/knoot"},
		"relative runtime":          {env("HOME", "/home/ada", "XDG_RUNTIME_DIR", "run"), "/home/ada/.knoot", "/home/ada/.knoot"},
		"own home":                  {env("HOME", "/home/ada", "KNOOT_HOME", "/srv/k/"), "/srv/k", "/srv/k"},
		"own home wins":             {env("KNOOT_HOME", "/srv/k", "XDG_RUNTIME_DIR", "/run/user/7"), "/srv/k", "/srv/k"},
		"relative own home ignored": {env("HOME", "/home/ada", "KNOOT_HOME", "k"), "/home/ada/.knoot", "/home/ada/.knoot"},
	} {
		got, err := Locate(c.env)
		if err != nil || got != (Location{Home: c.home, Dir: c.dir}) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for name, env := range map[string]func(string) string{
		"nothing":          env(),
		"relative home":    env("HOME", "ada"),
		"only the runtime": env("XDG_RUNTIME_DIR", "/run/user/7"),
	} {
		if _, err := Locate(env); !errors.Is(err, ErrNoHome) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMakeClosesDirectories(t *testing.T) {
	base := t.TempDir()
	l := Location{Home: filepath.Join(base, "a", "home"), Dir: filepath.Join(base, "run")}
	if err := os.Mkdir(l.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(l.Dir, 0o777); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := l.Make(); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{l.Home, l.Dir} {
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v %v", dir, info.Mode(), err)
		}
	}
}

func TestMakeRefusesALongPath(t *testing.T) {
	l := Location{Home: filepath.Join(t.TempDir(), strings.Repeat("h", 120))}
	l.Dir = l.Home
	if err := l.Make(); err == nil || !strings.Contains(err.Error(), "KNOOT_HOME") {
		t.Errorf("no remedy in %v", err)
	}
}
