package hook

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The command is constant text: Claude runs equal commands once, and a change would leave an old one in people's settings.
func TestClaudeCommandIsConstant(t *testing.T) {
	const want = `k=${KNOOT_BIN:-knoot}; [ "$KNOOT" = off ] || ! command -v "$k" >/dev/null 2>&1 || "$k" hook claude 2>/dev/null; exit 0`
	if ClaudeCommand != want {
		t.Error(ClaudeCommand)
	}
}

func TestClaudeCommandInAShell(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "with space")
	stand := func(name, body string) string {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return file
	}
	stand("bin/knoot", `echo "knoot $*: $(/bin/cat)"; echo noise >&2`)
	own := stand("own/my knoot", `echo "own $*"`)
	fails := stand("fails", `echo half; exit 3`)
	dies := stand("dies", `kill -9 $$`)
	for name, c := range map[string]struct {
		env  []string
		want string
	}{
		"not installed":       {[]string{"PATH=/nowhere"}, ""},
		"on PATH":             {[]string{"PATH=" + dir + "/bin"}, "knoot hook claude: payload\n"},
		"named":               {[]string{"PATH=/nowhere", "KNOOT_BIN=" + own}, "own hook claude\n"},
		"named, not there":    {[]string{"PATH=" + dir + "/bin", "KNOOT_BIN=" + dir + "/none"}, ""},
		"named is empty":      {[]string{"PATH=" + dir + "/bin", "KNOOT_BIN="}, "knoot hook claude: payload\n"},
		"off":                 {[]string{"PATH=" + dir + "/bin", "KNOOT=off"}, ""},
		"on":                  {[]string{"PATH=" + dir + "/bin", "KNOOT=on"}, "knoot hook claude: payload\n"},
		"fails":               {[]string{"KNOOT_BIN=" + fails}, "half\n"},
		"dies":                {[]string{"KNOOT_BIN=" + dies}, ""},
		"a directory":         {[]string{"KNOOT_BIN=" + dir}, ""},
		"not from a variable": {[]string{"PATH=/nowhere", "k=" + own}, ""},
	} {
		for _, shell := range []string{"sh", "bash", "dash", "zsh"} {
			path, err := exec.LookPath(shell)
			if err != nil {
				continue // sh is everywhere
			}
			cmd := exec.Command(path, "-c", ClaudeCommand)
			cmd.Env = c.env
			cmd.Stdin = strings.NewReader("payload")
			var out, errs strings.Builder
			cmd.Stdout, cmd.Stderr = &out, &errs
			if err := cmd.Run(); err != nil || out.String() != c.want {
				t.Errorf("%s in %s: %v, %q", name, shell, err, out.String())
			}
			if errs.String() != "" && name != "dies" { // some shells tell of the death of a child
				t.Errorf("%s in %s: stderr %q", name, shell, errs.String())
			}
		}
	}
}

func TestClaudeGroups(t *testing.T) {
	seen := map[string]bool{}
	for _, g := range ClaudeGroups() {
		reply, known := claude.events[g.Event]
		if !known || seen[g.Event] {
			t.Errorf("%s is not answered, or twice", g.Event)
		}
		seen[g.Event] = true
		if reply.tool != (g.Matcher != "") {
			t.Errorf("%s matches %q", g.Event, g.Matcher)
		}
		if reply.tool {
			for _, name := range strings.Split(g.Matcher, "|") {
				if _, ok := claude.tools[name]; !ok {
					t.Errorf("%s matches %s, which is not answered", g.Event, name)
				}
			}
			if n := strings.Count(g.Matcher, "|") + 1; n != len(claude.tools) {
				t.Errorf("%s matches %d tools of %d", g.Event, n, len(claude.tools))
			}
		}
		var settings struct {
			Matcher *string
			Hooks   []struct {
				Type, Command string
				Timeout       float64
			}
		}
		if err := json.Unmarshal(g.JSON(), &settings); err != nil {
			t.Fatal(err)
		}
		if len(settings.Hooks) != 1 || settings.Hooks[0].Type != "command" || settings.Hooks[0].Command != ClaudeCommand || settings.Hooks[0].Timeout != 5 {
			t.Errorf("%s", g.JSON())
		}
		if (settings.Matcher != nil) != reply.tool || reply.tool && *settings.Matcher != g.Matcher {
			t.Errorf("%s", g.JSON())
		}
	}
	if len(seen) != len(claude.events) {
		t.Errorf("%d events of %d", len(seen), len(claude.events))
	}
	const want = `{"matcher":"Read|Write|Edit|MultiEdit|NotebookEdit|Bash","hooks":[{"type":"command","command":"k=${KNOOT_BIN:-knoot}; [ \"$KNOOT\" = off ] || ! command -v \"$k\" >/dev/null 2>&1 || \"$k\" hook claude 2>/dev/null; exit 0","timeout":5}]}`
	if got := string(ClaudeGroups()[2].JSON()); got != want {
		t.Errorf("%s", got)
	}
}
