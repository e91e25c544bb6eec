package gitlog

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
)

// Verdict says how a fact stands in a tree.
type Verdict struct {
	Stale  bool
	Reason string   // one sentence for people and agents, without a full stop; also where Stale is false and a path is gone or the reader's tree older
	Paths  []string // where its paths are now, renames followed; sorted
	Gone   bool     // every path is gone
}

// Fresh says that every path is as it was recorded. A cached answer counts only while its verdict is fresh.
func (v Verdict) Fresh() bool { return v.Reason == "" }

// judgement is a verdict as it is remembered: what was found, and what shows that it still holds.
type judgement struct {
	saw      []sight
	head     string // the commit that HEAD was at, where the verdict depends on it
	byHead   bool
	writes   int // events on its paths: with another the name of who changed it may be another
	findings []finding
	paths    []string
	gone     bool
}

// sight is what was seen of one path.
type sight struct {
	path string
	blob []byte
	// existence: only whether something is there counts, as for a file that a glob matches.
	existence bool
}

type findingKind int

const (
	foundChanged findingKind = iota
	foundGone
	foundNewer
)

// finding is why one path is not as it was recorded. It becomes words only when it is told, since it says how long ago.
type finding struct {
	kind   findingKind
	path   string // as recorded
	now    string // where it is now; "" when gone
	lines  *LineAnchor
	who    string // "" when not known
	when   Millis
	commit string // who's, in hex; for foundNewer the fact's
	here   bool   // changed in this worktree, not committed
	amount string // "31 of 210 lines"
	branch string // foundNewer: the fact's
	dirty  bool   // foundNewer: what it was written against was not committed then
}

// Judge compares an item with the tree. A verdict that stats show to hold is given again; else it runs git, a few
// milliseconds for a changed file. A path that cannot be read (a missing filter, say) counts as unchanged. Errors: ctx's, and git
// that does not run.
func (t *Tree) Judge(ctx context.Context, c *Clone, item *Item, now Millis) (Verdict, error) {
	if item.Fact == nil && (item.Plan == nil || len(item.Plan.Paths) == 0) {
		return Verdict{}, nil
	}
	j, ok := t.holds(item)
	if ok && j.writes == c.countWrites(j.paths) {
		return j.verdict(now), nil
	}
	j, err := t.judge(ctx, c, item)
	if err != nil {
		return Verdict{}, err
	}
	t.mu.Lock()
	if len(t.verdicts) > maxRemembered {
		clear(t.verdicts)
	}
	t.verdicts[item.ID()] = j
	t.mu.Unlock()
	return j.verdict(now), nil
}

// Judged returns the verdict that Judge gave if it still holds, by stats alone: false means that Judge must be asked.
// Events that came since, and would name somebody else, are left for Judge too.
func (t *Tree) Judged(item *Item, now Millis) (Verdict, bool) {
	if item.Fact == nil && (item.Plan == nil || len(item.Plan.Paths) == 0) {
		return Verdict{}, true
	}
	j, ok := t.holds(item)
	if !ok {
		return Verdict{}, false
	}
	return j.verdict(now), true
}

func (t *Tree) holds(item *Item) (*judgement, bool) {
	t.mu.Lock()
	j, ok := t.verdicts[item.ID()]
	at := t.at
	t.mu.Unlock()
	if !ok {
		return nil, false
	}
	for _, s := range j.saw {
		if s.existence {
			if !stampOf(t.abs(s.path)).there {
				return nil, false
			}
			continue
		}
		r, ok := t.recorded(s.path)
		if !ok || !bytes.Equal(r.blob, s.blob) {
			return nil, false
		}
	}
	if j.byHead && (!at.holds() || at.commit != j.head) {
		return nil, false
	}
	return j, true
}

// countWrites is how many events say that one of these paths was written or removed.
func (c *Clone) countWrites(paths []string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, p := range paths {
		n += len(c.writes[p])
	}
	return n
}

