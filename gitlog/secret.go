package gitlog

//lint:file-ignore SA1019 gitleaks marks what its own configuration and interface use until version 9

import (
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/pelletier/go-toml/v2"
	"github.com/zricethezav/gitleaks/v8/config"
	"github.com/zricethezav/gitleaks/v8/detect"
)

// Withheld says whether text looks like it holds a credential; such intents, plans and messages are sent as "withheld".
func Withheld(text string) bool { return credentialRule("", text) != "" }

// maxScanned bounds how much of a source file is looked at for credentials.
const maxScanned = 4 << 20

// credentialRule returns the id of the gitleaks rule that text trips, "" where none does. A path makes the rules and
// exceptions count that go by file names, and the comment `gitleaks:allow`: it is the repository's own word about a
// line of its source, and nothing that somebody may put into a fact.
func credentialRule(path, text string) string {
	leaks.load.Do(leaks.read)
	return leaks.find(path, text)
}

// gitleaks are gitleaks' default rules. Compiling all 222 of them takes 40 to 80 ms, which `knoot remember` without a
// daemon cannot pay. So a rule is compiled when a text holds one of its keywords, which is what gitleaks itself asks
// before it runs the rule, and its exceptions (1,400 words for one rule, 8 ms) when it has found something. Reading the
// rules takes 3 ms: their TOML is read by the decoder that gitleaks brings along, since viper, which gitleaks uses, takes 50.
type gitleaks struct {
	load  sync.Once
	rules config.ViperConfig // as they are written; only read after load

	mu    sync.Mutex // guards what follows
	bare  map[string]config.Rule
	whole map[string]config.Rule // with their exceptions
	allow []*config.Allowlist    // what no rule may complain of
}

var leaks gitleaks

func (g *gitleaks) read() {
	g.bare, g.whole = make(map[string]config.Rule), make(map[string]config.Rule)
	if err := toml.Unmarshal([]byte(config.DefaultConfig), &g.rules); err != nil {
		panic("gitleaks' default rules do not parse: " + err.Error()) // they are part of this program, and tested
	}
	for i := range g.rules.Rules {
		for j, keyword := range g.rules.Rules[i].Keywords {
			g.rules.Rules[i].Keywords[j] = strings.ToLower(keyword)
		}
	}
}

// find returns the first, by id, of the rules that path and text trip.
func (g *gitleaks) find(path, text string) string {
	wanted := g.wanted(path, text)
	if len(wanted) == 0 {
		return ""
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	suspects := detectRules(g.compile(wanted, false), path, text)
	if len(suspects) == 0 {
		return ""
	}
	wanted = slices.DeleteFunc(wanted, func(i int) bool { return !slices.Contains(suspects, g.rules.Rules[i].ID) })
	found := detectRules(g.compile(wanted, true), path, text)
	if len(found) == 0 {
		return ""
	}
	return slices.Min(found) // gitleaks runs its rules in any order; the answer is to be the same each time
}

func detectRules(cfg config.Config, path, text string) []string {
	detector := detect.NewDetector(cfg)
	detector.IgnoreGitleaksAllow = path == ""
	var ids []string
	for _, finding := range detector.Detect(detect.Fragment{Raw: text, FilePath: path}) {
		ids = append(ids, finding.RuleID)
	}
	return ids
}

// wanted returns the places of the rules that have to be run.
func (g *gitleaks) wanted(path, text string) []int {
	lower := strings.ToLower(text)
	seen := make(map[string]bool)
	var wanted []int
	for i, rule := range g.rules.Rules {
		if len(rule.Keywords) == 0 {
			// Such a rule goes by the path alone.
			if path != "" {
				wanted = append(wanted, i)
			}
			continue
		}
		for _, keyword := range rule.Keywords {
			there, known := seen[keyword]
			if !known {
				there = strings.Contains(lower, keyword)
				seen[keyword] = there
			}
			if there {
				wanted = append(wanted, i)
				break
			}
		}
	}
	return wanted
}

// compile makes a configuration of some rules, with all exceptions or without any. gitleaks translates what was not
// asked for before. mu is held.
func (g *gitleaks) compile(wanted []int, exceptions bool) config.Config {
	known := g.bare
	if exceptions {
		known = g.whole
	}
	var missing config.ViperConfig
	for _, i := range wanted {
		rule := g.rules.Rules[i]
		if _, ok := known[rule.ID]; ok {
			continue
		}
		if !exceptions {
			rule.AllowList, rule.Allowlists = nil, nil
		}
		missing.Rules = append(missing.Rules, rule)
	}
	if exceptions && g.allow == nil {
		missing.AllowList, missing.Allowlists = g.rules.AllowList, g.rules.Allowlists
	}
	if len(missing.Rules) > 0 {
		translated, err := missing.Translate()
		if err != nil {
			panic("gitleaks' default rules do not compile: " + err.Error()) // tested, as above
		}
		maps.Copy(known, translated.Rules)
		if exceptions && g.allow == nil {
			g.allow = translated.Allowlists
		}
	}
	cfg := config.Config{Rules: make(map[string]config.Rule), Keywords: make(map[string]struct{})}
	if exceptions {
		cfg.Allowlists = g.allow
	}
	for _, i := range wanted {
		rule := known[g.rules.Rules[i].ID]
		cfg.Rules[rule.RuleID] = rule
		for _, keyword := range rule.Keywords {
			cfg.Keywords[keyword] = struct{}{}
		}
	}
	return cfg
}

// secretPath returns the pattern by which a path's name says that it holds secrets, "" where it does not.
func secretPath(p string) string {
	name := FoldPath(path.Base(p))
	switch {
	case strings.HasPrefix(name, ".env"):
		return ".env*"
	case strings.HasSuffix(name, ".pem"):
		return "*.pem"
	case strings.HasSuffix(name, ".key"):
		return "*.key"
	case strings.HasPrefix(name, "id_"):
		return "id_*"
	}
	return ""
}
