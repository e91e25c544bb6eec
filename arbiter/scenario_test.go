package arbiter

import (
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"knoot.dev/knoot/gitlog"
)

// A scenario is drawn as lines. First who is there, a branch and a worktree each, "person" for a presence and "of NAME"
// for whose session it is:
//
//	sam main w1 of sam
//
// then what happens, at minutes and seconds, and what is to come of it, "nothing" included:
//
//	0:00 sam claims a.go            => sam has a.go until 10:00
//	1:00 ash claims a.go            => ash denied a.go by sam until 10:00
//	10:00 time                      => sam lost a.go (expired); ash: a.go is free
//
// A path that ends in / is a tree, one that ends in ! is listed as a hub. Blank lines and # are skipped. Every scenario's
// log is replayed, and restored from a snapshot at every step: the views must be equal.
type scenario struct {
	t        *testing.T
	s        *Sequencer
	who      map[string]Who
	names    map[Token]string
	ids      uint64
	restored []*View
	log      []Event
}

func tok(s string) (t Token) {
	sum := sha256.Sum256([]byte(s))
	copy(t[:], sum[:])
	return t
}

// pathOf makes a path's tokens: its own, then those of each directory above, down to the root.
func pathOf(p string) Path {
	path := Path{Own: tok("path " + p)}
	for p != "" {
		i := strings.LastIndexByte(p, '/')
		p = p[:max(i, 0)]
		path.Ancestors = append(path.Ancestors, tok("path "+p))
	}
	return path
}

func (x *scenario) want(p string) Want {
	x.ids++
	w := Want{ID: ClaimID{15: byte(x.ids), 14: byte(x.ids >> 8), 0: 1}}
	p, w.Hub = strings.CutSuffix(p, "!")
	p, tree := strings.CutSuffix(p, "/")
	if tree {
		w.Class = Tree
	}
	w.Path = pathOf(p)
	x.names[w.Path.Own] = p
	return w
}

// a scenario starts at noon of some day, so that times are not small by accident
const noon gitlog.Millis = 1_700_000_000_000

func clock(text string) (gitlog.Millis, bool) {
	var ms gitlog.Millis
	for _, part := range strings.Split(text, ":") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return 0, false
		}
		ms = ms*60 + gitlog.Millis(n)
	}
	return noon + ms*1000, true
}

func at(m gitlog.Millis) string {
	if m == 0 {
		return "-"
	}
	s := (m - noon) / 1000
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}

var reasons = map[Reason]string{Expired: "expired", Failed: "failed", Stopped: "stop", EndOfLife: "end", Taken: "taken", Moved: "moved",
	Released: "released", RelaysOrder: "relay", ProcessGone: "gone", CallEnded: "called"}

func (x *scenario) tell(e Event) string {
	who, other, path, class := x.names[e.Session], x.names[e.Other], "", ""
	if len(e.Paths) > 0 {
		path = x.names[e.Paths[0].Own]
		if e.Class == Tree && e.Kind != gitlog.FileWritten {
			path += "/"
		}
	}
	if e.Class == Hub {
		class = ", a hub,"
	}
	switch e.Kind {
	case gitlog.ClaimAcquired:
		return fmt.Sprintf("%s has %s%s until %s", who, path, class, at(e.Until))
	case gitlog.ClaimRenewed:
		if e.Claim != (ClaimID{}) {
			return fmt.Sprintf("%s keeps one until %s", who, at(e.Until))
		}
		return fmt.Sprintf("%s keeps all until %s", who, at(e.Until))
	case gitlog.ClaimDenied:
		return fmt.Sprintf("%s denied %s%s by %s until %s", who, path, class, other, at(e.Until))
	case gitlog.ClaimReleased:
		if other != "" {
			return fmt.Sprintf("%s lost %s (%s, %s)", who, path, reasons[e.Reason], other)
		}
		return fmt.Sprintf("%s lost %s (%s)", who, path, reasons[e.Reason])
	case gitlog.ClaimLeft:
		return fmt.Sprintf("%s left %s", who, path)
	case gitlog.BranchMoved:
		return fmt.Sprintf("%s moved from %s to %s", who, x.names[e.OldBranch], x.names[e.Branch])
	case gitlog.HubTurn:
		if who == "" {
			return fmt.Sprintf("%s out of %s's queue, nobody next", other, path)
		}
		return fmt.Sprintf("%s passes %s to %s until %s", other, path, who, at(e.Until))
	case gitlog.PathFreed:
		if e.Class == Hub {
			return fmt.Sprintf("%s: your turn at %s until %s", who, path, at(e.Until))
		}
		return fmt.Sprintf("%s: %s is free", who, path)
	case gitlog.FileWritten, gitlog.PathRemoved:
		verb := map[gitlog.EntryKind]string{gitlog.FileWritten: "wrote", gitlog.PathRemoved: "removed"}[e.Kind]
		if e.Claim == (ClaimID{}) {
			return fmt.Sprintf("%s %s %s unclaimed", who, verb, path)
		}
		return fmt.Sprintf("%s %s %s%s until %s", who, verb, path, class, at(e.Until))
	case gitlog.UngatedWrite:
		return fmt.Sprintf("%s wrote %s that %s holds", who, path, other)
	case gitlog.CrossBranchOverlap:
		return fmt.Sprintf("%s overlaps %s in %s", who, other, path)
	case gitlog.RosterChanged:
		return "the team changed"
	case gitlog.SessionEnded:
		return fmt.Sprintf("%s ended (%s)", who, reasons[e.Reason])
	}
	return fmt.Sprintf("%s: %s", who, e.Kind)
}

