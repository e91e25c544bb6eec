package shell

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// run lets bash run a line in the worktree, and waits for all that it starts.
func (s sandbox) run(t testing.TB, line string) (output string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, "bash", "--norc", "--noprofile", "-c", line)
	command.Dir, command.Env = s.root, s.environ()
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	command.WaitDelay = 5 * time.Second
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, &out // what still runs in the background holds them open
	_ = command.Run()                           // many of the lines fail, and are to
	if ctx.Err() != nil {
		t.Logf("%q does not end", line)
	}
	return out.String()
}

// files tells what each file of the worktree is, by its path.
func (s sandbox) files(t testing.TB) map[string]string {
	found := map[string]string{}
	err := filepath.WalkDir(s.root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if entry.Name() == ".git" {
				return fs.SkipDir
			}
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		text := fmt.Sprint(info.Mode(), info.ModTime().UnixNano())
		if info.Mode().IsRegular() {
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text += string(content)
		} else if target, err := os.Readlink(path); err == nil {
			text = target
		}
		found[path] = text
		return nil
	})
	must(t, err)
	return found
}

// copy makes another worktree like s.
func (s sandbox) copy(t testing.TB) sandbox {
	t.Helper()
	top, err := os.MkdirTemp(filepath.Dir(filepath.Dir(s.root)), "copy")
	must(t, err)
	if out, err := exec.Command("cp", "-a", filepath.Dir(s.root)+"/.", top).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	vars := map[string]string{"HOME": filepath.Join(top, "home"), "TMPDIR": filepath.Join(top, "tmp"), "USER": "dana", "PWD": filepath.Join(top, "shop")}
	root := filepath.Join(top, "shop")
	return sandbox{root: root, env: Env{Dir: root, Root: root, Tree: os.DirFS("/"), Vars: vars}}
}

// real is where a path leads, as far as it exists.
func real(path string) string {
	for range 40 {
		dir := "/"
		parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
		linked := false
		for i, part := range parts {
			at := filepath.Join(dir, part)
			if target, err := os.Readlink(at); err == nil {
				if !filepath.IsAbs(target) {
					target = filepath.Join(dir, target)
				}
				path, linked = filepath.Join(target, filepath.Join(parts[i+1:]...)), true
				break
			}
			dir = at
		}
		if !linked {
			return dir
		}
	}
	return path
}

// missed are the files that a line changed and the result does not name; changed is how many it changed. The result has been
// resolved before.
func missed(before, after map[string]string, named []Write) (list []string, changed int) {
	paths := map[string]bool{}
	for path, text := range before {
		if now, ok := after[path]; !ok || now != text {
			paths[path] = true
		}
	}
	for path := range after {
		if _, ok := before[path]; !ok {
			paths[path] = true
		}
	}
	for path := range paths {
		if !slices.ContainsFunc(named, func(w Write) bool { return w.Path == path || w.Tree && strings.HasPrefix(path, w.Path+"/") }) {
			list = append(list, path)
		}
	}
	slices.Sort(list)
	return list, len(paths)
}

// resolved are writes with links followed where the command follows them.
func resolved(writes []Write) (list []Write) {
	for _, w := range writes {
		path := w.Path
		if w.Entry {
			w.Path = filepath.Join(real(filepath.Dir(path)), filepath.Base(path))
		} else {
			w.Path = real(path)
		}
		list = append(list, w)
	}
	return list
}

// try compares what bash does with what was said of a line, in a worktree that is then spoilt unless nothing changed.
func (s sandbox) try(t testing.TB, line string) (complaint string, changed int) {
	res := Read(line, s.env)
	writes := resolved(res.Writes)
	before := s.files(t)
	output := s.run(t, line)
	list, changed := missed(before, s.files(t), writes)
	if len(list) > 0 && !res.Opaque {
		return fmt.Sprintf("%s\nchanges %q, which is neither named in %v nor opaque; it said %q", line, list, res.Writes, output), changed
	}
	return "", changed
}

// needBash skips where there is no bash that the lines are written for.
func needBash(t testing.TB) {
	t.Helper()
	out, err := exec.Command("bash", "--norc", "--noprofile", "-c", "echo $BASH_VERSINFO").Output()
	if err != nil {
		t.Skip("there is no bash")
	}
	if major, err := strconv.Atoi(strings.TrimSpace(string(out))); err != nil || major < 5 {
		t.Skipf("bash is of version %s", out)
	}
	if out, err := exec.Command("sed", "--version").Output(); err != nil || !bytes.Contains(out, []byte("GNU")) {
		t.Skip("the commands of this system are not GNU's")
	}
}

