package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"knoot.dev/knoot/gitlog"
)

// treeWatch tells which files of a worktree change. Folders that git ignores, and repositories inside, are left out. Whoever
// opens it closes it.
type treeWatch struct {
	root    string
	rules   *gitlog.Rules
	events  *fsnotify.Watcher
	folders map[string]bool // those that are watched, relative to root
	add     func(dir string) error
}

// openTreeWatch begins to watch. The error is a sentence; where the system watches no more folders it says what to do.
func openTreeWatch(ctx context.Context, repo *gitlog.Repository) (*treeWatch, error) {
	events, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, watchError(err)
	}
	w := &treeWatch{root: repo.Root, rules: gitlog.OpenRules(repo), events: events, folders: map[string]bool{}, add: events.Add}
	tree := gitlog.OpenTree(repo)
	defer tree.Close()
	ignored := map[string]bool{}
	folders, err := tree.IgnoredFolders(ctx)
	for _, folder := range folders {
		ignored[folder] = true
	}
	if err == nil {
		err = w.watch("", func(folder string) bool { return ignored[folder] }, nil)
	}
	if err != nil {
		w.close()
		return nil, err
	}
	w.rules.Warm(ctx)
	return w, nil
}

func (w *treeWatch) close() {
	_ = w.events.Close()
	w.rules.Close()
}

// watch adds a folder and those below it, but those that skip says. found is told the files in them; nil: nobody wants to know.
func (w *treeWatch) watch(folder string, skip func(folder string) bool, found func(path string)) error {
	return filepath.WalkDir(filepath.Join(w.root, folder), func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil // it is gone, or may not be read
		}
		rel := w.relative(path)
		switch {
		case !entry.IsDir():
			if found != nil {
				found(rel)
			}
			return nil
		case rel != "" && (strings.EqualFold(entry.Name(), ".git") || skip(rel) || isRepository(path)):
			return fs.SkipDir
		}
		if err := w.add(path); errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			return fs.SkipDir
		} else if err != nil {
			return watchError(err)
		}
		w.folders[rel] = true
		return nil
	})
}

func (w *treeWatch) relative(path string) string {
	rel, err := filepath.Rel(w.root, path)
	if err != nil || rel == "." {
		return ""
	}
	return filepath.ToSlash(rel)
}

// isRepository says whether a folder is a worktree of its own.
func isRepository(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, ".git"))
	return err == nil
}

// run tells of each change until ctx ends. problem is told in a sentence what from then on is not seen.
func (w *treeWatch) run(ctx context.Context, changed func(path string, at time.Time), problem func(error)) {
	for {
		select {
		case event, open := <-w.events.Events:
			if !open {
				return
			}
			w.see(ctx, event, changed, problem)
		case err, open := <-w.events.Errors:
			if !open {
				return
			}
			// Where more changes at once than the system keeps, a tool is at work.
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				problem(watchError(err))
			}
		case <-ctx.Done():
			return
		}
	}
}

func (w *treeWatch) see(ctx context.Context, event fsnotify.Event, changed func(string, time.Time), problem func(error)) {
	path, now := w.relative(event.Name), time.Now()
	if path == "" || strings.EqualFold(path, ".git") || !event.Has(fsnotify.Create|fsnotify.Write|fsnotify.Remove|fsnotify.Rename) {
		return
	}
	if event.Has(fsnotify.Remove | fsnotify.Rename) {
		if w.folders[path] {
			delete(w.folders, path) // what was in it tells for itself
			return
		}
	} else if info, err := os.Lstat(event.Name); err == nil && info.IsDir() {
		if event.Has(fsnotify.Create) {
			err := w.watch(path, func(folder string) bool {
				return w.rules.KindsUntil(ctx, []string{folder}, gitlog.PathSet{})[0] == gitlog.FileIgnored
			}, func(file string) { changed(file, now) })
			if err != nil {
				problem(err)
			}
		}
		return
	}
	changed(path, now)
}

// watchError says what to do where the system watches no more.
func watchError(err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC):
		limit := ""
		if text, rerr := os.ReadFile("/proc/sys/fs/inotify/max_user_watches"); rerr == nil {
			limit = " (" + strings.TrimSpace(string(text)) + ")"
		}
		return fmt.Errorf("this system watches no more folders for you%s: `sudo sysctl fs.inotify.max_user_watches=1048576` raises that, and a line in /etc/sysctl.d keeps it so; or have git ignore large folders", limit)
	case errors.Is(err, syscall.EMFILE) && runtime.GOOS == "linux":
		return errors.New("too many programs of yours watch files: `sudo sysctl fs.inotify.max_user_instances=1024` allows more, or `ulimit -n 65536` if this shell allows few open files")
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return errors.New("watching takes an open file for each folder, and no more may be open: `ulimit -n 65536` allows more in this shell; or have git ignore large folders")
	}
	return fmt.Errorf("the worktree cannot be watched: %w", err)
}
