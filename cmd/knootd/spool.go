package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"knoot.dev/knoot/daemon"
	"knoot.dev/knoot/gitlog"
)

// errSpooled says that a request waits in the worktree's spool, which is as good as done.
var errSpooled = errors.New("it is queued")

// sandboxMarkers are variables that agents set for what they run in a sandbox.
var sandboxMarkers = []string{"CODEX_SANDBOX", "CODEX_SANDBOX_NETWORK_DISABLED", "SANDBOX_RUNTIME"}

// isShut reports whether something failed because this process may not write where it has to.
func isShut(err error) bool { return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) }

// sandboxed reports whether an agent keeps this process in a sandbox: it says so, or knoot's home, or where that would be made,
// may not be written to.
func (c *console) sandboxed() bool {
	if slices.ContainsFunc(sandboxMarkers, func(name string) bool { return c.getenv(name) != "" }) {
		return true
	}
	home, err := gitlog.OpenHome(c.getenv)
	if err != nil {
		return false
	}
	const write = 2
	for dir := home.Dir; ; dir = filepath.Dir(dir) {
		switch err := syscall.Access(dir, write); {
		case err == nil:
			return false
		case !errors.Is(err, fs.ErrNotExist):
			return isShut(err)
		case dir == filepath.Dir(dir):
			return false
		}
	}
}

// spool leaves a request for the next hook that runs outside of the sandbox, and returns errSpooled. because is why it could not be
// done at once: the error for what cannot be left.
func (c *console) spool(ctx context.Context, op string, body any, because error) error {
	if op != "remember" && op != "cache" && op != "plan" && op != "msg" {
		return because
	}
	repo, err := c.repository(ctx)
	if err != nil {
		return err
	}
	if repo.Root == "" {
		return because
	}
	if _, err := os.Stat(filepath.Join(repo.CommonDir, "knoot")); err != nil {
		return gitlog.ErrNotInitialised
	}
	switch r := body.(type) {
	case gitlog.RememberRequest:
		r.Paths, err = inside(repo.Root, r.Paths)
		body = r
	case gitlog.PlanRequest:
		r.Paths, err = inside(repo.Root, r.Paths)
		body = r
	}
	if err != nil {
		return err
	}
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	if err := daemon.Spool(repo.Root, &daemon.Spooled{Op: op, Caller: c.caller(), Body: text}, gitlog.MillisOf(c.now())); err != nil {
		return fmt.Errorf("this process may not speak to knoot's daemon, and cannot leave what it has to say in .knoot/spool either: %w", err)
	}
	return errSpooled
}

// inside makes absolute paths relative to a worktree's root: outside of the sandbox it may be elsewhere.
func inside(root string, paths []string) ([]string, error) {
	out := make([]string, len(paths))
	for i, path := range paths {
		rel, err := filepath.Rel(root, path)
		if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
			return nil, misusef("%s is outside of this repository (%s)", path, root)
		}
		out[i] = filepath.ToSlash(rel)
	}
	return out, nil
}

// saySpooled says that what somebody had to say waits.
func (c *console) saySpooled() {
	fmt.Fprintln(c.stdout, "Queued in .knoot/spool, since this process may not speak to knoot's daemon: the next hook of an agent here sends it.")
}
