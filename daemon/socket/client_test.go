package socket

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// daemon listens at a new location; answer serves each connection and closes it.
func daemon(t testing.TB, answer func(net.Conn)) Location {
	t.Helper()
	dir, err := os.MkdirTemp("", "k") // t.TempDir has the test's name, which may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l := Location{Home: dir, Dir: dir}
	if answer == nil {
		return l
	}
	ln, err := net.Listen("unix", l.Socket())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			answer(conn)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = ln.Close(); <-done })
	return l
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestAskCarriesARequestAndItsAnswer(t *testing.T) {
	requests := make(chan *Request, 1)
	l := daemon(t, func(c net.Conn) {
		req, err := ReadRequest(bufio.NewReader(c))
		if err != nil {
			t.Error(err)
			return
		}
		requests <- req
		if err := WriteResponse(c, &Response{Answer: &Answer{Context: "line\nline é"}}); err != nil {
			t.Error(err)
		}
	})
	resp, err := l.Ask(within(t, time.Minute), &Request{Op: "hook", Hook: &Hook{Agent: "claude", Places: []Place{{Root: "/r", Reads: []string{"a b"}}}}})
	if err != nil {
		t.Fatal(err)
	}
	if resp.Answer == nil || resp.Answer.Context != "line\nline é" || resp.Version != Version {
		t.Errorf("answer %+v", resp)
	}
	got := <-requests
	if got.Op != "hook" || got.Version != Version || got.Hook.Places[0].Reads[0] != "a b" {
		t.Errorf("request %+v", got)
	}
}

func TestAskToleratesNewerKeys(t *testing.T) {
	l := daemon(t, func(c net.Conn) {
		_, _ = ReadRequest(bufio.NewReader(c))
		_, _ = io.WriteString(c, `{"version":"9.0.0","answer":{"context":"x","later":[1]},"mood":{}}`+"\n"+"more")
	})
	resp, err := l.Ask(within(t, time.Minute), &Request{Op: "hello"})
	if err != nil || resp.Answer.Context != "x" {
		t.Errorf("%+v, %v", resp, err)
	}
	req, err := ReadRequest(bufio.NewReader(strings.NewReader(`{"op":"hello","later":1}` + "\n")))
	if err != nil || req.Op != "hello" {
		t.Errorf("%+v, %v", req, err)
	}
}

func TestAskFailures(t *testing.T) {
	say := func(s string) func(net.Conn) {
		return func(c net.Conn) {
			_, _ = ReadRequest(bufio.NewReader(c))
			_, _ = io.WriteString(c, s)
		}
	}
	for name, c := range map[string]struct {
		answer func(net.Conn)
		want   error
	}{
		"none":          {nil, ErrAbsent},
		"closes":        {func(net.Conn) {}, ErrGone},
		"says nothing":  {say(""), ErrGone},
		"half":          {say(`{"version":"1.0.0","answer":{"con`), ErrGarbage},
		"no newline":    {say(`{"version":"1.0.0"}`), ErrGarbage},
		"empty line":    {say("\n"), ErrGarbage},
		"no JSON":       {say("HTTP/1.1 400 Bad Request\r\n\r\n"), ErrGarbage},
		"no object":     {say("null\n"), ErrGarbage},
		"another shape": {say(`{"answer":"x"}` + "\n"), ErrGarbage},
		"too long":      {say(`{"error":"` + strings.Repeat("x", MaxLine) + "\"}\n"), ErrGarbage},
		"too long, open": {func(c net.Conn) {
			_, _ = ReadRequest(bufio.NewReader(c))
			for {
				if _, err := c.Write(make([]byte, 1<<16)); err != nil {
					return
				}
			}
		}, ErrGarbage},
	} {
		t.Run(name, func(t *testing.T) {
			resp, err := daemon(t, c.answer).Ask(within(t, time.Minute), &Request{Op: "hello"})
			if !errors.Is(err, c.want) {
				t.Errorf("%+v, %v; want %v", resp, err, c.want)
			}
		})
	}
}

