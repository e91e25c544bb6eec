package shell

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"testing/fstest"
	"time"
	"unicode/utf8"
)

// empty is a worktree in which nothing is.
var empty = Env{Dir: "/repo", Root: "/repo", Vars: map[string]string{"HOME": "/home/dana", "USER": "dana"}}

func TestFilesNeedNotExist(t *testing.T) {
	t.Parallel()
	res := Read("cd web && cp a.css style/ && sed -i s/a/b/ b.css && rm -rf dist && cat *.css > all", empty)
	reads, writes, trees := inside("/repo", res)
	if res.Opaque || fmt.Sprint(reads, writes, trees) != "[web/*.css web/a.css web/b.css] [web/all web/b.css web/dist web/style/a.css] [web/dist]" {
		t.Errorf("%q %q %q %v", reads, writes, trees, res.Opaque)
	}
}

// What removes the whole worktree is not to be named: the path is the worktree's own.
func TestTheWorktreeAsAWhole(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"rm -rf /repo", "rm -rf /", "cd .. && rm -rf repo", "rm -r ..", "mv /repo /elsewhere"} {
		env := empty
		env.Tree = fstest.MapFS{"repo/a": {}}
		if res := Read(line, env); !res.Opaque {
			t.Errorf("%s is not opaque: %v", line, res.Writes)
		}
	}
}

func TestVariablesThatAreKnown(t *testing.T) {
	t.Parallel()
	env := Env{Dir: "/repo/sub", Vars: map[string]string{"HOME": "/repo/home", "PWD": "/repo/sub", "OLDPWD": "/repo/old", "TMPDIR": "/repo/tmp", "USER": "dana"}}
	for line, want := range map[string]string{
		"touch $HOME/a ~/b":             "[/repo/home/a /repo/home/b]",
		"touch $PWD/a":                  "[/repo/sub/a]",
		"cd - && touch a $OLDPWD/b":     "[/repo/old/a /repo/sub/b]",
		"touch $TMPDIR/a":               "[/repo/tmp/a]",
		"touch $USER":                   "[/repo/sub/dana]",
		"cd ../x; touch a; cd; touch a": "[/repo/home/a /repo/x/a]",
		"HOME=/h; touch ~/a":            "[/h/a]",
		"bash -c 'touch $PWD/a'":        "[/repo/sub/a]",
	} {
		res := Read(line, env)
		var paths []string
		for _, w := range res.Writes {
			paths = append(paths, w.Path)
		}
		if res.Opaque || fmt.Sprint(paths) != want {
			t.Errorf("%s: %v, opaque %v; want %s", line, paths, res.Opaque, want)
		}
	}
	for _, line := range []string{"touch $SHELL", "touch $TMP/a", "touch ~dana/a", "touch $?", "touch $RANDOM", "touch $$"} {
		if res := Read(line, env); !res.Opaque || len(res.Writes) != 0 {
			t.Errorf("%s: %v, opaque %v", line, res.Writes, res.Opaque)
		}
	}
}

