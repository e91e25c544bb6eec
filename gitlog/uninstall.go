package gitlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// UninstallReport says what Uninstall took out.
type UninstallReport struct {
	Removed []string // a line for each file, ref and setting
	Bundle  string   // a git bundle of what is nowhere else, "" where everything is on the host
	OnHost  int      // refs deleted on the host
	Left    []string // what could not be taken out, each with what to do
}

func (r *UninstallReport) removed(format string, args ...any) {
	r.Removed = append(r.Removed, fmt.Sprintf(format, args...))
}

// Uninstall takes knoot out of a clone: refs, settings, folder and git configuration. With fromHost it deletes this device's
// refs on the remote first, and the team itself where it is the only device in it. Logs that are nowhere else are kept in
// a git bundle in the home folder. It takes the clone's lock, so no daemon may have it.
func Uninstall(ctx context.Context, repo *Repository, home *Home, fromHost bool) (*UninstallReport, error) {
	report := &UninstallReport{}
	lock, err := lockClone(repo, home.Dir)
	if err != nil {
		return nil, err
	}
	defer lock.unlock()
	if err := flushBeforeUninstall(ctx, repo, home, lock); err != nil {
		report.Left = append(report.Left, fmt.Sprintf("What happened last was not published: %v", err))
	}
	objects, err := openObjects(ctx, repo, false)
	if err != nil {
		return nil, err
	}
	defer objects.close()
	if fromHost {
		if err := uninstallFromHost(ctx, repo, home, report); err != nil {
			return report, err
		}
	}
	if err := keepBundle(ctx, repo, home, fromHost, report); err != nil {
		return report, err
	}
	if err := removeRefs(ctx, repo, report); err != nil {
		return report, err
	}
	if err := removeFetchLines(ctx, repo); err != nil {
		return report, err
	}
	if err := showDecoration(ctx, repo); err != nil {
		return report, err
	}
	if err := unsetLocalOnly(ctx, repo); err != nil {
		return report, err
	}
	report.removed("git configuration: knoot's fetch lines and log settings")
	if err := unexclude(repo, report); err != nil {
		return report, err
	}
	if repo.Root != "" {
		path := filepath.Join(repo.Root, SettingsFile)
		if err := os.Remove(path); err == nil {
			report.removed("%s (commit its removal if it was committed)", path)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return report, fmt.Errorf("cannot remove %s: %w", path, err)
		}
	}
	dir := filepath.Join(repo.CommonDir, "knoot")
	if err := os.RemoveAll(dir); err != nil {
		return report, fmt.Errorf("cannot remove %s: %w", dir, err)
	}
	report.removed("%s", dir)
	err = home.UpdateKnown(func(k *Known) error {
		delete(k.Clones, repo.CommonDir)
		return nil
	})
	return report, err
}

// flushBeforeUninstall makes the journal a segment, so that the bundle or the host has it. It lends the lock to the clone.
func flushBeforeUninstall(ctx context.Context, repo *Repository, home *Home, lock *cloneLock) error {
	c, err := OpenClone(ctx, repo, home)
	if errors.Is(err, ErrNotInitialised) || errors.Is(err, ErrNoDevice) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := c.startWriting(); err != nil {
		if errors.Is(err, errNoWriter) {
			return nil
		}
		return err
	}
	c.lock = lock
	err = c.Flush(ctx)
	c.lock = nil
	return errors.Join(err, c.journal.close(), c.objects.close())
}

// uninstallFromHost deletes what this device wrote on the host.
func uninstallFromHost(ctx context.Context, repo *Repository, home *Home, report *UninstallReport) error {
	c, err := OpenClone(ctx, repo, home)
	if err != nil {
		return err
	}
	if c.remote == nil {
		return ErrNoRemote
	}
	alone := c.roster != nil && c.roster.onlyDevice(c.device.ID)
	h := openHost(repo, c.remote, gitForeground)
	report.OnHost, err = h.deleteFromHost(ctx, func(p refPlace) bool {
		return p.Log != 0 && p.Writer.Device() == c.device.ID || p.Roster && alone
	})
	if err == nil {
		report.removed("%d refs on %s; old clones and the host's backups keep what they have of them, sealed", report.OnHost, c.remote)
	}
	return errors.Join(err, c.objects.close())
}

// keepBundle saves the logs that would be lost with the refs.
func keepBundle(ctx context.Context, repo *Repository, home *Home, fromHost bool, report *UninstallReport) error {
	found, _, err := openRefs(repo).list(ctx, ownRefs, inboxRefs)
	if err != nil {
		return err
	}
	hosted := map[Hash]bool{}
	for _, r := range found {
		if strings.HasPrefix(r.Name, inboxRefs) {
			hosted[r.Hash] = true
		}
	}
	lost := slices.ContainsFunc(found, func(r ref) bool {
		return strings.HasPrefix(r.Name, ownRefs) && (fromHost || !hosted[r.Hash])
	})
	if !lost {
		return nil
	}
	dir := home.Path("removed")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("cannot keep what is only here: %w", err)
	}
	path := filepath.Join(dir, filepath.Base(filepath.Dir(repo.CommonDir))+"-"+Now().Time().Format("20060102-150405")+".bundle")
	if _, err := repo.git().output(ctx, "bundle", "create", "--quiet", path, "--glob="+ownRefs+"*"); err != nil {
		return fmt.Errorf("cannot keep what is only here, so nothing was taken out: %w", err)
	}
	report.Bundle = path
	return nil
}

func removeRefs(ctx context.Context, repo *Repository, report *UninstallReport) error {
	refs := openRefs(repo)
	found, broken, err := refs.list(ctx, ownRefs, keptRefs, inboxRefs)
	if err != nil {
		return err
	}
	names := broken
	for _, r := range found {
		names = append(names, r.Name)
	}
	for _, name := range names {
		if err := refs.remove(ctx, name); err != nil {
			return fmt.Errorf("cannot remove %s: %w", name, err)
		}
	}
	report.removed("%d refs under refs/knoot, refs/knoot-kept and refs/knoot-remote", len(names))
	return nil
}

func unexclude(repo *Repository, report *UninstallReport) error {
	path := filepath.Join(repo.CommonDir, "info", "exclude")
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", path, err)
	}
	var rest bytes.Buffer
	for line := range strings.Lines(string(text)) {
		if strings.TrimSpace(line) != excludeLine {
			rest.WriteString(line)
		}
	}
	if rest.Len() == len(text) {
		return nil
	}
	if err := ReplaceFile(path, rest.Bytes(), 0o644); err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	report.removed("%s: the line %s", path, excludeLine)
	return nil
}