func TestAskEndsWithItsContext(t *testing.T) {
	hang := func(c net.Conn) { _, _ = io.Copy(io.Discard, c) } // until the client leaves
	l := daemon(t, hang)
	if _, err := l.Ask(within(t, 20*time.Millisecond), &Request{Op: "hello"}); !errors.Is(err, ErrBusy) {
		t.Errorf("deadline: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	l = daemon(t, func(c net.Conn) { cancel(); hang(c) })
	if _, err := l.Ask(ctx, &Request{Op: "hello"}); !errors.Is(err, ErrBusy) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestAskWaitsForAFullBacklogOnlySoLong(t *testing.T) {
	l := daemon(t, nil)
	ln, err := net.Listen("unix", l.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for range 100 { // nobody accepts; the kernel holds some and then refuses, or they wait for an answer in vain
		if _, err := l.Ask(within(t, time.Millisecond), &Request{Op: "hello"}); !errors.Is(err, ErrBusy) {
			t.Fatal(err)
		}
	}
}

func TestAskRefusesWhatOthersCouldHavePutThere(t *testing.T) {
	called := func(net.Conn) { t.Error("something was sent") }
	for name, spoil := range map[string]func(Location) error{
		"directory of all":   func(l Location) error { return os.Chmod(l.Dir, 0o777) },
		"directory of group": func(l Location) error { return os.Chmod(l.Dir, 0o770) },
		"a link": func(l Location) error {
			if err := os.Rename(l.Socket(), l.Socket()+"2"); err != nil {
				return err
			}
			return os.Symlink(l.Socket()+"2", l.Socket())
		},
		"a file": func(l Location) error {
			if err := os.Remove(l.Socket()); err != nil {
				return err
			}
			return os.WriteFile(l.Socket(), nil, 0o600)
		},
		"another's socket":    func(l Location) error { return os.Chown(l.Socket(), 12345, -1) },
		"another's directory": func(l Location) error { return os.Chown(l.Dir, 12345, -1) },
	} {
		t.Run(name, func(t *testing.T) {
			l := daemon(t, called)
			if err := spoil(l); errors.Is(err, os.ErrPermission) {
				t.Skip("giving a file away needs root")
			} else if err != nil {
				t.Fatal(err)
			}
			if _, err := l.Ask(within(t, time.Minute), &Request{Op: "hello"}); !errors.Is(err, ErrForeign) {
				t.Error(err)
			}
		})
	}
}

func TestAskWithoutADirectory(t *testing.T) {
	l := daemon(t, nil)
	for _, dir := range []string{filepath.Join(l.Dir, "none"), filepath.Join(l.Dir, "file", "below")} {
		if err := os.WriteFile(filepath.Join(l.Dir, "file"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := (Location{Home: dir, Dir: dir}).Ask(within(t, time.Minute), &Request{Op: "hello"}); !errors.Is(err, ErrAbsent) {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

func TestAskAfterTheDaemonDied(t *testing.T) {
	l := daemon(t, nil)
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: l.Socket()})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false) // a socket that a killed daemon left
	_ = ln.Close()
	if _, err := l.Ask(within(t, time.Minute), &Request{Op: "hello"}); !errors.Is(err, ErrAbsent) {
		t.Error(err)
	}
}

func TestLongLines(t *testing.T) {
	l := daemon(t, func(net.Conn) { t.Error("something was sent") })
	body, err := json.Marshal(strings.Repeat("x", MaxLine))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Ask(within(t, time.Minute), &Request{Op: "remember", Body: body}); err == nil {
		t.Error("a long request was sent")
	}
	var out strings.Builder
	if err := WriteResponse(&out, &Response{Body: body}); err != nil {
		t.Fatal(err)
	}
	var resp Response
	if err := json.Unmarshal([]byte(out.String()), &resp); err != nil || resp.Error == "" || resp.Body != nil {
		t.Errorf("long answer: %v, %v", resp, err)
	}
	if _, err := ReadRequest(bufio.NewReader(strings.NewReader(strings.Repeat(" ", MaxLine) + "{}\n"))); err == nil {
		t.Error("a long request was read")
	}
	if _, err := ReadRequest(bufio.NewReader(strings.NewReader(""))); err != io.EOF {
		t.Error(err)
	}
}

func FuzzReadRequest(f *testing.F) {
	f.Add([]byte(`{"op":"hook","hook":{"agent":"claude","event":"Stop","tasks":[{"id":"1"}]}}` + "\n"))
	f.Add([]byte("{}\n{}"))
	f.Add([]byte("\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		req, err := ReadRequest(bufio.NewReader(strings.NewReader(string(b))))
		if (req == nil) == (err == nil) {
			t.Errorf("%v, %v", req, err)
		}
	})
}
