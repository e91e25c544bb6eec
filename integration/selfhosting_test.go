package integration

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"crypto/x509/pkix"
	"debug/elf"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"knoot.dev/knoot/integration/stage"
)

const selfHosting = "../docs/self-hosting.md"

// Not run here, since it changes the whole machine or needs what is not everywhere; what it starts is: see below.
var notFollowed = map[string]string{
	"make build":                                                                     "the tests have built both programs",
	"systemctl enable --now knoot-relay":                                             "the unit is verified, and what it starts is started",
	"journalctl -u knoot-relay | grep 'relay key'":                                   "what it starts prints the key",
	"docker compose -f docs/self-hosting/compose.yaml up -d --build":                 "the image's program is built as it says, and run in an empty root",
	"docker compose -f docs/self-hosting/compose.yaml logs relay | grep 'relay key'": "what it starts prints the key",
}

// visitor follows the page.
type visitor struct {
	t        *testing.T
	operator *stage.Person
	ana, ben *machine
	dir      string // a source folder: bin and docs
	state    string
	address  string
	key      string
	admin    string
	relay    *exec.Cmd
}

// words stands for what is the reader's own on the page.
func (v *visitor) words(line string) string {
	for _, each := range [][2]string{
		{"relay.example.com:7420", v.address}, {"--listen :7420", "--listen " + stage.Address(v.t)}, {"127.0.0.1:7421", "127.0.0.1:0"}, {"sha256:5f7e…", v.key},
		{"/var/lib/knoot-relay", v.state}, {"/usr/local/bin", filepath.Join(v.dir, "usr")}, {"/etc/systemd/system", filepath.Join(v.dir, "etc")},
	} {
		line = strings.ReplaceAll(line, each[0], each[1])
	}
	return line
}

// serve starts a relay as the page says, and reads from what it prints where it is.
func (v *visitor) serve(command *exec.Cmd) {
	v.t.Helper()
	log := filepath.Join(v.dir, fmt.Sprintf("log-%d", time.Now().UnixNano()))
	file, err := os.Create(log)
	if err != nil {
		v.t.Fatal(err)
	}
	defer file.Close()
	command.Stdout, command.Stderr = file, file
	if err := command.Start(); err != nil {
		v.t.Fatalf("%q: %v", command.Args, err)
	}
	v.t.Cleanup(func() { _ = command.Process.Kill(); _ = command.Wait() })
	find := func(pattern string) (found string) {
		await(v.t, fmt.Sprintf("%q says %s", command.Args, pattern), func() bool {
			text, _ := os.ReadFile(log)
			match := regexp.MustCompile(pattern).FindSubmatch(text)
			if match != nil {
				found = string(match[1])
			}
			return match != nil
		}, func() string { text, _ := os.ReadFile(log); return string(text) })
		return found
	}
	v.key = find(`(?m)^relay key (sha256:[0-9a-f]{64})$`)
	v.address = strings.Replace(find(`listening"?,?.*"?address"?[=:]"?([0-9.\[\]:]+)`), "[::]", "127.0.0.1", 1)
	if strings.Contains(strings.Join(command.Args, " "), "--admin") {
		v.admin = strings.Replace(find(`admin"?,?.*"?address"?[=:]"?([0-9.\[\]:]+)`), "[::]", "127.0.0.1", 1)
	}
	v.relay = command
}

// end ends the relay as systemd does, and demands that it ends well.
func (v *visitor) end() {
	v.t.Helper()
	_ = v.relay.Process.Signal(syscall.SIGTERM)
	if err := v.relay.Wait(); err != nil {
		v.t.Errorf("told to end, the relay ended with %v", err)
	}
}

// sh runs a line of the page as it stands there, but for words.
func (v *visitor) sh(p *stage.Person, dir, line string) string {
	v.t.Helper()
	result := p.Try(dir, "", "sh", "-ec", v.words(line))
	if result.Code != 0 {
		v.t.Errorf("`%s` exits %d: %s%s", line, result.Code, result.Stdout, result.Stderr)
	}
	return result.Stdout
}

// page gets one of the relay's pages.
func (v *visitor) page(path string) string {
	v.t.Helper()
	response, err := http.Get("http://" + v.admin + path)
	if err != nil {
		v.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		v.t.Fatalf("%s: %s, %v", path, response.Status, err)
	}
	return string(text)
}

