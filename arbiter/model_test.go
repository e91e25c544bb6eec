package arbiter

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"knoot.dev/knoot/gitlog"
	"pgregory.net/rapid"
)

// actor is a session by its name, and where it stands now.
type actor struct {
	name, owner, branch, worktree string
	person                        bool
}

// held, waiter, wrote and leftover are what the model keeps, by names, in lists that are searched from end to end.
type held struct {
	actor
	path  string
	tree  bool
	class Class
	until gitlog.Millis
}

type waiter struct {
	actor
	path   string
	class  Class
	since  gitlog.Millis
	passed bool
}

type wrote struct {
	actor
	path  string
	time  gitlog.Millis
	gated bool
}

type leftover struct {
	actor
	path string
	time gitlog.Millis
}

// model is arbitration as relay.md says it, with names for tokens and no index. It learns of what was decided from the
// events and keeps all history; every question is answered from scratch.
type model struct {
	actors map[string]*actor
	claims map[ClaimID]*held
	waits  []*waiter            // not in line
	lines  map[string][]*waiter // by path and branch
	turns  map[string]gitlog.Millis
	writes []wrote
	left   map[ClaimID]leftover
	gone   map[*waiter]bool // who waited too long, by the last event
	names  map[Token]string // of every token ever made
	time   gitlog.Millis
	// Keys have changed: whoever waits under the old ones may be told too early and lose the place, and only what is held counts.
	rekeyed bool
}

func covers(dir, path string) bool {
	return dir == "" || dir == path || strings.HasPrefix(path, dir+"/")
}

func (h *held) meets(a *actor) bool { return h.branch == a.branch || h.worktree == a.worktree }

func (h *held) touches(path string, tree bool) bool {
	return h.path == path || h.tree && covers(h.path, path) || tree && covers(path, h.path)
}

func (h *held) denies(a *actor) bool {
	return h.name != a.name && h.meets(a) && !(h.person && h.owner != "" && h.owner == a.owner)
}

func lineKey(path, branch string) string { return path + " on " + branch }

