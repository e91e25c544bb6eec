package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"knoot.dev/knoot/integration/stage"
)

// refuses demands that a command fails with one sentence on stderr.
func refuses(t *testing.T, p *stage.Person, dir string, args ...string) string {
	t.Helper()
	result := p.Try(dir, "", "knoot", args...)
	sentence := strings.TrimSpace(result.Stderr)
	if result.Code != 1 || sentence == "" || strings.Contains(sentence, "\n") || strings.Contains(sentence, "panic") {
		t.Errorf("knoot %q: expected exit 1 and a sentence, got exit %d, %q, %q", args, result.Code, result.Stdout, result.Stderr)
	}
	return sentence
}

func TestWhereThereIsNoUsableRepository(t *testing.T) {
	priya := stage.NewPerson(t, "priya")
	t.Run("no repository", func(t *testing.T) {
		p := priya.In(t)
		dir := stage.Dir(t)
		for _, command := range [][]string{{"init"}, {"recall"}, {"remember", "--name", "a", "b"}, {"sync"}, {"why", "x"}} {
			if said := refuses(t, p, dir, command...); !strings.Contains(said, "git") {
				t.Errorf("knoot %q says %q", command, said)
			}
		}
		session := stage.Session{Person: p, ID: "nowhere", Dir: dir}
		p.StartDaemon()
		if told := session.Start() + session.Read("a.txt"); told != "" {
			t.Errorf("outside a repository an agent was told %q", told)
		}
	})
	t.Run("not set up", func(t *testing.T) {
		p := priya.In(t)
		dir := p.Clone(stage.Host(t), "plain")
		if said := refuses(t, p, dir, "remember", "--name", "a", "b"); !strings.Contains(said, "knoot init") {
			t.Errorf("remember says %q", said)
		}
	})
	t.Run("bare", func(t *testing.T) {
		p := priya.In(t)
		bare := filepath.Join(stage.Dir(t), "bare.git")
		p.Git(p.Home, "init", "--quiet", "--bare", bare)
		refuses(t, p, bare, "init")
	})
	t.Run("without commits", func(t *testing.T) {
		p := priya.In(t)
		dir := filepath.Join(stage.Dir(t), "empty")
		p.Git(p.Home, "init", "--quiet", dir)
		p.Knoot(dir, "init", "--local")
		p.Write(filepath.Join(dir, "a.txt"), "a\n")
		p.Knoot(dir, "remember", "--name", "first", "--path", "a.txt", "written before there was a commit")
		rows := recall(t, p, dir)
		if len(rows) != 1 || rows[0].Stale {
			t.Errorf("recall in a repository without commits: %+v", rows)
		}
		p.Git(dir, "add", "--all")
		p.Git(dir, "commit", "--quiet", "--message", "First")
		if rows := recall(t, p, dir); len(rows) != 1 || rows[0].Stale {
			t.Errorf("recall after the first commit: %+v", rows)
		}
	})
	t.Run("not set up, asked for JSON", func(t *testing.T) {
		p := priya.In(t)
		dir := p.Clone(stage.Host(t), "plainer")
		if result := p.Try(dir, "", "knoot", "status", "--json"); result.Code != 1 || !strings.Contains(result.Stdout, `"on": false`) && !strings.Contains(result.Stdout, `"on":false`) {
			t.Errorf("status --json where knoot is not set up: %+v", result)
		}
	})
}

