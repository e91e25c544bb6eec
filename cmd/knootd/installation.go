package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"knoot.dev/knoot/gitlog"
	"knoot.dev/knoot/hook"
)

// installation is how knoot gets into one agent: the files that hold its hooks, and what knoot's are there.
type installation struct {
	name    string // as in `knoot hook NAME`
	title   string // as people call the agent
	program string // its executable
	folder  string // of a repository; where it is there, people of the repository work with the agent
	file    string // in a repository, with the hooks
	local   string // another one that may hold them, which init does not write; "" where there is none
	// main says that a linked worktree has the hooks of the main checkout, provided that the folder is there in both.
	main bool
	own  func(c *console) (string, error) // the person's own file
	mark string                           // stands in a file where knoot's hooks are in it
	// add puts the hooks into a file's text (none: there is no file), and with allow leave to run knoot's own commands. What is
	// there already stays as it is, and so does all that is not knoot's.
	add func(doc []byte, allow bool) ([]byte, error)
	// remove takes out whatever add puts in. The result is nil where the file should go.
	remove func(doc []byte) ([]byte, error)
	trust  string // what its person has to do before it runs a hook that is new, as the end of a sentence; "" where nothing
	allows bool   // add heeds allow
	// examine adds to status what the agent itself says of its hooks, of which one ran here or none; nil: it says nothing.
	examine func(e *examination, ctx context.Context, repo *gitlog.Repository, a *installation, ran bool)
}

// installations are in the order in which they are told of. The first is the one that is always set up.
var installations = []*installation{
	{
		name: "claude", title: "Claude Code", program: "claude", folder: ".claude",
		file: ".claude/settings.json", local: ".claude/settings.local.json",
		own:  inHome("CLAUDE_CONFIG_DIR", ".claude", "settings.json", "Claude Code's settings"),
		mark: quoteJSON(hook.ClaudeCommand),
		add:  func(doc []byte, allow bool) ([]byte, error) { return claudeSettings(allow).add(doc) },
		remove: func(doc []byte) ([]byte, error) {
			return claudeSettings(false).remove(doc, allowRules())
		},
		allows: true,
	},
	{
		name: "codex", title: "Codex", program: "codex", folder: ".codex",
		file: ".codex/hooks.json", main: true,
		own:     inHome("CODEX_HOME", ".codex", "hooks.json", "Codex's hooks"),
		mark:    quoteJSON(hook.CodexCommand),
		add:     func(doc []byte, _ bool) ([]byte, error) { return codexHooks.add(doc) },
		remove:  func(doc []byte) ([]byte, error) { return codexHooks.remove(doc, nil) },
		trust:   "type /hooks and trust knoot's: until then Codex skips them, and does not say so",
		examine: (*examination).lookAtCodex,
	},
	{
		name: "gemini", title: "Gemini CLI", program: "gemini", folder: ".gemini",
		file:   ".gemini/settings.json",
		own:    inHome("", ".gemini", "settings.json", "Gemini CLI's settings"),
		mark:   quoteJSON(hook.GeminiCommand),
		add:    func(doc []byte, _ bool) ([]byte, error) { return geminiSettings.add(doc) },
		remove: func(doc []byte) ([]byte, error) { return geminiSettings.remove(doc, nil) },
		trust:  "trust the folder when it asks: until then it runs no hooks of the repository",
	},
	{
		name: "cursor", title: "Cursor", program: "cursor-agent", folder: ".cursor",
		file:   ".cursor/hooks.json",
		own:    inHome("", ".cursor", "hooks.json", "Cursor's hooks"),
		mark:   quoteJSON(hook.CursorCommand),
		add:    func(doc []byte, _ bool) ([]byte, error) { return cursorHooks.add(doc) },
		remove: func(doc []byte) ([]byte, error) { return cursorHooks.remove(doc, nil) },
	},
	{
		// A folder .github is no sign of Copilot.
		name: "copilot", title: "GitHub Copilot CLI", program: "copilot", folder: ".github/hooks",
		file:   ".github/hooks/knoot.json",
		own:    inHome("COPILOT_HOME", ".copilot", "hooks/knoot.json", "Copilot CLI's hooks"),
		mark:   quoteJSON(hook.CopilotCommand),
		add:    func(doc []byte, _ bool) ([]byte, error) { return copilotHooks.add(doc) },
		remove: func(doc []byte) ([]byte, error) { return copilotHooks.remove(doc, nil) },
		trust:  "trust the folder when it asks: until then it runs no hooks of the repository",
	},
	{
		name: "opencode", title: "opencode", program: "opencode", folder: ".opencode",
		file: ".opencode/plugins/knoot.ts",
		own:  inHome("XDG_CONFIG_HOME", ".config", "opencode/plugins/knoot.ts", "opencode's plugins"),
		mark: opencodeMark,
		add: func(doc []byte, _ bool) ([]byte, error) {
			if len(doc) > 0 && string(doc) != hook.OpencodePlugin {
				return nil, errors.New("it is not as knoot writes it")
			}
			return []byte(hook.OpencodePlugin), nil
		},
		remove: func(doc []byte) ([]byte, error) {
			switch {
			case string(doc) == hook.OpencodePlugin:
				return nil, nil
			case bytes.Contains(doc, []byte(opencodeMark)):
				return nil, errors.New("it is not as knoot wrote it")
			}
			return doc, nil
		},
	},
}

