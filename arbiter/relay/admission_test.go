package relay

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"math/big"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/arbiter/wire"
	"knoot.dev/knoot/gitlog"
)

// opening tries to open the crew's repository with a device, and returns what comes of it.
func tryOpen(t testing.TB, h *host, c *crew, device *gitlog.Device, token string) (*link, error) {
	t.Helper()
	l := &link{t: t, crew: c, device: device, conn: dial(t, h, "quic", device)}
	return l, l.open(arbiter.Order{}, nil, token)
}

// What a relay accepts, in the order of the formats' page.
func TestWhoIsLetIn(t *testing.T) {
	t.Parallel()
	h := newHost(t, nil)
	c, other := newCrew(t, 1), newCrew(t, 0)
	stranger := drawDevice(t)

	if _, err := tryOpen(t, h, c, stranger, ""); !isFault(err, wire.NotAdmitted) {
		t.Errorf("a stranger who has the roster: %v", err)
	}
	if _, err := tryOpen(t, h, c, c.founder, ""); err != nil {
		t.Errorf("the founder: %v", err)
	}
	if _, err := tryOpen(t, h, other, c.founder, ""); !isFault(err, wire.NotAdmitted) {
		t.Errorf("a member of another team: %v", err)
	}
	wrong := *other
	wrong.team = c.team
	wrong.roster = other.roster
	if _, err := tryOpen(t, h, &wrong, other.founder, ""); err == nil {
		t.Error("another team's roster under this team's id lets its founder in")
	}
	elsewhere := *c
	elsewhere.repository = other.repository
	if _, err := tryOpen(t, h, &elsewhere, c.founder, ""); !isFault(err, wire.UnknownRepository) {
		t.Errorf("a repository that is not the team's: %v", err)
	}
	unheard := newCrew(t, 0)
	forged := *unheard
	forged.entries = [][]byte{append([]byte{}, unheard.entries[0]...)}
	forged.entries[0][len(forged.entries[0])-1] ^= 1
	if _, err := tryOpen(t, h, &forged, forged.founder, ""); !isFault(err, wire.RosterWrong) {
		t.Errorf("a forged genesis: %v", err)
	}
	h.server.mu.Lock()
	if h.server.teams[unheard.team] != nil {
		t.Error("a team without a roster is kept")
	}
	h.server.mu.Unlock()
	invited := newCrew(t, 0)
	var invitation *gitlog.Invitation
	invited.change(invited.founder, func(change *gitlog.RosterChange) (err error) {
		invitation, err = change.Invite("bob@example.org", "bob", "laptop")
		return err
	})
	if _, err := tryOpen(t, h, invited, invited.founder, ""); err != nil {
		t.Errorf("the founder of a team that invites: %v", err)
	}
	if chain := h.server.teams[invited.team].chain.Load(); chain.Live(invitation.Device()) {
		t.Error("an invitation's key is taken for a device")
	}
}

// A forged or foreign entry on top of a good chain is refused, and the chain stays.
func TestARosterThatIsNotRight(t *testing.T) {
	t.Parallel()
	h := newHost(t, nil)
	c := newCrew(t, 1)
	if _, err := tryOpen(t, h, c, c.founder, ""); err != nil {
		t.Fatal(err)
	}
	head := c.roster.Head
	bad := c.branch()
	bad.change(bad.founder, func(change *gitlog.RosterChange) error { return change.AddDevice(drawDevice(t), "three") })
	entry := append([]byte{}, bad.entries[len(bad.entries)-1]...)
	entry[len(entry)-1] ^= 1
	bad.entries[len(bad.entries)-1] = entry
	if _, err := tryOpen(t, h, bad, c.devices[1], ""); !isFault(err, wire.RosterWrong) {
		t.Errorf("a forged entry: %v", err)
	}
	if got := h.server.teams[c.team].chain.Load().Head(); got != head {
		t.Errorf("the head is %v, was %v", got, head)
	}
	// One that claims a head and shows nothing that leads there.
	liar := c.branch()
	liar.roster = bad.roster
	liar.entries = c.entries
	if _, err := tryOpen(t, h, liar, c.devices[1], ""); err == nil {
		t.Error("a head that nothing leads to is believed")
	}
	if _, err := tryOpen(t, h, c, c.devices[1], ""); err != nil {
		t.Errorf("others are not let in any more: %v", err)
	}
}

