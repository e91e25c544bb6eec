package gitlog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// hosting is a host and clones of it, each with the two fetch lines.
type hosting struct {
	dir  string
	host *Repository
}

// actor is one clone of a hosting.
type actor struct {
	testLog
	host host
}

func newHosting(t testing.TB, format string) *hosting {
	t.Helper()
	isolateGit(t)
	s := &hosting{dir: realTempDir(t)}
	mustGit(t, s.dir, "init", "-q", "--bare", "--object-format="+format, "host.git")
	s.host = mustFind(t, filepath.Join(s.dir, "host.git"))
	mustGit(t, s.host.GitDir, "config", "uploadpack.allowFilter", "true")
	seed := newRepository(t, "--object-format="+format)
	for i := range 4 {
		mustGit(t, seed.Root, "commit", "-q", "--allow-empty", "-m", fmt.Sprint(i))
	}
	mustGit(t, seed.Root, "push", "-q", s.host.GitDir, "HEAD:refs/heads/main")
	return s
}

// enter makes a clone; args go to `git clone`.
func (s *hosting) enter(t testing.TB, name string, args ...string) *actor {
	t.Helper()
	mustGit(t, s.dir, append(append([]string{"clone", "-q"}, args...), "file://"+s.host.GitDir, name)...)
	return s.open(t, filepath.Join(s.dir, name))
}

