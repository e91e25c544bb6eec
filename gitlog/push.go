package gitlog

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// refPush is one ref to be moved on the host. Nothing is ever forced: a ref that holds more than Tip descends from stays.
type refPush struct {
	Name       string // on the host, whole
	Tip        Hash   // "" deletes it
	CreateOnly bool   // refused if the host has the ref at all: a kept log that the host lost
}

// pushResult is what the host said about one ref.
type pushResult struct {
	refPush
	Failure *SyncFailure // nil: the host confirmed that the ref is at Tip, or gone
}

// refsAPush bounds one command's length; more are sent in several.
const refsAPush = 200

// push sends refs by name and returns a result for each, in no order. Only what a result confirms is on the host: after an error
// (*SyncFailure where the whole command failed) the refs without a result may be there or not, and are pushed again. The
// person's hooks, push options, mirror and signature settings do not count.
func (h host) push(ctx context.Context, pushes ...refPush) ([]pushResult, error) {
	var results []pushResult
	for some := range slices.Chunk(pushes, refsAPush) {
		part, err := h.pushOnce(ctx, some)
		results = append(results, part...)
		if err != nil {
			return results, err
		}
	}
	return results, nil
}

func (h host) pushOnce(ctx context.Context, pushes []refPush) ([]pushResult, error) {
	ctx, cancel := h.bounded(ctx)
	defer cancel()
	args := []string{"push", "--porcelain", "--no-verify", "--no-follow-tags", "--no-signed", "--recurse-submodules=no", "--no-progress"}
	var refspecs []string
	byName := map[string]refPush{}
	for _, p := range pushes {
		if !strings.HasPrefix(p.Name, ownRefs) {
			return nil, fmt.Errorf("%s is not ours to push", p.Name)
		}
		if p.CreateOnly {
			args = append(args, "--force-with-lease="+p.Name+":") // "may not exist"
		}
		refspecs = append(refspecs, string(p.Tip)+":"+p.Name)
		byName[p.Name] = p
	}
	g := h.git
	g.config = []string{"push.pushOption="}
	if h.remote.name != "" {
		g.config = append(g.config, "remote."+h.remote.name+".mirror=false")
	}
	out, stderr, err := g.run(ctx, nil, slices.Concat(args, []string{"--", h.remote.target}, refspecs)...)
	results := parsePush(string(out), stderr, h.remote, byName)
	var failed *gitError
	if len(results) == len(pushes) && (err == nil || errors.As(err, &failed)) {
		return results, nil // what failed is said ref by ref
	}
	if err == nil {
		err = &gitError{command: "push", stderr: "fatal: it told nothing of some refs"}
	}
	return results, networkFailure(h.remote, err)
}

// parsePush reads what `git push --porcelain` prints: lines of flag, tab, "from:to", tab, "summary (reason)".
func parsePush(out, stderr string, r *remote, byName map[string]refPush) []pushResult {
	var results []pushResult
	for line := range strings.SplitSeq(out, "\n") {
		fields := strings.SplitN(line, "\t", 3)
		if len(fields) != 3 || len(fields[0]) != 1 {
			continue
		}
		_, name, _ := strings.Cut(fields[1], ":")
		p, asked := byName[name]
		if !asked {
			continue
		}
		delete(byName, name) // one answer each
		result := pushResult{refPush: p}
		switch fields[0] {
		case " ", "*", "=", "-":
		default:
			result.Failure = refFailure(r, name, fields[2], stderr)
		}
		results = append(results, result)
	}
	return results
}

func refFailure(r *remote, name, summary, stderr string) *SyncFailure {
	kind, _ := classify(summary)
	detail := summary
	if _, reason, ok := strings.Cut(summary, "("); ok {
		detail = strings.TrimSuffix(reason, ")")
	}
	if kind == SyncRefused || kind == SyncOtherwise {
		// The host's own words are better than "hook declined", and say whether it is about this person or about such refs.
		for line := range strings.SplitSeq(stderr, "\n") {
			said, theirs := strings.CutPrefix(line, "remote: ")
			if said = strings.TrimSpace(said); !theirs || said == "" {
				continue
			}
			detail += ": " + said
			if k, _ := classify(said); k == SyncReadOnly {
				kind = k
			}
			break
		}
	}
	if kind == SyncOtherwise && strings.HasPrefix(summary, "[remote rejected]") {
		kind = SyncRefused
	}
	return &SyncFailure{Kind: kind, Remote: r.String(), Ref: name, Detail: detail}
}

// probe finds out whether the host takes refs below refs/knoot from this person, by making a throw-away ref and deleting it. There
// is no way that leaves less: a dry run asks neither the host's hooks nor its rules, and a push that is bound to fail would
// not tell why it failed. The ref lies where no fetch of ours looks; its commit is empty and the same for everybody. If
// the host lets nobody delete it, left names it. Errors: *SyncFailure.
func (h host) probe(ctx context.Context, objects *objectStore) (left string, err error) {
	var random [8]byte
	drawRandom(random[:])
	name := ownRefs + "probe/" + hex.EncodeToString(random[:])
	empty, err := objects.writeCommit(ctx, "", nil, time.Unix(0, 0))
	if err != nil {
		return "", err
	}
	for _, p := range []refPush{{Name: name, Tip: empty}, {Name: name}} {
		results, err := h.push(ctx, p)
		if err == nil && results[0].Failure != nil {
			err = results[0].Failure
		}
		if err != nil && p.Tip == "" {
			return name, nil
		}
		if err != nil {
			return "", err
		}
	}
	return "", nil
}

// deleteFromHost deletes those of the host's refs that mine says are this device's, and returns how many.
func (h host) deleteFromHost(ctx context.Context, mine func(refPlace) bool) (int, error) {
	theirs, err := h.list(ctx)
	if err != nil {
		return 0, err
	}
	var pushes []refPush
	for tail := range theirs {
		if place, ok := parseRefPlace(tail); ok && mine(place) {
			pushes = append(pushes, refPush{Name: ownRefs + tail})
		}
	}
	results, err := h.push(ctx, pushes...)
	deleted := 0
	for _, result := range results {
		if result.Failure == nil {
			deleted++
		} else if err == nil {
			err = result.Failure
		}
	}
	return deleted, err
}
