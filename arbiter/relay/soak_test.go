package relay

import (
	"context"
	"crypto/ed25519"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"knoot.dev/knoot/gitlog"
	"knoot.dev/knoot/integration/stage"
)

// Under steady load a relay's memory does not grow once its log has as much as it may: KNOOT_SOAK=1h says so over an hour.
func TestMemoryDoesNotGrow(t *testing.T) {
	t.Parallel()
	long, err := time.ParseDuration(os.Getenv("KNOOT_SOAK"))
	if err != nil {
		long = 6 * time.Second
	}
	relay := &child{t: t, state: t.TempDir(), address: stage.Address(t), bytes: 2 << 20}
	relay.start()
	defer relay.kill()
	key, _, err := LoadKey(KeyPath(relay.state, ""))
	if err != nil {
		t.Fatal(err)
	}
	h := &host{t: t, address: relay.address, server: &Server{key: relayKey{public: key.Public().(ed25519.PublicKey)}}}
	c := newCrew(t, 3)
	askers := connectAll(t, h, c, []gitlog.RepositoryID{c.repository}, func() {})
	ctx, end := context.WithTimeout(context.Background(), long)
	defer end()
	var work sync.WaitGroup
	var claims atomic.Int64
	for _, a := range askers {
		work.Go(func() {
			for ctx.Err() == nil {
				id, err := a.claim(ctx)
				if err == nil {
					err = a.release(ctx, id)
				}
				if err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
				claims.Add(1)
			}
		})
	}
	time.Sleep(long / 2) // the log is full by then, and the collector has found its pace
	half, halfClaims := residentKB(t, relay.command.Process.Pid), claims.Load()
	work.Wait()
	whole := residentKB(t, relay.command.Process.Pid)
	t.Logf("%d claims: %d kB after half of them (%d), %d kB after all", claims.Load(), half, halfClaims, whole)
	if whole > half+half/4+4<<10 {
		t.Errorf("memory grew from %d to %d kB", half, whole)
	}
	for _, a := range askers {
		a.conn.Close(0, "")
	}
}
