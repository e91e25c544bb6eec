package socket

import (
	"runtime/debug"
	"testing"
)

// ascending lists versions from the oldest to the newest; those on one line replace nothing of each other.
var ascending = [][]string{
	{""},
	{"0", "0.0.0", "v0.0"},
	{"0.9.9"},
	{"0.10.0-alpha"},
	{"0.10.0-alpha.1"},
	{"0.10.0-alpha.2"},
	{"0.10.0-alpha.10"},
	{"0.10.0-alpha.beta"},
	{"0.10.0-dev.20260331143000+1a2b3c4d5e6f", "0.10.0-dev.20260331143000+ffffffffffff"},
	{"0.10.0-dev.20260401090000+000000000000"},
	{"0.10.0-rc.1"},
	{"0.10.0-rc.1-3-gabcdef0"},
	{"0.10.0", "v0.10", "0.10.0+linux"},
	{"v0.10.0-1-g1234567"},
	{"0.10.0-12-g1234567", "0.10.0-12-g1234567-dirty"},
	{"0.10.1"},
	{"1.0.0"},
	{"10.0.0"},
	{"99999999999999999999.0.0"},
	{"dev", "abc1234", "(devel)", "1.2.3.4"},
}

func TestNewerThanOrdersVersions(t *testing.T) {
	for i, older := range ascending {
		for _, a := range older {
			for j, line := range ascending {
				for _, b := range line {
					if got, want := NewerThan(b, a), j > i; got != want {
						t.Errorf("NewerThan(%q, %q) = %v, want %v", b, a, got, want)
					}
				}
			}
		}
	}
}

// What go install and go build record, from older to newer builds.
func TestVersionOfABuildWithoutFlags(t *testing.T) {
	vcs := func(at string) []debug.BuildSetting {
		return []debug.BuildSetting{{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: "1a2b3c4d5e6f77777777"}, {Key: "vcs.time", Value: at}}
	}
	before := ""
	for _, build := range []struct {
		module   string
		settings []debug.BuildSetting
		want     string
	}{
		{"(devel)", vcs("2026-03-31T14:30:00Z"), release + "-dev.20260331143000+1a2b3c4d5e6f"}, // go before 1.24
		{"v0.0.0-20260331143001-1a2b3c4d5e6f", nil, release + "-dev.20260331143001+1a2b3c4d5e6f"},
		{"v0.0.0-20260331143002-1a2b3c4d5e6f+dirty", vcs("2026-03-31T14:30:02Z"), release + "-dev.20260331143002+1a2b3c4d5e6f"},
		{"v0.0.9-0.20260331143003-1a2b3c4d5e6f", nil, release + "-dev.20260331143003+1a2b3c4d5e6f"},
		{"v0.0.9-rc.1.0.20260331143004-1a2b3c4d5e6f", nil, release + "-dev.20260331143004+1a2b3c4d5e6f"},
		{"v" + release, vcs("2026-03-31T14:30:00Z"), release},
		{"v99.0.0-rc.1+dirty", vcs("2026-03-31T14:30:00Z"), "99.0.0-rc.1+dirty"},
		{"(devel)", nil, "dev"},
	} {
		got := builtVersion(&debug.BuildInfo{Main: debug.Module{Version: build.module}, Settings: build.settings})
		if got != build.want {
			t.Errorf("%s: %q, want %q", build.module, got, build.want)
		}
		if !NewerThan(got, before) {
			t.Errorf("%q does not take over from %q", got, before)
		}
		before = got
	}
	for _, info := range []*debug.BuildInfo{nil, {}, {Main: debug.Module{Version: "(devel)"}, Settings: vcs("yesterday")}} {
		if got := builtVersion(info); got != "dev" {
			t.Errorf("%+v: %q", info, got)
		}
	}
}

func FuzzNewerThan(f *testing.F) {
	for _, line := range ascending {
		for _, v := range line {
			f.Add(v, "1.2.3-rc.1")
		}
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if NewerThan(a, a) || NewerThan(a, b) && NewerThan(b, a) {
			t.Errorf("%q and %q take over from each other", a, b)
		}
	})
}
