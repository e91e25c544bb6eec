package clients

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
)

// table is what came of each scenario with each client, and of each suite of conformance.
type table struct {
	mu     sync.Mutex
	rows   []client          // in the order in which they are listed; guarded by mu, as all here
	cells  map[string]string // by the client and the scenario's
	whys   map[string]string // why a client was skipped
	suites []string          // a line each
}

var results = table{cells: map[string]string{}, whys: map[string]string{}}

func (c *client) title() string { return c.name + " " + c.version + ", " + c.protocol }

// begin adds a row, where it is not there yet.
func (r *table) begin(c client) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.ContainsFunc(r.rows, func(other client) bool { return other.title() == c.title() }) {
		r.rows = append(r.rows, c)
	}
}

// add takes what came of a scenario that has ended.
func (r *table) add(t *testing.T, c client, scenario string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	cell := "ok"
	switch {
	case t.Failed():
		cell = "FAILED"
	case t.Skipped():
		cell = "-"
	}
	r.cells[c.title()+"\n"+scenario] = cell
}

// skip says why a client's row is empty.
func (r *table) skip(c client, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.whys[c.title()] = why
}

// suite adds a line about a suite of conformance.
func (r *table) suite(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.suites = append(r.suites, line)
}

// print prints the table; nothing where nothing was tried.
func (r *table) print(to io.Writer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.rows) > 0 {
		rows := [][]string{{"client", "version", "protocol"}}
		for _, s := range scenarios {
			rows[0] = append(rows[0], s.short)
		}
		for _, c := range r.rows {
			row := []string{c.name, c.version, c.protocol}
			if why, skipped := r.whys[c.title()]; skipped {
				rows = append(rows, append(row, "skipped: "+why))
				continue
			}
			for _, s := range scenarios {
				row = append(row, r.cells[c.title()+"\n"+s.name])
			}
			rows = append(rows, row)
		}
		columns(to, rows)
		fmt.Fprintln(to)
		for _, s := range scenarios {
			fmt.Fprintf(to, "%-9s %s\n", s.short, s.name)
		}
		fmt.Fprintln(to, "-         the client has no means for it")
	}
	slices.Sort(r.suites)
	if len(r.suites) > 0 {
		fmt.Fprintln(to)
	}
	for _, line := range r.suites {
		fmt.Fprintln(to, line)
	}
}

// columns prints rows below one another. What is behind the last column of the first row is not aligned, nor is a row's last.
func columns(to io.Writer, rows [][]string) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			if i < len(row)-1 || len(row) == len(rows[0]) {
				widths[i] = max(widths[i], len(cell))
			}
		}
	}
	fmt.Fprintln(to)
	for _, row := range rows {
		line := ""
		for i, cell := range row {
			line += fmt.Sprintf("%-*s  ", widths[i], cell)
		}
		fmt.Fprintln(to, strings.TrimRight(line, " "))
	}
}
