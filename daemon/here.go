package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/gitlog"
)

// PathRequest is the body of the operations wait, release and take.
type PathRequest struct {
	Path string `json:"path"` // relative to the worktree's root
	// For is how long wait may take, in milliseconds.
	For int64 `json:"for,omitempty"`
}

// WaitAnswer is the answer to wait.
type WaitAnswer struct {
	Free bool `json:"free"`
	// Again says that the daemon ends, or another takes over, so nobody knows: the request is to be made again.
	Again bool `json:"again,omitempty"`
	// By is who holds the path, or whose turn it is; Until when that ends unless they go on.
	By    string        `json:"by,omitempty"`
	Until gitlog.Millis `json:"until,omitempty"`
}

// ReleaseAnswer is the answer to release.
type ReleaseAnswer struct {
	Released []string `json:"released"` // whose claims ended
}

// TakeAnswer is the answer to take.
type TakeAnswer struct {
	From  []string      `json:"from"` // whose claims ended
	Until gitlog.Millis `json:"until"`
}

// Hub is a file that many sessions write, or that the settings call one: the answer to hubs is an array of these.
type Hub struct {
	Path   string `json:"path"`
	Branch string `json:"branch"` // full ref name
	Listed bool   `json:"listed"` // under hubs in the settings
	// Holder is who holds it, "" where it is free; Until when their lease ends, or the turn of the first in the queue.
	Holder string        `json:"holder"`
	Until  gitlog.Millis `json:"until"`
	Queue  []string      `json:"queue"` // the first in line first
}

// maxWaiting bounds the requests that wait for something at one time, so that they leave room on the socket for hooks.
const maxWaiting = 64

// errParting ends a request that waits when the daemon ends, or another takes over; errLeft when nobody waits for the answer
// any more.
var (
	errParting = errors.New("the daemon ends")
	errLeft    = errors.New("the client has left")
)

// patient returns a context for a request that waits for something. It ends when the client leaves, when the daemon stops
// accepting, or after limit. Whoever gets it must call end.
func (d *daemon) patient(ctx context.Context, conn *net.UnixConn, limit time.Duration) (_ context.Context, end func(), err error) {
	if d.waiters.Add(1) > maxWaiting {
		d.waiters.Add(-1)
		return nil, nil, &gitlog.Refusal{Sentence: fmt.Sprintf("%d commands wait at the daemon already, and it lets no more wait", maxWaiting)}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(limit, func() { cancel(context.DeadlineExceeded) })
	parting := d.server.whenParting()
	left := make(chan struct{})
	_ = conn.SetReadDeadline(time.Time{})
	go func() {
		defer close(left)
		// A client says nothing after its request: whatever comes is its end, or that of the waiting.
		_, _ = conn.Read(make([]byte, 1))
		cancel(errLeft)
	}()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-parting:
			cancel(errParting)
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		timer.Stop()
		cancel(context.Canceled)
		_ = conn.SetReadDeadline(time.Unix(1, 0))
		<-left
		<-stopped
		d.waiters.Add(-1)
	}, nil
}

// here does the operations that are about who is at work in a repository now.
func (d *daemon) here(ctx context.Context, wt *worktree, req *socket.Request, conn *net.UnixConn) (any, error) {
	switch req.Op {
	case "who":
		return d.who(wt), nil
	case "hubs":
		return d.hubs(wt), nil
	case "msg":
		return d.sendMessage(ctx, wt, req.Caller, req.Body)
	case "inbox":
		return d.inbox(wt, req.Caller, req.Body)
	case "present":
		var r PresentRequest
		if err := readBody(req.Op, req.Body, &r); err != nil {
			return nil, err
		}
		return d.keepPresent(ctx, wt, req.Caller, r, conn)
	case "touched":
		var r TouchedRequest
		if err := readBody(req.Op, req.Body, &r); err != nil {
			return nil, err
		}
		return d.touched(ctx, wt, req.Caller, r)
	}
	if req.Op == "watch" {
		var r WatchRequest
		if err := readBody(req.Op, req.Body, &r); err != nil {
			return nil, err
		}
		return d.watchFor(ctx, wt, r, conn)
	}
	var r PathRequest
	if err := readBody(req.Op, req.Body, &r); err != nil {
		return nil, err
	}
	path, err := gitlog.CanonicalPath(r.Path)
	if err != nil || path == "" {
		return nil, &MisuseError{Sentence: fmt.Sprintf("%s is no file of this repository", quotePath(r.Path))}
	}
	switch req.Op {
	case "wait":
		return d.await(ctx, wt, req.Caller, path, r.For, conn)
	case "release":
		return d.release(ctx, wt, req.Caller, path)
	default:
		return d.take(ctx, wt, req.Caller, path)
	}
}

