package daemon

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/gitlog"
)

// A sweep is a git command that is about all of a worktree. What it does to the uncommitted changes of other sessions there is the worst
// that happens in a shared checkout: it is refused where it would undo them, and refused once where it would take them along.

// sweepTime is how long a hook waits for git to say what is uncommitted. Without an answer what others hold or left counts as it.
const sweepTime = 120 * time.Millisecond

// maxSweepBytes is how much is said of a command.
const maxSweepBytes = 80

// othersFile is a file of a worktree that another session, or a person, changed there and has not committed.
type othersFile struct {
	Path string
	By   Peer
	At   gitlog.Millis
}

// sweepDenial is what there is to say of a sweep that is refused. Its strings may hold anything.
type sweepDenial struct {
	Now     time.Time
	Root    string
	Command string       // "git reset --hard"
	Takes   bool         // else the changes would be undone
	Stash   bool         // they would be put away
	Removes bool         // they are new files, which would be removed
	Files   []othersFile // at least one
}

// refuseSweep says why a call's git commands are refused, and records that; "": they are not. It asks git, and holds no lock meanwhile.
func (c *hookCall) refuseSweep(ctx context.Context, answer *socket.Answer) (refused bool) {
	if c.h.Event != EventPreTool {
		return false
	}
	c.d.guard("sweep", func() {
		var takes *sweepDenial
		var taken []string
		for i := range c.places {
			p := &c.places[i]
			mode := gitlog.ClaimsOff
			if p.tree != nil && len(p.Sweeps) > 0 {
				mode = c.d.claimMode(p.tree.clone)
			}
			if mode == gitlog.ClaimsOff {
				continue
			}
			c.noteStash(p)
			theirs := c.othersFiles(ctx, p)
			for j := range p.Sweeps {
				denial := theirs.reached(&p.Sweeps[j])
				switch {
				case denial == nil:
				case mode == gitlog.ClaimsNote:
					c.noteSweep(p, denial)
				case denial.Takes:
					if takes == nil {
						takes = denial
					}
					for _, f := range denial.Files {
						taken = append(taken, "sweep\x00"+denial.Command+"\x00"+p.Root+"\x00"+f.Path)
					}
				default:
					refused = c.refuseOnce(denial, nil, answer)
					if !c.repeated {
						c.watch(p.tree, denial.paths())
					}
					return
				}
			}
		}
		if takes != nil {
			refused = c.refuseOnce(takes, taken, answer)
		}
	})
	return refused
}

// refuseOnce puts a denial into the answer and records it, unless the context was told of all these before in this turn. Of a hook
// that comes twice both say the same. Without any it is refused each time.
func (c *hookCall) refuseOnce(denial *sweepDenial, told []string, answer *socket.Answer) bool {
	st := c.d.state
	st.mu.Lock()
	defer st.mu.Unlock()
	ctx := st.sessions[c.key].context(c.h.Subagent)
	// They count how often the command came: after the first it was refused, after the second it is not any more.
	came := func(n int) func(string) bool { return func(each string) bool { return ctx.refused[each] == n } }
	switch {
	case len(told) == 0:
	case c.repeated:
		if !slices.ContainsFunc(told, came(1)) {
			return false
		}
	case !slices.ContainsFunc(told, came(0)):
		if known := slices.DeleteFunc(slices.Clone(told), func(each string) bool { return ctx.refused[each] > 1 }); len(known) > 0 {
			st.commit(&stateRecord{At: c.now, Session: c.key, Subagent: c.h.Subagent, Aside: true, Refused: known})
		}
		return false
	}
	answer.Deny = denial.text(c.d.config.now().Brief.Denial)
	if c.repeated {
		return true
	}
	if len(ctx.refused) == 0 {
		answer.Person = denial.person()
	}
	var files []DeniedFile
	for _, f := range denial.Files {
		files = append(files, DeniedFile{Root: denial.Root, Path: f.Path})
	}
	if len(told) == 0 {
		told = []string{"sweep\x00" + denial.Command + "\x00" + denial.Root}
	}
	told = slices.DeleteFunc(slices.Clone(told), func(each string) bool { return ctx.refused[each] > 0 })
	c.told = &stateRecord{At: c.now, Session: c.key, Subagent: c.h.Subagent, Aside: true, Refused: told,
		Shown: &Shown{Agent: c.h.Agent, Session: c.h.Session, Subagent: c.h.Subagent, At: c.now.Time(), Event: c.h.Event,
			Cause: "denial of " + cleanText(denial.Command, maxSweepBytes) + ", which reaches " + deniedPaths(files), Denied: files, Bytes: len(answer.Deny), Text: answer.Deny}}
	st.commit(c.told)
	return true
}

