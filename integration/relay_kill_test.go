package integration

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"knoot.dev/knoot/integration/stage"
)

// toll is what many hooks cost, counted together.
type toll struct {
	mu      sync.Mutex
	hooks   int
	denied  int
	slowest time.Duration
}

// hook runs a hook, which has to succeed, and says whether it was refused.
func (c *toll) hook(t *testing.T, s stage.Session, payload string) bool {
	t.Helper()
	began := time.Now()
	result := s.Person.Try(s.Dir, payload, "knoot", "hook", "claude")
	took := time.Since(began)
	if result.Code != 0 || result.Stderr != "" {
		t.Errorf("a hook ended with exit %d and said %q", result.Code, result.Stderr)
	}
	if took > slowHook {
		t.Errorf("a hook took %v", took)
	}
	denied := s.Person.Denial(result.Stdout) != ""
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hooks++
	if denied {
		c.denied++
	}
	c.slowest = max(c.slowest, took)
	return denied
}

// takes writes a file, which is nobody's, until all machines see that the session holds it.
func takes(t *testing.T, s stage.Session, machines []*machine, file string) {
	t.Helper()
	await(t, s.ID+" takes "+file, func() bool {
		s.Write(file, "text\n")
		return slices.Equal(machines[0].holders(file), []string{s.ID})
	}, nil)
	see(t, machines, file, s.ID)
}

// agreed waits until all machines see one and the same session with a claim of a file, or all none.
func agreed(t *testing.T, machines []*machine, file string) (holders []string) {
	t.Helper()
	var seen [][]string
	await(t, "the machines agree on "+file, func() bool {
		seen = seen[:0]
		for _, m := range machines {
			seen = append(seen, m.holders(file))
		}
		return len(seen[0]) <= 1 && !slices.ContainsFunc(seen, func(each []string) bool { return !slices.Equal(each, seen[0]) })
	}, func() string { return fmt.Sprintf("%q", seen) })
	return seen[0]
}

// The relay is killed at any moment, with hooks at work on two machines: hooks succeed, no lease is forgotten, and nobody has two
// winners once it is back. `make chaos` does it 50 times.
func TestARelayIsKilledUnderDaemons(t *testing.T) {
	t.Parallel()
	rounds := 4
	if n, err := strconv.Atoi(os.Getenv("KNOOT_ROUNDS")); err == nil {
		rounds = n
	}
	relay := stage.NewRelay(t, nil, stage.Address(t))
	machines := newMachines(t, 2, relay.Address, relay.Key)
	for _, m := range machines {
		m.start()
	}
	keeper, rival := machines[0].session("keeper", ""), machines[1].session("rival", "")
	crowd := &toll{}
	done := make(chan struct{})
	var work sync.WaitGroup
	for i := range 2 * len(machines) {
		s := machines[i%len(machines)].session(fmt.Sprint("crowd", i), "")
		work.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				payload := s.BeforeWrite(fmt.Sprintf("src/crowd%d.js", rand.IntN(4)))
				if crowd.hook(t, s, payload) || rand.IntN(3) == 0 {
					crowd.hook(t, s, s.Payload("Stop", s.TurnEnds()))
				}
			}
		})
	}
	stop := sync.OnceFunc(func() { close(done); work.Wait() })
	t.Cleanup(stop)
	for _, m := range machines {
		m.connected(t, "")
	}

	var kept, raced []string
	var away time.Duration
	single := 0
	for round := range rounds {
		kept = append(kept, fmt.Sprintf("src/kept%d.js", round))
		takes(t, keeper, machines, kept[round])
		raced = append(raced, fmt.Sprintf("src/raced%d.js", round))
		killed := make(chan struct{})
		go func() {
			defer close(killed)
			time.Sleep(time.Duration(rand.IntN(100_000)) * time.Microsecond) // in the middle of the race, or before, or after
			relay.Kill()
		}()
		won := 0
		for i, output := range race(t, []stage.Session{keeper, rival}, raced[round]) {
			if []stage.Session{keeper, rival}[i].Person.Denial(output) == "" {
				won++
			}
		}
		if won == 1 {
			single++
		}
		<-killed
		crowd.hook(t, rival, rival.BeforeWrite(kept[round])) // whatever it is told: nobody is there to ask
		began := time.Now()
		relay.Start()
		for _, m := range machines {
			m.connected(t, "")
		}
		away += time.Since(began)
		for _, file := range kept[max(0, len(kept)-5):] {
			see(t, machines, file, keeper.ID)
		}
		has(t, "the rival", refused(t, rival, kept[round]), "ana's agent")
		if held := agreed(t, machines, raced[round]); len(held) != 1 {
			t.Errorf("two asked for %s, and %q have it", raced[round], held)
		}
	}
	stop()
	for _, file := range kept {
		see(t, machines, file, keeper.ID)
	}
	for _, file := range raced {
		if held := agreed(t, machines, file); len(held) != 1 {
			t.Errorf("two asked for %s, and %q have it", file, held)
		}
	}
	for i := range 4 {
		agreed(t, machines, fmt.Sprintf("src/crowd%d.js", i))
	}
	t.Logf("%d kills, %v until both machines are back on average; %d hooks beside them, %d refused, the slowest %v, none failed; "+
		"no lease of %d forgotten, and of %d races none has two winners (in %d one alone was allowed at once)", rounds,
		(away / time.Duration(rounds)).Round(time.Millisecond), crowd.hooks, crowd.denied, crowd.slowest.Round(time.Millisecond), len(kept), len(raced), single)
}