// A removal cuts the device's connection, ends its leases, and keeps it out, also after a restart and against a roster
// that is rolled back.
func TestARemovedDevice(t *testing.T) {
	t.Parallel()
	h := newHost(t, nil)
	c := newCrew(t, 1)
	gone := newLink(t, h, c, c.devices[1])
	if got := gone.claim("s", "auth.js"); got.Outcome != wire.Granted {
		t.Fatalf("%+v", got)
	}
	old := c.branch() // without the removal
	c.remove(c.devices[1])
	admin := newLink(t, h, c, c.founder)
	<-gone.conn.Done()
	if err := gone.conn.Err(); !isClosed(err, wire.Removed) {
		t.Errorf("its connection ended with %v", err)
	}
	if got := admin.claim("s", "auth.js"); got.Outcome != wire.Granted {
		t.Errorf("its lease goes on: %+v", got)
	}
	for _, restart := range []bool{false, true} {
		if restart {
			h.restart()
		}
		if _, err := tryOpen(t, h, c, c.devices[1], ""); !isFault(err, wire.NotAdmitted) {
			t.Errorf("restarted %v: it comes back: %v", restart, err)
		}
		if _, err := tryOpen(t, h, old, c.devices[1], ""); !isFault(err, wire.NotAdmitted) {
			t.Errorf("restarted %v: with a roster rolled back: %v", restart, err)
		}
	}
	// Who lags behind is sent what it lacks, and is let in.
	if _, err := tryOpen(t, h, old, c.founder, ""); err != nil {
		t.Errorf("a device that has not heard of the removal: %v", err)
	}
}

// A newer roster that comes by a request of its own cuts the removed one too, and claims by the old keys are stale.
func TestANewRosterInTheMiddle(t *testing.T) {
	t.Parallel()
	h := newHost(t, nil)
	c := newCrew(t, 2)
	a, b, gone := newLink(t, h, c, c.devices[0]), newLink(t, h, c, c.devices[1]), newLink(t, h, c, c.devices[2])
	before := c.branch()
	c.remove(c.devices[2])
	stream, err := a.conn.Open(within(t))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if err := stream.Send(wire.Encode(&wire.Roster{Repository: c.repository, Head: c.roster.Head})); err != nil {
		t.Fatal(err)
	}
	opened, err := meet(c, stream)
	if err != nil || opened.Head != c.roster.Head {
		t.Fatalf("told of it, the relay is at %+v (%v)", opened, err)
	}
	<-gone.conn.Done()
	b.await("b hears of the change", func() bool {
		for _, e := range b.events {
			if e.Kind == gitlog.RosterChanged && e.Device == c.devices[2].ID {
				return true
			}
		}
		return false
	})
	stale := b.claimOf("s", "a.js", drawClaim())
	stale.Head = before.roster.Head
	_, err = b.ask(stale)
	if !isFault(err, wire.RosterStale) || err.(*wire.Fault).Head != c.roster.Head {
		t.Errorf("a claim by the keys before: %v", err)
	}
	ahead := c.branch()
	ahead.change(ahead.founder, func(change *gitlog.RosterChange) error { return change.Rotate(ahead.roster.General) })
	early := b.claimOf("s", "a.js", drawClaim())
	early.Head = ahead.roster.Head
	if _, err := b.ask(early); !isFault(err, wire.RosterStale) {
		t.Errorf("a claim by keys that the relay has not heard of: %v", err)
	}
	if got := b.claim("s", "a.js"); got.Outcome != wire.Granted {
		t.Errorf("a claim by the keys now: %+v", got)
	}
	// A device that lags may ask for what it lacks.
	asking, err := b.conn.Open(within(t))
	if err != nil {
		t.Fatal(err)
	}
	defer asking.Close()
	if err := asking.Send(wire.Encode(&wire.Roster{Repository: c.repository, Head: before.roster.Head})); err != nil {
		t.Fatal(err)
	}
	reader := wire.NewRosterReader(before.roster.Head.Seq + 1)
	m, err := wire.ReceiveMessage(asking)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := reader.Take(m.(*wire.RosterPart))
	if err != nil || len(entries) != 1 || !bytes.Equal(entries[0], c.entries[len(c.entries)-1]) {
		t.Errorf("%d entries come (%v)", len(entries), err)
	}
}

