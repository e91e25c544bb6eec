package hook

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"knoot.dev/knoot/daemon/socket"
)

// Failure is one hook that could not do its work; the agent was not told. Code says why, in words of a-z and dashes.
type Failure struct {
	At   time.Time
	Code string
}

// The codes of failures.
const (
	failAgent     = "unknown-agent"    // `knoot hook` without the name of an agent that it knows
	failStdin     = "stdin"            // the payload could not be read, or did not end within its time
	failEmpty     = "payload-empty"    // nothing was sent
	failTruncated = "payload-cut"      // it ends in the middle
	failMalformed = "payload-bad"      // no JSON, or no event
	failLarge     = "payload-large"    // more than maxPayload
	failMark      = "payload-bom"      // a byte order mark in front; recorded, not answered
	failBroken    = "payload-not-utf8" // recorded, not answered
	failPath      = "payload-no-path"  // a call that writes a file names none that is understood; it is allowed
	failAbsent    = "daemon-absent"    // no daemon
	failStarted   = "daemon-started"   // no daemon, and this hook started one
	failNoStart   = "daemon-no-start"  // no daemon, and it could not be started
	failBusy      = "daemon-slow"      // it did not answer in time, or did not look in time who holds what is written
	failGone      = "daemon-gone"      // it ended before it answered
	failGarbage   = "daemon-garbage"   // something else answered
	failForeign   = "daemon-foreign"   // socket or directory could be another user's
	failDial      = "daemon-dial"      // the socket could not be used for another reason
	failRefused   = "daemon-refused"   // it answered with an error
	failSlow      = "slow"             // time ran out elsewhere, in a file system perhaps
	failStdout    = "stdout"           // what there was to say could not be written
	failPanic     = "panic"            // a mistake in this program
)

const (
	maxFailure  = 200     // bytes of a line
	maxFailures = 1 << 20 // bytes of the file; then its older half goes
	failureTime = "2006-01-02T15:04:05.000Z"
)

// failuresFile is where hooks of this person leave a line when they fail.
func failuresFile(l socket.Location) string { return filepath.Join(l.Home, "failures") }

// appendFailure adds a line to the file. Hooks run side by side: a line is one write at the end of the file.
func appendFailure(file string, at time.Time, code string) error {
	line := at.UTC().Format(failureTime) + " " + code
	if len(line) >= maxFailure {
		line = line[:maxFailure-1]
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line + "\n")
	info, statErr := f.Stat()
	err = errors.Join(err, statErr, f.Close())
	if err == nil && info.Mode().IsRegular() && info.Size() > maxFailures {
		err = halveFailures(file)
	}
	return err
}

// halveFailures keeps the newer half. A line that another hook adds meanwhile may be lost, or the file halved twice.
func halveFailures(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	data = data[len(data)/2:]
	data = data[bytes.IndexByte(data, '\n')+1:]
	tmp := fmt.Sprintf("%s.%d", file, os.Getpid())
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return os.Rename(tmp, file)
}

// Failures are those that hooks recorded since a time, oldest first. Lines that are none, cut ones perhaps, are left out.
// Without a file there are none.
func Failures(l socket.Location, since time.Time) ([]Failure, error) {
	data, err := os.ReadFile(failuresFile(l))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read what hooks failed: %w", err)
	}
	var list []Failure
	for line := range strings.Lines(string(data)) {
		stamp, code, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		at, err := time.Parse(failureTime, stamp)
		if !ok || err != nil || code == "" || strings.Trim(code, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || at.Before(since) {
			continue
		}
		list = append(list, Failure{At: at, Code: code})
	}
	return list, nil
}

// payloadFailure names what decode failed with.
func payloadFailure(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, errEmpty):
		return failEmpty
	case errors.Is(err, io.ErrUnexpectedEOF):
		return failTruncated
	case errors.Is(err, errTooLarge):
		return failLarge
	case errors.Is(err, errPanic):
		return failPanic
	case errors.Is(err, errSyntax), errors.Is(err, errShape):
		return failMalformed
	}
	return failStdin
}

// askFailure names what asking the daemon failed with.
func askFailure(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, socket.ErrAbsent):
		return failAbsent
	case errors.Is(err, socket.ErrBusy):
		return failBusy
	case errors.Is(err, socket.ErrGone):
		return failGone
	case errors.Is(err, socket.ErrGarbage):
		return failGarbage
	case errors.Is(err, socket.ErrForeign):
		return failForeign
	}
	return failDial
}
