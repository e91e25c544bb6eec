package integration

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"knoot.dev/knoot/integration/stage"
)

// Budget: a removal from a team of 20 devices, from the command to the new epoch on the host, takes 5 times one git push of as many
// files with as many bytes; whole processes, median of 5. Each removal leaves a device less, so it begins with 24.
func BenchmarkRemoval(b *testing.B) {
	const devices, removals, budget = 24, 5, 5.0
	for b.Loop() {
		host := stage.Host(b)
		ann := stage.NewPerson(b, "ann")
		hers := ann.Clone(host, "ann")
		ann.Knoot(hers, "init", "--no-recovery")
		ann.Git(hers, "add", "--all")
		ann.Git(hers, "commit", "--quiet", "--message", "knoot")
		ann.Git(hers, "push", "--quiet", "origin", "HEAD:main")
		for i := range devices - 1 {
			name := fmt.Sprint("p", i)
			var key struct {
				Key string `json:"key"`
			}
			if err := json.Unmarshal([]byte(ann.Knoot(hers, "member", "add", name+"@example.org", "--json")), &key); err != nil {
				b.Fatal(err)
			}
			p := stage.NewPerson(b, name)
			p.Knoot(p.Clone(host, "c"), "join", key.Key)
		}
		var removal, push []time.Duration
		for i := range removals {
			command := ann.Command(hers, "knoot", "member", "rm", fmt.Sprintf("p%d@example.org", i))
			began := time.Now()
			run(b, command)
			removal = append(removal, time.Since(began))

			// As many files, of as many bytes that cannot be packed, as the removal's commit has.
			for line := range strings.Lines(ann.Git(hers, "ls-tree", "-r", "-l", "refs/knoot/team/roster")) {
				fields := strings.Fields(line)
				size, err := strconv.Atoi(fields[3])
				if err != nil {
					b.Fatal(err)
				}
				text := make([]byte, size)
				_, _ = rand.Read(text) // never fails
				path := filepath.Join(hers, "same", filepath.Base(fields[4]))
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					b.Fatal(err)
				}
				if err := os.WriteFile(path, text, 0o644); err != nil {
					b.Fatal(err)
				}
			}
			ann.Git(hers, "add", "--all", "same")
			ann.Git(hers, "commit", "--quiet", "--message", "as much")
			command = ann.Command(hers, "git", "push", "--quiet", "origin", "HEAD:main")
			began = time.Now()
			run(b, command)
			push = append(push, time.Since(began))
		}
		slices.Sort(removal)
		slices.Sort(push)
		report(b, removal[removals/2], push[removals/2], budget)
	}
}
