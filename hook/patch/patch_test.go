package patch

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestRead(t *testing.T) {
	t.Parallel()
	whole := func(lines ...string) string { return strings.Join(lines, "\n") + "\n" }
	for name, c := range map[string]struct {
		text  string
		want  string
		whole bool
	}{
		"each kind": {whole("*** Begin Patch", "*** Add File: src/new till.go", "+package till", "+", "*** Update File: main.go", "@@ func main", " a", "-b", "+c",
			"*** Delete File: old.go", "*** Update File: a.txt", "*** Move to: b/a.txt", "@@", "-x", "+y", "*** End of File", "*** End Patch"),
			"[add src/new till.go | update main.go | delete old.go | move a.txt b/a.txt]", true},
		"content that looks like headers": {whole("*** Begin Patch", "*** Add File: a", "+*** Delete File: b", "+*** End Patch", "*** Update File: c", "@@", " *** Add File: d",
			"-*** Update File: e", "+*** Move to: f", "*** End Patch"), "[add a | update c]", true},
		"no newline at the end":  {"*** Begin Patch\n*** Delete File: a\n*** End Patch", "[delete a]", true},
		"carriage returns":       {"*** Begin Patch\r\n*** Update File: a b\r\n*** Move to: c\r\n@@\r\n-x\r\n+y\r\n*** End Patch\r\n", "[move a b c]", true},
		"white space":            {whole("", "  *** Begin Patch  ", "*** Add File: a  ", "+x", "  *** Delete File: b", "*** End Patch ", ""), "[add a | delete b]", true},
		"a here-document":        {whole("<<'EOF'", "*** Begin Patch", "*** Delete File: a", "*** End Patch", "EOF"), "[delete a]", true},
		"another":                {whole("<<EOF", "*** Begin Patch", "*** Delete File: a", "*** End Patch", "EOF"), "[delete a]", true},
		"an environment":         {whole("*** Begin Patch", "*** Environment ID: main", "*** Delete File: a", "*** End Patch"), "[delete a]", true},
		"absolute and upwards":   {whole("*** Begin Patch", "*** Delete File: /etc/x", "*** Delete File: ../y", "*** End Patch"), "[delete /etc/x | delete ../y]", true},
		"a file moved untouched": {whole("*** Begin Patch", "*** Update File: a", "*** Move to: b", "*** End Patch"), "[move a b]", true},
		"blank lines":            {whole("*** Begin Patch", "*** Update File: a", "@@", "", "+x", "", "*** Update File: b", "@@", "+y", "*** End Patch"), "[update a | update b]", true},
		"nothing":                {whole("*** Begin Patch", "*** End Patch"), "[]", true},
		"an end with a space":    {whole("*** Begin Patch", "*** Update File: a", "@@", "+x", " *** End Patch", ""), "[update a]", true},
		"two ends":               {whole("*** Begin Patch", "*** Delete File: a", "*** End Patch", "*** End Patch"), "[delete a]", true},
		"content like an end":    {whole("*** Begin Patch", "*** Update File: a", "@@", " *** End Patch", "+x", "*** Delete File: b", "*** End Patch"), "[update a | delete b]", true},
		"no end":                 {whole("*** Begin Patch", "*** Add File: a", "+x"), "[add a]", false},
		"no beginning":           {whole("*** Add File: a", "+x", "*** End Patch"), "[]", false},
		"a broken add":           {whole("*** Begin Patch", "*** Add File: a", "x", "*** Delete File: b", "*** End Patch"), "[add a | delete b]", false},
		"a broken update":        {whole("*** Begin Patch", "*** Update File: a", "?", "*** Delete File: b", "*** End Patch"), "[update a | delete b]", false},
		"no path":                {whole("*** Begin Patch", "*** Add File: ", "+x", "*** End Patch"), "[]", false},
		"a move of nothing":      {whole("*** Begin Patch", "*** Move to: b", "*** End Patch"), "[]", false},
		"something after it":     {whole("*** Begin Patch", "*** Delete File: a", "*** End Patch", "*** Delete File: b"), "[delete a]", false},
		"words around it":        {whole("Here it is:", "*** Begin Patch", "*** Delete File: a", "*** End Patch"), "[delete a]", false},
		"no patch":               {"", "[]", false},
		"a unified diff":         {whole("--- a/x", "+++ b/x", "@@ -1 +1 @@"), "[]", false},
	} {
		operations, ok := Read(c.text)
		var got []string
		for _, o := range operations {
			got = append(got, strings.TrimSpace(fmt.Sprint(o.Kind, " ", o.Path, " ", o.To)))
		}
		if text := "[" + strings.Join(got, " | ") + "]"; text != c.want || ok != c.whole {
			t.Errorf("%s: %s, whole %v; want %s, %v", name, text, ok, c.want, c.whole)
		}
	}
}

