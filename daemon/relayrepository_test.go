package daemon

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// Git is asked once about a worktree that is gone, for all that is told together; and again for what is told later.
func TestGitIsAskedOnceAboutAWorktreeThatIsGone(t *testing.T) {
	bin, gone := t.TempDir(), t.TempDir()
	asked := filepath.Join(bin, "asked")
	if err := os.WriteFile(filepath.Join(bin, "git"), []byte("#!/bin/sh\necho >> '"+asked+"'\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	r := &relayRepository{d: &daemon{clones: &clones{}}, dirs: map[string]string{}}
	times := func(events int) int {
		told := make([]relayTold, events)
		for i := range told {
			told[i].happened = &occurrence{Root: gone}
		}
		_ = os.Remove(asked)
		r.tellAll(t.Context(), nil, told)
		text, err := os.ReadFile(asked)
		if err != nil {
			t.Fatal(err)
		}
		return len(text)
	}
	if one, many := times(1), times(20); one != many {
		t.Errorf("for one event git is asked %d times, for twenty %d times", one, many)
	}
}

// Where others are at work all the time it is never quiet, and claims are asked for all the same.
func TestQuietIsNotAwaitedForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		came := make(chan struct{})
		go func() {
			for {
				select {
				case <-time.After(quietFor / 3):
				case <-ctx.Done():
					return
				}
				select {
				case came <- struct{}{}:
				case <-ctx.Done():
					return
				}
			}
		}()
		new(relayRepository).awaitQuiet(ctx, came)
		if ctx.Err() != nil {
			t.Error("it was waited for an hour")
		}
		cancel()
		synctest.Wait()
	})
}