// A corrupted segment is named and skipped; what is whole stays readable, and nothing of one's own is lost.
func TestACorruptedSegmentIsNamed(t *testing.T) {
	s := newShop(t)
	s.remember(t)
	s.priya.Knoot(s.hers, "sync")
	s.sam.Knoot(s.his, "sync")
	s.sam.Knoot(s.his, "remember", "--name", "his", "--path", "README.md", "what sam wrote stands beside it")

	// The host hands out another commit in the place of hers: same ref, same parent, a segment with a flipped byte.
	ref := strings.Split(s.priya.Git(s.host, "for-each-ref", "--format=%(refname)", "refs/knoot/memory"), "\n")[0]
	tree := s.priya.Git(s.host, "ls-tree", ref)
	blob := strings.Fields(tree)[2]
	content := []byte(s.priya.Run(s.host, "git", "cat-file", "blob", blob))
	content[len(content)-1] ^= 1
	spoilt := filepath.Join(s.priya.Home, "spoilt")
	s.priya.Write(spoilt, string(content))
	id := s.priya.Git(s.host, "hash-object", "-w", spoilt)
	replaced := s.priya.Command(s.host, "git", "mktree")
	replaced.Stdin = strings.NewReader(strings.Replace(tree, blob, id, 1) + "\n")
	output, err := replaced.Output()
	if err != nil {
		t.Fatal(err)
	}
	commit := s.priya.Git(s.host, "commit-tree", "-p", ref, "-m", "knoot", strings.TrimSpace(string(output)))
	s.priya.Git(s.host, "update-ref", ref, commit)

	s.sam.Git(s.his, "fetch", "--quiet")
	if rows := recall(t, s.sam, s.his); len(rows) != 2 {
		t.Errorf("what was whole is no longer there: %+v", rows)
	}
	s.sam.Try(s.his, "", "knoot", "sync")
	if rows := recall(t, s.sam, s.his); len(rows) != 2 {
		t.Errorf("after a sync what was whole is no longer there: %+v", rows)
	}
	if status := s.sam.Try(s.his, "", "knoot", "status"); !strings.Contains(status.Stdout, ref[len("refs/knoot/memory/"):][:8]) {
		t.Errorf("status does not name the segment:\n%s", status.Stdout)
	}
}

func TestARefThatPointsNowhere(t *testing.T) {
	s := newShop(t)
	s.remember(t)
	junk := filepath.Join(s.hers, ".git", "refs", "knoot-remote", "origin", "memory", strings.Repeat("ab", 24))
	if err := os.MkdirAll(junk, 0o755); err != nil {
		t.Fatal(err)
	}
	s.priya.Write(filepath.Join(junk, "1"), strings.Repeat("1", 40)+"\n")
	if rows := recall(t, s.priya, s.hers); len(rows) != 1 {
		t.Errorf("recall beside a ref that points nowhere: %+v", rows)
	}
	s.priya.Knoot(s.hers, "remember", "--name", "second", "--path", "README.md", "it still takes what is written")
	s.priya.Knoot(s.hers, "sync")
	if rows := recall(t, s.priya, s.hers); len(rows) != 2 {
		t.Errorf("after a sync: %+v", rows)
	}
}

// A clone whose .knoot.toml names another team than it was set up for: somebody's commit must not redirect it.
func TestARosterOfAnotherTeam(t *testing.T) {
	s, other := newShop(t), newShop(t)
	s.remember(t)
	theirs, err := os.ReadFile(filepath.Join(other.hers, ".knoot.toml"))
	if err != nil {
		t.Fatal(err)
	}
	s.priya.Commit(s.hers, ".knoot.toml", string(theirs), "Join them")
	s.priya.Git(s.hers, "push", "--quiet", "origin", "main")

	if rows := recall(t, s.priya, s.hers); len(rows) != 1 || rows[0].Text != factText {
		t.Errorf("recall: %+v", rows)
	}
	if status := s.priya.Try(s.hers, "", "knoot", "status"); status.Code != 1 || !strings.Contains(status.Stdout, "knoot trust") {
		t.Errorf("status does not name the remedy: %+v", status)
	}
	if said := refuses(t, s.priya, s.hers, "sync"); !strings.Contains(said, "knoot trust") {
		t.Errorf("sync says %q", said)
	}

	// And a host that holds another team's roster under our name.
	s.priya.Git(s.host, "fetch", "--quiet", other.host, "+refs/knoot/team/roster:refs/knoot/team/roster")
	s.sam.Git(s.his, "fetch", "--quiet")
	s.sam.Try(s.his, "", "knoot", "sync")
	if status := s.sam.Try(s.his, "", "knoot", "status"); status.Code != 1 {
		t.Errorf("status with another team's roster on the host: %+v", status)
	}
	s.sam.Knoot(s.his, "recall")
}
