package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/gitlog"
	"knoot.dev/knoot/hook"
)

const (
	// codexTried is the version of Codex that knoot's hooks were tried with. Older ones leave out some edits, those of their code
	// mode above all.
	codexTried = "0.171.0"
	// codexTime is how long Codex may take to say which hooks it has. It takes about 0.2 s.
	codexTime = 5 * time.Second
)

// codexHook is what Codex says of a hook.
type codexHook struct {
	Event   string `json:"eventName"`
	Command string `json:"command"`
	Source  string `json:"sourcePath"`
	Enabled bool   `json:"enabled"`
	Trust   string `json:"trustStatus"` // managed, trusted, untrusted, or modified since it was trusted
}

func (h codexHook) runs() bool { return h.Enabled && (h.Trust == "trusted" || h.Trust == "managed") }

// codexSays is what Codex says of itself, asked in a folder.
type codexSays struct {
	version string // such as 0.171.0; "" where it does not say
	hooks   []codexHook
}

func (s codexSays) title() string { return strings.TrimSpace("Codex " + s.version) }

// askCodex asks the Codex that is on PATH which hooks it has in dir. It is a process of its own, which ends with the answer.
func askCodex(ctx context.Context, program, dir string) (says codexSays, err error) {
	ctx, cancel := context.WithTimeout(ctx, codexTime)
	defer cancel()
	server := exec.CommandContext(ctx, program, "app-server")
	server.Dir = dir
	in, err := server.StdinPipe()
	if err != nil {
		return says, err
	}
	out, err := server.StdoutPipe()
	if err != nil {
		return says, err
	}
	if err := server.Start(); err != nil {
		return says, err
	}
	defer func() {
		_ = in.Close() // which ends it
		if werr := server.Wait(); err != nil && ctx.Err() != nil {
			err = fmt.Errorf("it did not answer within %v (%w)", codexTime, errors.Join(werr, err))
		}
	}()
	defer context.AfterFunc(ctx, func() { _ = out.Close() })() // what it started may hold the other end
	answers := bufio.NewReader(out)
	// call asks for something and reads on to the answer: notices come in between.
	call := func(id int, method string, params, result any) error {
		if err := json.NewEncoder(in).Encode(map[string]any{"id": id, "method": method, "params": params}); err != nil {
			return err
		}
		for {
			line, err := answers.ReadBytes('\n')
			if err != nil {
				return err
			}
			var answer struct {
				ID     *int            `json:"id"`
				Result json.RawMessage `json:"result"`
				Error  *struct {
					Message string `json:"message"`
				} `json:"error"`
			}
			if json.Unmarshal(line, &answer) != nil || answer.ID == nil || *answer.ID != id {
				continue
			}
			if answer.Error != nil {
				return fmt.Errorf("%s: %s", method, answer.Error.Message)
			}
			return json.Unmarshal(answer.Result, result)
		}
	}
	var self struct {
		UserAgent string `json:"userAgent"`
	}
	if err := call(1, "initialize", map[string]any{"clientInfo": map[string]string{"name": "knoot", "version": socket.Version}}, &self); err != nil {
		return says, err
	}
	// knoot/0.171.0 (Debian 12; x86_64) …: the asker's name with Codex's version.
	if _, after, found := strings.Cut(self.UserAgent, "/"); found {
		says.version, _, _ = strings.Cut(after, " ")
	}
	if err := json.NewEncoder(in).Encode(map[string]string{"method": "initialized"}); err != nil {
		return says, err
	}
	var list struct {
		Data []struct {
			Hooks []codexHook `json:"hooks"`
		} `json:"data"`
	}
	if err := call(2, "hooks/list", map[string]any{"cwds": []string{dir}}, &list); err != nil {
		return says, err
	}
	for _, each := range list.Data {
		says.hooks = append(says.hooks, each.Hooks...)
	}
	return says, nil
}

// lookAtCodex says whether Codex runs knoot's hooks: it skips those that nobody has trusted, without a word.
func (e *examination) lookAtCodex(ctx context.Context, repo *gitlog.Repository, a *installation, ran bool) {
	name := a.name
	review := "start Codex in " + repo.Root + ", type /hooks and trust knoot's"
	program, err := exec.LookPath(a.program)
	if err != nil {
		if !ran {
			e.good(name, "is not on PATH; where you have it, /hooks in it shows whether knoot's hooks are trusted")
		}
		return
	}
	says, err := askCodex(ctx, program, repo.Root)
	if err != nil {
		e.bad(name, "type /hooks in Codex: it shows whether knoot's hooks are trusted", "cannot be asked for its hooks: %v", err)
		return
	}
	if olderVersion(says.version, codexTried) {
		e.bad(name, "update Codex", "is %s; versions before %s leave out hooks of some edits", says.version, codexTried)
	}
	all, run := 0, 0
	for _, h := range says.hooks {
		if h.Command == hook.CodexCommand {
			if all++; h.runs() {
				run++
			}
		}
	}
	path, root := a.path(ctx, repo)
	switch {
	case all == 0 && root != repo.Root && !isFolder(filepath.Join(repo.Root, a.folder)):
		e.bad(name, "`knoot init` makes it", "has no hooks in this worktree: it looks for them in the main checkout where there is a folder %s here, and there is none", a.folder)
	case all == 0:
		e.bad(name, "start Codex in "+repo.Root+" and say that you trust the folder: it loads no project's hooks before; where `[features]` in its config.toml has `hooks = false`, remove that",
			"%s does not load knoot's hooks (%s)", says.title(), e.short(repo, path))
	case run < all:
		e.bad(name, review, "%d of knoot's %d hooks are not trusted, or switched off: Codex skips those, and does not say so", all-run, all)
	default:
		e.good(name, "%s trusts knoot's %d hooks", says.title(), all)
	}
}

// olderVersion reports whether a version a, of numbers and dots, is older than b. One that is not of numbers is not.
func olderVersion(a, b string) bool {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range bs {
		if i == len(as) {
			return true
		}
		digits, _, _ := strings.Cut(as[i], "-")
		m, err := strconv.Atoi(digits)
		n, _ := strconv.Atoi(bs[i]) // b is one of ours
		if err != nil || m != n {
			return err == nil && m < n
		}
	}
	return false
}