// What bash does with the lines of the corpus has been named, or they are opaque.
func TestBashChangesNothingElse(t *testing.T) {
	t.Parallel()
	needBash(t)
	template := newSandbox(t, true)
	ran, absent, wrote := 0, 0, 0
	s := template.copy(t)
	for _, e := range corpus(t) {
		if e.Run != nil && !*e.Run {
			continue
		}
		if slices.ContainsFunc(e.Needs, func(name string) bool { _, err := exec.LookPath(name); return err != nil }) {
			absent++
			continue
		}
		complaint, changed := s.try(t, e.Cmd)
		if complaint != "" {
			t.Error(complaint)
		}
		if ran++; changed > 0 {
			wrote++
		}
		if changed > 0 || strings.Contains(e.Cmd, "git") || strings.Contains(e.Cmd, "mkdir") {
			must(t, os.RemoveAll(filepath.Dir(s.root)))
			s = template.copy(t)
		}
	}
	t.Logf("bash ran %d lines, %d of which changed files; %d need what is not on this machine", ran, wrote, absent)
	if wrote < 150 {
		t.Errorf("only %d lines changed anything", wrote)
	}
}

// KNOOT_SHELL is how many lines the generator makes for bash.
func TestBashChangesNothingElseInGeneratedLines(t *testing.T) {
	t.Parallel()
	needBash(t)
	count := 40
	if text := os.Getenv("KNOOT_SHELL"); text != "" {
		n, err := strconv.Atoi(text)
		must(t, err)
		count = n
	}
	template := newSandbox(t, true)
	opaque, wrote := 0, 0
	for i := 0; i < count; i++ {
		line := generated().Example(i)
		if Read(line, template.env).Opaque {
			opaque++
			count++ // it proves nothing
			continue
		}
		s := template.copy(t)
		complaint, changed := s.try(t, line)
		if complaint != "" {
			t.Error(complaint)
		}
		if changed > 0 {
			wrote++
		}
		must(t, os.RemoveAll(filepath.Dir(s.root)))
	}
	t.Logf("%d lines changed files; %d were opaque and not tried", wrote, opaque)
}

// generated makes command lines that stay in the worktree: no path in them goes up, and no variable stands before a slash.
func generated() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		g := generator{t}
		list := rapid.IntRange(1, 3).Draw(t, "statements")
		var out []string
		for range list {
			out = append(out, g.statement(3))
		}
		return strings.Join(out, "\n")
	})
}

type generator struct{ t *rapid.T }

func (g generator) pick(label string, of ...string) string {
	return rapid.SampledFrom(of).Draw(g.t, label)
}

func (g generator) name() string {
	return g.pick("name", "notes.txt", "VERSION", "src/app.ts", "'my file.txt'", "docs/guide.md", "new.txt", "out/new.txt", "fresh/x", "link.md",
		"latest/log.md", "docs", "out", "out/", "fresh", "fresh/", "latest", "src", "ways", "*.txt", "src/*.ts", "docs/*", "?*.md", "{a,b}.txt", "src/{app,new}.ts",
		"$F", "\"$F\"", "$F.bak", "\"${F%.txt}.md\"", "${F:-new.txt}", "\"$1\"", "\"$@\"", "./notes.txt", "docs/../notes.txt", "docs/old", "two\\ words", "-n", "$'a b'", "build")
}

