package daemon

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"knoot.dev/knoot/gitlog"
)

func TestConfig(t *testing.T) {
	c, err := ParseConfig(`
# mine
[daemon]
autostart = false
[brief]
turn = 500
invite = false
[sync]
every = "90s"
[memory]
agent_facts = "review"
[share]
intent = "off"
[claims]
mode = "note"
[mcp]
port = 1
tools = ["memory"]
[autopilot]
enabled = true
endpoint = "http://[::1]:8080/"
model = "small"
[source]
folder = "~/src"
[templates.reviewer]
type = "claude"
tags = ["go", "review"]
cost = "low"
[agents.claude]
command = ["claude"]
[brief.colour]
red = 1
[later]
x = 1
`)
	if err != nil {
		t.Fatal(err)
	}
	if c.Daemon.Autostart || c.Brief.Turn != 500 || c.Brief.Start != DefaultConfig().Brief.Start || c.Brief.Invite || !c.Brief.HoldStop ||
		c.Sync.Every.Duration != 90*time.Second || c.Memory.AgentFacts != "review" || c.Share.Intent != "off" ||
		c.Claims.Mode != gitlog.ClaimsNote {
		t.Errorf("config %+v", c)
	}
	if reviewer := c.Templates["reviewer"]; !c.MCP.Enabled || c.MCP.Port != 1 || !slices.Equal(c.MCP.Tools, []string{"memory"}) ||
		c.Source.Folder != "~/src" || reviewer.Type != "claude" || reviewer.Cost != "low" || len(reviewer.Tags) != 2 {
		t.Errorf("config %+v", c)
	}
	if c := DefaultConfig().MCP; !c.Enabled || c.Port != 8766 || c.AgentsMayStart != "ask" {
		t.Errorf("where nothing is set [mcp] is %+v", c)
	}
	if want := (Autopilot{Enabled: true, Endpoint: "http://[::1]:8080/", Model: "small", Limit: 5}); c.Autopilot != want || DefaultConfig().Autopilot.Enabled {
		t.Errorf("autopilot %+v, want %+v; by default %+v", c.Autopilot, want, DefaultConfig().Autopilot)
	}
	if !slices.Contains(DefaultConfig().MCP.Tools, "tasks") {
		t.Errorf("what one file says of tools is the default now: %q", DefaultConfig().MCP.Tools)
	}
	if want := []string{"brief.colour", "brief.colour.red", "later", "later.x"}; !slices.Equal(c.Unknown, want) {
		t.Errorf("unknown keys %q, want %q", c.Unknown, want)
	}
}

func TestConfigThatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"[daemon\n":                           "line 2",
		"\n[daemon]\nautostart = 1\n":         "autostart",
		"[brief]\nturn = -1\n":                "0 to 9000",
		"[brief]\nstart = 10000\n":            "0 to 9000",
		"[sync]\nevery = \"1s\"\n":            "at least 30s",
		"[sync]\nevery = \"soon\"\n":          "line 2",
		"[memory]\nagent_facts = \"maybe\"\n": "share or review",
		"[share]\nintent = \"no\"\n":          "text or off",
		"[claims]\nmode = \"loud\"\n":         "deny, note or off",
		"[mcp]\nport = 70000\n":               "1 to 65535",
		"[mcp]\ntools = [\"all\"]\n":          "coordination, display, tasks, memory",
		"[mcp]\nagents_may_start = \"all\"\n": "ask, yes or no",
		"[autopilot]\nenabled = true\n":       "needs endpoint",
		"[autopilot]\nenabled = true\nendpoint = \"https://api.example.com\"\n": "model",
		"[autopilot]\nlimit = 0\n":         "1 to 100",
		"[templates.x]\ncost = \"free\"\n": "low, medium or high",
	} {
		if _, err := ParseConfig(text); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// What agents say leaves the machine for an endpoint that was named, over TLS.
func TestEndpointsOfAutopilot(t *testing.T) {
	for endpoint, want := range map[string]string{
		"https://api.example.com": "", "https://api.example.com/base/": "", "https://192.0.2.1:8443": "",
		"http://127.0.0.1:8080": "", "http://127.9.9.9": "", "http://localhost:1": "", "http://[::1]": "",
		"http://api.example.com": "https://", "http://192.0.2.1": "https://", "http://localhost.example.com": "https://", "http://127.0.0.1.example.com": "https://",
		"http://0.0.0.0": "https://", "ftp://api.example.com": "https://", "api.example.com": "address", "https://": "address", "https:api.example.com": "address",
		"https://sk-key@api.example.com": "address", "https://api.example.com?key=sk-key": "address", "https://api.example.com#sk-key": "address", "https://api sk-key": "address",
	} {
		_, err := ParseConfig("[autopilot]\nenabled = true\nmodel = \"small\"\nendpoint = \"" + endpoint + "\"\n")
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "sk-key")) {
			t.Errorf("%s: %v, want %q", endpoint, err, want)
		}
	}
}

func TestConfigIsFollowedWhileItParses(t *testing.T) {
	home := t.TempDir()
	path := filepath.Join(home, "config.toml")
	s := newSettings(home, DefaultConfig())
	writeFile(t, path, "[brief]\nturn = 700\n")
	if changed, err := s.reload(); !changed || err != nil || s.now().Brief.Turn != 700 {
		t.Errorf("a new file: %v, %v, %d", changed, err, s.now().Brief.Turn)
	}
	if changed, err := s.reload(); changed || err != nil {
		t.Errorf("the same file: %v, %v", changed, err)
	}
	writeFile(t, path, "[brief\n")
	if changed, err := s.reload(); changed || err == nil || s.now().Brief.Turn != 700 || len(s.warnings()) != 1 {
		t.Errorf("a file that does not parse: %v, %v, %d, %q", changed, err, s.now().Brief.Turn, s.warnings())
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if changed, err := s.reload(); !changed || err != nil || s.now().Brief.Turn != DefaultConfig().Brief.Turn || len(s.warnings()) != 0 {
		t.Errorf("no file: %v, %v, %d, %q", changed, err, s.now().Brief.Turn, s.warnings())
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add("[daemon]\nautostart = true\n")
	f.Add("[sync]\nevery = \"5m\"")
	f.Fuzz(func(t *testing.T, text string) { _, _ = ParseConfig(text) })
}
