package agents

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"knoot.dev/knoot/integration/stage"
)

// Two runs of the real agent in one clone, both about to write one file. The second's write does not happen and its model
// reads why; once the first's turn has ended the second is told, at its next tool call or when its turn would end, and its
// write goes through.
func TestASecondClaudeIsRefusedAndToldWhenTheFileIsFree(t *testing.T) {
	executable := claude(t)
	for name, each := range map[string]struct {
		goesOn func(dir string) Item
		told   int
	}{
		"at its next tool call": {func(dir string) Item {
			return Item{Tool: "Read", Input: map[string]any{"file_path": filepath.Join(dir, "README.md")}}
		}, 1},
		// What keeps a turn open this agent shows its model twice, as feedback and as an error.
		"when its turn would end": {func(string) Item { return Item{Text: "I have nothing else to do."} }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := stage.NewPerson(t, "priya")
			dir := p.Clone(stage.Host(t), "shop")
			p.Knoot(dir, "init")
			p.StartDaemon()
			file := filepath.Join(dir, "src", "tax.js")
			refused, free := make(chan struct{}), make(chan struct{})
			run := func(m *Model) Claude {
				return Claude{Executable: executable, Model: m, Home: t.TempDir(), Dir: dir,
					Env: []string{"KNOOT_HOME=" + p.KnootHome, "KNOOT_BIN=" + filepath.Join(p.Bin, "knoot")}}
			}
			wrote := make(chan struct{})
			goesOn := each.goesOn(dir)
			goesOn.After = free
			first := model(t, Script{
				{{Tool: "Write", Input: map[string]any{"file_path": file, "content": "export const rate = 19\n"}}},
				{{Text: "The rate is in.", After: refused}},
			})
			first.Asked(func(turn int) {
				if turn == 2 { // the write has happened
					close(wrote)
				}
			})
			second := model(t, Script{
				{{Tool: "Write", Input: map[string]any{"file_path": file, "content": "export const rate = 7\n"}, After: wrote}},
				{goesOn},
				{{Tool: "Read", Input: map[string]any{"file_path": file}}},
				{{Tool: "Write", Input: map[string]any{"file_path": file, "content": "export const rate = 7\n"}}},
				{{Text: "Both are done."}},
			})
			atRefusal := ""
			second.Asked(func(turn int) {
				if turn == 2 {
					text, _ := os.ReadFile(file)
					atRefusal = string(text)
					close(refused)
				}
			})

			ends := make(chan error, 1)
			go func() {
				_, err := run(first).Run(deadline(t), "rewrite the tax rounding to half even")
				close(free)
				ends <- err
			}()
			if _, err := run(second).Run(deadline(t), "add the reduced rate for books"); err != nil {
				t.Fatal(err)
			}
			if err := <-ends; err != nil {
				t.Fatal(err)
			}

			turns := second.Turns()
			if len(turns) != 5 {
				t.Fatalf("the second model was asked %d times, expected 5", len(turns))
			}
			if atRefusal != "export const rate = 19\n" {
				t.Errorf("after the refusal the file holds %q, not what the first wrote", atRefusal)
			}
			for what, words := range map[string]string{
				"that knoot refuses": "knoot refused this edit", "the holder": "priya's agent", "its intent": "rewrite the tax rounding to half even",
				"the time left": "its lease has", "that nothing was written": "Nothing was written.",
			} {
				if turns[0].Count(words) != 0 || turns[1].Count(words) != 1 {
					t.Errorf("%s (%q) is in the second model's first requests %d and %d times, expected 0 and 1", what, words,
						turns[0].Count(words), turns[1].Count(words))
				}
			}
			if n := turns[2].Count("src/tax.js, which you were denied, is free now"); n != each.told {
				t.Errorf("after the first's end the model is told that the file is free %d times, expected %d", n, each.told)
			}
			if text, err := os.ReadFile(file); err != nil || string(text) != "export const rate = 7\n" {
				t.Errorf("at the end the file holds %q, %v", text, err)
			}
			if shown := p.Knoot(dir, "shown"); !strings.Contains(shown, "knoot refused this edit") {
				t.Errorf("knoot shown says nothing of the denial:\n%s", shown)
			}
		})
	}
}
