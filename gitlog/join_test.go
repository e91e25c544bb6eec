package gitlog

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A colleague has a home of their own and clones of the stage's host.
type colleague struct {
	*stage
	name string
}

// newTeam makes a host with a team on it, and its founder's clone `ann`.
func newTeam(t testing.TB, o InitOptions) (*colleague, *Clone, *InitReport) {
	t.Helper()
	s := newStage(t)
	s.git(".", "init", "-q", "--bare", "host.git")
	repo := s.repository("ann")
	s.git("ann", "remote", "add", "origin", filepath.Join(s.dir, "host.git"))
	s.git("ann", "push", "-q", "-u", "origin", "main")
	ann := s.colleague("ann")
	o.Name, o.Address, o.Label = "Ann", "ann@example.com", "ann's laptop"
	report, err := Init(context.Background(), repo, ann.home, o)
	if err != nil || !report.OnHost {
		t.Fatalf("%v: %+v", err, report)
	}
	s.git("ann", "add", ".knoot.toml")
	s.git("ann", "commit", "-q", "-m", "knoot")
	s.git("ann", "push", "-q")
	return ann, ann.open(repo, true), report
}

// colleague is somebody with a home of their own.
func (s *stage) colleague(name string) *colleague {
	own := *s
	own.home = &Home{Dir: filepath.Join(s.dir, "homes", name)}
	return &colleague{&own, name}
}

// clone clones the host.
func (p *colleague) clone(name string) *Repository {
	p.t.Helper()
	p.git(".", "clone", "-q", "host.git", name)
	return p.find(name)
}

// join joins with a key, or asks.
func (p *colleague) join(repo *Repository, key string) (*JoinReport, error) {
	return Join(context.Background(), repo, p.home, JoinOptions{Key: key, Name: p.name, Address: p.name + "@example.com", Label: p.name + "'s laptop"})
}

func (p *colleague) change(c *Clone, change func(*RosterChange) error) *Roster {
	p.t.Helper()
	r, err := c.ChangeRoster(context.Background(), SyncOptions{}, change)
	if err != nil {
		p.t.Fatal(err)
	}
	return r
}

// invite has an admin make a key.
func (p *colleague) invite(c *Clone, address string) *Invitation {
	p.t.Helper()
	var made *Invitation
	p.change(c, func(change *RosterChange) (err error) {
		made, err = change.Invite(address, "", "laptop")
		return err
	})
	return made
}

// comes brings a new member in by a key, with a clone opened for writing.
func (p *colleague) comes(admin *Clone) *Clone {
	p.t.Helper()
	repo := p.clone(p.name)
	if _, err := p.join(repo, p.invite(admin, p.name+"@example.com").Key()); err != nil {
		p.t.Fatal(err)
	}
	return p.open(repo, true)
}

func remember(t testing.TB, c *Clone, name string) {
	t.Helper()
	if err := c.Append(context.Background(), factOf(c, name, "text of "+name)); err != nil {
		t.Fatal(err)
	}
}

// knows lists the names of the facts that a clone can read.
func knows(c *Clone) string {
	var names []string
	for _, s := range c.entries {
		if s.Fact != nil {
			names = append(names, s.Fact.Name)
		}
	}
	return strings.Join(sortedStrings(names), " ")
}

func sortedStrings(s []string) []string {
	for i := range s {
		for j := i; j > 0 && s[j] < s[j-1]; j-- {
			s[j], s[j-1] = s[j-1], s[j]
		}
	}
	return s
}

func wantError(t testing.TB, err error, words string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("%v, want a sentence with %q", err, words)
	}
}

func TestJoinWithAKey(t *testing.T) {
	ann, a, _ := newTeam(t, InitOptions{})
	remember(t, a, "before")
	ann.sync(a)
	invitation := ann.invite(a, "bob@example.com")
	bob := ann.colleague("bob")
	repo := bob.clone("bob")
	report, err := bob.join(repo, "  "+invitation.Key()[:100]+"\n"+invitation.Key()[100:]+" ")
	if err != nil || report.Waiting || report.Member != "bob@example.com" {
		t.Fatalf("%v: %+v", err, report)
	}
	b := bob.open(repo, true)
	if got := knows(b); got != "before" {
		t.Errorf("bob reads %q", got)
	}
	remember(t, b, "bob's")
	bob.sync(b)
	ann.sync(a)
	if got := knows(a); got != "before bob's" {
		t.Errorf("ann reads %q", got)
	}
	if name := a.MemberName(b.device.ID); name != "bob@example.com" {
		t.Errorf("ann sees %q", name)
	}
	if r := a.Roster(); len(r.Devices) != 2 || len(r.Rooms[r.General].Epochs) != 2 {
		t.Errorf("%d devices, %d epochs: the invitation's key stays worth something", len(r.Devices), len(r.Rooms[r.General].Epochs))
	}

	// Again on the same laptop: nothing to do. On another: it is used.
	if again, err := bob.join(ann.find("bob"), ""); err == nil {
		t.Errorf("the clone was not locked: %+v", again)
	}
	b.Close()
	if report, err := bob.join(repo, invitation.Key()); err != nil || report.Member != "bob@example.com" {
		t.Errorf("%v: %+v", err, report)
	}
	eve := ann.colleague("eve")
	_, err = eve.join(eve.clone("eve"), invitation.Key())
	wantError(t, err, "was used already")
}

