package gitlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// desk is a repository with knoot set up, a writable clone and its tree; time is the test's.
type desk struct {
	*worktree
	clone *Clone
	now   time.Time
}

func newDesk(t testing.TB) *desk {
	t.Helper()
	s := newStage(t)
	repo := s.repository("app")
	s.init(repo)
	d := &desk{worktree: (&worktree{TB: t}).in(repo.Root), clone: s.open(repo, true), now: time.Now()}
	d.clone.now = func() time.Time { return d.now }
	return d
}

func (d *desk) later(by time.Duration) { d.now = d.now.Add(by) }

var (
	agent  = Author{By: ByAgent, Session: "claude:s1"}
	person = Author{By: ByPerson}
)

func (d *desk) try(r RememberRequest) (*Stored, error) {
	if r.Kind == 0 {
		r.Kind = KindFact
	}
	if r.Author.By == 0 {
		r.Author = agent
	}
	return d.clone.Remember(context.Background(), d.tree, r)
}

func (d *desk) remember(r RememberRequest) *Stored {
	d.Helper()
	s, err := d.try(r)
	if err != nil {
		d.Fatal(err)
	}
	return s
}

// refused wants a refusal that says all of these and nothing secret.
func (d *desk) refused(err error, says ...string) {
	d.Helper()
	var refusal *Refusal
	if !errors.As(err, &refusal) {
		d.Errorf("%v, want a refusal", err)
		return
	}
	for _, each := range says {
		if !strings.Contains(refusal.Sentence, each) {
			d.Errorf("%q does not say %q", refusal.Sentence, each)
		}
	}
	for _, secret := range []string{githubToken, awsKey, privateKey[40:60]} {
		if strings.Contains(refusal.Sentence, secret) {
			d.Errorf("%q repeats the secret", refusal.Sentence)
		}
	}
}

func (d *desk) recall(q RecallQuery) []Recalled {
	d.Helper()
	found, err := d.clone.Recall(context.Background(), d.tree, q, MillisOf(d.now))
	if err != nil {
		d.Fatal(err)
	}
	return found
}

func (d *desk) recalledTexts(q RecallQuery) []string {
	d.Helper()
	out := []string{}
	for _, r := range d.recall(q) {
		out = append(out, r.Text)
	}
	return out
}

func (d *desk) wantTexts(q RecallQuery, want ...string) {
	d.Helper()
	if got := d.recalledTexts(q); !slices.Equal(got, append([]string{}, want...)) {
		d.Errorf("recall %+v: %q, want %q", q, got, want)
	}
}

func TestRememberRecords(t *testing.T) {
	d := newDesk(t)
	d.write("src/tax.js", lines(30))
	d.write("docs/a.md", "x\n")
	head := d.commit("two")
	s := d.remember(RememberRequest{
		Name: "  cafe\u0301 ", Text: " half-even\n", Pinned: true,
		Paths: []string{"./src//tax.js:3-5", "src/tax.js", "docs/", "**/*.md", "src/billing.js", "src/billing.js"},
	})
	f := s.Fact
	if f.Name != "caf\u00e9" || f.Text != "half-even" || !f.Pinned || f.By != ByAgent || f.Session != "claude:s1" || f.Depth != 1 || len(f.Supersedes) != 0 || f.Area != nil {
		t.Errorf("%+v", f)
	}
	if f.Branch != "refs/heads/main" || fmt.Sprintf("%x", f.Commit) != head || s.Author != d.clone.Device().ID || s.Time != MillisOf(d.now) || s.Room != d.clone.General() {
		t.Errorf("%+v %+v", s, f)
	}
	var got []string
	for _, p := range f.Paths {
		text := p.Path
		if p.Lines != nil {
			text += fmt.Sprintf(":%d-%d", p.Lines.First, p.Lines.Last)
		}
		if p.Glob {
			text += " glob"
		}
		if p.Blob != nil {
			text += fmt.Sprintf(" %x", p.Blob)
		}
		got = append(got, text)
	}
	billing, tax := d.git("rev-parse", "HEAD:src/billing.js"), d.git("rev-parse", "HEAD:src/tax.js")
	want := []string{"**/*.md glob", "docs", "src/billing.js " + billing, "src/tax.js " + tax, "src/tax.js:3-5 " + tax}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("paths %q, want %q", got, want)
	}
	// Durable: another process reads it.
	again, err := OpenClone(context.Background(), d.clone.Repo, d.clone.home)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := again.Memory().entry(s.ID()); !ok {
		t.Error("another process does not have it")
	}
}

func TestRememberInOddPlaces(t *testing.T) {
	t.Run("no commits", func(t *testing.T) {
		s := newStage(t)
		s.git(".", "init", "-q", "app")
		repo := s.find("app")
		s.init(repo)
		d := &desk{worktree: (&worktree{TB: t}).in(repo.Root), clone: s.open(repo, true), now: time.Now()}
		d.write("a", "1\n")
		f := d.remember(RememberRequest{Name: "n", Text: "x", Paths: []string{"a"}}).Fact
		if f.Commit != nil || f.Branch != "refs/heads/main" || f.Paths[0].Blob == nil {
			t.Errorf("%+v", f)
		}
	})
	t.Run("detached", func(t *testing.T) {
		d := newDesk(t)
		d.git("switch", "-q", "--detach")
		if f := d.remember(RememberRequest{Name: "n", Text: "x"}).Fact; f.Branch != "" || len(f.Commit) != 20 {
			t.Errorf("%+v", f)
		}
	})
}

