package daemon

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"knoot.dev/knoot/gitlog"
)

// dump writes sessions so that two of them can be compared.
func dump(all sessions) string {
	var lines []string
	for _, s := range all {
		var announced []string
		for common := range s.announced {
			announced = append(announced, common)
		}
		slices.Sort(announced)
		lines = append(lines, fmt.Sprintf("%s %d %d %d %q %d %d %q %q %v %q %v %q %v", s.key, s.started, s.seen, s.ended, s.home, s.process, s.birth,
			s.person, s.name, s.private, s.intent, s.invited, announced, s.owed))
		for _, c := range s.contexts {
			told, _ := json.Marshal(c.told)
			delivered, _ := json.Marshal(c.delivered)
			touched, _ := json.Marshal(c.touched)
			lines = append(lines, fmt.Sprintf("%s/%s %d %d %d %s %s %s", s.key, c.subagent, c.turn, c.began, c.spent, told, delivered, touched))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func TestStateFileKeepsWhatWasWrittenWhole(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		path := filepath.Join(dir, "sessions")
		_ = os.Remove(path)
		key := [32]byte{1}
		s, _, err := openStateFile(path, key, func(*stateRecord) { t.Fatal("a record in a new file") })
		if err != nil {
			t.Fatal(err)
		}
		ends := []int64{s.size}
		n := rapid.IntRange(0, 12).Draw(t, "records")
		for i := range n {
			if err := s.append(drawRecord(t, gitlog.Millis(i+1))); err != nil {
				t.Fatal(err)
			}
			ends = append(ends, s.size)
		}
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
		// A crash leaves any part of the last write, or of all of them.
		cut := rapid.Int64Range(ends[0], ends[n]).Draw(t, "cut")
		if err := os.Truncate(path, cut); err != nil {
			t.Fatal(err)
		}
		whole := 0
		for whole < n && ends[whole+1] <= cut {
			whole++
		}
		read := func() (out []gitlog.Millis) {
			s, damaged, err := openStateFile(path, key, func(r *stateRecord) { out = append(out, r.At) })
			if err != nil || damaged != 0 {
				t.Fatalf("%v, %d damaged", err, damaged)
			}
			if err := s.append(&stateRecord{At: 1000, Session: sessionKey{"claude", "a"}}); err != nil {
				t.Fatal(err)
			}
			if err := s.close(); err != nil {
				t.Fatal(err)
			}
			return out
		}
		first := read()
		if len(first) != whole {
			t.Fatalf("%d records of %d whole ones", len(first), whole)
		}
		if second := read(); len(second) != whole+1 || second[whole] != 1000 {
			t.Fatalf("after an append: %v", second)
		}
	})
}

func TestStateFileThatIsDamagedOrAnothers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sessions")
	key := [32]byte{1}
	fill := func() []byte {
		_ = os.Remove(path)
		s, _, err := openStateFile(path, key, func(*stateRecord) {})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			if err := s.append(&stateRecord{At: gitlog.Millis(i + 1), Session: sessionKey{"claude", "a"}}); err != nil {
				t.Fatal(err)
			}
		}
		_ = s.close()
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	for name, each := range map[string]struct {
		change        func([]byte) []byte
		key           [32]byte
		read, damaged int
	}{
		"as it is":       {func(b []byte) []byte { return b }, key, 3, 0},
		"a flipped bit":  {func(b []byte) []byte { b[len(stateHeader)+30] ^= 1; return b }, key, 2, 1},
		"another key":    {func(b []byte) []byte { return b }, [32]byte{2}, 0, 3},
		"zeros":          {func(b []byte) []byte { return make([]byte, len(b)) }, key, 0, 0},
		"empty":          {func([]byte) []byte { return nil }, key, 0, 0},
		"half a header":  {func(b []byte) []byte { return b[:5] }, key, 0, 0},
		"a great length": {func(b []byte) []byte { b[len(stateHeader)] = 0xff; return b }, key, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			writeFile(t, path, string(each.change(fill())))
			read := 0
			s, damaged, err := openStateFile(path, each.key, func(*stateRecord) { read++ })
			if err != nil || read != each.read || damaged != each.damaged {
				t.Errorf("%d read, %d damaged, %v; want %d, %d", read, damaged, err, each.read, each.damaged)
			}
			_ = s.close()
		})
	}
}

