package daemon

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"knoot.dev/knoot/daemon/socket"
)

// claimInput is a hook of a session: it asks for files, or stops.
type claimInput struct {
	session string
	paths   []string // none: it stops
}

// claimOutput is its answer.
type claimOutput int

const (
	noAnswer claimOutput = iota // nobody knows what became of it
	wasAllowed
	wasDenied
)

// claimModel is what claims are to be for whoever asks: a map from files to their holders, changed in one moment each.
var claimModel = porcupine.NondeterministicModel{
	Init: func() []any { return []any{map[string]string{}} },
	Step: func(state, input, output any) []any {
		held, in := state.(map[string]string), input.(claimInput)
		after := maps.Clone(held)
		if len(in.paths) == 0 {
			if output == wasDenied {
				return []any{held}
			}
			maps.DeleteFunc(after, func(_, holder string) bool { return holder == in.session })
			if output == noAnswer {
				return []any{held, after}
			}
			return []any{after}
		}
		free := true
		for _, path := range in.paths {
			free = free && (held[path] == "" || held[path] == in.session)
			after[path] = in.session
		}
		switch {
		case output == noAnswer && free:
			return []any{held, after}
		case output == noAnswer:
			return []any{held}
		case output == wasAllowed && free:
			return []any{after}
		case output == wasDenied && !free:
			return []any{held}
		}
		return nil
	},
	Equal: func(a, b any) bool { return maps.Equal(a.(map[string]string), b.(map[string]string)) },
	DescribeOperation: func(input, output any) string {
		return fmt.Sprintf("%+v: %v", input, output)
	},
}

// Sessions that ask at the same time, of a daemon that is killed again and again, see claims that are taken and let go at one
// moment each: never two holders, none lost.
func TestClaimsAreLinearizable(t *testing.T) {
	kills, steps := 6, 80
	if testing.Short() {
		kills, steps = 1, 15
	}
	m := newMachine(t)
	r := m.repository("shop")
	began := time.Now()
	now := func() int64 { return int64(time.Since(began)) }
	var mu sync.Mutex
	var history []porcupine.Operation
	answered := make(chan struct{}, 10_000)
	up := make(chan struct{}) // guarded by mu: closed when the next daemon is there

	ask := func(client int, in claimInput, n int) {
		mu.Lock()
		next := up
		mu.Unlock()
		h := &socket.Hook{Agent: "claude", Event: eventStop, Session: in.session, Cwd: r.root, Payload: fmt.Sprint(client, n), ToolUse: fmt.Sprint(client, n),
			Places: []socket.Place{{Root: r.root}}}
		if len(in.paths) > 0 {
			h.Event, h.Places[0].Writes = EventPreTool, in.paths
		}
		call := now()
		resp, err := m.ask(&socket.Request{Op: "hook", Hook: h})
		op := porcupine.Operation{ClientId: client, Input: in, Output: noAnswer, Call: call, Return: now()}
		switch {
		case err != nil || resp.Answer == nil:
		case resp.Answer.Deny != "" || resp.Answer.Hold != "":
			op.Output = wasDenied // a turn that is held open keeps its claims
		case time.Duration(op.Return-op.Call) < hookTime/2:
			op.Output = wasAllowed
		default:
			// The daemon may have let it pass without asking: it was slow, or still opening the repository.
		}
		answered <- struct{}{}
		if err != nil {
			<-next
			op.Return = now() // whoever was asked is dead since, and did it before or never
		}
		mu.Lock()
		history = append(history, op)
		mu.Unlock()
	}

	p := m.startProcess("1.0.0")
	p.says(t)
	var clients sync.WaitGroup
	paths := []string{"src/a.js", "src/b.js", "src/c.js"}
	const sessions = 5
	for client := range sessions {
		clients.Go(func() {
			random := rand.New(rand.NewPCG(uint64(client), 1))
			for n := range steps {
				in := claimInput{session: fmt.Sprint("session-", client)}
				if random.IntN(4) > 0 {
					for _, i := range random.Perm(len(paths))[:1+random.IntN(2)] {
						in.paths = append(in.paths, paths[i])
					}
					slices.Sort(in.paths)
				}
				ask(client, in, n)
			}
		})
	}
	for range kills {
		for range sessions * steps / (kills + 1) {
			<-answered
		}
		if err := p.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		p.says(t)
		p = m.startProcess("1.0.0")
		p.says(t)
		mu.Lock()
		close(up)
		up = make(chan struct{})
		mu.Unlock()
	}
	clients.Wait()
	counts := map[claimOutput]int{}
	for _, op := range history {
		counts[op.Output.(claimOutput)]++
	}
	t.Logf("%d kills: %d allowed, %d denied, %d without an answer", kills, counts[wasAllowed], counts[wasDenied], counts[noAnswer])
	if counts[wasAllowed] < 10 || counts[wasDenied] < 10 {
		t.Fatal("too few were answered to say anything")
	}
	if result := porcupine.CheckOperationsTimeout(claimModel.ToModel(), history, time.Minute); result != porcupine.Ok {
		t.Errorf("the history is not linearizable: %s", result)
	}
}
