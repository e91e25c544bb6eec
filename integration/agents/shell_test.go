package agents

import (
	"os"
	"path/filepath"
	"testing"

	"knoot.dev/knoot/integration/stage"
)

// The real agent and a file that another run of it holds: sed -i on it does not happen. A script writes it, since nothing in
// the line says so, and both models are told.
func TestClaudesCommandsAndAFileThatAnotherHolds(t *testing.T) {
	t.Parallel()
	executable := claude(t)
	p := stage.NewPerson(t, "priya")
	dir := p.Clone(stage.Host(t), "shop")
	p.Knoot(dir, "init")
	p.StartDaemon()
	file := filepath.Join(dir, "src", "tax.js")
	write(t, filepath.Join(dir, "rates"), "echo 'export const rate = 7' > src/tax.js\n")
	wrote, done := make(chan struct{}), make(chan struct{})
	run := func(m *Model) Claude {
		return Claude{Executable: executable, Model: m, Home: t.TempDir(), Dir: dir, Shell: true,
			Env: []string{"KNOOT_HOME=" + p.KnootHome, "KNOOT_BIN=" + filepath.Join(p.Bin, "knoot")}}
	}
	readme := map[string]any{"file_path": filepath.Join(dir, "README.md")}
	command := func(line string) map[string]any { return map[string]any{"command": line, "description": "the rate"} }
	holder := model(t, Script{
		{{Tool: "Write", Input: map[string]any{"file_path": file, "content": "export const rate = 19\n"}}},
		{{Tool: "Read", Input: readme, After: done}},
		{{Text: "The rate is in."}},
	})
	holder.Asked(func(turn int) {
		if turn == 2 { // the write has happened
			close(wrote)
		}
	})
	other := model(t, Script{
		{{Tool: "Bash", Input: command("cd src && sed -i 's/19/7/' tax.js"), After: wrote}},
		{{Tool: "Bash", Input: command("sh rates")}},
		{{Tool: "Read", Input: readme}}, // what the script did is found out after its call has ended
		{{Tool: "Read", Input: map[string]any{"file_path": filepath.Join(dir, "rates")}}},
		{{Text: "The rate is 7."}},
	})
	var found []string
	other.Asked(func(turn int) {
		text, _ := os.ReadFile(file)
		if found = append(found, string(text)); turn == 5 {
			close(done)
		}
	})

	ends := make(chan error, 1)
	go func() {
		_, err := run(holder).Run(deadline(t), "rewrite the tax rounding to half even")
		ends <- err
	}()
	if _, err := run(other).Run(deadline(t), "add the reduced rate for books"); err != nil {
		t.Fatal(err)
	}
	if err := <-ends; err != nil {
		t.Fatal(err)
	}

	turns := other.Turns()
	if len(turns) != 5 || len(holder.Turns()) != 3 {
		t.Fatalf("the models were asked %d and %d times, expected 5 and 3", len(turns), len(holder.Turns()))
	}
	if found[1] != "export const rate = 19\n" || turns[1].Count("knoot refused this edit") != 1 {
		t.Errorf("after sed the file holds %q; its model is told of a refusal %d times", found[1], turns[1].Count("knoot refused this edit"))
	}
	if found[2] != "export const rate = 7\n" {
		t.Errorf("after the script the file holds %q", found[2])
	}
	if n := turns[4].Count("src/tax.js was changed while your command ran"); n != 1 {
		t.Errorf("the model that ran the script is told what it changed %d times", n)
	}
	if n := holder.Turns()[2].Count("src/tax.js, which you hold, was changed while a command of priya's agent ran"); n != 1 {
		t.Errorf("the model that holds the file is told %d times", n)
	}
}
