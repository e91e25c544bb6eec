package gitlog

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// MergeOutcome is what a merge would make of a file that two branches change.
type MergeOutcome int

// Whatever is not known may conflict.
const (
	MayConflict MergeOutcome = iota
	WouldMerge
	WouldConflict
)

func (o MergeOutcome) String() string {
	return [...]string{"may conflict", "would merge", "would conflict"}[o]
}

// Overlap says how the changes of two branches to one file go together, as both files are now.
type Overlap struct {
	Outcome MergeOutcome
	// Lines are the lines of this side's file that conflict, at most 20 ranges; none where the whole file does (it is binary,
	// or gone on one side).
	Lines []LineRange
}

// LineRange is lines First to Last of a file, 1-based. Where lines were taken out it is the line before the gap.
type LineRange struct{ First, Last int }

const (
	// overlapBytes bounds each of the three versions that are merged. Larger ones may conflict.
	overlapBytes = 2 << 20
	// overlapTime bounds the processes that one answer costs.
	overlapTime   = 10 * time.Second
	overlapRanges = 20
)

// Overlap merges a path's file in this worktree with that in another, which belongs to the same clone or to another clone of
// the same repository on this machine. Both are taken as they are now, committed or not; the base is that of both HEADs.
// Nothing is written but temporary files outside of both repositories. What is not known (no common commit, a missing
// object, a file of over 2 MiB) is MayConflict; an error says that git could not be asked.
func (t *Tree) Overlap(ctx context.Context, path string, other *Tree) (Overlap, error) {
	ctx, cancel := context.WithTimeout(ctx, overlapTime)
	defer cancel()
	_, head, err := other.Head(ctx)
	if err != nil || t.repo.Root == "" || other.repo.Root == "" {
		return Overlap{}, err
	}
	found, err := other.look(ctx, path)
	if err != nil {
		return Overlap{}, err
	}
	m := &fileMerge{tree: t, objects: other.repo.CommonDir + "/objects"}
	return m.with(ctx, path, head, mergeSide{blob: found.blob, link: found.stamp.link(), read: func() ([]byte, error) {
		return other.stored(ctx, found.name, found.blob)
	}})
}

// OverlapWithTip does the same with a branch as it was last fetched from a remote, or as it is in this clone where no remote has
// it; for whoever works on another machine. branch is a full ref name. A branch that is not here is MayConflict.
func (t *Tree) OverlapWithTip(ctx context.Context, path, branch string) (Overlap, error) {
	ctx, cancel := context.WithTimeout(ctx, overlapTime)
	defer cancel()
	name, ok := strings.CutPrefix(branch, "refs/heads/")
	if !ok || t.repo.Root == "" {
		return Overlap{}, nil
	}
	out, err := t.git(ctx, "for-each-ref", "--format=%(objectname) %(refname)", "refs/remotes", branch)
	if err != nil {
		return Overlap{}, fmt.Errorf("git does not list branches: %w", err)
	}
	var tip string
	for line := range strings.Lines(out) {
		commit, ref, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		_, remote, _ := strings.Cut(strings.TrimPrefix(ref, "refs/remotes/"), "/")
		if ref == branch && tip == "" || ref != branch && remote == name {
			tip = commit
		}
	}
	if tip == "" {
		return Overlap{}, nil
	}
	m := &fileMerge{tree: t}
	theirs, link, err := m.fileAt(ctx, tip, path)
	if err != nil {
		return Overlap{}, err
	}
	return m.with(ctx, path, tip, mergeSide{blob: theirs, link: link, read: func() ([]byte, error) { return t.object(ctx, nil, theirs) }})
}

// fileMerge merges one file of a worktree with another side's.
type fileMerge struct {
	tree    *Tree
	objects string // where the other side's objects are; "": in this clone
}

// mergeSide is one side's file.
type mergeSide struct {
	blob []byte // nil: it is gone
	link bool
	read func() ([]byte, error)
}

