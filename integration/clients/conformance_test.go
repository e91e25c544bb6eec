package clients

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// suite is a version of the conformance suite with a version of the protocol of which it knows what servers have to do.
type suite struct{ module, protocol string }

var suites = []suite{
	{"@modelcontextprotocol/conformance", "2025-06-18"},
	{"@modelcontextprotocol/conformance", "2025-11-25"},
	{"conformance-next", "2025-11-25"},
	{"conformance-next", sessionless},
}

func (s *suite) version(t *testing.T) string {
	return strings.TrimPrefix(locked(t, s.module), "npm:@modelcontextprotocol/conformance@")
}

// Every scenario for servers that the suite has is run. What fails is in not-applicable.txt with a reason, and what is there fails.
func TestConformance(t *testing.T) {
	dir, missing := folder(t)
	if err := able(client{name: "conformance", missing: missing}); err != nil {
		results.suite("conformance skipped: " + err.Error())
		t.Skip(err)
	}
	excuses := readExcuses(t)
	t.Run("suites", func(t *testing.T) {
		for _, suite := range suites {
			version := suite.version(t)
			t.Run(version+", "+suite.protocol, func(t *testing.T) {
				t.Parallel()
				var total, checked, held int
				var passed []string
				failed := false
				for name, checks := range conformance(t, dir, suite.module, suite.protocol) {
					total++
					fine := true
					for _, c := range checks {
						switch c.Status {
						case "SUCCESS":
							checked, held = checked+1, held+1
							continue
						case "FAILURE", "WARNING":
							checked++
						default: // it tells, or leaves out
							continue
						}
						fine = false
						if !excuses.has(suite.protocol, name, c.ID) {
							failed = true
							t.Errorf("%s, %s: %s: %s", name, c.ID, c.Status, c.ErrorMessage)
						}
					}
					if fine {
						passed = append(passed, name)
					}
				}
				if len(passed) == 0 {
					t.Errorf("of %d scenarios none passes", total)
				}
				verdict := "ok"
				if failed || len(passed) == 0 {
					verdict = "FAILED"
				}
				slices.Sort(passed)
				results.suite(fmt.Sprintf("conformance  %-14s  %s  %-6s  %d of %d scenarios and %d of %d checks pass, not-applicable.txt says why the others cannot: %s",
					version, suite.protocol, verdict, len(passed), total, held, checked, strings.Join(passed, ", ")))
			})
		}
	})
	for what := range excuses.reasons {
		if !excuses.used[what] {
			t.Errorf("not-applicable.txt: %s passes now, or is not there: take the line out", what)
		}
	}
}

// verdict is what the suite says of one thing that it looked at.
type verdict struct{ ID, Status, ErrorMessage string }

// conformance runs all scenarios of a suite for servers, and returns what came of each by its name.
func conformance(t *testing.T, dir, module, protocol string) map[string][]verdict {
	t.Helper()
	w := newWorld(t)
	e := w.agent(t, "alice")
	tap := newTap(t, e, e.Headers) // the suite sends no secret, and some of its scenarios no query
	out := t.TempDir()
	command := exec.CommandContext(deadline(t), node(dir), filepath.Join(dir, "node_modules", filepath.FromSlash(module), "dist", "index.js"), "server",
		"--url", e.through(tap.address()).URL, "--suite", "all", "--spec-version", protocol, "--output-dir", out)
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	printed, err := command.CombinedOutput() // an error if anything fails
	ran := regexp.MustCompile(`(?m)^[✓✗] ([a-z0-9-]+): \d+ passed, \d+ failed`).FindAllSubmatch(printed, -1)
	if len(ran) == 0 {
		t.Fatalf("the suite ran nothing: %v\n%s", err, printed)
	}
	came := map[string][]verdict{}
	for _, scenario := range ran {
		name := string(scenario[1])
		files, err := filepath.Glob(filepath.Join(out, "server-"+name+"-2*", "checks.json")) // a time follows the name
		if err != nil || len(files) != 1 {
			t.Fatalf("%s left %d results behind: %v", name, len(files), err)
		}
		text, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		var checks []verdict
		if err := json.Unmarshal(text, &checks); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		came[name] = checks
	}
	return came
}

// excuses say why something need not pass: a scenario, one of its checks, or a scenario in one version of the protocol.
type excuses struct {
	reasons map[string]string
	mu      sync.Mutex
	used    map[string]bool // guarded by mu
}

func readExcuses(t *testing.T) *excuses {
	t.Helper()
	text, err := os.ReadFile("not-applicable.txt")
	if err != nil {
		t.Fatal(err)
	}
	e := &excuses{reasons: map[string]string{}, used: map[string]bool{}}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		what, reason, found := strings.Cut(line, ": ")
		if !found || e.reasons[what] != "" {
			t.Fatalf("not-applicable.txt: %q has no reason, or is there twice", line)
		}
		e.reasons[what] = reason
	}
	return e
}

// has reports whether a check need not pass. That what is sent is as the protocol's schema says is no matter of what a server has.
func (e *excuses) has(protocol, scenario, check string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, what := range []string{scenario, scenario + " " + check, protocol + " " + scenario} {
		if e.reasons[what] != "" && check != "wire-schema-valid" {
			e.used[what] = true
			return true
		}
	}
	return false
}
