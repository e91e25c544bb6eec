package mcpd

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"knoot.dev/knoot/daemon"
)

// Kinds of what an agent shows.
const (
	MarkdownArtifact  = "markdown"
	MermaidArtifact   = "mermaid"
	ChecklistArtifact = "checklist" // the board's
	TasksArtifact     = "tasks"     // the agent's graph, as it is when it is looked at
)

const (
	// maxArtifacts is how many an agent shows; the oldest goes for one more.
	maxArtifacts = 50
	// maxDiagram and MaxMarkdown bound a diagram and a file, in bytes, maxTitle a title.
	maxDiagram  = 64 << 10
	MaxMarkdown = 1 << 20
	maxTitle    = 120
)

// Artifact is something that an agent shows to the person.
type Artifact struct {
	Kind     string `json:"kind"`
	Title    string `json:"title,omitempty"`
	Path     string `json:"path,omitempty"`     // of markdown: absolute; the file is read when it is looked at
	Expanded bool   `json:"expanded,omitempty"` // of markdown
	Diagram  string `json:"diagram,omitempty"`  // of mermaid: its source
}

// same reports whether an artifact takes another's place.
func (a *Artifact) same(b *Artifact) bool {
	return a.Kind == b.Kind && a.Path == b.Path && (a.Kind != MermaidArtifact || a.Title == b.Title && (a.Title != "" || a.Diagram == b.Diagram))
}

// board is what an agent shows to the person, the newest last. It is never changed, but replaced as a whole.
type board struct {
	Agent     string     `json:"agent"`
	Artifacts []Artifact `json:"artifacts,omitempty"`
	Checklist *Checklist `json:"checklist,omitempty"`
}

func displayTools() []*tool {
	return []*tool{
		{group: display, name: "display-markdown", about: "Show a Markdown file to your user.", hints: hints{again: true},
			takes: []argument{{name: "path"}, {name: "expanded?", schema: truthSchema}}, do: displayMarkdown},
		{group: display, name: "view-mermaid", about: "Show a Mermaid diagram to your user.", hints: hints{again: true},
			takes: []argument{{name: "diagram", about: "its source"}, {name: "title?"}}, do: viewMermaid},
	}
}

// boardOf returns a copy of what an agent shows.
func (s *Server) boardOf(id string) board {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.boards[id]; b != nil {
		return *b
	}
	return board{Agent: id}
}

// keepBoard makes what an agent shows b. writing is held.
func (s *Server) keepBoard(b board) error {
	if err := s.keep(&record{Board: &b}); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.boards[b.Agent] = &b
	return nil
}

// show puts an artifact on an agent's board, in the place of the one that it takes the place of. writing is held.
func (s *Server) show(id string, a Artifact) error {
	b := s.boardOf(id)
	b.Artifacts = append(slices.DeleteFunc(slices.Clone(b.Artifacts), func(old Artifact) bool { return old.same(&a) }), a)
	b.Artifacts = b.Artifacts[max(0, len(b.Artifacts)-maxArtifacts):]
	return s.keepBoard(b)
}

// Shown is what an agent shows to the person.
type Shown struct {
	Artifacts []Artifact `json:"artifacts"` // the newest last; of kind checklist and tasks there is one each at most
	Checklist *Checklist `json:"checklist,omitempty"`
	Tasks     []Task     `json:"tasks"`
}

// shown is what an agent shows, as it is now.
func (s *Server) shown(id string) *Shown {
	b := s.boardOf(id)
	return &Shown{Artifacts: append([]Artifact{}, b.Artifacts...), Checklist: b.Checklist, Tasks: s.graphOf(id).listed()}
}

// isShown says how the person sees what the caller shows.
func (c *call) isShown() string { return "Your user sees it with: knoot agent show " + c.agent.ID }

func displayMarkdown(_ context.Context, c *call) (any, error) {
	path, err := c.args.text("path")
	if err != nil {
		return nil, err
	}
	expanded, err := c.args.truth("expanded")
	if err != nil {
		return nil, err
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(c.agent.Folder, path)
	}
	path = filepath.Clean(path)
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, refusef("%s cannot be read: %v", daemon.Clean(path, 200), err)
	case !info.Mode().IsRegular():
		return nil, refusef("%s is no file", daemon.Clean(path, 200))
	case info.Size() > MaxMarkdown:
		return nil, refusef("%s has %d bytes and may have %d", daemon.Clean(path, 200), info.Size(), MaxMarkdown)
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := c.show(c.agent.ID, Artifact{Kind: MarkdownArtifact, Title: daemon.Clean(filepath.Base(path), maxTitle), Path: path, Expanded: expanded}); err != nil {
		return nil, err
	}
	return c.isShown(), nil
}

func viewMermaid(_ context.Context, c *call) (any, error) {
	diagram, err := c.args.text("diagram")
	if err != nil {
		return nil, err
	}
	title, err := c.args.text("title")
	if err != nil {
		return nil, err
	}
	switch {
	case len(diagram) > maxDiagram:
		return nil, refusef("the diagram has %d bytes and may have %d", len(diagram), maxDiagram)
	case !utf8.ValidString(diagram):
		return nil, refusal("the diagram is no UTF-8")
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := c.show(c.agent.ID, Artifact{Kind: MermaidArtifact, Title: daemon.Clean(title, maxTitle), Diagram: strings.TrimSpace(diagram)}); err != nil {
		return nil, err
	}
	return c.isShown(), nil
}