// command prepares git, which reads the other side's objects too and can write to neither repository.
func (m *fileMerge) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := m.tree.command(ctx, args...)
	if m.objects != "" && m.objects != m.tree.repo.CommonDir+"/objects" {
		cmd.Env = append(cmd.Env, "GIT_ALTERNATE_OBJECT_DIRECTORIES="+quoteAlternate(m.objects))
	}
	return cmd
}

// fileAt returns the id of a file in a commit; nil: it has none there.
func (m *fileMerge) fileAt(ctx context.Context, commit, path string) (blob []byte, link bool, err error) {
	out, err := runGit(ctx, m.command(ctx, "ls-tree", "-z", "--full-tree", commit, "--", path))
	if err != nil {
		return nil, false, fmt.Errorf("git cannot read the commit %.10s: %w", commit, err)
	}
	for line := range strings.SplitSeq(out, "\x00") {
		info, name, ok := strings.Cut(line, "\t")
		fields := strings.Fields(info)
		if ok && name == path && len(fields) == 3 && fields[1] == "blob" {
			id, err := hex.DecodeString(fields[2])
			return id, fields[0] == "120000", err
		}
	}
	return nil, false, nil
}

func (m *fileMerge) with(ctx context.Context, path, head string, theirs mergeSide) (Overlap, error) {
	t := m.tree
	_, own, err := t.Head(ctx)
	if err != nil {
		return Overlap{}, err
	}
	found, err := t.look(ctx, path)
	if err != nil {
		return Overlap{}, err
	}
	if bytes.Equal(found.blob, theirs.blob) {
		return Overlap{Outcome: WouldMerge}, nil
	}
	if own == "" || head == "" {
		return Overlap{}, nil
	}
	out, err := runGit(ctx, m.command(ctx, "merge-base", own, head))
	base := strings.TrimSpace(out)
	if err != nil || base == "" {
		// Without a common commit, or where one side's commits are not here.
		return Overlap{}, ctx.Err()
	}
	blob, link, err := m.fileAt(ctx, base, path)
	if err != nil {
		return Overlap{}, err
	}
	switch {
	case bytes.Equal(blob, found.blob), bytes.Equal(blob, theirs.blob):
		return Overlap{Outcome: WouldMerge}, nil // one side alone changes it
	case found.blob == nil, theirs.blob == nil, link, theirs.link, found.stamp.link():
		return Overlap{Outcome: WouldConflict}, nil
	}
	ours, err := t.stored(ctx, found.name, found.blob)
	if err != nil {
		return Overlap{}, ctx.Err()
	}
	others, err := theirs.read()
	if err != nil {
		return Overlap{}, ctx.Err()
	}
	before := []byte{}
	if blob != nil {
		if before, err = m.object(ctx, blob); err != nil {
			return Overlap{}, ctx.Err()
		}
	}
	return m.merge(ctx, ours, before, others)
}

// object reads a blob, from the other side's objects too.
func (m *fileMerge) object(ctx context.Context, blob []byte) ([]byte, error) {
	out, err := runGit(ctx, m.command(ctx, "cat-file", "-s", hex.EncodeToString(blob)))
	if err != nil {
		return nil, err
	}
	var size int64
	if _, err := fmt.Sscan(out, &size); err != nil || size > overlapBytes {
		return nil, errNoObject
	}
	content, err := runGit(ctx, m.command(ctx, "cat-file", "blob", hex.EncodeToString(blob)))
	return []byte(content), err
}

