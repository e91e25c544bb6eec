package agents

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// table is what came of each scenario with each agent.
type table struct {
	mu     sync.Mutex
	agents []Agent           // in the order in which they were tried; guarded by mu, as all here
	cells  map[string]string // by the agent's name and the scenario's
}

var results = table{cells: map[string]string{}}

// add takes what came of a scenario that has ended.
func (r *table) add(t *testing.T, agent Agent, scenario string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.ContainsFunc(r.agents, func(a Agent) bool { return a.Name() == agent.Name() }) {
		r.agents = append(r.agents, agent)
	}
	cell := "ok"
	switch {
	case t.Failed():
		cell = "FAILED"
	case t.Skipped():
		cell = "-"
	}
	r.cells[agent.Name()+"\n"+scenario] = cell
}

// print prints the table; nothing where no scenario was tried.
func (r *table) print(to io.Writer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.agents) == 0 {
		return
	}
	slices.SortFunc(r.agents, func(a, b Agent) int { return strings.Compare(a.Name(), b.Name()) })
	wide := 0
	for _, s := range scenarios {
		wide = max(wide, len(s.name))
	}
	var names, versions []string
	widths := make([]int, len(r.agents))
	for i, agent := range r.agents {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		version, err := agent.Version(ctx)
		cancel()
		if err != nil {
			version = "not here"
		}
		names, versions = append(names, agent.Name()), append(versions, version)
		widths[i] = max(len(agent.Name()), len(version))
	}
	row := func(head string, cells []string) {
		line := fmt.Sprintf("%-*s", wide, head)
		for i, cell := range cells {
			line += fmt.Sprintf("  %-*s", widths[i], cell)
		}
		fmt.Fprintln(to, strings.TrimRight(line, " "))
	}
	fmt.Fprintln(to)
	row("real agents", names)
	row("", versions)
	for _, s := range scenarios {
		var cells []string
		for _, agent := range r.agents {
			cells = append(cells, r.cells[agent.Name()+"\n"+s.name])
		}
		row(s.name, cells)
	}
	fmt.Fprintln(to, "\n-: skipped, or the agent has no means for it")
}
