package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write docs/reference.md anew")

// testConsole is a console of nobody, whose streams are buffers.
func testConsole(t *testing.T) (c *console, stdout, stderr *bytes.Buffer) {
	t.Helper()
	stdout, stderr = new(bytes.Buffer), new(bytes.Buffer)
	env := map[string]string{"HOME": t.TempDir()}
	return &console{
		stdin: strings.NewReader(""), stdout: stdout, stderr: stderr, dir: t.TempDir(),
		getenv: func(key string) string { return env[key] },
		now:    func() time.Time { return time.Date(2026, 3, 31, 12, 0, 0, 0, time.UTC) },
	}, stdout, stderr
}

// reference is the text of docs/reference.md: what -h prints, for each command.
func reference(t *testing.T) string {
	c, stdout, _ := testConsole(t)
	var b strings.Builder
	b.WriteString("# Commands\n\nThis page is what `knoot COMMAND -h` prints; `go test ./cmd/knootd -run Reference -update` writes it anew.\n\n" +
		"Errors are one sentence on standard error. Exit codes: 0, it is done; 1, it failed; 2, it was typed wrongly.\n" +
		"Flags may stand before or behind the other arguments; behind `--` nothing is a flag.\n" +
		"Nothing is coloured outside of a terminal, or where `NO_COLOR` is set.\n\n" +
		"Where `CI` is set, commands that would change something do nothing and say so, unless `KNOOT=on`; those that only read\n" +
		"work as ever, and so do `demo` and `daemon --stop`. A clone with `KNOOT_EPHEMERAL=1`, or with `CI` and `KNOOT=on`, is thrown\n" +
		"away soon: nothing can be remembered in it.\n")
	show := func(args ...string) {
		stdout.Reset()
		if code := c.run(context.Background(), args); code != exitOK {
			t.Fatalf("knoot %s exits %d", strings.Join(args, " "), code)
		}
		fmt.Fprintf(&b, "\n```\n%s```\n", stdout)
	}
	show("-h")
	for _, command := range c.commands().Subcommands {
		fmt.Fprintf(&b, "\n## knoot %s\n", command.Name)
		show(command.Name, "-h")
		for _, below := range command.Subcommands {
			fmt.Fprintf(&b, "\n### knoot %s\n", below.Name)
			show(append(strings.Fields(below.Name), "-h")...)
		}
	}
	return b.String()
}

func TestReferenceIsWhatHelpPrints(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "reference.md")
	want := reference(t)
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/reference.md is not what -h prints: run `go test ./cmd/knootd -run Reference -update`")
	}
}

func TestHelpFitsATerminal(t *testing.T) {
	for i, line := range strings.Split(reference(t), "```")[1:] {
		if i%2 == 1 {
			continue
		}
		for _, l := range strings.Split(line, "\n") {
			if n := len([]rune(l)); n > helpWidth && !strings.HasPrefix(strings.TrimSpace(l), "knoot ") {
				t.Errorf("%d columns: %s", n, l)
			}
		}
	}
}

func TestFlagsStandAnywhere(t *testing.T) {
	flags := newFlags("x")
	name, yes := flags.String("name", "", ""), flags.Bool("yes", false, "")
	for _, args := range [][]string{
		{"--name", "n", "--yes", "text", "more"},
		{"text", "--name", "n", "more", "-yes"},
		{"text", "more", "--name=n", "--yes=true"},
	} {
		*name, *yes = "", false
		if err := flags.Parse(flagsFirst(flags, args)); err != nil {
			t.Fatalf("%q: %v", args, err)
		}
		if *name != "n" || !*yes || strings.Join(flags.Args(), " ") != "text more" {
			t.Errorf("%q: name %q, yes %v, arguments %q", args, *name, *yes, flags.Args())
		}
	}
	if err := flags.Parse(flagsFirst(flags, []string{"-", "--", "--name", "-x"})); err != nil || strings.Join(flags.Args(), " ") != "- --name -x" {
		t.Errorf("behind --: %q, %v", flags.Args(), err)
	}
	flags.SetOutput(io.Discard)
	for _, args := range [][]string{{"text", "--name"}, {"--color"}, {"-n", "x"}} {
		if err := flags.Parse(flagsFirst(flags, args)); err == nil {
			t.Errorf("%q parses", args)
		}
	}
}

func TestMisuse(t *testing.T) {
	for line, want := range map[string]string{
		"remeber x":                "did you mean `knoot remember`?",
		"frobnicate":               "`knoot -h` lists them",
		"--json recall":            "a command comes first",
		"version now":              "takes no argument",
		"remember text":            "--name NAME",
		"remember --name n":        "there is no text",
		"cache --name n text":      "--path PATH",
		"recall --color":           "there is no flag -color",
		"stats --since yesterday":  "is no time",
		"plan":                     "there is no plan",
		"plan --clear text":        "--clear takes no plan",
		"forget":                   "--last",
		"forget --last n":          "takes no name",
		"confirm":                  "knoot confirm NAME",
		"why":                      "knoot why PATH",
		"off --for ever":           "no length of time",
		"init --remote":            "goes with --uninstall",
		"daemon --stop --install":  "one or the other",
		"export --since never":     "is no time",
		"shown a b":                "name one session",
		"member":                   "is followed by add, ls or rm",
		"member ad x":              "did you mean `knoot member add`?",
		"member add":               "knoot member add EMAIL",
		"member add nobody":        "no mail address",
		"member rm":                "EMAIL or --device ID",
		"member rm a@b --device c": "EMAIL or --device ID",
		"room frobnicate":          "`knoot room -h` lists them",
		"room grant x":             "ROOM EMAIL",
		"areas --write":            "goes with --import-codeowners",
		"who --at soon":            "is no time",
		"wait":                     "knoot wait PATH",
		"wait a --for ever":        "no length of time",
		"release a b":              "knoot release PATH",
		"take":                     "knoot take PATH",
		"msg all":                  "knoot msg TO TEXT",
		"inbox now":                "takes no argument",
		"mcp config":               "claude --agent NAME",
		"agent add":                "knoot agent add NAME",
		"agent rm":                 "knoot agent rm NAME",
		"mcp config claude":        "--agent NAME",
		"agent":                    "is followed by add, start",
		"agent start":              "knoot agent start NAME",
		"agent template add a.b":   "30 letters",
		"join a b":                 "one key",
		"trust --roster 12":        "64 hex digits",
	} {
		c, stdout, stderr := testConsole(t)
		code := c.run(context.Background(), strings.Fields(line))
		if code != exitMisuse || !strings.Contains(stderr.String(), want) || strings.Count(stderr.String(), "\n") != 1 || stdout.Len() > 0 {
			t.Errorf("knoot %s: exit %d, %q and %q, want 2 and a line with %q", line, code, stdout, stderr, want)
		}
	}
	c, _, stderr := testConsole(t)
	if code := c.run(context.Background(), nil); code != exitMisuse || !strings.Contains(stderr.String(), "Usage: knoot COMMAND") {
		t.Errorf("knoot: exit %d, %q", code, stderr)
	}
}
