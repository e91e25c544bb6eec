package gitlog

import (
	"bytes"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"
)

// LastChange is who made a file what it is.
type LastChange struct {
	By     string // a member's name, or the author that git names
	At     Millis
	Commit string // hex; "" where an event says it
}

// LastChange finds out who, after since, made the file at path what it is: blob, or nil where it is gone. It goes by the newest
// event that says so, else by the newest commit on the path that HEAD did not have at that time. nil where neither is: what
// somebody changed and has not committed.
func (t *Tree) LastChange(ctx context.Context, c *Clone, path string, blob []byte, since Millis) (*LastChange, error) {
	for _, s := range slices.Backward(c.Writes(path)) {
		if s.Time > since && (blob == nil && s.Kind == PathRemoved || s.Event.hasBlob(path, blob)) {
			return &LastChange{By: c.MemberName(s.Author), At: s.Time}, nil
		}
	}
	_, head, err := t.Head(ctx)
	if err != nil || head == "" {
		return nil, err
	}
	if committed, err := t.headBlob(ctx, head, path); err != nil || !bytes.Equal(committed, blob) {
		return nil, err
	}
	args := []string{"log", "-1", "--no-show-signature", "--no-color", "--format=%H%x00%at%x00%aN", head}
	// The reflog knows where HEAD was, as far back as it goes.
	then, exit, err := t.ask(ctx, head, "rev-parse", "--verify", "--quiet", "HEAD@{"+since.Time().UTC().Format(time.DateTime)+" +0000}")
	if err != nil {
		return nil, err
	}
	if exit == 0 {
		args = append(args, "^"+strings.TrimSpace(then))
	} else {
		args = append(args, "--since="+since.Time().UTC().Format(time.RFC3339))
	}
	out, exit, err := t.ask(ctx, head, append(args, "--", path)...)
	fields := strings.SplitN(strings.TrimSpace(out), "\x00", 3)
	if err != nil || exit != 0 || len(fields) != 3 {
		return nil, err
	}
	seconds, err := strconv.ParseUint(fields[1], 10, 64)
	if err != nil {
		return nil, err
	}
	return &LastChange{By: fields[2], At: Millis(seconds * 1000), Commit: fields[0]}, nil
}
