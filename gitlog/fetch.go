package gitlog

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// host is a remote as this clone talks to it.
type host struct {
	repo   *Repository
	remote *remote
	git    git // in the background or the foreground, never local
	// crowded becomes true where a fetch found more requests to join than it took.
	crowded *bool
}

func openHost(repo *Repository, r *remote, mode gitMode) host {
	return host{repo: repo, remote: r, git: repo.git().with(mode), crowded: new(bool)}
}

// bounded ends what nobody watches after networkTimeout; a person at the terminal can interrupt.
func (h host) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if h.git.mode == gitBackground {
		return context.WithTimeout(ctx, networkTimeout)
	}
	return context.WithCancel(ctx)
}

// fetchOptions keep a fetch of ours from touching anything but the refs that it names: no tags, FETCH_HEAD, submodules or
// maintenance; none of the person's own fetch lines (--refmap); and whole objects in a partial clone.
var fetchOptions = []string{"fetch", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--no-filter", "--no-recurse-submodules",
	"--no-prune-tags", "--refmap=", "--no-show-forced-updates", "--no-progress", "--quiet"}

// fetch makes the inbox what the host has now: what the host deleted or rewound goes or goes back there too. That is why its
// refspecs are forced, and why nothing is kept there: a tip that was checked is copied to keptRefs, forward only. Audit is
// fetched only if asked for. What a shallow fetch of the
// person's cut off, or a partial one left out, is made whole again. Errors: *SyncFailure.
func (h host) fetch(ctx context.Context, objects *objectStore, audit bool) error {
	folders := []string{"team", "memory"}
	if audit {
		folders = append(folders, "audit")
	}
	return h.fetchFolders(ctx, objects, folders...)
}

// fetchLogsOf is fetch of the logs of these devices alone, and of the team, with or without requests to join it: whatever else
// somebody pushed below refs/knoot then costs this clone nothing.
func (h host) fetchLogsOf(ctx context.Context, objects *objectStore, devices []DeviceID, audit, requests bool) error {
	folders := []string{"team/"}
	if !requests {
		folders = []string{"team/roster"}
	}
	for _, device := range devices {
		folders = append(folders, "memory/"+device.String())
		if audit {
			folders = append(folders, "audit/"+device.String())
		}
	}
	return h.fetchPrefixes(ctx, objects, folders)
}

// fetchFolders is fetch of some of the folders below refs/knoot alone.
func (h host) fetchFolders(ctx context.Context, objects *objectStore, folders ...string) error {
	prefixes := make([]string, len(folders))
	for i, folder := range folders {
		prefixes[i] = folder + "/"
	}
	return h.fetchPrefixes(ctx, objects, prefixes)
}

// fetchPrefixes fetches what begins so below refs/knoot.
func (h host) fetchPrefixes(ctx context.Context, objects *objectStore, prefixes []string) error {
	ctx, cancel := h.bounded(ctx)
	defer cancel()
	refspecs := h.refspecs(prefixes)
	refs := openRefs(h.repo)
	// Junk first: a name in the place of a folder keeps all right names below it out.
	if _, err := refs.removeJunk(ctx, objects, h.remote.inbox); err != nil {
		return err
	}
	for _, namespace := range []string{ownRefs, keptRefs} {
		if err := refs.removeStaleLocks(namespace); err != nil {
			return err
		}
	}
	err := h.fetchUncrowded(ctx, refspecs)
	if errors.Is(err, errCrowded) {
		*h.crowded = true
		for i, prefix := range prefixes {
			if prefix == "team/" {
				prefixes[i] = "team/roster"
			}
		}
		refspecs = h.refspecs(prefixes)
		err = h.fetchRefs(ctx, refspecs, nil, "--prune")
	}
	if isRefConflict(err) {
		// The host itself holds names that exclude each other.
		err = h.fetchRightNames(ctx, prefixes)
	}
	if err != nil {
		return err
	}
	cut, err := mendShallow(ctx, h.repo, objects)
	if err != nil {
		return err
	}
	if cut {
		// --unshallow and --deepen would bring the person's whole history; a depth counts from the refs that are asked for.
		if err := h.fetchRefs(ctx, refspecs, nil, "--prune", "--depth=1000000"); err != nil {
			return err
		}
	}
	return h.completePartial(ctx)
}

func (h host) refspecs(prefixes []string) (refspecs []string) {
	for _, prefix := range prefixes {
		refspecs = append(refspecs, "+"+ownRefs+prefix+"*:"+h.remote.inbox+prefix+"*")
	}
	return refspecs
}

