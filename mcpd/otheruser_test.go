package mcpd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// nobody is a user who is not the one whose daemon it is.
const nobody = 65534

// otherUser is what another user of the machine tries: to read files, and to be answered at an address and by the daemon's socket. It
// says what came of it, and runs in a process of its own.
func otherUser(address, socket string, files []string) {
	for _, path := range files {
		if text, err := os.ReadFile(path); err == nil {
			fmt.Printf("reads %s: %q\n", path, text)
		}
	}
	if conn, err := net.Dial("unix", socket); err == nil {
		conn.Close()
		fmt.Println("opens the socket")
	}
	if lines, err := filepath.Glob("/proc/[0-9]*/cmdline"); err == nil {
		for _, path := range lines {
			text, _ := os.ReadFile(path)
			fmt.Printf("sees %q\n", text)
		}
	}
	for _, secret := range []string{"", strings.Repeat("0", secretLength)} {
		for path, body := range map[string]string{"/mcp?agent=alice": ping, "/mcp?agent=bob": ping, "/api/v1/agent/status": "", "/api/v1/agent/terminal?agent=bob": "",
			"/api/v1/agent/register": `{"agent_id":"alice","source":"startup"}`} {
			method := map[bool]string{true: "GET", false: "POST"}[body == ""]
			req, _ := http.NewRequest(method, "http://"+address+path, strings.NewReader(body))
			req.Header.Set("Content-Type", "application/json")
			if secret != "" {
				req.Header.Set("Authorization", "Bearer "+secret)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				fmt.Println(err)
				continue
			}
			text, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			fmt.Printf("is answered %d: %s\n", resp.StatusCode, bytes.TrimSpace(text))
		}
	}
}

// Another user of the machine has no agent's secret, nor the person's, and without one is told nothing: even where the person's folders
// are open to all.
func TestAnotherUserOfTheMachine(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can be another user")
	}
	m := newMachine(t)
	m.withStandIns("")
	alice := m.members("alice")[0]
	bob := m.terminalAgent("bob") // whose configuration is in a file
	alice.send("bob", "between us")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(m.Home, "other-user")
	text, err := os.ReadFile(self)
	if err == nil {
		err = os.WriteFile(program, text, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	err = filepath.WalkDir(m.KnootHome, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			return os.Chmod(path, 0o755)
		case entry.Type().IsRegular() && entry.Name() != "config.toml":
			files = append(files, path)
		}
		return nil
	})
	if err == nil {
		err = os.Chmod(m.Home, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"mcp.token", "mail", "state/coordination", "agents/bob.json", "device.local", "knootd.log"} {
		if !slices.Contains(files, filepath.Join(m.KnootHome, filepath.FromSlash(name))) {
			t.Errorf("there is no %s", name)
		}
	}
	other := exec.Command(program, append([]string{"other-user", m.address(), m.Socket()}, files...)...)
	other.Dir, other.Env = "/", []string{"PATH=/usr/bin:/bin"}
	other.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := other.CombinedOutput()
	if errors.Is(err, fs.ErrPermission) {
		t.Skipf("another user may not run %s: %v", program, err)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, secret := range []string{alice.secret, bob.secret, m.token()} {
		if bytes.Contains(out, []byte(secret)) {
			t.Error("another user has a secret")
		}
	}
	answers := 0
	for line := range strings.Lines(string(out)) {
		switch {
		case strings.HasPrefix(line, "sees "):
		case strings.HasPrefix(line, "is answered 401: "), strings.HasPrefix(line, "is answered 403: "):
			answers++
		default:
			t.Errorf("another user %s", line)
		}
	}
	if answers != 10 {
		t.Errorf("another user is answered %d times: %s", answers, out)
	}
	if got := bob.inbox(true); len(got) > 1 {
		t.Errorf("bob reads %q", got)
	}
}
