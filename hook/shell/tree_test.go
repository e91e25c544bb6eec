package shell

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// sandbox is a worktree for command lines to be run in, with a home and a folder for temporary files beside it.
type sandbox struct {
	root string
	env  Env
}

// newSandbox makes the worktree of a corner shop. With git it is a repository of two branches, main and side.
func newSandbox(t testing.TB, git bool) sandbox {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := sandbox{root: filepath.Join(top, "shop")}
	files := map[string]string{
		"README.md": "the shop\nand its price\n", "VERSION": "1\n", "notes.txt": "a,1\nb,2\na,3\n", "main.go": "package  main\n", "go.mod": "module shop\n",
		"my file.txt": "a\n", "src/app.ts": "let price = 1\n", "src/cart.ts": "let total = 2\n", "src/till.ts": "let till = 3\n", "lib/tax.pl": "tax\n",
		"docs/guide.md": "a guide\n", "docs/log.md": "a,1\n", "docs/old/old.txt": "old\n", "conf/shop.ini": "a:b:c\n", "conf/shop.json": "{\"name\":1}\n",
		"conf/more.json": "{}\n", "out/report.txt": "report\n", "build/.keep": "", "sub/inner/leaf.txt": "leaf\n", "script.sh": "#!/bin/sh\ntouch scripted\n",
		"rules.sed": "s/a/b/\n", "total.awk": "{n += $2} END {print n}\n",
	}
	for i := range 25 {
		files[fmt.Sprintf("many/f%02d.dat", i+1)] = "x\n"
	}
	for name, text := range files {
		mode := os.FileMode(0o644)
		if strings.HasSuffix(name, ".sh") {
			mode = 0o755
		}
		file := filepath.Join(s.root, name)
		must(t, os.MkdirAll(filepath.Dir(file), 0o755))
		must(t, os.WriteFile(file, []byte(text), mode))
	}
	must(t, os.Symlink("docs/guide.md", filepath.Join(s.root, "link.md")))
	must(t, os.Symlink("docs", filepath.Join(s.root, "latest")))
	for _, dir := range [...]string{"home", "tmp"} {
		must(t, os.MkdirAll(filepath.Join(top, dir), 0o755))
	}
	s.env = Env{Dir: s.root, Root: s.root, Tree: os.DirFS("/"),
		Vars: map[string]string{"HOME": filepath.Join(top, "home"), "TMPDIR": filepath.Join(top, "tmp"), "USER": "dana", "PWD": s.root}}
	if git {
		run := func(args ...string) {
			t.Helper()
			command := exec.Command("git", args...)
			command.Dir, command.Env = s.root, s.environ()
			if out, err := command.CombinedOutput(); err != nil {
				t.Fatalf("git %q: %v: %s", args, err, out)
			}
		}
		run("init", "-q", "-b", "main")
		run("add", "-A")
		run("commit", "-q", "-m", "shop")
		run("checkout", "-q", "-b", "side")
		must(t, os.WriteFile(filepath.Join(s.root, "VERSION"), []byte("2\n"), 0o644))
		run("commit", "-q", "-a", "-m", "version")
		run("checkout", "-q", "main")
	}
	return s
}

// environ is what a line is run with.
func (s sandbox) environ() []string {
	env := []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8", "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=dana", "GIT_AUTHOR_EMAIL=dana@shop.example",
		"GIT_COMMITTER_NAME=dana", "GIT_COMMITTER_EMAIL=dana@shop.example", "GIT_TERMINAL_PROMPT=0"}
	for _, name := range [...]string{"HOME", "TMPDIR", "USER", "PWD"} {
		env = append(env, name+"="+s.env.Vars[name])
	}
	return env
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
