package daemon

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"knoot.dev/knoot/gitlog"
)

const (
	// retryOpen is how long an error of opening a repository is believed: `knoot init` may run at any time.
	retryOpen = 2 * time.Second
	// flushAfter is how long events stay in the journal at most before they become a segment.
	flushAfter = time.Minute
	// closeAfter is how long a clone without live sessions stays open.
	closeAfter = time.Hour
)

// clones are the clones that sessions and commands here work in, each open once, with all its worktrees.
type clones struct {
	d *daemon

	mu    sync.Mutex
	roots map[string]*opening   // guarded by mu: by root of the worktree
	byDir map[string]*openClone // guarded by mu: by common git directory
}

func newClones(d *daemon) *clones {
	return &clones{d: d, roots: map[string]*opening{}, byDir: map[string]*openClone{}}
}

// opening is a worktree that is open, or being opened, or that failed to.
type opening struct {
	ready chan struct{} // closed when the rest is set
	tree  *worktree
	err   error
	until time.Time // an error counts until then
	git   stamp     // of <root>/.git
}

// worktree is one worktree of an open clone.
type worktree struct {
	root  string
	repo  *gitlog.Repository
	tree  *gitlog.Tree
	rules *gitlog.Rules
	clone *openClone
	facts *factView

	instructionFiles instructionCache
	statusTook       atomic.Int64 // nanoseconds, of git when it last looked at all files; 0: it did not yet
	statusAt         atomic.Int64 // milliseconds since 1970, of that
	folds            bool         // core.ignorecase
}

// find returns the worktree with that root, open. It waits for its being opened as long as ctx lets it; opening goes on
// all the same, so that the next hook finds it.
func (c *clones) find(ctx context.Context, root string) (*worktree, error) {
	git := stampOfFile(filepath.Join(root, ".git"))
	if git.Dir {
		git = stamp{Inode: git.Inode, Dir: true} // what is in it changes all the time
	}
	now := c.d.options.Now()
	c.mu.Lock()
	o := c.roots[root]
	var old *openClone
	if o != nil {
		select {
		case <-o.ready:
			switch {
			case o.err == nil && (o.git != git || !o.tree.clone.same()):
				o, old = nil, o.tree.clone
			case o.err != nil && (o.git != git || now.After(o.until)):
				o = nil
			}
		default:
		}
	}
	if o == nil {
		o = &opening{ready: make(chan struct{}), git: git}
		c.roots[root] = o
		c.d.loops.Go(func() {
			if old != nil {
				c.drop(old)
			}
			c.open(o, root)
		})
	}
	c.mu.Unlock()
	select {
	case <-o.ready:
		return o.tree, o.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// opened returns the worktree with that root if it is open, else nil.
func (c *clones) opened(root string) *worktree {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.roots[root]; o != nil {
		select {
		case <-o.ready:
			if o.err == nil {
				return o.tree
			}
		default:
		}
	}
	return nil
}

// rootOf returns the root of the open worktree that dir is in, where that is certain without git: the nearest folder upwards with
// a .git is one that git itself named as a root, and none before it could be a bare repository. "": git has to be asked.
func (c *clones) rootOf(dir string) string {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return ""
	}
	for {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			break
		}
		if _, err := os.Lstat(filepath.Join(dir, "HEAD")); err == nil || dir == filepath.Dir(dir) {
			return ""
		}
		dir = filepath.Dir(dir)
	}
	if wt := c.opened(dir); wt == nil || wt.repo.Root != dir {
		return ""
	}
	return dir
}

// open fills o.
func (c *clones) open(o *opening, root string) {
	defer close(o.ready)
	o.err = errPanicked
	c.d.guard("open", func() { o.tree, o.err = c.openWorktree(c.d.work, root) })
	if o.err == nil {
		return
	}
	o.until = c.d.options.Now().Add(retryOpen)
	if errors.Is(o.err, gitlog.ErrNotInitialised) || errors.Is(o.err, gitlog.ErrNoRepository) || errors.Is(o.err, gitlog.ErrNoDevice) {
		c.d.forgive(root)
	} else if c.d.work.Err() == nil {
		c.d.log.Warn("cannot open a repository", "root", root, "error", o.err)
	}
}