// blocker returns the name of whoever denies: a holder, else the head of a line.
func (m *model) blocker(a *actor, path string, tree bool, now gitlog.Millis) string {
	var names []string
	for _, h := range m.claims {
		if h.until > now && h.denies(a) && h.touches(path, tree) {
			names = append(names, h.name)
		}
	}
	if len(names) > 0 {
		slices.Sort(names)
		return strings.Join(slices.Compact(names), ",")
	}
	if a.person {
		return ""
	}
	for _, line := range m.lines {
		if head := line[0]; head.name != a.name && (head.path == path && head.branch == a.branch || tree && head.path != path && covers(path, head.path) && (head.branch == a.branch || head.worktree == a.worktree)) {
			names = append(names, "turn of "+head.name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}

func (m *model) hub(a *actor, path string, now gitlog.Millis) bool {
	if len(m.lines[lineKey(path, a.branch)]) > 0 {
		return true
	}
	writers := map[string]bool{}
	for _, w := range m.writes {
		if w.gated && w.path == path && w.branch == a.branch && w.time+30*minute > now {
			writers[w.name] = true
		}
	}
	return len(writers) >= 3
}

func (m *model) dropWaits(over func(w *waiter) bool) {
	m.waits = slices.DeleteFunc(m.waits, over)
	for key, line := range m.lines {
		head := line[0]
		line = slices.DeleteFunc(line, over)
		if len(line) == 0 || line[0] != head {
			delete(m.turns, key)
		}
		m.lines[key] = line
		if len(line) == 0 {
			delete(m.lines, key)
		}
	}
}

func (m *model) endSession(name string) {
	for id, h := range m.claims {
		if h.name == name {
			delete(m.claims, id)
		}
	}
	m.dropWaits(func(w *waiter) bool { return w.name == name })
}

// apply believes an event.
func (m *model) apply(t *rapid.T, e Event) {
	if e.Time < m.time {
		t.Fatalf("time went back from %d to %d", m.time, e.Time)
	}
	m.time = e.Time
	a := actor{name: m.names[e.Session], branch: m.names[e.Branch], worktree: m.names[e.Worktree]}
	if known := m.actors[a.name]; known != nil {
		a.owner, a.person = known.owner, known.person
	}
	var path string
	if len(e.Paths) > 0 {
		path = m.names[e.Paths[0].Own]
	}
	for id, h := range m.claims {
		if h.until <= m.time {
			delete(m.claims, id)
		}
	}
	clear(m.gone)
	m.dropWaits(func(w *waiter) bool {
		old := w.since+12*hour <= m.time
		m.gone[w] = old
		return old
	})
	switch e.Kind {
	case gitlog.ClaimAcquired:
		lease := 10 * minute
		if e.Class == Hub {
			lease = 2 * minute
		}
		if e.Until != e.Time+lease {
			t.Fatalf("a lease of %d ms for class %d", e.Until-e.Time, e.Class)
		}
		if line := m.lines[lineKey(path, a.branch)]; !m.rekeyed && len(line) > 0 && e.Class != Tree && !a.person && line[0].name != a.name {
			t.Fatalf("%s was granted %s before %s, who is first", a.name, path, line[0].name)
		}
		for _, h := range m.claims {
			if h.denies(&a) && h.touches(path, e.Class == Tree) {
				t.Fatalf("%s was granted %s, which %s holds", a.name, path, h.name)
			}
		}
		m.claims[e.Claim] = &held{a, path, e.Class == Tree, e.Class, e.Until}
		m.dropWaits(func(w *waiter) bool {
			return w.name == a.name && w.path == path && w.worktree == a.worktree && (w.class == Tree) == (e.Class == Tree)
		})
	case gitlog.ClaimRenewed:
		for id, h := range m.claims {
			if h.name == a.name && h.class != Hub && (e.Claim == ClaimID{} || e.Claim == id) {
				h.until = max(h.until, e.Until)
			}
		}
	case gitlog.ClaimDenied:
		w := &waiter{actor: a, path: path, class: e.Class, since: e.Time}
		same := func(o *waiter) bool {
			return o.name == w.name && o.path == path && o.worktree == w.worktree && (o.class == Tree) == (w.class == Tree)
		}
		for _, line := range m.lines {
			if slices.ContainsFunc(line, same) {
				return
			}
		}
		if i := slices.IndexFunc(m.waits, same); i >= 0 && e.Class != Hub {
			return
		} else if i >= 0 {
			m.waits = slices.Delete(m.waits, i, i+1)
		}
		if e.Class == Hub {
			key := lineKey(path, a.branch)
			m.lines[key] = append(m.lines[key], w)
		} else {
			m.waits = append(m.waits, w)
		}
	case gitlog.ClaimReleased:
		delete(m.claims, e.Claim)
		delete(m.left, e.Claim)
	case gitlog.ClaimLeft:
		delete(m.claims, e.Claim)
		m.tookUp(&a, path)
		m.left[e.Claim] = leftover{a, path, e.Time}
	case gitlog.BranchMoved:
		for _, h := range m.claims {
			if h.name == a.name && h.worktree == a.worktree {
				h.branch = a.branch
			}
		}
		var moved []*waiter
		for _, line := range m.lines {
			for _, w := range line {
				if w.name == a.name && w.worktree == a.worktree && w.branch != a.branch {
					moved = append(moved, w)
				}
			}
		}
		m.dropWaits(func(w *waiter) bool { return slices.Contains(moved, w) })
		for _, w := range moved {
			w.class = File
			m.waits = append(m.waits, w)
		}
		for _, w := range m.waits {
			if w.name == a.name && w.worktree == a.worktree {
				w.branch = a.branch
			}
		}
	case gitlog.HubTurn:
		key := lineKey(path, a.branch)
		line := m.lines[key]
		if m.rekeyed {
			return
		}
		for w, old := range m.gone {
			if old && w.name == m.names[e.Other] && w.path == path {
				return // it waited for 12 hours, and is out without this
			}
		}
		if len(line) == 0 || line[0].name != m.names[e.Other] {
			t.Fatalf("%s passes a turn that it does not have", m.names[e.Other])
		}
		if head := line[0]; head.passed {
			m.lines[key] = slices.Delete(line, 0, 1)
		} else if head.passed = true; len(line) > 1 {
			line[0], line[1] = line[1], line[0]
		}
		delete(m.turns, key)
		if len(m.lines[key]) == 0 {
			delete(m.lines, key)
		} else {
			m.turns[key] = e.Until
		}
		if line = m.lines[key]; a.name != "" && (len(line) == 0 || line[0].name != a.name) || a.name == "" && len(line) > 0 {
			t.Fatalf("%s is told that it is its turn, in the line %v", a.name, line)
		}
	case gitlog.PathFreed:
		if by := m.blocker(&a, path, e.Class == Tree, e.Time); by != "" && !m.rekeyed {
			t.Fatalf("%s was told that %s is free; it is denied by %s", a.name, path, by)
		}
		if e.Class == Hub {
			if e.Until != e.Time+2*minute {
				t.Fatalf("a turn of %d ms", e.Until-e.Time)
			}
			m.turns[lineKey(path, a.branch)] = e.Until
		} else {
			m.dropWaits(func(w *waiter) bool {
				return w.name == a.name && w.path == path && w.worktree == a.worktree && w.class != Hub && (w.class == Tree) == (e.Class == Tree)
			})
		}
	case gitlog.FileWritten, gitlog.PathRemoved:
		h := m.claims[e.Claim]
		m.writes = append(m.writes, wrote{a, path, e.Time, h != nil})
		if h != nil && h.class != Tree {
			h.class = e.Class
			h.until = e.Until
		} else if h != nil {
			h.until = max(h.until, e.Until)
		}
		m.tookUp(&a, path)
	case gitlog.UngatedWrite:
		m.writes = append(m.writes, wrote{a, path, e.Time, false})
		m.tookUp(&a, path)
	case gitlog.SessionEnded:
		m.endSession(a.name)
	case gitlog.RosterChanged:
		for name, known := range m.actors {
			if gitlog.DeviceID(tok("device "+known.name)) == e.Device {
				m.endSession(name)
			}
		}
	}
	// A turn is over once somebody else holds the path.
	for key, line := range m.lines {
		for _, h := range m.claims {
			if h.until > m.time && h.denies(&line[0].actor) && h.touches(line[0].path, false) {
				delete(m.turns, key)
			}
		}
	}
}

func (m *model) tookUp(a *actor, path string) {
	for id, l := range m.left {
		if l.name == a.name && l.worktree == a.worktree && l.path == path {
			delete(m.left, id)
		}
	}
}

// world draws requests.
type world struct {
	*model
	s     *Sequencer
	now   gitlog.Millis
	ids   uint64
	epoch int // of the keys; tokens of two are carried while carry
	carry bool
	order []string
	log   []Event
}

func newWorld() *world {
	w := &world{now: noon, s: &Sequencer{View: New(), Term: 3}, model: &model{actors: map[string]*actor{}, claims: map[ClaimID]*held{}, lines: map[string][]*waiter{},
		turns: map[string]gitlog.Millis{}, left: map[ClaimID]leftover{}, gone: map[*waiter]bool{}, names: map[Token]string{}}}
	for _, a := range []actor{
		{"sam", "sam", "main", "w1", false}, {"ash", "ash", "main", "w2", false}, {"bo", "bo", "dev", "w2", false},
		{"cy", "sam", "main", "w3", false}, {"di", "", "dev", "w4", false}, {"mia", "sam", "main", "w1", true}, {"joe", "ash", "main", "w5", true},
	} {
		w.actors[a.name] = &a
		w.order = append(w.order, a.name)
	}
	return w
}

func (w *world) tok(kind, name string, epoch int) Token {
	t := tok(fmt.Sprint(kind, " ", name, " ", epoch))
	w.names[t] = name
	return t
}

func (w *world) who(a *actor) Who {
	session := tok("session " + a.name)
	w.names[session] = a.name
	who := Who{Session: session, Device: gitlog.DeviceID(tok("device " + a.name)), Person: a.person,
		Branch: w.tok("branch", a.branch, w.epoch), Worktree: w.tok("worktree", a.worktree, w.epoch)}
	if a.owner != "" {
		who.Owner = gitlog.MemberID(tok(a.owner))
	}
	if w.carry {
		who.WasBranch, who.WasWorktree = w.tok("branch", a.branch, w.epoch-1), w.tok("worktree", a.worktree, w.epoch-1)
	}
	return who
}

func (w *world) path(p string) Path {
	at := func(epoch int) Path {
		path := Path{Own: w.tok("path", p, epoch)}
		for dir := p; dir != ""; {
			dir = dir[:max(strings.LastIndexByte(dir, '/'), 0)]
			path.Ancestors = append(path.Ancestors, w.tok("path", dir, epoch))
		}
		return path
	}
	path := at(w.epoch)
	if w.carry {
		was := at(w.epoch - 1)
		path.Was = &was
	}
	return path
}

var files = []string{"d/a", "d/b", "d/c/x", "e"}

func (w *world) wants(t *rapid.T, trees bool) []Want {
	var wants []Want
	for range rapid.IntRange(1, 3).Draw(t, "paths") {
		w.ids++
		want := Want{ID: ClaimID{0: 1, 8: byte(w.ids >> 8), 9: byte(w.ids)}}
		if trees && rapid.IntRange(0, 5).Draw(t, "tree") == 0 {
			want.Class, want.Path = Tree, w.path(rapid.SampledFrom([]string{"", "d", "d/c"}).Draw(t, "tree"))
		} else {
			file := rapid.SampledFrom(files).Draw(t, "file")
			want.Path, want.Hub = w.path(file), file == "e" && rapid.Bool().Draw(t, "hub")
		}
		wants = append(wants, want)
	}
	return wants
}

// some draws from the claims that the model knows, the session's own and a stranger's.
func (w *world) some(t *rapid.T, a *actor) []ClaimID {
	var ids []ClaimID
	for id := range w.claims {
		ids = append(ids, id)
	}
	for id := range w.left {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b ClaimID) int { return slices.Compare(a[:], b[:]) })
	return slices.DeleteFunc(ids, func(id ClaimID) bool { return rapid.IntRange(0, 2).Draw(t, "skip") == 0 })
}

func (w *world) request(t *rapid.T) Request {
	a := w.actors[rapid.SampledFrom(w.order).Draw(t, "who")]
	who := w.who(a)
	switch verb := rapid.IntRange(0, 30).Draw(t, "verb"); {
	case verb < 10:
		if a.person {
			return Write{Who: who, Wants: w.wants(t, false)}
		}
		return Claim{Who: who, Wants: w.wants(t, true), Note: verb == 0, Late: verb == 1}
	case verb < 16:
		return Write{Who: who, Wants: w.wants(t, false)}
	case verb < 18:
		return Release{who, w.some(t, a), Reason(rapid.IntRange(1, 10).Draw(t, "reason"))}
	case verb < 20:
		return Renew{Who: who}
	case verb < 22:
		return Stop{who, w.some(t, a)}
	case verb < 24:
		return Idle{who}
	case verb < 25:
		return Leave{Who: who, Wants: w.wants(t, false)[:1]}
	case verb < 26:
		return Clean{who, w.some(t, a)}
	case verb < 27:
		return End{Who: who, Reason: EndOfLife}
	case verb < 29:
		a.branch = rapid.SampledFrom([]string{"main", "dev"}).Draw(t, "branch")
		return Move{w.who(a)}
	case verb < 30:
		return Take{who, w.wants(t, false)}
	}
	return Roster{Removed: []gitlog.DeviceID{who.Device}}
}

// step moves time, asks for something and gives all events to the model.
func (w *world) step(t *rapid.T) {
	pause := rapid.SampledFrom([]gitlog.Millis{0, 0, 1000, 20_000, minute, 2 * minute, 4 * minute, 9 * minute, 31 * minute}).Draw(t, "pause")
	if rapid.IntRange(0, 40).Draw(t, "long") == 0 {
		pause = 13 * hour
	}
	w.now += pause
	now := w.now
	if rapid.IntRange(0, 9).Draw(t, "clock") == 0 {
		now -= min(now, 3*minute) // the caller's clock jumps back: the events' time does not
	}
	w.hear(t, w.s.Tick(now))
	r := w.request(t)
	claim, isClaim := r.(Claim)
	denied := false
	if isClaim {
		for _, want := range claim.Wants {
			path, tree := w.names[want.Path.Own], want.Class == Tree
			a := w.actors[w.names[claim.Session]]
			mine := false
			for _, h := range w.claims {
				mine = mine || h.name == a.name && h.path == path && h.tree == tree && h.branch == a.branch && h.worktree == a.worktree && h.until > max(now, w.s.Time())
			}
			denied = denied || !mine && w.blocker(a, path, tree, max(now, w.s.Time())) != ""
		}
	}
	events, from, to := w.s.Do(r, now)
	w.hear(t, events)
	if w.rekeyed {
		return
	}
	for _, e := range events[from:to] {
		granted := e.Kind == gitlog.ClaimAcquired || e.Kind == gitlog.ClaimRenewed
		if isClaim && granted == denied && e.Kind != gitlog.CrossBranchOverlap {
			t.Fatalf("a batch where denied is %v was answered with %s", denied, e.Kind)
		}
	}
	if isClaim && denied && !claim.Note && len(events[from:to]) == 0 {
		t.Fatal("a denial without an event")
	}
}

func (w *world) hear(t *rapid.T, events []Event) {
	for _, e := range events {
		w.log = append(w.log, e)
		w.apply(t, e)
	}
}

// compare holds the View's answers against the model's.
func (w *world) compare(t *rapid.T) {
	now := max(w.now, w.s.Time())
	if at, due := w.s.DueAt(); due && at > now && len(w.s.Due(now)) > 0 {
		t.Fatalf("something is due at %d, before %d", now, at)
	} else if len(w.s.Due(now)) == 0 && due && at <= now {
		t.Fatalf("nothing is due at %d, yet DueAt says %d", now, at)
	}
	live := map[ClaimID]Hold{}
	for _, h := range w.s.Claims(Token{}, now) {
		live[h.Claim] = h
		m := w.claims[h.Claim]
		if m == nil || m.until != h.Until || m.class != h.Class || m.name != w.names[h.Session] || m.path != w.names[h.Path.Own] || m.branch != w.names[h.Branch] {
			t.Fatalf("the View has %+v, the model %+v", h, m)
		}
		if h.Until > now+Lease {
			t.Fatalf("a lease of more than %d ms", Lease)
		}
	}
	for id, h := range w.claims {
		if _, ok := live[id]; !ok && h.until > now {
			t.Fatalf("the View lacks %+v", h)
		}
	}
	for _, name := range w.order {
		a := w.actors[name]
		who := w.who(a)
		for _, path := range append([]string{"", "d"}, files...) {
			tree := path == "" || path == "d"
			want := Want{Path: w.path(path)}
			if tree {
				want.Class = Tree
			}
			h, blocked := w.s.Blocks(who, want, now)
			by := w.names[h.Session]
			if blocked && h.Claim == (ClaimID{}) {
				by = "turn of " + by
			}
			if model := w.blocker(a, path, tree, now); blocked != (model != "") || !slices.Contains(strings.Split(model, ","), by) {
				t.Fatalf("%s at %q: blocked by %q, by the model %q", name, path, by, model)
			}
			if tree {
				continue
			}
			q := w.s.Queue(who, want, now)
			if q.Hub != w.hub(a, path, now) {
				t.Fatalf("%s on %s is a hub: %v, by the model %v", path, a.branch, q.Hub, !q.Hub)
			}
			w.compareLine(t, lineKey(path, a.branch), q)
			w.compareWaits(t, path, now)
			w.compareWrites(t, a, path, now)
			var left, modelLeft []string
			for _, l := range w.s.Lefts(who, want.Path, now) {
				left = append(left, w.names[l.Session])
			}
			for _, l := range w.left {
				if l.name != name && l.path == path && (l.branch == a.branch || l.worktree == a.worktree) && l.time+12*hour > now {
					modelLeft = append(modelLeft, l.name)
				}
			}
			slices.Sort(left)
			slices.Sort(modelLeft)
			if !slices.Equal(left, modelLeft) {
				t.Fatalf("left at %s: %v, by the model %v", path, left, modelLeft)
			}
		}
	}
	w.orderly(t, now)
}

func (w *world) compareLine(t *rapid.T, key string, q Queue) {
	var got, want []string
	for i, x := range q.Waits {
		if got = append(got, w.names[x.Session]); x.Place != i+1 {
			t.Fatalf("%s is in place %d, and says %d", w.names[x.Session], i+1, x.Place)
		}
	}
	for _, x := range w.lines[key] {
		want = append(want, x.name)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("in line at %s: %v, by the model %v", key, got, want)
	}
	if until := w.turns[key]; q.Turn != (Token{}) && q.Until != until {
		t.Fatalf("a turn at %s until %d, by the model %d", key, q.Until, until)
	}
}

func (w *world) compareWaits(t *rapid.T, path string, now gitlog.Millis) {
	count := 0
	for _, x := range w.s.Waiting(w.path(path), now) {
		if x.Class != Hub {
			count++
		}
	}
	model := 0
	for _, x := range w.waits {
		if x.path == path && x.since+12*hour > now {
			model++
		}
	}
	for _, x := range w.s.Waiting(w.path(path), now) {
		if x.Class == Tree {
			model-- // a tree of the same path
			count--
		}
	}
	if count != model {
		t.Fatalf("%d wait for %s, in the model %d", count, path, model)
	}
}

func (w *world) compareWrites(t *rapid.T, a *actor, path string, now gitlog.Millis) {
	var got, want []string
	for _, x := range w.s.Writes(tok("session "+a.name), Order{}, now, w.path(path)) {
		got = append(got, fmt.Sprint(w.names[x.Session], w.names[x.Branch], x.Time))
	}
	last := map[string]wrote{}
	for _, x := range w.writes {
		if x.path == path && x.name != a.name {
			last[x.name+" "+x.branch+" "+x.worktree] = x
		}
	}
	for _, x := range last {
		if x.time+30*minute > now {
			want = append(want, fmt.Sprint(x.name, x.branch, x.time))
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Fatalf("written at %s: %v, by the model %v", path, got, want)
	}
}

// orderly says what must hold whenever nothing is due: nobody waits for what is free, and a free hub is somebody's turn.
func (w *world) orderly(t *rapid.T, now gitlog.Millis) {
	if len(w.s.Due(now)) > 0 {
		return
	}
	for _, x := range w.waits {
		if w.blocker(&x.actor, x.path, x.class == Tree, now) == "" && x.since+12*hour > now {
			t.Fatalf("%s waits for %s, which nothing denies", x.name, x.path)
		}
	}
	for key, line := range w.lines {
		head := line[0]
		if until := w.turns[key]; w.blocker(&head.actor, head.path, false, now) == "" && until <= now {
			t.Fatalf("%s is first at %s, which is free, and it is not its turn", head.name, key)
		}
	}
}

func TestViewAnswersAsTheModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			w.step(t)
			w.compare(t)
		}
	})
}

