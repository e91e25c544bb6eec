package integration

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"knoot.dev/knoot/integration/stage"
)

// page gets one of the relay's pages.
func page(t testing.TB, client *http.Client, r *stage.Relay, path string) string {
	t.Helper()
	answer, err := client.Get("http://" + r.Admin + path)
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

// A relay whose state is on a disk of its own: it stands still, its disk is full, its state is lost and its key is not. Hooks succeed
// throughout, and nobody has two winners afterwards.
func TestARelayThatStandsStillHasNoDiskOrLosesItsState(t *testing.T) {
	t.Parallel()
	if output, err := exec.Command("unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "tmpfs", t.TempDir()).CombinedOutput(); err != nil {
		t.Skipf("no mount namespaces here: %v: %s", err, output)
	}
	disk := []string{"unshare", "--map-root-user", "--mount", "sh", "-eu", "-c", `mount -t tmpfs -o size=1m,mode=0700 tmpfs state; exec "$@"`, "sh"}
	relay := stage.NewRelay(t, disk, stage.Address(t), "--key", "relay.key")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	machines := newMachines(t, 2, relay.Address, relay.Key)
	for _, m := range machines {
		m.start()
	}
	one, two := machines[0].session("one", ""), machines[1].session("two", "")
	beside := machines[0].session("beside", "")
	connected := func(t *testing.T) {
		t.Helper()
		for _, m := range machines {
			m.connected(t, "")
		}
	}
	connected(t)
	takes(t, one, machines, "src/kept.js")
	held := time.Now()
	hooks := &toll{}
	asks := func(t *testing.T, s stage.Session, file string) bool { return hooks.hook(t, s, s.BeforeWrite(file)) }

	t.Run("it stands still", func(t *testing.T) {
		thaw := relay.Frozen()
		defer thaw()
		for i := range 3 {
			file := fmt.Sprintf("src/still%d.js", i)
			if asks(t, one, file) || asks(t, two, file) {
				t.Errorf("%s is refused, and nobody was there to say so", file)
			}
			refused(t, beside, file)
		}
		for _, m := range machines {
			m.cutOff(t)
		}
		thaw()
		connected(t)
		for i := range 3 {
			file := fmt.Sprintf("src/still%d.js", i)
			if holders := agreed(t, machines, file); len(holders) != 1 {
				t.Errorf("%s is held by %q", file, holders)
			}
		}
		see(t, machines, "src/kept.js", one.ID)
	})
	t.Run("its disk is full", func(t *testing.T) {
		filler := filepath.Join(fmt.Sprintf("/proc/%d/root", relay.Process()), relay.State, "filler")
		if err := os.WriteFile(filler, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		fill := func() {
			f, err := os.OpenFile(filler, os.O_WRONLY|os.O_APPEND, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			flood(f, make([]byte, 1<<10))
			flood(f, make([]byte, 1))
		}
		for n := 0; !strings.Contains(page(t, client, relay, "/health"), "no space"); n++ {
			if n == 2_000 {
				t.Fatal("the relay never says that its disk is full")
			}
			fill()
			asks(t, one, fmt.Sprintf("src/fill%d.js", n))
		}
		for i := range 3 {
			file := fmt.Sprintf("src/full%d.js", i)
			if asks(t, one, file) || asks(t, two, file) {
				t.Errorf("%s is refused, and nobody could say so", file)
			}
			refused(t, beside, file)
		}
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		await(t, "it works again", func() bool { return strings.HasPrefix(page(t, client, relay, "/health"), "ok") }, nil)
		connected(t)
		for i := range 3 {
			file := fmt.Sprintf("src/full%d.js", i)
			if holders := agreed(t, machines, file); len(holders) != 1 {
				t.Errorf("%s is held by %q", file, holders)
			}
		}
		see(t, machines, "src/kept.js", one.ID)
		refused(t, two, "src/kept.js")
	})
	t.Run("its state is lost", func(t *testing.T) {
		// A grant, by which a claim is known again, is signed for what has lived for 5 s; each machine has it once it was told.
		await(t, "the claim is old enough", func() bool { return time.Since(held) > 7*time.Second }, nil)
		relay.Kill()
		relay.Start()
		connected(t)
		has(t, "the relay's page", page(t, client, relay, "/status"), "The state was lost")
		see(t, machines, "src/kept.js", one.ID)
		has(t, "two", refused(t, two, "src/kept.js"), "ana's agent")
		for i := range 3 {
			file := fmt.Sprintf("src/grace%d.js", i)
			if asks(t, two, file) || asks(t, one, file) {
				t.Errorf("%s is refused in the time of grace", file)
			}
			refused(t, beside, file)
		}
	})
	t.Logf("%d hooks, %d of them refused, the slowest %v", hooks.hooks, hooks.denied, hooks.slowest.Round(time.Millisecond))
}