func TestTheSameNameSupersedes(t *testing.T) {
	d := newDesk(t)
	first := d.remember(RememberRequest{Name: "money", Text: "money is a float"})
	d.now = d.now.Add(-time.Hour) // the clock was set back
	second := d.remember(RememberRequest{Name: "money", Text: "money is integer cents"})
	if f := second.Fact; f.Depth != 2 || !slices.Equal(f.Supersedes, []EntryID{first.ID()}) {
		t.Errorf("%+v", f)
	}
	// A cached answer of that name is another thing.
	d.remember(RememberRequest{Kind: KindCache, Name: "money", Text: "see billing", Paths: []string{"src/billing.js"}})
	d.wantTexts(RecallQuery{Words: []string{"cents"}}, "money is integer cents")

	// What was written elsewhere at the same time, unseen: both stand until the next one replaces both.
	other := note{kind: KindFact, name: "money", text: "money is a decimal", time: MillisOf(d.now), device: 9, room: 0}.stored()
	other.Room, other.Fact.By = d.clone.General(), ByPerson
	d.clone.Memory().Add(other)
	found := d.recall(RecallQuery{Words: []string{"money", "is"}})
	if len(found) != 2 || found[0].Text != "money is integer cents" || found[1].Text != "money is a decimal" || len(found[0].Item.Disagrees) != 1 || len(found[1].Item.Disagrees) != 1 {
		t.Errorf("disagreeing: %+v", found)
	}
	third := d.remember(RememberRequest{Name: "money", Text: "money is cents, settled"})
	if len(third.Fact.Supersedes) != 2 || third.Fact.Depth != 3 {
		t.Errorf("%+v", third.Fact)
	}
	d.wantTexts(RecallQuery{Words: []string{"money", "is"}}, "money is cents, settled")
	all := d.recall(RecallQuery{Words: []string{"float"}, All: true})
	if len(all) != 1 || all[0].SupersededBy == nil || *all[0].SupersededBy != second.ID().String() {
		t.Errorf("%+v", all)
	}
}

