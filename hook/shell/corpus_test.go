package shell

import (
	"bufio"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
)

// example is a line of testdata/corpus.jsonl.
type example struct {
	Cmd    string   `json:"cmd"`
	Reads  []string `json:"reads"`  // relative to the worktree
	Writes []string `json:"writes"` // the same
	Trees  []string `json:"trees"`  // those of Writes that cover all below
	Opaque bool     `json:"opaque"`
	Needs  []string `json:"needs"` // programs without which bash cannot run it
	Run    *bool    `json:"run"`   // false: it is not for bash to try
}

func corpus(t testing.TB) []example {
	t.Helper()
	file, err := os.Open("testdata/corpus.jsonl")
	must(t, err)
	defer file.Close()
	var list []example
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e example
		must(t, json.Unmarshal(lines.Bytes(), &e))
		list = append(list, e)
	}
	must(t, lines.Err())
	if len(list) < 300 {
		t.Fatalf("the corpus has %d lines", len(list))
	}
	return list
}

// inside are the paths of a result below the worktree, relative to it.
func inside(root string, res Result) (reads, writes, trees []string) {
	for _, path := range res.Reads {
		if rel, ok := strings.CutPrefix(path, root+"/"); ok {
			reads = append(reads, rel)
		}
	}
	for _, w := range res.Writes {
		if rel, ok := strings.CutPrefix(w.Path, root+"/"); ok && !strings.HasPrefix(rel, ".git/") {
			writes = append(writes, rel)
			if w.Tree {
				trees = append(trees, rel)
			}
		}
	}
	return reads, slices.Compact(writes), slices.Compact(trees)
}

func TestCorpus(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, false)
	for _, e := range corpus(t) {
		res := Read(e.Cmd, s.env)
		reads, writes, trees := inside(s.root, res)
		if !slices.Equal(reads, e.Reads) || !slices.Equal(writes, e.Writes) || !slices.Equal(trees, e.Trees) || res.Opaque != e.Opaque {
			t.Errorf("%s\n got reads %q, writes %q, trees %q, opaque %v\nwant reads %q, writes %q, trees %q, opaque %v",
				e.Cmd, reads, writes, trees, res.Opaque, e.Reads, e.Writes, e.Trees, e.Opaque)
		}
	}
}