// othersFiles are the files of a worktree that others changed and did not commit.
type othersFiles struct {
	root               string
	now                time.Time
	folds              bool
	tracked, untracked []othersFile
}

// othersFiles finds out what others have changed in a worktree and not committed: what they hold and wrote, what they left, and what they
// wrote since this session did.
func (c *hookCall) othersFiles(ctx context.Context, p *hookPlace) *othersFiles {
	out := &othersFiles{root: p.Root, now: c.now.Time(), folds: p.tree.folds}
	if !slices.ContainsFunc(p.Sweeps, func(s socket.Sweep) bool { return s.Tracked || s.Untracked }) {
		return out
	}
	found := map[string]othersFile{}
	sure := map[string]bool{} // it is theirs whatever git says, or does not say in time
	by := p.tree.party(ctx, c.key, c.h.Subagent, c.h.User)
	a := p.tree.clone.arbiter
	left := c.d.left.in(a, p.Root)
	a.look(func(v *arbiter.View, now gitlog.Millis) {
		who := a.who(by)
		add := func(session arbiter.Token, path string, at gitlog.Millis, certain bool) {
			known, _ := v.Session(session, now)
			if path == "" || session == who.Session || known.Person && known.Owner == who.Owner {
				return // a person's presence is in nobody's way who works for them
			}
			if f := found[path]; f.At <= at {
				found[path] = othersFile{Path: path, By: peerOf(p.tree.clone.clone, known, a.sessionOf(session)), At: at}
			}
			sure[path] = sure[path] || certain
		}
		mine := map[arbiter.Token]gitlog.Millis{}
		written := v.Writes(arbiter.Token{}, arbiter.Order{}, now)
		for _, w := range written {
			if w.Session == who.Session && w.Worktree == who.Worktree {
				mine[w.Path.Own] = w.Time
			}
		}
		for _, w := range written {
			if w.Worktree == who.Worktree && w.Time > mine[w.Path.Own] {
				add(w.Session, a.pathOf(w.Path), w.Time, false)
			}
		}
		for _, h := range v.Claims(arbiter.Token{}, now) {
			if h.Worktree == who.Worktree && h.Written != 0 && h.Class != arbiter.Tree {
				add(h.Session, a.heldPath(h), h.Written, true)
			}
		}
		for _, f := range left {
			add(a.sessionToken(f.by.Key), f.path, f.since, true)
		}
	})
	var paths []string
	for path := range found {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	if len(paths) == 0 {
		return out
	}
	asking, cancel := context.WithTimeout(ctx, sweepTime)
	defer cancel()
	tracked, untracked, err := p.tree.tree.Changes(asking, paths)
	if err != nil {
		tracked = slices.DeleteFunc(slices.Clone(paths), func(path string) bool { return !sure[path] })
		untracked = tracked
	}
	for _, path := range tracked {
		out.tracked = append(out.tracked, found[path])
	}
	for _, path := range untracked {
		out.untracked = append(out.untracked, found[path])
	}
	return out
}

// in returns what sessions left in a worktree.
func (w *leftWatch) in(a *arbitration, root string) (files []leftFile) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.files[a] {
		if f.by.Root == root {
			files = append(files, *f)
		}
	}
	return files
}

// reached is the denial of a sweep; nil: it reaches nothing of others.
func (o *othersFiles) reached(s *socket.Sweep) *sweepDenial {
	d := &sweepDenial{Now: o.now, Root: o.root, Command: s.Command, Takes: s.Takes, Stash: s.Stash, Removes: !s.Tracked}
	take := func(f othersFile) {
		below := len(s.Paths) == 0 || slices.ContainsFunc(s.Paths, func(path string) bool { return o.covers(path, f.Path) })
		if below && strings.HasSuffix(o.folded(f.Path), o.folded(s.Suffix)) {
			d.Files = append(d.Files, f)
		}
	}
	if s.Tracked {
		for _, f := range o.tracked {
			take(f)
		}
	}
	if s.Untracked {
		for _, f := range o.untracked {
			take(f)
		}
	}
	slices.SortFunc(d.Files, func(a, b othersFile) int { return strings.Compare(a.Path, b.Path) })
	d.Files = slices.Compact(d.Files)
	if len(d.Files) == 0 {
		return nil
	}
	return d
}

