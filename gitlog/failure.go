package gitlog

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// SyncFailureKind says what kept a fetch or a push from working.
type SyncFailureKind int

const (
	SyncOffline   SyncFailureKind = iota + 1 // the host was not reached
	SyncLogin                                // the host wants credentials that git did not have
	SyncReadOnly                             // the host knows who this is, and allows no writing
	SyncNoHost                               // the address holds no repository that may be seen
	SyncRefused                              // a rule of the host's: it does not take such refs, or a hook declined
	SyncBehind                               // the host's ref holds what this clone has not
	SyncOtherwise                            // anything else; Detail has git's words
)

// SyncFailure is a fetch or push that failed, as one sentence with the command that would mend it. What was to be sent is
// kept.
type SyncFailure struct {
	Kind   SyncFailureKind
	Remote string // its name, or its address without a password
	Ref    string // on the host; "" where the whole command failed
	Detail string // git's or the host's own words
}

func (f *SyncFailure) Error() string {
	what := f.Remote
	if f.Ref != "" {
		what += " (" + f.Ref + ")"
	}
	switch f.Kind {
	case SyncOffline:
		return fmt.Sprintf("%s cannot be reached (%s): entries are kept and go later; `git ls-remote %s` shows whether it is back", what, f.Detail, f.Remote)
	case SyncLogin:
		return fmt.Sprintf("%s wants credentials that git could not give unasked (%s): run `knoot sync` in a terminal and log in", what, f.Detail)
	case SyncReadOnly:
		return fmt.Sprintf("you may read %s but not write to it (%s): ask for write access, or name another repository with `git config knoot.remote NAME`", what, f.Detail)
	case SyncNoHost:
		return fmt.Sprintf("%s is no repository that you may see (%s): check it with `git remote -v`", what, f.Detail)
	case SyncRefused:
		return fmt.Sprintf("%s does not take refs below refs/knoot (%s): ask its owner, or name a repository that does with `git config knoot.remote NAME`", what, f.Detail)
	case SyncBehind:
		return fmt.Sprintf("%s holds entries that this clone has not (%s): run `knoot sync`", what, f.Detail)
	}
	return fmt.Sprintf("syncing with %s failed (%s): run `knoot sync` to try again", what, f.Detail)
}

// signs are words of git, ssh, curl and the large hosts, most telling first.
var signs = []struct {
	kind SyncFailureKind
	text string
}{
	{SyncOffline, "could not resolve host"},
	{SyncOffline, "unable to look up"},
	{SyncOffline, "temporary failure in name resolution"},
	{SyncOffline, "name or service not known"},
	{SyncOffline, "nodename nor servname"},
	{SyncOffline, "failed to connect"},
	{SyncOffline, "couldn't connect"},
	{SyncOffline, "unable to connect"},
	{SyncOffline, "connection refused"},
	{SyncOffline, "connection timed out"},
	{SyncOffline, "connection reset"},
	{SyncOffline, "connection closed"},
	{SyncOffline, "operation timed out"},
	{SyncOffline, "network is unreachable"},
	{SyncOffline, "no route to host"},
	{SyncOffline, "early eof"},
	{SyncOffline, "the requested url returned error: 5"},
	{SyncReadOnly, "the requested url returned error: 403"},
	{SyncReadOnly, "write access to repository not granted"},
	{SyncReadOnly, "you are not allowed to push"},
	{SyncReadOnly, "permission denied to"},
	{SyncReadOnly, "permission to "}, // GitHub: Permission to ORG/NAME.git denied to USER
	{SyncReadOnly, "insufficient permission"},
	{SyncReadOnly, "read-only"},
	{SyncReadOnly, "read only"},
	{SyncLogin, "could not read username"},
	{SyncLogin, "could not read password"},
	{SyncLogin, "authentication failed"},
	{SyncLogin, "terminal prompts disabled"},
	{SyncLogin, "permission denied ("}, // ssh: Permission denied (publickey)
	{SyncLogin, "host key verification failed"},
	{SyncLogin, "the requested url returned error: 401"},
	{SyncLogin, "invalid credentials"},
	{SyncNoHost, "repository not found"},
	{SyncNoHost, "does not appear to be a git repository"},
	{SyncNoHost, "could not be found or you don't have permission"}, // GitLab
	{SyncNoHost, "the requested url returned error: 404"},
	{SyncRefused, "deny updating a hidden ref"},
	{SyncRefused, "hook declined"},
	{SyncRefused, "funny refname"},
	{SyncRefused, "prohibited"},
	{SyncRefused, "not allowed"},
	{SyncBehind, "non-fast-forward"},
	{SyncBehind, "fetch first"},
	{SyncBehind, "needs force"},
	{SyncBehind, "stale info"},
	{SyncBehind, "reference already exists"},
	{SyncBehind, "cannot lock ref"},
	{SyncBehind, "failed to update ref"},
	{SyncBehind, "incorrect old value provided"},
}

func classify(text string) (SyncFailureKind, string) {
	lower := strings.ToLower(text)
	for _, sign := range signs {
		if strings.Contains(lower, sign.text) {
			return sign.kind, sign.text
		}
	}
	return SyncOtherwise, ""
}

// networkFailure makes a sentence of a failed network command; errors that are none of git's pass.
func networkFailure(r *remote, err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return &SyncFailure{Kind: SyncOffline, Remote: r.String(), Detail: "no answer in time"}
	}
	var failed *gitError
	if !errors.As(err, &failed) {
		return err
	}
	kind, sign := classify(failed.stderr)
	detail := complaint(failed.stderr, failed.exit)
	// ssh and hosts say why on a line of their own, and git then only that it could not read.
	for line := range strings.SplitSeq(failed.stderr, "\n") {
		if sign != "" && strings.Contains(strings.ToLower(line), sign) {
			detail = strings.TrimPrefix(strings.TrimSpace(line), "fatal: ")
			break
		}
	}
	return &SyncFailure{Kind: kind, Remote: r.String(), Detail: strings.TrimSpace(strings.TrimPrefix(detail, "remote: "))}
}
