package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"knoot.dev/knoot/integration/stage"
)

// Where a file is: every way in which two sessions may come to one file, and those in which they only seem to.

// places is a shop in which one session holds files and another asks for them.
type places struct {
	*shop
	t             testing.TB
	holder, other stage.Session
}

func newPlaces(t *testing.T) *places {
	t.Helper()
	p := &places{shop: newShop(t), t: t}
	p.priya.StartDaemon()
	p.holder = stage.Session{Person: p.priya, ID: "holder", Dir: p.hers}
	p.other = stage.Session{Person: p.priya, ID: "other", Dir: p.hers}
	return p
}

var asked atomic.Int64 // calls, each with an id of its own

// in is a session that works in another directory.
func in(s stage.Session, dir string) stage.Session {
	s.Dir = dir
	return s
}

// asks is why a call is refused before it runs; "": it is not. A hook that the machine is too slow for allows, and says so in the log:
// then it is asked again.
func (p *places) asks(s stage.Session, tool string, input map[string]any) string {
	p.t.Helper()
	for range 20 {
		slow := failures(p.t, p.priya)
		payload := s.Payload("PreToolUse", map[string]any{"tool_name": tool, "tool_use_id": fmt.Sprint("toolu_", asked.Add(1)), "tool_input": input})
		command := p.priya.Command(s.Dir, "knoot", "hook", "claude")
		command.Stdin = strings.NewReader(payload)
		output, err := command.CombinedOutput()
		if err != nil {
			p.t.Fatalf("%v: %s", err, output)
		}
		if denial := p.priya.Denial(string(output)); denial != "" || failures(p.t, p.priya) == slow {
			return denial
		}
	}
	p.t.Fatal("this machine is too busy for this test")
	return ""
}

// file is asks before an edit of a file, absolute or relative to where the session works.
func (p *places) file(s stage.Session, file string) string {
	p.t.Helper()
	if !filepath.IsAbs(file) {
		file = filepath.Join(s.Dir, file)
	}
	return p.asks(s, "Edit", map[string]any{"file_path": file, "old_string": "a", "new_string": "b"})
}

// line is asks before a command line.
func (p *places) line(s stage.Session, line string) string {
	p.t.Helper()
	return p.asks(s, "Bash", map[string]any{"command": line})
}

// holds has the holder claim files.
func (p *places) holds(s stage.Session, files ...string) {
	p.t.Helper()
	for _, file := range files {
		if reason := p.file(s, file); reason != "" {
			p.t.Fatalf("%s is not free: %s", file, reason)
		}
	}
}

// begin makes a repository with knoot, which has a file of the same name as the shop.
func (p *places) begin(dir string) {
	p.t.Helper()
	p.priya.Git(p.priya.Home, "init", "--quiet", dir)
	p.priya.Commit(dir, factPath, "cents\n", "Add billing")
	p.priya.Knoot(dir, "init", "--local")
}

func (p *places) refused(what, reason string, words ...string) {
	p.t.Helper()
	if reason == "" {
		p.t.Errorf("%s is allowed; hooks that failed: %q", what, failures(p.t, p.priya))
	}
	for _, word := range words {
		if !strings.Contains(reason, word) {
			p.t.Errorf("%s is refused without %q: %s", what, word, reason)
		}
	}
}

func (p *places) allowed(what, reason string) {
	p.t.Helper()
	if reason != "" {
		p.t.Errorf("%s is refused: %s", what, reason)
	}
}

