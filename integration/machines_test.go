package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"knoot.dev/knoot/integration/stage"
)

// machine is somebody's computer: keys, a clone and a daemon of its own.
type machine struct {
	*stage.Person
	dir    string
	daemon *stage.Daemon
}

// slowHook is what no hook takes on a very busy machine either, where its process alone was seen to take four seconds: it gives up
// 300 ms after it has read its payload, and one that waited for a relay would wait longer than this.
const slowHook = 10 * time.Second

// crewNames are who the machines belong to, the founder first.
var crewNames = []string{"ana", "ben", "cleo", "dan", "eve"}

// newMachines makes so many machines of one team whose repository names a relay. Their daemons do not run yet.
func newMachines(t testing.TB, n int, address, key string) []*machine {
	t.Helper()
	return machinesOf(t, crewNames[:n], address, key)
}

func machinesOf(t testing.TB, names []string, address, key string) []*machine {
	t.Helper()
	host := stage.Host(t)
	machines := make([]*machine, len(names))
	for i, name := range names {
		p := stage.NewPerson(t, name)
		machines[i] = &machine{Person: p, dir: p.Clone(host, "shop")}
		t.Cleanup(func() {
			for file, what := range map[string]string{"knootd.log": "daemon", "failures": "hooks that failed"} {
				if text, err := os.ReadFile(filepath.Join(p.KnootHome, file)); err == nil && t.Failed() {
					t.Logf("%s's %s:\n%s", p.Name, what, text)
				}
			}
		})
		if i == 0 {
			p.Commit(machines[0].dir, "src/tax.js", "export const rate = 20\n", "Add tax")
			p.Knoot(machines[0].dir, "init", "--no-recovery", "--relay", address, "--relay-key", key)
			p.Git(machines[0].dir, "add", "--all")
			p.Git(machines[0].dir, "commit", "--quiet", "--message", "Set up knoot")
			p.Git(machines[0].dir, "push", "--quiet", "origin", "HEAD:main")
			continue
		}
		var made struct {
			Key string `json:"key"`
		}
		if err := json.Unmarshal([]byte(machines[0].Knoot(machines[0].dir, "member", "add", name+"@example.org", "--json")), &made); err != nil {
			t.Fatal(err)
		}
		p.Git(machines[i].dir, "pull", "--quiet", "origin", "main")
		p.Knoot(machines[i].dir, "join", made.Key)
	}
	for _, m := range machines { // else the first news that they have of each other would wait for it
		m.Knoot(m.dir, "sync")
	}
	return machines
}

// start starts the machine's daemon.
func (m *machine) start() { m.daemon = m.StartDaemon() }

// session begins a session of the machine that says what it does.
func (m *machine) session(id, intent string) stage.Session {
	s := stage.Session{Person: m.Person, ID: id, Dir: m.dir}
	s.Start()
	if intent != "" {
		s.Prompt(intent)
	}
	return s
}

// relayStatus is how the machine's clone stands with its relay.
type relayStatus struct {
	Open      bool   `json:"open"`
	Transport string `json:"transport"`
	Problem   string `json:"problem"`
}

func (m *machine) relay() (s relayStatus) {
	var state struct {
		Clones []struct {
			Common string       `json:"common"`
			Relay  *relayStatus `json:"relay"`
		} `json:"clones"`
	}
	m.Asked("state", m.dir, &state)
	for _, c := range state.Clones {
		if c.Relay != nil && c.Common == filepath.Join(m.dir, ".git") {
			return *c.Relay
		}
	}
	return s
}

// connected waits until claims of the machine are asked for at the relay, over a transport; "": over any.
func (m *machine) connected(t testing.TB, transport string) {
	t.Helper()
	await(t, m.Name+" is connected "+transport, func() bool {
		s := m.relay()
		return s.Open && (transport == "" || s.Transport == transport)
	}, func() string { return fmt.Sprintf("%+v", m.relay()) })
}

// cutOff waits until the machine knows that it has no relay.
func (m *machine) cutOff(t testing.TB) {
	t.Helper()
	await(t, m.Name+" knows that it is alone", func() bool { return !m.relay().Open }, nil)
}

// holders are the sessions that have claims of a file, as the machine sees it.
func (m *machine) holders(file string) []string { return holders(m.Person, m.dir, file) }

// holders are the sessions that have claims of a file in a person's repository.
func holders(p *stage.Person, dir, file string) []string {
	var standing struct {
		Sessions []struct {
			Session string `json:"session"`
			Claims  []struct {
				Path string `json:"path"`
			} `json:"claims"`
		} `json:"sessions"`
	}
	p.Asked("who", dir, &standing)
	var held []string
	for _, s := range standing.Sessions {
		for _, c := range s.Claims {
			if c.Path == file {
				held = append(held, s.Session)
			}
		}
	}
	slices.Sort(held)
	return held
}

// see waits until all machines see the same sessions, and those alone, with claims of a file.
func see(t testing.TB, machines []*machine, file string, sessions ...string) {
	t.Helper()
	for _, m := range machines {
		await(t, fmt.Sprintf("%s sees %s held by %q", m.Name, file, sessions), func() bool { return slices.Equal(m.holders(file), sessions) },
			func() string { return fmt.Sprintf("%q, relay %+v", m.holders(file), m.relay()) })
	}
}

// await waits until something is so; now says how it is, for a failure.
func await(t testing.TB, what string, is func() bool, now func() string) {
	t.Helper()
	began := time.Now()
	defer func() {
		if took := time.Since(began); took > 5*time.Second {
			t.Logf("%v until %s", took.Round(time.Millisecond), what)
		}
	}()
	for !is() {
		time.Sleep(5 * time.Millisecond)
		if time.Since(began) > 40*time.Second {
			how := ""
			if now != nil {
				how = ": " + now()
			}
			t.Fatalf("never: %s%s", what, how)
		}
	}
}

// refused asks for a file until it is refused, and returns why. On a busy machine a hook gives up and allows, or the relay's answer
// comes late: then the next is refused.
func refused(t testing.TB, s stage.Session, file string) (why string) {
	t.Helper()
	await(t, s.ID+" is refused "+file, func() bool { why = s.Asks(file); return why != "" }, func() string {
		return s.Person.Try(s.Dir, "", "knoot", "who", "--json").Stdout + s.Person.Try(s.Dir, "", "knoot", "why", "--json", file).Stdout +
			s.Person.Try(s.Dir, "", "knoot", "status").Stdout
	})
	return why
}

// allowed asks for a file until it is allowed.
func allowed(t testing.TB, s stage.Session, file string) {
	t.Helper()
	why := ""
	await(t, s.ID+" is allowed "+file, func() bool { why = s.Asks(file); return why == "" }, func() string { return why })
}

// has demands that a text has all these parts.
func has(t testing.TB, where, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s lacks %q: %q", where, part, text)
		}
	}
}
