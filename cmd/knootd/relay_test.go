package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"knoot.dev/knoot/arbiter/wire"
)

func TestRelayPrintsItsKey(t *testing.T) {
	t.Parallel()
	c, stdout, stderr := testConsole(t)
	state := filepath.Join(t.TempDir(), "state")
	for range 2 { // made, then loaded
		stdout.Reset()
		if code := c.run(context.Background(), []string{"relay", "--state", state, "--print-key"}); code != exitOK {
			t.Fatalf("exits %d: %s", code, stderr)
		}
		if _, err := wire.ParsePin(strings.TrimSuffix(stdout.String(), "\n")); err != nil {
			t.Errorf("it prints %q: %v", stdout, err)
		}
	}
	first := stdout.String()
	stdout.Reset()
	key := filepath.Join(t.TempDir(), "elsewhere.key")
	if code := c.run(context.Background(), []string{"relay", "--state", state, "--key", key, "--print-key"}); code != exitOK || stdout.String() == first {
		t.Errorf("a key elsewhere: exits %d, prints %q", code, stdout)
	}
	if _, err := os.Stat(key); err != nil {
		t.Error(err)
	}
}

func TestRelayIsTypedWrongly(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	for what, args := range map[string]struct {
		args []string
		want string
	}{
		"no state":                 {nil, "--state names the folder"},
		"an argument":              {[]string{"--state", state, "now"}, "now"},
		"an old token alone":       {[]string{"--state", state, "--old-token", "x"}, "--old-token stands beside --token"},
		"an old token, some day":   {[]string{"--state", state, "--token", "y", "--old-token", "x,tomorrow"}, "is no day"},
		"an empty token":           {[]string{"--state", state, "--token", ""}, "1 to 256 characters"},
		"a team that is none":      {[]string{"--state", state, "--team", "us"}, "team id"},
		"a fork that is none":      {[]string{"--state", state, "--team", strings.Repeat("0", 64) + "@12"}, "64 hex digits"},
		"half a certificate":       {[]string{"--state", state, "--tls-cert", "c.pem"}, "belong together"},
		"another kind of log":      {[]string{"--state", state, "--log", "xml"}, "text or json"},
		"a limit that is no limit": {[]string{"--state", state, "--max-claims", "0"}, "--max-claims has to be above 0"},
		"an address of nobody":     {[]string{"--state", state, "--listen", "nowhere"}, "cannot listen on nowhere"},
	} {
		c, _, stderr := testConsole(t)
		if code := c.run(context.Background(), append([]string{"relay"}, args.args...)); code == exitOK || !strings.Contains(stderr.String(), args.want) {
			t.Errorf("%s: exits %d and says %q, want %q in it", what, code, stderr, args.want)
		}
	}
}

// It runs until it is told to end, and says how it is reached.
func TestRelayRuns(t *testing.T) {
	t.Parallel()
	c, _, _ := testConsole(t)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, printed := io.Pipe()
	logged, log := io.Pipe()
	c.stdout, c.stderr = printed, log
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	ended := make(chan int, 1)
	go func() {
		ended <- c.run(ctx, []string{"relay", "--state", t.TempDir(), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log", "json",
			"--token", "@" + token, "--old-token", "before,2026-04-30"})
		printed.Close()
		log.Close()
	}()
	lines := bufio.NewScanner(out)
	if !lines.Scan() || !strings.HasPrefix(lines.Text(), "relay key sha256:") {
		t.Errorf("it prints %q", lines.Text())
	}
	var text strings.Builder
	entries := bufio.NewScanner(logged)
	for entries.Scan() {
		text.WriteString(entries.Text() + "\n")
		if strings.Contains(entries.Text(), `"msg":"admin"`) {
			stop()
		}
	}
	if code := <-ended; code != exitOK {
		t.Errorf("exits %d: %s", code, text.String())
	}
	for _, want := range []string{`"msg":"listening"`, `"msg":"draining"`} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the log lacks %s: %s", want, text.String())
		}
	}
	if strings.Contains(text.String(), "secret") || strings.Contains(text.String(), "any team") {
		t.Errorf("the log says %s", text.String())
	}
}
