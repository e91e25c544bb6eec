package integration

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"knoot.dev/knoot/integration/stage"
)

// silent runs the hook with a payload and demands what the first promise says: exit 0, nothing printed.
func silent(t *testing.T, p *stage.Person, dir, payload string) time.Duration {
	t.Helper()
	began := time.Now()
	result := p.In(t).Try(dir, payload, "knoot", "hook", "claude")
	took := time.Since(began)
	if result != (stage.Result{}) {
		t.Errorf("a failed hook is exit 0 and silence, this was exit %d, %q, %q", result.Code, result.Stdout, result.Stderr)
	}
	return took
}

// counted demands that what is done fails one hook, which leaves one line.
func counted(t *testing.T, p *stage.Person, do func()) {
	t.Helper()
	before := strings.Count(failures(t, p), "\n")
	do()
	if after := strings.Count(failures(t, p), "\n"); after != before+1 {
		t.Errorf("a failure leaves one line in the log, this left %d:\n%s", after-before, failures(t, p))
	}
}

func TestBadPayloadsAreSilenceAndOneLine(t *testing.T) {
	s := newShop(t)
	s.remember(t)
	s.priya.StartDaemon()
	session := stage.Session{Person: s.priya, ID: "bad", Dir: s.hers}
	good := session.Payload("PreToolUse", map[string]any{"tool_name": "Read", "tool_use_id": "toolu_bad",
		"tool_input": map[string]any{"file_path": filepath.Join(s.hers, factPath)}})

	for name, payload := range map[string]string{
		"empty":           "",
		"white space":     " \n\t ",
		"no JSON":         "SessionStart\n",
		"another value":   "[1, 2, 3]\n",
		"malformed":       strings.Replace(good, ":", "=", 1),
		"truncated":       good[:len(good)/2],
		"a wrong type":    strings.Replace(good, `"session_id":"bad"`, `"session_id":{"a":[]}`, 1),
		"20 MB":           strings.Replace(good, "toolu_bad", strings.Repeat("x", 20<<20), 1),
		"nested too deep": strings.Repeat(`{"a":`, 100_000),
	} {
		t.Run(name, func(t *testing.T) {
			counted(t, s.priya, func() { silent(t, s.priya, s.hers, payload) })
		})
	}
	for name, payload := range map[string]string{
		"led by a byte order mark": "\ufeff" + good,
		"no UTF-8":                 strings.Replace(good, "toolu_bad", "toolu\xff\xfe", 1),
	} {
		t.Run(name, func(t *testing.T) {
			counted(t, s.priya, func() { silent(t, s.priya, s.hers, payload) })
		})
	}
	once(t, "a read after all of these", session.Hears(factPath, factText), factText)
}

func TestAHookThatNobodyFeedsEnds(t *testing.T) {
	s := newShop(t)
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	defer writer.Close()
	command := s.priya.Command(s.hers, "knoot", "hook", "claude")
	command.Stdin = reader
	began := time.Now()
	output, err := command.CombinedOutput()
	if err != nil || len(output) > 0 {
		t.Errorf("a hook whose stdin stays open: %v, %q", err, output)
	}
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("a hook whose stdin stays open took %v; it waits 2 s", took)
	}
}

func TestReportTrajectory54BrokenDaemonsAreSilence(t *testing.T) {
	s := newShop(t)
	s.remember(t)
	session := stage.Session{Person: s.priya, ID: "broken", Dir: s.hers}
	payload := session.Payload("PreToolUse", map[string]any{"tool_name": "Read", "tool_use_id": "toolu_broken",
		"tool_input": map[string]any{"file_path": filepath.Join(s.hers, factPath)}})

	t.Run("none", func(t *testing.T) { silent(t, s.priya, s.hers, payload) })
	t.Run("a file where the socket belongs", func(t *testing.T) {
		s.priya.Write(s.priya.Socket(), "")
		defer os.Remove(s.priya.Socket())
		silent(t, s.priya, s.hers, payload)
	})
	t.Run("a socket that nobody listens on", func(t *testing.T) {
		listen(t, s.priya, func(net.Conn) {}).(*net.UnixListener).SetUnlinkOnClose(false)
		silent(t, s.priya, s.hers, payload)
	})
	for name, answer := range brokenAnswers() {
		t.Run(name, func(t *testing.T) {
			listen(t, s.priya, answer)
			var took time.Duration
			counted(t, s.priya, func() { took = silent(t, s.priya, s.hers, payload) })
			if took > time.Second {
				t.Errorf("it took %v; the limit is 300 ms after stdin", took)
			}
		})
	}
	t.Run("a socket of somebody else", func(t *testing.T) {
		if os.Getuid() != 0 {
			t.Skip("only root can give a socket to somebody else")
		}
		listen(t, s.priya, func(c net.Conn) {
			c.Write([]byte(`{"version":"1.0.0","answer":{"context":"words of somebody else"}}` + "\n"))
		})
		if err := os.Chown(s.priya.Socket(), 65534, 65534); err != nil {
			t.Fatal(err)
		}
		counted(t, s.priya, func() { silent(t, s.priya, s.hers, payload) })
	})

	s.priya.StartDaemon()
	once(t, "a good daemon after all of these", session.Hears(factPath, factText), factText)
}

