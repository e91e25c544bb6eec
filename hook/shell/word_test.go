package shell

import (
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"mvdan.cc/sh/v3/syntax"
	"pgregory.net/rapid"
)

// Words that are known are what bash makes of them. KNOOT_SHELL is how many are tried.
func TestBashExpandsWordsAlike(t *testing.T) {
	t.Parallel()
	needBash(t)
	count := 600
	if text := os.Getenv("KNOOT_SHELL"); text != "" {
		n, err := strconv.Atoi(text)
		must(t, err)
		count = n
	}
	s := newSandbox(t, false)
	const before = "F=notes.txt; G='two words'; E=; H='src/*.ts'; A=(x 'y z' '*'); set -- one 'two three' ''; "
	known := 0
	for from := 0; from < count; from += 100 {
		var lines []string
		for i := from; i < from+100; i++ {
			lines = append(lines, generatedWord().Example(i))
		}
		// Each word in a subshell of its own, since ${F:=x} assigns. What bash refuses prints nothing.
		script := before
		for _, line := range lines {
			script += "(eval 'printf \"%s\\0\" begin " + strings.ReplaceAll(line, "'", `'\''`) + "') 2>/dev/null; printf 'end\\0'; "
		}
		command := exec.Command("bash", "--norc", "--noprofile", "-c", script)
		command.Dir, command.Env = s.root, s.environ()
		out, err := command.Output()
		must(t, err)
		rest := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
		for _, line := range lines {
			end := slices.Index(rest, "end")
			if end < 0 {
				t.Fatalf("bash says less than was asked: %q", rest)
			}
			want := rest[:end]
			rest = rest[end+1:]
			if len(want) == 0 {
				continue // an error
			}
			got, ok := s.expand(t, before, line)
			if !ok {
				continue
			}
			known++
			if !slices.Equal(got, want[1:]) {
				t.Errorf("%s\n is %q, bash says %q", line, got, want[1:])
			}
		}
	}
	t.Logf("%d of %d words were known", known, count)
	if known < count/3 {
		t.Error("those are too few")
	}
}

// expand are the words that a word makes; false where they are not known.
func (s sandbox) expand(t testing.TB, before, text string) (list []string, ok bool) {
	parse := func(text string) []*syntax.Stmt {
		file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), "")
		if err != nil {
			return nil
		}
		return file.Stmts
	}
	r := newReading(s.env)
	sc := &scope{dir: s.root, vars: map[string]value{}, funcs: map[string]*syntax.Stmt{}, knowsArgs: true}
	for name, v := range s.env.Vars {
		sc.vars[name] = known(v)
	}
	r.stmts(parse(before), sc)
	stmts := parse("printf " + text)
	if len(stmts) != 1 {
		return nil, false
	}
	call, isCall := stmts[0].Cmd.(*syntax.CallExpr)
	if !isCall || len(stmts[0].Redirs) > 0 {
		return nil, false
	}
	words, ok := r.fields(call.Args[1:], sc, maxWords)
	list = []string{}
	for _, w := range words {
		if ok = ok && w.known; !ok {
			return nil, false
		}
		list = append(list, w.text)
	}
	return list, ok
}

// generatedWord makes words of pieces that mean something to bash.
func generatedWord() *rapid.Generator[string] {
	pieces := []string{"a", "notes", ".txt", "src/", "*", "?", "[ns]", "[!a]", "[a-n]*", "{a,b}", "{1..3}", "{x,}", "{", "}", ",", "..", "{03..1}", "{a..c}", "{1..5..2}", "\\*", "\\ ", "\\{",
		"\\\\", "'*'", "' b'", "\" c\"", "\"\"", "''", "\"*\"", "$F", "\"$F\"", "$G", "\"$G\"", "$E", "\"$E\"", "$H", "\"$H\"", "${F%.txt}", "${F%%.*}", "${F#no}", "${F##*.}", "\"${F%.*}\"", "${G% *}", "${F/notes/x}",
		"${F//t/T}", "${E:-d e}", "\"${E:-d e}\"", "${E:-none}", "${F:+yes}", "${E:+yes}", "${U-x}", "${E:=set}", "${A[0]}", "${A[1]}", "\"${A[@]}\"", "${A[@]}", "\"${A[*]}\"", "$1", "\"$2\"", "\"$@\"", "$@", "\"$*\"",
		"~", "~/x", "of=~/y", "=~", "$'\\t'", "$'a\\'b'", "$'\\x41'", "docs/*.md", "*/*.md", "\"a b\"/*", "latest/", "\\\n", "-", "!", "^", "]", "[", "é", "[é]", "$HOME", "${#F}", "$((1+1))", "\\n", "\"\\n\\$\\\\\"", "my*", "l*k.md", "[[:alpha:]]", "//", "./", "@(a|b)"}
	return rapid.Custom(func(t *rapid.T) string {
		word := ""
		for range rapid.IntRange(1, 4).Draw(t, "pieces") {
			word += rapid.SampledFrom(pieces).Draw(t, "piece")
		}
		return word
	})
}