// maxRequestsFetched is how many requests to join are taken from a host; beside more than that a fetch takes none. Whoever can
// push can ask as often as they like, and 10,000 requests would cost each clone 10,000 refs, and each later fetch 40 times its time.
const maxRequestsFetched = 200

// errCrowded: the host holds more requests to join than a fetch takes.
var errCrowded = errors.New("too many requests to join")

// fetchUncrowded is fetchRefs with --prune, ended with errCrowded, and nothing fetched, as soon as the host has listed more requests
// to join than are taken. What the host lists is known only from git's trace of the packets; a git that writes it in another way
// fetches them all.
func (h host) fetchUncrowded(ctx context.Context, refspecs []string) error {
	trace, written, err := os.Pipe()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	counted := make(chan struct{})
	go func() {
		defer close(counted)
		lines := bufio.NewReader(trace)
		for n := 0; ; {
			line, err := lines.ReadSlice('\n')
			if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
				return
			}
			if bytes.Contains(line, []byte("< ")) && bytes.Contains(line, []byte(ownRefs+"team/request/")) {
				if n++; n > maxRequestsFetched {
					cancel(errCrowded)
				}
			}
		}
	}()
	traced := h
	traced.git.trace = written
	err = traced.fetchRefs(ctx, refspecs, nil, "--prune")
	_ = written.Close()
	// A helper of the person's that stays (ssh's master, a credential cache) may have the other end open.
	_ = trace.SetReadDeadline(time.Now())
	<-counted
	_ = trace.Close()
	if errors.Is(context.Cause(ctx), errCrowded) {
		return errCrowded
	}
	return err
}

// completePartial brings, in a partial clone, what a plain fetch of the person's left out of the logs.
func (h host) completePartial(ctx context.Context) error {
	if found, _ := filepath.Glob(filepath.Join(h.repo.CommonDir, "objects", "pack", "*.promisor")); len(found) == 0 {
		return nil
	}
	refs, _, err := openRefs(h.repo).list(ctx, h.remote.inbox, keptRefs)
	if err != nil {
		return err
	}
	var tips, known []Hash
	for _, r := range refs {
		if strings.HasPrefix(r.Name, keptRefs) {
			known = append(known, r.Hash)
		} else {
			tips = append(tips, r.Hash)
		}
	}
	return h.complete(ctx, tips, known)
}

func (h host) fetchRefs(ctx context.Context, refspecs []string, input []byte, options ...string) error {
	args := slices.Concat(fetchOptions, options, []string{"--", h.remote.target}, refspecs)
	_, _, err := h.git.run(ctx, input, args...)
	return networkFailure(h.remote, err)
}

func isRefConflict(err error) bool {
	var failed *SyncFailure
	return errors.As(err, &failed) && (strings.Contains(failed.Detail, "cannot lock ref") || strings.Contains(failed.Detail, "could not be updated") ||
		strings.Contains(failed.Detail, "cannot process"))
}

// fetchRightNames asks the host for its refs one by one, leaving out every name that is not ours in shape.
func (h host) fetchRightNames(ctx context.Context, prefixes []string) error {
	theirs, err := h.list(ctx)
	if err != nil {
		return err
	}
	refs := openRefs(h.repo)
	mine, _, err := refs.list(ctx, h.remote.inbox)
	if err != nil {
		return err
	}
	at := map[string]Hash{}
	for _, m := range mine {
		at[strings.TrimPrefix(m.Name, h.remote.inbox)] = m.Hash
	}
	requests := 0
	for tail := range theirs {
		if strings.HasPrefix(tail, "team/request/") {
			requests++
		}
	}
	var wanted bytes.Buffer
	for tail, tip := range theirs {
		if requests > maxRequestsFetched && strings.HasPrefix(tail, "team/request/") {
			*h.crowded = true
			continue
		}
		if hasPrefixOf(tail, prefixes) && at[tail] != tip {
			fmt.Fprintf(&wanted, "+%s%s:%s%s\n", ownRefs, tail, h.remote.inbox, tail)
		}
	}
	for tail := range at {
		if _, there := theirs[tail]; !there {
			if err := refs.remove(ctx, h.remote.inbox+tail); err != nil {
				return err
			}
		}
	}
	if wanted.Len() == 0 {
		return nil
	}
	return h.fetchRefs(ctx, nil, wanted.Bytes(), "--no-prune", "--stdin")
}

