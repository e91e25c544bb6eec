package gitlog

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"
)

func TestLastChange(t *testing.T) {
	ctx := context.Background()
	d := newDesk(t)
	commitAt := func(when time.Time, message string) (id string) {
		t.Helper()
		d.git("add", "-A")
		cmd := exec.Command("git", "commit", "-q", "-m", message)
		cmd.Dir = d.dir
		date := when.Format(time.RFC3339)
		cmd.Env = append(os.Environ(), "GIT_COMMITTER_DATE="+date, "GIT_AUTHOR_DATE="+date, "GIT_AUTHOR_NAME=Ash")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return d.git("rev-parse", "HEAD")
	}
	want := func(what string, since time.Time, blob []byte, by, commit string) {
		t.Helper()
		last, err := d.tree.LastChange(ctx, d.clone, "src/billing.js", blob, MillisOf(since))
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case last == nil && by != "":
			t.Errorf("%s: nobody, want %s", what, by)
		case last != nil && (last.By != by || last.Commit != commit):
			t.Errorf("%s: %+v, want %s in %q", what, last, by, commit)
		}
	}
	blob := func() []byte { return d.blob("src/billing.js") }
	start := time.Now().Truncate(time.Second)
	d.write("src/billing.js", "one\n")
	first := commitAt(start.Add(time.Hour), "one")
	d.write("src/billing.js", "two\n")
	second := commitAt(start.Add(3*time.Hour), "two")
	want("after both", start.Add(4*time.Hour), blob(), "", "")
	want("between them", start.Add(2*time.Hour), blob(), "Ash", second)
	want("before both", start.Add(time.Minute), blob(), "Ash", second)

	// What HEAD went back to is a change as well, but nobody's since then.
	d.git("reset", "-q", "--hard", first)
	want("a reset", start.Add(4*time.Hour), blob(), "", "")
	d.git("reset", "-q", "--hard", second)

	d.write("src/billing.js", "here\n")
	want("not committed", start, blob(), "", "")
	d.now = start.Add(5 * time.Hour)
	e := d.clone.NewEntry(FileWritten)
	e.Event = &Event{Agent: "claude", Session: "s1", Paths: []EventPath{{Path: "src/billing.js", Blob: blob()}}}
	if err := d.clone.Record(e); err != nil {
		t.Fatal(err)
	}
	want("a session wrote it", start, blob(), "Priya", "")
	want("a session wrote it before", d.now, blob(), "", "")

	d.git("rm", "-q", "-f", "src/billing.js")
	removed := commitAt(start.Add(6*time.Hour), "remove it")
	want("removed", start.Add(4*time.Hour), nil, "Ash", removed)

	// Without a reflog the commits' own times count.
	d.git("reflog", "expire", "--expire=now", "--all")
	want("removed, without a reflog", start.Add(4*time.Hour), nil, "Ash", removed)
	want("removed before, without a reflog", start.Add(7*time.Hour), nil, "", "")
}