func TestRememberRefusesWhatMakesNoSense(t *testing.T) {
	d := newDesk(t)
	d.write("dir/a", lines(10))
	d.write("sub/.git/HEAD", "ref: refs/heads/main\n")
	d.write("sub/file", "x")
	outside := t.TempDir()
	if err := os.Symlink(outside, d.dir+"/out"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		r    RememberRequest
		says string
	}{
		{RememberRequest{Name: " ", Text: "x"}, "--name"},
		{RememberRequest{Name: strings.Repeat("n", 101), Text: "x"}, "101 bytes"},
		{RememberRequest{Name: "a\nb", Text: "x"}, "one line"},
		{RememberRequest{Name: "\xff", Text: "x"}, "UTF-8"},
		{RememberRequest{Name: "n", Text: " \n"}, "empty"},
		{RememberRequest{Name: "n", Text: "\xff"}, "UTF-8"},
		{RememberRequest{Name: "n", Text: strings.Repeat("long ", 13_200)}, "64 KiB"},
		{RememberRequest{Name: "n", Text: strings.Repeat("x", 65_500)}, "64 KiB"},
		{RememberRequest{Name: "n", Text: "x", Paths: []string{""}}, "empty"},
		{RememberRequest{Name: "n", Text: "x", Paths: []string{"nowhere/a"}}, "there is no nowhere/a here"},
		{RememberRequest{Name: "n", Text: "x", Paths: []string{"*.nothing"}}, "no file matches"},
		{RememberRequest{Name: "n", Text: "x", Paths: []string{"../app2/a"}}, "outside"},
		{RememberRequest{Name: "n", Text: "x", Paths: []string{"/etc/passwd"}}, "outside"},
		{RememberRequest{Name: "n", Text: "x", Paths: []string{"out"}}, "outside"},
		{RememberRequest{Name: "n", Text: "x", Paths: []string{"dir/a:5-4"}}, "FIRST-LAST"},
		{RememberRequest{Name: "n", Text: "x", Paths: []string{"dir/a:0-4"}}, "FIRST-LAST"},
		{RememberRequest{Name: "n", Text: "x", Paths: []string{"dir/a:5-11"}}, "has 10 lines"},
		{RememberRequest{Name: "n", Text: "x", Paths: []string{"dir:5-11"}}, "directory"},
		{RememberRequest{Name: "n", Text: "x", Paths: []string{".git/config"}}, "git's own"},
		{RememberRequest{Name: "n", Text: "x", Paths: []string{"sub/file"}}, "another repository, sub"},
		{RememberRequest{Name: "n", Text: "x", Paths: []string{"a\x00b"}}, "NUL"},
		{RememberRequest{Name: "n", Text: "x", Room: "secret"}, "no room"},
		{RememberRequest{Name: "n", Text: "x", Kind: KindCache}, "--path"},
		{RememberRequest{Name: "n", Text: "x", Kind: KindCache, Paths: []string{"."}}, "--path"},
	} {
		_, err := d.try(c.r)
		d.refused(err, c.says)
	}
	if len(d.clone.Memory().All(MillisOf(d.now))) != 0 {
		t.Error("something was written all the same")
	}
	// What only looks like that.
	d.write("odd:1-2", "x\n")
	d.write("app/[id]/page.tsx", "x\n")
	if err := os.Symlink("dir/a", d.dir+"/link"); err != nil {
		t.Fatal(err)
	}
	f := d.remember(RememberRequest{Name: "n", Text: "x", Paths: []string{"odd:1-2", "app/[id]/page.tsx", "link", d.dir + "/src/billing.js"}, Room: "general"}).Fact
	var got []string
	for _, p := range f.Paths {
		if p.Blob == nil || p.Glob {
			t.Errorf("%+v", p)
		}
		got = append(got, p.Path)
	}
	slices.Sort(got)
	if want := []string{"app/[id]/page.tsx", "dir/a", "odd:1-2", "src/billing.js"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestRememberRefusesSecrets(t *testing.T) {
	d := newDesk(t)
	d.write(".gitignore", "build/\n*.log\n")
	d.write("build/a", "x")
	d.write("x.log", "x")
	d.write("tracked.log", "x")
	d.git("add", "-f", "tracked.log")
	d.write("src/deploy.sh", "curl -H 'Authorization: token "+githubToken+"'\n")
	d.write("src/.env.local", "A=1")
	d.write("tls/site.pem", "x")
	d.write("tls/site.key", "x")
	d.write("id_rsa", "x")
	if err := os.Symlink("src/.env.local", d.dir+"/harmless"); err != nil {
		t.Fatal(err)
	}
	try := func(r RememberRequest, says ...string) {
		t.Helper()
		_, err := d.try(r)
		d.refused(err, says...)
	}
	try(RememberRequest{Name: "n", Text: "use " + githubToken}, "credential", "github-pat")
	try(RememberRequest{Name: awsKey, Text: "the key"}, "credential", "aws-access-token")
	try(RememberRequest{Name: "n", Text: privateKey, Yes: true}, "credential", "private-key")
	try(RememberRequest{Name: "n", Text: "x", Paths: []string{"src/deploy.sh"}}, "src/deploy.sh", "credential")
	try(RememberRequest{Name: "n", Text: "x", Paths: []string{"src/deploy.sh:1-1"}}, "credential")
	try(RememberRequest{Name: "n", Text: "x", Kind: KindCache, Paths: []string{"src/deploy.sh"}}, "credential")
	for path, says := range map[string]string{
		"build/a": "ignores build/a", "build": "ignores build", "x.log": "ignores x.log", "src/.env.local": ".env*", "tls/site.pem": "*.pem",
		"tls/site.key": "*.key", "id_rsa": "id_*", "harmless": ".env*", "tls/*.pem": "*.pem",
	} {
		try(RememberRequest{Name: "n", Text: "x", Paths: []string{path}}, says)
	}
	if _, err := d.clone.SetPlan(context.Background(), d.tree, PlanRequest{Text: "x", Paths: []string{"build/a"}, Author: agent}); err == nil {
		t.Error("a plan about an ignored path")
	}
	d.remember(RememberRequest{Name: "n", Text: "x", Paths: []string{"tracked.log"}})

	plan, err := d.clone.SetPlan(context.Background(), d.tree, PlanRequest{Text: "use " + githubToken, Decided: []string{"half-even", awsKey}, Author: agent})
	if err != nil || plan.Plan.Text != "withheld" || !slices.Equal(plan.Plan.Decided, []string{"half-even", "withheld"}) {
		t.Errorf("%+v, %v", plan, err)
	}
	_, err = d.clone.Forget(context.Background(), d.tree, ForgetRequest{Name: "n", Reason: "leaked " + githubToken, Author: agent})
	d.refused(err, "credential")
	// A file that got its credential after the fact.
	s := d.remember(RememberRequest{Name: "later", Text: "y z", Paths: []string{"src/billing.js"}})
	d.write("src/billing.js", "token = '"+githubToken+"'\n")
	_, err = d.clone.Confirm(context.Background(), d.tree, ConfirmRequest{Name: "later", Author: agent})
	d.refused(err, "credential")
	if err := d.clone.Rerecord(context.Background(), d.tree, "claude:s1", s.Time, []string{"src/billing.js"}); err != nil {
		t.Error(err)
	}
	if len(d.clone.Memory().heads(scope{room: d.clone.General(), kind: KindFact, name: "later"})) != 1 {
		t.Error("the fact is gone")
	}
}

func TestNearDuplicates(t *testing.T) {
	d := newDesk(t)
	d.write("src/tax.js", "x\n")
	text := "All money in this service is integer cents and never a float, since the ledger sums it without rounding."
	d.remember(RememberRequest{Name: "all the money", Text: text, Paths: []string{"src/billing.js"}})
	try := func(r RememberRequest) error {
		_, err := d.try(r)
		return err
	}
	again := strings.ToUpper(text) + " Always!"
	d.refused(try(RememberRequest{Name: "cents", Text: again, Paths: []string{"src/tax.js", "src/billing.js"}}), `"all the money"`, "--name 'all the money'", "--yes")
	for _, r := range []RememberRequest{
		{Name: "elsewhere", Text: text, Paths: []string{"src/tax.js"}},
		{Name: "all the money", Text: again, Paths: []string{"src/billing.js"}},
		{Name: "other words", Text: "Money in this service is a decimal of the ledger; floats and cents are for display alone, and rounding is last.", Paths: []string{"src/billing.js"}},
		{Name: "insists", Text: text, Paths: []string{"src/billing.js"}, Yes: true},
		{Name: "answer", Text: text, Paths: []string{"src/billing.js"}, Kind: KindCache},
	} {
		if err := try(r); err != nil {
			t.Errorf("%s: %v", r.Name, err)
		}
	}
	d.remember(RememberRequest{Name: "build", Text: "run make"})
	d.refused(try(RememberRequest{Name: "build2", Text: "Run make."}), `"build"`)
}

func TestASessionPublishesTwentyFacts(t *testing.T) {
	d := newDesk(t)
	for i := range maxSessionFacts {
		s := note{kind: KindFact, name: fmt.Sprint("n", i), text: fmt.Sprint("fact ", i), time: MillisOf(d.now) - 1, session: "claude:s1"}.stored()
		s.Author, s.Room = d.clone.Device().ID, d.clone.General()
		d.clone.Memory().Add(s)
	}
	more := RememberRequest{Name: "more", Text: "one more thing"}
	_, err := d.try(more)
	d.refused(err, "20 facts", "--yes")
	other := more
	other.Author = Author{By: ByAgent, Session: "claude:s2"}
	d.remember(other)
	other.Author = person
	d.remember(other)
	insists := more
	insists.Yes = true
	d.remember(insists)
	for _, name := range []string{"more", "n3"} {
		if _, err := d.clone.Forget(context.Background(), d.tree, ForgetRequest{Name: name, Author: agent}); err != nil {
			t.Fatal(err)
		}
	}
	d.remember(RememberRequest{Name: "after forgetting", Text: "there is room again"})
}

func TestAFullRepositorySaysWhatCouldGo(t *testing.T) {
	d := newDesk(t)
	for i := range maxAreaEntries {
		s := note{kind: KindFact, name: fmt.Sprint("n", i), text: "x", time: MillisOf(d.now) - Millis(i)*60_000}.stored()
		s.Room = d.clone.General()
		d.clone.Memory().Add(s)
	}
	_, err := d.try(RememberRequest{Name: "more", Text: "y", Yes: true})
	d.refused(err, "2000 entries", "knoot forget", "n1999 (1 day ago)", "n1998")
	d.remember(RememberRequest{Name: "n7", Text: "in place of another"})

	d = newDesk(t)
	for i := range 260 {
		s := note{kind: KindFact, name: fmt.Sprint("n", i), text: "x", time: MillisOf(d.now)}.stored()
		s.Room, s.raw = d.clone.General(), make([]byte, maxEntry)
		d.clone.Memory().Add(s)
	}
	_, err = d.try(RememberRequest{Name: "more", Text: "y"})
	d.refused(err, "16 MiB")
}

func TestConfirm(t *testing.T) {
	ctx := context.Background()
	d := newDesk(t)
	d.write("src/tax.js", lines(30))
	d.write("gone.js", "x\n")
	d.commit("two")
	fact := d.remember(RememberRequest{Name: "tax", Text: "half-even", Paths: []string{"src/billing.js", "src/tax.js:10-12", "gone.js", "src"}, Author: person, Pinned: true})
	d.write("src/tax.js", "new\n"+lines(30))
	d.git("mv", "src/billing.js", "src/bill.js")
	d.git("rm", "-q", "gone.js")
	d.commit("three")
	d.later(80 * 24 * time.Hour)
	confirmed, err := d.clone.Confirm(ctx, d.tree, ConfirmRequest{Name: " tax", Author: agent})
	if err != nil {
		t.Fatal(err)
	}
	f := confirmed.Fact
	if confirmed.Kind != KindConfirmation || f.Name != "tax" || f.Text != "half-even" || f.By != ByAgent || !f.Pinned || f.Depth != 2 ||
		!slices.Equal(f.Supersedes, []EntryID{fact.ID()}) || *f.Confirms != fact.ID() || fmt.Sprintf("%x", f.Commit) != d.git("rev-parse", "HEAD") {
		t.Errorf("%+v", f)
	}
	anchored := slices.IndexFunc(fact.Fact.Paths, func(p FactPath) bool { return p.Lines != nil })
	want := []FactPath{
		{Path: "src"}, {Path: "src/bill.js", Blob: d.blob("src/bill.js")},
		{Path: "src/tax.js", Blob: d.blob("src/tax.js"), Lines: &LineAnchor{First: 11, Last: 13, Digest: fact.Fact.Paths[anchored].Lines.Digest}},
	}
	slices.SortFunc(want, comparePaths)
	if fmt.Sprint(describePaths(f.Paths)) != fmt.Sprint(describePaths(want)) {
		t.Errorf("%v\nwant %v", describePaths(f.Paths), describePaths(want))
	}
	d.later(80 * 24 * time.Hour)
	found := d.recall(RecallQuery{})
	if len(found) != 1 || found[0].Kind != "fact" || found[0].ID != confirmed.ID().String() || found[0].Stale || found[0].Item.Origin.ID() != fact.ID() {
		t.Errorf("%+v", found)
	}
	// It has run out, and can still be confirmed; a forgotten one can not.
	d.later(80 * 24 * time.Hour)
	d.wantTexts(RecallQuery{})
	if _, err := d.clone.Confirm(ctx, d.tree, ConfirmRequest{Name: "tax", Author: person}); err != nil {
		t.Fatal(err)
	}
	d.wantTexts(RecallQuery{}, "half-even")
	if _, err := d.clone.Forget(ctx, d.tree, ForgetRequest{Name: "tax", Author: person}); err != nil {
		t.Fatal(err)
	}
	_, err = d.clone.Confirm(ctx, d.tree, ConfirmRequest{Name: "tax", Author: person})
	d.refused(err, `no fact "tax"`)
	d.remember(RememberRequest{Kind: KindCache, Name: "answer", Text: "x", Paths: []string{"src/bill.js"}})
	_, err = d.clone.Confirm(ctx, d.tree, ConfirmRequest{Name: "answer", Author: person})
	d.refused(err, "cached answer")

	// Lines that are no longer there: those in their place.
	d.remember(RememberRequest{Name: "lines", Text: "three lines", Paths: []string{"src/tax.js:2-4"}})
	d.write("src/tax.js", lines(31, 2, 3))
	if s, err := d.clone.Confirm(ctx, d.tree, ConfirmRequest{Name: "lines", Author: agent}); err != nil || s.Fact.Paths[0].Lines == nil || s.Fact.Paths[0].Lines.First != 2 {
		t.Errorf("%+v, %v", s, err)
	}
	d.wantFresh("lines")
}

func describePaths(paths []FactPath) []string {
	var out []string
	for _, p := range paths {
		text := fmt.Sprintf("%s %x", p.Path, p.Blob)
		if p.Lines != nil {
			text += fmt.Sprintf(" %d-%d %x", p.Lines.First, p.Lines.Last, p.Lines.Digest[:4])
		}
		out = append(out, text)
	}
	return out
}

func (d *desk) wantFresh(name string) {
	d.Helper()
	found := d.recall(RecallQuery{Words: []string{name}})
	if len(found) == 0 || found[0].Name != name || !found[0].Verdict.Fresh() {
		d.Errorf("%s is not fresh: %+v", name, found)
	}
}

func TestForget(t *testing.T) {
	ctx := context.Background()
	d := newDesk(t)
	forget := func(r ForgetRequest) ([]EntryID, error) {
		if r.Author.By == 0 {
			r.Author = agent
		}
		return d.clone.Forget(ctx, d.tree, r)
	}
	_, err := forget(ForgetRequest{Name: "n"})
	d.refused(err, `no "n"`)
	_, err = forget(ForgetRequest{Last: true})
	d.refused(err, "nothing")

	one := d.remember(RememberRequest{Name: "n", Text: "one"})
	cached := d.remember(RememberRequest{Kind: KindCache, Name: "n", Text: "cached", Paths: []string{"src"}})
	d.remember(RememberRequest{Name: "kept", Text: "of another session", Author: Author{By: ByAgent, Session: "claude:s2"}})
	ids, err := forget(ForgetRequest{Name: "n", Reason: " it was wrong "})
	if err != nil || len(ids) != 2 || !slices.Contains(ids, one.ID()) || !slices.Contains(ids, cached.ID()) {
		t.Errorf("%v, %v", ids, err)
	}
	d.wantTexts(RecallQuery{}, "of another session")
	if all := d.recall(RecallQuery{All: true, Words: []string{"one"}}); len(all) != 1 || !all[0].Item.Forgotten {
		t.Errorf("%+v", all)
	}

	d.later(time.Second)
	d.remember(RememberRequest{Name: "a", Text: "first"})
	d.later(time.Second)
	d.remember(RememberRequest{Name: "a", Text: "second"})
	d.later(time.Second)
	d.remember(RememberRequest{Name: "b", Text: "of a person", Author: person})
	if _, err := forget(ForgetRequest{Last: true}); err != nil {
		t.Fatal(err)
	}
	// What it had superseded does not come back.
	d.wantTexts(RecallQuery{}, "of a person", "of another session")
	if _, err := forget(ForgetRequest{Last: true, Author: person}); err != nil {
		t.Fatal(err)
	}
	d.wantTexts(RecallQuery{}, "of another session")

	// A name in two rooms.
	other := note{kind: KindFact, name: "kept", text: "in another room", time: MillisOf(d.now), room: 7}.stored()
	d.clone.Memory().Add(other)
	_, err = forget(ForgetRequest{Name: "kept"})
	d.refused(err, "--room")
	_, err = d.clone.Confirm(ctx, d.tree, ConfirmRequest{Name: "kept", Author: agent})
	d.refused(err, "--room")
	if ids, err := forget(ForgetRequest{Name: "kept", Room: "general"}); err != nil || len(ids) != 1 {
		t.Errorf("%v, %v", ids, err)
	}
}

func TestRerecord(t *testing.T) {
	ctx := context.Background()
	d := newDesk(t)
	d.write("src/tax.js", "1\n")
	d.commit("two")
	turn := MillisOf(d.now)
	d.later(time.Second)
	fact := d.remember(RememberRequest{Name: "money", Text: "cents", Paths: []string{"src/billing.js"}})
	d.remember(RememberRequest{Name: "tax", Text: "half-even", Paths: []string{"src/tax.js"}})
	d.remember(RememberRequest{Name: "other", Text: "of another session", Paths: []string{"src/billing.js"}, Author: Author{By: ByAgent, Session: "claude:s2"}})
	d.later(time.Second)
	d.write("src/billing.js", "let cents = 1\n")
	d.write("src/tax.js", "2\n") // by somebody else: not among what changed
	rerecord := func(since Millis, changed ...string) {
		t.Helper()
		if err := d.clone.Rerecord(ctx, d.tree, "claude:s1", since, changed); err != nil {
			t.Fatal(err)
		}
	}
	rerecord(turn, "src/billing.js")
	stale := func(name string) bool {
		t.Helper()
		found := d.recall(RecallQuery{Words: []string{name}})
		if len(found) == 0 || found[0].Name != name {
			t.Fatalf("no %s: %+v", name, found)
		}
		return found[0].Stale
	}
	if stale("money") || !stale("tax") || !stale("other") {
		t.Errorf("money %v, tax %v, other %v", stale("money"), stale("tax"), stale("other"))
	}
	item := d.recall(RecallQuery{Words: []string{"money"}})[0].Item
	if item.Kind != KindConfirmation || item.Origin.ID() != fact.ID() || item.Fact.By != ByAgent || item.Fact.Session != "claude:s1" {
		t.Errorf("%+v", item.Fact)
	}
	rerecord(turn, "src/billing.js") // nothing has changed since
	if again := d.recall(RecallQuery{Words: []string{"money"}})[0].Item; again.ID() != item.ID() {
		t.Error("recorded again without a change")
	}
	// A later turn of the same session leaves the fact alone: it may have made it wrong.
	d.later(time.Second)
	later := MillisOf(d.now)
	d.later(time.Second)
	d.write("src/billing.js", "let money = 1.5\n")
	rerecord(later, "src/billing.js")
	if !stale("money") {
		t.Error("a later turn renewed the fact")
	}
	// Somebody else wrote the file after the session had.
	e := d.clone.NewEntry(FileWritten)
	e.Event = &Event{Agent: "claude", Session: "s2", Paths: []EventPath{{"src/billing.js", d.blob("src/billing.js")}}}
	if err := d.clone.Record(e); err != nil {
		t.Fatal(err)
	}
	rerecord(turn, "src/billing.js")
	if !stale("money") {
		t.Error("what another session wrote renewed the fact")
	}
}

func TestPlan(t *testing.T) {
	ctx := context.Background()
	d := newDesk(t)
	plan := func(r PlanRequest) *Stored {
		t.Helper()
		if r.Author.By == 0 {
			r.Author = agent
		}
		s, err := d.clone.SetPlan(ctx, d.tree, r)
		if err != nil {
			t.Fatal(err)
		}
		d.later(time.Second)
		return s
	}
	plan(PlanRequest{Text: "rewriting tax rounding", Decided: []string{" half-even ", ""}, Paths: []string{"src/billing.js"}})
	plan(PlanRequest{Text: "of another session", Author: Author{By: ByAgent, Session: "claude:s2"}})
	found := d.recall(RecallQuery{Path: "src"})
	if len(found) != 1 || found[0].Kind != "plan" || found[0].Text != "rewriting tax rounding; decided: half-even" || found[0].Name != "" || !slices.Equal(found[0].Paths, []string{"src/billing.js"}) {
		t.Errorf("%+v", found)
	}
	plan(PlanRequest{Decided: []string{"no floats"}})
	d.wantTexts(RecallQuery{}, "decided: no floats", "of another session")
	if s := plan(PlanRequest{Clear: true}); s.Kind != KindTombstone {
		t.Errorf("%+v", s)
	}
	d.wantTexts(RecallQuery{}, "of another session")
	if s := plan(PlanRequest{Clear: true}); s != nil {
		t.Errorf("cleared twice: %+v", s)
	}
	e := d.clone.NewEntry(SessionEnded)
	e.Event = &Event{Agent: "claude", Session: "s2"}
	if err := d.clone.Record(e); err != nil {
		t.Fatal(err)
	}
	d.wantTexts(RecallQuery{})
	for _, r := range []PlanRequest{{}, {Text: " ", Decided: []string{" "}}, {Text: "\xff"}, {Text: "x", Paths: []string{"nowhere"}}} {
		_, err := d.clone.SetPlan(ctx, d.tree, r)
		d.refused(err)
	}
	d.later(25 * time.Hour)
	d.wantTexts(RecallQuery{})
}

func TestCachedAnswersEndWithTheirFiles(t *testing.T) {
	d := newDesk(t)
	d.remember(RememberRequest{Kind: KindCache, Name: "where is money", Text: "in billing.js", Paths: []string{"src/billing.js"}})
	d.wantTexts(RecallQuery{}, "in billing.js")
	d.write("src/billing.js", "changed\n")
	d.wantTexts(RecallQuery{})
	if all := d.recall(RecallQuery{All: true}); len(all) != 1 || !all[0].Stale || all[0].Kind != "cache" {
		t.Errorf("%+v", all)
	}
	d.git("checkout", "-q", "src/billing.js")
	d.wantTexts(RecallQuery{}, "in billing.js")
	os.Remove(d.dir + "/src/billing.js")
	d.wantTexts(RecallQuery{})
	d.git("checkout", "-q", "src/billing.js")
	d.later(14 * 24 * time.Hour)
	d.wantTexts(RecallQuery{})
}

func TestRecall(t *testing.T) {
	d := newDesk(t)
	d.write("src/tax/a.js", lines(20))
	d.write("src/billing.js", lines(30))
	d.commit("two")
	d.remember(RememberRequest{Name: "money", Text: "All money is cents", Paths: []string{"src/billing.js"}, Author: person})
	d.later(time.Second)
	d.remember(RememberRequest{Name: "rounding", Text: "round money once", Paths: []string{"src/tax"}})
	d.later(time.Second)
	d.remember(RememberRequest{Name: "build", Text: "run make"})
	d.later(time.Second)
	d.remember(RememberRequest{Name: "scripts", Text: "are in sh", Paths: []string{"src/**/*.js"}})
	d.wantTexts(RecallQuery{}, "are in sh", "run make", "round money once", "All money is cents")
	d.wantTexts(RecallQuery{Words: []string{"MONEY"}}, "round money once", "All money is cents")
	d.wantTexts(RecallQuery{Words: []string{"money"}}, "All money is cents", "round money once") // the name comes first
	d.wantTexts(RecallQuery{Words: []string{"money", "once"}}, "round money once")
	d.wantTexts(RecallQuery{Words: []string{"make", "money", "nonsense"}}, "run make", "round money once", "All money is cents")
	d.wantTexts(RecallQuery{Words: []string{"nonsense"}})
	d.wantTexts(RecallQuery{Path: "src/billing.js"}, "are in sh", "All money is cents")
	d.wantTexts(RecallQuery{Path: "src/tax/a.js"}, "are in sh", "round money once")
	d.wantTexts(RecallQuery{Path: "src/tax/a.md"}, "round money once")
	d.wantTexts(RecallQuery{Path: "src"}, "are in sh", "round money once", "All money is cents")
	d.wantTexts(RecallQuery{Path: "docs"})
	d.git("mv", "src/billing.js", "money.js")
	d.wantTexts(RecallQuery{Path: "money.js"}, "All money is cents")
	d.write("money.js", lines(30, 5))
	d.commit("three")

	found := d.recall(RecallQuery{Words: []string{"money"}})[0]
	text, err := json.Marshal(found)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), `"kind":"fact"`) || !strings.Contains(string(text), `"author":"Priya"`) || !strings.Contains(string(text), `"stale":true`) || !strings.Contains(string(text), `"superseded_by":null`) || !strings.Contains(string(text), `"paths":["money.js"]`) {
		t.Errorf("%s", text)
	}
	if _, err := time.Parse("2006-01-02T15:04:05.000Z", found.At); err != nil {
		t.Error(err)
	}
	if empty := d.recall(RecallQuery{Words: []string{"nonsense"}}); empty == nil {
		t.Error("nothing found is not []")
	}
}

