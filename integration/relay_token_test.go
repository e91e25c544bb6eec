package integration

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"knoot.dev/knoot/integration/stage"
)

// says waits until the machine's `knoot status` has all these words.
func (m *machine) says(t testing.TB, words ...string) {
	t.Helper()
	var said string
	await(t, m.Name+"'s status says "+strings.Join(words, ", "), func() bool {
		said = m.Try(m.dir, "", "knoot", "status").Stdout
		for _, word := range words {
			if !strings.Contains(said, word) {
				return false
			}
		}
		return true
	}, func() string { return said })
}

// A relay with an operator's token lets a team in once somebody shows it, and then needs it no more. A token that is replaced works
// beside the new one until it ends, and each use of it is logged.
func TestTheOperatorsToken(t *testing.T) {
	t.Parallel()
	r := stage.NewRelay(t, nil, stage.Address(t), "--token", "first-secret")
	begin := func(env ...string) *machine {
		t.Helper()
		m := newMachines(t, 1, r.Address, r.Key)[0]
		m.Extra = append(m.Extra, env...)
		m.start()
		m.session("one", "")
		return m
	}
	shop := begin()
	shop.says(t, "operator's token", "`knoot login --relay "+r.Address+" --token TOKEN`")
	token := filepath.Join(shop.Home, "token")
	shop.Write(token, "first-secret\n")
	shop.Knoot(shop.dir, "login", "--relay", r.Address, "--token", "@"+token)
	if info, err := os.Stat(filepath.Join(shop.KnootHome, "login.toml")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the token is kept as %v (%v)", info.Mode(), err)
	}
	shop.connected(t, "")
	shop.says(t, r.Address+", by quic")

	// The token is another one from now on, and the one before works for a while.
	r.Kill()
	r.With("--token", "second-secret", "--old-token", "first-secret")
	r.Start()
	wrong := begin("KNOOT_TOKEN=no-secret")
	wrong.says(t, "operator's token", "knoot login")
	old := begin("KNOOT_TOKEN=first-secret")
	old.Knoot(old.dir, "login", "--relay", r.Address, "--token", "no-secret") // the environment counts before it
	old.connected(t, "")
	begin("KNOOT_TOKEN=second-secret").connected(t, "")
	shop.connected(t, "")
	uses := 0
	for line := range strings.Lines(r.Log()) {
		if strings.Contains(line, "an old operator's token was used") {
			uses++
			if team := old.team(); !strings.Contains(line, team) && !strings.Contains(line, shop.team()) {
				t.Errorf("the log names neither team: %s", line)
			}
		}
	}
	if figure := fmt.Sprintf("knoot_relay_old_token_uses_total %d\n", uses); uses == 0 || !strings.Contains(figures(t, r), figure) {
		t.Errorf("%d uses are logged, and the figures lack %q", uses, figure)
	}

	// Then it has ended. Teams that are known need none.
	r.Kill()
	r.With("--token", "second-secret", "--old-token", "first-secret,2020-01-31")
	r.Start()
	late := begin("KNOOT_TOKEN=first-secret")
	late.says(t, "operator's token")
	shop.connected(t, "")
	old.connected(t, "")
	for _, secret := range []string{"first-secret", "second-secret", "no-secret"} {
		if strings.Contains(r.Log(), secret) {
			t.Errorf("%q is in the relay's log", secret)
		}
	}
}

// team is the id of the machine's team.
func (m *machine) team() string {
	settings, err := os.ReadFile(filepath.Join(m.dir, ".knoot.toml"))
	if err != nil {
		return err.Error()
	}
	for line := range strings.Lines(string(settings)) {
		if value, ok := strings.CutPrefix(line, "team = "); ok {
			return strings.Trim(strings.TrimSpace(value), `"`)
		}
	}
	return "no team"
}

// figures are what a relay says for Prometheus.
func figures(t testing.TB, r *stage.Relay) string {
	t.Helper()
	answer, err := http.Get("http://" + r.Admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