func TestStateIsReadWhileADaemonRuns(t *testing.T) {
	m := newMachine(t)
	home := m.gitlogHome()
	if _, err := home.MakeDevice(); err != nil {
		t.Fatal(err)
	}
	d := m.start(Options{})
	now := d.now()
	d.state.mu.Lock()
	tell := func(session string, at gitlog.Millis) {
		d.state.commit(&stateRecord{At: at, Session: sessionKey{"claude", session}, Shown: &Shown{Agent: "claude", Session: session, At: at.Time(), Text: session}})
	}
	tell("new", now)
	tell("old", now-stateKept-1)
	tell("middle", now-1000)
	d.state.mu.Unlock()
	texts := func(at gitlog.Millis) string {
		history, err := ReadHistory(home, at.Time())
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, s := range history.Shown {
			out = append(out, s.Text)
		}
		return strings.Join(out, " ")
	}
	if got := texts(now); got != "middle new" {
		t.Errorf("shown of 7 days %q", got)
	}
	if got := texts(now - 2000); got != "old middle new" {
		t.Errorf("shown before %q", got)
	}
	d.state.compact(now)
	if got := texts(now - 2000); got != "middle new" {
		t.Errorf("shown after the file was written anew %q", got)
	}
	d.state.mu.Lock()
	d.state.commit(&stateRecord{At: now, Session: sessionKey{"claude", "middle"}, Aside: true, Unshown: (now - 1000).Time()})
	d.state.mu.Unlock()
	if got := texts(now); got != "new" {
		t.Errorf("shown after one was taken back %q", got)
	}
	d.state.compact(now)
	if got := texts(now); got != "new" {
		t.Errorf("shown after the file was written anew without it %q", got)
	}
	live, err := LiveSessions(home, now)
	if err != nil || len(live) != 2 {
		t.Errorf("live sessions %+v, %v", live, err)
	}
}

// keptState is a state with a file, as it is before the first hook.
func keptState(t *testing.T, m *machine) *state {
	t.Helper()
	if _, err := m.gitlogHome().MakeDevice(); err != nil {
		t.Fatal(err)
	}
	st := newState(m.gitlogHome(), "sessions", slog.New(slog.DiscardHandler))
	if err := st.load(1); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(st.close)
	return st
}

func TestStateIsWrittenAnewWhenItHasGrown(t *testing.T) {
	st := keptState(t, newMachine(t))
	now := gitlog.Millis(10)
	text := strings.Repeat("x", 64<<10)
	st.grows = 16 * int64(len(text))
	for range 16 {
		now++
		st.mu.Lock()
		st.commit(&stateRecord{At: now, Session: sessionKey{"claude", "one"}, Shown: &Shown{Agent: "claude", Session: "one", At: now.Time(), Text: text}})
		st.mu.Unlock()
	}
	before := st.file
	st.tick(now)
	anew := st.file
	if anew == before {
		t.Error("the file has grown, and is what it was")
	}
	if anew.size < st.grows {
		t.Fatalf("%d bytes are kept, too few for this test", anew.size)
	}
	st.tick(now)
	if st.file != anew {
		t.Error("the file has not grown, and was written anew")
	}

	// While it is written, hooks go on, and what they say is in it.
	meanwhile := 0
	for tries := 0; meanwhile < 3 && tries < 1000; tries++ {
		done := make(chan struct{})
		go func() {
			defer close(done)
			st.compact(now)
		}()
		for came := false; !came; {
			select {
			case <-done:
				came = true
			default:
				st.mu.Lock()
				if came = st.renewing; came {
					meanwhile++
					st.commit(&stateRecord{At: now, Session: sessionKey{"claude", fmt.Sprint("meanwhile ", meanwhile)}})
				}
				st.mu.Unlock()
			}
		}
		<-done
	}
	if meanwhile == 0 {
		t.Error("no hook came through while the file was written anew")
	}
	st.close()
	known := dump(st.sessions)
	st.sessions = sessions{}
	if err := st.load(now); err != nil {
		t.Fatal(err)
	}
	if read := dump(st.sessions); read != known {
		t.Errorf("read again %d bytes of sessions, known were %d", len(read), len(known))
	}
}

func TestSessionOfLongAgoIsForgotten(t *testing.T) {
	st := keptState(t, newMachine(t))
	st.mu.Lock()
	st.commit(&stateRecord{At: 10, Session: sessionKey{"claude", "old"}})
	st.commit(&stateRecord{At: 20, Session: sessionKey{"claude", "new"}})
	st.mu.Unlock()
	st.tick(15 + stateKept)
	if st.sessions[sessionKey{"claude", "old"}] != nil || st.sessions[sessionKey{"claude", "new"}] == nil {
		t.Errorf("known %v", slices.Collect(maps.Keys(st.sessions)))
	}
}

func FuzzScanState(f *testing.F) {
	key := [32]byte{1}
	f.Add([]byte(stateHeader))
	f.Add([]byte(stateHeader + "\x00\x00\x00\x01x"))
	f.Fuzz(func(t *testing.T, text []byte) {
		end, _, _ := scanState(text, &key, "sessions", func(*stateRecord) {})
		if end > int64(len(text)) {
			t.Errorf("the end %d is behind %d bytes", end, len(text))
		}
	})
}
