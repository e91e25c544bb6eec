package daemon

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"knoot.dev/knoot/gitlog"
)

// WatchRequest is the body of the operation watch, which is answered at once where anything changed since the last answer, else
// when it does. The zero value asks for all there is.
type WatchRequest struct {
	After  uint64 `json:"after,omitempty"`  // Number of the last answer
	Memory uint64 `json:"memory,omitempty"` // its Memory
}

// Watch is what there is to see in a repository.
type Watch struct {
	Again    bool         `json:"again,omitempty"` // nothing is known, since the daemon ends: ask again
	Number   uint64       `json:"number"`
	Memory   uint64       `json:"memory"`
	Standing *Standing    `json:"standing"`
	Hubs     []Hub        `json:"hubs"`
	Events   []WatchEvent `json:"events"` // since the last answer, oldest first
	Facts    []WatchFact  `json:"facts"`  // the newest first, and how many there are in all
	All      int          `json:"all"`
}

// WatchEvent is something that happened. Its strings are as somebody chose them.
type WatchEvent struct {
	At      gitlog.Millis `json:"at"`
	Kind    string        `json:"kind"`
	Session string        `json:"session"`
	Who     string        `json:"who"` // what the session is called
	Path    string        `json:"path,omitempty"`
	Other   string        `json:"other,omitempty"` // what the other session is called
	Branch  string        `json:"branch,omitempty"`
	Text    string        `json:"text,omitempty"`
	Reason  uint64        `json:"reason,omitempty"` // of a claim's end
}

// WatchFact is a fact or a cached answer that counts now.
type WatchFact struct {
	Name   string        `json:"name"`
	Text   string        `json:"text"`
	Author string        `json:"author"`
	Agent  bool          `json:"agent,omitempty"` // an agent wrote it
	At     gitlog.Millis `json:"at"`
	Stale  bool          `json:"stale,omitempty"`
}

const (
	// watchTime is how long a request of watch waits for a change at most.
	watchTime = 30 * time.Second
	// memoryEvery is how often it looks whether the memory changed, which nothing tells.
	memoryEvery = time.Second
	// watchedFacts and watchedEvents are how many of them the first answer has.
	watchedFacts  = 50
	watchedEvents = 100
)

// watchFor answers once anything in the repository is not as it was at the last answer.
func (d *daemon) watchFor(ctx context.Context, wt *worktree, r WatchRequest, conn *net.UnixConn) (*Watch, error) {
	ctx, end, err := d.patient(ctx, conn, watchTime)
	if err != nil {
		return nil, err
	}
	defer end()
	ticker := time.NewTicker(memoryEvery)
	defer ticker.Stop()
	id := wt.clone.arbiter.id
	for {
		_, number, changed := d.feed.after(id, r.After)
		if number != r.After || wt.clone.clone.Memory().Version() != r.Memory {
			break
		}
		select {
		case <-changed:
			continue
		case <-ticker.C:
			continue
		case <-ctx.Done():
		}
		if !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			return &Watch{Again: true, Number: r.After, Memory: r.Memory}, nil
		}
		break
	}
	return d.look(wt, r.After), nil
}

// look is what there is to see now, with the events after a number.
func (d *daemon) look(wt *worktree, after uint64) *Watch {
	a := wt.clone.arbiter
	now := d.now()
	out := &Watch{Memory: wt.clone.clone.Memory().Version(), Hubs: d.hubs(wt), Events: []WatchEvent{}, Facts: []WatchFact{}}
	events, number, _ := d.feed.after(a.id, after)
	out.Number, out.Standing = number, d.who(wt)
	label := labels(out.Standing)
	if after == 0 {
		out.Events = wt.clone.past(events, label)
	}
	for _, e := range events {
		out.Events = append(out.Events, watchEvent(e.occurrence, label))
	}
	facts := wt.facts.all(now)
	slices.SortFunc(facts, func(a, b BriefFact) int { return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.Name, b.Name)) })
	out.All = len(facts)
	for _, f := range facts[:min(len(facts), watchedFacts)] {
		out.Facts = append(out.Facts, WatchFact{Name: f.Name, Text: f.Text, Author: f.Author, Agent: f.Agent, At: gitlog.MillisOf(f.At), Stale: f.Stale})
	}
	return out
}

func watchEvent(o occurrence, label func(sessionKey) string) WatchEvent {
	e := WatchEvent{At: o.Time, Kind: o.Kind.String(), Session: o.Key.ID, Who: label(o.Key), Path: o.Path, Branch: o.OnBranch, Text: o.Text, Reason: uint64(o.Reason)}
	if o.OtherKey != (sessionKey{}) {
		e.Other = label(o.OtherKey)
	}
	return e
}

// past are the last events of the audit log from before those that this daemon has seen.
func (oc *openClone) past(seen []feedEvent, label func(sessionKey) string) []WatchEvent {
	out := []WatchEvent{}
	logged := eventsInOrder(oc.clone.Events())
	if len(seen) > 0 {
		logged = slices.DeleteFunc(logged, func(e *gitlog.Stored) bool { return e.Time >= seen[0].Time })
	}
	for _, e := range logged[max(0, len(logged)-max(0, watchedEvents-len(seen))):] {
		each := WatchEvent{At: e.Time, Kind: e.Kind.String(), Session: e.Event.Session, Who: label(sessionKey{Agent: e.Event.Agent, ID: e.Event.Session}),
			Branch: e.Event.Branch, Text: e.Event.Text, Reason: e.Event.Reason}
		for _, p := range e.Event.Paths {
			each.Path = p.Path
			out = append(out, each)
		}
		if len(e.Event.Paths) == 0 {
			out = append(out, each)
		}
	}
	return out
}
