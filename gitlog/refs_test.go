package gitlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseRefPlace(t *testing.T) {
	writer, device := strings.Repeat("0a", 24), strings.Repeat("0b", 16)
	for _, tail := range []string{
		"memory/" + writer + "/1", "audit/" + writer + "/12", "memory/" + writer + "/999999999", "team/roster", "team/request/" + device,
	} {
		place, ok := parseRefPlace(tail)
		if !ok || place.String() != tail {
			t.Errorf("%s: %v, %+v", tail, ok, place)
		}
	}
	for _, tail := range []string{
		"", "memory", "memory/" + writer, "memory/bb", "memory/bb/2", "memory/" + writer + "/0", "memory/" + writer + "/01",
		"memory/" + writer + "/1/2", "memory/" + writer + "/+1", "memory/" + writer + "/-1", "memory/" + writer + "/1000000000",
		"memory/" + strings.ToUpper(writer) + "/1", "memory/" + writer[1:] + "g/1", "memory/" + writer + "/1 ", "Memory/" + writer + "/1",
		"team/roster/x", "team/request", "team/request/" + device + "/1", "team/request/" + writer, "team/x", "secret/" + writer + "/1",
	} {
		if place, ok := parseRefPlace(tail); ok {
			t.Errorf("%q was taken for %+v", tail, place)
		}
	}
}

func FuzzParseRefPlace(f *testing.F) {
	f.Add("memory/" + strings.Repeat("0a", 24) + "/1")
	f.Add("team/roster")
	f.Fuzz(func(t *testing.T, tail string) {
		if place, ok := parseRefPlace(tail); ok && place.String() != tail {
			t.Errorf("%q and %q are one place", tail, place)
		}
	})
}

// testLog is a repository with its refs and objects.
type testLog struct {
	*Repository
	refs    refStore
	objects *objectStore
}

func openTestLog(t testing.TB, repo *Repository) testLog {
	t.Helper()
	objects, err := openObjects(context.Background(), repo, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = objects.close() })
	return testLog{repo, openRefs(repo), objects}
}

// memoryRef is the tail of a well-formed ref whose writer repeats a byte.
func memoryRef(b byte, generation int) string {
	return fmt.Sprintf("memory/%s/%d", strings.Repeat(fmt.Sprintf("%02x", b), 24), generation)
}

