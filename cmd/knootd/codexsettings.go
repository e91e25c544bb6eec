package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/BurntSushi/toml"

	"knoot.dev/knoot/gitlog"
)

// codexTable is the table of Codex's configuration that says how knoot's tools are reached.
const codexTable = "mcp_servers.knoot"

// codexText is that table. Codex asks before each call of a tool, and with nobody to ask cancels it, unless it is told that these are
// approved; what they may do is the same as what knoot's commands do.
func codexText(config clientConfig) string {
	return fmt.Sprintf("[%s]\nurl = %q\nhttp_headers = { Authorization = %q }\ndefault_tools_approval_mode = \"approve\"\n", codexTable, config.URL, config.Headers["Authorization"])
}

func (c *console) configureCodex(ctx context.Context, agent string, config clientConfig, write bool) error {
	path, err := c.ownFile("CODEX_HOME", ".codex", "config.toml", "Codex's configuration")
	if err != nil {
		return err
	}
	if !write {
		fmt.Fprintf(c.stdout, "This belongs into %s, which nobody else may read: it holds a secret of %s's.\n\n%s", c.homely(path), agent, codexText(config))
		return nil
	}
	target, err := throughLink(path)
	if err != nil {
		return err
	}
	if gitSees(ctx, target) {
		return fmt.Errorf("git tracks %s, or does not ignore it, and what belongs there holds a secret: have git ignore it, or set CODEX_HOME to a folder elsewhere", path)
	}
	text, err := os.ReadFile(target)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot read %s: %w", path, err)
	}
	fresh, err := withCodexTable(string(text), codexText(config))
	if err != nil {
		return fmt.Errorf("%s: %w; without --write this prints what to put there", path, err)
	}
	folder := filepath.Dir(path)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("cannot make %s: %w", folder, err)
	}
	if err := gitlog.ReplaceFile(target, []byte(fresh), 0o600); err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	fmt.Fprintf(c.stdout, "Codex connects as %s from its next start, in every repository (%s).\n", agent, c.homely(path))
	return nil
}

// gitSees reports whether a file is one that git tracks, or would once it is there: it lies in a worktree and is not ignored.
func gitSees(ctx context.Context, path string) bool {
	folder := filepath.Dir(path)
	for {
		if info, err := os.Stat(folder); err == nil && info.IsDir() || folder == filepath.Dir(folder) {
			break
		}
		folder = filepath.Dir(folder)
	}
	git := func(args ...string) (string, error) {
		out, err := exec.CommandContext(ctx, "git", append([]string{"-C", folder}, args...)...).Output()
		return strings.TrimSpace(string(out)), err
	}
	inside, err := git("rev-parse", "--is-inside-work-tree")
	if err != nil { // there is no repository, or one of which git says nothing, such as somebody else's
		for at := folder; ; at = filepath.Dir(at) {
			if _, err := os.Lstat(filepath.Join(at, ".git")); err == nil {
				return true
			}
			if at == filepath.Dir(at) {
				return false
			}
		}
	}
	if inside != "true" {
		return false
	}
	if tracked, err := git("--literal-pathspecs", "ls-files", "--", path); err != nil || tracked != "" {
		return true
	}
	_, err = git("check-ignore", "--quiet", "--", path)
	return err != nil
}

// codexHeader is the header of a table; the name may be quoted or spaced in ways that Codex does not write, and those are not ours.
var codexHeader = regexp.MustCompile(`(?m)^[ \t]*\[`)

// withCodexTable returns a configuration with knoot's table, in the place of the one that stands in it; every other line is as it was,
// comments behind that table included: they belong to the next one.
func withCodexTable(text, table string) (string, error) {
	if strings.Contains(text, "\r") {
		return "", errors.New("its lines end as on Windows")
	}
	var before map[string]any
	if _, err := toml.Decode(text, &before); err != nil {
		return "", errors.New("it does not parse: mend it first")
	}
	kept, rest := "", text
	for rest != "" {
		part := rest
		if at := codexHeader.FindStringIndex(rest[1:]); at != nil {
			part = rest[:at[0]+1]
		}
		rest = rest[len(part):]
		head := strings.TrimSpace(part)
		if !strings.HasPrefix(head, "["+codexTable+"]") && !strings.HasPrefix(head, "["+codexTable+".") {
			kept += part
			continue
		}
		lines := strings.SplitAfter(part, "\n")
		behind := len(lines)
		for behind > 0 {
			if line := strings.TrimSpace(lines[behind-1]); line != "" && line[0] != '#' {
				break
			}
			behind--
		}
		for behind < len(lines) && strings.TrimSpace(lines[behind]) == "" {
			behind++ // a blank line stands before knoot's table already
		}
		kept += strings.Join(lines[behind:], "")
	}
	if kept != "" && !strings.HasSuffix(kept, "\n") {
		kept += "\n"
	}
	if kept != "" && !strings.HasSuffix(kept, "\n\n") {
		kept += "\n"
	}
	fresh := kept + table
	var after map[string]any
	if _, err := toml.Decode(fresh, &after); err != nil {
		return "", errors.New("knoot stands in it already, in a way that cannot be replaced: remove that first")
	}
	return fresh, nil
}
