package daemon

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/arbiter/wire"
	"knoot.dev/knoot/gitlog"
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

// deafConn is a connection on which nothing is answered.
type deafConn struct{ wire.Conn }

func (deafConn) Open(context.Context) (wire.Stream, error) { return nil, io.ErrUnexpectedEOF }

// The end of a claim that the relay did not answer is told again, as all else is.
func TestAReleaseThatIsNotAnsweredIsToldAgain(t *testing.T) {
	t.Parallel()
	r := &relayRepository{link: &relayLink{}, a: &arbitration{}}
	release := relayTold{request: arbiter.Release{Claims: []arbiter.ClaimID{{1}}, Reason: arbiter.Released}}
	if rest := r.tellAll(t.Context(), deafConn{}, []relayTold{release}); len(rest) != 1 {
		t.Errorf("%d are told again, want 1", len(rest))
	}
}

// What the relay did not take is told again in a while, though nothing else happens.
func TestWhatIsOwedIsToldInAWhile(t *testing.T) {
	h := newRelayHost(t)
	c := newCrew(t, h.address, h.pin)
	begin(c.ash, "one")
	c.connected()
	r := c.a.clones.all()[0].relay
	r.flushed(t.Context())
	lacksNothing(t, r)
	r.mu.Lock()
	r.outbox = append(r.outbox, relayTold{request: arbiter.Idle{}})
	r.mu.Unlock()
	r.tick()
	awaitTrue(t, "it is told", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.outbox) == 0 && !r.telling
	})
}

// lacksNothing waits until a machine knows that the relay has no newer state of the team: the last change of it came by now.
func lacksNothing(t *testing.T, r *relayRepository) {
	t.Helper()
	awaitTrue(t, "the relay has no newer roster", func() bool {
		r.tick()
		r.mu.Lock()
		defer r.mu.Unlock()
		return !r.lacking && r.names.blinding != nil && r.head == r.names.blinding.Roster.Head
	})
}

// A change of the team is fetched for until it is here, and not any longer.
func TestAChangeOfTheTeamIsFetchedForOnce(t *testing.T) {
	h := newRelayHost(t)
	c := newCrew(t, h.address, h.pin)
	c.connected()
	for _, d := range []*daemon{c.a, c.s} {
		r := d.clones.all()[0].relay
		r.takeOurs(&arbiter.Event{Kind: gitlog.RosterChanged}) // which the relay tells all, whoever showed it
		lacksNothing(t, r)
	}
}
