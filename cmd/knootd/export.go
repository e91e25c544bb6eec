package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"sort"

	"github.com/peterbourgon/ff/v3/ffcli"

	"knoot.dev/knoot/gitlog"
)

func (c *console) exportCommand() *ffcli.Command {
	flags := newFlags("export")
	since := flags.String("since", "", "only what was said from this `TIME` on: 2026-03-31T14:00:00Z, 2026-03-31, 14:00, or an age such as 7d")
	return command(manual{
		name: "export", usage: "[--since TIME]",
		short: "Print all memory and history as JSON lines, opened",
		long: `One object a line, in order of time, "type" first: fact, cache, plan or event. It
needs no daemon and no network. What it prints is no longer sealed.`,
		example: `knoot export --since 7d > week.jsonl`,
	}, flags, func(ctx context.Context, args []string) error {
		if err := noArguments("export", args); err != nil {
			return err
		}
		var from gitlog.Millis
		if *since != "" {
			t, err := parseWhen(*since, c.now())
			if err != nil {
				return misuse{err.Error()}
			}
			from = gitlog.MillisOf(t)
		}
		clone, err := c.open(ctx)
		if err != nil {
			return err
		}
		defer clone.Close()
		out := bufio.NewWriter(c.stdout)
		e := json.NewEncoder(out)
		e.SetEscapeHTML(false)
		for _, line := range exported(clone, from, gitlog.MillisOf(c.now())) {
			if err := e.Encode(line.object); err != nil {
				return fmt.Errorf("export: %w", err)
			}
		}
		return out.Flush()
	})
}

type exportLine struct {
	at     gitlog.Millis
	object any
}

// exportedMemory is a line for a fact, a cached answer or a plan. The order of the fields is that of the line.
type exportedMemory struct {
	Type         string   `json:"type"`
	ID           string   `json:"id"`
	Kind         string   `json:"kind"`
	At           string   `json:"at"`
	Author       string   `json:"author"`
	WrittenBy    string   `json:"written_by"` // person or agent
	Session      string   `json:"session"`
	Name         string   `json:"name"`
	Text         string   `json:"text"`
	Decided      []string `json:"decided,omitempty"` // a plan's
	Paths        []string `json:"paths"`
	Branch       string   `json:"branch"`
	Supersedes   []string `json:"supersedes"`
	SupersededBy *string  `json:"superseded_by"`
	Pinned       bool     `json:"pinned"`
	Forgotten    bool     `json:"forgotten"`
	Expired      bool     `json:"expired"`
}

type exportedEvent struct {
	Type     string   `json:"type"`
	ID       string   `json:"id"`
	Kind     string   `json:"kind"`
	At       string   `json:"at"`
	Author   string   `json:"author"`
	Agent    string   `json:"agent"`
	Session  string   `json:"session"`
	Subagent string   `json:"subagent"`
	Branch   string   `json:"branch"`
	Paths    []string `json:"paths"`
	Text     string   `json:"text"`
}

func exported(clone *gitlog.Clone, from, now gitlog.Millis) []exportLine {
	var lines []exportLine
	for _, item := range clone.Memory().All(now) {
		if item.Time >= from {
			lines = append(lines, exportLine{item.Time, memoryLine(clone, item)})
		}
	}
	for _, s := range clone.Events() {
		if s.Time >= from && s.Event != nil {
			lines = append(lines, exportLine{s.Time, eventLine(clone, s)})
		}
	}
	sort.SliceStable(lines, func(i, j int) bool { return lines[i].at < lines[j].at })
	return lines
}

func memoryLine(clone *gitlog.Clone, item *gitlog.Item) exportedMemory {
	line := exportedMemory{
		Type: item.Kind.String(), Kind: item.Kind.String(), ID: item.ID().String(), At: gitlog.TimeText(item.Time), Author: clone.MemberName(item.Author),
		WrittenBy: "agent", Paths: []string{}, Supersedes: []string{}, Forgotten: item.Forgotten, Expired: item.Expired,
	}
	if item.SupersededBy != nil {
		id := item.SupersededBy.String()
		line.SupersededBy = &id
	}
	var paths []gitlog.FactPath
	if f := item.Fact; f != nil {
		if f.By == gitlog.ByPerson {
			line.WrittenBy = "person"
		}
		line.Name, line.Text, line.Session, line.Branch, line.Pinned, paths = f.Name, f.Text, f.Session, f.Branch, f.Pinned, f.Paths
		for _, id := range f.Supersedes {
			line.Supersedes = append(line.Supersedes, id.String())
		}
	}
	if p := item.Plan; p != nil {
		line.Text, line.Decided, line.Session, paths = p.Text, p.Decided, p.Session, p.Paths
	}
	for _, p := range paths {
		line.Paths = append(line.Paths, p.Path)
	}
	return line
}

func eventLine(clone *gitlog.Clone, s *gitlog.Stored) exportedEvent {
	e := s.Event
	line := exportedEvent{
		Type: "event", ID: s.ID().String(), Kind: s.Kind.String(), At: gitlog.TimeText(s.Time), Author: clone.MemberName(s.Author),
		Agent: e.Agent, Session: e.Session, Subagent: e.Subagent, Branch: e.Branch, Paths: []string{}, Text: e.Text,
	}
	for _, p := range e.Paths {
		line.Paths = append(line.Paths, p.Path)
	}
	return line
}
