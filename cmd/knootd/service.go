package main

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"knoot.dev/knoot/gitlog"
)

// A service starts the daemon when the person logs in: a user unit of systemd, or an agent of launchd.
const (
	systemdUnit  = "knoot.service"
	launchdLabel = "dev.knoot.daemon"
)

// serviceFile is where the service is described, and how it is started and ended.
type serviceFile struct {
	path        string
	text        string
	start, stop [][]string // command lines
}

func (c *console) service() (*serviceFile, error) {
	home := c.getenv("HOME")
	if !filepath.IsAbs(home) {
		return nil, errors.New("there is no home directory to put a service in: set HOME")
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("cannot tell where knootd is: %w", err)
	}
	if runtime.GOOS == "darwin" {
		path := filepath.Join(home, "Library", "LaunchAgents", launchdLabel+".plist")
		domain := fmt.Sprintf("gui/%d", os.Getuid())
		return &serviceFile{
			path: path, text: launchdAgent(self, c.getenv("KNOOT_HOME")),
			start: [][]string{{"launchctl", "bootstrap", domain, path}},
			stop:  [][]string{{"launchctl", "bootout", domain + "/" + launchdLabel}},
		}, nil
	}
	config := c.getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(config) {
		config = filepath.Join(home, ".config")
	}
	return &serviceFile{
		path: filepath.Join(config, "systemd", "user", systemdUnit), text: systemdService(self, c.getenv("KNOOT_HOME")),
		start: [][]string{{"systemctl", "--user", "daemon-reload"}, {"systemctl", "--user", "enable", "--now", systemdUnit}},
		stop:  [][]string{{"systemctl", "--user", "disable", "--now", systemdUnit}},
	}, nil
}

func systemdService(executable, home string) string {
	environment := ""
	if home != "" {
		environment = "Environment=" + quoteUnit("KNOOT_HOME="+home, false) + "\n"
	}
	return "[Unit]\nDescription=knoot: what coding agents know, shared through git\n\n" +
		"[Service]\n" + environment + "ExecStart=" + quoteUnit(executable, true) + " daemon\nRestart=on-failure\n\n" +
		"[Install]\nWantedBy=default.target\n"
}

// quoteUnit quotes a word of a unit file. In command lines a dollar begins a variable.
func quoteUnit(word string, command bool) string {
	word = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%").Replace(word)
	if command {
		word = strings.ReplaceAll(word, "$", "$$")
	}
	return `"` + word + `"`
}

func launchdAgent(executable, home string) string {
	text := func(s string) string {
		var b strings.Builder
		_ = xml.EscapeText(&b, []byte(s)) // a builder takes everything
		return "<string>" + b.String() + "</string>"
	}
	environment := ""
	if home != "" {
		environment = "  <key>EnvironmentVariables</key>\n  <dict><key>KNOOT_HOME</key>" + text(home) + "</dict>\n"
	}
	return xml.Header +
		`<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">` + "\n" +
		"<plist version=\"1.0\">\n<dict>\n  <key>Label</key>" + text(launchdLabel) + "\n" +
		"  <key>ProgramArguments</key>\n  <array>" + text(executable) + text("daemon") + "</array>\n" + environment +
		"  <key>RunAtLoad</key><true/>\n  <key>KeepAlive</key>\n  <dict><key>SuccessfulExit</key><false/></dict>\n</dict>\n</plist>\n"
}

func (c *console) installService(ctx context.Context) error {
	s, err := c.service()
	if err != nil {
		return err
	}
	if _, err := exec.LookPath(s.start[0][0]); err != nil {
		return fmt.Errorf("there is no %s here to start services with: the first hook of a session starts the daemon, or run `knoot daemon` by hand", s.start[0][0])
	}
	if err := os.MkdirAll(filepath.Dir(s.path), 0o755); err != nil {
		return fmt.Errorf("cannot write the service: %w", err)
	}
	if err := gitlog.ReplaceFile(s.path, []byte(s.text), 0o644); err != nil {
		return fmt.Errorf("cannot write the service: %w", err)
	}
	fmt.Fprintf(c.stdout, "Wrote %s.\n", s.path)
	for _, line := range s.start {
		if err := runTool(ctx, line); err != nil {
			return fmt.Errorf("the service is written, but does not start: %w", err)
		}
	}
	fmt.Fprintln(c.stdout, "The daemon runs, and starts whenever you log in. `knoot daemon --uninstall` takes it out again.")
	return nil
}

func (c *console) uninstallService(ctx context.Context) error {
	s, err := c.service()
	if err != nil {
		return err
	}
	if _, err := os.Stat(s.path); errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintln(c.stdout, "There is no service to take out.")
		return nil
	}
	for _, line := range s.stop {
		if err := runTool(ctx, line); err != nil {
			fmt.Fprintf(c.stderr, "knoot: %s\n", oneLine(err.Error())) // the file goes all the same
		}
	}
	if err := os.Remove(s.path); err != nil {
		return fmt.Errorf("cannot remove the service: %w", err)
	}
	fmt.Fprintf(c.stdout, "Removed %s.\n", s.path)
	return nil
}

func runTool(ctx context.Context, line []string) error {
	out, err := exec.CommandContext(ctx, line[0], line[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("`%s` failed: %s (%w)", strings.Join(line, " "), oneLine(string(out)), err)
	}
	return nil
}