func TestKeysThatDoNotOpen(t *testing.T) {
	ann, a, _ := newTeam(t, InitOptions{})
	old := ann.invite(a, "bob@example.com")
	bob := ann.colleague("bob")
	repo := bob.clone("bob")

	text := old.Key()
	for _, broken := range []string{"hello", text[:len(text)-1], text + "A", strings.Replace(text, "knoot-join-", "knoot-recovery-", 1), text[:40] + "B" + text[41:]} {
		_, err := bob.join(repo, broken)
		if wantError(t, err, "copy it again"); err != nil && strings.Contains(err.Error(), text[20:40]) {
			t.Errorf("the error repeats the key: %v", err)
		}
	}

	other := *old
	other.Team[0] ^= 1
	_, err := bob.join(repo, other.Key())
	wantError(t, err, "is for the team")

	ahead := *old
	ahead.Head.Seq += 2
	_, err = bob.join(repo, ahead.Key())
	wantError(t, err, "holds entries back")

	unknown := *old
	if unknown.device, err = drawDevice(); err != nil {
		t.Fatal(err)
	}
	_, err = bob.join(repo, unknown.Key())
	wantError(t, err, "has no such key")

	// Eight days later.
	expired := *old
	expired.Expires = Now() - 1
	_, err = bob.join(repo, expired.Key())
	wantError(t, err, "more than 7 days old")
	a.now = func() time.Time { return time.Now().Add(8 * 24 * time.Hour) }
	if n, err := a.CancelExpired(context.Background()); n != 1 || err != nil {
		t.Fatalf("%d cancelled: %v", n, err)
	}
	if r := a.Roster(); r.FindMember("bob@example.com") != nil || len(r.Rooms[r.General].Epochs) != 2 {
		t.Errorf("what the expired key opens is still in use: %+v", r.Members)
	}
	if n, err := a.CancelExpired(context.Background()); n != 0 || err != nil {
		t.Errorf("%d cancelled again: %v", n, err)
	}
	_, err = bob.join(repo, old.Key())
	wantError(t, err, "was taken back")
	if refs := ann.git("bob", "for-each-ref", "refs/knoot"); refs != "" {
		t.Errorf("a key that opened nothing left %s", refs)
	}
}

// A host that shows a key's user an older roster is refused before anything of it is taken over.
func TestAHostThatHoldsBack(t *testing.T) {
	ann, a, _ := newTeam(t, InitOptions{})
	old := strings.TrimSpace(ann.git("host.git", "rev-parse", rosterRef))
	invitation := ann.invite(a, "bob@example.com")
	ann.git("host.git", "update-ref", rosterRef, old)
	bob := ann.colleague("bob")
	_, err := bob.join(bob.clone("bob"), invitation.Key())
	wantError(t, err, "holds entries back")
}

