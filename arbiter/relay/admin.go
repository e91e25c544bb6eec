package relay

import (
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"knoot.dev/knoot/arbiter/wire"
)

// Admin serves /health, /status and /metrics, for operators. It shows numbers and public ids and nothing of what teams
// say, which the relay does not know. Serving ends with the context.
func (s *Server) Admin(ctx context.Context, listener net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if err := s.Healthy(); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintln(w, err)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		s.metrics.write(w, s.gauges())
	})
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
		st := s.status()
		st.write(w)
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second, MaxHeaderBytes: 16 << 10}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("the admin's page: %w", err)
	}
	return nil
}

// status is what the page shows.
type status struct {
	Trouble     string
	Key         string
	Software    string
	Connections int
	Listeners   int
	Claims      int
	LogBytes    int64
	Grace       time.Duration
	Teams       []teamStatus
	Faults      []faultStatus
}

type teamStatus struct {
	ID            string
	Devices, Here int
	Entries       int
}

type faultStatus struct {
	Name  string
	Count uint64
}

func (s *Server) status() status {
	g := s.gauges()
	st := status{
		Key: s.Pin().String(), Software: s.options.Software, Connections: g.connections, Listeners: g.listeners, Claims: g.claims,
		LogBytes: g.logBytes, Grace: g.grace.Truncate(time.Second),
	}
	if err := s.Healthy(); err != nil {
		st.Trouble = err.Error()
	}
	here := map[*team]int{}
	for _, c := range s.current() {
		c.mu.Lock()
		teams := map[*team]bool{}
		for _, o := range c.opened {
			teams[o.team] = true
		}
		c.mu.Unlock()
		for t := range teams {
			here[t]++
		}
	}
	s.mu.Lock()
	for _, t := range s.teams {
		if chain := t.chain.Load(); chain != nil {
			st.Teams = append(st.Teams, teamStatus{ID: t.id.String(), Devices: len(chain.Devices()), Here: here[t], Entries: chain.Len()})
		}
	}
	s.mu.Unlock()
	slices.SortFunc(st.Teams, func(a, b teamStatus) int {
		if a.Here != b.Here {
			return b.Here - a.Here
		}
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	for _, code := range wire.Codes() {
		if n := s.metrics.faults[code].Load(); n > 0 {
			st.Faults = append(st.Faults, faultStatus{code.String(), n})
		}
	}
	return st
}

// mostTeams bounds the page.
const mostTeams = 200

// write is by hand: html/template would make the linker keep every exported method of the whole program.
func (st *status) write(w io.Writer) {
	io.WriteString(w, statusHead)
	if st.Trouble != "" {
		fmt.Fprintf(w, "<p class=\"bad\"><strong>%s</strong></p>\n", html.EscapeString(st.Trouble))
	} else {
		io.WriteString(w, "<p class=\"good\"><strong>The relay works.</strong></p>\n")
	}
	if st.Grace > 0 {
		fmt.Fprintf(w, "<p>The state was lost: for %s more, only what was granted before is granted. Agents write as ever.</p>\n", st.Grace)
	}
	fmt.Fprintf(w, `<table>
<tr><th>relay key<td><code>%s</code>
<tr><th>software<td>%s
<tr><th>connections<td>%d, with %d open repositories
<tr><th>claims<td>%d
<tr><th>log<td>%.1f MiB
</table>
<h2>Teams</h2>
`, html.EscapeString(st.Key), html.EscapeString(st.Software), st.Connections, st.Listeners, st.Claims, float64(st.LogBytes)/(1<<20))
	if len(st.Teams) == 0 {
		io.WriteString(w, "<p>None has connected yet.</p>\n")
	} else {
		io.WriteString(w, "<table>\n<tr><th>id<th class=\"n\">devices<th class=\"n\">connected<th class=\"n\">roster entries\n")
		for _, t := range st.Teams[:min(len(st.Teams), mostTeams)] {
			fmt.Fprintf(w, "<tr><td><code>%s</code><td class=\"n\">%d<td class=\"n\">%d<td class=\"n\">%d\n", t.ID, t.Devices, t.Here, t.Entries)
		}
		io.WriteString(w, "</table>\n")
		if more := len(st.Teams) - mostTeams; more > 0 {
			fmt.Fprintf(w, "<p>And %d more.</p>\n", more)
		}
	}
	if len(st.Faults) > 0 {
		io.WriteString(w, "<h2>Requests and connections refused since the start</h2>\n<table>\n")
		for _, f := range st.Faults {
			fmt.Fprintf(w, "<tr><td>%s<td class=\"n\">%d\n", html.EscapeString(f.Name), f.Count)
		}
		io.WriteString(w, "</table>\n")
	}
	io.WriteString(w, "</html>\n")
}

const statusHead = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>knoot relay</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 50rem; padding: 0 1rem; color: #222; background: #fff }
h1 { font-size: 1.3rem } h2 { font-size: 1.05rem; margin-top: 2rem }
table { border-collapse: collapse } td, th { padding: .15rem 1rem .15rem 0; text-align: left; vertical-align: top } td.n, th.n { text-align: right }
code { overflow-wrap: anywhere } .bad { color: #a00 } .good { color: #060 }
@media (prefers-color-scheme: dark) { body { color: #ddd; background: #161616 } .bad { color: #f88 } .good { color: #8d8 } }
</style>
<h1>knoot relay</h1>
`
