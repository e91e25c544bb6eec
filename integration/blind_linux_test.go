package integration

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"knoot.dev/knoot/integration/stage"
)

// needles are texts that are looked for, each eight bytes of them.
type needles struct {
	of     map[uint64]string // what a text is, by eight bytes of it
	filter [1 << 16]bool     // by a hash of eight bytes: almost nothing is looked up
	texts  int
}

func hashOf(eight uint64) uint64 { return eight * 0x9e3779b97f4a7c15 >> 48 }

// word draws a text of letters and digits, such as stands nowhere else, and has it looked for.
func (n *needles) word(what string, size int) string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	text := make([]byte, size)
	_, _ = rand.Read(text) // never fails
	for i, b := range text {
		text[i] = letters[int(b)%len(letters)]
	}
	text[0] = letters[int(text[0])%26]
	return n.add(what, string(text))
}

func (n *needles) add(what, text string) string {
	n.texts++
	for i := 0; i+8 <= len(text); i++ {
		eight := binary.LittleEndian.Uint64([]byte(text[i : i+8]))
		n.of[eight], n.filter[hashOf(eight)] = what, true
	}
	return text
}

// in says which kinds of texts are in some bytes.
func (n *needles) in(content []byte) map[string]bool {
	found := map[string]bool{}
	eight := uint64(0)
	for _, b := range content {
		if eight = eight>>8 | uint64(b)<<56; n.filter[hashOf(eight)] {
			if what, is := n.of[eight]; is {
				found[what] = true
			}
		}
	}
	return found
}