// A confirmation renews a fact: it is told once, as its author's, with who confirmed it and when. What a session records again
// of its own fact is nothing to tell.
func TestConfirmedFactIsToldOnce(t *testing.T) {
	ctx := context.Background()
	d := newDesk(t)
	session := Author{By: ByAgent, Session: "claude:s1"}
	first := d.remember(RememberRequest{Name: "money", Text: "floats", Paths: []string{"src/billing.js"}, Author: session})
	d.later(time.Hour)
	second := d.remember(RememberRequest{Name: "money", Text: "cents", Paths: []string{"src/billing.js"}, Author: session})
	told := func(confirmed *Confirmation) {
		t.Helper()
		story, err := d.clone.Why(ctx, d.tree, "src/billing.js", MillisOf(d.now))
		if err != nil {
			t.Fatal(err)
		}
		for what, facts := range map[string][]Recalled{"why": story.Facts, "recall --all": d.recall(RecallQuery{All: true})} {
			if len(facts) != 2 || facts[0].Text != "cents" || facts[1].Text != "floats" {
				t.Fatalf("%s: %+v", what, facts)
			}
			if f := facts[0]; f.SupersededBy != nil || f.Said != second.Time || !reflect.DeepEqual(f.Confirmed, confirmed) {
				t.Errorf("%s: said %d, confirmed %+v, superseded by %v; want said %d, confirmed %+v", what, f.Said, f.Confirmed, f.SupersededBy, second.Time, confirmed)
			}
			if f := facts[1]; f.SupersededBy == nil || f.Said != first.Time {
				t.Errorf("%s: the older words: %+v", what, f)
			}
		}
	}
	told(nil)
	d.later(time.Hour)
	d.write("src/billing.js", "let cents = 0\n")
	if err := d.clone.Rerecord(ctx, d.tree, session.Session, first.Time, []string{"src/billing.js"}); err != nil {
		t.Fatal(err)
	}
	told(nil)
	for range 2 {
		d.later(time.Hour)
		if _, err := d.clone.Confirm(ctx, d.tree, ConfirmRequest{Name: "money", Author: Author{By: ByPerson}}); err != nil {
			t.Fatal(err)
		}
		told(&Confirmation{By: "Priya", At: MillisOf(d.now)})
	}
	if _, err := d.clone.Forget(ctx, d.tree, ForgetRequest{Name: "money", Author: agent}); err != nil {
		t.Fatal(err)
	}
	if story, err := d.clone.Why(ctx, d.tree, "src/billing.js", MillisOf(d.now)); err != nil || slices.ContainsFunc(story.Facts, func(f Recalled) bool { return f.Text == "cents" }) {
		t.Errorf("forgotten, it is told all the same: %+v, %v", story, err)
	}
}

