package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/peterbourgon/ff/v3/ffcli"
	"github.com/rogpeppe/go-internal/testscript"

	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/integration/stage"
)

func TestMain(m *testing.M) { os.Exit(stage.Run(m)) }

// The scripts run the two executables as people type them. Beside testscript's own commands they have:
//
//	shop          makes host.git and a clone of it, app, with a commit that has src/billing.js and src/cart.js
//	person NAME   goes on as somebody else, with a home, a git configuration and keys of their own
//	daemon        starts a daemon, and waits until it listens; it ends with the script
//	listen KIND   puts something else on the daemon's socket: one that hangs, or one that answers garbage
//	hook SESSION EVENT [TOOL PATH|PROMPT]
//	              is a hook of Claude Code in the working directory; what it prints is the script's stdout
func TestScripts(t *testing.T) {
	bin := stage.Executables(t, stage.Version)
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup:               func(e *testscript.Env) error { return setUpScript(e, bin) },
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"shop": func(ts *testscript.TestScript, _ bool, _ []string) {
				ts.Check(makeShop(ts.MkAbs("."), ts.Getenv))
			},
			"person": func(ts *testscript.TestScript, _ bool, args []string) { becomePerson(ts, args[0]) },
			"daemon": func(ts *testscript.TestScript, _ bool, _ []string) { startDaemon(ts) },
			"listen": func(ts *testscript.TestScript, _ bool, args []string) { listen(ts, args[0]) },
			"hook":   func(ts *testscript.TestScript, _ bool, args []string) { runHook(ts, args) },
		},
		Condition: func(name string) (bool, error) {
			if name == "root" {
				return os.Geteuid() == 0, nil
			}
			return false, fmt.Errorf("no condition %q", name)
		},
	})
}

// setUpScript gives a script a home of its own. KNOOT_HOME is short, since a socket's path has to be.
func setUpScript(e *testscript.Env, bin string) error {
	keys, err := os.MkdirTemp("", "k")
	if err != nil {
		return err
	}
	e.Defer(func() { os.RemoveAll(keys) })
	home := filepath.Join(e.WorkDir, "home")
	if err := os.MkdirAll(home, 0o700); err != nil {
		return err
	}
	if err := writeGitConfig(home, "Priya"); err != nil {
		return err
	}
	e.Setenv("PATH", bin+string(os.PathListSeparator)+e.Getenv("PATH"))
	e.Setenv("HOME", home)
	e.Setenv("KNOOT_HOME", keys)
	e.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	e.Setenv("LC_ALL", "C")
	return nil
}

func writeGitConfig(home, name string) error {
	config := fmt.Sprintf("[user]\n\tname = %s\n\temail = %s@example.com\n[init]\n\tdefaultBranch = main\n[commit]\n\tgpgSign = false\n", name, strings.ToLower(name))
	return os.WriteFile(filepath.Join(home, ".gitconfig"), []byte(config), 0o600)
}

// becomePerson makes what follows in a script somebody else's doing; who was there before is found again.
func becomePerson(ts *testscript.TestScript, name string) {
	home := ts.MkAbs(filepath.Join(ts.Getenv("WORK"), "people", name))
	short, err := os.ReadFile(filepath.Join(home, "keys"))
	if err != nil {
		ts.Check(os.MkdirAll(home, 0o700))
		keys, err := os.MkdirTemp("", "k")
		ts.Check(err)
		ts.Defer(func() { os.RemoveAll(keys) })
		short = []byte(keys)
		ts.Check(os.WriteFile(filepath.Join(home, "keys"), short, 0o600))
		ts.Check(writeGitConfig(home, strings.ToUpper(name[:1])+name[1:]))
	}
	ts.Setenv("HOME", home)
	ts.Setenv("KNOOT_HOME", string(short))
}

const billing = "export function total(lines) {\n  return lines.reduce((a, b) => a + b, 0)\n}\n"