func TestSubagents(t *testing.T) {
	t.Parallel()
	p := newPlaces(t)
	helper, stranger := p.holder, p.other
	helper.Subagent, stranger.Subagent = "helper", "stranger"
	p.holds(helper, factPath)
	p.allowed("the subagent's session", p.file(p.holder, factPath))
	p.refused("another session", p.file(p.other, factPath), factPath)
	p.refused("another session's subagent", p.file(stranger, factPath), factPath)
	// What was told belongs to the context.
	p.remember(t)
	if told := p.holder.Hears(factPath, factText); !strings.Contains(told, factText) {
		t.Errorf("the session is told %q", told)
	}
	if told := helper.Hears(factPath, factText); !strings.Contains(told, factText) {
		t.Errorf("its subagent is told %q", told)
	}
	// The turn's end is the session's, not the subagent's.
	helper.Hook("SubagentStop", map[string]any{"stop_hook_active": false})
	p.holder.Write(factPath, "by the session\n")
	p.refused("after the subagent's end", p.file(p.other, factPath), factPath)
	p.holder.Stop()
	p.allowed("after the turn's end", p.file(p.other, factPath))
}

func TestReportCodex23259LinkedWorktrees(t *testing.T) {
	t.Parallel()
	p := newPlaces(t)
	tree := filepath.Join(p.priya.Home, "tree of tax")
	p.priya.Git(p.hers, "worktree", "add", "--quiet", "-b", "tax", tree)
	there := in(p.other, tree)
	p.holds(p.holder, factPath)
	p.allowed("the file of another branch in a tree of its own", p.file(there, factPath))
	p.refused("the held file, from the other tree", p.file(there, filepath.Join(p.hers, factPath)), factPath)
	p.refused("the same by a command line", p.line(there, "sed -i s/a/b/ "+filepath.Join(p.hers, factPath)), factPath)
	p.refused("the other's file, from here", p.file(p.holder, filepath.Join(tree, factPath)), factPath)
	p.remember(t)
	if told := there.Hears(factPath, factText); !strings.Contains(told, factText) {
		t.Errorf("in the linked tree %q is told", told)
	}
}

func TestReportClaudeCode36793Subdirectories(t *testing.T) {
	t.Parallel()
	p := newPlaces(t)
	p.priya.Write(filepath.Join(p.hers, "src", "deep", "x.js"), "x\n")
	src, deep := in(p.other, filepath.Join(p.hers, "src")), in(p.other, filepath.Join(p.hers, "src", "deep"))
	p.holds(in(p.holder, filepath.Join(p.hers, "src")), "billing.js")
	for what, reason := range map[string]string{
		"from the root":             p.file(p.other, factPath),
		"from its directory":        p.file(src, "billing.js"),
		"by a line there":           p.line(src, "echo x > billing.js"),
		"from below, upwards":       p.line(deep, "cp x.js ../billing.js"),
		"by a cd":                   p.line(p.other, "cd src/deep && rm ../billing.js"),
		"by a path that goes round": p.file(deep, filepath.Join(p.hers, "src", "deep", "..", "billing.js")),
	} {
		p.refused(what, reason, factPath)
	}
	p.allowed("the same name in another directory", p.file(deep, "billing.js"))
	p.remember(t)
	if told := deep.Hears("../billing.js", factText); !strings.Contains(told, factText) {
		t.Errorf("below %q is told", told)
	}
}

func TestSymbolicLinks(t *testing.T) {
	t.Parallel()
	p := newPlaces(t)
	for link, target := range map[string]string{
		filepath.Join(p.hers, "again.js"): factPath, filepath.Join(p.hers, "lib"): "src", filepath.Join(p.priya.Home, "alias"): p.hers,
		filepath.Join(p.hers, "outside.js"): "/dev/null",
	} {
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
	}
	p.holds(p.holder, "lib/billing.js")
	for what, reason := range map[string]string{
		"by its own name":         p.file(p.other, factPath),
		"through a link":          p.file(p.other, "again.js"),
		"through a linked folder": p.file(p.other, "lib/billing.js"),
		"from a linked clone":     p.file(in(p.other, filepath.Join(p.priya.Home, "alias")), factPath),
		"by a line that writes":   p.line(p.other, "echo x >> again.js"),
	} {
		p.refused(what, reason, factPath)
	}
	p.allowed("the link itself, removed", p.line(p.other, "rm again.js"))
	p.allowed("what is outside", p.file(p.other, "outside.js"))
}

