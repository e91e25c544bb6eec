package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/BurntSushi/toml"

	"knoot.dev/knoot/gitlog"
)

// Config is the person's settings, ~/.knoot/config.toml. Knoot reads it, and writes nothing in it but a template that is
// added.
type Config struct {
	Daemon struct {
		// Autostart lets a hook start a daemon.
		Autostart bool `toml:"autostart"`
	} `toml:"daemon"`
	Brief struct {
		// Turn, Start, Denial and Resume are budgets in bytes of UTF-8: on a turn, at a session's start, with a denial,
		// and for what changed since a session was last here.
		Turn   int `toml:"turn"`
		Start  int `toml:"start"`
		Denial int `toml:"denial"`
		Resume int `toml:"resume"`
		// Invite adds the line that says how to leave a fact, once a session.
		Invite bool `toml:"invite"`
		// HoldStop lets the Stop hook keep a turn open.
		HoldStop bool `toml:"hold_stop"`
	} `toml:"brief"`
	Sync struct {
		// Every is how often a repository with live sessions is fetched.
		Every Duration `toml:"every"`
	} `toml:"sync"`
	Memory struct {
		// AgentFacts is share, or review: an agent's fact stays on this machine until its person confirms it.
		AgentFacts string `toml:"agent_facts"`
	} `toml:"memory"`
	Share struct {
		// Intent is text, or off: intents are not recorded.
		Intent string `toml:"intent"`
	} `toml:"share"`
	// MCP is the server through which agents coordinate (package mcpd).
	MCP struct {
		Enabled bool `toml:"enabled"`
		// Port is that of 127.0.0.1 on which it listens; 0: any that is free.
		Port int `toml:"port"`
		// Tools are the groups of tools that agents see.
		Tools []string `toml:"tools"`
		// AgentsMayStart is yes, no, or ask: an agent that another one makes waits until its person starts it.
		AgentsMayStart string `toml:"agents_may_start"`
	} `toml:"mcp"`
	Autopilot Autopilot `toml:"autopilot"`
	// Agents are how agents are started, by type.
	Agents map[string]AgentType `toml:"agents"`
	Source struct {
		// Folder holds the repositories that agents may find; "": none.
		Folder string `toml:"folder"`
	} `toml:"source"`
	// Templates are agents that could be made, by name.
	Templates map[string]Template `toml:"templates"`
	Claims    struct {
		// Mode lowers what a repository asks for, in the sessions of this person; "" or deny lowers nothing.
		Mode gitlog.ClaimMode `toml:"mode"`
	} `toml:"claims"`

	// Unknown lists the keys of the file that this version does not know, sorted.
	Unknown []string `toml:"-"`
}

// ToolGroups are the groups of tools that [mcp] tools may name.
var ToolGroups = []string{"coordination", "display", "tasks", "memory"}

// Autopilot has a model say what becomes of a terminal agent whose turn has ended.
type Autopilot struct {
	Enabled bool `toml:"enabled"`
	// Endpoint is where the model is, without /v1/messages.
	Endpoint string `toml:"endpoint"`
	Model    string `toml:"model"`
	// Limit is how many times in a row an agent is told to continue before its person is asked.
	Limit int `toml:"limit"`
}

// AgentType is how agents of a type are started.
type AgentType struct {
	// Command is the program and its arguments; none: what is built in for the type.
	Command []string `toml:"command"`
}

// Template is an agent that could be made.
type Template struct {
	Type        string   `toml:"type"`
	Folder      string   `toml:"folder,omitempty"`
	Description string   `toml:"description,omitempty"`
	Tags        []string `toml:"tags,omitempty"`
	Cost        string   `toml:"cost,omitempty"` // low, medium or high; "": medium
}

// Duration is a time as TOML has it: a text such as "5m".
type Duration struct{ time.Duration }

// UnmarshalText reads a text such as "90s" or "5m".
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	d.Duration = v
	return err
}

// DefaultConfig is what counts without a file.
func DefaultConfig() Config {
	var c Config
	c.Daemon.Autostart = true
	c.Brief.Turn, c.Brief.Start, c.Brief.Denial, c.Brief.Resume = 2000, 4000, 1200, 1000
	c.Brief.Invite, c.Brief.HoldStop = true, true
	c.Sync.Every.Duration = 3 * time.Minute
	c.Memory.AgentFacts = "share"
	c.Share.Intent = "text"
	c.MCP.Enabled, c.MCP.Port, c.MCP.Tools, c.MCP.AgentsMayStart = true, 8766, slices.Clone(ToolGroups), "ask"
	c.Autopilot.Limit = 5
	return c
}

// laterTables are settings of parts that read them themselves, or that this version does not have yet: whoever shares
// one file between machines with two versions is not warned about them.
var laterTables = []string{"panel"}

// LoadConfig reads config.toml in home; the defaults where there is none. An error is one sentence that names the file
// and the line.
func LoadConfig(home string) (Config, error) {
	path := filepath.Join(home, "config.toml")
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return DefaultConfig(), nil
	}
	if err != nil {
		return DefaultConfig(), fmt.Errorf("cannot read %s: %w", path, err)
	}
	c, err := ParseConfig(string(text))
	if err != nil {
		return DefaultConfig(), fmt.Errorf("%s: %w; mend it, knoot does not", path, err)
	}
	return c, nil
}