// who says who is at work, with what their plans decided.
func (d *daemon) who(wt *worktree) *Standing {
	s := wt.clone.arbiter.standing()
	s.You = personOf(wt.clone.clone, "")
	// The arbiter does not keep what was decided.
	plans := wt.facts.plans(d.now())
	for i := range s.Sessions {
		each := &s.Sessions[i]
		if p := plans[each.Agent+":"+each.Session]; p != nil {
			each.Plan, each.Decided = p.Text, append([]string{}, p.Decided...)
		}
	}
	return s
}

// labels says what sessions are called on screen and in messages.
func labels(s *Standing) func(sessionKey) string {
	called := map[sessionKey]string{}
	named := map[string]int{}
	for _, each := range s.Sessions {
		named[strings.ToLower(each.Name)]++
	}
	for _, each := range s.Sessions {
		key := sessionKey{Agent: each.Agent, ID: each.Session}
		switch {
		case each.Person:
			key.Agent = personAgent
			called[key] = each.Member
		case each.Name != "" && named[strings.ToLower(each.Name)] == 1:
			called[key] = each.Name
		}
	}
	return func(key sessionKey) string {
		if label := called[key]; label != "" {
			return label
		}
		return agentLabel(key)
	}
}

// Label is what a session is called on screen and in messages: its agent's name, where no other has that, or agent and id; for
// a person at work their address.
func (s *Standing) Label(of *StandingSession) string {
	key := sessionKey{Agent: of.Agent, ID: of.Session}
	if of.Person {
		key.Agent = personAgent
	}
	return labels(s)(key)
}

// hubs are the files that are hubs now, and those that the settings list.
func (d *daemon) hubs(wt *worktree) []Hub {
	a := wt.clone.arbiter
	label := labels(a.standing())
	out := []Hub{}
	for _, h := range a.hubs() {
		each := Hub{Path: h.Path, Branch: h.Branch, Listed: wt.clone.isHub(h.Path), Until: h.Until, Queue: []string{}}
		if h.Holder != (sessionKey{}) {
			each.Holder = label(h.Holder)
		}
		for _, key := range h.Queue {
			each.Queue = append(each.Queue, label(key))
		}
		out = append(out, each)
	}
	return out
}

// asking is the party for whom a command asks about files: its session, or the person at work in the worktree.
func (d *daemon) asking(ctx context.Context, wt *worktree, caller *socket.Caller) (by party, session bool) {
	user := ""
	if caller != nil {
		user = caller.User
	}
	key, ok := parseSession(d.authorOf(caller).Session)
	if !ok {
		return wt.presence(ctx, user), false
	}
	d.state.mu.Lock()
	if s := d.state.sessions[key]; s != nil {
		user = s.person
	}
	d.state.mu.Unlock()
	return wt.party(ctx, key, "", user), true
}

// byPerson reports whether a command is not an agent's, as far as is known.
func (d *daemon) byPerson(caller *socket.Caller) bool {
	return caller != nil && !caller.Agent && d.authorOf(caller).Session == ""
}

