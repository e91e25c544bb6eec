package daemon

import (
	"testing"
	"testing/synctest"
	"time"
)

// Tries come ever more seldom, and after one that lasted at once.
func TestRetriesBeginAnewAfterOneThatLasted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := newRetries()
		if got := tries.pause(); got != 0 {
			t.Errorf("the first time: %v", got)
		}
		for range 10 {
			tries.ended(reconnectMost / 2)
		}
		if got := tries.pause(); got < reconnectMost/2 {
			t.Errorf("the eleventh time: %v", got)
		}
		time.Sleep(reconnectPatience)
		tries.ended(0)
		if got := tries.pause(); got < reconnectLong/2 {
			t.Errorf("after a long time: %v", got)
		}
		tries.ended(2 * reconnectMost)
		if got := tries.pause(); got != 0 {
			t.Errorf("after one that lasted: %v", got)
		}
		tries.ended(0)
		if got := tries.pause(); got > reconnectMost {
			t.Errorf("then: %v", got)
		}
	})
}
