package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/gitlog"
)

// A daemon that is killed, again and again, loses nothing that it acknowledged and says nothing twice.
func TestKilledAtAnyPoint(t *testing.T) {
	kills := 100
	if testing.Short() {
		kills = 8
	}
	m := newMachine(t)
	r := m.repository("shop")
	var names []string           // of facts that were acknowledged
	written := map[string]bool{} // files whose FileWritten hook was answered
	told := map[string]int{}
	for i := range kills {
		p := m.startProcess("1.0.0")
		if line := p.says(t); line != "listening" {
			t.Fatal(line)
		}
		// It may be any moment: a random while after a random number of answers.
		answers, after := rand.IntN(6), time.Duration(rand.Int64N(int64(30*time.Millisecond)))
		answered := func() {
			if answers--; answers == -1 {
				time.AfterFunc(after, func() { _ = p.Process.Kill() })
			}
		}
		answered()
		for n := 0; ; n++ {
			name := fmt.Sprintf("fact-%d-%d", i, n)
			path := fmt.Sprintf("src/f%d-%d.js", i, n)
			r.write(path, name)
			h := &socket.Hook{Agent: "claude", Event: EventPostTool, Session: "one", Cwd: r.root, Payload: name,
				Places: []socket.Place{{Root: r.root, Writes: []string{path}}}}
			if _, err := m.ask(&socket.Request{Op: "hook", Hook: h}); err != nil {
				break
			}
			written[path] = true
			answered()
			body, err := json.Marshal(gitlog.RememberRequest{Name: name, Text: fmt.Sprintf("what %s is about, in %d words or %d", name, i, n*7), Paths: []string{path}, Yes: true})
			if err != nil {
				t.Fatal(err)
			}
			resp, err := m.ask(&socket.Request{Op: "remember", Dir: r.root, Body: body, Caller: &socket.Caller{Terminal: true}})
			if err != nil {
				break
			}
			if resp.Error != "" {
				t.Fatal(resp.Error)
			}
			names = append(names, name)
			answered()
			h = &socket.Hook{Agent: "claude", Event: EventPreTool, Session: "one", Cwd: r.root, Payload: "read " + name,
				Places: []socket.Place{{Root: r.root, Reads: []string{path}}}}
			if resp, err = m.ask(&socket.Request{Op: "hook", Hook: h}); err != nil {
				break
			}
			told[name] += strings.Count(resp.Answer.Context, "what "+name+" is about")
			answered()
		}
		_ = p.Process.Kill() // on a busy machine it may only have been late with an answer, and that is a moment, too
		p.says(t)
	}
	m.startProcess("1.0.0").says(t)
	for _, name := range names {
		path := "src/f" + strings.TrimPrefix(name, "fact-") + ".js"
		h := &socket.Hook{Agent: "claude", Event: EventPreTool, Session: "one", Cwd: r.root, Payload: "again " + name,
			Places: []socket.Place{{Root: r.root, Reads: []string{path}}}}
		told[name] += strings.Count(m.mustAsk(&socket.Request{Op: "hook", Hook: h}).Answer.Context, "what "+name+" is about")
	}
	if _, err := Stop(context.Background(), m.getenv); err != nil {
		t.Fatal(err)
	}
	repo, err := gitlog.FindRepository(context.Background(), r.root)
	if err != nil {
		t.Fatal(err)
	}
	clone, err := gitlog.OpenClone(context.Background(), repo, m.gitlogHome())
	if err != nil {
		t.Fatal(err)
	}
	defer clone.Close()
	have := map[string]bool{}
	for _, item := range clone.Memory().Current(gitlog.MillisOf(time.Now())) {
		if item.Fact != nil {
			have[item.Fact.Name] = true
		}
	}
	for _, name := range names {
		if !have[name] {
			t.Errorf("the fact %s was acknowledged and is lost", name)
		}
		if told[name] > 1 {
			t.Errorf("the fact %s was told %d times", name, told[name])
		}
	}
	for path := range written {
		if n := len(clone.Writes(path)); n != 1 {
			t.Errorf("the write of %s was acknowledged once and is there %d times", path, n)
		}
	}
	if len(clone.Problems()) > 0 {
		t.Errorf("problems: %+v", clone.Problems())
	}
	t.Logf("%d kills, %d facts, %d writes", kills, len(names), len(written))
}