// ParseConfig reads the text of config.toml, over the defaults. An error is one sentence.
func ParseConfig(text string) (Config, error) {
	c := DefaultConfig()
	meta, err := toml.Decode(text, &c)
	if err != nil {
		var at toml.ParseError
		if errors.As(err, &at) {
			return c, fmt.Errorf("line %d: %s", at.Position.Line, at.Message)
		}
		return c, errors.New(strings.TrimPrefix(err.Error(), "toml: "))
	}
	for _, key := range meta.Undecoded() {
		if !slices.Contains(laterTables, key[0]) {
			c.Unknown = append(c.Unknown, key.String())
		}
	}
	slices.Sort(c.Unknown)
	return c, c.check()
}

func (c *Config) check() error {
	for _, b := range []struct {
		key   string
		bytes int
	}{{"turn", c.Brief.Turn}, {"start", c.Brief.Start}, {"denial", c.Brief.Denial}, {"resume", c.Brief.Resume}} {
		// 9,000 is what both Claude Code and Codex take whole.
		if b.bytes < 0 || b.bytes > 9000 {
			return fmt.Errorf("[brief] %s = %d: want 0 to 9000 bytes", b.key, b.bytes)
		}
	}
	switch {
	case c.Sync.Every.Duration < 30*time.Second:
		return fmt.Errorf("[sync] every = %q: want at least 30s", c.Sync.Every)
	case c.Memory.AgentFacts != "share" && c.Memory.AgentFacts != "review":
		return fmt.Errorf("[memory] agent_facts = %q: want share or review", c.Memory.AgentFacts)
	case c.Share.Intent != "text" && c.Share.Intent != "off":
		return fmt.Errorf("[share] intent = %q: want text or off", c.Share.Intent)
	}
	if c.MCP.Port < 0 || c.MCP.Port > 65535 {
		return fmt.Errorf("[mcp] port = %d: want 1 to 65535, or 0 for any that is free", c.MCP.Port)
	}
	for _, group := range c.MCP.Tools {
		if !slices.Contains(ToolGroups, group) {
			return fmt.Errorf("[mcp] tools has %q: want some of %s", group, strings.Join(ToolGroups, ", "))
		}
	}
	if !slices.Contains([]string{"ask", "yes", "no"}, c.MCP.AgentsMayStart) {
		return fmt.Errorf("[mcp] agents_may_start = %q: want ask, yes or no", c.MCP.AgentsMayStart)
	}
	if err := c.Autopilot.check(); err != nil {
		return err
	}
	for name, t := range c.Templates {
		if t.Cost != "" && t.Cost != "low" && t.Cost != "medium" && t.Cost != "high" {
			return fmt.Errorf("[templates.%s] cost = %q: want low, medium or high", name, t.Cost)
		}
	}
	if c.Claims.Mode != "" {
		if _, err := gitlog.ParseClaimMode(string(c.Claims.Mode)); err != nil {
			return fmt.Errorf("[claims] %w", err)
		}
	}
	return nil
}

// check checks what must be so before anything is sent: what an agent said, and a key with it, go to a place that was named,
// and to nobody on the way.
func (a *Autopilot) check() error {
	if a.Enabled && (a.Endpoint == "" || a.Model == "") {
		return errors.New("[autopilot] is enabled, and needs endpoint, where the last messages of agents are to be sent, and model")
	}
	if a.Limit < 1 || a.Limit > 100 {
		return fmt.Errorf("[autopilot] limit = %d: want 1 to 100", a.Limit)
	}
	if a.Endpoint == "" {
		return nil
	}
	at, err := url.Parse(a.Endpoint)
	switch {
	case err != nil || at.Host == "" || at.User != nil || at.RawQuery != "" || at.Fragment != "" || at.Opaque != "":
		// The text is not repeated: somebody may have put a key into it.
		return errors.New("[autopilot] endpoint is to be an address such as https://api.example.com, without a key or a query in it")
	case at.Scheme != "https" && !(at.Scheme == "http" && isLoopback(at.Hostname())):
		return errors.New("[autopilot] endpoint is to begin with https://; http:// is for this machine alone")
	}
	return nil
}

func isLoopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback()
}

// settings is the configuration of a running daemon. It follows the file; one that does not parse changes nothing.
type settings struct {
	home string

	mu      sync.Mutex
	config  Config // guarded by mu
	stamp   stamp  // guarded by mu: of the file when it was last read
	problem error  // guarded by mu: why the file as it is now is not used
}

func newSettings(home string, config Config) *settings {
	return &settings{home: home, config: config, stamp: stampOfFile(filepath.Join(home, "config.toml"))}
}

func (s *settings) now() Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.config
}

// warnings are sentences about the file, for status.
func (s *settings) warnings() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	if s.problem != nil {
		out = append(out, s.problem.Error()+"; the settings before are used")
	}
	for _, key := range s.config.Unknown {
		out = append(out, fmt.Sprintf("config.toml has a key that this version does not know: %s", key))
	}
	return out
}

// reload reads the file if it changed.
func (s *settings) reload() (changed bool, err error) {
	now := stampOfFile(filepath.Join(s.home, "config.toml"))
	s.mu.Lock()
	defer s.mu.Unlock()
	if now == s.stamp {
		return false, nil
	}
	s.stamp = now
	config, err := LoadConfig(s.home)
	s.problem = err
	if err != nil {
		return false, err
	}
	s.config = config
	return true, nil
}