func makeShop(dir string, getenv func(string) string) error {
	app := filepath.Join(dir, "app")
	run := func(dir string, args ...string) error {
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		for _, name := range []string{"PATH", "HOME", "GIT_CONFIG_NOSYSTEM", "LC_ALL"} {
			cmd.Env = append(cmd.Env, name+"="+getenv(name))
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("git %s: %w\n%s", strings.Join(args, " "), err, out)
		}
		return nil
	}
	if err := errors.Join(run(dir, "init", "-q", "--bare", "host.git"), run(dir, "clone", "-q", "host.git", "app"), os.MkdirAll(filepath.Join(app, "src"), 0o755)); err != nil {
		return err
	}
	for name, text := range map[string]string{"billing.js": billing, "cart.js": "export const cart = []\n"} {
		if err := os.WriteFile(filepath.Join(app, "src", name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return errors.Join(run(app, "add", "-A"), run(app, "commit", "-qm", "Add billing"), run(app, "push", "-q", "origin", "HEAD:main"))
}

func startDaemon(ts *testscript.TestScript) {
	config := filepath.Join(ts.Getenv("KNOOT_HOME"), "config.toml")
	if _, err := os.Stat(config); errors.Is(err, fs.ErrNotExist) {
		ts.Check(os.WriteFile(config, []byte("[mcp]\nport = 0\n"), 0o600)) // many scripts run at one time
	}
	cmd := exec.Command(filepath.Join(filepath.SplitList(ts.Getenv("PATH"))[0], "knoot"), "daemon")
	cmd.Dir = ts.MkAbs(".")
	for _, name := range []string{"PATH", "HOME", "KNOOT_HOME", "GIT_CONFIG_NOSYSTEM", "LC_ALL", "TMPDIR", "KNOOT_AUTOPILOT_KEY"} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	ended := make(chan struct{})
	read := make(chan error, 1)
	go func() {
		_, err := bufio.NewReader(out).ReadString('\n')
		read <- err
		_ = cmd.Wait() // most are stopped or killed
		close(ended)
	}()
	ts.Defer(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-ended
	})
	if err := <-read; err != nil {
		<-ended
		ts.Fatalf("the daemon does not start: %s", stderr.String())
	}
}

func listen(ts *testscript.TestScript, kind string) {
	ln, err := net.Listen("unix", filepath.Join(ts.Getenv("KNOOT_HOME"), "knootd.sock"))
	ts.Check(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			if kind == "garbage" {
				_, _ = socket.ReadRequest(bufio.NewReader(conn))
				_, _ = conn.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
				_ = conn.Close()
				continue
			}
			context.AfterFunc(ctx, func() { _ = conn.Close() })
		}
	}()
	ts.Defer(func() {
		cancel()
		_ = ln.Close()
		<-ended
	})
}

// hooksRun numbers hooks: one with the same ids soon after another counts as the same.
var hooksRun atomic.Int64

// runHook gives a payload to the shim. On a busy machine that may say nothing, and count a failure, rather than make its agent
// wait: then the same comes again.
func runHook(ts *testscript.TestScript, args []string) {
	payload := map[string]any{"session_id": args[0], "cwd": ts.MkAbs("."), "hook_event_name": args[1]}
	switch len(args) {
	case 2:
		payload["source"] = "startup"
	case 3:
		payload["prompt"] = args[2]
	case 4:
		payload["tool_name"] = args[2]
		payload["tool_input"] = map[string]any{"file_path": ts.MkAbs(args[3])}
	}
	failures := func() int64 {
		if info, err := os.Stat(filepath.Join(ts.Getenv("KNOOT_HOME"), "failures")); err == nil {
			return info.Size()
		}
		return 0
	}
	for range 50 {
		i := hooksRun.Add(1)
		payload["prompt_id"] = fmt.Sprintf("prompt_%d", i)
		payload["tool_use_id"] = fmt.Sprintf("toolu_%d", i)
		text, err := json.Marshal(payload)
		ts.Check(err)
		before := failures()
		ts.Setenv("PAYLOAD", string(text))
		ts.Check(ts.Exec("sh", "-c", `printf %s "$PAYLOAD" | knoot hook claude`))
		if failures() == before {
			return
		}
	}
	ts.Fatalf("hooks fail again and again")
}

// TestExamples runs what -h shows, in a repository where it makes sense.
func TestExamples(t *testing.T) {
	bin := stage.Executables(t, stage.Version)
	c, _, _ := testConsole(t)
	var all []*ffcli.Command
	for _, command := range c.commands().Subcommands {
		all = append(append(all, command), command.Subcommands...)
	}
	// What has to be there before an example makes sense.
	before := map[string][]string{
		"member rm":   {"member add sam@example.com"},
		"room add":    {"member add sam@example.com"},
		"room grant":  {"member add ash@example.com", "room add payments"},
		"room revoke": {"member add sam@example.com", "room add payments sam@example.com"},
		"release":     {"take src/billing.js"},
		"agent rm":    {"agent add bob --type claude"},
		"agent show":  {"agent add bob --type claude"},
		"agent stop":  {"agent add bob --type claude"},
		"room rm":     {"member add sam@example.com", "room add payments sam@example.com"},
	}
	for _, command := range all {
		switch command.Name {
		case "agent", "agent attach", "agent fill", "agent start", "demo", "join", "mcp", "mcp config", "present", "relay", "watch": // scripts and tests of their own
			continue
		}
		t.Run(command.Name, func(t *testing.T) {
			p := stage.NewPerson(t, "priya")
			p.Bin = bin
			p.Extra = []string{"PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH")}
			if err := makeShop(p.Home, func(name string) string {
				for _, pair := range p.Env() {
					if key, value, _ := strings.Cut(pair, "="); key == name {
						return value
					}
				}
				return ""
			}); err != nil {
				t.Fatal(err)
			}
			app := filepath.Join(p.Home, "app")
			if command.Name != "init" {
				p.Knoot(app, "init")
				p.Knoot(app, "remember", "--name", "money", "--path", "src/billing.js", "all money is integer cents")
				p.Knoot(app, "remember", "--name", "cart", "--path", "src/cart.js", "the cart may be empty")
			}
			switch command.Name {
			case "login":
				p.Write(filepath.Join(app, "token.txt"), "a token\n")
			case "status", "release", "take", "msg", "inbox", "agent add", "agent ls", "agent rm", "agent show", "agent stop": // on once a hook ran
				p.StartDaemon()
				stage.Session{Person: p, ID: "s", Dir: app}.Start()
			}
			for _, line := range before[command.Name] {
				p.Knoot(app, strings.Fields(line)...)
			}
			_, example, _ := strings.Cut(command.UsageFunc(command), "\nExample:\n")
			for _, line := range strings.Split(strings.TrimSpace(example), "\n") {
				if line = strings.TrimSpace(line); strings.Contains(line, "--install") {
					continue // no test starts a service
				}
				if result := p.Try(app, "", "sh", "-c", line); result.Code != 0 {
					t.Errorf("`%s` exits %d: %s%s", line, result.Code, result.Stdout, result.Stderr)
				}
			}
		})
	}
}
