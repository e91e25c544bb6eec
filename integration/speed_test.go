package integration

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"knoot.dev/knoot/integration/stage"
)

// Benchmarks of whole programs are ratios taken in one run: machines differ, and so do the hours of one machine. Each says
// its budget; make bench runs them, and each fails where its budget is not kept.

// alternating times two things in turns, so that both see the same machine, and returns the medians.
func alternating(b *testing.B, n int, one, other func()) (time.Duration, time.Duration) {
	b.Helper()
	times := [2][]time.Duration{}
	for range n {
		for i, do := range []func(){one, other} {
			began := time.Now()
			do()
			times[i] = append(times[i], time.Since(began))
		}
	}
	return percentile(times[0], 50), percentile(times[1], 50)
}

// percentile is the time that n of a hundred do not exceed.
func percentile(times []time.Duration, n int) time.Duration {
	sorted := slices.Sorted(slices.Values(times))
	return sorted[min(len(sorted)*n/100, len(sorted)-1)]
}

// report gives the ratio of two medians, and fails where it is over the budget.
func report(b *testing.B, ours, theirs time.Duration, budget float64) {
	b.Helper()
	ratio := float64(ours) / float64(theirs)
	b.ReportMetric(ratio, "ratio")
	b.ReportMetric(float64(ours.Microseconds())/1000, "ms-ours")
	b.ReportMetric(float64(theirs.Microseconds())/1000, "ms-git")
	b.ReportMetric(0, "ns/op")
	if ratio > budget {
		b.Errorf("%.2f times what git takes (%v, %v); the budget is %.1f", ratio, ours, theirs, budget)
	}
}

func run(b *testing.B, command *exec.Cmd) {
	b.Helper()
	if output, err := command.CombinedOutput(); err != nil {
		b.Fatalf("%v: %v\n%s", command.Args, err, output)
	}
}

// Budget: 2.5 times git --version, whole processes, median of 200, on a warm daemon.
func BenchmarkHook(b *testing.B) {
	s := newShop(b)
	s.remember(b)
	s.priya.StartDaemon()
	session := stage.Session{Person: s.priya, ID: "speed", Dir: s.hers}
	session.Start()
	text := strings.Repeat("export const price = total > 3 ? `${total}` : \"none\" // rm -rf src\n", 9<<10/68)
	for _, call := range []struct {
		name, tool string
		input      map[string]any
	}{
		{"Read", "Read", map[string]any{"file_path": filepath.Join(s.hers, factPath)}},
		{"BashOfTenKilobytes", "Bash", map[string]any{"command": "mkdir -p src/new && cat > src/new/a.js <<'EOF'\n" + text + "EOF\nsed -i 's/a/b/' src/*.js && git diff --stat | head"}},
		{"Bash", "Bash", map[string]any{"command": "cd src && for f in *.js; do grep -n total \"$f\" | head -3; done; sed -i 's/a/b/' " + filepath.Join(s.hers, factPath) +
			" && git diff --stat > ../changes.txt"}},
	} {
		b.Run(call.name, func(b *testing.B) {
			for b.Loop() {
				hook, git := alternating(b, 200, func() {
					command := s.priya.Command(s.hers, "knoot", "hook", "claude")
					command.Stdin = strings.NewReader(session.Payload("PreToolUse", map[string]any{"tool_name": call.tool, "tool_use_id": "toolu_speed", "tool_input": call.input}))
					run(b, command)
				}, func() { run(b, s.priya.Command(s.hers, "git", "--version")) })
				report(b, hook, git, 2.5)
			}
		})
	}
}

// Budget: 3 times one durable empty commit through a warm daemon, 5 times without a daemon.
func BenchmarkRemember(b *testing.B) {
	for _, how := range []struct {
		name   string
		daemon bool
		budget float64
	}{{"warm", true, 3}, {"alone", false, 5}} {
		b.Run(how.name, func(b *testing.B) {
			s := newShop(b)
			if how.daemon {
				s.priya.StartDaemon()
			}
			s.remember(b)
			fact := 0
			for b.Loop() {
				remember, commit := alternating(b, 30, func() {
					fact++
					run(b, s.priya.Command(s.hers, "knoot", "remember", "--yes", "--name", fmt.Sprint("speed-", fact), "--path", factPath,
						fmt.Sprintf("measurement %d tells something new about number %d", fact, fact*fact)))
				}, func() {
					run(b, s.priya.Command(s.hers, "git", "-c", "core.fsync=all", "commit", "--quiet", "--allow-empty", "--message", "x"))
				})
				report(b, remember, commit, how.budget)
			}
		})
	}
}

// Budget: 60 MB resident for a payload of 4 MB. PostToolUse carries whole files.
func BenchmarkMemoryOfALargePayload(b *testing.B) {
	s := newShop(b)
	s.priya.StartDaemon()
	session := stage.Session{Person: s.priya, ID: "large", Dir: s.hers}
	path := filepath.Join(s.hers, factPath)
	payload := session.Payload("PostToolUse", map[string]any{"tool_name": "Write", "tool_use_id": "toolu_large",
		"tool_input":    map[string]any{"file_path": path, "content": strings.Repeat("a line of a large file\n", 1<<16)},
		"tool_response": map[string]any{"type": "update", "filePath": path, "originalFile": strings.Repeat("a line before\n", 1<<18)}})
	if len(payload) < 4<<20 {
		b.Fatalf("the payload has %d bytes", len(payload))
	}
	for b.Loop() {
		command := s.priya.Command(s.hers, "knoot", "hook", "claude")
		command.Stdin = bytes.NewReader([]byte(payload))
		run(b, command)
		resident := command.ProcessState.SysUsage().(*syscall.Rusage).Maxrss
		if runtime.GOOS == "linux" {
			resident <<= 10 // kilobytes there, bytes on macOS
		}
		b.ReportMetric(float64(resident)/1e6, "MB")
		if resident > 60e6 {
			b.Errorf("%d bytes resident for a payload of %d; the budget is 60 MB", resident, len(payload))
		}
	}
}
