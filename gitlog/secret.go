package gitlog

import (
	"math"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Withheld says whether text looks like it holds a credential; such intents, plans and messages are sent as "withheld".
func Withheld(text string) bool { return credentialRule("", text) != "" }

// maxScanned bounds how much of a source file is looked at for credentials.
const maxScanned = 4 << 20

// credentialRule returns the id of the gitleaks rule that text trips, "" where none does. A path makes the rules and
// exceptions count that go by file names, and the comment `gitleaks:allow`: it is the repository's own word about a
// line of its source, and nothing that somebody may put into a fact.
func credentialRule(path, text string) string { return leaks.find(path, text) }

// leakRule is a rule of gitleaks: what it looks for, and what it excepts. A rule without a pattern goes by the path alone.
type leakRule struct {
	id       string
	path     string // a pattern that the path has to match; "": any text, whatever its path
	pattern  string
	group    int // of pattern: which one is the secret; 0: the first that is not empty
	entropy  float64
	keywords []string // in lower case; a text without any is not looked at
	except   []leakException
}

// leakException says what is no leak: one of its conditions is met, or, with all, each of those that are there.
type leakException struct {
	all     bool
	path    string
	pattern string
	target  string   // what pattern is matched with: "" the secret, else "match" or "line"
	words   []string // in lower case; one in the secret is enough
}

// leak is a place where a rule matches.
type leak struct {
	rule           string
	line           int
	secret         string
	match, context string // what the rule's pattern matched, and the lines around it
}

// gitleaks are gitleaks' default rules, applied as its detector does (a test compares them). Neither the detector nor its
// configuration is linked: what they bring along costs each start of the program 2 ms, and reading the rules 3 more. So the rules
// are data of the program (leakRules, which a test holds against gitleaks), and as compiling all their patterns takes 40 to 80
// ms, a pattern is compiled when it is first asked.
type gitleaks struct {
	mu       sync.Mutex
	compiled map[string]*regexp.Regexp // guarded by mu: by pattern
}

var leaks gitleaks

func (g *gitleaks) pattern(text string) *regexp.Regexp {
	g.mu.Lock()
	defer g.mu.Unlock()
	re := g.compiled[text]
	if re == nil {
		if g.compiled == nil {
			g.compiled = make(map[string]*regexp.Regexp)
		}
		re = regexp.MustCompile(text) // it is part of this program, and tested
		g.compiled[text] = re
	}
	return re
}

// find returns the first, by id, of the rules that path and text trip.
func (g *gitleaks) find(path, text string) string {
	var found []leak
	for _, rule := range wantedRules(path, text) {
		found = append(found, g.apply(rule, path, text)...)
	}
	var ids []string
	for _, l := range found {
		if !(strings.Contains(l.rule, "generic") && named(l, found)) {
			ids = append(ids, l.rule)
		}
	}
	if len(ids) == 0 {
		return ""
	}
	return slices.Min(ids) // the answer is to be the same each time, whatever the order of rules
}

// named says whether a rule that knows what it found found the same secret as a generic one.
func named(generic leak, found []leak) bool {
	return slices.ContainsFunc(found, func(l leak) bool {
		return l.line == generic.line && !strings.Contains(l.rule, "generic") && strings.Contains(l.secret, generic.secret)
	})
}

// wantedRules returns the rules that have to be run: those without keywords, which go by the path alone, and those of whose
// keywords the text has one.
func wantedRules(path, text string) []*leakRule {
	lower := strings.ToLower(text)
	seen := make(map[string]bool)
	var wanted []*leakRule
	for i := range leakRules {
		rule := &leakRules[i]
		if len(rule.keywords) == 0 && path != "" {
			wanted = append(wanted, rule)
		}
		for _, keyword := range rule.keywords {
			there, known := seen[keyword]
			if !known {
				there = strings.Contains(lower, keyword)
				seen[keyword] = there
			}
			if there {
				wanted = append(wanted, rule)
				break
			}
		}
	}
	return wanted
}

// apply returns what a rule finds. Exceptions are asked last, as their patterns are the most to compile.
func (g *gitleaks) apply(rule *leakRule, path, text string) []leak {
	if rule.path != "" && !g.pattern(rule.path).MatchString(path) {
		return nil
	}
	if rule.pattern == "" {
		if g.exceptsPath(leakExceptions, path) || g.exceptsPath(rule.except, path) {
			return nil
		}
		return []leak{{rule: rule.id}}
	}
	pattern := g.pattern(rule.pattern)
	matches := pattern.FindAllStringIndex(text, -1)
	if len(matches) == 0 || g.exceptsPath(leakExceptions, path) || g.exceptsPath(rule.except, path) {
		return nil
	}
	var found []leak
	for _, at := range matches {
		l := leak{rule: rule.id, match: strings.Trim(text[at[0]:at[1]], "\n")}
		l.line, l.context = linesAround(text, at[0], at[0]+len(l.match))
		if path != "" && strings.Contains(l.context, "gitleaks:allow") {
			continue
		}
		l.secret = secretOf(pattern, rule.group, l.match)
		if rule.entropy != 0 && shannonEntropy(l.secret) <= rule.entropy {
			continue
		}
		if !g.excepts(leakExceptions, path, l) && !g.excepts(rule.except, path, l) {
			found = append(found, l)
		}
	}
	return found
}

// secretOf returns the part of a match that is the secret.
func secretOf(pattern *regexp.Regexp, group int, match string) string {
	groups := pattern.FindStringSubmatch(match)
	if group > 0 && group < len(groups) {
		return groups[group]
	}
	for i, text := range groups {
		if i > 0 && text != "" {
			return text
		}
	}
	return match
}

// linesAround returns the number of the line in which a match begins, from 0, and the text that gitleaks takes for its lines:
// from the line break before it to the one after it. A match behind the last line break has all that is before it, too.
func linesAround(text string, start, end int) (number int, lines string) {
	behind := min(start+1, len(text))
	number = strings.Count(text[:behind], "\n")
	last := !strings.Contains(text[behind:], "\n")
	if last && number > 0 {
		if i := strings.IndexByte(text[end:], '\r'); i >= 0 {
			return number, text[:end+i]
		}
		return number, text
	}
	from := max(strings.LastIndexByte(text[:behind], '\n'), 0)
	to := end // behind the last line break
	if i := strings.IndexByte(text[end:], '\n'); i >= 0 {
		to = end + i
	} else if last {
		to = len(text) // there is none
	}
	return number, text[from:to]
}

// shannonEntropy is how many bits a byte of text is worth, as gitleaks counts them.
func shannonEntropy(text string) (entropy float64) {
	counts := make(map[rune]int)
	for _, r := range text {
		counts[r]++
	}
	for _, n := range counts {
		share := float64(n) / float64(len(text))
		entropy -= share * math.Log2(share)
	}
	return entropy
}

// exceptsPath says whether exceptions go by the path alone, and this one is excepted.
func (g *gitleaks) exceptsPath(list []leakException, path string) bool {
	return path != "" && slices.ContainsFunc(list, func(e leakException) bool {
		alone := !e.all || e.pattern == "" && len(e.words) == 0
		return alone && e.path != "" && g.pattern(e.path).MatchString(path)
	})
}

// excepts says whether a leak is none.
func (g *gitleaks) excepts(list []leakException, path string, l leak) bool {
	return slices.ContainsFunc(list, func(e leakException) bool {
		target := l.secret
		switch e.target {
		case "match":
			target = l.match
		case "line":
			target = l.context
		}
		lower := strings.ToLower(l.secret)
		pattern := e.pattern != "" && target != "" && g.pattern(e.pattern).MatchString(target)
		word := slices.ContainsFunc(e.words, func(word string) bool { return strings.Contains(lower, word) })
		if !e.all {
			return pattern || word
		}
		return (e.pattern == "" || pattern) && (len(e.words) == 0 || word) && (e.path == "" || path != "" && g.pattern(e.path).MatchString(path))
	})
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
