package daemon

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/gitlog"
)

// watch asks in the background.
func (r *repository) watch(after *Watch) <-chan *Watch {
	answered := make(chan *Watch, 1)
	go func() {
		w := &Watch{}
		_, _ = r.order("watch", aPerson, WatchRequest{After: after.Number, Memory: after.Memory}, w)
		answered <- w
	}()
	return answered
}

// eventTexts are those of an answer: "who kind path" each.
func eventTexts(w *Watch) (out []string) {
	for _, e := range w.Events {
		out = append(out, fmt.Sprintf("%s %s %s", e.Who, e.Kind, e.Path))
	}
	return out
}

func TestWatchAnswersWhenSomethingChanges(t *testing.T) {
	m, r, d := meeting(t, Options{})
	r.claim(d, "alpha-1-session", "src/billing.js")
	first := <-r.watch(&Watch{})
	if !slices.Contains(eventTexts(first), "claude-alpha-1- ClaimAcquired src/billing.js") {
		t.Errorf("at first: %q", eventTexts(first))
	}
	held := 0
	for _, s := range first.Standing.Sessions {
		held += len(s.Claims)
	}
	if held != 1 || first.All != 0 {
		t.Errorf("%d files held, %d facts", held, first.All)
	}

	waiting := r.watch(first)
	waitFor(t, "the request", func() bool { return d.waiters.Load() == 1 })
	r.claim(d, "gamma-5-session", "src/billing.js")
	second := <-waiting
	if got := eventTexts(second); !slices.Contains(got, "claude-gamma-5- ClaimDenied src/billing.js") || slices.Contains(got, "claude-alpha-1- ClaimAcquired src/billing.js") {
		t.Errorf("then: %q", got)
	}
	if e := second.Events[len(second.Events)-1]; e.Other != "claude-alpha-1-" {
		t.Errorf("the holder is %q", e.Other)
	}

	waiting = r.watch(second)
	r.remember("money", "all money is integer cents", "src/billing.js")
	third := <-waiting
	for third.All == 0 {
		third = <-r.watch(third) // that the fact is written may show before it counts
	}
	if f := third.Facts[0]; f.Name != "money" || f.Author != "ash" || f.Agent {
		t.Errorf("%+v", f)
	}

	waiting = r.watch(third)
	waitFor(t, "the request", func() bool { return d.waiters.Load() == 1 })
	m.mustAsk(&socket.Request{Op: "stop"})
	if w := <-waiting; !w.Again || w.Number != third.Number || w.Memory != third.Memory {
		t.Errorf("at the daemon's end: %+v", w)
	}
}

func TestWatchBeginsWithWhatTheAuditLogHas(t *testing.T) {
	m, r, d := meeting(t, Options{})
	before := <-r.watch(&Watch{})
	waitFor(t, "the sessions' starts in the log", func() bool {
		settleAll(d)
		return countEvents(d, gitlog.SessionStarted) == 3
	})
	m.mustAsk(&socket.Request{Op: "stop"})
	<-d.server.done
	m.start(Options{})
	again := <-r.watch(before)
	if again.Number <= before.Number {
		t.Errorf("a later daemon goes on from %d with %d", before.Number, again.Number)
	}
	starts := 0
	for _, e := range (<-r.watch(&Watch{})).Events {
		if e.Kind == "SessionStarted" && e.Session != "" && e.Who != "" {
			starts++
		}
	}
	if starts != 3 {
		t.Errorf("%d starts of sessions", starts)
	}
}

func TestWaitingRequestsLeaveRoomForHooks(t *testing.T) {
	_, r, d := meeting(t, Options{})
	r.claim(d, "alpha-1-session", "src/billing.js")
	var all []<-chan WaitAnswer
	for range maxWaiting {
		all = append(all, r.waits(another, "src/billing.js", time.Minute))
	}
	waitFor(t, "all requests", func() bool { return d.waiters.Load() == maxWaiting })
	if code, sentence := r.order("wait", another, PathRequest{Path: "src/billing.js", For: 1}, nil); code != codeRefused || sentence == "" {
		t.Errorf("one more: %s %q", code, sentence)
	}
	(&agent{r: r, session: "alpha-1-session"}).prompt("go on")
	r.order("release", anAgent, PathRequest{Path: "src/billing.js"}, nil)
	for _, answered := range all {
		if a := <-answered; !a.Free {
			t.Errorf("%+v", a)
		}
	}
}