func TestJoinByRequest(t *testing.T) {
	ctx := context.Background()
	ann, a, _ := newTeam(t, InitOptions{})
	remember(t, a, "before")
	ann.sync(a)
	bob := ann.colleague("bob")
	repo := bob.clone("bob")
	asked, err := bob.join(repo, "")
	if err != nil || !asked.Waiting {
		t.Fatalf("%v: %+v", err, asked)
	}
	b := bob.open(repo, true)
	if waiting, err := b.Waiting(ctx); err != nil || waiting == nil || waiting.Fingerprint() != asked.Fingerprint {
		t.Errorf("waiting: %+v, %v", waiting, err)
	}
	wantError(t, b.Append(ctx, factOf(b, "early", "text")), "not in the team")
	if len(b.Problems()) > 0 {
		t.Errorf("waiting is a problem: %v", b.Problems())
	}
	b.Close()
	// Asking again is the same request.
	if again, err := bob.join(repo, ""); err != nil || again.Fingerprint != asked.Fingerprint || !again.Expires.Equal(asked.Expires) {
		t.Errorf("%v: %+v, want %+v", err, again, asked)
	}

	// What the host sees of it names nobody.
	content := ann.git("host.git", "cat-file", "-p", "refs/knoot/team/request/"+asked.Device.String()+":request")
	if strings.Contains(content, "bob") {
		t.Error("the request says in clear who asks")
	}

	ann.sync(a)
	requests, dropped, err := a.Requests(ctx)
	if err != nil || dropped != 0 || len(requests) != 1 {
		t.Fatalf("%v %d %v", requests, dropped, err)
	}
	q := requests[0]
	if q.Device != asked.Device || q.Fingerprint() != asked.Fingerprint || q.Name != "bob" || q.Address != "bob@example.com" || q.Label != "bob's laptop" {
		t.Errorf("%+v", q)
	}
	ann.change(a, func(change *RosterChange) error { return change.Admit(q, "bob@example.com", "") })
	if err := a.DropRequest(ctx, q.Device); err != nil {
		t.Error(err)
	}
	if requests, _, err := a.Requests(ctx); err != nil || len(requests) != 0 {
		t.Errorf("answered and still listed: %v, %v", requests, err)
	}

	b = bob.open(repo, true)
	bob.sync(b)
	if got := knows(b); got != "before" {
		t.Errorf("bob reads %q", got)
	}
	remember(t, b, "bob's")
	bob.sync(b)
	ann.sync(a)
	if got := knows(a); got != "before bob's" {
		t.Errorf("ann reads %q", got)
	}
	if waiting, err := b.Waiting(ctx); waiting != nil || err != nil {
		t.Errorf("still waiting: %+v, %v", waiting, err)
	}
	if bobsTeam := b.Roster(); bobsTeam.FindMember("bob@example.com").Name != "bob" || bobsTeam.Devices[b.device.ID].Label != "bob's laptop" {
		t.Error("the request's name and label did not come along")
	}
	// A second laptop of the same person becomes theirs.
	second := ann.colleague("bob")
	second.home = &Home{Dir: filepath.Join(ann.dir, "homes", "bob2")}
	if _, err := second.join(second.clone("bob2"), ""); err != nil {
		t.Fatal(err)
	}
	ann.sync(a)
	requests, _, err = a.Requests(ctx)
	if err != nil || len(requests) != 1 {
		t.Fatal(requests, err)
	}
	r := ann.change(a, func(change *RosterChange) error { return change.Admit(requests[0], "BOB@example.com", "") })
	if len(r.Members) != 2 || len(r.DevicesOf(r.FindMember("bob@example.com").ID)) != 2 {
		t.Errorf("%d members", len(r.Members))
	}
}

// Junk in the place of requests hides no right one, and what asks too much is counted, not shown.
func TestManyRequests(t *testing.T) {
	ctx := context.Background()
	ann, a, _ := newTeam(t, InitOptions{})
	objects, err := a.store(ctx)
	if err != nil {
		t.Fatal(err)
	}
	refs := openRefs(a.Repo)
	put := func(device DeviceID, data []byte) {
		tip, err := objects.writeCommit(ctx, "", map[string][]byte{requestFile: data}, time.Unix(1_700_000_000, 0))
		if err != nil {
			t.Fatal(err)
		}
		if err := refs.create(ctx, a.remote.inbox+"team/request/"+device.String(), tip); err != nil {
			t.Fatal(err)
		}
	}
	now := Now()
	ask := func(at Millis) (*Device, []byte) {
		device, err := drawDevice()
		if err != nil {
			t.Fatal(err)
		}
		data, err := encodeRequest(device, a.roster, &JoinRequest{Time: at, Name: "x\x1b[2J", Label: strings.Repeat("é", 300)})
		if err != nil {
			t.Fatal(err)
		}
		return device, data
	}
	for i := range Millis(maxRequests + 3) {
		device, data := ask(now - i)
		put(device.ID, data)
	}
	tooOld, data := ask(now - 8*24*3600*1000)
	put(tooOld.ID, data)
	ahead, data := ask(now + 3600*1000)
	put(ahead.ID, data)
	_, others := ask(now)
	put(DeviceID{1}, others)
	put(DeviceID{2}, []byte("junk"))
	requests, dropped, err := a.Requests(ctx)
	if err != nil || len(requests) != maxRequests || dropped != 3 {
		t.Fatalf("%d requests, %d dropped, %v", len(requests), dropped, err)
	}
	for i, q := range requests {
		if q.Time != now-Millis(i) || q.Name != "x[2J" || len(q.Label) > maxRequestText {
			t.Fatalf("request %d: %+v", i, q)
		}
	}
	_ = ann
}