func (s *hosting) open(t testing.TB, dir string) *actor {
	t.Helper()
	l := openTestLog(t, mustFind(t, dir))
	r, err := chooseRemote(context.Background(), l.Repository, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.ensureFetchLines(context.Background(), l.Repository); err != nil {
		t.Fatal(err)
	}
	return &actor{l, openHost(l.Repository, r, gitBackground)}
}

// append writes n commits to a log of the actor's own and returns the tip.
func (a *actor) append(t testing.TB, tail string, n int) Hash {
	t.Helper()
	for i := range n {
		old := a.at(t, ownRefs+tail)
		id := a.commit(t, old, fmt.Sprintf("%s %s %d", a.CommonDir, old, i))
		if err := a.refs.change(context.Background(), refChange{ownRefs + tail, old, id}); err != nil {
			t.Fatal(err)
		}
	}
	return a.at(t, ownRefs+tail)
}

func (a *actor) push(t testing.TB, pushes ...refPush) []pushResult {
	t.Helper()
	results, err := a.host.push(context.Background(), pushes...)
	if err != nil {
		t.Fatal(err)
	}
	return results
}

func (a *actor) pushAll(t testing.TB, pushes ...refPush) {
	t.Helper()
	for _, r := range a.push(t, pushes...) {
		if r.Failure != nil {
			t.Fatal(r.Failure)
		}
	}
}

func (a *actor) fetch(t testing.TB, audit bool) {
	t.Helper()
	if err := a.host.fetch(context.Background(), a.objects, audit); err != nil {
		t.Fatal(err)
	}
}

// keep accepts what the inbox has, as the log does once it has checked it.
func (a *actor) keep(t testing.TB, tail string) Hash {
	t.Helper()
	tip := a.at(t, a.host.remote.inbox+tail)
	if err := a.refs.change(context.Background(), refChange{Name: keptRefs + tail, Old: a.at(t, keptRefs+tail), New: tip}); err != nil {
		t.Fatal(err)
	}
	return tip
}

func (s *hosting) at(t testing.TB, tail string) string {
	t.Helper()
	return mustGit(t, s.host.GitDir, "for-each-ref", "--format=%(objectname)", ownRefs+tail)
}

func audit(b byte, generation int) string {
	return strings.Replace(memoryRef(b, generation), "memory", "audit", 1)
}

func TestPushAndFetch(t *testing.T) {
	for _, format := range []string{"sha1", "sha256"} {
		t.Run(format, func(t *testing.T) {
			s := newHosting(t, format)
			ash, kim := s.enter(t, "ash"), s.enter(t, "kim")
			tip := ash.append(t, memoryRef(1, 1), 3)
			past := ash.append(t, audit(1, 1), 2)
			ash.pushAll(t, refPush{Name: ownRefs + memoryRef(1, 1), Tip: tip}, refPush{Name: ownRefs + audit(1, 1), Tip: past})
			ash.pushAll(t, refPush{Name: ownRefs + memoryRef(1, 1), Tip: tip}) // it is there already: still confirmed

			before := mustGit(t, kim.Root, "for-each-ref", "refs/heads", "refs/remotes", "refs/tags")
			kim.fetch(t, false)
			if kim.at(t, inboxOf("origin")+memoryRef(1, 1)) != tip || kim.at(t, inboxOf("origin")+audit(1, 1)) != "" {
				t.Error("without audit the inbox is not what it should be")
			}
			kim.fetch(t, true)
			if kim.at(t, inboxOf("origin")+audit(1, 1)) != past {
				t.Error("audit was not fetched")
			}
			if commits, _, err := kim.objects.readChain(context.Background(), tip, "", 10); err != nil || len(commits) != 3 {
				t.Errorf("%d commits, %v", len(commits), err)
			}
			if after := mustGit(t, kim.Root, "for-each-ref", "refs/heads", "refs/remotes", "refs/tags"); after != before {
				t.Errorf("the person's refs changed from\n%s\nto\n%s", before, after)
			}
			if _, err := os.Stat(filepath.Join(kim.GitDir, "FETCH_HEAD")); err == nil {
				t.Error("FETCH_HEAD was written")
			}
			// A plain fetch brings memory, too.
			tip = ash.append(t, memoryRef(1, 1), 1)
			ash.pushAll(t, refPush{Name: ownRefs + memoryRef(1, 1), Tip: tip})
			mustGit(t, kim.Root, "fetch", "-q")
			if kim.at(t, inboxOf("origin")+memoryRef(1, 1)) != tip {
				t.Error("a plain fetch did not bring the team's memory")
			}
			if refs, err := kim.host.list(context.Background()); err != nil || len(refs) != 2 || refs[memoryRef(1, 1)] != tip {
				t.Errorf("the host's list: %v, %v", refs, err)
			}
		})
	}
}

// What a person does with fetch, prune, pull and depth never deletes or rewinds what this device wrote or accepted, even where
// the host lost or rewound it.
func TestPersonsFetchesLeaveOursAlone(t *testing.T) {
	s := newHosting(t, "sha1")
	ash, kim := s.enter(t, "ash"), s.enter(t, "kim")
	first := ash.append(t, memoryRef(1, 1), 1)
	ash.pushAll(t, refPush{Name: ownRefs + memoryRef(1, 1), Tip: first})
	kim.fetch(t, false)
	tip := ash.append(t, memoryRef(1, 1), 2)
	ash.pushAll(t, refPush{Name: ownRefs + memoryRef(1, 1), Tip: tip})
	kim.fetch(t, false)
	kim.keep(t, memoryRef(1, 1))
	unpushed := kim.append(t, memoryRef(2, 1), 2)
	check := func(what string) {
		t.Helper()
		if kim.at(t, keptRefs+memoryRef(1, 1)) != tip || kim.at(t, ownRefs+memoryRef(2, 1)) != unpushed {
			t.Errorf("%s: kept %s, own %s", what, kim.at(t, keptRefs+memoryRef(1, 1)), kim.at(t, ownRefs+memoryRef(2, 1)))
		}
	}
	for _, on := range []string{"as it was", "rewound", "lost"} {
		switch on {
		case "rewound":
			mustGit(t, s.host.GitDir, "update-ref", ownRefs+memoryRef(1, 1), string(first))
		case "lost":
			mustGit(t, s.host.GitDir, "update-ref", "-d", ownRefs+memoryRef(1, 1))
		}
		for _, args := range [][]string{{"fetch"}, {"fetch", "--prune"}, {"fetch", "--all", "--prune", "--prune-tags", "--force"}, {"remote", "update", "--prune"}, {"remote", "prune", "origin"}, {"pull", "-q", "--ff-only"}, {"gc", "-q", "--prune=now"}} {
			mustGit(t, kim.Root, args...)
			check(on + ": git " + strings.Join(args, " "))
		}
	}
	if commits, _, err := kim.objects.readChain(context.Background(), tip, "", 10); err != nil || len(commits) != 3 {
		t.Errorf("the accepted log: %d commits, %v", len(commits), err)
	}
}

// Somebody's `git push --mirror` deletes our refs on the host; whoever kept them brings them back, departed writers' too.
func TestMirrorPushHeals(t *testing.T) {
	s := newHosting(t, "sha1")
	ash, kim := s.enter(t, "ash"), s.enter(t, "kim")
	tip := ash.append(t, memoryRef(1, 1), 3)
	ash.pushAll(t, refPush{Name: ownRefs + memoryRef(1, 1), Tip: tip})
	kim.fetch(t, false)
	kept := kim.keep(t, memoryRef(1, 1))
	mustGit(t, s.dir, "clone", "-q", "file://"+s.host.GitDir, "somebody")
	mustGit(t, filepath.Join(s.dir, "somebody"), "push", "-q", "--mirror")
	if s.at(t, memoryRef(1, 1)) != "" {
		t.Fatal("the mirror push left our refs: nothing to test")
	}
	kim.fetch(t, false)
	if kim.at(t, inboxOf("origin")+memoryRef(1, 1)) != "" {
		t.Error("the inbox does not show that the host lacks the ref")
	}
	kim.pushAll(t, refPush{Name: ownRefs + memoryRef(1, 1), Tip: kept, CreateOnly: true})
	if s.at(t, memoryRef(1, 1)) != string(tip) {
		t.Error("it is not back")
	}
	// Create only: who comes second changes nothing, whatever they hold.
	further := ash.append(t, memoryRef(1, 1), 1)
	for _, at := range []Hash{further, first(t, kim, tip)} {
		pusher := ash
		result := pusher.push(t, refPush{Name: ownRefs + memoryRef(1, 1), Tip: at, CreateOnly: true})
		if result[0].Failure == nil || result[0].Failure.Kind != SyncBehind {
			t.Errorf("a second re-push: %+v", result)
		}
	}
	if s.at(t, memoryRef(1, 1)) != string(tip) {
		t.Error("a re-push moved what was there")
	}
}

func first(t testing.TB, a *actor, tip Hash) Hash {
	t.Helper()
	commits, _, err := a.objects.readChain(context.Background(), tip, "", 100)
	if err != nil {
		t.Fatal(err)
	}
	return commits[0].ID
}

func TestPushIsNeverForced(t *testing.T) {
	s := newHosting(t, "sha1")
	ash, kim := s.enter(t, "ash"), s.enter(t, "kim")
	roster := "team/roster"
	genesis := ash.commit(t, "", "genesis")
	ash.pushAll(t, refPush{Name: ownRefs + roster, Tip: genesis})
	kim.fetch(t, false)
	one, two := ash.commit(t, genesis, "one"), kim.commit(t, genesis, "two")
	ash.pushAll(t, refPush{Name: ownRefs + roster, Tip: one})
	// Settings of the person's that would force, mirror or sign.
	for _, setting := range []string{"remote.origin.mirror=true", "push.followTags=true", "push.gpgSign=if-asked", "push.pushOption=ci.skip", "remote.origin.push=+refs/*:refs/*"} {
		key, value, _ := strings.Cut(setting, "=")
		mustGit(t, kim.Root, "config", key, value)
	}
	mine := kim.append(t, memoryRef(2, 1), 1)
	results := kim.push(t, refPush{Name: ownRefs + roster, Tip: two}, refPush{Name: ownRefs + memoryRef(2, 1), Tip: mine})
	if len(results) != 2 {
		t.Fatalf("%+v", results)
	}
	for _, r := range results {
		if lost := r.Name == ownRefs+roster; lost != (r.Failure != nil) || lost && r.Failure.Kind != SyncBehind {
			t.Errorf("%s: %+v", r.Name, r.Failure)
		}
	}
	if s.at(t, roster) != string(one) || s.at(t, memoryRef(2, 1)) != string(mine) {
		t.Error("the host holds something else")
	}
	if heads := mustGit(t, s.host.GitDir, "for-each-ref", "--format=%(refname)", "refs/heads", "refs/remotes"); heads != "refs/heads/main" {
		t.Errorf("more was pushed: %s", heads)
	}
	if _, err := kim.host.push(context.Background(), refPush{Name: "refs/heads/main", Tip: mine}); err == nil {
		t.Error("a branch was pushed")
	}
}

func TestPushFailures(t *testing.T) {
	s := newHosting(t, "sha1")
	ash := s.enter(t, "ash")
	ctx := context.Background()
	tip := ash.append(t, memoryRef(1, 1), 1)
	what := refPush{Name: ownRefs + memoryRef(1, 1), Tip: tip}
	hook := func(script string) func() {
		return func() {
			file := filepath.Join(s.host.GitDir, "hooks", "pre-receive")
			mustWrite(t, file, "#!/bin/sh\n"+script)
			if err := os.Chmod(file, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		name  string
		setUp func()
		kind  SyncFailureKind
		words []string // of the sentence
	}{
		{"a hook", hook("echo 'only refs/heads here' >&2; exit 1\n"), SyncRefused, []string{"does not take refs below refs/knoot", "only refs/heads here", "git config knoot.remote"}},
		{"a hook about rights", hook("echo 'You are not allowed to push code to this project.' >&2; exit 1\n"), SyncReadOnly, []string{"not write", "ask for write access"}},
		{"a hidden namespace", func() {
			_ = os.Remove(filepath.Join(s.host.GitDir, "hooks", "pre-receive"))
			mustGit(t, s.host.GitDir, "config", "receive.hideRefs", "refs/knoot")
		}, SyncRefused, []string{"deny updating a hidden ref"}},
		{"nobody listens", func() { mustGit(t, ash.Root, "remote", "set-url", "origin", "http://ash:s3cret@127.0.0.1:1/x") }, SyncOffline, []string{"cannot be reached", "git ls-remote origin"}},
		{"no such host", func() { mustGit(t, ash.Root, "remote", "set-url", "origin", "http://host.invalid/x") }, SyncOffline, []string{"entries are kept"}},
		{"no such repository", func() { mustGit(t, ash.Root, "remote", "set-url", "origin", filepath.Join(s.dir, "none")) }, SyncNoHost, []string{"git remote -v"}},
	} {
		c.setUp()
		t.Run(c.name, func(t *testing.T) {
			results, err := ash.host.push(ctx, what)
			var failure *SyncFailure
			switch {
			case err == nil && len(results) == 1:
				failure = results[0].Failure
			case !errors.As(err, &failure):
				t.Fatalf("%+v, %v", results, err)
			}
			if failure == nil || failure.Kind != c.kind {
				t.Fatalf("%+v, want kind %d", failure, c.kind)
			}
			for _, words := range c.words {
				if !strings.Contains(failure.Error(), words) {
					t.Errorf("%q lacks %q", failure, words)
				}
			}
			if strings.Contains(failure.Error(), "s3cret") || strings.Contains(failure.Error(), "\n") {
				t.Errorf("%q", failure)
			}
			if c.kind != SyncOffline && c.kind != SyncNoHost {
				if _, err := ash.host.probe(ctx, ash.objects); !errors.As(err, &failure) || failure.Kind != c.kind {
					t.Errorf("the probe: %v", err)
				}
			} else if err := ash.host.fetch(ctx, ash.objects, false); !errors.As(err, &failure) || failure.Kind != c.kind {
				t.Errorf("a fetch: %v", err)
			}
		})
	}
}

func TestClassify(t *testing.T) {
	for text, want := range map[string]SyncFailureKind{
		"remote: Permission to knoot/x.git denied to ash.\nfatal: unable to access 'https://github.com/knoot/x.git/': The requested URL returned error: 403": SyncReadOnly,
		"git@github.com: Permission denied (publickey).\nfatal: Could not read from remote repository.":                                                      SyncLogin,
		"ERROR: Repository not found.\nfatal: Could not read from remote repository.":                                                                        SyncNoHost,
		"fatal: could not read Username for 'https://github.com': terminal prompts disabled":                                                                 SyncLogin,
		"remote: Invalid username or password.\nfatal: Authentication failed for 'https://github.com/x/'":                                                    SyncLogin,
		"ssh: connect to host x port 22: Connection timed out\nfatal: Could not read from remote repository.":                                                SyncOffline,
		"ssh: connect to host x port 22: No route to host":                                                                                                   SyncOffline,
		"fatal: the remote end hung up unexpectedly":                                                                                                         SyncOtherwise,
		"Host key verification failed.": SyncLogin,
	} {
		if got, _ := classify(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func FuzzParsePush(f *testing.F) {
	name := ownRefs + memoryRef(1, 1)
	f.Add("To x\n*\tabc:"+name+"\t[new reference]\nDone\n", "")
	f.Add("!\tabc:"+name+"\t[remote rejected] (hook declined)\n", "remote: no\n")
	f.Fuzz(func(t *testing.T, out, stderr string) {
		results := parsePush(out, stderr, &remote{name: "origin", target: "origin"}, map[string]refPush{name: {Name: name}})
		if len(results) > 1 {
			t.Errorf("one ref, %d answers", len(results))
		}
		for _, r := range results {
			if r.Failure == nil && !slices.ContainsFunc([]string{" \t", "*\t", "=\t", "-\t"}, func(flag string) bool { return strings.Contains(out, flag) }) {
				t.Errorf("taken for confirmed: %q", out)
			}
		}
	})
}

func TestProbeLeavesNothing(t *testing.T) {
	s := newHosting(t, "sha1")
	ash := s.enter(t, "ash")
	ctx := context.Background()
	before := mustGit(t, s.host.GitDir, "for-each-ref")
	if left, err := ash.host.probe(ctx, ash.objects); err != nil || left != "" {
		t.Fatalf("%q, %v", left, err)
	}
	if after := mustGit(t, s.host.GitDir, "for-each-ref"); after != before {
		t.Errorf("on the host is %q", after)
	}
	hook := filepath.Join(s.host.GitDir, "hooks", "update")
	mustWrite(t, hook, "#!/bin/sh\ncase $3 in 000*) exit 1;; esac\n")
	if err := os.Chmod(hook, 0o755); err != nil {
		t.Fatal(err)
	}
	left, err := ash.host.probe(ctx, ash.objects)
	if err != nil || !strings.HasPrefix(left, ownRefs+"probe/") {
		t.Fatalf("where nothing can be deleted: %q, %v", left, err)
	}
	// What is left there disturbs nobody.
	kim := s.enter(t, "kim")
	kim.fetch(t, true)
	if refs, _, err := kim.refs.list(ctx, inboxRefs); err != nil || len(refs) != 0 {
		t.Errorf("%v, %v", refs, err)
	}
}

func TestDeleteFromHost(t *testing.T) {
	s := newHosting(t, "sha1")
	ash, kim := s.enter(t, "ash"), s.enter(t, "kim")
	mine := []string{memoryRef(1, 1), memoryRef(1, 2), audit(1, 1)}
	for _, tail := range mine {
		ash.pushAll(t, refPush{Name: ownRefs + tail, Tip: ash.append(t, tail, 1)})
	}
	theirs := kim.append(t, memoryRef(2, 1), 1)
	kim.pushAll(t, refPush{Name: ownRefs + memoryRef(2, 1), Tip: theirs})
	place, _ := parseRefPlace(mine[0])
	for _, want := range []int{3, 0} {
		n, err := ash.host.deleteFromHost(context.Background(), func(p refPlace) bool { return p.Writer == place.Writer })
		if err != nil || n != want {
			t.Errorf("%d deleted, %v; want %d", n, err, want)
		}
	}
	if got := mustGit(t, s.host.GitDir, "for-each-ref", "--format=%(refname)", ownRefs); got != ownRefs+memoryRef(2, 1) {
		t.Errorf("left: %s", got)
	}
}

// Names on the host that exclude one another, or that are not ours in shape, keep no right one out.
func TestFetchPastJunk(t *testing.T) {
	s := newHosting(t, "sha1")
	ash, kim := s.enter(t, "ash"), s.enter(t, "kim")
	ctx := context.Background()
	tip := ash.append(t, memoryRef(1, 1), 1)
	ash.pushAll(t, refPush{Name: ownRefs + memoryRef(1, 1), Tip: tip})
	check := func(what string) {
		t.Helper()
		kim.fetch(t, false)
		if kim.at(t, inboxOf("origin")+memoryRef(1, 1)) != tip {
			t.Errorf("%s: the right one is not in the inbox", what)
		}
	}
	mustGit(t, s.host.GitDir, "update-ref", ownRefs+"memory/bb", string(tip))
	check("junk")
	mustGit(t, s.host.GitDir, "update-ref", "-d", ownRefs+"memory/bb")
	mustGit(t, s.host.GitDir, "update-ref", ownRefs+"memory/bb/2", string(tip))
	check("junk that became a folder")
	// A plain fetch fails on such a change; ours, which goes on beforehand, mends that too.
	mustGit(t, s.host.GitDir, "update-ref", "-d", ownRefs+"memory/bb/2")
	mustGit(t, s.host.GitDir, "update-ref", ownRefs+"memory/bb", string(tip))
	if _, err := kim.refs.removeJunk(ctx, kim.objects, inboxOf("origin")); err != nil {
		t.Fatal(err)
	}
	mustGit(t, kim.Root, "fetch", "-q")
	// A writer's name as a ref in this clone, where a folder belongs.
	writer := strings.TrimSuffix(memoryRef(1, 1), "/1")
	mustGit(t, kim.Root, "update-ref", "-d", inboxOf("origin")+memoryRef(1, 1))
	mustGit(t, kim.Root, "update-ref", inboxOf("origin")+writer, string(tip))
	check("a ref where a folder belongs")
	// A host that has both at once, as none of git's own can.
	mustGit(t, s.host.GitDir, "pack-refs", "--all")
	packed := filepath.Join(s.host.GitDir, "packed-refs")
	content, err := os.ReadFile(packed)
	if err != nil {
		t.Fatal(err)
	}
	mustWrite(t, packed, strings.Replace(string(content), string(tip)+" "+ownRefs+memoryRef(1, 1), string(tip)+" "+ownRefs+writer+"\n"+string(tip)+" "+ownRefs+memoryRef(1, 1), 1))
	check("both at once")
	mustGit(t, kim.Root, "update-ref", "-d", inboxOf("origin")+memoryRef(1, 1))
	mustGit(t, kim.Root, "update-ref", inboxOf("origin")+memoryRef(9, 9), string(tip))
	check("both at once, from nothing")
	if kim.at(t, inboxOf("origin")+memoryRef(9, 9)) != "" {
		t.Error("a ref that the host has not stays in the inbox")
	}
}

func TestShallowIsMended(t *testing.T) {
	s := newHosting(t, "sha1")
	ash, kim := s.enter(t, "ash"), s.enter(t, "kim", "--depth=2")
	ctx := context.Background()
	tip := ash.append(t, memoryRef(1, 1), 5)
	ash.pushAll(t, refPush{Name: ownRefs + memoryRef(1, 1), Tip: tip})
	mustGit(t, kim.Root, "fetch", "-q", "--depth=1")
	if _, _, err := kim.objects.readChain(ctx, kim.at(t, inboxOf("origin")+memoryRef(1, 1)), "", 10); !errors.Is(err, errMissingObject) {
		t.Fatalf("a shallow fetch did not cut the log: %v", err)
	}
	count := mustGit(t, kim.Root, "rev-list", "--count", "HEAD")
	kim.fetch(t, false)
	if commits, _, err := kim.objects.readChain(ctx, kim.at(t, inboxOf("origin")+memoryRef(1, 1)), "", 10); err != nil || len(commits) != 5 {
		t.Errorf("%d commits, %v", len(commits), err)
	}
	if got := mustGit(t, kim.Root, "rev-list", "--count", "HEAD"); got != count {
		t.Errorf("the person's own history has %s commits, had %s", got, count)
	}
	if cut, err := mendShallow(ctx, kim.Repository, kim.objects); err != nil || cut {
		t.Errorf("still cut off: %v, %v", cut, err)
	}
	// From a shallow clone one's own log goes out whole.
	mine := kim.append(t, memoryRef(2, 1), 2)
	kim.pushAll(t, refPush{Name: ownRefs + memoryRef(2, 1), Tip: mine})
}

// What a shallow fetch hides in this clone is uncovered again without the host, which may have lost it since.
func TestShallowIsMendedWithoutTheHost(t *testing.T) {
	s := newHosting(t, "sha1")
	ash, kim := s.enter(t, "ash"), s.enter(t, "kim")
	ctx := context.Background()
	tip := ash.append(t, memoryRef(1, 1), 4)
	ash.pushAll(t, refPush{Name: ownRefs + memoryRef(1, 1), Tip: tip})
	mine := kim.append(t, memoryRef(2, 1), 4)
	kim.pushAll(t, refPush{Name: ownRefs + memoryRef(2, 1), Tip: mine})
	kim.fetch(t, false)
	kim.keep(t, memoryRef(1, 1))
	mustGit(t, kim.Root, "fetch", "-q", "--depth=1")
	for _, name := range []string{keptRefs + memoryRef(1, 1), ownRefs + memoryRef(2, 1)} {
		if got := mustGit(t, kim.Root, "rev-list", "--count", name); got != "1" {
			t.Fatalf("git follows %s for %s commits: nothing to test", name, got)
		}
	}
	mustGit(t, kim.Root, "remote", "set-url", "origin", filepath.Join(s.dir, "none"))
	if cut, err := mendShallow(ctx, kim.Repository, kim.objects); err != nil || cut {
		t.Fatalf("%v, %v", cut, err)
	}
	mustGit(t, kim.Root, "gc", "-q", "--prune=now")
	for _, h := range []Hash{tip, mine} {
		if here, err := kim.objects.holdsChain(ctx, h); err != nil || !here {
			t.Errorf("after gc: %v, %v", here, err)
		}
	}
	mustGit(t, kim.Root, "fsck", "--no-dangling", "--no-progress")
	if got := mustGit(t, kim.Root, "rev-list", "--count", "HEAD"); got != "1" {
		t.Errorf("the person's own history is %s commits long again", got)
	}
}

func TestPartialIsCompleted(t *testing.T) {
	for _, filter := range []string{"blob:none", "tree:0"} {
		t.Run(filter, func(t *testing.T) {
			s := newHosting(t, "sha1")
			ash, kim := s.enter(t, "ash"), s.enter(t, "kim", "--filter="+filter)
			ctx := context.Background()
			tip := ash.append(t, memoryRef(1, 1), 3)
			ash.pushAll(t, refPush{Name: ownRefs + memoryRef(1, 1), Tip: tip})
			mustGit(t, kim.Root, "fetch", "-q")
			read := func(h Hash) error {
				commits, _, err := kim.objects.readChain(ctx, h, "", 10)
				for _, c := range commits {
					if err == nil {
						_, err = kim.objects.readFiles(ctx, c.Tree, segmentLimits)
					}
				}
				return err
			}
			if err := read(tip); !errors.Is(err, errMissingObject) {
				t.Fatalf("a plain fetch brought all: %v", err)
			}
			kim.fetch(t, false) // nothing moved, and all the same
			if err := read(tip); err != nil {
				t.Error(err)
			}
			// A fetch of ours brings all at once.
			tip = ash.append(t, memoryRef(1, 1), 1)
			ash.pushAll(t, refPush{Name: ownRefs + memoryRef(1, 1), Tip: tip})
			kim.fetch(t, false)
			if err := read(tip); err != nil {
				t.Error(err)
			}
			if got := mustGit(t, kim.Root, "config", "remote.origin.partialCloneFilter"); got != filter {
				t.Errorf("the person's filter is now %q", got)
			}
		})
	}
}

// Each kind of repository pushes and fetches.
func TestSyncInEachKindOfRepository(t *testing.T) {
	s := newHosting(t, "sha1")
	url := "file://" + s.host.GitDir
	at := func(name string) string { return filepath.Join(s.dir, name) }
	mustGit(t, s.dir, "clone", "-q", url, "plain")
	mustGit(t, at("plain"), "worktree", "add", "-q", at("linked"))
	mustGit(t, at("plain"), "config", "extensions.worktreeConfig", "true")
	mustGit(t, s.dir, "clone", "-q", "--separate-git-dir="+at("store"), url, "separate")
	mustGit(t, s.dir, "clone", "-q", "--bare", url, "bare.git")
	mustGit(t, at("bare.git"), "config", "remote.origin.fetch", "+refs/heads/*:refs/heads/*")
	mustGit(t, s.dir, "clone", "-q", "--reference", at("plain"), url, "borrowing")
	mustGit(t, s.dir, "init", "-q", "outer")
	mustGit(t, at("outer"), "submodule", "--quiet", "add", url, "sub")
	mustGit(t, s.dir, "init", "-q", "empty")
	mustGit(t, at("empty"), "remote", "add", "origin", url)
	for i, name := range []string{"linked", "separate", "bare.git", "borrowing", "outer/sub", "empty"} {
		t.Run(name, func(t *testing.T) {
			a := s.open(t, at(name))
			tail := memoryRef(byte(i+1), 1)
			tip := a.append(t, tail, 2)
			a.pushAll(t, refPush{Name: ownRefs + tail, Tip: tip})
			a.fetch(t, true)
			if a.at(t, inboxOf("origin")+tail) != tip || s.at(t, tail) != string(tip) {
				t.Error("it did not come back")
			}
		})
	}
}

// A push that was stopped leaves nothing confirmed, and what it may have done is found by the next one.
func TestPushStopped(t *testing.T) {
	s := newHosting(t, "sha1")
	ash := s.enter(t, "ash")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	tip := ash.append(t, memoryRef(1, 1), 1)
	results, err := ash.host.push(ctx, refPush{Name: ownRefs + memoryRef(1, 1), Tip: tip})
	if !errors.Is(err, context.Canceled) || len(results) != 0 {
		t.Errorf("%+v, %v", results, err)
	}
	ash.pushAll(t, refPush{Name: ownRefs + memoryRef(1, 1), Tip: tip})
}

// Seven devices push at once: a ref each, so that all get through.
func TestPushesDoNotRace(t *testing.T) {
	s := newHosting(t, "sha1")
	const devices = 4
	done := make(chan error)
	for i := range devices {
		a := s.enter(t, fmt.Sprint("clone", i))
		tip := a.append(t, memoryRef(byte(i+1), 1), 1)
		go func() {
			results, err := a.host.push(context.Background(), refPush{Name: ownRefs + memoryRef(byte(i+1), 1), Tip: tip})
			if err == nil && results[0].Failure != nil {
				err = results[0].Failure
			}
			done <- err
		}()
	}
	for range devices {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