// brokenAnswers are daemons that do not do what they should.
func brokenAnswers() map[string]func(net.Conn) {
	return map[string]func(net.Conn){
		"hangs":               func(net.Conn) {},
		"closes at once":      func(c net.Conn) { c.Close() },
		"answers garbage":     func(c net.Conn) { c.Write([]byte("\x00\xff not JSON\n")) },
		"answers half a line": func(c net.Conn) { c.Write([]byte(`{"version":"1.0.0","answer":{"context":"x`)); c.Close() },
		"answers for ever": func(c net.Conn) {
			for err := error(nil); err == nil; {
				_, err = c.Write([]byte(strings.Repeat(" ", 1<<16)))
			}
		},
		"answers an error": func(c net.Conn) { c.Write([]byte(`{"version":"1.0.0","error":"the disk is full"}` + "\n")) },
	}
}

// listen takes the daemon's socket and answers each connection with answer; it ends with the test.
func listen(t *testing.T, p *stage.Person, answer func(net.Conn)) net.Listener {
	t.Helper()
	listener, err := net.Listen("unix", p.Socket())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(p.Socket(), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		listener.Close()
		os.Remove(p.Socket())
	})
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { connection.Close() })
			go answer(connection)
		}
	}()
	return listener
}

func TestHooksInBadSurroundingsAreSilence(t *testing.T) {
	s := newShop(t)
	session := stage.Session{Person: s.priya, ID: "lost", Dir: s.hers}
	payload := session.Payload("SessionStart", map[string]any{"source": "startup"})

	t.Run("no HOME", func(t *testing.T) {
		command := s.priya.Command(s.hers, "knoot", "hook", "claude")
		command.Env = []string{"PATH=" + os.Getenv("PATH")}
		command.Stdin = strings.NewReader(payload)
		if output, err := command.CombinedOutput(); err != nil || len(output) > 0 {
			t.Errorf("no HOME: %v, %q", err, output)
		}
	})
	t.Run("a home that is a file", func(t *testing.T) {
		homeless := s.priya.In(t)
		homeless.KnootHome = filepath.Join(t.TempDir(), "file")
		homeless.Write(homeless.KnootHome, "")
		silent(t, homeless, s.hers, payload)
	})
	t.Run("a working directory that is gone", func(t *testing.T) {
		gone := filepath.Join(t.TempDir(), "gone")
		silent(t, s.priya, s.hers, stage.Session{Person: s.priya, ID: "lost", Dir: gone}.Payload("SessionStart", nil))
	})
	t.Run("knootd is missing", func(t *testing.T) {
		alone := s.priya.In(t)
		alone.Bin = t.TempDir()
		data, err := os.ReadFile(filepath.Join(s.priya.Bin, "knoot"))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(alone.Bin, "knoot"), data, 0o755); err != nil {
			t.Fatal(err)
		}
		silent(t, alone, s.hers, payload)
		if result := alone.Try(s.hers, "", "knoot", "status"); result.Code != 1 || !strings.Contains(result.Stderr, "knootd") {
			t.Errorf("a command without knootd: %+v", result)
		}
	})
	t.Run("KNOOT=off", func(t *testing.T) {
		off := s.priya.In(t)
		off.Extra = []string{"KNOOT=off"}
		silent(t, off, s.hers, payload)
	})
	t.Run("CI", func(t *testing.T) {
		ci := s.priya.In(t)
		ci.Extra = []string{"CI=true"}
		silent(t, ci, s.hers, payload)
	})
}

// The command that init installs, as agents run it.
func TestTheInstalledCommandIsSilentWithoutKnoot(t *testing.T) {
	s := newShop(t)
	settings, err := os.ReadFile(filepath.Join(s.hers, ".claude", "settings.json"))
	if err != nil {
		t.Fatal(err)
	}
	const installed = `k=${KNOOT_BIN:-knoot}; [ "$KNOOT" = off ] || ! command -v "$k" >/dev/null 2>&1 || "$k" hook claude 2>/dev/null; exit 0`
	if !strings.Contains(string(settings), strings.ReplaceAll(installed, `"`, `\"`)) &&
		!strings.Contains(string(settings), strings.NewReplacer(`"`, `\"`, `>`, `\u003e`, `&`, `\u0026`).Replace(installed)) {
		t.Fatalf("the installed command is another one:\n%s", settings)
	}
	for name, environment := range map[string][]string{
		"no knoot":                        {"PATH=" + os.Getenv("PATH")},
		"KNOOT_BIN that leads nowhere":    {"PATH=" + os.Getenv("PATH"), "KNOOT_BIN=/nowhere/my tools/knoot"},
		"KNOOT=off":                       {"PATH=" + os.Getenv("PATH"), "KNOOT_BIN=" + filepath.Join(s.priya.Bin, "knoot"), "KNOOT=off"},
		"KNOOT_BIN that is no executable": {"PATH=" + os.Getenv("PATH"), "KNOOT_BIN=" + filepath.Join(s.hers, "README.md")},
	} {
		command := s.priya.Command(s.hers, "sh", "-c", installed)
		command.Env = environment
		command.Stdin = strings.NewReader("{}")
		if output, err := command.CombinedOutput(); err != nil || len(output) > 0 {
			t.Errorf("%s: %v, %q", name, err, output)
		}
	}
}