func TestRecovery(t *testing.T) {
	ann, a, report := newTeam(t, InitOptions{Recovery: true})
	remember(t, a, "before")
	ann.sync(a)
	lost := a.device.ID
	a.Close()
	if !strings.HasPrefix(report.Recovery, "knoot-recovery-") {
		t.Fatalf("recovery key %q", report.Recovery)
	}
	// The laptop is gone; a new one, and the sheet of paper.
	again := ann.colleague("ann2")
	repo := again.clone("ann2")
	joined, err := again.join(repo, report.Recovery)
	if err != nil || joined.Member != "Ann" {
		t.Fatalf("%v: %+v", err, joined)
	}
	c := again.open(repo, true)
	if got := knows(c); got != "before" {
		t.Errorf("the new laptop reads %q", got)
	}
	r := again.change(c, func(change *RosterChange) error { return change.RemoveDevice(lost, 0) })
	if len(r.Devices) != 2 || r.Devices[lost] != nil {
		t.Errorf("devices %v", r.Devices)
	}
	if got := knows(c); got != "before" {
		t.Errorf("after the removal it reads %q", got)
	}
	_, err = ann.join(ann.find("ann"), "")
	wantError(t, err, "never comes back")
}

func TestTheLastAdminDeviceSaysSo(t *testing.T) {
	ann, a, _ := newTeam(t, InitOptions{})
	for what, change := range map[string]func(*RosterChange) error{
		"device":  func(c *RosterChange) error { return c.RemoveDevice(a.device.ID, 0) },
		"member":  func(c *RosterChange) error { return c.RemoveMember("ann@example.com", 0) },
		"dismiss": func(c *RosterChange) error { return c.DismissAdmin("ann@example.com") },
	} {
		_, err := a.ChangeRoster(context.Background(), SyncOptions{}, change)
		if err == nil || !strings.Contains(err.Error(), "last device that can change the team") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if a.Roster().Head.Seq != 0 {
		t.Error("the roster moved")
	}
	_ = ann
}

// Many pairs of a room and a device do not fit one entry, and it says how many do.
func TestAChangeThatDoesNotFit(t *testing.T) {
	d := newDrawn(t)
	d.cheap = true
	d.draw("A: team")
	r := d.state
	ann := d.members["ann"]
	recipient := d.device("A").Age.Recipient().String()
	for i := range 4_000 {
		id := DeviceID{1, byte(i >> 8), byte(i)}
		r.Devices[id] = &RosterDevice{ID: id, Recipient: recipient, Member: ann}
	}
	r.keyFiles = map[keyFileName][]byte{{RoomEpoch{r.General, 1}, d.device("A").ID}: r.keyFiles[keyFileName{RoomEpoch{r.General, 1}, d.device("A").ID}]}
	c := &RosterChange{before: r, next: r.clone(), signer: d.device("A"), ring: Keyring{}, now: d.clock, names: Names{},
		work: &entryWork{e: &rosterEntry{kid: d.device("A").ID, seq: 1, time: d.clock}, by: r.authorOf(d.device("A").ID), begin: map[RoomID]bool{}, begun: map[RoomID]bool{}}}
	if err := c.Rotate(r.General); err != nil {
		t.Fatal(err)
	}
	_, _, err := c.build()
	wantError(t, err, fmt.Sprintf("%d pairs", 4_001))
	wantError(t, err, "change fewer")
}

func FuzzParseInvitation(f *testing.F) {
	device, err := drawDevice()
	if err != nil {
		f.Fatal(err)
	}
	f.Add((&Invitation{Expires: 1, device: device}).Key())
	f.Add((&Invitation{Recovery: true, device: device}).Key())
	f.Add("knoot-join-")
	f.Fuzz(func(t *testing.T, text string) {
		key, err := ParseInvitation(text)
		if err == nil && key.Key() != strings.Join(strings.Fields(text), "") {
			t.Errorf("%q is read as %q", text, key.Key())
		}
	})
}

func FuzzParseRequest(f *testing.F) {
	d := draw(f, "A: team")
	data, err := encodeRequest(d.device("B"), d.state, &JoinRequest{Time: d.clock, Name: "bob", Address: "bob@example.org", Label: "laptop"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(data[:len(data)-1])
	f.Fuzz(func(t *testing.T, data []byte) {
		q, err := parseRequest(data, d.state.Team)
		if err == nil {
			_ = q.openTexts(d.state.General, d.keys)
			_ = q.Fingerprint()
		}
	})
}

// rounds is how often the races are run: a few in `go test`, KNOOT_ROUNDS in `make rounds`.
func rounds(t testing.TB, few int) int {
	n := few
	if text := os.Getenv("KNOOT_ROUNDS"); text != "" {
		if _, err := fmt.Sscan(text, &n); err != nil {
			t.Fatal(err)
		}
	}
	return n
}
