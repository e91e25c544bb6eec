package hook

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"knoot.dev/knoot/daemon/socket"
)

// startPause is how long after one start of a daemon no other hook starts one.
const startPause = 30 * time.Second

// Knootd finds the executable that does all but hooks: beside this one, links resolved, since both are installed together;
// else, where a package manager keeps each executable in a directory of its own, on PATH. Relative entries of PATH do not
// count: they would be looked up in whatever repository an agent works in.
func Knootd(executable func() (string, error), getenv func(string) string) (string, error) {
	var dirs []string
	if exe, err := executable(); err == nil {
		if real, err := filepath.EvalSymlinks(exe); err == nil {
			dirs = append(dirs, filepath.Dir(real))
		}
		dirs = append(dirs, filepath.Dir(exe))
	}
	for _, dir := range append(dirs, filepath.SplitList(getenv("PATH"))...) {
		if !filepath.IsAbs(dir) {
			continue
		}
		file := filepath.Join(dir, "knootd")
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
			return file, nil
		}
	}
	return "", errors.New("knootd is missing: it belongs beside knoot; install both from one archive")
}

// starter starts daemons, for one person, not too often.
type starter struct {
	at         socket.Location
	executable func() (string, error)
	environ    []string
	getenv     func(string) string
	now        time.Time
}

// start runs `knootd daemon --auto`, detached: in a session of its own, so that no terminal's end ends it, and with no
// descriptor of ours, because an agent waits until nobody holds the hook's output open. It is not waited for. It reports
// whether it did; within startPause of another start it does not.
func (s starter) start() (bool, error) {
	knootd, err := Knootd(s.executable, s.getenv)
	if err != nil {
		return false, err
	}
	if err := s.at.Make(); err != nil {
		return false, err
	}
	stamp, err := os.OpenFile(filepath.Join(s.at.Dir, "autostart"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return false, err
	}
	defer stamp.Close()
	if err := syscall.Flock(int(stamp.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return false, nil // another hook is about to
	}
	data, err := io.ReadAll(io.LimitReader(stamp, 64))
	if err != nil {
		return false, err
	}
	if last, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64); err == nil {
		if since := s.now.Sub(time.UnixMilli(last)); since >= 0 && since < startPause {
			return false, nil
		}
	}
	if err := stamp.Truncate(0); err != nil {
		return false, err
	}
	if _, err := stamp.WriteAt([]byte(strconv.FormatInt(s.now.UnixMilli(), 10)+"\n"), 0); err != nil {
		return false, err // without a stamp every prompt would start one
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return false, err
	}
	defer null.Close()
	p, err := os.StartProcess(knootd, []string{"knootd", "daemon", "--auto"}, &os.ProcAttr{
		Dir:   "/", // a daemon keeps no worktree busy
		Env:   daemonEnviron(s.environ),
		Files: []*os.File{null, null, null},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return false, err
	}
	return true, p.Release()
}

// daemonEnviron leaves out what belongs to the agent and its session: its credentials, the marks by which a program knows
// that an agent runs it, and git's variables, which would point the daemon's git at one repository.
func daemonEnviron(environ []string) []string {
	var kept []string
	for _, pair := range environ {
		name, _, _ := strings.Cut(pair, "=")
		if !agentVariable(name) {
			kept = append(kept, pair)
		}
	}
	return kept
}

func agentVariable(name string) bool {
	switch name {
	case "AI_AGENT", "KNOOT_AGENT", "KNOOT_USER", "KNOOT_PRIVATE", "PWD", "OLDPWD",
		"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY",
		"GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE", "GIT_PREFIX", "GIT_QUARANTINE_PATH":
		return true
	}
	for _, prefix := range [...]string{"CLAUDE", "ANTHROPIC_", "CODEX_", "OPENAI_", "COPILOT_", "GITHUB_COPILOT_", "CURSOR_", "GEMINI_", "OPENCODE"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
