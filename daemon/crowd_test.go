package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/gitlog"
)

// One session of many turns among twenty others in one repository, as hooks tell of them, through a daemon. What the session is
// told is held against what a brief may be. `make replay` plays 1,000 turns, and prints the figures.
//
// Six of the others work in the session's own working tree, the rest in three more, each on its branch. They begin, work and end
// all the time. Everybody keeps to two folders of forty, where some files are touched more than others, and goes elsewhere
// with one call in thirty; one write in fifteen is of a file that all share. A turn has one to four reads and up to two writes;
// one in three that wrote ends with a commit of it, and a session with a commit of the rest. At first one file in twenty has a
// fact, and each session leaves about one, or puts one right. Every fifty turns the session takes up other folders, and every
// hundred its context is compacted.
const (
	replayPeers   = 20
	replayHere    = 6
	replayFolders = 40
	replayFiles   = 12 // in each
)

// cast is a session that plays in the replay.
type cast struct {
	p       *crowd
	root    string
	session string
	folders [2]int
	turns   int // that are left
	task    string
	working bool   // its turn goes on
	wrote   string // a file, in this turn
	facts   int    // that it left; more than twenty of a session are refused
	told    func(*socket.Answer)
}

// crowd is the stage of the session, and all who play on it.
type crowd struct {
	t     testing.TB
	m     *machine
	d     *daemon
	clock *clock
	rand  *rand.Rand
	roots []string // the worktree of the session first
	began int      // sessions so far
	hooks int
}

// hook gives a daemon one hook, and returns its answer.
func (c *cast) hook(event string, change func(*socket.Hook)) *socket.Answer {
	c.p.hooks++
	h := &socket.Hook{Agent: "claude", Event: event, Session: c.session, Cwd: c.root, Places: []socket.Place{{Root: c.root}}, Payload: strconv.Itoa(c.p.hooks)}
	if change != nil {
		change(h)
	}
	r := c.p.d.hook(context.Background(), h)
	if r.after != nil {
		r.after()
	}
	if c.told != nil {
		c.told(r.Answer)
	}
	return r.Answer
}

func (p *crowd) path(folder, file int) string {
	return fmt.Sprintf("src/area%02d/file%02d.go", folder, file)
}

// enter begins a session in a worktree.
func (p *crowd) enter(root string) *cast {
	p.began++
	c := &cast{p: p, root: root, session: fmt.Sprintf("session-%04d", p.began), turns: 10 + p.rand.IntN(40), folders: [2]int{p.rand.IntN(replayFolders), p.rand.IntN(replayFolders)}}
	verbs := []string{"rewrite", "speed up", "test", "document", "split", "rename"}
	nouns := []string{"the parser", "the cache", "the totals", "the importer", "the retries", "the settings page", "the search index", "the mailer"}
	c.task = fmt.Sprintf("%s %s in area%02d for ticket %d", verbs[p.rand.IntN(len(verbs))], nouns[p.rand.IntN(len(nouns))], c.folders[0], p.began)
	c.hook(EventSessionStart, func(h *socket.Hook) { h.Source = "startup" })
	return c
}

// near is a file that the session may touch next: mostly one of its folders', and of those mostly the same few.
func (c *cast) near() string {
	folder := c.folders[c.p.rand.IntN(2)]
	if c.p.rand.IntN(30) == 0 {
		folder = c.p.rand.IntN(replayFolders)
	}
	file := min(c.p.rand.IntN(replayFiles), c.p.rand.IntN(replayFiles))
	return c.p.path(folder, file)
}

// turn plays a turn: a prompt, some reads, mostly a write or two, the end.
func (c *cast) turn() {
	c.begin()
	c.end()
}

// end ends a turn, perhaps with a fact about a file that it wrote.
func (c *cast) end() {
	if c.wrote != "" && c.facts < 20 && c.p.rand.IntN(30) == 0 {
		c.facts++
		body, err := json.Marshal(gitlog.RememberRequest{Name: c.wrote, Text: fmt.Sprintf("what ticket %d showed: it is not what it seems", c.p.hooks), Paths: []string{c.wrote}})
		if err != nil {
			c.p.t.Fatal(err)
		}
		if _, err := c.p.d.operation(context.Background(), &socket.Request{Op: "remember", Dir: c.root, Body: body, Caller: &socket.Caller{Session: c.session, Agent: true}}, nil); err != nil {
			c.p.t.Fatal(err)
		}
	}
	if c.wrote != "" && c.p.rand.IntN(3) == 0 {
		c.p.m.git(c.root, "commit", "-qm", c.task, "--allow-empty", "--only", c.wrote)
	}
	c.wrote = ""
	c.hook(eventStop, nil)
	c.working = false
	c.turns--
}

// begin plays a turn but for its end.
func (c *cast) begin() {
	c.working = true
	c.hook(EventPrompt, func(h *socket.Hook) {
		h.Prompt = "go on"
		if c.turns%12 == 0 {
			h.Prompt = "please " + c.task
		}
	})
	for range 1 + c.p.rand.IntN(4) {
		c.call("Read", c.near(), false)
	}
	for range c.p.rand.IntN(3) {
		path := c.near()
		if c.p.rand.IntN(15) == 0 {
			path = "src/routes.go"
		}
		if c.p.rand.IntN(100) < 70 {
			c.call("Read", path, false)
		}
		c.call("Edit", path, true)
	}
	c.p.clock.pass(20 * time.Second)
}