// merge merges three contents, in files of its own.
func (m *fileMerge) merge(ctx context.Context, ours, base, theirs []byte) (Overlap, error) {
	for _, content := range [][]byte{ours, base, theirs} {
		if len(content) > overlapBytes {
			return Overlap{}, nil
		}
		if bytes.IndexByte(content[:min(len(content), 8000)], 0) >= 0 { // as git tells binary files
			return Overlap{Outcome: WouldConflict}, nil
		}
	}
	dir, err := os.MkdirTemp("", "knoot-")
	if err != nil {
		return Overlap{}, fmt.Errorf("no temporary folder for a merge: %w", err)
	}
	defer os.RemoveAll(dir)
	files := map[string][]byte{"ours": ours, "base": base, "theirs": theirs}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return Overlap{}, fmt.Errorf("no temporary files for a merge: %w", err)
		}
	}
	_, err = runGit(ctx, m.command(ctx, "merge-file", "-p", "-q", filepath.Join(dir, "ours"), filepath.Join(dir, "base"), filepath.Join(dir, "theirs")))
	switch exit := exitCode(err); {
	case exit == 0:
		return Overlap{Outcome: WouldMerge}, nil
	case exit < 0:
		return Overlap{}, err
	case exit > 127: // up to there it is the number of conflicts
		return Overlap{}, nil
	}
	o := Overlap{Outcome: WouldConflict}
	our, err := m.hunks(ctx, dir, "ours")
	if err != nil {
		return o, nil // that it conflicts is known all the same
	}
	their, err := m.hunks(ctx, dir, "theirs")
	if err != nil {
		return o, nil
	}
	ourLines, theirLines := splitLines(ours), splitLines(theirs)
	for _, a := range our {
		if len(o.Lines) == overlapRanges {
			break
		}
		if slices.ContainsFunc(their, func(b hunk) bool { return a.meets(b) && !a.same(b, ourLines, theirLines) }) {
			o.Lines = append(o.Lines, a.lines())
		}
	}
	return o, nil
}

// hunk is a piece of a difference: lines [old, old+oldCount) of the one file became [new, new+newCount) of the other, counted
// from 0.
type hunk struct{ old, oldCount, new, newCount int }

// hunks are the differences of a file in dir to the base.
func (m *fileMerge) hunks(ctx context.Context, dir, name string) ([]hunk, error) {
	out, err := runGit(ctx, m.command(ctx, "-c", "diff.algorithm=myers", "diff", "--no-index", "--no-color", "--no-ext-diff", "--no-textconv",
		"--unified=0", "--inter-hunk-context=0", "--", filepath.Join(dir, "base"), filepath.Join(dir, name)))
	if exitCode(err) < 0 || exitCode(err) > 1 {
		return nil, err
	}
	var found []hunk
	for line := range strings.Lines(out) {
		var h hunk
		rest, ok := strings.CutPrefix(line, "@@ -")
		if !ok {
			continue
		}
		old, rest, _ := strings.Cut(rest, " +")
		next, _, _ := strings.Cut(rest, " ")
		h.old, h.oldCount = parseHunk(old)
		h.new, h.newCount = parseHunk(next)
		found = append(found, h)
	}
	return found, nil
}

// parseHunk reads "first,count" or "first" and returns the first line from 0. An empty piece is named by the line before it.
func parseHunk(text string) (first, count int) {
	count = 1
	if n, _ := fmt.Sscanf(text, "%d,%d", &first, &count); n == 2 && count == 0 {
		return first, 0
	}
	return first - 1, count
}

// meets says whether two hunks change the same or neighbouring lines of the base: git merges neither.
func (a hunk) meets(b hunk) bool {
	return a.old <= b.old+b.oldCount && b.old <= a.old+a.oldCount
}

// same says whether both sides made the same change.
func (a hunk) same(b hunk, ours, theirs [][]byte) bool {
	if a.old != b.old || a.oldCount != b.oldCount || a.newCount != b.newCount || a.new+a.newCount > len(ours) || b.new+b.newCount > len(theirs) {
		return false
	}
	return slices.EqualFunc(ours[a.new:a.new+a.newCount], theirs[b.new:b.new+b.newCount], bytes.Equal)
}

func (a hunk) lines() LineRange {
	if a.newCount == 0 {
		return LineRange{max(a.new, 1), max(a.new, 1)}
	}
	return LineRange{a.new + 1, a.new + a.newCount}
}