// commit stores a commit on parent whose only file holds text.
func (l testLog) commit(t testing.TB, parent Hash, text string) Hash {
	t.Helper()
	id, err := l.objects.writeCommit(context.Background(), parent, map[string][]byte{"0123456789abcdef": []byte(text)}, time.Unix(1_700_000_000, 0))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func (l testLog) at(t testing.TB, name string) Hash {
	t.Helper()
	h, err := l.refs.read(context.Background(), name)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestRefCompareAndSwap(t *testing.T) {
	isolateGit(t)
	ctx := context.Background()
	for _, format := range []string{"sha1", "sha256"} {
		t.Run(format, func(t *testing.T) {
			l := openTestLog(t, newRepository(t, "--object-format="+format))
			name := ownRefs + memoryRef(1, 1)
			one := l.commit(t, "", "one")
			two := l.commit(t, one, "two")
			if err := l.refs.change(ctx, refChange{name, one, two}); !errors.Is(err, errRefMoved) {
				t.Errorf("moving what is not there: %v", err)
			}
			if err := l.refs.create(ctx, name, one); err != nil {
				t.Fatal(err)
			}
			if err := l.refs.create(ctx, name, two); !errors.Is(err, errRefMoved) {
				t.Errorf("creating what is there: %v", err)
			}
			if err := l.refs.change(ctx, refChange{name, two, two}); !errors.Is(err, errRefMoved) {
				t.Errorf("from the wrong old value: %v", err)
			}
			if err := l.refs.change(ctx, refChange{name, one, two}); err != nil {
				t.Fatal(err)
			}
			// All or none.
			other := ownRefs + memoryRef(2, 1)
			if err := l.refs.change(ctx, refChange{other, "", one}, refChange{name, one, one}); !errors.Is(err, errRefMoved) {
				t.Errorf("a transaction that cannot be: %v", err)
			}
			if got := l.at(t, other); got != "" {
				t.Errorf("half of a transaction was done: %s", got)
			}
			if err := l.refs.change(ctx, refChange{other, "", Hash(strings.Repeat("1", len(one)))}); err == nil || errors.Is(err, errRefMoved) {
				t.Errorf("to an object that is not there: %v", err)
			}
			if err := l.refs.change(ctx, refChange{Name: name, Old: one}); !errors.Is(err, errRefMoved) {
				t.Errorf("deleting another value: %v", err)
			}
			mustGit(t, l.Root, "pack-refs", "--all")
			if got := l.at(t, name); got != two {
				t.Errorf("packed: %s, want %s", got, two)
			}
			if err := l.refs.change(ctx, refChange{Name: name, Old: two}); err != nil {
				t.Fatal(err)
			}
			if got := l.at(t, name); got != "" {
				t.Errorf("after the deletion: %s", got)
			}
		})
	}
}

func TestRefListKeepsToItsPrefix(t *testing.T) {
	isolateGit(t)
	ctx := context.Background()
	l := openTestLog(t, newRepository(t))
	one := l.commit(t, "", "one")
	for _, name := range []string{ownRefs + memoryRef(2, 1), ownRefs + memoryRef(1, 1), keptRefs + memoryRef(1, 1), "refs/knootish/x"} {
		if err := l.refs.create(ctx, name, one); err != nil {
			t.Fatal(err)
		}
	}
	refs, broken, err := l.refs.list(ctx, ownRefs)
	if err != nil || len(broken) != 0 {
		t.Fatal(broken, err)
	}
	want := []ref{{ownRefs + memoryRef(1, 1), one, ""}, {ownRefs + memoryRef(2, 1), one, ""}}
	if !slices.Equal(refs, want) {
		t.Errorf("%v, want %v", refs, want)
	}
}

// Junk of each kind, loose and packed, goes; right refs and other people's namespaces stay.
func TestRemoveJunk(t *testing.T) {
	isolateGit(t)
	ctx := context.Background()
	for _, packed := range []bool{false, true} {
		t.Run(fmt.Sprintf("packed %v", packed), func(t *testing.T) {
			l := openTestLog(t, newRepository(t))
			inbox := inboxOf("team/origin")
			one := l.commit(t, "", "one")
			blob := mustGit(t, l.Root, "rev-parse", string(one)+":0123456789abcdef")
			head := mustGit(t, l.Root, "rev-parse", "HEAD")
			good := []string{inbox + memoryRef(1, 1), inbox + "team/roster", inbox + "team/request/" + strings.Repeat("0b", 16), inbox + strings.Replace(memoryRef(1, 3), "memory", "audit", 1)}
			others := []string{"refs/heads/memory/bb", "refs/remotes/team/origin/x", "refs/knoot-remote2/x", ownRefs + "memory/odd", inboxOf("other") + "memory/bb"}
			for _, name := range append(append([]string{}, good...), others...) {
				mustGit(t, l.Root, "update-ref", name, string(one))
			}
			var junk []string
			add := func(name string, write func(name string)) {
				junk = append(junk, inbox+name)
				write(inbox + name)
			}
			to := func(h string) func(string) { return func(name string) { mustGit(t, l.Root, "update-ref", name, h) } }
			file := func(content string) func(string) {
				return func(name string) { mustWrite(t, filepath.Join(l.CommonDir, name), content) }
			}
			add("memory/bb", to(string(one)))
			add("memory/cc/2", to(string(one)))
			add("x", to(head))
			add("team/roster2", to(string(one)))
			add(memoryRef(9, 2), to(blob)) // right name, no commit
			if packed {
				mustGit(t, l.Root, "pack-refs", "--all")
				add(memoryRef(3, 1), func(name string) {
					packedRefs := filepath.Join(l.CommonDir, "packed-refs")
					content, err := os.ReadFile(packedRefs)
					if err != nil {
						t.Fatal(err)
					}
					header, lines, _ := strings.Cut(string(content), "\n")
					all := strings.SplitAfter(strings.TrimSuffix(lines, "\n"), "\n")
					all[len(all)-1] += "\n"
					all = append(all, strings.Repeat("1", 40)+" "+name+"\n", string(one)+" "+inbox+"memory/a..b\n")
					all = slices.DeleteFunc(all, func(l string) bool { return strings.HasPrefix(l, "^") })
					slices.SortFunc(all, func(a, b string) int { return strings.Compare(a[41:], b[41:]) })
					mustWrite(t, packedRefs, strings.Replace(header, " fully-peeled", "", 1)+"\n"+strings.Join(all, ""))
				})
				junk = append(junk, inbox+"memory/a..b")
			} else {
				add(memoryRef(3, 1), file(strings.Repeat("1", 40)+"\n")) // points nowhere
				add(memoryRef(4, 1), file(""))
				add(memoryRef(5, 1), file("garbage\n"))
				add(memoryRef(6, 1), file("ref: refs/heads/main\n"))
				add(memoryRef(7, 1), file("ref: refs/heads/none\n"))
				add("memory/a..b", file(string(one)+"\n"))
			}
			removed, err := l.refs.removeJunk(ctx, l.objects, inbox)
			if err != nil {
				t.Error(err)
			}
			slices.Sort(removed)
			slices.Sort(junk)
			if !slices.Equal(removed, junk) {
				t.Errorf("removed\n%q, want\n%q", removed, junk)
			}
			if again, err := l.refs.removeJunk(ctx, l.objects, inbox); err != nil || len(again) != 0 {
				t.Errorf("a second time: %q, %v", again, err)
			}
			for _, name := range append(good, others...) {
				if l.at(t, name) != one {
					t.Errorf("%s is gone", name)
				}
			}
			if got := mustGit(t, l.Root, "rev-parse", "refs/heads/main"); got != head {
				t.Errorf("what a symbolic ref pointed to moved to %s", got)
			}
			mustGit(t, l.Root, "for-each-ref", "--format=%(objecttype)")
			mustGit(t, l.Root, "gc", "-q")
		})
	}
}

func TestRemoveJunkOnlyInItsNamespaces(t *testing.T) {
	isolateGit(t)
	l := openTestLog(t, newRepository(t))
	for _, namespace := range []string{"refs/heads/", "refs/", ownRefs, ""} {
		if _, err := l.refs.removeJunk(context.Background(), l.objects, namespace); err == nil {
			t.Errorf("%q was cleaned", namespace)
		}
	}
}

func TestRemoveStaleLocks(t *testing.T) {
	isolateGit(t)
	ctx := context.Background()
	l := openTestLog(t, newRepository(t))
	name := ownRefs + memoryRef(1, 1)
	one := l.commit(t, "", "one")
	lock := filepath.Join(l.CommonDir, name+".lock")
	mustWrite(t, lock, "")
	if err := l.refs.create(ctx, name, one); !errors.Is(err, errRefBusy) {
		t.Fatalf("with a lock on it: %v", err)
	}
	if err := l.refs.removeStaleLocks(ownRefs); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(lock); err != nil {
		t.Error("a fresh lock was taken away")
	}
	theirs := filepath.Join(l.CommonDir, "refs/heads/x.lock")
	mustWrite(t, theirs, "")
	old := time.Now().Add(-time.Hour)
	for _, path := range []string{lock, theirs} {
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.refs.removeStaleLocks(ownRefs); err != nil {
		t.Fatal(err)
	}
	if err := l.refs.create(ctx, name, one); err != nil {
		t.Errorf("after an hour: %v", err)
	}
	if _, err := os.Stat(theirs); err != nil {
		t.Error("a lock of another namespace was taken away")
	}
	if err := l.refs.removeStaleLocks("refs/heads/"); err == nil {
		t.Error("another namespace was looked through")
	}
}

// appendMany appends n commits to one ref, going back to the start of the loop when another was faster, and returns what it was
// told is in.
func appendMany(t testing.TB, l testLog, name, who string, n int) (acknowledged []Hash) {
	ctx := context.Background()
	for len(acknowledged) < n {
		old := l.at(t, name)
		id := l.commit(t, old, fmt.Sprintf("%s %d", who, len(acknowledged)))
		err := l.refs.change(ctx, refChange{name, old, id})
		if errors.Is(err, errRefMoved) || errors.Is(err, errRefBusy) {
			continue
		}
		if err != nil {
			t.Error(err)
			return acknowledged
		}
		acknowledged = append(acknowledged, id)
	}
	return acknowledged
}

// Goroutines and processes append to one ref, while somebody packs refs: nothing that was acknowledged is lost.
func TestConcurrentAppends(t *testing.T) {
	name := ownRefs + memoryRef(1, 1)
	const each = 10
	if dir := os.Getenv("KNOOT_TEST_APPEND"); dir != "" {
		l := openTestLog(t, mustFind(t, dir))
		for _, id := range appendMany(t, l, name, strconv.Itoa(os.Getpid()), each) {
			fmt.Println("in", id)
		}
		return
	}
	isolateGit(t)
	l := openTestLog(t, newRepository(t))
	var mu sync.Mutex
	in := map[Hash]bool{}
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			child := exec.Command(os.Args[0], "-test.run=^TestConcurrentAppends$", "-test.v")
			child.Env = append(os.Environ(), "KNOOT_TEST_APPEND="+l.Root)
			out, err := child.Output()
			if err != nil {
				t.Errorf("%v: %s", err, out)
			}
			mu.Lock()
			defer mu.Unlock()
			for line := range strings.Lines(string(out)) {
				if id, ok := strings.CutPrefix(strings.TrimSpace(line), "in "); ok {
					in[Hash(id)] = true
				}
			}
		})
	}
	for i := range 2 {
		all.Go(func() {
			acknowledged := appendMany(t, l, name, "goroutine "+strconv.Itoa(i), each)
			mu.Lock()
			defer mu.Unlock()
			for _, id := range acknowledged {
				in[id] = true
			}
		})
	}
	done, packer := make(chan struct{}), sync.WaitGroup{}
	packer.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				_, _ = tryGit(l.Root, "pack-refs", "--all") // it may find a lock
			}
		}
	})
	all.Wait()
	close(done)
	packer.Wait()
	commits, _, err := l.objects.readChain(context.Background(), l.at(t, name), "", 1000)
	if err != nil {
		t.Fatal(err)
	}
	if len(in) != 4*each || len(commits) != len(in) {
		t.Errorf("%d acknowledged, %d there, want %d", len(in), len(commits), 4*each)
	}
	for _, c := range commits {
		delete(in, c.ID)
	}
	if len(in) != 0 {
		t.Errorf("lost: %v", in)
	}
}

