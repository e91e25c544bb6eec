package gitlog

//lint:file-ignore SA1019 gitleaks marks what its own configuration and interface use until version 9

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/viper"
	"github.com/zricethezav/gitleaks/v8/config"
	"github.com/zricethezav/gitleaks/v8/detect"
	"github.com/zricethezav/gitleaks/v8/report"
)

// Credentials in tests are put together here, so that no scanner takes this file for a leak.
var (
	githubToken = "ghp_" + "R7fKq2ZtXw9LbN4vYc8HsM1dPj6GaE3uTo5i"
	awsKey      = "AKIA" + "Q3EGRIQJN7XY2MKD"
	privateKey  = "-----BEGIN RSA PRIVATE " + "KEY-----\n" + strings.Repeat("MIIEowIBAAKCAQEAx4fkq2ZtXw9LbN4vYc8HsM1dPj6GaE3uTo5i\n", 4) + "-----END RSA PRIVATE KEY-----"
	genericKey  = `api_key = "` + "x9Kf3mQ7" + "tB2vN8wZ4rL6jH1s" + `"`
)

func TestWithheld(t *testing.T) {
	for text, want := range map[string]string{
		"all money is integer cents, never floats":                                               "",
		"the token is read from $GITHUB_TOKEN, see the secret store; api keys rotate on Mondays": "",
		"deploy with " + githubToken:                                                             "github-pat",
		"deploy with " + githubToken + " # gitleaks:allow":                                       "github-pat",
		"the key " + awsKey + " is for staging":                                                  "aws-access-token",
		privateKey:                                                                               "private-key",
		genericKey:                                                                               "generic-api-key",
		"AKIA" + "IOSFODNN7EXAMPLE is the one in Amazon's own manuals":                           "",
		"password = \"" + strings.Repeat("a", 20) + "\"":                                         "",
		"commit 4be1c2d9f0aa31b7c4d8e5f60718293a4b5c6d7e broke the auth":                         "",
	} {
		if got := credentialRule("", text); got != want {
			t.Errorf("%.60q: %q, want %q", text, got, want)
		}
		if Withheld(text) != (want != "") {
			t.Errorf("%.60q: withheld %v", text, Withheld(text))
		}
	}
}

func TestCredentialsInSourceFiles(t *testing.T) {
	content := "x = 1\nkey = \"" + githubToken + "\"\n"
	if got := credentialRule("src/a.js", content); got != "github-pat" {
		t.Errorf("%q", got)
	}
	// What gitleaks excepts by name, and what the repository excepts itself.
	if got := credentialRule("package-lock.json", content); got != "" {
		t.Errorf("in a lock file: %q", got)
	}
	if got := credentialRule("src/a.js", strings.Replace(content, "\"\n", "\" // gitleaks:allow\n", 1)); got != "" {
		t.Errorf("allowed in the source: %q", got)
	}
	if got := credentialRule("certs/site.pfx", "binary"); got != "pkcs12-file" {
		t.Errorf("by name alone: %q", got)
	}
}

// Rules that are compiled one by one must be what gitleaks itself would run: read by gitleaks' own way, each one
// equal; and on the same text the same answer.
func TestLazyRulesAreGitleaksRules(t *testing.T) {
	viper.SetConfigType("toml")
	if err := viper.ReadConfig(strings.NewReader(config.DefaultConfig)); err != nil {
		t.Fatal(err)
	}
	var theirs config.ViperConfig
	if err := viper.Unmarshal(&theirs); err != nil {
		t.Fatal(err)
	}
	want, err := theirs.Translate()
	if err != nil {
		t.Fatal(err)
	}
	leaks.load.Do(leaks.read)
	all := make([]int, len(leaks.rules.Rules))
	for i := range all {
		all[i] = i
	}
	leaks.mu.Lock()
	got := leaks.compile(all, true)
	leaks.mu.Unlock()
	if len(want.Rules) < 200 || len(got.Rules) != len(want.Rules) || !maps.Equal(got.Keywords, want.Keywords) {
		t.Fatalf("%d rules, gitleaks has %d", len(got.Rules), len(want.Rules))
	}
	for id, rule := range want.Rules {
		if len(rule.RequiredRules) > 0 {
			t.Errorf("%s needs another rule beside it: a rule can no longer be compiled alone", id)
		}
		if a, b := describeRule(got.Rules[id]), describeRule(rule); a != b {
			t.Errorf("%s:\n%s\nwant\n%s", id, a, b)
		}
	}
	if a, b := describeAllowlists(got.Allowlists), describeAllowlists(want.Allowlists); a != b || !strings.Contains(a, "node_modules") {
		t.Errorf("exceptions:\n%s\nwant\n%s", a, b)
	}
	whole := detect.NewDetector(want)
	for _, text := range []string{githubToken, awsKey, privateKey, genericKey, "nothing", "password: hunter2"} {
		findings := whole.Detect(detect.Fragment{Raw: text})
		if mine := credentialRule("", text); (mine == "") != (len(findings) == 0) || mine != "" && !slices.ContainsFunc(findings, func(f report.Finding) bool { return f.RuleID == mine }) {
			t.Errorf("%.20q: %q, gitleaks finds %d", text, mine, len(findings))
		}
	}
}

func describeRule(r config.Rule) string {
	text := func(v any) string {
		if reflect.ValueOf(v).IsNil() {
			return "-"
		}
		return fmt.Sprint(v)
	}
	return fmt.Sprint(r.RuleID, r.Entropy, r.SecretGroup, text(r.Regex), text(r.Path), r.Keywords, r.Tags, r.SkipReport, describeAllowlists(r.Allowlists))
}

func describeAllowlists(lists []*config.Allowlist) string {
	var b strings.Builder
	for _, a := range lists {
		words := slices.Clone(a.StopWords) // gitleaks keeps them in any order
		slices.Sort(words)
		fmt.Fprintln(&b, a.MatchCondition, a.Commits, a.Paths, a.RegexTarget, a.Regexes, slices.Compact(words))
	}
	return b.String()
}

func TestSecretPaths(t *testing.T) {
	for path, want := range map[string]string{
		".env": ".env*", "config/.env.local": ".env*", "a/b.pem": "*.pem", "tls/SERVER.KEY": "*.key", ".ssh/id_ed25519": "id_*", "certs/*.pem": "*.pem",
		"src/env.js": "", "src/keys.go": "", "src/pid_file.c": "", "src/a.js": "", "monkey": "",
	} {
		if got := secretPath(path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

// Budget: 5 ms of a text that is full of keywords (the regular expressions of two rules run over it); a text without any takes
// 0.1 ms. It runs on every prompt, beside the hook.
func BenchmarkWithheld(b *testing.B) {
	text := strings.Repeat("The api takes a token from the secret store; keys rotate on Mondays. ", 30)[:2048]
	for b.Loop() {
		if Withheld(text) {
			b.Fatal("withheld")
		}
	}
}

// What a process that starts pays for its first look. Budget: 15 ms, since `knoot remember` without a daemon has 50 to 80 in
// all.
func BenchmarkWithheldFirst(b *testing.B) {
	for b.Loop() {
		var g gitleaks
		g.load.Do(g.read)
		g.find("", "The api takes a token from the secret store; keys rotate on Mondays.")
	}
}

func BenchmarkWithheldFirstWithFile(b *testing.B) {
	content := strings.Repeat("func token() string { return os.Getenv(\"API_KEY\") }\n", 400)
	for b.Loop() {
		var g gitleaks
		g.load.Do(g.read)
		g.find("", "All money is integer cents.")
		g.find("src/a.go", content)
	}
}
