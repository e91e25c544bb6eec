// Package integration runs the two executables against real git, a real agent and real faults. Its tests say what a user may
// rely on; those of the packages say how it comes about.
package integration

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"knoot.dev/knoot/integration/stage"
)

func TestMain(m *testing.M) { os.Exit(stage.Run(m)) }

const (
	factName = "money"
	factPath = "src/billing.js"
	factText = "all money is integer cents, never floats"
)

// shop is a host repository and two people's clones of it in which knoot is set up. Both use one device's keys, and so
// its daemon.
type shop struct {
	host       string
	priya, sam *stage.Person
	hers, his  string // their clones
}

func newShop(t testing.TB) *shop {
	t.Helper()
	s := &shop{host: stage.Host(t)}
	s.priya = stage.NewPerson(t, "priya")
	s.sam = s.priya.SharingKeys("sam")
	s.hers = s.priya.Clone(s.host, "hers")
	s.priya.Commit(s.hers, factPath, "export const total = lines => lines.reduce((a, b) => a + b, 0)\n", "Add billing")
	s.priya.Knoot(s.hers, "init")
	s.priya.Git(s.hers, "add", "--all")
	s.priya.Git(s.hers, "commit", "--quiet", "--message", "Set up knoot")
	s.priya.Git(s.hers, "push", "--quiet", "origin", "main")
	s.his = s.sam.Clone(s.host, "his")
	s.sam.Knoot(s.his, "init")
	return s
}

func (s *shop) remember(t testing.TB) {
	t.Helper()
	s.priya.Knoot(s.hers, "remember", "--name", factName, "--path", factPath, factText)
}

// recalled is a row of recall --json, whose keys scripts rely on.
type recalled struct {
	ID           string   `json:"id"`
	Name         string   `json:"name"`
	Kind         string   `json:"kind"`
	Text         string   `json:"text"`
	Paths        []string `json:"paths"`
	Author       string   `json:"author"`
	At           string   `json:"at"`
	Stale        bool     `json:"stale"`
	StaleReason  string   `json:"stale_reason"`
	SupersededBy *string  `json:"superseded_by"`
}

func recall(t *testing.T, p *stage.Person, dir string, args ...string) []recalled {
	t.Helper()
	var rows []recalled
	output := p.Knoot(dir, append([]string{"recall", "--json"}, args...)...)
	if err := json.Unmarshal([]byte(output), &rows); err != nil || rows == nil {
		t.Fatalf("recall --json printed no array: %v\n%s", err, output)
	}
	return rows
}

func once(t *testing.T, where, context, text string) {
	t.Helper()
	if n := strings.Count(context, text); n != 1 {
		t.Errorf("%s: expected %q once, it is there %d times:\n%s", where, text, n, context)
	}
}

func never(t *testing.T, where, context, text string) {
	t.Helper()
	if strings.Contains(context, text) {
		t.Errorf("%s: %q should not be there:\n%s", where, text, context)
	}
}

func TestAFactReachesTheNextAgentThroughGit(t *testing.T) {
	s := newShop(t)
	s.priya.StartDaemon()
	s.remember(t)
	s.priya.Knoot(s.hers, "sync")
	s.sam.Knoot(s.his, "sync")

	reads := stage.Session{Person: s.sam, ID: "reads", Dir: s.his}
	told := reads.Start()
	never(t, "a start that touched no file", told, factText)
	told = reads.Hears(factPath, factText)
	once(t, "the call that reads the file", told, factText)
	once(t, "its author", told, "priya")
	never(t, "a file that nobody changed", told, "stale")
	never(t, "the next prompt", reads.Prompt("now change how the total is computed"), factText)
	never(t, "the next read", reads.Read(factPath), factText)

	asks := stage.Session{Person: s.sam, ID: "asks", Dir: s.his}
	asks.Start()
	once(t, "a prompt that names the file", asks.Prompt("please mend the rounding in src/billing.js today"), factText)
	never(t, "the read that follows", asks.Read(factPath), factText)

	sub := stage.Session{Person: s.sam, ID: "asks", Dir: s.his, Subagent: "a1"}
	once(t, "a subagent, which has a context of its own", sub.Hook("SubagentStart", nil)+sub.Read(factPath), factText)
}

func TestAFactIsStaleOnceSomebodyWithoutKnootChangedItsFile(t *testing.T) {
	s := newShop(t)
	s.priya.StartDaemon()
	s.remember(t)
	s.priya.Knoot(s.hers, "sync")
	s.sam.Knoot(s.his, "sync")
	before := stage.Session{Person: s.sam, ID: "before", Dir: s.his}
	once(t, "before the change", before.Hears(factPath, factText), factText)

	ash := stage.NewPerson(t, "ash")
	ash.Bin = t.TempDir() // ash has no knoot
	theirs := ash.Clone(s.host, "theirs")
	commit := ash.Commit(theirs, factPath, "export const total = lines => sum(lines)\n", "Sum lines elsewhere")
	ash.Git(theirs, "push", "--quiet", "origin", "main")
	s.sam.Git(s.his, "pull", "--quiet", "origin", "main")

	after := stage.Session{Person: s.sam, ID: "after", Dir: s.his}
	told := after.Hears(factPath, commit[:7])
	once(t, "a session that opens the file", told, factText)
	for where, told := range map[string]string{
		"a session that opens the file": told,
		"a session that had the fact":   before.Hears(factPath, commit[:7]),
	} {
		if !strings.Contains(told, "possibly stale: ash changed") {
			t.Errorf("%s is not told who made the fact stale:\n%s", where, told)
		}
		once(t, where, told, commit[:7])
	}
	never(t, "told again", after.Read(factPath)+before.Read(factPath), "stale")

	rows := recall(t, s.sam, s.his, factName)
	if len(rows) != 1 || !rows[0].Stale || !strings.Contains(rows[0].StaleReason, "ash") || !strings.Contains(rows[0].StaleReason, commit[:7]) {
		t.Errorf("recall does not say who made the fact stale: %+v", rows)
	}

	// The same bytes again: fresh.
	s.sam.Git(s.his, "revert", "--no-edit", "HEAD")
	if rows := recall(t, s.sam, s.his, factName); len(rows) != 1 || rows[0].Stale {
		t.Errorf("the file is what it was, and the fact is still stale: %+v", rows)
	}
}

