package gitlog

//lint:file-ignore SA1019 gitleaks marks what its own configuration and interface use until version 9

import (
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/zricethezav/gitleaks/v8/detect"
	"pgregory.net/rapid"
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

// On the same text and path the answer is gitleaks' own: what it finds nothing in trips no rule here, and the rule that is tripped
// here is one of those that it names.
func TestLeaksAreWhatGitleaksFinds(t *testing.T) {
	t.Parallel()
	detector := detect.NewDetector(gitleaksConfig(t))
	compared, tripped := 0, map[string]bool{}
	compare := func(path, text string) {
		t.Helper()
		detector.IgnoreGitleaksAllow = path == ""
		var want []string
		for _, finding := range detector.Detect(detect.Fragment{Raw: text, FilePath: path}) {
			want = append(want, finding.RuleID)
		}
		first := ""
		if len(want) > 0 {
			first = slices.Min(want)
			tripped[first] = true
		}
		if got := credentialRule(path, text); got != first {
			t.Errorf("%q %.80q: %q, gitleaks finds %q", path, text, got, want)
		}
		compared++
	}
	// What gitleaks' own rules match, as far as it can be drawn from their patterns, alone and in surroundings that count.
	surroundings := []string{"%s", "%s\n", "first\n%s\nlast", "first\r\n%s\r\nlast", "a\n%s", "// gitleaks:allow\n%s", "%s // gitleaks:allow\n", "x = \"%s\"; y = 1\n"}
	paths := []string{"", "src/a.js", "deploy/values.yaml", "web/index.php", "nuget.config", "main.tf", "node_modules/a/index.js"}
	for i := range leakRules {
		text := ""
		if rule := &leakRules[i]; rule.pattern != "" {
			text = rapid.StringMatching(rule.pattern).Filter(utf8.ValidString).Example(1)
		}
		compare("", text)
		for n := range 3 {
			compare(paths[(i+n)%len(paths)], strings.ReplaceAll(surroundings[(i+n)%len(surroundings)], "%s", text))
		}
	}
	for _, path := range []string{"certs/site.pfx", "a/b.p12", "go.sum", "vendor/a/b.go", "x.png"} {
		compare(path, "binary")
	}
	for _, text := range []string{githubToken, awsKey, privateKey, genericKey, "token = " + githubToken, "nothing", "password: hunter2", ""} {
		compare("", text)
		compare("src/a.js", text)
		compare("src/a.js", text+" # gitleaks:allow")
	}
	// And what is there in plenty: text that is full of keywords and holds no secret.
	for _, name := range []string{"secret.go", "secret_test.go", "../docs/security.md"} {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		compare("", string(content))
		compare(name, string(content))
	}
	if len(tripped) < 150 {
		t.Errorf("%d comparisons tripped %d rules, too few to say that all are applied as gitleaks does", compared, len(tripped))
	}
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
		g.find("", "The api takes a token from the secret store; keys rotate on Mondays.")
	}
}

func BenchmarkWithheldFirstWithFile(b *testing.B) {
	content := strings.Repeat("func token() string { return os.Getenv(\"API_KEY\") }\n", 400)
	for b.Loop() {
		var g gitleaks
		g.find("", "All money is integer cents.")
		g.find("src/a.go", content)
	}
}
