package integration

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"knoot.dev/knoot/integration/stage"
)

// resident is how much memory a process has, in kB.
func resident(t testing.TB, process int) (kb int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", process))
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(text), "VmRSS:")
	if _, err := fmt.Sscan(line, &kb); err != nil {
		t.Fatal(err)
	}
	return kb
}

// historyOfHook is more than what a daemon keeps for a hook, in kB: about two events of its session, and what came of them for others.
const historyOfHook = 12

// Under steady work of two machines, whose sessions come, write, are refused, wait and go, a relay's memory does not grow:
// KNOOT_SOAK=1h (`make soak`) says so over an hour. The log has as much as it may soon, so that this, too, is steady. A daemon has its
// clone's history in memory, and grows with that and no faster.
func TestSteadyWorkNeedsNoMoreMemory(t *testing.T) {
	t.Parallel()
	long, err := time.ParseDuration(os.Getenv("KNOOT_SOAK"))
	if err != nil {
		long = 6 * time.Second
	}
	relay := stage.NewRelay(t, nil, stage.Address(t), "--max-log-bytes", "2000000", "--log-file-bytes", "200000")
	machines := newMachines(t, 2, relay.Address, relay.Key)
	processes := map[string]int{"the relay": relay.Process()}
	for _, m := range machines {
		m.start()
		processes[m.Name+"'s daemon"] = m.daemon.Process()
		m.session("first", "")
	}
	for _, m := range machines {
		m.connected(t, "")
	}
	hooks := &toll{}
	began := time.Now()
	var work sync.WaitGroup
	for _, m := range machines {
		work.Go(func() {
			pace := time.NewTicker(40 * time.Millisecond) // 25 hooks a second on each machine
			defer pace.Stop()
			do := func(s stage.Session, payload string) bool {
				<-pace.C
				return hooks.hook(t, s, payload)
			}
			for n := 0; time.Since(began) < long; n++ {
				s := stage.Session{Person: m.Person, ID: fmt.Sprint(m.Name, n), Dir: m.dir}
				do(s, s.Payload("SessionStart", map[string]any{"source": "startup"}))
				do(s, s.Payload("UserPromptSubmit", map[string]any{"prompt": fmt.Sprintf("mend what is wrong in part %d of the shop", n), "prompt_id": s.ID}))
				for i := range 10 {
					do(s, s.BeforeWrite(fmt.Sprintf("src/part%d.js", (n+i)%20))) // some are the other machine's
				}
				do(s, s.Payload("Stop", s.TurnEnds()))
				do(s, s.Payload("SessionEnd", map[string]any{"reason": "other"}))
			}
		})
	}
	half := map[string]int{}
	time.Sleep(long / 2) // by then the log is full, and the collectors have found their pace
	hooks.mu.Lock()
	before := hooks.hooks
	hooks.mu.Unlock()
	for name, process := range processes {
		half[name] = resident(t, process)
	}
	work.Wait()
	for name, process := range processes {
		whole := resident(t, process)
		t.Logf("%s: %d kB after half of it, %d kB after all", name, half[name], whole)
		most := half[name] + half[name]/4 + 8<<10
		if process != relay.Process() {
			most += historyOfHook * (hooks.hooks - before) / len(machines)
		}
		if whole > most {
			t.Errorf("%s grew from %d to %d kB, which is more than %d", name, half[name], whole, most)
		}
	}
	t.Logf("%v: %d hooks, %d of them refused, the slowest %v", time.Since(began).Round(time.Second), hooks.hooks, hooks.denied, hooks.slowest.Round(time.Millisecond))
}
