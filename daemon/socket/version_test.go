package socket

import "testing"

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
