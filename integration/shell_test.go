package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"knoot.dev/knoot/integration/stage"
)

// A file that another session holds is refused to a command line as it is to an edit, however the line spells it.
func TestReportClaudeCode29709CommandLinesAreRefusedWhatAnotherHolds(t *testing.T) {
	s := newShop(t)
	s.priya.StartDaemon()
	holder := stage.Session{Person: s.priya, ID: "holder", Dir: s.hers}
	other := stage.Session{Person: s.priya, ID: "other", Dir: s.hers}
	holder.Start()
	other.Start()
	if reason := holder.Asks(factPath); reason != "" {
		t.Fatal(reason)
	}
	dir := filepath.Dir(factPath)
	asks := func(line string) string {
		payload := other.Payload("PreToolUse", map[string]any{"tool_name": "Bash", "tool_use_id": "toolu_" + line, "tool_input": map[string]any{"command": line}})
		command := s.priya.Command(s.hers, "knoot", "hook", "claude")
		command.Stdin = strings.NewReader(payload)
		output, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, output)
		}
		return s.priya.Denial(string(output))
	}
	for _, line := range []string{
		"sed -i 's/a/b/' " + factPath,
		"cat > " + factPath + " <<'EOF'\nx\nEOF",
		"cd " + dir + " && rm -f " + filepath.Base(factPath),
		"bash -c 'echo x >> " + factPath + "'",
		"git checkout -- " + factPath,
		"rm -rf " + dir,
		"mv " + dir + " elsewhere",
		"for f in " + dir + "/*; do echo x > \"$f\"; done",
	} {
		if asks(line) == "" {
			t.Errorf("%q is allowed; hooks that failed: %q", line, failures(t, s.priya))
		}
	}
	for _, line := range []string{"cat " + factPath, "ls " + dir, "echo x > elsewhere.txt", "grep -rn 'x > y' " + dir, "make test"} {
		if reason := asks(line); reason != "" {
			t.Errorf("%q is refused: %s", line, reason)
		}
	}
	if _, err := os.Stat(filepath.Join(s.hers, factPath)); err != nil {
		t.Error("a hook ran the line: ", err)
	}
}

// The worst that happens in a shared checkout: git takes the whole tree, and with it what another session has not committed.
func TestGitCommandsThatReachWhatAnotherChanged(t *testing.T) {
	t.Parallel()
	p := newPlaces(t)
	p.holder.Write(factPath, "half done\n")
	p.holder.Write("src/new.js", "new\n")
	for line, names := range map[string]string{
		"git reset --hard": factPath, "git checkout -f main": factPath, "cd src && git checkout .": factPath, "git restore -- src": factPath, "git stash": factPath,
		"git stash -u && git pull --rebase": "src/new.js", "git fetch && git reset -q --hard origin/main": factPath, "git clean -fd": "src/new.js",
		"bash -c 'git switch --discard-changes main'": factPath,
	} {
		p.refused(line, p.line(p.other, line), names, "Nothing was run", "git worktree add")
		p.refused(line+", again", p.line(p.other, line), names)
	}
	for _, line := range []string{"git add -A", "git add . && git commit -m x", "git commit -qam x", "git add 'src/*.js'"} {
		p.refused(line, p.line(p.other, line), factPath, "the same command again")
		p.allowed(line+", again", p.line(p.other, line))
	}
	for _, line := range []string{"git status", "git switch -c topic", "git checkout -- README.md", "git restore docs", "git clean -n", "git add README.md", "git stash list", "git commit -m x"} {
		p.allowed(line, p.line(p.other, line))
	}
	if text, err := os.ReadFile(filepath.Join(p.hers, factPath)); err != nil || string(text) != "half done\n" {
		t.Errorf("a hook ran a line: %q, %v", text, err)
	}
}
