package agents

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	"knoot.dev/knoot/integration/stage"
)

const (
	factText = "all money is integer cents, never floats"
	factPath = "src/billing.js"
)

// repository is one in which knoot is set up and knows a fact about a file, with its person.
func repository(t *testing.T) (*stage.Person, string) {
	t.Helper()
	p := stage.NewPerson(t, "priya")
	dir := p.Clone(stage.Host(t), "shop")
	p.Commit(dir, factPath, "export const total = lines => lines.reduce((a, b) => a + b, 0)\n", "Add billing")
	p.Knoot(dir, "init")
	p.Knoot(dir, "remember", "--name", "money", "--path", factPath, factText)
	return p, dir
}

// readsTheFile runs Claude Code on a prompt after which it reads the file, and returns what the model was asked.
func readsTheFile(t *testing.T, executable string, p *stage.Person, dir string) ([]Request, Output) {
	t.Helper()
	m := model(t, Script{
		{{Tool: "Read", Input: map[string]any{"file_path": filepath.Join(dir, factPath)}}},
		{{Text: "It sums the lines."}},
	})
	run := Claude{Executable: executable, Model: m, Home: t.TempDir(), Dir: dir,
		Env: []string{"KNOOT_HOME=" + p.KnootHome, "KNOOT_BIN=" + filepath.Join(p.Bin, "knoot")}}
	output, err := run.Run(deadline(t), "what does the billing code do?")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(output.Stdout, "It sums the lines.") {
		t.Errorf("the agent's answer is %q", output.Stdout)
	}
	turns := m.Turns()
	if len(turns) != 2 {
		t.Fatalf("the model was asked %d times, expected 2", len(turns))
	}
	if turns[1].Count("lines.reduce") == 0 {
		t.Error("the file's text is not in the second request: the read did not happen")
	}
	return turns, output
}

func TestClaudesModelIsShownTheFactWhenItReadsTheFile(t *testing.T) {
	executable := claude(t)
	p, dir := repository(t)
	p.StartDaemon()
	turns, _ := readsTheFile(t, executable, p, dir)
	if n := turns[0].Count(factText); n != 0 {
		t.Errorf("before the file was read the model was shown the fact %d times", n)
	}
	if n := turns[1].Count(factText); n != 1 {
		t.Errorf("after the read the model was shown the fact %d times, expected once", n)
	}
	if shown := p.Knoot(dir, "shown"); strings.Count(shown, factText) != 1 {
		t.Errorf("knoot shown does not say so:\n%s", shown)
	}
}

func TestClaudeNoticesNothingWithoutADaemon(t *testing.T) {
	executable := claude(t)
	p, dir := repository(t)
	p.StartDaemon().Kill()
	turns, output := readsTheFile(t, executable, p, dir)
	for i, request := range turns {
		// The repository's own files are called after knoot, and git tells the agent of them; what hooks say is another matter.
		for _, trace := range []string{factText, "knoot:", "background notes", "hook additional context", "hook error"} {
			if n := request.Count(trace); n != 0 {
				t.Errorf("request %d holds %q %d times", i+1, trace, n)
			}
		}
	}
	if strings.Contains(output.Stdout+output.Stderr, "knoot") {
		t.Errorf("the agent says %q, %q", output.Stdout, output.Stderr)
	}
	if connection, err := net.Dial("unix", p.Socket()); err == nil {
		connection.Close()
		t.Error("a hook started a daemon although autostart is off")
	}
}