// Of two branches the relay keeps the one that the rules prefer, whoever came first; an operator may name an entry.
func TestAForkedRoster(t *testing.T) {
	t.Parallel()
	fork := func() (base, removes, grows *crew) {
		base = newCrew(t, 1)
		var second *gitlog.Device
		base.change(base.founder, func(change *gitlog.RosterChange) error {
			second = drawDevice(t)
			base.devices = append(base.devices, second)
			return change.AddDevice(second, "second admin device")
		})
		removes, grows = base.branch(), base.branch()
		removes.remove(second)
		grows.change(second, func(change *gitlog.RosterChange) error { return change.AddDevice(drawDevice(t), "by who is removed") })
		grows.change(second, func(change *gitlog.RosterChange) error { return change.AddDevice(drawDevice(t), "and longer") })
		return base, removes, grows
	}
	for name, order := range map[string]bool{"the better one first": true, "the better one second": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, nil)
			_, removes, grows := fork()
			first, second := removes, grows
			if !order {
				first, second = grows, removes
			}
			for _, c := range []*crew{first, second} {
				if _, err := tryOpen(t, h, c, c.founder, ""); err != nil {
					t.Fatal(err)
				}
			}
			if got := h.server.teams[removes.team].chain.Load().Head(); got != removes.roster.Head {
				t.Errorf("the relay is at %v, want %v", got, removes.roster.Head)
			}
			h.restart()
			if got := h.server.teams[removes.team].chain.Load().Head(); got != removes.roster.Head {
				t.Errorf("after a restart it is at %v, want %v", got, removes.roster.Head)
			}
			if _, err := tryOpen(t, h, removes, removes.devices[2], ""); !isFault(err, wire.NotAdmitted) {
				t.Errorf("who is removed in the branch that counts: %v", err)
			}
		})
	}
	t.Run("the operator decides", func(t *testing.T) {
		t.Parallel()
		_, removes, grows := fork()
		hash := gitlog.HashEntry(grows.entries[len(grows.entries)-1])
		h := newHost(t, func(o *Options) { o.Teams = []TeamRule{{Team: grows.team, Entry: &hash}} })
		for _, c := range []*crew{removes, grows, removes} {
			if _, err := tryOpen(t, h, c, c.founder, ""); err != nil {
				t.Fatal(err)
			}
		}
		if got := h.server.teams[grows.team].chain.Load().Head(); got != grows.roster.Head {
			t.Errorf("the relay is at %v, want %v", got, grows.roster.Head)
		}
	})
}

func TestOtherTeamsAndTokens(t *testing.T) {
	t.Parallel()
	c, other := newCrew(t, 1), newCrew(t, 0)
	h := newHost(t, func(o *Options) { o.Teams = []TeamRule{{Team: c.team}} })
	if _, err := tryOpen(t, h, other, other.founder, ""); !isFault(err, wire.TeamNotServed) {
		t.Errorf("another team: %v", err)
	}
	if _, err := tryOpen(t, h, c, c.founder, ""); err != nil {
		t.Errorf("the team: %v", err)
	}

	var log syncedBuffer
	now := gitlog.Now()
	h = newHost(t, func(o *Options) {
		o.Token, o.Log = "new", slog.New(slog.NewTextHandler(&log, nil))
		o.OldTokens = []OldToken{{Token: "old"}, {Token: "ended", Until: now.Time().Add(-time.Hour)}, {Token: "soon", Until: now.Time().Add(time.Hour)}}
	})
	for _, token := range []string{"", "wrong", "ended"} {
		if _, err := tryOpen(t, h, c, c.founder, token); !isFault(err, wire.OperatorToken) {
			t.Errorf("with the token %q: %v", token, err)
		}
	}
	if strings.Contains(log.String(), "old operator's token") {
		t.Error("the use of an old token is logged, and there was none")
	}
	if _, err := tryOpen(t, h, c, c.founder, "new"); err != nil {
		t.Errorf("with the token: %v", err)
	}
	if _, err := tryOpen(t, h, c, c.devices[1], ""); err != nil {
		t.Errorf("a team that is known needs none: %v", err)
	}
	for _, token := range []string{"old", "soon"} {
		late := newCrew(t, 0)
		if _, err := tryOpen(t, h, late, late.founder, token); err != nil {
			t.Errorf("with the token %q: %v", token, err)
		}
		if !strings.Contains(log.String(), late.team.String()) {
			t.Errorf("the use of %q is not logged", token)
		}
	}
	if strings.Contains(log.String(), c.team.String()) {
		t.Error("the team that has the new one is named")
	}
	if _, err := tryOpen(t, h, c, c.devices[1], "old"); err != nil || !strings.Contains(log.String(), c.team.String()) {
		t.Errorf("a known team that still has the old one: %v, and it is not logged", err)
	}
	h.restart()
	if _, err := tryOpen(t, h, c, c.devices[1], ""); err != nil {
		t.Errorf("after a restart the team is known: %v", err)
	}
}

