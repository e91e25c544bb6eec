package hook

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"knoot.dev/knoot/daemon/socket"
)

// switchedOff reports whether the environment silences all hooks: KNOOT=off, or a build machine that did not ask for knoot.
func switchedOff(getenv func(string) string) bool {
	switch getenv("KNOOT") {
	case "off":
		return true
	case "on":
		return false
	}
	return getenv("CI") != ""
}

// paused reports whether an off file says so: it holds when the pause ends, in milliseconds since 1970, or nothing where
// only `knoot on` ends it. What cannot be read as a time does not end either: silence is what was asked for.
func paused(file string, now time.Time) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, 64))
	if err != nil {
		return true
	}
	end, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	return err != nil || now.UnixMilli() < end
}

// awake returns the places that are not paused.
func awake(list []socket.Place, now time.Time) []socket.Place {
	var kept []socket.Place
	for _, p := range list {
		if !paused(filepath.Join(commonDir(p.Root), "knoot", "off"), now) {
			kept = append(kept, p)
		}
	}
	return kept
}

// commonDir finds git's common directory of a worktree without git. For what it does not understand it is <root>/.git.
func commonDir(root string) string {
	dir := filepath.Join(root, ".git")
	if info, err := os.Stat(dir); err != nil || info.IsDir() {
		return dir
	}
	to, ok := strings.CutPrefix(firstLine(dir), "gitdir: ")
	if !ok {
		return dir
	}
	dir = from(root, to)
	if common := firstLine(filepath.Join(dir, "commondir")); common != "" {
		return from(dir, common)
	}
	return dir
}

func from(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// firstLine is "" for a file that is not there.
func firstLine(file string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxName))
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return strings.TrimSuffix(line, "\r")
}
