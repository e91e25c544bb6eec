package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"knoot.dev/knoot/integration/stage"
)

// Ctrl-C goes to all that runs in a terminal's foreground at once, while agents in terminals of their own are at work.
func TestADemoThatIsInterruptedLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := stage.Dir(t)
	command := exec.Command(filepath.Join(stage.Executables(t, stage.Version), "knoot"), "demo")
	command.Dir = dir
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir}
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	lines, at := bufio.NewScanner(out), ""
	for !strings.Contains(at, "alice is idle and has mail") && lines.Scan() {
		at = lines.Text()
	}
	if err := syscall.Kill(-command.Process.Pid, syscall.SIGINT); err != nil {
		t.Error(err)
	}
	_, _ = io.Copy(io.Discard, out)
	if err := command.Wait(); command.ProcessState.ExitCode() != exitFailed || !strings.Contains(stderr.String(), "interrupted") {
		t.Errorf("it ends with %v: %s", err, &stderr)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("it leaves %v, %v", left, err)
	}
	left := func() (of []string) {
		processes, err := filepath.Glob("/proc/[0-9]*/environ") // none, where there is no such folder
		if err != nil {
			t.Fatal(err)
		}
		for _, process := range processes {
			if environ, err := os.ReadFile(process); err == nil && bytes.Contains(environ, []byte("="+dir+"/")) {
				of = append(of, process)
			}
		}
		return of
	}
	// What was killed may take a moment to be gone.
	for until := time.Now().Add(20 * time.Second); len(left()) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("these still run: %v", left())
		}
	}
}
