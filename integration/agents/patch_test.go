package agents

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"knoot.dev/knoot/integration/stage"
)

// Whatever Codex makes of a patch, in the grammar or beside it, it changes no file that the hook does not name; and what it
// applies the hook has understood.
func TestCodexAppliesWhatAPatchNames(t *testing.T) {
	t.Parallel()
	agent, err := FindCodex()
	able(t, err)
	p := stage.NewPerson(t, "priya")
	bin, at := t.TempDir(), t.TempDir()
	program := filepath.Join(bin, "apply_patch")
	if err := os.Symlink(agent.(Codex).Program(), program); err != nil {
		t.Fatal(err)
	}
	names := rapid.SampledFrom([]string{"a.txt", "b.txt", "c d.txt", "sub/e.txt", "sub/../f.txt", "./a.txt", at + "/g.txt", "*** Add File: h"})
	content := rapid.SampledFrom([]string{"", "x", " y", "*** Delete File: a.txt", "*** End Patch", "@@", "é"})
	space := rapid.SampledFrom([]string{"", "", "", " ", "  ", "\t"})
	ending := rapid.SampledFrom([]string{"\n", "\n", "\n", "\r\n"})
	stray := rapid.SampledFrom([]string{"", "", "", "", "", "", "\n", " \n", "words\n", "*** Environment ID: main\n", "*** End of File\n", "+z\n", "*** End Patch\n", "*** Begin Patch\n"})
	applied := 0
	rapid.Check(t, func(t *rapid.T) {
		plant(t, at, "a.txt", "b.txt", "c d.txt", "sub/e.txt", "g.txt")
		before := planted(t, at)
		var text strings.Builder
		say := func(line string) { text.WriteString(line + ending.Draw(t, "end")) }
		marker := func(line string) { say(space.Draw(t, "before") + line + space.Draw(t, "behind")) }
		document := rapid.SampledFrom([]string{"", "", "", "EOF", "'EOF'", `"EOF"`, "END"}).Draw(t, "document")
		if document != "" {
			say("<<" + document)
		}
		marker("*** Begin Patch")
		for range rapid.IntRange(0, 4).Draw(t, "operations") {
			text.WriteString(stray.Draw(t, "stray"))
			name := names.Draw(t, "name")
			switch rapid.IntRange(0, 2).Draw(t, "kind") {
			case 0:
				marker("*** Add File: " + name)
				for range rapid.IntRange(0, 2).Draw(t, "lines") {
					say("+" + content.Draw(t, "line"))
				}
			case 1:
				marker("*** Delete File: " + name)
			default:
				marker("*** Update File: " + name)
				if rapid.Bool().Draw(t, "moves") {
					say("*** Move to: " + names.Draw(t, "to"))
				}
				text.WriteString(stray.Draw(t, "stray"))
				if rapid.Bool().Draw(t, "context") {
					say("@@")
				}
				say("-" + strings.TrimPrefix(strings.TrimPrefix(name, "./"), at+"/"))
				say("+" + content.Draw(t, "line"))
			}
		}
		text.WriteString(stray.Draw(t, "stray"))
		marker("*** End Patch")
		if document != "" {
			say(strings.Trim(document, `'"`))
		}

		command := exec.CommandContext(context.Background(), program, text.String())
		command.Dir = at
		command.Env = []string{"HOME=" + bin, "PATH=" + os.Getenv("PATH")}
		output, err := command.CombinedOutput()
		if err == nil {
			applied++
		}
		after := planted(t, at)
		payload := encode(object{"hook_event_name": "PreToolUse", "session_id": "s", "cwd": at, "tool_name": "apply_patch",
			"tool_input": object{"command": text.String()}})
		var explained struct {
			Writes []string
			Opaque bool
		}
		if err := json.Unmarshal([]byte(p.Try(at, payload, "knoot", "hook", "codex", "--explain").Stdout), &explained); err != nil {
			t.Fatal(err)
		}
		for name := range union(before, after) {
			if before[name] != after[name] && !slices.Contains(explained.Writes, name) {
				t.Errorf("%q changed %s, which is not among %q", text.String(), name, explained.Writes)
			}
		}
		if err == nil && explained.Opaque {
			t.Errorf("%q is applied, and is said to be opaque: %s", text.String(), output)
		}
	})
	if applied == 0 {
		t.Error("no patch was applied")
	}
}

// plant empties dir and makes files in it, of which each holds its name.
func plant(t *rapid.T, dir string, files ...string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if err := os.RemoveAll(filepath.Join(dir, entry.Name())); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(name+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// planted are the files below dir, with "+" before what they hold: one that is empty is there.
func planted(t *rapid.T, dir string) map[string]string {
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		files[name] = "+" + string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func union(a, b map[string]string) map[string]bool {
	all := map[string]bool{}
	for _, each := range []map[string]string{a, b} {
		for name := range each {
			all[name] = true
		}
	}
	return all
}
