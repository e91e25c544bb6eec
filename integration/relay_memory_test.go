package integration

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"knoot.dev/knoot/integration/stage"
)

// What `knoot remember` says on one machine is in a brief of another while nobody reaches the git host; the host brings the same
// segment later, and nothing is told twice.
func TestAFactReachesAnotherMachineWithoutTheHost(t *testing.T) {
	t.Parallel()
	const file = "src/tax.js"
	relay := stage.NewRelay(t, nil, stage.Address(t))
	machines := newMachines(t, 2, relay.Address, relay.Key)
	ana, ben := machines[0], machines[1]
	for _, m := range machines {
		m.start()
		m.Knoot(m.dir, "who") // a daemon opens a repository at its first hook or command there
	}
	for _, m := range machines {
		m.connected(t, "")
	}
	reads := ben.session("reads", "")
	host := strings.TrimSpace(ben.Git(ben.dir, "remote", "get-url", "origin"))
	if err := os.Rename(host, host+".away"); err != nil {
		t.Fatal(err)
	}
	ana.Knoot(ana.dir, "remember", "--name", factName, "--path", file, factText)
	told := reads.Hears(file, factText)
	once(t, "the call that reads the file", told, factText)
	once(t, "its author", told, "ana")
	if result := ana.Try(ana.dir, "", "knoot", "sync"); result.Code == 0 {
		t.Errorf("the host is away, and ana syncs: %s", result.Stdout)
	}

	// The daemon dies. What it was told is read without it, and is not told again by the next one.
	ben.daemon.Kill()
	if rows := recall(t, ben.Person, ben.dir, "--all"); len(rows) != 1 || rows[0].Text != factText || rows[0].Author != "ana" {
		t.Errorf("without a daemon recall has %+v", rows)
	}
	ben.start()
	never(t, "the next read", reads.Read(file), factText)
	once(t, "a new session", ben.session("early", "").Hears(file, factText), factText)
	ben.connected(t, "")

	kept := func() string {
		return ben.Git(ben.dir, "for-each-ref", "--format=%(refname)", "refs/knoot-kept/memory")
	}
	if refs := kept(); refs != "" {
		t.Errorf("what came through the relay is in git: %s", refs)
	}
	if err := os.Rename(host+".away", host); err != nil {
		t.Fatal(err)
	}
	ana.Knoot(ana.dir, "sync")
	ben.Knoot(ben.dir, "sync")
	if refs := kept(); len(strings.Fields(refs)) != 1 {
		t.Errorf("the host brought the logs %q, want ana's", refs)
	}
	if left, err := os.ReadDir(filepath.Join(ben.dir, ".git", "knoot", "heard")); err != nil || len(left) != 0 {
		t.Errorf("what the host has brought is kept beside it: %v, %v", left, err)
	}
	if rows := recall(t, ben.Person, ben.dir, "--all"); len(rows) != 1 || rows[0].Text != factText {
		t.Errorf("from both ways recall has %+v", rows)
	}
	ben.Knoot(ben.dir, "verify")
	never(t, "a read after git brought it", reads.Read(file), factText)
	never(t, "a prompt after git brought it", reads.Prompt("what is the rate in src/tax.js for?"), factText)
	once(t, "a new session", ben.session("late", "").Hears(file, factText), factText)

	// The relay has carried all of it, and has none of it.
	relay.Kill()
	carried := []byte(relay.Log())
	if err := filepath.WalkDir(relay.State, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		carried = append(carried, text...)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{factText, factName + "\"", file} {
		if bytes.Contains(carried, []byte(word)) {
			t.Errorf("the relay has %q", word)
		}
	}
	if len(carried) < len(factText) {
		t.Error("the relay's state was not found")
	}
}