func (c *cast) call(tool, path string, write bool) {
	place := func(h *socket.Hook) {
		h.Tool, h.ToolUse = tool, strconv.Itoa(c.p.hooks)
		if h.Places[0].Reads = []string{path}; write {
			h.Places[0].Reads, h.Places[0].Writes = nil, []string{path}
		}
	}
	if answer := c.hook(EventPreTool, place); answer.Deny != "" {
		return
	}
	if write {
		writeFile(c.p.t, filepath.Join(c.root, path), fmt.Sprintf("package area\n\n// %d\n", c.p.hooks))
		c.wrote = path
	}
	c.hook(EventPostTool, place)
}

// replayed are the figures of a replay.
type replayed struct {
	turns, silent, briefs, bytes, longest, denials, holds int
	stats                                                 Stats
}

func (r *replayed) print(w io.Writer) {
	news := 0
	for _, n := range r.stats.News {
		news += n
	}
	for _, row := range []struct {
		what  string
		value any
	}{
		{"turns", r.turns},
		{"turns on which nothing was said", fmt.Sprintf("%d (%d%%)", r.silent, 100*r.silent/r.turns)},
		{"briefs", r.briefs},
		{"bytes a turn", r.bytes / r.turns},
		{"longest brief in bytes", r.longest},
		{"lines said twice", r.stats.RepeatedLines},
		{"facts told", r.stats.Facts},
		{"of these marked possibly stale", fmt.Sprintf("%d%%", 100*r.stats.Stale/max(r.stats.Facts, 1))},
		{"news told", news},
		{"denials", r.denials},
		{"turns held open", r.holds},
	} {
		fmt.Fprintf(w, "  %-34s %v\n", row.what, row.value)
	}
}

func TestALongSessionAmongMany(t *testing.T) {
	turns := 60
	if text := os.Getenv("KNOOT_TURNS"); text != "" {
		var err error
		if turns, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	m := newMachine(t)
	r := m.repository("shop")
	p := &crowd{t: t, m: m, clock: newClock(), rand: rand.New(rand.NewPCG(1, 2)), roots: []string{r.root}}
	for folder := range replayFolders {
		for file := range replayFiles {
			r.write(p.path(folder, file), "package area\n")
		}
	}
	r.write("src/routes.go", "package src\n")
	m.git(r.root, "add", ".")
	m.git(r.root, "commit", "-qm", "areas")
	for _, branch := range []string{"one", "two", "three"} {
		p.roots = append(p.roots, r.worktree(branch).root)
	}
	p.d = m.start(Options{Now: p.clock.now})
	for n := range replayFolders * replayFiles / 20 {
		path := p.path(p.rand.IntN(replayFolders), p.rand.IntN(replayFiles))
		r.remember(path, fmt.Sprintf("what is to know of place %d: it is not what it seems", n), path)
	}

	got := &replayed{turns: turns}
	said := 0
	me := p.enter(r.root)
	me.task, me.turns = "move all totals to integer cents, area by area", turns
	me.told = func(a *socket.Answer) {
		if a.Deny != "" {
			got.denials++
		}
		if a.Hold != "" {
			got.holds++
		}
		if text := a.Context + a.Hold; text != "" {
			got.briefs, got.bytes, said, got.longest = got.briefs+1, got.bytes+len(text), said+len(text), max(got.longest, len(text))
		}
	}
	peers := make([]*cast, replayPeers)
	for i := range peers {
		root := p.roots[0]
		if i >= replayHere {
			root = p.roots[1+i%(len(p.roots)-1)]
		}
		peers[i] = p.enter(root)
	}
	for n := range turns {
		// A person's prompts are minutes apart; meanwhile some of the others go on.
		for range 8 {
			i := p.rand.IntN(len(peers))
			if !peers[i].working {
				peers[i].begin()
			} else {
				peers[i].end()
			}
			if peers[i].turns == 0 {
				peers[i].hook(eventSessionEnd, nil)
				m.git(peers[i].root, "commit", "-qam", peers[i].task, "--allow-empty")
				peers[i] = p.enter(peers[i].root)
			}
			p.clock.pass(10 * time.Second)
		}
		if n%50 == 49 {
			me.folders = [2]int{p.rand.IntN(replayFolders), p.rand.IntN(replayFolders)}
		}
		if n%100 == 99 {
			me.hook(EventSessionStart, func(h *socket.Hook) { h.Source = "compact" })
		}
		before := said
		me.turn()
		if said == before {
			got.silent++
		}
		if said-before > 2000 {
			t.Errorf("turn %d: %d bytes", n, said-before)
		}
	}
	device, err := m.gitlogHome().Device()
	if err != nil {
		t.Fatal(err)
	}
	var records []Shown
	if err := readStates(m.loc.Home, &device.Local, func(r *stateRecord) {
		if r.Shown != nil {
			records = append(records, *r.Shown)
		}
	}); err != nil {
		t.Fatal(err)
	}
	mine, err := ShownOf(records, me.session)
	if err != nil {
		t.Fatal(err)
	}
	got.stats = ComputeStats(mine, nil, time.Time{})
	var b strings.Builder
	got.print(&b)
	t.Logf("a session of %d turns among %d others (%d hooks):\n%s", turns, replayPeers, p.hooks, b.String())
	if s := ComputeStats(records, nil, time.Time{}); s.RepeatedLines > 0 {
		t.Errorf("%d lines said twice to one context", s.RepeatedLines)
	}
	if got.longest > 4000 {
		t.Errorf("a brief of %d bytes", got.longest)
	}
	if turns >= 500 && 100*got.silent < 60*turns { // of a few turns each one counts for much
		t.Errorf("something was said on %d of %d turns", turns-got.silent, turns)
	}
}
