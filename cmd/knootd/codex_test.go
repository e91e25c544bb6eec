package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestReportCodex18607OlderVersion(t *testing.T) {
	t.Parallel()
	for a, want := range map[string]bool{
		"0.170.9": true, "0.99.0": true, "0.171": true, "0.170.0-alpha.3": true, "0": true,
		"0.171.0": false, "0.171.1": false, "0.200.0": false, "1.0": false, "1.0.0-beta": false,
		"": false, "dev": false, "0.x": false,
	} {
		if got := olderVersion(a, "0.171.0"); got != want {
			t.Errorf("%q is older than 0.171.0: %v", a, got)
		}
	}
}

// One that hangs holds nobody up, and neither does what it has started.
func TestACodexThatHangsIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "codex")
	if err := os.WriteFile(program, []byte("#!/bin/sh\nsleep 5 &\nread -r line\nwait\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := askCodex(ctx, program, t.TempDir()); err == nil || !strings.Contains(err.Error(), "did not answer") {
		t.Error(err)
	}
}
