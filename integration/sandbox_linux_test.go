package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"knoot.dev/knoot/integration/stage"
)

// inSandbox makes the test program run its arguments as a command that may connect to nothing, as the sandbox of Codex does it.
const inSandbox = "KNOOT_TEST_SANDBOX"

func init() {
	if os.Getenv(inSandbox) == "" {
		return
	}
	os.Unsetenv(inSandbox)
	fmt.Fprintln(os.Stderr, sandbox(os.Args[1:]))
	os.Exit(125)
}

// sandbox runs a command in the place of this program. It returns only where that is not possible.
func sandbox(args []string) error {
	runtime.LockOSThread() // the filter is this thread's, and what it runs then
	connect := uint32(unix.SYS_CONNECT)
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the call's number
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: connect, Jt: 0, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0); err != nil {
		return fmt.Errorf("seccomp: %w", err)
	}
	path, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	return syscall.Exec(path, args, os.Environ())
}

// What an agent in a sandbox says arrives, once, with the next hook, which runs outside.
func TestWhatIsSaidInASandboxArrives(t *testing.T) {
	t.Parallel()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const readOnly = `for dir in "$KNOOT_HOME" .git; do mount --bind "$dir" "$dir"; mount -o remount,ro,bind "$dir"; done; `
	for name, before := range map[string]string{
		"no connection":               "",
		"read-only but for the files": readOnly,
		"no home at all":              readOnly + `mount -t tmpfs -o ro,mode=0755 tmpfs "$KNOOT_HOME"; `,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			priya := s.priya
			priya.StartDaemon()
			session := stage.Session{Person: priya, ID: "boxed-session", Dir: s.hers}
			other := stage.Session{Person: priya, ID: "other-session", Dir: s.hers}
			session.Start()
			other.Start()
			boxed := func(args ...string) stage.Result {
				t.Helper()
				for i, arg := range args {
					args[i] = "'" + arg + "'"
				}
				script := before + "exec env " + inSandbox + "=1 CLAUDE_CODE_SESSION_ID=boxed-session '" + executable + "' '" + filepath.Join(priya.Bin, "knoot") + "' " + strings.Join(args, " ")
				return mounting(t, priya, s.hers, "", script)
			}
			for _, args := range [][]string{
				{"msg", "other-s", "look at the till"},
				{"remember", "--name", factName, "--path", factPath, factText},
				{"cache", "--name", "callers", "--path", factPath, "charge() is called by cart.js"},
				{"plan", "--path", factPath, "rewriting the rounding"},
			} {
				result := boxed(args...)
				if result.Code != 0 || result.Stderr != "" || !strings.HasPrefix(result.Stdout, "Queued in .knoot/spool, ") || strings.Count(result.Stdout, "\n") != 1 {
					t.Fatalf("%v: %+v", args, result)
				}
			}
			if result := boxed("release", factPath); result.Code != 1 || !strings.Contains(result.Stderr, "knoot") {
				t.Errorf("what cannot wait: %+v", result)
			}
			if status := priya.Git(s.hers, "status", "--porcelain"); strings.Contains(status, ".knoot/") {
				t.Errorf("git sees the spool: %s", status)
			}
			if status := priya.Try(s.hers, "", "knoot", "status"); !strings.Contains(status.Stdout, "4 requests in .knoot wait") {
				t.Errorf("status: %+v", status)
			}
			if rows := recall(t, priya, s.hers); len(rows) > 0 {
				t.Errorf("remembered before a hook ran: %+v", rows)
			}
			// The spool is emptied after a hook is answered.
			session.Hook("PostToolUse", map[string]any{"tool_name": "Bash", "tool_use_id": "1", "tool_input": map[string]any{"command": "knoot msg"}})
			waits := func() []string {
				files, _ := filepath.Glob(filepath.Join(s.hers, ".knoot", "spool", "*"))
				return files
			}
			for deadline := time.Now().Add(20 * time.Second); len(waits()) > 0; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("still there: %v", waits())
				}
			}
			once(t, "the other session's prompt", other.Prompt("go on with the work on the till"), "look at the till")
			if rows := recall(t, priya, s.hers, "--path", factPath); len(rows) < 2 {
				t.Errorf("recalled %+v", rows)
			}
			never(t, "the next prompt", other.Prompt("and now the cart"), "look at the till")
		})
	}
}
