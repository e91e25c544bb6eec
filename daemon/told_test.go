package daemon

import (
	"encoding/json"
	"reflect"
	"testing"
)

func TestToldInJSON(t *testing.T) {
	told := Told{}
	told.Add(digestOf("b"), digestOf("a"), digestOf("a"))
	text, err := json.Marshal(told)
	if err != nil {
		t.Fatal(err)
	}
	var array []string
	if err := json.Unmarshal(text, &array); err != nil || len(array) != 2 || array[0] > array[1] {
		t.Errorf("%s: %v; want a sorted array of two", text, err)
	}
	var back Told
	if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(back, told) {
		t.Errorf("%s reads back as %v, %v", text, back, err)
	}
	for _, bad := range []string{`["00"]`, `["zz112233445566778899aabbccddeeff"]`, `{}`, `[1]`} {
		if err := json.Unmarshal([]byte(bad), &back); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}

func TestDigestsTellLinesApart(t *testing.T) {
	base := money
	seen := map[LineDigest]string{lineDigest(&base): "itself"}
	for what, change := range map[string]func(*BriefFact){
		"name":    func(f *BriefFact) { f.Name = "cash" },
		"text":    func(f *BriefFact) { f.Text += "." },
		"room":    func(f *BriefFact) { f.Room = "x" },
		"kind":    func(f *BriefFact) { f.Cache = true },
		"stale":   func(f *BriefFact) { f.Stale = true },
		"reason":  func(f *BriefFact) { f.Stale, f.Reason = true, "ash changed a 1 hour ago (commit 4be1c2d)" },
		"commit":  func(f *BriefFact) { f.Stale, f.Reason = true, "ash changed a 1 hour ago (commit 4be1c2e)" },
		"newer":   func(f *BriefFact) { f.Reason = "ash changed a 1 hour ago (commit 4be1c2d)" },
		"dispute": func(f *BriefFact) { f.Disagrees = []BriefAuthor{{"sam", false}} },
		"agent":   func(f *BriefFact) { f.Disagrees = []BriefAuthor{{"sam", true}} },
		"shift":   func(f *BriefFact) { f.Name, f.Text = f.Name+"a", f.Text[1:] },
	} {
		f := base
		change(&f)
		d := lineDigest(&f)
		if other, twice := seen[d]; twice {
			t.Errorf("%s and %s have one digest", what, other)
		}
		seen[d] = what
	}
	for what, change := range map[string]func(*BriefFact){
		"age":    func(f *BriefFact) { f.At = now },
		"author": func(f *BriefFact) { f.Author, f.Agent = "sam", true },
		"paths":  func(f *BriefFact) { f.Paths = append(f.Paths, "b") },
		"pin":    func(f *BriefFact) { f.Pinned = true },
		"id":     func(f *BriefFact) { f.ID = "x" },
	} {
		f := base
		change(&f)
		if lineDigest(&f) != lineDigest(&base) {
			t.Errorf("another %s makes another line", what)
		}
	}
}
