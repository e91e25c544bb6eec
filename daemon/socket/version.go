package socket

import (
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// Version is that of this executable. A release sets it when it is linked:
// -ldflags "-X knoot.dev/knoot/daemon/socket.Version=1.2.3". Without that it is what go recorded: see builtVersion.
var Version string

func init() {
	if Version == "" {
		info, _ := debug.ReadBuildInfo()
		Version = builtVersion(info)
	}
}

// release is the one that this code becomes. The Makefile reads it here.
const release = "0.1.0"

// builtVersion is the version of what `go install` or `go build` made: the release where go took it from a tag, else, as the
// Makefile has it, a build before the next release, ordered by its commit's time: 0.1.0-dev.20260331143000+1a2b3c4d5e6f. What
// was built without git or a module's version is "dev".
func builtVersion(info *debug.BuildInfo) string {
	if info == nil {
		return "dev"
	}
	version := strings.TrimPrefix(info.Main.Version, "v")
	committed, commit, pseudo := cutPseudoVersion(version)
	if !pseudo && version != "" && version != "(devel)" {
		return version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			commit = s.Value[:min(len(s.Value), 12)]
		case "vcs.time":
			if at, err := time.Parse(time.RFC3339, s.Value); err == nil {
				committed = at.UTC().Format(committedLayout)
			}
		}
	}
	if committed == "" {
		return "dev"
	}
	return release + "-dev." + committed + "+" + commit
}

const committedLayout = "20060102150405"

// cutPseudoVersion finds the commit and its time in what go calls one that has no tag: "0.0.0-20260331143000-1a2b3c4d5e6f",
// or "1.2.4-0.20260331143000-1a2b3c4d5e6f" where the last tag is 1.2.3.
func cutPseudoVersion(version string) (committed, commit string, ok bool) {
	version, _, _ = strings.Cut(version, "+")
	parts := strings.Split(version, "-")
	if len(parts) < 3 {
		return "", "", false
	}
	commit = parts[len(parts)-1]
	committed = parts[len(parts)-2]
	committed = committed[strings.LastIndexByte(committed, '.')+1:]
	if len(commit) != 12 || !isHex(commit) || len(committed) != len(committedLayout) || !isDecimal(committed) {
		return "", "", false
	}
	return committed, commit, true
}

// NewerThan reports whether version a replaces version b. It orders by semantic versioning, with or without a leading v and
// with missing parts as zero, and adds what builds that are no release are called: "1.2.3-4-gabc1234" (git describe, four
// commits after 1.2.3) is newer than 1.2.3; a version that has no number at all ("dev", a bare commit) is newer than every
// release, since whoever runs one built it himself, but never newer than another such; and the empty version, that of a
// program which did not say, is older than all. So of any two versions at most one is newer: two executables never take
// over from each other in turns.
func NewerThan(a, b string) bool { return compareVersions(a, b) > 0 }

func compareVersions(a, b string) int {
	x, y := parseVersion(a), parseVersion(b)
	if x.rank != y.rank {
		return x.rank - y.rank
	}
	for i := range x.numbers {
		if c := compareNumbers(x.numbers[i], y.numbers[i]); c != 0 {
			return c
		}
	}
	if c := comparePre(x.pre, y.pre); c != 0 {
		return c
	}
	return x.commits - y.commits
}

type version struct {
	rank    int       // 0 not said, 1 a release or after one, 2 not numbered
	numbers [3]string // decimal, without leading zeros, so that no number is too long
	pre     []string  // pre-release identifiers
	commits int       // after the tag, from git describe
}

func parseVersion(s string) version {
	s = strings.TrimPrefix(strings.TrimSpace(s), "v")
	if s == "" {
		return version{}
	}
	s, _, _ = strings.Cut(s, "+") // build metadata orders nothing
	v := version{rank: 1}
	s = strings.TrimSuffix(s, "-dirty")
	if parts := strings.Split(s, "-"); len(parts) >= 3 {
		commits, hash := parts[len(parts)-2], parts[len(parts)-1]
		if n, err := strconv.Atoi(commits); err == nil && n >= 0 && len(hash) > 4 && hash[0] == 'g' && isHex(hash[1:]) {
			v.commits = n
			s = strings.Join(parts[:len(parts)-2], "-")
		}
	}
	core, pre, hasPre := strings.Cut(s, "-")
	numbers := strings.Split(core, ".")
	if len(numbers) > len(v.numbers) {
		return version{rank: 2}
	}
	for i, n := range numbers {
		if !isDecimal(n) {
			return version{rank: 2}
		}
		v.numbers[i] = strings.TrimLeft(n, "0")
	}
	if hasPre {
		v.pre = strings.Split(pre, ".")
	}
	return v
}

func compareNumbers(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

// comparePre orders pre-releases: none is newest, numbers are below words and compared as numbers, more identifiers win.
func comparePre(a, b []string) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	}
	for i := 0; i < len(a) && i < len(b); i++ {
		x, y := a[i], b[i]
		c := 0
		switch {
		case isDecimal(x) && isDecimal(y):
			c = compareNumbers(strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0"))
		case isDecimal(x):
			c = -1
		case isDecimal(y):
			c = 1
		default:
			c = strings.Compare(x, y)
		}
		if c != 0 {
			return c
		}
	}
	return len(a) - len(b)
}

func isDecimal(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

func isHex(s string) bool {
	return s != "" && strings.Trim(s, "0123456789abcdef") == ""
}
