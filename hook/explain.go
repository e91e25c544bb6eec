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
	Opaque   bool     `json:"opaque"`
}

// explain tells what would be asked. It opens nothing, and where there is no worktree paths are relative to Cwd.
func (a *agent) explain(name string, p *payload) explanation {
	h := &p.hook
	e := explanation{
		Event: h.Event, Agent: name, Session: h.Session, Subagent: h.Subagent,
		Cwd: realCwd(h.Cwd), Reads: []string{}, Writes: []string{}, Opaque: a.opaque(h),
	}
	touched := a.touches(p)
	for _, place := range places(e.Cwd, touched) {
		e.Reads = append(e.Reads, place.Reads...)
		e.Writes = append(e.Writes, place.Writes...)
	}
	if findRoot(e.Cwd) == "" {
		for _, t := range touched {
			if rel, ok := below(e.Cwd, t.path); ok && findRoot(t.path) == "" {
				if t.writes {
					e.Writes = append(e.Writes, rel)
				} else {
					e.Reads = append(e.Reads, rel)
				}
			}
		}
	}
	sortUnique(&e.Reads)
	sortUnique(&e.Writes)
	return e
}

func (e explanation) print(to io.Writer) error {
	enc := json.NewEncoder(to)
	enc.SetEscapeHTML(false)
	return enc.Encode(e)
}
