package hook

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"knoot.dev/knoot/daemon/socket"
)

// writes are what a Write of path in the working directory cwd writes, as ROOT:PATH, with the world's directory left out.
func (w *world) writes(cwd, path string) string {
	w.t.Helper()
	base := filepath.Dir(w.repo)
	a := &claude
	p := &payload{event: "PreToolUse", files: [len(fileKeys)]string{path}}
	p.hook = socket.Hook{Event: "PreToolUse", Tool: "Write", Cwd: cwd}
	var list []string
	touched, _ := a.touches(p, func(string) string { return "" })
	for _, place := range places(realCwd(cwd), touched) {
		for _, file := range place.Writes {
			list = append(list, strings.TrimPrefix(place.Root, base+"/")+":"+file)
		}
	}
	return strings.Join(list, " ")
}

func TestPaths(t *testing.T) {
	w := newWorld(t)
	base := realPath(t.TempDir())
	w.repo = w.mkdir(base, "repo")
	w.mkdir(w.repo, ".git", "hooks")
	w.mkdir(w.repo, "src", "deep")
	w.write("x", w.repo, "src", "a.go")
	w.mkdir(base, "other", ".git")
	w.write("x", base, "other", "b.go")
	w.mkdir(base, "plain")
	w.write("gitdir: elsewhere\n", w.repo, "sub", ".git")
	w.link("src", w.repo, "link")
	w.link(filepath.Join(w.repo, "src", "a.go"), w.repo, "again.go")
	w.link("../plain", w.repo, "out")
	w.link("../plain/none.go", w.repo, "dangling.go")
	w.link("src/none.go", w.repo, "promised.go")
	w.link("../other/b.go", w.repo, "theirs.go")
	w.link(".git/hooks", w.repo, "hooks")
	w.link("loop2", w.repo, "loop1")
	w.link("loop1", w.repo, "loop2")
	w.link("repo", base, "alias")
	w.link("repo/src/a.go", base, "entry.go")

	for _, c := range []struct{ cwd, path, want string }{
		{"repo", "src/a.go", "repo:src/a.go"},
		{"repo/src", "a.go", "repo:src/a.go"},
		{"repo/src", "../src/./deep//x.go", "repo:src/deep/x.go"},
		{"repo", "new/dir/x.go", "repo:new/dir/x.go"},
		{"repo", "with space é.go", "repo:with space é.go"},
		{"repo", "", ""},
		{"repo", ".", ""},
		{"repo", "nul\x00.go", ""},
		{"repo", "link/a.go", "repo:src/a.go"},
		{"repo", "link/new.go", "repo:src/new.go"},
		{"repo", "again.go", "repo:src/a.go"},
		{"repo", "promised.go", "repo:src/none.go"},
		{"repo", "out/x.go", ""},
		{"repo", "dangling.go", ""},
		{"repo", "loop1", ""},
		{"repo", "loop1/x.go", ""},
		{"repo", "theirs.go", "other:b.go"},
		{"repo", "../other/b.go", "other:b.go"},
		{"repo", "../plain/x.go", ""},
		{"repo", "/etc/hosts", ""},
		{"repo", ".git", ""},
		{"repo", ".git/config", ""},
		{"repo", "hooks/post-commit", ""},
		{"repo", ".gitignore", "repo:.gitignore"},
		{"repo", "..hidden", "repo:..hidden"},
		{"repo", "sub/x.go", "repo/sub:x.go"},
		{"repo", "sub/.git", ""},
		{"repo", "src/a.go/below.go", "repo:src/a.go/below.go"},
		{"alias/src", "a.go", "repo:src/a.go"},
		{"alias/link", "../src/a.go", "repo:src/a.go"},
		{"plain", "x.go", ""},
		{"plain", "../repo/src/a.go", "repo:src/a.go"},
		{"plain", "../entry.go", "repo:src/a.go"},
		{"gone/away", "../../repo/x.go", "repo:x.go"},
	} {
		paths := []string{c.path}
		if c.path != "" && !filepath.IsAbs(c.path) {
			paths = append(paths, filepath.Join(base, c.cwd, c.path))
		}
		for _, path := range paths {
			if got := w.writes(filepath.Join(base, c.cwd), path); got != c.want {
				t.Errorf("in %s: %q is %q, want %q", c.cwd, path, got, c.want)
			}
		}
	}
}