func TestWhy(t *testing.T) {
	ctx := context.Background()
	d := newDesk(t)
	first := d.git("rev-parse", "HEAD")
	d.remember(RememberRequest{Name: "money", Text: "floats", Paths: []string{"src/billing.js"}})
	d.later(time.Second)
	d.remember(RememberRequest{Name: "money", Text: "cents", Paths: []string{"src/billing.js"}})
	d.remember(RememberRequest{Name: "gone", Text: "forget me", Paths: []string{"src/billing.js"}})
	d.remember(RememberRequest{Name: "elsewhere", Text: "not here", Paths: []string{".gitignore"}[:0]})
	if _, err := d.clone.Forget(ctx, d.tree, ForgetRequest{Name: "gone", Author: agent}); err != nil {
		t.Fatal(err)
	}
	record := func(kind EntryKind, session, text string, paths ...string) {
		t.Helper()
		d.later(time.Second)
		e := d.clone.NewEntry(kind)
		e.Event = &Event{Agent: "claude", Session: session, Text: text, Branch: "refs/heads/main"}
		for _, p := range paths {
			e.Event.Paths = append(e.Event.Paths, EventPath{Path: p})
		}
		if err := d.clone.Record(e); err != nil {
			t.Fatal(err)
		}
	}
	record(IntentDeclared, "s1", "make the totals right")
	record(IntentDeclared, "s2", "something else")
	record(FileWritten, "s1", "", "src/billing.js")
	record(FileWritten, "s2", "", "src/other.js")
	d.git("mv", "src/billing.js", "src/money.js")
	moved := d.commit("move it")
	d.write("src/money.js", "let cents = 0\nlet more = 0\n")
	last := d.commit("more")
	record(FileWritten, "s1", "", "src/money.js")

	story, err := d.clone.Why(ctx, d.tree, "src/money.js", MillisOf(d.now))
	if err != nil {
		t.Fatal(err)
	}
	var facts, events, commits []string
	for _, f := range story.Facts {
		facts = append(facts, f.Text)
	}
	for _, e := range story.Events {
		events = append(events, e.Kind+" "+e.Session+" "+e.Member+" "+e.Text)
	}
	for _, k := range story.Commits {
		commits = append(commits, k.ID+" "+k.Author+" "+k.Subject)
	}
	if want := []string{"cents", "floats"}; !slices.Equal(facts, want) {
		t.Errorf("facts %q, want %q", facts, want)
	}
	if want := []string{"IntentDeclared s1 Priya make the totals right", "FileWritten s1 Priya ", "FileWritten s1 Priya "}; !slices.Equal(events, want) {
		t.Errorf("events %q, want %q", events, want)
	}
	author := d.git("log", "-1", "--format=%an")
	if want := []string{last + " " + author + " more", moved + " " + author + " move it", first + " " + author + " start"}; !slices.Equal(commits, want) {
		t.Errorf("commits %q, want %q", commits, want)
	}
	text, _ := json.Marshal(story)
	for _, key := range []string{`"path":"src/money.js"`, `"facts":[`, `"events":[{"at":"`, `"kind":"IntentDeclared"`, `"session":"s1"`, `"agent":"claude"`, `"branch":"refs/heads/main"`, `"commits":[{"id":"`, `"subject":"more"`} {
		if !strings.Contains(string(text), key) {
			t.Errorf("no %s in %s", key, text)
		}
	}
	// Intents are shown for 30 days.
	d.later(31 * 24 * time.Hour)
	story, err = d.clone.Why(ctx, d.tree, "src", MillisOf(d.now))
	if err != nil || len(story.Commits) != 3 || slices.ContainsFunc(story.Events, func(e StoryEvent) bool { return e.Text != "" }) {
		t.Errorf("%+v, %v", story, err)
	}
	story, err = d.clone.Why(ctx, d.tree, "nowhere", MillisOf(d.now))
	if text, _ := json.Marshal(story); err != nil || string(text) != `{"path":"nowhere","facts":[],"events":[],"commits":[]}` {
		t.Errorf("%s, %v", text, err)
	}
}