// list returns the host's refs below refs/knoot that are ours in shape, by what stands behind the namespace. The host sends
// every ref it has for this, so it is not for the daily round.
func (h host) list(ctx context.Context) (map[string]Hash, error) {
	ctx, cancel := h.bounded(ctx)
	defer cancel()
	out, err := h.git.output(ctx, "ls-remote", "--refs", "--", h.remote.target, ownRefs+"*")
	if err != nil {
		return nil, networkFailure(h.remote, err)
	}
	refs := map[string]Hash{}
	for line := range strings.SplitSeq(out, "\n") {
		id, name, _ := strings.Cut(line, "\t")
		tail, ours := strings.CutPrefix(name, ownRefs)
		if _, shaped := parseRefPlace(tail); ours && shaped && Hash(id).valid(h.repo.ObjectFormat) {
			refs[tail] = Hash(id)
		}
	}
	return refs, nil
}

// mendShallow looks for logs whose history a shallow fetch of the person's ended in this clone: git then follows them no further,
// and its gc deletes what lies behind. Where all of it is still here, the end is taken back on the spot; cut is true where some of
// it is missing, so that only a host has it.
func mendShallow(ctx context.Context, repo *Repository, objects *objectStore) (cut bool, err error) {
	path := filepath.Join(repo.CommonDir, "shallow")
	content, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("the list of shallow commits cannot be read: %w", err)
	}
	var whole []Hash
	for line := range strings.Lines(string(content)) {
		id := Hash(strings.TrimSpace(line))
		if !id.valid(repo.ObjectFormat) {
			continue
		}
		commit, err := objects.readObject(ctx, id, "commit", maxCommitBytes)
		if err != nil || !bytes.Contains(commit, []byte("\ncommitter "+commitIdentity+" ")) {
			continue
		}
		switch here, err := objects.holdsChain(ctx, id); {
		case err != nil:
			return false, err
		case here:
			whole = append(whole, id)
		default:
			cut = true
		}
	}
	if len(whole) == 0 {
		return cut, nil
	}
	return cut, dropShallow(path, whole)
}

// dropShallow takes commits out of git's list of those without parents, the way that git itself changes it: under its lock, by
// rename; an empty list is no file.
func dropShallow(path string, drop []Hash) error {
	lock, err := os.OpenFile(path+".lock", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if errors.Is(err, os.ErrExist) {
		return nil // git is changing it; the next round looks again
	}
	if err != nil {
		return err
	}
	defer os.Remove(lock.Name()) // where it was not renamed
	defer lock.Close()
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var rest bytes.Buffer
	for line := range strings.Lines(string(content)) {
		if !slices.Contains(drop, Hash(strings.TrimSpace(line))) {
			rest.WriteString(line)
		}
	}
	if rest.Len() == 0 {
		return os.Remove(path)
	}
	if _, err := lock.Write(rest.Bytes()); err != nil {
		return err
	}
	if err := lock.Sync(); err != nil {
		return err
	}
	return os.Rename(lock.Name(), path)
}

// complete fetches the objects behind the tips that this clone has not, as after a plain `git fetch` in a partial clone: git
// holds such tips for complete, so that fetching them again brings nothing. known are commits whose objects are all here.
func (h host) complete(ctx context.Context, tips, known []Hash) error {
	ctx, cancel := h.bounded(ctx)
	defer cancel()
	args := []string{"rev-list", "--objects", "--missing=print", "--no-object-names", "--stdin"}
	var input bytes.Buffer
	for _, tip := range tips {
		fmt.Fprintln(&input, tip)
	}
	for _, k := range known {
		fmt.Fprintf(&input, "^%s\n", k)
	}
	// A missing tree hides what it lists, and those its files: three rounds reach the deepest of ours.
	for range 4 {
		out, err := h.repo.git().runText(ctx, input.Bytes(), args...)
		if err != nil {
			return err
		}
		var wanted bytes.Buffer
		for line := range strings.SplitSeq(out, "\n") {
			if id, missing := strings.CutPrefix(line, "?"); missing {
				fmt.Fprintln(&wanted, id)
			}
		}
		if wanted.Len() == 0 {
			return nil
		}
		withoutTalk := h
		withoutTalk.git.config = []string{"fetch.negotiationAlgorithm=noop"}
		if err := withoutTalk.fetchRefs(ctx, nil, wanted.Bytes(), "--no-prune", "--stdin"); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s sends parts of the log only in pieces: run `git fetch --refetch %[1]s`", h.remote)
}