func TestPlacesBeginWithTheWorkingDirectory(t *testing.T) {
	w := newWorld(t)
	a, b := w.mkdir(w.repo, "a"), w.mkdir(w.repo, "b")
	w.mkdir(a, ".git")
	w.mkdir(b, ".git")
	got := places(filepath.Join(a, "deep"), []touch{
		{path: filepath.Join(b, "z")}, {path: filepath.Join(b, "y"), writes: true}, {path: filepath.Join(b, "x")}, {path: filepath.Join(b, "z")},
		{path: filepath.Join(w.repo, "top"), writes: true, tree: true}, {path: filepath.Join(filepath.Dir(w.repo), "outside"), writes: true},
	})
	want := []socket.Place{{Root: a}, {Root: b, Reads: []string{"x", "z"}, Writes: []string{"y"}}, {Root: w.repo, Writes: []string{"top"}, Trees: []string{"top"}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if got := places("/", nil); got != nil {
		t.Errorf("no worktree: %+v", got)
	}
}

func TestExplainWithoutAWorktree(t *testing.T) {
	w := newWorld(t)
	dir := realPath(t.TempDir())
	w.link("/etc", dir, "out")
	for path, want := range map[string]string{
		dir + "/x/y.go": `["x/y.go"]`, "y.go": `["y.go"]`, "../y.go": `[]`, "/etc/hosts": `[]`, "out/hosts": `[]`, w.repo + "/z.go": `["z.go"]`,
	} {
		payload := strings.ReplaceAll(w.tool("PreToolUse", "Write", path), `"cwd":"`+w.repo, `"cwd":"`+dir)
		if got := w.run(payload, "claude", "--explain"); !strings.Contains(got, `"reads":[],"writes":`+want) || !strings.Contains(got, `"cwd":"`+dir+`"`) {
			t.Errorf("%s: %s", path, got)
		}
	}
}

// What the operating system resolves, realPath resolves to the same.
func TestRealPathAgreesWithEvalSymlinks(t *testing.T) {
	base := realPath(t.TempDir())
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp(base, "")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		names := rapid.SampledFrom([]string{"a", "b", "c", ".", ".."})
		path := rapid.Custom(func(t *rapid.T) string { return strings.Join(rapid.SliceOfN(names, 1, 4).Draw(t, "names"), "/") })
		for range rapid.IntRange(0, 8).Draw(t, "entries") {
			at := filepath.Join(dir, path.Draw(t, "at"))
			switch rapid.IntRange(0, 2).Draw(t, "kind") {
			case 0:
				_ = os.MkdirAll(at, 0o755) // where a file or a link is, it stays
			case 1:
				_ = os.WriteFile(at, nil, 0o644)
			default:
				if strings.HasPrefix(at, dir+"/") {
					_ = os.Symlink(path.Draw(t, "target"), at)
				}
			}
		}
		p := filepath.Join(dir, path.Draw(t, "path"))
		got := realPath(p)
		if want, err := filepath.EvalSymlinks(p); err == nil && got != want {
			t.Errorf("%s is %s, want %s", p, got, want)
		}
		if got != "" && (!filepath.IsAbs(got) || filepath.Clean(got) != got) {
			t.Errorf("%s is %s", p, got)
		}
	})
}

// What an agent said last goes to the daemon where it may be of use there: of an agent with a name, and in no private session.
func TestRequestSaysWhatWasSaidLast(t *testing.T) {
	stop := map[string]any{"last_assistant_message": "shall I go on?"}
	for _, c := range []struct {
		env  []string
		want string
	}{
		{nil, ""}, {[]string{"KNOOT_AGENT=bob"}, "shall I go on?"}, {[]string{"KNOOT_AGENT=bob", "KNOOT_PRIVATE=1"}, ""},
	} {
		w := newWorld(t)
		w.env = append(w.env, c.env...)
		if h := w.asked(w.payload("Stop", stop)); h == nil || h.Said != c.want {
			t.Errorf("with %q: %+v", c.env, h)
		}
	}
}

func TestRequestNamesWhatWasTouched(t *testing.T) {
	w := newWorld(t)
	w.env = append(w.env, "KNOOT_AGENT=tidy", "KNOOT_USER=mira", "KNOOT_PRIVATE=1")
	h := w.asked(w.tool("PreToolUse", "Edit", "src/../x.go"))
	if h == nil {
		t.Fatal("nothing was asked")
	}
	want := &socket.Hook{Agent: "claude", Event: "PreToolUse", Session: "s1", Cwd: w.repo, Tool: "Edit", ToolUse: "u1",
		Places: []socket.Place{{Root: w.repo, Writes: []string{"x.go"}}}, Process: 4711, Name: "tidy", User: "mira", Private: true,
		Payload: h.Payload, Ancestors: h.Ancestors}
	if !reflect.DeepEqual(h, want) {
		t.Errorf("%+v", h)
	}
	if len(h.Payload) != 64 || !slices.Contains(h.Ancestors, os.Getppid()) {
		t.Errorf("digest %q, ancestors %v", h.Payload, h.Ancestors)
	}
	for _, c := range []struct {
		event, tool   string
		opaque, asked bool
	}{
		{"PostToolUse", "Bash", false, true}, {"PostToolUse", "Grep", false, false}, {"PreToolUse", "mcp__a__b", false, false},
		{"PreToolUse", "", false, false}, {"PostToolBatch", "Write", false, false}, {"Notification", "", false, true}, {"PermissionRequest", "Bash", false, true}, {"OfALaterVersion", "", false, false},
		{"SubagentStart", "", false, true}, {"SubagentStop", "", false, true}, {"PreCompact", "", false, true}, {"Stop", "", false, true},
	} {
		h := w.asked(w.tool(c.event, c.tool, "x.go"))
		if (h != nil) != c.asked || h != nil && h.Opaque != c.opaque {
			t.Errorf("%+v: %+v", c, h)
		}
	}
	if codes := w.failures(); codes != "" {
		t.Errorf("failures %s", codes)
	}
}

