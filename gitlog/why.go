package gitlog

import (
	"context"
	"slices"
	"strconv"
	"strings"
)

// Story is `why --json`: what is known of a path.
type Story struct {
	Path    string        `json:"path"`
	Facts   []Recalled    `json:"facts"`   // newest first, superseded and expired ones too; a confirmed one once
	Events  []StoryEvent  `json:"events"`  // oldest first
	Commits []StoryCommit `json:"commits"` // newest first, as git lists them
}

// StoryEvent is what a session did, or said that it would.
type StoryEvent struct {
	At      string `json:"at"`
	Kind    string `json:"kind"`
	Session string `json:"session"`
	Agent   string `json:"agent"`
	Member  string `json:"member"`
	Branch  string `json:"branch"`
	Text    string `json:"text"`
	Former  bool   `json:"-"` // the member has left the team
}

// StoryCommit is one of git's own commits on the path.
type StoryCommit struct {
	ID      string `json:"id"`
	Author  string `json:"author"`
	At      string `json:"at"`
	Subject string `json:"subject"`
}

const (
	// intentLife is how long what somebody typed to an agent is shown.
	intentLife Millis = 30 * day

	maxStoryCommits = 500
)

// Why tells a path's story: the facts about it, what sessions did to it and what they had set out to do, and git's commits, by
// all names that a file had. The path is relative to the root and need not exist. It needs no lock.
func (c *Clone) Why(ctx context.Context, t *Tree, path string, now Millis) (*Story, error) {
	path, err := CanonicalPath(path)
	if err != nil {
		return nil, refuse("%v", err)
	}
	story := &Story{Path: path, Facts: []Recalled{}, Events: []StoryEvent{}, Commits: []StoryCommit{}}
	names, err := t.history(ctx, path, story)
	if err != nil {
		return nil, err
	}
	fold := t.ignoreCase()
	var about []*Item
	for _, item := range renewed(c.Memory().All(now)) {
		if len(pathsOf(item)) > 0 && item.Fact != nil && !item.Forgotten {
			about = append(about, item)
		}
	}
	if err := t.warm(ctx, about); err != nil {
		return nil, err
	}
	for _, item := range about {
		verdict, err := t.Judge(ctx, c, item, now)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(names, func(name string) bool { return touches(item, verdict, name, fold) }) {
			story.Facts = append(story.Facts, c.recalled(item, verdict))
		}
	}
	c.tellEvents(story, names, fold, now)
	return story, nil
}

// tellEvents adds what sessions did to a path, and what these sessions had set out to do.
func (c *Clone) tellEvents(story *Story, names []string, fold bool, now Millis) {
	events := c.Events()
	here := func(s *Stored) bool {
		return slices.ContainsFunc(s.Event.Paths, func(p EventPath) bool {
			return slices.ContainsFunc(names, func(name string) bool {
				own := p.Path
				if fold {
					own, name = FoldPath(own), FoldPath(name)
				}
				return own == name || within(own, name)
			})
		})
	}
	told := make(map[eventKey]bool)
	sessions := make(map[sessionKey]bool)
	for _, s := range events {
		if s.Event != nil && here(s) {
			sessions[sessionKey{s.Author, s.Event.Agent + ":" + s.Event.Session}] = true
		}
	}
	for _, s := range events {
		if s.Event == nil {
			continue
		}
		said := s.Kind == IntentDeclared || s.Kind == PlanDeclared
		if !here(s) && !(said && sessions[sessionKey{s.Author, s.Event.Agent + ":" + s.Event.Session}]) {
			continue
		}
		// One whose paths lie in several rooms was written into each.
		key := eventKey{s.Author, s.Kind, s.Time, s.Nonce}
		if told[key] {
			continue
		}
		told[key] = true
		e := StoryEvent{
			At: TimeText(s.Time), Kind: s.Kind.String(), Session: s.Event.Session, Agent: s.Event.Agent, Member: c.MemberName(s.Author),
			Branch: s.Event.Branch, Text: s.Event.Text, Former: c.Former(s.Author),
		}
		if said && s.Time+intentLife < now {
			e.Text = ""
		}
		story.Events = append(story.Events, e)
	}
}

// eventKey is what the parts of one event have in common.
type eventKey struct {
	device DeviceID
	kind   EntryKind
	time   Millis
	nonce  [8]byte
}

// history adds git's commits on a path and returns all names that the path had.
func (t *Tree) history(ctx context.Context, path string, story *Story) ([]string, error) {
	names := []string{path}
	_, head, err := t.Head(ctx)
	if err != nil || head == "" {
		return names, err
	}
	args := []string{"log", "--no-show-signature", "--no-color", "-z", "-n", strconv.Itoa(maxStoryCommits)}
	follow := path != "" && !stampOf(t.abs(path)).dir()
	if follow {
		args = append(args, "--follow", "-M")
	}
	where := []string{head, "--"}
	if path != "" {
		where = append(where, path)
	}
	out, exit, err := t.ask(ctx, head, slices.Concat(args, []string{"--format=%H%x09%at%x09%aN%x09%s"}, where)...)
	if err != nil {
		return names, err
	}
	if exit != 0 {
		return names, nil // a history that is cut off in its middle, say: what else is known is told
	}
	for entry := range strings.SplitSeq(out, "\x00") {
		fields := strings.SplitN(entry, "\t", 4)
		if len(fields) != 4 {
			continue
		}
		seconds, _ := strconv.ParseUint(fields[1], 10, 64)
		story.Commits = append(story.Commits, StoryCommit{ID: fields[0], Author: fields[2], At: TimeText(Millis(seconds * 1000)), Subject: fields[3]})
	}
	if !follow {
		return names, nil
	}
	out, exit, err = t.ask(ctx, head, slices.Concat(args, []string{"--format=", "--name-status", "--diff-filter=R"}, where)...)
	if err != nil || exit != 0 {
		return names, err
	}
	parts := strings.Split(out, "\x00")
	for i := 0; i+2 < len(parts); i += 3 {
		if old := strings.TrimSpace(parts[i+1]); old != "" && !slices.Contains(names, old) {
			names = append(names, old)
		}
	}
	return names, nil
}