func TestAPatchOfMoreFilesThanAnyNamesTheFirst(t *testing.T) {
	t.Parallel()
	operations, whole := Read(begin + "\n" + strings.Repeat("*** Delete File: a\n", maxOperations+1) + end + "\n")
	if len(operations) != maxOperations || whole {
		t.Errorf("%d operations, whole %v", len(operations), whole)
	}
	if operations, whole = Read(begin + "\n" + add + strings.Repeat("x", maxLine) + "\n+y\n" + end); len(operations) != 1 || len(operations[0].Path) != maxLine-len(add) || !whole {
		t.Errorf("a path that no file has: %d operations, whole %v", len(operations), whole)
	}
}

func TestPathsOfAMoveAreBoth(t *testing.T) {
	t.Parallel()
	if got := (Operation{Kind: Move, Path: "a", To: "b"}).Paths(); !slices.Equal(got, []string{"a", "b"}) {
		t.Error(got)
	}
	if got := (Operation{Kind: Delete, Path: "a"}).Paths(); !slices.Equal(got, []string{"a"}) {
		t.Error(got)
	}
}

// What a patch writes into files is never taken for a path, and how it comes in pieces matters not.
func FuzzRead(f *testing.F) {
	f.Add("docs/a.md", "x\n*** Delete File: b\n*** End Patch", true)
	f.Add("a b", "", false)
	f.Fuzz(func(t *testing.T, path, content string, crlf bool) {
		most := 50 * time.Millisecond * time.Duration(1+len(content)/1024)
		took := most + 1
		for tries := 0; took > most && tries < 20; tries++ { // a machine that does much else at once stops now and then
			began := time.Now()
			_, _ = Read(content) // whatever it is
			took = time.Since(began)
		}
		if took > most {
			t.Errorf("%d bytes take %v each time", len(content), took)
		}
		for _, text := range []string{content, begin + "\n" + update + path + "\n" + content} { // whatever it is
			got, ok := Read(text)
			var s Scanner
			for i := range len(text) {
				_, _ = s.Write([]byte(text[i : i+1]))
			}
			if piecewise, whole := s.End(); whole != ok || !slices.Equal(piecewise, got) {
				t.Errorf("%q: %v, whole %v; a byte at a time %v, whole %v", text, got, ok, piecewise, whole)
			}
		}
		if path != strings.TrimSpace(path) || path == "" || strings.ContainsAny(path, "\r\n\x00") {
			return
		}
		end := "\n"
		if crlf {
			end = "\r\n"
		}
		var lines []string
		for line := range strings.SplitSeq(content, "\n") {
			lines = append(lines, "+"+line)
		}
		body := strings.Join(lines, end) + end
		text := begin + end + add + path + end + body + update + path + end + "@@" + end + body + endOfFile + end + remove + path + end + "*** End Patch" + end
		operations, whole := Read(text)
		path = strings.ToValidUTF8(path, "\uFFFD")
		want := []Operation{{Kind: Add, Path: path}, {Kind: Update, Path: path}, {Kind: Delete, Path: path}}
		if !whole || !slices.Equal(operations, want) {
			t.Errorf("%q: %v, whole %v", text, operations, whole)
		}
	})
}