// A change that began before another one, and looks at the ref after it, is refused, although packed-refs looks untouched
// meanwhile: same inode, size and time, as after `git pack-refs` twice in a second.
func TestCompareAndSwapReadsPackedRefsUnderItsLock(t *testing.T) {
	isolateGit(t)
	l := openTestLog(t, newRepository(t))
	mustGit(t, l.Root, "config", "core.trustctime", "false") // of a file's times only this one can be set
	name := ownRefs + memoryRef(1, 1)
	one := l.commit(t, "", "one")
	two, late := l.commit(t, one, "two"), l.commit(t, one, "late")
	if err := l.refs.create(context.Background(), name, one); err != nil {
		t.Fatal(err)
	}
	mustGit(t, l.Root, "pack-refs", "--all")
	packed := filepath.Join(l.CommonDir, "packed-refs")
	content, err := os.ReadFile(packed)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(packed)
	if err != nil {
		t.Fatal(err)
	}

	slow := l.refs.git.command(t.Context(), "update-ref", "--stdin", "-z")
	stdin, err := slow.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := slow.Start(); err != nil {
		t.Fatal(err)
	}
	// What follows the command is more than a pipe holds: once it is written, git has read the command.
	options := strings.Repeat("option no-deref\x00", 1<<16)
	if _, err := fmt.Fprintf(stdin, "update %s\x00%s\x00%s\x00%s", name, late, one, options); err != nil {
		t.Fatal(err)
	}
	if err := l.refs.change(t.Context(), refChange{name, one, two}); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, packed, strings.ReplaceAll(string(content), string(one), string(two)))
	if err := errors.Join(os.Chtimes(packed, info.ModTime(), info.ModTime()), os.Remove(filepath.Join(l.CommonDir, name)), stdin.Close()); err != nil {
		t.Fatal(err)
	}
	if err := slow.Wait(); err == nil {
		t.Error("a change from a value that the ref no longer had was accepted")
	}
	if got := l.at(t, name); got != two {
		t.Errorf("the ref is at %s, want %s", got, two)
	}
}