// ids finds the claims of a session on the paths named.
func (x *scenario) claims(who Who, paths []string, now gitlog.Millis) []ClaimID {
	var ids []ClaimID
	for _, p := range paths {
		w := x.want(p)
		for _, h := range x.s.Claims(who.Session, now) {
			if h.Path.Own == w.Path.Own && (h.Class == Tree) == (w.Class == Tree) {
				ids = append(ids, h.Claim)
			}
		}
		for _, l := range x.s.Lefts(Who{Branch: who.Branch, Worktree: who.Worktree}, w.Path, now) {
			if l.Session == who.Session {
				ids = append(ids, l.Claim)
			}
		}
	}
	return ids
}

// ask answers the questions of a scenario.
func (x *scenario) ask(who Who, question string, w Want, now gitlog.Millis) string {
	var said []string
	switch question {
	case "blocked?":
		h, blocked := x.s.Blocks(who, w, now)
		switch {
		case !blocked:
			return "nothing"
		case h.Claim == ClaimID{}:
			return fmt.Sprintf("turn of %s until %s", x.names[h.Session], at(h.Until))
		case h.Written != 0:
			return fmt.Sprintf("%s since %s until %s, wrote at %s", x.names[h.Session], at(h.Since), at(h.Until), at(h.Written))
		}
		return fmt.Sprintf("%s since %s until %s", x.names[h.Session], at(h.Since), at(h.Until))
	case "person?":
		if h, ok := x.s.Presence(who, w, now); ok {
			return x.names[h.Session]
		}
	case "elsewhere?":
		for _, h := range x.s.Elsewhere(who, w, now) {
			said = append(said, x.names[h.Session])
		}
	case "queue?":
		q := x.s.Queue(who, w, now)
		if !q.Hub {
			return fmt.Sprintf("no hub, lease %d", q.Lease/minute)
		}
		for _, w := range q.Waits {
			said = append(said, fmt.Sprintf("%d %s", w.Place, x.names[w.Session]))
		}
		said = append(said, fmt.Sprintf("lease %d", q.Lease/minute))
		if q.Turn != (Token{}) {
			said = append(said, fmt.Sprintf("turn of %s until %s", x.names[q.Turn], at(q.Until)))
		}
	case "waiting?":
		for _, w := range x.s.Waiting(w.Path, now) {
			said = append(said, x.names[w.Session])
		}
	case "left?":
		for _, l := range x.s.Lefts(who, w.Path, now) {
			said = append(said, fmt.Sprintf("%s at %s", x.names[l.Session], at(l.Time)))
		}
	case "written?":
		for _, w := range x.s.Writes(who.Session, Order{}, now, w.Path) {
			verb := "wrote"
			if w.Removed {
				verb = "removed"
			}
			said = append(said, fmt.Sprintf("%s %s at %s", x.names[w.Session], verb, at(w.Time)))
		}
	default:
		x.t.Fatalf("no question %q", question)
	}
	if len(said) == 0 {
		return "nothing"
	}
	return strings.Join(said, "; ")
}

