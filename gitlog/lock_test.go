package gitlog

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestLock(t *testing.T) {
	isolateGit(t)
	repo := newRepository(t)
	lock, err := lockClone(repo, "/home/ash/.knoot")
	if err != nil {
		t.Fatal(err)
	}
	_, err = lockClone(repo, "/other")
	if !errors.Is(err, ErrLocked) {
		t.Fatalf("a second time: %v", err)
	}
	for _, want := range []string{strconv.Itoa(os.Getpid()), "/home/ash/.knoot"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not name %s", err, want)
		}
	}
	if err := lock.unlock(); err != nil {
		t.Fatal(err)
	}
	if lock, err = lockClone(repo, "/other"); err != nil {
		t.Fatalf("once it is free: %v", err)
	}
	if err := lock.unlock(); err != nil {
		t.Fatal(err)
	}
}

// The test binary itself is the other process: it takes the lock, says so, and waits to be killed.
func TestLockIsFreeOnceItsProcessDied(t *testing.T) {
	if dir := os.Getenv("KNOOT_TEST_LOCK"); dir != "" {
		if _, err := lockClone(&Repository{CommonDir: dir}, "/theirs"); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("locked")
		select {}
	}
	isolateGit(t)
	repo := newRepository(t)
	child := exec.Command(os.Args[0], "-test.run=^TestLockIsFreeOnceItsProcessDied$")
	child.Env = append(os.Environ(), "KNOOT_TEST_LOCK="+repo.CommonDir)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 7)
	if _, err := out.Read(line); err != nil || string(line) != "locked\n" {
		t.Fatalf("the other process said %q, %v", line, err)
	}
	if _, err := lockClone(repo, "/mine"); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), strconv.Itoa(child.Process.Pid)) {
		t.Fatalf("while it lives: %v", err)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // it was killed
	lock, err := lockClone(repo, "/mine")
	if err != nil {
		t.Fatalf("after its death: %v", err)
	}
	if err := lock.unlock(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(repo.CommonDir, "knoot")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder's mode: %v, %v", info.Mode(), err)
	}
}