// A command line is about the files that it names, whichever repository they are in, and about links rather than what they
// point to where it replaces them.
func TestCommandLines(t *testing.T) {
	w := newWorld(t)
	base := realPath(t.TempDir())
	w.repo = w.mkdir(base, "my repo")
	w.mkdir(w.repo, ".git", "hooks")
	w.mkdir(base, "other", ".git")
	w.mkdir(w.repo, "sub", ".git")
	w.write("x", w.repo, "src", "a.go")
	w.write("x", w.repo, "src", "b.go")
	w.link("src", w.repo, "link")
	w.link("src/a.go", w.repo, "again.go")
	w.link("my repo", base, "alias")
	w.env = append(w.env, "HOME="+base, "USER=mira")
	for _, c := range []struct{ cwd, line, want string }{
		{"my repo", "cat src/a.go > src/c.go", "my repo r:src/a.go w:src/c.go"},
		{"my repo/src", "touch ../x 'two words'", "my repo w:src/two words w:x"},
		{"my repo", "rm link/*.go", "my repo w:src/a.go w:src/b.go"},
		{"my repo", "rm again.go", "my repo w:again.go"},
		{"my repo", "echo > again.go", "my repo w:src/a.go"},
		{"my repo", "rm -rf link", "my repo w:link"},
		{"my repo", "rm -rf src; touch ~/other/x", "my repo w:src t:src | other w:x"},
		{"my repo", "touch .git/hooks/x sub/y /etc/z", "my repo | my repo/sub w:y"},
		{"alias/link", "touch x", "my repo w:src/x"},
		{"my repo", "cd ../other && mv a b", "my repo | other w:a w:b"},
		{"my repo", "rm -rf .", "my repo opaque"},
		{"my repo", "make", "my repo opaque"},
		{"my repo", "echo 'open", "my repo opaque"},
		{"my repo", "touch $USER", "my repo w:mira"},
		{"my repo", "touch $UNKNOWN", "my repo opaque"},
		{"my repo", strings.Repeat("#", maxCommand) + "\ntouch x", "my repo opaque"},
		{"my repo", "", "my repo"},
		{"", "touch x", ""},
	} {
		payload := w.payload("PreToolUse", map[string]any{"cwd": filepath.Join(base, c.cwd), "tool_name": "Bash", "tool_use_id": "u", "tool_input": map[string]any{"command": c.line}})
		h := w.asked(payload)
		if h == nil {
			t.Errorf("in %s: %.40q: nothing is asked", c.cwd, c.line)
			continue
		}
		text := summary(base, h)
		if text != c.want || !h.Shell || h.Background {
			t.Errorf("in %s: %.40q: %q, want %q", c.cwd, c.line, text, c.want)
		}
	}
}

func TestACommandLineInTheBackground(t *testing.T) {
	w := newWorld(t)
	for tool, want := range map[string]bool{"Bash": true, "Read": false} {
		h := w.asked(w.payload("PreToolUse", map[string]any{"tool_name": tool, "tool_use_id": "u", "tool_input": map[string]any{
			"command": "make serve", "file_path": "x", "run_in_background": true}}))
		if h == nil || h.Background != want {
			t.Errorf("%s: %+v", tool, h)
		}
	}
}

// A git command that takes the tree takes that of the directory in which it runs.
func TestSweepsAreOfTheirWorktree(t *testing.T) {
	w := newWorld(t)
	w.mkdir(w.repo, "src", "deep")
	inner := w.mkdir(w.repo, "vendor", "inner")
	w.mkdir(inner, ".git")
	w.link("src", w.repo, "link")
	for line, want := range map[string]string{
		"git reset --hard":                       "[.: git reset --hard []]",
		"git checkout -- src":                    "[.: git checkout DIRECTORY [src]]",
		"git checkout -- .":                      "[.: git checkout DIRECTORY []]",
		"cd src && git clean -fd":                "[.: git clean [src]]",
		"git -C src/deep checkout ..":            "[.: git checkout DIRECTORY [src]]",
		"cd link && git add .":                   "[.: git add . [src]]",
		"cd vendor/inner && git reset --hard":    "[vendor/inner: git reset --hard []]",
		"cd vendor/inner && git clean -f ../..":  "[vendor/inner: git clean []]",
		"git -C vendor/inner clean -f ../../src": "[]",
		"cd / && git reset --hard":               "[]",
	} {
		p := &payload{event: "PreToolUse", line: line}
		p.hook = socket.Hook{Event: "PreToolUse", Tool: "Bash", Cwd: w.repo}
		touched, _ := claude.touches(p, func(string) string { return "" })
		got := []string{}
		for _, place := range places(w.repo, touched) {
			root, err := filepath.Rel(w.repo, place.Root)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range place.Sweeps {
				got = append(got, fmt.Sprint(root, ": ", s.Command, " ", s.Paths))
			}
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%s: %v, want %s", line, got, want)
		}
	}
}
