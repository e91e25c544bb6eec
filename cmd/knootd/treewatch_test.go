package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"knoot.dev/knoot/gitlog"
)

// watched is a repository whose changes are told.
type watched struct {
	*testing.T
	dir     string
	changes chan string
}

func gitIn(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

func newRepository(t *testing.T) *gitlog.Repository {
	t.Helper()
	dir := t.TempDir()
	gitIn(t, dir, "init", "-q")
	repo, err := gitlog.FindRepository(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return repo
}

func (w *watched) write(path string) {
	w.Helper()
	file := filepath.Join(w.dir, path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(path), 0o644)); err != nil {
		w.Fatal(err)
	}
}

// sees waits until a path is told; none of unwanted may be told before.
func (w *watched) sees(path string, unwanted ...string) {
	w.Helper()
	limit := time.After(20 * time.Second)
	for {
		select {
		case got := <-w.changes:
			for _, each := range unwanted {
				if got == each || strings.HasPrefix(got, each+"/") {
					w.Errorf("%s was told", got)
				}
			}
			if got == path {
				return
			}
		case <-limit:
			w.Fatalf("%s was not told", path)
		}
	}
}

func TestTreeWatch(t *testing.T) {
	t.Parallel()
	repo := newRepository(t)
	w := &watched{T: t, dir: repo.Root, changes: make(chan string, 1000)}
	w.write(".gitignore")
	if err := os.WriteFile(filepath.Join(w.dir, ".gitignore"), []byte("node_modules/\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	w.write("src/deep/a.js")
	w.write("node_modules/x/b.js")
	w.write("nested/c.js")
	gitIn(t, filepath.Join(w.dir, "nested"), "init", "-q")
	watch, err := openTreeWatch(context.Background(), repo)
	if err != nil {
		t.Fatal(err)
	}
	defer watch.close()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		watch.run(ctx, func(path string, _ time.Time) { w.changes <- path }, func(err error) { t.Error(err) })
	}()
	defer func() { cancel(); <-ended }()

	unwanted := []string{"node_modules", "nested", ".git", "web/node_modules", "src"}
	w.write("node_modules/x/b.js")
	w.write("nested/c.js")
	w.write(".git/config.lock")
	w.write("top.js")
	w.sees("top.js", unwanted...)
	w.write("src/deep/a.js")
	w.sees("src/deep/a.js", unwanted[:4]...) // perhaps twice: it is emptied, then written
	w.write("web/node_modules/y/d.js")
	w.write("web/new/deep/e.js") // made before anybody watches the folder
	w.sees("web/new/deep/e.js", unwanted[:4]...)
	w.write("web/new/deep/f.js")
	w.sees("web/new/deep/f.js", unwanted[:4]...)
	if err := os.Remove(filepath.Join(w.dir, "top.js")); err != nil {
		t.Fatal(err)
	}
	w.sees("top.js", unwanted[:4]...)
	if err := os.RemoveAll(filepath.Join(w.dir, "src")); err != nil {
		t.Fatal(err)
	}
	w.sees("src/deep/a.js", unwanted[:4]...)
	w.write("last")
	for {
		got := <-w.changes
		if got == "src" || got == "src/deep" {
			t.Errorf("the folder %s was told, which is no file", got)
		}
		if got == "last" {
			break
		}
	}
}

func TestTreeWatchAtItsLimit(t *testing.T) {
	t.Parallel()
	repo := newRepository(t)
	if err := os.MkdirAll(filepath.Join(repo.Root, "a", "b"), 0o755); err != nil {
		t.Fatal(err)
	}
	watch, err := openTreeWatch(context.Background(), repo)
	if err != nil {
		t.Fatal(err)
	}
	defer watch.close()
	added := 0
	watch.add = func(string) error {
		if added++; added > 2 {
			return fmt.Errorf("adding: %w", syscall.ENOSPC)
		}
		return nil
	}
	err = watch.watch("", func(string) bool { return false }, nil)
	if err == nil || !strings.Contains(err.Error(), "sudo sysctl fs.inotify.max_user_watches=") || strings.Contains(err.Error(), "\n") {
		t.Errorf("at the limit: %v", err)
	}
	if err := watchError(syscall.EMFILE); !strings.Contains(err.Error(), "ulimit -n") {
		t.Errorf("without descriptors: %v", err)
	}
}

func TestTreeWatchLeavesNothingBehind(t *testing.T) {
	repo := newRepository(t)
	before := goleak.IgnoreCurrent()
	watch, err := openTreeWatch(context.Background(), repo)
	if err != nil {
		t.Fatal(err)
	}
	watch.close()
	goleak.VerifyNone(t, before)
}