// Every command of the page on a relay of one's own is run as it stands there, in its order; one that no test follows fails.
func TestThePageOnSelfHosting(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(selfHosting)
	if err != nil {
		t.Fatal(err)
	}
	v := newVisitor(t)
	certificate(t, v.dir)
	blocks := regexp.MustCompile("(?ms)^```\n(.*?)^```$").FindAllSubmatch(text, -1)
	if len(blocks) < 7 {
		t.Fatalf("the page has %d blocks of commands", len(blocks))
	}
	before := time.Now()
	for _, block := range blocks {
		for line := range strings.Lines(string(block[1])) {
			line = strings.TrimSpace(line)
			switch {
			case notFollowed[line] != "":
			case strings.HasPrefix(line, "relay key "): // what the command before it prints
				if !strings.HasPrefix(v.key, "sha256:") {
					t.Errorf("the relay has printed no key where the page shows %q", line)
				}
			case strings.HasPrefix(line, "knoot relay --listen"):
				v.serve(v.operator.Command(v.dir, "sh", "-c", "exec "+v.words(line)))
			case strings.Contains(line, "--tls-cert"):
				other := *v // with a state and an address of its own
				other.state = filepath.Join(v.dir, "certified")
				other.serve(v.operator.Command(v.dir, "sh", "-c", "exec "+other.words(line)+" --listen 127.0.0.1:0"))
				other.end()
			case strings.HasPrefix(line, "knoot init"), strings.HasPrefix(line, "git commit"), line == "git push":
				v.sh(v.ana.Person, v.ana.dir, line)
			case line == "git pull":
				v.sh(v.ben.Person, v.ben.dir, line)
			case line == "knoot status": // it exits 1, and says what to do
				told := v.ben.Try(v.ben.dir, "", "knoot", "status")
				has(t, "knoot status", told.Stdout, "relay was none and is now "+v.address, "`knoot trust`")
			case line == "knoot trust":
				has(t, "knoot trust", v.sh(v.ben.Person, v.ben.dir, line), v.address, v.key)
			case strings.HasPrefix(line, "install "):
				v.sh(v.operator, v.dir, line)
			default:
				t.Errorf("no test follows `%s`: run it here, or say why not in notFollowed", line)
			}
		}
	}

	// Both machines use it, and it shows what the page says that it shows.
	for _, m := range []*machine{v.ana, v.ben} {
		m.start()
		m.Knoot(m.dir, "who")
		m.connected(t, "")
	}
	if printed := v.sh(v.operator, v.dir, "knoot relay --state /var/lib/knoot-relay --print-key"); strings.TrimSpace(printed) != v.key {
		t.Errorf("--print-key prints %q, want %s", printed, v.key)
	}
	if health := v.page("/health"); strings.TrimSpace(health) != "ok" {
		t.Errorf("/health answers %q", health)
	}
	has(t, "/status", v.page("/status"), v.key)
	figures := v.page("/metrics")
	for _, name := range regexp.MustCompile(`knoot_relay_[a-z_]+(?:\{[^}]*\})?`).FindAllString(string(text), -1) {
		if !strings.Contains(figures, name) {
			t.Errorf("the page names the figure %s, which the relay does not have", name)
		}
	}

	// The key alone, without the state: it is the same relay, in grace, and the machines come back.
	v.end()
	entries, err := os.ReadDir(v.state)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if entry.Name() != "relay.key" {
			if err := os.RemoveAll(filepath.Join(v.state, entry.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
	key := v.key
	v.serve(v.operator.Command(v.dir, "sh", "-c", "exec knoot relay --listen "+v.address+" --state "+v.state+" --admin 127.0.0.1:0 --token NEW --old-token OLD,2026-04-30"))
	if v.key != key {
		t.Errorf("with the key's file it is %s, and was %s", v.key, key)
	}
	if figures := v.page("/metrics"); !regexp.MustCompile(`(?m)^knoot_relay_grace_seconds [1-9]`).MatchString(figures) {
		t.Error("the relay does not know that its state was lost")
	}
	// Its teams are new to it, too: one machine of the team that has the token is enough.
	v.sh(v.ana.Person, v.ana.dir, "knoot login --relay relay.example.com:7420 --token NEW")
	for _, m := range []*machine{v.ana, v.ben} {
		m.connected(t, "")
	}
	v.end()
	t.Logf("followed in %v", time.Since(before))
}

// newVisitor makes a source folder, an operator, and two machines of a team that has no relay yet.
func newVisitor(t *testing.T) *visitor {
	t.Helper()
	v := &visitor{t: t, operator: stage.NewPerson(t, "operator"), dir: stage.Dir(t)}
	v.state = filepath.Join(v.dir, "var", "knoot-relay")
	docs, err := filepath.Abs("../docs")
	if err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"bin": v.operator.Bin, "docs": docs} {
		if err := os.Symlink(to, filepath.Join(v.dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, folder := range []string{"usr", "etc", "var"} {
		if err := os.Mkdir(filepath.Join(v.dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	host := stage.Host(t)
	for i, name := range []string{"ana", "ben"} {
		p := stage.NewPerson(t, name)
		m := &machine{Person: p, dir: p.Clone(host, "shop")}
		if i == 0 {
			v.ana = m
			p.Knoot(m.dir, "init", "--no-recovery")
			p.Git(m.dir, "add", "--all")
			p.Git(m.dir, "commit", "--quiet", "--message", "Set up knoot")
			p.Git(m.dir, "push", "--quiet", "origin", "HEAD:main")
			continue
		}
		v.ben = m
		var made struct {
			Key string `json:"key"`
		}
		if err := json.Unmarshal([]byte(v.ana.Knoot(v.ana.dir, "member", "add", name+"@example.org", "--json")), &made); err != nil {
			t.Fatal(err)
		}
		p.Git(m.dir, "pull", "--quiet", "origin", "main")
		p.Knoot(m.dir, "join", made.Key)
	}
	return v
}

// certificate writes a certificate and its key where the page has them.
func certificate(t *testing.T, dir string) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "relay.example.com"}, DNSNames: []string{"relay.example.com"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	raw, err := x509.CreateCertificate(nil, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"fullchain.pem": {Type: "CERTIFICATE", Bytes: raw}, "privkey.pem": {Type: "PRIVATE KEY", Bytes: key}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// The unit is one that systemd takes, and what it starts runs with the folder that systemd gives it.
func TestTheSystemdUnit(t *testing.T) {
	t.Parallel()
	unit, err := os.ReadFile("../docs/self-hosting/knoot-relay.service")
	if err != nil {
		t.Fatal(err)
	}
	v := &visitor{t: t, operator: stage.NewPerson(t, "operator"), dir: stage.Dir(t)}
	knoot := filepath.Join(v.operator.Bin, "knoot")
	path := filepath.Join(v.dir, "knoot-relay.service")
	if err := os.WriteFile(path, bytes.ReplaceAll(unit, []byte("/usr/local/bin/knoot"), []byte(knoot)), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Log("there is no systemd-analyze here, so the unit is not verified")
	} else if out, err := exec.Command("systemd-analyze", "verify", path).CombinedOutput(); err != nil || strings.Contains(string(out), "knoot-relay") {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	starts := regexp.MustCompile(`(?m)^#? ?ExecStart=(/usr/local/bin/knoot .*)$`).FindAllSubmatch(unit, -1)
	if len(starts) != 2 {
		t.Fatalf("the unit starts %d programs, want one, and one with a token as a comment", len(starts))
	}
	token := filepath.Join(v.dir, "credentials")
	if err := os.Mkdir(token, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(token, "token"), []byte("secret\n"), 0o400); err != nil {
		t.Fatal(err)
	}
	for i, start := range starts {
		line := strings.NewReplacer("/usr/local/bin/knoot", knoot, "--listen :7420", "--listen "+stage.Address(t), "127.0.0.1:7421", "127.0.0.1:0").Replace(string(start[1]))
		command := v.operator.Command(v.dir, "sh", "-c", "exec "+line)
		command.Env = append(command.Env, "STATE_DIRECTORY="+filepath.Join(v.dir, fmt.Sprint("state", i)), "CREDENTIALS_DIRECTORY="+token)
		v.serve(command)
		if health := v.page("/health"); strings.TrimSpace(health) != "ok" {
			t.Errorf("/health answers %q", health)
		}
		v.end()
	}
}

// The image's program is built as the container file says: it is static, and runs where there is nothing else.
func TestTheContainersProgram(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("containers run Linux")
	}
	t.Parallel()
	text, err := os.ReadFile("../docs/self-hosting/Containerfile")
	if err != nil {
		t.Fatal(err)
	}
	part := func(pattern string) string {
		t.Helper()
		match := regexp.MustCompile("(?m)" + pattern).FindSubmatch(text)
		if match == nil {
			t.Fatalf("the container file has no %s", pattern)
		}
		return string(match[1])
	}
	v := &visitor{t: t, operator: stage.NewPerson(t, "operator"), dir: stage.Dir(t)}
	build := exec.Command("sh", "-ec", strings.ReplaceAll(part(`^RUN (go build .*?) &&`), "/out/", v.dir+"/"))
	build.Dir, build.Env = "..", append(os.Environ(), part(`^ENV (.*)$`))
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	program, err := elf.Open(filepath.Join(v.dir, "knootd"))
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	if libraries, err := program.ImportedLibraries(); err != nil || len(libraries) != 0 {
		t.Errorf("it wants the libraries %q, %v", libraries, err)
	}
	for _, segment := range program.Progs {
		if segment.Type == elf.PT_INTERP {
			t.Error("it wants a loader, which an empty image lacks")
		}
	}
	var entry, words []string
	if err := json.Unmarshal([]byte(part(`^ENTRYPOINT (.*)$`)), &entry); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(part(`^CMD (.*)$`)), &words); err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(v.dir, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	args := strings.Fields(strings.NewReplacer(":7420", "127.0.0.1:0", ":7421", "127.0.0.1:0").Replace(strings.Join(append(entry, words...), " ")))
	command := &exec.Cmd{Path: args[0], Args: args, Dir: "/", Env: []string{}}
	if os.Geteuid() == 0 {
		if err := os.Chown(state, 65532, 65532); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(v.dir, 0o755); err != nil {
			t.Fatal(err)
		}
		command.SysProcAttr = &syscall.SysProcAttr{Chroot: v.dir, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	} else {
		t.Log("only root can give it an empty root, so it runs in this one")
		command.Path = filepath.Join(v.dir, args[0])
		for i := range args {
			if args[i] == "/state" {
				args[i] = state
			}
		}
	}
	v.serve(command)
	if health := v.page("/health"); strings.TrimSpace(health) != "ok" {
		t.Errorf("/health answers %q", health)
	}
	v.end()
}
