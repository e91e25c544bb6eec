package main

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

var noon = time.Date(2026, 3, 31, 12, 0, 0, 0, time.UTC)

func paths(all []save) (out []string) {
	for _, each := range all {
		out = append(out, each.path)
	}
	return out
}

func TestSavesAreToldOnceTheyHaveSettled(t *testing.T) {
	var s saves
	s.add("b", noon)
	s.add("a", noon.Add(100*time.Millisecond))
	s.add("b", noon.Add(1900*time.Millisecond)) // an editor that saves by itself holds nothing up
	if at, waits := s.dueAt(); !waits || !at.Equal(noon.Add(2*time.Second)) {
		t.Errorf("due at %v, %v", at, waits)
	}
	if due := s.due(noon.Add(1999 * time.Millisecond)); len(due) != 0 {
		t.Errorf("told too early: %v", due)
	}
	if due := s.due(noon.Add(2 * time.Second)); !slices.Equal(paths(due), []string{"b"}) || !due[0].at.Equal(noon) {
		t.Errorf("after 2 s: %v", due)
	}
	if due := s.due(noon.Add(3 * time.Second)); !slices.Equal(paths(due), []string{"a"}) {
		t.Errorf("after 3 s: %v", due)
	}
	if _, waits := s.dueAt(); waits {
		t.Error("something waits when all is told")
	}
}

func TestToolsAreTold(t *testing.T) {
	var s saves
	s.add("before", noon)
	start := noon.Add(1500 * time.Millisecond)
	began := 0
	for i := range 60 {
		if s.add(fmt.Sprint("made-", i), start.Add(time.Duration(i)*40*time.Millisecond)) { // 25 a second
			began++
		}
	}
	if began != 1 {
		t.Errorf("the work of one tool began %d times", began)
	}
	end := start.Add(60 * 40 * time.Millisecond)
	if due := s.due(end.Add(time.Minute)); !slices.Equal(paths(due), []string{"before"}) {
		t.Errorf("told are %v", paths(due))
	}
	s.add("after", end.Add(time.Minute))
	if due := s.due(end.Add(2 * time.Minute)); !slices.Equal(paths(due), []string{"after"}) {
		t.Errorf("after the tool: %v", paths(due))
	}
}

func TestTwentyFilesAtOnceAreAPersons(t *testing.T) {
	var s saves
	for range 3 {
		for i := range savesAtOnce {
			if s.add(fmt.Sprint(i), noon) {
				t.Fatalf("file %d of a person's was taken for a tool's", i)
			}
		}
	}
	if due := s.due(noon.Add(time.Minute)); len(due) != savesAtOnce {
		t.Errorf("%d are told", len(due))
	}
}

func TestWhatEditorsMakeBesideAFile(t *testing.T) {
	for path, scratch := range map[string]bool{
		"src/.billing.js.swp": true, "src/billing.js~": true, "4913": true, "src/.#billing.js": true, "#billing.js#": true,
		"a/.goutputstream-X1": true, "billing.js___jb_tmp___": true,
		"src/billing.js": false, "#": false, "4914": false, ".env": false, "a~/b": false,
	} {
		if isScratch(path) != scratch {
			t.Errorf("%s: %v, want %v", path, !scratch, scratch)
		}
	}
}