// A link that is replaced stays apart from what it points to.
func TestEntries(t *testing.T) {
	t.Parallel()
	env := empty
	env.Tree = os.DirFS(t.TempDir())
	for line, entry := range map[string]bool{
		"rm a": true, "mv a b": true, "sed -i 1d a": true, "git rm a": true, "ln -sf x a": true, "install x a": true, "git checkout -- a": true,
		"echo > a": false, "cp x a": false, "tee a": false, "touch a": false, "truncate -s0 a": false, "dd of=a": false, "chmod +x a": false,
		"sed -i --follow-symlinks 1d a": false, "cp --remove-destination x a": true, "rm a; echo > a": false,
	} {
		for _, w := range Read(line, env).Writes {
			if w.Path == "/repo/a" && w.Entry != entry {
				t.Errorf("%s: entry %v", line, w.Entry)
			}
		}
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	many := fstest.MapFS{}
	for i := range 21 {
		many[fmt.Sprintf("repo/many/%02d", i)] = &fstest.MapFile{}
	}
	for i := range 20 {
		many[fmt.Sprintf("repo/few/%02d", i)] = &fstest.MapFile{}
	}
	env := empty
	env.Tree = many
	nested := func(open, inner, shut string, n int) string {
		return strings.Repeat(open, n) + inner + strings.Repeat(shut, n)
	}
	for name, c := range map[string]struct {
		line   string
		writes int
		opaque bool
	}{
		"a glob of 20":           {"rm few/*", 20, false},
		"a glob of 21":           {"rm many/*", 0, true},
		"a glob of 21, read":     {"cat many/*; touch a", 1, true},
		"1000 words":             {"touch {1..1000}", 1000, false},
		"1001 words":             {"touch {1..1001}", 0, true},
		"1001 by two lists":      {"touch {1..91}{a,b,c,d,e,f,g,h,i,j,k}", 0, true},
		"a loop over 1000":       {"for i in {1..1000}; do touch f$i; done", 1000, false},
		"a loop over 1001":       {"for i in {1..1001}; do touch f$i; done", 0, true},
		"10^20 words":            {"touch {1..100000}{1..100000}{1..100000}{1..100000}", 0, true},
		"a step of nothing":      {"touch {1..3..0}", 3, false},
		"the longest sequence":   {"touch {-9223372036854775808..9223372036854775807}", 0, true},
		"its end":                {"touch {9223372036854775806..9223372036854775807}", 2, false},
		"one huge step":          {"touch {1..9..9223372036854775807}", 1, false},
		"another":                {"touch {9..1..-9223372036854775808}", 1, false},
		"too many of a list":     {"touch " + strings.Repeat("a ", 1100) + "; touch b", 1, true},
		"a loop over too many":   {"for i in {1..5000}; do touch $i; done; touch b", 1, true},
		"loops in loops":         {"for a in {1..900}; do for b in {1..900}; do touch $a; done; done", 0, true},
		"few levels":             {nested("( ", "touch a", " )", 150), 1, false},
		"many levels":            {nested("( ", "touch a", " )", 250), 0, true},
		"very many":              {nested("( ", "touch a", " )", 40_000), 0, true},
		"blocks":                 {nested("{ ", "touch a;", " }", 40_000), 0, true},
		"substitutions":          {nested("$(", "touch a", ")", 40_000), 0, true},
		"in quotes":              {nested("\"$(", "touch a", ")\"", 40_000), 0, true},
		"defaults":               {"echo " + nested("${a:-", "x", "}", 40_000), 0, true},
		"arithmetic":             {"echo $((" + nested("(", "1", ")", 40_000) + "))", 0, true},
		"tests":                  {"[[ " + nested("( ", "a", " )", 40_000) + " ]]", 0, true},
		"conditions":             {strings.Repeat("if ", 40_000), 0, true},
		"and":                    {strings.Repeat("true && ", 25_000) + "touch a", 1, true},
		"pipes":                  {strings.Repeat("cat | ", 25_000) + "tee a", 1, true},
		"not":                    {strings.Repeat("! ", 25_000) + "touch a", 0, true},
		"functions":              {nested("f() { ", "touch a;", " }", 25_000), 0, true},
		"recursion":              {"f() { f; f; }; f; touch a", 0, true},
		"code in code":           {"c='touch a'; " + strings.Repeat("c=\"eval '$c'\"; ", 3) + "touch b", 1, false},
		"an endless assignment":  {"a=xxxxxxxxxx; " + strings.Repeat("a=$a$a$a$a; ", 12) + "touch a", 1, false},
		"braces in braces":       {"touch a; touch " + strings.Repeat("{a,", 60_000), 1, true},
		"a long chain in a loop": {"while :; do " + strings.Repeat("a|", 25_000) + "a; done", 0, true},
		"too long":               {"touch a; #" + strings.Repeat("x", maxLine), 0, true},
		"a long path":            {"touch " + strings.Repeat("a/", 200_000) + "b", 0, true},
	} {
		began := time.Now()
		res := Read(c.line, env)
		if len(res.Writes) != c.writes && name != "loops in loops" || res.Opaque != c.opaque {
			t.Errorf("%s: %d writes, opaque %v; want %d, %v", name, len(res.Writes), res.Opaque, c.writes, c.opaque)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%s took %v", name, took)
		} else {
			t.Logf("%s: %v", name, took)
		}
	}
}

// A name is written here in many ways, and it is always the same file.
func TestQuoting(t *testing.T) {
	t.Parallel()
	for _, spelled := range []string{`a\ b`, `"a b"`, `'a b'`, `a" "b`, `$'a b'`, `$'a\x20b'`, `$'\141 b'`, `"a"\ 'b'`, `a' b'`, "\"a\\\n b\"", "a\\ \\\nb", `"$(:)"'a b'`} {
		res := Read("touch "+spelled, empty)
		if spelled == `"$(:)"'a b'` {
			if !res.Opaque {
				t.Errorf("%s is known", spelled)
			}
			continue
		}
		if res.Opaque || len(res.Writes) != 1 || res.Writes[0].Path != "/repo/a b" {
			t.Errorf("%s: %v, opaque %v", spelled, res.Writes, res.Opaque)
		}
	}
}

func TestMatch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"*", "", true}, {"*", "abc", true}, {"a*", "a", true}, {"*a", "b", false}, {"*a*a", "aba", true}, {"*a*a", "ab", false}, {"?", "é", true},
		{"[a-c]x", "bx", true}, {"[!a-c]x", "bx", false}, {"[]a]", "]", true}, {"[a", "[a", true}, {`\*`, "*", true}, {`\*`, "a", false}, {"a?c", "abc", true},
		{"[a-]", "-", true}, {"*.t?", "x.ts", true}, {strings.Repeat("*a", 200), strings.Repeat("a", 4000) + "b", false}, {`[\]]`, "]", true}, {"", "", true}, {"", "a", false},
	} {
		if got, fine := match(c.pattern, c.name); got != c.want || !fine {
			t.Errorf("%q on %q: %v, %v", c.pattern, c.name, got, fine)
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, e := range corpus(f) {
		f.Add(e.Cmd)
	}
	dir := f.TempDir()
	must(f, os.MkdirAll(filepath.Join(dir, "src"), 0o755))
	must(f, os.WriteFile(filepath.Join(dir, "src", "a.go"), nil, 0o644))
	env := Env{Dir: dir, Root: dir, Vars: map[string]string{"HOME": dir, "PWD": dir, "USER": "dana"}, Tree: os.DirFS("/")}
	f.Fuzz(func(t *testing.T, line string) {
		// The fuzzer itself would wait for ever.
		defer time.AfterFunc(time.Minute, func() { panic("no end: " + line) }).Stop()
		res := Read(line, env)
		most := 50 * time.Millisecond * time.Duration(1+len(line)/1024)
		took := most + 1
		for tries := 0; took > most && tries < 20; tries++ { // a machine that does much else at once stops now and then
			began := time.Now()
			Read(line, env)
			took = time.Since(began)
		}
		if took > most {
			t.Errorf("%d bytes take %v each time", len(line), took)
		}
		for i, path := range res.Reads {
			if !strings.HasPrefix(path, "/") || filepath.Clean(path) != path || i > 0 && res.Reads[i-1] >= path {
				t.Errorf("reads %q", res.Reads)
			}
		}
		for i, w := range res.Writes {
			if !strings.HasPrefix(w.Path, "/") || filepath.Clean(w.Path) != w.Path || i > 0 && res.Writes[i-1].Path > w.Path {
				t.Errorf("writes %v", res.Writes)
			}
		}
		if again := Read(line, env); fmt.Sprint(again) != fmt.Sprint(res) {
			t.Errorf("%v, then %v", res, again)
		}
		if strings.IndexByte(line, 0) < 0 && utf8.ValidString(line) && !res.Opaque && len(res.Writes) > 0 {
			if quoted := Read("bash -c '"+strings.ReplaceAll(line, "'", `'\''`)+"'", env); len(quoted.Writes) == 0 && !quoted.Opaque {
				t.Errorf("%q writes %v, and nothing within bash -c", line, res.Writes)
			}
		}
	})
}

// BenchmarkRead reads ten kilobytes. Budget: 1 ms. What an agent writes is mostly the text of files, and takes a tenth of that; three
// hundred commands, each in a subshell, are the worst, and a little above it: a third of their time is the parser's. A hook ends long before
// its memory is collected the first time, so that here it is seldom.
func BenchmarkRead(b *testing.B) {
	defer debug.SetGCPercent(debug.SetGCPercent(2000))
	s := newSandbox(b, false)
	var commands strings.Builder
	for _, e := range corpus(b) {
		if !e.Opaque && commands.Len()+len(e.Cmd) < 10<<10 && !strings.Contains(e.Cmd, "exit") {
			commands.WriteString("( " + e.Cmd + "\n)\n")
		}
	}
	text := strings.Repeat("const price = total > 3 ? `${total}` : \"none\" // rm -rf src\n", 9<<10/62)
	for _, c := range []struct {
		name, line string
		writes     int
	}{
		{"files", "mkdir -p src/new && cat > src/new/a.ts <<'EOF'\n" + text + "EOF\nsed -i 's/a/b/' src/app.ts src/cart.ts\nfor f in src/*.ts; do cp \"$f\" out; done\n" +
			"git diff --stat && cat src/app.ts | head -20 > notes.txt\n", 7},
		{"commands", commands.String(), 100},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.line)))
			for b.Loop() {
				if res := Read(c.line, s.env); len(res.Writes) < c.writes || c.name == "files" && res.Opaque {
					b.Fatal(res)
				}
			}
		})
	}
}

