package hook

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"knoot.dev/knoot/daemon/socket"
)

func TestFailuresAreReadAsWritten(t *testing.T) {
	at := socket.Location{Home: filepath.Join(t.TempDir(), "not", "yet")}
	if list, err := Failures(at, time.Time{}); list != nil || err != nil {
		t.Errorf("no file: %v, %v", list, err)
	}
	first := time.Date(2026, 11, 30, 12, 0, 0, 7e6, time.FixedZone("", 3600))
	want := []Failure{{first.UTC(), failBusy}, {first.UTC().Add(time.Hour), failEmpty}}
	for _, f := range want {
		if err := appendFailure(failuresFile(at), f.At, f.Code); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(failuresFile(at))
	if err != nil || string(data) != "2026-11-30T11:00:00.007Z daemon-slow\n2026-11-30T12:00:00.007Z payload-empty\n" {
		t.Errorf("%q, %v", data, err)
	}
	if list, err := Failures(at, time.Time{}); err != nil || !reflect.DeepEqual(list, want) {
		t.Errorf("%v, %v", list, err)
	}
	if list, err := Failures(at, want[1].At); err != nil || !reflect.DeepEqual(list, want[1:]) {
		t.Errorf("since the second: %v, %v", list, err)
	}
	for path, mode := range map[string]os.FileMode{at.Home: 0o700, failuresFile(at): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
}

func TestFailuresOfBrokenLines(t *testing.T) {
	at := socket.Location{Home: t.TempDir()}
	text := "it ends in the\n2026-11-30T11:00:00.007Z \n2026-11-30T11:00:00.007Z <script>\n\n2026-11-30T11:00:00.007Z slow\n2026-11-30T11:00:00"
	if err := os.WriteFile(failuresFile(at), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := Failures(at, time.Time{})
	if err != nil || len(list) != 1 || list[0].Code != failSlow {
		t.Errorf("%v, %v", list, err)
	}
}

func TestFailuresStaySmall(t *testing.T) {
	at := socket.Location{Home: t.TempDir()}
	file := failuresFile(at)
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	line := now.Format(failureTime) + " slow\n"
	if err := os.WriteFile(file, []byte(strings.Repeat(line, maxFailures/len(line))), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := appendFailure(file, now.Add(time.Minute), failBusy+strings.Repeat("-", 500)); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil || len(data) > maxFailures || len(data) < maxFailures/3 {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	lines := strings.SplitAfter(string(data), "\n")
	last := lines[len(lines)-2]
	if lines[0] != line || len(last) != maxFailure || !strings.Contains(last, failBusy) {
		t.Errorf("from %q to %q", lines[0], last)
	}
	if rest, err := filepath.Glob(file + ".*"); err != nil || rest != nil {
		t.Errorf("left over: %v, %v", rest, err)
	}
}

func TestFailuresOfHooksSideBySide(t *testing.T) {
	at := socket.Location{Home: t.TempDir()}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if err := appendFailure(failuresFile(at), time.Now(), failSlow); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if list, err := Failures(at, time.Time{}); err != nil || len(list) != 50 {
		t.Errorf("%d, %v", len(list), err)
	}
}

func FuzzFailures(f *testing.F) {
	f.Add([]byte("2026-11-30T11:00:00.007Z daemon-slow\n"))
	f.Add([]byte("x\n\n \n"))
	at := socket.Location{Home: f.TempDir()}
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(failuresFile(at), data, 0o600); err != nil {
			t.Fatal(err)
		}
		list, err := Failures(at, time.Time{})
		if err != nil || len(list) > strings.Count(string(data), "\n")+1 {
			t.Errorf("%v, %v", list, err)
		}
	})
}
