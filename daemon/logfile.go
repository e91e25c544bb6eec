package daemon

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"sync"
)

// knootd.log is rotated by size: it and one older file, knootd.log.1. Knoot writes no payload, no text of a fact or a
// prompt, no environment and no path inside a repository into it; the places of repositories are in it, and what git
// complained about.
const logSize = 1 << 20

// logFile is a file that is rotated before it grows past its limit.
type logFile struct {
	mu    sync.Mutex
	path  string
	limit int64
	file  *os.File // guarded by mu; nil when it cannot be opened
	size  int64    // guarded by mu
}

// openLogFile opens or makes the file at path, for this user alone.
func openLogFile(path string, limit int64) (*logFile, error) {
	l := &logFile{path: path, limit: limit}
	return l, l.open()
}

func (l *logFile) open() error {
	file, err := os.OpenFile(l.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("cannot open the log: %w", err)
	}
	info, err := file.Stat()
	if err != nil {
		_ = file.Close()
		return err
	}
	l.file, l.size = file, info.Size()
	return nil
}

// Write appends one record. It is whole in one of the two files, never in parts in both. A full disk loses the record
// and nothing else.
func (l *logFile) Write(record []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil && l.size > 0 && l.size+int64(len(record)) > l.limit {
		_ = l.file.Close()
		l.file = nil
		_ = os.Rename(l.path, l.path+".1")
	}
	if l.file == nil {
		if err := l.open(); err != nil {
			return 0, err
		}
	}
	n, err := l.file.Write(record)
	l.size += int64(n)
	return n, err
}

// Close ends writing; a later Write opens the file again.
func (l *logFile) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	return err
}

// newLogger writes text records to w. Errors come from git too, whose messages may quote an address with a password.
func newLogger(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			switch v := a.Value.Any().(type) {
			case error:
				a.Value = slog.StringValue(withoutPasswords(v.Error()))
			case string:
				a.Value = slog.StringValue(withoutPasswords(v))
			}
			return a
		},
	}))
}

var userInfo = regexp.MustCompile(`(\w://)[^/@\s]+@`)

// withoutPasswords takes user and password out of the addresses in a text.
func withoutPasswords(text string) string { return userInfo.ReplaceAllString(text, "$1") }