func TestCaseInsensitiveFileSystems(t *testing.T) {
	t.Parallel()
	p := newPlaces(t)
	p.priya.Git(p.hers, "config", "core.ignorecase", "true")
	p.holds(p.holder, factPath)
	p.refused("another spelling", p.file(p.other, "SRC/Billing.JS"), "SRC/Billing.JS", "("+factPath+" there)")
	p.refused("by a line", p.line(p.other, "echo x > Src/BILLING.js"), factPath)
	p.refused("a folder of it", p.line(p.other, "rm -rf SRC"), factPath)
	p.allowed("another file", p.file(p.other, "src/billings.js"))
	p.remember(t)
	if told := p.other.Hears("src/BILLING.js", factText); !strings.Contains(told, factText) {
		t.Errorf("of another spelling %q is told", told)
	}
}

func TestUnicodeNormalisingFileSystems(t *testing.T) {
	t.Parallel()
	p := newPlaces(t)
	const composed, decomposed = "src/caf\u00e9.js", "src/cafe\u0301.js"
	p.priya.Commit(p.hers, composed, "coffee\n", "Add a cafe")
	p.holds(p.holder, composed)
	p.refused("the other form", p.file(p.other, decomposed), "caf")
	p.refused("the other form, by a line", p.line(p.other, "echo x > '"+decomposed+"'"), "caf")
	p.priya.Knoot(p.hers, "remember", "--name", "cafe", "--path", composed, "the coffee is counted in beans")
	if told := p.other.Hears(decomposed, "counted in beans"); !strings.Contains(told, "counted in beans") {
		t.Errorf("of the other form %q is told", told)
	}
	// Who wrote it under one name hears of it under the other; the log has one name.
	p.holder.Stop()
	p.allowed("when it is free", p.file(p.other, decomposed))
	p.other.Write(decomposed, "tea\n")
	p.refused("the first form", p.file(p.holder, composed), "caf")
	p.other.Stop()
	if log := p.priya.Knoot(p.hers, "why", composed); !strings.Contains(log, "counted in beans") {
		t.Errorf("why says %q", log)
	}
}