func TestTheHostLearnsNeitherTextNorPathNorName(t *testing.T) {
	s := newShop(t)
	const name, path, text = "quaint-zebra", "src/unseen-walrus.js", "the marmalade is kept beneath the lighthouse"
	s.priya.Write(filepath.Join(s.hers, path), "export {}\n") // never committed, so that git itself does not tell it
	s.priya.Knoot(s.hers, "remember", "--name", name, "--path", path, text)
	s.priya.Knoot(s.hers, "plan", "--path", path, "move the marmalade beneath the lighthouse")
	s.priya.Knoot(s.hers, "sync")

	refs := s.priya.Git(s.host, "for-each-ref", "--format=%(refname)", "refs/knoot")
	if !strings.Contains(refs, "refs/knoot/memory/") {
		t.Fatalf("the host has no memory:\n%s", refs)
	}
	objects := refs + s.priya.Git(s.host, "cat-file", "--batch-all-objects", "--batch")
	for _, secret := range []string{name, "zebra", path, "walrus", text, "marmalade", "lighthouse"} {
		never(t, "the host", objects, secret)
	}
	for _, author := range strings.Split(s.priya.Git(s.host, "log", "--format=%an %ae %cn %ce", "--glob=refs/knoot/*"), "\n") {
		if author != "knoot knoot@localhost knoot knoot@localhost" {
			t.Errorf("a commit of a log names %q", author)
		}
	}
}

func TestPlainFetchBringsAFactAndPlainPushCarriesIt(t *testing.T) {
	s := newShop(t)
	s.remember(t)
	carried(t, s)
}

// The daemon has the clone's lock, and what reads is told of a fetch all the same.
func TestPlainFetchBringsAFactBesideTheDaemon(t *testing.T) {
	s := newShop(t)
	s.priya.StartDaemon()
	s.sam.Knoot(s.his, "who") // the daemon has both clones open
	s.priya.Knoot(s.hers, "who")
	s.remember(t)
	carried(t, s)
}

// carried pushes and fetches with git alone, and finds the fact in the other clone.
func carried(t *testing.T, s *shop) {
	t.Helper()
	s.priya.Git(s.hers, "push", "--quiet", "origin", "refs/knoot/*:refs/knoot/*")
	s.sam.Git(s.his, "fetch", "--quiet")

	rows := recall(t, s.sam, s.his)
	if len(rows) != 1 || rows[0].Name != factName || rows[0].Text != factText || rows[0].Kind != "fact" ||
		rows[0].Author != "priya" || rows[0].Stale || rows[0].SupersededBy != nil ||
		len(rows[0].Paths) != 1 || rows[0].Paths[0] != factPath || len(rows[0].ID) != 32 {
		t.Errorf("after a plain push and a plain fetch, recall says %+v", rows)
	}
	if rows := recall(t, s.sam, s.his, "--path", "README.md"); len(rows) != 0 {
		t.Errorf("recall of a path that has no fact: %+v", rows)
	}
}

// What reads works with no daemon, no network and no keys of the host's.
func TestReadingNeedsNoDaemonAndNoNetwork(t *testing.T) {
	s := newShop(t)
	s.remember(t)
	if err := os.Rename(s.host, s.host+".away"); err != nil {
		t.Fatal(err)
	}
	if rows := recall(t, s.priya, s.hers); len(rows) != 1 {
		t.Errorf("recall: %+v", rows)
	}
	var story struct {
		Path    string
		Facts   []recalled
		Events  []map[string]string
		Commits []map[string]string
	}
	output := s.priya.Knoot(s.hers, "why", "--json", factPath)
	if err := json.Unmarshal([]byte(output), &story); err != nil {
		t.Fatalf("why --json: %v\n%s", err, output)
	}
	if story.Path != factPath || len(story.Facts) != 1 || story.Facts[0].Text != factText || story.Events == nil {
		t.Errorf("why says %s", output)
	}
	if len(story.Commits) != 1 || story.Commits[0]["author"] != "priya" || story.Commits[0]["subject"] != "Add billing" {
		t.Errorf("why does not tell the path's commits: %s", output)
	}
	for _, line := range strings.Split(strings.TrimSpace(s.priya.Knoot(s.hers, "export")), "\n") {
		if !strings.HasPrefix(line, `{"type":`) || !json.Valid([]byte(line)) {
			t.Errorf("export: type does not stand first in %s", line)
		}
	}
}