// `git pack-refs` removes a ref's emptied directory, also between git's making it and git's locking the ref in it. That passes,
// so such a change is tried again; here, where a link to nowhere stands in the way, in vain.
func TestRefWithoutDirectoryIsBusy(t *testing.T) {
	isolateGit(t)
	l := openTestLog(t, newRepository(t))
	one := l.commit(t, "", "one")
	name := ownRefs + memoryRef(1, 1)
	directory := filepath.Join(l.CommonDir, filepath.Dir(name))
	if err := errors.Join(os.MkdirAll(filepath.Dir(directory), 0o777), os.Symlink("nowhere", directory)); err != nil {
		t.Fatal(err)
	}
	if err := l.refs.create(t.Context(), name, one); !errors.Is(err, errRefBusy) {
		t.Errorf("where no directory can be made: %v", err)
	}
}

// Any order of changes, right and wrong ones, leaves the refs where a simple map of names says.
func TestRefChangesLikeAMap(t *testing.T) {
	isolateGit(t)
	ctx := context.Background()
	l := openTestLog(t, newRepository(t))
	ids := []Hash{"", l.commit(t, "", "one"), l.commit(t, "", "two")}
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		model := map[string]Hash{}
		for range rapid.IntRange(1, 4).Draw(rt, "steps") {
			var changes []refChange
			right := true
			for _, n := range rapid.SliceOfNDistinct(rapid.IntRange(1, 3), 1, 2, rapid.ID).Draw(rt, "names") {
				c := refChange{fmt.Sprintf("%s%d/%d", ownRefs, run, n), rapid.SampledFrom(ids).Draw(rt, "old"), rapid.SampledFrom(ids).Draw(rt, "new")}
				if c.Old == "" && c.New == "" {
					continue
				}
				right = right && model[c.Name] == c.Old
				changes = append(changes, c)
			}
			if len(changes) == 0 {
				continue
			}
			err := l.refs.change(ctx, changes...)
			if right != (err == nil) || err != nil && !errors.Is(err, errRefMoved) {
				rt.Fatalf("%+v on %v: %v", changes, model, err)
			}
			for _, c := range changes {
				if right {
					model[c.Name] = c.New
				}
			}
		}
		refs, _, err := l.refs.list(ctx, fmt.Sprintf("%s%d/", ownRefs, run))
		if err != nil {
			rt.Fatal(err)
		}
		got := map[string]Hash{}
		for _, r := range refs {
			got[r.Name] = r.Hash
		}
		for name, want := range model {
			if got[name] != want {
				rt.Fatalf("%s is at %q, want %q", name, got[name], want)
			}
		}
	})
}

// An append is what `remember` waits for: objects, ref and directories synced. The budget is 3 times the commit beside it,
// the daemon's whole way included.
func BenchmarkAppend(b *testing.B) {
	isolateGit(b)
	l := openTestLog(b, newRepository(b))
	name, ctx := ownRefs+memoryRef(1, 1), context.Background()
	var tip Hash
	content := bytes.Repeat([]byte{0xa5}, 1700)
	for i := 0; b.Loop(); i++ {
		content[i%len(content)]++
		id, err := l.objects.writeCommit(ctx, tip, map[string][]byte{"0123456789abcdef": content}, time.Unix(1_700_000_000, 0))
		if err != nil {
			b.Fatal(err)
		}
		if err := l.refs.change(ctx, refChange{name, tip, id}); err != nil {
			b.Fatal(err)
		}
		tip = id
	}
}

func BenchmarkGitCommitSynced(b *testing.B) {
	isolateGit(b)
	repo := newRepository(b)
	for b.Loop() {
		mustGit(b, repo.Root, "-c", "core.fsync=all", "commit", "-q", "--allow-empty", "-m", "x")
	}
}