func TestSubmodules(t *testing.T) {
	t.Parallel()
	p := newPlaces(t)
	library := stage.Host(t)
	p.priya.Git(p.hers, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", library, "lib")
	inside := in(p.other, filepath.Join(p.hers, "lib"))
	p.holds(p.holder, factPath, "lib/README.md")
	p.allowed("a file of a submodule without knoot", p.file(p.other, "lib/README.md"))
	p.allowed("the same from inside", p.file(inside, "README.md"))
	p.refused("the parent's file, from inside", p.file(inside, filepath.Join(p.hers, factPath)), factPath)
	p.priya.Knoot(inside.Dir, "init", "--local")
	// That there was no knoot is believed for a moment.
	reason := ""
	for began := time.Now(); reason == "" && time.Since(began) < 20*time.Second; {
		p.holds(p.holder, "lib/README.md")
		if reason = p.file(inside, "README.md"); reason == "" {
			inside.Stop()
		}
	}
	p.refused("a file of a submodule with knoot", reason, "README.md")
	p.allowed("a file of that name outside", p.file(p.other, "README.md"))
}

func TestNestedRepositories(t *testing.T) {
	t.Parallel()
	p := newPlaces(t)
	inner := filepath.Join(p.hers, "vendor", "inner")
	p.begin(inner)
	p.holds(p.holder, "vendor/inner/src/billing.js")
	p.allowed("the same name in the outer one", p.file(p.other, factPath))
	p.refused("from the outer one", p.file(p.other, "vendor/inner/src/billing.js"), factPath)
	p.refused("from within", p.file(in(p.other, inner), factPath), factPath)
	p.refused("by a line that goes in", p.line(p.other, "cd vendor/inner && echo x > src/billing.js"), factPath)
	p.refused("by one that removes its folder", p.line(p.other, "rm -rf vendor/inner/src"), factPath)
}

func TestPathsWithSpacesQuotesAndNewlines(t *testing.T) {
	t.Parallel()
	p := newPlaces(t)
	const spaced, quoted, broken = "my docs/two words.md", `it's "so".md`, "two\nlines.md"
	p.holds(p.holder, spaced, quoted, broken)
	p.refused("spaces", p.file(p.other, spaced), `"my docs/two words.md"`)
	p.refused("quotes", p.file(p.other, quoted), "so")
	reason := p.file(p.other, broken)
	p.refused("a newline", reason)
	if strings.Contains(strings.SplitN(reason, "Nothing was written", 2)[0], "\n"+"lines.md") {
		t.Errorf("a newline of a name is one of the denial: %q", reason)
	}
	for _, line := range []string{`echo x > "my docs/two words.md"`, `echo x > my\ docs/two\ words.md`, `sed -i s/a/b/ 'it'"'"'s "so".md'`, "rm $'two\\nlines.md'", "rm 'two\nlines.md'",
		`for f in "my docs/two words.md"; do touch "$f"; done`} {
		p.refused(line, p.line(p.other, line))
	}
	p.allowed("the first of the words", p.line(p.other, `for f in "my docs/two words.md"; do touch ${f%% *}; done`))
	p.priya.Write(filepath.Join(p.hers, spaced), "x\n")
	p.priya.Knoot(p.hers, "remember", "--name", "words", "--path", spaced, "there are two words")
	if told := p.other.Hears(spaced, "there are two words"); !strings.Contains(told, "there are two words") {
		t.Errorf("%q is told", told)
	}
}

// A repository is what its settings say, wherever its folder is and whatever its host calls it.
func TestRenamedRepositories(t *testing.T) {
	t.Parallel()
	p := newPlaces(t)
	renamed := filepath.Join(filepath.Dir(p.host), "store.git")
	if err := os.Rename(p.host, renamed); err != nil {
		t.Fatal(err)
	}
	p.priya.Git(p.his, "remote", "set-url", "origin", renamed)
	his := in(p.other, p.his)
	p.holds(p.holder, factPath)
	p.refused("in a clone of the renamed host, on the same branch", p.file(his, factPath), factPath)
	moved := filepath.Join(p.priya.Home, "moved")
	if err := os.Rename(p.hers, moved); err != nil {
		t.Fatal(err)
	}
	p.refused("in the renamed clone", p.file(in(p.other, moved), factPath), factPath)
	p.holds(in(p.holder, moved), "src/more.js")
	p.refused("a file that is held since", p.file(his, "src/more.js"), "src/more.js")
	p.priya.Knoot(moved, "remember", "--name", factName, "--path", factPath, factText)
	if told := in(p.other, moved).Hears(factPath, factText); !strings.Contains(told, factText) {
		t.Errorf("in the renamed clone %q is told", told)
	}
}

func TestTwoRepositoriesInOneSession(t *testing.T) {
	t.Parallel()
	p := newPlaces(t)
	second := filepath.Join(p.priya.Home, "second")
	p.begin(second)
	there := filepath.Join(second, factPath)
	p.holds(p.holder, factPath, there)
	p.refused("in the first", p.file(p.other, factPath), factPath)
	p.refused("in the second", p.file(in(p.other, second), factPath), factPath)
	p.refused("a line for both, of which one file is held", p.line(p.other, "echo x > free.txt; echo x > "+there), factPath)
	p.allowed("what is free in both", p.line(p.other, "echo x > free.txt; echo x > "+filepath.Join(second, "free.txt")))
	p.holder.Stop()
	p.allowed("after the turn's end, in the first", p.file(p.other, factPath))
	p.allowed("and in the second", p.file(p.other, there))
}