func pathsOf(item *Item) []FactPath {
	if item.Plan != nil {
		return item.Plan.Paths
	}
	return item.Fact.Paths
}

// judging is one run of Judge.
type judging struct {
	*Tree
	ctx  context.Context
	c    *Clone
	item *Item
	ref  string
	head string
	fact string // the fact's commit in hex, "" without one
	j    *judgement

	// before is a blob that was read ahead (see ahead), by its id.
	before map[string][]byte
}

func (t *Tree) judge(ctx context.Context, c *Clone, item *Item) (*judgement, error) {
	g := &judging{Tree: t, ctx: ctx, c: c, item: item, j: &judgement{}}
	var err error
	if g.ref, g.head, err = t.Head(ctx); err != nil {
		return nil, err
	}
	g.j.head, g.j.byHead = g.head, t.repo.Root == ""
	if item.Fact != nil {
		g.fact = hex.EncodeToString(item.Fact.Commit)
	}
	paths := pathsOf(item)
	names := make([]string, 0, len(paths))
	for _, p := range paths {
		if !p.Glob {
			names = append(names, p.Path)
		}
	}
	found, err := t.lookAll(ctx, names)
	if err != nil && (ctx.Err() != nil || len(found) == 0) {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	g.j.gone = len(paths) > 0
	for _, p := range paths {
		now, err := g.path(p, found)
		if err != nil {
			return nil, err
		}
		if now != "" {
			g.j.gone = false
		} else {
			now = p.Path
		}
		g.j.paths = append(g.j.paths, now)
	}
	slices.Sort(g.j.paths)
	g.j.paths = slices.Compact(g.j.paths)
	g.j.writes = c.countWrites(g.j.paths)
	return g.j, nil
}

// path judges one path, and returns where it is now, "" when it is gone.
func (g *judging) path(p FactPath, found map[string]blobRecord) (string, error) {
	if p.Glob {
		return g.glob(p)
	}
	r, known := found[p.Path]
	if !known {
		return p.Path, nil
	}
	g.saw(p.Path, r.blob)
	if p.Blob == nil {
		return g.place(p, r)
	}
	if bytes.Equal(r.blob, p.Blob) {
		return p.Path, nil
	}
	now := p.Path
	if r.blob == nil {
		g.j.byHead = true
		var err error
		if now, err = g.renamed(p.Path); err != nil {
			return "", err
		}
		if now == "" {
			return "", g.gone(p)
		}
		if r, err = g.look(g.ctx, now); err != nil {
			return now, g.ctx.Err()
		}
		g.saw(now, r.blob)
		if bytes.Equal(r.blob, p.Blob) {
			return now, nil
		}
	}
	if p.Lines != nil {
		content, err := g.stored(g.ctx, r.name, r.blob)
		if err := g.ctx.Err(); err != nil {
			return "", err
		}
		if err == nil && hasLines(content, p.Lines) {
			return now, nil
		}
	}
	g.j.byHead = true
	return now, g.changed(p, now, r)
}

func (g *judging) saw(path string, blob []byte) {
	g.j.saw = append(g.j.saw, sight{path: path, blob: blob})
}

// place judges what has no blob: a directory, or a path that was not there when the fact was written.
func (g *judging) place(p FactPath, r blobRecord) (string, error) {
	if p.Path == "" || r.stamp.there || r.blob != nil {
		return p.Path, nil
	}
	g.j.byHead = true
	// A sparse checkout leaves whole directories out; they are in the index all the same.
	out, err := g.git(g.ctx, "ls-files", "-v", "-z", "--", p.Path)
	if err != nil && exitCode(err) < 0 {
		return "", err
	}
	for entry := range strings.SplitSeq(out, "\x00") {
		if strings.HasPrefix(entry, "S ") || g.repo.Root == "" && entry != "" {
			return p.Path, nil
		}
	}
	if g.repo.Root == "" && g.head != "" {
		if out, exit, err := g.ask(g.ctx, g.head, "ls-tree", "-z", "--full-tree", g.head, "--", p.Path); err != nil || exit == 0 && out != "" {
			return p.Path, err
		}
	}
	return "", g.gone(p)
}

// glob looks for one file that the pattern matches.
func (g *judging) glob(p FactPath) (string, error) {
	witness, err := g.matchGlob(g.ctx, p.Path)
	if err != nil {
		return "", err
	}
	if witness == "" {
		// A new file that matches shows in HEAD or in the index once git knows it.
		g.j.byHead = true
		g.saw(globRoot(p.Path), nil)
		g.j.findings = append(g.j.findings, finding{kind: foundGone, path: p.Path})
		return "", nil
	}
	if g.repo.Root != "" {
		g.j.saw = append(g.j.saw, sight{path: witness, existence: true})
	}
	return p.Path, nil
}

// globRoot is the directory below which all matches of a pattern are.
func globRoot(pattern string) string {
	if i := strings.IndexAny(pattern, `*?[\`); i >= 0 {
		pattern = pattern[:i]
	}
	if i := strings.LastIndexByte(pattern, '/'); i >= 0 {
		return pattern[:i]
	}
	return ""
}

// matchGlob returns a file that a pattern matches, tracked ones first; "" where there is none.
func (t *Tree) matchGlob(ctx context.Context, pattern string) (string, error) {
	spec := ":(top,glob)" + pattern
	for _, which := range []string{"--cached", "--others"} {
		if t.repo.Root == "" {
			break
		}
		cmd := t.command(ctx, "ls-files", "-z", which, "--exclude-standard", "--", spec)
		cmd.Env = append(cmd.Env, "GIT_LITERAL_PATHSPECS=0")
		out, err := runGit(ctx, cmd)
		if err != nil && exitCode(err) < 0 {
			return "", err
		}
		for name := range strings.SplitSeq(out, "\x00") {
			if name != "" && stampOf(t.abs(name)).there {
				return name, nil
			}
		}
	}
	if t.repo.Root != "" {
		return "", nil
	}
	_, head, err := t.Head(ctx)
	if err != nil || head == "" {
		return "", err
	}
	out, _, err := t.ask(ctx, head, "ls-tree", "-r", "-z", "--name-only", "--full-tree", head)
	for name := range strings.SplitSeq(out, "\x00") {
		if name != "" && matchPattern(pattern, name) {
			return name, err
		}
	}
	return "", err
}

// ancestor says whether the fact's commit is HEAD or an ancestor of it. A fact without a commit counts as one.
func (g *judging) ancestor() (bool, error) {
	if g.fact == "" || g.fact == g.head || g.head == "" {
		return g.fact == "" || g.fact == g.head, nil
	}
	_, exit, err := g.ask(g.ctx, g.head, "merge-base", "--is-ancestor", g.fact, g.head)
	if err != nil || exit <= 1 || !stampOf(g.repo.CommonDir+"/shallow").there {
		return exit == 0, err
	}
	// The history that would tell is cut off: a HEAD younger than the fact counts as following it.
	out, exit, err := g.ask(g.ctx, g.head, "log", "-1", "--no-show-signature", "--format=%ct", g.head, "--")
	at, _ := strconv.ParseUint(strings.TrimSpace(out), 10, 64)
	return exit == 0 && Millis(at*1000) > g.item.Time, err
}

// lastCommit returns the newest commit on paths in HEAD's history that the fact's commit does not have. With filter "D"
// it is the newest that removed one of them.
func (g *judging) lastCommit(filter string, paths ...string) (id, author string, at Millis, err error) {
	if g.head == "" {
		return "", "", 0, nil
	}
	base := []string{"log", "-1", "--no-show-signature", "--no-color", "--format=%H%x00%at%x00%aN"}
	if filter != "" {
		base = append(base, "--no-renames", "--diff-filter="+filter)
	}
	base = append(base, g.head)
	tail := append([]string{"--"}, paths...)
	args := slices.Concat(base, tail)
	if g.fact != "" {
		args = slices.Concat(base, []string{"^" + g.fact}, tail)
	}
	out, exit, err := g.ask(g.ctx, g.head, args...)
	if err == nil && exit != 0 && g.fact != "" { // the fact's commit is not here
		out, _, err = g.ask(g.ctx, g.head, slices.Concat(base, tail)...)
	}
	parts := strings.SplitN(strings.TrimSpace(out), "\x00", 3)
	if err != nil || len(parts) != 3 {
		return "", "", 0, err
	}
	seconds, _ := strconv.ParseUint(parts[1], 10, 64)
	return parts[0], parts[2], Millis(seconds * 1000), nil
}

// hadBlob says whether a path ever had the recorded content in HEAD's history.
func (g *judging) hadBlob(blob []byte, paths ...string) (bool, error) {
	args := append([]string{"log", "--no-show-signature", "--no-color", "--format=", "--raw", "-m", "--no-abbrev", "--no-renames", g.head, "--"}, paths...)
	out, exit, err := g.ask(g.ctx, g.head, args...)
	return exit == 0 && strings.Contains(out, hex.EncodeToString(blob)), err
}

// event returns the newest event after the fact that fits.
func (g *judging) event(fits func(*Stored, string) bool, paths ...string) *Stored {
	var newest *Stored
	for _, p := range paths {
		for _, s := range g.c.Writes(p) {
			if s.Event != nil && s.Time >= g.item.Time && fits(s, p) && (newest == nil || s.Time > newest.Time) {
				newest = s
			}
		}
	}
	return newest
}

// actor names who an event is by.
func (g *judging) actor(s *Stored) string {
	name := g.c.MemberName(s.Author)
	if name == "" {
		name = "someone"
	}
	if s.Event.Person {
		return name
	}
	return name + "'s agent"
}

// sameTree says whether the fact was written in this very worktree: a branch is checked out in one of a clone alone.
func (g *judging) sameTree() bool {
	return g.item.Fact != nil && g.item.Writer == g.c.Writer() && g.item.Fact.Branch == g.ref
}

func (g *judging) newer(f finding, dirty bool) {
	f.kind, f.commit, f.dirty = foundNewer, g.fact, dirty
	if g.item.Fact != nil {
		f.branch = g.item.Fact.Branch
	}
	g.j.findings = append(g.j.findings, f)
}

// changed finds out who changed a path that is not as recorded, or that it is the reader's tree that is behind.
func (g *judging) changed(p FactPath, now string, r blobRecord) error {
	f := finding{kind: foundChanged, path: p.Path, now: now, lines: p.Lines}
	blob, paths := r.blob, []string{now}
	for _, name := range []string{p.Path, r.name} {
		if !slices.Contains(paths, name) {
			paths = append(paths, name)
		}
	}
	written := func(s *Stored, path string) bool {
		return s.Event.hasBlob(path, blob)
	}
	if s := g.event(written, paths...); s != nil {
		f.who, f.when = g.actor(s), s.Time
		return g.told(f, p, r)
	}
	g.ahead(p.Blob, paths)
	clean := false
	for _, name := range paths {
		committed, err := g.headBlob(g.ctx, g.head, name)
		if err != nil {
			return err
		}
		clean = clean || bytes.Equal(committed, blob)
	}
	follows, err := g.ancestor()
	if err != nil {
		return err
	}
	if !follows {
		had, err := g.hadBlob(p.Blob, paths...)
		if err != nil {
			return err
		}
		if !had {
			g.newer(f, false)
			return nil
		}
	}
	id, author, at, err := g.lastCommit("", paths...)
	if err != nil {
		return err
	}
	if id != "" {
		f.who, f.when, f.commit, f.here = author, at, id, !clean
		return g.told(f, p, r)
	}
	if clean && !g.sameTree() {
		// Nobody changed it since: the fact was written against changes that were not committed and are not here.
		g.newer(f, true)
		return nil
	}
	f.here = true
	return g.told(f, p, r)
}

// ahead asks git at once what changed will ask it one by one, since a hook may be waiting: the answers are remembered. An
// error comes again where it counts.
func (g *judging) ahead(old []byte, paths []string) {
	var all sync.WaitGroup
	all.Go(func() {
		for _, name := range paths {
			g.headBlob(g.ctx, g.head, name)
		}
	})
	all.Go(func() { g.ancestor() })
	all.Go(func() { g.lastCommit("", paths...) })
	content, err := g.object(g.ctx, nil, old)
	all.Wait()
	if err == nil {
		g.before = map[string][]byte{string(old): content}
	}
}

// told adds a finding, with how much changed where that can be seen.
func (g *judging) told(f finding, p FactPath, r blobRecord) error {
	if p.Lines == nil {
		before, ok := g.before[string(p.Blob)]
		if !ok {
			before, _ = g.object(g.ctx, nil, p.Blob)
		}
		if after, err := g.stored(g.ctx, r.name, r.blob); err == nil && before != nil {
			f.amount = amount(before, after)
		}
		if err := g.ctx.Err(); err != nil {
			return err
		}
	}
	g.j.findings = append(g.j.findings, f)
	return nil
}

func (e *Event) hasBlob(path string, blob []byte) bool {
	return slices.ContainsFunc(e.Paths, func(p EventPath) bool { return p.Path == path && len(blob) > 0 && bytes.Equal(p.Blob, blob) })
}

// amount says how much of a file changed, as `git diff --numstat` counts: "31 of 210 lines"; "" where it is not text. A
// changed line is one added and one removed; of both sides' lines the greater number is the whole.
func amount(before, after []byte) string {
	const looked = 8000 // git takes a NUL in so many bytes for a sign of binary content
	for _, content := range [][]byte{before, after} {
		if bytes.IndexByte(content[:min(len(content), looked)], 0) >= 0 {
			return ""
		}
	}
	a, b := splitLines(before), splitLines(after)
	n, of := max(countChanges(a, b)), max(len(a), len(b))
	if of == 1 {
		return fmt.Sprintf("%d of 1 line", n)
	}
	return fmt.Sprintf("%d of %d lines", n, of)
}

// maxEdits bounds the work for two versions that have little in common (it grows with the square of the edits).
const maxEdits = 4000

// countChanges returns how many lines were added and removed by the shortest way from a to b, found as Myers does;
// past maxEdits lines only count as kept that both have, wherever they stand.
func countChanges(a, b [][]byte) (added, removed int) {
	for len(a) > 0 && len(b) > 0 && bytes.Equal(a[0], b[0]) {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && bytes.Equal(a[len(a)-1], b[len(b)-1]) {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	// Lines become numbers: they are compared often.
	ids := make(map[string]int)
	number := func(lines [][]byte) []int {
		out := make([]int, len(lines))
		for i, line := range lines {
			id, ok := ids[string(line)]
			if !ok {
				id = len(ids)
				ids[string(line)] = id
			}
			out[i] = id
		}
		return out
	}
	x, y := number(a), number(b)
	most := min(len(x)+len(y), maxEdits)
	// reach[k+most+1] is how far into x the furthest way with so many edits comes on the diagonal k.
	reach := make([]int, 2*most+3)
	for edits := 0; edits <= most; edits++ {
		for k := -edits; k <= edits; k += 2 {
			at := k + most + 1
			i := reach[at-1] + 1
			if k == -edits || k != edits && reach[at-1] < reach[at+1] {
				i = reach[at+1]
			}
			for j := i - k; i < len(x) && j < len(y) && x[i] == y[j]; j++ {
				i++
			}
			reach[at] = i
			if i >= len(x) && i-k >= len(y) {
				added = (edits + len(y) - len(x)) / 2
				return added, edits - added
			}
		}
	}
	count := make(map[int]int)
	for _, id := range x {
		count[id]++
	}
	kept := 0
	for _, id := range y {
		if count[id] > 0 {
			count[id]--
			kept++
		}
	}
	return len(y) - kept, len(x) - kept
}

// renamed follows a path that is missing to where it is now; "" where nothing says.
func (g *judging) renamed(missing string) (string, error) {
	here := missing
	for range 10 {
		committed, err := g.headBlob(g.ctx, g.head, here)
		if err != nil {
			return "", err
		}
		if committed != nil {
			break
		}
		next, err := g.renamedInHistory(here)
		if err != nil || next == "" {
			return "", err
		}
		if r, err := g.look(g.ctx, next); err == nil && r.blob != nil {
			return next, nil
		}
		here = next
	}
	return g.renamedHere(here)
}

func (g *judging) renamedInHistory(from string) (string, error) {
	if g.head == "" {
		return "", nil
	}
	if g.fact != "" && from != "" {
		out, exit, err := g.ask(g.ctx, g.head, "diff-tree", "-r", "-z", "-M", "--diff-filter=R", "--name-status", g.fact, g.head)
		if err != nil {
			return "", err
		}
		if to := renameOf(out, from); exit == 0 && to != "" {
			return to, nil
		}
	}
	// Changed too much on the way, or the fact's commit is not here: the commit that removed it may tell.
	out, exit, err := g.ask(g.ctx, g.head, "log", "-1", "--no-show-signature", "--no-color", "--no-renames", "--diff-filter=D", "--format=%H", g.head, "--", from)
	id := strings.TrimSpace(out)
	if err != nil || exit != 0 || id == "" {
		return "", err
	}
	out, _, err = g.ask(g.ctx, g.head, "diff-tree", "-r", "-z", "-M", "--diff-filter=R", "--name-status", id+"^1", id)
	return renameOf(out, from), err
}

// renameOf finds a path's new name in what `diff --name-status -z` printed.
func renameOf(out, from string) string {
	parts := strings.Split(out, "\x00")
	for i := 0; i+2 < len(parts); i += 3 {
		if parts[i+1] == from {
			return parts[i+2]
		}
	}
	return ""
}

// maxCandidates bounds how many untracked files are compared with a missing one.
const maxCandidates = 200

// renamedHere finds where a file went that HEAD has and the worktree lacks, among files that are staged or not tracked
// yet. Index and objects of the comparison are throw-away copies.
func (g *judging) renamedHere(from string) (string, error) {
	if g.repo.Root == "" || g.head == "" {
		return "", nil
	}
	out, err := g.git(g.ctx, "ls-files", "-z", "--others", "--exclude-standard")
	if err != nil {
		return "", g.ctx.Err()
	}
	untracked := strings.Split(strings.TrimSuffix(out, "\x00"), "\x00")
	untracked = slices.DeleteFunc(untracked, func(name string) bool {
		s := stampOf(g.abs(name))
		return name == "" || !s.regular() || s.size > maxContent
	})
	slices.SortStableFunc(untracked, func(a, b string) int { return likeness(b, from) - likeness(a, from) })
	untracked = untracked[:min(len(untracked), maxCandidates)]

	scratch, err := g.openScratch()
	if err != nil {
		return "", err
	}
	defer scratch.close()
	index := scratch.dir + "/index"
	if err := copyFile(index, g.repo.GitDir+"/index"); err != nil && !os.IsNotExist(err) {
		return "", nil
	}
	run := func(input string, args ...string) (string, error) {
		cmd := g.command(g.ctx, args...)
		scratch.use(cmd)
		cmd.Env = append(cmd.Env, "GIT_INDEX_FILE="+index)
		cmd.Stdin = strings.NewReader(input)
		return runGit(g.ctx, cmd)
	}
	if _, err := run(strings.Join(append(untracked, from), "\x00")+"\x00", "update-index", "-z", "--add", "--remove", "--stdin"); err != nil {
		return "", g.ctx.Err()
	}
	out, err = run("", "diff-index", "--cached", "-M", "-z", "--diff-filter=R", "--name-status", g.head)
	if err != nil {
		return "", g.ctx.Err()
	}
	return renameOf(out, from), nil
}

// likeness ranks candidates for where a file went: same name before same extension before others.
func likeness(candidate, from string) int {
	switch {
	case path.Base(candidate) == path.Base(from):
		return 2
	case path.Ext(candidate) == path.Ext(from):
		return 1
	}
	return 0
}

func copyFile(to, from string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if _, err = io.Copy(dst, src); err != nil {
		dst.Close()
		return err
	}
	return dst.Close()
}

// gone finds out who removed a path, or that the reader's tree never had it.
func (g *judging) gone(p FactPath) error {
	f := finding{kind: foundGone, path: p.Path}
	removed := func(s *Stored, _ string) bool { return s.Kind == PathRemoved }
	if s := g.event(removed, p.Path); s != nil {
		f.who, f.when = g.actor(s), s.Time
		g.j.findings = append(g.j.findings, f)
		return nil
	}
	if g.head == "" {
		g.j.findings = append(g.j.findings, f)
		return nil
	}
	out, exit, err := g.ask(g.ctx, g.head, "ls-tree", "-z", "--full-tree", g.head, "--", p.Path)
	if err != nil {
		return err
	}
	if f.here = exit == 0 && out != ""; f.here {
		g.j.findings = append(g.j.findings, f)
		return nil
	}
	follows, err := g.ancestor()
	if err != nil {
		return err
	}
	id, author, at, err := g.lastCommit("D", p.Path)
	if err != nil {
		return err
	}
	switch {
	case id != "":
		f.who, f.when, f.commit = author, at, id
	case !follows:
		g.newer(f, false)
		return nil
	case g.fact != "" && !g.sameTree():
		// Nobody removed it since. If the fact's commit did not have it, it was not committed when the fact was written.
		out, exit, err := g.ask(g.ctx, g.head, "ls-tree", "-z", "--full-tree", g.fact, "--", p.Path)
		if err != nil {
			return err
		}
		if exit == 0 && out == "" {
			g.newer(f, true)
			return nil
		}
	}
	g.j.findings = append(g.j.findings, f)
	return nil
}

// verdict puts a judgement into words.
func (j *judgement) verdict(now Millis) Verdict {
	v := Verdict{Paths: slices.Clone(j.paths), Gone: j.gone}
	var said []string
	for _, f := range j.findings {
		v.Stale = v.Stale || f.kind == foundChanged
		if s := f.sentence(now); !slices.Contains(said, s) {
			said = append(said, s)
		}
	}
	const most = 3
	if more := len(said) - most; more > 0 {
		said = append(said[:most], fmt.Sprintf("%d more", more))
	}
	v.Reason = strings.Join(said, "; ")
	return v
}

func (f *finding) sentence(now Millis) string {
	switch f.kind {
	case foundNewer:
		where := strings.TrimPrefix(f.branch, "refs/heads/")
		if where == "" {
			where = "no branch"
		}
		where = printable(where)
		if f.commit != "" {
			where += ", commit " + f.commit[:7]
		}
		if f.dirty {
			where = "not committed then; " + where
		}
		return "written against a newer version than yours (" + where + ")"
	case foundGone:
		s := printable(f.path) + " is gone"
		switch {
		case f.who != "":
			s += ": " + printable(f.who) + " removed it " + Age(f.when, now)
			if f.commit != "" {
				s += " (commit " + f.commit[:7] + ")"
			}
		case f.here:
			s += ": removed here, not committed"
		}
		return s
	}
	what := printable(f.now)
	if f.now != f.path {
		what += " (was " + printable(f.path) + ")"
	}
	if f.lines != nil {
		what = fmt.Sprintf("lines %d-%d of %s", f.lines.First, f.lines.Last, what)
	}
	var s string
	switch {
	case f.who != "":
		s = printable(f.who) + " changed " + what + " " + Age(f.when, now)
		if f.commit != "" {
			s += " (commit " + f.commit[:7] + ")"
		}
		if f.here {
			s += ", and it changed here since, not committed"
		}
	default:
		s = what + " changed here, not committed"
	}
	if f.amount != "" {
		s += ", " + f.amount
	}
	return s
}

// printable makes a name or path one visible line: what would not show is escaped.
func printable(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) < 0 {
		return s
	}
	return strings.Trim(strconv.QuoteToGraphic(s), `"`)
}

// Age says how long before now a moment was, in one unit: "just now", "5 minutes ago", "3 days ago". A moment after now
// is just now.
func Age(then, now Millis) string {
	if now <= then {
		return "just now"
	}
	d := time.Duration(now-then) * time.Millisecond
	unit, n := "", 0
	switch {
	case d < time.Minute:
		return "just now"
	case d < time.Hour:
		unit, n = "minute", int(d/time.Minute)
	case d < 24*time.Hour:
		unit, n = "hour", int(d/time.Hour)
	case d < 60*24*time.Hour:
		unit, n = "day", int(d/(24*time.Hour))
	default:
		unit, n = "month", int(d/(30*24*time.Hour))
	}
	if n != 1 {
		unit += "s"
	}
	return fmt.Sprintf("%d %s ago", n, unit)
}

// splitLines splits content at line feeds; a last line need not end with one.
func splitLines(content []byte) [][]byte {
	if len(content) == 0 {
		return nil
	}
	return bytes.Split(bytes.TrimSuffix(content, []byte("\n")), []byte("\n"))
}

// linesDigest is the digest of lines first to last, 1-based; false where the content has not so many.
func linesDigest(content []byte, first, last uint64) (Digest, bool) {
	lines := splitLines(content)
	if first == 0 || last < first || last > uint64(len(lines)) {
		return Digest{}, false
	}
	return sha256.Sum256(bytes.Join(lines[first-1:last], []byte("\n"))), true
}

// maxAnchorWork bounds the bytes that are hashed to find moved lines; past it they count as not found.
const maxAnchorWork = 1 << 28

// hasLines says whether an anchor's lines stand anywhere in content.
func hasLines(content []byte, anchor *LineAnchor) bool { return findLines(content, anchor) > 0 }

// findLines returns the first line of an anchor's text in content, preferring where it was; 0 where it is nowhere.
func findLines(content []byte, anchor *LineAnchor) uint64 {
	lines := splitLines(content)
	n := anchor.Last - anchor.First + 1
	if anchor.First == 0 || anchor.Last < anchor.First || n > uint64(len(lines)) {
		return 0
	}
	// Where each line starts, and one past the end: a window of lines is one piece of content.
	starts := make([]int, 0, len(lines)+1)
	at := 0
	for _, line := range lines {
		starts = append(starts, at)
		at += len(line) + 1
	}
	starts = append(starts, at)
	window := func(first uint64) bool {
		return sha256.Sum256(content[starts[first]:starts[first+n]-1]) == anchor.Digest
	}
	last := uint64(len(lines)) - n
	if anchor.First-1 <= last && window(anchor.First-1) {
		return anchor.First
	}
	work := 0
	for first := uint64(0); first <= last; first++ {
		if work += starts[first+n] - starts[first]; work > maxAnchorWork {
			break
		}
		if window(first) {
			return first + 1
		}
	}
	return 0
}
