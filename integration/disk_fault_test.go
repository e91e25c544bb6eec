package integration

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"knoot.dev/knoot/integration/stage"
)

// mounting runs a shell script of the person in a mount namespace of its own, or skips the test where that is not possible.
// Permissions cannot stand in for a read-only or a full disk: tests in containers run as root, who ignores them.
func mounting(t *testing.T, p *stage.Person, dir, stdin, script string) stage.Result {
	t.Helper()
	if output, err := exec.Command("unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "tmpfs", t.TempDir()).CombinedOutput(); err != nil {
		t.Skipf("no mount namespaces here: %v: %s", err, output)
	}
	return p.Try(dir, stdin, "unshare", "--map-root-user", "--mount", "sh", "-eu", "-c", script)
}

func TestAReadOnlyHome(t *testing.T) {
	s := newShop(t)
	payload := stage.Session{Person: s.priya, ID: "ro", Dir: s.hers}.Payload("SessionStart", map[string]any{"source": "startup"})
	const readOnly = `mount --bind "$KNOOT_HOME" "$KNOOT_HOME"; mount -o remount,ro,bind "$KNOOT_HOME"; `

	if hook := mounting(t, s.priya, s.hers, payload, readOnly+"knoot hook claude"); hook != (stage.Result{}) {
		t.Errorf("a hook with a read-only home: %+v", hook)
	}
	s.remember(t)
	if recalled := mounting(t, s.priya, s.hers, "", readOnly+"knoot recall"); recalled.Code != 0 || !strings.Contains(recalled.Stdout, factText) {
		t.Errorf("recall with a read-only home: %+v", recalled)
	}
	fresh := stage.NewPerson(t, "sam")
	clone := fresh.Clone(stage.Host(t), "fresh")
	if init := mounting(t, fresh, clone, "", readOnly+"knoot init"); init.Code != 1 || !strings.Contains(init.Stderr, "read-only") {
		t.Errorf("init with a read-only home: %+v", init)
	}
}

func TestAFullDisk(t *testing.T) {
	s := newShop(t)
	payload := stage.Session{Person: s.priya, ID: "full", Dir: s.hers}.Payload("SessionStart", map[string]any{"source": "startup"})
	full := filepath.Join(s.priya.Home, "full")
	s.priya.Write(filepath.Join(full, "here"), "")
	const fill = `(dd if=/dev/zero of="$DISK/filler" bs=4096 || dd if=/dev/zero of="$DISK/filler2" bs=1) 2>/dev/null || true; `

	s.priya.Extra = []string{"DISK=" + full}
	hook := mounting(t, s.priya, s.hers, payload, `mount -t tmpfs -o size=64k,mode=0700 tmpfs "$DISK"; `+fill+
		`KNOOT_HOME="$DISK" knoot hook claude`)
	if hook != (stage.Result{}) {
		t.Errorf("a hook with a full disk: %+v", hook)
	}

	// A clone on a disk that fills up between two facts: the first stays, the second is refused, and once there is room again
	// the third is taken.
	result := mounting(t, s.priya, s.hers, "", `mount -t tmpfs -o size=8m,mode=0700 tmpfs "$DISK"
git clone --quiet "`+s.host+`" "$DISK/clone"
cd "$DISK/clone"
knoot init >/dev/null
knoot remember --name first --path README.md "written while there was room"
`+fill+`
if knoot remember --name second --path README.md "there is no room for this one at all"; then echo "took what it cannot keep"; fi
rm -f "$DISK"/filler*
knoot remember --name third --path src/billing.js "written after room was made for it"
git fsck --strict --no-dangling >&2
knoot recall --json`)
	if result.Code != 0 || strings.Contains(result.Stdout, "took what it cannot keep") {
		t.Fatalf("on a full disk: %+v", result)
	}
	for text, want := range map[string]bool{"while there was room": true, "no room for this one": false, "after room was made": true} {
		if strings.Contains(result.Stdout, text) != want {
			t.Errorf("recall after the disk was full: %q is there: %v\n%s", text, !want, result.Stdout)
		}
	}
	if !strings.Contains(result.Stderr, "space") {
		t.Errorf("the refusal does not say that the disk is full:\n%s", result.Stderr)
	}
}