// opencodeMark is a line of knoot's plugin, in whatever version.
const opencodeMark = "// knoot's plugin for opencode."

var (
	geminiSettings = agentSettings{groups: hook.GeminiGroups()}
	cursorHooks    = agentSettings{groups: hook.CursorGroups(), versioned: true}
	copilotHooks   = agentSettings{groups: hook.CopilotGroups(), versioned: true}
)

// codexHooks is what knoot adds to Codex's hooks.json.
var codexHooks = agentSettings{groups: hook.CodexGroups()}

// agentNames are what --agent takes beside all.
func agentNames() (names []string) {
	for _, a := range installations {
		names = append(names, a.name)
	}
	return names
}

// chosen are the agents to set up: the one named, all, or where none is named the first and those that are on this machine or
// that others work with in the repository.
func (c *console) chosen(name string, repo *gitlog.Repository) (out []*installation) {
	for i, a := range installations {
		switch name {
		case "all", a.name:
		case "":
			if i > 0 && !a.onPath() && !isFolder(filepath.Join(repo.Root, a.folder)) {
				continue
			}
		default:
			continue
		}
		out = append(out, a)
	}
	return out
}

// onPath reports whether the agent's executable is on PATH.
func (a *installation) onPath() bool {
	_, err := exec.LookPath(a.program)
	return err == nil
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// path is the file of a repository that has the agent's hooks, and the worktree that it is in.
func (a *installation) path(ctx context.Context, repo *gitlog.Repository) (path, root string) {
	root = repo.Root
	if a.main {
		root = mainCheckout(ctx, repo)
	}
	return filepath.Join(root, filepath.FromSlash(a.file)), root
}

// mainCheckout is the worktree that a repository's linked ones hang on, where they do so in the plain way; else the worktree
// itself.
func mainCheckout(ctx context.Context, repo *gitlog.Repository) string {
	if repo.GitDir == repo.CommonDir || filepath.Base(repo.CommonDir) != ".git" {
		return repo.Root
	}
	if bare, err := gitConfig(ctx, repo, "core.bare"); err != nil || bare == "true" {
		return repo.Root
	}
	return filepath.Dir(repo.CommonDir)
}

// places are the files in which an agent's hooks are, as people write them.
func (c *console) places(ctx context.Context, repo *gitlog.Repository, a *installation) (places []string) {
	path, _ := a.path(ctx, repo)
	paths := []string{path}
	if a.local != "" {
		paths = append(paths, filepath.Join(repo.Root, filepath.FromSlash(a.local)))
	}
	if own, err := a.own(c); err == nil {
		paths = append(paths, own)
	}
	for _, path := range paths {
		if text, err := os.ReadFile(path); err == nil && bytes.Contains(text, []byte(a.mark)) {
			places = append(places, c.short(repo, path))
		}
	}
	return places
}

// addHooks adds the hooks of agents to a repository's files or to the person's own, and returns what was written with a line for
// each. An error is for the end: all else is done.
func (c *console) addHooks(ctx context.Context, repo *gitlog.Repository, f initFlags, agents []*installation, wrote []string) ([]string, error) {
	var failed []error
	for _, a := range agents {
		path, root := a.path(ctx, repo)
		if *f.user || *f.private {
			own, err := a.own(c)
			if err != nil {
				failed = append(failed, err)
				continue
			}
			path = own
		} else if root != repo.Root {
			// Without a folder of its own a linked worktree is taken to have no hooks.
			if err := os.MkdirAll(filepath.Join(repo.Root, a.folder), 0o755); err != nil {
				failed = append(failed, err)
			}
		}
		changed, err := changeFile(path, func(doc []byte) ([]byte, error) { return a.add(doc, *f.allow) })
		if err != nil {
			failed = append(failed, err)
		}
		if changed {
			what := "hooks for " + a.title
			if *f.allow && a.allows {
				what += ", and leave to run knoot's commands"
			}
			wrote = append(wrote, c.short(repo, path)+": "+what)
		}
	}
	for i := range wrote {
		wrote[i] = strings.ReplaceAll(wrote[i], repo.Root+string(filepath.Separator), "")
	}
	return wrote, errors.Join(failed...)
}

// toStart says how the agents begin to work with knoot, a line for each.
func toStart(repo *gitlog.Repository, agents []*installation) (lines []string) {
	for _, a := range agents {
		line := fmt.Sprintf("start %s in %s", a.title, repo.Root)
		if a.trust != "" {
			line += ", " + a.trust
		}
		lines = append(lines, line)
	}
	if len(lines) == 1 && agents[0].trust == "" {
		lines[0] += ", then `knoot status`"
		return lines
	}
	return append(lines, "`knoot status` says whether hooks run")
}

// toCommit lists what init left in work trees to be committed, as commands.
func (c *console) toCommit(ctx context.Context, repo *gitlog.Repository, f initFlags, agents []*installation) (commands []string) {
	here, elsewhere := []string{}, map[string][]string{} // by another worktree's root
	if !*f.private {
		here = append(here, gitlog.SettingsFile)
	}
	if !*f.user && !*f.private {
		for _, a := range agents {
			if _, root := a.path(ctx, repo); root != repo.Root {
				elsewhere[root] = append(elsewhere[root], a.file)
			} else {
				here = append(here, a.file)
			}
		}
	}
	changed := func(root string, files []string) []string {
		return slices.DeleteFunc(files, func(file string) bool {
			out, err := git(ctx, &gitlog.Repository{Root: root}, "status", "--porcelain", "--", file)
			return err != nil || out == ""
		})
	}
	if files := changed(repo.Root, here); len(files) > 0 {
		commands = append(commands, fmt.Sprintf("git add %s && git commit -m \"Share what agents learn\"", strings.Join(files, " ")))
	}
	for root, files := range elsewhere {
		if files = changed(root, files); len(files) > 0 {
			commands = append(commands, fmt.Sprintf("in %s, whose hooks count in all worktrees: git add %s && git commit -m \"Share what agents learn\"", root, strings.Join(files, " ")))
		}
	}
	return commands
}

// removeHooks takes the hooks of all agents out of a repository's files, and out of the person's own where no other of their
// clones needs them or they say so (user). It returns lines for what is removed and for what is left.
func (c *console) removeHooks(ctx context.Context, repo *gitlog.Repository, others int, user bool) (removed, left []string) {
	for _, a := range installations {
		takeOut := func(path string) {
			changed, err := changeFile(path, a.remove)
			if err != nil {
				left = append(left, err.Error())
			}
			if changed {
				what := "knoot's hooks"
				if a.allows {
					what += " and permissions"
				}
				removed = append(removed, c.short(repo, path)+": "+what)
				// A folder that init may have made goes only when nothing else is in it.
				for dir, n := filepath.Dir(path), strings.Count(a.file, "/"); n > 0 && os.Remove(dir) == nil; n-- {
					dir = filepath.Dir(dir)
				}
			}
		}
		path, root := a.path(ctx, repo)
		takeOut(path)
		if root != repo.Root {
			_ = os.Remove(filepath.Join(repo.Root, a.folder)) // the same
		}
		own, err := a.own(c)
		if err != nil {
			continue // there is none
		}
		text, _ := os.ReadFile(own) // absent or not, takeOut says what is wrong
		if others == 0 || user {
			takeOut(own)
		} else if bytes.Contains(text, []byte(a.mark)) {
			left = append(left, fmt.Sprintf("The hooks in %s serve your other clones, of which there are %d; `knoot init --uninstall --user` takes them out.", c.short(repo, own), others))
		}
	}
	return removed, left
}

// inHome is ownFile for a table.
func inHome(variable, folder, file, what string) func(*console) (string, error) {
	return func(c *console) (string, error) { return c.ownFile(variable, folder, file, what) }
}

// ownFile is a file in the folder that a variable names, else in that folder of the home directory.
func (c *console) ownFile(variable, folder, file, what string) (string, error) {
	if variable != "" && c.getenv(variable) != "" {
		return filepath.Join(c.getenv(variable), file), nil
	}
	home := c.getenv("HOME")
	if home == "" {
		return "", fmt.Errorf("there is no home directory that holds %s: set HOME", what)
	}
	return filepath.Join(home, folder, file), nil
}