// A fact that one clone wrote is current in the other after a sync, fresh until somebody without knoot changes its file, and
// superseded there by what this one writes next.
func TestAFactInAnotherClone(t *testing.T) {
	ctx := context.Background()
	s := newStage(t)
	_, a, b := s.team()
	here := &desk{worktree: (&worktree{TB: t}).in(a.Repo.Root), clone: a, now: time.Now()}
	there := &desk{worktree: (&worktree{TB: t}).in(b.Repo.Root), clone: b, now: time.Now()}
	fact := here.remember(RememberRequest{Name: "money", Text: "cents", Paths: []string{"src/billing.js"}})
	s.sync(a)
	s.sync(b)
	found := there.recall(RecallQuery{})
	if len(found) != 1 || found[0].Text != "cents" || !found[0].Verdict.Fresh() || found[0].Author != "Priya" {
		t.Fatalf("%+v", found)
	}
	here.write("src/billing.js", "let cents = 0.5\n")
	here.git("add", "-A")
	here.git("-c", "user.name=Sam", "commit", "-q", "-m", "halves")
	here.git("push", "-q")
	there.git("pull", "-q")
	commit := there.git("rev-parse", "HEAD")
	there.want(there.recall(RecallQuery{})[0].Verdict, true, "Sam changed src/billing.js just now (commit "+commit[:7]+"), 1 of 1 line")

	confirmed, err := b.Confirm(ctx, there.tree, ConfirmRequest{Name: "money", Author: person})
	if err != nil {
		t.Fatal(err)
	}
	s.sync(b)
	s.sync(a)
	found = here.recall(RecallQuery{})
	if len(found) != 1 || found[0].ID != confirmed.ID().String() || !found[0].Verdict.Fresh() || found[0].Item.Origin.ID() != fact.ID() {
		t.Errorf("%+v", found)
	}
}