// A day of three machines at a real relay: nothing that anybody named, said or wrote is in the relay's memory, state, log or pages, or
// in what travelled, nor are any eight bytes of it. `make blind` prints how much was searched.
func TestARelaySeesNothingOfADay(t *testing.T) {
	t.Parallel()
	hay := &needles{of: map[uint64]string{}}
	network := stage.NewNetwork(t)
	var mu sync.Mutex
	var travelled []byte
	packets := 0
	network.Tap(func(p *stage.Packet) {
		mu.Lock()
		defer mu.Unlock()
		packets++
		travelled = append(travelled, p.Bytes...)
	})
	at := network.Plug()
	relay := stage.NewRelay(t, at.Inside(), net.JoinHostPort(at.Address(), relayPort))
	client := &http.Client{Transport: &http.Transport{DialContext: at.Dial, DisableKeepAlives: true}}
	machines := machinesOf(t, []string{hay.word("a member's name", 12), hay.word("a member's name", 12), hay.word("a member's name", 12)}, relay.Address, relay.Key)
	for i, m := range machines {
		port := network.Plug()
		port.Set(stage.Weather{NoUDP: i == 2}) // one comes by TCP
		m.Inside = port.Inside()
		m.Extra = []string{"KNOOT_AGENT=" + hay.word("an agent's name", 12)}
		m.start()
	}
	session := func(m *machine, dir string) stage.Session {
		s := stage.Session{Person: m.Person, ID: hay.word("a session's id", 16), Dir: dir}
		s.Start()
		s.Prompt(hay.add("an intent", strings.Join([]string{hay.word("an intent", 9), hay.word("an intent", 9), hay.word("an intent", 9), hay.word("an intent", 9)}, " ")))
		return s
	}
	file := func() string {
		return hay.add("a path", hay.word("a path", 10)+"/"+hay.word("a path", 10)+"/"+hay.word("a path", 10)) + ".js"
	}
	one, two, three := session(machines[0], machines[0].dir), session(machines[1], machines[1].dir), session(machines[2], machines[2].dir)
	for i, m := range machines {
		m.connected(t, []string{"quic", "quic", "tcp"}[i])
	}
	searched, dumps := map[string]int{}, 0
	search := func(where string, content []byte) {
		searched[where] += len(content)
		for what := range hay.in(content) {
			t.Errorf("%s holds %s", where, what)
		}
	}
	dump := func() {
		dumps++
		if err := stage.Memory(relay.Process(), func(part []byte) { search("memory", part) }); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"/status", "/metrics", "/health"} {
			search("pages", []byte(page(t, client, relay, path)))
		}
	}

	// The morning: claims, denials, messages, facts, plans.
	held := file()
	takes(t, one, machines, held)
	denied := refused(t, two, held)
	has(t, "the denial", denied, held, one.Person.Name)
	refused(t, three, held)
	takes(t, three, machines, file())
	for i, m := range machines {
		text := hay.add("a message", hay.word("a message", 20)+" "+hay.word("a message", 20))
		m.Knoot(m.dir, "msg", "all", text)
		other := []stage.Session{two, three, one}[i]
		has(t, "another session", other.Hears("src/tax.js", text), text)
		m.Knoot(m.dir, "plan", "--decided", hay.add("a decision", hay.word("a decision", 20)), hay.add("a plan", hay.word("a plan", 20)))
	}
	fact := hay.word("a fact's name", 12)
	machines[0].Knoot(machines[0].dir, "remember", "--yes", "--name", fact, "--path", "src/tax.js", hay.add("a fact", hay.word("a fact", 20)+" "+hay.word("a fact", 20)))
	await(t, "the fact is known", func() bool {
		return strings.Contains(machines[1].Try(machines[1].dir, "", "knoot", "recall", "--json").Stdout, fact)
	}, nil)
	dump()

	// The afternoon: another branch in another worktree, a relay that is killed, a member who goes.
	branch := hay.word("a branch", 16)
	tree := filepath.Join(machines[1].Home, hay.word("a worktree's folder", 16))
	machines[1].Git(machines[1].dir, "worktree", "add", "--quiet", "-b", branch, tree)
	beside := session(machines[1], tree)
	beside.Write(file(), "text\n")
	one.Stop()
	see(t, machines, held)
	two.Hears("src/tax.js", held)
	allowed(t, two, held)
	see(t, machines, held, two.ID)
	person := machines[0].In(t) // and none of its agents
	person.Extra = nil
	person.Knoot(machines[0].dir, "take", held)
	relay.Kill()
	one.Write(file(), "text\n")
	relay.Start()
	for _, m := range machines {
		m.connected(t, "")
	}
	takes(t, two, machines, file())
	person.Knoot(machines[0].dir, "member", "rm", machines[2].Name+"@example.org")
	machines[1].Knoot(machines[1].dir, "sync")
	takes(t, one, machines[:2], file())
	for _, s := range []stage.Session{one, two, beside} {
		s.Stop()
		s.Hook("SessionEnd", map[string]any{"reason": "other"})
	}
	dump()

	// And it can be seen that there was something to find: the memory is read, and the machines' holds it.
	settings, err := os.ReadFile(filepath.Join(machines[0].dir, ".knoot.toml"))
	if err != nil {
		t.Fatal(err)
	}
	id := regexp.MustCompile(`team = "([0-9a-f]{64})"`).FindSubmatch(settings)
	if id == nil {
		t.Fatalf("no team in\n%s", settings)
	}
	team, _ := hex.DecodeString(string(id[1])) // it matched
	knows := false
	if err := stage.Memory(relay.Process(), func(part []byte) { knows = knows || strings.Contains(string(part), string(team)) }); err != nil || !knows {
		t.Errorf("the relay's memory lacks the team's id: it was not read (%v)", err)
	}
	there := map[string]bool{}
	if err := stage.Memory(machines[1].daemon.Process(), func(part []byte) { maps.Copy(there, hay.in(part)) }); err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"a path", "an intent", "a message", "a branch", "a member's name"} {
		if !there[what] {
			t.Errorf("%s is not in a daemon's memory either: the search finds nothing", what)
		}
	}

	relay.Terminate()
	search("log", []byte(relay.Log()))
	err = filepath.WalkDir(relay.State, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		search("state", append(content, path...))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	search("traffic", travelled)
	for _, where := range []string{"memory", "pages", "log", "state", "traffic"} {
		if searched[where] == 0 {
			t.Errorf("nothing of the %s was searched", where)
		}
	}
	t.Logf("%d texts, %d runs of 8 bytes of them (%s), are in none of: %d bytes of memory (%d dumps), %d of state, %d of log, %d of pages, %d of traffic in %d packets",
		hay.texts, len(hay.of), strings.Join(slices.Sorted(maps.Keys(there)), ", "), searched["memory"], dumps, searched["state"], searched["log"], searched["pages"],
		searched["traffic"], packets)
}
