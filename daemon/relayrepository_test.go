package daemon

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

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
