package main

import (
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
)

func TestCodexTableTakesTheOldOnesPlace(t *testing.T) {
	t.Parallel()
	table := codexText(clientConfig{URL: "http://127.0.0.1:1/mcp?agent=a", Headers: map[string]string{"Authorization": "Bearer new"}})
	old := strings.ReplaceAll(table, "new", "old")
	for name, c := range map[string]struct{ text, want string }{
		"none":           {"", table},
		"no newline":     {"model = \"x\"", "model = \"x\"\n\n" + table},
		"others":         {"# mine\nmodel = \"x\"\n\n[mcp_servers.other]\nurl = \"y\"\n", "# mine\nmodel = \"x\"\n\n[mcp_servers.other]\nurl = \"y\"\n\n" + table},
		"last":           {"model = \"x\"\n\n" + old, "model = \"x\"\n\n" + table},
		"first":          {old + "\n[profiles.p]\nmodel = \"z\"\n", "[profiles.p]\nmodel = \"z\"\n\n" + table},
		"with tables":    {old + "[mcp_servers.knoot.env]\nA = \"b\"\n[x]\n", "[x]\n\n" + table},
		"comment behind": {"a = 1\n\n" + old + "\n# of p\n\n# and more\n[profiles.p]\nmodel = \"z\"\n", "a = 1\n\n# of p\n\n# and more\n[profiles.p]\nmodel = \"z\"\n\n" + table},
		"comment last":   {old + "# the end", "# the end\n\n" + table},
		"alike":          {"[mcp_servers.knootted]\nurl = \"y\"\n", "[mcp_servers.knootted]\nurl = \"y\"\n\n" + table},
		"nested lists":   {"a = [\n  [1, 2],\n]\n", "a = [\n  [1, 2],\n]\n\n" + table},
		"array tables":   {"[[hooks]]\nx = 1\n" + old + "[[hooks]]\nx = 2\n", "[[hooks]]\nx = 1\n[[hooks]]\nx = 2\n\n" + table},
		"does not parse": {"[x\n", "does not parse"},
		"inline":         {"[mcp_servers]\nknoot = { url = \"z\" }\n", "remove that first"},
	} {
		got, err := withCodexTable(c.text, table)
		if err != nil {
			got = err.Error()
			if !strings.Contains(got, c.want) {
				t.Errorf("%s: %v, want %q", name, err, c.want)
			}
			continue
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if again, err := withCodexTable(got, table); err != nil || again != got {
			t.Errorf("%s, a second time: %q, %v", name, again, err)
		}
		var parsed struct {
			Servers map[string]struct {
				URL     string            `toml:"url"`
				Headers map[string]string `toml:"http_headers"`
			} `toml:"mcp_servers"`
		}
		if _, err := toml.Decode(got, &parsed); err != nil || parsed.Servers["knoot"].Headers["Authorization"] != "Bearer new" {
			t.Errorf("%s: %v, %+v", name, err, parsed)
		}
	}
}
