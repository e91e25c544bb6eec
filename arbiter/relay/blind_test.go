package relay

import (
	"bytes"
	"crypto/ed25519"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/arbiter/wire"
	"knoot.dev/knoot/gitlog"
)

// A day's words, as devices seal them, are nowhere in what a relay has or shows, nor are any eight bytes of them.
func TestTheRelayLearnsNothing(t *testing.T) {
	t.Parallel()
	var log syncedBuffer
	h := newHost(t, func(o *Options) {
		o.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	c := newCrew(t, 1)
	ring, err := c.roster.OpenEpochs(c.founder)
	if err != nil {
		t.Fatal(err)
	}
	key := ring[gitlog.RoomEpoch{Room: c.roster.General, Number: 1}]
	tokens, err := key.TokenKey(c.team)
	if err != nil {
		t.Fatal(err)
	}
	const (
		file, branch, worktree = "src/payments/secret-plan.js", "refs/heads/rescue-the-merger", "/home/ann/work/acquisition"
		session, intent        = "session-of-ann-4711", "acquire Globex, quietly: Vaduz, Zug, Malmo"
	)
	secrets := []string{file, branch, worktree, session, intent, "ann@example.org", "src/payments", "one more"}
	counter := uint64(0)
	sealed := func(kind gitlog.EntryKind, text string) []byte {
		counter++
		data, err := gitlog.SealLive(c.founder, key, gitlog.LiveHeader{
			Team: c.team, Repository: c.repository, Session: tokens.Session(c.repository, c.founder.ID, "claude", session), Kind: kind, Counter: counter, Time: gitlog.Now(),
		}, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	who := arbiter.Who{
		Session: arbiter.Token(tokens.Session(c.repository, c.founder.ID, "claude", session)), Branch: arbiter.Token(tokens.Branch(c.repository, branch)),
		Worktree: arbiter.Token(tokens.Worktree(c.repository, c.founder.ID, worktree)),
	}
	secretPath := arbiter.Path{Own: arbiter.Token(tokens.Path(c.repository, file)), Ancestors: []arbiter.Token{
		arbiter.Token(tokens.Path(c.repository, "src/payments")), arbiter.Token(tokens.Path(c.repository, "src")), arbiter.Token(tokens.Path(c.repository, "")),
	}}

	a, b := newLink(t, h, c, c.founder), newLink(t, h, c, c.devices[1])
	head := c.roster.Head
	for _, request := range []wire.Message{
		&wire.Append{Repository: c.repository, Head: head, Acts: []arbiter.Request{
			arbiter.Declare{Event: arbiter.Event{Who: who, Kind: gitlog.SessionStarted, Detail: sealed(gitlog.SessionStarted, branch)}},
			arbiter.Declare{Event: arbiter.Event{Who: who, Kind: gitlog.IntentDeclared, Detail: sealed(gitlog.IntentDeclared, intent)}},
			arbiter.Declare{Event: arbiter.Event{Who: who, Kind: gitlog.Message, Detail: sealed(gitlog.Message, intent)}},
		}},
		&wire.Claim{Repository: c.repository, Head: head, Detail: sealed(gitlog.ClaimAcquired, file+worktree),
			Claim: arbiter.Claim{Who: who, Wants: []arbiter.Want{{ID: drawClaim(), Path: secretPath, Class: arbiter.File}}}},
		&wire.Append{Repository: c.repository, Head: head, Acts: []arbiter.Request{
			arbiter.Write{Who: who, Wants: []arbiter.Want{{Path: secretPath, Class: arbiter.File, Detail: sealed(gitlog.FileWritten, file)}}}}},
	} {
		answer, err := a.ask(request)
		if err != nil {
			t.Fatal(err)
		}
		a.reach(answer.Position)
		b.reach(answer.Position)
		notIn(t, "a request", wire.Encode(request), secrets)
	}
	b.mu.Lock()
	for _, e := range b.events {
		notIn(t, "an event", wire.EncodeEvent(&e), secrets)
		if e.Kind == gitlog.IntentDeclared { // and it is there for who has the key
			live, err := gitlog.ParseLive(e.Detail)
			if err != nil {
				t.Fatal(err)
			}
			if text, err := live.Open(c.founder.Sign.Public().(ed25519.PublicKey), key); err != nil || string(text) != intent {
				t.Errorf("the intent opens to %q (%v)", text, err)
			}
		}
	}
	snapshot := b.view.Snapshot()
	b.mu.Unlock()
	notIn(t, "a snapshot", wire.EncodeSnapshot(&snapshot), secrets)

	var page bytes.Buffer
	h.server.metrics.write(&page, h.server.gauges())
	st := h.server.status()
	st.write(&page)
	notIn(t, "the admin's pages", page.Bytes(), secrets)
	h.drain()
	notIn(t, "the log", []byte(log.String()), secrets)
	size := 0
	err = filepath.WalkDir(h.options.State, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		size += len(content)
		notIn(t, path, content, secrets)
		return err
	})
	if err != nil || size == 0 {
		t.Errorf("%d bytes of state were searched (%v)", size, err)
	}
	t.Logf("%d bytes of state, and all that travelled, hold none of %d secrets, nor any 8 bytes of one", size, len(secrets))
}

func notIn(t *testing.T, where string, content []byte, secrets []string) {
	t.Helper()
	for _, secret := range secrets {
		for i := 0; i+8 <= len(secret); i++ {
			if bytes.Contains(content, []byte(secret[i:i+8])) {
				t.Errorf("%s holds %q of %q", where, secret[i:i+8], secret)
				return
			}
		}
	}
}