func FuzzParseArgument(f *testing.F) {
	for _, seed := range []string{"a", "a:1-2", "a:2-1", "a:0-0", ":1-2", "a:1-", "a:-1", "a:1", "./a//b/:3-4", "../x", "/", "a:99999999999-2", "a:1-2:3-4", "\xff:1-2", "a:１-２"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, typed string) {
		a, err := parseArgument(typed)
		if err != nil {
			var refusal *Refusal
			if !errors.As(err, &refusal) {
				t.Fatalf("%q: %v is no refusal", typed, err)
			}
			return
		}
		if a.path == "" || (a.first == 0) != (a.last == 0) || a.last < a.first {
			t.Fatalf("%q: %+v", typed, a)
		}
		if a.first == 0 {
			return
		}
		// What was split can be put together again and means the same.
		again, err := parseArgument(fmt.Sprintf("%s:%d-%d", a.path, a.first, a.last))
		if err != nil || again != a {
			t.Fatalf("%q: %+v, again %+v, %v", typed, a, again, err)
		}
	})
}

// Budget: 30 ms, of which `git hash-object` and `git check-ignore` are most; the whole of `knoot remember` without a daemon has
// 50 to 80.
func BenchmarkRefusalChecks(b *testing.B) {
	d := newDesk(b)
	d.write("src/tax.js", lines(400))
	d.commit("two")
	ctx := context.Background()
	for b.Loop() {
		d.open()
		if _, err := d.tree.paths(ctx, []string{"src/tax.js:10-20", "src/billing.js"}); err != nil {
			b.Fatal(err)
		}
		if Withheld("All money is integer cents; the token is in the store.") {
			b.Fatal("withheld")
		}
	}
}
