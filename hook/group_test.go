package hook

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The commands that are installed do in any shell what they should, which is nothing where there is no knoot.
func TestReportClaudeCode5648CommandsInAShell(t *testing.T) {
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
	if err := os.MkdirAll(filepath.Join(dir, "sh"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/bin/sh", filepath.Join(dir, "sh", "sh")); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		env  []string
		want string
	}{
		"not installed":       {[]string{"PATH=/nowhere"}, ""},
		"on PATH":             {[]string{"PATH=" + dir + "/bin"}, "knoot hook AGENT: payload\n"},
		"named":               {[]string{"PATH=/nowhere", "KNOOT_BIN=" + own}, "own hook AGENT\n"},
		"named, not there":    {[]string{"PATH=" + dir + "/bin", "KNOOT_BIN=" + dir + "/none"}, ""},
		"named is empty":      {[]string{"PATH=" + dir + "/bin", "KNOOT_BIN="}, "knoot hook AGENT: payload\n"},
		"off":                 {[]string{"PATH=" + dir + "/bin", "KNOOT=off"}, ""},
		"on":                  {[]string{"PATH=" + dir + "/bin", "KNOOT=on"}, "knoot hook AGENT: payload\n"},
		"fails":               {[]string{"KNOOT_BIN=" + fails}, "half\n"},
		"dies":                {[]string{"KNOOT_BIN=" + dies}, ""},
		"a directory":         {[]string{"KNOOT_BIN=" + dir}, ""},
		"not from a variable": {[]string{"PATH=/nowhere", "k=" + own}, ""},
	} {
		for _, shell := range []string{"sh", "bash", "dash", "zsh", "fish", "tcsh"} {
			path, err := exec.LookPath(shell)
			if err != nil {
				continue // sh is everywhere
			}
			for agent, command := range map[string]string{"claude": ClaudeCommand, "codex": CodexCommand} {
				if agent == "claude" && (shell == "fish" || shell == "tcsh") {
					continue // Claude Code runs hooks by sh or bash
				}
				env := c.env
				if agent == "codex" { // the shell has to find sh
					env = append([]string{"PATH=" + dir + "/sh"}, env...)
					env = slices.DeleteFunc(env, func(pair string) bool { return pair == "PATH=/nowhere" })
					if i := slices.Index(env, "PATH="+dir+"/bin"); i >= 0 {
						env[i] += ":" + dir + "/sh"
					}
				}
				cmd := exec.Command(path, "-c", command)
				cmd.Env = env
				cmd.Stdin = strings.NewReader("payload")
				var out, errs strings.Builder
				cmd.Stdout, cmd.Stderr = &out, &errs
				if err := cmd.Run(); err != nil || out.String() != strings.ReplaceAll(c.want, "AGENT", agent) {
					t.Errorf("%s, %s in %s: %v, %q", agent, name, shell, err, out.String())
				}
				if errs.String() != "" && name != "dies" { // some shells tell of the death of a child
					t.Errorf("%s, %s in %s: stderr %q", agent, name, shell, errs.String())
				}
			}
		}
	}
}