func (g generator) simple() string {
	n := g.name
	switch g.pick("command", "touch", "rm", "rm -r", "mv", "mv many", "cp", "cp many", "cp -r", "ln", "ln -n", "link", "sed", "sed backup", "tee", "sort", "uniq", "dd", "truncate",
		"install", "mkdir", "chmod", "git mv", "git rm", "checkout --", "checkout", "restore", "redirect", "append", "both", "document", "cat", "cd", "assign",
		"array", "set", "awk", "find", "xargs", "pushd", "read", "env", "exit", "unset", "mkdir -p", "rmdir", "cp -T", "mv -t", "unlink", "test", "eval") {
	case "touch":
		return "touch " + n() + " " + n()
	case "rm":
		return "rm -f " + n()
	case "rm -r":
		return "rm -rf " + n()
	case "mv":
		return "mv " + n() + " " + n()
	case "mv many":
		return "mv " + n() + " " + n() + " " + n()
	case "mv -t":
		return "mv -t " + n() + " " + n()
	case "cp":
		return "cp " + n() + " " + n()
	case "cp many":
		return "cp " + n() + " " + n() + " " + n()
	case "cp -r":
		return "cp -r " + n() + " " + n()
	case "cp -T":
		return "cp -T " + n() + " " + n()
	case "ln":
		return "ln -sf " + n() + " " + n()
	case "ln -n":
		return "ln -sfn " + n() + " " + n()
	case "link":
		return "ln -f " + n() + " " + n()
	case "sed":
		return "sed -i 's/a/b/' " + n() + " " + n()
	case "sed backup":
		return "sed -i.old '1d' " + n()
	case "tee":
		return "echo x | tee " + n() + " " + n()
	case "sort":
		return "sort " + n() + " -o " + n()
	case "uniq":
		return "uniq " + n() + " " + n()
	case "dd":
		return "dd if=VERSION of=" + g.pick("of", "new.txt", "link.md", "docs/x", "$F", "~/x") + " status=none"
	case "truncate":
		return "truncate -s 0 " + n()
	case "install":
		return "install " + g.pick("install", "", "-D ", "-m 600 ") + n() + " " + n()
	case "mkdir":
		return "mkdir " + n()
	case "mkdir -p":
		return "mkdir -p fresh/deep && cp " + n() + " fresh"
	case "rmdir":
		return "rmdir " + n()
	case "chmod":
		return "chmod " + g.pick("mode", "-w", "+x", "600") + " " + n()
	case "git mv":
		return "git mv " + n() + " " + n()
	case "git rm":
		return "git rm -q " + g.pick("rm", "", "-r ", "-f ", "-rf ", "--cached ") + n()
	case "checkout --":
		return "git checkout " + g.pick("commit", "", "side ", "HEAD ") + "-- " + n()
	case "checkout":
		return "git checkout -q " + g.pick("commit", "", "side ") + n()
	case "restore":
		return "git restore " + g.pick("restore", "", "-s side ", "--staged ", "-SW ") + n()
	case "redirect":
		return "echo x > " + n()
	case "append":
		return "cat VERSION >> " + n()
	case "both":
		return "ls " + n() + " &> " + n()
	case "document":
		return "cat <<END > " + n() + "\nrm -rf src $F\nEND\n"
	case "cat":
		return "cat " + n()
	case "cd":
		return "cd " + g.pick("cd", "src", "docs", "latest", "out", "fresh", "sub/inner", "-", "\"$F\"", "ways") + " || exit" // cd is taken to succeed
	case "assign":
		return "F=" + g.pick("value", "notes.txt", "out/new.txt", "'two words'", "\"$1\"", "$F.x", "*.txt", "${F#n}", "$(cat VERSION)", "src")
	case "array":
		return "A=(" + n() + " " + n() + "); touch \"${A[@]}\" ${A[0]}"
	case "set":
		return "set -- " + n() + " " + n()
	case "awk":
		return "awk '{print" + g.pick("awk", "", " > \"made.txt\"", " | \"cat > made.txt\"", " ($1 > 2)") + "}' " + n()
	case "find":
		return "find docs " + g.pick("find", "-name '*.md'", "-delete", "-exec cat {} +", "-exec rm -f {} +", "-fprint found.txt")
	case "xargs":
		return "ls *.txt | xargs " + g.pick("xargs", "rm -f", "cat", "sed -i 1d", "wc -l", "sort -o sorted.txt", "-I{} cp {} out", "")
	case "pushd":
		return "pushd " + g.pick("pushd", "src", "docs", "latest") + " > /dev/null || exit; touch " + n() + "; popd > /dev/null"
	case "read":
		return "read -r F < " + n()
	case "env":
		return "env F=x " + g.simple()
	case "exit":
		return g.pick("jump", "exit", "return", "break", "continue", "true", "false")
	case "unset":
		return "unset F"
	case "unlink":
		return "unlink " + n()
	case "test":
		return "[ -f " + g.pick("test", "VERSION", "new.txt", "fresh") + " ]"
	default:
		return "eval \"touch " + g.pick("eval", "$F", "a b", "'a b'", "\\$F") + "\""
	}
}

func (g generator) statement(depth int) string {
	if depth == 0 {
		return g.simple()
	}
	in := func() string { return g.statement(depth - 1) }
	// A document ends with a newline, and what follows it has to begin on a line of its own.
	switch g.pick("statement", "simple", "simple", "simple", "and", "or", "list", "pipe", "subshell", "block", "if", "for", "while", "function", "case", "bash", "redirected",
		"substitution", "process", "local", "until", "background", "not") {
	case "and":
		return g.simple() + " &&\n" + in()
	case "or":
		return "{ " + in() + "\n} || {\n" + in() + "\n}"
	case "list":
		return in() + "\n" + in()
	case "pipe":
		return "{ " + in() + "\n} | {\n" + in() + "\n}"
	case "subshell":
		return "(" + in() + "\n)"
	case "block":
		return "{ " + in() + "\n}"
	case "if":
		return "if " + in() + "\nthen " + in() + "\nelse " + in() + "\nfi"
	case "for":
		return "for F in " + g.name() + " " + g.name() + "\ndo " + in() + "\ndone"
	case "while":
		return "while read -r F\ndo " + in() + "\ndone < notes.txt"
	case "until":
		return "until [ -n \"$ONCE\" ]\ndo ONCE=1\n" + in() + "\ndone"
	case "function":
		return "f() {\n" + in() + "\n}\nf " + g.name()
	case "local":
		return "f() {\nlocal F=" + g.pick("local", "x.txt", "\"$1\"") + "\n" + in() + "\n}\nf " + g.name()
	case "case":
		return "case \"$F\" in\nnotes*) " + in() + "\n;;\n*) " + in() + "\n;;\nesac"
	case "bash":
		return g.pick("shell", "bash", "sh") + " <<'SHELL'\n" + in() + "\nSHELL"
	case "redirected":
		return "{ " + in() + "\n} > " + g.name()
	case "substitution":
		return "echo \"$(" + in() + "\n)\""
	case "process":
		return "cat <(" + in() + "\n)"
	case "background":
		return "{ " + in() + "\n} &\nwait"
	case "not":
		return "! { " + in() + "\n}"
	}
	return g.simple()
}