func (c *clones) openWorktree(ctx context.Context, root string) (*worktree, error) {
	repo, err := gitlog.FindRepository(ctx, root)
	if err != nil {
		return nil, err
	}
	oc, err := c.clone(ctx, repo)
	if err != nil {
		return nil, err
	}
	tree := gitlog.OpenTree(repo)
	wt := &worktree{root: root, repo: repo, tree: tree, rules: gitlog.OpenRules(repo), clone: oc, folds: tree.FoldsCase()}
	wt.facts = newFactView(wt)
	oc.add(wt)
	oc.later(wt.rules.Warm)
	c.d.settle(ctx, wt)
	return wt, nil
}

// close ends what runs for the worktree.
func (wt *worktree) close() {
	wt.rules.Close()
	_ = wt.tree.Close()
}

// clone returns the open clone that a repository belongs to.
func (c *clones) clone(ctx context.Context, repo *gitlog.Repository) (*openClone, error) {
	c.mu.Lock()
	oc := c.byDir[repo.CommonDir]
	if oc == nil {
		oc = newOpenClone(c.d, repo.CommonDir)
		c.byDir[repo.CommonDir] = oc
		c.d.loops.Go(func() {
			defer close(oc.ready)
			oc.err = errPanicked
			c.d.guard("open", func() {
				c.closeMoved(oc)
				oc.open(repo)
			})
		})
	}
	c.mu.Unlock()
	select {
	case <-oc.ready:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if oc.err != nil {
		c.mu.Lock()
		if c.byDir[repo.CommonDir] == oc {
			delete(c.byDir, repo.CommonDir)
		}
		c.mu.Unlock()
		return nil, oc.err
	}
	return oc, nil
}

// closeMoved closes clones that are not where they were opened any more, for the one that is about to be opened may be one of
// them: its folder was renamed, and its log has one writer.
func (c *clones) closeMoved(next *openClone) {
	for _, oc := range c.all() {
		if oc != next && !oc.same() {
			c.drop(oc)
		}
	}
}

// all returns the clones that are open.
func (c *clones) all() []*openClone {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []*openClone
	for _, oc := range c.byDir {
		select {
		case <-oc.ready:
			if oc.err == nil {
				out = append(out, oc)
			}
		default:
		}
	}
	return out
}

// anyOf returns an open clone of an arbitration's repository; nil: there is none.
func (c *clones) anyOf(a *arbitration) *gitlog.Clone {
	for _, oc := range c.all() {
		if oc.arbiter == a {
			return oc.clone
		}
	}
	return nil
}

// tick looks after each open clone, and closes those that nobody has used for long or whose directory is gone.
func (c *clones) tick() {
	for _, oc := range c.all() {
		if !oc.same() || oc.outdated.Load() || c.d.options.Now().Sub(oc.lastUse()) > closeAfter {
			c.drop(oc)
			continue
		}
		oc.tick()
	}
}

func (c *clones) drop(oc *openClone) {
	c.mu.Lock()
	if c.byDir[oc.common] == oc {
		delete(c.byDir, oc.common)
	}
	for root, o := range c.roots {
		select {
		case <-o.ready:
			if o.err == nil && o.tree.clone == oc {
				delete(c.roots, root)
			}
		default:
		}
	}
	c.mu.Unlock()
	oc.close()
}

// finish makes segments of all journals and pushes what the remotes lack, for limit at most in all.
func (c *clones) finish(limit time.Duration) {
	ctx, cancel := context.WithTimeout(c.d.work, limit)
	defer cancel()
	var each sync.WaitGroup
	for _, oc := range c.all() {
		each.Go(func() { oc.finish(ctx) })
	}
	each.Wait()
}

// close closes all clones and frees their locks. find opens them again.
func (c *clones) close() {
	open := c.all()
	c.mu.Lock()
	c.roots, c.byDir = map[string]*opening{}, map[string]*openClone{}
	c.mu.Unlock()
	for _, oc := range open {
		oc.close()
	}
}

// openClone is a clone that the daemon has open, with what runs for it.
type openClone struct {
	d      *daemon
	common string
	inode  uint64 // of common
	writer stamp  // of the file that says which writer the clone is

	ready chan struct{} // closed when the next four are set
	clone *gitlog.Clone
	// arbiter decides for the clone's repository who may write what.
	arbiter *arbitration
	// relay is the repository at its relay; nil: it has none.
	relay *relayRepository
	err   error

	jobs   chan func(context.Context) // run one after the other, by work
	ctx    context.Context            // of jobs and sync; ends with close
	cancel context.CancelFunc
	loops  sync.WaitGroup
	sync   *syncLoop

	settling sync.Mutex // held by whoever settles what is owed
	followed atomic.Pointer[claimSettings]
	outdated atomic.Bool // the settings name another relay by now: it is to be opened again
	people   sync.Map    // addresses of persons, by KNOOT_USER

	mu       sync.Mutex
	trees    []*worktree   // guarded by mu
	used     time.Time     // guarded by mu
	locked   error         // guarded by mu: why this daemon does not write the clone's log; nil: it does
	dirty    time.Time     // guarded by mu: when the oldest event went to the journal; zero: none is there
	moved    refState      // guarded by mu: of the refs when they were last read
	looking  chan struct{} // guarded by mu: closed when the refresh that is under way has ended; nil: none is
	ended    []opaqueCall  // guarded by mu: command lines of which it was not looked yet what they changed
	shutdown bool          // guarded by mu: jobs are no longer taken
}

func newOpenClone(d *daemon, common string) *openClone {
	oc := &openClone{d: d, common: common, ready: make(chan struct{}), jobs: make(chan func(context.Context), 256), used: d.options.Now()}
	oc.ctx, oc.cancel = context.WithCancel(d.work)
	return oc
}

func (oc *openClone) open(repo *gitlog.Repository) {
	oc.inode = stampOfFile(oc.common).Inode
	oc.moved = lookAtRefs(oc.common)
	oc.clone, oc.err = gitlog.OpenClone(oc.ctx, repo, oc.d.home)
	if oc.err != nil {
		oc.cancel()
		return
	}
	oc.arbiter = oc.d.arbitrations.of(oc.clone)
	oc.lock()
	oc.writer = stampOfFile(oc.writerPath())
	oc.sync = newSyncLoop(oc)
	oc.relay = oc.d.relays.attach(oc.ctx, oc)
	oc.loops.Go(oc.work)
	oc.loops.Go(oc.sync.run)
	if oc.writes() == nil {
		// What a plain `git fetch` brought while no daemon ran is taken in first.
		oc.refresh()
	}
}

func (oc *openClone) writerPath() string { return filepath.Join(oc.common, "knoot", "writer") }

// same reports whether the clone is still the one that was opened: it was not replaced, and knoot was neither set up in
// it since nor taken out.
func (oc *openClone) same() bool {
	return stampOfFile(oc.common).Inode == oc.inode && stampOfFile(oc.writerPath()) == oc.writer
}

// lock tries to become the one that writes the clone's log.
func (oc *openClone) lock() {
	err := oc.clone.Lock(oc.ctx)
	oc.mu.Lock()
	before := oc.locked
	oc.locked = err
	oc.mu.Unlock()
	if err != nil && (before == nil || before.Error() != err.Error()) {
		oc.d.log.Warn("a clone is read only", "repository", oc.common, "error", err)
	}
}

// writes is nil when this daemon writes the clone's log, else why not.
func (oc *openClone) writes() error {
	oc.mu.Lock()
	defer oc.mu.Unlock()
	return oc.locked
}

func (oc *openClone) add(wt *worktree) {
	oc.mu.Lock()
	defer oc.mu.Unlock()
	if oc.shutdown {
		wt.close() // close has been here
	}
	oc.trees = append(oc.trees, wt)
}

func (oc *openClone) worktrees() []*worktree {
	oc.mu.Lock()
	defer oc.mu.Unlock()
	return append([]*worktree(nil), oc.trees...)
}

func (oc *openClone) use() {
	oc.mu.Lock()
	oc.used = oc.d.options.Now()
	oc.mu.Unlock()
}

func (oc *openClone) lastUse() time.Time {
	oc.mu.Lock()
	defer oc.mu.Unlock()
	return oc.used
}

// paused reports whether knoot is off in this clone.
func (oc *openClone) paused(now gitlog.Millis) bool {
	return paused(filepath.Join(oc.common, "knoot", "off"), now)
}

// record writes events to the journal; an error says that none is there, and may pass: another process has the lock.
func (oc *openClone) record(events ...*gitlog.Entry) error {
	if len(events) == 0 {
		return nil
	}
	if err := oc.writes(); err != nil {
		return err
	}
	if err := oc.clone.Record(events...); err != nil {
		return err
	}
	oc.mu.Lock()
	defer oc.mu.Unlock()
	if oc.dirty.IsZero() {
		oc.dirty = oc.d.options.Now()
	}
	return nil
}

// later runs job when those before it are done; never, if too much waits already: each job can be done again. It reports which.
func (oc *openClone) later(job func(context.Context)) bool {
	oc.mu.Lock()
	defer oc.mu.Unlock()
	if oc.shutdown {
		return false
	}
	select {
	case oc.jobs <- job:
		return true
	default:
		return false
	}
}

// lookLater has the files looked at that a command line may have changed. That cannot be done again, so that where too much waits
// it is done with the next.
func (oc *openClone) lookLater(o opaqueCall) {
	oc.mu.Lock()
	oc.ended = append(oc.ended, o)
	oc.mu.Unlock()
	oc.later(oc.lookAfter)
}

// lookAfter looks after the command lines that have ended.
func (oc *openClone) lookAfter(ctx context.Context) {
	oc.mu.Lock()
	ended := oc.ended
	oc.ended = nil
	oc.mu.Unlock()
	for _, o := range ended {
		oc.d.lookAfter(ctx, o)
	}
}

// work runs jobs until close.
func (oc *openClone) work() {
	for job := range oc.jobs {
		if oc.ctx.Err() == nil {
			oc.d.guard("work", func() { job(oc.ctx) })
		}
	}
}

// flush makes a segment of the journal.
func (oc *openClone) flush(ctx context.Context) {
	oc.mu.Lock()
	dirty := oc.dirty
	oc.dirty = time.Time{}
	oc.mu.Unlock()
	if dirty.IsZero() || oc.writes() != nil {
		return
	}
	if err := oc.clone.Flush(ctx); err != nil {
		oc.d.log.Warn("cannot write a segment", "repository", oc.common, "error", err)
		oc.mu.Lock()
		oc.dirty = dirty
		oc.mu.Unlock()
		return
	}
	oc.sync.changed(false)
}

// refresh reads what moved in the refs since the last look, in the background; the channel is closed when that is done.
func (oc *openClone) refresh() <-chan struct{} {
	oc.mu.Lock()
	defer oc.mu.Unlock()
	if oc.looking != nil {
		return oc.looking
	}
	done := make(chan struct{})
	if oc.shutdown {
		close(done)
		return done
	}
	oc.looking = done
	oc.loops.Go(func() {
		state := lookAtRefs(oc.common) // before: what moves meanwhile is looked at again
		err := errPanicked
		oc.d.guard("refresh", func() {
			if err = oc.clone.Refresh(oc.ctx); err == nil && oc.writes() == nil {
				_, err = oc.clone.Accept(oc.ctx)
			}
		})
		oc.mu.Lock()
		oc.moved, oc.looking = state, nil
		oc.mu.Unlock()
		close(done)
		if err != nil && oc.ctx.Err() == nil {
			oc.d.log.Warn("cannot read the refs", "repository", oc.common, "error", err)
		}
		oc.warm()
	})
	return done
}

// refreshIfMoved starts a refresh if somebody moved refs (a plain `git fetch`, a command); nil: nothing moved.
func (oc *openClone) refreshIfMoved() <-chan struct{} {
	state := lookAtRefs(oc.common)
	oc.mu.Lock()
	same := state == oc.moved
	oc.mu.Unlock()
	if same {
		return nil
	}
	return oc.refresh()
}

// warm judges facts in the background, so that hooks find the verdicts made.
func (oc *openClone) warm() {
	oc.later(func(ctx context.Context) {
		for _, wt := range oc.worktrees() {
			wt.facts.warm(ctx)
		}
	})
}

func (oc *openClone) tick() {
	oc.mu.Lock()
	locked := oc.locked
	due := !oc.dirty.IsZero() && oc.d.options.Now().Sub(oc.dirty) >= flushAfter
	trees := append([]*worktree(nil), oc.trees...)
	oc.mu.Unlock()
	if locked != nil {
		oc.lock()
	}
	oc.refreshIfMoved()
	oc.later(func(ctx context.Context) {
		oc.lookAfter(ctx)
		oc.followSettings(ctx)
		oc.knowPeople()
		for _, wt := range trees {
			wt.rules.Warm(ctx)
			oc.d.followNews(ctx, wt)
			oc.d.settle(ctx, wt)
		}
		if due || oc.clone.JournalSize() >= gitlog.JournalFull {
			oc.flush(ctx)
		}
	})
	var kept []*worktree
	for _, wt := range trees {
		if _, err := os.Lstat(wt.root); errors.Is(err, fs.ErrNotExist) {
			wt.close()
			continue
		}
		kept = append(kept, wt)
		if wt.facts.old() {
			oc.later(wt.facts.warm)
		}
	}
	if len(kept) < len(trees) {
		oc.mu.Lock()
		oc.trees = kept
		oc.mu.Unlock()
	}
	oc.sync.tick()
}

// finish settles what is owed, makes a segment of the journal and pushes, as far as ctx allows.
func (oc *openClone) finish(ctx context.Context) {
	for _, wt := range oc.worktrees() {
		oc.d.settle(ctx, wt)
	}
	oc.flush(ctx)
	oc.sync.finish(ctx)
}

// close ends what runs for the clone, and frees its lock.
func (oc *openClone) close() {
	oc.mu.Lock()
	if oc.shutdown {
		oc.mu.Unlock()
		return
	}
	oc.shutdown = true
	close(oc.jobs)
	oc.mu.Unlock()
	oc.cancel()
	oc.loops.Wait()
	if oc.relay != nil {
		oc.d.relays.detach(oc.relay, oc)
	}
	for _, wt := range oc.worktrees() {
		wt.close()
	}
	if err := oc.clone.Close(); err != nil {
		oc.d.log.Warn("cannot close a clone", "repository", oc.common, "error", err)
	}
}

// refState tells cheaply that no ref moved: it sums up names and times of the files that hold refs.
type refState struct {
	files int
	sum   uint64
}

// maxRefFiles bounds the look at loose refs. With more than that `git pack-refs` is overdue, and the rest is seen late.
const maxRefFiles = 5000

// lookAtRefs sums up the refs of a common git directory that knoot reads, or that a push of the user's moves.
func lookAtRefs(common string) refState {
	var s refState
	s.add("packed-refs", stampOfFile(filepath.Join(common, "packed-refs")))
	s.add("reftable", stampOfFile(filepath.Join(common, "reftable", "tables.list")))
	for _, dir := range []string{"knoot", "knoot-remote", "knoot-kept"} {
		s.walk(filepath.Join(common, "refs", dir))
	}
	return s
}

func (s *refState) walk(dir string) {
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if s.files > maxRefFiles {
			return fs.SkipAll
		}
		if !entry.IsDir() && !strings.HasSuffix(path, ".lock") {
			s.files++
			s.add(path, stampOfFile(path))
		}
		return nil
	})
}

func (s *refState) add(name string, st stamp) {
	h := uint64(14695981039346656037) // FNV-1a
	mix := func(v uint64) {
		for range 8 {
			h = (h ^ v&0xff) * 1099511628211
			v >>= 8
		}
	}
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	mix(uint64(st.Size))
	mix(uint64(st.Mtime))
	mix(st.Inode)
	s.sum += h
}