// Formatters, generators and globs over many files name nothing, and so nothing is claimed for them. All below a directory is named
// where it is removed or moved, and in no other case.
func TestWhatNamesNothingAndWhatNamesAllBelow(t *testing.T) {
	t.Parallel()
	many := fstest.MapFS{"repo/src/a.go": {}, "repo/docs/b.md": {}}
	for i := range maxMatches + 1 {
		many[fmt.Sprintf("repo/many/%02d.ts", i)] = &fstest.MapFile{}
	}
	env := empty
	env.Tree = many
	for _, line := range []string{"prettier --write .", "prettier --write src", "prettier -w 'src/**/*.ts'", "gofmt -w .", "gofmt -w ./src", "goimports -w src docs", "black .", "black src",
		"isort .", "ruff format", "ruff check --fix src", "clang-format -i many/*.ts", "eslint --fix .", "stylelint --fix 'src/**/*.css'", "terraform fmt", "buf format -w", "dart format .",
		"cargo fmt", "go fmt ./...", "npx prettier --write .", "go generate ./...", "make generate", "protoc --go_out=. a.proto", "npm run build", "sqlc generate", "buf generate",
		"rm many/*", "sed -i s/a/b/ many/*.ts", "touch many/*", "for f in many/*; do echo > $f; done", "cp -r src elsewhere", "rsync -a src/ docs/", "tar xf a.tar", "unzip a.zip",
		"chmod -R +x src", "chown -R me src", "find src -delete", "patch -p1 < a.diff", "git checkout -- src", "git clean -fd", "python gen.py", "cd src && ./gen.sh"} {
		if res := Read(line, env); len(res.Writes) != 0 || !res.Opaque {
			t.Errorf("%s writes %v, opaque %v", line, res.Writes, res.Opaque)
		}
	}
	for line, trees := range map[string]string{
		"rm -rf src": "[src]", "rm -r src/ docs": "[docs src]", "mv src code": "[code src]", "mv src docs many": "[docs many/docs many/src src]", "git rm -rq src": "[src]",
		"git mv src code": "[code src]", "rm -f src/a.go": "[]", "rm -rf src/a.go": "[]", "mkdir -p new/deep": "[]", "rmdir src": "[]", "mv src/a.go docs": "[]", "touch src": "[]", "cp src/a.go docs": "[]",
		"ln -s src link": "[]",
	} {
		if _, _, got := inside("/repo", Read(line, env)); fmt.Sprint(got) != trees {
			t.Errorf("%s: all below %v, want %s", line, got, trees)
		}
	}
}