// What a View is depends on the log alone: not on when it began, nor on how often it was told.
func TestReplayAndSnapshotGiveTheSameView(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			w.step(t)
		}
		cut := rapid.IntRange(0, len(w.log)).Draw(t, "cut")
		first := New()
		for _, e := range w.log[:cut] {
			first.Apply(e)
		}
		restored := Restore(first.Snapshot())
		for _, e := range w.log[cut:] {
			first.Apply(e)
			first.Apply(e)
			if len(w.log) > 0 {
				first.Apply(w.log[rapid.IntRange(0, cut).Draw(t, "old")%len(w.log)])
			}
			restored.Apply(e)
			if !first.Equal(restored) {
				t.Fatalf("after %+v:\n%+v\n%+v", e, first.Snapshot(), restored.Snapshot())
			}
		}
		if !first.Equal(w.s.View) {
			t.Fatalf("replayed:\n%+v\n%+v", first.Snapshot(), w.s.Snapshot())
		}
		if a, b := first.Due(w.now+hour), restored.Due(w.now+hour); fmt.Sprint(a) != fmt.Sprint(b) {
			t.Fatalf("due:\n%+v\n%+v", a, b)
		}
	})
}

// With nobody doing anything, everything ends: claims within a lease, queues within two turns each, the rest in 12 hours.
func TestEverythingEnds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			w.step(t)
		}
		w.now = max(w.now, w.s.Time())
		if late := w.now + Lease; len(w.s.Claims(Token{}, late)) > 0 {
			t.Fatalf("claims outlive their leases: %+v", w.s.Claims(Token{}, late))
		}
		waiting := 0
		for _, line := range w.lines {
			waiting += len(line)
		}
		for end := w.now + Lease + gitlog.Millis(2*waiting+2)*TurnTime; w.now < end; w.now += minute {
			w.hear(t, w.s.Tick(w.now))
		}
		if s := w.s.Snapshot(); len(s.Claims)+len(s.Waits)+len(s.Queues) > 0 {
			t.Fatalf("not over: %+v", s)
		}
		w.s.Do(Declare{Event{Who: w.who(w.actors["di"]), Kind: gitlog.Message}}, w.now+12*hour)
		s := w.s.Snapshot()
		if len(s.Sessions) != 1 || len(s.Writes)+len(s.Left) > 0 || len(w.s.nodes)+len(w.s.claims)+w.s.waits.Len()+len(w.s.leftBy)+w.s.trees > 0 {
			t.Fatalf("remembered: %+v", s)
		}
	})
}

// While keys change claims carry both tokens; nobody is granted what another holds under the other one.
func TestNewKeysLoseNoClaim(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		steps := func() {
			for range rapid.IntRange(1, 25).Draw(t, "steps") {
				w.step(t)
			}
		}
		steps()
		w.epoch, w.carry, w.rekeyed = w.epoch+1, true, true
		began := w.now
		w.hear(t, w.s.Tick(w.now))
		held := w.s.Claims(Token{}, w.now)
		slices.SortFunc(held, func(a, b Hold) int { return cmp.Compare(a.Until, b.Until) })
		for _, h := range held { // every daemon asks again for what it holds
			a := *w.actors[w.names[h.Session]]
			a.branch, a.worktree = w.names[h.Branch], w.names[h.Worktree]
			again := Want{ID: ClaimID{0: 2, 1: h.Claim[8], 2: h.Claim[9]}, Path: w.path(w.names[h.Path.Own]), Class: h.Class}
			events, _, _ := w.s.Do(Claim{Who: w.who(&a), Wants: []Want{again}}, w.now)
			w.hear(t, events)
		}
		steps()
		w.now = max(w.now, began+Lease)
		w.hear(t, w.s.Tick(w.now))
		w.carry = false
		steps()
	})
}