// await waits until a path is free for whoever asks. It claims nothing.
func (d *daemon) await(ctx context.Context, wt *worktree, caller *socket.Caller, path string, milliseconds int64, conn *net.UnixConn) (*WaitAnswer, error) {
	a := wt.clone.arbiter
	by, _ := d.asking(ctx, wt, caller)
	ctx, end, err := d.patient(ctx, conn, time.Duration(milliseconds)*time.Millisecond)
	if err != nil {
		return nil, err
	}
	defer end()
	if err := a.await(ctx, by, wt.repo.GitDir, path); err == nil {
		return &WaitAnswer{Free: true}, nil
	}
	if !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return &WaitAnswer{Again: true}, nil
	}
	answer := &WaitAnswer{Free: true}
	var holder sessionKey
	a.look(func(v *arbiter.View, now gitlog.Millis) {
		if h, blocked := v.Blocks(a.who(by), a.want(path, false), now); blocked {
			answer.Free, answer.Until, holder = false, h.Until, a.sessionOf(h.Session)
		}
	})
	if !answer.Free {
		answer.By = labels(a.standing())(holder)
	} else if r := wt.clone.relay; r != nil {
		if held := r.heldBy(by, wt.repo.GitDir, path, arbiter.File, false); held != nil {
			answer.Free, answer.By = false, held.Holder.words()
			if !held.Until.IsZero() {
				answer.Until = gitlog.MillisOf(held.Until)
			}
		}
	}
	return answer, nil
}

// holders are the sessions that hold a path in a worktree or on its branch, oldest claim first.
func (a *arbitration) holders(s *Standing, by party, path string) (out []sessionKey) {
	for _, each := range s.Sessions {
		for _, c := range each.Claims {
			if gitlog.FoldPath(c.Path) == gitlog.FoldPath(path) && (each.Worktree == by.Root || c.Branch == by.Branch && by.Branch != "") {
				key := sessionKey{Agent: each.Agent, ID: each.Session}
				if each.Person {
					key.Agent = personAgent
				}
				out = append(out, key)
				break
			}
		}
	}
	return out
}

// release ends claims on a path: a session's own, and for a person those of whoever holds it here.
func (d *daemon) release(ctx context.Context, wt *worktree, caller *socket.Caller, path string) (*ReleaseAnswer, error) {
	a := wt.clone.arbiter
	standing := a.standing()
	by, session := d.asking(ctx, wt, caller)
	holders := a.holders(standing, by, path)
	label := labels(standing)
	out := &ReleaseAnswer{Released: []string{}}
	switch {
	case session && slices.Contains(holders, by.Key):
		holders = []sessionKey{by.Key}
	case len(holders) == 0:
		return nil, &gitlog.Refusal{Sentence: fmt.Sprintf("nobody holds %s on this branch", quotePath(path))}
	case !d.byPerson(caller):
		return nil, &gitlog.Refusal{Sentence: fmt.Sprintf("%s holds %s, and ending another's claim needs a person: ask your user to run it", quoteText(label(holders[0]), maxNameBytes), quotePath(path))}
	}
	for _, key := range holders {
		if a.release(key, path) > 0 {
			out.Released = append(out.Released, label(key))
		}
	}
	if len(out.Released) == 0 && wt.clone.relay != nil {
		return nil, &gitlog.Refusal{Sentence: fmt.Sprintf("%s holds %s on another machine, where its claim is ended: `knoot take` gives the file to you", quoteText(label(holders[0]), maxNameBytes), quotePath(path))}
	}
	return out, nil
}

// take gives a file to the person at work here, whoever holds it. Its holder hears at its next tool call.
func (d *daemon) take(ctx context.Context, wt *worktree, caller *socket.Caller, path string) (*TakeAnswer, error) {
	if !d.byPerson(caller) {
		return nil, &gitlog.Refusal{Sentence: "this needs a person: ask your user to run it"}
	}
	a := wt.clone.arbiter
	by, _ := d.asking(ctx, wt, caller)
	standing := a.standing()
	label := labels(standing)
	out := &TakeAnswer{From: []string{}}
	for _, key := range a.holders(standing, by, path) {
		if key != by.Key {
			out.From = append(out.From, label(key))
		}
	}
	a.present(by, "")
	for _, o := range a.take(by, path) {
		if o.Kind == gitlog.ClaimAcquired && o.Key == by.Key {
			out.Until = o.Until
			if wt.clone.relay != nil {
				wt.clone.relay.takeFrom(by, wt.repo.GitDir, &o)
			}
		}
	}
	if out.Until == 0 {
		a.look(func(v *arbiter.View, now gitlog.Millis) {
			if h, held := v.Holding(a.who(by), a.want(path, false), now); held {
				out.Until = h.Until
			}
		})
	}
	return out, nil
}