func (o *othersFiles) folded(path string) string {
	if o.folds {
		return gitlog.FoldPath(path)
	}
	return path
}

// covers says whether a path is another one, or a folder above it.
func (o *othersFiles) covers(path, file string) bool {
	path, file = o.folded(path), o.folded(file)
	return file == path || strings.HasPrefix(file, path+"/")
}

// noteStash has a context told, once, that the stash is the clone's, where somebody else is at work in another worktree of it.
func (c *hookCall) noteStash(p *hookPlace) {
	if !slices.ContainsFunc(p.Sweeps, func(s socket.Sweep) bool { return s.Stash }) {
		return
	}
	others := map[string]bool{}
	a := p.tree.clone.arbiter
	a.look(func(v *arbiter.View, now gitlog.Millis) {
		for _, s := range v.Sessions(now) {
			root := a.names.name(worktreeType, s.Worktree)
			if a.sessionOf(s.Session) != c.key && root != p.Root && s.Seen+presentFor >= now {
				others[root] = true
			}
		}
	})
	for root := range others {
		if wt := c.d.clones.opened(root); wt != nil && wt.clone == p.tree.clone {
			c.beside = append(c.beside, News{Key: "stash " + p.Root, Kind: NewsStash, At: c.now, Root: p.Root})
			return
		}
	}
}

// noteSweep has a call told what it reaches, where nothing is refused.
func (c *hookCall) noteSweep(p *hookPlace, denial *sweepDenial) {
	for _, f := range denial.Files {
		c.beside = append(c.beside, News{Key: fmt.Sprintf("swept %s %s %d", denial.Command, f.Path, f.At), Kind: NewsSwept, At: f.At, Root: p.Root, Path: f.Path,
			By: f.By, Text: denial.Command})
	}
}

func (d *sweepDenial) paths() (paths []string) {
	for _, f := range d.Files {
		paths = append(paths, f.Path)
	}
	return paths
}

// text is the reason that the agent reads, of at most budget bytes, or of minDenial if that is more.
func (d *sweepDenial) text(budget int) string {
	budget = max(budget, minDenial)
	head := fmt.Sprintf("knoot refused this command; your tools are working. %s would %s in this worktree: ", quoteText(d.Command, maxSweepBytes), d.does())
	tail := ". Nothing was run.\n" + d.instead()
	var files []string
	for _, f := range d.Files {
		files = append(files, fmt.Sprintf("%s (%s, %s)", quotePath(f.Path), f.By.words(), ago(d.Now, f.At.Time())))
	}
	list := someOf(files, budget-len(head)-len(tail))
	if list == "" {
		return cutText(fmt.Sprintf("knoot refused %s: it would %s (%s). Nothing was run.", quoteText(d.Command, maxSweepBytes), d.does(), count(len(d.Files), "file")), budget)
	}
	return head + list + tail
}

// does is what it would do to the files.
func (d *sweepDenial) does() string {
	switch {
	case d.Takes:
		return "take along what others changed and did not commit"
	case d.Stash:
		return "put away uncommitted changes of others"
	case d.Removes:
		return "remove new files of others, which git does not have"
	}
	return "undo uncommitted changes of others"
}

// instead is a form that is safe.
func (d *sweepDenial) instead() string {
	switch {
	case d.Takes:
		safe := "git add -- PATH"
		if strings.HasPrefix(d.Command, "git commit") {
			safe = "git commit -- PATH"
		}
		return "Name your own files (" + safe + "). If theirs are to go along, run the same command again: then it is allowed."
	case d.Stash:
		return "Name your own files (git stash push -- PATH), or work in a tree of your own (git worktree add ../DIR). Do not put theirs away in another way; " +
			"if your user wants that, they can run it themselves."
	case d.Removes:
		return "Remove your own files by name (rm PATH), or work in a tree of your own (git worktree add ../DIR). Do not remove theirs in another way; " +
			"if your user wants that, they can run it themselves."
	}
	return "Name your own files (git restore -- PATH), or work in a tree of your own (git worktree add ../DIR). Do not undo theirs in another way; " +
		"if your user wants that, they can run it themselves."
}

// person is the line that the agent's person sees.
func (d *sweepDenial) person() string {
	files := quotePath(d.Files[0].Path)
	if n := len(d.Files) - 1; n > 0 {
		files += " and " + count(n, "more file")
	}
	return fmt.Sprintf("knoot: %s was refused, since it would %s (%s); your agent was told of another way", quoteText(d.Command, maxSweepBytes), d.does(), files)
}