// request makes what an actor asks for.
func (x *scenario) request(who Who, verb string, args []string, now gitlog.Millis) Request {
	late := len(args) > 0 && args[0] == "late"
	note := len(args) > 0 && args[0] == "note"
	if late || note {
		args = args[1:]
	}
	reason := Released
	for r, name := range reasons {
		if len(args) > 1 && args[len(args)-1] == "("+name+")" {
			reason, args = r, args[:len(args)-1]
		}
	}
	var wants []Want
	if verb == "claims" || verb == "writes" || verb == "removes" || verb == "leaves" || verb == "takes" {
		for _, p := range args {
			w := x.want(p)
			w.Removed = verb == "removes"
			wants = append(wants, w)
		}
	}
	switch verb {
	case "claims":
		return Claim{Who: who, Wants: wants, Late: late, Note: note}
	case "hooks":
		return Renew{Who: who, Claims: x.claims(who, args, now)}
	case "writes", "removes":
		return Write{Who: who, Wants: wants}
	case "releases":
		return Release{Who: who, Claims: x.claims(who, args, now), Reason: reason}
	case "stops":
		return Stop{Who: who, Keep: x.claims(who, args, now)}
	case "idles":
		return Idle{who}
	case "leaves":
		return Leave{Who: who, Wants: wants}
	case "cleans":
		return Clean{Who: who, Claims: x.claims(who, args, now)}
	case "ends":
		return End{Who: who, Reason: EndOfLife}
	case "dies":
		return End{Who: who, Reason: ProcessGone}
	case "moves":
		who.Branch = tok("branch " + args[0])
		x.names[who.Branch] = args[0]
		x.who[x.names[who.Session]] = who
		return Move{who}
	case "takes":
		return Take{Who: who, Wants: wants}
	case "starts":
		return Declare{Event{Who: who, Kind: gitlog.SessionStarted}}
	case "removed":
		return Roster{Removed: []gitlog.DeviceID{who.Device}}
	}
	x.t.Fatalf("no verb %q", verb)
	return nil
}

func play(t *testing.T, script string) {
	x := &scenario{t: t, s: &Sequencer{View: New(), Term: 7}, who: map[string]Who{}, names: map[Token]string{}}
	for number, line := range strings.Split(script, "\n") {
		line, _, _ = strings.Cut(line, "#")
		did, expected, _ := strings.Cut(line, "=>")
		words := strings.Fields(did)
		if len(words) == 0 {
			continue
		}
		now, happens := clock(words[0])
		if !happens {
			x.introduce(words)
			continue
		}
		var got []string
		if words[1] == "time" {
			got = x.hear(x.s.Tick(now))
		} else {
			who, known := x.who[words[1]]
			if !known {
				t.Fatalf("line %d: nobody is called %s", number+1, words[1])
			}
			if strings.HasSuffix(words[2], "?") {
				got = []string{x.ask(who, words[2], x.want(words[3]), now)}
			} else {
				events, _, _ := x.s.Do(x.request(who, words[2], words[3:], now), now)
				got = x.hear(events)
			}
		}
		if len(got) == 0 {
			got = []string{"nothing"}
		}
		if said, want := strings.Join(got, "; "), strings.Join(strings.Fields(expected), " "); said != want {
			t.Errorf("line %d: %s\n got %s\nwant %s", number+1, strings.TrimSpace(did), said, want)
		}
		x.restored = append(x.restored, Restore(x.s.Snapshot()))
	}
	replayed := New()
	for _, e := range x.log {
		replayed.Apply(e)
	}
	for i, v := range append(x.restored, replayed) {
		if !v.Equal(x.s.View) {
			t.Errorf("view %d of %d differs from the sequencer's:\n%+v\n%+v", i, len(x.restored), v.Snapshot(), x.s.Snapshot())
		}
	}
}

// hear tells events, logs them, and gives them to every view that was restored before.
func (x *scenario) hear(events []Event) []string {
	var said []string
	for _, e := range events {
		said = append(said, x.tell(e))
		x.log = append(x.log, e)
		for _, v := range x.restored {
			v.Apply(e)
		}
	}
	return said
}

// introduce reads "NAME BRANCH WORKTREE [person] [of MEMBER]".
func (x *scenario) introduce(words []string) {
	who := Who{Session: tok("session " + words[0]), Branch: tok("branch " + words[1]), Worktree: tok("worktree " + words[2]), Device: gitlog.DeviceID(tok("device " + words[2]))}
	for i, word := range words[3:] {
		switch word {
		case "person":
			who.Person = true
		case "of":
			who.Owner = gitlog.MemberID(tok(words[4+i]))
		}
	}
	x.names[who.Session], x.names[who.Branch] = words[0], words[1]
	x.who[words[0]] = who
}