// A relay with a public authority's certificate is known by its name, and says which key its grants are signed with.
func TestACertificateInsteadOfThePin(t *testing.T) {
	t.Parallel()
	authority, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"relay.example"},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, authority.Public(), authority)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	h := newHost(t, func(o *Options) {
		o.Certificate = &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: authority}
	})
	certificate, err := wire.Certificate(drawDevice(t).Sign)
	if err != nil {
		t.Fatal(err)
	}
	for _, how := range []func(context.Context, string, *tls.Config, string) (wire.Conn, *wire.Welcome, error){wire.DialQUIC, wire.DialTCP} {
		config := wire.ClientTLS(certificate, nil, "relay.example")
		config.RootCAs = x509.NewCertPool()
		config.RootCAs.AddCert(parsed)
		conn, welcome, err := how(within(t), h.address, config, "test")
		if err != nil {
			t.Fatal(err)
		}
		if wire.PinOf(welcome.Key[:]) != h.server.Pin() {
			t.Error("it names another key than its own")
		}
		conn.Close(0, "")
		config.ServerName = "another.example"
		if _, _, err := how(within(t), h.address, config, "test"); err == nil {
			t.Error("it is taken for a relay of another name")
		}
		pin := h.server.Pin()
		if _, _, err := how(within(t), h.address, wire.ClientTLS(certificate, &pin, ""), "test"); err == nil {
			t.Error("a pinned key is not asked for")
		}
	}
}

// syncedBuffer is a log that a test reads while it is written.
type syncedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncedBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncedBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// A long roster is checked in portions: what was checked stays, and the device comes back for the rest.
func TestALongRoster(t *testing.T) {
	t.Parallel()
	h := newHost(t, func(o *Options) { o.Limits.RosterBurst, o.Limits.RosterRate = 8, 1_000 })
	c := newCrew(t, 0)
	for range 20 {
		c.change(c.founder, func(change *gitlog.RosterChange) error {
			var id gitlog.RepositoryID
			_, _ = rand.Read(id[:])
			return change.AddRepository(id)
		})
	}
	tries := 0
	for ; tries < 50; tries++ {
		_, err := tryOpen(t, h, c, c.founder, "")
		if err == nil {
			break
		}
		if !isFault(err, wire.SlowDown) || err.(*wire.Fault).After == 0 {
			t.Fatal(err)
		}
	}
	if tries == 0 || tries == 50 {
		t.Errorf("let in after %d tries", tries)
	}
}

// What a crash left of a roster's file is cut, and a file that is another team's is no roster.
func TestRosterFiles(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	c := newCrew(t, 0)
	c.change(c.founder, func(change *gitlog.RosterChange) error { return change.AddDevice(drawDevice(t), "two") })
	if _, err := readTeams(state); err != nil { // makes the folder
		t.Fatal(err)
	}
	whole := []byte(teamMagic)
	for _, entry := range c.entries {
		whole = appendRecord(whole, entry)
	}
	path := teamPath(state, c.team)
	for _, cut := range []int{0, 5, len(teamMagic), len(teamMagic) + 3, len(whole) - 1, len(whole)} {
		if err := os.WriteFile(path, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		teams, err := readTeams(state)
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		known := teams[c.team]
		want := 0
		switch {
		case cut == len(whole):
			want = 2
		case cut == len(whole)-1:
			want = 1
		}
		if (known == nil) != (want == 0) || known != nil && known.chain.Load().Len() != want {
			t.Errorf("cut at %d: %+v, want %d entries", cut, known, want)
		}
		if known != nil {
			if _, _, err := known.learn(uint64(want), c.entries[want:]); err != nil || known.chain.Load().Len() != 2 {
				t.Errorf("cut at %d: it does not go on: %v", cut, err)
			}
			if entry, err := known.entry(1); err != nil || !bytes.Equal(entry, c.entries[1]) {
				t.Errorf("cut at %d: the last entry reads as another (%v)", cut, err)
			}
			if err := known.close(); err != nil {
				t.Error(err)
			}
		}
	}
	if err := os.WriteFile(teamPath(state, gitlog.TeamID{7}), whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readTeams(state); err == nil {
		t.Error("a roster under another team's name is taken")
	}
}
