package hook

import (
	"encoding/json"
	"io"
)

// explanation is what --explain prints: what a payload makes the shim ask. Scripts rely on its keys.
type explanation struct {
	Event    string   `json:"event"`
	Agent    string   `json:"agent"`
	Session  string   `json:"session"`
	Subagent string   `json:"subagent"` // "" outside one
	Cwd      string   `json:"cwd"`
	Reads    []string `json:"reads"` // relative to the root, sorted, never null
	Writes   []string `json:"writes"`
	Trees    []string `json:"trees"` // those of Writes that cover all below
	Opaque   bool     `json:"opaque"`
}

// explain tells what would be asked. It opens no file, and where there is no worktree paths are relative to Cwd.
func (a *agent) explain(name string, p *payload, getenv func(string) string) explanation {
	h := &p.hook
	touched, opaque := a.touches(p, getenv)
	e := explanation{
		Event: h.Event, Agent: name, Session: h.Session, Subagent: h.Subagent,
		Cwd: realCwd(h.Cwd), Reads: []string{}, Writes: []string{}, Trees: []string{}, Opaque: opaque,
	}
	for _, place := range places(e.Cwd, touched) {
		e.Reads = append(e.Reads, place.Reads...)
		e.Writes = append(e.Writes, place.Writes...)
		e.Trees = append(e.Trees, place.Trees...)
	}
	if findRoot(e.Cwd) == "" {
		for _, t := range touched {
			if rel, ok := below(e.Cwd, t.path); ok && t.sweep == nil && findRoot(t.path) == "" {
				if t.writes {
					e.Writes = append(e.Writes, rel)
					if t.tree {
						e.Trees = append(e.Trees, rel)
					}
				} else {
					e.Reads = append(e.Reads, rel)
				}
			}
		}
	}
	sortUnique(&e.Reads)
	sortUnique(&e.Writes)
	sortUnique(&e.Trees)
	return e
}

func (e explanation) print(to io.Writer) error {
	enc := json.NewEncoder(to)
	enc.SetEscapeHTML(false)
	return enc.Encode(e)
}
